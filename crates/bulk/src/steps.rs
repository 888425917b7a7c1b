//! Streams in step: when which frame is shown by all of several streams at once (the paper's power wall: four streams, four
//! projectors, one picture).
//!
//! Pure: whoever reads and shows frames tells the time, and asks what to do. A frame is due by the clock, and shown when all
//! streams have it. One that is shown clearly behind that time is late; one that somebody still lacks when the next would be due is
//! dropped, by all of them, and whoever was reading it goes on with the next. So no stream ever shows another frame than the others.

use std::time::Duration;

/// What a play has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Frames that all streams have shown.
    pub shown: u64,
    /// Those of them that were shown more than a quarter of the period after they were due.
    pub late: u64,
    /// Frames that were left out.
    pub dropped: u64,
    /// How late the latest was shown.
    pub latest: Duration,
    /// The longest time from the first stream that showed a frame to the last one that showed the same.
    pub skew: Duration,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing before that time, unless a stream has read or shown something.
    Wait(Duration),
    /// All streams show this frame.
    Show(u64),
    /// There are no more frames.
    Over,
}

/// Frames of several streams.
#[derive(Debug)]
pub struct Steps {
    period: Duration,
    frames: u64,
    /// Frames that are read before they are shown.
    ahead: u64,
    /// When the first frame was shown.
    begun: Option<Duration>,
    /// The next frame to be shown.
    next: u64,
    /// Of each stream, the frame behind the last that it has read.
    read: Vec<u64>,
    /// How many streams still show the frame before the next one, and when the first of them did.
    showing: usize,
    first_shown: Option<Duration>,
    report: Report,
}

impl Steps {
    /// So many streams of frames, one each period; every one may read so many frames ahead.
    pub fn new(streams: usize, frames: u64, period: Duration, ahead: u64) -> Steps {
        Steps {
            period,
            frames,
            ahead: ahead.max(1),
            begun: None,
            next: 0,
            read: vec![0; streams],
            showing: 0,
            first_shown: None,
            report: Report::default(),
        }
    }

    /// Which frame a stream reads next; nothing where it has to wait until another one was shown, or there are no more.
    pub fn to_read(&self, stream: usize) -> Option<u64> {
        let frame = self.read[stream].max(self.next);
        (frame < self.frames.min(self.next + self.ahead)).then_some(frame)
    }

    /// Whether a stream has read all that it has to.
    pub fn is_read(&self, stream: usize) -> bool {
        self.read[stream].max(self.next) >= self.frames
    }

    /// The frame that is shown next, if it is there: those before it are over.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// A stream has read a frame; whether that is still to be shown.
    pub fn has_read(&mut self, stream: usize, frame: u64) -> bool {
        self.read[stream] = self.read[stream].max(frame + 1);
        frame >= self.next
    }

    /// A stream has shown the frame that all were told to show.
    pub fn has_shown(&mut self, now: Duration) {
        let first = *self.first_shown.get_or_insert(now);
        self.report.skew = self.report.skew.max(now.saturating_sub(first));
        self.showing = self.showing.saturating_sub(1);
    }

    /// What is to be done. Frames before the first one are no frames to be late for: it is shown when all have read as far ahead
    /// as they may.
    pub fn look(&mut self, now: Duration) -> Step {
        loop {
            if self.showing > 0 {
                return Step::Wait(now + self.period);
            }
            if self.next >= self.frames {
                return Step::Over;
            }
            let Some(begun) = self.begun else {
                let wanted = self.ahead.min(self.frames);
                if self.read.iter().any(|read| *read < wanted) {
                    return Step::Wait(now + self.period);
                }
                self.begun = Some(now);
                return self.show(now, now);
            };
            let due = begun + self.period * u32::try_from(self.next).unwrap_or(u32::MAX);
            let is_there = self.read.iter().all(|read| *read > self.next);
            match is_there {
                true if now < due => return Step::Wait(due),
                true => return self.show(now, due),
                false if now < due + self.period => return Step::Wait(due + self.period),
                false => {
                    self.report.dropped += 1;
                    self.next += 1;
                }
            }
        }
    }

    fn show(&mut self, now: Duration, due: Duration) -> Step {
        let late = now.saturating_sub(due);
        self.report.shown += 1;
        self.report.latest = self.report.latest.max(late);
        // Who waits for a time is woken a little behind it.
        self.report.late += u64::from(late > self.period / 4);
        self.showing = self.read.len();
        self.first_shown = None;
        self.next += 1;
        Step::Show(self.next - 1)
    }

    /// What it has come to so far.
    pub fn report(&self) -> Report {
        self.report
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PERIOD: Duration = Duration::from_millis(25);

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(1000 + milliseconds)
    }

    fn read_all(steps: &mut Steps, frame: u64) {
        (0..2).for_each(|stream| assert!(steps.has_read(stream, frame)));
    }

    fn shown_at(steps: &mut Steps, times: [u64; 2]) {
        times.into_iter().for_each(|time| steps.has_shown(at(time)));
    }

    #[test]
    fn a_frame_is_shown_when_it_is_due_and_all_have_it() {
        let mut steps = Steps::new(2, 3, PERIOD, 2);
        assert_eq!((steps.to_read(0), steps.to_read(1)), (Some(0), Some(0)));
        read_all(&mut steps, 0);
        assert_eq!(steps.look(at(0)), Step::Wait(at(25)), "they may read more ahead");
        read_all(&mut steps, 1);
        assert_eq!(steps.to_read(0), None, "no more than they may");
        assert_eq!(steps.look(at(10)), Step::Show(0));
        assert_eq!(steps.to_read(0), Some(2));
        assert_eq!(steps.look(at(12)), Step::Wait(at(37)), "not all have shown it");
        shown_at(&mut steps, [12, 15]);
        assert_eq!(steps.look(at(16)), Step::Wait(at(35)));
        assert_eq!(steps.look(at(36)), Step::Show(1));
        shown_at(&mut steps, [36, 36]);
        read_all(&mut steps, 2);
        assert!(steps.is_read(0) && steps.to_read(0).is_none());
        assert_eq!(steps.look(at(60)), Step::Show(2));
        shown_at(&mut steps, [60, 61]);
        assert_eq!(steps.look(at(61)), Step::Over);
        let (latest, skew) = (Duration::from_millis(1), Duration::from_millis(3));
        assert_eq!(steps.report(), Report { shown: 3, late: 0, dropped: 0, latest, skew });
    }

    #[test]
    fn what_one_lacks_is_late_and_then_dropped_by_all() {
        let mut steps = Steps::new(2, 5, PERIOD, 1);
        read_all(&mut steps, 0);
        assert_eq!(steps.look(at(0)), Step::Show(0));
        shown_at(&mut steps, [0, 0]);
        steps.has_read(0, 1);
        assert_eq!(steps.look(at(26)), Step::Wait(at(50)));
        steps.has_read(1, 1);
        assert_eq!(steps.look(at(40)), Step::Show(1));
        shown_at(&mut steps, [40, 40]);
        assert_eq!((steps.report().late, steps.report().latest), (1, Duration::from_millis(15)));
        // One has been reading the second for too long.
        steps.has_read(0, 2);
        assert_eq!(steps.look(at(75)), Step::Wait(at(100)));
        assert_eq!(steps.report().dropped, 1);
        assert_eq!((steps.to_read(0), steps.to_read(1)), (Some(3), Some(3)));
        assert!(!steps.has_read(1, 2), "it is over");
        read_all(&mut steps, 3);
        assert_eq!(steps.look(at(76)), Step::Show(3));
        shown_at(&mut steps, [76, 76]);
        assert_eq!(steps.look(at(500)), Step::Over, "the last one is dropped");
        let Report { shown, late, dropped, .. } = steps.report();
        assert_eq!((shown, late, dropped), (3, 1, 2));
    }

    proptest! {
        /// However long reading and showing take, each frame is shown or dropped, once and in order.
        #[test]
        fn each_frame_has_one_end(
            seed in any::<[u8; 64]>(), frames in 1..40_u64, ahead in 1..5_u64,
        ) {
            let mut steps = Steps::new(3, frames, PERIOD, ahead);
            let (mut now, mut last, mut shown) = (0, None, 0);
            for turn in 0.. {
                let noise = u64::from(seed[turn % 64].rotate_left(turn as u32 % 7));
                now += noise % 11;
                let stream = turn % 3;
                if noise % 3 > 0 && let Some(frame) = steps.to_read(stream) {
                    prop_assert!(last.is_none_or(|last| frame > last));
                    steps.has_read(stream, frame);
                }
                match steps.look(at(now)) {
                    Step::Over => break,
                    Step::Wait(until) => prop_assert!(until >= at(now)),
                    Step::Show(frame) => {
                        prop_assert!(last.is_none_or(|last| frame > last));
                        (last, shown) = (Some(frame), shown + 1);
                        (0..3).for_each(|_| steps.has_shown(at(now)));
                    }
                }
                prop_assert!(turn < 100_000);
            }
            let report = steps.report();
            prop_assert_eq!(report.shown, shown);
            prop_assert_eq!(report.shown + report.dropped, frames);
        }
    }
}
