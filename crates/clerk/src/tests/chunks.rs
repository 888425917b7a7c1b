//! Files in chunks: what drives are asked, and when that is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use nasd_protocol::cancelling;
use nasd_types::ByteRange;

use super::{cell, eventually, new_file, pattern, settings};
use crate::chunks::{Chunk, Chunks, Here, Job, Sizes, at_a_time};
use crate::extending::{ExtendedPart, ExtensionCall};
use crate::wire::{ExtensionOutcome, Status};
use crate::{Clerk, ClerkError, OpenFile};

const CHUNK: u64 = 1000;
const CHUNKS: u64 = 100;
const SIZES: Sizes = Sizes { first: CHUNK, most: CHUNK, here: CHUNK };

/// Does nothing with a file. Where its results are `PARTIAL`, they do not show what drives would tell.
struct Nothing<const PARTIAL: bool>;

impl<const PARTIAL: bool> Job for Nothing<PARTIAL> {
    type Found = ();

    const EXTENSION: (u32, u32) = (77, 1);

    fn arguments(&self) -> Vec<u8> {
        Vec::new()
    }

    fn most(&self) -> usize {
        10
    }

    fn is_whole(&self, _: &[ExtendedPart], _: ByteRange) -> bool {
        true
    }

    fn bytes((): &()) -> Option<u64> {
        (!PARTIAL).then_some(0)
    }

    fn find(&self, _: &Here<'_>, _: &mut Vec<u8>) -> Result<(), ClerkError> {
        Ok(())
    }
}

fn file(clerk: &Clerk) -> Arc<OpenFile> {
    let (file, _) = new_file(clerk, "file");
    file.write(0, &pattern(0, (CHUNKS * CHUNK) as usize)).unwrap();
    file.sync().unwrap();
    Arc::new(file)
}

/// What a drive tells that has looked at all of it, and takes no wishes.
fn told(ranges: &[ByteRange], call: &ExtensionCall) -> Vec<ExtendedPart> {
    let outcome = match call.arguments.is_empty() {
        true => ExtensionOutcome::Done,
        false => ExtensionOutcome::Refused,
    };
    let (pieces, position) = (ranges.to_vec(), ranges[0].end());
    vec![ExtendedPart { drive: nasd_types::DriveId(1), pieces, outcome, position, data: vec![] }]
}

/// How many chunks drives told, and how many were found here.
fn all<const PARTIAL: bool>(mut chunks: Chunks<Nothing<PARTIAL>>) -> (usize, usize) {
    let (mut told, mut found) = (0, 0);
    while let Some(chunk) = chunks.next() {
        match chunk.unwrap() {
            Chunk::Told(..) => told += 1,
            Chunk::Found(()) => found += 1,
        }
    }
    (told, found)
}

#[test]
fn what_is_dropped_is_given_up_at_the_drives_and_nothing_more_is_asked() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let file = file(&clerk);
    let (calls, job) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let is_given_up = Arc::new(AtomicBool::new(false));
    let (counted, of_job, given_up) = (calls.clone(), job.clone(), is_given_up.clone());
    cell.set_extends(Arc::new(move |ranges, call| {
        if call.extension == (cancelling::NUMBER, cancelling::REVISION) {
            assert_eq!(cancelling::decode(&call.arguments), Ok(77));
            assert_eq!(call.job, of_job.load(Ordering::SeqCst));
            assert_eq!(ranges, [ByteRange::new(0, at_a_time() * CHUNK)]);
            given_up.store(true, Ordering::SeqCst);
            return Ok(told(ranges, &ExtensionCall { arguments: Vec::new(), ..call.clone() }));
        }
        of_job.store(call.job, Ordering::SeqCst);
        counted.fetch_add(1, Ordering::SeqCst);
        eventually("it is given up", || given_up.load(Ordering::SeqCst));
        let stopped = |part| ExtendedPart { outcome: ExtensionOutcome::Stopped, ..part };
        Ok(told(ranges, call).into_iter().map(stopped).collect())
    }));
    let chunks = Chunks::start((file, CHUNKS * CHUNK), Nothing::<false>, SIZES, false).unwrap();
    eventually("all threads ask", || calls.load(Ordering::SeqCst) as u64 == at_a_time());
    drop(chunks);
    assert!(is_given_up.load(Ordering::SeqCst));
    assert_eq!(calls.load(Ordering::SeqCst) as u64, at_a_time());
}

#[test]
fn drives_that_did_not_answer_once_are_asked_again() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let file = file(&clerk);
    let has_failed = AtomicBool::new(false);
    cell.set_extends(Arc::new(move |ranges, call| {
        if !has_failed.swap(true, Ordering::SeqCst) {
            return Err(ClerkError::Protocol("a call that took too long".to_owned()));
        }
        Ok(told(ranges, call))
    }));
    let (told, found) =
        all(Chunks::start((file, CHUNKS * CHUNK), Nothing::<false>, SIZES, false).unwrap());
    assert_eq!((told, found), (CHUNKS as usize - 5, 5));
}

#[test]
fn drives_that_tell_more_than_they_look_at_are_asked_less_and_less() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let file = file(&clerk);
    cell.set_extends(Arc::new(move |ranges, call| {
        let mut told = told(ranges, call);
        told[0].data = vec![1; 2 * CHUNK as usize];
        Ok(told)
    }));
    let whole = (file, CHUNKS * CHUNK);
    let (told, found) = all(Chunks::start(whole.clone(), Nothing::<true>, SIZES, false).unwrap());
    // As many as are under way at a time, and one each behind twice 4, 8 and 16 that are done here, as they tell twice as much.
    let turns = 3 + at_a_time() as usize;
    assert!((4..=turns).contains(&told) && told + found == CHUNKS as usize, "{told}, {found}");
    // What is found here shows that they would tell nothing.
    let (told, _) = all(Chunks::start(whole, Nothing::<false>, SIZES, false).unwrap());
    assert!(told > turns, "{told}");
}

#[test]
fn drives_that_have_no_such_extension_are_not_asked_again() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let file = file(&clerk);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    cell.set_extends(Arc::new(move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        Err(ClerkError::Drive(Status::NoSuchExtension))
    }));
    let (told, found) =
        all(Chunks::start((file, CHUNKS * CHUNK), Nothing::<false>, SIZES, false).unwrap());
    assert_eq!((told, found), (0, CHUNKS as usize));
    assert!((1..=at_a_time()).contains(&(calls.load(Ordering::SeqCst) as u64)));
}

#[test]
fn what_a_file_has_grown_by_is_not_looked_at() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let chunks =
        Chunks::start((file(&clerk), 3 * CHUNK + 1), Nothing::<false>, SIZES, true).unwrap();
    assert_eq!(all(chunks), (0, 4));
}
