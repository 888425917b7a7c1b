//! The pages of one column of a group of rows: read ahead of what is decoded, and looked at before they are.

use super::thrift::{Seen, walk};
use super::{MAX_GROUP_BYTES, MAX_PAGE_BYTES, ParquetError, ReadAt, broken};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use parquet::basic::{Compression, Encoding, Type as Physical};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::Result as PageResult;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::properties::ReaderProperties;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use std::io::{Cursor, Read};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes in which the head of a page mostly is, and the most that one may have.
const HEAD_BYTES: [u64; 2] = [4 << 10, 1 << 20];

/// Bytes that a value of a dictionary takes besides its own.
const ENTRY_BYTES: u64 = 32;

/// What all columns of a group may have decoded at a time.
#[derive(Debug, Default)]
pub(super) struct Budget {
    taken: AtomicU64,
}

/// One column of a group, in the file.
pub(super) struct Chunk {
    reader: Box<dyn ReadAt>,
    range: Range<u64>,
    /// Bytes that are read at a time.
    step: u64,
    /// Least bytes of a value in a dictionary.
    least: u64,
    compression: Compression,
    budget: Arc<Budget>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Where the bytes begin that were read last.
    start: u64,
    bytes: Bytes,
    /// Of the budget: for a dictionary, for all pages that values may be of still, and for the last of these.
    dictionary: u64,
    pages: u64,
    last: u64,
    /// What the page whose head was seen last must not inflate to more than: bytes before it in the page, and bytes.
    inflated: Option<(u64, u64)>,
}

impl Chunk {
    pub(super) fn new(
        reader: Box<dyn ReadAt>,
        range: Range<u64>,
        column: &ColumnChunkMetaData,
        step: u64,
        budget: &Arc<Budget>,
    ) -> Chunk {
        let length = u64::try_from(column.column_descr().type_length()).unwrap_or(1);
        let least = match column.column_type() {
            Physical::BOOLEAN => 1,
            Physical::INT32 | Physical::FLOAT | Physical::BYTE_ARRAY => 4,
            Physical::INT64 | Physical::DOUBLE => 8,
            Physical::INT96 => 12,
            Physical::FIXED_LEN_BYTE_ARRAY => length.max(1),
        };
        let compression = column.compression();
        let state = Mutex::new(State { start: range.start, ..State::default() });
        Chunk { reader, range, step, least, compression, budget: Arc::clone(budget), state }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic leaves it half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Values of pages before the last one are not there any more.
    pub(super) fn forget(&self) {
        let mut state = self.lock();
        self.budget.give_back(state.pages - state.last);
        state.pages = state.last;
    }

    fn fetch(&self, start: u64, length: u64) -> Result<Bytes, ParquetError> {
        let end = start.saturating_add(length);
        if start < self.range.start || end > self.range.end {
            return broken("a page is behind the end of its column");
        }
        let mut state = self.lock();
        let known = state.start..state.start + state.bytes.len() as u64;
        if start < known.start || end > known.end {
            let kept = match known.contains(&start) {
                true => state.bytes.slice((start - known.start) as usize..),
                false => Bytes::new(),
            };
            let from = start + kept.len() as u64;
            let until = end.max(from.saturating_add(self.step)).min(self.range.end);
            let mut bytes = vec![0; (until - start) as usize];
            let (old, new) = bytes.split_at_mut(kept.len());
            old.copy_from_slice(&kept);
            self.reader.read_at(from, new).map_err(ParquetError::Read)?;
            (state.start, state.bytes) = (start, bytes.into());
        }
        let at = (start - state.start) as usize;
        Ok(state.bytes.slice(at..at + length as usize))
    }

    /// The head of the page at `start`, when it was seen to be one that can be decoded.
    fn head(&self, start: u64) -> Result<Bytes, ParquetError> {
        let rest = self.range.end.saturating_sub(start);
        for most in HEAD_BYTES {
            let bytes = self.fetch(start, most.min(rest))?;
            let mut head = Head::default();
            if let Some(length) = walk(&bytes, &mut |path, seen| head.see(path, seen)) {
                self.admit(&head)?;
                return Ok(bytes.slice(..length));
            }
            if most >= rest {
                break;
            }
        }
        broken("the head of a page can't be understood")
    }

    fn admit(&self, head: &Head) -> Result<(), ParquetError> {
        let size = |bytes: i64| match u64::try_from(bytes) {
            Ok(bytes) if bytes <= MAX_PAGE_BYTES => Ok(bytes),
            Ok(bytes) => Err(ParquetError::Large(format!("a page of {bytes} bytes"))),
            Err(_) => broken("a page has less than no bytes"),
        };
        let (read, decoded) = (size(head.read)?, size(head.decoded)?);
        // What values are decoded from, and what there is of the page at a time.
        let is_plain = self.compression == Compression::UNCOMPRESSED;
        let (bytes, most) = if is_plain { (read, read) } else { (decoded, read.max(decoded)) };
        let mut state = self.lock();
        if matches!(self.compression, Compression::GZIP(_)) {
            let levels = size(head.levels)?;
            state.inflated = Some((levels, decoded.saturating_sub(levels)));
        }
        let taken = match head.values {
            None => most,
            Some(values) => {
                let values = u64::try_from(values).unwrap_or(u64::MAX);
                if values.checked_mul(self.least).is_none_or(|least| least > bytes) {
                    return broken("a dictionary is shorter than its values");
                }
                most + values * ENTRY_BYTES
            }
        };
        self.budget.take(taken)?;
        if head.values.is_some() {
            state.dictionary += taken;
        } else {
            state.pages += taken;
            state.last = taken;
        }
        Ok(())
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let state = self.lock();
        self.budget.give_back(state.dictionary + state.pages);
    }
}

impl Budget {
    fn take(&self, bytes: u64) -> Result<(), ParquetError> {
        let before = self.taken.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > MAX_GROUP_BYTES {
            self.give_back(bytes);
            let text = "the pages of a group of rows that are decoded at a time".to_owned();
            return Err(ParquetError::Large(text));
        }
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Whoever inflates a page does so to its end, however long it becomes: it is done once before, without keeping anything.
fn check_inflated(page: &[u8], levels: u64, most: u64) -> Result<(), ParquetError> {
    let data = usize::try_from(levels).ok().and_then(|levels| page.get(levels..));
    let mut inflating = MultiGzDecoder::new(data.unwrap_or_default()).take(most + 1);
    let (mut scratch, mut found) = ([0; 16 << 10], 0);
    // What is no such data is told by who wants it.
    while let Ok(bytes @ 1..) = inflating.read(&mut scratch) {
        found += bytes as u64;
    }
    match found <= most {
        true => Ok(()),
        false => broken("a page is longer than it says"),
    }
}

/// What the head of a page claims.
#[derive(Default)]
struct Head {
    decoded: i64,
    read: i64,
    /// Values of a dictionary, if it is one.
    values: Option<i64>,
    /// Bytes before what is compressed.
    levels: i64,
}

impl Head {
    fn see(&mut self, path: &[i16], seen: Seen) {
        match (path, seen) {
            ([2], Seen::Int(bytes)) => self.decoded = bytes,
            ([3], Seen::Int(bytes)) => self.read = bytes,
            ([7], Seen::Struct) => self.values = Some(0),
            ([7, 1], Seen::Int(values)) => self.values = Some(values),
            ([8, 5 | 6], Seen::Int(bytes)) => self.levels = self.levels.saturating_add(bytes),
            _ => {}
        }
    }
}

impl Length for Chunk {
    fn len(&self) -> u64 {
        self.range.end
    }
}

impl ChunkReader for Chunk {
    type T = Cursor<Bytes>;

    /// Nothing but heads of pages is read so.
    fn get_read(&self, start: u64) -> PageResult<Cursor<Bytes>> {
        Ok(Cursor::new(self.head(start)?))
    }

    fn get_bytes(&self, start: u64, length: usize) -> PageResult<Bytes> {
        let bytes = self.fetch(start, length as u64)?;
        let inflated = self.lock().inflated.take();
        if let Some((levels, most)) = inflated {
            check_inflated(&bytes, levels, most)?;
        }
        Ok(bytes)
    }
}

/// The pages, of which those are refused whose decoder takes their word for how much memory it needs.
pub(super) struct Pages {
    inner: SerializedPageReader<Chunk>,
    has_levels: bool,
}

impl Pages {
    pub(super) fn new(
        chunk: &Arc<Chunk>,
        column: &ColumnChunkMetaData,
        rows: usize,
    ) -> Result<Pages, ParquetError> {
        // Some write 0 where there is no dictionary.
        let without = match column.dictionary_page_offset() {
            Some(0) => {
                Some(column.clone().into_builder().set_dictionary_page_offset(None).build()?)
            }
            _ => None,
        };
        // Other forms of LZ4, of old programs, say nothing of how long they become.
        let properties = ReaderProperties::builder().set_backward_compatible_lz4(false).build();
        let inner = SerializedPageReader::new_with_properties(
            Arc::clone(chunk),
            without.as_ref().unwrap_or(column),
            rows,
            None,
            Arc::new(properties),
        )?;
        Ok(Pages { inner, has_levels: column.column_descr().max_def_level() > 0 })
    }

    fn check(&self, page: &Page) -> Result<(), ParquetError> {
        let (buffer, values, begin) = match page {
            Page::DictionaryPage { encoding, .. } => {
                return check_encoding(*encoding, &[Encoding::PLAIN, Encoding::PLAIN_DICTIONARY]);
            }
            Page::DataPage { buf, num_values, def_level_encoding, .. } => {
                let levels = match (self.has_levels, buf.first_chunk::<4>()) {
                    (false, _) => 0,
                    (true, None) => return broken("a page is too short"),
                    (true, Some(length)) => u64::from(u32::from_le_bytes(*length)) + 4,
                };
                if self.has_levels {
                    check_encoding(*def_level_encoding, &[Encoding::RLE])?;
                }
                (buf, *num_values, levels)
            }
            Page::DataPageV2 {
                buf, num_values, def_levels_byte_len, rep_levels_byte_len, ..
            } => {
                let levels = u64::from(*def_levels_byte_len) + u64::from(*rep_levels_byte_len);
                (buf, *num_values, levels)
            }
        };
        let data = usize::try_from(begin).ok().and_then(|begin| buffer.get(begin..));
        let Some(data) = data else {
            return broken("a page is shorter than its levels");
        };
        match page.encoding() {
            Encoding::DELTA_LENGTH_BYTE_ARRAY => check_lengths(data, values),
            encoding => check_encoding(encoding, ENCODINGS),
        }
    }
}

/// Those that decode no more values than are wanted. Of `DELTA_BYTE_ARRAY` each value may be as long as all before it together.
const ENCODINGS: &[Encoding] = &[
    Encoding::PLAIN,
    Encoding::PLAIN_DICTIONARY,
    Encoding::RLE,
    Encoding::RLE_DICTIONARY,
    Encoding::DELTA_BINARY_PACKED,
    Encoding::BYTE_STREAM_SPLIT,
];

fn check_encoding(encoding: Encoding, known: &[Encoding]) -> Result<(), ParquetError> {
    match known.contains(&encoding) {
        true => Ok(()),
        false => Err(ParquetError::Unsupported(format!("the encoding {encoding}"))),
    }
}

/// How many lengths there are is written before them: the third number.
fn check_lengths(data: &[u8], values: u32) -> Result<(), ParquetError> {
    let (mut numbers, mut number, mut shift) = (Vec::new(), 0_u64, 0);
    for byte in data.iter().take(30) {
        if shift < 63 {
            number |= u64::from(byte & 0x7f) << shift;
        }
        shift += 7;
        if *byte < 0x80 {
            numbers.push(number);
            (number, shift) = (0, 0);
        }
    }
    match numbers.get(2) {
        Some(lengths) if *lengths <= u64::from(values) => Ok(()),
        _ => broken("a page has more texts than values"),
    }
}

impl Iterator for Pages {
    type Item = PageResult<Page>;

    fn next(&mut self) -> Option<PageResult<Page>> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> PageResult<Option<Page>> {
        let page = self.inner.get_next_page()?;
        if let Some(page) = &page {
            self.check(page)?;
        }
        Ok(page)
    }

    // Only who skips records or has nested ones asks for these.
    fn peek_next_page(&mut self) -> PageResult<Option<PageMetadata>> {
        Err(ParquetError::Unsupported("looking at pages before they are read".to_owned()).into())
    }

    fn skip_next_page(&mut self) -> PageResult<()> {
        Err(ParquetError::Unsupported("skipping pages".to_owned()).into())
    }
}
