//! Who belongs to the cell, for a server besides the manager: it asks the manager, and remembers the answers for a while.
//!
//! While the manager is away, what it last said counts: who was a member stays one. Whom it was never asked about is not let in,
//! as nobody knows whether that certificate was removed.

use nasd_client::{ClientError, ManagerClient};
use nasd_transport::{Certified, Identity};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// How long an answer is believed without asking again: so long a member who was removed may get tickets still.
const FRESH: Duration = Duration::from_secs(5);

/// How long a manager that is away is not asked again.
const PAUSE: Duration = Duration::from_secs(5);

/// Most certificates that are remembered; more are than a cell has.
const MOST: usize = 1 << 16;

/// Whom the manager is asked.
pub trait Asked: Send + Sync {
    /// Whether the certificate of that serial number and name is a present member's.
    ///
    /// # Errors
    /// Why it could not be asked.
    fn is_member(&self, serial: &str, name: &str) -> Result<bool, ClientError>;
}

impl Asked for ManagerClient {
    fn is_member(&self, serial: &str, name: &str) -> Result<bool, ClientError> {
        ManagerClient::is_member(self, serial, name)
    }
}

/// The members as far as they are known.
pub struct Members<A> {
    manager: RwLock<A>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    answers: HashMap<(String, String), Answer>,
    /// The manager could not be asked then.
    failed: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Answer {
    is_member: bool,
    asked: Instant,
}

impl<A: Asked> Members<A> {
    /// Nobody is known yet.
    pub fn new(manager: A) -> Self {
        Members { manager: RwLock::new(manager), known: Mutex::default() }
    }

    /// From here on this one is asked: who asks has another certificate.
    pub fn ask(&self, manager: A) {
        *self.manager.write().unwrap_or_else(PoisonError::into_inner) = manager;
    }

    /// Whether whoever is at the other end is a present member.
    pub fn has(&self, identity: &Identity) -> bool {
        identity.certified().is_some_and(|certified| self.knows(certified, Instant::now()))
    }

    fn knows(&self, certified: &Certified, now: Instant) -> bool {
        let key = (certified.serial.clone(), certified.name.to_string());
        let last = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let last = known.answers.get(&key).copied();
            let is_fresh = |answer: &Answer| now.duration_since(answer.asked) < FRESH;
            let is_paused = known.failed.is_some_and(|at| now.duration_since(at) < PAUSE);
            if is_paused || last.as_ref().is_some_and(is_fresh) {
                return last.is_some_and(|answer| answer.is_member);
            }
            last
        };
        // Others are not kept waiting meanwhile.
        let manager = self.manager.read().unwrap_or_else(PoisonError::into_inner);
        let told = manager.is_member(&key.0, &key.1);
        drop(manager);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match told {
            Ok(is_member) => {
                if known.failed.take().is_some() {
                    tracing::info!("the manager tells of members again");
                }
                if known.answers.len() >= MOST {
                    known.answers.clear();
                }
                known.answers.insert(key, Answer { is_member, asked: now });
                is_member
            }
            Err(error) => {
                if known.failed.is_none() {
                    tracing::warn!(%error, "the manager can't be asked for members: what it last said counts");
                }
                known.failed = Some(Instant::now().max(now));
                last.is_some_and(|answer| answer.is_member)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_client::ClientError;
    use nasd_protocol::Status;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Says 0 no, 1 yes, 2 nothing.
    struct Manager {
        says: AtomicU32,
        calls: AtomicU32,
    }

    impl Asked for &Manager {
        fn is_member(&self, _serial: &str, _name: &str) -> Result<bool, ClientError> {
            self.calls.fetch_add(1, Ordering::Relaxed);
            match self.says.load(Ordering::Relaxed) {
                2 => Err(ClientError::Drive(Status::Busy)),
                says => Ok(says == 1),
            }
        }
    }

    fn host(serial: &str) -> Certified {
        let name = "host:a".parse().unwrap();
        Certified { name, serial: serial.to_owned(), expires: u64::MAX }
    }

    #[test]
    fn answers_are_kept_for_a_while_and_longer_while_the_manager_is_away() {
        let manager = Manager { says: AtomicU32::new(1), calls: AtomicU32::new(0) };
        let members = Members::new(&manager);
        let begun = Instant::now();
        let (known, new) = (host("01"), host("02"));
        assert!(members.knows(&known, begun) && members.knows(&known, begun));
        assert_eq!(manager.calls.load(Ordering::Relaxed), 1);
        // Away: who was known stays known, others are not.
        manager.says.store(2, Ordering::Relaxed);
        let later = begun + 2 * FRESH;
        assert!(members.knows(&known, later) && !members.knows(&new, later));
        assert_eq!(manager.calls.load(Ordering::Relaxed), 2, "it is not asked all the time");
        // Back: who was removed meanwhile is out.
        manager.says.store(0, Ordering::Relaxed);
        assert!(!members.knows(&known, later + 2 * PAUSE));
        assert!(!members.has(&Identity::Anonymous) && !members.has(&Identity::Plain));
    }
}
