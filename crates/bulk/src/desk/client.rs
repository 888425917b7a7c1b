//! The desk as a client sees it: tickets, and names.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nasd_client::{Authority, Caller, Connector, TcpConnector, TlsConnector, TransportError};
use nasd_protocol::bulk::Options;
use nasd_protocol::bulk_desk::{
    DeskPath, DeskStatus, Entry, FileFacts, IssuedTicket, List, ListArguments, Look, Mkdir,
    ModeArguments, Operation, PROGRAM, Page, PathTooLong, Procedure, Remove, Rename,
    RenameArguments, Setmode, Settime, SettimeArguments, Ticket, TicketArguments, VERSION, Wanted,
};
use nasd_protocol::decode_result;
use nasd_rpc::{AUTH_SYS, AuthSys, Denial, MAX_GROUPS};
use nasd_transport::{
    AcceptStatus, AuthStatus, BreakReason, Channel, ChannelError, ClientOptions, ClientTls,
    FrameError, OpaqueAuth, OutgoingCall, Reply, ReplyError, ResultShape, TlsError,
};
use nasd_types::{Protection, Timestamp};
use nasd_xdr::{Decoder, XdrError, to_bytes};
use thiserror::Error;

use crate::client::Opening;

/// How long a server is waited for that is away, unless somebody says otherwise.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long one try may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits between tries: each twice the one before.
const FIRST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Why a call to a desk failed.
#[derive(Debug, Error)]
pub enum DeskError {
    /// The desk did not do it.
    #[error("{server} answered: {status}")]
    Answered {
        /// Its address.
        server: String,
        /// Why.
        status: DeskStatus,
    },

    /// The path is longer than one may be. Nothing was sent.
    #[error(transparent)]
    Path(#[from] PathTooLong),

    /// The desk does not take calls by this certificate, or not on this user's behalf.
    #[error(
        "{server} does not let this member in: its certificate has ended, was removed from the cell, or is another user's"
    )]
    NotAdmitted {
        /// Its address.
        server: String,
    },

    /// The two ends do not trust each other.
    #[error("{server} can't be trusted: {source}")]
    Untrusted {
        /// Its address.
        server: String,
        /// What is wrong, and with whose certificate.
        source: Box<TlsError>,
    },

    /// Whoever answers is no desk. Whether the call was executed is unknown.
    #[error("{server} does not keep to the protocol: {why}")]
    Protocol {
        /// Its address.
        server: String,
        /// What is wrong.
        why: String,
    },

    /// The desk could not be reached until patience was over.
    #[error("{server} is away: gave up after {} s: {last}", taken.as_secs())]
    Unreachable {
        /// Its address.
        server: String,
        /// How long it was tried.
        taken: Duration,
        /// What went wrong at last.
        last: Box<TransportError>,
    },

    /// The connection was lost before the answer to a change that can't be made twice.
    #[error(
        "{server} was lost before it answered, and may have done it: look whether it has ({last})"
    )]
    Uncertain {
        /// Its address.
        server: String,
        /// What went wrong.
        last: Box<TransportError>,
    },
}

impl DeskError {
    /// What the desk answered, if it did.
    pub fn status(&self) -> Option<DeskStatus> {
        match self {
            DeskError::Answered { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// A desk, asked on behalf of one caller. Calls block, and may come from any number of threads, which share a connection;
/// it is made anew when it is lost.
#[derive(Clone)]
pub struct DeskClient {
    shared: Arc<Shared>,
    credential: Vec<u8>,
    patience: Duration,
}

struct Shared {
    connector: Box<dyn Connector>,
    channel: Mutex<Option<Arc<dyn Channel>>>,
}

/// A ticket, and where it is good.
#[derive(Clone, Debug)]
pub struct DeskTicket {
    /// As it was issued, with how the file is.
    pub issued: IssuedTicket,
    address: String,
    wanted: Wanted,
    clock_ahead_ns: i128,
    patience: Duration,
}

impl DeskTicket {
    /// What opens the file, with requests that are protected as the server demands and by these options besides.
    pub fn opening(&self, more: Protection) -> Opening {
        let mut options = Options::empty();
        options.set(Options::READ, self.wanted.contains(Wanted::READ));
        options.set(Options::WRITE, self.wanted.contains(Wanted::WRITE));
        Opening {
            address: self.address.clone(),
            authority: Authority::capability(&self.issued.capability, more),
            place: self.issued.place.clone(),
            options,
            block: 0,
            durable: false,
            patience: self.patience,
            clock_ahead_ns: self.clock_ahead_ns,
        }
    }

    /// How the file was when the ticket was issued.
    pub fn facts(&self) -> &FileFacts {
        &self.issued.facts
    }
}

/// Whether a call does no harm if it is executed twice.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    Harmless,
    Harmful,
}

impl DeskClient {
    /// The desk at `address` (`HOST:PORT`). Nothing is sent before the first call.
    pub fn tls(address: impl Into<String>, tls: ClientTls, caller: &Caller) -> DeskClient {
        let connector = TlsConnector::new(address, tls, ClientOptions::default());
        DeskClient::over(Box::new(connector), caller)
    }

    /// A desk that anybody may ask, without TLS: insecure.
    pub fn plain(address: impl Into<String>) -> DeskClient {
        let connector = TcpConnector::new(address, ClientOptions::default());
        DeskClient::over(Box::new(connector), &super::caller::nobody())
    }

    /// The desk that `connector` connects to.
    pub fn over(connector: Box<dyn Connector>, caller: &Caller) -> DeskClient {
        let shared = Arc::new(Shared { connector, channel: Mutex::new(None) });
        DeskClient { shared, credential: credential_of(caller), patience: PATIENCE }
    }

    /// The same desk, over the same connection, with another patience.
    #[must_use]
    pub fn with_patience(&self, patience: Duration) -> DeskClient {
        DeskClient { patience, ..self.clone() }
    }

    /// The same desk, over the same connection, on behalf of another caller.
    #[must_use]
    pub fn on_behalf_of(&self, caller: &Caller) -> DeskClient {
        DeskClient { credential: credential_of(caller), ..self.clone() }
    }

    /// Its address.
    pub fn address(&self) -> &str {
        self.shared.connector.address()
    }

    /// Whether it is there.
    ///
    /// # Errors
    ///
    /// [`DeskError`], as all that follow.
    pub fn ping(&self) -> Result<(), DeskError> {
        let nothing = |reply: &Reply| Decoder::new(reply.results()).finish();
        self.tries(Procedure::Null, &[], Again::Harmless, |reply| Ok(Ok(nothing(reply)?)))
    }

    /// A ticket for a file, which is made with these permission bits (to which the caller's umask was applied) if that is
    /// wanted. It is good for `lifetime`, or as long as the server likes.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    pub fn ticket(
        &self,
        path: &[u8],
        wanted: Wanted,
        mode: u32,
        lifetime: Option<Duration>,
    ) -> Result<DeskTicket, DeskError> {
        let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let lifetime_ns = lifetime.map_or(0, |lifetime| ns(lifetime).max(1));
        let path = DeskPath::new(path)?;
        let again = match wanted.contains(Wanted::EXCLUSIVE) {
            true => Again::Harmful,
            false => Again::Harmless,
        };
        let arguments = TicketArguments { path, wanted, mode, lifetime_ns };
        let issued = self.call::<Ticket>(&arguments, again)?;
        let clock_ahead_ns = i128::from(issued.time.0) - i128::from(now().0);
        let (address, patience) = (self.address().to_owned(), self.patience);
        Ok(DeskTicket { issued, address, wanted, clock_ahead_ns, patience })
    }

    /// How a file is; links are followed.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    pub fn look(&self, path: &[u8]) -> Result<FileFacts, DeskError> {
        self.call::<Look>(&DeskPath::new(path)?, Again::Harmless)
    }

    /// Some entries of a directory: from the beginning by cookie 0, and then by that of the page before; `most` of them, or
    /// any number by 0.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    pub fn list(&self, path: &[u8], cookie: u64, most: u32) -> Result<Page, DeskError> {
        let arguments = ListArguments { path: DeskPath::new(path)?, cookie, most };
        self.call::<List>(&arguments, Again::Harmless)
    }

    /// All entries of a directory.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    pub fn list_all(&self, path: &[u8]) -> Result<Vec<Entry>, DeskError> {
        let (mut entries, mut cookie) = (Vec::new(), 0);
        loop {
            let page = self.list(path, cookie, 0)?;
            if page.entries.is_empty() && !page.end && page.cookie == cookie {
                return Err(self.nonsense("a list does not go on"));
            }
            entries.extend(page.entries);
            cookie = page.cookie;
            if page.end {
                return Ok(entries);
            }
        }
    }

    /// Makes a directory.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    pub fn mkdir(&self, path: &[u8], mode: u32) -> Result<FileFacts, DeskError> {
        let arguments = ModeArguments { path: DeskPath::new(path)?, mode };
        self.call::<Mkdir>(&arguments, Again::Harmful)
    }

    /// Moves a name, over what has the new one.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    pub fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), DeskError> {
        let arguments = RenameArguments { from: DeskPath::new(from)?, to: DeskPath::new(to)? };
        self.call::<Rename>(&arguments, Again::Harmful)
    }

    /// Removes a file or an empty directory.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    pub fn remove(&self, path: &[u8]) -> Result<(), DeskError> {
        self.call::<Remove>(&DeskPath::new(path)?, Again::Harmful)
    }

    /// Sets when a file was changed last.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    pub fn set_time(&self, path: &[u8], modify_time: Timestamp) -> Result<FileFacts, DeskError> {
        let arguments = SettimeArguments { path: DeskPath::new(path)?, modify_time };
        self.call::<Settime>(&arguments, Again::Harmless)
    }

    /// Sets a file's permission bits.
    #[allow(clippy::missing_errors_doc, reason = "told once, above")]
    pub fn set_mode(&self, path: &[u8], mode: u32) -> Result<FileFacts, DeskError> {
        let arguments = ModeArguments { path: DeskPath::new(path)?, mode };
        self.call::<Setmode>(&arguments, Again::Harmless)
    }

    fn call<Op: Operation>(
        &self,
        arguments: &Op::Arguments,
        again: Again,
    ) -> Result<Op::Reply, DeskError> {
        self.tries(Op::PROCEDURE, &to_bytes(arguments), again, |reply| {
            let mut input = Decoder::new(reply.results());
            let result = decode_result::<Op::Reply, DeskStatus>(&mut input)?;
            input.finish().map(|()| result)
        })
    }

    /// Makes a call, with as many tries as it takes and patience allows.
    fn tries<T>(
        &self,
        procedure: Procedure,
        arguments: &[u8],
        again: Again,
        decode: impl Fn(&Reply) -> Result<Result<T, DeskStatus>, XdrError>,
    ) -> Result<T, DeskError> {
        let (begun, mut wait) = (Instant::now(), FIRST_WAIT);
        let server = || self.address().to_owned();
        loop {
            let is_over = |wait| begun.elapsed() + wait >= self.patience;
            match self.attempt(procedure, arguments) {
                Ok(reply) => match decode(&reply).map_err(|error| self.nonsense(error))? {
                    Ok(told) => return Ok(told),
                    Err(status) if status.is_transient() && !is_over(wait) => {}
                    Err(status) => return Err(DeskError::Answered { server: server(), status }),
                },
                Err(last) => {
                    if let Some(error) = self.hopeless(&last) {
                        return Err(error);
                    }
                    if last.may_have_run() && again == Again::Harmful {
                        let (server, last) = (server(), Box::new(last));
                        return Err(DeskError::Uncertain { server, last });
                    }
                    if is_over(wait) {
                        let (server, taken, last) = (server(), begun.elapsed(), Box::new(last));
                        return Err(DeskError::Unreachable { server, taken, last });
                    }
                    tracing::debug!(server = self.address(), %last, "a call to a desk failed");
                }
            }
            thread::sleep(wait);
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    fn attempt(&self, procedure: Procedure, arguments: &[u8]) -> Result<Reply, TransportError> {
        let timeout = CALL_TIMEOUT.min(self.patience).max(LONGEST_WAIT);
        let call = OutgoingCall {
            program: PROGRAM,
            version: VERSION,
            procedure: procedure.into(),
            credential: OpaqueAuth { flavor: AUTH_SYS, body: &self.credential },
            verifier: OpaqueAuth::NONE,
            arguments,
            data: &[],
            results: ResultShape::Plain,
            timeout,
        };
        Ok(self.shared.connected(timeout)?.call(&call, &mut [])?)
    }

    /// The error to give up with at once, if trying again is no use.
    fn hopeless(&self, error: &TransportError) -> Option<DeskError> {
        let server = || self.address().to_owned();
        let untrusted = |source: &TlsError| match source {
            TlsError::Interrupted { .. } => None,
            source => {
                Some(DeskError::Untrusted { server: server(), source: Box::new(source.clone()) })
            }
        };
        let TransportError::Channel(error) = error else { return None };
        match error {
            ChannelError::Connect { .. } | ChannelError::TimedOut { .. } => None,
            ChannelError::Tls { source, .. } => untrusted(source),
            ChannelError::Broken { reason, .. } => match &**reason {
                BreakReason::Tls(source) => untrusted(source),
                // The server died in the middle of a reply.
                BreakReason::Protocol(FrameError::Truncated) => None,
                BreakReason::Protocol(error) => Some(self.nonsense(error)),
                _ => None,
            },
            ChannelError::Rejected {
                reason: ReplyError::Rejected(AcceptStatus::SystemError),
                ..
            } => None,
            ChannelError::Rejected {
                reason: ReplyError::Denied(Denial::Auth(AuthStatus::TooWeak)),
                ..
            } => Some(DeskError::NotAdmitted { server: server() }),
            ChannelError::Rejected { .. } | ChannelError::TooLong { .. } => {
                Some(self.nonsense(error))
            }
        }
    }

    fn nonsense(&self, why: impl ToString) -> DeskError {
        DeskError::Protocol { server: self.address().to_owned(), why: why.to_string() }
    }
}

impl Shared {
    /// The connection, made anew if it was lost. Whoever else wants it waits meanwhile.
    fn connected(&self, timeout: Duration) -> Result<Arc<dyn Channel>, TransportError> {
        // Nothing that can panic is done with it.
        let mut channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = channel.as_ref().filter(|channel| channel.is_open()) {
            return Ok(Arc::clone(open));
        }
        let made = self.connector.connect(timeout)?;
        *channel = Some(Arc::clone(&made));
        Ok(made)
    }
}

/// AUTH_SYS has room for 16 groups; more are left out, as NFS does.
fn credential_of(caller: &Caller) -> Vec<u8> {
    let groups = caller.groups[..caller.groups.len().min(MAX_GROUPS)].to_vec();
    AuthSys { uid: caller.uid, gid: caller.gid, groups, ..AuthSys::default() }.to_body()
}

fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_parts(since_epoch.as_secs(), since_epoch.subsec_nanos())
}
