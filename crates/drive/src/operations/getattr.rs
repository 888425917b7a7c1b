//! `getattr`: an object's attributes.

use nasd_capability::Access;
use nasd_protocol::Status;
use nasd_protocol::drive::{AttributesReply, Getattr, GetattrArguments};
use nasd_transport::Waits;
use nasd_types::{ObjectName, Rights};

use super::prompt::{HeldCall, Prompt};
use super::{Context, Perform, Permitted, on_object, refuse_synthetic};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

impl Perform for Getattr {
    fn access(arguments: &GetattrArguments) -> Access<'_> {
        on_object(arguments.name, Rights::GETATTR, None)
    }

    fn perform(
        drive: &Drive,
        arguments: GetattrArguments,
        _context: &Context<'_>,
    ) -> Result<Done<AttributesReply>, Status> {
        attributes(drive, arguments.name)
    }
}

impl Prompt for Getattr {
    fn perform_late(
        drive: &Drive,
        arguments: &GetattrArguments,
        _context: &Context<'_>,
    ) -> Result<Done<AttributesReply>, Status> {
        attributes(drive, arguments.name)
    }

    fn perform_now(
        drive: &Drive,
        arguments: &GetattrArguments,
        _context: &Context<'_>,
    ) -> Result<Result<Done<AttributesReply>, Status>, Waits> {
        // Only where the last flushes of the object free blocks is it waited for what that leaves.
        if drive.elsewhere().is_none() && drive.store.is_settled(arguments.name) {
            Ok(attributes(drive, arguments.name))
        } else {
            Err(Waits::Alone)
        }
    }

    /// A look into the tree takes less time than a hand-over, most often.
    fn object(_arguments: &GetattrArguments) -> Option<ObjectName> {
        None
    }

    fn held(permitted: Permitted<GetattrArguments>) -> HeldCall {
        HeldCall::Getattr(permitted)
    }
}

fn attributes(drive: &Drive, name: ObjectName) -> Result<Done<AttributesReply>, Status> {
    refuse_synthetic(name)?;
    if let Some(elsewhere) = drive.elsewhere() {
        let attributes = elsewhere.getattr(name)?;
        return Ok(Done::plain(AttributesReply { attributes }));
    }
    let attributes = drive.store.getattr(name).map_err(|error| status_of(&error))?;
    Ok(Done::plain(AttributesReply { attributes }))
}
