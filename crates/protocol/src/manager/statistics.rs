//! `statistics`: what the manager has counted since its start, for its administrators.

use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{Operation, Procedure};
use crate::limits::{MAX_NAME_BYTES, MAX_STATISTICS};
use crate::wire::{Field, message, put_array, take_array};

/// The operation.
#[derive(Debug)]
pub enum StatisticsOperation {}

impl Operation for StatisticsOperation {
    const PROCEDURE: Procedure = Procedure::Statistics;
    type Arguments = ();
    type Reply = Statistics;
}

message! {
    /// What was counted of one procedure (`nasd_operation_statistics`).
    #[derive(Copy)]
    pub struct OperationStatistics {
        /// Its number.
        pub procedure: u32,
        /// Requests that were answered.
        pub requests: u64,
        /// How many of them did not do what was asked.
        pub failed: u64,
        /// How long all took together, in nanoseconds.
        pub nanoseconds: u64,
    }
}

/// What was counted of one member of the cell (`nasd_client_statistics`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientStatistics {
    /// The identity in its certificate.
    pub client: String,
    /// Requests that it made.
    pub requests: u64,
    /// Data bytes that it has read through the manager.
    pub read_bytes: u64,
    /// Data bytes that it has written in this way.
    pub written_bytes: u64,
}

impl Field for ClientStatistics {
    fn put(&self, out: &mut Encoder) {
        out.string(&self.client);
        out.u64(self.requests);
        out.u64(self.read_bytes);
        out.u64(self.written_bytes);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(ClientStatistics {
            client: input.string(MAX_NAME_BYTES)?.to_owned(),
            requests: input.u64()?,
            read_bytes: input.u64()?,
            written_bytes: input.u64()?,
        })
    }
}

/// The answer (`nasd_statistics`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Procedures of which there was a request.
    pub operations: Vec<OperationStatistics>,
    /// Those that asked most, at most [`MAX_STATISTICS`].
    pub clients: Vec<ClientStatistics>,
}

impl XdrEncode for Statistics {
    fn encode(&self, out: &mut Encoder) {
        put_array(&self.operations, out);
        put_array(&self.clients, out);
    }
}

impl XdrDecode for Statistics {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Statistics {
            operations: take_array(input, MAX_STATISTICS)?,
            clients: take_array(input, MAX_STATISTICS)?,
        })
    }
}
