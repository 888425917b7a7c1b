//! Acting as a caller: the kernel then decides once more, at the moment of the change, and what is made is the caller's.
//!
//! Linux keeps users and groups of each thread by itself, so that it is done in a thread of its own, which ends with it.
//! Only the effective user changes: the caller's processes can't send that thread signals.

use std::io;
use std::thread;

use nasd_client::Caller;
use nasd_protocol::bulk_desk::DeskStatus;
use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::caller::nobody;

/// Runs something as a caller.
pub(super) fn run_as<T: Send>(
    caller: &Caller,
    work: impl FnOnce() -> Result<T, DeskStatus> + Send,
) -> Result<T, DeskStatus> {
    let acting = in_thread(|| {
        become_caller(caller)?;
        Ok(work())
    });
    match acting {
        Ok(outcome) => outcome,
        Err(error) => {
            let uid = caller.uid;
            tracing::error!(uid, %error, "cannot act as a caller of the bulk desk");
            Err(DeskStatus::Io)
        }
    }
}

/// Whether the system lets this process act as others.
pub(super) fn can_act() -> bool {
    in_thread(|| become_caller(&nobody()).map_err(io::Error::from)).is_ok()
}

fn in_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let acting = thread::Builder::new().name("nasd-desk-acts".to_owned());
        let acting = acting.spawn_scoped(scope, work)?;
        acting.join().unwrap_or_else(|_| Err(io::Error::other("the acting thread has panicked")))
    })
}

/// For good: the thread must end with what it does as the caller.
fn become_caller(caller: &Caller) -> Result<(), Errno> {
    let groups: Vec<Gid> = caller.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    set_thread_groups(&groups)?;
    set_thread_res_gid(None, Gid::from_raw(caller.gid), None)?;
    set_thread_res_uid(None, Uid::from_raw(caller.uid), None)
}
