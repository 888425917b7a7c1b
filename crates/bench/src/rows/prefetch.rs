//! Programs that say what they will read beside those that don't (CMU-CS-97-118 section 4.6).

use std::time::Instant;

use nasd_clerk::{Hints, Name, OpenFile, OpenMode};
use nasd_types::ByteRange;

use crate::cells::{Client, LocalCell};
use crate::sampling::median;
use crate::workload::{Bench, MIB};
use crate::{BenchError, Row};

/// How often each is measured.
const ROUNDS: usize = 3;

/// Values along an edge of the cube, and bytes of each.
const EDGE: usize = 256;
const VALUE_BYTES: usize = 4;
const ROW_BYTES: usize = EDGE * VALUE_BYTES;
const CUBE_BYTES: usize = EDGE * EDGE * ROW_BYTES;

/// What a program reads of the cube at once.
pub(super) const BLOCK_BYTES: usize = 4096;

const SLICES: usize = 25;

/// Bytes of a file of which any part may be read at any time.
const HOT_BYTES: usize = 16 << 20;

const HOT_SEED: usize = 2;

/// So many hints are known at most, where they are told bit by bit.
const MOST_TOLD: usize = 4096;

/// Parts that are told at once, where right hints and wrong ones take turns.
const TURN: usize = 64;

/// Numbers that are the same in every run.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// From -1 to 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub(super) fn shuffle(&mut self, list: &mut [usize]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.next() as usize % (last + 1));
        }
    }
}

/// The blocks of the cube that a plane goes through, in the order in which it is drawn: by rows of the picture. The plane is where
/// `normal . (place - point) = 0`.
fn blocks_of_plane(normal: [f64; 3], point: [f64; 3]) -> Vec<u64> {
    let steepest = (0..3).max_by(|a, b| normal[*a].abs().total_cmp(&normal[*b].abs()));
    let depth = steepest.unwrap_or(2);
    let (across, down) = ((depth + 1) % 3, (depth + 2) % 3);
    let mut is_read = vec![false; CUBE_BYTES / BLOCK_BYTES];
    let mut blocks = Vec::new();
    for row in 0..EDGE {
        for column in 0..EDGE {
            let mut place = [0.0; 3];
            (place[across], place[down]) = (column as f64, row as f64);
            let over = normal[across] * (place[across] - point[across])
                + normal[down] * (place[down] - point[down]);
            place[depth] = point[depth] - over / normal[depth];
            if !(0.0..EDGE as f64).contains(&place[depth]) {
                continue;
            }
            // Values lie by x within rows, rows by y, and those by z.
            let [x, y, z] = place.map(|along| along as usize);
            let block = ((z * EDGE + y) * ROW_BYTES + x * VALUE_BYTES) / BLOCK_BYTES;
            if !std::mem::replace(&mut is_read[block], true) {
                blocks.push(block as u64);
            }
        }
    }
    blocks
}

/// What is read for all slices, in order.
fn reads_of_slices() -> Vec<ByteRange> {
    let mut random = Random(1997);
    let mut reads = Vec::new();
    for _ in 0..SLICES {
        let normal = [random.unit(), random.unit(), random.unit()];
        let point = [0; 3].map(|_| (random.unit() + 1.0) / 2.0 * EDGE as f64);
        let ranges = blocks_of_plane(normal, point)
            .into_iter()
            .map(|block| ByteRange::new(block * BLOCK_BYTES as u64, BLOCK_BYTES as u64));
        reads.extend(ranges);
    }
    reads
}

/// A cell that is new, with one drive, and a client.
pub(super) struct Prefetched {
    // Before the cell: what the client holds is written when it goes.
    pub(super) client: Client,
    pub(super) cell: LocalCell,
    /// Options of all starts but the first.
    options: &'static [&'static str],
}

impl Prefetched {
    fn start(bench: &Bench<'_>, name: &str, cache: &str) -> Result<Prefetched, BenchError> {
        Prefetched::start_with(bench, name, &["--drives", "1", "--size", "6G", "--cache", cache])
    }

    pub(super) fn start_with(
        bench: &Bench<'_>,
        name: &str,
        options: &[&str],
    ) -> Result<Prefetched, BenchError> {
        let cells = &bench.target.cells;
        let directory = bench.target.directory.join(name);
        let cell = LocalCell::start(cells, &directory, options)?;
        let client = cell.connect(cells)?;
        Ok(Prefetched { client, cell, options: &[] })
    }

    /// Nobody remembers anything.
    pub(super) fn forget(&mut self, bench: &Bench<'_>) -> Result<(), BenchError> {
        self.cell.restart(&bench.target.cells, self.options)?;
        self.client = self.cell.connect(&bench.target.cells)?;
        Ok(())
    }

    /// Has the drives use so many bytes of their memory, which are free then: what the system has not given them yet costs time
    /// that drives do not pay which have run for a while.
    pub(super) fn warm_up(&mut self, bench: &Bench<'_>, bytes: usize) -> Result<(), BenchError> {
        self.make("ballast", bytes, 0)?;
        self.client.clerk.sync_all()?;
        let Client { clerk, caller } = &self.client;
        let name = Name::new("ballast").map_err(|error| BenchError::Cell(error.to_string()))?;
        clerk.unlink(caller, clerk.root(), &name, None)?;
        self.client = self.cell.connect(&bench.target.cells)?;
        Ok(())
    }

    pub(super) fn make(&self, name: &str, bytes: usize, seed: usize) -> Result<(), BenchError> {
        let Client { clerk, caller } = &self.client;
        let name = Name::new(name).map_err(|error| BenchError::Cell(error.to_string()))?;
        let made = clerk.create(caller, clerk.root(), &name, 0o600, true)?;
        let (file, _) = clerk.open_known(caller, &made, OpenMode::READ_WRITE)?;
        for offset in (0..bytes).step_by(MIB) {
            let block = filled(seed, offset, MIB.min(bytes - offset));
            file.write(offset as u64, &block)?;
        }
        Ok(())
    }

    pub(super) fn open(&self, name: &str) -> Result<OpenFile, BenchError> {
        let Client { clerk, caller } = &self.client;
        let entry = clerk.resolve(caller, name.as_bytes(), true)?;
        Ok(clerk.open(caller, entry.handle, OpenMode::READ)?.0)
    }

    pub(super) fn hints(&self) -> Result<Hints, BenchError> {
        Ok(self.client.clerk.hints(&self.client.caller)?)
    }

    /// Reads parts of a file one after the other; in seconds.
    fn read(&self, name: &str, reads: &[ByteRange], told: Told<'_>) -> Result<f64, BenchError> {
        self.read_beside(name, reads, told, None)
    }

    /// The same, and after each of them somewhere in another file of which nothing is told.
    fn read_beside(
        &self,
        name: &str,
        reads: &[ByteRange],
        told: Told<'_>,
        hot: Option<&str>,
    ) -> Result<f64, BenchError> {
        let file = self.open(name)?;
        let mut hot = hot.map(|name| Hot::new(self.open(name)?)).transpose()?;
        let begun = Instant::now();
        let mut telling = Telling { stream: self.hints()?, told: reads.chunks(TURN) };
        match &told {
            Told::Nothing | Told::Half(..) => {}
            Told::All => telling.stream.add(&file, reads)?,
            Told::Others(other, ranges) => telling.stream.add(other, ranges)?,
        }
        for (index, range) in reads.iter().enumerate() {
            if let Told::Half(other, ranges) = &told
                && index % TURN == 0
            {
                telling.go_on(&file, (other, ranges))?;
            }
            read_right(&file, 0, range.offset)?;
            hot.as_mut().map_or(Ok(()), Hot::read)?;
        }
        Ok(begun.elapsed().as_secs_f64())
    }
}

/// What is told of what will be read.
enum Told<'a> {
    Nothing,
    All,
    /// What will not be.
    Others(&'a OpenFile, &'a [ByteRange]),
    /// All, and as much that will not be in between.
    Half(&'a OpenFile, &'a [ByteRange]),
}

/// Hints that are told as others are over.
struct Telling<'a> {
    stream: Hints,
    told: std::slice::Chunks<'a, ByteRange>,
}

impl Telling<'_> {
    /// Tells what will be read, and by turns as much that will not be.
    fn go_on(
        &mut self,
        file: &OpenFile,
        (other, wrong): (&OpenFile, &[ByteRange]),
    ) -> Result<(), BenchError> {
        while self.stream.left() < MOST_TOLD
            && let Some(right) = self.told.next()
        {
            self.stream.add(file, right)?;
            let from = self.told.len() * TURN % wrong.len();
            let to = (from + right.len()).min(wrong.len());
            self.stream.add(other, &wrong[from..to])?;
        }
        Ok(())
    }
}

/// A file that is small and much read.
struct Hot {
    file: OpenFile,
    random: Random,
}

impl Hot {
    /// The drive has all of it in memory.
    fn new(file: OpenFile) -> Result<Hot, BenchError> {
        for offset in (0..HOT_BYTES).step_by(BLOCK_BYTES) {
            read_right(&file, HOT_SEED, offset as u64)?;
        }
        Ok(Hot { file, random: Random(5) })
    }

    fn read(&mut self) -> Result<(), BenchError> {
        let block = self.random.next() as usize % (HOT_BYTES / BLOCK_BYTES);
        read_right(&self.file, HOT_SEED, (block * BLOCK_BYTES) as u64)
    }
}

/// Reads a block of a file, which must be what was written.
fn read_right(file: &OpenFile, seed: usize, offset: u64) -> Result<(), BenchError> {
    let mut block = [0; BLOCK_BYTES];
    let length = file.read(offset, &mut block)?;
    match length == BLOCK_BYTES && block[..8] == word_at(seed, offset as usize) {
        true => Ok(()),
        false => Err(BenchError::WrongData { offset }),
    }
}

/// Eight bytes that tell where they are.
pub(super) fn word_at(seed: usize, offset: usize) -> [u8; 8] {
    Random((seed as u64) << 40 | offset as u64).next().to_le_bytes()
}

/// Bytes of a file: each block of 4 KiB begins with where it is.
fn filled(seed: usize, offset: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![b'v'; length];
    for at in (0..length).step_by(BLOCK_BYTES) {
        let end = (at + 8).min(length);
        bytes[at..end].copy_from_slice(&word_at(seed, offset + at)[..end - at]);
    }
    bytes
}

/// Planes through a cube, drawn without hints and with: how much sooner they are. The limit is how much sooner once more, when the drive
/// has in memory what it has room for.
pub(super) fn slices(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let cell = Prefetched::start(bench, name, "128M")?;
    measure_slices(bench, name, cell, ROUNDS)
}

/// The same from a drive whose device is as slow as a disk.
pub(super) fn slices_of_a_disk(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let cell = Prefetched::start(bench, name, "128M")?;
    // Not while the cube is written.
    measure_slices(bench, name, Prefetched { options: &["--emulate-disk"], ..cell }, 1)
}

/// The same from a drive that has less memory than the cube has bytes.
pub(super) fn slices_of_a_small_cache(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let cell = Prefetched::start(bench, name, "32M")?;
    measure_slices(bench, name, cell, ROUNDS)
}

fn measure_slices(
    bench: &Bench<'_>,
    name: &str,
    mut cell: Prefetched,
    rounds: usize,
) -> Result<Row, BenchError> {
    cell.make("cube", CUBE_BYTES, 0)?;
    cell.client.clerk.sync_all()?;
    let reads = reads_of_slices();
    let (mut plain, mut hinted, mut again) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        cell.forget(bench)?;
        plain.push(cell.read("cube", &reads, Told::Nothing)?);
        cell.forget(bench)?;
        hinted.push(cell.read("cube", &reads, Told::All)?);
        again.push(cell.read("cube", &reads, Told::All)?);
    }
    let (plain, hinted, again) = (median(&mut plain), median(&mut hinted), median(&mut again));
    let limit_name = format!(
        "{} reads of 4 KiB in {plain:.2} s, with hints in {hinted:.2} s, with hints once more in {again:.2} s",
        reads.len()
    );
    Ok(Row::new(name, plain / hinted, "times", plain / again, limit_name))
}

/// Hints that are wrong: how much of the speed without any is left.
pub(super) fn wrong(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let cell = Prefetched::start(bench, name, "64M")?;
    measure_wrong(
        bench,
        name,
        cell,
        &Wrong { are_half_right: false, is_beside: false, rounds: ROUNDS },
    )
}

/// The same from a drive whose device is as slow as a disk, and whose memory another file fits in that is read all the time.
pub(super) fn wrong_of_a_disk(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let wrong = Wrong { are_half_right: false, is_beside: true, rounds: ROUNDS };
    measure_wrong(bench, name, disk_with_room(bench, name)?, &wrong)
}

/// Where every other hint is right: how much of the speed with those alone is left.
pub(super) fn half_wrong_of_a_disk(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let wrong = Wrong { are_half_right: true, is_beside: true, rounds: ROUNDS };
    measure_wrong(bench, name, disk_with_room(bench, name)?, &wrong)
}

/// With room for the cube and what is read beside it, and little else.
fn disk_with_room(bench: &Bench<'_>, name: &str) -> Result<Prefetched, BenchError> {
    let cell = Prefetched::start(bench, name, "96M")?;
    Ok(Prefetched { options: &["--emulate-disk"], ..cell })
}

/// How hints are wrong.
struct Wrong {
    /// As many as are wrong are right.
    are_half_right: bool,
    /// Whether another file is read as well, without hints.
    is_beside: bool,
    rounds: usize,
}

fn measure_wrong(
    bench: &Bench<'_>,
    name: &str,
    mut cell: Prefetched,
    wrong: &Wrong,
) -> Result<Row, BenchError> {
    for (seed, (file, bytes)) in
        [("cube", CUBE_BYTES), ("other", CUBE_BYTES), ("hot", HOT_BYTES)].into_iter().enumerate()
    {
        cell.make(file, bytes, seed)?;
    }
    cell.client.clerk.sync_all()?;
    let reads = reads_of_slices();
    let mut others = reads.clone();
    others.reverse();
    let hot = wrong.is_beside.then_some("hot");
    let (mut plain, mut misled) = (Vec::new(), Vec::new());
    for _ in 0..wrong.rounds {
        cell.forget(bench)?;
        let told = if wrong.are_half_right { Told::All } else { Told::Nothing };
        plain.push(cell.read_beside("cube", &reads, told, hot)?);
        cell.forget(bench)?;
        let other = cell.open("other")?;
        let told = match wrong.are_half_right {
            true => Told::Half(&other, &others),
            false => Told::Others(&other, &others),
        };
        misled.push(cell.read_beside("cube", &reads, told, hot)?);
    }
    let (plain, misled) = (median(&mut plain), median(&mut misled));
    let rate = |seconds: f64| reads.len() as f64 / seconds;
    let limit_name = match wrong.are_half_right {
        true => "the same reads with right hints alone, from a cold drive",
        false => "the same reads without hints, from a cold drive",
    };
    let limit_name = limit_name.to_owned();
    Ok(Row::new(name, rate(misled), "1/s", rate(plain), limit_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plane_goes_through_the_blocks_that_it_goes_through() {
        // Flat: 256 rows of 1 KiB, one after the other.
        let flat = blocks_of_plane([0.0, 0.0, 1.0], [0.0, 0.0, 7.5]);
        assert_eq!(flat, (7 * 64..8 * 64).collect::<Vec<_>>());
        // Of each plane of the cube one row.
        let upright = blocks_of_plane([0.0, 1.0, 0.0], [0.0, 9.5, 0.0]);
        assert_eq!(upright.len(), 256);
        assert!(upright.windows(2).all(|pair| pair[1] == pair[0] + 64));
        // All of them.
        assert_eq!(blocks_of_plane([1.0, 0.0, 0.0], [3.5, 0.0, 0.0]).len(), 64 * 256);
        let reads = reads_of_slices();
        assert!(reads.len() > 25 * 64 && reads.iter().all(|read| read.end() <= CUBE_BYTES as u64));
    }
}
