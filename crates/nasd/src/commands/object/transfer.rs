//! Data of an object: read to the standard output, written from the standard input; and what can be
//! asked about it.

use super::Target;
use crate::arguments::RegionArguments;
use crate::commands::Outcome;
use crate::output::{self, note, say};
use indicatif::{ProgressBar, ProgressStyle};
use nasd_protocol::Region;
use nasd_types::SeekTarget;
use serde_json::json;
use std::error::Error;
use std::io::{self, IoSlice, IsTerminal, Read, Write};

impl Target {
    pub(super) fn read(&self, arguments: &RegionArguments) -> Outcome {
        let regions = match arguments.open_from() {
            Some(offset) => vec![Region::single(offset, u64::MAX - offset)],
            None => arguments.regions()?,
        };
        let mut out = io::stdout().lock();
        match &regions[..] {
            [whole] if whole.count == 1 => self.stream_out(whole, &mut out)?,
            _ => self.read_regions(&regions, &mut out)?,
        }
        Ok(out.flush().map_err(cant_print)?)
    }

    /// One contiguous region, by as many requests as it takes.
    fn stream_out(&self, region: &Region, out: &mut dyn Write) -> Outcome {
        let Target { session, name } = self;
        let progress = bar(region.length);
        let mut buffer = vec![0; session.client.max_transfer()];
        let (mut offset, mut left) = (region.offset, region.length);
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let outcome =
                session.client.read(&session.authority, *name, offset, &mut buffer[..wanted]);
            let outcome = outcome.map_err(self.failed("read"))?;
            out.write_all(&buffer[..outcome.length]).map_err(cant_print)?;
            progress.set_length(outcome.logical_size.saturating_sub(region.offset));
            progress.inc(outcome.length as u64);
            if outcome.length < wanted {
                break;
            }
            offset += outcome.length as u64;
            left -= outcome.length as u64;
        }
        progress.finish_and_clear();
        Ok(())
    }

    /// Several pieces by one request, which the drive answers at one go.
    fn read_regions(&self, regions: &[Region], out: &mut dyn Write) -> Outcome {
        let Target { session, name } = self;
        // Longer ones are refused before the buffer is used.
        let mut buffer = vec![0; session.client.max_transfer().min(total_bytes(regions))];
        let outcome = session.client.read_regions(&session.authority, *name, regions, &mut buffer);
        let outcome = outcome.map_err(self.failed("read"))?;
        Ok(out.write_all(&buffer[..outcome.length]).map_err(cant_print)?)
    }

    pub(super) fn write(
        &self,
        arguments: &RegionArguments,
        durable: bool,
        as_json: bool,
    ) -> Outcome {
        let (regions, is_open) = match arguments.open_from() {
            Some(offset) => (vec![Region::single(offset, u64::MAX - offset)], true),
            None => (arguments.regions()?, false),
        };
        if io::stdin().is_terminal() {
            note!("writing what you type, until the end of file (Ctrl-D)");
        }
        let mut input = io::stdin().lock();
        let written = match &regions[..] {
            [whole] if whole.count == 1 => self.stream_in(whole, is_open, durable, &mut input)?,
            _ => self.write_regions(&regions, durable, &mut input)?,
        };
        if as_json {
            output::json(&json!({ "written_bytes": written, "durable": durable }))?;
        }
        Ok(())
    }

    /// One contiguous region, by as many requests as it takes; up to the end of the input where the
    /// region is open.
    fn stream_in(
        &self,
        region: &Region,
        is_open: bool,
        durable: bool,
        input: &mut dyn Read,
    ) -> Result<u64, Box<dyn Error>> {
        let Target { session, name } = self;
        let progress = bar(region.length);
        let mut buffer = vec![0; session.client.max_transfer()];
        let mut written = 0;
        while written < region.length {
            let left = region.length - written;
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let length = fill(input, &mut buffer[..wanted])?;
            if length < wanted && !is_open {
                return Err(too_short(written + length as u64, region.length, written).into());
            }
            if length == 0 && written > 0 {
                break;
            }
            let offset = region.offset + written;
            let data = &buffer[..length];
            let result = session.client.write(&session.authority, *name, offset, data, durable);
            result.map_err(self.failed("write"))?;
            written += length as u64;
            progress.inc(length as u64);
            if length < wanted {
                break;
            }
        }
        progress.finish_and_clear();
        Ok(written)
    }

    /// Several pieces by one request, of which all or nothing is seen.
    fn write_regions(
        &self,
        regions: &[Region],
        durable: bool,
        input: &mut dyn Read,
    ) -> Result<u64, Box<dyn Error>> {
        let Target { session, name } = self;
        let total = total_bytes(regions);
        let limit = session.client.max_transfer();
        if total > limit {
            let text = format!("{total} bytes in one request; the limit is {limit}: split it");
            return Err(text.into());
        }
        let mut data = vec![0; total];
        let length = fill(input, &mut data)?;
        if length < total {
            return Err(too_short(length as u64, total as u64, 0).into());
        }
        let data = [IoSlice::new(&data)];
        let written =
            session.client.write_regions(&session.authority, *name, regions, &data, durable);
        Ok(written.map_err(self.failed("write"))?.length)
    }

    pub(super) fn seek(&self, offset: u64, target: SeekTarget, as_json: bool) -> Outcome {
        let Target { session, name } = self;
        let found = session.client.seek(&session.authority, *name, offset, target);
        let found = found.map_err(self.failed("seek in"))?;
        if as_json {
            return output::json(&json!({ "position": found }));
        }
        match found {
            Some(position) => say!("{position}"),
            None => say!("none"),
        }
        Ok(())
    }

    pub(super) fn required(&self, regions: &[Region], as_json: bool) -> Outcome {
        let Target { session, name } = self;
        let required = session.client.blocks_required(&session.authority, *name, regions);
        let required = required.map_err(self.failed("ask about"))?;
        let (estimated, maximum) = (required.estimated, required.maximum);
        if as_json {
            return output::json(&json!({ "estimated": estimated, "maximum": maximum }));
        }
        say!("{estimated} blocks if new data compresses as the old does, {maximum} at most");
        Ok(())
    }
}

/// Bytes of all pieces; saturates.
fn total_bytes(regions: &[Region]) -> usize {
    let total = regions.iter().fold(0_u64, |sum, region| {
        sum.saturating_add(region.length.saturating_mul(u64::from(region.count)))
    });
    usize::try_from(total).unwrap_or(usize::MAX)
}

/// Reads until the buffer is full or the input ends.
fn fill(input: &mut dyn Read, buffer: &mut [u8]) -> Result<usize, String> {
    let mut length = 0;
    while length < buffer.len() {
        match input.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("can't read the standard input: {error}")),
        }
    }
    Ok(length)
}

fn cant_print(error: io::Error) -> String {
    format!("can't write to the standard output: {error}")
}

fn too_short(found: u64, wanted: u64, written: u64) -> String {
    format!(
        "the standard input has {found} bytes and the regions hold {wanted}: correct --length; \
         {written} bytes were written"
    )
}

/// Bytes so far, on a terminal; nothing in a pipe.
fn bar(bytes: u64) -> ProgressBar {
    let progress = ProgressBar::new(bytes);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {bytes} {bytes_per_sec}") {
        progress.set_style(style);
    }
    progress
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_saturate() {
        let region = |length, count| Region { offset: 0, length, stride: length, count };
        assert_eq!(total_bytes(&[region(4, 3), region(5, 1)]), 17);
        assert_eq!(total_bytes(&[region(u64::MAX, 2), region(1, 1)]), usize::MAX);
    }

    #[test]
    fn short_inputs_are_seen() {
        let mut buffer = [0; 4];
        assert_eq!(fill(&mut &b"abcdef"[..], &mut buffer), Ok(4));
        assert_eq!(fill(&mut &b"ab"[..], &mut buffer), Ok(2));
    }
}
