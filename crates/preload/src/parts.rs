//! The memory of a program that is read into, or written from.

use std::ffi::c_void;

use libc::iovec;

use crate::error::PreloadError;

/// Most bytes of one transfer, as the kernel has it.
pub(crate) const MOST_BYTES: usize = 0x7fff_f000;

/// Most pieces of memory.
const MOST_PARTS: usize = 1024;

/// Addresses below are nobody's.
const FIRST_ADDRESS: usize = 1 << 16;

/// Pieces of a program's memory, for one transfer.
pub(crate) struct Parts<'a> {
    parts: &'a [iovec],
    total: usize,
}

impl<'a> Parts<'a> {
    /// Looks at them; nothing where the kernel should answer.
    pub(crate) fn new(parts: &'a [iovec]) -> Result<Option<Parts<'a>>, PreloadError> {
        let lengths = parts.iter().map(|part| part.iov_len);
        let sum = lengths.into_iter().try_fold(0_usize, usize::checked_add);
        let Some(total) = sum.filter(|sum| *sum > 0 && isize::try_from(*sum).is_ok()) else {
            return Ok(None);
        };
        let is_nowhere =
            |part: &iovec| part.iov_len > 0 && (part.iov_base as usize) < FIRST_ADDRESS;
        if parts.iter().any(is_nowhere) {
            return Err(PreloadError::Fault);
        }
        Ok(Some(Parts { parts, total: total.min(MOST_BYTES) }))
    }

    /// Bytes of all of them.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Has them filled, up to the bytes that are told.
    ///
    /// # Safety
    ///
    /// They are memory that may be written to, and nobody else uses it.
    pub(crate) unsafe fn fill<E: From<PreloadError>>(
        &self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        if let [one] = self.parts {
            // SAFETY: the caller says so.
            let into = unsafe { std::slice::from_raw_parts_mut(one.iov_base.cast(), self.total) };
            return read(into);
        }
        let mut bytes = room(self.total)?;
        bytes.resize(self.total, 0);
        let count = read(&mut bytes)?;
        let mut rest = &bytes[..count];
        for part in self.parts {
            let (now, behind) = rest.split_at(part.iov_len.min(rest.len()));
            // SAFETY: the caller says so; there is room for so many.
            unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), part.iov_base.cast(), now.len()) };
            rest = behind;
        }
        Ok(count)
    }

    /// Gives what is in them.
    ///
    /// # Safety
    ///
    /// They are memory that may be read, and nobody writes to it.
    pub(crate) unsafe fn give<T, E: From<PreloadError>>(
        &self,
        write: impl FnOnce(&[u8]) -> Result<T, E>,
    ) -> Result<T, E> {
        let slice = |part: &iovec, length| {
            // SAFETY: the caller says so.
            unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), length) }
        };
        if let [one] = self.parts {
            return write(slice(one, self.total));
        }
        let mut bytes = room(self.total)?;
        for part in self.parts {
            let length = part.iov_len.min(self.total - bytes.len());
            if length > 0 {
                bytes.extend_from_slice(slice(part, length));
            }
        }
        write(&bytes)
    }
}

fn room(bytes: usize) -> Result<Vec<u8>, PreloadError> {
    let mut room = Vec::new();
    room.try_reserve_exact(bytes).map_err(|_| PreloadError::Memory)?;
    Ok(room)
}

/// One piece of memory.
pub(crate) fn one(base: *mut c_void, length: usize) -> [iovec; 1] {
    [iovec { iov_base: base, iov_len: length }]
}

/// The pieces that a program lists; nothing where the kernel should answer.
///
/// # Safety
///
/// There are so many of them.
pub(crate) unsafe fn listed<'a>(at: *const iovec, count: i32) -> Option<&'a [iovec]> {
    let count = usize::try_from(count).ok().filter(|count| (1..=MOST_PARTS).contains(count))?;
    // SAFETY: the caller says so.
    (at as usize >= FIRST_ADDRESS).then(|| unsafe { std::slice::from_raw_parts(at, count) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(buffers: &mut [&mut [u8]]) -> Vec<iovec> {
        let part = |buffer: &mut &mut [u8]| one(buffer.as_mut_ptr().cast(), buffer.len())[0];
        buffers.iter_mut().map(part).collect()
    }

    #[test]
    fn several_are_filled_one_after_the_other() {
        let (mut a, mut b, mut c) = ([0; 2], [0; 3], [0; 4]);
        let listed = parts(&mut [&mut a, &mut b, &mut c]);
        let given = Parts::new(&listed).unwrap().unwrap();
        assert_eq!(given.total(), 9);
        let read = |into: &mut [u8]| {
            into[..4].copy_from_slice(b"1234");
            Ok::<_, PreloadError>(4)
        };
        // SAFETY: the arrays are there.
        assert_eq!(unsafe { given.fill(read) }.unwrap(), 4);
        // SAFETY: as above.
        let told = unsafe { given.give(|bytes| Ok::<_, PreloadError>(bytes.to_vec())) }.unwrap();
        assert_eq!(told, b"1234\0\0\0\0\0");
        assert_eq!((a, b, c), (*b"12", *b"34\0", [0; 4]));
    }

    #[test]
    fn memory_that_can_be_nobodys_is_refused() {
        for address in [0, 1, 4096] {
            let listed = one(std::ptr::without_provenance_mut(address), 1);
            assert!(matches!(Parts::new(&listed), Err(PreloadError::Fault)), "{address}");
        }
        assert!(Parts::new(&one(std::ptr::null_mut(), 0)).unwrap().is_none());
        assert!(Parts::new(&[]).unwrap().is_none());
        let mut byte = [0];
        let huge = one(byte.as_mut_ptr().cast(), usize::MAX);
        assert!(Parts::new(&huge).unwrap().is_none());
        let long = one(byte.as_mut_ptr().cast(), MOST_BYTES + 1);
        assert_eq!(Parts::new(&long).unwrap().unwrap().total(), MOST_BYTES);
    }
}
