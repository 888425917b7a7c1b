//! One drive, as a client sees it.

mod administration;
mod batch;
mod begun;
mod connection;
mod contents;
mod exchange;
mod extend;
mod operations;
mod pipelined;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nasd_protocol::drive::DriveInformation;
use nasd_transport::{BufferPool, ClientOptions};
use nasd_types::limits::MAX_TRANSFER_BYTES;
use nasd_types::{DriveId, Timestamp};

use crate::clock::DriveClock;
use crate::pool::Pool;
use crate::retry::Server;
use crate::{ClientError, Connector, Host, Network, RetryPolicy, TcpNetwork};

pub use administration::ClockSettings;
pub use begun::{PendingCall, PendingCreate, PendingRemove};
use connection::DriveConnection;
pub use contents::Objects;
use exchange::Failure;
pub use extend::PendingExtend;
pub use operations::ReadOutcome;
pub use pipelined::{PendingRead, PendingWrite};

/// How a client connects to a server and goes on calling it.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Connections to the server, made as they are needed.
    pub connections: usize,
    /// Limits of each connection.
    pub transport: ClientOptions,
    /// How long calls wait for a server that is away.
    pub retry: RetryPolicy,
    /// How far from what is known a drive's clock may be told to be before a proof is asked for: it
    /// bounds for how long somebody on the network could hold a request back. What is known is what was
    /// proved, and this host's time of day before that.
    pub max_clock_offset: Duration,
    /// By which servers are reached.
    pub network: Arc<dyn Network>,
}

impl Default for ConnectOptions {
    /// Two connections, retries for a minute, clocks without proof within ten minutes.
    fn default() -> Self {
        ConnectOptions {
            connections: 2,
            transport: ClientOptions::default(),
            retry: RetryPolicy::default(),
            max_clock_offset: Duration::from_secs(600),
            network: TcpNetwork::shared(),
        }
    }
}

/// One drive. Cheap to clone: clones share connections. See the crate for what it does.
///
/// # Retries
///
/// A call whose connection breaks is sent again until it is answered or the deadline has passed;
/// every try has a nonce of its own. A try whose reply was lost may have been executed. Of the
/// operations of a drive,
/// * `read`, `getattr`, `seek`, `blocks_required`, `flush` and `inquiry` can be executed twice
///   without harm;
/// * `write`, `punch`, `copy_range`, `setattr`, and whatever sets a key, a size or settings, set what they set once
///   more, which shows only if somebody else changed the same in between;
/// * `append` is done once, whatever is sent how often ([`DriveClient::append`]);
/// * `remove` of an object or a partition that an earlier try may have removed counts as done, and
///   so does making a partition that an earlier try may have made;
/// * a `batch` that makes nothing is sent again as a whole, and what an earlier try may have removed
///   counts as removed; one that makes objects is not sent again once it may have been executed
///   ([`DriveClient::batch`]);
/// * `create` and `fastcopy` may leave an object that nobody knows of. Whoever needs to be sure lists
///   the partition ([`DriveClient::objects`]) and removes what is not referred to.
#[derive(Clone)]
pub struct DriveClient {
    shared: Arc<Shared>,
    retry: RetryPolicy,
}

/// What the clones of a client share.
struct Shared {
    connector: Arc<dyn Connector>,
    server: Server,
    host: Arc<dyn Host>,
    pool: Pool<DriveConnection, Failure>,
    clock: DriveClock,
    connect_timeout: Duration,
    /// For data that are encrypted.
    buffers: BufferPool,
    facts: Mutex<Facts>,
}

/// What is known of the drive.
struct Facts {
    /// Which drive it must be; the first one found if that was left open.
    drive: Option<DriveId>,
    /// What it told when it was last connected to.
    information: Option<Arc<DriveInformation>>,
    /// How often it was another instance than the one before.
    restarts: u64,
}

impl DriveClient {
    /// The drive at `address` (`HOST:PORT`), which must be `drive` unless that is left open.
    /// Nothing is sent before the first call. It is reached by TCP, unless the options have another network.
    pub fn tcp(
        address: impl Into<String>,
        drive: Option<DriveId>,
        options: &ConnectOptions,
    ) -> DriveClient {
        let connector = options.network.connector(&address.into(), &options.transport);
        Self::over(connector, options.network.host(), drive, options)
    }

    /// The drive that `connector` connects to, on any host.
    pub fn over(
        connector: Arc<dyn Connector>,
        host: Arc<dyn Host>,
        drive: Option<DriveId>,
        options: &ConnectOptions,
    ) -> DriveClient {
        let shared = Shared {
            server: Server::new(connector.address()),
            connector,
            host,
            pool: Pool::new(options.connections),
            clock: DriveClock::new(options.max_clock_offset),
            connect_timeout: options.transport.connect_timeout,
            buffers: BufferPool::new(2 * MAX_TRANSFER_BYTES),
            facts: Mutex::new(Facts { drive, information: None, restarts: 0 }),
        };
        DriveClient { shared: Arc::new(shared), retry: options.retry }
    }

    /// The same drive, over the same connections, with another patience.
    pub fn with_retry(&self, retry: RetryPolicy) -> DriveClient {
        DriveClient { shared: Arc::clone(&self.shared), retry }
    }

    /// The drive's address.
    pub fn address(&self) -> &str {
        &self.shared.server.address
    }

    /// How often the drive was found to have started anew: told before the answer to any call that was sent to the new instance.
    pub fn restarts(&self) -> u64 {
        self.shared.facts().restarts
    }

    /// Which drive it is, if that was given or has been found out.
    pub fn drive(&self) -> Option<DriveId> {
        self.shared.facts().drive
    }

    /// What the drive told about itself when it was last connected to, if it ever was. For what it
    /// tells now there is [`DriveClient::inquiry`].
    pub fn information(&self) -> Option<Arc<DriveInformation>> {
        self.shared.facts().information.clone()
    }

    /// The time on the drive's clock, as well as it is known without asking; this host's time of
    /// day before the first call.
    pub fn drive_time(&self) -> Timestamp {
        self.shared.clock.now(&*self.shared.host)
    }

    /// Has calls that are under way come back now, as after a broken connection of which there is no other, and those that
    /// follow fail at once, until [`DriveClient::call_again`]. For who knows from elsewhere that the drive is away, or that its
    /// answers take too long. All clones are concerned.
    pub fn give_up(&self) {
        self.shared.server.set_given_up(true);
        // A call that has a connection by now has looked before whether the drive is given up, or will.
        for connection in self.shared.pool.in_use() {
            connection.channel.close();
        }
    }

    /// From now on the drive is called again.
    pub fn call_again(&self) {
        self.shared.server.set_given_up(false);
    }

    /// Whether calls fail at once.
    pub fn is_given_up(&self) -> bool {
        self.shared.server.is_given_up()
    }

    /// Most data bytes of one read or write.
    pub fn max_transfer(&self) -> usize {
        self.shared.facts().max_transfer()
    }
}

impl fmt::Debug for DriveClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriveClient")
            .field("address", &self.address())
            .field("drive", &self.drive())
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn facts(&self) -> MutexGuard<'_, Facts> {
        // Each change is a single assignment, so that a panic elsewhere leaves nothing half done.
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn address(&self) -> String {
        self.server.address.clone()
    }

    fn protocol_error(&self, why: impl Into<String>) -> ClientError {
        ClientError::Protocol { server: self.address(), why: why.into() }
    }
}

impl Facts {
    fn max_transfer(&self) -> usize {
        let told = self.information.as_ref().map(|information| information.max_transfer);
        let told = told.and_then(|bytes| usize::try_from(bytes).ok());
        told.unwrap_or(MAX_TRANSFER_BYTES).min(MAX_TRANSFER_BYTES)
    }
}
