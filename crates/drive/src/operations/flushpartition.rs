//! `flushpartition`: everything in a partition is durable.

use nasd_capability::{Access, KeyKinds, Target};
use nasd_protocol::Status;
use nasd_protocol::drive::{Flushed, Flushpartition, FlushpartitionArguments};
use nasd_types::Rights;

use super::{Context, Perform};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

impl Perform for Flushpartition {
    fn access(arguments: &FlushpartitionArguments) -> Access<'_> {
        Access {
            target: Target::Partition(arguments.partition),
            rights: Rights::FLUSH,
            bytes: None,
            keys: KeyKinds::OBJECT,
        }
    }

    fn perform(
        drive: &Drive,
        arguments: FlushpartitionArguments,
        _context: &Context<'_>,
    ) -> Result<Done<Flushed>, Status> {
        if let Some(elsewhere) = drive.elsewhere() {
            return elsewhere.flush(arguments.partition, &[]).map(Done::plain);
        }
        let flushed = drive.store.flush_partition(arguments.partition);
        flushed.map_err(|error| status_of(&error))?;
        Ok(Done::plain(Flushed { instance: drive.instance }))
    }
}
