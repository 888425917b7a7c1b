//! A device that loses power or goes bad when a test tells it to.
//!
//! It remembers what is durable (everything written before a sync that succeeded) and, sector by
//! sector, every version written since. After a crash [`FaultyDevice::survivor`] draws one of the
//! media that the crash may have left: each sector keeps its durable contents or any of the later
//! versions, independently of the others, and now and then it is torn.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::{check_alignment, check_bounds};
use crate::{BlockDevice, DeviceError, Image, SECTOR_BYTES, WriteRequest};
pub use plan::{FailedSync, FaultPlan, Tearing};
use plan::{Random, touches};

/// Bytes that a medium writes whole or not at all, whatever happens.
const ATOMIC_BYTES: usize = 512;

/// A device in memory that fails as planned and counts what is done to it.
pub struct FaultyDevice {
    state: Mutex<State>,
    capacity: u64,
}

struct State {
    plan: FaultPlan,
    durable: Image,
    /// Versions of each sector since the last sync, oldest first.
    unsynced: BTreeMap<u64, Vec<Box<[u8]>>>,
    /// Sectors that a failed sync dropped and that reads still see.
    ghosts: BTreeMap<u64, Box<[u8]>>,
    /// Sectors of bad places that were written since and can be read again.
    healed: BTreeSet<u64>,
    writes: u64,
    syncs: u64,
    reads: u64,
    crashed: bool,
}

impl FaultyDevice {
    /// A device that holds `image` durably (rounded up to whole sectors) and follows `plan`.
    pub fn new(image: Vec<u8>, plan: FaultPlan) -> FaultyDevice {
        FaultyDevice::over(Image::from(image), plan)
    }

    /// A device that holds `image` durably, shared with its other users until written to, and
    /// follows `plan`.
    pub fn over(image: Image, plan: FaultPlan) -> FaultyDevice {
        let capacity = image.bytes();
        let state = State {
            plan,
            durable: image,
            unsynced: BTreeMap::new(),
            ghosts: BTreeMap::new(),
            healed: BTreeSet::new(),
            writes: 0,
            syncs: 0,
            reads: 0,
            crashed: false,
        };
        FaultyDevice { state: Mutex::new(state), capacity }
    }

    /// As [`over`](Self::over), with `capacity` bytes (rounded up to whole sectors): what the
    /// image lacks is zeros, what it has too much is cut off. So a medium grows or shrinks.
    pub fn with_capacity(image: impl Into<Image>, capacity: u64, plan: FaultPlan) -> FaultyDevice {
        let mut image = image.into();
        image.resize(capacity);
        FaultyDevice::over(image, plan)
    }

    /// A device of `capacity` zero bytes without faults.
    pub fn zeroed(capacity: u64) -> FaultyDevice {
        FaultyDevice::over(Image::zeroed(capacity), FaultPlan::default())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No statement leaves the state half changed, so a panicking test thread does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the plan; numbers go on counting from where they are.
    pub fn set_plan(&self, plan: FaultPlan) {
        let mut state = self.state();
        state.plan = plan;
        state.healed.clear();
    }

    /// Syncs asked for so far.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Writes asked for so far; each request of a batch counts.
    pub fn writes(&self) -> u64 {
        self.state().writes
    }

    /// Writes and syncs asked for so far: what [`FaultPlan::crash_at_change`] counts.
    pub fn changes(&self) -> u64 {
        self.state().changes()
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
        state.durable.flip_bit(offset, bit);
        for version in state.unsynced.get_mut(&sector).into_iter().flatten() {
            version[within] ^= 1 << bit;
        }
        if let Some(ghost) = state.ghosts.get_mut(&sector) {
            ghost[within] ^= 1 << bit;
        }
    }

    /// What a reader sees now: the newest version of every sector.
    pub fn live(&self) -> Image {
        let state = self.state();
        let mut image = state.durable.clone();
        for (&sector, ghost) in &state.ghosts {
            image.write(byte_of(sector), ghost);
        }
        for (&sector, versions) in &state.unsynced {
            if let Some(newest) = versions.last() {
                image.write(byte_of(sector), newest);
            }
        }
        image
    }

    /// [`live`](Self::live) in one piece.
    pub fn live_image(&self) -> Vec<u8> {
        self.live().to_vec()
    }

    /// One of the media that a crash at this moment may leave, drawn by `seed`.
    pub fn survivor(&self, seed: u64) -> Image {
        let state = self.state();
        let mut image = state.durable.clone();
        let mut random = Random::new(seed);
        for (&sector, versions) in &state.unsynced {
            let choice = random.below(versions.len() as u64 + 1) as usize;
            let torn = match state.plan.tearing {
                Tearing::Seldom => random.below(8) == 0,
                Tearing::Never => false,
                Tearing::Always => true,
            };
            let step = if torn { ATOMIC_BYTES } else { SECTOR_BYTES };
            for start in (0..SECTOR_BYTES).step_by(step) {
                let choice =
                    if torn { random.below(versions.len() as u64 + 1) as usize } else { choice };
                // The first choice is what was durable.
                if let Some(version) = choice.checked_sub(1).map(|index| &versions[index]) {
                    let at = byte_of(sector) + start as u64;
                    image.write(at, &version[start..start + step]);
                }
            }
        }
        image
    }

    /// [`survivor`](Self::survivor) in one piece.
    pub fn surviving_image(&self, seed: u64) -> Vec<u8> {
        self.survivor(seed).to_vec()
    }
}

fn byte_of(sector: u64) -> u64 {
    sector * SECTOR_BYTES as u64
}

fn failure(operation: &'static str, offset: u64, length: u64, why: &str) -> DeviceError {
    DeviceError::Medium { operation, offset, length, source: io::Error::other(why.to_owned()) }
}

fn check(offset: u64, from: &[IoSlice<'_>], capacity: u64) -> Result<u64, DeviceError> {
    let length = check_alignment(offset, from.iter().map(|piece| &**piece), SECTOR_BYTES)?;
    check_bounds(offset, length, capacity)?;
    Ok(length)
}

impl State {
    fn changes(&self) -> u64 {
        self.writes + self.syncs
    }

    /// Keeps those sectors of a write that `keep` chooses by their place in it, flipping `flip`'s
    /// bit: the byte of the write, and the bit of the byte.
    fn record(
        &mut self,
        offset: u64,
        from: &[IoSlice<'_>],
        flip: Option<(u64, u32)>,
        mut keep: impl FnMut() -> bool,
    ) {
        let sectors = from.iter().flat_map(|piece| piece.chunks(SECTOR_BYTES));
        for (index, bytes) in sectors.enumerate() {
            if !keep() {
                continue;
            }
            let mut bytes: Box<[u8]> = bytes.into();
            let flipped =
                flip.and_then(|(at, bit)| Some((at.checked_sub(byte_of(index as u64))?, bit)));
            if let Some((at, bit)) = flipped
                && let Some(byte) = bytes.get_mut(at as usize)
            {
                *byte ^= 1 << bit;
            }
            let sector = offset / SECTOR_BYTES as u64 + index as u64;
            self.ghosts.remove(&sector);
            if self.plan.writing_heals {
                self.healed.insert(sector);
            }
            self.unsynced.entry(sector).or_default().push(bytes);
        }
    }

    fn write(&mut self, offset: u64, length: u64, from: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        let (number, change) = (self.writes, self.changes());
        self.writes += 1;
        if self.crashed {
            return Err(failure("write", offset, length, "the device lost power"));
        }
        let plan = &self.plan;
        let mut random = Random::of(plan.seed, b"writ", number);
        if plan.crash_at_write == Some(number) || plan.crash_at_change == Some(change) {
            self.record(offset, from, None, || true);
            self.crashed = true;
            return Err(failure("write", offset, length, "the device lost power"));
        }
        if plan.failing_writes.contains(&number) || touches(&plan.unwritable, offset, length) {
            if plan.partial_writes {
                self.record(offset, from, None, || random.coin());
            }
            return Err(failure("write", offset, length, "planned fault"));
        }
        if plan.lost_writes.contains(&number) {
            return Ok(());
        }
        let flipped = length > 0 && plan.flipped_writes.contains(&number);
        let flip = flipped.then(|| (random.below(length), random.below(8) as u32));
        self.record(offset, from, flip, || true);
        Ok(())
    }

    /// Writes requests that are on their way at the same time: when one of them fails, some of
    /// those behind it happen nevertheless.
    fn write_batch(&mut self, requests: &[(u64, &WriteRequest<'_>)]) -> Result<(), DeviceError> {
        let was_off = self.crashed;
        let mut rest = requests.iter();
        let mut outcome = Ok(());
        for (length, request) in rest.by_ref() {
            outcome = self.write(request.offset, *length, &request.from);
            if outcome.is_err() {
                break;
            }
        }
        if was_off {
            return outcome;
        }
        let mut random = Random::of(self.plan.seed, b"rest", self.writes);
        for (length, request) in rest {
            if self.crashed {
                // Which of these survive is drawn with everything else.
                self.record(request.offset, &request.from, None, || true);
            } else if random.coin() {
                // The first error is the one that counts.
                let _ = self.write(request.offset, *length, &request.from);
            }
        }
        outcome
    }

    fn is_unreadable(&self, offset: u64, length: u64) -> bool {
        let bad = |range: &std::ops::Range<u64>| {
            if !self.plan.writing_heals {
                return touches(range, offset, length);
            }
            let sectors = offset / SECTOR_BYTES as u64..(offset + length) / SECTOR_BYTES as u64;
            sectors.into_iter().any(|sector| {
                touches(range, byte_of(sector), SECTOR_BYTES as u64)
                    && !self.healed.contains(&sector)
            })
        };
        bad(&self.plan.unreadable) || self.plan.bad_ranges.iter().any(bad)
    }

    fn fill(&self, offset: u64, into: &mut [IoSliceMut<'_>]) {
        let targets = into.iter_mut().flat_map(|piece| piece.chunks_mut(SECTOR_BYTES));
        for (sector, target) in (offset / SECTOR_BYTES as u64..).zip(targets) {
            let unsynced = self.unsynced.get(&sector).and_then(|versions| versions.last());
            match unsynced.or_else(|| self.ghosts.get(&sector)) {
                Some(newest) => target.copy_from_slice(newest),
                None => self.durable.read(byte_of(sector), target),
            }
        }
    }

    /// What a failed sync does to the writes that it was to make durable.
    fn fail_sync(&mut self, number: u64) {
        if self.plan.failed_sync == FailedSync::Keeps {
            return;
        }
        let mut random = Random::of(self.plan.seed, b"sync", number);
        let mut dropped = Vec::new();
        self.unsynced.retain(|&sector, versions| {
            let keep = random.coin();
            if !keep {
                dropped.extend(versions.pop().map(|newest| (sector, newest)));
            }
            keep
        });
        match self.plan.failed_sync {
            FailedSync::DropsUnseen => self.ghosts.extend(dropped),
            FailedSync::Keeps | FailedSync::Drops => {}
        }
    }

    fn make_durable(&mut self) {
        for (sector, versions) in std::mem::take(&mut self.unsynced) {
            if let Some(newest) = versions.last() {
                self.durable.write(byte_of(sector), newest);
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
        let number = state.reads;
        state.reads += 1;
        if state.crashed {
            return Err(failure("read", offset, length, "the device lost power"));
        }
        if state.plan.failing_reads.contains(&number) || state.is_unreadable(offset, length) {
            return Err(failure("read", offset, length, "planned fault"));
        }
        state.fill(offset, into);
        if length > 0 && state.plan.flipped_reads.contains(&number) {
            let mut random = Random::of(state.plan.seed, b"read", number);
            let (at, bit) = (random.below(length) as usize, random.below(8));
            if let Some(byte) = into.iter_mut().flat_map(|piece| piece.iter_mut()).nth(at) {
                *byte ^= 1 << bit;
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, from: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        let length = check(offset, from, self.capacity)?;
        self.state().write(offset, length, from)
    }

    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        let checked: Result<Vec<_>, _> = requests
            .iter()
            .map(|request| Ok((check(request.offset, &request.from, self.capacity)?, request)))
            .collect();
        self.state().write_batch(&checked?)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        let mut state = self.state();
        let (number, change) = (state.syncs, state.changes());
        state.syncs += 1;
        let plan = &state.plan;
        if plan.crash_at_sync == Some(number) || plan.crash_at_change == Some(change) {
            state.crashed = true;
        }
        if state.crashed {
            return Err(failure("sync", 0, 0, "the device lost power"));
        }
        if state.plan.failing_syncs.contains(&number) {
            state.fail_sync(number);
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
