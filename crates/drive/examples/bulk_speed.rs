//! Where the time of a short file goes by way of the bulk service, cold:
//! `cargo run --release -p nasd-drive --example bulk_speed -- DIRECTORY [FILE_BYTES [BLOCK_BYTES [DEPTH]]]`; and how fast one of 1 GiB is
//! written and made durable: `... -- DIRECTORY write [DEPTH [BLOCK_BYTES]]`. DEPTH is how many blocks are asked for, or sent, at a
//! time.

use std::error::Error;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nasd_bulk_service::client::{BulkFile, Opening};
use nasd_capability::{Capability, SecretKey, capability_key};
use nasd_client::Authority;
use nasd_device::{FileDevice, FileOptions};
use nasd_drive::{Drive, DriveOptions, DriveServer, Environment};
use nasd_protocol::bulk::Options;
use nasd_protocol::manager::IssuedCapability;
use nasd_store::{FormatOptions, OpenOptions, PartitionFormat, Store, StoredKey};
use nasd_types::{
    AuditId, ByteRange, CellId, DriveId, ObjectName, PartitionId, Protection, Rights,
    SetAttributes, Timestamp,
};

const DRIVE: DriveId = DriveId(7);
const PARTITION: PartitionId = PartitionId(1);
const KEY: [u8; 32] = [3; 32];
/// Bytes of all files together.
const ALL_BYTES: usize = 300 << 20;

fn format(path: &Path) -> Result<(), Box<dyn Error>> {
    let device = Arc::new(FileDevice::create(path, 3 << 30, FileOptions::default())?);
    let partition = PartitionFormat {
        id: PARTITION,
        quota_bytes: u64::MAX,
        partition_key: StoredKey::new(KEY),
        working_key: StoredKey::new(KEY),
        key_epoch: 1,
    };
    let options = FormatOptions {
        drive: DRIVE,
        cell: CellId([1; 16]),
        master_key: None,
        log_key: 1,
        drive_key: StoredKey::new(KEY),
        partitions: vec![partition],
        metadata_bytes: None,
        now: Timestamp(1),
    };
    Store::format(device, &options)?;
    Ok(())
}

fn serve(path: &Path) -> Result<DriveServer, Box<dyn Error>> {
    let device = Arc::new(FileDevice::open(path, FileOptions::default())?);
    let open = OpenOptions { cache_bytes: 512 << 20, ..OpenOptions::default() };
    let store = Store::open(device, &open)?;
    let drive = Drive::new(store, DriveOptions::default(), Environment::system())?;
    Ok(DriveServer::start(drive, TcpListener::bind("127.0.0.1:0")?)?)
}

fn opening(server: &DriveServer, name: ObjectName, block: usize, options: Options) -> Opening {
    let capability = Capability {
        drive: DRIVE,
        partition: PARTITION,
        object: name.object,
        region: ByteRange::ALL,
        rights: Rights::all(),
        expires: Timestamp::MAX,
        audit_id: AuditId(0),
        minimum_protection: Protection::INTEGRITY_ARGS,
        key_epoch: 1,
    };
    let key = capability_key(&SecretKey::new(KEY), &capability, 0);
    let issued = IssuedCapability { capability, key, sealed: None };
    Opening {
        address: server.address().to_string(),
        authority: Authority::capability(&issued, Protection::INTEGRITY_ARGS),
        place: Vec::new(),
        options,
        block: block as u64,
        durable: true,
        patience: Duration::from_secs(10),
        clock_ahead_ns: 0,
    }
}

/// Writes an object several times, so many blocks at a time.
fn write(server: &DriveServer, depth: usize, block: usize) -> Result<(), Box<dyn Error>> {
    const BYTES: u64 = 1 << 30;
    let store = server.drive().store();
    for _ in 0..4 {
        let initial = SetAttributes::default();
        let (object, _) = store.create(PARTITION, &initial, server.drive().now())?;
        let name = ObjectName { partition: PARTITION, object };
        let file = BulkFile::open(opening(server, name, 0, Options::WRITE))?;
        let mut spare: Vec<Vec<u8>> = (0..depth).map(|seed| vec![seed as u8; block]).collect();
        let (mut queue, mut offset, begun) = (file.queue::<Vec<u8>>(), 0, Instant::now());
        while offset < BYTES {
            let buffer = match spare.pop() {
                Some(buffer) => buffer,
                None => {
                    let done = queue.wait().ok_or("nothing is under way")?;
                    done.outcome?;
                    done.buffer
                }
            };
            queue.write(offset, buffer);
            offset += block as u64;
        }
        while let Some(done) = queue.wait() {
            done.outcome?;
        }
        queue.sync()?;
        let speed = BYTES as f64 / begun.elapsed().as_secs_f64() / 1e6;
        println!("{depth} under way: {speed:.0} MB/s");
        store.remove(name)?;
        store.flush_all()?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("in which directory?")?;
    let mut arguments = arguments.peekable();
    if arguments.next_if(|word| word == "write").is_some() {
        let mut number = |or: usize| arguments.next().map_or(Ok(or), |text| text.parse());
        let (depth, block) = (number(4)?, number(3 << 19)?);
        let path = Path::new(&directory).join("bulk-speed.img");
        format(&path)?;
        write(&serve(&path)?, depth, block)?;
        return Ok(std::fs::remove_file(&path)?);
    }
    let bytes: usize = arguments.next().map_or(Ok(3_000_000), |text| text.parse())?;
    let block: usize = arguments.next().map_or(Ok(3 << 19), |text| text.parse())?;
    let depth: usize = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let path = Path::new(&directory).join("bulk-speed.img");
    format(&path)?;
    let server = serve(&path)?;
    let data: Vec<u8> = (0..bytes).map(|at| (at * at / 7) as u8).collect();
    let mut names = Vec::new();
    for _ in 0..(ALL_BYTES / bytes).max(1) {
        let initial = SetAttributes::default();
        let store = server.drive().store();
        let (object, _) = store.create(PARTITION, &initial, server.drive().now())?;
        let name = ObjectName { partition: PARTITION, object };
        BulkFile::open(opening(&server, name, 0, Options::WRITE))?.write_at(&data, 0)?;
        names.push(name);
    }
    server.shut_down(Duration::from_secs(5))?;
    let server = serve(&path)?;
    std::thread::sleep(Duration::from_secs(2));
    let (mut opened, mut first, mut rest) = (0.0, 0.0, 0.0);
    // Not zeros: their memory is had before the clock starts.
    let mut spare: Vec<Vec<u8>> = (0..depth).map(|_| vec![1; block]).collect();
    for name in &names {
        let begun = Instant::now();
        let file = BulkFile::open(opening(&server, *name, block, Options::READ))?;
        opened += begun.elapsed().as_secs_f64();
        let (mut queue, mut offset, mut at) = (file.queue::<Vec<u8>>(), 0, Instant::now());
        let mut is_first = true;
        loop {
            while offset < bytes
                && let Some(buffer) = spare.pop()
            {
                queue.read(offset as u64, buffer);
                offset += block;
            }
            let Some(done) = queue.wait() else { break };
            done.outcome?;
            spare.push(done.buffer);
            let taken = at.elapsed().as_secs_f64();
            if std::mem::take(&mut is_first) {
                first += taken
            } else {
                rest += taken
            }
            at = Instant::now();
        }
    }
    let count = names.len() as f64;
    let [opened, first, rest] = [opened, first, rest].map(|seconds| seconds / count * 1e3);
    let speed = bytes as f64 / (opened + first + rest) / 1e3;
    println!("open {opened:.2} ms, first read {first:.2}, others {rest:.2}: {speed:.0} MB/s");
    drop(server);
    std::fs::remove_file(&path)?;
    Ok(())
}
