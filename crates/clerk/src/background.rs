//! The clerk's one background thread: flushes files that have been left alone for a while, and gives back what was given with new ones and not used.

use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::core::Core;
use crate::file::FileState;

/// How often files that are not durable are looked at.
const PERIOD: Duration = Duration::from_millis(250);

/// A file that is being written all the time is flushed in the background this often.
const FLUSH_AT_LEAST: Duration = Duration::from_secs(5);

/// Where there are callbacks a file is stored when it is closed; one that stays open this often.
const STORE_AT_LEAST: Duration = Duration::from_secs(30);

/// How long the memory of writes is kept when all is durable: who writes in bursts, each made durable, has it again.
const CALM_AFTER: Duration = Duration::from_secs(2);

/// Starts the thread; it ends when the core's list of dirty files is closed.
pub(crate) fn start(core: &Arc<Core>) -> std::io::Result<JoinHandle<()>> {
    let core = Arc::clone(core);
    thread::Builder::new().name("nasd-flush".into()).spawn(move || run(&core))
}

fn run(core: &Arc<Core>) {
    while let Some(files) = next_files(core) {
        core.spare.trim();
        let (idle, at_least) = match core.promises() {
            Some(_) => (STORE_AT_LEAST, STORE_AT_LEAST),
            None => (core.settings.flush_after_idle, FLUSH_AT_LEAST),
        };
        let given = core.dirty().take_given();
        given.into_iter().for_each(|given| given.end(core));
        for file in files.iter().filter(|file| file.is_due(idle, at_least)) {
            file.sync_in_background(core);
        }
    }
}

/// Waits for a period; without dirty files, for as long as there are none.
fn next_files(core: &Core) -> Option<Vec<Arc<FileState>>> {
    let mut dirty = core.dirty();
    let mut is_calm = false;
    while dirty.is_empty() && !dirty.closed {
        dirty.is_awaited = true;
        if is_calm {
            dirty = core.dirtied.wait(dirty).unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let waited = core.dirtied.wait_timeout(dirty, CALM_AFTER);
        let (now, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        dirty = now;
        if waited.timed_out() && dirty.is_empty() {
            // It takes a while, which no writer should wait for.
            drop(dirty);
            core.spare.calm_down();
            is_calm = true;
            dirty = core.dirty();
        }
    }
    dirty.is_awaited = false;
    if !dirty.closed {
        let period = PERIOD.min(core.settings.flush_after_idle);
        dirty = core
            .dirtied
            .wait_timeout_while(dirty, period, |dirty| !dirty.closed)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
    (!dirty.closed).then(|| dirty.files.values().cloned().collect())
}
