//! A request that is sent again, since its answer was lost, is not executed again.
//!
//! The outcome of a request goes into the journal with what it has changed. A request that has failed has
//! changed nothing, and is simply tried again.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, PoisonError};

use nasd_protocol::manager::{File, FileHandle, ManagerStatus};

use super::{Namespace, Outcome};
use crate::caller::Caller;
use crate::journal::step::RequestKey;

/// Requests that are being executed.
#[derive(Debug, Default)]
pub(super) struct Running {
    requests: Mutex<HashSet<RequestKey>>,
    ended: Condvar,
}

/// A request that nobody else executes meanwhile.
struct Turn<'a> {
    running: &'a Running,
    request: RequestKey,
}

impl Running {
    /// Waits until nobody executes the request.
    fn turn(&self, request: RequestKey) -> Turn<'_> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let mut requests = self
            .ended
            .wait_while(requests, |requests| requests.contains(&request))
            .unwrap_or_else(PoisonError::into_inner);
        requests.insert(request);
        Turn { running: self, request }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut requests = self.running.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.remove(&self.request);
        drop(requests);
        self.running.ended.notify_all();
    }
}

impl Namespace {
    /// Executes the caller's request, or answers it as it was executed before.
    fn once<T>(
        &self,
        caller: &Caller,
        execute: impl FnOnce() -> Outcome<T>,
        again: impl FnOnce(Option<FileHandle>) -> Outcome<T>,
    ) -> Outcome<T> {
        let request = caller.request;
        if !request.is_numbered() {
            return execute();
        }
        let (client, number) = (request.client, request.number);
        let request = RequestKey { peer: caller.peer, client, number };
        let _turn = self.running.turn(request);
        match self.journal.outcome(&request) {
            Some(handle) => {
                self.wait_for(self.journal.sequence())?;
                again(handle)
            }
            None => execute(),
        }
    }

    /// The same for what is answered with a file.
    pub(super) fn once_with_file(
        &self,
        caller: &Caller,
        execute: impl FnOnce() -> Outcome<File>,
    ) -> Outcome<File> {
        self.once(caller, execute, |handle| self.getattr(caller, handle.ok_or(ManagerStatus::Io)?))
    }

    /// The same for what is answered with nothing.
    pub(super) fn once_without(
        &self,
        caller: &Caller,
        execute: impl FnOnce() -> Outcome<()>,
    ) -> Outcome<()> {
        self.once(caller, execute, |_| Ok(()))
    }
}
