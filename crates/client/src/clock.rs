//! What a client knows of its drive's clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nasd_types::Timestamp;

use crate::{ClientError, Host};

/// The drive's clock, kept by this host's monotonic time. Learned from `inquiry` and from
/// refusals, neither of which anybody vouches for. Somebody on the network could so make a client
/// stamp requests with a time to come, keep them, and send them to the drive when the time has
/// come. So a clock too far from this host's is an error instead.
#[derive(Debug)]
pub(crate) struct DriveClock {
    /// Drive time when the host's `elapsed` was 0; 0 before anything was learned.
    epoch_ns: AtomicU64,
    /// How far the drive's clock may be from this host's.
    max_offset: Duration,
}

impl DriveClock {
    pub(crate) fn new(max_offset: Duration) -> Self {
        DriveClock { epoch_ns: AtomicU64::new(0), max_offset }
    }

    /// The time on the drive's clock, never ahead of it except by drift. This host's own time of
    /// day as long as the drive has told nothing.
    pub(crate) fn now(&self, host: &dyn Host) -> Timestamp {
        match self.epoch_ns.load(Ordering::Relaxed) {
            0 => host.wall_clock(),
            epoch => Timestamp(epoch.wrapping_add(nanoseconds(host.elapsed()))),
        }
    }

    /// The drive has told its time in a message that was received just now. As that took a while,
    /// the drive's clock is ahead of what is assumed here by the time of transfer; requests are
    /// stamped a little in the past, where the drive's window is wide.
    pub(crate) fn learn(&self, told: Timestamp, host: &dyn Host) -> Result<(), ClientError> {
        let here = host.wall_clock();
        if told.distance_ns(here) > nanoseconds(self.max_offset) {
            return Err(ClientError::ClockTooFar { drive: told, here });
        }
        let epoch = told.0.wrapping_sub(nanoseconds(host.elapsed()));
        self.epoch_ns.store(epoch, Ordering::Relaxed);
        Ok(())
    }
}

/// Saturates after 584 years.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
