//! Replies: results behind a verifier that proves where they come from.

use nasd_capability::{CoveredData, DigestKeys, Nonce, Refusal, Way};
use nasd_protocol::drive::{Sealed, wrap_results};
use nasd_protocol::{AUTH_FLAVOR, Status, Verifier, encode_result};
use nasd_store::Segment;
use nasd_transport::{AcceptStatus, Answer, PooledBuffer, ReplyVerifier};
use nasd_types::{Protection, Timestamp};
use nasd_xdr::{Encoder, XdrEncode};

use crate::Drive;
use crate::audit::Subject;
use crate::authority::{Claimed, Denied, Grant, NO_DIGEST};
use crate::extensions::Granted;
use crate::status::status_of;

/// A piece of bulk data on its way to the socket.
#[derive(Debug)]
pub enum ReplyData {
    /// In a frame of the cache.
    Frame(Segment),
    /// Made for this reply.
    Bytes(Vec<u8>),
    /// Told by an extension, in memory that is granted until it has been sent.
    Told(Granted),
    /// Encrypted for this reply, with what was granted for it if an extension has told it.
    Sealed(PooledBuffer, Option<Granted>),
}

impl AsRef<[u8]> for ReplyData {
    fn as_ref(&self) -> &[u8] {
        match self {
            ReplyData::Frame(segment) => segment,
            ReplyData::Bytes(bytes) => bytes,
            ReplyData::Told(granted) => granted.as_ref(),
            ReplyData::Sealed(buffer, _) => buffer,
        }
    }
}

impl ReplyData {
    /// What is granted for it until it has been sent, without what it was told in.
    fn granted(self) -> Option<Granted> {
        match self {
            ReplyData::Told(granted) => Some(granted.emptied()),
            _ => None,
        }
    }
}

/// What an operation answers.
#[derive(Debug)]
pub(crate) struct Done<T> {
    pub(crate) reply: T,
    /// Bulk data that follows the reply; `None` for operations that have none.
    pub(crate) data: Option<Vec<ReplyData>>,
}

impl<T> Done<T> {
    /// Of an operation without bulk data.
    pub(crate) fn plain(reply: T) -> Self {
        Done { reply, data: None }
    }
}

impl Drive {
    /// The reply to a call that was authorized.
    pub(crate) fn seal<T: XdrEncode>(
        &self,
        grant: &Grant,
        done: Result<Done<T>, Status>,
    ) -> Answer<ReplyData> {
        let mut out = Encoder::with_capacity(64);
        let done = done.and_then(|done| Ok((self.find_room(grant, &done)?, done)));
        let (room, data) = match done {
            Ok((room, Done { reply, data })) => {
                encode_result::<T, Status>(&Ok(reply), &mut out);
                (room, data)
            }
            Err(status) => {
                encode_result::<(), Status>(&Err(status), &mut out);
                (None, None)
            }
        };
        let results = out.into_bytes();
        self.audit.note_reply(&grant.subject, &results, grant.shows_who_asks, grant.received);
        self.seal_results(grant, results, data, room)
    }

    /// The reply to a private call that was decrypted, and then refused by the checks that need its
    /// arguments. Nobody learns of it who does not know what was asked. For the audit trail it is a
    /// refusal like any other: its sender names what it likes.
    pub(crate) fn seal_refusal(&self, grant: &Grant, refusal: Refusal) -> Answer<ReplyData> {
        self.counters.count_refusal();
        tracing::debug!(%refusal, "refused, and encrypted");
        self.seal_before_access(grant, refusal.into())
    }

    /// The reply to a private call that fails before it is known to be about what it names.
    pub(crate) fn seal_before_access(&self, grant: &Grant, status: Status) -> Answer<ReplyData> {
        self.audit.note_refusal(&grant.subject, status.into(), grant.received);
        let mut out = Encoder::with_capacity(4);
        encode_result::<(), Status>(&Err(status), &mut out);
        self.seal_results(grant, out.into_bytes(), None, None)
    }

    /// Finds memory for data that will be encrypted: whoever asked for them and does not take them
    /// keeps it in use.
    fn find_room<T>(&self, grant: &Grant, done: &Done<T>) -> Result<Option<PooledBuffer>, Status> {
        let is_private = grant.authorized.protection().contains(Protection::PRIVACY_DATA);
        match &done.data {
            Some(plain) if is_private => {
                self.buffers.try_take(length_of(plain)).map(Some).ok_or(Status::Busy)
            }
            _ => Ok(None),
        }
    }

    /// `room` is where data are encrypted, if there are any and they will be.
    fn seal_results(
        &self,
        grant: &Grant,
        results: Vec<u8>,
        data: Option<Vec<ReplyData>>,
        room: Option<PooledBuffer>,
    ) -> Answer<ReplyData> {
        // What makes it unlike any other is its number; the time only has to be near.
        let nonce = self.nonces.draw(grant.received);
        let (results, verifier, data) = match &grant.keys {
            Some(keys) => {
                let protection = grant.authorized.protection();
                let (results, data) = if protection.contains(Protection::PRIVACY_ARGS) {
                    private(keys, &nonce, &results, data)
                } else {
                    (results, data)
                };
                let (covered, data) = self.protect(keys, protection, &nonce, data, room);
                let asked = grant.authorized.nonce();
                let digest = keys.reply(asked, &nonce, &[&results], covered.as_ref());
                let data_tag = covered.map(|covered| covered.tag);
                (results, Verifier { nonce, digest, data_tag }, data)
            }
            None => (results, Verifier::plain(nonce, NO_DIGEST), data),
        };
        let verifier = encoded(&verifier);
        Answer::Results { verifier, results, data: data.unwrap_or_default() }
    }

    /// Bulk data as they are sent, and what the digest covers of them.
    fn protect(
        &self,
        keys: &DigestKeys,
        protection: Protection,
        nonce: &Nonce,
        data: Option<Vec<ReplyData>>,
        room: Option<PooledBuffer>,
    ) -> (Option<CoveredData>, Option<Vec<ReplyData>>) {
        let Some(plain) = data else {
            return (None, None);
        };
        if protection.contains(Protection::PRIVACY_DATA) {
            let length = length_of(&plain);
            // Frames are also others', and stay as they are. A private reply without data has none.
            let mut sealed = room.unwrap_or_else(|| self.buffers.take(length));
            let tag = keys.seal_data(Way::Reply, nonce, &slices(&plain), &mut sealed);
            let covered = CoveredData { length: length as u64, tag };
            let granted = plain.into_iter().find_map(ReplyData::granted);
            return (Some(covered), Some(vec![ReplyData::Sealed(sealed, granted)]));
        }
        let covers = protection.contains(Protection::INTEGRITY_DATA);
        (covers.then(|| keys.data(Way::Reply, nonce, &slices(&plain))), Some(plain))
    }

    /// The reply to a call that was not authorized.
    pub(crate) fn deny(
        &self,
        claimed: &Claimed<'_>,
        denied: &Denied,
        now: Timestamp,
    ) -> Answer<ReplyData> {
        self.deny_about(&self.subject_of(claimed), claimed.nonce(), denied, now)
    }

    /// The same of a call that is known to be about `subject`.
    pub(crate) fn deny_about(
        &self,
        subject: &Subject,
        nonce: &Nonce,
        denied: &Denied,
        now: Timestamp,
    ) -> Answer<ReplyData> {
        match denied {
            Denied::Refused(refusal) => self.refusal(subject, nonce, *refusal, now),
            // The status could not be proved, and so would be taken for an enemy's.
            Denied::Failed(error) => {
                let status = status_of(error);
                self.audit.note_refusal(subject, status.into(), now);
                tracing::error!(%error, ?status, "no authority could be checked");
                Answer::Rejected(AcceptStatus::SystemError)
            }
            Denied::Unknown(status) => {
                self.audit.note_refusal(subject, (*status).into(), now);
                tracing::warn!(?status, "no authority could be checked");
                Answer::Rejected(AcceptStatus::SystemError)
            }
        }
    }

    /// A refusal proves nothing, as the drive can't tell whom it is talking to; it has the drive's
    /// clock, with which the next nonce will pass.
    pub(crate) fn refuse(
        &self,
        claimed: &Claimed<'_>,
        refusal: Refusal,
        now: Timestamp,
    ) -> Answer<ReplyData> {
        tracing::debug!(credential = ?claimed.credential, "to be refused");
        self.refusal(&self.subject_of(claimed), claimed.nonce(), refusal, now)
    }

    /// The reply to a call that was granted, and whose arguments are not allowed any more: in private
    /// where the call is.
    pub(crate) fn refuse_granted(
        &self,
        grant: &Grant,
        refusal: Refusal,
        now: Timestamp,
    ) -> Answer<ReplyData> {
        if grant.authorized.protection().contains(Protection::PRIVACY_ARGS) {
            return self.seal_refusal(grant, refusal);
        }
        self.refusal(&grant.subject, grant.authorized.nonce(), refusal, now)
    }

    pub(crate) fn refusal(
        &self,
        subject: &Subject,
        nonce: &Nonce,
        refusal: Refusal,
        now: Timestamp,
    ) -> Answer<ReplyData> {
        self.counters.count_refusal();
        self.audit.note_refusal(subject, refusal.code(), now);
        tracing::debug!(%refusal, "refused");
        let timestamp = self.window.clock_for(now, nonce);
        let unique = self.nonces.draw(now).unique;
        let verifier = encoded(&Verifier::plain(Nonce { timestamp, unique }, NO_DIGEST));
        let mut out = Encoder::with_capacity(4);
        encode_result::<(), Status>(&Err(refusal.into()), &mut out);
        Answer::Results { verifier, results: out.into_bytes(), data: Vec::new() }
    }
}

/// Results and data of a private call. There always are data, if only none of them.
fn private(
    keys: &DigestKeys,
    nonce: &Nonce,
    results: &[u8],
    data: Option<Vec<ReplyData>>,
) -> (Vec<u8>, Option<Vec<ReplyData>>) {
    let mut sealed = wrap_results(results);
    keys.seal_args(Way::Reply, nonce, &mut sealed);
    let data = data.unwrap_or_default();
    let data_length = length_of(&data);
    let mut out = Encoder::with_capacity(sealed.len() + 12);
    encode_result::<_, Status>(&Ok(Sealed { sealed, data_length }), &mut out);
    (out.into_bytes(), Some(data))
}

fn length_of(data: &[ReplyData]) -> usize {
    data.iter().map(|piece| piece.as_ref().len()).sum()
}

fn slices(data: &[ReplyData]) -> Vec<&[u8]> {
    data.iter().map(AsRef::as_ref).collect()
}

fn encoded(verifier: &Verifier) -> ReplyVerifier {
    ReplyVerifier::new(AUTH_FLAVOR, &verifier.to_body())
}
