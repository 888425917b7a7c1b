//! `copypartition`: a partition that has all objects of another one, and shares their blocks.
//!
//! Who copies gets no word of what is in either: only who has the keys of one, or is given those of the other, reads it.

use nasd_capability::{Access, KeyKind};
use nasd_protocol::Status;
use nasd_protocol::drive::{Copypartition, CopypartitionArguments};
use nasd_protocol::limits::MAX_PARTITIONS;

use super::{Context, Perform, on_partition};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

impl Perform for Copypartition {
    fn access(arguments: &CopypartitionArguments) -> Access<'_> {
        on_partition(arguments.partition, KeyKind::Drive)
    }

    fn perform(
        drive: &Drive,
        arguments: CopypartitionArguments,
        _context: &Context<'_>,
    ) -> Result<Done<()>, Status> {
        let CopypartitionArguments { partition, source } = arguments;
        if drive.elsewhere().is_some() {
            // What its objects are made of lies in partitions of other drives.
            return Err(Status::NotPermitted);
        }
        drive.administer(|| {
            let present = drive.partitions();
            // The audit trail is not among them.
            if !present.contains(&source) {
                return Err(Status::NoSuchPartition);
            }
            if present.contains(&partition) {
                return Err(Status::PartitionExists);
            }
            if present.len() >= MAX_PARTITIONS {
                return Err(Status::TooLarge);
            }
            let copied = drive.store.copy_partition(source, partition);
            copied.map_err(|error| status_of(&error))
        })?;
        Ok(Done::plain(()))
    }
}
