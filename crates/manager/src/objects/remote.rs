//! Objects at drives, over the network.
//!
//! The manager acts by the partition's current working key: so the drives count its traffic as
//! that of a holder of keys, apart from the data that clients move by their capabilities.
//!
//! A call waits for a drive that is away as long as its [`Wait`] says. When one has waited in
//! vain, the next ones wait briefly until the drive answers again: calls that need it fail soon,
//! and the others don't queue up behind them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nasd_client::{Authority, ClientError, ConnectOptions, DriveClient, RetryPolicy};
use nasd_protocol::drive::{
    BatchArguments, BatchKind, BatchOperation, DriveControl, PartitionControl,
};
use nasd_protocol::manager::FileHandle;
use nasd_protocol::{Region, Status};
use nasd_types::{
    Attributes, DriveId, Location, ObjectId, ObjectName, PartitionId, Protection, SetAttributes,
    Timestamp,
};
use nasd_xdr::{XdrDecode, from_bytes};

use super::{NewObject, ObjectError, ObjectStore, Outcomes, Wait};
use crate::config::{DriveConfig, ManagerConfig, TableError};
use crate::keys::{ChangeError, WorkingKey, WorkingKeys};

/// Enough for the control objects with as many partitions as there may be.
const CONTROL_BYTES: usize = 64 << 10;

/// How often a call is signed anew because the working key has changed.
const MAX_KEY_CHANGES: u32 = 64;

struct Drive {
    patient: DriveClient,
    brief: DriveClient,
    /// The partition, as files are known that are in it.
    known_as: PartitionId,
    /// Where it is.
    location: Location,
    /// The options that drive and partition are known to demand.
    demanded: AtomicU32,
    /// By the working key of that epoch.
    by_working_key: Mutex<Option<(u32, Arc<Authority>)>>,
    /// A patient call has waited in vain, and none was answered since.
    is_away: AtomicBool,
}

/// Gives a drive a working key.
type SendKey<'a> = &'a mut dyn FnMut(&WorkingKey) -> Result<(), ObjectError>;

/// The volume's drives.
pub struct RemoteDrives {
    /// By the drives as files are known that are there.
    drives: RwLock<BTreeMap<DriveId, Arc<Drive>>>,
    keys: Arc<WorkingKeys>,
    connect: ConnectOptions,
    short_patience: Duration,
    protection: Protection,
}

impl std::fmt::Debug for RemoteDrives {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(ObjectStore::drives(self)).finish()
    }
}

impl Drive {
    fn new(told: &DriveConfig, connect: &ConnectOptions, short_patience: Duration) -> Arc<Drive> {
        let location = told.location();
        let patient = DriveClient::tcp(told.address.clone(), Some(location.drive), connect);
        Arc::new(Drive {
            brief: patient.with_retry(RetryPolicy::within(short_patience)),
            patient,
            known_as: told.partition,
            location,
            demanded: AtomicU32::new(Protection::NONE.bits()),
            by_working_key: Mutex::new(None),
            is_away: AtomicBool::new(false),
        })
    }

    fn demanded(&self) -> Protection {
        Protection::from_bits_retain(self.demanded.load(Ordering::Relaxed))
    }
}

impl RemoteDrives {
    /// The drives of a configuration, asked by these keys. Nothing is sent before the first call.
    pub fn new(config: &ManagerConfig, keys: Arc<WorkingKeys>) -> RemoteDrives {
        let connect = ConnectOptions {
            connections: config.drive_connections,
            retry: RetryPolicy::within(config.patience),
            network: Arc::clone(&config.network),
            ..ConnectOptions::default()
        };
        // Whatever clients are told: who can alter the manager's requests can alter the name space.
        let protection = config.protection | Protection::INTEGRITY_ARGS;
        let short_patience = config.short_patience;
        let drive = |told: &DriveConfig| (told.id, Drive::new(told, &connect, short_patience));
        let drives = RwLock::new(config.drives.iter().map(drive).collect());
        RemoteDrives { drives, keys, connect, short_patience, protection }
    }

    fn drive(&self, id: DriveId) -> Option<Arc<Drive>> {
        self.drives.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// The part that files know by this drive is elsewhere from now on, as `write_down` tells when it has made that durable; nothing that was given
    /// out for where it was is good any more. Nothing may change in that part meanwhile. The drive that has it then is asked before, if it is known
    /// where that is reached.
    ///
    /// # Errors
    /// [`ChangeError`]; then it is where it was.
    pub fn relocate(
        &self,
        id: DriveId,
        (to, address): (Location, Option<String>),
        write_down: impl FnOnce() -> Result<DriveConfig, TableError>,
    ) -> Result<(), ChangeError> {
        let before = self.drive(id).ok_or(ChangeError::NoAuthority)?;
        // So that both changes of keys are not what finds out that it is away, or what it demands.
        before.brief.inquiry().map_err(object_error)?;
        self.learn_demands(id, &before);
        // The partition there demands what the one here does.
        let mut demanded = before.demanded();
        if let Some(address) = address {
            let there = DriveClient::tcp(address, Some(to.drive), &self.connect);
            let there = there.with_retry(RetryPolicy::within(self.short_patience));
            demanded |= there.inquiry().map_err(object_error)?.minimum_protection;
        }
        self.send_by_partition_key(id, &before, &Cell::new(false), |send| {
            self.keys.relocate(id, now(), send, || {
                let told = write_down()?;
                let there = Drive::new(&told, &self.connect, self.short_patience);
                there.demanded.store(demanded.bits(), Ordering::Relaxed);
                let mut drives = self.drives.write().unwrap_or_else(PoisonError::into_inner);
                drives.insert(id, there);
                Ok(told)
            })
        })
    }

    /// The keys that the drives are asked by.
    pub fn keys(&self) -> &WorkingKeys {
        &self.keys
    }

    /// Changes a drive's working key, as often as is owed and once at least. Whoever needs the
    /// drive's key waits meanwhile; so a drive that is away is found out before.
    ///
    /// # Errors
    /// [`ChangeError`]; what was begun is taken up by the next call.
    pub fn change_key(&self, drive: DriveId) -> Result<(), ChangeError> {
        loop {
            let remote = self.drive(drive).ok_or(ChangeError::NoAuthority)?;
            remote.brief.inquiry().map_err(object_error)?;
            let sent = self.send_keys(drive, &remote);
            if sent.is_ok() || self.is_there(drive, &remote) {
                return sent;
            }
        }
    }

    /// Whether the part that files know by this drive is still where it was found.
    fn is_there(&self, id: DriveId, found: &Drive) -> bool {
        self.drive(id).is_some_and(|now| std::ptr::eq(Arc::as_ptr(&now), found))
    }

    fn send_keys(&self, drive: DriveId, remote: &Drive) -> Result<(), ChangeError> {
        let is_too_weak = Cell::new(false);
        let sent = self.try_to_send_keys(drive, remote, &is_too_weak);
        // What is demanded can't be asked while keys change.
        if is_too_weak.get() && self.learn_demands(drive, remote) {
            return self.try_to_send_keys(drive, remote, &is_too_weak);
        }
        sent
    }

    fn try_to_send_keys(
        &self,
        drive: DriveId,
        remote: &Drive,
        is_too_weak: &Cell<bool>,
    ) -> Result<(), ChangeError> {
        self.send_by_partition_key(drive, remote, is_too_weak, |send| {
            self.keys.change(drive, now(), send)
        })
    }

    /// Does something by what gives a drive working keys.
    fn send_by_partition_key(
        &self,
        drive: DriveId,
        remote: &Drive,
        is_too_weak: &Cell<bool>,
        change: impl FnOnce(SendKey<'_>) -> Result<(), ChangeError>,
    ) -> Result<(), ChangeError> {
        let (protection, partition) = (self.protection_for(remote), remote.location.partition);
        let authority = |key| Authority::partition_key(partition, key, protection);
        let mut by = self.keys.partition_keys(drive)?.into_iter().map(authority);
        let mut right = by.next().ok_or(ChangeError::NoAuthority)?;
        change(&mut |WorkingKey { epoch, key }| {
            if !self.is_there(drive, remote) {
                // Nobody moves it while keys change: from now on they are those of where it is.
                let reason = "its part of the volume is elsewhere by now".to_owned();
                return Err(ObjectError::Unavailable { reason, maybe_done: false });
            }
            loop {
                let set = remote.brief.set_working_key(&right, partition, *epoch, key);
                // Also if an earlier try was lost: it had the same key.
                let status = set.as_ref().err().and_then(ClientError::status);
                let weak = [Some(Status::RefusedProtection), Some(Status::RefusedMinimum)];
                is_too_weak.set(weak.contains(&status));
                let is_wrong = status == Some(Status::RefusedDigest);
                match is_wrong.then(|| by.next()).flatten() {
                    Some(other) => right = other,
                    None => return set.map_err(object_error),
                }
            }
        })
    }

    /// The authority of the present working key, and the key's number.
    fn authority(&self, id: DriveId, drive: &Drive) -> Option<(u32, Arc<Authority>)> {
        let key = self.keys.current(id)?;
        let protection = self.protection_for(drive);
        let mut known = drive.by_working_key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((epoch, authority)) = &*known
            && *epoch == key.epoch
            && authority.protection() == protection
        {
            return Some((*epoch, Arc::clone(authority)));
        }
        let authority = Authority::working_key(drive.location.partition, key.key, protection);
        let fresh = (key.epoch, Arc::new(authority));
        *known = Some(fresh.clone());
        Some(fresh)
    }

    /// What requests to the drive are protected with.
    fn protection_for(&self, drive: &Drive) -> Protection {
        self.protection | drive.demanded()
    }

    /// Asks what drive and partition demand, whose minimum may have been raised since; whether it is
    /// more than requests were protected with. Whoever forges the answer to `inquiry` can make it more
    /// than is needed, and no less.
    fn learn_demands(&self, id: DriveId, drive: &Drive) -> bool {
        let (Ok(told), Some(key)) = (drive.brief.inquiry(), self.keys.current(id)) else {
            return false;
        };
        // With all that there is, as the partition may demand any of it.
        let private = Protection::PRIVACY_CAPABILITY;
        let strongest = told.protections.intersection(Protection::SUPPORTED).difference(private);
        let partition = drive.location.partition;
        let by = Authority::working_key(partition, key.key, strongest);
        let of_partition = match drive.brief.partition_control(&by, partition) {
            Ok(control) => control.summary.minimum_protection,
            Err(error) => {
                tracing::warn!(drive = %id, %error, "the partition's minimum is not known");
                Protection::NONE
            }
        };
        let demanded = told.minimum_protection | of_partition;
        let knew = self.protection_for(drive);
        drive.demanded.store(demanded.bits(), Ordering::Relaxed);
        !knew.contains(demanded)
    }

    /// Whether the working key is another than that of `epoch`, with which a call was refused: it
    /// was changed meanwhile, or the drive has got a key that was not known to have arrived.
    fn has_key_changed(&self, id: DriveId, drive: &Drive, epoch: u32) -> bool {
        if self.keys.epoch(id).is_some_and(|now| now != epoch) {
            return true;
        }
        if !self.keys.has_pending(id) {
            return false;
        }
        if let Err(error) = self.send_keys(id, drive) {
            tracing::warn!(drive = %id, %error, "a change of the working key is not complete");
        }
        self.keys.epoch(id).is_some_and(|now| now != epoch)
    }

    fn on<T>(
        &self,
        id: DriveId,
        wait: Wait,
        mut call: impl FnMut(&DriveClient, &Authority, PartitionId) -> Result<T, ClientError>,
    ) -> Result<T, ObjectError> {
        let mut drive = self.drive(id).ok_or(ObjectError::NoSuchObject)?;
        let patient = wait == Wait::Patient && !drive.is_away.load(Ordering::Relaxed);
        let mut changes = 0;
        let result = loop {
            let client = if patient { &drive.patient } else { &drive.brief };
            let (epoch, authority) = self.authority(id, &drive).ok_or(ObjectError::NoSuchObject)?;
            match call(client, &authority, drive.location.partition) {
                Err(ClientError::Refused(_))
                    if changes < MAX_KEY_CHANGES && self.has_moved(id, &mut drive) =>
                {
                    changes += 1;
                }
                Err(ClientError::Refused(status))
                    if status.needs_new_capability()
                        && changes < MAX_KEY_CHANGES
                        && self.has_key_changed(id, &drive, epoch) =>
                {
                    changes += 1;
                }
                Err(ClientError::Refused(Status::RefusedProtection | Status::RefusedMinimum))
                    if changes < MAX_KEY_CHANGES && self.learn_demands(id, &drive) =>
                {
                    changes += 1;
                }
                result => break result.map_err(object_error),
            }
        };
        match &result {
            Err(ObjectError::Unavailable { .. }) if patient => {
                drive.is_away.store(true, Ordering::Relaxed);
            }
            Err(ObjectError::Unavailable { .. }) => {}
            _ => drive.is_away.store(false, Ordering::Relaxed),
        }
        result
    }

    /// Whether the drive's part was moved since it was looked up; then that is where it is now.
    fn has_moved(&self, id: DriveId, drive: &mut Arc<Drive>) -> bool {
        let Some(now) = self.drive(id).filter(|now| !Arc::ptr_eq(now, drive)) else {
            return false;
        };
        *drive = now;
        true
    }

    /// Does what goes into one call.
    fn one_batch(
        &self,
        drive: DriveId,
        operations: &[BatchOperation],
        durable: bool,
        wait: Wait,
    ) -> Result<Outcomes, ObjectError> {
        let makes = operations.iter().any(|each| each.kind() == BatchKind::Create);
        let batched = self.on(drive, wait, |client, authority, partition| {
            let arguments = BatchArguments {
                partition,
                durable,
                with_attributes: makes,
                operations: operations.to_vec(),
            };
            client.batch(authority, &arguments)
        })?;
        let error = |status| object_error(ClientError::Drive(status));
        Ok(batched.outcomes.into_iter().map(|outcome| outcome.map_err(error)).collect())
    }

    fn read_control<T: XdrDecode>(
        &self,
        drive: DriveId,
        object: ObjectId,
    ) -> Result<T, ObjectError> {
        let data = self.on(drive, Wait::Brief, |client, authority, partition| {
            let mut data = vec![0; CONTROL_BYTES.min(client.max_transfer())];
            let name = ObjectName { partition, object };
            let outcome = client.read(authority, name, 0, &mut data)?;
            data.truncate(outcome.length);
            Ok(data)
        })?;
        from_bytes(&data).map_err(|error| ObjectError::Fault(format!("control object: {error}")))
    }
}

/// The manager's own clock: ages of keys are its affair.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_parts(since.as_secs(), since.subsec_nanos())
}

/// The name of an object where its part of the volume is.
fn within(partition: PartitionId, object: FileHandle) -> ObjectName {
    ObjectName { partition, object: object.object }
}

fn object_error(error: ClientError) -> ObjectError {
    match &error {
        ClientError::Drive(Status::NoSuchObject | Status::NoSuchPartition) => {
            ObjectError::NoSuchObject
        }
        ClientError::Drive(Status::NoSpace) => ObjectError::NoSpace,
        ClientError::Drive(Status::ReadOnly) => ObjectError::ReadOnly,
        ClientError::Unreachable { may_have_run, .. } => {
            ObjectError::Unavailable { reason: error.to_string(), maybe_done: *may_have_run }
        }
        _ if !error.may_have_run() => ObjectError::Refused(error.to_string()),
        _ => ObjectError::Fault(error.to_string()),
    }
}

impl ObjectStore for RemoteDrives {
    fn drives(&self) -> Vec<DriveId> {
        self.drives.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    fn partition(&self, drive: DriveId) -> Option<PartitionId> {
        self.drive(drive).map(|drive| drive.known_as)
    }

    fn location(&self, drive: DriveId) -> Option<Location> {
        self.drive(drive).map(|drive| drive.location)
    }

    fn create(
        &self,
        drive: DriveId,
        initial: &SetAttributes,
        durable: bool,
        wait: Wait,
    ) -> Result<NewObject, ObjectError> {
        self.on(drive, wait, |client, authority, partition| {
            let created = client.create(authority, partition, initial, durable)?;
            let partition = self.partition(drive).unwrap_or(partition);
            let handle = FileHandle { drive, partition, object: created.object };
            Ok(NewObject { handle, attributes: created.attributes })
        })
    }

    fn remove(&self, object: FileHandle, durable: bool, wait: Wait) -> Result<(), ObjectError> {
        self.on(object.drive, wait, |client, authority, partition| {
            client.remove(authority, within(partition, object), durable)
        })
    }

    fn getattr(&self, object: FileHandle, wait: Wait) -> Result<Attributes, ObjectError> {
        self.on(object.drive, wait, |client, authority, partition| {
            client.getattr(authority, within(partition, object))
        })
    }

    fn setattr(
        &self,
        object: FileHandle,
        changes: &SetAttributes,
        durable: bool,
        wait: Wait,
    ) -> Result<Attributes, ObjectError> {
        self.on(object.drive, wait, |client, authority, partition| {
            client.setattr(authority, within(partition, object), changes, durable)
        })
    }

    fn blocks_required(
        &self,
        object: FileHandle,
        offset: u64,
        length: u64,
        wait: Wait,
    ) -> Result<u64, ObjectError> {
        let region = Region::single(offset, length);
        self.on(object.drive, wait, |client, authority, partition| {
            Ok(client.blocks_required(authority, within(partition, object), &[region])?.maximum)
        })
    }

    fn read(
        &self,
        object: FileHandle,
        offset: u64,
        length: u64,
        wait: Wait,
    ) -> Result<Vec<u8>, ObjectError> {
        let mut data = Vec::new();
        while (data.len() as u64) < length {
            let start = data.len();
            let (wanted, got) = self.on(object.drive, wait, |client, authority, partition| {
                let left = usize::try_from(length).unwrap_or(usize::MAX) - start;
                let wanted = left.min(client.max_transfer());
                data.resize(start + wanted, 0);
                let at = offset + start as u64;
                let outcome =
                    client.read(authority, within(partition, object), at, &mut data[start..])?;
                Ok((wanted, outcome.length))
            })?;
            data.truncate(start + got);
            if got < wanted {
                break;
            }
        }
        Ok(data)
    }

    fn write(
        &self,
        object: FileHandle,
        offset: u64,
        data: &[u8],
        durable: bool,
        wait: Wait,
    ) -> Result<u64, ObjectError> {
        self.on(object.drive, wait, |client, authority, partition| {
            let written =
                client.write(authority, within(partition, object), offset, data, durable)?;
            Ok(written.instance)
        })
    }

    fn flush(&self, drive: DriveId, objects: &[ObjectId], wait: Wait) -> Result<u64, ObjectError> {
        self.on(drive, wait, |client, authority, partition| {
            client.flush(authority, partition, objects).map(|flushed| flushed.instance)
        })
    }

    fn batch(
        &self,
        drive: DriveId,
        operations: &[BatchOperation],
        durable: bool,
        wait: Wait,
    ) -> Result<Outcomes, ObjectError> {
        let mut outcomes = Vec::with_capacity(operations.len());
        while outcomes.len() < operations.len() {
            let left = &operations[outcomes.len()..];
            let count = BatchArguments::fitting(left, true).max(1);
            match self.one_batch(drive, &left[..count], durable, wait) {
                Ok(some) => outcomes.extend(some),
                Err(error) if outcomes.is_empty() => return Err(error),
                // The calls before were executed.
                Err(error) => {
                    let reason = error.to_string();
                    return Err(ObjectError::Unavailable { reason, maybe_done: true });
                }
            }
        }
        Ok(outcomes)
    }

    fn objects_from(
        &self,
        drive: DriveId,
        from: ObjectId,
        wait: Wait,
    ) -> Result<Vec<ObjectId>, ObjectError> {
        self.on(drive, wait, |client, authority, partition| {
            client.objects_from(authority, partition, from).collect()
        })
    }

    fn drive_control(&self, drive: DriveId) -> Result<DriveControl, ObjectError> {
        self.read_control(drive, ObjectId::DRIVE_CONTROL)
    }

    fn partition_control(&self, drive: DriveId) -> Result<PartitionControl, ObjectError> {
        self.read_control(drive, ObjectId::PARTITION_CONTROL)
    }

    fn minimum_protection(&self, drive: DriveId) -> Protection {
        self.drive(drive).map_or(Protection::NONE, |drive| drive.demanded())
    }

    fn drive_time(&self, drive: DriveId) -> Timestamp {
        self.drive(drive).map_or(Timestamp::default(), |drive| drive.patient.drive_time())
    }

    fn file_time(&self, drive: DriveId) -> Timestamp {
        let age = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let here = Timestamp::from_parts(age.as_secs(), age.subsec_nanos());
        self.drive_time(drive).min(here)
    }
}
