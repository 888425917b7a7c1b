//! What is written down about edges: one test each.

#![allow(clippy::unwrap_used, reason = "compiled for tests alone")]

mod reference;

use nasd_filter::{
    Aggregate, Arithmetic, Checked, Column, Comparison, Delimited, Expression, Fault, Fed, Field,
    FieldKind, Fixed, Format, Function, Item, JsonLines, Limit, Literal, Merge, MergeError, Merged,
    Options, Output, ParameterError, Piece, Plan, Program, Report, Scan, ScanError, Seams, Select,
    Top, Type, Value, first_rows,
};
use reference::Outcome;

fn columns(kinds: &[Type]) -> Vec<Column> {
    let name = |index: usize| char::from(b'a' + index as u8).to_string();
    kinds
        .iter()
        .enumerate()
        .map(|(index, kind)| Column { name: name(index), kind: *kind })
        .collect()
}

fn csv(header: bool, kinds: &[Type]) -> Format {
    let columns = columns(kinds);
    Format::Delimited(Delimited { delimiter: b',', quote: Some(b'"'), header, columns })
}

fn select(filter: Option<Expression>, projection: Option<Vec<Expression>>) -> Program {
    Program::Select(Select { filter, projection, limit: None })
}

fn plan(format: Format, program: Program) -> Plan {
    Plan { format, program, options: Options::default() }
}

fn all_columns(count: u16) -> Option<Vec<Expression>> {
    Some((0..count).map(Expression::column).collect())
}

const WHOLE: Piece = Piece { offset: 0, starts_record: true, ends_file: true };

/// Runs one piece with a large output.
fn run_piece(scan: &mut Scan, piece: Piece, bytes: &[u8]) -> Result<(Vec<u8>, Report), ScanError> {
    let mut buffer = vec![0; 1 << 20];
    let mut output = Output::new(&mut buffer);
    scan.begin_piece(piece);
    let fed = scan.feed(bytes, &mut output)?;
    assert!(!matches!(fed, Fed::Full { .. }));
    scan.end_piece(&mut output)?;
    Ok((output.written().to_vec(), scan.report()))
}

fn run(plan: &Plan, file: &[u8]) -> Result<(String, Report), ScanError> {
    let (rows, report) = run_piece(&mut plan.check().unwrap().start(), WHOLE, file)?;
    Ok((String::from_utf8(rows).unwrap(), report))
}

fn partial(scan: &mut Scan) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 20];
    let mut output = Output::new(&mut buffer);
    assert_eq!(scan.finish(&mut output), Ok(Fed::All));
    output.written().to_vec()
}

/// The only row of an Aggregate without keys.
fn aggregate(format: Format, items: Vec<Item>, file: &[u8]) -> Vec<Value> {
    let keys = Vec::new();
    let plan = plan(format, Program::Aggregate(Aggregate { filter: None, keys, items }));
    let checked = plan.check().unwrap();
    let mut scan = checked.start();
    run_piece(&mut scan, WHOLE, file).unwrap();
    let mut merge = Merge::new(&checked);
    merge.add(&partial(&mut scan)).unwrap();
    match merge.finish() {
        Merged::Aggregate(mut rows) => rows.remove(0),
        other => panic!("{other:?}"),
    }
}

fn item(function: Function) -> Item {
    Item { function, argument: Some(Expression::column(0)) }
}

#[test]
fn lines_end_as_written() {
    let projected = plan(csv(false, &[Type::Int, Type::Text]), select(None, all_columns(2)));
    let whole = plan(csv(false, &[Type::Int, Type::Text]), select(None, None));
    let file = b"1,a\r\n2,b\n\r\n\n3,c";
    assert_eq!(run(&projected, file).unwrap().0, "1,a\n2,b\n3,c\n");
    let (rows, report) = run(&whole, file).unwrap();
    assert_eq!(rows, "1,a\r\n2,b\n3,c\n");
    assert_eq!((report.records, report.selected, report.bad), (3, 3, 0));
    // A CR without LF is a byte like others.
    assert_eq!(run(&projected, b"1,a\r").unwrap().0, "1,\"a\r\"\n");
    assert_eq!(run(&projected, b"").unwrap(), (String::new(), Report::default()));
}

#[test]
fn headers_are_no_records() {
    let plan = plan(csv(true, &[Type::Int, Type::Text]), select(None, None));
    for (file, rows) in
        [("", ""), ("a,b", ""), ("a,b\n", ""), ("a,b\r\n1,x", "1,x\n"), ("\n1,x\n", "1,x\n")]
    {
        let (found, report) = run(&plan, file.as_bytes()).unwrap();
        assert_eq!((found.as_str(), report.bad), (rows, 0), "{file:?}");
    }
}

#[test]
fn quotes_and_columns() {
    let plan = plan(csv(false, &[Type::Text, Type::Int]), select(None, all_columns(2)));
    for (line, row) in [
        ("\"a,b\",1", Some("\"a,b\",1")),
        ("\"a\"\"b\",\"1\"", Some("\"a\"\"b\",1")),
        ("a\"b,1", Some("\"a\"\"b\",1")),
        ("\"\",\"\"", Some(",")),
        (",", Some(",")),
        ("a", Some("a,")),
        ("\"a\"", Some("a,")),
        ("a,1,", None),
        ("\"a\",1,\"\"", None),
        ("\"a\"x,1", None),
        ("\"a,1", None),
        ("a,\"1", None),
        ("a,x", None),
        ("a,9223372036854775808", None),
        ("a, +7 ", Some("a,7")),
    ] {
        let (rows, report) = run(&plan, line.as_bytes()).unwrap();
        let expected = row.map(|row| format!("{row}\n")).unwrap_or_default();
        assert_eq!((rows, report.bad), (expected, u64::from(row.is_none())), "{line:?}");
    }
    // A quoted field holds no line end: two bad lines.
    assert_eq!(run(&plan, b"\"a\nb\",1\n").unwrap().1.bad, 1);
}

#[test]
fn json_lines() {
    let format =
        Format::JsonLines(JsonLines { columns: columns(&[Type::Int, Type::Float, Type::Text]) });
    let plan = plan(format, select(None, all_columns(3)));
    for (line, row) in [
        (r#"{"a":1,"b":2,"c":"x"}"#, Some("1,2.0,x")),
        (r#" { "c" : "" , "x" : [ { } , [ ] , "]}" ] } "#, Some(",,\"\"")),
        (r#"{"\u0061":5,"c":null}"#, Some("5,,")),
        (r#"{"c":"\u00e9\ud83d\ude00,"}"#, Some(",,\"\u{e9}\u{1f600},\"")),
        ("{}", Some(",,")),
        (r#"{"a":1.0}"#, None),
        (r#"{"a":"1"}"#, None),
        (r#"{"c":1}"#, None),
        (r#"{"b":true}"#, None),
        (r#"{"a":1,"a":1}"#, None),
        (r#"{"a":01}"#, None),
        (r#"{"a":1,}"#, None),
        (r#"{"a":1} x"#, None),
        (r#"{"c":"\ud83d"}"#, None),
        (r#"{"c":"\ude00"}"#, None),
        (r#"{"c":"\x"}"#, None),
        ("{\"c\":\"\u{1}\"}", None),
        (r#"{"x":nul}"#, None),
        ("[1]", None),
        ("1", None),
        (r#"{"a":1"#, None),
    ] {
        let (rows, report) = run(&plan, line.as_bytes()).unwrap();
        let expected = row.map(|row| format!("{row}\n")).unwrap_or_default();
        assert_eq!((rows, report.bad), (expected, u64::from(row.is_none())), "{line:?}");
    }
    assert_eq!(run(&plan, b" \r\n\n\t \n").unwrap().1.records, 0);
    let deep = |levels: usize| format!("{{\"x\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
    assert_eq!(run(&plan, deep(63).as_bytes()).unwrap().1.bad, 0);
    assert_eq!(run(&plan, deep(64).as_bytes()).unwrap().1.bad, 1);
}

fn json_with_booleans() -> Format {
    Format::JsonLines(JsonLines { columns: columns(&[Type::Bool, Type::Int]) })
}

#[test]
fn booleans_of_json_are_words() {
    let all = plan(json_with_booleans(), select(None, all_columns(2)));
    for (line, row) in [
        (r#"{"a":true,"b":1}"#, Some("true,1")),
        (r#"{"b":1, "a" : false }"#, Some("false,1")),
        (r#"{"a":null,"b":1}"#, Some(",1")),
        ("{}", Some(",")),
        (r#"{"a":1}"#, None),
        (r#"{"a":0}"#, None),
        (r#"{"a":"true"}"#, None),
        (r#"{"a":""}"#, None),
        (r#"{"a":[true]}"#, None),
        (r#"{"a":{}}"#, None),
        (r#"{"a":True}"#, None),
        (r#"{"a":truetrue}"#, None),
        (r#"{"a":true,"a":true}"#, None),
        (r#"{"b":false}"#, None),
    ] {
        let (rows, report) = run(&all, line.as_bytes()).unwrap();
        let expected = row.map(|row| format!("{row}\n")).unwrap_or_default();
        assert_eq!((rows, report.bad), (expected, u64::from(row.is_none())), "{line:?}");
    }
}

#[test]
fn booleans_of_json_are_values() {
    let (a, b) = (|| Expression::column(0), || Expression::column(1));
    let file = b"{\"a\":true,\"b\":1}\n{\"a\":false,\"b\":2}\n{\"b\":3}\n{\"a\":7,\"b\":4}\n";
    let no = || Expression::Literal(Literal::Bool(false));
    let not_there = Expression::IsNull { value: Box::new(a()), negated: false };
    for (filter, rows) in [
        (a(), "1\n"),
        (Expression::not(a()), "2\n"),
        (Expression::compare(Comparison::Equal, a(), no()), "2\n"),
        (Expression::compare(Comparison::Greater, a(), no()), "1\n"),
        (not_there, "3\n"),
    ] {
        let found = run(&plan(json_with_booleans(), select(Some(filter), Some(vec![b()]))), file);
        let (found, report) = found.unwrap();
        assert_eq!((found.as_str(), report.records, report.bad), (rows, 4, 1));
    }
    let items = [Function::Count, Function::Min, Function::Max].map(item).to_vec();
    let expected = [Value::Int(2), Value::Bool(false), Value::Bool(true)];
    assert_eq!(aggregate(json_with_booleans(), items, file), expected);
    // Delimited text has none, and they are not added up.
    let delimited = plan(csv(false, &[Type::Int, Type::Bool]), select(None, None));
    let error = delimited.check().map(|_| ()).unwrap_err();
    assert_eq!(error, ParameterError::ColumnKind { index: 1 });
    let items = vec![item(Function::Sum)];
    let sum = Program::Aggregate(Aggregate { filter: None, keys: vec![], items });
    let error = plan(json_with_booleans(), sum).check().map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "sum does not take boolean");
}

/// Types have the numbers that they always had: plans of older programs are read.
#[test]
fn plans_of_json_lines_are_these_bytes() {
    for (kind, number) in [(Type::Bool, 0), (Type::Int, 1), (Type::Float, 2), (Type::Text, 3)] {
        let format = Format::JsonLines(JsonLines { columns: columns(&[kind]) });
        let bytes = nasd_xdr::to_bytes(&plan(format, select(None, None)));
        // The format, how many columns there are, the name with its length and padding, and the type.
        let format = [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, b'a', 0, 0, 0, 0, 0, 0, number];
        assert_eq!(bytes[..format.len()], format);
        assert!(nasd_xdr::from_bytes::<Plan>(&bytes).is_ok());
    }
}

#[test]
fn integers_overflow_at_their_limits() {
    let format = || csv(false, &[Type::Int, Type::Int]);
    let (a, b) = (|| Expression::column(0), || Expression::column(1));
    let (least, most) = (i64::MIN, i64::MAX);
    for (operator, left, right, expected) in [
        (Arithmetic::Add, most, 0, Some(most)),
        (Arithmetic::Add, most, 1, None),
        (Arithmetic::Subtract, least, 1, None),
        (Arithmetic::Multiply, least, -1, None),
        (Arithmetic::Multiply, 1 << 32, 1 << 31, None),
        (Arithmetic::Multiply, 1 << 32, -(1_i64 << 31), Some(least)),
        (Arithmetic::IntegerDivide, least, -1, None),
        (Arithmetic::IntegerDivide, -7, 2, Some(-3)),
        (Arithmetic::Remainder, least, -1, Some(0)),
        (Arithmetic::Remainder, -7, 3, Some(-1)),
    ] {
        let projection = Some(vec![Expression::arithmetic(operator, a(), b())]);
        let plan = plan(format(), select(None, projection));
        let found = run(&plan, format!("1,1\n{left},{right}\n").as_bytes());
        match expected {
            Some(value) => {
                assert!(found.unwrap().0.ends_with(&format!("\n{value}\n")), "{operator:?}")
            }
            None => {
                let fault = Fault::Overflow;
                assert_eq!(found, Err(ScanError::Record { offset: 4, fault }), "{operator:?}");
            }
        }
    }
    // By zero, everything is NULL; AND keeps the right side from what the left excludes.
    let divisions = [Arithmetic::Divide, Arithmetic::IntegerDivide, Arithmetic::Remainder];
    let projection = divisions.map(|operator| Expression::arithmetic(operator, a(), b())).to_vec();
    let by_zero = plan(format(), select(None, Some(projection)));
    assert_eq!(run(&by_zero, b"1,0\n").unwrap().0, ",,\n");
    let small = Expression::compare(Comparison::Less, a(), Expression::int(10));
    let double = Expression::arithmetic(Arithmetic::Add, a(), a());
    let guarded = Expression::and(small, Expression::compare(Comparison::Greater, double, b()));
    let guarded = plan(format(), select(Some(guarded), None));
    assert_eq!(run(&guarded, b"9223372036854775807,1\n2,1\n").unwrap().0, "2,1\n");
}

#[test]
fn faults_count_up_to_the_limit_only() {
    let double =
        Expression::arithmetic(Arithmetic::Add, Expression::column(0), Expression::column(0));
    let program = |limit| {
        let (filter, projection) = (None, Some(vec![double.clone()]));
        Program::Select(Select { filter, projection, limit })
    };
    let file = b"1\n2\n9223372036854775807\n";
    let format = || csv(false, &[Type::Int]);
    let (rows, report) = run(&plan(format(), program(Some(2))), file).unwrap();
    assert_eq!((rows.as_str(), report.done, report.records), ("2\n4\n", true, 2));
    let fault = Fault::Overflow;
    let failed = Err(ScanError::Record { offset: 4, fault });
    assert_eq!(run(&plan(format(), program(Some(3))), file), failed);
    // A scan that has failed goes on failing.
    let mut scan = plan(format(), program(None)).check().unwrap().start();
    assert!(run_piece(&mut scan, WHOLE, file).is_err());
    scan.begin_piece(WHOLE);
    let mut buffer = [0; 9];
    assert_eq!(scan.feed(b"1\n", &mut Output::new(&mut buffer)).map(|_| ()), failed.map(|_| ()));
}

#[test]
fn strict_plans_tell_the_first_bad_record() {
    let mut plan = plan(csv(false, &[Type::Int]), select(None, all_columns(1)));
    plan.options.strict = true;
    let fault = Fault::BadRecord;
    assert_eq!(run(&plan, b"1\nx\ny\n"), Err(ScanError::Record { offset: 2, fault }));
    plan.options.longest_record = 4;
    assert_eq!(run(&plan, b"1\n  123\n"), Err(ScanError::Record { offset: 2, fault }));
}

/// NULL, false, true.
fn truth() -> [Expression; 3] {
    [Literal::Null, Literal::Bool(false), Literal::Bool(true)].map(Expression::Literal)
}

#[test]
fn three_values() {
    let names = ["", "false", "true"];
    let table = |make: fn(Expression, Expression) -> Expression| {
        let pairs = truth().into_iter().flat_map(|left| truth().map(|right| (left.clone(), right)));
        let projection = pairs.map(|(left, right)| make(left, right)).collect();
        let plan = plan(csv(false, &[Type::Int, Type::Int]), select(None, Some(projection)));
        let row = run(&plan, b"1,1\n").unwrap().0;
        row.trim_end_matches('\n').split(',').map(str::to_owned).collect::<Vec<_>>()
    };
    let (null, no, yes) = (names[0], names[1], names[2]);
    assert_eq!(table(Expression::and), [null, no, null, no, no, no, null, no, yes]);
    assert_eq!(table(Expression::or), [null, null, yes, null, no, yes, yes, yes, yes]);
    let not = |left, _| Expression::not(left);
    assert_eq!(table(not), [null, null, null, yes, yes, yes, no, no, no]);
    let equal = |left, right| Expression::compare(Comparison::Equal, left, right);
    assert_eq!(table(equal), [null, null, null, null, yes, no, null, no, yes]);
}

#[test]
fn not_a_number_is_the_greatest() {
    let format = || csv(false, &[Type::Float]);
    let file = b"nan\n1\ninf\n\n-inf\nNaN\n";
    let nan = || Expression::float(f64::NAN);
    for (comparison, rows) in [
        (Comparison::Equal, "nan\nNaN\n"),
        (Comparison::Less, "1\ninf\n-inf\n"),
        (Comparison::GreaterEqual, "nan\nNaN\n"),
        (Comparison::Greater, ""),
    ] {
        let filter = Expression::compare(comparison, Expression::column(0), nan());
        assert_eq!(run(&plan(format(), select(Some(filter), None)), file).unwrap().0, rows);
    }
    let row = aggregate(
        format(),
        vec![item(Function::Min), item(Function::Max), item(Function::Count)],
        file,
    );
    assert_eq!(format!("{row:?}"), "[Float(-inf), Float(NaN), Int(5)]");
}

#[test]
fn aggregates_of_nothing_and_of_much() {
    let items = || Function::ALL.iter().map(|function| item(*function)).collect::<Vec<_>>();
    let nothing = aggregate(csv(false, &[Type::Int]), items(), b"");
    let null = Value::Null;
    assert_eq!(nothing, [Value::Int(0), null.clone(), null.clone(), null.clone(), null]);
    let most = i64::MAX;
    let much =
        aggregate(csv(false, &[Type::Int]), items(), format!("{most}\n{most}\n\n").as_bytes());
    let sum = Value::HugeInt(2 * i128::from(most));
    let average = Value::Float(most as f64);
    assert_eq!(much, [Value::Int(2), sum, Value::Int(most), Value::Int(most), average]);
    let exact = aggregate(csv(false, &[Type::Float]), items(), b"1e100\n1\n-1e100\n");
    assert_eq!(exact[1], Value::Float(1.0));
}

fn grouped(groups: u32, state_bytes: u32) -> Checked {
    let keys = vec![Expression::column(0)];
    let program = Program::Aggregate(Aggregate { filter: None, keys, items: vec![] });
    let mut plan = plan(csv(false, &[Type::Text]), program);
    plan.options = Options { groups, state_bytes, ..plan.options };
    plan.check().unwrap()
}

#[test]
fn groups_are_bounded() {
    let limit = |limit| Err(ScanError::Limit(limit));
    let run = |checked: &Checked, file: &[u8]| {
        run_piece(&mut checked.start(), WHOLE, file).map(|(_, report)| report.selected)
    };
    assert_eq!(run(&grouped(2, 1024), b"a\nb\na\n"), Ok(3));
    assert_eq!(run(&grouped(2, 1024), b"a\nb\nc\n"), limit(Limit::Groups));
    assert_eq!(run(&grouped(9, 32), b"a\nb\nc\n"), limit(Limit::StateBytes));
    let long = "x".repeat(1 << 17);
    assert_eq!(run(&grouped(9, 1 << 20), long.as_bytes()), limit(Limit::KeyBytes));
    // So are those of a merge.
    let checked = grouped(2, 1024);
    let mut merge = Merge::new(&checked);
    for (file, result) in [("a\nb\n", Ok(())), ("c\n", Err(MergeError::Limit(Limit::Groups)))] {
        let mut scan = checked.start();
        run_piece(&mut scan, WHOLE, file.as_bytes()).unwrap();
        assert_eq!(merge.add(&partial(&mut scan)), result);
    }
}

#[test]
fn long_records_are_bad_wherever_they_are_cut() {
    let mut plan = plan(csv(false, &[Type::Text, Type::Int]), select(None, None));
    plan.options.longest_record = 8;
    let (rows, report) = run(&plan, b"abcde,1\nabcdef,1\nab,1\n").unwrap();
    assert_eq!((rows.as_str(), report.bad), ("abcde,1\nab,1\n", 1));
    let mut scan = plan.check().unwrap().start();
    let piece = Piece { offset: 100, starts_record: false, ends_file: false };
    let (given, report) = run_piece(&mut scan, piece, b"0123456789\nab,1\nabcdef").unwrap();
    assert_eq!(given, b"01234567ab,1\nabcdef");
    assert_eq!((report.head_bytes, report.head_overlong, report.all_head), (8, true, false));
    assert_eq!((report.row_bytes, report.tail_bytes, report.tail_offset), (5, 6, 116));
    let piece = Piece { offset: 200, ..piece };
    let (_, report) = run_piece(&mut scan, piece, b"\n0123456789").unwrap();
    assert_eq!((report.head_bytes, report.tail_bytes, report.tail_overlong), (1, 0, true));
    assert_eq!((report.tail_offset, report.records), (201, 0));
    let piece = Piece { offset: 300, ..piece };
    let (given, report) = run_piece(&mut scan, piece, b"0123").unwrap();
    assert_eq!((given.as_slice(), report.all_head), (&b"0123"[..], true));
}

#[test]
fn pieces_of_fixed_records_follow_from_offsets() {
    let kind = FieldKind::Integer { bytes: 4, signed: true, big_endian: false };
    let format = Format::Fixed(Fixed { fields: vec![Field { name: "a".to_owned(), kind }] });
    let mut scan = plan(format, select(None, None)).check().unwrap().start();
    let piece = Piece { offset: 6, starts_record: true, ends_file: false };
    let (given, report) = run_piece(&mut scan, piece, b"hhrrrrt").unwrap();
    assert_eq!(given, b"hhrrrrt");
    assert_eq!((report.head_bytes, report.row_bytes, report.tail_bytes), (2, 4, 1));
    let piece = Piece { offset: 16, starts_record: false, ends_file: true };
    let (given, report) = run_piece(&mut scan, piece, b"rrrrtt").unwrap();
    assert_eq!((given.as_slice(), report.records, report.bad), (&b"rrrr"[..], 2, 1));
    let piece = Piece { offset: 5, starts_record: false, ends_file: false };
    assert!(run_piece(&mut scan, piece, b"hh").unwrap().1.all_head);
}

#[test]
fn rows_are_counted_with_their_quotes() {
    let format = Format::JsonLines(JsonLines { columns: columns(&[Type::Text]) });
    let checked = plan(format, select(None, all_columns(1))).check().unwrap();
    let rows = b"a\n\"b\n\"\"\n\"\n\nc\n";
    let first = |count| first_rows(&checked, rows, count);
    assert_eq!((first(0), first(1), first(2)), (&b""[..], &b"a\n"[..], &b"a\n\"b\n\"\"\n\"\n"[..]));
    assert_eq!((first(4), first(9)), (&rows[..], &rows[..]));
}

#[test]
fn calls_out_of_order_are_told() {
    let checked = plan(csv(false, &[Type::Int]), select(None, None)).check().unwrap();
    let mut buffer = [0; 64];
    let mut output = Output::new(&mut buffer);
    let out_of_order = |result: Result<Fed, ScanError>| matches!(result, Err(ScanError::Order(_)));
    assert!(out_of_order(checked.start().feed(b"1\n", &mut output)));
    assert!(out_of_order(checked.start().end_piece(&mut output)));
    let mut scan = checked.start();
    scan.begin_piece(WHOLE);
    assert!(out_of_order(scan.finish(&mut output)));
    scan = checked.start();
    scan.begin_piece(WHOLE);
    scan.begin_piece(WHOLE);
    assert!(out_of_order(scan.feed(b"1\n", &mut output)));
    let mut scan = checked.start();
    scan.begin_piece(WHOLE);
    let fed = scan.feed(b"12\n34\n", &mut Output::new(&mut [0; 2]));
    assert_eq!(fed, Ok(Fed::Full { consumed: 0 }));
    assert!(out_of_order(scan.feed(b"12\n", &mut output)));
}

#[test]
fn plans_are_refused_with_a_reason() {
    let check =
        |format: Format, program: Program| plan(format, program).check().map(|_| ()).unwrap_err();
    let where_ = |filter| check(csv(false, &[Type::Int, Type::Text]), select(Some(filter), None));
    let (a, b) = (|| Expression::column(0), || Expression::column(1));
    let refused = |error: ParameterError, text: &str| assert_eq!(error.to_string(), text);
    refused(where_(a()), "WHERE does not take integer");
    refused(where_(Expression::column(2)), "there is no column 2: the format has 2");
    let mixed = Expression::compare(Comparison::Less, a(), b());
    refused(where_(mixed), "< does not take integer with text");
    let sum = Expression::arithmetic(Arithmetic::Add, a(), b());
    refused(where_(Expression::compare(Comparison::Less, sum, a())), "+ does not take text");
    let halves = Expression::arithmetic(Arithmetic::IntegerDivide, a(), Expression::float(0.5));
    refused(where_(Expression::compare(Comparison::Less, halves, a())), "// does not take float");
    let like = |value, pattern: &str, escape| Expression::Like {
        value: Box::new(value),
        pattern: pattern.into(),
        escape,
        negated: false,
    };
    refused(where_(like(a(), "%", None)), "LIKE does not take integer");
    let text = "the pattern of a LIKE ends with its escape character";
    refused(where_(like(b(), "a!", Some(b'!'))), text);
    let mut deep = Expression::Literal(Literal::Bool(true));
    for _ in 0..64 {
        deep = Expression::not(deep);
    }
    refused(where_(deep), "levels of an expression is 65, not 1 to 64");
    let items = vec![Item { function: Function::Sum, argument: None }];
    let program = Program::Aggregate(Aggregate { filter: None, keys: vec![], items });
    refused(check(csv(false, &[Type::Int]), program), "sum needs an argument");
    refused(check(csv(false, &[]), select(None, None)), "a format has 1 to 1024 columns, not 0");
    let columns = columns(&[Type::Int]);
    let delimited = Delimited { delimiter: b'1', quote: None, header: false, columns };
    let error = check(Format::Delimited(delimited), select(None, None));
    assert_eq!(error, ParameterError::Delimiter);
}

#[test]
fn nested_betweens_stay_small() {
    let (mut nested, yes) = (Expression::column(0), Expression::Literal(Literal::Bool(true)));
    nested = Expression::compare(Comparison::Equal, nested, Expression::int(1));
    for _ in 0..60 {
        let (low, high) = (Box::new(yes.clone()), Box::new(yes.clone()));
        nested = Expression::Between { value: Box::new(nested), low, high, negated: false };
    }
    let plan = plan(csv(false, &[Type::Int]), select(Some(nested), None));
    assert!(plan.check().unwrap().memory_bytes() < 16 << 20);
    assert_eq!(run(&plan, b"1\n2\n").unwrap().0, "1\n");
}

#[test]
fn tops_reuse_what_they_drop() {
    let program = Program::Top(Top {
        filter: None,
        order: Expression::column(0),
        descending: true,
        count: 3,
        projection: None,
    });
    let mut plan = plan(csv(false, &[Type::Text]), program);
    plan.options.state_bytes = 128;
    let file: String = (0..5000).map(|number| format!("{number:04}\n")).collect();
    let checked = plan.check().unwrap();
    let mut scan = checked.start();
    run_piece(&mut scan, WHOLE, file.as_bytes()).unwrap();
    let mut merge = Merge::new(&checked);
    merge.add(&partial(&mut scan)).unwrap();
    let Outcome::Top { rows, .. } = reference::run(&plan, file.as_bytes()) else {
        panic!("no top");
    };
    let Merged::Top(found) = merge.finish() else {
        panic!("no top");
    };
    let found: Vec<_> = found.into_iter().map(|top| (top.offset, top.row)).collect();
    assert_eq!(found, rows.into_iter().map(|(_, offset, row)| (offset, row)).collect::<Vec<_>>());
}

#[test]
fn pieces_of_files_of_two_lengths_are_no_file() {
    let checked = plan(csv(false, &[Type::Int]), select(None, None)).check().unwrap();
    let piece = |offset, ends_file| Piece { offset, starts_record: false, ends_file };
    let whole = Report { records: 2, selected: 2, row_bytes: 4, ..Report::default() };
    let head = Report { head_bytes: 2, ..whole };
    let mut seams = Seams::new(&checked);
    seams.head(piece(0, true), &whole, b"").unwrap();
    seams.tail(piece(0, true), 4, &whole, b"").unwrap();
    let behind = seams.head(piece(4, true), &whole, b"");
    assert!(matches!(behind, Err(MergeError::Pieces(_))), "{behind:?}");
    // Nobody has the begin of what ends there.
    let mut seams = Seams::new(&checked);
    let done = Report { done: true, ..whole };
    seams.head(piece(0, false), &done, b"").unwrap();
    seams.tail(piece(0, false), 4, &done, b"").unwrap();
    let lost = seams.head(piece(4, true), &head, b"7\n");
    assert!(matches!(lost, Err(MergeError::Pieces(_))), "{lost:?}");
}

#[test]
fn a_sum_and_an_average_are_of_one_state() {
    for kind in [Type::Int, Type::Float] {
        let keys = vec![Expression::column(0)];
        let of = |functions: &[Function]| {
            let argument = Some(Expression::column(1));
            let items =
                functions.iter().map(|&function| Item { function, argument: argument.clone() });
            let items = items.collect();
            let program = Program::Aggregate(Aggregate { filter: None, keys: keys.clone(), items });
            plan(csv(false, &[Type::Int, kind]), program).check().unwrap()
        };
        let both = of(&[Function::Avg, Function::Sum, Function::Max, Function::Avg]);
        let groups = both.plan().options.groups as usize;
        let other = of(&[Function::Sum, Function::Max]).memory_bytes();
        assert!(both.memory_bytes() < other + groups);
        let mut merge = Merge::new(&both);
        for file in [&b"1,2\n2,7\n1,4\n"[..], b"1,9\n2,\n"] {
            let mut scan = both.start();
            run_piece(&mut scan, WHOLE, file).unwrap();
            merge.add(&partial(&mut scan)).unwrap();
        }
        let number = |value: i64| match kind {
            Type::Int => Value::Int(value),
            _ => Value::Float(value as f64),
        };
        let sum = |value: i64| match kind {
            Type::Int => Value::HugeInt(value.into()),
            _ => Value::Float(value as f64),
        };
        let row = |key, average: f64, total, most| {
            let average = Value::Float(average);
            vec![Value::Int(key), average.clone(), sum(total), number(most), average]
        };
        assert_eq!(merge.finish(), Merged::Aggregate(vec![row(1, 5.0, 15, 9), row(2, 7.0, 7, 7)]));
    }
}
