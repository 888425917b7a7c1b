//! A bare echo over TCP: blocking sockets without delay, one request at a time, one thread at
//! each end, and nothing done with the bytes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::BenchError;

/// A connection to a thread that answers each request with a reply.
#[derive(Debug)]
pub(crate) struct Echo {
    /// `None` when it is being closed.
    socket: Option<TcpStream>,
    server: Option<JoinHandle<()>>,
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Echo {
    /// Requests and replies of so many bytes.
    pub(crate) fn start(request_bytes: usize, reply_bytes: usize) -> Result<Echo, BenchError> {
        let io = BenchError::io("can't measure a bare echo");
        let listener = TcpListener::bind("127.0.0.1:0").map_err(&io)?;
        let socket = TcpStream::connect(listener.local_addr().map_err(&io)?).map_err(&io)?;
        let (far, _) = listener.accept().map_err(&io)?;
        for socket in [&socket, &far] {
            socket.set_nodelay(true).map_err(&io)?;
        }
        let server = std::thread::Builder::new()
            .name("echo".to_owned())
            .spawn(move || answer(far, request_bytes, reply_bytes))
            .map_err(&io)?;
        Ok(Echo {
            socket: Some(socket),
            server: Some(server),
            request: vec![1; request_bytes],
            reply: vec![0; reply_bytes],
        })
    }

    /// The time of one round trip, in microseconds.
    pub(crate) fn round_trip(&mut self) -> Result<f64, BenchError> {
        let io = BenchError::io("can't measure a bare echo");
        let Some(socket) = &mut self.socket else {
            return Err(io(std::io::ErrorKind::NotConnected.into()));
        };
        let begun = Instant::now();
        socket.write_all(&self.request).map_err(&io)?;
        socket.read_exact(&mut self.reply).map_err(&io)?;
        Ok(begun.elapsed().as_secs_f64() * 1e6)
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        drop(self.socket.take());
        if let Some(server) = self.server.take() {
            // It has nothing to panic about, and nobody to tell.
            let _ = server.join();
        }
    }
}

/// Ends when the other end closes.
fn answer(mut socket: TcpStream, request_bytes: usize, reply_bytes: usize) {
    let (mut request, reply) = (vec![0; request_bytes], vec![2; reply_bytes]);
    while socket.read_exact(&mut request).is_ok() && socket.write_all(&reply).is_ok() {}
}
