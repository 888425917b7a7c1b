//! Extensions of drives on ranges of several files at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nasd_client::interrupt;
use nasd_types::{ByteRange, Rights};

use super::{cell, eventually, new_file, pattern, settings};
use crate::extending::{ExtendedPart, ExtensionCall, new_job};
use crate::wire::{ExtensionOutcome, Interruptible, Interrupts, Status};
use crate::{Clerk, ClerkError, OpenFile};

const FILES: usize = 10;

fn call() -> ExtensionCall {
    let (arguments, job) = (b"what".to_vec(), new_job());
    ExtensionCall {
        extension: (77, 1),
        rights: Rights::READ,
        most: 10,
        arguments,
        job,
        bytes_left: 0,
        spare: Arc::default(),
    }
}

fn told(ranges: &[ByteRange]) -> Vec<ExtendedPart> {
    let (pieces, position) = (ranges.to_vec(), ranges[0].end());
    let (drive, outcome) = (nasd_types::DriveId(1), ExtensionOutcome::Done);
    vec![ExtendedPart { drive, pieces, outcome, position, data: b"told".to_vec() }]
}

fn files(clerk: &Clerk) -> Vec<OpenFile> {
    let file = |number| {
        let (file, _) = new_file(clerk, &format!("file {number}"));
        file.write(0, &pattern(0, 1000)).unwrap();
        file.sync().unwrap();
        file
    };
    (0..FILES).map(file).collect()
}

#[test]
fn drives_of_several_files_work_side_by_side_and_their_answers_are_told_apart() {
    let cell = cell(2);
    let clerk = cell.clerk(settings());
    let files = files(&clerk);
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&begun);
    cell.set_extends(Arc::new(move |ranges, call| {
        assert_eq!((ranges.len(), &call.arguments[..]), (1, &b"what"[..]));
        counted.fetch_add(1, Ordering::SeqCst);
        eventually("eight are at work", || counted.load(Ordering::SeqCst) >= 8);
        match ranges[0].offset {
            3 => Err(ClerkError::Drive(Status::NoSuchExtension)),
            4 => panic!("as planned by this test"),
            _ => Ok(told(ranges)),
        }
    }));
    let range = |at: usize| ByteRange::new(at as u64, if at == 9 { 0 } else { 100 });
    let mut ranges: Vec<_> = files.iter().enumerate().map(|(at, file)| (file, range(at))).collect();
    // Another one of a file that was there already.
    ranges.push((&files[0], ByteRange::new(500, 100)));
    let answers = Clerk::extend(&ranges, &call());
    assert_eq!(answers.len(), ranges.len());
    for (at, (answer, (_, range))) in answers.into_iter().zip(&ranges).enumerate() {
        match at {
            3 => assert_eq!(answer, Err(ClerkError::Drive(Status::NoSuchExtension))),
            4 => assert!(matches!(answer, Err(ClerkError::Protocol(_))), "{answer:?}"),
            9 => assert_eq!(answer, Ok(Vec::new()), "of nothing nobody is asked"),
            _ => assert_eq!(answer, Ok(told(&[*range]))),
        }
    }
    assert_eq!(begun.load(Ordering::SeqCst), FILES);
    assert!(Clerk::extend(&[], &call()).is_empty());
}

struct Interrupted;

impl Interrupts for Interrupted {
    fn wait(&self, _: u64, _: Duration) -> bool {
        true
    }
}

#[test]
fn whoever_interrupts_the_caller_ends_the_waits_for_all_files() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let files = files(&clerk);
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&begun);
    cell.set_extends(Arc::new(move |ranges, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        // By the caller's thread and others.
        eventually("eight are at work", || counted.load(Ordering::SeqCst) >= 8);
        interrupt::check().map_err(|_| ClerkError::Interrupted)?;
        Ok(told(ranges))
    }));
    let ranges: Vec<_> = files.iter().map(|file| (file, ByteRange::new(0, 100))).collect();
    let interrupted = Interruptible::new(7, Arc::new(Interrupted));
    let answers = interrupted.run(|| Clerk::extend(&ranges, &call()));
    assert_eq!(answers, vec![Err(ClerkError::Interrupted); FILES]);
    let answers = Clerk::extend(&ranges, &call());
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}
