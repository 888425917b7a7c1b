//! `initialize`: a new master key and clock, and nothing else left.
//!
//! The clock may be set back: no key is left that an earlier request was made with, so that the
//! nonces seen can be forgotten.

use nasd_capability::Access;
use nasd_protocol::Status;
use nasd_protocol::drive::{Initialize, InitializeArguments};
use nasd_store::ClockState;
use nasd_types::Timestamp;

use super::{Context, Perform, on_drive, open_key};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

/// The widest window of nonces, each way: a day.
const MAX_SKEW_NS: u64 = 86_400 * Timestamp::SECOND_NS;

impl Perform for Initialize {
    fn access(_arguments: &InitializeArguments) -> Access<'_> {
        on_drive()
    }

    fn perform(
        drive: &Drive,
        arguments: InitializeArguments,
        context: &Context<'_>,
    ) -> Result<Done<()>, Status> {
        let InitializeArguments { master, clock, skew_past, skew_ahead } = arguments;
        if skew_past == 0 || skew_past.max(skew_ahead) > MAX_SKEW_NS {
            return Err(Status::BadArgument);
        }
        let change = || {
            let master = open_key(drive, &master, context.key)?;
            // A recorded request that was made with it would be one of the time to come.
            if drive.store.drive_keys().master.as_ref() == Some(&master) {
                return Err(Status::BadArgument);
            }
            let offset = drive.clock.offset_for(clock).ok_or(Status::BadArgument)?;
            let (skew_past_ns, skew_ahead_ns) = (skew_past, skew_ahead);
            let state = ClockState { offset, mark: clock, skew_past_ns, skew_ahead_ns };
            drive.store.initialize(&master, state).map_err(|error| status_of(&error))?;
            Ok(state)
        };
        drive.administer_then(change, |state| {
            drive.clock.set(*state);
            drive.window.restart(skew_past, skew_ahead, clock);
        })?;
        Ok(Done::plain(()))
    }
}
