//! The operations on partitions and on the drive.

use nasd_capability::{SALT_BYTES, SealedKey, SecretKey};
use nasd_protocol::Status;
use nasd_protocol::drive::{
    Audit, AuditArguments, AuditPage, Comparepartition, ComparepartitionArguments, Comparison,
    Copypartition, CopypartitionArguments, Createpartition, CreatepartitionArguments, DriveControl,
    Flushed, Flushpartition, FlushpartitionArguments, Initialize, InitializeArguments, Inquiry,
    Operation, PartitionControl, PartitionKey, Putobject, PutobjectArguments, Removepartition,
    RemovepartitionArguments, Resizepartition, ResizepartitionArguments, Setdrive,
    SetdriveArguments, Setdrivekey, SetdrivekeyArguments, Setpartition, SetpartitionArguments,
    Setpartitionkey, SetpartitionkeyArguments, Setstriping, SetstripingArguments,
};
use nasd_types::{Compression, ObjectId, ObjectName, PartitionId, Protection, Timestamp};
use nasd_xdr::{XdrDecode, from_bytes};

use super::DriveClient;
use super::exchange::Request;
use crate::{Authority, ClientError};

/// What `initialize` sets besides the master key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSettings {
    /// What the drive's clock shows from then on.
    pub clock: Timestamp,
    /// How much older than its clock a nonce may be, in nanoseconds.
    pub skew_past: u64,
    /// How much newer.
    pub skew_ahead: u64,
}

/// Each of these fails with any [`ClientError`] but those of the file manager. Only where
/// [`ClientError::has_not_run`] says so is it certain that a change was not made.
impl DriveClient {
    /// Makes a partition without room and without keys, with an empty First Object. By the drive
    /// key.
    pub fn create_partition(
        &self,
        authority: &Authority,
        partition: PartitionId,
    ) -> Result<(), ClientError> {
        let arguments = CreatepartitionArguments { partition };
        self.change::<Createpartition>(authority, &arguments, Some(Status::PartitionExists))
    }

    /// Makes a partition, without keys and limit, that has all objects of another one, with the same identifiers and attributes, and
    /// shares their blocks: at one stroke, and durably. By the drive key.
    pub fn copy_partition(
        &self,
        authority: &Authority,
        source: PartitionId,
        partition: PartitionId,
    ) -> Result<(), ClientError> {
        let arguments = CopypartitionArguments { partition, source };
        self.change::<Copypartition>(authority, &arguments, Some(Status::PartitionExists))
    }

    /// Reads a page of what a partition has that another one of the drive has not, or has otherwise. By the drive key.
    pub fn compare_partition(
        &self,
        authority: &Authority,
        arguments: &ComparepartitionArguments,
    ) -> Result<Comparison, ClientError> {
        let request = Request::plain::<Comparepartition>(arguments);
        Ok(self.call::<Comparepartition>(authority, &request, &mut [])?.reply)
    }

    /// Makes an object what it is on another drive, but for its data; durable after a flush alone. By the drive key.
    pub fn put_object(
        &self,
        authority: &Authority,
        arguments: &PutobjectArguments,
    ) -> Result<(), ClientError> {
        self.change::<Putobject>(authority, arguments, None)
    }

    /// Removes a partition with all its objects and keys. By the drive key.
    pub fn remove_partition(
        &self,
        authority: &Authority,
        partition: PartitionId,
    ) -> Result<(), ClientError> {
        let arguments = RemovepartitionArguments { partition };
        self.change::<Removepartition>(authority, &arguments, Some(Status::NoSuchPartition))
    }

    /// Sets how many bytes the objects of a partition may take; [`nasd_protocol::drive::NO_QUOTA`]
    /// is no limit. By the drive key.
    pub fn resize_partition(
        &self,
        authority: &Authority,
        partition: PartitionId,
        bytes: u64,
    ) -> Result<(), ClientError> {
        let arguments = ResizepartitionArguments { partition, bytes };
        self.change::<Resizepartition>(authority, &arguments, None)
    }

    /// Makes everything in a partition durable.
    pub fn flush_partition(
        &self,
        authority: &Authority,
        partition: PartitionId,
    ) -> Result<Flushed, ClientError> {
        let request = Request::plain::<Flushpartition>(&FlushpartitionArguments { partition });
        Ok(self.call::<Flushpartition>(authority, &request, &mut [])?.reply)
    }

    /// Sets how new data of a partition is compressed, and the weakest protection of capabilities
    /// and requests for its objects; `None` leaves either. By the drive or the partition key.
    pub fn set_partition(
        &self,
        authority: &Authority,
        partition: PartitionId,
        compression: Option<Compression>,
        minimum_protection: Option<Protection>,
    ) -> Result<(), ClientError> {
        let arguments = SetpartitionArguments { partition, compression, minimum_protection };
        self.change::<Setpartition>(authority, &arguments, None)
    }

    /// Sets how the objects of a virtual drive's partition are spread, while it has none. By the drive key.
    pub fn set_striping(
        &self,
        authority: &Authority,
        striping: &SetstripingArguments,
    ) -> Result<(), ClientError> {
        self.change::<Setstriping>(authority, striping, None)
    }

    /// Sets the key of a partition, which travels encrypted. By the drive key.
    pub fn set_partition_key(
        &self,
        authority: &Authority,
        partition: PartitionId,
        key: &SecretKey,
    ) -> Result<(), ClientError> {
        self.set_key(authority, partition, PartitionKey::Key, 0, key)
    }

    /// Sets the working key that capabilities are made with; the one before becomes the previous
    /// one. `epoch` is above its. The key travels encrypted. By the partition key.
    pub fn set_working_key(
        &self,
        authority: &Authority,
        partition: PartitionId,
        epoch: u32,
        key: &SecretKey,
    ) -> Result<(), ClientError> {
        self.set_key(authority, partition, PartitionKey::Current, epoch, key)
    }

    /// Sets the working key that still checks capabilities. `epoch` is below that of the current
    /// one. The key travels encrypted. By the partition key.
    pub fn set_previous_working_key(
        &self,
        authority: &Authority,
        partition: PartitionId,
        epoch: u32,
        key: &SecretKey,
    ) -> Result<(), ClientError> {
        self.set_key(authority, partition, PartitionKey::Previous, epoch, key)
    }

    /// Sets the drive key, which travels encrypted. By the master key.
    pub fn set_drive_key(&self, authority: &Authority, key: &SecretKey) -> Result<(), ClientError> {
        let arguments = SetdrivekeyArguments { value: self.sealed(authority, key) };
        self.change::<Setdrivekey>(authority, &arguments, None)
    }

    /// Sets the weakest protection of capabilities and requests for all of the drive. Raising it
    /// revokes what is weaker. By the drive key.
    pub fn set_drive(
        &self,
        authority: &Authority,
        minimum_protection: Protection,
    ) -> Result<(), ClientError> {
        let arguments = SetdriveArguments { minimum_protection: Some(minimum_protection) };
        self.change::<Setdrive>(authority, &arguments, None)
    }

    /// Reads a page of the audit trail. By the drive key; by a partition key what is of its
    /// partition, which `wanted` must name.
    pub fn audit(
        &self,
        authority: &Authority,
        wanted: &AuditArguments,
    ) -> Result<AuditPage, ClientError> {
        let request = Request::plain::<Audit>(wanted);
        Ok(self.call::<Audit>(authority, &request, &mut [])?.reply)
    }

    /// Has the drive prove that it knows the authority's key; nothing else happens. It fails with
    /// `Refused` where the drive does not, or where somebody on the way says so.
    pub fn prove(&self, authority: &Authority) -> Result<(), ClientError> {
        let authority = authority.proving();
        self.call::<Inquiry>(&authority, &Request::plain::<Inquiry>(&()), &mut [])?;
        Ok(())
    }

    /// Gives the drive a new master key and clock, and removes all else: every other key, and every
    /// partition with its objects. By the present master key. If a reply is lost, the drive may
    /// refuse the next try, as it knows that key no more: the new one then tells.
    pub fn initialize(
        &self,
        authority: &Authority,
        master: &SecretKey,
        settings: ClockSettings,
    ) -> Result<(), ClientError> {
        let ClockSettings { clock, skew_past, skew_ahead } = settings;
        let master = self.sealed(authority, master);
        let arguments = InitializeArguments { master, clock, skew_past, skew_ahead };
        self.change::<Initialize>(authority, &arguments, None)
    }

    /// Reads the drive's control object, which is the same in every partition.
    pub fn drive_control(
        &self,
        authority: &Authority,
        partition: PartitionId,
    ) -> Result<DriveControl, ClientError> {
        self.control(authority, ObjectName { partition, object: ObjectId::DRIVE_CONTROL })
    }

    /// Reads a partition's control object.
    pub fn partition_control(
        &self,
        authority: &Authority,
        partition: PartitionId,
    ) -> Result<PartitionControl, ClientError> {
        self.control(authority, ObjectName { partition, object: ObjectId::PARTITION_CONTROL })
    }

    fn control<T: XdrDecode>(
        &self,
        authority: &Authority,
        name: ObjectName,
    ) -> Result<T, ClientError> {
        let mut contents = vec![0; CONTROL_BYTES.min(self.max_transfer())];
        let length = self.read(authority, name, 0, &mut contents)?.length;
        from_bytes(&contents[..length])
            .map_err(|error| self.shared.protocol_error(error.to_string()))
    }

    fn set_key(
        &self,
        authority: &Authority,
        partition: PartitionId,
        which: PartitionKey,
        epoch: u32,
        key: &SecretKey,
    ) -> Result<(), ClientError> {
        let value = self.sealed(authority, key);
        let arguments = SetpartitionkeyArguments { partition, which, epoch, value };
        self.change::<Setpartitionkey>(authority, &arguments, None)
    }

    fn sealed(&self, authority: &Authority, key: &SecretKey) -> SealedKey {
        let mut salt = [0; SALT_BYTES];
        for part in salt.chunks_mut(8) {
            part.copy_from_slice(&self.shared.host.random().to_be_bytes());
        }
        authority.seal(key, salt)
    }

    /// A call that answers nothing. `done` is the status that says that an earlier try, whose reply
    /// was lost, did it.
    fn change<Op: Operation<Reply = ()>>(
        &self,
        authority: &Authority,
        arguments: &Op::Arguments,
        done: Option<Status>,
    ) -> Result<(), ClientError> {
        match self.call::<Op>(authority, &Request::plain::<Op>(arguments), &mut []) {
            Ok(_) => Ok(()),
            Err(failure) => match failure.error {
                ClientError::Drive(status) if failure.ran_before && done == Some(status) => Ok(()),
                _ => Err(failure.of_change()),
            },
        }
    }
}

/// More than any control object has.
const CONTROL_BYTES: usize = 64 << 10;
