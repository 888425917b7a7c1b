//! Passing calls through to extensions of drives (CMU-CS-97-118 section 3.4): a file's name and offsets become drives, objects
//! and their pieces, with the capabilities that the file manager gives this clerk.

use nasd_client::{Authority, ClientError, DriveClient, PendingExtend, interrupt};
use nasd_protocol::Region;
use nasd_protocol::drive::{ExtendArguments, Extended, ExtensionOutcome};
use nasd_types::{ByteRange, DriveId, ObjectName, Rights};

/// What an extension is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtensionCall {
    /// Its number, and which revision of it.
    pub extension: (u32, u32),
    /// What it is to be allowed: no more than the file is open for.
    pub rights: Rights,
    /// Most bytes that each drive may tell in one answer.
    pub most: usize,
    /// What it is told.
    pub arguments: Vec<u8>,
    /// The same in all calls that are parts of one job.
    pub job: u64,
    /// Bytes that the job has still to look at, at all drives together.
    pub bytes_left: u64,
}

/// What an extension has told of some of the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtendedPart {
    /// Which drive.
    pub drive: DriveId,
    /// The bytes of the file that it had to do with, in order.
    pub pieces: Vec<ByteRange>,
    /// What became of it; all but `Done` are the end.
    pub outcome: ExtensionOutcome,
    /// The first byte that was not looked at, of the pieces; the next part of this drive begins there.
    pub position: u64,
    /// What it has told.
    pub data: Vec<u8>,
}

/// What one drive has of a range, and how it is asked.
pub(crate) struct Asked<'a> {
    pub(crate) client: &'a DriveClient,
    pub(crate) authority: &'a Authority,
    pub(crate) drive: DriveId,
    pub(crate) name: ObjectName,
    pub(crate) regions: Vec<Region>,
}

/// Has several drives work at once, each until it has looked at all that it has, or it is at an end. Nothing more is asked once this
/// thread's waits are to end.
pub(crate) fn extend_all(
    call: &ExtensionCall,
    asked: Vec<Asked<'_>>,
) -> Result<Vec<ExtendedPart>, ClientError> {
    // All of them are to work while the first is waited for.
    let begun: Vec<PendingExtend<'_>> =
        asked.iter().map(|asked| asked.begin(call).send()).collect();
    let mut parts = Vec::with_capacity(asked.len());
    for (mut asked, mut pending) in asked.into_iter().zip(begun) {
        loop {
            let (extended, data) = pending.wait();
            let part = asked.part(extended?, data)?;
            let rest = asked.regions.iter().flat_map(|row| row.from_position(part.position));
            asked.regions = rest.collect();
            let is_over = part.outcome != ExtensionOutcome::Done || asked.regions.is_empty();
            parts.push(part);
            if is_over {
                break;
            }
            let server = || asked.client.address().to_owned();
            interrupt::check()
                .map_err(|_| ClientError::Interrupted { server: server(), may_have_run: true })?;
            pending = asked.begin(call);
        }
    }
    Ok(parts)
}

impl<'a> Asked<'a> {
    fn arguments(&self, call: &ExtensionCall) -> ExtendArguments {
        let (extension, revision) = call.extension;
        ExtendArguments {
            name: self.name,
            regions: self.regions.clone(),
            rights: call.rights,
            extension,
            revision,
            job: call.job,
            bytes_left: call.bytes_left,
            most: u32::try_from(call.most).unwrap_or(u32::MAX),
            arguments: call.arguments.clone(),
        }
    }

    fn begin(&self, call: &ExtensionCall) -> PendingExtend<'a> {
        self.client.begin_extend(self.authority, self.arguments(call), vec![0; call.most])
    }

    fn part(&self, extended: Extended, mut data: Vec<u8>) -> Result<ExtendedPart, ClientError> {
        let Extended { outcome, position, data_length } = extended;
        let pieces: Vec<ByteRange> = self.regions.iter().flat_map(pieces_of).collect();
        let begin = pieces.first().map_or(0, |piece| piece.offset);
        // Who does not get on would be asked for ever.
        if outcome == ExtensionOutcome::Done && position <= begin && !pieces.is_empty() {
            let server = self.client.address().to_owned();
            let why = "an extension does not get on".to_owned();
            return Err(ClientError::Protocol { server, why });
        }
        data.truncate(data_length);
        Ok(ExtendedPart { drive: self.drive, pieces, outcome, position, data })
    }
}

/// One piece.
pub(crate) fn single(range: &ByteRange) -> Region {
    Region::single(range.offset, range.length)
}

/// The same pieces in as few rows as it takes, where single ones of one length follow each other at one distance.
pub(crate) fn rows_of(regions: impl Iterator<Item = Region>) -> Vec<Region> {
    let mut rows: Vec<Region> = Vec::new();
    for region in regions {
        match rows.last_mut() {
            Some(row) if region.count == 1 && region.length == row.length => {
                let distance = region.offset.wrapping_sub(row.offset);
                let begins_a_row = row.count == 1 && distance >= row.length && distance < 1 << 62;
                if begins_a_row {
                    (row.stride, row.count) = (distance, 2);
                } else if row.count > 1 && distance == row.stride.saturating_mul(row.count.into()) {
                    row.count += 1;
                } else {
                    rows.push(region);
                }
            }
            _ => rows.push(region),
        }
    }
    rows
}

fn pieces_of(region: &Region) -> impl Iterator<Item = ByteRange> + use<> {
    let Region { offset, length, stride, count } = *region;
    (0..u64::from(count)).map(move |at| ByteRange::new(offset + at * stride, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_at_one_distance_are_a_row() {
        let rows = |offsets: &[(u64, u64)]| {
            rows_of(offsets.iter().map(|&(offset, length)| Region::single(offset, length)))
        };
        let row = |offset, length, stride, count| Region { offset, length, stride, count };
        assert_eq!(rows(&[(5, 10)]), [Region::single(5, 10)]);
        assert_eq!(rows(&[(5, 10), (25, 10), (45, 10)]), [row(5, 10, 20, 3)]);
        // What touches what came before is a row as well.
        assert_eq!(rows(&[(0, 10), (10, 10), (20, 10)]), [row(0, 10, 10, 3)]);
        let apart = rows(&[(0, 10), (20, 10), (50, 10), (80, 10), (90, 5)]);
        assert_eq!(apart, [row(0, 10, 20, 2), row(50, 10, 30, 2), Region::single(90, 5)]);
        // Backwards is none.
        assert_eq!(rows(&[(50, 10), (20, 10)]).len(), 2);
        let two = row(0, 10, 20, 2);
        assert_eq!(rows_of([two, Region::single(40, 10)].into_iter()), [row(0, 10, 20, 3)]);
    }
}
