//! `holdvolume`: a volume in which nothing changes for a moment, so that what its drives have can be copied.
//!
//! 1. What can be done before is: the journal is brought home, the drives write what they have in memory.
//! 2. Where there are callbacks, no client begins to store, and those who store are waited for, or their time is over. Nothing else is
//!    held up by that.
//! 3. Nobody goes in any more who changes something, for clients or by the manager's own accord; those who are inside are waited for. While files are still to get the list of their
//!    directory, the volume is not held. Where there are no callbacks, clients have
//!    capabilities to write: all working keys are changed twice, so that none of them is good, and nobody is given another one.
//! 4. The rest of the journal is brought home, and made durable.
//!
//! Each step ends in a bounded time, and what is held lets go by itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nasd_protocol::manager::{
    HeldVolume, HoldVolumeArguments, ManagerStatus, MovePartArguments, ReleaseVolumeArguments,
};
use nasd_types::Location;

use crate::callback_service::perform;
use crate::namespace::{Namespace, Outcome};
use crate::sessions::callbacks::{STORE_TIME, Turn};
use crate::sessions::hub::SessionHub;
use crate::volumes::{Volume, Volumes};

/// How long stores, and changes, are waited for: a store's time, and what its end takes.
const PATIENCE: Duration = STORE_TIME.saturating_add(Duration::from_secs(2));

/// For how long a volume is held at most.
const MOST: Duration = Duration::from_secs(60);

/// How long files are waited for that are to get the list of their directory, and how often they are looked at.
const LISTS_MOST: Duration = Duration::from_secs(2);
const LISTS_LOOK: Duration = Duration::from_millis(20);

/// For how long it goes on to be held when a part of it is elsewhere: who has copied it lets it go at once.
const MOVE_MOST: Duration = Duration::from_secs(10);

/// The volumes that are held.
#[derive(Debug)]
pub(crate) struct Holding {
    /// Never the same again, also not by another start of the manager.
    tickets: AtomicU64,
}

impl Holding {
    pub(crate) fn new() -> Holding {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Holding { tickets: AtomicU64::new(u64::try_from(now.as_nanos()).unwrap_or(0)) }
    }

    /// Holds a volume.
    pub(crate) fn hold(
        &self,
        volumes: &Volumes,
        hub: &SessionHub,
        asked: &HoldVolumeArguments,
    ) -> Outcome<HeldVolume> {
        let (volume, names) = volumes.served(&asked.volume)?;
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        if names.door().is_held() {
            return Err(ManagerStatus::Busy);
        }
        {
            // Somebody else may hold it by now, who waits for this then.
            let _inside = names.door().try_enter().ok_or(ManagerStatus::Busy)?;
            names.bring_most_home()?;
        }
        let most = Duration::from_nanos(asked.most_ns).min(MOST);
        let begun = Instant::now();
        let held = stand_still(hub, &volume, &names, ticket).and_then(|()| {
            match names.door().hold_on(ticket, Instant::now() + most) {
                true => Ok(()),
                false => Err(ManagerStatus::Busy),
            }
        });
        if let Err(status) = held {
            let_go(hub, &names, ticket);
            tracing::warn!(volume = %volume.name(), ?status, "the volume does not stand still");
            return Err(status);
        }
        hub.with(|all, now| {
            all.release(ticket, now);
            all.hold(ticket, names.parts(), now + most);
        });
        tracing::info!(volume = %volume.name(), took = ?begun.elapsed(), "the volume is held");
        Ok(HeldVolume { ticket })
    }

    /// A part of a volume that is held is elsewhere from now on.
    pub(crate) fn move_part(
        &self,
        volumes: &Volumes,
        hub: &SessionHub,
        asked: &MovePartArguments,
    ) -> Outcome<()> {
        let (volume, names) = volumes.served(&asked.volume)?;
        // It goes on being held for as long as this may take.
        hub.with(|all, now| {
            all.release(asked.ticket, now);
            all.hold(asked.ticket, names.parts(), now + MOVE_MOST);
        });
        let is_held = || names.door().hold_on(asked.ticket, Instant::now() + MOVE_MOST);
        if !is_held() {
            hub.with(|all, now| all.release(asked.ticket, now));
            return Err(ManagerStatus::Stale);
        }
        let to = Location { drive: asked.drive, partition: asked.partition };
        volumes.move_part(&volume, asked.part, to, is_held)
    }

    /// Lets a volume go on.
    pub(crate) fn release(
        &self,
        volumes: &Volumes,
        hub: &SessionHub,
        asked: &ReleaseVolumeArguments,
    ) -> Outcome<()> {
        let names = volumes.named(&asked.volume)?;
        match let_go(hub, &names, asked.ticket) {
            true => Ok(()),
            false => Err(ManagerStatus::Stale),
        }
    }
}

/// Ends a hold; whether there was one until now.
fn let_go(hub: &SessionHub, names: &Namespace, ticket: u64) -> bool {
    let was_held = names.door().release(ticket);
    hub.with(|all, now| all.release(ticket, now));
    was_held
}

/// Returns when nothing changes any more in a volume, which is held then.
fn stand_still(hub: &SessionHub, volume: &Volume, names: &Namespace, ticket: u64) -> Outcome<()> {
    if names.has_callbacks() {
        hub.with(|all, now| all.hold(ticket, names.parts(), now + 2 * PATIENCE));
        be_quiet(hub, names, ticket)?;
        // Nobody stores now, so that this does not take long.
        let deadline = Instant::now() + LISTS_MOST;
        while names.gives_lists() && Instant::now() < deadline {
            thread::sleep(LISTS_LOOK);
        }
    }
    if !names.door().hold(ticket, Instant::now() + 2 * PATIENCE) {
        return Err(ManagerStatus::Busy);
    }
    if !names.door().is_empty(ticket, Instant::now() + PATIENCE) {
        return Err(ManagerStatus::Busy);
    }
    if names.gives_lists() {
        // A copy would have files with the rights of before, and nobody to go on.
        return Err(ManagerStatus::Busy);
    }
    match names.has_callbacks() {
        // The file manager itself has stored until now.
        true => be_quiet(hub, names, ticket)?,
        false if !volume.revoke_all() => return Err(ManagerStatus::Unavailable),
        false => {}
    }
    names.bring_all_home()
}

/// Returns when nobody stores any more.
fn be_quiet(hub: &SessionHub, names: &Namespace, ticket: u64) -> Outcome<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match hub.turn(deadline, |all, _| Ok(all.quiet(ticket))) {
            Ok(Turn::Done(())) => return Ok(()),
            Ok(Turn::Work(work)) => perform(hub, names, work)?,
            Ok(Turn::Wait) | Err(_) => return Err(ManagerStatus::Busy),
        }
    }
}
