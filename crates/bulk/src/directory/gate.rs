//! Who may open which file of a directory: whoever has a ticket of this server's.
//!
//! A ticket is a capability, minted and checked as a drive's are, whose object is a *place*: a path that the server has encrypted
//! for itself. The tag of that encryption is in the capability, so that neither is of use without the other. The server
//! keeps nothing of tickets but the key that they are made with, and so they outlive it.

use std::sync::Arc;

use nasd_capability::{
    Access, Capability, Claim, DIGEST_BYTES, DigestKeys, DriveRules, KeyKinds, Nonce, NonceSource,
    NonceWindow, Refusal, SealedCapability, SealingKeys, SecretKey, Suite, Target, Way,
    WindowOptions, admit, admit_again, admit_private, capability_key, derive, narrowed_key,
};
use nasd_protocol::auth::AUTH_FLAVOR;
use nasd_protocol::bulk::{
    Asked, Fields, Kind, Open, Packet, Seal, covered_by_request, covered_data,
};
use nasd_protocol::{Credential, Status};
use nasd_rpc::OpaqueAuth;
use nasd_types::{
    AuditId, ByteRange, DriveId, ObjectId, PartitionId, Protection, Rights, Timestamp,
};

use crate::server::{Permit, Refused, Request};

/// The partition that tickets are of.
const PARTITION: PartitionId = PartitionId(1);

/// For what keys are derived from the server's secret.
const WORKING: &str = "nasd v1 bulk tickets";
const PLACES: &str = "nasd v1 bulk places";

/// Bytes of a nonce, before what is encrypted.
const NONCE_BYTES: usize = 16;

/// A ticket: what its holder shows, and what he keeps to himself.
#[derive(Clone, Debug)]
pub struct Ticket {
    /// What it allows.
    pub capability: Capability,
    /// The same, which nobody on the way can read.
    pub sealed: SealedCapability,
    /// Proves that it is the holder's.
    pub key: SecretKey,
    /// Where the file is.
    pub place: Vec<u8>,
}

/// Mints tickets, and checks requests that come with them.
pub(super) struct Gate {
    identity: DriveId,
    working: SecretKey,
    sealing: SealingKeys,
    places: DigestKeys,
    window: NonceWindow,
    nonces: NonceSource,
    minimum: Protection,
    clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
}

/// By whose authority a connection's requests come.
#[derive(Debug)]
pub(super) struct Holder {
    credential: Credential,
    /// As it was minted.
    capability: Capability,
    keys: Arc<DigestKeys>,
}

impl Gate {
    /// `secret` is the server's own, and `random` drawn for this start.
    pub(super) fn new(
        (identity, secret): (DriveId, &SecretKey),
        minimum: Protection,
        clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
        random: [u64; 2],
    ) -> Gate {
        let working = derive(secret, WORKING, &[]);
        Gate {
            identity,
            sealing: SealingKeys::new(&working),
            // A suite that every machine has: tickets outlive the machine that they were minted on.
            places: DigestKeys::new(&derive(secret, PLACES, &[]), Suite::Blake3),
            window: NonceWindow::new(WindowOptions::default(), clock(), random[0]),
            nonces: NonceSource::new(random[1]),
            working,
            minimum,
            clock,
        }
    }

    /// A ticket for a path. Requests with it are protected at least as the server demands.
    pub(super) fn mint(&self, path: &[u8], rights: Rights, expires: Timestamp) -> Ticket {
        let nonce = self.nonce();
        let mut sealed = [&allowed(rights, expires)[..], path].concat();
        self.places.seal_args(Way::Request, &nonce, &mut sealed);
        let place = [&nonce.to_bytes()[..], &sealed].concat();
        let (object, audit_id) = names_of(&place);
        let capability = Capability {
            drive: self.identity,
            partition: PARTITION,
            object,
            region: ByteRange::ALL,
            rights,
            expires,
            audit_id,
            minimum_protection: self.minimum,
            key_epoch: 0,
        };
        let key = capability_key(&self.working, &capability, 0);
        Ticket { capability, sealed: self.sealing.seal(&capability), key, place }
    }

    /// The server's clock.
    pub(super) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// A nonce of the server's own.
    pub(super) fn nonce(&self) -> Nonce {
        self.nonces.draw((self.clock)())
    }

    /// By whose authority a connection comes that shows this credential, and which path it is for, if the place is the
    /// capability's own.
    pub(super) fn holder(
        &self,
        request: &Request<'_>,
        open: &Open<'_>,
    ) -> Result<(Holder, Option<Vec<u8>>), Refused> {
        let refused = |refusal: Refusal| self.refused(request.packet, refusal);
        let opaque = OpaqueAuth { flavor: AUTH_FLAVOR, body: open.credential };
        let credential = Credential::from_opaque(&opaque).map_err(|_| refused(Refusal::Key))?;
        let suite = credential.suite().filter(|suite| Suite::available().contains(suite));
        let suite = suite.ok_or_else(|| refused(Refusal::Suite))?;
        let opened = credential.key.sealed_capability().map(|sealed| self.sealing.open(sealed));
        let capability = match opened {
            Some(opened) => opened.ok_or_else(|| refused(Refusal::Digest))?,
            None => *credential.key.capability().ok_or_else(|| refused(Refusal::Key))?,
        };
        let root = capability_key(&self.working, &capability, 0);
        let key = narrowed_key(root, credential.key.narrowings());
        let keys = Arc::new(DigestKeys::new(&key, suite));
        // Nothing of the place is told, or even looked at, before the digest is right.
        let path = self.path_of(open.place, &capability);
        Ok((Holder { credential, capability, keys }, path))
    }

    /// The path of a place that belongs to a capability; `None` if it does not.
    fn path_of(&self, place: &[u8], capability: &Capability) -> Option<Vec<u8>> {
        let (nonce, sealed) = place.split_at_checked(NONCE_BYTES)?;
        let (timestamp, unique) = nonce.split_at(8);
        let word = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        let nonce = Nonce { timestamp: Timestamp(word(timestamp)?), unique: word(unique)? };
        let is_its_own = names_of(place) == (capability.object, capability.audit_id);
        let opened = self.places.open_args(Way::Request, &nonce, sealed).ok()?;
        // Without protection nothing else proves what the capability says.
        let path = opened.strip_prefix(&allowed(capability.rights, capability.expires))?;
        is_its_own.then(|| path.to_vec())
    }

    /// Makes every check of a request, and uses its nonce up.
    pub(super) fn permit(
        &self,
        holder: &Holder,
        request: &Request<'_>,
    ) -> Result<Permit<()>, Refused> {
        let fields =
            self.check(holder, request).map_err(|refusal| self.refused(request.packet, refusal))?;
        Ok(Permit {
            fields,
            asked: Asked { nonce: request.packet.nonce },
            protection: holder.credential.protection,
            keys: (!holder.credential.protection.is_empty()).then(|| Arc::clone(&holder.keys)),
            grant: (),
        })
    }

    fn check(&self, holder: &Holder, request: &Request<'_>) -> Result<Fields, Refusal> {
        let now = (self.clock)();
        let Request { packet, shown } = *request;
        let (rules, claim) = (self.rules(), holder.claim());
        let is_private = claim.protection.contains(Protection::PRIVACY_ARGS);
        let admission = match is_private {
            true => admit_private(&rules, &claim, &packet.nonce, &self.window, now)?,
            false => {
                let access = access(&holder.capability, packet.kind, &packet.fields());
                admit(&rules, &claim, &access, &packet.nonce, &self.window, now)?
            }
        };
        let (procedure, said) = covered_by_request(packet);
        let data = covered_data(packet, claim.protection);
        let covered: [&[u8]; 3] = [&procedure, shown, &said];
        let proved =
            admission.prove(Some(&holder.keys), &covered, data.as_ref(), &packet.digest)?;
        let seal = Seal { shown, protection: claim.protection, keys: &holder.keys };
        let fields = seal.opened(packet, Way::Request).map_err(|_| Refusal::Digest)?;
        let _ = proved.record(&self.window, now)?;
        if is_private {
            let access = access(&holder.capability, packet.kind, &fields);
            admit_again(&rules, &claim, &access, now)?;
        }
        Ok(fields)
    }

    /// Makes those checks again whose outcome may have changed since.
    pub(super) fn permit_again(
        &self,
        holder: &Holder,
        kind: Kind,
        (packet, fields): (&Packet, &Fields),
    ) -> Result<(), Refused> {
        let access = access(&holder.capability, kind, fields);
        admit_again(&self.rules(), &holder.claim(), &access, (self.clock)())
            .map_err(|refusal| self.refused(packet, refusal))
    }

    fn rules(&self) -> DriveRules<'static> {
        DriveRules {
            drive: self.identity,
            suites: Suite::available(),
            minimum_protection: self.minimum,
        }
    }

    pub(super) fn refused(&self, packet: &Packet, refusal: Refusal) -> Refused {
        let clock = self.window.clock_for((self.clock)(), &packet.nonce);
        Refused { status: Status::from(refusal), clock }
    }
}

impl Holder {
    fn claim(&self) -> Claim<'_> {
        Claim { capability: Some(&self.capability), ..self.credential.claim() }
    }
}

/// What a request needs.
fn access(capability: &Capability, kind: Kind, fields: &Fields) -> Access<'static> {
    Access {
        // There is nothing in it that could name another.
        target: Target::Object(PARTITION, capability.object),
        rights: fields.rights(kind),
        bytes: fields.bytes(kind),
        keys: KeyKinds::only(nasd_capability::KeyKind::Capability),
    }
}

/// What a place says of the capability that it belongs to.
fn allowed(rights: Rights, expires: Timestamp) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&rights.bits().to_be_bytes());
    bytes[4..].copy_from_slice(&expires.0.to_be_bytes());
    bytes
}

/// How a capability names a place: by the tag at its end.
fn names_of(place: &[u8]) -> (ObjectId, AuditId) {
    let tag: [u8; DIGEST_BYTES] = place.last_chunk().copied().unwrap_or_default();
    let whole = u128::from_be_bytes(tag);
    (ObjectId((whole >> 64) as u64), AuditId(whole as u64))
}
