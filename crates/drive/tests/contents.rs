//! The well-known objects of Table 4, and what `create` and `setattr` may set.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::*;
use nasd_capability::SecretKey;
use nasd_client::{Authority, ConnectOptions, DriveClient, RetryPolicy};
use nasd_drive::{Drive, DriveOptions, DriveServer, Environment};
use nasd_protocol::drive::{
    CreateArguments, Created, Medium, PartitionState, Procedure, ReadArguments, ReadData,
    RemoveArguments, SetattrArguments,
};
use nasd_protocol::{Region, Status};
use nasd_store::{FormatOptions, OpenOptions, Store};
use nasd_types::{Compression, ObjectId, ObjectName, PartitionId, Protection, SetAttributes};

/// A drive with the system's clock, for the real client.
struct Real {
    /// Serves until it is dropped.
    _server: DriveServer,
    client: DriveClient,
    authority: Authority,
}

impl Real {
    fn new(options: DriveOptions) -> Real {
        let open = OpenOptions { cache_bytes: 64 << 20, ..OpenOptions::default() };
        // Room for many objects.
        let format = FormatOptions { metadata_bytes: Some(96 << 20), ..format_options() };
        let store = Store::open(formatted(&format), &open).unwrap();
        let drive = Drive::new(store, options, Environment::system()).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = DriveServer::start(drive, listener).unwrap();
        let retry = RetryPolicy::within(Duration::from_secs(20));
        let options = ConnectOptions { retry, ..ConnectOptions::default() };
        let client = DriveClient::tcp(server.address().to_string(), Some(DRIVE), &options);
        let secret = SecretKey::new(key_of(WORKING_KEY));
        let authority = Authority::working_key(PARTITION, secret, Protection::INTEGRITY_ARGS);
        Real { _server: server, client, authority }
    }

    fn create(&self) -> ObjectId {
        let initial = SetAttributes::default();
        self.client.create(&self.authority, PARTITION, &initial, false).unwrap().object
    }

    fn remove(&self, object: ObjectId) {
        let name = ObjectName { partition: PARTITION, object };
        self.client.remove(&self.authority, name, false).unwrap();
    }

    fn list(&self) -> Vec<ObjectId> {
        self.client.objects(&self.authority, PARTITION).collect::<Result<_, _>>().unwrap()
    }
}

fn read_list(drive: &TestDrive, offset: u64, length: u64) -> Answered {
    let name = ObjectName { partition: PARTITION, object: ObjectId::PARTITION_CONTENTS };
    drive.by(Signer::working(), Procedure::Read, &ReadArguments::single(name, offset, length))
}

fn identifiers(answered: &Answered) -> Vec<u64> {
    assert_eq!(answered.status, None);
    let (words, rest) = answered.data.as_chunks::<8>();
    assert_eq!(rest, [0; 0]);
    words.iter().map(|word| u64::from_be_bytes(*word)).collect()
}

#[test]
fn the_list_begins_at_the_identifier_that_the_offset_says() {
    let drive = TestDrive::new();
    let objects: Vec<u64> = (0..20).map(|_| drive.new_object().object.0).collect();
    let mut all = vec![ObjectId::FIRST_OBJECT.0];
    all.extend(&objects);
    assert_eq!(identifiers(&read_list(&drive, 0, 4096)), all);
    assert_eq!(read_list(&drive, 0, 8).take::<ReadData>().logical_size, 21 * 8);
    // A part of it, which ends in the middle of an identifier.
    assert_eq!(identifiers(&read_list(&drive, 0, 8 * 5 + 7)), all[..5]);
    assert_eq!(identifiers(&read_list(&drive, 0, 7)), [0; 0]);
    for from in [0, 1, 4, 5, objects[0], objects[3] + 1, objects[19], objects[19] + 1, 1 << 50] {
        let expected: Vec<u64> = all.iter().copied().filter(|object| *object >= from).collect();
        assert_eq!(identifiers(&read_list(&drive, 8 * from, 4096)), expected, "{from}");
    }
    for arguments in [
        ReadArguments::single(object(3), 4, 8),
        ReadArguments { name: object(3), order: None, regions: vec![Region::single(0, 8); 2] },
    ] {
        let answered = drive.by(Signer::working(), Procedure::Read, &arguments);
        assert_eq!(answered.failed(), Status::BadArgument);
    }
    // A removed one is not listed, durable or not.
    let name = ObjectName { partition: PARTITION, object: ObjectId(objects[7]) };
    let remove = RemoveArguments { name, durable: true };
    assert_eq!(drive.by(Signer::working(), Procedure::Remove, &remove).status, None);
    all.retain(|object| *object != objects[7]);
    assert_eq!(identifiers(&read_list(&drive, 0, 4096)), all);
}

#[test]
fn the_client_lists_more_than_a_page() {
    let real = Real::new(DriveOptions::default());
    let mut expected: BTreeSet<ObjectId> = [ObjectId::FIRST_OBJECT].into();
    assert_eq!(real.list(), [ObjectId::FIRST_OBJECT]);
    // A page is 8192 objects; one of exactly that many is followed by an empty one.
    while expected.len() < 8192 {
        expected.insert(real.create());
    }
    assert!(real.list().into_iter().eq(expected.iter().copied()));
    for _ in 0..500 {
        expected.insert(real.create());
    }
    assert!(real.list().into_iter().eq(expected.iter().copied()));
}

#[test]
fn what_exists_all_the_while_is_listed_once_while_others_come_and_go() {
    let real = Real::new(DriveOptions::default());
    let mut stay = Vec::new();
    let mut go = Vec::new();
    for index in 0..10_000 {
        let object = real.create();
        if index % 3 == 0 { stay.push(object) } else { go.push(object) }
    }
    let stopping = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for object in go {
                real.remove(object);
                let _ = real.create();
                if stopping.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for _ in 0..5 {
            let listed = real.list();
            assert!(listed.is_sorted_by(|one, next| one < next), "each once, in order");
            let listed: BTreeSet<ObjectId> = listed.into_iter().collect();
            assert!(stay.iter().all(|object| listed.contains(object)));
        }
        stopping.store(true, Ordering::Relaxed);
    });
}

#[test]
fn control_objects_tell_what_table_4_says() {
    let options = DriveOptions { medium: Medium::Memory, ..DriveOptions::default() };
    let window = options.window;
    let real = Real::new(options);
    let control = real.client.drive_control(&real.authority, PARTITION).unwrap();
    assert_eq!((control.drive, control.medium), (DRIVE, Medium::Memory));
    assert_eq!(control.clock_offset, 0);
    assert_eq!((control.skew_past, control.skew_ahead), (window.past_ns, window.ahead_ns));
    let names: Vec<&str> = control.extensions.iter().map(|known| &known.name[..]).collect();
    assert_eq!(names, ["checksum", "scan", "grep", "prefetch", "cancel"]);
    assert_eq!(control.block_size, 4096);
    let summary = control.partitions[0];
    assert_eq!((summary.partition, summary.state), (PARTITION, PartitionState::Ready));
    assert_eq!(summary.compression, Compression::None);
    assert_eq!(summary.minimum_protection, Protection::NONE);
    let partition = real.client.partition_control(&real.authority, PARTITION).unwrap();
    assert_eq!(partition.summary, summary);
    assert_eq!(partition.summary.objects, 1);
    assert!(partition.objects_supported > partition.summary.objects);
}

#[test]
fn the_first_object_stays() {
    let drive = TestDrive::new();
    let first = object(ObjectId::FIRST_OBJECT.0);
    let remove = RemoveArguments { name: first, durable: false };
    for signer in [Signer::working(), Signer::drive()] {
        let answered = drive.by(signer, Procedure::Remove, &remove);
        assert_eq!(answered.failed(), Status::NotPermitted);
    }
    assert!(drive.server().drive().store().getattr(first).is_ok());
}

#[test]
fn the_block_size_is_the_drives() {
    let drive = TestDrive::new();
    let name = drive.new_object();
    for (block_size, expected) in [
        (None, None),
        (Some(4096), None),
        (Some(512), Some(Status::NotAdjustable)),
        (Some(0), Some(Status::NotAdjustable)),
    ] {
        let changes = SetAttributes { block_size, ..SetAttributes::default() };
        let create = CreateArguments {
            partition: PARTITION,
            object: None,
            durable: false,
            initial: changes.clone(),
        };
        let answered = drive.by(Signer::working(), Procedure::Create, &create);
        assert_eq!(answered.status, expected, "create {block_size:?}");
        let set = SetattrArguments { name, durable: false, changes };
        let answered = drive.by(Signer::working(), Procedure::Setattr, &set);
        assert_eq!(answered.status, expected, "setattr {block_size:?}");
    }
}

#[test]
fn create_takes_all_that_can_be_set() {
    let drive = TestDrive::new();
    let neighbour = drive.new_object();
    let initial = SetAttributes {
        access_control_version: Some(1),
        nearby_object: Some(neighbour.object),
        logical_size: Some(3),
        blocks_allocated: Some(4),
        block_size: Some(4096),
        fs_data_modify_time: Some(nasd_types::Timestamp(5)),
        fs_attribute_modify_time: Some(nasd_types::Timestamp(6)),
        fs_specific: Some(Box::new([7; 256])),
    };
    let create = CreateArguments { partition: PARTITION, object: None, durable: false, initial };
    let created: Created = drive.by(Signer::working(), Procedure::Create, &create).take();
    let is = created.attributes;
    assert_eq!((is.access_control_version, is.nearby_object), (1, neighbour.object));
    assert_eq!((is.logical_size, is.blocks_allocated, is.block_size), (3, 4, 4096));
    assert_eq!((is.fs_data_modify_time.0, is.fs_attribute_modify_time.0), (5, 6));
    assert_eq!(*is.fs_specific, [7; 256]);
    assert_eq!((is.copied_object, is.create_time), (ObjectId(0), drive.now()));
    let nowhere = CreateArguments {
        partition: PartitionId(77),
        object: None,
        durable: false,
        initial: Default::default(),
    };
    let answered = drive.by(Signer::drive(), Procedure::Create, &nowhere);
    assert_eq!(answered.failed(), Status::NoSuchPartition);
}
