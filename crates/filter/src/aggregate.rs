//! Groups of records and their aggregates, in memory that is allocated once.
//!
//! Nothing here depends on the order of records or on how they are cut into parts: counts and integer sums
//! are exact, float sums too (`exact.rs`), and of equal floats `min` and `max` take one by its bits.

use crate::arena::{Arena, Slot};
use crate::batch::Batch;
use crate::compile::Outcome;
use crate::error::{Limit, MergeError};
use crate::evaluate::Machine;
use crate::exact::{self, SUM_WORDS};
use crate::format::Type;
use crate::number::{float_bits, float_order};
use crate::output::{Counter, Filler, Output, Sink};
use crate::plan::{Aggregate, Checked, Function};
use crate::vector::{BATCH, Places, Vector};
use nasd_xdr::{Decoder, XdrError};
use std::cmp::Ordering;

/// Most bytes of the key of one group: of all its values together, with a few for each.
pub const MAX_KEY_BYTES: usize = 1 << 16;

/// The mark of a partial result of this kind.
const PARTIAL: u32 = 1;

/// What is kept of one item in each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A count.
    Count,
    /// An `i128` and a count.
    Int,
    /// An exact sum and a count.
    Float,
    /// Whether there is one, and its bits or its slot.
    Bound { kind: Type, greatest: bool },
}

#[derive(Clone, Copy, Debug)]
struct Accumulator {
    kind: Kind,
    function: Function,
    /// Words of a group before it.
    offset: usize,
    /// They are those of an accumulator before it: of a sum and an average of the same values.
    is_shared: bool,
}

impl Kind {
    const fn words(self) -> usize {
        match self {
            Kind::Count => 1,
            Kind::Int => 3,
            Kind::Float => SUM_WORDS + 1,
            Kind::Bound { .. } => 2,
        }
    }

    /// Most bytes that a partial result has of it, but those of texts that are kept.
    const fn told_bytes(self) -> usize {
        match self {
            Kind::Count | Kind::Int => 8 * self.words(),
            Kind::Float => 8 + 4 * 4 + 8 * SUM_WORDS,
            Kind::Bound { .. } => 4 + 8,
        }
    }
}

/// A value of a result.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// NULL.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A sum of integers.
    HugeInt(i128),
    /// A float.
    Float(f64),
    /// Bytes.
    Text(Vec<u8>),
}

/// All groups.
pub(crate) struct Groups {
    accumulators: Vec<Accumulator>,
    key_kinds: Vec<Type>,
    /// Words of a group.
    words: usize,
    states: Vec<u64>,
    /// Open addressing: the number of a group and one, or 0. A power of two of them.
    table: Vec<u32>,
    hashes: Vec<u64>,
    keys: Vec<Slot>,
    count: usize,
    limit: usize,
    /// Of the hashes.
    secret: u64,
    arena: Arena,
    key: Vec<u8>,
    /// The group of each record of a batch.
    ids: Vec<u32>,
}

fn accumulators(program: &Aggregate, outcomes: &[Outcome]) -> (Vec<Accumulator>, usize) {
    let mut offset = 0;
    let arguments = &outcomes[program.keys.len()..];
    let mut list: Vec<Accumulator> = Vec::with_capacity(program.items.len());
    for (item, argument) in program.items.iter().zip(arguments) {
        let kind = match (item.function, argument.kind) {
            (Function::Count, _) => Kind::Count,
            (Function::Sum | Function::Avg, Type::Float) => Kind::Float,
            (Function::Sum | Function::Avg, _) => Kind::Int,
            (Function::Min, kind) => Kind::Bound { kind, greatest: false },
            (Function::Max, kind) => Kind::Bound { kind, greatest: true },
        };
        let is_sum = matches!(kind, Kind::Int | Kind::Float);
        let mut known = list.iter().zip(&program.items);
        let known = known
            .find(|(one, other)| is_sum && one.kind == kind && other.argument == item.argument);
        let (at, is_shared) = known.map_or((offset, false), |(one, _)| (one.offset, true));
        list.push(Accumulator { kind, function: item.function, offset: at, is_shared });
        offset += if is_shared { 0 } else { kind.words() };
    }
    (list, offset)
}

/// The most groups there can be: one without keys.
fn group_limit(checked: &Checked, program: &Aggregate) -> usize {
    if program.keys.is_empty() { 1 } else { checked.plan().options.groups as usize }
}

impl Groups {
    pub(crate) fn new(checked: &Checked, program: &Aggregate) -> Groups {
        let outcomes = &checked.code().outputs;
        let (accumulators, words) = accumulators(program, outcomes);
        let limit = group_limit(checked, program);
        let key_kinds = outcomes[..program.keys.len()].iter().map(|key| key.kind).collect();
        let key_room = if program.keys.is_empty() { 0 } else { MAX_KEY_BYTES };
        let mut groups = Groups {
            accumulators,
            key_kinds,
            words,
            states: vec![0; limit * words],
            table: vec![0; 2 * limit.next_power_of_two()],
            hashes: vec![0; limit],
            keys: vec![Slot::default(); limit],
            count: 0,
            limit,
            secret: checked.secret() | 1,
            arena: Arena::new(checked.plan().options.state_bytes as usize),
            key: Vec::with_capacity(key_room),
            ids: vec![0; BATCH],
        };
        if program.keys.is_empty() {
            // The one group is there whether records are or not; its key takes no bytes.
            groups.count = 1;
        }
        groups
    }

    pub(crate) fn memory_bytes(checked: &Checked, program: &Aggregate) -> usize {
        let (accumulators, words) = accumulators(program, &checked.code().outputs);
        let limit = group_limit(checked, program);
        let key_room = if program.keys.is_empty() { 0 } else { MAX_KEY_BYTES };
        size_of::<Groups>()
            + accumulators.len() * size_of::<Accumulator>()
            + program.keys.len() * size_of::<Type>()
            + limit * (words * size_of::<u64>() + size_of::<u64>() + size_of::<Slot>())
            + 2 * limit.next_power_of_two() * size_of::<u32>()
            + checked.plan().options.state_bytes as usize
            + key_room
            + BATCH * size_of::<u32>()
    }

    /// The group of the key in `self.key`; a new one if there is none.
    fn find(&mut self) -> Result<usize, Limit> {
        let hash = hash(&self.key, self.secret);
        let mask = self.table.len() - 1;
        let mut at = hash as usize & mask;
        while self.table[at] != 0 {
            let group = self.table[at] as usize - 1;
            if self.hashes[group] == hash && self.arena.get(self.keys[group]) == self.key {
                return Ok(group);
            }
            at = (at + 1) & mask;
        }
        if self.count == self.limit {
            return Err(Limit::Groups);
        }
        let group = self.count;
        self.keys[group] = self.arena.keep(&self.key).ok_or(Limit::StateBytes)?;
        self.hashes[group] = hash;
        self.table[at] = group as u32 + 1;
        self.count += 1;
        Ok(group)
    }

    /// Adds the selected records of a batch.
    pub(crate) fn update(
        &mut self,
        machine: &Machine,
        batch: &Batch<'_>,
        outcomes: &[Outcome],
    ) -> Result<(), Limit> {
        let places = machine.places(batch.bytes);
        let selected = machine.selected().as_slice();
        let (keys, arguments) = outcomes.split_at(self.key_kinds.len());
        if !keys.is_empty() {
            for &index in selected {
                let index = usize::from(index);
                self.key.clear();
                for key in keys {
                    let vector = machine.vector(key.register);
                    put_key(&mut self.key, key.kind, vector, index, &places)?;
                }
                self.ids[index] = self.find()? as u32;
            }
        }
        for (number, argument) in arguments.iter().enumerate() {
            let accumulator = self.accumulators[number];
            if !accumulator.is_shared {
                let vector = machine.vector(argument.register);
                self.accumulate(accumulator, vector, selected, &places)?;
            }
        }
        Ok(())
    }

    fn accumulate(
        &mut self,
        accumulator: Accumulator,
        vector: &Vector,
        selected: &[u16],
        places: &Places<'_>,
    ) -> Result<(), Limit> {
        let (words, offset) = (self.words, accumulator.offset);
        let there = selected.iter().map(|&index| usize::from(index));
        let there = there.filter(|&index| !vector.nulls[index]);
        match accumulator.kind {
            Kind::Count if self.key_kinds.is_empty() => {
                self.states[offset] += there.count() as u64;
            }
            Kind::Count => {
                for index in there {
                    self.states[self.ids[index] as usize * words + offset] += 1;
                }
            }
            Kind::Int if self.key_kinds.is_empty() => {
                let (mut sum, mut count) = (0_i128, 0);
                for index in there {
                    sum += i128::from(vector.ints[index]);
                    count += 1;
                }
                add_int(&mut self.states[offset..], sum, count);
            }
            Kind::Int => {
                for index in there {
                    let at = self.ids[index] as usize * words + offset;
                    add_int(&mut self.states[at..], vector.ints[index].into(), 1);
                }
            }
            Kind::Float => {
                for index in there {
                    let at = self.ids[index] as usize * words + offset;
                    let state = &mut self.states[at..at + SUM_WORDS + 1];
                    exact::add(state, vector.floats[index]);
                    state[SUM_WORDS] += 1;
                }
            }
            Kind::Bound { kind: Type::Text, greatest } => {
                for index in there {
                    let at = self.ids[index] as usize * words + offset;
                    self.bound_text(at, greatest, places.get(vector.texts[index]))?;
                }
            }
            Kind::Bound { kind, greatest } => {
                for index in there {
                    let at = self.ids[index] as usize * words + offset;
                    let bits = match kind {
                        Type::Bool => u64::from(vector.bools[index]),
                        Type::Float => float_bits(vector.floats[index]),
                        _ => vector.ints[index].cast_unsigned(),
                    };
                    bound_bits(&mut self.states[at..], kind, greatest, bits);
                }
            }
        }
        Ok(())
    }

    fn bound_text(&mut self, at: usize, greatest: bool, text: &[u8]) -> Result<(), Limit> {
        if self.states[at] != 0 {
            let slot = Slot::from_word(self.states[at + 1]);
            let order = text.cmp(self.arena.get(slot));
            if order != (if greatest { Ordering::Greater } else { Ordering::Less }) {
                return Ok(());
            }
            self.arena.release(slot);
        }
        self.states[at + 1] = self.arena.keep(text).ok_or(Limit::StateBytes)?.to_word();
        self.states[at] = 1;
        Ok(())
    }

    /// Writes the partial result from `item` on: its head, then each group. Tells whether it is whole.
    pub(crate) fn emit(
        &self,
        output: &mut Output<'_>,
        item: &mut usize,
        progress: &mut usize,
    ) -> bool {
        while *item <= self.count {
            if !output.item(progress, |part| self.put_item(*item, part)) {
                return false;
            }
            *item += 1;
        }
        true
    }

    /// Bytes of the partial result.
    pub(crate) fn result_bytes(&self) -> usize {
        let mut counter = Counter::default();
        (0..=self.count).for_each(|item| self.put_item(item, &mut counter));
        counter.0
    }

    /// No less than these bytes, without looking at each group.
    pub(crate) fn result_bound(&self) -> usize {
        let told: usize = self.accumulators.iter().map(|one| one.kind.told_bytes()).sum();
        // A key has its length, and what fills up its last word. Those of texts are in what is told of their kind.
        16 + self.count * (8 + told) + self.arena.used_bytes()
    }

    fn put_item(&self, item: usize, sink: &mut impl Sink) {
        match item.checked_sub(1) {
            None => {
                sink.put_u32(PARTIAL);
                sink.put_u32(self.key_kinds.len() as u32);
                sink.put_u32(self.accumulators.len() as u32);
                sink.put_u32(self.count as u32);
            }
            Some(group) => self.put_group(group, sink),
        }
    }

    fn put_group(&self, group: usize, sink: &mut impl Sink) {
        sink.put_opaque(self.group_key(group));
        for accumulator in &self.accumulators {
            let at = group * self.words + accumulator.offset;
            let state = &self.states[at..at + accumulator.kind.words()];
            match accumulator.kind {
                Kind::Count | Kind::Int => state.iter().for_each(|word| sink.put_u64(*word)),
                Kind::Float => {
                    sink.put_u64(state[SUM_WORDS]);
                    sink.put_u32(exact::special(state) as u32);
                    sink.put_u32(u32::from(exact::is_negative(state)));
                    let range = exact::significant(state);
                    sink.put_u32(range.start as u32);
                    sink.put_u32(range.len() as u32);
                    state[range].iter().for_each(|word| sink.put_u64(*word));
                }
                Kind::Bound { kind, .. } => {
                    sink.put_u32(state[0] as u32);
                    match kind {
                        _ if state[0] == 0 => {}
                        Type::Text => sink.put_opaque(self.arena.get(Slot::from_word(state[1]))),
                        _ => sink.put_u64(state[1]),
                    }
                }
            }
        }
    }

    fn group_key(&self, group: usize) -> &[u8] {
        if self.key_kinds.is_empty() { &[] } else { self.arena.get(self.keys[group]) }
    }

    /// Adds a partial result.
    pub(crate) fn merge(&mut self, bytes: &[u8]) -> Result<(), MergeError> {
        let mut input = Decoder::new(bytes);
        let head = (input.u32()?, input.u32()? as usize, input.u32()? as usize);
        if head != (PARTIAL, self.key_kinds.len(), self.accumulators.len()) {
            return Err(MergeError::OtherProgram);
        }
        let groups = input.u32()?;
        if self.key_kinds.is_empty() && groups != 1 {
            return Err(XdrError::Invalid("without keys there is one group").into());
        }
        for _ in 0..groups {
            let key = input.opaque(MAX_KEY_BYTES)?;
            parse_key(&self.key_kinds, key).ok_or(XdrError::Invalid("a key is malformed"))?;
            let group = if self.key_kinds.is_empty() {
                0
            } else {
                self.key.clear();
                self.key.extend_from_slice(key);
                self.find()?
            };
            for number in 0..self.accumulators.len() {
                self.merge_state(group, self.accumulators[number], &mut input)?;
            }
        }
        input.finish()?;
        Ok(())
    }

    fn merge_state(
        &mut self,
        group: usize,
        accumulator: Accumulator,
        input: &mut Decoder<'_>,
    ) -> Result<(), MergeError> {
        let at = group * self.words + accumulator.offset;
        match accumulator.kind {
            Kind::Count => self.states[at] = self.states[at].wrapping_add(input.u64()?),
            Kind::Int => {
                let sum = u128::from(input.u64()?) | u128::from(input.u64()?) << 64;
                let count = input.u64()?;
                // It is told of each.
                if !accumulator.is_shared {
                    add_int(&mut self.states[at..], sum.cast_signed(), count);
                }
            }
            Kind::Float => {
                let count = input.u64()?;
                let special = u64::from(input.u32()?);
                let negative = input.bool()?;
                let start = input.u32()? as usize;
                let words = input.array_with(SUM_WORDS, Decoder::u64)?;
                let sum = exact::expand(start, &words, negative, special)
                    .ok_or(XdrError::Invalid("a sum is malformed"))?;
                if !accumulator.is_shared {
                    let state = &mut self.states[at..at + SUM_WORDS + 1];
                    exact::merge(state, &sum);
                    state[SUM_WORDS] = state[SUM_WORDS].wrapping_add(count);
                }
            }
            Kind::Bound { kind, greatest } => {
                if !input.bool()? {
                    return Ok(());
                }
                match kind {
                    Type::Text => self.bound_text(at, greatest, input.opaque(usize::MAX)?)?,
                    _ => bound_bits(&mut self.states[at..], kind, greatest, input.u64()?),
                }
            }
        }
        Ok(())
    }

    /// The rows of the result, keys first, then items; in the order of the keys, NULL last.
    pub(crate) fn rows(&self) -> Vec<Vec<Value>> {
        let rows = (0..self.count).map(|group| {
            let mut row = parse_key(&self.key_kinds, self.group_key(group)).unwrap_or_default();
            row.extend(self.accumulators.iter().map(|accumulator| {
                let at = group * self.words + accumulator.offset;
                self.result(*accumulator, &self.states[at..at + accumulator.kind.words()])
            }));
            row
        });
        let mut rows: Vec<Vec<Value>> = rows.collect();
        let keys = self.key_kinds.len();
        rows.sort_by(|left, right| {
            let pairs = left[..keys].iter().zip(&right[..keys]);
            pairs
                .map(|(left, right)| left.order(right))
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        });
        rows
    }

    fn result(&self, accumulator: Accumulator, state: &[u64]) -> Value {
        let average = accumulator.function == Function::Avg;
        match accumulator.kind {
            Kind::Count => Value::Int(state[0].cast_signed()),
            Kind::Int if state[2] == 0 => Value::Null,
            Kind::Int => {
                let sum = (u128::from(state[0]) | u128::from(state[1]) << 64).cast_signed();
                if average {
                    Value::Float(sum as f64 / state[2] as f64)
                } else {
                    Value::HugeInt(sum)
                }
            }
            Kind::Float if state[SUM_WORDS] == 0 => Value::Null,
            Kind::Float => {
                let sum = exact::round(state);
                Value::Float(if average { sum / state[SUM_WORDS] as f64 } else { sum })
            }
            Kind::Bound { .. } if state[0] == 0 => Value::Null,
            Kind::Bound { kind: Type::Bool, .. } => Value::Bool(state[1] != 0),
            Kind::Bound { kind: Type::Int, .. } => Value::Int(state[1].cast_signed()),
            Kind::Bound { kind: Type::Float, .. } => Value::Float(f64::from_bits(state[1])),
            Kind::Bound { kind: Type::Text, .. } => {
                Value::Text(self.arena.get(Slot::from_word(state[1])).to_vec())
            }
        }
    }
}

impl Value {
    /// The order of a result: by value, NULL last. Values of two types are equal.
    pub(crate) fn order(&self, other: &Value) -> Ordering {
        match (self, other) {
            (Value::Null, Value::Null) => Ordering::Equal,
            (Value::Null, _) => Ordering::Greater,
            (_, Value::Null) => Ordering::Less,
            (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
            (Value::Int(left), Value::Int(right)) => left.cmp(right),
            (Value::HugeInt(left), Value::HugeInt(right)) => left.cmp(right),
            (Value::Float(left), Value::Float(right)) => float_order(*left, *right),
            (Value::Text(left), Value::Text(right)) => left.cmp(right),
            _ => Ordering::Equal,
        }
    }
}

#[inline]
fn add_int(state: &mut [u64], sum: i128, count: u64) {
    let old = u128::from(state[0]) | u128::from(state[1]) << 64;
    // 2^64 integers of 64 bits fit; what others claim to have summed must not panic.
    let sum = old.wrapping_add(sum.cast_unsigned());
    (state[0], state[1]) = (sum as u64, (sum >> 64) as u64);
    state[2] = state[2].wrapping_add(count);
}

fn bound_bits(state: &mut [u64], kind: Type, greatest: bool, bits: u64) {
    let order = match kind {
        Type::Float => {
            let (new, old) = (f64::from_bits(bits), f64::from_bits(state[1]));
            // The zeros are equal; the negative one counts as less, so that order doesn't matter.
            float_order(new, old).then_with(|| old.is_sign_negative().cmp(&new.is_sign_negative()))
        }
        Type::Bool => bits.cmp(&state[1]),
        _ => bits.cast_signed().cmp(&state[1].cast_signed()),
    };
    let better = if greatest { order.is_gt() } else { order.is_lt() };
    if state[0] == 0 || better {
        (state[0], state[1]) = (1, bits);
    }
}

/// Appends a value to a key: a byte that tells whether it is there, then its bytes.
#[inline]
fn put_key(
    key: &mut Vec<u8>,
    kind: Type,
    vector: &Vector,
    index: usize,
    places: &Places<'_>,
) -> Result<(), Limit> {
    let there = !vector.nulls[index];
    let mut text = &[][..];
    let mut bytes = [0; 9];
    let mut head = Filler { room: &mut bytes, length: 0 };
    head.put(&[u8::from(there)]);
    match kind {
        _ if !there => {}
        Type::Bool => head.put(&[u8::from(vector.bools[index])]),
        Type::Int => head.put_u64(vector.ints[index].cast_unsigned()),
        Type::Float => {
            // The zeros are one group.
            let value = vector.floats[index];
            head.put_u64(float_bits(if value == 0.0 { 0.0 } else { value }));
        }
        Type::Text => {
            text = places.get(vector.texts[index]);
            head.put_u32(text.len() as u32);
        }
    }
    let length = head.length;
    if key.len() + length + text.len() > MAX_KEY_BYTES {
        return Err(Limit::KeyBytes);
    }
    key.extend_from_slice(&bytes[..length]);
    key.extend_from_slice(text);
    Ok(())
}

/// The values of a key; `None` if it is none of these types.
fn parse_key(kinds: &[Type], key: &[u8]) -> Option<Vec<Value>> {
    let mut input = Decoder::new(key);
    let mut values = Vec::with_capacity(kinds.len());
    for kind in kinds {
        let there = match input.take(1).ok()? {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        values.push(match kind {
            _ if !there => Value::Null,
            Type::Bool => match input.take(1).ok()? {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                _ => return None,
            },
            Type::Int => Value::Int(input.i64().ok()?),
            Type::Float => Value::Float(f64::from_bits(input.u64().ok()?)),
            Type::Text => {
                let length = input.u32().ok()? as usize;
                Value::Text(input.take(length).ok()?.to_vec())
            }
        });
    }
    input.finish().ok()?;
    Some(values)
}

/// Spreads keys over the table; who does not know the secret, which is odd, can't choose keys that collide.
#[inline]
fn hash(key: &[u8], secret: u64) -> u64 {
    let fold = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * u128::from(secret);
        product as u64 ^ (product >> 64) as u64
    };
    let (words, rest) = key.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let start = (key.len() as u64).wrapping_add(secret.rotate_left(32));
    let words = words.iter().chain(std::iter::once(&last));
    words.fold(start, |hash, word| fold(hash.rotate_left(23), u64::from_le_bytes(*word)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::Expression;
    use crate::format::{Field, FieldKind, Fixed, Format};
    use crate::plan::{Item, Options, Plan, Program};

    fn of_texts(secret: u64) -> Groups {
        let field = Field { name: "text".to_owned(), kind: FieldKind::Text { bytes: 4 } };
        let format = Format::Fixed(Fixed { fields: vec![field] });
        let items = vec![Item { function: Function::Count, argument: None }];
        let keys = vec![Expression::column(0)];
        let program = Aggregate { filter: None, keys, items };
        let of_all = Program::Aggregate(program.clone());
        let plan = Plan { format, program: of_all, options: Options::default() };
        Groups::new(&plan.check().unwrap().with_secret(secret), &program)
    }

    /// Keys, as they are told, which all have one hash by this secret: each next word takes back what the one before it did.
    fn colliding(secret: u64) -> Vec<Vec<u8>> {
        let keys = (0..200_u64).map(|number| {
            let free = u64::from_le_bytes([1, 0, 0, 0, 27, number as u8, 0, 0]);
            let mut key = free.to_le_bytes().to_vec();
            let length = 32_u64;
            let state = length.wrapping_add(secret.rotate_left(32));
            let product = u128::from(state.rotate_left(23) ^ free) * u128::from(secret);
            let state = product as u64 ^ (product >> 64) as u64;
            key.extend(state.rotate_left(23).to_le_bytes());
            key.resize(length as usize, 0);
            key
        });
        keys.collect()
    }

    #[test]
    fn keys_that_collide_by_one_secret_do_not_by_another() {
        let hashes = |groups: &Groups, keys: &[Vec<u8>]| {
            let hashes = keys.iter().map(|key| hash(key, groups.secret));
            hashes.collect::<std::collections::BTreeSet<_>>().len()
        };
        let (one, other) = (of_texts(77), of_texts(1_234_567_890_123_456_789));
        let keys = colliding(one.secret);
        assert_eq!(hashes(&one, &keys), 1);
        assert_eq!(hashes(&other, &keys), keys.len());
    }
}
