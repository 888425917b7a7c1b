//! Threads that are kept for whoever needs one next.
//!
//! To start a thread and to end it takes a tenth of a millisecond and more, and holds up the other threads of the process
//! meanwhile, as all share one address space. That is much beside a connection that lives for three.
//! Nobody waits for a thread here: who finds none that has nothing to do gets a new one.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Enough for any service here; the default of 2 MiB is only more to map.
pub(crate) const STACK_BYTES: usize = 512 << 10;

/// How long one waits for something to do before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// Most that wait: so many connections that end at once leave no more behind.
const MOST_IDLE: usize = 64;

type Job = Box<dyn FnOnce() + Send>;

/// Jobs that were begun, of all [`Threads`].
static JOBS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The number of the one that this thread does; 0 is none.
    static JOB: Cell<u64> = const { Cell::new(0) };
}

/// A number of what the calling thread does now, which nothing else has that is done by [`Threads`] of this process, but for what
/// it runs in scopes: that of a connection's first thread is as good as the connection's. Nothing where it is another thread.
pub fn job_of_thread() -> Option<u64> {
    Some(JOB.get()).filter(|job| *job > 0)
}

/// See the module. When this is dropped those that have nothing to do end, and the others when they are done.
pub struct Threads {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    idle: Duration,
    stack_bytes: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Who waits, the one that came last at the end: its stack is the warmest.
    waiting: Vec<Arc<Waiting>>,
    is_over: bool,
}

/// One that has nothing to do.
#[derive(Default)]
struct Waiting {
    given: Mutex<Option<Given>>,
    told: Condvar,
}

enum Given {
    Job(Job),
    End,
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic is done with one.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Waiting {
    fn give(&self, what: Given) {
        *lock(&self.given) = Some(what);
        self.told.notify_one();
    }

    /// What was given meanwhile, if anything was.
    fn wait(&self, patience: Duration) -> Option<Given> {
        let given = lock(&self.given);
        let waited = self.told.wait_timeout_while(given, patience, |given| given.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    }
}

impl Threads {
    /// None yet; each will have this name.
    pub fn new(name: &str) -> Threads {
        Threads::that_wait_for(name, IDLE, STACK_BYTES)
    }

    fn that_wait_for(name: &str, idle: Duration, stack_bytes: usize) -> Threads {
        let (name, state) = (name.to_owned(), Mutex::default());
        Threads { shared: Arc::new(Shared { name, idle, stack_bytes, state }) }
    }

    /// Has this done at once by one of them. What panics ends nothing but itself.
    ///
    /// # Errors
    ///
    /// If there is none to be had.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.run_boxed(Box::new(job))
    }

    fn run_boxed(&self, job: Job) -> io::Result<()> {
        let waiting = lock(&self.shared.state).waiting.pop();
        if let Some(waiting) = waiting {
            waiting.give(Given::Job(job));
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name(shared.name.clone());
        let thread = thread.stack_size(shared.stack_bytes);
        thread.spawn(move || shared.work(job)).map(drop)
    }

    /// The same for what borrows from the caller: all that is run in the scope has ended when this returns. Unlike
    /// those of [`std::thread::scope`], panics of what is run in it end there.
    pub fn scope<'e, T>(&'e self, body: impl for<'s> FnOnce(&'s ThreadScope<'s, 'e>) -> T) -> T {
        let scope = ThreadScope {
            threads: self,
            running: Arc::default(),
            of: PhantomData,
            with: PhantomData,
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| body(&scope)));
        scope.running.wait_for_all();
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.is_over = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.iter().for_each(|waiting| waiting.give(Given::End));
    }
}

impl Shared {
    /// Does jobs until there are none for a while.
    fn work(&self, first: Job) {
        let mut next = Some(first);
        while let Some(job) = next {
            JOB.set(1 + JOBS.fetch_add(1, Ordering::Relaxed));
            // The system has told of the panic; whoever waits for what the job was to do hears of it by what it drops.
            drop(catch_unwind(AssertUnwindSafe(job)));
            next = self.next();
        }
    }

    fn next(&self) -> Option<Job> {
        let waiting = Arc::new(Waiting::default());
        let mut state = lock(&self.state);
        if state.is_over || state.waiting.len() >= MOST_IDLE {
            return None;
        }
        state.waiting.push(Arc::clone(&waiting));
        drop(state);
        let mut patience = self.idle;
        loop {
            match waiting.wait(patience) {
                Some(Given::Job(job)) => return Some(job),
                Some(Given::End) => return None,
                None => {
                    let mut state = lock(&self.state);
                    let place = state.waiting.iter().position(|it| Arc::ptr_eq(it, &waiting));
                    // Who has taken it out of the list gives it something presently.
                    let Some(place) = place else {
                        patience = Duration::MAX;
                        continue;
                    };
                    state.waiting.remove(place);
                    return None;
                }
            }
        }
    }
}

/// See [`Threads::scope`].
pub struct ThreadScope<'s, 'e: 's> {
    threads: &'e Threads,
    running: Arc<Running>,
    /// Neither may be shortened or lengthened, as of [`std::thread::Scope`].
    of: PhantomData<&'s mut &'s ()>,
    with: PhantomData<&'e mut &'e ()>,
}

impl fmt::Debug for ThreadScope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadScope").field("threads", self.threads).finish_non_exhaustive()
    }
}

impl<'s> ThreadScope<'s, '_> {
    /// Has this done at once.
    ///
    /// # Errors
    ///
    /// If there is no thread to be had.
    pub fn run(&'s self, job: impl FnOnce() + Send + 's) -> io::Result<()> {
        let running = self.running.one_more();
        let job: Box<dyn FnOnce() + Send + 's> = Box::new(job);
        // SAFETY: only the lifetime differs. The job, and what it borrows, is gone before its `One` is dropped, however it ends
        // (`Counted`). `scope` does not return, and does not let a panic out, before that has happened, and what is borrowed
        // for 's outlives the call of `scope`.
        let job: Job = unsafe {
            std::mem::transmute::<Box<dyn FnOnce() + Send + 's>, Box<dyn FnOnce() + Send + 'static>>(
                job,
            )
        };
        let counted = Counted { job, of: JOB.get(), _running: running };
        self.threads.run_boxed(Box::new(move || counted.run()))
    }
}

/// A job of a scope. Fields are dropped in this order: if it is never run, too, the job is gone first.
struct Counted {
    job: Job,
    /// What runs the scope, if that is done by such a thread: it is a part of it.
    of: u64,
    _running: One,
}

impl Counted {
    fn run(self) {
        let Counted { job, of, _running } = self;
        if of > 0 {
            JOB.set(of);
        }
        job();
    }
}

/// What of a scope is being done.
#[derive(Default)]
struct Running {
    count: Mutex<usize>,
    changed: Condvar,
}

/// One of these, until it is dropped.
struct One(Arc<Running>);

impl Running {
    fn one_more(self: &Arc<Self>) -> One {
        *lock(&self.count) += 1;
        One(Arc::clone(self))
    }

    fn wait_for_all(&self) {
        let mut count = lock(&self.count);
        while *count > 0 {
            count = self.changed.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for One {
    fn drop(&mut self) {
        let mut count = lock(&self.0.count);
        *count -= 1;
        if *count == 0 {
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;
    use std::thread::ThreadId;
    use std::time::Instant;

    use super::*;

    /// Which thread does the next job.
    fn next_one(threads: &Threads) -> ThreadId {
        let (tell, told) = mpsc::channel();
        threads.run(move || tell.send(thread::current().id()).unwrap()).unwrap();
        told.recv().unwrap()
    }

    fn wait_until_idle(threads: &Threads, count: usize) {
        let begun = Instant::now();
        while lock(&threads.shared.state).waiting.len() != count {
            assert!(begun.elapsed() < Duration::from_secs(10));
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn one_that_is_done_does_what_comes_next() {
        let threads = Threads::new("test");
        let first = next_one(&threads);
        wait_until_idle(&threads, 1);
        assert_eq!(next_one(&threads), first);
        wait_until_idle(&threads, 1);
        threads.run(|| panic!("a panic of a test")).unwrap();
        wait_until_idle(&threads, 1);
        assert_eq!(next_one(&threads), first, "a panic ends no thread");
    }

    #[test]
    fn each_job_has_a_number_of_its_own() {
        assert_eq!(job_of_thread(), None);
        let threads = Threads::new("test");
        let (tell, told) = mpsc::channel();
        for _ in 0..3 {
            let tell = tell.clone();
            threads.run(move || tell.send(job_of_thread()).unwrap()).unwrap();
            wait_until_idle(&threads, 1);
        }
        let mut numbers: Vec<u64> = told.try_iter().map(Option::unwrap).collect();
        numbers.dedup();
        assert_eq!(numbers.len(), 3);
    }

    #[test]
    fn what_a_job_runs_in_a_scope_has_its_number_and_what_comes_next_another() {
        let threads = Arc::new(Threads::new("test"));
        let (tell, told) = mpsc::channel();
        let inner = Arc::clone(&threads);
        let job = move || {
            let tell = || tell.send(job_of_thread().unwrap()).unwrap();
            tell();
            inner.scope(|scope| (0..3).for_each(|_| scope.run(tell).unwrap()));
        };
        threads.run(job).unwrap();
        let numbers: Vec<u64> = told.iter().collect();
        assert_eq!(numbers, [numbers[0]; 4]);
        let (tell, told) = mpsc::channel();
        threads.run(move || tell.send(job_of_thread().unwrap()).unwrap()).unwrap();
        assert_ne!(told.recv().unwrap(), numbers[0]);
    }

    #[test]
    fn nobody_waits_for_others() {
        const MANY: usize = 2 * MOST_IDLE;
        let threads = Threads::new("test");
        let (begin, all) = (Arc::new(std::sync::Barrier::new(MANY + 1)), AtomicUsize::new(0));
        threads.scope(|scope| {
            for _ in 0..MANY {
                let begin = Arc::clone(&begin);
                let all = &all;
                let job = move || {
                    begin.wait();
                    all.fetch_add(1, Ordering::Relaxed);
                };
                scope.run(job).unwrap();
            }
            begin.wait();
        });
        assert_eq!(all.into_inner(), MANY);
        wait_until_idle(&threads, MOST_IDLE);
    }

    #[test]
    fn those_that_wait_end_when_nothing_comes_and_when_nobody_can_give_them_anything() {
        let threads = Threads::that_wait_for("test", Duration::from_millis(20), STACK_BYTES);
        let first = next_one(&threads);
        let begun = Instant::now();
        // Not by how many wait: who looks too late has seen nobody wait.
        while Arc::strong_count(&threads.shared) > 1 {
            assert!(begun.elapsed() < Duration::from_secs(10), "it waits for too long");
            thread::sleep(Duration::from_millis(1));
        }
        assert_ne!(next_one(&threads), first);
        let threads = Threads::new("test");
        next_one(&threads);
        wait_until_idle(&threads, 1);
        let shared = Arc::downgrade(&threads.shared);
        drop(threads);
        let begun = Instant::now();
        while shared.strong_count() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(5), "it waits for what can't come");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_scope_ends_when_all_that_it_runs_has_also_after_a_panic() {
        let threads = Threads::new("test");
        for _ in 0..100 {
            let mut done = [false; 3];
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                threads.scope(|scope| {
                    for done in &mut done {
                        let job = move || {
                            thread::sleep(Duration::from_micros(200));
                            *done = true;
                        };
                        scope.run(job).unwrap();
                    }
                    scope.run(|| panic!("a panic of a test")).unwrap();
                    panic!("another panic of a test");
                });
            }));
            assert!(outcome.is_err());
            assert_eq!(done, [true; 3]);
        }
    }

    #[test]
    fn a_job_for_which_there_is_no_thread_is_gone_when_that_is_told() {
        // More than there is room for.
        let threads = Threads::that_wait_for("test", IDLE, 1 << 50);
        let owned = Arc::new(());
        threads.scope(|scope| {
            let job = {
                let owned = Arc::clone(&owned);
                move || drop(owned)
            };
            scope.run(job).unwrap_err();
            assert_eq!(Arc::strong_count(&owned), 1);
        });
        assert!(lock(&threads.shared.state).waiting.is_empty());
    }

    #[test]
    fn what_a_scope_runs_may_run_more_in_it_and_in_scopes_of_its_own() {
        let threads = Threads::new("test");
        let count = AtomicUsize::new(0);
        let one = || {
            thread::sleep(Duration::from_millis(1));
            count.fetch_add(1, Ordering::Relaxed);
        };
        threads.scope(|scope| {
            let more = || {
                threads.scope(|own| (0..5).for_each(|_| own.run(one).unwrap()));
                assert!(count.load(Ordering::Relaxed) >= 5);
                scope.run(one).unwrap();
            };
            (0..3).for_each(|_| scope.run(more).unwrap());
        });
        assert_eq!(count.into_inner(), 18);
    }

    #[test]
    fn they_may_be_dropped_by_one_of_their_own() {
        let threads = Arc::new(Threads::new("test"));
        next_one(&threads);
        wait_until_idle(&threads, 1);
        let shared = Arc::downgrade(&threads.shared);
        let (tell, told) = mpsc::channel();
        let own = Arc::clone(&threads);
        threads
            .run(move || {
                told.recv().unwrap();
                drop(own);
            })
            .unwrap();
        drop(threads);
        tell.send(()).unwrap();
        let begun = Instant::now();
        while shared.strong_count() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(5), "it does not end");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Jobs come while threads give up waiting: each is done once.
    #[test]
    fn no_job_is_lost_to_a_thread_that_ends() {
        let threads = Threads::that_wait_for("test", Duration::from_micros(50), STACK_BYTES);
        let count = AtomicUsize::new(0);
        threads.scope(|scope| {
            for number in 0..2000 {
                let job = || {
                    count.fetch_add(1, Ordering::Relaxed);
                };
                scope.run(job).unwrap();
                thread::sleep(Duration::from_micros(number % 120));
            }
        });
        assert_eq!(count.into_inner(), 2000);
    }
}
