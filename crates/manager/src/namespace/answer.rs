//! What is told of a file: its attributes as POSIX has them, and the caller's capability.

use nasd_protocol::manager::{
    Extended, File, FileAttributes, FileHandle, FileType, IssuedCapability, ManagerStatus,
};
use nasd_types::{Attributes, DriveId, Timestamp};

use super::{Namespace, Outcome};
use crate::caller::Caller;
use crate::file_record::FileRecord;
use crate::locks::Wants;
use crate::mint::DriveState;
use crate::permission;

/// A directory's own name, and its `.`.
const EMPTY_DIRECTORY_LINKS: u32 = 2;

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
        let (links, size) = match record.is_directory() {
            true => self.directory_size(handle)?,
            false => (record.links, attributes.logical_size),
        };
        let attributes = Attributes { logical_size: size, ..attributes.clone() };
        self.answer(caller, handle, record, (&attributes, links))
    }

    /// The answer about a file that was just made, as it was then. Nobody has a lock of it any more: who looked into a
    /// directory now might keep for its contents what they were before a change that somebody is making.
    pub(super) fn new_file(
        &self,
        caller: &Caller,
        handle: FileHandle,
        record: &FileRecord,
        attributes: &Attributes,
    ) -> Outcome<File> {
        let links = if record.is_directory() { EMPTY_DIRECTORY_LINKS } else { record.links };
        self.note_made(handle, attributes.access_control_version);
        self.answer(caller, handle, record, (attributes, links))
    }

    fn answer(
        &self,
        caller: &Caller,
        handle: FileHandle,
        record: &FileRecord,
        (attributes, links): (&Attributes, u32),
    ) -> Outcome<File> {
        let version = attributes.access_control_version;
        let rights = self.given_rights(permission::rights(record, caller), version);
        let capability = self.minted(handle.drive, |drive| {
            self.mint.issue(handle, version, rights, caller, drive)
        })?;
        let attributes = file_attributes(record, attributes, links);
        Ok(File { handle, attributes, capability })
    }

    /// A directory's attributes, if they are known without a drive's being asked.
    pub fn known_attributes(&self, directory: FileHandle) -> Option<FileAttributes> {
        let _held = self.hold(Wants::new().read(directory));
        let (record, attributes) = self.told_of(directory)?;
        let (links, size) = self.directory_size(directory).ok()?;
        Some(FileAttributes { size, ..file_attributes(&record, &attributes, links) })
    }

    /// What is minted for a drive: where its part of the volume is moved meanwhile, once more, as key and place have to fit each other.
    pub(super) fn minted(
        &self,
        drive: DriveId,
        issue: impl Fn(DriveState) -> Option<IssuedCapability>,
    ) -> Outcome<IssuedCapability> {
        loop {
            let state = self.drive_state(drive);
            let issued = issue(state);
            if self.objects.location(drive) == state.location {
                return issued.ok_or(ManagerStatus::Stale);
            }
        }
    }

    /// What capabilities for a drive depend on.
    fn drive_state(&self, drive: DriveId) -> DriveState {
        DriveState {
            location: self.objects.location(drive),
            time: self.objects.drive_time(drive),
            minimum_protection: self.objects.minimum_protection(drive),
        }
    }

    /// Links: a directory's name, its `.`, and the `..` of each directory in it; and the length of the
    /// object when all is home. A damaged directory can still be looked at, and renamed out of the way.
    fn directory_size(&self, handle: FileHandle) -> Outcome<(u32, u64)> {
        let size = self.read_directory(handle, |contents| {
            (contents.subdirectories() + EMPTY_DIRECTORY_LINKS, contents.object_bytes())
        });
        match size {
            Err(ManagerStatus::Io) => Ok((EMPTY_DIRECTORY_LINKS, 0)),
            size => size,
        }
    }
}

/// Attributes as POSIX has them.
///
/// The change time is the later of the drive's two times that nobody can set back: a write changes
/// the one, a change of attributes the other. What only the manager writes is written when it comes home,
/// which changes nothing: there the second one counts alone.
///
/// The object of a file was made before the file; as long as nobody has written to it, or set its
/// time, the file is as old as its record says.
fn file_attributes(record: &FileRecord, attributes: &Attributes, links: u32) -> FileAttributes {
    let is_made_ahead = record.create_time != Timestamp::default();
    let is_untouched = is_made_ahead && attributes.fs_data_modify_time == attributes.create_time;
    let change_time = match record.file_type {
        FileType::Regular => attributes.fs_attribute_modify_time.max(attributes.data_modify_time),
        _ => attributes.fs_attribute_modify_time,
    };
    // What a link says, or where a device is, takes none of its own.
    let used_blocks = match record.file_type {
        FileType::Regular => attributes.blocks_allocated.max(attributes.blocks_used),
        FileType::Directory => attributes.blocks_used,
        _ => 0,
    };
    FileAttributes {
        file_type: record.file_type,
        mode: permission::shown_mode(record),
        links,
        uid: record.uid,
        gid: record.gid,
        size: attributes.logical_size,
        used_bytes: used_blocks.saturating_mul(u64::from(attributes.block_size)),
        access_time: record.access_time,
        modify_time: if is_untouched { record.create_time } else { attributes.fs_data_modify_time },
        change_time,
        data_version: attributes.data_version,
        create_time: if is_made_ahead { record.create_time } else { attributes.create_time },
        device: record.device,
        revision: record.revision,
        extended: extended(record),
    }
}

/// Which extended attributes a file has.
fn extended(record: &FileRecord) -> Extended {
    let (access, default, other) = record.inline.has();
    let other = other || record.attribute_object.is_some();
    let is_governed = record.afs_acl().is_some();
    let asks = record.is_directory() && !permission::shows_who_looks(record);
    [
        (is_governed, Extended::AFS_ACL),
        (asks, Extended::NAMES_BY_CALLER),
        (access, Extended::ACCESS_ACL),
        (default, Extended::DEFAULT_ACL),
        (other, Extended::ATTRIBUTES),
    ]
    .into_iter()
    .filter(|(there, _)| *there)
    .fold(Extended::NONE, |all, (_, kind)| all.with(kind))
}
