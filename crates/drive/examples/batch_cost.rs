//! What creates cost one by one and in batches: time of each, over a socket, with a drive in memory or on
//! a file.
//!
//! Usage: `cargo run --release -p nasd-drive --example batch_cost [FILE]`

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nasd_client::DriveClient;
use nasd_device::{BlockDevice, FileDevice, FileOptions, MemoryDevice};
use nasd_protocol::drive::{BatchArguments, BatchOperation};
use nasd_types::{ObjectId, Protection, SetAttributes};
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
        let single = each(&client, || one_by_one(&client, durable))?;
        println!("{what}: {single:>8.1} us a create, one by one");
        let pipelined = each(&client, || pipelined(&client, durable))?;
        println!("{what}: {pipelined:>8.1} us a create, {OBJECTS} single calls under way");
        let batched = each(&client, || {
            batch(
                &client,
                vec![BatchOperation::Create(None, SetAttributes::default()); OBJECTS],
                durable,
            )
        })?;
        println!("{what}: {batched:>8.1} us a create, in batches of {OBJECTS}");
    }
    Ok(())
}

/// Microseconds of each create. What was made is removed between the rounds.
fn each(client: &DriveClient, mut make: impl FnMut() -> Outcome<Vec<ObjectId>>) -> Outcome<f64> {
    let mut taken = Duration::ZERO;
    for round in 0..=ROUNDS {
        let begin = Instant::now();
        let made = make()?;
        if round > 0 {
            taken += begin.elapsed();
        }
        let removes = made.into_iter().map(BatchOperation::Remove).collect();
        batch(client, removes, true)?;
    }
    Ok(taken.as_secs_f64() * 1e6 / (ROUNDS * OBJECTS) as f64)
}

fn batch(
    client: &DriveClient,
    operations: Vec<BatchOperation>,
    durable: bool,
) -> Outcome<Vec<ObjectId>> {
    let arguments =
        BatchArguments { partition: PARTITION, durable, with_attributes: false, operations };
    let outcomes = client.batch(&support::manager(), &arguments)?.outcomes;
    outcomes.into_iter().map(|outcome| Ok(outcome?.object)).collect()
}

fn one_by_one(client: &DriveClient, durable: bool) -> Outcome<Vec<ObjectId>> {
    let (manager, initial) = (support::manager(), SetAttributes::default());
    let make = |_| Ok(client.create(&manager, PARTITION, &initial, durable)?.object);
    (0..OBJECTS).map(make).collect()
}

fn pipelined(client: &DriveClient, durable: bool) -> Outcome<Vec<ObjectId>> {
    let (manager, initial) = (support::manager(), SetAttributes::default());
    let begin = || client.begin_create(&manager, PARTITION, &initial, durable);
    let pending: Vec<_> = (0..OBJECTS).map(|_| begin()).collect();
    pending.into_iter().map(|create| Ok(create.wait()?.object)).collect()
}
