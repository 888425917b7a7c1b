//! The thread that reads what was hinted into the store's cache.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nasd_prefetch::{Block, Costs};
use nasd_store::{CachePressure, Prefetch, Store};
use nasd_types::{ByteRange, ObjectName};
use slab::Slab;

use super::{Prefetching, whole};
use crate::Drive;

/// How long it waits where nobody has hinted anything.
const IDLE: Duration = Duration::from_secs(10);

/// How long it lets reads gather before it looks at them, where there are streams but nothing to fetch: waking it for
/// each would cost those who read.
const GATHERING: Duration = Duration::from_millis(2);

/// Over how long what frames are worth to others is measured, in nanoseconds.
const MEASURED_NS: u64 = 200_000_000;

/// How often streams that nobody tells anything of are looked for, in nanoseconds.
const TIDY_NS: u64 = 10_000_000_000;

/// Where a frame takes so long, all of it is fetched for any part: the way to it costs more than its bytes.
const FAR_NS: u64 = 500_000;

/// Until it takes no longer than this: fetching all of it takes longer than fetching a part.
const NEAR_NS: u64 = 200_000;

/// Runs until the drive stops; see [`Prefetching::stop`](super::Prefetching::stop).
pub(crate) fn start(drive: Arc<Drive>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("nasd-prefetch".to_owned()).spawn(move || {
        if let Some(held) = run_or_give_up(&drive.prefetching, || fetch(&drive)) {
            held.iter().for_each(|block| set_hinted(&drive.store, *block, false));
        }
    })
}

/// Whoever reads is not to wait for a thread that is gone: if it has panicked, hints are over, and what was held for them is
/// told.
fn run_or_give_up(prefetching: &Prefetching, run: impl FnOnce()) -> Option<Vec<Block<ObjectName>>> {
    catch_unwind(AssertUnwindSafe(run)).is_err().then(|| {
        let held = prefetching.give_up();
        tracing::error!(
            "the thread that fetches what was hinted has panicked: the drive takes no hints until it starts again"
        );
        held
    })
}

fn fetch(drive: &Drive) {
    let mut pace = Pace::default();
    while drive.prefetching.wait(IDLE) {
        if drive.prefetching.tidy(drive.environment.elapsed_ns()) {
            fetch_while_hinted(drive, &mut pace);
        }
    }
}

/// Fetches as long as there are streams.
fn fetch_while_hinted(drive: &Drive, pace: &mut Pace) {
    let mut fetcher = Fetcher::new(&drive.store);
    let mut tidied = drive.environment.elapsed_ns();
    pace.begin(fetcher.reads.frames_read(), tidied);
    let mut worth = Worth::new(drive.store.cache_pressure(), drive.environment.elapsed_ns());
    loop {
        let come = fetcher.come();
        let now = drive.environment.elapsed_ns();
        pace.note(fetcher.reads.frames_read(), now);
        let costs = worth.costs(drive.store.cache_pressure(), now);
        let step = drive.prefetching.step(&come, costs, now);
        fetcher.release(&step.released);
        let is_idle = step.fetch.is_empty();
        if !fetcher.is_busy() {
            pace.begin(fetcher.reads.frames_read(), now);
        }
        for (block, bytes) in step.fetch {
            let bytes = if pace.is_slow { whole(block) } else { bytes };
            fetcher.fetch(block, bytes);
        }
        if drive.prefetching.is_stopping() {
            return;
        }
        if now >= tidied + TIDY_NS {
            tidied = now;
            drive.prefetching.tidy(now);
        }
        if !is_idle || fetcher.is_busy() {
            continue;
        }
        thread::sleep(GATHERING);
        if !drive.prefetching.wait(IDLE) {
            return;
        }
        drive.prefetching.tidy(now);
        if let Some(released) = drive.prefetching.released_at_the_end() {
            fetcher.release(&released);
            return;
        }
    }
}

/// What is under way.
struct Fetcher<'s> {
    store: &'s Store,
    reads: Prefetch<'s>,
    under_way: Slab<Block<ObjectName>>,
    /// What can't be fetched: it counts as come.
    in_vain: Vec<Block<ObjectName>>,
}

impl<'s> Fetcher<'s> {
    fn new(store: &'s Store) -> Fetcher<'s> {
        let reads = store.prefetch_hinted();
        Fetcher { store, reads, under_way: Slab::new(), in_vain: Vec::new() }
    }

    fn is_busy(&self) -> bool {
        !self.under_way.is_empty() || !self.in_vain.is_empty()
    }

    fn fetch(&mut self, block: Block<ObjectName>, bytes: ByteRange) {
        match self.store.locate(block.object) {
            Ok(Some(object)) => {
                let tag = self.under_way.insert(block);
                self.reads.want(tag, &object, bytes);
            }
            // Whoever reads it is told why not.
            Ok(None) | Err(_) => self.in_vain.push(block),
        }
    }

    /// What has come, if it could: at least one, if anything is under way.
    fn come(&mut self) -> Vec<Block<ObjectName>> {
        let mut come = std::mem::take(&mut self.in_vain);
        let least = usize::from(come.is_empty() && !self.under_way.is_empty());
        for tag in self.reads.come(least) {
            if let Some(block) = self.under_way.try_remove(tag) {
                set_hinted(self.store, block, true);
                come.push(block);
            }
        }
        come
    }

    fn release(&self, blocks: &[Block<ObjectName>]) {
        blocks.iter().for_each(|block| set_hinted(self.store, *block, false));
    }
}

fn set_hinted(store: &Store, block: Block<ObjectName>, hinted: bool) {
    // An object that is not in memory has nothing in the cache.
    if let Some(object) = store.locate_in_memory(block.object) {
        store.set_hinted(&object, block.number, hinted);
    }
}

/// How long a frame takes, one after the other, as long as there are any to be fetched.
#[derive(Default)]
struct Pace {
    since: u64,
    /// Frames that had been read then.
    read: u64,
    mean_ns: u64,
    is_slow: bool,
}

impl Pace {
    /// Nothing has been on its way; so many frames had been read.
    fn begin(&mut self, read: u64, now: u64) {
        (self.since, self.read) = (now, read);
    }

    /// So many frames have been read: what was there already and what can't be read says nothing.
    fn note(&mut self, read: u64, now: u64) {
        let frames = read.saturating_sub(self.read);
        if frames == 0 {
            return;
        }
        let each = now.saturating_sub(self.since) / frames;
        self.mean_ns = if self.mean_ns == 0 { each } else { (7 * self.mean_ns + each) / 8 };
        self.is_slow = self.mean_ns > if self.is_slow { NEAR_NS } else { FAR_NS };
        self.begin(read, now);
    }
}

/// What a frame is worth to those who read without hints, as was seen last.
struct Worth {
    seen: CachePressure,
    at: u64,
    marginal_hits: f64,
}

impl Worth {
    fn new(seen: CachePressure, at: u64) -> Worth {
        Worth { seen, at, marginal_hits: 0.0 }
    }

    fn costs(&mut self, pressure: CachePressure, now: u64) -> Costs {
        let elapsed = now.saturating_sub(self.at);
        if elapsed >= MEASURED_NS {
            let regretted = pressure.regretted.saturating_sub(self.seen.regretted) as f64;
            let rate = regretted * 1e9 / elapsed as f64;
            // So many frames more would have had all of them.
            self.marginal_hits = rate / pressure.remembered.max(1) as f64;
            (self.seen, self.at) = (pressure, now);
        }
        // Whoever needs one has some more given up for it: those are not free.
        let free = pressure.free_frames.saturating_sub(pressure.given_up_at_once);
        Costs { free, marginal_hits: self.marginal_hits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_prefetch::Teller;
    use nasd_prefetch::notice::Notice;
    use nasd_types::{ObjectId, PartitionId};

    #[test]
    fn a_device_is_slow_until_it_is_clearly_not() {
        let mut pace = Pace::default();
        let (mut read, mut now) = (0, 0);
        let mut go = |pace: &mut Pace, frames: u64, each_ns: u64| {
            for _ in 0..frames {
                now += each_ns;
                read += 1;
                pace.note(read, now);
                // Of those that were there or can't be read nothing is made, however soon they come.
                (0..100).for_each(|_| pace.note(read, now + 1));
            }
            pace.is_slow
        };
        assert!(!go(&mut pace, 50, 40_000));
        assert!(!go(&mut pace, 50, FAR_NS - 1000));
        assert!(go(&mut pace, 50, 2 * FAR_NS));
        // As soon as they are whole frames, or again parts, or the order is better.
        assert!((0..20).all(|round| go(&mut pace, 50, 300_000 + round % 2 * FAR_NS)));
        assert!(!go(&mut pace, 100, NEAR_NS / 2));
        assert!((0..20).all(|_| !go(&mut pace, 50, 400_000)));
    }

    #[test]
    fn when_the_thread_has_panicked_hints_are_over_and_nobody_waits() {
        let prefetching = Prefetching::new(1000);
        let name = ObjectName { partition: PartitionId(1), object: ObjectId(1) };
        let hint = Notice { stream: 7, is_hint: true, ..Notice::default() };
        let piece = ByteRange::new(0, 100);
        assert_eq!(prefetching.tell(Teller(1), &hint, name, &[piece], 1), 1);
        let begun = || {
            prefetching.step(&[], Costs { free: 9, marginal_hits: 0.0 }, 2);
            assert!(prefetching.is_coming(name, piece));
        };
        assert_eq!(run_or_give_up(&prefetching, begun), None);
        assert!(!prefetching.has_failed());
        let held = run_or_give_up(&prefetching, || {
            let _shared = prefetching.lock();
            panic!("a bug");
        });
        assert_eq!(held, Some(vec![Block { object: name, number: 0 }]));
        assert!(prefetching.has_failed() && !prefetching.is_coming(name, piece));
        prefetching.await_coming(name, std::iter::once(piece));
        assert_eq!(prefetching.tell(Teller(1), &hint, name, &[piece], 3), 0);
        assert!(!prefetching.tidy(4), "no stream");
        prefetching.stop();
    }

    #[test]
    fn waiting_for_nothing_is_no_slowness() {
        let mut pace = Pace::default();
        pace.begin(0, 0);
        pace.note(1, 1000);
        pace.begin(1, 60_000_000_000);
        pace.note(2, 60_000_001_000);
        assert!(!pace.is_slow);
        // The next fetcher counts from the beginning.
        pace.begin(0, 61_000_000_000);
        pace.note(1, 61_000_001_000);
        assert_eq!(pace.mean_ns, 1000);
    }
}
