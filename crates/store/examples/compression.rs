//! What compression costs and saves:
//! `cargo run --release -p nasd-store --example compression -- FILE`.
//!
//! Makes FILE (512 MiB) and removes it at the end. For text and for noise, with each codec: writes an
//! object of 128 MiB a MiB at a time and flushes it every 16 MiB, reads it from an empty cache a MiB
//! at a time, and then 4 KiB here and there from an empty cache.

mod support;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use nasd_device::{BlockDevice, FileDevice, FileOptions};
use nasd_store::{FormatOptions, OpenOptions, PartitionSettings, Store, WriteData};
use nasd_types::{ByteRange, Compression, ObjectName, PartitionId, SetAttributes, Timestamp};

const MIB: u64 = 1 << 20;
const FILE_BYTES: u64 = 512 * MIB;
const OBJECT_MIB: u64 = 128;
const SMALL_READS: u64 = 2000;
const PARTITION: PartitionId = PartitionId(1);

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let path = std::env::args().nth(1).ok_or("usage: compression FILE")?;
    let options = FileOptions { allow_buffered: true, ..FileOptions::default() };
    // `create` refuses a file that exists, so what is removed below was made here.
    let device: Arc<dyn BlockDevice> =
        Arc::new(FileDevice::create(Path::new(&path), FILE_BYTES, options)?);
    println!("{device:?}");
    let outcome = rows(&device);
    std::fs::remove_file(path)?;
    outcome
}

fn rows(device: &Arc<dyn BlockDevice>) -> Outcome<()> {
    println!("contents codec   write+flush   cold read   cold 4 KiB reads   blocks used");
    for (name, contents) in [("text", text()), ("noise", noise())] {
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            // Once before it counts, so that the file's blocks are there.
            let _ = row(device, compression, &contents)?;
            let [write, read, small, blocks] = row(device, compression, &contents)?;
            let codec = format!("{compression:?}");
            println!(
                "{name:8} {codec:6} {write:6.0} MB/s {read:8.0} MB/s {small:13.1} us {blocks:13.0}"
            );
        }
    }
    Ok(())
}

/// A MiB of lines such as programs log.
fn text() -> Vec<u8> {
    let mut random = 1u64;
    let mut bytes = Vec::with_capacity(2 * MIB as usize);
    while bytes.len() < MIB as usize {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (number, kind) = (random >> 40, (random >> 33) % 4);
        let what = ["read", "write", "flush", "setattr"][kind as usize];
        let line = format!(
            "2026-01-05T12:{:02} drive {what} object {number:x} took {} us\n",
            number % 60,
            number % 997
        );
        bytes.extend(line.bytes());
    }
    bytes.truncate(MIB as usize);
    bytes
}

fn noise() -> Vec<u8> {
    let mut random = 1u64;
    let mut byte = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 56) as u8
    };
    (0..MIB).map(|_| byte()).collect()
}

fn format_options() -> Outcome<FormatOptions> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    // Entries of the drive that was there before must not look like its own.
    Ok(support::format_options(PARTITION, since.as_nanos() as u64))
}

/// MB/s written and read, microseconds for a small read, blocks used.
fn row(
    device: &Arc<dyn BlockDevice>,
    compression: Compression,
    contents: &[u8],
) -> Outcome<[f64; 4]> {
    Store::format(device.clone(), &format_options()?)?;
    let store = Store::open(device.clone(), &OpenOptions::default())?;
    let settings = PartitionSettings { compression, ..PartitionSettings::default() };
    store.set_partition_settings(PARTITION, settings)?;
    let (object, _) = store.create(PARTITION, &SetAttributes::default(), Timestamp(2))?;
    let object = ObjectName { partition: PARTITION, object };
    let megabytes = (OBJECT_MIB * MIB) as f64 / 1e6;

    let start = Instant::now();
    for index in 0..OBJECT_MIB {
        store.write(object, index * MIB, WriteData::Slice(contents), Timestamp(3))?;
        if index % 16 == 15 {
            store.flush(&[object])?;
        }
    }
    let write = megabytes / start.elapsed().as_secs_f64();
    store.close()?;

    let store = Store::open(device.clone(), &OpenOptions::default())?;
    let start = Instant::now();
    for index in 0..OBJECT_MIB {
        let read = store.read(object, ByteRange::new(index * MIB, MIB))?;
        if read.len() as u64 != MIB {
            return Err("a short read".into());
        }
    }
    let read = megabytes / start.elapsed().as_secs_f64();
    let blocks = store.getattr(object)?.blocks_used as f64;
    drop(store);

    let store = Store::open(device.clone(), &OpenOptions::default())?;
    let start = Instant::now();
    for index in 0..SMALL_READS {
        let block = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (OBJECT_MIB * MIB / 4096);
        store.read(object, ByteRange::new(block * 4096, 4096))?;
    }
    let small = start.elapsed().as_secs_f64() * 1e6 / SMALL_READS as f64;
    Ok([write, read, small, blocks])
}
