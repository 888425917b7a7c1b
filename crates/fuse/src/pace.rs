//! How many threads should read requests at a time: one, or all. Pure.
//!
//! Programs mostly ask one thing after the other. If all threads wait for requests, the kernel wakes them in
//! turn, each on a processor that has forgotten it; one that comes back to read as soon as it has answered
//! takes a fifth less of the processor (docs/performance.md). But where requests come side by side, one that
//! is being answered must not hold up the next. So somebody looks every now and then.

/// Looks at which a request waited, above those at which none did, until all threads read.
const CROWDED: u32 = 3;

/// Looks after which all threads having read is thought over.
const WINDOW: u32 = 16;

/// Of those, so many at which two requests or more were being answered let it stay so.
const ENOUGH: u32 = 4;

/// What somebody who looks has seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Threads that wait for a request.
    pub(crate) reading: usize,
    /// Requests that are being answered by the threads that read them.
    pub(crate) busy: usize,
    /// Requests read so far.
    pub(crate) received: u64,
    /// Whether the kernel has one that nobody has read.
    pub(crate) is_waiting: bool,
}

/// What the looks so far amount to.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    is_wide: bool,
    /// Of requests that waited, while one thread reads.
    score: u32,
    /// At the last look.
    received: u64,
    looks: u32,
    crowded: u32,
}

impl Pace {
    /// Whether all threads read.
    pub(crate) fn is_wide(&self) -> bool {
        self.is_wide
    }

    /// Takes in what was seen.
    pub(crate) fn look(&mut self, seen: Look) {
        let has_moved = seen.received != self.received;
        self.received = seen.received;
        if self.is_wide {
            self.stay_wide(seen.busy);
        } else if seen.is_waiting && seen.reading == 0 {
            self.score += 1;
            // Whoever has read the last one will not come back soon.
            self.is_wide = !has_moved || self.score >= CROWDED;
        } else {
            self.score = self.score.saturating_sub(1);
        }
    }

    fn stay_wide(&mut self, busy: usize) {
        self.looks += 1;
        self.crowded += u32::from(busy > 1);
        if self.looks == WINDOW {
            self.is_wide = self.crowded >= ENOUGH;
            (self.looks, self.crowded, self.score) = (0, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Look = Look { reading: 0, busy: 1, received: 0, is_waiting: false };

    fn look(pace: &mut Pace, received: u64, seen: Look) -> bool {
        pace.look(Look { received, ..seen });
        pace.is_wide()
    }

    #[test]
    fn one_after_the_other_is_read_by_one() {
        let mut pace = Pace::default();
        for number in 1..=1000 {
            // Now and then one is met that nobody waits for.
            let is_waiting = number % 3 == 0;
            assert!(!look(&mut pace, number, Look { is_waiting, ..ALONE }));
        }
        // One that takes long holds up nobody.
        for _ in 0..1000 {
            assert!(!look(&mut pace, 1000, ALONE));
        }
    }

    #[test]
    fn side_by_side_is_read_by_all_and_soon() {
        let mut pace = Pace::default();
        let crowd = Look { is_waiting: true, ..ALONE };
        assert!(!look(&mut pace, 1, crowd));
        assert!(!look(&mut pace, 2, crowd));
        assert!(look(&mut pace, 3, crowd));
        for number in 0..100 {
            let busy = if number % 3 == 0 { 2 } else { 1 };
            assert!(look(&mut pace, number, Look { busy, ..ALONE }), "it stays so");
        }
        let ends = (0..2 * WINDOW).any(|_| !look(&mut pace, 9, ALONE));
        assert!(ends, "until they come one by one");
    }

    #[test]
    fn what_waits_behind_one_that_takes_long_is_read_at_the_second_look() {
        let mut pace = Pace::default();
        assert!(!look(&mut pace, 7, ALONE));
        assert!(look(&mut pace, 7, Look { is_waiting: true, ..ALONE }));
        let mut pace = Pace::default();
        let read_soon = Look { reading: 1, is_waiting: true, ..ALONE };
        assert!((0..100).all(|_| !look(&mut pace, 7, read_soon)), "somebody is there to read it");
    }
}
