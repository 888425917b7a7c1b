//! Prints how fast scans are on one core, from memory that fits the cache: `cargo run --release --example
//! speed -p nasd-filter`.

use nasd_filter::{
    Aggregate, Checked, Column, Comparison, Delimited, Expression, Fed, Field, FieldKind, Fixed,
    Format, Function, Item, JsonLines, Options, Output, Piece, Plan, Program, Select, Type,
};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Bytes of the data: they stay in the second-level cache.
const DATA_BYTES: usize = 1 << 20;
/// Bytes of a slice, as of a frame of a drive's cache.
const SLICE_BYTES: usize = 64 << 10;
const AT_LEAST: Duration = Duration::from_millis(400);

/// Numbers from 0 to 99, each as often as another, in no order that a processor might foresee.
fn hundredth(number: usize) -> usize {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 27) % 100
}

fn field(name: &str, kind: FieldKind) -> Field {
    Field { name: name.to_owned(), kind }
}

/// Records of `size` bytes: an integer, and text.
fn fixed(size: usize) -> (Format, Vec<u8>) {
    let integer = FieldKind::Integer { bytes: 4, signed: true, big_endian: false };
    let text = FieldKind::Text { bytes: size as u32 - 4 };
    let format = Format::Fixed(Fixed { fields: vec![field("a", integer), field("b", text)] });
    let mut data = Vec::new();
    for number in 0..DATA_BYTES / size {
        data.extend((hundredth(number) as u32).to_le_bytes());
        data.resize(data.len() + size - 4, b'x');
    }
    (format, data)
}

fn column(name: &str, kind: Type) -> Column {
    Column { name: name.to_owned(), kind }
}

fn columns() -> Vec<Column> {
    let kinds = [Type::Text, Type::Int, Type::Float, Type::Text, Type::Int];
    kinds.iter().enumerate().map(|(index, kind)| column(&format!("c{index}"), *kind)).collect()
}

/// Lines of about 60 bytes whose second column is the integer.
fn lines() -> (Format, Vec<u8>) {
    let (delimiter, quote, header) = (b',', Some(b'"'), false);
    let format = Format::Delimited(Delimited { delimiter, quote, header, columns: columns() });
    let mut data = String::new();
    let mut number = 0;
    while data.len() < DATA_BYTES {
        let value = hundredth(number);
        writeln!(
            data,
            "row{number:06},{value},{number}.25,some text of thirty-two bytes,{number:06}"
        )
        .expect("a string takes everything");
        number += 1;
    }
    (format, data.into_bytes())
}

/// The same as JSON.
fn json() -> (Format, Vec<u8>) {
    let format = Format::JsonLines(JsonLines { columns: columns() });
    let mut data = String::new();
    let mut number = 0;
    while data.len() < DATA_BYTES {
        let value = hundredth(number);
        writeln!(data, r#"{{"c0":"row{number:06}","c1":{value},"c2":{number}.25,"c3":"text"}}"#)
            .expect("a string takes everything");
        number += 1;
    }
    (format, data.into_bytes())
}

/// Gigabytes of input a second, and the part of the records that is selected.
fn measure(checked: &Checked, data: &[u8]) -> (f64, f64) {
    let mut buffer = vec![0; SLICE_BYTES];
    let mut best = Duration::MAX;
    let mut part = 0.0;
    let begin = Instant::now();
    while begin.elapsed() < AT_LEAST {
        let mut scan = checked.start();
        let start = Instant::now();
        scan.begin_piece(Piece { offset: 0, starts_record: true, ends_file: true });
        for slice in data.chunks(SLICE_BYTES) {
            let mut rest = slice;
            while let Fed::Full { consumed } =
                scan.feed(rest, &mut Output::new(&mut buffer)).expect("good data")
            {
                rest = &rest[consumed..];
            }
        }
        while let Fed::Full { .. } =
            scan.end_piece(&mut Output::new(&mut buffer)).expect("good data")
        {}
        best = best.min(start.elapsed());
        part = scan.report().selected as f64 / scan.report().records as f64;
    }
    (data.len() as f64 / best.as_secs_f64() / 1e9, part)
}

fn plan(format: &Format, program: Program) -> Checked {
    let plan = Plan { format: format.clone(), program, options: Options::default() };
    plan.check().expect("a good plan")
}

fn less(column: u16, percent: i64) -> Option<Expression> {
    let (column, constant) = (Expression::column(column), Expression::int(percent));
    Some(Expression::compare(Comparison::Less, column, constant))
}

fn select(filter: Option<Expression>, projection: Option<Vec<Expression>>) -> Program {
    Program::Select(Select { filter, projection, limit: None })
}

fn print(name: &str, checked: &Checked, data: &[u8]) {
    let (speed, part) = measure(checked, data);
    println!("{name:<44} {:>5.1} % {speed:>7.2} GB/s", 100.0 * part);
}

fn main() {
    for size in [20, 50, 100, 1000] {
        let (format, data) = fixed(size);
        for percent in [1, 50, 75, 100] {
            let checked = plan(&format, select(less(0, percent), None));
            print(&format!("fixed records of {size} bytes, integer <"), &checked, &data);
        }
    }
    let (fixed_format, fixed_data) = fixed(100);
    for (name, format, data, compared) in [
        ("fixed", fixed_format, fixed_data, 0),
        ("csv", lines().0, lines().1, 1),
        ("json", json().0, json().1, 1),
    ] {
        for percent in [1, 50] {
            let filter = less(compared, percent);
            let checked = plan(&format, select(filter.clone(), None));
            print(&format!("{name}, integer <"), &checked, &data);
            let projection = Some(vec![Expression::column(0), Expression::column(1)]);
            let checked = plan(&format, select(filter, projection));
            print(&format!("{name}, integer <, two columns"), &checked, &data);
        }
        let argument = Some(Expression::column(compared));
        let items = vec![
            Item { function: Function::Count, argument: None },
            Item { function: Function::Sum, argument: argument.clone() },
        ];
        let keys = Vec::new();
        let checked = plan(
            &format,
            Program::Aggregate(Aggregate { filter: None, keys, items: items.clone() }),
        );
        print(&format!("{name}, count and sum"), &checked, &data);
        let keys = argument.into_iter().collect();
        let checked = plan(&format, Program::Aggregate(Aggregate { filter: None, keys, items }));
        print(&format!("{name}, count and sum by 100 groups"), &checked, &data);
    }
}
