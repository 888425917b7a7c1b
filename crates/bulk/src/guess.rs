//! What will be read next: guessed from what was read last, by offset and length.
//!
//! Pure: whoever reads ahead asks, and does it.

use nasd_types::ByteRange;

/// Reads that are guessed ahead of a stream, at most.
pub(crate) const MOST_READS: usize = 8;

/// After so many reads in a row that were guessed right, as many are guessed ahead as may be.
const SURE: u32 = 2;

/// Guesses the reads of one open file: on from where the last one ended, or in equal steps.
#[derive(Debug)]
pub(crate) struct Guess {
    /// Bytes that may be read ahead.
    most_bytes: u64,
    last: Option<ByteRange>,
    /// How far the last two reads of one length began from each other.
    apart: Option<i128>,
    /// The step that the last read showed.
    step: Option<i128>,
    /// How many reads in a row showed the same.
    right: u32,
}

impl Guess {
    /// For at most so many bytes ahead, but for at least one read.
    pub(crate) fn new(most_bytes: u64) -> Guess {
        Guess { most_bytes, last: None, apart: None, step: None, right: 0 }
    }

    /// What will be read first of a file of `size` bytes that was opened to be read in blocks of `length` bytes: who says so is believed.
    pub(crate) fn at_open(&mut self, length: u64, size: u64) -> Vec<ByteRange> {
        if length == 0 {
            return Vec::new();
        }
        (self.step, self.right) = (Some(i128::from(length)), SURE);
        (0..self.depth(length) as u64)
            .map(|number| ByteRange::new(number.saturating_mul(length), length))
            .map_while(|range| within(range, size))
            .collect()
    }

    /// Takes note of a read, and tells which ones will come next, the nearest first, within a file of `size` bytes: twice as many
    /// each time that it was right.
    pub(crate) fn after(&mut self, read: ByteRange, size: u64) -> Vec<ByteRange> {
        let step = self.step_shown_by(&read);
        self.right = match step.is_some() && step == self.step {
            true => self.right.saturating_add(1),
            false => 0,
        };
        self.step = step;
        let Some(step) = step else {
            return Vec::new();
        };
        let at = |number: usize| i128::from(read.offset) + step * (number as i128 + 1);
        (0..self.depth(read.length))
            .map_while(|number| u64::try_from(at(number)).ok())
            .map(|offset| ByteRange::new(offset, read.length))
            .map_while(|range| within(range, size))
            .collect()
    }

    /// How far the next read is from this one. Who begins at the beginning, or goes on where he ended, is taken to read on; who has
    /// gone as far twice, to do so once more.
    fn step_shown_by(&mut self, read: &ByteRange) -> Option<i128> {
        let last = self.last.replace(*read);
        let Some(last) = last else {
            return (read.offset == 0 && !read.is_empty()).then_some(i128::from(read.length));
        };
        let distance = i128::from(read.offset) - i128::from(last.offset);
        let apart = (read.length == last.length && distance != 0).then_some(distance);
        let before = std::mem::replace(&mut self.apart, apart);
        if read.is_empty() {
            None
        } else if read.offset == last.end() {
            Some(i128::from(read.length))
        } else {
            apart.filter(|_| apart == before)
        }
    }

    fn depth(&self, length: u64) -> usize {
        let most = usize::try_from(self.most_bytes / length).unwrap_or(MOST_READS);
        let wanted = 2_usize.pow(self.right.min(SURE) + 1);
        wanted.min(most).clamp(1, MOST_READS)
    }
}

/// What a range has in common with a file of `size` bytes, if that is something.
pub(crate) fn within(range: ByteRange, size: u64) -> Option<ByteRange> {
    let range = range.intersection(&ByteRange::new(0, size));
    (!range.is_empty()).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn offsets(guessed: &[ByteRange]) -> Vec<u64> {
        guessed.iter().map(|range| range.offset / MIB).collect()
    }

    fn read(offset: u64) -> ByteRange {
        ByteRange::new(offset * MIB, MIB)
    }

    #[test]
    fn who_reads_on_is_read_ahead_of_by_more_each_time() {
        let mut guess = Guess::new(6 * MIB);
        assert_eq!(offsets(&guess.after(read(0), 100 * MIB)), [1, 2]);
        assert_eq!(offsets(&guess.after(read(1), 100 * MIB)), [2, 3, 4, 5]);
        assert_eq!(offsets(&guess.after(read(2), 100 * MIB)), [3, 4, 5, 6, 7, 8]);
        assert_eq!(offsets(&guess.after(read(3), 6 * MIB)), [4, 5], "not behind the end");
        // Whoever jumps is not guessed until he goes on from there.
        assert_eq!(offsets(&guess.after(read(50), 100 * MIB)), [0; 0]);
        assert_eq!(offsets(&guess.after(read(51), 100 * MIB)), [52, 53]);
    }

    #[test]
    fn who_says_how_long_his_reads_will_be_is_read_ahead_of_from_the_beginning() {
        let mut guess = Guess::new(6 * MIB);
        assert_eq!(offsets(&guess.at_open(MIB, 100 * MIB)), [0, 1, 2, 3, 4, 5]);
        assert_eq!(offsets(&guess.at_open(MIB, 10)), [0]);
        assert!(guess.at_open(0, 100 * MIB).is_empty() && guess.at_open(MIB, 0).is_empty());
        assert_eq!(guess.at_open(u64::MAX, u64::MAX).len(), 1);
        assert_eq!(guess.at_open(MIB, MIB + 5)[1], ByteRange::new(MIB, 5), "up to the end");
        let mut guess = Guess::new(6 * MIB);
        guess.at_open(MIB, 100 * MIB);
        assert_eq!(offsets(&guess.after(read(0), 100 * MIB)), [1, 2, 3, 4, 5, 6]);
        // He did not do what he said.
        assert!(guess.after(read(50), 100 * MIB).is_empty());
    }

    #[test]
    fn equal_steps_are_seen_the_second_time_forwards_and_backwards() {
        let mut guess = Guess::new(2 * MIB);
        assert_eq!(offsets(&guess.after(read(40), 100 * MIB)), [0; 0]);
        assert_eq!(offsets(&guess.after(read(50), 100 * MIB)), [0; 0]);
        assert_eq!(offsets(&guess.after(read(60), 100 * MIB)), [70, 80]);
        let mut back = Guess::new(2 * MIB);
        back.after(read(9), 100 * MIB);
        back.after(read(5), 100 * MIB);
        assert_eq!(offsets(&back.after(read(1), 100 * MIB)), [0; 0], "not before the beginning");
    }

    #[test]
    fn the_same_again_and_nothing_are_no_streams() {
        let mut guess = Guess::new(2 * MIB);
        guess.after(read(7), 100 * MIB);
        assert!(guess.after(read(7), 100 * MIB).is_empty());
        assert!(guess.after(ByteRange::new(7 * MIB, 0), 100 * MIB).is_empty());
        let mut other = Guess::new(2 * MIB);
        assert!(other.after(ByteRange::new(0, 0), 100 * MIB).is_empty());
        assert_eq!(other.after(read(0), 100 * MIB).len(), 2);
    }

    #[test]
    fn one_read_is_guessed_however_long_it_is() {
        let mut guess = Guess::new(MIB);
        assert_eq!(guess.after(ByteRange::new(0, 40 * MIB), 100 * MIB).len(), 1);
        let mut end = Guess::new(MIB);
        let last = ByteRange::new(u64::MAX - MIB, MIB);
        assert!(end.after(last, u64::MAX).is_empty());
    }
}
