//! On whose behalf a call comes: what the credential says, as far as the certificate allows.

use nasd_rpc::AuthSys;
use nasd_transport::PeerIdentity;

/// The user of a call.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Caller {
    /// Effective user; 0 passes every permission check.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Stands for the peer in audit identifiers, see [`peer_number`].
    pub peer: u32,
}

/// The credential claims what the certificate does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a certificate of user {certified} does not speak for user {claimed}")]
pub struct NotYours {
    /// User of the certificate.
    pub certified: u32,
    /// User of the credential.
    pub claimed: u32,
}

impl Caller {
    /// From a call's credential and its connection's certificate; without TLS, which only tests
    /// and private networks use, the credential is believed as it is.
    ///
    /// A host's certificate speaks for any user, as with NFS. A user's speaks for that user alone;
    /// since nothing proves the groups that its credential claims, it counts in none but the one
    /// with the user's own number (the user private group of most Linux systems).
    ///
    /// # Errors
    /// `NotYours` where a user's certificate comes with another user's credential.
    pub fn new(credential: &AuthSys, identity: Option<&PeerIdentity>) -> Result<Caller, NotYours> {
        let peer = identity.map_or(0, |identity| peer_number(&identity.to_string()));
        match identity {
            Some(PeerIdentity::User(certified)) if *certified != credential.uid => {
                Err(NotYours { certified: *certified, claimed: credential.uid })
            }
            Some(PeerIdentity::User(uid)) => {
                Ok(Caller { uid: *uid, gid: *uid, groups: Vec::new(), peer })
            }
            Some(PeerIdentity::Host(_)) | None => Ok(Caller {
                uid: credential.uid,
                gid: credential.gid,
                groups: credential.groups.clone(),
                peer,
            }),
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

    fn credential(uid: u32) -> AuthSys {
        AuthSys { uid, gid: 100, groups: vec![4, 27], ..AuthSys::default() }
    }

    #[test]
    fn a_host_speaks_for_anybody() {
        let host = PeerIdentity::Host("a".to_owned());
        let caller = Caller::new(&credential(0), Some(&host)).unwrap();
        assert!(caller.is_root() && caller.is_in_group(27) && caller.is_in_group(100));
        assert!(!caller.is_in_group(5));
    }

    #[test]
    fn a_user_speaks_for_itself_and_claims_no_groups() {
        let user = PeerIdentity::User(1000);
        let caller = Caller::new(&credential(1000), Some(&user)).unwrap();
        assert_eq!((caller.uid, caller.gid, caller.groups.len()), (1000, 1000, 0));
        for claimed in [0, 1001] {
            let error = Caller::new(&credential(claimed), Some(&user)).unwrap_err();
            assert_eq!(error, NotYours { certified: 1000, claimed });
        }
    }

    #[test]
    fn peer_numbers_are_fnv() {
        assert_eq!(peer_number(""), 0x811c_9dc5);
        assert_eq!(peer_number("a"), 0xe40c_292c);
        assert_eq!(peer_number("foobar"), 0xbf9c_f968);
    }
}
