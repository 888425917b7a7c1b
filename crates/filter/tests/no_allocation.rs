//! A scan allocates what it says it will, at its start, and nothing after it; and so does one that answers for a drive.

#![allow(clippy::unwrap_used, reason = "compiled for tests alone")]

mod generate;

use generate::Random;
use nasd_filter::remote::{Answer, AnswerError, Next};
use nasd_filter::{
    Aggregate, Arithmetic, Checked, Column, Delimited, Expression, Fed, Format, Function, Item,
    JsonLines, Options, Output, Piece, Plan, Program, Scan, Select, Type,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counting what each thread asks for.
struct Counting;

// SAFETY: everything is the system's allocator's; counting touches no memory of the heap.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        BYTES.set(BYTES.get() + layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Runs a plan over a file in slices, with one output buffer; gives up at the first error.
fn run(scan: &mut Scan, file: &[u8], buffer: &mut [u8]) {
    for (offset, end) in [(0, file.len() / 2), (file.len() / 2, file.len())] {
        let ends_file = end == file.len();
        scan.begin_piece(Piece { offset: offset as u64, starts_record: false, ends_file });
        for slice in file[offset..end].chunks(100) {
            let mut rest = slice;
            loop {
                match scan.feed(rest, &mut Output::new(buffer)) {
                    Ok(Fed::Full { consumed }) => rest = &rest[consumed..],
                    Ok(_) => break,
                    Err(_) => return,
                }
            }
        }
        loop {
            match scan.end_piece(&mut Output::new(buffer)) {
                Ok(Fed::Full { .. }) => {}
                Ok(_) => break,
                Err(_) => return,
            }
        }
    }
    while let Ok(Fed::Full { .. }) = scan.finish(&mut Output::new(buffer)) {}
}

fn allocated(work: impl FnOnce()) -> (usize, usize) {
    let before = (CALLS.get(), BYTES.get());
    work();
    (CALLS.get() - before.0, BYTES.get() - before.1)
}

#[test]
fn nothing_is_allocated_after_the_start() {
    let mut buffer = vec![0; 64];
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let format = generate::format(&mut random);
        let file = generate::file(&mut random, &format);
        let plan: Plan = generate::plan(&mut random, format);
        let checked = plan.check().unwrap();
        let told = checked.memory_bytes();
        let mut scan = None;
        let (_, bytes) = allocated(|| scan = Some(checked.start()));
        let mut scan = scan.unwrap();
        let held = bytes + size_of::<Scan>();
        // What is told is what is held, but for the heads of some small vectors.
        assert!(held <= told && told - held < 1024, "{held} of {told}: {plan:?}");
        let (calls, bytes) = allocated(|| run(&mut scan, &file, &mut buffer));
        assert_eq!((calls, bytes), (0, 0), "{plan:?}");
    }
}

/// Answers for pieces of a file, one after the other, as far as there is room for what is told of them; for how many that is.
fn answer(
    mut answer: Answer,
    file: &[u8],
    piece: usize,
    slice: usize,
) -> Result<usize, AnswerError> {
    let mut count = 0;
    for (number, bytes) in file.chunks(piece).enumerate() {
        let mut at = (number * piece) as u64;
        if !answer.begin(at) {
            break;
        }
        count += 1;
        let mut next = Next::More;
        for slice in bytes.chunks(slice) {
            next = answer.feed(slice)?;
            at += slice.len() as u64;
            if next != Next::More {
                break;
            }
        }
        if matches!(next, Next::Full(_)) || answer.end(at)? != Next::More || next != Next::More {
            break;
        }
    }
    answer.finish().map(|_| count)
}

/// Answers as [`answer`] does, and looks at what that allocates; for how many pieces, 0 if it fails.
fn counted(checked: &Checked, file: &[u8], most: usize, piece: usize, slice: usize) -> usize {
    let buffer = vec![0xee; most];
    let told = Answer::memory_bytes(checked, most);
    let mut new = None;
    let (_, bytes) = allocated(|| new = Some(Answer::new(checked, file.len() as u64, buffer, 1)));
    assert!(bytes + most <= told, "{bytes} and {most} of {told}: {:?}", checked.plan());
    let mut count = Ok(0);
    let (calls, bytes) = allocated(|| count = answer(new.unwrap(), file, piece, slice));
    assert_eq!((calls, bytes), (0, 0), "{:?}", checked.plan());
    count.unwrap_or(0)
}

#[test]
fn nor_for_answers() {
    let mut most_pieces = 0;
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let format = generate::format(&mut random);
        let file = generate::file(&mut random, &format);
        let checked = generate::plan(&mut random, format).check().unwrap();
        let most = Answer::least_bytes(&checked) + random.pick(&[0, 100, 10_000]);
        let (piece, slice) = (1 + random.below(500), 1 + random.below(100));
        most_pieces = most_pieces.max(counted(&checked, &file, most, piece, slice));
    }
    assert!(most_pieces > 10, "{most_pieces}");
}

/// A number, a text and another one.
fn columns(last: Type) -> Vec<Column> {
    let column = |name: &str, kind| Column { name: name.to_owned(), kind };
    vec![column("number", Type::Int), column("text", Type::Text), column("last", last)]
}

/// Hundreds of groups, by two keys.
fn groups() -> Program {
    let item = |function, column| Item { function, argument: Some(Expression::column(column)) };
    let items = vec![item(Function::Max, 1), item(Function::Sum, 0), item(Function::Min, 2)];
    let (number, many) = (Expression::column(0), Expression::int(500));
    let number = Expression::arithmetic(Arithmetic::Remainder, number, many);
    let keys = vec![number, Expression::column(2)];
    Program::Aggregate(Aggregate { filter: None, keys, items })
}

/// Hundreds of pieces, of all of which is told.
#[test]
fn nor_for_answers_of_many_pieces() {
    let lines = |line: &dyn Fn(usize) -> String| (0..60_000).map(line).collect::<String>();
    let text = lines(&|id| format!("{id},\"a \"\"{}\"\"\",{}.5\n", id % 7, id % 2));
    let objects = lines(&|id| {
        format!("{{\"number\":{id},\"te\\u0078t\":\"\\n{}\",\"last\":{}}}\n", id % 7, id % 2 == 0)
    });
    let (delimiter, quote) = (b',', Some(b'"'));
    let (header, columns_of_text) = (false, columns(Type::Float));
    let delimited = Delimited { delimiter, quote, header, columns: columns_of_text };
    let json = Format::JsonLines(JsonLines { columns: columns(Type::Bool) });
    let projection = Some((0..3).map(Expression::column).collect());
    let select = Program::Select(Select { filter: None, projection, limit: None });
    for (format, file) in [(Format::Delimited(delimited), text), (json, objects)] {
        for (program, most) in [(select.clone(), 8 << 20), (groups(), 1 << 20)] {
            let plan = Plan { format: format.clone(), program, options: Options::default() };
            let checked = plan.check().unwrap();
            let found = counted(&checked, file.as_bytes(), most, 5000, 999);
            assert_eq!(found, file.len().div_ceil(5000), "{plan:?}");
        }
    }
}
