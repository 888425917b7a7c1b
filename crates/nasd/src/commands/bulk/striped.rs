//! Open files of bulk servers, by whatever authority they were opened.

use super::remote::{Failure, RemoteFile, RemoteLane};
use nasd_bulk_service::client::{BulkError, Lane, StripedFile};

/// No device has larger sectors.
const MOST_ALIGNMENT: u64 = 1 << 20;

/// A file whose first byte may be further back.
pub struct Striped {
    file: StripedFile,
    base: u64,
}

impl Striped {
    /// What follows in a file from an offset on.
    ///
    /// # Errors
    /// A server that wants what no device wants.
    pub fn new(file: StripedFile, base: u64) -> Result<Striped, Failure> {
        Ok(Striped { file: checked(file)?, base })
    }
}

/// A file whose server wants nothing that no device wants.
///
/// # Errors
/// A server that does.
pub fn checked(file: StripedFile) -> Result<StripedFile, Failure> {
    match file.alignment() {
        1..=MOST_ALIGNMENT => Ok(file),
        other => {
            Err(Failure::Final(format!("the server wants transfers of multiples of {other} bytes")))
        }
    }
}

impl RemoteFile for Striped {
    fn alignment(&self) -> u64 {
        self.file.alignment()
    }

    fn lane(&self) -> Result<Box<dyn RemoteLane + '_>, Failure> {
        Ok(Box::new(StripedLane { lane: self.file.lane(), base: self.base }))
    }

    fn size(&self) -> Result<u64, Failure> {
        Ok(self.file.size().map_err(failure)?.saturating_sub(self.base))
    }

    fn set_size(&self, size: u64) -> Result<(), Failure> {
        self.file.set_size(self.base + size).map_err(failure)
    }

    fn sync(&self) -> Result<(), Failure> {
        self.file.sync().map_err(failure)
    }
}

struct StripedLane<'f> {
    lane: Lane<'f>,
    base: u64,
}

impl RemoteLane for StripedLane<'_> {
    fn read_at(&mut self, into: &mut [u8], offset: u64) -> Result<usize, Failure> {
        self.lane.read_at(into, self.base + offset).map_err(failure)
    }

    fn write_at(&mut self, data: &[u8], offset: u64) -> Result<(), Failure> {
        self.lane.write_at(data, self.base + offset).map_err(failure)
    }
}

/// What an error of the bulk client is to a transfer.
pub fn failure(error: BulkError) -> Failure {
    let why = error.to_string();
    match error {
        BulkError::MayBeLost { .. } => Failure::MayBeLost(why),
        error if error.needs_new_capability() => Failure::Stale(why),
        _ => Failure::Final(why),
    }
}
