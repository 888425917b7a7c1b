//! Scans and searches of files that change.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nasd_filter::remote::{Answer, Next, Request};
use nasd_filter::{
    Aggregate, Arithmetic, Checked, Column, Comparison, Delimited, Expression, Fixed, Format,
    Function, Item, Literal, Plan, Program, Select, Type, Value,
};
use nasd_filter::{Field, FieldKind, Merged, Options};
use nasd_grep::{Bounds, Give, Pattern, Search, Wanted};
use nasd_types::ByteRange;
use nasd_xdr::{Decoder, XdrDecode};

use super::{cell, new_file, root, settings};
use crate::extending::{ExtendedPart, ExtensionCall};
use crate::fake::FakeCell;
use crate::wire::ExtensionOutcome;
use crate::{
    Clerk, ClerkError, FileGrep, FileGrepError, FileHandle, FileScan, FileScanError, GrepPlan,
    OpenFile, OpenMode, ScanOptions, ScanRows, SetFileAttributes,
};

/// Memory that the drive has.
const MEMORY_BYTES: usize = 20 << 20;

/// Of records of four letters.
fn count() -> Checked {
    let field = Field { name: "letters".to_owned(), kind: FieldKind::Text { bytes: 4 } };
    let format = Format::Fixed(Fixed { fields: vec![field] });
    let items = vec![Item { function: Function::Count, argument: None }];
    let program = Program::Aggregate(Aggregate { filter: None, keys: Vec::new(), items });
    Plan { format, program, options: Options::default() }.check().unwrap()
}

fn scan(file: &Arc<OpenFile>, options: ScanOptions) -> Result<i64, FileScanError> {
    let scan = FileScan::start(Arc::clone(file), &count(), options)?;
    match scan.finish(&mut |_| {})?.merged {
        Merged::Aggregate(groups) => match groups[0][0] {
            Value::Int(count) => Ok(count),
            ref other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn grep(file: &Arc<OpenFile>) -> Result<u64, FileGrepError> {
    let pattern = Pattern { texts: vec!["[a-z]".to_owned()], ..Pattern::default() };
    let wanted = Wanted { give: Give::Count, ..Wanted::default() };
    let plan = GrepPlan::new(pattern, wanted).unwrap();
    let grep = FileGrep::start(Arc::clone(file), &plan, ScanOptions::default())?;
    Ok(grep.finish(&mut |_| {})?.selected)
}

/// Cuts a file by another client.
fn cut(cell: &Arc<FakeCell>, handle: FileHandle, size: u64) {
    let other = cell.clerk(settings());
    let changes = SetFileAttributes { size: Some(size), ..SetFileAttributes::default() };
    other.setattr(&root(), handle, &changes).unwrap();
}

/// What a drive tells that has these bytes, and zeros behind them.
fn told(bytes: &[u8], ranges: &[ByteRange], call: &ExtensionCall) -> Vec<ExtendedPart> {
    let mut input = Decoder::new(&call.arguments);
    let Request { file_bytes, plan } = XdrDecode::decode(&mut input).unwrap();
    let checked = plan.check().unwrap();
    let bytes_of_memory = Answer::memory_bytes(&checked, call.most);
    let mut answer = Answer::new(&checked, file_bytes, vec![0xee; call.most], 1);
    for range in ranges {
        assert!(answer.begin(range.offset));
        let mut piece = bytes.get(range.offset as usize..).unwrap_or_default().to_vec();
        piece.resize(range.length as usize, 0);
        assert_eq!(answer.feed(&piece), Ok(Next::More));
        assert_eq!(answer.end(range.end()), Ok(Next::More));
    }
    let (outcome, data) = match input.finish() {
        _ if bytes_of_memory > MEMORY_BYTES => (ExtensionOutcome::Refused, b"too much".to_vec()),
        Ok(()) => (ExtensionOutcome::Done, answer.finish().unwrap()),
        // It takes no wishes.
        Err(_) => (ExtensionOutcome::Refused, Vec::new()),
    };
    let (pieces, position) = (ranges.to_vec(), ranges[0].end());
    vec![ExtendedPart { drive: nasd_types::DriveId(1), pieces, outcome, position, data }]
}

fn file(clerk: &Clerk, text: &[u8]) -> (Arc<OpenFile>, FileHandle) {
    let (file, handle) = new_file(clerk, "file");
    file.write(0, text).unwrap();
    file.sync().unwrap();
    (Arc::new(file), handle)
}

/// Records of [`NUMBERED`] bytes with a number, to which the largest one is added, which goes for 0 and below; the sum is to be a large one.
fn added(limit: Option<u64>) -> Checked {
    let kind = FieldKind::Integer { bytes: 8, signed: true, big_endian: true };
    let number = Field { name: "number".to_owned(), kind };
    let rest = Field { name: "rest".to_owned(), kind: FieldKind::Text { bytes: 4 } };
    let format = Format::Fixed(Fixed { fields: vec![number, rest] });
    let constant = |value| Expression::Literal(Literal::Int(value)).into();
    let (column, most) = (Expression::Column(0).into(), constant(i64::MAX));
    let sum = Expression::Arithmetic(Arithmetic::Add, column, most).into();
    let large = Expression::Compare(Comparison::Greater, sum, constant(i64::MAX / 2));
    let program = Program::Select(Select { filter: Some(large), projection: None, limit });
    Plan { format, program, options: Options::default() }.check().unwrap()
}

/// They are no part of a part: some lie in two of them.
const NUMBERED: usize = 12;

fn numbered(number: i64) -> [u8; NUMBERED] {
    let mut record = [b'r'; NUMBERED];
    record[..8].copy_from_slice(&number.to_be_bytes());
    record
}

/// The rows of all parts, and how it ends. Some are taken a few bytes at a time.
fn rows_of_parts(mut scan: FileScan) -> (Vec<u8>, Result<(), FileScanError>) {
    let (mut rows, mut all) = (ScanRows::default(), Vec::new());
    loop {
        let more = scan.next_part(&mut rows);
        all.extend_from_slice(rows.take(24));
        while !rows.is_empty() {
            all.extend_from_slice(rows.take(1 << 20));
        }
        match more {
            Ok(true) => {}
            Ok(false) => {
                return (all.clone(), scan.finish(&mut |row| all.extend_from_slice(row)).map(drop));
            }
            Err(error) => return (all, Err(error)),
        }
    }
}

#[test]
fn rows_of_parts_are_those_of_the_file_and_those_before_a_failure_are_told() {
    const PART: usize = 4 << 20;
    // Every other one is selected.
    let number = |index: usize| if index.is_multiple_of(2) { -(index as i64) } else { i64::MIN };
    let mut records: Vec<_> =
        (0..3 * PART / NUMBERED).map(|index| numbered(number(index))).collect();
    let selected: Vec<_> = records.iter().copied().step_by(2).collect();
    let selected = selected.concat();
    // More than the first part has.
    let few = PART / NUMBERED / 2 + 3;
    for here in [false, true] {
        let cell = cell(1);
        let clerk = cell.clerk(settings());
        let bytes = records.concat();
        let (file, _) = file(&clerk, &bytes);
        cell.set_extends(Arc::new(move |ranges, call| Ok(told(&bytes, ranges, call))));
        for limit in [None, Some(few)] {
            let checked = added(limit.map(|limit| limit as u64));
            let scan = FileScan::start(Arc::clone(&file), &checked, ScanOptions { here }).unwrap();
            let (rows, ended) = rows_of_parts(scan);
            let all = limit.map_or(selected.len(), |limit| limit * NUMBERED);
            assert!(ended.is_ok() && rows == selected[..all], "{} bytes, {ended:?}", rows.len());
        }
    }
    // One that fails is far behind in the second part.
    records[2 * PART / NUMBERED - 100] = numbered(1);
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, _) = file(&clerk, &records.concat());
    let start = |limit| {
        FileScan::start(Arc::clone(&file), &added(limit), ScanOptions { here: true }).unwrap()
    };
    let (rows, ended) = rows_of_parts(start(None));
    assert!(matches!(ended, Err(FileScanError::Filter(_))), "{ended:?}");
    let before = (PART / NUMBERED).div_ceil(2) * NUMBERED;
    assert!(rows == selected[..rows.len()] && rows.len() >= before, "{} bytes", rows.len());
    // What is behind a LIMIT does not count.
    let (rows, ended) = rows_of_parts(start(Some(few as u64)));
    assert!(ended.is_ok() && rows == selected[..few * NUMBERED], "{} bytes, {ended:?}", rows.len());
}

#[test]
fn what_was_appended_and_not_sent_is_looked_at() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, _) = new_file(&clerk, "file");
    let file = Arc::new(file);
    file.append(b"one\ntwo\n").unwrap();
    assert_eq!(scan(&file, ScanOptions::default()), Ok(2));
    file.append(b"four").unwrap();
    assert_eq!(grep(&file), Ok(3));
    file.append(b"five").unwrap();
    assert_eq!(file.settled_size(), Ok(16));
}

#[test]
fn a_file_that_was_cut_has_no_records_of_zeros() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, handle) = file(&clerk, b"one\ntwo\nsix\nten\n");
    // Drives can't: all is read here.
    assert_eq!(scan(&file, ScanOptions::default()), Ok(4));
    assert_eq!(grep(&file), Ok(4));
    cut(&cell, handle, 12);
    assert_eq!(scan(&file, ScanOptions::default()), Err(ClerkError::Cut.into()));
    // By now its length is known.
    assert_eq!(scan(&file, ScanOptions::default()), Ok(3));
    cut(&cell, handle, 8);
    assert_eq!(grep(&file), Err(ClerkError::Cut.into()));
    assert_eq!(grep(&file), Ok(2));
}

#[test]
fn a_file_that_was_cut_while_drives_looked_at_it_has_none_either() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, handle) = file(&clerk, b"one\ntwo\nsix\nten\n");
    let of_drive = Arc::clone(&cell);
    cell.set_extends(Arc::new(move |ranges, call| {
        let bytes = of_drive.drive(0).durable_bytes(handle.object).unwrap();
        Ok(told(&bytes, ranges, call))
    }));
    let whole = FileScan::start(Arc::clone(&file), &count(), ScanOptions::default()).unwrap();
    assert_eq!(whole.finish(&mut |_| {}).unwrap().work.drive_bytes, 16);
    let (again, _) = clerk.open(&root(), handle, OpenMode::READ).unwrap();
    cut(&cell, handle, 12);
    let again = Arc::new(again);
    assert_eq!(scan(&again, ScanOptions::default()), Err(ClerkError::Cut.into()));
    assert_eq!(scan(&again, ScanOptions::default()), Ok(3));
}

#[test]
fn nobody_can_foresee_where_groups_have_their_places() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, _) = file(&clerk, b"one\n");
    let scan = FileScan::start(file, &count(), ScanOptions::default()).unwrap();
    assert!(scan.has_secret());
}

#[test]
fn a_drive_that_has_not_the_memory_for_so_many_groups_is_asked_for_fewer() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let lines: String =
        (0..1000).map(|line| format!("{},{line}.5,1e{}\n", line % 7, line % 9)).collect();
    let (file, handle) = file(&clerk, lines.as_bytes());
    let (of_drive, refused) = (Arc::clone(&cell), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&refused);
    cell.set_extends(Arc::new(move |ranges, call| {
        let bytes = of_drive.drive(0).durable_bytes(handle.object).unwrap();
        let told = told(&bytes, ranges, call);
        let is_refused = told[0].outcome == ExtensionOutcome::Refused;
        counted.fetch_add(is_refused.into(), Ordering::Relaxed);
        Ok(told)
    }));
    let column = |name: &str, kind| Column { name: name.to_owned(), kind };
    let columns = vec![column("k", Type::Int), column("f", Type::Float), column("g", Type::Float)];
    let format =
        Format::Delimited(Delimited { delimiter: b',', quote: None, header: false, columns });
    let item = |function, at| Item { function, argument: Some(Expression::column(at)) };
    let items = vec![item(Function::Sum, 1), item(Function::Avg, 2), item(Function::Avg, 1)];
    let keys = vec![Expression::column(0)];
    let program = Program::Aggregate(Aggregate { filter: None, keys, items });
    let checked = Plan { format, program, options: Options::default() }.check().unwrap();
    let scan = |here| {
        let scan = FileScan::start(Arc::clone(&file), &checked, ScanOptions { here }).unwrap();
        scan.finish(&mut |_| {}).unwrap()
    };
    let (told, read) = (scan(false), scan(true));
    assert_eq!(told.work.drive_bytes, lines.len() as u64);
    assert_eq!(told.merged, read.merged);
    // With its wish, without one, and then for fewer groups, with a wish.
    assert_eq!(refused.load(Ordering::Relaxed), 3);
}

/// What a drive finds that has these bytes, and zeros behind them.
fn grepped(bytes: &[u8], ranges: &[ByteRange], call: &ExtensionCall) -> Vec<ExtendedPart> {
    let mut input = Decoder::new(&call.arguments);
    let request: nasd_grep::remote::Request = XdrDecode::decode(&mut input).unwrap();
    let matcher = request.pattern.compile(Bounds::SMALL).unwrap();
    let mut search = Search::new(&matcher, &request.wanted, 256 << 10, call.most);
    for range in ranges {
        assert!(search.begin(range.offset));
        let mut piece = bytes.get(range.offset as usize..).unwrap_or_default().to_vec();
        piece.resize(range.length as usize, 0);
        assert_eq!(search.feed(&piece), Ok(nasd_grep::Next::More));
        assert_eq!(search.end(), nasd_grep::Next::More);
    }
    let (outcome, data) = match input.finish() {
        Ok(()) => (ExtensionOutcome::Done, search.finish()),
        // It takes no wishes.
        Err(_) => (ExtensionOutcome::Refused, Vec::new()),
    };
    let (pieces, position) = (ranges.to_vec(), ranges[0].end());
    vec![ExtendedPart { drive: nasd_types::DriveId(1), pieces, outcome, position, data }]
}

#[test]
fn a_search_by_drives_of_a_file_that_was_cut_fails_too() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, handle) = file(&clerk, &b"one\n".repeat(30_000));
    let (of_drive, calls) = (Arc::clone(&cell), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&calls);
    cell.set_extends(Arc::new(move |ranges, call| {
        counted.fetch_add(1, Ordering::Relaxed);
        let bytes = of_drive.drive(0).durable_bytes(handle.object).unwrap();
        Ok(grepped(&bytes, ranges, call))
    }));
    assert_eq!(grep(&file), Ok(30_000));
    assert!(calls.load(Ordering::Relaxed) > 0);
    cut(&cell, handle, 100_000);
    assert_eq!(grep(&file), Err(ClerkError::Cut.into()));
    assert_eq!(grep(&file), Ok(25_000));
}
