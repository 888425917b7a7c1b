//! The desk: who gets a ticket for which file of a directory, as an RPC program over TLS (`specs/bulk-desk.x`), on the port
//! of the data connections.
//!
//! Access is decided as the kernel would for the user and groups of the caller: for each directory of the way, and for
//! what is at its end, by the descriptor that is then used. Where the system lets this process act as others, changes are
//! made as the caller besides, so that the kernel decides itself at that moment, and what is made is the caller's. A ticket
//! is for one file, whatever is moved to its path later.

mod acl;
mod acting;
mod caller;
pub mod client;
mod node;
mod operations;
mod permission;
mod status;
mod ticket;
mod walk;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nasd_client::Caller;
use nasd_protocol::bulk::MAGIC;
use nasd_protocol::bulk_desk::{
    DeskStatus, List, Look, Mkdir, Operation, PROGRAM, Procedure, Remove, Rename, Setmode, Settime,
    Ticket, VERSION,
};
use nasd_protocol::encode_result;
use nasd_rpc::{AUTH_SYS, AuthSys};
use nasd_transport::{
    AcceptStatus, Answer, Arriving, Attempt, AuthStatus, Beside, BesideConnection, Call, CallHead,
    Identity, NoPayload, Peer, Receive, ReplyVerifier, Service, Waits,
};
use nasd_types::Protection;
use nasd_xdr::{Encoder, from_bytes};

use self::caller::{caller_of, nobody};
use self::operations::{Outcome, Visit};
use crate::directory::{Directory, DirectoryOptions, Surroundings};
use crate::server::{Sessions, serve};

pub use caller::NOBODY;
pub use client::{DeskClient, DeskError, DeskTicket};

/// Where files are changed, and their lists read, by the descriptors that were checked.
const DESCRIPTORS: &str = "/proc/self/fd";

/// Whether the kernel protects links in directories that all may write.
const PROTECTED_SYMLINKS: &str = "/proc/sys/fs/protected_symlinks";

/// Whose certificates are a present member's of the cell.
pub type Members = Arc<dyn Fn(&Identity) -> bool + Send + Sync>;

/// Who gets tickets, and for how long.
#[derive(Clone)]
pub struct DeskOptions {
    /// How long a ticket is good for which nothing else was asked.
    pub lifetime: Duration,
    /// How long one is good at most.
    pub longest_lifetime: Duration,
    /// Whether root of a host is root here; otherwise it is nobody ([`NOBODY`]).
    pub trust_root: bool,
    /// Insecure: whether anybody may ask, without TLS and as nobody, and need not protect requests. Whoever is on the network
    /// can do what nobody can.
    pub anyone: bool,
    /// Whether changes are made as the caller, where the system lets this process act as others (root mostly may). Otherwise the
    /// server's own user makes them, and has what is made.
    pub act_as_callers: bool,
    /// Asked for each call, for certificates of the cell; nothing: all are welcome until they expire.
    pub members: Option<Members>,
}

impl Default for DeskOptions {
    fn default() -> Self {
        DeskOptions {
            lifetime: Duration::from_secs(3600),
            longest_lifetime: Duration::from_secs(24 * 3600),
            trust_root: false,
            anyone: false,
            act_as_callers: true,
            members: None,
        }
    }
}

impl fmt::Debug for DeskOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeskOptions")
            .field("lifetime", &self.lifetime)
            .field("longest_lifetime", &self.longest_lifetime)
            .field("trust_root", &self.trust_root)
            .field("anyone", &self.anyone)
            .field("act_as_callers", &self.act_as_callers)
            .finish_non_exhaustive()
    }
}

/// A directory, with its desk and its data connections: a service for a [`nasd_transport::Server`]. That must have TLS, but
/// where anyone may ask.
pub struct Desk {
    directory: Directory,
    sessions: Sessions,
    options: DeskOptions,
    /// Whether changes are made as the caller.
    acts: bool,
    protects_links: bool,
}

impl Desk {
    /// Serves what is in a directory. Where anyone may ask, the directory's weakest protection is none, whatever its options
    /// say.
    ///
    /// # Errors
    ///
    /// If it can't be opened, or the system has no `/proc`, by which files are reached as they were checked.
    pub fn new(
        path: &Path,
        surroundings: Surroundings,
        directory: DirectoryOptions,
        options: DeskOptions,
    ) -> io::Result<Desk> {
        if !Path::new(DESCRIPTORS).exists() {
            let why = "the bulk desk needs /proc/self/fd: mount proc";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let minimum_protection = match options.anyone {
            true => Protection::NONE,
            false => directory.minimum_protection,
        };
        let directory = DirectoryOptions { minimum_protection, ..directory };
        let protected = std::fs::read_to_string(PROTECTED_SYMLINKS);
        Ok(Desk {
            directory: Directory::new(path, surroundings, directory)?,
            sessions: Sessions::default(),
            acts: options.act_as_callers && acting::can_act(),
            options,
            protects_links: protected.is_ok_and(|value| value.trim() != "0"),
        })
    }

    /// The directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// How long a ticket is good, in nanoseconds, for which so much was asked.
    fn lifetime_ns(&self, asked_ns: u64) -> u64 {
        let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let wanted = if asked_ns == 0 { ns(self.options.lifetime) } else { asked_ns };
        wanted.min(ns(self.options.longest_lifetime))
    }

    fn caller(&self, head: &CallHead<'_>, peer: &Peer) -> Result<Caller, AuthStatus> {
        if self.options.anyone {
            return Ok(nobody());
        }
        if head.credential.flavor != AUTH_SYS {
            return Err(AuthStatus::TooWeak);
        }
        let credential =
            AuthSys::from_body(head.credential.body).map_err(|_| AuthStatus::BadCredential)?;
        if let Some(members) = &self.options.members
            && !members(&peer.identity)
        {
            tracing::warn!(peer = %peer.address, identity = %peer.identity, "refused: no member");
            return Err(AuthStatus::TooWeak);
        }
        let now = self.directory.now();
        let caller = caller_of(&credential, &peer.identity, now, self.options.trust_root);
        caller.map_err(|error| {
            tracing::warn!(peer = %peer.address, %error, "refused a caller of the bulk desk");
            AuthStatus::TooWeak
        })
    }

    fn answer(&self, call: &Call<'_, NoPayload>) -> Answer<Vec<u8>> {
        let procedure = match procedure_of(call.head) {
            Ok(procedure) => procedure,
            Err(status) => return Answer::Rejected(status),
        };
        if procedure == Procedure::Null {
            return results(Vec::new());
        }
        let caller = match self.caller(call.head, call.peer) {
            Ok(caller) => caller,
            Err(status) => return Answer::Denied(status),
        };
        let (visit, arguments) = (Visit { desk: self, caller }, call.arguments);
        match procedure {
            Procedure::Null => results(Vec::new()),
            Procedure::Ticket => run::<Ticket>(arguments, |asked| visit.ticket(asked)),
            Procedure::Look => run::<Look>(arguments, |path| visit.look(path)),
            Procedure::List => run::<List>(arguments, |asked| visit.list(asked)),
            Procedure::Mkdir => run::<Mkdir>(arguments, |asked| visit.mkdir(asked)),
            Procedure::Rename => run::<Rename>(arguments, |asked| visit.rename(asked)),
            Procedure::Remove => run::<Remove>(arguments, |path| visit.remove(path)),
            Procedure::Settime => run::<Settime>(arguments, |asked| visit.settime(asked)),
            Procedure::Setmode => run::<Setmode>(arguments, |asked| visit.setmode(asked)),
        }
    }
}

impl Service for Desk {
    type Payload = NoPayload;
    type Segment = Vec<u8>;

    fn receive(&self, _call: &Arriving<'_>) -> Receive<NoPayload> {
        Receive::Whole
    }

    fn attempt(&self, call: Call<'_, NoPayload>) -> Attempt<NoPayload, Vec<u8>> {
        match procedure_of(call.head) {
            Ok(Procedure::Null) | Err(_) => Attempt::Answered(self.answer(&call)),
            // Whatever needs the file system may have to wait for it.
            Ok(_) => Attempt::Waits(Waits::Alone, None),
        }
    }

    fn execute(&self, call: Call<'_, NoPayload>) -> Answer<Vec<u8>> {
        self.answer(&call)
    }

    fn beside(&self) -> Option<&dyn Beside> {
        Some(self)
    }
}

impl Beside for Desk {
    fn begins(&self) -> [u8; 8] {
        MAGIC
    }

    /// The file that each has open.
    fn descriptors(&self) -> usize {
        1
    }

    fn serve(&self, connection: BesideConnection<'_>) {
        let BesideConnection { socket, peer, .. } = connection;
        if let Err(error) = serve(&self.directory, &self.sessions, socket, &connection) {
            tracing::debug!(%peer, %error, "a bulk connection has ended");
        }
    }
}

fn procedure_of(head: &CallHead<'_>) -> Result<Procedure, AcceptStatus> {
    if head.program != PROGRAM {
        return Err(AcceptStatus::ProgramUnavailable);
    }
    if head.version != VERSION {
        return Err(AcceptStatus::ProgramMismatch { low: VERSION, high: VERSION });
    }
    Procedure::try_from(head.procedure).map_err(|_| AcceptStatus::ProcedureUnavailable)
}

fn run<Op: Operation>(
    arguments: &[u8],
    operation: impl FnOnce(&Op::Arguments) -> Outcome<Op::Reply>,
) -> Answer<Vec<u8>> {
    let Ok(arguments) = from_bytes::<Op::Arguments>(arguments) else {
        return Answer::Rejected(AcceptStatus::GarbageArguments);
    };
    let mut out = Encoder::new();
    encode_result::<_, DeskStatus>(&operation(&arguments), &mut out);
    results(out.into_bytes())
}

fn results(results: Vec<u8>) -> Answer<Vec<u8>> {
    Answer::Results { verifier: ReplyVerifier::default(), results, data: Vec::new() }
}
