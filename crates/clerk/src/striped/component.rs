//! Component drives: connected to when they are needed first, for all virtual drives; and what is known of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use nasd_client::{ClientError, ConnectOptions, DriveClient, Host, RetryPolicy, Spare};
use nasd_types::DriveId;

use super::pace::Pace;
use crate::wire::Status;

/// How long a drive that has other copies is tried to be reached.
const DEADLINE: Duration = Duration::from_millis(300);

/// How long one without is, before it is asked who has what it had: that may be another one by now.
const LONE_DEADLINE: Duration = Duration::from_secs(2);

/// How long it may take to answer; each time that it takes longer, but for the first, twice as long the next time, as it
/// may have much to do. When the second call ends the striping manager mostly knows whether it limps.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// How long one that hangs may take to say who it is.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How often that is doubled.
const MOST_DOUBLINGS: u32 = 4;

/// How long other copies are read, if they may be, after one has failed.
const SUSPECTED: Duration = Duration::from_secs(2);

/// Most memory that is kept for what comes from several drives at once.
const SPARE_BYTES: usize = 64 << 20;

/// One of them.
pub(crate) struct ComponentDrive {
    pub(super) client: DriveClient,
    retry: RetryPolicy,
    /// Bytes that this clerk waits for, of whatever object.
    pub(super) load: AtomicU64,
    /// How quick it answers reads.
    pub(super) pace: Pace,
    /// How often in a row it has not answered in time.
    late: AtomicU32,
    /// Since when it has failed, by the host's clock.
    failed: Mutex<Option<Duration>>,
    host: Arc<dyn Host>,
}

impl ComponentDrive {
    /// How long it is waited for where there are other copies.
    pub(super) fn patience(&self) -> RetryPolicy {
        let late = self.late.load(Ordering::Relaxed);
        let doublings = late.saturating_sub(1).min(MOST_DOUBLINGS);
        RetryPolicy {
            deadline: DEADLINE,
            busy_deadline: None,
            call_timeout: CALL_TIMEOUT * (1 << doublings),
            first_backoff: Duration::from_millis(10),
            longest_backoff: Duration::from_millis(100),
        }
    }

    /// How long it is waited for where there are none, by the policy for all servers.
    pub(super) fn lone_patience(&self) -> RetryPolicy {
        let retry = self.retry;
        RetryPolicy { deadline: retry.deadline.min(LONE_DEADLINE), ..retry }
    }

    /// How long it is waited for by a call that stands in its queue, where others wait that it does first: as by the policy
    /// for all servers. That it can be reached need not take longer than for any call.
    pub(super) fn queue_patience(&self, retry: RetryPolicy) -> RetryPolicy {
        let call_timeout = self.retry.call_timeout.max(retry.call_timeout);
        // Nor need one whose queue is full: what other drives have told would be asked for once more.
        RetryPolicy { call_timeout, busy_deadline: Some(call_timeout), ..retry }
    }

    /// Time since some fixed instant.
    pub(super) fn elapsed(&self) -> Duration {
        self.host.elapsed()
    }

    /// How a call of it ended.
    pub(super) fn note<T>(&self, outcome: Result<T, ClientError>) -> Result<T, ClientError> {
        match &outcome {
            Ok(_) => {
                if self.late.load(Ordering::Relaxed) > 0 {
                    self.late.store(0, Ordering::Relaxed);
                }
            }
            Err(error) if is_of_the_drive(error) => {
                let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
                // Those who were waiting at the same time count as one.
                let now = self.host.elapsed();
                let is_another =
                    failed.is_none_or(|then| now.saturating_sub(then) >= CALL_TIMEOUT / 2);
                if let ClientError::Unreachable { taken, .. } = error
                    && *taken >= CALL_TIMEOUT
                    && is_another
                {
                    self.late.fetch_add(1, Ordering::Relaxed);
                }
                *failed = Some(now);
            }
            Err(_) => {}
        }
        outcome
    }

    /// Whether it has failed lately.
    pub(super) fn is_suspected(&self) -> bool {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.is_some_and(|then| self.host.elapsed().saturating_sub(then) < SUSPECTED)
    }
}

/// Whether a call failed by the drive that was called, so that another one, or the same a little later, may do
/// better.
pub(super) fn is_of_the_drive(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } | ClientError::Unsettled(_) => true,
        ClientError::Drive(status) => is_medium(*status) || *status == Status::Busy,
        _ => false,
    }
}

/// Whether a drive says that it can't read or write.
pub(super) fn is_medium(status: Status) -> bool {
    matches!(status, Status::MediumError | Status::Corrupt | Status::DriveFault | Status::ReadOnly)
}

/// All of them, by their numbers.
pub(crate) struct ComponentDrives {
    connect: ConnectOptions,
    /// Whose time it goes by.
    pub(crate) host: Arc<dyn Host>,
    drives: RwLock<HashMap<DriveId, Arc<ComponentDrive>>>,
    /// How often drives were found to have started anew at addresses where they are no more, where they went counts as well.
    restarts: AtomicU64,
    pub(super) spare: Arc<Spare>,
}

impl ComponentDrives {
    pub(crate) fn new(mut connect: ConnectOptions) -> ComponentDrives {
        connect.transport.connect_timeout = CONNECT_TIMEOUT;
        let host = connect.network.host();
        ComponentDrives {
            connect,
            host,
            drives: RwLock::default(),
            restarts: AtomicU64::new(0),
            spare: Arc::new(Spare::new(SPARE_BYTES)),
        }
    }

    /// How long an operation waits for a way to be done.
    pub(super) fn patience(&self) -> Duration {
        self.connect.retry.deadline
    }

    /// The drive that is at this address now.
    pub(super) fn at(&self, drive: DriveId, address: &str) -> Arc<ComponentDrive> {
        let known = self.drives.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(&drive).filter(|found| found.client.address() == address) {
            return Arc::clone(found);
        }
        drop(known);
        let mut known = self.drives.write().unwrap_or_else(PoisonError::into_inner);
        // Others may have come first, to whom it is no other way than to this one.
        if let Some(found) = known.get(&drive).filter(|found| found.client.address() == address) {
            return Arc::clone(found);
        }
        let found = Arc::new(ComponentDrive {
            client: DriveClient::tcp(address, Some(drive), &self.connect),
            retry: self.connect.retry,
            load: AtomicU64::new(0),
            pace: Pace::default(),
            late: AtomicU32::new(0),
            failed: Mutex::new(None),
            host: Arc::clone(&self.host),
        });
        if let Some(before) = known.insert(drive, Arc::clone(&found)) {
            self.restarts.fetch_add(1 + before.client.restarts(), Ordering::Relaxed);
        }
        found
    }

    /// How often drives were found to have started anew.
    pub(crate) fn restarts(&self) -> u64 {
        let known = self.drives.read().unwrap_or_else(PoisonError::into_inner);
        let now: u64 = known.values().map(|drive| drive.client.restarts()).sum();
        now + self.restarts.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn those_who_reach_a_drive_first_together_do_not_take_it_for_one_that_started_anew() {
        const THREADS: usize = 8;
        let drives = ComponentDrives::new(ConnectOptions::default());
        let barrier = Barrier::new(THREADS);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for number in 0..200 {
                        barrier.wait();
                        drives.at(DriveId(number), "127.0.0.1:1");
                    }
                });
            }
        });
        assert_eq!(drives.restarts(), 0);
        drives.at(DriveId(7), "127.0.0.1:2");
        assert_eq!(drives.restarts(), 1);
    }

    #[test]
    fn who_stands_in_a_queue_waits_longer_but_not_to_reach_the_drive() {
        let drives = ComponentDrives::new(ConnectOptions::default());
        let known = drives.at(DriveId(1), "127.0.0.1:1");
        let (plain, queued) = (known.patience(), known.queue_patience(known.patience()));
        assert_eq!(plain.call_timeout, CALL_TIMEOUT);
        assert_eq!(queued.call_timeout, ConnectOptions::default().retry.call_timeout);
        // A drive lets calls wait for 5 seconds before it puts them in front.
        assert!(queued.call_timeout > Duration::from_secs(5) + CALL_TIMEOUT);
        assert_eq!((plain.busy_deadline, queued.busy_deadline), (None, Some(queued.call_timeout)));
        assert_eq!((queued.deadline, queued.first_backoff), (DEADLINE, plain.first_backoff));
    }
}
