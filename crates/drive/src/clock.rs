//! The drive's clock: never earlier than it was, whatever becomes of the machine's.
//!
//! A drive forgets at its stop which nonces it has seen. So the clock must not start at a time at
//! which it has accepted requests before, even if somebody has set the machine's clock back in
//! between. The store keeps a *mark*: the clock has never shown a later time while a request was
//! accepted. The mark is moved ahead in steps, before it is reached; a clean stop leaves it where
//! the clock stopped. A clock that would start below the mark starts at the mark.
//!
//! While the drive runs, its clock goes by the time that passes on the machine, which nobody can set,
//! and follows the machine's time of day (plus an offset, which `initialize` sets) by going a sixteenth
//! faster or slower until they agree. So a step of the time of day either way, by its first correction
//! after the machine's start or by an administrator's mistake, is never a step of the drive's clock:
//! nonces of a moment ago stay in its window, and none comes into it again. After a crash the clock is
//! ahead by at most a step of the mark, which it gives back in the same way.
//!
//! # No nonce of a reply repeats under a key
//!
//! Replies with privacy options need that, as their cipher would tell the plaintext otherwise. Within a
//! run the drive numbers replies, so that two of them have the same number only when the sender, which
//! is drawn anew by 40 bits for 2^24 replies, was drawn twice; they then have different times, since the
//! clock does not fall and 2^24 replies take a while. Replies of two runs have different times: those of the
//! earlier are stamped at or below the mark, at which the later begins. `initialize` may set the clock
//! back, but leaves no key. Where the mark can't be moved, only requests that change nothing are
//! served above it ([`Clock::pass`]), and after the next start only 64 random bits keep the nonces of
//! their replies apart from new ones of the same nanosecond.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nasd_store::{ClockState, Store, StoreError};
use nasd_types::Timestamp;

use crate::Environment;

/// How far ahead of the clock the mark is put.
const STEP_NS: u64 = 16 * Timestamp::SECOND_NS;

/// How close the clock may come to the mark before it is moved.
const MARGIN_NS: u64 = STEP_NS / 2;

/// How long after a failure the mark is not tried to be moved again.
const PAUSE_NS: u64 = Timestamp::SECOND_NS;

/// The part of the time that passes by which the clock goes faster or slower than that.
const SLEWED_PART: u64 = 16;

/// Above the mark, which can't be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AboveTheMark;

/// See the module.
#[derive(Debug)]
pub(crate) struct Clock {
    machine: Environment,
    /// What the drive's clock is to be ahead of the machine's time of day.
    offset: AtomicI64,
    course: Course,
    mark: AtomicU64,
    /// Not before this time is the mark to be moved, as it failed.
    pause: AtomicU64,
    /// How many there were when the mark was last looked after.
    requests: AtomicU64,
    /// Held while the mark or the course changes.
    moving: Mutex<()>,
}

impl Clock {
    /// A clock that starts now, as the store says.
    pub(crate) fn start(machine: Environment, state: ClockState) -> Clock {
        let wanted = shifted(machine.now(), state.offset);
        let begin = Segment::toward(wanted, machine.elapsed_ns(), wanted.max(state.mark));
        Clock {
            machine,
            offset: AtomicI64::new(state.offset),
            course: Course::new(begin),
            mark: AtomicU64::new(state.mark.0),
            pause: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            moving: Mutex::new(()),
        }
    }

    /// What the clock shows.
    pub(crate) fn now(&self) -> Timestamp {
        // In this order: see `Course`.
        let elapsed_ns = self.machine.elapsed_ns();
        self.course.read().at(elapsed_ns)
    }

    /// Its offset to the machine's time of day, in nanoseconds, when both agree.
    pub(crate) fn offset(&self) -> i64 {
        self.offset.load(Ordering::Relaxed)
    }

    /// The offset with which the clock would show `time` now; `None` if there is none.
    pub(crate) fn offset_for(&self, time: Timestamp) -> Option<i64> {
        i64::try_from(i128::from(time.0) - i128::from(self.machine.now().0)).ok()
    }

    /// Sets the clock. The store has this state already.
    pub(crate) fn set(&self, state: ClockState) {
        let _alone = self.lock();
        let wanted = shifted(self.machine.now(), state.offset);
        self.course.change(Segment::toward(wanted, self.machine.elapsed_ns(), wanted));
        self.offset.store(state.offset, Ordering::Relaxed);
        self.mark.store(state.mark.0, Ordering::Relaxed);
        self.pause.store(0, Ordering::Relaxed);
    }

    /// Sees to it that the mark is not below `now`, at which a request is about to be accepted.
    ///
    /// # Errors
    ///
    /// [`AboveTheMark`] while the store takes no changes, which is logged. A request that was accepted
    /// then may pass once more, if the drive is started again while the machine's clock is set back: so
    /// none may be that changes anything. (It could not anyhow, most likely.)
    pub(crate) fn pass(&self, now: Timestamp, store: &Store) -> Result<(), AboveTheMark> {
        if now.0 <= self.mark.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.advance(now, 0, store);
        if now.0 <= self.mark.load(Ordering::Relaxed) { Ok(()) } else { Err(AboveTheMark) }
    }

    /// To be called now and then: follows the machine's time of day, and moves the mark ahead in time,
    /// so that requests don't have to wait for it; unless none came since the last time: then there
    /// were that many, `requests`.
    pub(crate) fn keep(&self, requests: u64, store: &Store) {
        self.follow();
        if self.requests.swap(requests, Ordering::Relaxed) != requests {
            self.advance(self.now(), MARGIN_NS, store);
        }
    }

    /// Goes toward the machine's time of day from here on.
    fn follow(&self) {
        let _alone = self.lock();
        let elapsed_ns = self.machine.elapsed_ns();
        let wanted = shifted(self.machine.now(), self.offset());
        let now = self.course.read().at(elapsed_ns);
        self.course.change(Segment::toward(wanted, elapsed_ns, now));
    }

    /// Puts the mark where the clock is: no request comes any more.
    pub(crate) fn stop(&self, store: &Store) -> Result<(), StoreError> {
        let _alone = self.lock();
        let mark = self.now();
        store.set_clock(ClockState { offset: self.offset(), mark, ..store.clock() })?;
        self.mark.store(mark.0, Ordering::Relaxed);
        Ok(())
    }

    fn advance(&self, now: Timestamp, margin_ns: u64, store: &Store) {
        let _alone = self.lock();
        let enough = now.plus_ns(margin_ns).0 <= self.mark.load(Ordering::Relaxed);
        if enough || now.0 < self.pause.load(Ordering::Relaxed) {
            return;
        }
        let mark = now.plus_ns(STEP_NS);
        match store.set_clock(ClockState { offset: self.offset(), mark, ..store.clock() }) {
            Ok(()) => self.mark.store(mark.0, Ordering::Relaxed),
            Err(error) => {
                if self.pause.swap(now.plus_ns(PAUSE_NS).0, Ordering::Relaxed) == 0 {
                    tracing::warn!(%error, "cannot make the clock's mark durable");
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the clock goes for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    /// Where it begins, by the time that passes on the machine.
    elapsed_ns: u64,
    /// What the clock shows there.
    time: Timestamp,
    /// What the machine's time of day, with the offset, was ahead of that, in nanoseconds.
    gap_ns: i64,
}

impl Segment {
    /// From `time` on, toward what would be right there.
    fn toward(wanted: Timestamp, elapsed_ns: u64, time: Timestamp) -> Segment {
        let gap = i128::from(wanted.0) - i128::from(time.0);
        let gap_ns = i64::try_from(gap).unwrap_or(if gap < 0 { i64::MIN } else { i64::MAX });
        Segment { elapsed_ns, time, gap_ns }
    }

    fn at(&self, elapsed_ns: u64) -> Timestamp {
        let passed = elapsed_ns.saturating_sub(self.elapsed_ns);
        let slewed = self.gap_ns.unsigned_abs().min(passed / SLEWED_PART);
        let time = self.time.plus_ns(passed);
        if self.gap_ns < 0 {
            Timestamp(time.0.saturating_sub(slewed))
        } else {
            time.plus_ns(slewed)
        }
    }
}

/// The present segment, for any number of readers who never wait for one another. A reader must have
/// asked what time has passed before it reads: with a segment that began meanwhile it is told the
/// beginning of that, and no two readers see the clock fall.
#[derive(Debug)]
struct Course {
    /// Odd while it changes.
    changes: AtomicU64,
    elapsed_ns: AtomicU64,
    time: AtomicU64,
    gap_ns: AtomicI64,
}

impl Course {
    fn new(segment: Segment) -> Course {
        Course {
            changes: AtomicU64::new(0),
            elapsed_ns: AtomicU64::new(segment.elapsed_ns),
            time: AtomicU64::new(segment.time.0),
            gap_ns: AtomicI64::new(segment.gap_ns),
        }
    }

    fn read(&self) -> Segment {
        loop {
            let before = self.changes.load(Ordering::Acquire);
            let segment = Segment {
                elapsed_ns: self.elapsed_ns.load(Ordering::Relaxed),
                time: Timestamp(self.time.load(Ordering::Relaxed)),
                gap_ns: self.gap_ns.load(Ordering::Relaxed),
            };
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.changes.load(Ordering::Relaxed) == before {
                return segment;
            }
            std::hint::spin_loop();
        }
    }

    /// One at a time.
    fn change(&self, segment: Segment) {
        let changes = self.changes.load(Ordering::Relaxed);
        self.changes.store(changes + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.elapsed_ns.store(segment.elapsed_ns, Ordering::Relaxed);
        self.time.store(segment.time.0, Ordering::Relaxed);
        self.gap_ns.store(segment.gap_ns, Ordering::Relaxed);
        self.changes.store(changes + 2, Ordering::Release);
    }
}

fn shifted(time: Timestamp, offset: i64) -> Timestamp {
    Timestamp(time.0.saturating_add_signed(offset))
}

#[cfg(test)]
mod tests {
    use crate::random::Random;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    const SECOND: u64 = Timestamp::SECOND_NS;

    /// A machine: what time has passed on it, and its time of day.
    #[derive(Default)]
    struct Machine {
        elapsed_ns: AtomicU64,
        time_of_day: AtomicU64,
    }

    impl Machine {
        fn at(time: u64) -> Arc<Machine> {
            let machine = Machine::default();
            machine.time_of_day.store(time, Ordering::Relaxed);
            Arc::new(machine)
        }

        fn pass(&self, ns: u64) {
            self.elapsed_ns.fetch_add(ns, Ordering::Relaxed);
            self.time_of_day.fetch_add(ns, Ordering::Relaxed);
        }

        fn step(&self, ns: i64) {
            self.time_of_day.fetch_add(ns.cast_unsigned(), Ordering::Relaxed);
        }

        fn time(&self) -> u64 {
            self.time_of_day.load(Ordering::Relaxed)
        }

        fn clock(self: &Arc<Self>, state: ClockState) -> Clock {
            let (wall, since) = (Arc::clone(self), Arc::clone(self));
            let environment = Environment::new(
                move || Timestamp(wall.time()),
                move || Duration::from_nanos(since.elapsed_ns.load(Ordering::Relaxed)),
                || 0,
            );
            Clock::start(environment, state)
        }
    }

    #[test]
    fn the_clock_is_the_machines_shifted() {
        let machine = Machine::at(100);
        let clock = machine.clock(ClockState { offset: -5, ..ClockState::default() });
        assert_eq!(clock.now(), Timestamp(95));
        machine.pass(100);
        assert_eq!(clock.now(), Timestamp(195));
        assert_eq!(clock.offset_for(Timestamp(250)), Some(50));
        assert_eq!(clock.offset_for(Timestamp(u64::MAX)), None);
        clock.set(ClockState { offset: 50, mark: Timestamp(250), ..ClockState::default() });
        assert_eq!(clock.now(), Timestamp(250));
    }

    #[test]
    fn it_starts_at_the_mark_and_gives_the_lead_back_slowly() {
        let mark = Timestamp(1000 * SECOND);
        let machine = Machine::at(984 * SECOND);
        let clock = machine.clock(ClockState { mark, ..ClockState::default() });
        assert_eq!(clock.now(), mark);
        let mut before = clock.now();
        for second in 985..1400 {
            machine.pass(SECOND);
            let now = clock.now();
            assert!(now > before && now.0 - before.0 <= SECOND, "{second}");
            before = now;
        }
        // 16 s of lead are used up after 256 s.
        assert_eq!(before, Timestamp(1399 * SECOND));
    }

    #[test]
    fn a_step_of_the_machines_clock_is_none_of_the_drives() {
        for step in [-3600, -2, 2, 3600, 10 * 365 * 86_400_i64] {
            let machine = Machine::at(1_700_000_000 * SECOND);
            let clock = machine.clock(ClockState::default());
            machine.pass(5 * SECOND);
            let before = clock.now();
            machine.step(step * SECOND.cast_signed());
            assert_eq!(clock.now(), before, "{step}");
            let mut last = before;
            for _ in 0..20 {
                clock.follow();
                machine.pass(SECOND / 2);
                let passed = clock.now().0 - last.0;
                let slewed = SECOND / 2 / SLEWED_PART;
                assert!((SECOND / 2 - slewed..=SECOND / 2 + slewed).contains(&passed), "{step}");
                last = clock.now();
            }
            // A small step is made good soon.
            for _ in 0..100 {
                clock.follow();
                machine.pass(SECOND / 2);
            }
            let apart = clock.now().distance_ns(Timestamp(machine.time()));
            assert_eq!(apart == 0, step.abs() <= 2, "{step}: {apart}");
        }
    }

    /// Whatever is done to the machine's clock, and however often the drive is started again.
    #[test]
    fn the_clock_never_falls_and_never_runs_away() {
        for seed in 0..200 {
            let mut random = Random(seed);
            let machine = Machine::at(1_700_000_000 * SECOND + random.below(1 << 40));
            let mut clock = machine.clock(ClockState::default());
            let mut last = clock.now();
            for _ in 0..300 {
                let far = 10_u64.pow(random.below(8) as u32) * SECOND;
                match random.below(6) {
                    0 => machine.step(random.below(far).cast_signed()),
                    1 => machine.step(-random.below(far).cast_signed()),
                    2 => {
                        // A stop or a crash: the mark is never below what the clock has shown.
                        let mark = Timestamp(last.0 + random.below(2) * STEP_NS);
                        clock = machine.clock(ClockState { mark, ..ClockState::default() });
                        assert!(clock.now() >= last, "seed {seed}: it starts in its past");
                        last = clock.now();
                    }
                    3 => clock.follow(),
                    _ => {
                        let passed = random.below(3 * SECOND);
                        machine.pass(passed);
                        let shown = clock.now().0.checked_sub(last.0);
                        let shown = shown.unwrap_or_else(|| panic!("seed {seed}: it falls"));
                        let slewed = passed / SLEWED_PART + 1;
                        assert!((passed - slewed.min(passed)..=passed + slewed).contains(&shown));
                        last = clock.now();
                    }
                }
                assert_eq!(clock.now(), last, "seed {seed}: it stands while nothing passes");
            }
        }
    }

    #[test]
    fn readers_see_whole_segments() {
        let course = Course::new(Segment { elapsed_ns: 0, time: Timestamp(0), gap_ns: 0 });
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..200_000 {
                    let (elapsed_ns, time, gap_ns) = (number, Timestamp(number), number as i64);
                    course.change(Segment { elapsed_ns, time, gap_ns });
                }
            });
            let mut last = 0;
            while last < 199_999 {
                let Segment { elapsed_ns, time, gap_ns } = course.read();
                assert!(elapsed_ns == time.0 && gap_ns as u64 == time.0 && time.0 >= last);
                last = time.0;
            }
        });
    }
}
