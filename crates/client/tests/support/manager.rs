//! A file manager in memory: one directory of names.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nasd_capability::{Capability, SecretKey};
use nasd_client::{ConnectOptions, Connector, ManagerClient, TransportError};
use nasd_protocol::drive::Appended;
use nasd_protocol::manager::{
    Changed, CreateFileArguments, File, FileAttributes, FileHandle, FileType,
    ForwardAppendArguments, IssuedCapability, LookupArguments, MkdirArguments, Name, PROGRAM,
    Procedure, RenameArguments, Request, UnlinkArguments, VERSION,
};
use nasd_protocol::{ManagerStatus, encode_result};
use nasd_rpc::{AUTH_SYS, AuthSys};
use nasd_transport::{Channel, ChannelError, Execution, OpaqueAuth, OutgoingCall, Reply};
use nasd_types::{DriveId, ObjectId, PartitionId, Timestamp};
use nasd_xdr::{Encoder, XdrDecode, XdrEncode, from_bytes, to_bytes};

use super::drive::attributes_of;
use super::{FakeHost, Fault, Script, break_after, broken, connect_error};

pub const ROOT: FileHandle =
    FileHandle { drive: DriveId(1), partition: PartitionId(1), object: ObjectId(4) };

/// The connector to a manager, and the manager.
pub struct FakeManager {
    pub host: Arc<FakeHost>,
    pub script: Script,
    state: Mutex<State>,
}

#[derive(Default)]
pub struct State {
    pub names: HashSet<Vec<u8>>,
    pub executed: usize,
    pub callers: Vec<AuthSys>,
    /// The numbers of changes, as they came.
    pub requests: Vec<Request>,
    /// How old the appends were that were forwarded.
    pub append_ages: Vec<u64>,
    answered: HashMap<(u64, u64), Vec<u8>>,
    /// Answer this after executing, last one first.
    pub answers: Vec<ManagerStatus>,
}

impl FakeManager {
    pub fn new(host: &Arc<FakeHost>) -> Arc<Self> {
        let (host, script) = (Arc::clone(host), Script::default());
        Arc::new(FakeManager { host, script, state: Mutex::default() })
    }

    pub fn client(self: &Arc<Self>, options: &ConnectOptions) -> ManagerClient {
        let connector = Arc::new(FakeConnector(Arc::clone(self)));
        ManagerClient::over(connector, Arc::clone(&self.host) as _, options)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct FakeConnector(Arc<FakeManager>);

impl Connector for FakeConnector {
    fn connect(&self, _timeout: Duration) -> Result<Arc<dyn Channel>, TransportError> {
        if self.0.script.next_is(&Fault::Refused) {
            return Err(connect_error().into());
        }
        let manager = Arc::clone(&self.0);
        Ok(Arc::new(FakeChannel { manager, open: AtomicBool::new(true) }))
    }

    fn address(&self) -> &str {
        "manager.test:2049"
    }
}

struct FakeChannel {
    manager: Arc<FakeManager>,
    open: AtomicBool,
}

impl Channel for FakeChannel {
    fn call(&self, call: &OutgoingCall<'_>, _into: &mut [u8]) -> Result<Reply, ChannelError> {
        assert_eq!((call.program, call.version), (PROGRAM, VERSION));
        assert_eq!(call.credential.flavor, AUTH_SYS);
        let fault = self.manager.script.next();
        if matches!(fault, Fault::Lost | Fault::Refused) || !self.is_open() {
            self.open.store(false, Ordering::SeqCst);
            return Err(broken(Execution::Never));
        }
        let results = self.manager.state().serve(call);
        if let Some(error) = break_after(&fault, &self.open, call.timeout) {
            return Err(error);
        }
        Ok(Reply::new(OpaqueAuth::NONE, &results, 0))
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::SeqCst)
    }
}

impl State {
    fn serve(&mut self, call: &OutgoingCall<'_>) -> Vec<u8> {
        self.executed += 1;
        self.callers.push(AuthSys::from_body(call.credential.body).expect("a caller"));
        let procedure = Procedure::try_from(call.procedure).expect("a procedure");
        if procedure == Procedure::ForwardAppend {
            let ForwardAppendArguments { age_ns, .. } = decode(call.arguments);
            self.append_ages.push(age_ns);
        }
        if let Some(status) = self.answers.pop() {
            return encode::<()>(&Err(status));
        }
        match procedure {
            Procedure::Create
            | Procedure::Mkdir
            | Procedure::Unlink
            | Procedure::Rmdir
            | Procedure::Rename => self.change(procedure, call.arguments),
            Procedure::Lookup => {
                let LookupArguments { name, .. } = decode(call.arguments);
                let known = self.names.contains(name.as_bytes());
                encode(&if known { Ok(file()) } else { Err(ManagerStatus::NotFound) })
            }
            Procedure::ForwardAppend => {
                encode(&Ok(Appended { offset: 7, attributes: attributes_of(10, Timestamp(5)) }))
            }
            _ => encode::<()>(&Err(ManagerStatus::Invalid)),
        }
    }

    /// Changes names, once for each request that succeeds.
    fn change(&mut self, procedure: Procedure, arguments: &[u8]) -> Vec<u8> {
        let cut = arguments.len() - to_bytes(&Request::default()).len();
        let (arguments, request): (_, Request) = (&arguments[..cut], decode(&arguments[cut..]));
        assert!(request.is_numbered() && request.oldest <= request.number);
        self.requests.push(request);
        if let Some(answer) = self.answered.get(&(request.client, request.number)) {
            return answer.clone();
        }
        let answer = match procedure {
            Procedure::Create => {
                let create: CreateFileArguments = decode(arguments);
                let made = self.make(&create.name);
                encode_changed(if create.exclusive { made } else { Ok(file()) })
            }
            Procedure::Mkdir => {
                let mkdir: MkdirArguments = decode(arguments);
                encode_changed(self.make(&mkdir.name))
            }
            Procedure::Rename => encode_changed(self.rename(&decode(arguments))),
            _ => {
                let unlink: UnlinkArguments = decode(arguments);
                encode_changed(self.remove(&unlink.name))
            }
        };
        if answer.starts_with(&[0; 4]) {
            self.answered.insert((request.client, request.number), answer.clone());
        }
        answer
    }

    fn rename(&mut self, rename: &RenameArguments) -> Result<(), ManagerStatus> {
        let (from, to) = (rename.from_name.as_bytes(), rename.to_name.as_bytes());
        if rename.flags.is_exchange() {
            let (has_from, has_to) = (self.names.remove(from), self.names.remove(to));
            self.names.extend(has_from.then(|| to.to_vec()));
            self.names.extend(has_to.then(|| from.to_vec()));
            return Ok(());
        }
        self.remove(&rename.from_name)?;
        self.names.insert(to.to_vec());
        Ok(())
    }

    fn make(&mut self, name: &Name) -> Result<File, ManagerStatus> {
        let is_new = self.names.insert(name.as_bytes().to_vec());
        if is_new { Ok(file()) } else { Err(ManagerStatus::Exists) }
    }

    fn remove(&mut self, name: &Name) -> Result<(), ManagerStatus> {
        let was_there = self.names.remove(name.as_bytes());
        if was_there { Ok(()) } else { Err(ManagerStatus::NotFound) }
    }
}

fn file() -> File {
    let attributes = FileAttributes {
        file_type: FileType::Regular,
        mode: 0o644,
        links: 1,
        uid: 0,
        gid: 0,
        size: 0,
        used_bytes: 0,
        access_time: Timestamp(0),
        modify_time: Timestamp(0),
        change_time: Timestamp(0),
        data_version: 0,
        create_time: Timestamp(0),
        device: nasd_protocol::manager::Device::NONE,
        revision: 0,
        extended: nasd_protocol::manager::Extended::NONE,
    };
    let capability = IssuedCapability {
        capability: Capability::from_bytes(&[0; 64]),
        key: SecretKey::new([0; 32]),
        sealed: None,
    };
    File { handle: ROOT, attributes, capability }
}

fn decode<T: XdrDecode>(bytes: &[u8]) -> T {
    from_bytes(bytes).expect("the client encodes what it should")
}

fn encode_changed<T: XdrEncode>(outcome: Result<T, ManagerStatus>) -> Vec<u8> {
    encode(&outcome.map(Changed::alone))
}

fn encode<T: XdrEncode>(result: &Result<T, ManagerStatus>) -> Vec<u8> {
    let mut out = Encoder::new();
    encode_result(result, &mut out);
    out.into_bytes()
}
