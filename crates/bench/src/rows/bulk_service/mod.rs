//! Rows of the bulk service: files of either back end, read and written by one connection and by several.

mod homes;
mod in_step;
mod preloaded;

use std::time::Instant;

use nasd_bulk_service::client::{BulkError, BulkFile, Queue, block_of, is_short};
use nasd_protocol::bulk::Options;

pub(super) use self::homes::OF_A_DIRECTORY;
use self::homes::{Home, Made};
pub(super) use self::in_step::play;
pub(super) use self::preloaded::read_by_program;

use crate::limits::disk::{DiskFile, Shape, Sync};
use crate::limits::tcp::tcp_streams;
use crate::sampling::Compared;
use crate::workload::{Bench, MIB, in_parallel};
use crate::{BenchError, Row};

/// Bytes of a request, as in the paper.
const BLOCK: usize = 3 * MIB / 2;
/// Requests of the large file: one after the other.
const ONE_BY_ONE: (usize, usize) = (BLOCK, 1);
/// The same beside short ones: the next request is there when a block was sent.
const LARGE_SHAPE: (usize, usize) = (BLOCK, 2);
/// Bytes that `nasd bulk get` reads at a time.
const GET_BYTES: usize = 4 * MIB;
/// Each of these has its place in the file in front.
const PAGE: usize = 4096;
/// The large file.
const FILE_BYTES: u64 = 4 << 30;
/// How often value and limit are measured, by turns.
const ROUNDS: usize = 5;
/// Requests in flight of `fio`.
const DISK_DEPTH: usize = 8;
/// Writes in flight.
const WRITE_DEPTH: usize = 16;
/// The large file beside short ones.
const LARGE_BYTES: u64 = 1_000_000_000;
/// Bytes that are read of files of one length altogether.
const SMALL_BYTES: u64 = 512 << 20;

fn failed(error: BulkError) -> BenchError {
    let source = std::io::Error::other(error);
    BenchError::Io { action: "the bulk service failed a measured request", source }
}

/// A file of that length, whose contents do not compress, and tell of each page where it is.
fn made<'b>(home: &'b Home<'b>, number: usize, bytes: u64) -> Result<Made<'b>, BenchError> {
    let made = home.make(number)?;
    write(&made, bytes)?;
    Ok(made)
}

/// Writes so many bytes, and makes them durable; MB/s.
fn write(made: &Made<'_>, bytes: u64) -> Result<f64, BenchError> {
    let buffers = (0..WRITE_DEPTH).map(|number| noise(number as u64, BLOCK)).collect();
    let begun = Instant::now();
    let file = BulkFile::open(made.opening(Options::WRITE, 0)?).map_err(failed)?;
    let mut queue = file.queue::<Vec<u8>>();
    let mut spare: Vec<Vec<u8>> = buffers;
    let mut offset = 0;
    while offset < bytes || queue.under_way() > 0 {
        let wanted = usize::try_from(bytes - offset).unwrap_or(BLOCK).min(BLOCK);
        match spare.pop() {
            Some(mut buffer) if wanted > 0 => {
                // What ends within a sector is cut behind it.
                buffer.truncate(wanted.next_multiple_of(file.alignment() as usize));
                mark(&mut buffer, offset);
                queue.write(offset, buffer);
                offset += wanted as u64;
            }
            _ => spare.extend(waited_for(&mut queue)?),
        }
    }
    queue.sync().map_err(failed)?;
    drop(queue);
    if !bytes.is_multiple_of(file.alignment()) {
        file.set_size(bytes).map_err(failed)?;
    }
    Ok(bytes as f64 / begun.elapsed().as_secs_f64() / 1e6)
}

fn waited_for(queue: &mut Queue<'_, Vec<u8>>) -> Result<Option<Vec<u8>>, BenchError> {
    let Some(done) = queue.wait() else { return Ok(None) };
    done.outcome.map_err(failed)?;
    Ok(Some(done.buffer))
}

/// Reads a part from its first byte to its last, so many blocks of a length under way; from before the open on, in seconds.
fn read(
    made: &Made<'_>,
    (from, to): (u64, u64),
    (block, depth): (usize, usize),
) -> Result<f64, BenchError> {
    // Not of zeros, which take memory only when something is received into them.
    let mut spare: Vec<Vec<u8>> = (0..depth).map(|_| vec![1; block]).collect();
    let begun = Instant::now();
    // What is told at the open is that the file is read from its beginning on.
    let told = if from == 0 { block as u64 } else { 0 };
    let file = BulkFile::open(made.opening(Options::READ, told)?).map_err(failed)?;
    let (mut queue, mut offset) = (file.queue::<Vec<u8>>(), from);
    loop {
        while offset < to
            && let Some(buffer) = spare.pop()
        {
            queue.read(offset, buffer);
            offset += block as u64;
        }
        let Some(done) = queue.wait() else { break };
        let length = done.outcome.map_err(failed)?;
        let wanted = (file.size_at_open() - done.offset).min(block as u64);
        check(&done.buffer[..length], done.offset)?;
        if length as u64 != wanted {
            return Err(BenchError::WrongData { offset: done.offset + length as u64 });
        }
        spare.push(done.buffer);
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// Reads a short file over one connection, as `nasd bulk get` does up to 8 MiB and `nasd bulk get FILE -` up to 32; from before the
/// open on, in seconds.
fn get(made: &Made<'_>, bytes: u64, memory: &mut [u8]) -> Result<f64, BenchError> {
    let begun = Instant::now();
    let block = block_of(bytes, memory.len() as u64);
    let file = BulkFile::open(made.opening(Options::READ, block)?).map_err(failed)?;
    for offset in (0..bytes).step_by(memory.len()) {
        let wanted = usize::try_from(bytes - offset).unwrap_or(usize::MAX).min(memory.len());
        let room = wanted.next_multiple_of(file.alignment() as usize);
        let length = file.read_at(&mut memory[..room], offset).map_err(failed)?;
        check(&memory[..length], offset)?;
        if length != wanted {
            return Err(BenchError::WrongData { offset: offset + length as u64 });
        }
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// Puts its place in front of each page of a block that goes there.
fn mark(block: &mut [u8], offset: u64) {
    for (place, page) in (offset..).step_by(PAGE).zip(block.chunks_mut(PAGE)) {
        let place = place.to_le_bytes();
        let length = page.len().min(place.len());
        page[..length].copy_from_slice(&place[..length]);
    }
}

/// Whether a block that was read from there has what was written: there is some, and each page is at its place. All of
/// it is not compared, as the processor that it takes would be that of the transfer.
fn check(block: &[u8], offset: u64) -> Result<(), BenchError> {
    let first = offset.next_multiple_of(PAGE as u64);
    let whole = block.get((first - offset) as usize..).unwrap_or_default();
    let mut pages = (first..).step_by(PAGE).zip(whole.chunks(PAGE));
    let is_wrong = |(place, page): (u64, &[u8])| {
        let place = place.to_le_bytes();
        let length = page.len().min(place.len());
        page[..length] != place[..length]
    };
    match block.is_empty() || pages.any(is_wrong) {
        true => Err(BenchError::WrongData { offset }),
        false => Ok(()),
    }
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2) + 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// The smaller one of what TCP and the device can do.
fn least(file: &DiskFile, pattern: &'static str) -> Result<f64, BenchError> {
    let sync = if pattern == "write" { Sync::AtEnd } else { Sync::Never };
    let shape = Shape { pattern, block: BLOCK, depth: DISK_DEPTH, sync, seconds: None };
    Ok(tcp_streams(1, 1)?.min(file.measure(&shape)?.megabytes))
}

/// The whole file once, from no memory.
pub(super) fn cold_read(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let home = Home::of(bench, name)?;
    let made = &made(&home, 0, FILE_BYTES)?;
    let file = DiskFile::new(&bench.target.directory, FILE_BYTES);
    let limit_name =
        format!("the least of iperf3 and fio, O_DIRECT reads of 1.5 MiB, depth {DISK_DEPTH}");
    Compared { name, unit: "MB/s", limit_name, rounds: ROUNDS }.by_turns(
        || least(&file, "read"),
        || {
            home.forget()?;
            Ok(FILE_BYTES as f64 / read(made, (0, FILE_BYTES), ONE_BY_ONE)? / 1e6)
        },
    )
}

/// The whole file, durable.
pub(super) fn durable_write(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let home = Home::of(bench, name)?;
    // Where `fio` writes was written before, since blocks that never were cost the file system extra work:
    // so it is here. A file is the same one, and objects are other ones at places of those before.
    let first = made(&home, 0, FILE_BYTES)?;
    let kept = matches!(home, Home::Directory(_)).then_some(first);
    let file = DiskFile::new(&bench.target.directory, FILE_BYTES);
    let limit_name = format!(
        "the least of iperf3 and fio, O_DIRECT writes of 1.5 MiB, depth {DISK_DEPTH}, one fsync at the end"
    );
    Compared { name, unit: "MB/s", limit_name, rounds: ROUNDS }.by_turns(
        || least(&file, "write"),
        || match &kept {
            Some(made) => write(made, FILE_BYTES),
            None => write(&home.make(0)?, FILE_BYTES),
        },
    )
}

/// Clients that read a part of the file each, beside one that reads all of it.
pub(super) fn several(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let clients: u64 = if name.ends_with("x2") { 2 } else { 3 };
    let home = Home::of(bench, name)?;
    let made = &made(&home, 0, FILE_BYTES)?;
    // Of whole blocks, but for the end.
    let part = (FILE_BYTES / clients).next_multiple_of(BLOCK as u64);
    let limit_name = "one client".to_owned();
    Compared { name, unit: "MB/s", limit_name, rounds: ROUNDS }.by_turns(
        || {
            home.forget()?;
            Ok(FILE_BYTES as f64 / read(made, (0, FILE_BYTES), ONE_BY_ONE)? / 1e6)
        },
        || {
            home.forget()?;
            let begun = Instant::now();
            in_parallel(clients as usize, |client| {
                let from = client as u64 * part;
                read(made, (from, (from + part).min(FILE_BYTES)), ONE_BY_ONE).map(drop)
            })?;
            Ok(FILE_BYTES as f64 / begun.elapsed().as_secs_f64() / 1e6)
        },
    )
}

/// Files of a length, each from before its open to its last byte, beside a large one.
pub(super) fn by_size(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let number = name.rsplit('-').next().and_then(|word| word.strip_suffix("mb"));
    let megabytes: u64 = number.and_then(|number| number.parse().ok()).unwrap_or(1);
    let bytes = megabytes * 1_000_000;
    let count = SMALL_BYTES.div_ceil(bytes);
    let home = Home::of(bench, name)?;
    let files = (0..count as usize).map(|number| made(&home, number, bytes));
    let files = files.collect::<Result<Vec<_>, _>>()?;
    let large = made(&home, files.len(), LARGE_BYTES)?;
    // Not of zeros, which take memory only when something is received into them.
    let mut memory = vec![1; GET_BYTES];
    let limit_name = "a file of 1 GB".to_owned();
    Compared { name, unit: "MB/s", limit_name, rounds: ROUNDS }.by_turns(
        || {
            home.forget()?;
            Ok(LARGE_BYTES as f64 / read(&large, (0, LARGE_BYTES), LARGE_SHAPE)? / 1e6)
        },
        || {
            home.forget()?;
            let mut seconds = 0.0;
            for file in &files {
                seconds += match is_short(bytes) {
                    true => get(file, bytes, &mut memory)?,
                    false => read(file, (0, bytes), LARGE_SHAPE)?,
                };
            }
            Ok((count * bytes) as f64 / seconds / 1e6)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_not_at_its_place_is_seen() {
        let mut block = noise(1, 3 * PAGE + 5);
        mark(&mut block, 12 * PAGE as u64);
        check(&block, 12 * PAGE as u64).unwrap();
        assert!(check(&block, 13 * PAGE as u64).is_err());
        check(&block[5..], 12 * PAGE as u64 + 5).unwrap();
        assert!(check(&block[5..], 13 * PAGE as u64 + 5).is_err());
        assert!(check(&[], 0).is_err());
        block.copy_within(PAGE..2 * PAGE, 2 * PAGE);
        assert!(check(&block, 12 * PAGE as u64).is_err());
    }
}
