//! What the kernel asks for: requests, taken apart from their bytes. Layouts are those of
//! `linux/fuse.h`, protocol 7.31 to 7.45; each is told beside the type that stands for it.

use std::ffi::OsStr;

use crate::Time;
use crate::flags::{ReleaseFlags, WriteFlags};
use crate::wire::Reader;

/// Bytes of the header of a request.
pub(crate) const HEADER_BYTES: usize = 40;

/// Bytes between the header of a WRITE and its data.
pub(crate) const WRITE_BYTES: usize = 40;

/// What a request begins with: length u32, opcode u32, unique u64, node u64, uid u32, gid u32,
/// pid u32, length of extensions in words of 8 bytes u16, padding u16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What is asked for, as a number.
    pub opcode: u32,
    /// Names the request.
    pub unique: u64,
    /// The file or directory that it is about.
    pub node: u64,
    /// Who asks.
    pub uid: u32,
    /// His group.
    pub gid: u32,
    /// The thread that asks; 0 if it can't be seen from here.
    pub pid: u32,
    /// The group that a new file is to have, where the kernel tells: its directory's, of which the
    /// caller is a member.
    pub group: Option<u32>,
}

/// Why bytes are not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not even a header.
    #[error("{0} bytes are too few for the header of a request")]
    NoHeader(usize),
    /// The length in the header is not that of the message.
    #[error("request {unique} says that it has {told} bytes, but has {length}")]
    Length {
        /// The request.
        unique: u64,
        /// What it says.
        told: u32,
        /// What came.
        length: usize,
    },
    /// Nothing that this crate knows; it can be answered with `ENOSYS`.
    #[error("request {unique} is of the unknown kind {opcode}")]
    Unknown {
        /// The request.
        unique: u64,
        /// Its kind.
        opcode: u32,
    },
    /// The arguments end too early.
    #[error("request {unique} of the kind {opcode} has too few bytes of arguments")]
    Arguments {
        /// The request.
        unique: u64,
        /// Its kind.
        opcode: u32,
    },
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// This one.
    At(Time),
    /// The present.
    Now,
}

/// SETATTR: valid u32, padding u32, handle u64, size u64, lock owner u64, atime, mtime, ctime u64
/// each, their nanoseconds u32 each, mode u32, unused u32, uid u32, gid u32, unused u32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits and kind.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Time of the last access.
    pub access_time: Option<SetTime>,
    /// Time of the last change of data.
    pub modify_time: Option<SetTime>,
    /// Time of the last change of anything, where the kernel keeps it.
    pub change_time: Option<Time>,
    /// The open file that asks.
    pub handle: Option<u64>,
    /// Set-user-id bits are to go.
    pub kill_suidgid: bool,
}

/// READ, READDIR and READDIRPLUS: handle u64, offset u64, size u32, read flags u32, lock owner u64,
/// flags u32, padding u32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The open file or directory.
    pub handle: u64,
    /// From which byte, or entry, on.
    pub offset: u64,
    /// Bytes at most.
    pub size: u32,
    /// As the file was opened.
    pub flags: i32,
    /// Whose locks count.
    pub lock_owner: Option<u64>,
}

/// WRITE: handle u64, offset u64, size u32, write flags u32, lock owner u64, flags u32, padding u32,
/// then the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The open file.
    pub handle: u64,
    /// Where the data go.
    pub offset: u64,
    /// Bytes of data.
    pub size: u32,
    /// About this write.
    pub write_flags: WriteFlags,
    /// As the file was opened.
    pub flags: i32,
    /// Whose locks count.
    pub lock_owner: Option<u64>,
}

/// RELEASE and RELEASEDIR: handle u64, flags u32, release flags u32, lock owner u64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The open file.
    pub handle: u64,
    /// As it was opened.
    pub flags: i32,
    /// What goes with it.
    pub release_flags: ReleaseFlags,
    /// Whose locks end.
    pub lock_owner: u64,
}

/// GETLK, SETLK and SETLKW: handle u64, owner u64, start u64, end u64, type u32, pid u32, flags u32
/// (1: a BSD lock), padding u32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The open file.
    pub handle: u64,
    /// Who wants it.
    pub owner: u64,
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: u32,
    /// The process that wants it.
    pub pid: u32,
    /// The whole file, by flock(2).
    pub is_flock: bool,
}

/// COPY_FILE_RANGE and COPY_FILE_RANGE_64: handle u64, offset u64, target node u64, target handle
/// u64, target offset u64, length u64, flags u64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFileRange {
    /// The open file to copy from.
    pub handle: u64,
    /// From where.
    pub offset: u64,
    /// The file to copy to.
    pub to_node: u64,
    /// As it is open.
    pub to_handle: u64,
    /// To where.
    pub to_offset: u64,
    /// Bytes.
    pub length: u64,
    /// Of copy_file_range(2).
    pub flags: u64,
}

/// FALLOCATE: handle u64, offset u64, length u64, mode u32, padding u32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallocate {
    /// The open file.
    pub handle: u64,
    /// From which byte on.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Of fallocate(2).
    pub mode: i32,
}

/// IOCTL: handle u64, flags u32, command u32, argument u64, bytes in u32, bytes out u32, then the
/// bytes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ioctl {
    /// The open file.
    pub handle: u64,
    /// How it was called.
    pub flags: u32,
    /// What is asked for.
    pub command: u32,
    /// Its argument.
    pub argument: u64,
    /// Bytes that the answer may have.
    pub out_size: u32,
}

/// STATX: flags u32, reserved u32, handle u64, statx flags u32, statx mask u32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatxAsked {
    /// The open file that asks.
    pub handle: Option<u64>,
    /// Of statx(2).
    pub flags: u32,
    /// What is wanted, of statx(2).
    pub mask: u32,
}

/// INIT: major u32, minor u32, read-ahead u32, flags u32, flags from bit 32 on u32, unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Init {
    /// 7.
    pub major: u32,
    /// What of it the kernel knows.
    pub minor: u32,
    /// How far the kernel may read ahead, in bytes.
    pub max_read_ahead: u32,
    /// What the kernel can do.
    pub flags: u64,
}

/// One file that the kernel forgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgotten {
    /// The file.
    pub node: u64,
    /// How many of the times that it was told of it.
    pub count: u64,
}

/// The files of a BATCH_FORGET: node u64, count u64 each.
#[derive(Clone, Copy, Debug)]
pub struct ForgetList<'a>(&'a [u8]);

impl Iterator for ForgetList<'_> {
    type Item = Forgotten;

    fn next(&mut self) -> Option<Forgotten> {
        let mut reader = Reader::new(self.0);
        let forgotten = Forgotten { node: reader.u64()?, count: reader.u64()? };
        self.0 = reader.rest();
        Some(forgotten)
    }
}

/// What is asked for. Names are without their NUL.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names of the kernel's header, told there and above")]
pub enum Operation<'a> {
    Lookup { name: &'a OsStr },
    Forget { count: u64 },
    BatchForget { list: ForgetList<'a> },
    GetAttributes { handle: Option<u64> },
    SetAttributes(SetAttributes),
    ReadLink,
    Symlink { name: &'a OsStr, target: &'a OsStr },
    MakeNode { name: &'a OsStr, mode: u32, device: u32, umask: u32 },
    MakeDirectory { name: &'a OsStr, mode: u32, umask: u32 },
    Unlink { name: &'a OsStr },
    RemoveDirectory { name: &'a OsStr },
    Rename { name: &'a OsStr, to_node: u64, to_name: &'a OsStr, flags: u32 },
    Link { node: u64, name: &'a OsStr },
    Open { flags: i32 },
    Read(Read),
    Write { write: Write, data: &'a [u8] },
    StatFs,
    Release(Release),
    Fsync { handle: u64, data_only: bool },
    SetXattr { name: &'a OsStr, value: &'a [u8], flags: u32, clears_sgid: bool },
    GetXattr { name: &'a OsStr, size: u32 },
    ListXattr { size: u32 },
    RemoveXattr { name: &'a OsStr },
    Flush { handle: u64, lock_owner: u64 },
    Init(Init),
    OpenDirectory { flags: i32 },
    ReadDirectory(Read),
    ReadDirectoryPlus(Read),
    ReleaseDirectory(Release),
    FsyncDirectory { handle: u64, data_only: bool },
    GetLock(Lock),
    SetLock(Lock),
    SetLockWait(Lock),
    Access { mask: u32 },
    Create { name: &'a OsStr, mode: u32, umask: u32, flags: i32 },
    Interrupt { unique: u64 },
    Destroy,
    Ioctl { ioctl: Ioctl, data: &'a [u8] },
    Poll { handle: u64, wakeup: u64, flags: u32, events: u32 },
    NotifyReply { offset: u64, data: &'a [u8] },
    Fallocate(Fallocate),
    Seek { handle: u64, offset: u64, whence: u32 },
    CopyFileRange { copy: CopyFileRange, wide: bool },
    SyncFs,
    Tmpfile { mode: u32, umask: u32, flags: i32 },
    Statx(StatxAsked),
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Who asks, and about what.
    pub header: Header,
    /// What.
    pub operation: Operation<'a>,
}

/// Extension of a request (size u32, kind u32): a count u32 and groups u32 each.
const EXTENSION_GROUPS: u32 = 32;

impl<'a> Request<'a> {
    /// Takes a message of the kernel apart.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(message: &'a [u8]) -> Result<Self, ParseError> {
        let (mut header, told, words) =
            parse_header(message).ok_or(ParseError::NoHeader(message.len()))?;
        let (unique, opcode) = (header.unique, header.opcode);
        let length = message.len();
        if usize::try_from(told) != Ok(length) {
            return Err(ParseError::Length { unique, told, length });
        }
        let arguments = &message[HEADER_BYTES..];
        let short = ParseError::Arguments { unique, opcode };
        let split = arguments.len().checked_sub(usize::from(words) * 8).ok_or(short)?;
        let (arguments, extensions) = arguments.split_at(split);
        header.group = parse_group(extensions);
        let operation = match parse_operation(opcode, Reader::new(arguments)) {
            Parsed::Operation(operation) => operation.ok_or(short)?,
            Parsed::Unknown => return Err(ParseError::Unknown { unique, opcode }),
        };
        Ok(Request { header, operation })
    }
}

fn parse_header(message: &[u8]) -> Option<(Header, u32, u16)> {
    let mut reader = Reader::new(message);
    let told = reader.u32()?;
    let header = Header {
        opcode: reader.u32()?,
        unique: reader.u64()?,
        node: reader.u64()?,
        uid: reader.u32()?,
        gid: reader.u32()?,
        pid: reader.u32()?,
        group: None,
    };
    let words = reader.u16()?;
    reader.skip(2)?;
    Some((header, told, words))
}

/// The first group of the extension that has groups.
fn parse_group(extensions: &[u8]) -> Option<u32> {
    let mut rest = extensions;
    loop {
        let mut reader = Reader::new(rest);
        let size = usize::try_from(reader.u32()?).ok()?;
        if reader.u32()? == EXTENSION_GROUPS {
            let count = reader.u32()?;
            return if count > 0 { reader.u32() } else { None };
        }
        // A size of nothing would not get on.
        rest = rest.get(size.max(8)..)?;
    }
}

/// Whether a request is of a kind that is slow by nature: what waits for a medium, for others' locks, or moves
/// many bytes.
pub(crate) fn takes_long(message: &[u8]) -> bool {
    let mut reader = Reader::new(message);
    // FSYNC, FSYNCDIR, SETLKW, FALLOCATE, COPY_FILE_RANGE, SYNCFS, COPY_FILE_RANGE_64.
    reader
        .skip(4)
        .and_then(|()| reader.u32())
        .is_some_and(|opcode| matches!(opcode, 20 | 30 | 33 | 43 | 47 | 50 | 53))
}

enum Parsed<'a> {
    Operation(Option<Operation<'a>>),
    Unknown,
}

fn parse_operation(opcode: u32, mut reader: Reader<'_>) -> Parsed<'_> {
    let r = &mut reader;
    Parsed::Operation(match opcode {
        1..=13 | 45 => parse_names(opcode, r),
        14 => r.u32().map(|flags| Operation::Open { flags: flags as i32 }),
        15 => parse_read(r).map(Operation::Read),
        16 => parse_write(r),
        17 => Some(Operation::StatFs),
        18 => parse_release(r).map(Operation::Release),
        20 => parse_fsync(r).map(|(handle, data_only)| Operation::Fsync { handle, data_only }),
        21..=24 => parse_xattr(opcode, r),
        25 => parse_flush(r),
        26 => parse_init(r),
        27 => r.u32().map(|flags| Operation::OpenDirectory { flags: flags as i32 }),
        28 => parse_read(r).map(Operation::ReadDirectory),
        29 => parse_release(r).map(Operation::ReleaseDirectory),
        30 => parse_fsync(r)
            .map(|(handle, data_only)| Operation::FsyncDirectory { handle, data_only }),
        31 => parse_lock(r).map(Operation::GetLock),
        32 => parse_lock(r).map(Operation::SetLock),
        33 => parse_lock(r).map(Operation::SetLockWait),
        34 => r.u32().map(|mask| Operation::Access { mask }),
        35 => parse_create(r),
        36 => r.u64().map(|unique| Operation::Interrupt { unique }),
        38 => Some(Operation::Destroy),
        39 => parse_ioctl(r),
        40 => parse_poll(r),
        41 => parse_notify_reply(r),
        42 => parse_batch_forget(r),
        43 => parse_fallocate(r).map(Operation::Fallocate),
        44 => parse_read(r).map(Operation::ReadDirectoryPlus),
        46 => parse_seek(r),
        47 => parse_copy(r).map(|copy| Operation::CopyFileRange { copy, wide: false }),
        50 => Some(Operation::SyncFs),
        51 => parse_tmpfile(r),
        52 => parse_statx(r).map(Operation::Statx),
        53 => parse_copy(r).map(|copy| Operation::CopyFileRange { copy, wide: true }),
        _ => return Parsed::Unknown,
    })
}

fn parse_names<'a>(opcode: u32, r: &mut Reader<'a>) -> Option<Operation<'a>> {
    Some(match opcode {
        1 => Operation::Lookup { name: r.name()? },
        2 => Operation::Forget { count: r.u64()? },
        3 => {
            let flags = r.u32()?;
            r.skip(4)?;
            let handle = r.u64()?;
            Operation::GetAttributes { handle: (flags & 1 != 0).then_some(handle) }
        }
        4 => Operation::SetAttributes(parse_setattr(r)?),
        5 => Operation::ReadLink,
        6 => Operation::Symlink { name: r.name()?, target: r.name()? },
        8 => {
            let (mode, device, umask) = (r.u32()?, r.u32()?, r.u32()?);
            r.skip(4)?;
            Operation::MakeNode { mode, device, umask, name: r.name()? }
        }
        9 => {
            let (mode, umask) = (r.u32()?, r.u32()?);
            Operation::MakeDirectory { mode, umask, name: r.name()? }
        }
        10 => Operation::Unlink { name: r.name()? },
        11 => Operation::RemoveDirectory { name: r.name()? },
        12 => {
            let to_node = r.u64()?;
            Operation::Rename { to_node, flags: 0, name: r.name()?, to_name: r.name()? }
        }
        13 => Operation::Link { node: r.u64()?, name: r.name()? },
        45 => {
            let (to_node, flags) = (r.u64()?, r.u32()?);
            r.skip(4)?;
            Operation::Rename { to_node, flags, name: r.name()?, to_name: r.name()? }
        }
        // 7 was never used.
        _ => return None,
    })
}

/// Bits of SETATTR's `valid`.
mod valid {
    pub(super) const MODE: u32 = 1 << 0;
    pub(super) const UID: u32 = 1 << 1;
    pub(super) const GID: u32 = 1 << 2;
    pub(super) const SIZE: u32 = 1 << 3;
    pub(super) const ATIME: u32 = 1 << 4;
    pub(super) const MTIME: u32 = 1 << 5;
    pub(super) const HANDLE: u32 = 1 << 6;
    pub(super) const ATIME_NOW: u32 = 1 << 7;
    pub(super) const MTIME_NOW: u32 = 1 << 8;
    pub(super) const CTIME: u32 = 1 << 10;
    pub(super) const KILL_SUIDGID: u32 = 1 << 11;
}

fn parse_setattr(r: &mut Reader<'_>) -> Option<SetAttributes> {
    let bits = r.u32()?;
    r.skip(4)?;
    let (handle, size) = (r.u64()?, r.u64()?);
    r.skip(8)?;
    let seconds = [r.u64()?, r.u64()?, r.u64()?];
    let nanoseconds = [r.u32()?, r.u32()?, r.u32()?];
    let mode = r.u32()?;
    r.skip(4)?;
    let (uid, gid) = (r.u32()?, r.u32()?);
    r.skip(4)?;
    let has = |bit| bits & bit != 0;
    // Seconds before 1970 are negative.
    let time = |at: usize| Time { seconds: seconds[at] as i64, nanoseconds: nanoseconds[at] };
    let set = |at, bit, now| match (has(bit), has(now)) {
        (_, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At(time(at))),
        (false, false) => None,
    };
    Some(SetAttributes {
        mode: has(valid::MODE).then_some(mode),
        uid: has(valid::UID).then_some(uid),
        gid: has(valid::GID).then_some(gid),
        size: has(valid::SIZE).then_some(size),
        access_time: set(0, valid::ATIME, valid::ATIME_NOW),
        modify_time: set(1, valid::MTIME, valid::MTIME_NOW),
        change_time: has(valid::CTIME).then(|| time(2)),
        handle: has(valid::HANDLE).then_some(handle),
        kill_suidgid: has(valid::KILL_SUIDGID),
    })
}

fn parse_read(r: &mut Reader<'_>) -> Option<Read> {
    let (handle, offset, size) = (r.u64()?, r.u64()?, r.u32()?);
    let (read_flags, owner, flags) = (r.u32()?, r.u64()?, r.u32()?);
    r.skip(4)?;
    let lock_owner = (read_flags & 1 << 1 != 0).then_some(owner);
    Some(Read { handle, offset, size, flags: flags as i32, lock_owner })
}

fn parse_write<'a>(r: &mut Reader<'a>) -> Option<Operation<'a>> {
    let (handle, offset, size) = (r.u64()?, r.u64()?, r.u32()?);
    let (write_flags, owner, flags) = (r.u32()?, r.u64()?, r.u32()?);
    r.skip(4)?;
    let data = r.bytes(usize::try_from(size).ok()?)?;
    let write_flags = WriteFlags::from_bits_retain(write_flags);
    let lock_owner = write_flags.contains(WriteFlags::LOCK_OWNER).then_some(owner);
    let write = Write { handle, offset, size, write_flags, flags: flags as i32, lock_owner };
    Some(Operation::Write { write, data })
}

fn parse_release(r: &mut Reader<'_>) -> Option<Release> {
    let (handle, flags) = (r.u64()?, r.u32()? as i32);
    let release_flags = ReleaseFlags::from_bits_retain(r.u32()?);
    Some(Release { handle, flags, release_flags, lock_owner: r.u64()? })
}

fn parse_fsync(r: &mut Reader<'_>) -> Option<(u64, bool)> {
    Some((r.u64()?, r.u32()? & 1 != 0))
}

fn parse_xattr<'a>(opcode: u32, r: &mut Reader<'a>) -> Option<Operation<'a>> {
    Some(match opcode {
        21 => parse_setxattr(*r, false).or_else(|| parse_setxattr(*r, true))?,
        22 => {
            let size = r.u32()?;
            r.skip(4)?;
            Operation::GetXattr { size, name: r.name()? }
        }
        23 => Operation::ListXattr { size: r.u32()? },
        _ => Operation::RemoveXattr { name: r.name()? },
    })
}

/// SETXATTR: size u32, flags u32, and, where that was agreed on (`SETXATTR_EXT`), more flags u32 and
/// padding u32; then the name and the value. A name that is not empty, and a value to the last byte, tell the two
/// forms apart: what is between begins with a byte that is zero or one, and three zeros.
fn parse_setxattr(mut r: Reader<'_>, extended: bool) -> Option<Operation<'_>> {
    let (size, flags) = (r.u32()?, r.u32()?);
    let more = if extended { r.u32()? } else { 0 };
    if extended {
        r.skip(4)?;
    }
    let (name, value) = (r.name()?, r.rest());
    let fits = !name.is_empty() && usize::try_from(size) == Ok(value.len());
    fits.then_some(Operation::SetXattr { name, value, flags, clears_sgid: more & 1 != 0 })
}

fn parse_flush<'a>(r: &mut Reader<'_>) -> Option<Operation<'a>> {
    let handle = r.u64()?;
    r.skip(8)?;
    Some(Operation::Flush { handle, lock_owner: r.u64()? })
}

fn parse_init<'a>(r: &mut Reader<'_>) -> Option<Operation<'a>> {
    let (major, minor, max_read_ahead, low) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
    let extended = u64::from(low) & crate::InitFlags::INIT_EXT.bits() != 0;
    // Older kernels end here.
    let high = if extended { r.u32()? } else { 0 };
    let flags = u64::from(low) | u64::from(high) << 32;
    Some(Operation::Init(Init { major, minor, max_read_ahead, flags }))
}

fn parse_lock(r: &mut Reader<'_>) -> Option<Lock> {
    let (handle, owner) = (r.u64()?, r.u64()?);
    let (start, end, kind, pid) = (r.u64()?, r.u64()?, r.u32()?, r.u32()?);
    Some(Lock { handle, owner, start, end, kind, pid, is_flock: r.u32()? & 1 != 0 })
}

fn parse_create<'a>(r: &mut Reader<'a>) -> Option<Operation<'a>> {
    let (flags, mode, umask) = (r.u32()?, r.u32()?, r.u32()?);
    r.skip(4)?;
    Some(Operation::Create { flags: flags as i32, mode, umask, name: r.name()? })
}

/// As `Create`; the kernel sends a name that means nothing.
fn parse_tmpfile<'a>(r: &mut Reader<'_>) -> Option<Operation<'a>> {
    let (flags, mode, umask) = (r.u32()?, r.u32()?, r.u32()?);
    Some(Operation::Tmpfile { flags: flags as i32, mode, umask })
}

fn parse_ioctl<'a>(r: &mut Reader<'a>) -> Option<Operation<'a>> {
    let (handle, flags, command, argument) = (r.u64()?, r.u32()?, r.u32()?, r.u64()?);
    let (in_size, out_size) = (r.u32()?, r.u32()?);
    let data = r.bytes(usize::try_from(in_size).ok()?)?;
    Some(Operation::Ioctl { ioctl: Ioctl { handle, flags, command, argument, out_size }, data })
}

fn parse_poll<'a>(r: &mut Reader<'_>) -> Option<Operation<'a>> {
    Some(Operation::Poll { handle: r.u64()?, wakeup: r.u64()?, flags: r.u32()?, events: r.u32()? })
}

fn parse_notify_reply<'a>(r: &mut Reader<'a>) -> Option<Operation<'a>> {
    r.skip(8)?;
    let (offset, size) = (r.u64()?, r.u32()?);
    r.skip(20)?;
    Some(Operation::NotifyReply { offset, data: r.bytes(usize::try_from(size).ok()?)? })
}

fn parse_batch_forget<'a>(r: &mut Reader<'a>) -> Option<Operation<'a>> {
    let count = usize::try_from(r.u32()?).ok()?;
    r.skip(4)?;
    let list = ForgetList(r.bytes(count.checked_mul(16)?)?);
    Some(Operation::BatchForget { list })
}

fn parse_fallocate(r: &mut Reader<'_>) -> Option<Fallocate> {
    let (handle, offset, length) = (r.u64()?, r.u64()?, r.u64()?);
    Some(Fallocate { handle, offset, length, mode: r.u32()? as i32 })
}

fn parse_seek<'a>(r: &mut Reader<'_>) -> Option<Operation<'a>> {
    Some(Operation::Seek { handle: r.u64()?, offset: r.u64()?, whence: r.u32()? })
}

fn parse_copy(r: &mut Reader<'_>) -> Option<CopyFileRange> {
    Some(CopyFileRange {
        handle: r.u64()?,
        offset: r.u64()?,
        to_node: r.u64()?,
        to_handle: r.u64()?,
        to_offset: r.u64()?,
        length: r.u64()?,
        flags: r.u64()?,
    })
}

fn parse_statx(r: &mut Reader<'_>) -> Option<StatxAsked> {
    let flags = r.u32()?;
    r.skip(4)?;
    let handle = r.u64()?;
    let handle = (flags & 1 != 0).then_some(handle);
    Some(StatxAsked { handle, flags: r.u32()?, mask: r.u32()? })
}
