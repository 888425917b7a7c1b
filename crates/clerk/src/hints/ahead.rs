//! The thread of a stream of hints: it has things looked up and fetched, and drives told what comes behind them.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use nasd_prefetch::notice::{self, Notice};
use nasd_types::{ByteRange, Rights};

use super::sequence::Batch;
use super::{Answer, Fetch, FileOf, HintStream, HintedFile, Place, Told, Wanted, Work};
use crate::clerk::Clerk;
use crate::core::Core;
use crate::extending::{ExtendedPart, ExtensionCall};
use crate::hinted::{Begun, Part, Version};
use crate::wire::{Caller, FileType, ManagerStatus, ReadOutcome, Status};
use crate::work_pool::caught;
use crate::{ClerkError, OpenMode};

/// Room for the answer of a drive that is told a hint.
const ANSWER_BYTES: usize = 256;

/// Does what there is to do, until the stream is over. Others wait for drives and the manager.
pub(super) fn conduct(clerk: &Arc<Clerk>, caller: &Arc<Caller>, stream: &Arc<HintStream>) {
    let core = clerk.core();
    while let Some(work) = stream.next_work() {
        let stream = Arc::clone(stream);
        match work {
            Work::Find(places) => {
                let (clerk, caller) = (Arc::clone(clerk), Arc::clone(caller));
                core.finders.submit(move || {
                    let find =
                        |(number, place)| (number, look_up(&clerk, &caller, &stream, &place));
                    stream.found(places.into_iter().map(find).collect());
                });
            }
            Work::Fetch(next) => submit(core, stream, next),
            Work::Tell(told) => {
                let core = Arc::clone(core);
                let lane = Arc::clone(&told.hints.file.0.state.lane);
                lane.tellers.submit(move || tell(&core, &stream, told));
            }
        }
    }
    tell_the_end(core, stream);
}

/// Has something fetched.
fn submit(core: &Arc<Core>, stream: Arc<HintStream>, next: Fetch) {
    let (core, lane) = (Arc::clone(core), Arc::clone(&next.batch.file.0.state.lane));
    lane.fetchers.submit(move || fetch_on(&core, stream, next));
}

/// Fetches something, and what comes next, as long as that is at the same drive and nobody else waits for this thread.
fn fetch_on(core: &Arc<Core>, stream: Arc<HintStream>, mut next: Fetch) {
    loop {
        let begun = Instant::now();
        let lane = Arc::clone(&next.batch.file.0.state.lane);
        let was_asked = fetch(core, next);
        let taken = was_asked.then(|| begun.elapsed());
        let Some(after) = stream.fetched(taken) else { return };
        let is_own = Arc::ptr_eq(&lane, &after.batch.file.0.state.lane);
        if !is_own || lane.fetchers.has_waiting() {
            return submit(core, stream, after);
        }
        next = after;
    }
}

/// Looks up a path, for a stream that is not over.
fn look_up(
    clerk: &Arc<Clerk>,
    caller: &Arc<Caller>,
    stream: &HintStream,
    place: &Place,
) -> Option<(FileOf, ByteRange)> {
    if stream.is_over() {
        return None;
    }
    let found = caught(|| find(clerk, caller, place));
    found
        .inspect_err(|error| {
            tracing::debug!(%error, path = %place.1.escape_ascii(), "a hint is of no use");
        })
        .ok()
}

/// What a path leads to, and the capability to read it. It is not opened: that would say that what is known of it is as of now.
fn find(
    clerk: &Clerk,
    caller: &Arc<Caller>,
    (directory, path, range): &Place,
) -> Result<(FileOf, ByteRange), ClerkError> {
    // Where a link with a slash leads is the reader's host's to say, and not known here.
    let entry = clerk.resolve_from(caller, (*directory, None), path, true)?;
    if entry.attributes.file_type != FileType::Regular {
        return Err(ClerkError::Manager(ManagerStatus::Invalid));
    }
    let slot = clerk.slot_for(caller, entry.handle, OpenMode::READ)?;
    let state = clerk.core().file(entry.handle);
    state.lock().hinted.note(Version::of(&entry.attributes));
    let whole = ByteRange::new(0, entry.attributes.size);
    let range = range.map_or(whole, |range| range.intersection(&whole));
    Ok((FileOf(Arc::new(HintedFile { state, slot })), range))
}

/// Which piece of the file each part of a batch is for, if not others' that overlap it. Whoever holds the stream may lock a file, and
/// not the other way round.
pub(super) fn begin(batch: &Batch<FileOf>) -> Vec<Option<Begun>> {
    let (mut inner, now) = (batch.file.0.state.lock(), Instant::now());
    batch.ranges.iter().map(|range| inner.hinted.begin(*range, now)).collect()
}

/// Fetches what is wanted of a file, and nobody has asked for meanwhile; whether there was any.
fn fetch(core: &Arc<Core>, Fetch { batch, mut wanted }: Fetch) -> bool {
    let file = &batch.file.0.state;
    let mut inner = file.lock();
    wanted.retain(|(range, id)| inner.hinted.ask(range.offset, *id));
    let (answers, asked) = (inner.answers(), Instant::now());
    drop(inner);
    if wanted.is_empty() {
        return false;
    }
    let pieces: Vec<ByteRange> = wanted.iter().map(|(range, _)| *range).collect();
    // Readers wait for what is on its way, whatever becomes of it.
    let read = caught(|| {
        core.with_grant(&batch.file.0.slot, |grant| core.objects.read_pieces(grant, &pieces))
    });
    let mut inner = file.lock();
    let (outcome, bytes) = match read {
        Ok(read) => read,
        Err(error) => {
            // Whoever reads asks the drive and is told.
            tracing::debug!(%error, handle = ?file.handle, "what was hinted can't be fetched");
            (NOTHING, Vec::new())
        }
    };
    let parts = divided(bytes, &wanted, outcome.length);
    for ((range, id), part) in wanted.into_iter().zip(parts) {
        inner.hinted.finish((range.offset, id), part, asked);
    }
    if outcome.length > 0 {
        inner.note_size(outcome.logical_size, answers);
    }
    drop(inner);
    file.notify();
    true
}

/// The bytes of each piece that have come; those behind the end of the file have not.
fn divided(bytes: Vec<u8>, wanted: &[Wanted], filled: usize) -> Vec<Option<Part>> {
    let mut at = 0;
    let mut next = |(range, _): &Wanted| {
        let length = filled.saturating_sub(at).min(range.length as usize);
        at += length;
        at - length..at
    };
    if let [one] = wanted {
        let place = next(one);
        return vec![(!place.is_empty()).then(|| Part::new(Arc::new(bytes), 0, place.len()))];
    }
    // Each by itself: one that is not read would keep the memory of all.
    let part =
        |place: Range<usize>| Part::new(Arc::new(bytes[place.clone()].to_vec()), 0, place.len());
    let places = wanted.iter().map(next);
    places.map(|place| (!place.is_empty()).then(|| part(place))).collect()
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
        spare: Arc::default(),
    };
    core.with_grant(&hints.file.0.slot, |grant| core.objects.extend(grant, &hints.ranges, &call))
}

/// Tells the drives that have some bytes that these will be read, or only how far the stream is.
fn tell(core: &Arc<Core>, stream: &HintStream, told: Told) {
    let notice = Notice {
        stream: stream.id,
        ordinal: told.ordinal,
        passed: told.news.passed,
        skipped: (told.news.skipped, told.news.ended),
        is_hint: told.is_hint,
        is_over: false,
    };
    let answer = match stream.is_over() {
        false => caught(|| extend(core, &told.hints, &notice)),
        true => Ok(Vec::new()),
    };
    let answer = match answer {
        Ok(parts) => Answer::Heard {
            by: parts.iter().map(|part| part.drive).collect(),
            is_taken: parts.iter().all(has_taken_all),
        },
        Err(ClerkError::Drive(Status::NoSuchExtension)) => Answer::Deaf,
        Err(error) => {
            tracing::debug!(%error, "it is not known who has heard a hint");
            Answer::Lost
        }
    };
    let rest = stream.was_told(told, &answer);
    rest.iter().for_each(|hints| tell_over(core, stream.id, hints));
}

/// Whether a drive has taken all pieces that it was told. One whose answer says nothing is not told again.
fn has_taken_all(part: &ExtendedPart) -> bool {
    let taken = notice::decode_taken(&part.data);
    taken.map_or(true, |taken| taken as usize >= part.pieces.len())
}

/// Has all drives told that were told anything that nothing more will be read. Others wait for their answers: the stream counts as one
/// until this thread ends.
fn tell_the_end(core: &Arc<Core>, stream: &HintStream) {
    for hints in stream.take_told() {
        let (core, number) = (Arc::clone(core), stream.id);
        let lane = Arc::clone(&hints.file.0.state.lane);
        lane.tellers.submit(move || tell_over(&core, number, &hints));
    }
}

/// Tells the drives that have some bytes that nothing more will be read of a stream.
fn tell_over(core: &Arc<Core>, stream: u64, hints: &Batch<FileOf>) {
    let notice = Notice { stream, is_over: true, ..Notice::default() };
    if let Err(error) = caught(|| extend(core, hints, &notice)) {
        // They find out by themselves when nothing is heard of it for long.
        tracing::debug!(%error, "the end of hints was not told");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_read_keeps_no_memory_but_its_own() {
        let wanted = |lengths: &[u64]| -> Vec<Wanted> {
            lengths.iter().map(|length| (ByteRange::new(0, *length), 0)).collect()
        };
        let bytes: Vec<u8> = (0..100).collect();
        let parts = divided(bytes.clone(), &wanted(&[60, 20, 20, 5]), 70);
        let kept: Vec<_> = parts.iter().flatten().map(|part| (part.kept(), part.data())).collect();
        assert_eq!(kept, [(60, &bytes[..60]), (10, &bytes[60..70])]);
        assert!(parts[2..].iter().all(Option::is_none));
        // One alone is not copied.
        let place = bytes.as_ptr();
        let one = divided(bytes, &wanted(&[100]), 100);
        assert!(matches!(&one[..], [Some(part)] if part.data().as_ptr() == place));
    }
}
