//! By which network, and on which host, servers are reached.

use std::fmt;
use std::sync::{Arc, OnceLock};

use nasd_transport::ClientOptions;

use crate::{Connector, Host, SystemHost, TcpConnector};

/// A network, as one host of it sees it. A simulation has one of its own, in which time passes only by what
/// happens there.
pub trait Network: fmt::Debug + Send + Sync {
    /// What makes connections to the server at `HOST:PORT`.
    fn connector(&self, address: &str, options: &ClientOptions) -> Arc<dyn Connector>;

    /// The host: the same one each time, so that times of it can be compared.
    fn host(&self) -> Arc<dyn Host>;
}

/// This machine's network, by TCP.
#[derive(Debug)]
pub struct TcpNetwork {
    host: Arc<SystemHost>,
}

impl TcpNetwork {
    /// The one of this process.
    pub fn shared() -> Arc<dyn Network> {
        static SHARED: OnceLock<Arc<TcpNetwork>> = OnceLock::new();
        let new = || Arc::new(TcpNetwork { host: Arc::new(SystemHost::new()) });
        Arc::clone(SHARED.get_or_init(new)) as Arc<dyn Network>
    }
}

impl Network for TcpNetwork {
    fn connector(&self, address: &str, options: &ClientOptions) -> Arc<dyn Connector> {
        Arc::new(TcpConnector::new(address, options.clone()))
    }

    fn host(&self) -> Arc<dyn Host> {
        Arc::clone(&self.host) as Arc<dyn Host>
    }
}
