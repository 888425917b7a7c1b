//! The arm of an emulated disk: which command it serves next, and when that one has ended.
//!
//! Only time is kept here; the device below moves the bytes. No thread drives the arm: whoever looks
//! lets it do first what it would have done since somebody looked last, by the times at which commands
//! came. So commands go on while nobody waits, and a machine that has much else to do does not make
//! the disk slower. Where time is only counted, the arm moves when somebody waits, and no further
//! than that.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use slab::Slab;

use crate::seeking::{SeekModel, SeekStatistics, nanoseconds};

/// Having waited for so long makes up for one part of so many of the time until the head is there: so
/// none waits much longer than so many of the longest seeks.
const PATIENCE: i128 = 60;

/// Where a transfer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// A disk without its bytes.
pub(crate) struct Disk {
    model: SeekModel,
    capacity: u64,
    made: Instant,
    arm: Mutex<Arm>,
}

/// Where the head is, and what is asked of it.
#[derive(Default)]
struct Arm {
    at: u64,
    /// Whether a transfer that starts at `at` needs no wait.
    streaming: bool,
    /// When the last command ended.
    free: Duration,
    /// In the order in which they were given. The first ones are the disk's to choose from.
    waiting: VecDeque<Command>,
    /// What it has begun: nothing that comes later changes that.
    serving: Option<Serving>,
    owners: Slab<Owner>,
    /// Whether a thread wakes up when what is served ends.
    is_watched: bool,
    /// Of what has ended.
    statistics: SeekStatistics,
}

struct Command {
    owner: usize,
    ticket: usize,
    /// None for one that does not need the medium.
    place: Option<Place>,
    came: Duration,
}

struct Serving {
    command: Command,
    cost: Cost,
    ends: Duration,
}

#[derive(Default)]
struct Cost {
    seeking: Duration,
    turning: Duration,
    transferring: Duration,
    overhead: Duration,
}

/// Who gives commands.
#[derive(Default)]
struct Owner {
    /// Tickets of commands that have ended.
    ended: Vec<usize>,
    /// Commands that have not.
    left: usize,
    /// How many ended ones its thread waits for; 0 if it does not wait.
    wants: usize,
    told: Arc<Condvar>,
}

impl Owner {
    fn has(&self, wanted: usize) -> bool {
        self.ended.len() >= wanted || self.left == 0
    }
}

impl Cost {
    fn all(&self) -> Duration {
        self.seeking + self.turning + self.transferring + self.overhead
    }
}

impl Arm {
    fn streams_to(&self, place: Place) -> bool {
        self.streaming && self.at == place.offset
    }

    /// What a command costs that is begun at `start`.
    fn cost(&self, disk: &Disk, place: Option<Place>, start: Duration) -> Cost {
        let model = &disk.model;
        let mut cost = Cost { overhead: model.overhead, ..Cost::default() };
        let Some(place) = place else { return cost };
        if !self.streams_to(place) {
            cost.seeking = model.seek(self.at.abs_diff(place.offset), disk.capacity);
            cost.turning = model.turn(start + cost.overhead + cost.seeking, place.offset);
        }
        cost.transferring = model.transfer(place.length);
        cost
    }

    /// Chooses the command that the head gets to soonest, the time that it has waited considered.
    fn begin_next(&mut self, disk: &Disk) -> Option<Serving> {
        let known = || self.waiting.iter().take(disk.model.commands.max(1));
        let start = self.free.max(known().map(|command| command.came).min()?);
        let rank = |command: &Command| {
            let cost = self.cost(disk, command.place, start);
            let waited = i128::from(nanoseconds(start - command.came));
            i128::from(nanoseconds(cost.seeking + cost.turning)) - waited / PATIENCE
        };
        let has_come = known().enumerate().filter(|(_, command)| command.came <= start);
        let (chosen, _) = has_come.min_by_key(|(_, command)| rank(command))?;
        let command = self.waiting.remove(chosen)?;
        let cost = self.cost(disk, command.place, start);
        let ends = start + cost.all();
        Some(Serving { command, cost, ends })
    }

    /// Ends the next command if it ends until `limit`; whether it did.
    fn step(&mut self, disk: &Disk, limit: Duration) -> bool {
        let next = self.serving.take().or_else(|| self.begin_next(disk));
        match next {
            Some(serving) if serving.ends <= limit => self.end(serving),
            later => {
                self.serving = later;
                return false;
            }
        }
        true
    }

    fn end(&mut self, serving: Serving) {
        let Serving { command, cost, ends } = serving;
        self.count(&command, &cost);
        if let Some(Place { offset, length }) = command.place {
            self.at = offset + length;
        }
        // After a sync the place has gone by.
        self.streaming = command.place.is_some();
        self.free = ends;
        if let Some(owner) = self.owners.get_mut(command.owner) {
            owner.left -= 1;
            owner.ended.push(command.ticket);
            if owner.wants > 0 && owner.has(owner.wants) {
                owner.told.notify_one();
            }
        }
    }

    fn count(&mut self, command: &Command, cost: &Cost) {
        let seeks = command.place.is_some_and(|place| !self.streams_to(place));
        let counters = &mut self.statistics;
        match command.place {
            Some(place) => {
                counters.transfers += 1;
                counters.bytes += place.length;
                counters.seeks += u64::from(seeks);
            }
            None => counters.syncs += 1,
        }
        counters.overhead += cost.overhead;
        counters.seeking += cost.seeking;
        counters.turning += cost.turning;
        counters.transferring += cost.transferring;
    }

    /// Somebody has to look when what is served ends, if anybody waits for anything.
    fn pass_the_watch(&self) {
        if !self.is_watched
            && let Some((_, owner)) = self.owners.iter().find(|(_, owner)| owner.wants > 0)
        {
            owner.told.notify_one();
        }
    }
}

impl Disk {
    /// One whose head stands at the first byte.
    pub(crate) fn new(model: SeekModel, capacity: u64) -> Disk {
        Disk { model, capacity, made: Instant::now(), arm: Mutex::new(Arm::default()) }
    }

    pub(crate) fn sleeps(&self) -> bool {
        self.model.sleeps
    }

    /// The arm, after it has done what it has had the time for. It is whole after every statement, so
    /// panics elsewhere do it no harm.
    fn arm(&self) -> MutexGuard<'_, Arm> {
        let mut arm = self.arm.lock().unwrap_or_else(PoisonError::into_inner);
        self.catch_up(&mut arm);
        arm
    }

    fn catch_up(&self, arm: &mut Arm) {
        if self.model.sleeps {
            let now = self.made.elapsed();
            while arm.step(self, now) {}
        }
    }

    /// The time, by which commands come.
    pub(crate) fn now(&self) -> Duration {
        if self.model.sleeps { self.made.elapsed() } else { self.arm().free }
    }

    pub(crate) fn statistics(&self) -> SeekStatistics {
        self.arm().statistics
    }

    /// Somebody who will give commands.
    pub(crate) fn commands(&self) -> Commands<'_> {
        Commands { disk: self, owner: self.arm().owners.insert(Owner::default()) }
    }

    /// Tickets of what has ended, at least `least` or all.
    fn ended(&self, key: usize, least: usize) -> Vec<usize> {
        let mut arm = self.arm();
        if !self.model.sleeps {
            while !arm.owners[key].has(least) && arm.step(self, Duration::MAX) {}
        }
        while !arm.owners[key].has(least) {
            let now = self.made.elapsed();
            let Some(ends) = arm.serving.as_ref().map(|serving| serving.ends) else { break };
            arm.owners[key].wants = least;
            let told = Arc::clone(&arm.owners[key].told);
            if arm.is_watched {
                arm = told.wait(arm).unwrap_or_else(PoisonError::into_inner);
            } else {
                arm.is_watched = true;
                let waited = told.wait_timeout(arm, ends.saturating_sub(now));
                arm = waited.unwrap_or_else(PoisonError::into_inner).0;
                arm.is_watched = false;
            }
            arm.owners[key].wants = 0;
            self.catch_up(&mut arm);
        }
        arm.pass_the_watch();
        std::mem::take(&mut arm.owners[key].ended)
    }
}

/// The commands of one owner. When it is dropped, those that the disk knows are waited for, and the
/// others are never served.
pub(crate) struct Commands<'d> {
    disk: &'d Disk,
    owner: usize,
}

impl Commands<'_> {
    /// Gives a transfer for each place that is not empty, as if at `came`; how many. A place that is
    /// none of the disk's takes no time: the device below refuses it.
    pub(crate) fn transfer(
        &mut self,
        ticket: usize,
        places: impl IntoIterator<Item = Place>,
        came: Duration,
    ) -> usize {
        let capacity = self.disk.capacity;
        let is_there = |place: &Place| {
            let end = place.offset.checked_add(place.length);
            place.length > 0 && end.is_some_and(|end| end <= capacity)
        };
        self.give(ticket, places.into_iter().filter(is_there).map(Some), came)
    }

    /// As `transfer`, for places that may be sorted.
    pub(crate) fn transfer_batch(&mut self, ticket: usize, mut places: Vec<Place>, came: Duration) {
        if self.disk.model.elevator {
            let at = self.disk.arm().at;
            places.sort_by_key(|place| (place.offset < at, place.offset));
        }
        self.transfer(ticket, places, came);
    }

    /// Gives a sync.
    pub(crate) fn sync(&mut self, ticket: usize, came: Duration) {
        self.give(ticket, [None], came);
    }

    fn give(
        &mut self,
        ticket: usize,
        places: impl IntoIterator<Item = Option<Place>>,
        came: Duration,
    ) -> usize {
        let mut arm = self.disk.arm();
        let before = arm.waiting.len();
        let owner = self.owner;
        let commands = places.into_iter().map(|place| Command { owner, ticket, place, came });
        arm.waiting.extend(commands);
        let given = arm.waiting.len() - before;
        arm.owners[owner].left += given;
        given
    }

    /// The tickets of commands that have ended since this was asked last; waits for `least`, or all.
    pub(crate) fn ended(&mut self, least: usize) -> Vec<usize> {
        self.disk.ended(self.owner, least)
    }

    /// Takes back the commands of a ticket that have not begun; how many.
    pub(crate) fn withdraw(&mut self, ticket: usize) -> usize {
        let mut arm = self.disk.arm();
        let before = arm.waiting.len();
        arm.waiting.retain(|command| command.owner != self.owner || command.ticket != ticket);
        let withdrawn = before - arm.waiting.len();
        arm.owners[self.owner].left -= withdrawn;
        withdrawn
    }

    /// Takes back what the disk does not know yet.
    fn withdraw_unknown(&self) {
        let mut arm = self.disk.arm();
        let mut known = self.disk.model.commands.max(1) - usize::from(arm.serving.is_some());
        let before = arm.waiting.len();
        arm.waiting.retain(|command| {
            let is_known = known > 0;
            known = known.saturating_sub(1);
            is_known || command.owner != self.owner
        });
        let withdrawn = before - arm.waiting.len();
        arm.owners[self.owner].left -= withdrawn;
    }
}

impl Drop for Commands<'_> {
    fn drop(&mut self) {
        self.withdraw_unknown();
        self.ended(usize::MAX);
        self.disk.arm().owners.remove(self.owner);
    }
}
