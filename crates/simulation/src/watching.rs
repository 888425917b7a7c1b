//! Somebody looks at drives whenever they have done something.

use std::sync::Arc;

use nasd_drive::Drive;
use nasd_types::{DriveId, ObjectId};

use crate::serving::{Answered, Request, Served};

/// Which objects of a drive may be others than they were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Those that a request has named.
    Named(Vec<ObjectId>),
    /// All: it was started.
    All,
}

/// Who looks.
pub trait Watch: Send + Sync {
    /// A drive has done something. It must not be asked to do anything here, and nothing may be waited for.
    fn look(&self, drive: DriveId, store: &Drive, changed: Changed);
}

/// A drive that somebody looks at.
pub struct Watched {
    drive: DriveId,
    store: Arc<Drive>,
    served: Arc<dyn Served>,
    watch: Arc<dyn Watch>,
}

impl Watched {
    /// Serves a drive so, which has just been started.
    pub fn serving(
        (drive, store): (DriveId, Arc<Drive>),
        served: Arc<dyn Served>,
        watch: &Arc<dyn Watch>,
    ) -> Arc<dyn Served> {
        watch.look(drive, &store, Changed::All);
        Arc::new(Watched { drive, store, served, watch: Arc::clone(watch) })
    }
}

impl Served for Watched {
    fn serve(&self, request: &Request) -> Option<Answered> {
        let answer = self.served.serve(request);
        self.watch.look(self.drive, &self.store, Changed::Named(request.objects()));
        answer
    }
}
