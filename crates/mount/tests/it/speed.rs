//! How fast a mount is over a cell in memory, to see what the mount itself costs:
//! `cargo test --release -p nasd-mount --test it -- --ignored --nocapture speed`.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use nasd_mount::DataPath;

use crate::world::{Random, World, pattern};

const BYTES: usize = 256 << 20;

fn rate(what: &str, bytes: usize, elapsed: Duration) {
    println!("{what:32} {:8.0} MB/s", bytes as f64 / 1e6 / elapsed.as_secs_f64());
}

fn count(what: &str, operations: u32, elapsed: Duration) {
    println!("{what:32} {:8.1} us", elapsed.as_secs_f64() * 1e6 / f64::from(operations));
}

fn write(world: &World, data: &[u8]) -> Duration {
    let begun = Instant::now();
    let mut file = File::create(world.path("big")).unwrap();
    for part in data.chunks(1 << 20) {
        file.write_all(part).unwrap();
    }
    drop(file);
    begun.elapsed()
}

fn read(world: &World) -> Duration {
    let begun = Instant::now();
    let mut file = File::open(world.path("big")).unwrap();
    let mut bytes = vec![0; 1 << 20];
    while file.read(&mut bytes).unwrap() > 0 {}
    begun.elapsed()
}

fn small_reads(world: &World) -> Duration {
    let file = File::open(world.path("big")).unwrap();
    let mut random = Random(1);
    let mut bytes = [0; 4096];
    let begun = Instant::now();
    for _ in 0..10_000 {
        let block = random.below(BYTES as u64 / 4096);
        file.read_exact_at(&mut bytes, block * 4096).unwrap();
    }
    begun.elapsed()
}

/// The same without the mount, for comparison.
fn small_clerk_reads(world: &World) -> Duration {
    let caller = std::sync::Arc::new(nasd_clerk::Caller::default());
    let mode = nasd_clerk::OpenMode::READ;
    let (file, _) = world.clerk.open(&caller, world.handle("big"), mode).unwrap();
    let mut random = Random(1);
    let mut bytes = [0; 4096];
    let begun = Instant::now();
    for _ in 0..10_000 {
        let block = random.below(BYTES as u64 / 4096);
        file.read(block * 4096, &mut bytes).unwrap();
    }
    begun.elapsed()
}

#[test]
#[ignore = "measures"]
fn speed() {
    let world = World::new();
    let data = pattern(1, BYTES);
    rate("write and close, page cache", BYTES, write(&world, &data));
    let other = world.beside();
    count("4 KiB random read, page cache", 10_000, small_reads(&other));
    let other = world.beside();
    count("the same by the clerk alone", 10_000, small_clerk_reads(&other));
    rate("first read, page cache", BYTES, read(&other));
    rate("second read, page cache", BYTES, read(&other));
    let direct = World::on(&world.cell, |options| options.data_path = DataPath::Direct);
    rate("write and close, direct", BYTES, write(&direct, &data));
    rate("read, direct", BYTES, read(&direct));
    count("4 KiB random read, direct", 10_000, small_reads(&direct));
    let begun = Instant::now();
    for number in 0..2000 {
        fs::write(world.path(&format!("f{number}")), b"small").unwrap();
    }
    count("make, write and close a file", 2000, begun.elapsed());
    let begun = Instant::now();
    for number in 0..2000 {
        fs::read(world.path(&format!("f{number}"))).unwrap();
    }
    count("open and read a file", 2000, begun.elapsed());
    std::thread::sleep(Duration::from_millis(1100));
    let begun = Instant::now();
    for number in 0..2000 {
        fs::metadata(world.path(&format!("f{number}"))).unwrap();
    }
    count("stat, not remembered", 2000, begun.elapsed());
    let begun = Instant::now();
    for number in 0..2000 {
        fs::remove_file(world.path(&format!("f{number}"))).unwrap();
    }
    count("remove a file", 2000, begun.elapsed());
}
