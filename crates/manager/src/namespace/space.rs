//! `space`: how much the volume's drives hold and could still hold.

use std::sync::PoisonError;

use nasd_protocol::drive::PartitionControl;
use nasd_protocol::manager::SpaceInformation;
use nasd_types::DriveId;

use super::{Namespace, Outcome};

impl Namespace {
    /// Bytes of file contents that have passed a manager: none, ever. The program has no procedure
    /// that carries any, and of objects' data the manager reads and writes directories, the
    /// volume record and the intent log alone; it writes targets of symbolic links, which come
    /// with the call that makes the link. A test watches every call to the drives for it.
    pub const FILE_DATA_BYTES: u64 = 0;

    /// The sums over all drives, asked at the same time. A drive that is away counts as it last
    /// told.
    pub fn space(&self) -> Outcome<SpaceInformation> {
        let controls: Vec<Option<PartitionControl>> = std::thread::scope(|scope| {
            let ask = |drive: DriveId| scope.spawn(move || self.partition_control(drive));
            let asked: Vec<_> = self.objects.drives().into_iter().map(ask).collect();
            asked.into_iter().map(|answer| answer.join().ok().flatten()).collect()
        });
        let mut space = SpaceInformation { total_bytes: 0, free_bytes: 0, files: 0 };
        for control in controls.into_iter().flatten() {
            let total = control.summary.used_bytes.saturating_add(control.free_bytes);
            space.total_bytes = space.total_bytes.saturating_add(total);
            space.free_bytes = space.free_bytes.saturating_add(control.free_bytes);
            space.files = space.files.saturating_add(control.summary.objects);
        }
        Ok(space)
    }

    /// What a drive tells of the volume's partition, or told last.
    pub(super) fn partition_control(&self, drive: DriveId) -> Option<PartitionControl> {
        let told = self.objects.partition_control(drive);
        let mut known = self.controls.lock().unwrap_or_else(PoisonError::into_inner);
        match told {
            Ok(control) => {
                self.placement.refresh(drive, Some(control.free_bytes));
                known.insert(drive, control);
            }
            Err(error) => {
                tracing::debug!(%drive, %error, "no word about free space");
                self.placement.refresh(drive, None);
            }
        }
        known.get(&drive).copied()
    }
}
