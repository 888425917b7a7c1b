//! What a client needs of a connection: one blocking call, from any number of threads.
//!
//! A channel is one connection, not a service address: when it breaks it stays broken and its owner
//! makes another one. `ChannelError::execution` tells the owner whether a call that failed may have
//! been executed, which decides whether it may be sent again.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use nasd_rpc::OpaqueAuth;

use crate::{ChannelError, InFlight};

/// One call, borrowed from the caller for the time of `Channel::call`.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingCall<'a> {
    /// RPC program number.
    pub program: u32,
    /// RPC program version.
    pub version: u32,
    /// Procedure number.
    pub procedure: u32,
    /// Who calls, and with what authority (RFC 5531 section 8).
    pub credential: OpaqueAuth<'a>,
    /// What proves the credential.
    pub verifier: OpaqueAuth<'a>,
    /// The encoded arguments; where bulk data follows, up to and with its length word.
    pub arguments: &'a [u8],
    /// The bulk data that ends the arguments, if any: sent from where it lies. The channel adds the
    /// XDR padding.
    pub data: &'a [IoSlice<'a>],
    /// Which part of the results is bulk data.
    pub results: ResultShape,
    /// How long to wait for the reply, counted from the call of `Channel::call`.
    pub timeout: Duration,
}

/// Where the bulk data of a reply begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultShape {
    /// There is none: the results are returned whole by `Reply::results`.
    Plain,
    /// When more than `head_bytes` bytes of results come, those after them are bulk data, their
    /// number is the last word of the head, and they go to the caller's buffer. Shorter results,
    /// such as those of a failed operation, are returned by `Reply::results`.
    DataAfter {
        /// Bytes of results before the data, its length word included.
        head_bytes: usize,
    },
}

/// An accepted call's answer (accept status SUCCESS; all others are `ChannelError::Rejected`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The record without its bulk data.
    pub(crate) record: Vec<u8>,
    /// Where in `record` the verifier's body lies.
    pub(crate) verifier: Range<usize>,
    pub(crate) verifier_flavor: u32,
    /// Where in `record` the results begin.
    pub(crate) results_at: usize,
    pub(crate) data_length: usize,
}

impl Reply {
    /// A reply that was not received: for channels that tests make up.
    pub fn new(verifier: OpaqueAuth<'_>, results: &[u8], data_length: usize) -> Reply {
        let record = [verifier.body, results].concat();
        let results_at = verifier.body.len();
        let verifier_flavor = verifier.flavor;
        Reply { record, verifier: 0..results_at, verifier_flavor, results_at, data_length }
    }

    /// The server's verifier.
    pub fn verifier(&self) -> OpaqueAuth<'_> {
        OpaqueAuth { flavor: self.verifier_flavor, body: &self.record[self.verifier.clone()] }
    }

    /// The results without bulk data, its length word included.
    pub fn results(&self) -> &[u8] {
        &self.record[self.results_at..]
    }

    /// How many bytes of bulk data were put at the start of the caller's buffer. 0 also where the
    /// results end with a length word and nothing follows: whoever decodes them must compare.
    pub fn data_length(&self) -> usize {
        self.data_length
    }
}

/// One connection to a server. Calls of several threads are pipelined; replies come in any order.
pub trait Channel: Send + Sync {
    /// Sends a call and waits for its reply. Bulk data of the reply is received straight into
    /// `into`; a reply with more data than `into` holds breaks the channel as a protocol error.
    /// After an error, the contents of `into` are unspecified.
    fn call(&self, call: &OutgoingCall<'_>, into: &mut [u8]) -> Result<Reply, ChannelError>;

    /// Begins a call without waiting for its reply, whose bulk data goes to `into`; what came is
    /// told, and `into` given back, by [`InFlight::wait`]. Any number of calls can be under way, to
    /// be waited for in any order and by any thread; but soon, as a server gives a client up that
    /// does not take its replies. The time-out of the call counts from the wait.
    ///
    /// Calls without bulk data may be sent only when somebody waits for one of them or for a later
    /// one, so that many are sent at once.
    ///
    /// Channels that can't do better make the call at once.
    ///
    /// # Errors
    ///
    /// Those of [`Channel::call`], with the buffer, where nothing was begun.
    fn begin(
        self: Arc<Self>,
        call: &OutgoingCall<'_>,
        mut into: Vec<u8>,
    ) -> Result<InFlight, (ChannelError, Vec<u8>)> {
        match self.call(call, &mut into) {
            Ok(reply) => Ok(InFlight::ended(reply, into)),
            Err(error) => Err((error, into)),
        }
    }

    /// Sends the calls that were begun, as far as they are not yet: for who has begun some at several channels, and
    /// waits for one after the other. What fails is told to those who wait.
    fn send_begun(&self, _timeout: Duration) {}

    /// Whether new calls may be made. A channel closes when the connection fails and when a call
    /// times out: its late reply would otherwise block the connection with nobody to receive it.
    fn is_open(&self) -> bool;

    /// Has all calls that are under way fail, as when the connection breaks; there are no new ones. A channel
    /// that can't may let them end.
    fn close(&self) {}
}
