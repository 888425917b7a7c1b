//! A drive in memory that authorizes requests as a real one does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nasd_capability::{
    Access, Authorized, CoveredData, Digest, DigestKeys, DriveRules, KeyKind, KeyKinds, Nonce,
    NonceSource, NonceWindow, SecretKey, Suite, Target, Way, WindowOptions, admit, capability_key,
    narrowed_key, procedure_bytes,
};
use nasd_client::{Authority, ConnectOptions, Connector, DriveClient, Host, TransportError};
use nasd_protocol::drive::{
    AppendArguments, Appended, AttributesReply, BatchArguments, BatchDone, BatchOperation,
    BatchOutcome, Batched, Copied, CopyrangeArguments, CreateArguments, Created, DriveInformation,
    FastcopyArguments, FlushArguments, Flushed, GetattrArguments, PROGRAM, Procedure, RangeToCopy,
    ReadArguments, ReadData, RemoveArguments, RemovepartitionArguments, SetattrArguments, VERSION,
    WriteArguments, Written,
};
use nasd_protocol::{AUTH_FLAVOR, Credential, Status, Verifier, encode_result};
use nasd_transport::{Channel, ChannelError, Execution, OpaqueAuth, OutgoingCall, Reply};
use nasd_types::{
    AppendToken, Attributes, ByteRange, CellId, DriveId, FS_SPECIFIC_BYTES, ObjectId, ObjectName,
    PartitionId, Protection, Rights, SetAttributes, Timestamp,
};
use nasd_xdr::{Encoder, XdrDecode, XdrEncode, from_bytes};

use super::{FakeHost, Fault, Script, break_after, broken, connect_error, server_failed};

pub const DRIVE: DriveId = DriveId(0xd1);
pub const PARTITION: PartitionId = PartitionId(1);
pub const OBJECT: ObjectName = ObjectName { partition: PARTITION, object: ObjectId(64) };

pub fn working_key() -> SecretKey {
    SecretKey::new([3; 32])
}

/// The file manager's authority over the partition.
pub fn manager(protection: Protection) -> Authority {
    Authority::working_key(PARTITION, working_key(), protection)
}

/// The connector to a drive, and the drive.
pub struct FakeDrive {
    pub host: Arc<FakeHost>,
    pub script: Script,
    pub state: Mutex<State>,
    nonces: NonceSource,
}

pub struct State {
    pub id: DriveId,
    pub instance: u64,
    pub clock: Timestamp,
    pub suites: Vec<Suite>,
    pub max_transfer: u32,
    window: NonceWindow,
    pub objects: HashMap<ObjectName, Vec<u8>>,
    pub access_control_version: u64,
    next: u64,
    /// Answer this instead of executing, as often as it says.
    pub answers: Vec<Status>,
    pub connections: usize,
    /// Everything that was executed.
    pub executed: Vec<Procedure>,
    /// The nonces of all requests but questions for the clock.
    pub nonces: Vec<Nonce>,
    /// What somebody on the network says to be the clock in answers to inquiries that nobody signs.
    pub forged_clock: Option<Timestamp>,
    /// Signed questions for the clock.
    pub proofs: usize,
    /// Where the payload of the last call lay.
    pub payload_at: Option<usize>,
    /// The data of the last write, decrypted.
    written: Vec<u8>,
    /// Where the bytes of appends went, and how old each that came said it was.
    appended: HashMap<AppendToken, u64>,
    pub append_ages: Vec<u64>,
    last_reply: Option<Reply>,
}

impl FakeDrive {
    pub fn new(host: &Arc<FakeHost>) -> Arc<Self> {
        let clock = host.wall_clock();
        let start = Timestamp(clock.0 - 100 * Timestamp::SECOND_NS);
        let state = State {
            id: DRIVE,
            instance: 1,
            clock,
            suites: Suite::available().to_vec(),
            max_transfer: 4 << 20,
            window: NonceWindow::new(WindowOptions::default(), start, 1),
            objects: HashMap::from([(OBJECT, b"some object's data".to_vec())]),
            access_control_version: 1,
            next: 65,
            answers: Vec::new(),
            connections: 0,
            executed: Vec::new(),
            nonces: Vec::new(),
            forged_clock: None,
            proofs: 0,
            payload_at: None,
            written: Vec::new(),
            appended: HashMap::new(),
            append_ages: Vec::new(),
            last_reply: None,
        };
        Arc::new(FakeDrive {
            host: Arc::clone(host),
            script: Script::default(),
            state: Mutex::new(state),
            nonces: NonceSource::new(77),
        })
    }

    pub fn client(self: &Arc<Self>, options: &ConnectOptions) -> DriveClient {
        let connector = Arc::new(FakeConnector(Arc::clone(self)));
        DriveClient::over(connector, Arc::clone(&self.host) as _, Some(DRIVE), options)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts anew: nothing is lost but the memory of nonces.
    pub fn restart(&self) {
        let mut state = self.state();
        state.instance += 1;
        state.window = NonceWindow::new(WindowOptions::default(), state.clock, 9);
    }
}

struct FakeConnector(Arc<FakeDrive>);

impl Connector for FakeConnector {
    fn connect(&self, _timeout: Duration) -> Result<Arc<dyn Channel>, TransportError> {
        if self.0.script.next_is(&Fault::Refused) {
            return Err(connect_error().into());
        }
        self.0.state().connections += 1;
        let drive = Arc::clone(&self.0);
        Ok(Arc::new(FakeChannel { drive, open: AtomicBool::new(true) }))
    }

    fn address(&self) -> &str {
        "drive.test:2049"
    }
}

struct FakeChannel {
    drive: Arc<FakeDrive>,
    open: AtomicBool,
}

impl Channel for FakeChannel {
    fn call(&self, call: &OutgoingCall<'_>, into: &mut [u8]) -> Result<Reply, ChannelError> {
        assert_eq!((call.program, call.version), (PROGRAM, VERSION));
        let procedure = Procedure::try_from(call.procedure).expect("a procedure");
        let is_inquiry = procedure == Procedure::Inquiry;
        let fault = if is_inquiry { Fault::None } else { self.drive.script.next() };
        if fault == Fault::ServerFailed {
            return Err(server_failed());
        }
        // The drive's clock moves on from call to call.
        self.drive.state().tick();
        if matches!(fault, Fault::Lost | Fault::Refused) || !self.is_open() {
            self.open.store(false, Ordering::SeqCst);
            return Err(broken(Execution::Never));
        }
        let reply = self.drive.state().serve(&self.drive.nonces, procedure, call, into);
        if let Some(error) = break_after(&fault, &self.open, call.timeout) {
            self.drive.host.pass(if fault == Fault::TimedOut {
                call.timeout
            } else {
                Duration::ZERO
            });
            return Err(error);
        }
        let old = self.drive.state().last_reply.replace(reply.clone());
        Ok(spoil(&fault, reply, old, into))
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::SeqCst)
    }
}

fn spoil(fault: &Fault, reply: Reply, old: Option<Reply>, into: &mut [u8]) -> Reply {
    let mut results = reply.results().to_vec();
    let mut verifier = reply.verifier().body.to_vec();
    match fault {
        Fault::ResultsAltered => *results.last_mut().expect("a status at least") ^= 1,
        Fault::DataAltered => into[0] ^= 1,
        Fault::DigestMissing => verifier[16..].fill(0),
        Fault::Forged(status) => {
            results = status.to_be_bytes().to_vec();
            verifier[16..].fill(0);
        }
        Fault::ForgedAt(status, clock) => {
            results = status.to_be_bytes().to_vec();
            verifier[16..].fill(0);
            verifier[..8].copy_from_slice(&clock.0.to_be_bytes());
        }
        Fault::OldReply => return old.expect("an earlier call"),
        _ => {}
    }
    let verifier = OpaqueAuth { flavor: AUTH_FLAVOR, body: &verifier };
    Reply::new(verifier, &results, reply.data_length())
}

/// What an operation answers: results, and how many bytes of data were put into the buffer.
type Answer = (Vec<u8>, usize);

impl State {
    fn tick(&mut self) {
        self.clock = self.clock.plus_ns(1_000);
    }

    fn serve(
        &mut self,
        nonces: &NonceSource,
        procedure: Procedure,
        call: &OutgoingCall<'_>,
        into: &mut [u8],
    ) -> Reply {
        let own_nonce = nonces.draw(self.clock);
        let is_inquiry = procedure == Procedure::Inquiry;
        if is_inquiry && call.credential.flavor != AUTH_FLAVOR {
            let told = self.information();
            let clock = self.forged_clock.unwrap_or(told.clock);
            let results = encode(&Ok(DriveInformation { clock, ..told }));
            return reply_with(&Verifier::plain(own_nonce, Digest::ZERO), &results, 0);
        }
        let credential = Credential::from_opaque(&call.credential).expect("a credential");
        let verifier = Verifier::from_opaque(&call.verifier).expect("a verifier");
        match is_inquiry {
            true => self.proofs += 1,
            false => self.nonces.push(verifier.nonce),
        }
        let asked_by = (&credential, &verifier);
        let (authorized, keys) = match self.authorize(procedure, call, asked_by) {
            Ok(authorized) => authorized,
            Err(status) => {
                let timestamp = self.window.clock_for(self.clock, &verifier.nonce);
                let nonce = Nonce { timestamp, ..own_nonce };
                let verifier = Verifier::plain(nonce, Digest::ZERO);
                return reply_with(&verifier, &encode::<()>(&Err(status)), 0);
            }
        };
        let (results, length) = match self.answers.pop() {
            Some(status) => (encode::<()>(&Err(status)), 0),
            None => self.execute(procedure, call, into),
        };
        let protection = authorized.protection();
        let is_data = procedure == Procedure::Read && results[..4] == [0; 4];
        let covers = is_data && protection.contains(Protection::INTEGRITY_DATA);
        let data = covers.then(|| {
            if protection.contains(Protection::PRIVACY_DATA) {
                let plain = into[..length].to_vec();
                let sealed = &mut into[..length];
                let tag = keys.seal_data(Way::Reply, &own_nonce, &[&plain], sealed);
                return CoveredData { length: length as u64, tag };
            }
            keys.data(Way::Reply, &own_nonce, &[&into[..length]])
        });
        let digest = match protection.is_empty() {
            true => Digest::ZERO,
            false => keys.reply(authorized.nonce(), &own_nonce, &[&results], data.as_ref()),
        };
        let data_tag = data.map(|data| data.tag);
        reply_with(&Verifier { nonce: own_nonce, digest, data_tag }, &results, length)
    }

    fn information(&self) -> DriveInformation {
        DriveInformation {
            drive: self.id,
            cell: CellId([1; 16]),
            vendor: "test".to_owned(),
            model: "fake".to_owned(),
            revision: "1".to_owned(),
            clock: self.window.clock(self.clock),
            instance: self.instance,
            suites: self.suites.clone(),
            protections: Protection::SUPPORTED,
            minimum_protection: Protection::NONE,
            max_transfer: self.max_transfer,
            is_virtual: false,
            partitions: vec![PARTITION],
        }
    }

    fn authorize(
        &mut self,
        procedure: Procedure,
        call: &OutgoingCall<'_>,
        (credential, verifier): (&Credential, &Verifier),
    ) -> Result<(Authorized, DigestKeys), Status> {
        let rules = DriveRules {
            drive: self.id,
            suites: &self.suites,
            minimum_protection: Protection::NONE,
        };
        let (target, rights, bytes) = access(procedure, call.arguments);
        let access = Access { target, rights, bytes, keys: KeyKinds::OBJECT };
        let now = self.clock;
        let admission =
            admit(&rules, &credential.claim(), &access, &verifier.nonce, &self.window, now)?;
        let keys = self.keys_of(credential)?;
        let procedure = procedure_bytes(PROGRAM, VERSION, call.procedure);
        let covered = [&procedure, call.credential.body, call.arguments];
        let data: Vec<&[u8]> = call.data.iter().map(|slice| &**slice).collect();
        let brings_data = [Procedure::Write, Procedure::Append].map(u32::from);
        let covers = brings_data.contains(&call.procedure)
            && credential.protection.contains(Protection::INTEGRITY_DATA);
        self.written = data.concat();
        assert_eq!(verifier.data_tag.is_some(), covers, "the client tags what it sends");
        let data = verifier.data_tag.map(|tag| {
            let written = &mut self.written;
            if credential.protection.contains(Protection::PRIVACY_DATA) {
                let opened = keys.open_data(Way::Request, &verifier.nonce, &tag, written);
                opened.expect("the client encrypts what it sends");
                return CoveredData { length: written.len() as u64, tag };
            }
            keys.data(Way::Request, &verifier.nonce, &[written])
        });
        assert_eq!(data.map(|data| data.tag), verifier.data_tag);
        let digest = &verifier.digest;
        let window = &self.window;
        let verified = admission.verify(Some(&keys), &covered, data.as_ref(), digest, window, now);
        Ok((verified?, keys))
    }

    fn keys_of(&self, credential: &Credential) -> Result<DigestKeys, Status> {
        let key = match (credential.key.kind(), credential.key.capability()) {
            (KeyKind::WorkingCurrent, _) => working_key(),
            (_, Some(capability)) => {
                let minted =
                    capability_key(&working_key(), capability, self.access_control_version);
                narrowed_key(minted, credential.key.narrowings())
            }
            _ => return Err(Status::RefusedKey),
        };
        Ok(DigestKeys::new(&key, credential.suite().expect("admitted")))
    }

    fn execute(
        &mut self,
        procedure: Procedure,
        call: &OutgoingCall<'_>,
        into: &mut [u8],
    ) -> Answer {
        self.executed.push(procedure);
        let arguments = call.arguments;
        match procedure {
            Procedure::Inquiry => (encode(&Ok(self.information())), 0),
            Procedure::Create => (encode(&self.create(&decode(arguments))), 0),
            Procedure::Remove => (encode(&self.remove(&decode(arguments))), 0),
            Procedure::Fastcopy => (encode(&self.fastcopy(&decode(arguments))), 0),
            Procedure::Getattr => {
                let GetattrArguments { name } = decode(arguments);
                (encode(&self.attributes(name)), 0)
            }
            Procedure::Setattr => {
                let SetattrArguments { name, .. } = decode(arguments);
                (encode(&self.attributes(name)), 0)
            }
            Procedure::Read => self.read(&decode(arguments), into),
            Procedure::Write => (encode(&self.write(&decode(arguments), call)), 0),
            Procedure::Append => (encode(&self.append(&decode(arguments))), 0),
            Procedure::Copyrange => (encode(&self.copy_range(&decode(arguments))), 0),
            Procedure::Batch => (encode(&Ok(self.batch(&decode(arguments)))), 0),
            Procedure::Flush => (encode(&Ok(Flushed { instance: self.instance })), 0),
            _ => (encode(&Ok(())), 0),
        }
    }

    fn create(&mut self, arguments: &CreateArguments) -> Result<Created, Status> {
        let given = ObjectId(self.next);
        let object = arguments.object.unwrap_or(given);
        let name = ObjectName { partition: arguments.partition, object };
        self.next += u64::from(object == given);
        if self.objects.contains_key(&name) {
            return Err(Status::ObjectExists);
        }
        self.objects.insert(name, Vec::new());
        let AttributesReply { attributes } = self.attributes(name)?;
        Ok(Created { object: name.object, attributes })
    }

    fn fastcopy(&mut self, arguments: &FastcopyArguments) -> Result<Created, Status> {
        let source = arguments.name;
        let bytes = self.objects.get(&source).ok_or(Status::NoSuchObject)?.clone();
        let (object, durable) = (arguments.copy, true);
        let initial = SetAttributes::default();
        let create = CreateArguments { partition: source.partition, object, durable, initial };
        let created = self.create(&create)?;
        self.objects.insert(ObjectName { object: created.object, ..source }, bytes);
        Ok(created)
    }

    fn remove(&mut self, arguments: &RemoveArguments) -> Result<(), Status> {
        self.objects.remove(&arguments.name).map(drop).ok_or(Status::NoSuchObject)
    }

    /// As a drive that remembers all appends.
    fn append(&mut self, arguments: &AppendArguments) -> Result<Appended, Status> {
        self.append_ages.push(arguments.age_ns);
        let bytes = self.objects.get_mut(&arguments.name).ok_or(Status::NoSuchObject)?;
        let offset = match self.appended.get(&arguments.token) {
            Some(offset) => *offset,
            None => {
                let offset = bytes.len() as u64;
                bytes.extend_from_slice(&self.written);
                self.appended.insert(arguments.token, offset);
                offset
            }
        };
        let AttributesReply { attributes } = self.attributes(arguments.name)?;
        Ok(Appended { offset, attributes })
    }

    /// As a drive that wants nothing of the source's capability but its proof.
    fn copy_range(&mut self, arguments: &CopyrangeArguments) -> Result<Copied, Status> {
        let credential = &arguments.source_authority;
        let keys = self.keys_of(credential)?;
        let procedure = procedure_bytes(PROGRAM, VERSION, Procedure::Copyrange.into());
        let nonce = self.nonces.last().expect("the call's");
        let proof = match credential.protection.is_empty() {
            true => Digest::ZERO,
            false => keys.source_proof(nonce, &[&procedure, &arguments.to_covered()]),
        };
        if proof != arguments.source_proof {
            return Err(Status::RefusedDigest);
        }
        let RangeToCopy { name, offset, length, source_offset, .. } = arguments.copy;
        let source = arguments.copy.source_name();
        let bytes = self.objects.get(&source).ok_or(Status::NoSuchObject)?;
        let from = bytes.len().min(source_offset as usize);
        let bytes = bytes[from..bytes.len().min(from + length as usize)].to_vec();
        let target = self.objects.get_mut(&name).ok_or(Status::NoSuchObject)?;
        target.truncate(offset as usize);
        target.extend_from_slice(&bytes);
        let AttributesReply { attributes } = self.attributes(name)?;
        Ok(Copied { length: bytes.len() as u64, attributes })
    }

    fn batch(&mut self, arguments: &BatchArguments) -> Batched {
        let partition = arguments.partition;
        let name = |object| ObjectName { partition, object };
        let operations = arguments.operations.iter();
        let outcomes = operations.map(|operation| -> BatchOutcome {
            let done = |object| BatchDone { object, attributes: None };
            match operation {
                BatchOperation::Create(chosen, initial) => {
                    let create = CreateArguments {
                        partition,
                        object: *chosen,
                        durable: false,
                        initial: initial.clone(),
                    };
                    self.create(&create).map(|created| done(created.object))
                }
                BatchOperation::Remove(object) => {
                    let remove = RemoveArguments { name: name(*object), durable: false };
                    self.remove(&remove).map(|()| done(*object))
                }
                BatchOperation::Setattr(object, _) | BatchOperation::Getattr(object) => {
                    let AttributesReply { attributes } = self.attributes(name(*object))?;
                    Ok(BatchDone { object: *object, attributes: Some(attributes) })
                }
            }
        });
        let outcomes = outcomes.collect();
        Batched { instance: self.instance, outcomes }
    }

    fn attributes(&self, name: ObjectName) -> Result<AttributesReply, Status> {
        let data = self.objects.get(&name).ok_or(Status::NoSuchObject)?;
        let access_control_version = self.access_control_version;
        let attributes = attributes_of(data.len(), self.clock);
        Ok(AttributesReply { attributes: Attributes { access_control_version, ..attributes } })
    }

    fn read(&mut self, arguments: &ReadArguments, into: &mut [u8]) -> Answer {
        self.payload_at = Some(into.as_ptr() as usize);
        let Some(object) = self.objects.get(&arguments.name) else {
            return (encode::<ReadData>(&Err(Status::NoSuchObject)), 0);
        };
        let pieces = arguments.pieces().expect("the client has checked them");
        assert!(pieces.total_bytes() <= into.len());
        let mut length = 0;
        for range in pieces.within(object.len() as u64) {
            let piece = &object[range.offset as usize..range.end() as usize];
            into[length..length + piece.len()].copy_from_slice(piece);
            length += piece.len();
        }
        let logical_size = object.len() as u64;
        let fs_data_modify_time = self.clock;
        let read = ReadData { logical_size, fs_data_modify_time, data_length: length };
        (encode(&Ok(read)), length)
    }

    fn write(
        &mut self,
        arguments: &WriteArguments,
        call: &OutgoingCall<'_>,
    ) -> Result<Written, Status> {
        self.payload_at = call.data.first().map(|slice| slice.as_ptr() as usize);
        let data = std::mem::take(&mut self.written);
        assert_eq!(data.len(), arguments.data_length);
        let object = self.objects.get_mut(&arguments.name).ok_or(Status::NoSuchObject)?;
        let mut rest = &data[..];
        for range in arguments.pieces()?.iter() {
            let end = range.end() as usize;
            object.resize(object.len().max(end), 0);
            let (piece, others) = rest.split_at(range.length as usize);
            object[range.offset as usize..end].copy_from_slice(piece);
            rest = others;
        }
        Ok(Written {
            instance: self.instance,
            length: data.len() as u64,
            logical_size: object.len() as u64,
            fs_data_modify_time: self.clock,
        })
    }
}

/// What an operation touches. One object a flush is all that these tests need.
fn access(procedure: Procedure, arguments: &[u8]) -> (Target<'static>, Rights, Option<ByteRange>) {
    let object = |name: ObjectName| Target::Object(name.partition, name.object);
    match procedure {
        Procedure::Inquiry => (Target::Nothing, Rights::empty(), None),
        Procedure::Create => {
            let create: CreateArguments = decode(arguments);
            (Target::Partition(create.partition), Rights::CREATE, None)
        }
        Procedure::Remove => {
            let remove: RemoveArguments = decode(arguments);
            (object(remove.name), Rights::REMOVE, None)
        }
        Procedure::Read => {
            let read: ReadArguments = decode(arguments);
            (object(read.name), Rights::READ, Some(read.pieces().expect("checked").span()))
        }
        Procedure::Write => {
            let write: WriteArguments = decode(arguments);
            (object(write.name), Rights::WRITE, Some(write.pieces().expect("checked").span()))
        }
        Procedure::Copyrange => {
            let CopyrangeArguments { copy, .. } = decode(arguments);
            (object(copy.name), Rights::WRITE, Some(copy.range()))
        }
        Procedure::Append => {
            let append: AppendArguments = decode(arguments);
            (object(append.name), Rights::WRITE, None)
        }
        Procedure::Flush => {
            let flush: FlushArguments = decode(arguments);
            (Target::Object(flush.partition, flush.objects[0]), Rights::FLUSH, None)
        }
        Procedure::Batch => {
            let batch: BatchArguments = decode(arguments);
            (Target::Partition(batch.partition), Rights::empty(), None)
        }
        Procedure::Removepartition => {
            let remove: RemovepartitionArguments = decode(arguments);
            (Target::Partition(remove.partition), Rights::empty(), None)
        }
        _ => {
            let getattr = |bytes| nasd_xdr::Decoder::new(bytes);
            let arguments = GetattrArguments::decode(&mut getattr(arguments)).expect("a name");
            (object(arguments.name), Rights::GETATTR, None)
        }
    }
}

fn decode<T: XdrDecode>(bytes: &[u8]) -> T {
    from_bytes(bytes).expect("the client encodes what it should")
}

fn encode<T: XdrEncode>(result: &Result<T, Status>) -> Vec<u8> {
    let mut out = Encoder::new();
    encode_result(result, &mut out);
    out.into_bytes()
}

fn reply_with(verifier: &Verifier, results: &[u8], data_length: usize) -> Reply {
    let body = verifier.to_body();
    Reply::new(OpaqueAuth { flavor: AUTH_FLAVOR, body: &body }, results, data_length)
}

/// Attributes of an object of so many bytes.
pub fn attributes_of(bytes: usize, time: Timestamp) -> Attributes {
    Attributes {
        access_control_version: 0,
        nearby_object: ObjectId(0),
        copied_object: ObjectId(0),
        logical_size: bytes as u64,
        blocks_allocated: 0,
        blocks_used: 1,
        block_size: 4096,
        create_time: time,
        data_modify_time: time,
        data_version: time.0,
        attribute_modify_time: time,
        fs_data_modify_time: time,
        fs_attribute_modify_time: time,
        fs_specific: Box::new([0; FS_SPECIFIC_BYTES]),
    }
}
