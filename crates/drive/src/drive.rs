//! The drive itself: what all of its connections share.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use nasd_bulk_service::server::Sessions;
use nasd_capability::{NonceSource, NonceWindow, WindowOptions};
use nasd_protocol::Status;
use nasd_store::{Identity, Store, StoreError};
use nasd_transport::BufferPool;
use nasd_types::limits::MAX_TRANSFER_BYTES;
use nasd_types::{PartitionId, Protection, Timestamp};

use crate::audit::AuditTrail;
use crate::bulk::AheadBytes;
use crate::clock::Clock;
use crate::counters::Counters;
use crate::extensions::Extensions;
use crate::key_cache::KeyCache;
use crate::key_ring::{CurrentRing, KeyRing};
use crate::order::Orders;
use crate::prefetching::Prefetching;
use crate::scrub::ScrubProgress;
use crate::status::status_of;
use crate::{DriveOptions, Elsewhere, Environment, Extension, RegistrationError, ScrubPass};

/// Most memory for encryption that is kept while nobody uses it.
const IDLE_BUFFER_BYTES: usize = 16 << 20;

/// A drive: an object store behind the protocol of `specs/nasd.x`. It keeps nothing about clients
/// but the nonces that it has seen.
pub struct Drive {
    pub(crate) store: Store,
    /// Who has the objects of a virtual drive.
    elsewhere: Option<Arc<dyn Elsewhere>>,
    pub(crate) identity: Identity,
    pub(crate) options: DriveOptions,
    /// Its clock is the drive's.
    pub(crate) environment: Environment,
    pub(crate) clock: Arc<Clock>,
    pub(crate) ring: CurrentRing,
    pub(crate) keys: KeyCache,
    pub(crate) window: NonceWindow,
    pub(crate) nonces: NonceSource,
    /// For data that are encrypted or decrypted.
    pub(crate) buffers: BufferPool,
    pub(crate) counters: Counters,
    pub(crate) audit: AuditTrail,
    pub(crate) scrub: ScrubProgress,
    pub(crate) orders: Orders,
    pub(crate) extensions: Extensions,
    pub(crate) prefetching: Prefetching,
    pub(crate) bulk_sessions: Sessions,
    pub(crate) bulk_ahead: AheadBytes,
    /// Drawn at each start: tells writers whether what they wrote may have been lost.
    pub(crate) instance: u64,
    pub(crate) started: Timestamp,
    /// Held while partitions or keys change.
    administration: Mutex<()>,
}

impl Drive {
    /// A drive on an open store, starting now.
    ///
    /// # Errors
    ///
    /// If the store's keys can't be read.
    pub fn new(
        store: Store,
        options: DriveOptions,
        environment: Environment,
    ) -> Result<Drive, StoreError> {
        let state = store.clock();
        let window = match (state.skew_past_ns, state.skew_ahead_ns) {
            (0, _) => options.window,
            (past_ns, ahead_ns) => WindowOptions { past_ns, ahead_ns, ..options.window },
        };
        let clock = Arc::new(Clock::start(environment.clone(), state));
        let drives_clock = Arc::clone(&clock);
        let environment = environment.with_clock(move || drives_clock.now());
        let started = environment.now();
        Ok(Drive {
            identity: store.identity(),
            clock,
            ring: CurrentRing::new(KeyRing::read(&store)?),
            keys: KeyCache::new(options.cached_keys),
            window: NonceWindow::new(window, started, environment.random()),
            nonces: NonceSource::new(environment.random()),
            buffers: BufferPool::limited(
                IDLE_BUFFER_BYTES,
                options.encrypted_bytes.max(MAX_TRANSFER_BYTES),
            ),
            counters: Counters::default(),
            audit: AuditTrail::new(environment.random()),
            scrub: ScrubProgress::default(),
            orders: Orders::new(started),
            extensions: Extensions::new(options.extension_bytes),
            prefetching: Prefetching::new(store.cache_pressure().frames),
            bulk_sessions: Sessions::default(),
            bulk_ahead: AheadBytes::default(),
            instance: environment.random(),
            started,
            administration: Mutex::new(()),
            elsewhere: None,
            store,
            options,
            environment,
        })
    }

    /// The same as a virtual drive: the store has its keys and settings, and others have the objects of all
    /// partitions but the audit trail's.
    pub fn with_objects_elsewhere(self, elsewhere: Arc<dyn Elsewhere>) -> Drive {
        Drive { elsewhere: Some(elsewhere), ..self }
    }

    /// The same with an extension more.
    ///
    /// # Errors
    ///
    /// If it has one of that number, or as many as there may be.
    pub fn with_extension(
        mut self,
        extension: Arc<dyn Extension>,
    ) -> Result<Drive, RegistrationError> {
        self.extensions.register(extension)?;
        Ok(self)
    }

    /// Who has the objects, where the store has not.
    pub(crate) fn elsewhere(&self) -> Option<&dyn Elsewhere> {
        self.elsewhere.as_deref()
    }

    /// The store, for whoever runs in the same process.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The partitions that requests may name, in ascending order: all but the audit trail's.
    pub fn partitions(&self) -> Vec<PartitionId> {
        let mut partitions = self.store.partitions();
        partitions.retain(|partition| *partition != PartitionId::AUDIT);
        partitions
    }

    /// The weakest protection that it accepts anywhere: as it was started, and as it was set.
    pub fn minimum_protection(&self) -> Protection {
        self.options.minimum_protection | self.ring.drive_minimum()
    }

    /// Makes durable what the audit trail has counted: a server does that every second.
    pub fn keep_audit_trail(&self) {
        self.audit.keep(&self.store, self.environment.now());
    }

    /// Has its clock follow the machine's, and the mark that it does not start below be ahead of it: a server does that
    /// now and then.
    pub fn keep_clock(&self) {
        self.clock.keep(self.counters.requests(), &self.store);
    }

    /// The last pass of the scrub that ended since the drive was started.
    pub fn last_scrub(&self) -> Option<ScrubPass> {
        self.scrub.last()
    }

    /// The time on its clock.
    pub fn now(&self) -> Timestamp {
        self.environment.now()
    }

    /// Changes at each start.
    pub fn instance(&self) -> u64 {
        self.instance
    }

    /// Makes a change to partitions or keys, which no other such change comes in between, and takes
    /// what the store has then for true, whether or not the change succeeded.
    pub(crate) fn administer<T>(
        &self,
        change: impl FnOnce() -> Result<T, Status>,
    ) -> Result<T, Status> {
        self.administer_then(change, |_| ())
    }

    /// The same; if the change succeeded, `then` comes as soon as the old keys are out of force, and
    /// before any other such change.
    pub(crate) fn administer_then<T>(
        &self,
        change: impl FnOnce() -> Result<T, Status>,
        then: impl FnOnce(&T),
    ) -> Result<T, Status> {
        // What is guarded is in the store, which keeps itself whole.
        let _alone = self.administration.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = change();
        let ring = KeyRing::read(&self.store).map_err(|error| status_of(&error))?;
        self.ring.replace(ring, &self.keys);
        if let Ok(changed) = &outcome {
            then(changed);
        }
        outcome
    }

    /// Gives the store back.
    pub(crate) fn into_store(self) -> Store {
        self.store
    }
}

impl fmt::Debug for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Drive({})", self.identity.drive)
    }
}
