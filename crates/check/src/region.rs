//! The metadata region as a tree's file: over the device without ever writing to it, in memory
//! alone, or for real.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use nasd_device::{AlignedBuffer, DeviceError};
use redb::StorageBackend;

use crate::bytes::{BLOCK, BLOCK_LENGTH};
use crate::pages::Pages;

/// Where what is written goes, and what is below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Into memory, over the device's contents.
    Overlay,
    /// Into memory, over nothing: for a tree that is made anew.
    Fresh,
    /// To the device.
    Direct,
}

/// The region of one drive.
pub(crate) struct Region {
    base: Arc<Pages>,
    mode: Mode,
    /// Length of the file as the tree knows it: always the region's, once it was made.
    length: AtomicU64,
    /// What was written, by page.
    pages: RwLock<BTreeMap<u64, Box<[u8]>>>,
}

/// A handle on the region for the tree.
#[derive(Clone)]
pub(crate) struct Backend(pub(crate) Arc<Region>);

impl Region {
    pub(crate) fn new(base: &Arc<Pages>, mode: Mode) -> Arc<Region> {
        let length = AtomicU64::new(if mode == Mode::Fresh { 0 } else { base.bytes });
        Arc::new(Region { base: base.clone(), mode, length, pages: RwLock::default() })
    }

    /// Whole pages that cover a range: the first, and how many.
    fn cover(&self, offset: u64, length: usize) -> io::Result<(u64, usize)> {
        let end = offset.checked_add(length as u64).filter(|end| *end <= self.base.bytes);
        let end = end.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "access outside of the metadata region")
        })?;
        let first = offset / BLOCK;
        Ok((first, (end.div_ceil(BLOCK) - first) as usize))
    }

    fn load(&self, first: u64, count: usize) -> io::Result<AlignedBuffer> {
        let mut buffer = AlignedBuffer::zeroed(count * BLOCK_LENGTH);
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        let written = pages.range(first..first + count as u64);
        let missing = written.clone().count() < count;
        match self.mode {
            Mode::Overlay if missing => {
                self.base.read(first * BLOCK, &mut buffer).map_err(io::Error::other)?;
            }
            Mode::Direct => {
                let place = self.base.start + first * BLOCK;
                let into = &mut [IoSliceMut::new(&mut buffer)];
                self.base.device.read(place, into).map_err(io::Error::other)?;
            }
            Mode::Overlay | Mode::Fresh => {}
        }
        for (page, bytes) in written {
            let at = (page - first) as usize * BLOCK_LENGTH;
            buffer[at..at + BLOCK_LENGTH].copy_from_slice(bytes);
        }
        Ok(buffer)
    }

    /// Writes every page that is in memory to the device: first page last, and alone.
    ///
    /// # Errors
    /// What the device says; the tree on it may be broken then.
    pub(crate) fn write_home(&self) -> Result<(), DeviceError> {
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        let (device, start) = (&self.base.device, self.base.start);
        let mut buffer = AlignedBuffer::zeroed(BLOCK_LENGTH);
        device.write(start, &[IoSlice::new(&buffer)])?;
        device.sync()?;
        for (page, bytes) in pages.range(1..).chain(pages.range(..1)) {
            if *page == 0 {
                device.sync()?;
            }
            buffer.copy_from_slice(bytes);
            device.write(start + page * BLOCK, &[IoSlice::new(&buffer)])?;
        }
        device.sync()
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.length.load(Ordering::Acquire))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (first, count) = self.0.cover(offset, out.len())?;
        let buffer = self.0.load(first, count)?;
        let at = (offset - first * BLOCK) as usize;
        out.copy_from_slice(&buffer[at..at + out.len()]);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let region = &self.0;
        if length > region.base.bytes {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the metadata region is full"));
        }
        // The first size makes the file, at its full size (section 5 of the format).
        let made = region.length.load(Ordering::Acquire) > 0;
        region.length.store(if made { length } else { region.base.bytes }, Ordering::Release);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.0.mode {
            Mode::Direct => self.0.base.device.sync().map_err(io::Error::other),
            Mode::Overlay | Mode::Fresh => Ok(()),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let region = &self.0;
        let (first, count) = region.cover(offset, data.len())?;
        let mut buffer = region.load(first, count)?;
        let at = (offset - first * BLOCK) as usize;
        buffer[at..at + data.len()].copy_from_slice(data);
        if region.mode == Mode::Direct {
            let place = region.base.start + first * BLOCK;
            return region
                .base
                .device
                .write(place, &[IoSlice::new(&buffer)])
                .map_err(io::Error::other);
        }
        let mut pages = region.pages.write().unwrap_or_else(PoisonError::into_inner);
        for (page, bytes) in (first..).zip(buffer.chunks_exact(BLOCK_LENGTH)) {
            pages.insert(page, bytes.into());
        }
        Ok(())
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {} bytes of {:?}", self.0.mode, self.0.base.bytes, self.0.base.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_device::{BlockDevice, MemoryDevice};

    /// Four pages behind the first one.
    fn base(device: &Arc<MemoryDevice>) -> Arc<Pages> {
        let device: Arc<dyn BlockDevice> = device.clone();
        Arc::new(Pages::of(&device, 4096, 4 * 4096))
    }

    #[test]
    fn an_overlay_never_writes_to_the_device() {
        let device = Arc::new(MemoryDevice::from_image(&[7; 8 * 4096]).unwrap());
        let region = Backend(Region::new(&base(&device), Mode::Overlay));
        region.write(4090, &[1; 10]).unwrap();
        let mut out = [0; 12];
        region.read(4089, &mut out).unwrap();
        assert_eq!(out, [7, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 7]);
        assert_eq!(device.image(), vec![7; 8 * 4096]);
        assert!(region.read(4 * 4096 - 1, &mut out).is_err());
        assert!(region.write(u64::MAX, &[1]).is_err());
    }

    #[test]
    fn a_fresh_region_is_written_over_the_old_one() {
        let device = Arc::new(MemoryDevice::from_image(&[7; 8 * 4096]).unwrap());
        let region = Backend(Region::new(&base(&device), Mode::Fresh));
        assert_eq!(region.len().unwrap(), 0);
        region.set_len(4096).unwrap();
        assert_eq!(region.len().unwrap(), 4 * 4096);
        region.write(0, &[1; 4096]).unwrap();
        region.write(8192, &[2; 4096]).unwrap();
        region.0.write_home().unwrap();
        assert_eq!(device.peek(4096, 4096), vec![1; 4096]);
        assert_eq!(device.peek(8192, 4096), vec![7; 4096]);
        assert_eq!(device.peek(12288, 4096), vec![2; 4096]);
    }
}
