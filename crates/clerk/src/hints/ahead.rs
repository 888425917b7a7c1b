//! The thread of a stream of hints: it has things fetched, and tells drives what comes behind them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use nasd_prefetch::notice::{self, Notice};
use nasd_types::{ByteRange, DriveId, Rights};

use super::{Batch, Call, FileOf, HintStream, Target, Wanted, Work, find};
use crate::ClerkError;
use crate::clerk::Clerk;
use crate::core::Core;
use crate::extending::{ExtendedPart, ExtensionCall};
use crate::hinted::Part;
use crate::wire::{Caller, ReadOutcome, Status};

/// Room for the answer of a drive that is told a hint.
const ANSWER_BYTES: usize = 256;

/// Does what there is to do, until the stream is over.
pub(super) fn conduct(clerk: &Arc<Clerk>, caller: &Arc<Caller>, stream: &Arc<HintStream>) {
    let core = clerk.core();
    while let Some(work) = stream.next_work() {
        match work {
            Work::Find(Target::Open(file, range)) => stream.found(file, range),
            Work::Find(Target::Path(directory, path, range)) => {
                match find(clerk, caller, (directory, &path), range) {
                    Ok((file, range)) => stream.found(file, range),
                    Err(error) => {
                        tracing::debug!(%error, path = %path.escape_ascii(), "a hint is of no use");
                    }
                }
            }
            Work::Fetch(batch, wanted) => {
                let (core, stream) = (Arc::clone(core), Arc::clone(stream));
                let lane = Arc::clone(&batch.file.0.state.lane);
                lane.fetchers.submit(move || {
                    let begun = Instant::now();
                    fetch(&core, &batch, wanted);
                    stream.fetched(begun.elapsed());
                });
            }
            Work::Tell(call) => tell(core, stream, call),
        }
    }
    tell_the_end(core, stream);
}

/// What of it is not there or on its way. Whoever holds the stream may lock a file, and not the other way round.
pub(super) fn begin(batch: &Batch<FileOf>) -> Vec<Wanted> {
    let (mut inner, now) = (batch.file.0.state.lock(), Instant::now());
    let begin = |range: &ByteRange| Some((*range, inner.hinted.begin(*range, now)?));
    batch.ranges.iter().filter_map(begin).collect()
}

/// Fetches what is wanted of a file.
fn fetch(core: &Arc<Core>, batch: &Batch<FileOf>, wanted: Vec<Wanted>) {
    if wanted.is_empty() {
        return;
    }
    let file = &batch.file.0.state;
    let answers = file.lock().answers();
    let pieces: Vec<ByteRange> = wanted.iter().map(|(range, _)| *range).collect();
    let read =
        core.with_grant(&batch.file.0.slot, |grant| core.objects.read_pieces(grant, &pieces));
    let mut inner = file.lock();
    let now = Instant::now();
    let (outcome, bytes) = match read {
        Ok(read) => read,
        Err(error) => {
            // Whoever reads asks the drive and is told.
            tracing::debug!(%error, handle = ?file.handle, "what was hinted can't be fetched");
            (NOTHING, Vec::new())
        }
    };
    let bytes = Arc::new(bytes);
    let mut at = 0;
    for (range, id) in wanted {
        let length = outcome.length.saturating_sub(at).min(range.length as usize);
        let part = Part::new(Arc::clone(&bytes), at, length);
        let version = (outcome.fs_data_modify_time, outcome.logical_size);
        inner.hinted.finish((range.offset, id), (length > 0).then_some((part, version)), now);
        at += length;
    }
    if outcome.length > 0 {
        inner.note_size(outcome.logical_size, answers);
    }
    drop(inner);
    file.notify();
}

const NOTHING: ReadOutcome =
    ReadOutcome { length: 0, logical_size: 0, fs_data_modify_time: nasd_types::Timestamp(0) };

fn extend(
    core: &Arc<Core>,
    hints: &Batch<FileOf>,
    notice: &Notice,
) -> Result<Vec<ExtendedPart>, ClerkError> {
    let call = ExtensionCall {
        extension: (notice::NUMBER, notice::REVISION),
        rights: Rights::READ,
        most: ANSWER_BYTES,
        arguments: notice.encode(),
        job: notice.stream,
        bytes_left: 0,
    };
    core.with_grant(&hints.file.0.slot, |grant| core.objects.extend(grant, &hints.ranges, &call))
}

/// Tells the drives that have some bytes that these will be read.
fn tell(core: &Arc<Core>, stream: &HintStream, call: Call<FileOf>) {
    let Call { hints, ordinal, passed, skipped } = call;
    let notice =
        Notice { stream: stream.id, ordinal, passed, skipped, is_hint: true, is_over: false };
    match extend(core, &hints, &notice) {
        Ok(parts) => {
            let hints = Arc::new(hints);
            let mut state = stream.lock();
            for part in parts {
                state.told.insert(part.drive, Arc::clone(&hints));
            }
        }
        Err(ClerkError::Drive(Status::NoSuchExtension)) => stream.lock().are_deaf = true,
        Err(error) => tracing::debug!(%error, "a hint was not told"),
    }
}

/// Tells all drives that were told anything that nothing more will be read.
fn tell_the_end(core: &Arc<Core>, stream: &HintStream) {
    let mut told: HashMap<DriveId, Arc<Batch<FileOf>>> = std::mem::take(&mut stream.lock().told);
    let notice = Notice { stream: stream.id, is_over: true, ..Notice::default() };
    while let Some(hints) = told.values().next().cloned() {
        told.retain(|_, last| !Arc::ptr_eq(last, &hints));
        if let Err(error) = extend(core, &hints, &notice) {
            // They find out by themselves when nothing is heard of it for long.
            tracing::debug!(%error, "the end of hints was not told");
        }
    }
}
