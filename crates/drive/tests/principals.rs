//! No sequence of operations reaches an object or a byte outside what was granted.
//!
//! Three principals hold capabilities that were minted for them, and use them, as they are and
//! altered, on all objects, while access control versions rise, working keys rotate, minimums change
//! and time passes. A reference that knows nothing of the drive's code decides each request; status
//! and data must be as it says. After each step every byte of every object is compared, so that
//! whatever a request reaches beside what it may is found.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use common::*;
use nasd_capability::{Capability, SecretKey, capability_key};
use nasd_protocol::drive::{
    AttributesReply, CreateArguments, Created, FlushArguments, GetattrArguments, PartitionKey,
    Procedure, PunchArguments, ReadArguments, RemoveArguments, SetattrArguments, SetdriveArguments,
    SetpartitionArguments, SetpartitionkeyArguments, WriteArguments,
};
use nasd_protocol::{CredentialKey, Region, Status};
use nasd_types::limits::MAX_OBJECT_BYTES;
use nasd_types::{
    AuditId, ByteRange, ObjectId, ObjectName, PartitionId, Protection, Rights, SetAttributes,
    Timestamp,
};
use nasd_xdr::to_bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;

const PEOPLE: usize = 3;

/// Objects to begin with: the last is in the other partition.
const OBJECTS: usize = 4;

/// The name in steps for a whole partition, instead of an object.
const WHOLE: usize = OBJECTS;

const PARTITIONS: [PartitionId; 2] = [PARTITION, OTHER_PARTITION];

const FIRST: ObjectId = ObjectId::FIRST_OBJECT;

/// What is compared of an object; no step reaches further.
const SIZE: usize = 256;

const STRONG: Protection = Protection::INTEGRITY_ARGS.union(Protection::INTEGRITY_DATA);
const LEVELS: [Protection; 3] = [Protection::NONE, Protection::INTEGRITY_ARGS, STRONG];

#[derive(Clone, Debug)]
enum Step {
    Mint {
        who: usize,
        on: usize,
        rights: u32,
        region: Option<(u8, u8)>,
        life: u8,
        minimum: usize,
    },
    Bump(usize),
    Rotate(usize),
    PartitionMinimum(usize, usize),
    DriveMinimum(usize),
    Pass(u8),
    Use {
        who: usize,
        grant: Index,
        lie: Lie,
        /// `None` is as much as the capability demands.
        protection: Option<usize>,
        action: Action,
        request: Target,
    },
}

/// On what a request is made.
#[derive(Clone, Copy, Debug)]
struct Target {
    /// `None` is the capability's own; with one for a partition something is made in it then.
    object: Option<usize>,
    offset: u8,
    length: u8,
    byte: u8,
}

/// What a principal makes of the public half of its capability.
#[derive(Clone, Copy, Debug)]
enum Lie {
    None,
    AllRights,
    WholeObject,
    Object(usize),
    LongerLife,
    WeakerMinimum,
    NextEpoch,
    AnotherUser,
    /// Shows the first capability of that principal, whose key it does not have.
    OfAnother(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Read,
    Write,
    Getattr,
    Truncate,
    Remove,
    Flush,
    Punch,
    Create,
}

fn lies() -> impl Strategy<Value = Lie> {
    prop_oneof![
        30 => Just(Lie::None),
        1 => Just(Lie::AllRights),
        1 => Just(Lie::WholeObject),
        1 => (0..OBJECTS).prop_map(Lie::Object),
        1 => Just(Lie::LongerLife),
        1 => Just(Lie::WeakerMinimum),
        1 => Just(Lie::NextEpoch),
        1 => Just(Lie::AnotherUser),
        1 => (0..PEOPLE).prop_map(Lie::OfAnother),
    ]
}

fn actions() -> impl Strategy<Value = Action> {
    use Action::*;
    prop_oneof![
        6 => Just(Read), 6 => Just(Write), 2 => Just(Getattr), 2 => Just(Truncate),
        1 => Just(Remove), 2 => Just(Flush), 2 => Just(Punch), 1 => Just(Create),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    let objects = prop_oneof![6 => Just(None), 1 => (0..OBJECTS).prop_map(Some)];
    let targets = (objects, 0..120_u8, 0..60_u8, any::<u8>())
        .prop_map(|(object, offset, length, byte)| Target { object, offset, length, byte });
    // Most have all rights, so that more is done than refused.
    let rights = prop_oneof![3 => Just(Rights::all().bits()), 2 => 0..=Rights::all().bits()];
    let regions = prop_oneof![2 => Just(None), 1 => (0..60_u8, 40..120_u8).prop_map(Some)];
    let levels = || prop_oneof![1 => Just(0_usize), 6 => Just(1), 4 => Just(2)];
    let protections = prop_oneof![6 => Just(None), 1 => (0..LEVELS.len()).prop_map(Some)];
    let mint = (0..PEOPLE, 0..=WHOLE, rights, regions, 1..200_u8, levels());
    prop_oneof![
        6 => mint.prop_map(|(who, on, rights, region, life, minimum)| {
            Step::Mint { who, on, rights, region, life, minimum }
        }),
        1 => (0..OBJECTS).prop_map(Step::Bump),
        1 => (0..PARTITIONS.len()).prop_map(Step::Rotate),
        1 => (0..PARTITIONS.len(), levels())
            .prop_map(|(partition, level)| Step::PartitionMinimum(partition, level)),
        1 => levels().prop_map(Step::DriveMinimum),
        2 => (1..8_u8).prop_map(Step::Pass),
        40 => (0..PEOPLE, any::<Index>(), lies(), protections, actions(), targets).prop_map(
            |(who, grant, lie, protection, action, request)| {
                Step::Use { who, grant, lie, protection, action, request }
            }
        ),
    ]
}

/// What a principal was given. Delegation will add to `secret` what it is chained with.
#[derive(Clone)]
struct Held {
    capability: Capability,
    secret: SecretKey,
    /// With which of the test's keys it was minted.
    key: u8,
    version: u64,
}

struct Object {
    name: ObjectName,
    /// `None` when it was removed.
    data: Option<Vec<u8>>,
    version: u64,
}

/// A partition's working keys, as epoch and number of the test's key.
struct Keys {
    current: (u32, u8),
    previous: Option<(u32, u8)>,
}

/// The reference.
struct World {
    drive: TestDrive,
    objects: Vec<Object>,
    /// Others that were made, and stay empty.
    made: BTreeSet<ObjectName>,
    keys: [Keys; 2],
    minimums: [Protection; 2],
    drive_minimum: Protection,
    held: [Vec<Held>; PEOPLE],
    seen: Seen,
}

/// How requests ended: a model that only ever sees refusals finds nothing.
#[derive(Default)]
struct Seen {
    done: BTreeMap<String, usize>,
    refused: BTreeMap<u32, usize>,
}

/// Which of the two partitions it is.
fn index_of(partition: PartitionId) -> usize {
    PARTITIONS.iter().position(|one| *one == partition).unwrap()
}

impl World {
    fn new() -> World {
        let drive = TestDrive::new();
        let mut objects = Vec::new();
        for number in 0..OBJECTS {
            let data = pattern(number as u32, 100);
            let name = if number == OBJECTS - 1 {
                ObjectName { partition: OTHER_PARTITION, object: FIRST }
            } else {
                drive.new_object()
            };
            let arguments = WriteArguments::single(name, 0, data.len(), false);
            let request = Request::new(Procedure::Write, &arguments, Signer::drive());
            assert_eq!(drive.ask(&Request { data: &data, ..request }).unwrap().status, None);
            let version = drive.server().drive().store().getattr(name).unwrap();
            let version = version.access_control_version;
            objects.push(Object { name, data: Some(data), version });
        }
        let keys = [WORKING_KEY, WORKING_KEY + 10]
            .map(|key| Keys { current: (EPOCH, key), previous: None });
        World {
            drive,
            objects,
            made: BTreeSet::new(),
            keys,
            minimums: [Protection::NONE; 2],
            drive_minimum: Protection::INTEGRITY_ARGS,
            held: [const { Vec::new() }; PEOPLE],
            seen: Seen::default(),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Mint { who, on, rights, region, life, minimum } => {
                let held = self.mint(*on, *rights, *region, *life, *minimum);
                self.held[*who].push(held);
            }
            Step::Bump(object) => self.bump(*object),
            Step::Rotate(partition) => self.rotate(*partition),
            Step::PartitionMinimum(partition, level) => {
                let arguments = SetpartitionArguments {
                    partition: PARTITIONS[*partition],
                    compression: None,
                    minimum_protection: Some(LEVELS[*level]),
                };
                self.administer(Procedure::Setpartition, &to_bytes(&arguments), Signer::drive());
                self.minimums[*partition] = LEVELS[*level];
            }
            Step::DriveMinimum(level) => {
                let arguments = SetdriveArguments { minimum_protection: Some(LEVELS[*level]) };
                self.administer(Procedure::Setdrive, &to_bytes(&arguments), Signer::drive());
                // It was started with that much.
                self.drive_minimum = LEVELS[*level] | Protection::INTEGRITY_ARGS;
            }
            Step::Pass(seconds) => self.drive.advance(u64::from(*seconds) * SECOND),
            Step::Use { who, grant, lie, protection, action, request } => {
                if self.held[*who].is_empty() {
                    return;
                }
                let held = grant.get(&self.held[*who]).clone();
                let shown = self.lie(&held, *lie);
                let protection =
                    protection.map_or(held.capability.minimum_protection, |level| LEVELS[level]);
                self.act(&held, &shown, protection, *action, *request);
            }
        }
    }

    /// Something that only a key may do, and that must succeed.
    fn administer(&self, procedure: Procedure, arguments: &[u8], signer: Signer) {
        let request = Request::new(procedure, &(), signer);
        let arguments = arguments.to_vec();
        let answered =
            self.drive.ask(&Request { arguments, protection: STRONG, ..request }).unwrap();
        assert_eq!(answered.status, None, "{procedure:?}");
        assert!(answered.proved);
    }

    fn mint(
        &self,
        on: usize,
        rights: u32,
        region: Option<(u8, u8)>,
        life: u8,
        minimum: usize,
    ) -> Held {
        let whole = ObjectName { partition: PARTITION, object: ObjectId(0) };
        let (name, version) =
            self.objects.get(on).map_or((whole, 0), |object| (object.name, object.version));
        let (key_epoch, key) = self.keys[index_of(name.partition)].current;
        let range = |(offset, length)| ByteRange::new(u64::from(offset), u64::from(length));
        let capability = Capability {
            region: region.map_or(ByteRange::ALL, range),
            rights: Rights::from_bits_truncate(rights),
            expires: self.drive.now().plus_ns(u64::from(life) * SECOND),
            minimum_protection: LEVELS[minimum],
            key_epoch,
            ..self.drive.capability(name)
        };
        let secret = capability_key(&SecretKey::new(key_of(key)), &capability, version);
        Held { capability, secret, key, version }
    }

    fn bump(&mut self, object: usize) {
        let Object { name, data, version } = &mut self.objects[object];
        if data.is_none() {
            return;
        }
        *version += 1;
        let changes =
            SetAttributes { access_control_version: Some(*version), ..SetAttributes::default() };
        let arguments = SetattrArguments { name: *name, durable: false, changes };
        self.administer(Procedure::Setattr, &to_bytes(&arguments), Signer::drive());
    }

    fn rotate(&mut self, partition: usize) {
        let Keys { current: (epoch, key), .. } = self.keys[partition];
        // No number twice, and none of those that other keys have.
        let new = (epoch + 1, 20 + 2 * (epoch - EPOCH) as u8 + partition as u8);
        let signer = Signer::key(
            CredentialKey::Partition(PARTITIONS[partition]),
            PARTITION_KEY + 10 * partition as u8,
        );
        let arguments = SetpartitionkeyArguments {
            partition: PARTITIONS[partition],
            which: PartitionKey::Current,
            epoch: new.0,
            value: signer.seal(new.1),
        };
        self.administer(Procedure::Setpartitionkey, &to_bytes(&arguments), signer);
        self.keys[partition] = Keys { current: new, previous: Some((epoch, key)) };
    }

    fn lie(&self, held: &Held, lie: Lie) -> Capability {
        let mut shown = held.capability;
        match lie {
            Lie::None => {}
            Lie::AllRights => shown.rights = Rights::all(),
            Lie::WholeObject => shown.region = ByteRange::ALL,
            Lie::Object(object) => {
                let name = self.objects[object].name;
                (shown.partition, shown.object) = (name.partition, name.object);
            }
            Lie::LongerLife => shown.expires = Timestamp::MAX,
            Lie::WeakerMinimum => shown.minimum_protection = Protection::INTEGRITY_ARGS,
            Lie::NextEpoch => shown.key_epoch += 1,
            Lie::AnotherUser => shown.audit_id = AuditId(shown.audit_id.0 + 1),
            Lie::OfAnother(who) => {
                if let Some(other) = self.held[who].first() {
                    shown = other.capability;
                }
            }
        }
        shown
    }

    /// What the paper's list of checks says of a request, in the documented order.
    fn decide(
        &self,
        held: &Held,
        shown: &Capability,
        protection: Protection,
        wanted: &Wanted,
    ) -> Result<(), Status> {
        let partition = index_of(wanted.name.partition);
        let fail = |condition: bool, status| if condition { Err(status) } else { Ok(()) };
        fail(!protection.contains(shown.minimum_protection), Status::RefusedProtection)?;
        let minimum = self.drive_minimum | self.minimums[partition];
        fail(!shown.minimum_protection.contains(minimum), Status::RefusedMinimum)?;
        let now = self.drive.now();
        let is_over = now >= shown.expires && shown.expires != Timestamp::MAX;
        fail(is_over, Status::RefusedExpired)?;
        fail(shown.partition != wanted.name.partition, Status::RefusedPartition)?;
        fail(shown.object != wanted.name.object, Status::RefusedObject)?;
        fail(!shown.rights.contains(wanted.rights), Status::RefusedRights)?;
        if let Some(bytes) = wanted.bytes {
            let end = |range: &ByteRange| range.offset.saturating_add(range.length);
            let within = bytes.offset >= shown.region.offset && end(&bytes) <= end(&shown.region);
            fail(!within, Status::RefusedRegion)?;
        }
        let keys = &self.keys[index_of(shown.partition)];
        let known = [Some(keys.current), keys.previous].into_iter().flatten();
        let key = known.into_iter().find(|(epoch, _)| *epoch == shown.key_epoch);
        let Some((_, key)) = key else { return Err(Status::RefusedEpoch) };
        let version = match shown.object {
            ObjectId(0) => Some(0),
            _ => self.objects.iter().find_map(|object| {
                let is_it = object.name.object == shown.object
                    && object.name.partition == shown.partition
                    && object.data.is_some();
                is_it.then_some(object.version)
            }),
        };
        let genuine = *shown == held.capability && key == held.key && version == Some(held.version);
        fail(!genuine, Status::RefusedDigest)
    }

    /// Makes the request, and compares its outcome with what the reference says.
    fn act(
        &mut self,
        held: &Held,
        shown: &Capability,
        protection: Protection,
        action: Action,
        target: Target,
    ) {
        let own = self.objects.iter().position(|one| one.name.object == held.capability.object);
        let (object, action) = match (target.object, own) {
            (Some(object), _) => (object, action),
            (None, Some(object)) => (object, action),
            (None, None) => (0, Action::Create),
        };
        let wanted = Wanted::new(action, self.objects[object].name, target);
        let signer = Signer {
            claimed: CredentialKey::Capability(*shown),
            secret: Some(held.secret.clone()),
        };
        let expected = self.decide(held, shown, protection, &wanted);
        let request = Request { protection, ..wanted.request(signer) };
        let answered = self.drive.ask(&request).unwrap();
        let what = || format!("{action:?} {target:?} with {shown:?} under {protection:?}");
        if expected.is_ok() && action == Action::Remove && wanted.name.object == FIRST {
            assert_eq!(answered.failed(), Status::NotPermitted, "a partition always has it");
            return;
        }
        assert_eq!(answered.status, expected.err(), "{}", what());
        if let Err(status) = expected {
            *self.seen.refused.entry(status.into()).or_default() += 1;
            assert!(!answered.proved && answered.data.is_empty(), "{}", what());
            return;
        }
        assert!(answered.proved, "{}", what());
        *self.seen.done.entry(format!("{action:?}")).or_default() += 1;
        self.apply(action, object, target, &answered);
    }

    /// What the request did, to the reference.
    fn apply(&mut self, action: Action, object: usize, target: Target, answered: &Answered) {
        let object = &mut self.objects[object];
        let (start, length) = (usize::from(target.offset), usize::from(target.length));
        if action == Action::Create {
            let Created { object: made, .. } = answered.take();
            let name = ObjectName { object: made, ..object.name };
            assert!(self.objects.iter().all(|object| object.name != name));
            assert!(self.made.insert(name), "{name} was made already");
            return;
        }
        let data = object.data.as_mut().expect("what there is not has no digest");
        let end = data.len().min(start + length);
        match action {
            Action::Read => assert_eq!(answered.data, data.get(start..end).unwrap_or_default()),
            Action::Write if length > 0 => {
                data.resize(data.len().max(start + length), 0);
                data[start..start + length].fill(target.byte);
            }
            Action::Truncate => data.resize(start, 0),
            Action::Punch if start < end => data[start..end].fill(0),
            Action::Getattr => {
                let AttributesReply { attributes } = answered.take();
                assert_eq!(attributes.logical_size, data.len() as u64);
            }
            Action::Remove => object.data = None,
            _ => {}
        }
    }

    /// Every byte, size and version of every object, and which there are, is as the reference says.
    fn compare(&self) {
        let store = self.drive.server().drive().store();
        for Object { name, data, version } in &self.objects {
            let Some(data) = data else {
                assert!(store.getattr(*name).is_err(), "{name} was removed");
                continue;
            };
            let found = store.read(*name, ByteRange::new(0, SIZE as u64)).unwrap();
            assert_eq!(found.to_vec(), *data, "{name}");
            let attributes = store.getattr(*name).unwrap();
            assert_eq!(attributes.access_control_version, *version, "{name}");
            assert_eq!(attributes.logical_size, data.len() as u64, "{name}");
        }
        for partition in PARTITIONS {
            let first = ObjectName { partition, object: FIRST };
            let there = self.objects.iter().filter(|object| object.data.is_some());
            let expected: BTreeSet<ObjectName> = there
                .map(|object| object.name)
                .chain(self.made.iter().copied())
                .chain([first])
                .filter(|name| name.partition == partition)
                .collect();
            let found = store.list(partition, ObjectId(0), 1000).unwrap();
            let found: BTreeSet<ObjectName> =
                found.into_iter().map(|object| ObjectName { partition, object }).collect();
            assert_eq!(found, expected);
        }
    }
}

/// A request, and what it needs.
struct Wanted {
    procedure: Procedure,
    arguments: Vec<u8>,
    data: Vec<u8>,
    name: ObjectName,
    rights: Rights,
    bytes: Option<ByteRange>,
}

impl Wanted {
    fn new(action: Action, name: ObjectName, target: Target) -> Wanted {
        let (offset, length) = (u64::from(target.offset), usize::from(target.length));
        let range = ByteRange::new(offset, length as u64);
        let region = Region { offset, length: length as u64, stride: length as u64, count: 1 };
        let of = |procedure, arguments, rights, bytes| Wanted {
            procedure,
            arguments,
            data: Vec::new(),
            name,
            rights,
            bytes,
        };
        let changes = SetAttributes { logical_size: Some(offset), ..SetAttributes::default() };
        let (partition, objects) = (name.partition, vec![name.object]);
        let (durable, initial) = (false, SetAttributes::default());
        match action {
            Action::Read => {
                let arguments = to_bytes(&ReadArguments::single(name, offset, length as u64));
                of(Procedure::Read, arguments, Rights::READ, Some(range))
            }
            Action::Write => {
                let arguments = to_bytes(&WriteArguments::single(name, offset, length, false));
                let write = of(Procedure::Write, arguments, Rights::WRITE, Some(range));
                Wanted { data: vec![target.byte; length], ..write }
            }
            Action::Getattr => {
                let arguments = to_bytes(&GetattrArguments { name });
                of(Procedure::Getattr, arguments, Rights::GETATTR, None)
            }
            Action::Truncate => {
                let arguments = to_bytes(&SetattrArguments { name, durable, changes });
                // All that lies behind the new end is cut off.
                let cut = ByteRange::new(offset, MAX_OBJECT_BYTES - offset);
                of(Procedure::Setattr, arguments, Rights::SETATTR, Some(cut))
            }
            Action::Remove => {
                let arguments = to_bytes(&RemoveArguments { name, durable });
                of(Procedure::Remove, arguments, Rights::REMOVE, None)
            }
            Action::Flush => {
                let arguments = to_bytes(&FlushArguments { partition, objects });
                of(Procedure::Flush, arguments, Rights::FLUSH, None)
            }
            Action::Punch => {
                let regions = vec![region];
                let arguments = to_bytes(&PunchArguments { name, durable, regions });
                of(Procedure::Punch, arguments, Rights::WRITE, Some(range))
            }
            Action::Create => {
                let arguments = to_bytes(&CreateArguments { partition, durable, initial });
                let create = of(Procedure::Create, arguments, Rights::CREATE, None);
                Wanted { name: ObjectName { object: ObjectId(0), ..name }, ..create }
            }
        }
    }

    fn request(&self, signer: Signer) -> Request<'_> {
        let request = Request::new(self.procedure, &(), signer);
        Request { arguments: self.arguments.clone(), data: &self.data, ..request }
    }
}

/// `NASD_MODEL_SECONDS` says about for how long; without it, some seconds.
fn cases() -> u32 {
    let seconds = std::env::var("NASD_MODEL_SECONDS").ok().and_then(|text| text.parse().ok());
    seconds.map_or(24, |seconds: u32| seconds.saturating_mul(2))
}

#[test]
fn nobody_reaches_beyond_what_was_granted() {
    let config = ProptestConfig {
        cases: cases(),
        max_shrink_iters: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let seen = RefCell::new(Seen::default());
    let outcome = TestRunner::new(config).run(&vec(steps(), 1..160), |steps| {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.compare();
        }
        let mut seen = seen.borrow_mut();
        for (action, count) in world.seen.done {
            *seen.done.entry(action).or_default() += count;
        }
        for (status, count) in world.seen.refused {
            *seen.refused.entry(status).or_default() += count;
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    let Seen { done, refused } = seen.into_inner();
    assert_eq!(done.len(), 8, "each action succeeds at times: {done:?}");
    let statuses = [
        Status::RefusedProtection,
        Status::RefusedMinimum,
        Status::RefusedExpired,
        Status::RefusedPartition,
        Status::RefusedObject,
        Status::RefusedRights,
        Status::RefusedRegion,
        Status::RefusedEpoch,
        Status::RefusedDigest,
    ];
    let statuses: BTreeSet<u32> = statuses.into_iter().map(u32::from).collect();
    assert_eq!(refused.keys().copied().collect::<BTreeSet<_>>(), statuses, "{refused:?}");
    println!("{done:?} {refused:?}");
}
