//! Real threads of which one runs at a time, and real waits that take simulated time.
//!
//! What the file manager and a clerk do, they do in threads of their own that wait for each other and for the clock. So that this is the same for
//! each run of a seed, the functions of the C library by which Rust's standard library begins threads, waits (futexes, sleeps), and reads the
//! clock and random numbers are defined here, and these are what this program is linked with. For a thread that belongs to a simulation they
//! give the turn to whoever is next ([`Time`]); for any other one they are the C library's.
//!
//! A thread of a process that was killed never has a turn again: it keeps what it has, as nothing of a killed process runs any more. So a run
//! has an operating system's process of its own, which ends with it ([`crate::afs::apart`]).

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libc::{clockid_t, pthread_attr_t, pthread_t, size_t, ssize_t, timespec};

use crate::network::EPOCH;
use crate::random::Random;
use crate::turns::{ProcessId, TaskId, Time, lock};

/// What the clock that only rises shows at the beginning: whoever looks back from then finds a time as well.
const RISEN: Duration = Duration::from_secs(100_000);

/// Somebody who reads the clock is kept from going on, once in so many times.
const KEPT_ONE_IN: u64 = 16;

/// For so long at most; and so much later at most somebody goes on who was waited for.
const KEPT: Duration = Duration::from_micros(40);

/// Handles of simulated threads begin here; no real one is so small.
const FIRST_HANDLE: pthread_t = 1;

/// All threads of a simulation.
struct World {
    time: Arc<Time>,
    random: Random,
    batons: BTreeMap<TaskId, Arc<Baton>>,
    ended: BTreeSet<TaskId>,
    /// Who waits for the end of which.
    joining: Vec<(TaskId, TaskId)>,
    /// Who waits at which address.
    waiting: BTreeMap<usize, Vec<TaskId>>,
    /// Of which process the next thread is, if not of its maker's.
    next: Option<ProcessId>,
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);

thread_local! {
    /// Whether this thread takes turns.
    static TAKES_TURNS: Cell<bool> = const { Cell::new(false) };
    /// Whether what it does is not its own, but what happens between turns.
    static ACTS: Cell<bool> = const { Cell::new(false) };
}

/// Whoever has it runs.
struct Baton(AtomicU32);

impl Baton {
    fn give(&self) {
        self.0.store(1, Ordering::Release);
        // SAFETY: the address is good as long as `self`.
        unsafe { call(libc::SYS_futex, [self.address(), wake_private(), 1, 0, 0, 0]) };
    }

    fn wait(&self) {
        while self.0.swap(0, Ordering::Acquire) == 0 {
            let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: as above.
            unsafe { call(libc::SYS_futex, [self.address(), c_long::from(wait), 0, 0, 0, 0]) };
        }
    }

    fn address(&self) -> c_long {
        (&raw const self.0) as c_long
    }
}

fn wake_private() -> c_long {
    c_long::from(libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG)
}

/// From now on this thread's time is simulated, and that of the threads that it begins.
pub(crate) fn begin(time: &Arc<Time>, random: Random) {
    let world = World {
        time: Arc::clone(time),
        random,
        batons: BTreeMap::from([(TaskId::OUTSIDE, Arc::new(Baton(AtomicU32::new(0))))]),
        ended: BTreeSet::new(),
        joining: Vec::new(),
        waiting: BTreeMap::new(),
        next: None,
    };
    *lock(&WORLD) = Some(world);
    TAKES_TURNS.set(true);
}

impl World {
    /// That of a task that has not ended.
    fn baton(&self, task: TaskId) -> Arc<Baton> {
        let known = self.batons.get(&task).map(Arc::clone);
        known.expect("invariant: only who has not ended has a turn")
    }
}

fn with<T>(act: impl FnOnce(&mut World) -> T) -> T {
    let mut world = lock(&WORLD);
    act(world.as_mut().expect("invariant: threads that take turns have a world"))
}

fn time() -> Arc<Time> {
    with(|world| Arc::clone(&world.time))
}

/// Begins a thread of a process.
pub(crate) fn spawn(process: ProcessId, work: impl FnOnce() + Send + 'static) {
    with(|world| world.next = Some(process));
    let begun = std::thread::Builder::new().spawn(work);
    if let Err(error) = begun {
        time().fail(format!("no thread can be begun: {error}"));
    }
}

/// Gives the turn to whoever is next, and waits until it comes back, if it ever does.
pub(crate) fn pass_on(time: &Arc<Time>, me: TaskId) {
    let next = next(time);
    if next == me {
        return;
    }
    let (mine, other) = with(|world| (world.baton(me), world.baton(next)));
    other.give();
    mine.wait();
}

/// Whose turn is next; where the run can't go on, the first thread's. What happens meanwhile is nobody's.
fn next(time: &Arc<Time>) -> TaskId {
    ACTS.set(true);
    let next = catch_unwind(AssertUnwindSafe(|| time.next()));
    ACTS.set(false);
    match next {
        Ok(Some((task, _))) => task,
        // The hook of panics has told of it.
        Ok(None) | Err(_) => TaskId::OUTSIDE,
    }
}

/// Keeps the running thread from going on, now and then.
fn perhaps_keep() {
    if ACTS.get() || Time::current() == TaskId::OUTSIDE {
        return;
    }
    let kept = with(|world| {
        let kept = world.random.one_in(KEPT_ONE_IN);
        kept.then(|| (Arc::clone(&world.time), world.random.between(Duration::ZERO, KEPT)))
    });
    if let Some((time, kept)) = kept {
        time.sleep(kept);
    }
}

/// What a new thread begins with.
type Start = extern "C" fn(*mut c_void) -> *mut c_void;

struct Beginning {
    task: TaskId,
    baton: Arc<Baton>,
    start: Start,
    argument: *mut c_void,
}

extern "C" fn run(beginning: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` below has made it for this thread alone.
    let beginning = unsafe { Box::from_raw(beginning.cast::<Beginning>()) };
    let Beginning { task, baton, start, argument } = *beginning;
    baton.wait();
    Time::set_current(task);
    TAKES_TURNS.set(true);
    let told = start(argument);
    let time = time();
    with(|world| {
        world.ended.insert(task);
        world.batons.remove(&task);
        let joining = world.joining.iter().filter(|(_, awaited)| *awaited == task);
        joining.for_each(|(who, _)| world.time.wake(*who));
        world.joining.retain(|(_, awaited)| *awaited != task);
    });
    drop(baton);
    let next = next(&time);
    TAKES_TURNS.set(false);
    with(|world| world.baton(next)).give();
    told
}

/// See `pthread_create(3)`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    if !TAKES_TURNS.get() {
        // SAFETY: the caller's.
        return unsafe { real_pthread_create(thread, attributes, start, argument) };
    }
    let baton = Arc::new(Baton(AtomicU32::new(0)));
    let task = with(|world| {
        let task = world.time.adopt(world.next.take());
        world.batons.insert(task, Arc::clone(&baton));
        task
    });
    let beginning = Box::into_raw(Box::new(Beginning { task, baton, start, argument }));
    let mut real: pthread_t = 0;
    // SAFETY: the caller's attributes; what it begins with is that of `run`.
    let told = unsafe { real_pthread_create(&raw mut real, attributes, run, beginning.cast()) };
    if told != 0 {
        with(|world| world.batons.remove(&task));
        // SAFETY: nobody else has it.
        drop(unsafe { Box::from_raw(beginning) });
        return told;
    }
    // SAFETY: nobody else has its handle, and nobody joins it.
    unsafe { real_pthread_detach(real) };
    // SAFETY: the caller's.
    unsafe { *thread = FIRST_HANDLE + task.number() as pthread_t };
    0
}

/// Which task a handle is of.
fn task_of(thread: pthread_t) -> TaskId {
    TaskId::of_number((thread - FIRST_HANDLE) as usize)
}

/// See `pthread_join(3)`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_join(thread: pthread_t, value: *mut *mut c_void) -> c_int {
    if !TAKES_TURNS.get() {
        // SAFETY: the caller's.
        return unsafe { real_pthread_join(thread, value) };
    }
    let task = task_of(thread);
    loop {
        let time = with(|world| {
            if world.ended.contains(&task) {
                return None;
            }
            world.joining.push((Time::current(), task));
            Some(Arc::clone(&world.time))
        });
        match time {
            Some(time) => time.wait(None),
            None => return 0,
        }
    }
}

/// See `pthread_detach(3)`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_detach(thread: pthread_t) -> c_int {
    match TAKES_TURNS.get() {
        true => 0,
        // SAFETY: the caller's.
        false => unsafe { real_pthread_detach(thread) },
    }
}

fn spec(duration: Duration) -> timespec {
    timespec {
        tv_sec: duration.as_secs() as libc::time_t,
        tv_nsec: c_long::from(duration.subsec_nanos()),
    }
}

fn duration(spec: timespec) -> Duration {
    Duration::new(spec.tv_sec.max(0) as u64, spec.tv_nsec.clamp(0, 999_999_999) as u32)
}

/// What a clock shows at a time of the simulation.
fn shown(clock: clockid_t, now: Duration) -> Duration {
    match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => Duration::from_nanos(EPOCH.0) + now,
        _ => RISEN + now,
    }
}

/// See `clock_gettime(2)`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, told: *mut timespec) -> c_int {
    if !TAKES_TURNS.get() {
        // SAFETY: the caller's.
        return unsafe { real_clock_gettime(clock, told) };
    }
    perhaps_keep();
    // SAFETY: the caller's.
    unsafe { *told = spec(shown(clock, time().now())) };
    0
}

/// See `nanosleep(2)`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nanosleep(wanted: *const timespec, left: *mut timespec) -> c_int {
    if !TAKES_TURNS.get() {
        // SAFETY: the caller's.
        return unsafe { real_nanosleep(wanted, left) };
    }
    // SAFETY: the caller's.
    time().sleep(duration(unsafe { *wanted }));
    0
}

/// See `clock_nanosleep(2)`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    wanted: *const timespec,
    left: *mut timespec,
) -> c_int {
    if !TAKES_TURNS.get() {
        // SAFETY: the caller's.
        return unsafe { real_clock_nanosleep(clock, flags, wanted, left) };
    }
    // SAFETY: the caller's.
    let wanted = duration(unsafe { *wanted });
    let time = time();
    match flags & libc::TIMER_ABSTIME {
        0 => time.sleep(wanted),
        _ => time.sleep(wanted.saturating_sub(shown(clock, time.now()))),
    }
    0
}

/// See `sched_yield(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn sched_yield() -> c_int {
    match TAKES_TURNS.get() {
        true => time().sleep(Duration::from_micros(1)),
        // SAFETY: it has no arguments.
        false => drop(unsafe { call(libc::SYS_sched_yield, [0; 6]) }),
    }
    0
}

/// See `getrandom(2)`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(into: *mut c_void, bytes: size_t, flags: c_uint) -> ssize_t {
    if !TAKES_TURNS.get() {
        let arguments = [into as c_long, bytes as c_long, c_long::from(flags), 0, 0, 0];
        // SAFETY: the caller's.
        return unsafe { call(libc::SYS_getrandom, arguments) as ssize_t };
    }
    // SAFETY: the caller's.
    let into = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), bytes) };
    with(|world| into.fill_with(|| world.random.draw() as u8));
    bytes as ssize_t
}

/// See `syscall(2)`. It is variadic in C; on x86-64 and on 64-bit ARM with Linux, integers and pointers of a variadic function are in the same
/// registers as those of any other.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    one: c_long,
    two: c_long,
    three: c_long,
    four: c_long,
    five: c_long,
    six: c_long,
) -> c_long {
    match number {
        libc::SYS_futex if TAKES_TURNS.get() => {
            // SAFETY: the caller's.
            unsafe { futex(one as usize, two as c_int, three as u32, four as *const timespec) }
        }
        libc::SYS_getrandom if TAKES_TURNS.get() => {
            // SAFETY: the caller's.
            unsafe { getrandom(one as *mut c_void, two as size_t, three as c_uint) as c_long }
        }
        // SAFETY: the caller's.
        _ => unsafe { call(number, [one, two, three, four, five, six]) },
    }
}

/// What Rust's standard library asks of `futex(2)`.
unsafe fn futex(address: usize, operation: c_int, value: u32, until: *const timespec) -> c_long {
    let is_real = operation & libc::FUTEX_CLOCK_REALTIME != 0;
    let clock = if is_real { libc::CLOCK_REALTIME } else { libc::CLOCK_MONOTONIC };
    match operation & libc::FUTEX_CMD_MASK {
        libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => wake(address, value as usize),
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => {
            // SAFETY: the caller's.
            let now = unsafe { (*(address as *const AtomicU32)).load(Ordering::SeqCst) };
            if now != value {
                return failed(libc::EAGAIN);
            }
            let is_relative = operation & libc::FUTEX_CMD_MASK == libc::FUTEX_WAIT;
            // SAFETY: the caller's.
            let until = unsafe { until.as_ref() }.map(|until| match is_relative {
                true => time().now() + duration(*until),
                false => duration(*until).saturating_sub(shown(clock, Duration::ZERO)),
            });
            wait(address, until)
        }
        _ => failed(libc::ENOSYS),
    }
}

fn wait(address: usize, until: Option<Duration>) -> c_long {
    if ACTS.get() {
        // It has no turn that it could give to somebody else.
        panic!("what happens between turns must not wait");
    }
    let me = Time::current();
    let time = with(|world| {
        world.waiting.entry(address).or_default().push(me);
        Arc::clone(&world.time)
    });
    time.wait(until);
    let is_woken = with(|world| {
        let Some(waiting) = world.waiting.get_mut(&address) else { return true };
        let place = waiting.iter().position(|who| *who == me);
        place.map(|place| waiting.remove(place)).is_none()
    });
    let is_over = until.is_some_and(|until| time.now() >= until);
    if !is_woken && is_over { failed(libc::ETIMEDOUT) } else { 0 }
}

fn wake(address: usize, most: usize) -> c_long {
    with(|world| {
        let World { time, random, waiting, .. } = world;
        let Some(there) = waiting.get_mut(&address) else { return 0 };
        // Those who were killed wait for nothing.
        there.retain(|who| time.has_turns(*who));
        let mut woken = 0;
        while woken < most && !there.is_empty() {
            let who = there.swap_remove(random.index(there.len()));
            time.wake_after(who, random.between(Duration::ZERO, KEPT));
            woken += 1;
        }
        if there.is_empty() {
            waiting.remove(&address);
        }
        woken as c_long
    })
}

fn failed(error: c_int) -> c_long {
    // SAFETY: it is this thread's.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// Asks the kernel.
unsafe fn call(number: c_long, [one, two, three, four, five, six]: [c_long; 6]) -> c_long {
    // SAFETY: the caller's.
    unsafe { real_syscall(number, one, two, three, four, five, six) }
}

/// Where the C library has a function. Two threads that look for it find the same.
fn find(place: &AtomicPtr<c_void>, name: &'static str) -> *mut c_void {
    let known = place.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: names end with a zero byte; this takes no memory of ours.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
    place.store(found, Ordering::Relaxed);
    found
}

macro_rules! real {
    ($($name:ident = $symbol:literal ($($argument:ident: $kind:ty),*) -> $told:ty;)*) => {$(
        /// The C library's.
        ///
        /// # Safety
        /// As its manual page says.
        unsafe fn $name($($argument: $kind),*) -> $told {
            static PLACE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            let found = find(&PLACE, concat!($symbol, "\0"));
            // SAFETY: the C library has it, and it is what its manual page says.
            unsafe {
                let real: unsafe extern "C" fn($($kind),*) -> $told = std::mem::transmute(found);
                real($($argument),*)
            }
        }
    )*};
}

real! {
    real_pthread_create = "pthread_create"(thread: *mut pthread_t, attributes: *const pthread_attr_t, start: Start, argument: *mut c_void) -> c_int;
    real_pthread_join = "pthread_join"(thread: pthread_t, value: *mut *mut c_void) -> c_int;
    real_pthread_detach = "pthread_detach"(thread: pthread_t) -> c_int;
    real_clock_gettime = "clock_gettime"(clock: clockid_t, told: *mut timespec) -> c_int;
    real_nanosleep = "nanosleep"(wanted: *const timespec, left: *mut timespec) -> c_int;
    real_clock_nanosleep = "clock_nanosleep"(clock: clockid_t, flags: c_int, wanted: *const timespec, left: *mut timespec) -> c_int;
    real_syscall = "syscall"(number: c_long, one: c_long, two: c_long, three: c_long, four: c_long, five: c_long, six: c_long) -> c_long;
}
