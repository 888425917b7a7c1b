//! Who looks at the files that he lists.
//!
//! A listing can tell all there is to know of its files. That is what `ls -l`, `tar` and `rm -r` ask for next, and is in
//! vain for whoever wants names alone. The kernel tells which it is when it goes on listing, but not when
//! it begins, and most directories end there. So a user who looked at what he had listed last is believed to do so again.
//! Now and then he is told names alone, to see whether he still does.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Who has not looked at a file so long after he was told its name does not look.
const PATIENCE: Duration = Duration::from_secs(1);

/// One of so many listings is of names alone.
const PROBE: u32 = 16;

/// Users and listings that are remembered at most.
const MANY: usize = 1024;

#[derive(Debug, Default)]
struct User {
    looks: bool,
    listings: u32,
}

#[derive(Debug, Default)]
struct State {
    users: HashMap<u32, User>,
    /// Directories of which somebody was told names alone: who, and when.
    watched: HashMap<u64, (u32, Instant)>,
}

/// What is known of the users of a mount.
#[derive(Debug, Default)]
pub(crate) struct Lookers(Mutex<State>);

impl Lookers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A user begins to list a directory: whether he will look at its files.
    pub(crate) fn begins(&self, uid: u32, directory: u64) -> bool {
        self.begins_at(uid, directory, Instant::now())
    }

    fn begins_at(&self, uid: u32, directory: u64, now: Instant) -> bool {
        let State { users, watched } = &mut *self.lock();
        if users.len() >= MANY || watched.len() >= MANY {
            users.clear();
            watched.clear();
        }
        let user = users.entry(uid).or_default();
        let before = watched.len();
        watched.retain(|_, (who, since)| *who != uid || now.duration_since(*since) < PATIENCE);
        user.looks &= watched.len() == before;
        user.listings = user.listings.wrapping_add(1);
        if user.looks && !user.listings.is_multiple_of(PROBE) {
            return true;
        }
        watched.insert(directory, (uid, now));
        false
    }

    /// Somebody looks at a file of a directory, that is no directory itself: those are looked at by whoever
    /// goes into them.
    pub(crate) fn looks(&self, directory: u64) {
        let State { users, watched } = &mut *self.lock();
        if let Some((uid, _)) = watched.remove(&directory)
            && let Some(user) = users.get_mut(&uid)
        {
            user.looks = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_is_told_more_until_he_looks_no_longer() {
        let lookers = Lookers::default();
        let start = Instant::now();
        assert!(!lookers.begins_at(5, 1, start), "nothing is known of him");
        lookers.looks(1);
        assert!(lookers.begins_at(5, 2, start));
        assert!(!lookers.begins_at(6, 2, start), "another");
        let told = (0..2 * PROBE).filter(|_| lookers.begins_at(5, 9, start)).count();
        assert_eq!(told, 2 * PROBE as usize - 2);
        let later = start + PATIENCE;
        assert!(!lookers.begins_at(5, 3, later), "he did not look at the last ones");
        lookers.looks(3);
        assert!(lookers.begins_at(5, 4, later));
    }

    #[test]
    fn not_more_is_kept_than_there_is_room_for() {
        let lookers = Lookers::default();
        for number in 0..5 * MANY as u32 {
            lookers.begins(number, u64::from(number));
        }
        let state = lookers.lock();
        assert!(state.users.len() <= MANY && state.watched.len() <= MANY);
    }
}
