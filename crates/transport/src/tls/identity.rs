//! Whom a certificate of the cell names: a host or one user.

use std::fmt;
use std::str::FromStr;

/// The subject of a certificate: its common name is `host:NAME` or `user:UID`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PeerIdentity {
    /// A machine of the cell: may speak for any of its users.
    Host(String),
    /// One user, by number.
    User(u32),
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerIdentity::Host(name) => write!(f, "host:{name}"),
            PeerIdentity::User(uid) => write!(f, "user:{uid}"),
        }
    }
}

impl FromStr for PeerIdentity {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const ERROR: &str = "a certificate's common name is host:NAME or user:UID";
        if let Some(name) = text.strip_prefix("host:") {
            let printable = name.bytes().all(|byte| byte.is_ascii_graphic());
            return if !name.is_empty() && name.len() <= 253 && printable {
                Ok(PeerIdentity::Host(name.to_owned()))
            } else {
                Err(ERROR)
            };
        }
        let digits = text.strip_prefix("user:").ok_or(ERROR)?;
        // `u32::from_str` takes a sign, and zeros in front would give one user two names.
        let canonical = digits == "0" || !digits.starts_with(['0', '+', '-']);
        match digits.parse() {
            Ok(uid) if canonical => Ok(PeerIdentity::User(uid)),
            _ => Err(ERROR),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_form() {
        for text in ["host:a", "host:disk-1.example.org", "user:0", "user:1000", "user:4294967295"]
        {
            let identity: PeerIdentity = text.parse().unwrap();
            assert_eq!(identity.to_string(), text);
        }
        for text in [
            "",
            "a",
            "host:",
            "host:a b",
            "user:",
            "user:-1",
            "user:+1",
            "user:01",
            "user:4294967296",
            "User:1",
        ] {
            assert!(text.parse::<PeerIdentity>().is_err(), "{text}");
        }
    }
}
