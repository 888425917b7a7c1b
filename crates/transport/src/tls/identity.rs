//! Who is at the other end of a connection, as far as it is proved.

use std::fmt;
use std::str::FromStr;

use x509_parser::prelude::{FromDer, X509Certificate};

/// Longest name of a host or administrator: that of DNS.
const MAX_NAME_BYTES: usize = 253;

/// Who is at the other end. Whoever decides by it names each case: none of them stands for another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The connection is plain TCP: nothing is proved, and whoever reads along knows all that is
    /// said. For tests and for networks without strangers.
    Plain,
    /// TLS, but the peer showed no certificate: a stranger.
    Anonymous,
    /// The peer has proved that the certificate is its own.
    Certified(Certified),
}

/// What a certificate of the cell says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certified {
    /// Whose it is.
    pub name: PeerIdentity,
    /// Its serial number in hexadecimal digits, as the authority has numbered it.
    pub serial: String,
    /// Until when it is valid, in seconds since 1970. Checked when the connection was made.
    pub expires: u64,
}

impl Identity {
    /// What is proved of the peer, if anything is.
    pub fn certified(&self) -> Option<&Certified> {
        match self {
            Identity::Certified(certified) => Some(certified),
            Identity::Plain | Identity::Anonymous => None,
        }
    }
}

/// What a certificate in DER says.
///
/// # Errors
/// Why nobody can tell whose it is.
pub(super) fn certified(certificate: &[u8]) -> Result<Certified, String> {
    let (_, certificate) = X509Certificate::from_der(certificate)
        .map_err(|error| format!("it can't be parsed: {error}"))?;
    let mut names = certificate.subject().iter_common_name();
    let (Some(name), None) = (names.next(), names.next()) else {
        return Err("it has not exactly one common name".to_owned());
    };
    let name = name.as_str().map_err(|_| "its common name is not text")?;
    let name = name.parse()?;
    let serial = certificate.raw_serial().iter().map(|byte| format!("{byte:02x}")).collect();
    let expires = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
    Ok(Certified { name, serial, expires })
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Plain => f.write_str("anybody"),
            Identity::Anonymous => f.write_str("a stranger"),
            Identity::Certified(certified) => certified.name.fmt(f),
        }
    }
}

/// The subject of a certificate: its common name is `host:NAME`, `user:UID` or `admin:NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PeerIdentity {
    /// A machine of the cell: may speak for any of its users.
    Host(String),
    /// One user, by number.
    User(u32),
    /// An administrator of the cell: changes keys, people and machines, and speaks for no user.
    Administrator(String),
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerIdentity::Host(name) => write!(f, "host:{name}"),
            PeerIdentity::User(uid) => write!(f, "user:{uid}"),
            PeerIdentity::Administrator(name) => write!(f, "admin:{name}"),
        }
    }
}

impl FromStr for PeerIdentity {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const ERROR: &str = "a certificate's common name is host:NAME, user:UID or admin:NAME";
        let named = |name: &str| {
            let printable = name.bytes().all(|byte| byte.is_ascii_graphic());
            let fits = !name.is_empty() && name.len() <= MAX_NAME_BYTES;
            if fits && printable { Ok(name.to_owned()) } else { Err(ERROR) }
        };
        if let Some(name) = text.strip_prefix("host:") {
            return named(name).map(PeerIdentity::Host);
        }
        if let Some(name) = text.strip_prefix("admin:") {
            return named(name).map(PeerIdentity::Administrator);
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
        for text in [
            "host:a",
            "host:disk-1.example.org",
            "user:0",
            "user:1000",
            "user:4294967295",
            "admin:owner",
        ] {
            let identity: PeerIdentity = text.parse().unwrap();
            assert_eq!(identity.to_string(), text);
        }
        for text in [
            "",
            "a",
            "host:",
            "host:a b",
            "user:",
            "admin:",
            "admin:a b",
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
