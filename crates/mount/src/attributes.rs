//! Attributes and errors in the kernel's words.

use nasd_clerk::{ClerkError, Device, FileAttributes, FileType, SetFileAttributes, Timestamp};
use nasd_fuse::{Attributes, Errno, FileKind, SetAttributes, SetTime, Time};

/// What programs are told to read and write at a time, in bytes.
const PREFERRED_IO_BYTES: u32 = 128 << 10;

/// The kernel counts space in these.
const SECTOR_BYTES: u64 = 512;

/// The kernel's word for an error of the clerk.
pub(crate) fn errno(error: &ClerkError) -> Errno {
    let told = Errno::from_raw(error.errno());
    if told == Errno::EIO {
        // Programs say no more than "input/output error".
        tracing::warn!(%error, "a program is told of an input/output error");
    }
    told
}

/// The kernel's word for a kind of file.
pub(crate) fn kind(file_type: FileType) -> FileKind {
    match file_type {
        FileType::Regular => FileKind::Regular,
        // Who walks over it finds a directory.
        FileType::Directory | FileType::MountPoint => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::CharacterDevice => FileKind::CharacterDevice,
    }
}

/// Attributes as the kernel wants them.
pub(crate) fn to_kernel(ino: u64, attributes: &FileAttributes) -> Attributes {
    Attributes {
        node: ino,
        size: attributes.size,
        blocks: attributes.used_bytes.div_ceil(SECTOR_BYTES),
        access_time: time(attributes.access_time),
        modify_time: time(attributes.modify_time),
        change_time: time(attributes.change_time),
        create_time: time(attributes.create_time),
        kind: kind(attributes.file_type),
        permissions: attributes.mode & 0o7777,
        links: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        device: device_number(attributes.device),
        block_bytes: PREFERRED_IO_BYTES,
    }
}

/// A device's numbers as the kernel has them in one word: as much of them as it knows.
fn device_number(device: Device) -> u32 {
    device.minor & 0xff | (device.major & 0xfff) << 8 | (device.minor & 0xf_ff00) << 12
}

/// A device's numbers, out of the kernel's word for them.
pub(crate) fn device_from_kernel(number: u32) -> Device {
    Device { major: number >> 8 & 0xfff, minor: number & 0xff | number >> 12 & 0xf_ff00 }
}

/// A time in the kernel's words.
pub(crate) fn time(time: Timestamp) -> Time {
    // Seconds of a time in nanoseconds that fits 64 bits.
    Time { seconds: time.seconds() as i64, nanoseconds: time.subsecond_ns() }
}

/// Times before 1970 become 1970.
fn timestamp(time: Time) -> Timestamp {
    match u64::try_from(time.seconds) {
        Ok(seconds) => Timestamp::from_parts(seconds, time.nanoseconds),
        Err(_) => Timestamp(0),
    }
}

/// What `chmod`, `chown`, `truncate` and `utimensat` ask for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Changes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) access_time: Option<SetTime>,
    pub(crate) modify_time: Option<SetTime>,
    /// The open file that asks.
    pub(crate) opened: Option<u64>,
}

impl From<SetAttributes> for Changes {
    fn from(asked: SetAttributes) -> Self {
        let SetAttributes { mode, uid, gid, size, access_time, modify_time, .. } = asked;
        Changes { mode, uid, gid, size, access_time, modify_time, opened: asked.handle }
    }
}

impl Changes {
    /// Whether a file is cut to nothing, and nothing else.
    pub(crate) fn empties(self) -> bool {
        let is_else = self.mode.is_some()
            || self.uid.is_some()
            || self.gid.is_some()
            || self.access_time.is_some()
            || matches!(self.modify_time, Some(SetTime::At(_)));
        self.size == Some(0) && !is_else
    }

    /// In the clerk's words; nothing, if there is nothing that it could change.
    pub(crate) fn to_clerk(self) -> Option<SetFileAttributes> {
        let at = |time| match time {
            Some(SetTime::At(time)) => Some(timestamp(time)),
            _ => None,
        };
        let changes = SetFileAttributes {
            mode: self.mode.map(|mode| mode & 0o7777),
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            reserve: None,
            access_time: at(self.access_time),
            modify_time: at(self.modify_time),
            access_time_now: matches!(self.access_time, Some(SetTime::Now)),
            modify_time_now: matches!(self.modify_time, Some(SetTime::Now)),
        };
        (changes != SetFileAttributes::default()).then_some(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_the_way_there_and_back() {
        let moment = Timestamp::from_parts(1_700_000_000, 123_456_789);
        assert_eq!(timestamp(time(moment)), moment);
        assert_eq!(timestamp(Time { seconds: -5, nanoseconds: 1 }), Timestamp(0));
    }

    #[test]
    fn device_numbers_survive_the_way_there_and_back() {
        for (major, minor) in [(0, 0), (8, 1), (0xfff, 0xf_ffff), (1, 256)] {
            let device = Device { major, minor };
            assert_eq!(device_from_kernel(device_number(device)), device);
        }
    }

    #[test]
    fn now_is_left_to_the_server() {
        let changes = Changes { modify_time: Some(SetTime::Now), ..Changes::default() };
        let asked = changes.to_clerk().unwrap();
        assert!(asked.modify_time_now && !asked.access_time_now && asked.modify_time.is_none());
        assert!(Changes::default().to_clerk().is_none());
    }
}
