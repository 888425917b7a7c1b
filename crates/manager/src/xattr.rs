//! Extended attributes: who may see and set them, and how they are kept.
//!
//! Access control lists, which are set and told as attributes, are kept in the record of the file, in
//! a short form (`crate::acl`, and `nasd_afs::acl` of lists as AFS has them). All other attributes are kept there too if they fit beside them; else all
//! of them in an *attribute object* on the file's drive, which the record names. It is never
//! changed: other attributes are another object.
//!
//! What the record has, up to 170 bytes, one after the other:
//!
//! ```text
//! 1  length (u8), the access list      2  length (u8), the default list
//! 3  name length (u8), value length (u8), name, value
//! 4  length (u8), the list as AFS has it
//! ```
//!
//! The attribute object:
//!
//! ```text
//!  0  "NXAT"      4  version (u16), 1     6  zero (u16)
//!  8  attributes (u32)                   12  bytes behind the head (u32)
//! 16  the attributes in ascending order of names: name length (u8), value length (u32), name, value
//! ```

use std::collections::BTreeMap;

use nasd_afs::acl::{self, Acl as AfsAcl};
use nasd_protocol::limits::{MAX_XATTR_LIST_BYTES, MAX_XATTR_VALUE_BYTES};
use nasd_protocol::manager::{FileType, ManagerStatus};
use nasd_types::limits::MAX_NAME_BYTES;

use crate::acl::Acl;
use crate::bytes::{Cursor, put_u16, put_u32, u16_at, u32_at};
use crate::caller::Caller;
use crate::file_record::FileRecord;
use crate::permission::{self, READ, WRITE};

/// Name of the attribute that is the access control list.
pub const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
/// Name of the attribute that is the list that files made in a directory begin with.
pub const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";
/// Name of the attribute that is a directory's list as AFS has it.
pub const AFS_ACL: &[u8] = acl::ATTRIBUTE.as_bytes();
/// The name under which root is told of that one.
pub const AFS_ACL_FOR_ROOT: &[u8] = acl::ATTRIBUTE_FOR_ROOT.as_bytes();

/// Longest attribute object, in bytes: what one write makes durable at once, and a client can list.
pub const MAX_OBJECT_BYTES: usize = 1 << 20;

/// Room in the record, in bytes.
pub const INLINE_BYTES: usize = 170;

const KIND_ACCESS: u8 = 1;
const KIND_DEFAULT: u8 = 2;
const KIND_ATTRIBUTE: u8 = 3;
const KIND_AFS: u8 = 4;

const MAGIC: [u8; 4] = *b"NXAT";
const VERSION: u16 = 1;
const HEAD_BYTES: usize = 16;

/// Attributes by name, but for access control lists.
pub type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `user.`: like the contents of the file.
    User,
    /// `trusted.`: root's alone.
    Trusted,
    /// `security.`: set by root, read by all.
    Security,
    /// The access control list.
    AccessAcl,
    /// The list that files made in a directory begin with.
    DefaultAcl,
    /// A directory's list as AFS has it.
    AfsAcl,
}

impl Class {
    /// Whether it is a list that decides who may do what.
    pub const fn is_list(self) -> bool {
        matches!(self, Class::AccessAcl | Class::DefaultAcl | Class::AfsAcl)
    }
}

/// The class of a name.
///
/// # Errors
/// `NotSupported` of others' names; `Invalid` where nothing follows the class, or a zero byte does.
pub fn class_of(name: &[u8]) -> Result<Class, ManagerStatus> {
    match name {
        ACCESS_ACL => return Ok(Class::AccessAcl),
        DEFAULT_ACL => return Ok(Class::DefaultAcl),
        AFS_ACL | AFS_ACL_FOR_ROOT => return Ok(Class::AfsAcl),
        _ => {}
    }
    let classes = [
        (&b"user."[..], Class::User),
        (b"trusted.", Class::Trusted),
        (b"security.", Class::Security),
    ];
    let class = classes.iter().find(|(prefix, _)| name.starts_with(prefix));
    let (prefix, class) = class.ok_or(ManagerStatus::NotSupported)?;
    if is_whole_name(name) && name.len() > prefix.len() {
        Ok(*class)
    } else {
        Err(ManagerStatus::Invalid)
    }
}

/// Requires that the caller may read attributes of a class.
///
/// # Errors
/// `NoData` where he may not know of them, `Access` where the mode does not allow it, `NotSupported`
/// where the file can't have any.
pub fn require_readable(
    class: Class,
    record: &FileRecord,
    caller: &Caller,
) -> Result<(), ManagerStatus> {
    match class {
        Class::User if !may_have_user_attributes(record) => Err(ManagerStatus::NoData),
        Class::User => permission::require(record, caller, READ),
        Class::Trusted if !caller.is_root() => Err(ManagerStatus::NoData),
        Class::AccessAcl | Class::DefaultAcl if record.afs_acl().is_some() => {
            Err(ManagerStatus::NoData)
        }
        Class::AccessAcl | Class::DefaultAcl => require_can_have_acl(record),
        Class::AfsAcl => permission::require_to_see_list(record, caller),
        Class::Trusted => Ok(()),
        Class::Security => permission::require_to_look(record, caller),
    }
}

/// Requires that the caller may set or remove attributes of a class.
///
/// # Errors
/// `Permission` where only the owner or root may, or nobody; `Access` where the mode does not allow it;
/// `NotSupported` where the file can't have any.
pub fn require_settable(
    class: Class,
    record: &FileRecord,
    caller: &Caller,
) -> Result<(), ManagerStatus> {
    let only_if = |may: bool| if may { Ok(()) } else { Err(ManagerStatus::Permission) };
    match class {
        Class::User => {
            only_if(may_have_user_attributes(record))?;
            let is_shared = record.is_directory() && permission::is_sticky(record);
            only_if(!is_shared || permission::is_owner(record, caller))?;
            permission::require(record, caller, WRITE)
        }
        Class::Trusted | Class::Security => only_if(caller.is_root()),
        Class::AccessAcl | Class::DefaultAcl => {
            require_can_have_acl(record)?;
            only_if(permission::is_owner(record, caller))?;
            // It would say nothing.
            if record.afs_acl().is_some() { Err(ManagerStatus::NotSupported) } else { Ok(()) }
        }
        // Files have that of their directory.
        Class::AfsAcl if !record.is_directory() => Err(ManagerStatus::NotSupported),
        Class::AfsAcl => only_if(permission::may_administer(record, caller)),
    }
}

/// Whether the caller is told of attributes of this class.
pub fn is_listed(class: Class, caller: &Caller) -> bool {
    class != Class::Trusted || caller.is_root()
}

/// For others, a mode allows what has nothing to do with contents.
fn may_have_user_attributes(record: &FileRecord) -> bool {
    matches!(record.file_type, FileType::Regular | FileType::Directory)
}

fn require_can_have_acl(record: &FileRecord) -> Result<(), ManagerStatus> {
    match record.file_type {
        FileType::Symlink | FileType::MountPoint => Err(ManagerStatus::NotSupported),
        _ => Ok(()),
    }
}

/// What a file has besides its mode, as far as its record has it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Inline {
    length: u8,
    bytes: [u8; INLINE_BYTES],
}

impl Inline {
    /// Nothing.
    pub const EMPTY: Inline = Inline { length: 0, bytes: [0; INLINE_BYTES] };

    /// These bytes, if they make sense.
    pub fn parse(bytes: &[u8]) -> Option<Inline> {
        let mut inline = Inline::EMPTY;
        inline.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        inline.length = u8::try_from(bytes.len()).ok()?;
        let mut items = inline.items();
        let mut last = (0, &[][..]);
        while !items.0.is_empty() {
            let item = items.next()?;
            let place = match item {
                Item::Access(list) => {
                    Acl::take_beside_mode(list, 0).map(|_| (KIND_ACCESS, &[][..]))
                }
                Item::Default(list) => Acl::take_default(list).map(|_| (KIND_DEFAULT, &[][..])),
                Item::Afs(list) => AfsAcl::from_bytes(list).map(|_| (KIND_AFS, &[][..])),
                Item::Attribute(name, _) => is_whole_name(name).then_some((KIND_ATTRIBUTE, name)),
            }?;
            if place <= last {
                return None;
            }
            last = place;
        }
        Some(inline)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// The access control list of a file with this mode, if it has one.
    pub fn access_acl(&self, mode: u32) -> Option<Acl> {
        self.items().find_map(|item| match item {
            Item::Access(list) => Acl::take_beside_mode(list, mode),
            _ => None,
        })
    }

    /// The default list.
    pub fn default_acl(&self) -> Option<Acl> {
        self.items().find_map(|item| match item {
            Item::Default(list) => Acl::take_default(list),
            _ => None,
        })
    }

    /// The list as AFS has it: a directory's own, and of a file that of its directory.
    pub fn afs_acl(&self) -> Option<AfsAcl> {
        self.items().find_map(|item| match item {
            Item::Afs(list) => AfsAcl::from_bytes(list),
            _ => None,
        })
    }

    /// The attributes that are no lists.
    pub fn attributes(&self) -> Attributes {
        let attributes = self.items().filter_map(|item| match item {
            Item::Attribute(name, value) => Some((name.to_vec(), value.to_vec())),
            _ => None,
        });
        attributes.collect()
    }

    /// Whether there is an access list, a default list, and anything else.
    pub fn has(&self) -> (bool, bool, bool) {
        self.items().fold((false, false, false), |(access, default, other), item| match item {
            Item::Access(_) => (true, default, other),
            Item::Default(_) => (access, true, other),
            Item::Attribute(..) => (access, default, true),
            Item::Afs(_) => (access, default, other),
        })
    }

    fn items(&self) -> Items<'_> {
        Items(Cursor::new(self.bytes()))
    }
}

impl std::fmt::Debug for Inline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.items()).finish()
    }
}

#[derive(Debug)]
enum Item<'a> {
    Access(&'a [u8]),
    Default(&'a [u8]),
    Attribute(&'a [u8], &'a [u8]),
    Afs(&'a [u8]),
}

struct Items<'a>(Cursor<'a>);

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        let cursor = &mut self.0;
        let (kind, length) = (cursor.u8()?, cursor.u8()?);
        match kind {
            KIND_ACCESS => cursor.take(length.into()).map(Item::Access),
            KIND_DEFAULT => cursor.take(length.into()).map(Item::Default),
            KIND_AFS => cursor.take(length.into()).map(Item::Afs),
            KIND_ATTRIBUTE => {
                let value_length = cursor.u8()?;
                let name = cursor.take(length.into())?;
                Some(Item::Attribute(name, cursor.take(value_length.into())?))
            }
            _ => None,
        }
    }
}

/// How a file's lists and attributes are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// In the record.
    pub inline: Inline,
    /// In the attribute object.
    pub object: Option<Vec<u8>>,
}

/// Packs lists and attributes: as much as fits into the record.
///
/// # Errors
/// `NoSpace` where the lists do not go into a record, the attributes into an attribute object, or their names into
/// an answer.
pub fn pack(
    access: Option<&Acl>,
    default: Option<&Acl>,
    afs: Option<&AfsAcl>,
    attributes: &Attributes,
) -> Result<Packed, ManagerStatus> {
    let mut last = Vec::new();
    if let Some(acl) = afs {
        put_list(KIND_AFS, &mut last, |out| out.extend_from_slice(&acl.to_bytes()))?;
    }
    let mut lists = Vec::new();
    if let Some(acl) = access {
        put_list(KIND_ACCESS, &mut lists, |out| acl.put_beside_mode(out))?;
    }
    if let Some(acl) = default {
        put_list(KIND_DEFAULT, &mut lists, |out| acl.put_default(out))?;
    }
    let mut all = lists.clone();
    for (name, value) in attributes {
        all.extend_from_slice(&[KIND_ATTRIBUTE, length_byte(name), length_byte(value)]);
        all.extend_from_slice(name);
        all.extend_from_slice(value);
    }
    all.extend_from_slice(&last);
    lists.extend_from_slice(&last);
    if all.len() <= INLINE_BYTES {
        let inline = Inline::parse(&all).ok_or(ManagerStatus::NoSpace)?;
        return Ok(Packed { inline, object: None });
    }
    let inline = Inline::parse(&lists).ok_or(ManagerStatus::NoSpace)?;
    if attributes.is_empty() {
        return Ok(Packed { inline, object: None });
    }
    let names: usize = attributes.keys().map(|name| name.len() + 1).sum();
    let object = encode_object(attributes);
    let fits = names <= MAX_XATTR_LIST_BYTES && object.len() <= MAX_OBJECT_BYTES;
    if fits { Ok(Packed { inline, object: Some(object) }) } else { Err(ManagerStatus::NoSpace) }
}

/// Saturates: what is longer does not fit into the record anyway.
fn length_byte(bytes: &[u8]) -> u8 {
    u8::try_from(bytes.len()).unwrap_or(u8::MAX)
}

fn put_list(
    kind: u8,
    out: &mut Vec<u8>,
    put: impl FnOnce(&mut Vec<u8>),
) -> Result<(), ManagerStatus> {
    let mut list = Vec::new();
    put(&mut list);
    if out.len() + 2 + list.len() > INLINE_BYTES {
        return Err(ManagerStatus::NoSpace);
    }
    out.extend_from_slice(&[kind, length_byte(&list)]);
    out.append(&mut list);
    Ok(())
}

/// The bytes of an attribute object.
fn encode_object(attributes: &Attributes) -> Vec<u8> {
    let mut bytes = vec![0; HEAD_BYTES];
    for (name, value) in attributes {
        bytes.push(length_byte(name));
        bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(value);
    }
    bytes[..4].copy_from_slice(&MAGIC);
    put_u16(&mut bytes, 4, VERSION);
    put_u32(&mut bytes, 8, attributes.len() as u32);
    let length = (bytes.len() - HEAD_BYTES) as u32;
    put_u32(&mut bytes, 12, length);
    bytes
}

/// The attributes in an attribute object. `None` of what is none.
pub fn parse_object(bytes: &[u8]) -> Option<Attributes> {
    let (head, body) = bytes.split_at_checked(HEAD_BYTES)?;
    let is_known = head[..4] == MAGIC && u16_at(head, 4) == VERSION && u16_at(head, 6) == 0;
    if !is_known || u32_at(head, 12) as usize != body.len() || bytes.len() > MAX_OBJECT_BYTES {
        return None;
    }
    let mut cursor = Cursor::new(body);
    let mut attributes = Attributes::new();
    for _ in 0..u32_at(head, 8) {
        let (name_length, value_length) = (cursor.u8()?, cursor.u32()? as usize);
        let name = cursor.take(name_length.into())?;
        let value = cursor.take(value_length)?;
        let follows = attributes.last_key_value().is_none_or(|(last, _)| &last[..] < name);
        if !is_whole_name(name) || !follows || value.len() > MAX_XATTR_VALUE_BYTES {
            return None;
        }
        attributes.insert(name.to_vec(), value.to_vec());
    }
    cursor.is_empty().then_some(attributes)
}

fn is_whole_name(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.contains(&0)
}

#[cfg(test)]
mod tests {
    use nasd_afs::acl::{AclRights, AclSubject, MAX_ENTRIES};
    use proptest::prelude::*;

    use super::*;

    fn attributes() -> impl Strategy<Value = Attributes> {
        let name = "[a-z.]{1,60}".prop_map(String::into_bytes);
        let value = prop::collection::vec(any::<u8>(), 0..300);
        prop::collection::btree_map(name, value, 0..6)
    }

    fn acl(count: u32) -> Acl {
        Acl {
            users: (0..count).map(|user| (user * 7, 5)).collect(),
            mask: Some(7),
            ..Acl::of_mode(0o751)
        }
    }

    fn afs_acl(entries: u32) -> AfsAcl {
        let mut acl = AfsAcl::default();
        for user in 0..entries {
            acl.set(AclSubject::User(user), user % 2 == 1, AclRights::ALL).unwrap();
        }
        acl
    }

    proptest! {
        #[test]
        fn what_is_packed_is_found(all in attributes(), users in 0..12_u32, has_default in any::<bool>(), entries in 0..6_u32) {
            let access = (users > 0).then(|| acl(users));
            let default = has_default.then(|| acl(3));
            let afs = (entries > 0).then(|| afs_acl(entries));
            let packed = pack(access.as_ref(), default.as_ref(), afs.as_ref(), &all).unwrap();
            let inline = Inline::parse(packed.inline.bytes()).unwrap();
            prop_assert_eq!(inline, packed.inline);
            prop_assert_eq!(inline.access_acl(0o771), access.map(|acl| Acl { owner: 7, mask: Some(7), other: 1, ..acl }));
            prop_assert_eq!(inline.default_acl(), default);
            prop_assert_eq!(inline.afs_acl(), afs);
            let found = match &packed.object {
                Some(object) => {
                    prop_assert!(inline.attributes().is_empty());
                    parse_object(object).unwrap()
                }
                None => inline.attributes(),
            };
            prop_assert_eq!(found, all);
        }

        #[test]
        fn damage_is_found_or_harmless(all in attributes(), at in any::<prop::sample::Index>(), value in any::<u8>()) {
            let mut bytes = encode_object(&all);
            let at = at.index(bytes.len());
            bytes[at] = value;
            if let Some(found) = parse_object(&bytes) {
                prop_assert_eq!(&encode_object(&found), &bytes);
            }
            prop_assert_eq!(parse_object(&bytes[..at]), None);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(inline) = Inline::parse(&bytes) {
                prop_assert_eq!(inline.bytes(), &bytes[..]);
            }
            let _ = parse_object(&[&MAGIC[..], &[1, 0, 0, 0], &bytes].concat());
        }
    }

    #[test]
    fn lists_go_before_attributes_and_what_does_not_fit_is_refused() {
        let few = Attributes::from([(b"user.a".to_vec(), vec![1; 100])]);
        assert!(pack(None, None, None, &few).unwrap().object.is_none());
        let packed = pack(Some(&acl(20)), None, None, &few).unwrap();
        assert!(packed.object.is_some() && packed.inline.access_acl(0o751).is_some());
        let most = afs_acl(MAX_ENTRIES as u32);
        let packed = pack(None, None, Some(&most), &few).unwrap();
        assert!(packed.object.is_some() && packed.inline.afs_acl() == Some(most));
        assert!(pack(Some(&acl(33)), None, None, &few).is_ok());
        assert_eq!(pack(Some(&acl(34)), None, None, &few), Err(ManagerStatus::NoSpace));
        assert_eq!(pack(Some(&acl(400)), None, None, &few), Err(ManagerStatus::NoSpace));
        let much = |count: u32| -> Attributes {
            (0..count).map(|n| (format!("user.{n}").into_bytes(), vec![0; 65_536])).collect()
        };
        assert!(pack(None, None, None, &much(15)).is_ok());
        assert_eq!(pack(None, None, None, &much(16)), Err(ManagerStatus::NoSpace));
        let many: Attributes =
            (0..400).map(|n| (format!("user.{n:0>195}").into_bytes(), Vec::new())).collect();
        assert_eq!(pack(None, None, None, &many), Err(ManagerStatus::NoSpace));
    }

    #[test]
    fn names_have_classes() {
        assert_eq!(class_of(b"user.x"), Ok(Class::User));
        assert_eq!(class_of(b"trusted.x"), Ok(Class::Trusted));
        assert_eq!(class_of(b"security.capability"), Ok(Class::Security));
        assert_eq!(class_of(ACCESS_ACL), Ok(Class::AccessAcl));
        assert_eq!(class_of(DEFAULT_ACL), Ok(Class::DefaultAcl));
        assert_eq!(class_of(AFS_ACL), Ok(Class::AfsAcl));
        assert_eq!(class_of(AFS_ACL_FOR_ROOT), Ok(Class::AfsAcl));
        for name in [&b""[..], b"x", b"system.other", b"users.x", b"system.posix_acl_accessed"] {
            assert_eq!(class_of(name), Err(ManagerStatus::NotSupported));
        }
        for name in [&b"user."[..], b"trusted.", b"user.a\0b"] {
            assert_eq!(class_of(name), Err(ManagerStatus::Invalid));
        }
    }

    #[test]
    fn a_list_of_afs_is_that_of_the_document() {
        let list = AfsAcl::from_text(b"anyuser rl\n-user:1000 w").unwrap();
        let packed = pack(None, None, Some(&list), &Attributes::new()).unwrap();
        let bytes = packed.inline.bytes();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "040801098402e8030000");
        assert!(crate::document::shows(&hex));
    }

    #[test]
    fn the_object_is_that_of_the_document() {
        let all = Attributes::from([(b"user.a".to_vec(), b"xy".to_vec())]);
        let hex: String = encode_object(&all).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "4e5841540100000001000000\
                         0d0000000602000000757365722e617879"
        );
        assert!(crate::document::shows(&hex));
    }
}
