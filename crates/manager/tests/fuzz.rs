//! Fuzzing of the manager's procedures, without its socket but with real drives behind theirs: any
//! arguments, from anybody. How: `crates/protocol/tests/fuzzing`.
//!
//! An input is a procedure and a peer (a word each), the credential, and the arguments. Whatever they
//! are, the answer comes soon, has one encoding, and gives nobody what is not his; and the volume is
//! whole when a few thousand of them have been answered.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

#[path = "../../protocol/tests/fuzzing/mod.rs"]
mod fuzzing;
#[path = "support/guard.rs"]
mod guard;
#[path = "support/cell.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod setup;
mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nasd_manager::acl::Acl;
use nasd_manager::keys::{KeyKeeper, WorkingKeys};
use nasd_manager::membership::{Enrolled, EnrolmentError, Membership, MembershipError};
use nasd_manager::objects::remote::RemoteDrives;
use nasd_manager::xattr::{ACCESS_ACL, AFS_ACL, DEFAULT_ACL};
use nasd_manager::{ForwardedData, Lent, ManagerService};
use nasd_protocol::manager::{
    Accessed, AccessedArguments, Attach, AttachArguments, Change, Closed, ClosedArguments, Commit,
    Create, CreateFileArguments, Detach, DetachArguments, Device, Enroll, EnrollArguments, Events,
    EventsArguments, FileAccess, FileHandle, FileType, ForwardAppend, ForwardAppendArguments,
    ForwardFlush, ForwardGetattr, ForwardPunch, ForwardPunchArguments, ForwardRead,
    ForwardReadArguments, ForwardSeek, ForwardSeekArguments, ForwardWrite, ForwardWriteArguments,
    Getattr, Getcap, GetcapArguments, Getcaps, GetcapsArguments, Getwcap, GetwcapArguments,
    Getxattr, HeldLock, HoldVolume, HoldVolumeArguments, Lease, LeaseArguments, Link,
    LinkArguments, Listxattr, Lock, LockArguments, LockKind, LockMode, Lookup, LookupArguments,
    ManagerStatus, Member, MemberArguments, Mint, MintArguments, Mkdir, MkdirArguments, Mkmount,
    MkmountArguments, Mknod, MknodArguments, MovePart, MovePartArguments, Name, NewMode, Numbered,
    Operation, PROGRAM, Procedure, Readdir, ReaddirArguments, Readdirplus, ReleaseVolume,
    ReleaseVolumeArguments, Reload, ReloadArguments, ReloadVolumes, Removexattr, Rename,
    RenameArguments, RenameFlags, Renew, RenewArguments, Repair, RepairAction, RepairArguments,
    Request, Returncap, ReturncapArguments, Revoke, Rmdir, RmdirArguments, Rotate, RotateArguments,
    SetFileArguments, SetFileAttributes, Setattr, Setxattr, SetxattrArguments, Space,
    StatisticsOperation, StatusOperation, Symlink, SymlinkArguments, TestLock, Tmpfile,
    TmpfileArguments, Unlink, UnlinkArguments, Unlock, UnlockArguments, VERSION, VolumeOperation,
    VolumeParts, Volumes, XattrArguments, XattrFlags,
};
use nasd_protocol::{decode_result, encode_result};
use nasd_rpc::{AUTH_SYS, AuthSys, CallHead, OpaqueAuth};
use nasd_transport::{
    AcceptStatus, Answer, Arriving, Attempt, Call, Certified, Identity, Payload, Peer, Presence,
    Receive, Service, Standing,
};
use nasd_types::{
    AppendToken, DriveId, ObjectId, PartitionId, Personality, Rights, SeekTarget, Timestamp,
};
use nasd_xdr::{Decoder, Encoder, XdrEncode, from_bytes, to_bytes};

use guard::Guard;
use setup::{Keyring, TestDrive};
use support::checker::check_tree;
use support::{root, user, walk};

/// After so many inputs the volume is checked, and another one begun: so it is neither full nor much
/// altered for most of them.
const GENERATION: u32 = 4000;

/// Every drive is there, so that no answer has anything to wait for.
const SOON: Duration = Duration::from_secs(10);

const SECRET: &[u8] = b"a token's secret";
const USER: u32 = 1000;

/// Who may call, by the word of an input: the first of them may do something.
const HOST: u32 = 0;
const SOMEBODY: u32 = 1;
const ADMINISTRATOR: u32 = 2;
const PLAIN: u32 = 3;
const ANONYMOUS: u32 = 4;
const MEMBERS: [(&str, &str); 4] =
    [("host:a", "01"), ("user:1000", "02"), ("admin:owner", "03"), ("user:0", "04")];

fn identity(number: u32) -> Identity {
    let certified = |name: &str, serial: &str, expires| {
        let (name, serial) = (name.parse().unwrap(), serial.to_owned());
        Identity::Certified(Certified { name, serial, expires })
    };
    let member = |at: usize| certified(MEMBERS[at].0, MEMBERS[at].1, u64::MAX);
    match number % 10 {
        HOST => member(0),
        SOMEBODY => member(1),
        ADMINISTRATOR => member(2),
        PLAIN => Identity::Plain,
        ANONYMOUS => Identity::Anonymous,
        5 => member(3),
        // Removed; another's serial number; ended, as whoever it was of.
        6 => certified("host:a", "09", u64::MAX),
        7 => certified("admin:owner", "01", u64::MAX),
        8 => certified("host:a", "01", 1_000_000_000),
        _ => certified("admin:owner", "03", 1_000_000_000),
    }
}

/// Whether the ledger has him, and his certificate has not ended.
fn is_member(number: u32) -> bool {
    matches!(number % 10, HOST | SOMEBODY | ADMINISTRATOR | PLAIN | 5)
}

/// The ledger, and the token of somebody who may join again and again.
#[derive(Debug)]
struct Ledger;

impl Membership for Ledger {
    fn has(&self, serial: &str, identity: &str) -> bool {
        MEMBERS.contains(&(identity, serial))
    }

    fn reload(&self) -> Result<(), MembershipError> {
        Ok(())
    }

    fn enrol(&self, secret: &[u8], _: &[u8]) -> Result<Enrolled, EnrolmentError> {
        match secret == SECRET {
            true => Ok(enrolled()),
            false => Err(EnrolmentError::Refused("no such token".to_owned())),
        }
    }

    fn renew(&self, serial: &str, _: &[u8]) -> Result<Enrolled, EnrolmentError> {
        assert!(MEMBERS.iter().any(|(_, known)| *known == serial), "{serial} is no member's");
        Ok(enrolled())
    }
}

fn enrolled() -> Enrolled {
    let text = |text: &str| text.to_owned();
    Enrolled {
        member: text("host"),
        certificate: text("certificate"),
        authority: text("authority"),
        cell: text("cell"),
    }
}

/// The files that the samples are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Files {
    root: FileHandle,
    open: FileHandle,
    file: FileHandle,
    /// Root's alone.
    closed: FileHandle,
}

/// A manager without a socket, over two drives.
struct Bare {
    service: ManagerService,
    drives: Vec<TestDrive>,
    config: nasd_manager::ManagerConfig,
    ring: Arc<Keyring>,
    files: Files,
    guard: Guard,
    standing: Standing,
}

impl Bare {
    fn new(personality: Personality) -> Bare {
        let (drives, mut config) = setup::drives_and_config(2);
        let ring = Arc::new(Keyring::default());
        let kept = config.drives.iter().map(|drive| (drive.id, drive.keys.clone()));
        ring.0.lock().unwrap().extend(kept);
        config.keeper = Some(Arc::clone(&ring) as Arc<dyn KeyKeeper>);
        config.members = Some(Arc::new(Ledger));
        config.root.mode = 0o777;
        config.personality = personality;
        // Whoever waits for events is answered soon.
        config.sessions.lease = Duration::from_millis(30);
        let service = ManagerService::open(&config).unwrap();
        // From then on there are new locks.
        std::thread::sleep(config.sessions.lease);
        let files = furnish(&service);
        let guard = Guard::new(Arc::clone(service.namespace()), files.closed);
        Bare { service, drives, config, ring, files, guard, standing: Standing::of_no_connection() }
    }

    /// Serves an input as the transport would; the number of its outcome.
    fn serve(&mut self, input: &[u8]) -> u64 {
        let mut decoder = Decoder::new(input);
        let (Ok(procedure), Ok(peer)) = (decoder.u32(), decoder.u32()) else { return 0 };
        let Ok(credential) = OpaqueAuth::decode(&mut decoder) else { return 1 };
        let Some(instead) = self.instead(procedure, &input[decoder.position()..]) else {
            return 4 << 48;
        };
        let arguments = instead.as_deref().unwrap_or(&input[decoder.position()..]);
        let verifier = OpaqueAuth::NONE;
        let head = CallHead {
            xid: 1,
            program: PROGRAM,
            version: VERSION,
            procedure,
            credential,
            verifier,
        };
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let from = Peer { address, identity: identity(peer) };
        let began = Instant::now();
        let Some((arguments, payload)) = received(&self.service, &head, arguments, &from) else {
            return 3 << 48;
        };
        let (standing, presence) = (&self.standing, Presence::ALWAYS);
        let call =
            |payload| Call { head: &head, arguments, payload, peer: &from, standing, presence };
        let answer = match self.service.attempt(call(payload)) {
            Attempt::Answered(answer) => answer,
            Attempt::Waits(_, payload) => self.service.execute(call(payload)),
        };
        assert!(began.elapsed() < SOON, "the answer took {:?}", began.elapsed());
        self.judge(&head, peer, arguments, &from.identity, &answer)
    }

    /// What is asked in place of a call that the others could not be told apart from after it. `None` where nothing is.
    fn instead(&self, procedure: u32, arguments: &[u8]) -> Option<Option<Vec<u8>>> {
        match Procedure::try_from(procedure) {
            Ok(Procedure::Holdvolume) => self.held(arguments),
            Ok(Procedure::Repair) => Some(repaired(arguments)),
            _ => Some(None),
        }
    }

    /// Calls that come after one that holds the volume would have to wait, and it would wait for stores that nobody ends.
    fn held(&self, arguments: &[u8]) -> Option<Option<Vec<u8>>> {
        let Ok(asked) = from_bytes::<HoldVolumeArguments>(arguments) else { return Some(None) };
        let most_ns = asked.most_ns.min(1_000_000);
        let brief = to_bytes(&HoldVolumeArguments { most_ns, ..asked });
        (self.config.personality == Personality::Nfs).then_some(Some(brief))
    }

    /// Whether that may be the answer; its number.
    fn judge(
        &mut self,
        head: &CallHead<'_>,
        peer: u32,
        arguments: &[u8],
        identity: &Identity,
        answer: &Answer<ForwardedData>,
    ) -> u64 {
        // All procedures that there are not have the same outcome: else they would be most of the samples.
        let known = Procedure::try_from(head.procedure).map_or(255, u32::from);
        let about = u64::from(known) << 40 | u64::from(peer % 10) << 32;
        let results = match answer {
            Answer::Results { results, data, .. } => {
                let bytes: usize = data.iter().map(|part| part.as_ref().len()).sum();
                assert!(
                    bytes == 0 || Procedure::try_from(head.procedure) == Ok(Procedure::ForwardRead)
                );
                assert!(bytes == 0 || results.ends_with(&(bytes as u32).to_be_bytes()));
                results
            }
            Answer::Rejected(status) => {
                let known = Procedure::try_from(head.procedure);
                let sense = known.is_ok_and(|known| (Form::of(known).makes_sense)(arguments));
                let expected = known
                    .map_or(AcceptStatus::ProcedureUnavailable, |_| AcceptStatus::GarbageArguments);
                assert!(*status == expected && !sense, "{status:?} for {:?}", head.procedure);
                return 1 << 48 | about;
            }
            Answer::Denied(_) => return 2 << 48 | about,
        };
        let procedure = Procedure::try_from(head.procedure).unwrap();
        let status = (Form::of(procedure).told)(results);
        if status.is_ok() {
            assert_allowed(procedure, peer, arguments, identity);
        }
        self.guard.look(procedure, &head.credential, identity, arguments, results);
        about | status.map_or_else(|status| u64::from(u32::from(status)), |()| 0)
    }

    /// It serves; and what is on the drives is a tree, by whatever key was the last.
    fn finish(mut self) {
        let input = sample(Procedure::Getattr, HOST, &self.files.root);
        assert!(is_done(self.serve(&input)), "the root is served");
        self.service.namespace().keep_house();
        let (config, kept) = (&self.config, self.ring.0.lock().unwrap().clone());
        let keys = Arc::new(WorkingKeys::new(kept, None));
        let report = check_tree(&RemoteDrives::new(config, keys));
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        assert!(report.tree.len() > 1, "a tree");
        drop(self.service);
        drop(self.drives);
    }
}

/// How many names a file has, and where a directory is, is what whoever repairs says who has looked at all of them: nobody has here.
fn repaired(arguments: &[u8]) -> Option<Vec<u8>> {
    let asked = from_bytes::<RepairArguments>(arguments).ok()?;
    let is_told = matches!(asked.action, RepairAction::SetLinks | RepairAction::SetParent);
    let examined = RepairArguments { action: RepairAction::ExamineOrphan, ..asked };
    is_told.then(|| to_bytes(&examined))
}

/// The arguments without bulk data, and the data where the service wants them, as the transport receives
/// them; `None` where the two contradict one another.
fn received<'a>(
    service: &ManagerService,
    head: &CallHead<'_>,
    arguments: &'a [u8],
    peer: &Peer,
) -> Option<(&'a [u8], Option<Lent>)> {
    let arriving = Arriving { head, arguments, complete: true, peer };
    match service.receive(&arriving) {
        Receive::Whole | Receive::More { .. } => Some((arguments, None)),
        Receive::Discard { head_bytes } => Some((&arguments[..head_bytes], None)),
        Receive::Data { head_bytes, mut payload } => {
            let (arguments, data) = arguments.split_at(head_bytes);
            let mut buffers = payload.buffers();
            let length = buffers[0].len();
            if data.len() != length.next_multiple_of(4) {
                return None;
            }
            buffers[0].copy_from_slice(&data[..length]);
            drop(buffers);
            Some((arguments, Some(payload)))
        }
    }
}

/// Whether the outcome is that of a call that did what it should.
fn is_done(outcome: u64) -> bool {
    outcome >> 48 == 0 && outcome as u32 == 0
}

/// What the samples need.
fn furnish(service: &ManagerService) -> Files {
    let names = service.namespace();
    let (root_handle, me) = (names.root(), user(USER));
    let make = |name: &str, mode| {
        names.create(&me, root_handle, name.as_bytes(), mode, true).unwrap().handle
    };
    let open = names.mkdir(&me, root_handle, b"open", 0o755).unwrap().handle;
    let file = make("file", 0o644);
    for name in ["old", "from", "to"] {
        make(name, 0o600);
    }
    names.mkdir(&me, root_handle, b"empty", 0o755).unwrap();
    let closed = names.create(&root(), root_handle, b"closed", 0o600, true).unwrap().handle;
    assert_eq!(walk(names, "/closed").unwrap().handle, closed);
    Files { root: root_handle, open, file, closed }
}

/// How a procedure's arguments and results look.
struct Form {
    makes_sense: fn(&[u8]) -> bool,
    told: fn(&[u8]) -> Result<(), ManagerStatus>,
}

impl Form {
    fn of_operation<Op: Operation>() -> Form {
        Form {
            makes_sense: |arguments| from_bytes::<Op::Arguments>(arguments).is_ok(),
            told: |results| {
                let mut input = Decoder::new(results);
                let told = decode_result::<Op::Reply, ManagerStatus>(&mut input);
                let told = told.expect("an answer decodes");
                let mut again = Encoder::new();
                encode_result(&told, &mut again);
                assert_eq!(again.into_bytes(), results, "one encoding");
                told.map(drop)
            },
        }
    }

    fn of_change<Op: Change>() -> Form {
        let makes_sense =
            |arguments: &[u8]| from_bytes::<Numbered<Op::Arguments>>(arguments).is_ok();
        Form { makes_sense, ..Form::of_operation::<Op>() }
    }

    fn of(procedure: Procedure) -> Form {
        match procedure {
            // Whose results are empty, whatever its arguments are.
            Procedure::Null => Form {
                makes_sense: |_| true,
                told: |results| {
                    assert!(results.is_empty());
                    Ok(())
                },
            },
            Procedure::Volume => Form::of_operation::<VolumeOperation>(),
            Procedure::Lookup => Form::of_operation::<Lookup>(),
            Procedure::Getattr => Form::of_operation::<Getattr>(),
            Procedure::Setattr => Form::of_change::<Setattr>(),
            Procedure::Create => Form::of_change::<Create>(),
            Procedure::Mkdir => Form::of_change::<Mkdir>(),
            Procedure::Symlink => Form::of_change::<Symlink>(),
            Procedure::Mkmount => Form::of_change::<Mkmount>(),
            Procedure::Unlink => Form::of_change::<Unlink>(),
            Procedure::Rmdir => Form::of_change::<Rmdir>(),
            Procedure::Rename => Form::of_change::<Rename>(),
            Procedure::Link => Form::of_change::<Link>(),
            Procedure::Tmpfile => Form::of_change::<Tmpfile>(),
            Procedure::Readdir => Form::of_operation::<Readdir>(),
            Procedure::Readdirplus => Form::of_operation::<Readdirplus>(),
            Procedure::Space => Form::of_operation::<Space>(),
            Procedure::Status => Form::of_operation::<StatusOperation>(),
            Procedure::Rotate => Form::of_operation::<Rotate>(),
            Procedure::Mint => Form::of_operation::<Mint>(),
            Procedure::Revoke => Form::of_operation::<Revoke>(),
            Procedure::Reload => Form::of_operation::<Reload>(),
            Procedure::Enroll => Form::of_operation::<Enroll>(),
            Procedure::Renew => Form::of_operation::<Renew>(),
            Procedure::Member => Form::of_operation::<Member>(),
            Procedure::Commit => Form::of_operation::<Commit>(),
            Procedure::Volumes => Form::of_operation::<Volumes>(),
            Procedure::Volumeparts => Form::of_operation::<VolumeParts>(),
            Procedure::Reloadvolumes => Form::of_operation::<ReloadVolumes>(),
            Procedure::Repair => Form::of_operation::<Repair>(),
            Procedure::Attach => Form::of_operation::<Attach>(),
            Procedure::Detach => Form::of_operation::<Detach>(),
            Procedure::Events => Form::of_operation::<Events>(),
            Procedure::Closed => Form::of_operation::<Closed>(),
            Procedure::Lock => Form::of_operation::<Lock>(),
            Procedure::Unlock => Form::of_operation::<Unlock>(),
            Procedure::TestLock => Form::of_operation::<TestLock>(),
            Procedure::Lease => Form::of_operation::<Lease>(),
            Procedure::Getcap => Form::of_operation::<Getcap>(),
            Procedure::Getcaps => Form::of_operation::<Getcaps>(),
            Procedure::Getwcap => Form::of_operation::<Getwcap>(),
            Procedure::Returncap => Form::of_operation::<Returncap>(),
            Procedure::Holdvolume => Form::of_operation::<HoldVolume>(),
            Procedure::Releasevolume => Form::of_operation::<ReleaseVolume>(),
            Procedure::Movepart => Form::of_operation::<MovePart>(),
            Procedure::Mknod => Form::of_change::<Mknod>(),
            Procedure::ForwardRead => Form::of_operation::<ForwardRead>(),
            Procedure::ForwardWrite => Form::of_operation::<ForwardWrite>(),
            Procedure::ForwardFlush => Form::of_operation::<ForwardFlush>(),
            Procedure::ForwardGetattr => Form::of_operation::<ForwardGetattr>(),
            Procedure::ForwardPunch => Form::of_operation::<ForwardPunch>(),
            Procedure::ForwardSeek => Form::of_operation::<ForwardSeek>(),
            Procedure::ForwardAppend => Form::of_operation::<ForwardAppend>(),
            Procedure::Statistics => Form::of_operation::<StatisticsOperation>(),
            Procedure::Getxattr => Form::of_operation::<Getxattr>(),
            Procedure::Setxattr => Form::of_change::<Setxattr>(),
            Procedure::Listxattr => Form::of_operation::<Listxattr>(),
            Procedure::Removexattr => Form::of_change::<Removexattr>(),
            Procedure::Accessed => Form::of_operation::<Accessed>(),
        }
    }
}

/// Nobody has done what only others may do.
fn assert_allowed(procedure: Procedure, peer: u32, arguments: &[u8], identity: &Identity) {
    if procedure == Procedure::Enroll {
        let who: EnrollArguments = from_bytes(arguments).unwrap();
        assert!(who.secret == SECRET && *identity != Identity::Plain, "{identity} has joined");
        return;
    }
    assert!(is_member(peer), "{identity} is no member, and has had {procedure:?}");
    let is_administrator = peer % 10 == ADMINISTRATOR;
    match procedure {
        Procedure::Null => {}
        Procedure::Rotate
        | Procedure::Reload
        | Procedure::Reloadvolumes
        | Procedure::Holdvolume
        | Procedure::Releasevolume
        | Procedure::Movepart
        | Procedure::Repair
        | Procedure::Statistics => {
            assert!(is_administrator, "{identity} has had {procedure:?}");
        }
        Procedure::Renew => {
            assert!(*identity != Identity::Plain, "without a certificate");
            assert!(!is_administrator, "an administrator's certificate was renewed");
        }
        _ => assert!(!is_administrator, "an administrator has had {procedure:?}"),
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// An input: that procedure, asked for by that peer for the user who it is or speaks for.
fn sample(procedure: Procedure, peer: u32, arguments: &impl XdrEncode) -> Vec<u8> {
    let uid = if peer == SOMEBODY { USER } else { 0 };
    let user = AuthSys { uid, gid: uid, groups: vec![4], machine: "a".into(), stamp: 7 };
    let body = user.to_body();
    let credential = OpaqueAuth { flavor: AUTH_SYS, body: &body };
    let words = [u32::from(procedure), peer];
    let arguments = to_bytes(arguments);
    let request = if is_change(procedure) { to_bytes(&request_of(&arguments)) } else { Vec::new() };
    let head = [to_bytes(&words[0]), to_bytes(&words[1]), to_bytes(&credential)];
    [head.concat(), arguments, request].concat()
}

/// Another number for other arguments.
fn request_of(arguments: &[u8]) -> Request {
    let sum = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    Request { client: 7, number: arguments.iter().fold(0xcbf2_9ce4_8422_2325, sum), oldest: 1 }
}

fn is_change(procedure: Procedure) -> bool {
    matches!(
        procedure,
        Procedure::Setattr
            | Procedure::Create
            | Procedure::Mkdir
            | Procedure::Symlink
            | Procedure::Mkmount
            | Procedure::Unlink
            | Procedure::Rmdir
            | Procedure::Rename
            | Procedure::Link
            | Procedure::Tmpfile
            | Procedure::Mknod
            | Procedure::Setxattr
            | Procedure::Removexattr
    )
}

/// A session from its begin to its end.
fn sessions(file: FileHandle, directory: FileHandle) -> Vec<Vec<u8>> {
    let client = 7;
    let nameless = TmpfileArguments { directory, mode: NewMode { mode: 0o600, umask: 0 } };
    let (kind, owner, first, last) = (LockKind::Posix, 3, 10, 20);
    let lock = HeldLock { file, kind, owner, first, last, mode: LockMode::Exclusive, process: 9 };
    let wanted = LockArguments { client, lock, wait: true };
    let attach = AttachArguments { client, locks: vec![lock], open: vec![file] };
    let held = UnlockArguments { client, file, kind, owner, first, last, only_waiting: false };
    let seen = EventsArguments { client, seen: 1, open: vec![file], wait: true };
    vec![
        sample(Procedure::Attach, HOST, &attach),
        sample(Procedure::Tmpfile, HOST, &nameless),
        sample(Procedure::Lock, HOST, &wanted),
        sample(Procedure::TestLock, HOST, &wanted),
        sample(Procedure::Lease, HOST, &LeaseArguments { client, directory: file }),
        sample(Procedure::Events, HOST, &seen),
        sample(Procedure::Unlock, HOST, &held),
        sample(Procedure::Closed, HOST, &ClosedArguments { client, files: vec![file] }),
        sample(Procedure::Detach, HOST, &DetachArguments { client }),
    ]
}

fn attribute(file: FileHandle) -> XattrArguments {
    XattrArguments { file, name: name("user.a") }
}

fn set_attribute(file: FileHandle, bytes: usize) -> SetxattrArguments {
    let flags = XattrFlags::NONE;
    SetxattrArguments { file, name: name("user.a"), flags, value: vec![7; bytes] }
}

/// An access control list with a user and a group by name.
fn set_list(file: FileHandle, which: &[u8]) -> SetxattrArguments {
    let acl =
        Acl { users: vec![(5, 6)], groups: vec![(4, 5)], mask: Some(7), ..Acl::of_mode(0o750) };
    let (name, flags) = (Name::new(which).unwrap(), XattrFlags::NONE);
    SetxattrArguments { file, name, flags, value: acl.to_xattr() }
}

/// A list as AFS has it.
fn set_rules(directory: FileHandle) -> Vec<u8> {
    let (name, flags) = (Name::new(AFS_ACL).unwrap(), XattrFlags::NONE);
    let value = b"anyuser rl\nuser:5 rlidwka\n-group:4 w\n".to_vec();
    sample(
        Procedure::Setxattr,
        SOMEBODY,
        &SetxattrArguments { file: directory, name, flags, value },
    )
}

fn accessed(files: &[FileHandle]) -> AccessedArguments {
    let access = |file: &FileHandle| FileAccess { file: *file, time: Timestamp::MAX };
    AccessedArguments { root: files[0], accessed: files.iter().map(access).collect() }
}

fn all_changes() -> SetFileAttributes {
    SetFileAttributes {
        mode: Some(0o640),
        size: Some(5),
        access_time: Some(Timestamp(7)),
        modify_time_now: true,
        ..SetFileAttributes::default()
    }
}

/// Each procedure by somebody who may have it done: in this order all of it is done.
fn samples(files: &Files, personality: Personality) -> Vec<Vec<u8>> {
    let Files { root, open, file, closed } = *files;
    let mut samples = names(files);
    samples.extend(sessions(file, root));
    samples.extend(match personality {
        Personality::Nfs => [forwarded(file, closed), vec![held_for_a_moment()]].concat(),
        Personality::Afs => stores(file),
    });
    let changes = all_changes();
    let given = SetFileAttributes { uid: Some(USER), gid: Some(4), ..Default::default() };
    let mint = |sealed| MintArguments {
        file,
        rights: Rights::READ | Rights::GETATTR,
        region_offset: 0,
        region_length: 1 << 20,
        lifetime: 60_000_000_000,
        sealed,
    };
    let examine = RepairArguments {
        file,
        action: RepairAction::ExamineOrphan,
        directory: root,
        name: name(""),
        links: 0,
    };
    let (secret, public_key) = (SECRET.to_vec(), vec![4; 65]);
    let look = LookupArguments { directory: root, name: name("file") };
    let read = ReaddirArguments { directory: root, cookie: 0, max_entries: 100 };
    samples.extend([
        sample(Procedure::Null, HOST, &()),
        sample(Procedure::Volume, SOMEBODY, &name("home")),
        sample(Procedure::Lookup, SOMEBODY, &look),
        sample(Procedure::Getattr, PLAIN, &file),
        sample(Procedure::Getattr, SOMEBODY, &closed),
        sample(Procedure::Setattr, SOMEBODY, &SetFileArguments { file, changes }),
        sample(Procedure::Setattr, HOST, &SetFileArguments { file: open, changes: given }),
        sample(Procedure::Readdir, SOMEBODY, &read),
        sample(Procedure::Readdirplus, SOMEBODY, &read),
        sample(Procedure::Readdir, HOST, &ReaddirArguments { max_entries: 1, cookie: 1, ..read }),
        sample(Procedure::Setxattr, SOMEBODY, &set_attribute(file, 20)),
        sample(Procedure::Setxattr, SOMEBODY, &set_attribute(open, 2000)),
        sample(Procedure::Setxattr, SOMEBODY, &set_list(open, DEFAULT_ACL)),
        sample(Procedure::Setxattr, SOMEBODY, &set_list(file, ACCESS_ACL)),
        sample(Procedure::Getxattr, SOMEBODY, &attribute(file)),
        sample(Procedure::Getxattr, SOMEBODY, &attribute(open)),
        sample(Procedure::Listxattr, SOMEBODY, &file),
        sample(Procedure::Removexattr, SOMEBODY, &attribute(open)),
        sample(Procedure::Accessed, SOMEBODY, &accessed(&[file, closed])),
        sample(Procedure::Commit, SOMEBODY, &closed),
        sample(Procedure::Space, SOMEBODY, &name("")),
        sample(Procedure::Status, HOST, &()),
        sample(Procedure::Mint, SOMEBODY, &mint(false)),
        sample(Procedure::Mint, HOST, &mint(true)),
        sample(Procedure::Revoke, SOMEBODY, &file),
        sample(Procedure::Rotate, ADMINISTRATOR, &RotateArguments { at_once: false }),
        sample(Procedure::Reload, ADMINISTRATOR, &ReloadArguments { revoke: false }),
        sample(Procedure::Reload, ADMINISTRATOR, &ReloadArguments { revoke: true }),
        sample(Procedure::Volumes, HOST, &()),
        sample(Procedure::Volumeparts, SOMEBODY, &name("home")),
        sample(Procedure::Reloadvolumes, ADMINISTRATOR, &()),
        sample(Procedure::Repair, ADMINISTRATOR, &examine),
        sample(Procedure::Enroll, ANONYMOUS, &EnrollArguments { secret, public_key }),
        sample(Procedure::Renew, SOMEBODY, &RenewArguments { public_key: vec![4; 65] }),
        sample(Procedure::Member, HOST, &member()),
    ]);
    // From then on it says who may do something there.
    samples.extend((personality == Personality::Afs).then(|| set_rules(open)));
    samples
}

fn held_for_a_moment() -> Vec<u8> {
    let held = HoldVolumeArguments { volume: name("home"), most_ns: 1 };
    sample(Procedure::Holdvolume, ADMINISTRATOR, &held)
}

/// Of a volume that is not held.
fn moved_part() -> MovePartArguments {
    let (part, drive, partition) = (DriveId(1), DriveId(2), PartitionId(7));
    MovePartArguments { volume: name("home"), ticket: 1, part, drive, partition }
}

fn member() -> MemberArguments {
    MemberArguments { serial: name("01"), identity: name("host:a") }
}

/// A store, in a session of its own.
fn stores(file: FileHandle) -> Vec<Vec<u8>> {
    let client = 8;
    let attach = AttachArguments { client, ..AttachArguments::default() };
    let storing = GetwcapArguments { file, client, least_end: 1, best_end: 9, cut: None };
    vec![
        sample(Procedure::Attach, HOST, &attach),
        sample(Procedure::Getcap, HOST, &GetcapArguments { file, client, contents: true }),
        sample(
            Procedure::Getcaps,
            HOST,
            &GetcapsArguments { file, client, neighbours: vec![file; 2] },
        ),
        sample(Procedure::Getwcap, HOST, &storing),
        sample(Procedure::Returncap, HOST, &ReturncapArguments { file, client, version: 1 }),
        sample(Procedure::Detach, HOST, &DetachArguments { client }),
    ]
}

/// What is asked of drives by the way of the manager, and what it tells of that.
fn forwarded(file: FileHandle, closed: FileHandle) -> Vec<Vec<u8>> {
    let write = ForwardWriteArguments { file, offset: 3, durable: true, data_length: 5 };
    let written = [sample(Procedure::ForwardWrite, SOMEBODY, &write), b"12345\0\0\0".to_vec()];
    let append = |age_ns| {
        let append =
            ForwardAppendArguments { file, token: AppendToken([3; 16]), age_ns, data_length: 5 };
        [sample(Procedure::ForwardAppend, SOMEBODY, &append), b"12345\0\0\0".to_vec()].concat()
    };
    let read = ForwardReadArguments { file, offset: 0, length: 100 };
    let punch = ForwardPunchArguments { file, offset: 4, length: 2, durable: false };
    let seek = ForwardSeekArguments { file, offset: 0, target: SeekTarget::Data };
    vec![
        sample(Procedure::Statistics, ADMINISTRATOR, &()),
        written.concat(),
        append(0),
        append(1),
        sample(Procedure::ForwardRead, SOMEBODY, &read),
        sample(Procedure::ForwardFlush, SOMEBODY, &file),
        sample(Procedure::ForwardGetattr, SOMEBODY, &closed),
        sample(Procedure::ForwardPunch, SOMEBODY, &punch),
        sample(Procedure::ForwardSeek, SOMEBODY, &seek),
        sample(Procedure::ForwardRead, HOST, &ForwardReadArguments { file: closed, ..read }),
    ]
}

/// The procedures that change names.
fn names(files: &Files) -> Vec<Vec<u8>> {
    let Files { root, open, file, .. } = *files;
    let directory = root;
    let old = UnlinkArguments { directory, name: name("old"), open: None };
    let empty = RmdirArguments { directory, name: name("empty") };
    let rename = RenameArguments {
        from_directory: root,
        from_name: name("from"),
        to_directory: open,
        to_name: name("moved"),
        flags: RenameFlags::NO_REPLACE,
        open: None,
    };
    let exchange = RenameArguments {
        from_name: name("closed"),
        to_directory: root,
        to_name: name("open"),
        flags: RenameFlags::EXCHANGE,
        ..rename.clone()
    };
    let (mode, exclusive) = (NewMode { mode: 0o640, umask: 0o022 }, true);
    let new =
        CreateFileArguments { directory: open, name: name("new"), mode, exclusive, stores: true };
    let over =
        CreateFileArguments { exclusive: false, name: name("to"), directory: root, ..new.clone() };
    let made = MkdirArguments { directory: open, name: name("below"), mode };
    let fifo = MknodArguments {
        directory: open,
        name: name("fifo"),
        file_type: FileType::Fifo,
        mode,
        device: Device::NONE,
    };
    let disk = MknodArguments {
        name: name("disk"),
        file_type: FileType::BlockDevice,
        device: Device { major: 8, minor: 1 },
        ..fifo.clone()
    };
    let target = b"../file".to_vec();
    let symlink = SymlinkArguments { directory: open, name: name("symlink"), target };
    let mount = MkmountArguments { directory: open, name: name("mount"), volume: name("home") };
    let link = LinkArguments { file, directory: open, name: name("second") };
    vec![
        sample(Procedure::Create, SOMEBODY, &new),
        sample(Procedure::Create, HOST, &over),
        sample(Procedure::Mkdir, SOMEBODY, &made),
        sample(Procedure::Symlink, SOMEBODY, &symlink),
        sample(Procedure::Mkmount, SOMEBODY, &mount),
        sample(Procedure::Link, SOMEBODY, &link),
        sample(Procedure::Unlink, SOMEBODY, &old),
        sample(Procedure::Rmdir, HOST, &empty),
        sample(Procedure::Rename, SOMEBODY, &rename),
        sample(Procedure::Mknod, SOMEBODY, &fifo),
        sample(Procedure::Mknod, HOST, &disk),
        sample(Procedure::Rename, HOST, &exchange),
    ]
}

/// Samples that nobody may have done: what is the manager's own, and what is somebody else's.
fn refused(files: &Files) -> Vec<Vec<u8>> {
    let first = FileHandle { object: ObjectId::FIRST_OBJECT, ..files.root };
    let closed = files.closed;
    let mode = SetFileAttributes { mode: Some(0o666), ..SetFileAttributes::default() };
    let mint = MintArguments {
        file: closed,
        rights: Rights::READ,
        region_offset: 0,
        region_length: 1,
        lifetime: 1 << 40,
        sealed: false,
    };
    vec![
        set_rules(files.file),
        sample(Procedure::Getattr, HOST, &first),
        sample(Procedure::Setattr, SOMEBODY, &SetFileArguments { file: closed, changes: mode }),
        sample(Procedure::Mint, SOMEBODY, &mint),
        sample(Procedure::Revoke, SOMEBODY, &closed),
        sample(
            Procedure::ForwardRead,
            SOMEBODY,
            &ForwardReadArguments { file: closed, offset: 0, length: 1 },
        ),
        sample(Procedure::ForwardFlush, SOMEBODY, &closed),
        sample(Procedure::ForwardGetattr, HOST, &first),
        sample(Procedure::Statistics, HOST, &()),
        sample(
            Procedure::Holdvolume,
            HOST,
            &HoldVolumeArguments { volume: name("home"), most_ns: 1 },
        ),
        // Nobody knows the number.
        sample(
            Procedure::Releasevolume,
            ADMINISTRATOR,
            &ReleaseVolumeArguments { volume: name("home"), ticket: 1 },
        ),
        sample(Procedure::Movepart, ADMINISTRATOR, &moved_part()),
        sample(Procedure::Movepart, HOST, &moved_part()),
        sample(Procedure::Rotate, HOST, &RotateArguments { at_once: true }),
        sample(Procedure::Member, SOMEBODY, &member()),
        sample(Procedure::Renew, ANONYMOUS, &RenewArguments { public_key: vec![4; 65] }),
        sample(Procedure::Lookup, ADMINISTRATOR, &name("file")),
    ]
}

/// Otherwise only refusals are fuzzed.
#[test]
fn the_samples_are_done_and_the_others_refused() {
    let mut asked: Vec<u32> = Vec::new();
    for personality in Personality::ALL {
        let mut bare = Bare::new(personality);
        let files = bare.files;
        let (good, bad) = (samples(&files, personality), refused(&files));
        for sample in &bad {
            let outcome = bare.serve(sample);
            assert!(!is_done(outcome), "{sample:?} is done");
        }
        asked.extend(good.iter().map(|sample| {
            let outcome = bare.serve(sample);
            assert!(is_done(outcome), "{personality}: {outcome:#x} of {sample:?}");
            (outcome >> 40) as u32
        }));
        bare.finish();
    }
    // These need the number of a hold.
    let after_hold = [Procedure::Releasevolume, Procedure::Movepart];
    let all = Procedure::ALL.iter().filter(|each| !after_hold.contains(each));
    for procedure in all.map(|each| u32::from(*each)) {
        assert!(asked.contains(&procedure), "{procedure} has no sample");
    }
    assert!(Procedure::try_from(255).is_err(), "what stands for those that there are not");
}

/// Every procedure, from anybody.
fn fuzz_volume(personality: Personality) {
    let bare = Bare::new(personality);
    let files = bare.files;
    let mut inputs = 0;
    let all = [samples(&files, personality), refused(&files)].concat();
    let mut current = Some(bare);
    fuzzing::fuzz("manager", all, |input| {
        inputs += 1;
        if inputs % GENERATION == 0 {
            current.take().unwrap().finish();
            let fresh = current.insert(Bare::new(personality));
            assert_eq!(fresh.files, files, "the samples are about these");
        }
        current.as_mut().unwrap().serve(input)
    });
    current.unwrap().finish();
}

#[test]
fn every_procedure_from_anybody() {
    fuzz_volume(Personality::Nfs);
}

#[test]
fn every_procedure_of_a_volume_with_callbacks_from_anybody() {
    fuzz_volume(Personality::Afs);
}
