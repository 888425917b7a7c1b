//! Tasks of which one runs at a time, and the time that passes between.
//!
//! Each task has a stack of its own, as what is simulated blocks; all of them run in one thread, or each in its own
//! ([`Time::begin_with_threads`]), of which one runs at a time. A task that waits gives
//! the turn back, to whoever is next by the queue of events: so what happens, and in which order, depends on nothing
//! but what was put into the queue. Time is that of the event that happened last.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::random::Random;
use crate::threads;

/// No run has so many events, if it ends at all.
const MOST_EVENTS: u64 = 2_000_000;

/// How much stack a task has.
const STACK_BYTES: usize = 1 << 20;

/// One of the tasks. The first is whoever made the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId(usize);

impl TaskId {
    /// Whoever made the time.
    pub const OUTSIDE: TaskId = TaskId(0);

    pub(crate) const fn number(self) -> usize {
        self.0
    }

    pub(crate) const fn of_number(number: usize) -> TaskId {
        TaskId(number)
    }
}

/// Tasks that end together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessId(usize);

impl ProcessId {
    /// Whoever made the time; it does not end before that.
    pub const OUTSIDE: ProcessId = ProcessId(0);
}

/// Unwinds the tasks of a process that was killed.
struct Killed;

/// See the module.
#[derive(Debug)]
pub struct Time {
    inner: Mutex<Inner>,
    now_ns: AtomicU64,
    thread: ThreadId,
    /// Each task is a thread ([`threads`]).
    has_threads: bool,
}

type Action = Box<dyn FnOnce(&Arc<Time>) + Send>;

pub(crate) type Work = Box<dyn FnOnce() + Send>;

enum Event {
    /// A task goes on, unless something else has had it go on before.
    Wake(TaskId, u64),
    Act(Action),
}

#[derive(Default)]
struct Inner {
    queue: BTreeMap<(u64, u64), Event>,
    numbers: u64,
    tasks: Vec<Task>,
    processes: Vec<bool>,
    is_over: bool,
    failure: Option<String>,
    told: VecDeque<String>,
    /// How many of the last events are kept as text.
    most_told: usize,
    /// Of all that has happened.
    digest: u64,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} events, {} tasks", self.queue.len(), self.tasks.len())
    }
}

struct Task {
    process: ProcessId,
    /// Rises whenever it begins to wait, and when it goes on.
    generation: u64,
    /// What it does, before it has begun.
    work: Option<Work>,
}

/// A task that has begun.
type Begun = Coroutine<(), (), (), DefaultStack>;

thread_local! {
    /// Which task runs.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    /// By which it gives the turn back.
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(std::ptr::null()) };
    /// Tasks that have begun and wait.
    static WAITING: RefCell<BTreeMap<usize, Begun>> = const { RefCell::new(BTreeMap::new()) };
    /// Stacks that nobody uses.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// Takes a lock; what a task that was killed had locked is as it was.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Time {
    /// A time in which nothing has happened yet, for this thread, which has no other; its first task is whoever calls.
    /// So many of the last events are kept as text.
    pub fn begin(most_told: usize) -> Arc<Time> {
        Time::new(most_told, false)
    }

    /// The same, in which each task is a thread, and each thread that one begins is a task: see [`threads`]. Who has the turn where several may
    /// go on is drawn.
    pub fn begin_with_threads(most_told: usize, random: Random) -> Arc<Time> {
        let time = Time::new(most_told, true);
        threads::begin(&time, random);
        time
    }

    fn new(most_told: usize, has_threads: bool) -> Arc<Time> {
        let inner = Inner { most_told, ..Inner::default() };
        let (inner, now_ns) = (Mutex::new(inner), AtomicU64::new(0));
        let thread = std::thread::current().id();
        let time = Arc::new(Time { inner, now_ns, thread, has_threads });
        let outside = time.process();
        debug_assert_eq!(outside, ProcessId::OUTSIDE);
        lock(&time.inner).tasks.push(Task { process: outside, generation: 0, work: None });
        time
    }

    /// How late it is.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns.load(Ordering::Relaxed))
    }

    /// A new process.
    pub fn process(&self) -> ProcessId {
        let mut inner = lock(&self.inner);
        inner.processes.push(true);
        ProcessId(inner.processes.len() - 1)
    }

    /// Whether a process was not killed.
    pub fn is_alive(&self, process: ProcessId) -> bool {
        let inner = lock(&self.inner);
        !inner.is_over && inner.processes[process.0]
    }

    /// Ends all tasks of a process where they are. They drop what they have, and nothing else.
    pub fn kill(&self, process: ProcessId) {
        let now = self.now();
        let mut inner = lock(&self.inner);
        inner.processes[process.0] = false;
        let tasks = inner.tasks.iter().enumerate().filter(|(_, task)| task.process == process);
        let those: Vec<_> = tasks.map(|(at, task)| (TaskId(at), task.generation)).collect();
        for (task, generation) in those {
            inner.push(now, Event::Wake(task, generation));
        }
    }

    /// Whether each task is a thread.
    pub const fn has_threads(&self) -> bool {
        self.has_threads
    }

    /// Begins a task, which runs when its turn comes.
    pub fn spawn(&self, process: ProcessId, work: impl FnOnce() + Send + 'static) {
        if self.has_threads {
            threads::spawn(process, work);
            return;
        }
        let mut inner = lock(&self.inner);
        inner.tasks.push(Task { process, generation: 0, work: Some(Box::new(work)) });
        let task = TaskId(inner.tasks.len() - 1);
        inner.push(self.now(), Event::Wake(task, 0));
    }

    /// A thread is a task from now on, of a process; if nothing is said of that, of the same as the running one.
    pub(crate) fn adopt(&self, process: Option<ProcessId>) -> TaskId {
        let mut inner = lock(&self.inner);
        let process = process.unwrap_or_else(|| inner.tasks[Time::current().0].process);
        inner.tasks.push(Task { process, generation: 0, work: None });
        let task = TaskId(inner.tasks.len() - 1);
        inner.push(self.now(), Event::Wake(task, 0));
        task
    }

    /// Whether a task may have a turn yet.
    pub(crate) fn has_turns(&self, task: TaskId) -> bool {
        lock(&self.inner).has_turns(task)
    }

    /// Has something happen at a time. It must not wait for anything.
    pub fn at(&self, when: Duration, action: impl FnOnce(&Arc<Time>) + Send + 'static) {
        lock(&self.inner).push(when.max(self.now()), Event::Act(Box::new(action)));
    }

    /// Has something happen after a time.
    pub fn after(&self, wait: Duration, action: impl FnOnce(&Arc<Time>) + Send + 'static) {
        self.at(self.now() + wait, action);
    }

    /// The task that has the turn.
    pub fn current() -> TaskId {
        TaskId(CURRENT.get())
    }

    /// This thread is that task.
    pub(crate) fn set_current(task: TaskId) {
        CURRENT.set(task.0);
    }

    /// A task that waits goes on.
    pub fn wake(&self, task: TaskId) {
        self.wake_after(task, Duration::ZERO);
    }

    /// A task that waits now goes on after a time.
    pub(crate) fn wake_after(&self, task: TaskId, wait: Duration) {
        let when = self.now() + wait;
        let mut inner = lock(&self.inner);
        let generation = inner.tasks[task.0].generation;
        inner.push(when, Event::Wake(task, generation));
    }

    /// Waits.
    pub fn sleep(self: &Arc<Self>, duration: Duration) {
        self.wait(Some(self.now() + duration));
    }

    /// Waits until another task, or what happens, has this one go on; until then at the latest.
    pub fn wait(self: &Arc<Self>, until: Option<Duration>) {
        let me = Time::current();
        self.go_on_or_end(me);
        let mut inner = lock(&self.inner);
        if !self.has_threads && (std::thread::panicking() || inner.is_over) {
            return;
        }
        inner.tasks[me.0].generation += 1;
        let generation = inner.tasks[me.0].generation;
        if let Some(until) = until {
            let until = until.max(self.now());
            inner.push(until, Event::Wake(me, generation));
        }
        drop(inner);
        match me {
            _ if self.has_threads => threads::pass_on(self, me),
            TaskId::OUTSIDE => self.pass(),
            _ => give_turn_back(),
        }
        self.go_on_or_end(me);
    }

    /// A task of a process that was killed ends, unless it is about to.
    fn go_on_or_end(&self, me: TaskId) {
        // Threads of a process that was killed never have a turn again.
        if self.has_threads || std::thread::panicking() || me == TaskId::OUTSIDE {
            return;
        }
        let inner = lock(&self.inner);
        let is_alive = !inner.is_over && inner.processes[inner.tasks[me.0].process.0];
        drop(inner);
        if !is_alive {
            resume_unwind(Box::new(Killed));
        }
    }

    /// Lets happen what is next, until the first task goes on.
    fn pass(self: &Arc<Self>) {
        while let Some((task, work)) = self.next() {
            match task {
                TaskId::OUTSIDE => return,
                _ => self.turn_of(task, work),
            }
        }
    }

    /// Lets happen what is next, until a task is to go on: which, and what it does if it has not begun. Nothing where the run can't go on.
    pub(crate) fn next(self: &Arc<Self>) -> Option<(TaskId, Option<Work>)> {
        loop {
            let mut inner = lock(&self.inner);
            let Some(((time, _), event)) = inner.queue.pop_first() else {
                inner.failure.get_or_insert("nothing will ever happen any more".to_owned());
                return None;
            };
            self.now_ns.store(time, Ordering::Relaxed);
            inner.note(time);
            if inner.numbers > MOST_EVENTS {
                inner.failure.get_or_insert("there is no end of it".to_owned());
                return None;
            }
            match event {
                Event::Act(action) => {
                    drop(inner);
                    action(self);
                }
                Event::Wake(task, generation) => {
                    let is_late = inner.tasks[task.0].generation != generation;
                    if is_late || (self.has_threads && !inner.has_turns(task)) {
                        continue;
                    }
                    let known = &mut inner.tasks[task.0];
                    known.generation += 1;
                    let work = known.work.take();
                    inner.note(task.0 as u64);
                    return Some((task, work));
                }
            }
        }
    }

    /// A task has its turn; it begins, if it has not.
    fn turn_of(self: &Arc<Self>, task: TaskId, work: Option<Work>) {
        let begun = match work {
            Some(work) => Some(self.beginning(work)),
            None => WAITING.with_borrow_mut(|waiting| waiting.remove(&task.0)),
        };
        // One that has ended.
        let Some(mut begun) = begun else { return };
        CURRENT.set(task.0);
        let yielder = YIELDER.replace(std::ptr::null());
        let told = begun.resume(());
        YIELDER.set(yielder);
        CURRENT.set(0);
        match told {
            CoroutineResult::Yield(()) => {
                WAITING.with_borrow_mut(|waiting| waiting.insert(task.0, begun));
            }
            CoroutineResult::Return(()) => {
                STACKS.with_borrow_mut(|stacks| stacks.push(begun.into_stack()));
            }
        }
    }

    fn beginning(self: &Arc<Self>, work: Work) -> Begun {
        let kept = STACKS.with_borrow_mut(Vec::pop);
        let new = || {
            DefaultStack::new(STACK_BYTES)
                .expect("invariant: there is memory for the stack of a task")
        };
        let time = Arc::clone(self);
        Coroutine::with_stack(kept.unwrap_or_else(new), move |yielder, ()| {
            YIELDER.set(yielder);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(work))
                && !panic.is::<Killed>()
            {
                time.fail(message_of(&*panic));
            }
        })
    }

    /// Something is not as it must be: the run ends.
    pub fn fail(&self, why: String) {
        self.tell(|| format!("FAILED: {why}"));
        lock(&self.inner).failure.get_or_insert(why);
        self.wake(TaskId::OUTSIDE);
    }

    /// Fails where another thread than that of the tasks does something: it comes in between when it will, so that no run
    /// would be the same as another one.
    pub fn expect_own_thread(&self) {
        let current = std::thread::current();
        if !self.has_threads && current.id() != self.thread {
            self.fail(format!("the thread {:?} is no task", current.name()));
        }
    }

    /// What is not as it must be, if anything.
    pub fn failure(&self) -> Option<String> {
        lock(&self.inner).failure.clone()
    }

    /// Notes an event.
    pub fn tell(&self, what: impl FnOnce() -> String) {
        if lock(&self.inner).most_told == 0 {
            return;
        }
        let line = format!("{:>11.6} {}", self.now().as_secs_f64(), what());
        let mut inner = lock(&self.inner);
        if inner.told.len() >= inner.most_told {
            inner.told.pop_front();
        }
        inner.told.push_back(line);
    }

    /// The same, of what is worth it.
    pub fn tell_if(&self, is_worth_it: bool, what: impl FnOnce() -> String) {
        if is_worth_it {
            self.tell(what);
        }
    }

    /// The last events.
    pub fn told(&self) -> Vec<String> {
        lock(&self.inner).told.iter().cloned().collect()
    }

    /// A number that is the same for two runs in which the same has happened.
    pub fn digest(&self) -> u64 {
        lock(&self.inner).digest
    }

    /// Something has happened that is to be the same in each run.
    pub fn note(&self, what: u64) {
        lock(&self.inner).note(what);
    }

    /// Ends all tasks; by the first one.
    pub fn end(self: &Arc<Self>) {
        let mut inner = lock(&self.inner);
        inner.is_over = true;
        let mut left = Vec::new();
        inner.tasks.iter_mut().for_each(|task| left.extend(task.work.take()));
        drop(inner);
        drop(left);
        while let Some(task) = WAITING.with_borrow(|waiting| waiting.keys().next().copied()) {
            self.turn_of(TaskId(task), None);
        }
        // What is on its way holds on to what it is about.
        let left = std::mem::take(&mut lock(&self.inner).queue);
        drop(left);
    }
}

/// Has the running task wait for its turn.
fn give_turn_back() {
    let yielder = YIELDER.get();
    assert!(!yielder.is_null(), "a task that runs has something to give its turn back by");
    // SAFETY: it belongs to the task that runs, which has set it, and lives as long as that.
    unsafe { &*yielder }.suspend(());
    YIELDER.set(yielder);
}

impl Inner {
    fn push(&mut self, when: Duration, event: Event) {
        self.numbers += 1;
        self.queue.insert((when.as_nanos() as u64, self.numbers), event);
    }

    fn has_turns(&self, task: TaskId) -> bool {
        self.processes[self.tasks[task.0].process.0]
    }

    fn note(&mut self, what: u64) {
        self.digest = (self.digest ^ what).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    format!("a panic: {}", text.unwrap_or_else(|| "of another kind".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_run_in_the_order_of_time_and_end_when_they_are_killed() {
        let time = Time::begin(0);
        let said = Arc::new(Mutex::new(Vec::new()));
        let process = time.process();
        for name in [3_u64, 1, 2] {
            let (time, said) = (Arc::clone(&time), Arc::clone(&said));
            let own = Arc::clone(&time);
            time.spawn(process, move || {
                loop {
                    own.sleep(Duration::from_secs(name));
                    said.lock().unwrap().push((name, own.now().as_secs()));
                }
            });
        }
        time.sleep(Duration::from_millis(3500));
        time.kill(process);
        time.sleep(Duration::from_secs(10));
        assert_eq!(*said.lock().unwrap(), [(1, 1), (2, 2), (1, 2), (3, 3), (1, 3)]);
        assert_eq!(time.now(), Duration::from_millis(13_500));
        time.end();
    }

    #[test]
    fn a_thread_that_is_no_task_is_found() {
        let time = Time::begin(0);
        time.expect_own_thread();
        let own = Arc::clone(&time);
        time.spawn(time.process(), move || own.expect_own_thread());
        time.sleep(Duration::from_secs(1));
        assert_eq!(time.failure(), None);
        std::thread::scope(|scope| drop(scope.spawn(|| time.expect_own_thread())));
        assert!(time.failure().unwrap().contains("is no task"));
        time.end();
    }

    #[test]
    fn a_panic_of_a_task_is_told() {
        let time = Time::begin(10);
        time.spawn(time.process(), || panic!("as planned by this test"));
        time.sleep(Duration::from_secs(1));
        assert!(time.failure().unwrap().contains("as planned"));
        time.end();
    }
}
