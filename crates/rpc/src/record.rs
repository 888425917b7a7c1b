//! Record marking (RFC 5531 section 11): how messages are told apart on a byte stream.
//!
//! A record is one or more fragments. In front of each stands a mark of four bytes: the highest bit
//! says that this fragment is the record's last, the other 31 give its length in bytes.
//!
//! [`RecordParser`] is pure: it says what the next bytes of the stream are ([`Expect`]), the owner
//! of the socket reads them wherever it wants them, and tells the parser. So bulk data can be
//! received straight into its place even when a peer cuts its records into small fragments, as
//! libtirpc does.

use nasd_xdr::Encoder;

/// Bytes of a mark.
pub const RECORD_MARK_BYTES: usize = 4;

/// The bit of the last fragment; the others are the length.
const LAST_FRAGMENT: u32 = 1 << 31;

/// The mark in front of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordMark {
    /// Whether the record ends with this fragment.
    pub last: bool,
    /// Bytes of the fragment, without the mark; below 2^31.
    pub length: u32,
}

impl RecordMark {
    /// The four bytes on the wire. The highest bit of `length` is ignored.
    pub const fn to_bytes(self) -> [u8; RECORD_MARK_BYTES] {
        let flag = if self.last { LAST_FRAGMENT } else { 0 };
        (flag | (self.length & !LAST_FRAGMENT)).to_be_bytes()
    }

    /// From the four bytes on the wire.
    pub const fn from_bytes(bytes: [u8; RECORD_MARK_BYTES]) -> Self {
        let word = u32::from_be_bytes(bytes);
        RecordMark { last: word & LAST_FRAGMENT != 0, length: word & !LAST_FRAGMENT }
    }
}

/// What is wrong with the stream. There is no way to find the next record after it: the connection
/// must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The record is longer than this end accepts, or than a mark can say.
    #[error("a record of {length} bytes or more is above the limit of {limit}")]
    TooLong {
        /// Bytes of the record so far, the refused fragment included.
        length: u64,
        /// Most bytes that a record may have.
        limit: usize,
    },
    /// A fragment without bytes that is not the last: a peer could send those for ever.
    #[error("an empty fragment in the middle of a record")]
    EmptyFragment,
}

/// An encoder for a record that will be sent as one fragment: room for the mark, then nothing.
/// `capacity` is a guess at the bytes that will be encoded.
pub fn begin_record(capacity: usize) -> Encoder {
    let mut bytes = Vec::with_capacity(RECORD_MARK_BYTES + capacity);
    bytes.extend_from_slice(&[0; RECORD_MARK_BYTES]);
    Encoder::append_to(bytes)
}

/// Fills in the mark of a record begun with [`begin_record`]. `following` more bytes of the same
/// record (bulk data and its padding) will be sent behind `record`, from elsewhere.
///
/// # Errors
///
/// [`RecordError::TooLong`] if the length does not fit a mark.
///
/// # Panics
///
/// If `record` has no room for a mark: it was not begun with [`begin_record`].
pub fn seal_record(record: &mut [u8], following: usize) -> Result<(), RecordError> {
    const LIMIT: usize = (LAST_FRAGMENT - 1) as usize;
    let (mark, head) = record
        .split_first_chunk_mut::<RECORD_MARK_BYTES>()
        .expect("invariant: begin_record left room for the mark");
    let length = head.len().saturating_add(following);
    match u32::try_from(length) {
        Ok(length) if length < LAST_FRAGMENT => {
            *mark = RecordMark { last: true, length }.to_bytes();
            Ok(())
        }
        _ => Err(RecordError::TooLong { length: length as u64, limit: LIMIT }),
    }
}

/// What the next bytes of the stream are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// So many bytes of a mark, 1 to 4: give them to [`RecordParser::mark`].
    Mark(usize),
    /// So many bytes of the record: read any number of them anywhere and tell
    /// [`RecordParser::consumed`].
    Body(usize),
    /// Nothing: the record is complete. [`RecordParser::restart`] begins the next.
    End,
}

/// Follows the marks of one stream.
#[derive(Clone, Debug)]
pub struct RecordParser {
    limit: usize,
    /// The part of the mark that has come.
    mark: [u8; RECORD_MARK_BYTES],
    mark_bytes: usize,
    /// Bytes of the record that earlier marks announced, the present one included.
    announced: usize,
    /// Bytes of the present fragment that have not come.
    left: usize,
    last: bool,
}

impl RecordParser {
    /// At the start of a record; records above `limit` bytes (marks not counted) are refused.
    pub const fn new(limit: usize) -> Self {
        RecordParser { limit, mark: [0; 4], mark_bytes: 0, announced: 0, left: 0, last: false }
    }

    /// What comes next.
    pub const fn expect(&self) -> Expect {
        if self.left > 0 {
            Expect::Body(self.left)
        } else if self.last {
            Expect::End
        } else {
            Expect::Mark(RECORD_MARK_BYTES - self.mark_bytes)
        }
    }

    /// Bytes of the record that its marks have announced so far: its whole length as soon as
    /// [`is_last`](Self::is_last).
    pub const fn announced(&self) -> usize {
        self.announced
    }

    /// Whether the present fragment is the record's last.
    pub const fn is_last(&self) -> bool {
        self.last
    }

    /// Whether the stream stands between two records: the only place where its end is no error.
    pub const fn is_at_start(&self) -> bool {
        self.announced == 0 && self.mark_bytes == 0 && !self.last
    }

    /// Takes bytes of a mark from the front of `bytes`; returns how many it took, which is 0 where
    /// no mark is expected.
    ///
    /// # Errors
    ///
    /// [`RecordError`] as soon as the mark is whole and wrong.
    pub fn mark(&mut self, bytes: &[u8]) -> Result<usize, RecordError> {
        let Expect::Mark(wanted) = self.expect() else {
            return Ok(0);
        };
        let taken = wanted.min(bytes.len());
        self.mark[self.mark_bytes..self.mark_bytes + taken].copy_from_slice(&bytes[..taken]);
        self.mark_bytes += taken;
        if self.mark_bytes == RECORD_MARK_BYTES {
            self.begin_fragment(RecordMark::from_bytes(self.mark))?;
        }
        Ok(taken)
    }

    fn begin_fragment(&mut self, mark: RecordMark) -> Result<(), RecordError> {
        if mark.length == 0 && !mark.last {
            return Err(RecordError::EmptyFragment);
        }
        // Marks have 31 bits and `limit` bounds what was announced, so this sum can't overflow.
        let length = self.announced as u64 + u64::from(mark.length);
        let fits = usize::try_from(length).ok().filter(|&length| length <= self.limit);
        let Some(announced) = fits else {
            return Err(RecordError::TooLong { length, limit: self.limit });
        };
        self.left = announced - self.announced;
        self.announced = announced;
        self.last = mark.last;
        self.mark_bytes = 0;
        Ok(())
    }

    /// Tells that `count` bytes of the record have been read; at most those that
    /// [`Expect::Body`] named count.
    pub fn consumed(&mut self, count: usize) {
        debug_assert!(count <= self.left, "more was read than the fragment holds");
        self.left = self.left.saturating_sub(count);
    }

    /// Begins the next record.
    pub fn restart(&mut self) {
        debug_assert_eq!(self.expect(), Expect::End, "the record has not ended");
        *self = RecordParser::new(self.limit);
    }

    /// Takes what belongs to the present record from the front of `bytes` and appends its contents
    /// to `record`. Returns how many bytes it took; the record is complete when
    /// [`expect`](Self::expect) is [`Expect::End`]. For small records, and where a copy is welcome.
    ///
    /// # Errors
    ///
    /// [`RecordError`].
    pub fn push(&mut self, bytes: &[u8], record: &mut Vec<u8>) -> Result<usize, RecordError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = match self.expect() {
                Expect::End => break,
                Expect::Mark(_) => self.mark(rest)?,
                Expect::Body(left) => {
                    let taken = left.min(rest.len());
                    record.extend_from_slice(&rest[..taken]);
                    self.consumed(taken);
                    taken
                }
            };
            rest = &rest[taken..];
        }
        Ok(bytes.len() - rest.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_those_of_the_rfc() {
        let mark = RecordMark { last: true, length: 0x0123_4567 };
        assert_eq!(mark.to_bytes(), [0x81, 0x23, 0x45, 0x67]);
        assert_eq!(RecordMark::from_bytes(mark.to_bytes()), mark);
        let more = RecordMark { last: false, length: 4000 };
        assert_eq!(more.to_bytes(), [0, 0, 0x0f, 0xa0]);
        assert_eq!(RecordMark::from_bytes(more.to_bytes()), more);
    }

    #[test]
    fn sealing_counts_head_and_what_follows() {
        let mut out = begin_record(8);
        out.u32(1);
        out.u32(2);
        let mut record = out.into_bytes();
        assert_eq!(seal_record(&mut record, 100), Ok(()));
        assert_eq!(record[..4], RecordMark { last: true, length: 108 }.to_bytes());
        assert!(seal_record(&mut record, u32::MAX as usize).is_err());
        assert!(seal_record(&mut record, (1 << 31) - 8).is_err());
        assert_eq!(seal_record(&mut record, (1 << 31) - 9), Ok(()));
    }

    #[test]
    fn the_limit_spans_fragments() {
        let mut parser = RecordParser::new(10);
        assert!(parser.is_at_start());
        assert_eq!(parser.mark(&RecordMark { last: false, length: 6 }.to_bytes()), Ok(4));
        assert_eq!(parser.expect(), Expect::Body(6));
        assert!(!parser.is_at_start());
        parser.consumed(6);
        let five = RecordMark { last: true, length: 5 }.to_bytes();
        assert_eq!(parser.mark(&five), Err(RecordError::TooLong { length: 11, limit: 10 }));
    }

    #[test]
    fn empty_fragments_are_allowed_only_at_the_end() {
        let mut parser = RecordParser::new(10);
        let empty = RecordMark { last: false, length: 0 }.to_bytes();
        assert_eq!(parser.mark(&empty), Err(RecordError::EmptyFragment));

        let mut parser = RecordParser::new(10);
        parser.mark(&RecordMark { last: false, length: 1 }.to_bytes()).unwrap();
        parser.consumed(1);
        parser.mark(&RecordMark { last: true, length: 0 }.to_bytes()).unwrap();
        assert_eq!((parser.expect(), parser.announced()), (Expect::End, 1));
        parser.restart();
        assert!(parser.is_at_start());
    }
}
