//! How many cached 4 KiB reads a second a drive answers on one connection, by how many are under
//! way; and how long one takes alone.
//!
//! Usage: `small_read [SECONDS] [none|args|data] [DEPTH...]`. Good to look at with
//! `perf record -g`: the drive's threads are named `nasd-server`.

mod support;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nasd_client::{Authority, DriveClient};
use nasd_device::MemoryDevice;
use nasd_types::{ObjectName, Protection};
use support::Outcome;

const REQUEST: usize = 4096;
const OBJECT: u64 = 4 << 20;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seconds = arguments.first().map_or(Ok(1.0), |text| text.parse())?;
    let protection = match arguments.get(1).map_or("args", String::as_str) {
        "none" => Protection::NONE,
        "args" => Protection::INTEGRITY_ARGS,
        "data" => Protection::INTEGRITY_ARGS | Protection::INTEGRITY_DATA,
        other => return Err(format!("no protection is called {other}").into()),
    };
    let depths: Vec<usize> =
        arguments.iter().skip(2).map(|text| text.parse()).collect::<Result<_, _>>()?;
    let depths = if depths.is_empty() { vec![1, 4, 16, 64, 256] } else { depths };

    let device = Arc::new(MemoryDevice::new(1 << 30)?);
    support::format(device.clone())?;
    let minimum = protection & Protection::INTEGRITY_ARGS;
    let server = support::serve(device, 64 << 20, minimum)?;
    let client = support::connect(&server.address().to_string(), 1);
    let (name, authority) = support::create(&client, protection)?;
    client.write(&authority, name, 0, &vec![7; OBJECT as usize], false)?;
    for depth in depths {
        let duration = Duration::from_secs_f64(seconds);
        let rate = read(&client, &authority, name, depth, duration)?;
        let each = 1e6 / rate;
        println!("depth {depth:>3}: {rate:>9.0} reads/s, {each:.2} us each");
    }
    server.shut_down(Duration::from_secs(5))?;
    Ok(())
}

fn read(
    client: &DriveClient,
    authority: &Authority,
    name: ObjectName,
    depth: usize,
    duration: Duration,
) -> Outcome<f64> {
    let mut under_way = VecDeque::with_capacity(depth);
    let mut buffers: Vec<Vec<u8>> = (0..depth).map(|_| vec![0; REQUEST]).collect();
    let begin = Instant::now();
    let mut reads = 0_u64;
    while begin.elapsed() < duration || !under_way.is_empty() {
        while let Some(buffer) = buffers.pop() {
            let offset = reads * REQUEST as u64 % OBJECT;
            under_way.push_back(client.begin_read(authority, name, offset, buffer));
            reads += 1;
        }
        let Some(read) = under_way.pop_front() else { break };
        let (outcome, buffer) = read.wait();
        assert_eq!(outcome?.length, REQUEST);
        if begin.elapsed() < duration {
            buffers.push(buffer);
        }
    }
    Ok(reads as f64 / begin.elapsed().as_secs_f64())
}
