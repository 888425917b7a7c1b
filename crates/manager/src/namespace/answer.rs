//! What is told of a file: its attributes as POSIX has them, and the caller's capability.

use nasd_protocol::manager::{Extended, File, FileAttributes, FileHandle, ManagerStatus};
use nasd_types::{Attributes, DriveId};

use super::{Namespace, Outcome};
use crate::caller::Caller;
use crate::file_record::FileRecord;
use crate::mint::DriveState;
use crate::permission;

impl Namespace {
    /// The answer about a file whose record and attributes are at hand. For a directory, the
    /// caller holds its lock.
    pub(super) fn file(
        &self,
        caller: &Caller,
        handle: FileHandle,
        record: &FileRecord,
        attributes: &Attributes,
    ) -> Outcome<File> {
        let links = match record.is_directory() {
            true => self.directory_links(handle)?,
            false => record.links,
        };
        let rights = permission::rights(record, caller);
        let version = attributes.access_control_version;
        let drive = self.drive_state(handle.drive);
        let capability =
            self.mint.issue(handle, version, rights, caller, drive).ok_or(ManagerStatus::Stale)?;
        Ok(File { handle, attributes: file_attributes(record, attributes, links), capability })
    }

    /// What capabilities for a drive depend on.
    pub(super) fn drive_state(&self, drive: DriveId) -> DriveState {
        DriveState {
            time: self.objects.drive_time(drive),
            minimum_protection: self.objects.minimum_protection(drive),
        }
    }

    /// A directory's name, its `.`, and the `..` of each directory in it. A damaged directory can
    /// still be looked at, and renamed out of the way.
    fn directory_links(&self, handle: FileHandle) -> Outcome<u32> {
        match self.read_directory(handle, |contents| contents.subdirectories()) {
            Ok(subdirectories) => Ok(subdirectories + 2),
            Err(ManagerStatus::Io) => Ok(2),
            Err(status) => Err(status),
        }
    }
}

/// Attributes as POSIX has them. The change time is the later of the drive's two times that
/// nobody can set back: a write changes the one, a change of attributes the other.
fn file_attributes(record: &FileRecord, attributes: &Attributes, links: u32) -> FileAttributes {
    FileAttributes {
        file_type: record.file_type,
        mode: record.mode,
        links,
        uid: record.uid,
        gid: record.gid,
        size: attributes.logical_size,
        used_bytes: attributes.blocks_used.saturating_mul(u64::from(attributes.block_size)),
        access_time: record.access_time,
        modify_time: attributes.fs_data_modify_time,
        change_time: attributes.fs_attribute_modify_time.max(attributes.data_modify_time),
        create_time: attributes.create_time,
        device: record.device,
        revision: record.revision,
        extended: extended(record),
    }
}

/// Which extended attributes a file has.
fn extended(record: &FileRecord) -> Extended {
    let (access, default, other) = record.inline.has();
    let other = other || record.attribute_object.is_some();
    [
        (access, Extended::ACCESS_ACL),
        (default, Extended::DEFAULT_ACL),
        (other, Extended::ATTRIBUTES),
    ]
    .into_iter()
    .filter(|(there, _)| *there)
    .fold(Extended::NONE, |all, (_, kind)| all.with(kind))
}
