//! The operations on objects, and inquiry.

use std::io::IoSlice;
use std::time::Duration;

use nasd_protocol::drive::{
    Append, AppendArguments, Appended, AttributesReply, BlocksRequired, Blocksrequired,
    BlocksrequiredArguments, Copied, Copyrange, Create, CreateArguments, Created, DriveInformation,
    Fastcopy, FastcopyArguments, Flush, FlushArguments, Flushed, Getattr, GetattrArguments, Map,
    MapArguments, ObjectMap, Punch, PunchArguments, RangeToCopy, Read, ReadArguments, Remove,
    RemoveArguments, Seek, SeekArguments, Setattr, SetattrArguments, Sought, Write, WriteArguments,
    Written,
};
use nasd_protocol::limits::MAX_FLUSH_OBJECTS;
use nasd_protocol::{Region, Status, expand, spread};
use nasd_types::{
    AppendToken, Attributes, ObjectId, ObjectName, PartitionId, SeekTarget, SetAttributes,
    Timestamp,
};

use super::DriveClient;
use super::begun::removed;
use super::exchange::{Answer, CallFailure, Failure, Request};
use crate::retry::Tries;
use crate::{Authority, ClientError};

/// Bytes of a successful read's results before its data: status, logical size, time and length.
pub(super) const READ_HEAD_BYTES: usize = 24;

/// What a read brought, besides the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Bytes that were put at the start of the caller's buffer; fewer than it holds only where the
    /// object ends.
    pub length: usize,
    /// The object's length.
    pub logical_size: u64,
    /// The object's file system data time.
    pub fs_data_modify_time: Timestamp,
}

/// Each of these fails with any [`ClientError`] but those of the file manager.
impl DriveClient {
    /// Asks the drive who it is and what it can do.
    pub fn inquiry(&self) -> Result<DriveInformation, ClientError> {
        let mut tries = Tries::new(&self.retry, &*self.shared.host);
        loop {
            let timeout = tries.begin();
            let error = match self.shared.ask(timeout) {
                Ok(information) => return Ok(information),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Transport(error)) => error,
            };
            tries.go_on_after(error, &self.shared.server, false)?;
        }
    }

    /// Makes an object with these attributes. See [`DriveClient`] for what a lost reply leaves.
    pub fn create(
        &self,
        authority: &Authority,
        partition: PartitionId,
        initial: &SetAttributes,
        durable: bool,
    ) -> Result<Created, ClientError> {
        let initial = initial.clone();
        let arguments = CreateArguments { partition, object: None, durable, initial };
        let request = Request::plain::<Create>(&arguments);
        Ok(self.call::<Create>(authority, &request, &mut [])?.reply)
    }

    /// Makes an object of a chosen identifier ([`ObjectId::is_named`]), by a key of the partition. Whoever
    /// chooses one must not do so twice. So it is made once, however often the call has to be sent: one that is
    /// there when an earlier try may have made it counts as made, with the attributes that it has then.
    ///
    /// # Errors
    ///
    /// `Drive(ObjectExists)` if no earlier try can have made the object that is there. `Unsettled` if one may
    /// have, but that could not be made sure of, or if all that speaks against it is an answer that anybody
    /// may have given.
    pub fn create_named(
        &self,
        authority: &Authority,
        name: ObjectName,
        initial: &SetAttributes,
        durable: bool,
    ) -> Result<Created, ClientError> {
        let ObjectName { partition, object } = name;
        let initial = initial.clone();
        let arguments = CreateArguments { partition, object: Some(object), durable, initial };
        let request = Request::plain::<Create>(&arguments);
        let made = self.call::<Create>(authority, &request, &mut []);
        self.made(authority, name, durable, made)
    }

    /// Removes an object. An object that is missing after an earlier try was lost counts as
    /// removed, if the drive says that it is missing: to holders of capabilities it only says that
    /// the digest is wrong.
    pub fn remove(
        &self,
        authority: &Authority,
        name: ObjectName,
        durable: bool,
    ) -> Result<(), ClientError> {
        let request = Request::plain::<Remove>(&RemoveArguments { name, durable });
        removed(self.call::<Remove>(authority, &request, &mut []))
    }

    /// Reads the attributes.
    pub fn getattr(
        &self,
        authority: &Authority,
        name: ObjectName,
    ) -> Result<Attributes, ClientError> {
        let request = Request::plain::<Getattr>(&GetattrArguments { name });
        let AttributesReply { attributes } =
            self.call::<Getattr>(authority, &request, &mut [])?.reply;
        Ok(attributes)
    }

    /// Changes some attributes; answers all of them.
    pub fn setattr(
        &self,
        authority: &Authority,
        name: ObjectName,
        changes: &SetAttributes,
        durable: bool,
    ) -> Result<Attributes, ClientError> {
        let arguments = SetattrArguments { name, durable, changes: changes.clone() };
        let request = Request::plain::<Setattr>(&arguments);
        let failure = match self.call::<Setattr>(authority, &request, &mut []) {
            Ok(answer) => return Ok(answer.reply.attributes),
            Err(failure) => failure,
        };
        // A length comes once with its version. Where an earlier try has set both, others may have changed the length.
        let version = changes.access_control_version.filter(|_| changes.logical_size.is_some());
        let is_refused = matches!(&failure.error, ClientError::Drive(Status::BadArgument));
        if is_refused && failure.ran_before && version.is_some() {
            let attributes = self.getattr(authority, name)?;
            if version == Some(attributes.access_control_version) {
                return Ok(attributes);
            }
        }
        Err(failure.into())
    }

    /// Reads from `offset` into the start of `into`, as much as that holds or as the object has.
    pub fn read(
        &self,
        authority: &Authority,
        name: ObjectName,
        offset: u64,
        into: &mut [u8],
    ) -> Result<ReadOutcome, ClientError> {
        let regions = [Region::single(offset, into.len() as u64)];
        self.read_regions(authority, name, &regions, into)
    }

    /// Reads the pieces of several regions, one after the other into the start of `into`, which
    /// holds all of them. Nothing follows a piece that runs into the end of the object.
    pub fn read_regions(
        &self,
        authority: &Authority,
        name: ObjectName,
        regions: &[Region],
        into: &mut [u8],
    ) -> Result<ReadOutcome, ClientError> {
        let arguments = ReadArguments { name, order: None, regions: regions.to_vec() };
        self.read_arguments(authority, &arguments, into)
    }

    /// The same with all that a read may say.
    pub(super) fn read_arguments(
        &self,
        authority: &Authority,
        arguments: &ReadArguments,
        into: &mut [u8],
    ) -> Result<ReadOutcome, ClientError> {
        let total = self.check_regions(&arguments.regions)?;
        let into = into.get_mut(..total).ok_or(ClientError::Drive(Status::BadArgument))?;
        let request = Request::receiving::<Read>(arguments, READ_HEAD_BYTES);
        let answer = self.call::<Read>(authority, &request, into)?;
        self.outcome(&answer)
    }

    /// Writes all of `data` at `offset`.
    pub fn write(
        &self,
        authority: &Authority,
        name: ObjectName,
        offset: u64,
        data: &[u8],
        durable: bool,
    ) -> Result<Written, ClientError> {
        self.write_vectored(authority, name, offset, &[IoSlice::new(data)], durable)
    }

    /// Writes all of `data`, joined, at `offset`.
    pub fn write_vectored(
        &self,
        authority: &Authority,
        name: ObjectName,
        offset: u64,
        data: &[IoSlice<'_>],
        durable: bool,
    ) -> Result<Written, ClientError> {
        let regions = [Region::single(offset, joined_length(data) as u64)];
        self.write_regions(authority, name, &regions, data, durable)
    }

    /// Writes `data`, joined, to the pieces of several regions, which are together as long.
    pub fn write_regions(
        &self,
        authority: &Authority,
        name: ObjectName,
        regions: &[Region],
        data: &[IoSlice<'_>],
        durable: bool,
    ) -> Result<Written, ClientError> {
        let data_length = joined_length(data);
        if self.check_regions(regions)? != data_length {
            return Err(ClientError::Drive(Status::BadArgument));
        }
        let regions = regions.to_vec();
        let arguments = WriteArguments { name, durable, order: None, regions, data_length };
        self.write_arguments(authority, &arguments, data)
    }

    /// The same with all that a write may say. The data are of the length that the regions have.
    pub(super) fn write_arguments(
        &self,
        authority: &Authority,
        arguments: &WriteArguments,
        data: &[IoSlice<'_>],
    ) -> Result<Written, ClientError> {
        let request = Request::sending::<Write>(arguments, data);
        let written = self.call::<Write>(authority, &request, &mut [])?.reply;
        if written.length != arguments.data_length as u64 {
            return Err(self.shared.protocol_error("a part of a write was written"));
        }
        Ok(written)
    }

    /// Writes all of `data` where the object ends, in one piece whoever else appends, and durably.
    /// However often the same `token` is used, also by later calls and after a restart of the drive, that
    /// is done once, and answered alike; `age` is how long ago it was used first, zero if never.
    ///
    /// # Errors
    ///
    /// `Drive(Forgotten)` if an earlier call may have appended, but too many others have since, so that
    /// nothing was done now; `Unsettled` if that may be so of this one.
    pub fn append(
        &self,
        authority: &Authority,
        name: ObjectName,
        (token, age): (AppendToken, Duration),
        data: &[u8],
    ) -> Result<Appended, ClientError> {
        let (data_length, limit) = (data.len(), self.max_transfer());
        if data_length > limit {
            return Err(ClientError::TooLarge { amount: data_length, limit });
        }
        let age_ns = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        let arguments = AppendArguments { name, token, age_ns, data_length };
        let data = [IoSlice::new(data)];
        let request = Request::sending::<Append>(&arguments, &data);
        let request = request.aging(AppendArguments::AGE_AT);
        let appended = self.call::<Append>(authority, &request, &mut []);
        Ok(appended.map_err(CallFailure::of_change)?.reply)
    }

    /// Makes objects durable, data and attributes; the whole partition if none is named.
    pub fn flush(
        &self,
        authority: &Authority,
        partition: PartitionId,
        objects: &[ObjectId],
    ) -> Result<Flushed, ClientError> {
        if objects.len() > MAX_FLUSH_OBJECTS {
            return Err(ClientError::TooLarge { amount: objects.len(), limit: MAX_FLUSH_OBJECTS });
        }
        let arguments = FlushArguments { partition, objects: objects.to_vec() };
        let request = Request::plain::<Flush>(&arguments);
        Ok(self.call::<Flush>(authority, &request, &mut [])?.reply)
    }

    /// Makes a copy of an object that shares its blocks until either is written to; durable when
    /// this returns. See [`DriveClient`] for what a lost reply leaves.
    pub fn fastcopy(
        &self,
        authority: &Authority,
        source: ObjectName,
    ) -> Result<Created, ClientError> {
        let request = Request::plain::<Fastcopy>(&FastcopyArguments { name: source, copy: None });
        Ok(self.call::<Fastcopy>(authority, &request, &mut [])?.reply)
    }

    /// The same with a chosen identifier, in the partition of the source, as [`DriveClient::create_named`]
    /// chooses one; so it is made once, however often the call has to be sent.
    ///
    /// # Errors
    ///
    /// Those of [`DriveClient::create_named`].
    pub fn fastcopy_named(
        &self,
        authority: &Authority,
        source: ObjectName,
        copy: ObjectId,
    ) -> Result<Created, ClientError> {
        let arguments = FastcopyArguments { name: source, copy: Some(copy) };
        let request = Request::plain::<Fastcopy>(&arguments);
        let made = self.call::<Fastcopy>(authority, &request, &mut []);
        // A copy is durable as soon as it is there.
        self.made(authority, ObjectName { object: copy, ..source }, false, made)
    }

    /// What making an object of a chosen identifier comes to: one that an earlier try may have made counts as
    /// made, and is flushed if it is to be durable.
    fn made(
        &self,
        authority: &Authority,
        name: ObjectName,
        durable: bool,
        result: Result<Answer<Created>, CallFailure>,
    ) -> Result<Created, ClientError> {
        let failure = match result {
            Ok(answer) if answer.reply.object == name.object => return Ok(answer.reply),
            Ok(_) => return Err(self.shared.protocol_error("an object of another identifier")),
            Err(failure) => failure,
        };
        let exists = matches!(&failure.error, ClientError::Drive(Status::ObjectExists));
        if !exists || !(failure.ran_before || failure.was_told_before) {
            return Err(failure.of_change());
        }
        let unsettled = |error| ClientError::Unsettled(Box::new(error));
        if !failure.ran_before {
            // A drive that answered so has not executed it; but somebody else may have answered.
            return Err(unsettled(failure.error));
        }
        if durable {
            self.flush(authority, name.partition, &[name.object]).map_err(unsettled)?;
        }
        let attributes = self.getattr(authority, name).map_err(unsettled)?;
        Ok(Created { object: name.object, attributes })
    }

    /// Copies bytes of one object into another, which shares whole blocks with it where it can; durable when
    /// this returns. `authority` is that for the object that is copied to, `source` that for the other
    /// one. Fewer bytes than asked for are copied where the source ends, and where one call would do
    /// too much: none only at the source's end.
    ///
    /// # Errors
    ///
    /// `Refused` may be meant for either authority; `NotSealed` if `source` can't be shown as it demands.
    pub fn copy_range(
        &self,
        authority: &Authority,
        source: &Authority,
        copy: &RangeToCopy,
    ) -> Result<Copied, ClientError> {
        if !source.can_be_shown() {
            return Err(ClientError::NotSealed);
        }
        let request = Request::copying::<Copyrange>(copy, source);
        let copied = self.call::<Copyrange>(authority, &request, &mut [])?.reply;
        if copied.length > copy.length {
            return Err(self.shared.protocol_error("more was copied than asked for"));
        }
        Ok(copied)
    }

    /// Where the components of an object of a virtual drive are. The call is private whatever the authority
    /// demands, as its answer has keys.
    pub fn map(
        &self,
        authority: &Authority,
        arguments: &MapArguments,
    ) -> Result<ObjectMap, ClientError> {
        let request = Request::plain::<Map>(arguments);
        Ok(self.call::<Map>(authority, &request, &mut [])?.reply)
    }

    /// How many blocks more the object may take once these regions are overwritten.
    pub fn blocks_required(
        &self,
        authority: &Authority,
        name: ObjectName,
        regions: &[Region],
    ) -> Result<BlocksRequired, ClientError> {
        spread(regions).map_err(ClientError::Drive)?;
        let arguments = BlocksrequiredArguments { name, regions: regions.to_vec() };
        let request = Request::plain::<Blocksrequired>(&arguments);
        Ok(self.call::<Blocksrequired>(authority, &request, &mut [])?.reply)
    }

    /// Makes the bytes of these regions read as zeros, and frees the blocks that lie within. The
    /// object's length stays.
    pub fn punch(
        &self,
        authority: &Authority,
        name: ObjectName,
        regions: &[Region],
        durable: bool,
    ) -> Result<Attributes, ClientError> {
        spread(regions).map_err(ClientError::Drive)?;
        let arguments = PunchArguments { name, durable, regions: regions.to_vec() };
        let request = Request::plain::<Punch>(&arguments);
        let AttributesReply { attributes } =
            self.call::<Punch>(authority, &request, &mut [])?.reply;
        Ok(attributes)
    }

    /// Where data, or a hole, begins from `offset` on. `None` if that is not before the end of the
    /// object, there is none, or it is not in the region of the capability.
    pub fn seek(
        &self,
        authority: &Authority,
        name: ObjectName,
        offset: u64,
        target: SeekTarget,
    ) -> Result<Option<u64>, ClientError> {
        let request = Request::plain::<Seek>(&SeekArguments { name, offset, target });
        let Sought { position } = self.call::<Seek>(authority, &request, &mut [])?.reply;
        Ok(position)
    }

    /// Bytes of all pieces, if one request may have so many.
    pub(super) fn check_regions(&self, regions: &[Region]) -> Result<usize, ClientError> {
        let limit = self.max_transfer();
        let wanted = regions.iter().fold(0_u64, |sum, region| {
            sum.saturating_add(region.length.saturating_mul(u64::from(region.count)))
        });
        if wanted > limit as u64 {
            let amount = usize::try_from(wanted).unwrap_or(usize::MAX);
            return Err(ClientError::TooLarge { amount, limit });
        }
        Ok(expand(regions).map_err(ClientError::Drive)?.total_bytes())
    }
}

impl super::Shared {
    fn ask(&self, timeout: std::time::Duration) -> Result<DriveInformation, Failure> {
        let lease = self.lease(timeout)?;
        let information = self.greet(&*lease.connection.channel, timeout)?;
        self.accept(&information)?;
        Ok(information)
    }
}

pub(super) fn joined_length(data: &[IoSlice<'_>]) -> usize {
    data.iter().map(|slice| slice.len()).sum()
}
