//! A request that is sent again, since its answer was lost, is not executed again.
//!
//! The outcome of a request goes into the journal with what it has changed. One that has failed has changed nothing, and the journal does not
//! know it; but neither may it change anything once the client was told so. When a client asks again since a connection was lost, the attempt
//! before may still be under way here, and come later: it is answered alike, or not executed at all where the client does not wait for its
//! answer any more. The next manager need not know: what this one had received ends with it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use nasd_protocol::manager::{File, FileHandle, ManagerStatus};

use super::{Namespace, Outcome};
use crate::caller::Caller;
use crate::journal::step::RequestKey;

/// So many failures of one client are known.
const MAX_FAILURES: usize = 1024;

/// Of so many clients.
const MAX_CLIENTS: usize = 1 << 14;

/// Requests that are being executed, and those that have failed.
#[derive(Debug, Default)]
pub(super) struct Running {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    requests: HashSet<RequestKey>,
    clients: HashMap<(u32, u64), Told>,
    /// How often anybody has asked for anything.
    asked: u64,
}

/// What a client was told, and does not have in the journal.
#[derive(Debug, Default)]
struct Told {
    /// It waits for no answer to an earlier request.
    oldest: u64,
    failed: BTreeMap<u64, ManagerStatus>,
    /// When it has asked last.
    asked: u64,
}

/// A request that nobody else executes meanwhile.
struct Turn<'a> {
    running: &'a Running,
    request: RequestKey,
}

impl State {
    /// A client asks for something, and waits for no answer to what it has asked for before `oldest`.
    fn asks(&mut self, request: &RequestKey, oldest: u64) {
        self.asked += 1;
        let told = self.clients.entry((request.peer, request.client)).or_default();
        told.asked = self.asked;
        told.oldest = told.oldest.max(oldest);
        told.failed = told.failed.split_off(&told.oldest);
        if self.clients.len() > MAX_CLIENTS {
            let silent = self.clients.iter().min_by_key(|(_, told)| told.asked);
            if let Some(client) = silent.map(|(client, _)| *client) {
                self.clients.remove(&client);
            }
        }
    }
}

impl Running {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody executes the request.
    fn turn(&self, request: RequestKey, oldest: u64) -> Turn<'_> {
        let mut state = self.state();
        state.asks(&request, oldest);
        let mut state = self
            .ended
            .wait_while(state, |state| state.requests.contains(&request))
            .unwrap_or_else(PoisonError::into_inner);
        state.requests.insert(request);
        Turn { running: self, request }
    }
}

impl Turn<'_> {
    /// How the request has failed, if it has; or that nobody waits for its answer any more, who could be told anything else.
    fn failure(&self) -> Option<ManagerStatus> {
        let state = self.running.state();
        let told = state.clients.get(&(self.request.peer, self.request.client))?;
        match self.request.number < told.oldest {
            true => Some(ManagerStatus::Invalid),
            false => told.failed.get(&self.request.number).copied(),
        }
    }

    /// The client is told that the request has failed. Where it is to try again, that is another attempt.
    fn fails(&self, status: ManagerStatus) {
        if status.is_transient() {
            return;
        }
        let mut state = self.running.state();
        let client = (self.request.peer, self.request.client);
        if let Some(told) = state.clients.get_mut(&client) {
            told.failed.insert(self.request.number, status);
            if told.failed.len() > MAX_FAILURES {
                told.failed.pop_first();
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.running.state().requests.remove(&self.request);
        self.running.ended.notify_all();
    }
}

impl Namespace {
    /// Executes the caller's request, or answers it as it was executed before.
    pub(super) fn once<T>(
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
        let key = RequestKey { peer: caller.peer, client, number };
        let turn = self.running.turn(key, request.oldest);
        if let Some(handle) = self.journal.outcome(&key) {
            self.wait_for(self.journal.sequence())?;
            return again(handle);
        }
        if let Some(status) = turn.failure() {
            return Err(status);
        }
        execute().inspect_err(|status| turn.fails(*status))
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
