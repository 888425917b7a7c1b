//! The file manager, as a client sees it.

mod calls;
mod operations;
mod sessions;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use nasd_rpc::{AuthSys, MAX_GROUPS};
use nasd_transport::{Channel, ClientTls};

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
/// also one to which the manager answers that a drive is away. The manager keeps no list of calls
/// that it has answered, so that one whose reply was lost may be executed twice:
/// * `volume`, `lookup`, `getattr`, `readdir`, `space`, `status` change nothing, and `setattr` and
///   `create` without `exclusive` find done what they did; `rotate` changes keys once more;
/// * `unlink` and `rmdir` that find no such name after a lost reply count as done;
/// * `create` with `exclusive`, `mkdir`, `symlink` and `link` that find the name taken, and
///   `rename` that finds no such name (or, with NO_REPLACE, the new one taken), fail with
///   [`crate::ClientError::Uncertain`]. It would be wrong to call that a success: somebody
///   else may have got the lock that the name stands for.
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
        let connector = TlsConnector::new(address, tls, options.transport.clone());
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
        let shared = Shared { connector, server, host, pool, connect_timeout };
        ManagerClient { shared: Arc::new(shared), retry: options.retry }
    }

    /// The same manager, over the same connections, with another patience.
    pub fn with_retry(&self, retry: RetryPolicy) -> ManagerClient {
        ManagerClient { shared: Arc::clone(&self.shared), retry }
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
