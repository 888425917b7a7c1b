//! Directory leases: who may believe what he knows of a directory without asking. Pure.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use nasd_protocol::manager::FileHandle;

/// Leases on directories at most; above that, those given first are ended.
pub const MAX_LEASES: usize = 1 << 16;

/// A directory that one client has changed under the eyes of others is not leased for so long.
const SHARED_FOR: Duration = Duration::from_secs(5);

/// Directories of which it is remembered that they are shared.
const MAX_SHARED: usize = 1 << 12;

/// The leases of all directories.
#[derive(Debug, Default)]
pub struct DirectoryLeases {
    holders: HashMap<FileHandle, HashSet<u64>>,
    by_client: HashMap<u64, HashSet<FileHandle>>,
    /// In the order in which they were given; some may have ended.
    order: VecDeque<(u64, FileHandle)>,
    count: usize,
    /// Directories that are not leased until then.
    shared: HashMap<FileHandle, Duration>,
    /// Directories that are being changed, and by whom: to others they are not leased.
    changing: HashMap<FileHandle, Vec<u64>>,
}

impl DirectoryLeases {
    /// Whether the client holds a lease on the directory from now on. Those whose leases had to end
    /// for that are to be told.
    pub fn grant(
        &mut self,
        client: u64,
        directory: FileHandle,
        now: Duration,
    ) -> (bool, Vec<(u64, FileHandle)>) {
        let is_shared = self.shared.get(&directory).is_some_and(|until| *until > now);
        let changers = self.changing.get(&directory);
        if is_shared || changers.is_some_and(|by| by.iter().any(|other| *other != client)) {
            return (false, Vec::new());
        }
        self.shared.remove(&directory);
        if !self.by_client.entry(client).or_default().insert(directory) {
            return (true, Vec::new());
        }
        self.holders.entry(directory).or_default().insert(client);
        self.order.push_back((client, directory));
        self.count += 1;
        (true, self.make_room())
    }

    /// Whether a client holds a lease.
    pub fn holds(&self, client: u64, directory: FileHandle) -> bool {
        self.by_client.get(&client).is_some_and(|held| held.contains(&directory))
    }

    /// A client begins to change the directory (0: one without a session): whose leases end by that. Until
    /// [`DirectoryLeases::end_change`] nobody else gets one.
    pub fn begin_change(&mut self, client: u64, directory: FileHandle, now: Duration) -> Vec<u64> {
        self.changing.entry(directory).or_default().push(client);
        let Some(holders) = self.holders.get(&directory) else {
            return Vec::new();
        };
        let others: Vec<u64> = holders.iter().copied().filter(|other| *other != client).collect();
        if others.is_empty() {
            return others;
        }
        others.iter().for_each(|other| self.end(*other, directory));
        if self.shared.len() >= MAX_SHARED {
            self.shared.retain(|_, until| *until > now);
        }
        if self.shared.len() < MAX_SHARED {
            self.shared.insert(directory, now + SHARED_FOR);
        }
        others
    }

    /// A client has changed the directory.
    pub fn end_change(&mut self, client: u64, directory: FileHandle) {
        let Some(changers) = self.changing.get_mut(&directory) else {
            return;
        };
        if let Some(place) = changers.iter().position(|other| *other == client) {
            changers.swap_remove(place);
        }
        if changers.is_empty() {
            self.changing.remove(&directory);
        }
    }

    /// A client is gone.
    pub fn remove_client(&mut self, client: u64) {
        let held = self.by_client.get(&client).cloned().unwrap_or_default();
        held.into_iter().for_each(|directory| self.end(client, directory));
        self.by_client.remove(&client);
    }

    /// How many leases there are.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn end(&mut self, client: u64, directory: FileHandle) {
        let held = self.by_client.get_mut(&client).is_some_and(|held| held.remove(&directory));
        if !held {
            return;
        }
        self.count -= 1;
        if let Some(holders) = self.holders.get_mut(&directory) {
            holders.remove(&client);
            if holders.is_empty() {
                self.holders.remove(&directory);
            }
        }
    }

    /// Ends the oldest leases while there are too many; whose.
    fn make_room(&mut self) -> Vec<(u64, FileHandle)> {
        let mut ended = Vec::new();
        while self.count > MAX_LEASES
            && let Some((client, directory)) = self.order.pop_front()
        {
            if self.holds(client, directory) {
                self.end(client, directory);
                ended.push((client, directory));
            }
        }
        // What has ended otherwise lingers in the order, also if it was given again since.
        if self.order.len() > 2 * MAX_LEASES {
            let by_client = &self.by_client;
            let mut kept = HashSet::with_capacity(self.count);
            self.order.retain(|place| {
                let held = by_client.get(&place.0).is_some_and(|held| held.contains(&place.1));
                held && kept.insert(*place)
            });
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_types::{DriveId, ObjectId, PartitionId};

    fn directory(object: u64) -> FileHandle {
        FileHandle { drive: DriveId(1), partition: PartitionId(1), object: ObjectId(object) }
    }

    const NOW: Duration = Duration::from_secs(10);

    fn changed(
        leases: &mut DirectoryLeases,
        client: u64,
        directory: FileHandle,
        now: Duration,
    ) -> Vec<u64> {
        let others = leases.begin_change(client, directory, now);
        leases.end_change(client, directory);
        others
    }

    #[test]
    fn nobody_gets_a_lease_on_what_another_one_is_changing() {
        let mut leases = DirectoryLeases::default();
        assert!(leases.begin_change(1, directory(1), NOW).is_empty());
        leases.begin_change(1, directory(1), NOW);
        assert!(!leases.grant(2, directory(1), NOW).0);
        assert!(leases.grant(1, directory(1), NOW).0, "one's own change");
        leases.end_change(1, directory(1));
        assert!(!leases.grant(2, directory(1), NOW).0, "there was another");
        leases.end_change(1, directory(1));
        leases.end_change(1, directory(1));
        assert!(leases.grant(2, directory(1), NOW).0 && leases.changing.is_empty());
    }

    #[test]
    fn a_change_ends_the_leases_of_others() {
        let mut leases = DirectoryLeases::default();
        assert_eq!(leases.grant(1, directory(1), NOW), (true, vec![]));
        assert_eq!(leases.grant(1, directory(1), NOW), (true, vec![]));
        assert_eq!(changed(&mut leases, 1, directory(1), NOW), [], "one's own change");
        assert!(leases.grant(2, directory(1), NOW).0);
        assert_eq!(changed(&mut leases, 1, directory(1), NOW), [2]);
        assert!(leases.holds(1, directory(1)) && !leases.holds(2, directory(1)));
        assert!(!leases.grant(2, directory(1), NOW).0, "it is shared");
        let later = NOW + SHARED_FOR;
        assert!(leases.grant(2, directory(1), later).0);
        let mut others = changed(&mut leases, 0, directory(1), later);
        others.sort_unstable();
        assert_eq!((others, leases.len()), (vec![1, 2], 0));
    }

    #[test]
    fn there_is_room_for_so_many() {
        let mut leases = DirectoryLeases::default();
        for object in 0..MAX_LEASES as u64 {
            assert_eq!(leases.grant(1, directory(object), NOW), (true, vec![]));
        }
        changed(&mut leases, 2, directory(0), NOW);
        assert_eq!(leases.grant(1, directory(1 << 40), NOW).1, []);
        assert_eq!(leases.grant(2, directory(1 << 41), NOW).1, [(1, directory(1))]);
        assert_eq!(leases.len(), MAX_LEASES);
        leases.remove_client(1);
        assert_eq!((leases.len(), leases.holds(2, directory(1 << 41))), (1, true));
    }

    #[test]
    fn what_ended_does_not_pile_up() {
        let mut leases = DirectoryLeases::default();
        for round in 0..3 * MAX_LEASES as u64 {
            let now = NOW + SHARED_FOR * round as u32;
            leases.grant(1, directory(1), now);
            changed(&mut leases, 2, directory(1), now);
        }
        assert!(leases.is_empty() && leases.order.len() <= 2 * MAX_LEASES);
    }
}
