//! Drives that answer, and whose medium does not: what small durable writes to each of them tell.
//!
//! A drive limps when such a write takes far longer than at most of the others, and longer than what it was given to
//! write lately explains; or when its medium refuses some in a row. It limps no more when all have been quick for a
//! while, which is longer each time that it was so before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nasd_protocol::drive::ComponentComplaint;
use nasd_types::{DriveId, Timestamp};

/// How long a probe may take where those of others are quick.
const PATIENCE_NS: u64 = 2_000_000_000;

/// One that takes less is quick.
const QUICK_NS: u64 = 250_000_000;

/// Bytes that a medium that is well writes in a second at least.
const BYTES_IN_SECOND: u64 = 16 << 20;

const SECOND_NS: u64 = 1_000_000_000;

/// So many probes in a row that the medium refuses are no accident.
const MOST_REFUSED: u32 = 3;

/// How long all probes must have been quick; twice as long each time, up to the second.
const STEADY_NS: u64 = 5 * SECOND_NS;
const LONGEST_STEADY_NS: u64 = 600 * SECOND_NS;

/// One that was well for so long begins anew.
const FORGIVEN_NS: u64 = 3600 * SECOND_NS;

/// What was heard of a probe longer ago says nothing.
const FRESH_NS: u64 = 5 * SECOND_NS;

/// What is told of a small durable write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It is sent.
    Begun {
        /// Bytes that the drive has been given to write since it was started.
        written: u64,
    },
    /// It is durable.
    Done,
    /// The medium has refused it.
    Refused,
    /// What became of it is not known.
    Unknown,
}

/// What was heard of all drives.
#[derive(Debug, Default)]
pub(crate) struct Limping(Mutex<BTreeMap<DriveId, Heard>>);

#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// Since when one is under way.
    begun: Option<Timestamp>,
    /// How long the last one took, and when that was known.
    took_ns: u64,
    ended: Timestamp,
    /// How many the medium has refused in a row.
    refused: u32,
    /// Bytes that the drive was given when the last one was sent, and when one was quick last.
    written: u64,
    written_when_quick: u64,
    /// Since when all were quick.
    quick_since: Option<Timestamp>,
    complaint: Option<ComponentComplaint>,
    /// How often it has limped, and since when the last time.
    times: u32,
    since: Timestamp,
}

impl Heard {
    /// How long a probe takes, as it seems; none if nothing is known now.
    fn age(&self, now: Timestamp) -> Option<u64> {
        let under_way = self.begun.map(|begun| now.0.saturating_sub(begun.0));
        let last = (now.0.saturating_sub(self.ended.0) < FRESH_NS).then_some(self.took_ns);
        under_way.max(last)
    }

    fn is_quick(&self, now: Timestamp) -> bool {
        self.age(now).is_some_and(|age| age < QUICK_NS) && self.refused == 0
    }

    /// How long one may take after all that the drive was given to write.
    fn patience(&self) -> u64 {
        let given = self.written.saturating_sub(self.written_when_quick);
        PATIENCE_NS.max((given / (BYTES_IN_SECOND / 1000)).saturating_mul(1_000_000))
    }

    /// How long it has to be quick before it limps no more.
    fn steady(&self) -> u64 {
        let doublings = self.times.saturating_sub(1).min(16);
        (STEADY_NS << doublings).min(LONGEST_STEADY_NS)
    }
}

impl Limping {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<DriveId, Heard>> {
        // Every change leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was heard of a probe.
    pub(crate) fn heard(&self, drive: DriveId, probe: Probe, now: Timestamp) {
        let mut all = self.lock();
        let heard = all.entry(drive).or_default();
        if let Probe::Begun { written } = probe {
            heard.begun = Some(now);
            // It was started anew.
            heard.written_when_quick = heard.written_when_quick.min(written);
            heard.written = written;
            return;
        }
        let took = now.0.saturating_sub(heard.begun.take().unwrap_or(now).0);
        heard.refused = match probe {
            Probe::Refused => heard.refused.saturating_add(1),
            Probe::Done => 0,
            _ => heard.refused,
        };
        // Whoever can't be reached is not slow by that.
        let is_known = probe != Probe::Unknown || took >= PATIENCE_NS;
        (heard.took_ns, heard.ended) = if is_known { (took, now) } else { (0, Timestamp(0)) };
        if probe == Probe::Done && took < QUICK_NS {
            heard.written_when_quick = heard.written;
            heard.quick_since.get_or_insert(now);
        } else {
            heard.quick_since = None;
        }
    }

    /// Nothing is known of drives that are no more.
    pub(crate) fn keep(&self, known: &[DriveId]) {
        self.lock().retain(|drive, _| known.contains(drive));
    }

    /// The drives that limp now.
    pub(crate) fn watch(&self, now: Timestamp) -> BTreeSet<DriveId> {
        let mut all = self.lock();
        let quick = all.values().filter(|heard| heard.is_quick(now)).count();
        let told = all.values().filter(|heard| heard.age(now).is_some()).count();
        for (drive, heard) in all.iter_mut() {
            if heard.complaint.is_some() {
                let is_over =
                    heard.quick_since.is_some_and(|since| since.0 + heard.steady() <= now.0);
                if is_over {
                    heard.complaint = None;
                    heard.since = now;
                    tracing::info!(%drive, "a component drive limps no more");
                }
                continue;
            }
            // Most of the others are quick, of which there are some.
            let others = told.saturating_sub(1);
            let is_slow =
                heard.age(now).is_some_and(|age| age >= heard.patience()) && quick * 2 > others;
            let complaint = match () {
                () if heard.refused >= MOST_REFUSED => ComponentComplaint::Refuses,
                () if is_slow => ComponentComplaint::Slow,
                () => continue,
            };
            let is_forgiven = now.0.saturating_sub(heard.since.0) >= FORGIVEN_NS;
            heard.times = if is_forgiven { 1 } else { heard.times + 1 };
            heard.complaint = Some(complaint);
            heard.quick_since = None;
            let took_ms = heard.age(now).unwrap_or_default() / 1_000_000;
            tracing::error!(%drive, ?complaint, took_ms, "a component drive limps");
        }
        let limping = all.iter().filter(|(_, heard)| heard.complaint.is_some());
        limping.map(|(drive, _)| *drive).collect()
    }

    /// What there is to be said against a drive.
    pub(crate) fn complaint(&self, drive: DriveId) -> ComponentComplaint {
        let complaint = self.lock().get(&drive).and_then(|heard| heard.complaint);
        complaint.unwrap_or(ComponentComplaint::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: DriveId = DriveId(2);

    /// Four drives that are probed ten times a second, each of whose probes takes as long as is said.
    struct Drives {
        limping: Limping,
        now: u64,
        ends: BTreeMap<DriveId, (u64, Probe)>,
        written: u64,
    }

    impl Drives {
        fn new() -> Drives {
            let (limping, ends) = (Limping::default(), BTreeMap::new());
            Drives { limping, now: 100 * SECOND_NS, ends, written: 0 }
        }

        /// Lets time pass until a drive limps, at most so many seconds; which, and after how many milliseconds.
        fn pass(
            &mut self,
            seconds: u64,
            took: impl Fn(DriveId) -> (u64, Probe),
        ) -> Option<(BTreeSet<DriveId>, u64)> {
            let begun = self.now;
            while self.now < begun + seconds * SECOND_NS {
                self.now += SECOND_NS / 10;
                for drive in (1..=4).map(DriveId) {
                    let now = Timestamp(self.now);
                    match self.ends.get(&drive).copied() {
                        Some((ends, _)) if ends > self.now => {}
                        Some((_, probe)) => {
                            self.limping.heard(drive, probe, now);
                            self.ends.remove(&drive);
                        }
                        None => {
                            let (ms, probe) = took(drive);
                            let written = self.written;
                            self.limping.heard(drive, Probe::Begun { written }, now);
                            self.ends.insert(drive, (self.now + ms * 1_000_000, probe));
                        }
                    }
                }
                let limping = self.limping.watch(Timestamp(self.now));
                if !limping.is_empty() {
                    return Some((limping, (self.now - begun) / 1_000_000));
                }
            }
            None
        }

        /// After how many seconds no drive limps any more.
        fn recover(&mut self) -> u64 {
            let begun = self.now;
            while self.pass(1, |_| (10, Probe::Done)).is_some() {
                assert!(self.now < begun + 3600 * SECOND_NS, "it limps for ever");
            }
            (self.now - begun) / SECOND_NS
        }
    }

    fn slow(drive: DriveId) -> (u64, Probe) {
        (if drive == SLOW { 60_000 } else { 20 }, Probe::Done)
    }

    #[test]
    fn one_that_is_far_slower_than_the_others_is_found_within_seconds() {
        let mut drives = Drives::new();
        assert_eq!(drives.pass(100, |_| (20, Probe::Done)), None);
        let (limping, ms) = drives.pass(10, slow).unwrap();
        assert_eq!(limping, BTreeSet::from([SLOW]));
        assert!(ms <= 3000, "{ms}");
        assert_eq!(drives.limping.complaint(SLOW), ComponentComplaint::Slow);
        assert_eq!(drives.limping.complaint(DriveId(1)), ComponentComplaint::None);
    }

    #[test]
    fn where_all_are_slow_none_limps() {
        let mut drives = Drives::new();
        assert_eq!(drives.pass(600, |_| (20_000, Probe::Done)), None);
        let two = |drive: DriveId| (if drive.0 <= 2 { 9000 } else { 400 }, Probe::Done);
        assert_eq!(drives.pass(600, two), None, "nor where the others are busy too");
    }

    #[test]
    fn one_that_was_given_much_to_write_may_take_as_long_as_that_needs() {
        let mut drives = Drives::new();
        assert_eq!(drives.pass(10, |_| (20, Probe::Done)), None);
        drives.written = 1 << 30;
        let hangs = |drive| (if drive == SLOW { 600_000 } else { 20 }, Probe::Done);
        let (_, ms) = drives.pass(100, hangs).unwrap();
        assert!((60_000..70_000).contains(&ms), "{ms}");
    }

    #[test]
    fn a_medium_that_refuses_writes_is_found_and_one_refusal_is_an_accident() {
        let mut drives = Drives::new();
        let refuses = |drive| (5, if drive == SLOW { Probe::Refused } else { Probe::Done });
        let (limping, _) = drives.pass(10, refuses).unwrap();
        assert_eq!(limping, BTreeSet::from([SLOW]));
        assert_eq!(drives.limping.complaint(SLOW), ComponentComplaint::Refuses);
        let mut drives = Drives::new();
        drives.limping.heard(SLOW, Probe::Refused, Timestamp(drives.now));
        assert_eq!(drives.pass(60, |_| (20, Probe::Done)), None);
    }

    #[test]
    fn one_that_can_not_be_reached_does_not_limp() {
        let mut drives = Drives::new();
        let away = |drive| (5, if drive == SLOW { Probe::Unknown } else { Probe::Done });
        assert_eq!(drives.pass(600, away), None);
    }

    #[test]
    fn it_is_believed_again_later_each_time() {
        let mut drives = Drives::new();
        let mut last = 0;
        for turn in 0..4 {
            drives.pass(100, slow).unwrap();
            drives.ends.clear();
            let after = drives.recover();
            assert!(after > last && after >= 5 << turn, "{turn}: {after}");
            last = after;
        }
        assert_eq!(drives.pass(3600, |_| (10, Probe::Done)), None);
        drives.pass(100, slow).unwrap();
        drives.ends.clear();
        assert!(drives.recover() <= 7, "it was well for long");
    }
}
