//! The manager's program as a service of the transport: who calls, which operation, what answer.
//!
//! [`ManagerService::open`] is a manager without a socket and without threads; [`crate::ManagerServer`]
//! gives it both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use nasd_protocol::encode_result;
use nasd_protocol::manager::{
    Accessed, Attach, CellStatus, Closed, Create, Detach, DriveAddress, DriveStatus, Enroll,
    Events, Getattr, Getxattr, Link, Listxattr, Lock, Lookup, ManagerStatus, Mint, MintArguments,
    Minted, Mkdir, Mknod, Name, Operation, PROGRAM, Procedure, Readdir, Reload, ReloadVolumes,
    Removexattr, Rename, Renew, Repair, Revoke, Rmdir, Rotate, Setattr, Setxattr, Space,
    StatusOperation, Symlink, TestLock, Unlink, Unlock, VERSION, Volume, VolumeList,
    VolumeOperation, VolumeParts, Volumes as ListVolumes, XattrNames, XattrValue,
};
use nasd_rpc::{AUTH_SYS, AuthSys};
use nasd_transport::{
    AcceptStatus, Answer, Arriving, Attempt, AuthStatus, Call, CallHead, NoPayload, Peer, Receive,
    ReplyVerifier, Service, Waits,
};
use nasd_types::limits::MAX_HEAD_BYTES;
use nasd_types::{CellId, Protection, Timestamp};
use nasd_xdr::{Encoder, from_bytes, to_bytes};

use crate::administration::Administration;
use crate::caller::Caller;
use crate::config::ManagerConfig;
use crate::namespace::{Namespace, Node, Outcome};
use crate::objects::ObjectStore;
use crate::server::ServerError;
use crate::session_service::SessionService;
use crate::sessions::Earlier;
use crate::sessions::hub::SessionHub;
use crate::volumes::{Volumes, drive_address};

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
    counters: Counters,
}

type Reply = Answer<Vec<u8>>;

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
            volumes,
            facts: facts(config),
            sessions: SessionService::new(SessionHub::new(config.sessions, Earlier::Unknown)),
            counters: Counters::default(),
        }
    }

    /// The name space of the cell's first volume.
    pub fn namespace(&self) -> &Arc<Namespace> {
        self.volumes.first()
    }

    pub(crate) fn volumes(&self) -> &Arc<Volumes> {
        &self.volumes
    }

    pub(crate) const fn sessions(&self) -> &Arc<SessionHub> {
        self.sessions.hub()
    }

    pub(crate) fn administration(&self) -> &Administration {
        &self.administration
    }

    fn answer(&self, head: &CallHead<'_>, arguments: &[u8], peer: &Peer) -> Reply {
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
            Procedure::Repair => run::<Repair>(arguments, |asked| {
                administration.require_administrator(peer)?;
                self.volumes.of_arguments(procedure, arguments)?.repair(&asked)
            }),
            Procedure::Reloadvolumes => run::<ReloadVolumes>(arguments, |()| {
                administration.reload_volumes(peer).map(|()| self.list_volumes())
            }),
            _ => match self.caller_of(head, peer) {
                Ok(_) if is_of_sessions(procedure) => {
                    self.on_sessions(procedure, peer.identity.to_string(), arguments)
                }
                Ok(caller) => self.dispatch(procedure, &caller, arguments),
                Err(status) => Answer::Denied(status),
            },
        }
    }

    /// What clients hold. A session belongs to the certificate that it came with.
    fn on_sessions(&self, procedure: Procedure, member: String, arguments: &[u8]) -> Reply {
        let sessions = self.sessions.of(member);
        match procedure {
            Procedure::Attach => run::<Attach>(arguments, |claims| sessions.attach(&claims)),
            Procedure::Detach => run::<Detach>(arguments, |who| sessions.detach(who.client)),
            Procedure::Events => run::<Events>(arguments, |seen| sessions.events(&seen)),
            Procedure::Closed => run::<Closed>(arguments, |closed| sessions.closed(&closed)),
            Procedure::Lock => run::<Lock>(arguments, |wanted| sessions.lock(&wanted)),
            Procedure::Unlock => run::<Unlock>(arguments, |held| sessions.unlock(&held)),
            Procedure::TestLock => run::<TestLock>(arguments, |wanted| sessions.test_lock(&wanted)),
            _ => Answer::Rejected(AcceptStatus::ProcedureUnavailable),
        }
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
            Procedure::Setattr => {
                run::<Setattr>(arguments, |set| names.setattr(caller, set.file, &set.changes))
            }
            Procedure::Create => run::<Create>(arguments, |new| {
                let name = new.name.as_bytes();
                names.create(caller, new.directory, name, new.mode, new.exclusive)
            }),
            Procedure::Mkdir => run::<Mkdir>(arguments, |new| {
                names.mkdir(caller, new.directory, new.name.as_bytes(), new.mode)
            }),
            Procedure::Symlink => run::<Symlink>(arguments, |new| {
                names.symlink(caller, new.directory, new.name.as_bytes(), &new.target)
            }),
            Procedure::Unlink => run::<Unlink>(arguments, |old| {
                names.unlink(caller, old.directory, old.name.as_bytes())
            }),
            Procedure::Rmdir => run::<Rmdir>(arguments, |old| {
                names.rmdir(caller, old.directory, old.name.as_bytes())
            }),
            Procedure::Rename => run::<Rename>(arguments, |rename| {
                let from = (rename.from_directory, rename.from_name.as_bytes());
                let to = (rename.to_directory, rename.to_name.as_bytes());
                names.rename(caller, from, to, rename.flags)
            }),
            Procedure::Link => run::<Link>(arguments, |link| {
                names.link(caller, link.file, link.directory, link.name.as_bytes())
            }),
            Procedure::Readdir => run::<Readdir>(arguments, |read| {
                names.readdir(caller, read.directory, read.cookie, read.max_entries)
            }),
            Procedure::Space => run::<Space>(arguments, |name| self.volumes.named(&name)?.space()),
            Procedure::Mint => run::<Mint>(arguments, |asked| self.mint(&names, caller, &asked)),
            Procedure::Volumes => run::<ListVolumes>(arguments, |()| Ok(self.list_volumes())),
            Procedure::Volumeparts => {
                run::<VolumeParts>(arguments, |name| self.volumes.parts(&name))
            }
            Procedure::Revoke => run::<Revoke>(arguments, |file| names.revoke(caller, file)),
            Procedure::Status => run::<StatusOperation>(arguments, |()| Ok(self.status())),
            _ => on_more(&names, procedure, caller, arguments),
        }
    }

    fn volume(&self, caller: &Caller, name: &Name) -> Outcome<Volume> {
        let (volume, names) = self.volumes.served(name)?;
        Ok(Volume {
            cell: self.facts.cell,
            name: volume.name().clone(),
            root: names.getattr(caller, names.root())?,
            drives: volume.drives().to_vec(),
            protection: self.facts.protection,
        })
    }

    fn list_volumes(&self) -> VolumeList {
        VolumeList { volumes: self.volumes.summaries() }
    }

    /// A capability to hand on, and where it is good for something.
    fn mint(&self, names: &Namespace, caller: &Caller, asked: &MintArguments) -> Outcome<Minted> {
        let drive = asked.file.drive;
        let address = self.facts.drives.iter().find(|known| known.drive == drive);
        let address = address.ok_or(ManagerStatus::Stale)?.address.clone();
        let capability = names.mint(caller, asked)?;
        let longest_lifetime = names.longest_lifetime_ns();
        Ok(Minted { capability, drive, address, longest_lifetime })
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
                let reachable = control.is_some();
                DriveStatus { drive: drive.drive, address: drive.address, reachable, control }
            });
            told.collect()
        });
        let status = CellStatus {
            cell: self.facts.cell,
            volume: self.volumes.first_name(),
            started: self.facts.started,
            drives,
            file_data_bytes: Namespace::FILE_DATA_BYTES,
            client_bytes_received: self.counters.received_bytes.load(Ordering::Relaxed),
            client_bytes_sent: self.counters.sent_bytes.load(Ordering::Relaxed),
            requests: self.counters.requests.load(Ordering::Relaxed),
        };
        fit(status)
    }
}

/// Special files, extended attributes and access times. What is left is not the name space's.
fn on_more(names: &Namespace, procedure: Procedure, caller: &Caller, arguments: &[u8]) -> Reply {
    match procedure {
        Procedure::Mknod => run::<Mknod>(arguments, |new| {
            let node = Node { file_type: new.file_type, mode: new.mode, device: new.device };
            names.mknod(caller, new.directory, new.name.as_bytes(), node)
        }),
        Procedure::Getxattr => run::<Getxattr>(arguments, |asked| {
            let value = names.getxattr(caller, asked.file, asked.name.as_bytes())?;
            Ok(XattrValue { value })
        }),
        Procedure::Setxattr => run::<Setxattr>(arguments, |set| {
            names.setxattr(caller, set.file, set.name.as_bytes(), &set.value, set.flags)
        }),
        Procedure::Removexattr => run::<Removexattr>(arguments, |old| {
            names.removexattr(caller, old.file, old.name.as_bytes())
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

/// Leaves the lists of partitions out where the answer would not fit a record's head.
fn fit(mut status: CellStatus) -> CellStatus {
    if to_bytes(&status).len() > MAX_HEAD_BYTES - 1024 {
        let controls = status.drives.iter_mut().filter_map(|drive| drive.control.as_mut());
        controls.for_each(|control| control.partitions.clear());
    }
    status
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
    type Payload = NoPayload;
    type Segment = Vec<u8>;

    fn receive(&self, _call: &Arriving<'_>) -> Receive<NoPayload> {
        Receive::Whole
    }

    fn attempt(&self, call: Call<'_, NoPayload>) -> Attempt<NoPayload, Vec<u8>> {
        match procedure_of(call.head) {
            Ok(Procedure::Null) | Err(_) => Attempt::Answered(self.execute(call)),
            // Whatever needs a drive may have to wait for it.
            Ok(_) => Attempt::Waits(Waits::Alone, call.payload),
        }
    }

    fn execute(&self, call: Call<'_, NoPayload>) -> Reply {
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        let credentials = call.head.credential.body.len() + call.head.verifier.body.len();
        let received = CALL_FRAME_BYTES + (credentials + call.arguments.len()) as u64;
        self.counters.received_bytes.fetch_add(received, Ordering::Relaxed);
        let answer = self.answer(call.head, call.arguments, call.peer);
        let sent = match &answer {
            Answer::Results { results, .. } => results.len() as u64,
            Answer::Rejected(_) | Answer::Denied(_) => 0,
        };
        self.counters.sent_bytes.fetch_add(REPLY_FRAME_BYTES + sent, Ordering::Relaxed);
        answer
    }
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
fn refused(status: ManagerStatus) -> Reply {
    let mut out = Encoder::new();
    encode_result::<(), ManagerStatus>(&Err(status), &mut out);
    results(out.into_bytes())
}

fn results(results: Vec<u8>) -> Reply {
    Answer::Results { verifier: ReplyVerifier::default(), results, data: Vec::new() }
}
