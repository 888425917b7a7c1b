//! Serving a connection: threads that read requests, and how they stop.

use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::buffer::Buffers;
use crate::device::{Device, Received};
use crate::dispatch::Dispatch;
use crate::request::takes_long;
use crate::turns::{self, Turns};
use crate::{Connection, Filesystem, InitFlags, Interrupts, Measures, Negotiated, Notifier};

/// Between two looks at whether the threads have stopped.
const LOOK: Duration = Duration::from_millis(1);

/// One that reads requests.
#[derive(Debug, Default)]
struct Reading {
    /// It is waiting for a request, or about to.
    waits: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    /// The first failure to read.
    failure: Option<io::Error>,
}

/// What the threads of a session share.
#[derive(Debug)]
struct Control {
    devices: Vec<Arc<Device>>,
    negotiated: Negotiated,
    interrupts: Arc<Interrupts>,
    buffers: Arc<Buffers>,
    /// No more requests are read.
    stopping: AtomicBool,
    turns: Arc<Turns>,
    readings: Vec<Reading>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Control {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that is being served.
#[derive(Debug)]
pub struct Session {
    control: Arc<Control>,
    threads: Vec<JoinHandle<()>>,
}

/// What others need of a session.
#[derive(Clone, Debug)]
pub struct SessionHandle {
    control: Arc<Control>,
}

impl SessionHandle {
    /// Tells the kernel what it must not believe any more.
    pub fn notifier(&self) -> Option<Notifier> {
        let device = Arc::clone(self.control.devices.first()?);
        Some(Notifier { device })
    }

    /// Whoever waits in a request is to give up.
    pub fn interrupt_all(&self) {
        self.control.interrupts.interrupt_all();
    }

    /// Waits until the mount is gone. How serving has ended.
    ///
    /// # Errors
    ///
    /// Why requests could not be read any more.
    pub fn wait(&self) -> io::Result<()> {
        let mut state = self.control.lock();
        while state.running > 0 {
            state = self.control.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.failure.take().map_or(Ok(()), Err)
    }
}

/// A session that has stopped without the mount's being gone.
#[derive(Debug)]
pub struct HandOver {
    /// What the successor needs.
    pub connection: Connection,
    /// Requests that were not answered in time. The kernel sends them again to a successor that
    /// asks for it ([`Connection::resend`]).
    pub unanswered: usize,
}

impl Session {
    /// Serves a connection from so many threads.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` or what else keeps threads from being started.
    pub fn start<F: Filesystem>(
        connection: Connection,
        filesystem: Arc<F>,
        threads: usize,
    ) -> io::Result<Session> {
        Session::start_counting(connection, filesystem, threads, &Arc::default())
    }

    /// The same, counting requests there.
    ///
    /// # Errors
    ///
    /// As `start`.
    pub fn start_counting<F: Filesystem>(
        mut connection: Connection,
        filesystem: Arc<F>,
        threads: usize,
        measures: &Arc<Measures>,
    ) -> io::Result<Session> {
        let threads = threads.max(1);
        connection.widen(threads)?;
        let negotiated = connection.negotiated;
        let device = |fd| Arc::new(Device::new(fd, Arc::clone(measures)));
        let devices = connection.devices.into_iter().map(device).collect();
        let control = Arc::new(Control {
            devices,
            negotiated,
            interrupts: Arc::default(),
            buffers: Buffers::new(negotiated.max_write),
            stopping: AtomicBool::new(false),
            turns: Arc::default(),
            // A predecessor may have had more descriptors than this session has threads for; all
            // of them have to be read from by nobody in particular: a request goes to whoever asks.
            readings: (0..threads).map(|_| Reading::default()).collect(),
            state: Mutex::new(State { running: threads, failure: None }),
            changed: Condvar::new(),
        });
        let first = control.devices.first().expect("invariant: widened to one thread or more");
        turns::watch(&control.turns, first)?;
        let mut session = Session { control: Arc::clone(&control), threads: Vec::new() };
        for number in 0..threads {
            let (shared, filesystem) = (Arc::clone(&control), Arc::clone(&filesystem));
            let builder = thread::Builder::new().name(format!("nasd-fuse-{number}"));
            match builder.spawn(move || serve(&shared, &*filesystem, number)) {
                Ok(thread) => session.threads.push(thread),
                Err(error) if number == 0 => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "fewer threads serve the mount than wanted");
                    control.lock().running -= threads - number;
                    break;
                }
            }
        }
        Ok(session)
    }

    /// What others need of it.
    pub fn handle(&self) -> SessionHandle {
        SessionHandle { control: Arc::clone(&self.control) }
    }

    /// What was agreed on with the kernel.
    pub fn negotiated(&self) -> Negotiated {
        self.control.negotiated
    }

    /// The connection once more, for whoever keeps it alive should this process die.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn duplicate(&self) -> io::Result<Connection> {
        let devices = self.control.devices.iter().map(|device| device.duplicate());
        let devices = devices.collect::<io::Result<_>>()?;
        Ok(Connection { devices, negotiated: self.control.negotiated })
    }

    /// Reads no more requests, and waits for `patience` at most until those that were read are
    /// answered. Programs on the mount wait until a successor serves the connection. What is not
    /// answered by then never will be by this session. Where the kernel can't send requests again,
    /// those that wait are interrupted.
    ///
    /// # Errors
    ///
    /// What the system says; the session goes on then.
    pub fn hand_over(&mut self, patience: Duration) -> io::Result<HandOver> {
        let connection = self.duplicate()?;
        let end = Instant::now() + patience;
        self.stop_reading(end);
        if !self.control.negotiated.flags.contains(InitFlags::HAS_RESEND) {
            self.control.interrupts.interrupt_all();
        }
        let in_flight = || self.control.devices.iter().map(|device| device.in_flight()).sum();
        while in_flight() > 0 && Instant::now() < end {
            thread::sleep(LOOK);
        }
        self.control.devices.iter().for_each(|device| device.abandon());
        Ok(HandOver { connection, unanswered: in_flight() })
    }

    /// Has the threads that wait for requests stop; the others do so after their request.
    fn stop_reading(&self, end: Instant) {
        install_handler();
        self.control.stopping.store(true, Ordering::SeqCst);
        self.control.turns.close();
        loop {
            for (thread, reading) in self.threads.iter().zip(&self.control.readings) {
                if reading.waits.load(Ordering::SeqCst) && !thread.is_finished() {
                    // SAFETY: the thread was not joined, so its identifier is good, even if it has
                    // ended; the handler does nothing.
                    unsafe { libc::pthread_kill(thread.as_pthread_t(), wake_signal()) };
                }
            }
            let waits = |reading: &Reading| reading.waits.load(Ordering::SeqCst);
            if !self.control.readings.iter().any(waits) || Instant::now() >= end {
                return;
            }
            thread::sleep(LOOK);
        }
    }

    /// Waits until the mount is gone.
    ///
    /// # Errors
    ///
    /// Why requests could not be read any more.
    pub fn wait(self) -> io::Result<()> {
        let outcome = self.handle().wait();
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a thread that served the mount has failed");
            }
        }
        outcome
    }
}

/// The signal that ends a wait for requests.
fn wake_signal() -> libc::c_int {
    libc::SIGRTMIN() + 5
}

extern "C" fn ignore(_signal: libc::c_int) {}

/// Has the signal do nothing but interrupt the system call that it meets.
fn install_handler() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let handler: extern "C" fn(libc::c_int) = ignore;
        // SAFETY: all zeros are a valid `sigaction`, and its pointers live through the calls; the
        // handler does nothing, which may be done at any time.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as libc::sighandler_t;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(wake_signal(), &action, std::ptr::null_mut());
        }
    });
}

fn serve<F: Filesystem>(control: &Control, filesystem: &F, number: usize) {
    let outcome = read_requests(control, filesystem, number);
    // Nobody else will be told that the mount is gone before he reads.
    control.turns.close();
    control.readings[number].waits.store(false, Ordering::SeqCst);
    let mut state = control.lock();
    state.running -= 1;
    if let Err(error) = outcome {
        tracing::error!(%error, "requests can't be read any more");
        state.failure.get_or_insert(error);
    }
    control.changed.notify_all();
}

fn read_requests<F: Filesystem>(
    control: &Control,
    filesystem: &F,
    number: usize,
) -> io::Result<()> {
    let device = &control.devices[number % control.devices.len()];
    let dispatch = Dispatch { filesystem, device, interrupts: &control.interrupts };
    let waits = &control.readings[number].waits;
    let mut slot = None;
    loop {
        let buffer = match &mut slot {
            Some(buffer) => buffer,
            // The last request's data were kept.
            None => slot.insert(control.buffers.take()?),
        };
        if !control.turns.wait() {
            return Ok(());
        }
        waits.store(true, Ordering::SeqCst);
        if control.stopping.load(Ordering::SeqCst) {
            return Ok(());
        }
        let received = device.receive(buffer.room());
        waits.store(false, Ordering::Release);
        match received? {
            Received::Request(length) => {
                control.turns.received(takes_long(buffer.message(length)));
                let run = AssertUnwindSafe(|| dispatch.run(&mut slot, length));
                if catch_unwind(run).is_err() {
                    tracing::error!("an operation panicked; it is answered with an I/O error");
                }
                control.turns.done();
            }
            Received::Nothing => control.turns.got_nothing(),
            Received::Unmounted => return Ok(()),
        }
    }
}
