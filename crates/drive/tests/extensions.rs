//! Extensions: what they may reach, who may have them do something, and what bad ones do to others.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::cell::RefCell;
use std::sync::Arc;

use common::*;
use nasd_capability::Capability;
use nasd_drive::{Checksum, Description, Extension, ExtensionCall, ExtensionError, Reach, Told};
use nasd_filter::remote::{self, read_answer};
use nasd_filter::{
    Aggregate, Column, Comparison, Delimited, Expression, Format, Function, Item, Join, Literal,
    Merged, Options, Plan, Program, Select, Type, delimited_row,
};
use nasd_grep::{Pattern, Wanted};
use nasd_protocol::drive::{
    DriveControl, ExtendArguments, Extended, Extension as Listed, ExtensionOutcome, Procedure,
    ReadArguments,
};
use nasd_protocol::packing::{Wish, put_wish, unpack};
use nasd_protocol::{Region, Status};
use nasd_types::{ByteRange, ObjectId, ObjectName, Rights};
use nasd_xdr::from_bytes;

/// More than any object here has.
const ALL: ByteRange = ByteRange { offset: 0, length: 1 << 40 };

/// A call of the checksums of parts.
fn checksums(name: ObjectName, range: ByteRange, part_bytes: u32) -> ExtendArguments {
    ExtendArguments {
        name,
        regions: vec![Region::single(range.offset, range.length)],
        rights: Rights::READ,
        extension: Checksum::NUMBER,
        revision: Checksum::REVISION,
        job: 7,
        bytes_left: range.length,
        most: 1 << 16,
        arguments: Checksum::arguments(part_bytes),
    }
}

fn call(drive: &TestDrive, signer: Signer, arguments: &ExtendArguments) -> (Extended, Vec<u8>) {
    let answered = drive.by(signer, Procedure::Extend, arguments);
    assert!(answered.proved, "{:?}", answered.status);
    let data = answered.data.clone();
    let extended: Extended = answered.take();
    assert_eq!(extended.data_length, data.len());
    (extended, data)
}

fn status(drive: &TestDrive, signer: Signer, arguments: &ExtendArguments) -> Option<Status> {
    drive.by(signer, Procedure::Extend, arguments).status
}

fn sums(bytes: &[u8], part_bytes: usize) -> Vec<u8> {
    bytes.chunks(part_bytes).flat_map(|part| crc32c::crc32c(part).to_be_bytes()).collect()
}

#[test]
fn a_drive_lists_its_extensions_and_runs_them() {
    let drive = TestDrive::extended(vec![Arc::new(Bad)]);
    let control = ReadArguments::single(
        ObjectName { partition: PARTITION, object: ObjectId::DRIVE_CONTROL },
        0,
        1 << 16,
    );
    let told = drive.by(Signer::drive(), Procedure::Read, &control).data;
    let listed = from_bytes::<DriveControl>(&told).unwrap().extensions;
    let shown = |known: &Listed| (known.number, known.name.clone(), known.revision, known.rights);
    let of = |number, name: &str, revision, rights| (number, name.to_owned(), revision, rights);
    let names = [(1, "checksum"), (2, "scan"), (3, "grep"), (4, "prefetch")];
    let mut expected: Vec<_> = names.map(|(number, name)| of(number, name, 1, Rights::READ)).into();
    expected.extend([of(5, "cancel", 1, Rights::empty()), of(BAD, "bad", 3, Rights::READ)]);
    assert_eq!(listed.iter().map(shown).collect::<Vec<_>>(), expected);
    assert!(listed.iter().all(|known| known.parameters.is_empty() == (known.number == BAD)));

    let data = pattern(3, 9_500_000);
    let name = drive.object_with(&data[..4_000_000]);
    drive.write(name, 4_000_000, &data[4_000_000..8_000_000]);
    drive.write(name, 8_000_000, &data[8_000_000..]);
    let working = Signer::working;
    let (extended, all) = call(&drive, working(), &checksums(name, ALL, 0));
    assert_eq!(all, sums(&data, data.len()));
    let done = ExtensionOutcome::Done;
    let data_length = all.len();
    assert_eq!(extended, Extended { outcome: done, position: ALL.end(), data_length });
    let range = ByteRange::new(5000, 3_000_000);
    let (extended, parts) = call(&drive, working(), &checksums(name, range, 70_000));
    assert_eq!((extended.position, &parts), (range.end(), &sums(&data[5000..3_005_000], 70_000)));
    // As much as there is room for, and the rest when that is asked for.
    let first = ExtendArguments { most: 18, ..checksums(name, range, 70_000) };
    let (extended, told) = call(&drive, working(), &first);
    assert_eq!((extended.position, &told[..]), (5000 + 4 * 70_000, &parts[..16]));
    let rest = ByteRange::new(extended.position, range.end() - extended.position);
    let (_, told) = call(&drive, working(), &checksums(name, rest, 70_000));
    assert_eq!(told, parts[16..]);
    // Pieces have parts of their own.
    let regions = vec![Region { offset: 100, length: 50, stride: 1000, count: 3 }];
    let rows = ExtendArguments { regions, ..checksums(name, ALL, 30) };
    let wanted = [100, 1100, 2100].map(|at| sums(&data[at..at + 50], 30)).concat();
    assert_eq!(call(&drive, working(), &rows).1, wanted);
    // Parts of one byte are as quick: far more of them than could be read one by one before a call comes to an end.
    let range = ByteRange::new(77, 1 << 19);
    let each = ExtendArguments { most: 4 << 20, ..checksums(name, range, 1) };
    let (extended, told) = call(&drive, working(), &each);
    assert_eq!(extended.position, range.end());
    assert!(told == sums(&data[77..][..1 << 19], 1));
    // Of what is behind the end there is nothing.
    let behind = checksums(name, ByteRange::new(9_499_999, 100), 50);
    assert_eq!(call(&drive, working(), &behind).1, sums(&data[9_499_999..], 50));
}

/// A call of a filter: numbers above 100 of lines of one number.
fn scanning(
    name: ObjectName,
    range: ByteRange,
    file_bytes: u64,
    program: Program,
) -> ExtendArguments {
    let columns = vec![Column { name: "number".to_owned(), kind: Type::Int }];
    let lines = Delimited { delimiter: b',', quote: None, header: false, columns };
    let options = Options { longest_record: 64, ..Options::default() };
    let plan = Plan { format: Format::Delimited(lines), program, options };
    let arguments = nasd_xdr::to_bytes(&remote::Request { file_bytes, plan });
    let (extension, revision) = (remote::EXTENSION, remote::REVISION);
    ExtendArguments { extension, revision, arguments, ..checksums(name, range, 0) }
}

fn above_100() -> Option<Expression> {
    let (number, hundred) = (Expression::Column(0), Expression::Literal(Literal::Int(100)));
    Some(Expression::Compare(Comparison::Greater, Box::new(number), Box::new(hundred)))
}

/// A filter of lines in which there is a text with so many characters between two letters.
fn liking(name: ObjectName, range: ByteRange, characters: usize) -> ExtendArguments {
    let columns = vec![Column { name: "text".to_owned(), kind: Type::Text }];
    let lines = Delimited { delimiter: b',', quote: None, header: false, columns };
    let filter = Expression::Like {
        value: Box::new(Expression::Column(0)),
        pattern: [b"%a", &vec![b'_'; characters][..], b"a%"].concat(),
        escape: None,
        negated: false,
    };
    let program = Program::Select(Select { filter: Some(filter), projection: None, limit: None });
    let options = Options { longest_record: 64, ..Options::default() };
    let plan = Plan { format: Format::Delimited(lines), program, options };
    let arguments = nasd_xdr::to_bytes(&remote::Request { file_bytes: range.end(), plan });
    let (extension, revision) = (remote::EXTENSION, remote::REVISION);
    ExtendArguments { extension, revision, arguments, ..checksums(name, range, 0) }
}

#[test]
fn patterns_that_take_long_are_left_to_whoever_asks() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"b\nacca\n");
    let told = |characters| {
        let arguments = liking(name, ByteRange::new(0, 7), characters);
        let (extended, data) = call(&drive, Signer::working(), &arguments);
        (extended.outcome, String::from_utf8_lossy(&data).into_owned())
    };
    assert_eq!(told(2).0, ExtensionOutcome::Done);
    assert_eq!(told(255).0, ExtensionOutcome::Done);
    let (outcome, text) = told(256);
    assert_eq!(outcome, ExtensionOutcome::Refused);
    assert!(text.contains("LIKE"), "{text}");
}

/// Asks until all of a range is told, in answers of `most` bytes: the rows, and how many calls that took.
fn rows_of(drive: &TestDrive, arguments: &ExtendArguments, most: u32) -> (Vec<u8>, usize) {
    let end = arguments.regions[0].offset + arguments.regions[0].length;
    let checked =
        from_bytes::<remote::Request>(&arguments.arguments).unwrap().plan.check().unwrap();
    let (mut join, mut calls) = (Join::new(&checked), 0);
    let rows = RefCell::new(Vec::new());
    let give = &mut |given: &[u8]| rows.borrow_mut().extend_from_slice(given);
    let mut at = arguments.regions[0].offset;
    while at < end {
        let regions = vec![Region::single(at, end - at)];
        let asked = ExtendArguments { regions, most, ..arguments.clone() };
        let (extended, data) = call(drive, Signer::working(), &asked);
        let told = String::from_utf8_lossy(&data);
        assert_eq!(extended.outcome, ExtensionOutcome::Done, "{told}");
        assert!(extended.position > at && data.len() <= most as usize);
        let (parts, result) =
            read_answer(std::iter::once(at..end), extended.position, end, &data).unwrap();
        for part in &parts {
            if !join.head(part, give).unwrap() || !join.rest(part, give).unwrap() {
                return (rows.take(), calls);
            }
        }
        join.add(result).unwrap();
        (at, calls) = (extended.position, calls + 1);
    }
    let (merged, _) = join.finish(give).unwrap();
    let mut rows = rows.into_inner();
    if let Merged::Aggregate(groups) = merged {
        rows = groups.iter().flat_map(|group| delimited_row(group, b',', b'"')).collect();
    }
    (rows, calls)
}

#[test]
fn a_filter_answers_instead_of_sending_the_bytes() {
    let drive = TestDrive::new();
    let lines: Vec<String> = (0..60_000).map(|number| format!("{}\n", number * 7 % 201)).collect();
    let data = lines.concat();
    let name = drive.object_with(&data.as_bytes()[..100_000]);
    drive.write(name, 100_000, &data.as_bytes()[100_000..]);
    let bytes = data.len() as u64;
    let select = |filter, limit| Program::Select(Select { filter, projection: None, limit });
    let wanted: String =
        lines.iter().filter(|line| line.trim().parse::<i64>().unwrap() > 100).cloned().collect();
    let all = scanning(name, ByteRange::new(0, bytes), bytes, select(above_100(), None));
    assert_eq!(rows_of(&drive, &all, 1 << 20), (wanted.clone().into_bytes(), 1));
    let (rows, calls) = rows_of(&drive, &all, 1000);
    assert!(rows == wanted.as_bytes() && calls > 100, "{calls}");
    let first = scanning(name, ByteRange::new(0, bytes), bytes, select(above_100(), Some(3)));
    let lines: Vec<&str> = wanted.split_inclusive('\n').collect();
    assert_eq!(rows_of(&drive, &first, 1 << 20).0, lines[..3].concat().as_bytes());
    let items = vec![Item { function: Function::Sum, argument: Some(Expression::Column(0)) }];
    let sum = Program::Aggregate(Aggregate { filter: above_100(), keys: Vec::new(), items });
    let sum = scanning(name, ByteRange::new(0, bytes), bytes, sum);
    let numbers = lines.iter().map(|line| line.trim().parse::<u64>().unwrap());
    assert_eq!(rows_of(&drive, &sum, 1 << 20).0, format!("{}\n", numbers.sum::<u64>()).as_bytes());
    // What a file has and the object has not are zeros: one bad record, as zeros are no number.
    let longer = scanning(
        name,
        ByteRange::new(0, bytes + 200_000),
        bytes + 200_000,
        select(above_100(), None),
    );
    assert_eq!(rows_of(&drive, &longer, 1 << 20).0, wanted.as_bytes());

    let refused = |arguments: &ExtendArguments| {
        let (extended, text) = call(&drive, Signer::working(), arguments);
        assert_eq!(extended.outcome, ExtensionOutcome::Refused);
        String::from_utf8(text).unwrap()
    };
    assert!(refused(&ExtendArguments { most: 100, ..all.clone() }).contains("too short"));
    let mut cut = all.clone();
    cut.arguments.pop();
    assert!(refused(&cut).contains("no plan"));
    let no_column = select(Some(Expression::Column(7)), None);
    let wrong = scanning(name, ByteRange::new(0, bytes), bytes, no_column);
    assert!(refused(&wrong).contains("no column 7"));
}

/// What is told is the same in all forms, and packed where that is wished and makes it shorter.
#[test]
fn answers_are_packed_for_who_wishes_so() {
    let drive = TestDrive::new();
    let lines: Vec<String> = (0..60_000).map(|number| format!("{}\n", number % 50 + 80)).collect();
    let data = lines.concat();
    let name = drive.object_with(&data.as_bytes()[..100_000]);
    drive.write(name, 100_000, &data.as_bytes()[100_000..]);
    let bytes = data.len() as u64;
    let all = ByteRange::new(0, bytes);
    let select = Select { filter: above_100(), projection: None, limit: None };
    let scan = scanning(name, all, bytes, Program::Select(select));
    let pattern = Pattern { texts: vec!["1[0-9]5".to_owned()], ..Pattern::default() };
    let search = nasd_grep::remote::Request { pattern, wanted: Wanted::default() };
    let grep = ExtendArguments {
        extension: nasd_grep::remote::EXTENSION,
        revision: nasd_grep::remote::REVISION,
        arguments: nasd_xdr::to_bytes(&search),
        ..checksums(name, all, 0)
    };
    for plain in [scan, grep] {
        let most = 2 << 20;
        let ask = |wish: Option<Wish>, most: u32| {
            let mut asked = ExtendArguments { most, ..plain.clone() };
            if let Some(wish) = wish {
                put_wish(wish, &mut asked.arguments);
            }
            let (extended, data) = call(&drive, Signer::working(), &asked);
            let text = String::from_utf8_lossy(&data);
            assert_eq!(extended.outcome, ExtensionOutcome::Done, "{text}");
            assert!(data.len() <= most as usize);
            (extended.position, data)
        };
        let (position, expected) = ask(None, most);
        assert!(position == bytes && expected.len() > 10_000, "{}", expected.len());
        let (_, data) = ask(Some(Wish::Plain), most);
        let told = unpack(data, most as usize).unwrap();
        assert!(told.data == expected && !told.was_packed && told.took.all > told.took.packing);
        let (_, data) = ask(Some(Wish::Packed), most);
        assert!(data.len() < expected.len() / 2, "{} of {}", data.len(), expected.len());
        let told = unpack(data, most as usize).unwrap();
        assert!(told.data == expected && told.was_packed);
        assert!(told.took.all >= told.took.packing && !told.took.packing.is_zero());
        // A wish that nobody knows.
        let mut asked = ExtendArguments { most, ..plain.clone() };
        asked.arguments.extend([0, 0, 0, 2]);
        let (extended, _) = call(&drive, Signer::working(), &asked);
        assert_eq!(extended.outcome, ExtensionOutcome::Refused);
    }
}

#[test]
fn an_extension_is_allowed_what_its_caller_is() {
    let drive = TestDrive::new();
    let name = drive.object_with(&pattern(1, 10_000));
    let other = drive.object_with(b"other");
    let capability = Capability {
        rights: Rights::READ,
        region: ByteRange::new(1000, 2000),
        ..drive.capability(name)
    };
    let by = |capability: &Capability| Signer::capability(capability);
    let inside = checksums(name, ByteRange::new(1000, 2000), 0);
    call(&drive, by(&capability), &inside);
    let refused = |capability: &Capability, arguments: &ExtendArguments, status| {
        let request = Request::new(Procedure::Extend, arguments, by(capability));
        assert_eq!(drive.refused(&request), status);
    };
    for range in [ByteRange::new(999, 10), ByteRange::new(2990, 11), ALL] {
        refused(&capability, &checksums(name, range, 0), Status::RefusedRegion);
    }
    let elsewhere = ExtendArguments { name: other, ..inside.clone() };
    refused(&capability, &elsewhere, Status::RefusedObject);
    let cannot_read = Capability { rights: Rights::all() - Rights::READ, ..capability };
    refused(&cannot_read, &inside, Status::RefusedRights);
    // Nor does it help to say that it needs nothing.
    let without = ExtendArguments { rights: Rights::empty(), ..inside.clone() };
    assert_eq!(status(&drive, by(&cannot_read), &without), Some(Status::NotPermitted));
    let more = ExtendArguments { rights: Rights::READ | Rights::WRITE, ..inside };
    refused(&capability, &more, Status::RefusedRights);
}

#[test]
fn what_is_not_there_or_has_no_meaning_is_told() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let working = Signer::working;
    let asked = checksums(name, ALL, 0);
    for (extension, revision) in [(999, 1), (1, 2), (0, 0)] {
        let arguments = ExtendArguments { extension, revision, ..asked.clone() };
        assert_eq!(status(&drive, working(), &arguments), Some(Status::NoSuchExtension));
    }
    let missing = ExtendArguments { name: object(0xffff), ..asked.clone() };
    assert_eq!(status(&drive, working(), &missing), Some(Status::NoSuchObject));
    let contents = ObjectName { partition: PARTITION, object: ObjectId::PARTITION_CONTENTS };
    let synthetic = ExtendArguments { name: contents, ..asked.clone() };
    assert_eq!(status(&drive, Signer::drive(), &synthetic), Some(Status::NotPermitted));
    let (one, other) = (Region::single(0, 10), Region::single(5, 10));
    for regions in [vec![], vec![other, one], vec![one, other]] {
        let arguments = ExtendArguments { regions, ..asked.clone() };
        assert_eq!(status(&drive, working(), &arguments), Some(Status::BadArgument));
    }
    for arguments in [vec![], vec![0; 3], vec![0; 8]] {
        let (extended, text) =
            call(&drive, working(), &ExtendArguments { arguments, ..asked.clone() });
        assert_eq!(extended.outcome, ExtensionOutcome::Refused);
        assert_eq!(String::from_utf8(text).unwrap(), "its arguments are one unsigned int");
    }
}

const BAD: u32 = 4000;

/// An extension that does what it is told, all of which is bad.
struct Bad;

impl Extension for Bad {
    fn description(&self) -> Description {
        Description { number: BAD, name: "bad", revision: 3, rights: Rights::READ, parameters: "" }
    }

    fn check(&self, call: &ExtensionCall) -> Result<usize, ExtensionError> {
        match &call.arguments[..] {
            b"memory" => Ok(usize::MAX),
            b"check" => panic!("it was told to"),
            _ => Ok(1 << 20),
        }
    }

    fn run(&self, call: &ExtensionCall, reach: &mut Reach) -> Result<Told, ExtensionError> {
        let (begin, position) = (call.pieces[0].offset, call.end());
        match &call.arguments[..] {
            b"panic" => panic!("it was told to"),
            b"too long" => Ok(Told { position, data: vec![0; call.most + 1] }),
            b"backwards" => Ok(Told { position: begin - 1, data: vec![] }),
            b"outside" => {
                let before = ByteRange::new(begin - 1, 1);
                reach.read(before).map(|_| Told::default())
            }
            b"much" => reach.read(ByteRange::new(begin, 5 << 20)).map(|_| Told::default()),
            b"failed" => Err(ExtensionError::Failed { position: 12, text: "no number".to_owned() }),
            _ => Ok(Told { position, data: b"well".to_vec() }),
        }
    }
}

#[test]
fn bad_extensions_harm_nobody_but_their_callers() {
    let drive = TestDrive::extended(vec![Arc::new(Bad)]);
    let name = drive.object_with(&pattern(1, 6 << 20)[..4 << 20]);
    drive.write(name, 4 << 20, &pattern(2, 2 << 20));
    let told = |what: &[u8]| ExtendArguments {
        extension: BAD,
        revision: 3,
        arguments: what.to_vec(),
        ..checksums(name, ByteRange::new(8, 6 << 20), 0)
    };
    let fails = |what: &[u8]| status(&drive, Signer::working(), &told(what));
    for _ in 0..3 {
        for what in [&b"panic"[..], b"check", b"too long", b"backwards"] {
            assert_eq!(fails(what), Some(Status::DriveFault), "{what:?}");
        }
        assert_eq!(fails(b"outside"), Some(Status::NotPermitted));
        assert_eq!(fails(b"much"), Some(Status::TooLarge));
    }
    let (extended, text) = call(&drive, Signer::working(), &told(b"memory"));
    assert_eq!(extended.outcome, ExtensionOutcome::Refused);
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("bytes of memory, and the drive has"), "{text}");
    let (extended, text) = call(&drive, Signer::working(), &told(b"failed"));
    assert_eq!((extended.outcome, extended.position), (ExtensionOutcome::Failed, 12));
    assert_eq!(text, b"no number");
    assert_eq!(call(&drive, Signer::working(), &told(b"")).1, b"well");
    // All else goes on.
    assert_eq!(
        drive.by(Signer::working(), Procedure::Read, &ReadArguments::single(name, 0, 8)).status,
        None
    );
}
