//! Connections that take the place of others.
//!
//! A client that has lost a connection makes another one, and asks again for what was not answered. What it has sent on the lost
//! one may still lie at the server; done later, it would go over what was written since. So a client names its session in
//! each open, and a connection of that name is served only when nothing is done any more for the one before.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The sessions of one server.
#[derive(Debug, Default)]
pub struct Sessions {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By their names and files: the connection of each, and which it is.
    open: HashMap<(u64, u64), (u64, TcpStream)>,
    count: u64,
}

/// A connection that is the only one of its session as long as this lives.
#[derive(Debug)]
pub(super) struct Session<'a> {
    sessions: &'a Sessions,
    name: (u64, u64),
    number: u64,
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic is done with it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection begins in the place of the one that has the name for the same file, which is closed and waited for. Those without a name (0) take
    /// nobody's place.
    pub(super) fn begin(
        &self,
        name: (u64, u64),
        stream: &TcpStream,
    ) -> io::Result<Option<Session<'_>>> {
        if name.0 == 0 {
            return Ok(None);
        }
        let stream = stream.try_clone()?;
        let mut state = self.lock();
        while let Some((_, before)) = state.open.get(&name) {
            before.shutdown(Shutdown::Both).ok();
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.count += 1;
        let number = state.count;
        state.open.insert(name, (number, stream));
        Ok(Some(Session { sessions: self, name, number }))
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let mut state = self.sessions.lock();
        if state.open.get(&self.name).is_some_and(|(number, _)| *number == self.number) {
            state.open.remove(&self.name);
        }
        drop(state);
        self.sessions.ended.notify_all();
    }
}
