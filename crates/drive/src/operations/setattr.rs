//! `setattr`: change some of an object's attributes.

use nasd_capability::Access;
use nasd_protocol::Status;
use nasd_protocol::drive::{AttributesReply, Setattr, SetattrArguments};
use nasd_types::limits::MAX_OBJECT_BYTES;
use nasd_types::{ByteRange, Rights};

use super::{Context, Perform, check_settable, on_object, refuse_synthetic};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

impl Perform for Setattr {
    fn access(arguments: &SetattrArguments) -> Access<'_> {
        // A new size cuts off, or adds, all that lies behind it.
        let behind = |size| ByteRange::new(size, MAX_OBJECT_BYTES.saturating_sub(size));
        let bytes = arguments.changes.logical_size.map(behind);
        on_object(arguments.name, Rights::SETATTR, bytes)
    }

    fn perform(
        drive: &Drive,
        arguments: SetattrArguments,
        context: &Context<'_>,
    ) -> Result<Done<AttributesReply>, Status> {
        let SetattrArguments { name, durable, changes } = arguments;
        refuse_synthetic(name)?;
        check_settable(&changes)?;
        if let Some(elsewhere) = drive.elsewhere() {
            let attributes = elsewhere.setattr(&SetattrArguments { name, durable, changes })?;
            return Ok(Done::plain(AttributesReply { attributes }));
        }
        let mut attributes =
            drive.store.setattr(name, &changes, context.now).map_err(|error| status_of(&error))?;
        if durable && changes.logical_size.is_some() {
            attributes = drive.flush_blocks(name, attributes)?;
        } else if durable {
            drive.flush(&[name])?;
        }
        Ok(Done::plain(AttributesReply { attributes }))
    }
}
