//! Who belongs to the cell now. Asked for each call: a certificate alone does not make a member.

use std::fmt;

use nasd_transport::{Certified, Identity};
use thiserror::Error;

pub use nasd_protocol::manager::Enrolled;

use crate::objects::remote::now;

/// The ledger could not be read, and why.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the ledger of members can't be read: {0}")]
pub struct MembershipError(pub String);

/// The ledger of members.
pub trait Membership: fmt::Debug + Send + Sync {
    /// Whether the certificate of that serial number is a present member's of that identity (its
    /// common name). Asked for each call; must wait for nothing but, where the certificate is not
    /// known, a ledger that was changed meanwhile.
    fn has(&self, serial: &str, identity: &str) -> bool;

    /// Reads the ledger anew.
    ///
    /// # Errors
    /// If that can't be done; what was known stays.
    fn reload(&self) -> Result<(), MembershipError>;

    /// Lets in who shows the secret of a token: certifies the public key, and knows the new member
    /// from then on. A secret is good once.
    ///
    /// # Errors
    /// `Refused`, in the same way for every secret that is not good.
    fn enrol(&self, secret: &[u8], public_key: &[u8]) -> Result<Enrolled, EnrolmentError> {
        let _ = (secret, public_key);
        Err(EnrolmentError::Refused("this cell takes nobody in".to_owned()))
    }

    /// A new certificate for the member whose certificate has that serial number, which stays good.
    ///
    /// # Errors
    /// `Refused` for a key that is none.
    fn renew(&self, serial: &str, public_key: &[u8]) -> Result<Enrolled, EnrolmentError> {
        let _ = (serial, public_key);
        Err(EnrolmentError::Refused("this cell renews no certificates".to_owned()))
    }
}

/// Why somebody was not taken in.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EnrolmentError {
    /// By what it has shown.
    #[error("{0}")]
    Refused(String),
    /// The cell's files can't be used.
    #[error("{0}")]
    Failed(String),
}

/// Whether a peer may call at all: with a certificate that is good now, of a present member. With no
/// ledger, every certificate of the authority is a member's.
pub(crate) fn is_welcome(membership: Option<&dyn Membership>, identity: &Identity) -> bool {
    match identity {
        Identity::Plain => true,
        Identity::Anonymous => false,
        Identity::Certified(certified) => {
            is_valid(certified)
                && membership.is_none_or(|members| {
                    members.has(&certified.serial, &certified.name.to_string())
                })
        }
    }
}

/// A connection may outlive the certificate that it was made with.
fn is_valid(certified: &Certified) -> bool {
    now().seconds() <= certified.expires
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Only(&'static str, &'static str);

    impl Membership for Only {
        fn has(&self, serial: &str, identity: &str) -> bool {
            (serial, identity) == (self.0, self.1)
        }

        fn reload(&self) -> Result<(), MembershipError> {
            Ok(())
        }
    }

    fn certified(name: &str, serial: &str, expires: u64) -> Identity {
        let name = name.parse().unwrap();
        Identity::Certified(Certified { name, serial: serial.to_owned(), expires })
    }

    #[test]
    fn only_present_members_are_welcome() {
        let members = Only("01", "host:a");
        let members = Some(&members as &dyn Membership);
        assert!(is_welcome(members, &certified("host:a", "01", u64::MAX)));
        for (name, serial, expires) in [
            ("host:a", "02", u64::MAX),
            ("host:b", "01", u64::MAX),
            ("user:0", "01", u64::MAX),
            ("host:a", "01", 1_000_000_000),
        ] {
            assert!(!is_welcome(members, &certified(name, serial, expires)), "{name} {serial}");
        }
        assert!(!is_welcome(members, &Identity::Anonymous));
        assert!(!is_welcome(None, &Identity::Anonymous));
        assert!(is_welcome(None, &certified("host:a", "02", u64::MAX)));
    }
}
