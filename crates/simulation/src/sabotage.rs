//! Drives that do not do some of what they acknowledge, to see whether that is found.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nasd_drive::Drive;
use nasd_store::WriteData;
use nasd_types::{ByteRange, ObjectId, ObjectName, PartitionId};

use crate::checker::REACH;
use crate::serving::{Answered, Request, Served, ServedHere};

/// One write of so many is not done.
const ONE_OF: u64 = 4;

/// A drive that does not do some of the writes.
pub struct Forgetful {
    drive: Arc<Drive>,
    served: Arc<dyn Served>,
    writes: AtomicU64,
}

impl Forgetful {
    /// Serves a drive so.
    pub fn serving(drive: Arc<Drive>) -> Arc<dyn Served> {
        let served = ServedHere::serving(Arc::clone(&drive));
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

/// A drive whose copies of objects are all zeros.
pub struct BadCopier {
    drive: Arc<Drive>,
    served: Arc<dyn Served>,
}

impl BadCopier {
    /// Serves a drive so.
    pub fn serving(drive: Arc<Drive>) -> Arc<dyn Served> {
        let served = ServedHere::serving(Arc::clone(&drive));
        Arc::new(BadCopier { drive, served })
    }

    fn objects(&self, partition: PartitionId) -> Vec<ObjectId> {
        let store = self.drive.store();
        store.list(partition, ObjectId::FIRST_OBJECT, 1000).unwrap_or_default()
    }
}

impl Served for BadCopier {
    fn serve(&self, request: &Request) -> Option<Answered> {
        let name = request.name().filter(|_| request.procedure().starts_with("fastcopy"));
        let Some((partition, _)) = name else { return self.served.serve(request) };
        let partition = PartitionId(partition);
        let before = self.objects(partition);
        let answer = self.served.serve(request);
        for object in self.objects(partition).into_iter().filter(|it| !before.contains(it)) {
            let name = ObjectName { partition, object };
            let length = self.drive.store().getattr(name).map_or(0, |told| told.logical_size);
            let zeros = vec![0; length as usize];
            // Where it can't be spoiled, it is as it should be.
            let _ = self.drive.store().write(name, 0, WriteData::Slice(&zeros), self.drive.now());
        }
        answer
    }
}
