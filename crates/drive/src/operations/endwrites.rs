//! `endwrites`: a client has ended its writes of an object of a virtual drive.

use nasd_capability::Access;
use nasd_protocol::Status;
use nasd_protocol::drive::{Endwrites, EndwritesArguments};
use nasd_types::Rights;

use super::{Context, Perform, on_object, refuse_synthetic};
use crate::Drive;
use crate::reply::Done;

impl Perform for Endwrites {
    fn access(arguments: &EndwritesArguments) -> Access<'_> {
        on_object(arguments.name, Rights::WRITE, None)
    }

    fn perform(
        drive: &Drive,
        arguments: EndwritesArguments,
        context: &Context<'_>,
    ) -> Result<Done<()>, Status> {
        refuse_synthetic(arguments.name)?;
        let elsewhere = drive.elsewhere().ok_or(Status::NotPermitted)?;
        elsewhere.end_writes(&arguments, context.now)?;
        Ok(Done::plain(()))
    }
}
