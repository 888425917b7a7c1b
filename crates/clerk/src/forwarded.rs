//! The drives by the way of the file manager: each call goes there, on behalf of whom the capability
//! was granted to. The manager uses one of its own for him; ours tells what may be opened.

use std::time::Duration;

use nasd_bulk_service::client::Way;
use nasd_client::ManagerClient;
use nasd_types::{AppendToken, Attributes, ByteRange, DriveId, Timestamp};

use crate::ClerkError;
use crate::backend::{Grant, Objects};
use crate::extending::{ExtendedPart, ExtensionCall};
use crate::open_file::OpenMode;
use crate::pieces::read_one_by_one;
use crate::wire::{
    Appended, Copied, RangeToCopy, ReadOutcome, SeekTarget, Status, Volume, Written,
};

/// The drives of a volume, behind its manager.
pub(crate) struct ForwardedDrives {
    way: ManagerClient,
}

impl ForwardedDrives {
    /// By this client of the manager.
    pub(crate) fn new(way: ManagerClient) -> Self {
        ForwardedDrives { way }
    }
}

impl Objects for ForwardedDrives {
    fn read(&self, grant: &Grant, offset: u64, into: &mut [u8]) -> Result<ReadOutcome, ClerkError> {
        Ok(self.way.forward_read(&grant.caller, grant.handle, offset, into)?)
    }

    fn read_pieces(
        &self,
        grant: &Grant,
        pieces: &[ByteRange],
    ) -> Result<(ReadOutcome, Vec<u8>), ClerkError> {
        read_one_by_one(pieces, |offset, into| self.read(grant, offset, into))
    }

    fn write(
        &self,
        grant: &Grant,
        offset: u64,
        data: &[u8],
        durable: bool,
    ) -> Result<Written, ClerkError> {
        Ok(self.way.forward_write(&grant.caller, grant.handle, offset, data, durable)?)
    }

    fn append(
        &self,
        grant: &Grant,
        identity: (AppendToken, Duration),
        data: &[u8],
    ) -> Result<Appended, ClerkError> {
        Ok(self.way.forward_append(&grant.caller, grant.handle, identity, data)?)
    }

    fn flush(&self, grant: &Grant) -> Result<u64, ClerkError> {
        Ok(self.way.forward_flush(&grant.caller, grant.handle)?.instance)
    }

    fn getattr(&self, grant: &Grant) -> Result<Attributes, ClerkError> {
        Ok(self.way.forward_getattr(&grant.caller, grant.handle)?)
    }

    fn punch(&self, grant: &Grant, range: ByteRange) -> Result<(), ClerkError> {
        Ok(self.way.forward_punch(&grant.caller, grant.handle, range, true)?)
    }

    /// The manager has no such call: whoever copies reads and writes.
    fn copy_range(
        &self,
        _target: &Grant,
        _source: &Grant,
        _copy: &RangeToCopy,
    ) -> Result<Copied, ClerkError> {
        Err(ClerkError::Apart)
    }

    fn seek(
        &self,
        grant: &Grant,
        offset: u64,
        target: SeekTarget,
    ) -> Result<Option<u64>, ClerkError> {
        Ok(self.way.forward_seek(&grant.caller, grant.handle, offset, target)?)
    }

    /// The manager has no such call: whoever wants an extension's answer reads.
    fn extend(
        &self,
        _grant: &Grant,
        _ranges: &[ByteRange],
        _call: &ExtensionCall,
    ) -> Result<Vec<ExtendedPart>, ClerkError> {
        Err(ClerkError::Drive(Status::NoSuchExtension))
    }

    /// Drives are not reached directly.
    fn bulk_way(
        &self,
        _grant: &Grant,
        _mode: OpenMode,
        _is_anew: bool,
    ) -> Result<Option<Way>, ClerkError> {
        Ok(None)
    }

    fn drive_time(&self, _grant: &Grant) -> Timestamp {
        Timestamp(0)
    }

    /// Where the drives are is the manager's affair.
    fn set_volume(&self, _volume: &Volume) {}

    fn breadth(&self, _drive: DriveId) -> u32 {
        1
    }

    /// That is told this way only in answer to writes and flushes.
    fn restarts(&self) -> Option<u64> {
        None
    }
}
