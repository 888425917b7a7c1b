//! Parts of a directory that are asked for side by side.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::sessions::GivesUp;
use super::{cell, eventually, new_file, root, settings};
use crate::core::LISTER_THREADS;
use crate::fake::FakeCell;
use crate::listing::Part;
use crate::wire::DirectoryEntry;
use crate::{Clerk, Interruptible};

/// Entries of one answer of the fake manager.
const PAGE: usize = 16;

/// A cell with so many files, and a clerk that knows nothing of them, but for their names.
fn listed(files: usize) -> (Arc<FakeCell>, Clerk, Vec<DirectoryEntry>) {
    let cell = cell(2);
    let maker = cell.clerk(settings());
    for number in 0..files {
        drop(new_file(&maker, &format!("f{number}")));
    }
    let clerk = cell.clerk(settings());
    let page = clerk.readdir(&root(), clerk.root(), 0, 10_000).unwrap();
    assert_eq!((page.entries.len(), page.end), (files, true));
    (cell, clerk, page.entries)
}

fn known(clerk: &Clerk, entries: &[DirectoryEntry]) -> Vec<bool> {
    let ttl = Duration::from_secs(60);
    let is_known =
        |entry: &DirectoryEntry| clerk.core.attributes.fresh(entry.handle, ttl).is_some();
    entries.iter().map(is_known).collect()
}

fn part(entries: &[DirectoryEntry], from: usize, until: usize) -> Part {
    let after = from.checked_sub(1).map_or(0, |before| entries[before].cookie);
    Part { after, until: entries[until - 1].cookie }
}

#[test]
fn all_files_of_all_parts_are_known_and_no_others() {
    let (cell, clerk, entries) = listed(20 * PAGE);
    let parts = vec![
        part(&entries, 0, 3 * PAGE),
        part(&entries, 3 * PAGE, 6 * PAGE),
        part(&entries, 9 * PAGE, 10 * PAGE),
    ];
    let before = cell.manager_requests.load(Ordering::Relaxed);
    assert!(clerk.list_parts(&root(), clerk.root(), parts));
    let is_told = |at: usize| at < 6 * PAGE || (9 * PAGE..10 * PAGE).contains(&at);
    let told: Vec<bool> = (0..entries.len()).map(is_told).collect();
    assert_eq!(known(&clerk, &entries), told);
    // The fake manager counts a page, and each name in it.
    let asked = cell.manager_requests.load(Ordering::Relaxed) - before;
    assert_eq!(asked, 7 * (1 + PAGE as u64));
}

#[test]
fn lookups_go_on_where_a_list_has_ended() {
    let (_cell, clerk, entries) = listed(20 * PAGE);
    // As if the manager, which the fake one does not, had granted a lease.
    let names = &clerk.core.known;
    names.good_until(Instant::now() + Duration::from_secs(60));
    let number = names.wants_lease(clerk.root(), true).unwrap();
    names.leased(clerk.root(), number, true);
    clerk.readdir(&root(), clerk.root(), 0, 10_000).unwrap();
    let told = clerk.listed_files(&root(), clerk.root(), 0, &entries[..3 * PAGE]);
    assert!(told.iter().all(Option::is_some));
    let wants = || names.wants_list(clerk.root(), false);
    let asked_for = || [wants(), wants()].into_iter().flatten().next();
    assert_eq!(asked_for(), Some(entries[3 * PAGE - 1].cookie));
    names.listed(clerk.root(), Some(entries[9 * PAGE - 1].cookie));
    clerk.listed_files(
        &root(),
        clerk.root(),
        entries[3 * PAGE - 1].cookie,
        &entries[3 * PAGE..4 * PAGE],
    );
    assert_eq!(asked_for(), Some(entries[9 * PAGE - 1].cookie), "pages have come further");
}

#[test]
fn whoever_is_interrupted_does_not_wait_for_a_manager_that_is_away() {
    let (cell, clerk, entries) = listed(8 * PAGE);
    let parts = (0..8).map(|number| part(&entries, number * PAGE, (number + 1) * PAGE)).collect();
    cell.set_manager_runs(false);
    let gives_up = Arc::new(GivesUp::default());
    let request = Interruptible::new(1, Arc::clone(&gives_up) as _);
    let began = Instant::now();
    thread::scope(|scope| {
        let list = || request.run(|| clerk.list_parts(&root(), clerk.root(), parts));
        let lister = scope.spawn(list);
        eventually("all that is asked for at once waits", || {
            cell.manager_waiters.load(Ordering::Relaxed) == 1 + LISTER_THREADS
        });
        assert!(!lister.is_finished());
        gives_up.0.store(true, Ordering::Relaxed);
        lister.join().unwrap();
    });
    assert!(began.elapsed() < Duration::from_secs(5), "it waits for {:?}", settings().deadline);
    cell.set_manager_runs(true);
    let asked_for = (1 + LISTER_THREADS) * PAGE;
    // What was asked for goes on, but for the part that he asked for himself; no more is.
    eventually("what was asked for is told", || {
        known(&clerk, &entries[PAGE..asked_for]).into_iter().all(|is_known| is_known)
    });
    thread::sleep(Duration::from_millis(100));
    assert!(known(&clerk, &entries[asked_for..]).into_iter().all(|is_known| !is_known));
}
