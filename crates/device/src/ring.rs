//! Deep queues: batches of transfers served through io_uring.
//!
//! A device has a small pool of rings. A call takes one for itself, keeps up to [`DEPTH`]
//! transfers in it until all of its own are done, and puts it back; when every ring is taken or
//! the kernel refuses them, the caller goes on by plain system calls.
//!
//! What makes this sound is one rule: **a [`Flight`] does not end while the kernel may still
//! touch memory of its batch**, neither by return nor by panic. Only then does the borrow of that
//! memory end.
//!
//! The file is not registered with the rings. It would save the look-up of a descriptor, some
//! tens of nanoseconds, but a ring gives its registered files up only some time after it was
//! closed, and until then the medium would still count as in use.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;

use crate::Meanwhile;
use crate::transfer::{Batch, Direction, Failure};

/// Most transfers that one call keeps in flight.
pub(crate) const DEPTH: usize = 64;

/// While more transfers wait for their turn, completions are taken this many at a time: fewer
/// system calls for a queue that stays nearly full.
const REFILL: usize = 8;

/// Most rings of a device, hence most calls and queues that keep several transfers under way at the
/// same time.
const MAX_RINGS: usize = 32;

/// Most of them that queues of reads may have: however many there are, batches find rings too.
const MAX_QUEUE_RINGS: usize = 24;

/// IORING_ENTER_GETEVENTS of io_uring_enter(2): wait for completions.
const GET_EVENTS: u32 = 1;

/// The rings of a device.
pub(crate) struct RingPool {
    state: Mutex<Rings>,
}

#[derive(Default)]
struct Rings {
    idle: Vec<IoUring>,
    /// Rings that exist, idle or taken.
    count: usize,
    /// The kernel said that it will never make one.
    refused: bool,
}

/// A ring for one call. It goes back to its pool unless something is left in it.
pub(crate) struct Lease<'p> {
    pool: &'p RingPool,
    ring: Option<IoUring>,
}

impl RingPool {
    /// A pool that never has a ring.
    pub(crate) fn none() -> RingPool {
        RingPool { state: Mutex::new(Rings { refused: true, ..Rings::default() }) }
    }

    /// A pool with one ring, or why there can be none.
    pub(crate) fn new() -> io::Result<RingPool> {
        let rings = Rings { idle: vec![make()?], count: 1, refused: false };
        Ok(RingPool { state: Mutex::new(rings) })
    }

    fn rings(&self) -> MutexGuard<'_, Rings> {
        // The state is whole after every statement, so a panic elsewhere leaves it usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether rings are to be had at all.
    pub(crate) fn is_usable(&self) -> bool {
        !self.rings().refused
    }

    /// Descriptors or memory may be short for a moment, but a prohibition stays.
    fn judge(&self, error: &io::Error) {
        let never = [libc::ENOSYS, libc::EPERM, libc::EACCES, libc::EINVAL];
        if error.raw_os_error().is_some_and(|code| never.contains(&code)) {
            self.rings().refused = true;
        }
    }

    /// The same for a queue of reads, which may keep it for long.
    pub(crate) fn take_for_queue(&self) -> Option<Lease<'_>> {
        let taken = {
            let rings = self.rings();
            rings.count - rings.idle.len()
        };
        if taken < MAX_QUEUE_RINGS { self.take() } else { None }
    }

    /// A ring that nobody else uses, if one is idle or can be made.
    pub(crate) fn take(&self) -> Option<Lease<'_>> {
        let mut rings = self.rings();
        if rings.refused {
            return None;
        }
        if let Some(ring) = rings.idle.pop() {
            return Some(Lease { pool: self, ring: Some(ring) });
        }
        if rings.count == MAX_RINGS {
            return None;
        }
        rings.count += 1;
        drop(rings);
        // From here on the lease gives its place back, whatever happens.
        let mut lease = Lease { pool: self, ring: None };
        match make() {
            Ok(ring) => {
                lease.ring = Some(ring);
                Some(lease)
            }
            Err(e) => {
                self.judge(&e);
                None
            }
        }
    }
}

/// A ring whose completions wait for the next system call of the thread instead of interrupting
/// it, where the kernel (5.19) has that.
fn make() -> io::Result<IoUring> {
    let entries = DEPTH as u32;
    match IoUring::builder().setup_coop_taskrun().build(entries) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries),
        made => made,
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let mut rings = self.pool.rings();
        match self.ring.take() {
            Some(ring) => rings.idle.push(ring),
            None => rings.count -= 1,
        }
    }
}

impl Lease<'_> {
    /// The ring, unless it had to be given up.
    pub(crate) fn ring(&mut self) -> Option<&mut IoUring> {
        self.ring.as_mut()
    }

    /// Gives the kernel what was put into the ring and waits for `want` completions; whether the ring
    /// works.
    pub(crate) fn submit_and_wait(&self, want: usize) -> bool {
        let Some(ring) = &self.ring else { return false };
        match ring.submit_and_wait(want) {
            Ok(_) => true,
            Err(e) if e.raw_os_error() == Some(libc::EINTR) => true,
            Err(e) => {
                self.pool.judge(&e);
                false
            }
        }
    }

    /// Waits until the kernel has none of the `pushed` entries any more whose completions have not
    /// been seen. Those that it never took name memory that is not to be touched from now on, so
    /// nobody may submit them: they end with their ring.
    pub(crate) fn drain(&mut self, mut pushed: usize) {
        loop {
            let Some(ring) = &mut self.ring else { return };
            let in_kernel = pushed - ring.submission().len();
            if in_kernel == 0 {
                break;
            }
            let seen = ring.completion().count();
            pushed -= seen;
            if seen > 0 {
                continue;
            }
            // SAFETY: no argument, so no memory is passed; nothing new is submitted.
            let waited =
                unsafe { ring.submitter().enter::<libc::sigset_t>(0, 1, GET_EVENTS, None) };
            if waited.is_err_and(|e| e.raw_os_error() != Some(libc::EINTR)) {
                // Not even waiting works; but what is in flight lands without our help.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if pushed > 0 {
            self.ring = None;
        }
    }

    /// Serves the whole batch on `fd`. As soon as its first transfers are on their way,
    /// `meanwhile` runs once on this thread, and may start others; should it panic, the batch is
    /// still completed first.
    pub(crate) fn serve(
        mut self,
        fd: BorrowedFd<'_>,
        batch: &mut Batch<'_>,
        meanwhile: Option<Meanwhile<'_>>,
    ) -> Result<(), Failure> {
        let mut panic = None;
        let mut flight = Flight { lease: &mut self, batch, fd, pushed: 0, next: 0, again: vec![] };
        let mut result = Ok(());
        if let Some(meanwhile) = meanwhile {
            result = flight.launch();
            let mut keep_full = || {
                if result.is_ok() {
                    result = flight.top_up();
                }
            };
            panic = catch_unwind(AssertUnwindSafe(|| meanwhile(&mut keep_full))).err();
        }
        if result.is_ok() {
            result = flight.complete();
        }
        drop(flight);
        // Nothing is in flight any more. What the ring did not get done is left to plain calls:
        // after an error of the ring itself, or of transfers that it can't do.
        let served = match result {
            Err(Trouble::Transfer(failure)) => Err(failure),
            Ok(()) | Err(Trouble::Ring) => {
                (0..batch.len()).try_for_each(|index| batch.serve_plainly(index, fd))
            }
        };
        match panic {
            Some(panic) => resume_unwind(panic),
            None => served,
        }
    }
}

/// Why a flight ends early.
enum Trouble {
    /// The medium failed a transfer.
    Transfer(Failure),
    /// The kernel failed the ring.
    Ring,
}

/// Transfers of one batch on their way through a ring.
struct Flight<'f, 'p, 'a> {
    lease: &'f mut Lease<'p>,
    batch: &'f mut Batch<'a>,
    fd: BorrowedFd<'f>,
    /// Entries put into the ring whose completions have not been seen.
    pushed: usize,
    /// The first transfer that was never in the ring.
    next: usize,
    /// Transfers that came back with a part still to do.
    again: Vec<usize>,
}

impl Flight<'_, '_, '_> {
    /// Starts as many transfers as the ring takes, without waiting for any.
    fn launch(&mut self) -> Result<(), Trouble> {
        self.fill();
        self.enter(0)
    }

    /// Starts transfers in place of those that have come back, without waiting for any.
    fn top_up(&mut self) -> Result<(), Trouble> {
        if self.next == self.batch.len() {
            return Ok(());
        }
        // Completions are seen after a system call.
        self.enter(0)?;
        self.reap()?;
        if self.pushed + REFILL <= DEPTH { self.launch() } else { Ok(()) }
    }

    /// Keeps the ring full until all transfers have come back.
    fn complete(&mut self) -> Result<(), Trouble> {
        loop {
            self.fill();
            if self.pushed == 0 {
                return Ok(());
            }
            let more = self.next < self.batch.len();
            self.enter(if more { self.pushed.min(REFILL) } else { self.pushed })?;
            self.reap()?;
        }
    }

    fn fill(&mut self) {
        let Some(ring) = &mut self.lease.ring else { return };
        let mut queue = ring.submission();
        while self.pushed < DEPTH && !queue.is_full() {
            let index = match self.again.pop() {
                Some(index) => index,
                None if self.next < self.batch.len() => {
                    self.next += 1;
                    self.next - 1
                }
                None => return,
            };
            let (offset, pieces) = self.batch.rest(index);
            let (pointer, count) = (pieces.as_ptr(), pieces.len() as u32);
            let fd = types::Fd(self.fd.as_raw_fd());
            let entry = match self.batch.direction() {
                Direction::Read => opcode::Readv::new(fd, pointer, count).offset(offset).build(),
                Direction::Write => opcode::Writev::new(fd, pointer, count).offset(offset).build(),
            };
            // SAFETY: the descriptor, the array of pieces and the memory that they describe are
            // borrowed by `self`, which lives until the kernel is done with them (see `drop`);
            // the array is not touched before this transfer has come back.
            let put = unsafe { queue.push(&entry.user_data(index as u64)) };
            debug_assert!(put.is_ok(), "the queue was not full");
            self.pushed += 1;
        }
    }

    /// Gives the kernel what was put into the ring and waits for `want` completions.
    fn enter(&mut self, want: usize) -> Result<(), Trouble> {
        if self.lease.submit_and_wait(want) { Ok(()) } else { Err(Trouble::Ring) }
    }

    /// Takes the completions that are there.
    fn reap(&mut self) -> Result<(), Trouble> {
        let Some(ring) = &mut self.lease.ring else { return Err(Trouble::Ring) };
        for completion in ring.completion() {
            self.pushed -= 1;
            let index = completion.user_data() as usize;
            match usize::try_from(completion.result()) {
                Ok(0) => return Err(Trouble::Transfer(self.batch.failure(index, Errno::IO))),
                Ok(bytes) => {
                    if !self.batch.advance(index, bytes) {
                        self.again.push(index);
                    }
                }
                Err(_) => match Errno::from_raw_os_error(-completion.result()) {
                    // Left undone, so a plain call tries it in the end.
                    Errno::INTR | Errno::AGAIN | Errno::OPNOTSUPP => {}
                    e => return Err(Trouble::Transfer(self.batch.failure(index, e))),
                },
            }
        }
        Ok(())
    }
}

impl Drop for Flight<'_, '_, '_> {
    fn drop(&mut self) {
        self.lease.drain(self.pushed);
    }
}
