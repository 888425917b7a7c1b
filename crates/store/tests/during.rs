//! What happens while something else is under way, made to happen every time: a device that calls
//! back in the middle of its transfers. While a flush writes, syncs or commits, objects are written,
//! cut, removed and read; while blocks are read, other reads push frames out of the cache.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use common::*;
use nasd_device::{BlockDevice, DeviceError, FaultPlan, FaultyDevice};
use nasd_store::{Store, StoreError};
use nasd_types::{ByteRange, Compression, ObjectName, Timestamp};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Read,
    /// After it, with what was read not looked at yet.
    HaveRead,
    Write,
    Sync,
}

type Hook = Box<dyn FnMut(Event) + Send>;

/// A device that calls back around each transfer, unless it was called from a call-back.
struct HookDevice {
    inner: Arc<FaultyDevice>,
    hook: Mutex<Option<Hook>>,
    busy: AtomicBool,
}

impl HookDevice {
    fn call(&self, event: Event) {
        if self.busy.swap(true, Ordering::SeqCst) {
            return;
        }
        if let Some(hook) = self.hook.lock().unwrap().as_mut() {
            hook(event);
        }
        self.busy.store(false, Ordering::SeqCst);
    }

    fn set(&self, hook: Option<Hook>) {
        *self.hook.lock().unwrap() = hook;
    }
}

impl fmt::Debug for HookDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HookDevice")
    }
}

impl BlockDevice for HookDevice {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn read(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        self.call(Event::Read);
        let read = self.inner.read(offset, into);
        self.call(Event::HaveRead);
        read
    }

    fn write(&self, offset: u64, from: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        self.call(Event::Write);
        self.inner.write(offset, from)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.call(Event::Sync);
        self.inner.sync()
    }
}

fn hooked(capacity: u64, frames: usize) -> (Arc<HookDevice>, Arc<Store>) {
    let inner = Arc::new(FaultyDevice::zeroed(capacity));
    Store::format(inner.clone(), &format_options()).unwrap();
    let device =
        Arc::new(HookDevice { inner, hook: Mutex::new(None), busy: AtomicBool::new(false) });
    let store = Arc::new(open(device.clone(), &small_cache(frames)));
    (device, store)
}

/// What the test and its call-back both know.
struct Shared {
    store: Weak<Store>,
    model: BTreeMap<ObjectName, Vec<u8>>,
    random: Random,
}

impl Shared {
    /// A change or a read that never flushes by itself.
    fn step(&mut self) {
        let Some(store) = self.store.upgrade() else {
            return;
        };
        let names: Vec<ObjectName> = self.model.keys().copied().collect();
        let Some(&name) = self.random.pick(&names) else {
            return;
        };
        match self.random.below(13) {
            0 => {
                self.model.insert(create(&store, P1), Vec::new());
            }
            1 if names.len() > 3 => {
                store.remove(name).unwrap();
                self.model.remove(&name);
            }
            2..=4 => {
                let size = self.random.below(200_000);
                set_size(&store, name, size).unwrap();
                self.model.get_mut(&name).unwrap().resize(size as usize, 0);
            }
            5..=9 => {
                let offset = self.random.below(150_000);
                let length = 1 + self.random.below(30_000);
                let mut bytes = self.random.bytes(length as usize);
                if self.random.below(3) > 0 {
                    // Some that compresses.
                    let period = 50 + self.random.below(8000) as usize;
                    (period..bytes.len()).for_each(|at| bytes[at] = bytes[at - period]);
                }
                write(&store, name, offset, &bytes).unwrap();
                let model = self.model.get_mut(&name).unwrap();
                let end = (offset + length) as usize;
                model.resize(model.len().max(end), 0);
                model[offset as usize..end].copy_from_slice(&bytes);
            }
            10 => {
                let (offset, length) = (self.random.below(150_000), self.random.below(30_000));
                store.punch(name, ByteRange::new(offset, length), Timestamp(5)).unwrap();
                let model = self.model.get_mut(&name).unwrap();
                let start = model.len().min(offset as usize);
                let end = model.len().min((offset + length) as usize);
                model[start..end].fill(0);
            }
            _ => assert!(contents(&store, name).unwrap() == self.model[&name], "{name} differs"),
        }
    }

    fn check(&mut self) {
        let Some(store) = self.store.upgrade() else {
            return;
        };
        for (name, expected) in &self.model {
            assert!(contents(&store, *name).unwrap() == *expected, "{name} differs");
        }
    }
}

/// Flushes while objects change, with data writes failing now and then if asked.
fn changes_during_flushes(seed: u64, failing: bool) {
    println!("seed {seed}");
    let (device, store) = hooked(128 << 20, 1024);
    compress(&store, [Compression::None, Compression::Lz4, Compression::Zstd][seed as usize % 3]);
    let mut random = Random(seed);
    // Identifiers are had first, so that no create in a call-back has to wait for a commit.
    let model = (0..4).map(|_| (create(&store, P1), Vec::new())).collect();
    store.flush_all().unwrap();
    let shared = Shared { store: Arc::downgrade(&store), model, random: Random(seed + 1) };
    let shared = Arc::new(Mutex::new(shared));
    for round in 0..60 {
        for _ in 0..random.below(6) {
            shared.lock().unwrap().step();
        }
        if failing && random.below(3) == 0 {
            // A checkpoint brings home what the log has; if that fails, the store is read-only.
            store.checkpoint().unwrap();
            let unwritable = 9 << 20..128 << 20;
            device.inner.set_plan(FaultPlan { unwritable, ..FaultPlan::default() });
        }
        let (in_hook, mut choice) = (shared.clone(), Random(seed ^ round));
        device.set(Some(Box::new(move |event| {
            if matches!(event, Event::Write | Event::Sync) && choice.below(2) == 0 {
                (0..1 + choice.below(5)).for_each(|_| in_hook.lock().unwrap().step());
            }
        })));
        let flushed = store.flush_all();
        device.set(None);
        assert!(matches!(flushed, Ok(()) | Err(StoreError::Medium(_))), "{flushed:?}");
        assert!(failing || flushed.is_ok());
        device.inner.set_plan(FaultPlan::default());
        shared.lock().unwrap().check();
        if round % 4 == 3 {
            store.flush_all().unwrap();
            check_space(&store);
        }
    }
    store.flush_all().unwrap();
    check_space(&store);
    drop(store);
    let store = Arc::new(open(device, &small_cache(64)));
    let mut shared = shared.lock().unwrap();
    shared.store = Arc::downgrade(&store);
    shared.check();
    check_space(&store);
}

#[test]
fn changes_while_a_flush_is_under_way_are_kept() {
    (0..9).for_each(|seed| changes_during_flushes(seed, false));
}

#[test]
fn changes_while_a_flush_fails_are_kept() {
    (100..109).for_each(|seed| changes_during_flushes(seed, true));
}

#[test]
fn frames_that_go_while_others_are_read_take_nothing_with_them() {
    let (device, store) = hooked(64 << 20, 48);
    let mut random = Random(9);
    let noise = create(&store, P2);
    for frame in 0..64 {
        write(&store, noise, frame << 16, &[frame as u8; 1 << 16]).unwrap();
    }
    let object = create(&store, P1);
    let mut model = random.bytes(20 << 16);
    for (frame, bytes) in (0..).zip(model.chunks(1 << 16)) {
        write(&store, object, frame << 16, bytes).unwrap();
    }
    store.flush_all().unwrap();
    let weak = Arc::downgrade(&store);
    let mut place = 0;
    device.set(Some(Box::new(move |event| {
        let Some(store) = weak.upgrade().filter(|_| event == Event::Read) else {
            return;
        };
        // Twice over, so that frames in the main queue go too.
        for _ in 0..96 {
            place = (place + 1) % 64;
            store.read(noise, ByteRange::new(place << 16, 1 << 16)).unwrap();
        }
    })));
    for _ in 0..400 {
        // A block here and there, so that frames are there in part, and then more of them.
        let offset = random.below(19 << 16);
        let length = 1 + random.below(40_000);
        if random.below(3) == 0 {
            let bytes = random.bytes(length as usize);
            write(&store, object, offset, &bytes).unwrap();
            model[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            store.flush(&[object]).unwrap();
        }
        let data = store.read(object, ByteRange::new(offset, length)).unwrap();
        assert!(data.to_vec() == model[offset as usize..][..length as usize]);
    }
    device.set(None);
    assert!(contents(&store, object).unwrap() == model);
}

/// What is done to an object while a prefetch reads of it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Nothing,
    Overwrite,
    OverwriteOneBlock,
    Punch,
    CutAndExtend,
    Remove,
}

impl Change {
    /// Makes it durable, and what was there before is free.
    fn make(self, store: &Store, object: ObjectName, newer: &[u8]) {
        match self {
            Change::Nothing => return,
            Change::Overwrite => _ = write(store, object, 0, newer).unwrap(),
            Change::OverwriteOneBlock => {
                write(store, object, 5 * 4096, &newer[5 * 4096..][..4096]).unwrap();
            }
            Change::Punch => {
                store.punch(object, ByteRange::new(0, 1 << 16), Timestamp(9)).unwrap();
            }
            Change::CutAndExtend => {
                set_size(store, object, 3).unwrap();
                set_size(store, object, 20 * 4096).unwrap();
            }
            Change::Remove => store.remove(object).unwrap(),
        }
        store.flush_all().unwrap();
        store.checkpoint().unwrap();
    }

    fn apply(self, model: &mut [u8], newer: &[u8]) {
        let block = 5 * 4096..6 * 4096;
        match self {
            Change::Nothing | Change::Remove => {}
            Change::Overwrite => model.copy_from_slice(newer),
            Change::OverwriteOneBlock => model[block.clone()].copy_from_slice(&newer[block]),
            Change::Punch => model[..1 << 16].fill(0),
            Change::CutAndExtend => model[3..].fill(0),
        }
    }
}

/// Pushes everything else out of the cache.
fn forget(store: &Store, noise: ObjectName) {
    for place in (0..96).chain(0..96) {
        store.read(noise, ByteRange::new(place << 16, 1 << 16)).unwrap();
    }
}

fn prefetch_during(event: Event, change: Change) {
    let (device, store) = hooked(16 << 20, 48);
    let mut random = Random(7);
    let object = create(&store, P1);
    let mut model = random.bytes(20 * 4096);
    write(&store, object, 0, &model).unwrap();
    let noise = create(&store, P2);
    for part in 0..12 {
        write(&store, noise, part << 19, &random.bytes(1 << 19)).unwrap();
    }
    store.flush_all().unwrap();
    forget(&store, noise);
    let newer = random.bytes(20 * 4096);
    let (weak, bytes) = (Arc::downgrade(&store), newer.clone());
    let mut done = false;
    device.set(Some(Box::new(move |now| {
        let Some(store) = weak.upgrade().filter(|_| now == event && !done) else {
            return;
        };
        done = true;
        change.make(&store, object, &bytes);
        // Into the places that are free now.
        write(&store, noise, 0, &[7; 1 << 19]).unwrap();
        store.flush_all().unwrap();
        forget(&store, noise);
    })));
    let located = store.locate(object).unwrap().unwrap();
    let wanted = ByteRange::new(5 * 4096, 4096);
    let mut prefetch = store.prefetch();
    prefetch.want(1, &located, wanted);
    assert_eq!(prefetch.come(1), [1]);
    device.set(None);
    change.apply(&mut model, &newer);
    // What was cut off needs no reading.
    if change != Change::CutAndExtend {
        let is_cached = store.is_cached(object, wanted);
        assert_eq!(is_cached, change == Change::Nothing, "{event:?}, {change:?}");
    }
    match store.read(object, ByteRange::new(0, 20 * 4096)) {
        Ok(read) => assert!(read.to_vec() == model, "{event:?}, {change:?}"),
        Err(error) => assert!(change == Change::Remove, "{event:?}, {change:?}: {error}"),
    }
}

/// A prefetch holds no lock while it reads. Whatever is done to the object meanwhile, and even if the
/// blocks that it reads are another object's by then, nobody sees what was there before.
#[test]
fn what_a_prefetch_brings_too_late_is_not_taken() {
    for event in [Event::Read, Event::HaveRead] {
        for change in [
            Change::Nothing,
            Change::Overwrite,
            Change::OverwriteOneBlock,
            Change::Punch,
            Change::CutAndExtend,
            Change::Remove,
        ] {
            prefetch_during(event, change);
        }
    }
}
