//! What applications were promised, byte by byte; it knows nothing of drives, copies or stripes.
//!
//! Of each byte it keeps which writes it may be of. A write that was acknowledged puts all out that had ended before it
//! began; those that were under way at the same time, or failed, may come after it. What was read is what the byte
//! is, from then on, unless something of it was under way. When a drive has crashed, what was not made durable may be
//! as it was before; what was, may not. Writes are told apart by the bytes that they write.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// Most bytes of an object.
pub const REACH: u64 = 96 << 10;

/// A write, or a change of length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(u32);

/// What there was before the first write: zeros.
const NOTHING: WriteId = WriteId(0);

/// A read under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadId(u64);

/// A flush under way.
#[derive(Clone, Copy, Debug)]
pub struct FlushId {
    begun: u64,
    changes: u64,
    /// Whether it is for what others wrote too.
    of_all: bool,
}

/// Which object, for the checker.
pub type Object = usize;

/// What was read is not what may be there, or something of that kind.
pub type Violation = String;

#[derive(Clone, Debug)]
struct Write {
    object: Object,
    client: usize,
    range: Range<u64>,
    /// It makes the bytes zeros.
    cuts: bool,
    begun: u64,
    /// When it was acknowledged, or failed.
    ended: Option<u64>,
    acknowledged: bool,
    /// What the drives told, to be compared with what a flush tells.
    instance: u64,
    /// Whose bytes it has: its own, but for what a copy has of another object.
    bytes_of: WriteId,
}

/// What a byte may be of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// Now.
    now: Vec<WriteId>,
    /// After a crash besides.
    before: Vec<WriteId>,
    /// What may come yet.
    pending: Vec<WriteId>,
}

#[derive(Clone, Debug)]
struct Contents {
    /// By bytes, which of the states.
    bytes: Vec<u32>,
    states: Vec<State>,
    known: HashMap<State, u32>,
    /// What the length may be, and the least that it may be after a crash.
    least: u64,
    most: u64,
    least_durable: u64,
    /// Rises with everything that changes what bytes may be.
    changes: u64,
    /// Writes that are not known to be durable.
    unflushed: BTreeSet<WriteId>,
    reads: BTreeMap<ReadId, Read>,
}

#[derive(Clone, Debug)]
struct Read {
    range: Range<u64>,
    states: Vec<u32>,
    /// What has begun since.
    besides: Vec<WriteId>,
    crashed: bool,
    least: u64,
    most: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Checker {
    /// What happens, in order.
    clock: u64,
    writes: Vec<Write>,
    objects: Vec<Contents>,
    reads: u64,
    /// When a drive has lost what was not durable.
    crashes: Vec<u64>,
    /// How many drives have each byte.
    copies: u16,
    /// When all copies were the same last.
    made_even: u64,
}

/// The byte that a write has at an offset.
pub fn byte_of(write: WriteId, offset: u64) -> u8 {
    let mixed = (u64::from(write.0) << 32 ^ offset).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as u8
}

/// All bytes of it.
pub fn bytes_of(write: WriteId, range: Range<u64>) -> Vec<u8> {
    range.map(|offset| byte_of(write, offset)).collect()
}

fn insert(set: &mut Vec<WriteId>, write: WriteId) {
    if let Err(at) = set.binary_search(&write) {
        set.insert(at, write);
    }
}

/// Whether somebody has set, or was setting, an object's length after that.
fn is_cut_since(writes: &[Write], object: Object, begun: u64) -> bool {
    let since = |write: &Write| write.ended.is_none_or(|ended| ended > begun);
    writes.iter().any(|write| write.object == object && write.cuts && since(write))
}

impl Contents {
    fn new() -> Contents {
        let state = State { now: vec![NOTHING], before: vec![NOTHING], pending: Vec::new() };
        Contents {
            bytes: vec![0; REACH as usize],
            states: vec![state.clone()],
            known: HashMap::from([(state, 0)]),
            least: 0,
            most: 0,
            least_durable: 0,
            changes: 0,
            unflushed: BTreeSet::new(),
            reads: BTreeMap::new(),
        }
    }

    fn state(&mut self, state: State) -> u32 {
        if let Some(known) = self.known.get(&state) {
            return *known;
        }
        let number = self.states.len() as u32;
        self.known.insert(state.clone(), number);
        self.states.push(state);
        number
    }

    /// Changes what bytes of a range may be.
    fn change(&mut self, range: Range<u64>, mut change: impl FnMut(&mut State)) {
        self.changes += 1;
        let mut done: HashMap<u32, u32> = HashMap::new();
        let mut last = (u32::MAX, 0);
        for at in range.start.min(REACH)..range.end.min(REACH) {
            let before = self.bytes[at as usize];
            if last.0 != before {
                let after = match done.get(&before) {
                    Some(after) => *after,
                    None => {
                        let mut state = self.states[before as usize].clone();
                        change(&mut state);
                        let after = self.state(state);
                        done.insert(before, after);
                        after
                    }
                };
                last = (before, after);
            }
            self.bytes[at as usize] = last.1;
        }
    }

    fn lengths(&mut self) {
        let (least, most) = (self.least, self.most);
        for read in self.reads.values_mut() {
            read.least = read.least.min(least);
            read.most = read.most.max(most);
        }
    }
}

impl Checker {
    /// A checker of nothing yet.
    pub fn new(copies: u16) -> Checker {
        let nothing = Write {
            object: usize::MAX,
            client: usize::MAX,
            range: 0..REACH,
            cuts: true,
            begun: 0,
            ended: Some(0),
            acknowledged: true,
            instance: 0,
            bytes_of: NOTHING,
        };
        Checker { writes: vec![nothing], copies, ..Checker::default() }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A new object, which is empty.
    pub fn create(&mut self) -> Object {
        self.objects.push(Contents::new());
        self.objects.len() - 1
    }

    /// Somebody begins to copy an object.
    pub fn begin_copy(&mut self, source: Object) -> ReadId {
        self.begin_read(source, 0..REACH)
    }

    /// There is a copy, durable, of what the source was in between, or of what was under way or lost meanwhile.
    pub fn end_copy(&mut self, source: Object, id: ReadId) -> Object {
        let copy = self.create();
        let Some(read) = self.objects[source].reads.remove(&id) else { return copy };
        self.tick();
        let mut own: HashMap<WriteId, WriteId> = HashMap::new();
        let mut done: HashMap<(u32, Vec<WriteId>), u32> = HashMap::new();
        for (at, number) in read.states.iter().enumerate() {
            let meanwhile =
                |write: &&WriteId| self.writes[write.0 as usize].range.contains(&(at as u64));
            let besides: Vec<WriteId> = read.besides.iter().filter(meanwhile).copied().collect();
            let key = (*number, besides);
            let state = match done.get(&key) {
                Some(known) => *known,
                None => {
                    let source = self.objects[source].states[*number as usize].clone();
                    let state = self.copied(copy, &mut own, &source, (&key.1, read.crashed));
                    let made = self.objects[copy].state(state);
                    done.insert(key, made);
                    made
                }
            };
            self.objects[copy].bytes[at] = state;
        }
        let contents = &mut self.objects[copy];
        (contents.least, contents.most) = (read.least, read.most);
        contents.least_durable = read.least;
        copy
    }

    /// What a byte of a copy may be of, by what it was in the source when that began to be copied.
    fn copied(
        &mut self,
        copy: Object,
        own: &mut HashMap<WriteId, WriteId>,
        source: &State,
        (besides, crashed): (&[WriteId], bool),
    ) -> State {
        let lost: &[WriteId] = if crashed { &source.before } else { &[] };
        let unsure = source.pending.iter().chain(besides).chain(lost);
        let (mut now, mut pending) = (Vec::new(), Vec::new());
        for write in source.now.iter().chain(unsure.clone()) {
            insert(&mut now, self.own_write(copy, own, *write));
        }
        // Of several copies one may have got it, and another one not, by which it is decided later.
        if self.copies > 1 {
            unsure.for_each(|write| insert(&mut pending, own[write]));
        }
        State { before: now.clone(), now, pending }
    }

    /// The same bytes, written by the copying.
    fn own_write(
        &mut self,
        copy: Object,
        own: &mut HashMap<WriteId, WriteId>,
        write: WriteId,
    ) -> WriteId {
        if let Some(known) = own.get(&write) {
            return *known;
        }
        let made = WriteId(self.writes.len() as u32);
        let original = self.writes[write.0 as usize].clone();
        self.writes.push(Write {
            object: copy,
            client: usize::MAX,
            ended: Some(self.clock),
            acknowledged: true,
            ..original
        });
        own.insert(write, made);
        made
    }

    /// Whether the first had ended before the second began.
    fn precedes(&self, first: WriteId, second: WriteId) -> bool {
        let ended = self.writes[first.0 as usize].ended;
        ended.is_some_and(|ended| ended < self.writes[second.0 as usize].begun)
    }

    fn begin(&mut self, object: Object, client: usize, range: Range<u64>, cuts: bool) -> WriteId {
        let begun = self.tick();
        let write = WriteId(self.writes.len() as u32);
        self.writes.push(Write {
            object,
            client,
            range: range.clone(),
            cuts,
            begun,
            ended: None,
            acknowledged: false,
            instance: 0,
            bytes_of: write,
        });
        let contents = &mut self.objects[object];
        contents.change(range.clone(), |state| insert(&mut state.pending, write));
        for read in contents.reads.values_mut() {
            if read.range.start < range.end && range.start < read.range.end {
                read.besides.push(write);
            }
        }
        if cuts {
            contents.least = contents.least.min(range.start);
            contents.least_durable = contents.least_durable.min(range.start);
            contents.most = contents.most.max(range.start);
        } else {
            contents.most = contents.most.max(range.end);
        }
        contents.lengths();
        write
    }

    /// Somebody writes; the bytes are to be those of [`bytes_of`].
    pub fn begin_write(&mut self, object: Object, client: usize, range: Range<u64>) -> WriteId {
        self.begin(object, client, range, false)
    }

    /// Somebody sets the length.
    pub fn begin_cut(&mut self, object: Object, client: usize, length: u64) -> WriteId {
        self.begin(object, client, length..REACH, true)
    }

    /// It was acknowledged.
    pub fn acknowledge(&mut self, object: Object, write: WriteId, instance: u64, durable: bool) {
        let ended = self.tick();
        let known = &mut self.writes[write.0 as usize];
        (known.ended, known.acknowledged, known.instance) = (Some(ended), true, instance);
        let Write { range, cuts, begun, .. } = known.clone();
        let older = self.preceding(object, write);
        // A part that a drive had already may have been lost there before the rest was written.
        let is_whole = durable || self.crashes.last().is_none_or(|crash| *crash < begun);
        let contents = &mut self.objects[object];
        contents.change(range.clone(), |state| {
            state.pending.retain(|other| *other != write && !older.contains(other));
            state.now.retain(|other| !is_whole || !older.contains(other));
            insert(&mut state.now, write);
            if durable {
                state.before.retain(|other| !older.contains(other));
            }
            insert(&mut state.before, write);
        });
        if cuts {
            let writes = &self.writes;
            // What was done meanwhile may have come later.
            let meanwhile = |other: &Write| other.ended.is_none_or(|ended| ended > begun);
            let longest = writes[1..]
                .iter()
                .filter(|other| other.object == object && meanwhile(other))
                .map(|other| if other.cuts { other.range.start } else { other.range.end })
                .max();
            let shortest = writes[1..]
                .iter()
                .filter(|other| other.object == object && other.cuts && meanwhile(other))
                .map(|other| other.range.start)
                .min();
            contents.most = range.start.max(longest.unwrap_or(0));
            contents.least = range.start.min(shortest.unwrap_or(u64::MAX));
            contents.least_durable = contents.least;
        } else {
            let is_cut = is_cut_since(&self.writes, object, begun);
            if !is_cut && is_whole {
                contents.least = contents.least.max(range.end);
                if durable {
                    contents.least_durable = contents.least_durable.max(range.end);
                }
            }
            if !durable {
                contents.unflushed.insert(write);
            }
        }
        contents.lengths();
    }

    /// Which of the writes that an object may be of had ended before this one began.
    fn preceding(&self, object: Object, write: WriteId) -> BTreeSet<WriteId> {
        let states = self.objects[object].states.iter();
        let all = states
            .flat_map(|state| state.now.iter().chain(&state.before).chain(&state.pending).copied());
        let all: BTreeSet<WriteId> = all.collect();
        all.into_iter().filter(|other| self.precedes(*other, write)).collect()
    }

    /// It failed, or whoever wrote is dead: it may have been done.
    pub fn fail(&mut self, write: WriteId) {
        let ended = self.tick();
        self.writes[write.0 as usize].ended = Some(ended);
    }

    /// Somebody begins to make an object durable.
    pub fn begin_flush(&mut self, object: Object) -> FlushId {
        FlushId { begun: self.tick(), changes: self.objects[object].changes, of_all: true }
    }

    /// A durable write begins, which makes durable what the same client wrote before.
    pub fn begin_durable_write(&mut self, object: Object) -> FlushId {
        FlushId { of_all: false, ..self.begin_flush(object) }
    }

    /// It is durable, whatever was acknowledged before; of what this client wrote, that of which the drives have told
    /// the same instance.
    pub fn end_flush(&mut self, object: Object, client: usize, flush: FlushId, instance: u64) {
        let contents = &self.objects[object];
        let last_crash = self.crashes.last().copied().unwrap_or(0);
        let is_durable = |write: &&WriteId| {
            let Write { client: of, begun, ended, instance: told, .. } =
                self.writes[write.0 as usize];
            let was_there = ended.is_some_and(|ended| ended < flush.begun);
            let is_own = of == client;
            let is_of_it = is_own || flush.of_all;
            was_there && is_of_it && (last_crash < begun || (is_own && told == instance))
        };
        let durable: Vec<WriteId> = contents.unflushed.iter().filter(is_durable).copied().collect();
        for write in durable {
            let older = self.preceding(object, write);
            let Write { range, begun, .. } = self.writes[write.0 as usize].clone();
            let is_cut = is_cut_since(&self.writes, object, begun);
            let contents = &mut self.objects[object];
            contents.unflushed.remove(&write);
            let is_put_out = |state: &State| {
                state.now.binary_search(&write).is_ok()
                    || state.before.binary_search(&write).is_ok()
            };
            let changes = contents.changes;
            contents.change(range.clone(), |state| {
                if is_put_out(state) {
                    state.now.retain(|other| !older.contains(other));
                    state.before.retain(|other| !older.contains(other));
                    if state.now.is_empty() {
                        insert(&mut state.now, write);
                    }
                }
            });
            contents.changes = changes;
            if !is_cut {
                contents.least_durable = contents.least_durable.max(range.end);
                contents.least = contents.least.max(range.end);
            }
        }
        let contents = &mut self.objects[object];
        let is_alone = flush.of_all && self.copies == 1;
        if is_alone && contents.changes == flush.changes && last_crash < flush.begun {
            // Whatever it is, it stays that. (Where there are others, one of them may have what this copy has lost.)
            contents.change(0..REACH, |state| state.before.clone_from(&state.now));
            contents.changes = flush.changes;
        }
    }

    /// A drive may have lost what was not durable.
    pub fn crash(&mut self) {
        let now = self.tick();
        self.crashes.push(now);
        for contents in &mut self.objects {
            contents.change(0..REACH, |state| {
                for write in state.before.clone() {
                    insert(&mut state.now, write);
                }
            });
            contents.least = contents.least.min(contents.least_durable);
            contents.reads.values_mut().for_each(|read| read.crashed = true);
            contents.lengths();
        }
    }

    /// All copies are the same, and nobody writes.
    pub fn make_even(&mut self) {
        self.made_even = self.tick();
    }

    /// Of what a byte may be, where some of it was read: what it may be from then on. A copy that was read may have lost
    /// in a crash what another one has, by which it is decided when the first one is out; until they are made even.
    fn after_read(&self, state: &State, mut read: Vec<WriteId>) -> Vec<WriteId> {
        let last_crash = self.crashes.last().copied().unwrap_or(0);
        if self.copies == 1 || last_crash <= self.made_even {
            return read;
        }
        let may_be_lost = |write: &WriteId| self.writes[write.0 as usize].begun < last_crash;
        if read.iter().any(may_be_lost) {
            let others = state.now.iter().filter(|write| state.before.contains(write));
            let others: Vec<_> = others.copied().filter(may_be_lost).collect();
            others.into_iter().for_each(|write| insert(&mut read, write));
        }
        read
    }

    /// Somebody reads.
    pub fn begin_read(&mut self, object: Object, range: Range<u64>) -> ReadId {
        self.reads += 1;
        let id = ReadId(self.reads);
        let contents = &mut self.objects[object];
        let states = contents.bytes[range.start as usize..range.end as usize].to_vec();
        let (least, most) = (contents.least, contents.most);
        let read = Read { range, states, besides: Vec::new(), crashed: false, least, most };
        contents.reads.insert(id, read);
        id
    }

    /// It came to nothing.
    pub fn give_up_read(&mut self, object: Object, read: ReadId) {
        self.objects[object].reads.remove(&read);
    }

    /// This was read, or so much of it as there is.
    pub fn end_read(&mut self, object: Object, id: ReadId, data: &[u8]) -> Result<(), Violation> {
        let Some(read) = self.objects[object].reads.remove(&id) else { return Ok(()) };
        self.check_length(&read, data.len() as u64)?;
        let mut narrowed: HashMap<(u32, Vec<WriteId>), u32> = HashMap::new();
        let mut last: Option<((u32, Vec<WriteId>), u32)> = None;
        for (index, value) in data.iter().enumerate() {
            let at = read.range.start + index as u64;
            let number = read.states[index];
            let state = &self.objects[object].states[number as usize];
            let mut now = Vec::new();
            for write in state.now.iter().chain(&state.pending) {
                if self.value(*write, at) == *value {
                    insert(&mut now, *write);
                }
            }
            let before = if read.crashed { &state.before[..] } else { &[] };
            let is_late = || {
                let mut late = before.iter().chain(&read.besides);
                late.any(|write| self.value(*write, at) == *value)
            };
            if now.is_empty() && !is_late() {
                return Err(self.explain(object, &read, (at, *value), state));
            }
            // Nothing was under way: this is what it is. What was read before a crash says nothing of what is there after it, which
            // may be of the same writes as before.
            let is_known = !read.crashed && self.objects[object].bytes[at as usize] == number;
            if is_known && !now.is_empty() {
                let key = (number, now);
                if let Some((known, next)) = &last
                    && *known == key
                {
                    self.objects[object].bytes[at as usize] = *next;
                    continue;
                }
                let next = match narrowed.get(&key) {
                    Some(next) => *next,
                    None => {
                        let now = self.after_read(state, key.1.clone());
                        let state = State { now, ..state.clone() };
                        let next = self.objects[object].state(state);
                        narrowed.insert(key.clone(), next);
                        next
                    }
                };
                last = Some((key, next));
                self.objects[object].bytes[at as usize] = next;
            }
        }
        Ok(())
    }

    fn check_length(&self, read: &Read, length: u64) -> Result<(), Violation> {
        let Read { range, least, most, .. } = read;
        let end = range.start + length;
        let is_short = end < range.end;
        if is_short && (end < (*least).min(range.end) || length > 0 && end > *most) {
            return Err(format!(
                "a read of {range:?} ends at {end}, the length is {least}..={most}"
            ));
        }
        if !is_short && length > 0 && end > *most {
            return Err(format!("a read of {range:?} is full, the length is {least}..={most}"));
        }
        Ok(())
    }

    /// A length that was told, while nothing of the object was under way.
    pub fn check_size(&self, object: Object, size: u64) -> Result<(), Violation> {
        let Contents { least, most, .. } = &self.objects[object];
        match (least..=most).contains(&&size) {
            true => Ok(()),
            false => Err(format!("object {object} has {size} bytes, not {least}..={most}")),
        }
    }

    fn value(&self, write: WriteId, offset: u64) -> u8 {
        match self.writes[write.0 as usize].cuts {
            true => 0,
            false => byte_of(self.writes[write.0 as usize].bytes_of, offset),
        }
    }

    fn explain(
        &self,
        object: Object,
        read: &Read,
        (at, value): (u64, u8),
        state: &State,
    ) -> Violation {
        let about = |write: &WriteId| {
            let known = &self.writes[write.0 as usize];
            let kind = if known.cuts { "cut" } else { "write" };
            let ended = match (known.ended, known.acknowledged) {
                (None, _) => "is under way".to_owned(),
                (Some(then), true) => format!("acknowledged {then}"),
                (Some(then), false) => format!("failed {then}"),
            };
            let Write { client, range, begun, .. } = known;
            format!("{kind} {} of client {client}, {range:?}, begun {begun}, {ended}", write.0)
        };
        let all = |writes: &[WriteId]| writes.iter().map(about).collect::<Vec<_>>();
        let seen = (0..self.writes.len() as u32).map(WriteId).filter(|write| {
            let known = &self.writes[write.0 as usize];
            known.range.contains(&at) && self.value(*write, at) == value
        });
        let seen: Vec<WriteId> = seen.collect();
        format!(
            "byte {at} of object {object} is {value:#04x}, as of {:#?}\nit may be of {:#?}\nor yet of {:#?}\nor after a crash of {:#?}\nat {} (read of {:?})",
            all(&seen),
            all(&state.now),
            all(&state.pending),
            all(&state.before),
            self.clock,
            read.range,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        checker: &mut Checker,
        object: Object,
        write: Option<WriteId>,
    ) -> Result<(), Violation> {
        let id = checker.begin_read(object, 0..10);
        let bytes = write.map_or(vec![0; 10], |write| bytes_of(write, 0..10));
        checker.end_read(object, id, &bytes)
    }

    fn written(checker: &mut Checker, object: Object) -> WriteId {
        let write = checker.begin_write(object, 1, 0..10);
        checker.acknowledge(object, write, 7, false);
        write
    }

    /// Another one that knows the same, to see what else might have been read.
    fn same_again(checker: &Checker) -> Checker {
        let (objects, writes) = (checker.objects.clone(), checker.writes.clone());
        Checker { objects, writes, ..Checker::new(checker.copies) }
    }

    #[test]
    fn what_was_acknowledged_is_read_and_what_was_before_is_not() {
        let mut checker = Checker::new(1);
        let object = checker.create();
        let first = written(&mut checker, object);
        read(&mut checker, object, Some(first)).unwrap();
        let second = written(&mut checker, object);
        assert!(read(&mut checker, object, Some(first)).is_err());
        read(&mut checker, object, Some(second)).unwrap();
        assert!(read(&mut checker, object, None).is_err());
    }

    #[test]
    fn a_crash_may_lose_what_was_not_flushed_and_nothing_else() {
        let mut checker = Checker::new(1);
        let object = checker.create();
        let first = written(&mut checker, object);
        let flush = checker.begin_flush(object);
        checker.end_flush(object, 1, flush, 7);
        let second = written(&mut checker, object);
        checker.crash();
        assert!(read(&mut checker, object, None).is_err(), "it was flushed");
        let mut other = same_again(&checker);
        read(&mut other, object, Some(second)).unwrap();
        assert!(read(&mut other, object, Some(first)).is_err(), "it was there after the crash");
        read(&mut checker, object, Some(first)).unwrap();
        assert!(read(&mut checker, object, Some(second)).is_err(), "it was lost");
    }

    #[test]
    fn what_a_copy_has_lost_may_come_back_until_copies_are_the_same() {
        let mut checker = Checker::new(2);
        let object = checker.create();
        let first = written(&mut checker, object);
        let flush = checker.begin_flush(object);
        checker.end_flush(object, 1, flush, 7);
        let second = written(&mut checker, object);
        checker.crash();
        read(&mut checker, object, Some(first)).unwrap();
        read(&mut checker, object, Some(second)).unwrap();
        assert!(read(&mut checker, object, None).is_err(), "it was flushed");
        checker.make_even();
        read(&mut checker, object, Some(first)).unwrap();
        assert!(read(&mut checker, object, Some(second)).is_err(), "all copies were the same");
        let third = written(&mut checker, object);
        assert!(read(&mut checker, object, Some(first)).is_err(), "all copies have the third");
        read(&mut checker, object, Some(third)).unwrap();
    }

    #[test]
    fn what_was_read_before_a_crash_may_be_lost_by_it() {
        let mut checker = Checker::new(1);
        let object = checker.create();
        let first = written(&mut checker, object);
        let flush = checker.begin_flush(object);
        checker.end_flush(object, 1, flush, 7);
        let second = written(&mut checker, object);
        checker.crash();
        // One drive was asked before the next crash, and another one after it.
        let id = checker.begin_read(object, 0..10);
        checker.crash();
        checker.end_read(object, id, &bytes_of(second, 0..10)).unwrap();
        read(&mut checker, object, Some(first)).unwrap();
        assert!(read(&mut checker, object, Some(second)).is_err(), "it was lost");
    }

    #[test]
    fn a_flush_of_another_instance_makes_nothing_durable_that_was_there_before() {
        let mut checker = Checker::new(1);
        let object = checker.create();
        let first = written(&mut checker, object);
        checker.crash();
        let flush = checker.begin_flush(object);
        checker.end_flush(object, 1, flush, 8);
        read(&mut checker, object, None).unwrap();
        let second = written(&mut checker, object);
        checker.crash();
        let flush = checker.begin_flush(object);
        checker.end_flush(object, 1, flush, 7);
        assert!(read(&mut checker, object, Some(first)).is_err());
        assert!(read(&mut checker, object, None).is_err(), "the drives have told that it is there");
        read(&mut checker, object, Some(second)).unwrap();
    }

    #[test]
    fn writes_at_the_same_time_come_in_any_order_and_failed_ones_may_come() {
        let mut checker = Checker::new(1);
        let object = checker.create();
        let (one, other) =
            (checker.begin_write(object, 1, 0..10), checker.begin_write(object, 2, 0..10));
        checker.acknowledge(object, one, 7, false);
        read(&mut checker, object, Some(other)).unwrap();
        checker.fail(other);
        let third = written(&mut checker, object);
        assert!(read(&mut checker, object, Some(other)).is_err());
        read(&mut checker, object, Some(third)).unwrap();
    }

    #[test]
    fn a_copy_is_what_its_source_was_and_durable_and_is_written_by_itself() {
        for copies in [1, 2] {
            let mut checker = Checker::new(copies);
            let source = checker.create();
            let first = written(&mut checker, source);
            let copying = checker.begin_copy(source);
            let copy = checker.end_copy(source, copying);
            let second = written(&mut checker, source);
            read(&mut checker, copy, Some(first)).unwrap();
            assert!(
                read(&mut checker, copy, Some(second)).is_err(),
                "it was written to the source"
            );
            assert!(read(&mut checker, copy, None).is_err(), "it was there before");
            checker.crash();
            read(&mut checker, copy, Some(first)).unwrap();
            assert!(read(&mut checker, copy, None).is_err(), "a copy is durable");
            checker.check_size(copy, 10).unwrap();
            let third = written(&mut checker, copy);
            assert!(read(&mut checker, copy, Some(first)).is_err(), "it was written since");
            read(&mut checker, copy, Some(third)).unwrap();
            assert!(read(&mut checker, source, Some(third)).is_err(), "it is another object");
        }
    }

    #[test]
    fn what_was_written_to_the_source_meanwhile_may_be_in_a_copy() {
        let mut checker = Checker::new(1);
        let source = checker.create();
        let first = written(&mut checker, source);
        let copying = checker.begin_copy(source);
        let second = written(&mut checker, source);
        let copy = checker.end_copy(source, copying);
        assert!(read(&mut checker, copy, None).is_err());
        let mut other = same_again(&checker);
        read(&mut other, copy, Some(first)).unwrap();
        read(&mut checker, copy, Some(second)).unwrap();
        assert!(read(&mut checker, copy, Some(first)).is_err(), "it was not there");
    }

    #[test]
    fn lengths_are_known() {
        let mut checker = Checker::new(1);
        let object = checker.create();
        written(&mut checker, object);
        checker.check_size(object, 10).unwrap();
        assert!(checker.check_size(object, 9).is_err());
        let id = checker.begin_read(object, 0..20);
        assert!(checker.end_read(object, id, &[]).is_err());
        let cut = checker.begin_cut(object, 1, 4);
        checker.check_size(object, 10).unwrap();
        checker.acknowledge(object, cut, 7, true);
        checker.check_size(object, 4).unwrap();
        assert!(checker.check_size(object, 10).is_err());
    }
}
