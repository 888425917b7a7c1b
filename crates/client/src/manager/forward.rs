//! What is asked of drives, asked of the file manager: store and forward.

use std::io::IoSlice;
use std::time::Duration;

use nasd_protocol::drive::{
    Appended, AttributesReply, Flushed, READ_RESULT_HEAD_BYTES, Sought, Written,
};
use nasd_protocol::manager::{
    FileHandle, ForwardAppend, ForwardAppendArguments, ForwardFlush, ForwardGetattr, ForwardPunch,
    ForwardPunchArguments, ForwardRead, ForwardReadArguments, ForwardSeek, ForwardSeekArguments,
    ForwardWrite, ForwardWriteArguments,
};
use nasd_transport::ResultShape;
use nasd_types::limits::MAX_TRANSFER_BYTES;
use nasd_types::{AppendToken, Attributes, ByteRange, SeekTarget};

use super::calls::Bulk;
use super::{Caller, ManagerClient};
use crate::{ClientError, ReadOutcome};

/// Each of these fails with any [`ClientError`] but those of drives, whose statuses the manager puts in
/// words of its own. All but appends can be executed twice, as at a drive ([`crate::DriveClient`]).
impl ManagerClient {
    /// Reads from `offset` into the start of `into`, as much as that holds or as the file has.
    pub fn forward_read(
        &self,
        caller: &Caller,
        file: FileHandle,
        offset: u64,
        into: &mut [u8],
    ) -> Result<ReadOutcome, ClientError> {
        let arguments = ForwardReadArguments { file, offset, length: transfer_length(into.len())? };
        let results = ResultShape::DataAfter { head_bytes: READ_RESULT_HEAD_BYTES };
        let bulk = Bulk { sends: &[], into, results };
        let (told, length) = self.call_with::<ForwardRead>(caller, &arguments, bulk)?;
        if told.data_length != length {
            return Err(self.nonsense("the length of the data is told twice"));
        }
        let (logical_size, fs_data_modify_time) = (told.logical_size, told.fs_data_modify_time);
        Ok(ReadOutcome { length, logical_size, fs_data_modify_time })
    }

    /// Writes all of `data` at `offset`.
    pub fn forward_write(
        &self,
        caller: &Caller,
        file: FileHandle,
        offset: u64,
        data: &[u8],
        durable: bool,
    ) -> Result<Written, ClientError> {
        transfer_length(data.len())?;
        let arguments = ForwardWriteArguments { file, offset, durable, data_length: data.len() };
        let sends = [IoSlice::new(data)];
        let bulk = Bulk { sends: &sends, into: &mut [], results: ResultShape::Plain };
        let (written, _) = self.call_with::<ForwardWrite>(caller, &arguments, bulk)?;
        if written.length != data.len() as u64 {
            return Err(self.nonsense("a part of a write was written"));
        }
        Ok(written)
    }

    /// Writes all of `data` where the file ends, as [`crate::DriveClient::append`] does: in one piece,
    /// durably, and once however often the same `token` is used, which was used first so long ago.
    /// `Unsettled` if it failed, and an earlier try may have appended.
    pub fn forward_append(
        &self,
        caller: &Caller,
        file: FileHandle,
        (token, age): (AppendToken, Duration),
        data: &[u8],
    ) -> Result<Appended, ClientError> {
        transfer_length(data.len())?;
        let age_ns = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        let arguments = ForwardAppendArguments { file, token, age_ns, data_length: data.len() };
        let sends = [IoSlice::new(data)];
        let bulk = Bulk { sends: &sends, into: &mut [], results: ResultShape::Plain };
        let age_at = ForwardAppendArguments::AGE_AT;
        self.call_once_with::<ForwardAppend>(caller, &arguments, age_at, bulk)
    }

    /// Makes what was written to a file before durable. Tells the drive's instance.
    pub fn forward_flush(&self, caller: &Caller, file: FileHandle) -> Result<Flushed, ClientError> {
        self.call::<ForwardFlush>(caller, &file)
    }

    /// The attributes that the drive keeps of a file.
    pub fn forward_getattr(
        &self,
        caller: &Caller,
        file: FileHandle,
    ) -> Result<Attributes, ClientError> {
        let AttributesReply { attributes } = self.call::<ForwardGetattr>(caller, &file)?;
        Ok(attributes)
    }

    /// Makes bytes within the file's length read as zeros, and frees their blocks.
    pub fn forward_punch(
        &self,
        caller: &Caller,
        file: FileHandle,
        range: ByteRange,
        durable: bool,
    ) -> Result<(), ClientError> {
        let ByteRange { offset, length } = range;
        let arguments = ForwardPunchArguments { file, offset, length, durable };
        self.call::<ForwardPunch>(caller, &arguments)
    }

    /// Where data, or a hole, begins from `offset` on.
    pub fn forward_seek(
        &self,
        caller: &Caller,
        file: FileHandle,
        offset: u64,
        target: SeekTarget,
    ) -> Result<Option<u64>, ClientError> {
        let arguments = ForwardSeekArguments { file, offset, target };
        let Sought { position } = self.call::<ForwardSeek>(caller, &arguments)?;
        Ok(position)
    }

    fn nonsense(&self, why: &str) -> ClientError {
        ClientError::Protocol { server: self.address().to_owned(), why: why.to_owned() }
    }
}

fn transfer_length(bytes: usize) -> Result<u32, ClientError> {
    let limit = MAX_TRANSFER_BYTES;
    let length = u32::try_from(bytes).ok().filter(|_| bytes <= limit);
    length.ok_or(ClientError::TooLarge { amount: bytes, limit })
}
