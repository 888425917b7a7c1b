//! The names behind audit identifiers, as far as the cell knows them.
//!
//! The file manager makes an audit identifier of a uid and a number for the certificate's name. Who
//! has which is in the cell's ledger of members; without one there are only numbers.

use nasd_manager::caller::peer_number;
use serde::Deserialize;
use std::collections::HashMap;
use std::path::Path;

/// What of the ledger tells names.
#[derive(Debug, Default, Deserialize)]
struct Ledger {
    #[serde(rename = "member", default)]
    members: Vec<Member>,
}

#[derive(Debug, Deserialize)]
struct Member {
    name: String,
    kind: String,
    uid: Option<u32>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Members {
    users: HashMap<u32, String>,
    /// Common names of certificates by their numbers.
    peers: HashMap<u32, String>,
}

impl Members {
    /// Of the cell in a directory; none where there is no cell or no ledger.
    pub fn of_cell(directory: &Path) -> Members {
        let text = std::fs::read_to_string(directory.join("tls/members.toml"));
        Members::parse(&text.unwrap_or_default())
    }

    /// Names that can't be read are not told: numbers are.
    fn parse(text: &str) -> Members {
        let ledger: Ledger = toml::from_str(text).unwrap_or_default();
        let mut found = Members::default();
        for Member { name, kind, uid } in ledger.members {
            let identity = match (kind.as_str(), uid) {
                ("user", Some(uid)) => format!("user:{uid}"),
                _ => format!("{kind}:{name}"),
            };
            found.peers.insert(peer_number(&identity), identity);
            if let Some(uid) = uid {
                found.users.insert(uid, name);
            }
        }
        found
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
                    [[member]]\nname = \"node1\"\nkind = \"host\"\nserial = \"8\"\n";
        let members = Members::parse(text);
        assert_eq!(members.user(1000), Some("alice"));
        assert_eq!(members.uid_of("alice"), Ok(1000));
        assert_eq!(members.uid_of("1001"), Ok(1001));
        assert!(members.uid_of("bob").unwrap_err().contains("bob"));
        assert_eq!(members.peer(peer_number("host:node1")), Some("host:node1"));
        assert_eq!(members.peer(peer_number("user:1000")), Some("user:1000"));
        assert_eq!(members.peer(1), None);
    }

    #[test]
    fn a_ledger_that_is_none_tells_no_names() {
        assert_eq!(Members::parse("member = 3").user(0), None);
        assert_eq!(Members::parse("").user(0), None);
    }
}
