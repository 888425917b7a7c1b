//! Parquet files: what their values mean, which parts of them are read, and that broken ones are told.

#![allow(clippy::unwrap_used, reason = "compiled for tests alone")]

#[path = "columns/scan.rs"]
mod scan;
#[path = "columns/write.rs"]
mod write;

use nasd_filter::parquet::{ParquetError, ReadAt, Rows};
use nasd_filter::{Merged, Options, Value};
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use scan::{Found, Memory, Wrong, checked};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::Ordering;
use write::{CODECS, Data, file};

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, with how much each thread has of it, and had at most.
struct Watching;

// SAFETY: everything is the system's allocator's; watching touches no memory of the heap.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.set(HELD.get().wrapping_add(layout.size()));
        // What another thread has made may be given back here.
        if HELD.get() < usize::MAX / 2 {
            MOST.set(MOST.get().max(HELD.get()));
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.set(HELD.get().wrapping_sub(layout.size()));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static WATCHING: Watching = Watching;

fn try_ask(memory: &Memory, query: &str, options: Options) -> Result<Found, Wrong> {
    let file = memory.open().map_err(Wrong::File)?;
    scan::scan(memory, &file, &checked(&file, query, options)?)
}

fn ask(memory: &Memory, query: &str) -> String {
    let found = try_ask(memory, query, Options::default()).unwrap();
    let mut text = String::from_utf8(found.rows).unwrap();
    match found.merged {
        Merged::Select => {}
        Merged::Top(rows) => {
            rows.iter().for_each(|row| text += &String::from_utf8_lossy(&row.row));
        }
        Merged::Aggregate(rows) => {
            for row in rows {
                let line = nasd_filter::delimited_row(&row, b',', b'"');
                text += &String::from_utf8_lossy(&line);
            }
        }
    }
    text
}

const KINDS: &str = "message m {
    optional boolean flag;
    optional int32 small (INTEGER(8, true));
    optional int32 wide (INTEGER(32, false));
    optional int64 huge (INTEGER(64, false));
    optional float single;
    optional int32 price (DECIMAL(9, 2));
    optional int64 whole (DECIMAL(18, 0));
    optional fixed_len_byte_array(5) money (DECIMAL(10, 3));
    optional binary more (DECIMAL(20, 1));
    optional int32 day (DATE);
    optional int32 clock (TIME(MILLIS, true));
    optional int64 moment (TIMESTAMP(MICROS, false));
    optional int64 stamp (TIMESTAMP(NANOS, true));
    optional binary name (STRING);
    optional binary raw;
    optional fixed_len_byte_array(2) code;
}";

/// Three records, of which the last is all NULL.
fn kinds() -> Vec<Data> {
    let text = |text: &[u8]| Some(text.to_vec());
    vec![
        Data::Bools(vec![Some(true), Some(false), None]),
        Data::Ints(vec![Some(-128), Some(127), None]),
        Data::Ints(vec![Some(-1), Some(7), None]),
        Data::Longs(vec![Some(i64::MAX), Some(-1), None]),
        Data::Floats(vec![Some(0.5), Some(f32::NAN), None]),
        Data::Ints(vec![Some(110), Some(-5), None]),
        Data::Longs(vec![Some(999_999_999_999_999_999), Some(-3), None]),
        Data::Fixed(vec![text(&[0, 0, 0, 4, 210]), text(&[255; 5]), None]),
        Data::Texts(vec![text(&[1, 0]), text(&[0x80]), None]),
        Data::Ints(vec![Some(19_782), Some(3_000_000), None]),
        Data::Ints(vec![Some(45_000_500), Some(0), None]),
        Data::Longs(vec![Some(-1), Some(1_709_210_096_000_000), None]),
        Data::Longs(vec![Some(1), Some(1_500_000_000), None]),
        Data::Texts(vec![text(b"a,b"), text(b""), None]),
        Data::Texts(vec![text(b"\x01"), text(b"x"), None]),
        Data::Fixed(vec![text(b"ab"), text(b"cd"), None]),
    ]
}

#[test]
fn values_are_what_they_are_elsewhere() {
    let memory = Memory::new(file(KINDS, &kinds(), 2, WriterProperties::builder()));
    assert_eq!(
        ask(&memory, "SELECT flag, small, wide, single, price, whole, money, more FROM t"),
        "true,-128,4294967295,0.5,1.1,999999999999999999,1.234,25.6\n\
         false,127,7,NaN,-0.05,-3,-0.001,-12.8\n,,,,,,,\n"
    );
    assert_eq!(
        ask(&memory, "SELECT clock, moment, stamp, name, raw, code FROM t"),
        "12:30:00.5,1969-12-31 23:59:59.999999,1970-01-01 00:00:00.000000001,\"a,b\",\x01,ab\n\
         00:00:00,2024-02-29 12:34:56,1970-01-01 00:00:01.5,\"\",x,cd\n,,,,,\n"
    );
    // No bound counts in what is greater than all.
    assert_eq!(ask(&memory, "SELECT small FROM t WHERE single > 1e30"), "127\n");
    // What can't be told makes a bad record, where it is needed.
    let found = try_ask(&memory, "SELECT huge FROM t", Options::default()).unwrap();
    assert_eq!((&found.rows[..], found.counts.bad), (&b"9223372036854775807\n\n"[..], 1));
    assert_eq!(ask(&memory, "SELECT day FROM t WHERE small < 0"), "2024-02-29\n");
    let strict = Options { strict: true, ..Options::default() };
    let Err(Wrong::Scan(error)) = try_ask(&memory, "SELECT day FROM t", strict) else {
        panic!("a day of the year 10183 is none");
    };
    assert!(error.to_string().contains("record 1"), "{error}");
    // A text is a record's bytes here.
    let short = Options { longest_record: 2, ..Options::default() };
    let found = try_ask(&memory, "SELECT name, raw FROM t", short).unwrap();
    assert_eq!((&found.rows[..], found.counts.bad), (&b"\"\",x\n,\n"[..], 1));
}

#[test]
fn tops_groups_and_limits_are_over_all_groups_of_rows() {
    let memory = Memory::new(file(KINDS, &kinds(), 1, WriterProperties::builder()));
    assert_eq!(ask(&memory, "SELECT count(*), sum(small), max(name) FROM t"), "3,-1,\"a,b\"\n");
    assert_eq!(ask(&memory, "SELECT flag, count(*) FROM t GROUP BY flag"), "false,1\ntrue,1\n,1\n");
    assert_eq!(ask(&memory, "SELECT small FROM t ORDER BY price LIMIT 1"), "127\n");
    assert_eq!(ask(&memory, "SELECT small FROM t LIMIT 2"), "-128\n127\n");
    assert_eq!(ask(&memory, "SELECT small FROM t LIMIT 0"), "");
    assert_eq!(ask(&memory, "SELECT count(*) FROM t WHERE FALSE"), "0\n");
    // The error is behind the LIMIT, or is not.
    assert_eq!(
        ask(&memory, "SELECT small + 9223372036854775700 FROM t LIMIT 1").lines().count(),
        1
    );
    let overflow = "SELECT small + 9223372036854775700 FROM t LIMIT 2";
    assert!(matches!(try_ask(&memory, overflow, Options::default()), Err(Wrong::Scan(_))));
}

#[test]
fn what_has_no_meaning_here_is_refused_by_name() {
    let schema = "message m {
        optional int64 id;
        optional group list (LIST) { repeated group list { optional int32 element; } }
        optional int96 old;
        optional fixed_len_byte_array(2) half (FLOAT16);
        optional fixed_len_byte_array(16) key (UUID);
        required binary id (STRING);
    }";
    let properties = WriterProperties::builder();
    let memory = Memory::new(file(schema, &[], 1, properties));
    let file = memory.open().unwrap();
    assert_eq!((file.format().column_count(), file.records(), file.groups()), (1, 0, 0));
    let told: Vec<&str> = file.unreadable().iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(told, ["list", "old", "half", "key", "id"]);
    assert_eq!(ask(&memory, "SELECT count(*), max(id) FROM t"), "0,\n");
}

/// 10,000 records in ten groups, of which `id` counts and `name` is one of few.
fn table(properties: parquet::file::properties::WriterPropertiesBuilder) -> Memory {
    let schema = "message m { required int64 id; optional binary name (STRING);
        required double half; optional int32 sparse; }";
    let ids = 0..10_000_i64;
    let columns = [
        Data::Longs(ids.clone().map(Some).collect()),
        Data::Texts(
            ids.clone()
                .map(|id| (id % 7 > 0).then(|| format!("name {}", id / 1000).into_bytes()))
                .collect(),
        ),
        Data::Doubles(ids.clone().map(|id| Some(id as f64 / 2.0)).collect()),
        Data::Ints(ids.map(|id| (id >= 9_000).then_some(1)).collect()),
    ];
    Memory::new(file(schema, &columns, 1000, properties))
}

#[test]
fn only_what_is_needed_is_read() {
    let memory = table(WriterProperties::builder().set_compression(Compression::UNCOMPRESSED));
    let file = memory.open().unwrap();
    let read = |query: &str| {
        let checked = checked(&file, query, Options::default()).unwrap();
        let before = memory.read.load(Ordering::Relaxed);
        let found = scan::scan(&memory, &file, &checked).unwrap();
        (memory.read.load(Ordering::Relaxed) - before, found)
    };
    let (all, found) = read("SELECT * FROM t");
    assert_eq!((found.groups, found.counts.records), (10, 10_000));
    assert!(all < memory.bytes.len() as u64);
    assert_eq!(read("SELECT count(*) FROM t").0, 0);
    let (one, _) = read("SELECT count(id) FROM t");
    assert!(one > 0 && one < all / 2, "{one} of {all}");
    for (condition, groups, records) in [
        ("id = 4321", 1, 1),
        ("4321 = id", 1, 1),
        ("id < 1500", 2, 1500),
        ("id <= 999", 1, 1000),
        ("id >= 8999 AND id < 9001", 2, 2),
        ("id > 8999", 1, 1000),
        ("id BETWEEN 2500 AND 3500", 2, 1001),
        ("half BETWEEN 0 AND 1", 1, 3),
        ("half > 4999", 1, 1),
        ("half < 500", 1, 1000),
        ("id < 1500.5", 2, 1501),
        ("id = 1 AND half < 1e9", 1, 1),
        ("name = 'name 3'", 1, 857),
        ("name >= 'name 8'", 2, 1714),
        ("sparse IS NOT NULL", 1, 1000),
        ("sparse IS NULL", 9, 9000),
        ("name IS NULL AND id < 100", 1, 15),
        ("sparse = 1", 1, 1000),
        ("sparse <> 1", 0, 0),
        ("sparse BETWEEN 0 AND 5", 1, 1000),
        ("id IS NULL", 0, 0),
        ("id < 0", 0, 0),
        ("id = NULL", 0, 0),
        ("id < 1500 OR id = 9000", 10, 1501),
        ("NOT id >= 1500", 10, 1500),
        ("id + 1 < 5 AND id < 10", 10, 4),
    ] {
        let (bytes, found) = read(&format!("SELECT id FROM t WHERE {condition}"));
        let rows = found.rows.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!((found.groups, rows), (groups, records), "{condition}");
        assert_eq!(bytes == 0, groups == 0, "{condition}");
    }
    // The failure of a record that the first operand selects is not passed over.
    let failing = "SELECT id FROM t WHERE id + 9223372036854770000 > 0 AND id < 10";
    assert!(matches!(try_ask(&memory, failing, Options::default()), Err(Wrong::Scan(_))));
}

#[test]
fn however_it_is_written_it_means_the_same() {
    let query = "SELECT * FROM t WHERE name <> 'name 5' AND half < 4000";
    let expected = ask(&table(WriterProperties::builder()), query);
    assert_eq!(expected.lines().count(), 6000);
    for codec in CODECS {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for dictionary in [true, false] {
                let properties = WriterProperties::builder()
                    .set_compression(codec())
                    .set_writer_version(version)
                    .set_dictionary_enabled(dictionary)
                    .set_column_encoding("name".into(), Encoding::DELTA_LENGTH_BYTE_ARRAY)
                    .set_column_encoding("half".into(), Encoding::BYTE_STREAM_SPLIT)
                    .set_data_page_row_count_limit(300)
                    .set_write_batch_size(100)
                    .set_statistics_enabled(EnabledStatistics::None);
                assert_eq!(ask(&table(properties), query), expected, "{:?}", codec());
            }
        }
    }
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_column_encoding("name".into(), Encoding::DELTA_BYTE_ARRAY);
    let Err(Wrong::File(error)) = try_ask(&table(properties), query, Options::default()) else {
        panic!("its values take as much memory as they like");
    };
    assert!(error.to_string().contains("DELTA_BYTE_ARRAY"), "{error}");
}

/// Whatever is asked of a file whose bytes are wrong, an answer or an error comes, and soon.
fn try_all(bytes: Vec<u8>) -> usize {
    let memory = Memory::new(bytes);
    let queries =
        ["SELECT * FROM t", "SELECT sum(id), max(name) FROM t WHERE half < 40 AND sparse IS NULL"];
    let options = Options { longest_record: 4096, groups: 16, state_bytes: 4096, strict: false };
    queries.iter().filter(|query| try_ask(&memory, query, options).is_err()).count()
}

fn small(codec: Compression, version: WriterVersion) -> Vec<u8> {
    let schema = "message m { required int64 id; optional binary name (STRING);
        required double half; optional int32 sparse; optional boolean flag; }";
    let columns = [
        Data::Longs((0..60).map(Some).collect()),
        Data::Texts((0..60).map(|id| Some(format!("name {}", id % 5).into_bytes())).collect()),
        Data::Doubles((0..60).map(|id| Some(f64::from(id) * 2.0)).collect()),
        Data::Ints((0..60).map(|id| (id % 2 == 0).then_some(id)).collect()),
        Data::Bools((0..60).map(|id| Some(id % 3 == 0)).collect()),
    ];
    let properties = WriterProperties::builder().set_compression(codec).set_writer_version(version);
    file(schema, &columns, 30, properties)
}

/// As pyarrow writes a table of a boolean column `b` and a text column `s` without rows: their places are 0.
const NO_ROWS: &str = "504152311504193c35001806736368656d611504001500250218016200150c250218017325004c1c0000001600191c192c26 \
    001c15001915061918016215001600160016002600490c000026001c150c1915061918017315001600160016002600490c00 \
    001600160026001600002820706172717565742d6370702d6172726f772076657273696f6e2032362e302e31192c1c00001c \
    0000009500000050415231";

/// The same with two rows, packed with Brotli.
const BROTLI: &str = "504152311500150e15162c15041500150615061c0000000b038002000000040101031500152015262c15041500150615061c \
    0000001b0f0000043c64bf0935508ac452c471806ae31504193c35001806736368656d611504001500250218016200150c25 \
    0218017325004c1c0000001604191c192c26001c15001925060019180162150816041634163c2608491c150015001502003c \
    29061926000400000026001c150c1925060019180173150816041646164c2644491c150015001502003c1604190619260004 \
    000000167a16042608168801002820706172717565742d6370702d6172726f772076657273696f6e2032362e302e31192c1c \
    00001c000000b800000050415231";

fn of_hex(hex: &str) -> Memory {
    let digits: Vec<char> = hex.chars().filter(|digit| !digit.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16).unwrap();
    Memory::new(digits.chunks(2).map(byte).collect())
}

#[test]
fn columns_of_no_rows_may_be_nowhere() {
    let memory = of_hex(NO_ROWS);
    assert_eq!(ask(&memory, "SELECT * FROM t"), "");
    assert_eq!(ask(&memory, "SELECT s FROM t WHERE b ORDER BY s LIMIT 3"), "");
    assert_eq!(ask(&memory, "SELECT count(*), count(b), max(s) FROM t"), "0,0,\n");
}

#[test]
fn what_pages_are_packed_with_is_told_where_it_is_not_known() {
    let failed = try_ask(&of_hex(BROTLI), "SELECT s FROM t", Options::default()).err();
    let told = format!("{failed:?}");
    assert!(told.contains("Unsupported") && told.contains("brotli"), "{told}");
}

#[test]
fn broken_files_are_told() {
    // The crate's own panics are caught; what they print is of no interest here.
    std::panic::set_hook(Box::new(|_| {}));
    for (codec, version) in [
        (Compression::UNCOMPRESSED, WriterVersion::PARQUET_1_0),
        (Compression::SNAPPY, WriterVersion::PARQUET_2_0),
    ] {
        let whole = small(codec, version);
        assert_eq!(try_all(whole.clone()), 0);
        let mut failed = 0;
        for at in 0..whole.len() {
            for flip in [0x01, 0x80, 0xff, 0x10] {
                let mut bytes = whole.clone();
                bytes[at] ^= flip;
                failed += try_all(bytes);
            }
        }
        assert!(failed > whole.len(), "{failed} of {}", whole.len() * 8);
        for length in 0..whole.len() {
            assert_eq!(try_all(whole[..length].to_vec()), 2, "{length}");
            // What is missing at the beginning moves everything.
            try_all(whole[length..].to_vec());
        }
    }
    drop(std::panic::take_hook());
    // One page of 128 MiB and what it is made of, and a dictionary's values.
    assert!(MOST.get() < 400 << 20, "{} bytes were taken", MOST.get());
}

/// The most that this thread holds from now on, besides what it holds now.
fn most_more(work: impl FnOnce()) -> usize {
    let before = HELD.get();
    MOST.set(before);
    work();
    MOST.get() - before
}

/// A column of zeros in one page that says of itself that it has 1000 bytes.
fn bomb(codec: Compression) -> Vec<u8> {
    let zeros = Data::Longs(vec![Some(0); 8 << 20]);
    let properties = WriterProperties::builder()
        .set_compression(codec)
        .set_dictionary_enabled(false)
        .set_data_page_size_limit(1 << 30)
        .set_data_page_row_count_limit(usize::MAX)
        .set_write_batch_size(8 << 20);
    let mut bytes = file("message m { required int64 id; }", &[zeros], 8 << 20, properties);
    // Field 1 of the head is the kind of the page, field 2 how long it becomes: 2^26, in four bytes.
    let (at, end) = (7, 10);
    assert_eq!(bytes[6..=end], [0x15, 0x80, 0x80, 0x80, 0x40]);
    bytes[at..=end].copy_from_slice(&[0xd0, 0x8f, 0x80, 0x00]);
    bytes
}

#[test]
fn no_page_becomes_longer_than_it_says() {
    for codec in [CODECS[1], CODECS[2], CODECS[3], CODECS[4], || Compression::LZ4] {
        let memory = Memory::new(bomb(codec()));
        let held = most_more(|| {
            let asked = try_ask(&memory, "SELECT sum(id) FROM t", Options::default());
            assert!(asked.is_err(), "{:?}", codec());
        });
        // Some copies of what is compressed; it would become 64 MiB.
        assert!(held < 24 << 20, "{:?}: {held} bytes", codec());
    }
}

#[test]
fn one_text_in_all_records_takes_little_memory() {
    let text = vec![b'a'; 1 << 20];
    let texts = Data::Texts(vec![Some(text); 500]);
    let bytes = {
        let properties = WriterProperties::builder().set_dictionary_page_size_limit(16 << 20);
        file("message m { required binary name (STRING); }", &[texts], 500, properties)
    };
    assert!(bytes.len() < 8 << 20, "the text is there once");
    let memory = Memory::new(bytes);
    let file = memory.open().unwrap();
    let options = Options { longest_record: 2 << 20, ..Options::default() };
    let checked = checked(&file, "SELECT name FROM t", options).unwrap();
    let mut found = 0;
    let held = most_more(|| {
        let readers = vec![Box::new(memory.clone()) as Box<dyn ReadAt>];
        let mut give = |rows: Rows| {
            found += rows.bytes.len();
            true
        };
        file.scan_group(&checked, 0, readers, &mut give).unwrap().result.unwrap();
    });
    assert_eq!(found, 500 * ((1 << 20) + 1));
    assert!(held < 200 << 20, "{held} bytes");
}

#[test]
fn absurd_lengths_are_refused() {
    let whole = small(Compression::UNCOMPRESSED, WriterVersion::PARQUET_1_0);
    let end = whole.len() - 8;
    let mut long = whole.clone();
    long[end..end + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(Memory::new(long).open(), Err(ParquetError::Broken(_))));
    let mut hidden = whole.clone();
    hidden[end + 4..].copy_from_slice(b"PARE");
    assert!(matches!(Memory::new(hidden).open(), Err(ParquetError::Unsupported(_))));
    assert!(matches!(Memory::new(b"PAR1 no".to_vec()).open(), Err(ParquetError::None(_))));
    assert!(matches!(Memory::new(vec![0; 100]).open(), Err(ParquetError::None(_))));
    // A schema whose root claims 2^31 - 1 members, and one that is nested without an end.
    let footer = |schema: &[u8]| {
        let footer = [&[0x15, 2], schema, &[0x16, 0, 0x19, 0x0c, 0]].concat();
        let length = (footer.len() as u32).to_le_bytes();
        Memory::new([b"PAR1", &footer[..], &length, b"PAR1"].concat()).open()
    };
    let many = [0x19, 0x1c, 0x48, 1, b'm', 0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0];
    assert!(matches!(footer(&many), Err(ParquetError::Broken(_))));
    let mut deep = vec![0x19, 0xfc, 0xd0, 0x86, 0x03];
    (0..50_000).for_each(|_| deep.extend([0x35, 0, 0x18, 1, b'g', 0x15, 2, 0]));
    assert!(matches!(footer(&deep), Err(ParquetError::Broken(_))));
    // Two roots, one that lacks a member, and more members than anybody has.
    let column = [0x15, 2, 0x25, 0, 0x18, 1, b'c', 0];
    let root = |members: u8| [0x48, 1, b'm', 0x15, 2 * members, 0];
    let one = [&[0x19, 0x2c], &root(1)[..], &column].concat();
    assert!(footer(&one).is_ok(), "{:?}", footer(&one).err());
    let two = [&[0x19, 0x3c], &root(1)[..], &column, &column].concat();
    assert!(matches!(footer(&two), Err(ParquetError::Broken(_))));
    let lacks = [&[0x19, 0x3c], &root(3)[..], &column, &column].concat();
    assert!(matches!(footer(&lacks), Err(ParquetError::Broken(_))));
    // 270,000 groups of rows, without any columns.
    let schema = [&[0x15, 2, 0x19, 0x2c], &root(1)[..], &column].concat();
    let group = [0x19, 0x0c, 0x16, 0, 0x16, 0, 0];
    let groups =
        [&schema[..], &[0x16, 0, 0x19, 0xfc, 0xb0, 0xbd, 0x10], &group.repeat(270_000), &[0]];
    let groups = groups.concat();
    let length = (groups.len() as u32).to_le_bytes();
    let groups = Memory::new([b"PAR1", &groups[..], &length, b"PAR1"].concat()).open();
    assert!(matches!(groups, Err(ParquetError::Large(_))), "{:?}", groups.err());
    let mut many = vec![0x19, 0xfc, 0xa1, 0x8d, 0x06, 0x48, 1, b'm', 0x15, 0xc0, 0x9a, 0x0c, 0];
    (0..100_000).for_each(|_| many.extend(column));
    assert!(matches!(footer(&many), Err(ParquetError::Large(_))));
    assert!(MOST.get() < 64 << 20, "{} bytes were taken", MOST.get());
}

#[test]
fn values_are_those_of_their_types() {
    let memory = Memory::new(file(KINDS, &kinds(), 3, WriterProperties::builder()));
    let query = "SELECT max(flag), max(single), min(price), max(day) FROM t WHERE small < 0";
    let Merged::Aggregate(rows) = try_ask(&memory, query, Options::default()).unwrap().merged
    else {
        panic!("it is an aggregate");
    };
    let day = Value::Text(b"2024-02-29".to_vec());
    assert_eq!(rows, [[Value::Bool(true), Value::Float(0.5), Value::Float(1.1), day]]);
}
