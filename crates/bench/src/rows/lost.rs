//! A drive that is lost: how long programs wait; and its share made anew on a spare from the copies that the others
//! have: how fast when nothing else goes on, how much is written for it, and what programs notice when it is throttled.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nasd_clerk::{Name, OpenFile, OpenMode};
use nasd_types::Protection;
use serde_json::Value;

use super::WRITE_DEPTH;
use crate::cells::{Client, LocalCell};
use crate::limits::disk::disk_read_and_written;
use crate::sampling::median;
use crate::workload::{Bench, MIB, OBJECT_BYTES, Order, Reading, Until, in_parallel};
use crate::{BenchError, Row};

/// Drives of the cell; one more is the spare.
const DRIVES: u32 = 4;
/// Bytes of each, of which few are in use. Their files are sparse, so that no more of the disk is needed than that.
const DRIVE_BYTES: u64 = 20 << 30;
/// The drive that is lost.
const LOST: u32 = 2;
/// As much of the spare's device file as it will use, and more, has its blocks before. Those of the other drives have
/// got theirs as they were filled, and a block device has them too.
const SPARE_BLOCKS: u64 = 5 << 30;
/// Large files, every fourth part of each a hole.
const FILES: u64 = 32;
const FILE_BYTES: u64 = 256 << 20;
const PART: u64 = 4 << 20;
/// Small files besides.
const SMALL_FILES: u64 = 2000;
const SMALL_BYTES: usize = 12 << 10;
/// How many bytes a second are looked at while programs work.
const THROTTLE: &str = "50M";
/// How long programs are measured, before and during the rebuild.
const WATCHED: Duration = Duration::from_secs(15);
/// Bytes that a program reads or writes at a time.
const BLOCK: usize = 4096;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often it is looked how far it is; each look takes some of the processors.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// How often one drive is measured.
const ROUNDS: usize = 3;
/// Clients that read and write while a drive is killed, the blocks of the file of each, and their bytes.
const CLIENTS: usize = 8;
const CLIENT_BLOCKS: usize = 256;
const CLIENT_BLOCK: usize = 64 << 10;
/// How long they work before the loss and after it.
const WORK: Duration = Duration::from_secs(5);
const WORK_AFTER: Duration = Duration::from_secs(15);
/// How long an operation may take at most, in seconds.
const STALL: f64 = 5.0;

/// The longest that any operation of eight clients takes while a drive is killed and does not come back. Everything
/// that is read is compared with what was written, then and at the end; any error ends it.
pub(super) fn stall(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let lossy = Lossy::start(bench, name)?;
    let is_over = AtomicBool::new(false);
    let longest = Mutex::new(Duration::ZERO);
    let lost = std::thread::scope(|scope| {
        let losing = scope.spawn(|| {
            std::thread::sleep(WORK);
            let lost = lossy.cell.lose(&lossy.image(LOST));
            std::thread::sleep(WORK_AFTER);
            is_over.store(true, Ordering::Release);
            lost
        });
        let worked = in_parallel(CLIENTS, |number| {
            let took = Worker::new(bench, &lossy.cell, number)?.work(&is_over)?;
            let mut longest = longest.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *longest = longest.max(took);
            Ok(())
        });
        let lost = losing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        worked.and(lost)
    });
    lost?;
    let longest = longest.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let limit_name = format!("what is allowed; {CLIENTS} clients, a drive killed");
    Ok(Row::new(name, longest.as_secs_f64(), "s", STALL, limit_name))
}

/// A client with a file of its own, of which it knows what is in each block.
struct Worker {
    file: OpenFile,
    _client: Client,
    number: u64,
    versions: Vec<u64>,
}

impl Worker {
    fn new(bench: &Bench<'_>, cell: &LocalCell, number: usize) -> Result<Worker, BenchError> {
        let client = cell.connect(&bench.target.cells)?;
        let file = create(&client, &format!("worker-{number}"))?;
        let mut worker = Worker {
            file,
            _client: client,
            number: number as u64,
            versions: vec![0; CLIENT_BLOCKS],
        };
        for block in 0..CLIENT_BLOCKS {
            worker.write(block, 1)?;
        }
        worker.file.sync()?;
        Ok(worker)
    }

    fn data(&self, block: usize) -> Vec<u8> {
        let mut at = self.number << 56 ^ (block as u64) << 32 ^ self.versions[block];
        let words = (0..CLIENT_BLOCK / 8).flat_map(|_| {
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            at.to_le_bytes()
        });
        words.collect()
    }

    fn write(&mut self, block: usize, version: u64) -> Result<(), BenchError> {
        self.versions[block] = version;
        Ok(self.file.write((block * CLIENT_BLOCK) as u64, &self.data(block))?)
    }

    fn check(&self, block: usize) -> Result<(), BenchError> {
        let (offset, mut read) = ((block * CLIENT_BLOCK) as u64, vec![0; CLIENT_BLOCK]);
        self.file.read(offset, &mut read)?;
        if read == self.data(block) { Ok(()) } else { Err(BenchError::WrongData { offset }) }
    }

    /// Works until it is over; the longest that an operation took.
    fn work(mut self, is_over: &AtomicBool) -> Result<Duration, BenchError> {
        let mut longest = Duration::ZERO;
        let mut random = self.number;
        let mut version = 1;
        while !is_over.load(Ordering::Acquire) {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let block = (random >> 40) as usize % CLIENT_BLOCKS;
            let begun = Instant::now();
            if random >> 32 & 1 == 0 {
                version += 1;
                self.write(block, version)?;
                if version % 8 == 0 {
                    self.file.sync()?;
                }
            } else {
                self.check(block)?;
            }
            longest = longest.max(begun.elapsed());
        }
        self.file.sync()?;
        (0..CLIENT_BLOCKS).try_for_each(|block| self.check(block))?;
        Ok(longest)
    }
}

/// Live bytes that the spare gets a second, beside what one drive takes or gives alone, whichever is less; with what the
/// disk that holds the devices of all gives when it is read and written at once.
pub(super) fn speed(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let (mut written, mut read, mut shared) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        shared.push(disk_read_and_written(&bench.target.directory)?);
        written.push(bench.write_object(Protection::INTEGRITY_ARGS, WRITE_DEPTH)?);
        bench.restart()?;
        read.push(bench.read(&from_medium(), Until::Bytes(OBJECT_BYTES))?.megabytes_a_second());
    }
    let (written, read, shared) = (median(&mut written), median(&mut read), median(&mut shared));
    let lossy = Lossy::start(bench, name)?;
    lossy.cell.lose(&lossy.image(LOST))?;
    let begun = lossy.wait_for_begin()?;
    lossy.wait_for_end()?;
    let seconds = begun.elapsed().as_secs_f64();
    let given = lossy.component(lossy.spare)?["used_bytes"].as_u64().unwrap_or(0);
    let rate = given as f64 / seconds / 1e6;
    let limit_name = format!(
        "one drive in order: {read:.0} read from its medium, {written:.0} written and made durable; the disk of all, read and written at once: {shared:.0} each"
    );
    Ok(Row::new(name, rate, "MB/s", written.min(read), limit_name))
}

/// As `cold-read-1m` does it.
fn from_medium() -> Reading {
    let order = Order::Sequential { from: 0, span: OBJECT_BYTES };
    let protection = Protection::INTEGRITY_ARGS;
    Reading { protection, request: MIB, depth: WRITE_DEPTH, connections: 1, order }
}

/// What is written to the spare's device, beside the bytes that the lost drive had in use.
pub(super) fn written(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let lossy = Lossy::start(bench, name)?;
    let live = lossy.component(LOST)?["used_bytes"].as_u64().unwrap_or(0);
    let before = lossy.cell.written_bytes(&lossy.image(lossy.spare))?;
    lossy.cell.lose(&lossy.image(LOST))?;
    lossy.wait_for_begin()?;
    lossy.wait_for_end()?;
    let written = lossy.cell.written_bytes(&lossy.image(lossy.spare))? - before;
    let limit_name =
        format!("what the lost drive had in use, of {} GiB that it can hold", DRIVE_BYTES >> 30);
    Ok(Row::new(name, written as f64 / 1e6, "MB", live as f64 / 1e6, limit_name))
}

/// What nearly all operations of a program take at most (99 of 100) while the spare is given its share, throttled,
/// beside what they took before.
pub(super) fn foreground(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let lossy = Lossy::start(bench, name)?;
    lossy.nasd(&["striping", "set", "--rebuild-limit", THROTTLE])?;
    lossy.work(WATCHED)?;
    let before = lossy.work(WATCHED)?;
    lossy.cell.lose(&lossy.image(LOST))?;
    lossy.wait_for_begin()?;
    // What was waited for while the drive was taken out is not what is measured here.
    let during = lossy.work(WATCHED)?;
    if lossy.component(lossy.spare)?["places_coming"] == 0 {
        return Err(BenchError::Cell("the rebuild was over before it was measured".to_owned()));
    }
    let limit_name = format!(
        "before the loss: {BLOCK} bytes read in any place, each fourth written and durable; {THROTTLE}B/s are given"
    );
    Ok(Row::new(name, during, "ms", before, limit_name))
}

/// A cell of mirrored files with a spare, and a client.
struct Lossy {
    // Before the cell: what the client holds is written when it goes.
    files: Vec<OpenFile>,
    client: Client,
    cell: LocalCell,
    devices: PathBuf,
    program: PathBuf,
    spare: u32,
}

impl Lossy {
    fn start(bench: &Bench<'_>, name: &str) -> Result<Lossy, BenchError> {
        let cells = &bench.target.cells;
        let directory = bench.target.directory.join(name);
        let devices = bench.target.directory.join(format!("{name}-devices"));
        std::fs::create_dir_all(&devices).map_err(BenchError::io("can't make a directory"))?;
        let mut options = Vec::new();
        for index in 1..=DRIVES {
            options.extend(["--device".to_owned(), sparse(&devices, index)?]);
        }
        options.extend(["--yes", "--cache", "512M", "--stripe", "raid1"].map(str::to_owned));
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let cell = LocalCell::start(cells, &directory, &options)?;
        let client = cell.connect(cells)?;
        let program = cells.program.clone();
        let mut lossy =
            Lossy { files: Vec::new(), client, cell, devices, program, spare: DRIVES + 2 };
        let device = sparse(&lossy.devices, lossy.spare)?;
        fill_blocks(Path::new(&device))?;
        lossy.nasd(&["striping", "set", "--replace-after", "1s"])?;
        lossy.nasd(&["drive", "add", "--spare", "--yes", "--cache", "512M", &device])?;
        lossy.fill(bench)?;
        lossy.wait("the spare is there", |lossy| {
            Ok(lossy.component(lossy.spare)?["reachable"] == true)
        })?;
        Ok(lossy)
    }

    fn image(&self, index: u32) -> PathBuf {
        self.devices.join(format!("drive-{index}"))
    }

    fn nasd(&self, arguments: &[&str]) -> Result<Vec<u8>, BenchError> {
        self.cell.command(&self.program, arguments)
    }

    fn fill(&mut self, bench: &Bench<'_>) -> Result<(), BenchError> {
        for number in 0..FILES {
            let file = create(&self.client, &format!("large-{number}"))?;
            for offset in (0..FILE_BYTES).step_by(MIB).filter(|offset| !is_hole(*offset)) {
                file.write(offset, bench.expected(offset, MIB))?;
            }
            self.files.push(file);
        }
        for number in 0..SMALL_FILES {
            create(&self.client, &format!("small-{number}"))?
                .write(0, bench.expected(0, SMALL_BYTES))?;
        }
        Ok(self.client.clerk.sync_all()?)
    }

    /// What `nasd status` tells of a component drive.
    fn component(&self, index: u32) -> Result<Value, BenchError> {
        let told = self.nasd(&["status", "--json"])?;
        let told: Value = serde_json::from_slice(&told).unwrap_or_default();
        let drives = told["drives"].as_array().into_iter().flatten();
        let mut components = drives.flat_map(|drive| drive["components"].as_array()).flatten();
        Ok(components.find(|component| component["index"] == index).cloned().unwrap_or_default())
    }

    fn wait(
        &self,
        what: &str,
        mut is_so: impl FnMut(&Lossy) -> Result<bool, BenchError>,
    ) -> Result<(), BenchError> {
        let begun = Instant::now();
        while !is_so(self)? {
            if begun.elapsed() > PATIENCE {
                return Err(BenchError::Cell(format!("it is not so after minutes: {what}")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// When the spare was first seen to be given something.
    fn wait_for_begin(&self) -> Result<Instant, BenchError> {
        self.wait("the spare is given its share", |lossy| {
            Ok(lossy.component(lossy.spare)?["places_coming"] != 0)
        })?;
        Ok(Instant::now())
    }

    fn wait_for_end(&self) -> Result<(), BenchError> {
        self.wait("the spare has all", |lossy| {
            let spare = lossy.component(lossy.spare)?;
            Ok(spare["places_coming"] == 0 && spare["places"] != 0)
        })
    }

    /// A program works for so long; what all but the slowest hundredth of its operations took at most, in ms.
    fn work(&self, long: Duration) -> Result<f64, BenchError> {
        let begun = Instant::now();
        let mut block = vec![0; BLOCK];
        let mut times = Vec::new();
        let mut random: u64 = 0x5dee_ce66;
        while begun.elapsed() < long {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let file = &self.files[(random >> 33) as usize % self.files.len()];
            let offset = (random >> 11) % (FILE_BYTES / BLOCK as u64) * BLOCK as u64;
            let start = Instant::now();
            if times.len() % 4 == 3 && !is_hole(offset) {
                file.write(offset, &block)?;
                file.sync()?;
            } else {
                file.read(offset, &mut block)?;
            }
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() * 99 / 100])
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.devices);
    }
}

fn create(client: &Client, name: &str) -> Result<OpenFile, BenchError> {
    let Client { clerk, caller } = client;
    let name = Name::new(name).map_err(|error| BenchError::Cell(error.to_string()))?;
    let made = clerk.create(caller, clerk.root(), &name, 0o600, true)?;
    Ok(clerk.open_known(caller, &made, OpenMode::READ_WRITE)?.0)
}

fn is_hole(offset: u64) -> bool {
    offset / PART % 4 == 3
}

/// Makes a file that is a device.
fn sparse(devices: &Path, index: u32) -> Result<String, BenchError> {
    let path = devices.join(format!("drive-{index}"));
    let failed = BenchError::io("can't make a device file");
    let file = std::fs::File::create(&path).map_err(&failed)?;
    file.set_len(DRIVE_BYTES).map_err(&failed)?;
    Ok(path.display().to_string())
}

/// Has the file system give a device file its first blocks.
fn fill_blocks(device: &Path) -> Result<(), BenchError> {
    let failed = BenchError::io("can't write to a device file");
    let mut file = std::fs::OpenOptions::new().write(true).open(device).map_err(&failed)?;
    let zeros = vec![0; MIB];
    for _ in 0..SPARE_BLOCKS / MIB as u64 {
        file.write_all(&zeros).map_err(&failed)?;
    }
    file.sync_all().map_err(&failed)
}
