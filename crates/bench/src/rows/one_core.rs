//! How fast filters look at bytes in memory, with one thread.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use nasd_filter::{
    Aggregate, Checked, Column, Comparison, Delimited, Expression, Fed, Field, FieldKind, Fixed,
    Format, Function, Item, Literal, Options, Output, Piece, Plan, Program, Type,
};
use nasd_grep::{Bounds, Give, Next, Pattern, Search, Wanted};

use crate::sampling::{Compared, median};
use crate::workload::Bench;
use crate::{BenchError, Row};

/// Bytes that are looked at.
const BYTES: usize = 512 << 20;
/// Bytes that are handed over at a time, as at a drive.
const SLICE: usize = 64 << 10;
/// How often each is measured.
const ROUNDS: usize = 5;
/// What is looked for: in one line of a thousand.
const WORD: &str = "timeout";

/// Records of 16 bytes, of which an integer is compared; the limit is what one core is to do.
pub(super) fn fixed(_: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let integer = FieldKind::Integer { bytes: 4, signed: true, big_endian: false };
    let number = Field { name: "number".into(), kind: integer };
    let rest = Field { name: "rest".into(), kind: FieldKind::Text { bytes: 12 } };
    let format = Format::Fixed(Fixed { fields: vec![number, rest] });
    let mut bytes = Vec::with_capacity(BYTES);
    for index in 0..(BYTES / 16) as u32 {
        bytes.extend((index.wrapping_mul(2_654_435_761) >> 8).to_le_bytes());
        bytes.extend(*b"abcdefghijkl");
    }
    let limit_name = "what one core is to do; records of 16 bytes, an integer compared";
    scan(name, format, &bytes, 1 << 23, (3000.0, limit_name))
}

/// Lines of fields, of which a number is compared.
pub(super) fn delimited(_: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let column = |name: &str, kind| Column { name: name.into(), kind };
    let columns = vec![
        column("number", Type::Int),
        column("name", Type::Text),
        column("price", Type::Float),
        column("city", Type::Text),
    ];
    let format =
        Format::Delimited(Delimited { delimiter: b',', quote: Some(b'"'), header: false, columns });
    let mut text = String::with_capacity(BYTES + 100);
    let mut index = 0_u32;
    while text.len() < BYTES {
        index += 1;
        let number = index.wrapping_mul(2_654_435_761) >> 8;
        // Writing to a string does not fail.
        let _ = writeln!(text, "{number},customer {index},{}.25,Patras", number % 1000);
    }
    let limit_name = "what one core is to do; lines of four fields, a number compared";
    scan(name, format, text.as_bytes(), 1 << 23, (700.0, limit_name))
}

/// How many records have a first column below `bound`, in MB of them a second.
fn scan(
    name: &str,
    format: Format,
    bytes: &[u8],
    bound: i64,
    (limit, limit_name): (f64, &str),
) -> Result<Row, BenchError> {
    let bound = Expression::Literal(Literal::Int(bound));
    let below = Expression::Compare(Comparison::Less, Expression::Column(0).into(), bound.into());
    let count = Item { function: Function::Count, argument: None };
    let program = Aggregate { filter: Some(below), keys: Vec::new(), items: vec![count] };
    let plan = Plan { format, program: Program::Aggregate(program), options: Options::default() };
    let wrong = |error: String| BenchError::Cell(format!("a filter: {error}"));
    let checked = plan.check().map_err(|error| wrong(error.to_string()))?;
    let mut values = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        run(&checked, bytes).map_err(|error| wrong(error.to_string()))?;
        values.push(bytes.len() as f64 / 1e6 / begun.elapsed().as_secs_f64());
    }
    Ok(Row::new(name, median(&mut values), "MB/s", limit, limit_name))
}

fn run(checked: &Checked, bytes: &[u8]) -> Result<(), nasd_filter::ScanError> {
    let mut scan = checked.start();
    let mut buffer = vec![0; 1 << 16];
    let mut output = Output::new(&mut buffer);
    scan.begin_piece(Piece { offset: 0, starts_record: true, ends_file: true });
    for slice in bytes.chunks(SLICE) {
        if scan.feed(slice, &mut output)? != Fed::All {
            break;
        }
    }
    scan.end_piece(&mut output)?;
    scan.finish(&mut output).map(drop)
}

/// Lines with a word are counted; the limit is how fast `rg` does with the same bytes in a file.
pub(super) fn grep(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let mut text = String::with_capacity(BYTES + 100);
    let (mut index, mut found) = (0_u64, 0);
    while text.len() < BYTES {
        index += 1;
        let is_found = index % 1000 == 0;
        found += u64::from(is_found);
        let word = if is_found { WORD } else { "request" };
        let _ =
            writeln!(text, "2026-01-01 00:00:00 server {} {word} of client {index}", index % 17);
    }
    let file = bench.target.directory.join("grep-lines");
    let failed = BenchError::io("can't write a file to be searched");
    File::create(&file).and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed)?;
    let limit_name = format!("rg with one thread, the file in the page cache; {found} lines found");
    let compared = Compared { name, unit: "MB/s", limit_name, rounds: ROUNDS };
    let speed = |begun: Instant| text.len() as f64 / 1e6 / begun.elapsed().as_secs_f64();
    let row = compared.by_turns(
        || {
            let begun = Instant::now();
            (ripgrep(&file)? == found)
                .then(|| speed(begun))
                .ok_or(BenchError::WrongData { offset: 0 })
        },
        || {
            let begun = Instant::now();
            let count = search(text.as_bytes())?;
            (count == found).then(|| speed(begun)).ok_or(BenchError::WrongData { offset: 0 })
        },
    );
    let _ = std::fs::remove_file(&file);
    row
}

fn search(bytes: &[u8]) -> Result<u64, BenchError> {
    let wrong = |error: String| BenchError::Cell(format!("a search: {error}"));
    let pattern = Pattern { texts: vec![WORD.to_owned()], ..Pattern::default() };
    let matcher = pattern.compile(Bounds::SMALL).map_err(|error| wrong(error.to_string()))?;
    let wanted = Wanted { give: Give::Count, ..Wanted::default() };
    let longest = SLICE;
    let mut search = Search::new(&matcher, &wanted, longest, Search::least_bytes(longest));
    search.begin(0);
    for slice in bytes.chunks(SLICE) {
        if search.feed(slice).map_err(|error| wrong(error.to_string()))? != Next::More {
            break;
        }
    }
    search.end();
    let (data, all) = (search.finish(), 0..bytes.len() as u64);
    let parts = nasd_grep::remote::read_answer([all], bytes.len() as u64, &data);
    let parts = parts.map_err(|error| wrong(error.to_string()))?;
    Ok(parts.iter().map(|part| part.report.selected).sum())
}

/// How many lines it finds.
fn ripgrep(file: &Path) -> Result<u64, BenchError> {
    let mut command = Command::new("rg");
    command.args(["--no-config", "--threads", "1", "-c", WORD]).arg(file);
    match command.stdin(Stdio::null()).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(BenchError::MissingProgram { program: "rg" })
        }
        Err(error) => Err(BenchError::io("can't run rg")(error)),
        Ok(output) => {
            let told = String::from_utf8_lossy(&output.stdout);
            told.trim().parse().map_err(|_| BenchError::Cell(format!("rg: {told}")))
        }
    }
}
