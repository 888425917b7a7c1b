//! Pairs of a client and a drive, each on a host of its own with a link of a set speed: figures 2a to 2c of CMU-CS-97-118.
//!
//! The files of a pair lie on its drive alone, in a volume of its own: one like AFS whose data go straight between client and drive, or
//! one like NFS whose data all go through the file manager, as through a server whose disks are its own. Clients know nothing when they
//! begin.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Instant;

use nasd_hosts::{CellPlan, Host, HostedCell, Link, Route};

use crate::andrew::SourceTree;
use crate::linking::{self, Modules};
use crate::sampling::median;
use crate::workload::{Bench, MIB, in_parallel};
use crate::{BenchError, Row};

/// Of each host, in bits a second each way.
const LINK: u64 = 400_000_000;
/// How often each is measured.
const ROUNDS: usize = 3;
/// What is read at a time of a large file.
const REQUEST: usize = MIB / 2;
/// How many times as long as one pair alone several may take.
const FLAT_BAR: f64 = 1.1;
/// With which drives are started for what is not in their memory: as slow as disks, whose arms nothing else moves.
const AS_DISKS: [&str; 3] = ["--emulate-disk", "--scrub-rate", "0"];

/// What is measured.
#[derive(Clone, Copy)]
struct Plan {
    pairs: usize,
    route: Route,
    job: Job,
}

/// What each client does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Job {
    /// Reads one large file in order, which its drive has in memory.
    Read,
    /// Looks for a text in the many small files of a tree, which its drive has on its disk.
    Search,
    /// Links many object files into one output, which lies on the same drive; that has them on its disk.
    Link,
}

/// A kind of row: what comes before the number of pairs in its name, and what is measured.
type Kind = (&'static str, Route, Job);

const KINDS: [Kind; 6] = [
    ("afs-scale-", Route::Direct, Job::Read),
    ("afs-scale-forwarded-", Route::Manager, Job::Read),
    ("afs-agrep-", Route::Direct, Job::Search),
    ("afs-agrep-forwarded-", Route::Manager, Job::Search),
    ("afs-link-", Route::Direct, Job::Link),
    ("afs-link-forwarded-", Route::Manager, Job::Link),
];

/// The row of a name that ends with the number of pairs.
pub(super) fn measure(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let found = KINDS.iter().find_map(|(prefix, route, job)| {
        let pairs = name.strip_prefix(prefix)?.parse().ok()?;
        Some(Plan { pairs, route: *route, job: *job })
    });
    let plan = found.ok_or_else(|| BenchError::NoSuchRow {
        name: name.to_owned(),
        known: KINDS.iter().map(|(prefix, ..)| format!("{prefix}N ")).collect(),
    })?;
    let directory = bench.target.directory.join(name);
    let outcome = Pairs::start(bench, &directory, plan).and_then(|mut pairs| {
        let row = match plan.job {
            Job::Read => pairs.rate(name),
            Job::Search | Job::Link => pairs.run_time(name),
        }?;
        pairs.cell.stop()?;
        Ok(row)
    });
    let _ = fs::remove_dir_all(&directory);
    outcome
}

impl Plan {
    fn personality(&self) -> &'static str {
        match self.route {
            Route::Direct => "afs",
            Route::Manager => "nfs",
        }
    }

    /// How a client mounts its volume: of what it reads nothing is kept on a disk, as all clients here would share one.
    fn mount_options(&self) -> String {
        format!("{},cache=memory", self.route.option())
    }

    /// Bytes of the large file of each client.
    fn file_bytes(&self) -> u64 {
        match self.route {
            Route::Direct => 256 << 20,
            // All of it goes over one link.
            Route::Manager => (512 << 20) / self.pairs as u64,
        }
    }

    /// Room for a pair's files on its drive, in memory too.
    fn options(&self) -> Vec<String> {
        let bytes = match self.job {
            Job::Read => self.file_bytes(),
            Job::Search | Job::Link => 32 << 20,
        };
        let (cache, size) = (bytes + bytes / 4 + (16 << 20), 2 * bytes + (256 << 20));
        ["--cache", &cache.to_string(), "--size", &size.to_string()].map(str::to_owned).to_vec()
    }
}

/// What every client's volume has in it, where it was made.
enum Material {
    File,
    Tree(SourceTree),
    Modules(Modules),
}

impl Material {
    fn gather(job: Job, directory: &Path) -> Result<Material, BenchError> {
        Ok(match job {
            Job::Read => Material::File,
            Job::Search => Material::Tree(SourceTree::gather(directory)?),
            Job::Link => Material::Modules(Modules::assemble(directory)?),
        })
    }
}

/// A cell on hosts, and clients with a volume each.
struct Pairs {
    plan: Plan,
    cell: HostedCell,
    hosts: Vec<Host>,
    mounts: Vec<PathBuf>,
    material: Material,
}

/// What came of it.
struct Done {
    /// In seconds, until the last client was done, and the mean of what each took.
    elapsed: f64,
    mean: f64,
    /// Share of one processor that the managers took.
    manager_cpu: Option<f64>,
}

impl Pairs {
    /// Starts the cell; each client's volume is filled.
    fn start(bench: &Bench<'_>, directory: &Path, plan: Plan) -> Result<Pairs, BenchError> {
        fs::create_dir(directory).map_err(BenchError::io("can't make a cell's directory"))?;
        let material = Material::gather(plan.job, &directory.join("material"))?;
        let options = plan.options();
        let cell_plan = CellPlan {
            drives: plan.pairs as u32,
            options: bench.target.cells.options(options.iter().map(String::as_str)),
            drive_options: Vec::new(),
            link: Link::of(LINK),
        };
        let program = &bench.target.cells.program;
        let mut cell = HostedCell::start(program, &directory.join("cell"), &cell_plan)?;
        for pair in 0..plan.pairs {
            let (volume, drive) = (volume_of(pair), (pair + 1).to_string());
            let create = ["volume", "create", &volume, "--personality", plan.personality()];
            cell.administer(&[&create[..], &["--drives", &drive]].concat())?;
        }
        let hosts = (0..plan.pairs).map(|pair| cell.client_host(&format!("client{pair}")));
        let hosts = hosts.collect::<Result<Vec<Host>, _>>()?;
        let mounts = (0..plan.pairs).map(|pair| directory.join(format!("mount{pair}"))).collect();
        let mut pairs = Pairs { plan, cell, hosts, mounts, material };
        let all: Vec<usize> = (0..plan.pairs).collect();
        // Not through the manager, as that is not what is measured.
        pairs.mount(&all, Route::Direct.option())?;
        in_parallel(plan.pairs, |pair| pairs.fill(pair))?;
        pairs.unmount(&all)?;
        Ok(pairs)
    }

    fn mount(&mut self, which: &[usize], options: &str) -> Result<(), BenchError> {
        for pair in which {
            let (host, at) = (&self.hosts[*pair], &self.mounts[*pair]);
            self.cell.mount_volume(host, at, Some(&volume_of(*pair)), options)?;
        }
        Ok(())
    }

    fn unmount(&mut self, which: &[usize]) -> Result<(), BenchError> {
        Ok(which.iter().try_for_each(|pair| self.cell.unmount(&self.mounts[*pair]))?)
    }

    /// Where a client's files are.
    fn files(&self, pair: usize) -> PathBuf {
        self.mounts[pair].join("files")
    }

    fn fill(&self, pair: usize) -> Result<(), BenchError> {
        let into = self.files(pair);
        match &self.material {
            Material::File => write_text(&into, self.plan.file_bytes()),
            Material::Tree(tree) => tree.copy_to(&into),
            Material::Modules(modules) => modules.copy_to(&into),
        }
    }

    /// Bytes a second of all clients, beside what the links carry.
    fn rate(&mut self, name: &str) -> Result<Row, BenchError> {
        let all: Vec<usize> = (0..self.plan.pairs).collect();
        let done = (0..ROUNDS).map(|_| self.run(&all)).collect::<Result<Vec<Done>, _>>()?;
        let bytes = (self.plan.file_bytes() * self.plan.pairs as u64) as f64;
        let value = median_of(&done, |done| bytes / done.elapsed / 1e6);
        let (link, mbit) = (LINK as f64 / 8e6, LINK / 1_000_000);
        let (limit, limit_name) = match self.plan.route {
            Route::Direct => {
                let pairs = self.plan.pairs;
                (link * pairs as f64, format!("{pairs} links of {mbit} Mbit/s"))
            }
            Route::Manager => (link, format!("the manager's link of {mbit} Mbit/s")),
        };
        let row = Row::new(name, value, "MB/s", limit, limit_name);
        Ok(Row { manager_cpu: manager_share(&done), ..row })
    }

    /// How long all clients take, in the mean, beside one alone, by turns. Another one each time, as no two disks are laid out alike.
    fn run_time(&mut self, name: &str) -> Result<Row, BenchError> {
        let all: Vec<usize> = (0..self.plan.pairs).collect();
        let (mut alone, mut together) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            alone.push(self.run_cold(&[round % self.plan.pairs])?);
            together.push(self.run_cold(&all)?);
        }
        let (alone, value) =
            (median_of(&alone, |done| done.mean), median_of(&together, |done| done.mean));
        let limit_name = match self.plan.route {
            Route::Direct => format!("one pair alone: the ratio is to be {FLAT_BAR} at most"),
            Route::Manager => "one pair alone".to_owned(),
        };
        let row = Row::new(name, value, "s", alone, limit_name);
        Ok(Row { manager_cpu: manager_share(&together), ..row })
    }

    /// With nothing in anybody's memory, and drives as slow as disks.
    fn run_cold(&mut self, which: &[usize]) -> Result<Done, BenchError> {
        self.cell.restart(&AS_DISKS)?;
        self.run(which)
    }

    /// These clients at once, with nothing in their memory.
    fn run(&mut self, which: &[usize]) -> Result<Done, BenchError> {
        self.mount(which, &self.plan.mount_options())?;
        let (start, seconds) = (Barrier::new(which.len()), Mutex::new(Vec::new()));
        let cpu_before = self.cell.manager_cpu_seconds();
        let begun = Instant::now();
        in_parallel(which.len(), |turn| {
            start.wait();
            let begun = Instant::now();
            let done = self.work(which[turn]);
            let taken = begun.elapsed().as_secs_f64();
            seconds.lock().unwrap_or_else(PoisonError::into_inner).push(taken);
            done
        })?;
        let elapsed = begun.elapsed().as_secs_f64();
        let cpu = self.cell.manager_cpu_seconds().zip(cpu_before);
        if let Material::Modules(modules) = &self.material {
            which.iter().try_for_each(|pair| modules.check_output(&self.files(*pair)))?;
        }
        self.unmount(which)?;
        let seconds = seconds.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Done {
            elapsed,
            mean: seconds.iter().sum::<f64>() / seconds.len() as f64,
            manager_cpu: cpu.map(|(now, before)| (now - before) / elapsed),
        })
    }

    fn work(&self, pair: usize) -> Result<(), BenchError> {
        let files = self.files(pair);
        match self.plan.job {
            Job::Read => read(&files, self.plan.file_bytes()),
            Job::Search => search(&files),
            Job::Link => linking::link(&files),
        }
    }
}

fn volume_of(pair: usize) -> String {
    format!("pair{}", pair + 1)
}

fn median_of(done: &[Done], of: impl Fn(&Done) -> f64) -> f64 {
    median(&mut done.iter().map(of).collect::<Vec<f64>>())
}

fn manager_share(done: &[Done]) -> Option<f64> {
    let shares: Option<Vec<f64>> = done.iter().map(|done| done.manager_cpu).collect();
    shares.map(|mut shares| median(&mut shares))
}

/// A file of so many bytes.
fn write_text(path: &Path, bytes: u64) -> Result<(), BenchError> {
    let failed = BenchError::io("can't write a file of the measured cell");
    let mut file = File::create(path).map_err(&failed)?;
    let line = b"The quick brown fox jumps over the lazy dog, and nobody minds.\n";
    let part: Vec<u8> = line.iter().copied().cycle().take(MIB).collect();
    for _ in 0..bytes / MIB as u64 {
        file.write_all(&part).map_err(&failed)?;
    }
    file.sync_all().map_err(failed)
}

fn read(path: &Path, file_bytes: u64) -> Result<(), BenchError> {
    let failed = BenchError::io("can't read a file of the measured cell");
    let mut file = File::open(path).map_err(&failed)?;
    let mut buffer = vec![0; REQUEST];
    let mut bytes = 0;
    loop {
        match file.read(&mut buffer).map_err(&failed)? {
            0 if bytes == file_bytes => return Ok(()),
            0 => return Err(BenchError::WrongData { offset: bytes }),
            read => bytes += read as u64,
        }
    }
}

/// Looks for what is in no file of a tree.
fn search(tree: &Path) -> Result<(), BenchError> {
    const PROGRAM: &str = "grep";
    /// The status by which it says that it has read all, and found nothing.
    const NOTHING: i32 = 1;
    let mut grep = Command::new(PROGRAM);
    grep.args(["-r", "-F", "a text that is nowhere"]).arg(tree);
    let output = grep.env("LC_ALL", "C").stdin(Stdio::null()).output();
    let output = output.map_err(BenchError::io("can't run grep"))?;
    match output.status.code() == Some(NOTHING) && output.stderr.is_empty() {
        true => Ok(()),
        false => Err(BenchError::Program {
            program: PROGRAM,
            reason: String::from_utf8_lossy(&output.stderr).into_owned(),
        }),
    }
}
