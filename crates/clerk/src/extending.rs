//! Passing calls through to extensions of drives (CMU-CS-97-118 section 3.4): a file's name and offsets become drives, objects
//! and their pieces, with the capabilities that the file manager gives this clerk.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use nasd_client::{Authority, ClientError, DriveClient, PendingExtend, Spare, interrupt};
use nasd_protocol::Region;
use nasd_protocol::drive::{ExtendArguments, Extended, ExtensionOutcome};
use nasd_types::{ByteRange, DriveId, ObjectName, Rights};

use crate::wire::Interruptible;
use crate::work_pool::caught;
use crate::{Clerk, ClerkError, OpenFile};

/// Ranges that are worked on at a time.
const AT_A_TIME: usize = 8;

/// What an extension is asked for.
#[derive(Clone, Debug)]
pub struct ExtensionCall {
    /// Its number, and which revision of it.
    pub extension: (u32, u32),
    /// What it is to be allowed: no more than the file is open for.
    pub rights: Rights,
    /// Most bytes that each drive may tell in one answer: no more than one has (4 MiB).
    pub most: usize,
    /// What it is told.
    pub arguments: Vec<u8>,
    /// The same in all calls that are parts of one job: as [`new_job`] draws it.
    pub job: u64,
    /// Bytes that the job has still to look at, at all drives together.
    pub bytes_left: u64,
    /// Memory for what is told, used again: whoever needs the data of a part no more may give them to it.
    pub spare: Arc<Spare>,
}

/// What an extension has told of some of the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtendedPart {
    /// Which drive.
    pub drive: DriveId,
    /// The bytes of the file that it had to do with, in order.
    pub pieces: Vec<ByteRange>,
    /// What became of it; all but `Done` are the end.
    pub outcome: ExtensionOutcome,
    /// The first byte that was not looked at, of the pieces; the next part of this drive begins there.
    pub position: u64,
    /// What it has told.
    pub data: Vec<u8>,
}

/// What one drive has of a range, and how it is asked.
pub(crate) struct Asked<'a> {
    pub(crate) client: &'a DriveClient,
    pub(crate) authority: &'a Authority,
    pub(crate) drive: DriveId,
    pub(crate) name: ObjectName,
    pub(crate) regions: Vec<Region>,
}

/// The number of a job, unlike those of others, of this process or any other one: drawn by the system.
pub fn new_job() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Keys of one thread follow each other, and the count makes up for that.
    RandomState::new().hash_one((std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
}

impl Clerk {
    /// Has an extension of the drives that have the bytes do something with ranges of several files, of any volumes (CMU-CS-97-118
    /// section 3.4): what was told of each range, in their order, or why nothing was. The drives of up to eight ranges work side by side.
    pub fn extend(
        ranges: &[(&OpenFile, ByteRange)],
        call: &ExtensionCall,
    ) -> Vec<Result<Vec<ExtendedPart>, ClerkError>> {
        let told: Vec<OnceLock<_>> = ranges.iter().map(|_| OnceLock::new()).collect();
        let waiting = Mutex::new(ranges.iter().zip(&told));
        let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            while let Some(((file, range), told)) = next() {
                // Nobody else has this one.
                let _ = told.set(caught(|| file.extend(*range, call)));
            }
        };
        // Whoever may end this thread's waits may end theirs.
        let current = Interruptible::current();
        let helper = || current.as_ref().map_or_else(work, |current| current.run(work));
        thread::scope(|scope| {
            for _ in 1..ranges.len().min(AT_A_TIME) {
                let started = thread::Builder::new().name("extend".into());
                if let Err(error) = started.spawn_scoped(scope, helper) {
                    tracing::debug!(%error, "ranges are worked on by fewer threads");
                    break;
                }
            }
            work();
        });
        let missing = || Err(ClerkError::Protocol("a range was left out".to_owned()));
        told.into_iter().map(|told| told.into_inner().unwrap_or_else(missing)).collect()
    }
}

/// Has several drives work at once, each until it has looked at all that it has, or it is at an end. Nothing more is asked once this
/// thread's waits are to end. The parts of each drive follow each other.
pub(crate) fn extend_all(
    call: &ExtensionCall,
    asked: Vec<Asked<'_>>,
) -> Result<Vec<ExtendedPart>, ClientError> {
    ask_all(call, asked)
}

/// One who is asked until he has told all.
trait Ask {
    /// A call that is under way.
    type Pending;

    /// Asks him for what he has not yet told, and does not wait.
    fn begin(&self, call: &ExtensionCall, bytes_left: u64) -> Self::Pending;

    /// Waits for what he tells: that, and whether there is more.
    fn end(
        &mut self,
        call: &ExtensionCall,
        pending: Self::Pending,
    ) -> Result<(ExtendedPart, bool), ClientError>;
}

fn ask_all<A: Ask>(call: &ExtensionCall, asked: Vec<A>) -> Result<Vec<ExtendedPart>, ClientError> {
    let mut bytes_left = call.bytes_left;
    let mut parts: Vec<Vec<ExtendedPart>> = asked.iter().map(|_| Vec::new()).collect();
    // All of them are to work while one is waited for.
    let begun = asked.into_iter().enumerate().map(|(at, asked)| {
        let pending = asked.begin(call, bytes_left);
        (at, asked, pending)
    });
    let mut under_way: VecDeque<_> = begun.collect();
    while let Some((at, mut asked, pending)) = under_way.pop_front() {
        let (part, has_more) = asked.end(call, pending)?;
        bytes_left = bytes_left.saturating_sub(part.bytes_done());
        parts[at].push(part);
        if has_more {
            // Whoever has answered has nothing to do: he goes on before others are waited for, and is waited for behind them.
            let pending = asked.begin(call, bytes_left);
            under_way.push_back((at, asked, pending));
        }
    }
    Ok(parts.into_iter().flatten().collect())
}

impl ExtendedPart {
    /// Bytes of its pieces before its position.
    fn bytes_done(&self) -> u64 {
        let before = ByteRange::new(0, self.position);
        self.pieces.iter().map(|piece| piece.intersection(&before).length).sum()
    }
}

impl<'a> Ask for Asked<'a> {
    type Pending = PendingExtend<'a>;

    fn begin(&self, call: &ExtensionCall, bytes_left: u64) -> PendingExtend<'a> {
        let (arguments, into) = (self.arguments(call, bytes_left), call.spare.take(call.most));
        self.client.begin_extend(self.authority, arguments, into).send()
    }

    fn end(
        &mut self,
        call: &ExtensionCall,
        pending: PendingExtend<'a>,
    ) -> Result<(ExtendedPart, bool), ClientError> {
        let (extended, data) = pending.wait();
        let part = self.part((extended?, data), &call.spare)?;
        self.regions =
            self.regions.iter().flat_map(|row| row.from_position(part.position)).collect();
        let has_more = part.outcome == ExtensionOutcome::Done && !self.regions.is_empty();
        if has_more {
            let server = || self.client.address().to_owned();
            interrupt::check()
                .map_err(|_| ClientError::Interrupted { server: server(), may_have_run: true })?;
        }
        Ok((part, has_more))
    }
}

impl Asked<'_> {
    fn arguments(&self, call: &ExtensionCall, bytes_left: u64) -> ExtendArguments {
        let (extension, revision) = call.extension;
        ExtendArguments {
            name: self.name,
            regions: self.regions.clone(),
            rights: call.rights,
            extension,
            revision,
            job: call.job,
            bytes_left,
            most: u32::try_from(call.most).unwrap_or(u32::MAX),
            arguments: call.arguments.clone(),
        }
    }

    fn part(
        &self,
        (extended, data): (Extended, Vec<u8>),
        spare: &Spare,
    ) -> Result<ExtendedPart, ClientError> {
        let Extended { outcome, position, data_length } = extended;
        let pieces: Vec<ByteRange> = self.regions.iter().flat_map(pieces_of).collect();
        let begin = pieces.first().map_or(0, |piece| piece.offset);
        // Who does not get on would be asked for ever.
        if outcome == ExtensionOutcome::Done && position <= begin && !pieces.is_empty() {
            let server = self.client.address().to_owned();
            let why = "an extension does not get on".to_owned();
            return Err(ClientError::Protocol { server, why });
        }
        let data = cut(data, data_length, spare);
        Ok(ExtendedPart { drive: self.drive, pieces, outcome, position, data })
    }
}

/// What was told, in no more than four times as much memory: of many calls little may be told. The room for longer answers is for the next
/// ones then, all of it, as new room would have to be cleared.
fn cut(mut room: Vec<u8>, told: usize, spare: &Spare) -> Vec<u8> {
    if told >= room.len() / 4 {
        room.truncate(told);
        return room;
    }
    let data = room[..told].to_vec();
    // It is as long as it was.
    spare.give(room);
    data
}

/// One piece.
pub(crate) fn single(range: &ByteRange) -> Region {
    Region::single(range.offset, range.length)
}

/// The same pieces in as few rows as it takes, where single ones of one length follow each other at one distance.
pub(crate) fn rows_of(regions: impl Iterator<Item = Region>) -> Vec<Region> {
    let mut rows: Vec<Region> = Vec::new();
    for region in regions {
        match rows.last_mut() {
            Some(row) if region.count == 1 && region.length == row.length => {
                let distance = region.offset.wrapping_sub(row.offset);
                let begins_a_row = row.count == 1 && distance >= row.length && distance < 1 << 62;
                if begins_a_row {
                    (row.stride, row.count) = (distance, 2);
                } else if row.count > 1 && distance == row.stride.saturating_mul(row.count.into()) {
                    row.count += 1;
                } else {
                    rows.push(region);
                }
            }
            _ => rows.push(region),
        }
    }
    rows
}

fn pieces_of(region: &Region) -> impl Iterator<Item = ByteRange> + use<> {
    let Region { offset, length, stride, count } = *region;
    (0..u64::from(count)).map(move |at| ByteRange::new(offset + at * stride, length))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Has so many bytes in pieces of a hundred, and looks at one in each call.
    struct InParts<'a> {
        drive: u64,
        rest: ByteRange,
        /// Who was asked, and how many bytes were said to be left; nothing where he has answered.
        log: &'a RefCell<Vec<(u64, Option<u64>)>>,
    }

    impl Ask for InParts<'_> {
        type Pending = ();

        fn begin(&self, _: &ExtensionCall, bytes_left: u64) {
            self.log.borrow_mut().push((self.drive, Some(bytes_left)));
        }

        fn end(&mut self, _: &ExtensionCall, (): ()) -> Result<(ExtendedPart, bool), ClientError> {
            self.log.borrow_mut().push((self.drive, None));
            let (pieces, position) = (vec![self.rest], self.rest.offset + 100);
            self.rest = ByteRange::new(position, self.rest.length - 100);
            let (drive, outcome) = (DriveId(self.drive), ExtensionOutcome::Done);
            let part = ExtendedPart { drive, pieces, outcome, position, data: Vec::new() };
            Ok((part, !self.rest.is_empty()))
        }
    }

    #[test]
    fn whoever_has_answered_goes_on_while_others_are_waited_for() {
        let log = RefCell::default();
        let asked = [(1, 300), (2, 200), (3, 100)].map(|(drive, length)| InParts {
            drive,
            rest: ByteRange::new(drive << 20, length),
            log: &log,
        });
        let call = ExtensionCall {
            extension: (77, 1),
            rights: Rights::READ,
            most: 10,
            arguments: Vec::new(),
            job: 5,
            bytes_left: 600,
            spare: Arc::default(),
        };
        let parts = ask_all(&call, asked.into()).unwrap();
        let order: Vec<(u64, u64)> =
            parts.iter().map(|part| (part.drive.0, part.position & 0xfffff)).collect();
        assert_eq!(order, [(1, 100), (1, 200), (1, 300), (2, 100), (2, 200), (3, 100)]);
        let (begun, answered) = (Some, None);
        let expected = [
            (1, begun(600)),
            (2, begun(600)),
            (3, begun(600)),
            (1, answered),
            (1, begun(500)),
            (2, answered),
            (2, begun(400)),
            (3, answered),
            (1, answered),
            (1, begun(200)),
            (2, answered),
            (1, answered),
        ];
        assert_eq!(log.into_inner(), expected);
    }

    #[test]
    fn numbers_of_jobs_are_drawn() {
        let high: std::collections::BTreeSet<u64> = (0..100).map(|_| new_job() >> 32).collect();
        assert!(high.len() > 90, "{}", high.len());
    }

    #[test]
    fn pieces_at_one_distance_are_a_row() {
        let rows = |offsets: &[(u64, u64)]| {
            rows_of(offsets.iter().map(|&(offset, length)| Region::single(offset, length)))
        };
        let row = |offset, length, stride, count| Region { offset, length, stride, count };
        assert_eq!(rows(&[(5, 10)]), [Region::single(5, 10)]);
        assert_eq!(rows(&[(5, 10), (25, 10), (45, 10)]), [row(5, 10, 20, 3)]);
        // What touches what came before is a row as well.
        assert_eq!(rows(&[(0, 10), (10, 10), (20, 10)]), [row(0, 10, 10, 3)]);
        let apart = rows(&[(0, 10), (20, 10), (50, 10), (80, 10), (90, 5)]);
        assert_eq!(apart, [row(0, 10, 20, 2), row(50, 10, 30, 2), Region::single(90, 5)]);
        // Backwards is none.
        assert_eq!(rows(&[(50, 10), (20, 10)]).len(), 2);
        let two = row(0, 10, 20, 2);
        assert_eq!(rows_of([two, Region::single(40, 10)].into_iter()), [row(0, 10, 20, 3)]);
    }

    #[test]
    fn room_of_which_little_is_used_is_there_for_the_next_answer() {
        let spare = Spare::new(1 << 20);
        let room = |byte| vec![byte; 1000];
        let at = |room: &Vec<u8>| room.as_ptr();
        let (first, second) = (room(1), room(2));
        let (of_first, of_second) = (at(&first), at(&second));
        let few = cut(first, 249, &spare);
        assert_eq!((&few[..], few.capacity()), (&[1; 249][..], 249));
        let many = cut(second, 250, &spare);
        assert_eq!((many.len(), at(&many)), (250, of_second));
        let again = spare.take(1000);
        assert_eq!((at(&again), again[999]), (of_first, 1));
        // It was there once, and is cleared where it is new.
        assert_eq!(spare.take(1000)[999], 0);
    }
}
