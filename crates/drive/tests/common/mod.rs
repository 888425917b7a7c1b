//! A drive over real sockets with a clock that tests set, and a client that can lie.
#![allow(dead_code)] // Each test binary uses its own part.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

pub mod changes;
pub mod nowhere;

use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use nasd_capability::{
    Capability, Chain, CoveredData, DataTag, Digest, DigestKeys, Narrowing, Nonce, NonceSource,
    SealedKey, SealingKeys, SecretKey, Suite, Way, capability_key, narrowed_key, procedure_bytes,
};
use nasd_device::{BlockDevice, FileDevice, FileOptions};
use nasd_drive::{Drive, DriveOptions, DriveServer, Environment, Extension};
use nasd_protocol::drive::{
    CreateArguments, Created, EXTEND_RESULT_HEAD_BYTES, FlushpartitionArguments, MadeAppend,
    ObjectState, PRIVATE_RESULT_HEAD_BYTES, PROGRAM, Procedure, PutobjectArguments,
    READ_RESULT_HEAD_BYTES, Sealed, VERSION, WriteArguments, Written, unwrap_results,
    wrap_arguments,
};
use nasd_protocol::{AUTH_FLAVOR, Credential, CredentialKey, Status, Verifier, decode_result};
use nasd_store::{FormatOptions, OpenOptions, PartitionFormat, Store, StoredKey};
use nasd_transport::{
    CallHead, Channel, ChannelError, ClientOptions, Connection, OpaqueAuth, OutgoingCall,
    ResultShape, ServerOptions,
};
use nasd_types::{
    AppendToken, AuditId, ByteRange, CellId, DriveId, FS_SPECIFIC_BYTES, ObjectId, ObjectName,
    PartitionId, Protection, Rights, SetAttributes, Timestamp,
};
use nasd_xdr::{Decoder, XdrDecode, XdrEncode, to_bytes};

pub const DRIVE: DriveId = DriveId(0xd1);
pub const PARTITION: PartitionId = PartitionId(1);
pub const OTHER_PARTITION: PartitionId = PartitionId(2);
pub const EPOCH: u32 = 7;
pub const SECOND: u64 = Timestamp::SECOND_NS;
/// When the drive is started, by its clock.
pub const START: u64 = 1_700_000_000 * SECOND;

pub fn key_of(number: u8) -> [u8; 32] {
    [number; 32]
}

pub const DRIVE_KEY: u8 = 1;
pub const PARTITION_KEY: u8 = 2;
pub const WORKING_KEY: u8 = 3;
pub const MASTER_KEY: u8 = 9;

fn partition(id: PartitionId, offset: u8) -> PartitionFormat {
    PartitionFormat {
        id,
        quota_bytes: u64::MAX,
        partition_key: StoredKey::new(key_of(PARTITION_KEY + offset)),
        working_key: StoredKey::new(key_of(WORKING_KEY + offset)),
        key_epoch: EPOCH,
    }
}

pub fn format_options() -> FormatOptions {
    FormatOptions {
        drive: DRIVE,
        cell: CellId([0xce; 16]),
        master_key: None,
        log_key: 0x6c6f_676b,
        drive_key: StoredKey::new(key_of(DRIVE_KEY)),
        partitions: vec![partition(PARTITION, 0), partition(OTHER_PARTITION, 10)],
        metadata_bytes: None,
        now: Timestamp(START - SECOND),
    }
}

pub fn new_device() -> Arc<dyn BlockDevice> {
    formatted(&format_options())
}

/// A drive whose owner has a master key.
pub fn owned_device() -> Arc<dyn BlockDevice> {
    let master_key = Some(StoredKey::new(key_of(MASTER_KEY)));
    formatted(&FormatOptions { master_key, ..format_options() })
}

pub fn formatted(options: &FormatOptions) -> Arc<dyn BlockDevice> {
    let folder = tempfile::tempdir().unwrap();
    let file = FileOptions { allow_buffered: true, ..FileOptions::default() };
    // The file is there for as long as it is open.
    let device = FileDevice::create(folder.path().join("medium"), 192 << 20, file).unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    Store::format(Arc::clone(&device), options).unwrap();
    device
}

/// A drive that bears any number of refusals over one connection.
pub fn patient() -> DriveOptions {
    let server = ServerOptions {
        unproved_in_a_row: 1 << 20,
        unproved_per_second: u32::MAX,
        ..DriveOptions::default().server
    };
    DriveOptions { server, ..DriveOptions::default() }
}

/// A drive, and what is needed to talk to it as anybody.
pub struct TestDrive {
    pub server: Option<DriveServer>,
    /// What time has passed, and the machine's time of day unless somebody has set that.
    pub clock: Arc<AtomicU64>,
    /// How far the machine's time of day was set, in nanoseconds.
    pub jump: Arc<AtomicI64>,
    pub channel: Connection,
    nonces: NonceSource,
}

impl TestDrive {
    pub fn new() -> TestDrive {
        TestDrive::with(patient())
    }

    pub fn with(options: DriveOptions) -> TestDrive {
        TestDrive::on(new_device(), options, START)
    }

    /// With a master key.
    pub fn owned() -> TestDrive {
        TestDrive::on(owned_device(), patient(), START)
    }

    /// With these extensions besides its own.
    pub fn extended(extensions: Vec<Arc<dyn Extension>>) -> TestDrive {
        TestDrive::furnished(|drive| {
            let with = |drive: Drive, extension| drive.with_extension(extension).unwrap();
            extensions.into_iter().fold(drive, with)
        })
    }

    /// A drive that is given more before it is served.
    pub fn furnished(furnish: impl FnOnce(Drive) -> Drive) -> TestDrive {
        let drive = TestDrive::starting_with(new_device(), patient(), START, furnish);
        drive.advance(60 * SECOND);
        drive
    }

    /// On a device that is formatted. The clock stands a minute after the start.
    pub fn on(device: Arc<dyn BlockDevice>, options: DriveOptions, start: u64) -> TestDrive {
        let drive = TestDrive::starting(device, options, start);
        drive.advance(60 * SECOND);
        drive
    }

    /// The same, at the start.
    pub fn starting(device: Arc<dyn BlockDevice>, options: DriveOptions, start: u64) -> TestDrive {
        TestDrive::starting_with(device, options, start, |drive| drive)
    }

    fn starting_with(
        device: Arc<dyn BlockDevice>,
        options: DriveOptions,
        start: u64,
        furnish: impl FnOnce(Drive) -> Drive,
    ) -> TestDrive {
        let clock = Arc::new(AtomicU64::new(start));
        let random = AtomicU64::new(start);
        let jump = Arc::new(AtomicI64::new(0));
        let (drives_clock, drives_jump) = (Arc::clone(&clock), Arc::clone(&jump));
        let elapsed = Arc::clone(&clock);
        let environment = Environment::new(
            move || {
                let passed = drives_clock.load(Ordering::Relaxed);
                Timestamp(passed.wrapping_add_signed(drives_jump.load(Ordering::Relaxed)))
            },
            move || Duration::from_nanos(elapsed.load(Ordering::Relaxed)),
            move || random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed),
        );
        let open = OpenOptions {
            cache_bytes: 64 << 20,
            buffer_patience: Duration::from_secs(1),
            ..OpenOptions::default()
        };
        let store = Store::open(device, &open).unwrap();
        let drive = furnish(Drive::new(store, options, environment).unwrap());
        let server = DriveServer::start(drive, TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
        let channel = Connection::tcp(server.address(), &ClientOptions::default()).unwrap();
        TestDrive { server: Some(server), clock, jump, channel, nonces: NonceSource::new(start) }
    }

    pub fn server(&self) -> &DriveServer {
        self.server.as_ref().unwrap()
    }

    pub fn now(&self) -> Timestamp {
        Timestamp(self.clock.load(Ordering::Relaxed))
    }

    pub fn advance(&self, nanoseconds: u64) {
        self.clock.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    pub fn fresh_nonce(&self) -> Nonce {
        self.nonces.draw(self.now())
    }

    /// Sends a request and checks what can be checked of the reply.
    pub fn ask(&self, request: &Request<'_>) -> Result<Answered, ChannelError> {
        self.ask_over(&self.channel, request)
    }

    pub fn ask_over(
        &self,
        channel: &dyn Channel,
        request: &Request<'_>,
    ) -> Result<Answered, ChannelError> {
        let nonce = request.nonce.unwrap_or_else(|| self.fresh_nonce());
        let sealed = request.seal(nonce);
        let mut into = vec![0; 5 << 20];
        let call = OutgoingCall {
            program: PROGRAM,
            version: VERSION,
            procedure: request.sent_procedure().into(),
            credential: OpaqueAuth { flavor: AUTH_FLAVOR, body: &sealed.credential },
            verifier: OpaqueAuth { flavor: AUTH_FLAVOR, body: &sealed.verifier },
            arguments: &sealed.arguments,
            data: &[IoSlice::new(&sealed.data)],
            results: match request.data_after() {
                Some(_) if request.is_private() => {
                    ResultShape::DataAfter { head_bytes: PRIVATE_RESULT_HEAD_BYTES }
                }
                Some(head_bytes) => ResultShape::DataAfter { head_bytes },
                None => ResultShape::Plain,
            },
            timeout: Duration::from_secs(20),
        };
        let reply = channel.call(&call, &mut into)?;
        into.truncate(reply.data_length());
        let sent = into.clone();
        let verifier = Verifier::from_opaque(&reply.verifier()).unwrap();
        let mut results = reply.results().to_vec();
        let mut status = decode_result::<(), Status>(&mut Decoder::new(&results)).unwrap().err();
        let covers_data = (request.data_after().is_some() || request.is_private())
            && status.is_none()
            && request.protection.contains(Protection::INTEGRITY_DATA);
        let sent_results = results.clone();
        let proved = request.signer.keys(request.suite).is_some_and(|keys| {
            if verifier.data_tag.is_some() != covers_data {
                return false;
            }
            let length = into.len() as u64;
            let data = verifier.data_tag.map(|tag| CoveredData { length, tag });
            let digest = keys.reply(&nonce, &verifier.nonce, &[&results], data.as_ref());
            let is_right = data.is_none_or(|data| {
                if request.protection.contains(Protection::PRIVACY_DATA) {
                    keys.open_data(Way::Reply, &verifier.nonce, &data.tag, &mut into).is_ok()
                } else {
                    keys.data(Way::Reply, &verifier.nonce, &[&into]) == data
                }
            });
            digest == verifier.digest && is_right
        });
        if request.is_private() && status.is_none() {
            let keys = request.signer.keys(request.suite).unwrap();
            results = opened_results(&keys, &verifier.nonce, &results);
            status = decode_result::<(), Status>(&mut Decoder::new(&results)).unwrap().err();
        }
        Ok(Answered { status, verifier, proved, results, data: into, sent, sent_results })
    }

    /// Sends a request but for the last byte of its data, over a connection of its own, and waits so
    /// long that what was sent has been looked at.
    pub fn begin_slowly(&self, request: &Request<'_>) -> Slow {
        let message = self.message(request);
        let mark = (message.len() as u32 | 1 << 31).to_be_bytes();
        let (first, last) = message.split_at(message.len() - 1);
        self.begin(request, &[&mark, first].concat(), last)
    }

    /// Sends all of a request, but not that it is all: what lacks is an empty last fragment.
    pub fn begin_in_fragments(&self, request: &Request<'_>) -> Slow {
        let message = self.message(request);
        let mark = (message.len() as u32).to_be_bytes();
        self.begin(request, &[&mark, &message[..]].concat(), &(1_u32 << 31).to_be_bytes())
    }

    /// Sends a request some times over a connection of its own, and takes nothing that comes.
    pub fn ask_without_taking(&self, request: &Request<'_>, times: usize) -> TcpStream {
        let mut socket = TcpStream::connect(self.server().address()).unwrap();
        for _ in 0..times {
            let message = self.message(request);
            let mark = (message.len() as u32 | 1 << 31).to_be_bytes();
            socket.write_all(&[&mark, &message[..]].concat()).unwrap();
        }
        socket
    }

    fn message(&self, request: &Request<'_>) -> Vec<u8> {
        let sealed = request.seal(self.fresh_nonce());
        let opaque = |body| OpaqueAuth { flavor: AUTH_FLAVOR, body };
        let head = CallHead {
            xid: 77,
            program: PROGRAM,
            version: VERSION,
            procedure: request.sent_procedure().into(),
            credential: opaque(&sealed.credential),
            verifier: opaque(&sealed.verifier),
        };
        assert_eq!(sealed.data.len() % 4, 0, "no padding is sent");
        [to_bytes(&head), sealed.arguments, sealed.data].concat()
    }

    fn begin(&self, request: &Request<'_>, first: &[u8], rest: &[u8]) -> Slow {
        let mut socket = TcpStream::connect(self.server().address()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.write_all(first).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        let keys = request.signer.keys(request.suite).filter(|_| request.is_private());
        Slow { socket, rest: rest.to_vec(), keys }
    }

    /// The same; then does something else, and sends the rest.
    pub fn ask_in_two_parts(
        &self,
        request: &Request<'_>,
        between: impl FnOnce(),
    ) -> (Option<Status>, bool) {
        let slow = self.begin_slowly(request);
        between();
        slow.finish()
    }

    /// The status of a request that must be refused, which must prove nothing.
    pub fn refused(&self, request: &Request<'_>) -> Status {
        let answered = self.ask(request).unwrap();
        assert_eq!(answered.verifier.digest, Digest::ZERO, "{:?}", answered.status);
        assert_eq!(answered.results.len(), 4);
        answered.status.expect("it must be refused")
    }

    /// The answer to a request by a key or capability.
    pub fn by(&self, signer: Signer, procedure: Procedure, arguments: &impl XdrEncode) -> Answered {
        self.ask(&Request::new(procedure, arguments, signer)).unwrap()
    }

    /// An empty object, made with the working key.
    pub fn new_object(&self) -> ObjectName {
        let arguments = CreateArguments {
            partition: PARTITION,
            object: None,
            durable: false,
            initial: SetAttributes { access_control_version: Some(5), ..SetAttributes::default() },
        };
        let created: Created = self
            .ask(&Request::new(Procedure::Create, &arguments, Signer::working()))
            .unwrap()
            .take();
        ObjectName { partition: PARTITION, object: created.object }
    }

    pub fn write(&self, name: ObjectName, offset: u64, data: &[u8]) -> Written {
        let arguments = WriteArguments::single(name, offset, data.len(), false);
        let request = Request::new(Procedure::Write, &arguments, Signer::working());
        self.ask(&Request { data, ..request }).unwrap().take()
    }

    /// An object with contents.
    pub fn object_with(&self, data: &[u8]) -> ObjectName {
        let name = self.new_object();
        self.write(name, 0, data);
        name
    }

    /// A capability for everything on an object made by `new_object`, for an hour.
    pub fn capability(&self, name: ObjectName) -> Capability {
        Capability {
            drive: DRIVE,
            partition: name.partition,
            object: name.object,
            region: ByteRange::ALL,
            rights: Rights::all(),
            expires: self.now().plus_ns(3600 * SECOND),
            audit_id: AuditId(99),
            minimum_protection: Protection::INTEGRITY_ARGS,
            key_epoch: EPOCH,
        }
    }
}

/// A request that lacks its end.
pub struct Slow {
    socket: TcpStream,
    rest: Vec<u8>,
    /// With which the reply is encrypted, if it is that of a private call.
    keys: Option<DigestKeys>,
}

impl Slow {
    /// Sends the rest. The status, decrypted if it was encrypted, and whether there is a digest.
    pub fn finish(mut self) -> (Option<Status>, bool) {
        self.socket.write_all(&self.rest).unwrap();
        let mut mark = [0; 4];
        self.socket.read_exact(&mut mark).unwrap();
        let mut reply = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
        self.socket.read_exact(&mut reply).unwrap();
        // xid, reply, accepted; then the verifier, the status of the call, and the results.
        let length = u32::from_be_bytes(reply[16..20].try_into().unwrap()) as usize;
        let verifier = OpaqueAuth { flavor: AUTH_FLAVOR, body: &reply[20..20 + length] };
        let verifier = Verifier::from_opaque(&verifier).unwrap();
        let results = &reply[20 + length + 4..];
        let status =
            |results: &[u8]| decode_result::<(), Status>(&mut Decoder::new(results)).unwrap().err();
        let sent = status(results);
        let opened = match &self.keys {
            Some(keys) if sent.is_none() => status(&opened_results(keys, &verifier.nonce, results)),
            _ => sent,
        };
        (opened, verifier.digest != Digest::ZERO)
    }
}

/// Whom a request claims to be, and which key it is really made with.
#[derive(Clone)]
pub struct Signer {
    pub claimed: CredentialKey,
    /// `None` makes no digest.
    pub secret: Option<SecretKey>,
}

impl Signer {
    pub fn working() -> Signer {
        let claimed = CredentialKey::WorkingCurrent(PARTITION);
        Signer { claimed, secret: Some(SecretKey::new(key_of(WORKING_KEY))) }
    }

    pub fn drive() -> Signer {
        Signer::key(CredentialKey::Drive, DRIVE_KEY)
    }

    pub fn partition() -> Signer {
        Signer::key(CredentialKey::Partition(PARTITION), PARTITION_KEY)
    }

    pub fn master() -> Signer {
        Signer::key(CredentialKey::Master, MASTER_KEY)
    }

    /// The key of that number, as it is sent to the drive.
    pub fn seal(&self, number: u8) -> SealedKey {
        static SALTS: AtomicU64 = AtomicU64::new(0);
        let mut salt = [0; 16];
        salt[8..].copy_from_slice(&SALTS.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        let under = self.secret.as_ref().expect("a signer that seals has a key");
        SealedKey::seal(&SecretKey::new(key_of(number)), under, salt)
    }

    pub fn key(claimed: CredentialKey, number: u8) -> Signer {
        Signer { claimed, secret: Some(SecretKey::new(key_of(number))) }
    }

    /// As the file manager mints it, for objects of access control version 5.
    pub fn capability(capability: &Capability) -> Signer {
        Signer::minted(capability, capability, 5)
    }

    /// Shows `shown`, with the key of `minted`.
    pub fn minted(shown: &Capability, minted: &Capability, version: u64) -> Signer {
        let working = SecretKey::new(key_of(WORKING_KEY));
        let secret = capability_key(&working, minted, version);
        Signer { claimed: CredentialKey::Capability(*shown), secret: Some(secret) }
    }

    /// By a capability for objects of access control version 5, narrowed by each of its holders.
    pub fn narrowed(capability: &Capability, narrowings: &[Narrowing]) -> Signer {
        let minted = Signer::capability(capability).secret.unwrap();
        let chain = Chain::new(narrowings.to_vec()).unwrap();
        let claimed = CredentialKey::narrowed(*capability, chain);
        Signer { claimed, secret: Some(narrowed_key(minted, narrowings)) }
    }

    /// The same, as nobody on the way can read it.
    pub fn sealed(capability: &Capability, narrowings: &[Narrowing]) -> Signer {
        let working = SecretKey::new(key_of(WORKING_KEY));
        let sealed = SealingKeys::new(&working).seal(capability);
        let chain = Chain::new(narrowings.to_vec()).unwrap();
        let claimed = CredentialKey::sealed(sealed, chain);
        Signer { claimed, ..Signer::narrowed(capability, narrowings) }
    }

    pub fn keys(&self, suite: Suite) -> Option<DigestKeys> {
        self.secret.as_ref().map(|secret| DigestKeys::new(secret, suite))
    }
}

/// Changes bytes after they were sealed.
pub type Tamper<'a> = Option<&'a (dyn Fn(&mut Vec<u8>) + Sync)>;

/// A request; tests change what they are about.
#[derive(Clone)]
pub struct Request<'a> {
    pub procedure: Procedure,
    pub arguments: Vec<u8>,
    pub data: &'a [u8],
    pub signer: Signer,
    pub suite: Suite,
    /// What the credential says instead.
    pub suite_number: Option<u32>,
    pub protection: Protection,
    /// Whether it travels in a private call if its protection says so.
    pub wrapped: bool,
    pub nonce: Option<Nonce>,
    pub tamper_credential: Tamper<'a>,
    pub tamper_verifier: Tamper<'a>,
    pub tamper_arguments: Tamper<'a>,
    pub tamper_data: Tamper<'a>,
}

struct Wired {
    credential: Vec<u8>,
    verifier: Vec<u8>,
    arguments: Vec<u8>,
    data: Vec<u8>,
}

/// What a private reply has encrypted.
fn opened_results(keys: &DigestKeys, nonce: &Nonce, results: &[u8]) -> Vec<u8> {
    let reply = decode_result::<Sealed, Status>(&mut Decoder::new(results)).unwrap().unwrap();
    let plain = keys.open_args(Way::Reply, nonce, &reply.sealed).unwrap();
    unwrap_results(&plain).unwrap().to_vec()
}

impl<'a> Request<'a> {
    pub fn is_private(&self) -> bool {
        self.protection.contains(Protection::PRIVACY_ARGS) && self.wrapped
    }

    /// After how many bytes of a result its data come, if it has some.
    fn data_after(&self) -> Option<usize> {
        match self.procedure {
            Procedure::Read => Some(READ_RESULT_HEAD_BYTES),
            Procedure::Extend => Some(EXTEND_RESULT_HEAD_BYTES),
            _ => None,
        }
    }

    /// Seals it, for what comes of that.
    pub fn seal_only(&self) {
        self.seal(Nonce::default());
    }

    /// The procedure as it is on the wire.
    pub fn sent_procedure(&self) -> Procedure {
        if self.is_private() { Procedure::Private } else { self.procedure }
    }

    pub fn new(procedure: Procedure, arguments: &impl XdrEncode, signer: Signer) -> Self {
        Request {
            procedure,
            arguments: to_bytes(arguments),
            data: &[],
            signer,
            suite: Suite::preferred(),
            suite_number: None,
            protection: Protection::INTEGRITY_ARGS,
            wrapped: true,
            nonce: None,
            tamper_credential: None,
            tamper_verifier: None,
            tamper_arguments: None,
            tamper_data: None,
        }
    }

    fn seal(&self, nonce: Nonce) -> Wired {
        let mut credential =
            Credential::new(self.signer.claimed.clone(), self.suite, self.protection);
        if let Some(number) = self.suite_number {
            credential.suite_number = number;
        }
        let mut credential = credential.to_body();
        let mut arguments = self.arguments.clone();
        let mut data = self.data.to_vec();
        let procedure = procedure_bytes(PROGRAM, VERSION, self.sent_procedure().into());
        let brings_data = matches!(self.procedure, Procedure::Write | Procedure::Append);
        let covers_data = (brings_data || self.is_private())
            && self.protection.contains(Protection::INTEGRITY_DATA);
        let keys = self.signer.keys(self.suite);
        if let (true, Some(keys)) = (self.is_private(), &keys) {
            let mut sealed = wrap_arguments(self.procedure.into(), &arguments);
            keys.seal_args(Way::Request, &nonce, &mut sealed);
            arguments = to_bytes(&Sealed { sealed, data_length: data.len() });
        }
        let covered = keys.as_ref().filter(|_| covers_data);
        let covered = covered.map(|keys| {
            if self.protection.contains(Protection::PRIVACY_DATA) {
                let tag = keys.seal_data(Way::Request, &nonce, &[self.data], &mut data);
                CoveredData { length: data.len() as u64, tag }
            } else {
                keys.data(Way::Request, &nonce, &[self.data])
            }
        });
        let digest = match keys {
            Some(keys) if !self.protection.is_empty() => {
                keys.request(&nonce, &[&procedure, &credential, &arguments], covered.as_ref())
            }
            _ => Digest::ZERO,
        };
        let data_tag = covers_data.then(|| covered.map_or(DataTag::default(), |data| data.tag));
        let mut verifier = Verifier { nonce, digest, data_tag }.to_body().to_vec();
        for (tamper, bytes) in [
            (self.tamper_credential, &mut credential),
            (self.tamper_verifier, &mut verifier),
            (self.tamper_arguments, &mut arguments),
            (self.tamper_data, &mut data),
        ] {
            if let Some(tamper) = tamper {
                tamper(bytes);
            }
        }
        Wired { credential, verifier, arguments, data }
    }
}

/// A reply.
#[derive(Debug)]
pub struct Answered {
    /// `None` is success.
    pub status: Option<Status>,
    pub verifier: Verifier,
    /// Whether the digest is right.
    pub proved: bool,
    pub results: Vec<u8>,
    pub data: Vec<u8>,
    /// The results as they were on the wire.
    pub sent_results: Vec<u8>,
    /// The data as they were on the wire.
    pub sent: Vec<u8>,
}

impl Answered {
    /// The reply of a request that must succeed.
    pub fn take<T: XdrDecode>(&self) -> T {
        let mut input = Decoder::new(&self.results);
        let reply = decode_result::<T, Status>(&mut input).unwrap();
        input.finish().unwrap();
        let reply = reply.expect("it must succeed");
        assert!(self.proved || self.verifier.digest == Digest::ZERO, "the digest is wrong");
        reply
    }

    /// The status of a request that has authority and fails all the same.
    pub fn failed(&self) -> Status {
        assert!(self.proved, "{:?} is not proved", self.status);
        self.status.expect("it must fail")
    }
}

pub fn pattern(seed: u32, length: usize) -> Vec<u8> {
    (0..length as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 7 ^ seed) as u8).collect()
}

/// A `putobject` of an object of 5000 bytes to which one append was made.
pub fn put_of(name: ObjectName) -> PutobjectArguments {
    let time = Timestamp(START);
    let (token, length) = (AppendToken([5; AppendToken::BYTES]), 10);
    let state = ObjectState {
        access_control_version: 3,
        nearby_object: ObjectId(0),
        copied_object: ObjectId(0),
        logical_size: 5000,
        blocks_allocated: 0,
        create_time: time,
        data_modify_time: time,
        attribute_modify_time: time,
        fs_data_modify_time: time,
        fs_attribute_modify_time: time,
        fs_specific: Box::new([7; FS_SPECIFIC_BYTES]),
        appends: vec![MadeAppend { token, offset: 4990, length, time }],
    };
    let ObjectName { partition, object } = name;
    PutobjectArguments { partition, object, identifiers_end: ObjectId(0), state }
}

pub fn object(number: u64) -> ObjectName {
    ObjectName { partition: PARTITION, object: ObjectId(number) }
}

/// A drive that has objects with contents, of which it knows nothing but that they are there.
pub fn cold(
    device: Arc<dyn BlockDevice>,
    lengths: &[usize],
) -> (TestDrive, Vec<(ObjectName, Vec<u8>)>) {
    let drive = TestDrive::on(Arc::clone(&device), DriveOptions::default(), START);
    let objects: Vec<_> = (1..)
        .zip(lengths)
        .map(|(seed, &length)| {
            let bytes = pattern(seed, length);
            (drive.object_with(&bytes), bytes)
        })
        .collect();
    let flush = FlushpartitionArguments { partition: PARTITION };
    assert!(drive.by(Signer::working(), Procedure::Flushpartition, &flush).status.is_none());
    drop(drive);
    let drive = TestDrive::on(device, DriveOptions::default(), START + 3600 * SECOND);
    (drive, objects)
}
