//! Table 1 of the paper, for this drive: how many instructions a request costs the drive in user
//! space, and how much of that is communications.
//!
//! Usage: `cargo run --release -p nasd-drive --example instruction_cost [DIRECTORY]`
//!
//! Instructions are counted by callgrind, under which this program runs itself as the drive:
//!
//! ```text
//! valgrind --tool=callgrind --dump-before=instruction_cost_mark instruction_cost serve FILE
//! ```
//!
//! Each request is alone: nothing is shared with a request before or after it, as it would be on a
//! pipelined connection. *Communications* is all that is not inside the drive's service: sockets,
//! records, RPC headers, hand-over between threads. What is inside is decoding of the arguments,
//! authority, digests, and the object store. Cold is right after a start, with nothing of the
//! object in memory; every cold request is for another object. Scattered is in between: the object, its
//! capability, and where its blocks lie are known, and the data is not in memory (but for the last
//! block of 512 KiB).
//!
//! The second table has what the kernel adds, as time of the processor, from the same requests to
//! a drive that runs by itself. Instructions of the kernel can be had only where the processor's
//! counters can be: `perf stat -e instructions:u,instructions:k`. Which system calls they are:
//! `strace -f -c -p PID` of a drive that is read from.

mod profile;
#[path = "../support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nasd_client::{Authority, DriveClient};
use nasd_device::{FileDevice, FileOptions};
use nasd_drive::DriveServer;
use nasd_types::{ObjectName, Protection};
use profile::Profile;
use support::Outcome;

const SIZES: [(usize, &str); 4] =
    [(1, "1 B"), (8 << 10, "8 KiB"), (64 << 10, "64 KiB"), (512 << 10, "512 KiB")];
const LARGEST: usize = 512 << 10;
/// Cold requests of a size; each has an object of its own.
const COLD: usize = 32;
/// Warm requests of a size, under callgrind and without.
const WARM: usize = 500;
const WARM_TIMED: usize = 10_000;

const DEVICE_BYTES: u64 = 1 << 30;
const CACHE_BYTES: usize = 256 << 20;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [verb, path] if verb == "serve" => serve(Path::new(path)),
        [] => measure(&std::env::temp_dir()),
        [directory] => measure(Path::new(directory)),
        _ => Err("usage: instruction_cost [DIRECTORY]".into()),
    }
}

/// Callgrind writes what it counted whenever this is called, and begins anew.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn instruction_cost_mark() {
    std::hint::black_box(());
}

/// The drive: does what it is told by lines on its standard input, and answers each with one.
fn serve(path: &Path) -> Outcome<()> {
    let mut server = start(path)?;
    println!("{}", server.address());
    for line in std::io::stdin().lock().lines() {
        match line?.as_str() {
            "restart" => {
                server.shut_down(Duration::from_secs(5))?;
                server = start(path)?;
                println!("{}", server.address());
            }
            "mark" => {
                instruction_cost_mark();
                println!("marked");
            }
            other => return Err(format!("nobody knows how to {other}").into()),
        }
    }
    Ok(())
}

fn start(path: &Path) -> Outcome<DriveServer> {
    let device = Arc::new(FileDevice::open(
        path,
        FileOptions { allow_buffered: true, ..FileOptions::default() },
    )?);
    support::serve(device, CACHE_BYTES, Protection::INTEGRITY_ARGS)
}

/// A drive that runs as a process of its own; ended when dropped.
struct Served {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Served {
    fn order(&mut self, order: &str) -> Outcome<String> {
        let orders = self.orders.as_mut().ok_or("the drive has been told to end")?;
        writeln!(orders, "{order}")?;
        self.answer()
    }

    fn answer(&mut self) -> Outcome<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err("the drive has ended".into());
        }
        Ok(line.trim().to_owned())
    }

    /// Time in user space and in the kernel so far, in ticks of 10 ms.
    fn ticks(&self) -> Outcome<(u64, u64)> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // Fields 14 and 15; the second, the name, may hold spaces.
        let behind_name = stat.rsplit(')').next().unwrap_or_default();
        let mut fields = behind_name.split_whitespace().skip(11).map(str::parse::<u64>);
        let (Some(user), Some(system)) = (fields.next(), fields.next()) else {
            return Err("/proc says nothing about the drive".into());
        };
        Ok((user?, system?))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}

/// Starts this program as a drive, under callgrind if told where its files go.
fn launch(image: &Path, counted: Option<&Path>) -> Outcome<(Served, String)> {
    let program = std::env::current_exe()?;
    let mut command = match counted {
        None => Command::new(&program),
        Some(out) => {
            let mut command = Command::new("valgrind");
            command
                .args(["--tool=callgrind", "--quiet", "--dump-before=instruction_cost_mark"])
                .arg(format!("--callgrind-out-file={}", out.display()))
                .arg(&program);
            command
        }
    };
    let mut child = command
        .arg("serve")
        .arg(image)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    let orders = child.stdin.take();
    let answers = BufReader::new(child.stdout.take().ok_or("no output of the drive")?);
    let mut served = Served { child, orders, answers };
    let address = served.answer()?;
    Ok((served, address))
}

/// What is read and written.
struct Objects {
    /// For warm requests, and to get a connection going.
    warm: (ObjectName, Authority),
    cold: Vec<(ObjectName, Authority)>,
    /// As long as all of the cold ones.
    large: (ObjectName, Authority),
}

fn fill(client: &DriveClient) -> Outcome<Objects> {
    let data = vec![7; LARGEST];
    let make = || -> Outcome<(ObjectName, Authority)> {
        let (name, authority) = support::create(client, Protection::INTEGRITY_ARGS)?;
        client.write(&authority, name, 0, &data, false)?;
        Ok((name, authority))
    };
    let warm = make()?;
    let cold = (0..COLD).map(|_| make()).collect::<Outcome<Vec<_>>>()?;
    let large = make()?;
    for number in 1..COLD as u64 {
        client.write(&large.1, large.0, number * LARGEST as u64, &data, false)?;
    }
    client.flush(&support::manager(), support::PARTITION, &[])?;
    Ok(Objects { warm, cold, large })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Read,
    Write,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write",
        }
    }

    fn run(
        self,
        client: &DriveClient,
        object: &(ObjectName, Authority),
        offset: u64,
        data: &mut [u8],
    ) -> Outcome<()> {
        let (name, authority) = object;
        match self {
            Operation::Read => drop(client.read(authority, *name, offset, data)?),
            Operation::Write => drop(client.write(authority, *name, offset, data, false)?),
        }
        Ok(())
    }
}

/// What is in memory before a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Cold,
    Scattered,
    Warm,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Cold => "cold",
            State::Scattered => "scattered",
            State::Warm => "warm",
        }
    }
}

/// A directory that is removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn measure(parent: &Path) -> Outcome<()> {
    let directory = Scratch(parent.join(format!("instruction-cost-{}", std::process::id())));
    std::fs::create_dir(&directory.0)?;
    let image = directory.0.join("drive.img");
    support::format(Arc::new(FileDevice::create(
        &image,
        DEVICE_BYTES,
        FileOptions { allow_buffered: true, ..FileOptions::default() },
    )?))?;
    count(&directory.0, &image)?;
    time(&image)
}

/// A drive under callgrind.
struct Counted {
    served: Served,
    objects: Objects,
    /// Where callgrind writes, but for the number.
    out: PathBuf,
    marks: usize,
}

impl Counted {
    /// Tells callgrind to begin anew, and where it wrote what it counted before.
    fn mark(&mut self) -> Outcome<PathBuf> {
        self.served.order("mark")?;
        self.marks += 1;
        Ok(PathBuf::from(format!("{}.{}", self.out.display(), self.marks)))
    }

    /// Requests of one kind and size, of a drive that was started just before.
    fn count(&mut self, operation: Operation, state: State, bytes: usize) -> Outcome<(u64, f64)> {
        let address = self.served.order("restart")?;
        let client = support::connect(&address, 1);
        let mut data = vec![7; bytes];
        let Objects { warm, cold, large } = &self.objects;
        let places: Vec<_> = match state {
            State::Cold => cold.iter().map(|object| (object, 0)).collect(),
            // Not one after the other, so that nothing could be read ahead.
            State::Scattered => {
                let numbers = (0..COLD).map(|number| number * 5 % COLD);
                numbers.map(|number| (large, (number * LARGEST) as u64)).collect()
            }
            State::Warm => vec![(warm, 0); WARM],
        };
        // The connection is there, and the drive has served something.
        let (before, offset) = match state {
            State::Cold | State::Warm => (warm, 0),
            State::Scattered => (large, (LARGEST - 1) as u64),
        };
        for _ in 0..3 {
            match state {
                State::Warm => operation.run(&client, before, offset, &mut data)?,
                State::Cold | State::Scattered => {
                    Operation::Read.run(&client, before, offset, &mut [0])?;
                }
            }
        }
        if state == State::Scattered {
            for (object, offset) in &places {
                let last = offset + LARGEST as u64 - 1;
                Operation::Read.run(&client, object, last, &mut [0])?;
            }
        }
        let requests = places.len() as u64;
        self.served.order("mark")?;
        self.marks += 1;
        for (object, offset) in places {
            operation.run(&client, object, offset, &mut data)?;
        }
        let profile = Profile::read(&self.mark()?)?;
        Ok((profile.total / requests, profile.share_of_communications()))
    }
}

/// Instructions, under callgrind.
fn count(directory: &Path, image: &Path) -> Outcome<()> {
    let out = directory.join("counted");
    let (served, address) = launch(image, Some(&out))?;
    let objects = fill(&support::connect(&address, 1))?;
    let mut counted = Counted { served, objects, out, marks: 0 };
    println!("instructions in user space for a request, and the share of communications:");
    print_sizes();
    for operation in [Operation::Read, Operation::Write] {
        for state in [State::Cold, State::Scattered, State::Warm] {
            if (operation, state) == (Operation::Write, State::Scattered) {
                continue;
            }
            print!("{:<16}", label(operation, state));
            for (bytes, _) in SIZES {
                let (instructions, share) = counted.count(operation, state, bytes)?;
                print!("{instructions:>11} {:>3.0} %", 100.0 * share);
                std::io::stdout().flush()?;
            }
            println!();
        }
    }
    Ok(())
}

/// Time of the processor, without callgrind.
fn time(image: &Path) -> Outcome<()> {
    let (mut served, address) = launch(image, None)?;
    let objects = fill(&support::connect(&address, 1))?;
    println!("\nmicroseconds of the processor for a warm request, in user space + in the kernel:");
    print_sizes();
    for operation in [Operation::Read, Operation::Write] {
        print!("{:<16}", label(operation, State::Warm));
        for (bytes, _) in SIZES {
            let address = served.order("restart")?;
            let client = support::connect(&address, 1);
            let mut data = vec![7; bytes];
            operation.run(&client, &objects.warm, 0, &mut data)?;
            let before = served.ticks()?;
            for _ in 0..WARM_TIMED {
                operation.run(&client, &objects.warm, 0, &mut data)?;
            }
            let after = served.ticks()?;
            let each = |ticks: u64| ticks as f64 * 1e4 / WARM_TIMED as f64;
            print!("{:>9.1} +{:>6.1}", each(after.0 - before.0), each(after.1 - before.1));
            std::io::stdout().flush()?;
        }
        println!();
    }
    Ok(())
}

fn print_sizes() {
    print!("{:<16}", "");
    for (_, name) in SIZES {
        print!("{name:>17}");
    }
    println!();
}

fn label(operation: Operation, state: State) -> String {
    format!("{}, {}", operation.name(), state.name())
}
