//! Hints from programs, by ioctl(2) on an open file or directory of the mount (`docs/hints.md`): what they will read, in order.
//!
//! The hints of one open file or directory are a stream, which is over when that is closed.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use nasd_clerk::{Caller, Clerk, ClerkError, FileHandle, Hints, OpenFile};
use nasd_fuse::Errno;
use nasd_types::ByteRange;

use crate::attributes::errno;

/// The request: `_IOW('N', 0x48, char[8192])`, a little-endian number of 32 bits with the bytes of text that follow it, and these.
pub(crate) const COMMAND: u32 = 1 << 30 | (REQUEST_BYTES as u32) << 16 | (b'N' as u32) << 8 | 0x48;

/// A flag of the kernel's: the request was made on a directory (`FUSE_IOCTL_DIR`).
pub(crate) const OF_A_DIRECTORY: u32 = 1 << 4;

pub(crate) const REQUEST_BYTES: usize = 8192;
pub(crate) const HEAD_BYTES: usize = 4;

/// A part of a file that will be read: `OFFSET LENGTH PATH`, ended by a zero byte. No length is all that there is.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    range: Option<ByteRange>,
    /// From the directory that the request was made on; empty on a file.
    path: &'a [u8],
}

/// What a request says.
fn lines(data: &[u8]) -> Option<Vec<Line<'_>>> {
    let (head, text) = data.split_first_chunk::<HEAD_BYTES>()?;
    let text = text.get(..usize::try_from(u32::from_le_bytes(*head)).ok()?)?;
    let (text, end) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if end != [0] {
        return None;
    }
    text.split(|byte| *byte == 0).map(Line::parse).collect()
}

impl<'a> Line<'a> {
    fn parse(line: &'a [u8]) -> Option<Line<'a>> {
        let mut words = line.splitn(3, |byte| *byte == b' ');
        let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<u64>().ok();
        let (offset, length) = (number()?, number()?);
        let path = words.next().unwrap_or_default();
        let range = match (offset, length) {
            (0, 0) => None,
            (offset, 0) => Some(ByteRange::new(offset, (1 << 62) - offset.min(1 << 62))),
            (offset, length) => {
                Some(ByteRange::new(offset, length.min((1 << 62) - offset.min(1 << 62))))
            }
        };
        Some(Line { range, path })
    }
}

/// What the hints of an open file or directory are of.
pub(crate) enum Base<'a> {
    File(&'a OpenFile),
    Directory(FileHandle),
}

/// The stream of hints of one open file or directory, if there are any.
#[derive(Default)]
pub(crate) struct StreamOfHints(Mutex<Option<Hints>>);

impl StreamOfHints {
    /// Takes a request; how many of its lines were taken, of which there is always one.
    pub(crate) fn take(
        &self,
        clerk: &Arc<Clerk>,
        caller: &Arc<Caller>,
        base: &Base<'_>,
        data: &[u8],
    ) -> Result<i32, Errno> {
        let lines = lines(data).ok_or(Errno::EINVAL)?;
        let is_of_a_file = matches!(base, Base::File(_));
        if lines.iter().any(|line| line.path.is_empty() != is_of_a_file) {
            return Err(Errno::EINVAL);
        }
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hints = match &mut *stream {
            Some(hints) => hints,
            none => none.insert(clerk.hints(caller).map_err(|error| errno(&error))?),
        };
        let mut taken = 0;
        for line in lines {
            let told = match base {
                Base::File(file) => hints.add(file, &[within(file, line.range)]),
                Base::Directory(directory) => hints.add_path(*directory, line.path, line.range),
            };
            match told {
                Ok(()) => taken += 1,
                Err(ClerkError::TooManyHints) if taken > 0 => break,
                Err(error) => return Err(errno(&error)),
            }
        }
        Ok(taken)
    }
}

/// A range of a file, as far as that goes now.
fn within(file: &OpenFile, range: Option<ByteRange>) -> ByteRange {
    let whole = ByteRange::new(0, file.size());
    range.map_or(whole, |range| range.intersection(&whole))
}

impl fmt::Debug for StreamOfHints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamOfHints")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &[u8]) -> Vec<u8> {
        let mut data = (text.len() as u32).to_le_bytes().to_vec();
        data.extend_from_slice(text);
        data.resize(REQUEST_BYTES, 0);
        data
    }

    #[test]
    fn a_request_is_lines_of_ranges_and_paths() {
        assert_eq!(COMMAND, 0x6000_4e48);
        let data = request(b"0 0 a b\x007 9 dir/\xff\n\0");
        let expected = [
            Line { range: None, path: b"a b" },
            Line { range: Some(ByteRange::new(7, 9)), path: b"dir/\xff\n" },
        ];
        assert_eq!(lines(&data).unwrap(), expected);
        let data = request(b"5 0\0");
        let own = lines(&data).unwrap();
        assert_eq!(own, [Line { range: Some(ByteRange::new(5, (1 << 62) - 5)), path: b"" }]);
    }

    #[test]
    fn nonsense_is_none() {
        let mut short = request(b"0 0 a\0");
        short.truncate(9);
        assert_eq!(lines(&short), None);
        assert_eq!(lines(&[]), None);
        for text in [&b""[..], b"0 0 a", b"0 a\0", b"-1 0 a\0", b"0 0 a\0\0", b"\0", b"x\0"] {
            assert_eq!(lines(&request(text)), None, "{}", text.escape_ascii());
        }
        let largest = format!("{} {} a\0", u64::MAX, u64::MAX);
        assert!(lines(&request(largest.as_bytes())).is_some());
        let mut long = request(b"0 0 a\0");
        long[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(lines(&long), None);
    }
}
