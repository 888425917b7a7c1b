//! `copyrange`: bytes of one object into another of its partition, without a trip through anybody else.

use nasd_capability::{DIGEST_BYTES, Digest};
use nasd_types::{Attributes, ByteRange, ObjectId, ObjectName};
use nasd_xdr::to_bytes;

use super::{Operation, Procedure};
use crate::Credential;
use crate::wire::message;

/// The operation.
#[derive(Debug)]
pub enum Copyrange {}

impl Operation for Copyrange {
    const PROCEDURE: Procedure = Procedure::Copyrange;
    type Arguments = CopyrangeArguments;
    type Reply = Copied;
}

message! {
    /// Which bytes are copied, and to where.
    #[derive(Copy)]
    pub struct RangeToCopy {
        /// The object that is copied to; the credential of the request is for it.
        pub name: ObjectName,
        /// Where in it the first byte goes.
        pub offset: u64,
        /// How many bytes.
        pub length: u64,
        /// The object that is copied from, in the same partition; perhaps the same one.
        pub source: ObjectId,
        /// Its first byte that is copied.
        pub source_offset: u64,
    }
}

impl RangeToCopy {
    /// The object that is copied from.
    pub fn source_name(&self) -> ObjectName {
        ObjectName { partition: self.name.partition, object: self.source }
    }

    /// Its bytes.
    pub fn source_range(&self) -> ByteRange {
        ByteRange::new(self.source_offset, self.length)
    }

    /// Where they go.
    pub fn range(&self) -> ByteRange {
        ByteRange::new(self.offset, self.length)
    }
}

message! {
    /// Arguments (`nasd_copyrange_arguments`).
    pub struct CopyrangeArguments {
        /// What is copied.
        pub copy: RangeToCopy,
        /// By what authority its bytes may be read.
        pub source_authority: Credential,
        /// `DigestKeys::source_proof` by the key of that authority, over the request's nonce,
        /// `procedure_bytes`, and all that comes before it here ([`Self::to_covered`]). Zeros if that
        /// authority's protection is NO_PROTECTION.
        pub source_proof: Digest,
    }
}

impl CopyrangeArguments {
    /// What of the arguments the proof covers.
    pub fn to_covered(&self) -> Vec<u8> {
        let mut bytes = to_bytes(self);
        bytes.truncate(bytes.len().saturating_sub(DIGEST_BYTES));
        bytes
    }
}

message! {
    /// The answer (`nasd_copied`). What was copied is durable.
    pub struct Copied {
        /// Bytes that were copied, from the first one on. Fewer than asked for where the source ends,
        /// and where one call would do too much; none only at the source's end.
        pub length: u64,
        /// The attributes of the object that was copied to, now.
        pub attributes: Attributes,
    }
}
