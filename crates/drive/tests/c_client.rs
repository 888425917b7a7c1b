//! A client in C, made from `specs/nasd.x` by `rpcgen`, talks to a drive.
//!
//! It shares no code with the Rust side: `rpcgen` and libtirpc code the messages, and the digests
//! are computed by a BLAKE3 of its own. What it knows, the specification and
//! `docs/wire-protocol.md` say. It also cuts each call of some size into several fragments.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nasd_capability::{Capability, Narrowing, SealedKey, SecretKey, capability_key};
use nasd_device::MemoryDevice;
use nasd_drive::{Drive, DriveOptions, DriveServer, Environment};
use nasd_protocol::Status;
use nasd_store::{FormatOptions, OpenOptions, PartitionFormat, Store, StoredKey};
use nasd_types::{
    AuditId, ByteRange, CellId, DriveId, ObjectId, ObjectName, PartitionId, Protection, Rights,
    Timestamp,
};

/// The client's own files; `rpcgen` makes the others.
const SOURCES: [&str; 3] = ["client.c", "nasd_auth.c", "blake3.c"];

const DRIVE: DriveId = DriveId(0x0123_4567_89ab_cdef);
const CELL: CellId = CellId([0xce; 16]);
const OBJECT: ObjectName = ObjectName { partition: PartitionId(7), object: ObjectId::FIRST_OBJECT };
const WORKING_KEY: [u8; 32] = [0x57; 32];
const KEY_EPOCH: u32 = 3;

const BOTH: Protection = Protection::INTEGRITY_ARGS.union(Protection::INTEGRITY_DATA);

/// Exit statuses of the client.
const DONE: i32 = 0;
const REFUSED: i32 = 1;

/// Runs a tool, which must succeed.
fn run(tool: &str, arguments: &[&str], directory: &Path) {
    let output = Command::new(tool).args(arguments).current_dir(directory).output().unwrap_or_else(
        |error| panic!("{tool} can't be run ({error}); `make deps` installs what this test needs"),
    );
    assert!(
        output.status.success(),
        "{tool} {} failed:\n{}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The client, built once for all tests here.
fn client() -> &'static Path {
    static CLIENT: OnceLock<PathBuf> = OnceLock::new();
    CLIENT.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c_client");
        // `rpcgen` does not overwrite what it made before.
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).expect("cargo gives a directory for tests");
        generate(&directory);
        compile(&directory)
    })
}

/// Has `rpcgen` translate both specifications.
fn generate(directory: &Path) {
    let specifications = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs");
    // Procedures with two arguments (RFC 5531) are of its newer style.
    for (program, style) in [("nasd", "-C"), ("manager", "-CN")] {
        let specification = format!("{program}.x");
        fs::copy(specifications.join(&specification), directory.join(&specification))
            .expect("the specification is in the repository");
        for (option, ending) in [("-h", ".h"), ("-c", "_xdr.c"), ("-l", "_clnt.c")] {
            let output = format!("{program}{ending}");
            run("rpcgen", &[style, option, "-o", &output, &specification], directory);
        }
    }
}

fn compile(directory: &Path) -> PathBuf {
    assert!(
        Path::new("/usr/include/tirpc/rpc/rpc.h").exists(),
        "libtirpc's headers are missing; `make deps` installs what this test needs"
    );
    let common = ["-std=gnu11", "-O1", "-I.", "-I/usr/include/tirpc"];
    // What rpcgen makes has unused variables.
    let made = ["-w", "-c", "nasd_xdr.c", "nasd_clnt.c", "manager_xdr.c", "manager_clnt.c"];
    run("gcc", &[&common[..], &made].concat(), directory);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c_client");
    let sources = SOURCES.map(|source| sources.join(source).display().to_string());
    let sources = sources.each_ref().map(String::as_str);
    let linked = ["nasd_xdr.o", "nasd_clnt.o", "-ltirpc", "-o", "client"];
    run("gcc", &[&common[..], &["-Wall", "-Wextra"], &sources, &linked].concat(), directory);
    directory.join("client")
}

/// A drive in memory with one partition, serving.
fn serve(minimum_protection: Protection) -> DriveServer {
    let key = StoredKey::new;
    let format = FormatOptions {
        drive: DRIVE,
        cell: CELL,
        master_key: None,
        log_key: 0x6c6f_676b,
        drive_key: key([0xd0; 32]),
        partitions: vec![PartitionFormat {
            id: OBJECT.partition,
            quota_bytes: u64::MAX,
            partition_key: key([0xa0; 32]),
            working_key: key(WORKING_KEY),
            key_epoch: KEY_EPOCH,
        }],
        metadata_bytes: None,
        now: Timestamp(1),
    };
    let device = Arc::new(MemoryDevice::new(256 << 20).expect("memory"));
    Store::format(device.clone(), &format).expect("a new device can be formatted");
    let options = OpenOptions { cache_bytes: 64 << 20, ..OpenOptions::default() };
    let store = Store::open(device, &options).expect("a formatted device opens");
    let options = DriveOptions { minimum_protection, ..DriveOptions::default() };
    let drive = Drive::new(store, options, Environment::system()).expect("the store has its keys");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    DriveServer::start(drive, listener).expect("threads start")
}

fn capability(rights: Rights, minimum_protection: Protection) -> Capability {
    Capability {
        drive: DRIVE,
        partition: OBJECT.partition,
        object: OBJECT.object,
        region: ByteRange::new(0, 1 << 30),
        rights,
        expires: Timestamp::MAX,
        audit_id: AuditId(1),
        minimum_protection,
        key_epoch: KEY_EPOCH,
    }
}

/// What the client said.
struct Said {
    exit: i32,
    /// Lines of a name and a value.
    facts: String,
    data: Vec<u8>,
}

impl Said {
    fn fact(&self, name: &str) -> &str {
        self.facts
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
            .unwrap_or_else(|| panic!("the client does not say {name}:\n{}", self.facts))
    }

    #[track_caller]
    fn assert_done(&self, proved: bool) {
        assert_eq!(self.exit, DONE, "{}", self.facts);
        assert_eq!(self.fact("proved"), if proved { "1" } else { "0" });
    }

    #[track_caller]
    fn assert_refused(&self, status: Status) {
        assert_eq!(self.exit, REFUSED, "{}", self.facts);
        assert_eq!(self.fact("status"), u32::from(status).to_string());
    }
}

fn call(server: &DriveServer, arguments: &[&str], input: &[u8]) -> Said {
    run_client(server.address().port(), arguments, input)
}

fn run_client(port: u16, arguments: &[&str], input: &[u8]) -> Said {
    let mut child = Command::new(client())
        .arg(port.to_string())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the client was built");
    // The client reads all of its input before it writes, so that neither waits for the other;
    // one that gives up early breaks the pipe, and its exit status tells.
    let _ = child.stdin.take().expect("invariant: piped above").write_all(input);
    let output = child.wait_with_output().expect("the client ends");
    Said {
        exit: output.status.code().unwrap_or(-1),
        facts: String::from_utf8_lossy(&output.stderr).into_owned(),
        data: output.stdout,
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The key that goes with a capability of the object as it is.
fn key_of(server: &DriveServer, capability: &Capability) -> SecretKey {
    let attributes = server.drive().store().getattr(OBJECT).expect("the object exists");
    let working = SecretKey::new(WORKING_KEY);
    capability_key(&working, capability, attributes.access_control_version)
}

/// Reads or writes by a capability.
fn transfer(
    server: &DriveServer,
    verb: &str,
    (capability, protection): (&Capability, Protection),
    (offset, length): (u64, usize),
    input: &[u8],
) -> Said {
    transfer_narrowed(server, verb, (capability, &[], protection), (offset, length), input)
}

/// The same by a capability that the client narrows by itself.
fn transfer_narrowed(
    server: &DriveServer,
    verb: &str,
    (capability, narrowings, protection): (&Capability, &[Narrowing], Protection),
    (offset, length): (u64, usize),
    input: &[u8],
) -> Said {
    let key = key_of(server, capability);
    let mut shown = capability.to_bytes().to_vec();
    shown.extend_from_slice(&(narrowings.len() as u32).to_be_bytes());
    narrowings.iter().for_each(|narrowing| shown.extend_from_slice(&narrowing.to_bytes()));
    let [capability, key] = [&shown[..], key.expose()].map(hexadecimal);
    let [protection, offset, length] =
        [u64::from(protection.bits()), offset, length as u64].map(|number| number.to_string());
    call(server, &[verb, &capability, &key, &protection, &offset, &length], input)
}

fn stop(server: DriveServer) {
    server.shut_down(Duration::from_secs(5)).expect("the drive stops cleanly");
}

/// Not a period of anything.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 % 253) as u8).collect()
}

#[test]
fn anybody_may_inquire() {
    let server = serve(Protection::INTEGRITY_ARGS);
    let said = call(&server, &["inquiry"], &[]);
    assert_eq!(said.exit, DONE, "{}", said.facts);
    assert_eq!(said.fact("drive"), "0123456789abcdef");
    assert_eq!(said.fact("cell"), "ce".repeat(16));
    assert_eq!(said.fact("instance"), server.drive().instance().to_string());
    assert_eq!(said.fact("minimum_protection"), "1");
    assert_eq!(said.fact("max_transfer"), "4194304");
    assert_eq!(said.fact("partitions"), "7");
    assert!(said.fact("suites").split(' ').any(|suite| suite == "0"), "{}", said.facts);
    stop(server);
}

#[test]
fn data_goes_both_ways_under_every_protection() {
    let server = serve(Protection::NONE);
    let capability = capability(Rights::READ | Rights::WRITE, Protection::NONE);
    // Not whole words, and more than a frame of the cache; 25 fragments and more.
    let data = pattern(100_003);
    for (round, protection) in
        [Protection::NONE, Protection::INTEGRITY_ARGS, BOTH].iter().enumerate()
    {
        let proved = !protection.is_empty();
        let offset = 1_000_000 * round as u64 + 17;
        let end = offset + data.len() as u64;
        let by = (&capability, *protection);
        let written = transfer(&server, "write", by, (offset, data.len()), &data);
        written.assert_done(proved);
        assert_eq!(written.fact("length"), data.len().to_string());
        assert_eq!(written.fact("logical_size"), end.to_string());
        assert_eq!(written.fact("instance"), server.drive().instance().to_string());
        let read = transfer(&server, "read", by, (offset, data.len() + 5), &[]);
        read.assert_done(proved);
        assert!(read.data == data, "other bytes came back, {} of them", read.data.len());
        assert_eq!(read.fact("logical_size"), end.to_string());
    }
    stop(server);
}

#[test]
fn refusals_are_told_by_name() {
    let server = serve(Protection::INTEGRITY_ARGS);
    let reader = capability(Rights::READ, Protection::INTEGRITY_ARGS);
    let by = |protection| (&reader, protection);
    transfer(&server, "read", by(Protection::INTEGRITY_ARGS), (0, 10), &[]).assert_done(true);

    let unprotected = transfer(&server, "read", by(Protection::NONE), (0, 10), &[]);
    unprotected.assert_refused(Status::RefusedProtection);
    let data = pattern(5000);
    let writing = transfer(&server, "write", by(BOTH), (0, data.len()), &data);
    writing.assert_refused(Status::RefusedRights);
    let outside = transfer(&server, "read", by(BOTH), (1 << 30, 1), &[]);
    outside.assert_refused(Status::RefusedRegion);

    // Rights that nobody gave: the key no longer belongs to what the credential says.
    let forged = Capability { rights: Rights::READ | Rights::WRITE, ..reader };
    let key = hexadecimal(key_of(&server, &reader).expose());
    let forged = hexadecimal(&[&forged.to_bytes()[..], &[0; 4]].concat());
    let said = call(&server, &["write", &forged, &key, "3", "0", "5000"], &data);
    said.assert_refused(Status::RefusedDigest);
    stop(server);
}

#[test]
fn a_capability_is_narrowed_as_the_document_says() {
    let server = serve(Protection::INTEGRITY_ARGS);
    let all = capability(Rights::READ | Rights::WRITE, Protection::INTEGRITY_ARGS);
    let data = pattern(5000);
    transfer(&server, "write", (&all, BOTH), (0, data.len()), &data).assert_done(true);
    let mut allowed = Narrowing { rights: Rights::READ, ..Narrowing::of(&all) };
    let mut chain = Vec::new();
    for step in 1..=8 {
        allowed.region = ByteRange::new(100 * step, 5000 - 200 * step);
        chain.push(allowed);
        let by = (&all, &chain[..], BOTH);
        let (offset, length) = (allowed.region.offset, allowed.region.length as usize);
        let read = transfer_narrowed(&server, "read", by, (offset, length), &[]);
        read.assert_done(true);
        assert!(read.data == data[offset as usize..][..length], "{step}");
        let outside = transfer_narrowed(&server, "read", by, (offset - 1, 2), &[]);
        outside.assert_refused(Status::RefusedRegion);
        let writing = transfer_narrowed(&server, "write", by, (offset, 1), &[1]);
        writing.assert_refused(Status::RefusedRights);
    }
    let widened = [chain[0], Narrowing::of(&all)];
    let widening = transfer_narrowed(&server, "read", (&all, &widened, BOTH), (500, 1), &[]);
    widening.assert_refused(Status::RefusedChain);
    stop(server);
}

#[test]
fn keys_are_sealed_as_the_document_says() {
    let under = SecretKey::new(std::array::from_fn(|index| 3 * index as u8));
    let new = SecretKey::new(std::array::from_fn(|index| 255 - index as u8));
    let salt = std::array::from_fn(|index| 17 * index as u8);
    let expected = SealedKey::seal(&new, &under, salt);
    let arguments = [&under.expose()[..], &salt, new.expose()].map(hexadecimal);
    let [under, salt, new] = arguments.each_ref().map(String::as_str);
    let said = run_client(0, &["seal", under, salt, new], &[]);
    assert_eq!(said.exit, DONE, "{}", said.facts);
    assert_eq!(said.fact("sealed"), hexadecimal(&expected.sealed));
    assert_eq!(said.fact("tag"), hexadecimal(&expected.tag));
}

#[test]
fn holes_are_made_and_found_and_objects_copied() {
    let server = serve(Protection::INTEGRITY_ARGS);
    let all = Capability { region: ByteRange::ALL, ..capability(Rights::all(), BOTH) };
    let by = (&all, BOTH);
    let data = pattern(10 * 4096);
    transfer(&server, "write", by, (0, data.len()), &data).assert_done(true);
    let required = transfer(&server, "blocksrequired", by, (1 << 30, 1 << 30), &[]);
    required.assert_done(true);
    assert!(required.fact("maximum").parse::<u64>().is_ok_and(|blocks| blocks >= 1 << 18));
    let punched = transfer(&server, "punch", by, (4096, 2 * 4096), &[]);
    punched.assert_done(true);
    assert_eq!(punched.fact("logical_size"), data.len().to_string());
    for (offset, target, expected) in
        [(0, 1, "4096"), (4096, 0, "12288"), (0, 0, "0"), (40_959, 1, "40960"), (40_960, 0, "none")]
    {
        let sought = transfer(&server, "seek", by, (offset, target), &[]);
        sought.assert_done(true);
        assert_eq!(sought.fact("position"), expected, "{offset} {target}");
    }
    let copied = transfer(&server, "fastcopy", by, (0, 0), &[]);
    copied.assert_done(true);
    assert_eq!(copied.fact("copied_object"), OBJECT.object.0.to_string());
    let reader = capability(Rights::READ, Protection::INTEGRITY_ARGS);
    let by = (&reader, Protection::INTEGRITY_ARGS);
    transfer(&server, "punch", by, (0, 1), &[]).assert_refused(Status::RefusedRights);
    transfer(&server, "fastcopy", by, (0, 0), &[]).assert_refused(Status::RefusedRights);
    stop(server);
}
