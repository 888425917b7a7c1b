//! What is known of jobs, each of many calls, and of the extensions that do them: how fast that goes, and how long they have
//! waited for others.

use std::collections::BTreeMap;

use nasd_types::{AuditId, ObjectName};

/// What an extension is taken to look at in a second before it has been measured, in bytes.
const FIRST_SPEED: f64 = 1e9;

/// How much of what is known of a speed is from its last measurement.
const LEARNED: f64 = 0.25;

/// Who has looked at less has not been measured.
const LEAST_BYTES: u64 = 64 << 10;

/// A job that has looked at so many bytes is known by its own speed: filters are unlike each other.
const OWN_BYTES: u64 = 4 << 20;

/// A job may look at so much more than it was to before it is not believed any more, as a part of that: answers are lost, and
/// files grow. It is not believed either that it has less left than this part of what it has not looked at: some of that its
/// caller may have done.
const MORE: u64 = 4;

/// A second of waiting makes up for so many seconds of work.
const AGING: f64 = 0.5;

/// A second of work uses up what waiting has made up for, so many seconds of it. So a job for which shorter ones always
/// come gets a fifth of a thread's time, once it has waited for twice its own.
const SPENT: f64 = 3.0;

/// A job of which no call has come for so many seconds is over, most likely.
const KEPT: f64 = 10.0;

/// Jobs that are known; more only if all of them have calls here.
const MOST: usize = 256;

/// Which job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobName {
    /// By whom, as his capability says: callers of other hosts may draw the same number.
    pub(crate) caller: AuditId,
    /// The extension's number.
    pub(crate) extension: u32,
    /// Drawn by the caller.
    pub(crate) number: u64,
    /// On what.
    pub(crate) object: ObjectName,
}

/// See the module. All times are in seconds.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    known: BTreeMap<JobName, Job>,
    /// Bytes a second, of each extension.
    speeds: BTreeMap<u32, f64>,
}

/// What is known of a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// When its first call came.
    pub(super) since: f64,
    /// Bytes that it was to look at in all, as its first calls said.
    promised: u64,
    /// Bytes that it has looked at, in calls that are over.
    pub(super) bytes: u64,
    /// How long that took.
    seconds: f64,
    waiting: usize,
    running: usize,
    /// When its caller gave it up: none of its calls is begun for a while.
    given_up: Option<f64>,
    /// Since when nothing of it has run, or come.
    still_since: f64,
    /// Seconds of work that its waiting makes up for, up to `still_since`.
    credit: f64,
}

impl Job {
    fn new(now: f64) -> Job {
        Job {
            since: now,
            promised: 0,
            bytes: 0,
            seconds: 0.0,
            waiting: 0,
            running: 0,
            given_up: None,
            still_since: now,
            credit: 0.0,
        }
    }

    /// See [`Jobs::left`].
    fn left(&self, told: u64, looked_at: u64) -> u64 {
        let done = self.bytes.saturating_add(looked_at);
        let is_believed = done <= self.promised.saturating_add(self.promised / MORE);
        let least = if is_believed { self.promised.saturating_sub(done) / MORE } else { done };
        told.max(least)
    }

    fn waits(&self) -> bool {
        self.waiting > 0 && self.running == 0
    }

    fn credit(&self, now: f64) -> f64 {
        let waited = if self.waits() { now - self.still_since } else { 0.0 };
        self.credit + AGING * waited.max(0.0)
    }

    /// Changes what waits and runs.
    fn change(&mut self, now: f64, change: impl FnOnce(&mut Job)) {
        self.credit = self.credit(now);
        change(self);
        self.still_since = now;
    }
}

impl Jobs {
    /// A call of a job has come, which is said to have so many bytes left.
    pub(super) fn came(&mut self, name: JobName, bytes_left: u64, now: f64) {
        if !self.known.contains_key(&name) {
            self.forget(now);
        }
        self.known.entry(name).or_insert(Job::new(now)).change(now, |job| {
            job.waiting += 1;
            // Its first calls come in any order.
            if job.bytes == 0 {
                job.promised = job.promised.max(bytes_left);
            }
        });
    }

    /// A job is given up. That is known for a while: some of its calls may be on their way.
    pub(super) fn give_up(&mut self, name: JobName, now: f64) {
        if !self.known.contains_key(&name) {
            self.forget(now);
        }
        self.known.entry(name).or_insert(Job::new(now)).change(now, |job| job.given_up = Some(now));
    }

    /// Whether a job was given up lately.
    pub(super) fn is_given_up(&self, name: &JobName, now: f64) -> bool {
        let given_up = self.known.get(name).and_then(|job| job.given_up);
        given_up.is_some_and(|then| now - then < KEPT)
    }

    /// A call that has come is not begun.
    pub(super) fn went(&mut self, name: &JobName, now: f64) {
        if let Some(job) = self.known.get_mut(name) {
            job.change(now, |job| job.waiting = job.waiting.saturating_sub(1));
        }
    }

    /// It is begun.
    pub(super) fn begun(&mut self, name: &JobName, now: f64) {
        self.went(name, now);
        if let Some(job) = self.known.get_mut(name) {
            job.running += 1;
        }
    }

    /// It is over, and has looked at so many bytes in so many seconds.
    pub(super) fn ended(&mut self, name: &JobName, now: f64, bytes: u64, seconds: f64) {
        if let Some(job) = self.known.get_mut(name) {
            job.change(now, |job| job.running = job.running.saturating_sub(1));
            job.credit = (job.credit - SPENT * seconds).max(0.0);
            job.bytes = job.bytes.saturating_add(bytes);
            job.seconds += seconds;
        }
        // What takes no time, or is next to nothing, says nothing.
        if bytes >= LEAST_BYTES && seconds > 0.0 {
            let measured = bytes as f64 / seconds;
            let speed = self.speeds.entry(name.extension).or_insert(measured);
            *speed += LEARNED * (measured - *speed);
        }
    }

    pub(super) fn get(&self, name: &JobName) -> Option<&Job> {
        self.known.get(name)
    }

    /// Bytes a second, as they were measured of the job, or else of all that its extension did; if they were.
    pub(super) fn speed(&self, name: &JobName) -> Option<f64> {
        self.speed_of(name, self.known.get(name))
    }

    fn speed_of(&self, name: &JobName, job: Option<&Job>) -> Option<f64> {
        let own = job.filter(|job| job.bytes >= OWN_BYTES && job.seconds > 0.0);
        let own = own.map(|job| job.bytes as f64 / job.seconds);
        own.or_else(|| self.speeds.get(&name.extension).copied())
    }

    /// Bytes that a job has left, of which it says so many, if its calls that run have looked at so many. One that has looked at
    /// far more than it was to is taken to have as much left as that: its word says nothing.
    pub(super) fn left(&self, name: &JobName, told: u64, looked_at: u64) -> u64 {
        let left = told.saturating_sub(looked_at);
        self.known.get(name).map_or(left, |job| job.left(left, looked_at))
    }

    /// Seconds of work that a job has left, less what waiting makes up for: with one look for it, as that is asked of each call
    /// that waits.
    pub(super) fn rank(&self, name: &JobName, told: u64, now: f64) -> f64 {
        let job = self.known.get(name);
        let left = job.map_or(told, |job| job.left(told, 0));
        let credit = job.map_or(0.0, |job| job.credit(now).max(0.0));
        seconds(left, self.speed_of(name, job)) - credit
    }

    /// How long a job takes for so many bytes.
    pub(super) fn seconds(&self, name: &JobName, bytes: u64) -> f64 {
        seconds(bytes, self.speed(name))
    }

    /// Seconds of work that a job's waiting makes up for, if one of its calls has run for so many since.
    pub(super) fn credit(&self, name: &JobName, now: f64, run: f64) -> f64 {
        let credit = self.known.get(name).map_or(0.0, |job| job.credit(now));
        (credit - SPENT * run).max(0.0)
    }

    /// Makes room for another job.
    fn forget(&mut self, now: f64) {
        let is_open = |job: &Job| job.waiting + job.running > 0;
        self.known.retain(|_, job| is_open(job) || now - job.still_since < KEPT);
        if self.known.len() >= MOST {
            self.known.retain(|_, job| is_open(job));
        }
    }
}

fn seconds(bytes: u64, speed: Option<f64>) -> f64 {
    bytes as f64 / speed.unwrap_or(FIRST_SPEED).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_types::{ObjectId, PartitionId};

    fn job(extension: u32, number: u64) -> JobName {
        let object = ObjectName { partition: PartitionId(1), object: ObjectId(1000) };
        JobName { caller: AuditId(7), extension, number, object }
    }

    #[test]
    fn a_job_is_known_by_its_own_speed_and_others_by_their_extensions() {
        let mut jobs = Jobs::default();
        assert_eq!(jobs.seconds(&job(1, 1), 2_000_000_000), 2.0);
        jobs.came(job(1, 1), 0, 0.0);
        jobs.begun(&job(1, 1), 0.0);
        jobs.ended(&job(1, 1), 1.0, 100_000_000, 1.0);
        assert_eq!(jobs.seconds(&job(1, 2), 100_000_000), 1.0);
        assert_eq!(jobs.speed(&job(2, 1)), None);
        jobs.ended(&job(1, 9), 1.0, 500_000_000, 1.0);
        assert_eq!(jobs.speed(&job(1, 2)), Some(200_000_000.0));
        assert_eq!(jobs.speed(&job(1, 1)), Some(100_000_000.0));
        // A few bytes, and no time at all, say nothing.
        jobs.ended(&job(1, 9), 1.0, 1000, 1.0);
        jobs.ended(&job(1, 9), 1.0, 1 << 30, 0.0);
        assert_eq!(jobs.speed(&job(1, 2)), Some(200_000_000.0));
    }

    #[test]
    fn waiting_is_kept_from_call_to_call_and_used_up_by_work() {
        let (mut jobs, name) = (Jobs::default(), job(1, 1));
        jobs.came(name, 0, 10.0);
        assert_eq!(jobs.credit(&name, 14.0, 0.0), 2.0);
        assert_eq!(jobs.rank(&name, 3_000_000_000, 14.0), 1.0);
        jobs.begun(&name, 14.0);
        assert_eq!(jobs.credit(&name, 20.0, 0.0), 2.0, "it does not wait");
        assert_eq!(jobs.credit(&name, 20.0, 0.5), 0.5);
        jobs.came(name, 0, 14.2);
        jobs.ended(&name, 14.5, 1 << 20, 0.5);
        assert_eq!(jobs.credit(&name, 15.5, 0.0), 1.0, "another of its calls waits");
        jobs.went(&name, 15.5);
        assert_eq!(jobs.credit(&name, 100.0, 0.0), 1.0, "nothing of it waits");
        assert_eq!(jobs.get(&name).map(|job| (job.since, job.bytes)), Some((10.0, 1 << 20)));
    }

    #[test]
    fn callers_that_draw_the_same_number_have_jobs_of_their_own() {
        let (mut jobs, name) = (Jobs::default(), job(1, 1));
        let other = JobName { caller: AuditId(8), ..name };
        jobs.came(name, 100 << 20, 0.0);
        jobs.came(other, 100 << 20, 4.0);
        jobs.begun(&other, 4.0);
        jobs.ended(&other, 5.0, 100 << 20, 1.0);
        assert_eq!((jobs.credit(&name, 4.0, 0.0), jobs.credit(&other, 4.0, 0.0)), (2.0, 0.0));
        assert_eq!(jobs.get(&name).map(|job| (job.since, job.bytes)), Some((0.0, 0)));
        assert_eq!(jobs.get(&other).map(|job| (job.since, job.bytes)), Some((4.0, 100 << 20)));
    }

    #[test]
    fn who_looks_at_more_than_he_said_has_as_much_left() {
        let (mut jobs, name) = (Jobs::default(), job(1, 1));
        // The second chunk may come before the first.
        jobs.came(name, 600, 0.0);
        jobs.came(name, 1000, 0.0);
        jobs.ended(&name, 1.0, 900, 1.0);
        assert_eq!(jobs.left(&name, 100, 60), 40);
        jobs.came(name, u64::MAX, 1.0);
        jobs.ended(&name, 1.0, 350, 1.0);
        assert_eq!(jobs.left(&name, 1, 0), 1, "something may have been done twice");
        jobs.ended(&name, 1.0, 1, 1.0);
        assert_eq!((jobs.left(&name, 1, 0), jobs.left(&name, 1, 49)), (1251, 1300));
        assert_eq!(jobs.left(&name, 5000, 0), 5000);
    }

    #[test]
    fn who_says_suddenly_that_little_is_left_is_believed_in_part() {
        let (mut jobs, name) = (Jobs::default(), job(1, 1));
        jobs.came(name, 1000, 0.0);
        jobs.ended(&name, 1.0, 200, 1.0);
        jobs.came(name, 1, 1.0);
        assert_eq!((jobs.left(&name, 1, 0), jobs.left(&name, 1, 400)), (200, 100));
        assert_eq!(jobs.left(&name, 800, 0), 800);
    }

    #[test]
    fn who_was_given_up_may_come_again_after_a_while() {
        let (mut jobs, name) = (Jobs::default(), job(1, 1));
        jobs.give_up(name, 1.0);
        assert!(jobs.is_given_up(&name, 1.0) && !jobs.is_given_up(&job(1, 2), 1.0));
        assert!(jobs.is_given_up(&name, KEPT) && !jobs.is_given_up(&name, KEPT + 1.0));
    }

    #[test]
    fn jobs_that_are_over_are_forgotten() {
        let mut jobs = Jobs::default();
        for number in 0..2000 {
            jobs.came(job(1, number), 0, 0.0);
            if number > 0 {
                jobs.went(&job(1, number), 0.0);
            }
        }
        assert!(jobs.known.len() <= MOST);
        jobs.came(job(1, 5000), 0, KEPT + 1.0);
        let known: Vec<u64> = jobs.known.keys().map(|name| name.number).collect();
        assert_eq!(known, [0, 5000]);
    }
}
