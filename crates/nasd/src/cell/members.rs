//! `tls/members.toml`: who belongs to the cell. A certificate counts for as long as its serial
//! number is in here: whoever is removed is out at once, however long the certificate is good.
//!
//! Nothing in the file is secret; who can write it is the cell's owner.

use super::authority::Issued;
use super::invitation::Invitation;
use super::keyring::write_atomic;
use super::{CellError, now, tls_directory};
use nasd_manager::caller::peer_number;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Longest name of a member.
const MAX_NAME_BYTES: usize = 64;

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
        let Issued { serial, issued, expires, .. } = issued.clone();
        Member { name: name.to_owned(), kind, uid, serial, issued, expires, removed: None }
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
        let locked = std::fs::File::open(&directory).map_err(CellError::io("open", &directory))?;
        rustix::fs::flock(&locked, FlockOperation::LockExclusive)
            .map_err(|errno| CellError::io("lock", &directory)(errno.into()))?;
        let path = Self::path(cell_directory);
        let mut members = match path.exists() {
            true => Members::load(cell_directory)?,
            false => Members::default(),
        };
        let told = change(&mut members)?;
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

    /// Those who may join by a token.
    pub fn invitations(&self) -> &[Invitation] {
        &self.invitations
    }

    /// Notes who may join, in the place of an earlier invitation; those that have expired go.
    pub fn invite(&mut self, invitation: Invitation, now: u64) {
        let is_same =
            |other: &Invitation| (&other.name, other.kind) == (&invitation.name, invitation.kind);
        self.invitations.retain(|other| other.expires > now && !is_same(other));
        self.invitations.push(invitation);
    }

    /// Takes the invitation of a token's secret with this hash out of the ledger.
    pub fn take_invitation(&mut self, hash: &str, now: u64) -> Option<Invitation> {
        let is_meant = |each: &Invitation| each.hash == hash && each.expires > now;
        let index = self.invitations.iter().position(is_meant)?;
        Some(self.invitations.swap_remove(index))
    }

    /// Adds a member that [`Members::check_new`] has let in.
    pub fn add(&mut self, member: Member) {
        self.members.push(member);
    }

    /// Removes a member; tells its serial number.
    ///
    /// # Errors
    /// `Member` where there is none.
    pub fn remove(&mut self, name: &str, kind: MemberKind) -> Result<String, CellError> {
        let is_meant = |member: &&mut Member| {
            member.is_present() && member.kind == kind && member.name == name
        };
        let Some(member) = self.members.iter_mut().find(is_meant) else {
            let why = "there is no such member".to_owned();
            return Err(CellError::Member { name: name.to_owned(), why });
        };
        member.removed = Some(now().seconds());
        Ok(member.serial.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issued(serial: &str) -> Issued {
        Issued { serial: serial.to_owned(), issued: 1, expires: 2, pem: String::new() }
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
        assert_eq!(members.remove("bob", MemberKind::User).unwrap(), "02");
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
