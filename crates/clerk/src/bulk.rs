//! The bulk way to a file: what whoever moves its bytes himself needs, and what the clerk does as long as somebody may.
//!
//! His transfers don't come by here. So that all who use the file by this clerk see the same all the same, what they write
//! goes to the drives at once while he may read, and nothing that was read before is shown while he may write.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nasd_bulk_service::client::{Way, WayComponent};
use nasd_capability::Narrowing;
use nasd_client::{Authority, DriveClient};
use nasd_types::Rights;

use crate::ClerkError;
use crate::core::Core;
use crate::file::FileState;
use crate::grants::Slot;
use crate::open_file::OpenMode;
use crate::wire::FileAttributes;

/// How many openings of a file have a bulk way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BulkUses {
    /// For reading or writing.
    all: u32,
    /// For writing.
    writing: u32,
}

impl BulkUses {
    /// Whether somebody may read the file past this clerk.
    pub(crate) fn any(self) -> bool {
        self.all > 0
    }

    /// Whether somebody may change the file past this clerk.
    pub(crate) fn may_change(self) -> bool {
        self.writing > 0
    }
}

/// That an opening has a bulk way, until it is dropped.
pub(crate) struct BulkUse {
    core: Arc<Core>,
    file: Arc<FileState>,
    mode: OpenMode,
}

impl BulkUse {
    /// What was written here is with the drives, durably if it could be sent again over what he writes, when this returns.
    ///
    /// # Errors
    ///
    /// `Interrupted`; other failures are kept for those who wrote.
    pub(crate) fn begin(
        core: &Arc<Core>,
        file: &Arc<FileState>,
        mode: OpenMode,
    ) -> Result<BulkUse, ClerkError> {
        let mut inner = file.lock();
        inner.bulk.all += 1;
        inner.bulk.writing += u32::from(mode.write);
        drop(inner);
        let begun = BulkUse { core: Arc::clone(core), file: Arc::clone(file), mode };
        let settled = match mode.write {
            true => file.sync(core),
            false => file.drain(core),
        };
        match settled {
            Err(ClerkError::Interrupted) => Err(ClerkError::Interrupted),
            _ => Ok(begun),
        }
    }
}

impl BulkUse {
    pub(crate) fn may_write(&self) -> bool {
        self.mode.write
    }
}

impl Drop for BulkUse {
    fn drop(&mut self) {
        let mut inner = self.file.lock();
        if self.mode.write {
            inner.was_changed_elsewhere(&self.core);
        }
        inner.bulk.all -= 1;
        inner.bulk.writing -= u32::from(self.mode.write);
        drop(inner);
        if self.mode.write {
            self.core.expire(self.file.handle);
        }
    }
}

impl FileState {
    /// Somebody has changed the file past this clerk: how it is now.
    pub(crate) fn look_at_bulk_changes(
        self: &Arc<Self>,
        core: &Arc<Core>,
        slot: &Slot,
    ) -> Result<FileAttributes, ClerkError> {
        self.lock().was_changed_elsewhere(core);
        core.expire(self.handle);
        core.getattr(&slot.caller, self.handle, Duration::ZERO)
    }
}

/// The way to an object that is on one drive.
pub(crate) fn way_to_one(
    drive: &DriveClient,
    authority: &Authority,
    mode: OpenMode,
) -> Option<Way> {
    let component = way_component(drive, authority, mode)?;
    Some(Way { unit: 0, components: vec![component] })
}

/// The way to one component. It allows no more than the opening: who has that may be another one than whom the capability is for.
pub(crate) fn way_component(
    drive: &DriveClient,
    authority: &Authority,
    mode: OpenMode,
) -> Option<WayComponent> {
    let allowed = authority.as_capability()?;
    let mut wanted = mode.rights() | Rights::GETATTR;
    if mode.write {
        wanted |= Rights::FLUSH;
    }
    let by = Narrowing { rights: allowed.rights & wanted, ..Narrowing::of(&allowed) };
    let here = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ahead = i128::from(drive.drive_time().0) - here.as_nanos().cast_signed();
    Some(WayComponent {
        address: drive.address().to_owned(),
        clock_ahead_ns: i64::try_from(ahead).unwrap_or(0),
        protection: authority.protection(),
        delegated: authority.narrowed(by).ok()?.to_delegated()?,
    })
}
