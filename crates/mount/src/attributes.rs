//! Attributes and errors in the kernel's words.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, INodeNo, TimeOrNow};
use nasd_clerk::{ClerkError, Device, FileAttributes, FileType, SetFileAttributes, Timestamp};

/// What programs are told to read and write at a time, in bytes.
const PREFERRED_IO_BYTES: u32 = 128 << 10;

/// The kernel counts space in these.
const SECTOR_BYTES: u64 = 512;

/// The kernel's word for an error of the clerk.
pub(crate) fn errno(error: &ClerkError) -> Errno {
    Errno::from_i32(error.errno())
}

/// The kernel's word for a kind of file.
pub(crate) fn kind(file_type: FileType) -> fuser::FileType {
    match file_type {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::CharacterDevice => fuser::FileType::CharDevice,
    }
}

/// Attributes as the kernel wants them.
pub(crate) fn to_kernel(ino: u64, attributes: &FileAttributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: attributes.size,
        blocks: attributes.used_bytes.div_ceil(SECTOR_BYTES),
        atime: system_time(attributes.access_time),
        mtime: system_time(attributes.modify_time),
        ctime: system_time(attributes.change_time),
        crtime: system_time(attributes.create_time),
        kind: kind(attributes.file_type),
        perm: (attributes.mode & 0o7777) as u16,
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: device_number(attributes.device),
        blksize: PREFERRED_IO_BYTES,
        flags: 0,
    }
}

/// A device's numbers as the kernel has them in one word: as much of them as it knows.
fn device_number(device: Device) -> u32 {
    device.minor & 0xff | (device.major & 0xfff) << 8 | (device.minor & 0xf_ff00) << 12
}

/// Attributes of a name that does not exist: number 0 lets the kernel remember that.
pub(crate) fn nothing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: fuser::FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::new(time.seconds(), time.subsecond_ns())
}

/// Times before 1970 become 1970.
fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_parts(since.as_secs(), since.subsec_nanos())
}

/// What `chmod`, `chown`, `truncate` and `utimensat` ask for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Changes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) access_time: Option<TimeOrNow>,
    pub(crate) modify_time: Option<TimeOrNow>,
}

impl Changes {
    /// In the clerk's words; nothing, if there is nothing that it could change.
    pub(crate) fn to_clerk(self) -> Option<SetFileAttributes> {
        let at = |time| match time {
            Some(TimeOrNow::SpecificTime(time)) => Some(timestamp(time)),
            _ => None,
        };
        let changes = SetFileAttributes {
            mode: self.mode.map(|mode| mode & 0o7777),
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            access_time: at(self.access_time),
            modify_time: at(self.modify_time),
            access_time_now: matches!(self.access_time, Some(TimeOrNow::Now)),
            modify_time_now: matches!(self.modify_time, Some(TimeOrNow::Now)),
        };
        (changes != SetFileAttributes::default()).then_some(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_the_way_there_and_back() {
        let time = Timestamp::from_parts(1_700_000_000, 123_456_789);
        assert_eq!(timestamp(system_time(time)), time);
        assert_eq!(timestamp(UNIX_EPOCH - Duration::from_secs(5)), Timestamp(0));
    }

    #[test]
    fn now_is_left_to_the_server() {
        let changes = Changes { modify_time: Some(TimeOrNow::Now), ..Changes::default() };
        let asked = changes.to_clerk().unwrap();
        assert!(asked.modify_time_now && !asked.access_time_now && asked.modify_time.is_none());
        assert!(Changes::default().to_clerk().is_none());
    }
}
