//! Random operations, and the manager dies at every single call to a drive: what was answered is there
//! afterwards, what was committed is there after a power cut of all drives, in the order in which it was
//! done, and a client that asks again gets each request done once.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod support;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nasd_manager::namespace::Look;
use nasd_manager::objects::memory::MemoryDrives;
use nasd_manager::objects::{ObjectError, ObjectStore, Wait};
use nasd_manager::{Caller, Namespace, NamespaceOptions};
use nasd_protocol::manager::{FileHandle, ManagerStatus, Request, SetFileAttributes};
use nasd_types::{DriveId, Personality, SetAttributes, Timestamp};

use support::checker::check;
use support::faulty::{FaultyDrives, Stop};
use support::operation::Op;
use support::reference::Reference;
use support::watched::{WatchedDrives, What};
use support::{Random, open, options, root};

const OPERATIONS: usize = 30;

/// One thing that happens.
enum Event {
    Ask(Op),
    Commit,
    KeepHouse,
    Restart(DriveId, u64),
}

fn path(random: &mut Random) -> String {
    let depth = 1 + random.below(3);
    (0..depth).map(|_| format!("/{}", random.pick(&["a", "b", "c"]))).collect()
}

fn workload(seed: u64) -> Vec<Event> {
    let mut random = Random(seed);
    let event = |random: &mut Random| match random.below(12) {
        0 => Event::Commit,
        1 => Event::KeepHouse,
        2 => Event::Restart(DriveId(1 + random.below(3) as u64), random.below(1000) as u64),
        _ => Event::Ask(Op::random(random, path)),
    };
    (0..OPERATIONS).map(|_| event(&mut random)).collect()
}

/// How far a workload has come.
#[derive(Default)]
struct Progress {
    /// States after each request, by the reference.
    states: Vec<Reference>,
    answered: usize,
    committed: usize,
    /// The home drive has started anew since something was committed.
    restarted: bool,
    /// The request that was not answered, by its number, and what should have been the answer.
    left: Option<(usize, Result<(), ManagerStatus>)>,
}

fn client(number: usize) -> Caller {
    root().asking(Request { client: 77, number: number as u64 + 1, oldest: number as u64 + 1 })
}

fn run(
    namespace: &Namespace,
    drives: &MemoryDrives,
    events: &[Event],
    dead: &dyn Fn() -> bool,
) -> Progress {
    let mut progress = Progress { states: vec![Reference::new()], ..Progress::default() };
    for (number, event) in events.iter().enumerate() {
        match event {
            Event::Ask(operation) => {
                let mut next = progress.states.last().unwrap().clone();
                let expected = next.run(operation);
                let answer = operation.run_by(namespace, &client(number));
                progress.states.push(next);
                if dead() && answer != expected {
                    progress.left = Some((number, expected));
                    return progress;
                }
                assert_eq!(answer, expected, "{operation:?}");
                progress.answered += 1;
            }
            Event::Commit if namespace.commit().is_ok() => {
                progress.committed = progress.answered;
                progress.restarted = false;
            }
            Event::KeepHouse => drop(namespace.keep_house()),
            Event::Restart(drive, seed) if !dead() => {
                drives.restart(*drive, *seed);
                progress.restarted = true;
            }
            Event::Commit | Event::Restart(..) => {}
        }
    }
    progress
}

/// After the death of a manager: the next one has the tree as it was after some request, no object
/// too many, and goes on.
fn recovered(
    drives: &Arc<MemoryDrives>,
    progress: &Progress,
    power_cut: bool,
    what: &str,
) -> Namespace {
    let namespace = open(drives.clone());
    assert_eq!(namespace.keep_house(), Default::default(), "{what}");
    let report = check(drives);
    assert!(report.problems.is_empty(), "{what}: {:#?}", report.problems);
    assert_eq!(report.orphans, 0, "{what}");
    let ahead: HashSet<FileHandle> = report.ahead.iter().copied().collect();
    assert_eq!(ahead, namespace.made_ahead().into_iter().collect(), "{what}");
    let is_safe = !power_cut && !progress.restarted;
    let least = if is_safe { progress.answered } else { progress.committed };
    let found = progress.states[least..].iter().any(|state| state.is(&report.tree));
    assert!(found, "{what}: {} answered, {:?}", progress.answered, report.tree.keys());
    namespace
}

fn one_death(seed: u64, stop_at: usize, stop: Stop, power_cut: bool) -> bool {
    let what = format!("seed {seed}, call {stop_at}, {stop:?}, power cut {power_cut}");
    let events = workload(seed);
    let drives = Arc::new(MemoryDrives::new(3));
    drop(open(drives.clone()));
    let store = Arc::new(FaultyDrives::new(drives.clone(), stop_at, stop));
    let Ok(namespace) = Namespace::open(store.clone(), options(&drives.drives())) else {
        open(drives.clone());
        return true;
    };
    let progress = run(&namespace, &drives, &events, &|| store.dead());
    drop(namespace);
    if power_cut {
        drives.power_cut_of_some(seed + stop_at as u64);
    }
    let next = recovered(&drives, &progress, power_cut, &what);
    if let (Some((number, expected)), false) = (&progress.left, power_cut || progress.restarted)
        && let Event::Ask(operation) = &events[*number]
    {
        // The client asks again, and again: as if it had been answered at once.
        for _ in 0..2 {
            assert_eq!(
                operation.run_by(&next, &client(*number)),
                *expected,
                "{what}: {operation:?}"
            );
            next.keep_house();
            let tree = check(&drives).tree;
            assert!(progress.states.last().unwrap().is(&tree), "{what}: {operation:?}");
            if expected.is_err() {
                break;
            }
        }
    }
    store.dead()
}

#[test]
fn a_death_at_every_call() {
    let mut cases = 0;
    for seed in 1..=40 {
        let mut stop_at = 0;
        loop {
            let kinds = [Stop::Before, Stop::After, Stop::AfterInMemory, Stop::Half];
            let stop = kinds[(seed as usize + stop_at) % kinds.len()];
            let has_died = one_death(seed, stop_at, stop, stop_at % 3 == 0);
            cases += 1;
            stop_at += 1;
            if !has_died {
                break;
            }
        }
    }
    assert!(cases > 1000, "only {cases}");
}

/// A drive that starts anew under a living manager loses nothing.
#[test]
fn restarts_lose_nothing() {
    for seed in 100..160 {
        let drives = Arc::new(MemoryDrives::new(3));
        let namespace = open(drives.clone());
        let progress = run(&namespace, &drives, &workload(seed), &|| false);
        assert_eq!(namespace.keep_house(), Default::default());
        let report = check(&drives);
        assert!(report.problems.is_empty(), "seed {seed}: {:#?}", report.problems);
        assert_eq!(report.orphans, 0, "seed {seed}");
        assert!(progress.states.last().unwrap().is(&report.tree), "seed {seed}");
    }
}

/// What a manager has put to a drive, not durably, when it dies before that is in the journal, is newer
/// than the journal for the next one. It must be durable before the journal is let go of.
#[test]
fn a_record_that_is_preferred_to_the_journals_is_durable() {
    let drives = Arc::new(MemoryDrives::new(1));
    let (is_ill, is_dead) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (falls_ill, dies) = (Arc::clone(&is_ill), Arc::clone(&is_dead));
    let store = WatchedDrives::new(drives.clone(), move |seen| {
        if dies.load(Ordering::SeqCst) {
            let reason = "dead".to_owned();
            return Err(ObjectError::Unavailable { reason, maybe_done: true });
        }
        // The call that sets the time is done, and none after it.
        let is_last = seen.what == What::Setattr && falls_ill.load(Ordering::SeqCst);
        dies.store(is_last, Ordering::SeqCst);
        Ok(())
    });
    let first = open(Arc::new(store));
    let file = first.create(&root(), first.root(), b"f", 0o600, true).unwrap().handle;
    let wider = SetFileAttributes { mode: Some(0o666), ..SetFileAttributes::default() };
    first.setattr(&root(), file, &wider).unwrap();
    first.commit().unwrap();
    let dated =
        SetFileAttributes { modify_time: Some(Timestamp(5)), ..SetFileAttributes::default() };
    is_ill.store(true, Ordering::SeqCst);
    first.setattr(&root(), file, &dated).unwrap_err();
    assert!(is_dead.load(Ordering::SeqCst));
    drop(first);
    let next = open(drives.clone());
    next.keep_house();
    drop(next);
    drives.power_cut();
    let last = open(drives.clone());
    let found = last.getattr(&root(), file).unwrap().attributes;
    assert_eq!((found.mode, found.modify_time), (0o666, Timestamp(5)));
}

#[test]
fn what_is_counted_for_a_quota_does_not_change_with_a_power_cut() {
    let drives = Arc::new(MemoryDrives::new(1));
    let afs = |quota, drives: &MemoryDrives| NamespaceOptions {
        personality: Personality::Afs,
        quota,
        ..options(&drives.drives())
    };
    let before = Namespace::open(drives.clone(), afs(None, &drives)).unwrap();
    let file = before.create(&root(), before.root(), b"file", 0o644, true).unwrap().handle;
    before.keep_house();
    let (first, _) = before.object_version(file).unwrap();
    let version = first.next_multiple_of(2);
    drives.write(file, 0, &[7; 100], false, Wait::Patient).unwrap();
    before.advance(file, version + 2, true).unwrap();
    // It is cut and stored by somebody who does not see to it that that is durable; without a quota nobody else does.
    let cut = SetAttributes { logical_size: Some(0), ..SetAttributes::default() };
    drives.setattr(file, &cut, false, Wait::Patient).unwrap();
    before.advance(file, version + 4, false).unwrap();
    // By a quota that begins now, or by a manager that starts: its first look at a file comes after it has counted.
    let snapshot = drives.snapshot();
    before.set_quota(Some(1000));
    before.count_files();
    assert_eq!(before.accounted(), Some((0, 0)));
    drives.power_cut();
    assert_eq!(before.object_version(file), Ok((version + 4, 0)));
    drop(before);
    let drives = Arc::new(MemoryDrives::from_snapshot(&snapshot));
    let after = Namespace::open(drives.clone(), afs(Some(1000), &drives)).unwrap();
    after.count_files();
    assert_eq!(after.accounted(), Some((0, 0)));
    drives.power_cut();
    assert_eq!(after.object_version(file), Ok((version + 4, 0)));
}

#[test]
fn versions_that_a_new_manager_tells_stay_with_what_was_written_before_them() {
    let drives = Arc::new(MemoryDrives::new(1));
    let open = || {
        let options =
            NamespaceOptions { personality: Personality::Afs, ..options(&drives.drives()) };
        Namespace::open(drives.clone(), options).unwrap()
    };
    let before = open();
    let file = before.create(&root(), before.root(), b"file", 0o644, true).unwrap().handle;
    before.keep_house();
    let (version, _) = before.object_version(file).unwrap();
    before.advance(file, version + 1, true).unwrap();
    // Who has written that has not returned it, and the manager ends the store; it dies before the drive has made that durable.
    drives.write(file, 0, b"half a store", false, Wait::Patient).unwrap();
    before.advance(file, version + 2, false).unwrap();
    drop(before);
    let after = open();
    let told = after.object_version(file);
    assert_eq!(told, Ok((version + 2, 12)));
    // Somebody reads, and keeps it under that version.
    drives.power_cut();
    assert_eq!(after.object_version(file), told);
    assert_eq!(drives.read(file, 0, 100, Wait::Patient).unwrap(), b"half a store");
}

/// An attempt of a request that comes behind another one of the same request, which was answered.
#[test]
fn what_was_answered_is_not_executed_later() {
    let drives = Arc::new(MemoryDrives::new(1));
    let namespace = open(drives);
    let root_of = namespace.root();
    let asking = |number, oldest| root().asking(Request { client: 9, number, oldest });
    let remove = |caller: &Caller| namespace.unlink(caller, root_of, b"file");
    let make = |caller: &Caller| namespace.create(caller, root_of, b"file", 0o600, true);
    let removal = asking(1, 1);
    assert_eq!(remove(&removal), Err(ManagerStatus::NotFound));
    // Somebody else makes it.
    let file = make(&root()).unwrap().handle;
    assert_eq!(remove(&removal), Err(ManagerStatus::NotFound));
    assert_eq!(namespace.lookup(&root(), root_of, b"file").unwrap().handle, file);
    // Its answer is known to have come, which the journal need not keep.
    let another = asking(2, 2);
    assert_eq!(remove(&another), Ok(()));
    assert_eq!(remove(&another), Ok(()));
    let file = make(&asking(3, 3)).unwrap().handle;
    for late in [&removal, &another] {
        assert_eq!(remove(late), Err(ManagerStatus::Invalid));
    }
    assert_eq!(namespace.lookup(&root(), root_of, b"file").unwrap().handle, file);
    assert_eq!(make(&asking(4, 4)).unwrap_err(), ManagerStatus::Exists);
}

/// Names that were made while a drive was away are in the journal alone: who reads the directory's object when it is back lacks them.
#[test]
fn nobody_is_sent_to_a_directorys_object_that_lacks_names() {
    let drives = Arc::new(MemoryDrives::new(2));
    let afs = NamespaceOptions { personality: Personality::Afs, ..options(&drives.drives()) };
    let names = Namespace::open(drives.clone(), afs).unwrap();
    let home = names.root().drive;
    let directory = (0..8)
        .map(|number| {
            let name = format!("directory{number}");
            names.mkdir(&root(), names.root(), name.as_bytes(), 0o755).unwrap().handle
        })
        .find(|made| made.drive != home)
        .unwrap();
    names.keep_house();
    let (version, _) = names.object_version(directory).unwrap();
    let look = |contents| names.look_under(&root(), directory, version, contents);
    names.create(&root(), directory, b"file", 0o644, true).unwrap();
    assert!(matches!(look(false), Ok(Look::Now(_))));
    drives.set_away(directory.drive, true);
    assert!(matches!(look(false), Ok(Look::Now(_))), "what is known is told");
    assert!(matches!(look(true), Err(ManagerStatus::Unavailable)));
    drives.set_away(directory.drive, false);
    assert!(matches!(look(true), Ok(Look::Now(_))));
    let block = drives.read(directory, 0, 4096, Wait::Patient).unwrap();
    assert!(block.windows(4).any(|bytes| bytes == b"file"));
}
