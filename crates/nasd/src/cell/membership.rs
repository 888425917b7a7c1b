//! The ledger as the manager uses it: in memory, and read anew when somebody has changed it.

use super::{Cell, CellError, Member, Members, enrol};
use nasd_manager::membership::{Enrolled, EnrolmentError, Membership, MembershipError};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

/// The members of the cell in a directory.
#[derive(Debug)]
pub struct Ledger {
    directory: PathBuf,
    /// Identities by serial numbers.
    present: RwLock<HashMap<String, String>>,
}

impl Ledger {
    /// Reads it.
    ///
    /// # Errors
    /// As [`Members::load`].
    pub fn open(directory: PathBuf) -> Result<Self, CellError> {
        let present = RwLock::new(read(&directory)?);
        Ok(Ledger { directory, present })
    }
}

fn read(directory: &std::path::Path) -> Result<HashMap<String, String>, CellError> {
    let members = Members::load(directory)?;
    let entry = |member: &Member| (member.serial.clone(), member.identity());
    Ok(members.present().map(entry).collect())
}

impl Membership for Ledger {
    fn has(&self, serial: &str, identity: &str) -> bool {
        let present = self.present.read().unwrap_or_else(PoisonError::into_inner);
        present.get(serial).is_some_and(|known| known == identity)
    }

    fn reload(&self) -> Result<(), MembershipError> {
        let fresh = read(&self.directory).map_err(|error| MembershipError(error.to_string()))?;
        *self.present.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    fn enrol(&self, secret: &[u8], public_key: &[u8]) -> Result<Enrolled, EnrolmentError> {
        let failed = |error: CellError| EnrolmentError::Failed(error.to_string());
        let cell = Cell::open(&self.directory).map_err(failed)?;
        let enrolled = enrol(&cell, secret, public_key)?;
        self.reload().map_err(|error| EnrolmentError::Failed(error.to_string()))?;
        Ok(enrolled)
    }
}
