//! Partitions, keys, a new beginning, and the clock.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::*;
use nasd_capability::{Capability, SealedKey, SecretKey, capability_key};
use nasd_client::{Authority, ClockSettings, ConnectOptions, DriveClient, RetryPolicy};
use nasd_device::BlockDevice;
use nasd_drive::{Drive, DriveOptions, DriveServer, Environment};
use nasd_protocol::drive::{
    CopypartitionArguments, CreateArguments, Created, CreatepartitionArguments, DriveControl,
    DriveInformation, Flushed, FlushpartitionArguments, GetattrArguments, InitializeArguments,
    NO_QUOTA, PartitionKey, PartitionState, Procedure, ReadArguments, RemovepartitionArguments,
    ResizepartitionArguments, SetdrivekeyArguments, SetpartitionArguments,
    SetpartitionkeyArguments, WriteArguments,
};
use nasd_protocol::{CredentialKey, Region, Status};
use nasd_store::{OpenOptions, Store};
use nasd_types::{
    Compression, ObjectId, ObjectName, PartitionId, Protection, SeekTarget, SetAttributes,
    Timestamp,
};
use nasd_xdr::from_bytes;

/// One that is not there at first.
const NEW: PartitionId = PartitionId(7);

impl Administrator<'_> {
    fn create(&self, partition: PartitionId) -> Answered {
        let arguments = CreatepartitionArguments { partition };
        self.0.by(Signer::drive(), Procedure::Createpartition, &arguments)
    }

    fn remove(&self, partition: PartitionId) -> Answered {
        let arguments = RemovepartitionArguments { partition };
        self.0.by(Signer::drive(), Procedure::Removepartition, &arguments)
    }

    fn resize(&self, partition: PartitionId, bytes: u64) -> Answered {
        let arguments = ResizepartitionArguments { partition, bytes };
        self.0.by(Signer::drive(), Procedure::Resizepartition, &arguments)
    }

    /// Sets a partition key, by the drive key.
    fn set_key(&self, partition: PartitionId, number: u8) -> Answered {
        let signer = Signer::drive();
        let value = signer.seal(number);
        let which = PartitionKey::Key;
        let arguments = SetpartitionkeyArguments { partition, which, epoch: 0, value };
        self.0.by(signer, Procedure::Setpartitionkey, &arguments)
    }

    /// Sets a working key, by the partition key of that number.
    fn set_working(
        &self,
        (partition, by): (PartitionId, u8),
        which: PartitionKey,
        (epoch, number): (u32, u8),
    ) -> Answered {
        let signer = Signer::key(CredentialKey::Partition(partition), by);
        let value = signer.seal(number);
        let arguments = SetpartitionkeyArguments { partition, which, epoch, value };
        self.0.by(signer, Procedure::Setpartitionkey, &arguments)
    }

    fn set(
        &self,
        signer: Signer,
        compression: Option<Compression>,
        minimum_protection: Option<Protection>,
    ) -> Answered {
        let arguments =
            SetpartitionArguments { partition: PARTITION, compression, minimum_protection };
        self.0.by(signer, Procedure::Setpartition, &arguments)
    }

    fn set_drive_key(&self, by: Signer, number: u8) -> Answered {
        let value = by.seal(number);
        self.0.by(by, Procedure::Setdrivekey, &SetdrivekeyArguments { value })
    }

    fn initialize(&self, by: Signer, number: u8, clock: Timestamp) -> Answered {
        let master = by.seal(number);
        let (skew_past, skew_ahead) = (5 * SECOND, 2 * SECOND);
        let arguments = InitializeArguments { master, clock, skew_past, skew_ahead };
        self.0.by(by, Procedure::Initialize, &arguments)
    }

    fn control(&self, signer: Signer, partition: PartitionId) -> DriveControl {
        let name = ObjectName { partition, object: ObjectId::DRIVE_CONTROL };
        let arguments = ReadArguments::single(name, 0, 100_000);
        from_bytes(&self.0.by(signer, Procedure::Read, &arguments).data).unwrap()
    }

    fn inquire(&self) -> DriveInformation {
        self.0.by(Signer::drive(), Procedure::Inquiry, &()).take()
    }
}

/// The requests of those who manage a drive.
struct Administrator<'a>(&'a TestDrive);

fn getattr(drive: &TestDrive, name: ObjectName, signer: Signer) -> Option<Status> {
    drive.by(signer, Procedure::Getattr, &GetattrArguments { name }).status
}

fn stop(drive: TestDrive) {
    let TestDrive { server, .. } = drive;
    server.unwrap().shut_down(Duration::from_secs(5)).unwrap();
}

fn working_of(partition: PartitionId, number: u8) -> Signer {
    Signer::key(CredentialKey::WorkingCurrent(partition), number)
}

/// The signer of a capability that was minted with a working key of that number.
fn minted(capability: Capability, number: u8, version: u64) -> Signer {
    let secret = capability_key(&SecretKey::new(key_of(number)), &capability, version);
    Signer { claimed: CredentialKey::Capability(capability), secret: Some(secret) }
}

#[test]
fn a_partition_lives_from_its_creation_to_its_removal() {
    let device = new_device();
    let drive = TestDrive::on(Arc::clone(&device), DriveOptions::default(), START);
    let by = Administrator(&drive);
    assert_eq!(by.create(NEW).status, None);
    assert_eq!(by.create(NEW).failed(), Status::PartitionExists);
    assert_eq!(by.create(PARTITION).failed(), Status::PartitionExists);
    // Without room and without keys, but with a First Object.
    let summary = |control: &DriveControl| {
        *control.partitions.iter().find(|summary| summary.partition == NEW).unwrap()
    };
    let new = summary(&by.control(Signer::drive(), PARTITION));
    assert_eq!((new.quota_bytes, new.objects, new.state), (0, 1, PartitionState::WithoutKey));
    let first = ObjectName { partition: NEW, object: ObjectId::FIRST_OBJECT };
    assert_eq!(getattr(&drive, first, Signer::drive()), None);
    for claimed in [CredentialKey::Partition(NEW), CredentialKey::WorkingCurrent(NEW)] {
        let refused = getattr(&drive, first, Signer::key(claimed.clone(), 20));
        assert_eq!(refused, Some(Status::RefusedKey), "{claimed:?}");
    }
    let data = [5; 5000];
    let arguments = WriteArguments::single(first, 0, data.len(), false);
    let write = Request::new(Procedure::Write, &arguments, Signer::drive());
    let write = Request { data: &data, ..write };
    assert_eq!(drive.ask(&write).unwrap().failed(), Status::NoSpace);
    assert_eq!(by.resize(NEW, 1 << 20).status, None);
    assert_eq!(drive.ask(&write).unwrap().status, None);
    assert_eq!(by.resize(NEW, 4096).failed(), Status::NoSpace);
    assert_eq!(by.resize(NEW, NO_QUOTA).status, None);
    assert_eq!(by.inquire().partitions, [PARTITION, OTHER_PARTITION, NEW]);

    assert_eq!(by.set_key(NEW, 20).status, None);
    assert_eq!(summary(&by.control(Signer::drive(), NEW)).state, PartitionState::WithoutWorkingKey);
    let set = by.set_working((NEW, 20), PartitionKey::Current, (1, 21));
    assert_eq!(set.status, None);
    assert_eq!(summary(&by.control(working_of(NEW, 21), NEW)).state, PartitionState::Ready);

    let end = drive.now().0;
    stop(drive);
    let drive = TestDrive::on(device, DriveOptions::default(), end);
    let by = Administrator(&drive);
    assert_eq!(getattr(&drive, first, working_of(NEW, 21)), None, "durable");
    assert_eq!(by.remove(NEW).status, None);
    assert_eq!(by.remove(NEW).failed(), Status::NoSuchPartition);
    assert_eq!(getattr(&drive, first, working_of(NEW, 21)), Some(Status::RefusedKey));
    assert_eq!(getattr(&drive, first, Signer::drive()), Some(Status::NoSuchPartition));
    assert_eq!(by.inquire().partitions, [PARTITION, OTHER_PARTITION]);
}

#[test]
fn what_is_not_there_is_neither_resized_nor_set() {
    let drive = TestDrive::new();
    let by = Administrator(&drive);
    assert_eq!(by.resize(NEW, 1).failed(), Status::NoSuchPartition);
    assert_eq!(by.remove(NEW).failed(), Status::NoSuchPartition);
    assert_eq!(by.set_key(NEW, 20).failed(), Status::NoSuchPartition);
    let arguments =
        SetpartitionArguments { partition: NEW, compression: None, minimum_protection: None };
    let answered = drive.by(Signer::drive(), Procedure::Setpartition, &arguments);
    assert_eq!(answered.failed(), Status::NoSuchPartition);
}

#[test]
fn a_removed_partitions_keys_are_gone_even_if_its_number_comes_back() {
    let drive = TestDrive::new();
    let by = Administrator(&drive);
    let first = object(ObjectId::FIRST_OBJECT.0);
    assert_eq!(getattr(&drive, first, Signer::working()), None);
    assert_eq!(by.remove(PARTITION).status, None);
    // Its objects may take a while to go.
    let mut created = by.create(PARTITION);
    for _ in 0..500 {
        if created.status.is_none() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        created = by.create(PARTITION);
    }
    assert_eq!(created.status, None);
    assert_eq!(by.set_key(PARTITION, 40).status, None);
    let set = by.set_working((PARTITION, 40), PartitionKey::Current, (EPOCH, 41));
    assert_eq!(set.status, None);
    // The same epoch, another key.
    assert_eq!(getattr(&drive, first, Signer::working()), Some(Status::RefusedDigest));
    assert_eq!(getattr(&drive, first, working_of(PARTITION, 41)), None);
}

#[test]
fn changing_the_working_key_twice_revokes_at_once() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let by = Administrator(&drive);
    let old = drive.capability(name);
    let holder = Signer::capability(&old);
    assert_eq!(getattr(&drive, name, holder.clone()), None);
    let me = (PARTITION, PARTITION_KEY);
    let set = |epoch, number| by.set_working(me, PartitionKey::Current, (epoch, number)).status;

    assert_eq!(set(EPOCH, 30), Some(Status::StaleEpoch));
    assert_eq!(set(EPOCH - 1, 30), Some(Status::StaleEpoch));
    assert_eq!(getattr(&drive, name, holder.clone()), None, "nothing has changed");
    assert_eq!(set(EPOCH + 1, 30), None);
    assert_eq!(set(EPOCH + 1, 30), None, "the same once more");
    assert_eq!(set(EPOCH + 1, 31), Some(Status::StaleEpoch));
    // The former key is the previous one now.
    assert_eq!(getattr(&drive, name, holder.clone()), None);
    assert_eq!(getattr(&drive, name, Signer::working()), Some(Status::RefusedDigest));
    let previous = Signer::key(CredentialKey::WorkingPrevious(PARTITION), WORKING_KEY);
    assert_eq!(getattr(&drive, name, previous.clone()), None);
    assert_eq!(getattr(&drive, name, working_of(PARTITION, 30)), None);
    let new = Capability { key_epoch: EPOCH + 1, ..old };
    assert_eq!(getattr(&drive, name, minted(new, 30, 5)), None);

    // Epochs may be passed over.
    assert_eq!(set(EPOCH + 10, 31), None);
    assert_eq!(getattr(&drive, name, holder), Some(Status::RefusedEpoch));
    assert_eq!(getattr(&drive, name, previous), Some(Status::RefusedDigest));
    assert_eq!(getattr(&drive, name, minted(new, 30, 5)), None);
    let newest = Capability { key_epoch: EPOCH + 10, ..old };
    assert_eq!(getattr(&drive, name, minted(newest, 31, 5)), None);
}

#[test]
fn the_previous_working_key_can_be_replaced() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let by = Administrator(&drive);
    let me = (PARTITION, PARTITION_KEY);
    let set = |epoch, number| by.set_working(me, PartitionKey::Previous, (epoch, number)).status;
    for epoch in [EPOCH, EPOCH + 1, u32::MAX] {
        assert_eq!(set(epoch, 33), Some(Status::StaleEpoch));
    }
    assert_eq!(set(3, 33), None);
    let old = Capability { key_epoch: 3, ..drive.capability(name) };
    assert_eq!(getattr(&drive, name, minted(old, 33, 5)), None);
    assert_eq!(set(4, 34), None);
    assert_eq!(getattr(&drive, name, minted(old, 33, 5)), Some(Status::RefusedEpoch));
    // There is nothing to precede where there is no current key.
    assert_eq!(by.create(NEW).status, None);
    assert_eq!(by.set_key(NEW, 20).status, None);
    let answered = by.set_working((NEW, 20), PartitionKey::Previous, (0, 21));
    assert_eq!(answered.failed(), Status::StaleEpoch);
}

#[test]
fn a_new_partition_key_replaces_the_old_and_leaves_the_working_keys() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let by = Administrator(&drive);
    assert_eq!(getattr(&drive, name, Signer::partition()), None);
    assert_eq!(by.set_key(PARTITION, 50).status, None);
    assert_eq!(getattr(&drive, name, Signer::partition()), Some(Status::RefusedDigest));
    let new = Signer::key(CredentialKey::Partition(PARTITION), 50);
    assert_eq!(getattr(&drive, name, new), None);
    assert_eq!(getattr(&drive, name, Signer::working()), None);
    let old = (PARTITION, PARTITION_KEY);
    let refused = by.set_working(old, PartitionKey::Current, (EPOCH + 1, 30));
    assert_eq!(refused.status, Some(Status::RefusedDigest));
    let set = by.set_working((PARTITION, 50), PartitionKey::Current, (EPOCH + 1, 30));
    assert_eq!(set.status, None);
    // A partition key has no epoch.
    let value = Signer::drive().seal(51);
    let which = PartitionKey::Key;
    let arguments = SetpartitionkeyArguments { partition: PARTITION, which, epoch: 1, value };
    let answered = drive.by(Signer::drive(), Procedure::Setpartitionkey, &arguments);
    assert_eq!(answered.failed(), Status::BadArgument);
}

#[test]
fn a_key_that_was_sealed_otherwise_is_not_taken() {
    let drive = TestDrive::new();
    let salt = [7; 16];
    let honest =
        SealedKey::seal(&SecretKey::new(key_of(60)), &SecretKey::new(key_of(DRIVE_KEY)), salt);
    let mut altered = honest;
    altered.sealed[31] ^= 1;
    let mut garbled = honest;
    garbled.tag = [0; 16];
    let under_another = Signer::partition().seal(60);
    for value in [altered, garbled, under_another] {
        let which = PartitionKey::Key;
        let arguments = SetpartitionkeyArguments { partition: PARTITION, which, epoch: 0, value };
        let answered = drive.by(Signer::drive(), Procedure::Setpartitionkey, &arguments);
        assert_eq!(answered.failed(), Status::BadKey);
    }
    let name = drive.new_object();
    assert_eq!(getattr(&drive, name, Signer::partition()), None, "it is what it was");
}

#[test]
fn keys_that_change_while_requests_come_refuse_and_never_pass_wrongly() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let channel = nasd_transport::Connection::tcp(
                    drive.server().address(),
                    &nasd_transport::ClientOptions::default(),
                )
                .unwrap();
                while !done.load(Ordering::Relaxed) {
                    for number in [PARTITION_KEY, 70, 71] {
                        let claimed = CredentialKey::Partition(PARTITION);
                        let signer = Signer::key(claimed, number);
                        let arguments = GetattrArguments { name };
                        let request = Request::new(Procedure::Getattr, &arguments, signer);
                        let status = drive.ask_over(&channel, &request).unwrap().status;
                        assert!(matches!(status, None | Some(Status::RefusedDigest)), "{status:?}");
                    }
                }
            });
        }
        let by = Administrator(&drive);
        for round in 0..200 {
            let (new, old) = if round % 2 == 0 { (70, 71) } else { (71, 70) };
            assert_eq!(by.set_key(PARTITION, new).status, None);
            let passes = |number| {
                getattr(&drive, name, Signer::key(CredentialKey::Partition(PARTITION), number))
            };
            // Whatever was derived meanwhile.
            for _ in 0..5 {
                assert_eq!(passes(old), Some(Status::RefusedDigest), "{round}");
                assert_eq!(passes(new), None, "{round}");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_partitions_minimum_protection_revokes_what_is_weaker() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let by = Administrator(&drive);
    let weak = Signer::capability(&drive.capability(name));
    let strong = Capability { minimum_protection: Protection::SUPPORTED, ..drive.capability(name) };
    let ask = |signer: Signer, protection| {
        let request = Request::new(Procedure::Getattr, &GetattrArguments { name }, signer);
        drive.ask(&Request { protection, ..request }).unwrap().status
    };
    let refused = Some(Status::RefusedProtection);
    assert_eq!(ask(weak.clone(), Protection::SUPPORTED), None);
    for signer in [Signer::drive(), Signer::partition()] {
        let answered = by.set(signer, None, Some(Protection::SUPPORTED));
        assert!(matches!(answered.status, None | Some(Status::RefusedProtection)));
    }
    for protection in [Protection::INTEGRITY_ARGS, Protection::SUPPORTED] {
        let too_low = Some(Status::RefusedMinimum);
        assert_eq!(ask(weak.clone(), protection), too_low, "{protection:?}");
    }
    assert_eq!(ask(Signer::working(), Protection::INTEGRITY_ARGS), refused);
    assert_eq!(ask(Signer::working(), Protection::SUPPORTED), None);
    assert_eq!(ask(Signer::capability(&strong), Protection::SUPPORTED), None);
    assert_eq!(ask(Signer::capability(&strong), Protection::INTEGRITY_ARGS), refused);
    // The other partition demands nothing.
    let other = ObjectName { partition: OTHER_PARTITION, object: ObjectId::FIRST_OBJECT };
    assert_eq!(getattr(&drive, other, Signer::drive()), None);
    let settings = SetpartitionArguments {
        partition: PARTITION,
        compression: None,
        minimum_protection: Some(Protection::NONE),
    };
    let request = Request::new(Procedure::Setpartition, &settings, Signer::drive());
    assert_eq!(drive.ask(&request).unwrap().status, refused);
    let request = Request { protection: Protection::SUPPORTED, ..request };
    assert_eq!(drive.ask(&request).unwrap().status, None);
    assert_eq!(ask(weak, Protection::INTEGRITY_ARGS), None);
}

#[test]
fn a_minimum_that_nobody_can_meet_is_not_set() {
    let drive = TestDrive::new();
    let by = Administrator(&drive);
    for protection in [
        Protection::INTEGRITY_DATA,
        Protection::INTEGRITY_ARGS | Protection::PRIVACY_DATA,
        Protection::from_bits_retain(1 << 20),
    ] {
        let answered = by.set(Signer::drive(), None, Some(protection));
        assert_eq!(answered.failed(), Status::BadArgument, "{protection:?}");
    }
}

#[test]
fn settings_stay_and_are_told() {
    let device = new_device();
    let drive = TestDrive::on(Arc::clone(&device), DriveOptions::default(), START);
    let by = Administrator(&drive);
    assert_eq!(by.set(Signer::partition(), Some(Compression::Zstd), None).status, None);
    let minimum = Some(Protection::INTEGRITY_ARGS);
    assert_eq!(by.set(Signer::drive(), None, minimum).status, None);
    let told = by.control(Signer::working(), PARTITION).partitions[0];
    assert_eq!(told.compression, Compression::Zstd);
    assert_eq!(told.minimum_protection, Protection::INTEGRITY_ARGS);
    let end = drive.now().0;
    stop(drive);
    let drive = TestDrive::on(device, DriveOptions::default(), end);
    let again = Administrator(&drive).control(Signer::working(), PARTITION).partitions[0];
    assert_eq!(again, told);
}

#[test]
fn flushing_a_partition_answers_the_instance() {
    let drive = TestDrive::new();
    drive.object_with(&[1; 100_000]);
    let arguments = FlushpartitionArguments { partition: PARTITION };
    let flushed: Flushed =
        drive.by(Signer::working(), Procedure::Flushpartition, &arguments).take();
    assert_eq!(flushed.instance, drive.server().drive().instance());
}

#[test]
fn the_master_key_sets_the_drive_key_and_nothing_else() {
    let drive = TestDrive::owned();
    let name = drive.object_with(b"contents");
    let by = Administrator(&drive);
    assert_eq!(getattr(&drive, name, Signer::master()), Some(Status::RefusedKey));
    assert_eq!(getattr(&drive, name, Signer::drive()), None);
    let wrong = Signer::key(CredentialKey::Master, 99);
    assert_eq!(by.set_drive_key(wrong, 60).status, Some(Status::RefusedDigest));
    assert_eq!(by.set_drive_key(Signer::master(), 60).status, None);
    assert_eq!(getattr(&drive, name, Signer::drive()), Some(Status::RefusedDigest));
    assert_eq!(getattr(&drive, name, Signer::key(CredentialKey::Drive, 60)), None);
    assert_eq!(getattr(&drive, name, Signer::partition()), None, "other keys stay");
    // Sealed under another key than the request is made with.
    let value = Signer::drive().seal(61);
    let answered =
        drive.by(Signer::master(), Procedure::Setdrivekey, &SetdrivekeyArguments { value });
    assert_eq!(answered.failed(), Status::BadKey);
}

#[test]
fn a_drive_without_a_master_key_is_not_initialized() {
    let drive = TestDrive::new();
    let by = Administrator(&drive);
    for signer in [Signer::master(), Signer::drive(), Signer::partition()] {
        let answered = by.initialize(signer, 80, Timestamp(START));
        assert_eq!(answered.status, Some(Status::RefusedKey));
    }
    assert_eq!(by.inquire().partitions, [PARTITION, OTHER_PARTITION]);
}

#[test]
fn initialize_leaves_nothing_but_the_new_master_key() {
    let drive = TestDrive::owned();
    let name = drive.object_with(b"contents");
    for signer in [Signer::drive(), Signer::partition(), Signer::working()] {
        assert_eq!(getattr(&drive, name, signer), None);
    }
    let by = Administrator(&drive);
    // A year back.
    let clock = Timestamp(drive.now().0 - 365 * 86_400 * SECOND);
    let answered = by.initialize(Signer::master(), 80, clock);
    assert_eq!((answered.status, answered.proved), (None, true));
    drive.clock.store(clock.0 + 10 * SECOND, Ordering::Relaxed);
    // The drive's own machine is where it was: the clock of this test only stamps nonces now.
    let back = drive.clock.load(Ordering::Relaxed);
    drive.clock.store(back + 365 * 86_400 * SECOND, Ordering::Relaxed);
    let stamp = |request: Request<'static>| {
        let nonce = nasd_capability::Nonce {
            timestamp: Timestamp(back),
            unique: drive.fresh_nonce().unique,
        };
        drive.ask(&Request { nonce: Some(nonce), ..request }).unwrap()
    };
    let master = || Signer::key(CredentialKey::Master, 80);
    for signer in [Signer::master(), Signer::drive(), Signer::partition(), Signer::working()] {
        let request = Request::new(Procedure::Getattr, &GetattrArguments { name }, signer);
        assert_eq!(stamp(request).status, Some(Status::RefusedKey));
    }
    let value = master().seal(81);
    let set = Request::new(Procedure::Setdrivekey, &SetdrivekeyArguments { value }, master());
    assert_eq!(stamp(set).status, None);
    let new_drive = || Signer::key(CredentialKey::Drive, 81);
    let create = CreatepartitionArguments { partition: PARTITION };
    let create = Request::new(Procedure::Createpartition, &create, new_drive());
    let mut created = stamp(create.clone());
    for _ in 0..500 {
        if created.status.is_none() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        created = stamp(create.clone());
    }
    assert_eq!(created.status, None);
    let read = ReadArguments::single(object(1), 0, 100_000);
    let answered = stamp(Request::new(Procedure::Read, &read, new_drive()));
    let control: DriveControl = from_bytes(&answered.data).unwrap();
    assert_eq!((control.skew_past, control.skew_ahead), (5 * SECOND, 2 * SECOND));
    assert!(control.clock.0.abs_diff(back) <= SECOND, "{:?}", control.clock);
    assert_eq!(control.clock_offset, -(365 * 86_400 * SECOND as i64));
    let ids: Vec<PartitionId> = control.partitions.iter().map(|each| each.partition).collect();
    assert_eq!(ids, [PARTITION]);
    let request = Request::new(Procedure::Getattr, &GetattrArguments { name }, new_drive());
    assert_eq!(stamp(request).failed(), Status::NoSuchObject);
}

#[test]
fn initialize_is_refused_when_it_makes_no_sense() {
    let drive = TestDrive::owned();
    let by = Administrator(&drive);
    let same = by.initialize(Signer::master(), MASTER_KEY, drive.now());
    assert_eq!(same.failed(), Status::BadArgument);
    let late = by.initialize(Signer::master(), 80, Timestamp::MAX);
    assert_eq!(late.failed(), Status::BadArgument);
    for (skew_past, skew_ahead) in [(0, SECOND), (86_401 * SECOND, 0), (SECOND, u64::MAX)] {
        let master = Signer::master().seal(80);
        let clock = drive.now();
        let arguments = InitializeArguments { master, clock, skew_past, skew_ahead };
        let answered = drive.by(Signer::master(), Procedure::Initialize, &arguments);
        assert_eq!(answered.failed(), Status::BadArgument, "{skew_past} {skew_ahead}");
    }
    assert_eq!(by.inquire().partitions, [PARTITION, OTHER_PARTITION]);
}

#[test]
fn an_owner_sets_a_drive_up_through_the_client() {
    let store = Store::open(owned_device(), &OpenOptions::default()).unwrap();
    let drive = Drive::new(store, DriveOptions::default(), Environment::system()).unwrap();
    let server =
        DriveServer::start(drive, std::net::TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
    let retry = RetryPolicy::within(Duration::from_secs(20));
    let options = ConnectOptions { retry, ..ConnectOptions::default() };
    let client = DriveClient::tcp(server.address().to_string(), Some(DRIVE), &options);
    let key = |number| SecretKey::new(key_of(number));
    let protection = Protection::SUPPORTED;
    let master = Authority::master_key(key(MASTER_KEY), protection);
    let now = Timestamp(client.drive_time().0);
    let settings = ClockSettings { clock: now, skew_past: 20 * SECOND, skew_ahead: 3 * SECOND };
    client.initialize(&master, &key(90), settings).unwrap();
    client.initialize(&master, &key(91), settings).unwrap_err();
    let master = Authority::master_key(key(90), protection);
    client.set_drive_key(&master, &key(91)).unwrap();
    let owner = Authority::drive_key(key(91), protection);
    let control = client.drive_control(&owner, NEW).unwrap();
    assert_eq!((control.partitions.len(), control.skew_past), (0, 20 * SECOND));
    client.create_partition(&owner, NEW).unwrap();
    let again = client.create_partition(&owner, NEW).unwrap_err();
    assert_eq!(again.status(), Some(Status::PartitionExists));
    client.resize_partition(&owner, NEW, 8 << 20).unwrap();
    client.set_partition_key(&owner, NEW, &key(92)).unwrap();
    let manager = Authority::partition_key(NEW, key(92), protection);
    client.set_working_key(&manager, NEW, 5, &key(93)).unwrap();
    client.set_previous_working_key(&manager, NEW, 4, &key(94)).unwrap();
    let minimum = Some(Protection::INTEGRITY_ARGS);
    client.set_partition(&manager, NEW, Some(Compression::Lz4), minimum).unwrap();

    let working = Authority::working_key(NEW, key(93), protection);
    let made = client.create(&working, NEW, &SetAttributes::default(), false).unwrap();
    let name = ObjectName { partition: NEW, object: made.object };
    client.write(&working, name, 0, &[7; 100_000], false).unwrap();
    let copy = client.fastcopy(&working, name).unwrap();
    client.punch(&working, name, &[Region::single(0, 8192)], true).unwrap();
    assert_eq!(client.seek(&working, name, 0, SeekTarget::Data).unwrap(), Some(8192));
    let required = client.blocks_required(&working, name, &[Region::single(0, 1 << 30)]).unwrap();
    // Less what the punch left of a compressed run, which is the object's own now.
    assert!(required.maximum >= (1 << 18) - 25 && required.maximum < 1 << 18);
    client.flush_partition(&working, NEW).unwrap();
    let listed: Vec<ObjectId> = client.objects(&working, NEW).collect::<Result<_, _>>().unwrap();
    assert_eq!(listed, [ObjectId::FIRST_OBJECT, made.object, copy.object]);
    let control = client.partition_control(&working, NEW).unwrap();
    assert_eq!((control.summary.quota_bytes, control.summary.objects), (8 << 20, 3));
    assert_eq!(control.summary.compression, Compression::Lz4);
    client.remove_partition(&owner, NEW).unwrap();
    assert!(client.inquiry().unwrap().partitions.is_empty());
}

/// A request that passes at the drive's time, recorded.
fn recorded(drive: &TestDrive, name: ObjectName) -> Request<'static> {
    let nonce = Some(drive.fresh_nonce());
    let request = Request::new(Procedure::Getattr, &GetattrArguments { name }, Signer::working());
    let request = Request { nonce, ..request };
    assert_eq!(drive.ask(&request).unwrap().status, None);
    request
}

/// Stops the drive, cleanly or as a power cut would, and starts it with the machine's clock there.
fn restart(drive: TestDrive, device: &Arc<dyn BlockDevice>, clean: bool, at: u64) -> TestDrive {
    if clean {
        stop(drive)
    } else {
        drop(drive)
    }
    TestDrive::starting(Arc::clone(device), DriveOptions::default(), at)
}

#[test]
fn a_clock_that_was_set_back_lets_no_recorded_request_pass() {
    for clean in [true, false] {
        let device = new_device();
        let drive = TestDrive::on(Arc::clone(&device), DriveOptions::default(), START);
        let name = drive.object_with(b"contents");
        let create = CreateArguments {
            partition: PARTITION,
            object: None,
            durable: true,
            initial: SetAttributes::default(),
        };
        let _: Created = drive.by(Signer::working(), Procedure::Create, &create).take();
        let flush = FlushpartitionArguments { partition: PARTITION };
        let _: Flushed = drive.by(Signer::working(), Procedure::Flushpartition, &flush).take();
        drive.advance(1000 * SECOND);
        let request = recorded(&drive, name);
        let seen = request.nonce.unwrap().timestamp.0;
        // An hour back: the window would be open for it, and knows nothing of it.
        let again = restart(drive, &device, clean, seen - 3600 * SECOND);
        for ahead in [0, 1, 1800, 3590, 3600, 3610] {
            again.clock.store(seen - 3600 * SECOND + ahead * SECOND, Ordering::Relaxed);
            let status = again.ask(&request).unwrap().status;
            assert!(
                matches!(status, Some(Status::RefusedReplay | Status::RefusedSkew)),
                "{ahead} s after the start, clean: {clean}: {status:?}"
            );
        }
        // Those who stamp by the drive's clock pass.
        let refusal = again.ask(&request).unwrap();
        let told = refusal.verifier.nonce.timestamp;
        let nonce = Some(nasd_capability::NonceSource::new(5).draw(told));
        assert_eq!(again.ask(&Request { nonce, ..request }).unwrap().status, None);
        assert!(told.0 > seen);
    }
}

#[test]
fn a_clean_stop_leaves_the_clock_where_it_was() {
    let device = new_device();
    let drive = TestDrive::on(Arc::clone(&device), DriveOptions::default(), START);
    let name = drive.object_with(b"contents");
    recorded(&drive, name);
    let end = drive.now().0;
    let again = restart(drive, &device, true, end + 5 * SECOND);
    // Past what is closed at the start.
    again.advance(2 * SECOND);
    let control = Administrator(&again).control(Signer::drive(), PARTITION);
    assert_eq!(control.started, Timestamp(end + 5 * SECOND));
    assert_eq!(control.clock, again.now());
    // After a power cut it is at most a step ahead, and comes back to the machine's.
    let drive = again;
    drive.advance(100 * SECOND);
    recorded(&drive, name);
    let end = drive.now().0;
    let again = restart(drive, &device, false, end + SECOND);
    let lead = || {
        let answered = again.by(Signer::drive(), Procedure::Inquiry, &());
        // A refusal tells the clock as well.
        answered.verifier.nonce.timestamp.0 - again.now().0
    };
    again.advance(2 * SECOND);
    assert!((10 * SECOND..17 * SECOND).contains(&lead()), "{}", lead());
    again.advance(300 * SECOND);
    assert_eq!(lead(), 0);
}

#[test]
fn a_partition_is_copied_with_all_that_it_has_and_no_keys() {
    let device = new_device();
    let drive = TestDrive::on(Arc::clone(&device), DriveOptions::default(), START);
    let by = Administrator(&drive);
    let name = drive.object_with(&[7; 300_000]);
    let copy = |partition, source| {
        let arguments = CopypartitionArguments { partition, source };
        by.0.by(Signer::drive(), Procedure::Copypartition, &arguments)
    };
    assert_eq!(copy(NEW, PartitionId(99)).failed(), Status::NoSuchPartition);
    assert_eq!(copy(OTHER_PARTITION, PARTITION).failed(), Status::PartitionExists);
    assert_eq!(copy(PARTITION, PARTITION).failed(), Status::PartitionExists);
    // What a drive keeps for itself is nobody's to copy.
    assert_eq!(copy(NEW, PartitionId::AUDIT).failed(), Status::NoSuchPartition);
    assert_eq!(copy(NEW, PARTITION).status, None);
    let control = by.control(Signer::drive(), PARTITION);
    let summary = |partition| {
        *control.partitions.iter().find(|summary| summary.partition == partition).unwrap()
    };
    let (old, new) = (summary(PARTITION), summary(NEW));
    assert_eq!((new.used_bytes, new.objects), (old.used_bytes, old.objects));
    assert_eq!((new.quota_bytes, new.state), (u64::MAX, PartitionState::WithoutKey));
    assert!(control.used_bytes < old.used_bytes + new.used_bytes);
    // Nobody but the drive's owner reaches it before it has keys of its own.
    let copied = ObjectName { partition: NEW, ..name };
    let capability = drive.capability(copied);
    let refused = getattr(&drive, copied, Signer::capability(&capability));
    assert!(refused.is_some_and(|status| status != Status::NoSuchObject), "{refused:?}");
    let read = ReadArguments::single(copied, 0, 300_000);
    assert!(by.0.by(Signer::drive(), Procedure::Read, &read).data == [7; 300_000]);
    // What is written to the one is not in the other, also after a restart.
    drive.write(name, 0, &[8; 5000]);
    let at = drive.now().0 + 5 * SECOND;
    let drive = restart(drive, &device, true, at);
    drive.advance(2 * SECOND);
    let read = |name| {
        let read = ReadArguments::single(name, 0, 300_000);
        drive.by(Signer::drive(), Procedure::Read, &read).data
    };
    assert!(read(copied) == [7; 300_000]);
    assert!(read(name)[..5000] == [8; 5000] && read(name)[5000..] == [7; 295_000]);
}
