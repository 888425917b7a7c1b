//! A device that loses power or goes bad when a test tells it to.
//!
//! It remembers what is durable (everything written before a sync that succeeded) and, sector by
//! sector, every version written since. After a crash [`FaultyDevice::surviving_image`] draws one
//! of the media that the crash may have left: each sector keeps its durable contents or any of the
//! later versions, independently of the others, and now and then a torn one.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::{check_alignment, check_bounds};
use crate::{BlockDevice, DeviceError, SECTOR_BYTES};

/// Bytes that a medium writes whole or not at all, whatever happens.
const ATOMIC_BYTES: usize = 512;

/// When and how the device fails; nothing by default.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// Lose power in the sync of this number (the first is 0): it does not happen, and from then
    /// on everything fails.
    pub crash_at_sync: Option<u64>,
    /// Lose power in the write of this number (the first is 0): what it wrote may survive in part.
    pub crash_at_write: Option<u64>,
    /// Fail the writes of these numbers and go on.
    pub failing_writes: Vec<u64>,
    /// Fail the syncs of these numbers and go on.
    pub failing_syncs: Vec<u64>,
    /// Fail every read that touches a byte of this range.
    pub unreadable: std::ops::Range<u64>,
    /// Fail every write that touches a byte of this range.
    pub unwritable: std::ops::Range<u64>,
}

/// A device in memory that fails as planned and counts what is done to it.
pub struct FaultyDevice {
    state: Mutex<State>,
    capacity: u64,
}

struct State {
    plan: FaultPlan,
    durable: Vec<u8>,
    /// Versions of each sector since the last sync, oldest first.
    unsynced: BTreeMap<u64, Vec<Box<[u8]>>>,
    writes: u64,
    syncs: u64,
    reads: u64,
    crashed: bool,
}

impl FaultyDevice {
    /// A device that holds `image` durably (rounded up to whole sectors) and follows `plan`.
    pub fn new(mut image: Vec<u8>, plan: FaultPlan) -> FaultyDevice {
        image.resize(image.len().next_multiple_of(SECTOR_BYTES), 0);
        let capacity = image.len() as u64;
        let state = State {
            plan,
            durable: image,
            unsynced: BTreeMap::new(),
            writes: 0,
            syncs: 0,
            reads: 0,
            crashed: false,
        };
        FaultyDevice { state: Mutex::new(state), capacity }
    }

    /// A device of `capacity` zero bytes without faults.
    pub fn zeroed(capacity: u64) -> FaultyDevice {
        FaultyDevice::new(vec![0; capacity as usize], FaultPlan::default())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No statement leaves the state half changed, so a panicking test thread does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the plan; numbers go on counting from where they are.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.state().plan = plan;
    }

    /// Syncs asked for so far.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Writes asked for so far; each request of a batch counts.
    pub fn writes(&self) -> u64 {
        self.state().writes
    }

    /// Reads asked for so far; each request of a batch counts.
    pub fn reads(&self) -> u64 {
        self.state().reads
    }

    /// Loses power now: everything fails from here on.
    pub fn crash(&self) {
        self.state().crashed = true;
    }

    /// Whether power was lost.
    pub fn has_crashed(&self) -> bool {
        self.state().crashed
    }

    /// Flips one bit of the medium: bit `bit` (0-7) of the byte at `offset`.
    ///
    /// # Panics
    /// When the byte is outside the device.
    pub fn flip_bit(&self, offset: u64, bit: u32) {
        let mut state = self.state();
        let sector = offset / SECTOR_BYTES as u64;
        let within = (offset % SECTOR_BYTES as u64) as usize;
        state.durable[offset as usize] ^= 1 << bit;
        for version in state.unsynced.get_mut(&sector).into_iter().flatten() {
            version[within] ^= 1 << bit;
        }
    }

    /// What a reader sees now: the newest version of every sector.
    pub fn live_image(&self) -> Vec<u8> {
        let state = self.state();
        let mut image = state.durable.clone();
        for (&sector, versions) in &state.unsynced {
            if let Some(newest) = versions.last() {
                sector_of(&mut image, sector).copy_from_slice(newest);
            }
        }
        image
    }

    /// One of the media that a crash at this moment may leave, drawn by `seed`.
    pub fn surviving_image(&self, seed: u64) -> Vec<u8> {
        let state = self.state();
        let mut image = state.durable.clone();
        let mut random = Random(seed);
        for (&sector, versions) in &state.unsynced {
            let choice = random.below(versions.len() as u64 + 1) as usize;
            let Some(survivor) = choice.checked_sub(1).map(|index| &versions[index]) else {
                continue;
            };
            let target = sector_of(&mut image, sector);
            // One in eight is torn: each atomic piece is the new one or what was there.
            if random.below(8) == 0 {
                for (old, new) in target.chunks_mut(ATOMIC_BYTES).zip(survivor.chunks(ATOMIC_BYTES))
                {
                    if random.below(2) == 0 {
                        old.copy_from_slice(new);
                    }
                }
            } else {
                target.copy_from_slice(survivor);
            }
        }
        image
    }
}

fn sector_of(image: &mut [u8], sector: u64) -> &mut [u8] {
    &mut image[sector as usize * SECTOR_BYTES..][..SECTOR_BYTES]
}

/// SplitMix64: small, seeded, and the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn failure(operation: &'static str, offset: u64, length: u64, why: &str) -> DeviceError {
    DeviceError::Medium { operation, offset, length, source: io::Error::other(why.to_owned()) }
}

fn touches(range: &std::ops::Range<u64>, offset: u64, length: u64) -> bool {
    range.start < offset + length && offset < range.end
}

impl State {
    fn record(&mut self, offset: u64, from: &[IoSlice<'_>]) {
        let mut sector = offset / SECTOR_BYTES as u64;
        for piece in from {
            for bytes in piece.chunks(SECTOR_BYTES) {
                self.unsynced.entry(sector).or_default().push(bytes.into());
                sector += 1;
            }
        }
    }

    fn make_durable(&mut self) {
        for (sector, versions) in std::mem::take(&mut self.unsynced) {
            if let Some(newest) = versions.last() {
                sector_of(&mut self.durable, sector).copy_from_slice(newest);
            }
        }
    }
}

impl BlockDevice for FaultyDevice {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn alignment(&self) -> usize {
        SECTOR_BYTES
    }

    fn read(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        let length = check_alignment(offset, into.iter().map(|piece| &**piece), SECTOR_BYTES)?;
        check_bounds(offset, length, self.capacity)?;
        let mut state = self.state();
        state.reads += 1;
        if state.crashed {
            return Err(failure("read", offset, length, "the device lost power"));
        }
        if touches(&state.plan.unreadable, offset, length) {
            return Err(failure("read", offset, length, "planned fault"));
        }
        let mut sector = offset / SECTOR_BYTES as u64;
        for piece in into {
            for target in piece.chunks_mut(SECTOR_BYTES) {
                let newest = state.unsynced.get(&sector).and_then(|versions| versions.last());
                let at = sector as usize * SECTOR_BYTES;
                let from = newest.map_or(&state.durable[at..at + SECTOR_BYTES], |bytes| bytes);
                target.copy_from_slice(from);
                sector += 1;
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, from: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        let length = check_alignment(offset, from.iter().map(|piece| &**piece), SECTOR_BYTES)?;
        check_bounds(offset, length, self.capacity)?;
        let mut state = self.state();
        let number = state.writes;
        state.writes += 1;
        if state.crashed {
            return Err(failure("write", offset, length, "the device lost power"));
        }
        if state.plan.crash_at_write == Some(number) {
            state.record(offset, from);
            state.crashed = true;
            return Err(failure("write", offset, length, "the device lost power"));
        }
        if state.plan.failing_writes.contains(&number)
            || touches(&state.plan.unwritable, offset, length)
        {
            return Err(failure("write", offset, length, "planned fault"));
        }
        state.record(offset, from);
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        let mut state = self.state();
        let number = state.syncs;
        state.syncs += 1;
        if state.plan.crash_at_sync == Some(number) {
            state.crashed = true;
        }
        if state.crashed {
            return Err(failure("sync", 0, 0, "the device lost power"));
        }
        if state.plan.failing_syncs.contains(&number) {
            return Err(failure("sync", 0, 0, "planned fault"));
        }
        state.make_durable();
        Ok(())
    }
}

impl fmt::Debug for FaultyDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultyDevice({} bytes)", self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedBuffer;

    fn write(device: &FaultyDevice, sector: u64, value: u8) -> Result<(), DeviceError> {
        let mut buffer = AlignedBuffer::zeroed(SECTOR_BYTES);
        buffer.fill(value);
        device.write(sector * SECTOR_BYTES as u64, &[IoSlice::new(&buffer)])
    }

    fn first_bytes(image: &[u8]) -> Vec<u8> {
        image.chunks(SECTOR_BYTES).map(|sector| sector[0]).collect()
    }

    #[test]
    fn synced_writes_survive_and_others_may() {
        let device = FaultyDevice::zeroed(4 * SECTOR_BYTES as u64);
        write(&device, 0, 1).unwrap();
        device.sync().unwrap();
        write(&device, 0, 2).unwrap();
        write(&device, 0, 3).unwrap();
        write(&device, 1, 4).unwrap();
        assert_eq!(first_bytes(&device.live_image()), [3, 4, 0, 0]);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let image = device.surviving_image(seed);
            assert_eq!(image, device.surviving_image(seed), "a seed is one image");
            let first = first_bytes(&image);
            assert!([1, 2, 3].contains(&first[0]) && [0, 4].contains(&first[1]));
            assert_eq!(&first[2..], [0, 0]);
            seen.insert((first[0], first[1]));
        }
        assert_eq!(seen.len(), 6, "every combination is drawn sooner or later");
    }

    #[test]
    fn a_crash_at_a_sync_loses_it_and_everything_after() {
        let device = FaultyDevice::zeroed(SECTOR_BYTES as u64);
        device.set_plan(FaultPlan { crash_at_sync: Some(1), ..FaultPlan::default() });
        write(&device, 0, 1).unwrap();
        device.sync().unwrap();
        write(&device, 0, 2).unwrap();
        device.sync().unwrap_err();
        write(&device, 0, 3).unwrap_err();
        device.sync().unwrap_err();
        assert!(device.has_crashed());
        assert!((0..50).all(|seed| device.surviving_image(seed)[0] < 3));
    }

    #[test]
    fn planned_errors_leave_the_device_working() {
        let device = FaultyDevice::zeroed(4 * SECTOR_BYTES as u64);
        device.set_plan(FaultPlan {
            failing_writes: vec![1],
            failing_syncs: vec![0],
            unreadable: SECTOR_BYTES as u64..SECTOR_BYTES as u64 + 1,
            ..FaultPlan::default()
        });
        write(&device, 0, 1).unwrap();
        write(&device, 0, 2).unwrap_err();
        device.sync().unwrap_err();
        device.sync().unwrap();
        let mut buffer = AlignedBuffer::zeroed(SECTOR_BYTES);
        device.read(0, &mut [IoSliceMut::new(&mut buffer)]).unwrap();
        assert_eq!(buffer[0], 1);
        device.read(SECTOR_BYTES as u64, &mut [IoSliceMut::new(&mut buffer)]).unwrap_err();
        device.flip_bit(0, 7);
        device.read(0, &mut [IoSliceMut::new(&mut buffer)]).unwrap();
        assert_eq!(buffer[0], 0x81);
    }

    #[test]
    fn some_survivors_are_torn_at_atomic_pieces() {
        let device = FaultyDevice::zeroed(SECTOR_BYTES as u64);
        write(&device, 0, 9).unwrap();
        let torn = (0..200)
            .map(|seed| device.surviving_image(seed))
            .find(|image| image.contains(&0) && image.contains(&9));
        let torn = torn.expect("one seed in 200 tears the sector");
        assert!(torn.chunks(ATOMIC_BYTES).all(|piece| piece.iter().all(|b| *b == piece[0])));
    }
}
