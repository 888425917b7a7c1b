//! Capabilities that their holders narrowed: the drive allows what the last narrowing says, and what
//! was made of a chain by somebody who has not its keys is refused.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use common::*;
use nasd_capability::{Capability, Chain, NARROWING_BYTES, Narrowing, Suite, narrowed_key};
use nasd_drive::DriveOptions;
use nasd_protocol::drive::{
    PartitionKey, Procedure, ReadArguments, ReadData, SeekArguments, SetattrArguments,
    SetpartitionkeyArguments, Sought, WriteArguments,
};
use nasd_protocol::{CredentialKey, Status};
use nasd_transport::{AuthStatus, ChannelError, ReplyError};
use nasd_types::{
    AuditId, ByteRange, DriveId, ObjectName, Protection, Rights, SeekTarget, SetAttributes,
    Timestamp,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const CONTENTS: usize = 100;

fn read_by(signer: Signer, name: ObjectName, offset: u64, length: u64) -> Request<'static> {
    Request::new(Procedure::Read, &ReadArguments::single(name, offset, length), signer)
}

fn status_of(drive: &TestDrive, request: &Request<'_>) -> Option<Status> {
    drive.ask(request).unwrap().status
}

/// A drive, an object of a hundred bytes, and a capability for it that leaves room on all sides.
fn setup() -> (TestDrive, ObjectName, Capability) {
    let drive = TestDrive::new();
    let name = drive.object_with(&pattern(1, CONTENTS));
    let region = ByteRange::new(10, 80);
    let rights = Rights::READ | Rights::WRITE | Rights::GETATTR;
    let capability = Capability { region, rights, ..drive.capability(name) };
    (drive, name, capability)
}

/// Eight narrowings, each with one byte less on both sides.
fn eight(root: &Capability) -> Vec<Narrowing> {
    let narrow = |step: u64| Narrowing {
        region: ByteRange::new(root.region.offset + step, root.region.length - 2 * step),
        expires: Timestamp(root.expires.0 - step),
        ..Narrowing::of(root)
    };
    (1..=8).map(narrow).collect()
}

#[test]
fn the_last_narrowing_decides() {
    let (drive, name, root) = setup();
    let contents = pattern(1, CONTENTS);
    for count in [1, 2, 8] {
        let mut chain = eight(&root);
        chain.truncate(count);
        chain.last_mut().unwrap().rights = Rights::READ;
        let allowed = chain.last().unwrap().region;
        let signer = Signer::narrowed(&root, &chain);
        for &suite in Suite::available() {
            for protection in [
                Protection::INTEGRITY_ARGS,
                Protection::INTEGRITY_ARGS | Protection::INTEGRITY_DATA,
            ] {
                // Twice: by keys derived anew, and by those that were kept.
                for _ in 0..2 {
                    let read = read_by(signer.clone(), name, allowed.offset, allowed.length);
                    let answered = drive.ask(&Request { suite, protection, ..read }).unwrap();
                    assert_eq!(answered.take::<ReadData>().data_length as u64, allowed.length);
                    assert!(answered.proved);
                    let range = allowed.offset as usize..allowed.end() as usize;
                    assert_eq!(answered.data, contents[range]);
                }
            }
        }
        for (offset, length) in [(allowed.offset - 1, 1), (allowed.end(), 1), (0, 100)] {
            let outside = read_by(signer.clone(), name, offset, length);
            assert_eq!(drive.refused(&outside), Status::RefusedRegion, "{offset} {length}");
        }
        let arguments = WriteArguments::single(name, allowed.offset, 1, false);
        let write = Request::new(Procedure::Write, &arguments, signer);
        assert_eq!(drive.refused(&Request { data: &[1], ..write }), Status::RefusedRights);
    }
}

#[test]
fn what_is_narrowed_expires_when_it_says() {
    let (drive, name, root) = setup();
    let early = Narrowing { expires: drive.now().plus_ns(10 * SECOND), ..Narrowing::of(&root) };
    let signer = Signer::narrowed(&root, &[early]);
    drive.advance(10 * SECOND - 1);
    assert_eq!(status_of(&drive, &read_by(signer.clone(), name, 10, 8)), None);
    drive.advance(1);
    assert_eq!(drive.refused(&read_by(signer, name, 10, 8)), Status::RefusedExpired);
    assert_eq!(status_of(&drive, &read_by(Signer::capability(&root), name, 10, 8)), None);
    // Who holds an expired one can't give it more time.
    drive.advance(3600 * SECOND);
    let same = Signer::narrowed(&root, &[Narrowing::of(&root)]);
    assert_eq!(drive.refused(&read_by(same, name, 10, 8)), Status::RefusedExpired);
    let later = Narrowing { expires: drive.now().plus_ns(SECOND), ..Narrowing::of(&root) };
    let later = Signer::narrowed(&root, &[later]);
    assert_eq!(drive.refused(&read_by(later, name, 10, 8)), Status::RefusedChain);
}

#[test]
fn what_is_revoked_takes_what_was_narrowed_with_it() {
    let (drive, name, root) = setup();
    let signers = [1, 8].map(|count| Signer::narrowed(&root, &eight(&root)[..count]));
    for signer in &signers {
        assert_eq!(status_of(&drive, &read_by(signer.clone(), name, 30, 8)), None);
    }
    let changes = SetAttributes { access_control_version: Some(6), ..SetAttributes::default() };
    let arguments = SetattrArguments { name, durable: false, changes };
    assert_eq!(drive.by(Signer::working(), Procedure::Setattr, &arguments).status, None);
    for signer in signers {
        assert_eq!(drive.refused(&read_by(signer, name, 30, 8)), Status::RefusedDigest);
    }
}

/// Sets another current working key.
fn rotate(drive: &TestDrive, epoch: u32, number: u8) {
    let signer = Signer::partition();
    let arguments = SetpartitionkeyArguments {
        partition: PARTITION,
        which: PartitionKey::Current,
        epoch,
        value: signer.seal(number),
    };
    assert_eq!(drive.by(signer, Procedure::Setpartitionkey, &arguments).status, None);
}

#[test]
fn a_working_key_that_is_gone_takes_all_chains_with_it() {
    let (drive, name, root) = setup();
    let signers = [Signer::narrowed(&root, &eight(&root)), Signer::sealed(&root, &eight(&root))];
    let ask = |signer: &Signer| {
        let protection = match signer.claimed.sealed_capability() {
            Some(_) => Protection::INTEGRITY_ARGS | Protection::PRIVACY_CAPABILITY,
            None => Protection::INTEGRITY_ARGS,
        };
        status_of(&drive, &Request { protection, ..read_by(signer.clone(), name, 30, 8) })
    };
    for (epoch, number, expected) in
        [(EPOCH + 1, 40, None), (EPOCH + 2, 41, Some(Status::RefusedEpoch))]
    {
        assert!(signers.iter().all(|signer| ask(signer).is_none()), "still the previous one");
        rotate(&drive, epoch, number);
        for signer in &signers {
            assert_eq!(ask(signer), expected, "{:?}", signer.claimed);
        }
    }
}

#[test]
fn nothing_but_rights_region_and_expiry_can_be_said_anew() {
    let (drive, name, root) = setup();
    let both = Protection::INTEGRITY_ARGS | Protection::INTEGRITY_DATA;
    let strict = Capability { minimum_protection: both, ..root };
    let chain = eight(&root);
    let request = read_by(Signer::narrowed(&strict, &chain), name, 30, 8);
    assert_eq!(drive.refused(&request), Status::RefusedProtection);
    assert_eq!(status_of(&drive, &Request { protection: both, ..request }), None);

    let other = drive.object_with(b"another's");
    let honest = Signer::narrowed(&root, &chain);
    let cases = [
        (Capability { drive: DriveId(9), ..root }, Status::RefusedDrive),
        (Capability { partition: OTHER_PARTITION, ..root }, Status::RefusedPartition),
        (Capability { object: other.object, ..root }, Status::RefusedObject),
        (Capability { minimum_protection: Protection::NONE, ..root }, Status::RefusedMinimum),
        (Capability { minimum_protection: both, ..root }, Status::RefusedProtection),
        (Capability { audit_id: AuditId(7), ..root }, Status::RefusedDigest),
        (Capability { key_epoch: EPOCH + 1, ..root }, Status::RefusedEpoch),
        (Capability { rights: Rights::all(), ..root }, Status::RefusedDigest),
        (Capability { region: ByteRange::ALL, ..root }, Status::RefusedDigest),
        (Capability { expires: Timestamp::MAX, ..root }, Status::RefusedDigest),
    ];
    for (shown, expected) in cases {
        let claimed = CredentialKey::narrowed(shown, Chain::new(chain.clone()).unwrap());
        let signer = Signer { claimed, ..honest.clone() };
        assert_eq!(drive.refused(&read_by(signer, name, 30, 8)), expected, "{shown:?}");
    }
    assert_eq!(status_of(&drive, &read_by(honest, name, 30, 8)), None);
}

#[test]
fn a_ninth_narrowing_is_malformed() {
    let (drive, name, root) = setup();
    let request = read_by(Signer::narrowed(&root, &eight(&root)), name, 30, 8);
    let ninth = |bytes: &mut Vec<u8>| {
        let last = bytes[bytes.len() - NARROWING_BYTES..].to_vec();
        bytes.extend_from_slice(&last);
        bytes[20 + 64 + 3] = 9;
    };
    let answered = drive.ask(&Request { tamper_credential: Some(&ninth), ..request });
    let Err(ChannelError::Rejected { reason: ReplyError::Denied(denial), .. }) = answered else {
        panic!("{answered:?}");
    };
    assert_eq!(denial, nasd_rpc::Denial::Auth(AuthStatus::BadCredential));
}

#[test]
fn seeking_ends_with_the_narrowed_region() {
    let (drive, name, root) = setup();
    let seek = |signer: Signer, target| {
        let arguments = SeekArguments { name, offset: 20, target };
        drive.by(signer, Procedure::Seek, &arguments).take::<Sought>().position
    };
    let narrowed =
        |region| Signer::narrowed(&root, &[Narrowing { region, ..Narrowing::of(&root) }]);
    let whole = Capability { region: ByteRange::ALL, ..root };
    assert_eq!(seek(Signer::capability(&whole), SeekTarget::Hole), Some(100));
    assert_eq!(seek(Signer::capability(&root), SeekTarget::Hole), None);
    assert_eq!(seek(narrowed(ByteRange::new(20, 10)), SeekTarget::Data), Some(20));
    assert_eq!(seek(narrowed(ByteRange::new(20, 0)), SeekTarget::Data), None);
}

/// What somebody may try who holds the last key of a chain.
#[derive(Clone, Debug)]
enum Trick {
    Widen(usize, u32, u64, u64, u64),
    Swap(usize, usize),
    Drop(usize),
    Double(usize),
    CutOff(usize),
    Insert(usize),
    FlipBit(usize, usize),
}

impl Trick {
    fn play(&self, honest: &[Narrowing]) -> Vec<Narrowing> {
        let mut chain = honest.to_vec();
        let at = |index: usize| index % honest.len();
        match *self {
            Trick::Widen(index, rights, before, after, time) => {
                let link = &mut chain[at(index)];
                link.rights |= Rights::from_bits_retain(rights);
                let offset = link.region.offset.saturating_sub(before);
                link.region = ByteRange::new(offset, link.region.end() - offset + after);
                link.expires = link.expires.plus_ns(time);
            }
            Trick::Swap(one, other) => chain.swap(at(one), at(other)),
            Trick::Drop(index) => drop(chain.remove(at(index))),
            Trick::Double(index) => chain.insert(at(index), honest[at(index)]),
            Trick::CutOff(index) => chain.truncate(at(index)),
            Trick::Insert(index) => chain.insert(at(index), honest[0]),
            Trick::FlipBit(index, bit) => {
                let mut bytes = chain[at(index)].to_bytes();
                bytes[bit / 8] ^= 1 << (bit % 8);
                chain[at(index)] = Narrowing::from_bytes(&bytes);
            }
        }
        chain
    }
}

fn tricks() -> impl Strategy<Value = Trick> {
    let index = || 0..8_usize;
    prop_oneof![
        (index(), 0..128_u32, 0..9_u64, 0..9_u64, 0..9_u64).prop_map(
            |(at, rights, before, after, time)| Trick::Widen(at, rights, before, after, time)
        ),
        (index(), index()).prop_map(|(one, other)| Trick::Swap(one, other)),
        index().prop_map(Trick::Drop),
        index().prop_map(Trick::Double),
        index().prop_map(Trick::CutOff),
        index().prop_map(Trick::Insert),
        (index(), 0..8 * NARROWING_BYTES).prop_map(|(at, bit)| Trick::FlipBit(at, bit)),
    ]
}

#[test]
fn no_trick_with_a_chain_passes() {
    let (drive, name, root) = setup();
    let mut runner = TestRunner::new(Config { cases: 600, ..Config::default() });
    let cases = (1..=7_usize, tricks(), any::<bool>(), any::<bool>());
    let checked = runner.run(&cases, |(length, trick, is_sealed, follows)| {
        let honest = &eight(&root)[..length];
        let mut chain = trick.play(honest);
        let signer = Signer::narrowed(&root, honest);
        let mut secret = signer.secret.clone().unwrap();
        // Whoever holds the key may go on from there; that heals nothing.
        if let (true, Some(last)) = (follows, chain.last().copied()) {
            chain.push(last);
            secret = narrowed_key(secret, &[last]);
        }
        prop_assume!(chain.len() <= 8 && trick.play(honest) != honest);
        let mut protection = Protection::INTEGRITY_ARGS;
        let chain = Chain::new(chain).unwrap();
        let claimed = if is_sealed {
            protection |= Protection::PRIVACY_CAPABILITY;
            let sealed = *Signer::sealed(&root, &[]).claimed.sealed_capability().unwrap();
            CredentialKey::sealed(sealed, chain)
        } else {
            CredentialKey::narrowed(root, chain)
        };
        let signer = Signer { claimed, secret: Some(secret) };
        let request = Request { protection, ..read_by(signer, name, 45, 1) };
        let status = drive.refused(&request);
        let expected = [
            Status::RefusedChain,
            Status::RefusedDigest,
            // A flipped bit may have narrowed it.
            Status::RefusedRights,
            Status::RefusedRegion,
            Status::RefusedExpired,
        ];
        prop_assert!(expected.contains(&status), "{status:?}");
        Ok(())
    });
    checked.unwrap();
    // The chain itself passes all the while.
    let honest = Signer::narrowed(&root, &eight(&root));
    assert_eq!(status_of(&drive, &read_by(honest, name, 45, 1)), None);
}

#[test]
fn an_open_drive_holds_to_the_chain_as_well() {
    let trusting = DriveOptions { minimum_protection: Protection::NONE, ..DriveOptions::default() };
    let drive = TestDrive::with(trusting);
    let name = drive.object_with(&pattern(1, CONTENTS));
    let root = Capability { minimum_protection: Protection::NONE, ..drive.capability(name) };
    let narrow = Narrowing { region: ByteRange::new(10, 10), ..Narrowing::of(&root) };
    for (chain, offset, expected) in [
        (vec![narrow], 10, None),
        (vec![narrow], 20, Some(Status::RefusedRegion)),
        (vec![narrow, Narrowing::of(&root)], 10, Some(Status::RefusedChain)),
    ] {
        let claimed = CredentialKey::narrowed(root, Chain::new(chain).unwrap());
        let request = read_by(Signer { claimed, secret: None }, name, offset, 1);
        let request = Request { protection: Protection::NONE, ..request };
        assert_eq!(status_of(&drive, &request), expected);
    }
}
