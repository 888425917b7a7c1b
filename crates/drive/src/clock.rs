//! The drive's clock: the machine's, set by `initialize`, and never earlier than it was.
//!
//! A drive forgets at its stop which nonces it has seen. So the clock must not start at a time at
//! which it has accepted requests before, even if somebody has set the machine's clock back in
//! between. The store keeps a *mark*: the clock has never shown a later time while a request was
//! accepted. The mark is moved ahead in steps, before it is reached; a clean stop leaves it where
//! the clock stopped.
//!
//! A clock that would start below the mark starts at the mark, ahead of the machine's clock by a
//! *lead*. It goes on a sixteenth slower than that until the lead is used up: clients follow it
//! without noticing, and no two instants look the same. After a crash the lead is at most a step.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use nasd_store::{ClockState, Store, StoreError};
use nasd_types::Timestamp;

use crate::Environment;

/// How far ahead of the clock the mark is put.
const STEP_NS: u64 = 16 * Timestamp::SECOND_NS;

/// How close the clock may come to the mark before it is moved.
const MARGIN_NS: u64 = STEP_NS / 2;

/// How long after a failure the mark is not tried to be moved again.
const PAUSE_NS: u64 = Timestamp::SECOND_NS;

/// Of the time that passes, the part by which the lead shrinks.
const SLOWER_BY: u64 = 16;

/// See the module.
#[derive(Debug)]
pub(crate) struct Clock {
    machine: Environment,
    /// What the drive's clock is ahead of the machine's, but for the lead.
    offset: AtomicI64,
    /// What it was ahead of that when it started, in nanoseconds.
    lead: AtomicU64,
    /// When that was, without the lead.
    started: AtomicU64,
    mark: AtomicU64,
    /// Not before this time is the mark to be moved, as it failed.
    pause: AtomicU64,
    /// How many there were when the mark was last looked after.
    requests: AtomicU64,
    moving: Mutex<()>,
}

impl Clock {
    /// A clock that starts now, as the store says.
    pub(crate) fn start(machine: Environment, state: ClockState) -> Clock {
        let begin = shifted(machine.now(), state.offset);
        Clock {
            machine,
            offset: AtomicI64::new(state.offset),
            lead: AtomicU64::new(state.mark.0.saturating_sub(begin.0)),
            started: AtomicU64::new(begin.0),
            mark: AtomicU64::new(state.mark.0),
            pause: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            moving: Mutex::new(()),
        }
    }

    /// What the clock shows.
    pub(crate) fn now(&self) -> Timestamp {
        let time = shifted(self.machine.now(), self.offset());
        match self.lead.load(Ordering::Relaxed) {
            0 => time,
            lead => {
                let passed = time.0.saturating_sub(self.started.load(Ordering::Relaxed));
                time.plus_ns(lead.saturating_sub(passed / SLOWER_BY))
            }
        }
    }

    /// Its offset to the machine's clock, in nanoseconds.
    pub(crate) fn offset(&self) -> i64 {
        self.offset.load(Ordering::Relaxed)
    }

    /// The offset with which the clock would show `time` now; `None` if there is none.
    pub(crate) fn offset_for(&self, time: Timestamp) -> Option<i64> {
        i64::try_from(i128::from(time.0) - i128::from(self.machine.now().0)).ok()
    }

    /// Sets the clock. The store has this state already.
    pub(crate) fn set(&self, state: ClockState) {
        let _alone = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        self.lead.store(0, Ordering::Relaxed);
        self.offset.store(state.offset, Ordering::Relaxed);
        self.mark.store(state.mark.0, Ordering::Relaxed);
        self.pause.store(0, Ordering::Relaxed);
    }

    /// Sees to it that the mark is not below `now`, at which a request is about to be accepted.
    /// A store that takes no changes is no reason to refuse requests; it is logged.
    pub(crate) fn pass(&self, now: Timestamp, store: &Store) {
        if now.0 > self.mark.load(Ordering::Relaxed) {
            self.advance(now, 0, store);
        }
    }

    /// Moves the mark ahead in time, so that requests don't have to wait for it; unless none came
    /// since the last time: then there were that many, `requests`.
    pub(crate) fn keep(&self, requests: u64, store: &Store) {
        if self.requests.swap(requests, Ordering::Relaxed) != requests {
            self.advance(self.now(), MARGIN_NS, store);
        }
    }

    /// Puts the mark where the clock is: no request comes any more.
    pub(crate) fn stop(&self, store: &Store) -> Result<(), StoreError> {
        let _alone = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        let mark = self.now();
        store.set_clock(ClockState { offset: self.offset(), mark, ..store.clock() })?;
        self.mark.store(mark.0, Ordering::Relaxed);
        Ok(())
    }

    fn advance(&self, now: Timestamp, margin_ns: u64, store: &Store) {
        let _alone = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
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
}

fn shifted(time: Timestamp, offset: i64) -> Timestamp {
    Timestamp(time.0.saturating_add_signed(offset))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const SECOND: u64 = Timestamp::SECOND_NS;

    fn clock(at: u64, state: ClockState) -> (Arc<AtomicU64>, Clock) {
        let machine = Arc::new(AtomicU64::new(at));
        let time = Arc::clone(&machine);
        let environment = Environment::new(move || Timestamp(time.load(Ordering::Relaxed)), || 0);
        (machine, Clock::start(environment, state))
    }

    #[test]
    fn the_clock_is_the_machines_shifted() {
        let state = ClockState { offset: -5, ..ClockState::default() };
        let (machine, clock) = clock(100, state);
        assert_eq!(clock.now(), Timestamp(95));
        machine.store(200, Ordering::Relaxed);
        assert_eq!(clock.now(), Timestamp(195));
        assert_eq!(clock.offset_for(Timestamp(250)), Some(50));
        assert_eq!(clock.offset_for(Timestamp(u64::MAX)), None);
        clock.set(ClockState { offset: 50, mark: Timestamp(250), ..ClockState::default() });
        assert_eq!(clock.now(), Timestamp(250));
    }

    #[test]
    fn it_starts_at_the_mark_and_gives_the_lead_back_slowly() {
        let mark = Timestamp(1000 * SECOND);
        let (machine, clock) = clock(984 * SECOND, ClockState { mark, ..ClockState::default() });
        assert_eq!(clock.now(), mark);
        let mut before = clock.now();
        for second in 985..1400 {
            machine.store(second * SECOND, Ordering::Relaxed);
            let now = clock.now();
            assert!(now > before && now.0 - before.0 <= SECOND, "{second}");
            before = now;
        }
        // 16 s of lead are used up after 256 s.
        assert_eq!(before, Timestamp(1399 * SECOND));
    }
}
