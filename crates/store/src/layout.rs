//! Fixed layouts of bytes: every field has a name, an offset and a size in one table, from which
//! code, tests and docs/on-disk-format.md are checked. All numbers are little-endian.

/// One field of a fixed layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// Its name in docs/on-disk-format.md.
    #[cfg_attr(not(test), allow(dead_code))]
    pub(crate) name: &'static str,
    /// First byte.
    pub(crate) offset: usize,
    /// Number of bytes.
    pub(crate) size: usize,
}

impl Field {
    /// The field's bytes. `bytes` holds the whole layout: callers check the length once.
    pub(crate) fn of<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.offset..self.offset + self.size]
    }

    /// The field's bytes as an array of its size.
    pub(crate) fn array<const N: usize>(&self, bytes: &[u8]) -> [u8; N] {
        let mut array = [0; N];
        array.copy_from_slice(self.of(bytes));
        array
    }

    /// A field of four bytes.
    pub(crate) fn u32(&self, bytes: &[u8]) -> u32 {
        u32::from_le_bytes(self.array(bytes))
    }

    /// A field of eight bytes.
    pub(crate) fn u64(&self, bytes: &[u8]) -> u64 {
        u64::from_le_bytes(self.array(bytes))
    }

    /// Sets the field, which has exactly the size of `value`.
    pub(crate) fn put(&self, bytes: &mut [u8], value: &[u8]) {
        bytes[self.offset..self.offset + self.size].copy_from_slice(value);
    }

    /// Whether every byte of the field is zero, as reserved ones must be.
    pub(crate) fn is_zero(&self, bytes: &[u8]) -> bool {
        self.of(bytes).iter().all(|&byte| byte == 0)
    }
}

/// Defines a module with one constant per field, laid out one after the other, the total size
/// `BYTES`, and the list `FIELDS`.
macro_rules! layout {
    ($(#[$doc:meta])* $visibility:vis mod $module:ident { $($field:ident: $size:expr,)* }) => {
        $(#[$doc])*
        #[allow(dead_code)]
        $visibility mod $module {
            use crate::layout::Field;
            crate::layout::layout!(@field 0, $($field: $size,)*);
            /// Every field, in order.
            pub(crate) const FIELDS: &[Field] = &[$($field),*];
        }
    };
    (@field $offset:expr, $field:ident: $size:expr, $($rest:tt)*) => {
        pub(crate) const $field: Field =
            Field { name: stringify!($field), offset: $offset, size: $size };
        crate::layout::layout!(@field $offset + $size, $($rest)*);
    };
    (@field $offset:expr,) => {
        /// Size of the whole layout.
        pub(crate) const BYTES: usize = $offset;
    };
}

pub(crate) use layout;

#[cfg(test)]
mod tests {
    layout! {
        mod sample { FIRST: 1, SECOND: 8, THIRD: 2, }
    }

    #[test]
    fn fields_follow_one_another() {
        assert_eq!(sample::BYTES, 11);
        let offsets: Vec<usize> = sample::FIELDS.iter().map(|field| field.offset).collect();
        assert_eq!(offsets, [0, 1, 9]);
        let mut bytes = [0; sample::BYTES];
        sample::SECOND.put(&mut bytes, &0x1122_3344_5566_7788_u64.to_le_bytes());
        assert_eq!(sample::SECOND.u64(&bytes), 0x1122_3344_5566_7788);
        assert_eq!(bytes[1], 0x88);
        assert!(sample::FIRST.is_zero(&bytes) && sample::THIRD.is_zero(&bytes));
    }
}
