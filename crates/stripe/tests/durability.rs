//! What is durable when a drive, or all, are started anew.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::sync::Arc;

use nasd_drive::Elsewhere;
use nasd_protocol::drive::{CreateArguments, ReadArguments, WriteArguments};
use nasd_stripe::{Components, VirtualDriveOptions};
use nasd_types::{ObjectName, PartitionId, SetAttributes};

use support::{MemoryDrives, MemoryKeeper, start};

const PARTITION: PartitionId = PartitionId(3);
const UNIT: usize = 4096;

/// The virtual drive's answer to a durable write is as though a flush of the object had followed.
#[test]
fn a_durable_write_makes_durable_what_was_written_before_on_other_drives() {
    for (width, copies) in [(1, 1), (3, 1), (4, 2), (2, 2)] {
        let drives = Arc::new(MemoryDrives::new(4, 1));
        let options = VirtualDriveOptions {
            unit: UNIT as u64,
            width,
            copies,
            ..VirtualDriveOptions::default()
        };
        let whole = start(&drives, &Arc::new(MemoryKeeper::default()), &options, 1);
        whole.create_partition(PARTITION).unwrap();
        let initial = SetAttributes::default();
        let create = CreateArguments { partition: PARTITION, object: None, durable: true, initial };
        let name =
            ObjectName { partition: PARTITION, object: whole.create(&create).unwrap().object };
        let write = |at: usize, length: usize, durable: bool| {
            let write = WriteArguments::single(name, at as u64, length, durable);
            whole.write(&write, &[&vec![7; length]]).unwrap();
        };
        write(0, 5 * UNIT, false);
        write(5 * UNIT, 10, true);
        drives.drives().into_iter().for_each(|drive| drives.restart(drive));
        let read = ReadArguments::single(name, 0, (6 * UNIT) as u64);
        let read = whole.read(&read).unwrap();
        assert!(read.data == vec![7; 5 * UNIT + 10], "{width}, {copies}");
    }
}
