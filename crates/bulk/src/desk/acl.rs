//! Access control lists of POSIX, as Linux keeps and reads them (`system.posix_acl_access`).

use nasd_client::Caller;
use rustix::fs::getxattr;
use rustix::io::Errno;

use super::node::Node;
use super::permission::is_in_group;

const NAME: &str = "system.posix_acl_access";
const DEFAULT_NAME: &str = "system.posix_acl_default";
const VERSION: u32 = 2;
const HEAD_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;

/// What nearly every list has room in, and what all have.
const FEW_BYTES: usize = 512;
const MOST_BYTES: usize = 64 << 10;

/// Kinds of entries.
const OWNER: u16 = 1;
const USER: u16 = 2;
const OWNING_GROUP: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHERS: u16 = 32;

/// A list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Acl(Vec<Entry>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    kind: u16,
    bits: u16,
    id: u32,
}

impl Acl {
    /// That of a file, if it has one beyond its mode.
    pub(super) fn of(node: &Node) -> Result<Option<Acl>, Errno> {
        match read(node, NAME)? {
            Some(bytes) => Acl::parse(&bytes).map(Some).ok_or(Errno::IO),
            None => Ok(None),
        }
    }

    fn parse(bytes: &[u8]) -> Option<Acl> {
        let (version, entries) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        if u32::from_le_bytes(*version) != VERSION || !entries.len().is_multiple_of(ENTRY_BYTES) {
            return None;
        }
        let entry = |bytes: &[u8]| {
            let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
            let id = u32::from_le_bytes(std::array::from_fn(|byte| bytes[4 + byte]));
            Entry { kind: short(0), bits: short(2), id }
        };
        Some(Acl(entries.chunks_exact(ENTRY_BYTES).map(entry).collect()))
    }

    /// Whether the caller may do all that is `wanted` (three bits) with a file of that owner and group: the first entry
    /// decides that is the caller's, but of several groups any that allows it.
    pub(super) fn permits(&self, (uid, gid): (u32, u32), caller: &Caller, wanted: u32) -> bool {
        let mask = self.0.iter().find(|entry| entry.kind == MASK).map_or(7, |entry| entry.bits);
        let has = |bits: u16| u32::from(bits) & wanted == wanted;
        let mut is_in_one = false;
        for entry in &self.0 {
            match entry.kind {
                OWNER if caller.uid == uid => return has(entry.bits),
                USER if caller.uid == entry.id => return has(entry.bits & mask),
                OWNING_GROUP | GROUP => {
                    let group = if entry.kind == GROUP { entry.id } else { gid };
                    let is_in = is_in_group(caller, group);
                    if is_in && has(entry.bits) {
                        return has(mask);
                    }
                    is_in_one |= is_in;
                }
                OTHERS => return !is_in_one && has(entry.bits),
                _ => {}
            }
        }
        false
    }
}

/// Whether what is made in a directory begins with a list of the directory's.
pub(super) fn has_default(directory: &Node) -> Result<bool, Errno> {
    Ok(read(directory, DEFAULT_NAME)?.is_some())
}

fn read(node: &Node, name: &str) -> Result<Option<Vec<u8>>, Errno> {
    let path = node.by_descriptor();
    for room in [FEW_BYTES, MOST_BYTES] {
        let mut bytes = vec![0; room];
        match getxattr(&*path, name, &mut bytes[..]) {
            Ok(length) => {
                bytes.truncate(length);
                return Ok(Some(bytes));
            }
            Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
            Err(Errno::RANGE) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (kind, bits, id) in entries {
            bytes.extend(kind.to_le_bytes());
            bytes.extend(bits.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn lists_are_read_as_the_kernel_reads_them() {
        let none = u32::MAX;
        let list = [
            (OWNER, 4, none),
            (USER, 7, 1001),
            (OWNING_GROUP, 0, none),
            (GROUP, 6, 200),
            (MASK, 6, none),
            (OTHERS, 4, none),
        ];
        let acl = Acl::parse(&bytes(&list)).unwrap();
        let may = |uid, groups: &[u32], wanted| {
            let caller = Caller { uid, gid: 5, groups: groups.to_vec() };
            acl.permits((1000, 100), &caller, wanted)
        };
        assert!(may(1000, &[200], 4) && !may(1000, &[200], 2), "the owner is the owner");
        assert!(may(1001, &[], 6) && !may(1001, &[], 1), "the mask counts for users");
        assert!(!may(1002, &[100], 4), "not as the others may");
        assert!(may(1002, &[100, 200], 6), "any group");
        assert!(may(1002, &[], 4) && !may(1002, &[], 2));
    }

    #[test]
    fn what_is_no_list_is_none() {
        for wrong in [&[][..], &[1, 0, 0, 0], &[2, 0, 0, 0, 1], &[2, 0, 0]] {
            assert_eq!(Acl::parse(wrong), None);
        }
    }
}
