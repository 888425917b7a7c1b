//! A walk over what Parquet has in Thrift's compact form, before anybody allocates what is said there.

/// Most structs, lists and maps in one another.
const MAX_LEVELS: usize = 32;

/// What is met at a path: the numbers of fields, from the outermost struct on; places in lists don't count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Int(i64),
    /// One begins.
    Struct,
}

/// Shows what is in a struct at the beginning of `bytes`; how many bytes it has, `None` if it is not whole or is none.
pub(super) fn walk(bytes: &[u8], show: &mut dyn FnMut(&[i16], Seen)) -> Option<usize> {
    let mut walk = Walk { bytes, at: 0, path: Vec::new(), levels: 0, show };
    walk.fields()?;
    Some(walk.at)
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    path: Vec<i16>,
    levels: usize,
    show: &'a mut dyn FnMut(&[i16], Seen),
}

impl Walk<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn pass(&mut self, bytes: u64) -> Option<()> {
        let end = self.at.checked_add(usize::try_from(bytes).ok()?)?;
        self.at = end;
        (end <= self.bytes.len()).then_some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn fields(&mut self) -> Option<()> {
        (self.show)(&self.path, Seen::Struct);
        let mut field = 0_i16;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            field = match head >> 4 {
                0 => i16::try_from(self.signed()?).ok()?,
                more => field.checked_add(more.into())?,
            };
            self.path.push(field);
            match head & 15 {
                // A boolean is in its head.
                1 | 2 => {}
                kind => self.value(kind)?,
            }
            self.path.pop();
        }
    }

    fn value(&mut self, kind: u8) -> Option<()> {
        match kind {
            1..=3 => self.pass(1),
            4..=6 => {
                let value = self.signed()?;
                (self.show)(&self.path, Seen::Int(value));
                Some(())
            }
            7 => self.pass(8),
            8 => {
                let bytes = self.varint()?;
                self.pass(bytes)
            }
            9..=12 => {
                self.levels += 1;
                (self.levels <= MAX_LEVELS).then_some(())?;
                match kind {
                    11 => self.map()?,
                    12 => self.fields()?,
                    _ => self.list()?,
                }
                self.levels -= 1;
                Some(())
            }
            13 => self.pass(16),
            _ => None,
        }
    }

    fn list(&mut self) -> Option<()> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            count => count.into(),
        };
        self.values(count, &[head & 15])
    }

    fn map(&mut self) -> Option<()> {
        match self.varint()? {
            0 => Some(()),
            count => {
                let kinds = self.byte()?;
                self.values(count, &[kinds >> 4, kinds & 15])
            }
        }
    }

    /// Each has a byte at least.
    fn values(&mut self, count: u64, kinds: &[u8]) -> Option<()> {
        (count <= (self.bytes.len() - self.at) as u64).then_some(())?;
        for _ in 0..count {
            kinds.iter().try_for_each(|kind| self.value(*kind))?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_shown_with_their_paths() {
        // Field 1: 3; field 2: a list of two structs with a field 5; field 20: a text; field 21: true.
        let bytes = [0x15, 6, 0x19, 0x2c, 0x55, 1, 0, 0x55, 4, 0, 8, 40, 2, b'a', b'b', 0x11, 0, 9];
        let mut seen = Vec::new();
        let length = walk(&bytes, &mut |path, what| seen.push((path.to_vec(), what)));
        assert_eq!(length, Some(bytes.len() - 1));
        let expected = [
            (vec![], Seen::Struct),
            (vec![1], Seen::Int(3)),
            (vec![2], Seen::Struct),
            (vec![2, 5], Seen::Int(-1)),
            (vec![2], Seen::Struct),
            (vec![2, 5], Seen::Int(2)),
        ];
        assert_eq!(seen, expected);
        for end in 0..bytes.len() - 1 {
            assert_eq!(walk(&bytes[..end], &mut |_, _| {}), None, "{end}");
        }
    }

    #[test]
    fn what_would_take_much_is_none() {
        // A list of 2^28 structs, and structs in structs.
        assert_eq!(walk(&[0x19, 0xfc, 0x80, 0x80, 0x80, 0x80, 1, 0], &mut |_, _| {}), None);
        assert_eq!(walk(&[0x1c; 100_000], &mut |_, _| {}), None);
        assert_eq!(walk(&[0x19; 100_000], &mut |_, _| {}), None);
    }
}
