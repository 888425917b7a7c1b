//! Access control lists of directories as AFS has them: who may do what with a directory and the files in it, and how that is told
//! and kept.
//!
//! The rules are those of the OpenAFS reference pages of `fs setacl` and `fs listacl`, and of its user guide. A list has positive and
//! negative entries. What a caller may do is the union of all positive entries that apply to him (his own, those of all groups that he is
//! in, and those of everybody), without what any negative entry that applies to him has. Without [`AclRights::LOOKUP`] no other right counts.
//!
//! A list is told as text, one entry a line: who, a space, and the letters of the rights. Negative entries begin with `-`:
//!
//! ```text
//! user:1000 rlidwka
//! group:100 rl
//! -user:1001 w
//! anyuser l
//! ```
//!
//! It is kept short, as it goes into the records of files: for each entry
//!
//! ```text
//! who (u8): 1 anyuser, 2 authuser, 3 administrators, 4 user, 5 group, and 0x80 where it is negative
//! rights (u8): the bits of `AclRights`
//! the user's or group's number (u32, little-endian), of 4 and 5 only
//! ```
//!
//! in the order of the entries ([`Acl::entries`]).

use std::fmt;

/// The extended attribute of a directory that is its list, and of a file that is the list that governs it.
pub const ATTRIBUTE: &str = "system.nasd_acl";

/// The name under which root is told of that one: tools that copy attributes for root take it along, also to other file systems.
pub const ATTRIBUTE_FOR_ROOT: &str = "trusted.nasd_acl";

/// Most entries of a list, as in AFS.
pub const MAX_ENTRIES: usize = 20;

/// Most bytes of a list that is kept.
pub const MAX_KEPT_BYTES: usize = MAX_ENTRIES * 6;

/// Most bytes of a text that is looked at; a list with all its entries has less.
const MAX_TEXT_BYTES: usize = 4096;

/// Whom a host takes for nobody that it knows (`nobody`, the kernel's overflow user): he is in `anyuser`, and not in `authuser`.
pub const NOBODY: u32 = 65_534;

/// The rights of AFS; a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AclRights(u8);

impl AclRights {
    /// None.
    pub const NONE: AclRights = AclRights(0);
    /// `r`: to read what is in the directory's files.
    pub const READ: AclRights = AclRights(1);
    /// `w`: to write the directory's files, and to change their modes.
    pub const WRITE: AclRights = AclRights(2);
    /// `i`: to add names to the directory.
    pub const INSERT: AclRights = AclRights(4);
    /// `l`: to list the directory, to look its names up, and to see the attributes of its files. Without it no other right counts.
    pub const LOOKUP: AclRights = AclRights(8);
    /// `d`: to remove names from the directory.
    pub const DELETE: AclRights = AclRights(16);
    /// `k`: to lock the directory's files.
    pub const LOCK: AclRights = AclRights(32);
    /// `a`: to change the list.
    pub const ADMINISTER: AclRights = AclRights(64);
    /// All.
    pub const ALL: AclRights = AclRights(127);

    /// The rights in their usual order, with their letters.
    const LETTERS: [(AclRights, char); 7] = [
        (AclRights::READ, 'r'),
        (AclRights::LOOKUP, 'l'),
        (AclRights::INSERT, 'i'),
        (AclRights::DELETE, 'd'),
        (AclRights::WRITE, 'w'),
        (AclRights::LOCK, 'k'),
        (AclRights::ADMINISTER, 'a'),
    ];

    /// Each right by itself.
    pub fn each() -> impl Iterator<Item = AclRights> {
        AclRights::LETTERS.into_iter().map(|(right, _)| right)
    }

    /// Whether all of these are there.
    pub const fn has(self, wanted: AclRights) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// Whether any of these is there.
    pub const fn has_any(self, wanted: AclRights) -> bool {
        self.0 & wanted.0 != 0
    }

    /// These and those.
    #[must_use]
    pub const fn with(self, more: AclRights) -> AclRights {
        AclRights(self.0 | more.0)
    }

    /// These without those.
    #[must_use]
    pub const fn without(self, less: AclRights) -> AclRights {
        AclRights(self.0 & !less.0)
    }

    /// From the bits; `None` of others.
    pub const fn from_bits(bits: u8) -> Option<AclRights> {
        if bits <= AclRights::ALL.0 { Some(AclRights(bits)) } else { None }
    }

    /// The bits.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// From letters, each once, or one of the words of `fs setacl`: `read` (rl), `write` (rlidwk), `all` (rlidwka), `none`.
    pub fn parse(text: &str) -> Option<AclRights> {
        match text {
            "" => return None,
            "none" => return Some(AclRights::NONE),
            "read" => return AclRights::parse("rl"),
            "write" => return AclRights::parse("rlidwk"),
            "all" => return Some(AclRights::ALL),
            _ => {}
        }
        let mut rights = AclRights::NONE;
        for letter in text.chars() {
            let (right, _) = AclRights::LETTERS.into_iter().find(|(_, known)| *known == letter)?;
            if rights.has(right) {
                return None;
            }
            rights = rights.with(right);
        }
        Some(rights)
    }

    /// What is left of them: nothing without [`AclRights::LOOKUP`].
    const fn that_count(self) -> AclRights {
        if self.has(AclRights::LOOKUP) { self } else { AclRights::NONE }
    }
}

impl fmt::Display for AclRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == AclRights::NONE {
            return f.write_str("none");
        }
        for (right, letter) in AclRights::LETTERS {
            if self.has(right) {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

/// Whom an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AclSubject {
    /// Everybody (`system:anyuser`).
    AnyUser,
    /// Everybody but [`NOBODY`] (`system:authuser`).
    AuthUser,
    /// Root, who may do everything anyway (`system:administrators`).
    Administrators,
    /// A user.
    User(u32),
    /// The members of a group.
    Group(u32),
}

impl AclSubject {
    /// From its text, with or without `system:`.
    pub fn parse(text: &str) -> Option<AclSubject> {
        match text.strip_prefix("system:").unwrap_or(text) {
            "anyuser" => Some(AclSubject::AnyUser),
            "authuser" => Some(AclSubject::AuthUser),
            "administrators" => Some(AclSubject::Administrators),
            _ => {
                let (kind, number) = text.split_once(':')?;
                let is_plain = number.bytes().all(|byte| byte.is_ascii_digit());
                let number =
                    number.parse().ok().filter(|number| is_plain && *number != u32::MAX)?;
                match kind {
                    "user" => Some(AclSubject::User(number)),
                    "group" => Some(AclSubject::Group(number)),
                    _ => None,
                }
            }
        }
    }

    fn applies_to(self, uid: u32, is_in_group: &dyn Fn(u32) -> bool) -> bool {
        match self {
            AclSubject::AnyUser => true,
            AclSubject::AuthUser => uid != NOBODY,
            AclSubject::Administrators => uid == 0,
            AclSubject::User(user) => user == uid,
            AclSubject::Group(group) => is_in_group(group),
        }
    }
}

impl fmt::Display for AclSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AclSubject::AnyUser => f.write_str("anyuser"),
            AclSubject::AuthUser => f.write_str("authuser"),
            AclSubject::Administrators => f.write_str("administrators"),
            AclSubject::User(user) => write!(f, "user:{user}"),
            AclSubject::Group(group) => write!(f, "group:{group}"),
        }
    }
}

/// One entry. Of those about the same there is one positive and one negative at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// Whether it takes the rights away.
    pub negative: bool,
    /// From or for whom.
    pub subject: AclSubject,
    /// Which; never none.
    pub rights: AclRights,
}

impl AclEntry {
    fn place(&self) -> (bool, AclSubject) {
        (self.negative, self.subject)
    }
}

/// A list that is none, or too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AclError {
    /// This line is no entry.
    Line(String),
    /// Somebody has two entries of one kind.
    Twice(AclSubject),
    /// There are more than [`MAX_ENTRIES`].
    TooMany,
}

impl fmt::Display for AclError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AclError::Line(line) => write!(
                f,
                "{line:?} is no entry of an access control list: write for example \"user:1000 rlidwk\", \"-group:100 w\" or \
                 \"anyuser l\""
            ),
            AclError::Twice(subject) => write!(f, "{subject} is there twice"),
            AclError::TooMany => {
                write!(f, "an access control list has at most {MAX_ENTRIES} entries; make a group")
            }
        }
    }
}

impl std::error::Error for AclError {}

/// A list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

impl Acl {
    /// The entries: the positive ones first, each kind in the order of [`AclSubject`].
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// Gives somebody exactly these rights in his positive or negative entry; with none there is no entry.
    ///
    /// # Errors
    /// `TooMany`; the list is as it was then.
    pub fn set(
        &mut self,
        subject: AclSubject,
        negative: bool,
        rights: AclRights,
    ) -> Result<(), AclError> {
        let entry = AclEntry { negative, subject, rights };
        let place = self.entries.binary_search_by_key(&entry.place(), AclEntry::place);
        match place {
            Ok(at) if rights == AclRights::NONE => drop(self.entries.remove(at)),
            Ok(at) => self.entries[at] = entry,
            Err(_) if rights == AclRights::NONE => {}
            Err(_) if self.entries.len() >= MAX_ENTRIES => return Err(AclError::TooMany),
            Err(at) => self.entries.insert(at, entry),
        }
        Ok(())
    }

    /// What somebody may do who is no root: the union of what the positive entries that apply to him give, without all that negative
    /// ones take.
    pub fn rights_of(&self, uid: u32, is_in_group: &dyn Fn(u32) -> bool) -> AclRights {
        self.union(|subject| subject.applies_to(uid, is_in_group)).that_count()
    }

    /// The same of somebody who may be in more groups than is known.
    pub fn rights_at_least(&self, uid: u32, is_in_group: &dyn Fn(u32) -> bool) -> AclRights {
        let surely_applies = |subject: AclSubject| subject.applies_to(uid, is_in_group);
        self.most(&surely_applies, &|subject| subject.applies_to(uid, &|_| true))
    }

    /// The most that this user may do, whatever groups he is in.
    pub fn most_of(&self, uid: u32) -> AclRights {
        let may_apply = |subject: AclSubject| subject.applies_to(uid, &|_| true);
        let surely_applies = |subject: AclSubject| subject.applies_to(uid, &|_| false);
        self.most(&may_apply, &surely_applies)
    }

    /// The most that anybody may do who is neither root nor this user.
    pub fn most_of_others(&self, uid: u32) -> AclRights {
        let may_apply = |subject: AclSubject| match subject {
            AclSubject::User(user) => user != uid,
            AclSubject::Administrators => false,
            AclSubject::AnyUser | AclSubject::AuthUser | AclSubject::Group(_) => true,
        };
        self.most(&may_apply, &|subject| subject == AclSubject::AnyUser)
    }

    /// Whether [`Acl::most_of`] of this user and [`Acl::most_of_others`] say exactly who has [`AclRights::LOOKUP`]: of all others everybody has
    /// it, or nobody.
    pub fn is_lookup_plain(&self, uid: u32) -> bool {
        let has = |user: u32| self.rights_of(user, &|_| false).has(AclRights::LOOKUP);
        let by_group = |entry: &AclEntry| {
            matches!(entry.subject, AclSubject::Group(_)) && entry.rights.has(AclRights::LOOKUP)
        };
        if self.entries.iter().any(by_group) {
            return false;
        }
        // Everybody whom an entry names, and somebody whom none does.
        let named = self.entries.iter().filter_map(|entry| match entry.subject {
            AclSubject::User(user) => Some(user),
            _ => None,
        });
        let unnamed = (1..NOBODY).find(|user| *user != uid && !self.names(*user));
        let mut others =
            named.chain(unnamed).chain([NOBODY]).filter(|user| *user != uid && *user != 0);
        let shown_to_others = self.most_of_others(uid).has(AclRights::LOOKUP);
        others.all(|user| has(user) == shown_to_others)
            && self.most_of(uid).has(AclRights::LOOKUP) == has(uid)
    }

    fn names(&self, user: u32) -> bool {
        self.entries.iter().any(|entry| entry.subject == AclSubject::User(user))
    }

    fn union(&self, applies: impl Fn(AclSubject) -> bool) -> AclRights {
        self.most(&applies, &applies)
    }

    /// What the positive entries of the first give, without what the negative ones of the others take.
    fn most(
        &self,
        given: &dyn Fn(AclSubject) -> bool,
        taken: &dyn Fn(AclSubject) -> bool,
    ) -> AclRights {
        let of = |negative: bool, applies: &dyn Fn(AclSubject) -> bool| {
            let entries = self.entries.iter();
            let entries =
                entries.filter(|entry| entry.negative == negative && applies(entry.subject));
            entries.fold(AclRights::NONE, |all, entry| all.with(entry.rights))
        };
        of(false, given).without(of(true, taken)).that_count()
    }

    /// From its text. Empty lines do not count.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_text(text: &[u8]) -> Result<Acl, AclError> {
        let shown = |text: &[u8]| String::from_utf8_lossy(&text[..text.len().min(80)]).into_owned();
        let bad = || AclError::Line(shown(text));
        if text.len() > MAX_TEXT_BYTES {
            return Err(AclError::TooMany);
        }
        let mut acl = Acl::default();
        // Tools put a zero byte behind what they take for a string.
        let text = text.strip_suffix(b"\0").unwrap_or(text);
        for line in std::str::from_utf8(text).map_err(|_| bad())?.lines() {
            let mut words = line.split_ascii_whitespace();
            let Some(who) = words.next() else { continue };
            let (negative, who) = match who.strip_prefix('-') {
                Some(who) => (true, who),
                None => (false, who),
            };
            let subject = AclSubject::parse(who);
            let rights = words.next().and_then(AclRights::parse).filter(|_| words.next().is_none());
            let (Some(subject), Some(rights)) = (subject, rights) else {
                return Err(AclError::Line(shown(line.as_bytes())));
            };
            let is_there = |entry: &AclEntry| entry.place() == (negative, subject);
            if acl.entries.iter().any(is_there) {
                return Err(AclError::Twice(subject));
            }
            acl.set(subject, negative, rights)?;
        }
        Ok(acl)
    }

    /// The bytes that are kept, [`MAX_KEPT_BYTES`] at most.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.entries.len() * 6);
        for AclEntry { negative, subject, rights } in &self.entries {
            let (kind, number) = match subject {
                AclSubject::AnyUser => (1, None),
                AclSubject::AuthUser => (2, None),
                AclSubject::Administrators => (3, None),
                AclSubject::User(user) => (4, Some(user)),
                AclSubject::Group(group) => (5, Some(group)),
            };
            bytes.extend_from_slice(&[kind | if *negative { NEGATIVE } else { 0 }, rights.bits()]);
            number.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        }
        bytes
    }

    /// A list that was kept. `None` of what is none.
    pub fn from_bytes(mut bytes: &[u8]) -> Option<Acl> {
        let mut entries: Vec<AclEntry> = Vec::new();
        while let Some(([kind, rights], rest)) = bytes.split_first_chunk() {
            bytes = rest;
            let mut number = || {
                let (number, rest) = bytes.split_first_chunk()?;
                bytes = rest;
                Some(u32::from_le_bytes(*number)).filter(|number| *number != u32::MAX)
            };
            let subject = match kind & !NEGATIVE {
                1 => AclSubject::AnyUser,
                2 => AclSubject::AuthUser,
                3 => AclSubject::Administrators,
                4 => AclSubject::User(number()?),
                5 => AclSubject::Group(number()?),
                _ => return None,
            };
            let rights = AclRights::from_bits(*rights).filter(|some| *some != AclRights::NONE)?;
            let entry = AclEntry { negative: kind & NEGATIVE != 0, subject, rights };
            if entries.last().is_some_and(|last| last.place() >= entry.place()) {
                return None;
            }
            entries.push(entry);
        }
        (bytes.is_empty() && entries.len() <= MAX_ENTRIES).then_some(Acl { entries })
    }
}

/// What says that an entry that is kept is negative.
const NEGATIVE: u8 = 0x80;

/// The text, each line with its end.
impl fmt::Display for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for AclEntry { negative, subject, rights } in &self.entries {
            writeln!(f, "{}{subject} {rights}", if *negative { "-" } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn subjects() -> impl Strategy<Value = AclSubject> {
        prop_oneof![
            Just(AclSubject::AnyUser),
            Just(AclSubject::AuthUser),
            Just(AclSubject::Administrators),
            (1..5_u32).prop_map(AclSubject::User),
            Just(AclSubject::User(NOBODY)),
            (1..5_u32).prop_map(AclSubject::Group),
        ]
    }

    fn rights() -> impl Strategy<Value = AclRights> {
        prop_oneof![(0..128_u8).prop_map(AclRights), Just(AclRights::LOOKUP), Just(AclRights::ALL)]
    }

    fn acls() -> impl Strategy<Value = Acl> {
        prop::collection::vec((any::<bool>(), subjects(), rights()), 0..8).prop_map(|entries| {
            let mut acl = Acl::default();
            for (negative, subject, rights) in entries {
                acl.set(subject, negative, rights).unwrap();
            }
            acl
        })
    }

    /// A user that is no root, and his groups.
    fn users() -> impl Strategy<Value = (u32, Vec<u32>)> {
        (prop_oneof![1..6_u32, Just(NOBODY)], prop::collection::vec(1..6_u32, 0..3))
    }

    /// One right at a time, over the text that is told, as the reference pages say it.
    fn reference(text: &str, uid: u32, groups: &[u32], letter: char) -> bool {
        let has = |negative: bool, letter: char| {
            text.lines().any(|line| {
                let (who, letters) = line.split_once(' ').unwrap();
                let applies = match who.trim_start_matches('-') {
                    "anyuser" => true,
                    "authuser" => uid != NOBODY,
                    who => match who.split_once(':') {
                        Some(("user", number)) => number == uid.to_string(),
                        Some((_, number)) => groups.iter().any(|group| group.to_string() == number),
                        None => false,
                    },
                };
                applies && who.starts_with('-') == negative && letters.contains(letter)
            })
        };
        let counts = |letter| has(false, letter) && !has(true, letter);
        counts('l') && counts(letter)
    }

    proptest! {
        #[test]
        fn the_rights_are_those_of_the_reference_pages(acl in acls(), (uid, groups) in users()) {
            let rights = acl.rights_of(uid, &|group| groups.contains(&group));
            // Whoever's groups are not all known has no right that he would not have.
            let least = acl.rights_at_least(uid, &|group| groups.first() == Some(&group));
            prop_assert!(rights.has(least), "{}", acl);
            let text = acl.to_string();
            for (right, letter) in AclRights::LETTERS {
                prop_assert_eq!(rights.has(right), reference(&text, uid, &groups, letter), "{} in {}", letter, text);
            }
        }

        #[test]
        fn what_a_negative_entry_takes_nobody_has_by_another(acl in acls(), (uid, groups) in users(), rights in rights()) {
            let mut less = acl;
            less.set(AclSubject::User(uid), true, rights).unwrap();
            let left = less.rights_of(uid, &|group| groups.contains(&group));
            prop_assert!(!left.has_any(rights));
        }

        #[test]
        fn nobody_has_more_than_is_shown(acl in acls(), owner in 1..6_u32, (uid, groups) in users()) {
            let rights = acl.rights_of(uid, &|group| groups.contains(&group));
            let shown = if uid == owner { acl.most_of(owner) } else { acl.most_of_others(owner) };
            prop_assert!(shown.has(rights), "{} of {} in\n{}", rights, shown, acl);
            if acl.is_lookup_plain(owner) {
                prop_assert_eq!(shown.has(AclRights::LOOKUP), rights.has(AclRights::LOOKUP), "{}", acl);
            }
        }

        #[test]
        fn texts_and_bytes_survive(acl in acls()) {
            prop_assert_eq!(Acl::from_text(acl.to_string().as_bytes()), Ok(acl.clone()));
            let bytes = acl.to_bytes();
            prop_assert!(bytes.len() <= MAX_KEPT_BYTES);
            prop_assert_eq!(Acl::from_bytes(&bytes), Some(acl));
            for length in 0..bytes.len() {
                // Entries are of two lengths: what is left may be a list.
                if let Some(shorter) = Acl::from_bytes(&bytes[..length]) {
                    prop_assert_eq!(shorter.to_bytes(), &bytes[..length]);
                }
            }
        }

        #[test]
        fn no_bytes_and_no_text_panic(bytes in prop::collection::vec(any::<u8>(), 0..160), text in "[-:a-z0-9 \n]{0,80}") {
            if let Some(acl) = Acl::from_bytes(&bytes) {
                prop_assert_eq!(acl.to_bytes(), bytes.clone());
            }
            let _ = Acl::from_text(&bytes);
            if let Ok(acl) = Acl::from_text(text.as_bytes()) {
                prop_assert_eq!(Acl::from_text(acl.to_string().as_bytes()), Ok(acl));
            }
        }
    }

    #[test]
    fn texts_are_read_as_people_write_them() {
        let text = b"  system:anyuser read\n\n-user:7 write\nuser:7 all\ngroup:3 none\n\0";
        let acl = Acl::from_text(text).unwrap();
        assert_eq!(acl.to_string(), "anyuser rl\nuser:7 rlidwka\n-user:7 rlidwk\n");
        assert_eq!(Acl::from_text(b""), Ok(Acl::default()));
        for bad in [
            &b"user:7"[..],
            b"user:7 rr",
            b"user:7 rx",
            b"user:7 r l",
            b"user:+7 r",
            b"user:4294967295 r",
            b"user: r",
            b"someone rl",
            b"--user:7 r",
            b"- user:7 r",
            b"\xff rl",
        ] {
            assert!(matches!(Acl::from_text(bad), Err(AclError::Line(_))), "{bad:?}");
        }
        let twice = Acl::from_text(b"user:7 r\nuser:007 l");
        assert_eq!(twice, Err(AclError::Twice(AclSubject::User(7))));
        let many: String = (1..=21).map(|user| format!("user:{user} l\n")).collect();
        assert_eq!(Acl::from_text(many.as_bytes()), Err(AclError::TooMany));
        assert!(Acl::from_text(many.replace("user:21 l\n", "").as_bytes()).is_ok());
        assert_eq!(Acl::from_text(&[b' '; 5000]), Err(AclError::TooMany));
    }
}
