//! `remove`: an object and its data are gone.

use nasd_capability::Access;
use nasd_protocol::Status;
use nasd_protocol::drive::{Remove, RemoveArguments};
use nasd_types::Rights;

use super::{Context, Perform, on_object, refuse_well_known};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

impl Perform for Remove {
    fn access(arguments: &RemoveArguments) -> Access<'_> {
        on_object(arguments.name, Rights::REMOVE, None)
    }

    fn perform(
        drive: &Drive,
        arguments: RemoveArguments,
        _context: &Context<'_>,
    ) -> Result<Done<()>, Status> {
        let RemoveArguments { name, durable } = arguments;
        refuse_well_known(name)?;
        if let Some(elsewhere) = drive.elsewhere() {
            return elsewhere.remove(&arguments).map(Done::plain);
        }
        drive.store.remove(name).map_err(|error| status_of(&error))?;
        if durable {
            drive.flush(&[name])?;
        }
        Ok(Done::plain(()))
    }
}
