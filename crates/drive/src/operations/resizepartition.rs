//! `resizepartition`: how much a partition may hold.

use nasd_capability::{Access, KeyKind};
use nasd_protocol::Status;
use nasd_protocol::drive::{Resizepartition, ResizepartitionArguments};

use super::{Context, Perform, on_partition};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

impl Perform for Resizepartition {
    fn access(arguments: &ResizepartitionArguments) -> Access<'_> {
        on_partition(arguments.partition, KeyKind::Drive)
    }

    fn perform(
        drive: &Drive,
        arguments: ResizepartitionArguments,
        _context: &Context<'_>,
    ) -> Result<Done<()>, Status> {
        let ResizepartitionArguments { partition, bytes } = arguments;
        drive.administer(|| {
            if let Some(elsewhere) = drive.elsewhere() {
                elsewhere.resize_partition(partition, bytes)?;
            }
            drive.store.resize_partition(partition, bytes).map_err(|error| status_of(&error))
        })?;
        Ok(Done::plain(()))
    }
}
