//! The check: everything in its order, and nothing written.

use std::sync::Arc;

use nasd_device::BlockDevice;
use nasd_types::{CellId, DriveId};

use crate::data::{DataCheck, Wanted};
use crate::finding::Code;
use crate::image::{self, Image};
use crate::report::{Options, Progress, Report};
use crate::scan::Scan;
use crate::sink::Sink;
use crate::space::{Sweep, sums};
use crate::state::State;
use crate::superblock::{Superblock, choose};
use crate::tree::{Snapshot, TreeError, guarded};

/// Checks every rule of the on-disk format (docs/on-disk-format.md) on a device, which is only
/// read. `progress` is called now and then.
///
/// What is wrong with the device, a medium that fails included, is in the report; there is no
/// other way to fail.
pub fn check(
    device: &Arc<dyn BlockDevice>,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Report {
    let mut sink = Sink::new(options.findings_per_code, false);
    let mut report = Report::default();
    if let Some((superblock, _)) = choose(&**device, &mut sink) {
        name(&mut report, &superblock);
        let done = guarded(|| run(device, &superblock, options, &mut sink, &mut report, progress));
        if let Err(error) = done {
            sink.drive(Code::TreeUnreadable, error.to_string());
        }
    }
    report.findings = sink.findings;
    report.counts = sink.counts;
    report
}

/// Says in a report whose drive it is about.
pub(crate) fn name(report: &mut Report, superblock: &Superblock) {
    report.drive = Some(DriveId(superblock.drive));
    report.cell = Some(CellId(superblock.cell));
    report.statistics.data_blocks = superblock.data_blocks;
}

fn run(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    options: &Options,
    sink: &mut Sink,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), TreeError> {
    let opened = image::open(device, superblock, sink, progress, &mut report.statistics)?;
    let Some(image) = opened else { return Ok(()) };
    let tables = tables(&image, superblock, sink, report, progress)?;
    if options.data {
        data(device, superblock, &image, &tables, sink, report, progress)?;
    }
    Ok(())
}

/// One state of the tables, and what was collected from it.
pub(crate) struct Tables {
    pub(crate) snapshot: Snapshot,
    pub(crate) state: State,
    /// Groups of data blocks whose checksums have to be computed.
    pub(crate) missing_sums: Vec<u64>,
}

/// Checks the tables.
pub(crate) fn tables(
    image: &Image,
    superblock: &Superblock,
    sink: &mut Sink,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<Tables, TreeError> {
    let snapshot = Snapshot::new(&image.database)?;
    let state = State::default();
    let mut scan = Scan { snapshot: &snapshot, superblock, sink, progress, state };
    scan.run()?;
    Sweep::new(&scan.state, scan.sink).run(&snapshot)?;
    let missing_sums = sums(&snapshot, &scan.state, superblock.data_blocks, scan.sink)?;
    let statistics = &mut report.statistics;
    statistics.partitions = scan.state.partitions.len() as u64;
    statistics.objects = scan.state.objects;
    statistics.extents = scan.state.uses.len() as u64;
    statistics.blocks_in_use = scan.state.blocks_in_use();
    scan.totals();
    let state = scan.state;
    Ok(Tables { snapshot, state, missing_sums })
}

/// Checks the contents of data blocks.
pub(crate) fn data(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    image: &Image,
    tables: &Tables,
    sink: &mut Sink,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<Wanted, TreeError> {
    let mut check = DataCheck::new(
        device,
        superblock,
        &tables.snapshot,
        &tables.state,
        &image.replayed.homeless,
        sink,
        progress,
    );
    check.run()?;
    report.statistics.blocks_verified = check.verified;
    Ok(check.wanted)
}
