//! The kernel's interrupts, as the clerk's waits know them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nasd_clerk::{Interruptible, Interrupts};
use nasd_fuse::Context;

/// The requests of a session that wait.
struct OfSession(Arc<nasd_fuse::Interrupts>);

impl Interrupts for OfSession {
    fn wait(&self, request: u64, limit: Duration) -> bool {
        self.0.request(request).begin().wait(limit)
    }
}

/// Makes requests interruptible.
#[derive(Default)]
pub(crate) struct Interrupter {
    /// One session has one table.
    table: OnceLock<Arc<dyn Interrupts>>,
}

impl Interrupter {
    /// The request of this context, for who works for it.
    pub(crate) fn interruptible(&self, context: &Context) -> Interruptible {
        let interruption = &context.interruption;
        let made = || -> Arc<dyn Interrupts> {
            Arc::new(OfSession(Arc::clone(interruption.interrupts())))
        };
        Interruptible::new(interruption.unique(), Arc::clone(self.table.get_or_init(made)))
    }
}
