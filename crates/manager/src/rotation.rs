//! Changes working keys: on a schedule, and when an administrator asks for it.
//!
//! No holder of a capability notices one change, since drives take capabilities of the present
//! working key and of the one before; and a file is only ever open for as long as its capability is
//! good, or a new one to be had. Two changes at once make everything given out before worthless. A
//! drive that is away is tried again until it has its key, while the others go on.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nasd_protocol::manager::WorkingKeyState;
use nasd_types::DriveId;

use crate::keys::{AT_ONCE, ChangeError};
use crate::objects::remote::{RemoteDrives, now};

/// The changes of a volume's working keys.
#[derive(Debug)]
pub(crate) struct Rotation {
    drives: Arc<RemoteDrives>,
    interval: Option<Duration>,
}

impl Rotation {
    /// Changes keys older than `interval`.
    pub(crate) fn new(drives: Arc<RemoteDrives>, interval: Option<Duration>) -> Rotation {
        Rotation { drives, interval }
    }

    /// Changes every key that is due.
    pub(crate) fn tend(&self) {
        let keys = self.drives.keys();
        let is_due = |drive: &DriveId| {
            keys.kept(*drive).is_some_and(|kept| kept.is_due(self.interval, now()))
        };
        self.change(keys.drives().into_iter().filter(is_due).collect());
    }

    /// Changes every key, with `at_once` so that no capability given out before stays good. A
    /// drive that can't be reached gets its keys later, also from the next manager.
    ///
    /// # Errors
    /// Where this could not be noted durably for every drive; some may have been changed.
    pub(crate) fn rotate(&self, at_once: bool) -> Result<Vec<WorkingKeyState>, ChangeError> {
        let keys = self.drives.keys();
        for drive in keys.drives() {
            keys.owe(drive, if at_once { AT_ONCE } else { 1 })?;
        }
        let changed = self.change(keys.drives());
        let state = |(drive, done): (DriveId, bool)| {
            let epoch = keys.kept(drive).map_or(0, |kept| kept.current.epoch);
            WorkingKeyState { drive, epoch, done }
        };
        Ok(changed.into_iter().map(state).collect())
    }

    /// All at the same time, so that those that are away delay the others once.
    fn change(&self, drives: Vec<DriveId>) -> Vec<(DriveId, bool)> {
        thread::scope(|scope| {
            let change = |drive: DriveId| (drive, scope.spawn(move || self.change_one(drive)));
            let changing: Vec<_> = drives.into_iter().map(change).collect();
            let done = changing.into_iter().map(|(drive, done)| (drive, done.join()));
            done.map(|(drive, done)| (drive, done.unwrap_or(false))).collect()
        })
    }

    fn change_one(&self, drive: DriveId) -> bool {
        match self.drives.change_key(drive) {
            Ok(()) => {
                let epoch = self.drives.keys().kept(drive).map_or(0, |kept| kept.current.epoch);
                tracing::info!(%drive, epoch, "changed the working key");
                true
            }
            Err(error) => {
                tracing::warn!(%drive, %error, "the working key is not changed yet");
                false
            }
        }
    }
}
