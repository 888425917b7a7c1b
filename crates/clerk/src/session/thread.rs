//! The thread that keeps a session alive.

use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{Attachment, Session};
use crate::ClerkError;
use crate::core::Core;
use crate::wire::{
    AttachArguments, Event, EventsArguments, FileHandle, HeldLock, MAX_CLAIMS, ManagerStatus,
};

/// Between two attempts to reach the manager.
const PAUSE: Duration = Duration::from_millis(50);

/// Starts the thread; it ends when the session is closed.
pub(super) fn start(session: Arc<Session>, core: Weak<Core>) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name("nasd-session".into()).spawn(move || run(&session, &core))
}

fn run(session: &Session, core: &Weak<Core>) {
    let mut seen = 0;
    let mut open = Vec::new();
    while !session.state().closing {
        if session.state().attached.is_none() {
            (seen, open) = (0, Vec::new());
            if let Err(error) = session.attach() {
                tracing::debug!(%error, "no session yet");
                session.pause();
                continue;
            }
        }
        session.report_closed(core);
        open = session.still_kept(open);
        let asked = Instant::now();
        let arguments = EventsArguments { client: session.client, seen, open, wait: true };
        let outcome = session.backend.events(&arguments);
        // What was closed meanwhile may have been said to be closed before it was said to be open.
        let kept = session.still_kept(arguments.open.clone());
        let closed = arguments.open.iter().filter(|file| !kept.contains(file));
        session.close_removed(&closed.copied().collect::<Vec<_>>());
        open = Vec::new();
        match outcome {
            Ok(page) => {
                seen = page.first + page.events.len() as u64 - 1;
                session.is_alive(asked);
                open = session.deal_with(&page.events, core);
            }
            Err(ClerkError::Manager(ManagerStatus::NoSession)) => session.is_detached(),
            Err(error) => {
                open = arguments.open;
                tracing::debug!(%error, "the session is not heard of");
                session.pause();
            }
        }
    }
}

impl Session {
    /// Waits before another attempt, unless the session is closed.
    fn pause(&self) {
        let state = self.state();
        if !state.closing {
            drop(self.wait(state, PAUSE));
        }
    }

    /// Begins the session, or goes on with it at another manager, with all that is held.
    pub(super) fn attach(&self) -> Result<(), ClerkError> {
        // Another manager does not know of leases, and one that has given us up grants them to others.
        self.believe_nothing();
        let asked = Instant::now();
        // Nothing is given back meanwhile: what is claimed is what is held in the end.
        let mut state = self.state();
        let mut locks = Vec::new();
        for ((file, kind), held) in &state.held {
            locks.extend(held.iter().map(|lock| HeldLock {
                file: *file,
                kind: *kind,
                owner: lock.owner.owner,
                first: lock.range.first,
                last: lock.range.last,
                mode: lock.mode,
                process: lock.process,
            }));
        }
        let unclaimed = locks.split_off(locks.len().min(MAX_CLAIMS));
        let open: Vec<FileHandle> = state.removed.iter().copied().take(MAX_CLAIMS).collect();
        let arguments = AttachArguments { client: self.client, locks, open };
        let attached = self.backend.attach(&arguments)?;
        let lost = attached.lost.iter().filter_map(|place| arguments.locks.get(*place as usize));
        let lost: Vec<HeldLock> = lost.chain(&unclaimed).copied().collect();
        for lock in lost {
            state.lose(&lock);
        }
        // What was promised since, before the manager began this session, was promised to another one of this number, that is over: an
        // attachment whose answer was lost. (The kernel was told nothing of that: it could not be believed for any time.)
        self.forget_promises();
        let lease = Duration::from_nanos(attached.lease);
        let good_until = asked + lease;
        self.known.good_until(good_until);
        state.attached = Some(Attachment { instance: attached.instance, lease, good_until });
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Those of these files that are kept for this session.
    fn still_kept(&self, mut files: Vec<FileHandle>) -> Vec<FileHandle> {
        let state = self.state();
        files.retain(|file| state.removed.contains(file));
        files
    }

    fn is_alive(&self, asked: Instant) {
        if let Some(attached) = &mut self.state().attached {
            attached.good_until = asked + attached.lease;
            self.known.good_until(attached.good_until);
        }
    }

    /// The manager does not know the session, or not any more.
    fn is_detached(&self) {
        self.state().attached = None;
        self.believe_nothing();
        self.changed.notify_all();
    }

    /// Deals with events; of the removed files, those that are open here.
    fn deal_with(&self, events: &[Event], core: &Weak<Core>) -> Vec<FileHandle> {
        let mut open = Vec::new();
        let (mut directories, mut files) = (Vec::new(), Vec::new());
        let mut state = self.state();
        for event in events {
            match *event {
                Event::Removed(file) => {
                    let is_open = core.upgrade().is_some_and(|core| core.open_file(file).is_some());
                    if is_open {
                        state.removed.insert(file);
                        open.push(file);
                    }
                }
                Event::LockFree(file, kind) => {
                    // Whoever does not wait any more has removed his entry.
                    if let Some(count) = state.freed.get_mut(&(file, kind)) {
                        *count += 1;
                    }
                }
                Event::Broken(file, version) => {
                    self.promises.iter().for_each(|all| all.broken(file, version));
                    // Of a directory others may look names up now, or not any more.
                    self.known.end(file);
                    files.push(file);
                }
                Event::Changed(file) => {
                    self.promises.iter().for_each(|all| all.changed(file));
                    self.known.end(file);
                    files.push(file);
                }
                Event::DirectoryChanged(directory) => {
                    self.known.end(directory);
                    directories.push(directory);
                }
            }
        }
        drop(state);
        if !events.is_empty() {
            self.changed.notify_all();
        }
        // Where there are callbacks, a file may be a directory.
        directories.extend(&files);
        if !directories.is_empty() {
            self.tell_watcher(Some(&directories));
        }
        if !files.is_empty()
            && let Some(watcher) = self.watcher.get()
        {
            watcher.files_changed(Some(&files));
        }
        open
    }

    fn forget_promises(&self) {
        self.known.end_all();
        self.promises.iter().for_each(|promises| promises.lapsed());
    }

    /// What was told before may not be so any more.
    fn believe_nothing(&self) {
        self.forget_promises();
        self.tell_watcher(None);
        if let Some(watcher) = self.watcher.get().filter(|_| self.promises.is_some()) {
            watcher.files_changed(None);
        }
    }

    /// Whoever believes names on the word of this session does so no longer when this returns: those of these
    /// directories, or any.
    fn tell_watcher(&self, directories: Option<&[FileHandle]>) {
        if let Some(watcher) = self.watcher.get() {
            watcher.names_changed(directories);
        }
    }
}
