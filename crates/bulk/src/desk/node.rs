//! Something in the directory, held by a descriptor of its path, and what was told of it by that descriptor.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nasd_protocol::bulk_desk::{DeskStatus, FileFacts};
use nasd_protocol::manager::FileType;
use nasd_types::Timestamp;
use rustix::fs::{AtFlags, Statx, StatxFlags, statx};
use rustix::io::Errno;

use super::status::status_of;
use crate::directory::identity::FileIdentity;

/// What is asked of everything.
pub(super) const TOLD: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// Something that a path led to. Whatever is renamed meanwhile, this stays the same.
#[derive(Debug)]
pub(super) struct Node {
    fd: OwnedFd,
    facts: FileFacts,
    identity: FileIdentity,
}

impl Node {
    pub(super) fn of(fd: OwnedFd) -> Result<Node, Errno> {
        let told = statx(&fd, "", AtFlags::EMPTY_PATH, TOLD)?;
        Ok(Node { fd, facts: facts_of(&told), identity: FileIdentity::told(&told) })
    }

    /// How it was when it was found.
    pub(super) fn facts(&self) -> FileFacts {
        self.facts
    }

    /// How it is now.
    pub(super) fn facts_now(&self) -> Result<FileFacts, DeskStatus> {
        let told = statx(&self.fd, "", AtFlags::EMPTY_PATH, TOLD).map_err(status_of)?;
        Ok(facts_of(&told))
    }

    pub(super) fn identity(&self) -> FileIdentity {
        self.identity
    }

    pub(super) fn is_directory(&self) -> bool {
        self.facts().file_type == FileType::Directory
    }

    pub(super) fn into_descriptor(self) -> OwnedFd {
        self.fd
    }

    /// A path to it for calls that take no descriptor of a path: by way of the descriptor, not of names.
    pub(super) fn by_descriptor(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }
}

impl AsFd for Node {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What was told, as clients are told.
pub(super) fn facts_of(told: &Statx) -> FileFacts {
    let mode = u32::from(told.stx_mode);
    let seconds = u64::try_from(told.stx_mtime.tv_sec).ok();
    let modify_time = seconds
        .map_or(Timestamp(0), |seconds| Timestamp::from_parts(seconds, told.stx_mtime.tv_nsec));
    FileFacts {
        file_type: type_of(rustix::fs::FileType::from_raw_mode(mode)),
        mode: mode & 0o7777,
        uid: told.stx_uid,
        gid: told.stx_gid,
        size: told.stx_size,
        modify_time,
    }
}

fn type_of(found: rustix::fs::FileType) -> FileType {
    use rustix::fs::FileType as Found;
    match found {
        Found::RegularFile => FileType::Regular,
        Found::Directory => FileType::Directory,
        Found::Symlink => FileType::Symlink,
        Found::Fifo => FileType::Fifo,
        Found::Socket => FileType::Socket,
        Found::BlockDevice => FileType::BlockDevice,
        // What this system does not know is nothing that is served.
        Found::CharacterDevice | Found::Unknown => FileType::CharacterDevice,
    }
}
