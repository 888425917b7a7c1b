//! Access control lists as POSIX.1e (draft 17) and Linux have them: what they say, and how they are told
//! and kept.
//!
//! A list has the permissions of the owner, of users by name, of the file's group, of groups by name, and
//! of all others; and a mask, which is the most that anybody but the owner and others may. With a list,
//! the group bits of a file's mode are the mask: so what a file keeps beside its mode is the group's
//! own entry and the entries by name ([`Acl::put_beside_mode`]), and `chmod` has nothing to change in
//! the list. A list that says no more than a mode ([`Acl::is_minimal`]) is not kept.
//!
//! The form that is told is that of the kernel's extended attributes, version 2, little-endian:
//!
//! ```text
//! 0  version (u32), 2; then for each entry: tag (u16), permissions (u16), user or group (u32)
//! ```
//!
//! The form that is kept is short, as it goes into the file's record:
//!
//! ```text
//! beside a mode:      group's permissions (u8), entries by name
//! a default list:     owner, group, mask or 0xff, others (u8 each), entries by name
//! entries by name:    users (u8), then for each: user (u32), permissions (u8);
//!                     groups (u8), then for each: group (u32), permissions (u8)
//! ```

use nasd_protocol::manager::ManagerStatus;

use crate::bytes::{Cursor, u16_at, u32_at};
use crate::caller::Caller;

/// Version of the kernel's form.
const XATTR_VERSION: u32 = 2;
const XATTR_HEAD_BYTES: usize = 4;
const XATTR_ENTRY_BYTES: usize = 8;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// Stands for the user or group of entries that are not by name.
const NOBODY: u32 = u32::MAX;

/// Stands for a mask that there is not, in the form that is kept.
const NO_MASK: u8 = 0xff;

/// Permissions of a user or group by name.
pub type Named = (u32, u8);

/// A list; permissions are three bits each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    /// The file's owner's.
    pub owner: u8,
    /// Other users', in ascending order.
    pub users: Vec<Named>,
    /// The file's group's.
    pub group: u8,
    /// Other groups', in ascending order.
    pub groups: Vec<Named>,
    /// The most of users by name and of groups; there is one where anybody is named.
    pub mask: Option<u8>,
    /// All others'.
    pub other: u8,
}

impl Acl {
    /// What a mode says.
    pub fn of_mode(mode: u32) -> Acl {
        Acl {
            owner: bits(mode >> 6),
            users: Vec::new(),
            group: bits(mode >> 3),
            groups: Vec::new(),
            mask: None,
            other: bits(mode),
        }
    }

    /// The nine permission bits of a mode that belong to it: the group's are the mask, if there is one.
    pub fn mode_bits(&self) -> u32 {
        let class = self.mask.unwrap_or(self.group);
        u32::from(self.owner) << 6 | u32::from(class) << 3 | u32::from(self.other)
    }

    /// Whether it says no more than a mode.
    pub fn is_minimal(&self) -> bool {
        self.mask.is_none() && self.users.is_empty() && self.groups.is_empty()
    }

    /// Whether the caller, who is not root, may do all that is `wanted` (three bits) with a file of this
    /// owner and group. One entry decides: of several groups' any that allows it all.
    pub fn permits(&self, (uid, gid): (u32, u32), caller: &Caller, wanted: u8) -> bool {
        let allows = |permissions: u8| permissions & wanted == wanted;
        let masked = |permissions: u8| allows(permissions & self.mask.unwrap_or(7));
        if caller.uid == uid {
            return allows(self.owner);
        }
        if let Some((_, permissions)) = self.users.iter().find(|(user, _)| *user == caller.uid) {
            return masked(*permissions);
        }
        let own = (gid, self.group);
        let mut of_groups = std::iter::once(&own)
            .chain(&self.groups)
            .filter(|(group, _)| caller.is_in_group(*group))
            .peekable();
        match of_groups.peek() {
            Some(_) => of_groups.any(|(_, permissions)| masked(*permissions)),
            None => allows(self.other),
        }
    }

    /// What a file that is made with `mode` in a directory with this default list begins with.
    pub fn inherited(&self, mode: u32) -> Acl {
        let mut acl = self.clone();
        acl.owner &= bits(mode >> 6);
        acl.other &= bits(mode);
        match &mut acl.mask {
            Some(mask) => *mask &= bits(mode >> 3),
            None => acl.group &= bits(mode >> 3),
        }
        acl
    }

    /// From the kernel's form. `None` is the empty list, which stands for that there is none.
    ///
    /// # Errors
    /// `NotSupported` of another version, `Invalid` of what is no list.
    pub fn from_xattr(value: &[u8]) -> Result<Option<Acl>, ManagerStatus> {
        let Some((head, entries)) = value.split_at_checked(XATTR_HEAD_BYTES) else {
            return Err(ManagerStatus::Invalid);
        };
        if u32_at(head, 0) != XATTR_VERSION {
            return Err(ManagerStatus::NotSupported);
        }
        if !entries.len().is_multiple_of(XATTR_ENTRY_BYTES) {
            return Err(ManagerStatus::Invalid);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        from_entries(entries).map(Some).ok_or(ManagerStatus::Invalid)
    }

    /// The kernel's form.
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut out = XATTR_VERSION.to_le_bytes().to_vec();
        let mut put = |tag: u16, permissions: u8, whose: u32| {
            out.extend_from_slice(&tag.to_le_bytes());
            out.extend_from_slice(&u16::from(permissions).to_le_bytes());
            out.extend_from_slice(&whose.to_le_bytes());
        };
        put(USER_OBJ, self.owner, NOBODY);
        self.users.iter().for_each(|(user, permissions)| put(USER, *permissions, *user));
        put(GROUP_OBJ, self.group, NOBODY);
        self.groups.iter().for_each(|(group, permissions)| put(GROUP, *permissions, *group));
        if let Some(mask) = self.mask {
            put(MASK, mask, NOBODY);
        }
        put(OTHER, self.other, NOBODY);
        out
    }

    /// What is kept of it beside the mode that it gives the file.
    pub fn put_beside_mode(&self, out: &mut Vec<u8>) {
        out.push(self.group);
        self.put_named(out);
    }

    /// What was kept beside this mode. `None` of what is no list.
    pub fn take_beside_mode(bytes: &[u8], mode: u32) -> Option<Acl> {
        let mut cursor = Cursor::new(bytes);
        let group = permissions(cursor.u8()?)?;
        let (users, groups) = take_named(&mut cursor)?;
        let mask = Some(bits(mode >> 3));
        let (owner, other) = (bits(mode >> 6), bits(mode));
        cursor.is_empty().then_some(Acl { owner, users, group, groups, mask, other })
    }

    /// What is kept of a default list.
    pub fn put_default(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.owner, self.group, self.mask.unwrap_or(NO_MASK), self.other]);
        self.put_named(out);
    }

    /// A default list that was kept. `None` of what is no list.
    pub fn take_default(bytes: &[u8]) -> Option<Acl> {
        let mut cursor = Cursor::new(bytes);
        let (owner, group) = (permissions(cursor.u8()?)?, permissions(cursor.u8()?)?);
        let mask = match cursor.u8()? {
            NO_MASK => None,
            mask => Some(permissions(mask)?),
        };
        let other = permissions(cursor.u8()?)?;
        let (users, groups) = take_named(&mut cursor)?;
        let is_whole = mask.is_some() || users.is_empty() && groups.is_empty();
        (cursor.is_empty() && is_whole).then_some(Acl { owner, users, group, groups, mask, other })
    }

    fn put_named(&self, out: &mut Vec<u8>) {
        for named in [&self.users, &self.groups] {
            // More than 255 do not go into a record; whoever packs them refuses it by the length.
            out.push(u8::try_from(named.len()).unwrap_or(u8::MAX));
            for (whose, permissions) in named {
                out.extend_from_slice(&whose.to_le_bytes());
                out.push(*permissions);
            }
        }
    }
}

fn bits(mode: u32) -> u8 {
    (mode & 7) as u8
}

fn permissions(byte: u8) -> Option<u8> {
    (byte <= 7).then_some(byte)
}

fn take_named(cursor: &mut Cursor<'_>) -> Option<(Vec<Named>, Vec<Named>)> {
    let mut lists = [Vec::new(), Vec::new()];
    for list in &mut lists {
        let count = cursor.u8()?;
        for _ in 0..count {
            list.push((cursor.u32()?, permissions(cursor.u8()?)?));
        }
        if !is_ascending(list) {
            return None;
        }
    }
    let [users, groups] = lists;
    Some((users, groups))
}

fn is_ascending(named: &[Named]) -> bool {
    named.windows(2).all(|pair| pair[0].0 < pair[1].0)
}

/// Entries stand in the order of their tags. Nobody is named twice.
fn from_entries(entries: &[u8]) -> Option<Acl> {
    let mut acl = Acl::of_mode(0);
    let (mut last, mut seen) = (0, 0);
    for entry in entries.chunks_exact(XATTR_ENTRY_BYTES) {
        let (tag, whose) = (u16_at(entry, 0), u32_at(entry, 4));
        let permitted = permissions(u8::try_from(u16_at(entry, 2)).ok()?)?;
        let again = matches!(tag, USER | GROUP) && tag == last;
        if tag <= last && !again {
            return None;
        }
        match tag {
            USER_OBJ => acl.owner = permitted,
            USER if whose != NOBODY => acl.users.push((whose, permitted)),
            GROUP_OBJ => acl.group = permitted,
            GROUP if whose != NOBODY => acl.groups.push((whose, permitted)),
            MASK => acl.mask = Some(permitted),
            OTHER => acl.other = permitted,
            _ => return None,
        }
        (last, seen) = (tag, seen | tag);
    }
    acl.users.sort_unstable();
    acl.groups.sort_unstable();
    let required = USER_OBJ | GROUP_OBJ | OTHER;
    let names_anybody = !acl.users.is_empty() || !acl.groups.is_empty();
    let is_whole = seen & required == required && (!names_anybody || acl.mask.is_some());
    let names_once = is_ascending(&acl.users) && is_ascending(&acl.groups);
    (is_whole && names_once).then_some(acl)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(tag: u16, permissions: u16, whose: u32) -> Vec<u8> {
        let (tag, permissions) = (tag.to_le_bytes(), permissions.to_le_bytes());
        [&tag[..], &permissions, &whose.to_le_bytes()].concat()
    }

    fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let entries =
            entries.iter().map(|(tag, permissions, whose)| entry(*tag, *permissions, *whose));
        std::iter::once(vec![2, 0, 0, 0]).chain(entries).flatten().collect()
    }

    fn acls() -> impl Strategy<Value = Acl> {
        let named = || prop::collection::btree_map(0..6_u32, 0..8_u8, 0..4);
        (named(), named(), prop::option::of(0..8_u8), [0..8_u8, 0..8, 0..8]).prop_map(
            |(users, groups, mask, [owner, group, other])| {
                let users: Vec<Named> = users.into_iter().collect();
                let groups: Vec<Named> = groups.into_iter().collect();
                let names_anybody = !users.is_empty() || !groups.is_empty();
                let mask = if names_anybody { mask.or(Some(7)) } else { mask };
                Acl { owner, users, group, groups, mask, other }
            },
        )
    }

    fn callers() -> impl Strategy<Value = Caller> {
        (1..6_u32, 0..6_u32, prop::collection::vec(0..6_u32, 0..3))
            .prop_map(|(uid, gid, groups)| Caller { uid, gid, groups, ..Caller::default() })
    }

    /// The algorithm of section 23.1.5 of the draft, word by word, over the entries that are told.
    fn reference(value: &[u8], owner: (u32, u32), caller: &Caller, wanted: u16) -> bool {
        let entries: Vec<(u16, u16, u32)> = value[4..]
            .chunks(8)
            .map(|entry| (u16_at(entry, 0), u16_at(entry, 2), u32_at(entry, 4)))
            .collect();
        let only = |tag| entries.iter().find(|entry| entry.0 == tag).map(|entry| entry.1);
        let mask = only(MASK);
        if caller.uid == owner.0 {
            return only(USER_OBJ).is_some_and(|granted| granted & wanted == wanted);
        }
        for (tag, granted, whose) in &entries {
            if *tag == USER && *whose == caller.uid {
                return granted & wanted == wanted
                    && mask.is_none_or(|mask| mask & wanted == wanted);
            }
        }
        let mut matched = false;
        for (tag, granted, whose) in &entries {
            let group = match *tag {
                GROUP_OBJ => owner.1,
                GROUP => *whose,
                _ => continue,
            };
            if caller.gid == group || caller.groups.contains(&group) {
                matched = true;
                if granted & wanted == wanted {
                    return mask.is_none_or(|mask| mask & wanted == wanted);
                }
            }
        }
        !matched && only(OTHER).is_some_and(|granted| granted & wanted == wanted)
    }

    proptest! {
        #[test]
        fn permission_is_what_the_standard_says(
            acl in acls(), caller in callers(), uid in 1..6_u32, gid in 0..6_u32, wanted in 1..8_u8,
        ) {
            let expected = reference(&acl.to_xattr(), (uid, gid), &caller, u16::from(wanted));
            prop_assert_eq!(acl.permits((uid, gid), &caller, wanted), expected);
        }

        #[test]
        fn every_form_gives_the_list_back(acl in acls(), mode in 0..0o1000_u32) {
            prop_assert_eq!(Acl::from_xattr(&acl.to_xattr()), Ok(Some(acl.clone())));
            let mut kept = Vec::new();
            acl.put_default(&mut kept);
            prop_assert_eq!(Acl::take_default(&kept), Some(acl.clone()));
            for length in 0..kept.len() {
                prop_assert_eq!(Acl::take_default(&kept[..length]), None);
            }
            if acl.mask.is_some() {
                let mut kept = Vec::new();
                acl.put_beside_mode(&mut kept);
                let found = Acl::take_beside_mode(&kept, acl.mode_bits());
                prop_assert_eq!(found, Some(acl.clone()));
                // What `chmod` does: owner, mask and others are the new mode's, all else stays.
                let changed = Acl::take_beside_mode(&kept, mode).unwrap();
                prop_assert_eq!(changed.mode_bits(), mode);
                prop_assert_eq!((changed.users, changed.group), (acl.users, acl.group));
            }
        }

        #[test]
        fn what_is_inherited_allows_no_more_than_the_list_and_the_mode(
            acl in acls(), mode in 0..0o1000_u32, caller in callers(), wanted in 1..8_u8,
        ) {
            let made = acl.inherited(mode);
            prop_assert_eq!(made.mode_bits(), acl.mode_bits() & mode);
            let owner = (1, 1);
            let may = made.permits(owner, &caller, wanted);
            prop_assert!(!may || acl.permits(owner, &caller, wanted));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Acl::take_default(&bytes);
            let _ = Acl::take_beside_mode(&bytes, 0o777);
            let _ = Acl::from_xattr(&[&[2, 0, 0, 0], &bytes[..]].concat());
        }
    }

    #[test]
    fn a_mode_is_a_list_and_a_minimal_list_is_a_mode() {
        for mode in 0..0o1000 {
            let acl = Acl::of_mode(mode);
            assert!(acl.is_minimal());
            assert_eq!(acl.mode_bits(), mode);
            assert_eq!(acl.to_xattr().len(), 4 + 3 * 8);
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let (invalid, version) = (Err(ManagerStatus::Invalid), Err(ManagerStatus::NotSupported));
        assert_eq!(Acl::from_xattr(&[2, 0, 0, 0]), Ok(None));
        assert_eq!(Acl::from_xattr(&[1, 0, 0, 0]), version);
        assert_eq!(Acl::from_xattr(&[2, 0, 0]), invalid);
        let (owner, group, other) = ((1, 7, NOBODY), (4, 5, NOBODY), (0x20, 0, NOBODY));
        let (user, mask) = ((2, 7, 1000), (0x10, 7, NOBODY));
        assert!(Acl::from_xattr(&value(&[owner, user, group, mask, other])).is_ok());
        for entries in [
            &[owner, group][..],
            &[group, other],
            &[owner, other],
            &[owner, user, group, other],
            &[owner, owner, group, other],
            &[owner, group, other, mask],
            &[owner, group, user, mask, other],
            &[owner, user, user, group, mask, other],
            &[(1, 8, NOBODY), group, other],
            &[owner, (2, 7, NOBODY), group, mask, other],
            &[owner, group, other, (0x40, 0, NOBODY)],
        ] {
            assert_eq!(Acl::from_xattr(&value(entries)), invalid, "{entries:?}");
        }
        let whole = value(&[owner, group, other]);
        assert_eq!(Acl::from_xattr(&whole[..whole.len() - 1]), invalid);
    }
}
