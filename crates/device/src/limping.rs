//! A device that can be made slow while it is used, for tests of whole cells.

use std::io::{IoSlice, IoSliceMut};
use std::path::PathBuf;
use std::time::Duration;

use crate::{BlockDevice, DeviceError};

/// See the module. As long as there is a file at a path, each transfer and each sync takes besides as many
/// milliseconds as its text says. Others go on meanwhile, as on a device with many arms.
#[derive(Debug)]
pub struct LimpingDevice<D> {
    inner: D,
    pace: PathBuf,
}

impl<D: BlockDevice> LimpingDevice<D> {
    /// As fast as `inner`, unless there is a file at `pace`.
    pub fn new(inner: D, pace: PathBuf) -> LimpingDevice<D> {
        LimpingDevice { inner, pace }
    }

    fn limp(&self) {
        // A file that is being written is none yet.
        let text = std::fs::read_to_string(&self.pace).unwrap_or_default();
        if let Ok(milliseconds) = text.trim().parse() {
            std::thread::sleep(Duration::from_millis(milliseconds));
        }
    }
}

impl<D: BlockDevice> BlockDevice for LimpingDevice<D> {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn read(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        self.limp();
        self.inner.read(offset, into)
    }

    fn write(&self, offset: u64, from: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        self.limp();
        self.inner.write(offset, from)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.limp();
        self.inner.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuffer, MemoryDevice};
    use std::time::Instant;

    #[test]
    fn it_is_slow_as_long_as_the_file_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let pace = directory.path().join("pace");
        let device = LimpingDevice::new(MemoryDevice::new(1 << 20).unwrap(), pace.clone());
        let mut buffer = AlignedBuffer::zeroed(4096);
        let mut took = || {
            let begun = Instant::now();
            device.write(0, &[IoSlice::new(&buffer)]).unwrap();
            device.sync().unwrap();
            device.read(0, &mut [IoSliceMut::new(&mut buffer)]).unwrap();
            begun.elapsed()
        };
        took();
        std::fs::write(&pace, "40\n").unwrap();
        assert!(took() >= Duration::from_millis(120));
        std::fs::remove_file(&pace).unwrap();
        let quickest = (0..10).map(|_| took()).min().unwrap();
        assert!(quickest < Duration::from_millis(100), "{quickest:?}");
    }
}
