//! The Andrew benchmark (Howard and others, "Scale and Performance in a Distributed File System", 1988), as section 4.2 of the
//! paper has it: what a programmer does with a source tree, in five phases, each timed.
//!
//! 1. *MakeDir* makes the directories of the tree.
//! 2. *Copy* copies every file into them.
//! 3. *ScanDir* lists each directory and asks for the attributes of all that is there (`ls -lR`).
//! 4. *ReadAll* reads every byte of every file (`grep -r`).
//! 5. *Make* compiles and links (`make`, with the system's `cc`).
//!
//! Everything is done by plain calls of the system, so any directory can be measured. Phases 3 and 4 are repeated at once,
//! where a client knows all of it already: what a repeated look costs is what callbacks are for. What is met is counted and
//! compared with the tree in each phase.

mod tree;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde::Serialize;

pub use tree::{Contents, SourceTree};

use crate::BenchError;
use crate::program::run_program;
use crate::sampling::median;

/// What is read and written at a time, as `cp` does.
const BLOCK_BYTES: usize = 128 << 10;

/// Whether phase 5 is measured too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All of it.
    Whole,
    /// Not the compiler.
    WithoutMake,
}

/// Seconds of each phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Phases {
    /// Phase 1.
    pub make_dir: f64,
    /// Phase 2.
    pub copy: f64,
    /// Phase 3.
    pub scan_dir: f64,
    /// Phase 4.
    pub read_all: f64,
    /// Phase 5.
    pub make: f64,
    /// Phase 3 again, after phase 4.
    pub scan_dir_warm: f64,
    /// Phase 4 again, after that.
    pub read_all_warm: f64,
}

impl Phases {
    /// The name of phase 5.
    pub(crate) const MAKE: &'static str = "5 make";

    /// What the benchmark's time is: the five phases, each once.
    pub fn total(&self) -> f64 {
        self.make_dir + self.copy + self.scan_dir + self.read_all + self.make
    }

    /// Phases 3 and 4 when they are repeated.
    pub fn warm(&self) -> f64 {
        self.scan_dir_warm + self.read_all_warm
    }

    /// Each phase by its name.
    pub fn named(&self) -> [(&'static str, f64); 7] {
        [
            ("1 make-dir", self.make_dir),
            ("2 copy", self.copy),
            ("3 scan-dir", self.scan_dir),
            ("4 read-all", self.read_all),
            (Phases::MAKE, self.make),
            ("3 warm", self.scan_dir_warm),
            ("4 warm", self.read_all_warm),
        ]
    }

    /// The medians of several runs, phase by phase.
    pub(crate) fn medians(runs: &[Phases]) -> Phases {
        let of =
            |phase: fn(&Phases) -> f64| median(&mut runs.iter().map(phase).collect::<Vec<_>>());
        Phases {
            make_dir: of(|run| run.make_dir),
            copy: of(|run| run.copy),
            scan_dir: of(|run| run.scan_dir),
            read_all: of(|run| run.read_all),
            make: of(|run| run.make),
            scan_dir_warm: of(|run| run.scan_dir_warm),
            read_all_warm: of(|run| run.read_all_warm),
        }
    }
}

/// Runs the benchmark once in a directory, which may be on any file system. What it makes there is removed in the end.
///
/// # Errors
///
/// No sources, no `make` or `cc`, what the file system refuses, or a tree that is not what was copied.
pub fn andrew(directory: &Path) -> Result<(Contents, Phases), BenchError> {
    let own = std::process::id();
    // Where no other process comes upon it, and on no file system that is measured.
    let tree = SourceTree::gather(&std::env::temp_dir().join(format!("nasd-andrew-{own}")))?;
    let phases = run(&tree, &directory.join(format!("andrew-{own}")), Extent::Whole)?;
    Ok((tree.contents(), phases))
}

/// Runs the phases in a directory that is made for them, and removes it.
pub(crate) fn run(tree: &SourceTree, into: &Path, extent: Extent) -> Result<Phases, BenchError> {
    let phases = run_phases(tree, into, extent);
    let removed = fs::remove_dir_all(into).map_err(BenchError::io("can't remove the tree"));
    phases.and_then(|phases| removed.map(|()| phases))
}

fn run_phases(tree: &SourceTree, into: &Path, extent: Extent) -> Result<Phases, BenchError> {
    let mut phases = Phases::default();
    let mut buffer = vec![0; BLOCK_BYTES];
    phases.make_dir = timed(|| make_directories(tree, into))?;
    phases.copy = timed(|| copy(tree, into, &mut buffer))?;
    let scan = || timed(|| expect(scan(into), tree, |all| Contents { lines: 0, ..all }));
    let mut read = || timed(|| expect(read_all(into, &mut buffer), tree, |all| all));
    (phases.scan_dir, phases.read_all) = (scan()?, read()?);
    (phases.scan_dir_warm, phases.read_all_warm) = (scan()?, read()?);
    if extent == Extent::Whole {
        phases.make = timed(|| make(into))?;
        try_program(into)?;
    }
    Ok(phases)
}

/// In seconds.
fn timed(work: impl FnOnce() -> Result<(), BenchError>) -> Result<f64, BenchError> {
    let begun = Instant::now();
    work()?;
    Ok(begun.elapsed().as_secs_f64())
}

fn make_directories(tree: &SourceTree, into: &Path) -> Result<(), BenchError> {
    let failed = BenchError::io("phase 1 can't make a directory");
    fs::create_dir(into).map_err(&failed)?;
    tree.directories.iter().try_for_each(|path| fs::create_dir(into.join(path))).map_err(failed)
}

/// Each file is read, written to a new one, and that is closed.
fn copy(tree: &SourceTree, into: &Path, buffer: &mut [u8]) -> Result<(), BenchError> {
    let failed = BenchError::io("phase 2 can't copy a file");
    for path in &tree.files {
        copy_file(&tree.path(path), &into.join(path), buffer).map_err(&failed)?;
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path, buffer: &mut [u8]) -> std::io::Result<()> {
    let mut from = File::open(from)?;
    let mut to = OpenOptions::new().write(true).create_new(true).open(to)?;
    loop {
        let length = from.read(buffer)?;
        if length == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..length])?;
    }
}

/// Lists all directories below one, and asks for the attributes of each name.
fn scan(directory: &Path) -> Result<Contents, BenchError> {
    let failed = BenchError::io("phase 3 can't look at the tree");
    let mut met = Contents::default();
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).map_err(&failed)? {
            let entry = entry.map_err(&failed)?;
            let attributes = entry.metadata().map_err(&failed)?;
            if attributes.is_dir() {
                met.directories += 1;
                pending.push(entry.path());
            } else {
                met.files += 1;
                met.bytes += attributes.len();
            }
        }
    }
    Ok(met)
}

/// Reads all files below a directory, and looks at each byte.
fn read_all(directory: &Path, buffer: &mut [u8]) -> Result<Contents, BenchError> {
    let failed = BenchError::io("phase 4 can't read the tree");
    let mut met = Contents::default();
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).map_err(&failed)? {
            let entry = entry.map_err(&failed)?;
            if entry.file_type().map_err(&failed)?.is_dir() {
                met.directories += 1;
                pending.push(entry.path());
            } else {
                let (bytes, lines) = tree::read_whole(&entry.path(), buffer).map_err(&failed)?;
                met.files += 1;
                met.bytes += bytes;
                met.lines += lines;
            }
        }
    }
    Ok(met)
}

/// Whether what a phase has met is what it can see of the tree.
fn expect(
    met: Result<Contents, BenchError>,
    tree: &SourceTree,
    seen: impl FnOnce(Contents) -> Contents,
) -> Result<(), BenchError> {
    let (met, expected) = (met?, seen(tree.contents));
    match met == expected {
        true => Ok(()),
        false => Err(BenchError::OtherTree {
            met: format!("{met:?}"),
            expected: format!("{expected:?}"),
        }),
    }
}

/// What says how things are compiled is the tree's own `Makefile`, and one thing is done at a time.
fn make(directory: &Path) -> Result<(), BenchError> {
    let mut make = Command::new("make");
    make.args(["-s", "-j1", "CC=cc"]).current_dir(directory);
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS");
    run_program("make", make)
}

/// What was linked runs.
fn try_program(directory: &Path) -> Result<(), BenchError> {
    let mut program = Command::new(directory.join("program"));
    program.arg("zstd-sys/zstd/lib/zstd.h").current_dir(directory);
    run_program("the program that phase 5 has built", program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn each_phase_meets_all_of_the_tree() {
        let scratch = Scratch::new("andrew-phases");
        let tree = SourceTree::gather(&scratch.path().join("sources")).unwrap();
        let Contents { directories, files, bytes, lines } = tree.contents();
        assert!(directories > 50 && files > 300 && bytes > 5_000_000 && lines > 100_000);
        let into = scratch.path().join("copy");
        let phases = run(&tree, &into, Extent::WithoutMake).unwrap();
        let never = phases.named().into_iter().filter(|(_, seconds)| *seconds == 0.0);
        assert_eq!(never.map(|(name, _)| name).collect::<Vec<_>>(), [Phases::MAKE]);
        assert!(!into.exists(), "the copy is removed");
        drop(tree);
        assert!(!scratch.path().join("sources").exists(), "and the sources");
    }

    #[test]
    fn what_differs_is_noticed() {
        let scratch = Scratch::new("andrew-differs");
        let tree = SourceTree::gather(&scratch.path().join("sources")).unwrap();
        let (into, mut buffer) = (scratch.path().join("copy"), vec![0; BLOCK_BYTES]);
        make_directories(&tree, &into).unwrap();
        copy(&tree, &into, &mut buffer).unwrap();
        expect(read_all(&into, &mut buffer), &tree, |all| all).unwrap();
        fs::write(into.join("main.c"), "int main(void);\n").unwrap();
        let read = expect(read_all(&into, &mut buffer), &tree, |all| all);
        assert!(matches!(read, Err(BenchError::OtherTree { .. })), "{read:?}");
        let scanned = expect(scan(&into), &tree, |all| Contents { lines: 0, ..all });
        assert!(matches!(scanned, Err(BenchError::OtherTree { .. })), "{scanned:?}");
        let again = run(&tree, &into, Extent::WithoutMake);
        assert!(matches!(again, Err(BenchError::Io { .. })), "{again:?}");
    }

    #[test]
    fn the_middle_of_runs_is_taken_phase_by_phase() {
        let run = |copy, make| Phases { copy, make, ..Phases::default() };
        let middle = Phases::medians(&[run(1.0, 9.0), run(3.0, 7.0), run(2.0, 8.0)]);
        assert_eq!((middle.copy, middle.make, middle.total()), (2.0, 8.0, 10.0));
        let warm = Phases { scan_dir_warm: 1.0, read_all_warm: 2.0, ..Phases::default() };
        assert_eq!((warm.warm(), warm.total()), (3.0, 0.0));
    }
}
