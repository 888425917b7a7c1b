//! What is known of names: what they lead to, and which are not there.
//!
//! Where the session has a lease on a directory, what was told of it since is true until the manager says
//! otherwise, or the session is not heard of any more (`docs/decisions/0010-sessions-and-leases.md`).
//! Without a lease names are only good for whoever takes them as old as they are: whole paths are resolved
//! so. Everything known of a directory was told to one of the callers who may search it.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::callbacks::Appetite;
use crate::wire::{Caller, FileHandle, Name};

/// Names kept at most, of all directories.
const MAX_NAMES: usize = 1 << 16;

/// Names kept at most, of all directories, of which no more is known than that they are there: about six bytes
/// each in memory, where what they lead to takes a hundred.
const MAX_MORE: usize = 1_800_000;

/// A directory with so many names is worth remembering which they are, when what they lead to is forgotten:
/// another one is quickly listed again.
const MANY_NAMES: usize = 4096;

/// Directories kept at most.
const MAX_DIRECTORIES: usize = 1 << 14;

/// Callers that a directory's names are kept for at most.
const MAX_SEARCHERS: usize = 64;

/// Looked into so often, a directory is worth the question for a lease.
const WORTH_A_LEASE: u32 = 2;

/// Attributes of a directory's files that must have been missing before the next page of all of them is worth its
/// price; or that must have been of use since the last.
const WORTH_LISTING: u32 = 2;
const OF_USE: u32 = 16;

/// How long a directory that others change is not asked about again.
const REFUSED_FOR: Duration = Duration::from_secs(1);

/// By what a name is believed: the lease that its directory had when it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Belief {
    directory: FileHandle,
    lease: u64,
}

/// What was known of a directory when somebody began to ask about it, so that an answer which has been
/// overtaken is not kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    directory: FileHandle,
    lease: Option<u64>,
    changes: u64,
}

impl Asking {
    /// About which.
    pub(crate) const fn directory(&self) -> FileHandle {
        self.directory
    }

    /// By what the answer may be believed.
    pub(crate) fn belief(&self) -> Option<Belief> {
        self.lease.map(|lease| Belief { directory: self.directory, lease })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Lease {
    #[default]
    None,
    /// Somebody is asking for one, by that number.
    Asked(u64),
    /// Others change the directory: not before then.
    Refused(Instant),
    Held(u64),
}

#[derive(Debug, Default)]
struct Directory {
    lease: Lease,
    /// How often it was looked into while there was no lease.
    lookups: u32,
    /// Changes by this clerk that have begun or ended.
    changes: u64,
    /// Who was told something of it, and when last: he may search it.
    searchers: Vec<(Arc<Caller>, Instant)>,
    /// What names lead to, and since when that is known.
    names: HashMap<Name, (Option<FileHandle>, Instant)>,
    /// There are no other names, but those of which the [`mark`] is here. Those of names that were removed since
    /// stay.
    is_complete: bool,
    more: HashSet<u32>,
    listing: Listing,
    appetite: Appetite,
}

/// How much of a directory was listed with all there is to know of its files.
#[derive(Clone, Copy, Debug, Default)]
struct Listing {
    /// Where to go on.
    cookie: u64,
    /// Attributes that were known when they were asked for, and that were not, since the last page.
    hits: u32,
    misses: u32,
}

impl Directory {
    fn held(&self) -> Option<u64> {
        match self.lease {
            Lease::Held(lease) => Some(lease),
            _ => None,
        }
    }

    fn may_search(&self, caller: &Arc<Caller>, is_leased: bool, age: Duration) -> bool {
        let known = self.searchers.iter().find(|(known, _)| known == caller);
        known.is_some_and(|(_, since)| is_leased || since.elapsed() < age)
    }

    fn is_searched_by(&mut self, caller: &Arc<Caller>) {
        self.searchers.retain(|(known, _)| known != caller);
        if self.searchers.len() >= MAX_SEARCHERS {
            self.searchers.clear();
        }
        self.searchers.push((Arc::clone(caller), Instant::now()));
    }

    /// Whether there is no such name, though nothing is known of it.
    fn is_absent(&self, name: &Name, hasher: &RandomState) -> bool {
        self.is_complete && (self.more.is_empty() || !self.more.contains(&mark(name, hasher)))
    }

    /// Nothing is known any more of names that are not kept.
    fn forget_more(&mut self, kept: &mut Kept) {
        self.is_complete = false;
        kept.more -= std::mem::take(&mut self.more).len();
    }

    fn forget_names(&mut self, kept: &mut Kept) {
        self.forget_more(kept);
        kept.names -= std::mem::take(&mut self.names).len();
    }

    /// Forgets what names lead to; and which there are, if that is not worth its memory. Who makes very many
    /// files in a directory would else ask before each of them whether the name is free.
    fn forget_targets(&mut self, kept: &mut Kept, hasher: &RandomState) {
        let is_worth_it = self.is_complete && self.names.len() >= MANY_NAMES;
        if !is_worth_it || kept.more + self.names.len() > MAX_MORE {
            return self.forget_names(kept);
        }
        let names = std::mem::take(&mut self.names);
        kept.names -= names.len();
        let before = self.more.len();
        let there = names.iter().filter(|(_, (found, _))| found.is_some());
        self.more.extend(there.map(|(name, _)| mark(name, hasher)));
        kept.more += self.more.len() - before;
    }
}

/// What stands for a name in little room. That two have the same one costs no more than a question.
fn mark(name: &Name, hasher: &RandomState) -> u32 {
    hasher.hash_one(name) as u32
}

/// How much is kept of all directories together.
#[derive(Debug, Default)]
struct Kept {
    names: usize,
    more: usize,
}

#[derive(Debug, Default)]
struct State {
    directories: HashMap<FileHandle, Directory>,
    kept: Kept,
    /// Has a key of its own: names are chosen by anybody.
    hasher: RandomState,
    leases: u64,
}

/// The names that a clerk knows.
#[derive(Debug)]
pub(crate) struct KnownNames {
    started: Instant,
    /// Nanoseconds after the start until which leases hold.
    good_until: AtomicU64,
    state: Mutex<State>,
}

impl Default for KnownNames {
    fn default() -> Self {
        let (good_until, state) = (AtomicU64::new(0), Mutex::default());
        KnownNames { started: Instant::now(), good_until, state }
    }
}

impl KnownNames {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session, and all leases with it, is good until then.
    pub(crate) fn good_until(&self, until: Instant) {
        let since = until.saturating_duration_since(self.started).as_nanos();
        self.good_until.store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// How long leases hold from now on, if nothing is told.
    pub(crate) fn good_for(&self) -> Duration {
        let until = Duration::from_nanos(self.good_until.load(Ordering::Acquire));
        until.saturating_sub(self.started.elapsed())
    }

    /// Whether what was told then is so still: the lease of then holds, this clerk has changed nothing, and the caller may know it.
    pub(crate) fn is_as_asked(&self, asking: &Asking, caller: &Arc<Caller>) -> bool {
        let is_good = self.is_good();
        let state = self.lock();
        let known = state.directories.get(&asking.directory);
        known.is_some_and(|known| {
            is_good
                && asking.lease.is_some()
                && known.held() == asking.lease
                && known.changes == asking.changes
                && known.may_search(caller, true, Duration::ZERO)
        })
    }

    pub(crate) fn is_good(&self) -> bool {
        let since = self.started.elapsed().as_nanos();
        u128::from(self.good_until.load(Ordering::Acquire)) > since
    }

    /// Leases that are held.
    pub(crate) fn leases(&self) -> usize {
        let state = self.lock();
        state.directories.values().filter(|directory| directory.held().is_some()).count()
    }

    /// The session is over, or goes on with another manager: no lease holds any more.
    pub(crate) fn end_all(&self) {
        self.good_until.store(0, Ordering::Release);
        let mut state = self.lock();
        state.directories.clear();
        state.kept = Kept::default();
    }

    /// A lease has ended.
    pub(crate) fn end(&self, directory: FileHandle) {
        let mut state = self.lock();
        if let Some(mut gone) = state.directories.remove(&directory) {
            gone.forget_names(&mut state.kept);
        }
    }

    /// Whether an answer that was believed by this may be believed still.
    pub(crate) fn is_believed(&self, belief: &Belief) -> bool {
        self.is_good()
            && self
                .lock()
                .directories
                .get(&belief.directory)
                .is_some_and(|known| known.held() == Some(belief.lease))
    }

    /// What a name leads to, if the caller was told: while the directory is leased, or not longer ago than `age`.
    /// Inside, `None` stands for a name that is not there.
    pub(crate) fn find(
        &self,
        caller: &Arc<Caller>,
        directory: FileHandle,
        name: &Name,
        age: Duration,
    ) -> Option<(Option<FileHandle>, Option<Belief>)> {
        let is_good = self.is_good();
        let state = self.lock();
        let known = state.directories.get(&directory)?;
        let lease = known.held().filter(|_| is_good);
        if !known.may_search(caller, lease.is_some(), age) {
            return None;
        }
        let belief = lease.map(|lease| Belief { directory, lease });
        match known.names.get(name) {
            Some((found, _)) if lease.is_some() => Some((*found, belief)),
            Some((found, since)) => (since.elapsed() < age).then_some((*found, None)),
            None if lease.is_none() => None,
            None => known.is_absent(name, &state.hasher).then_some((None, belief)),
        }
    }

    /// Whether to ask for a lease before a directory is looked into now: a number, by which
    /// [`KnownNames::leased`] is to be told what the manager has answered. Who lists it for the sake of its files
    /// looks into it often.
    pub(crate) fn wants_lease(&self, directory: FileHandle, is_listed: bool) -> Option<u64> {
        if !self.is_good() {
            return None;
        }
        let mut state = self.lock();
        state.make_room();
        state.leases += 1;
        let number = state.leases;
        let known = state.directories.entry(directory).or_default();
        let is_worth_it = match known.lease {
            Lease::None => true,
            Lease::Refused(until) => until <= Instant::now(),
            Lease::Asked(_) | Lease::Held(_) => false,
        };
        let looks = if is_listed { WORTH_A_LEASE } else { 1 };
        known.lookups = known.lookups.saturating_add(looks);
        if is_worth_it && known.lookups >= WORTH_A_LEASE {
            known.lease = Lease::Asked(number);
            return Some(number);
        }
        None
    }

    /// This clerk has just made the directory: it is empty, and worth a lease at once.
    pub(crate) fn made(&self, caller: &Arc<Caller>, directory: FileHandle) {
        let mut state = self.lock();
        state.make_room();
        let known = state.directories.entry(directory).or_default();
        known.lookups = WORTH_A_LEASE;
        known.is_searched_by(caller);
    }

    /// The manager has answered. A lease that has ended before its answer came is none.
    pub(crate) fn leased(&self, directory: FileHandle, number: u64, is_granted: bool) {
        let State { directories, kept, .. } = &mut *self.lock();
        if let Some(known) = directories.get_mut(&directory)
            && known.lease == Lease::Asked(number)
        {
            known.lease = match is_granted {
                true => Lease::Held(number),
                false => Lease::Refused(Instant::now() + REFUSED_FOR),
            };
            // What was known before may be older than the lease; so may be who was let in, as nobody tells of a right that was taken before.
            known.forget_names(kept);
            known.searchers.clear();
        }
    }

    /// Somebody wants the attributes of a file that he has found in a directory; they are known, or not. If
    /// they are not, and those of its neighbours are probably wanted too: where to go on listing them.
    pub(crate) fn wants_list(&self, directory: FileHandle, is_known: bool) -> Option<u64> {
        let mut state = self.lock();
        let known = state.directories.get_mut(&directory)?;
        known.held()?;
        let listing = &mut known.listing;
        match is_known {
            true => listing.hits = listing.hits.saturating_add(1),
            false => listing.misses = listing.misses.saturating_add(1),
        }
        let is_worth_it = listing.misses >= WORTH_LISTING || listing.hits >= OF_USE;
        if is_known || !is_worth_it {
            return None;
        }
        (listing.hits, listing.misses) = (0, 0);
        Some(listing.cookie)
    }

    /// The same where there are callbacks: how many of its neighbours are to be asked for with a file, if nothing is known of it.
    pub(crate) fn looked_at_one(&self, directory: FileHandle, is_known: bool) -> usize {
        let mut state = self.lock();
        let known = state.directories.get_mut(&directory).filter(|known| known.held().is_some());
        known.map_or(0, |known| known.appetite.looked(is_known))
    }

    /// So many are asked for.
    pub(crate) fn asked_for_neighbours(&self, directory: FileHandle, count: usize) {
        if let Some(known) = self.lock().directories.get_mut(&directory) {
            known.appetite.asked(count);
        }
    }

    /// Somebody lists a directory from its begin.
    pub(crate) fn is_listed(&self, directory: FileHandle) {
        if let Some(known) = self.lock().directories.get_mut(&directory) {
            known.appetite.listed();
        }
    }

    /// A page was listed, and the next one begins there; after the last one it begins from the start.
    pub(crate) fn listed(&self, directory: FileHandle, next: Option<u64>) {
        if let Some(known) = self.lock().directories.get_mut(&directory) {
            known.listing.cookie = next.unwrap_or(0);
        }
    }

    /// What was looked for up to there was listed: where pages have come further already, they go on there.
    pub(crate) fn listed_up_to(&self, directory: FileHandle, cookie: u64) {
        if let Some(known) = self.lock().directories.get_mut(&directory) {
            known.listing.cookie = known.listing.cookie.max(cookie);
        }
    }

    /// Somebody asks the manager about a directory.
    pub(crate) fn asking(&self, directory: FileHandle) -> Asking {
        let state = self.lock();
        let known = state.directories.get(&directory);
        let lease = known.and_then(Directory::held).filter(|_| self.is_good());
        Asking { directory, lease, changes: known.map_or(0, |known| known.changes) }
    }

    /// The manager has told `caller` what names lead to; `is_all` if there are no others.
    pub(crate) fn told(
        &self,
        asking: &Asking,
        caller: &Arc<Caller>,
        names: impl IntoIterator<Item = (Name, Option<FileHandle>)>,
        is_all: bool,
    ) {
        let mut state = self.lock();
        state.make_room();
        let State { directories, kept, hasher, .. } = &mut *state;
        let known = directories.entry(asking.directory).or_default();
        if known.changes != asking.changes || known.held() != asking.lease {
            return;
        }
        known.is_searched_by(caller);
        let now = Instant::now();
        let before = known.names.len();
        known.names.extend(names.into_iter().map(|(name, found)| (name, (found, now))));
        known.is_complete |= is_all && asking.lease.is_some();
        kept.names += known.names.len() - before;
        if known.names.len() > MAX_NAMES / 2 {
            known.forget_targets(kept, hasher);
        }
    }

    /// This clerk is about to change a directory.
    pub(crate) fn changing(&self, directory: FileHandle) -> Asking {
        let mut state = self.lock();
        state.make_room();
        let known = state.directories.entry(directory).or_default();
        known.changes += 1;
        let (lease, changes) = (known.held().filter(|_| self.is_good()), known.changes);
        Asking { directory, lease, changes }
    }

    /// This clerk has changed names of a directory, or tried to: what they lead to now, if that is known. Answers
    /// what they led to.
    pub(crate) fn changed(
        &self,
        asking: &Asking,
        changes: &[(&Name, Option<Option<FileHandle>>)],
    ) -> Vec<FileHandle> {
        let mut state = self.lock();
        let State { directories, kept, .. } = &mut *state;
        let Some(known) = directories.get_mut(&asking.directory) else {
            return Vec::new();
        };
        // Others may have been executed in another order than they were answered.
        let is_alone = known.changes == asking.changes && known.held() == asking.lease;
        known.changes += 1;
        let (before, mut led_to) = (known.names.len(), Vec::new());
        for (name, now) in changes {
            led_to.extend(known.names.remove(*name).and_then(|(found, _)| found));
            match now.filter(|_| is_alone) {
                Some(found) => drop(known.names.insert((*name).clone(), (found, Instant::now()))),
                None => known.forget_more(kept),
            }
        }
        kept.names = kept.names + known.names.len() - before;
        led_to
    }

    /// What a name was found to lead to, if it is known, however long ago.
    pub(crate) fn leads_to(&self, directory: FileHandle, name: &Name) -> Option<FileHandle> {
        self.last_known(directory, name).flatten()
    }

    /// The same; inside, `None` stands for a name that is not there.
    pub(crate) fn last_known(
        &self,
        directory: FileHandle,
        name: &Name,
    ) -> Option<Option<FileHandle>> {
        let state = self.lock();
        let known = state.directories.get(&directory)?;
        match known.names.get(name) {
            Some((found, _)) => Some(*found),
            None => known.is_absent(name, &state.hasher).then_some(None),
        }
    }
}

impl State {
    /// Forgets some of what is known of some directories where there is too much; their leases stay.
    fn make_room(&mut self) {
        if self.directories.len() >= MAX_DIRECTORIES {
            // The manager tells of those that are leased in vain; and there are others.
            self.directories.clear();
            self.kept = Kept::default();
        }
        let State { directories, kept, hasher, .. } = self;
        for directory in directories.values_mut() {
            if kept.names < MAX_NAMES {
                break;
            }
            directory.forget_targets(kept, hasher);
        }
    }
}

#[cfg(test)]
mod tests {
    use nasd_types::{DriveId, ObjectId, PartitionId};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn handle(object: u64) -> FileHandle {
        FileHandle { drive: DriveId(1), partition: PartitionId(1), object: ObjectId(object) }
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn somebody() -> Arc<Caller> {
        Arc::new(Caller::default())
    }

    /// A directory with a lease.
    fn leased() -> KnownNames {
        let known = KnownNames::default();
        known.good_until(Instant::now() + HOUR);
        assert_eq!(known.wants_lease(handle(1), false), None, "once is not often");
        let number = known.wants_lease(handle(1), false).unwrap();
        assert_eq!(known.wants_lease(handle(1), false), None, "it is asked for");
        known.leased(handle(1), number, true);
        known
    }

    fn tell(known: &KnownNames, text: &str, found: Option<FileHandle>) {
        known.told(&known.asking(handle(1)), &somebody(), [(name(text), found)], false);
    }

    fn found(known: &KnownNames, text: &str) -> Option<Option<FileHandle>> {
        known.find(&somebody(), handle(1), &name(text), Duration::ZERO).map(|(found, _)| found)
    }

    #[test]
    fn names_are_believed_until_the_lease_ends() {
        let known = leased();
        tell(&known, "a", Some(handle(5)));
        tell(&known, "b", None);
        assert_eq!(found(&known, "a"), Some(Some(handle(5))));
        assert_eq!((found(&known, "b"), found(&known, "c")), (Some(None), None));
        let other = Arc::new(Caller { uid: 7, ..Caller::default() });
        assert_eq!(known.find(&other, handle(1), &name("a"), HOUR), None, "he may not search it");
        let belief = known.asking(handle(1)).belief().unwrap();
        assert!(known.is_believed(&belief));
        known.end(handle(1));
        assert_eq!(found(&known, "a"), None);
        assert!(!known.is_believed(&belief));
    }

    #[test]
    fn nothing_is_believed_when_the_session_is_not_heard_of() {
        let known = leased();
        tell(&known, "a", Some(handle(5)));
        known.good_until(Instant::now());
        assert_eq!(found(&known, "a"), None);
        let aged = known.find(&somebody(), handle(1), &name("a"), HOUR);
        assert_eq!(aged, Some((Some(handle(5)), None)), "for those who take it as old as it is");
        known.good_until(Instant::now() + HOUR);
        assert_eq!(found(&known, "a"), Some(Some(handle(5))));
        known.end_all();
        known.good_until(Instant::now() + HOUR);
        assert_eq!((found(&known, "a"), known.leases()), (None, 0));
    }

    #[test]
    fn a_lease_that_ended_before_its_answer_is_none() {
        let known = KnownNames::default();
        known.good_until(Instant::now() + HOUR);
        known.made(&somebody(), handle(1));
        let number = known.wants_lease(handle(1), false).unwrap();
        known.end(handle(1));
        known.made(&somebody(), handle(1));
        assert!(known.wants_lease(handle(1), false).is_some_and(|other| other != number));
        known.leased(handle(1), number, true);
        assert_eq!(known.leases(), 0);
    }

    #[test]
    fn whoever_is_refused_waits_before_he_asks_again() {
        let known = KnownNames::default();
        known.good_until(Instant::now() + HOUR);
        known.made(&somebody(), handle(1));
        let number = known.wants_lease(handle(1), false).unwrap();
        known.leased(handle(1), number, false);
        assert_eq!((known.wants_lease(handle(1), false), known.leases()), (None, 0));
        tell(&known, "a", Some(handle(5)));
        assert_eq!(found(&known, "a"), None, "others change it");
    }

    #[test]
    fn who_was_let_in_before_there_was_a_lease_is_asked_for_again() {
        let known = KnownNames::default();
        known.good_until(Instant::now() + HOUR);
        known.wants_lease(handle(1), false);
        let number = known.wants_lease(handle(1), false).unwrap();
        tell(&known, "a", Some(handle(5)));
        known.leased(handle(1), number, true);
        let other = Arc::new(Caller { uid: 7, ..Caller::default() });
        known.told(&known.asking(handle(1)), &other, [(name("a"), Some(handle(5)))], false);
        let told = known.find(&other, handle(1), &name("a"), Duration::ZERO);
        assert_eq!(told.map(|(found, _)| found), Some(Some(handle(5))));
        assert_eq!(found(&known, "a"), None, "he may have lost the right before the lease");
    }

    #[test]
    fn answers_that_were_overtaken_are_not_kept() {
        let known = leased();
        let asking = known.asking(handle(1));
        let change = known.changing(handle(1));
        known.told(&asking, &somebody(), [(name("a"), None)], false);
        assert_eq!(known.changed(&change, &[(&name("a"), Some(Some(handle(5))))]), []);
        known.told(&asking, &somebody(), [(name("a"), None)], false);
        tell(&known, "other", None);
        assert_eq!(found(&known, "a"), Some(Some(handle(5))), "one's own change");
        let (one, two) = (known.changing(handle(1)), known.changing(handle(1)));
        assert_eq!(known.changed(&two, &[(&name("a"), Some(None))]), [handle(5)]);
        known.changed(&one, &[(&name("a"), Some(Some(handle(6))))]);
        assert_eq!(found(&known, "a"), None, "nobody knows which came last");
    }

    #[test]
    fn what_is_complete_tells_of_all_other_names() {
        let known = leased();
        let asking = known.asking(handle(1));
        known.told(&asking, &somebody(), [(name("a"), Some(handle(5)))], true);
        assert_eq!(found(&known, "z"), Some(None));
        let change = known.changing(handle(1));
        assert_eq!(known.changed(&change, &[(&name("a"), Some(None))]), [handle(5)]);
        assert_eq!((found(&known, "a"), found(&known, "z")), (Some(None), Some(None)));
        let failed = known.changing(handle(1));
        known.changed(&failed, &[(&name("a"), None)]);
        assert_eq!(found(&known, "z"), None, "nobody knows whether it was executed");
    }

    /// Makes files of these numbers, in a directory that is empty but for those below.
    fn make_files(known: &KnownNames, numbers: std::ops::Range<u64>) {
        for number in numbers {
            let change = known.changing(handle(1));
            known.changed(
                &change,
                &[(&name(&number.to_string()), Some(Some(handle(100 + number))))],
            );
        }
    }

    #[test]
    fn whether_a_name_is_free_is_known_of_a_very_large_directory() {
        let known = leased();
        known.told(&known.asking(handle(1)), &somebody(), [], true);
        let many = 3 * MAX_NAMES as u64;
        make_files(&known, 0..many);
        assert!(known.lock().kept.names <= MAX_NAMES);
        let asked = (many..2 * many).filter(|number| found(&known, &number.to_string()).is_none());
        assert!(asked.count() < 100, "that is asked only where marks are the same by chance");
        for number in (0..many).step_by(1001) {
            let told = found(&known, &number.to_string());
            assert!(
                told.is_none() || told == Some(Some(handle(100 + number))),
                "{number} is there"
            );
        }
        // What goes is known to be free, until that is forgotten.
        let gone = known.changing(handle(1));
        known.changed(&gone, &[(&name("7"), Some(None))]);
        assert_eq!(found(&known, "7"), Some(None));
        make_files(&known, many..2 * many);
        assert_eq!(found(&known, "7"), None);
        // A change of which nobody knows whether it was executed ends that.
        let failed = known.changing(handle(1));
        known.changed(&failed, &[(&name("8"), None)]);
        assert_eq!(found(&known, "free"), None);
        known.end(handle(1));
        let state = known.lock();
        assert_eq!((state.kept.names, state.kept.more), (0, 0));
    }

    #[test]
    fn there_is_room_for_so_many_more() {
        let known = leased();
        known.told(&known.asking(handle(1)), &somebody(), [], true);
        make_files(&known, 0..2 * MAX_MORE as u64);
        let state = known.lock();
        assert!(state.kept.names <= MAX_NAMES && state.kept.more <= MAX_MORE, "{:?}", state.kept);
        assert!(!state.directories[&handle(1)].is_complete);
    }

    #[test]
    fn what_is_looked_at_file_by_file_is_listed() {
        let known = leased();
        let directory = handle(1);
        assert_eq!(known.wants_list(handle(2), false), None, "there is no lease");
        assert_eq!(known.wants_list(directory, false), None, "one file is no reason");
        assert_eq!(known.wants_list(directory, false), Some(0));
        known.listed(directory, Some(77));
        for _ in 0..OF_USE {
            assert_eq!(known.wants_list(directory, true), None);
        }
        assert_eq!(known.wants_list(directory, false), Some(77), "the last page was of use");
        known.listed(directory, None);
        assert_eq!(known.wants_list(directory, false), None);
        assert_eq!(known.wants_list(directory, false), Some(0), "once more from the start");
    }

    #[test]
    fn there_is_room_for_so_many() {
        let known = leased();
        for object in 0..2 * MAX_NAMES as u64 {
            let asking = known.asking(handle(1 + object % 8));
            let told = [(name(&object.to_string()), Some(handle(100)))];
            known.told(&asking, &somebody(), told, false);
            assert!(known.lock().kept.names <= MAX_NAMES);
        }
        let total: usize = known.lock().directories.values().map(|each| each.names.len()).sum();
        assert_eq!(known.lock().kept.names, total);
        for object in 0..2 * MAX_DIRECTORIES as u64 {
            known.made(&somebody(), handle(object));
        }
        assert!(known.lock().directories.len() <= MAX_DIRECTORIES);
    }
}
