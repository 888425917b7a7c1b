//! A process of its own for a run: its threads end with it, and what one run leaves behind is not there for the next.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::sync::{Mutex, PoisonError};

/// A run takes so many real seconds at most.
const MOST_SECONDS: u32 = 300;

/// While a process is being made no other thread is to have a lock that it would find locked.
static MAKING: Mutex<()> = Mutex::new(());

/// Does something in a process of its own, which has but one thread at first, on one processor.
///
/// # Errors
/// If that process can't be made, or has ended before it had done it.
pub(super) fn apart(
    prepare: impl FnOnce(),
    work: impl FnOnce() -> String + Send,
) -> Result<String, String> {
    let making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    prepare();
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err("there is no pipe".to_owned());
    }
    // SAFETY: both are open, and nobody else's.
    let (mut from, mut to) = unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) };
    // SAFETY: what the new process does needs no lock that another thread may have: see `MAKING`.
    let process = unsafe { libc::fork() };
    match process {
        -1 => return Err("there is no process".to_owned()),
        0 => {
            drop(from);
            stay_on_one_processor();
            // SAFETY: it has no handler, and so ends the process.
            unsafe { libc::alarm(MOST_SECONDS) };
            let run = || {
                let told = work();
                let is_told = to.write_all(told.as_bytes()).is_ok();
                // SAFETY: nothing of this process is to go on, nor to be put in order.
                unsafe { libc::_exit(i32::from(!is_told)) }
            };
            // In a thread of its own: what is kept for each thread, such as the keys of hash tables, is not to be what earlier runs have left.
            std::thread::scope(|scope| drop(scope.spawn(run).join()));
            // SAFETY: as above.
            unsafe { libc::_exit(2) }
        }
        _ => {}
    }
    drop((making, to));
    let mut told = String::new();
    let read = from.read_to_string(&mut told);
    let mut status = 0;
    // SAFETY: there is room for the status.
    unsafe { libc::waitpid(process, &raw mut status, 0) };
    match read {
        Ok(_) if status == 0 => Ok(told),
        _ => Err(format!("its process has ended with {status:x}: {told}")),
    }
}

/// Threads of which one runs at a time give each other the turn more quickly there.
fn stay_on_one_processor() {
    // SAFETY: a set of processors is a number of bits, which `sched_setaffinity` only reads.
    unsafe {
        let here = libc::sched_getcpu();
        let mut only: libc::cpu_set_t = std::mem::zeroed();
        if here >= 0 {
            libc::CPU_SET(here as usize, &mut only);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const only);
        }
    }
}
