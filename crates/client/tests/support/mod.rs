//! A host whose time passes only when it is slept away, and a drive and a file manager behind
//! channels that fail as they are told. No sockets, no threads, no randomness.

#![allow(dead_code, reason = "each test program uses a part")]

pub mod drive;
pub mod manager;

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nasd_client::{ConnectOptions, Host, RetryPolicy};
use nasd_transport::{AcceptStatus, BreakReason, ChannelError, Execution, ReplyError};
use nasd_types::Timestamp;

/// The fake host's time of day when its time is 0.
pub const MORNING: Timestamp = Timestamp(1_000_000 * Timestamp::SECOND_NS);

/// Sleeping is all that takes time.
#[derive(Default)]
pub struct FakeHost {
    elapsed_ns: AtomicU64,
    random: AtomicU64,
    pub slept: Mutex<Vec<Duration>>,
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl FakeHost {
    pub fn new() -> Arc<Self> {
        Arc::new(FakeHost::default())
    }

    pub fn wall_clock_ns(&self) -> u64 {
        self.wall_clock().0
    }

    /// What happens while somebody sleeps the next time.
    pub fn when_asleep(&self, happens: impl FnOnce() + Send + 'static) {
        *self.meanwhile.lock().expect("no test panics with it") = Some(Box::new(happens));
    }

    pub fn pass(&self, duration: Duration) {
        self.elapsed_ns.fetch_add(duration.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Host for FakeHost {
    fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.elapsed_ns.load(Ordering::SeqCst))
    }

    fn wall_clock(&self) -> Timestamp {
        MORNING.plus_ns(self.elapsed_ns.load(Ordering::SeqCst))
    }

    fn sleep(&self, duration: Duration) {
        self.slept.lock().expect("no test panics with it").push(duration);
        self.pass(duration);
        let happens = self.meanwhile.lock().expect("no test panics with it").take();
        happens.into_iter().for_each(|happens| happens());
    }

    fn random(&self) -> u64 {
        self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst)
    }
}

/// What happens to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// All is well.
    None,
    /// No connection can be made (if the call needs a new one).
    Refused,
    /// The connection breaks before the call has been sent.
    Lost,
    /// The connection breaks after the call was executed, before its reply has come.
    ReplyLost,
    /// The call is executed; its reply does not come in time.
    TimedOut,
    /// The call is answered by RPC itself: the server failed.
    ServerFailed,
    /// The peer sends what is no reply.
    Garbage,
    /// A bit of the results is flipped on the way.
    ResultsAltered,
    /// A bit of the data is flipped on the way.
    DataAltered,
    /// The results' digest is zeros.
    DigestMissing,
    /// The results are replaced by this status, without a digest.
    Forged(u32),
    /// The same, and the clock with it.
    ForgedAt(u32, Timestamp),
    /// The reply to the call before is delivered once more.
    OldReply,
}

/// The faults to come; calls beyond the last have none.
#[derive(Default)]
pub struct Script(Mutex<VecDeque<Fault>>);

impl Script {
    pub fn then(&self, faults: &[Fault]) {
        self.0.lock().expect("no test panics with it").extend(faults.iter().cloned());
    }

    pub fn next(&self) -> Fault {
        self.0.lock().expect("no test panics with it").pop_front().unwrap_or(Fault::None)
    }

    /// Whether the next is this one, in which case it is used up.
    pub fn next_is(&self, fault: &Fault) -> bool {
        let mut faults = self.0.lock().expect("no test panics with it");
        let is = faults.front() == Some(fault);
        if is {
            faults.pop_front();
        }
        is
    }
}

pub const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 2049);

pub fn connect_error() -> ChannelError {
    let source = Arc::new(io::Error::from(io::ErrorKind::ConnectionRefused));
    ChannelError::Connect { address: ADDRESS, source }
}

pub fn broken(execution: Execution) -> ChannelError {
    let reason = Arc::new(BreakReason::ClosedByPeer);
    ChannelError::Broken { address: ADDRESS, reason, execution }
}

/// Breaks the channel as the fault says, if it does that after the call was executed.
pub fn break_after(fault: &Fault, open: &AtomicBool, timeout: Duration) -> Option<ChannelError> {
    let execution = Execution::Possible;
    let error = match fault {
        Fault::ReplyLost => broken(execution),
        Fault::TimedOut => ChannelError::TimedOut { address: ADDRESS, after: timeout, execution },
        Fault::Garbage => ChannelError::Broken {
            address: ADDRESS,
            reason: Arc::new(BreakReason::Protocol(nasd_transport::FrameError::UnknownCall(7))),
            execution,
        },
        _ => return None,
    };
    open.store(false, Ordering::SeqCst);
    Some(error)
}

pub fn server_failed() -> ChannelError {
    let reason = ReplyError::Rejected(AcceptStatus::SystemError);
    ChannelError::Rejected { address: ADDRESS, reason }
}

/// Tries for a second.
pub fn options() -> ConnectOptions {
    let retry = RetryPolicy { deadline: Duration::from_secs(1), ..RetryPolicy::default() };
    ConnectOptions { retry, ..ConnectOptions::default() }
}
