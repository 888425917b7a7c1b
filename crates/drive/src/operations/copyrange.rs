//! `copyrange`: bytes of one object into another of its partition; whole blocks are shared.
//!
//! The call's own authority is for the object that is copied to. The one for the source is shown among
//! the arguments, and looked at here (`authority::source`).

use nasd_capability::Access;
use nasd_protocol::Status;
use nasd_protocol::drive::{Copied, Copyrange, CopyrangeArguments, RangeToCopy};
use nasd_store::CopyRange;
use nasd_types::Rights;

use super::{Context, Perform, on_object, refuse_synthetic};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

impl Perform for Copyrange {
    fn access(arguments: &CopyrangeArguments) -> Access<'_> {
        on_object(arguments.copy.name, Rights::WRITE, Some(arguments.copy.range()))
    }

    fn perform(
        drive: &Drive,
        arguments: CopyrangeArguments,
        context: &Context<'_>,
    ) -> Result<Done<Copied>, Status> {
        let RangeToCopy { name, offset, length, source, source_offset } = arguments.copy;
        refuse_synthetic(name)?;
        refuse_synthetic(arguments.copy.source_name())?;
        let bytes = Some(arguments.copy.source_range());
        let access = on_object(arguments.copy.source_name(), Rights::READ, bytes);
        drive.check_source(&arguments, &access, context.grant)?;
        if length == 0 {
            return Err(Status::BadArgument);
        }
        if let Some(elsewhere) = drive.elsewhere() {
            return elsewhere.copy_range(&arguments.copy).map(Done::plain);
        }
        let copy = CopyRange {
            partition: name.partition,
            source,
            source_offset,
            target: name.object,
            target_offset: offset,
            length,
        };
        let length =
            drive.store.copy_range(&copy, context.now).map_err(|error| status_of(&error))?;
        let attributes = drive.store.getattr(name).map_err(|error| status_of(&error))?;
        let attributes = match length {
            0 => attributes,
            _ => drive.flush_blocks(name, attributes)?,
        };
        Ok(Done::plain(Copied { length, attributes }))
    }
}
