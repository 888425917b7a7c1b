//! Metrics over HTTP, of a drive, a manager or a mount: `GET /metrics`, and nothing else.
//!
//! One thread answers one connection at a time, each within a fixed time and from a request of
//! bounded size, so that nobody can make it cost more than that.

use nasd_mount::MetricsAddress;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest head of a request, in bytes.
const MAX_REQUEST_BYTES: usize = 8 << 10;
/// How long a client may take, from its connection to the end of the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a stop is looked for.
const STOP_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// After a failed `accept`: what failed will most likely fail again.
const FAILURE_PAUSE: Duration = Duration::from_millis(200);
/// The format that Prometheus asks for.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Where metrics are asked for.
pub struct MetricsListener {
    listener: Listener,
    address: MetricsAddress,
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }
}

/// A connection of either kind.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Does the same with either.
macro_rules! either {
    ($stream:expr, $inner:ident => $operation:expr) => {
        match $stream {
            Stream::Tcp($inner) => $operation,
            Stream::Unix($inner) => $operation,
        }
    };
}

impl Listener {
    fn accept(&self) -> io::Result<(Stream, String)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                Ok((Stream::Tcp(stream), peer.to_string()))
            }
            Listener::Unix(listener) => {
                Ok((Stream::Unix(listener.accept()?.0), "a local process".to_owned()))
            }
        }
    }
}

impl MetricsListener {
    /// Listens.
    ///
    /// # Errors
    /// The system's, if the address is taken or not of this machine.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        // A connection that is gone between `poll` and `accept` must not stop the thread.
        listener.set_nonblocking(true)?;
        let address = MetricsAddress::Tcp(listener.local_addr()?);
        Ok(MetricsListener { listener: Listener::Tcp(listener), address })
    }

    /// Listens where that says. A socket is this user's alone, and takes the place of one that nobody
    /// listens on any more.
    ///
    /// # Errors
    /// The system's.
    pub fn bind_at(address: &MetricsAddress) -> io::Result<Self> {
        let path = match address {
            MetricsAddress::Tcp(address) => return MetricsListener::bind(*address),
            MetricsAddress::Unix(path) => path,
        };
        remove_dead(path)?;
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(MetricsListener { listener: Listener::Unix(listener), address: address.clone() })
    }

    /// Where it listens.
    pub fn address(&self) -> &MetricsAddress {
        &self.address
    }

    /// Answers with what `metrics` tells, until `stopping`.
    pub fn serve(&self, stopping: &AtomicBool, metrics: &dyn Fn() -> String) {
        while !stopping.load(Ordering::Acquire) {
            let mut waiting = [PollFd::new(&self.listener, PollFlags::IN)];
            if !matches!(rustix::event::poll(&mut waiting, Some(&STOP_INTERVAL)), Ok(1..)) {
                continue;
            }
            match self.listener.accept() {
                Ok((stream, peer)) => {
                    if let Err(error) = answer(stream, metrics) {
                        tracing::debug!(%peer, %error, "metrics were not sent");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection for metrics");
                    std::thread::sleep(FAILURE_PAUSE);
                }
            }
        }
    }
}

impl Drop for MetricsListener {
    fn drop(&mut self) {
        if let MetricsAddress::Unix(path) = &self.address {
            // If it is gone, so much the better.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl fmt::Debug for MetricsListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsListener").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Removes a socket that a process left behind.
fn remove_dead(path: &Path) -> io::Result<()> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// What a request is answered with.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Metrics,
    Refused(&'static str),
}

fn answer(stream: Stream, metrics: &dyn Fn() -> String) -> io::Result<()> {
    either!(&stream, stream => stream.set_nonblocking(false))?;
    let mut client = Client { stream, deadline: Instant::now() + PATIENCE };
    let verdict = match client.read_head() {
        Ok(Some(head)) => judge(&head),
        Ok(None) => Verdict::Refused("431 Request Header Fields Too Large"),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            Verdict::Refused("408 Request Timeout")
        }
        Err(error) => return Err(error),
    };
    let (status, content_type, body) = match verdict {
        Verdict::Metrics => ("200 OK", CONTENT_TYPE, metrics()),
        Verdict::Refused(status) => (status, "text/plain", format!("{status}: GET /metrics\n")),
    };
    let allow = if status.starts_with("405") { "Allow: GET\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}\
         Connection: close\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes())?;
    client.write_all(body.as_bytes())?;
    either!(&client.stream, stream => stream.shutdown(std::net::Shutdown::Write))
}

/// Judges the head of a request by its first line; nothing else in it matters here.
fn judge(head: &[u8]) -> Verdict {
    const BAD: Verdict = Verdict::Refused("400 Bad Request");
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Ok(line) = std::str::from_utf8(line) else { return BAD };
    let mut words = line.trim_end_matches('\r').split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return BAD;
    };
    if !version.starts_with("HTTP/1.") || method.is_empty() || !target.starts_with('/') {
        return BAD;
    }
    let path = target.split('?').next().unwrap_or_default();
    match (path, method) {
        ("/metrics", "GET") => Verdict::Metrics,
        ("/metrics", _) => Verdict::Refused("405 Method Not Allowed"),
        _ => Verdict::Refused("404 Not Found"),
    }
}

/// A client, whose time runs out.
struct Client {
    stream: Stream,
    deadline: Instant,
}

impl Client {
    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }

    /// The request up to its empty line; `None` if that is too far.
    fn read_head(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut head = Vec::new();
        let mut piece = [0; 1024];
        loop {
            let left = Some(self.left()?);
            either!(&self.stream, stream => stream.set_read_timeout(left))?;
            let length = match either!(&mut self.stream, stream => stream.read(&mut piece)) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => length,
                Err(error) if is_timeout(&error) => return Err(io::ErrorKind::TimedOut.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            head.extend_from_slice(&piece[..length]);
            let ends = |end: &[u8]| head.windows(end.len()).any(|window| window == end);
            if ends(b"\r\n\r\n") || ends(b"\n\n") {
                return Ok(Some(head));
            }
            if head.len() >= MAX_REQUEST_BYTES {
                return Ok(None);
            }
        }
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        // The answer to a client whose time is up still gets a moment.
        let grace = self.left().unwrap_or(FAILURE_PAUSE);
        self.deadline = Instant::now() + grace;
        while !bytes.is_empty() {
            let left = Some(self.left()?);
            either!(&self.stream, stream => stream.set_write_timeout(left))?;
            match either!(&mut self.stream, stream => stream.write(bytes)) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_metrics_are_served() {
        let refused = |text: &str| match judge(text.as_bytes()) {
            Verdict::Metrics => panic!("{text} was served"),
            Verdict::Refused(status) => status[..3].to_owned(),
        };
        assert_eq!(judge(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), Verdict::Metrics);
        assert_eq!(judge(b"GET /metrics?name=x HTTP/1.0\n\n"), Verdict::Metrics);
        assert_eq!(refused("POST /metrics HTTP/1.1\r\n\r\n"), "405");
        assert_eq!(refused("GET / HTTP/1.1\r\n\r\n"), "404");
        assert_eq!(refused("GET /metrics/.. HTTP/1.1\r\n\r\n"), "404");
        for bad in ["", "GET", "GET /metrics", "GET  /metrics HTTP/1.1", "GET /metrics HTTP/2 x"] {
            assert_eq!(refused(bad), "400", "{bad}");
        }
        assert_eq!(judge(b"\xff\xfe /metrics HTTP/1.1\r\n"), Verdict::Refused("400 Bad Request"));
    }

    #[test]
    fn a_client_gets_an_answer_and_the_thread_ends() {
        let metrics = MetricsListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let MetricsAddress::Tcp(address) = *metrics.address() else { panic!("it is TCP") };
        let stopping = AtomicBool::new(false);
        let ask = |request: &[u8]| {
            let mut answer = String::new();
            let exchange = TcpStream::connect(address).and_then(|mut stream| {
                stream.write_all(request)?;
                stream.read_to_string(&mut answer)
            });
            format!("{answer}{}", exchange.err().map_or(String::new(), |error| error.to_string()))
        };
        let answers = std::thread::scope(|scope| {
            scope.spawn(|| metrics.serve(&stopping, &|| "a 1\n".to_owned()));
            let first = ask(b"GET /metrics HTTP/1.1\r\n\r\n");
            // One that says nothing, and one that says too much, are in nobody's way.
            drop(TcpStream::connect(address));
            let long = ask(&[b'x'; MAX_REQUEST_BYTES]);
            let last = ask(b"GET /metrics HTTP/1.1\n\n");
            stopping.store(true, Ordering::Release);
            [first, long, last]
        });
        assert!(answers[0].starts_with("HTTP/1.1 200 OK\r\n"), "{answers:?}");
        assert!(answers[0].ends_with("\r\n\r\na 1\n"), "{answers:?}");
        assert!(answers[1].starts_with("HTTP/1.1 431"), "{answers:?}");
        assert!(answers[2].starts_with("HTTP/1.1 200"), "{answers:?}");
    }

    #[test]
    fn a_socket_is_its_owner_s_alone_and_takes_the_place_of_a_dead_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metrics");
        let address = MetricsAddress::parse(path.to_str().unwrap()).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        let metrics = MetricsListener::bind_at(&address).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(MetricsListener::bind_at(&address).is_err(), "somebody listens there");
        let stopping = AtomicBool::new(false);
        let answer = std::thread::scope(|scope| {
            scope.spawn(|| metrics.serve(&stopping, &|| "a 1\n".to_owned()));
            let mut answer = String::new();
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            stream.read_to_string(&mut answer).unwrap();
            stopping.store(true, Ordering::Release);
            answer
        });
        assert!(answer.ends_with("\r\n\r\na 1\n"), "{answer}");
        drop(metrics);
        assert!(!path.exists());
        std::fs::write(&path, "a file").unwrap();
        assert!(MetricsListener::bind_at(&address).is_err(), "no file is removed");
    }
}
