//! No sequence of operations reaches an object or a byte outside what was granted.
//!
//! Three principals hold capabilities that were minted for them, narrow them and hand them on to each
//! other, and use them, as they are and altered, under every set of protection options, on all objects,
//! while access control versions rise, working keys rotate, minimums change and time passes. A reference
//! that knows nothing of the drive's code decides each request; status, data, and whether the answer was
//! readable must be as it says. After each step every byte of every object is compared, so that
//! whatever a request reaches beside what it may is found.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;
#[path = "principals/delegated.rs"]
mod delegated;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use common::*;
use delegated::{Cut, Held, Lie, LinkLie, Shown, Widening, allowed, cuts, lies, widenings};
use nasd_capability::{
    Capability, MAX_NARROWINGS, NARROWING_BYTES, Narrowing, SealingKeys, SecretKey, capability_key,
};
use nasd_protocol::drive::{
    AttributesReply, CreateArguments, Created, FlushArguments, GetattrArguments, PartitionKey,
    Procedure, PunchArguments, ReadArguments, RemoveArguments, SetattrArguments, SetdriveArguments,
    SetpartitionArguments, SetpartitionkeyArguments, WriteArguments,
};
use nasd_protocol::{CredentialKey, Region, Status};
use nasd_transport::{AuthStatus, ChannelError, ReplyError};
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

/// With this everything passes that keys do: they show no capability.
const STRONG: Protection = Protection::INTEGRITY_ARGS
    .union(Protection::INTEGRITY_DATA)
    .union(Protection::PRIVACY_DATA)
    .union(Protection::PRIVACY_ARGS);

/// All sets that have a meaning, weaker ones before those that contain them.
fn levels() -> Vec<Protection> {
    let understood = |bits| Protection::from_bits_retain(bits);
    (0..32).map(understood).filter(|set| set.is_understood()).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Mint {
        who: usize,
        on: usize,
        rights: u32,
        region: Option<(u8, u8)>,
        life: u8,
        minimum: Protection,
        /// Whether the manager is asked to seal it too.
        sealed: bool,
    },
    /// A principal hands on what it holds, after these cuts.
    Delegate {
        who: usize,
        grant: Index,
        to: usize,
        cuts: Vec<Cut>,
        widening: Option<Widening>,
    },
    Bump(usize),
    Rotate(usize),
    PartitionMinimum(usize, Protection),
    DriveMinimum(Protection),
    Pass(u8),
    Use {
        who: usize,
        grant: Index,
        lie: Lie,
        protection: Wish,
        /// Whether the capability is shown as the protection says: sealed or not.
        in_form: bool,
        action: Action,
        request: Target,
    },
}

/// With what a request is protected.
#[derive(Clone, Copy, Debug)]
enum Wish {
    /// With as much as the capability demands, and these options.
    AtLeast(Protection),
    Exactly(Protection),
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

fn actions() -> impl Strategy<Value = Action> {
    use Action::*;
    prop_oneof![
        6 => Just(Read), 6 => Just(Write), 2 => Just(Getattr), 2 => Just(Truncate),
        2 => Just(Remove), 2 => Just(Flush), 2 => Just(Punch), 1 => Just(Create),
    ]
}

/// What is demanded by whom it may concern: mostly little, so that more is done than refused.
fn minimums(little: u32) -> impl Strategy<Value = Protection> {
    let args = Protection::INTEGRITY_ARGS;
    prop_oneof![
        little => Just(args),
        1 => Just(args | Protection::INTEGRITY_DATA),
        1 => prop::sample::select(levels()),
    ]
}

fn targets() -> impl Strategy<Value = Target> {
    let objects = prop_oneof![6 => Just(None), 1 => (0..OBJECTS).prop_map(Some)];
    (objects, 0..120_u8, 0..60_u8, any::<u8>()).prop_map(|(object, offset, length, byte)| Target {
        object,
        offset,
        length,
        byte,
    })
}

/// A request, as a principal makes it.
fn uses() -> impl Strategy<Value = Step> {
    let anything = (0..32_u32).prop_map(Protection::from_bits_retain);
    let protections = prop_oneof![
        8 => Just(Wish::AtLeast(Protection::NONE)),
        24 => prop::sample::select(levels()).prop_map(Wish::AtLeast),
        1 => prop::sample::select(levels()).prop_map(Wish::Exactly),
        1 => anything.prop_map(Wish::Exactly),
    ];
    let forms = prop::bool::weighted(0.97);
    (0..PEOPLE, any::<Index>(), lies(), protections, forms, actions(), targets()).prop_map(
        |(who, grant, lie, protection, in_form, action, request)| Step::Use {
            who,
            grant,
            lie,
            protection,
            in_form,
            action,
            request,
        },
    )
}

fn steps() -> impl Strategy<Value = Step> {
    // Most have all rights, so that more is done than refused.
    let rights = prop_oneof![3 => Just(Rights::all().bits()), 2 => 0..=Rights::all().bits()];
    let regions = prop_oneof![2 => Just(None), 1 => (0..60_u8, 40..120_u8).prop_map(Some)];
    let seals = prop::bool::weighted(0.95);
    let mint = (0..PEOPLE, 0..=WHOLE, rights, regions, 1..200_u8, minimums(5), seals);
    let delegate = (0..PEOPLE, any::<Index>(), 0..PEOPLE, cuts(), widenings());
    prop_oneof![
        6 => mint.prop_map(|(who, on, rights, region, life, minimum, sealed)| {
            Step::Mint { who, on, rights, region, life, minimum, sealed }
        }),
        8 => delegate.prop_map(|(who, grant, to, cuts, widening)| {
            Step::Delegate { who, grant, to, cuts, widening }
        }),
        1 => (0..OBJECTS).prop_map(Step::Bump),
        1 => (0..PARTITIONS.len()).prop_map(Step::Rotate),
        1 => (0..PARTITIONS.len(), minimums(20))
            .prop_map(|(partition, minimum)| Step::PartitionMinimum(partition, minimum)),
        1 => minimums(20).prop_map(Step::DriveMinimum),
        2 => (1..8_u8).prop_map(Step::Pass),
        40 => uses(),
    ]
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
    /// Refused by an answer that only the sender can read.
    refused_in_private: BTreeMap<u32, usize>,
    malformed: usize,
    /// Done after so many narrowings.
    links: BTreeMap<usize, usize>,
    /// Done under these options.
    options: BTreeMap<u32, usize>,
}

impl Seen {
    fn add(&mut self, other: Seen) {
        fn merge<K: Ord>(all: &mut BTreeMap<K, usize>, more: BTreeMap<K, usize>) {
            for (key, count) in more {
                *all.entry(key).or_default() += count;
            }
        }
        merge(&mut self.done, other.done);
        merge(&mut self.refused, other.refused);
        merge(&mut self.refused_in_private, other.refused_in_private);
        merge(&mut self.links, other.links);
        merge(&mut self.options, other.options);
        self.malformed += other.malformed;
    }
}

/// What the reference says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Done,
    Refused(Status),
    /// After the digest was found right: the answer is encrypted and proved.
    RefusedInPrivate(Status),
    Malformed,
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
            Step::Mint { who, on, rights, region, life, minimum, sealed } => {
                let rights = Rights::from_bits_truncate(*rights);
                let held = self.mint(*on, rights, *region, *life, *minimum, *sealed);
                self.held[*who].push(held);
            }
            Step::Delegate { who, grant, to, cuts, widening } => {
                if !self.held[*who].is_empty() {
                    let held = grant.get(&self.held[*who]);
                    let given = held.handed_on(cuts, *widening, self.drive.now());
                    self.held[*to].push(given);
                }
            }
            Step::Bump(object) => self.bump(*object),
            Step::Rotate(partition) => self.rotate(*partition),
            Step::PartitionMinimum(partition, minimum) => {
                let arguments = SetpartitionArguments {
                    partition: PARTITIONS[*partition],
                    compression: None,
                    minimum_protection: Some(*minimum),
                };
                self.administer(Procedure::Setpartition, &to_bytes(&arguments), Signer::drive());
                self.minimums[*partition] = *minimum;
            }
            Step::DriveMinimum(minimum) => {
                let arguments = SetdriveArguments { minimum_protection: Some(*minimum) };
                self.administer(Procedure::Setdrive, &to_bytes(&arguments), Signer::drive());
                // It was started with that much.
                self.drive_minimum = *minimum | Protection::INTEGRITY_ARGS;
            }
            Step::Pass(seconds) => self.drive.advance(u64::from(*seconds) * SECOND),
            Step::Use { who, grant, lie, protection, in_form, action, request } => {
                if self.held[*who].is_empty() {
                    return;
                }
                let held = grant.get(&self.held[*who]).clone();
                let protection = match protection {
                    Wish::AtLeast(options) => held.capability.minimum_protection | *options,
                    Wish::Exactly(options) => *options,
                };
                let sealed = protection.contains(Protection::PRIVACY_CAPABILITY) == *in_form;
                let shown = self.show(&held, *lie, sealed);
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
        rights: Rights,
        region: Option<(u8, u8)>,
        life: u8,
        minimum_protection: Protection,
        sealed: bool,
    ) -> Held {
        let whole = ObjectName { partition: PARTITION, object: ObjectId(0) };
        let (name, version) =
            self.objects.get(on).map_or((whole, 0), |object| (object.name, object.version));
        let (key_epoch, key) = self.keys[index_of(name.partition)].current;
        let range = |(offset, length)| ByteRange::new(u64::from(offset), u64::from(length));
        let capability = Capability {
            region: region.map_or(ByteRange::ALL, range),
            rights,
            expires: self.drive.now().plus_ns(u64::from(life) * SECOND),
            minimum_protection,
            key_epoch,
            ..self.drive.capability(name)
        };
        let working = SecretKey::new(key_of(key));
        let secret = capability_key(&working, &capability, version);
        let sealed = sealed.then(|| SealingKeys::new(&working).seal(&capability));
        Held { capability, chain: Vec::new(), secret, key, version, sealed }
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

    /// What is shown of what is held, if somebody lies so; sealed, if it is to be and can be.
    fn show(&self, held: &Held, lie: Lie, sealed: bool) -> Shown {
        let mut shown = Shown {
            capability: held.capability,
            chain: held.chain.clone(),
            sealed: held.sealed.filter(|_| sealed),
            is_forged: false,
            has_ninth: false,
        };
        match lie {
            Lie::None => {}
            Lie::Link(LinkLie::Ninth) => {
                // Whoever has fewer can make them eight.
                let last = held.chain.last().copied().unwrap_or(Narrowing::of(&held.capability));
                shown.chain.resize(MAX_NARROWINGS, last);
                shown.has_ninth = true;
            }
            Lie::Link(lie) => {
                let other = match lie {
                    LinkLie::OfAnother(who) => self.held[who].last(),
                    _ => None,
                };
                shown.chain = lie.of(&held.chain, other.map_or(&[], |other| &other.chain));
            }
            Lie::OfAnother(who) => {
                if let Some(other) = self.held[who].first() {
                    shown.sealed = other.sealed.filter(|_| sealed);
                    shown.capability = other.capability;
                }
            }
            _ => match &mut shown.sealed {
                // Whoever has no working key seals nothing anew.
                Some(sealed) => {
                    sealed.sealed[20] ^= 1;
                    shown.is_forged = true;
                }
                None => self.lie_about(&mut shown.capability, lie),
            },
        }
        shown
    }

    fn lie_about(&self, shown: &mut Capability, lie: Lie) {
        match lie {
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
            Lie::None | Lie::OfAnother(_) | Lie::Link(_) => {}
        }
    }

    /// What the documents say of a request, in their order.
    fn decide(
        &self,
        held: &Held,
        shown: &Shown,
        protection: Protection,
        wanted: &Wanted,
    ) -> Verdict {
        if shown.has_ninth {
            return Verdict::Malformed;
        }
        let is_private = protection.contains(Protection::PRIVACY_ARGS);
        // What is encrypted is not known before the digest is right.
        let first_of = match is_private {
            true => shown.capability.partition,
            false => wanted.name.partition,
        };
        let first = self
            .open(shown)
            .and_then(|()| self.check_terms(shown, protection, first_of))
            .and_then(|left| if is_private { Ok(()) } else { Self::check_access(&left, wanted) })
            .and_then(|()| self.check_digest(held, shown));
        if let Err(status) = first {
            return Verdict::Refused(status);
        }
        let second = self
            .check_terms(shown, protection, wanted.name.partition)
            .and_then(|left| Self::check_access(&left, wanted));
        second.map_or_else(Verdict::RefusedInPrivate, |()| Verdict::Done)
    }

    /// What is sealed is opened before anything else.
    fn open(&self, shown: &Shown) -> Result<(), Status> {
        if shown.sealed.is_some() {
            self.key_of(&shown.capability)?;
            fail(shown.is_forged, Status::RefusedDigest)?;
        }
        Ok(())
    }

    /// The number of the test's key that a capability was made with.
    fn key_of(&self, shown: &Capability) -> Result<u8, Status> {
        let keys = &self.keys[index_of(shown.partition)];
        let known = [Some(keys.current), keys.previous].into_iter().flatten();
        let key = known.into_iter().find(|(epoch, _)| *epoch == shown.key_epoch);
        key.map(|(_, key)| key).ok_or(Status::RefusedEpoch)
    }

    /// Protection, minimum, chain and expiry, for the minimum of a partition: what is left at the end.
    fn check_terms(
        &self,
        shown: &Shown,
        protection: Protection,
        partition: PartitionId,
    ) -> Result<Capability, Status> {
        let is_sealed = protection.contains(Protection::PRIVACY_CAPABILITY);
        let is_meant = levels().contains(&protection) && is_sealed == shown.sealed.is_some();
        let demanded = shown.capability.minimum_protection;
        fail(!is_meant || !protection.contains(demanded), Status::RefusedProtection)?;
        let minimum = self.drive_minimum | self.minimums[index_of(partition)];
        fail(!demanded.contains(minimum), Status::RefusedMinimum)?;
        let left = allowed(&shown.capability, &shown.chain)?;
        let now = self.drive.now();
        fail(now >= left.expires && left.expires != Timestamp::MAX, Status::RefusedExpired)?;
        Ok(left)
    }

    /// Partition, object, rights and region.
    fn check_access(left: &Capability, wanted: &Wanted) -> Result<(), Status> {
        fail(left.partition != wanted.name.partition, Status::RefusedPartition)?;
        fail(left.object != wanted.name.object, Status::RefusedObject)?;
        fail(!left.rights.contains(wanted.rights), Status::RefusedRights)?;
        if let Some(bytes) = wanted.bytes {
            let end = |range: &ByteRange| range.offset.saturating_add(range.length);
            let within = bytes.offset >= left.region.offset && end(&bytes) <= end(&left.region);
            fail(!within, Status::RefusedRegion)?;
        }
        Ok(())
    }

    /// Whether the key of what is held is that of what is shown.
    fn check_digest(&self, held: &Held, shown: &Shown) -> Result<(), Status> {
        let key = self.key_of(&shown.capability)?;
        let version = match shown.capability.object {
            ObjectId(0) => Some(0),
            _ => self.objects.iter().find_map(|object| {
                let is_it = object.name.object == shown.capability.object
                    && object.name.partition == shown.capability.partition
                    && object.data.is_some();
                is_it.then_some(object.version)
            }),
        };
        let genuine = shown.capability == held.capability
            && shown.chain == held.chain
            && key == held.key
            && version == Some(held.version);
        fail(!genuine, Status::RefusedDigest)
    }

    /// Makes the request, and compares its outcome with what the reference says.
    fn act(
        &mut self,
        held: &Held,
        shown: &Shown,
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
        let expected = self.decide(held, shown, protection, &wanted);
        let request = Request { protection, ..wanted.request(shown.signer(held)) };
        let what = || format!("{action:?} {target:?} with {shown:?} under {protection:?}");
        if expected == Verdict::Malformed {
            self.assert_malformed(&request, shown);
            self.seen.malformed += 1;
            return;
        }
        let answered = self.drive.ask(&request).unwrap();
        if expected == Verdict::Done && action == Action::Remove && wanted.name.object == FIRST {
            assert_eq!(answered.failed(), Status::NotPermitted, "a partition always has it");
            return;
        }
        match expected {
            Verdict::Done => {
                assert_eq!(answered.status, None, "{}", what());
                assert!(answered.proved, "{}", what());
                *self.seen.done.entry(format!("{action:?}")).or_default() += 1;
                *self.seen.links.entry(held.chain.len()).or_default() += 1;
                *self.seen.options.entry(protection.bits()).or_default() += 1;
                self.apply(action, object, target, &answered);
            }
            Verdict::Refused(status) => {
                assert_eq!(answered.status, Some(status), "{}", what());
                assert!(!answered.proved && answered.data.is_empty(), "{}", what());
                *self.seen.refused.entry(status.into()).or_default() += 1;
            }
            Verdict::RefusedInPrivate(status) => {
                assert_eq!(answered.status, Some(status), "{}", what());
                assert!(answered.proved && answered.data.is_empty(), "{}", what());
                let readable = answered.sent_results.starts_with(&to_bytes(&u32::from(status)));
                assert!(!readable, "{}", what());
                *self.seen.refused_in_private.entry(status.into()).or_default() += 1;
            }
            Verdict::Malformed => unreachable!("it was told above"),
        }
    }

    /// The request with one narrowing more than there may be.
    fn assert_malformed(&self, request: &Request<'_>, shown: &Shown) {
        let capability = if shown.sealed.is_some() { 104 } else { 64 };
        let ninth = |bytes: &mut Vec<u8>| {
            let last = bytes[bytes.len() - NARROWING_BYTES..].to_vec();
            bytes.extend_from_slice(&last);
            bytes[20 + capability + 3] += 1;
        };
        let request = Request { tamper_credential: Some(&ninth), ..request.clone() };
        let Err(ChannelError::Rejected { reason: ReplyError::Denied(denial), .. }) =
            self.drive.ask(&request)
        else {
            panic!("nine narrowings are taken");
        };
        assert_eq!(denial, nasd_rpc::Denial::Auth(AuthStatus::BadCredential));
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

/// The status, if the condition holds.
fn fail(condition: bool, status: Status) -> Result<(), Status> {
    if condition { Err(status) } else { Ok(()) }
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
                let arguments =
                    to_bytes(&CreateArguments { partition, object: None, durable, initial });
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

/// With fewer, not everything is seen.
const CASES_MIN: u32 = 24;

/// `NASD_MODEL_SECONDS` says about for how long; without it, some seconds.
fn cases() -> u32 {
    let seconds = std::env::var("NASD_MODEL_SECONDS").ok().and_then(|text| text.parse().ok());
    seconds.map_or(CASES_MIN, |seconds: u32| seconds.saturating_mul(2).max(CASES_MIN))
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
    let outcome = TestRunner::new(config).run(&vec(steps(), 40..180), |steps| {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.compare();
        }
        seen.borrow_mut().add(world.seen);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert_enough(&seen.into_inner());
}

/// A model that saw too little has shown nothing.
fn assert_enough(seen: &Seen) {
    let Seen { done, refused, refused_in_private, malformed, links, options } = seen;
    println!("{done:?} {refused:?} {refused_in_private:?} {malformed} {links:?} {options:?}");
    assert_eq!(done.len(), 8, "each action succeeds at times: {done:?}");
    let statuses = |statuses: &[Status]| -> BTreeSet<u32> {
        statuses.iter().map(|status| u32::from(*status)).collect()
    };
    let by_arguments = [
        Status::RefusedPartition,
        Status::RefusedObject,
        Status::RefusedRights,
        Status::RefusedRegion,
    ];
    let before = [
        Status::RefusedProtection,
        Status::RefusedMinimum,
        Status::RefusedChain,
        Status::RefusedExpired,
        Status::RefusedEpoch,
        Status::RefusedDigest,
    ];
    let all = statuses(&[&before[..], &by_arguments].concat());
    assert_eq!(refused.keys().copied().collect::<BTreeSet<_>>(), all, "{refused:?}");
    let private: BTreeSet<u32> = refused_in_private.keys().copied().collect();
    assert!(private.is_superset(&statuses(&by_arguments)), "{refused_in_private:?}");
    assert!(*malformed > 0, "nobody has tried nine narrowings");
    assert!([0, 1, 8].iter().all(|count| links.contains_key(count)), "{links:?}");
    assert_eq!(options.len(), levels().len() - 1, "each set but the empty one: {options:?}");
}
