//! The clerk's one background thread: flushes files that have been left alone for a while.

use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::core::Core;
use crate::file::FileState;

/// How often files that are not durable are looked at.
const PERIOD: Duration = Duration::from_millis(250);

/// Starts the thread; it ends when the core's list of dirty files is closed.
pub(crate) fn start(core: &Arc<Core>) -> std::io::Result<JoinHandle<()>> {
    let core = Arc::clone(core);
    thread::Builder::new().name("nasd-flush".into()).spawn(move || run(&core))
}

fn run(core: &Arc<Core>) {
    while let Some(files) = next_files(core) {
        for file in files.iter().filter(|file| file.is_due(core.settings.flush_after_idle)) {
            file.sync_in_background(core);
        }
    }
}

/// Waits for a period; without dirty files, for as long as there are none.
fn next_files(core: &Core) -> Option<Vec<Arc<FileState>>> {
    let mut dirty = core.dirty();
    if dirty.files.is_empty() {
        core.spare.calm_down();
    }
    while dirty.files.is_empty() && !dirty.closed {
        dirty = core.dirtied.wait(dirty).unwrap_or_else(PoisonError::into_inner);
    }
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
