//! On whose behalf a call comes: what the credential says, as far as the certificate allows.

use nasd_protocol::manager::{FileHandle, Request};
use nasd_rpc::AuthSys;
use nasd_transport::{Identity, PeerIdentity};
use nasd_types::Timestamp;

/// The user of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Caller {
    /// Effective user; 0 passes every permission check.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Nothing proves of which groups the user is no member.
    pub is_of_unknown_groups: bool,
    /// Stands for the peer in audit identifiers, see [`peer_number`].
    pub peer: u32,
    /// When the certificate ends by which the peer speaks for the user; none that is known ends nothing.
    pub certified_until: Option<Timestamp>,
    /// Which of the client's requests this is.
    pub request: Request,
    /// The client's session, or 0.
    pub session: u64,
    /// Whether clients with other sessions may have files open that this request removes.
    pub others: bool,
    /// The file that this request removes as far as the client knows, if the client has it open.
    pub keeps: Option<FileHandle>,
    /// Files that the file manager stores meanwhile: where there are callbacks, nobody can read or write them.
    pub stores: Vec<FileHandle>,
}

/// The peer may not act for any user, or not for the one that the credential claims.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCaller {
    /// A user's certificate with another user's credential.
    #[error("a certificate of user {certified} does not speak for user {claimed}")]
    NotYours {
        /// User of the certificate.
        certified: u32,
        /// User of the credential.
        claimed: u32,
    },
    /// No certificate at all.
    #[error("without a certificate nobody speaks for user {claimed}")]
    Stranger {
        /// User of the credential.
        claimed: u32,
    },
    /// An administrator's: it changes the cell, and has no files.
    #[error("an administrator's certificate does not speak for user {claimed}")]
    Administrator {
        /// User of the credential.
        claimed: u32,
    },
}

impl Caller {
    /// The same caller with a request that is executed once.
    #[must_use]
    pub fn asking(&self, request: Request) -> Caller {
        Caller { request, ..self.clone() }
    }

    /// From a call's credential and what is proved of its connection; without TLS, which only
    /// tests and private networks use, the credential is believed as it is.
    ///
    /// A host's certificate speaks for any user, as with NFS. A user's speaks for that user alone;
    /// since nothing proves the groups that its credential claims, it counts in none but the one
    /// with the user's own number (the user private group of most Linux systems); what a list takes from the members of any group it takes
    /// from him.
    ///
    /// # Errors
    /// `NotCaller` where nothing proves that the peer may speak for that user.
    pub fn new(credential: &AuthSys, identity: &Identity) -> Result<Caller, NotCaller> {
        let claimed = credential.uid;
        let believed = |peer| Caller {
            uid: credential.uid,
            gid: credential.gid,
            groups: credential.groups.clone(),
            peer,
            ..Caller::default()
        };
        let certified = match identity {
            Identity::Plain => return Ok(believed(0)),
            Identity::Anonymous => return Err(NotCaller::Stranger { claimed }),
            Identity::Certified(certified) => certified,
        };
        let name = &certified.name;
        let until = Timestamp::from_parts(certified.expires, 0);
        let believed = |peer| Caller { certified_until: Some(until), ..believed(peer) };
        let peer = peer_number(&name.to_string());
        match name {
            PeerIdentity::Host(_) => Ok(believed(peer)),
            PeerIdentity::User(uid) if *uid == claimed => {
                let alone = Caller { groups: Vec::new(), gid: *uid, ..believed(peer) };
                Ok(Caller { is_of_unknown_groups: true, ..alone })
            }
            PeerIdentity::User(uid) => Err(NotCaller::NotYours { certified: *uid, claimed }),
            PeerIdentity::Administrator(_) => Err(NotCaller::Administrator { claimed }),
        }
    }

    /// Whether this is root, who passes every check.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the caller is in a group.
    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// A number for the peer's name in audit identifiers: 32-bit FNV-1a, so that who reads an audit
/// trail can find the name by computing it for every name of the cell.
pub fn peer_number(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_transport::Certified;

    fn credential(uid: u32) -> AuthSys {
        AuthSys { uid, gid: 100, groups: vec![4, 27], ..AuthSys::default() }
    }

    fn certified(name: &str) -> Identity {
        let name = name.parse().unwrap();
        Identity::Certified(Certified { name, serial: "01".to_owned(), expires: 7 })
    }

    #[test]
    fn a_host_speaks_for_anybody() {
        let caller = Caller::new(&credential(0), &certified("host:a")).unwrap();
        assert!(caller.is_root() && caller.is_in_group(27) && caller.is_in_group(100));
        assert!(!caller.is_in_group(5));
    }

    #[test]
    fn a_user_speaks_for_itself_and_claims_no_groups() {
        let caller = Caller::new(&credential(1000), &certified("user:1000")).unwrap();
        assert_eq!((caller.uid, caller.gid, caller.groups.len()), (1000, 1000, 0));
        assert_eq!(caller.certified_until, Some(Timestamp::from_parts(7, 0)));
        for claimed in [0, 1001] {
            let error = Caller::new(&credential(claimed), &certified("user:1000")).unwrap_err();
            assert_eq!(error, NotCaller::NotYours { certified: 1000, claimed });
        }
    }

    #[test]
    fn nobody_else_speaks_for_anybody() {
        for claimed in [0, 1000] {
            let stranger = Caller::new(&credential(claimed), &Identity::Anonymous);
            assert_eq!(stranger.unwrap_err(), NotCaller::Stranger { claimed });
            let administrator = Caller::new(&credential(claimed), &certified("admin:owner"));
            assert_eq!(administrator.unwrap_err(), NotCaller::Administrator { claimed });
        }
    }

    #[test]
    fn peer_numbers_are_fnv() {
        assert_eq!(peer_number(""), 0x811c_9dc5);
        assert_eq!(peer_number("a"), 0xe40c_292c);
        assert_eq!(peer_number("foobar"), 0xbf9c_f968);
    }
}
