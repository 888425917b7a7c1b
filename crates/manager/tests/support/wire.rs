//! A way to a server that can be cut: at once, so that both ends are told, or silently, as by a network that loses all.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The way. It carries all that comes to its address, as long as the process lives.
pub struct Wire {
    pub address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    way: Mutex<Way>,
    is_healed: Condvar,
}

#[derive(Default)]
struct Way {
    /// Nothing gets through, and nobody is told.
    is_silent: bool,
    /// Nobody gets a connection.
    is_closed: bool,
    /// Both ends of those that there are.
    ends: Vec<TcpStream>,
}

impl State {
    fn way(&self) -> MutexGuard<'_, Way> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when something gets through.
    fn await_way(&self) {
        let way = self.way();
        drop(self.is_healed.wait_while(way, |way| way.is_silent).unwrap());
    }

    /// Connects one client with the server, if there is a way.
    fn connect(self: &Arc<Self>, client: TcpStream, server: SocketAddr) -> std::io::Result<()> {
        let mut way = self.way();
        if way.is_closed {
            return client.shutdown(Shutdown::Both);
        }
        let server = TcpStream::connect(server)?;
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (state, from, to) = (Arc::clone(self), from.try_clone()?, to.try_clone()?);
            from.set_nodelay(true)?;
            thread::spawn(move || state.carry(from, to));
        }
        way.ends.extend([client, server]);
        Ok(())
    }

    fn carry(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut data = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from.read(&mut data) {
            self.await_way();
            if to.write_all(&data[..length]).is_err() {
                break;
            }
        }
        self.await_way();
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}

impl Wire {
    pub fn to(server: SocketAddr) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, state) = (listener.local_addr().unwrap(), Arc::new(State::default()));
        let of_thread = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                // Who is not let through, or whose server is away, finds the connection closed.
                let _ = client.and_then(|client| of_thread.connect(client, server));
            }
        });
        Wire { address, state }
    }

    /// Ends all connections; no more are made.
    pub fn cut(&self) {
        let mut way = self.state.way();
        way.is_closed = true;
        for end in way.ends.drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    /// Nothing gets through, which nobody is told.
    pub fn fall_silent(&self) {
        self.state.way().is_silent = true;
    }

    /// All is carried again, also what was on its way.
    pub fn heal(&self) {
        let mut way = self.state.way();
        (way.is_silent, way.is_closed) = (false, false);
        self.state.is_healed.notify_all();
    }
}
