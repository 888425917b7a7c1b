//! The directory format, its damage, and its index against a list.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};

use nasd_protocol::manager::{FileHandle, FileType};
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{DriveId, ObjectId, PartitionId};

use super::*;
use crate::document;

const OBJECT: ObjectId = ObjectId(0x41);

fn handle(object: u64) -> FileHandle {
    FileHandle {
        drive: DriveId(0x1122_3344_5566_7788),
        partition: PartitionId(1),
        object: ObjectId(object),
    }
}

fn entry(name: &[u8], object: u64) -> Entry<'_> {
    Entry { name, handle: handle(object), file_type: FileType::Regular }
}

fn bytes_of(directory: &Directory) -> Vec<u8> {
    directory.raw_blocks().flat_map(|block| *block.bytes()).collect()
}

fn insert(directory: &mut Directory, name: &[u8], object: u64) {
    let change = directory.plan_insert(&entry(name, object)).expect("it fits");
    directory.apply(change);
}

fn remove(directory: &mut Directory, name: &[u8]) {
    let change = directory.plan_remove(name).expect("it is there");
    directory.apply(change);
}

/// The example of docs/directory-format.md: `a` in slot 0, `bc` in slot 1.
fn example() -> Directory {
    let mut directory = Directory::empty(OBJECT);
    insert(&mut directory, b"a", 0x42);
    let file = Entry { name: b"bc", handle: handle(0x43), file_type: FileType::Directory };
    let change = directory.plan_insert(&file).unwrap();
    directory.apply(change);
    directory
}

#[test]
fn the_bytes_are_those_of_the_document() {
    let bytes = bytes_of(&example());
    assert_eq!(bytes.len(), BLOCK_BYTES);
    let hex = |range: std::ops::Range<usize>| -> String {
        bytes[range].iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let header = "4e444952010002004100000000000000\
                  00000000d10f02000200000000000000\
                  e90fd10f00000000";
    let entries = "887766554433221101000000430000000000000002026263\
                   8877665544332211010000004200000000000000010161";
    assert_eq!(hex(0..40), header);
    assert_eq!(hex(4049..4096), entries);
    assert!(bytes[40..4049].iter().all(|byte| *byte == 0));
    assert!(document::shows(header) && document::shows(entries));
}

#[test]
fn clients_can_parse_it() {
    let listed = parse_directory(OBJECT, &bytes_of(&example())).unwrap();
    let names: Vec<(&[u8], u64)> =
        listed.iter().map(|entry| (&entry.name[..], entry.handle.object.0)).collect();
    assert_eq!(names, [(&b"a"[..], 0x42), (&b"bc"[..], 0x43)]);
    assert_eq!(listed[1].file_type, FileType::Directory);
    assert_eq!(parse_directory(OBJECT, &[]), Ok(Vec::new()));
}

#[test]
fn each_damage_has_its_error() {
    let parse = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes_of(&example());
        change(&mut bytes);
        parse_directory(OBJECT, &bytes).unwrap_err()
    };
    let header = |error| matches!(error, DirectoryError::BadHeader { block: 0, .. });
    let bad_entry = |error| matches!(error, DirectoryError::BadEntry { block: 0, .. });
    assert_eq!(parse(&|bytes| bytes.truncate(4000)), DirectoryError::PartialBlock { length: 4000 });
    assert_eq!(parse(&|bytes| bytes[0] = 0), DirectoryError::NotADirectory { block: 0 });
    assert_eq!(
        parse(&|bytes| bytes[4] = 2),
        DirectoryError::UnknownVersion { block: 0, version: 2 }
    );
    assert!(matches!(parse(&|bytes| bytes[8] = 9), DirectoryError::Misplaced { .. }));
    assert!(matches!(parse(&|bytes| bytes[16] = 1), DirectoryError::Misplaced { .. }));
    assert!(header(parse(&|bytes| bytes[7] = 0xff)), "slots");
    assert!(header(parse(&|bytes| bytes[20] = 0)), "lowest entry");
    assert!(header(parse(&|bytes| bytes[22] = 3)), "number of entries");
    assert!(bad_entry(parse(&|bytes| bytes[32] = 0xff)), "offset of the first entry");
    assert!(header(parse(&|bytes| bytes[32..34].copy_from_slice(&[0xd1, 0x0f]))), "overlap");
    assert!(bad_entry(parse(&|bytes| bytes[4049 + 20] = 9)), "type");
    assert!(bad_entry(parse(&|bytes| bytes[4049 + 21] = 200)), "name length");
    assert!(bad_entry(parse(&|bytes| bytes[4095] = b'/')), "slash");
    assert!(bad_entry(parse(&|bytes| bytes[4095] = 0)), "NUL");
    let mut twice = Directory::empty(OBJECT);
    insert(&mut twice, b"one", 1);
    insert(&mut twice, b"two", 2);
    let mut bytes = bytes_of(&twice);
    let at = bytes.windows(3).position(|window| window == b"two").unwrap();
    bytes[at..at + 3].copy_from_slice(b"one");
    assert_eq!(
        parse_directory(OBJECT, &bytes),
        Err(DirectoryError::DuplicateName { block: 0, slot: 1 })
    );
}

#[test]
fn no_damage_panics() {
    let mut directory = Directory::empty(OBJECT);
    for number in 0..40 {
        insert(&mut directory, format!("name-{number}-{}", "x".repeat(number * 3)).as_bytes(), 7);
    }
    let good = bytes_of(&directory);
    let interesting: Vec<usize> = (0..120).chain(2000..2100).chain(4000..4096).collect();
    for at in interesting {
        for value in [0, 1, 2, 0x0f, 0x7f, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = value;
            let _ = parse_directory(OBJECT, &bytes);
        }
    }
}

#[test]
fn one_name_is_one_block_and_room_is_used_again() {
    let mut directory = Directory::empty(OBJECT);
    for number in 0..100 {
        insert(&mut directory, format!("{number:0>200}").as_bytes(), number);
    }
    let blocks = directory.raw_blocks().count();
    assert!((6..=7).contains(&blocks), "{blocks}");
    let before = bytes_of(&directory);
    remove(&mut directory, format!("{:0>200}", 3).as_bytes());
    let after = bytes_of(&directory);
    let changed = |one: &[u8], other: &[u8]| {
        one.chunks(BLOCK_BYTES).zip(other.chunks(BLOCK_BYTES)).filter(|(a, b)| a != b).count()
    };
    assert_eq!(changed(&before, &after), 1);
    insert(&mut directory, &[b'n'; 200], 3);
    assert_eq!(changed(&after, &bytes_of(&directory)), 1);
    assert_eq!(directory.raw_blocks().count(), blocks);
}

#[test]
fn empty_blocks_at_the_end_are_cut_off() {
    let mut directory = Directory::empty(OBJECT);
    let name = |number: usize| format!("{number:0>250}").into_bytes();
    for number in 0..60 {
        insert(&mut directory, &name(number), 1);
    }
    assert_eq!(directory.object_bytes(), 5 * BLOCK_BYTES as u64);
    // All but the first block and the last name: nothing can be cut off yet.
    for number in 15..59 {
        remove(&mut directory, &name(number));
    }
    assert_eq!(directory.object_bytes(), 5 * BLOCK_BYTES as u64);
    assert!(matches!(directory.plan_remove(&name(59)), Some(Change::Shrink { blocks: 2 })));
    remove(&mut directory, &name(59));
    assert_eq!((directory.object_bytes(), directory.len()), (2 * BLOCK_BYTES as u64, 15));
    for number in 0..15 {
        remove(&mut directory, &name(number));
    }
    assert_eq!((directory.object_bytes(), directory.len()), (0, 0));
    insert(&mut directory, b"again", 1);
    assert_eq!(parse_directory(OBJECT, &bytes_of(&directory)).unwrap().len(), 1);
}

#[test]
fn names_that_cannot_be_are_not_planned() {
    let directory = example();
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b", &[b'n'; 256]] {
        assert!(directory.plan_insert(&entry(name, 1)).is_none(), "{name:?}");
        assert!(!is_valid_name(name));
    }
    assert!(directory.plan_insert(&entry(b"a", 1)).is_none(), "taken");
    assert!(directory.plan_remove(b"x").is_none());
    assert!(directory.plan_replace(&entry(b"x", 1)).is_none());
    assert!(directory.plan_rename(b"x", b"y").is_none());
}

/// A hash that makes nearly all names collide.
#[derive(Clone, Default)]
struct Weak;
struct WeakHasher(u64);

impl BuildHasher for Weak {
    type Hasher = WeakHasher;
    fn build_hasher(&self) -> WeakHasher {
        WeakHasher(0)
    }
}

impl Hasher for WeakHasher {
    fn finish(&self) -> u64 {
        self.0 % 3
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 += bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    }
}

#[test]
fn the_index_agrees_with_a_list_and_with_the_bytes() {
    against_a_list(&mut Directory::empty(OBJECT), 4000);
}

#[test]
fn names_with_the_same_hash_are_kept_apart() {
    against_a_list(&mut Directory::with_hasher(OBJECT, Weak), 1500);
}

fn against_a_list<H: BuildHasher>(directory: &mut Directory<H>, turns: usize) {
    let mut list: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let mut random = 42u64;
    let mut below = |limit: u64| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) % limit
    };
    for turn in 0..turns {
        let name = |number: u64| format!("{}{number}", "n".repeat(number as usize % 240));
        let (one, other) = (name(below(120)).into_bytes(), name(below(120)).into_bytes());
        let object = turn as u64 + 64;
        let change = match below(4) {
            0 | 1 => directory.plan_insert(&entry(&one, object)).inspect(|_| {
                assert_eq!(list.insert(one.clone(), object), None);
            }),
            2 => directory.plan_remove(&one).inspect(|_| {
                assert!(list.remove(&one).is_some());
            }),
            _ if one != other && list.contains_key(&one) => {
                match directory.plan_rename(&one, &other) {
                    Some(change) => {
                        let object = list.remove(&one).unwrap();
                        list.insert(other.clone(), object);
                        Some(change)
                    }
                    None => directory.plan_replace(&entry(&one, object)).inspect(|_| {
                        list.insert(one.clone(), object);
                    }),
                }
            }
            _ => None,
        };
        if let Some(change) = change {
            directory.apply(change);
        }
        assert_eq!(directory.len(), list.len());
        for number in 0..120 {
            let name = name(number).into_bytes();
            let found = directory.find(&name).map(|entry| entry.handle.object.0);
            assert_eq!(found, list.get(&name).copied(), "turn {turn}");
        }
    }
    let bytes: Vec<u8> = directory.raw_blocks().flat_map(|block| *block.bytes()).collect();
    assert_eq!(bytes.len() as u64, directory.object_bytes());
    let parsed = parse_directory(OBJECT, &bytes).unwrap();
    let parsed: BTreeMap<Vec<u8>, u64> =
        parsed.into_iter().map(|entry| (entry.name, entry.handle.object.0)).collect();
    assert_eq!(parsed, list);
}

#[test]
fn cookies_stay_good_while_names_come_and_go() {
    let mut directory = Directory::empty(OBJECT);
    let name = |number: usize| format!("{number:0>100}").into_bytes();
    for number in 0..200 {
        insert(&mut directory, &name(number), 1);
    }
    let (mut cookie, mut seen) = (0, Vec::new());
    let mut round = 0;
    loop {
        let page = directory.list(cookie, 7, usize::MAX);
        seen.extend(page.entries.iter().map(|entry| entry.name.clone()));
        let Some(last) = page.entries.last() else {
            break;
        };
        cookie = last.cookie;
        // Odd numbers below 100 go, others come; even numbers and all from 100 on stay.
        remove(&mut directory, &name(2 * (round % 50) + 1));
        insert(&mut directory, &name(2 * (round % 50) + 1 + 1000), 1);
        round += 1;
    }
    let stays = |number: &usize| number.is_multiple_of(2) || *number >= 100;
    for number in (0..200).filter(stays) {
        let times = seen.iter().filter(|other| **other == name(number)).count();
        assert_eq!(times, 1, "{number}");
    }
}

#[test]
fn pages_keep_their_limits() {
    let mut directory = Directory::empty(OBJECT);
    for number in 0..50 {
        insert(&mut directory, format!("{number:0>52}").as_bytes(), 1);
    }
    let page = directory.list(0, 10, usize::MAX);
    assert_eq!((page.entries.len(), page.end), (10, false));
    let page = directory.list(0, 100, 1000);
    assert_eq!((page.entries.len(), page.end), (10, false));
    let page = directory.list(0, 100, 1);
    assert_eq!((page.entries.len(), page.end), (1, false));
    let page = directory.list(0, 50, usize::MAX);
    assert_eq!((page.entries.len(), page.end), (50, true));
    let last = page.entries[49].cookie;
    let page = directory.list(last, 50, usize::MAX);
    assert_eq!((page.entries.len(), page.end), (0, true));
    assert!(directory.list(u64::MAX, 50, usize::MAX).end);
}
