//! Files without a name, until nobody has them open. Pure.

use std::collections::{HashMap, HashSet};

use nasd_protocol::manager::FileHandle;

#[derive(Debug, Default)]
struct Orphan {
    /// Clients that have not said yet whether they have it open.
    asked: HashSet<u64>,
    /// Clients that have.
    open: HashSet<u64>,
}

impl Orphan {
    fn is_free(&self) -> bool {
        self.asked.is_empty() && self.open.is_empty()
    }
}

/// All orphans.
#[derive(Debug, Default)]
pub struct Orphans {
    waiting: HashMap<FileHandle, Orphan>,
    /// What nobody has open: to be removed.
    free: Vec<FileHandle>,
}

impl Orphans {
    /// A file is without a name; these clients are asked, and one is known to have it open.
    pub fn add(&mut self, file: FileHandle, asked: HashSet<u64>, open: Option<u64>) {
        let orphan = Orphan { asked, open: open.into_iter().collect() };
        if orphan.is_free() {
            self.free.push(file);
        } else {
            self.waiting.insert(file, orphan);
        }
    }

    /// A client has the file open, whether or not it was asked: it may have it from another client.
    pub fn claim(&mut self, client: u64, file: FileHandle) {
        self.change(file, |orphan| {
            orphan.asked.remove(&client);
            orphan.open.insert(client);
        });
    }

    /// A client has said whether it has the file open.
    pub fn settle(&mut self, client: u64, file: FileHandle) {
        self.change(file, |orphan| {
            orphan.asked.remove(&client);
        });
    }

    /// A client has said all that it has open: nothing else.
    pub fn settle_all(&mut self, client: u64) {
        let asked = |(file, orphan): (&FileHandle, &Orphan)| {
            orphan.asked.contains(&client).then_some(*file)
        };
        let files: Vec<FileHandle> = self.waiting.iter().filter_map(asked).collect();
        files.into_iter().for_each(|file| self.settle(client, file));
    }

    /// A client has closed the file.
    pub fn close(&mut self, client: u64, file: FileHandle) {
        self.change(file, |orphan| {
            // It may say so before it was heard to have it open.
            orphan.asked.remove(&client);
            orphan.open.remove(&client);
        });
    }

    /// A client is gone: it has nothing open.
    pub fn remove_client(&mut self, client: u64) {
        let files: Vec<FileHandle> = self.waiting.keys().copied().collect();
        for file in files {
            self.change(file, |orphan| {
                orphan.asked.remove(&client);
                orphan.open.remove(&client);
            });
        }
    }

    /// Those that nobody has open any more, each told once.
    pub fn take_free(&mut self) -> Vec<FileHandle> {
        std::mem::take(&mut self.free)
    }

    /// One that was told is to be told again.
    pub fn keep_free(&mut self, file: FileHandle) {
        self.free.push(file);
    }

    /// How many are waited for.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether there are none that are waited for.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn change(&mut self, file: FileHandle, change: impl FnOnce(&mut Orphan)) {
        let Some(orphan) = self.waiting.get_mut(&file) else {
            return;
        };
        change(orphan);
        if orphan.is_free() {
            self.waiting.remove(&file);
            self.free.push(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_types::{DriveId, ObjectId, PartitionId};

    fn file(object: u64) -> FileHandle {
        FileHandle { drive: DriveId(1), partition: PartitionId(1), object: ObjectId(object) }
    }

    #[test]
    fn a_file_goes_when_nobody_has_it_open() {
        let mut orphans = Orphans::default();
        orphans.add(file(1), HashSet::new(), None);
        assert_eq!(orphans.take_free(), [file(1)]);
        orphans.add(file(2), HashSet::from([1, 2, 3]), None);
        orphans.settle(1, file(2));
        orphans.claim(2, file(2));
        orphans.settle(2, file(2));
        assert_eq!(orphans.take_free(), []);
        orphans.remove_client(3);
        assert_eq!(orphans.take_free(), [], "the second has it open");
        orphans.claim(4, file(2));
        orphans.close(1, file(2));
        orphans.close(2, file(2));
        assert_eq!(orphans.take_free(), [], "the fourth has it from the second");
        orphans.close(4, file(2));
        assert_eq!((orphans.take_free(), orphans.len()), (vec![file(2)], 0));
        orphans.close(2, file(2));
        assert_eq!(orphans.take_free(), [], "told once");
        orphans.add(file(3), HashSet::new(), Some(1));
        assert_eq!(orphans.take_free(), [], "who has removed it has it open");
        orphans.close(1, file(3));
        assert_eq!(orphans.take_free(), [file(3)]);
    }
}
