//! A device that charges what a disk with an arm would, for tests and measurements of layouts.
//!
//! Every transfer costs a seek that depends on the distance, the wait until the place comes round
//! under the head, and its bytes at the rate of the medium. The disk knows some commands at a time,
//! of however many threads and queues of reads, and serves next the one that the head gets to soonest;
//! one that has waited long comes earlier than it would.
//!
//! The time is simulated: it is added to a clock of the device's own, the same in every run for
//! the same sequence of calls. A queue's reads are then served when somebody waits. On request the time
//! passes really as well: then reads of queues go on by themselves, as does the turning of the platters.
//!
//! The model leaves out what does not matter for layouts: zones (the rate is the same everywhere),
//! heads and cylinders (an offset is an angle and a distance), and a write cache (a write costs
//! its mechanical time at once). A transfer that starts where the last one ended goes on without
//! a wait, as a disk's look-ahead buffer has it; after a sync it does not, since by then the place
//! has gone by. A sync is a command like others, which the head need not move for.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use crate::arm::{Disk, Place};
use crate::seek_reads::SeekReads;
use crate::{BlockDevice, DeviceError, Meanwhile, ReadQueue, ReadRequest, WriteRequest};

/// Of all commands of one call.
const TICKET: usize = 0;

/// What the mechanics of a disk cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeekModel {
    /// One turn of the platters; half of it is the mean wait for a place.
    pub revolution: Duration,
    /// Seek to the next track.
    pub shortest_seek: Duration,
    /// Seek over the whole capacity. In between, the time goes with the root of the distance: the
    /// arm speeds up half of the way and slows down the other half.
    pub longest_seek: Duration,
    /// Bytes a second that pass under the head.
    pub bytes_per_second: u64,
    /// What each transfer and each sync costs besides: command, controller, interface.
    pub overhead: Duration,
    /// Whether a batch is given to the disk in the order of its offsets, upwards from the head and then
    /// once more from the lowest (as the elevators of kernels do), or as it is.
    pub elevator: bool,
    /// How many commands the disk knows at a time, to choose the next from. Others wait in the order
    /// in which they came; with 1, all are served in that order.
    pub commands: usize,
    /// Whether time passes really, besides being counted: whoever waits for a transfer sleeps.
    pub sleeps: bool,
}

impl SeekModel {
    /// A 3.5 inch disk of 7200 turns a minute, about as they come: a turn
    /// 8.33 ms, seeks from 0.8 to 15.5 ms (8.6 ms in the mean over random places), 200 MB/s, and 32
    /// commands at a time, as with native command queueing.
    pub const DISK_7200: SeekModel = SeekModel {
        revolution: Duration::from_nanos(8_333_333),
        shortest_seek: Duration::from_micros(800),
        longest_seek: Duration::from_micros(15_500),
        bytes_per_second: 200_000_000,
        overhead: Duration::from_micros(100),
        elevator: true,
        commands: 32,
        sleeps: false,
    };

    /// The same model, with time that passes really.
    #[must_use]
    pub const fn sleeping(self) -> SeekModel {
        SeekModel { sleeps: true, ..self }
    }
}

impl Default for SeekModel {
    fn default() -> SeekModel {
        SeekModel::DISK_7200
    }
}

/// What was done so far, and what it cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeekStatistics {
    /// Transfers that were done; each request of a batch counts, and each part of a queue's read.
    pub transfers: u64,
    /// Those of them that did not start where the last one had ended.
    pub seeks: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Syncs that were done.
    pub syncs: u64,
    /// Time of the arm.
    pub seeking: Duration,
    /// Time until a place came round.
    pub turning: Duration,
    /// Time in which bytes passed.
    pub transferring: Duration,
    /// Everything else.
    pub overhead: Duration,
}

impl SeekStatistics {
    /// All of the time together.
    pub fn elapsed(&self) -> Duration {
        self.seeking + self.turning + self.transferring + self.overhead
    }
}

/// A device behind an arm. What it refuses or fails to do takes no time, unless it is a read of a queue
/// or a write of a batch that the arm has begun.
pub struct SeekingDevice<D> {
    inner: D,
    disk: Disk,
}

impl<D: BlockDevice> SeekingDevice<D> {
    /// Puts `inner` behind an arm that stands at its first byte.
    pub fn new(inner: D, model: SeekModel) -> SeekingDevice<D> {
        let disk = Disk::new(model, inner.capacity());
        SeekingDevice { inner, disk }
    }

    /// The device that keeps the bytes.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Simulated time that the device has been busy.
    pub fn elapsed(&self) -> Duration {
        self.statistics().elapsed()
    }

    /// What was done so far, and what it cost.
    pub fn statistics(&self) -> SeekStatistics {
        self.disk.statistics()
    }

    /// Lets the bytes be transferred and then the time pass that it takes, counted from before.
    fn charge(
        &self,
        places: Vec<Place>,
        transfer: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let came = self.disk.now();
        transfer()?;
        let mut commands = self.disk.commands();
        commands.transfer_batch(TICKET, places, came);
        commands.ended(usize::MAX);
        Ok(())
    }
}

pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// `value * times / of`, which fits when `times <= of`; `of` 0 counts as 1.
fn fraction(value: u64, times: u64, of: u64) -> u64 {
    let result = u128::from(value) * u128::from(times) / u128::from(of.max(1));
    u64::try_from(result).unwrap_or(u64::MAX)
}

impl SeekModel {
    // Whole numbers only, so that every machine counts the same time.

    pub(crate) fn seek(&self, distance: u64, capacity: u64) -> Duration {
        if distance == 0 {
            return Duration::ZERO;
        }
        let shortest = nanoseconds(self.shortest_seek);
        let more = nanoseconds(self.longest_seek).saturating_sub(shortest);
        // The root of distance / capacity in units of 2^-16.
        let root = fraction(1 << 32, distance.min(capacity), capacity).isqrt();
        Duration::from_nanos(shortest.saturating_add(fraction(more, root, 1 << 16)))
    }

    /// How long, from `now` on, until the place at `offset` comes round.
    pub(crate) fn turn(&self, now: Duration, offset: u64) -> Duration {
        let turn = nanoseconds(self.revolution).max(1);
        let track = fraction(self.bytes_per_second, turn, 1_000_000_000).max(1);
        let place = fraction(turn, offset % track, track);
        let head = nanoseconds(now) % turn;
        Duration::from_nanos((place + turn - head) % turn)
    }

    pub(crate) fn transfer(&self, length: u64) -> Duration {
        Duration::from_nanos(fraction(1_000_000_000, length, self.bytes_per_second))
    }
}

fn place<'a>(offset: u64, pieces: impl Iterator<Item = &'a [u8]>) -> Place {
    Place { offset, length: pieces.map(|piece| piece.len() as u64).sum() }
}

fn places_read(requests: &[ReadRequest<'_>]) -> Vec<Place> {
    let place = |request: &ReadRequest<'_>| {
        place(request.offset, request.into.iter().map(|piece| &**piece))
    };
    requests.iter().map(place).collect()
}

fn places_written(requests: &[WriteRequest<'_>]) -> Vec<Place> {
    let place = |request: &WriteRequest<'_>| {
        place(request.offset, request.from.iter().map(|piece| &**piece))
    };
    requests.iter().map(place).collect()
}

impl<D: BlockDevice> BlockDevice for SeekingDevice<D> {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn read(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        let place = place(offset, into.iter().map(|piece| &**piece));
        self.charge(vec![place], || self.inner.read(offset, into))
    }

    fn write(&self, offset: u64, from: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        let place = place(offset, from.iter().map(|piece| &**piece));
        self.charge(vec![place], || self.inner.write(offset, from))
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        self.charge(places_read(requests), || self.inner.read_batch(requests))
    }

    fn read_queue(&self) -> Box<dyn ReadQueue + '_> {
        Box::new(SeekReads::new(self.inner.read_queue(), &self.disk))
    }

    fn has_deep_queue(&self) -> bool {
        true
    }

    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        self.charge(places_written(requests), || self.inner.write_batch(requests))
    }

    fn write_batch_with(
        &self,
        requests: &[WriteRequest<'_>],
        meanwhile: Meanwhile<'_>,
    ) -> Result<(), DeviceError> {
        // Given before: the arm has something to do meanwhile.
        let mut commands = self.disk.commands();
        commands.transfer_batch(TICKET, places_written(requests), self.disk.now());
        let written = self.inner.write_batch_with(requests, meanwhile);
        if written.is_err() {
            commands.withdraw(TICKET);
        }
        commands.ended(usize::MAX);
        written
    }

    fn sync(&self) -> Result<(), DeviceError> {
        let came = self.disk.now();
        self.inner.sync()?;
        let mut commands = self.disk.commands();
        commands.sync(TICKET, came);
        commands.ended(usize::MAX);
        Ok(())
    }
}

impl<D: BlockDevice> fmt::Debug for SeekingDevice<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SeekingDevice({:?}, busy for {:?})", self.inner, self.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuffer, MemoryDevice};

    const GIB: u64 = 1 << 30;

    fn disk(capacity: u64, model: SeekModel) -> SeekingDevice<MemoryDevice> {
        SeekingDevice::new(MemoryDevice::new(capacity).unwrap(), model)
    }

    fn read(device: &impl BlockDevice, offset: u64, buffer: &mut [u8]) {
        device.read(offset, &mut [IoSliceMut::new(buffer)]).unwrap();
    }

    /// Offsets all over the device, aligned to a sector.
    fn scattered(count: u64, capacity: u64) -> impl Iterator<Item = u64> {
        let mut state = 7u64;
        (0..count).map(move |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 20) % (capacity / 4096) * 4096
        })
    }

    fn milliseconds(duration: Duration, count: u64) -> f64 {
        duration.as_secs_f64() * 1e3 / count as f64
    }

    #[test]
    fn random_reads_cost_a_seek_and_half_a_turn() {
        let device = disk(64 * GIB, SeekModel::DISK_7200);
        let mut buffer = AlignedBuffer::zeroed(4096);
        let count = 2000;
        for offset in scattered(count, 64 * GIB) {
            read(&device, offset, &mut buffer);
        }
        let statistics = device.statistics();
        assert_eq!((statistics.transfers, statistics.bytes), (count, count * 4096));
        let seek = milliseconds(statistics.seeking, count);
        let turn = milliseconds(statistics.turning, count);
        let all = milliseconds(device.elapsed(), count);
        assert!((8.3..8.9).contains(&seek), "mean seek {seek} ms");
        assert!((3.9..4.4).contains(&turn), "mean wait {turn} ms, half a turn is 4.17");
        assert!((12.4..13.4).contains(&all), "mean read {all} ms");
    }

    #[test]
    fn sequential_transfers_run_at_the_rate_of_the_medium() {
        let model = SeekModel { overhead: Duration::ZERO, ..SeekModel::DISK_7200 };
        let device = disk(GIB, model);
        let mut buffer = AlignedBuffer::zeroed(1 << 20);
        for at in 0..200 {
            read(&device, at << 20, &mut buffer);
        }
        let statistics = device.statistics();
        assert_eq!(statistics.seeks, 1);
        assert_eq!(statistics.seeking, Duration::ZERO, "the arm stood there");
        let rate = statistics.bytes as f64 / device.elapsed().as_secs_f64() / 1e6;
        assert!((199.0..=200.1).contains(&rate), "{rate} MB/s");
    }

    #[test]
    fn a_sync_between_sequential_writes_costs_a_turn() {
        let device = disk(GIB, SeekModel::DISK_7200);
        let buffer = AlignedBuffer::zeroed(4096);
        for at in 0..100 {
            device.write(at * 4096, &[IoSlice::new(&buffer)]).unwrap();
            device.sync().unwrap();
        }
        let each = milliseconds(device.elapsed(), 100);
        assert!((8.0..8.6).contains(&each), "{each} ms");
        assert_eq!(device.statistics().syncs, 100);
    }

    #[test]
    fn nearer_is_cheaper_and_the_elevator_goes_one_way() {
        let batch = |elevator| {
            let model = SeekModel { elevator, commands: 1, ..SeekModel::DISK_7200 };
            let device = disk(64 * GIB, model);
            let mut memory = AlignedBuffer::zeroed(64 * 4096);
            let mut requests: Vec<ReadRequest<'_>> = scattered(64, 64 * GIB)
                .zip(memory.chunks_mut(4096))
                .map(|(offset, chunk)| ReadRequest { offset, into: vec![IoSliceMut::new(chunk)] })
                .collect();
            device.read_batch(&mut requests).unwrap();
            device.statistics().seeking
        };
        assert!(batch(true) * 2 < batch(false), "{:?} and {:?}", batch(true), batch(false));
        let model = SeekModel::DISK_7200;
        let times: Vec<Duration> = [0, 4096, GIB, 16 * GIB, 64 * GIB, 99 * GIB]
            .into_iter()
            .map(|distance| model.seek(distance, 64 * GIB))
            .collect();
        assert!(times[..5].windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
        assert_eq!((times[0], times[4]), (Duration::ZERO, model.longest_seek));
        assert_eq!(times[4], times[5], "no farther than the whole way");
    }

    #[test]
    fn time_is_the_same_in_every_run_and_whatever_threads_read() {
        let run = || {
            let device = disk(GIB, SeekModel::DISK_7200);
            let mut buffer = AlignedBuffer::zeroed(8192);
            for offset in scattered(500, GIB - 4096) {
                read(&device, offset, &mut buffer);
            }
            device.statistics()
        };
        assert_eq!(run(), run());
        let device = disk(GIB, SeekModel::DISK_7200);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let device = &device;
                scope.spawn(move || {
                    let mut buffer = AlignedBuffer::zeroed(4096);
                    for at in 0..100 {
                        read(device, (thread * 100 + at) * 4096, &mut buffer);
                    }
                });
            }
        });
        assert_eq!(device.statistics().transfers, 400);
    }

    #[test]
    fn sleeping_takes_the_time_and_failures_take_none() {
        let device = disk(GIB, SeekModel { sleeps: true, ..SeekModel::DISK_7200 });
        let mut buffer = AlignedBuffer::zeroed(4096);
        let start = std::time::Instant::now();
        read(&device, GIB / 2, &mut buffer);
        device.sync().unwrap();
        assert!(start.elapsed() >= device.elapsed() && !device.elapsed().is_zero());
        let before = device.elapsed();
        device.read(GIB, &mut [IoSliceMut::new(&mut buffer)]).unwrap_err();
        assert_eq!(device.elapsed(), before);
    }

    #[test]
    fn nonsense_in_the_model_does_not_panic() {
        let model = SeekModel {
            revolution: Duration::ZERO,
            shortest_seek: Duration::from_secs(1),
            longest_seek: Duration::ZERO,
            bytes_per_second: 0,
            ..SeekModel::DISK_7200
        };
        let device = disk(GIB, model);
        let mut buffer = AlignedBuffer::zeroed(4096);
        read(&device, GIB / 2, &mut buffer);
        assert!(device.elapsed() >= Duration::from_secs(1));
    }
}
