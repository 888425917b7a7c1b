//! However a file is cut into slices and pieces, and however small the outputs are, a scan gives what the
//! reference gives for the whole file.

#![allow(clippy::unwrap_used, reason = "compiled for tests alone")]

mod generate;
mod reference;

use generate::Random;
use nasd_filter::{
    Checked, Fed, Merge, MergeError, Merged, Output, Piece, Plan, Program, Report, Scan, ScanError,
    Seams, Value, first_rows,
};
use proptest::prelude::*;
use reference::{Counts, Outcome, V};

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

/// The result of a plan whose file is cut into pieces that several drives have in turn.
struct Client<'a> {
    checked: &'a Checked,
    seams: Seams,
    rows: Vec<u8>,
    left: u64,
    counts: Counts,
}

impl Client<'_> {
    /// Joins the head of what a scan gave of a piece. Tells whether more is needed.
    fn head(&mut self, piece: Piece, given: &[u8], report: &Report) -> Result<bool, MergeError> {
        let head = &given[..report.head_bytes as usize];
        let before = self.seams.counts().1;
        let (joined, fed) = self.seams.head(piece, report, head)?;
        self.rows.extend(joined);
        self.left = self.left.saturating_sub(self.seams.counts().1 - before);
        Ok(fed != Fed::Done && self.left > 0)
    }

    /// Takes the piece's own rows and its tail. Tells whether more is needed.
    fn rest(
        &mut self,
        piece: Piece,
        end: u64,
        given: &[u8],
        report: &Report,
    ) -> Result<bool, MergeError> {
        let rest = &given[report.head_bytes as usize..];
        let (rows, tail) = rest.split_at(report.row_bytes as usize);
        assert_eq!(tail.len() as u64, report.tail_bytes);
        self.rows.extend(first_rows(self.checked, rows, self.left));
        self.left = self.left.saturating_sub(report.selected);
        self.counts.records += report.records;
        self.counts.selected += report.selected;
        self.counts.bad += report.bad;
        self.seams.tail(piece, end, report, tail)?;
        Ok(self.left > 0)
    }
}

fn limit(plan: &Plan) -> Option<u64> {
    match &plan.program {
        Program::Select(select) => select.limit,
        _ => None,
    }
}

/// The plan with another LIMIT.
fn with_limit(plan: &Plan, limit: u64) -> Plan {
    let mut plan = plan.clone();
    if let Program::Select(select) = &mut plan.program {
        select.limit = Some(limit);
    }
    plan
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
    let left = limit(plan).unwrap_or(u64::MAX);
    let seams = Seams::new(&checked);
    let counts = Counts::default();
    let mut client = Client { checked: &checked, seams, rows: Vec::new(), left, counts };
    let width = drives.len();
    let told = random.one_in(2);
    let (mut start, mut more) = (0, left > 0);
    for (number, end) in cuts.into_iter().enumerate() {
        let (offset, last) = (start as u64, end == file.len());
        let bytes = &file[start..end];
        start = end;
        // The last piece may not know that it is; others that end there are not it.
        let piece = Piece { offset, starts_record: false, ends_file: last && told };
        let scan = &mut drives[number % width];
        let (given, result) = scan_piece(scan, random, piece, bytes);
        // A record before the piece may have failed as well, or reached the limit.
        more = client.head(piece, &given, &scan.report())?;
        if !more {
            break;
        }
        let (given, report) = match result {
            Ok(report) => (given, report),
            // What is behind the LIMIT doesn't count, so the client looks for itself.
            Err(_) if limit(plan).is_some() => {
                let less = with_limit(plan, client.left).check().unwrap();
                let (given, result) = scan_piece(&mut less.start(), random, piece, bytes);
                (given, result?)
            }
            Err(error) => return Err(error.into()),
        };
        more = client.rest(piece, end as u64, &given, &report)?;
        if !more || (last && told) {
            break;
        }
    }
    if more && !told {
        let before = client.seams.counts().1;
        let rows = client.seams.end()?;
        assert!(client.seams.counts().1 - before <= 1);
        client.rows.extend(rows);
    }
    let mut merge = Merge::new(&checked);
    if limit(plan).is_none() {
        merge.add(&client.seams.finish()?)?;
        for scan in &mut drives {
            let mut partial = Vec::new();
            let room = [1, 5, 100][random.below(3)];
            drive(scan, &[], room, &mut partial, |scan, _, output| scan.finish(output)).unwrap();
            merge.add(&partial)?;
        }
    }
    let (records, selected, bad) = client.seams.counts();
    let mut counts = client.counts;
    counts.records += records;
    counts.selected += selected;
    counts.bad += bad;
    Ok(Cut { merged: merge.finish(), rows: client.rows, counts })
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

/// Compares what a cut file gives with the reference. A large one may be beyond a bound.
fn check(plan: &Plan, file: &[u8], random: &mut Random, large: bool) -> Result<(), TestCaseError> {
    let expected = reference::run(plan, file);
    let found = run_cut(plan, file, random);
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
            if limit(plan).is_none() {
                same(cut.counts, counts)?;
            }
        }
        (Outcome::Aggregate { rows, counts }, Ok(cut)) => {
            same(cut.merged, Merged::Aggregate(rows))?;
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
}
