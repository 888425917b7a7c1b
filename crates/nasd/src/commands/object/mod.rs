//! `nasd object`: every operation on objects (CMU-CS-97-118, Table 1), for a person to use and see.

mod attributes;
mod control;
mod extend;
mod transfer;

use super::Outcome;
use super::agree::agree;
use crate::arguments::{DriveArguments, ObjectCommand, ObjectPlace};
use crate::drive_session::DriveSession;
use crate::output::{self, say};
use nasd_types::{Attributes, ObjectId, ObjectName, PartitionId};
use serde_json::{Value, json};
use std::error::Error;
use std::path::Path;

/// Runs an object command.
///
/// # Errors
/// The command's own.
pub fn run(cell: &Path, command: ObjectCommand, as_json: bool) -> Outcome {
    let drive =
        |arguments: &DriveArguments, partition| DriveSession::open(cell, arguments, partition);
    let open = |place: &ObjectPlace| Target::open(cell, place);
    match command {
        ObjectCommand::Create { place, attributes, durable } => {
            let session = drive(&place.drive, Some(place.partition))?;
            let (partition, initial) = (place.partition, attributes.changes());
            let created =
                session.client.create(&session.authority, partition, &initial, durable.durable);
            let created = created
                .map_err(session.failed(format!("create an object in partition {partition}")))?;
            print_new(created.object, &created.attributes, as_json)
        }
        ObjectCommand::List { place } => {
            list(&drive(&place.drive, Some(place.partition))?, place.partition, as_json)
        }
        ObjectCommand::Stat { place } => open(&place)?.stat(as_json),
        ObjectCommand::Set { place, attributes, durable } => {
            open(&place)?.set(&attributes, durable.durable, as_json)
        }
        ObjectCommand::Read { place, regions } => open(&place)?.read(&regions),
        ObjectCommand::Write { place, regions, durable } => {
            open(&place)?.write(&regions, durable.durable, as_json)
        }
        ObjectCommand::Copy { place } => open(&place)?.copy(as_json),
        ObjectCommand::Punch { place, regions, durable } => {
            let target = open(&place)?;
            let Target { session, name } = &target;
            let regions = regions.regions()?;
            let durable = durable.durable;
            let punched = session.client.punch(&session.authority, *name, &regions, durable);
            let attributes = punched.map_err(target.failed("punch"))?;
            if as_json {
                output::json(&attributes::facts(*name, &attributes))?;
            }
            Ok(())
        }
        ObjectCommand::Seek { place, offset, target } => {
            open(&place)?.seek(offset, target.target(), as_json)
        }
        ObjectCommand::Required { place, regions } => {
            open(&place)?.required(&regions.regions()?, as_json)
        }
        ObjectCommand::Extend { place, extension, regions, hex } => {
            open(&place)?.extend(&extension, &regions, (hex, as_json))
        }
        ObjectCommand::Remove { place, durable, yes } => open(&place)?.remove(durable.durable, yes),
        ObjectCommand::Flush { place, objects } => {
            let session = drive(&place.drive, Some(place.partition))?;
            let partition = place.partition;
            let flushed = session.client.flush(&session.authority, partition, &objects);
            flushed.map_err(session.failed(format!("flush in partition {partition}")))?;
            Ok(())
        }
        ObjectCommand::Control { drive: arguments, partition } => {
            let session = drive(&arguments, partition)?;
            match partition {
                Some(partition) => control::partition(&session, partition, as_json),
                None => control::drive(&session, as_json),
            }
        }
    }
}

/// One object of a running drive.
pub struct Target {
    session: DriveSession,
    name: ObjectName,
}

impl Target {
    fn open(cell: &Path, place: &ObjectPlace) -> Result<Self, Box<dyn Error>> {
        Ok(Target {
            session: DriveSession::open(cell, &place.drive, Some(place.name().partition))?,
            name: place.name(),
        })
    }

    /// Says what failed on which object of which drive, why, and what to do.
    fn failed(&self, action: &str) -> impl FnOnce(nasd_client::ClientError) -> String {
        self.session.failed(format!("{action} object {}", self.name))
    }

    fn copy(&self, as_json: bool) -> Outcome {
        let copied = self.session.client.fastcopy(&self.session.authority, self.name);
        let copied = copied.map_err(self.failed("copy"))?;
        print_new(copied.object, &copied.attributes, as_json)
    }

    fn remove(&self, durable: bool, yes: bool) -> Outcome {
        let Target { session, name } = self;
        let attributes = session.client.getattr(&session.authority, *name);
        let bytes = attributes.map_err(self.failed("remove"))?.logical_size;
        let drive = &session.name;
        agree(&format!("object {name} of drive {drive} with {bytes} bytes would be lost"), yes)?;
        let removed = session.client.remove(&session.authority, *name, durable);
        Ok(removed.map_err(self.failed("remove"))?)
    }
}

fn list(session: &DriveSession, partition: PartitionId, as_json: bool) -> Outcome {
    let mut identifiers = Vec::new();
    for object in session.client.objects(&session.authority, partition) {
        let object =
            object.map_err(session.failed(format!("list objects of partition {partition}")))?;
        if as_json {
            identifiers.push(object.to_string());
        } else {
            say!("{object}");
        }
    }
    if as_json {
        output::json(&json!({ "objects": identifiers }))?;
    }
    Ok(())
}

/// Tells the identifier of a new object, and with `as_json` its attributes.
fn print_new(object: ObjectId, attributes: &Attributes, as_json: bool) -> Outcome {
    if as_json {
        let mut facts = attributes::values(attributes);
        facts["object"] = Value::from(object.to_string());
        return output::json(&facts);
    }
    say!("{object}");
    Ok(())
}
