//! Writes of copies, from the first map that allows some of an object until the striping manager is told that they have
//! ended.
//!
//! As long as somebody may write copies, readers take the first of each; so a clerk that has written, and
//! whose writes are durable on all copies, says so soon, and asks for a new map before it writes again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nasd_client::{Authority, DriveClient, Host};
use nasd_protocol::drive::{Endwrites, EndwritesArguments};
use nasd_types::{DriveId, ObjectName};

use super::writings::Writings;

/// How often it is looked who has ended.
const EVERY: Duration = Duration::from_millis(500);

/// Who has not written for so long has ended, if all is durable.
const IDLE: Duration = Duration::from_secs(1);

/// Capabilities for writing copies end long before.
const GIVEN_UP: Duration = Duration::from_secs(600);

/// No write under the map may begin any more.
const ENDED: u64 = 1 << 31;

/// In the state: one write that was begun and is under way.
const BEGUN: u64 = (1 << 32) + 1;

/// What of the state says that nothing is under way, and that it has not ended.
const UNDER_WAY_OR_ENDED: u64 = u32::MAX as u64;

/// The writes of one object, under whatever map, until they are ended.
#[derive(Debug)]
pub(super) struct Writing {
    /// How many are under way, `ENDED`, and in the upper half how many were begun: who has looked at the rest sees by
    /// that whether one came and went meanwhile.
    state: AtomicU64,
    begun: AtomicU64,
    /// Of the last map that they may be made by.
    turn: AtomicU64,
    /// So many of those that were begun are durable.
    flushed: AtomicU64,
    /// Writes that failed and were not made again: copies may differ.
    failed: AtomicU32,
    /// When one began last, or a map came that allows some, by the host's clock.
    last: Mutex<Duration>,
    is_listed: AtomicBool,
    /// By what right the end is told: that of the map that came last, as earlier ones mostly end sooner.
    authority: Mutex<Option<Authority>>,
    /// What each component drive was given.
    given: Mutex<HashMap<DriveId, Given>>,
}

/// How many writes a drive has acknowledged, and how many of these are known to be durable.
#[derive(Clone, Copy, Debug, Default)]
struct Given {
    written: u64,
    durable: u64,
    /// Whether those of before are: they may have been forgotten with the map that they were made by.
    is_known: bool,
}

/// A write that is under way, or that may begin soon.
pub(super) struct UnderWay<'a>(&'a Writing);

impl Writing {
    /// Writes that may be made by a map of that turn.
    pub(super) fn new(turn: u64, now: Duration) -> Writing {
        Writing {
            state: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            turn: AtomicU64::new(turn),
            flushed: AtomicU64::new(0),
            failed: AtomicU32::new(0),
            last: Mutex::new(now),
            is_listed: AtomicBool::new(false),
            authority: Mutex::new(None),
            given: Mutex::default(),
        }
    }

    fn given(&self) -> MutexGuard<'_, HashMap<DriveId, Given>> {
        // Every change leaves it whole.
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn authority(&self) -> MutexGuard<'_, Option<Authority>> {
        self.authority.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A drive has acknowledged a write, which is not durable.
    pub(super) fn wrote_to(&self, drive: DriveId) {
        self.given().entry(drive).or_default().written += 1;
    }

    /// How many a drive has acknowledged: what it makes durable from now on are these at least.
    pub(super) fn written_to(&self, drive: DriveId) -> u64 {
        self.given().get(&drive).map_or(0, |given| given.written)
    }

    /// So many of them are durable, and all of before.
    pub(super) fn durable_at(&self, drive: DriveId, count: u64) {
        let mut known = self.given();
        let given = known.entry(drive).or_default();
        given.durable = given.durable.max(count);
        given.is_known = true;
    }

    /// Whether all that a drive has acknowledged is durable.
    pub(super) fn is_durable_at(&self, drive: DriveId) -> bool {
        let given = self.given().get(&drive).copied();
        given.is_some_and(|given| given.is_known && given.durable >= given.written)
    }

    /// Begins a write; `None` where the striping manager was told that there are no more.
    pub(super) fn begin(&self, now: Duration) -> Option<UnderWay<'_>> {
        let under_way = self.hold(now)?;
        self.begun.fetch_add(1, Ordering::AcqRel);
        Some(under_way)
    }

    /// Keeps them from ending though nothing is written yet; `None` where they have.
    pub(super) fn hold(&self, now: Duration) -> Option<UnderWay<'_>> {
        let before = self.state.fetch_add(BEGUN, Ordering::AcqRel);
        let hold = UnderWay(self);
        if before & ENDED != 0 {
            return None;
        }
        self.touch(now);
        Some(hold)
    }

    /// Somebody is about to write.
    pub(super) fn touch(&self, now: Duration) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// A write failed, and may have been made at some copies only.
    pub(super) fn fail(&self) {
        self.failed.fetch_add(1, Ordering::AcqRel);
    }

    /// It was made again, at all.
    pub(super) fn make_good(&self) {
        self.failed.fetch_sub(1, Ordering::AcqRel);
    }

    /// How many writes there were: a flush that begins now makes these durable.
    pub(super) fn so_far(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    /// So many are durable.
    pub(super) fn flushed(&self, count: u64) {
        self.flushed.fetch_max(count, Ordering::AcqRel);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state.load(Ordering::Acquire) & ENDED != 0
    }

    /// Whether it will never be ended: its capabilities have ended, or will with nothing said.
    fn is_given_up(&self, now: Duration) -> bool {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        now.saturating_sub(last) >= GIVEN_UP
    }

    /// A map of that turn is good for these writes too.
    pub(super) fn may_begin_at(&self, turn: u64) {
        self.turn.fetch_max(turn, Ordering::AcqRel);
    }

    /// Whether it could be ended, as nothing is under way, all is durable, and nobody has written for a while: the state
    /// that was seen before all else.
    pub(super) fn could_end(&self, idle: Duration, now: Duration) -> Option<u64> {
        let seen = self.state.load(Ordering::Acquire);
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let could = seen & UNDER_WAY_OR_ENDED == 0
            && now.saturating_sub(last) >= idle
            && self.failed.load(Ordering::Acquire) == 0
            && self.flushed.load(Ordering::Acquire) >= self.so_far();
        could.then_some(seen)
    }

    /// Ends it if no write has begun since; the turn of the last map that they may have been made by.
    pub(super) fn end_as(&self, seen: u64) -> Option<u64> {
        let (done, now) = (Ordering::AcqRel, Ordering::Acquire);
        let ended = self.state.compare_exchange(seen, seen | ENDED, done, now);
        ended.is_ok().then(|| self.turn.load(Ordering::Acquire))
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.state.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Objects that may be written, and the thread that looks after them.
pub(super) struct Ends {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    host: Arc<dyn Host>,
    writings: Arc<Writings>,
    list: Mutex<List>,
    changed: Condvar,
}

#[derive(Default)]
struct List {
    open: Vec<Open>,
    is_stopped: bool,
}

struct Open {
    writing: Arc<Writing>,
    manager: DriveClient,
    name: ObjectName,
    client: u64,
}

/// What is told of writes that have ended.
struct End {
    open: Open,
    authority: Authority,
    arguments: EndwritesArguments,
}

impl Open {
    /// They have ended by this turn. `None` where nobody has shown a right to them.
    fn end(self, turn: u64) -> Option<End> {
        let authority = self.writing.authority().clone()?;
        let arguments = EndwritesArguments { name: self.name, client: self.client, turn };
        Some(End { open: self, authority, arguments })
    }
}

impl Ends {
    pub(super) fn new(host: Arc<dyn Host>, writings: Arc<Writings>) -> Ends {
        let shared = Shared { host, writings, list: Mutex::default(), changed: Condvar::new() };
        Ends { shared: Arc::new(shared), thread: Mutex::new(None) }
    }

    /// Something of an object may be written, which is looked after from now on.
    pub(super) fn watch(
        &self,
        writing: &Arc<Writing>,
        authority: &Authority,
        manager: &DriveClient,
        (name, client): (ObjectName, u64),
    ) {
        *writing.authority() = Some(authority.clone());
        let mut list = self.shared.lock();
        if writing.is_listed.swap(true, Ordering::AcqRel) {
            return;
        }
        let (writing, manager) = (Arc::clone(writing), manager.clone());
        list.open.push(Open { writing, manager, name, client });
        drop(list);
        if self.shared.host.takes_turns() {
            return;
        }
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let run = move || shared.run();
            // Without it writes end with their capabilities, which others wait for.
            *thread = std::thread::Builder::new().name("nasd-ends".to_owned()).spawn(run).ok();
        }
    }
}

impl Ends {
    /// Ends what can be ended, for who begins no threads.
    pub(super) fn look(&self) {
        self.shared.look(IDLE);
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.shared.lock().is_stopped = true;
        self.shared.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the thread that ends writes had panicked");
        }
        // At the end nobody writes any more.
        self.shared.look(Duration::ZERO);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            let list = self.lock();
            let waited = self.changed.wait_timeout_while(list, EVERY, |list| !list.is_stopped);
            let (list, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if list.is_stopped {
                return;
            }
            drop(list);
            self.look(IDLE);
        }
    }

    /// Ends what nobody has written for so long.
    fn look(&self, idle: Duration) {
        Shared::tell(self.take_ended(idle));
    }

    /// Those that have ended.
    fn take_ended(&self, idle: Duration) -> Vec<End> {
        let now = self.host.elapsed();
        let mut list = self.lock();
        let (mut ended, mut still_open) = (Vec::new(), Vec::new());
        for open in std::mem::take(&mut list.open) {
            match self.writings.end(&open.writing, idle, now) {
                Some(turn) => ended.extend(open.end(turn)),
                // Who has a map of it once more has it looked after again.
                None if open.writing.is_given_up(now) => {
                    open.writing.is_listed.store(false, Ordering::Release);
                }
                None => still_open.push(open),
            }
        }
        list.open = still_open;
        ended
    }

    /// Tells the striping manager; one that does not hear it waits until capabilities have ended.
    fn tell(ended: Vec<End>) {
        let begun: Vec<_> = ended
            .iter()
            .map(|end| end.open.manager.begin_call::<Endwrites>(&end.authority, end.arguments))
            .collect();
        for (end, call) in ended.iter().zip(begun) {
            if let Err(error) = call.wait() {
                tracing::debug!(%error, name = %end.open.name, "writes were not ended");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nasd_capability::SecretKey;
    use nasd_client::ConnectOptions;
    use nasd_types::Protection;

    use super::super::writings::tests::{Clock, NAME};
    use super::*;

    /// Ends on a clock of their own.
    fn ends() -> (Ends, Arc<Writings>, Arc<Clock>) {
        let clock = Arc::new(Clock::default());
        let writings = Arc::new(Writings::new(Arc::clone(&clock) as _));
        (Ends::new(Arc::clone(&clock) as _, Arc::clone(&writings)), writings, clock)
    }

    /// Has a map of that turn, and what may be written by it looked after.
    fn have(ends: &Ends, writings: &Writings, turn: u64) -> Arc<Writing> {
        let writing = writings.under(NAME, turn, ends.shared.host.elapsed()).unwrap();
        let manager = DriveClient::tcp("nobody:1", None, &ConnectOptions::default());
        let authority = Authority::drive_key(SecretKey::new([7; 32]), Protection::NONE);
        ends.watch(&writing, &authority, &manager, (NAME, 3));
        writing
    }

    fn ended(ends: &Ends) -> Vec<EndwritesArguments> {
        ends.shared.take_ended(IDLE).into_iter().map(|end| end.arguments).collect()
    }

    /// Ends it as [`Writings`] does.
    fn end(writing: &Writing, idle: Duration) -> bool {
        let seen = writing.could_end(idle, Duration::ZERO);
        seen.is_some_and(|seen| writing.end_as(seen).is_some())
    }

    #[test]
    fn writing_ends_when_all_is_durable_and_not_before() {
        let writing = Writing::new(1, Duration::ZERO);
        let first = writing.begin(Duration::ZERO).unwrap();
        assert!(!end(&writing, Duration::ZERO), "one is under way");
        drop(first);
        assert!(!end(&writing, Duration::ZERO), "it is not durable");
        let count = writing.so_far();
        drop(writing.begin(Duration::ZERO).unwrap());
        writing.flushed(count);
        assert!(!end(&writing, Duration::ZERO), "one more was begun");
        writing.flushed(writing.so_far());
        assert!(!end(&writing, Duration::from_secs(60)), "lately");
        assert!(end(&writing, Duration::ZERO) && writing.has_ended());
        assert!(writing.begin(Duration::ZERO).is_none() && writing.begin(Duration::ZERO).is_none());
        assert!(!end(&writing, Duration::ZERO), "once");
    }

    #[test]
    fn a_write_that_came_and_failed_while_it_was_looked_at_keeps_it_from_ending() {
        let writing = Writing::new(1, Duration::ZERO);
        drop(writing.begin(Duration::ZERO).unwrap());
        writing.flushed(writing.so_far());
        let seen = writing.could_end(Duration::ZERO, Duration::ZERO).unwrap();
        let failing = writing.begin(Duration::ZERO).unwrap();
        writing.fail();
        drop(failing);
        assert!(writing.end_as(seen).is_none() && !writing.has_ended());
        writing.make_good();
        writing.flushed(writing.so_far());
        assert!(end(&writing, Duration::ZERO));
    }

    #[test]
    fn a_drive_has_all_durable_when_it_was_told_so_after_the_last_write() {
        let (writing, drive) = (Writing::new(1, Duration::ZERO), DriveId(7));
        assert!(!writing.is_durable_at(drive), "of before nothing is known");
        let before = writing.written_to(drive);
        writing.wrote_to(drive);
        writing.durable_at(drive, before);
        assert!(!writing.is_durable_at(drive), "one came after the flush was sent");
        writing.durable_at(drive, writing.written_to(drive));
        writing.durable_at(drive, before);
        assert!(writing.is_durable_at(drive) && !writing.is_durable_at(DriveId(8)));
    }

    #[test]
    fn who_failed_does_not_say_that_copies_are_the_same() {
        let writing = Writing::new(1, Duration::ZERO);
        drop(writing.begin(Duration::ZERO).unwrap());
        writing.fail();
        writing.flushed(writing.so_far());
        assert!(!end(&writing, Duration::ZERO));
        writing.make_good();
        assert!(end(&writing, Duration::ZERO));
    }

    #[test]
    fn a_map_by_which_nothing_is_written_is_ended_too() {
        let (ends, writings, clock) = ends();
        let writing = have(&ends, &writings, 5);
        let hold = writing.hold(clock.elapsed());
        clock.sleep(IDLE);
        assert_eq!(ended(&ends), [], "somebody is about to write");
        drop(hold);
        writing.touch(clock.elapsed());
        assert_eq!(ended(&ends), [], "just now");
        clock.sleep(IDLE);
        assert_eq!(ended(&ends), [EndwritesArguments { name: NAME, client: 3, turn: 5 }]);
        assert_eq!(ended(&ends), [], "once");
    }

    #[test]
    fn what_was_given_up_is_looked_after_again_when_there_is_a_map_of_it_again() {
        let (ends, writings, clock) = ends();
        let writing = have(&ends, &writings, 5);
        drop(writing.begin(clock.elapsed()));
        clock.sleep(GIVEN_UP);
        assert_eq!(ended(&ends), [], "it is not durable");
        writing.flushed(writing.so_far());
        assert_eq!(ended(&ends), [], "it is not in the list");
        assert!(Arc::ptr_eq(&writing, &have(&ends, &writings, 6)));
        let told = ended(&ends);
        assert_eq!(told.iter().map(|told| told.turn).collect::<Vec<_>>(), [6]);
    }

    #[test]
    fn the_end_is_told_by_the_right_that_was_shown_last() {
        let (ends, writings, clock) = ends();
        let writing = have(&ends, &writings, 5);
        let manager = DriveClient::tcp("nobody:1", None, &ConnectOptions::default());
        let later = Authority::drive_key(SecretKey::new([7; 32]), Protection::INTEGRITY_ARGS);
        ends.watch(&writing, &later, &manager, (NAME, 3));
        clock.sleep(IDLE);
        let told = ends.shared.take_ended(IDLE);
        let by: Vec<Protection> = told.iter().map(|end| end.authority.protection()).collect();
        assert_eq!(by, [Protection::INTEGRITY_ARGS]);
    }
}
