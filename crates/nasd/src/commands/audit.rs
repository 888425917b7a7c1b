//! `nasd audit`: who did what on the drives, and who was refused.

mod names;

pub use self::names::Names;
use super::Outcome;
use crate::arguments::{AuditTrailArguments, DriveArguments, Ending, KeyName, status_name, words};
use crate::drive_session::DriveSession;
use crate::output::{self, note, say};
use nasd_capability::KeyKind;
use nasd_cell::Cell;
use nasd_cell::time::utc;
use nasd_protocol::drive::{AuditArguments, AuditKind, AuditRecord, Procedure};
use nasd_types::{AuditId, ObjectId, PartitionId};
use serde::Serialize;
use std::error::Error;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// How often it is looked for more with --follow.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// Runs the command.
///
/// # Errors
/// The command's own.
pub fn run(cell: &Path, arguments: &AuditTrailArguments, json: bool) -> Outcome {
    let names = Names::of_cell(cell);
    let filter = Filter::new(arguments, &names)?;
    let mut trails = Vec::new();
    for drive in drives(cell, arguments)? {
        let key_file = arguments.key_file.clone();
        let named = DriveArguments { drive, key_file, key_kind: KeyName::Drive };
        let session = DriveSession::open(cell, &named, None)?;
        trails.push(Trail { session, wanted: filter.wanted(arguments) });
    }
    if !json {
        say!("{}", Described::head());
    }
    let mut first = true;
    loop {
        let mut found = Vec::new();
        for trail in &mut trails {
            trail.read(&filter, &names, &mut found)?;
        }
        // Drives number their records by themselves.
        found.sort_by_key(|(record, _)| (record.first, record.sequence));
        let found: Vec<Described> = found.into_iter().map(|(_, described)| described).collect();
        match (json, arguments.follow) {
            (true, false) => output::json(&serde_json::json!({ "records": found }))?,
            // One a line, so that a reader need not wait for the end.
            (true, true) => found.iter().try_for_each(|record| {
                say!("{}", serde_json::to_string(record)?);
                Ok::<_, serde_json::Error>(())
            })?,
            (false, _) => found.iter().for_each(|record| say!("{}", record.line())),
        }
        if !arguments.follow {
            if first && !json && found.is_empty() {
                note!("nasd: nothing of that kind is in the trail");
            }
            return Ok(());
        }
        first = false;
        thread::sleep(FOLLOW_EVERY);
    }
}

/// The drives that the user means.
fn drives(cell: &Path, arguments: &AuditTrailArguments) -> Result<Vec<String>, Box<dyn Error>> {
    let all = arguments.drives.is_empty() || arguments.drives.iter().any(|drive| drive == "all");
    if !all {
        return Ok(arguments.drives.clone());
    }
    let cell = Cell::open(cell)?;
    Ok(cell.config.drives.iter().map(|drive| drive.index.to_string()).collect())
}

/// What the drive does not filter by.
struct Filter {
    uid: Option<u32>,
    refused: bool,
    follow: bool,
}

impl Filter {
    fn new(arguments: &AuditTrailArguments, names: &Names) -> Result<Self, String> {
        let uid = arguments.user.as_deref().map(|user| names.uid_of(user)).transpose()?;
        let refused = arguments.status == Some(Ending::Refused);
        Ok(Filter { uid, refused, follow: arguments.follow })
    }

    /// What the drive filters by.
    fn wanted(&self, arguments: &AuditTrailArguments) -> AuditArguments {
        let all = AuditArguments::ALL;
        AuditArguments {
            from: arguments.since.unwrap_or(all.from),
            to: arguments.until.unwrap_or(all.to),
            audit_id: arguments.audit_id,
            partition: arguments.partition,
            object: arguments.object,
            status: match arguments.status {
                Some(Ending::Status(status)) => Some(status),
                _ => None,
            },
            ..all
        }
    }

    fn passes(&self, record: &AuditRecord) -> bool {
        let of_user = self
            .uid
            .is_none_or(|uid| record.key == KeyKind::Capability && uid_of(record.audit_id) == uid);
        let of_itself = self.follow && record.procedure == Procedure::Audit as u32;
        of_user && !of_itself && (!self.refused || (100..200).contains(&record.status))
    }
}

/// The user of an audit identifier that the file manager made.
fn uid_of(audit_id: AuditId) -> u32 {
    (audit_id.0 >> 32) as u32
}

/// One drive's trail, and how far it was read.
struct Trail {
    session: DriveSession,
    wanted: AuditArguments,
}

impl Trail {
    /// Reads what there is, page by page.
    fn read(
        &mut self,
        filter: &Filter,
        names: &Names,
        found: &mut Vec<(AuditRecord, Described)>,
    ) -> Result<(), String> {
        let DriveSession { client, authority, name, .. } = &self.session;
        loop {
            let page = client.audit(authority, &self.wanted);
            let page = page.map_err(self.session.failed("read the audit trail"))?;
            let passing = page.records.iter().filter(|record| filter.passes(record));
            found.extend(passing.map(|record| (*record, Described::new(name, record, names))));
            self.wanted.after = page.next;
            if !page.more {
                return Ok(());
            }
        }
    }
}

/// A record as it is told.
#[derive(Debug, Serialize)]
struct Described {
    drive: String,
    sequence: u64,
    /// When the first of these requests came, by the drive's clock.
    time: String,
    /// From the first to the last of them.
    span_ms: u32,
    count: u32,
    /// What is known of them: `proved`, `claimed` and so on.
    kind: String,
    procedure: String,
    status: String,
    status_number: u32,
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    audit_id: Option<String>,
    /// Of a capability that the file manager gave out.
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    /// The user's name, where the cell knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// Whose certificate it was given out to, where the cell knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<String>,
}

impl Described {
    fn new(drive: &str, record: &AuditRecord, names: &Names) -> Self {
        let by_capability = record.key == KeyKind::Capability;
        let uid = by_capability.then(|| uid_of(record.audit_id));
        let of_requests = matches!(record.kind, AuditKind::Proved | AuditKind::Claimed);
        let procedure = match Procedure::try_from(record.procedure) {
            _ if !of_requests => words(&format!("{:?}", record.kind)),
            Ok(procedure) => words(&format!("{procedure:?}")),
            Err(_) => format!("procedure-{}", record.procedure),
        };
        let named =
            |is_none: bool, name: &dyn std::fmt::Display| (!is_none).then(|| name.to_string());
        Described {
            drive: drive.to_owned(),
            sequence: record.sequence,
            time: utc(record.first),
            span_ms: record.span_ms,
            count: record.count,
            kind: words(&format!("{:?}", record.kind)),
            procedure,
            status: status_name(record.status),
            status_number: record.status,
            key: words(&format!("{:?}", record.key)),
            partition: named(record.partition == PartitionId(0), &record.partition),
            object: named(record.object == ObjectId(0), &record.object),
            audit_id: by_capability.then(|| record.audit_id.to_string()),
            uid,
            user: uid.and_then(|uid| names.user(uid)).map(str::to_owned),
            peer: by_capability
                .then(|| names.peer(record.audit_id.0 as u32))
                .flatten()
                .map(str::to_owned),
        }
    }

    fn head() -> String {
        format!(
            "{:<30} {:<6} {:>7}  {:<16} {:<20} {:<14} {}",
            "time", "drive", "count", "procedure", "status", "object", "who"
        )
    }

    fn line(&self) -> String {
        let of = |part: &Option<String>| part.clone().unwrap_or_default();
        let place = match (&self.partition, &self.object) {
            (Some(partition), Some(object)) => format!("{partition}/{object}"),
            _ => of(&self.partition),
        };
        format!(
            "{:<30} {:<6} {:>7}  {:<16} {:<20} {place:<14} {}",
            self.time,
            self.drive,
            self.count,
            self.procedure,
            self.status,
            self.who()
        )
        .trim_end()
        .to_owned()
    }

    /// Who it was, or says that it was.
    fn who(&self) -> String {
        let who = match (&self.uid, &self.audit_id) {
            (Some(uid), Some(audit_id)) => {
                let user = self.user.as_ref().map(|user| format!(" ({user})")).unwrap_or_default();
                let peer = self.peer.as_ref().map(|peer| format!(" at {peer}")).unwrap_or_default();
                format!("uid {uid}{user}{peer}, {audit_id}")
            }
            _ if self.key == "none" => String::new(),
            _ => format!("{} key", self.key),
        };
        let claimed = self.kind == "claimed" && !who.is_empty();
        if claimed { format!("claimed: {who}") } else { who }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_types::Timestamp;

    fn record() -> AuditRecord {
        AuditRecord {
            sequence: 5,
            first: Timestamp::from_parts(1_700_000_000, 0),
            span_ms: 3,
            count: 7,
            kind: AuditKind::Proved,
            procedure: Procedure::Read as u32,
            status: 0,
            key: KeyKind::Capability,
            partition: PartitionId(1),
            object: ObjectId(0x40),
            audit_id: AuditId(1000 << 32 | 0xabcd),
        }
    }

    #[test]
    fn a_record_tells_who() {
        let none = Names::default();
        let told = Described::new("1", &record(), &none);
        assert_eq!(told.who(), "uid 1000, a3e80000abcd");
        assert!(told.line().contains("p1/o40"), "{}", told.line());
        let claim = AuditRecord { kind: AuditKind::Claimed, status: 106, ..record() };
        let told = Described::new("1", &claim, &none);
        assert!(told.line().contains("refused-rights"), "{}", told.line());
        assert!(told.who().starts_with("claimed: uid 1000"), "{}", told.who());
        let by_key = AuditRecord { key: KeyKind::WorkingCurrent, ..record() };
        assert_eq!(Described::new("1", &by_key, &none).who(), "working-current key");
        let start = AuditRecord { kind: AuditKind::Started, key: KeyKind::None, ..record() };
        let told = Described::new("1", &start, &none);
        assert_eq!((told.procedure.as_str(), told.who().as_str()), ("started", ""));
    }

    #[test]
    fn users_are_found_by_the_upper_half() {
        let filter = |uid| Filter { uid: Some(uid), refused: false, follow: false };
        assert!(filter(1000).passes(&record()));
        assert!(!filter(1001).passes(&record()));
        // A key is nobody's.
        let by_key = AuditRecord { key: KeyKind::Drive, audit_id: AuditId(0), ..record() };
        assert!(!filter(0).passes(&by_key));
    }
}
