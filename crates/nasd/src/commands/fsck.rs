//! `nasd fsck`: the name space of a volume against its drives, through the manager and by the working
//! keys of the cell's keyring; repairs are the manager's.

use super::Outcome;
use super::agree::agree;
use crate::arguments::FsckArguments;
use crate::fsck::{self, Finding, Orphans, Seen, View};
use crate::output::{self, note, say};
use nasd_cell::session::{COMMAND_DEADLINE, administrator, manager};
use nasd_cell::{Cell, CellError};
use nasd_client::{
    Authority, Caller, ClientError, ConnectOptions, DriveClient, ManagerClient, RetryPolicy,
};
use nasd_protocol::manager::{
    DirectoryEntry, DriveAddress, FileHandle, ManagerStatus, Name, RepairAction, RepairArguments,
    VolumePart,
};
use nasd_types::{ObjectId, ObjectName, Protection};
use serde_json::json;
use std::collections::BTreeSet;
use std::error::Error;

/// Entries asked for at a time.
const PAGE_ENTRIES: u32 = 1024;
/// How objects with extended attributes begin: records lead to them, not names.
const ATTRIBUTES: &[u8; 4] = b"NXAT";
/// Where files without a name go.
const LOST: &[u8] = b"lost+found";
/// A working key may be changed while it is used: then the next one is in the keyring.
const KEY_ATTEMPTS: u32 = 3;

/// Checks a volume, and repairs it.
///
/// # Errors
/// What is found and not repaired; a drive or manager that is away; if nobody agrees.
pub fn fsck(cell: &Cell, asked: &FsckArguments, as_json: bool) -> Outcome {
    let volume = LiveVolume::open(cell, &asked.volume)?;
    let (counted, findings) = fsck::check(&volume)?;
    let orphans = match asked.remove_orphans {
        true => Orphans::Remove,
        // Its handle is not known before it is made.
        false => Orphans::Adopt(volume.root),
    };
    let plan = fsck::plan(&findings, orphans);
    if as_json {
        let told: Vec<_> = findings
            .iter()
            .map(|finding| json!({ "finding": finding.name(), "text": finding.to_string() }))
            .collect();
        let plan: Vec<&str> = plan.iter().map(|(_, text)| text.as_str()).collect();
        output::json(&json!({
            "volume": asked.volume,
            "directories": counted.directories,
            "files": counted.files,
            "objects": counted.objects,
            "incomplete": counted.incomplete,
            "findings": told,
            "plan": plan,
        }))?;
    } else {
        show(&asked.volume, &counted, &findings, &plan);
    }
    if findings.is_empty() {
        return Ok(());
    }
    if !asked.repair {
        return Err(
            format!("{} findings; --repair repairs what can be repaired", findings.len()).into()
        );
    }
    agree(&format!("{} repairs would be made", plan.len()), asked.yes)?;
    for line in volume.repair(&findings, asked.remove_orphans)? {
        // The facts of --json are one document.
        if as_json {
            note!("nasd: {line}");
        } else {
            say!("{line}");
        }
    }
    let (_, left) = fsck::check(&volume)?;
    if left.is_empty() {
        note!("nasd: {} is repaired", asked.volume);
        return Ok(());
    }
    let left: Vec<String> = left.iter().map(|finding| format!("  {finding}")).collect();
    Err(format!("{} findings are left:\n{}", left.len(), left.join("\n")).into())
}

fn show(
    volume: &str,
    counted: &fsck::Counted,
    findings: &[Finding],
    plan: &[(RepairArguments, String)],
) {
    let fsck::Counted { directories, files, objects, incomplete } = counted;
    say!("volume {volume}: {directories} directories, {files} other files, {objects} objects");
    if *incomplete {
        say!(
            "something can't be read: what it leads to, orphans and counts of names are not known"
        );
    }
    for finding in findings {
        say!("  {}: {finding}", finding.name());
    }
    if findings.is_empty() {
        say!("nothing is wrong");
        return;
    }
    let kinds = fsck::summary(findings);
    let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    say!("found: {}", kinds.join(", "));
    say!("plan:");
    plan.iter().for_each(|(_, text)| say!("  {text}"));
    if plan.is_empty() {
        say!("  nothing of it can be repaired");
    }
}

/// A volume as root and the cell's administrator see it.
struct LiveVolume<'a> {
    cell: &'a Cell,
    names: ManagerClient,
    administrator: ManagerClient,
    root: FileHandle,
    drives: Vec<DriveAddress>,
    parts: Vec<VolumePart>,
}

impl<'a> LiveVolume<'a> {
    fn open(cell: &'a Cell, name: &str) -> Result<Self, Box<dyn Error>> {
        let (names, _) = manager(cell)?;
        let wire = Name::new(name)?;
        let volume = names.volume(&Caller::ROOT, name.as_bytes()).map_err(|error| match error {
            ClientError::Manager(ManagerStatus::NotFound) => format!(
                "the cell has no volume `{name}`: `nasd volume list` shows those that there are"
            ),
            other => other.to_string(),
        })?;
        let parts = names.volume_parts(&Caller::ROOT, &wire)?.parts;
        Ok(LiveVolume {
            cell,
            administrator: administrator(cell)?,
            names,
            root: volume.root.handle,
            drives: volume.drives,
            parts,
        })
    }

    /// The present working key of a part.
    fn authority(&self, part: &VolumePart) -> Result<Authority, Box<dyn Error>> {
        let keyring = self.cell.keyring()?;
        let of_first =
            self.cell.config.drives.iter().any(|drive| {
                drive.drive_id() == part.drive && drive.partition_id() == part.partition
            });
        let kept = match of_first {
            true => keyring.working_keys(part.drive),
            false => keyring.volume_keys(part.drive, part.partition),
        };
        let no_keys = || CellError::NoKeys(format!("drive {:016x}", part.drive.0));
        let key = kept.ok_or_else(no_keys)?.current.key;
        Ok(Authority::working_key(part.partition, key, Protection::SUPPORTED))
    }

    /// A drive, and where it is.
    fn drive(&self, part: &VolumePart) -> Result<(DriveClient, &str), Box<dyn Error>> {
        let known = self.drives.iter().find(|drive| drive.drive == part.drive);
        let known = known.ok_or("the volume has a part on a drive that is none of its own")?;
        let options = ConnectOptions {
            retry: RetryPolicy::within(COMMAND_DEADLINE),
            ..ConnectOptions::default()
        };
        let client = DriveClient::tcp(known.address.clone(), Some(part.drive), &options);
        Ok((client, &known.address))
    }

    /// Whether an object that no name leads to is nothing to tell of: what a file's record leads to, and
    /// no file itself, or gone meanwhile.
    fn is_attributes_or_gone(&self, object: FileHandle) -> Result<bool, Box<dyn Error>> {
        let part = self.parts.iter().find(|part| part.made_drive == object.drive);
        let part = part.ok_or("the object is on a drive that is none of the volume's")?;
        let mut magic = [0; ATTRIBUTES.len()];
        let (client, _) = self.drive(part)?;
        let name = ObjectName { partition: part.partition, object: object.object };
        let read = client.read(&self.authority(part)?, name, 0, &mut magic);
        // One that can't be read is not to be judged.
        Ok(read.is_err() || magic == *ATTRIBUTES)
    }

    fn list(&self, part: &VolumePart) -> Result<Vec<ObjectId>, Box<dyn Error>> {
        let (client, address) = self.drive(part)?;
        let mut attempt = 0;
        loop {
            let authority = self.authority(part)?;
            let listed: Result<Vec<_>, _> = client.objects(&authority, part.partition).collect();
            attempt += 1;
            match listed {
                Err(ClientError::Refused(status))
                    if status.needs_new_capability() && attempt < KEY_ATTEMPTS => {}
                listed => {
                    let failed = |error| {
                        format!("the drive at {address} does not list its objects: {error}")
                    };
                    return Ok(listed.map_err(failed)?);
                }
            }
        }
    }

    /// Does what can be done about the findings, and tells what came of each.
    fn repair(
        &self,
        findings: &[Finding],
        remove_orphans: bool,
    ) -> Result<Vec<String>, Box<dyn Error>> {
        let adopts = findings.iter().any(|finding| matches!(finding, Finding::Orphan { .. }));
        let orphans = match remove_orphans || !adopts {
            true => Orphans::Remove,
            false => Orphans::Adopt(self.lost_and_found()?),
        };
        let outcome = |(asked, text)| match self.administrator.repair(&asked) {
            Ok(()) => format!("done: {text}"),
            Err(ClientError::Manager(ManagerStatus::Exists)) => {
                format!("left alone, as it has changed meanwhile: {text}")
            }
            Err(error) => format!("not done: {text}: {error}"),
        };
        Ok(fsck::plan(findings, orphans).into_iter().map(outcome).collect())
    }

    /// The directory for files without a name, which nobody but root may look into.
    fn lost_and_found(&self) -> Result<FileHandle, Box<dyn Error>> {
        let caller = &Caller::ROOT;
        match self.names.lookup(caller, self.root, LOST) {
            Ok(there) => Ok(there.handle),
            Err(ClientError::Manager(ManagerStatus::NotFound)) => {
                Ok(self.names.mkdir(caller, self.root, LOST, 0o700)?.handle)
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl View for LiveVolume<'_> {
    fn root(&self) -> FileHandle {
        self.root
    }

    fn objects(&self) -> Result<BTreeSet<FileHandle>, Box<dyn Error>> {
        let mut all = BTreeSet::new();
        for part in &self.parts {
            let (drive, partition) = (part.made_drive, part.made_partition);
            let listed = self.list(part)?.into_iter();
            let dynamic = listed.filter(|object| *object >= ObjectId::FIRST_DYNAMIC);
            all.extend(dynamic.map(|object| FileHandle { drive, partition, object }));
        }
        Ok(all)
    }

    fn file(&self, file: FileHandle) -> Result<Seen, Box<dyn Error>> {
        match self.names.getattr(&Caller::ROOT, file) {
            Ok(there) => Ok(Seen::File {
                file_type: there.attributes.file_type,
                links: there.attributes.links,
                size: there.attributes.size,
            }),
            Err(ClientError::Manager(ManagerStatus::Stale)) => Ok(Seen::Nothing),
            Err(ClientError::Manager(ManagerStatus::Io)) => Ok(Seen::Unreadable),
            Err(error) => Err(format!("{}: {error}", fsck::shown(file)).into()),
        }
    }

    fn entries(
        &self,
        directory: FileHandle,
    ) -> Result<Option<Vec<DirectoryEntry>>, Box<dyn Error>> {
        let (mut entries, mut cookie) = (Vec::new(), 0);
        loop {
            let page = self.names.readdir(&Caller::ROOT, directory, cookie, PAGE_ENTRIES);
            let page = match page {
                Ok(page) => page,
                Err(ClientError::Manager(
                    ManagerStatus::Io | ManagerStatus::NotDirectory | ManagerStatus::Stale,
                )) => return Ok(None),
                Err(error) => return Err(format!("{}: {error}", fsck::shown(directory)).into()),
            };
            cookie = page.entries.last().map_or(cookie, |entry| entry.cookie);
            let is_last = page.end || page.entries.is_empty();
            entries.extend(page.entries);
            if is_last {
                return Ok(Some(entries));
            }
        }
    }

    fn parent(&self, directory: FileHandle) -> Result<Option<FileHandle>, Box<dyn Error>> {
        match self.names.lookup(&Caller::ROOT, directory, b"..") {
            Ok(parent) => Ok(Some(parent.handle)),
            Err(ClientError::Manager(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn is_held(&self, object: FileHandle) -> Result<bool, Box<dyn Error>> {
        let asked = RepairArguments {
            file: object,
            action: RepairAction::ExamineOrphan,
            directory: object,
            name: Name::new(b"")?,
            links: 0,
        };
        match self.administrator.repair(&asked) {
            Ok(()) => self.is_attributes_or_gone(object),
            Err(ClientError::Manager(ManagerStatus::Exists)) => Ok(true),
            Err(error) => Err(format!("{}: {error}", fsck::shown(object)).into()),
        }
    }
}
