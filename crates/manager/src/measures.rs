//! What the manager counts since its start, and its text for Prometheus.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nasd_metrics::{Counter, Histogram, Page};
use nasd_protocol::ManagerStatus;
use nasd_protocol::limits::{MAX_NAME_BYTES, MAX_STATISTICS};
use nasd_protocol::manager::{
    ClientStatistics, OperationStatistics, Procedure, Statistics, VolumeSummary,
};
use nasd_transport::Answer;
use nasd_types::Timestamp;

use crate::namespace::Cached;
use crate::sessions::SessionCounts;

/// Members of the cell that are counted apart; a cell with more counts the others together.
const MAX_MEMBERS: usize = 4096;

/// Who stands for the others.
const OTHERS: &str = "others";

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// As it should.
    Done,
    /// The caller had asked for something that can't be.
    Caller,
    /// It may go better later.
    Later,
    /// A drive, or the manager, has failed.
    Failed,
    /// It made no sense, or came from somebody who may not ask.
    Refused,
}

impl Ended {
    const ALL: [(Ended, &'static str); 5] = [
        (Ended::Done, "ok"),
        (Ended::Caller, "caller"),
        (Ended::Later, "later"),
        (Ended::Failed, "failed"),
        (Ended::Refused, "refused"),
    ];

    fn of<S>(answer: &Answer<S>) -> Ended {
        let Answer::Results { results, .. } = answer else { return Ended::Refused };
        let status = results.first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
        match ManagerStatus::try_from(status) {
            _ if status == nasd_protocol::result::OK => Ended::Done,
            Ok(status) if status.is_transient() => Ended::Later,
            Ok(status) if status.is_callers_fault() => Ended::Caller,
            _ => Ended::Failed,
        }
    }
}

/// What is counted of one procedure.
#[derive(Debug, Default)]
struct ByProcedure {
    ended: [Counter; Ended::ALL.len()],
    times: Histogram,
}

/// What is counted of one member of the cell.
#[derive(Clone, Copy, Debug, Default)]
struct ByMember {
    requests: u64,
    read: u64,
    written: u64,
}

/// The counters.
#[derive(Debug)]
pub(crate) struct Measures {
    /// In the order of [`Procedure::ALL`]; the last is for numbers that are no procedure's.
    procedures: Vec<ByProcedure>,
    members: Mutex<BTreeMap<String, ByMember>>,
}

/// What is so at the moment.
pub(crate) struct Present {
    pub(crate) started: Timestamp,
    pub(crate) sessions: SessionCounts,
    /// Whether clients of the manager before are waited for.
    pub(crate) grace: bool,
    pub(crate) volumes: Vec<(VolumeSummary, Cached)>,
    /// Memory that data on their way take.
    pub(crate) forward_bytes: usize,
    /// Bytes of names, attributes and capabilities that were received, and sent.
    pub(crate) names_bytes: (u64, u64),
}

impl Measures {
    pub(crate) fn new() -> Measures {
        let procedures = (0..=Procedure::ALL.len()).map(|_| ByProcedure::default()).collect();
        Measures { procedures, members: Mutex::default() }
    }

    /// A request was answered.
    pub(crate) fn count<S>(
        &self,
        procedure: Option<Procedure>,
        answer: &Answer<S>,
        taken: Duration,
    ) {
        // They are in ascending order.
        let place = procedure.and_then(|procedure| Procedure::ALL.binary_search(&procedure).ok());
        let Some(counted) = self.procedures.get(place.unwrap_or(Procedure::ALL.len())) else {
            return;
        };
        counted.ended[Ended::of(answer) as usize].add(1);
        counted.times.count(taken);
    }

    /// A member has asked for something, and read and written so many bytes of data by that.
    pub(crate) fn count_member(&self, member: &str, read: u64, written: u64) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = members.contains_key(member);
        let member = if is_known || members.len() < MAX_MEMBERS { member } else { OTHERS };
        let counted = match members.get_mut(member) {
            Some(counted) => counted,
            None => members.entry(member.to_owned()).or_default(),
        };
        counted.requests += 1;
        counted.read += read;
        counted.written += written;
    }

    /// The numbers: of procedures that were asked for, and of the members that asked most.
    pub(crate) fn told(&self) -> Statistics {
        let numbered = Procedure::ALL.iter().zip(&self.procedures);
        let operations = numbered.filter_map(|(procedure, counted)| {
            let requests: u64 = counted.ended.iter().map(Counter::get).sum();
            let failed = requests.saturating_sub(counted.ended[Ended::Done as usize].get());
            let nanoseconds = u64::try_from(counted.times.time().as_nanos()).unwrap_or(u64::MAX);
            let procedure = u32::from(*procedure);
            let told = OperationStatistics { procedure, requests, failed, nanoseconds };
            (requests > 0).then_some(told)
        });
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut clients: Vec<ClientStatistics> = members
            .into_iter()
            .filter(|(client, _)| client.len() <= MAX_NAME_BYTES)
            .map(|(client, counted)| ClientStatistics {
                client,
                requests: counted.requests,
                read_bytes: counted.read,
                written_bytes: counted.written,
            })
            .collect();
        clients.sort_by_key(|client| std::cmp::Reverse(client.requests));
        clients.truncate(MAX_STATISTICS);
        Statistics { operations: operations.take(MAX_STATISTICS).collect(), clients }
    }

    /// The text.
    pub(crate) fn text(&self, present: &Present) -> String {
        let mut page = Page::default();
        let started = present.started.0 as f64 / 1e9;
        let help = "When the manager was started.";
        page.single("nasd_manager_start_time_seconds", "gauge", help, started);
        self.put_requests(&mut page);
        self.put_members(&mut page);
        put_present(&mut page, present);
        page.into_text()
    }

    fn procedures(&self) -> impl Iterator<Item = (String, &ByProcedure)> {
        let name = |procedure: &Procedure| format!("{procedure:?}").to_lowercase();
        let names = Procedure::ALL.iter().map(name).chain(["unknown".to_owned()]);
        names.zip(&self.procedures)
    }

    fn put_requests(&self, page: &mut Page) {
        let name = "nasd_manager_requests_total";
        page.family(name, "counter", "Requests answered, by operation and by how they ended.");
        for (operation, counted) in self.procedures() {
            for ((ended, status), count) in Ended::ALL.iter().zip(&counted.ended) {
                let count = count.get();
                // Success is there from the start; what never happened need not be.
                if count > 0 || *ended == Ended::Done && operation != "unknown" {
                    page.sample(name, &[("operation", &operation), ("status", status)], count);
                }
            }
        }
        let name = "nasd_manager_request_seconds";
        let help = "Time to execute a request, with what it waited for drives.";
        page.family(name, "histogram", help);
        for (operation, counted) in self.procedures() {
            page.histogram(name, &[("operation", &operation)], &counted.times);
        }
    }

    fn put_members(&self, page: &mut Page) {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let name = "nasd_manager_client_requests_total";
        page.family(name, "counter", "Requests, by the member of the cell that asked.");
        for (member, counted) in &members {
            page.sample(name, &[("client", member)], counted.requests);
        }
        let name = "nasd_manager_data_bytes_total";
        let help = "Data bytes that clients had forwarded from and to drives.";
        page.family(name, "counter", help);
        for (member, counted) in &members {
            for (direction, bytes) in [("read", counted.read), ("write", counted.written)] {
                page.sample(name, &[("client", member), ("direction", &direction)], bytes);
            }
        }
    }
}

fn put_present(page: &mut Page, present: &Present) {
    let name = "nasd_manager_names_bytes_total";
    let help = "Bytes of names, attributes and capabilities, from and to clients.";
    page.family(name, "counter", help);
    page.sample(name, &[("direction", &"received")], present.names_bytes.0);
    page.sample(name, &[("direction", &"sent")], present.names_bytes.1);
    let counts = &present.sessions;
    let gauges = [
        ("sessions", "Clients that have a session.", counts.sessions),
        ("locks", "Locks that clients hold.", counts.locks),
        ("waiting_locks", "Requests for locks that wait.", counts.waiting_locks),
        ("directory_leases", "Directories that clients are promised news of.", counts.leases),
        ("callbacks", "Callbacks that clients hold on files.", counts.callbacks),
        ("orphans", "Removed files that may be open somewhere.", counts.orphans),
        ("grace", "1 while locks of before the start are waited for.", present.grace.into()),
        ("forward_bytes", "Memory that data on their way take.", present.forward_bytes),
    ];
    for (name, help, value) in gauges {
        page.single(&format!("nasd_manager_{name}"), "gauge", help, value);
    }
    type Value = fn(&(VolumeSummary, Cached)) -> u64;
    let families: [(&str, &str, Value); 5] = [
        ("serving", "1 if it is served.", |(volume, _)| volume.serving.into()),
        ("backlog", "Changes that wait for a drive.", |(volume, _)| volume.backlog),
        ("cached_records", "Files' records in memory.", |(_, cached)| cached.records),
        ("cached_directories", "Directories in memory.", |(_, cached)| cached.directories),
        ("cached_directory_bytes", "What these take.", |(_, cached)| cached.directory_bytes),
    ];
    for (name, help, value) in families {
        let name = format!("nasd_volume_{name}");
        page.family(&name, "gauge", help);
        for volume in &present.volumes {
            page.sample(&name, &[("volume", &volume.0.name)], value(volume));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_transport::{AcceptStatus, ReplyVerifier};

    fn answer(status: u32) -> Answer<Vec<u8>> {
        let (verifier, results) = (ReplyVerifier::default(), status.to_be_bytes().to_vec());
        Answer::Results { verifier, results, data: Vec::new() }
    }

    #[test]
    fn each_procedure_and_each_end_has_its_own_place() {
        let measures = Measures::new();
        for procedure in Procedure::ALL {
            measures.count(Some(*procedure), &answer(0), Duration::from_micros(3));
        }
        let statuses = [ManagerStatus::NotFound, ManagerStatus::Unavailable, ManagerStatus::Io];
        for status in statuses {
            measures.count(Some(Procedure::Lookup), &answer(status.into()), Duration::ZERO);
        }
        let rejected: Answer<Vec<u8>> = Answer::Rejected(AcceptStatus::GarbageArguments);
        measures.count(None, &rejected, Duration::ZERO);
        for (index, counted) in measures.procedures.iter().enumerate() {
            let ended: Vec<u64> = counted.ended.iter().map(Counter::get).collect();
            let expected = match Procedure::ALL.get(index) {
                Some(Procedure::Lookup) => [1, 1, 1, 1, 0],
                Some(_) => [1, 0, 0, 0, 0],
                None => [0, 0, 0, 0, 1],
            };
            assert_eq!(ended, expected, "{index}");
        }
    }

    #[test]
    fn more_members_than_can_be_told_apart_are_counted_together() {
        let measures = Measures::new();
        for member in 0..MAX_MEMBERS + 10 {
            measures.count_member(&format!("host:{member}"), 1, 2);
        }
        measures.count_member("host:0", 5, 0);
        let members = measures.members.lock().unwrap();
        assert_eq!((members["host:0"].requests, members["host:0"].read), (2, 6));
        assert_eq!((members[OTHERS].requests, members[OTHERS].written), (10, 20));
        assert_eq!(members.len(), MAX_MEMBERS + 1);
    }
}
