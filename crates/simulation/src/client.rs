//! Clients: the clerk's striped code, and an application that tells the checker what it does and sees.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nasd_capability::{Capability, SecretKey, capability_key};
use nasd_clerk::{Caller, ClerkError, FileHandle, Grant, IssuedCapability, Objects, RemoteDrives};
use nasd_client::{Authority, ConnectOptions, DriveClient, RetryPolicy};
use nasd_types::{
    AppendToken, AuditId, ByteRange, ObjectId, ObjectName, Protection, Rights, SetAttributes,
    Timestamp,
};

use crate::checker::{Checker, Object, REACH, WriteId, bytes_of};
use crate::director::ECHO;
use crate::drives::{PARTITION, WORKING_KEY};
use crate::logs::{LEAST, Log, Logs, appended_bytes};
use crate::manager::VIRTUAL_DRIVE;
use crate::network::{Cables, NodeId, SimulatedNetwork};
use crate::plan::Habits;
use crate::random::Random;
use crate::turns::{ProcessId, Time, lock};

/// How often it is looked whose writes have ended.
const END_EVERY: Duration = Duration::from_millis(500);

/// How often a new right is asked for in one operation.
const GRANTS: usize = 4;

/// How often an append is asked for again that may have been made.
const TRIES: usize = 3;

/// Most objects that there are while some are copied.
const MOST_OBJECTS: usize = 10;

/// How long an operation may take when all is well but what others have.
const PATIENCE: Duration = Duration::from_secs(60);

/// What all clients share: which objects there are, and what is to be in them.
#[derive(Debug)]
pub struct Shared {
    /// The checker.
    pub checker: Checker,
    /// Objects that there are, by what the checker calls them.
    pub objects: BTreeMap<Object, ObjectId>,
    /// The same of what is appended.
    pub logs: Logs,
    /// Which objects the logs are.
    pub log_ids: Vec<ObjectId>,
    /// Objects that were removed.
    pub removed: BTreeSet<ObjectId>,
    /// Operations that ended well, and that did not.
    pub done: u64,
    /// The latter.
    pub failed: u64,
    /// Whether operations may fail.
    pub may_fail: bool,
    /// What was done last by whom: what the dead have left.
    pub under_way: BTreeMap<usize, WriteId>,
}

/// A write, where it was, and the instance that was told of it.
type Unflushed = (WriteId, ByteRange, u64);

/// One of them.
pub struct Client {
    /// Its number, another one for each process.
    pub number: usize,
    /// What ends when it dies.
    pub process: ProcessId,
    time: Arc<Time>,
    drives: RemoteDrives,
    manager: DriveClient,
    /// By which it makes and removes objects, as a file manager does.
    by_key: Authority,
    shared: Arc<Mutex<Shared>>,
    grants: Mutex<BTreeMap<ObjectId, Arc<Grant>>>,
    /// What it has written and does not know to be durable, of each object: which bytes, of which write.
    unflushed: Mutex<BTreeMap<Object, Vec<Unflushed>>>,
    caller: Arc<Caller>,
}

impl Client {
    /// A new process on a node.
    pub fn new(
        cables: &Arc<Cables>,
        node: NodeId,
        manager: NodeId,
        number: usize,
        shared: &Arc<Mutex<Shared>>,
        skew: u64,
    ) -> Arc<Client> {
        let process = cables.time.process();
        let network = Arc::new(SimulatedNetwork(cables.host(node, process, skew)));
        let retry = RetryPolicy { deadline: PATIENCE, ..RetryPolicy::default() };
        let connect = ConnectOptions { retry, network, ..ConnectOptions::default() };
        let address = Cables::address(manager);
        let drives = RemoteDrives::new(connect.clone(), 1000 + number as u64);
        drives.reach(VIRTUAL_DRIVE, &address);
        let secret = SecretKey::new(WORKING_KEY);
        Arc::new(Client {
            number,
            process,
            time: Arc::clone(&cables.time),
            drives,
            manager: DriveClient::tcp(address, Some(VIRTUAL_DRIVE), &connect),
            by_key: Authority::working_key(PARTITION, secret, Protection::INTEGRITY_ARGS),
            shared: Arc::clone(shared),
            grants: Mutex::default(),
            unflushed: Mutex::default(),
            caller: Arc::new(Caller { uid: 0, gid: 0, groups: Vec::new() }),
        })
    }

    /// Begins what a clerk does in the background.
    pub fn begin(self: &Arc<Self>) {
        let own = Arc::clone(self);
        self.time.spawn(self.process, move || {
            loop {
                own.time.sleep(END_EVERY);
                own.drives.end_writes();
            }
        });
    }

    /// Does something by the right to an object; by a new one, if that is asked for.
    fn granted<T>(
        &self,
        object: ObjectId,
        mut run: impl FnMut(&Grant) -> Result<T, ClerkError>,
    ) -> Result<T, ClerkError> {
        let mut version = 1;
        for _ in 0..GRANTS {
            match run(&self.grant(object, version)) {
                Err(ClerkError::Drive(status)) if status.needs_new_capability() => {}
                told => return told,
            }
            let told = self.manager.getattr(&self.by_key, Client::name(object))?;
            version = told.access_control_version;
            lock(&self.grants).remove(&object);
        }
        run(&self.grant(object, version))
    }

    /// The right to an object, as a file manager grants it.
    fn grant(&self, object: ObjectId, version: u64) -> Arc<Grant> {
        let mut grants = lock(&self.grants);
        let grant = grants.entry(object).or_insert_with(|| {
            let name = ObjectName { partition: PARTITION, object };
            let capability = Capability {
                drive: VIRTUAL_DRIVE,
                partition: PARTITION,
                object,
                region: ByteRange::ALL,
                rights: Rights::READ | Rights::WRITE | Rights::GETATTR | Rights::FLUSH,
                expires: Timestamp::MAX,
                audit_id: AuditId(1),
                minimum_protection: Protection::INTEGRITY_ARGS,
                key_epoch: 1,
            };
            let key = capability_key(&SecretKey::new(WORKING_KEY), &capability, version);
            let issued = IssuedCapability { capability, key, sealed: None };
            let handle = FileHandle::new(VIRTUAL_DRIVE, name);
            let protection = Protection::INTEGRITY_ARGS;
            Arc::new(Grant::new(Arc::clone(&self.caller), handle, issued, protection))
        });
        Arc::clone(grant)
    }

    fn name(object: ObjectId) -> ObjectName {
        ObjectName { partition: PARTITION, object }
    }

    /// Makes an object.
    pub fn create(&self) -> Result<Object, ClerkError> {
        let made = self.create_object()?;
        let mut shared = lock(&self.shared);
        let object = shared.checker.create();
        shared.objects.insert(object, made);
        self.time.tell(|| format!("object {object} is {:x}", made.0));
        Ok(object)
    }

    /// Makes an object to which is only appended.
    pub fn create_log(&self) -> Result<(), ClerkError> {
        let made = self.create_object()?;
        let mut shared = lock(&self.shared);
        let log = shared.logs.create();
        shared.log_ids.push(made);
        self.time.tell(|| format!("log {log} is {:x}", made.0));
        Ok(())
    }

    fn create_object(&self) -> Result<ObjectId, ClerkError> {
        let initial = SetAttributes { access_control_version: Some(1), ..SetAttributes::default() };
        let made = self.manager.create(&self.by_key, PARTITION, &initial, true);
        Ok(self.note("create", made.map_err(ClerkError::from))?.object)
    }

    /// What an operation came to.
    fn note<T>(&self, what: &str, told: Result<T, ClerkError>) -> Result<T, ClerkError> {
        let mut shared = lock(&self.shared);
        match &told {
            Ok(_) => shared.done += 1,
            Err(error) => {
                shared.failed += 1;
                let text = format!("client {}: {what} failed: {error}", self.number);
                let may_fail = shared.may_fail;
                drop(shared);
                self.time.tell(|| text.clone());
                if !may_fail {
                    self.time.fail(text);
                }
            }
        }
        told
    }

    /// Does so many operations, drawn at random.
    pub fn work(&self, operations: usize, habits: Habits, random: &mut Random) {
        for _ in 0..operations {
            if habits.logs > 0 && random.one_in(4) {
                self.work_on_log(random.index(habits.logs), random);
                continue;
            }
            let objects: Vec<Object> = lock(&self.shared).objects.keys().copied().collect();
            if objects.is_empty() {
                continue;
            }
            let object = objects[random.index(objects.len())];
            match random.index(22) {
                0..=7 => self.write(object, random),
                8..=13 => self.read(object, some_range(random)),
                14..=16 => self.flush(object),
                17 => self.cut(object, random.below(REACH)),
                18 => self.look(object),
                19 if random.one_in(4) => self.replace(object),
                20 if habits.copies => self.copy(object),
                _ => self.time.sleep(random.between(Duration::ZERO, Duration::from_secs(2))),
            }
            if random.one_in(3) {
                self.time.sleep(random.between(Duration::ZERO, Duration::from_millis(300)));
            }
        }
    }

    /// Appends to a log, or reads it.
    fn work_on_log(&self, log: Log, random: &mut Random) {
        if random.one_in(3) {
            return self.read_log(log);
        }
        let most = if random.one_in(4) { 9000 } else { 300 };
        let length = LEAST + random.below(most);
        let token = (u128::from(random.draw()) << 64) | u128::from(random.draw());
        self.append(log, length, AppendToken(token.to_be_bytes()));
    }

    /// Appends, once, however often that has to be asked for.
    fn append(&self, log: Log, length: u64, token: AppendToken) {
        let id = lock(&self.shared).log_ids[log];
        let Some(append) = lock(&self.shared).logs.begin(log, length) else { return };
        let number = self.number;
        self.time.tell(|| format!("client {number}: {append:?} of {length} to log {log}"));
        let bytes = appended_bytes(append, length);
        let first = self.time.now();
        let ask = || {
            self.granted(id, |grant| {
                let age = self.time.now() - first;
                self.drives.append(grant, (token, age), &bytes)
            })
        };
        let mut told = ask();
        for _ in 1..TRIES {
            if told.is_err() {
                told = ask();
            }
        }
        if let Ok(appended) = self.note("append", told) {
            let at = appended.offset;
            self.time.tell(|| format!("client {number}: {append:?} is at {at}"));
            let kept = lock(&self.shared).logs.acknowledge(append, at);
            if let Err(violation) = kept {
                self.time.fail(format!("client {number} appends: {violation}"));
            }
        }
    }

    /// Reads all of a log, and compares.
    pub fn read_log(&self, log: Log) {
        let id = lock(&self.shared).log_ids[log];
        let there = lock(&self.shared).logs.begin_read(log);
        let mut into = vec![0; REACH as usize];
        let told = self.granted(id, |grant| self.drives.read(grant, 0, &mut into));
        let Ok(outcome) = self.note("read", told) else { return };
        let checked = lock(&self.shared).logs.end_read(log, &there, &into[..outcome.length]);
        if let Err(violation) = checked {
            self.time.fail(format!("client {} reads: {violation}", self.number));
        }
    }

    fn object(&self, object: Object) -> Option<ObjectId> {
        lock(&self.shared).objects.get(&object).copied()
    }

    fn write(&self, object: Object, random: &mut Random) {
        let range = some_range(random);
        let durable = random.one_in(10);
        self.write_range(object, range, durable);
    }

    /// Writes a range; what is in it is the checker's affair.
    pub fn write_range(&self, object: Object, range: ByteRange, durable: bool) {
        let Some(id) = self.object(object) else { return };
        let (offset, end) = (range.offset, range.end());
        let mut shared = lock(&self.shared);
        let write = shared.checker.begin_write(object, self.number, offset..end);
        shared.under_way.insert(self.number, write);
        drop(shared);
        let number = self.number;
        self.time.tell(|| format!("client {number}: {write:?} {object} {offset}..{end} {durable}"));
        let data = bytes_of(write, offset..end);
        // A durable one makes durable what was written before.
        let mark = self.unflushed(object);
        let flush = durable.then(|| lock(&self.shared).checker.begin_durable_write(object));
        let told = self.granted(id, |grant| self.drives.write(grant, offset, &data, durable));
        let told = self.note("write", told);
        let mut shared = lock(&self.shared);
        shared.under_way.remove(&self.number);
        match told {
            Ok(written) => {
                let instance = written.instance;
                shared.checker.acknowledge(object, write, instance, durable);
                if let Some(flush) = flush {
                    shared.checker.end_flush(object, self.number, flush, instance);
                }
                drop(shared);
                self.time.tell(|| format!("client {number}: {write:?} is done, {instance}"));
                let mut unflushed = lock(&self.unflushed);
                let own = unflushed.entry(object).or_default();
                match durable {
                    true => {
                        own.retain(|(write, _, told)| *told != instance || !mark.contains(write))
                    }
                    false => own.push((write, range, instance)),
                }
            }
            Err(_) => self.fail_later(write),
        }
    }

    /// The writes of an object that were acknowledged, and are not known to be durable.
    fn unflushed(&self, object: Object) -> Vec<WriteId> {
        let unflushed = lock(&self.unflushed);
        unflushed.get(&object).into_iter().flatten().map(|(write, ..)| *write).collect()
    }

    /// What failed may be done yet, by those who have been asked for it.
    fn fail_later(&self, write: WriteId) {
        let shared = Arc::clone(&self.shared);
        self.time.after(ECHO, move |_| lock(&shared).checker.fail(write));
    }

    /// Reads, and compares.
    pub fn read(&self, object: Object, range: ByteRange) {
        let Some(id) = self.object(object) else { return };
        let read = lock(&self.shared).checker.begin_read(object, range.offset..range.end());
        let mut into = vec![0xee; range.length as usize];
        let told = self.granted(id, |grant| self.drives.read(grant, range.offset, &mut into));
        let told = self.note("read", told);
        let mut shared = lock(&self.shared);
        match told {
            Ok(outcome) => {
                let number = self.number;
                self.time.tell(|| {
                    let ByteRange { offset, length } = range;
                    let came = outcome.length;
                    format!("client {number}: read {object} {offset}+{length}: {came}")
                });
                let checked = shared.checker.end_read(object, read, &into[..outcome.length]);
                drop(shared);
                if let Err(violation) = checked {
                    self.time.fail(format!("client {} reads: {violation}", self.number));
                }
            }
            Err(_) => shared.checker.give_up_read(object, read),
        }
    }

    /// Makes an object durable: what the drives may have lost since it was written is written once more.
    pub fn flush(&self, object: Object) {
        let Some(id) = self.object(object) else { return };
        for _ in 0..20 {
            let mark = self.unflushed(object);
            let flush = lock(&self.shared).checker.begin_flush(object);
            let told = self.granted(id, |grant| self.drives.flush(grant));
            let Ok(instance) = self.note("flush", told) else { return };
            let number = self.number;
            self.time.tell(|| format!("client {number}: {object} is durable, {instance}"));
            lock(&self.shared).checker.end_flush(object, self.number, flush, instance);
            let mut lost = Vec::new();
            {
                let mut unflushed = lock(&self.unflushed);
                let own = unflushed.entry(object).or_default();
                own.retain(|(write, range, told)| {
                    if mark.contains(write) && *told != instance {
                        lost.push(*range);
                    }
                    !mark.contains(write)
                });
            }
            if lost.is_empty() {
                return;
            }
            for range in lost {
                self.write_range(object, range, false);
            }
        }
        self.time.fail(format!("client {}: {object} can't be made durable", self.number));
    }

    /// Sets the length, as a file manager does.
    fn cut(&self, object: Object, length: u64) {
        let Some(id) = self.object(object) else { return };
        let mut shared = lock(&self.shared);
        let cut = shared.checker.begin_cut(object, self.number, length);
        shared.under_way.insert(self.number, cut);
        drop(shared);
        let number = self.number;
        self.time.tell(|| format!("client {number}: {cut:?} {object} is cut to {length}"));
        let changes = SetAttributes { logical_size: Some(length), ..SetAttributes::default() };
        let told = self.manager.setattr(&self.by_key, Client::name(id), &changes, true);
        let told = self.note("setattr", told.map_err(ClerkError::from));
        let mut shared = lock(&self.shared);
        shared.under_way.remove(&self.number);
        match told {
            Ok(_) => shared.checker.acknowledge(object, cut, 0, true),
            Err(_) => self.fail_later(cut),
        }
        drop(shared);
        self.time.tell(|| format!("client {number}: {cut:?} is done"));
    }

    /// Removes an object, and makes another one.
    fn replace(&self, object: Object) {
        // Nobody begins anything with it any more.
        let Some(id) = lock(&self.shared).objects.remove(&object) else { return };
        let number = self.number;
        self.time.tell(|| format!("client {number}: {object} is removed"));
        let told = self.manager.remove(&self.by_key, Client::name(id), true);
        if self.note("remove", told.map_err(ClerkError::from)).is_ok() {
            lock(&self.shared).removed.insert(id);
        }
        // Where it failed there may be one that nobody knows of.
        let _ = self.create();
    }

    /// Makes an object that shares the blocks of another, as a file manager does.
    fn copy(&self, object: Object) {
        let Some(id) = self.object(object) else { return };
        let mut shared = lock(&self.shared);
        if shared.objects.len() >= MOST_OBJECTS {
            return;
        }
        let copying = shared.checker.begin_copy(object);
        drop(shared);
        let number = self.number;
        self.time.tell(|| format!("client {number}: {object} is copied"));
        let told = self.manager.fastcopy(&self.by_key, Client::name(id));
        let told = self.note("fastcopy", told.map_err(ClerkError::from));
        let mut shared = lock(&self.shared);
        match told {
            Ok(made) => {
                let copy = shared.checker.end_copy(object, copying);
                shared.objects.insert(copy, made.object);
                drop(shared);
                self.time.tell(|| format!("object {copy} is {:x}, of {object}", made.object.0));
            }
            Err(_) => shared.checker.give_up_read(object, copying),
        }
    }

    /// Asks for the attributes.
    fn look(&self, object: Object) {
        let Some(id) = self.object(object) else { return };
        let told = self.granted(id, |grant| self.drives.getattr(grant));
        // What the length may be meanwhile is known only when nothing is under way.
        let _ = self.note("getattr", told);
    }

    /// The map of an object, with what is where.
    pub fn map(&self, id: ObjectId) -> Result<nasd_protocol::drive::ObjectMap, ClerkError> {
        let arguments = nasd_protocol::drive::MapArguments {
            name: Client::name(id),
            write: false,
            end: 0,
            client: 1000 + self.number as u64,
        };
        self.granted(id, |grant| {
            let protection = grant.authority.protection() | Protection::PRIVACY_ARGS;
            let authority = Authority::capability(&grant.issued, protection);
            Ok(self.manager.map(&authority, &arguments)?)
        })
    }

    /// The length that the striping manager tells.
    pub fn size(&self, id: ObjectId) -> Result<u64, ClerkError> {
        Ok(self.manager.getattr(&self.by_key, Client::name(id))?.logical_size)
    }
}

/// Bytes somewhere: a few or many, often across the end of a block or a unit.
fn some_range(random: &mut Random) -> ByteRange {
    let offset = match random.index(3) {
        0 => random.below(REACH / 4096) * 4096,
        1 => (random.below(REACH / 4096) * 4096).saturating_sub(random.below(600)),
        _ => random.below(REACH - 1),
    };
    let length = match random.index(4) {
        0 => 1 + random.below(700),
        1 => 4096 * (1 + random.below(3)),
        _ => 1 + random.below(40 << 10),
    };
    // Half of all are near the beginning, where they meet.
    let offset = if random.one_in(2) { offset / 8 } else { offset };
    ByteRange::new(offset, length.min(REACH - offset))
}
