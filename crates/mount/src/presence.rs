//! Tells other processes when the process of a mount has drained.
//!
//! The serving process listens on an abstract socket that is named after the mount's device
//! number, and never accepts. Who wants to know connects before he unmounts, and reads: the end
//! of the stream comes when the listener is closed or its process is gone.

use std::io::{self, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

fn address(device: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("nasd-mount-{device}"))
}

/// Held by the serving process until everything is drained.
#[derive(Debug)]
pub(crate) struct Presence {
    _listener: UnixListener,
}

impl Presence {
    /// Tells that the mount with this device number is being served.
    pub(crate) fn announce(device: &str) -> io::Result<Self> {
        Ok(Presence { _listener: UnixListener::bind_addr(&address(device)?)? })
    }
}

/// Waits for the process of a mount.
#[derive(Debug)]
pub(crate) struct Watch {
    stream: UnixStream,
}

impl Watch {
    /// Begins to watch the process that serves this device, if there is one.
    pub(crate) fn begin(device: &str) -> Option<Self> {
        let stream = UnixStream::connect_addr(&address(device).ok()?).ok()?;
        Some(Watch { stream })
    }

    /// Waits until the process has drained. False if that takes longer than `limit`.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        if self.stream.set_read_timeout(Some(limit)).is_err() {
            return false;
        }
        match (&self.stream).read(&mut [0]) {
            Ok(count) => count == 0,
            // A listener that closes resets those that it has not accepted.
            Err(error) => {
                !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_ends_with_the_presence() {
        let device = format!("test-{}", std::process::id());
        assert!(Watch::begin(&device).is_none());
        let presence = Presence::announce(&device).unwrap();
        assert!(Presence::announce(&device).is_err(), "one process a mount");
        assert!(!Watch::begin(&device).unwrap().wait(Duration::from_millis(20)));
        let watch = Watch::begin(&device).unwrap();
        let closer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(presence);
        });
        assert!(watch.wait(Duration::from_secs(60)));
        closer.join().unwrap();
        assert!(Watch::begin(&device).is_none());
    }
}
