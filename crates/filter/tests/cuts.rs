//! However a file is cut into slices and pieces, and however small the outputs are, a scan gives what the
//! reference gives for the whole file.

#![allow(clippy::unwrap_used, reason = "compiled for tests alone")]

mod generate;
mod reference;

use generate::Random;
use nasd_filter::remote::{Answer, Next, Part, read_answer};
use nasd_filter::{
    Arrangement, Checked, Comparison, Counts, Expression, Fed, Field, FieldKind, Fixed, Format,
    Join, Merge, MergeError, Merged, Options, OrderBy, Output, Piece, Plan, Program, Report, Scan,
    ScanError, Select, Value,
};
use proptest::prelude::*;
use reference::{Outcome, V};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::ops::Range;

/// Calls until everything is taken, with outputs of `room` bytes.
fn drive(
    scan: &mut Scan,
    bytes: &[u8],
    room: usize,
    into: &mut Vec<u8>,
    mut call: impl FnMut(&mut Scan, &[u8], &mut Output<'_>) -> Result<Fed, ScanError>,
) -> Result<Fed, ScanError> {
    let mut rest = bytes;
    loop {
        let mut buffer = vec![0; room];
        let mut output = Output::new(&mut buffer);
        let fed = call(scan, rest, &mut output);
        into.extend_from_slice(output.written());
        match fed? {
            Fed::Full { consumed } => rest = &rest[consumed..],
            fed => return Ok(fed),
        }
    }
}

/// Feeds a piece in slices; what it gives out, and how it ended.
fn scan_piece(
    scan: &mut Scan,
    random: &mut Random,
    piece: Piece,
    bytes: &[u8],
) -> (Vec<u8>, Result<Report, ScanError>) {
    let mut given = Vec::new();
    let most = [1, 7, 50, 100_000][random.below(4)];
    let room = [1, 3, 40, 1000, 1 << 16][random.below(5)];
    scan.begin_piece(piece);
    let mut rest = bytes;
    while !rest.is_empty() {
        let (slice, behind) = rest.split_at(rest.len().min(1 + random.below(most)));
        rest = behind;
        match drive(scan, slice, room, &mut given, Scan::feed) {
            Err(error) => return (given, Err(error)),
            Ok(Fed::Done) => break,
            Ok(_) => {}
        }
    }
    let ended = drive(scan, &[], room, &mut given, |scan, _, output| scan.end_piece(output));
    let report = scan.report();
    assert_eq!(nasd_xdr::from_bytes(&nasd_xdr::to_bytes(&report)), Ok(report));
    assert_eq!(nasd_xdr::from_bytes(&nasd_xdr::to_bytes(&piece)), Ok(piece));
    (given, ended.map(|_| report))
}

/// Feeds a piece whose output is one buffer: as much of it as there is room for. Tells in addition how many bytes that are.
fn scan_piece_at_once(
    scan: &mut Scan,
    random: &mut Random,
    piece: Piece,
    bytes: &[u8],
) -> (Vec<u8>, Result<Report, ScanError>, usize) {
    let most = [1, 7, 50, 100_000][random.below(4)];
    let mut room = [1, 3, 40, 1000, 1 << 16][random.below(5)];
    loop {
        let mut buffer = vec![0; room];
        let mut output = Output::new(&mut buffer);
        scan.begin_piece(piece);
        let mut fed = Ok(Fed::All);
        for slice in bytes.chunks(1 + random.below(most)) {
            fed = scan.feed(slice, &mut output);
            if fed != Ok(Fed::All) {
                break;
            }
        }
        if !matches!(fed, Ok(Fed::Full { .. }) | Err(_)) {
            fed = scan.end_piece(&mut output);
        }
        let end = match fed {
            Ok(Fed::Full { .. }) => scan.end_early(&mut output),
            fed => fed.map(|_| piece.offset + bytes.len() as u64),
        };
        let given = output.written().to_vec();
        match end {
            Err(error) => return (given, Err(error), 0),
            Ok(end) if end == piece.offset && !bytes.is_empty() => {
                assert_eq!((scan.report().records, given.len()), (0, 0));
                room = 2 * room + 1;
            }
            Ok(end) => return (given, Ok(scan.report()), (end - piece.offset) as usize),
        }
    }
}

/// A piece, what was found in it, and what was given: as an answer tells it.
fn part<'a>(piece: Piece, end: u64, report: Report, given: &'a [u8]) -> Part<'a> {
    let (head, rest) = given.split_at(report.head_bytes as usize);
    // Who failed told no tail.
    let (rows, tail) = rest.split_at((report.row_bytes as usize).min(rest.len()));
    Part { piece, end, report, head, rows, tail }
}

#[derive(Debug)]
struct Cut {
    merged: Merged,
    rows: Vec<u8>,
    counts: Counts,
}

fn run_cut(plan: &Plan, file: &[u8], random: &mut Random) -> Result<Cut, MergeError> {
    let checked = plan.check().unwrap();
    let mut cuts: Vec<usize> = (0..random.below(5)).map(|_| random.below(file.len() + 1)).collect();
    cuts.sort_unstable();
    cuts.push(file.len());
    let mut drives: Vec<Scan> = (0..1 + random.below(3)).map(|_| checked.start()).collect();
    let mut join = Join::new(&checked);
    let rows = RefCell::new(Vec::new());
    let give = &mut |given: &[u8]| rows.borrow_mut().extend_from_slice(given);
    let width = drives.len();
    let told = random.one_in(2);
    let at_once = random.one_in(2);
    let mut start = 0;
    let mut cuts = cuts.into_iter().enumerate().peekable();
    while let Some(&(number, mut end)) = cuts.peek() {
        let offset = start as u64;
        let mut last = end == file.len();
        let mut bytes = &file[start..end];
        // The last piece may not know that it is; others that end there are not it.
        let mut piece = Piece { offset, starts_record: false, ends_file: last && told };
        let scan = &mut drives[number % width];
        let (given, result) = if at_once {
            let (given, result, taken) = scan_piece_at_once(scan, random, piece, bytes);
            if result.is_ok() && taken < bytes.len() {
                (bytes, end, last) = (&bytes[..taken], start + taken, false);
                piece.ends_file = false;
            }
            (given, result)
        } else {
            scan_piece(scan, random, piece, bytes)
        };
        start = end;
        cuts.next_if(|&(_, cut)| cut == end);
        // A record before the piece may have failed as well, or reached the limit.
        let more = join.head(&part(piece, end as u64, scan.report(), &given), give)?;
        if !more {
            break;
        }
        let (given, report) = match result {
            Ok(report) => (given, report),
            // What is behind the LIMIT doesn't count, so the client looks for itself.
            Err(_) if plan.limit().is_some() => {
                let less = plan.with_limit(join.left()).check().unwrap();
                let (given, result) = scan_piece(&mut less.start(), random, piece, bytes);
                (given, result?)
            }
            Err(error) => return Err(error.into()),
        };
        let part = part(piece, end as u64, report, &given);
        assert_eq!(part.tail.len() as u64, report.tail_bytes);
        let more = join.rest(&part, give)?;
        if !more || (last && told) {
            break;
        }
    }
    if plan.limit().is_none() {
        for scan in &mut drives {
            let mut partial = Vec::new();
            let room = [1, 5, 100][random.below(3)];
            drive(scan, &[], room, &mut partial, |scan, _, output| scan.finish(output)).unwrap();
            join.add(&partial)?;
        }
    }
    let (merged, counts) = join.finish(give)?;
    let rows = rows.into_inner();
    Ok(Cut { merged, rows, counts })
}

/// A request and its answer: the pieces, up to which byte they are told of, and what is told.
type Answered = (Vec<Range<u64>>, u64, Vec<u8>);

/// What is told of some of the pieces, as a drive does it; `None` if it can't tell.
fn answer(
    checked: &Checked,
    file: &[u8],
    pieces: &[Range<u64>],
    random: &mut Random,
) -> Option<Answered> {
    let most = Answer::least_bytes(checked) + [0, 1, 50, 1000][random.below(4)];
    let mut answer =
        Answer::new(checked, file.len() as u64, vec![0xee; most], random.below(1 << 30) as u64);
    let mut position = pieces.last()?.end;
    'pieces: for piece in pieces {
        if !answer.begin(piece.start) {
            position = piece.start;
            break;
        }
        let mut at = piece.start;
        // Somebody else may want to have his turn.
        let end = if random.one_in(8) { (piece.start + 1).min(piece.end) } else { piece.end };
        for slice in file[piece.start as usize..end as usize].chunks(1 + random.below(100)) {
            match answer.feed(slice).ok()? {
                Next::More => at += slice.len() as u64,
                Next::Full(cut) => {
                    position = cut;
                    break 'pieces;
                }
                Next::Done => {
                    answer.end(at).ok()?;
                    break 'pieces;
                }
                Next::Enough => panic!("so small a file gives no such result"),
            }
        }
        match answer.end(at).ok()? {
            Next::Full(cut) => {
                position = cut;
                break;
            }
            _ if at < piece.end => {
                position = at;
                break;
            }
            _ => {}
        }
    }
    let stands = position == pieces[0].start && position < pieces[0].end;
    let data = answer.finish().ok().filter(|_| !stands)?;
    Some((pieces.to_vec(), position, data))
}

/// The result of a plan whose file lies on several drives in turn, each of which is asked until it has told of all it has.
fn run_answers(plan: &Plan, file: &[u8], random: &mut Random) -> Result<Cut, MergeError> {
    let checked = plan.check().unwrap();
    let (unit, width) = (1 + random.below(file.len() + 1), 1 + random.below(3));
    let file_bytes = file.len() as u64;
    let mut answers: Vec<Answered> = Vec::new();
    for drive in 0..width {
        let units = (0..file.len().div_ceil(unit)).filter(|number| number % width == drive);
        let bytes = units.map(|number| (number * unit) as u64..((number + 1) * unit) as u64);
        let mut pieces: Vec<Range<u64>> =
            bytes.map(|piece| piece.start..piece.end.min(file_bytes)).collect();
        while !pieces.is_empty() {
            let Some(answered) = answer(&checked, file, &pieces, random) else {
                // The client looks for itself.
                return run_cut(plan, file, random);
            };
            let position = answered.1;
            answers.push(answered);
            pieces.retain(|piece| piece.end > position);
            if let Some(first) = pieces.first_mut() {
                first.start = first.start.max(position);
            }
        }
    }
    let (mut parts, mut results) = (Vec::new(), Vec::new());
    for (pieces, position, data) in &answers {
        let read = read_answer(pieces.iter().cloned(), *position, file_bytes, data);
        let (told, result) = read.unwrap();
        parts.extend(told);
        results.push(result);
        let cut = random.below(data.len() + 1);
        let read = read_answer(pieces.iter().cloned(), *position, file_bytes, &data[..cut]);
        assert!(read.is_err() || !result.is_empty() || cut == data.len());
    }
    parts.sort_by_key(|part| part.piece.offset);
    let mut join = Join::new(&checked);
    let rows = RefCell::new(Vec::new());
    let give = &mut |given: &[u8]| rows.borrow_mut().extend_from_slice(given);
    for part in &parts {
        if !join.head(part, give)? || !join.rest(part, give)? {
            break;
        }
    }
    if plan.limit().is_none() {
        results.into_iter().try_for_each(|result| join.add(result))?;
    }
    let (merged, counts) = join.finish(give)?;
    let rows = rows.into_inner();
    Ok(Cut { merged, rows, counts })
}

/// NaN is itself here.
fn same<T: std::fmt::Debug, U: std::fmt::Debug>(left: T, right: U) -> Result<(), TestCaseError> {
    let (left, right) = (format!("{left:?}"), format!("{right:?}"));
    prop_assert_eq!(left, right);
    Ok(())
}

fn as_value(value: &V) -> Value {
    match value {
        V::Null => Value::Null,
        V::Bool(value) => Value::Bool(*value),
        V::Int(value) => Value::Int(*value),
        V::Float(value) => Value::Float(*value),
        V::Text(value) => Value::Text(value.clone()),
    }
}

/// Rows of groups in an order, and the first of them: places, and whether the greatest come first.
fn arranged(rows: &[Vec<Value>], by: &[(usize, bool)], limit: usize) -> Vec<Vec<Value>> {
    let mut left: Vec<&Vec<Value>> = rows.iter().collect();
    let mut found = Vec::new();
    while found.len() < limit && !left.is_empty() {
        let mut first = 0;
        for at in 1..left.len() {
            let mut places = by.iter();
            let decides = places.find_map(|&(place, descending)| {
                is_before(&left[at][place], &left[first][place], descending)
            });
            if decides == Some(true) {
                first = at;
            }
        }
        found.push(left.remove(first).clone());
    }
    found
}

/// Whether one value of a result comes before another of its type; `None` if both are the same. NULL comes last.
fn is_before(left: &Value, right: &Value, descending: bool) -> Option<bool> {
    let order = match (left, right) {
        (Value::Null, Value::Null) => return None,
        (Value::Null, _) => return Some(false),
        (_, Value::Null) => return Some(true),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Int(left), Value::Int(right)) => left.cmp(right),
        (Value::HugeInt(left), Value::HugeInt(right)) => left.cmp(right),
        (Value::Float(left), Value::Float(right)) => reference::order_floats(*left, *right),
        (Value::Text(left), Value::Text(right)) => left.cmp(right),
        other => panic!("{other:?} are of two types"),
    };
    let before = if descending { Ordering::Greater } else { Ordering::Less };
    (order != Ordering::Equal).then_some(order == before)
}

/// Compares what a cut file gives with the reference. A large one may be beyond a bound.
fn check(plan: &Plan, file: &[u8], random: &mut Random, large: bool) -> Result<(), TestCaseError> {
    let expected = reference::run(plan, file);
    let found = match random.one_in(3) {
        true => run_answers(plan, file, random),
        false => run_cut(plan, file, random),
    };
    match (expected, found) {
        (_, Err(MergeError::Limit(_) | MergeError::Scan(ScanError::Limit(_)))) if large => {}
        (Outcome::Fault { offset, fault }, found) => {
            let error = MergeError::Scan(ScanError::Record { offset, fault });
            prop_assert_eq!(found.map(|cut| cut.rows).unwrap_err(), error);
        }
        (Outcome::Select { rows, counts }, Ok(cut)) => {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let expected = rows.concat();
            prop_assert_eq!(&cut.rows, &expected, "{:?} {:?}", text(&cut.rows), text(&expected));
            if plan.limit().is_none() {
                same(cut.counts, counts)?;
            }
        }
        (Outcome::Aggregate { rows, counts }, Ok(mut cut)) => {
            same(&cut.merged, Merged::Aggregate(rows.clone()))?;
            let width = rows.first().map_or(0, Vec::len);
            let by = 0..random.below(width + 1).min(3);
            let by = by.map(|_| (random.below(width), random.one_in(2)));
            let by: Vec<(usize, bool)> = by.collect();
            let limit = random.below(2 * rows.len() + 1);
            let orders = by.iter().map(|&(place, descending)| OrderBy { place, descending });
            let arrangement = Arrangement { by: orders.collect(), limit: Some(limit as u64) };
            arrangement.arrange(&mut cut.merged);
            same(cut.merged, Merged::Aggregate(arranged(&rows, &by, limit)))?;
            same(cut.counts, counts)?;
        }
        (Outcome::Top { rows, counts }, Ok(cut)) => {
            let Merged::Top(found) = cut.merged else {
                return Err(TestCaseError::fail("no top"));
            };
            let found = found.iter().map(|top| (&top.key, top.offset, &top.row));
            let keys: Vec<Value> = rows.iter().map(|(key, ..)| as_value(key)).collect();
            let rows = rows.iter().zip(&keys).map(|((_, offset, row), key)| (key, *offset, row));
            same(found.collect::<Vec<_>>(), rows.collect::<Vec<_>>())?;
            same(cut.counts, counts)?;
        }
        (expected, Err(error)) => {
            return Err(TestCaseError::fail(format!("{error:?} instead of {expected:?}")));
        }
    }
    Ok(())
}

fn cases() -> u32 {
    std::env::var("NASD_FILTER_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(4000)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn cuts_do_not_matter(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let format = generate::format(&mut random);
        let file = generate::file(&mut random, &format);
        let plan = generate::plan(&mut random, format);
        for _ in 0..3 {
            check(&plan, &file, &mut random, false)
                .map_err(|error| TestCaseError::fail(format!(
                    "{error}\n{plan:?}\n{:?}", String::from_utf8_lossy(&file)
                )))?;
        }
    }

    /// Batches that are full, and records that are longer than one takes.
    #[test]
    fn nor_does_size(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        // Hundreds of these are enough.
        if !random.one_in(20) {
            return Ok(());
        }
        let format = generate::format(&mut random);
        let plan = generate::plan(&mut random, format);
        let mut file = Vec::new();
        for _ in 0..200 {
            file.extend(generate::file(&mut random, &plan.format));
        }
        if random.one_in(2) && !file.is_empty() {
            let at = random.below(file.len());
            file.splice(at..at, vec![b'a'; 100_000]);
        }
        check(&plan, &file, &mut random, true)
            .map_err(|error| TestCaseError::fail(format!("{error} seed {seed}\n{plan:?}")))?;
    }

    #[test]
    fn plans_are_read_back(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let format = generate::format(&mut random);
        let plan = generate::plan(&mut random, format);
        let bytes = nasd_xdr::to_bytes(&plan);
        let back: Plan = nasd_xdr::from_bytes(&bytes).unwrap();
        prop_assert_eq!(nasd_xdr::to_bytes(&back), bytes.clone());
        same(&back, &plan)?;
        // Cut off or changed anywhere, they are refused or still something that can be checked.
        let cut = random.below(bytes.len());
        prop_assert!(nasd_xdr::from_bytes::<Plan>(&bytes[..cut]).is_err());
        let mut changed = bytes;
        changed[cut] = changed[cut].wrapping_add(1 + random.below(255) as u8);
        if let Ok(plan) = nasd_xdr::from_bytes::<Plan>(&changed) {
            let _ = plan.check();
        }
    }

    #[test]
    fn partial_results_of_others_do_no_harm(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let format = generate::format(&mut random);
        let file = generate::file(&mut random, &format);
        let plan = generate::plan(&mut random, format);
        let checked = plan.check().unwrap();
        let mut scan = checked.start();
        let piece = Piece { offset: 0, starts_record: true, ends_file: true };
        if scan_piece(&mut scan, &mut random, piece, &file).1.is_err() {
            return Ok(());
        }
        let mut partial = Vec::new();
        drive(&mut scan, &[], 4096, &mut partial, |scan, _, output| scan.finish(output)).unwrap();
        if partial.is_empty() {
            return Ok(());
        }
        let mut merge = Merge::new(&checked);
        let cut = random.below(partial.len());
        prop_assert!(merge.add(&partial[..cut]).is_err());
        partial[cut] = partial[cut].wrapping_add(1 + random.below(255) as u8);
        let mut merge = Merge::new(&checked);
        if merge.add(&partial).is_ok() {
            merge.finish();
        }
    }

    #[test]
    fn fixed_records_of_each_length_are_given_as_they_stand(seed in any::<u64>(), size in 1usize..140) {
        let mut random = Random::new(seed);
        let number = FieldKind::Integer { bytes: 1, signed: false, big_endian: false };
        let mut fields = vec![Field { name: "a".to_owned(), kind: number }];
        if size > 1 {
            let kind = FieldKind::Text { bytes: size as u32 - 1 };
            fields.push(Field { name: "b".to_owned(), kind });
        }
        let below = random.below(257);
        let (column, constant) = (Expression::column(0), Expression::int(below as i64));
        let filter = Some(Expression::compare(Comparison::Less, column, constant));
        let program = Program::Select(Select { filter, projection: None, limit: None });
        let format = Format::Fixed(Fixed { fields });
        let checked = Plan { format, program, options: Options::default() }.check().unwrap();
        let file: Vec<u8> = (0..random.below(3000) * size).map(|_| random.below(256) as u8).collect();
        let piece = Piece { offset: 0, starts_record: true, ends_file: true };
        let (given, result) = scan_piece(&mut checked.start(), &mut random, piece, &file);
        result.unwrap();
        let wanted = file.chunks(size).filter(|record| usize::from(record[0]) < below);
        prop_assert_eq!(given, wanted.flatten().copied().collect::<Vec<u8>>());
    }
}
