//! The ledger as the manager uses it: in memory, and read anew when somebody has changed it.

use super::renewal::renew;
use super::{Cell, CellError, Member, Members, enrol};
use crate::session::manager_tls;
use nasd_manager::membership::{Enrolled, EnrolmentError, Membership, MembershipError};
use nasd_transport::ServerTls;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, RwLock};

/// The members of the cell in a directory.
#[derive(Debug)]
pub struct Ledger {
    directory: PathBuf,
    /// What the manager shows and demands.
    tls: ServerTls,
    /// Identities by serial numbers.
    present: RwLock<HashMap<String, String>>,
    /// Held from reading the files to knowing what they say: one who has read earlier must not
    /// have the last word, or it would bring back who was removed.
    reading: Mutex<()>,
}

impl Ledger {
    /// Reads it. `tls` is replaced when the files of the manager's certificate are read anew.
    ///
    /// # Errors
    /// As [`Members::load`].
    pub fn open(directory: PathBuf, tls: ServerTls) -> Result<Self, CellError> {
        let present = RwLock::new(read(&directory)?);
        Ok(Ledger { directory, tls, present, reading: Mutex::new(()) })
    }
}

fn read(directory: &std::path::Path) -> Result<HashMap<String, String>, CellError> {
    let members = Members::load(directory)?;
    let entries = |member: &Member| {
        let identity = member.identity();
        let serials = member.serials();
        serials.map(|serial| (serial.clone(), identity.clone())).collect::<Vec<_>>()
    };
    Ok(members.present().flat_map(entries).collect())
}

impl Membership for Ledger {
    fn has(&self, serial: &str, identity: &str) -> bool {
        let present = self.present.read().unwrap_or_else(PoisonError::into_inner);
        present.get(serial).is_some_and(|known| known == identity)
    }

    fn reload(&self) -> Result<(), MembershipError> {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = read(&self.directory).map_err(|error| MembershipError(error.to_string()))?;
        *self.present.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        let cell =
            Cell::open(&self.directory).map_err(|error| MembershipError(error.to_string()))?;
        let tls = manager_tls(&cell).map_err(|error| MembershipError(error.to_string()))?;
        self.tls.replace(&tls);
        Ok(())
    }

    fn enrol(&self, secret: &[u8], public_key: &[u8]) -> Result<Enrolled, EnrolmentError> {
        let failed = |error: CellError| EnrolmentError::Failed(error.to_string());
        let cell = Cell::open(&self.directory).map_err(failed)?;
        let enrolled = enrol(&cell, secret, public_key)?;
        self.reload().map_err(|error| EnrolmentError::Failed(error.to_string()))?;
        Ok(enrolled)
    }

    fn renew(&self, serial: &str, public_key: &[u8]) -> Result<Enrolled, EnrolmentError> {
        let failed = |error: CellError| EnrolmentError::Failed(error.to_string());
        let cell = Cell::open(&self.directory).map_err(failed)?;
        let enrolled = renew(&cell, serial, public_key)?;
        self.reload().map_err(|error| EnrolmentError::Failed(error.to_string()))?;
        Ok(enrolled)
    }
}
