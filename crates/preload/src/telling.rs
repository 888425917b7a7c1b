//! What is asked of a mount, by ioctl(2) on an open file (`docs/bulk-preload.md`).

use std::ffi::{c_int, c_ulong};

use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::error::{errno, last_error, set_errno};

/// Bytes of the request and of its answer.
pub(crate) const BYTES: usize = 16_000;

/// The way to a file's bytes: `_IOWR('N', 0x49, char[16000])`.
const GRANT: c_ulong = 3 << 30 | (BYTES as c_ulong) << 16 | (b'N' as c_ulong) << 8 | 0x49;

/// The file was changed: `_IO('N', 0x4a)`.
const CHANGED: c_ulong = (b'N' as c_ulong) << 8 | 0x4a;

/// Asks for what opens the file at its drives, for reading (1), writing (2) or both (3): the text, which is a secret.
pub(crate) fn grant(fd: c_int, wanted: u32) -> Result<Zeroizing<Vec<u8>>, Errno> {
    // Not on the stack, which is the program's and may be small.
    let mut bytes = Zeroizing::new(vec![0; BYTES]);
    bytes[..4].copy_from_slice(&wanted.to_le_bytes());
    let before = errno();
    // SAFETY: the request says how many bytes there are.
    let told = unsafe { libc::ioctl(fd, GRANT, bytes.as_mut_ptr()) };
    let failed = (told < 0).then(last_error);
    set_errno(before);
    if let Some(error) = failed {
        return Err(error);
    }
    text(&bytes).map(|text| Zeroizing::new(text.to_vec())).ok_or(Errno::PROTO)
}

/// The text of an answer: its length in four bytes, and it.
fn text(answer: &[u8]) -> Option<&[u8]> {
    let (length, text) = answer.split_first_chunk::<4>()?;
    text.get(..usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

/// Tells that the file was changed. Who can't take it has cached nothing.
pub(crate) fn changed(fd: c_int) {
    let before = errno();
    // SAFETY: it has no argument.
    unsafe { libc::ioctl(fd, CHANGED, 0) };
    set_errno(before);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_their_numbers() {
        assert_eq!(GRANT, 0xfe80_4e49);
        assert_eq!(CHANGED, 0x4e4a);
    }

    #[test]
    fn an_answer_is_as_long_as_it_says() {
        assert_eq!(text(b"\x02\0\0\0abc"), Some(&b"ab"[..]));
        assert_eq!(text(b"\0\0\0\0"), Some(&b""[..]));
        assert_eq!(text(b"\x04\0\0\0abc"), None);
        assert_eq!(text(b"\xff\xff\xff\xffabc"), None);
        assert_eq!(text(b"\x01\0\0"), None);
    }

    #[test]
    fn other_files_know_nothing_of_it() {
        use std::os::fd::AsRawFd;
        set_errno(libc::EXDEV);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(grant(file.as_raw_fd(), 1).err(), Some(Errno::NOTTY));
        changed(file.as_raw_fd());
        assert_eq!(errno(), libc::EXDEV);
    }
}
