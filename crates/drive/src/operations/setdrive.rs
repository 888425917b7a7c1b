//! `setdrive`: the drive's minimum protection, which it keeps.

use nasd_capability::{Access, KeyKind, KeyKinds, Target};
use nasd_protocol::Status;
use nasd_protocol::drive::{Setdrive, SetdriveArguments};
use nasd_types::Rights;

use super::{Context, Perform, check_minimum};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

impl Perform for Setdrive {
    fn access(_arguments: &SetdriveArguments) -> Access<'_> {
        Access {
            target: Target::Drive,
            rights: Rights::empty(),
            bytes: None,
            keys: KeyKinds::only(KeyKind::Drive),
        }
    }

    fn perform(
        drive: &Drive,
        arguments: SetdriveArguments,
        _context: &Context<'_>,
    ) -> Result<Done<()>, Status> {
        check_minimum(arguments.minimum_protection)?;
        let Some(minimum) = arguments.minimum_protection else { return Ok(Done::plain(())) };
        drive.administer(|| {
            drive.store.set_minimum_protection(minimum).map_err(|error| status_of(&error))
        })?;
        Ok(Done::plain(()))
    }
}
