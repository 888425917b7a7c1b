//! How many files, and so connections, this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit to what the process may raise it to: the usual one is for programs that wait with
/// `select`, which can't count beyond 1024, and is less than a drive has connections.
pub fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        // The servers are content with fewer connections, and say so.
        tracing::debug!(%error, "cannot raise the limit on open files");
    }
}
