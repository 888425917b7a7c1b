//! How long, and how often, a call is tried.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nasd_protocol::ManagerStatus;
use tracing::{debug, info, warn};

use crate::{ClientError, Host, TransportError, interrupt};

/// How long a call waits for a server that is away. It ends at most one `call_timeout` after the
/// deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// A call is tried again until it has taken this long.
    pub deadline: Duration,
    /// The same where the server has said that it is busy, if that may take longer: it is there, and does what others want.
    pub busy_deadline: Option<Duration>,
    /// How long one try may take; one that takes longer gives its connection up.
    pub call_timeout: Duration,
    /// How long to wait before the second try.
    pub first_backoff: Duration,
    /// Each wait is twice the one before, up to this.
    pub longest_backoff: Duration,
}

impl Default for RetryPolicy {
    /// A minute, so that a drive can be restarted under its clients.
    fn default() -> Self {
        RetryPolicy {
            deadline: Duration::from_secs(60),
            busy_deadline: None,
            call_timeout: Duration::from_secs(30),
            first_backoff: Duration::from_millis(10),
            longest_backoff: Duration::from_secs(1),
        }
    }
}

impl RetryPolicy {
    /// One try.
    pub fn none() -> Self {
        RetryPolicy { deadline: Duration::ZERO, ..RetryPolicy::default() }
    }

    /// At most about `duration`, tries and waits together.
    pub fn within(duration: Duration) -> Self {
        let default = RetryPolicy::default();
        let call_timeout = default.call_timeout.min(duration);
        RetryPolicy { deadline: duration, call_timeout, ..default }
    }
}

/// The tries of one call.
pub(crate) struct Tries<'a> {
    policy: &'a RetryPolicy,
    host: &'a dyn Host,
    started: Duration,
    /// Tries end when so much has passed since then, by how the last one failed.
    deadline: Duration,
    backoff: Duration,
    /// How many were begun.
    count: u32,
}

/// No try is worth making in less.
const SHORTEST_TRY: Duration = Duration::from_millis(100);

impl<'a> Tries<'a> {
    pub(crate) fn new(policy: &'a RetryPolicy, host: &'a dyn Host) -> Self {
        let (started, deadline) = (host.elapsed(), policy.deadline);
        Tries { policy, host, started, deadline, backoff: policy.first_backoff, count: 0 }
    }

    /// Whether the try that was begun last is not the first.
    pub(crate) fn is_again(&self) -> bool {
        self.count > 1
    }

    /// How long the call has taken so far.
    pub(crate) fn taken(&self) -> Duration {
        self.host.elapsed().saturating_sub(self.started)
    }

    /// Begins a try and tells how long it may take. The first may take as long as any; later ones
    /// end with the deadline.
    pub(crate) fn begin(&mut self) -> Duration {
        self.count += 1;
        if self.count == 1 {
            return self.policy.call_timeout;
        }
        let left = self.deadline.saturating_sub(self.taken());
        left.max(SHORTEST_TRY).min(self.policy.call_timeout)
    }

    /// Waits for the next try after one failed so; or tells how the call failed, if there is none.
    pub(crate) fn go_on_after(
        &mut self,
        error: TransportError,
        server: &Server,
        may_have_run: bool,
    ) -> Result<(), ClientError> {
        let address = &server.address;
        if let Some(error) = error.hopeless(address) {
            return Err(error);
        }
        if server.is_given_up() {
            return Err(self.give_up(error, server, may_have_run));
        }
        if !matches!(error, TransportError::Busy) {
            server.is_away(&error);
        }
        self.deadline = match (&error, self.policy.busy_deadline) {
            (TransportError::Busy, Some(busy)) => busy.max(self.policy.deadline),
            _ => self.policy.deadline,
        };
        debug!(address, %error, tries = self.count, "a call failed");
        match self.wait() {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.give_up(error, server, may_have_run)),
            Err(interrupt::Interrupted) => {
                Err(ClientError::Interrupted { server: address.clone(), may_have_run })
            }
        }
    }

    /// How the call failed whose last try failed so, and of which there is no other.
    pub(crate) fn give_up(
        &self,
        error: TransportError,
        server: &Server,
        may_have_run: bool,
    ) -> ClientError {
        if let Some(error) = error.hopeless(&server.address) {
            return error;
        }
        if let TransportError::DriveAway = error {
            return ClientError::Manager(ManagerStatus::Unavailable);
        }
        ClientError::Unreachable {
            server: server.address.clone(),
            taken: self.taken(),
            tries: self.count,
            may_have_run,
            last: Box::new(error),
        }
    }

    /// Waits before the next try; `false`, without a wait, when there may be none.
    fn wait(&mut self) -> Result<bool, interrupt::Interrupted> {
        let left = self.deadline.saturating_sub(self.taken());
        if left.is_zero() {
            return Ok(false);
        }
        // Spread by a quarter either way, lest all clients of a drive come back at once.
        let share = 768 + (self.host.random() % 512) as u32;
        let wait = self.backoff * share / 1024;
        interrupt::pause_with(wait.min(left), |wait| self.host.sleep(wait))?;
        self.backoff = (self.backoff * 2).min(self.policy.longest_backoff);
        Ok(true)
    }
}

/// Adds to how long ago a call was made first, in nanoseconds, which its arguments tell at `at`.
pub(crate) fn add_age(arguments: &mut [u8], at: Range<usize>, taken: Duration) {
    if let Some(bytes) = arguments.get_mut(at)
        && let Ok(age) = <[u8; 8]>::try_from(&*bytes)
    {
        let passed = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        bytes.copy_from_slice(&u64::from_be_bytes(age).saturating_add(passed).to_be_bytes());
    }
}

/// A server, and whether calls reach it: logged when that changes, not for each call.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: String,
    away: AtomicBool,
    /// Whether it is known from elsewhere that it is away, so that no call waits for it.
    given_up: AtomicBool,
}

impl Server {
    pub(crate) fn new(address: &str) -> Self {
        let (away, given_up) = (AtomicBool::new(false), AtomicBool::new(false));
        Server { address: address.to_owned(), away, given_up }
    }

    /// From now on no call waits for it, or calls do again.
    pub(crate) fn set_given_up(&self, is_so: bool) {
        self.given_up.store(is_so, Ordering::SeqCst);
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::SeqCst)
    }

    /// A call was answered.
    pub(crate) fn is_there(&self) {
        if self.away.load(Ordering::Relaxed) && self.away.swap(false, Ordering::Relaxed) {
            info!(server = self.address, "the server is back");
        }
    }

    fn is_away(&self, error: &TransportError) {
        if !self.away.swap(true, Ordering::Relaxed) {
            warn!(server = self.address, %error, "the server is away; waiting for it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Clock;

    #[test]
    fn a_server_that_is_busy_is_waited_for_longer_than_one_that_is_away() {
        let (clock, server) = (Clock::default(), Server::new("drive"));
        let policy = RetryPolicy {
            deadline: Duration::from_millis(300),
            busy_deadline: Some(Duration::from_secs(30)),
            ..RetryPolicy::default()
        };
        let mut tries = Tries::new(&policy, &clock);
        let mut longest = Duration::ZERO;
        tries.begin();
        while tries.go_on_after(TransportError::Busy, &server, false).is_ok() {
            longest = longest.max(tries.begin());
        }
        assert!(tries.taken() >= Duration::from_secs(30), "{:?}", tries.taken());
        assert!(longest > Duration::from_secs(25), "a try may stand in its queue: {longest:?}");
        // One that is not there any more is not.
        let mut tries = Tries::new(&policy, &clock);
        tries.begin();
        tries.go_on_after(TransportError::Busy, &server, false).unwrap();
        while tries.go_on_after(TransportError::NoConnectionInTime, &server, false).is_ok() {}
        assert!(tries.taken() < Duration::from_secs(1), "{:?}", tries.taken());
    }
}
