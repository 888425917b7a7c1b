//! Bytes that no client sends: the drive goes on serving.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;
#[path = "../../types/tests/random/mod.rs"]
mod random;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::*;
use nasd_capability::{DataTag, Suite};
use nasd_drive::DriveOptions;
use nasd_protocol::drive::{
    AuditArguments, BatchArguments, BatchOperation, BlocksrequiredArguments,
    ComparepartitionArguments, CopypartitionArguments, CreatepartitionArguments, FastcopyArguments,
    FlushpartitionArguments, InitializeArguments, PROGRAM, PartitionKey, Procedure, PunchArguments,
    ReadArguments, RemovepartitionArguments, ResizepartitionArguments, SeekArguments,
    SetdriveArguments, SetdrivekeyArguments, SetpartitionArguments, SetpartitionkeyArguments,
    VERSION, WriteArguments,
};
use nasd_protocol::{AUTH_FLAVOR, Credential, Region, Verifier};
use nasd_rpc::{CallHead, OpaqueAuth};
use nasd_transport::{ChannelError, ClientOptions, Connection, ReplyError, ServerOptions};
use nasd_types::{Compression, ObjectId, Protection, SeekTarget, SetAttributes, Timestamp};
use nasd_xdr::to_bytes;
use random::Random;

/// The server catches panics so that one bug does not stop it: here they must be seen.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    std::panic::set_hook(Box::new(|panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        eprintln!("{panic}");
    }));
}

fn impatient() -> DriveOptions {
    let server = ServerOptions {
        peer_timeout: Duration::from_millis(600),
        ..DriveOptions::default().server
    };
    DriveOptions { server, ..DriveOptions::default() }
}

/// A drive that does not make strangers wait, so that more can be tried.
fn untiring() -> DriveOptions {
    let server = ServerOptions { unproved_per_second: u32::MAX, ..DriveOptions::default().server };
    DriveOptions { server, ..DriveOptions::default() }
}

fn assert_serving(drive: &TestDrive) {
    let channel = Connection::tcp(drive.server().address(), &ClientOptions::default()).unwrap();
    let arguments = ReadArguments::single(object(4), 0, 10);
    let request = Request::new(Procedure::Read, &arguments, Signer::working());
    let answered = drive.ask_over(&channel, &request).unwrap();
    assert_eq!(answered.status, None);
}

/// A record that makes sense up to its digest, which is made up.
fn record(drive: &TestDrive, procedure: u32, arguments: &[u8], protection: Protection) -> Vec<u8> {
    let credential =
        Credential::new(Signer::working().claimed, Suite::preferred(), protection).to_body();
    let nonce = drive.fresh_nonce();
    let covers_data = procedure == 7 && protection.contains(Protection::INTEGRITY_DATA);
    let data_tag = covers_data.then(DataTag::default);
    let verifier = Verifier { nonce, data_tag, ..Verifier::NONE }.to_body();
    let head = CallHead {
        xid: 1,
        program: PROGRAM,
        version: VERSION,
        procedure,
        credential: OpaqueAuth { flavor: AUTH_FLAVOR, body: &credential },
        verifier: OpaqueAuth { flavor: AUTH_FLAVOR, body: &verifier },
    };
    let mut message = to_bytes(&head);
    message.extend_from_slice(arguments);
    let mut bytes = (message.len() as u32 | 1 << 31).to_be_bytes().to_vec();
    bytes.extend_from_slice(&message);
    bytes
}

fn raw(drive: &TestDrive) -> TcpStream {
    let socket = TcpStream::connect(drive.server().address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

/// Sends and reads until the drive has closed the connection.
fn send_all(drive: &TestDrive, bytes: &[u8]) {
    let mut socket = raw(drive);
    // The drive may close before everything is out.
    let _ = socket.write_all(bytes);
    let _ = socket.shutdown(Shutdown::Write);
    let _ = socket.read_to_end(&mut Vec::new());
}

/// One call of each operation that is not tried by name.
fn other_calls() -> Vec<(Procedure, Vec<u8>)> {
    let (partition, name) = (PARTITION, object(4));
    let regions = vec![Region { offset: 5, length: 1 << 40, stride: 1 << 41, count: 9 }];
    let value = Signer::partition().seal(1);
    let clock = drive_time();
    let (skew_past, skew_ahead) = (1, 1);
    let base = Some(OTHER_PARTITION);
    let comparison = ComparepartitionArguments { partition, base, from: ObjectId(3), offset: 9 };
    vec![
        (Procedure::Fastcopy, to_bytes(&FastcopyArguments { name, copy: None })),
        (
            Procedure::Blocksrequired,
            to_bytes(&BlocksrequiredArguments { name, regions: regions.clone() }),
        ),
        (Procedure::Punch, to_bytes(&PunchArguments { name, durable: true, regions })),
        (Procedure::Seek, to_bytes(&SeekArguments { name, offset: 1, target: SeekTarget::Hole })),
        (Procedure::Createpartition, to_bytes(&CreatepartitionArguments { partition })),
        (
            Procedure::Copypartition,
            to_bytes(&CopypartitionArguments { partition, source: PARTITION }),
        ),
        (Procedure::Comparepartition, to_bytes(&comparison)),
        (Procedure::Putobject, to_bytes(&put_of(name))),
        (Procedure::Removepartition, to_bytes(&RemovepartitionArguments { partition })),
        (Procedure::Resizepartition, to_bytes(&ResizepartitionArguments { partition, bytes: 9 })),
        (Procedure::Flushpartition, to_bytes(&FlushpartitionArguments { partition })),
        (
            Procedure::Setpartitionkey,
            to_bytes(&SetpartitionkeyArguments {
                partition,
                which: PartitionKey::Current,
                epoch: 8,
                value,
            }),
        ),
        (
            Procedure::Setpartition,
            to_bytes(&SetpartitionArguments {
                partition,
                compression: Some(Compression::Lz4),
                minimum_protection: Some(Protection::NONE),
            }),
        ),
        (
            Procedure::Initialize,
            to_bytes(&InitializeArguments { master: value, clock, skew_past, skew_ahead }),
        ),
        (Procedure::Setdrivekey, to_bytes(&SetdrivekeyArguments { value })),
        (Procedure::Setdrive, to_bytes(&SetdriveArguments { minimum_protection: None })),
        (Procedure::Audit, to_bytes(&AuditArguments::ALL)),
        (Procedure::Batch, to_bytes(&batch(name.object))),
    ]
}

fn batch(object: ObjectId) -> BatchArguments {
    let changes = SetAttributes { logical_size: Some(9), ..SetAttributes::default() };
    let operations = vec![
        BatchOperation::Create(None, SetAttributes::default()),
        BatchOperation::Setattr(object, changes),
        BatchOperation::Getattr(object),
        BatchOperation::Remove(ObjectId(99)),
    ];
    BatchArguments { partition: PARTITION, durable: true, with_attributes: true, operations }
}

fn drive_time() -> Timestamp {
    Timestamp(START)
}

#[test]
fn random_calls_never_stop_the_drive() {
    count_panics();
    let drive = TestDrive::with(untiring());
    let name = object(4);
    let write = [to_bytes(&WriteArguments::single(name, 0, 64, false)), vec![9; 64]].concat();
    let read = to_bytes(&ReadArguments::single(name, 0, 64));
    let others = other_calls();
    let mut random = Random(20);
    for round in 0..2000 {
        let procedure = random.index(Procedure::ALL.len() + 2) as u32;
        let protection =
            if round % 2 == 0 { Protection::INTEGRITY_ARGS } else { Protection::SUPPORTED };
        let mut bytes = match random.index(5) {
            0 => record(&drive, 7, &write, protection),
            1 => record(&drive, 6, &read, protection),
            2 => {
                let (procedure, arguments) = &others[random.index(others.len())];
                record(&drive, *procedure as u32, arguments, protection)
            }
            3 => {
                let arguments: Vec<u8> =
                    (0..4 * random.index(60)).map(|_| random.next() as u8).collect();
                record(&drive, procedure, &arguments, protection)
            }
            _ => {
                // Small numbers make more sense to decoders than large ones.
                let arguments: Vec<u8> = (0..random.index(60))
                    .flat_map(|_| (random.index(5) as u32).to_be_bytes())
                    .collect();
                record(&drive, procedure, &arguments, protection)
            }
        };
        for _ in 0..random.index(4) {
            let at = 4 + random.index(bytes.len() - 4);
            bytes[at] = random.next() as u8;
        }
        if random.index(10) == 0 {
            bytes.truncate(random.index(bytes.len()));
        }
        send_all(&drive, &bytes);
    }
    assert_serving(&drive);
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
}

/// Whoever may do something may also ask for nonsense.
#[test]
fn nonsense_with_authority_never_stops_the_drive() {
    count_panics();
    let drive = TestDrive::new();
    let calls = other_calls();
    let mut random = Random(21);
    let numbers = [0, 1, 3, 4, 8, 0xffff_ffff, 0x8000_0000, 0x3fff_ffff];
    for round in 0..1500 {
        let (procedure, arguments) = &calls[random.index(calls.len())];
        let signer = match procedure {
            Procedure::Setpartitionkey if round % 2 == 0 => Signer::partition(),
            Procedure::Fastcopy | Procedure::Punch | Procedure::Seek => Signer::working(),
            _ => Signer::drive(),
        };
        let mut request = Request::new(*procedure, &(), signer);
        request.arguments = arguments.clone();
        for _ in 0..random.index(4) {
            let at = 4 * random.index(request.arguments.len() / 4);
            let number: u32 = numbers[random.index(numbers.len())];
            request.arguments[at..at + 4].copy_from_slice(&number.to_be_bytes());
        }
        // Answered, or called garbage.
        match drive.ask(&request) {
            Ok(_) | Err(ChannelError::Rejected { .. }) => {}
            Err(error) => panic!("{procedure:?}: {error}"),
        }
    }
    assert_eq!(drive.by(Signer::drive(), Procedure::Inquiry, &()).status, None);
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
}

#[test]
fn oversized_and_truncated_frames_leave_the_drive_serving() {
    let drive = TestDrive::with(impatient());
    for bytes in [
        vec![0xff; 100],
        vec![0; 100],
        (0x8100_0000_u32).to_be_bytes().to_vec(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
    ] {
        send_all(&drive, &bytes);
    }
    let arguments = to_bytes(&WriteArguments::single(object(4), 0, 4 << 20, false));
    let head = record(&drive, 7, &arguments, Protection::SUPPORTED);
    for cut in 0..head.len() {
        send_all(&drive, &head[..cut]);
    }
    assert_serving(&drive);
}

#[test]
fn arguments_that_make_no_sense_are_garbage() {
    let drive = TestDrive::new();
    for procedure in (2..21_u32).chain([Procedure::Batch.into()]) {
        let procedure = Procedure::try_from(procedure).unwrap();
        let mut request =
            Request::new(procedure, &ReadArguments::single(object(4), 0, 1), Signer::working());
        request.arguments = vec![0xff; 36];
        let result = drive.ask(&request);
        assert!(
            matches!(
                result,
                Err(ChannelError::Rejected { reason: ReplyError::Rejected(status), .. })
                    if status == nasd_transport::AcceptStatus::GarbageArguments
            ),
            "{procedure:?}: {result:?}"
        );
    }
    assert_serving(&drive);
}
