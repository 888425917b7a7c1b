//! The well-known control objects (CMU-CS-97-118, Table 4), read and explained.

use crate::commands::Outcome;
use crate::commands::cap::words;
use crate::commands::partition::Described;
use crate::commands::status::size;
use crate::drive_session::DriveSession;
use crate::output::{self, say};
use nasd_cell::protection_name_of;
use nasd_cell::time::utc;
use nasd_protocol::drive::{DriveControl, DriveInformation, Extension, PartitionControl};
use nasd_types::PartitionId;
use serde_json::{Value, json};

/// Shows what anybody may ask (`inquiry`), and object 1.
pub fn drive(session: &DriveSession, as_json: bool) -> Outcome {
    let asked = session.client.inquiry().map_err(session.failed("ask"))?;
    // It is the same in every partition.
    let partition = asked.partitions.first().copied().unwrap_or(PartitionId(1));
    let control = session.client.drive_control(&session.authority, partition);
    let control = control.map_err(session.failed("read the drive's control object"))?;
    if as_json {
        return output::json(&drive_facts(&asked, &control));
    }
    print_inquiry(&asked);
    print_control(&control);
    say!("\n{}", Described::head());
    for summary in &control.partitions {
        say!("{}", Described::new(summary).line());
    }
    Ok(())
}

/// Shows object 2 of a partition.
pub fn partition(session: &DriveSession, partition: PartitionId, as_json: bool) -> Outcome {
    let control = session.client.partition_control(&session.authority, partition);
    let PartitionControl { summary, free_bytes, objects_supported } = control
        .map_err(session.failed(format!("read the control object of partition {partition}")))?;
    let described = Described::new(&summary);
    if as_json {
        let mut facts = serde_json::to_value(&described)?;
        facts["free_bytes"] = Value::from(free_bytes);
        facts["objects_supported"] = Value::from(objects_supported);
        return output::json(&facts);
    }
    say!("{}\n{}", Described::head(), described.line());
    let free = size(free_bytes);
    say!("{free} can still be written; room for about {objects_supported} objects in all");
    Ok(())
}

fn print_inquiry(asked: &DriveInformation) {
    let DriveInformation { vendor, model, revision, .. } = asked;
    say!("drive        {:016x} of cell {}", asked.drive.0, asked.cell);
    say!("product      {vendor} {model} {revision}");
    say!("instance     {:016x}", asked.instance);
    let suites: Vec<String> = asked.suites.iter().map(|suite| format!("{suite:?}")).collect();
    say!("suites       {}", suites.join(", ").to_lowercase());
    say!("protections  {}", names(asked));
    say!("transfer     at most {}", size(u64::from(asked.max_transfer)));
}

/// The names of Table 7's options that the drive understands.
fn protection_names(asked: &DriveInformation) -> Vec<String> {
    let names = asked.protections.iter_names();
    names.map(|(name, _)| name.to_lowercase().replace('_', "-")).collect()
}

fn names(asked: &DriveInformation) -> String {
    let minimum = protection_name_of(asked.minimum_protection);
    format!("{}; at least {minimum}", protection_names(asked).join(", "))
}

fn print_control(control: &DriveControl) {
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    let offset = control.clock_offset as f64 / 1e9;
    say!("clock        {}, {offset} s ahead of the machine's", utc(control.clock));
    say!(
        "nonces       at most {} s older and {} s newer than the clock",
        seconds(control.skew_past),
        seconds(control.skew_ahead)
    );
    say!("started      {}", utc(control.started));
    let (used, capacity) = (size(control.used_bytes), size(control.capacity_bytes));
    say!("space        {used} of {capacity} used, in blocks of {} bytes", control.block_size);
    say!("cache        {}", size(control.cache_bytes));
    say!("medium       {}", format!("{:?}", control.medium).to_lowercase());
    say!(
        "data         {} read and {} written by capability; {} read and {} written by key",
        size(control.capability_bytes_read),
        size(control.capability_bytes_written),
        size(control.key_bytes_read),
        size(control.key_bytes_written)
    );
    say!("requests     {}, of which {} were refused", control.requests, control.refusals);
    for extension in &control.extensions {
        let rights = words(extension.rights).join("+");
        let Extension { number, name, revision, parameters, .. } = extension;
        say!("extension    {number} {name} {revision} [{rights}]: {parameters}");
    }
}

fn drive_facts(asked: &DriveInformation, control: &DriveControl) -> Value {
    let partitions: Vec<Described> = control.partitions.iter().map(Described::new).collect();
    let extensions = control.extensions.iter().map(|extension| {
        json!({
            "number": extension.number,
            "name": extension.name,
            "revision": extension.revision,
            "rights": words(extension.rights),
            "parameters": extension.parameters,
        })
    });
    let suites = asked.suites.iter().map(|suite| format!("{suite:?}").to_lowercase());
    json!({
        "drive": format!("{:016x}", control.drive.0),
        "cell": asked.cell.to_string(),
        "vendor": asked.vendor,
        "model": asked.model,
        "revision": asked.revision,
        "instance": format!("{:016x}", asked.instance),
        "suites": suites.collect::<Vec<_>>(),
        "protections": protection_names(asked),
        "minimum_protection": protection_name_of(asked.minimum_protection),
        "max_transfer_bytes": asked.max_transfer,
        "clock_ns": control.clock.0,
        "clock_offset_ns": control.clock_offset,
        "skew_past_ns": control.skew_past,
        "skew_ahead_ns": control.skew_ahead,
        "started_ns": control.started.0,
        "capacity_bytes": control.capacity_bytes,
        "used_bytes": control.used_bytes,
        "cache_bytes": control.cache_bytes,
        "block_size": control.block_size,
        "medium": format!("{:?}", control.medium).to_lowercase(),
        "capability_bytes_read": control.capability_bytes_read,
        "capability_bytes_written": control.capability_bytes_written,
        "key_bytes_read": control.key_bytes_read,
        "key_bytes_written": control.key_bytes_written,
        "requests": control.requests,
        "refusals": control.refusals,
        "partitions": partitions,
        "extensions": extensions.collect::<Vec<_>>(),
    })
}
