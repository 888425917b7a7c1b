//! Who may do what: the rules of POSIX (IEEE Std 1003.1, section 4.7, and the `chmod`, `chown`,
//! `utimensat`, `open` and `unlink` pages), as Linux reads them where they leave a choice.
//!
//! Pure functions over records and callers. Root passes all of them.

use nasd_protocol::manager::{FileRange, FileType, ManagerStatus, NewMode, SetFileAttributes};
use nasd_types::{Rights, Timestamp};

use crate::caller::Caller;
use crate::file_record::{FileRecord, MODE_BITS};
use crate::xattr;

/// Set-user-ID on execution.
pub const SET_UID: u32 = 0o4000;
/// Set-group-ID on execution; on a directory, new files get its group.
pub const SET_GID: u32 = 0o2000;
/// On a directory: only owners of a file, of the directory, and root remove the file's name.
pub const STICKY: u32 = 0o1000;
/// Executable by the group.
const GROUP_EXECUTE: u32 = 0o010;

/// Permission to read a file or list a directory, as in a mode's three bits.
pub const READ: u32 = 4;
/// Permission to write a file or change a directory's names.
pub const WRITE: u32 = 2;
/// Permission to execute a file or look names up in a directory.
pub const EXECUTE: u32 = 1;

/// Whether the caller may do all that is `wanted`, three bits, with a file: exactly one class of the
/// mode, or one entry of the access control list, applies, even if another would allow more. Root may
/// read and write all, search all directories, and execute what anybody may.
pub fn permits(record: &FileRecord, caller: &Caller, wanted: u32) -> bool {
    let granted = if caller.is_root() {
        let executable = record.is_directory() || record.mode & 0o111 != 0;
        READ | WRITE | if executable { EXECUTE } else { 0 }
    } else if caller.uid == record.uid {
        record.mode >> 6
    } else if let Some(acl) = record.access_acl() {
        return acl.permits((record.uid, record.gid), caller, (wanted & 7) as u8);
    } else if caller.is_in_group(record.gid) {
        record.mode >> 3
    } else {
        record.mode
    };
    granted & wanted == wanted
}

/// The permission bits that the caller has, each by itself.
pub fn granted(record: &FileRecord, caller: &Caller) -> u32 {
    let each = [READ, WRITE, EXECUTE].into_iter();
    each.filter(|wanted| permits(record, caller, *wanted)).sum()
}

/// Requires all of the permission bits `wanted`.
///
/// # Errors
/// `Access` where one is missing.
pub fn require(record: &FileRecord, caller: &Caller, wanted: u32) -> Result<(), ManagerStatus> {
    if permits(record, caller, wanted) { Ok(()) } else { Err(ManagerStatus::Access) }
}

/// Whether the caller owns the file, or is root.
pub fn is_owner(record: &FileRecord, caller: &Caller) -> bool {
    caller.is_root() || caller.uid == record.uid
}

/// Requires that the caller may take the name of `file` out of `directory`, write permission on
/// which was checked: in a sticky directory only owners may.
///
/// # Errors
/// `Permission` where the directory is sticky and the caller owns neither.
pub fn require_removable(
    directory: &FileRecord,
    file: &FileRecord,
    caller: &Caller,
) -> Result<(), ManagerStatus> {
    let allowed =
        directory.mode & STICKY == 0 || is_owner(directory, caller) || is_owner(file, caller);
    if allowed { Ok(()) } else { Err(ManagerStatus::Permission) }
}

/// What the caller's capability for the file allows at the drive.
///
/// * The attributes can be read by whoever can name the file.
/// * Regular files: what the mode grants. As with NFS servers, who may execute may read, since the
///   drive can't tell the two apart; and the owner may both read and write whatever the mode says,
///   so that a file made read-only while it is open for writing can be written to the end. The
///   owner could change the mode anyway; `open` checks the mode at the client.
/// * Directories: reading, for whoever may list them; only the manager writes them.
/// * Symbolic links and mount points: reading, for everybody.
/// * `SETATTR`, `REMOVE` and `CREATE` are never given away.
pub fn rights(record: &FileRecord, caller: &Caller) -> Rights {
    let granted = granted(record, caller);
    let mut rights = Rights::GETATTR;
    match record.file_type {
        FileType::Symlink | FileType::MountPoint => rights |= Rights::READ,
        FileType::Directory if granted & READ != 0 => rights |= Rights::READ,
        FileType::Directory => {}
        // Kernels open these by the mode; there is nothing at the drive.
        FileType::Fifo | FileType::Socket | FileType::BlockDevice | FileType::CharacterDevice => {}
        FileType::Regular => {
            let owner = is_owner(record, caller);
            if owner || granted & (READ | EXECUTE) != 0 {
                rights |= Rights::READ;
            }
            if owner || granted & WRITE != 0 {
                rights |= Rights::WRITE | Rights::FLUSH;
            }
        }
    }
    rights
}

/// The permission bits of a symbolic link, and of a mount point, mean nothing.
const SYMLINK_MODE: u32 = 0o777;

/// Whether a file is but a way to another one.
const fn leads_on(file_type: FileType) -> bool {
    matches!(file_type, FileType::Symlink | FileType::MountPoint)
}

/// The record of a new file in `directory`. The directory's default access control list takes the
/// place of the mask of the process, and a new directory gets it too.
///
/// # Errors
/// `NoSpace` where the lists do not go into a record; those that can be set do.
pub fn new_record(
    directory: &FileRecord,
    caller: &Caller,
    file_type: FileType,
    mode: NewMode,
) -> Result<FileRecord, ManagerStatus> {
    let default = directory.inline.default_acl().filter(|_| !leads_on(file_type));
    let asked = if default.is_some() { mode.mode } else { mode.masked() };
    let (mode, gid) = inherited(directory, caller, file_type, asked);
    let record = FileRecord::new(file_type, mode, (caller.uid, gid));
    let Some(default) = default else {
        let mode = if leads_on(file_type) { SYMLINK_MODE } else { mode };
        return Ok(FileRecord { mode, ..record });
    };
    let access = default.inherited(mode);
    let mode = mode & !0o777 | access.mode_bits();
    let access = Some(&access).filter(|access| !access.is_minimal());
    let kept = Some(&default).filter(|_| record.is_directory());
    let inline = xattr::pack(access, kept, &Default::default())?.inline;
    Ok(FileRecord { mode, inline, ..record })
}

/// Mode and group of a new file in `directory`: in a set-group-ID directory it gets the
/// directory's group, and a new directory the bit too. A set-group-ID program for a group that the
/// caller is not in can't be made this way.
fn inherited(
    directory: &FileRecord,
    caller: &Caller,
    file_type: FileType,
    mode: u32,
) -> (u32, u32) {
    let mut mode = mode & MODE_BITS;
    if directory.mode & SET_GID == 0 {
        return (mode, caller.gid);
    }
    let gid = directory.gid;
    if file_type == FileType::Directory {
        mode |= SET_GID;
    } else if mode & (SET_GID | GROUP_EXECUTE) == SET_GID | GROUP_EXECUTE
        && !caller.is_root()
        && !caller.is_in_group(gid)
    {
        mode &= !SET_GID;
    }
    (mode, gid)
}

/// What `setattr` comes down to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The file's record afterwards.
    pub record: FileRecord,
    /// New length.
    pub size: Option<u64>,
    /// What there must be room for.
    pub reserve: Option<FileRange>,
    /// New modification time.
    pub modify_time: Option<Timestamp>,
    /// Whether somebody may have lost a permission: capabilities must be revoked.
    pub narrows: bool,
}

/// Checks a change of attributes against the rules, and says what it makes of the record.
///
/// # Errors
/// `Permission` where only the owner or root may; `Access` where write permission is missing;
/// `Invalid`, `IsDirectory` where the change has no meaning for the file.
pub fn plan_changes(
    record: &FileRecord,
    caller: &Caller,
    changes: &SetFileAttributes,
    now: Timestamp,
) -> Result<Changes, ManagerStatus> {
    let mut new = record.next();
    plan_owner(record, caller, changes, &mut new)?;
    plan_size(record, caller, changes, &mut new)?;
    plan_mode(record, caller, changes, &mut new)?;
    let modify_time = plan_times(record, caller, changes, now, &mut new)?;
    let loses_bits = record.mode & !new.mode & 0o777 != 0;
    // Who can write past the kernel would not take them away.
    let gains_ids = !record.is_directory() && !record.mode & new.mode & 0o6000 != 0;
    let narrows = loses_bits || gains_ids || new.uid != record.uid || new.gid != record.gid;
    let SetFileAttributes { size, reserve, .. } = *changes;
    Ok(Changes { record: new, size, reserve, modify_time, narrows })
}

/// `chown`: root gives files away; an owner may give a file to a group that it is in. Programs
/// lose set-user-ID and set-group-ID.
fn plan_owner(
    record: &FileRecord,
    caller: &Caller,
    changes: &SetFileAttributes,
    new: &mut FileRecord,
) -> Result<(), ManagerStatus> {
    if changes.uid.is_none() && changes.gid.is_none() {
        return Ok(());
    }
    new.uid = changes.uid.unwrap_or(record.uid);
    new.gid = changes.gid.unwrap_or(record.gid);
    let allowed = caller.is_root()
        || (caller.uid == record.uid
            && new.uid == record.uid
            && (new.gid == record.gid || caller.is_in_group(new.gid)));
    if !allowed {
        return Err(ManagerStatus::Permission);
    }
    if !record.is_directory() {
        drop_set_ids(new);
    }
    Ok(())
}

/// `truncate` and `fallocate`: need write permission, or to be the owner: see [`rights`].
fn plan_size(
    record: &FileRecord,
    caller: &Caller,
    changes: &SetFileAttributes,
    new: &mut FileRecord,
) -> Result<(), ManagerStatus> {
    let reserved_end = changes.reserve.map(|range| range.offset.saturating_add(range.length));
    let Some(end) = changes.size.max(reserved_end) else {
        return Ok(());
    };
    match record.file_type {
        FileType::Directory => return Err(ManagerStatus::IsDirectory),
        FileType::Regular => {}
        _ => return Err(ManagerStatus::Invalid),
    }
    if end > nasd_types::limits::MAX_OBJECT_BYTES {
        return Err(ManagerStatus::TooLarge);
    }
    if !is_owner(record, caller) {
        require(record, caller, WRITE)?;
    }
    if !caller.is_root() {
        drop_set_ids(new);
    }
    Ok(())
}

/// `chmod`: owner and root. Who is not in the file's group can't make it set-group-ID.
fn plan_mode(
    record: &FileRecord,
    caller: &Caller,
    changes: &SetFileAttributes,
    new: &mut FileRecord,
) -> Result<(), ManagerStatus> {
    let Some(mode) = changes.mode else {
        return Ok(());
    };
    if !is_owner(record, caller) {
        return Err(ManagerStatus::Permission);
    }
    new.mode = mode & MODE_BITS;
    if !caller.is_root() && !caller.is_in_group(new.gid) {
        new.mode &= !SET_GID;
    }
    Ok(())
}

/// `utimensat`: any time for owner and root; both times the current one for whoever may write too.
fn plan_times(
    record: &FileRecord,
    caller: &Caller,
    changes: &SetFileAttributes,
    now: Timestamp,
    new: &mut FileRecord,
) -> Result<Option<Timestamp>, ManagerStatus> {
    let sets_any = changes.access_time.is_some() || changes.modify_time.is_some();
    let sets_now = changes.access_time_now || changes.modify_time_now;
    let contradicts = (changes.access_time.is_some() && changes.access_time_now)
        || (changes.modify_time.is_some() && changes.modify_time_now);
    if contradicts {
        return Err(ManagerStatus::Invalid);
    }
    // Truncating moves the time by itself; clients may say so as well.
    let only_truncates = changes.size.is_some() && !changes.access_time_now;
    if !is_owner(record, caller) && !only_truncates {
        let is_touched = changes.access_time_now && changes.modify_time_now;
        if is_touched {
            require(record, caller, WRITE)?;
        } else if sets_now {
            return Err(ManagerStatus::Permission);
        }
    }
    if !is_owner(record, caller) && sets_any {
        return Err(ManagerStatus::Permission);
    }
    let access_time = if changes.access_time_now { Some(now) } else { changes.access_time };
    new.access_time = access_time.unwrap_or(record.access_time);
    Ok(if changes.modify_time_now { Some(now) } else { changes.modify_time })
}

/// What a change of owner or contents takes from a program. Set-group-ID without group execution
/// is not for execution (it was mandatory locking), and stays.
fn drop_set_ids(record: &mut FileRecord) {
    record.mode &= !SET_UID;
    if record.mode & GROUP_EXECUTE != 0 {
        record.mode &= !SET_GID;
    }
}
