//! The drive itself: what all of its connections share.

use std::fmt;

use nasd_capability::{NonceSource, NonceWindow};
use nasd_store::{Identity, Store, StoreError};
use nasd_types::Timestamp;

use crate::counters::Counters;
use crate::incoming::Unverified;
use crate::key_cache::KeyCache;
use crate::key_ring::KeyRing;
use crate::{DriveOptions, Environment};

/// A drive: an object store behind the protocol of `specs/nasd.x`. It keeps nothing about clients
/// but the nonces that it has seen.
pub struct Drive {
    pub(crate) store: Store,
    pub(crate) identity: Identity,
    pub(crate) options: DriveOptions,
    pub(crate) environment: Environment,
    pub(crate) ring: KeyRing,
    pub(crate) keys: KeyCache,
    pub(crate) window: NonceWindow,
    pub(crate) nonces: NonceSource,
    pub(crate) unverified: Unverified,
    pub(crate) counters: Counters,
    /// Drawn at each start: tells writers whether what they wrote may have been lost.
    pub(crate) instance: u64,
    pub(crate) started: Timestamp,
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
        let started = environment.now();
        Ok(Drive {
            identity: store.identity(),
            ring: KeyRing::read(&store)?,
            keys: KeyCache::new(options.cached_keys),
            window: NonceWindow::new(options.window, started, environment.random()),
            nonces: NonceSource::new(environment.random()),
            unverified: Unverified::new(options.unverified_bytes),
            counters: Counters::default(),
            instance: environment.random(),
            started,
            store,
            options,
            environment,
        })
    }

    /// The store, for whoever runs in the same process.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Changes at each start.
    pub fn instance(&self) -> u64 {
        self.instance
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
