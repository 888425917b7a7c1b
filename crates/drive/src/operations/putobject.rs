//! `putobject`: an object of a given identifier with exactly these attributes.

use nasd_capability::{Access, KeyKind};
use nasd_protocol::Status;
use nasd_protocol::drive::{Putobject, PutobjectArguments};

use super::{Context, Perform, on_partition};
use crate::Drive;
use crate::reply::Done;

impl Perform for Putobject {
    fn access(arguments: &PutobjectArguments) -> Access<'_> {
        on_partition(arguments.partition, KeyKind::Drive)
    }

    fn perform(
        _drive: &Drive,
        _arguments: PutobjectArguments,
        _context: &Context<'_>,
    ) -> Result<Done<()>, Status> {
        Err(Status::NotPermitted)
    }
}
