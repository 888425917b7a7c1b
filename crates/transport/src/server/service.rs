//! What a server needs of a service: look at a call's head, give buffers for its bulk data, run it.
//!
//! For each call the connection's leader asks `Service::receive`, as often as `Receive::More` is
//! answered; then, when the whole record has come, `Service::attempt`, which most calls are answered
//! by, and at last, for those that wait, `Service::execute` or, where they wait together,
//! `Together::begin`. A service keeps nothing about a connection: what it must remember from one to the
//! next it puts into its `Payload`.

use std::io::IoSliceMut;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nasd_rpc::{AcceptStatus, AuthStatus, CallHead, OpaqueAuth};

use super::{Presence, Standing};
use crate::Identity;
use crate::wire::Wire;

/// Where a call came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The other end of the connection.
    pub address: SocketAddr,
    /// Who is there, as far as it is proved.
    pub identity: Identity,
}

/// What is known of a call before its bulk data was received.
#[derive(Clone, Copy, Debug)]
pub struct Arriving<'a> {
    /// Its decoded RPC header.
    pub head: &'a CallHead<'a>,
    /// The arguments as far as they have come. May already hold some of the bulk data.
    pub arguments: &'a [u8],
    /// Whether `arguments` is all there is.
    pub complete: bool,
    /// Where it comes from.
    pub peer: &'a Peer,
}

/// How the rest of a call is received.
#[derive(Debug)]
pub enum Receive<P> {
    /// The call has no bulk data: receive the rest, up to the limit of a head.
    Whole,
    /// Ask again when at least so many bytes of arguments have come, or all of them.
    More {
        /// Bytes of arguments.
        at_least: usize,
    },
    /// Everything after `head_bytes` bytes of arguments, less the XDR padding, goes to `payload`.
    /// The record must hold exactly as many bytes as the payload has room for.
    Data {
        /// Bytes of arguments before the data, its length word included.
        head_bytes: usize,
        /// Where the data goes.
        payload: P,
    },
    /// Receive the rest and throw it away; `execute` is called without a payload, and refuses.
    Discard {
        /// Bytes of arguments to keep.
        head_bytes: usize,
    },
}

/// Buffers for a call's bulk data, and whatever else the service keeps until the call is executed.
pub trait Payload: Send {
    /// All the room there is, in order. The total is the data's length; called once.
    fn buffers(&mut self) -> Vec<IoSliceMut<'_>>;
}

/// The payload of services that have no bulk data.
#[derive(Debug)]
pub enum NoPayload {}

impl Payload for NoPayload {
    fn buffers(&mut self) -> Vec<IoSliceMut<'_>> {
        match *self {}
    }
}

/// A whole call.
#[derive(Debug)]
pub struct Call<'a, P> {
    /// Its decoded RPC header.
    pub head: &'a CallHead<'a>,
    /// The arguments without bulk data.
    pub arguments: &'a [u8],
    /// The received bulk data, where `receive` asked for it.
    pub payload: Option<P>,
    /// Where it comes from.
    pub peer: &'a Peer,
    /// What its connection has shown of itself, for services that judge it.
    pub standing: &'a Standing,
    /// Whether its caller is there, for services that work long for one call.
    pub presence: Presence<'a>,
}

/// A reply's verifier. The default is AUTH_NONE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyVerifier {
    flavor: u32,
    body: VerifierBody,
}

/// Verifiers are short, and there is one in each reply, so that most are kept in place.
#[derive(Clone, Debug, PartialEq, Eq)]
enum VerifierBody {
    Short { bytes: [u8; SHORT_BODY_BYTES], length: usize },
    Long(Vec<u8>),
}

const SHORT_BODY_BYTES: usize = 48;

impl Default for VerifierBody {
    fn default() -> Self {
        VerifierBody::Short { bytes: [0; SHORT_BODY_BYTES], length: 0 }
    }
}

impl ReplyVerifier {
    /// A verifier of a flavor; its body has at most 400 bytes (RFC 5531 section 8.2).
    pub fn new(flavor: u32, body: &[u8]) -> ReplyVerifier {
        let mut bytes = [0; SHORT_BODY_BYTES];
        let body = match bytes.get_mut(..body.len()) {
            Some(place) => {
                place.copy_from_slice(body);
                VerifierBody::Short { bytes, length: body.len() }
            }
            None => VerifierBody::Long(body.to_vec()),
        };
        ReplyVerifier { flavor, body }
    }

    /// Its flavor and body, as they are sent.
    pub fn as_opaque(&self) -> OpaqueAuth<'_> {
        let body = match &self.body {
            VerifierBody::Short { bytes, length } => &bytes[..*length],
            VerifierBody::Long(body) => body,
        };
        OpaqueAuth { flavor: self.flavor, body }
    }
}

/// What a call is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<S> {
    /// The procedure ran; whether it did what was asked is the program's own affair.
    Results {
        /// The reply's verifier.
        verifier: ReplyVerifier,
        /// The encoded results; where bulk data follows, up to and with its length word.
        results: Vec<u8>,
        /// The bulk data, sent from where it lies. The server adds the XDR padding.
        data: Vec<S>,
    },
    /// It did not run: any status but `Success`.
    Rejected(AcceptStatus),
    /// The credential or the verifier is refused.
    Denied(AuthStatus),
}

/// What came of a call that was to be answered only if nothing had to be waited for.
#[derive(Debug)]
pub enum Attempt<P, S> {
    /// It was executed.
    Answered(Answer<S>),
    /// It may have to wait for a medium, a lock or another server. It is to be executed with this
    /// payload, in which the service may have put what it found out.
    Waits(Waits, Option<P>),
}

/// How a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// In a thread of its own.
    Alone,
    /// Many such calls can be under way at once by one thread.
    Together,
}

/// One RPC program, or several. All of it is called from many threads at once.
pub trait Service: Send + Sync + 'static {
    /// Where bulk data is received.
    type Payload: Payload;
    /// A piece of bulk data of a reply, kept alive until it is sent.
    type Segment: AsRef<[u8]> + Send;

    /// Decides where the rest of a call goes. Must not block: nothing else of this connection is
    /// received meanwhile. May be called several times for one call, so it must change nothing
    /// that `execute` relies on before it answers other than `More`.
    fn receive(&self, call: &Arriving<'_>) -> Receive<Self::Payload>;

    /// Whether connections are strangers' until the service says that they are not: then it tells,
    /// before it answers a call, what that has shown ([`Standing::prove`], [`Standing::note_unproved`]).
    /// Otherwise whoever can connect is trusted; where there is TLS, whoever has a certificate, and the
    /// calls of others are counted as such that prove nothing.
    fn judges(&self) -> bool {
        false
    }

    /// Executes a call, unless that may have to wait for a medium, a lock or another server: another
    /// thread then goes on receiving the connection's calls meanwhile. Not asked of a stranger's calls,
    /// which are executed one after the other.
    fn attempt(&self, call: Call<'_, Self::Payload>) -> Attempt<Self::Payload, Self::Segment>;

    /// Executes a call, whatever it waits for.
    fn execute(&self, call: Call<'_, Self::Payload>) -> Answer<Self::Segment>;

    /// Another protocol that is served on the same port.
    fn beside(&self) -> Option<&dyn Beside> {
        None
    }

    /// Nothing yet, of calls that wait together.
    fn together(&self) -> Box<dyn Together<Self::Payload, Self::Segment> + '_> {
        Box::new(OneByOne { service: self, answers: Vec::new() })
    }
}

/// Another protocol on the same port, in the clear, told by how its connections begin: as no RPC record and no TLS message may.
pub trait Beside: Send + Sync {
    /// How they begin.
    fn begins(&self) -> [u8; 8];

    /// Descriptors that each may take besides its socket: there are no more connections than those of the process are enough
    /// for.
    fn descriptors(&self) -> usize {
        0
    }

    /// Serves a connection to its end, from its first byte on. When the server stops it is shut down.
    fn serve(&self, connection: BesideConnection<'_>);
}

/// A connection of another protocol.
#[derive(Debug)]
pub struct BesideConnection<'a> {
    /// Its socket, from which nothing was received.
    pub socket: &'a BesideSocket,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// What it has shown of itself: until that is something, it is the first to go where there are too many.
    pub standing: &'a Standing,
    pub(super) idle_ms: &'a AtomicU64,
}

/// The socket of a connection of another protocol. What is cloned of it is the same descriptor.
#[derive(Clone, Debug)]
pub struct BesideSocket(pub(super) Arc<Wire>);

impl AsRef<TcpStream> for BesideSocket {
    fn as_ref(&self) -> &TcpStream {
        self.0.socket()
    }
}

impl BesideConnection<'_> {
    /// Nothing is asked by it, since so long: where there are too many connections it may go for another one. Zero when
    /// something is again.
    pub fn rests(&self, since: Duration) {
        let milliseconds = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        self.idle_ms.store(milliseconds, Ordering::Relaxed);
    }
}

/// Calls that are under way at once by one thread. One that is dropped answers no more of them.
pub trait Together<P, S> {
    /// Begins a call, known by `tag` from here on. Waits for nothing that takes long.
    fn begin(&mut self, tag: usize, call: Call<'_, P>);

    /// The answers to calls that are done; waits until `least` are, or all.
    fn answered(&mut self, least: usize) -> Vec<(usize, Answer<S>)>;
}

/// Executes each when it is begun.
struct OneByOne<'s, T: Service + ?Sized> {
    service: &'s T,
    answers: Vec<(usize, Answer<T::Segment>)>,
}

impl<T: Service + ?Sized> Together<T::Payload, T::Segment> for OneByOne<'_, T> {
    fn begin(&mut self, tag: usize, call: Call<'_, T::Payload>) {
        self.answers.push((tag, self.service.execute(call)));
    }

    fn answered(&mut self, _least: usize) -> Vec<(usize, Answer<T::Segment>)> {
        std::mem::take(&mut self.answers)
    }
}
