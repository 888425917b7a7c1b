//! The threads that run extensions: as many as there are processors, with so little weight that plain reads and writes go
//! before them, and with memory for what they were granted alone.
//!
//! A thread can't be made to stop. One that has said nothing for long is left to itself, and another one takes its place;
//! its extension is not begun any more for that caller once that has happened twice and is so yet.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nasd_protocol::Status;
use nasd_transport::Spare;
use nasd_types::{AuditId, ByteRange, ObjectName};

use super::jobs::JobName;
use super::lost::Lost;
use super::queue::{Need, Queue};
use super::reach::{Bytes, End, Look, Reach, Signals, bytes_before, give_room, pair};
use super::{Extension, ExtensionCall, ExtensionError, Granted, Told};

/// How little the threads weigh: beside one of plain reads a tenth.
const NICE: i32 = 10;

/// An extension that asks for nothing for so long, and does not end, is not waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A thread that has had nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(10);

/// A call that has run for so long comes to an end if somebody waits whose job takes less.
const SLICE: Duration = Duration::from_millis(20);

/// A call that has run for so long comes to an end in any case: its caller waits for an answer no longer than half a minute, and asks for
/// the rest.
const LONGEST: Duration = Duration::from_secs(1);

/// One part in so many of the memory for calls is what may be kept besides, of answers that were sent.
const SPARE_SHARE: usize = 2;

/// How the extension of a call came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It said so.
    Told(ExtensionError),
    /// It has a bug.
    Panicked,
    /// It did not end, or others of it have not.
    NeverEnds,
    /// There is no thread for it.
    NoThread,
    /// As many calls wait as may, of its caller or of all.
    ManyWait,
}

/// What is to be run.
pub(crate) struct Job<'a> {
    pub(crate) extension: &'a Arc<dyn Extension>,
    pub(crate) call: ExtensionCall,
    /// What it is done with.
    pub(crate) name: ObjectName,
    /// Who calls, as his capability says; 0 for keys.
    pub(crate) caller: AuditId,
    /// Drawn by the caller: the same in all calls of a job.
    pub(crate) number: u64,
    /// How long the object is.
    pub(crate) object_bytes: u64,
    /// Bytes that its job has still to look at, by what its caller says.
    pub(crate) bytes_left: u64,
    /// Bytes of memory that it takes.
    pub(crate) memory_bytes: usize,
    /// Whether nobody waits for it any more.
    pub(crate) is_left: &'a dyn Fn() -> bool,
}

/// See the module.
pub(crate) struct Workers {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    state: Mutex<State>,
    /// There is something to do, or it is over.
    work: Condvar,
    pub(super) memory_bytes: usize,
    /// Memory of answers that were sent.
    pub(super) spare: Arc<Spare>,
    most_threads: usize,
    patience: Duration,
    longest: Duration,
    started: Instant,
    /// Threads that weigh as much as all else, since the system would not have it otherwise.
    heavy_threads: AtomicU64,
}

pub(super) struct State {
    pub(super) queue: Queue<Waiting>,
    /// What is running, by its number.
    pub(super) running: BTreeMap<u64, Running>,
    next_number: u64,
    threads: usize,
    idle: usize,
    lost: Lost,
    is_over: bool,
}

pub(super) struct Waiting {
    number: u64,
    extension: Arc<dyn Extension>,
    call: ExtensionCall,
    reach: Reach,
    signals: Arc<Signals>,
}

pub(super) struct Running {
    pub(super) need: Need,
    pub(super) since: f64,
    pub(super) signals: Arc<Signals>,
    is_lost: bool,
}

impl Job<'_> {
    /// What is known of it before it is begun.
    fn need(&self, extension: u32) -> Need {
        let (caller, number, object) = (self.caller, self.number, self.name);
        let object_bytes = self.object_bytes;
        // It has at least what it asks for now to look at, and no more than the rest of the object, which may be a part of its file.
        let pieces = &self.call.pieces;
        let end = if self.extension.looks_behind_end() { u64::MAX } else { object_bytes };
        let now = bytes_before(pieces, end);
        let begin = pieces.first().map_or(0, |piece| piece.offset);
        let most = object_bytes.saturating_sub(begin).max(now);
        Need {
            job: JobName { caller, extension, number, object },
            object_bytes,
            bytes_left: self.bytes_left.clamp(now, most),
            memory_bytes: self.memory_bytes,
            answer_bytes: self.memory_bytes.min(self.call.most),
        }
    }
}

impl Workers {
    pub(crate) fn new(memory_bytes: usize) -> Workers {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Workers::with_limits(memory_bytes, processors, PATIENCE)
    }

    fn with_limits(memory_bytes: usize, most_threads: usize, patience: Duration) -> Workers {
        let state = State {
            queue: Queue::new(memory_bytes),
            running: BTreeMap::new(),
            next_number: 0,
            threads: 0,
            idle: 0,
            lost: Lost::default(),
            is_over: false,
        };
        let shared = Shared {
            state: Mutex::new(state),
            work: Condvar::new(),
            memory_bytes,
            spare: Arc::new(Spare::new(memory_bytes / SPARE_SHARE)),
            most_threads,
            patience,
            longest: LONGEST,
            started: Instant::now(),
            heavy_threads: AtomicU64::new(0),
        };
        Workers { shared: Arc::new(shared) }
    }

    /// Bytes of memory that there are for all calls.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.shared.memory_bytes
    }

    /// Gives up a job: its calls that run are stopped, those that wait are not begun, nor are those that come yet.
    pub(crate) fn give_up(&self, name: &JobName) {
        let mut state = self.shared.lock();
        for Waiting { reach, .. } in state.queue.give_up(name, self.shared.now()) {
            reach.end(End::Failed(ExtensionError::Stopped));
        }
        let running = state.running.values().filter(|running| running.need.job == *name);
        running.for_each(|running| running.signals.stop());
        // They may have stood before others, for want of memory.
        self.shared.work.notify_all();
    }

    /// Threads that were begun and weigh as much as those of plain reads and writes.
    pub(crate) fn heavy_threads(&self) -> u64 {
        self.shared.heavy_threads.load(Ordering::Relaxed)
    }

    /// Runs an extension, and hands it what it asks for: what it tells, and what is granted for that until it has been sent. What
    /// nobody waits for any more is not begun, or stopped.
    pub(crate) fn run(
        &self,
        job: Job<'_>,
        read: impl Fn(ByteRange) -> Result<Bytes, Status>,
    ) -> Result<(Told, Option<Granted>), Failure> {
        let extension = job.extension.description().number;
        let is_left = job.is_left;
        if is_left() {
            return Err(Failure::Told(ExtensionError::Stopped));
        }
        let need = job.need(extension);
        let (mut reach, server) = pair(&job.call.pieces, job.object_bytes);
        reach.spare = Arc::clone(&self.shared.spare);
        let signals = Arc::clone(&server.signals);
        let waiting = |number| Waiting {
            number,
            extension: Arc::clone(job.extension),
            call: job.call,
            reach,
            signals,
        };
        let number = self.shared.begin(need, waiting)?;
        let look = || match is_left() {
            true => self.shared.leave(number),
            false => self.shared.preempt(number),
        };
        loop {
            match server.serve(self.shared.patience, &read, look) {
                Some(End::Told(told, granted)) => return Ok((told, granted)),
                Some(End::Failed(error)) => return Err(Failure::Told(error)),
                Some(End::Panicked) => return Err(Failure::Panicked),
                Some(End::MadeRoom) => return Err(Failure::ManyWait),
                Some(End::OthersAreLost) => return Err(Failure::NeverEnds),
                // It may not have been begun yet, or only just.
                None if !self.shared.has_run_for_long(number) => {}
                None => {
                    self.shared.lose(number);
                    return Err(Failure::NeverEnds);
                }
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.work.notify_all();
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Workers")
    }
}

impl State {
    /// Whether a call is the one whose job has most left of all that run.
    fn has_longest(&self, number: u64) -> bool {
        let left =
            |running: &Running| self.queue.seconds_left(&running.need, running.signals.looked_at());
        let running = self.running.iter().filter(|(_, running)| !running.is_lost);
        let longest = running.max_by(|(_, one), (_, other)| left(one).total_cmp(&left(other)));
        longest.is_some_and(|(longest, _)| *longest == number)
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // No extension runs with it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Has a call wait for its turn; its number.
    fn begin(
        self: &Arc<Self>,
        need: Need,
        waiting: impl FnOnce(u64) -> Waiting,
    ) -> Result<u64, Failure> {
        let now = self.now();
        let mut state = self.lock();
        if state.lost.are_too_many_for(&need.job) {
            return Err(Failure::NeverEnds);
        }
        if state.queue.jobs().is_given_up(&need.job, now) {
            return Err(Failure::Told(ExtensionError::Stopped));
        }
        if state.queue.is_full_for(need.job.caller) {
            return Err(Failure::ManyWait);
        }
        let number = state.next_number;
        state.next_number += 1;
        let waiting_then = state.queue.len() + 1;
        if !self.add_thread(&mut state, waiting_then) {
            return Err(Failure::NoThread);
        }
        if let Some(Waiting { reach, .. }) = state.queue.make_room(need.job.caller, now) {
            reach.end(End::MadeRoom);
        }
        state.queue.push(need, now, waiting(number));
        self.work.notify_one();
        Ok(number)
    }

    /// Begins a thread if more wait than there are idle ones, and one may be begun. Whether there is any.
    fn add_thread(self: &Arc<Self>, state: &mut State, waiting: usize) -> bool {
        if waiting > state.idle && state.threads < self.most_threads {
            let shared = Arc::clone(self);
            let thread = thread::Builder::new().name("nasd-extension".to_owned());
            let begun = thread.spawn(move || shared.work());
            state.threads += usize::from(begun.is_ok());
        }
        state.threads > 0
    }

    /// Whether a call runs, and has for as long as one is waited for that asks for nothing.
    fn has_run_for_long(&self, number: u64) -> bool {
        let (state, patience) = (self.lock(), self.patience.as_secs_f64());
        state.running.get(&number).is_some_and(|running| self.now() - running.since >= patience)
    }

    /// A call that has run for a while comes to an end, if somebody waits whose job takes less, or who has waited long; one that has
    /// run for long does in any case.
    fn preempt(&self, number: u64) -> Look {
        let state = self.lock();
        let now = self.now();
        if let Some(running) = state.running.get(&number) {
            let (run, looked_at) = (now - running.since, running.signals.looked_at());
            let makes_room = || {
                state.queue.has_shorter(&running.need, now, run, looked_at)
                    || state.has_longest(number) && state.queue.has_overdue(now)
            };
            let (slice, longest) = (SLICE.as_secs_f64(), self.longest.as_secs_f64());
            if run >= longest || run >= slice && makes_room() {
                running.signals.end_soon();
            }
        }
        Look::GoOn
    }

    /// Nobody waits for a call any more: it is not begun, or stopped.
    fn leave(&self, number: u64) -> Look {
        let mut state = self.lock();
        if let Some(running) = state.running.get(&number) {
            running.signals.stop();
            return Look::GoOn;
        }
        match state.queue.remove(self.now(), |waiting| waiting.number == number) {
            Some(_) => {
                // It may have stood before others, for want of memory.
                self.work.notify_all();
                Look::Over
            }
            // How it has ended is heard soon.
            None => Look::GoOn,
        }
    }

    /// A call is not waited for any more, though it runs: another thread may take its place.
    fn lose(self: &Arc<Self>, number: u64) {
        let mut state = self.lock();
        let Some(running) = state.running.get_mut(&number) else { return };
        running.is_lost = true;
        running.signals.stop();
        // It has no caller any more who could be told what the memory is for.
        let need = running.need;
        (running.need.memory_bytes, running.need.answer_bytes) = (0, 0);
        state.lost.add(&need.job);
        state.threads -= 1;
        state.queue.give_back(&need);
        let State { queue, lost, .. } = &mut *state;
        // Each would take a thread as well.
        for Waiting { reach, .. } in
            queue.take_out_all(self.now(), |job| lost.are_too_many_for(job))
        {
            reach.end(End::OthersAreLost);
        }
        // Others may have waited for its thread.
        let waiting = state.queue.len();
        self.add_thread(&mut state, waiting);
        self.work.notify_one();
        let extension = need.job.extension;
        tracing::error!(extension, "an extension does not end, and is left to itself");
    }

    /// What each of the threads does.
    fn work(self: &Arc<Self>) {
        self.weigh_less(|| rustix::process::setpriority_process(None, NICE));
        while let Some((need, waiting)) = self.next() {
            let Waiting { number, extension, call, reach, .. } = waiting;
            let begun = Instant::now();
            let mut reach = reach;
            reach.begun();
            let ran = catch_unwind(AssertUnwindSafe(|| extension.run(&call, &mut reach)));
            let mut end = End::of(ran);
            if matches!(end, End::Panicked) {
                tracing::error!(extension = need.job.extension, "an extension has panicked");
            }
            let looked_at = looked_at(&call, &end, reach.handed());
            let answer_bytes = self.shrink_answer(&mut end, need.answer_bytes);
            let (granted, is_lost) = self.ended(number, looked_at, begun.elapsed(), answer_bytes);
            if let End::Told(_, of_answer) = &mut end {
                *of_answer = granted;
            }
            reach.end(end);
            if is_lost {
                return;
            }
        }
    }

    /// Has this thread weigh little, by what does that.
    fn weigh_less(&self, set: impl FnOnce() -> rustix::io::Result<()>) {
        let Err(error) = set() else { return };
        // The next thread would say the same.
        if self.heavy_threads.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(%error, "extensions weigh as much as plain reads: their threads can't be made nicer");
        }
    }

    /// What this thread does next; `None` if nothing.
    fn next(&self) -> Option<(Need, Waiting)> {
        let mut state = self.lock();
        loop {
            let now = self.now();
            if state.is_over {
                state.threads -= 1;
                return None;
            }
            if let Some((need, waiting)) = state.queue.next(now) {
                let signals = Arc::clone(&waiting.signals);
                let running = Running { need, since: now, signals, is_lost: false };
                state.running.insert(waiting.number, running);
                // One call that has ended may have left memory for several.
                if state.idle > 0 && state.queue.len() > 0 {
                    self.work.notify_one();
                }
                return Some((need, waiting));
            }
            state.idle += 1;
            let (woken, waited) =
                self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if waited.timed_out() && state.queue.len() == 0 {
                state.threads -= 1;
                return None;
            }
        }
    }

    /// A call is over, and its answer takes so many bytes of memory: what stays granted until that has been sent. Whether its thread
    /// is over, too: another one has taken its place.
    fn ended(
        self: &Arc<Self>,
        number: u64,
        looked_at: u64,
        taken: Duration,
        answer_bytes: usize,
    ) -> (Option<Granted>, bool) {
        let mut state = self.lock();
        let Some(Running { need, is_lost, .. }) = state.running.remove(&number) else {
            return (None, false);
        };
        state.queue.ended(&need, self.now(), looked_at, taken.as_secs_f64());
        // Of one that is lost nobody takes the answer.
        let (caller, bytes) = (need.job.caller, answer_bytes.min(need.answer_bytes));
        state.queue.keep(caller, bytes);
        let granted = (bytes > 0).then(|| Granted::new(Arc::clone(self), caller, bytes));
        if is_lost {
            state.lost.remove(&need.job);
        }
        // Memory may be free now for others than the next of this thread.
        self.work.notify_one();
        (granted, is_lost)
    }

    /// Has an answer take no more memory than `most`, and no more than twice what was told; how much it takes, in bytes.
    fn shrink_answer(&self, end: &mut End, most: usize) -> usize {
        let End::Told(Told { data, .. }, _) = end else { return 0 };
        if data.capacity() > most || data.len() < data.capacity() / 2 {
            // In the same memory it could stay as large as it is.
            let told = data.to_vec();
            give_room(&self.spare, std::mem::replace(data, told));
        }
        data.capacity()
    }

    /// An answer of so many bytes has been sent, or nobody reads it any more.
    pub(super) fn sent(&self, caller: AuditId, bytes: usize) {
        self.lock().queue.sent(caller, bytes);
        self.work.notify_one();
    }
}

/// How many of a call's bytes it has looked at, if it has been handed so many: what it need not look at, since it has found
/// enough, takes no time.
fn looked_at(call: &ExtensionCall, end: &End, handed: u64) -> u64 {
    match end {
        End::Told(told, _) => handed.min(bytes_before(&call.pieces, told.position)),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Description;
    use super::super::lost::MOST_OF_CALLER;
    use super::*;
    use nasd_types::limits::MAX_TRANSFER_BYTES;
    use nasd_types::{ObjectId, PartitionId, Rights};
    use std::sync::mpsc::{Receiver, channel};

    /// One that waits until it is told to go on.
    struct Waits(Mutex<Receiver<()>>);

    impl Extension for Waits {
        fn description(&self) -> Description {
            Description {
                number: 9,
                name: "waits",
                revision: 1,
                rights: Rights::READ,
                parameters: "",
            }
        }

        fn check(&self, _: &ExtensionCall) -> Result<usize, ExtensionError> {
            Ok(0)
        }

        fn run(&self, call: &ExtensionCall, reach: &mut Reach) -> Result<Told, ExtensionError> {
            if call.arguments == b"wait" {
                self.0.lock().unwrap().recv().ok();
            }
            let begun = Instant::now();
            while call.arguments == b"until others wait" && !reach.is_to_end_soon() {
                assert!(begun.elapsed() < PATIENCE, "nobody else is begun");
                reach.go_on()?;
                thread::sleep(Duration::from_millis(1));
            }
            let data = vec![u8::from(reach.is_to_end_soon())];
            Ok(Told { position: call.end(), data })
        }
    }

    fn job<'a>(extension: &'a Arc<dyn Extension>, arguments: &[u8]) -> Job<'a> {
        let pieces = vec![ByteRange::new(0, 100)];
        let call = ExtensionCall { pieces, most: 10, arguments: arguments.to_vec(), since: None };
        let name = ObjectName { partition: PartitionId(1), object: ObjectId(1000) };
        Job {
            extension,
            call,
            name,
            caller: AuditId(7),
            number: 1,
            object_bytes: 100,
            bytes_left: 100,
            memory_bytes: 0,
            is_left: &|| false,
        }
    }

    fn wait_until(is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < IDLE / 2, "it is not so in time");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn answer(workers: &Workers, job: Job<'_>) -> Result<Told, Failure> {
        workers.run(job, nothing).map(|(told, _)| told)
    }

    fn nothing(_: ByteRange) -> Result<Bytes, Status> {
        Ok(Bytes::default())
    }

    #[test]
    fn one_that_never_ends_takes_no_thread_from_others() {
        let (go_on, waits) = channel();
        let bad: Arc<dyn Extension> = Arc::new(Waits(Mutex::new(waits)));
        let checksum: Arc<dyn Extension> = Arc::new(super::super::Checksum);
        let workers = Workers::with_limits(1 << 20, 1, Duration::from_secs(3));
        for _ in 0..MOST_OF_CALLER {
            assert_eq!(answer(&workers, job(&bad, b"wait")), Err(Failure::NeverEnds));
        }
        // It is not begun any more for its caller, and others are.
        assert_eq!(answer(&workers, job(&bad, b"")), Err(Failure::NeverEnds));
        answer(&workers, Job { caller: AuditId(8), ..job(&bad, b"") }).unwrap();
        answer(&workers, job(&checksum, &[0; 4])).unwrap();
        for _ in 0..MOST_OF_CALLER {
            go_on.send(()).unwrap();
        }
        // They have ended after all.
        let again = || answer(&workers, job(&bad, b""));
        while again() == Err(Failure::NeverEnds) {
            thread::yield_now();
        }
        again().unwrap();
    }

    #[test]
    fn what_waits_behind_those_that_never_end_is_not_begun() {
        let (go_on, waits) = channel();
        let bad: Arc<dyn Extension> = Arc::new(Waits(Mutex::new(waits)));
        let workers = Workers::with_limits(1 << 20, 1, Duration::from_secs(2));
        let begun = Instant::now();
        thread::scope(|scope| {
            let run = || answer(&workers, job(&bad, b"wait"));
            let calls: Vec<_> = (0..20).map(|_| scope.spawn(run)).collect();
            let other = scope.spawn(|| {
                wait_until(|| workers.shared.lock().queue.len() >= 10);
                answer(&workers, Job { caller: AuditId(8), ..job(&bad, b"") })
            });
            for call in calls {
                assert_eq!(call.join().unwrap(), Err(Failure::NeverEnds));
            }
            other.join().unwrap().unwrap();
            assert_eq!(workers.shared.lock().running.len(), MOST_OF_CALLER);
            assert!(begun.elapsed() < Duration::from_secs(20), "each has been waited for");
            (0..MOST_OF_CALLER).for_each(|_| go_on.send(()).unwrap());
        });
    }

    #[test]
    fn what_one_that_never_ends_was_granted_is_there_for_others() {
        let (go_on, waits) = channel();
        let bad: Arc<dyn Extension> = Arc::new(Waits(Mutex::new(waits)));
        let workers = Workers::with_limits(1 << 20, 1, Duration::from_secs(1));
        let large = Job { memory_bytes: 1 << 20, ..job(&bad, b"wait") };
        assert_eq!(answer(&workers, large), Err(Failure::NeverEnds));
        let large = Job { memory_bytes: 1 << 20, ..job(&bad, b"") };
        answer(&workers, large).unwrap();
        go_on.send(()).unwrap();
        wait_until(|| workers.shared.lock().running.is_empty());
        assert_eq!(workers.shared.lock().queue.free_bytes(), 1 << 20, "it is given back once");
    }

    #[test]
    fn what_an_answer_takes_is_there_for_others_when_it_has_been_sent() {
        let (_go_on, waits) = channel();
        let one: Arc<dyn Extension> = Arc::new(Waits(Mutex::new(waits)));
        let workers = Workers::with_limits(4, 1, PATIENCE);
        let free_bytes = || workers.shared.lock().queue.free_bytes();
        let large = || Job { memory_bytes: 4, ..job(&one, b"") };
        let (told, granted) = workers.run(large(), nothing).unwrap();
        assert_eq!((told.data.len(), free_bytes()), (1, 3));
        thread::scope(|scope| {
            let other = scope.spawn(|| answer(&workers, large()));
            wait_until(|| workers.shared.lock().queue.len() == 1);
            drop(granted);
            other.join().unwrap().unwrap();
        });
        assert_eq!(free_bytes(), 4);
    }

    #[test]
    fn memory_that_is_enough_for_several_wakes_as_many() {
        let (go_on, waits) = channel();
        let one: Arc<dyn Extension> = Arc::new(Waits(Mutex::new(waits)));
        let workers = Workers::with_limits(4, 4, Duration::from_secs(20));
        // Of one caller not all would be begun.
        let run = |caller, memory_bytes| {
            let job = Job { caller: AuditId(caller), memory_bytes, ..job(&one, b"wait") };
            answer(&workers, job).map(drop)
        };
        let state = || workers.shared.lock();
        thread::scope(|scope| {
            let first: Vec<_> = (0..4).map(|caller| scope.spawn(move || run(caller, 1))).collect();
            wait_until(|| state().running.len() == 4);
            (0..4).for_each(|_| go_on.send(()).unwrap());
            first.into_iter().for_each(|call| call.join().unwrap().unwrap());
            wait_until(|| state().idle == 4);
            let large = scope.spawn(|| run(4, 4));
            wait_until(|| state().running.len() == 1);
            let small: Vec<_> = (0..4).map(|caller| scope.spawn(move || run(caller, 1))).collect();
            // Those who were woken for them, and found no memory, sleep again.
            wait_until(|| state().queue.len() == 4 && state().idle == 3);
            go_on.send(()).unwrap();
            large.join().unwrap().unwrap();
            // Well before an idle thread looks by itself.
            wait_until(|| state().running.len() == 4);
            (0..4).for_each(|_| go_on.send(()).unwrap());
            small.into_iter().for_each(|call| call.join().unwrap().unwrap());
        });
    }

    #[test]
    fn what_is_left_is_no_more_and_no_less_than_it_can_be() {
        let checksum: Arc<dyn Extension> = Arc::new(super::super::Checksum);
        let scan: Arc<dyn Extension> = Arc::new(super::super::Scan);
        let of = |extension, told, offset, object_bytes| {
            let mut job = Job { bytes_left: told, object_bytes, ..job(extension, b"") };
            job.call.pieces = vec![ByteRange::new(offset, 100), ByteRange::new(offset + 500, 100)];
            job.need(1).bytes_left
        };
        let left = |told, offset, object_bytes| of(&checksum, told, offset, object_bytes);
        assert_eq!((left(0, 1000, 5000), left(3000, 1000, 5000)), (200, 3000));
        assert_eq!((left(u64::MAX, 1000, 5000), left(7, 1000, 1550)), (4000, 150));
        assert_eq!((left(u64::MAX, 1000, 500), left(0, u64::MAX - 700, u64::MAX)), (0, 200));
        // Zeros behind the end are nothing to one, and work for the other.
        assert_eq!((left(0, 1000, 1550), of(&scan, 0, 1000, 1550)), (150, 200));
        assert_eq!((of(&scan, u64::MAX, 1000, 500), of(&scan, 7, 1000, 5000)), (200, 200));
    }

    #[test]
    fn memory_of_answers_is_counted_as_it_is_and_used_again() {
        let workers = Workers::with_limits(16 << 20, 1, PATIENCE);
        let (mut reach, _server) = pair(&[], 0);
        reach.spare = Arc::clone(&workers.shared.spare);
        let most = MAX_TRANSFER_BYTES;
        // What is counted, and the answer, of one with so many bytes in this room, which may have so many.
        let shrunk = |mut data: Vec<u8>, bytes: usize, most: usize| {
            data.truncate(bytes);
            let mut end = End::Told(Told { position: 0, data }, None);
            let counted = workers.shared.shrink_answer(&mut end, most);
            let End::Told(Told { data, .. }, _) = end else { panic!("it has told something") };
            assert_eq!((counted, data.len()), (data.capacity(), bytes));
            data
        };
        let first = reach.room(most);
        let at = first.as_ptr();
        // Who uses much of it keeps it.
        let answer = shrunk(first, most / 2, most);
        assert_eq!(answer.as_ptr(), at);
        drop(Granted::new(Arc::clone(&workers.shared), AuditId(1), 0).holding(answer));
        let again = reach.room(most);
        assert_eq!(again.as_ptr(), at, "it was sent");
        assert_eq!(shrunk(again, most / 2 - 1, most).capacity(), most / 2 - 1);
        let again = reach.room(most);
        assert_eq!(again.as_ptr(), at, "little was told");
        assert_eq!(shrunk(again, 1000, 1000).capacity(), 1000, "no more than may be told");
        // Others are not taken from these, nor kept.
        let shorter = reach.room(most - 1);
        assert!(shorter.as_ptr() != at && shorter.capacity() == most - 1);
        give_room(&reach.spare, vec![0; most - 1]);
        give_room(&reach.spare, vec![0; most + 1]);
        let (only, other) = (reach.room(most), reach.room(most));
        assert!(only.as_ptr() == at && other.as_ptr() != at);
        // Half as much as may be granted is kept.
        (0..5).for_each(|_| give_room(&reach.spare, vec![7; most]));
        let kept = (0..5).filter(|_| reach.room(most).contains(&7)).count();
        assert_eq!(kept, 2);
    }

    #[test]
    fn what_was_not_looked_at_is_not_counted() {
        let call = ExtensionCall { pieces: vec![ByteRange::new(10, 100)], ..Default::default() };
        let at = |position| End::Told(Told { position, data: Vec::new() }, None);
        // The LIMIT was reached in the first bytes.
        assert_eq!(looked_at(&call, &at(110), 30), 30);
        // It was handed more than it looked at.
        assert_eq!(looked_at(&call, &at(25), 30), 15);
        assert_eq!(looked_at(&call, &End::Panicked, 30), 0);
    }

    #[test]
    fn threads_that_can_not_be_made_nicer_are_counted() {
        let workers = Workers::with_limits(0, 1, PATIENCE);
        workers.shared.weigh_less(|| Ok(()));
        assert_eq!(workers.heavy_threads(), 0);
        for _ in 0..2 {
            workers.shared.weigh_less(|| Err(rustix::io::Errno::PERM));
        }
        assert_eq!(workers.heavy_threads(), 2);
    }

    #[test]
    fn who_waits_behind_one_that_never_ends_is_begun() {
        let (go_on, waits) = channel();
        let bad: Arc<dyn Extension> = Arc::new(Waits(Mutex::new(waits)));
        let checksum: Arc<dyn Extension> = Arc::new(super::super::Checksum);
        let workers = Workers::with_limits(1 << 20, 1, Duration::from_secs(2));
        thread::scope(|scope| {
            let first = scope.spawn(|| answer(&workers, job(&bad, b"wait")));
            while workers.shared.lock().running.is_empty() {
                thread::yield_now();
            }
            let (told, heard) = channel();
            let workers = &workers;
            scope.spawn(move || told.send(answer(workers, job(&checksum, &[0; 4]))));
            let heard = heard.recv_timeout(Duration::from_secs(10));
            // Whoever waits for ever would keep this test from its end.
            workers.shared.add_thread(&mut workers.shared.lock(), 1);
            heard.expect("it waits for ever").unwrap();
            assert_eq!(first.join().unwrap(), Err(Failure::NeverEnds));
        });
        drop(go_on);
    }

    #[test]
    fn who_waited_for_long_has_as_long_to_run_as_others() {
        let (go_on, waits) = channel();
        let slow: Arc<dyn Extension> = Arc::new(Waits(Mutex::new(waits)));
        let workers = Workers::with_limits(1 << 20, 1, Duration::from_secs(6));
        thread::scope(|scope| {
            let run = || answer(&workers, job(&slow, b"wait"));
            let calls = [scope.spawn(run), scope.spawn(run)];
            // The second one is begun then, and its call has taken longer than the patience when it ends.
            for milliseconds in [3500, 3100] {
                thread::sleep(Duration::from_millis(milliseconds));
                go_on.send(()).unwrap();
            }
            calls.into_iter().for_each(|call| drop(call.join().unwrap().unwrap()));
        });
    }

    #[test]
    fn who_waits_long_behind_his_own_job_is_begun_before_his_caller_gives_up() {
        let (_go_on, waits) = channel();
        let slow: Arc<dyn Extension> = Arc::new(Waits(Mutex::new(waits)));
        let mut workers = Workers::with_limits(1 << 20, 1, PATIENCE);
        // It ends for others alone.
        Arc::get_mut(&mut workers.shared).unwrap().longest = 2 * PATIENCE;
        thread::scope(|scope| {
            let first = scope.spawn(|| answer(&workers, job(&slow, b"until others wait")));
            wait_until(|| !workers.shared.lock().running.is_empty());
            answer(&workers, job(&slow, b"")).unwrap();
            assert_eq!(first.join().unwrap().unwrap().data, [1], "it made room");
        });
    }

    #[test]
    fn who_has_run_for_long_makes_an_end_though_nobody_waits() {
        let (_go_on, waits) = channel();
        let slow: Arc<dyn Extension> = Arc::new(Waits(Mutex::new(waits)));
        let workers = Workers::with_limits(1 << 20, 1, PATIENCE);
        let told = answer(&workers, job(&slow, b"until others wait")).unwrap();
        assert_eq!(told.data, [1]);
    }

    #[test]
    fn calls_that_are_too_many_are_not_taken() {
        let (go_on, waits) = channel();
        let slow: Arc<dyn Extension> = Arc::new(Waits(Mutex::new(waits)));
        let workers = Workers::with_limits(1 << 20, 1, PATIENCE);
        let of = |caller, arguments| Job { caller: AuditId(caller), ..job(&slow, arguments) };
        thread::scope(|scope| {
            let first = scope.spawn(|| answer(&workers, of(7, b"wait")));
            wait_until(|| !workers.shared.lock().running.is_empty());
            // As many as may wait.
            while !workers.shared.lock().queue.is_full_for(AuditId(7)) {
                wait(&workers, &slow, 7);
            }
            assert_eq!(answer(&workers, of(7, b"")), Err(Failure::ManyWait));
            // Others may come.
            let waiting = workers.shared.lock().queue.len();
            let other = scope.spawn(|| answer(&workers, of(8, b"")));
            wait_until(|| workers.shared.lock().queue.len() > waiting);
            go_on.send(()).unwrap();
            first.join().unwrap().unwrap();
            other.join().unwrap().unwrap();
        });
        // The other caller's may have been the first that was begun.
        wait_until(|| !workers.shared.lock().queue.is_full_for(AuditId(7)));
        answer(&workers, of(7, b"")).unwrap();
    }

    /// Has a call of a caller wait that nobody waits for.
    fn wait(workers: &Workers, extension: &Arc<dyn Extension>, caller: u64) {
        let need = Job { caller: AuditId(caller), ..job(extension, b"") }.need(9);
        let (reach, server) = pair(&[], 0);
        let (extension, signals) = (Arc::clone(extension), server.signals);
        let call = ExtensionCall::default();
        let waiting = |number| Waiting { number, extension, call, reach, signals };
        workers.shared.begin(need, waiting).unwrap();
    }

    #[test]
    fn callers_of_many_calls_make_room_for_others() {
        let (go_on, waits) = channel();
        let slow: Arc<dyn Extension> = Arc::new(Waits(Mutex::new(waits)));
        let workers = Workers::with_limits(1 << 20, 1, PATIENCE);
        let of = |caller, arguments| Job { caller: AuditId(caller), ..job(&slow, arguments) };
        let len = || workers.shared.lock().queue.len();
        thread::scope(|scope| {
            let first = scope.spawn(|| answer(&workers, of(7, b"wait")));
            wait_until(|| !workers.shared.lock().running.is_empty());
            (0..255).for_each(|_| wait(&workers, &slow, 7));
            let newest = scope.spawn(|| answer(&workers, of(7, b"")));
            wait_until(|| len() == 256);
            // Others have fewer each.
            (0..768).for_each(|number| wait(&workers, &slow, 8 + number % 4));
            let other = scope.spawn(|| answer(&workers, of(12, b"")));
            // It hears of it before anything has ended.
            assert_eq!(newest.join().unwrap(), Err(Failure::ManyWait));
            assert_eq!(len(), 1024);
            go_on.send(()).unwrap();
            first.join().unwrap().unwrap();
            other.join().unwrap().unwrap();
        });
    }

    #[test]
    fn who_waits_for_a_thread_is_waited_for() {
        let (go_on, waits) = channel();
        let slow: Arc<dyn Extension> = Arc::new(Waits(Mutex::new(waits)));
        let workers = Workers::with_limits(1 << 20, 1, Duration::from_secs(20));
        thread::scope(|scope| {
            let first = scope.spawn(|| answer(&workers, job(&slow, b"wait")));
            while workers.shared.lock().running.is_empty() {
                thread::yield_now();
            }
            let second = scope.spawn(|| answer(&workers, job(&slow, b"")));
            while workers.shared.lock().queue.len() == 0 {
                thread::yield_now();
            }
            go_on.send(()).unwrap();
            first.join().unwrap().unwrap();
            second.join().unwrap().unwrap();
        });
        assert_eq!(workers.shared.lock().threads, 1);
    }
}
