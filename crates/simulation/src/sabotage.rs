//! A drive that does not do some of the writes that it acknowledges, to see whether that is found.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nasd_drive::Drive;
use nasd_store::WriteData;
use nasd_types::{ByteRange, ObjectId, ObjectName, PartitionId};

use crate::checker::REACH;
use crate::serving::{Answered, Request, Served, ServedDrive};

/// One write of so many is not done.
const ONE_OF: u64 = 4;

/// See the module.
pub struct Forgetful {
    drive: Arc<Drive>,
    served: Arc<dyn Served>,
    writes: AtomicU64,
}

impl Forgetful {
    /// Serves a drive so.
    pub fn serving(drive: Arc<Drive>) -> Arc<dyn Served> {
        let served = ServedDrive::serving(Arc::clone(&drive));
        Arc::new(Forgetful { drive, served, writes: AtomicU64::new(0) })
    }
}

impl Served for Forgetful {
    fn serve(&self, request: &Request) -> Option<Answered> {
        let name = request.name().filter(|_| request.procedure().starts_with("write"));
        let Some((partition, object)) = name else { return self.served.serve(request) };
        if !(self.writes.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(ONE_OF) {
            return self.served.serve(request);
        }
        let name = ObjectName { partition: PartitionId(partition), object: ObjectId(object) };
        let store = self.drive.store();
        let before = store.read(name, ByteRange::new(0, REACH)).ok();
        let answer = self.served.serve(request);
        if let Some(before) = before {
            let bytes: Vec<u8> =
                before.segments.iter().flat_map(|piece| piece.iter()).copied().collect();
            // Where it can't be undone, it was not done either.
            let _ = store.write(name, 0, WriteData::Slice(&bytes), self.drive.now());
        }
        answer
    }
}
