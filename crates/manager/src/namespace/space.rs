//! `space`: how much the volume's drives hold and could still hold.

use std::sync::PoisonError;

use nasd_protocol::drive::PartitionControl;
use nasd_protocol::manager::{FileHandle, ManagerStatus, SpaceInformation};
use nasd_types::DriveId;
use nasd_types::limits::BLOCK_BYTES;

use super::{Namespace, Outcome};

/// A drive with less room gets no new names.
const ROOM_BYTES: u64 = 16 * BLOCK_BYTES as u64;

impl Namespace {
    /// The sums over all drives, asked at the same time. A drive that is away counts as it last
    /// told. What is to be removed is removed before: whoever is told that a drive is full asks here. Where files may have so many
    /// bytes altogether, these are all that there are, and what is set aside for somebody is not free.
    pub fn space(&self) -> Outcome<SpaceInformation> {
        // What can't be removed now is reported by housekeeping.
        let _ = self.remove_doomed();
        let controls: Vec<Option<PartitionControl>> = std::thread::scope(|scope| {
            let ask = |drive: DriveId| scope.spawn(move || self.partition_control(drive));
            let asked: Vec<_> = self.objects.drives().into_iter().map(ask).collect();
            asked.into_iter().map(|answer| answer.join().ok().flatten()).collect()
        });
        let mut space = SpaceInformation { total_bytes: 0, free_bytes: 0, files: 0, free_files: 0 };
        for control in controls.into_iter().flatten() {
            let total = control.summary.used_bytes.saturating_add(control.free_bytes);
            space.total_bytes = space.total_bytes.saturating_add(total);
            space.free_bytes = space.free_bytes.saturating_add(control.free_bytes);
            space.files = space.files.saturating_add(control.summary.objects);
            space.free_files = space.free_files.saturating_add(free_objects(&control));
        }
        let no_files = self.journal.ledger(|ledger| {
            let ahead: usize = ledger.ahead.values().map(|ahead| ahead.objects.len()).sum();
            ahead + ledger.doomed.len()
        });
        space.files = space.files.saturating_sub(no_files as u64);
        space.free_files = space.free_files.saturating_add(no_files as u64);
        if let Some((limit, free)) = self.quota_left() {
            space.total_bytes = limit;
            space.free_bytes = space.free_bytes.min(free);
        }
        Ok(space)
    }

    /// What a drive tells of the volume's partition, or told last.
    pub(super) fn partition_control(&self, drive: DriveId) -> Option<PartitionControl> {
        let told = self.objects.partition_control(drive);
        let mut known = self.controls.lock().unwrap_or_else(PoisonError::into_inner);
        match told {
            Ok(control) => {
                let takes_objects = free_objects(&control) > 0;
                let free_bytes = if takes_objects { control.free_bytes } else { 0 };
                self.placement.refresh(drive, Some(free_bytes));
                known.insert(drive, control);
            }
            Err(error) => {
                tracing::debug!(%drive, %error, "no word about free space");
                self.placement.refresh(drive, None);
            }
        }
        known.get(&drive).copied()
    }

    /// Requires that a directory's drive has room for another block of it when it comes home, as far as
    /// that drive has told.
    pub(super) fn require_room(&self, directory: FileHandle) -> Outcome<()> {
        let known = self.controls.lock().unwrap_or_else(PoisonError::into_inner);
        let free = known.get(&directory.drive).map(|control| control.free_bytes);
        if free.is_none_or(|free| free >= ROOM_BYTES) {
            Ok(())
        } else {
            Err(ManagerStatus::NoSpace)
        }
    }
}

/// How many objects more a drive has room for, about.
pub(super) fn free_objects(control: &PartitionControl) -> u64 {
    control.objects_supported.saturating_sub(control.summary.objects)
}
