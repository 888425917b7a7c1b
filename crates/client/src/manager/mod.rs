//! The file manager, as a client sees it.

mod calls;
mod extended;
mod forward;
mod operations;
mod requests;
mod sessions;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use nasd_rpc::{AuthSys, MAX_GROUPS};
use nasd_transport::{Channel, ClientOptions, ClientTls};
use nasd_types::limits::MAX_MANAGER_HEAD_BYTES;

use self::requests::Requests;
use crate::pool::{Connected, Pool};
use crate::retry::Server;
use crate::{
    ConnectOptions, Connector, Host, RetryPolicy, SystemHost, TlsConnector, TransportError,
};

/// On whose behalf the file manager is asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Caller {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups. AUTH_SYS has room for 16; more are left out, as NFS does.
    pub groups: Vec<u32>,
}

impl Caller {
    /// The superuser.
    pub const ROOT: Caller = Caller { uid: 0, gid: 0, groups: Vec::new() };

    /// The body of the RPC credential.
    fn credential(&self) -> Vec<u8> {
        let groups = &self.groups[..self.groups.len().min(MAX_GROUPS)];
        let credential =
            AuthSys { uid: self.uid, gid: self.gid, groups: groups.to_vec(), ..AuthSys::default() };
        credential.to_body()
    }
}

/// The file manager. Cheap to clone: clones share connections.
///
/// # Retries
///
/// A call whose connection breaks is sent again until it is answered or the deadline has passed;
/// also one to which the manager answers that a drive is away. Calls that change names or attributes
/// are numbered: the manager, also one that was started anew, answers such a call that it has executed before
/// as it did then. The others can be executed twice: they change nothing, or find done what they did, or, as
/// `rotate`, do no harm by doing it once more. `enroll` alone uses a token up:
/// [`crate::ClientError::Uncertain`].
#[derive(Clone)]
pub struct ManagerClient {
    shared: Arc<Shared>,
    retry: RetryPolicy,
}

struct Shared {
    connector: Arc<dyn Connector>,
    server: Server,
    host: Arc<dyn Host>,
    pool: Pool<ManagerConnection, TransportError>,
    connect_timeout: Duration,
    requests: Requests,
}

struct ManagerConnection(Arc<dyn Channel>);

impl Connected for ManagerConnection {
    fn is_open(&self) -> bool {
        self.0.is_open()
    }
}

impl ManagerClient {
    /// The manager at `address` (`HOST:PORT`). Nothing is sent before the first call.
    pub fn tls(
        address: impl Into<String>,
        tls: ClientTls,
        options: &ConnectOptions,
    ) -> ManagerClient {
        // Values of extended attributes are told in the head.
        let max_head_bytes = options.transport.max_head_bytes.max(MAX_MANAGER_HEAD_BYTES);
        let transport = ClientOptions { max_head_bytes, ..options.transport.clone() };
        let connector = TlsConnector::new(address, tls, transport);
        Self::over(Arc::new(connector), Arc::new(SystemHost::new()), options)
    }

    /// The manager that `connector` connects to, on any host.
    pub fn over(
        connector: Arc<dyn Connector>,
        host: Arc<dyn Host>,
        options: &ConnectOptions,
    ) -> ManagerClient {
        let server = Server::new(connector.address());
        let pool = Pool::new(options.connections);
        let connect_timeout = options.transport.connect_timeout;
        let requests = Requests::of(host.random().max(1));
        let shared = Shared { connector, server, host, pool, connect_timeout, requests };
        ManagerClient { shared: Arc::new(shared), retry: options.retry }
    }

    /// The same manager, over the same connections, with another patience.
    pub fn with_retry(&self, retry: RetryPolicy) -> ManagerClient {
        ManagerClient { shared: Arc::clone(&self.shared), retry }
    }

    /// The number that this client has drawn for itself: its requests are numbered under it, and its session
    /// is to have the same.
    pub fn number(&self) -> u64 {
        self.shared.requests.client()
    }

    /// The manager's address.
    pub fn address(&self) -> &str {
        &self.shared.server.address
    }
}

impl fmt::Debug for ManagerClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerClient").field("address", &self.address()).finish_non_exhaustive()
    }
}
