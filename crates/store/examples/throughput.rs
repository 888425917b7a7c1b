//! What the store costs beside its device, on one file or block device given by name:
//! `cargo run --release -p nasd-store --example throughput -- FILE [--yes]`.
//!
//! A file that does not exist is made (1.5 GiB), filled, and removed afterwards. One that exists, or
//! a block device, is overwritten, which takes `--yes`. Each row is measured right after the plain
//! transfer of the same shape that it is compared with.

use std::error::Error;
use std::io::{IoSlice, IoSliceMut, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nasd_device::{BlockDevice, FileDevice, FileOptions, Frame, FramePool};
use nasd_store::{FormatOptions, OpenOptions, PartitionFormat, Store, StoredKey, WriteData};
use nasd_types::{ByteRange, CellId, DriveId, ObjectName, PartitionId, SetAttributes, Timestamp};

const MIB: u64 = 1 << 20;
const FILE_BYTES: u64 = 1536 * MIB;
const TRANSFERS: u64 = 512;
const SMALL: u64 = 1000;
const PARTITION: PartitionId = PartitionId(1);

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, rest @ ..] = &arguments[..] else {
        return Err("usage: throughput FILE [--yes]".into());
    };
    let path = Path::new(file);
    let existed = path.exists();
    if existed && rest != ["--yes"] {
        return Err(format!("{file} exists and would be overwritten; add --yes").into());
    }
    let outcome = run(path, existed);
    if !existed {
        std::fs::remove_file(path)?;
    }
    outcome
}

fn run(path: &Path, existed: bool) -> Outcome<()> {
    let options = FileOptions {
        allow_buffered: true,
    };
    let device = if existed {
        FileDevice::open(path, options)?
    } else {
        FileDevice::create(path, FILE_BYTES, options)?
    };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{device:?}")?;
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let pool = FramePool::new(16)?;
    let mut frames = pool.allocate_many(16).ok_or("no frames")?;
    frames
        .iter_mut()
        .enumerate()
        .for_each(|(index, frame)| frame.fill(index as u8 + 1));
    // Blocks written for the first time cost a file system more than the store is to blame for.
    for offset in (0..device.capacity().min(FILE_BYTES) / MIB).map(|index| index * MIB) {
        write_plain(&*device, offset, &frames)?;
    }
    device.sync()?;
    plain_rows(&*device, &mut frames, &mut out)?;
    store_rows(device, &mut out)
}

fn write_plain(device: &dyn BlockDevice, offset: u64, frames: &[Frame]) -> Outcome<()> {
    let pieces: Vec<IoSlice<'_>> = frames
        .iter()
        .map(|frame| IoSlice::new(&frame[..]))
        .collect();
    Ok(device.write(offset, &pieces)?)
}

fn read_plain(device: &dyn BlockDevice, offset: u64, frames: &mut [Frame]) -> Outcome<()> {
    let mut pieces: Vec<IoSliceMut<'_>> = frames
        .iter_mut()
        .map(|frame| IoSliceMut::new(&mut frame[..]))
        .collect();
    Ok(device.read(offset, &mut pieces)?)
}

fn row(out: &mut impl Write, name: &str, bytes: u64, count: u64, took: Duration) -> Outcome<()> {
    let speed = (bytes * count) as f64 / took.as_secs_f64() / 1e6;
    let each = took.as_secs_f64() * 1e6 / count as f64;
    Ok(writeln!(
        out,
        "{name:42} {speed:9.0} MB/s {each:9.1} us each"
    )?)
}

fn timed(mut step: impl FnMut(u64) -> Outcome<()>, count: u64) -> Outcome<Duration> {
    let start = Instant::now();
    (0..count).try_for_each(&mut step)?;
    Ok(start.elapsed())
}

fn plain_rows(device: &dyn BlockDevice, frames: &mut [Frame], out: &mut impl Write) -> Outcome<()> {
    let took = timed(|index| write_plain(device, index * MIB, frames), TRANSFERS)?;
    row(out, "device: write 1 MiB", MIB, TRANSFERS, took)?;
    let took = timed(
        |index| {
            write_plain(device, index * MIB, frames)?;
            Ok(device.sync()?)
        },
        TRANSFERS,
    )?;
    row(out, "device: write 1 MiB and sync", MIB, TRANSFERS, took)?;
    let took = timed(|index| read_plain(device, index * MIB, frames), TRANSFERS)?;
    row(out, "device: read 1 MiB", MIB, TRANSFERS, took)?;
    let took = timed(
        |index| {
            device.write(index * 4096, &[IoSlice::new(&frames[0][..4096])])?;
            Ok(device.sync()?)
        },
        SMALL,
    )?;
    row(out, "device: write 4 KiB and sync", 4096, SMALL, took)?;
    let took = timed(
        |index| {
            let offset = scattered(index) * 4096;
            Ok(device.read(offset, &mut [IoSliceMut::new(&mut frames[0][..4096])])?)
        },
        SMALL,
    )?;
    row(out, "device: read 4 KiB, scattered", 4096, SMALL, took)
}

/// A block of the first 512 MiB, far from the one before.
fn scattered(index: u64) -> u64 {
    index.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (TRANSFERS * MIB / 4096)
}

fn options() -> (FormatOptions, OpenOptions) {
    let key = StoredKey::new([7; 32]);
    let partition = PartitionFormat {
        id: PARTITION,
        quota_bytes: u64::MAX,
        partition_key: key.clone(),
        working_key: key.clone(),
        key_epoch: 1,
    };
    let format = FormatOptions {
        drive: DriveId(1),
        cell: CellId([1; 16]),
        drive_key: key,
        partitions: vec![partition],
        metadata_bytes: None,
        now: Timestamp(1),
    };
    (
        format,
        OpenOptions {
            cache_bytes: 256 << 20,
            ..OpenOptions::default()
        },
    )
}

fn create(store: &Store) -> Outcome<ObjectName> {
    let (object, _) = store.create(PARTITION, &SetAttributes::default(), Timestamp(2))?;
    Ok(ObjectName {
        partition: PARTITION,
        object,
    })
}

/// Writes a MiB as a server does: received in place.
fn write_mib(store: &Store, object: ObjectName, index: u64) -> Outcome<()> {
    let mut incoming = store.frames_for_write(index * MIB, MIB as usize)?;
    // What a socket would have put there, at no more than one touch of each page.
    for piece in &mut incoming.io_slices_mut() {
        piece[0] = index as u8;
    }
    store.write(
        object,
        index * MIB,
        WriteData::Frames(incoming),
        Timestamp(3),
    )?;
    Ok(())
}

fn store_rows(device: Arc<dyn BlockDevice>, out: &mut impl Write) -> Outcome<()> {
    let (format, open) = options();
    Store::format(device.clone(), &format)?;
    let store = Store::open(device.clone(), &open)?;
    let object = create(&store)?;
    let start = Instant::now();
    (0..TRANSFERS).try_for_each(|index| write_mib(&store, object, index))?;
    store.flush(&[object])?;
    row(
        out,
        "store: write 1 MiB, one flush at the end",
        MIB,
        TRANSFERS,
        start.elapsed(),
    )?;
    let second = create(&store)?;
    let took = timed(
        |index| {
            write_mib(&store, second, index)?;
            Ok(store.flush(&[second])?)
        },
        TRANSFERS / 2,
    )?;
    row(
        out,
        "store: write 1 MiB and flush",
        MIB,
        TRANSFERS / 2,
        took,
    )?;
    store.close()?;

    let store = Store::open(device.clone(), &open)?;
    let read = |object, offset, length| -> Outcome<()> {
        let data = store.read(object, ByteRange::new(offset, length))?;
        if data.len() as u64 == length {
            Ok(())
        } else {
            Err("a short read".into())
        }
    };
    let took = timed(|index| read(object, index * MIB, MIB), TRANSFERS)?;
    row(out, "store: read 1 MiB, cold", MIB, TRANSFERS, took)?;
    (0..2).try_for_each(|_| (0..64).try_for_each(|index| read(object, index * MIB, MIB)))?;
    let took = timed(|index| read(object, index % 64 * MIB, MIB), 50_000)?;
    row(out, "store: read 1 MiB, cached", MIB, 50_000, took)?;
    let took = timed(|index| read(object, index % 16_384 * 4096, 4096), 500_000)?;
    row(out, "store: read 4 KiB, cached", 4096, 500_000, took)?;
    drop(store);

    let store = Store::open(device, &open)?;
    let took = timed(
        |index| {
            store.read(object, ByteRange::new(scattered(index) * 4096, 4096))?;
            Ok(())
        },
        SMALL,
    )?;
    row(
        out,
        "store: read 4 KiB, scattered and cold",
        4096,
        SMALL,
        took,
    )?;
    let small = create(&store)?;
    let bytes = [5; 4096];
    let took = timed(
        |index| {
            store.write(small, index * 4096, WriteData::Slice(&bytes), Timestamp(4))?;
            Ok(store.flush(&[small])?)
        },
        SMALL,
    )?;
    row(out, "store: write 4 KiB and flush", 4096, SMALL, took)?;
    let took = timed(
        |index| {
            let offset = index % 16 * 4096;
            store.write(small, offset, WriteData::Slice(&bytes), Timestamp(4))?;
            Ok(())
        },
        200_000,
    )?;
    row(out, "store: write 4 KiB, cached", 4096, 200_000, took)?;
    let took = timed(|_| create(&store).map(|_: ObjectName| ()), 5000)?;
    row(out, "store: create", 0, 5000, took)?;
    Ok(store.close()?)
}
