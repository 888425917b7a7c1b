//! `comparepartition`: what a partition has that another one has not, or has otherwise.

use nasd_capability::{Access, KeyKind};
use nasd_protocol::Status;
use nasd_protocol::drive::{Comparepartition, ComparepartitionArguments, Comparison};

use super::{Context, Perform, on_partition};
use crate::Drive;
use crate::reply::Done;

impl Perform for Comparepartition {
    fn access(arguments: &ComparepartitionArguments) -> Access<'_> {
        on_partition(arguments.partition, KeyKind::Drive)
    }

    fn perform(
        _drive: &Drive,
        _arguments: ComparepartitionArguments,
        _context: &Context<'_>,
    ) -> Result<Done<Comparison>, Status> {
        Err(Status::NotPermitted)
    }
}
