//! Which of the calls that wait is begun next: the one whose job will be over first, so that most wait least; but whoever
//! has waited long is not passed over for ever (section 3.2 of the SMAS paper, with aging).

use std::collections::BTreeMap;

/// What an extension is taken to look at in a second before it has been measured, in bytes.
const FIRST_SPEED: f64 = 1e9;

/// How much of what is known of a speed is from its last measurement.
const LEARNED: f64 = 0.25;

/// A second of waiting makes up for so many seconds of work.
const AGING: f64 = 0.5;

/// Calls that wait, with `T` for each.
#[derive(Debug)]
pub(super) struct Queue<T> {
    waiting: Vec<Waiting<T>>,
    /// Bytes a second, of each extension.
    speeds: BTreeMap<u32, f64>,
    /// Bytes that no call has been granted.
    free_bytes: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    need: Need,
    /// When it came, in seconds.
    since: f64,
    what: T,
}

/// What is known of a call before it is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// The extension's number.
    pub(crate) extension: u32,
    /// Bytes that its job has still to look at.
    pub(crate) bytes_left: u64,
    /// Bytes of memory.
    pub(crate) memory_bytes: usize,
}

impl<T> Queue<T> {
    pub(super) fn new(memory_bytes: usize) -> Queue<T> {
        Queue { waiting: Vec::new(), speeds: BTreeMap::new(), free_bytes: memory_bytes }
    }

    /// A call has come, at a time in seconds.
    pub(super) fn push(&mut self, need: Need, now: f64, what: T) {
        self.waiting.push(Waiting { need, since: now, what });
    }

    /// Which call is begun now: that which comes first of all, if there is memory for it. Its memory is granted.
    pub(super) fn next(&mut self, now: f64) -> Option<(Need, T)> {
        let rank = |waiting: &Waiting<T>| self.rank(waiting, now);
        let ranks = self.waiting.iter().map(rank).enumerate();
        let (first, _) = ranks.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
        // Nobody overtakes one that waits for memory: it might wait for ever.
        self.free_bytes = self.free_bytes.checked_sub(self.waiting[first].need.memory_bytes)?;
        let Waiting { need, what, .. } = self.waiting.remove(first);
        Some((need, what))
    }

    /// Seconds of work that its job has still to do, less what it has waited for.
    fn rank(&self, waiting: &Waiting<T>, now: f64) -> f64 {
        self.seconds(waiting.need.extension, waiting.need.bytes_left)
            - AGING * (now - waiting.since)
    }

    fn seconds(&self, extension: u32, bytes: u64) -> f64 {
        bytes as f64 / self.speeds.get(&extension).copied().unwrap_or(FIRST_SPEED)
    }

    /// Whether somebody waits whose job will be over before that of one who has still so many bytes to look at.
    pub(super) fn has_shorter(&self, need: Need, now: f64) -> bool {
        let own = self.seconds(need.extension, need.bytes_left);
        self.waiting.iter().any(|waiting| self.rank(waiting, now) < own)
    }

    /// A call is over, and has looked at so many bytes in so many seconds.
    pub(super) fn ended(&mut self, need: Need, bytes: u64, seconds: f64) {
        self.free_bytes += need.memory_bytes;
        // What takes no time, or is next to nothing, says nothing.
        if bytes < 64 << 10 || seconds <= 0.0 {
            return;
        }
        let measured = bytes as f64 / seconds;
        let speed = self.speeds.entry(need.extension).or_insert(measured);
        *speed += LEARNED * (measured - *speed);
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(extension: u32, bytes_left: u64) -> Need {
        Need { extension, bytes_left, memory_bytes: 10 }
    }

    #[test]
    fn the_shortest_goes_first_by_what_was_measured() {
        let mut queue = Queue::new(1000);
        queue.push(need(1, 5_000_000_000), 0.0, "slow");
        queue.push(need(2, 9_000_000_000), 0.0, "quick");
        assert_eq!(queue.next(0.0).unwrap().1, "slow", "nothing is known");
        queue.ended(need(1, 0), 1_000_000_000, 10.0);
        queue.push(need(1, 5_000_000_000), 0.0, "slow");
        assert!(queue.has_shorter(need(1, 4_000_000_000), 0.0));
        assert!(!queue.has_shorter(need(2, 4_000_000_000), 0.0));
        assert_eq!(queue.next(0.0).unwrap().1, "quick");
        assert_eq!(queue.next(0.0).unwrap().1, "slow");
        assert_eq!(queue.next(0.0), None);
    }

    #[test]
    fn who_waits_is_begun_however_many_shorter_ones_come() {
        let mut queue = Queue::new(1000);
        queue.push(need(1, 10_000_000_000), 0.0, 0);
        for second in 1..=100 {
            queue.push(need(1, 1_000_000_000), f64::from(second), second);
            let (begun, number) = queue.next(f64::from(second)).unwrap();
            queue.ended(begun, 0, 0.0);
            if number == 0 {
                assert!((2..40).contains(&second), "{second}");
                return;
            }
        }
        panic!("it starves");
    }

    #[test]
    fn nobody_overtakes_who_waits_for_memory() {
        let mut queue = Queue::new(25);
        let large = Need { memory_bytes: 20, ..need(1, 10) };
        queue.push(need(1, 1), 0.0, "first");
        queue.push(large, 0.0, "large");
        queue.push(need(1, 1000), 0.0, "small");
        let (first, _) = queue.next(0.0).unwrap();
        assert_eq!(queue.next(0.0), None);
        queue.ended(first, 0, 0.0);
        assert_eq!(queue.next(0.0).unwrap().1, "large");
        assert_eq!(queue.next(0.0), None);
        queue.ended(large, 0, 0.0);
        assert_eq!(queue.next(0.0).unwrap().1, "small");
        assert_eq!(queue.len(), 0);
    }
}
