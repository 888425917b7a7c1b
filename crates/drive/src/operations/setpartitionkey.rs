//! `setpartitionkey`: the drive key sets partition keys, and those set working keys (Table 6).

use nasd_capability::{Access, KeyKind};
use nasd_protocol::Status;
use nasd_protocol::drive::{PartitionKey, Setpartitionkey, SetpartitionkeyArguments};
use nasd_store::{PartitionKeys, StoredKey, WorkingKey};

use super::{Context, Perform, on_partition, open_key};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

impl Perform for Setpartitionkey {
    fn access(arguments: &SetpartitionkeyArguments) -> Access<'_> {
        let by = match arguments.which {
            PartitionKey::Key => KeyKind::Drive,
            PartitionKey::Current | PartitionKey::Previous => KeyKind::Partition,
        };
        on_partition(arguments.partition, by)
    }

    fn perform(
        drive: &Drive,
        arguments: SetpartitionkeyArguments,
        context: &Context<'_>,
    ) -> Result<Done<()>, Status> {
        let SetpartitionkeyArguments { partition, which, epoch, value } = arguments;
        drive.administer(|| {
            let mut keys = drive.store.keys(partition).map_err(|error| status_of(&error))?;
            let key = open_key(drive, &value, context.key)?;
            match which {
                PartitionKey::Key if epoch != 0 => return Err(Status::BadArgument),
                PartitionKey::Key => keys.partition = Some(key),
                PartitionKey::Current => set_current(&mut keys, epoch, key)?,
                PartitionKey::Previous => set_previous(&mut keys, epoch, key)?,
            }
            drive.store.set_partition_keys(partition, &keys).map_err(|error| status_of(&error))
        })?;
        Ok(Done::plain(()))
    }
}

/// The present key becomes the previous one. Setting the same key once more changes nothing: the
/// reply to the first request may have been lost.
fn set_current(keys: &mut PartitionKeys, epoch: u32, key: StoredKey) -> Result<(), Status> {
    let new = WorkingKey { epoch, key };
    match &keys.current {
        Some(current) if *current == new => return Ok(()),
        Some(current) if epoch <= current.epoch => return Err(Status::StaleEpoch),
        _ => {}
    }
    keys.previous = keys.current.replace(new);
    Ok(())
}

/// Its epoch is below that of the present key, which there must be.
fn set_previous(keys: &mut PartitionKeys, epoch: u32, key: StoredKey) -> Result<(), Status> {
    let current = keys.current.as_ref().ok_or(Status::StaleEpoch)?;
    if epoch >= current.epoch {
        return Err(Status::StaleEpoch);
    }
    keys.previous = Some(WorkingKey { epoch, key });
    Ok(())
}
