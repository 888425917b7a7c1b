//! `createpartition`: a partition without room and without keys.

use nasd_capability::{Access, KeyKind};
use nasd_protocol::Status;
use nasd_protocol::drive::{Createpartition, CreatepartitionArguments};
use nasd_protocol::limits::MAX_PARTITIONS;

use super::{Context, Perform, on_partition};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

impl Perform for Createpartition {
    fn access(arguments: &CreatepartitionArguments) -> Access<'_> {
        on_partition(arguments.partition, KeyKind::Drive)
    }

    fn perform(
        drive: &Drive,
        arguments: CreatepartitionArguments,
        context: &Context<'_>,
    ) -> Result<Done<()>, Status> {
        let partition = arguments.partition;
        drive.administer(|| {
            let present = drive.partitions();
            if present.contains(&partition) {
                return Err(Status::PartitionExists);
            }
            if present.len() >= MAX_PARTITIONS {
                return Err(Status::TooLarge);
            }
            drive
                .store
                .create_partition(partition, context.now)
                .map_err(|error| status_of(&error))?;
            match drive.elsewhere() {
                Some(elsewhere) => elsewhere.create_partition(partition).inspect_err(|_| {
                    // Most likely there is nothing of it anywhere.
                    let _ = drive.store.remove_partition(partition);
                }),
                None => Ok(()),
            }
        })?;
        Ok(Done::plain(()))
    }
}
