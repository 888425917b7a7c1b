//! Which of the calls that wait is begun next: one of the job that will be over first, so that most wait least; but whoever
//! has waited long is not passed over for ever (section 3.2 of the SMAS paper, with aging).

use std::collections::BTreeMap;

use nasd_types::AuditId;

use super::jobs::{JobName, Jobs};

/// A call is broken off for a job that takes less, by so much of what its own still takes: to break it off costs something, and
/// jobs that are alike would take turns.
const MARGIN: f64 = 0.5;

/// Who has waited for longer than so many seconds is put in front: callers wait for an answer no longer than half a minute, and would
/// have nothing of a call that is begun then.
const OVERDUE: f64 = 5.0;

/// One of those is put in front no sooner than so many seconds after the one before, so that short jobs wait little however many
/// there are.
const BETWEEN_OVERDUE: f64 = 0.08;

/// For so many seconds it is known of a caller that one of his calls was put in front: others come before him.
const KNOWN_IN_FRONT: f64 = 60.0;

/// Calls of one caller that may wait, and calls of all: looking which comes first takes time for each of them.
const MOST_OF_CALLER: usize = 256;
const MOST: usize = 1024;

/// Calls that wait, with `T` for each. All times are in seconds.
#[derive(Debug)]
pub(super) struct Queue<T> {
    waiting: Vec<Waiting<T>>,
    jobs: Jobs,
    /// Bytes of memory that there are.
    memory_bytes: usize,
    /// Bytes that no call has been granted.
    free_bytes: usize,
    /// Bytes of each caller's answers: of those that have not been sent yet, and what those of his calls that run may have.
    answers: BTreeMap<AuditId, usize>,
    /// Of all of them.
    all_answers: usize,
    /// Bytes of all answers that have not been sent yet.
    unsent_bytes: usize,
    /// When somebody was put in front last, for having waited long.
    put_in_front: f64,
    /// When a call of each caller was.
    fronts: BTreeMap<AuditId, f64>,
}

#[derive(Debug)]
struct Waiting<T> {
    need: Need,
    /// When it came.
    since: f64,
    what: T,
}

/// What is known of a call before it is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// Of which job.
    pub(crate) job: JobName,
    /// How long the object is.
    pub(crate) object_bytes: u64,
    /// Bytes that its job has still to look at.
    pub(crate) bytes_left: u64,
    /// Bytes of memory.
    pub(crate) memory_bytes: usize,
    /// How many of these its answer has at most.
    pub(crate) answer_bytes: usize,
}

impl<T> Queue<T> {
    pub(super) fn new(memory_bytes: usize) -> Queue<T> {
        Queue {
            waiting: Vec::new(),
            jobs: Jobs::default(),
            memory_bytes,
            free_bytes: memory_bytes,
            answers: BTreeMap::new(),
            all_answers: 0,
            unsent_bytes: 0,
            put_in_front: f64::NEG_INFINITY,
            fronts: BTreeMap::new(),
        }
    }

    /// Whether no other call of a caller may wait.
    pub(super) fn is_full_for(&self, caller: AuditId) -> bool {
        let is_his = |waiting: &&Waiting<T>| waiting.need.job.caller == caller;
        let has_most = || self.waiting.iter().filter(is_his).count() >= MOST_OF_CALLER;
        let has_room = || self.waiting.len() < MOST || self.makes_room_for(caller).is_some();
        has_most() || !has_room()
    }

    /// Where as many wait as may: a call that one of a caller may wait instead of, if any. It is not to be begun.
    pub(super) fn make_room(&mut self, caller: AuditId, now: f64) -> Option<T> {
        if self.waiting.len() < MOST {
            return None;
        }
        let at = self.makes_room_for(caller)?;
        Some(self.take_out(at, now))
    }

    /// Of whom most calls wait, the newest one: a few callers who keep the queue full would have nobody else in it, and only who
    /// is in it has his turn. He has at least two more, or both would push out one another's.
    fn makes_room_for(&self, caller: AuditId) -> Option<usize> {
        let mut counts: BTreeMap<AuditId, usize> = BTreeMap::new();
        for waiting in &self.waiting {
            *counts.entry(waiting.need.job.caller).or_default() += 1;
        }
        let own = counts.get(&caller).copied().unwrap_or_default();
        let (most, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        // They are in the order in which they came.
        let newest = || self.waiting.iter().rposition(|waiting| waiting.need.job.caller == most);
        if count >= own + 2 { newest() } else { None }
    }

    /// A call has come.
    pub(super) fn push(&mut self, need: Need, now: f64, what: T) {
        self.jobs.came(need.job, need.bytes_left, now);
        self.waiting.push(Waiting { need, since: now, what });
    }

    /// Which call is begun now: that which comes first of all, if there is memory for it. Its memory is granted.
    pub(super) fn next(&mut self, now: f64) -> Option<(Need, T)> {
        let overdue = self.overdue(now);
        let first = overdue.or_else(|| self.first(now))?;
        // Nobody overtakes one that waits for what running calls have: it might wait for ever.
        self.free_bytes = self.free_bytes.checked_sub(self.waiting[first].need.memory_bytes)?;
        let Waiting { need, what, .. } = self.waiting.remove(first);
        if overdue.is_some() {
            self.put_in_front = now;
            self.fronts.retain(|_, at| now - *at < KNOWN_IN_FRONT);
            self.fronts.insert(need.job.caller, now);
        }
        self.add_answer(need.job.caller, need.answer_bytes);
        self.jobs.begun(&need.job, now);
        Some((need, what))
    }

    /// Who is put in front for having waited long, if that is to be now: of the caller of whom that was longest ago the
    /// one that has waited longest.
    fn overdue(&self, now: f64) -> Option<usize> {
        if now - self.put_in_front < BETWEEN_OVERDUE {
            return None;
        }
        let front = |waiting: &Waiting<T>| {
            let known = self.fronts.get(&waiting.need.job.caller);
            known.copied().unwrap_or(f64::NEG_INFINITY)
        };
        let long = self.ready().filter(|(_, waiting)| now - waiting.since > OVERDUE);
        let turns = long.map(|(at, waiting)| (at, front(waiting), waiting.since));
        let first = turns.min_by(|(_, one, one_since), (_, other, other_since)| {
            one.total_cmp(other).then(one_since.total_cmp(other_since))
        });
        first.map(|(at, _, _)| at)
    }

    /// That of which the job will be over first.
    fn first(&self, now: f64) -> Option<usize> {
        let ranks = self.ready().map(|(_, waiting)| (waiting.need.job, self.rank(waiting, now)));
        let (job, _) = ranks.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
        // Of its job's calls that with most behind it, which is the first one in the file.
        let of_job = self.ready().filter(|(_, waiting)| waiting.need.job == job);
        of_job.rev().max_by_key(|(_, waiting)| waiting.need.bytes_left).map(|(at, _)| at)
    }

    /// A call that waits is not to be begun, if it is there.
    pub(super) fn remove(&mut self, now: f64, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let at = self.waiting.iter().position(|waiting| is_it(&waiting.what))?;
        Some(self.take_out(at, now))
    }

    fn take_out(&mut self, at: usize, now: f64) -> T {
        let Waiting { need, what, .. } = self.waiting.remove(at);
        self.jobs.went(&need.job, now);
        what
    }

    /// A job is given up: its calls that wait are not to be begun.
    pub(super) fn give_up(&mut self, name: &JobName, now: f64) -> Vec<T> {
        self.jobs.give_up(*name, now);
        self.take_out_all(now, |job| job == name)
    }

    /// The calls of these jobs that wait are not to be begun.
    pub(super) fn take_out_all(&mut self, now: f64, is_it: impl Fn(&JobName) -> bool) -> Vec<T> {
        let taken = self.waiting.extract_if(.., |waiting| is_it(&waiting.need.job));
        let taken: Vec<Waiting<T>> = taken.collect();
        taken.iter().for_each(|waiting| self.jobs.went(&waiting.need.job, now));
        taken.into_iter().map(|waiting| waiting.what).collect()
    }

    /// Seconds of work that its job has still to do, less what waiting makes up for.
    fn rank(&self, waiting: &Waiting<T>, now: f64) -> f64 {
        self.jobs.rank(&waiting.need.job, waiting.need.bytes_left, now)
    }

    /// Whether somebody is to be put in front for having waited long.
    pub(super) fn has_overdue(&self, now: f64) -> bool {
        self.overdue(now).is_some()
    }

    /// Seconds of work that the job of a call has left which has looked at so many bytes.
    pub(super) fn seconds_left(&self, need: &Need, looked_at: u64) -> f64 {
        self.jobs.seconds(&need.job, self.jobs.left(&need.job, need.bytes_left, looked_at))
    }

    /// Whether somebody waits whose job will be over well before that of a call which has run for some seconds, and has
    /// looked at so many bytes.
    pub(super) fn has_shorter(&self, need: &Need, now: f64, run: f64, looked_at: u64) -> bool {
        let left = self.seconds_left(need, looked_at);
        let own = left - self.jobs.credit(&need.job, now, run);
        let mut others = self.ready().filter(|(_, waiting)| waiting.need.job != need.job);
        others.any(|(_, waiting)| self.rank(waiting, now) < own - MARGIN * left)
    }

    /// A call is over, and has looked at so many bytes in so many seconds.
    pub(super) fn ended(&mut self, need: &Need, now: f64, bytes: u64, seconds: f64) {
        self.give_back(need);
        self.jobs.ended(&need.job, now, bytes, seconds);
    }

    /// A call has no memory any more, whether it is over or not, and none for an answer.
    pub(super) fn give_back(&mut self, need: &Need) {
        self.free_bytes += need.memory_bytes;
        self.take_answer(need.job.caller, need.answer_bytes);
    }

    /// So many bytes of what a call had, which is over, are its answer's.
    pub(super) fn keep(&mut self, caller: AuditId, bytes: usize) {
        self.free_bytes = self.free_bytes.saturating_sub(bytes);
        self.unsent_bytes += bytes;
        self.add_answer(caller, bytes);
    }

    /// The answer has been sent, or nobody reads it any more.
    pub(super) fn sent(&mut self, caller: AuditId, bytes: usize) {
        self.free_bytes += bytes;
        self.unsent_bytes = self.unsent_bytes.saturating_sub(bytes);
        self.take_answer(caller, bytes);
    }

    fn add_answer(&mut self, caller: AuditId, bytes: usize) {
        if bytes > 0 {
            self.all_answers += bytes;
            *self.answers.entry(caller).or_default() += bytes;
        }
    }

    fn take_answer(&mut self, caller: AuditId, bytes: usize) {
        if let Some(answers) = self.answers.get_mut(&caller) {
            let taken = bytes.min(*answers);
            *answers -= taken;
            self.all_answers -= taken;
            if *answers == 0 {
                self.answers.remove(&caller);
            }
        }
    }

    /// The calls that may be begun, if those that run leave memory for them, and where they are.
    fn ready(&self) -> impl DoubleEndedIterator<Item = (usize, &Waiting<T>)> {
        let waiting = self.waiting.iter().enumerate();
        waiting.filter(|(_, waiting)| self.is_ready(&waiting.need))
    }

    /// Whose answers take half of the memory gets no more of it for now, and whoever has any leaves a quarter to those who have none,
    /// so that there is some for others if these answers are not read: those of calls that run count as well, as nobody knows what
    /// will be read. Nor does a call get any that unsent answers leave too little for: it can't be begun whichever call ends, and
    /// nobody knows when an answer is read, so others do not wait for it.
    fn is_ready(&self, need: &Need) -> bool {
        let own = self.answers.get(&need.job.caller).copied().unwrap_or(0);
        let of_many = self.memory_bytes / 4 * 3;
        let is_full = own >= (self.memory_bytes / 2).max(1)
            || own > 0 && self.all_answers + need.answer_bytes > of_many;
        let left = self.memory_bytes.saturating_sub(self.unsent_bytes);
        !is_full && need.memory_bytes <= left
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Those that wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Need> {
        self.waiting.iter().map(|waiting| &waiting.need)
    }

    /// What is known of their jobs.
    pub(super) fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// Bytes that no call has been granted.
    pub(super) fn free_bytes(&self) -> usize {
        self.free_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_types::{AuditId, ObjectId, ObjectName, PartitionId};

    const GB: u64 = 1_000_000_000;

    fn need(extension: u32, number: u64, bytes_left: u64) -> Need {
        let object = ObjectName { partition: PartitionId(1), object: ObjectId(1000) };
        let job = JobName { caller: AuditId(7), extension, number, object };
        Need { job, object_bytes: 0, bytes_left, memory_bytes: 10, answer_bytes: 0 }
    }

    #[test]
    fn the_shortest_goes_first_by_what_was_measured() {
        let mut queue = Queue::new(1000);
        queue.push(need(1, 1, 5 * GB), 0.0, "slow");
        queue.push(need(2, 2, 9 * GB), 0.0, "quick");
        assert_eq!(queue.next(0.0).unwrap().1, "slow", "nothing is known");
        queue.ended(&need(1, 1, 0), 0.0, GB, 10.0);
        queue.push(need(1, 1, 5 * GB), 0.0, "slow");
        assert!(queue.has_shorter(&need(1, 3, 4 * GB), 0.0, 0.0, 0));
        assert!(!queue.has_shorter(&need(1, 3, 4 * GB), 0.0, 0.0, 3 * GB), "it is nearly over");
        assert!(!queue.has_shorter(&need(2, 4, 4 * GB), 0.0, 0.0, 0));
        assert_eq!(queue.next(0.0).unwrap().1, "quick");
        assert_eq!(queue.next(0.0).unwrap().1, "slow");
        assert_eq!(queue.next(0.0), None);
    }

    #[test]
    fn calls_of_a_job_go_in_its_order_and_not_before_one_another() {
        let mut queue = Queue::new(1000);
        for gigabytes in [8, 9, 7] {
            queue.push(need(1, 1, gigabytes * GB), 0.0, gigabytes);
        }
        let (first, number) = queue.next(0.0).unwrap();
        assert_eq!(number, 9);
        assert!(!queue.has_shorter(&first, 5.0, 5.0, 0));
        assert_eq!(queue.next(0.0).unwrap().1, 8);
        // Of another job one that is in between goes first, and is what a call is broken off for.
        queue.push(need(1, 2, 3 * GB), 0.0, 3);
        assert!(queue.has_shorter(&first, 0.1, 0.1, 0));
        assert_eq!(queue.next(0.0).unwrap().1, 3);
    }

    #[test]
    fn jobs_that_are_alike_do_not_take_turns_all_the_time() {
        let mut queue = Queue::new(1000);
        queue.push(need(1, 1, GB), 0.0, 1);
        let (first, _) = queue.next(0.0).unwrap();
        queue.push(need(1, 2, GB), 0.0, 2);
        for hundredths in 0..100_u32 {
            let now = f64::from(hundredths) / 100.0;
            let looked_at = u64::from(hundredths) * GB / 100;
            assert!(!queue.has_shorter(&first, now, now, looked_at), "{now}");
        }
    }

    /// Runs the queue with one thread for some seconds, in slices: a job of ten seconds, whose calls are broken off, and short ones
    /// of which there is always another one. When the long one is over, and when the last short one waited longest.
    fn beside_short_ones(slice: f64) -> (f64, f64) {
        let mut queue = Queue::new(1000);
        let (mut now, mut left, mut next, mut longest) = (0.0, 10.0, 1, 0.0_f64);
        queue.push(need(1, 0, 10 * GB), now, (0, now));
        while left > 0.0 && now < 1000.0 {
            if !queue.waiting().any(|need| need.job.number != 0) {
                queue.push(need(1, next, GB), now, (next, now));
                next += 1;
            }
            let (begun, (number, came)) = queue.next(now).unwrap();
            let mut run = 0.0;
            let end = if number == 0 { left } else { 1.0 };
            while run < end {
                run += slice;
                now += slice;
                if queue.has_shorter(&begun, now, run, (run * GB as f64) as u64) && number == 0 {
                    break;
                }
            }
            queue.ended(&begun, now, (run * GB as f64) as u64, run);
            if number == 0 {
                left -= run;
                if left > 0.0 {
                    queue.push(need(1, 0, (left * GB as f64) as u64), now, (0, now));
                }
            } else {
                longest = longest.max(now - came);
            }
        }
        (now, longest)
    }

    #[test]
    fn who_waits_gets_on_however_many_shorter_ones_come_and_they_wait_little() {
        let (over, longest) = beside_short_ones(0.02);
        assert!((20.0..80.0).contains(&over), "{over}");
        assert!(longest < 8.0, "{longest}");
    }

    #[test]
    fn a_short_job_behind_seven_long_ones_is_begun_at_once() {
        let mut queue = Queue::new(1000);
        for number in 0..7 {
            queue.push(need(1, number, 2 * GB), 0.0, number);
        }
        let (running, _) = queue.next(0.0).unwrap();
        queue.push(need(1, 7, GB / 20), 0.5, 7);
        assert!(queue.has_shorter(&running, 0.52, 0.52, GB / 2));
        queue.ended(&running, 0.52, GB / 2, 0.52);
        assert_eq!(queue.next(0.52).unwrap().1, 7);
    }

    #[test]
    fn who_has_waited_long_is_put_in_front_but_not_all_at_once() {
        let mut queue = Queue::new(1000);
        // Also a later part of a job of which others go first.
        queue.push(need(1, 1, 9 * GB), 0.0, 9);
        queue.push(need(1, 1, 900 * GB), 0.1, 900);
        queue.push(need(1, 2, GB / 2), 5.0, 2);
        assert!(!queue.has_overdue(5.0) && queue.has_overdue(5.2));
        assert_eq!(queue.next(5.2).unwrap().1, 9);
        // One more is due, and makes room for a short one.
        assert!(!queue.has_overdue(5.21));
        assert_eq!(queue.next(5.21).unwrap().1, 2);
        queue.push(need(1, 3, GB / 20), 5.21, 3);
        assert!(queue.has_overdue(5.3));
        assert_eq!(queue.next(5.3).unwrap().1, 900);
        assert_eq!(queue.next(5.3).unwrap().1, 3);
    }

    #[test]
    fn callers_are_put_in_front_by_turns() {
        let mut queue = Queue::new(1000);
        for number in 0..400 {
            queue.push(need(1, number, 9 * GB), 0.0, number);
        }
        let mut honest = need(1, 7, 90 * GB);
        honest.job.caller = AuditId(8);
        queue.push(honest, 1.0, 1000);
        assert_eq!(queue.next(6.1).unwrap().1, 0);
        assert_eq!(queue.next(6.2).unwrap().1, 1000, "the other caller's turn");
        assert_eq!(queue.next(6.3).unwrap().1, 1);
    }

    #[test]
    fn a_lie_about_what_is_left_gains_little() {
        let mut queue = Queue::new(1000);
        queue.push(need(1, 0, 2 * GB), 0.0, "honest");
        let mut looked_at = 0;
        loop {
            queue.push(need(1, 1, GB / 100), 0.0, "liar");
            let (begun, who) = queue.next(0.0).unwrap();
            if who == "honest" {
                break;
            }
            looked_at += GB / 10;
            queue.ended(&begun, 0.0, GB / 10, 0.1);
            assert!(looked_at < 3 * GB, "it goes before for ever");
        }
    }

    #[test]
    fn nobody_overtakes_who_waits_for_memory() {
        let mut queue = Queue::new(25);
        let large = Need { memory_bytes: 20, ..need(1, 2, 10) };
        queue.push(need(1, 1, 1), 0.0, "first");
        queue.push(large, 0.0, "large");
        queue.push(need(1, 3, 1000), 0.0, "small");
        let (first, _) = queue.next(0.0).unwrap();
        assert_eq!(queue.next(0.0), None);
        queue.ended(&first, 0.0, 0, 0.0);
        assert_eq!(queue.next(0.0).unwrap().1, "large");
        assert_eq!(queue.next(0.0), None);
        queue.ended(&large, 0.0, 0, 0.0);
        assert_eq!(queue.next(0.0).unwrap().1, "small");
        assert_eq!((queue.len(), queue.free_bytes()), (0, 15));
    }

    #[test]
    fn who_does_not_read_his_answers_leaves_memory_to_others() {
        let mut queue = Queue::new(40);
        let other = AuditId(8);
        for number in 0..3 {
            queue.push(need(1, number, GB), 0.0, "greedy");
        }
        queue.push(
            Need { job: JobName { caller: other, ..need(1, 9, 0).job }, ..need(1, 9, 9 * GB) },
            0.0,
            "other",
        );
        for _ in 0..2 {
            let (begun, who) = queue.next(0.0).unwrap();
            assert_eq!(who, "greedy");
            queue.ended(&begun, 0.0, 0, 0.0);
            queue.keep(begun.job.caller, 10);
        }
        // Though his job takes less, and has waited as long.
        assert!(!queue.has_shorter(&need(1, 77, 5 * GB), 6.0, 0.0, 0));
        assert_eq!(queue.next(6.0).unwrap().1, "other");
        assert!(queue.next(6.1).is_none() && !queue.has_overdue(6.1));
        assert_eq!((queue.len(), queue.free_bytes()), (1, 10));
        queue.sent(AuditId(7), 10);
        assert_eq!(queue.next(6.1).unwrap().1, "greedy");
        queue.sent(AuditId(7), 10);
        assert_eq!((queue.free_bytes(), queue.answers.len()), (20, 0));
    }

    #[test]
    fn several_who_do_not_read_their_answers_leave_memory_to_others() {
        let mut queue = Queue::new(64);
        let of = |caller, number| {
            let mut need = Need { memory_bytes: 5, answer_bytes: 4, ..need(1, number, GB) };
            need.job.caller = AuditId(caller);
            need
        };
        for caller in 0..4 {
            (0..20).for_each(|number| queue.push(of(caller, number), 0.0, caller));
        }
        while let Some((need, _)) = queue.next(0.0) {
            queue.ended(&need, 0.0, 0, 0.0);
            queue.keep(need.job.caller, need.answer_bytes);
        }
        queue.push(of(9, 1), 0.0, 9);
        assert_eq!(queue.next(0.0).unwrap().1, 9);
        let kept = queue.answers.clone();
        // Two take three quarters, and each of those who come later has one answer.
        assert_eq!(kept.into_values().collect::<Vec<_>>(), [32, 16, 4, 4, 4]);
        let kept = queue.answers.clone();
        kept.into_iter().for_each(|(caller, bytes)| queue.sent(caller, bytes));
        assert_eq!((queue.all_answers, queue.answers.len()), (0, 0));
    }

    #[test]
    fn answers_of_calls_that_run_are_counted_before_there_are_any() {
        let mut queue = Queue::new(64);
        let greedy = |number| Need { answer_bytes: 8, ..need(1, number, GB) };
        (0..6).for_each(|number| queue.push(greedy(number), 0.0, number));
        // Side by side, with memory for two more.
        (0..4).for_each(|number| assert_eq!(queue.next(0.0).unwrap().1, number));
        assert_eq!((queue.next(0.0), queue.free_bytes()), (None, 24));
        let mut other = need(1, 9, 9 * GB);
        other.job.caller = AuditId(8);
        queue.push(other, 0.0, 9);
        assert_eq!(queue.next(0.0).unwrap().1, 9);
        // Answers count as what they are once that is known.
        (0..3).for_each(|number| queue.ended(&greedy(number), 0.0, 0, 0.0));
        [8, 8, 7].into_iter().for_each(|bytes| queue.keep(AuditId(7), bytes));
        assert_eq!(queue.next(0.0).unwrap().1, 4);
        assert_eq!(queue.next(0.0), None);
        // One that is not waited for any more tells nothing.
        queue.give_back(&greedy(3));
        queue.ended(&Need { memory_bytes: 0, answer_bytes: 0, ..greedy(3) }, 0.0, 0, 0.0);
        assert_eq!(queue.next(0.0).unwrap().1, 5);
        (4..6).for_each(|number| queue.ended(&greedy(number), 0.0, 0, 0.0));
        queue.sent(AuditId(7), 23);
        assert_eq!((queue.free_bytes(), queue.answers.len()), (54, 0));
    }

    #[test]
    fn nobody_waits_behind_one_that_answers_leave_no_memory_for() {
        let mut queue = Queue::new(64);
        queue.push(need(1, 1, GB), 0.0, "unread");
        let (unread, _) = queue.next(0.0).unwrap();
        queue.ended(&unread, 0.0, 0, 0.0);
        queue.keep(unread.job.caller, 10);
        queue.push(Need { memory_bytes: 55, ..need(1, 2, 1) }, 0.0, "large");
        queue.push(need(1, 3, GB), 0.5, "small");
        queue.push(need(1, 4, GB), 0.6, "smaller");
        // Though it takes less, and has waited longer.
        assert_eq!(queue.next(1.0).unwrap().1, "small");
        assert_eq!(queue.next(6.0).unwrap().1, "smaller");
        assert!(queue.next(7.0).is_none() && !queue.has_overdue(7.0));
        assert!(!queue.has_shorter(&need(1, 5, GB), 7.0, 1.0, 0), "nobody makes room for it");
        // It waits for those that run alone now.
        queue.sent(AuditId(7), 10);
        queue.push(need(1, 6, GB), 7.0, "later");
        assert_eq!(queue.next(7.0), None);
        (3..5).for_each(|number| queue.ended(&need(1, number, 0), 7.0, 0, 0.0));
        assert_eq!(queue.next(7.0).unwrap().1, "large");
    }

    #[test]
    fn no_more_wait_than_may_of_one_caller_and_of_all() {
        let mut queue = Queue::new(10);
        let of = |caller| {
            let mut need = need(1, 1, GB);
            need.job.caller = AuditId(caller);
            need
        };
        for caller in 0..(MOST / MOST_OF_CALLER) as u64 {
            for number in 0..MOST_OF_CALLER {
                assert!(!queue.is_full_for(AuditId(caller)), "{number} of {caller}");
                queue.push(of(caller), 0.0, number);
            }
            assert!(queue.is_full_for(AuditId(caller)));
        }
        assert_eq!(queue.len(), MOST);
        // One who has fewer takes the place of the newest of who has most, until they are nearly even.
        let mut taken = 0;
        while !queue.is_full_for(AuditId(77)) {
            assert_eq!(queue.make_room(AuditId(77), 1.0), Some(MOST_OF_CALLER - 1 - taken / 4));
            queue.push(of(77), 1.0, MOST);
            taken += 1;
        }
        assert_eq!((queue.len(), taken), (MOST, 204));
        assert_eq!(queue.make_room(AuditId(77), 1.0), None);
        queue.next(1.0).unwrap();
        assert!(!queue.is_full_for(AuditId(77)));
        assert_eq!(queue.make_room(AuditId(78), 1.0), None, "there is room");
    }

    #[test]
    fn who_goes_away_takes_nobodys_place() {
        let mut queue = Queue::new(10);
        queue.push(need(1, 1, GB), 0.0, "gone");
        queue.push(need(1, 2, 2 * GB), 0.0, "there");
        assert_eq!(queue.remove(1.0, |what| *what == "gone"), Some("gone"));
        assert_eq!(queue.remove(1.0, |what| *what == "gone"), None);
        assert_eq!(queue.next(1.0).unwrap().1, "there");
        assert_eq!(queue.len(), 0);
    }
}
