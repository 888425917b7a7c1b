//! Objects by way of the bulk service: on the port of calls, with the checks of calls, past the cache.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::changes::CHANGES;
use common::*;
use nasd_bulk_service::client::{BulkError, BulkFile, Opening};
use nasd_capability::{Capability, Chain, DigestKeys, KeyKind, Narrowing, Nonce, Suite};
use nasd_client::Authority;
use nasd_protocol::bulk::{self, Fields, Kind, Open, Options, Packet, Seal};
use nasd_protocol::drive::{AuditArguments, AuditKind, AuditPage, AuditRecord, Procedure};
use nasd_protocol::{Credential, CredentialKey, Status};
use nasd_types::{ByteRange, ObjectId, ObjectName, Protection, Rights};

const MIB: usize = 1 << 20;
const BOTH: Options = Options::READ.union(Options::WRITE);

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2) + 1;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// The drive's clock stands still while this host's goes on.
fn clock_ahead_ns(drive: &TestDrive) -> i128 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i128::from(drive.now().0) - i128::try_from(since_epoch.as_nanos()).unwrap()
}

fn opening(drive: &TestDrive, signer: Signer, protection: Protection) -> Opening {
    Opening {
        address: drive.server().address().to_string(),
        authority: Authority::new(signer.claimed, signer.secret.unwrap(), protection),
        place: Vec::new(),
        options: BOTH,
        block: 0,
        durable: true,
        patience: Duration::from_secs(5),
        clock_ahead_ns: clock_ahead_ns(drive),
    }
}

fn open(drive: &TestDrive, name: ObjectName) -> BulkFile {
    let signer = Signer::capability(&drive.capability(name));
    BulkFile::open(opening(drive, signer, Protection::INTEGRITY_ARGS)).unwrap()
}

fn read_all(file: &BulkFile, block: usize) -> Result<Vec<u8>, BulkError> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; block]);
    loop {
        let length = file.read_at(&mut buffer, all.len() as u64)?;
        all.extend_from_slice(&buffer[..length]);
        if length < block {
            return Ok(all);
        }
    }
}

fn status_of<T>(outcome: Result<T, BulkError>) -> Option<Status> {
    match outcome {
        Ok(_) => None,
        Err(BulkError::Refused { status, .. } | BulkError::Failed { status, .. }) => Some(status),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn what_calls_write_is_read_and_what_is_written_calls_read() {
    let drive = TestDrive::new();
    let contents = noise(1, 9 * MIB + 777);
    let name = drive.new_object();
    contents.chunks(4 * MIB).enumerate().for_each(|(number, part)| {
        drive.write(name, (number * 4 * MIB) as u64, part);
    });
    let file = open(&drive, name);
    assert_eq!((file.size_at_open(), file.alignment()), (contents.len() as u64, 1));
    // Dirty in the cache; then from the medium; then in part from each.
    for block in [MIB, 3 * MIB / 2, 12 * MIB] {
        assert!(read_all(&file, block).unwrap() == contents, "{block}");
        drive.server().drive().store().flush_all().unwrap();
        drive.write(name, 3 * MIB as u64, &contents[3 * MIB..][..100_000]);
    }
    let other = noise(2, 5 * MIB);
    file.write_at(&other, 1_000_001).unwrap();
    let expected = [&contents[..1_000_001], &other, &contents[1_000_001 + other.len()..]].concat();
    let store = drive.server().drive().store();
    let read = store.read(name, ByteRange::new(0, 4 * MIB as u64)).unwrap();
    let segments: Vec<u8> = read.segments.iter().flat_map(|part| part.to_vec()).collect();
    assert!(segments == expected[..4 * MIB]);
    assert!(read_all(&file, MIB).unwrap() == expected);
    file.set_size(12_345).unwrap();
    assert_eq!(file.size().unwrap(), 12_345);
    assert!(read_all(&file, MIB).unwrap() == expected[..12_345]);
    file.sync().unwrap();
}

#[test]
fn every_protection_and_suite_works_and_combines() {
    let drive = TestDrive::new();
    let contents = noise(3, 2 * MIB);
    let name = drive.object_with(&contents);
    for bits in 0..=Protection::all().bits() {
        let protection = Protection::from_bits_retain(bits);
        if !protection.contains(Protection::INTEGRITY_ARGS) || !protection.is_understood() {
            continue;
        }
        let capability = drive.capability(name);
        let signer = match protection.contains(Protection::PRIVACY_CAPABILITY) {
            true => Signer::sealed(&capability, &[]),
            false => Signer::capability(&capability),
        };
        for suite in Suite::available() {
            let opening = opening(&drive, signer.clone(), protection);
            let authority = opening.authority.clone().with_suite(*suite);
            let file = BulkFile::open(Opening { authority, ..opening }).unwrap();
            assert!(read_all(&file, MIB / 2).unwrap() == contents, "{protection:?} {suite:?}");
            file.write_at(&contents[..MIB], 0).unwrap();
            file.sync().unwrap();
        }
    }
}

#[test]
fn a_capability_allows_what_it_says_and_no_more() {
    let drive = TestDrive::new();
    let name = drive.object_with(&noise(4, 2 * MIB));
    let whole = drive.capability(name);
    let opened = |signer: Signer, options: Options| {
        let opening = opening(&drive, signer, Protection::INTEGRITY_ARGS);
        BulkFile::open(Opening { options, ..opening })
    };
    let by = |capability: &Capability| opened(Signer::capability(capability), BOTH);
    let reads = Capability { rights: Rights::READ | Rights::GETATTR, ..whole };
    assert_eq!(status_of(by(&reads)), Some(Status::RefusedRights));
    let reads = opened(Signer::capability(&reads), Options::READ).unwrap();
    assert_eq!(reads.read_at(&mut [0; 100], 0).unwrap(), 100);
    assert_eq!(status_of(reads.write_at(&[0; 100], 0)), Some(Status::RefusedRights));
    assert_eq!(status_of(reads.set_size(0)), Some(Status::RefusedRights));
    let part = by(&Capability { region: ByteRange::new(1000, 1000), ..whole }).unwrap();
    assert_eq!(part.read_at(&mut [0; 1000], 1000).unwrap(), 1000);
    let beyond = part.read_at(&mut [0; 1001], 1000);
    assert_eq!(status_of(beyond), Some(Status::RefusedRegion));
    assert_eq!(status_of(part.set_size(1500)), Some(Status::RefusedRegion));
    let narrowing = Narrowing { rights: Rights::GETATTR, ..Narrowing::of(&whole) };
    let signer = Signer::narrowed(&whole, &[narrowing]);
    assert_eq!(status_of(opened(signer.clone(), Options::READ)), Some(Status::RefusedRights));
    let narrowed = opened(signer, Options::empty()).unwrap();
    assert_eq!(narrowed.size().unwrap(), 2 * MIB as u64);
    assert_eq!(status_of(narrowed.read_at(&mut [0; 1], 0)), Some(Status::RefusedRights));
    let forged = Signer::minted(&whole, &Capability { rights: Rights::READ, ..whole }, 5);
    assert_eq!(status_of(opened(forged, Options::empty())), Some(Status::RefusedDigest));
    let missing = ObjectName { object: nasd_types::ObjectId(name.object.0 + 1), ..name };
    assert_eq!(status_of(by(&drive.capability(missing))), Some(Status::RefusedDigest));
    // Keys name no object.
    assert_eq!(status_of(opened(Signer::working(), Options::empty())), Some(Status::RefusedKey));
}

#[test]
fn what_was_read_ahead_is_told_only_to_whoever_may_still_have_it() {
    for (what, change, expected) in CHANGES {
        let drive = TestDrive::new();
        let contents = noise(5, 4 * MIB);
        let name = drive.object_with(&contents);
        let file = open(&drive, name);
        let mut buffer = vec![0; MIB];
        for block in 0..2 {
            assert_eq!(file.read_at(&mut buffer, (block * MIB) as u64).unwrap(), MIB);
        }
        std::thread::sleep(Duration::from_millis(20));
        change(&drive, name);
        let read = file.read_at(&mut buffer, 2 * MIB as u64);
        // Nobody has proved to the client that it is so much later.
        let is_later = *expected == Some(Status::RefusedExpired);
        let expected = if is_later { Some(Status::RefusedSkew) } else { *expected };
        assert_eq!(status_of(read), expected, "{what}");
    }
}

#[test]
fn what_will_be_read_is_read_before_it_is_asked_for_and_once() {
    let device = new_device();
    let drive = TestDrive::on(std::sync::Arc::clone(&device), patient(), START);
    let contents = noise(13, 8 * MIB);
    let name = drive.new_object();
    open(&drive, name).write_at(&contents, 0).unwrap();
    drop(drive);
    let drive = TestDrive::on(device, patient(), START + 3600 * SECOND);
    let all_missed = || drive.server().drive().store().statistics().cache_miss_bytes as usize;
    // The drive has read what it writes its audit trail behind.
    let at_start = all_missed();
    let missed = || all_missed() - at_start;
    let wait_for = |bytes: usize| {
        let begun = std::time::Instant::now();
        while missed() < bytes {
            assert!(begun.elapsed() < Duration::from_secs(20), "{} bytes were read", missed());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    // As the reads go on, more of what comes is read.
    let signer = Signer::capability(&drive.capability(name));
    let file = BulkFile::open(opening(&drive, signer.clone(), Protection::INTEGRITY_ARGS)).unwrap();
    let mut buffer = vec![0; MIB];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), MIB);
    wait_for(3 * MIB);
    assert_eq!(file.read_at(&mut buffer, MIB as u64).unwrap(), MIB);
    wait_for(6 * MIB);
    for block in 2..8 {
        assert_eq!(file.read_at(&mut buffer, (block * MIB) as u64).unwrap(), MIB);
        assert!(buffer == contents[block * MIB..][..MIB]);
    }
    assert_eq!(missed(), 8 * MIB, "each block once");
    drop(file);
    // Who says how he will read is read ahead of from the open on.
    let before = missed();
    let opening = opening(&drive, signer, Protection::INTEGRITY_ARGS);
    let file = BulkFile::open(Opening { block: MIB as u64, ..opening }).unwrap();
    wait_for(before + 8 * MIB);
    assert!(read_all(&file, MIB).unwrap() == contents);
    assert_eq!(missed() - before, 8 * MIB, "each block once");
}

#[test]
fn what_was_read_ahead_is_not_told_when_it_has_changed() {
    let drive = TestDrive::new();
    let name = drive.object_with(&vec![0; 4 * MIB]);
    let file = open(&drive, name);
    let mut buffer = vec![9; MIB];
    for block in 0..4_u8 {
        let at = u64::from(block) * MIB as u64;
        assert_eq!(file.read_at(&mut buffer, at).unwrap(), MIB);
        assert!(buffer.iter().all(|byte| *byte == block), "{block}");
        std::thread::sleep(Duration::from_millis(10));
        drive.advance(1000);
        drive.write(name, 0, &vec![block + 1; 4 * MIB]);
    }
}

#[test]
fn reading_past_the_cache_leaves_it_to_others() {
    let drive = TestDrive::new();
    let large = drive.new_object();
    let file = open(&drive, large);
    (0..100).for_each(|block| file.write_at(&noise(block, MIB), block * MIB as u64).unwrap());
    let store = drive.server().drive().store();
    let theirs = drive.object_with(&noise(6, 4 * MIB));
    store.flush_all().unwrap();
    let is_there = |at: u64| store.is_cached(theirs, ByteRange::new(at * MIB as u64, MIB as u64));
    assert!((0..4).all(is_there));
    let mut buffer = vec![0; MIB];
    // More than the cache holds.
    for block in 0..100_u64 {
        assert_eq!(file.read_at(&mut buffer, block * MIB as u64).unwrap(), MIB);
        assert!(buffer == noise(block, MIB), "{block}");
    }
    assert!((0..4).all(is_there));
}

#[test]
fn what_was_written_outlives_a_drive_that_is_killed() {
    let device = new_device();
    let drive = TestDrive::on(std::sync::Arc::clone(&device), patient(), START);
    let name = drive.object_with(b"before");
    let contents = noise(8, 6 * MIB);
    open(&drive, name).write_at(&contents, 0).unwrap();
    drop(drive);
    let drive = TestDrive::on(device, patient(), START + 3600 * SECOND);
    let file = open(&drive, name);
    assert!(read_all(&file, MIB).unwrap() == contents);
    // None of it is in the cache, nor gets there.
    let store = drive.server().drive().store();
    let at = |block: u64| ByteRange::new(block * MIB as u64, MIB as u64);
    assert!((0..6).all(|block| !store.is_cached(name, at(block))));
}

/// Sends a packet as it is, and tells status and nonce of the answer.
fn exchange(stream: &mut TcpStream, bytes: &[u8]) -> (Option<Status>, Nonce) {
    stream.write_all(bytes).unwrap();
    let mut answer = [0; 160];
    stream.read_exact(&mut answer).unwrap();
    let packet = Packet::from_bytes(&answer).unwrap();
    let mut data = vec![0; packet.payload as usize];
    stream.read_exact(&mut data).unwrap();
    (packet.fields().failure(), packet.nonce)
}

#[test]
fn a_packet_passes_once() {
    let drive = TestDrive::new();
    let name = drive.object_with(&noise(9, MIB));
    let signer = Signer::capability(&drive.capability(name));
    let protection = Protection::INTEGRITY_ARGS;
    let authority =
        Authority::new(signer.claimed.clone(), signer.secret.clone().unwrap(), protection);
    let prepared = authority.prepare(Suite::available()).unwrap();
    let (credential, keys): (&[u8], &DigestKeys) = (&prepared.credential, &prepared.keys);
    let payload = Open { credential, place: &[] }.to_bytes();
    let packet = |shown: &[u8], kind, payload: &[u8], fields: &Fields| {
        let mut packet = Packet::request(kind, 1, payload.len() as u64, fields);
        Seal { shown, protection, keys }.request(&mut packet, drive.fresh_nonce(), None);
        [&packet.to_bytes()[..], payload].concat()
    };
    let connect = || TcpStream::connect(drive.server().address()).unwrap();
    let options = Fields { options: Options::READ.bits(), ..Fields::default() };
    let opens = packet(&payload, Kind::Open, &payload, &options);
    let fields = Fields { length: 100, ..Fields::default() };
    let (mut one, mut two) = (connect(), connect());
    let (told, nonce) = exchange(&mut one, &opens);
    assert_eq!(told, None);
    assert_eq!(exchange(&mut two, &opens).0, Some(Status::RefusedReplay));
    let shown = bulk::shown(credential, &nonce);
    let reads = packet(&shown, Kind::Read, &[], &fields);
    assert_eq!(exchange(&mut one, &reads).0, None);
    assert_eq!(exchange(&mut one, &reads).0, Some(Status::RefusedReplay));
    // Nor is it of use for another kind, or on another connection, or with a place that was altered.
    let mut altered = packet(&shown, Kind::Stat, &[], &Fields::default());
    altered[15] = Kind::Sync.code() as u8;
    assert_eq!(exchange(&mut one, &altered).0, Some(Status::RefusedDigest));
    let mut three = connect();
    let opens = packet(&payload, Kind::Open, &payload, &options);
    assert_eq!(exchange(&mut three, &opens).0, None);
    let reads = packet(&shown, Kind::Read, &[], &fields);
    assert_eq!(exchange(&mut three, &reads).0, Some(Status::RefusedDigest));
    let other = Open { credential, place: &[1] }.to_bytes();
    let opens = packet(&payload, Kind::Open, &other, &options);
    assert_eq!(exchange(&mut connect(), &opens).0, Some(Status::RefusedDigest));
}

/// Opens with a credential as it is, and tells how that is answered.
fn open_by(drive: &TestDrive, credential: &[u8], keys: Option<&DigestKeys>) -> Option<Status> {
    let payload = Open { credential, place: &[] }.to_bytes();
    let mut packet = Packet::request(Kind::Open, 1, payload.len() as u64, &Fields::default());
    packet.nonce = drive.fresh_nonce();
    if let Some(keys) = keys {
        let protection = Protection::INTEGRITY_ARGS;
        Seal { shown: &payload, protection, keys }.request(&mut packet, drive.fresh_nonce(), None);
    }
    let mut stream = TcpStream::connect(drive.server().address()).unwrap();
    exchange(&mut stream, &[&packet.to_bytes()[..], &payload].concat()).0
}

/// As calls are: what says who it is, or claims to, is in the trail, and what says nothing is not.
#[test]
fn refused_opens_are_in_the_audit_trail() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let opens = || {
        let page: AuditPage =
            drive.by(Signer::drive(), Procedure::Audit, &AuditArguments::ALL).take();
        let is_open = |record: &AuditRecord| record.procedure == Procedure::Getattr as u32;
        page.records.into_iter().filter(is_open).collect::<Vec<_>>()
    };
    for credential in [&[][..], &[0xff; 88], &[0; 3]] {
        assert_eq!(open_by(&drive, credential, None), Some(Status::RefusedKey));
    }
    assert_eq!(opens(), [], "nothing is known of them");
    // A key that names no object, and what was sealed by nobody.
    let by_key = Signer::working();
    let protection = Protection::INTEGRITY_ARGS;
    let key = Credential { key: by_key.claimed.clone(), suite_number: 0, protection }.to_body();
    let keys = by_key.keys(Suite::available()[0]);
    assert_eq!(open_by(&drive, &key, keys.as_ref()), Some(Status::RefusedKey));
    let signer = Signer::sealed(&drive.capability(name), &[]);
    let mut sealed = *signer.claimed.sealed_capability().unwrap();
    sealed.tag[0] ^= 1;
    let protection = protection | Protection::PRIVACY_CAPABILITY;
    let forged = CredentialKey::sealed(sealed, Chain::default());
    let forged = Credential { key: forged, suite_number: 0, protection }.to_body();
    let refused = open_by(&drive, &forged, None).unwrap();
    let found: Vec<_> = opens()
        .into_iter()
        .map(|record| (record.kind, record.key, record.partition, record.object, record.status))
        .collect();
    let nothing = ObjectId(0);
    for (key, refusal) in
        [(KeyKind::WorkingCurrent, Status::RefusedKey), (KeyKind::Capability, refused)]
    {
        let expected = (AuditKind::Claimed, key, PARTITION, nothing, u32::from(refusal));
        assert!(found.contains(&expected), "{found:?}");
    }
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn nonsense_ends_its_connection_and_nothing_else() {
    let drive = TestDrive::new();
    let name = drive.object_with(&noise(10, MIB));
    let file = open(&drive, name);
    let opens = |length: u64| {
        let packet = Packet::request(Kind::Open, 0, length, &Fields::default());
        packet.to_bytes().to_vec()
    };
    let nonsense: Vec<Vec<u8>> = vec![
        b"NASDBLK1".to_vec(),
        b"NASDBLK2 and so on and so on".to_vec(),
        b"NASD".to_vec(),
        [&b"NASDBLK1"[..], &[0xff; 152]].concat(),
        opens(u64::MAX),
        opens(1 << 30),
        [opens(16), vec![0xff; 16]].concat(),
        [opens(16), vec![0; 16]].concat(),
        Packet::request(Kind::Read, 0, 0, &Fields::default()).to_bytes().to_vec(),
    ];
    for bytes in &nonsense {
        let mut stream = TcpStream::connect(drive.server().address()).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok();
        assert!(answer.len() <= 160, "{:?}", &bytes[..8.min(bytes.len())]);
    }
    assert!(read_all(&file, MIB).unwrap() == noise(10, MIB));
    drive.write(name, 0, b"calls go on");
}

#[test]
fn a_stop_waits_for_nobody_who_has_a_file_open() {
    let mut drive = TestDrive::new();
    let name = drive.object_with(&noise(11, MIB));
    let file = open(&drive, name);
    assert_eq!(file.read_at(&mut [0; 1000], 0).unwrap(), 1000);
    let begun = std::time::Instant::now();
    drive.server.take().unwrap().shut_down(Duration::from_secs(20)).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

/// Small numbers, large ones, and those near limits.
fn any_number(random: &mut impl FnMut() -> u64) -> u64 {
    let near = [0, 1, 4096, MIB as u64, 4 * MIB as u64, 1 << 40, 1 << 63, u64::MAX];
    match random() % 3 {
        0 => near[(random() % 8) as usize].wrapping_add(random() % 3).wrapping_sub(1),
        1 => random() % (8 * MIB as u64),
        _ => random(),
    }
}

#[test]
fn whatever_somebody_with_a_key_asks_is_answered_or_ends_his_connection() {
    let drive = TestDrive::new();
    let name = drive.object_with(&noise(12, 2 * MIB));
    let signer = Signer::capability(&drive.capability(name));
    let authority =
        Authority::new(signer.claimed, signer.secret.unwrap(), Protection::INTEGRITY_ARGS);
    let prepared = authority.prepare(Suite::available()).unwrap();
    let (credential, keys): (&[u8], &DigestKeys) = (&prepared.credential, &prepared.keys);
    let payload = Open { credential, place: &[] }.to_bytes();
    let prove = |shown: &[u8], mut packet: Packet| {
        let protection = Protection::INTEGRITY_ARGS;
        Seal { shown, protection, keys }.request(&mut packet, drive.fresh_nonce(), None);
        packet.to_bytes()
    };
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut state = seed | 1;
    let mut random = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 31) ^ (state << 33)
    };
    for _ in 0..300 {
        let mut stream = TcpStream::connect(drive.server().address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let length = any_number(&mut random);
        let fields = Fields { options: random() % 16, length, ..Fields::default() };
        let opens = prove(&payload, Packet::request(Kind::Open, 0, payload.len() as u64, &fields));
        let (told, nonce) = exchange(&mut stream, &[&opens[..], &payload].concat());
        assert_eq!(told, None);
        let shown = bulk::shown(credential, &nonce);
        for number in 1..8 {
            let kind = Kind::ALL[(random() % 6) as usize];
            let (offset, length) = (any_number(&mut random), any_number(&mut random));
            let options = random() % 32;
            let fields = Fields { offset, length, options, ..Fields::default() };
            let brings = if kind == Kind::Write { length } else { random() % 2 * (random() % 99) };
            let packet = prove(&shown, Packet::request(kind, number, brings, &fields));
            let data = vec![7; usize::try_from(brings).unwrap_or(usize::MAX).min(5 * MIB)];
            if stream.write_all(&packet).and_then(|()| stream.write_all(&data)).is_err() {
                break;
            }
            let mut answer = [0; 160];
            // What it waits for does not come.
            if data.len() as u64 != brings || stream.read_exact(&mut answer).is_err() {
                break;
            }
            let answer = Packet::from_bytes(&answer).unwrap();
            assert!(answer.is_answer && answer.kind == kind && answer.number == number);
            std::io::copy(&mut (&stream).take(answer.payload), &mut std::io::sink()).unwrap();
        }
    }
    assert!(open(&drive, name).size().is_ok());
}
