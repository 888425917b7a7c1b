//! `setdrivekey`: the key that manages partitions. Keys of partitions stay.

use nasd_capability::Access;
use nasd_protocol::Status;
use nasd_protocol::drive::{Setdrivekey, SetdrivekeyArguments};

use super::{Context, Perform, on_drive, open_key};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

impl Perform for Setdrivekey {
    fn access(_arguments: &SetdrivekeyArguments) -> Access<'_> {
        on_drive()
    }

    fn perform(
        drive: &Drive,
        arguments: SetdrivekeyArguments,
        context: &Context<'_>,
    ) -> Result<Done<()>, Status> {
        drive.administer(|| {
            let mut keys = drive.store.drive_keys();
            keys.drive = Some(open_key(drive, &arguments.value, context.key)?);
            drive.store.set_drive_keys(&keys).map_err(|error| status_of(&error))
        })?;
        Ok(Done::plain(()))
    }
}
