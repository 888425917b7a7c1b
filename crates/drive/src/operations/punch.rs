//! `punch`: bytes read as zeros from now on, and their blocks are free.

use nasd_capability::Access;
use nasd_protocol::Status;
use nasd_protocol::drive::{AttributesReply, Punch, PunchArguments};
use nasd_types::Rights;

use super::{Context, Perform, on_object, refuse_synthetic};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

impl Perform for Punch {
    fn access(arguments: &PunchArguments) -> Access<'_> {
        // Regions without a meaning are told to those with authority alone, by `perform`.
        let bytes = arguments.pieces().ok().map(|pieces| pieces.span());
        on_object(arguments.name, Rights::WRITE, bytes)
    }

    fn perform(
        drive: &Drive,
        arguments: PunchArguments,
        context: &Context<'_>,
    ) -> Result<Done<AttributesReply>, Status> {
        let name = arguments.name;
        refuse_synthetic(name)?;
        if let Some(elsewhere) = drive.elsewhere() {
            arguments.pieces()?;
            let attributes = elsewhere.punch(&arguments)?;
            return Ok(Done::plain(AttributesReply { attributes }));
        }
        let mut attributes = None;
        // Each piece is applied as a whole; a failure leaves those before it applied.
        for range in arguments.pieces()?.iter() {
            let punched = drive.store.punch(name, range, context.now);
            attributes = Some(punched.map_err(|error| status_of(&error))?);
        }
        // `spread` refuses a list of no pieces.
        let mut attributes = attributes.ok_or(Status::BadArgument)?;
        if arguments.durable {
            attributes = drive.flush_blocks(name, attributes)?;
        }
        Ok(Done::plain(AttributesReply { attributes }))
    }
}
