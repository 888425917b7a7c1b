//! `nasd ls` and `nasd stat`.

use super::{Session, at, parse};
use crate::commands::Outcome;
use nasd_cell::Cell;
use nasd_clerk::{FileAttributes, FileHandle, FileType};
use serde_json::{Value, json};

/// Lists a directory, or shows one file.
///
/// # Errors
/// A path that does not exist or may not be read.
pub fn ls(cell: &Cell, text: &str, long: bool, as_json: bool) -> Outcome {
    let path = parse(text)?;
    let session = Session::open(cell, &path)?;
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
        if as_json {
            facts.push(describe(&name, handle, &attributes));
        } else {
            println!("{} {name}{}", line(&attributes), suffix(file_type));
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
    let path = parse(text)?;
    let session = Session::open(cell, &path)?;
    let entry = session.resolve(&path)?;
    let facts = describe(&path.to_string(), entry.handle, &entry.attributes);
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

fn suffix(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Directory => "/",
        FileType::Symlink => "@",
        FileType::Fifo => "|",
        FileType::Socket => "=",
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
    }
}

fn line(attributes: &FileAttributes) -> String {
    let FileAttributes { mode, links, uid, gid, size, modify_time, .. } = attributes;
    format!("{mode:04o} {links:>3} {uid:>6} {gid:>6} {size:>13} {:>12}", modify_time.seconds())
}

fn describe(name: &str, handle: FileHandle, attributes: &FileAttributes) -> Value {
    json!({
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
    })
}
