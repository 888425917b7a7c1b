//! `blocksrequired`: how many blocks more an object may take when it is overwritten.

use nasd_capability::Access;
use nasd_protocol::Status;
use nasd_protocol::drive::{BlocksRequired, Blocksrequired, BlocksrequiredArguments};
use nasd_types::Rights;

use super::{Context, Perform, on_object, refuse_synthetic};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

impl Perform for Blocksrequired {
    fn access(arguments: &BlocksrequiredArguments) -> Access<'_> {
        // Regions without a meaning are told to those with authority alone, by `perform`.
        let bytes = arguments.pieces().ok().map(|pieces| pieces.span());
        on_object(arguments.name, Rights::GETATTR, bytes)
    }

    fn perform(
        drive: &Drive,
        arguments: BlocksrequiredArguments,
        _context: &Context<'_>,
    ) -> Result<Done<BlocksRequired>, Status> {
        refuse_synthetic(arguments.name)?;
        let pieces = arguments.pieces()?;
        if let Some(elsewhere) = drive.elsewhere() {
            let required = elsewhere.blocks_required(arguments.name, &mut pieces.iter())?;
            return Ok(Done::plain(required));
        }
        let required = drive
            .store
            .blocks_required(arguments.name, &mut pieces.iter())
            .map_err(|error| status_of(&error))?;
        let nasd_store::BlocksRequired { estimated, maximum } = required;
        Ok(Done::plain(BlocksRequired { estimated, maximum }))
    }
}
