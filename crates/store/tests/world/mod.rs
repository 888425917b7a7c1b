//! A drive, a model of it, and random work on both with every operation of the store.
// Each test uses a part of this; and a test that fails by panicking is a test that fails.
#![allow(dead_code, unused_imports, clippy::unwrap_used, clippy::expect_used)]

mod appends;
mod copies;
mod history;
mod operations;
mod recorder;

use std::sync::{Arc, Mutex, MutexGuard};

use nasd_check::{Options, check};
use nasd_device::{BlockDevice, FaultPlan, FaultyDevice, Image};
use nasd_store::{FormatOptions, OpenOptions, Store, StoreError};
use nasd_types::{ObjectId, PartitionId};

pub use history::{Content, Histories, State, finish_removals, read_object};
pub use operations::{Mix, World};
pub use recorder::{Picture, Recorder};

use crate::common::*;

/// A freshly formatted drive, and what it holds.
pub fn formatted(capacity: u64, options: &FormatOptions) -> (Image, Histories) {
    let device = Arc::new(FaultyDevice::zeroed(capacity));
    Store::format(device.clone(), options).unwrap();
    let mut histories = Histories::default();
    for partition in &options.partitions {
        let settings = (partition.quota_bytes, Some(partition.key_epoch));
        histories.partitions.insert(partition.id, vec![Some(settings)]);
        let first = name(partition.id, ObjectId::FIRST_OBJECT.0);
        histories.objects.insert(first, vec![Some(Content::empty())]);
    }
    histories.master = vec![options.master_key.as_ref().map(|key| key.expose()[0])];
    (device.live(), histories)
}

/// The checker, which shares no code with the store, finds nothing.
pub fn assert_clean(image: &Image, when: &str) {
    let device: Arc<dyn BlockDevice> =
        Arc::new(FaultyDevice::over(image.clone(), FaultPlan::default()));
    let report = check(&device, &Options::default(), &mut |_| {});
    let broken = report.has(nasd_check::Severity::Damage);
    assert!(!broken, "{when}: {report}");
}

/// An open that must succeed.
pub fn reopen(image: &Image, options: &OpenOptions) -> (Arc<FaultyDevice>, Store) {
    let device = Arc::new(FaultyDevice::over(image.clone(), FaultPlan::default()));
    let store = Store::open(device.clone(), options).unwrap();
    (device, store)
}

/// Everything that must hold after a crash, and that work goes on.
pub fn survive(picture: &Picture, options: &OpenOptions, mix: Mix) {
    let Picture { change, seed, image, histories } = picture;
    assert_clean(image, &format!("crash at change {change}, seed {seed}, before an open"));
    let (device, store) = reopen(image, options);
    let mut world = World::new(histories.clone(), *seed, mix);
    world.histories().settle_flushed(&store);
    world.go_on_appending(&store).unwrap();
    world.append_again(&store).unwrap();
    for _ in 0..12 {
        world.step(&store).unwrap();
    }
    store.flush_all().unwrap();
    world.histories().all_durable();
    let durable = world.histories().clone();
    // Without an orderly close.
    device.crash();
    drop(store);
    let image = device.survivor(*seed);
    assert_clean(&image, &format!("crash at change {change}, seed {seed}, after more work"));
    let (_, store) = reopen(&image, options);
    durable.clone().settle_flushed(&store);
    store.close().unwrap();
}

/// Whether everything is to be tried, however long it takes.
pub fn long_tests() -> bool {
    std::env::var_os("NASD_LONG_TESTS").is_some()
}
