//! Reads and writes that are begun, and waited for later: one thread keeps many of them under way.

use std::fmt;
use std::io::IoSlice;

use nasd_protocol::drive::{Read, ReadArguments, ReadData, Write, WriteArguments, Written};
use nasd_protocol::{Region, Status};
use nasd_types::ObjectName;

use super::DriveClient;
use super::exchange::{Answer, Begun, Failure, Request};
use super::operations::{READ_HEAD_BYTES, ReadOutcome, joined_length};
use crate::{Authority, ClientError};

/// A read that was begun by [`DriveClient::begin_read`].
pub struct PendingRead<'a> {
    client: &'a DriveClient,
    authority: &'a Authority,
    arguments: ReadArguments,
    state: State<'a>,
}

enum State<'a> {
    Begun(Begun<'a>),
    /// It could not be begun: everything is left to the wait.
    Failed(Failure, Vec<u8>),
}

impl DriveClient {
    /// Begins to read from `offset` into the start of `into`, as much as that holds or as the
    /// object has. What came is told, and `into` given back, by [`PendingRead::wait`]. Any number
    /// of reads can be under way, to be waited for in any order and by any thread; but soon, as a
    /// drive gives up clients that don't take their replies.
    ///
    /// A read may be sent only when a later call is, or when it is waited for, so that many are
    /// sent at once: of small reads, several times as many a second can be had so as by
    /// [`DriveClient::read`].
    pub fn begin_read<'a>(
        &'a self,
        authority: &'a Authority,
        name: ObjectName,
        offset: u64,
        into: Vec<u8>,
    ) -> PendingRead<'a> {
        let regions = [Region::single(offset, into.len() as u64)];
        self.begin_read_regions(authority, name, &regions, into)
    }

    /// The same of the pieces of several regions, one after the other, which are together as long as `into`.
    pub fn begin_read_regions<'a>(
        &'a self,
        authority: &'a Authority,
        name: ObjectName,
        regions: &[Region],
        into: Vec<u8>,
    ) -> PendingRead<'a> {
        let arguments = ReadArguments { name, order: None, regions: regions.to_vec() };
        self.begin_read_arguments(authority, arguments, into)
    }

    /// The same with all that a read may say.
    pub fn begin_read_arguments<'a>(
        &'a self,
        authority: &'a Authority,
        arguments: ReadArguments,
        into: Vec<u8>,
    ) -> PendingRead<'a> {
        let limit = self.max_transfer();
        let state = if into.len() > limit {
            let error = ClientError::TooLarge { amount: into.len(), limit };
            State::Failed(error.into(), into)
        } else {
            let request = Request::receiving::<Read>(&arguments, READ_HEAD_BYTES);
            match self.shared.begin(authority, &request, into, self.retry.call_timeout) {
                Ok(begun) => State::Begun(begun),
                Err((failure, into)) => State::Failed(failure, into),
            }
        };
        PendingRead { client: self, authority, arguments, state }
    }
}

/// A write that was begun by [`DriveClient::begin_write`].
pub struct PendingWrite<'a> {
    client: &'a DriveClient,
    authority: &'a Authority,
    arguments: WriteArguments,
    data: &'a [IoSlice<'a>],
    begun: Result<Begun<'a>, Failure>,
}

impl DriveClient {
    /// Begins to write `data`, joined, which has the length and goes to the regions that the arguments say; as
    /// [`DriveClient::write_regions`] does. Many can be under way, as with [`DriveClient::begin_read`].
    pub fn begin_write<'a>(
        &'a self,
        authority: &'a Authority,
        arguments: WriteArguments,
        data: &'a [IoSlice<'a>],
    ) -> PendingWrite<'a> {
        let data_length = joined_length(data);
        let begun = match self.check_regions(&arguments.regions) {
            Ok(length) if length == data_length && length == arguments.data_length => {
                let request = Request::sending::<Write>(&arguments, data);
                self.shared
                    .begin(authority, &request, Vec::new(), self.retry.call_timeout)
                    .map_err(|(failure, _)| failure)
            }
            Ok(_) => Err(ClientError::Drive(Status::BadArgument).into()),
            Err(error) => Err(error.into()),
        };
        PendingWrite { client: self, authority, arguments, data, begun }
    }
}

impl PendingWrite<'_> {
    /// Waits until it is written. Where the connection broke, or the drive wanted another nonce, the write is
    /// made again as by [`DriveClient::write_regions`].
    ///
    /// # Errors
    ///
    /// Any [`ClientError`] but those of the file manager.
    pub fn wait(self) -> Result<Written, ClientError> {
        let PendingWrite { client, authority, arguments, data, begun } = self;
        match begun.and_then(|begun| client.shared.finish::<Write>(begun).0) {
            Ok(Ok(answer)) if answer.reply.length == arguments.data_length as u64 => {
                Ok(answer.reply)
            }
            Ok(Ok(_)) => Err(client.shared.protocol_error("a part of a write was written")),
            Err(Failure::Final(error)) => Err(error),
            // Whatever the drive refused it for, it refuses it again, or there is a cure for it.
            Ok(Err(_)) | Err(Failure::Transport(_)) => {
                client.write_arguments(authority, &arguments, data)
            }
        }
    }
}

impl PendingRead<'_> {
    /// Sends it now, and what else was begun: for who begins reads of several drives, all of which are to work on
    /// theirs while the first is waited for.
    pub fn send(self) -> Self {
        if let State::Begun(begun) = &self.state {
            begun.send(self.client.retry.call_timeout);
        }
        self
    }

    /// Whether [`wait`](Self::wait) will not wait, unless it has to make the read again. Nothing is
    /// received by asking.
    pub fn is_done(&mut self) -> bool {
        match &mut self.state {
            State::Begun(begun) => begun.call().is_done(),
            State::Failed(..) => true,
        }
    }

    /// Waits until this read is done, or some other call of the same connection: with many under way,
    /// those that are done first can be taken first, and others begun in their place. Those that are
    /// done already have to be taken before, or one more is waited for. Each wait may last as long as
    /// a call may take.
    pub fn wait_for_some(&mut self) {
        if let State::Begun(begun) = &mut self.state {
            begun.call().wait_for_some();
        }
    }

    /// Waits for what the read brought. Where the connection broke, or the drive wanted another
    /// nonce, the read is made again as by [`DriveClient::read`].
    ///
    /// # Errors
    ///
    /// Any [`ClientError`] but those of the file manager. The buffer, whose contents are then
    /// unspecified, comes back all the same.
    pub fn wait(self) -> (Result<ReadOutcome, ClientError>, Vec<u8>) {
        let PendingRead { client, authority, arguments, state } = self;
        let (result, mut into) = match state {
            State::Begun(begun) => client.shared.finish::<Read>(begun),
            State::Failed(failure, into) => (Err(failure), into),
        };
        let result = match result {
            Ok(Ok(answer)) => client.outcome(&answer),
            Err(Failure::Final(error)) => Err(error),
            // Whatever the drive refused it for, it refuses it again, or there is a cure for it.
            Ok(Err(_)) | Err(Failure::Transport(_)) => {
                client.read_arguments(authority, &arguments, &mut into)
            }
        };
        (result, into)
    }
}

impl DriveClient {
    /// What a read brought.
    pub(super) fn outcome(&self, answer: &Answer<ReadData>) -> Result<ReadOutcome, ClientError> {
        if answer.reply.data_length != answer.data_length {
            return Err(self.shared.protocol_error("the length of the data is told twice"));
        }
        Ok(ReadOutcome {
            length: answer.data_length,
            logical_size: answer.reply.logical_size,
            fs_data_modify_time: answer.reply.fs_data_modify_time,
        })
    }
}

impl fmt::Debug for PendingWrite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingWrite").field("arguments", &self.arguments).finish_non_exhaustive()
    }
}

impl fmt::Debug for PendingRead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingRead").field("arguments", &self.arguments).finish_non_exhaustive()
    }
}
