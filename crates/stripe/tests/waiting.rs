//! A component drive that does not answer: who does not need it does not wait for it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, mpsc::RecvTimeoutError};
use std::time::Duration;

use nasd_capability::SecretKey;
use nasd_drive::Elsewhere;
use nasd_protocol::drive::CreateArguments;
use nasd_stripe::{Arrangement, Components, Role, VirtualDrive, VirtualDriveOptions};
use nasd_types::{DriveId, PartitionId, SetAttributes};

use support::{MemoryDrives, MemoryKeeper};

const PARTITION: PartitionId = PartitionId(3);

/// Whoever takes longer waits for the drive.
const LONG: Duration = Duration::from_secs(20);

struct Cell {
    drives: Arc<MemoryDrives>,
    whole: VirtualDrive,
}

impl Cell {
    /// Three drives, each object on two of them, without copies.
    fn new() -> Cell {
        let drives = Arc::new(MemoryDrives::new(3, 1));
        let options = VirtualDriveOptions { width: 2, copies: 1, ..VirtualDriveOptions::default() };
        let components = Arc::clone(&drives);
        let whole = VirtualDrive::start(
            move |_| components as Arc<dyn Components>,
            Arc::new(MemoryKeeper::default()),
            options,
            (1, SecretKey::new([1; 32])),
        );
        let whole = whole.unwrap();
        whole.create_partition(PARTITION).unwrap();
        for _ in 0..10 {
            let initial = SetAttributes::default();
            let create =
                CreateArguments { partition: PARTITION, object: None, durable: true, initial };
            whole.create(&create).unwrap();
        }
        Cell { drives, whole }
    }

    /// Looks at the drives, and does what follows from that, with one of them drained.
    fn drain(&self, drive: DriveId) {
        let roles = BTreeMap::from([(drive, Role::Leaving)]);
        self.whole.set_arrangement(Arrangement { roles, ..Arrangement::default() });
        for known in self.drives.drives() {
            self.whole.heard(known, self.drives.sign(known), self.drives.now());
        }
        self.whole.watch(self.drives.now());
        self.whole.arrange(self.drives.now());
    }

    /// Places that a drive has, and that it is about to have.
    fn places(&self, drive: DriveId) -> (u32, u32) {
        let status = self.whole.component_status();
        let its = status.into_iter().find(|status| status.drive == drive).unwrap();
        (its.places, its.places_coming)
    }
}

fn hears<T>(from: &Receiver<T>) -> T {
    match from.recv_timeout(LONG) {
        Ok(told) => told,
        Err(RecvTimeoutError::Timeout) => panic!("it waits for the drive"),
        Err(RecvTimeoutError::Disconnected) => panic!("it has failed"),
    }
}

#[test]
fn who_asks_how_far_moves_are_or_gives_them_up_waits_for_no_drive() {
    let (from, other) = (DriveId(1), DriveId(2));
    let cell = Cell::new();
    cell.drain(from);
    assert!(cell.places(other).1 > 0, "there is nothing to move");
    cell.drives.set_silent(from, true);
    std::thread::scope(|scope| {
        let (told, heard) = channel();
        scope.spawn(|| cell.whole.rebuild());
        cell.drives.wait_until_somebody_waits();
        scope.spawn(|| {
            let before = cell.places(other);
            // What was on its way there is given up.
            cell.drain(other);
            told.send((before, cell.places(other))).unwrap();
            drop(told);
        });
        let outcome = std::panic::catch_unwind(|| hears(&heard));
        cell.drives.set_silent(from, false);
        let (before, after) = outcome.unwrap();
        assert!(before.1 > 0 && after.1 == 0, "{before:?} {after:?}");
    });
    // What was found out for the moves that were given up is not used for others.
    for _ in 0..4 {
        cell.drain(from);
        while cell.whole.rebuild().is_some() {}
    }
    assert_eq!(cell.places(from), (0, 0));
}
