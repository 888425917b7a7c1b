//! A volume that is held still, so that what its drives have can be copied as it is at one moment.

use nasd_client::{ClientError, ManagerClient};
use nasd_protocol::ManagerStatus;
use nasd_protocol::manager::{HeldVolume, MovePartArguments, Name};
use nasd_types::{DriveId, Location};
use std::error::Error;
use std::time::{Duration, Instant};

/// A volume that is held still.
pub struct Held<'a> {
    administrator: &'a ManagerClient,
    name: Name,
    held: HeldVolume,
    /// Before it was asked for.
    since: Instant,
}

impl<'a> Held<'a> {
    /// Has the manager hold it, at most so long: then it goes on, whatever became of this command.
    ///
    /// # Errors
    /// What stands in the way, and what to do.
    pub fn begin(
        administrator: &'a ManagerClient,
        source: &str,
        most: Duration,
    ) -> Result<Self, Box<dyn Error>> {
        let (name, since) = (Name::new(source)?, Instant::now());
        let held = administrator.hold_volume(&name, most).map_err(|error| match error {
            ClientError::Manager(ManagerStatus::Busy) => format!(
                "{source} does not stand still: somebody is not done storing, files are still given a list (nasd acl), or another copy is made; try again"
            ),
            ClientError::Manager(ManagerStatus::Unavailable) => format!(
                "{source} does not stand still: a drive is away; `nasd status` shows which"
            ),
            other => format!("the manager does not hold {source} still: {other}"),
        })?;
        Ok(Held { administrator, name, held, since })
    }

    /// A part of it is elsewhere from now on.
    ///
    /// # Errors
    /// What the manager says.
    pub fn move_part(&self, part: DriveId, to: Location) -> Result<(), ClientError> {
        self.administrator.move_part(&MovePartArguments {
            volume: self.name.clone(),
            ticket: self.held.ticket,
            part,
            drive: to.drive,
            partition: to.partition,
        })
    }

    /// Lets the volume go on: for how long it was held.
    ///
    /// # Errors
    /// That it was not held any more, and so what that makes of it; or that this is not known.
    pub fn end(self, then: &str) -> Result<Duration, Box<dyn Error>> {
        let ended = self.administrator.release_volume(&self.name, self.held);
        let took = self.since.elapsed();
        match ended {
            Ok(()) => Ok(took),
            Err(ClientError::Manager(ManagerStatus::Stale | ManagerStatus::NotFound)) => {
                Err(format!("the volume went on before all was copied: {then}").into())
            }
            Err(other) => {
                Err(format!("whether the volume was held all the time is not known: {other}")
                    .into())
            }
        }
    }
}
