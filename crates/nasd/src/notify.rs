//! Telling the service manager what a process does: the datagrams of sd_notify(3), of which the
//! whole protocol is one line of text sent to the socket that `NOTIFY_SOCKET` names.

use std::ffi::{OsStr, OsString};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable that names the socket. Whoever starts a process of its own takes it away from that
/// process, whose words are not those of the service.
pub const VARIABLE: &str = "NOTIFY_SOCKET";

/// The service serves.
pub const READY: &str = "READY=1";
/// The service has begun to end.
pub const STOPPING: &str = "STOPPING=1";

/// Tells the service manager, if there is one that wants to know. A service goes on without.
pub fn tell(state: &str) {
    let Some(socket) = std::env::var_os(VARIABLE) else { return };
    if let Err(error) = send(&socket, state) {
        tracing::warn!(%error, socket = %socket.display(), "the service manager was not told {state}");
    }
}

fn send(socket: &OsStr, state: &str) -> std::io::Result<()> {
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address(socket)?).map(drop)
}

/// A path, or the name of an abstract socket behind an `@`.
fn address(socket: &OsStr) -> std::io::Result<SocketAddr> {
    match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(OsString::from(socket)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_reach_a_path_and_an_abstract_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let name = format!("@nasd-notify-test-{}", std::process::id());
        for socket in [path.as_os_str(), OsStr::new(&name)] {
            let listener = UnixDatagram::bind_addr(&address(socket).unwrap()).unwrap();
            send(socket, READY).unwrap();
            let mut bytes = [0; 64];
            let length = listener.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..length], READY.as_bytes());
        }
        assert!(send(OsStr::new("/nowhere/at/all"), READY).is_err());
    }
}
