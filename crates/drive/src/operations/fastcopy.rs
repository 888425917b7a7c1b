//! `fastcopy`: an object that shares the blocks of another.
//!
//! Whoever copies needs what reading all of the source, its attributes, and creating an object take.
//! The capability is one for the source: the one for a partition says nothing about what may be
//! copied within.

use nasd_capability::Access;
use nasd_protocol::Status;
use nasd_protocol::drive::{Created, Fastcopy, FastcopyArguments};
use nasd_types::limits::MAX_OBJECT_BYTES;
use nasd_types::{ByteRange, Rights};

use super::{Context, Perform, on_object, refuse_synthetic};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

impl Perform for Fastcopy {
    fn access(arguments: &FastcopyArguments) -> Access<'_> {
        let rights = Rights::READ | Rights::GETATTR | Rights::CREATE;
        on_object(arguments.name, rights, Some(ByteRange::new(0, MAX_OBJECT_BYTES)))
    }

    fn perform(
        drive: &Drive,
        arguments: FastcopyArguments,
        context: &Context<'_>,
    ) -> Result<Done<Created>, Status> {
        refuse_synthetic(arguments.name)?;
        context.check_choice(arguments.copy)?;
        if let Some(elsewhere) = drive.elsewhere() {
            return elsewhere.fastcopy(&arguments).map(Done::plain);
        }
        let FastcopyArguments { name, copy } = arguments;
        let copied = drive.store.fastcopy_as(name, copy, context.now);
        let (object, attributes) = copied.map_err(|error| status_of(&error))?;
        Ok(Done::plain(Created { object, attributes }))
    }
}
