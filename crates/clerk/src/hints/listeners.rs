//! Which drives have heard of a stream, by which call last, and how far it was then: pure bookkeeping.
//!
//! Drives are told by the way of one, maybe a virtual one, and each of those behind it hears only the calls that name bytes that
//! it has. So each counts by itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nasd_types::DriveId;

use super::sequence::{Batch, Progress};

/// A drive that hears of no hints is told how far the stream is when so many calls are over, or when it has not heard of
/// some for so long.
const MOST_UNTOLD: u64 = 16;
const NEWS_EACH: Duration = Duration::from_secs(1);

/// By the way of which drive, maybe a virtual one, and which of those behind it; none where no answer has come to the last
/// call, as some of them may have heard it all the same.
type Listener = (DriveId, Option<DriveId>);

/// What a listener has heard last.
#[derive(Debug)]
struct Heard<F> {
    hints: Arc<Batch<F>>,
    progress: Progress,
    at: Instant,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Listeners<F> {
    heard: HashMap<Listener, Heard<F>>,
}

impl<F: Clone + PartialEq> Listeners<F> {
    /// Nobody has heard anything.
    pub(super) fn new() -> Self {
        Listeners { heard: HashMap::new() }
    }

    /// Some of those behind a drive, or itself, have heard a call, and how far the stream was.
    pub(super) fn heard(
        &mut self,
        way: DriveId,
        by: &[DriveId],
        hints: &Batch<F>,
        (progress, at): (Progress, Instant),
    ) {
        let unanswered = (way, None);
        let is_made_up_for =
            |lost: &Heard<F>| by.contains(&way) || (!by.is_empty() && *lost.hints == *hints);
        if self.heard.get(&unanswered).is_some_and(is_made_up_for) {
            self.heard.remove(&unanswered);
        }
        let hints = Arc::new(hints.clone());
        for drive in by {
            let heard = Heard { hints: Arc::clone(&hints), progress, at };
            self.heard.insert((way, Some(*drive)), heard);
        }
    }

    /// No answer to a call has come. Who has answered others is told the rest by those: this one may be of a file that is gone.
    pub(super) fn may_have_heard(
        &mut self,
        way: DriveId,
        hints: &Batch<F>,
        (progress, at): (Progress, Instant),
    ) {
        let heard = Heard { hints: Arc::new(hints.clone()), progress, at };
        self.heard.insert((way, None), heard);
    }

    /// How far the stream was when it was told last by the way of a drive: to the one of those behind it that knows least.
    pub(super) fn known_by(&self, way: DriveId) -> Progress {
        let of_way = self.heard.iter().filter(|((of, _), _)| *of == way);
        let known = of_way.map(|(_, heard)| heard.progress);
        known.min_by_key(|progress| (progress.passed, progress.ended)).unwrap_or_default()
    }

    /// By which call to tell one that has not heard for long how far the stream is. It counts as told, whatever becomes of that.
    pub(super) fn next_due(
        &mut self,
        is_busy: impl Fn(DriveId) -> bool,
        (progress, now): (Progress, Instant),
    ) -> Option<Batch<F>> {
        let is_due = |heard: &Heard<F>| {
            let untold = progress.passed - heard.progress.passed;
            let is_late = now.duration_since(heard.at) >= NEWS_EACH;
            untold >= MOST_UNTOLD || (untold > 0 && is_late)
        };
        let mut all = self.heard.iter_mut();
        let (_, heard) = all.find(|((way, _), heard)| !is_busy(*way) && is_due(heard))?;
        (heard.progress, heard.at) = (progress, now);
        Some(Batch::clone(&heard.hints))
    }

    /// The last calls to those that are told by the way of some drives, which count as told no more.
    pub(super) fn take(&mut self, is_taken: impl Fn(DriveId) -> bool) -> Vec<Arc<Batch<F>>> {
        let taken = self.heard.extract_if(|(way, _), _| is_taken(*way));
        let mut calls: Vec<Arc<Batch<F>>> = taken.map(|(_, heard)| heard.hints).collect();
        // One call may have been the last one to several.
        calls.sort_unstable_by_key(|hints| Arc::as_ptr(hints).addr());
        calls.dedup_by(|one, other| Arc::ptr_eq(one, other));
        calls
    }
}

#[cfg(test)]
mod tests {
    use nasd_types::ByteRange;

    use super::*;

    const WAY: DriveId = DriveId(1);
    const FIRST: DriveId = DriveId(11);
    const SECOND: DriveId = DriveId(12);

    fn hints(offset: u64) -> Batch<u32> {
        Batch { file: 7, ranges: vec![ByteRange::new(offset, 10)] }
    }

    fn passed(passed: u64) -> Progress {
        Progress { passed, skipped: 0, ended: 2 * passed }
    }

    fn offsets(calls: &[Arc<Batch<u32>>]) -> Vec<u64> {
        let mut offsets: Vec<_> = calls.iter().map(|hints| hints.ranges[0].offset).collect();
        offsets.sort_unstable();
        offsets
    }

    #[test]
    fn who_hears_nothing_is_told_though_others_behind_the_same_drive_hear_much() {
        let (mut listeners, now) = (Listeners::new(), Instant::now());
        listeners.heard(WAY, &[FIRST, SECOND], &hints(0), (passed(0), now));
        for calls in 1..=MOST_UNTOLD {
            let far = (passed(calls), now);
            listeners.heard(WAY, &[FIRST], &hints(calls), far);
            assert_eq!(listeners.known_by(WAY), passed(0));
            assert_eq!(listeners.next_due(|_| true, far), None, "it is being told something");
            let due = listeners.next_due(|_| false, far);
            assert_eq!(due, (calls == MOST_UNTOLD).then(|| hints(0)));
        }
        assert_eq!(listeners.known_by(WAY), passed(MOST_UNTOLD));
        // Both, in any order, when it has been long.
        let far = (passed(MOST_UNTOLD + 1), now + NEWS_EACH);
        let mut due: Vec<_> = std::iter::from_fn(|| listeners.next_due(|_| false, far)).collect();
        due.sort_by_key(|hints| hints.ranges[0].offset);
        assert_eq!(due, [hints(0), hints(MOST_UNTOLD)]);
        assert!(listeners.take(|way| way != WAY).is_empty());
        assert_eq!(offsets(&listeners.take(|way| way == WAY)), [0, MOST_UNTOLD]);
        assert!(listeners.take(|_| true).is_empty());
    }

    #[test]
    fn who_may_have_heard_a_call_counts_until_that_is_answered() {
        let (mut listeners, far) = (Listeners::new(), (passed(0), Instant::now()));
        listeners.heard(WAY, &[FIRST], &hints(0), far);
        listeners.may_have_heard(WAY, &hints(1), far);
        listeners.heard(WAY, &[SECOND], &hints(2), far);
        listeners.heard(WAY, &[], &hints(1), far);
        assert_eq!(offsets(&listeners.take(|_| true)), [0, 1, 2]);
        listeners.may_have_heard(WAY, &hints(1), far);
        listeners.heard(WAY, &[FIRST, SECOND], &hints(1), far);
        assert_eq!(offsets(&listeners.take(|_| true)), [1]);
        // A drive that is not virtual has answered for itself.
        listeners.may_have_heard(WAY, &hints(1), far);
        listeners.heard(WAY, &[WAY], &hints(2), far);
        assert_eq!(offsets(&listeners.take(|_| true)), [2]);
    }
}
