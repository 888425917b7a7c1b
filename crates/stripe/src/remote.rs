//! Component drives over the network.
//!
//! The striping manager has the drive key of each, by which it makes partitions of its own, whose keys it
//! derives from a secret that nobody else has: so that nothing has to be kept of them.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use nasd_capability::{SecretKey, derive};
use nasd_client::{Authority, ClientError, ConnectOptions, DriveClient, Host, RetryPolicy, Spare};
use nasd_protocol::drive as wire;
use nasd_protocol::{Region, Status};
use nasd_types::{DriveId, ObjectId, ObjectName, PartitionId, Protection, Timestamp};

use crate::components::{
    Answer, Ask, ComponentError, ComponentPartition, Components, ReadComponent, Told,
};
use crate::limping::Probe;
use crate::members::Sign;
use crate::state::FIRST_EPOCH;

/// One try, which ends soon.
const IMPATIENT: RetryPolicy = RetryPolicy {
    deadline: Duration::ZERO,
    busy_deadline: None,
    call_timeout: Duration::from_millis(1000),
    first_backoff: Duration::from_millis(10),
    longest_backoff: Duration::from_secs(1),
};

/// The same of small durable writes, which may take as long as that.
const PATIENT: RetryPolicy = RetryPolicy { call_timeout: Duration::from_secs(10), ..IMPATIENT };

/// The partition of each component drive that such writes go to: into its First Object.
const PROBES: PartitionId = PartitionId(1 << 31);

/// Bytes that it may have.
const PROBES_BYTES: u64 = 1 << 20;

/// Most memory that is kept for what is read.
const SPARE_BYTES: usize = 32 << 20;

/// Smaller pieces of memory are cheap to get anew.
const LARGE: usize = 128 << 10;

/// One component drive.
#[derive(Clone, Debug)]
pub struct ComponentDrive {
    /// Which drive.
    pub drive: DriveId,
    /// Where it is, `HOST:PORT`.
    pub address: String,
    /// Its drive key.
    pub drive_key: SecretKey,
}

/// See the module.
pub struct RemoteComponents {
    drives: RwLock<BTreeMap<DriveId, Arc<Remote>>>,
    secret: SecretKey,
    protection: Protection,
    connect: ConnectOptions,
    host: Arc<dyn Host>,
    /// The number of each partition's working key, if it is another than the first.
    epochs: RwLock<BTreeMap<PartitionId, u32>>,
    spare: Spare,
}

struct Remote {
    address: String,
    client: DriveClient,
    /// For questions whether it is there.
    watcher: DriveClient,
    /// For small durable writes.
    prober: DriveClient,
    /// Whether it has a partition for them.
    is_probed: AtomicBool,
    by_drive_key: Authority,
    /// The authorities of working keys, made as they are needed.
    by_working_key: RwLock<HashMap<(PartitionId, u32), Arc<Authority>>>,
}

impl Remote {
    fn new(component: ComponentDrive, protection: Protection, connect: &ConnectOptions) -> Remote {
        let ComponentDrive { drive, address, drive_key } = component;
        let watched = ConnectOptions { connections: 1, retry: IMPATIENT, ..connect.clone() };
        let probed = ConnectOptions { retry: PATIENT, ..watched.clone() };
        Remote {
            client: DriveClient::tcp(&address, Some(drive), connect),
            watcher: DriveClient::tcp(&address, Some(drive), &watched),
            prober: DriveClient::tcp(&address, Some(drive), &probed),
            is_probed: AtomicBool::new(false),
            by_drive_key: Authority::drive_key(drive_key, protection),
            by_working_key: RwLock::default(),
            address,
        }
    }

    fn may_be_called(&self) -> Result<(), ComponentError> {
        if self.client.is_given_up() {
            let reason = "it is not waited for any more".to_owned();
            return Err(ComponentError::Away { reason, maybe_done: false });
        }
        Ok(())
    }
}

impl RemoteComponents {
    /// Connects to drives when they are asked first. `secret` is the same at each start.
    pub fn new(
        drives: Vec<ComponentDrive>,
        secret: SecretKey,
        protection: Protection,
        connect: &ConnectOptions,
    ) -> RemoteComponents {
        let remote = |component: ComponentDrive| {
            (component.drive, Arc::new(Remote::new(component, protection, connect)))
        };
        let drives = RwLock::new(drives.into_iter().map(remote).collect());
        let (epochs, connect, host) = (RwLock::default(), connect.clone(), connect.network.host());
        let spare = Spare::new(SPARE_BYTES);
        RemoteComponents { drives, secret, protection, connect, host, epochs, spare }
    }

    /// Asks a drive how it is, without patience; none if it does not answer, or takes no changes.
    pub fn look(&self, drive: DriveId) -> Option<Sign> {
        let remote = self.known(drive)?;
        // Object 1 of every partition is the drive's.
        let told = remote.watcher.drive_control(&remote.by_drive_key, PartitionId(0));
        let control = told.ok().filter(|control| !control.read_only)?;
        Some(Sign {
            started: control.started,
            capacity_bytes: control.capacity_bytes,
            bad_blocks: control.bad_blocks,
        })
    }

    /// Has a drive write something, and waits until it is durable; tells `heard` when it is sent, and what became of it.
    pub fn probe(&self, drive: DriveId, mut heard: impl FnMut(Probe)) {
        let Some(remote) = self.known(drive) else { return };
        let Ok(control) = remote.prober.drive_control(&remote.by_drive_key, PartitionId(0)) else {
            return;
        };
        if let Err(error) = self.prepare_to_probe(&remote, drive) {
            tracing::debug!(%drive, %error, "a component drive can't be probed yet");
            return;
        }
        let written = control.capability_bytes_written.saturating_add(control.key_bytes_written);
        heard(Probe::Begun { written });
        let data = [0; 512];
        let arguments = wire::WriteArguments {
            name: ObjectName { partition: PROBES, object: ObjectId::FIRST_OBJECT },
            durable: true,
            order: None,
            regions: vec![Region::single(0, data.len() as u64)],
            data_length: data.len(),
        };
        let authority = self.authority(&remote, drive, PROBES);
        let slices = [std::io::IoSlice::new(&data)];
        let told = remote.prober.begin_write(&authority, arguments, &slices).wait();
        heard(match told {
            Ok(_) => Probe::Done,
            Err(ClientError::Drive(Status::MediumError | Status::DriveFault | Status::Corrupt)) => {
                Probe::Refused
            }
            Err(ClientError::Drive(_) | ClientError::Refused(_)) => {
                // It may be another one by now.
                remote.is_probed.store(false, Ordering::Release);
                Probe::Unknown
            }
            Err(_) => Probe::Unknown,
        });
    }

    /// Makes the partition for probes, unless there is one.
    fn prepare_to_probe(&self, remote: &Remote, drive: DriveId) -> Result<(), ClientError> {
        if remote.is_probed.load(Ordering::Acquire) {
            return Ok(());
        }
        let (client, by_drive) = (&remote.prober, &remote.by_drive_key);
        match client.create_partition(by_drive, PROBES) {
            Ok(()) | Err(ClientError::Drive(Status::PartitionExists)) => {}
            Err(error) => return Err(error),
        }
        client.resize_partition(by_drive, PROBES, PROBES_BYTES)?;
        let of_partition = self.key(drive, PROBES, 0);
        client.set_partition_key(by_drive, PROBES, &of_partition)?;
        let by_partition = Authority::partition_key(PROBES, of_partition, self.protection);
        let working = self.key(drive, PROBES, FIRST_EPOCH);
        match client.set_working_key(&by_partition, PROBES, FIRST_EPOCH, &working) {
            Ok(()) | Err(ClientError::Drive(Status::StaleEpoch)) => {}
            Err(error) => return Err(error),
        }
        remote.is_probed.store(true, Ordering::Release);
        Ok(())
    }

    /// From now on these are the component drives.
    pub fn set_drives(&self, drives: Vec<ComponentDrive>) {
        let mut known = self.drives.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|drive, remote| {
            let same = |it: &&ComponentDrive| it.drive == *drive && it.address == remote.address;
            drives.iter().any(|component| same(&component))
        });
        for component in drives {
            let drive = component.drive;
            known.entry(drive).or_insert_with(|| {
                Arc::new(Remote::new(component, self.protection, &self.connect))
            });
        }
    }

    fn known(&self, drive: DriveId) -> Option<Arc<Remote>> {
        self.drives.read().unwrap_or_else(PoisonError::into_inner).get(&drive).map(Arc::clone)
    }

    fn remote(&self, drive: DriveId) -> Result<Arc<Remote>, ComponentError> {
        let unknown = || ComponentError::Refused(format!("drive {drive} is no component drive"));
        let remote = self.known(drive).ok_or_else(unknown)?;
        remote.may_be_called()?;
        Ok(remote)
    }

    fn key(&self, drive: DriveId, partition: PartitionId, epoch: u32) -> SecretKey {
        let salt = [&drive.0.to_be_bytes()[..], &partition.0.to_be_bytes(), &epoch.to_be_bytes()];
        derive(&self.secret, "NASD striping manager 2026 component partition key", &salt.concat())
    }

    fn epoch(&self, partition: PartitionId) -> u32 {
        let epochs = self.epochs.read().unwrap_or_else(PoisonError::into_inner);
        epochs.get(&partition).copied().unwrap_or(FIRST_EPOCH)
    }

    fn authority(&self, remote: &Remote, drive: DriveId, partition: PartitionId) -> Arc<Authority> {
        let epoch = self.epoch(partition);
        let known = remote.by_working_key.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(authority) = known.get(&(partition, epoch)) {
            return Arc::clone(authority);
        }
        drop(known);
        let key = self.key(drive, partition, epoch);
        let authority = Authority::working_key(partition, key, self.protection);
        let mut known = remote.by_working_key.write().unwrap_or_else(PoisonError::into_inner);
        // Those of before are good for nothing.
        known.retain(|(of, _), _| *of != partition);
        Arc::clone(known.entry((partition, epoch)).or_insert_with(|| Arc::new(authority)))
    }

    fn set_keys(&self, drive: DriveId, partition: PartitionId) -> Result<(), ComponentError> {
        let remote = self.remote(drive)?;
        let of_partition = self.key(drive, partition, 0);
        let by_key = &remote.by_drive_key;
        remote.client.set_partition_key(by_key, partition, &of_partition).map_err(failed)?;
        let by_partition = Authority::partition_key(partition, of_partition, self.protection);
        let epoch = self.epoch(partition);
        // A drive knows the key before too: that becomes one which nobody has used.
        for epoch in [epoch.saturating_sub(1), epoch].into_iter().filter(|epoch| *epoch > 0) {
            let working = self.key(drive, partition, epoch);
            match remote.client.set_working_key(&by_partition, partition, epoch, &working) {
                // It has it already.
                Ok(()) | Err(ClientError::Drive(Status::StaleEpoch)) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }
}

impl Components for RemoteComponents {
    fn drives(&self) -> Vec<DriveId> {
        let known = self.drives.read().unwrap_or_else(PoisonError::into_inner);
        known.keys().copied().collect()
    }

    fn address(&self, drive: DriveId) -> String {
        self.known(drive).map_or_else(String::new, |remote| remote.address.clone())
    }

    fn ask(&self, questions: Vec<(DriveId, Ask)>) -> Vec<Answer> {
        let count = questions.len();
        if count <= 1 {
            return questions.into_iter().map(|(drive, ask)| self.ask_now(drive, ask)).collect();
        }
        // Each is sent before the first is waited for.
        let authorities: Vec<_> = questions
            .iter()
            .map(|(drive, ask)| {
                self.remote(*drive).map(|remote| {
                    let authority = self.authority(&remote, *drive, partition_of(ask));
                    (remote, authority)
                })
            })
            .collect();
        let slices: Vec<_> = questions.iter().map(|(_, ask)| written(ask)).collect();
        let begun: Vec<_> = questions
            .iter()
            .zip(&authorities)
            .zip(&slices)
            .map(|(((_, ask), found), slices)| match found {
                Ok((remote, authority)) => {
                    // While others were sent it may have been given up.
                    remote.may_be_called()?;
                    Ok(begin(remote, authority, (ask, slices), &self.spare))
                }
                Err(error) => Err(error.clone()),
            })
            .collect();
        let answers = begun.into_iter().map(|begun| begun.and_then(Begun::wait)).collect();
        questions.into_iter().for_each(|(_, ask)| self.reuse(ask));
        answers
    }

    fn drive_control(&self, drive: DriveId) -> Result<wire::DriveControl, ComponentError> {
        let remote = self.remote(drive)?;
        // Object 1 of every partition is the drive's.
        let partition = PartitionId(0);
        remote.client.drive_control(&remote.by_drive_key, partition).map_err(failed)
    }

    fn make_partition(
        &self,
        drive: DriveId,
        wanted: &ComponentPartition,
    ) -> Result<(), ComponentError> {
        let remote = self.remote(drive)?;
        let ComponentPartition { partition, bytes } = *wanted;
        match remote.client.create_partition(&remote.by_drive_key, partition) {
            Ok(()) => self.set_keys(drive, partition)?,
            Err(ClientError::Drive(Status::PartitionExists)) => self.set_keys(drive, partition)?,
            Err(error) => return Err(failed(error)),
        }
        match bytes {
            Some(bytes) => remote
                .client
                .resize_partition(&remote.by_drive_key, partition, bytes)
                .map_err(failed),
            None => Ok(()),
        }
    }

    fn remove_partition(
        &self,
        drive: DriveId,
        partition: PartitionId,
    ) -> Result<(), ComponentError> {
        let remote = self.remote(drive)?;
        match remote.client.remove_partition(&remote.by_drive_key, partition) {
            Err(ClientError::Drive(Status::NoSuchPartition)) => Ok(()),
            done => done.map_err(failed),
        }
    }

    fn drive_time(&self, drive: DriveId) -> Timestamp {
        let Some(remote) = self.known(drive) else { return Timestamp(0) };
        let known = remote.client.drive_time();
        // A drive that was started anew after a crash is ahead of what it was, and by that capabilities end: who is asked
        // all the time has told, while there may have been nothing else to ask.
        let is_watched = remote.watcher.information().is_some();
        if is_watched { known.max(remote.watcher.drive_time()) } else { known }
    }

    fn minimum_protection(&self, drive: DriveId) -> Protection {
        let information = self.known(drive).and_then(|remote| remote.client.information());
        information.map_or(Protection::NONE, |information| information.minimum_protection)
    }

    fn set_epochs(&self, epochs: &BTreeMap<PartitionId, u32>) {
        *self.epochs.write().unwrap_or_else(PoisonError::into_inner) = epochs.clone();
    }

    fn change_key(&self, drive: DriveId, partition: PartitionId) -> Result<(), ComponentError> {
        self.set_keys(drive, partition)
    }

    fn give_up(&self, drive: DriveId) {
        if let Some(remote) = self.known(drive) {
            remote.client.give_up();
        }
    }

    fn call_again(&self, drive: DriveId) {
        if let Some(remote) = self.known(drive) {
            remote.client.call_again();
        }
    }

    fn pause(&self, duration: Duration) {
        self.host.sleep(duration);
    }

    fn takes_turns(&self) -> bool {
        self.host.takes_turns()
    }

    fn working_key(&self, drive: DriveId, partition: PartitionId) -> (u32, SecretKey) {
        let epoch = self.epoch(partition);
        (epoch, self.key(drive, partition, epoch))
    }
}

impl RemoteComponents {
    fn ask_now(&self, drive: DriveId, ask: Ask) -> Answer {
        let remote = self.remote(drive)?;
        let authority = self.authority(&remote, drive, partition_of(&ask));
        let answer = begin(&remote, &authority, (&ask, &written(&ask)), &self.spare).wait();
        self.reuse(ask);
        answer
    }

    /// The memory of what was written is good for what is read next.
    fn reuse(&self, ask: Ask) {
        if let Ask::Write { data, .. } = ask
            && data.capacity() >= LARGE
        {
            self.spare.give(data);
        }
    }
}

/// A question that was sent, or could not be; or that is sent when it is waited for.
struct Begun<'a>(Box<dyn FnOnce() -> Answer + 'a>);

impl Begun<'_> {
    fn wait(self) -> Answer {
        (self.0)()
    }
}

/// What a question has to be written, if anything.
fn written(ask: &Ask) -> [IoSlice<'_>; 1] {
    match ask {
        Ask::Write { data, .. } => [IoSlice::new(data)],
        _ => [IoSlice::new(&[])],
    }
}

/// Sends a question, where the client can send first and wait later.
fn begin<'a>(
    remote: &'a Remote,
    authority: &'a Authority,
    (ask, slices): (&'a Ask, &'a [IoSlice<'a>; 1]),
    spare: &Spare,
) -> Begun<'a> {
    let client = &remote.client;
    macro_rules! pending {
        ($operation:ty, $arguments:expr, $told:expr) => {{
            let pending = client.begin_call::<$operation>(authority, $arguments).send();
            Begun(Box::new(move || pending.wait().map($told).map_err(failed_by_working_key)))
        }};
    }
    match ask {
        Ask::Create(arguments) => pending!(wire::Create, arguments.clone(), Told::Created),
        Ask::Remove(arguments) => pending!(wire::Remove, *arguments, |()| Told::Done),
        Ask::Getattr(arguments) => pending!(wire::Getattr, *arguments, told_attributes),
        Ask::Setattr(arguments) => pending!(wire::Setattr, arguments.clone(), told_attributes),
        Ask::Punch(arguments) => pending!(wire::Punch, arguments.clone(), told_attributes),
        Ask::Fastcopy(arguments) => pending!(wire::Fastcopy, *arguments, Told::Created),
        Ask::Flush { partition, objects } => {
            let arguments =
                wire::FlushArguments { partition: *partition, objects: objects.clone() };
            pending!(wire::Flush, arguments, |flushed: wire::Flushed| Told::Flushed(
                flushed.instance
            ))
        }
        Ask::Blocksrequired(arguments) => {
            pending!(wire::Blocksrequired, arguments.clone(), Told::Blocks)
        }
        Ask::Seek(arguments) => {
            pending!(wire::Seek, *arguments, |sought: wire::Sought| Told::Position(sought.position))
        }
        Ask::Read { name, order, regions, length } => {
            let arguments =
                wire::ReadArguments { name: *name, order: *order, regions: regions.clone() };
            let into = spare.take(*length);
            let pending = client.begin_read_arguments(authority, arguments, into).send();
            Begun(Box::new(move || {
                let (outcome, mut data) = pending.wait();
                let outcome = outcome.map_err(failed_by_working_key)?;
                data.truncate(outcome.length);
                let nasd_client::ReadOutcome { logical_size, fs_data_modify_time, .. } = outcome;
                Ok(Told::Read(ReadComponent { data, logical_size, fs_data_modify_time }))
            }))
        }
        Ask::Write { name, order, regions, data, durable } => {
            let arguments = wire::WriteArguments {
                name: *name,
                durable: *durable,
                order: *order,
                regions: regions.clone(),
                data_length: data.len(),
            };
            let pending = client.begin_write(authority, arguments, slices);
            Begun(Box::new(move || {
                pending.wait().map(Told::Written).map_err(failed_by_working_key)
            }))
        }
        other => Begun(Box::new(move || {
            // While others were waited for it may have been given up.
            remote.may_be_called()?;
            run(client, authority, other)
        })),
    }
}

/// Asks and waits.
fn run(client: &DriveClient, authority: &Authority, ask: &Ask) -> Answer {
    match ask {
        Ask::Batch(arguments) => client.batch(authority, arguments).map(Told::Batched),
        Ask::Copyrange(copy) => client.copy_range(authority, authority, copy).map(Told::Copied),
        Ask::List { partition, from, most } => {
            let objects = client.objects_from(authority, *partition, *from).take(*most);
            objects.collect::<Result<Vec<ObjectId>, _>>().map(Told::Objects)
        }
        Ask::PartitionControl(partition) => {
            client.partition_control(authority, *partition).map(Told::Control)
        }
        _ => return Err(ComponentError::Refused("a question of another kind".to_owned())),
    }
    .map_err(failed_by_working_key)
}

fn told_attributes(reply: wire::AttributesReply) -> Told {
    Told::Attributes(reply.attributes)
}

fn partition_of(ask: &Ask) -> PartitionId {
    match ask {
        Ask::Create(arguments) => arguments.partition,
        Ask::Remove(arguments) => arguments.name.partition,
        Ask::Getattr(arguments) => arguments.name.partition,
        Ask::Setattr(arguments) => arguments.name.partition,
        Ask::Batch(arguments) => arguments.partition,
        Ask::Fastcopy(arguments) => arguments.name.partition,
        Ask::Blocksrequired(arguments) => arguments.name.partition,
        Ask::Punch(arguments) => arguments.name.partition,
        Ask::Seek(arguments) => arguments.name.partition,
        Ask::Copyrange(copy) => copy.name.partition,
        Ask::Read { name, .. } | Ask::Write { name, .. } => name.partition,
        Ask::Flush { partition, .. }
        | Ask::List { partition, .. }
        | Ask::PartitionControl(partition) => *partition,
    }
}

/// What a call by a working key that failed says about its drive: one that was away has the keys of before until it is
/// given the present ones.
fn failed_by_working_key(error: ClientError) -> ComponentError {
    match error {
        ClientError::Refused(status @ (Status::RefusedDigest | Status::RefusedEpoch)) => {
            ComponentError::Away { reason: status.to_string(), maybe_done: false }
        }
        error => failed(error),
    }
}

/// What a failed call says about its drive.
fn failed(error: ClientError) -> ComponentError {
    let maybe_done = error.may_have_run();
    match error {
        ClientError::Drive(status) => ComponentError::Answered(status),
        ClientError::Refused(status) => ComponentError::Refused(status.to_string()),
        error @ (ClientError::Unreachable { .. } | ClientError::Unsettled(_)) => {
            ComponentError::Away { reason: error.to_string(), maybe_done }
        }
        error => ComponentError::Refused(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_keys_of_before_is_away_and_who_refuses_for_good_is_not() {
        for status in Status::ALL.iter().copied().filter(|status| status.refusal().is_some()) {
            let is_old = matches!(status, Status::RefusedDigest | Status::RefusedEpoch);
            let told = failed_by_working_key(ClientError::Refused(status)).status();
            let wanted = if is_old { Status::Busy } else { Status::DriveFault };
            assert_eq!(told, wanted, "{status:?}");
            // The keys of the drive and of its partitions are not changed like that.
            assert_eq!(failed(ClientError::Refused(status)).status(), Status::DriveFault);
        }
    }
}
