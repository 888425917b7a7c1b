//! `removepartition`: a partition is gone with all its objects and keys.

use nasd_capability::{Access, KeyKind};
use nasd_protocol::Status;
use nasd_protocol::drive::{Removepartition, RemovepartitionArguments};

use super::{Context, Perform, on_partition};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

impl Perform for Removepartition {
    fn access(arguments: &RemovepartitionArguments) -> Access<'_> {
        on_partition(arguments.partition, KeyKind::Drive)
    }

    fn perform(
        drive: &Drive,
        arguments: RemovepartitionArguments,
        _context: &Context<'_>,
    ) -> Result<Done<()>, Status> {
        drive.administer(|| {
            if let Some(elsewhere) = drive.elsewhere() {
                elsewhere.remove_partition(arguments.partition)?;
            }
            let removed = drive.store.remove_partition(arguments.partition);
            removed.map_err(|error| status_of(&error))
        })?;
        Ok(Done::plain(()))
    }
}
