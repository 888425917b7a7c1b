//! A device that reads no faster than it is told, for measuring what is limited by its device.

use std::io::{IoSlice, IoSliceMut};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::{BlockDevice, DeviceError, Meanwhile, ReadRequest, WriteRequest};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuffer, MemoryDevice};

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
}
