//! Who may do what: the rules of POSIX (IEEE Std 1003.1, section 4.7, and the `chmod`, `chown`,
//! `utimensat`, `open` and `unlink` pages), as Linux reads them where they leave a choice.
//!
//! A directory of a volume of the personality `afs` may have a list as AFS has them (`nasd_afs::acl`). It governs the directory and the
//! files in it, which have a copy of it in their records: then the list decides instead of the mode, of which only the owner's bits count, and for
//! everybody: what they do not allow nobody may do with the file. So far as OpenAFS's reference pages and user guide say it, the rules are theirs; from
//! its file server's behaviour is that whoever owns a file and may insert into its directory may read and write the file, so that he can fill what he has put
//! there.
//!
//! Pure functions over records and callers. Root passes all of them.

use nasd_afs::acl::{Acl as AfsAcl, AclRights};
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
    } else if let Some(list) = record.afs_acl() {
        granted_by(&list, record, caller)
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

/// What the caller may do by the list that governs a file or directory.
fn listed_rights(list: &AfsAcl, caller: &Caller) -> AclRights {
    if caller.is_root() {
        return AclRights::ALL;
    }
    let is_in_group = |group| caller.is_in_group(group);
    match caller.is_of_unknown_groups {
        true => list.rights_at_least(caller.uid, &is_in_group),
        false => list.rights_of(caller.uid, &is_in_group),
    }
}

/// The same, with what the owner of a file may do who has put it there.
fn file_rights(list: &AfsAcl, record: &FileRecord, caller: &Caller) -> AclRights {
    let rights = listed_rights(list, caller);
    let fills = caller.uid == record.uid && rights.has(AclRights::INSERT);
    if fills { rights.with(AclRights::READ).with(AclRights::WRITE) } else { rights }
}

/// What a list, and the owner's bits of the mode of a file, come to as three bits.
fn granted_by(list: &AfsAcl, record: &FileRecord, caller: &Caller) -> u32 {
    if record.is_directory() {
        return directory_bits(listed_rights(list, caller), AclRights::WRITE);
    }
    file_bits(file_rights(list, record, caller)) & record.mode >> 6
}

/// Permission bits of a directory, where any of the rights `that_write` stands for writing.
fn directory_bits(rights: AclRights, that_write: AclRights) -> u32 {
    let looks = if rights.has(AclRights::LOOKUP) { READ | EXECUTE } else { 0 };
    looks | if rights.has_any(that_write) { WRITE } else { 0 }
}

/// Permission bits of a file, before its mode.
fn file_bits(rights: AclRights) -> u32 {
    let reads = if rights.has(AclRights::READ) { READ | EXECUTE } else { 0 };
    reads | if rights.has(AclRights::WRITE) { WRITE } else { 0 }
}

/// The mode that clients are told, by which their kernels check permissions. Of a file or directory that a list governs it grants
/// whatever the list grants to anybody, as it can't say more; who may do what is decided here.
pub fn shown_mode(record: &FileRecord) -> u32 {
    let Some(list) = record.afs_acl().filter(|_| record.file_type != FileType::Symlink) else {
        return record.mode;
    };
    let (owner, others) = (list.most_of(record.uid), list.most_of_others(record.uid));
    if record.is_directory() {
        let that_write = AclRights::INSERT.with(AclRights::DELETE).with(AclRights::WRITE);
        let bits = |rights| directory_bits(rights, that_write);
        return record.mode & SET_GID | bits(owner) << 6 | bits(others) << 3 | bits(others);
    }
    let fills = owner.has(AclRights::INSERT);
    let owner = if fills { owner.with(AclRights::READ).with(AclRights::WRITE) } else { owner };
    let owners_bits = record.mode >> 6 & 7;
    let (owner, others) = (file_bits(owner) & owners_bits, file_bits(others) & owners_bits);
    record.mode & 0o7000 | owner << 6 | others << 3 | others
}

/// Whether clients' kernels can tell by the mode that is shown who may look names up in a directory.
pub fn shows_who_looks(directory: &FileRecord) -> bool {
    directory.afs_acl().is_none_or(|list| list.is_lookup_plain(directory.uid))
}

/// Whether the caller may change a directory's list as AFS has it, or give it one. The owner of the volume's root may, too.
pub fn may_administer(directory: &FileRecord, caller: &Caller) -> bool {
    let has = |list: AfsAcl| listed_rights(&list, caller).has(AclRights::ADMINISTER);
    is_owner(directory, caller) || directory.afs_acl().is_some_and(has)
}

/// Requires that the caller may see the list that governs a file or directory, if one does.
///
/// # Errors
/// `Access` where he may neither look names up nor change the list.
pub fn require_to_see_list(record: &FileRecord, caller: &Caller) -> Result<(), ManagerStatus> {
    let has = |list: AfsAcl| listed_rights(&list, caller).has(AclRights::LOOKUP);
    let may = is_owner(record, caller) || record.afs_acl().is_none_or(has);
    if may { Ok(()) } else { Err(ManagerStatus::Access) }
}

/// Requires that the caller may be told of a file by its handle. As with NFS the directories above do not count; a list does.
///
/// # Errors
/// `Access` where a list governs the file and does not let him look names up. Of a directory everybody is told.
pub fn require_to_look(record: &FileRecord, caller: &Caller) -> Result<(), ManagerStatus> {
    if record.is_directory() { Ok(()) } else { require_to_see_list(record, caller) }
}

/// Requires that the caller may lock a file.
///
/// # Errors
/// `Access` where a list governs the file and does not let him.
pub fn require_to_lock(record: &FileRecord, caller: &Caller) -> Result<(), ManagerStatus> {
    let has = |list: AfsAcl| listed_rights(&list, caller).has(AclRights::LOCK);
    if record.afs_acl().is_none_or(has) { Ok(()) } else { Err(ManagerStatus::Access) }
}

/// What is done with a directory's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// One is looked up.
    Search,
    /// All are told.
    List,
    /// One is added.
    Insert,
    /// One is removed.
    Delete,
}

/// Requires that the caller may do that in a directory.
///
/// # Errors
/// `Access` where he may not.
pub fn require_to(
    directory: &FileRecord,
    caller: &Caller,
    deed: Deed,
) -> Result<(), ManagerStatus> {
    let Some(list) = directory.afs_acl() else {
        return require(
            directory,
            caller,
            match deed {
                Deed::Search => EXECUTE,
                Deed::List => READ,
                Deed::Insert | Deed::Delete => WRITE | EXECUTE,
            },
        );
    };
    let right = match deed {
        Deed::Search | Deed::List => AclRights::LOOKUP,
        Deed::Insert => AclRights::INSERT,
        Deed::Delete => AclRights::DELETE,
    };
    if listed_rights(&list, caller).has(right) { Ok(()) } else { Err(ManagerStatus::Access) }
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

/// Whether only owners take names out of a directory.
pub fn is_sticky(directory: &FileRecord) -> bool {
    directory.mode & STICKY != 0 && directory.afs_acl().is_none()
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
    let allowed = !is_sticky(directory) || is_owner(directory, caller) || is_owner(file, caller);
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
/// * What a list governs: what the list and the owner's bits grant, and to the owner of a file what the list does. Who may not look names up
///   gets no right at all.
/// * `SETATTR`, `REMOVE` and `CREATE` are never given away.
pub fn rights(record: &FileRecord, caller: &Caller) -> Rights {
    if let Some(list) = record.afs_acl() {
        return rights_by(&list, record, caller);
    }
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

/// The same where a list governs.
fn rights_by(list: &AfsAcl, record: &FileRecord, caller: &Caller) -> Rights {
    let listed = file_rights(list, record, caller);
    if !listed.has(AclRights::LOOKUP) {
        return Rights::empty();
    }
    let mut rights = Rights::GETATTR;
    let is_allowed = |bits: u32| is_owner(record, caller) || record.mode & bits != 0;
    match record.file_type {
        FileType::Symlink | FileType::MountPoint | FileType::Directory => rights |= Rights::READ,
        FileType::Fifo | FileType::Socket | FileType::BlockDevice | FileType::CharacterDevice => {}
        FileType::Regular => {
            if listed.has(AclRights::READ) && is_allowed(0o500) {
                rights |= Rights::READ;
            }
            if listed.has(AclRights::WRITE) && is_allowed(0o200) {
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
/// place of the mask of the process, and a new directory gets it too. A list as AFS has it governs the new file as well, and a new directory
/// begins with a copy.
///
/// # Errors
/// `NoSpace` where the lists do not go into a record; those that can be set do.
pub fn new_record(
    directory: &FileRecord,
    caller: &Caller,
    file_type: FileType,
    mode: NewMode,
) -> Result<FileRecord, ManagerStatus> {
    if let Some(list) = directory.afs_acl() {
        let (mode, gid) = inherited(directory, caller, file_type, mode.masked());
        let mode = if leads_on(file_type) { SYMLINK_MODE } else { mode };
        let inline = xattr::pack(None, None, Some(&list), &Default::default())?.inline;
        return Ok(FileRecord { inline, ..FileRecord::new(file_type, mode, (caller.uid, gid)) });
    }
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
    let inline = xattr::pack(access, kept, None, &Default::default())?.inline;
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
    match record.afs_acl() {
        Some(_) if rights(record, caller).contains(Rights::WRITE) => {}
        Some(_) => return Err(ManagerStatus::Access),
        None if is_owner(record, caller) => {}
        None => require(record, caller, WRITE)?,
    }
    if !caller.is_root() {
        drop_set_ids(new);
    }
    Ok(())
}

/// `chmod`: owner and root; where a list governs, whoever may write the file, or change the directory's list. Who is not in the file's group can't make it
/// set-group-ID, and only the owner and root make it set-user-ID or set-group-ID at all.
fn plan_mode(
    record: &FileRecord,
    caller: &Caller,
    changes: &SetFileAttributes,
    new: &mut FileRecord,
) -> Result<(), ManagerStatus> {
    let Some(mode) = changes.mode else {
        return Ok(());
    };
    if !may_set_mode(record, caller) {
        return Err(ManagerStatus::Permission);
    }
    new.mode = mode & MODE_BITS;
    if record.afs_acl().is_some() {
        // Others' bits that were shown are the list's: they are not to count where no list does.
        new.mode &= 0o7700 | record.mode;
    }
    if !is_owner(record, caller) {
        // Whoever may write a file would have what he has put there run as its owner.
        new.mode &= !(SET_UID | SET_GID) | record.mode;
    }
    if !caller.is_root() && !caller.is_in_group(new.gid) {
        new.mode &= !SET_GID;
    }
    Ok(())
}

/// Whether the caller may set the mode.
fn may_set_mode(record: &FileRecord, caller: &Caller) -> bool {
    match record.afs_acl() {
        Some(_) if record.is_directory() => may_administer(record, caller),
        Some(list) => file_rights(&list, record, caller).has(AclRights::WRITE),
        None => is_owner(record, caller),
    }
}

/// Whether the caller may set any time. Where a list governs it has to let the owner write, too.
fn may_set_times(record: &FileRecord, caller: &Caller) -> bool {
    let writes = |list: AfsAcl| file_rights(&list, record, caller).has(AclRights::WRITE);
    is_owner(record, caller) && record.afs_acl().is_none_or(writes)
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
    if !may_set_times(record, caller) && !only_truncates {
        let is_touched = changes.access_time_now && changes.modify_time_now;
        if is_touched {
            require(record, caller, WRITE)?;
        } else if sets_now {
            return Err(ManagerStatus::Permission);
        }
    }
    if !may_set_times(record, caller) && sets_any {
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
