//! `setstriping`: how the objects of a virtual drive's partition are spread.

use nasd_capability::{Access, KeyKind};
use nasd_protocol::Status;
use nasd_protocol::drive::{Setstriping, SetstripingArguments};

use super::{Context, Perform, on_partition};
use crate::Drive;
use crate::reply::Done;

impl Perform for Setstriping {
    fn access(arguments: &SetstripingArguments) -> Access<'_> {
        on_partition(arguments.partition, KeyKind::Drive)
    }

    fn perform(
        drive: &Drive,
        arguments: SetstripingArguments,
        _context: &Context<'_>,
    ) -> Result<Done<()>, Status> {
        let elsewhere = drive.elsewhere().ok_or(Status::NotPermitted)?;
        drive.administer(|| {
            if !drive.partitions().contains(&arguments.partition) {
                return Err(Status::NoSuchPartition);
            }
            elsewhere.set_striping(&arguments)
        })?;
        Ok(Done::plain(()))
    }
}
