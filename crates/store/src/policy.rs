//! Which frame the cache gives up next: S3-FIFO (Yang et al., SOSP 2023). Pure: no memory, no I/O.
//!
//! New frames wait in a short queue. A frame that nobody comes back to while it is there goes,
//! and only its fingerprint is kept for a while; a scan thus flows through the short queue and
//! leaves the rest alone. A frame that is used again moves to the main queue, and so does, at
//! once, one whose fingerprint is still known. In the main queue a used frame gets another round.
//!
//! Entries are names of frames, not frames: a frame that is dropped for another reason leaves its
//! entry behind until it comes up, or until `tidy` is called.

use std::collections::{HashSet, VecDeque};

/// The short queue holds one part in this many of all entries.
const SMALL_SHARE: usize = 10;

/// What the owner says about an entry that came up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is no such frame any more.
    Gone,
    /// The frame must stay for now.
    Busy,
    /// It was used since it came up last.
    Used,
    /// It was given up just now.
    Evicted,
}

/// The queues.
#[derive(Debug)]
pub(crate) struct Policy<K> {
    small: VecDeque<Entry<K>>,
    main: VecDeque<Entry<K>>,
    ghosts: VecDeque<u64>,
    known: HashSet<u64>,
    ghosts_most: usize,
}

#[derive(Debug)]
struct Entry<K> {
    key: K,
    fingerprint: u64,
}

impl<K> Policy<K> {
    /// For a cache of about `capacity` frames.
    pub(crate) fn new(capacity: usize) -> Policy<K> {
        Policy {
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            known: HashSet::new(),
            ghosts_most: capacity,
        }
    }

    /// Entries in both queues, of frames that exist or do no more.
    pub(crate) fn entries(&self) -> usize {
        self.small.len() + self.main.len()
    }

    /// A frame came into the cache. The fingerprint is the same whenever it does. Whether it was given up not long ago.
    pub(crate) fn insert(&mut self, key: K, fingerprint: u64) -> bool {
        let entry = Entry { key, fingerprint };
        let was_known = self.known.remove(&fingerprint);
        let queue = if was_known { &mut self.main } else { &mut self.small };
        queue.push_back(entry);
        was_known
    }

    /// How many that were given up are known.
    pub(crate) fn remembered(&self) -> usize {
        self.known.len()
    }

    /// Asks `judge` about entries until `wanted` frames were given up, or everything had its
    /// chance; how many were.
    pub(crate) fn evict(&mut self, wanted: usize, mut judge: impl FnMut(&K) -> Verdict) -> usize {
        let mut evicted = 0;
        // Used entries get their rounds, and busy ones move on: both end.
        let mut steps = 5 * self.entries() + 1;
        while evicted < wanted && steps > 0 {
            steps -= 1;
            let small_first = self.small.len() > self.entries() / SMALL_SHARE;
            let from_small = small_first || self.main.is_empty();
            let queue = if from_small { &mut self.small } else { &mut self.main };
            let Some(entry) = queue.pop_front() else {
                break;
            };
            match judge(&entry.key) {
                Verdict::Gone => {}
                Verdict::Busy | Verdict::Used => self.main.push_back(entry),
                Verdict::Evicted => {
                    evicted += 1;
                    if from_small {
                        self.remember(entry.fingerprint);
                    }
                }
            }
        }
        evicted
    }

    fn remember(&mut self, fingerprint: u64) {
        if self.known.insert(fingerprint) {
            self.ghosts.push_back(fingerprint);
        }
        while self.ghosts.len() > self.ghosts_most {
            if let Some(oldest) = self.ghosts.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }

    /// Drops the entries of frames that exist no more.
    pub(crate) fn tidy(&mut self, exists: impl Fn(&K) -> bool) {
        self.small.retain(|entry| exists(&entry.key));
        self.main.retain(|entry| exists(&entry.key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// A cache of numbers that counts misses.
    struct Cache {
        policy: Policy<u64>,
        uses: HashMap<u64, u32>,
        capacity: usize,
        misses: usize,
    }

    impl Cache {
        fn new(capacity: usize) -> Cache {
            Cache { policy: Policy::new(capacity), uses: HashMap::new(), capacity, misses: 0 }
        }

        fn get(&mut self, key: u64) {
            if let Some(uses) = self.uses.get_mut(&key) {
                *uses = (*uses + 1).min(3);
                return;
            }
            self.misses += 1;
            if self.uses.len() == self.capacity {
                let uses = &mut self.uses;
                let evicted = self.policy.evict(1, |key| match uses.get_mut(key) {
                    None => Verdict::Gone,
                    Some(0) => {
                        uses.remove(key);
                        Verdict::Evicted
                    }
                    Some(count) => {
                        *count -= 1;
                        Verdict::Used
                    }
                });
                assert_eq!(evicted, 1);
            }
            self.uses.insert(key, 0);
            self.policy.insert(key, key);
        }
    }

    #[test]
    fn a_scan_leaves_what_is_used_alone() {
        let mut cache = Cache::new(100);
        for _ in 0..5 {
            (0..50).for_each(|key| cache.get(key));
        }
        let before = cache.misses;
        for key in 1000..11_000 {
            cache.get(key);
            cache.get(key % 50);
        }
        assert_eq!(cache.misses - before, 10_000, "only the scan misses");
    }

    #[test]
    fn what_comes_back_soon_is_kept_longer() {
        let mut cache = Cache::new(10);
        (0..15).for_each(|key| cache.get(key));
        // 0 was given up, but is known: it goes to the main queue and outlives new ones.
        cache.get(0);
        (100..108).for_each(|key| cache.get(key));
        assert!(cache.uses.contains_key(&0));
    }

    #[test]
    fn nothing_to_give_up_ends() {
        let mut policy = Policy::new(4);
        (0..4u64).for_each(|key| assert!(!policy.insert(key, key)));
        assert_eq!(policy.evict(1, |_| Verdict::Busy), 0);
        assert_eq!(policy.entries(), 4);
        assert_eq!(policy.evict(1, |_| Verdict::Gone), 0);
        assert_eq!(policy.entries(), 0);
        assert_eq!(policy.evict(1, |_| Verdict::Evicted), 0);
    }

    #[test]
    fn ghosts_and_entries_are_bounded() {
        let mut cache = Cache::new(20);
        (0..5000).for_each(|key| cache.get(key));
        assert!(cache.policy.ghosts.len() <= 20 && cache.policy.known.len() <= 20);
        assert_eq!(cache.policy.entries(), 20);
        cache.policy.tidy(|key| key % 2 == 0);
        assert_eq!(cache.policy.entries(), 10);
    }
}
