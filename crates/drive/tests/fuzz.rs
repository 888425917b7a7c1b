//! Fuzzing of what a drive takes from anybody, without a socket: records, heads of calls, credentials,
//! and every procedure, with authority and without. How: `crates/protocol/tests/fuzzing`.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;
#[path = "../../protocol/tests/fuzzing/mod.rs"]
mod fuzzing;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::*;
use fuzzing::fuzz;
use nasd_capability::{
    CAPABILITY_BYTES, Capability, DigestKeys, Nonce, NonceSource, Suite, procedure_bytes,
};
use nasd_device::MemoryDevice;
use nasd_drive::{Drive, DriveOptions, Environment};
use nasd_protocol::drive::{
    AuditArguments, BlocksrequiredArguments, CreateArguments, CreatepartitionArguments,
    FastcopyArguments, FlushArguments, FlushpartitionArguments, GetattrArguments, PROGRAM,
    Procedure, PunchArguments, ReadArguments, RemoveArguments, RemovepartitionArguments,
    ResizepartitionArguments, SeekArguments, SetattrArguments, SetdriveArguments,
    SetpartitionArguments, VERSION, WriteArguments,
};
use nasd_protocol::{AUTH_FLAVOR, Credential, CredentialKey, Region, Verifier};
use nasd_rpc::{AuthSys, CallHead, OpaqueAuth, RecordParser, ReplyHead};
use nasd_store::{OpenOptions, Store};
use nasd_transport::{
    Answer, Arriving, Attempt, Call, Identity, Payload, Peer, Receive, Service, Standing, Waits,
};
use nasd_types::limits::MAX_RECORD_BYTES;
use nasd_types::{
    Compression, ObjectId, ObjectName, PartitionId, Protection, SeekTarget, SetAttributes,
    Timestamp,
};
use nasd_xdr::{Decoder, XdrDecode, XdrEncode, to_bytes};

/// A drive without a socket, whose clock stands still.
struct Bare {
    drive: Drive,
    nonces: NonceSource,
    clock: u64,
    standing: Standing,
}

impl Bare {
    fn new() -> Bare {
        let device = Arc::new(MemoryDevice::new(64 << 20).unwrap());
        Store::format(device.clone(), &format_options()).unwrap();
        let options = OpenOptions { cache_bytes: 32 << 20, ..OpenOptions::default() };
        let store = Store::open(device, &options).unwrap();
        let random = AtomicU64::new(1);
        let machine = Arc::new(AtomicU64::new(START));
        let (time, elapsed) = (Arc::clone(&machine), Arc::clone(&machine));
        let environment = Environment::new(
            move || Timestamp(time.load(Ordering::Relaxed)),
            move || Duration::from_nanos(elapsed.load(Ordering::Relaxed)),
            move || random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed),
        );
        let drive = Drive::new(store, DriveOptions::default(), environment).unwrap();
        // Behind what is refused as from before the start.
        machine.fetch_add(5 * SECOND, Ordering::Relaxed);
        Bare {
            drive,
            nonces: NonceSource::new(7),
            clock: START + 5 * SECOND,
            standing: Standing::of_no_connection(),
        }
    }

    /// Serves a call as the transport would; the number of its outcome.
    fn serve(&self, head: &CallHead<'_>, body: &[u8]) -> u64 {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let peer = Peer { address, identity: Identity::Plain };
        let arriving = Arriving { head, arguments: body, complete: true, peer: &peer };
        let (arguments, payload) = match self.drive.receive(&arriving) {
            Receive::Whole => (body, None),
            Receive::More { .. } => panic!("all is there"),
            Receive::Discard { head_bytes } => {
                (&body[..if head_bytes == 0 { body.len() } else { head_bytes }], None)
            }
            Receive::Data { head_bytes, mut payload } => {
                let mut rest = &body[head_bytes..];
                let room: usize = payload.buffers().iter().map(|buffer| buffer.len()).sum();
                // The transport closes the connection where the record is of another length.
                if nasd_xdr::xdr_padded(room) != rest.len() {
                    return 1;
                }
                for buffer in &mut payload.buffers() {
                    let (now, later) = rest.split_at(buffer.len());
                    buffer.copy_from_slice(now);
                    rest = later;
                }
                (&body[..head_bytes], Some(payload))
            }
        };
        let standing = &self.standing;
        let call = Call { head, arguments, payload, peer: &peer, standing };
        let answer = match self.drive.attempt(call) {
            Attempt::Answered(answer) => answer,
            Attempt::Waits(Waits::Alone, payload) => {
                self.drive.execute(Call { head, arguments, payload, peer: &peer, standing })
            }
            Attempt::Waits(Waits::Together, payload) => {
                let mut together = self.drive.together();
                together.begin(0, Call { head, arguments, payload, peer: &peer, standing });
                together.answered(1).remove(0).1
            }
        };
        match answer {
            Answer::Results { results, .. } => {
                let status = results.first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
                done(head.procedure) + u64::from(status)
            }
            Answer::Rejected(status) => 1 << 32 | u64::from(head.procedure) << 8 | rejected(status),
            Answer::Denied(status) => 2 << 32 | u64::from(u32::from(status)),
        }
    }

    /// A call with a right digest, whatever its arguments are.
    fn signed(&self, procedure: u32, body: &[u8], by: &Signer, protection: Protection) -> u64 {
        let credential = Credential::new(by.claimed.clone(), Suite::Blake3, protection).to_body();
        let nonce = self.nonces.draw(Timestamp(self.clock));
        let secret = by.secret.as_ref().unwrap();
        let keys = DigestKeys::new(secret, Suite::Blake3);
        let named = procedure_bytes(PROGRAM, VERSION, procedure);
        // The data of a write are not covered here.
        let mut input = Decoder::new(body);
        let is_write = procedure == u32::from(Procedure::Write);
        let covered = match is_write && WriteArguments::decode(&mut input).is_ok() {
            true => &body[..input.position()],
            false => body,
        };
        let digest = keys.request(&nonce, &[&named, &credential, covered], None);
        let verifier = Verifier { nonce, digest, ..Verifier::NONE }.to_body();
        let opaque = |body| OpaqueAuth { flavor: AUTH_FLAVOR, body };
        let head = CallHead {
            xid: 1,
            program: PROGRAM,
            version: VERSION,
            procedure,
            credential: opaque(&credential),
            verifier: opaque(verifier.as_ref()),
        };
        self.serve(&head, body)
    }

    /// It has come through it all.
    fn assert_serving(&self) {
        let head = CallHead {
            xid: 1,
            program: PROGRAM,
            version: VERSION,
            procedure: Procedure::Inquiry.into(),
            credential: OpaqueAuth { flavor: 0, body: &[] },
            verifier: OpaqueAuth { flavor: 0, body: &[] },
        };
        assert_eq!(self.serve(&head, &[]), done(Procedure::Inquiry.into()));
        assert_eq!(self.drive.store().read_only(), None);
    }
}

/// The outcome of a procedure that did what it should.
fn done(procedure: u32) -> u64 {
    2 + u64::from(procedure) * 1000
}

fn rejected(status: nasd_transport::AcceptStatus) -> u64 {
    format!("{status:?}").len() as u64
}

/// Arguments of every procedure but those that end the game, as the procedure's number and the rest.
fn samples() -> Vec<Vec<u8>> {
    fn sample(procedure: Procedure, arguments: &impl XdrEncode) -> Vec<u8> {
        [&[procedure as u8][..], &to_bytes(arguments)].concat()
    }
    let partition = PARTITION;
    let name = ObjectName { partition, object: ObjectId::FIRST_OBJECT };
    let regions = vec![Region { offset: 8, length: 16, stride: 32, count: 3 }];
    let changes = SetAttributes { logical_size: Some(100), ..SetAttributes::default() };
    let new = PartitionId(9);
    let (durable, initial) = (true, SetAttributes::default());
    let write = WriteArguments::single(name, 5, 12, false);
    let settings = SetpartitionArguments {
        partition,
        compression: Some(Compression::Lz4),
        minimum_protection: None,
    };
    let all = AuditArguments { partition: Some(partition), ..AuditArguments::ALL };
    vec![
        sample(Procedure::Inquiry, &()),
        sample(Procedure::Create, &CreateArguments { partition, durable, initial }),
        sample(Procedure::Remove, &RemoveArguments { name: object(70), durable }),
        sample(Procedure::Getattr, &GetattrArguments { name }),
        sample(Procedure::Setattr, &SetattrArguments { name, durable, changes }),
        sample(Procedure::Read, &ReadArguments { name, regions: regions.clone() }),
        [sample(Procedure::Write, &write), vec![7; 12]].concat(),
        sample(Procedure::Flush, &FlushArguments { partition, objects: vec![name.object] }),
        sample(Procedure::Fastcopy, &FastcopyArguments { name }),
        sample(
            Procedure::Blocksrequired,
            &BlocksrequiredArguments { name, regions: regions.clone() },
        ),
        sample(Procedure::Punch, &PunchArguments { name, durable, regions }),
        sample(Procedure::Seek, &SeekArguments { name, offset: 3, target: SeekTarget::Hole }),
        sample(Procedure::Createpartition, &CreatepartitionArguments { partition: new }),
        sample(Procedure::Removepartition, &RemovepartitionArguments { partition: new }),
        sample(
            Procedure::Resizepartition,
            &ResizepartitionArguments { partition: new, bytes: 1 << 20 },
        ),
        sample(Procedure::Flushpartition, &FlushpartitionArguments { partition }),
        sample(Procedure::Setpartition, &settings),
        sample(Procedure::Setdrive, &SetdriveArguments { minimum_protection: None }),
        sample(Procedure::Audit, &AuditArguments::ALL),
        sample(Procedure::Audit, &all),
    ]
}

/// Every procedure, for whoever may ask for it: arguments are nonsense in every way.
#[test]
fn every_procedure_with_authority() {
    let mut bare = Bare::new();
    fuzz("procedures", samples(), |input| {
        let Some((&procedure, body)) = input.split_first() else { return 0 };
        let procedure = u32::from(procedure);
        // These are the keys that may do most.
        let by_partition = procedure == Procedure::Setpartitionkey as u32;
        let signer = if by_partition { Signer::partition() } else { Signer::drive() };
        let outcome = bare.signed(procedure, body, &signer, Protection::INTEGRITY_ARGS);
        // After these nothing else would be done any more.
        let ends = [Procedure::Setdrive, Procedure::Setpartition, Procedure::Removepartition]
            .map(u32::from);
        if ends.contains(&procedure) && outcome == done(procedure) {
            bare.assert_serving();
            bare = Bare::new();
        }
        outcome
    });
    bare.assert_serving();
}

/// Whole calls, as anybody may send them: head, credential, verifier and arguments.
#[test]
fn whole_calls_without_authority() {
    let bare = Bare::new();
    let name = ObjectName { partition: PARTITION, object: ObjectId::FIRST_OBJECT };
    let capability =
        Capability { expires: Timestamp::MAX, ..Capability::from_bytes(&[0; CAPABILITY_BYTES]) };
    let keys = [CredentialKey::None, CredentialKey::Drive, CredentialKey::Capability(capability)];
    let mut calls = Vec::new();
    for (key, sample) in keys.into_iter().cycle().zip(samples()) {
        let credential = Credential::new(key, Suite::Blake3, Protection::INTEGRITY_ARGS).to_body();
        let nonce = Nonce { timestamp: Timestamp(bare.clock), unique: 1 };
        let verifier = Verifier { nonce, ..Verifier::NONE }.to_body();
        let opaque = |body| OpaqueAuth { flavor: AUTH_FLAVOR, body };
        let head = CallHead {
            xid: 7,
            program: PROGRAM,
            version: VERSION,
            procedure: u32::from(sample[0]),
            credential: opaque(&credential),
            verifier: opaque(verifier.as_ref()),
        };
        calls.push([to_bytes(&head), sample[1..].to_vec()].concat());
    }
    let before = bare.drive.store().getattr(name).unwrap();
    fuzz("calls", calls, |input| {
        let mut decoder = Decoder::new(input);
        match CallHead::decode(&mut decoder) {
            Ok(head) => bare.serve(&head, &input[decoder.position()..]),
            Err(_) => 0,
        }
    });
    assert_eq!(bare.drive.store().getattr(name).unwrap(), before, "nobody had authority");
    bare.assert_serving();
}

/// Records and heads of messages of a stream, cut anywhere.
#[test]
fn records_and_heads() {
    let credential = Credential::NONE.to_body();
    let opaque = OpaqueAuth { flavor: AUTH_FLAVOR, body: &credential };
    let head = CallHead {
        xid: 7,
        program: PROGRAM,
        version: VERSION,
        procedure: 1,
        credential: opaque,
        verifier: opaque,
    };
    let message = to_bytes(&head);
    let mark = (message.len() as u32 | 1 << 31).to_be_bytes();
    let user = AuthSys { uid: 7, gid: 8, groups: vec![1, 2, 3], ..AuthSys::default() };
    let samples = vec![[&mark[..], &message].concat(), user.to_body()];
    fuzz("messages", samples, |input| {
        let (mut parser, mut record) = (RecordParser::new(MAX_RECORD_BYTES), Vec::new());
        let parsed = parser.push(input, &mut record);
        assert!(record.len() <= input.len(), "nothing is made up");
        let mut decoder = Decoder::new(&record);
        let call = CallHead::decode(&mut decoder);
        if let Ok(call) = &call {
            assert_eq!(to_bytes(call), record[..decoder.position()], "one encoding");
        }
        let reply = ReplyHead::decode(&mut Decoder::new(&record));
        let user = AuthSys::from_body(input);
        if let Ok(user) = &user {
            assert_eq!(user.to_body(), input, "one encoding");
        }
        let bits = [parsed.is_ok(), call.is_ok(), reply.is_ok(), user.is_ok()];
        let bits = bits.iter().fold(0, |sum, bit| sum << 1 | u64::from(*bit));
        bits << 8 | (record.len() as u64).min(255)
    });
}

/// Credentials, verifiers and capabilities: what decodes has one encoding, which is what came.
#[test]
fn credentials() {
    let capability = Capability::from_bytes(&[7; CAPABILITY_BYTES]);
    let kinds = [
        CredentialKey::None,
        CredentialKey::Master,
        CredentialKey::Drive,
        CredentialKey::Partition(PARTITION),
        CredentialKey::WorkingCurrent(PARTITION),
        CredentialKey::WorkingPrevious(PARTITION),
        CredentialKey::Capability(capability),
    ];
    let samples: Vec<Vec<u8>> = kinds
        .into_iter()
        .map(|key| Credential::new(key, Suite::Blake3, Protection::INTEGRITY_ARGS).to_body())
        .chain([Verifier::NONE.to_body().as_ref().to_vec()])
        .collect();
    fuzz("credentials", samples, |input| {
        let opaque = OpaqueAuth { flavor: AUTH_FLAVOR, body: input };
        let credential = Credential::from_opaque(&opaque);
        if let Ok(credential) = &credential {
            assert_eq!(credential.to_body(), input, "one encoding");
        }
        let verifier = Verifier::from_opaque(&opaque);
        if let Ok(verifier) = &verifier {
            assert_eq!(verifier.to_body().as_ref() as &[u8], input, "one encoding");
        }
        if let Some(bytes) = input.first_chunk::<CAPABILITY_BYTES>() {
            assert_eq!(Capability::from_bytes(bytes).to_bytes(), *bytes);
        }
        let kind = credential.map_or(0, |credential| 1 + u64::from(credential.key.kind().code()));
        kind << 1 | u64::from(verifier.is_ok())
    });
}
