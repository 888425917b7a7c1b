//! The manager's program as a service of the transport: who calls, which operation, what answer.
//!
//! [`ManagerService::open`] is a manager without a socket and without threads; [`crate::ManagerServer`]
//! gives it both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use nasd_protocol::drive::DriveControl;
use nasd_protocol::encode_result;
use nasd_protocol::limits::MAX_EXTENSION_JOBS;
use nasd_protocol::manager::{
    Accessed, Attach, CellStatus, Closed, Commit, Detach, DriveAddress, DriveStatus, Enroll,
    Events, FileHandle, ForwardAppend, ForwardFlush, ForwardGetattr, ForwardPunch,
    ForwardReadArguments, ForwardSeek, ForwardWrite, Getattr, Getcap, Getcaps, Getwcap, Getxattr,
    HoldVolume, Lease, Listxattr, Lock, Lookup, ManagerStatus, Member, Mint, MintArguments, Minted,
    MkmountArguments, MovePart, Name, Numbered, Operation, PROGRAM, Procedure, Readdir,
    Readdirplus, ReleaseVolume, Reload, ReloadVolumes, Renew, Repair, RepairAction, Returncap,
    Revoke, Rotate, Space, StatisticsOperation, StatusOperation, TestLock, Unlock, VERSION, Volume,
    VolumeList, VolumeOperation, VolumeParts, Volumes as ListVolumes, XattrNames, XattrValue,
};
use nasd_rpc::{AUTH_SYS, AuthSys};
use nasd_transport::{
    AcceptStatus, Answer, Arriving, Attempt, AuthStatus, Call, CallHead, Peer, Receive,
    ReplyVerifier, Service, Waits,
};
use nasd_types::limits::MAX_HEAD_BYTES;
use nasd_types::{CellId, Protection, Timestamp};
use nasd_xdr::{Encoder, from_bytes, to_bytes};

use crate::administration::Administration;
use crate::callback_service::CallbacksOf;
use crate::caller::Caller;
use crate::changes::{Changes, is_change};
use crate::config::ManagerConfig;
use crate::forward::{Asked, ForwardedData, Forwarder, Lent, brings_data, is_forwarded};
use crate::holding::Holding;
use crate::measures::{Measures, Present};
use crate::namespace::{Namespace, Outcome};
use crate::objects::ObjectStore;
use crate::server::ServerError;
use crate::session_service::SessionService;
use crate::sessions::hub::SessionHub;
use crate::standstill::Inside;
use crate::volumes::{Volumes, begins_with_handle, drive_address};

/// Bytes of a record around its credentials and arguments, or around its results: the record
/// mark, the words of the head, and the lengths of two empty verifiers.
const CALL_FRAME_BYTES: u64 = 4 + 24 + 16;
const REPLY_FRAME_BYTES: u64 = 4 + 12 + 8 + 4;

/// What the status answer needs besides the name space.
#[derive(Clone, Debug)]
struct ServiceFacts {
    cell: CellId,
    /// As clients are told of them.
    drives: Vec<DriveAddress>,
    /// Options that clients should use.
    protection: Protection,
    /// When the manager was started, by its own clock.
    started: Timestamp,
}

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
}

/// The service.
pub struct ManagerService {
    volumes: Arc<Volumes>,
    facts: ServiceFacts,
    administration: Administration,
    sessions: SessionService,
    forwarder: Forwarder,
    holding: Holding,
    counters: Counters,
    measures: Measures,
}

/// An answer on its way to the client.
pub(crate) type Reply = Answer<ForwardedData>;

impl ManagerService {
    /// Opens the volume of a configuration, making it at the first start. Waits for the volume's home
    /// up to the configured patience.
    ///
    /// # Errors
    /// `Config` or `Start`.
    pub fn open(config: &ManagerConfig) -> Result<ManagerService, ServerError> {
        Ok(ManagerService::assemble(Volumes::open(config)?, config))
    }

    /// The same over any objects, whose working keys never change.
    ///
    /// # Errors
    /// `Start`.
    pub fn over(
        objects: Arc<dyn ObjectStore>,
        config: &ManagerConfig,
    ) -> Result<ManagerService, ServerError> {
        Ok(ManagerService::assemble(Volumes::over(objects, config)?, config))
    }

    fn assemble(volumes: Volumes, config: &ManagerConfig) -> ManagerService {
        let volumes = Arc::new(volumes);
        ManagerService {
            administration: Administration::new(Arc::clone(&volumes), config.members.clone()),
            facts: facts(config),
            sessions: SessionService::new(config.sessions, Arc::clone(&volumes)),
            volumes,
            forwarder: Forwarder::new(config),
            holding: Holding::new(),
            counters: Counters::default(),
            measures: Measures::new(),
        }
    }

    /// The name space of the cell's first volume.
    pub fn namespace(&self) -> &Arc<Namespace> {
        self.volumes.first()
    }

    pub(crate) fn volumes(&self) -> &Arc<Volumes> {
        &self.volumes
    }

    /// What the manager has counted since its start, and what it holds now, as text for Prometheus.
    pub fn metrics(&self) -> String {
        let hub = self.sessions.hub();
        let (sessions, grace) =
            hub.with(|sessions, now| (sessions.counts(), sessions.is_grace(now)));
        let bytes = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { received_bytes, sent_bytes, .. } = &self.counters;
        self.measures.text(&Present {
            started: self.facts.started,
            sessions,
            grace,
            volumes: self.volumes.cached(),
            forward_bytes: self.forwarder.lent_bytes(),
            names_bytes: (bytes(received_bytes), bytes(sent_bytes)),
        })
    }

    /// What is due for sessions. Called several times a lease by one thread.
    pub(crate) fn tend_sessions(&self) {
        self.sessions.tend();
    }

    pub(crate) const fn sessions(&self) -> &Arc<SessionHub> {
        self.sessions.hub()
    }

    pub(crate) fn administration(&self) -> &Administration {
        &self.administration
    }

    fn answer(
        &self,
        head: &CallHead<'_>,
        arguments: &[u8],
        payload: Option<Lent>,
        peer: &Peer,
    ) -> Reply {
        let procedure = match procedure_of(head) {
            Ok(procedure) => procedure,
            Err(status) => return Answer::Rejected(status),
        };
        if procedure == Procedure::Enroll {
            let administration = &self.administration;
            return run::<Enroll>(arguments, |who| administration.enroll(peer, &who));
        }
        if !self.administration.admits(&peer.identity) {
            if let Some(left_out) = self.administration.count_refusal() {
                let identity = &peer.identity;
                tracing::warn!(peer = %peer.address, %identity, left_out, "refused: no member");
            }
            return Answer::Denied(AuthStatus::TooWeak);
        }
        let administration = &self.administration;
        match procedure {
            Procedure::Null => results(Vec::new()),
            Procedure::Rotate => run::<Rotate>(arguments, |how| administration.rotate(peer, how)),
            Procedure::Reload => run::<Reload>(arguments, |how| administration.reload(peer, how)),
            Procedure::Renew => run::<Renew>(arguments, |how| administration.renew(peer, &how)),
            Procedure::Member => run::<Member>(arguments, |who| administration.member(peer, &who)),
            Procedure::Repair => run::<Repair>(arguments, |asked| {
                administration.require_administrator(peer)?;
                let names = self.volumes.of_arguments(procedure, arguments)?;
                if asked.action != RepairAction::ExamineOrphan {
                    require_writable(&names)?;
                }
                let _inside = names.door().enter();
                let touched = vec![asked.directory, asked.file];
                let _changing = self.sessions.change(0, "", touched)?;
                names.repair(&asked)
            }),
            Procedure::Statistics => run::<StatisticsOperation>(arguments, |()| {
                administration.require_administrator(peer).map(|()| self.measures.told())
            }),
            Procedure::Reloadvolumes => run::<ReloadVolumes>(arguments, |()| {
                administration.reload_volumes(peer).map(|()| self.list_volumes())
            }),
            Procedure::Holdvolume => run::<HoldVolume>(arguments, |asked| {
                administration.require_administrator(peer)?;
                self.holding.hold(&self.volumes, self.sessions.hub(), &asked)
            }),
            Procedure::Releasevolume => run::<ReleaseVolume>(arguments, |asked| {
                administration.require_administrator(peer)?;
                self.holding.release(&self.volumes, self.sessions.hub(), &asked)
            }),
            Procedure::Movepart => run::<MovePart>(arguments, |asked| {
                administration.require_administrator(peer)?;
                self.holding.move_part(&self.volumes, self.sessions.hub(), &asked)
            }),
            _ => self.answer_caller(procedure, head, arguments, payload, peer),
        }
    }

    /// What is asked on somebody's behalf.
    fn answer_caller(
        &self,
        procedure: Procedure,
        head: &CallHead<'_>,
        arguments: &[u8],
        payload: Option<Lent>,
        peer: &Peer,
    ) -> Reply {
        let caller = match self.caller_of(head, peer) {
            Ok(caller) => caller,
            Err(status) => return Answer::Denied(status),
        };
        let member = peer.identity.to_string();
        if is_of_sessions(procedure) {
            return self.on_sessions(procedure, (&caller, member), arguments);
        }
        let _inside = match self.enter(procedure, arguments) {
            Ok(inside) => inside,
            Err(status) => return refused(status),
        };
        if is_forwarded(procedure) {
            return self.forward(procedure, (&caller, &member), arguments, payload);
        }
        if is_about_callbacks(procedure) {
            return self.on_callbacks(procedure, (&caller, &member), arguments);
        }
        if !is_change(procedure) {
            return self.dispatch(procedure, &caller, arguments);
        }
        match self.volumes_of_change(procedure, arguments) {
            Ok(names) => {
                Changes::new(&names, &self.sessions, &caller, peer).execute(procedure, arguments)
            }
            Err(status) => refused(status),
        }
    }

    /// Waits until nobody holds the volume that a call is about, if it may change something, or gives somebody a capability to. Refuses
    /// what would change a volume that is not to be changed.
    fn enter(&self, procedure: Procedure, arguments: &[u8]) -> Outcome<Option<Inside>> {
        if !begins_with_handle(procedure) {
            return Ok(None);
        }
        let names = self.volumes.of_arguments(procedure, arguments)?;
        if changes(procedure) {
            require_writable(&names)?;
        }
        // With callbacks, capabilities to store are given, and come back, in their own way.
        let may_change = changes(procedure) || procedure == Procedure::Accessed;
        let goes_in = match names.has_callbacks() {
            true => may_change && !is_about_callbacks(procedure),
            false => true,
        };
        Ok(goes_in.then(|| names.door().enter()))
    }

    /// What clients hold. A session belongs to the certificate that it came with.
    fn on_sessions(
        &self,
        procedure: Procedure,
        (caller, member): (&Caller, String),
        arguments: &[u8],
    ) -> Reply {
        let sessions = self.sessions.of(member);
        match procedure {
            Procedure::Attach => run::<Attach>(arguments, |claims| sessions.attach(&claims)),
            Procedure::Detach => run::<Detach>(arguments, |who| sessions.detach(who.client)),
            Procedure::Events => run::<Events>(arguments, |seen| sessions.events(&seen)),
            Procedure::Closed => run::<Closed>(arguments, |closed| sessions.closed(&closed)),
            Procedure::Lock => run::<Lock>(arguments, |wanted| {
                self.require_lockable(caller, wanted.lock.file, true)?;
                sessions.lock(&wanted)
            }),
            Procedure::Unlock => run::<Unlock>(arguments, |held| sessions.unlock(&held)),
            Procedure::TestLock => run::<TestLock>(arguments, |wanted| {
                self.require_lockable(caller, wanted.lock.file, false)?;
                sessions.test_lock(&wanted)
            }),
            Procedure::Lease => run::<Lease>(arguments, |wanted| sessions.lease(&wanted)),
            _ => Answer::Rejected(AcceptStatus::ProcedureUnavailable),
        }
    }

    /// Requires that the caller may lock a file, or know of its locks, where that takes a right.
    fn require_lockable(&self, caller: &Caller, file: FileHandle, takes: bool) -> Outcome<()> {
        let names = self.volumes.open_ones().find(|names| names.has(file));
        names.map_or(Ok(()), |names| names.require_lockable(caller, file, takes))
    }

    /// What clients of volumes of the personality `afs` ask for.
    fn on_callbacks(
        &self,
        procedure: Procedure,
        (caller, member): (&Caller, &str),
        arguments: &[u8],
    ) -> Reply {
        let names = match self.volumes.of_arguments(procedure, arguments) {
            Ok(names) => names,
            Err(status) => return refused(status),
        };
        let hub = self.sessions.hub();
        let callbacks = CallbacksOf { hub, names: &names, caller, member };
        match procedure {
            Procedure::Getcap => run::<Getcap>(arguments, |asked| callbacks.get_capability(&asked)),
            Procedure::Getcaps => {
                run::<Getcaps>(arguments, |asked| callbacks.get_capabilities(&asked))
            }
            Procedure::Getwcap => {
                run::<Getwcap>(arguments, |asked| callbacks.get_write_capability(&asked))
            }
            Procedure::Returncap => {
                run::<Returncap>(arguments, |done| callbacks.return_capability(&done))
            }
            _ => Answer::Rejected(AcceptStatus::ProcedureUnavailable),
        }
    }

    /// What is asked of drives by this way.
    fn forward(
        &self,
        procedure: Procedure,
        (caller, member): (&Caller, &str),
        arguments: &[u8],
        payload: Option<Lent>,
    ) -> Reply {
        let names = match self.volumes.of_arguments(procedure, arguments) {
            // Nobody would know of what is written in this way, and whoever reads might see half of a store.
            Ok(names) if names.has_callbacks() => return refused(ManagerStatus::NotSupported),
            Ok(names) => names,
            Err(status) => return refused(status),
        };
        let (asked, way) = (Asked { names: &names, caller, member }, &self.forwarder);
        match procedure {
            Procedure::ForwardRead => read_through(way, &asked, arguments),
            Procedure::ForwardWrite => {
                run::<ForwardWrite>(arguments, |wanted| way.write(&asked, &wanted, payload))
            }
            Procedure::ForwardFlush => {
                run::<ForwardFlush>(arguments, |file| way.flush(&asked, file))
            }
            Procedure::ForwardGetattr => {
                run::<ForwardGetattr>(arguments, |file| way.getattr(&asked, file))
            }
            Procedure::ForwardPunch => {
                run::<ForwardPunch>(arguments, |wanted| way.punch(&asked, &wanted))
            }
            Procedure::ForwardSeek => {
                run::<ForwardSeek>(arguments, |wanted| way.seek(&asked, &wanted))
            }
            Procedure::ForwardAppend => {
                run::<ForwardAppend>(arguments, |wanted| way.append(&asked, &wanted, payload))
            }
            _ => Answer::Rejected(AcceptStatus::ProcedureUnavailable),
        }
    }

    /// The name space that a change is about. What it names of another one must be there: `NotFound` if that is not.
    fn volumes_of_change(&self, procedure: Procedure, arguments: &[u8]) -> Outcome<Arc<Namespace>> {
        if procedure == Procedure::Mkmount
            && let Ok(asked) = from_bytes::<Numbered<MkmountArguments>>(arguments)
        {
            self.volumes.find(&asked.arguments.volume)?;
        }
        self.volumes.of_arguments(procedure, arguments)
    }

    fn caller_of(&self, head: &CallHead<'_>, peer: &Peer) -> Result<Caller, AuthStatus> {
        if head.credential.flavor != AUTH_SYS {
            return Err(AuthStatus::TooWeak);
        }
        let credential =
            AuthSys::from_body(head.credential.body).map_err(|_| AuthStatus::BadCredential)?;
        Caller::new(&credential, &peer.identity).map_err(|error| {
            if let Some(left_out) = self.administration.count_refusal() {
                tracing::warn!(peer = %peer.address, %error, left_out, "refused a caller");
            }
            AuthStatus::TooWeak
        })
    }

    fn dispatch(&self, procedure: Procedure, caller: &Caller, arguments: &[u8]) -> Reply {
        let names = match self.volumes.of_arguments(procedure, arguments) {
            Ok(names) => names,
            Err(status) => return refused(status),
        };
        match procedure {
            Procedure::Volume => {
                run::<VolumeOperation>(arguments, |name| self.volume(caller, &name))
            }
            Procedure::Lookup => run::<Lookup>(arguments, |lookup| {
                names.lookup(caller, lookup.directory, lookup.name.as_bytes())
            }),
            Procedure::Getattr => run::<Getattr>(arguments, |file| names.getattr(caller, file)),
            Procedure::Readdir => run::<Readdir>(arguments, |read| {
                names.readdir(caller, read.directory, read.cookie, read.max_entries)
            }),
            Procedure::Readdirplus => run::<Readdirplus>(arguments, |read| {
                names.readdirplus(caller, read.directory, read.cookie, read.max_entries)
            }),
            Procedure::Commit => run::<Commit>(arguments, |_| names.commit()),
            Procedure::Space => run::<Space>(arguments, |name| self.volumes.named(&name)?.space()),
            Procedure::Mint => run::<Mint>(arguments, |asked| self.mint(&names, caller, &asked)),
            Procedure::Volumes => run::<ListVolumes>(arguments, |()| Ok(self.list_volumes())),
            Procedure::Volumeparts => {
                run::<VolumeParts>(arguments, |name| self.volumes.parts(&name))
            }
            Procedure::Revoke => run::<Revoke>(arguments, |file| self.revoke(&names, caller, file)),
            Procedure::Status => run::<StatusOperation>(arguments, |()| Ok(self.status())),
            _ => on_more(&names, procedure, caller, arguments),
        }
    }

    fn volume(&self, caller: &Caller, name: &Name) -> Outcome<Volume> {
        let (volume, names) = self.volumes.served(name)?;
        // A capability for the root comes with it.
        let _inside = (!names.has_callbacks()).then(|| names.door().enter());
        Ok(Volume {
            cell: self.facts.cell,
            name: volume.name().clone(),
            root: names.getattr(caller, names.root())?,
            drives: volume.drives(),
            protection: self.facts.protection,
            personality: volume.personality(),
            read_only: volume.is_read_only(),
        })
    }

    fn list_volumes(&self) -> VolumeList {
        VolumeList { volumes: self.volumes.summaries() }
    }

    /// A capability to hand on, and where it is good for something.
    fn mint(&self, names: &Namespace, caller: &Caller, asked: &MintArguments) -> Outcome<Minted> {
        let capability = names.mint(caller, asked)?;
        // Not always the one by which the file is known.
        let drive = capability.capability.drive;
        let address = self.volumes.address(drive).ok_or(ManagerStatus::Stale)?;
        let longest_lifetime = names.longest_lifetime_ns();
        Ok(Minted { capability, drive, address, longest_lifetime })
    }

    /// Makes every capability of a file useless.
    fn revoke(&self, names: &Namespace, caller: &Caller, file: FileHandle) -> Outcome<()> {
        if !names.has_callbacks() {
            return names.revoke(caller, file);
        }
        let hub = self.sessions.hub();
        let callbacks = CallbacksOf { hub, names, caller, member: "" };
        callbacks.storing(file, None, || names.revoke(caller, file))
    }

    /// The state of the cell, every drive asked at the same time, so that those that are away
    /// delay the answer once.
    fn status(&self) -> CellStatus {
        let drives = std::thread::scope(|scope| {
            let ask = |drive: &DriveAddress| {
                let (id, objects) = (drive.drive, self.volumes.first_objects());
                (drive.clone(), scope.spawn(move || objects.drive_control(id).ok()))
            };
            let asked: Vec<_> = self.facts.drives.iter().map(ask).collect();
            let told = asked.into_iter().map(|(drive, answer)| {
                let control = answer.join().ok().flatten();
                let forwarded_bytes = self.forwarder.moved_of(drive.drive);
                let (DriveAddress { drive, address, .. }, reachable) = (drive, control.is_some());
                DriveStatus { drive, address, reachable, control, forwarded_bytes }
            });
            told.collect()
        });
        let status = CellStatus {
            cell: self.facts.cell,
            volume: self.volumes.first_name(),
            started: self.facts.started,
            drives,
            file_data_bytes: self.forwarder.moved().read() + self.forwarder.moved().written(),
            client_bytes_received: self.counters.received_bytes.load(Ordering::Relaxed),
            client_bytes_sent: self.counters.sent_bytes.load(Ordering::Relaxed),
            requests: self.counters.requests.load(Ordering::Relaxed),
        };
        fit(status)
    }
}

/// Extended attributes and access times. What is left is not the name space's.
fn on_more(names: &Namespace, procedure: Procedure, caller: &Caller, arguments: &[u8]) -> Reply {
    match procedure {
        Procedure::Getxattr => run::<Getxattr>(arguments, |asked| {
            let value = names.getxattr(caller, asked.file, asked.name.as_bytes())?;
            Ok(XattrValue { value })
        }),
        Procedure::Listxattr => run::<Listxattr>(arguments, |file| {
            Ok(XattrNames { names: names.listxattr(caller, file)? })
        }),
        Procedure::Accessed => {
            run::<Accessed>(arguments, |read| names.accessed(caller, &read.accessed))
        }
        _ => Answer::Rejected(AcceptStatus::ProcedureUnavailable),
    }
}

/// Leaves jobs of extensions out where the answer would not fit a record's head: of each drive as many, those that run first, stay.
/// Then the lists of partitions, and then the rest of the jobs.
fn fit(mut status: CellStatus) -> CellStatus {
    let is_long = |status: &CellStatus| to_bytes(status).len() > MAX_HEAD_BYTES - 1024;
    let keep_jobs = |status: &mut CellStatus, least: usize| {
        let mut most = MAX_EXTENSION_JOBS;
        while most > least && is_long(status) {
            most /= 2;
            controls(status).for_each(|control| control.extension_work.jobs.truncate(most));
        }
    };
    keep_jobs(&mut status, 1);
    if is_long(&status) {
        controls(&mut status).for_each(|control| control.partitions.clear());
    }
    keep_jobs(&mut status, 0);
    status
}

fn controls(status: &mut CellStatus) -> impl Iterator<Item = &mut DriveControl> {
    status.drives.iter_mut().filter_map(|drive| drive.control.as_mut())
}

fn facts(config: &ManagerConfig) -> ServiceFacts {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    ServiceFacts {
        cell: config.cell,
        drives: config.drives.iter().map(drive_address).collect(),
        protection: config.protection,
        started: Timestamp::from_parts(now.as_secs(), now.subsec_nanos()),
    }
}

impl Service for ManagerService {
    type Payload = Lent;
    type Segment = ForwardedData;

    fn receive(&self, call: &Arriving<'_>) -> Receive<Lent> {
        let Some(procedure) = procedure_of(call.head).ok().filter(|known| brings_data(*known))
        else {
            return Receive::Whole;
        };
        let identity = &call.peer.identity;
        match self.administration.admits(identity) {
            true => self.forwarder.receive(call, procedure, &identity.to_string()),
            false => Receive::Discard { head_bytes: 0 },
        }
    }

    fn attempt(&self, call: Call<'_, Lent>) -> Attempt<Lent, ForwardedData> {
        match procedure_of(call.head) {
            Ok(Procedure::Null) | Err(_) => Attempt::Answered(self.execute(call)),
            // Whatever needs a drive may have to wait for it.
            Ok(_) => Attempt::Waits(Waits::Alone, call.payload),
        }
    }

    fn execute(&self, call: Call<'_, Lent>) -> Reply {
        let (begun, procedure) = (Instant::now(), procedure_of(call.head).ok());
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        let written = call.payload.as_ref().map_or(0, Lent::len);
        let credentials = call.head.credential.body.len() + call.head.verifier.body.len();
        let received = CALL_FRAME_BYTES + (credentials + call.arguments.len()) as u64;
        self.counters.received_bytes.fetch_add(received, Ordering::Relaxed);
        let answer = self.answer(call.head, call.arguments, call.payload, call.peer);
        let (sent, read) = match &answer {
            Answer::Results { results, data, .. } => (results.len() as u64, length_of(data)),
            Answer::Rejected(_) | Answer::Denied(_) => (0, 0),
        };
        self.counters.sent_bytes.fetch_add(REPLY_FRAME_BYTES + sent, Ordering::Relaxed);
        if !matches!(answer, Answer::Rejected(_) | Answer::Denied(_)) {
            let is_done = is_success(&answer);
            let written = if is_done { written as u64 } else { 0 };
            self.measures.count_member(&call.peer.identity.to_string(), read, written);
        }
        self.measures.count(procedure, &answer, begun.elapsed());
        answer
    }
}

fn is_success(answer: &Reply) -> bool {
    matches!(answer, Answer::Results { results, .. } if results.starts_with(&[0; 4]))
}

fn length_of(data: &[ForwardedData]) -> u64 {
    data.iter().map(|part| part.as_ref().len() as u64).sum()
}

/// Whether a procedure changes something that others see.
const fn changes(procedure: Procedure) -> bool {
    let is_data = matches!(
        procedure,
        Procedure::ForwardWrite | Procedure::ForwardPunch | Procedure::ForwardAppend
    );
    is_change(procedure) || is_data || matches!(procedure, Procedure::Getwcap | Procedure::Revoke)
}

fn require_writable(names: &Namespace) -> Outcome<()> {
    if names.is_read_only() { Err(ManagerStatus::ReadOnly) } else { Ok(()) }
}

/// Whether a procedure is about sessions, whoever the caller is.
const fn is_of_sessions(procedure: Procedure) -> bool {
    matches!(
        procedure,
        Procedure::Attach
            | Procedure::Detach
            | Procedure::Events
            | Procedure::Closed
            | Procedure::Lock
            | Procedure::Unlock
            | Procedure::TestLock
            | Procedure::Lease
    )
}

/// Whether a procedure is one of the personality `afs`.
const fn is_about_callbacks(procedure: Procedure) -> bool {
    matches!(
        procedure,
        Procedure::Getcap | Procedure::Getcaps | Procedure::Getwcap | Procedure::Returncap
    )
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
    operation: impl FnOnce(Op::Arguments) -> Outcome<Op::Reply>,
) -> Reply {
    let Ok(arguments) = from_bytes::<Op::Arguments>(arguments) else {
        return Answer::Rejected(AcceptStatus::GarbageArguments);
    };
    let mut out = Encoder::new();
    encode_result(&operation(arguments), &mut out);
    results(out.into_bytes())
}

/// A refusal before the arguments were looked at.
pub(crate) fn refused(status: ManagerStatus) -> Reply {
    let mut out = Encoder::new();
    encode_result::<(), ManagerStatus>(&Err(status), &mut out);
    results(out.into_bytes())
}

pub(crate) fn results(results: Vec<u8>) -> Reply {
    results_with(results, Vec::new())
}

fn results_with(results: Vec<u8>, data: Vec<ForwardedData>) -> Reply {
    Answer::Results { verifier: ReplyVerifier::default(), results, data }
}

/// A read by the way of the manager, whose data follow behind the results.
fn read_through(way: &Forwarder, asked: &Asked<'_>, arguments: &[u8]) -> Reply {
    let Ok(wanted) = from_bytes::<ForwardReadArguments>(arguments) else {
        return Answer::Rejected(AcceptStatus::GarbageArguments);
    };
    let mut out = Encoder::new();
    let data = match way.read(asked, &wanted) {
        Ok((told, data)) => {
            encode_result::<_, ManagerStatus>(&Ok(told), &mut out);
            vec![data]
        }
        Err(status) => {
            encode_result::<(), _>(&Err(status), &mut out);
            Vec::new()
        }
    };
    results_with(out.into_bytes(), data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::memory::MemoryDrives;
    use nasd_protocol::drive::ExtensionJob;
    use nasd_types::{DriveId, ObjectId, PartitionId};

    fn job(drive: DriveId, job: u64) -> ExtensionJob {
        ExtensionJob {
            drive,
            extension: 2,
            partition: PartitionId(1),
            object: ObjectId(1000),
            object_bytes: 1 << 30,
            job,
            running: 0,
            waiting: 1,
            age: 1,
            bytes_done: 0,
            bytes_left: 1 << 30,
            bytes_per_second: 0,
            memory_bytes: 0,
        }
    }

    /// Of a cell with so many drives, each with so many jobs.
    fn status(drives: u64, jobs: usize) -> CellStatus {
        let memory = MemoryDrives::new(drives);
        let of_drive = |drive| {
            let mut control = memory.drive_control(drive).unwrap();
            control.extension_work.jobs = (0..jobs as u64).map(|at| job(drive, at)).collect();
            let control = Some(control);
            let address = "drive.example:7001".to_owned();
            DriveStatus { drive, address, reachable: true, control, forwarded_bytes: 0 }
        };
        CellStatus {
            cell: CellId([1; 16]),
            volume: Name::new(b"home").unwrap(),
            started: Timestamp(0),
            drives: (1..=drives).map(|drive| of_drive(DriveId(drive))).collect(),
            file_data_bytes: 0,
            client_bytes_received: 0,
            client_bytes_sent: 0,
            requests: 0,
        }
    }

    #[test]
    fn a_status_with_many_jobs_fits() {
        let few = status(4, MAX_EXTENSION_JOBS);
        assert_eq!(fit(few.clone()), few);
        for drives in [13, 30, 100] {
            let many = status(drives, MAX_EXTENSION_JOBS);
            assert!(to_bytes(&many).len() > MAX_HEAD_BYTES);
            let fit = fit(many);
            assert!(to_bytes(&fit).len() <= MAX_HEAD_BYTES - 1024, "{drives} drives");
            let controls: Vec<_> =
                fit.drives.iter().filter_map(|drive| drive.control.as_ref()).collect();
            // They say what lasts, and jobs what is over soon.
            assert!(controls.iter().all(|told| !told.partitions.is_empty()), "{drives} drives");
            let jobs = controls.iter().map(|told| told.extension_work.jobs.len());
            let counts: Vec<usize> = jobs.collect();
            assert!(counts.iter().all(|count| *count == counts[0] && *count > 0), "{counts:?}");
        }
    }
}
