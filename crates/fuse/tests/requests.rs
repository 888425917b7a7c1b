//! Requests as bytes: every kind is taken apart as the kernel's header lays it out, and nothing
//! that could come makes the parser fail in another way than by saying so.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.
#![cfg(target_endian = "little")]

#[path = "../../protocol/tests/fuzzing/mod.rs"]
mod fuzzing;

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};

use nasd_fuse::{
    CopyFileRange, Forgotten, Lock, Operation, ParseError, Request, SetTime, StatxAsked, Time,
    WriteFlags,
};

/// A request of this kind: words of 32 bits, then bytes.
fn message(opcode: u32, words: &[u32], bytes: &[u8], extension: &[u32]) -> Vec<u8> {
    let length = 40 + 4 * words.len() + bytes.len() + 4 * extension.len();
    let extension_words = (extension.len() / 2) as u32;
    let head = [length as u32, opcode, 9, 0, 5, 0, 1000, 100, 77, extension_words];
    let mut message: Vec<u8> =
        head.iter().chain(words).flat_map(|word| word.to_le_bytes()).collect();
    message.extend_from_slice(bytes);
    message.extend(extension.iter().flat_map(|word| word.to_le_bytes()));
    message
}

/// What a request of this kind says, in words.
fn shown(opcode: u32, words: &[u32], bytes: &[u8]) -> String {
    let message = message(opcode, words, bytes, &[]);
    let request = Request::parse(&message).unwrap();
    assert_eq!((request.header.unique, request.header.node), (9, 5));
    assert_eq!((request.header.uid, request.header.gid, request.header.pid), (1000, 100, 77));
    format!("{:?}", request.operation)
}

/// One of each kind.
fn samples() -> Vec<(u32, Vec<u32>, &'static [u8])> {
    vec![
        (1, vec![], b"name\0"),
        (2, vec![3, 0], b""),
        (3, vec![1, 0, 8, 0], b""),
        (4, (0..22).collect(), b""),
        (5, vec![], b""),
        (6, vec![], b"name\0target\0"),
        (8, vec![0o10644, 0, 0o22, 0], b"fifo\0"),
        (9, vec![0o755, 0o22], b"dir\0"),
        (10, vec![], b"name\0"),
        (11, vec![], b"name\0"),
        (12, vec![6, 0], b"old\0new\0"),
        (13, vec![6, 0], b"new\0"),
        (14, vec![2, 0], b""),
        (15, vec![8, 0, 4096, 0, 65536, 2, 11, 0, 2, 0], b""),
        (16, vec![8, 0, 4096, 0, 4, 3, 11, 0, 2, 0], b"data"),
        (17, vec![], b""),
        (18, vec![8, 0, 2, 1, 11, 0], b""),
        (20, vec![8, 0, 1, 0], b""),
        (21, vec![5, 1, 1, 0], b"user.a\0value"),
        (21, vec![5, 1], b"user.a\0value"),
        (22, vec![100, 0], b"user.a\0"),
        (23, vec![100, 0], b""),
        (24, vec![], b"user.a\0"),
        (25, vec![8, 0, 0, 0, 11, 0], b""),
        (26, vec![7, 45, 131_072, 1 << 30, 128, 0], b""),
        (27, vec![0, 0], b""),
        (28, vec![8, 0, 3, 0, 4096, 0, 0, 0, 0, 0], b""),
        (29, vec![8, 0, 0, 0, 0, 0], b""),
        (30, vec![8, 0, 0, 0], b""),
        (31, vec![8, 0, 11, 0, 1, 0, 2, 0, 1, 77, 0, 0], b""),
        (32, vec![8, 0, 11, 0, 1, 0, 2, 0, 1, 77, 1, 0], b""),
        (33, vec![8, 0, 11, 0, 1, 0, 2, 0, 1, 77, 0, 0], b""),
        (34, vec![4, 0], b""),
        (35, vec![2, 0o644, 0o22, 0], b"new\0"),
        (36, vec![7, 0], b""),
        (38, vec![], b""),
        (39, vec![8, 0, 1, 2, 3, 0, 4, 5], b"data"),
        (40, vec![8, 0, 9, 0, 1, 4], b""),
        (41, vec![0, 0, 7, 0, 4, 0, 0, 0, 0, 0], b"data"),
        (42, vec![2, 0, 5, 0, 1, 0, 6, 0, 2, 0], b""),
        (43, vec![8, 0, 1, 0, 2, 0, 3, 0], b""),
        (44, vec![8, 0, 3, 0, 4096, 0, 0, 0, 0, 0], b""),
        (45, vec![6, 0, 2, 0], b"old\0new\0"),
        (46, vec![8, 0, 4096, 0, 4, 0], b""),
        (47, (0..14).collect(), b""),
        (50, vec![0, 0], b""),
        (51, vec![2, 0o644, 0o22, 0], b"/\0"),
        (52, vec![1, 0, 8, 0, 0x100, 0xfff], b""),
        (53, (0..14).collect(), b""),
    ]
}

#[test]
fn names_and_numbers_are_where_the_kernel_puts_them() {
    assert_eq!(shown(1, &[], b"name\0"), "Lookup { name: \"name\" }");
    assert_eq!(shown(2, &[3, 0], b""), "Forget { count: 3 }");
    assert_eq!(shown(3, &[0, 0, 8, 0], b""), "GetAttributes { handle: None }");
    assert_eq!(shown(3, &[1, 0, 8, 0], b""), "GetAttributes { handle: Some(8) }");
    assert_eq!(shown(6, &[], b"a\0b\0"), "Symlink { name: \"a\", target: \"b\" }");
    assert_eq!(
        shown(8, &[0o10644, 7, 0o22, 0], b"f\0"),
        format!("MakeNode {{ name: \"f\", mode: {}, device: 7, umask: 18 }}", 0o10644)
    );
    let renamed = "Rename { name: \"a\", to_node: 6, to_name: \"b\", flags: ";
    assert_eq!(shown(12, &[6, 0], b"a\0b\0"), format!("{renamed}0 }}"));
    assert_eq!(shown(45, &[6, 0, 2, 0], b"a\0b\0"), format!("{renamed}2 }}"));
    let set = "SetXattr { name: \"user.a\", value: [118], flags: 2, clears_sgid: ";
    assert_eq!(shown(21, &[1, 2], b"user.a\0v"), format!("{set}false }}"), "the older form");
    assert_eq!(shown(21, &[1, 2, 0, 0], b"user.a\0v"), format!("{set}false }}"));
    assert_eq!(shown(21, &[1, 2, 1, 0], b"user.a\0v"), format!("{set}true }}"));
    assert_eq!(shown(36, &[7, 0], b""), "Interrupt { unique: 7 }");
    assert_eq!(
        shown(46, &[8, 0, 1, 1, 4, 0], b""),
        "Seek { handle: 8, offset: 4294967297, whence: 4 }"
    );
    assert_eq!(
        shown(51, &[2, 0o644, 0o22, 0], b"/\0"),
        "Tmpfile { mode: 420, umask: 18, flags: 2 }"
    );
}

#[test]
fn every_kind_is_known_and_needs_its_arguments() {
    for (opcode, words, bytes) in samples() {
        let whole = message(opcode, &words, bytes, &[]);
        assert!(Request::parse(&whole).is_ok(), "{opcode}");
        let mut longer = whole.clone();
        longer.push(0);
        let wrong = Request::parse(&longer).unwrap_err();
        assert!(matches!(wrong, ParseError::Length { unique: 9, .. }), "{opcode}");
        // Kinds without arguments, and those whose last ones mean nothing here.
        if words.len() < 3 && bytes.is_empty() {
            continue;
        }
        let short = message(opcode, &words[..words.len().min(1)], &[], &[]);
        let error = Request::parse(&short).unwrap_err();
        assert_eq!(error, ParseError::Arguments { unique: 9, opcode });
    }
    for opcode in [0, 19, 37, 48, 49, 54, 4096, u32::MAX] {
        let error = Request::parse(&message(opcode, &[0; 20], b"", &[])).unwrap_err();
        assert_eq!(error, ParseError::Unknown { unique: 9, opcode });
    }
    assert_eq!(Request::parse(&[0; 39]).unwrap_err(), ParseError::NoHeader(39));
}

#[test]
fn a_write_has_its_data_and_a_name_its_end() {
    let words = [8, 0, 4096, 0, 4, 3, 11, 0, 2, 0];
    let bytes = message(16, &words, b"data", &[]);
    let Operation::Write { write, data } = Request::parse(&bytes).unwrap().operation else {
        panic!("a write");
    };
    assert_eq!((data, write.offset, write.size, write.flags), (&b"data"[..], 4096, 4, 2));
    assert_eq!(write.write_flags, WriteFlags::CACHE | WriteFlags::LOCK_OWNER);
    assert_eq!(write.lock_owner, Some(11));
    assert!(Request::parse(&message(16, &words, b"dat", &[])).is_err());
    assert!(Request::parse(&message(1, &[], b"no end", &[])).is_err());
}

#[test]
fn attributes_to_be_set_are_told_by_bits() {
    let mut words = vec![0; 22];
    words[0] = 1 | 1 << 3 | 1 << 4 | 1 << 8 | 1 << 11;
    (words[4], words[5], words[17]) = (10, 1, 0o600);
    (words[8], words[9], words[14]) = (-3_i32 as u32, u32::MAX, 55);
    let bytes = message(4, &words, b"", &[]);
    let Operation::SetAttributes(set) = Request::parse(&bytes).unwrap().operation else {
        panic!("attributes");
    };
    assert_eq!(
        (set.mode, set.uid, set.gid, set.size),
        (Some(0o600), None, None, Some(10 + (1 << 32)))
    );
    assert_eq!(set.access_time, Some(SetTime::At(Time { seconds: -3, nanoseconds: 55 })));
    assert_eq!((set.modify_time, set.handle), (Some(SetTime::Now), None));
    assert!(set.kill_suidgid);
}

#[test]
fn locks_copies_forgetting_and_statx() {
    let lock = message(32, &[8, 0, 11, 0, 1, 0, 2, 0, 1, 77, 1, 0], b"", &[]);
    let Operation::SetLock(lock) = Request::parse(&lock).unwrap().operation else {
        panic!("a lock");
    };
    let wanted = Lock { handle: 8, owner: 11, start: 1, end: 2, kind: 1, pid: 77, is_flock: true };
    assert_eq!(lock, wanted);
    let copy = message(53, &[1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 1, 7, 0], b"", &[]);
    let Operation::CopyFileRange { copy, wide: true } = Request::parse(&copy).unwrap().operation
    else {
        panic!("a wide copy");
    };
    let length = 6 + (1 << 32);
    let wanted = CopyFileRange {
        handle: 1,
        offset: 2,
        to_node: 3,
        to_handle: 4,
        to_offset: 5,
        length,
        flags: 7,
    };
    assert_eq!(copy, wanted);
    let forget = message(42, &[2, 0, 5, 0, 1, 0, 6, 0, 2, 0], b"", &[]);
    let Operation::BatchForget { list } = Request::parse(&forget).unwrap().operation else {
        panic!("a list");
    };
    let (first, second) = (Forgotten { node: 5, count: 1 }, Forgotten { node: 6, count: 2 });
    assert_eq!(list.collect::<Vec<_>>(), [first, second]);
    assert!(Request::parse(&message(42, &[u32::MAX, 0, 1, 0], b"", &[])).is_err());
    let statx = message(52, &[1, 0, 8, 0, 0x100, 0xfff], b"", &[]);
    let Operation::Statx(asked) = Request::parse(&statx).unwrap().operation else {
        panic!("statx");
    };
    assert_eq!(asked, StatxAsked { handle: Some(8), flags: 0x100, mask: 0xfff });
}

#[test]
fn the_group_of_what_is_made_comes_behind_the_arguments() {
    let group = |extension: &[u32]| {
        let bytes = message(9, &[0o755, 0], b"dir\0", extension);
        let request = Request::parse(&bytes).unwrap();
        assert!(
            matches!(request.operation, Operation::MakeDirectory { name, .. } if name == OsStr::new("dir"))
        );
        request.header.group
    };
    assert_eq!(group(&[]), None);
    assert_eq!(group(&[16, 32, 1, 4711]), Some(4711));
    assert_eq!(group(&[8, 5, 16, 32, 1, 4711]), Some(4711), "behind another one");
    assert_eq!(group(&[16, 32, 0, 4711]), None);
    assert_eq!(group(&[0, 5, 0, 5]), None, "without an end");
    let bytes = message(9, &[0o755, 0], b"dir\0", &[16, 32, 1, 4711]);
    let mut beyond = bytes.clone();
    beyond[36] = 200;
    assert!(Request::parse(&beyond).is_err(), "longer than the request");
}

#[test]
fn nothing_makes_the_parser_panic() {
    let samples = samples();
    let samples: Vec<Vec<u8>> = samples
        .iter()
        .map(|(opcode, words, bytes)| message(*opcode, words, bytes, &[16, 32, 1, 7]))
        .collect();
    fuzzing::fuzz("fuse requests", samples, |bytes| {
        let mut bytes = bytes.to_vec();
        // Mostly of the length that they say, or little else would be tried.
        if bytes.len() > 4 && bytes[bytes.len() - 1] != 0xff {
            let length = (bytes.len() as u32).to_le_bytes();
            bytes[..4].copy_from_slice(&length);
        }
        let mut outcome = DefaultHasher::new();
        match Request::parse(&bytes) {
            Ok(Request { header, operation }) => {
                let shown = format!("{operation:?}");
                let kind = shown.split([' ', '(']).next().unwrap_or_default().to_owned();
                (kind, header.group.is_some()).hash(&mut outcome);
                if let Operation::BatchForget { list } = operation {
                    assert!(list.count() <= bytes.len() / 16);
                }
            }
            Err(error) => std::mem::discriminant(&error).hash(&mut outcome),
        }
        outcome.finish()
    });
}
