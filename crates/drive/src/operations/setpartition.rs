//! `setpartition`: a partition's compression and minimum protection.
//!
//! The file manager, who holds the partition key, decides both for its own objects.

use nasd_capability::{Access, KeyKind, KeyKinds};
use nasd_protocol::Status;
use nasd_protocol::drive::{Setpartition, SetpartitionArguments};

use super::{Context, Perform, check_minimum, on_partition};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

impl Perform for Setpartition {
    fn access(arguments: &SetpartitionArguments) -> Access<'_> {
        let keys = KeyKinds::only(KeyKind::Drive).with(KeyKind::Partition);
        Access { keys, ..on_partition(arguments.partition, KeyKind::Drive) }
    }

    fn perform(
        drive: &Drive,
        arguments: SetpartitionArguments,
        _context: &Context<'_>,
    ) -> Result<Done<()>, Status> {
        let SetpartitionArguments { partition, compression, minimum_protection } = arguments;
        check_minimum(minimum_protection)?;
        drive.administer(|| {
            let store = &drive.store;
            let mut settings =
                store.partition_settings(partition).map_err(|error| status_of(&error))?;
            settings.compression = compression.unwrap_or(settings.compression);
            settings.minimum_protection = minimum_protection.unwrap_or(settings.minimum_protection);
            store.set_partition_settings(partition, settings).map_err(|error| status_of(&error))
        })?;
        Ok(Done::plain(()))
    }
}
