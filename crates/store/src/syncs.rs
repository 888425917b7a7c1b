//! Syncs of the device, of which several flushes ask.

use std::io;
use std::sync::{Mutex, PoisonError};

use nasd_device::{BlockDevice, DeviceError};

/// Makes syncs wait for each other: one that succeeds says nothing of what another one has lost, so that
/// after the first that failed all do.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    /// One has failed.
    failed: Mutex<bool>,
}

impl Syncs {
    /// Makes durable what was written before.
    pub(crate) fn sync(&self, device: &dyn BlockDevice) -> Result<(), DeviceError> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if *failed {
            let source =
                io::Error::other("one before has failed, and may have lost what was written");
            return Err(DeviceError::Medium { operation: "sync", offset: 0, length: 0, source });
        }
        // Should it panic, it has failed too.
        *failed = true;
        device.sync()?;
        *failed = false;
        Ok(())
    }
}
