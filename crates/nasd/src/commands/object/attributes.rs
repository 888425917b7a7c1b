//! Attributes of an object (CMU-CS-97-118, Table 5), shown and set.

use super::Target;
use crate::arguments::AttributeArguments;
use crate::commands::Outcome;
use crate::output::{self, say};
use nasd_cell::time::utc;
use nasd_types::{Attributes, ObjectId, ObjectName, SetAttributes};
use serde_json::{Value, json};

impl Target {
    pub(super) fn stat(&self, as_json: bool) -> Outcome {
        let Target { session, name } = self;
        let attributes = session.client.getattr(&session.authority, *name);
        show(*name, &attributes.map_err(self.failed("look at"))?, as_json)
    }

    pub(super) fn set(
        &self,
        arguments: &AttributeArguments,
        durable: bool,
        as_json: bool,
    ) -> Outcome {
        let changes = arguments.changes();
        if changes == SetAttributes::default() {
            return Err("no attribute is named: add --logical-size, --fs-specific or another; \
                        `nasd object set --help` lists them"
                .into());
        }
        let Target { session, name } = self;
        let set = session.client.setattr(&session.authority, *name, &changes, durable);
        show(*name, &set.map_err(self.failed("set attributes of"))?, as_json)
    }
}

/// The attributes, for `--json`.
pub(super) fn values(attributes: &Attributes) -> Value {
    json!({
        "access_control_version": attributes.access_control_version,
        "nearby_object": other_object(attributes.nearby_object),
        "copied_object": other_object(attributes.copied_object),
        "logical_size": attributes.logical_size,
        "blocks_allocated": attributes.blocks_allocated,
        "blocks_used": attributes.blocks_used,
        "block_size": attributes.block_size,
        "create_time_ns": attributes.create_time.0,
        "data_modify_time_ns": attributes.data_modify_time.0,
        "attribute_modify_time_ns": attributes.attribute_modify_time.0,
        "fs_data_modify_time_ns": attributes.fs_data_modify_time.0,
        "fs_attribute_modify_time_ns": attributes.fs_attribute_modify_time.0,
        "fs_specific": hexadecimal(&attributes.fs_specific[..]),
    })
}

/// The attributes with the object's name, for `--json`.
pub(super) fn facts(name: ObjectName, attributes: &Attributes) -> Value {
    let mut facts = values(attributes);
    facts["partition"] = Value::from(name.partition.to_string());
    facts["object"] = Value::from(name.object.to_string());
    facts
}

fn show(name: ObjectName, attributes: &Attributes, as_json: bool) -> Outcome {
    if as_json {
        return output::json(&facts(name, attributes));
    }
    let object = |object| other_object(object).unwrap_or_else(|| "none".to_owned());
    let Attributes { blocks_allocated, blocks_used, block_size, .. } = attributes;
    say!("object                  {name}");
    say!("logical size            {} bytes", attributes.logical_size);
    say!("blocks                  {blocks_used} used, {blocks_allocated} allocated");
    say!("block size              {block_size} bytes");
    say!("access control version  {}", attributes.access_control_version);
    say!("nearby object           {}", object(attributes.nearby_object));
    say!("copied object           {}", object(attributes.copied_object));
    say!("create time             {}", utc(attributes.create_time));
    say!("data modify time        {}", utc(attributes.data_modify_time));
    say!("attribute modify time   {}", utc(attributes.attribute_modify_time));
    say!("fs data modify time     {}", utc(attributes.fs_data_modify_time));
    say!("fs attr modify time     {}", utc(attributes.fs_attribute_modify_time));
    say!("fs specific             {}", shortened(&attributes.fs_specific[..]));
    Ok(())
}

/// An object that an attribute names.
fn other_object(object: ObjectId) -> Option<String> {
    (object != ObjectId(0)).then(|| object.to_string())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes in hexadecimal; of the zeros at their end it is said how many there are.
fn shortened(bytes: &[u8]) -> String {
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    match (used, bytes.len() - used) {
        (_, 0) => hexadecimal(bytes),
        (0, zeros) => format!("{zeros} zeros"),
        (_, zeros) => format!("{} and {zeros} zeros", hexadecimal(&bytes[..used])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_at_the_end_are_counted() {
        assert_eq!(shortened(&[0; 256]), "256 zeros");
        assert_eq!(shortened(&[1, 0, 255, 0, 0]), "0100ff and 2 zeros");
        assert_eq!(shortened(&[1]), "01");
    }
}
