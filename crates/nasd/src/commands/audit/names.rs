//! The names behind audit identifiers, as far as the cell knows them.
//!
//! The file manager makes an audit identifier of a uid and a number for the certificate's name. Who
//! has which is in the cell's ledger of members; without one there are only numbers.

use nasd_cell::Members;
use nasd_manager::caller::peer_number;
use std::collections::HashMap;
use std::path::Path;

/// See the module.
#[derive(Debug, Default)]
pub struct Names {
    users: HashMap<u32, String>,
    /// Common names of certificates by their numbers.
    peers: HashMap<u32, String>,
}

impl Names {
    /// Of the cell in a directory. Where its ledger can't be read there are none: numbers are told.
    pub fn of_cell(directory: &Path) -> Names {
        Members::load(directory).map(|members| Names::of(&members)).unwrap_or_default()
    }

    /// Also of those who are members no more: the trail goes further back.
    fn of(members: &Members) -> Names {
        let mut names = Names::default();
        for member in members.all() {
            let identity = member.identity();
            names.peers.insert(peer_number(&identity), identity);
            if let Some(uid) = member.uid {
                names.users.insert(uid, member.name.clone());
            }
        }
        names
    }

    /// The name of the user.
    pub fn user(&self, uid: u32) -> Option<&str> {
        self.users.get(&uid).map(String::as_str)
    }

    /// The name of the certificate.
    pub fn peer(&self, number: u32) -> Option<&str> {
        self.peers.get(&number).map(String::as_str)
    }

    /// The uid of a user by its name, or as a number.
    ///
    /// # Errors
    /// A name that nobody has.
    pub fn uid_of(&self, user: &str) -> Result<u32, String> {
        if let Some((uid, _)) = self.users.iter().find(|(_, name)| *name == user) {
            return Ok(*uid);
        }
        user.parse().map_err(|_| {
            format!("the cell has no user `{user}`: name one of its members, or a uid")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_the_ledger() {
        let text = "[[member]]\nname = \"alice\"\nkind = \"user\"\nuid = 1000\nserial = \"7\"\n\
                    issued = 1\nexpires = 2\nremoved = 2\n\
                    [[member]]\nname = \"node1\"\nkind = \"host\"\nserial = \"8\"\n\
                    issued = 1\nexpires = 2\n";
        let names = Names::of(&toml::from_str(text).unwrap());
        assert_eq!(names.user(1000), Some("alice"));
        assert_eq!(names.uid_of("alice"), Ok(1000));
        assert_eq!(names.uid_of("1001"), Ok(1001));
        assert!(names.uid_of("bob").unwrap_err().contains("bob"));
        assert_eq!(names.peer(peer_number("host:node1")), Some("host:node1"));
        assert_eq!(names.peer(peer_number("user:1000")), Some("user:1000"));
        assert_eq!(names.peer(1), None);
    }

    #[test]
    fn a_ledger_that_is_none_tells_no_names() {
        assert_eq!(Names::of_cell(Path::new("/nowhere")).user(0), None);
    }
}
