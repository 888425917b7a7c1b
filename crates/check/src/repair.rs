//! The repair: a plan made over an overlay of the device, and then carried out in one transaction.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;

use nasd_device::{AlignedBuffer, BlockDevice, DeviceError};

use crate::bytes::{BLOCK_LENGTH, read_bytes};
use crate::check::{self, Tables};
use crate::data::Wanted;
use crate::finding::Code;
use crate::image::{self, Image, Replayed};
use crate::log::{Action, Change};
use crate::pages::Pages;
use crate::record::{Extent, GROUP, Record, Sums};
use crate::region::{Mode, Region};
use crate::replay::{Editor, Homeless, Trouble};
use crate::report::{Progress, Repair, RepairOptions, Report};
use crate::sink::Sink;
use crate::state::State;
use crate::superblock::{Superblock, choose, rewrite};
use crate::tree::{self, AnyKey, Fix, Snapshot, Table, TreeError, apply, begin, guarded};

/// Passes over the tables after which what is still wrong is left: each mends what the one before
/// uncovered, and three are what it takes.
const ROUNDS: u32 = 8;

/// Why a repair could not be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// The device failed a write or a sync; the repair may have been done in part, and can be
    /// started again.
    #[error("the device failed during the repair: {0}")]
    Device(#[from] DeviceError),
    /// The metadata tree could not be changed: it is full, or the device failed.
    #[error("the metadata tree could not be repaired: {reason}")]
    Tree {
        /// What the tree said.
        reason: String,
    },
}

impl From<TreeError> for RepairError {
    fn from(error: TreeError) -> RepairError {
        RepairError::Tree { reason: error.0 }
    }
}

/// One step of the plan.
enum Step {
    Row(Fix),
    Change(Change),
    Block { block: u64, bytes: Vec<u8> },
}

/// Everything that a repair writes to the tables and to data blocks, in order.
#[derive(Default)]
struct Plan {
    steps: Vec<Step>,
    rows: BTreeMap<&'static str, u64>,
    blocks: u64,
}

impl Plan {
    fn push(&mut self, step: Step) {
        let table = match &step {
            Step::Row(fix) => Some(fix.table),
            Step::Change(_) => Some(Table::Extents),
            Step::Block { .. } => None,
        };
        match table {
            Some(table) => *self.rows.entry(table.name()).or_default() += 1,
            None => self.blocks += 1,
        }
        self.steps.push(step);
    }
}

/// Finds what is wrong, repairs what can be, and checks again. With
/// [`dry_run`](RepairOptions::dry_run) nothing is written.
///
/// The tables change in one transaction, which also applies the log: a power cut leaves the drive
/// as it was or repaired, unless the tree has to be made anew
/// ([`tree_rebuilt`](Repair::tree_rebuilt)).
///
/// # Errors
/// When the device fails a write, or the tree has no room for the changes.
pub fn repair(
    device: &Arc<dyn BlockDevice>,
    options: &RepairOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Repair, RepairError> {
    let mut planner = Planner {
        device,
        options,
        progress,
        sink: Sink::new(options.check.findings_per_code, true),
        before: Report::default(),
        after: None,
        plan: Plan::default(),
    };
    let chosen = choose(&**device, &mut planner.sink);
    let mut image = None;
    if let Some((superblock, _)) = &chosen {
        check::name(&mut planner.before, superblock);
        match guarded(|| planner.run(superblock)) {
            Ok(opened) => image = opened,
            Err(error) => planner.sink.drive(Code::TreeUnreadable, error.to_string()),
        }
    }
    let Planner { progress, sink, mut before, after, plan, .. } = planner;
    before.findings = sink.findings;
    before.counts = sink.counts;
    let mut repair = Repair {
        after: after.unwrap_or_else(|| without_superblocks(&before)),
        before,
        rows_changed: plan.rows.values().sum(),
        rows_by_table: plan.rows.clone(),
        blocks_written: plan.blocks,
        tree_rebuilt: image.as_ref().is_some_and(|image| image.rebuild),
        dry_run: options.dry_run,
    };
    if let (Some((superblock, stale)), false) = (chosen, options.dry_run) {
        let needed = !repair.before.counts.is_empty();
        rewrite(&**device, &superblock, stale)?;
        if let (Some(image), true) = (image, needed) {
            carry_out(device, &superblock, image, &plan)?;
        }
        repair.after = check::check(device, &options.check, progress);
    }
    Ok(repair)
}

/// What is left when nothing but a copy of the superblock can be repaired.
fn without_superblocks(before: &Report) -> Report {
    let mended = [
        Code::SuperblockADamaged,
        Code::SuperblockBDamaged,
        Code::SuperblockAOlder,
        Code::SuperblockBOlder,
        Code::SuperblockConflict,
    ];
    let mut after = before.clone();
    after.counts.retain(|code, _| !mended.contains(code));
    after.findings.retain(|finding| !mended.contains(&finding.code));
    after
}

/// Makes the plan.
struct Planner<'a> {
    device: &'a Arc<dyn BlockDevice>,
    options: &'a RepairOptions,
    progress: &'a mut dyn FnMut(Progress),
    sink: Sink,
    before: Report,
    after: Option<Report>,
    plan: Plan,
}

impl Planner<'_> {
    fn run(&mut self, superblock: &Superblock) -> Result<Option<Image>, TreeError> {
        let opened = image::open(
            self.device,
            superblock,
            &mut self.sink,
            self.progress,
            &mut self.before.statistics,
        )?;
        let Some(image) = opened else { return Ok(None) };
        let tables =
            check::tables(&image, superblock, &mut self.sink, &mut self.before, self.progress)?;
        let fixes = std::mem::take(&mut self.sink.fixes);
        self.take(&image, superblock, fixes, &tables)?;
        drop(tables);
        let mut tables = self.rounds(&image, superblock)?;
        let mut lost = Sink::new(self.options.check.findings_per_code, true);
        if self.options.check.data {
            let wanted = check::data(
                self.device,
                superblock,
                &image,
                &tables,
                &mut lost,
                &mut self.before,
                self.progress,
            )?;
            for finding in &lost.findings {
                self.sink.findings.push(finding.clone());
            }
            for (code, count) in &lost.counts {
                *self.sink.counts.entry(*code).or_default() += count;
            }
            self.contents(&image, superblock, &tables.state, wanted, &mut lost)?;
            tables = self.rounds(&image, superblock)?;
        }
        drop(tables);
        self.conclude(&image, superblock, lost)?;
        Ok(Some(image))
    }

    /// Mends what earlier fixes uncovered, until nothing is left that can be.
    fn rounds(&mut self, image: &Image, superblock: &Superblock) -> Result<Tables, TreeError> {
        let mut round = 0;
        loop {
            let mut sink = Sink::new(0, true);
            let mut unused = Report::default();
            let tables = check::tables(image, superblock, &mut sink, &mut unused, self.progress)?;
            let nothing = sink.fixes.is_empty() && tables.missing_sums.is_empty();
            if nothing || round == ROUNDS {
                return Ok(tables);
            }
            self.take(image, superblock, sink.fixes, &tables)?;
            round += 1;
        }
    }

    /// Changes rows of the overlay, and remembers that.
    fn take(
        &mut self,
        image: &Image,
        superblock: &Superblock,
        mut fixes: Vec<Fix>,
        tables: &Tables,
    ) -> Result<(), TreeError> {
        for group in &tables.missing_sums {
            let homeless = &image.replayed.homeless;
            fixes.push(compute_sums(self.device, superblock, homeless, *group));
        }
        let transaction = begin(&image.database)?;
        for fix in fixes {
            apply(&transaction, &fix)?;
            self.plan.push(Step::Row(fix));
        }
        transaction.commit()?;
        Ok(())
    }

    /// What is to be done about contents: holes for what is lost, if asked for, and zeros behind
    /// the ends of objects.
    fn contents(
        &mut self,
        image: &Image,
        superblock: &Superblock,
        state: &State,
        wanted: Wanted,
        lost: &mut Sink,
    ) -> Result<(), TreeError> {
        let mut changes = Vec::new();
        if self.options.punch {
            for (partition, object, from, to) in wanted.lost {
                let action = Action::Clear { from, to };
                changes.push(Change { partition, object, action });
            }
            for code in [Code::BlockDamaged, Code::BlockUnreadable, Code::StreamDamaged] {
                lost.counts.remove(&code);
            }
            lost.findings.retain(|finding| lost.counts.contains_key(&finding.code));
        }
        let mut free = FreeBlocks::new(state, superblock.data_blocks);
        let mut mended = 0;
        for (partition, object, logical, block, tail) in wanted.tails {
            let place = image.replayed.homeless.get(&block).copied();
            let place = place.unwrap_or_else(|| superblock.byte_of(block));
            let Ok(mut bytes) = read_bytes(&**self.device, place, BLOCK_LENGTH) else { continue };
            let Some(block) = free.next() else { break };
            bytes[usize::from(tail)..].fill(0);
            let sums = vec![crc32c::crc32c(&bytes)];
            let extent = Extent::plain(block, 1);
            let action = Action::Map { logical, extent, sums, inline: None };
            changes.push(Change { partition, object, action });
            self.plan.push(Step::Block { block, bytes });
            mended += 1;
        }
        if let Some(count) = lost.counts.get_mut(&Code::TailNotZero) {
            *count -= mended;
            if *count == 0 {
                lost.counts.remove(&Code::TailNotZero);
                lost.findings.retain(|finding| finding.code != Code::TailNotZero);
            }
        }
        let transaction = begin(&image.database)?;
        for change in changes {
            if make(&transaction, superblock, &change)? {
                self.plan.push(Step::Change(change));
            }
        }
        transaction.commit()?;
        Ok(())
    }

    /// Says what is left after all steps.
    fn conclude(
        &mut self,
        image: &Image,
        superblock: &Superblock,
        lost: Sink,
    ) -> Result<(), TreeError> {
        let mut sink = Sink::new(self.options.check.findings_per_code, false);
        let mut after = Report { drive: self.before.drive, ..Report::default() };
        after.cell = self.before.cell;
        after.statistics = self.before.statistics;
        check::tables(image, superblock, &mut sink, &mut after, self.progress)?;
        after.findings = sink.findings;
        after.findings.extend(lost.findings);
        after.counts = sink.counts;
        after.counts.extend(lost.counts);
        // Whether the medium reads what is written over it, only the attempt can tell.
        if let Some(count) = self.sink.counts.get(&Code::LogUnreadable) {
            after.counts.insert(Code::LogUnreadable, *count);
        }
        self.after = Some(after);
        Ok(())
    }
}

/// Makes a change of the kind that the log has; whether it made sense.
fn make(
    transaction: &redb::WriteTransaction,
    superblock: &Superblock,
    change: &Change,
) -> Result<bool, TreeError> {
    let mut editor = Editor::new(transaction, superblock.data_blocks)?;
    match editor.apply(change, 0, &mut Homeless::new()) {
        Ok(()) => Ok(true),
        Err(Trouble::Senseless(_)) => Ok(false),
        Err(Trouble::Tree(error)) => Err(error),
    }
}

/// Checksums of a group of blocks as they are.
fn compute_sums(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    homeless: &Homeless,
    group: u64,
) -> Fix {
    let mut record = Sums::zeros();
    for (index, sum) in record.0.iter_mut().enumerate() {
        let block = group * GROUP + index as u64;
        if block >= superblock.data_blocks {
            break;
        }
        let place = homeless.get(&block).copied();
        let place = place.unwrap_or_else(|| superblock.byte_of(block));
        // What can't be read stays wrong: the pass over the data says so.
        if let Ok(bytes) = read_bytes(&**device, place, BLOCK_LENGTH) {
            *sum = crc32c::crc32c(&bytes);
        }
    }
    let value = Some(record.encode(&group.to_be_bytes()));
    Fix { table: Table::Sums, key: AnyKey::Long(group), value }
}

/// Data blocks that no extent names, from the first on.
struct FreeBlocks<'a> {
    state: &'a State,
    data_blocks: u64,
    index: usize,
    at: u64,
}

impl<'a> FreeBlocks<'a> {
    fn new(state: &'a State, data_blocks: u64) -> FreeBlocks<'a> {
        FreeBlocks { state, data_blocks, index: 0, at: 0 }
    }
}

impl Iterator for FreeBlocks<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        while let Some(used) = self.state.uses.get(self.index) {
            if used.physical > self.at {
                break;
            }
            self.at = self.at.max(used.end());
            self.index += 1;
        }
        let block = self.at;
        self.at += 1;
        (block < self.data_blocks).then_some(block)
    }
}

/// Writes to the device what the plan says.
fn carry_out(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    image: Image,
    plan: &Plan,
) -> Result<(), RepairError> {
    bring_home(device, superblock, &image.replayed, plan)?;
    let Image { database, region, rebuild, replayed } = image;
    let base = Pages::new(device, superblock);
    if rebuild {
        guarded(|| {
            let snapshot = Snapshot::new(&database)?;
            let fresh = Region::new(&base, Mode::Fresh);
            copy(&snapshot, &fresh)?;
            Ok(fresh)
        })
        .map_err(RepairError::from)?
        .write_home()?;
        drop((database, region));
    } else {
        drop((database, region));
        guarded(|| {
            let region = Region::new(&base, Mode::Direct);
            // A page in use that counts as free would be written over.
            let database = tree::open(&region, true)?;
            let transaction = begin(&database)?;
            let mut unused = Sink::new(0, false);
            tree::prepare(&transaction, &mut unused)?;
            image::replay(&**device, superblock, &transaction, &mut unused, &mut |_| {})?;
            for step in &plan.steps {
                match step {
                    Step::Row(fix) => apply(&transaction, fix)?,
                    Step::Change(change) => drop(make(&transaction, superblock, change)?),
                    Step::Block { .. } => {}
                }
            }
            transaction.commit()?;
            Ok(())
        })?;
    }
    if replayed.unreadable {
        let whole: Vec<u64> = (0..superblock.log_bytes).step_by(BLOCK_LENGTH).collect();
        return erase(device, superblock, &whole);
    }
    erase(device, superblock, &replayed.stragglers)
}

/// Makes a tree in a fresh region with the rows of another.
fn copy(snapshot: &Snapshot, fresh: &Arc<Region>) -> Result<(), TreeError> {
    let database = tree::open(fresh, false)?;
    let transaction = begin(&database)?;
    let mut unused = Sink::new(0, false);
    tree::prepare(&transaction, &mut unused)?;
    snapshot.each(&mut |row| apply(&transaction, &row))?;
    transaction.commit()?;
    Ok(())
}

/// Writes blocks that are in the log alone, or new, to their places.
fn bring_home(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    replayed: &Replayed,
    plan: &Plan,
) -> Result<(), RepairError> {
    let mut buffer = AlignedBuffer::zeroed(BLOCK_LENGTH);
    for (block, place) in &replayed.homeless {
        // What the log lost stays lost: its checksum tells.
        let Ok(bytes) = read_bytes(&**device, *place, BLOCK_LENGTH) else { continue };
        buffer.copy_from_slice(&bytes);
        device.write(superblock.byte_of(*block), &[IoSlice::new(&buffer)])?;
    }
    for step in &plan.steps {
        if let Step::Block { block, bytes } = step {
            buffer.copy_from_slice(bytes);
            device.write(superblock.byte_of(*block), &[IoSlice::new(&buffer)])?;
        }
    }
    device.sync()?;
    Ok(())
}

/// Zeros the beginnings of entries of the log that must never count again.
fn erase(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    places: &[u64],
) -> Result<(), RepairError> {
    let zeros = AlignedBuffer::zeroed(BLOCK_LENGTH);
    for place in places {
        device.write(superblock.log_offset + place, &[IoSlice::new(&zeros)])?;
    }
    if !places.is_empty() {
        device.sync()?;
    }
    Ok(())
}
