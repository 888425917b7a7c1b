//! The measured drive, its object, and how it is read and written.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nasd_client::{Authority, ConnectOptions, DriveClient, PendingRead};
use nasd_protocol::manager::IssuedCapability;
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{AuditId, DriveId, ObjectName, Protection};

use crate::{BenchError, Cells, Memory};

/// Length of the object that rows read and write, in bytes.
pub(crate) const OBJECT_BYTES: u64 = 1 << 30;
pub(crate) const MIB: usize = 1 << 20;

/// Starts the drive again, with an empty cache.
pub type Restart = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The most memory that the drive's process had since this was asked last, and the size of its cache.
pub type PeakMemory = Box<dyn Fn() -> Option<Memory> + Send + Sync>;

/// Processor time that the drive's process has taken since it started, in seconds.
pub type CpuSeconds = Box<dyn Fn() -> Option<f64> + Send + Sync>;

/// Another capability for the object that allows the same, told apart by its audit identifier.
pub type Mint = Box<dyn Fn(AuditId) -> IssuedCapability + Send + Sync>;

/// A capability for an object of this access control version that allows to read, write and flush it.
pub type Issue = Box<dyn Fn(ObjectName, u64) -> IssuedCapability + Send + Sync>;

/// Fills another drive with so many objects, kills it and starts it again so many times; the seconds of
/// each start. What it takes counts for `PeakMemory` too.
pub type OpenFilled = Box<dyn Fn(u64, usize) -> Result<Vec<f64>, String> + Send + Sync>;

/// The drive that is measured, and an object of it that the capability allows to read and write.
pub struct Target {
    /// `HOST:PORT`.
    pub address: String,
    /// Which drive it must be.
    pub drive: DriveId,
    /// The object; what it holds is lost.
    pub object: ObjectName,
    /// Allows reading, writing and flushing it with any protection.
    pub capability: IssuedCapability,
    /// May do anything with the objects of its partition.
    pub manager: Authority,
    /// A directory on the disk that holds the drive's device.
    pub directory: PathBuf,
    /// Starts the drive again, with an empty cache, at the same address.
    pub restart: Restart,
    /// Tells what memory a row took.
    pub peak_memory: PeakMemory,
    /// Tells what processor time a row took.
    pub cpu_seconds: CpuSeconds,
    /// Makes more capabilities.
    pub mint: Mint,
    /// Makes capabilities for other objects.
    pub issue: Issue,
    /// Opens a drive with many objects.
    pub open_filled: OpenFilled,
    /// Makes whole cells.
    pub cells: Cells,
}

/// How an object is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) protection: Protection,
    /// Bytes of a request.
    pub(crate) request: usize,
    /// Requests in flight.
    pub(crate) depth: usize,
    /// Connections that they are spread over.
    pub(crate) connections: usize,
    pub(crate) order: Order,
}

/// Which request comes next.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Order {
    /// One after the other, round and round, within so many bytes from an offset.
    Sequential { from: u64, span: u64 },
    /// Each request of the object once, in an order that jumps about.
    Scattered,
}

/// When reading ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    /// After so long.
    Elapsed(Duration),
    /// When so many bytes have been read.
    Bytes(u64),
}

/// What was read, and how long it took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    pub(crate) elapsed: Duration,
}

impl Done {
    pub(crate) fn megabytes_a_second(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64() / 1e6
    }

    pub(crate) fn requests_a_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }
}

impl Order {
    fn offset(self, number: u64, request: usize) -> u64 {
        let request = request as u64;
        match self {
            Order::Sequential { from, span } => from + number % (span / request) * request,
            Order::Scattered => {
                // A linear congruential sequence modulo a power of two meets every number once
                // (Knuth, volume 2, section 3.2.1.2: odd increment, multiplier 1 modulo 4).
                let requests = OBJECT_BYTES / request;
                let (mut at, mut left) = (12_345 % requests, number % requests);
                // The `left`-th power of the step, by squaring.
                let (mut multiplier, mut increment) = (1_664_525_u64, 1_013_904_223_u64);
                while left > 0 {
                    if left & 1 == 1 {
                        at = at.wrapping_mul(multiplier).wrapping_add(increment) % requests;
                    }
                    increment = multiplier.wrapping_add(1).wrapping_mul(increment) % requests;
                    multiplier = multiplier.wrapping_mul(multiplier) % requests;
                    left >>= 1;
                }
                at * request
            }
        }
    }
}

/// What all rows have in common.
pub(crate) struct Bench<'a> {
    pub(crate) target: &'a Target,
    pattern: Vec<u8>,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(target: &'a Target) -> Self {
        Bench { target, pattern: pattern() }
    }

    pub(crate) fn connect(&self, connections: usize) -> DriveClient {
        let options = ConnectOptions { connections, ..ConnectOptions::default() };
        DriveClient::tcp(&self.target.address, Some(self.target.drive), &options)
    }

    pub(crate) fn authority(&self, protection: Protection) -> Authority {
        Authority::capability(&self.target.capability, protection)
    }

    /// Starts the drive again, so that nothing is in its cache.
    pub(crate) fn restart(&self) -> Result<(), BenchError> {
        (self.target.restart)().map_err(BenchError::Restart)
    }

    pub(crate) fn cpu_seconds(&self) -> Option<f64> {
        (self.target.cpu_seconds)()
    }

    /// What the object holds at `offset`; `length` must not go over the end of a MiB.
    pub(crate) fn expected(&self, offset: u64, length: usize) -> &[u8] {
        let within = (offset % MIB as u64) as usize;
        let phase = (offset / MIB as u64) as usize % PHASES;
        &self.pattern[phase + within..][..length]
    }

    /// Reads with one thread and checks that every byte is what was written.
    pub(crate) fn check(&self, reading: &Reading, bytes: u64) -> Result<(), BenchError> {
        self.read_each(reading, Until::Bytes(bytes), |offset, data| {
            let expected = self.expected(offset, data.len());
            match data.iter().zip(expected).position(|(found, expected)| found != expected) {
                None => Ok(()),
                Some(at) => Err(BenchError::WrongData { offset: offset + at as u64 }),
            }
        })
        .map(drop)
    }

    /// Reads with one thread. Only that as much came as was asked for is checked.
    pub(crate) fn read(&self, reading: &Reading, until: Until) -> Result<Done, BenchError> {
        self.read_each(reading, until, |_, _| Ok(()))
    }

    fn read_each(
        &self,
        reading: &Reading,
        until: Until,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), BenchError>,
    ) -> Result<Done, BenchError> {
        let client = self.connect(reading.connections);
        let authority = self.authority(reading.protection);
        let mut buffers: Vec<Vec<u8>> =
            (0..reading.depth).map(|_| vec![0; reading.request]).collect();
        // The first request of each connection makes it, and is not measured.
        for _ in 0..reading.connections {
            client.read(&authority, self.target.object, 0, &mut [0; 1])?;
        }
        let mut under_way = VecDeque::with_capacity(reading.depth);
        let (mut begun, mut requests, mut is_over) = (0, 0, false);
        let start = Instant::now();
        loop {
            while !is_over && let Some(buffer) = buffers.pop() {
                let offset = reading.order.offset(begun, reading.request);
                let read = client.begin_read(&authority, self.target.object, offset, buffer);
                under_way.push_back((offset, read));
                begun += 1;
                is_over = until.is_over(start, begun, reading.request);
            }
            if under_way.is_empty() {
                break;
            }
            for (offset, read) in take_done(&mut under_way) {
                let (outcome, buffer) = read.wait();
                if outcome?.length != reading.request {
                    return Err(BenchError::WrongData { offset });
                }
                each(offset, &buffer)?;
                requests += 1;
                buffers.push(buffer);
            }
        }
        let bytes = requests * reading.request as u64;
        Ok(Done { requests, bytes, elapsed: start.elapsed() })
    }

    /// Writes the whole object in requests of 1 MiB, `depth` at a time, and flushes it; MB/s.
    pub(crate) fn write_object(
        &self,
        protection: Protection,
        depth: usize,
    ) -> Result<f64, BenchError> {
        let client = self.connect(2);
        let authority = self.authority(protection);
        client.read(&authority, self.target.object, 0, &mut [0; 1])?;
        let next = AtomicU64::new(0);
        let start = Instant::now();
        in_parallel(depth, |_| {
            loop {
                let offset = next.fetch_add(MIB as u64, Ordering::Relaxed);
                if offset >= OBJECT_BYTES {
                    return Ok(());
                }
                let data = self.expected(offset, MIB);
                client.write(&authority, self.target.object, offset, data, false)?;
            }
        })?;
        let ObjectName { partition, object } = self.target.object;
        client.flush(&authority, partition, &[object])?;
        Ok(OBJECT_BYTES as f64 / start.elapsed().as_secs_f64() / 1e6)
    }

    /// Overwrites single blocks within `span` bytes, each with what it held, and makes each
    /// durable before the next: by a flush, or by the write itself. Durable writes a second.
    pub(crate) fn write_durably(
        &self,
        clients: usize,
        span: u64,
        in_one_call: bool,
        duration: Duration,
    ) -> Result<f64, BenchError> {
        let written = AtomicU64::new(0);
        let ObjectName { partition, object } = self.target.object;
        let connected: Vec<DriveClient> = (0..clients).map(|_| self.connect(1)).collect();
        let authority = self.authority(Protection::INTEGRITY_ARGS);
        for client in &connected {
            client.read(&authority, self.target.object, 0, &mut [0; 1])?;
        }
        let start = Instant::now();
        in_parallel(clients, |number| {
            let client = &connected[number];
            let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number as u64 + 1);
            while start.elapsed() < duration {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let offset = (random >> 20) % (span / BLOCK_BYTES as u64) * BLOCK_BYTES as u64;
                let data = self.expected(offset, BLOCK_BYTES);
                client.write(&authority, self.target.object, offset, data, in_one_call)?;
                if !in_one_call {
                    client.flush(&authority, partition, &[object])?;
                }
                written.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        })?;
        Ok(written.into_inner() as f64 / start.elapsed().as_secs_f64())
    }
}

impl Until {
    fn is_over(self, start: Instant, begun: u64, request: usize) -> bool {
        match self {
            Until::Bytes(bytes) => begun * request as u64 >= bytes,
            // Of small requests, not for each: reading the clock would show.
            Until::Elapsed(_) if request < MIB / 16 && !begun.is_multiple_of(16) => false,
            Until::Elapsed(duration) => start.elapsed() >= duration,
        }
    }
}

/// Runs `work` on so many threads and returns the first error.
pub(crate) fn in_parallel(
    threads: usize,
    work: impl Fn(usize) -> Result<(), BenchError> + Sync,
) -> Result<(), BenchError> {
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> =
            (0..threads).map(|number| scope.spawn(move || work(number))).collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

/// Different requests start at different places of the pattern, so that a mix-up shows.
const PHASES: usize = 251;

/// Reads under way, with their offsets.
type UnderWay<'a> = VecDeque<(u64, PendingRead<'a>)>;

/// Takes out reads that are done, at least one of those there are: in order as long as the oldest are
/// done first, otherwise whichever are.
fn take_done<'a>(under_way: &mut UnderWay<'a>) -> Vec<(u64, PendingRead<'a>)> {
    let mut done = Vec::new();
    while done.is_empty() && !under_way.is_empty() {
        while under_way.front_mut().is_some_and(|(_, read)| read.is_done()) {
            done.extend(under_way.pop_front());
        }
        let Some((_, oldest)) = under_way.front_mut().filter(|_| done.is_empty()) else {
            break;
        };
        oldest.wait_for_some();
        if !oldest.is_done() {
            // Others are, which may be anywhere among them.
            done.extend(std::iter::from_fn(|| {
                let index = under_way.iter_mut().position(|(_, read)| read.is_done())?;
                under_way.swap_remove_back(index)
            }));
        }
    }
    done
}

fn pattern() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..MIB + PHASES)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scattered_requests_meet_every_place_once() {
        let request = 1 << 16;
        let requests = OBJECT_BYTES / request as u64;
        let mut seen = vec![false; requests as usize];
        let mut neighbours = 0;
        for number in 0..requests {
            let offset = Order::Scattered.offset(number, request);
            let place = (offset / request as u64) as usize;
            assert!(!std::mem::replace(&mut seen[place], true), "{place} twice");
            let next = Order::Scattered.offset(number + 1, request);
            neighbours += u64::from(next == offset + request as u64);
        }
        assert!(neighbours < requests / 100, "{neighbours} requests follow one another");
    }

    #[test]
    fn sequential_requests_go_round_within_their_span() {
        let order = Order::Sequential { from: 100, span: 30 };
        let offsets: Vec<u64> = (0..5).map(|number| order.offset(number, 10)).collect();
        assert_eq!(offsets, [100, 110, 120, 100, 110]);
    }
}
