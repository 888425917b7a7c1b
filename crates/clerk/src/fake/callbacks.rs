//! The fake file manager where the volume has callbacks: it promises nothing unless it is told to, and says who stores a file by the file's version, as the
//! real one does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::FakeCell;
use super::drive::now;
use crate::ClerkError;
use crate::backend::Names;
use crate::wire::{Caller, Cut, FileHandle, Readable, Returned, Writable};

/// Stores that are returned.
#[derive(Debug, Default)]
pub(super) struct Returns {
    is_held: AtomicBool,
    are_promised: AtomicBool,
    waiting: AtomicUsize,
    of: Mutex<Vec<FileHandle>>,
}

impl FakeCell {
    /// The volume has callbacks for the clerks that are made from now on.
    pub fn set_callbacks(&self) {
        self.has_callbacks.store(true, Ordering::Relaxed);
    }

    /// The store of a file is over, though nobody has returned it, and somebody else has stored this since.
    pub fn stored_by_another(&self, handle: FileHandle, bytes: &[u8]) {
        let mut versions = self.versions();
        let version = versions.entry(handle).or_default();
        *version = version.next_multiple_of(2) + 2;
        self.drive_of(handle).replace(handle.object, bytes);
    }

    /// Who returns what he has stored gets no answer until he is let go.
    pub fn hold_returns(&self, hold: bool) {
        self.returns.is_held.store(hold, Ordering::Relaxed);
    }

    /// How many wait for such an answer.
    pub fn returns_held(&self) -> usize {
        self.returns.waiting.load(Ordering::Relaxed)
    }

    /// How often a file was returned that was stored.
    pub fn returned(&self, handle: FileHandle) -> usize {
        let returned = self.returns.of.lock().unwrap_or_else(PoisonError::into_inner);
        returned.iter().filter(|of| **of == handle).count()
    }

    /// Who has stored is promised to be told of changes; nobody makes any.
    pub fn promise(&self) {
        self.returns.are_promised.store(true, Ordering::Relaxed);
    }

    fn versions(&self) -> MutexGuard<'_, HashMap<FileHandle, u64>> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn readable(
        &self,
        caller: &Caller,
        handle: FileHandle,
    ) -> Result<Readable, ClerkError> {
        let file = self.getattr(caller, handle)?;
        let version = *self.versions().entry(handle).or_default();
        Ok(Readable { file, version, promised: false })
    }

    pub(super) fn writable(
        &self,
        caller: &Caller,
        handle: FileHandle,
        (end, cut): (u64, Option<Cut>),
    ) -> Result<Writable, ClerkError> {
        self.reach_manager()?;
        let mut versions = self.versions();
        let version = versions.entry(handle).or_default();
        if version.is_multiple_of(2) {
            if let Some(cut) = cut.filter(|cut| cut.version == *version) {
                let drive = self.drive_of(handle);
                drive.set(handle.object, Some(cut.length), None, now());
            }
            *version += 1;
        }
        let version = *version;
        drop(versions);
        let file = self.getattr(caller, handle)?;
        Ok(Writable { file, version, end, time: 10_000_000_000, alone: false })
    }

    pub(super) fn return_it(
        &self,
        caller: &Caller,
        handle: FileHandle,
        version: u64,
    ) -> Result<Returned, ClerkError> {
        self.reach_manager()?;
        self.returns.waiting.fetch_add(1, Ordering::Relaxed);
        while self.returns.is_held.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.returns.waiting.fetch_sub(1, Ordering::Relaxed);
        self.returns.of.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
        // It may have gone away meanwhile.
        self.reach_manager()?;
        let mut versions = self.versions();
        let present = versions.entry(handle).or_default();
        if *present == version {
            *present += 1;
        }
        let version = *present;
        drop(versions);
        let file = self.getattr(caller, handle)?;
        let promised = self.returns.are_promised.load(Ordering::Relaxed);
        Ok(Returned { file, version, promised })
    }
}
