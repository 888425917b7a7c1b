//! The operations on the cell itself, for its administrators; and who may call at all.

use std::sync::{Arc, OnceLock};

use nasd_protocol::manager::{
    EnrollArguments, Enrolled, ManagerStatus, MemberArguments, Membership as Standing, Name,
    ReloadArguments, RenewArguments, RotateArguments, Rotation as Rotated, WorkingKeyState,
};
use nasd_transport::{Guests, Identity, Peer, PeerIdentity};

use crate::membership::{EnrolmentError, Membership, is_welcome};
use crate::namespace::Outcome;
use crate::refusals::Refusals;
use crate::volumes::Volumes;

/// What administrators may have done.
#[derive(Debug)]
pub(crate) struct Administration {
    volumes: Arc<Volumes>,
    membership: Option<Arc<dyn Membership>>,
    /// The server's connections, once it serves.
    guests: OnceLock<Guests>,
    refusals: Refusals,
}

impl Administration {
    pub(crate) fn new(
        volumes: Arc<Volumes>,
        membership: Option<Arc<dyn Membership>>,
    ) -> Administration {
        Administration {
            volumes,
            membership,
            guests: OnceLock::new(),
            refusals: Refusals::default(),
        }
    }

    /// The server has been started.
    pub(crate) fn attend(&self, guests: Guests) {
        // A second server would have an administration of its own.
        let _ = self.guests.set(guests);
    }

    /// Whether a peer may call at all. Asked for each call.
    pub(crate) fn admits(&self, identity: &Identity) -> bool {
        is_welcome(self.membership.as_deref(), identity)
    }

    /// How many refused calls were not logged since the last that was, if this one is to be.
    pub(crate) fn count_refusal(&self) -> Option<u64> {
        self.refusals.count()
    }

    /// New working keys at every drive.
    pub(crate) fn rotate(&self, peer: &Peer, how: RotateArguments) -> Outcome<Rotated> {
        self.require_administrator(peer)?;
        self.change_keys(how.at_once).map(|drives| Rotated { drives })
    }

    /// The ledger anew: who is in it no more is out when this is answered.
    pub(crate) fn reload(&self, peer: &Peer, how: ReloadArguments) -> Outcome<Rotated> {
        self.require_administrator(peer)?;
        if let Some(membership) = &self.membership {
            membership.reload().map_err(|error| {
                tracing::error!(%error, "the members are not known anew");
                ManagerStatus::Io
            })?;
        }
        if let Some(guests) = self.guests.get() {
            let closed = guests.close_unless(|identity| self.admits(identity));
            tracing::info!(closed, "read the ledger of members");
        }
        // Only now: what was minted for who had to go is older than this.
        let drives = if how.revoke { self.change_keys(true)? } else { Vec::new() };
        Ok(Rotated { drives })
    }

    /// The table of volumes anew: what is in it no more is not served when this is answered.
    pub(crate) fn reload_volumes(&self, peer: &Peer) -> Outcome<()> {
        self.require_administrator(peer)?;
        self.volumes.reload().map_err(|error| {
            tracing::error!(%error, "the volumes are not known anew");
            ManagerStatus::Io
        })
    }

    /// A new member, by a token: also for who has no certificate. Not without TLS, where others
    /// would read the secret.
    pub(crate) fn enroll(&self, peer: &Peer, who: &EnrollArguments) -> Outcome<Enrolled> {
        if peer.identity == Identity::Plain {
            return Err(ManagerStatus::Access);
        }
        let membership = self.membership.as_ref().ok_or(ManagerStatus::Access)?;
        self.told(peer, "join", membership.enrol(&who.secret, &who.public_key))
    }

    /// A new certificate for a member's, whom [`Administration::admits`] knows. Not for
    /// administrators, who have the authority's key and renew their own: over the network, whoever
    /// has stolen a certificate alone would go on by another.
    pub(crate) fn renew(&self, peer: &Peer, how: &RenewArguments) -> Outcome<Enrolled> {
        let membership = self.membership.as_ref().ok_or(ManagerStatus::Access)?;
        let certified = peer.identity.certified().ok_or(ManagerStatus::Access)?;
        if let PeerIdentity::Administrator(_) = certified.name {
            self.log_refusal(peer, "an administrator's certificate is not renewed from afar");
            return Err(ManagerStatus::Permission);
        }
        self.told(peer, "renew", membership.renew(&certified.serial, &how.public_key))
    }

    /// Whether a certificate is a present member's, for a host that serves members. With no ledger, each of the authority is.
    pub(crate) fn member(&self, peer: &Peer, asked: &MemberArguments) -> Outcome<Standing> {
        match peer.identity.certified().map(|certified| &certified.name) {
            None | Some(PeerIdentity::Host(_)) => {}
            Some(_) => return Err(ManagerStatus::Permission),
        }
        let text = |name: &Name| name.as_str().map(str::to_owned);
        let (Some(serial), Some(identity)) = (text(&asked.serial), text(&asked.identity)) else {
            return Ok(Standing { present: false });
        };
        let membership = self.membership.as_ref();
        let present = membership.is_none_or(|members| members.has(&serial, &identity));
        Ok(Standing { present })
    }

    fn change_keys(&self, at_once: bool) -> Outcome<Vec<WorkingKeyState>> {
        self.volumes.rotate(at_once)
    }

    fn told(
        &self,
        peer: &Peer,
        what: &str,
        outcome: Result<Enrolled, EnrolmentError>,
    ) -> Outcome<Enrolled> {
        let address = peer.address;
        match &outcome {
            Ok(enrolled) => {
                tracing::info!(peer = %address, what, member = enrolled.member, "certified")
            }
            Err(EnrolmentError::Refused(why)) => {
                if let Some(left_out) = self.count_refusal() {
                    tracing::warn!(peer = %address, what, why, left_out, "not certified");
                }
            }
            Err(EnrolmentError::Failed(why)) => {
                tracing::error!(peer = %address, what, why, "not certified");
            }
        }
        outcome.map_err(|error| match error {
            EnrolmentError::Refused(_) => ManagerStatus::Access,
            EnrolmentError::Failed(_) => ManagerStatus::Io,
        })
    }

    pub(crate) fn require_administrator(&self, peer: &Peer) -> Outcome<()> {
        match peer.identity.certified().map(|certified| &certified.name) {
            Some(PeerIdentity::Administrator(_)) => Ok(()),
            _ => {
                self.log_refusal(peer, "no administrator");
                Err(ManagerStatus::Permission)
            }
        }
    }

    fn log_refusal(&self, peer: &Peer, why: &str) {
        if let Some(left_out) = self.count_refusal() {
            tracing::warn!(peer = %peer.address, identity = %peer.identity, left_out, "{why}");
        }
    }
}
