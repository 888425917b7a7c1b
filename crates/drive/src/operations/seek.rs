//! `seek`: where data, or a hole, begins next. A capability sees no further than its region.

use nasd_capability::Access;
use nasd_protocol::Status;
use nasd_protocol::drive::{Seek, SeekArguments, Sought};
use nasd_types::{ByteRange, Rights};

use super::{Context, Perform, on_object, refuse_synthetic};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

impl Perform for Seek {
    const TELLS_CONTENTS: bool = true;

    fn access(arguments: &SeekArguments) -> Access<'_> {
        let from = ByteRange::new(arguments.offset, 0);
        on_object(arguments.name, Rights::READ, Some(from))
    }

    fn perform(
        drive: &Drive,
        arguments: SeekArguments,
        context: &Context<'_>,
    ) -> Result<Done<Sought>, Status> {
        let SeekArguments { name, offset, target } = arguments;
        refuse_synthetic(name)?;
        let position = match drive.elsewhere() {
            Some(elsewhere) => elsewhere.seek(&arguments)?,
            None => drive.store.seek(name, offset, target).map_err(|error| status_of(&error))?,
        };
        let end = context.grant.authorized.region().end();
        Ok(Done::plain(Sought { position: position.filter(|position| *position < end) }))
    }
}
