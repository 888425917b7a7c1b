//! The Andrew benchmark on a mount of a cell of one drive, beside the local file system.

use std::path::{Path, PathBuf};

use nasd_hosts::Process;

use crate::andrew::{self, Extent, Phases, SourceTree};
use crate::cells::LocalCell;
use crate::row::Part;
use crate::workload::Bench;
use crate::{BenchError, Row};

/// How often each is measured, by turns.
const ROUNDS: usize = 3;
/// The same of phases 3 and 4 repeated: they take a few hundredths of a second, in which a machine may do something else.
const WARM_ROUNDS: usize = 9;
/// The other volume of a cell, and what it is like. The first volume of any cell is like `nfs`.
const OTHER_VOLUME: &str = "andrew";
/// By how much callbacks are to make a repeated look quicker.
const WARM_BAR: f64 = 3.0;

/// The benchmark's time on a volume of the kind that the row is named after; the limit is a directory on the disk where the
/// drive's file is too.
pub(super) fn measure(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let is_afs = name == "andrew-afs";
    in_scratch(bench, name, |directory| {
        let tree = SourceTree::gather(&directory.join("sources"))?;
        let cell = start(bench, directory, is_afs)?;
        let (mut ours, mut local) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            local.push(andrew::run(&tree, &directory.join("local"), Extent::Whole)?);
            let mounted = Mounted::new(bench, &cell, directory, is_afs)?;
            ours.push(mounted.run(&tree, round, Extent::Whole)?);
        }
        let (ours, local) = (Phases::medians(&ours), Phases::medians(&local));
        let limit_name = "the same on the local file system; phases below, of which 3 and 4 are \
                          repeated at once, warm, and not in the sum";
        let row = Row::new(name, ours.total(), "s", local.total(), limit_name);
        Ok(Row { parts: parts(&ours, &local), ..row })
    })
}

/// Phases 3 and 4 repeated, on a volume like `nfs`, beside the same on one like `afs`.
pub(super) fn warm(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    in_scratch(bench, name, |directory| {
        let tree = SourceTree::gather(&directory.join("sources"))?;
        let cell = start(bench, directory, true)?;
        let (mut nfs, mut afs) = (Vec::new(), Vec::new());
        for round in 0..WARM_ROUNDS {
            for (is_afs, runs) in [(false, &mut nfs), (true, &mut afs)] {
                let mounted = Mounted::new(bench, &cell, directory, is_afs)?;
                runs.push(mounted.run(&tree, round, Extent::WithoutMake)?);
            }
        }
        let (nfs, afs) = (Phases::medians(&nfs), Phases::medians(&afs));
        let limit_name = format!(
            "the same on a volume like `afs`: phases 3 and 4, warm; the ratio is to be {WARM_BAR} at least"
        );
        let row = Row::new(name, nfs.warm(), "s", afs.warm(), limit_name);
        let parts = parts(&nfs, &afs).into_iter().filter(|part| part.name != Phases::MAKE);
        Ok(Row { parts: parts.collect(), ..row })
    })
}

/// Does something in a directory of the row's own.
fn in_scratch(
    bench: &Bench<'_>,
    name: &str,
    work: impl FnOnce(&Path) -> Result<Row, BenchError>,
) -> Result<Row, BenchError> {
    let directory = bench.target.directory.join(name);
    let failed = BenchError::io("can't make a directory for the benchmark");
    std::fs::create_dir(&directory).map_err(failed)?;
    let done = work(&directory);
    let _ = std::fs::remove_dir_all(&directory);
    done
}

/// A cell of one drive, with a volume like `afs` if it is to have one.
fn start(bench: &Bench<'_>, directory: &Path, has_afs: bool) -> Result<LocalCell, BenchError> {
    let cells = &bench.target.cells;
    let options = ["--drives", "1", "--size", "2G"];
    let cell = LocalCell::start(cells, &directory.join("cell"), &options)?;
    if has_afs {
        let create = ["volume", "create", OTHER_VOLUME, "--personality", "afs"];
        cell.command(&cells.program, &create)?;
    }
    Ok(cell)
}

/// A client that knows nothing yet.
struct Mounted {
    at: PathBuf,
    _process: Process,
}

impl Mounted {
    fn new(
        bench: &Bench<'_>,
        cell: &LocalCell,
        directory: &Path,
        is_afs: bool,
    ) -> Result<Mounted, BenchError> {
        let at = directory.join("mount");
        let volume = is_afs.then_some(OTHER_VOLUME);
        let process = cell.mount(&bench.target.cells.program, volume, &at)?;
        Ok(Mounted { at, _process: process })
    }

    fn run(&self, tree: &SourceTree, round: usize, extent: Extent) -> Result<Phases, BenchError> {
        andrew::run(tree, &self.at.join(format!("tree{round}")), extent)
    }
}

fn parts(value: &Phases, limit: &Phases) -> Vec<Part> {
    let both = value.named().into_iter().zip(limit.named());
    both.map(|((name, value), (_, limit))| Part { name, value, limit }).collect()
}
