//! What creates cost one by one and in batches: time of each, over a socket, with a drive in memory or on
//! a file.
//!
//! Usage: `cargo run --release -p nasd-drive --example batch_cost [FILE]`

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use nasd_client::DriveClient;
use nasd_device::{BlockDevice, FileDevice, FileOptions, MemoryDevice};
use nasd_protocol::drive::{BatchArguments, BatchOperation};
use nasd_types::{Protection, SetAttributes};
use support::{Outcome, PARTITION};

const DEVICE_BYTES: u64 = 1 << 30;
const OBJECTS: usize = 256;
const ROUNDS: usize = 20;

fn main() -> Outcome<()> {
    let device: Arc<dyn BlockDevice> = match std::env::args().nth(1) {
        None => Arc::new(MemoryDevice::new(DEVICE_BYTES)?),
        Some(path) => {
            let options = FileOptions { allow_buffered: true, ..FileOptions::default() };
            Arc::new(FileDevice::create(Path::new(&path), DEVICE_BYTES, options)?)
        }
    };
    support::format(Arc::clone(&device))?;
    let server = support::serve(device, 64 << 20, Protection::INTEGRITY_ARGS)?;
    let client = support::connect(&server.address().to_string(), 1);
    for durable in [false, true] {
        let what = if durable { "durable" } else { "in memory" };
        let single = each(|| one_by_one(&client, durable))?;
        println!("{what}: {single:>8.1} us a create, one by one");
        let pipelined = each(|| pipelined(&client, durable))?;
        println!("{what}: {pipelined:>8.1} us a create, {OBJECTS} single calls under way");
        let batched = each(|| batched(&client, durable))?;
        println!("{what}: {batched:>8.1} us a create, in batches of {OBJECTS}");
    }
    Ok(())
}

/// Microseconds of each create.
fn each(mut make: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    make()?;
    let begin = Instant::now();
    for _ in 0..ROUNDS {
        make()?;
    }
    Ok(begin.elapsed().as_secs_f64() * 1e6 / (ROUNDS * OBJECTS) as f64)
}

fn one_by_one(client: &DriveClient, durable: bool) -> Outcome<()> {
    for _ in 0..OBJECTS {
        client.create(&support::manager(), PARTITION, &SetAttributes::default(), durable)?;
    }
    Ok(())
}

fn pipelined(client: &DriveClient, durable: bool) -> Outcome<()> {
    let (manager, initial) = (support::manager(), SetAttributes::default());
    let begin = || client.begin_create(&manager, PARTITION, &initial, durable);
    let pending: Vec<_> = (0..OBJECTS).map(|_| begin()).collect();
    for create in pending {
        create.wait()?;
    }
    Ok(())
}

fn batched(client: &DriveClient, durable: bool) -> Outcome<()> {
    let operations = vec![BatchOperation::Create(SetAttributes::default()); OBJECTS];
    let arguments =
        BatchArguments { partition: PARTITION, durable, with_attributes: false, operations };
    let batched = client.batch(&support::manager(), &arguments)?;
    match batched.outcomes.into_iter().find_map(Result::err) {
        None => Ok(()),
        Some(status) => Err(status.into()),
    }
}
