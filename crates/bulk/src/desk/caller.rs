//! On whose behalf a call comes: what the credential says, as far as the certificate allows.

use nasd_client::Caller;
use nasd_rpc::AuthSys;
use nasd_transport::{Identity, PeerIdentity};
use nasd_types::Timestamp;
use thiserror::Error;

/// The user and the group of whoever is not to be anybody.
pub const NOBODY: u32 = 65534;

/// What the system takes for no number of a user or group.
const NO_NUMBER: u32 = u32::MAX;

/// The peer may not act for any user, or not for the one that the credential claims.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum NotCaller {
    #[error("a certificate of user {certified} does not speak for user {claimed}")]
    NotYours { certified: u32, claimed: u32 },
    #[error("without a certificate nobody speaks for user {claimed}")]
    Stranger { claimed: u32 },
    #[error("an administrator's certificate does not speak for user {claimed}")]
    Administrator { claimed: u32 },
    #[error("the certificate of {name} has expired; renew it")]
    Expired { name: PeerIdentity },
    #[error("no user or group has the number 4294967295")]
    NoNumber,
}

/// Nobody.
pub(super) fn nobody() -> Caller {
    Caller { uid: NOBODY, gid: NOBODY, groups: Vec::new() }
}

/// From a call's credential and what is proved of its connection.
///
/// A host's certificate speaks for any user. A user's speaks for that user alone; since nothing proves the groups that its
/// credential claims, it counts in none but the one with the user's own number. Root is nobody, and root's group nobody's,
/// unless root is trusted.
pub(super) fn caller_of(
    credential: &AuthSys,
    identity: &Identity,
    now: Timestamp,
    trust_root: bool,
) -> Result<Caller, NotCaller> {
    let claimed = credential.uid;
    let certified = match identity {
        Identity::Plain | Identity::Anonymous => return Err(NotCaller::Stranger { claimed }),
        Identity::Certified(certified) => certified,
    };
    // A connection may outlive the certificate that it was made with.
    if now.seconds() > certified.expires {
        return Err(NotCaller::Expired { name: certified.name.clone() });
    }
    let caller = match certified.name {
        PeerIdentity::Host(_) => {
            let AuthSys { uid, gid, groups, .. } = credential.clone();
            Caller { uid, gid, groups }
        }
        PeerIdentity::User(uid) if uid == claimed => Caller { uid, gid: uid, groups: Vec::new() },
        PeerIdentity::User(certified) => return Err(NotCaller::NotYours { certified, claimed }),
        PeerIdentity::Administrator(_) => return Err(NotCaller::Administrator { claimed }),
    };
    let numbers = [caller.uid, caller.gid].into_iter().chain(caller.groups.iter().copied());
    if numbers.into_iter().any(|number| number == NO_NUMBER) {
        return Err(NotCaller::NoNumber);
    }
    Ok(if trust_root { caller } else { squashed(caller) })
}

fn squashed(caller: Caller) -> Caller {
    if caller.uid == 0 {
        return nobody();
    }
    let group = |gid| if gid == 0 { NOBODY } else { gid };
    let groups = caller.groups.into_iter().map(group).collect();
    Caller { uid: caller.uid, gid: group(caller.gid), groups }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_transport::Certified;

    const NOW: Timestamp = Timestamp::from_parts(1000, 0);

    fn certified(name: &str) -> Identity {
        let name = name.parse().unwrap();
        Identity::Certified(Certified { name, serial: "01".to_owned(), expires: 1000 })
    }

    fn ask(uid: u32, identity: &Identity, trust_root: bool) -> Result<Caller, NotCaller> {
        let credential = AuthSys { uid, gid: 100, groups: vec![4, 0], ..AuthSys::default() };
        caller_of(&credential, identity, NOW, trust_root)
    }

    #[test]
    fn a_host_speaks_for_anybody_but_root() {
        let host = certified("host:a");
        let caller = Caller { uid: 1000, gid: 100, groups: vec![4, NOBODY] };
        assert_eq!(ask(1000, &host, false), Ok(caller));
        assert_eq!(ask(0, &host, false), Ok(nobody()));
        assert_eq!(ask(0, &host, true), Ok(Caller { uid: 0, gid: 100, groups: vec![4, 0] }));
        assert_eq!(ask(u32::MAX, &host, true), Err(NotCaller::NoNumber));
    }

    #[test]
    fn a_user_speaks_for_itself_and_claims_no_groups() {
        let user = certified("user:1000");
        assert_eq!(ask(1000, &user, false), Ok(Caller { uid: 1000, gid: 1000, groups: vec![] }));
        for claimed in [0, 1001] {
            let refused = NotCaller::NotYours { certified: 1000, claimed };
            assert_eq!(ask(claimed, &user, true), Err(refused));
        }
        assert_eq!(ask(0, &certified("user:0"), false), Ok(nobody()));
    }

    #[test]
    fn others_speak_for_nobody() {
        let claimed = 1000;
        for identity in [Identity::Plain, Identity::Anonymous] {
            assert_eq!(ask(1000, &identity, true), Err(NotCaller::Stranger { claimed }));
        }
        let administrator = ask(1000, &certified("admin:owner"), true);
        assert_eq!(administrator, Err(NotCaller::Administrator { claimed }));
        let credential = AuthSys { uid: claimed, ..AuthSys::default() };
        let later = Timestamp::from_parts(1001, 0);
        let expired = caller_of(&credential, &certified("host:a"), later, true);
        assert!(matches!(expired, Err(NotCaller::Expired { .. })));
    }
}
