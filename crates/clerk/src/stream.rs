//! Tells sequential reading from random reading, and how far to read ahead: pure arithmetic.
//!
//! Reads of one open file may arrive slightly out of order, because several threads carry them;
//! a read near the expected place counts as sequential once a stream has been recognized.

use nasd_types::ByteRange;

/// First read-ahead of a stream, in bytes.
const FIRST_WINDOW: u64 = 256 << 10;

/// Longest read-ahead, in bytes.
pub(crate) const MAX_WINDOW: u64 = 8 << 20;

/// How far from the expected place a read of a recognized stream may be, in bytes: a kernel that reads ahead
/// has two windows of 4 MiB under way, whose parts are carried by threads that overtake each other.
const SLACK: u64 = 8 << 20;

/// What one open file has been reading.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    /// The byte after the farthest one read.
    next: u64,
    /// How far ahead to be; 0 when no stream is recognized.
    window: u64,
    /// The byte after the last one asked for ahead of time.
    planned: u64,
    /// Nothing is read ahead behind this byte.
    end: Option<u64>,
}

/// What to do about read-ahead after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advice {
    /// The reader went elsewhere: what was read ahead for it is of no use.
    pub(crate) restart: bool,
    /// Fetch this now; may be empty.
    pub(crate) fetch: ByteRange,
}

impl Stream {
    /// A stream that is known to be sequential, for copying whole files.
    pub(crate) fn sequential() -> Self {
        Stream { window: MAX_WINDOW, ..Stream::default() }
    }

    /// One of a range, behind which others read.
    pub(crate) fn of_part(range: ByteRange) -> Self {
        let begin = range.offset;
        Stream { next: begin, window: MAX_WINDOW, planned: begin, end: Some(range.end()) }
    }

    /// Notes a read of `range` of a file of `size` bytes.
    pub(crate) fn advance(&mut self, range: ByteRange, size: u64) -> Advice {
        let nothing = ByteRange::new(range.end(), 0);
        if !self.continues(range) {
            let restart = self.window > 0;
            *self = Stream { next: range.end(), window: 0, planned: range.end(), end: self.end };
            return Advice { restart, fetch: nothing };
        }
        self.next = self.next.max(range.end());
        self.planned = self.planned.max(self.next);
        let lead = self.planned - self.next;
        if self.window > 0 && lead > self.window / 2 {
            return Advice { restart: false, fetch: nothing };
        }
        let grown = if self.window == 0 { FIRST_WINDOW } else { self.window * 2 };
        self.window = grown.max(2 * range.length).min(MAX_WINDOW);
        let last = self.end.unwrap_or(size).min(size);
        let end = self.next.saturating_add(self.window).min(last);
        let fetch = ByteRange::new(self.planned, end.saturating_sub(self.planned));
        self.planned = self.planned.max(end);
        Advice { restart: false, fetch }
    }

    /// Whether a read of this range goes on where the last one has ended, or begins at the start of the file.
    pub(crate) fn continues(&self, range: ByteRange) -> bool {
        if self.window == 0 {
            // The very start of a file counts as the second read of a stream.
            return range.offset == self.next;
        }
        let latest = self.planned.max(self.next).saturating_add(SLACK);
        range.offset <= latest && range.end().saturating_add(SLACK) >= self.next
    }

    /// What lies before this is not needed any more.
    pub(crate) fn consumed_before(&self) -> u64 {
        self.next.saturating_sub(2 * SLACK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1 << 30;

    #[test]
    fn a_sequential_reader_stays_ahead_and_the_window_doubles() {
        let mut stream = Stream::default();
        let mut fetched_to = 0;
        let mut windows = Vec::new();
        let step = 128 << 10;
        for read in 0..400 {
            let range = ByteRange::new(read * step, step);
            let advice = stream.advance(range, SIZE);
            assert!(!advice.restart);
            if !advice.fetch.is_empty() {
                assert!(advice.fetch.offset >= fetched_to, "nothing is fetched twice");
                fetched_to = advice.fetch.end();
                windows.push(fetched_to - range.end());
            }
            assert!(fetched_to > range.end(), "the next read is always on its way");
        }
        let kib = windows.iter().take(7).map(|bytes| bytes >> 10).collect::<Vec<_>>();
        assert_eq!(kib, [256, 512, 1024, 2048, 4096, 8192, 8192]);
        assert!(windows.iter().all(|bytes| *bytes <= 8 << 20));
    }

    #[test]
    fn who_reads_a_part_fetches_all_of_it_and_nothing_behind() {
        let (part, step) = (ByteRange::new(48 << 20, 16 << 20), 1 << 20);
        let mut stream = Stream::of_part(part);
        let mut fetched = 0;
        for read in 0..16 {
            let advice = stream.advance(ByteRange::new(part.offset + read * step, step), SIZE);
            assert!(!advice.restart && advice.fetch.end() <= part.end());
            fetched += advice.fetch.length;
        }
        assert_eq!(fetched, part.length - step, "all but what the first read itself asks for");
    }

    #[test]
    fn random_reads_fetch_nothing() {
        let mut stream = Stream::default();
        for place in [7u64, 3, 90, 2, 55, 1, 70] {
            let advice = stream.advance(ByteRange::new(place << 20, 4096), SIZE);
            assert!(advice.fetch.is_empty());
        }
    }

    #[test]
    fn going_elsewhere_restarts_once() {
        let mut stream = Stream::default();
        for read in 0..10 {
            stream.advance(ByteRange::new(read * 4096, 4096), SIZE);
        }
        assert!(stream.advance(ByteRange::new(500 << 20, 4096), SIZE).restart);
        assert!(!stream.advance(ByteRange::new(100 << 20, 4096), SIZE).restart);
        let advice = stream.advance(ByteRange::new((100 << 20) + 4096, 4096), SIZE);
        assert!(!advice.fetch.is_empty(), "a new stream is recognized at its second read");
    }

    #[test]
    fn reads_out_of_order_are_one_stream() {
        let mut stream = Stream::default();
        let step = 256 << 10;
        for read in [0u64, 1, 3, 2, 5, 4, 6, 7] {
            assert!(!stream.advance(ByteRange::new(read * step, step), SIZE).restart);
        }
    }

    #[test]
    fn windows_of_a_kernel_that_are_carried_in_any_order_are_one_stream() {
        let mut stream = Stream::default();
        let (part, mut fetched_to) = (1 << 20, 0);
        for window in 0..20_u64 {
            for place in [3, 1, 0, 2, 7, 4, 6, 5] {
                let range = ByteRange::new((window * 8 + place) * part, part);
                let advice = stream.advance(range, SIZE);
                // The first one reads where nobody has read before.
                assert!(!advice.restart || window == 0, "{window}, {place}");
                assert!(advice.fetch.is_empty() || advice.fetch.offset >= fetched_to);
                fetched_to = fetched_to.max(advice.fetch.end());
            }
        }
    }

    #[test]
    fn nothing_is_fetched_past_the_end() {
        let mut stream = Stream::default();
        let advice = stream.advance(ByteRange::new(0, 4096), 10_000);
        assert_eq!(advice.fetch, ByteRange::new(4096, 10_000 - 4096));
        assert!(stream.advance(ByteRange::new(4096, 10_000 - 4096), 10_000).fetch.is_empty());
        assert!(stream.advance(ByteRange::new(10_000, 4096), 10_000).fetch.is_empty());
    }

    #[test]
    fn extreme_offsets_do_not_overflow() {
        let mut stream = Stream::default();
        let near = u64::MAX - 10_000;
        stream.advance(ByteRange::new(near, 4096), u64::MAX);
        let advice = stream.advance(ByteRange::new(near + 4096, 4096), u64::MAX);
        assert!(advice.fetch.end() == u64::MAX || advice.fetch.is_empty());
    }
}
