//! Capabilities in hand, by caller and file.
//!
//! A capability is renewed in the background when it is about to expire by its drive's clock, and
//! at once, one time, when a drive refuses it. While it is good, nothing here talks to the
//! manager: with the manager stopped, open files go on being read and written.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nasd_afs::callbacks::Version;
use nasd_client::interrupt::{self, Interrupted};
use nasd_types::{Protection, Rights, Timestamp};

use crate::backend::Grant;
use crate::wire::{Caller, File, FileHandle};

/// Slots kept at most, apart from those of open files.
const MAX_SLOTS: usize = 1 << 16;

/// A capability that expires sooner than this is renewed in the background.
const RENEW_BEFORE_NS: u64 = 60 * Timestamp::SECOND_NS;

/// A capability in hand, if there is one.
#[derive(Debug, Default)]
struct Held {
    grant: Option<Arc<Grant>>,
    /// The version of the file that it was told with, where the volume has callbacks and that is known.
    version: Option<Version>,
}

/// The place of one caller's capability for one file.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Whose.
    pub(crate) caller: Arc<Caller>,
    /// For which file.
    pub(crate) handle: FileHandle,
    current: Mutex<Held>,
    /// Held by the one who asks the manager for a new capability.
    renewing: Mutex<()>,
    renewal_queued: AtomicBool,
    used: AtomicU64,
}

impl Slot {
    /// The capability in hand, good or not.
    pub(crate) fn current(&self) -> Option<Arc<Grant>> {
        self.held().grant.clone()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a new capability in place.
    pub(crate) fn install(&self, file: &File, protection: Protection) -> Arc<Grant> {
        self.install_of(file, protection, None)
    }

    /// The same of one that was told with this version of the file.
    pub(crate) fn install_of(
        &self,
        file: &File,
        protection: Protection,
        version: Option<Version>,
    ) -> Arc<Grant> {
        let (caller, issued) = (Arc::clone(&self.caller), file.capability.clone());
        let grant = Arc::new(Grant::new(caller, file.handle, issued, protection));
        *self.held() = Held { grant: Some(Arc::clone(&grant)), version };
        grant
    }

    /// Whether the file manager lets the caller read this version of the file, by what it told him of it.
    pub(crate) fn may_read(&self, version: Version) -> bool {
        let held = self.held();
        let reads = |grant: &Arc<Grant>| grant.rights().contains(Rights::READ);
        held.version == Some(version) && held.grant.as_ref().is_some_and(reads)
    }

    /// Waits for the turn to renew: one at a time asks the manager.
    pub(crate) fn renewal_turn(&self) -> Result<MutexGuard<'_, ()>, Interrupted> {
        interrupt::lock(&self.renewing)
    }

    /// Whether the caller should queue a renewal, as its drive's clock shows `now`; says yes to one
    /// caller at a time.
    pub(crate) fn should_queue_renewal(&self, grant: &Grant, now: Timestamp) -> bool {
        let expires_soon = grant.issued.capability.expires <= now.plus_ns(RENEW_BEFORE_NS);
        expires_soon && !self.renewal_queued.swap(true, Ordering::AcqRel)
    }

    /// The queued renewal has run.
    pub(crate) fn renewal_done(&self) {
        self.renewal_queued.store(false, Ordering::Release);
    }
}

/// Who writes through a slot: writers are the same when they use the same slot.
#[derive(Clone, Debug)]
pub(crate) struct Writer(pub(crate) Arc<Slot>);

impl PartialEq for Writer {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

type Slots = HashMap<(Arc<Caller>, FileHandle), Arc<Slot>>;

/// All slots of a clerk.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    slots: Mutex<Slots>,
    clock: AtomicU64,
}

impl Grants {
    /// The slot of `caller` for `handle`, empty if it is new.
    pub(crate) fn slot(&self, caller: &Arc<Caller>, handle: FileHandle) -> Arc<Slot> {
        let used = self.clock.fetch_add(1, Ordering::Relaxed);
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() >= MAX_SLOTS {
            drop_older_half(&mut slots);
        }
        let slot = slots.entry((Arc::clone(caller), handle)).or_insert_with(|| {
            Arc::new(Slot {
                caller: Arc::clone(caller),
                handle,
                current: Mutex::default(),
                renewing: Mutex::default(),
                renewal_queued: AtomicBool::new(false),
                used: AtomicU64::new(used),
            })
        });
        slot.used.store(used, Ordering::Relaxed);
        Arc::clone(slot)
    }

    /// Keeps the capability that came with an answer of the manager.
    pub(crate) fn install(
        &self,
        caller: &Arc<Caller>,
        file: &File,
        protection: Protection,
    ) -> Arc<Slot> {
        let slot = self.slot(caller, file.handle);
        slot.install(file, protection);
        slot
    }
}

fn drop_older_half(slots: &mut Slots) {
    let mut ages: Vec<u64> = slots.values().map(|slot| slot.used.load(Ordering::Relaxed)).collect();
    let middle = ages.len() / 2;
    let (_, median, _) = ages.select_nth_unstable(middle);
    let median = *median;
    // Slots of open files have other owners and stay.
    slots.retain(|_, slot| {
        slot.used.load(Ordering::Relaxed) >= median || Arc::strong_count(slot) > 1
    });
}
