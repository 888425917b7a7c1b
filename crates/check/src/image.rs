//! A drive as it would be after an open: its tree over an overlay of the device, with the log applied.

use std::sync::Arc;

use nasd_device::BlockDevice;
use redb::{Database, ReadableTable};

use crate::bytes::BLOCK;
use crate::finding::{Code, Subject};
use crate::log::{Action, Change, Entry, Log, Replayable};
use crate::pages::Pages;
use crate::record::{Counters, Mark, Record};
use crate::region::{Mode, Region};
use crate::replay::{Editor, Homeless, Move, Trouble};
use crate::report::{Progress, Stage, Statistics};
use crate::scan::{COUNTERS, KEYS, MARK};
use crate::sink::Sink;
use crate::superblock::Superblock;
use crate::tree::{
    self, AnyKey, BALLAST_RECORDS, DRIVE, Fix, PARTITIONS, Table, TreeError, apply, ballast, begin,
    guarded,
};
use crate::walk::{Commit, Walked, walk};

/// Regions up to this size need the ballast.
const BALLAST_REGION_MAX: u64 = 4 << 30;
/// Pages at the region's end, one of which must be ballast.
const BALLAST_PAGES: u64 = 64;
/// Most moves that are made at once.
const MOVES_AT_ONCE: usize = 1024;

/// An opened drive; its device is untouched.
pub(crate) struct Image {
    pub(crate) database: Database,
    pub(crate) region: Arc<Region>,
    /// Whether the tree has to be made anew for a repair.
    pub(crate) rebuild: bool,
    pub(crate) replayed: Replayed,
}

/// What applying the log brought.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    pub(crate) homeless: Homeless,
    /// Places of entries that a repair has to erase.
    pub(crate) stragglers: Vec<u64>,
    /// The medium could not read a part of the log: a repair writes over all of it.
    pub(crate) unreadable: bool,
    pub(crate) entries: u64,
}

/// Opens the tree, as far as it can be read, and applies the log. `None`: there is no tree.
pub(crate) fn open(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    sink: &mut Sink,
    progress: &mut dyn FnMut(Progress),
    statistics: &mut Statistics,
) -> Result<Option<Image>, TreeError> {
    let base = Pages::new(device, superblock);
    let bytes = base.bytes;
    let mut ballast = Ballast::default();
    let total = bytes / BLOCK;
    let mut pages = |done| progress(Progress { stage: Stage::Tree, done, total });
    let walked = walk(
        &base,
        Commit::Last,
        &mut |table, key, value| ballast.row(table, key, value),
        &mut pages,
    );
    statistics.tree_pages = walked.pages;
    for problem in &walked.problems {
        sink.drive(if walked.readable { Code::TreeDamaged } else { Code::TreeUnreadable }, problem);
    }
    if !walked.readable {
        return Ok(None);
    }
    let mut opened = None;
    if walked.problem_count == 0 {
        match open_whole(&base) {
            Ok((database, region, right)) => {
                if !right {
                    let detail = "what the allocator says is not what the trees use";
                    sink.drive(Code::TreeSpaceWrong, detail);
                }
                opened = Some((database, region));
            }
            Err(error) => sink.drive(Code::TreeDamaged, error.to_string()),
        }
    }
    let damaged = opened.is_none();
    let ballast_flaw = ballast.flaw(bytes, walked.ballast_end);
    if let (Some(flaw), false) = (ballast_flaw, damaged) {
        sink.drive(Code::BallastMissing, flaw);
    }
    let (database, region) = match opened {
        Some(opened) => opened,
        None => {
            let region = Region::new(&base, Mode::Fresh);
            (tree::open(&region, false)?, region)
        }
    };
    let transaction = begin(&database)?;
    if damaged {
        salvage(&base, &walked, &transaction)?;
    }
    tree::prepare(&transaction, sink)?;
    let replayed = replay(&**device, superblock, &transaction, sink, progress)?;
    transaction.commit()?;
    statistics.log_entries = replayed.entries;
    let rebuild = damaged || ballast_flaw.is_some();
    Ok(Some(Image { database, region, rebuild, replayed }))
}

/// Opens a tree whose pages are all right, over an overlay. The last value tells whether its own
/// record of its free pages was that of the pages that it uses; in the overlay it is now.
fn open_whole(base: &Arc<Pages>) -> Result<(Database, Arc<Region>, bool), TreeError> {
    guarded(|| {
        let region = Region::new(base, Mode::Overlay);
        let mut database = tree::open(&region, false)?;
        let right = database.check_integrity()?;
        Ok((database, region, right))
    })
}

/// What the walk saw of the ballast.
#[derive(Default)]
struct Ballast {
    records: u32,
    wrong: bool,
}

impl Ballast {
    fn row(&mut self, table: &str, key: &[u8], value: &[u8]) {
        if table != Table::Ballast.name() {
            return;
        }
        match AnyKey::from_page(Table::Ballast, key) {
            Some(AnyKey::Short(number)) if number < BALLAST_RECORDS => self.records += 1,
            _ => self.wrong = true,
        }
        self.wrong |= value != ballast().as_slice();
    }

    fn flaw(&self, region_bytes: u64, end: u64) -> Option<&'static str> {
        if region_bytes > BALLAST_REGION_MAX {
            return None;
        }
        if self.records != BALLAST_RECORDS {
            return Some("its records are not all there");
        }
        if self.wrong {
            return Some("its records are not what they must be");
        }
        let last = region_bytes - BALLAST_PAGES * BLOCK;
        (end <= last).then_some("none of it is in the region's last 64 pages")
    }
}

/// Puts every row that can be read into a fresh tree.
fn salvage(
    base: &Pages,
    walked: &Walked,
    transaction: &redb::WriteTransaction,
) -> Result<(), TreeError> {
    let lost = |table: &str| walked.catalogue_damaged || walked.incomplete.contains(table);
    let mut failed = None;
    for commit in [Commit::Last, Commit::Previous] {
        let mut put = |name: &str, key: &[u8], value: &[u8]| {
            let Some(table) = Table::from_name(name).filter(|table| *table != Table::Ballast)
            else {
                return;
            };
            let Some(key) = AnyKey::from_page(table, key) else { return };
            let fix = Fix { table, key, value: Some(value.to_vec()) };
            if failed.is_none() {
                failed = match commit {
                    Commit::Last => apply(transaction, &fix),
                    Commit::Previous if lost(name) => salvage_previous(transaction, fix),
                    Commit::Previous => Ok(()),
                }
                .err();
            }
        };
        walk(base, commit, &mut put, &mut |_| {});
    }
    failed.map_or(Ok(()), Err)
}

/// Takes a row of the commit before the last, if it is one that says the same as long as nobody
/// changes it (keys, quotas, the clock), and was lost. Where blocks are is not of that kind.
fn salvage_previous(transaction: &redb::WriteTransaction, fix: Fix) -> Result<(), TreeError> {
    let (AnyKey::Short(number), Some(value)) = (fix.key, &fix.value) else { return Ok(()) };
    let definition = match (fix.table, number) {
        (Table::Drive, KEYS | COUNTERS) => DRIVE,
        (Table::Partitions, _) => PARTITIONS,
        _ => return Ok(()),
    };
    let is_lost = transaction.open_table(definition)?.get(number)?.is_none();
    if !is_lost {
        return Ok(());
    }
    let mut fix = fix.clone();
    if (fix.table, number) == (Table::Drive, COUNTERS) {
        let key = fix.key.bytes();
        let Ok((mut counters, _)) = Counters::decode(&key, value) else { return Ok(()) };
        counters.skip_identifiers(counters.object_limit());
        fix.value = Some(counters.encode(&key));
    }
    apply(transaction, &fix)
}

/// Applies the log to the tables, and moves its mark.
pub(crate) fn replay(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    transaction: &redb::WriteTransaction,
    sink: &mut Sink,
    progress: &mut dyn FnMut(Progress),
) -> Result<Replayed, TreeError> {
    let mark = read_mark(transaction, sink)?;
    let log = Log::new(device, superblock);
    let mut replayable = Replayable::new(log, mark, sink);
    let mut replayed = Replayed::default();
    {
        let mut editor = Editor::new(transaction, superblock.data_blocks)?;
        let mut done = 0;
        while let Some((entry, changes)) = replayable.next(sink) {
            let entry_at = superblock.log_offset + entry.offset;
            apply_entry(&mut editor, &entry, &changes, entry_at, &mut replayed.homeless, sink)?;
            replayed.entries += 1;
            done += entry.bytes.len() as u64;
            progress(Progress { stage: Stage::Log, done, total: superblock.log_bytes });
        }
    }
    replayed.stragglers = replayable.stragglers(sink);
    replayed.unreadable = replayable.unreadable;
    let key = AnyKey::Short(MARK);
    let value = Some(replayable.mark.encode(&key.bytes()));
    apply(transaction, &Fix { table: Table::Drive, key, value })?;
    Ok(replayed)
}

/// Makes the changes of an entry; those that make no sense are reported and left out.
fn apply_entry(
    editor: &mut Editor<'_>,
    entry: &Entry,
    changes: &[Change],
    entry_at: u64,
    homeless: &mut Homeless,
    sink: &mut Sink,
) -> Result<(), TreeError> {
    let mut number = 0;
    while number < changes.len() {
        // A move has to look at every extent: many of them, as when a device shrinks, go at once.
        let moves = leading_moves(&changes[number..]);
        if moves.len() > 1 {
            match editor.apply_moves(&moves, homeless) {
                Ok(()) => {
                    number += moves.len();
                    continue;
                }
                Err(Trouble::Tree(error)) => return Err(error),
                // One by one, to see which it is.
                Err(Trouble::Senseless(_)) => {}
            }
        }
        for change in &changes[number..number + moves.len().max(1)] {
            match editor.apply(change, entry_at, homeless) {
                Ok(()) => {}
                Err(Trouble::Tree(error)) => return Err(error),
                Err(Trouble::Senseless(reason)) => {
                    let subject = match change.object {
                        0 => Subject::Drive,
                        object => Subject::object(change.partition, object),
                    };
                    let sequence = entry.sequence;
                    let detail = format!("change {number} of log entry {sequence}: {reason}");
                    sink.add(Code::LogChangeSenseless, subject, detail);
                }
            }
            number += 1;
        }
    }
    Ok(())
}

/// The moves at the beginning, as long as none meets what an earlier one left or took.
fn leading_moves(changes: &[Change]) -> Vec<Move> {
    let mut moves: Vec<Move> = Vec::new();
    for change in changes {
        let Action::Move(one) = change.action else { break };
        let back = Move { from: one.to, to: one.from, blocks: one.blocks };
        let meets = |earlier: &Move| {
            one.meets_source(earlier.to, earlier.blocks)
                || earlier.meets_source(one.from, one.blocks)
                || earlier.meets_source(one.to, one.blocks)
                || back.meets_source(earlier.to, earlier.blocks)
        };
        if moves.len() == MOVES_AT_ONCE || moves.iter().any(meets) {
            break;
        }
        moves.push(one);
    }
    moves
}

/// The log mark; what is wrong with it is reported here, because applying the log replaces it.
fn read_mark(
    transaction: &redb::WriteTransaction,
    sink: &mut Sink,
) -> Result<Option<Mark>, TreeError> {
    let table = transaction.open_table(DRIVE)?;
    let key = AnyKey::Short(MARK);
    let value = table.get(MARK)?;
    let Some(value) = value else {
        sink.drive(Code::LogMarkMissing, "the drive has no log mark record");
        return Ok(None);
    };
    match Mark::decode(&key.bytes(), value.value()) {
        Ok((mark, clean)) => {
            if !clean {
                sink.drive(Code::RecordReserved, "the log mark record");
            }
            Ok(Some(mark))
        }
        Err(flaw) => {
            // What is in its place is no fix: the mark that applying the log brings is.
            sink.drive(Code::LogMarkMissing, format!("the log mark record: {flaw}"));
            Ok(None)
        }
    }
}
