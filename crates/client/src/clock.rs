//! What a client knows of its drive's clock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nasd_types::Timestamp;

use crate::Host;

/// The drive's clock, kept by this host's monotonic time.
///
/// It is learned from hints, by `inquiry` and refusals, for which nobody vouches, and from proofs, which
/// only the drive can make. Somebody on the network could forge hints, and so make a client stamp
/// requests with a time to come, keep them, and send them to the drive when the time has come. So a hint
/// is followed only where it is near to what was proved last, or to this host's own time of day where
/// nothing was; one that is far away is a reason to ask for a proof. As that is good for any clock, this
/// host's own may be wrong by years.
#[derive(Debug)]
pub(crate) struct DriveClock {
    /// Drive time when the host's `elapsed` was 0; 0 before anything was learned.
    epoch_ns: AtomicU64,
    /// The same as it was proved last.
    proved_epoch_ns: AtomicU64,
    /// Whether a hint was not followed that may be true.
    is_doubtful: AtomicBool,
    /// How far hints may be away.
    max_offset: Duration,
}

impl DriveClock {
    pub(crate) fn new(max_offset: Duration) -> Self {
        DriveClock {
            epoch_ns: AtomicU64::new(0),
            proved_epoch_ns: AtomicU64::new(0),
            is_doubtful: AtomicBool::new(false),
            max_offset,
        }
    }

    /// The time on the drive's clock, never ahead of it except by drift. This host's own time of
    /// day as long as the drive has told nothing that was believed.
    pub(crate) fn now(&self, host: &dyn Host) -> Timestamp {
        after_epoch(&self.epoch_ns, host)
    }

    /// Whether a proof is to be asked for before anything is stamped.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.is_doubtful.load(Ordering::Relaxed)
    }

    /// The drive seems to have told its time in a message that was received just now. As that took a
    /// while, the drive's clock is ahead of what is assumed here by the time of transfer; requests are
    /// stamped a little in the past, where the drive's window is wide.
    pub(crate) fn take_hint(&self, told: Timestamp, host: &dyn Host) {
        let known = after_epoch(&self.proved_epoch_ns, host);
        let is_near = told.distance_ns(known) <= nanoseconds(self.max_offset);
        if is_near {
            self.epoch_ns.store(epoch_of(told, host), Ordering::Relaxed);
        } else {
            tracing::debug!(?told, ?known, "the drive's clock is told to be far away");
        }
        self.is_doubtful.store(!is_near, Ordering::Relaxed);
    }

    /// The drive has told its time in the answer to a question that was asked just before: in a message
    /// that only the drive can have made, for this question. Whoever held that back has made
    /// requests seem older than they are, and no more.
    pub(crate) fn learn(&self, proved: Timestamp, host: &dyn Host) {
        let epoch = epoch_of(proved, host);
        self.proved_epoch_ns.store(epoch, Ordering::Relaxed);
        self.epoch_ns.store(epoch, Ordering::Relaxed);
        self.is_doubtful.store(false, Ordering::Relaxed);
    }
}

fn after_epoch(epoch_ns: &AtomicU64, host: &dyn Host) -> Timestamp {
    match epoch_ns.load(Ordering::Relaxed) {
        0 => host.wall_clock(),
        epoch => Timestamp(epoch.wrapping_add(nanoseconds(host.elapsed()))),
    }
}

fn epoch_of(time: Timestamp, host: &dyn Host) -> u64 {
    time.0.wrapping_sub(nanoseconds(host.elapsed()))
}

/// Saturates after 584 years.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
