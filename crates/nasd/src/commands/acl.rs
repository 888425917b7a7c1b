//! `nasd acl`: access control lists of directories as AFS has them.

use super::Outcome;
use super::files::entry_through;
use crate::arguments::AclCommand;
use crate::host_names;
use crate::output::{self, note, say};
use nasd_afs::acl::{ATTRIBUTE, Acl, AclEntry, AclRights, AclSubject};
use nasd_cell::session::manager;
use nasd_cell::{Cell, CellError, CellPath};
use nasd_client::{Caller, ClientError, ManagerClient};
use nasd_protocol::manager::{FileHandle, ManagerStatus, XattrFlags};
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

/// Longest list that is read from a mount, in bytes.
const MOST_BYTES: usize = 64 << 10;

/// Runs the command.
///
/// # Errors
/// A path or a name that is none, a directory that can have no list, what the caller may not do, or a manager that is away.
pub fn run(open: impl Fn() -> Result<Cell, CellError>, command: AclCommand, json: bool) -> Outcome {
    let open = &open;
    match command {
        AclCommand::Show { path } => show(&Place::of(open, &path)?, json),
        AclCommand::Set { path, who, rights, negative, clear } => {
            let place = Place::of(open, &path)?;
            let subject = subject(&who)?;
            let rights = AclRights::parse(&rights).ok_or_else(|| no_rights(&rights))?;
            let before = place.list()?;
            let is_first = before.is_none();
            let mut list = match before {
                Some(_) if clear => Acl::default(),
                Some(list) => list,
                // Else whoever wants to shut one out would shut out all.
                None if rights == AclRights::NONE => return Err(no_list(&path).into()),
                None if negative => return Err(no_list_to_take_from(&path).into()),
                None => first_list(place.owner()?)?,
            };
            list.set(subject, negative, rights)?;
            place.set(&list)?;
            if is_first {
                tell_of_first(&place)?;
            }
            Ok(())
        }
        AclCommand::Remove { path, who: None, .. } => Place::of(open, &path)?.remove(),
        AclCommand::Remove { path, who: Some(who), negative } => {
            let place = Place::of(open, &path)?;
            let subject = subject(&who)?;
            let mut list = place.list()?.ok_or_else(|| no_list(&path))?;
            let is_it = |entry: &AclEntry| entry.subject == subject && entry.negative == negative;
            if !list.entries().iter().any(is_it) {
                return Err(format!("{path}: there is no such entry of {subject}").into());
            }
            list.set(subject, negative, AclRights::NONE)?;
            place.set(&list)
        }
        AclCommand::Copy { from, to } => {
            let list = Place::of(open, &from)?.list()?.ok_or_else(|| no_list(&from))?;
            to.iter().try_for_each(|path| Place::of(open, path)?.set(&list))
        }
    }
}

/// A file or directory, and the way to its list.
struct Place {
    text: String,
    way: Way,
}

enum Way {
    /// By the file manager.
    Cell { manager: Box<ManagerClient>, caller: Arc<Caller>, file: FileHandle, uid: u32 },
    /// By the kernel, and the mount.
    Mounted(PathBuf),
}

impl Place {
    fn of(
        open: &impl Fn() -> Result<Cell, CellError>,
        text: &str,
    ) -> Result<Place, Box<dyn Error>> {
        let way = match CellPath::parse(text) {
            None => Way::Mounted(PathBuf::from(text)),
            Some(path) => {
                let cell = open()?;
                let entry = entry_through(&cell, path)?;
                let (manager, caller) = manager(&cell)?;
                let manager = Box::new(manager);
                Way::Cell { manager, caller, file: entry.handle, uid: entry.attributes.uid }
            }
        };
        Ok(Place { text: text.to_owned(), way })
    }

    /// Its list, if it has one.
    fn list(&self) -> Result<Option<Acl>, Box<dyn Error>> {
        let told = match &self.way {
            Way::Cell { manager, caller, file, .. } => {
                match manager.getxattr(caller, *file, ATTRIBUTE.as_bytes()) {
                    Err(ClientError::Manager(ManagerStatus::NoData)) => return Ok(None),
                    told => told.map_err(|error| self.failed("can't read", &error))?,
                }
            }
            Way::Mounted(path) => {
                let mut value = vec![0; MOST_BYTES];
                match rustix::fs::getxattr(path, ATTRIBUTE, &mut value[..]) {
                    Ok(length) => value.truncate(length),
                    Err(rustix::io::Errno::NODATA) => return Ok(None),
                    Err(error) => return Err(self.failed_here("can't read", error)),
                }
                value
            }
        };
        Ok(Some(Acl::from_text(&told)?))
    }

    fn owner(&self) -> Result<u32, Box<dyn Error>> {
        use std::os::unix::fs::MetadataExt;
        match &self.way {
            Way::Cell { uid, .. } => Ok(*uid),
            Way::Mounted(path) => Ok(std::fs::metadata(path)
                .map_err(|error| format!("{}: {error}", self.text))?
                .uid()),
        }
    }

    fn set(&self, list: &Acl) -> Outcome {
        let value = list.to_string();
        match &self.way {
            Way::Cell { manager, caller, file, .. } => {
                let (name, flags) = (ATTRIBUTE.as_bytes(), XattrFlags::NONE);
                let set = manager.setxattr(caller, *file, name, value.as_bytes(), flags);
                set.map_err(|error| self.failed("can't set", &error))?;
            }
            Way::Mounted(path) => {
                let flags = rustix::fs::XattrFlags::empty();
                rustix::fs::setxattr(path, ATTRIBUTE, value.as_bytes(), flags)
                    .map_err(|error| self.failed_here("can't set", error))?;
            }
        }
        Ok(())
    }

    fn remove(&self) -> Outcome {
        match &self.way {
            Way::Cell { manager, caller, file, .. } => {
                match manager.removexattr(caller, *file, ATTRIBUTE.as_bytes()) {
                    Err(ClientError::Manager(ManagerStatus::NoData)) => {
                        return Err(no_list(&self.text).into());
                    }
                    removed => drop(removed.map_err(|error| self.failed("can't remove", &error))?),
                }
            }
            Way::Mounted(path) => match rustix::fs::removexattr(path, ATTRIBUTE) {
                Err(rustix::io::Errno::NODATA) => return Err(no_list(&self.text).into()),
                removed => removed.map_err(|error| self.failed_here("can't remove", error))?,
            },
        }
        Ok(())
    }

    fn failed(&self, what: &str, error: &ClientError) -> Box<dyn Error> {
        match error {
            ClientError::Manager(ManagerStatus::NotSupported) => self.not_supported(),
            error => format!("{}: {what} the access control list: {error}", self.text).into(),
        }
    }

    fn failed_here(&self, what: &str, error: rustix::io::Errno) -> Box<dyn Error> {
        match error {
            rustix::io::Errno::OPNOTSUPP => self.not_supported(),
            error => format!("{}: {what} the access control list: {error}", self.text).into(),
        }
    }

    fn not_supported(&self) -> Box<dyn Error> {
        format!(
            "{}: only directories of volumes of the personality `afs` can be given such lists (nasd volume create NAME \
             --personality afs); elsewhere there are modes and setfacl",
            self.text
        )
        .into()
    }
}

/// What a directory begins with that had no list: nobody but its owner may do anything until somebody is let in.
fn first_list(owner: u32) -> Result<Acl, Box<dyn Error>> {
    let mut list = Acl::default();
    list.set(AclSubject::User(owner), false, AclRights::ALL)?;
    Ok(list)
}

/// Says what that means.
fn tell_of_first(place: &Place) -> Outcome {
    let owner = AclSubject::User(place.owner()?);
    note!(
        "nasd: {} had no list, and modes decided: from now on only {} may do everything, and whom you let in what you say",
        place.text,
        spoken(owner)
    );
    Ok(())
}

/// Whom a word stands for.
fn subject(who: &str) -> Result<AclSubject, Box<dyn Error>> {
    if let Some(subject) = AclSubject::parse(who) {
        return Ok(subject);
    }
    let found = match who.split_once(':') {
        Some(("group", name)) => host_names::gid_of(name).map(AclSubject::Group),
        Some(("user", name)) => host_names::uid_of(name).map(AclSubject::User),
        Some(_) => None,
        None => host_names::uid_of(who).map(AclSubject::User),
    };
    found.ok_or_else(|| {
        format!(
            "`{who}` is nobody that this machine knows: write a user's name, user:N, group:NAME, group:N, anyuser, authuser or \
             administrators"
        )
        .into()
    })
}

fn no_rights(text: &str) -> String {
    format!(
        "`{text}` are no rights: write some of the letters rlidwka, or read, write, all or none"
    )
}

fn no_list(path: &str) -> String {
    format!("{path}: there is no access control list; its mode decides")
}

fn no_list_to_take_from(path: &str) -> String {
    format!(
        "{}: let somebody in first (nasd acl set {path} anyuser read), as with a first list nobody but its owner may do \
         anything",
        no_list(path)
    )
}

/// By name, where this machine knows one.
fn spoken(subject: AclSubject) -> String {
    match name_of(subject) {
        Some(name) => match subject {
            AclSubject::Group(_) => format!("group:{name}"),
            _ => format!("user:{name}"),
        },
        None => subject.to_string(),
    }
}

fn name_of(subject: AclSubject) -> Option<String> {
    match subject {
        AclSubject::User(uid) => host_names::user_name(uid),
        AclSubject::Group(gid) => host_names::group_name(gid),
        AclSubject::AnyUser | AclSubject::AuthUser | AclSubject::Administrators => None,
    }
}

fn show(place: &Place, json: bool) -> Outcome {
    let list = place.list()?;
    if json {
        let entry = |entry: &AclEntry| {
            serde_json::json!({
                "who": entry.subject.to_string(),
                "name": name_of(entry.subject),
                "rights": entry.rights.to_string(),
                "negative": entry.negative,
            })
        };
        let entries = list.map(|list| list.entries().iter().map(entry).collect::<Vec<_>>());
        return output::json(&serde_json::json!({ "path": place.text, "entries": entries }));
    }
    let Some(list) = list else {
        say!("{}", no_list(&place.text));
        return Ok(());
    };
    for AclEntry { negative, subject, rights } in list.entries() {
        say!("{}{} {rights}", if *negative { "-" } else { "" }, spoken(*subject));
    }
    Ok(())
}
