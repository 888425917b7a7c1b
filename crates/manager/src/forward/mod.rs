//! Store and forward: what clients ask of drives, done on their behalf. It is the way of a
//! server-attached disk, for clients that can't reach the drives and for comparison.
//!
//! * [`room`]: the memory that data pass through, received into and sent from the same place;
//! * `warrants`: the authority that requests go on with, which is the client's own;
//! * `moved`: how much went through.
//!
//! Nothing is kept of the data: an answer tells the drive's `instance`, by which the client knows what it
//! has to keep and to write again. A drive that is away is waited for shortly, and then the client is
//! told so: it asks again for as long as it wants to wait.

mod moved;
mod room;
mod warrants;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nasd_client::{ClientError, ConnectOptions, DriveClient, ReadOutcome, RetryPolicy};
use nasd_protocol::drive::{Appended, AttributesReply, Flushed, ReadData, Sought, Written};
use nasd_protocol::manager::{
    FORWARD_WRITE_HEAD_BYTES, FileHandle, ForwardAppendArguments, ForwardPunchArguments,
    ForwardReadArguments, ForwardSeekArguments, ForwardWriteArguments, ManagerStatus, Procedure,
};
use nasd_protocol::{Region, Status};
use nasd_transport::{Arriving, Receive};
use nasd_types::limits::MAX_TRANSFER_BYTES;
use nasd_types::{DriveId, Protection};
use nasd_xdr::from_bytes;

use crate::caller::Caller;
use crate::config::ManagerConfig;
use crate::handle::Shown;
use crate::namespace::{Namespace, Outcome};

pub(crate) use moved::Moved;
use moved::SinceStart;
use room::Room;
pub use room::{ForwardedData, Lent};
use warrants::{Warrant, Warrants};

/// How long a drive may take for one request: less than clients wait for one answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a read waits for memory.
const ROOM_PATIENCE: Duration = Duration::from_secs(1);

/// A drive, as data go there.
struct Drive {
    client: DriveClient,
    moved: SinceStart,
}

/// The way through the manager.
pub(crate) struct Forwarder {
    /// All of the cell, over connections of their own: names don't wait behind data.
    drives: BTreeMap<DriveId, Drive>,
    warrants: Warrants,
    room: Arc<Room>,
    moved: Moved,
}

/// Who asks, and the volume of the file that it asks for.
pub(crate) struct Asked<'a> {
    pub(crate) names: &'a Namespace,
    pub(crate) caller: &'a Caller,
    /// The identity that the connection has proved.
    pub(crate) member: &'a str,
}

/// Whether a procedure is one of those that go on to drives.
pub(crate) const fn is_forwarded(procedure: Procedure) -> bool {
    matches!(
        procedure,
        Procedure::ForwardRead
            | Procedure::ForwardWrite
            | Procedure::ForwardFlush
            | Procedure::ForwardGetattr
            | Procedure::ForwardPunch
            | Procedure::ForwardSeek
            | Procedure::ForwardAppend
    )
}

/// Finds how many bytes of data the arguments before them announce.
type LengthIn = fn(&[u8]) -> Option<usize>;

/// The bytes before the data of a procedure that brings some, and how many of these the former say to
/// follow.
fn announced(procedure: Procedure) -> Option<(usize, LengthIn)> {
    match procedure {
        Procedure::ForwardWrite => Some((FORWARD_WRITE_HEAD_BYTES, |head| {
            from_bytes(head).ok().map(|write: ForwardWriteArguments| write.data_length)
        })),
        Procedure::ForwardAppend => Some((ForwardAppendArguments::HEAD_BYTES, |head| {
            from_bytes(head).ok().map(|append: ForwardAppendArguments| append.data_length)
        })),
        _ => None,
    }
}

/// Whether a procedure's arguments end with data.
pub(crate) fn brings_data(procedure: Procedure) -> bool {
    announced(procedure).is_some()
}

impl Forwarder {
    pub(crate) fn new(config: &ManagerConfig) -> Forwarder {
        let retry = RetryPolicy {
            deadline: config.short_patience,
            call_timeout: CALL_TIMEOUT,
            ..RetryPolicy::default()
        };
        let options = ConnectOptions {
            connections: config.forward_connections,
            retry,
            network: Arc::clone(&config.network),
            ..ConnectOptions::default()
        };
        let drive = |drive: &crate::config::DriveConfig| {
            let client = DriveClient::tcp(drive.address.clone(), Some(drive.id), &options);
            (drive.id, Drive { client, moved: SinceStart::default() })
        };
        Forwarder {
            drives: config.drives.iter().map(drive).collect(),
            // Whatever clients are told: who can alter these requests can alter everybody's files.
            warrants: Warrants::new(config.protection | Protection::INTEGRITY_ARGS),
            room: Room::new(config.forward_bytes),
            moved: Moved::default(),
        }
    }

    /// Data of clients that went through.
    pub(crate) const fn moved(&self) -> &Moved {
        &self.moved
    }

    /// Memory that data on their way take.
    pub(crate) fn lent_bytes(&self) -> usize {
        self.room.lent_bytes()
    }

    /// Data that went through to or from a drive since it was started.
    pub(crate) fn moved_of(&self, drive: DriveId) -> u64 {
        let known = self.drives.get(&drive);
        known.map_or(0, |drive| drive.moved.bytes(drive.instance()))
    }

    /// Where the data of a write or append go, which come from a member of the cell: into memory, if there
    /// is any. If not, [`Forwarder::write`] or [`Forwarder::append`] says so.
    pub(crate) fn receive(
        &self,
        call: &Arriving<'_>,
        procedure: Procedure,
        member: &str,
    ) -> Receive<Lent> {
        let Some((head_bytes, length_in)) = announced(procedure) else {
            return Receive::Whole;
        };
        let Some(head) = call.arguments.get(..head_bytes) else {
            return match call.complete {
                true => Receive::Discard { head_bytes: 0 },
                false => Receive::More { at_least: head_bytes },
            };
        };
        let Some(length) = length_in(head) else {
            return Receive::Discard { head_bytes: 0 };
        };
        match self.room.try_lend(member, length) {
            Some(payload) => Receive::Data { head_bytes, payload },
            None => Receive::Discard { head_bytes },
        }
    }

    /// Reads for a client; the data follow behind the answer.
    pub(crate) fn read(
        &self,
        asked: &Asked<'_>,
        wanted: &ForwardReadArguments,
    ) -> Outcome<(ReadData, ForwardedData)> {
        let length = wanted.length as usize;
        if length > MAX_TRANSFER_BYTES {
            return Err(ManagerStatus::Invalid);
        }
        let lent = self.room.lend_within(asked.member, length, ROOM_PATIENCE);
        let mut lent = lent.ok_or(ManagerStatus::Unavailable)?;
        let read = |client: &DriveClient, warrant: &Warrant| {
            read_all(client, warrant, wanted, lent.bytes_mut())
        };
        let outcome = self.ask(asked, wanted.file, read)?;
        self.moved.add_read(outcome.length);
        self.count_at(asked, wanted.file, outcome.length);
        let told = ReadData {
            logical_size: outcome.logical_size,
            fs_data_modify_time: outcome.fs_data_modify_time,
            data_length: outcome.length,
        };
        Ok((told, lent.cut(outcome.length)))
    }

    /// Writes what came from a client, if there was memory to receive it.
    pub(crate) fn write(
        &self,
        asked: &Asked<'_>,
        wanted: &ForwardWriteArguments,
        data: Option<Lent>,
    ) -> Outcome<Written> {
        let data = data.ok_or(ManagerStatus::Unavailable)?;
        let bytes = data.bytes();
        let written = self
            .ask(asked, wanted.file, |client, warrant| write_all(client, warrant, wanted, bytes))?;
        self.moved.add_written(bytes.len());
        self.count_at(asked, wanted.file, bytes.len());
        Ok(written)
    }

    /// Appends what came from a client, if there was memory to receive it.
    pub(crate) fn append(
        &self,
        asked: &Asked<'_>,
        wanted: &ForwardAppendArguments,
        data: Option<Lent>,
    ) -> Outcome<Appended> {
        let data = data.ok_or(ManagerStatus::Unavailable)?;
        let (bytes, told) = (data.bytes(), Duration::from_nanos(wanted.age_ns));
        let mut is_first = wanted.age_ns == 0;
        let appended = self.ask(asked, wanted.file, |client, warrant| {
            // What passed here counts too, or the drive would not look for the append far enough back.
            let age = if is_first { told } else { told + data.age().max(Duration::from_nanos(1)) };
            is_first = false;
            client.append(&warrant.authority, warrant.name(), (wanted.token, age), bytes)
        })?;
        self.moved.add_written(bytes.len());
        self.count_at(asked, wanted.file, bytes.len());
        Ok(appended)
    }

    /// Makes a file durable.
    pub(crate) fn flush(&self, asked: &Asked<'_>, file: FileHandle) -> Outcome<Flushed> {
        self.ask(asked, file, |client, warrant| {
            let name = warrant.name();
            client.flush(&warrant.authority, name.partition, &[name.object])
        })
    }

    /// What the drive keeps of a file.
    pub(crate) fn getattr(&self, asked: &Asked<'_>, file: FileHandle) -> Outcome<AttributesReply> {
        let attributes = self.ask(asked, file, |client, warrant| {
            client.getattr(&warrant.authority, warrant.name())
        })?;
        Ok(AttributesReply { attributes })
    }

    /// Makes a hole.
    pub(crate) fn punch(&self, asked: &Asked<'_>, wanted: &ForwardPunchArguments) -> Outcome<()> {
        let &ForwardPunchArguments { file, offset, length, durable } = wanted;
        let regions = [Region::single(offset, length)];
        self.ask(asked, file, |client, warrant| {
            client.punch(&warrant.authority, warrant.name(), &regions, durable).map(drop)
        })
    }

    /// Looks for data, or a hole.
    pub(crate) fn seek(&self, asked: &Asked<'_>, wanted: &ForwardSeekArguments) -> Outcome<Sought> {
        let &ForwardSeekArguments { file, offset, target } = wanted;
        let position = self.ask(asked, file, |client, warrant| {
            client.seek(&warrant.authority, warrant.name(), offset, target)
        })?;
        Ok(Sought { position })
    }

    /// Asks the drive of a file, by the caller's authority.
    fn ask<T>(
        &self,
        asked: &Asked<'_>,
        file: FileHandle,
        mut request: impl FnMut(&DriveClient, &Warrant) -> Result<T, ClientError>,
    ) -> Outcome<T> {
        let Asked { names, caller, .. } = asked;
        let answer = self.warrants.by_authority_of(names, caller, file, |warrant| {
            let drive = self.drives.get(&warrant.drive());
            drive.map(|drive| request(&drive.client, warrant)).transpose()
        })?;
        answer.map_err(|error| status_of(&error, file))?.ok_or(ManagerStatus::Stale)
    }

    fn count_at(&self, asked: &Asked<'_>, file: FileHandle, bytes: usize) {
        let location = asked.names.location(file);
        if let Some(drive) = location.and_then(|location| self.drives.get(&location.drive)) {
            drive.moved.add(drive.instance(), bytes);
        }
    }
}

impl Drive {
    /// Which start of the drive it is, as it told when it was last connected to.
    fn instance(&self) -> Option<u64> {
        self.client.information().map(|told| told.instance)
    }
}

/// Reads as much as was asked for, or as there is, in as many transfers as the drive wants.
fn read_all(
    client: &DriveClient,
    warrant: &Warrant,
    wanted: &ForwardReadArguments,
    into: &mut [u8],
) -> Result<ReadOutcome, ClientError> {
    let (name, length) = (warrant.name(), into.len());
    let mut done = 0;
    loop {
        let part = (length - done).min(client.max_transfer());
        let offset = wanted.offset.saturating_add(done as u64);
        let outcome =
            client.read(&warrant.authority, name, offset, &mut into[done..done + part])?;
        done += outcome.length;
        if outcome.length < part || done == length {
            return Ok(ReadOutcome { length: done, ..outcome });
        }
    }
}

/// Writes all, in as many transfers as the drive wants.
fn write_all(
    client: &DriveClient,
    warrant: &Warrant,
    wanted: &ForwardWriteArguments,
    data: &[u8],
) -> Result<Written, ClientError> {
    let name = warrant.name();
    let mut done = 0;
    loop {
        let end = data.len().min(done + client.max_transfer());
        let offset = wanted.offset.saturating_add(done as u64);
        let written =
            client.write(&warrant.authority, name, offset, &data[done..end], wanted.durable)?;
        done = end;
        if done == data.len() {
            return Ok(Written { length: data.len() as u64, ..written });
        }
    }
}

/// What a client is told of a drive's failure; the log is told the rest.
fn status_of(error: &ClientError, file: FileHandle) -> ManagerStatus {
    match error {
        ClientError::Unreachable { .. } | ClientError::Interrupted { .. } => {
            tracing::debug!(object = %Shown(file), %error, "could not forward");
            return ManagerStatus::Unavailable;
        }
        ClientError::TooLarge { .. } => return ManagerStatus::Invalid,
        ClientError::Drive(status) | ClientError::Refused(status) => match status {
            Status::NoSuchObject | Status::NoSuchPartition => return ManagerStatus::Stale,
            Status::NoSpace => return ManagerStatus::NoSpace,
            Status::ReadOnly => return ManagerStatus::ReadOnly,
            Status::TooLarge => return ManagerStatus::TooLarge,
            Status::BadArgument => return ManagerStatus::Invalid,
            Status::NotPermitted => return ManagerStatus::Permission,
            Status::Busy => return ManagerStatus::Unavailable,
            _ => {}
        },
        _ => {}
    }
    tracing::error!(object = %Shown(file), %error, "could not forward");
    ManagerStatus::Io
}
