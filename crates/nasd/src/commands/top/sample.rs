//! One look at the cell: what manager and drives have counted so far.
//!
//! Anybody of the cell may ask the manager for its state. What each client did is for the cell's owner: it
//! comes from the manager's statistics and, as to drives, from their audit trails. How long drives take they
//! tell by their metrics alone, if they were told to serve these.

use crate::commands::audit::Names;
use crate::drive_session::{By, DriveSession};
use nasd_capability::KeyKind;
use nasd_cell::session::{COMMAND_DEADLINE, STOPPED_PATIENCE, administrator, manager_within};
use nasd_cell::{Cell, CellLock};
use nasd_client::{Caller, ClientError, ManagerClient};
use nasd_protocol::drive::AuditArguments;
use nasd_protocol::manager::{CellStatus, Statistics};
use nasd_types::DriveId;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a drive's metrics may take.
const METRICS_PATIENCE: Duration = Duration::from_secs(2);

/// Most bytes of a drive's metrics.
const METRICS_BYTES: u64 = 4 << 20;

/// What was counted up to some moment.
#[derive(Debug)]
pub struct Sample {
    /// When.
    pub at: Instant,
    /// As the manager tells.
    pub status: CellStatus,
    /// To the cell's owner alone.
    pub statistics: Option<Statistics>,
    /// Requests that each client had drives do since the sample before.
    pub drive_requests: BTreeMap<String, u64>,
    /// By drive: requests whose time was taken, and how many seconds these took.
    pub times: BTreeMap<DriveId, (f64, f64)>,
    /// Numbers of the drives in messages.
    pub indices: BTreeMap<DriveId, u32>,
}

/// Looks at a cell.
pub struct Observer {
    manager: ManagerClient,
    caller: Arc<Caller>,
    owner: Option<ManagerClient>,
    trails: Vec<(DriveSession, AuditArguments)>,
    names: Names,
    metrics: BTreeMap<DriveId, SocketAddr>,
    indices: BTreeMap<DriveId, u32>,
}

impl Observer {
    /// Of a cell whose drives serve metrics behind that port, if they do.
    ///
    /// # Errors
    /// Missing or wrong certificates; a port that leaves none for a drive; a manager that does not answer.
    pub fn new(cell: &Cell, metrics_base_port: Option<u16>) -> Result<Observer, Box<dyn Error>> {
        // A manager that is started anew is waited for; where no cell seems to run there is nothing to wait for.
        let is_up = CellLock::holder(&cell.lock_path()).is_some();
        let patience = if is_up { COMMAND_DEADLINE } else { STOPPED_PATIENCE };
        let (manager, caller) = manager_within(cell, patience)?;
        // Before the drives, each of which is waited for as long as by any command: without a manager they are of no use.
        manager.volumes(&caller).map_err(away)?;
        let mut metrics = BTreeMap::new();
        let mut indices = BTreeMap::new();
        for drive in &cell.config.drives {
            indices.insert(drive.drive_id(), drive.index);
            if let Some(base) = metrics_base_port {
                let port = u16::try_from(u32::from(base) + drive.index)
                    .map_err(|_| format!("--metrics-base-port {base} is too high: lower it"))?;
                metrics.insert(drive.drive_id(), SocketAddr::new(drive.address.ip(), port));
            }
        }
        Ok(Observer {
            manager,
            caller,
            owner: administrator(cell).ok(),
            trails: trails(cell),
            names: Names::of_cell(cell.directory()),
            metrics,
            indices,
        })
    }

    /// What was counted up to now. What can't be had of it is left out, but for the manager's state.
    ///
    /// # Errors
    /// A manager that does not answer.
    pub fn sample(&mut self) -> Result<Sample, Box<dyn Error>> {
        let status = self.manager.status(&self.caller).map_err(away)?;
        let at = Instant::now();
        let statistics = self.owner.as_ref().and_then(|owner| owner.statistics().ok());
        let times = self.metrics.iter().filter_map(|(drive, at)| Some((*drive, times_at(*at)?)));
        let times = times.collect();
        let drive_requests = self.follow_trails();
        let indices = self.indices.clone();
        Ok(Sample { at, status, statistics, drive_requests, times, indices })
    }

    /// What came to the drives' trails since the last time.
    fn follow_trails(&mut self) -> BTreeMap<String, u64> {
        let mut requests = BTreeMap::new();
        for (session, wanted) in &mut self.trails {
            while let Ok(page) = session.client.audit(&session.authority, wanted) {
                let proved = page.records.iter().filter(|record| record.key == KeyKind::Capability);
                for record in proved {
                    // The manager makes identifiers of a user and of the certificate's number.
                    let peer = record.audit_id.0 as u32;
                    let known = self.names.peer(peer).map(str::to_owned);
                    let client = known.unwrap_or_else(|| format!("certificate {peer:08x}"));
                    *requests.entry(client).or_default() += u64::from(record.count);
                }
                wanted.after = page.next;
                if !page.more {
                    break;
                }
            }
        }
        requests
    }
}

/// Why the manager tells nothing.
fn away(error: ClientError) -> String {
    match error {
        ClientError::Unreachable { .. } => format!("the manager does not answer: {error}"),
        other => other.to_string(),
    }
}

/// The trails of the drives, from their present ends on, where the keys to them are at hand.
fn trails(cell: &Cell) -> Vec<(DriveSession, AuditArguments)> {
    if cell.open_keyring().is_none() {
        return Vec::new();
    }
    let trail = |index: u32| {
        let session = DriveSession::by(cell.directory(), &index.to_string(), None, By::Drive);
        let session = session.ok()?.into_iter().next()?;
        let clock = session.client.information()?.clock;
        Some((session, AuditArguments { from: clock, ..AuditArguments::ALL }))
    };
    cell.config.drives.iter().filter_map(|drive| trail(drive.index)).collect()
}

/// The sums of a drive's histograms of time.
fn times_at(address: SocketAddr) -> Option<(f64, f64)> {
    let mut stream = TcpStream::connect_timeout(&address, METRICS_PATIENCE).ok()?;
    stream.set_read_timeout(Some(METRICS_PATIENCE)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.take(METRICS_BYTES).read_to_string(&mut text).ok()?;
    Some(times_in(&text))
}

/// The sums over all operations: how many, and how many seconds.
fn times_in(text: &str) -> (f64, f64) {
    let sum = |name: &str| {
        let of_name = text.lines().filter(|line| line.split('{').next() == Some(name));
        let values = of_name.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum()
    };
    (sum("nasd_request_seconds_count"), sum("nasd_request_seconds_sum"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_summed_over_operations() {
        let text = "# HELP nasd_request_seconds Time.\n\
                    nasd_request_seconds_bucket{operation=\"read\",le=\"+Inf\"} 4\n\
                    nasd_request_seconds_sum{operation=\"read\"} 0.5\n\
                    nasd_request_seconds_count{operation=\"read\"} 4\n\
                    nasd_request_seconds_sum{operation=\"write\"} 0.25\n\
                    nasd_request_seconds_count{operation=\"write\"} 1\n";
        assert_eq!(times_in(text), (5.0, 0.75));
        assert_eq!(times_in("HTTP/1.1 404 Not Found\r\n\r\n"), (0.0, 0.0));
    }
}
