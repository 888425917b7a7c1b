//! A store on a raw block device: a loop device over a file, which the test makes.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions as FileOpenOptions};
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use nasd_check::{Options, Outcome, check};
use nasd_device::{AlignedBuffer, BlockDevice, DeviceError, FileDevice, FileOptions, SECTOR_BYTES};
use nasd_store::Store;
use nasd_types::{ByteRange, ObjectName};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const CAPACITY: u64 = 64 * MIB;

/// A loop device, which the kernel detaches when nobody has it open any more: so it goes with this,
/// and with the process if that is killed.
struct LoopDevice {
    node: PathBuf,
    _open: File,
    _folder: TempDir,
}

impl LoopDevice {
    /// `None`, and the reason said, where this process can't have one.
    fn new() -> Option<LoopDevice> {
        let control = "/dev/loop-control";
        if let Err(error) = FileOpenOptions::new().read(true).write(true).open(control) {
            eprintln!("not tested, for want of a loop device: {control}: {error}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("medium");
        File::create(&file).unwrap().set_len(CAPACITY).unwrap();
        let node = PathBuf::from(losetup(&["--find".as_ref(), "--show".as_ref(), &file]));
        let open = File::open(&node);
        // Does not happen before it is closed, if it could be opened.
        losetup(&["--detach".as_ref(), &node]);
        Some(LoopDevice { node, _open: open.unwrap(), _folder: folder })
    }

    /// As a drive opens it. Where udev runs, it looks at a device after everybody who wrote to it, and
    /// has it locked meanwhile.
    fn open(&self) -> Arc<FileDevice> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match FileDevice::open(&self.node, FileOptions::default()) {
                Err(DeviceError::InUse { .. }) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                opened => return Arc::new(opened.unwrap()),
            }
        }
    }

    fn assert_in_use(&self) {
        let error = FileDevice::open(&self.node, FileOptions::default()).unwrap_err();
        assert!(matches!(&error, DeviceError::InUse { path } if *path == self.node), "{error}");
    }

    /// The checker, which shares no code with the store, finds nothing.
    fn assert_clean(&self) {
        let device: Arc<dyn BlockDevice> = self.open();
        let report = check(&device, &Options::default().with_data(true), &mut |_| {});
        assert_eq!(report.outcome(), Outcome::Clean, "{report}");
    }
}

/// What the command printed.
fn losetup(arguments: &[&Path]) -> String {
    let output = Command::new("losetup").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_block_device_is_held_alone() {
    let Some(medium) = LoopDevice::new() else { return };
    let device = medium.open();
    assert!(device.is_direct());
    assert_eq!(device.capacity(), CAPACITY);
    medium.assert_in_use();
    let mut buffer = AlignedBuffer::zeroed(SECTOR_BYTES);
    buffer.fill(7);
    let last = device.capacity() - SECTOR_BYTES as u64;
    device.write(last, &[IoSlice::new(&buffer)]).unwrap();
    device.sync().unwrap();
    drop(device);
    let device = medium.open();
    buffer.fill(0);
    device.read(last, &mut [IoSliceMut::new(&mut buffer)]).unwrap();
    assert!(buffer.iter().all(|&byte| byte == 7));
    let end = device.read(CAPACITY, &mut [IoSliceMut::new(&mut buffer)]).unwrap_err();
    assert!(matches!(end, DeviceError::OutOfBounds { .. }), "{end}");
}

/// A mount holds its device so, and does not lock it.
#[test]
fn a_block_device_that_the_kernel_holds_is_refused() {
    let Some(medium) = LoopDevice::new() else { return };
    let mut exclusive = FileOpenOptions::new();
    let mounted = exclusive.read(true).custom_flags(libc::O_EXCL).open(&medium.node).unwrap();
    medium.assert_in_use();
    drop(mounted);
    drop(medium.open());
    let error = FileDevice::resize(&medium.node, 2 * CAPACITY).unwrap_err();
    assert!(matches!(error, DeviceError::FixedSize { .. }), "{error}");
}

/// Large objects and small ones, some overwritten in places and some removed.
fn work(store: &Store, random: &mut Random, model: &mut BTreeMap<ObjectName, Vec<u8>>) {
    for index in 0..40 {
        let object = create(store, if index % 3 == 0 { P2 } else { P1 });
        let length = 1 + random.below(if index % 4 == 0 { 900_000 } else { 20_000 });
        let bytes = random.bytes(length as usize);
        write(store, object, 0, &bytes).unwrap();
        model.insert(object, bytes);
    }
    let objects: Vec<ObjectName> = model.keys().copied().collect();
    for _ in 0..60 {
        let Some(&object) = random.pick(&objects) else { return };
        let Some(expected) = model.get_mut(&object) else { continue };
        if random.below(8) == 0 {
            store.remove(object).unwrap();
            model.remove(&object);
            continue;
        }
        let offset = random.below(expected.len() as u64) as usize;
        let length = 1 + random.below(9000) as usize;
        let bytes = random.bytes(length.min(expected.len() - offset));
        write_frames(store, object, offset as u64, &bytes).unwrap();
        expected[offset..offset + bytes.len()].copy_from_slice(&bytes);
    }
}

fn assert_holds(store: &Store, model: &BTreeMap<ObjectName, Vec<u8>>) {
    let found = everything(store);
    for (name, bytes) in model {
        assert!(found.get(name) == Some(bytes), "{name:?} is another");
    }
    // Each partition has its first object besides, and it is empty.
    let others = found.iter().filter(|(name, _)| !model.contains_key(name));
    assert!(others.into_iter().all(|(_, bytes)| bytes.is_empty()));
}

#[test]
fn a_store_on_a_block_device_keeps_what_was_flushed() {
    let Some(medium) = LoopDevice::new() else { return };
    let cache = small_cache(64);
    Store::format(medium.open(), &format_options()).unwrap();
    medium.assert_clean();
    let mut random = Random(1);
    let mut model = BTreeMap::new();
    for closes in [false, true, false] {
        let store = open(medium.open(), &cache);
        medium.assert_in_use();
        assert_holds(&store, &model);
        work(&store, &mut random, &mut model);
        store.flush_all().unwrap();
        assert_holds(&store, &model);
        check_space(&store);
        // One that was not closed has its log to replay.
        if closes {
            store.close().unwrap();
        } else {
            drop(store);
        }
        medium.assert_clean();
    }
    let store = open(medium.open(), &cache);
    // By many transfers at once.
    let mut prefetch = store.prefetch();
    for (tag, &name) in model.keys().enumerate() {
        if let Some(located) = store.locate(name).unwrap() {
            prefetch.want(tag, &located, ByteRange::new(0, 64 << 10));
        }
    }
    prefetch.come(model.len());
    drop(prefetch);
    assert_holds(&store, &model);
    store.close().unwrap();
    medium.assert_clean();
}
