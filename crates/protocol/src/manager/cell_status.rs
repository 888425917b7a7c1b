//! `status`: the state of the cell, drive by drive.

use nasd_types::{CellId, DriveId, Timestamp};
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{Name, Operation, Procedure};
use crate::drive::DriveControl;
use crate::limits::{MAX_ADDRESS_BYTES, MAX_DRIVES};
use crate::wire::{Field, put_array, take_array};

/// The operation.
#[derive(Debug)]
pub enum StatusOperation {}

impl Operation for StatusOperation {
    const PROCEDURE: Procedure = Procedure::Status;
    type Arguments = ();
    type Reply = CellStatus;
}

/// One drive, as the file manager sees it (`nasd_drive_status`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveStatus {
    /// The drive.
    pub drive: DriveId,
    /// `HOST:PORT`; at most [`MAX_ADDRESS_BYTES`] bytes.
    pub address: String,
    /// Whether it answers.
    pub reachable: bool,
    /// What the drive itself tells, when it answers.
    pub control: Option<DriveControl>,
    /// Data bytes that went between clients and this drive through the manager, since either of
    /// the two was started. The drive counts them among those of holders of capabilities.
    pub forwarded_bytes: u64,
}

impl Field for DriveStatus {
    fn put(&self, out: &mut Encoder) {
        self.drive.put(out);
        out.string(&self.address);
        out.bool(self.reachable);
        self.control.put(out);
        out.u64(self.forwarded_bytes);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(DriveStatus {
            drive: Field::take(input)?,
            address: input.string(MAX_ADDRESS_BYTES)?.to_owned(),
            reachable: input.bool()?,
            control: Field::take(input)?,
            forwarded_bytes: input.u64()?,
        })
    }
}

/// The answer (`nasd_cell_status`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellStatus {
    /// The cell.
    pub cell: CellId,
    /// The volume that this manager serves.
    pub volume: Name,
    /// When the manager was started.
    pub started: Timestamp,
    /// Its drives, at most [`MAX_DRIVES`].
    pub drives: Vec<DriveStatus>,
    /// Bytes of file contents that passed the manager.
    pub file_data_bytes: u64,
    /// All bytes received on its client connections.
    pub client_bytes_received: u64,
    /// All bytes sent on them: names, attributes and capabilities.
    pub client_bytes_sent: u64,
    /// Requests since it was started.
    pub requests: u64,
}

impl XdrEncode for CellStatus {
    fn encode(&self, out: &mut Encoder) {
        self.cell.put(out);
        self.volume.put(out);
        self.started.put(out);
        put_array(&self.drives, out);
        out.u64(self.file_data_bytes);
        out.u64(self.client_bytes_received);
        out.u64(self.client_bytes_sent);
        out.u64(self.requests);
    }
}

impl XdrDecode for CellStatus {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(CellStatus {
            cell: Field::take(input)?,
            volume: Field::take(input)?,
            started: Field::take(input)?,
            drives: take_array(input, MAX_DRIVES)?,
            file_data_bytes: input.u64()?,
            client_bytes_received: input.u64()?,
            client_bytes_sent: input.u64()?,
            requests: input.u64()?,
        })
    }
}
