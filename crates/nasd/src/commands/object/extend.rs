//! Has an extension of a drive do something with an object; what it tells goes to the standard output.

use super::Target;
use crate::arguments::{ExtendOptions, RegionArguments};
use crate::commands::Outcome;
use crate::output;
use nasd_clerk::new_job;
use nasd_protocol::Region;
use nasd_protocol::drive::{ExtendArguments, Extended, ExtensionOutcome};
use nasd_protocol::limits::MAX_TRANSFER_BYTES;
use serde_json::json;
use std::error::Error;
use std::io::{self, Write};

/// Where pieces that no length was given for end: no object is as long.
const OPEN_END: u64 = nasd_types::limits::MAX_OBJECT_BYTES;

impl Target {
    pub(super) fn extend(
        &self,
        options: &ExtendOptions,
        regions: &RegionArguments,
        (hex, as_json): (bool, bool),
    ) -> Outcome {
        let regions = match regions.open_from() {
            Some(offset) => vec![Region::single(offset, OPEN_END.saturating_sub(offset))],
            None => regions.regions()?,
        };
        let (number, revision) = self.find_extension(options)?;
        let mut call = ExtendArguments {
            name: self.name,
            regions,
            rights: options.rights(),
            extension: number,
            revision,
            job: new_job(),
            bytes_left: 0,
            most: MAX_TRANSFER_BYTES as u32,
            arguments: options.arguments.0.clone(),
        };
        let (mut into, mut told) = (vec![0; MAX_TRANSFER_BYTES], Vec::new());
        loop {
            let Extended { position, data_length, .. } = self.extend_once(&mut call, &mut into)?;
            let data = &into[..data_length];
            match as_json || hex {
                true => told.extend_from_slice(data),
                false => io::stdout().write_all(data).map_err(|error| error.to_string())?,
            }
            call.regions =
                call.regions.iter().flat_map(|row| row.from_position(position)).collect();
            if call.regions.is_empty() {
                break;
            }
        }
        let text: String = told.iter().map(|byte| format!("{byte:02x}")).collect();
        if as_json {
            let facts = json!({ "extension": number, "revision": revision, "data": text });
            return output::json(&facts);
        }
        if hex {
            output::say!("{text}");
        }
        Ok(())
    }

    /// One call, which comes as far as it likes.
    fn extend_once(
        &self,
        call: &mut ExtendArguments,
        into: &mut [u8],
    ) -> Result<Extended, Box<dyn Error>> {
        let Target { session, .. } = self;
        let bytes = call.pieces().map_err(|status| status.to_string())?.total_bytes() as u64;
        call.bytes_left = bytes;
        let (begin, most) = (call.regions[0].offset, into.len().min(session.client.max_transfer()));
        call.most = most as u32;
        let extended = session.client.extend(&session.authority, call, into);
        let extended = extended.map_err(self.failed("have an extension work on"))?;
        if extended.outcome != ExtensionOutcome::Done {
            let text = String::from_utf8_lossy(&into[..extended.data_length]);
            let at = match extended.outcome {
                ExtensionOutcome::Failed => format!("at byte {}: ", extended.position),
                _ => String::new(),
            };
            return Err(format!("extension {}: {at}{text}", call.extension).into());
        }
        if extended.position <= begin && extended.data_length == 0 {
            return Err(format!("extension {} does not get on", call.extension).into());
        }
        Ok(extended)
    }

    /// The extension that is meant: by its number and revision, or as the drive lists it.
    fn find_extension(&self, options: &ExtendOptions) -> Result<(u32, u32), Box<dyn Error>> {
        let Target { session, name } = self;
        if let Some(numbers) = options.numbers() {
            return Ok(numbers);
        }
        let control = session.client.drive_control(&session.authority, name.partition);
        let known = control.map_err(session.failed("list the extensions"))?.extensions;
        Ok(options.among(&known, &session.name)?)
    }
}
