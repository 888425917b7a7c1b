//! Which bytes of an object a read or write means.
//!
//! A request has a list of *regions*, each a regular row of *pieces*: `count` pieces of `length`
//! bytes, the first at `offset`, each `stride` behind the one before. The data is the pieces'
//! bytes in that order, joined. A contiguous transfer is one region of one piece.

use nasd_types::ByteRange;
use nasd_types::limits::{MAX_OBJECT_BYTES, MAX_TRANSFER_BYTES};
use nasd_xdr::{Decoder, Encoder, XdrError};

use crate::Status;
use crate::limits::{MAX_PIECES, MAX_REGIONS};
use crate::wire::{message, put_array, take_array};

message! {
    /// A row of pieces (`nasd_region`).
    #[derive(Copy, Hash)]
    pub struct Region {
        /// First byte of the first piece.
        pub offset: u64,
        /// Bytes of each piece.
        pub length: u64,
        /// From the start of a piece to the start of the next, in bytes; at least `length`.
        /// Without a meaning when there is only one piece.
        pub stride: u64,
        /// Number of pieces, at least 1.
        pub count: u32,
    }
}

impl Region {
    /// One contiguous range.
    pub const fn single(offset: u64, length: u64) -> Self {
        Region { offset, length, stride: 0, count: 1 }
    }

    /// What of it lies from a position on: a piece that is cut, if one is, and those behind it. For
    /// regions that [`spread`] lets pass.
    pub fn from_position(&self, position: u64) -> impl Iterator<Item = Region> + use<> {
        let Region { offset, length, stride, count } = *self;
        let pieces = (0..u64::from(count)).map(move |at| offset + at * stride);
        let before = pieces.clone().filter(|begin| begin + length <= position).count() as u64;
        let first = (before < u64::from(count)).then(|| offset + before * stride);
        let cut = first.filter(|begin| *begin < position);
        let whole = before + u64::from(cut.is_some());
        let left = u64::from(count) - whole;
        let rest = Region { offset: offset + whole * stride, length, stride, count: left as u32 };
        let cut = cut.map(|begin| Region::single(position, begin + length - position));
        cut.into_iter().chain((left > 0).then_some(rest))
    }

    /// Checks this region alone.
    fn validate(&self) -> Result<ByteRange, Status> {
        if self.count == 0 || (self.count > 1 && self.stride < self.length) {
            return Err(Status::BadArgument);
        }
        let steps = if self.count > 1 { u64::from(self.count - 1) } else { 0 };
        let end = self
            .stride
            .checked_mul(steps)
            .and_then(|steps| self.offset.checked_add(steps))
            .and_then(|last| last.checked_add(self.length))
            .filter(|&end| end <= MAX_OBJECT_BYTES)
            .ok_or(Status::TooLarge)?;
        Ok(ByteRange::new(self.offset, end - self.offset))
    }

    /// The pieces as few ranges as possible: pieces that touch are one.
    fn ranges(self) -> impl Iterator<Item = ByteRange> + Clone {
        let whole = self.count == 1 || self.stride == self.length;
        let (length, count) = if whole {
            (self.length * u64::from(self.count), 1)
        } else {
            (self.length, self.count)
        };
        (0..u64::from(count))
            .map(move |index| ByteRange::new(self.offset + index * self.stride, length))
    }
}

/// Regions that have been checked: every sum below is known not to overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces<'a> {
    regions: &'a [Region],
    total_bytes: usize,
    span: ByteRange,
}

/// Checks regions against the limits of the protocol.
///
/// # Errors
///
/// [`Status::BadArgument`]: no region, a region without pieces, or pieces that overlap within
/// their region. [`Status::TooLarge`]: more than [`MAX_REGIONS`], [`MAX_PIECES`] or
/// [`MAX_TRANSFER_BYTES`], or a piece that ends above [`MAX_OBJECT_BYTES`].
pub fn expand(regions: &[Region]) -> Result<Pieces<'_>, Status> {
    checked(regions, MAX_TRANSFER_BYTES)
}

/// Checks the regions of an operation that moves no data: as [`expand`], but pieces may be of any
/// length.
///
/// # Errors
///
/// As [`expand`], without the limit on bytes.
pub fn spread(regions: &[Region]) -> Result<Pieces<'_>, Status> {
    checked(regions, usize::MAX)
}

fn checked(regions: &[Region], most_bytes: usize) -> Result<Pieces<'_>, Status> {
    if regions.is_empty() {
        return Err(Status::BadArgument);
    }
    if regions.len() > MAX_REGIONS {
        return Err(Status::TooLarge);
    }
    let (mut pieces, mut total) = (0_u64, 0_u64);
    let (mut first, mut end) = (u64::MAX, 0);
    for region in regions {
        let range = region.validate()?;
        first = first.min(range.offset);
        end = end.max(range.end());
        // 64 regions of at most 2^32 pieces; and no region is longer than the largest object, of
        // 2^62 bytes.
        pieces += u64::from(region.count);
        total = total.saturating_add(region.length * u64::from(region.count));
        if pieces > MAX_PIECES as u64 || total > most_bytes as u64 {
            return Err(Status::TooLarge);
        }
    }
    let span = ByteRange::new(first, end - first);
    Ok(Pieces { regions, total_bytes: usize::try_from(total).unwrap_or(usize::MAX), span })
}

impl<'a> Pieces<'a> {
    /// Bytes of all pieces; saturates.
    pub const fn total_bytes(&self) -> usize {
        self.total_bytes
    }

    /// From the first byte of any piece to the last: a contiguous range (such as a capability's
    /// region) holds every piece exactly if it holds this.
    pub const fn span(&self) -> ByteRange {
        self.span
    }

    /// The one range, if the pieces are one.
    pub fn contiguous(&self) -> Option<ByteRange> {
        let mut ranges = self.iter();
        match (ranges.next(), ranges.next()) {
            (Some(range), None) => Some(range),
            _ => None,
        }
    }

    /// The ranges in the order of their data; pieces of a region that touch come as one range.
    pub fn iter(&self) -> impl Iterator<Item = ByteRange> + Clone + 'a {
        self.regions.iter().flat_map(|region| region.ranges())
    }

    /// The ranges that a read of an object of `logical_size` bytes answers: up to and with the
    /// first that runs into the end of the object, which is cut there. Empty ranges are left out.
    pub fn within(&self, logical_size: u64) -> impl Iterator<Item = ByteRange> + Clone + 'a {
        let object = ByteRange::new(0, logical_size);
        self.iter()
            .scan(false, move |ended, range| {
                if *ended {
                    return None;
                }
                let cut = range.intersection(&object);
                *ended = cut.length < range.length;
                Some(cut)
            })
            .filter(|range| !range.is_empty())
    }
}

/// Appends `nasd_region regions<>`.
pub(crate) fn put_regions(regions: &[Region], out: &mut Encoder) {
    put_array(regions, out);
}

/// Reads `nasd_region regions<NASD_MAX_REGIONS>`.
pub(crate) fn take_regions(input: &mut Decoder<'_>) -> Result<Vec<Region>, XdrError> {
    take_array(input, MAX_REGIONS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn region(offset: u64, length: u64, stride: u64, count: u32) -> Region {
        Region { offset, length, stride, count }
    }

    #[test]
    fn a_single_region_is_itself() {
        let regions = [Region::single(10, 20)];
        let pieces = expand(&regions).unwrap();
        assert_eq!(pieces.contiguous(), Some(ByteRange::new(10, 20)));
        assert_eq!((pieces.total_bytes(), pieces.span()), (20, ByteRange::new(10, 20)));
    }

    #[test]
    fn strides_make_gaps_and_touching_pieces_join() {
        let regions = [region(100, 10, 50, 3), region(0, 4, 4, 5)];
        let pieces = expand(&regions).unwrap();
        let ranges: Vec<_> = pieces.iter().map(|range| (range.offset, range.length)).collect();
        assert_eq!(ranges, [(100, 10), (150, 10), (200, 10), (0, 20)]);
        assert_eq!((pieces.total_bytes(), pieces.span()), (50, ByteRange::new(0, 210)));
        assert_eq!(pieces.contiguous(), None);
    }

    #[test]
    fn from_a_position_on_rows_stay_rows() {
        let row = region(100, 10, 50, 4);
        let from = |position| row.from_position(position).collect::<Vec<_>>();
        assert_eq!(from(0), [row]);
        assert_eq!(from(110), [region(150, 10, 50, 3)]);
        assert_eq!(from(155), [Region::single(155, 5), region(200, 10, 50, 2)]);
        assert_eq!(from(253), [Region::single(253, 7)]);
        assert_eq!(from(260), []);
        let single = Region::single(5, 10);
        assert_eq!(single.from_position(7).collect::<Vec<_>>(), [Region::single(7, 8)]);
    }

    #[test]
    fn what_has_no_meaning_is_refused() {
        assert_eq!(expand(&[]), Err(Status::BadArgument));
        assert_eq!(expand(&[region(0, 1, 1, 0)]), Err(Status::BadArgument));
        assert_eq!(expand(&[region(0, 10, 9, 2)]), Err(Status::BadArgument));
    }

    #[test]
    fn limits_hold_to_the_byte() {
        let most = MAX_TRANSFER_BYTES as u64;
        assert!(expand(&[Region::single(0, most)]).is_ok());
        assert_eq!(expand(&[Region::single(0, most + 1)]), Err(Status::TooLarge));
        assert_eq!(expand(&[Region::single(0, most), Region::single(0, 1)]), Err(Status::TooLarge));
        assert!(expand(&[region(0, 1, 2, MAX_PIECES as u32)]).is_ok());
        assert_eq!(expand(&[region(0, 1, 2, MAX_PIECES as u32 + 1)]), Err(Status::TooLarge));
        assert!(expand(&[Region::single(MAX_OBJECT_BYTES - 1, 1)]).is_ok());
        assert_eq!(expand(&[Region::single(MAX_OBJECT_BYTES, 1)]), Err(Status::TooLarge));
        assert_eq!(expand(&[Region::single(0, 1); MAX_REGIONS + 1]), Err(Status::TooLarge));
    }

    #[test]
    fn what_moves_no_data_may_be_of_any_length() {
        let whole = Region::single(0, MAX_OBJECT_BYTES);
        let regions = [whole; MAX_REGIONS];
        assert_eq!(expand(&regions), Err(Status::TooLarge));
        let pieces = spread(&regions).unwrap();
        assert_eq!(pieces.span(), ByteRange::new(0, MAX_OBJECT_BYTES));
        assert_eq!(pieces.iter().count(), MAX_REGIONS);
        assert_eq!(spread(&[]), Err(Status::BadArgument));
        assert_eq!(spread(&[Region::single(1, MAX_OBJECT_BYTES)]), Err(Status::TooLarge));
        assert_eq!(spread(&[region(0, 1, 2, MAX_PIECES as u32 + 1)]), Err(Status::TooLarge));
        assert_eq!(spread(&[whole; MAX_REGIONS + 1]), Err(Status::TooLarge));
    }

    #[test]
    fn nothing_overflows() {
        for bad in [
            Region::single(u64::MAX, u64::MAX),
            region(0, u64::MAX, u64::MAX, u32::MAX),
            region(u64::MAX, 0, u64::MAX, 2),
            region(0, 0, u64::MAX, u32::MAX),
        ] {
            assert_eq!(expand(&[bad]), Err(Status::TooLarge), "{bad:?}");
        }
    }

    #[test]
    fn reads_end_with_the_first_short_piece() {
        let regions = [region(0, 10, 20, 3), Region::single(0, 5)];
        let pieces = expand(&regions).unwrap();
        let within = |size| -> Vec<_> {
            pieces.within(size).map(|range| (range.offset, range.length)).collect()
        };
        assert_eq!(within(100), [(0, 10), (20, 10), (40, 10), (0, 5)]);
        assert_eq!(within(45), [(0, 10), (20, 10), (40, 5)]);
        assert_eq!(within(20), [(0, 10)]);
        assert_eq!(within(0), []);
    }

    /// The plainest reading of the definition.
    fn bytes_by_definition(regions: &[Region]) -> Vec<u64> {
        let mut bytes = Vec::new();
        for region in regions {
            for piece in 0..u64::from(region.count) {
                let start = region.offset + piece * region.stride;
                bytes.extend(start..start + region.length);
            }
        }
        bytes
    }

    proptest! {
        #[test]
        fn expansion_is_the_definition(
            raw in prop::collection::vec((0..50_u64, 0..6_u64, 0..9_u64, 0..5_u32), 0..5),
            size in 0..120_u64,
        ) {
            let regions: Vec<_> =
                raw.into_iter().map(|(offset, length, stride, count)| region(offset, length, stride, count)).collect();
            if let Ok(pieces) = expand(&regions) {
                let expected = bytes_by_definition(&regions);
                let bytes: Vec<u64> = pieces.iter().flat_map(|range| range.offset..range.end()).collect();
                prop_assert_eq!(pieces.total_bytes(), bytes.len());
                prop_assert!(pieces.iter().all(|range| pieces.span().contains(&range)));
                // A read answers the longest start of the data that lies within the object.
                let short: Vec<u64> = pieces.within(size).flat_map(|range| range.offset..range.end()).collect();
                let within: Vec<u64> = expected.iter().copied().take_while(|&byte| byte < size).collect();
                prop_assert_eq!(short, within);
                prop_assert_eq!(bytes, expected);
            } else {
                let bad = |region: &Region| region.count == 0 || (region.count > 1 && region.stride < region.length);
                prop_assert!(regions.is_empty() || regions.iter().any(bad));
            }
        }

        #[test]
        fn any_regions_are_checked_without_overflow(
            raw in prop::collection::vec(any::<(u64, u64, u64, u32)>(), 0..5),
            shift in 0..64_u32,
        ) {
            let regions: Vec<_> = raw
                .into_iter()
                .map(|(offset, length, stride, count)| region(offset >> shift, length >> shift, stride >> shift, count >> (shift / 2)))
                .collect();
            if let Ok(pieces) = expand(&regions) {
                prop_assert!(pieces.total_bytes() <= MAX_TRANSFER_BYTES);
                prop_assert!(pieces.span().end() <= MAX_OBJECT_BYTES);
                prop_assert_eq!(pieces.iter().map(|range| range.length).sum::<u64>(), pieces.total_bytes() as u64);
                prop_assert!(pieces.iter().count() <= MAX_PIECES);
            }
        }
    }
}
