//! A device that takes pictures: before chosen writes and syncs it draws media that a crash at that
//! moment may leave, with what the drive may hold then.

use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex};

use nasd_device::{
    BlockDevice, DeviceError, FaultPlan, FaultyDevice, Image, Tearing, WriteRequest,
};

use crate::world::Histories;

/// What a crash may leave.
#[derive(Clone)]
pub struct Picture {
    /// The write or sync that did not happen.
    pub change: u64,
    pub seed: u64,
    pub image: Image,
    pub histories: Histories,
}

/// Wraps a faulty device that does not fail.
#[derive(Debug)]
pub struct Recorder {
    inner: FaultyDevice,
    histories: Arc<Mutex<Histories>>,
    /// Which changes are pictured, and how often.
    stride: u64,
    phase: u64,
    seeds: u64,
    pictures: Mutex<Vec<Picture>>,
}

impl std::fmt::Debug for Picture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "change {}, seed {}", self.change, self.seed)
    }
}

impl Recorder {
    /// Over `image`; every `stride`-th change from `phase` on is pictured, `seeds` times, once with
    /// each sector whole and otherwise with torn ones.
    pub fn new(
        image: Image,
        histories: Arc<Mutex<Histories>>,
        (stride, phase): (u64, u64),
        seeds: u64,
    ) -> Recorder {
        let plan = FaultPlan { tearing: Tearing::Always, ..FaultPlan::default() };
        let inner = FaultyDevice::over(image, plan);
        Recorder { inner, histories, stride, phase, seeds, pictures: Mutex::default() }
    }

    pub fn changes(&self) -> u64 {
        self.inner.changes()
    }

    pub fn live(&self) -> Image {
        self.inner.live()
    }

    /// What was pictured.
    pub fn pictures(&self) -> Vec<Picture> {
        std::mem::take(&mut *self.pictures.lock().unwrap())
    }

    /// Pictures this moment.
    pub fn picture(&self) {
        let change = self.inner.changes();
        let histories = self.histories.lock().unwrap().clone();
        for number in 0..self.seeds {
            let seed = change * 1000 + number + self.phase;
            let tearing = if number == 0 { Tearing::Never } else { Tearing::Always };
            self.inner.set_plan(FaultPlan { tearing, ..FaultPlan::default() });
            let image = self.inner.survivor(seed);
            let picture = Picture { change, seed, image, histories: histories.clone() };
            self.pictures.lock().unwrap().push(picture);
        }
    }

    fn maybe(&self) {
        if self.seeds > 0 && self.inner.changes() % self.stride == self.phase % self.stride {
            self.picture();
        }
    }
}

impl BlockDevice for Recorder {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn read(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        self.inner.read(offset, into)
    }

    fn write(&self, offset: u64, from: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        self.maybe();
        self.inner.write(offset, from)
    }

    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        requests.iter().try_for_each(|request| self.write(request.offset, &request.from))
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.maybe();
        self.inner.sync()
    }
}
