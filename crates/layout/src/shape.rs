//! Units, columns and copies of one striped object.

use nasd_types::ByteRange;
use nasd_types::limits::BLOCK_BYTES;
use thiserror::Error;

/// How an object is spread over the members of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    unit: u64,
    width: u16,
    copies: u16,
}

/// Why there is no such shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ShapeError {
    /// The stripe unit is not a multiple of a block, or too small or too large.
    #[error(
        "a stripe unit is a multiple of {} bytes, from {} to {} of them",
        BLOCK_BYTES,
        Shape::MIN_UNIT,
        Shape::MAX_UNIT
    )]
    Unit,
    /// No member, or too many.
    #[error("a stripe is 1 to {} drives wide", Shape::MAX_WIDTH)]
    Width,
    /// No copy, or more than members.
    #[error(
        "each byte is kept at least once, and at most as often as the stripe is wide, or {} times",
        Shape::MAX_COPIES
    )]
    Copies,
}

/// Which column of a stripe: from 0 to one less than its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Column(pub u16);

/// Bytes of one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its column.
    pub column: Column,
    /// The bytes, in the object as in its components.
    pub range: ByteRange,
}

/// `count` runs of `length` bytes, the first at `offset`, each `stride` after the one before: as a drive's
/// requests name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strip {
    /// First byte of the first run.
    pub offset: u64,
    /// Bytes of each run.
    pub length: u64,
    /// From the beginning of one to that of the next.
    pub stride: u64,
    /// Runs; at least one.
    pub count: u32,
}

impl Shape {
    /// The smallest stripe unit, in bytes.
    pub const MIN_UNIT: u64 = BLOCK_BYTES as u64;
    /// The largest stripe unit, in bytes.
    pub const MAX_UNIT: u64 = 1 << 30;
    /// Most members.
    pub const MAX_WIDTH: u16 = 64;
    /// Most copies.
    pub const MAX_COPIES: u16 = 8;

    /// Units of `unit` bytes over `width` members, each byte `copies` times.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn new(unit: u64, width: u16, copies: u16) -> Result<Shape, ShapeError> {
        let fits = (Self::MIN_UNIT..=Self::MAX_UNIT).contains(&unit);
        if !fits || !unit.is_multiple_of(BLOCK_BYTES as u64) {
            return Err(ShapeError::Unit);
        }
        if !(1..=Self::MAX_WIDTH).contains(&width) {
            return Err(ShapeError::Width);
        }
        if !(1..=Self::MAX_COPIES.min(width)).contains(&copies) {
            return Err(ShapeError::Copies);
        }
        Ok(Shape { unit, width, copies })
    }

    /// Bytes of a unit.
    pub fn unit(&self) -> u64 {
        self.unit
    }

    /// Members, and columns.
    pub fn width(&self) -> u16 {
        self.width
    }

    /// How often each byte is kept.
    pub fn copies(&self) -> u16 {
        self.copies
    }

    /// The column that a byte belongs to.
    pub fn column(&self, offset: u64) -> Column {
        Column((offset / self.unit % u64::from(self.width)) as u16)
    }

    /// Where the unit of a byte ends.
    pub fn unit_end(&self, offset: u64) -> u64 {
        (offset / self.unit + 1).saturating_mul(self.unit)
    }

    /// The positions of the members that hold a column, the one that is read in the first place first.
    pub fn members(
        &self,
        column: Column,
    ) -> impl ExactSizeIterator<Item = usize> + DoubleEndedIterator + Clone + use<> {
        let Shape { width, copies, .. } = *self;
        (0..copies).map(move |copy| usize::from((column.0 + copy) % width))
    }

    /// Whether the member at a position holds a column.
    pub fn holds(&self, member: usize, column: Column) -> bool {
        let width = usize::from(self.width);
        (member + width - usize::from(column.0)) % width < usize::from(self.copies)
    }

    /// The range, cut at the ends of units.
    pub fn pieces(&self, range: ByteRange) -> impl Iterator<Item = Piece> + use<> {
        let (shape, mut at) = (*self, range.offset);
        std::iter::from_fn(move || {
            if at >= range.end() {
                return None;
            }
            let end = shape.unit_end(at).min(range.end());
            let piece = Piece { column: shape.column(at), range: ByteRange::new(at, end - at) };
            at = end;
            Some(piece)
        })
    }

    /// The bytes of a range that belong to a column: at most three strips, in ascending order.
    pub fn strips(&self, range: ByteRange, column: Column) -> Vec<Strip> {
        let stride = self.unit.saturating_mul(u64::from(self.width));
        let mut strips = Vec::with_capacity(3);
        let Some(mut at) = self.next_in_column(range.offset, column) else {
            return strips;
        };
        let end = range.end();
        while at < end {
            let length = self.unit_end(at).min(end) - at;
            // Whole units, as many as lie within the range, are one strip.
            let count = if length == self.unit { (end - at - length) / stride + 1 } else { 1 };
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            strips.push(Strip { offset: at, length, stride, count });
            let unit_start = at - at % self.unit;
            at = unit_start.saturating_add(stride.saturating_mul(u64::from(count)));
        }
        strips
    }

    /// Where the last byte of a column ends that lies before `length`; 0 if there is none.
    pub fn column_end(&self, column: Column, length: u64) -> u64 {
        let Some(last) = length.checked_sub(1) else { return 0 };
        let width = u64::from(self.width);
        let unit = last / self.unit;
        let behind = (unit % width + width - u64::from(column.0)) % width;
        match unit.checked_sub(behind) {
            Some(_) if behind == 0 => length,
            Some(unit) => (unit + 1) * self.unit,
            None => 0,
        }
    }

    /// Bytes that any member has at most of so many from the beginning.
    pub fn most_held(&self, length: u64) -> u64 {
        let stripe = self.unit.saturating_mul(self.width.into());
        let column = length.div_ceil(stripe).saturating_mul(self.unit);
        column.saturating_mul(self.copies.into()).min(length)
    }

    /// The first byte at or behind `offset` that belongs to a column.
    fn next_in_column(&self, offset: u64, column: Column) -> Option<u64> {
        let width = u64::from(self.width);
        let unit = offset / self.unit;
        let ahead = (u64::from(column.0) + width - unit % width) % width;
        if ahead == 0 { Some(offset) } else { unit.checked_add(ahead)?.checked_mul(self.unit) }
    }

    #[cfg(test)]
    pub(crate) fn of_any_unit(unit: u64, width: u16, copies: u16) -> Shape {
        Shape { unit, width, copies }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes() -> impl Iterator<Item = Shape> {
        let widths = (1..=5).flat_map(|unit| (1..=6).map(move |width| (unit, width)));
        widths.flat_map(|(unit, width)| {
            (1..=width).map(move |copies| Shape::of_any_unit(unit, width, copies))
        })
    }

    /// Every range that begins and ends within four stripes.
    fn ranges(shape: &Shape) -> impl Iterator<Item = ByteRange> + use<> {
        let bytes = 4 * shape.unit * u64::from(shape.width);
        (0..bytes)
            .flat_map(move |from| (from..=bytes).map(move |to| ByteRange::new(from, to - from)))
    }

    #[test]
    fn a_byte_belongs_to_the_column_of_its_unit() {
        for shape in shapes() {
            for byte in 0..4 * shape.unit * u64::from(shape.width) {
                let unit = byte / shape.unit;
                assert_eq!(u64::from(shape.column(byte).0), unit % u64::from(shape.width));
                assert_eq!(shape.unit_end(byte), (unit + 1) * shape.unit);
            }
        }
    }

    #[test]
    fn a_column_ends_with_its_last_byte() {
        for shape in shapes() {
            for length in 0..4 * shape.unit * u64::from(shape.width) {
                for column in (0..shape.width).map(Column) {
                    let last = (0..length).rev().find(|byte| shape.column(*byte) == column);
                    let end = last.map_or(0, |last| last + 1);
                    assert_eq!(shape.column_end(column, length), end, "{shape:?} {length}");
                }
            }
        }
    }

    #[test]
    fn no_member_has_more_than_it_is_said_to() {
        for shape in shapes() {
            for length in 0..4 * shape.unit * u64::from(shape.width) {
                let held = |member: usize| {
                    let is_held = |byte: &u64| shape.holds(member, shape.column(*byte));
                    (0..length).filter(is_held).count() as u64
                };
                let most = (0..usize::from(shape.width)).map(held).max().unwrap_or(0);
                let said = shape.most_held(length);
                let slack = shape.unit * u64::from(shape.copies);
                assert!(most <= said && said < most + slack, "{shape:?} {length}: {said}");
            }
            assert!(shape.most_held(u64::MAX) > u64::MAX / 7, "no trap at the end");
        }
    }

    #[test]
    fn each_column_has_its_copies_on_as_many_members_in_turn() {
        for shape in shapes() {
            let mut held = vec![0; usize::from(shape.width)];
            for column in (0..shape.width).map(Column) {
                let members: Vec<_> = shape.members(column).collect();
                assert_eq!(members[0], usize::from(column.0), "each is the first for one column");
                let mut different = members.clone();
                different.sort_unstable();
                different.dedup();
                assert_eq!(different.len(), usize::from(shape.copies));
                for member in 0..usize::from(shape.width) {
                    assert_eq!(shape.holds(member, column), members.contains(&member));
                }
                members.iter().for_each(|member| held[*member] += 1);
            }
            assert!(held.iter().all(|count| *count == shape.copies), "all hold alike");
        }
    }

    #[test]
    fn pieces_are_the_range_and_each_lies_in_one_unit() {
        for shape in shapes().filter(|shape| shape.copies == 1) {
            for range in ranges(&shape) {
                let mut at = range.offset;
                for piece in shape.pieces(range) {
                    assert!(piece.range.offset == at && !piece.range.is_empty());
                    let last = piece.range.end() - 1;
                    assert_eq!(at / shape.unit, last / shape.unit);
                    assert_eq!(shape.column(at), piece.column);
                    at = piece.range.end();
                }
                assert_eq!(at, range.end().max(range.offset));
            }
        }
    }

    #[test]
    fn strips_are_the_bytes_of_a_column_in_order_and_few() {
        for shape in shapes().filter(|shape| shape.copies == 1) {
            for range in ranges(&shape) {
                for column in (0..shape.width).map(Column) {
                    let wanted = (range.offset..range.end()).filter(|b| shape.column(*b) == column);
                    let strips = shape.strips(range, column);
                    assert!(strips.len() <= 3, "{shape:?} {range} {strips:?}");
                    let found = strips.iter().flat_map(|strip| {
                        assert!(strip.count > 0 && strip.length > 0);
                        (0..u64::from(strip.count)).flat_map(|run| {
                            let start = strip.offset + run * strip.stride;
                            start..start + strip.length
                        })
                    });
                    assert!(found.eq(wanted), "{shape:?} {range} {column:?} {strips:?}");
                }
            }
        }
    }

    #[test]
    fn the_end_of_all_offsets_is_no_trap() {
        let shape = Shape::new(512 << 10, 7, 2).unwrap();
        let range = ByteRange::new(u64::MAX - 3_000_000, u64::MAX);
        let total: u64 = shape.pieces(range).map(|piece| piece.range.length).sum();
        assert_eq!(total, range.length);
        let of_strips = |column| {
            let strips = shape.strips(range, column).into_iter();
            strips.map(|strip| strip.length * u64::from(strip.count)).sum::<u64>()
        };
        assert_eq!((0..7).map(Column).map(of_strips).sum::<u64>(), range.length);
    }

    #[test]
    fn shapes_without_a_meaning_are_refused() {
        assert!(Shape::new(4096, 1, 1).is_ok() && Shape::new(1 << 30, 64, 8).is_ok());
        for unit in [0, 1, 4095, 4097, 6000, (1 << 30) + 4096, u64::MAX] {
            assert_eq!(Shape::new(unit, 4, 1), Err(ShapeError::Unit), "{unit}");
        }
        assert_eq!(Shape::new(4096, 0, 1), Err(ShapeError::Width));
        assert_eq!(Shape::new(4096, 65, 1), Err(ShapeError::Width));
        for (width, copies) in [(1, 0), (1, 2), (3, 4), (64, 9)] {
            assert_eq!(Shape::new(4096, width, copies), Err(ShapeError::Copies));
        }
    }
}
