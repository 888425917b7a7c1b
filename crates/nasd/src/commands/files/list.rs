//! `nasd ls` and `nasd stat`.

use super::{CellPath, Last, Session, at, parse};
use crate::commands::Outcome;
use nasd_cell::Cell;
use nasd_clerk::{FileAttributes, FileHandle, FileType, Route};
use serde_json::{Value, json};
use std::error::Error;

/// Lists a directory, or shows one file.
///
/// # Errors
/// A path that does not exist or may not be read.
pub fn ls(cell: &Cell, text: &str, long: bool, as_json: bool) -> Outcome {
    let mut session = None;
    let way = (Route::Direct, Last::Through);
    let (session, path) = Session::for_path(&mut session, cell, parse(text)?, way)?;
    let entry = session.resolve(&path)?;
    let mut listed = Vec::new();
    if entry.attributes.file_type == FileType::Directory {
        let entries = session.entries(entry.handle).map_err(|error| at(&path, error))?;
        for entry in entries {
            listed.push((entry.name.to_string(), entry.handle, entry.file_type));
        }
        listed.sort();
    } else {
        let name = String::from_utf8_lossy(path.name().unwrap_or(b"/")).into_owned();
        listed.push((name, entry.handle, entry.attributes.file_type));
    }
    let mut facts = Vec::new();
    for (name, handle, file_type) in listed {
        if !long && !as_json {
            println!("{name}{}", suffix(file_type));
            continue;
        }
        let attributes =
            session.clerk.getattr(&session.caller, handle).map_err(|error| at(&path, error))?;
        let volume = session.seen_at(&path, handle, &attributes)?;
        if as_json {
            facts.push(describe(&name, handle, &attributes, volume.as_deref()));
        } else {
            let leads_to = volume.map_or_else(String::new, |volume| format!(" -> {volume}:/"));
            println!("{} {name}{}{leads_to}", line(&attributes), suffix(file_type));
        }
    }
    if as_json {
        println!("{}", serde_json::to_string_pretty(&facts)?);
    }
    Ok(())
}

/// Shows one file's attributes and the object that holds it.
///
/// # Errors
/// A path that does not exist.
pub fn stat(cell: &Cell, text: &str, as_json: bool) -> Outcome {
    let mut session = None;
    let way = (Route::Direct, Last::Itself);
    let (session, path) = Session::for_path(&mut session, cell, parse(text)?, way)?;
    let entry = session.resolve(&path)?;
    let volume = session.seen_at(&path, entry.handle, &entry.attributes)?;
    let facts = describe(&path.to_string(), entry.handle, &entry.attributes, volume.as_deref());
    if as_json {
        println!("{}", serde_json::to_string_pretty(&facts)?);
    } else if let Value::Object(fields) = facts {
        for (name, value) in fields {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            println!("{name:>12}: {value}");
        }
    }
    Ok(())
}

impl Session {
    /// The volume that is seen at a mount point; none of other files.
    fn seen_at(
        &self,
        path: &CellPath,
        handle: FileHandle,
        attributes: &FileAttributes,
    ) -> Result<Option<String>, Box<dyn Error>> {
        if attributes.file_type != FileType::MountPoint {
            return Ok(None);
        }
        let volume = self.clerk.mounted_volume(&self.caller, handle);
        Ok(Some(volume.map_err(|error| at(path, error))?.to_string()))
    }
}

fn suffix(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Directory => "/",
        FileType::Symlink => "@",
        FileType::Fifo => "|",
        FileType::Socket => "=",
        FileType::MountPoint => "#",
        FileType::Regular | FileType::BlockDevice | FileType::CharacterDevice => "",
    }
}

fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Regular => "file",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::BlockDevice => "block device",
        FileType::CharacterDevice => "character device",
        FileType::MountPoint => "mount point",
    }
}

fn line(attributes: &FileAttributes) -> String {
    let FileAttributes { mode, links, uid, gid, size, modify_time, .. } = attributes;
    format!("{mode:04o} {links:>3} {uid:>6} {gid:>6} {size:>13} {:>12}", modify_time.seconds())
}

fn describe(
    name: &str,
    handle: FileHandle,
    attributes: &FileAttributes,
    volume: Option<&str>,
) -> Value {
    let mut facts = json!({
        "name": name,
        "type": type_name(attributes.file_type),
        "size": attributes.size,
        "used_bytes": attributes.used_bytes,
        "mode": format!("{:04o}", attributes.mode),
        "links": attributes.links,
        "uid": attributes.uid,
        "gid": attributes.gid,
        "modified_ns": attributes.modify_time.0,
        "changed_ns": attributes.change_time.0,
        "created_ns": attributes.create_time.0,
        "drive": format!("{:016x}", handle.drive.0),
        "partition": handle.partition.0,
        "object": handle.object.0,
    });
    if let Some(volume) = volume {
        facts["volume"] = volume.into();
    }
    facts
}
