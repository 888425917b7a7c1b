//! What to fetch next, and what to let go: each block is weighed against what else its memory is good for.

use std::collections::BTreeMap;
use std::ops::Range;

use thiserror::Error;

use crate::estimate::Mean;
use crate::held::{Holdings, Left};
use crate::room::{Last, OUTBIDS, Room, least};
use crate::stream::{Access, Block, Place, Stream};
use crate::{StreamId, StreamName, Teller};

/// How many blocks more than it takes to hide how long fetching one takes: speeds vary.
const SPARE_DEPTH: f64 = 4.0;

/// Accesses of all streams are shared by so many tellers at least.
const LEAST_TELLERS: usize = 4;

/// Of so many streams with hints of an object it is looked at whose a block that nobody holds is: others wait meanwhile.
const MOST_ASKED: usize = 8;

/// What is assumed of a stream before it is known how quickly it is read: blocks a second.
const UNKNOWN_RATE: f64 = 1000.0;

/// Limits.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Most streams at a time.
    pub most_streams: usize,
    /// Most streams of one teller.
    pub most_streams_each: usize,
    /// Most accesses of a stream that are known and not over.
    pub most_hints: usize,
    /// Most accesses of all streams that are known and not over. Tellers share half of them, each at most a fourth of that: so
    /// there are some for those who come later.
    pub most_hints_in_all: usize,
    /// A stream that nothing was heard of for so long makes room for a new one, in nanoseconds.
    pub quiet_ns: u64,
    /// Most blocks that are held at a time for all streams. Whoever has less than an equal part of them gets it.
    pub most_held: usize,
    /// Most blocks that are asked for and have not come.
    pub most_under_way: usize,
    /// Blocks that are held at most for a stream of which nothing was read yet.
    pub first_window: usize,
    /// Blocks of a stream that are held at most, at first, though one was read that comes after them: whoever reads has
    /// left them out, or, as several do the work, comes to them a little later.
    pub first_behind: usize,
    /// So many where it is seen that they are read later, and at most half of all that may be held.
    pub most_behind: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            most_streams: 128,
            most_streams_each: 32,
            most_hints: 1 << 13,
            most_hints_in_all: 1 << 17,
            quiet_ns: 10_000_000_000,
            most_held: 1024,
            most_under_way: 64,
            first_window: 64,
            first_behind: 64,
            most_behind: 1 << 12,
        }
    }
}

/// What memory costs now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    /// Blocks of the cache that nothing is in.
    pub free: usize,
    /// How many more reads a second would have found what they look for, of all that nobody gave a hint of, if they
    /// had one block more.
    pub marginal_hits: f64,
}

/// Why a hint is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HintError {
    /// An access has blocks, and ends before the largest number.
    #[error("an access has at least one block, and its end is a number of 64 bits")]
    Empty,
    /// As many accesses are known as may be.
    #[error("{0} accesses are known already: tell the rest when some are over")]
    TooManyHints(usize),
    /// As many streams are known as may be, all of them are in use, and nobody has many more than who tells this.
    #[error(
        "there are {0} streams already: end one, or tell this when one has been silent for a while"
    )]
    TooManyStreams(usize),
}

/// What a teller has.
#[derive(Debug, Default)]
struct Share {
    streams: usize,
    hints: usize,
}

/// What a stream would have fetched next.
struct Candidate<O> {
    value: f64,
    id: StreamName,
    place: Place,
    block: Block<O>,
    /// Which stream gives one up for it, if all the memory is taken.
    room_by: Option<StreamName>,
}

/// See the crate.
#[derive(Debug)]
pub struct Planner<O> {
    settings: Settings,
    streams: BTreeMap<StreamName, Stream<O>>,
    /// Whoever has a stream.
    tellers: BTreeMap<Teller, Share>,
    holdings: Holdings<O>,
    /// How long fetching a block takes, in nanoseconds.
    latency: Mean,
    released: Vec<Block<O>>,
}

impl<O: Copy + Ord> Planner<O> {
    /// One that knows of nothing yet.
    pub fn new(settings: Settings) -> Planner<O> {
        Planner {
            settings,
            streams: BTreeMap::new(),
            tellers: BTreeMap::new(),
            holdings: Holdings::new(),
            latency: Mean::unknown(),
            released: Vec::new(),
        }
    }

    /// Somebody will read this, after all that has lower ordinals in the stream. What is told again, or after it is over,
    /// changes nothing. The stream begins when it is first hinted, also after its end; where there are too many, one that is
    /// silent ends for it, or one of the teller who has most.
    ///
    /// # Errors
    ///
    /// Any [`HintError`]; then nothing has changed.
    pub fn hint(
        &mut self,
        stream: StreamName,
        ordinal: u64,
        access: Access<O>,
        now: u64,
    ) -> Result<(), HintError> {
        if access.blocks() == 0 || access.first().checked_add(access.blocks()).is_none() {
            return Err(HintError::Empty);
        }
        let has_share = self.has_share_of_hints(stream.teller);
        if let Some(known) = self.streams.get_mut(&stream) {
            known.last_heard = now;
            if known.knows(ordinal) {
                return Ok(());
            }
        }
        let hints = self.streams.get(&stream).map_or(0, Stream::hints);
        if hints >= self.settings.most_hints || !has_share {
            return Err(HintError::TooManyHints(hints));
        }
        if !self.streams.contains_key(&stream) {
            self.begin(stream, now)?;
        }
        let Some(known) = self.streams.get_mut(&stream) else { return Ok(()) };
        known.hint(ordinal, access);
        self.tellers.entry(stream.teller).or_default().hints += 1;
        Ok(())
    }

    /// Begins a stream that is not known.
    fn begin(&mut self, stream: StreamName, now: u64) -> Result<(), HintError> {
        self.make_way(stream.teller, now)?;
        self.streams.insert(stream, Stream::new(&self.settings, now));
        self.tellers.entry(stream.teller).or_default().streams += 1;
        Ok(())
    }

    /// The streams of a teller.
    fn of(&self, teller: Teller) -> impl Iterator<Item = (&StreamName, &Stream<O>)> {
        let (first, last) = (StreamId::MIN, StreamId::MAX);
        self.streams.range(StreamName { teller, id: first }..=StreamName { teller, id: last })
    }

    /// Whether a teller may tell one access more.
    fn has_share_of_hints(&self, teller: Teller) -> bool {
        let own = self.tellers.get(&teller);
        let tellers = (self.tellers.len() + usize::from(own.is_none())).max(LEAST_TELLERS);
        let all: usize = self.tellers.values().map(|share| share.hints).sum();
        let most = self.settings.most_hints_in_all;
        own.map_or(0, |own| own.hints) < (most / 2 / tellers).max(1) && all < most
    }

    /// Ends a stream if there is no room for one more of a teller.
    fn make_way(&mut self, teller: Teller, now: u64) -> Result<(), HintError> {
        let own = self.tellers.get(&teller).map_or(0, |own| own.streams);
        let victim = if own >= self.settings.most_streams_each {
            self.quietest(self.of(teller), now).ok_or(HintError::TooManyStreams(own))?
        } else if self.streams.len() >= self.settings.most_streams {
            let silent = self.quietest(self.streams.iter(), now);
            let victim = silent.or_else(|| self.of_the_richest(own, now));
            victim.ok_or(HintError::TooManyStreams(self.streams.len()))?
        } else {
            return Ok(());
        };
        self.end(victim);
        Ok(())
    }

    /// The one that is worth least of the teller who has most streams, if he has more than another who gets one more.
    fn of_the_richest(&self, own: usize, now: u64) -> Option<StreamName> {
        let (richest, share) = self.tellers.iter().max_by_key(|(_, share)| share.streams)?;
        let value = |stream: &Stream<O>| self.value(stream, 1, now);
        let streams = (share.streams > own + 1).then(|| self.of(*richest))?;
        let least = streams.min_by(|a, b| value(a.1).total_cmp(&value(b.1)));
        least.map(|(name, _)| *name)
    }

    /// Of streams, the one that was silent longest, if that is long.
    fn quietest<'s>(
        &self,
        streams: impl Iterator<Item = (&'s StreamName, &'s Stream<O>)>,
        now: u64,
    ) -> Option<StreamName>
    where
        O: 's,
    {
        let quiet = |stream: &Stream<O>| stream.last_heard.saturating_add(self.settings.quiet_ns);
        let (name, stream) = streams.min_by_key(|(_, stream)| stream.last_heard)?;
        (quiet(stream) <= now).then_some(*name)
    }

    /// All accesses of a stream before an ordinal are over, wherever they were answered from; so many of so many, of those
    /// that are over since this was last told, were not made at all: the hints were wrong. Whether the stream is known: if
    /// not, nothing is written down.
    pub fn pass(
        &mut self,
        stream: StreamName,
        ordinal: u64,
        skipped: (u64, u64),
        now: u64,
    ) -> bool {
        let Some(known) = self.streams.get_mut(&stream) else { return false };
        let before = known.hints();
        let (unread, blocks) = known.pass(ordinal, skipped);
        let over = before - known.hints();
        known.last_heard = now;
        if blocks > 0 {
            known.rate.note(blocks, now);
        }
        if let Some(share) = self.tellers.get_mut(&stream.teller) {
            share.hints = share.hints.saturating_sub(over);
        }
        self.drop_uses(stream, unread);
        true
    }

    /// Somebody reads a block; whether it was held for that.
    pub fn read(&mut self, block: Block<O>, now: u64) -> bool {
        let held = self.holdings.first_user(block);
        let of_object = |(_, known): &(&StreamName, &Stream<O>)| known.knows_of(block.object);
        let streams = || self.streams.iter().filter(of_object).take(MOST_ASKED);
        let ahead = || streams().find_map(|(id, known)| Some((*id, known.place_of(block)?)));
        let late = || streams().find_map(|(id, known)| Some((*id, known.late_place_of(block)?)));
        let found = held.or_else(ahead).or_else(late);
        let Some((stream, place)) = found else { return false };
        let Some(known) = self.streams.get_mut(&stream) else { return false };
        let mut over = match held {
            Some(_) => known.read(place),
            None => known.read_elsewhere(place),
        };
        known.rate.note(1 + over.len() as u64, now);
        known.last_heard = now;
        if held.is_some() {
            over.push((place, block));
        }
        self.drop_uses(stream, over);
        held.is_some()
    }

    /// Which bytes of its object are hinted of a block: ranges that may overlap, and go beyond it. `None` if that is all of it,
    /// or not known.
    pub fn parts(&self, block: Block<O>) -> Option<Vec<Range<u64>>> {
        let mut all = Vec::new();
        for stream in self.streams.values() {
            all.extend(stream.parts(block)?);
        }
        (!all.is_empty()).then_some(all)
    }

    /// A stream is over, whatever was not read of it.
    pub fn end(&mut self, stream: StreamName) {
        let Some(known) = self.streams.remove(&stream) else { return };
        if let Some(share) = self.tellers.get_mut(&stream.teller) {
            share.streams = share.streams.saturating_sub(1);
            share.hints = share.hints.saturating_sub(known.hints());
            if share.streams == 0 {
                self.tellers.remove(&stream.teller);
            }
        }
        self.drop_uses(stream, known.into_held());
    }

    /// Ends the streams that nothing was heard of since then.
    pub fn end_silent(&mut self, since: u64) {
        let silent = |(stream, known): (&StreamName, &Stream<O>)| {
            (known.last_heard < since).then_some(*stream)
        };
        for stream in self.streams.iter().filter_map(silent).collect::<Vec<_>>() {
            self.end(stream);
        }
    }

    /// A block that is worth its memory, and is to be fetched now. It is held from now on, and [`came`](Self::came) is
    /// expected.
    pub fn next(&mut self, costs: Costs, now: u64) -> Option<Block<O>> {
        while self.holdings.under_way() < self.settings.most_under_way {
            let Candidate { id, place, block, room_by, .. } = self.best(costs, now)?;
            match room_by.map(|id| self.give_up(id)) {
                // It makes room when it has come.
                Some(Left::UnderWay) => return None,
                // It is held still: what is best now may be another one.
                Some(Left::Wanted) => continue,
                Some(Left::Free) | None => {}
            }
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.hold(place, block);
            }
            if self.holdings.add(block, (id, place), now) {
                return Some(block);
            }
        }
        None
    }

    /// Of the next blocks of all streams that are worth their memory, and have some, the one of most value. That there is no room for
    /// one of much value keeps nobody from what he is owed.
    fn best(&self, costs: Costs, now: u64) -> Option<Candidate<O>> {
        let room = (self.holdings.len() >= self.settings.most_held).then(|| self.room(now));
        let candidate = |(id, stream): (&StreamName, &Stream<O>)| {
            let (place, block) = stream.next()?;
            if stream.depth() >= stream.window() {
                return None;
            }
            let value = self.value(stream, stream.depth() + 1, now);
            // What is there already takes no memory.
            let is_there = self.holdings.has(block);
            if !is_there && !self.is_worth(stream, costs, now) {
                return None;
            }
            let room_by = match &room {
                Some(room) if !is_there => Some(room.made_by(id.teller, value)?),
                _ => None,
            };
            Some(Candidate { value, id: *id, place, block, room_by })
        };
        self.streams.iter().filter_map(candidate).max_by(|a, b| a.value.total_cmp(&b.value))
    }

    fn room(&self, now: u64) -> Room {
        let holds = |(id, stream): (&StreamName, &Stream<O>)| {
            (*id, stream.held(), self.last(*id, stream, now))
        };
        Room::new(self.settings.most_held, self.streams.iter().map(holds))
    }

    /// Gives up what others have a better use for: the memory is theirs when it is released.
    pub fn reconsider(&mut self, costs: Costs, now: u64) {
        while costs.free == 0
            && let Some((least, id)) = self.least(now)
            && least * OUTBIDS < costs.marginal_hits
            && self.give_up(id) == Left::Free
        {}
    }

    /// What is worth least of all that is held, and whose it is.
    fn least(&self, now: u64) -> Option<Last> {
        least(self.streams.iter().filter_map(|(id, stream)| self.last(*id, stream, now)))
    }

    /// What a stream would give up first is worth: nothing if it was left out.
    fn last(&self, id: StreamName, stream: &Stream<O>, now: u64) -> Option<Last> {
        let value = match stream.has_left_out() {
            true => 0.0,
            false => self.value(stream, stream.depth(), now),
        };
        (stream.held() > 0).then_some((value, id))
    }

    fn give_up(&mut self, id: StreamName) -> Left {
        let given_up = self.streams.get_mut(&id).and_then(Stream::give_up);
        given_up.map_or(Left::Wanted, |(place, block)| self.drop_use(id, place, block))
    }

    /// How many fetches a second are not waited for because a stream has so many blocks fetched ahead, and not one less:
    /// how long one takes is spread over the reads meanwhile (section 4 of the paper of 1995), as far as the hints are
    /// right.
    fn value(&self, stream: &Stream<O>, depth: usize, now: u64) -> f64 {
        let rate = stream.rate.per_second(UNKNOWN_RATE, now);
        let accuracy = stream.accuracy.get().unwrap_or(1.0);
        accuracy * rate / (depth as f64 * (depth as f64 + 1.0))
    }

    /// Whether one block more is worth what others lose.
    fn is_worth(&self, stream: &Stream<O>, costs: Costs, now: u64) -> bool {
        if costs.free > 0 || costs.marginal_hits <= 0.0 {
            return true;
        }
        let depth = stream.depth() + 1;
        depth as f64 <= self.horizon(stream, now)
            && self.value(stream, depth, now) >= costs.marginal_hits
    }

    /// How many blocks have to be on their way for none to be waited for, twice: a stream that waits is read as quickly
    /// as it is fetched, so that its rate says half of what it could be.
    fn horizon(&self, stream: &Stream<O>, now: u64) -> f64 {
        match self.latency.get() {
            Some(latency) if stream.rate.is_known() => {
                let rate = stream.rate.per_second(UNKNOWN_RATE, now);
                2.0 * rate * latency / 1e9 + SPARE_DEPTH
            }
            _ => f64::INFINITY,
        }
    }

    /// A block that was to be fetched is there, or can't be.
    pub fn came(&mut self, block: Block<O>, now: u64) {
        let Some((latency, is_unwanted)) = self.holdings.came(block, now) else { return };
        self.latency.note(latency as f64);
        if is_unwanted {
            self.released.push(block);
        }
    }

    /// Lets blocks go that are held, those that are worth least first, as their memory is needed; how many. Those that
    /// are under way are released when they have come.
    pub fn surrender(&mut self, wanted: usize, now: u64) -> usize {
        let mut given_up = 0;
        while given_up < wanted
            && let Some((_, id)) = self.least(now)
        {
            given_up += usize::from(self.give_up(id) != Left::Wanted);
        }
        given_up
    }

    fn drop_uses(&mut self, stream: StreamName, uses: impl IntoIterator<Item = (Place, Block<O>)>) {
        for (place, block) in uses {
            self.drop_use(stream, place, block);
        }
    }

    fn drop_use(&mut self, stream: StreamName, place: Place, block: Block<O>) -> Left {
        let left = self.holdings.remove(block, (stream, place));
        if left == Left::Free {
            self.released.push(block);
        }
        left
    }

    /// Blocks that have come and need not be kept any more, since this was last asked: they were read, passed, or given
    /// up.
    pub fn released(&mut self) -> Vec<Block<O>> {
        std::mem::take(&mut self.released)
    }

    /// All blocks that are held or under way, or were released and not asked for, where the planner is not used any more.
    pub fn into_held(mut self) -> Vec<Block<O>> {
        self.released.extend(self.holdings.blocks());
        self.released
    }

    /// Blocks that are held, or under way.
    pub fn held(&self) -> usize {
        self.holdings.len()
    }

    /// Blocks that were asked for and have not come.
    pub fn under_way(&self) -> usize {
        self.holdings.under_way()
    }

    /// Whether a block was asked for and has not come.
    pub fn is_under_way(&self, block: Block<O>) -> bool {
        self.holdings.is_under_way(block)
    }

    /// Streams that are known.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }
}
