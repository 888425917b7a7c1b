//! `getattr`: an object's attributes.

use nasd_capability::Access;
use nasd_protocol::Status;
use nasd_protocol::drive::{AttributesReply, Getattr, GetattrArguments};
use nasd_transport::Waits;
use nasd_types::Rights;
use nasd_xdr::from_bytes;

use super::{Context, Perform, on_object, refuse_synthetic};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

/// Only where the last flushes of the object free blocks is it to be waited for what that leaves.
pub(super) fn waits(drive: &Drive, arguments: &[u8]) -> Waits {
    match from_bytes::<GetattrArguments>(arguments) {
        Ok(arguments) if !drive.store.is_settled(arguments.name) => Waits::Alone,
        _ => Waits::Never,
    }
}

impl Perform for Getattr {
    fn access(arguments: &GetattrArguments) -> Access<'_> {
        on_object(arguments.name, Rights::GETATTR, None)
    }

    fn perform(
        drive: &Drive,
        arguments: GetattrArguments,
        _context: &Context<'_>,
    ) -> Result<Done<AttributesReply>, Status> {
        refuse_synthetic(arguments.name)?;
        let attributes = drive.store.getattr(arguments.name).map_err(|error| status_of(&error))?;
        Ok(Done::plain(AttributesReply { attributes }))
    }
}
