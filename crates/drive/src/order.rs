//! Writes that go to several drives, in one order on all of them.
//!
//! Clients write copies of the same bytes to several drives, and nobody stands between them. So each write
//! brings an *order*, and a drive refuses one that comes after a later one of any of the same bytes: whoever
//! is refused draws a later order and writes again everywhere. Then all copies end with the write of the latest
//! order. A read may bring an order too: earlier writes of what it has read are refused from then on, so that
//! what is written elsewhere from it is not older than anything that is written here.
//!
//! The drive remembers little: the orders of some ranges of the objects that were written last, in memory. What it
//! has forgotten, and what was before its start, it refuses as though there had been a later write: orders are
//! drawn for writes that begin now.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nasd_protocol::Status;
use nasd_types::{ByteRange, ObjectName, Timestamp, WriteOrder};

/// How long an order is good, in nanoseconds.
const LIFETIME_NS: u64 = 600 * 1_000_000_000;

/// How far ahead of the drive's clock an order may be: clocks of drives may be apart by some minutes, after
/// a crash.
const AHEAD_NS: u64 = 600 * 1_000_000_000;

/// Ranges that are told apart in one object.
const MOST_RANGES: usize = 64;

/// Objects that are remembered.
const MOST_OBJECTS: usize = 32 << 10;

/// Orders of what was written, and read, lately.
#[derive(Debug)]
pub(crate) struct Orders {
    objects: Mutex<Objects>,
    /// Nothing from before is known.
    started: Timestamp,
}

#[derive(Debug)]
struct Objects {
    known: HashMap<ObjectName, Arc<Mutex<Ranges>>>,
    /// The latest order of those that were forgotten.
    floor: WriteOrder,
}

/// What is known of one object.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// Ranges and the latest order of each, the oldest first.
    ranges: Vec<(ByteRange, WriteOrder)>,
    /// Of any byte, nothing before that is known.
    floor: WriteOrder,
}

impl Orders {
    pub(crate) fn new(started: Timestamp) -> Orders {
        let objects = Objects { known: HashMap::new(), floor: WriteOrder::default() };
        Orders { objects: Mutex::new(objects), started }
    }

    /// Does `run`, which transfers these pieces of an object, unless a later write was done. Nothing of another
    /// order is done to the object meanwhile.
    pub(crate) fn within<T>(
        &self,
        name: ObjectName,
        order: WriteOrder,
        pieces: impl Iterator<Item = ByteRange> + Clone,
        now: Timestamp,
        run: impl FnOnce() -> Result<T, Status>,
    ) -> Result<T, Status> {
        if order.time.0 > now.0.saturating_add(AHEAD_NS) {
            // So one clock that is wrong can't keep others from writing for long.
            return Err(Status::OutOfOrder);
        }
        let oldest = now.0.saturating_sub(LIFETIME_NS).max(self.started.0);
        if order.time.0 < oldest {
            return Err(Status::OutOfOrder);
        }
        let ranges = self.ranges(name, order)?;
        let mut ranges = lock(&ranges);
        if pieces.clone().any(|piece| ranges.is_before(&piece, order)) {
            return Err(Status::OutOfOrder);
        }
        let done = run()?;
        if let Some(all) = hull(pieces) {
            ranges.note(all, order);
        }
        Ok(done)
    }

    fn ranges(&self, name: ObjectName, order: WriteOrder) -> Result<Arc<Mutex<Ranges>>, Status> {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ranges) = objects.known.get(&name) {
            return Ok(Arc::clone(ranges));
        }
        if objects.floor > order {
            return Err(Status::OutOfOrder);
        }
        if objects.known.len() >= MOST_OBJECTS {
            objects.forget_half();
        }
        Ok(Arc::clone(objects.known.entry(name).or_default()))
    }
}

impl Objects {
    /// Forgets the half that was written the longest ago, but for those that are being written.
    fn forget_half(&mut self) {
        // Somebody else has those that are in use now.
        let idle = |ranges: &Arc<Mutex<Ranges>>| Arc::strong_count(ranges) == 1;
        let known = self.known.values().filter(|ranges| idle(ranges));
        let mut latest: Vec<WriteOrder> = known.map(|ranges| lock(ranges).latest()).collect();
        let middle = latest.len() / 2;
        if latest.is_empty() {
            return;
        }
        let floor = *latest.select_nth_unstable(middle).1;
        self.known.retain(|_, ranges| !idle(ranges) || lock(ranges).latest() > floor);
        self.floor = self.floor.max(floor);
    }
}

impl Ranges {
    /// Whether something later was done to any of these bytes, or might have been.
    fn is_before(&self, piece: &ByteRange, order: WriteOrder) -> bool {
        let later = |(range, known): &(ByteRange, WriteOrder)| {
            *known > order && !range.intersection(piece).is_empty()
        };
        self.floor > order || self.ranges.iter().any(later)
    }

    /// Notes a write of all of a range, or of pieces of it: who comes later and writes between them is refused
    /// once more than need be, but a write takes one place, however many pieces it has.
    fn note(&mut self, all: ByteRange, order: WriteOrder) {
        // What came before, and lies within, needs no place of its own.
        self.ranges.retain(|(range, known)| *known > order || !all.contains(range));
        if self.ranges.len() >= MOST_RANGES {
            let half = self.ranges.split_off(MOST_RANGES / 2);
            let forgotten = std::mem::replace(&mut self.ranges, half);
            let latest = forgotten.into_iter().map(|(_, order)| order).max();
            self.floor = latest.unwrap_or_default().max(self.floor);
        }
        self.ranges.push((all, order));
    }

    fn latest(&self) -> WriteOrder {
        let latest = self.ranges.iter().map(|(_, order)| *order).max();
        latest.unwrap_or_default().max(self.floor)
    }
}

/// From the beginning of the first piece to the end of the last.
fn hull(pieces: impl Iterator<Item = ByteRange>) -> Option<ByteRange> {
    pieces.reduce(|one, other| {
        let (start, end) = (one.offset.min(other.offset), one.end().max(other.end()));
        ByteRange::new(start, end - start)
    })
}

fn lock(ranges: &Mutex<Ranges>) -> MutexGuard<'_, Ranges> {
    // Every change leaves it whole.
    ranges.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_types::{ObjectId, PartitionId};

    const START: u64 = 1_000_000_000_000;
    const NOW: Timestamp = Timestamp(START + LIFETIME_NS / 2);

    fn name(object: u64) -> ObjectName {
        ObjectName { partition: PartitionId(1), object: ObjectId(object) }
    }

    fn order(after: u64, unique: u64) -> WriteOrder {
        WriteOrder { time: Timestamp(START + 1 + after), unique }
    }

    fn done(orders: &Orders, object: u64, order: WriteOrder, range: (u64, u64)) -> bool {
        let pieces = std::iter::once(ByteRange::new(range.0, range.1));
        orders.within(name(object), order, pieces, NOW, || Ok(())).is_ok()
    }

    #[test]
    fn writers_of_many_pieces_at_once_do_not_refuse_each_other() {
        let orders = Orders::new(Timestamp(START));
        // Each writes a MiB that is cut into 64 units, of which every second one is here.
        let write = |writer: u64, order: WriteOrder| {
            let units =
                (0..32).map(move |unit| ByteRange::new((writer << 20) + (unit << 15), 1 << 14));
            orders.within(name(1), order, units, NOW, || Ok(())).is_ok()
        };
        for turn in 0..20 {
            // They come in another order than they have drawn theirs in.
            assert!(
                (0..16).rev().all(|writer| write(turn * 16 + writer, order(turn * 16 + writer, 0)))
            );
        }
        assert!(!write(319, order(318, 0)), "that one was written later");
    }

    #[test]
    fn what_lies_between_the_pieces_of_an_earlier_write_keeps_its_order() {
        let orders = Orders::new(Timestamp(START));
        assert!(done(&orders, 1, order(9, 0), (100, 10)));
        let around = [ByteRange::new(0, 50), ByteRange::new(200, 50)];
        assert!(orders.within(name(1), order(5, 0), around.into_iter(), NOW, || Ok(())).is_ok());
        assert!(!done(&orders, 1, order(8, 0), (105, 1)), "it was written at 9");
        assert!(!done(&orders, 1, order(4, 0), (0, 1)) && done(&orders, 1, order(6, 0), (0, 1)));
    }

    #[test]
    fn the_latest_write_of_each_byte_stays() {
        let orders = Orders::new(Timestamp(START));
        assert!(done(&orders, 1, order(5, 0), (100, 100)));
        assert!(done(&orders, 1, order(5, 0), (100, 100)), "the same once more");
        assert!(done(&orders, 1, order(4, 0), (0, 100)), "other bytes");
        assert!(done(&orders, 1, order(4, 0), (200, 100)));
        assert!(done(&orders, 2, order(4, 0), (100, 100)), "another object");
        assert!(!done(&orders, 1, order(4, 9), (199, 2)));
        assert!(!done(&orders, 1, order(4, 9), (0, 1000)));
        assert!(done(&orders, 1, order(5, 1), (150, 1)), "the number decides");
        assert!(!done(&orders, 1, order(5, 0), (100, 100)));
        assert!(done(&orders, 1, order(6, 0), (0, 1000)));
        assert!(!done(&orders, 1, order(5, 9), (150, 1)));
    }

    #[test]
    fn what_is_not_known_counts_as_later() {
        let orders = Orders::new(Timestamp(START));
        let before = WriteOrder { time: Timestamp(START - 1), unique: 0 };
        assert!(!done(&orders, 1, before, (0, 1)), "of before the start");
        let ahead = WriteOrder { time: Timestamp(NOW.0 + AHEAD_NS + 1), unique: 0 };
        assert!(!done(&orders, 1, ahead, (0, 1)), "too far ahead");
        let pieces = || std::iter::once(ByteRange::new(0, 1));
        let late = Timestamp(START + 3 * LIFETIME_NS);
        let refused = orders.within(name(1), order(0, 0), pieces(), late, || Ok(()));
        assert_eq!(refused, Err(Status::OutOfOrder), "too old");
        // Of more ranges than are told apart, the older ones are one.
        for at in 0..MOST_RANGES as u64 + 1 {
            assert!(done(&orders, 1, order(1000 + at, 0), (at * 100, 50)), "{at}");
        }
        assert!(!done(&orders, 1, order(1000, 0), (1_000_000, 1)));
        assert!(done(&orders, 1, order(2000, 0), (1_000_000, 1)));
    }

    #[test]
    fn a_failed_write_leaves_no_order() {
        let orders = Orders::new(Timestamp(START));
        let pieces = || std::iter::once(ByteRange::new(0, 10));
        let failed: Result<(), _> =
            orders.within(name(1), order(9, 0), pieces(), NOW, || Err(Status::NoSpace));
        assert_eq!(failed, Err(Status::NoSpace));
        assert!(done(&orders, 1, order(8, 0), (0, 10)));
    }

    #[test]
    fn objects_that_were_written_long_ago_are_forgotten() {
        let orders = Orders::new(Timestamp(START));
        for object in 0..3 * MOST_OBJECTS as u64 {
            assert!(done(&orders, object, order(object, 0), (0, 1)), "{object}");
        }
        assert!(orders.objects.lock().unwrap().known.len() <= MOST_OBJECTS);
        assert!(!done(&orders, 0, order(5, 0), (7, 1)), "not known any more");
        let last = 3 * MOST_OBJECTS as u64 - 1;
        assert!(done(&orders, last, order(5, 0), (7, 1)), "still known");
        assert!(done(&orders, 0, order(last + 1, 0), (7, 1)));
    }

    /// Two copies, writers that write each in any order and again where they are refused: copies end alike.
    #[test]
    fn copies_end_alike_whatever_comes_first_where() {
        let mut random = 1_u64;
        let mut draw = move |below: u64| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) % below
        };
        for world in 0..500 {
            let drives = [Orders::new(Timestamp(START)), Orders::new(Timestamp(START))];
            let mut copies = [[0_u64; 16], [0; 16]];
            // What each writer has still to do at each drive, under which order.
            let mut clock = 0;
            let mut writers: Vec<(u64, u64, u64, WriteOrder, [bool; 2])> = (1..=6)
                .map(|writer| {
                    clock += draw(2);
                    let at = draw(12);
                    (writer, at, 1 + draw(4), order(clock, writer), [false; 2])
                })
                .collect();
            while let Some(busy) = {
                let left: Vec<usize> =
                    (0..writers.len()).filter(|at| writers[*at].4 != [true; 2]).collect();
                (!left.is_empty()).then(|| left[draw(left.len() as u64) as usize])
            } {
                let (writer, at, length, by, sent) = &mut writers[busy];
                let drive = if sent[0] {
                    1
                } else if sent[1] {
                    0
                } else {
                    draw(2) as usize
                };
                if done(&drives[drive], 1, *by, (*at, *length)) {
                    sent[drive] = true;
                    for byte in *at..*at + *length {
                        copies[drive][byte as usize] = *writer;
                    }
                } else {
                    clock += 1;
                    (*by, *sent) = (order(clock, *writer), [false; 2]);
                }
            }
            assert_eq!(copies[0], copies[1], "world {world}");
        }
    }
}
