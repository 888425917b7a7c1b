//! `audit`: the drive's record of who did what, and who was refused.

use nasd_capability::KeyKind;
use nasd_types::{AuditId, ObjectId, PartitionId, Timestamp};
use nasd_xdr::{Decoder, Encoder, UnknownValue, XdrDecode, XdrEncode, XdrError, xdr_enum};

use super::{Operation, Procedure};
use crate::limits::MAX_AUDIT_RECORDS;
use crate::wire::{Field, field_by_xdr, message, put_array, take_array};

/// The operation.
#[derive(Debug)]
pub enum Audit {}

impl Operation for Audit {
    const PROCEDURE: Procedure = Procedure::Audit;
    type Arguments = AuditArguments;
    type Reply = AuditPage;
}

xdr_enum! {
    /// What a record is about (`nasd_audit_kind`).
    pub enum AuditKind {
        /// Requests whose digest was right.
        Proved = 0,
        /// Requests that were refused, or that no digest protects: what they say of themselves may be
        /// made up.
        Claimed = 1,
        /// So many requests with a right digest of which no more is known: they were of too many kinds
        /// to be told apart.
        ProvedLost = 2,
        /// The same of requests of the other kind.
        ClaimedLost = 3,
        /// The drive started.
        Started = 4,
        /// The drive stopped, and had written down all.
        Stopped = 5,
    }
}

field_by_xdr!(AuditKind);

impl Field for KeyKind {
    fn put(&self, out: &mut Encoder) {
        out.u32(self.code());
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let value = input.u32()?;
        KeyKind::from_code(value).ok_or(UnknownValue { enumeration: "KeyKind", value }.into())
    }
}

message! {
    /// Arguments (`nasd_audit_arguments`). What is absent is not asked for.
    #[derive(Copy)]
    pub struct AuditArguments {
        /// Records of a higher sequence number; 0 for all.
        pub after: u64,
        /// Of requests that came at this time or later, by the drive's clock.
        pub from: Timestamp,
        /// Of requests that came before this time.
        pub to: Timestamp,
        /// Of this audit identifier.
        pub audit_id: Option<AuditId>,
        /// On this partition. By a partition key it must be that key's.
        pub partition: Option<PartitionId>,
        /// On objects of this number.
        pub object: Option<ObjectId>,
        /// That ended with this status; 0 for those that were done.
        pub status: Option<u32>,
        /// Most records of the answer, at most [`MAX_AUDIT_RECORDS`].
        pub most: u32,
    }
}

impl AuditArguments {
    /// All records that there are, as many as fit one answer.
    pub const ALL: AuditArguments = AuditArguments {
        after: 0,
        from: Timestamp(0),
        to: Timestamp::MAX,
        audit_id: None,
        partition: None,
        object: None,
        status: None,
        most: MAX_AUDIT_RECORDS as u32,
    };

    /// Whether the record is one that is asked for.
    pub fn wants(&self, record: &AuditRecord) -> bool {
        let end = record.first.plus_ns(u64::from(record.span_ms) * 1_000_000);
        record.sequence > self.after
            && end >= self.from
            && record.first < self.to
            && self.audit_id.is_none_or(|wanted| record.audit_id == wanted)
            && self.partition.is_none_or(|wanted| record.partition == wanted)
            && self.object.is_none_or(|wanted| record.object == wanted)
            && self.status.is_none_or(|wanted| record.status == wanted)
    }
}

message! {
    /// Requests of one kind that came within about a second (`nasd_audit_record`).
    #[derive(Copy)]
    pub struct AuditRecord {
        /// Rises from record to record, never used again.
        pub sequence: u64,
        /// When the first of them came, by the drive's clock.
        pub first: Timestamp,
        /// How many milliseconds later the last of them came.
        pub span_ms: u32,
        /// How many there were.
        pub count: u32,
        /// What is known of them.
        pub kind: AuditKind,
        /// The number of their procedure.
        pub procedure: u32,
        /// With what they were answered; 0 is success.
        pub status: u32,
        /// By what kind of key they came, or said so.
        pub key: KeyKind,
        /// The partition that they named; 0 if none.
        pub partition: PartitionId,
        /// The object that they named or made; 0 if none, or several.
        pub object: ObjectId,
        /// Of their capability; 0 without one.
        pub audit_id: AuditId,
    }
}

/// The answer (`nasd_audit_page`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditPage {
    /// In ascending order of their sequence numbers.
    pub records: Vec<AuditRecord>,
    /// What to ask for records after, to go on.
    pub next: u64,
    /// Whether there are more already.
    pub more: bool,
}

impl XdrEncode for AuditPage {
    fn encode(&self, out: &mut Encoder) {
        put_array(&self.records, out);
        out.u64(self.next);
        out.bool(self.more);
    }
}

impl XdrDecode for AuditPage {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(AuditPage {
            records: take_array(input, MAX_AUDIT_RECORDS)?,
            next: input.u64()?,
            more: input.bool()?,
        })
    }
}
