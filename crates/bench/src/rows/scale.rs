//! How a cell grows: as many clients as drives, each on a host of its own with a link of a set speed
//! (CMU-CS-97-118 figures 4 and 5), and many clients of many drives (the NASD prototype's figure 2).

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use nasd_hosts::{CellPlan, Host, HostedCell, Link, Route};

use crate::sampling::median;
use crate::workload::{Bench, MIB, in_parallel};
use crate::{BenchError, Row};

/// Links of the first two figures, in bits a second each way.
const LINK: u64 = 400_000_000;
/// Those of the third: OC-3.
const OC3: u64 = 155_000_000;

/// How often it is measured.
const ROUNDS: usize = 3;

/// What is measured.
struct Plan {
    drives: usize,
    clients: usize,
    link: u64,
    /// Options of `nasd up` that say how files are spread.
    stripe: &'static str,
    route: Route,
    work: Work,
    /// Bytes of the file of each client.
    file_bytes: u64,
}

/// What each client does with its file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Reads it in order, so many bytes at a time.
    Read(usize),
    /// Looks for a text in it, with grep.
    Search,
}

/// A kind of row: what comes before the number in its name, and what that number gives.
type Kind = (&'static str, fn(usize) -> Plan);

const KINDS: [Kind; 5] = [
    ("scale-read-", |n| pairs(n, Route::Direct, Work::Read(MIB))),
    ("scale-forwarded-read-", |n| pairs(n, Route::Manager, Work::Read(MIB))),
    ("scale-search-", |n| pairs(n, Route::Direct, Work::Search)),
    ("scale-forwarded-search-", |n| pairs(n, Route::Manager, Work::Search)),
    ("many-clients-", |n| Plan {
        drives: 13,
        clients: n,
        link: OC3,
        stripe: "raid0 --stripe-width 4 --stripe-unit 512K",
        route: Route::Direct,
        work: Work::Read(2 * MIB),
        file_bytes: 128 << 20,
    }),
];

/// As many clients as drives, and files over all drives.
fn pairs(n: usize, route: Route, work: Work) -> Plan {
    let file_bytes = match route {
        Route::Direct => 512 << 20,
        // All of it goes over one link.
        Route::Manager => (1 << 30) / n as u64,
    };
    let stripe = match work {
        Work::Read(_) => "raid0 --stripe-unit 512K",
        Work::Search => "raid0 --stripe-unit 256K",
    };
    Plan { drives: n, clients: n, link: LINK, stripe, route, work, file_bytes }
}

/// The row of a name that ends with the number of clients.
pub(super) fn measure(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let found = KINDS
        .iter()
        .find_map(|(prefix, plan)| Some(plan(name.strip_prefix(prefix)?.parse().ok()?)));
    let plan = found.ok_or_else(|| BenchError::NoSuchRow {
        name: name.to_owned(),
        known: KINDS.iter().map(|(prefix, _)| format!("{prefix}N ")).collect(),
    })?;
    let directory = bench.target.directory.join(name);
    let outcome = Scaled::start(bench, &directory, &plan).and_then(|mut scaled| {
        let done = (0..ROUNDS).map(|_| scaled.run(&plan)).collect::<Result<Vec<Done>, _>>()?;
        scaled.cell.stop()?;
        Ok(done)
    });
    let _ = std::fs::remove_dir_all(&directory);
    let done = outcome?;
    let (limit, limit_name) = plan.limit();
    let rate = median(&mut done.iter().map(|done| done.rate).collect::<Vec<f64>>());
    let mut row = Row::new(name, rate, "MB/s", limit, limit_name);
    let shares: Option<Vec<f64>> = done.iter().map(|done| done.manager_cpu).collect();
    row.manager_cpu = shares.map(|mut shares| median(&mut shares));
    Ok(row)
}

impl Plan {
    fn limit(&self) -> (f64, String) {
        let link = self.link as f64 / 8e6;
        let mbit = self.link / 1_000_000;
        match self.route {
            Route::Direct => {
                (link * self.clients as f64, format!("{} links of {mbit} Mbit/s", self.clients))
            }
            Route::Manager => (link, format!("the manager's link of {mbit} Mbit/s")),
        }
    }

    /// Room for all files on their drives, in memory too.
    fn options(&self) -> Vec<String> {
        let all = self.file_bytes * self.clients as u64 / self.drives as u64;
        let (cache, size) = (all + all / 4 + (64 << 20), 3 * all + (256 << 20));
        let text = format!("--stripe {} --cache {cache} --size {size}", self.stripe);
        text.split_whitespace().map(str::to_owned).collect()
    }
}

/// A cell on hosts, and clients with a file each.
struct Scaled {
    cell: HostedCell,
    hosts: Vec<Host>,
    mounts: Vec<PathBuf>,
}

/// What came of it.
struct Done {
    /// MB/s of all clients.
    rate: f64,
    /// Share of one processor that the managers took.
    manager_cpu: Option<f64>,
}

impl Scaled {
    /// Starts the cell; each client writes its file.
    fn start(bench: &Bench<'_>, directory: &Path, plan: &Plan) -> Result<Scaled, BenchError> {
        std::fs::create_dir(directory).map_err(BenchError::io("can't make a cell's directory"))?;
        let options = plan.options();
        let options = bench.target.cells.options(options.iter().map(String::as_str));
        let cell_plan = CellPlan {
            drives: plan.drives as u32,
            options,
            drive_options: Vec::new(),
            link: Link::of(plan.link),
        };
        let program = &bench.target.cells.program;
        let mut cell = HostedCell::start(program, &directory.join("cell"), &cell_plan)?;
        let hosts = (0..plan.clients).map(|client| cell.client_host(&format!("client{client}")));
        let hosts = hosts.collect::<Result<Vec<Host>, _>>()?;
        let mounts = (0..plan.clients).map(|client| directory.join(format!("mount{client}")));
        let mut scaled = Scaled { cell, hosts, mounts: mounts.collect() };
        scaled.mount(Route::Direct)?;
        in_parallel(plan.clients, |client| scaled.fill(client, plan))?;
        scaled.unmount()?;
        Ok(scaled)
    }

    fn mount(&mut self, route: Route) -> Result<(), BenchError> {
        for (host, at) in self.hosts.iter().zip(&self.mounts) {
            self.cell.mount(host, at, route)?;
        }
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), BenchError> {
        Ok(self.mounts.iter().try_for_each(|at| self.cell.unmount(at))?)
    }

    fn file(&self, client: usize) -> PathBuf {
        self.mounts[client].join(format!("file{client}"))
    }

    /// Text of which no line is what is looked for.
    fn fill(&self, client: usize, plan: &Plan) -> Result<(), BenchError> {
        let failed = BenchError::io("can't write a file of the measured cell");
        let mut file = File::create(self.file(client)).map_err(&failed)?;
        let line = b"The quick brown fox jumps over the lazy dog, and nobody minds.\n";
        let part: Vec<u8> = line.iter().copied().cycle().take(MIB).collect();
        for _ in 0..plan.file_bytes / MIB as u64 {
            file.write_all(&part).map_err(&failed)?;
        }
        file.sync_all().map_err(&failed)
    }

    /// All clients at once, with nothing in their memory.
    fn run(&mut self, plan: &Plan) -> Result<Done, BenchError> {
        self.mount(plan.route)?;
        let start = Barrier::new(plan.clients);
        let cpu_before = self.cell.manager_cpu_seconds();
        let begun = Instant::now();
        in_parallel(plan.clients, |client| {
            start.wait();
            match plan.work {
                Work::Read(request) => self.read(client, plan, request),
                Work::Search => self.search(client),
            }
        })?;
        let elapsed = begun.elapsed();
        let cpu = self.cell.manager_cpu_seconds();
        self.unmount()?;
        let bytes = plan.file_bytes * plan.clients as u64;
        let share = |seconds: f64, whole: Duration| seconds / whole.as_secs_f64();
        Ok(Done {
            rate: bytes as f64 / elapsed.as_secs_f64() / 1e6,
            manager_cpu: cpu.zip(cpu_before).map(|(now, before)| share(now - before, elapsed)),
        })
    }

    fn read(&self, client: usize, plan: &Plan, request: usize) -> Result<(), BenchError> {
        let failed = BenchError::io("can't read a file of the measured cell");
        let mut file = File::open(self.file(client)).map_err(&failed)?;
        let mut buffer = vec![0; request];
        let mut bytes = 0;
        loop {
            match file.read(&mut buffer).map_err(&failed)? {
                0 if bytes == plan.file_bytes => return Ok(()),
                0 => return Err(BenchError::WrongData { offset: bytes }),
                read => bytes += read as u64,
            }
        }
    }

    fn search(&self, client: usize) -> Result<(), BenchError> {
        const PROGRAM: &str = "grep";
        let mut grep = Command::new(PROGRAM);
        grep.args(["-c", "-F", "a line that there is not"]).arg(self.file(client));
        let output = grep.env("LC_ALL", "C").stdin(Stdio::null()).output();
        let output = output.map_err(BenchError::io("can't run grep"))?;
        match output.stdout == b"0\n" {
            true => Ok(()),
            false => Err(BenchError::Program {
                program: PROGRAM,
                reason: String::from_utf8_lossy(&output.stderr).into_owned(),
            }),
        }
    }
}
