//! A batch: up to 1024 whole records that lie one after the other in one slice.

use crate::columnar::ColumnBatch;
use crate::format::Format;
use crate::vector::BATCH;

/// The bytes of a batch, or its columns, and what is known of its records.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'a> {
    /// From the first record's beginning to the last one's end, at least.
    pub(crate) bytes: &'a [u8],
    /// Where they begin in the file.
    pub(crate) offset: u64,
    /// Records.
    pub(crate) count: usize,
    pub(crate) bounds: &'a Bounds,
    /// What there is instead of bytes that are records; `bytes` are those of its texts then.
    pub(crate) columns: Option<&'a ColumnBatch>,
}

/// Where the records of a batch begin and end; offsets in the batch's bytes.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    pub(crate) starts: Vec<u32>,
    /// The end of what is in the record: before its line end.
    pub(crate) ends: Vec<u32>,
    /// The end of all its bytes.
    pub(crate) nexts: Vec<u32>,
    /// How many are where fixed records of so many bytes are.
    fixed: (usize, usize),
}

/// A cut of a slice into records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Records found.
    pub(crate) count: usize,
    /// Bytes that they take, with what is no record before and between them.
    pub(crate) bytes: usize,
    /// Whether one of them is longer than records may be.
    pub(crate) overlong: bool,
}

impl Bounds {
    pub(crate) const MEMORY_BYTES: usize = 3 * size_of::<u32>() * BATCH;

    pub(crate) fn new() -> Bounds {
        let zeros = || vec![0; BATCH];
        Bounds { starts: zeros(), ends: zeros(), nexts: zeros(), fixed: (0, 0) }
    }

    /// Where a record begins and where what is in it ends.
    #[inline]
    pub(crate) fn content(&self, index: usize) -> std::ops::Range<usize> {
        self.starts[index] as usize..self.ends[index] as usize
    }

    fn set(&mut self, index: usize, start: usize, end: usize, next: usize) {
        self.starts[index] = start as u32;
        self.ends[index] = end as u32;
        self.nexts[index] = next as u32;
        self.fixed = (0, 0);
    }

    /// Whole fixed records of `size` bytes, as many as there are and a batch holds.
    pub(crate) fn cut_fixed(&mut self, bytes: usize, size: usize) -> Cut {
        let count = (bytes / size).min(BATCH);
        let known = match self.fixed {
            (known, bytes) if bytes == size => known,
            _ => 0,
        };
        for index in known..count {
            self.set(index, index * size, (index + 1) * size, (index + 1) * size);
        }
        self.fixed = (known.max(count), size);
        Cut { count, bytes: count * size, overlong: false }
    }

    /// Whole lines, as many as there are and a batch holds. A line that is `longest` bytes or more is
    /// still one; the caller finds those.
    pub(crate) fn cut_lines(&mut self, bytes: &[u8], format: &Format, longest: usize) -> Cut {
        let mut cut = Cut::default();
        for line_end in memchr::memchr_iter(b'\n', bytes) {
            let start = cut.bytes;
            let carriage_return = line_end > start && bytes[line_end - 1] == b'\r';
            let end = line_end - usize::from(carriage_return);
            let next = line_end + 1;
            cut.bytes = next;
            let blank = end == start || is_blank(&bytes[start..end], format);
            // One that is too long counts as bad, as it does where it comes in parts.
            if blank && skips_blanks(format) && next - start <= longest {
                continue;
            }
            cut.overlong |= next - start > longest;
            self.set(cut.count, start, end, next);
            cut.count += 1;
            if cut.count == BATCH {
                break;
            }
        }
        cut
    }

    /// The last line of a file, without a line end.
    pub(crate) fn cut_last_line(&mut self, bytes: &[u8], format: &Format) -> Cut {
        let blank = bytes.is_empty() || is_blank(bytes, format);
        if blank && skips_blanks(format) {
            return Cut { count: 0, bytes: bytes.len(), overlong: false };
        }
        self.set(0, 0, bytes.len(), bytes.len());
        Cut { count: 1, bytes: bytes.len(), overlong: false }
    }
}

/// Whether a line that is not empty counts as blank.
#[inline]
fn is_blank(line: &[u8], format: &Format) -> bool {
    // Most lines are told by their first byte.
    matches!(format, Format::JsonLines(_))
        && matches!(line[0], b' ' | b'\t' | b'\r')
        && line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
}

/// Whether blank lines are no records. With one column an empty line is NULL.
#[inline]
fn skips_blanks(format: &Format) -> bool {
    match format {
        Format::Delimited(delimited) => delimited.columns.len() > 1,
        Format::JsonLines(_) => true,
        Format::Fixed(_) | Format::Columns(_) => false,
    }
}
