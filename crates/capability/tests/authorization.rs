//! The checks of a request: their order, and what each of them stops.

use nasd_capability::{
    Access, Admission, Capability, Claim, CoveredData, Digest, DigestKeys, DriveRules, KeyKind,
    KeyKinds, Narrowing, Nonce, NonceWindow, Refusal, SecretKey, Suite, Target, Way, WindowOptions,
    admit, capability_key,
};
use nasd_types::{
    AuditId, ByteRange, DriveId, ObjectId, PartitionId, Protection, Rights, Timestamp,
};

const NOW: Timestamp = Timestamp(1_000 * Timestamp::SECOND_NS);
const DRIVE: DriveId = DriveId(0xd);
const PARTITION: PartitionId = PartitionId(3);
const OBJECT: ObjectId = ObjectId(77);

fn window() -> NonceWindow {
    let options = WindowOptions { senders: 8, ..WindowOptions::default() };
    NonceWindow::new(options, Timestamp(0), 1)
}

fn capability() -> Capability {
    Capability {
        drive: DRIVE,
        partition: PARTITION,
        object: OBJECT,
        region: ByteRange::new(4096, 8192),
        rights: Rights::READ | Rights::WRITE,
        expires: NOW.plus_ns(1),
        audit_id: AuditId(5),
        minimum_protection: Protection::INTEGRITY_ARGS,
        key_epoch: 9,
    }
}

/// Everything that `admit` looks at, all in order.
#[derive(Clone)]
struct Request {
    minimum_protection: Protection,
    key: KeyKind,
    key_partition: PartitionId,
    suite: Option<Suite>,
    protection: Protection,
    capability: Option<Capability>,
    narrowings: Vec<Narrowing>,
    was_sealed: bool,
    target: Target<'static>,
    rights: Rights,
    bytes: Option<ByteRange>,
    keys: KeyKinds,
    nonce: Nonce,
}

impl Request {
    fn new() -> Self {
        Request {
            minimum_protection: Protection::INTEGRITY_ARGS,
            key: KeyKind::Capability,
            key_partition: PartitionId(0),
            suite: Some(Suite::Blake3),
            protection: Protection::INTEGRITY_ARGS,
            capability: Some(capability()),
            narrowings: Vec::new(),
            was_sealed: false,
            target: Target::Object(PARTITION, OBJECT),
            rights: Rights::READ,
            bytes: Some(ByteRange::new(4096, 4096)),
            keys: KeyKinds::OBJECT,
            nonce: Nonce { timestamp: NOW, unique: 1 },
        }
    }

    fn with_key(key: KeyKind, key_partition: PartitionId) -> Self {
        Request { key, key_partition, capability: None, ..Request::new() }
    }

    fn capability(&mut self) -> &mut Capability {
        self.capability.as_mut().expect("a request with a capability")
    }

    fn admit(&self, window: &NonceWindow) -> Result<Admission, Refusal> {
        let rules = DriveRules {
            drive: DRIVE,
            suites: &[Suite::Blake3],
            minimum_protection: self.minimum_protection,
        };
        let claim = Claim {
            key: self.key,
            key_partition: self.key_partition,
            suite: self.suite,
            protection: self.protection,
            capability: self.capability.as_ref(),
            narrowings: &self.narrowings,
            was_sealed: self.was_sealed,
        };
        let access =
            Access { target: self.target, rights: self.rights, bytes: self.bytes, keys: self.keys };
        admit(&rules, &claim, &access, &self.nonce, window, NOW)
    }

    fn refusal(&self) -> Option<Refusal> {
        self.admit(&window()).err()
    }
}

/// Spoils a request so that exactly one check refuses it.
type Fault = (Refusal, fn(&mut Request, &NonceWindow));

/// In the order of the checks. `Replay` comes after `Skew` here and relies on the timestamp that
/// it finds, so that both may be there at once.
const FAULTS: [Fault; 13] = [
    (Refusal::Suite, |request, _| request.suite = Some(Suite::Aegis)),
    (Refusal::Key, |request, _| request.keys = KeyKinds::default()),
    (Refusal::Protection, |request, _| request.protection = Protection::NONE.complement()),
    (Refusal::Minimum, |request, _| request.minimum_protection = Protection::SUPPORTED),
    (Refusal::Skew, |request, _| request.nonce.timestamp = Timestamp(1)),
    (Refusal::Replay, |request, window| {
        window.record(NOW, &request.nonce).expect("the first use");
        window.record(NOW, &request.nonce).expect_err("the second");
    }),
    (Refusal::Chain, |request, _| {
        let widest = Narrowing::of(request.capability());
        request.narrowings = vec![Narrowing { region: ByteRange::ALL, ..widest }];
    }),
    (Refusal::Expired, |request, _| request.capability().expires = NOW),
    (Refusal::Drive, |request, _| request.capability().drive = DriveId(1)),
    (Refusal::Partition, |request, _| request.capability().partition = PartitionId(4)),
    (Refusal::Object, |request, _| request.capability().object = ObjectId(1)),
    (Refusal::Rights, |request, _| request.rights |= Rights::REMOVE),
    (Refusal::Region, |request, _| request.bytes = Some(ByteRange::new(4095, 2))),
];

#[test]
fn of_any_faults_together_the_first_in_order_is_told() {
    for faults in 0..1_u32 << FAULTS.len() {
        // A window with its start long ago, so that even the old timestamp can be recorded.
        let options = WindowOptions { senders: 8, ahead_ns: 0, ..WindowOptions::default() };
        let window = NonceWindow::new(options, Timestamp(0), 1);
        let mut request = Request::new();
        for (index, (_, spoil)) in FAULTS.iter().enumerate() {
            if faults >> index & 1 == 1 {
                spoil(&mut request, &window);
            }
        }
        let expected = FAULTS.get(faults.trailing_zeros() as usize).map(|(refusal, _)| *refusal);
        assert_eq!(request.admit(&window).err(), expected, "faults {faults:013b}");
    }
}

#[test]
fn a_capability_is_good_until_the_instant_of_expiry() {
    let mut request = Request::new();
    request.capability().expires = NOW.plus_ns(1);
    assert_eq!(request.refusal(), None);
    request.capability().expires = NOW;
    assert_eq!(request.refusal(), Some(Refusal::Expired));
    request.capability().expires = Timestamp(0);
    assert_eq!(request.refusal(), Some(Refusal::Expired));
}

#[test]
fn protection_must_meet_both_minimums() {
    let (args, data) = (Protection::INTEGRITY_ARGS, Protection::INTEGRITY_DATA);
    let none = Protection::NONE;
    let (weak, too_low) = (Some(Refusal::Protection), Some(Refusal::Minimum));
    let unknown = Protection::from_bits_retain(args.bits() | 1 << 31);
    // (the drive's minimum, the capability's, the request's, refusal)
    let cases = [
        (none, none, none, None),
        (none, none, args | data, None),
        (none, args, none, weak),
        (args, none, none, too_low),
        (args, none, args, too_low), // however well the request is protected
        (args, args, args, None),
        (args, args | data, args, weak),
        (args, args | data, args | data, None),
        (args | data, args, args | data, too_low),
        (args | data, args, none, weak), // both: the request's own fault is told first
        (none, none, data, weak),        // data without arguments has no meaning
        (none, none, unknown, weak),     // not understood
        (none, unknown, args, weak),
        (unknown, args, args, too_low),
    ];
    for (drive, minimum, actual, expected) in cases {
        let mut request = Request::new();
        request.minimum_protection = drive;
        request.capability().minimum_protection = minimum;
        request.protection = actual;
        assert_eq!(request.refusal(), expected, "{drive:?} {minimum:?} {actual:?}");
    }
}

#[test]
fn what_is_narrowed_decides() {
    let widest = Narrowing::of(&capability());
    let cases = [
        (widest, None),
        (Narrowing { rights: Rights::WRITE, ..widest }, Some(Refusal::Rights)),
        (Narrowing { rights: Rights::READ, ..widest }, None),
        (Narrowing { region: ByteRange::new(4096, 4096), ..widest }, None),
        (Narrowing { region: ByteRange::new(4096, 4095), ..widest }, Some(Refusal::Region)),
        (Narrowing { region: ByteRange::new(4097, 4096), ..widest }, Some(Refusal::Region)),
        (Narrowing { expires: NOW, ..widest }, Some(Refusal::Expired)),
        (Narrowing { expires: NOW.plus_ns(2), ..widest }, Some(Refusal::Chain)),
        (Narrowing { rights: widest.rights | Rights::FLUSH, ..widest }, Some(Refusal::Chain)),
    ];
    for (narrowing, expected) in cases {
        let request = Request { narrowings: vec![narrowing], ..Request::new() };
        assert_eq!(request.refusal(), expected, "{narrowing:?}");
        // The last one decides, and hides nothing that was wrong before.
        let request = Request { narrowings: vec![narrowing; 8], ..Request::new() };
        assert_eq!(request.refusal(), expected, "{narrowing:?}, eight times");
        let request = Request { narrowings: vec![narrowing; 9], ..Request::new() };
        assert_eq!(request.refusal(), Some(Refusal::Chain), "{narrowing:?}, nine times");
    }
    let region = ByteRange::new(4096, 4096);
    let request = Request { narrowings: vec![Narrowing { region, ..widest }], ..Request::new() };
    assert_eq!(request.admit(&window()).expect("as asked for").region(), region);
}

#[test]
fn a_capability_is_sealed_exactly_with_its_option() {
    let private = Protection::INTEGRITY_ARGS | Protection::PRIVACY_CAPABILITY;
    for (protection, was_sealed, expected) in [
        (private, true, None),
        (private, false, Some(Refusal::Protection)),
        (Protection::INTEGRITY_ARGS, true, Some(Refusal::Protection)),
        (Protection::PRIVACY_CAPABILITY, true, Some(Refusal::Protection)),
    ] {
        let request = Request { protection, was_sealed, ..Request::new() };
        assert_eq!(request.refusal(), expected, "{protection:?} {was_sealed}");
    }
    // A key has no capability that could be kept from anybody.
    let mut drive_key = Request::with_key(KeyKind::Drive, PartitionId(0));
    drive_key.protection = private;
    assert_eq!(drive_key.refusal(), Some(Refusal::Protection));
}

#[test]
fn a_key_without_a_digest_is_no_authority_even_on_an_open_drive() {
    for key in [KeyKind::Drive, KeyKind::Partition, KeyKind::WorkingCurrent] {
        let mut request = Request::with_key(key, PARTITION);
        assert_eq!(request.refusal(), None);
        request.minimum_protection = Protection::NONE;
        request.protection = Protection::NONE;
        assert_eq!(request.refusal(), Some(Refusal::Protection), "{key:?}");
    }
}

#[test]
fn kinds_of_keys_are_kept_to_their_operations() {
    assert_eq!(Request::with_key(KeyKind::Master, PARTITION).refusal(), Some(Refusal::Key));
    let mut nobody = Request::with_key(KeyKind::None, PartitionId(0));
    nobody.protection = Protection::NONE;
    assert_eq!(nobody.refusal(), Some(Refusal::Key));
    nobody.keys = KeyKinds::ANYONE;
    nobody.target = Target::Drive;
    assert_eq!(nobody.refusal(), None, "inquiry");
    nobody.protection = Protection::INTEGRITY_ARGS;
    assert_eq!(nobody.refusal(), Some(Refusal::Protection), "there is no key for a digest");

    let other_partition = Request::with_key(KeyKind::WorkingCurrent, PartitionId(4));
    assert_eq!(other_partition.refusal(), Some(Refusal::Key));
    let drive_key = Request::with_key(KeyKind::Drive, PartitionId(0));
    assert_eq!(drive_key.refusal(), None, "of every partition");

    let without = Request { capability: None, ..Request::new() };
    assert_eq!(without.refusal(), Some(Refusal::Key));
    let both = Request { key: KeyKind::Drive, ..Request::new() };
    assert_eq!(both.refusal(), Some(Refusal::Key));
}

#[test]
fn a_capability_reaches_its_own_target_only() {
    const OTHER: PartitionId = PartitionId(4);
    let whole = ObjectId(0);
    let (partition, object) = (Some(Refusal::Partition), Some(Refusal::Object));
    let cases: [(Target<'static>, ObjectId, Option<Refusal>); 11] = [
        (Target::Object(PARTITION, OBJECT), OBJECT, None),
        (Target::Object(OTHER, OBJECT), OBJECT, partition),
        (Target::Object(PARTITION, ObjectId(78)), OBJECT, object),
        (Target::Partition(PARTITION), OBJECT, object),
        (Target::Partition(PARTITION), whole, None),
        (Target::Partition(OTHER), whole, partition),
        (Target::Objects(PARTITION, &[OBJECT, OBJECT]), OBJECT, None),
        (Target::Objects(PARTITION, &[OBJECT, ObjectId(78)]), OBJECT, object),
        (Target::Objects(PARTITION, &[]), OBJECT, object),
        (Target::Objects(PARTITION, &[]), whole, None),
        (Target::Drive, OBJECT, object),
    ];
    for (target, named, expected) in cases {
        let mut request = Request { target, ..Request::new() };
        request.capability().object = named;
        assert_eq!(request.refusal(), expected, "{target:?} by {named}");
    }
}

#[test]
fn regions_hold_to_the_byte() {
    let cases = [
        (ByteRange::new(4096, 8192), true),
        (ByteRange::new(4095, 1), false),
        (ByteRange::new(12_287, 1), true),
        (ByteRange::new(12_287, 2), false),
        (ByteRange::new(12_288, 0), true),
        (ByteRange { offset: 4096, length: u64::MAX }, false),
        (ByteRange { offset: u64::MAX, length: u64::MAX }, false),
    ];
    for (bytes, passes) in cases {
        let request = Request { bytes: Some(bytes), ..Request::new() };
        let expected = if passes { None } else { Some(Refusal::Region) };
        assert_eq!(request.refusal(), expected, "{bytes}");
    }
    let request = Request { bytes: None, ..Request::new() };
    assert_eq!(request.refusal(), None, "no bytes, no region");
}

fn keys() -> DigestKeys {
    let key = capability_key(&SecretKey::new([1; 32]), &capability(), 1);
    DigestKeys::new(&key, Suite::Blake3)
}

#[test]
fn only_a_right_digest_uses_a_nonce_up() {
    let (window, request, keys) = (window(), Request::new(), keys());
    let covered: &[&[u8]] = &[b"arguments"];
    let right = keys.request(&request.nonce, covered, None);
    let verify = |digest: &Digest, keys: Option<&DigestKeys>| {
        let admission = request.admit(&window)?;
        admission.verify(keys, covered, None, digest, &window, NOW).map(|_| ())
    };
    let wrong = Digest([7; 16]);
    assert_eq!(verify(&wrong, Some(&keys)), Err(Refusal::Digest));
    assert_eq!(verify(&Digest::ZERO, Some(&keys)), Err(Refusal::Digest));
    assert_eq!(verify(&right, None), Err(Refusal::Digest), "a missing object looks the same");
    assert_eq!(verify(&right, Some(&keys)), Ok(()));
    assert_eq!(verify(&right, Some(&keys)), Err(Refusal::Replay));
    assert_eq!(verify(&wrong, Some(&keys)), Err(Refusal::Replay));
}

#[test]
fn two_copies_that_were_admitted_together_pass_once() {
    let (window, request, keys) = (window(), Request::new(), keys());
    let digest = keys.request(&request.nonce, &[], None);
    let copies = [request.admit(&window), request.admit(&window)];
    let passed = copies.map(|admission| {
        let admission = admission.expect("not seen yet");
        admission.verify(Some(&keys), &[], None, &digest, &window, NOW).map(|_| ())
    });
    assert_eq!(passed, [Ok(()), Err(Refusal::Replay)]);
}

#[test]
fn data_are_covered_exactly_when_they_are_announced() {
    let (window, request, keys) = (window(), Request::new(), keys());
    let announce = |data: &[&[u8]]| keys.data(Way::Request, &request.nonce, data);
    let announced = announce(&[b"data"]);
    let digest = keys.request(&request.nonce, &[b"args"], Some(&announced));
    let verify = |data: Option<CoveredData>| {
        let admission = request.admit(&window)?;
        admission.verify(Some(&keys), &[b"args"], data.as_ref(), &digest, &window, NOW)
    };
    let longer = CoveredData { length: 5, ..announced };
    let reply = keys.data(Way::Reply, &request.nonce, &[b"data"]);
    for wrong in [Some(announce(&[b"dat4"])), Some(longer), Some(reply), None] {
        assert_eq!(verify(wrong).err(), Some(Refusal::Digest), "{wrong:?}");
    }
    let authorized = verify(Some(announce(&[b"da", b"ta"]))).expect("right");
    assert_eq!(authorized.protection(), request.protection);
    assert_eq!(authorized.nonce(), &request.nonce);
}

#[test]
fn a_right_digest_uses_no_nonce_up_before_it_is_recorded() {
    let (window, request, keys) = (window(), Request::new(), keys());
    let digest = keys.request(&request.nonce, &[], None);
    let prove = || request.admit(&window)?.prove(Some(&keys), &[], None, &digest);
    let (first, second) = (prove().expect("right"), prove().expect("not recorded yet"));
    assert!(first.record(&window, NOW).is_ok());
    assert_eq!(second.record(&window, NOW).err(), Some(Refusal::Replay));
    assert_eq!(prove().err(), Some(Refusal::Replay));
}

#[test]
fn with_no_protection_nothing_is_recorded() {
    let window = window();
    let mut request = Request::new();
    request.minimum_protection = Protection::NONE;
    request.capability().minimum_protection = Protection::NONE;
    request.protection = Protection::NONE;
    for _ in 0..2 {
        let admission = request.admit(&window).expect("an open drive");
        assert!(!admission.needs_digest());
        let verified = admission.verify(None, &[], None, &Digest::ZERO, &window, NOW);
        assert!(verified.is_ok());
    }
}
