//! Who may be writing copies of objects, and which objects have to be made even.
//!
//! A component's version says durably that copies may differ ([`crate::version`]); here is what is known
//! besides: by whom, and until when. A writer that has ended its writes says so. When all have, the copies
//! are the same, and the version may say so too. One whose capability has ended without a word may have
//! written some copies and not others, and so may those of a striping manager's life before.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nasd_types::{DriveId, ObjectId, ObjectName, PartitionId, Timestamp};

/// How long nobody may have written an object before its version says that its copies are the same: those who
/// go on writing soon don't pay for that twice.
const IDLE_NS: u64 = 2_000_000_000;

/// Clients of one object that are known one by one.
const MOST_CLIENTS: usize = 1024;

/// No name comes after it.
const LAST_NAME: ObjectName =
    ObjectName { partition: PartitionId(u32::MAX), object: ObjectId(u64::MAX) };

/// Objects that are known to have copies that may differ.
#[derive(Debug, Default)]
pub(crate) struct Writers(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    entries: HashMap<ObjectName, Entry>,
    /// All of them, by when each may be looked at.
    due: BTreeSet<(Timestamp, ObjectName)>,
    /// The last turn that somebody was given. They begin with the time, so that those of an earlier life of the striping
    /// manager are others, unless the clock was set back: then one who tells a turn of before, which happens to be his
    /// of now too, ends what he may still write.
    turn: u64,
}

/// A client that may write.
#[derive(Clone, Copy, Debug)]
struct Client {
    until: Timestamp,
    /// The last that it was given.
    turn: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    /// Who may write.
    clients: HashMap<u64, Client>,
    /// Until then others may, of whom nothing is known.
    unknown_until: Timestamp,
    /// Whether somebody may have left copies that differ.
    is_uneven: bool,
    /// How far they were made even since.
    evened: Evened,
    /// Whether what an earlier life of the striping manager may still ask of drives comes too late for whoever writes
    /// next: the version was raised in this one.
    is_fenced: bool,
    /// Drives that may have of it what no other copy has, and got it when they did not decide yet ([`crate::doubts`]).
    doubted: Vec<DriveId>,
    /// When something was heard last.
    heard: Timestamp,
    /// When it was said last that nobody writes it any more.
    told: Timestamp,
    /// Where it is in [`Known::due`].
    due: Timestamp,
}

/// How far copies that differed were made even.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evened {
    pub(crate) until: u64,
    /// How often something went wrong, after which all begins again.
    beginnings: u64,
}

/// An object that nobody writes any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Its copies are the same.
    Even(ObjectName),
    /// They may differ.
    Uneven(ObjectName),
}

impl Known {
    /// Changes what is known of an object, of which nothing may be known yet.
    fn change(
        &mut self,
        name: ObjectName,
        new: impl FnOnce() -> Entry,
        how: impl FnOnce(&mut Entry),
    ) {
        self.entries.entry(name).or_insert_with(new);
        self.change_known(name, how);
    }

    /// The same, if anything is known.
    fn change_known(&mut self, name: ObjectName, how: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries.get_mut(&name) {
            how(entry);
            self.due.remove(&(entry.due, name));
            entry.due = entry.next_look();
            self.due.insert((entry.due, name));
        }
    }

    fn forget(&mut self, name: ObjectName) {
        if let Some(entry) = self.entries.remove(&name) {
            self.due.remove(&(entry.due, name));
        }
    }
}

impl Writers {
    fn lock(&self) -> MutexGuard<'_, Known> {
        // Every change leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The striping manager writes, or has made the object; nobody else does.
    pub(crate) fn note(&self, name: ObjectName, now: Timestamp) {
        let heard = |entry: &mut Entry| entry.heard = entry.heard.max(now);
        self.lock().change(name, || Entry::new(now), heard);
    }

    /// A client may write until then. Answers the turn by which it tells that it has ended.
    pub(crate) fn add(
        &self,
        name: ObjectName,
        client: u64,
        now: Timestamp,
        until: Timestamp,
    ) -> u64 {
        let mut known = self.lock();
        let turn = (known.turn + 1).max(now.0);
        known.turn = turn;
        known.change(
            name,
            || Entry::new(now),
            |entry| {
                entry.heard = entry.heard.max(now);
                if entry.clients.len() >= MOST_CLIENTS && !entry.clients.contains_key(&client) {
                    // As if nothing were known of it.
                    entry.unknown_until = entry.unknown_until.max(until);
                    return entry.may_differ();
                }
                let present = entry.clients.entry(client).or_insert(Client { until, turn });
                *present = Client { until: until.max(present.until), turn };
            },
        );
        turn
    }

    /// An object's version says that its copies may differ, and nothing is known of it: clients may have been
    /// let write it before this striping manager was started.
    pub(crate) fn find(&self, name: ObjectName, now: Timestamp, until: Timestamp) {
        let found =
            || Entry { unknown_until: until, is_uneven: true, is_fenced: false, ..Entry::new(now) };
        self.lock().change(name, found, |_| {});
    }

    /// A client has ended its writes up to those of a turn: all copies have them. If it was given a later one since, it may be
    /// writing.
    pub(crate) fn end(&self, name: ObjectName, (client, turn): (u64, u64), now: Timestamp) {
        self.lock().change_known(name, |entry| {
            if entry.clients.get(&client).is_some_and(|client| client.turn == turn) {
                entry.clients.remove(&client);
            }
            entry.heard = entry.heard.max(now);
        });
    }

    /// Something went wrong while copies were written.
    pub(crate) fn may_differ(&self, name: ObjectName, now: Timestamp) {
        self.lock().change(name, || Entry::new(now), Entry::may_differ);
    }

    /// A drive may have lost writes that other copies have, of any object that was written lately.
    pub(crate) fn all_may_differ(&self) {
        self.lock().entries.values_mut().for_each(Entry::may_differ);
    }

    /// Of objects that somebody may be writing, other drives don't decide now, if others can: who that is, is told by which
    /// did not before.
    pub(crate) fn doubt(&self, who: impl Fn(ObjectName, &[DriveId]) -> Vec<DriveId>) {
        for (name, entry) in &mut self.lock().entries {
            entry.doubted = who(*name, &entry.doubted);
        }
    }

    /// Of a copy the same drives decide as of its source.
    pub(crate) fn doubt_like(&self, source: ObjectName, copy: ObjectName) {
        let mut known = self.lock();
        let doubted = known.entries.get(&source).map_or(Vec::new(), |entry| entry.doubted.clone());
        if let Some(entry) = known.entries.get_mut(&copy) {
            entry.doubted = doubted;
        }
    }

    /// The drives that don't decide what an object is, if others can: who least of all comes first.
    pub(crate) fn doubted(&self, name: ObjectName) -> Vec<DriveId> {
        self.lock().entries.get(&name).map_or(Vec::new(), |entry| entry.doubted.clone())
    }

    /// The object is no more, or its copies are the same and its version says so.
    pub(crate) fn forget(&self, name: ObjectName) {
        self.lock().forget(name);
    }

    /// The partition is no more, and no object of it.
    pub(crate) fn forget_partition(&self, partition: PartitionId) {
        let mut known = self.lock();
        known.entries.retain(|name, _| name.partition != partition);
        known.due.retain(|(_, name)| name.partition != partition);
    }

    /// Whether clients may be writing.
    pub(crate) fn has_clients(&self, name: ObjectName) -> bool {
        let known = self.lock();
        known.entries.get(&name).is_some_and(|it| !it.clients.is_empty() || it.is_uneven)
    }

    /// Whether copies may differ though nobody writes them.
    pub(crate) fn is_uneven(&self, name: ObjectName) -> bool {
        self.lock().entries.get(&name).is_some_and(|entry| entry.is_uneven)
    }

    /// Up to so many objects that nobody writes any more. Those of which that was said already come after others.
    pub(crate) fn ended(&self, now: Timestamp, most: usize) -> Vec<Ended> {
        let mut known = self.lock();
        let mut ended = Vec::new();
        let due: Vec<(Timestamp, ObjectName)> =
            known.due.range(..=(now, LAST_NAME)).take(most).copied().collect();
        for (_, name) in due {
            known.change_known(name, |entry| {
                let before = entry.clients.len();
                entry.clients.retain(|_, client| client.until > now);
                if entry.clients.len() < before {
                    entry.may_differ();
                }
                if entry.next_look() > now {
                    return;
                }
                entry.told = now;
                ended.push(match entry.is_uneven {
                    true => Ended::Uneven(name),
                    false => Ended::Even(name),
                });
            });
        }
        ended
    }

    /// How far copies that differed were made even, with nothing gone wrong since.
    pub(crate) fn evened(&self, name: ObjectName) -> Evened {
        self.lock().entries.get(&name).map_or(Evened::default(), |entry| entry.evened)
    }

    /// They were from there up to `end`. That is of no use if something went wrong meanwhile.
    pub(crate) fn made_even(&self, name: ObjectName, from: Evened, end: u64) {
        if let Some(entry) = self.lock().entries.get_mut(&name)
            && entry.evened == from
        {
            entry.evened.until = end;
        }
    }

    /// Whether the version has to be raised before anybody writes the object.
    pub(crate) fn is_fenced(&self, name: ObjectName) -> bool {
        self.lock().entries.get(&name).is_none_or(|entry| entry.is_fenced)
    }

    /// It was.
    pub(crate) fn fence(&self, name: ObjectName) {
        if let Some(entry) = self.lock().entries.get_mut(&name) {
            entry.is_fenced = true;
        }
    }

    /// Whether it still is as [`Writers::ended`] said: asked with the object locked.
    pub(crate) fn is_still(&self, ended: Ended) -> bool {
        let (Ended::Even(name) | Ended::Uneven(name)) = ended;
        self.lock().entries.get(&name).is_some_and(|entry| {
            entry.clients.is_empty() && entry.is_uneven == matches!(ended, Ended::Uneven(_))
        })
    }
}

impl Entry {
    fn new(now: Timestamp) -> Entry {
        Entry {
            clients: HashMap::new(),
            unknown_until: Timestamp(0),
            is_uneven: false,
            evened: Evened::default(),
            is_fenced: true,
            doubted: Vec::new(),
            heard: now,
            told: Timestamp(0),
            due: Timestamp(0),
        }
    }

    /// When it is to be looked at next: when the next client that has not ended its writes can't write any more; where
    /// there is none, when nobody has written for a while. What was told of already comes after what was not.
    fn next_look(&self) -> Timestamp {
        let idle = Timestamp(self.heard.0.saturating_add(IDLE_NS)).max(self.unknown_until);
        self.clients.values().map(|client| client.until).min().unwrap_or(idle).max(self.told)
    }

    /// Copies may differ, anywhere.
    fn may_differ(&mut self) {
        self.is_uneven = true;
        self.evened = Evened { until: 0, beginnings: self.evened.beginnings + 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: ObjectName = ObjectName { partition: PartitionId(1), object: ObjectId(77) };

    fn at(seconds: u64) -> Timestamp {
        Timestamp(seconds * 1_000_000_000)
    }

    #[test]
    fn copies_are_the_same_when_all_have_said_so() {
        let writers = Writers::default();
        let first = writers.add(NAME, 1, at(10), at(70));
        let second = writers.add(NAME, 2, at(10), at(70));
        writers.end(NAME, (1, first), at(11));
        assert!(writers.has_clients(NAME) && writers.ended(at(60), 9).is_empty());
        writers.end(NAME, (2, second), at(60));
        assert!(writers.ended(at(61), 9).is_empty(), "not at once");
        assert_eq!(writers.ended(at(62), 9), [Ended::Even(NAME)]);
        writers.add(NAME, 1, at(62), at(99));
        assert!(!writers.is_still(Ended::Even(NAME)));
    }

    #[test]
    fn what_is_said_too_late_does_not_end_what_began_since() {
        let writers = Writers::default();
        let before = writers.add(NAME, 1, at(10), at(70));
        // Its map was asked for before the end of the first was heard of.
        let after = writers.add(NAME, 1, at(11), at(71));
        writers.end(NAME, (1, before), at(12));
        assert!(writers.has_clients(NAME) && writers.ended(at(60), 9).is_empty());
        writers.end(NAME, (1, after), at(60));
        assert_eq!(writers.ended(at(62), 9), [Ended::Even(NAME)]);
        let started_anew = Writers::default();
        let turn = started_anew.add(NAME, 1, at(13), at(73));
        started_anew.end(NAME, (1, after), at(14));
        assert!(turn != after && started_anew.ended(at(60), 9).is_empty());
    }

    #[test]
    fn who_ends_without_a_word_may_leave_copies_that_differ() {
        let writers = Writers::default();
        writers.add(NAME, 1, at(10), at(70));
        let turn = writers.add(NAME, 1, at(40), at(100));
        assert!(writers.ended(at(99), 9).is_empty());
        assert_eq!(writers.ended(at(101), 9), [Ended::Uneven(NAME)]);
        writers.end(NAME, (1, turn), at(102));
        assert_eq!(writers.ended(at(200), 9), [Ended::Uneven(NAME)], "too late");
        writers.forget(NAME);
        assert!(writers.ended(at(300), 9).is_empty());
        writers.find(NAME, at(300), at(360));
        let begun = writers.evened(NAME);
        writers.made_even(NAME, begun, 4096);
        writers.made_even(NAME, begun, 100);
        assert_eq!(writers.evened(NAME).until, 4096);
        assert!(writers.ended(at(359), 9).is_empty() && writers.has_clients(NAME));
        assert_eq!(writers.ended(at(360), 9), [Ended::Uneven(NAME)]);
        writers.note(NAME, at(361));
        writers.may_differ(NAME, at(361));
        assert_eq!(writers.evened(NAME).until, 0, "what was made even may differ again");
        writers.made_even(NAME, begun, 8192);
        assert_eq!(writers.evened(NAME).until, 0, "something went wrong meanwhile");
        assert_eq!(writers.ended(at(400), 0), []);
    }

    #[test]
    fn who_is_told_of_already_comes_after_others() {
        let writers = Writers::default();
        let name = |partition, object| ObjectName {
            partition: PartitionId(partition),
            object: ObjectId(object),
        };
        for object in 0..10 {
            writers.note(name(1, object), at(1));
            writers.note(name(2, object), at(1));
        }
        // Nothing comes of the first ones.
        let mut seen = std::collections::BTreeSet::new();
        for second in 10..14 {
            for ended in writers.ended(at(second), 5) {
                let (Ended::Even(name) | Ended::Uneven(name)) = ended;
                assert!(seen.insert(name), "{name} again, before others");
            }
        }
        assert_eq!(seen.len(), 20);
        writers.forget_partition(PartitionId(1));
        let left = writers.ended(at(99), 99);
        assert_eq!(left.len(), 10);
        assert!(left.iter().all(|ended| matches!(ended, Ended::Even(it) if it.partition.0 == 2)));
    }

    #[test]
    fn of_very_many_writers_not_all_are_known_one_by_one() {
        let writers = Writers::default();
        let add = |client: u64| (client, writers.add(NAME, client, at(10), at(70)));
        let clients: Vec<(u64, u64)> = (0..2 * MOST_CLIENTS as u64).map(add).collect();
        assert!(writers.lock().entries[&NAME].clients.len() <= MOST_CLIENTS);
        clients.into_iter().for_each(|client| writers.end(NAME, client, at(11)));
        assert!(writers.ended(at(69), 9).is_empty(), "one of the others may be writing");
        assert_eq!(writers.ended(at(70), 9), [Ended::Uneven(NAME)]);
    }
}
