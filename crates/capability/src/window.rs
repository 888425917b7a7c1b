//! The drive's memory of nonces: no request passes twice, in bounded memory at any rate.
//!
//! Remembering each nonce for as long as its timestamp could pass would take 160 MB at a million
//! requests a second. Instead the window remembers, for each *sender* ([`crate::nonce`]), the
//! newest timestamp and which of its last 2000 or so sequence numbers were seen, in a bitmap that
//! slides with the highest (as IPsec's anti-replay window, RFC 6479). Senders live in a table of
//! sets of eight; each set has its own lock and its own *closed* timestamp: whatever is stamped
//! then or earlier, by any sender of the set, is refused. A new sender takes the place of the one
//! that has been silent longest, and `closed` rises to the newest timestamp of that one.
//!
//! # No nonce passes twice
//!
//! Claim: if [`NonceWindow::record`] passed nonce `(t, s, q)`, then from there on either
//! `t <= closed` of the set of `s`, or the set has an entry of `s` that refuses `q`.
//! It holds when `record` returns: the entry has the bit of `q`. It goes on holding, because
//! * `closed` never falls;
//! * while the entry lives, `q` is refused by its bit, or, once the bitmap has slid past it, by
//!   being too far below the highest (sequence numbers are compared as they are, they don't wrap);
//! * an entry is replaced only after `closed` rose to at least its newest timestamp, which is at
//!   least `t`. A later entry of `s` starts empty, but `t <= closed` by then.
//!
//! Nothing of this depends on the clock, so that a clock that is stepped lets no replay pass.
//! Over a restart the argument needs one fact from outside: `start` is not earlier than the drive's
//! clock ever was before. As every nonce that passed before was stamped at most `ahead_ns` after
//! the clock of its time, everything up to `start + ahead_ns` is closed from the beginning.
//!
//! # What is refused without need, and that it is rare
//!
//! A refusal tells the client a timestamp that will pass ([`NonceWindow::clock_for`]), and costs it
//! one more round trip. Honest clients see it
//! * in the first `ahead_ns` after a start, once each, unless they asked for the clock
//!   ([`NonceWindow::clock`]) by `inquiry`;
//! * when a request is overtaken by more than 1985 later ones of its own sender;
//! * when two senders drew the same 40 bits: of 8192 at a time, one time in 30 000 there is a pair;
//! * when a set has more than eight live senders: each takes another's place then, and closes its past.
//!   With the default size 8000 live senders leave 3 in 10 000 sets so full, twice as many 2 in 100. A
//!   client that draws every nonce at random is a new sender each time; a million such requests a
//!   second still leave 32 ms for each to arrive.
//!
//! Only somebody with a valid key can make the window remember anything, as nonces are recorded
//! after the digest was right. Such a client can make others try again, by sending as many
//! different senders as it can; it can't make a replay pass. The table is addressed by a keyed
//! hash, so that it can't aim at one victim's set; it can use a victim's sender if it sees the
//! network, upon which the victim draws another.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nasd_types::Timestamp;

use crate::nonce::mix;
use crate::{Nonce, Refusal};

/// Senders in a set.
const WAYS: usize = 8;

/// 64-bit words of a sender's bitmap. The word of the highest number is partly used, so that at
/// least `64 * (WORDS - 1) + 1` numbers are remembered.
const WORDS: usize = 32;

/// No sender has this number: they have 40 bits.
const VACANT: u64 = u64::MAX;

const _: () = assert!(WORDS.is_power_of_two());

/// Sizes and times of a [`NonceWindow`].
#[derive(Clone, Copy, Debug)]
pub struct WindowOptions {
    /// How much older than the drive's clock a timestamp may be, in nanoseconds. Requests that
    /// wait longer than this on their way must be sent again.
    pub past_ns: u64,
    /// How far ahead of the drive's clock a timestamp may be, in nanoseconds.
    pub ahead_ns: u64,
    /// Senders remembered at a time, about 275 bytes each; rounded up to 8 times a power of two.
    pub senders: usize,
}

impl Default for WindowOptions {
    /// 10 s back, 1 s ahead, 32768 senders in 9 MiB: those of all connections that a drive may have,
    /// and of as many as eight times that were closed lately.
    fn default() -> Self {
        WindowOptions {
            past_ns: 10 * Timestamp::SECOND_NS,
            ahead_ns: Timestamp::SECOND_NS,
            senders: 32_768,
        }
    }
}

/// The drive's memory of nonces seen; any number of threads share one. See the module.
pub struct NonceWindow {
    past_ns: AtomicU64,
    ahead_ns: AtomicU64,
    /// Stamped so or earlier is from before the start.
    closed_at_start: AtomicU64,
    /// Keys the hash that spreads senders over sets.
    seed: u64,
    /// A power of two of them.
    sets: Box<[Mutex<Set>]>,
}

impl NonceWindow {
    /// A window that has seen nothing, for a drive that starts at `start`.
    ///
    /// `start` must not be earlier than the drive's clock ever was in its earlier runs. A drive
    /// whose clock may be set back between runs needs a mark on its medium for this; without one,
    /// what was recorded before the clock was set back passes again. `seed` is random.
    pub fn new(options: WindowOptions, start: Timestamp, seed: u64) -> Self {
        let closed_at_start = start.plus_ns(options.ahead_ns);
        let sets = options.senders.div_ceil(WAYS).max(1).next_power_of_two();
        let sets = (0..sets).map(|_| Mutex::new(Set::new(closed_at_start))).collect();
        NonceWindow {
            past_ns: AtomicU64::new(options.past_ns),
            ahead_ns: AtomicU64::new(options.ahead_ns),
            closed_at_start: AtomicU64::new(closed_at_start.0),
            seed,
            sets,
        }
    }

    /// Forgets everything and begins anew at `start`, as though no request had ever passed, with
    /// other limits. Only for when no key is left that an earlier request was made with.
    pub fn restart(&self, past_ns: u64, ahead_ns: u64, start: Timestamp) {
        let closed = start.plus_ns(ahead_ns);
        self.past_ns.store(past_ns, Ordering::Relaxed);
        self.ahead_ns.store(ahead_ns, Ordering::Relaxed);
        self.closed_at_start.store(closed.0, Ordering::Relaxed);
        for set in &self.sets {
            *set.lock().unwrap_or_else(PoisonError::into_inner) = Set::new(closed);
        }
    }

    /// How much older, and how much newer, than the drive's clock a timestamp may be, in
    /// nanoseconds.
    pub fn skew(&self) -> (u64, u64) {
        (self.past_ns.load(Ordering::Relaxed), self.ahead_ns.load(Ordering::Relaxed))
    }

    /// Memory that it takes, in bytes: always the same.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.sets)
    }

    /// Whether the nonce could still be recorded: [`Refusal::Skew`] outside the window,
    /// [`Refusal::Replay`] if it was seen or can't be told from one that was.
    pub fn check(&self, now: Timestamp, nonce: &Nonce) -> Result<(), Refusal> {
        if nonce.timestamp < Timestamp(now.0.saturating_sub(self.skew().0)) {
            return Err(Refusal::Skew);
        }
        self.check_ahead(now, nonce)?;
        self.set(nonce).check(nonce).map(|_| ())
    }

    /// Records the nonce as seen; of any number of callers with the same nonce, one passes. To be
    /// called when the digest was right, after [`NonceWindow::check`] passed at an earlier `now`.
    /// How old the nonce is does not matter any more: receiving its data may have taken a while.
    pub fn record(&self, now: Timestamp, nonce: &Nonce) -> Result<(), Refusal> {
        self.check_ahead(now, nonce)?;
        let mut set = self.set(nonce);
        let way = set.check(nonce)?;
        set.record(way, nonce);
        Ok(())
    }

    /// The drive's clock as `inquiry` tells it: never a time that is closed since the start.
    pub fn clock(&self, now: Timestamp) -> Timestamp {
        now.max(Timestamp(self.closed_at_start.load(Ordering::Relaxed)).plus_ns(1))
    }

    /// The drive's clock for the verifier of a refusal: a time not earlier than `now`, with which
    /// this sender's next request will pass. (Right after a start it may be `ahead_ns` and one
    /// nanosecond ahead of `now`; any real request takes longer than that nanosecond to come.)
    pub fn clock_for(&self, now: Timestamp, nonce: &Nonce) -> Timestamp {
        let closed = self.set(nonce).closed;
        now.max(closed.plus_ns(1))
    }

    fn check_ahead(&self, now: Timestamp, nonce: &Nonce) -> Result<(), Refusal> {
        if nonce.timestamp > now.plus_ns(self.skew().1) {
            return Err(Refusal::Skew);
        }
        Ok(())
    }

    fn set(&self, nonce: &Nonce) -> MutexGuard<'_, Set> {
        let hash = mix(mix(nonce.sender() ^ self.seed) ^ self.seed.rotate_left(32));
        let index = (hash & (self.sets.len() as u64 - 1)) as usize;
        // No code that holds the lock can panic, so that a poisoned set is whole all the same.
        self.sets[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for NonceWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NonceWindow").field("skew", &self.skew()).finish_non_exhaustive()
    }
}

/// Eight senders. What is looked at for every request comes first.
#[repr(align(64))]
struct Set {
    /// Refuse whatever is stamped so or earlier.
    closed: Timestamp,
    sender: [u64; WAYS],
    /// Newest timestamp of each sender; 0 where vacant, so that vacant places are taken first.
    newest: [Timestamp; WAYS],
    /// Highest sequence number of each sender.
    highest: [u32; WAYS],
    /// Bit `q % 64` of word `q / 64 % WORDS` for sequence number `q`, back to `WORDS` words
    /// including that of the highest.
    seen: [[u64; WORDS]; WAYS],
}

/// Where a nonce that passes is to be recorded.
#[derive(Clone, Copy)]
enum Way {
    Known(usize),
    New,
}

impl Set {
    const fn new(closed: Timestamp) -> Self {
        Set {
            closed,
            sender: [VACANT; WAYS],
            newest: [Timestamp(0); WAYS],
            highest: [0; WAYS],
            seen: [[0; WORDS]; WAYS],
        }
    }

    fn check(&self, nonce: &Nonce) -> Result<Way, Refusal> {
        if nonce.timestamp <= self.closed {
            return Err(Refusal::Replay);
        }
        let sender = nonce.sender();
        let Some(way) = self.sender.iter().position(|known| *known == sender) else {
            return Ok(Way::New);
        };
        if self.has_seen(way, nonce.sequence()) {
            return Err(Refusal::Replay);
        }
        Ok(Way::Known(way))
    }

    fn has_seen(&self, way: usize, sequence: u32) -> bool {
        let (block, highest_block) = (sequence / 64, self.highest[way] / 64);
        if block > highest_block {
            return false;
        }
        let slid_past = highest_block - block >= WORDS as u32;
        slid_past || self.seen[way][block as usize % WORDS] >> (sequence % 64) & 1 == 1
    }

    /// `way` must come from `check` of the same nonce, under the same lock.
    fn record(&mut self, way: Way, nonce: &Nonce) {
        let way = match way {
            Way::Known(way) => way,
            Way::New => self.replace_oldest(nonce),
        };
        let sequence = nonce.sequence();
        self.slide(way, sequence);
        self.seen[way][(sequence / 64) as usize % WORDS] |= 1 << (sequence % 64);
        self.newest[way] = self.newest[way].max(nonce.timestamp);
    }

    /// Closes the past of the sender that has been silent longest and gives its place away.
    fn replace_oldest(&mut self, nonce: &Nonce) -> usize {
        let mut oldest = 0;
        for way in 1..WAYS {
            if self.newest[way] < self.newest[oldest] {
                oldest = way;
            }
        }
        self.closed = self.closed.max(self.newest[oldest]);
        self.sender[oldest] = nonce.sender();
        self.newest[oldest] = nonce.timestamp;
        self.highest[oldest] = nonce.sequence();
        self.seen[oldest] = [0; WORDS];
        oldest
    }

    /// Raises the highest number to `sequence`, wiping the words that come into use.
    fn slide(&mut self, way: usize, sequence: u32) {
        if sequence <= self.highest[way] {
            return;
        }
        let (block, highest_block) = (sequence / 64, self.highest[way] / 64);
        for fresh in (highest_block + 1..=block).rev().take(WORDS) {
            self.seen[way][fresh as usize % WORDS] = 0;
        }
        self.highest[way] = sequence;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nonce::{MAX_SEQUENCE, SEQUENCE_BITS};

    const NOW: Timestamp = Timestamp(1_000 * Timestamp::SECOND_NS);
    const START: Timestamp = Timestamp(900 * Timestamp::SECOND_NS);

    fn window(senders: usize) -> NonceWindow {
        NonceWindow::new(WindowOptions { senders, ..WindowOptions::default() }, START, 99)
    }

    fn nonce(timestamp: Timestamp, sender: u64, sequence: u32) -> Nonce {
        Nonce { timestamp, unique: sender << SEQUENCE_BITS | u64::from(sequence) }
    }

    #[test]
    fn timestamps_must_lie_in_the_window() {
        let window = window(8);
        let options = WindowOptions::default();
        let oldest = Timestamp(NOW.0 - options.past_ns);
        let newest = NOW.plus_ns(options.ahead_ns);
        assert_eq!(window.check(NOW, &nonce(oldest, 1, 1)), Ok(()));
        assert_eq!(window.check(NOW, &nonce(newest, 1, 1)), Ok(()));
        let too_old = nonce(Timestamp(oldest.0 - 1), 1, 1);
        assert_eq!(window.check(NOW, &too_old), Err(Refusal::Skew));
        let too_new = nonce(newest.plus_ns(1), 1, 1);
        assert_eq!(window.check(NOW, &too_new), Err(Refusal::Skew));
        assert_eq!(window.record(NOW, &too_new), Err(Refusal::Skew), "nor without a check");
    }

    #[test]
    fn what_may_have_passed_before_the_start_is_refused() {
        let window = window(8);
        let ahead = WindowOptions::default().ahead_ns;
        let closed = START.plus_ns(ahead);
        let replay = nonce(closed, 1, 1);
        assert_eq!(window.check(START.plus_ns(1), &replay), Err(Refusal::Replay));
        let clock = window.clock(START.plus_ns(1));
        assert_eq!(window.check(START.plus_ns(1), &nonce(clock, 1, 1)), Ok(()));
        assert_eq!(window.clock_for(START.plus_ns(1), &replay), clock);
        assert_eq!(window.clock(NOW), NOW);
    }

    #[test]
    fn a_restart_forgets_and_may_be_at_an_earlier_time() {
        let window = window(8);
        let seen = nonce(NOW, 1, 1);
        assert_eq!(window.record(NOW, &seen), Ok(()));
        let earlier = Timestamp(NOW.0 / 2);
        window.restart(5, 7, earlier);
        assert_eq!(window.skew(), (5, 7));
        let clock = window.clock(earlier);
        assert_eq!(clock, earlier.plus_ns(8));
        let fresh = nonce(clock, 1, 1);
        assert_eq!(window.check(clock, &nonce(clock.plus_ns(8), 1, 1)), Err(Refusal::Skew));
        assert_eq!(window.check(clock.plus_ns(6), &fresh), Err(Refusal::Skew));
        assert_eq!(window.check(clock, &nonce(earlier.plus_ns(7), 1, 1)), Err(Refusal::Replay));
        assert_eq!(window.record(clock, &fresh), Ok(()));
        assert_eq!(window.record(clock, &fresh), Err(Refusal::Replay));
    }

    #[test]
    fn checking_records_nothing() {
        let window = window(8);
        let nonce = nonce(NOW, 5, 5);
        assert_eq!(window.check(NOW, &nonce), Ok(()));
        assert_eq!(window.check(NOW, &nonce), Ok(()));
        assert_eq!(window.record(NOW, &nonce), Ok(()));
        assert_eq!(window.check(NOW, &nonce), Err(Refusal::Replay));
        assert_eq!(window.record(NOW, &nonce), Err(Refusal::Replay));
    }

    #[test]
    fn another_timestamp_does_not_make_a_number_fresh() {
        let window = window(8);
        assert_eq!(window.record(NOW, &nonce(NOW, 5, 5)), Ok(()));
        assert_eq!(window.record(NOW, &nonce(NOW.plus_ns(1), 5, 5)), Err(Refusal::Replay));
    }

    #[test]
    fn requests_may_overtake_each_other_by_1985() {
        let window = window(8);
        let overtakers = 64 * (WORDS as u32 - 1) + 1;
        for highest in [5_000, 5_055, 5_056, 6_000] {
            assert_eq!(window.record(NOW, &nonce(NOW, 5, highest)), Ok(()));
            let late = highest - overtakers + 1;
            assert_eq!(window.record(NOW, &nonce(NOW, 5, late)), Ok(()), "{highest}");
            assert_eq!(window.record(NOW, &nonce(NOW, 5, late)), Err(Refusal::Replay));
            let too_late = highest - 64 * WORDS as u32;
            assert_eq!(window.record(NOW, &nonce(NOW, 5, too_late)), Err(Refusal::Replay));
        }
    }

    #[test]
    fn a_jump_over_the_whole_bitmap_forgets_nothing_it_needs() {
        let window = window(8);
        for sequence in [0, 1, 63, 64, 2_047, 2_048, 100_000, MAX_SEQUENCE] {
            assert_eq!(window.record(NOW, &nonce(NOW, 5, sequence)), Ok(()));
            for old in [0, 1, 63, 64, 2_047, 2_048, 100_000, MAX_SEQUENCE] {
                let expected = if old <= sequence { Err(Refusal::Replay) } else { Ok(()) };
                assert_eq!(window.check(NOW, &nonce(NOW, 5, old)), expected, "{old} {sequence}");
            }
        }
    }

    /// Sets every bit of the bitmap of a sender.
    fn fill(window: &NonceWindow, sender: u64) {
        for sequence in 0..64 * WORDS as u32 {
            assert_eq!(window.record(NOW, &nonce(NOW, sender, sequence)), Ok(()));
        }
    }

    #[test]
    fn nothing_is_refused_for_the_sake_of_what_was_forgotten() {
        let late = |highest: u32| highest - 64 * (WORDS as u32 - 1)..highest;
        for jump in [64 * WORDS as u32, 100_000] {
            let window = window(8);
            fill(&window, 5);
            let highest = 64 * WORDS as u32 - 1 + jump;
            assert_eq!(window.record(NOW, &nonce(NOW, 5, highest)), Ok(()));
            for sequence in late(highest) {
                assert_eq!(window.record(NOW, &nonce(NOW, 5, sequence)), Ok(()), "{sequence}");
            }
        }
        let window = window(8);
        (0..8).for_each(|sender| fill(&window, sender));
        let highest = 64 * WORDS as u32 - 1;
        let after = NOW.plus_ns(1);
        assert_eq!(window.record(NOW, &nonce(after, 8, highest)), Ok(()));
        for sequence in late(highest) {
            assert_eq!(window.record(NOW, &nonce(after, 8, sequence)), Ok(()), "{sequence}");
        }
    }

    #[test]
    fn a_ninth_sender_closes_the_past_of_the_most_silent() {
        let window = window(8);
        for sender in 0..8 {
            assert_eq!(window.record(NOW, &nonce(NOW.plus_ns(sender), sender, 0)), Ok(()));
        }
        let ninth = nonce(NOW.plus_ns(50), 8, 0);
        assert_eq!(window.record(NOW, &ninth), Ok(()));
        assert_eq!(window.check(NOW, &nonce(NOW, 0, 0)), Err(Refusal::Replay), "forgotten, closed");
        assert_eq!(window.check(NOW, &nonce(NOW, 1, 7)), Err(Refusal::Replay), "unneeded");
        assert_eq!(window.clock_for(Timestamp(0), &ninth), NOW.plus_ns(1));
        assert_eq!(window.check(NOW, &nonce(NOW.plus_ns(1), 0, 0)), Ok(()), "fresh again");
        assert_eq!(window.check(NOW, &nonce(NOW.plus_ns(1), 1, 0)), Err(Refusal::Replay));
    }

    #[test]
    fn the_last_instant_of_time_does_not_open_a_gap() {
        let window = window(8);
        let end = Timestamp::MAX;
        for sender in 0..30 {
            let last = nonce(end, sender, 0);
            if window.record(end, &last).is_ok() {
                assert_eq!(window.record(end, &last), Err(Refusal::Replay));
            }
        }
        for sender in 0..30 {
            let passes = window.record(end, &nonce(end, sender, 0));
            assert_eq!(passes, Err(Refusal::Replay));
        }
    }

    #[test]
    fn many_threads_pass_each_nonce_once() {
        let window = window(64);
        let passed: usize = std::thread::scope(|scope| {
            let record_all = || {
                let nonces = (0..20_000).map(|n| nonce(NOW, n % 4, (n / 4) as u32));
                nonces.filter(|nonce| window.record(NOW, nonce).is_ok()).count()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(record_all)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
        });
        // Every nonce that was overtaken by less than the window passed, once.
        assert!(passed <= 20_000);
        assert!(passed >= 4 * 1_985, "{passed}");
    }
}
