//! The same for C, with the paper's names: see `include/smas.h`, which says what each does.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_void};
use std::io::{Read, Seek, SeekFrom, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use nasd_filter::{Comparison, Delimited, Format, Function, JsonLines, Literal, MAX_BYTES};
use nasd_grep::Pattern;

use crate::columns;
use crate::conditions::{Condition, Junction, Operand};
use crate::error::SmasError;
use crate::file::{Access, Field, SmasFile};
use crate::filter::Filter;

/// The number of the first file: far from those of the system, which so refuses it.
const FIRST: c_int = 1 << 20;

/// The mode of files that are made, before the process's mask.
const DEFAULT_MODE: u32 = 0o666;

/// Flags of `open(2)` that mean something here, or make no difference.
const KNOWN_FLAGS: c_int = libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_TRUNC
    | libc::O_APPEND
    | libc::O_CLOEXEC
    | libc::O_NOCTTY
    | libc::O_LARGEFILE;

/// An argument of a filter, or of what records are. In `smas.h` too.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SmasArgument {
    /// 0: an integer, 1: a float, 2: a text, 3: an integer that is too large, without a sign.
    pub kind: c_int,
    /// If it is one.
    pub integer: c_longlong,
    /// If it is one.
    pub real: f64,
    /// If it is one.
    pub text: *const c_char,
}

/// The same, looked at.
#[derive(Clone, Debug, PartialEq)]
enum Argument {
    Integer(i64),
    Float(f64),
    Text(Vec<u8>),
}

/// An open file, and why its records have ended.
struct Open {
    file: SmasFile,
    failure: c_int,
    /// What was chosen last could not be: who goes on all the same is told why.
    refused: Option<SmasError>,
}

impl Open {
    /// What a choice has come to.
    fn chosen(&mut self, told: Result<(), SmasError>) -> Result<c_int, SmasError> {
        self.failure = 0;
        self.refused = told.as_ref().err().cloned();
        told.map(|()| 0)
    }
}

/// `None` once it is closed, for threads that have found it before.
type Shared = Arc<Mutex<Option<Open>>>;

/// Open files by number.
static FILES: RwLock<Vec<Option<Shared>>> = RwLock::new(Vec::new());

thread_local! {
    /// What went wrong last in this thread.
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Notes what went wrong: `errno`, and the text.
fn fail(error: &SmasError) -> c_int {
    let text = CString::new(error.to_string().replace('\0', " ")).unwrap_or_default();
    // A thread that ends has none any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
    let errno = error.errno();
    // SAFETY: it is this thread's own.
    unsafe { *libc::__errno_location() = errno };
    errno
}

/// What a call answers; on an error that, with `errno` set. No panic goes on in C.
fn answer<T>(otherwise: T, run: impl FnOnce() -> Result<T, SmasError>) -> T {
    match catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(SmasError::Broken)) {
        Ok(told) => told,
        Err(error) => {
            fail(&error);
            otherwise
        }
    }
}

fn find(number: c_int) -> Result<Shared, SmasError> {
    let files = FILES.read().unwrap_or_else(PoisonError::into_inner);
    let at = number.checked_sub(FIRST).and_then(|at| usize::try_from(at).ok());
    let found = at.and_then(|at| files.get(at)).and_then(Clone::clone);
    found.ok_or(SmasError::NoSuchFile(number))
}

/// Does something with an open file.
fn with<T>(
    number: c_int,
    run: impl FnOnce(&mut Open) -> Result<T, SmasError>,
) -> Result<T, SmasError> {
    let open = find(number)?;
    // Half of a call was done, by one that has panicked.
    let mut open = open.lock().map_err(|_| SmasError::Broken)?;
    run(open.as_mut().ok_or(SmasError::NoSuchFile(number))?)
}

fn io<T>(open: &Open, told: std::io::Result<T>) -> Result<T, SmasError> {
    told.map_err(|error| open.file.io_error(error))
}

/// The arguments at a place.
///
/// # Safety
///
/// There are so many, and each text ends with a zero byte.
unsafe fn arguments(count: usize, at: *const SmasArgument) -> Result<Vec<Argument>, SmasError> {
    const MOST: usize = 4096;
    if count > MOST {
        return Err(SmasError::Argument(format!("{count} arguments: there may be {MOST}")));
    }
    if at.is_null() {
        return Err(SmasError::Argument("the arguments are missing: they are at NULL".to_owned()));
    }
    // SAFETY: the caller says so.
    let given = unsafe { std::slice::from_raw_parts(at, count) };
    let argument = |given: &SmasArgument| match given.kind {
        0 => Ok(Argument::Integer(given.integer)),
        1 => Ok(Argument::Float(given.real)),
        2 if given.text.is_null() => {
            Err(SmasError::Argument("a text is missing: it is NULL".to_owned()))
        }
        2 => {
            // SAFETY: the caller says so.
            Ok(Argument::Text(unsafe { CStr::from_ptr(given.text) }.to_bytes().to_vec()))
        }
        3 => Err(SmasError::Argument(format!(
            "{} is above {}, the largest integer",
            given.integer as u64,
            i64::MAX
        ))),
        kind => Err(SmasError::Argument(format!("an argument of kind {kind}: there are 0 to 3"))),
    };
    given.iter().map(argument).collect()
}

/// A text of the caller's.
///
/// # Safety
///
/// It ends with a zero byte, and is there for as long as the call lasts.
unsafe fn text<'a>(at: *const c_char, what: &str) -> Result<&'a str, SmasError> {
    let wrong = || SmasError::Argument(format!("{what} is missing, or is no text in UTF-8"));
    if at.is_null() {
        return Err(wrong());
    }
    // SAFETY: the caller says so.
    unsafe { CStr::from_ptr(at) }.to_str().map_err(|_| wrong())
}

/// Arguments that are taken one after the other.
struct Given<'a>(std::slice::Iter<'a, Argument>);

impl Given<'_> {
    fn integer<T: TryFrom<i64>>(&mut self, what: &str) -> Result<T, SmasError> {
        let wrong = match self.0.next() {
            Some(Argument::Integer(told)) => match T::try_from(*told) {
                Ok(told) => return Ok(told),
                Err(_) => format!("{what} can't be {told}"),
            },
            Some(_) => format!("{what} is no integer"),
            None => format!("{what} is missing"),
        };
        Err(SmasError::Argument(wrong))
    }

    /// How many bytes a field of that kind has, which may be so many.
    fn bytes<T: TryFrom<i64>>(&mut self, kind: &str, allowed: &str) -> Result<T, SmasError> {
        let told: i64 = self.integer(&format!("the size of {kind}"))?;
        T::try_from(told)
            .map_err(|_| SmasError::Argument(format!("{kind} of {told} bytes: it has {allowed}")))
    }

    fn text(&mut self, what: &str) -> Result<String, SmasError> {
        let told = match self.0.next() {
            Some(Argument::Text(told)) => String::from_utf8(told.clone()).ok(),
            _ => None,
        };
        told.ok_or_else(|| {
            SmasError::Argument(format!("{what} is missing, or is no text in UTF-8"))
        })
    }

    fn literal(&mut self) -> Result<Literal, SmasError> {
        match self.0.next() {
            Some(Argument::Integer(value)) => Ok(Literal::Int(*value)),
            Some(Argument::Float(value)) => Ok(Literal::Float(*value)),
            Some(Argument::Text(value)) => Ok(Literal::Text(value.clone())),
            None => Err(SmasError::Argument("a value to compare with is missing".to_owned())),
        }
    }

    /// There are no more.
    fn end(&self) -> Result<(), SmasError> {
        match self.is_over() {
            true => Ok(()),
            false => Err(SmasError::Argument("the filter takes no more arguments".to_owned())),
        }
    }

    fn is_over(&self) -> bool {
        self.0.as_slice().is_empty()
    }

    /// Field, operator, value; and so on, with AND or OR between.
    fn conditions(&mut self) -> Result<Vec<(Junction, Condition)>, SmasError> {
        let mut conditions = Vec::new();
        let mut junction = Junction::And;
        while !self.is_over() {
            if !conditions.is_empty() {
                junction = match self.integer("AND or OR")? {
                    20 => Junction::And,
                    21 => Junction::Or,
                    other => {
                        return Err(SmasError::Argument(format!("{other} is neither AND nor OR")));
                    }
                };
            }
            let field = self.integer("the number of a field")?;
            let operand = operand(self.integer("an operator")?)?;
            conditions.push((junction, Condition { field, operand, value: self.literal()? }));
        }
        Ok(conditions)
    }
}

fn operand(number: i64) -> Result<Operand, SmasError> {
    Ok(match number {
        10 => Operand::Compare(Comparison::Equal),
        11 => Operand::Compare(Comparison::NotEqual),
        12 => Operand::Compare(Comparison::Less),
        13 => Operand::Compare(Comparison::LessEqual),
        14 => Operand::Compare(Comparison::Greater),
        15 => Operand::Compare(Comparison::GreaterEqual),
        16 => Operand::Like,
        other => return Err(SmasError::Argument(format!("{other} is no operator"))),
    })
}

/// The fields of `INT, 4, CHAR, 96`.
fn fields(arguments: &[Argument]) -> Result<Vec<Field>, SmasError> {
    const INTEGERS: &str = "1, 2, 4 or 8";
    let texts = format!("1 to {MAX_BYTES}");
    let mut given = Given(arguments.iter());
    let mut fields = Vec::new();
    while !given.is_over() {
        let kind: i64 = given.integer("the kind of a field")?;
        fields.push(match kind {
            1 => Field::int(given.bytes("INT", INTEGERS)?)?,
            2 => Field::text(given.bytes("CHAR", &texts)?)?,
            3 => Field::unsigned(given.bytes("UNSIGNED", INTEGERS)?)?,
            4 => Field::float(given.bytes("FLOAT", "4 or 8")?)?,
            other => return Err(SmasError::Argument(format!("{other} is no kind of field"))),
        });
    }
    Ok(fields)
}

/// The format of `CSV_FORMAT, "id:int,name:text"`.
fn format(number: c_int, columns: &str) -> Result<Format, SmasError> {
    const NO_HEADER: c_int = 16;
    let header = number & NO_HEADER == 0;
    let delimiter = match number & !NO_HEADER {
        1 => Some(b','),
        2 => Some(b'\t'),
        3 if header => None,
        _ => return Err(SmasError::Argument(format!("{number} is no format of lines"))),
    };
    let columns = columns::listed(columns)?;
    let format = match delimiter {
        Some(delimiter) => {
            Format::Delimited(Delimited { delimiter, quote: Some(b'"'), header, columns })
        }
        None => Format::JsonLines(JsonLines { columns }),
    };
    columns::check(&format)?;
    Ok(format)
}

/// The filter of `SQLSELECT_FILTER, 1, GREATER, 10`.
fn filter(arguments: &[Argument]) -> Result<Filter, SmasError> {
    let mut given = Given(arguments.iter());
    let number: i64 = given.integer("the filter")?;
    let mut aggregate = |function| {
        let field = Some(given.integer("the number of a field")?);
        Ok(Filter::Aggregate { function, field, conditions: given.conditions()? })
    };
    match number {
        1 => Ok(Filter::Select(given.conditions()?)),
        2 => Ok(Filter::Aggregate {
            function: Function::Count,
            field: None,
            conditions: given.conditions()?,
        }),
        3 => aggregate(Function::Sum),
        4 => aggregate(Function::Min),
        5 => aggregate(Function::Max),
        6 => aggregate(Function::Avg),
        7 => {
            let query = given.text("the query")?;
            given.end()?;
            Ok(Filter::Sql(query))
        }
        8 => {
            let texts = vec![given.text("the pattern")?];
            let flags: i64 = if given.is_over() { 0 } else { given.integer("the set of flags")? };
            given.end()?;
            if flags & !0xf != 0 {
                return Err(SmasError::Argument(format!("{flags} is no set of grep's flags")));
            }
            Ok(Filter::Grep(Pattern {
                texts,
                is_fixed: flags & 1 != 0,
                ignores_case: flags & 2 != 0,
                is_word: flags & 4 != 0,
                is_whole_line: flags & 8 != 0,
            }))
        }
        other => Err(SmasError::Argument(format!("{other} is no filter"))),
    }
}

/// Opens a file as `open(2)` does.
///
/// # Safety
///
/// `path` is a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn smas_open(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as above.
    unsafe { smas_open_mode(path, flags, DEFAULT_MODE) }
}

/// The same with the mode of a file that is made, before the process's mask.
///
/// # Safety
///
/// As [`smas_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn smas_open_mode(path: *const c_char, flags: c_int, mode: u32) -> c_int {
    answer(-1, || {
        if path.is_null() {
            return Err(SmasError::Path(String::new()));
        }
        // SAFETY: the caller says so.
        let path = unsafe { CStr::from_ptr(path) };
        let text = path.to_str();
        let path = text.map_err(|_| SmasError::Path(path.to_string_lossy().into_owned()))?;
        if flags & !KNOWN_FLAGS != 0 {
            return Err(SmasError::Argument(format!("flags {:#o}", flags & !KNOWN_FLAGS)));
        }
        let mut access = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => Access::READ,
            libc::O_WRONLY => Access::WRITE,
            libc::O_RDWR => Access::READ_WRITE,
            _ => {
                return Err(SmasError::Argument(
                    "neither O_RDONLY, O_WRONLY nor O_RDWR".to_owned(),
                ));
            }
        };
        if flags & libc::O_CREAT != 0 {
            access = access.creating(mode & !mask(), flags & libc::O_EXCL != 0);
        }
        if flags & libc::O_TRUNC != 0 {
            access = access.truncating();
        }
        if flags & libc::O_APPEND != 0 {
            access = access.appending();
        }
        let open = Open { file: SmasFile::open(path, access)?, failure: 0, refused: None };
        let open = Arc::new(Mutex::new(Some(open)));
        let mut files = FILES.write().unwrap_or_else(PoisonError::into_inner);
        let at = files.iter().position(Option::is_none).unwrap_or(files.len());
        let number = c_int::try_from(at).ok().and_then(|at| FIRST.checked_add(at));
        let number = number.ok_or_else(|| SmasError::Argument("too many open files".to_owned()))?;
        match files.get_mut(at) {
            Some(free) => *free = Some(open),
            None => files.push(Some(open)),
        }
        Ok(number)
    })
}

/// The process's mask. The system only tells it to who sets one, which others would see; here it is looked up.
fn mask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let told = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    told.and_then(|told| u32::from_str_radix(told.trim(), 8).ok()).unwrap_or(0o022)
}

/// Closes a file. What was written is durable then.
#[unsafe(no_mangle)]
pub extern "C" fn smas_close(number: c_int) -> c_int {
    answer(-1, || {
        find(number)?;
        let mut files = FILES.write().unwrap_or_else(PoisonError::into_inner);
        let at = usize::try_from(number - FIRST).unwrap_or(usize::MAX);
        let open = files.get_mut(at).and_then(Option::take);
        drop(files);
        let open = open.ok_or(SmasError::NoSuchFile(number))?;
        // Another thread that is in a call ends it first.
        let open = open.lock().map_err(|_| SmasError::Broken)?.take();
        open.ok_or(SmasError::NoSuchFile(number))?.file.close().map(|()| 0)
    })
}

/// Reads at the file's position.
///
/// # Safety
///
/// There is room for `count` bytes at `buffer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn smas_read(number: c_int, buffer: *mut c_void, count: usize) -> isize {
    answer(-1, || {
        // SAFETY: the caller says so.
        let into = unsafe { room(buffer, count)? };
        with(number, |open| {
            let read = open.file.read(into);
            Ok(io(open, read)? as isize)
        })
    })
}

/// Writes at the file's position.
///
/// # Safety
///
/// There are `count` bytes at `buffer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn smas_write(number: c_int, buffer: *const c_void, count: usize) -> isize {
    answer(-1, || {
        let data: &[u8] = match count {
            0 => &[],
            _ if buffer.is_null() || count > MOST_BYTES => return Err(no_buffer(count)),
            // SAFETY: the caller says so.
            _ => unsafe { std::slice::from_raw_parts(buffer.cast(), count) },
        };
        with(number, |open| {
            let written = open.file.write(data);
            Ok(io(open, written)? as isize)
        })
    })
}

/// Sets the file's position.
#[unsafe(no_mangle)]
pub extern "C" fn smas_lseek(number: c_int, offset: i64, whence: c_int) -> i64 {
    answer(-1, || {
        let wrong = || SmasError::Argument(format!("there is no position {offset} from {whence}"));
        let to = match whence {
            libc::SEEK_SET => SeekFrom::Start(u64::try_from(offset).map_err(|_| wrong())?),
            libc::SEEK_CUR => SeekFrom::Current(offset),
            libc::SEEK_END => SeekFrom::End(offset),
            _ => return Err(wrong()),
        };
        with(number, |open| {
            let position = match open.file.seek(to) {
                Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => Err(wrong()),
                // Where the end is may be a drive's to say.
                sought => io(open, sought),
            }?;
            i64::try_from(position).map_err(|_| wrong())
        })
    })
}

/// Makes durable what was written.
#[unsafe(no_mangle)]
pub extern "C" fn smas_fsync(number: c_int) -> c_int {
    answer(-1, || with(number, |open| open.file.sync().map(|()| 0)))
}

/// Says what the records are: the kind of each field and its bytes.
///
/// # Safety
///
/// There are `count` arguments at `given`, whose texts end with zero bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn smas_recordstruct_n(
    number: c_int,
    count: usize,
    given: *const SmasArgument,
) -> c_int {
    answer(-1, || {
        with(number, |open| {
            open.file.forget_records();
            // SAFETY: the caller says so.
            let arguments = unsafe { arguments(count, given) };
            let fields = arguments.and_then(|arguments| fields(&arguments));
            let told = fields.and_then(|fields| open.file.record_struct(&fields));
            open.chosen(told)
        })
    })
}

/// Says what the lines of a file are: their format, and the names and types of its columns.
///
/// # Safety
///
/// `columns` is a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn smas_recordformat(
    number: c_int,
    lines: c_int,
    columns: *const c_char,
) -> c_int {
    answer(-1, || {
        with(number, |open| {
            open.file.forget_records();
            // SAFETY: the caller says so.
            let columns = unsafe { text(columns, "the list of columns") };
            let told = columns.and_then(|columns| format(lines, columns));
            let told = told.map(|format| open.file.record_format(format));
            open.chosen(told)
        })
    })
}

/// Chooses a filter: which, and its arguments.
///
/// # Safety
///
/// As [`smas_recordstruct_n`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn smas_usefilter_n(
    number: c_int,
    count: usize,
    given: *const SmasArgument,
) -> c_int {
    answer(-1, || {
        with(number, |open| {
            open.file.end_filter();
            // SAFETY: the caller says so.
            let arguments = unsafe { arguments(count, given) };
            let filter = arguments.and_then(|arguments| filter(&arguments));
            let told = filter.and_then(|filter| open.file.use_filter(&filter));
            open.chosen(told)
        })
    })
}

/// The next record, where its size is known: as many bytes as the fields have, or eight of a number.
///
/// # Safety
///
/// There is room for it at `buffer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn smas_nextrecord(number: c_int, buffer: *mut c_void) -> isize {
    next(number, |file| {
        let answers = file.answers()?;
        let Some(most) = answers.next_bytes()? else { return Ok(None) };
        // SAFETY: the caller says so.
        answers.next_into(unsafe { room(buffer, most)? }, false)
    })
}

/// The same where there is room for so many bytes. Text has a zero byte behind it, which counts.
///
/// # Safety
///
/// There is room for `count` bytes at `buffer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn smas_nextrecord_n(
    number: c_int,
    buffer: *mut c_void,
    count: usize,
) -> isize {
    next(number, |file| {
        // SAFETY: the caller says so.
        file.answers()?.next_into(unsafe { room(buffer, count)? }, true)
    })
}

/// As many of the next records as there is room for in so many bytes, where each is as long as the others.
///
/// # Safety
///
/// There is room for `count` bytes at `buffer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn smas_nextrecords(
    number: c_int,
    buffer: *mut c_void,
    count: usize,
) -> isize {
    next(number, |file| {
        // SAFETY: the caller says so.
        file.answers()?.next_some_into(unsafe { room(buffer, count)? })
    })
}

/// The next record: its bytes, or 0 after the last one and where there is none, which [`smas_error`] tells then.
fn next(
    number: c_int,
    run: impl FnOnce(&mut SmasFile) -> Result<Option<usize>, SmasError>,
) -> isize {
    answer(0, || {
        with(number, |open| {
            let told = match &open.refused {
                Some(error) => Err(error.clone()),
                None => run(&mut open.file),
            };
            open.failure = told.as_ref().map_or_else(SmasError::errno, |_| 0);
            Ok(told?.unwrap_or(0) as isize)
        })
    })
}

/// Why the file's records have ended: an error number, or 0 after the last one.
#[unsafe(no_mangle)]
pub extern "C" fn smas_error(number: c_int) -> c_int {
    // One that is not open has failed as such.
    with(number, |open| Ok(open.failure)).unwrap_or_else(|error| error.errno())
}

/// What went wrong last in this thread, good until the next call in it.
#[unsafe(no_mangle)]
pub extern "C" fn smas_strerror() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// More than that no buffer has.
const MOST_BYTES: usize = isize::MAX as usize;

fn no_buffer(count: usize) -> SmasError {
    SmasError::Argument(format!("there is no buffer of {count} bytes"))
}

/// Bytes of the caller's.
///
/// # Safety
///
/// There are `count` at `buffer`, for as long as the call lasts.
unsafe fn room<'a>(buffer: *mut c_void, count: usize) -> Result<&'a mut [u8], SmasError> {
    match count {
        0 => Ok(&mut []),
        _ if buffer.is_null() || count > MOST_BYTES => Err(no_buffer(count)),
        // SAFETY: the caller says so.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), count) }),
    }
}
