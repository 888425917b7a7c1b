//! Files of a directory, read and written through real sockets on a real file system.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use nasd_bulk_service::client::{BulkError, BulkFile, Opening};
use nasd_bulk_service::directory::DirectoryOptions;
use nasd_protocol::Status;
use nasd_protocol::bulk::Options;
use nasd_types::{Protection, Timestamp};

use support::{ALL, READS, Rig, cutting, noise, now};

const MIB: usize = 1 << 20;

fn rig() -> Rig {
    Rig::new(DirectoryOptions::default())
}

fn read_all(file: &BulkFile, block: usize) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; block]);
    loop {
        let length = file.read_at(&mut buffer, all.len() as u64).unwrap();
        all.extend_from_slice(&buffer[..length]);
        if length < block {
            return all;
        }
    }
}

#[test]
fn a_file_is_what_it_is_whatever_block_it_is_read_in() {
    let rig = rig();
    let contents = noise(1, 5 * MIB + 12_345);
    rig.put("big", &contents);
    for block in [4096, 100 * 4096, 3 * MIB / 2, 8 * MIB, 40 * MIB] {
        let file = BulkFile::open(rig.opening("big", Options::READ)).unwrap();
        assert_eq!(file.size_at_open(), contents.len() as u64);
        assert!(read_all(&file, block) == contents, "{block}");
        assert_eq!(file.read_at(&mut [0; 4096], 64 * MIB as u64).unwrap(), 0, "behind the end");
    }
}

#[test]
fn what_is_written_is_there_and_as_long_as_it_is_made() {
    let rig = rig();
    rig.put("new", b"");
    let file = BulkFile::open(rig.opening("new", Options::READ | Options::WRITE)).unwrap();
    let contents = noise(2, 20 * MIB);
    file.write_at(&contents, 0).unwrap();
    file.write_at(&contents[..MIB], 30 * MIB as u64).unwrap();
    file.set_size(30 * MIB as u64 + 100).unwrap();
    file.sync().unwrap();
    let found = fs::read(rig.path("new")).unwrap();
    assert_eq!(found.len(), 30 * MIB + 100);
    assert!(found[..20 * MIB] == contents && found[30 * MIB..] == contents[..100]);
    assert!(found[20 * MIB..30 * MIB].iter().all(|byte| *byte == 0));
    assert_eq!(file.size().unwrap(), found.len() as u64);
    assert!(read_all(&file, 3 * MIB) == found);
}

#[test]
fn many_transfers_are_under_way_at_once() {
    let rig = rig();
    let contents = noise(3, 64 * MIB);
    rig.put("big", &contents);
    let file = BulkFile::open(rig.opening("big", Options::READ | Options::WRITE)).unwrap();
    let mut queue = file.queue::<Vec<u8>>();
    // More than may be, forwards and backwards.
    let offsets = (0..128).map(|number| if number % 2 == 0 { number } else { 127 - number });
    offsets.for_each(|number| queue.read(number * MIB as u64 / 2, vec![0; MIB / 2]));
    let mut count = 0;
    while let Some(done) = queue.wait() {
        let at = done.offset as usize;
        assert_eq!(done.outcome.unwrap(), MIB / 2);
        assert!(done.buffer == contents[at..at + MIB / 2]);
        count += 1;
    }
    assert_eq!(count, 128);
    // Reads and writes together: nobody waits for whoever waits for him.
    for number in 0..64_u64 {
        queue.write(number * MIB as u64, noise(number, MIB));
        queue.read((number + 1) % 64 * MIB as u64, vec![0; MIB]);
    }
    while let Some(done) = queue.wait() {
        assert_eq!(done.outcome.unwrap(), MIB);
    }
    queue.sync().unwrap();
    let found = fs::read(rig.path("big")).unwrap();
    assert!((0..64).all(|number| found[number * MIB..][..MIB] == noise(number as u64, MIB)));
}

#[test]
fn threads_share_a_file() {
    let rig = rig();
    let contents = noise(4, 32 * MIB);
    rig.put("big", &contents);
    let file = BulkFile::open(rig.opening("big", Options::READ)).unwrap();
    thread::scope(|scope| {
        for thread in 0..8 {
            let (file, contents) = (&file, &contents);
            scope.spawn(move || {
                let mut buffer = vec![0; MIB];
                for round in 0..16 {
                    let at = (thread * 7 + round * 3) % 32 * MIB;
                    assert_eq!(file.read_at(&mut buffer, at as u64).unwrap(), MIB);
                    assert!(buffer == contents[at..at + MIB]);
                }
            });
        }
    });
}

#[test]
fn every_protection_works_and_combines() {
    let rig = rig();
    let contents = noise(5, 3 * MIB);
    rig.put("secret", &contents);
    for bits in 0..Protection::all().bits() + 1 {
        let protection = Protection::from_bits_retain(bits) | Protection::INTEGRITY_ARGS;
        if !protection.is_understood() {
            continue;
        }
        let ticket = rig.ticket("secret", ALL);
        let options = Options::READ | Options::WRITE;
        let file = BulkFile::open(rig.opening_by(&ticket, options, protection)).unwrap();
        assert!(read_all(&file, MIB) == contents, "{protection:?}");
        file.write_at(&contents[..MIB], MIB as u64).unwrap();
        file.write_at(&contents[MIB..2 * MIB], MIB as u64).unwrap();
        file.sync().unwrap();
    }
    assert!(fs::read(rig.path("secret")).unwrap() == contents);
}

fn refusal(opening: Opening) -> Status {
    let error = BulkFile::open(opening).map(|file| file.read_at(&mut [0; 4096], 0));
    match error {
        Err(BulkError::Refused { status, .. } | BulkError::Failed { status, .. })
        | Ok(Err(BulkError::Refused { status, .. } | BulkError::Failed { status, .. })) => status,
        other => panic!("{:?}", other.map(|read| read.unwrap())),
    }
}

#[test]
fn a_ticket_is_for_its_path_and_its_rights_and_its_time() {
    let rig = rig();
    rig.put("mine", &[1; 8192]);
    rig.put("yours", &[2; 8192]);
    let (mine, yours) = (rig.ticket("mine", READS), rig.ticket("yours", READS));
    let mut swapped = rig.opening_by(&mine, Options::READ, Protection::NONE);
    swapped.place = yours.place.clone();
    assert_eq!(refusal(swapped), Status::NoSuchObject);
    let mut altered = rig.opening_by(&mine, Options::READ, Protection::NONE);
    *altered.place.last_mut().unwrap() ^= 1;
    assert_eq!(refusal(altered), Status::NoSuchObject);
    let mut forged = mine.clone();
    forged.capability.rights = ALL;
    assert_eq!(
        refusal(rig.opening_by(&forged, Options::READ, Protection::NONE)),
        Status::RefusedDigest
    );
    let file = BulkFile::open(rig.opening_by(&mine, Options::READ, Protection::NONE)).unwrap();
    let error = file.write_at(&[0; 4096], 0).unwrap_err();
    assert!(matches!(error, BulkError::Refused { status: Status::RefusedRights, .. }), "{error}");
    let past = now().0 - Timestamp::SECOND_NS;
    let expired = rig.served.read().unwrap().ticket(b"mine", READS, Timestamp(past));
    assert_eq!(
        refusal(rig.opening_by(&expired, Options::READ, Protection::NONE)),
        Status::RefusedExpired
    );
    // The server demands digests.
    let mut bare = mine.clone();
    bare.capability.minimum_protection = Protection::NONE;
    assert_eq!(
        refusal(rig.opening_by(&bare, Options::READ, Protection::NONE)),
        Status::RefusedMinimum
    );
}

#[test]
fn without_protection_a_ticket_says_what_it_was_minted_with_all_the_same() {
    let minimum_protection = Protection::NONE;
    let rig = Rig::new(DirectoryOptions { minimum_protection, ..DirectoryOptions::default() });
    rig.put("mine", &[1; 8192]);
    let ticket = rig.ticket("mine", READS);
    let by = |ticket, options| rig.opening_by(ticket, options, Protection::NONE);
    let file = BulkFile::open(by(&ticket, Options::READ)).unwrap();
    assert_eq!(read_all(&file, 4096), [1; 8192]);
    let mut forged = ticket.clone();
    forged.capability.rights = ALL;
    assert_eq!(refusal(by(&forged, Options::READ | Options::WRITE)), Status::NoSuchObject);
    let mut forged = ticket.clone();
    forged.capability.expires = Timestamp::MAX;
    assert_eq!(refusal(by(&forged, Options::READ)), Status::NoSuchObject);
}

#[test]
fn nothing_leads_out_of_the_directory() {
    let rig = rig();
    let outside = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write(outside.path(), [9; 4096]).unwrap();
    let name = outside.path().file_name().unwrap().to_str().unwrap();
    fs::create_dir(rig.path("folder")).unwrap();
    rig.put("folder/file", &[1; 4096]);
    symlink("file", rig.path("folder/inside")).unwrap();
    symlink(format!("../../{name}"), rig.path("folder/out")).unwrap();
    symlink(outside.path(), rig.path("absolute")).unwrap();
    symlink(outside.path().parent().unwrap(), rig.path("up")).unwrap();
    for path in ["folder/file", "folder/inside", "folder/../folder/file"] {
        let file = BulkFile::open(rig.opening(path, Options::READ)).unwrap();
        assert_eq!(read_all(&file, 4096), [1; 4096], "{path}");
    }
    let absolute = outside.path().to_str().unwrap();
    let outside =
        [&format!("../{name}"), "folder/out", "absolute", &format!("up/{name}"), absolute];
    for path in outside {
        assert_eq!(refusal(rig.opening(path, Options::READ)), Status::NotPermitted, "{path}");
    }
    assert_eq!(refusal(rig.opening("folder", Options::READ)), Status::NotPermitted);
    assert_eq!(refusal(rig.opening("none", Options::READ)), Status::NoSuchObject);
    assert_eq!(refusal(rig.opening("a\0b", Options::READ)), Status::BadArgument);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        rig.path("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    assert_eq!(refusal(rig.opening("pipe", Options::READ)), Status::NotPermitted, "nobody waits");
}

#[test]
fn what_is_not_aligned_is_refused_here_and_there() {
    let rig = rig();
    rig.put("big", &noise(6, MIB));
    let file = BulkFile::open(rig.opening("big", Options::READ | Options::WRITE)).unwrap();
    assert!(file.alignment() > 1, "the directory is on a file system with direct transfers");
    let error = file.read_at(&mut [0; 100], 0).unwrap_err();
    assert!(error.to_string().contains("multiples of"), "{error}");
    assert!(matches!(file.write_at(&[0; 4096], 1), Err(BulkError::Unaligned { .. })));
    // A client that does not look is told so, and goes on.
    let mut queue = file.queue::<Vec<u8>>();
    queue.read(1, vec![0; 4096]);
    queue.read(0, vec![0; 4096]);
    queue.write(5, vec![0; 4096]);
    while let Some(done) = queue.wait() {
        match (done.offset, done.outcome) {
            (0, Ok(4096)) | (_, Err(BulkError::Failed { status: Status::BadArgument, .. })) => {}
            (offset, other) => panic!("{offset}: {other:?}"),
        }
    }
    assert_eq!(file.size().unwrap(), MIB as u64);
}

#[test]
fn what_was_read_ahead_is_not_told_when_it_has_changed() {
    let rig = rig();
    rig.put("big", &[1; 16 << 20]);
    let file = BulkFile::open(rig.opening("big", Options::READ)).unwrap();
    let mut buffer = vec![0; MIB];
    for block in 0..16_usize {
        assert_eq!(file.read_at(&mut buffer, (block * MIB) as u64).unwrap(), MIB);
        let expected = if block == 0 { 1 } else { block as u8 + 1 };
        assert!(buffer.iter().all(|byte| *byte == expected), "{block}");
        // By then it was read ahead, most likely.
        thread::sleep(Duration::from_millis(10));
        fs::write(rig.path("big"), vec![block as u8 + 2; 16 << 20]).unwrap();
    }
}

#[test]
fn a_file_that_others_make_longer_is_not_read_short() {
    let rig = rig();
    let contents = noise(6, 20_000);
    rig.put("grows", &contents[..5000]);
    let file = BulkFile::open(rig.opening("grows", Options::READ)).unwrap();
    fs::write(rig.path("grows"), &contents).unwrap();
    let mut block = [0; 4096];
    // What comes next is read ahead as far as the file went when it was opened.
    for at in (0..16_384).step_by(4096) {
        thread::sleep(Duration::from_millis(20));
        assert_eq!(file.read_at(&mut block, at as u64).unwrap(), block.len());
        assert!(block == contents[at..][..block.len()], "{at}");
    }
}

#[test]
fn cuts_anywhere_are_not_seen() {
    let rig = rig();
    let contents = noise(7, 6 * MIB);
    rig.put("big", &contents);
    let mut opening = rig.opening("big", Options::READ | Options::WRITE);
    // In the open's answer, in the packet of an answer, in its data, and right behind it.
    let cuts = vec![0, 100, 160, 300, 320, 1000, 320 + MIB as u64, 500 + MIB as u64];
    opening.address = cutting(rig.address, [cuts.clone(), cuts.clone(), cuts].concat()).to_string();
    let file = BulkFile::open(opening).unwrap();
    assert!(read_all(&file, MIB) == contents);
    let mut queue = file.queue::<Vec<u8>>();
    for block in 0..6 {
        queue.write((block * MIB) as u64, noise(8 + block as u64, MIB));
    }
    while let Some(done) = queue.wait() {
        assert_eq!(done.outcome.unwrap(), MIB);
    }
    let found = fs::read(rig.path("big")).unwrap();
    assert!((0..6).all(|block| found[block * MIB..][..MIB] == noise(8 + block as u64, MIB)));
}

#[test]
fn a_restart_is_not_seen_by_readers_and_told_to_who_wrote_and_has_not_synced() {
    let rig = rig();
    let contents = noise(9, 8 * MIB);
    rig.put("big", &contents);
    let file = BulkFile::open(rig.opening("big", Options::READ | Options::WRITE)).unwrap();
    let mut buffer = vec![0; MIB];
    for block in 0..8 {
        rig.restart(10 + block as u64);
        assert_eq!(file.read_at(&mut buffer, (block * MIB) as u64).unwrap(), MIB);
        assert!(buffer == contents[block * MIB..][..MIB]);
    }
    file.write_at(&contents[..MIB], 0).unwrap();
    file.sync().unwrap();
    rig.restart(20);
    file.sync().unwrap();
    file.write_at(&contents[..MIB], 0).unwrap();
    rig.restart(21);
    assert!(matches!(file.sync(), Err(BulkError::MayBeLost { .. })));
    file.write_at(&contents[..MIB], 0).unwrap();
    file.sync().unwrap();
}

#[test]
fn a_length_that_was_lost_can_be_set_again() {
    let rig = rig();
    rig.put("cut", &noise(1, MIB));
    let file = BulkFile::open(rig.opening("cut", Options::READ | Options::WRITE)).unwrap();
    file.set_size(100).unwrap();
    rig.restart(77);
    assert!(matches!(file.sync(), Err(BulkError::MayBeLost { .. })));
    assert!(matches!(file.sync(), Err(BulkError::MayBeLost { .. })), "others are told as well");
    file.set_size(100).unwrap();
    file.sync().unwrap();
}

#[test]
fn data_that_were_lost_are_not_there_again_because_a_length_is_set() {
    let rig = rig();
    let contents = noise(1, MIB);
    rig.put("cut", &contents);
    let file = BulkFile::open(rig.opening("cut", Options::READ | Options::WRITE)).unwrap();
    let is_lost = || matches!(file.sync(), Err(BulkError::MayBeLost { .. }));
    file.write_at(&contents, 0).unwrap();
    rig.restart(77);
    assert!(is_lost());
    file.set_size(MIB as u64).unwrap();
    assert!(is_lost(), "nothing was written again");
    file.write_at(&contents, 0).unwrap();
    file.set_size(MIB as u64).unwrap();
    file.sync().unwrap();
    // And the other way about.
    file.set_size(100).unwrap();
    rig.restart(78);
    assert!(is_lost());
    file.write_at(&contents[..4096], 0).unwrap();
    assert!(is_lost(), "the length was not set again");
    file.set_size(4096).unwrap();
    file.sync().unwrap();
}

#[test]
fn another_file_in_the_place_of_one_is_not_taken_for_it() {
    let rig = rig();
    rig.put("big", &noise(12, MIB));
    rig.put("other", &noise(13, MIB));
    let file = BulkFile::open(rig.opening("big", Options::READ)).unwrap();
    fs::rename(rig.path("other"), rig.path("big")).unwrap();
    // It is open still; when the connection is lost, it can't be found any more.
    assert!(read_all(&file, MIB) == noise(12, MIB));
    rig.restart(40);
    let error = file.read_at(&mut [0; 4096], 0).unwrap_err();
    assert!(matches!(error, BulkError::Replaced { .. }), "{error}");
}

#[test]
fn a_file_is_used_as_it_was_opened() {
    let rig = rig();
    rig.put("big", &noise(14, MIB));
    let reads = BulkFile::open(rig.opening("big", Options::READ)).unwrap();
    let writes = BulkFile::open(rig.opening("big", Options::WRITE)).unwrap();
    for error in [
        reads.write_at(&[0; 4096], 0).unwrap_err(),
        reads.set_size(0).unwrap_err(),
        writes.read_at(&mut [0; 4096], 0).unwrap_err(),
    ] {
        assert!(matches!(error, BulkError::Failed { status: Status::BadArgument, .. }), "{error}");
    }
    let unknown = rig.opening("big", Options::from_bits_retain(1 << 40));
    assert_eq!(refusal(unknown), Status::BadArgument);
}

#[test]
fn a_server_that_is_gone_is_told_in_time() {
    let rig = rig();
    rig.put("big", &noise(10, MIB));
    let mut opening = rig.opening("big", Options::READ);
    opening.patience = Duration::from_millis(300);
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    opening.address = gone.to_string();
    let begun = std::time::Instant::now();
    let error = BulkFile::open(opening).map(drop).unwrap_err();
    assert!(matches!(error, BulkError::Unreachable { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn clocks_that_differ_are_found_out() {
    let rig = rig();
    rig.put("big", &noise(11, MIB));
    for skew_s in [-120, 120] {
        rig.skew_ns.store(skew_s * 1_000_000_000, Ordering::Relaxed);
        rig.restart(30);
        let file = BulkFile::open(rig.opening("big", Options::READ)).unwrap();
        assert!(read_all(&file, MIB) == noise(11, MIB));
    }
}
