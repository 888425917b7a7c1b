//! Threads that were left to themselves, as their extension does not end: with some of them it is not begun any more.

use std::collections::BTreeMap;

use nasd_types::AuditId;

use super::jobs::JobName;

/// Threads of one extension, of calls of one caller, with which it is not begun any more for him.
pub(super) const MOST_OF_CALLER: usize = 2;

/// And of all, with which it is begun for nobody. Of a caller no more of them count than [`MOST_OF_CALLER`]: so many may run at once that he
/// alone would take it from all others.
const MOST: usize = 8;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Lost(BTreeMap<(u32, AuditId), usize>);

impl Lost {
    /// A thread is left to itself.
    pub(super) fn add(&mut self, job: &JobName) {
        *self.0.entry((job.extension, job.caller)).or_default() += 1;
    }

    /// It has ended after all.
    pub(super) fn remove(&mut self, job: &JobName) {
        let key = (job.extension, job.caller);
        if let Some(lost) = self.0.get_mut(&key) {
            *lost -= 1;
            if *lost == 0 {
                self.0.remove(&key);
            }
        }
    }

    /// Whether a call is not begun, as others of its extension have not ended.
    pub(super) fn are_too_many_for(&self, job: &JobName) -> bool {
        let of_all = self.0.iter().filter(|((extension, _), _)| *extension == job.extension);
        let of_all: usize = of_all.map(|(_, lost)| MOST_OF_CALLER.min(*lost)).sum();
        let of_caller = self.0.get(&(job.extension, job.caller)).copied().unwrap_or(0);
        of_caller >= MOST_OF_CALLER || of_all >= MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_types::{ObjectId, ObjectName, PartitionId};

    fn job(extension: u32, caller: u64) -> JobName {
        let object = ObjectName { partition: PartitionId(1), object: ObjectId(1000) };
        JobName { caller: AuditId(caller), extension, number: 1, object }
    }

    #[test]
    fn a_caller_loses_an_extension_for_himself_and_four_for_all() {
        let mut lost = Lost::default();
        for _ in 0..16 {
            lost.add(&job(1, 7));
        }
        assert!(lost.are_too_many_for(&job(1, 7)));
        assert!(!lost.are_too_many_for(&job(2, 7)) && !lost.are_too_many_for(&job(1, 8)));
        for caller in [8, 9, 10] {
            assert!(!lost.are_too_many_for(&job(1, 20)));
            lost.add(&job(1, caller));
            lost.add(&job(1, caller));
        }
        assert!(lost.are_too_many_for(&job(1, 20)) && !lost.are_too_many_for(&job(2, 20)));
        lost.remove(&job(1, 10));
        assert!(!lost.are_too_many_for(&job(1, 20)));
        for _ in 0..15 {
            lost.remove(&job(1, 7));
        }
        assert!(!lost.are_too_many_for(&job(1, 7)));
    }
}
