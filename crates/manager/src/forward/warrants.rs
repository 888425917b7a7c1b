//! By what authority a client's requests go on to the drives: capabilities of the kind that the client
//! would be handed, made for it and kept here. So it is the drive that decides, as it would if the
//! client came itself, and its audit trail names the client.

use std::sync::{Arc, Mutex, PoisonError};

use nasd_capability::Capability;
use nasd_client::{Authority, ClientError};
use nasd_protocol::manager::{FileHandle, IssuedCapability, ManagerStatus};
use nasd_types::{DriveId, ObjectName, Protection};

use crate::caller::Caller;
use crate::lru::Lru;
use crate::namespace::{Namespace, Outcome};

/// How many are kept.
const MAX_WARRANTS: usize = 8192;

/// Most that are made for one request: an owner and a mode may change close together.
const MAX_RENEWALS: u32 = 8;

/// A capability in use.
pub(super) struct Warrant {
    issued: IssuedCapability,
    pub(super) authority: Authority,
}

impl Warrant {
    /// The drive that it is for, which may be another one than that by which the file is known.
    pub(super) fn drive(&self) -> DriveId {
        self.issued.capability.drive
    }

    /// The object that it is for.
    pub(super) fn name(&self) -> ObjectName {
        let Capability { partition, object, .. } = self.issued.capability;
        ObjectName { partition, object }
    }
}

/// Whose, and for which file.
type Key = (Arc<Caller>, FileHandle);

/// The capabilities in use.
pub(super) struct Warrants {
    kept: Mutex<Lru<Key, Arc<Warrant>>>,
    /// What requests are protected with, and what the capability demands besides.
    protection: Protection,
}

impl Warrants {
    pub(super) fn new(protection: Protection) -> Warrants {
        Warrants { kept: Mutex::new(Lru::new(MAX_WARRANTS)), protection }
    }

    /// Makes a request by the caller's authority over a file; by a new one, if it is refused in a way
    /// that this may mend. Inside is what came of the request; a refusal that stays is `Access`.
    pub(super) fn by_authority_of<T>(
        &self,
        names: &Namespace,
        caller: &Caller,
        file: FileHandle,
        mut request: impl FnMut(&Warrant) -> Result<T, ClientError>,
    ) -> Outcome<Result<T, ClientError>> {
        let key = (Arc::new(caller.clone()), file);
        let known = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let mut warrant = match known {
            Some(warrant) => warrant,
            None => self.make(names, &key)?,
        };
        for _ in 0..MAX_RENEWALS {
            match request(&warrant) {
                Err(error) if error.needs_new_capability() => {
                    let fresh = self.make(names, &key)?;
                    if fresh.issued == warrant.issued {
                        return Err(ManagerStatus::Access);
                    }
                    warrant = fresh;
                }
                result => return Ok(result),
            }
        }
        Err(ManagerStatus::Access)
    }

    /// A capability as the caller would get it now.
    fn make(&self, names: &Namespace, key: &Key) -> Outcome<Arc<Warrant>> {
        let made = names.getattr(&key.0, key.1);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let issued = match made {
            Ok(file) => file.capability,
            Err(status) => {
                kept.remove(key);
                return Err(status);
            }
        };
        let authority = Authority::capability(&issued, self.protection);
        let warrant = Arc::new(Warrant { issued, authority });
        kept.insert(key.clone(), Arc::clone(&warrant), 1);
        Ok(warrant)
    }
}
