//! `mint` and `revoke`: capabilities that are handed on, and taken back.

use nasd_protocol::manager::{
    FileHandle, FileType, IssuedCapability, ManagerStatus, MintArguments,
};
use nasd_types::{Rights, SetAttributes};

use super::{Namespace, Outcome, failure};
use crate::caller::Caller;
use crate::file_record::FileRecord;
use crate::locks::Wants;
use crate::objects::Wait;
use crate::permission;

/// All that can be handed on. What is left to the manager (attributes, names) it keeps for itself.
const SHAREABLE: Rights =
    Rights::READ.union(Rights::WRITE).union(Rights::GETATTR).union(Rights::FLUSH);

impl Namespace {
    /// A capability for what the caller asks for, within what he may do. It lives as long as he
    /// asks, but no longer than working keys do.
    pub fn mint(&self, caller: &Caller, asked: &MintArguments) -> Outcome<IssuedCapability> {
        let _held = self.hold(Wants::new().read(asked.file));
        let (record, attributes) = self.fresh(asked.file)?;
        let version = attributes.access_control_version;
        if self.has_callbacks() && asked.rights.contains(Rights::WRITE) {
            // Nobody would be told of what is written by it.
            return Err(ManagerStatus::NotSupported);
        }
        let allowed = self.given_rights(permission::rights(&record, caller), version);
        require_shareable(&record, allowed, asked)?;
        self.minted(asked.file.drive, |drive| self.mint.issue_asked(asked, version, caller, drive))
    }

    /// The longest lifetime of what [`mint`](Self::mint) gives, in nanoseconds.
    pub fn longest_lifetime_ns(&self) -> u64 {
        self.mint.longest_ns()
    }

    /// Makes every capability of a file useless, by the next access control version, durably. Whoever
    /// may use the file gets a new one from the manager.
    pub fn revoke(&self, caller: &Caller, file: FileHandle) -> Outcome<()> {
        let _held = self.hold(Wants::new().write(file));
        if !permission::is_owner(&self.record(file)?, caller) {
            return Err(ManagerStatus::Permission);
        }
        let (_, attributes) = self.fresh(file)?;
        let Some(version) = self.revoking_version(attributes.access_control_version)? else {
            return Ok(());
        };
        let set =
            SetAttributes { access_control_version: Some(version), ..SetAttributes::default() };
        self.objects.setattr(file, &set, true, Wait::Patient).map_err(|error| {
            self.forget(file);
            failure("revoke the capabilities", file, &error)
        })?;
        self.told.forget(file);
        Ok(())
    }
}

/// The same rights as for opening the file; and only what somebody without the manager can use.
fn require_shareable(
    record: &FileRecord,
    allowed: Rights,
    asked: &MintArguments,
) -> Result<(), ManagerStatus> {
    match record.file_type {
        FileType::Regular => {}
        FileType::Directory => return Err(ManagerStatus::IsDirectory),
        _ => return Err(ManagerStatus::Invalid),
    }
    let region = asked.region();
    let makes_sense = !asked.rights.is_empty()
        && SHAREABLE.contains(asked.rights)
        && !region.is_empty()
        && region.offset.checked_add(region.length).is_some()
        && asked.lifetime > 0;
    if !makes_sense {
        return Err(ManagerStatus::Invalid);
    }
    if allowed.contains(asked.rights) { Ok(()) } else { Err(ManagerStatus::Access) }
}
