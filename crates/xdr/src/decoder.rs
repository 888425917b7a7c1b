//! Reading XDR: a bounded walk over bytes that somebody else wrote.

use crate::{UNIT_BYTES, UnknownValue, XdrDecode, XdrError, xdr_pad};

/// Reads XDR items from the front of a byte slice. Never reads beyond it and never panics.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Decoder<'a> {
    /// At the start of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Decoder { bytes, position: 0 }
    }

    /// How many bytes have been read.
    pub const fn position(&self) -> usize {
        self.position
    }

    /// How many bytes are left.
    pub const fn remaining(&self) -> usize {
        // `position` moves only in `take`, which never lets it pass the end.
        self.bytes.len() - self.position
    }

    /// The bytes that are left; does not move.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.position..]
    }

    /// The bytes from `start` up to the present position: what digests cover, for example.
    /// Empty when `start` lies ahead of the position.
    pub fn since(&self, start: usize) -> &'a [u8] {
        self.bytes.get(start..self.position).unwrap_or_default()
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    ///
    /// [`XdrError::Trailing`].
    pub const fn finish(&self) -> Result<(), XdrError> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(XdrError::Trailing(left)),
        }
    }

    /// `count` bytes as they stand: no length, no padding.
    ///
    /// # Errors
    ///
    /// [`XdrError::Truncated`].
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], XdrError> {
        match self.rest().get(..count) {
            Some(taken) => {
                self.position += count;
                Ok(taken)
            }
            None => Err(XdrError::Truncated { missing: count - self.remaining() }),
        }
    }

    #[inline]
    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], XdrError> {
        // A chunk of known length is a load; a copy of a slice would be a call.
        match self.rest().first_chunk::<N>() {
            Some(array) => {
                self.position += N;
                Ok(*array)
            }
            None => Err(XdrError::Truncated { missing: N - self.remaining() }),
        }
    }

    /// `unsigned int`.
    ///
    /// # Errors
    ///
    /// [`XdrError::Truncated`].
    #[inline]
    pub fn u32(&mut self) -> Result<u32, XdrError> {
        self.take_array().map(u32::from_be_bytes)
    }

    /// `int`.
    ///
    /// # Errors
    ///
    /// [`XdrError::Truncated`].
    #[inline]
    pub fn i32(&mut self) -> Result<i32, XdrError> {
        self.take_array().map(i32::from_be_bytes)
    }

    /// `unsigned hyper`.
    ///
    /// # Errors
    ///
    /// [`XdrError::Truncated`].
    #[inline]
    pub fn u64(&mut self) -> Result<u64, XdrError> {
        self.take_array().map(u64::from_be_bytes)
    }

    /// `hyper`.
    ///
    /// # Errors
    ///
    /// [`XdrError::Truncated`].
    #[inline]
    pub fn i64(&mut self) -> Result<i64, XdrError> {
        self.take_array().map(i64::from_be_bytes)
    }

    /// `bool`.
    ///
    /// # Errors
    ///
    /// [`XdrError::Boolean`] for anything but 0 and 1.
    #[inline]
    pub fn bool(&mut self) -> Result<bool, XdrError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(XdrError::Boolean(other)),
        }
    }

    /// An enumeration value.
    ///
    /// # Errors
    ///
    /// [`XdrError::Unknown`] for a number without a meaning.
    pub fn enumeration<E: TryFrom<u32, Error = UnknownValue>>(&mut self) -> Result<E, XdrError> {
        Ok(E::try_from(self.u32()?)?)
    }

    /// The count in front of an opaque, a string or an array.
    ///
    /// # Errors
    ///
    /// [`XdrError::TooLong`] above `limit`.
    #[inline]
    pub fn length(&mut self, limit: usize) -> Result<usize, XdrError> {
        let length = self.u32()?;
        match usize::try_from(length) {
            Ok(count) if count <= limit => Ok(count),
            _ => Err(XdrError::TooLong { length, limit }),
        }
    }

    #[inline]
    fn padded(&mut self, count: usize) -> Result<&'a [u8], XdrError> {
        let data = self.take(count)?;
        if self.take(xdr_pad(count))?.iter().any(|&byte| byte != 0) {
            return Err(XdrError::Padding);
        }
        Ok(data)
    }

    /// `opaque[N]`.
    ///
    /// # Errors
    ///
    /// [`XdrError::Padding`] if the fill bytes are not zero.
    #[inline]
    pub fn opaque_fixed<const N: usize>(&mut self) -> Result<[u8; N], XdrError> {
        let mut array = [0; N];
        array.copy_from_slice(self.padded(N)?);
        Ok(array)
    }

    /// `opaque<limit>`, borrowed from the input.
    ///
    /// # Errors
    ///
    /// [`XdrError::TooLong`] above `limit`, [`XdrError::Padding`].
    #[inline]
    pub fn opaque(&mut self, limit: usize) -> Result<&'a [u8], XdrError> {
        let count = self.length(limit)?;
        self.padded(count)
    }

    /// `string<limit>` that must be UTF-8 (file names are not: read those with `opaque`).
    ///
    /// # Errors
    ///
    /// [`XdrError::NotUtf8`], and those of [`opaque`](Self::opaque).
    pub fn string(&mut self, limit: usize) -> Result<&'a str, XdrError> {
        std::str::from_utf8(self.opaque(limit)?).map_err(|_| XdrError::NotUtf8)
    }

    /// `type *name`.
    ///
    /// # Errors
    ///
    /// [`XdrError::Boolean`] for a mark other than 0 and 1, and those of the value.
    pub fn optional<T: XdrDecode>(&mut self) -> Result<Option<T>, XdrError> {
        self.optional_with(T::decode)
    }

    /// The same for a type that has no [`XdrDecode`]: `decode` reads the value.
    ///
    /// # Errors
    ///
    /// As [`optional`](Self::optional).
    pub fn optional_with<T>(
        &mut self,
        decode: impl FnOnce(&mut Self) -> Result<T, XdrError>,
    ) -> Result<Option<T>, XdrError> {
        if self.bool()? { decode(self).map(Some) } else { Ok(None) }
    }

    /// `type name<limit>`.
    ///
    /// # Errors
    ///
    /// [`XdrError::TooLong`] above `limit`, and those of the elements.
    pub fn array<T: XdrDecode>(&mut self, limit: usize) -> Result<Vec<T>, XdrError> {
        self.array_with(limit, T::decode)
    }

    /// The same for a type that has no [`XdrDecode`]: `decode` reads one element, which must take
    /// at least one unit of input.
    ///
    /// # Errors
    ///
    /// As [`array`](Self::array).
    pub fn array_with<T>(
        &mut self,
        limit: usize,
        mut decode: impl FnMut(&mut Self) -> Result<T, XdrError>,
    ) -> Result<Vec<T>, XdrError> {
        let count = self.length(limit)?;
        // Each element takes at least one unit, so a count that the input can't hold is told
        // here, before any work is done for it.
        let least = count.saturating_mul(UNIT_BYTES);
        if least > self.remaining() {
            return Err(XdrError::Truncated { missing: least - self.remaining() });
        }
        // No more memory ahead than there are bytes of input; the vector grows if that was little.
        let fits = self.remaining() / size_of::<T>().max(UNIT_BYTES);
        let mut elements = Vec::with_capacity(count.min(fits));
        for _ in 0..count {
            elements.push(decode(self)?);
        }
        Ok(elements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_about_padding_and_booleans() {
        let mut padding = Decoder::new(&[0, 0, 0, 1, b'a', 0, 0, 1]);
        assert_eq!(padding.opaque(4), Err(XdrError::Padding));
        assert_eq!(Decoder::new(&[1, 2, 3, 9]).opaque_fixed::<3>(), Err(XdrError::Padding));
        assert_eq!(Decoder::new(&[0, 0, 0, 2]).bool(), Err(XdrError::Boolean(2)));
        assert_eq!(Decoder::new(&[1, 0, 0, 0]).bool(), Err(XdrError::Boolean(1 << 24)));
        assert_eq!(
            Decoder::new(&[0, 0, 0, 3, 0, 0, 0, 0]).optional::<u32>(),
            Err(XdrError::Boolean(3))
        );
    }

    #[test]
    fn truncation_tells_how_much_is_missing() {
        assert_eq!(Decoder::new(&[0; 3]).u32(), Err(XdrError::Truncated { missing: 1 }));
        assert_eq!(Decoder::new(&[0; 3]).u64(), Err(XdrError::Truncated { missing: 5 }));
        // Data whole, padding not.
        let mut input = Decoder::new(&[0, 0, 0, 1, b'a', 0]);
        let error = input.opaque(9).unwrap_err();
        assert_eq!(error, XdrError::Truncated { missing: 2 });
        assert!(error.is_truncated());
    }

    #[test]
    fn a_huge_count_costs_nothing() {
        let bytes = [0xff; 8];
        assert_eq!(
            Decoder::new(&bytes).array::<u32>(10),
            Err(XdrError::TooLong { length: u32::MAX, limit: 10 })
        );
        // Within its limit but not in the input: refused before allocation.
        assert!(Decoder::new(&bytes).array::<u64>(usize::MAX).unwrap_err().is_truncated());
        assert!(Decoder::new(&bytes).opaque(usize::MAX).unwrap_err().is_truncated());
    }

    #[test]
    fn limits_are_inclusive() {
        let mut three = vec![0, 0, 0, 3];
        three.extend_from_slice(b"abc\0");
        assert_eq!(Decoder::new(&three).opaque(3), Ok(&b"abc"[..]));
        assert_eq!(Decoder::new(&three).opaque(2), Err(XdrError::TooLong { length: 3, limit: 2 }));
    }

    #[test]
    fn text_must_be_utf8_only_where_asked() {
        let bytes = [0, 0, 0, 1, 0xff, 0, 0, 0];
        assert_eq!(Decoder::new(&bytes).string(8), Err(XdrError::NotUtf8));
        assert_eq!(Decoder::new(&bytes).opaque(8), Ok(&[0xff][..]));
    }

    #[test]
    fn positions_and_leftovers() {
        let bytes = [0, 0, 0, 1, 0, 0, 0, 2, 9];
        let mut input = Decoder::new(&bytes);
        assert_eq!(input.u32(), Ok(1));
        assert_eq!(input.position(), 4);
        assert_eq!(input.u32(), Ok(2));
        assert_eq!(input.since(4), &bytes[4..8]);
        assert_eq!(input.since(9), &[] as &[u8]);
        assert_eq!(input.rest(), &[9]);
        assert_eq!(input.finish(), Err(XdrError::Trailing(1)));
    }
}
