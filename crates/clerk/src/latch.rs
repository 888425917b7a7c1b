//! Failures of write-behind, told once to every open file.
//!
//! As Linux does with its error sequence: each open file remembers how many failures it knows of,
//! and is told of newer ones at its next write, fsync or close. A failure that nobody was told of
//! is told to the next who opens the file.

use crate::ClerkError;

/// The failures of one file.
#[derive(Debug, Default)]
pub(crate) struct ErrorLatch {
    count: u64,
    last: Option<ClerkError>,
    told: bool,
}

/// The failures that one open file knows of.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen(u64);

impl ErrorLatch {
    /// Keeps a failure.
    pub(crate) fn record(&mut self, error: ClerkError) {
        self.count += 1;
        self.last = Some(error);
        self.told = false;
    }

    /// How many there have been.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The last failure, if there has been one after the first `count`.
    pub(crate) fn since(&self, count: u64) -> Option<ClerkError> {
        if self.count > count { self.last.clone() } else { None }
    }

    /// What somebody who opens the file now counts as known.
    pub(crate) fn at_open(&self) -> Seen {
        let untold = self.count > 0 && !self.told;
        Seen(if untold { self.count - 1 } else { self.count })
    }

    /// Tells of a failure that this open file does not know of, once.
    pub(crate) fn check(&mut self, seen: &mut Seen) -> Result<(), ClerkError> {
        let newer = self.since(seen.0);
        seen.0 = self.count;
        match newer {
            Some(error) => {
                self.told = true;
                Err(error)
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_open_file_is_told_once() {
        let mut latch = ErrorLatch::default();
        let (mut first, mut second) = (latch.at_open(), latch.at_open());
        assert_eq!(latch.check(&mut first), Ok(()));
        latch.record(ClerkError::TooLarge);
        assert_eq!(latch.check(&mut first), Err(ClerkError::TooLarge));
        assert_eq!(latch.check(&mut first), Ok(()));
        assert_eq!(latch.check(&mut second), Err(ClerkError::TooLarge));
        assert_eq!(latch.check(&mut latch.at_open()), Ok(()), "everybody was told");
    }

    #[test]
    fn an_untold_failure_is_told_to_the_next_who_opens() {
        let mut latch = ErrorLatch::default();
        latch.record(ClerkError::TooLarge);
        assert_eq!(latch.check(&mut latch.at_open()), Err(ClerkError::TooLarge));
        assert_eq!(latch.check(&mut latch.at_open()), Ok(()));
    }
}
