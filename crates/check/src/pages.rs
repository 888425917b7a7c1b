//! The metadata region as it is on the device, read in pieces larger than pages: the tree's pages are
//! asked for one by one, and often lie near one another.

use std::collections::{HashMap, VecDeque};
use std::io::IoSliceMut;
use std::sync::{Arc, Mutex, PoisonError};

use nasd_device::{AlignedBuffer, BlockDevice, DeviceError};

use crate::superblock::Superblock;

/// Bytes that are read at once: what a medium does in about the time of one page.
const PIECE: u64 = 64 << 10;
/// Pieces that are kept; 32 MiB in all.
const KEPT: usize = 512;

/// A metadata region, which nobody changes meanwhile.
pub(crate) struct Pages {
    pub(crate) device: Arc<dyn BlockDevice>,
    /// First byte on the device.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    kept: Mutex<Kept>,
}

/// The pieces read last, by number, and their order.
#[derive(Default)]
struct Kept {
    pieces: HashMap<u64, Arc<AlignedBuffer>>,
    order: VecDeque<u64>,
}

impl Pages {
    pub(crate) fn new(device: &Arc<dyn BlockDevice>, superblock: &Superblock) -> Arc<Pages> {
        Arc::new(Pages::of(device, superblock.metadata_offset, superblock.metadata_bytes))
    }

    /// A region at another place.
    pub(crate) fn of(device: &Arc<dyn BlockDevice>, start: u64, bytes: u64) -> Pages {
        Pages { device: device.clone(), start, bytes, kept: Mutex::default() }
    }

    /// Fills `out` from `offset` within the region, which has that much.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        let mut at = offset;
        let mut rest = out;
        while !rest.is_empty() {
            let (number, within) = (at / PIECE, (at % PIECE) as usize);
            let (now, later) = rest.split_at_mut(rest.len().min(PIECE as usize - within));
            match self.piece(number) {
                Ok(piece) => now.copy_from_slice(&piece[within..within + now.len()]),
                // The bad place may be in another page of the piece.
                Err(_) => {
                    let bytes =
                        crate::bytes::read_bytes(&*self.device, self.start + at, now.len())?;
                    now.copy_from_slice(&bytes);
                }
            }
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// As [`read`](Self::read), into new memory.
    pub(crate) fn read_vec(&self, offset: u64, length: usize) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; length];
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    fn piece(&self, number: u64) -> Result<Arc<AlignedBuffer>, DeviceError> {
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(piece) = kept().pieces.get(&number) {
            return Ok(piece.clone());
        }
        let length = PIECE.min(self.bytes - number * PIECE);
        let mut piece = AlignedBuffer::zeroed(length as usize);
        let place = self.start + number * PIECE;
        self.device.read(place, &mut [IoSliceMut::new(&mut piece)])?;
        let piece = Arc::new(piece);
        let mut kept = kept();
        if kept.pieces.insert(number, piece.clone()).is_none() {
            kept.order.push_back(number);
        }
        if kept.order.len() > KEPT
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.pieces.remove(&oldest);
        }
        Ok(piece)
    }
}
