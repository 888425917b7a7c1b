//! How fast a drive answers cached reads over loopback TCP, beside iperf3 in the same run.
//!
//! Usage: `read_speed [OBJECT_MIB] [SECONDS] [REQUEST_KIB] [none|args|data]`

use std::error::Error;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nasd_capability::{Capability, SecretKey, capability_key};
use nasd_client::{Authority, ConnectOptions, DriveClient};
use nasd_device::{BlockDevice, MemoryDevice};
use nasd_drive::{Drive, DriveOptions, DriveServer, Environment};
use nasd_protocol::CredentialKey;
use nasd_store::{FormatOptions, OpenOptions, PartitionFormat, Store, StoredKey};
use nasd_types::{
    AuditId, ByteRange, CellId, DriveId, ObjectName, PartitionId, Protection, Rights,
    SetAttributes, Timestamp,
};

const DRIVE: DriveId = DriveId(1);
const PARTITION: PartitionId = PartitionId(1);
const WORKING_KEY: [u8; 32] = [3; 32];
const IPERF_PORT: &str = "5981";

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What is measured.
struct Plan {
    object_bytes: u64,
    request_bytes: usize,
    duration: Duration,
    protection: Protection,
}

impl Plan {
    fn from_arguments() -> Outcome<Plan> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let number = |index: usize, default: u64| match arguments.get(index) {
            Some(text) => text.parse(),
            None => Ok(default),
        };
        let protection = match arguments.get(3).map_or("args", String::as_str) {
            "none" => Protection::NONE,
            "args" => Protection::INTEGRITY_ARGS,
            "data" => Protection::SUPPORTED,
            other => return Err(format!("no protection is called {other}").into()),
        };
        Ok(Plan {
            object_bytes: number(0, 1024)? << 20,
            duration: Duration::from_secs(number(1, 3)?),
            request_bytes: (number(2, 1024)? as usize) << 10,
            protection,
        })
    }
}

fn main() -> Outcome<()> {
    let plan = Plan::from_arguments()?;
    let server = start_drive(&plan)?;
    let address = server.address().to_string();
    let client = connect(&address, 1);
    let secret = SecretKey::new(WORKING_KEY);
    let manager = Authority::working_key(PARTITION, secret, Protection::INTEGRITY_ARGS);
    let created = client.create(&manager, PARTITION, &SetAttributes::default(), false)?;
    let name = ObjectName { partition: PARTITION, object: created.object };
    let authority = capability_for(name, created.attributes.access_control_version, &plan);
    fill(&client, &authority, name, &plan, "write")?;
    fill(&client, &authority, name, &plan, "write once more")?;

    let mut limits = [0.0; 3];
    for streams in [1, 2] {
        limits[streams] = iperf(streams, plan.duration);
        println!("iperf3, {streams} streams: {:.2} GB/s", limits[streams]);
    }
    for (connections, threads) in [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 4)] {
        let speed = read(&address, &authority, name, &plan, connections, threads)?;
        let limit = limits[connections.min(threads)];
        println!(
            "read, {connections} connections, {threads} threads: {speed:.2} GB/s, \
             {:.2} of iperf3",
            speed / limit
        );
    }
    println!("iperf3, 1 stream again: {:.2} GB/s", iperf(1, plan.duration));
    server.shut_down(Duration::from_secs(5))?;
    Ok(())
}

fn start_drive(plan: &Plan) -> Outcome<DriveServer> {
    let device: Arc<dyn BlockDevice> =
        Arc::new(MemoryDevice::new(plan.object_bytes * 5 / 4 + (256 << 20))?);
    let partition = PartitionFormat {
        id: PARTITION,
        quota_bytes: u64::MAX,
        partition_key: StoredKey::new([2; 32]),
        working_key: StoredKey::new(WORKING_KEY),
        key_epoch: 1,
    };
    let format = FormatOptions {
        drive: DRIVE,
        cell: CellId([1; 16]),
        master_key: None,
        log_key: 0x6c6f_676b,
        drive_key: StoredKey::new([1; 32]),
        partitions: vec![partition],
        metadata_bytes: None,
        now: Timestamp(1),
    };
    Store::format(Arc::clone(&device), &format)?;
    let open = OpenOptions {
        cache_bytes: plan.object_bytes as usize * 3 / 2 + (64 << 20),
        ..OpenOptions::default()
    };
    let store = Store::open(device, &open)?;
    let minimum_protection = plan.protection & Protection::INTEGRITY_ARGS;
    let options = DriveOptions { minimum_protection, ..DriveOptions::default() };
    let drive = Drive::new(store, options, Environment::system())?;
    Ok(DriveServer::start(drive, TcpListener::bind("127.0.0.1:0")?)?)
}

fn connect(address: &str, connections: usize) -> DriveClient {
    let options = ConnectOptions { connections, ..ConnectOptions::default() };
    DriveClient::tcp(address, Some(DRIVE), &options)
}

/// As the file manager would mint it.
fn capability_for(name: ObjectName, version: u64, plan: &Plan) -> Authority {
    let capability = Capability {
        drive: DRIVE,
        partition: name.partition,
        object: name.object,
        region: ByteRange::ALL,
        rights: Rights::READ | Rights::WRITE | Rights::FLUSH,
        expires: Timestamp::MAX,
        audit_id: AuditId(1),
        minimum_protection: plan.protection & Protection::INTEGRITY_ARGS,
        key_epoch: 1,
    };
    let secret = capability_key(&SecretKey::new(WORKING_KEY), &capability, version);
    Authority::new(CredentialKey::Capability(capability), secret, plan.protection)
}

fn fill(
    client: &DriveClient,
    authority: &Authority,
    name: ObjectName,
    plan: &Plan,
    what: &str,
) -> Outcome<()> {
    let data: Vec<u8> = (0..plan.request_bytes as u32).map(|index| (index >> 3) as u8).collect();
    let begin = Instant::now();
    for offset in (0..plan.object_bytes).step_by(plan.request_bytes) {
        client.write(authority, name, offset, &data, false)?;
    }
    let written = begin.elapsed();
    client.flush(authority, PARTITION, &[name.object])?;
    let speed = |elapsed: Duration| plan.object_bytes as f64 / elapsed.as_secs_f64() / 1e9;
    println!(
        "{what}, 1 connection, 1 thread: {:.2} GB/s, with the flush {:.2} GB/s",
        speed(written),
        speed(begin.elapsed())
    );
    Ok(())
}

/// Reads the whole object over and over; each thread its own part of the requests. GB/s.
fn read(
    address: &str,
    authority: &Authority,
    name: ObjectName,
    plan: &Plan,
    connections: usize,
    threads: usize,
) -> Outcome<f64> {
    let client = connect(address, connections);
    let requests = plan.object_bytes / plan.request_bytes as u64;
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let begin = Instant::now();
    let work = || -> Outcome<u64> {
        let mut into = vec![0; plan.request_bytes];
        let mut bytes = 0;
        while !stop.load(Ordering::Relaxed) {
            let request = next.fetch_add(1, Ordering::Relaxed) % requests;
            let offset = request * plan.request_bytes as u64;
            bytes += client.read(authority, name, offset, &mut into)?.length as u64;
        }
        Ok(bytes)
    };
    let bytes = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        std::thread::sleep(plan.duration);
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap_or(Ok(0))).sum::<Outcome<u64>>()
    })?;
    Ok(bytes as f64 / begin.elapsed().as_secs_f64() / 1e9)
}

/// What iperf3 reaches, in GB/s; not a number if it can't be run.
fn iperf(streams: usize, duration: Duration) -> f64 {
    let run = || -> Outcome<f64> {
        let mut server = Command::new("iperf3")
            .args(["-s", "-1", "-p", IPERF_PORT])
            .stdout(Stdio::null())
            .spawn()?;
        std::thread::sleep(Duration::from_millis(300));
        let output = Command::new("iperf3")
            .args(["-c", "127.0.0.1", "-p", IPERF_PORT, "-J"])
            .args(["-t", &duration.as_secs().to_string(), "-P", &streams.to_string()])
            .output()?;
        server.wait()?;
        let text = String::from_utf8(output.stdout)?;
        let sum = text.find("\"sum_received\"").ok_or("iperf3 says nothing")?;
        let field = "\"bits_per_second\":";
        let at = sum + text[sum..].find(field).ok_or("iperf3 measured nothing")? + field.len();
        let number = text[at..].split([',', '}']).next().unwrap_or_default().trim();
        Ok(number.parse::<f64>()? / 8e9)
    };
    run().unwrap_or_else(|error| {
        eprintln!("iperf3: {error}");
        f64::NAN
    })
}
