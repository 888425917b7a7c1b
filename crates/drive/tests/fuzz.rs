//! Fuzzing of what a drive takes from anybody, without a socket: records, heads of calls, credentials,
//! and every procedure, with authority, in private, and without. How: `crates/protocol/tests/fuzzing`.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;
#[path = "../../protocol/tests/fuzzing/mod.rs"]
mod fuzzing;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::*;
use fuzzing::fuzz;
use nasd_capability::{
    CAPABILITY_BYTES, Capability, Digest, DigestKeys, Nonce, NonceSource, Suite, Way,
    procedure_bytes,
};
use nasd_device::MemoryDevice;
use nasd_drive::{Checksum, Drive, DriveOptions, Environment, ReplyData};
use nasd_protocol::drive::{
    AppendArguments, AuditArguments, BatchArguments, BatchOperation, BlocksrequiredArguments,
    ComparepartitionArguments, CopypartitionArguments, CopyrangeArguments, CreateArguments,
    CreatepartitionArguments, EndwritesArguments, ExtendArguments, FastcopyArguments,
    FlushArguments, FlushpartitionArguments, GetattrArguments, InitializeArguments, MapArguments,
    PROGRAM, PartitionKey, Procedure, PunchArguments, RangeToCopy, ReadArguments, RemoveArguments,
    RemovepartitionArguments, ResizepartitionArguments, Sealed, SeekArguments, SetattrArguments,
    SetdriveArguments, SetdrivekeyArguments, SetpartitionArguments, SetpartitionkeyArguments,
    SetstripingArguments, VERSION, WriteArguments, unwrap_arguments, unwrap_results,
    wrap_arguments,
};
use nasd_protocol::{
    AUTH_FLAVOR, Credential, CredentialKey, Region, Status, Verifier, decode_result,
};
use nasd_rpc::{AuthSys, CallHead, OpaqueAuth, RecordParser, ReplyHead};
use nasd_store::{FormatOptions, OpenOptions, Store, StoredKey};
use nasd_transport::{
    Answer, Arriving, Attempt, Call, Identity, Payload, Peer, Presence, Receive, Service, Standing,
    Waits,
};
use nasd_types::limits::{MAX_OBJECT_BYTES, MAX_RECORD_BYTES};
use nasd_types::{
    AppendToken, AuditId, ByteRange, Compression, ObjectId, ObjectName, PartitionId, Protection,
    Rights, SeekTarget, SetAttributes, Timestamp,
};
use nasd_xdr::{Decoder, XdrDecode, XdrEncode, from_bytes, to_bytes};

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
        let master_key = Some(StoredKey::new(key_of(MASTER_KEY)));
        let options = FormatOptions { master_key, ..format_options() };
        Store::format(device.clone(), &options).unwrap();
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
        match self.answer(head, body) {
            Some(Answer::Results { results, .. }) => done(head.procedure) + status_of(&results),
            Some(Answer::Rejected(status)) => {
                1 << 32 | u64::from(known_or_one(head.procedure)) << 8 | rejected(status)
            }
            Some(Answer::Denied(status)) => 2 << 32 | u64::from(u32::from(status)),
            None => 1,
        }
    }

    /// `None` where the transport closes the connection.
    fn answer(&self, head: &CallHead<'_>, body: &[u8]) -> Option<Answer<ReplyData>> {
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
                // The record is of another length.
                if nasd_xdr::xdr_padded(room) != rest.len() {
                    return None;
                }
                for buffer in &mut payload.buffers() {
                    let (now, later) = rest.split_at(buffer.len());
                    buffer.copy_from_slice(now);
                    rest = later;
                }
                (&body[..head_bytes], Some(payload))
            }
        };
        let (peer, standing) = (&peer, &self.standing);
        let presence = Presence::ALWAYS;
        let call = |payload| Call { head, arguments, payload, peer, standing, presence };
        Some(match self.drive.attempt(call(payload)) {
            Attempt::Answered(answer) => answer,
            Attempt::Waits(Waits::Alone, payload) => self.drive.execute(call(payload)),
            Attempt::Waits(Waits::Together, payload) => {
                let mut together = self.drive.together();
                together.begin(0, call(payload));
                together.answered(1).remove(0).1
            }
        })
    }

    /// A call with a right digest, whatever its arguments are.
    fn signed(&self, procedure: u32, body: &[u8], by: &Signer) -> u64 {
        let nonce = self.nonces.draw(Timestamp(self.clock));
        // The data of a write are not covered here.
        let mut input = Decoder::new(body);
        let decodes = match Procedure::try_from(procedure) {
            Ok(Procedure::Write) => WriteArguments::decode(&mut input).is_ok(),
            Ok(Procedure::Append) => AppendArguments::decode(&mut input).is_ok(),
            _ => false,
        };
        let covered = if decodes { input.position() } else { body.len() };
        let body = &proved(procedure, body, &nonce)[..];
        let signed = Signed::new(procedure, body, covered, by, Protection::INTEGRITY_ARGS, nonce);
        self.serve(&signed.head(), body)
    }

    /// A private call that is rightly encrypted, whatever that is, with some data behind it: the
    /// outcome is what only its sender can read.
    fn private(&self, plain: &[u8], data: &[u8], by: &Signer) -> u64 {
        let nonce = self.nonces.draw(Timestamp(self.clock));
        let keys = DigestKeys::new(by.secret.as_ref().unwrap(), Suite::Blake3);
        let mut sealed = plain.to_vec();
        keys.seal_args(Way::Request, &nonce, &mut sealed);
        let head = to_bytes(&Sealed { sealed, data_length: data.len() });
        let padding = nasd_xdr::xdr_padded(data.len()) - data.len();
        let body = [&head, data, &[0; 4][..padding]].concat();
        let protection = Protection::INTEGRITY_ARGS | Protection::PRIVACY_ARGS;
        let private = Procedure::Private.into();
        let signed = Signed::new(private, &body, head.len(), by, protection, nonce);
        let Some(Answer::Results { results, verifier, .. }) = self.answer(&signed.head(), &body)
        else {
            return 1;
        };
        let status = status_of(&results);
        if status != 0 {
            return done(private) + status;
        }
        let reply = decode_result::<Sealed, Status>(&mut Decoder::new(&results)).unwrap().unwrap();
        let verifier = Verifier::from_opaque(&verifier.as_opaque()).unwrap();
        let opened = keys.open_args(Way::Reply, &verifier.nonce, &reply.sealed).unwrap();
        let inner = unwrap_arguments(plain).map_or(0, |(procedure, _)| known_or_one(procedure));
        done(1000 + inner) + status_of(unwrap_results(&opened).unwrap())
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

/// Arguments with a right proof for the source of a copy, whatever is copied, if they have what it takes.
fn proved(procedure: u32, body: &[u8], nonce: &Nonce) -> Vec<u8> {
    let decoded = from_bytes::<CopyrangeArguments>(body).ok();
    let Some(arguments) = decoded.filter(|_| procedure == u32::from(Procedure::Copyrange)) else {
        return body.to_vec();
    };
    let by = (0..SIGNERS).map(signer).find(|by| by.claimed == arguments.source_authority.key);
    let Some(secret) = by.and_then(|by| by.secret) else { return body.to_vec() };
    let keys = DigestKeys::new(&secret, Suite::Blake3);
    let named = procedure_bytes(PROGRAM, VERSION, procedure);
    let source_proof = keys.source_proof(nonce, &[&named, &arguments.to_covered()]);
    to_bytes(&CopyrangeArguments { source_proof, ..arguments })
}

/// The head of a call with a right digest.
struct Signed {
    procedure: u32,
    credential: Vec<u8>,
    verifier: Vec<u8>,
}

impl Signed {
    /// Of which the first `covered` bytes of the arguments are covered.
    fn new(
        procedure: u32,
        body: &[u8],
        covered: usize,
        by: &Signer,
        protection: Protection,
        nonce: Nonce,
    ) -> Signed {
        let credential = Credential::new(by.claimed.clone(), Suite::Blake3, protection).to_body();
        let keys = DigestKeys::new(by.secret.as_ref().unwrap(), Suite::Blake3);
        let named = procedure_bytes(PROGRAM, VERSION, procedure);
        let digest = keys.request(&nonce, &[&named, &credential, &body[..covered]], None);
        let verifier = Verifier { nonce, digest, ..Verifier::NONE }.to_body().to_vec();
        Signed { procedure, credential, verifier }
    }

    fn head(&self) -> CallHead<'_> {
        let opaque = |body| OpaqueAuth { flavor: AUTH_FLAVOR, body };
        CallHead {
            xid: 1,
            program: PROGRAM,
            version: VERSION,
            procedure: self.procedure,
            credential: opaque(&self.credential),
            verifier: opaque(&self.verifier),
        }
    }
}

fn status_of(results: &[u8]) -> u64 {
    results.first_chunk().map_or(0, |word| u64::from(u32::from_be_bytes(*word)))
}

/// All procedures that there are not have the same outcome: else they would be most of the samples.
fn known_or_one(procedure: u32) -> u32 {
    procedure.min(Procedure::ALL.len() as u32)
}

/// The outcome of a procedure that did what it should.
fn done(procedure: u32) -> u64 {
    2 + u64::from(procedure) * 1000
}

fn rejected(status: nasd_transport::AcceptStatus) -> u64 {
    format!("{status:?}").len() as u64
}

/// Who asks, by a word of the input: with all keys that there are, and with capabilities.
const SIGNERS: u32 = 6;
const BY_DRIVE: u32 = 0;
const BY_PARTITION: u32 = 1;
const BY_MASTER: u32 = 3;

fn signer(number: u32) -> Signer {
    let capability = Capability {
        drive: DRIVE,
        partition: PARTITION,
        object: ObjectId::FIRST_OBJECT,
        region: ByteRange::new(0, MAX_OBJECT_BYTES),
        rights: Rights::all(),
        expires: Timestamp::MAX,
        audit_id: AuditId(7),
        minimum_protection: Protection::INTEGRITY_ARGS,
        key_epoch: EPOCH,
    };
    let of_first = |capability| Signer::minted(&capability, &capability, 0);
    match number % SIGNERS {
        BY_DRIVE => Signer::drive(),
        BY_PARTITION => Signer::partition(),
        2 => Signer::working(),
        BY_MASTER => Signer::master(),
        4 => of_first(capability),
        // For what names no object.
        _ => of_first(Capability { object: ObjectId(0), ..capability }),
    }
}

/// Arguments of every procedure, behind its number and that of who may have it done.
fn samples() -> Vec<Vec<u8>> {
    let partition = PARTITION;
    let name = ObjectName { partition, object: ObjectId::FIRST_OBJECT };
    let regions = vec![Region { offset: 8, length: 16, stride: 32, count: 3 }];
    let changes = SetAttributes { logical_size: Some(100), ..SetAttributes::default() };
    let (durable, initial) = (true, SetAttributes::default());
    let write = WriteArguments::single(name, 5, 12, false);
    let token = AppendToken([6; 16]);
    let append = AppendArguments { name, token, age_ns: 1, data_length: 12 };
    let mut samples = vec![
        sample(Procedure::Inquiry, BY_DRIVE, &()),
        sample(
            Procedure::Create,
            5,
            &CreateArguments { partition, object: None, durable, initial },
        ),
        sample(Procedure::Remove, 2, &RemoveArguments { name: object(70), durable }),
        sample(Procedure::Getattr, 4, &GetattrArguments { name }),
        sample(Procedure::Setattr, 4, &SetattrArguments { name, durable, changes }),
        sample(Procedure::Read, 4, &ReadArguments { name, order: None, regions: regions.clone() }),
        [sample(Procedure::Write, 4, &write), vec![7; 12]].concat(),
        [sample(Procedure::Append, 4, &append), vec![7; 12]].concat(),
        sample(Procedure::Flush, 4, &FlushArguments { partition, objects: vec![name.object] }),
        sample(Procedure::Map, 4, &MapArguments { name, write: true, end: 1 << 30, client: 5 }),
        sample(Procedure::Endwrites, 4, &EndwritesArguments { name, client: 5, turn: 6 }),
        sample(Procedure::Extend, 4, &checksums(name)),
        sample(Procedure::Fastcopy, 4, &FastcopyArguments { name, copy: None }),
        sample(Procedure::Copyrange, 4, &copyrange(name)),
        sample(
            Procedure::Blocksrequired,
            4,
            &BlocksrequiredArguments { name, regions: regions.clone() },
        ),
        sample(Procedure::Punch, 4, &PunchArguments { name, durable, regions }),
        sample(Procedure::Seek, 4, &SeekArguments { name, offset: 3, target: SeekTarget::Hole }),
        sample(Procedure::Batch, 2, &batch(name.object, false)),
        sample(Procedure::Batch, BY_PARTITION, &batch(name.object, true)),
        sample(Procedure::Flushpartition, 2, &FlushpartitionArguments { partition }),
    ];
    samples.extend(administration());
    samples
}

/// Whose source needs no proof where the drive wants none, and else has a wrong one.
fn copyrange(name: ObjectName) -> CopyrangeArguments {
    let copy =
        RangeToCopy { name, offset: 5000, length: 4096, source: name.object, source_offset: 1 };
    let by = signer(4).claimed;
    let source_authority = Credential::new(by, Suite::Blake3, Protection::INTEGRITY_ARGS);
    CopyrangeArguments { copy, source_authority, source_proof: Digest([5; 16]) }
}

/// The checksums of parts of an object.
fn checksums(name: ObjectName) -> ExtendArguments {
    ExtendArguments {
        name,
        regions: vec![Region::single(3, 40)],
        rights: Rights::READ,
        extension: Checksum::NUMBER,
        revision: Checksum::REVISION,
        job: 1,
        bytes_left: 40,
        most: 64,
        arguments: Checksum::arguments(16),
    }
}

/// One operation of each kind, and one more.
fn batch(object: ObjectId, durable: bool) -> BatchArguments {
    let changes = SetAttributes { logical_size: Some(9), ..SetAttributes::default() };
    let operations = vec![
        BatchOperation::Create(None, changes.clone()),
        BatchOperation::Setattr(object, changes),
        BatchOperation::Remove(ObjectId(70)),
        BatchOperation::Getattr(object),
        BatchOperation::Create(Some(ObjectId::FIRST_NAMED), SetAttributes::default()),
    ];
    BatchArguments { partition: PARTITION, durable, with_attributes: durable, operations }
}

fn sample(procedure: Procedure, signer: u32, arguments: &impl XdrEncode) -> Vec<u8> {
    [to_bytes(&u32::from(procedure)), to_bytes(&signer), to_bytes(arguments)].concat()
}

/// The procedures on partitions, keys and the drive itself.
fn administration() -> Vec<Vec<u8>> {
    let (partition, new) = (PARTITION, PartitionId(9));
    let settings = SetpartitionArguments {
        partition,
        compression: Some(Compression::Lz4),
        minimum_protection: None,
    };
    let of_partition = AuditArguments { partition: Some(partition), ..AuditArguments::ALL };
    let set = |which, epoch, by: u32| {
        let value = signer(by).seal(77);
        let arguments = SetpartitionkeyArguments { partition, which, epoch, value };
        sample(Procedure::Setpartitionkey, by, &arguments)
    };
    let clock = Timestamp(START);
    let (skew_past, skew_ahead) = (10 * SECOND, SECOND);
    let value = Signer::master().seal(78);
    let begin = InitializeArguments { master: value, clock, skew_past, skew_ahead };
    vec![
        sample(Procedure::Createpartition, BY_DRIVE, &CreatepartitionArguments { partition: new }),
        sample(
            Procedure::Copypartition,
            BY_DRIVE,
            &CopypartitionArguments { partition: new, source: partition },
        ),
        sample(
            Procedure::Comparepartition,
            BY_DRIVE,
            &ComparepartitionArguments { partition, base: None, from: ObjectId(4), offset: 0 },
        ),
        sample(
            Procedure::Putobject,
            BY_DRIVE,
            &put_of(ObjectName { partition, object: ObjectId(100) }),
        ),
        sample(Procedure::Removepartition, BY_DRIVE, &RemovepartitionArguments { partition: new }),
        sample(
            Procedure::Resizepartition,
            BY_DRIVE,
            &ResizepartitionArguments { partition, bytes: 1 << 20 },
        ),
        sample(Procedure::Setpartition, BY_PARTITION, &settings),
        sample(Procedure::Setdrive, BY_DRIVE, &SetdriveArguments { minimum_protection: None }),
        sample(
            Procedure::Setstriping,
            BY_DRIVE,
            &SetstripingArguments { partition, unit: 4096, width: 1, copies: 1 },
        ),
        sample(Procedure::Audit, BY_DRIVE, &AuditArguments::ALL),
        sample(Procedure::Audit, BY_PARTITION, &of_partition),
        set(PartitionKey::Key, 0, BY_DRIVE),
        set(PartitionKey::Current, EPOCH + 1, BY_PARTITION),
        set(PartitionKey::Previous, EPOCH - 1, BY_PARTITION),
        sample(Procedure::Setdrivekey, BY_MASTER, &SetdrivekeyArguments { value }),
        sample(Procedure::Initialize, BY_MASTER, &begin),
    ]
}

/// After these little else would be done any more.
fn ends(procedure: u32) -> bool {
    use Procedure::*;
    [Setdrive, Setpartition, Removepartition, Setpartitionkey, Setdrivekey, Initialize]
        .map(u32::from)
        .contains(&procedure)
}

/// The first words of an input, and what is behind them.
fn words<const COUNT: usize>(input: &[u8]) -> Option<([u32; COUNT], &[u8])> {
    let mut decoder = Decoder::new(input);
    let mut words = [0; COUNT];
    for word in &mut words {
        *word = decoder.u32().ok()?;
    }
    Some((words, decoder.rest()))
}

/// Every procedure, for whoever may ask for it: arguments are nonsense in every way.
#[test]
fn every_procedure_with_authority() {
    let mut bare = Bare::new();
    fuzz("procedures", samples(), |input| {
        let Some(([procedure, by], body)) = words(input) else { return 0 };
        let outcome = bare.signed(procedure, body, &signer(by));
        if ends(procedure) && outcome == done(procedure) {
            bare.assert_serving();
            bare = Bare::new();
        }
        outcome << 3 | u64::from(by % SIGNERS)
    });
    bare.assert_serving();
}

/// The samples are done by those who ask for them; otherwise only refusals are fuzzed.
#[test]
fn the_samples_are_done() {
    let mut asked = BTreeSet::new();
    for (at, sample) in samples().iter().enumerate() {
        let ([procedure, by], body) = words(sample).unwrap();
        let bare = Bare::new();
        let outcome = bare.signed(procedure, body, &signer(by));
        let expected = match Procedure::try_from(procedure).unwrap() {
            // There is no such object, and no such partition: what they do is done by others of them.
            Procedure::Remove => u64::from(u32::from(Status::NoSuchObject)),
            // Its objects are its own.
            Procedure::Map | Procedure::Setstriping | Procedure::Endwrites => {
                u64::from(u32::from(Status::NotPermitted))
            }
            Procedure::Removepartition => u64::from(u32::from(Status::NoSuchPartition)),
            _ => 0,
        };
        assert_eq!(outcome, done(procedure) + expected, "sample {at}, procedure {procedure}");
        asked.insert(procedure);
    }
    let all = Procedure::ALL[1..].iter().map(|one| u32::from(*one));
    let missing: Vec<u32> = all.filter(|one| !asked.contains(one)).collect();
    assert_eq!(missing, [u32::from(Procedure::Private)], "of which another test is");
}

/// What is encrypted in private calls: a procedure and arguments, mostly padded as they should be, and
/// nonsense in place of all that.
#[test]
fn every_private_call_with_authority() {
    const RAW: u32 = 1 << 31;
    let inner = samples().into_iter().map(|sample| {
        let ([procedure, by], body) = words(&sample).unwrap();
        let brings_data = [Procedure::Write, Procedure::Append].map(u32::from);
        let data = if brings_data.contains(&procedure) { 12 } else { 0 };
        let arguments = &body[..body.len() - data];
        [&to_bytes(&by)[..], &to_bytes(&(data as u32)), &to_bytes(&procedure), arguments].concat()
    });
    let inner: Vec<Vec<u8>> = inner.collect();
    let raw = inner.iter().map(|wrapped| {
        let ([by, data, procedure], arguments) = words(wrapped).unwrap();
        let plain = wrap_arguments(procedure, arguments);
        [to_bytes(&by), to_bytes(&(data | RAW)), plain].concat()
    });
    let all = inner.iter().cloned().chain(raw).collect();
    let mut bare = Bare::new();
    fuzz("private calls", all, |input| {
        let Some(([by, data], rest)) = words(input) else { return 0 };
        let plain = match words(rest) {
            Some(([procedure], arguments)) if data & RAW == 0 => {
                wrap_arguments(procedure, arguments)
            }
            _ => rest.to_vec(),
        };
        let data = vec![7; data as usize % 4096];
        let outcome = bare.private(&plain, &data, &signer(by));
        let procedure = unwrap_arguments(&plain).map_or(0, |(procedure, _)| procedure);
        if ends(procedure) && outcome == done(1000 + procedure) {
            bare.assert_serving();
            bare = Bare::new();
        }
        outcome << 3 | u64::from(by % SIGNERS)
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
        let ([procedure, _], body) = words(&sample).unwrap();
        let credential = Credential::new(key, Suite::Blake3, Protection::INTEGRITY_ARGS).to_body();
        let nonce = Nonce { timestamp: Timestamp(bare.clock), unique: 1 };
        let verifier = Verifier { nonce, ..Verifier::NONE }.to_body();
        let opaque = |body| OpaqueAuth { flavor: AUTH_FLAVOR, body };
        let head = CallHead {
            xid: 7,
            program: PROGRAM,
            version: VERSION,
            procedure,
            credential: opaque(&credential),
            verifier: opaque(verifier.as_ref()),
        };
        calls.push([to_bytes(&head), body.to_vec()].concat());
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
        .chain([Verifier::NONE.to_body().to_vec()])
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
