//! What happened between two looks at a cell, a second.

use super::extensions::Extensions;
use super::sample::Sample;
use nasd_protocol::drive::DriveControl;
use nasd_protocol::manager::{DriveStatus, Procedure, Statistics};
use nasd_types::DriveId;
use serde::Serialize;
use std::collections::BTreeMap;

/// What `--json` prints.
#[derive(Debug, Default, Serialize)]
pub struct Rates {
    /// How long the interval was.
    pub seconds: f64,
    /// Data by the way that they took.
    pub bytes_per_second: Ways,
    /// The manager.
    pub manager: Manager,
    /// The drives.
    pub drives: Vec<Drive>,
    /// The members of the cell that did something; only the cell's owner is told of them.
    pub clients: Vec<Client>,
}

/// Data by the way that they took, in bytes a second.
#[derive(Debug, Default, Serialize)]
pub struct Ways {
    /// Straight between clients and drives.
    pub direct: f64,
    /// Through the manager.
    pub manager: f64,
}

/// The manager.
#[derive(Debug, Default, Serialize)]
pub struct Manager {
    pub requests_per_second: f64,
    /// Bytes of names, attributes and capabilities, both ways.
    pub names_bytes_per_second: f64,
    /// By operation; only the cell's owner is told of them.
    pub operations: Vec<ManagerOperation>,
}

/// One procedure of the manager.
#[derive(Debug, Serialize)]
pub struct ManagerOperation {
    pub operation: String,
    pub requests_per_second: f64,
    pub failed_per_second: f64,
    /// How long one took, with what it waited for drives.
    pub mean_us: f64,
}

/// A drive.
#[derive(Debug, Serialize)]
pub struct Drive {
    pub index: u32,
    pub id: String,
    pub reachable: bool,
    pub requests_per_second: f64,
    /// Data that clients read and wrote, whichever way they went.
    pub read_bytes_per_second: f64,
    pub written_bytes_per_second: f64,
    /// Of both, what went through the manager.
    pub forwarded_bytes_per_second: f64,
    /// Data of managers: directories, records, logs.
    pub key_bytes_per_second: f64,
    /// How long a request took, where the drive's metrics tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_us: Option<f64>,
    /// What its extensions do.
    pub extensions: Extensions,
}

/// A member of the cell.
#[derive(Debug, Default, Serialize)]
pub struct Client {
    pub client: String,
    pub manager_requests_per_second: f64,
    /// Requests at drives, whichever way they came.
    pub drive_requests_per_second: f64,
    /// Data that went through the manager.
    pub forwarded_read_bytes_per_second: f64,
    pub forwarded_written_bytes_per_second: f64,
}

impl Rates {
    /// What happened between two samples.
    pub fn between(before: &Sample, now: &Sample) -> Rates {
        let seconds = now.at.duration_since(before.at).as_secs_f64().max(1e-6);
        let per_second = PerSecond(seconds);
        let earlier: BTreeMap<DriveId, &DriveStatus> =
            before.status.drives.iter().map(|drive| (drive.drive, drive)).collect();
        let mut rates = Rates { seconds, ..Rates::default() };
        for told in &now.status.drives {
            let before_told = earlier.get(&told.drive).copied();
            let drive = drive_between(before_told, told, now, per_second);
            let extensions = Extensions::between(before_told, told, now, seconds);
            let mean = mean_between(before.times.get(&told.drive), now.times.get(&told.drive));
            rates.drives.push(Drive { mean_us: mean, extensions, ..drive });
        }
        let both = |drive: &Drive| drive.read_bytes_per_second + drive.written_bytes_per_second;
        let direct = |drive: &Drive| (both(drive) - drive.forwarded_bytes_per_second).max(0.0);
        let forwarded = (before.status.file_data_bytes, now.status.file_data_bytes);
        rates.bytes_per_second = Ways {
            direct: rates.drives.iter().map(direct).sum(),
            manager: per_second.of(forwarded.0, forwarded.1),
        };
        let (was, is) = (&before.status, &now.status);
        let names = |status: &nasd_protocol::manager::CellStatus| {
            status.client_bytes_received.saturating_add(status.client_bytes_sent)
        };
        rates.manager.requests_per_second = per_second.of(was.requests, is.requests);
        rates.manager.names_bytes_per_second = per_second.of(names(was), names(is));
        if let (Some(was), Some(is)) = (&before.statistics, &now.statistics) {
            rates.manager.operations = operations_between(was, is, per_second);
            rates.clients = clients_between(was, is, per_second);
        }
        add_drive_requests(&mut rates.clients, &now.drive_requests, per_second);
        rates
    }
}

/// A number of seconds, by which what happened is divided.
#[derive(Clone, Copy)]
struct PerSecond(f64);

impl PerSecond {
    /// A counter that has fallen belongs to somebody who was started anew, and counts from zero.
    fn of(self, before: u64, now: u64) -> f64 {
        grown(before, now) as f64 / self.0
    }
}

fn grown(before: u64, now: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

fn drive_between(
    before: Option<&DriveStatus>,
    told: &DriveStatus,
    now: &Sample,
    per_second: PerSecond,
) -> Drive {
    let control = |drive: Option<&DriveStatus>, get: fn(&DriveControl) -> u64| {
        drive.and_then(|drive| drive.control.as_ref()).map(get)
    };
    // Of a drive that was away nothing is known to have happened.
    let rate =
        |get: fn(&DriveControl) -> u64| match (control(before, get), control(Some(told), get)) {
            (Some(before), Some(now)) => per_second.of(before, now),
            _ => 0.0,
        };
    let forwarded = before.map_or(told.forwarded_bytes, |before| before.forwarded_bytes);
    Drive {
        index: now.indices.get(&told.drive).copied().unwrap_or_default(),
        id: format!("{:016x}", told.drive.0),
        reachable: told.reachable,
        requests_per_second: rate(|control| control.requests),
        read_bytes_per_second: rate(|control| control.capability_bytes_read),
        written_bytes_per_second: rate(|control| control.capability_bytes_written),
        forwarded_bytes_per_second: per_second.of(forwarded, told.forwarded_bytes),
        key_bytes_per_second: rate(|control| {
            control.key_bytes_read.saturating_add(control.key_bytes_written)
        }),
        mean_us: None,
        extensions: Extensions::default(),
    }
}

/// The mean of those that were measured in between, in microseconds.
fn mean_between(before: Option<&(f64, f64)>, now: Option<&(f64, f64)>) -> Option<f64> {
    let ((count_before, time_before), (count, time)) = (before?, now?);
    let count = count - count_before;
    (count > 0.0).then(|| (time - time_before).max(0.0) * 1e6 / count)
}

fn operations_between(
    was: &Statistics,
    is: &Statistics,
    per_second: PerSecond,
) -> Vec<ManagerOperation> {
    let before: BTreeMap<u32, _> =
        was.operations.iter().map(|counted| (counted.procedure, counted)).collect();
    let operation = |now: &nasd_protocol::manager::OperationStatistics| {
        let earlier = before.get(&now.procedure);
        let (requests, failed, nanoseconds) =
            earlier.map_or((0, 0, 0), |then| (then.requests, then.failed, then.nanoseconds));
        let count = grown(requests, now.requests);
        let name = Procedure::try_from(now.procedure);
        ManagerOperation {
            operation: name.map_or_else(|_| "?".into(), |name| format!("{name:?}").to_lowercase()),
            requests_per_second: per_second.of(requests, now.requests),
            failed_per_second: per_second.of(failed, now.failed),
            mean_us: grown(nanoseconds, now.nanoseconds) as f64 / 1e3 / count.max(1) as f64,
        }
    };
    let mut operations: Vec<_> = is.operations.iter().map(operation).collect();
    operations.retain(|operation| operation.requests_per_second > 0.0);
    operations.sort_by(|one, other| other.requests_per_second.total_cmp(&one.requests_per_second));
    operations
}

fn clients_between(was: &Statistics, is: &Statistics, per_second: PerSecond) -> Vec<Client> {
    let before: BTreeMap<&str, _> =
        was.clients.iter().map(|client| (client.client.as_str(), client)).collect();
    let rates = is.clients.iter().map(|now| {
        let earlier = before.get(now.client.as_str());
        let (requests, read, written) =
            earlier.map_or((0, 0, 0), |then| (then.requests, then.read_bytes, then.written_bytes));
        Client {
            client: now.client.clone(),
            manager_requests_per_second: per_second.of(requests, now.requests),
            drive_requests_per_second: 0.0,
            forwarded_read_bytes_per_second: per_second.of(read, now.read_bytes),
            forwarded_written_bytes_per_second: per_second.of(written, now.written_bytes),
        }
    });
    rates.filter(|client| client.manager_requests_per_second > 0.0).collect()
}

/// The drives write their trails once a second, so that these rates are of the second before.
fn add_drive_requests(
    clients: &mut Vec<Client>,
    requests: &BTreeMap<String, u64>,
    per_second: PerSecond,
) {
    for (name, count) in requests {
        let rate = per_second.of(0, *count);
        match clients.iter_mut().find(|client| client.client == *name) {
            Some(client) => client.drive_requests_per_second = rate,
            None => clients.push(Client {
                client: name.clone(),
                drive_requests_per_second: rate,
                ..Client::default()
            }),
        }
    }
    let all =
        |client: &Client| client.manager_requests_per_second + client.drive_requests_per_second;
    clients.sort_by(|one, other| all(other).total_cmp(&all(one)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_protocol::manager::{ClientStatistics, OperationStatistics};

    const TWO: PerSecond = PerSecond(2.0);

    #[test]
    fn a_counter_that_fell_counts_from_zero() {
        assert_eq!(TWO.of(10, 30), 10.0);
        assert_eq!(TWO.of(30, 10), 5.0);
    }

    fn statistics(requests: u64, read_bytes: u64) -> Statistics {
        let procedure = u32::from(Procedure::Lookup);
        let nanoseconds = requests * 5000;
        Statistics {
            operations: vec![OperationStatistics { procedure, requests, failed: 1, nanoseconds }],
            clients: vec![ClientStatistics {
                client: "host:a".to_owned(),
                requests,
                read_bytes,
                written_bytes: 7,
            }],
        }
    }

    #[test]
    fn operations_and_clients_are_told_by_what_they_did_in_between() {
        let (was, is) = (statistics(10, 100), statistics(20, 300));
        let operations = operations_between(&was, &is, TWO);
        assert_eq!(operations[0].operation, "lookup");
        assert_eq!((operations[0].requests_per_second, operations[0].mean_us), (5.0, 5.0));
        assert_eq!(operations[0].failed_per_second, 0.0);
        assert!(operations_between(&is, &is, TWO).is_empty());
        let mut clients = clients_between(&was, &is, TWO);
        assert_eq!(clients[0].forwarded_read_bytes_per_second, 100.0);
        let requests = [("host:a".to_owned(), 4), ("host:b".to_owned(), 40)].into();
        add_drive_requests(&mut clients, &requests, TWO);
        let told: Vec<_> = clients
            .iter()
            .map(|client| (client.client.as_str(), client.drive_requests_per_second))
            .collect();
        assert_eq!(told, [("host:b", 20.0), ("host:a", 2.0)]);
    }

    #[test]
    fn the_mean_is_of_what_was_measured_in_between() {
        assert_eq!(mean_between(Some(&(1.0, 1.0)), Some(&(3.0, 1.5))), Some(250_000.0));
        assert_eq!(mean_between(Some(&(1.0, 1.0)), Some(&(1.0, 1.0))), None);
        assert_eq!(mean_between(None, Some(&(1.0, 1.0))), None);
    }
}
