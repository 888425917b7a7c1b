//! A device that reads no faster than it is told, for measuring what is limited by its device.

use std::io::{IoSlice, IoSliceMut};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::{
    BlockDevice, DeviceError, FrameRead, Meanwhile, ReadEnd, ReadQueue, ReadRequest, WriteRequest,
};

/// See the module. Reads are done one after the other, as by one arm; writes and syncs are as fast as those of what it is on.
#[derive(Debug)]
pub struct RatedDevice<D> {
    inner: D,
    bytes_per_second: f64,
    /// When the last read that was asked for will be done.
    busy_until: Mutex<Instant>,
}

impl<D: BlockDevice> RatedDevice<D> {
    /// Reads at most so many bytes a second of `inner`.
    pub fn new(inner: D, bytes_per_second: u64) -> RatedDevice<D> {
        let busy_until = Mutex::new(Instant::now());
        RatedDevice { inner, bytes_per_second: bytes_per_second.max(1) as f64, busy_until }
    }

    /// When a read of so many bytes is done that is asked for now.
    fn turn(&self, bytes: usize) -> Instant {
        let taken = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
        let mut busy_until = self.busy_until.lock().unwrap_or_else(PoisonError::into_inner);
        *busy_until = (*busy_until).max(Instant::now()) + taken;
        *busy_until
    }
}

impl<D: BlockDevice> BlockDevice for RatedDevice<D> {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn read(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        let done = self.turn(into.iter().map(|slice| slice.len()).sum());
        let read = self.inner.read(offset, into);
        thread::sleep(done.saturating_duration_since(Instant::now()));
        read
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        let all = requests.iter().flat_map(|request| &request.into);
        let done = self.turn(all.map(|slice| slice.len()).sum());
        let read = self.inner.read_batch(requests);
        thread::sleep(done.saturating_duration_since(Instant::now()));
        read
    }

    fn read_queue(&self) -> Box<dyn ReadQueue + '_> {
        Box::new(RatedReads {
            inner: self.inner.read_queue(),
            turn: Box::new(|bytes| self.turn(bytes)),
            begun: Vec::new(),
            there: Vec::new(),
        })
    }

    fn has_deep_queue(&self) -> bool {
        self.inner.has_deep_queue()
    }

    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        self.inner.write_batch(requests)
    }

    fn write_batch_with(
        &self,
        requests: &[WriteRequest<'_>],
        meanwhile: Meanwhile<'_>,
    ) -> Result<(), DeviceError> {
        self.inner.write_batch_with(requests, meanwhile)
    }

    fn write(&self, offset: u64, from: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        self.inner.write(offset, from)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.inner.sync()
    }
}

/// Reads of a queue, which end no sooner than the rate has it.
struct RatedReads<'d> {
    inner: Box<dyn ReadQueue + 'd>,
    /// When a read of so many bytes may end that is begun now.
    turn: Box<dyn Fn(usize) -> Instant + 'd>,
    /// Those that `inner` has, by their tags, and when they may end.
    begun: Vec<(usize, Instant)>,
    /// Those that have ended too soon.
    there: Vec<(Instant, ReadEnd)>,
}

impl ReadQueue for RatedReads<'_> {
    fn begin(&mut self, read: FrameRead) {
        let bytes = read.parts.iter().map(|part| part.range.len()).sum();
        self.begun.push((read.tag, (self.turn)(bytes)));
        self.inner.begin(read);
    }

    fn under_way(&self) -> usize {
        self.inner.under_way() + self.there.len()
    }

    fn ended(&mut self, least: usize) -> Vec<ReadEnd> {
        for end in self.inner.ended(least.saturating_sub(self.there.len())) {
            let at = self.begun.iter().position(|(tag, _)| *tag == end.tag);
            let until = at.map_or_else(Instant::now, |at| self.begun.remove(at).1);
            self.there.push((until, end));
        }
        self.there.sort_by_key(|(until, _)| *until);
        let last = self.there.get(..least.min(self.there.len())).and_then(<[_]>::last);
        if let Some((until, _)) = last {
            thread::sleep(until.saturating_duration_since(Instant::now()));
        }
        let now = Instant::now();
        let ended = self.there.partition_point(|(until, _)| *until <= now);
        self.there.drain(..ended).map(|(_, end)| end).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuffer, FramePool, MemoryDevice, ReadPart};

    #[test]
    fn reads_of_all_threads_together_are_no_faster_than_that() {
        let device = RatedDevice::new(MemoryDevice::new(1 << 20).unwrap(), 2 << 20);
        let begun = Instant::now();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut buffer = AlignedBuffer::zeroed(64 << 10);
                    for _ in 0..2 {
                        device.read(0, &mut [IoSliceMut::new(&mut buffer)]).unwrap();
                    }
                });
            }
        });
        assert!(begun.elapsed() >= Duration::from_millis(120));
    }

    /// A device that says how many batches it was given.
    #[derive(Debug)]
    struct Batches(MemoryDevice, std::sync::atomic::AtomicUsize);

    impl BlockDevice for Batches {
        fn capacity(&self) -> u64 {
            self.0.capacity()
        }

        fn alignment(&self) -> usize {
            self.0.alignment()
        }

        fn read(&self, _: u64, _: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
            panic!("one by one")
        }

        fn read_batch(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
            self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            self.0.read_batch(requests)
        }

        fn write(&self, offset: u64, from: &[IoSlice<'_>]) -> Result<(), DeviceError> {
            self.0.write(offset, from)
        }

        fn sync(&self) -> Result<(), DeviceError> {
            self.0.sync()
        }
    }

    #[test]
    fn a_batch_stays_one_and_takes_its_time() {
        let inner = Batches(MemoryDevice::new(1 << 20).unwrap(), 0.into());
        let device = RatedDevice::new(inner, 2 << 20);
        let mut buffers = [AlignedBuffer::zeroed(128 << 10), AlignedBuffer::zeroed(128 << 10)];
        let begun = Instant::now();
        let mut requests: Vec<ReadRequest<'_>> = (buffers.iter_mut())
            .map(|buffer| ReadRequest { offset: 0, into: vec![IoSliceMut::new(buffer)] })
            .collect();
        device.read_batch(&mut requests).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(120));
        assert_eq!(device.inner.1.into_inner(), 1);
    }

    #[test]
    fn reads_of_a_queue_take_their_time() {
        let device = RatedDevice::new(MemoryDevice::new(1 << 20).unwrap(), 1 << 20);
        let pool = FramePool::new(2).unwrap();
        let mut queue = device.read_queue();
        let begun = Instant::now();
        for tag in 0..2 {
            let frame = pool.allocate().unwrap();
            let parts = vec![ReadPart { offset: 0, range: 0..64 << 10 }];
            queue.begin(FrameRead { tag, frame, parts });
        }
        assert_eq!(queue.under_way(), 2);
        assert_eq!(queue.ended(1)[0].tag, 0);
        assert!(begun.elapsed() >= Duration::from_millis(60));
        while queue.under_way() > 0 {
            queue.ended(1);
        }
        assert!(begun.elapsed() >= Duration::from_millis(120));
    }
}
