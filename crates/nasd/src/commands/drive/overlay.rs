//! A device whose writes stay in memory: so a drive can be opened, its log replayed and all, and
//! nothing on its medium changes.

use nasd_device::{BlockDevice, DeviceError, SECTOR_BYTES};
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SECTOR: u64 = SECTOR_BYTES as u64;

/// The device. What is written takes memory: as much as an open writes, which is at most what the
/// log holds and the pages of the metadata tree that it changes.
#[derive(Debug)]
pub struct Overlay {
    below: Arc<dyn BlockDevice>,
    written: Mutex<BTreeMap<u64, Box<[u8]>>>,
}

impl Overlay {
    /// Nothing is written yet.
    pub fn new(below: Arc<dyn BlockDevice>) -> Self {
        Overlay { below, written: Mutex::default() }
    }

    fn written(&self) -> MutexGuard<'_, BTreeMap<u64, Box<[u8]>>> {
        // Sectors are put in whole, so that a panic elsewhere leaves nothing half done.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        let capacity = self.capacity();
        if !offset.is_multiple_of(SECTOR) || !length.is_multiple_of(SECTOR) {
            return Err(DeviceError::Unaligned { offset, length, alignment: SECTOR_BYTES });
        }
        match offset.checked_add(length) {
            Some(end) if end <= capacity => Ok(()),
            _ => Err(DeviceError::OutOfBounds { offset, length, capacity }),
        }
    }
}

impl BlockDevice for Overlay {
    fn capacity(&self) -> u64 {
        self.below.capacity()
    }

    fn alignment(&self) -> usize {
        SECTOR_BYTES
    }

    fn read(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        self.below.read(offset, into)?;
        let written = self.written();
        let sectors = into.iter_mut().flat_map(|piece| piece.chunks_mut(SECTOR_BYTES));
        for (number, sector) in (offset / SECTOR..).zip(sectors) {
            if let Some(newer) = written.get(&number) {
                sector.copy_from_slice(newer);
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, from: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        self.check(offset, from.iter().map(|piece| piece.len() as u64).sum())?;
        let mut written = self.written();
        let sectors = from.iter().flat_map(|piece| piece.chunks(SECTOR_BYTES));
        for (number, sector) in (offset / SECTOR..).zip(sectors) {
            written.insert(number, sector.into());
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_device::{AlignedBuffer, MemoryDevice};

    #[test]
    fn writes_are_read_back_and_change_nothing() {
        let below = Arc::new(MemoryDevice::new(8 * SECTOR).unwrap());
        let overlay = Overlay::new(Arc::clone(&below) as Arc<dyn BlockDevice>);
        let mut bytes = AlignedBuffer::zeroed(2 * SECTOR_BYTES);
        bytes.fill(7);
        overlay.write(SECTOR, &[IoSlice::new(&bytes)]).unwrap();
        let mut all = AlignedBuffer::zeroed(8 * SECTOR_BYTES);
        overlay.read(0, &mut [IoSliceMut::new(&mut all)]).unwrap();
        assert!(all[SECTOR_BYTES..3 * SECTOR_BYTES].iter().all(|byte| *byte == 7));
        assert_eq!(all.iter().filter(|byte| **byte == 7).count(), 2 * SECTOR_BYTES);
        assert!(below.image().iter().all(|byte| *byte == 0));
        assert!(overlay.write(7 * SECTOR, &[IoSlice::new(&bytes)]).is_err());
        assert!(overlay.write(1, &[IoSlice::new(&bytes)]).is_err());
    }
}
