//! On which thread an operation runs.
//!
//! Any operation may wait long for a drive or the manager that is away; most take microseconds.
//! So an operation runs on the session thread that received it, without a hand-over, as long as
//! another session thread is left to listen to the kernel. Otherwise it goes to the pool of its
//! lane: one for names, one for locks, four for each drive. What a drive that is away holds up is thus its own
//! lanes, and never the others.
//!
//! The four are in an order. Some operations wait until the kernel has forgotten a page, for which it waits until
//! that page is read, or written: so what is read for pages, or written from them, has a lane in which nothing waits
//! for the kernel. A program's write through the cache waits for those alone, by way of the next lane; the kernel's
//! cutting of a file keeps it from writing pages. These two have the third one. All others may wait for all of these.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nasd_types::DriveId;

use crate::work_pool::{Job, WorkPool, run_guarded};

/// Operations on names that wait at the same time at most.
const NAME_THREADS: usize = 256;

/// Who walks over mount points and waits for what is seen there, at the same time at most.
const MOUNT_POINT_THREADS: usize = 256;

/// Requests for locks that others have, at the same time at most.
const LOCK_THREADS: usize = 1024;

/// Operations on the files of one drive that wait at the same time at most.
const DRIVE_THREADS: usize = 64;

/// What an operation may have to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    /// The file manager.
    Names,
    /// Whoever has a lock.
    Locks,
    /// A volume that is seen at a mount point.
    MountPoints,
    /// A drive.
    Drive(DriveId),
    /// A drive, for what programs write through the kernel's cache, and for lengths.
    Writes(DriveId),
    /// A drive, for pages that a write has the kernel forget.
    Renewals(DriveId),
    /// A drive, for pages of the kernel's cache.
    Pages(DriveId),
}

/// Says where operations run.
pub(crate) struct Dispatcher {
    /// Operations that may still begin on session threads, of all volumes of the mount.
    free: Arc<AtomicUsize>,
    pools: Mutex<HashMap<Lane, WorkPool>>,
}

/// Permission to run on the session thread.
pub(crate) struct Permit<'a>(&'a AtomicUsize);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

impl Dispatcher {
    /// With at least `inline` + 1 session threads, one is always left to listen.
    pub(crate) fn new(inline: usize) -> Self {
        Dispatcher { free: Arc::new(AtomicUsize::new(inline)), pools: Mutex::default() }
    }

    /// For another volume of the same mount: what waits for the one does not hold up the other.
    pub(crate) fn beside(&self) -> Self {
        Dispatcher { free: Arc::clone(&self.free), pools: Mutex::default() }
    }

    fn pools(&self) -> MutexGuard<'_, HashMap<Lane, WorkPool>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Permission to run on this session thread, if enough others are left.
    pub(crate) fn enter(&self) -> Option<Permit<'_>> {
        let take = |free: usize| free.checked_sub(1);
        self.free.fetch_update(Ordering::Acquire, Ordering::Relaxed, take).ok()?;
        Some(Permit(&self.free))
    }

    /// Runs a job here, if that may be, or on the lane's pool.
    pub(crate) fn run(&self, lane: Lane, job: impl FnOnce() + Send + 'static) {
        match self.enter() {
            Some(_permit) => run_guarded(job),
            None => self.submit(lane, Box::new(job)),
        }
    }

    /// Runs a job on the lane's pool.
    pub(crate) fn submit(&self, lane: Lane, job: Job) {
        let pool = self.pools().entry(lane).or_insert_with(|| new_pool(lane)).clone();
        pool.submit(job);
    }

    /// Waits for everything that has begun, until `deadline`.
    pub(crate) fn close(&self, deadline: Instant) {
        let pools: Vec<WorkPool> = self.pools().values().cloned().collect();
        for pool in pools {
            if !pool.close(deadline) {
                tracing::warn!("an operation of the mount still waits for a drive or the manager");
            }
        }
    }
}

fn new_pool(lane: Lane) -> WorkPool {
    match lane {
        Lane::Names => WorkPool::new("nasd-names", NAME_THREADS),
        Lane::Locks => WorkPool::new("nasd-locks", LOCK_THREADS),
        Lane::MountPoints => WorkPool::new("nasd-mountpoint", MOUNT_POINT_THREADS),
        Lane::Drive(_) => WorkPool::new("nasd-drive-io", DRIVE_THREADS),
        Lane::Writes(_) => WorkPool::new("nasd-writes", DRIVE_THREADS),
        Lane::Renewals(_) => WorkPool::new("nasd-renewals", DRIVE_THREADS),
        Lane::Pages(_) => WorkPool::new("nasd-pages", DRIVE_THREADS),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn inline_until_the_permits_are_gone_then_on_the_lanes() {
        let dispatcher = Dispatcher::new(1);
        let here = thread::current().id();
        let (tell, told) = mpsc::channel();
        let report = |tell: &mpsc::Sender<thread::ThreadId>| {
            let tell = tell.clone();
            move || tell.send(thread::current().id()).unwrap()
        };
        dispatcher.run(Lane::Names, report(&tell));
        assert_eq!(told.recv().unwrap(), here);
        let permit = dispatcher.enter().unwrap();
        assert!(dispatcher.enter().is_none());
        dispatcher.run(Lane::Names, report(&tell));
        assert_ne!(told.recv().unwrap(), here);
        drop(permit);
        dispatcher.run(Lane::Drive(DriveId(1)), report(&tell));
        assert_eq!(told.recv().unwrap(), here);
        dispatcher.close(Instant::now() + Duration::from_secs(60));
    }
}
