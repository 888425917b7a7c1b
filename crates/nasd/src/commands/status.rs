//! `nasd status`: one screen of the cell's truth.

use super::Outcome;
use crate::cell::{Cell, CellLock};
use crate::session::{COMMAND_DEADLINE, Connected, connect};
use nasd_clerk::CellStatus;
use nasd_protocol::drive::DriveControl;
use nasd_protocol::manager::DriveStatus;
use serde::Serialize;
use std::fmt::Write;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Status {
    cell: String,
    directory: String,
    /// The process that runs the cell on this machine, if one does.
    pid: Option<u32>,
    health: Vec<Health>,
    volumes: Vec<Volume>,
    managers: Vec<Manager>,
    drives: Vec<Drive>,
    bytes: Bytes,
}

/// Something that needs attention.
#[derive(Debug, Serialize)]
struct Health {
    code: &'static str,
    text: String,
}

#[derive(Debug, Serialize)]
struct Volume {
    name: String,
    personality: &'static str,
    total_bytes: u64,
    free_bytes: u64,
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
    refusals: u64,
}

/// File data by the way it took, since the drives' and the manager's processes started.
#[derive(Debug, Serialize)]
struct Bytes {
    /// Between clients and drives, under capabilities.
    direct: u64,
    /// Through the manager.
    manager: u64,
}

/// Drives fuller than this are reported.
const NEARLY_FULL: f64 = 0.9;

/// Prints the cell's state.
///
/// # Errors
/// If the manager does not answer.
pub fn status(cell: &Cell, json: bool) -> Outcome {
    let Connected { clerk, caller } = connect(cell, &cell.config.volume, COMMAND_DEADLINE)?;
    let answer = clerk.status(&caller)?;
    let space = clerk.space(&caller)?;
    let volume = Volume {
        name: answer.volume.to_string(),
        personality: "nfs",
        total_bytes: space.total_bytes,
        free_bytes: space.free_bytes,
    };
    let drives = drives(cell, &answer);
    let status = Status {
        cell: answer.cell.to_string(),
        directory: cell.directory().display().to_string(),
        pid: CellLock::holder(&cell.lock_path()),
        health: health(&drives),
        volumes: vec![volume],
        managers: vec![Manager {
            address: cell.config.manager.address.to_string(),
            started_s: answer.started.seconds(),
            requests: answer.requests,
            client_bytes_received: answer.client_bytes_received,
            client_bytes_sent: answer.client_bytes_sent,
        }],
        bytes: Bytes {
            direct: drives.iter().map(|drive| drive.bytes_read + drive.bytes_written).sum(),
            manager: answer.file_data_bytes,
        },
        drives,
    };
    if json {
        println!("{}", serde_json::to_string_pretty(&status)?);
    } else {
        print!("{}", screen(&status)?);
    }
    Ok(())
}

fn drives(cell: &Cell, answer: &CellStatus) -> Vec<Drive> {
    let drive = |told: &DriveStatus| {
        let known = cell.config.drives.iter().find(|known| known.drive_id() == told.drive);
        let control = told.control.as_ref();
        let number = |get: fn(&DriveControl) -> u64| control.map_or(0, get);
        Drive {
            index: known.map_or(0, |known| known.index),
            id: format!("{:016x}", told.drive.0),
            address: told.address.clone(),
            device: known.map_or_else(String::new, |known| known.device.display().to_string()),
            reachable: told.reachable,
            capacity_bytes: number(|control| control.capacity_bytes),
            used_bytes: number(|control| control.used_bytes),
            objects: number(|control| control.partitions.iter().map(|part| part.objects).sum()),
            bytes_read: number(|control| control.capability_bytes_read),
            bytes_written: number(|control| control.capability_bytes_written),
            refusals: number(|control| control.refusals),
        }
    };
    answer.drives.iter().map(drive).collect()
}

fn health(drives: &[Drive]) -> Vec<Health> {
    let mut findings = Vec::new();
    for drive in drives {
        let (index, address) = (drive.index, &drive.address);
        if !drive.reachable {
            let text = format!("drive {index} at {address} does not answer; its files wait for it");
            findings.push(Health { code: "DRIVE_AWAY", text });
        } else if drive.used_bytes as f64 > NEARLY_FULL * drive.capacity_bytes as f64 {
            let text = format!("drive {index} is more than {:.0} % full", NEARLY_FULL * 100.0);
            findings.push(Health { code: "DRIVE_NEARLY_FULL", text });
        }
    }
    findings
}

fn screen(status: &Status) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    let state = if status.health.is_empty() { "healthy" } else { "needs attention" };
    writeln!(out, "cell {} in {}: {state}", status.cell, status.directory)?;
    for finding in &status.health {
        writeln!(out, "  {}: {}", finding.code, finding.text)?;
    }
    for volume in &status.volumes {
        let used = volume.total_bytes.saturating_sub(volume.free_bytes);
        let (used, total) = (size(used), size(volume.total_bytes));
        writeln!(out, "volume {} ({}): {used} of {total} used", volume.name, volume.personality)?;
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
