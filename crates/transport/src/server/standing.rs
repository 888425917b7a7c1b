//! What each connection has shown of itself, and what it may cost until it has shown something.
//!
//! A connection has *proved* itself when its peer has shown that it belongs here: by a certificate of
//! the cell, or by a call that the service says could only come from somebody with a key
//! ([`Standing::prove`]). Until then it is a stranger's. The service tells of calls that proved nothing
//! ([`Standing::note_unproved`]): refusals, garbage, and what anybody may ask.
//!
//! | | a stranger | who has proved himself |
//! |---|---|---|
//! | calls in a row that prove nothing, before the connection is closed | `unproved_in_a_row` | 16 times as many |
//! | each of those, and each 4 KiB received | charged to the address, see `accounts` | free |
//! | time for the head of a call, a reply to be taken | `stranger_timeout` | `peer_timeout` |
//! | time without calls | `stranger_idle_timeout` | `idle_timeout` |
//! | when there are too many connections | goes first | goes when it is idle |
//! | look-ups before a call is verified, threads beside the first | none | as the service wishes |

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::ServerOptions;
use super::accounts::{Accounts, Door, Origin};

/// What a new connection costs, in units: a thread, mostly.
const CONNECTION_UNITS: u64 = 4;

/// What a TLS handshake costs besides: a signature.
const HANDSHAKE_UNITS: u64 = 32;

/// What a call costs that proves nothing.
const CALL_UNITS: u64 = 1;

/// So many bytes cost another unit.
const BYTES_OF_A_UNIT: u64 = 4096;

/// What bytes cost that are no calls at all: their connection is closed, and comes again.
const OFFENCE_UNITS: u64 = 16;

/// So many calls of a stranger are answered before he waits: an honest one asks who the drive is, and
/// what time it has, and then proves himself.
const CALLS_AT_ONCE: u32 = 4;

/// How many times as many calls in a row may prove nothing once something was proved: capabilities
/// expire and are revoked, with many requests under way.
const TRUST: u32 = 16;

/// The bit of `Standing::state` for having proved something.
const PROVED: u32 = 1 << 31;

/// What a server knows of strangers.
#[derive(Debug)]
pub(super) struct Strangers {
    began: Instant,
    in_a_row: u32,
    accounts: Mutex<Accounts>,
}

/// How a new connection is received, and what keeps its place if it has to wait.
#[derive(Debug)]
pub(super) enum Knock {
    Open,
    Wait(Duration, AtTheDoor),
    Shut,
}

/// A connection that waits to be served.
#[derive(Debug)]
pub(super) struct AtTheDoor {
    strangers: Arc<Strangers>,
    origin: Origin,
}

impl Drop for AtTheDoor {
    fn drop(&mut self) {
        self.strangers.lock().leave_door(self.origin);
    }
}

impl Strangers {
    pub(super) fn new(options: &ServerOptions) -> Strangers {
        let accounts = Accounts::new(options.unproved_per_second, options.unproved_burst);
        Strangers {
            began: Instant::now(),
            in_a_row: options.unproved_in_a_row.max(1),
            accounts: Mutex::new(accounts),
        }
    }

    /// Each change of an account is whole before anything could panic.
    fn lock(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A stranger's new connection.
    pub(super) fn knock(self: &Arc<Self>, origin: Origin, with_tls: bool) -> (Knock, Standing) {
        let units = CONNECTION_UNITS + if with_tls { HANDSHAKE_UNITS } else { 0 };
        let now_ns = self.now_ns();
        let knock = match self.lock().knock(origin, units, now_ns) {
            Door::Open => Knock::Open,
            Door::Wait(wait_ns) => {
                let door = AtTheDoor { strangers: Arc::clone(self), origin };
                Knock::Wait(Duration::from_nanos(wait_ns), door)
            }
            Door::Shut => Knock::Shut,
        };
        (knock, Standing::new(self, origin, 0, units))
    }
}

/// What a connection has shown of itself; see [`Standing::prove`] and [`Standing::note_unproved`].
#[derive(Debug)]
pub struct Standing {
    /// `PROVED`, and how many calls in a row have proved nothing.
    state: AtomicU32,
    /// Bytes that were received since the last call was charged.
    bytes: AtomicU64,
    /// Units that the address was charged for this connection.
    charged: AtomicU64,
    /// When the next call is received; 0 is at once.
    pause_until_ns: AtomicU64,
    origin: Origin,
    strangers: Arc<Strangers>,
}

/// What a connection may do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Its next call is received.
    Receive,
    /// The same, after a time.
    Wait(Duration),
    /// It is closed: nothing has been proved for too long.
    Close,
}

impl Standing {
    fn new(strangers: &Arc<Strangers>, origin: Origin, state: u32, charged: u64) -> Standing {
        Standing {
            state: AtomicU32::new(state),
            bytes: AtomicU64::new(0),
            charged: AtomicU64::new(charged),
            pause_until_ns: AtomicU64::new(0),
            origin,
            strangers: Arc::clone(strangers),
        }
    }

    /// That of calls that come over no connection: for whoever calls a service by itself, as tests do.
    pub fn of_no_connection() -> Standing {
        let strangers = Arc::new(Strangers::new(&ServerOptions::default()));
        Standing::trusted(&strangers, Origin::V4(0))
    }

    /// That of a connection to a service that trusts whoever can connect.
    pub(super) fn trusted(strangers: &Arc<Strangers>, origin: Origin) -> Standing {
        Standing::new(strangers, origin, PROVED, 0)
    }

    /// The call that is being answered could only come from somebody with a key, now: not one that was
    /// recorded and sent again.
    pub fn prove(&self) {
        // What nearly every call finds.
        if self.state.load(Ordering::Relaxed) == PROVED {
            return;
        }
        let before = self.state.swap(PROVED, Ordering::Relaxed);
        if before & PROVED == 0 {
            self.pause_until_ns.store(0, Ordering::Relaxed);
            let charged = self.charged.swap(0, Ordering::Relaxed);
            self.strangers.lock().refund(self.origin, charged);
        }
    }

    /// The call that is being answered proved nothing: it was refused, or anybody may make it.
    pub fn note_unproved(&self) {
        let before = self.state.fetch_add(1, Ordering::Relaxed);
        if before & PROVED == 0 {
            let bytes = self.bytes.swap(0, Ordering::Relaxed);
            let wait = self.charge(CALL_UNITS + bytes / BYTES_OF_A_UNIT);
            if before + 1 > CALLS_AT_ONCE && wait > 0 {
                let until = self.strangers.now_ns().saturating_add(wait);
                self.pause_until_ns.store(until, Ordering::Relaxed);
            }
        }
    }

    /// Whether the peer has shown that it belongs here.
    pub fn is_proved(&self) -> bool {
        self.state.load(Ordering::Relaxed) & PROVED != 0
    }

    /// The connection is closed because its bytes were no calls, or came too slowly.
    pub(super) fn note_offence(&self) {
        if !self.is_proved() {
            let bytes = self.bytes.swap(0, Ordering::Relaxed);
            self.charge(OFFENCE_UNITS + bytes / BYTES_OF_A_UNIT);
        }
    }

    /// Bytes were received. Of those who have proved themselves nobody counts them.
    pub(super) fn note_received(&self, bytes: usize) {
        if !self.is_proved() {
            self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Charges the address; for how many nanoseconds its strangers wait now.
    fn charge(&self, units: u64) -> u64 {
        self.charged.fetch_add(units, Ordering::Relaxed);
        let now_ns = self.strangers.now_ns();
        self.strangers.lock().charge(self.origin, units, now_ns)
    }

    pub(super) fn next(&self) -> Next {
        let state = self.state.load(Ordering::Relaxed);
        if state == PROVED {
            return Next::Receive;
        }
        let most = match state & PROVED {
            0 => self.strangers.in_a_row,
            _ => self.strangers.in_a_row.saturating_mul(TRUST),
        };
        if state & !PROVED >= most {
            return Next::Close;
        }
        match self.pause_until_ns.load(Ordering::Relaxed) {
            0 => Next::Receive,
            until => match until.saturating_sub(self.strangers.now_ns()) {
                0 => Next::Receive,
                left => Next::Wait(Duration::from_nanos(left)),
            },
        }
    }

    pub(super) fn origin(&self) -> Origin {
        self.origin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Origin = Origin::V4(1);

    fn strangers(in_a_row: u32, per_second: u32, burst: u32) -> Arc<Strangers> {
        Arc::new(Strangers::new(&ServerOptions {
            unproved_in_a_row: in_a_row,
            unproved_per_second: per_second,
            unproved_burst: burst,
            ..ServerOptions::default()
        }))
    }

    #[test]
    fn a_stranger_is_closed_soon_and_a_friend_much_later() {
        let strangers = strangers(8, u32::MAX, 0);
        let (_, standing) = strangers.knock(HERE, false);
        for _ in 0..7 {
            standing.note_unproved();
            assert_eq!(standing.next(), Next::Receive);
        }
        standing.note_unproved();
        assert_eq!(standing.next(), Next::Close);
        standing.prove();
        for _ in 0..8 * TRUST - 1 {
            standing.note_unproved();
            assert_eq!(standing.next(), Next::Receive);
        }
        standing.note_unproved();
        assert_eq!(standing.next(), Next::Close);
    }

    #[test]
    fn a_stranger_waits_and_a_proof_ends_that() {
        let strangers = strangers(u32::MAX >> 8, 10, 2);
        let (_, standing) = strangers.knock(HERE, false);
        for _ in 0..CALLS_AT_ONCE {
            standing.note_unproved();
            assert_eq!(standing.next(), Next::Receive, "an honest one asks as much");
        }
        standing.note_unproved();
        assert!(matches!(standing.next(), Next::Wait(_)));
        standing.prove();
        assert_eq!(standing.next(), Next::Receive);
        // What he was charged was given back, so that the next one need not wait.
        assert!(matches!(strangers.knock(HERE, false).0, Knock::Open));
    }

    #[test]
    fn bytes_cost_too() {
        let strangers = strangers(64, 1000, 100);
        let (_, standing) = strangers.knock(HERE, false);
        standing.note_received(4 << 20);
        standing.note_unproved();
        assert!(matches!(strangers.knock(HERE, false).0, Knock::Wait(..)));
        let (_, friend) = strangers.knock(Origin::V4(2), false);
        friend.prove();
        friend.note_received(4 << 20);
        friend.note_unproved();
        assert!(matches!(strangers.knock(Origin::V4(2), false).0, Knock::Open));
    }
}
