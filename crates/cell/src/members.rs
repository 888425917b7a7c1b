//! `tls/members.toml`: who belongs to the cell. A certificate counts for as long as its serial
//! number is in here: whoever is removed is out at once, however long the certificate is good.
//!
//! Nothing in the file is secret; who can write it is the cell's owner.

use super::authority::Issued;
use super::files::{lock_directory, write_atomic};
use super::invitation::Invitation;
use super::{CellError, now, tls_directory};
use nasd_manager::caller::peer_number;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Longest name of a member.
const MAX_NAME_BYTES: usize = 64;

/// Earlier certificates of a member that are remembered.
const MAX_PREVIOUS: usize = 16;

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberKind {
    /// A machine: may speak for any of its users.
    Host,
    /// A person: for its own uid.
    User,
    /// Changes the cell.
    Admin,
}

/// One member, or one who was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// How people call it.
    pub name: String,
    /// What it is.
    pub kind: MemberKind,
    /// Of a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The certificate's serial number in hexadecimal digits.
    pub serial: String,
    /// Seconds since 1970.
    pub issued: u64,
    /// Until when the certificate is good.
    pub expires: u64,
    /// Serial numbers before renewals, the oldest first: good until those certificates end, as
    /// somebody may go on by one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub previous: Vec<String>,
    /// The same, of certificates that an earlier authority has made: good until that one goes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub superseded: Vec<String>,
    /// Which authority has made the certificate.
    #[serde(default)]
    pub authority: String,
    /// When it was removed, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
}

impl MemberKind {
    /// How the files of its certificate are called.
    pub fn file(self) -> &'static str {
        match self {
            MemberKind::Host => "host",
            MemberKind::User => "user",
            MemberKind::Admin => "admin",
        }
    }
}

impl Member {
    /// The member of a new certificate.
    pub fn new(name: &str, kind: MemberKind, uid: Option<u32>, issued: &Issued) -> Self {
        let Issued { serial, issued, expires, authority, .. } = issued.clone();
        Member {
            name: name.to_owned(),
            kind,
            uid,
            serial,
            issued,
            expires,
            previous: Vec::new(),
            superseded: Vec::new(),
            authority,
            removed: None,
        }
    }

    /// It has a new certificate; those before stay good: the new one may be lost on its way, and a
    /// mount goes on by the one that it has.
    pub fn renew(&mut self, issued: &Issued) {
        let Issued { serial, issued, expires, authority, .. } = issued.clone();
        self.previous.push(std::mem::replace(&mut self.serial, serial));
        if self.authority != authority {
            self.superseded.append(&mut self.previous);
        }
        for kept in [&mut self.previous, &mut self.superseded] {
            kept.drain(..kept.len().saturating_sub(MAX_PREVIOUS));
        }
        (self.issued, self.expires, self.authority) = (issued, expires, authority);
    }

    /// No certificate of it counts any more but this one.
    pub fn count_only(&mut self, issued: &Issued) {
        let Issued { serial, issued, expires, authority, .. } = issued.clone();
        self.previous.clear();
        self.superseded.clear();
        self.serial = serial;
        (self.issued, self.expires, self.authority) = (issued, expires, authority);
    }

    /// The serial numbers of all its certificates that may be good still.
    pub fn serials(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.serial).chain(&self.previous).chain(&self.superseded)
    }

    /// What its certificate's common name is.
    pub fn identity(&self) -> String {
        identity(&self.name, self.kind, self.uid)
    }

    /// Whether it still belongs to the cell.
    pub fn is_present(&self) -> bool {
        self.removed.is_none()
    }
}

/// The common name of a member's certificate.
pub fn identity(name: &str, kind: MemberKind, uid: Option<u32>) -> String {
    match kind {
        MemberKind::Host => format!("host:{name}"),
        MemberKind::User => format!("user:{}", uid.unwrap_or(u32::MAX)),
        MemberKind::Admin => format!("admin:{name}"),
    }
}

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Members {
    #[serde(rename = "member", default)]
    members: Vec<Member>,
    #[serde(rename = "invitation", default, skip_serializing_if = "Vec::is_empty")]
    invitations: Vec<Invitation>,
}

impl Members {
    /// Where the ledger of a cell is.
    pub fn path(cell_directory: &Path) -> PathBuf {
        tls_directory(cell_directory).join("members.toml")
    }

    /// Reads the ledger.
    ///
    /// # Errors
    /// `Damaged` or `Io`.
    pub fn load(cell_directory: &Path) -> Result<Self, CellError> {
        let path = Self::path(cell_directory);
        let text = std::fs::read_to_string(&path).map_err(CellError::io("read", &path))?;
        let damaged = |reason: String| CellError::Damaged { path: path.clone(), reason };
        toml::from_str(&text).map_err(|error| damaged(error.to_string()))
    }

    /// Changes the ledger, which is made if it is not there, while nobody else does so.
    ///
    /// # Errors
    /// `Damaged` or `Io`, or what the change itself says; then nothing is changed.
    pub fn update<T>(
        cell_directory: &Path,
        change: impl FnOnce(&mut Members) -> Result<T, CellError>,
    ) -> Result<T, CellError> {
        let directory = tls_directory(cell_directory);
        let _locked = lock_directory(&directory)?;
        let path = Self::path(cell_directory);
        let known = match path.exists() {
            true => Some(Members::load(cell_directory)?),
            false => None,
        };
        let mut members = known.clone().unwrap_or_default();
        let told = change(&mut members)?;
        if known.as_ref() == Some(&members) {
            // Strangers may ask as often as they like: what changes nothing costs no writing.
            return Ok(told);
        }
        let text = toml::to_string(&members).map_err(|error| CellError::Damaged {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        write_atomic(&path, text.as_bytes(), 0o644)?;
        Ok(told)
    }

    /// All who are or were members, in the order of their coming.
    pub fn all(&self) -> &[Member] {
        &self.members
    }

    /// Those who are.
    pub fn present(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.is_present())
    }

    /// Whether somebody may come in under this name.
    ///
    /// # Errors
    /// `Member` where the name is not one, is taken, or can't be told from another in audit trails,
    /// which name a member by 32 bits of a hash.
    pub fn check_new(
        &self,
        name: &str,
        kind: MemberKind,
        uid: Option<u32>,
    ) -> Result<(), CellError> {
        let refuse = |why: String| Err(CellError::Member { name: name.to_owned(), why });
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_name = name.bytes().all(plain) && !name.starts_with(['.', '-']);
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !is_name {
            return refuse(format!(
                "a name has 1 to {MAX_NAME_BYTES} letters, digits, `.`, `_` or `-`"
            ));
        }
        if self.present().any(|member| member.kind == kind && member.name == name) {
            return refuse("there is one of this name: remove it first".to_owned());
        }
        let new = identity(name, kind, uid);
        if let Some(other) = self.present().find(|member| member.identity() == new) {
            return refuse(format!("{} has the same user number", other.name));
        }
        // Those who are gone are still in the trails.
        let collides = |member: &&Member| {
            let known = member.identity();
            known != new && peer_number(&known) == peer_number(&new)
        };
        if let Some(other) = self.members.iter().find(collides) {
            return refuse(format!("audit trails could not tell it from {}", other.name));
        }
        Ok(())
    }

    /// The present member who has a certificate of that serial number.
    pub fn by_serial(&mut self, serial: &str) -> Option<&mut Member> {
        let has = |member: &&mut Member| {
            member.is_present() && member.serials().any(|known| known == serial)
        };
        self.members.iter_mut().find(has)
    }

    /// The present member of that identity.
    pub fn by_identity(&mut self, identity: &str) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.is_present() && member.identity() == identity)
    }

    /// Those who may join by a token.
    pub fn invitations(&self) -> &[Invitation] {
        &self.invitations
    }

    /// Notes who may join, in the place of an earlier invitation; those that have expired go.
    pub fn invite(&mut self, invitation: Invitation, now: u64) {
        self.withdraw(&invitation.name, invitation.kind);
        self.invitations.retain(|other| other.expires > now);
        self.invitations.push(invitation);
    }

    /// Forgets who was invited under that name; tells whether somebody was.
    fn withdraw(&mut self, name: &str, kind: MemberKind) -> bool {
        let before = self.invitations.len();
        self.invitations.retain(|other| other.kind != kind || other.name != name);
        self.invitations.len() < before
    }

    /// Takes the invitation of a token's secret with this hash out of the ledger.
    pub fn take_invitation(&mut self, hash: &str, now: u64) -> Option<Invitation> {
        let is_meant = |each: &Invitation| each.hash == hash && each.expires > now;
        let index = self.invitations.iter().position(is_meant)?;
        Some(self.invitations.swap_remove(index))
    }

    /// Adds a member that [`Members::check_new`] has let in. Who is a member is invited no more: a
    /// token that was not used would let somebody else in under the name later.
    pub fn add(&mut self, member: Member) {
        self.withdraw(&member.name, member.kind);
        self.members.push(member);
    }

    /// Removes a member, and the invitation of that name; tells its serial number, `None` for who
    /// was invited only.
    ///
    /// # Errors
    /// `Member` where there is neither.
    pub fn remove(&mut self, name: &str, kind: MemberKind) -> Result<Option<String>, CellError> {
        let was_invited = self.withdraw(name, kind);
        let is_meant = |member: &&mut Member| {
            member.is_present() && member.kind == kind && member.name == name
        };
        match self.members.iter_mut().find(is_meant) {
            Some(member) => {
                member.removed = Some(now().seconds());
                Ok(Some(member.serial.clone()))
            }
            None if was_invited => Ok(None),
            None => {
                let why = "there is no such member".to_owned();
                Err(CellError::Member { name: name.to_owned(), why })
            }
        }
    }

    /// No certificate counts any more that another authority than this has made: whoever has none
    /// of this one is removed.
    pub fn retire_others(&mut self, authority: &str) {
        for member in self.members.iter_mut().filter(|member| member.removed.is_none()) {
            if member.authority == authority {
                member.superseded.clear();
            } else {
                member.removed = Some(now().seconds());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issued(serial: &str) -> Issued {
        Issued {
            serial: serial.to_owned(),
            issued: 1,
            expires: 2,
            authority: String::new(),
            pem: String::new(),
        }
    }

    fn ledger() -> Members {
        let mut members = Members::default();
        members.add(Member::new("a", MemberKind::Host, None, &issued("01")));
        members.add(Member::new("bob", MemberKind::User, Some(1000), &issued("02")));
        members
    }

    #[test]
    fn survives_its_text_and_failed_changes() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("tls")).unwrap();
        Members::update(directory.path(), |members| {
            *members = ledger();
            Ok(())
        })
        .unwrap();
        assert_eq!(Members::load(directory.path()).unwrap(), ledger());
        let failed = Members::update(directory.path(), |members| {
            members.remove("a", MemberKind::Host)?;
            members.remove("a", MemberKind::Host)
        });
        assert!(failed.is_err());
        assert_eq!(Members::load(directory.path()).unwrap(), ledger());
    }

    #[test]
    fn a_renewed_member_is_known_by_all_its_certificates_until_it_is_removed() {
        let mut members = ledger();
        members.by_serial("01").unwrap().renew(&issued("11"));
        members.by_serial("01").unwrap().renew(&issued("21"));
        assert!(members.by_serial("21").is_some() && members.by_serial("11").is_some());
        assert!(
            members.by_serial("01").is_some() && members.by_serial("02").unwrap().name == "bob"
        );
        for renewal in 0..2 * MAX_PREVIOUS {
            members.by_serial("21").unwrap().renew(&issued(&format!("x{renewal}")));
            if renewal == 0 {
                assert!(members.by_serial("01").is_some());
            }
            members.by_serial(&format!("x{renewal}")).unwrap().renew(&issued("21"));
        }
        assert!(members.by_serial("01").is_none() && members.by_serial("21").is_some());
        members.remove("a", MemberKind::Host).unwrap();
        assert!(members.by_serial("21").is_none() && members.by_serial("x31").is_none());
    }

    #[test]
    fn with_an_authority_go_all_certificates_that_it_has_made() {
        let mut members = ledger();
        members.by_serial("01").unwrap().renew(&issued("11"));
        for serial in ["21", "31"] {
            let issued = Issued { authority: "new".to_owned(), ..issued(serial) };
            members.by_serial("01").unwrap().renew(&issued);
        }
        for serial in ["01", "11", "21", "31", "02"] {
            assert!(members.by_serial(serial).is_some(), "{serial}");
        }
        members.retire_others("new");
        for serial in ["01", "11", "02"] {
            assert!(members.by_serial(serial).is_none(), "{serial}");
        }
        assert!(members.by_serial("21").is_some() && members.by_serial("31").is_some());
        members.check_new("bob", MemberKind::User, Some(1000)).unwrap();
    }

    #[test]
    fn what_changes_nothing_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("tls")).unwrap();
        let change = |renewed: &str| {
            Members::update(directory.path(), |members| {
                *members = ledger();
                members.by_serial("01").unwrap().serial = renewed.to_owned();
                Ok(())
            })
            .unwrap();
            std::os::unix::fs::MetadataExt::ino(
                &std::fs::metadata(Members::path(directory.path())).unwrap(),
            )
        };
        let first = change("11");
        // Each writing makes another file; the old one is kept so that its number is not used again.
        let _open = std::fs::File::open(Members::path(directory.path())).unwrap();
        assert_eq!(change("11"), first);
        assert_ne!(change("12"), first);
    }

    #[test]
    fn names_and_numbers_are_taken_once() {
        let mut members = ledger();
        for (name, kind, uid) in [
            ("a", MemberKind::Host, None),
            ("bob", MemberKind::User, Some(1001)),
            ("bill", MemberKind::User, Some(1000)),
            ("", MemberKind::Host, None),
            ("a b", MemberKind::Host, None),
            ("../a", MemberKind::Host, None),
            ("-a", MemberKind::Host, None),
            (&"n".repeat(65), MemberKind::Host, None),
        ] {
            assert!(members.check_new(name, kind, uid).is_err(), "{name}");
        }
        // A host and a user may be called alike; and who is gone makes room.
        members.check_new("a", MemberKind::User, Some(7)).unwrap();
        members.check_new("bob", MemberKind::Host, None).unwrap();
        assert_eq!(members.remove("bob", MemberKind::User).unwrap().as_deref(), Some("02"));
        members.check_new("bob", MemberKind::User, Some(1000)).unwrap();
        assert_eq!(members.present().count(), 1);
    }

    #[test]
    fn a_name_that_trails_could_not_tell_from_another_is_refused() {
        // Found by trying: FNV-1a has 32 bits.
        let mut seen = std::collections::HashMap::new();
        let (first, second) = (0..u32::MAX)
            .find_map(|number| {
                let name = format!("h{number}");
                let hash = peer_number(&identity(&name, MemberKind::Host, None));
                seen.insert(hash, name.clone()).map(|first| (first, name))
            })
            .unwrap();
        let mut members = Members::default();
        members.add(Member::new(&first, MemberKind::Host, None, &issued("01")));
        let error = members.check_new(&second, MemberKind::Host, None).unwrap_err();
        assert!(error.to_string().contains(&first), "{error}");
        members.remove(&first, MemberKind::Host).unwrap();
        assert!(members.check_new(&second, MemberKind::Host, None).is_err(), "still in trails");
    }
}
