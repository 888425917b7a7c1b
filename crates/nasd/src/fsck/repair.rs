//! From findings to repairs, in an order in which none undoes another.

use super::{Finding, OrphanType, Place};
use nasd_protocol::manager::{FileHandle, Name, RepairAction, RepairArguments};

/// What becomes of files that no name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orphans {
    /// They get names in this directory.
    Adopt(FileHandle),
    /// They are removed.
    Remove,
}

/// The repairs of what can be repaired, with what each does; what can't be is left out.
pub fn plan(findings: &[Finding], orphans: Orphans) -> Vec<(RepairArguments, String)> {
    let mut repairs: Vec<_> =
        findings.iter().filter_map(|finding| repair(finding, orphans)).collect();
    // Names go before counts are set, and directories are at home before others are found a home.
    repairs.sort_by_key(|(asked, _)| match asked.action {
        RepairAction::RemoveName => 0,
        RepairAction::SetParent => 1,
        RepairAction::SetLinks => 2,
        _ => 3,
    });
    repairs
}

fn repair(finding: &Finding, orphans: Orphans) -> Option<(RepairArguments, String)> {
    let asked = |file, action, directory, name: &[u8], links| {
        let name = Name::new(name).ok()?;
        Some(RepairArguments { file, action, directory, name, links })
    };
    let remove_name = |place: &Place, file| {
        let asked = asked(file, RepairAction::RemoveName, place.directory, &place.name, 0)?;
        Some((asked, format!("remove the name {}", place.path)))
    };
    match finding {
        Finding::DanglingName { place, file } => remove_name(place, *file),
        Finding::SecondName { place, directory } => remove_name(place, *directory),
        Finding::WrongLinks { path, file, names, .. } => Some((
            asked(*file, RepairAction::SetLinks, *file, b"", *names)?,
            format!("{path}: set the count of names to {names}"),
        )),
        Finding::WrongParent { path, directory, parent } => Some((
            asked(*directory, RepairAction::SetParent, *parent, b"", 0)?,
            format!("{path}: set its `..`"),
        )),
        Finding::Orphan { object, kind } => {
            let place = super::shown(*object);
            match (orphans, kind) {
                (Orphans::Adopt(lost), Some((kind, size)))
                    if *kind == OrphanType::Directory || *size > 0 =>
                {
                    let name = lost_name(*object);
                    let asked =
                        asked(*object, RepairAction::AdoptOrphan, lost, name.as_bytes(), 0)?;
                    Some((asked, format!("name {place} lost+found/{name}")))
                }
                // It may be of a kind that this program does not know.
                (Orphans::Adopt(_), None) => None,
                _ => Some((
                    asked(*object, RepairAction::RemoveOrphan, *object, b"", 0)?,
                    format!("remove {place}"),
                )),
            }
        }
        Finding::UnreadableRecord { .. }
        | Finding::UnreadableDirectory { .. }
        | Finding::WrongType { .. } => None,
    }
}

/// How a found file is called: by its drive and object, so that no two are called the same.
fn lost_name(object: FileHandle) -> String {
    format!("{:016x}-{:x}", object.drive.0, object.object.0)
}
