//! A cell in memory, with faults on demand: what tests have instead of drives and a manager.
//!
//! It keeps to what the real ones promise and to no more: writes are lost by a crash unless they
//! were flushed, capabilities expire, a drive may be away for a while. Permissions are those of
//! the mode bits, with the owner always allowed to read and write data.

mod bytes;
mod callbacks;
mod drive;
mod names;
mod sessions;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nasd_bulk_service::client::Way;
use nasd_client::interrupt;
use nasd_types::{AppendToken, Attributes, ByteRange, DriveId, PartitionId, Timestamp};

pub use drive::{Counters, FakeDrive};

use crate::ClerkError;
use crate::backend::{Cell, Grant, Objects};
use crate::clerk::Clerk;
use crate::extending::{ExtendedPart, ExtensionCall};
use crate::open_file::OpenMode;
use crate::pieces::read_one_by_one;
use crate::settings::Settings;
use crate::wire::{
    Appended, Caller, Copied, FileHandle, RangeToCopy, ReadOutcome, SeekTarget, Status, Volume,
    Written,
};
use names::Tree;
use sessions::FakeSessions;

/// Drives are numbered from here.
const FIRST_DRIVE: u64 = 0xd0;

/// What extensions of all drives do with some ranges.
pub type Extends = Arc<
    dyn Fn(&[ByteRange], &ExtensionCall) -> Result<Vec<ExtendedPart>, ClerkError> + Send + Sync,
>;

/// The whole cell: the file manager, and its drives.
pub struct FakeCell {
    partition: PartitionId,
    drives: Vec<FakeDrive>,
    tree: Mutex<Tree>,
    sessions: FakeSessions,
    deadline: Duration,
    next_drive: AtomicUsize,
    next_capability: AtomicU64,
    manager_runs: AtomicBool,
    /// Requests that wait for the manager now.
    pub manager_waiters: AtomicUsize,
    /// Requests that the manager has answered.
    pub manager_requests: AtomicU64,
    /// Something was changed since the last commit.
    uncommitted: AtomicBool,
    /// How long a new capability is good; they are good for a day at first.
    capability_seconds: AtomicU64,
    drives_ahead: AtomicI64,
    extends: Mutex<Option<Extends>>,
    has_callbacks: AtomicBool,
    returns: callbacks::Returns,
    /// Of files that somebody has stored: an odd one is a store under way.
    versions: Mutex<HashMap<FileHandle, u64>>,
}

impl FakeCell {
    /// A cell of `drives` drives and an empty root, owned by root with mode 0777. Calls wait for
    /// what is away up to `deadline`.
    pub fn new(drives: usize, deadline: Duration) -> Arc<Self> {
        FakeCell::with_partition(drives, deadline, PartitionId(1))
    }

    /// The same, whose volume has that partition on each drive: like another volume of a cell.
    pub fn with_partition(drives: usize, deadline: Duration, partition: PartitionId) -> Arc<Self> {
        let drives: Vec<FakeDrive> = (0..drives).map(|_| FakeDrive::new(deadline)).collect();
        let cell = FakeCell {
            drives,
            partition,
            tree: Mutex::default(),
            sessions: FakeSessions::default(),
            deadline,
            next_drive: AtomicUsize::new(0),
            next_capability: AtomicU64::new(1),
            manager_runs: AtomicBool::new(true),
            manager_waiters: AtomicUsize::new(0),
            manager_requests: AtomicU64::new(0),
            uncommitted: AtomicBool::new(false),
            capability_seconds: AtomicU64::new(86400),
            drives_ahead: AtomicI64::new(0),
            extends: Mutex::default(),
            has_callbacks: AtomicBool::new(false),
            returns: callbacks::Returns::default(),
            versions: Mutex::default(),
        };
        cell.make_root();
        Arc::new(cell)
    }

    /// A clerk on this cell.
    ///
    /// # Panics
    ///
    /// If the cell does not answer.
    pub fn clerk(self: &Arc<Self>, settings: Settings) -> Clerk {
        let root = Arc::new(Caller::default());
        let cell = Cell {
            names: Arc::clone(self) as _,
            objects: Arc::clone(self) as _,
            sessions: Some(Arc::clone(self) as _),
        };
        Clerk::new(cell, &root, settings).expect("a fake cell that runs")
    }

    /// Drive number `index`.
    pub fn drive(&self, index: usize) -> &FakeDrive {
        &self.drives[index]
    }

    /// The drive that holds a file.
    ///
    /// # Panics
    ///
    /// If the handle is not of this cell.
    pub fn drive_of(&self, handle: FileHandle) -> &FakeDrive {
        self.find(handle.drive).expect("a drive of this cell")
    }

    /// New files go to this drive next.
    pub fn place_on(&self, index: usize) {
        self.next_drive.store(index, Ordering::Relaxed);
    }

    /// Stops the file manager, or starts it.
    pub fn set_manager_runs(&self, runs: bool) {
        self.manager_runs.store(runs, Ordering::Release);
    }

    /// Sets the drives' clocks so far ahead of this host's, in seconds.
    pub fn set_drives_ahead(&self, seconds: i64) {
        self.drives_ahead.store(seconds, Ordering::Relaxed);
    }

    /// Gives the drives extensions; they have none at first.
    pub fn set_extends(&self, extends: Extends) {
        *self.extends.lock().unwrap_or_else(PoisonError::into_inner) = Some(extends);
    }

    /// What the drives' clocks show.
    fn drives_now(&self) -> Timestamp {
        let ahead = self.drives_ahead.load(Ordering::Relaxed);
        let ahead = ahead.saturating_mul(Timestamp::SECOND_NS.cast_signed());
        Timestamp(drive::now().0.saturating_add_signed(ahead))
    }

    /// How long capabilities are good that are minted from now on.
    pub fn set_capability_seconds(&self, seconds: u64) {
        self.capability_seconds.store(seconds, Ordering::Relaxed);
    }

    /// Every capability minted so far is refused from now on.
    pub fn expire_capabilities(&self) {
        let next = self.next_capability.load(Ordering::Relaxed);
        for drive in &self.drives {
            drive.expire_before(next);
        }
    }

    fn find(&self, drive: DriveId) -> Result<&FakeDrive, ClerkError> {
        let index = usize::try_from(drive.0.wrapping_sub(FIRST_DRIVE)).unwrap_or(usize::MAX);
        self.drives.get(index).ok_or(ClerkError::UnknownDrive(drive))
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the manager.
    fn reach_manager(&self) -> Result<(), ClerkError> {
        self.manager_waiters.fetch_add(1, Ordering::Relaxed);
        let waited = self.wait_for_manager();
        self.manager_waiters.fetch_sub(1, Ordering::Relaxed);
        waited?;
        self.manager_requests.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn wait_for_manager(&self) -> Result<(), ClerkError> {
        let end = Instant::now() + self.deadline;
        while !self.manager_runs.load(Ordering::Acquire) {
            if Instant::now() >= end {
                return Err(ClerkError::Unreachable("the fake manager".into()));
            }
            interrupt::pause(Duration::from_millis(5))?;
        }
        Ok(())
    }

    /// The same for a change of names or attributes.
    fn change_names(&self) -> Result<(), ClerkError> {
        self.reach_manager()?;
        self.uncommitted.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Objects for FakeCell {
    fn read(&self, grant: &Grant, offset: u64, into: &mut [u8]) -> Result<ReadOutcome, ClerkError> {
        self.find(grant.handle.drive)?.read(grant, offset, into)
    }

    fn read_pieces(
        &self,
        grant: &Grant,
        pieces: &[ByteRange],
    ) -> Result<(ReadOutcome, Vec<u8>), ClerkError> {
        read_one_by_one(pieces, |offset, into| self.read(grant, offset, into))
    }

    fn write(
        &self,
        grant: &Grant,
        offset: u64,
        data: &[u8],
        durable: bool,
    ) -> Result<Written, ClerkError> {
        self.find(grant.handle.drive)?.write(grant, offset, data, durable)
    }

    fn append(
        &self,
        grant: &Grant,
        identity: (AppendToken, Duration),
        data: &[u8],
    ) -> Result<Appended, ClerkError> {
        self.find(grant.handle.drive)?.append(grant, identity, data)
    }

    fn flush(&self, grant: &Grant) -> Result<u64, ClerkError> {
        self.find(grant.handle.drive)?.flush(grant)
    }

    fn getattr(&self, grant: &Grant) -> Result<Attributes, ClerkError> {
        self.find(grant.handle.drive)?.getattr(grant)
    }

    fn punch(&self, grant: &Grant, range: ByteRange) -> Result<(), ClerkError> {
        self.find(grant.handle.drive)?.punch(grant, range)
    }

    fn copy_range(
        &self,
        target: &Grant,
        source: &Grant,
        copy: &RangeToCopy,
    ) -> Result<Copied, ClerkError> {
        self.find(target.handle.drive)?.copy_range(target, source, copy)
    }

    fn seek(
        &self,
        grant: &Grant,
        offset: u64,
        target: SeekTarget,
    ) -> Result<Option<u64>, ClerkError> {
        self.find(grant.handle.drive)?.seek(grant, offset, target)
    }

    fn extend(
        &self,
        _grant: &Grant,
        ranges: &[ByteRange],
        call: &ExtensionCall,
    ) -> Result<Vec<ExtendedPart>, ClerkError> {
        let extends = self.extends.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let extends = extends.ok_or(ClerkError::Drive(Status::NoSuchExtension))?;
        extends(ranges, call)
    }

    /// Nobody serves the bulk protocol.
    fn bulk_way(
        &self,
        _grant: &Grant,
        _mode: OpenMode,
        _is_anew: bool,
    ) -> Result<Option<Way>, ClerkError> {
        Ok(None)
    }

    fn drive_time(&self, _grant: &Grant) -> Timestamp {
        self.drives_now()
    }

    fn set_volume(&self, _volume: &Volume) {}

    fn breadth(&self, _drive: DriveId) -> u32 {
        1
    }

    fn restarts(&self) -> Option<u64> {
        Some(self.drives.iter().map(FakeDrive::instance).sum())
    }
}
