//! `nasd status`: one screen of the cell's truth.

use super::Outcome;
use crate::health::{
    self, ComponentFacts, DriveFacts, Facts, Finding, KeyFacts, OwnStateFacts, State, VolumeFacts,
};
use crate::output::{self, say};
use nasd_cell::session::{COMMAND_DEADLINE, STOPPED_PATIENCE, manager_within};
use nasd_cell::time::spoken;
use nasd_cell::{Cell, CellLock, DriveConfig, now, times_of};
use nasd_client::{Caller, ClientError, ManagerClient};
use nasd_manager::keys::KeptKeys;
use nasd_protocol::drive::{
    ComponentComplaint, ComponentRole, ComponentStatus, DriveControl, MemberState, NO_QUOTA,
};
use nasd_protocol::manager::{CellStatus, DriveStatus, VolumeSummary};
use serde::Serialize;
use std::error::Error;
use std::fmt::Write;
use std::time::Duration;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Status {
    cell: String,
    directory: String,
    /// The process that runs the cell on this machine, if one does.
    pid: Option<u32>,
    state: State,
    health: Vec<Finding>,
    volumes: Vec<Volume>,
    managers: Vec<Manager>,
    drives: Vec<Drive>,
    bytes: Bytes,
}

#[derive(Debug, Serialize)]
struct Volume {
    name: String,
    personality: &'static str,
    /// Whether it is served; it has no room otherwise.
    serving: bool,
    has_quota: bool,
    total_bytes: u64,
    free_bytes: u64,
    files: u64,
    /// About how many more there is room for.
    free_files: u64,
    /// Objects and changes that wait for a drive.
    backlog: u64,
}

#[derive(Debug, Serialize)]
struct Manager {
    address: String,
    started_s: u64,
    requests: u64,
    client_bytes_received: u64,
    client_bytes_sent: u64,
}

#[derive(Debug, Serialize)]
struct Drive {
    index: u32,
    id: String,
    address: String,
    device: String,
    reachable: bool,
    capacity_bytes: u64,
    used_bytes: u64,
    objects: u64,
    bytes_read: u64,
    bytes_written: u64,
    /// Of both, what went through the manager.
    bytes_forwarded: u64,
    refusals: u64,
    clock_offset_ns: i64,
    read_only: bool,
    bad_blocks: u64,
    /// Of a virtual drive, the drives that have its objects.
    components: Vec<Component>,
    /// And those that have the striping manager's own state, as far as that is known here.
    state_on: Vec<u32>,
}

#[derive(Debug, Serialize)]
struct Component {
    index: u32,
    id: String,
    address: String,
    reachable: bool,
    /// `current`; `out`, whose copies are not used; or `joining`, which is given what it lacks.
    state: &'static str,
    /// Since when it has lacked something, in seconds since 1970; 0 if it has all.
    since_s: u64,
    capacity_bytes: u64,
    used_bytes: u64,
    /// Objects that are looked at to give it what it lacks, how many were, and bytes written for that.
    objects: u64,
    objects_done: u64,
    bytes_done: u64,
    /// In so many seconds it will have all, as it seems; 0 if nothing is given to it, or that is not known.
    seconds_left: u32,
    /// `member`; `spare`, which has nothing until another one is lost; or `leaving`, which gives what it has to others.
    role: &'static str,
    /// In how many places of groups it is, is about to be, and is about to be no more.
    places: u32,
    places_coming: u32,
    places_going: u32,
    /// Whether it has a copy of the striping manager's own state.
    has_state: bool,
    /// `slow`, what it is to make durable takes far longer than at others; `refuses`, its medium does not take it; or empty.
    complaint: &'static str,
}

/// File data by the way it took, since the drives' and the manager's processes started.
#[derive(Debug, Serialize)]
struct Bytes {
    /// Straight between clients and drives, under capabilities.
    direct: u64,
    /// Through the manager.
    manager: u64,
}

/// Prints the cell's state. With `check` the exit status tells it: see docs/health.md.
///
/// # Errors
/// If the manager does not answer; what is known without it is printed all the same.
pub fn status(cell: &Cell, check: bool, json: bool) -> Outcome {
    let pid = CellLock::holder(&cell.lock_path());
    let patience = if pid.is_some() { COMMAND_DEADLINE } else { STOPPED_PATIENCE };
    let asked = ask(cell, patience)?;
    let (told, away) = match asked {
        Ok(told) => (Some(told), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let told_drives = told.as_ref().map_or(&[][..], |told| &told.status.drives);
    let drives: Vec<Drive> = told_drives.iter().map(|told| drive(cell, told)).collect();
    let volumes = told.as_ref().map_or_else(Vec::new, |told| told.volumes.clone());
    let health = health::judge(&facts(cell, &drives, &volumes, away.clone()));
    let status = Status {
        cell: cell.config.cell_id().to_string(),
        directory: cell.directory().display().to_string(),
        pid,
        state: State::of(&health),
        health,
        managers: told.iter().map(|told| manager_of(cell, &told.status)).collect(),
        bytes: Bytes {
            direct: drives.iter().map(Drive::bytes_direct).sum(),
            manager: told.as_ref().map_or(0, |told| told.status.file_data_bytes),
        },
        volumes: volumes.into_iter().map(volume).collect(),
        drives,
    };
    if json {
        output::json(&status)?;
    } else {
        say!("{}", screen(&status)?.trim_end());
    }
    if check {
        std::process::exit(status.state.exit_status().into());
    }
    match away {
        Some(why) => Err(format!("the manager does not answer: {why}").into()),
        None => Ok(()),
    }
}

/// What the manager tells.
struct Told {
    status: CellStatus,
    volumes: Vec<VolumeFacts>,
}

/// Asks the manager, who may be away.
///
/// # Errors
/// Missing or wrong certificates.
fn ask(cell: &Cell, patience: Duration) -> Result<Result<Told, ClientError>, Box<dyn Error>> {
    let (client, caller) = manager_within(cell, patience)?;
    let told = client.status(&caller).and_then(|status| {
        let volumes = client.volumes(&caller)?.volumes;
        let volumes: Result<_, _> =
            volumes.iter().map(|summary| ask_volume(&client, &caller, summary)).collect();
        Ok(Told { status, volumes: volumes? })
    });
    match told {
        Err(error @ ClientError::Unreachable { .. }) => Ok(Err(error)),
        told => Ok(Ok(told?)),
    }
}

fn ask_volume(
    client: &ManagerClient,
    caller: &Caller,
    summary: &VolumeSummary,
) -> Result<VolumeFacts, ClientError> {
    let mut volume = VolumeFacts {
        name: summary.name.to_string(),
        serving: summary.serving,
        backlog: summary.backlog,
        personality: summary.personality,
        ..VolumeFacts::default()
    };
    if summary.serving {
        let space = client.space(caller, summary.name.as_bytes())?;
        (volume.total_bytes, volume.free_bytes) = (space.total_bytes, space.free_bytes);
        (volume.files, volume.free_files) = (space.files, space.free_files);
        let parts = client.volume_parts(caller, &summary.name)?.parts;
        let limited = |quota: u64| quota != NO_QUOTA;
        volume.has_quota = parts.iter().any(|part| part.reachable && limited(part.quota_bytes));
    }
    Ok(volume)
}

fn volume(facts: VolumeFacts) -> Volume {
    Volume {
        name: facts.name,
        personality: facts.personality.name(),
        serving: facts.serving,
        has_quota: facts.has_quota,
        total_bytes: facts.total_bytes,
        free_bytes: facts.free_bytes,
        files: facts.files,
        free_files: facts.free_files,
        backlog: facts.backlog,
    }
}

fn manager_of(cell: &Cell, told: &CellStatus) -> Manager {
    Manager {
        address: cell.config.manager.address.to_string(),
        started_s: told.started.seconds(),
        requests: told.requests,
        client_bytes_received: told.client_bytes_received,
        client_bytes_sent: told.client_bytes_sent,
    }
}

fn drive(cell: &Cell, told: &DriveStatus) -> Drive {
    let known = cell.config.drives.iter().find(|known| known.drive_id() == told.drive);
    let control = told.control.as_ref();
    let number = |get: fn(&DriveControl) -> u64| control.map_or(0, get);
    Drive {
        index: known.map_or(0, |known| known.index),
        id: format!("{:016x}", told.drive.0),
        address: told.address.clone(),
        device: known.map_or_else(String::new, device),
        reachable: told.reachable,
        capacity_bytes: number(|control| control.capacity_bytes),
        used_bytes: number(|control| control.used_bytes),
        objects: number(|control| control.partitions.iter().map(|part| part.objects).sum()),
        bytes_read: number(|control| control.capability_bytes_read),
        bytes_written: number(|control| control.capability_bytes_written),
        bytes_forwarded: told.forwarded_bytes,
        refusals: number(|control| control.refusals),
        clock_offset_ns: control.map_or(0, |control| control.clock_offset),
        read_only: control.is_some_and(|control| control.read_only),
        bad_blocks: number(|control| control.bad_blocks),
        components: control.map_or_else(Vec::new, |control| components(cell, known, control)),
        state_on: known.map_or(&[][..], state_on).to_vec(),
    }
}

/// Where a drive has its device: on others, if it is a virtual one.
fn device(drive: &DriveConfig) -> String {
    match state_on(drive) {
        [] => drive.device.display().to_string(),
        drives => super::drive::list(drives),
    }
}

/// The drives that have the own state of a virtual one.
fn state_on(drive: &DriveConfig) -> &[u32] {
    drive.stripe.as_ref().map_or(&[], |stripe| &stripe.state.copies)
}

fn components(cell: &Cell, whole: Option<&DriveConfig>, control: &DriveControl) -> Vec<Component> {
    let component = |told: &ComponentStatus| {
        let known = cell.config.drives.iter().find(|known| known.drive_id() == told.drive);
        let index = known.map_or(0, |known| known.index);
        Component {
            index,
            has_state: whole.is_some_and(|whole| state_on(whole).contains(&index)),
            id: format!("{:016x}", told.drive.0),
            address: told.address.clone(),
            reachable: told.reachable,
            state: match told.state {
                MemberState::Current => "current",
                MemberState::Joining => "joining",
                MemberState::Out => "out",
            },
            since_s: told.since.seconds(),
            capacity_bytes: told.capacity_bytes,
            used_bytes: told.used_bytes,
            objects: told.objects,
            objects_done: told.objects_done,
            bytes_done: told.bytes_done,
            seconds_left: told.seconds_left,
            role: match told.role {
                ComponentRole::Member => "member",
                ComponentRole::Spare => "spare",
                ComponentRole::Leaving => "leaving",
            },
            places: told.places,
            places_coming: told.places_coming,
            places_going: told.places_going,
            complaint: match told.complaint {
                ComponentComplaint::None => "",
                ComponentComplaint::Slow => "slow",
                ComponentComplaint::Refuses => "refuses",
            },
        }
    };
    // One that was removed is told of until its manager has looked again.
    let is_gone = |told: &ComponentStatus| {
        let is_known = cell.config.drives.iter().any(|known| known.drive_id() == told.drive);
        let is_left = told.role == ComponentRole::Leaving && told.places + told.places_coming == 0;
        is_left && !is_known
    };
    let there = control.components.iter().filter(|told| !is_gone(told));
    let mut components: Vec<_> = there.map(component).collect();
    components.sort_by_key(|component| component.index);
    components
}

impl Component {
    /// What is to be said of it, if there is anything.
    fn remark(&self) -> String {
        let mut remarks = Vec::new();
        match self.role {
            "spare" if self.places == 0 => remarks.push("spare".to_owned()),
            "spare" => remarks.push("spare, in use".to_owned()),
            "leaving" if self.places + self.places_coming == 0 => {
                remarks.push(format!("empty: `nasd drive remove {}`", self.index));
            }
            "leaving" => remarks.push("gives what it has to others".to_owned()),
            _ => {}
        }
        match self.state {
            "joining" => remarks.push(format!("is given what it lacks: {}", self.progress())),
            "out" => remarks.push("out: its copies are not used".to_owned()),
            _ if !self.reachable => remarks.push("does not answer".to_owned()),
            _ if self.places_coming > 0 => {
                remarks.push(format!("is given its share: {}", self.progress()));
            }
            _ => {}
        }
        match self.complaint {
            "slow" => {
                remarks.push("slow: its writes take far longer than those of others".to_owned())
            }
            "refuses" => remarks.push("its medium refuses writes".to_owned()),
            _ => {}
        }
        if remarks.is_empty() { String::new() } else { format!("  {}", remarks.join("; ")) }
    }

    fn progress(&self) -> String {
        progress((self.objects_done, self.objects), self.bytes_done, self.seconds_left)
    }
}

/// How far it is that a drive is given something.
pub fn progress((done, objects): (u64, u64), written: u64, seconds_left: u32) -> String {
    let written = size(written);
    let left = match seconds_left {
        0 => String::new(),
        seconds => format!(", {} left", spoken(seconds.into())),
    };
    format!("{done} of {objects} objects, {written} written{left}")
}

impl Drive {
    /// Data that clients moved themselves. The drive can't tell them from those that the manager moved
    /// for clients, by capabilities of the same kind.
    fn bytes_direct(&self) -> u64 {
        (self.bytes_read + self.bytes_written).saturating_sub(self.bytes_forwarded)
    }
}

/// Everything that health is judged by.
fn facts(
    cell: &Cell,
    drives: &[Drive],
    volumes: &[VolumeFacts],
    manager_away: Option<String>,
) -> Facts {
    let drive = |drive: &Drive| DriveFacts {
        name: format!("drive {}", drive.index),
        address: drive.address.clone(),
        reachable: drive.reachable,
        capacity_bytes: drive.capacity_bytes,
        used_bytes: drive.used_bytes,
        clock_offset: drive.clock_offset_ns,
        read_only: drive.read_only,
        bad_blocks: drive.bad_blocks,
    };
    let unfinished = cell.config.other_volumes.iter().filter(|volume| volume.unfinished);
    Facts {
        now: now().seconds(),
        manager_away,
        drives: drives.iter().map(drive).collect(),
        components: drives
            .iter()
            .flat_map(|drive| &drive.components)
            .map(component_facts)
            .collect(),
        own_states: cell.config.drives.iter().filter_map(own_state_facts).collect(),
        volumes: volumes.to_vec(),
        unfinished: unfinished.map(|volume| volume.name.clone()).collect(),
        certificates: certificates(cell),
        keys: keys(cell),
    }
}

fn own_state_facts(drive: &DriveConfig) -> Option<OwnStateFacts> {
    let stripe = drive.stripe.as_ref()?;
    let copies = &stripe.state.copies;
    let staying = stripe.over.iter().filter(|index| !stripe.leaving.contains(index)).count();
    Some(OwnStateFacts {
        name: drive.member(),
        on: super::drive::list(copies),
        copies: copies.len(),
        drives: staying,
    })
}

fn component_facts(component: &Component) -> ComponentFacts {
    ComponentFacts {
        name: format!("drive {}", component.index),
        address: component.address.clone(),
        reachable: component.reachable,
        state: component.state,
        remark: component.remark().trim().to_owned(),
        complaint: component.complaint,
    }
}

/// The ends of the certificates that are here.
fn certificates(cell: &Cell) -> Vec<(String, u64)> {
    let ends = |name: &&str| {
        let (_, ends) = times_of(&cell.certificate(name).certificate).ok()?;
        Some(((*name).to_owned(), ends))
    };
    ["host", "user", "admin", "manager"].iter().filter_map(ends).collect()
}

/// The working keys, where the keyring is and nobody must be asked to open it.
fn keys(cell: &Cell) -> Vec<KeyFacts> {
    let Some(keyring) = cell.open_keyring() else { return Vec::new() };
    let interval = cell.config.rotation_interval().map(|interval| interval.as_secs());
    let now = now().seconds();
    let fact = |name: String, kept: KeptKeys| KeyFacts {
        name,
        age: (kept.changed.seconds() > 0).then(|| now.saturating_sub(kept.changed.seconds())),
        interval,
        owed: kept.owed,
    };
    let mut keys = Vec::new();
    for drive in &cell.config.drives {
        let (id, index) = (drive.drive_id(), drive.index);
        if let Some(kept) = keyring.working_keys(id) {
            keys.push(fact(format!("drive {index}, volume {}", cell.config.volume), kept));
        }
        for volume in &cell.config.other_volumes {
            let parts = volume.parts.iter().filter(|part| part.drive_id() == id);
            let kept = parts.filter_map(|part| keyring.volume_keys(id, part.partition_id()));
            for kept in kept {
                keys.push(fact(format!("drive {index}, volume {}", volume.name), kept));
            }
        }
    }
    keys
}

fn screen(status: &Status) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    writeln!(out, "cell {} in {}: {}", status.cell, status.directory, status.state)?;
    for Finding { code, severity, about, text } in &status.health {
        writeln!(out, "  {severity} {}: {about} {text}", code.code)?;
    }
    if !status.health.is_empty() {
        writeln!(out, "  (`nasd explain CODE` tells what to do)")?;
    }
    for volume in &status.volumes {
        if !volume.serving {
            writeln!(out, "volume {} ({}): not served", volume.name, volume.personality)?;
            continue;
        }
        let used = volume.total_bytes.saturating_sub(volume.free_bytes);
        let (used, total) = (size(used), size(volume.total_bytes));
        writeln!(
            out,
            "volume {} ({}): {used} of {total} used; {} files, room for about {} more",
            volume.name, volume.personality, volume.files, volume.free_files
        )?;
    }
    for manager in &status.managers {
        writeln!(
            out,
            "manager {}: {} requests, {} in and {} out (names, attributes, capabilities)",
            manager.address,
            manager.requests,
            size(manager.client_bytes_received),
            size(manager.client_bytes_sent)
        )?;
    }
    writeln!(
        out,
        "\n{:<6}{:<22}{:>10}{:>10}{:>9}{:>10}{:>10}{:>9}",
        "drive", "address", "used", "size", "objects", "read", "written", "refused"
    )?;
    for drive in &status.drives {
        let (used, capacity) = (size(drive.used_bytes), size(drive.capacity_bytes));
        let (read, written) = (size(drive.bytes_read), size(drive.bytes_written));
        let (index, address, objects) = (drive.index, &drive.address, drive.objects);
        write!(out, "{index:<6}{address:<22}{used:>10}{capacity:>10}{objects:>9}")?;
        writeln!(out, "{read:>10}{written:>10}{:>9}", drive.refusals)?;
        for component in &drive.components {
            let (used, capacity) = (size(component.used_bytes), size(component.capacity_bytes));
            let (index, address) = (format!("  {}", component.index), &component.address);
            writeln!(out, "{index:<6}{address:<22}{used:>10}{capacity:>10}{}", component.remark())?;
        }
        if !drive.state_on.is_empty() {
            let drives = super::drive::list(&drive.state_on);
            writeln!(out, "  the striping manager's own state is on {drives}")?;
        }
    }
    writeln!(out, "\ndata direct between clients and drives: {} bytes", status.bytes.direct)?;
    writeln!(out, "data through the manager:               {} bytes", status.bytes.manager)?;
    Ok(out)
}

/// Bytes for people, in powers of 1024.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_for_people() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(8 << 30), "8.0 GiB");
        assert_eq!(size(u64::MAX), "16777216.0 TiB");
    }
}
