//! The desk over real TLS, in front of a real directory: what it does, and that it allows what the kernel would.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nasd_bulk_service::client::{BulkError, BulkFile, Opening};
use nasd_bulk_service::desk::{Desk, DeskClient, DeskError, DeskOptions, DeskTicket, NOBODY};
use nasd_bulk_service::directory::{DirectoryOptions, Surroundings};
use nasd_capability::SecretKey;
use nasd_client::Caller;
use nasd_protocol::Status;
use nasd_protocol::bulk_desk::{DeskStatus, Wanted};
use nasd_protocol::manager::FileType;
use nasd_transport::{ClientTls, PemFiles, Server, ServerOptions, ServerTls};
use nasd_types::{DriveId, Protection, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

const BOTH: Wanted = Wanted::READ.union(Wanted::WRITE);
const NEW: Wanted = BOTH.union(Wanted::CREATE);

/// A cell's authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// One end's files.
struct Files {
    authority: String,
    certificate: String,
    key: String,
}

impl Authority {
    fn new() -> Authority {
        let mut parameters = CertificateParams::new([]).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        parameters.distinguished_name.push(DnType::CommonName, "cell authority");
        Authority(CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap())
    }

    fn named(&self, name: &str) -> Files {
        let mut parameters = CertificateParams::new(["desk".to_owned()]).unwrap();
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        parameters.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.0).unwrap();
        Files { authority: self.0.pem(), certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

impl Files {
    fn pem(&self) -> PemFiles<'_> {
        PemFiles {
            authority: self.authority.as_bytes(),
            certificate: self.certificate.as_bytes(),
            key: self.key.as_bytes(),
        }
    }
}

/// A desk and its directory.
struct Rig {
    root: tempfile::TempDir,
    cell: Authority,
    server: Server,
    /// How far the server's clock is ahead, in seconds.
    ahead: Arc<AtomicU64>,
}

fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller {
    Caller { uid, gid, groups: groups.to_vec() }
}

fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::from_parts(since_epoch.as_secs(), since_epoch.subsec_nanos())
}

impl Rig {
    fn new(options: DeskOptions) -> Rig {
        Rig::with(options, DirectoryOptions::default(), true)
    }

    fn with(options: DeskOptions, directory: DirectoryOptions, has_tls: bool) -> Rig {
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        set_mode(root.path(), 0o755);
        let (cell, ahead) = (Authority::new(), Arc::default());
        let server = serve(root.path(), (options, directory), &ahead, has_tls.then_some(&cell));
        Rig { root, cell, server, ahead }
    }

    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn put(&self, name: &str, (uid, gid, mode): (u32, u32, u32), contents: &[u8]) {
        fs::write(self.path(name), contents).unwrap();
        chown(self.path(name), Some(uid), Some(gid)).unwrap();
        set_mode(&self.path(name), mode);
    }

    fn folder(&self, name: &str, (uid, gid, mode): (u32, u32, u32)) {
        fs::create_dir(self.path(name)).unwrap();
        chown(self.path(name), Some(uid), Some(gid)).unwrap();
        set_mode(&self.path(name), mode);
    }

    fn client(&self, name: &str, caller: &Caller) -> DeskClient {
        let tls = ClientTls::new(&self.cell.named(name).pem(), "desk").unwrap();
        let client = DeskClient::tls(self.address().to_string(), tls, caller);
        client.with_patience(Duration::from_secs(5))
    }

    /// Somebody at a host.
    fn host(&self, uid: u32, gid: u32) -> DeskClient {
        self.client("host:a", &caller(uid, gid, &[]))
    }
}

fn serve(
    root: &Path,
    (options, directory): (DeskOptions, DirectoryOptions),
    ahead: &Arc<AtomicU64>,
    cell: Option<&Authority>,
) -> Server {
    let ahead = Arc::clone(ahead);
    let clock = move || now().plus_ns(ahead.load(Ordering::Relaxed) * Timestamp::SECOND_NS);
    let surroundings = Surroundings {
        identity: DriveId(7),
        secret: SecretKey::new([3; 32]),
        clock: Box::new(clock),
        random: [1, 2, 3],
    };
    let desk = Desk::new(root, surroundings, directory, options).unwrap();
    let tls = cell.map(|cell| ServerTls::new(&cell.named("host:desk").pem()).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    Server::start(listener, tls, Arc::new(desk), ServerOptions::default()).unwrap()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn status<T>(outcome: Result<T, DeskError>) -> DeskStatus {
    match outcome {
        Err(DeskError::Answered { status, .. }) => status,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was done"),
    }
}

fn open(ticket: &DeskTicket) -> Result<BulkFile, BulkError> {
    BulkFile::open(ticket.opening(Protection::NONE))
}

fn failure<T>(outcome: Result<T, BulkError>) -> Status {
    match outcome {
        Err(BulkError::Refused { status, .. } | BulkError::Failed { status, .. }) => status,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was done"),
    }
}

fn owner_and_mode(path: &Path) -> (u32, u32, u32) {
    let told = fs::symlink_metadata(path).unwrap();
    (told.uid(), told.gid(), told.mode() & 0o7777)
}

#[test]
fn every_procedure_does_what_it_says() {
    let rig = Rig::new(DeskOptions::default());
    rig.folder("home", (1000, 100, 0o755));
    let desk = rig.host(1000, 100);
    desk.ping().unwrap();
    let made = desk.mkdir(b"home/new", 0o770).unwrap();
    assert_eq!((made.file_type, made.mode), (FileType::Directory, 0o770));
    assert_eq!(owner_and_mode(&rig.path("home/new")), (1000, 100, 0o770));

    let ticket = desk.ticket(b"home/new/file", NEW, 0o666, None).unwrap();
    assert_eq!(ticket.facts().size, 0);
    assert_eq!(owner_and_mode(&rig.path("home/new/file")), (1000, 100, 0o666), "no umask");
    let file = open(&ticket).unwrap();
    let contents: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    let mut padded = contents.clone();
    padded.resize(contents.len().next_multiple_of(4096), 0);
    file.write_at(&padded, 0).unwrap();
    file.set_size(contents.len() as u64).unwrap();
    file.sync().unwrap();
    let mut found = vec![0; padded.len()];
    assert_eq!(file.read_at(&mut found, 0).unwrap(), contents.len());
    assert!(found[..contents.len()] == contents);

    let facts = desk.look(b"home/new/file").unwrap();
    assert_eq!((facts.size, facts.uid, facts.mode), (300_000, 1000, 0o666));
    let time = Timestamp::from_parts(1_234_567_890, 987_654_321);
    assert_eq!(desk.set_time(b"home/new/file", time).unwrap().modify_time, time);
    assert_eq!(desk.set_mode(b"home/new/file", 0o640).unwrap().mode, 0o640);
    symlink("file", rig.path("home/new/link")).unwrap();
    let mut entries = desk.list_all(b"home/new").unwrap();
    entries.sort_by_key(|entry| entry.name.clone());
    let told: Vec<_> = entries
        .iter()
        .map(|entry| (entry.name.as_str().unwrap(), entry.file_type, entry.facts.unwrap().size))
        .collect();
    let expected = [("file", FileType::Regular, 300_000), ("link", FileType::Symlink, 4)];
    assert_eq!(told, expected);
    assert_eq!(entries[0].facts.unwrap().modify_time, time);
    assert_eq!(desk.look(b"home/new/link").unwrap().size, 300_000, "links are followed");

    desk.ticket(b"home/old", NEW | Wanted::EXCLUSIVE, 0o600, None).unwrap();
    let again = desk.ticket(b"home/old", NEW | Wanted::EXCLUSIVE, 0o600, None);
    assert_eq!(status(again), DeskStatus::Exists);
    desk.rename(b"home/new/file", b"home/old").unwrap();
    assert_eq!(desk.look(b"home/old").unwrap().size, 300_000);
    assert_eq!(status(desk.look(b"home/new/link")), DeskStatus::NotFound);
    assert_eq!(status(desk.remove(b"home/new")), DeskStatus::NotEmpty);
    desk.remove(b"home/new/link").unwrap();
    desk.remove(b"home/new").unwrap();
    let emptied = desk.ticket(b"home/old", BOTH | Wanted::TRUNCATE, 0, None).unwrap();
    assert_eq!((emptied.facts().size, desk.look(b"home/old").unwrap().size), (0, 0));
    desk.remove(b"home/old").unwrap();
    assert!(desk.list_all(b"home").unwrap().is_empty());
    assert_eq!(desk.look(b"").unwrap().file_type, FileType::Directory);
}

#[test]
fn requests_without_a_meaning_are_refused() {
    let rig = Rig::new(DeskOptions { trust_root: true, ..DeskOptions::default() });
    rig.folder("d", (0, 0, 0o755));
    rustix::fs::mknodat(
        rustix::fs::CWD,
        rig.path("pipe"),
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o666),
        0,
    )
    .unwrap();
    let desk = rig.host(0, 0);
    for path in [&b"/d"[..], b"d/", b"d//x", b"a\0b", b"/"] {
        assert_eq!(status(desk.look(path)), DeskStatus::Invalid);
    }
    assert!(matches!(desk.look(&[b'x'; 4097]), Err(DeskError::Path(_))));
    assert_eq!(status(desk.look(&[b'x'; 4096])), DeskStatus::NameTooLong);
    assert_eq!(status(desk.look(&[b'x'; 300])), DeskStatus::NameTooLong);
    let without = desk.ticket(b"d/x", Wanted::CREATE, 0o644, None);
    assert_eq!(status(without), DeskStatus::Invalid);
    assert_eq!(status(desk.ticket(b"d", Wanted::READ, 0, None)), DeskStatus::IsDirectory);
    assert_eq!(status(desk.ticket(b"pipe", Wanted::READ, 0, None)), DeskStatus::NotSupported);
    assert_eq!(status(desk.list(b"pipe", 0, 0)), DeskStatus::NotDirectory);
    assert_eq!(status(desk.list(b"d", u64::MAX, 0)), DeskStatus::Invalid);
    assert_eq!(status(desk.set_mode(b"d", 0o10000)), DeskStatus::Invalid);
    for path in [&b""[..], b".", b"d/.", b"d/.."] {
        assert_eq!(status(desk.remove(path)), DeskStatus::Invalid);
        assert_eq!(status(desk.rename(path, b"x")), DeskStatus::Invalid);
        assert_eq!(status(desk.mkdir(path, 0o755)), DeskStatus::Exists);
    }
}

#[test]
fn deep_paths_have_an_end() {
    let rig = Rig::new(DeskOptions::default());
    let deep = |levels: usize| vec!["d"; levels].join("/");
    fs::create_dir_all(rig.path(&deep(300))).unwrap();
    let desk = rig.host(1000, 100);
    desk.look(deep(250).as_bytes()).unwrap();
    assert_eq!(status(desk.look(deep(300).as_bytes())), DeskStatus::NameTooLong);
    // Up and down is not deep.
    desk.look(vec!["d/.."; 600].join("/").as_bytes()).unwrap();
}

#[test]
fn long_directories_come_in_pages() {
    let rig = Rig::new(DeskOptions::default());
    let expected: Vec<String> = (0..1500).map(|number| format!("{number:0100}")).collect();
    expected.iter().for_each(|name| fs::write(rig.path(name), b"").unwrap());
    let desk = rig.host(1000, 100);
    let mut names: Vec<String> = desk
        .list_all(b"")
        .unwrap()
        .iter()
        .map(|entry| entry.name.as_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, expected);
    let page = desk.list(b"", 0, 7).unwrap();
    assert_eq!((page.entries.len(), page.end), (7, false));
}

/// A tree in which permissions are tried, at some place.
fn build(at: &Path, folder_mode: u32, file_mode: u32) {
    if at.exists() {
        fs::remove_dir_all(at).unwrap();
    }
    let make = |name: &str, (uid, gid, mode): (u32, u32, u32), is_folder: bool| {
        let path = at.join(name);
        match is_folder {
            true => fs::create_dir(&path).unwrap(),
            false => fs::write(&path, b"contents").unwrap(),
        }
        chown(&path, Some(uid), Some(gid)).unwrap();
        set_mode(&path, mode);
    };
    make("", (0, 0, 0o755), true);
    make("d", (1003, 100, folder_mode), true);
    make("d/f", (1000, 100, file_mode), false);
    make("d/s", (1000, 100, 0o755), true);
    make("d/s/x", (1000, 100, 0o644), false);
    make("d/t", (1000, 100, 0o755), true);
    make("e", (1002, 102, 0o777), true);
    make("e/g", (1002, 102, 0o644), false);
}

/// What is tried.
#[derive(Clone, Copy, Debug)]
enum Try {
    Open(&'static str, Wanted),
    Mkdir(&'static str),
    Remove(&'static str, bool),
    Rename(&'static str, &'static str),
    Chmod(&'static str, u32),
    Settime(&'static str),
    List(&'static str),
    Look(&'static str),
}

const TRIES: &[Try] = &[
    Try::Look("d/f"),
    Try::Look("d/none"),
    Try::Look("d/f/x"),
    Try::Look("d/s/x"),
    Try::List("d"),
    Try::Open("d/f", Wanted::READ),
    Try::Open("d/f", Wanted::WRITE),
    Try::Open("d/f", BOTH),
    Try::Open("d/f", BOTH.union(Wanted::TRUNCATE)),
    Try::Open("d/s", Wanted::READ.union(Wanted::WRITE)),
    Try::Open("d/new", NEW),
    Try::Open("d/s/../new", NEW),
    Try::Open("d/new", NEW.union(Wanted::EXCLUSIVE)),
    Try::Open("d/f", NEW.union(Wanted::EXCLUSIVE)),
    Try::Mkdir("d/n"),
    Try::Mkdir("d/s"),
    Try::Remove("d/f", false),
    Try::Remove("d/t", true),
    Try::Remove("d/s", true),
    Try::Remove("d/none", false),
    Try::Rename("d/f", "d/h"),
    Try::Rename("d/f", "e/f"),
    Try::Rename("d/f", "e/g"),
    Try::Rename("e/g", "d/f"),
    Try::Rename("d/t", "d/u"),
    Try::Rename("d/t", "e/t"),
    Try::Rename("d/f", "d/t"),
    Try::Rename("d/t", "d/f"),
    Try::Rename("d/s", "d/s/x/y"),
    Try::Chmod("d/f", 0o2755),
    Try::Chmod("d", 0o700),
    Try::Settime("d/f"),
    Try::Settime("d"),
];

/// Tries it by system calls.
fn by_kernel(root: BorrowedFd<'_>, what: Try) -> Result<(), Errno> {
    use rustix::fs::{chmodat, mkdirat, openat, renameat, statat, unlinkat, utimensat};
    let mode = Mode::from_raw_mode(0o644);
    match what {
        Try::Open(path, wanted) => {
            let mut flags = match (wanted.contains(Wanted::READ), wanted.contains(Wanted::WRITE)) {
                (true, true) => OFlags::RDWR,
                (_, true) => OFlags::WRONLY,
                _ => OFlags::RDONLY,
            };
            flags.set(OFlags::CREATE, wanted.contains(Wanted::CREATE));
            flags.set(OFlags::EXCL, wanted.contains(Wanted::EXCLUSIVE));
            flags.set(OFlags::TRUNC, wanted.contains(Wanted::TRUNCATE));
            openat(root, path, flags, mode).map(drop)
        }
        Try::Mkdir(path) => mkdirat(root, path, Mode::from_raw_mode(0o755)),
        Try::Remove(path, is_folder) => {
            let flags = if is_folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            unlinkat(root, path, flags)
        }
        Try::Rename(from, to) => renameat(root, from, root, to),
        Try::Chmod(path, mode) => chmodat(root, path, Mode::from_raw_mode(mode), AtFlags::empty()),
        Try::Settime(path) => {
            let time = Timespec { tv_sec: 1000, tv_nsec: 0 };
            let times = Timestamps { last_access: time, last_modification: time };
            utimensat(root, path, &times, AtFlags::empty())
        }
        Try::List(path) => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            openat(root, path, flags, Mode::empty()).map(drop)
        }
        Try::Look(path) => statat(root, path, AtFlags::empty()).map(drop),
    }
}

/// Tries it at the desk, in a folder.
fn by_desk(desk: &DeskClient, folder: &str, what: Try) -> Result<(), DeskError> {
    let at = |path: &str| format!("{folder}/{path}").into_bytes();
    match what {
        Try::Open(path, wanted) => desk.ticket(&at(path), wanted, 0o644, None).map(drop),
        Try::Mkdir(path) => desk.mkdir(&at(path), 0o755).map(drop),
        Try::Remove(path, _) => desk.remove(&at(path)),
        Try::Rename(from, to) => desk.rename(&at(from), &at(to)),
        Try::Chmod(path, mode) => desk.set_mode(&at(path), mode).map(drop),
        Try::Settime(path) => desk.set_time(&at(path), Timestamp::from_parts(1000, 0)).map(drop),
        Try::List(path) => desk.list(&at(path), 0, 0).map(drop),
        Try::Look(path) => desk.look(&at(path)).map(drop),
    }
}

/// Runs something as somebody, in a thread of its own.
fn as_user<T: Send>(caller: &Caller, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let run = scope.spawn(|| {
            let groups: Vec<Gid> = caller.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
            set_thread_groups(&groups).unwrap();
            let (gid, uid) = (Gid::from_raw(caller.gid), Uid::from_raw(caller.uid));
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            work()
        });
        run.join().unwrap()
    })
}

/// All names below a folder, with owners and modes.
fn listing(at: &Path) -> Vec<(String, (u32, u32, u32))> {
    let (mut all, mut left) = (Vec::new(), vec![at.to_owned()]);
    while let Some(path) = left.pop() {
        let name = path.strip_prefix(at).unwrap().to_str().unwrap().to_owned();
        all.push((name, owner_and_mode(&path)));
        if path.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    all.sort();
    all
}

/// Tries everything in a tree by both; tells how often it was allowed, and how often not.
fn compare(rig: &Rig, (desk, caller): (&DeskClient, &Caller), modes: (u32, u32)) -> [usize; 2] {
    let kernel_folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (here, there) = (kernel_folder.path().join("k"), rig.path("k"));
    let mut counts = [0; 2];
    let mut is_fresh = false;
    for what in TRIES {
        if !is_fresh {
            build(&here, modes.0, modes.1);
            build(&there, modes.0, modes.1);
        }
        let root = fs::File::open(&here).unwrap();
        let expected = as_user(caller, || by_kernel(root.as_fd(), *what));
        let found = by_desk(desk, "k", *what);
        let found = found.map_err(|error| error.status().expect("an answer").errno());
        let expected = expected.map_err(Errno::raw_os_error);
        let case = format!("{what:?} by {caller:?} with modes {:o} {:o}", modes.0, modes.1);
        assert_eq!(found, expected, "{case}");
        counts[usize::from(found.is_err())] += 1;
        is_fresh = found.is_err();
        if rig.acts() {
            assert_eq!(listing(&there), listing(&here), "{case}");
        }
    }
    counts
}

impl Rig {
    /// Whether what it makes is the caller's.
    fn acts(&self) -> bool {
        !self.path("as the server").exists()
    }
}

const FOLDER_MODES: &[u32] =
    &[0o755, 0o700, 0o770, 0o1777, 0o1775, 0o2775, 0o711, 0o733, 0o701, 0o070, 0o707];
const FILE_MODES: &[u32] = &[0o600, 0o060, 0o006, 0o460, 0o046, 0o000];

fn compare_all(rig: &Rig) {
    let people = [
        caller(1000, 100, &[]),
        caller(1001, 100, &[]),
        caller(1002, 102, &[]),
        caller(1002, 102, &[55, 100]),
        caller(1003, 103, &[]),
        caller(NOBODY, NOBODY, &[]),
    ];
    let desk = rig.host(0, 0);
    let mut counts = [0; 2];
    let mut add = |more: [usize; 2]| (0..2).for_each(|at| counts[at] += more[at]);
    for person in &people {
        let desk = desk.on_behalf_of(person);
        FOLDER_MODES.iter().for_each(|mode| add(compare(rig, (&desk, person), (*mode, 0o664))));
        FILE_MODES.iter().for_each(|mode| add(compare(rig, (&desk, person), (0o777, *mode))));
    }
    // Root is nobody, and root's group nobody's.
    let nobody = caller(NOBODY, NOBODY, &[]);
    for mode in [0o755, 0o707, 0o700] {
        add(compare(rig, (&desk, &nobody), (mode, 0o006)));
    }
    let of_roots = caller(1002, 0, &[0]);
    let squashed = caller(1002, NOBODY, &[NOBODY]);
    add(compare(rig, (&desk.on_behalf_of(&of_roots), &squashed), (0o775, 0o664)));
    assert!(counts[0] > 400 && counts[1] > 400, "{counts:?}");
}

#[test]
fn what_the_kernel_allows_is_allowed_and_nothing_else() {
    compare_all(&Rig::new(DeskOptions::default()));
}

#[test]
fn that_does_not_rest_on_acting_as_callers() {
    let rig = Rig::new(DeskOptions { act_as_callers: false, ..DeskOptions::default() });
    rig.put("as the server", (0, 0, 0o644), b"");
    compare_all(&rig);
}

#[test]
fn root_is_root_where_it_is_trusted() {
    let rig = Rig::new(DeskOptions { trust_root: true, ..DeskOptions::default() });
    let root = caller(0, 0, &[]);
    let desk = rig.host(0, 0);
    for mode in [0o755, 0o700, 0o000, 0o1777, 0o2770] {
        compare(&rig, (&desk, &root), (mode, 0o000));
    }
}

#[test]
fn access_control_lists_count() {
    let rig = Rig::new(DeskOptions::default());
    let none = u32::MAX;
    let list = |entries: &[(u16, u16, u32)]| {
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (kind, bits, id) in entries {
            bytes.extend(kind.to_le_bytes());
            bytes.extend(bits.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    };
    let lists = [
        // The group of the mode is the mask: the owning group has nothing.
        list(&[(1, 6, none), (2, 6, 1001), (4, 0, none), (16, 6, none), (32, 0, none)]),
        list(&[(1, 6, none), (2, 0, 1002), (4, 6, none), (16, 7, none), (32, 6, none)]),
        list(&[(1, 6, none), (4, 4, none), (8, 6, 55), (16, 4, none), (32, 6, none)]),
        list(&[(1, 6, none), (2, 7, 1001), (4, 7, none), (16, 0, none), (32, 4, none)]),
    ];
    let people = [
        caller(1000, 100, &[]),
        caller(1001, 101, &[]),
        caller(1002, 100, &[]),
        caller(1004, 104, &[55]),
        caller(1005, 105, &[]),
    ];
    let desk = rig.host(0, 0);
    let folder = fs::File::open(rig.root.path()).unwrap();
    let mut counts = [0; 2];
    for list in &lists {
        rig.put("f", (1000, 100, 0o600), b"");
        let set = rustix::fs::XattrFlags::empty();
        let path = rig.path("f");
        match rustix::fs::setxattr(&path, "system.posix_acl_access", list, set) {
            Err(Errno::OPNOTSUPP) => return eprintln!("this file system has no such lists"),
            set => set.unwrap(),
        }
        for person in &people {
            let desk = desk.on_behalf_of(person);
            for wanted in [Wanted::READ, Wanted::WRITE, BOTH] {
                let what = Try::Open("f", wanted);
                let expected = as_user(person, || by_kernel(folder.as_fd(), what));
                let found = by_desk(&desk, ".", what).map_err(|error| error.status().unwrap());
                assert_eq!(found.is_ok(), expected.is_ok(), "{wanted:?} {person:?} {list:?}");
                counts[usize::from(found.is_ok())] += 1;
            }
        }
    }
    assert!(counts[0] > 10 && counts[1] > 10, "{counts:?}");
}

#[test]
fn nothing_leads_out_of_the_directory() {
    let rig = Rig::new(DeskOptions { trust_root: true, ..DeskOptions::default() });
    let outside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write(outside.path().join("secret"), b"secret").unwrap();
    rig.folder("d", (0, 0, 0o755));
    rig.put("inside", (0, 0, 0o644), b"inside");
    symlink(outside.path(), rig.path("absolute")).unwrap();
    symlink("../..", rig.path("d/up")).unwrap();
    symlink("/proc/self/root", rig.path("magic")).unwrap();
    symlink("../inside", rig.path("d/good")).unwrap();
    symlink("loop", rig.path("loop")).unwrap();
    let name = outside.path().file_name().unwrap().to_str().unwrap();
    let desk = rig.host(0, 0);
    let beside = [
        format!("../{name}/secret"),
        format!("d/../../{name}/secret"),
        format!("d/up/{name}/secret"),
        "absolute/secret".to_owned(),
        "magic/etc/passwd".to_owned(),
        "..".to_owned(),
    ];
    for path in &beside {
        let path = path.as_bytes();
        let escaped = DeskStatus::CrossDevice;
        assert_eq!(status(desk.look(path)), escaped, "{path:?}");
        assert_eq!(status(desk.ticket(path, Wanted::READ, 0, None)), escaped);
        assert_eq!(status(desk.ticket(path, NEW, 0o644, None)), escaped);
        assert_eq!(status(desk.list(path, 0, 0)), escaped);
        assert_eq!(status(desk.set_mode(path, 0o777)), escaped);
        assert_eq!(status(desk.rename(b"inside", &[path, b"/x"].concat())), escaped);
        assert_eq!(status(desk.mkdir(&[path, b"/x"].concat(), 0o755)), escaped);
    }
    assert_eq!(status(desk.look(b"loop")), DeskStatus::Loop);
    let good = desk.ticket(b"d/good", Wanted::READ, 0, None).unwrap();
    assert_eq!(open(&good).unwrap().size_at_open(), 6, "links within it are followed");
    // The link itself is what is moved and removed.
    desk.rename(b"absolute", b"d/moved").unwrap();
    desk.remove(b"d/moved").unwrap();
    assert!(outside.path().join("secret").exists());
}

#[test]
fn a_ticket_is_for_one_file_and_for_what_it_says() {
    let rig = Rig::new(DeskOptions::default());
    rig.folder("d", (1000, 100, 0o777));
    rig.put("d/mine", (1000, 100, 0o644), b"mine");
    rig.put("d/secret", (1001, 101, 0o600), b"secret");
    let desk = rig.host(1000, 100);
    assert_eq!(status(desk.ticket(b"d/secret", Wanted::READ, 0, None)), DeskStatus::Access);
    let ticket = desk.ticket(b"d/mine", BOTH, 0, None).unwrap();
    // Whose directory it is may move files in it: that opens none of them.
    desk.rename(b"d/mine", b"d/away").unwrap();
    desk.rename(b"d/secret", b"d/mine").unwrap();
    assert_eq!(failure(open(&ticket)), Status::NoSuchObject);
    desk.rename(b"d/mine", b"d/secret").unwrap();
    symlink("secret", rig.path("d/mine")).unwrap();
    assert_eq!(failure(open(&ticket)), Status::NoSuchObject);
    desk.remove(b"d/mine").unwrap();
    desk.rename(b"d/away", b"d/mine").unwrap();
    open(&ticket).unwrap();
    // Only to read, and only to write.
    let reads = open(&desk.ticket(b"d/mine", Wanted::READ, 0, None).unwrap()).unwrap();
    assert_eq!(failure(reads.write_at(&[0; 4096], 0)), Status::RefusedRights);
    assert_eq!(failure(reads.set_size(0)), Status::RefusedRights);
    let writes = open(&desk.ticket(b"d/mine", Wanted::WRITE, 0, None).unwrap()).unwrap();
    assert_eq!(failure(writes.read_at(&mut [0; 4096], 0)), Status::RefusedRights);
    writes.set_size(0).unwrap();
}

#[test]
fn a_writer_does_not_keep_anothers_powers() {
    let rig = Rig::new(DeskOptions::default());
    for change in [true, false] {
        rig.put("tool", (1000, 100, 0o6775), &[0; 4096]);
        let ticket = rig.host(1001, 100).ticket(b"tool", BOTH, 0, None).unwrap();
        assert_eq!(owner_and_mode(&rig.path("tool")).2, 0o6775);
        let file = open(&ticket).unwrap();
        match change {
            true => file.write_at(&[1; 4096], 0).unwrap(),
            false => file.set_size(100).unwrap(),
        }
        assert_eq!(owner_and_mode(&rig.path("tool")).2, 0o775);
    }
}

/// Swaps what has two names, again and again, until what is done meanwhile is over.
fn while_swapping(one: &Path, other: &Path, work: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let cwd = rustix::fs::CWD;
                rustix::fs::renameat_with(cwd, one, cwd, other, flags).unwrap();
            }
        });
        work();
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn names_that_change_meanwhile_decide_nothing() {
    for act_as_callers in [true, false] {
        let rig = Rig::new(DeskOptions { act_as_callers, ..DeskOptions::default() });
        rig.folder("d", (1000, 100, 0o777));
        rig.put("d/mine", (1000, 100, 0o644), b"mine");
        rig.put("d/other", (1001, 101, 0o600), b"another's");
        rig.folder("d/way", (1000, 100, 0o755));
        rig.put("d/way/f", (1000, 100, 0o644), b"mine");
        rig.folder("d/closed", (1001, 101, 0o700));
        rig.put("d/closed/f", (1001, 101, 0o666), b"another's");
        let of_another = |path: &Path| {
            let told = fs::metadata(path).unwrap();
            told.uid() == 1001 && told.size() == 9 && told.mtime() != 1000
        };
        let desk = rig.host(1000, 100);
        let (mut done, mut not) = (0, 0);
        let mut count = |outcome: bool| if outcome { done += 1 } else { not += 1 };
        while_swapping(&rig.path("d/mine"), &rig.path("d/other"), || {
            for _ in 0..300 {
                let wanted = BOTH | Wanted::TRUNCATE;
                let ticket = desk.ticket(b"d/mine", wanted, 0, None);
                if let Ok(file) = ticket.as_ref().map(open) {
                    let is_mine = file.is_ok_and(|file| file.size().unwrap() == 0);
                    count(is_mine);
                }
                count(desk.set_mode(b"d/mine", 0o647).is_ok());
                count(desk.set_time(b"d/mine", Timestamp::from_parts(1000, 0)).is_ok());
            }
        });
        while_swapping(&rig.path("d/way"), &rig.path("d/closed"), || {
            for _ in 0..300 {
                let found = desk.look(b"d/way/f");
                count(found.as_ref().is_ok());
                assert!(found.is_err() || found.unwrap().uid == 1000, "behind a closed door");
            }
        });
        let files = ["d/mine", "d/other"].map(|name| rig.path(name));
        let others: Vec<_> = files.iter().filter(|path| of_another(path)).collect();
        assert_eq!(others.len(), 1, "its contents, owner and time are as they were");
        assert_eq!(owner_and_mode(others[0]), (1001, 101, 0o600));
        assert!(done > 0 && not > 0, "{done} {not}");
    }
}

#[test]
fn who_is_not_in_a_group_gives_none_of_its_powers() {
    for act_as_callers in [true, false] {
        let rig = Rig::new(DeskOptions { act_as_callers, ..DeskOptions::default() });
        rig.put("tool", (1000, 100, 0o755), b"");
        assert_eq!(rig.host(1000, 200).set_mode(b"tool", 0o6755).unwrap().mode, 0o4755);
        assert_eq!(rig.host(1000, 100).set_mode(b"tool", 0o2755).unwrap().mode, 0o2755);
    }
}

#[test]
fn a_server_that_is_not_root_makes_what_it_makes_as_itself() {
    // Others than root may not get to where the build is, as in root's home.
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = |name: &str| root.path().join(name);
    let cell = Authority::new();
    chown(root.path(), Some(2000), Some(2000)).unwrap();
    set_mode(root.path(), 0o777);
    fs::write(path("theirs"), b"theirs").unwrap();
    chown(path("theirs"), Some(1000), Some(100)).unwrap();
    set_mode(&path("theirs"), 0o600);
    let options = (DeskOptions::default(), DirectoryOptions::default());
    let ahead = Arc::default();
    let server =
        as_user(&caller(2000, 2000, &[]), || serve(root.path(), options, &ahead, Some(&cell)));
    let tls = ClientTls::new(&cell.named("host:a").pem(), "desk").unwrap();
    let desk = DeskClient::tls(server.address().to_string(), tls, &caller(1000, 100, &[]));
    let desk = desk.with_patience(Duration::from_secs(5));
    // No program that runs as the server is made for others.
    let ticket = desk.ticket(b"new", NEW, 0o6755, None).unwrap();
    assert_eq!(owner_and_mode(&path("new")), (2000, 2000, 0o755));
    open(&ticket).unwrap().write_at(&[1; 4096], 0).unwrap();
    assert_eq!(status(desk.set_mode(b"new", 0o777)), DeskStatus::Permission);
    desk.mkdir(b"folder", 0o755).unwrap();
    assert_eq!(owner_and_mode(&path("folder")).0, 2000);
    desk.remove(b"folder").unwrap();
    // It gives no more than it has.
    let ticket = desk.ticket(b"theirs", BOTH, 0, None).unwrap();
    assert_eq!(failure(open(&ticket)), Status::NotPermitted);
    let truncated = desk.ticket(b"theirs", BOTH | Wanted::TRUNCATE, 0, None);
    assert_eq!(status(truncated), DeskStatus::Access);
    assert_eq!(status(desk.set_mode(b"theirs", 0o666)), DeskStatus::Permission);
}

#[test]
fn default_lists_are_inherited_and_group_directories_give_their_group() {
    let rig = Rig::new(DeskOptions::default());
    rig.folder("shared", (1003, 100, 0o2777));
    let desk = rig.host(1002, 102);
    desk.ticket(b"shared/f", NEW, 0o660, None).unwrap();
    desk.mkdir(b"shared/d", 0o775).unwrap();
    assert_eq!(owner_and_mode(&rig.path("shared/f")), (1002, 100, 0o660));
    assert_eq!(owner_and_mode(&rig.path("shared/d")), (1002, 100, 0o2775));
    rig.folder("listed", (1002, 102, 0o777));
    let none = u32::MAX;
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (kind, bits, id) in
        [(1_u16, 7_u16, none), (2, 7, 1001), (4, 5, none), (16, 5, none), (32, 0, none)]
    {
        list.extend(kind.to_le_bytes());
        list.extend(bits.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    let set = rustix::fs::XattrFlags::empty();
    match rustix::fs::setxattr(rig.path("listed"), "system.posix_acl_default", &list, set) {
        Err(Errno::OPNOTSUPP) => return eprintln!("this file system has no such lists"),
        set => set.unwrap(),
    }
    desk.ticket(b"listed/f", NEW, 0o666, None).unwrap();
    desk.mkdir(b"listed/d", 0o777).unwrap();
    assert_eq!(owner_and_mode(&rig.path("listed/f")).2, 0o640, "no more than the list says");
    assert_eq!(owner_and_mode(&rig.path("listed/d")).2, 0o750);
}

#[test]
fn a_certificate_speaks_for_its_own() {
    let rig = Rig::new(DeskOptions { trust_root: true, ..DeskOptions::default() });
    rig.put("f", (1000, 1000, 0o600), b"");
    rig.put("g", (1, 100, 0o660), b"");
    let user = rig.client("user:1000", &caller(1000, 100, &[100]));
    user.ticket(b"f", BOTH, 0, None).unwrap();
    // Nothing proves its groups.
    assert_eq!(status(user.ticket(b"g", Wanted::READ, 0, None)), DeskStatus::Access);
    for (name, uid) in
        [("user:1001", 1000), ("user:1000", 0), ("admin:x", 1000), ("user:1000", 1001)]
    {
        let client = rig.client(name, &caller(uid, 1000, &[]));
        let outcome = client.look(b"f");
        assert!(matches!(outcome, Err(DeskError::NotAdmitted { .. })), "{name} {outcome:?}");
        client.ping().unwrap();
    }
    // Of another cell.
    let files = Authority::new().named("host:a");
    let tls = ClientTls::new(&files.pem(), "desk").unwrap();
    let stranger = DeskClient::tls(rig.address().to_string(), tls, &Caller::ROOT);
    let outcome = stranger.with_patience(Duration::from_secs(2)).look(b"f");
    assert!(matches!(outcome, Err(DeskError::Untrusted { .. })), "{outcome:?}");
}

#[test]
fn who_is_no_member_any_more_is_out() {
    let members: nasd_bulk_service::desk::Members =
        Arc::new(|identity| identity.to_string() == "host:a");
    let rig = Rig::new(DeskOptions { members: Some(members), ..DeskOptions::default() });
    rig.host(1000, 100).look(b"").unwrap();
    let other = rig.client("host:b", &caller(1000, 100, &[])).look(b"");
    assert!(matches!(other, Err(DeskError::NotAdmitted { .. })), "{other:?}");
}

#[test]
fn tickets_expire() {
    let options = DeskOptions {
        lifetime: Duration::from_secs(100),
        longest_lifetime: Duration::from_secs(1000),
        ..DeskOptions::default()
    };
    let rig = Rig::new(options);
    rig.put("f", (1000, 100, 0o644), &[7; 4096]);
    let desk = rig.host(1000, 100);
    let lasting = |lifetime: Option<u64>| {
        let lifetime = lifetime.map(Duration::from_secs);
        let ticket = desk.ticket(b"f", Wanted::READ, 0, lifetime).unwrap();
        let seconds = ticket.issued.capability.capability.expires.0 - ticket.issued.time.0;
        (seconds / Timestamp::SECOND_NS, ticket)
    };
    let (short, ticket) = lasting(None);
    let (long, longer) = lasting(Some(1_000_000));
    assert_eq!((short, long, lasting(Some(30)).0), (100, 1000, 30));
    let (file, other) = (open(&ticket).unwrap(), open(&longer).unwrap());
    assert_eq!(file.read_at(&mut [0; 4096], 0).unwrap(), 4096);
    rig.ahead.store(200, Ordering::Relaxed);
    assert_eq!(failure(file.read_at(&mut [0; 4096], 0)), Status::RefusedExpired);
    assert_eq!(failure(open(&ticket)), Status::RefusedExpired);
    // Its clock is not known to be ahead: a new ticket tells.
    drop(other);
    let (_, fresh) = lasting(None);
    open(&fresh).unwrap();
}

#[test]
fn anyone_is_nobody() {
    let options = DeskOptions { anyone: true, trust_root: true, ..DeskOptions::default() };
    let rig = Rig::with(options, DirectoryOptions::default(), false);
    rig.put("public", (1000, 100, 0o644), b"public");
    rig.put("private", (1000, 100, 0o640), b"private");
    rig.folder("drop", (0, 0, 0o1777));
    let desk = DeskClient::plain(rig.address().to_string()).with_patience(Duration::from_secs(5));
    let ticket = desk.ticket(b"public", Wanted::READ, 0, None).unwrap();
    let minimum = ticket.issued.capability.capability.minimum_protection;
    assert_eq!(minimum, Protection::NONE);
    let mut bytes = [0; 4096];
    assert_eq!(open(&ticket).unwrap().read_at(&mut bytes, 0).unwrap(), 6);
    assert_eq!(&bytes[..6], b"public");
    let protected = ticket.opening(Protection::INTEGRITY_ARGS | Protection::INTEGRITY_DATA);
    assert_eq!(BulkFile::open(protected).unwrap().size().unwrap(), 6);
    // Whoever they say they are.
    for uid in [0, 1000] {
        let desk = desk.on_behalf_of(&caller(uid, 100, &[]));
        assert_eq!(status(desk.ticket(b"private", Wanted::READ, 0, None)), DeskStatus::Access);
        assert_eq!(status(desk.set_mode(b"public", 0o777)), DeskStatus::Permission);
    }
    desk.ticket(b"drop/new", NEW, 0o644, None).unwrap();
    assert_eq!(owner_and_mode(&rig.path("drop/new")), (NOBODY, NOBODY, 0o644));
}

#[test]
fn without_a_certificate_nobody_speaks_for_anybody() {
    // Somebody has forgotten TLS.
    let rig = Rig::with(DeskOptions::default(), DirectoryOptions::default(), false);
    let desk = DeskClient::plain(rig.address().to_string()).with_patience(Duration::from_secs(5));
    for uid in [0, 1000, NOBODY] {
        let outcome = desk.on_behalf_of(&caller(uid, 100, &[])).look(b"");
        assert!(matches!(outcome, Err(DeskError::NotAdmitted { .. })), "{outcome:?}");
    }
}

#[test]
fn a_directory_can_be_served_to_be_read() {
    let directory = DirectoryOptions { read_only: true, ..DirectoryOptions::default() };
    let options = DeskOptions { trust_root: true, ..DeskOptions::default() };
    let rig = Rig::with(options, directory, true);
    rig.put("f", (1000, 100, 0o666), b"f");
    rig.folder("d", (1000, 100, 0o777));
    let before = listing(rig.root.path());
    for desk in [rig.host(1000, 100), rig.host(0, 0)] {
        let refused = DeskStatus::ReadOnly;
        assert_eq!(status(desk.ticket(b"f", BOTH, 0, None)), refused);
        assert_eq!(status(desk.ticket(b"f", BOTH | Wanted::TRUNCATE, 0, None)), refused);
        let new = desk.ticket(b"new", Wanted::READ | Wanted::CREATE, 0o644, None);
        assert_eq!(status(new), refused);
        assert_eq!(status(desk.mkdir(b"d/d", 0o755)), refused);
        assert_eq!(status(desk.rename(b"f", b"g")), refused);
        assert_eq!(status(desk.remove(b"f")), refused);
        assert_eq!(status(desk.set_mode(b"f", 0o777)), refused);
        assert_eq!(status(desk.set_time(b"f", Timestamp(0))), refused);
        let ticket = desk.ticket(b"f", Wanted::READ | Wanted::CREATE, 0, None).unwrap();
        assert_eq!(open(&ticket).unwrap().size().unwrap(), 1);
        assert_eq!(desk.list_all(b"").unwrap().len(), 2);
    }
    // A ticket that is older than that.
    let writable = (DeskOptions::default(), DirectoryOptions::default());
    let before_that = serve(rig.root.path(), writable, &rig.ahead, Some(&rig.cell));
    let tls = ClientTls::new(&rig.cell.named("host:a").pem(), "desk").unwrap();
    let address = before_that.address().to_string();
    let desk = DeskClient::tls(address, tls, &caller(1000, 100, &[]));
    let old = desk.ticket(b"f", BOTH, 0, None).unwrap().opening(Protection::NONE);
    BulkFile::open(old.clone()).unwrap();
    let old = Opening { address: rig.address().to_string(), ..old };
    assert_eq!(failure(BulkFile::open(old)), Status::ReadOnly);
    assert_eq!(listing(rig.root.path()), before);
}

#[test]
fn a_client_is_back_after_its_connection_was_lost() {
    let rig = Rig::new(DeskOptions::default());
    let desk = rig.host(1000, 100);
    desk.look(b"").unwrap();
    rig.server.guests().close_unless(|_| false);
    desk.look(b"").unwrap();
    assert_eq!(rig.server.connections(), 1);
}

#[test]
fn nonsense_harms_nobody() {
    use nasd_client::Connector;
    use nasd_protocol::bulk_desk::{PROGRAM, VERSION};
    use nasd_transport::{ClientOptions, OpaqueAuth, OutgoingCall, ResultShape};
    let rig = Rig::new(DeskOptions::default());
    let desk = rig.host(1000, 100);
    // Not even TLS, and not quite a packet.
    for bytes in [&b"GET / HTTP/1.0\r\n\r\n"[..], b"NASDBLK", &[0x80, 0, 0, 40, 0, 0, 0, 1]] {
        let mut stream = TcpStream::connect(rig.address()).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.read_to_end(&mut Vec::new()).ok();
    }
    let tls = ClientTls::new(&rig.cell.named("host:a").pem(), "desk").unwrap();
    let address = rig.address().to_string();
    let connector = nasd_client::TlsConnector::new(address, tls, ClientOptions::default());
    let channel = connector.connect(Duration::from_secs(5)).unwrap();
    let credential =
        nasd_rpc::AuthSys { uid: 1000, gid: 100, ..nasd_rpc::AuthSys::default() }.to_body();
    let ask = |program, version, procedure, credential: &[u8], arguments: &[u8]| {
        let call = OutgoingCall {
            program,
            version,
            procedure,
            credential: OpaqueAuth { flavor: nasd_rpc::AUTH_SYS, body: credential },
            verifier: OpaqueAuth::NONE,
            arguments,
            data: &[],
            results: ResultShape::Plain,
            timeout: Duration::from_secs(10),
        };
        channel.call(&call, &mut [])
    };
    assert!(ask(PROGRAM + 1, VERSION, 1, &credential, &[]).is_err());
    assert!(ask(PROGRAM, VERSION + 1, 1, &credential, &[]).is_err());
    assert!(ask(PROGRAM, VERSION, 99, &credential, &[]).is_err());
    assert!(ask(PROGRAM, VERSION, 2, b"none", &[]).is_err());
    for procedure in 1..=8 {
        // Nothing, a length without an end, zeros, bytes, too many.
        let texts = [vec![], vec![0xff; 4], vec![0xff; 40], vec![0x41; 4], vec![0; 8000]];
        for arguments in texts {
            assert!(ask(PROGRAM, VERSION, procedure, &credential, &arguments).is_err());
        }
    }
    assert!(channel.is_open(), "each was answered");
    // Bits that mean nothing are told as such.
    let wanted = Wanted::from_bits_retain(0x8000_0001);
    assert_eq!(status(desk.ticket(b"f", wanted, 0, None)), DeskStatus::Invalid);
    assert_eq!(desk.list_all(b"").unwrap(), vec![]);
}

/// What this process's descriptors are of.
fn descriptors() -> Vec<String> {
    let all = fs::read_dir("/proc/self/fd").unwrap().flatten();
    all.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.to_str()?.to_owned())).collect()
}

/// How many descriptors a server has of each of its connections.
fn descriptors_of_connections(server: SocketAddr) -> Vec<usize> {
    let at = format!(":{:04X}", server.port());
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let open = descriptors();
    let connections = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_connected = words[1].ends_with(&at) && words[3] == "01";
        is_connected.then(|| format!("socket:[{}]", words[9]))
    });
    connections.map(|socket| open.iter().filter(|link| **link == socket).count()).collect()
}

#[test]
fn a_connection_takes_one_descriptor_and_one_for_its_file() {
    let rig = Rig::new(DeskOptions::default());
    rig.put("film", (1000, 100, 0o644), &[7; 8192]);
    let ticket = rig.host(1000, 100).ticket(b"film", Wanted::READ, 0, None).unwrap();
    let files: Vec<BulkFile> = (0..5).map(|_| open(&ticket).unwrap()).collect();
    for file in &files {
        assert_eq!(file.read_at(&mut [0; 8192], 0).unwrap(), 8192);
    }
    let taken = descriptors_of_connections(rig.address());
    assert!(taken.len() >= files.len() && taken.iter().all(|count| *count == 1), "{taken:?}");
    let film = rig.path("film").canonicalize().unwrap();
    let of_film = descriptors().iter().filter(|link| Path::new(link) == film).count();
    assert_eq!(of_film, files.len());
}
