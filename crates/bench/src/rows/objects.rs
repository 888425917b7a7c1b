//! Rows of whole objects: making, removing and copying them, and opening a drive that has many. No
//! program does these; their limits are what the drive is meant to reach.

use std::collections::VecDeque;
use std::time::Instant;

use nasd_client::{Authority, ClientError, DriveClient, PendingCreate, PendingRemove};
use nasd_types::{ObjectId, ObjectName, PartitionId, Protection, SetAttributes};

use crate::sampling::{Compared, median};
use crate::workload::Bench;
use crate::{BenchError, Row};

/// How often each is measured.
const ROUNDS: usize = 5;
/// Objects that are made or removed in one round.
const OBJECTS: usize = 20_000;
/// Creates or removes in flight on the one connection.
const DEPTH: usize = 128;
/// Creates and removes a second, at least.
const CALLS_A_SECOND: f64 = 20_000.0;
/// Copies of the object in one round.
const COPIES: usize = 5;
/// Requests under way when the object is written anew.
const WRITES_AT_ONCE: usize = 8;
/// Milliseconds that a copy takes, at most.
const COPY_MILLISECONDS: f64 = 20.0;
/// Objects of the drive that is opened.
const MANY: u64 = 2_000_000;
/// Seconds until it serves, at most.
const OPEN_SECONDS: f64 = 5.0;
/// How often it is killed and started.
const OPENS: usize = 3;

fn at_least(calls: f64) -> String {
    format!(
        "the bar: at least {calls:.0} a second; one connection, {DEPTH} in flight, none flushed"
    )
}

/// Makes objects without a flush; the drive writes them back as it likes.
pub(super) fn create(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let compared =
        Compared { name, unit: "1/s", limit_name: at_least(CALLS_A_SECOND), rounds: ROUNDS };
    compared.by_turns(
        || Ok(CALLS_A_SECOND),
        || {
            let start = Instant::now();
            let made = create_many(bench, OBJECTS)?;
            let rate = OBJECTS as f64 / start.elapsed().as_secs_f64();
            // The drive is too small to have those of all rounds.
            remove_many(bench, &made)?;
            Ok(rate)
        },
    )
}

/// Removes objects that were made durable, without a flush.
pub(super) fn remove(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let compared =
        Compared { name, unit: "1/s", limit_name: at_least(CALLS_A_SECOND), rounds: ROUNDS };
    let client = bench.connect(1);
    compared.by_turns(
        || Ok(CALLS_A_SECOND),
        || {
            let made = create_many(bench, OBJECTS)?;
            client.flush_partition(&bench.target.manager, bench.target.object.partition)?;
            let start = Instant::now();
            remove_many(bench, &made)?;
            Ok(OBJECTS as f64 / start.elapsed().as_secs_f64())
        },
    )
}

fn create_many(bench: &Bench<'_>, count: usize) -> Result<Vec<ObjectName>, BenchError> {
    let partition = bench.target.object.partition;
    let made = make_objects(&bench.connect(1), &bench.target.manager, partition, count)?;
    Ok(made.into_iter().map(|object| ObjectName { partition, object }).collect())
}

/// Makes objects, many at a time, and flushes none of them.
///
/// # Errors
///
/// The first that could not be made.
pub fn make_objects(
    client: &DriveClient,
    manager: &Authority,
    partition: PartitionId,
    count: usize,
) -> Result<Vec<ObjectId>, ClientError> {
    let mut made = Vec::with_capacity(count);
    let mut under_way: VecDeque<PendingCreate<'_>> = VecDeque::with_capacity(DEPTH);
    let initial = SetAttributes::default();
    for _ in 0..count {
        if under_way.len() == DEPTH
            && let Some(create) = under_way.pop_front()
        {
            made.push(create.wait()?.object);
        }
        under_way.push_back(client.begin_create(manager, partition, &initial, false));
    }
    for create in under_way {
        made.push(create.wait()?.object);
    }
    Ok(made)
}

fn remove_many(bench: &Bench<'_>, objects: &[ObjectName]) -> Result<(), BenchError> {
    let client = bench.connect(1);
    let mut under_way = VecDeque::with_capacity(DEPTH);
    for &object in objects {
        if under_way.len() == DEPTH
            && let Some(remove) = under_way.pop_front()
        {
            PendingRemove::wait(remove)?;
        }
        under_way.push_back(client.begin_remove(&bench.target.manager, object, false));
    }
    Ok(under_way.into_iter().try_for_each(PendingRemove::wait)?)
}

/// Copies the object, which is 1 GiB, written in sequence. Each copy is durable when it is answered.
pub(super) fn fastcopy(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let (client, manager) = (bench.connect(1), &bench.target.manager);
    let object = bench.target.object;
    // Other rows have scattered it: a copy takes as long as its extents are many.
    bench.write_object(Protection::INTEGRITY_ARGS, WRITES_AT_ONCE)?;
    let limit_name = format!("the bar: at most {COPY_MILLISECONDS:.0} ms; durable when answered");
    Compared { name, unit: "ms", limit_name, rounds: ROUNDS }.by_turns(
        || Ok(COPY_MILLISECONDS),
        || {
            let mut times = Vec::with_capacity(COPIES);
            for _ in 0..COPIES {
                let start = Instant::now();
                let copy = client.fastcopy(manager, object)?.object;
                times.push(start.elapsed().as_secs_f64() * 1e3);
                client.remove(manager, ObjectName { object: copy, ..object }, false)?;
            }
            Ok(median(&mut times))
        },
    )
}

/// From the start of a drive that was killed until it serves.
pub(super) fn open_many(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let limit_name = format!("the bar: at most {OPEN_SECONDS:.0} s after kill -9, {MANY} objects");
    let mut seconds = (bench.target.open_filled)(MANY, OPENS).map_err(BenchError::Restart)?;
    Ok(Row::new(name, median(&mut seconds), "s", OPEN_SECONDS, limit_name))
}
