//! Who may do what: as the kernel would decide for that user and those groups.

use nasd_client::Caller;
use nasd_protocol::bulk_desk::DeskStatus;

use super::acl::Acl;
use super::node::Node;
use super::status::status_of;

/// Permission to read a file or list a directory, as in a mode's three bits.
pub(super) const READ: u32 = 4;
/// Permission to write a file or change a directory's names.
pub(super) const WRITE: u32 = 2;
/// Permission to look names up in a directory.
pub(super) const SEARCH: u32 = 1;

/// On a directory: only owners of a file, of the directory, and root remove the file's name.
pub(super) const STICKY: u32 = 0o1000;

/// The bits of the group; where there are none, a list is not looked at, as its mask is the same.
const GROUP_BITS: u32 = 0o070;

pub(super) fn is_in_group(caller: &Caller, gid: u32) -> bool {
    caller.gid == gid || caller.groups.contains(&gid)
}

/// Whether the caller may do all that is `wanted`, three bits: one class of the mode applies, or one entry of the list.
/// Root may read and write all, and search all directories.
pub(super) fn permits(node: &Node, caller: &Caller, wanted: u32) -> Result<bool, DeskStatus> {
    let facts = node.facts();
    let granted = if caller.uid == 0 {
        return Ok(true);
    } else if caller.uid == facts.uid {
        facts.mode >> 6
    } else {
        if facts.mode & GROUP_BITS != 0
            && let Some(acl) = Acl::of(node).map_err(status_of)?
        {
            return Ok(acl.permits((facts.uid, facts.gid), caller, wanted));
        }
        if is_in_group(caller, facts.gid) { facts.mode >> 3 } else { facts.mode }
    };
    Ok(granted & wanted == wanted)
}

/// Requires all of the permission bits `wanted`.
pub(super) fn require(node: &Node, caller: &Caller, wanted: u32) -> Result<(), DeskStatus> {
    if permits(node, caller, wanted)? { Ok(()) } else { Err(DeskStatus::Access) }
}

fn is_owner(node: &Node, caller: &Caller) -> bool {
    caller.uid == 0 || caller.uid == node.facts().uid
}

/// Requires that the caller owns it, or is root.
pub(super) fn require_owner(node: &Node, caller: &Caller) -> Result<(), DeskStatus> {
    if is_owner(node, caller) { Ok(()) } else { Err(DeskStatus::Permission) }
}

/// Requires that the caller may give names in a directory.
pub(super) fn require_change(directory: &Node, caller: &Caller) -> Result<(), DeskStatus> {
    require(directory, caller, WRITE | SEARCH)
}

/// Requires that the caller may take the name of `node` out of a directory.
pub(super) fn require_removal(
    directory: &Node,
    node: &Node,
    caller: &Caller,
) -> Result<(), DeskStatus> {
    require_change(directory, caller)?;
    let is_sticky = directory.facts().mode & STICKY != 0;
    match !is_sticky || is_owner(directory, caller) || is_owner(node, caller) {
        true => Ok(()),
        false => Err(DeskStatus::Permission),
    }
}
