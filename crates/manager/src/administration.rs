//! The operations on the cell itself, for its administrators.

use std::sync::Arc;

use nasd_protocol::manager::{ManagerStatus, RotateArguments, Rotation as Rotated};
use nasd_transport::{Peer, PeerIdentity};

use crate::namespace::Outcome;
use crate::rotation::Rotation;

/// What administrators may have done.
#[derive(Debug, Default)]
pub struct Administration {
    rotation: Option<Arc<Rotation>>,
}

impl Administration {
    pub(crate) fn new(rotation: Option<Arc<Rotation>>) -> Administration {
        Administration { rotation }
    }

    pub(crate) fn rotation(&self) -> Option<Arc<Rotation>> {
        self.rotation.clone()
    }

    /// New working keys at every drive.
    pub(crate) fn rotate(&self, peer: &Peer, how: RotateArguments) -> Outcome<Rotated> {
        require_administrator(peer)?;
        let rotation = self.rotation.as_ref().ok_or(ManagerStatus::Invalid)?;
        let drives = rotation.rotate(how.at_once).map_err(|error| {
            tracing::error!(%error, "the working keys are not changed");
            ManagerStatus::Io
        })?;
        Ok(Rotated { drives })
    }
}

fn require_administrator(peer: &Peer) -> Outcome<()> {
    match peer.identity.certified().map(|certified| &certified.name) {
        Some(PeerIdentity::Administrator(_)) => Ok(()),
        _ => {
            tracing::warn!(peer = %peer.address, identity = %peer.identity, "no administrator");
            Err(ManagerStatus::Permission)
        }
    }
}
