//! Measures batches through a deep queue against plain calls one after the other, on one file.
//!
//!     cargo run --release -p nasd-device --example queue -- /tmp/queue-test [MiB]
//!
//! The file is made, written once in full, and removed. Compare with, for instance,
//!
//!     fio --name=x --filename=/tmp/fio-test --size=1G --direct=1 --ioengine=io_uring \
//!         --rw=randread --bs=4k --iodepth=32 --runtime=5 --time_based

use std::error::Error;
use std::io::{IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

use nasd_device::{
    AlignedBuffer, BlockDevice, FileDevice, FileOptions, Queue, ReadRequest, WriteRequest,
};

const MIB: usize = 1 << 20;
/// How long one figure is measured.
const PERIOD: Duration = Duration::from_millis(1500);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("which file may I make?")?;
    let mib: usize = arguments.next().map_or(Ok(1024), |text| text.parse())?;
    prepare(&path, mib)?;
    let measured = measure(&path);
    std::fs::remove_file(&path)?;
    measured?;
    println!("first writes of a preallocated file, 64 KiB x 8:");
    for queue in [Queue::Plain, Queue::Uring] {
        let rate = first_writes(&path, mib, queue);
        std::fs::remove_file(&path)?;
        println!("{queue:?}: {:.0} MB/s", rate? * 65536.0 / 1e6);
    }
    Ok(())
}

/// Blocks that were never written cost more at their first write; that is not measured here.
fn prepare(path: &str, mib: usize) -> Result<(), Box<dyn Error>> {
    let device = FileDevice::create(path, (mib * MIB) as u64, FileOptions::default())?;
    let mut buffer = AlignedBuffer::zeroed(MIB);
    buffer.fill(0xa5);
    for at in 0..mib {
        device.write((at * MIB) as u64, &[IoSlice::new(&buffer)])?;
    }
    Ok(device.sync()?)
}

/// Every block once, from the first to the last.
fn first_writes(path: &str, mib: usize, queue: Queue) -> Measured {
    let options = FileOptions { queue, ..FileOptions::default() };
    let device = FileDevice::create(path, (mib * MIB) as u64, options)?;
    let mut at = consecutive(&device, 64 << 10);
    let memory = AlignedBuffer::zeroed(MIB / 2);
    let start = Instant::now();
    for _ in 0..mib * 2 {
        device.write_batch(&write_requests(&memory, 64 << 10, &mut at))?;
    }
    Ok((mib * 16) as f64 / start.elapsed().as_secs_f64())
}

fn measure(path: &str) -> Result<(), Box<dyn Error>> {
    println!("{:<28} {:>12} {:>12} {:>7}", "", "plain", "ring", "ratio");
    type Row = (&'static str, usize, usize, fn(&FileDevice, usize, usize) -> Measured);
    let rows: [Row; 18] = [
        ("random read 4 KiB x 1", 4096, 1, random_reads),
        ("random read 4 KiB x 2", 4096, 2, random_reads),
        ("random read 4 KiB x 4", 4096, 4, random_reads),
        ("random read 4 KiB x 8", 4096, 8, random_reads),
        ("random read 4 KiB x 32", 4096, 32, random_reads),
        ("random read 4 KiB x 256", 4096, 256, random_reads),
        ("random read 64 KiB x 8", 64 << 10, 8, random_reads),
        ("random write 4 KiB x 1", 4096, 1, random_writes),
        ("random write 4 KiB x 2", 4096, 2, random_writes),
        ("random write 4 KiB x 3", 4096, 3, random_writes),
        ("random write 4 KiB x 4", 4096, 4, random_writes),
        ("random write 4 KiB x 8", 4096, 8, random_writes),
        ("random write 4 KiB x 32", 4096, 32, random_writes),
        ("sequential read 1 MiB x 1", MIB, 1, sequential_reads),
        ("sequential read 1 MiB x 8", MIB, 8, sequential_reads),
        ("sequential read 8 MiB x 1", 8 * MIB, 1, sequential_reads),
        ("sequential write 1 MiB x 8", MIB, 8, sequential_writes),
        ("sequential write 8 MiB x 1", 8 * MIB, 1, sequential_writes),
    ];
    for (name, bytes, count, run) in rows {
        let mut figures = Vec::new();
        for queue in [Queue::Plain, Queue::Uring] {
            let device = FileDevice::open(path, FileOptions { queue, ..FileOptions::default() })?;
            figures.push(run(&device, bytes, count)?);
        }
        let (text, unit): (Vec<String>, _) = if bytes < MIB {
            (figures.iter().map(|rate| format!("{rate:.0}")).collect(), "requests/s")
        } else {
            let megabytes = bytes as f64 / 1e6;
            (figures.iter().map(|rate| format!("{:.0}", rate * megabytes)).collect(), "MB/s")
        };
        let ratio = figures[1] / figures[0];
        println!("{name:<28} {:>12} {:>12} {ratio:>7.2} {unit}", text[0], text[1]);
    }
    for queue in [Queue::Plain, Queue::Uring] {
        let device = FileDevice::open(path, FileOptions { queue, ..FileOptions::default() })?;
        overlapped(&device)?;
    }
    Ok(())
}

/// Requests a second.
type Measured = Result<f64, Box<dyn Error>>;

fn repeat(count: usize, mut batch: impl FnMut() -> Result<(), Box<dyn Error>>) -> Measured {
    let start = Instant::now();
    let mut requests = 0;
    while start.elapsed() < PERIOD {
        batch()?;
        requests += count;
    }
    Ok(requests as f64 / start.elapsed().as_secs_f64())
}

/// Offsets all over the device, the same in each run.
fn scattered(device: &FileDevice, bytes: usize) -> impl FnMut() -> u64 {
    let places = device.capacity() / bytes as u64;
    let mut state = 1u64;
    move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % places * bytes as u64
    }
}

/// Offsets one behind the other, around the end of the device.
fn consecutive(device: &FileDevice, bytes: usize) -> impl FnMut() -> u64 {
    let places = device.capacity() / bytes as u64;
    let mut next = 0;
    move || {
        next += 1;
        (next - 1) % places * bytes as u64
    }
}

fn reads(device: &FileDevice, bytes: usize, count: usize, at: &mut dyn FnMut() -> u64) -> Measured {
    let mut memory = AlignedBuffer::zeroed(bytes * count);
    repeat(count, || {
        let mut requests: Vec<ReadRequest<'_>> = memory
            .chunks_mut(bytes)
            .map(|chunk| ReadRequest { offset: at(), into: vec![IoSliceMut::new(chunk)] })
            .collect();
        Ok(device.read_batch(&mut requests)?)
    })
}

fn writes(
    device: &FileDevice,
    bytes: usize,
    count: usize,
    at: &mut dyn FnMut() -> u64,
) -> Measured {
    let memory = AlignedBuffer::zeroed(bytes * count);
    repeat(count, || Ok(device.write_batch(&write_requests(&memory, bytes, at))?))
}

fn write_requests<'m>(
    memory: &'m [u8],
    bytes: usize,
    at: &mut dyn FnMut() -> u64,
) -> Vec<WriteRequest<'m>> {
    memory
        .chunks(bytes)
        .map(|chunk| WriteRequest { offset: at(), from: vec![IoSlice::new(chunk)] })
        .collect()
}

fn random_reads(device: &FileDevice, bytes: usize, count: usize) -> Measured {
    reads(device, bytes, count, &mut scattered(device, bytes))
}

fn random_writes(device: &FileDevice, bytes: usize, count: usize) -> Measured {
    writes(device, bytes, count, &mut scattered(device, bytes))
}

fn sequential_reads(device: &FileDevice, bytes: usize, count: usize) -> Measured {
    reads(device, bytes, count, &mut consecutive(device, bytes))
}

fn sequential_writes(device: &FileDevice, bytes: usize, count: usize) -> Measured {
    writes(device, bytes, count, &mut consecutive(device, bytes))
}

/// Writes of 64 KiB and, meanwhile, 100 us of computing.
fn overlapped(device: &FileDevice) -> Result<(), Box<dyn Error>> {
    let memory = AlignedBuffer::zeroed(MIB / 2);
    let mut at = scattered(device, 64 << 10);
    let compute = || {
        let start = Instant::now();
        while start.elapsed() < Duration::from_micros(100) {
            std::hint::spin_loop();
        }
    };
    println!("{device:?}:");
    for count in [1, 8] {
        let memory = &memory[..count * (64 << 10)];
        let alone =
            repeat(1, || Ok(device.write_batch(&write_requests(memory, 64 << 10, &mut at))?))?;
        let both = repeat(1, || {
            let requests = write_requests(memory, 64 << 10, &mut at);
            Ok(device.write_batch_with(&requests, &mut |_| compute())?)
        })?;
        println!(
            "    {count} writes of 64 KiB take {:.0} us, with 100 us of computing {:.0} us",
            1e6 / alone,
            1e6 / both
        );
    }
    Ok(())
}
