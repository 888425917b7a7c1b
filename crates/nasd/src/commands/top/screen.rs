//! What happened, for people.

use super::extensions::{Extensions, Job};
use super::rates::Rates;
use crate::commands::status::size;
use std::fmt::{Error, Write};

/// Operations, jobs and clients that are shown of each.
const MOST: usize = 12;

fn bytes(rate: f64) -> String {
    format!("{}/s", size(rate as u64))
}

fn time(microseconds: f64) -> String {
    if microseconds < 1000.0 {
        format!("{microseconds:.0} us")
    } else {
        format!("{:.1} ms", microseconds / 1000.0)
    }
}

/// What extensions do, where any does something.
fn extensions(out: &mut String, rates: &Rates) -> Result<(), Error> {
    for drive in &rates.drives {
        let Extensions { memory_bytes, granted_bytes, jobs } = &drive.extensions;
        if jobs.is_empty() {
            continue;
        }
        let (granted, all) = (size(*granted_bytes), size(*memory_bytes));
        let more = jobs.len().saturating_sub(MOST);
        let more = if more > 0 { format!("; {more} more jobs") } else { String::new() };
        writeln!(out, "\nextensions of drive {}: {granted} of {all} granted{more}", drive.index)?;
        writeln!(
            out,
            "{:<6}{:<10}{:<20}{:>10}  {:<9}{:>9}{:>11}{:>11}{:>10}{:>13}{:>11}",
            "drive",
            "what",
            "object",
            "size",
            "state",
            "for",
            "done",
            "left",
            "takes",
            "speed",
            "memory"
        )?;
        for job in jobs.iter().take(MOST) {
            extension(out, job)?;
        }
    }
    Ok(())
}

fn extension(out: &mut String, job: &Job) -> Result<(), Error> {
    let object = format!("{}:{}", job.partition, job.object);
    let elapsed = format!("{:.1} s", job.elapsed_s);
    write!(out, "{:<6}{:<10}{object:<20}", job.drive, job.extension)?;
    write!(out, "{:>10}  {:<9}{elapsed:>9}", size(job.object_bytes), job.state)?;
    write!(out, "{:>11}{:>11}", size(job.bytes_done), size(job.bytes_left))?;
    let takes =
        job.seconds_left.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1} s"));
    writeln!(out, "{takes:>10}{:>13}{:>11}", bytes(job.bytes_per_second), size(job.memory_bytes))
}

/// The screen.
///
/// # Errors
/// None, as it is a string that is written to.
pub fn screen(rates: &Rates) -> Result<String, Error> {
    let mut out = String::new();
    let ways = &rates.bytes_per_second;
    writeln!(
        out,
        "data direct {}, through the manager {}  (of {:.1} s)",
        bytes(ways.direct),
        bytes(ways.manager),
        rates.seconds
    )?;
    let manager = &rates.manager;
    let names = bytes(manager.names_bytes_per_second);
    writeln!(out, "manager {:.0} requests/s, {names} of names\n", manager.requests_per_second)?;
    writeln!(
        out,
        "{:<6}{:>12}{:>14}{:>14}{:>16}{:>12}{:>10}",
        "drive", "requests/s", "read", "written", "by the manager", "its own", "latency"
    )?;
    for drive in &rates.drives {
        if !drive.reachable {
            writeln!(out, "{:<6}{:>12}", drive.index, "away")?;
            continue;
        }
        let (read, written) = (drive.read_bytes_per_second, drive.written_bytes_per_second);
        let (forwarded, own) = (drive.forwarded_bytes_per_second, drive.key_bytes_per_second);
        write!(out, "{:<6}{:>12.0}", drive.index, drive.requests_per_second)?;
        write!(out, "{:>14}{:>14}", bytes(read), bytes(written))?;
        write!(out, "{:>16}{:>12}", bytes(forwarded), bytes(own))?;
        writeln!(out, "{:>10}", drive.mean_us.map_or_else(|| "-".to_owned(), time))?;
    }
    extensions(&mut out, rates)?;
    if !manager.operations.is_empty() {
        let (requests, failed) = ("requests/s", "failed/s");
        writeln!(out, "\n{:<18}{requests:>12}{failed:>10}{:>10}", "manager", "latency")?;
    }
    for operation in manager.operations.iter().take(MOST) {
        let (name, latency) = (&operation.operation, time(operation.mean_us));
        write!(out, "{name:<18}{:>12.0}", operation.requests_per_second)?;
        writeln!(out, "{:>10.0}{latency:>10}", operation.failed_per_second)?;
    }
    if !rates.clients.is_empty() {
        writeln!(
            out,
            "\n{:<24}{:>12}{:>12}{:>20}{:>14}",
            "client", "at manager", "at drives", "read through it", "written"
        )?;
    }
    for client in rates.clients.iter().take(MOST) {
        let read = bytes(client.forwarded_read_bytes_per_second);
        let written = bytes(client.forwarded_written_bytes_per_second);
        write!(out, "{:<24}{:>10.0}/s", client.client, client.manager_requests_per_second)?;
        writeln!(out, "{:>10.0}/s{read:>20}{written:>14}", client.drive_requests_per_second)?;
    }
    Ok(out)
}
