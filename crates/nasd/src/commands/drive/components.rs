//! `nasd drive add`, `drain` and `remove`: component drives of a virtual drive come and go while it is used.

use super::super::Outcome;
use super::super::status::{progress, size};
use super::master_keys_note;
use crate::arguments::{AddArguments, DrainArguments};
use crate::memory::default_cache_bytes;
use crate::output::note;
use nasd_cell::session::{COMMAND_DEADLINE, manager_within};
use nasd_cell::{
    Added, AddedDrive, Cell, CellLock, add_drive, change_stripe, component, forget_component,
    virtual_drive,
};
use nasd_protocol::drive::{ComponentRole, ComponentStatus, MemberState};
use nasd_types::DriveId;
use std::error::Error;
use std::time::{Duration, Instant};

/// Size of a device file for which none is given.
const DEFAULT_SIZE_BYTES: u64 = 8 << 30;

/// For how long nothing may move before it is said that it does not.
const STALLED: Duration = Duration::from_secs(60);

/// How long another drive may take to get the copy of the striping manager's own state that one has which is removed.
const STATE_PATIENCE: Duration = Duration::from_secs(30);

/// How often `--wait` looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// For how long the striping manager is asked again that does not answer in time.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often it says how far it is.
const SAY_EVERY: Duration = Duration::from_secs(5);

/// For how long nothing may move before what is to be waited for is taken to be over: those who serve the cell look
/// at its file each second.
const QUIET: Duration = Duration::from_secs(4);

/// Adds a drive to those that the virtual drive is over.
///
/// # Errors
/// A cell without a virtual drive, a device that can't be used, or files that can't be written.
pub fn add(cell: &Cell, arguments: AddArguments) -> Outcome {
    let (_, stripe) = virtual_drive(&cell.config)?;
    let AddArguments { device, size: asked, address, cache, spare, yes, wait } = arguments;
    if let Some(device) = device.as_ref().filter(|device| device.exists() && !yes) {
        let path = device.display();
        return Err(format!("everything on {path} would be lost: add --yes to agree").into());
    }
    let count = cell.config.drives.len() as u64;
    let cache_bytes = cache.unwrap_or_else(|| default_cache_bytes(count));
    let size_bytes = match &device {
        Some(device) if device.exists() => None,
        _ => Some(asked.unwrap_or(DEFAULT_SIZE_BYTES)),
    };
    let role = if spare { Added::Spare } else { Added::Component };
    let added = add_drive(cell, &AddedDrive { device, size_bytes, address, cache_bytes, role })?;
    let others: Vec<u32> = stripe.members().collect();
    let index = added.index;
    match (spare, CellLock::holder(&cell.lock_path())) {
        (true, _) => println!("drive {index} is a spare: it takes the place of one that is lost"),
        (false, None) => println!("drive {index} gets its share when the cell runs: `nasd up`"),
        (false, Some(_)) => {
            let moving = components(cell).map_or(0, |statuses| {
                let used = statuses.iter().map(|status| status.used_bytes).sum::<u64>();
                used / (others.len() as u64 + 1)
            });
            let (moving, others) = (size(moving), list(&others));
            println!("drive {index} gets its share: about {moving} move to it from {others}");
        }
    }
    note!("{}", master_keys_note(cell));
    if wait && !spare { wait_until_moved(cell, added.drive_id()) } else { Ok(()) }
}

/// Moves all that a drive has to the others, or no more of it.
///
/// # Errors
/// A drive that is none of them, others that can't take what it has, or a cell that does not run.
pub fn drain(cell: &Cell, arguments: &DrainArguments) -> Outcome {
    let &DrainArguments { index, cancel, wait } = arguments;
    let drive = component(&cell.config, index)?.drive_id();
    if cancel {
        change_stripe(cell, |stripe| {
            stripe.leaving.retain(|other| *other != index);
            Ok(())
        })?;
        println!("drive {index} keeps what it has, and gets its share again");
        return if wait { wait_until_moved(cell, drive) } else { Ok(()) };
    }
    let (_, stripe) = virtual_drive(&cell.config)?;
    let others: Vec<u32> = stripe.members().filter(|other| *other != index).collect();
    let statuses = components(cell)?;
    check_drain(cell, (index, drive), &others, &statuses)?;
    change_stripe(cell, |stripe| {
        if !stripe.leaving.contains(&index) {
            stripe.leaving.push(index);
        }
        Ok(())
    })?;
    let used = statuses.iter().find(|status| status.drive == drive);
    let used = size(used.map_or(0, |status| status.used_bytes));
    println!("drive {index} gives what it has to others: {used} move to {}", list(&others));
    println!("`nasd status` shows how far it is; `nasd drive remove {index}` ends it");
    if wait { wait_until_moved(cell, drive) } else { Ok(()) }
}

/// Whether the others can take what a drive has.
fn check_drain(
    cell: &Cell,
    (index, drive): (u32, DriveId),
    others: &[u32],
    statuses: &[ComponentStatus],
) -> Outcome {
    let width = statuses.iter().map(|status| status.width).max().unwrap_or(0) as usize;
    if others.len() < width {
        let text = format!(
            "drive {index} can't be drained: files lie on {width} drives, and only {} others have a share; add \
             one first (`nasd drive add`)",
            others.len()
        );
        return Err(text.into());
    }
    let is_other = |status: &&ComponentStatus| {
        let known = cell.config.drives.iter().find(|known| known.drive_id() == status.drive);
        known.is_some_and(|known| others.contains(&known.index))
    };
    let free = |status: &ComponentStatus| status.capacity_bytes.saturating_sub(status.used_bytes);
    let free: u64 = statuses.iter().filter(is_other).map(free).sum();
    let status = statuses.iter().find(|status| status.drive == drive);
    let used = status.map_or(0, |status| status.used_bytes);
    if free < used {
        let (free, used) = (size(free), size(used));
        let text = format!(
            "drive {index} can't be drained: it has {used}, and the others have room for {free}; add a \
             drive first (`nasd drive add`)"
        );
        return Err(text.into());
    }
    Ok(())
}

/// Forgets a drive that has nothing any more.
///
/// # Errors
/// A drive that is none of them, that has something yet, or a cell that does not run.
pub fn remove(cell: &Cell, index: u32) -> Outcome {
    let drive = component(&cell.config, index)?.drive_id();
    let statuses = components(cell)?;
    let of = |drive: DriveId| statuses.iter().find(move |status| status.drive == drive);
    let Some(status) = of(drive) else {
        return Err(format!("nobody knows yet what drive {index} has: try again soon").into());
    };
    let is_in_use = status.places + status.places_coming > 0;
    let (_, stripe) = virtual_drive(&cell.config)?;
    if is_in_use {
        let next = match stripe.leaving.contains(&index) {
            true => "it is giving that to others: `nasd status` shows how far it is".to_owned(),
            false => format!("move that to the others first: `nasd drive drain {index} --wait`"),
        };
        let used = size(status.used_bytes);
        let text = format!("drive {index} has {used} of the cell's data: {next}");
        return Err(text.into());
    }
    if status.reachable && stripe.members().any(|member| member == index) {
        return Err(format!(
            "drive {index} is about to get its share: `nasd drive drain {index}` first"
        )
        .into());
    }
    // Spares that have places keep them.
    let has_places = |index: &u32| {
        let known = cell.config.drives.iter().find(|known| known.index == *index);
        let status = known.and_then(|known| of(known.drive_id()));
        status.is_some_and(|status| status.places > 0)
    };
    let used: Vec<u32> = stripe.spares.iter().copied().filter(has_places).collect();
    await_no_state(cell, index)?;
    let forgotten = forget_component(cell, index, &used)?;
    println!("drive {index} is none of the cell's any more");
    let device = cell.device_path(&forgotten);
    println!("its device is as it was: {}", device.display());
    Ok(())
}

/// Whether the striping manager has a copy of its own state on a drive.
fn has_state(cell: &Cell, index: u32) -> Result<bool, Box<dyn Error>> {
    let now = Cell::open(cell.directory())?;
    Ok(virtual_drive(&now.config)?.1.state.copies.contains(&index))
}

/// Waits until another drive has the copy that one has of the striping manager's own state.
fn await_no_state(cell: &Cell, index: u32) -> Outcome {
    let until = Instant::now() + STATE_PATIENCE;
    while has_state(cell, index)? {
        if Instant::now() > until {
            let text = format!(
                "drive {index} has a copy of the striping manager's own state, and no other drive has taken its place: \
                 the striping manager's log tells why"
            );
            return Err(text.into());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// What the virtual drive tells of its component drives.
fn components(cell: &Cell) -> Result<Vec<ComponentStatus>, Box<dyn Error>> {
    let (config, _) = virtual_drive(&cell.config)?;
    if CellLock::holder(&cell.lock_path()).is_none() {
        return Err("the cell does not run here: `nasd up` starts it".into());
    }
    let (client, caller) = manager_within(cell, COMMAND_DEADLINE)?;
    let begun = Instant::now();
    loop {
        let told = client.status(&caller)?;
        let found = told.drives.into_iter().find(|told| told.drive == config.drive_id());
        match found.and_then(|told| told.control) {
            Some(control) => return Ok(control.components),
            // The manager gives it a second. While who has what changes it takes longer.
            None if begun.elapsed() < PATIENCE => std::thread::sleep(LOOK_EVERY),
            None => return Err(format!("{} does not answer the manager", config.member()).into()),
        }
    }
}

/// Waits until nothing moves any more, and says how far it is.
fn wait_until_moved(cell: &Cell, drive: DriveId) -> Outcome {
    let (mut moved, mut said) = (Instant::now(), Instant::now());
    loop {
        std::thread::sleep(LOOK_EVERY);
        let statuses = components(cell)?;
        let taker = statuses.iter().find(|status| status.places_coming > 0);
        if let Some(taker) = taker {
            moved = Instant::now();
            if said.elapsed() > SAY_EVERY {
                said = Instant::now();
                let objects = (taker.objects_done, taker.objects);
                println!("{}", progress(objects, taker.bytes_done, taker.seconds_left));
            }
        }
        let Some(status) = statuses.iter().find(|status| status.drive == drive) else { continue };
        let is_leaving = status.role == ComponentRole::Leaving;
        let has_to_go =
            is_leaving && (status.places > 0 || has_state(cell, index_of(cell, drive))?);
        if moved.elapsed() > QUIET && !has_to_go {
            println!("nothing is left to be moved");
            return Ok(());
        }
        let is_lacking = |status: &&ComponentStatus| {
            status.state != MemberState::Current && status.role != ComponentRole::Leaving
        };
        if moved.elapsed() > STALLED {
            let text = match statuses.iter().find(is_lacking) {
                Some(lacking) => {
                    let address = &lacking.address;
                    format!("nothing moves before the drive at {address} is back and has all")
                }
                None => "nothing moves: the striping manager's log tells why".to_owned(),
            };
            return Err(text.into());
        }
    }
}

/// The index of a drive of the cell; 0 for any other.
fn index_of(cell: &Cell, drive: DriveId) -> u32 {
    let found = cell.config.drives.iter().find(|known| known.drive_id() == drive);
    found.map_or(0, |known| known.index)
}

/// Drives by their indices.
pub fn list(indices: &[u32]) -> String {
    let named: Vec<String> = indices.iter().map(u32::to_string).collect();
    let word = if named.len() == 1 { "drive" } else { "drives" };
    format!("{word} {}", named.join(", "))
}
