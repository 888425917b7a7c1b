//! Runs compiled steps over a batch of records.

use crate::batch::Batch;
use crate::columnar;
use crate::compile::{Code, Conjunct, Load, Register, Step};
use crate::delimited;
use crate::error::Fault;
use crate::expression::{Arithmetic, Comparison, Literal};
use crate::fixed;
use crate::format::{Format, Type};
use crate::json;
use crate::number::float_order;
use crate::vector::{BATCH, Place, Places, Selection, Text, Vector};
use std::ops::Range;

/// Everything that a batch is evaluated in. Nothing is allocated after `new`.
pub(crate) struct Machine {
    vectors: Vec<Vector>,
    /// The records that are selected, and below each `Narrow` those that are left.
    selections: Vec<Selection>,
    scratch: Vec<u8>,
    constants: Vec<u8>,
    /// The first record that can't be evaluated.
    fault: Option<(usize, Fault)>,
    /// Which records are bad.
    bad: Vec<bool>,
    any_bad: bool,
}

impl Machine {
    pub(crate) fn new(code: &Code, scratch_bytes: usize) -> Machine {
        let mut vectors: Vec<Vector> =
            code.registers.iter().map(|kind| Vector::new(*kind)).collect();
        let mut constants = Vec::with_capacity(constant_bytes(code));
        for (register, literal) in &code.constants {
            let vector = &mut vectors[usize::from(*register)];
            match literal {
                Literal::Null => vector.nulls.fill(true),
                Literal::Bool(value) => vector.bools.fill(*value),
                Literal::Int(value) => vector.ints.fill(*value),
                Literal::Float(value) => vector.floats.fill(*value),
                Literal::Text(value) => {
                    let (start, length) = (constants.len() as u32, value.len() as u32);
                    constants.extend_from_slice(value);
                    vector.texts.fill(Text { place: Place::Constant, start, length });
                }
            }
        }
        Machine {
            vectors,
            selections: vec![Selection::new(); 1 + code.narrowings],
            scratch: Vec::with_capacity(scratch_bytes),
            constants,
            fault: None,
            bad: vec![false; BATCH],
            any_bad: false,
        }
    }

    pub(crate) fn memory_bytes(code: &Code, scratch_bytes: usize) -> usize {
        let vectors: usize = code.registers.iter().map(|kind| Vector::memory_bytes(*kind)).sum();
        let heads = code.registers.len() * size_of::<Vector>()
            + (1 + code.narrowings) * size_of::<Selection>();
        let selections = (1 + code.narrowings) * Selection::MEMORY_BYTES;
        vectors + heads + selections + scratch_bytes + constant_bytes(code) + BATCH
    }

    pub(crate) fn vector(&self, register: Register) -> &Vector {
        &self.vectors[usize::from(register)]
    }

    pub(crate) fn selected(&self) -> &Selection {
        &self.selections[0]
    }

    pub(crate) fn places<'a>(&'a self, input: &'a [u8]) -> Places<'a> {
        Places { input, scratch: &self.scratch, constant: &self.constants }
    }

    /// Bad records before `end`.
    pub(crate) fn bad_before(&self, end: usize) -> usize {
        if !self.any_bad {
            return 0;
        }
        self.bad[..end].iter().filter(|bad| **bad).count()
    }

    /// Finds the records that WHERE selects, and evaluates what is given of them. What is left selected
    /// lies before the fault, if there is one.
    pub(crate) fn run(
        &mut self,
        format: &Format,
        code: &Code,
        batch: &Batch<'_>,
        longest: Option<usize>,
        strict: bool,
    ) -> Option<(usize, Fault)> {
        self.fault = None;
        if self.any_bad {
            self.bad.fill(false);
            self.any_bad = false;
        }
        self.scratch.clear();
        self.selections[0].fill(batch.count);
        if let Some(longest) = longest {
            let bounds = batch.bounds;
            for index in 0..batch.count {
                if (bounds.nexts[index] - bounds.starts[index]) as usize > longest {
                    self.mark_bad(index);
                }
            }
            self.drop_bad();
        }
        self.filter(format, code, batch);
        if !code.rest_loads.is_empty() {
            self.load(format, &code.rest_loads, batch, false);
        }
        self.steps(code, code.rest_steps.clone(), batch.bytes);
        if strict && self.any_bad {
            let first = self.bad.iter().position(|bad| *bad).unwrap_or_default();
            self.record_fault(first, Fault::BadRecord);
        }
        if let Some((index, _)) = self.fault {
            let before = self.selections[0].as_slice().partition_point(|&i| usize::from(i) < index);
            self.selections[0].truncate(before);
        }
        self.fault
    }

    fn filter(&mut self, format: &Format, code: &Code, batch: &Batch<'_>) {
        // Lines are looked at whole even if nothing of them is needed: that tells the bad ones.
        let mut loaded = matches!(format, Format::Fixed(_)) && code.filter_loads.is_empty();
        if !loaded && !matches!(format, Format::Fixed(_)) {
            self.load(format, &code.filter_loads, batch, true);
            loaded = true;
        }
        for conjunct in &code.conjuncts {
            match (conjunct, format) {
                (Conjunct::Fixed(compare), Format::Fixed(fixed)) => {
                    compare.narrow(batch, fixed.record_bytes(), &mut self.selections[0]);
                }
                (Conjunct::Fixed(_), _) => {}
                (Conjunct::Steps { steps, result }, _) => {
                    if !loaded {
                        self.load(format, &code.filter_loads, batch, true);
                        loaded = true;
                    }
                    self.steps(code, steps.clone(), batch.bytes);
                    let vector = &self.vectors[usize::from(*result)];
                    let (bools, nulls) = (&vector.bools[..BATCH], &vector.nulls[..BATCH]);
                    self.selections[0].retain(|index| bools[index] & !nulls[index]);
                }
            }
        }
    }

    fn load(&mut self, format: &Format, loads: &[Load], batch: &Batch<'_>, check: bool) {
        let Machine { vectors, selections, scratch, bad, any_bad, .. } = self;
        let selection = &selections[0];
        let mark = |index: usize| {
            bad[index] = true;
            *any_bad = true;
        };
        match format {
            Format::Fixed(fixed) => fixed::load(fixed, loads, batch, selection, vectors, mark),
            Format::Delimited(format) => delimited::Reader { format, loads, check }
                .read(batch, selection, vectors, scratch, mark),
            Format::JsonLines(format) => {
                json::load(format, loads, batch, selection, vectors, scratch, mark);
            }
            Format::Columns(_) => columnar::load(batch.columns, loads, selection, vectors, mark),
        }
        self.drop_bad();
    }

    fn mark_bad(&mut self, index: usize) {
        self.bad[index] = true;
        self.any_bad = true;
    }

    fn drop_bad(&mut self) {
        if self.any_bad {
            let bad = &self.bad;
            self.selections[0].retain(|index| !bad[index]);
        }
    }

    fn record_fault(&mut self, index: usize, fault: Fault) {
        if self.fault.is_none_or(|(first, _)| index < first) {
            self.fault = Some((index, fault));
        }
    }

    fn steps(&mut self, code: &Code, steps: Range<usize>, input: &[u8]) {
        let mut level = 0;
        for step in &code.steps[steps] {
            match *step {
                Step::Narrow { left, unless } => {
                    let (above, below) = self.selections.split_at_mut(level + 1);
                    below[0].copy(&above[level]);
                    let vector = &self.vectors[usize::from(left)];
                    let (bools, nulls) = (&vector.bools[..BATCH], &vector.nulls[..BATCH]);
                    below[0].retain(|index| nulls[index] | (bools[index] != unless));
                    level += 1;
                }
                Step::Join { left, right, to, deciding } => {
                    level -= 1;
                    self.join(left, right, to, deciding, level);
                }
                Step::Int { operator, left, right, to } => {
                    self.int(operator, left, right, to, level);
                }
                _ => {
                    let to = step.to();
                    let mut out = std::mem::take(&mut self.vectors[usize::from(to)]);
                    let run = Run {
                        vectors: &self.vectors,
                        selected: self.selections[level].as_slice(),
                        places: Places { input, scratch: &self.scratch, constant: &self.constants },
                        code,
                    };
                    if let Some((index, fault)) = run.step(step, &mut out) {
                        self.record_fault(index, fault);
                    }
                    self.vectors[usize::from(to)] = out;
                }
            }
        }
    }

    /// AND and OR of three values: what decides, decides; otherwise NULL if one is.
    fn join(
        &mut self,
        left: Register,
        right: Register,
        to: Register,
        deciding: bool,
        level: usize,
    ) {
        let mut out = std::mem::take(&mut self.vectors[usize::from(to)]);
        let (left, right) = (&self.vectors[usize::from(left)], &self.vectors[usize::from(right)]);
        for &index in self.selections[level].as_slice() {
            let index = usize::from(index);
            let left_null = left.nulls[index];
            // Where the left decided, the right holds anything.
            let decided = !left_null && left.bools[index] == deciding;
            let right_null = right.nulls[index];
            let right_decides = !right_null && right.bools[index] == deciding;
            let decides = decided || right_decides;
            out.bools[index] = decides == deciding;
            out.nulls[index] = !decides && (left_null || right_null);
        }
        self.vectors[usize::from(to)] = out;
    }

    fn int(
        &mut self,
        operator: Arithmetic,
        left: Register,
        right: Register,
        to: Register,
        level: usize,
    ) {
        let mut out = std::mem::take(&mut self.vectors[usize::from(to)]);
        let (left, right) = (&self.vectors[usize::from(left)], &self.vectors[usize::from(right)]);
        let selected = self.selections[level].as_slice();
        let each = Each { selected, left, right, out: &mut out };
        let first = match operator {
            Arithmetic::Add => each.run(|a, b| with_false(a.overflowing_add(b))),
            Arithmetic::Subtract => each.run(|a, b| with_false(a.overflowing_sub(b))),
            Arithmetic::Multiply => each.run(|a, b| with_false(a.overflowing_mul(b))),
            Arithmetic::Divide | Arithmetic::IntegerDivide => each.run(|a, b| match b {
                0 => (0, false, true),
                _ => with_false(a.overflowing_div(b)),
            }),
            Arithmetic::Remainder => each.run(|a, b| match b {
                0 => (0, false, true),
                // The one that overflows has a remainder: 0.
                _ => (a.wrapping_rem(b), false, false),
            }),
        };
        self.vectors[usize::from(to)] = out;
        if let Some(index) = first {
            self.record_fault(index, Fault::Overflow);
        }
    }
}

/// An operation on the integers of two vectors.
struct Each<'a> {
    selected: &'a [u16],
    left: &'a Vector,
    right: &'a Vector,
    out: &'a mut Vector,
}

impl Each<'_> {
    /// `operation` tells its result, whether that overflows, and whether it is NULL. Tells the first
    /// record whose result overflows.
    #[inline]
    fn run(self, operation: impl Fn(i64, i64) -> (i64, bool, bool)) -> Option<usize> {
        let (left, right) = (&self.left.ints[..BATCH], &self.right.ints[..BATCH]);
        let (left_nulls, right_nulls) = (&self.left.nulls[..BATCH], &self.right.nulls[..BATCH]);
        let (to, to_nulls) = (&mut self.out.ints[..BATCH], &mut self.out.nulls[..BATCH]);
        let mut first = None;
        for &index in self.selected {
            let index = usize::from(index) & (BATCH - 1);
            let null = left_nulls[index] | right_nulls[index];
            let (value, overflow, none) = operation(left[index], right[index]);
            to[index] = value;
            to_nulls[index] = null | none;
            if overflow && !null && first.is_none() {
                first = Some(index);
            }
        }
        first
    }
}

fn with_false((value, overflow): (i64, bool)) -> (i64, bool, bool) {
    (value, overflow, false)
}

fn constant_bytes(code: &Code) -> usize {
    let bytes = code.constants.iter().map(|(_, literal)| match literal {
        Literal::Text(text) => text.len(),
        _ => 0,
    });
    bytes.sum()
}

impl Step {
    /// The register that it writes; `Narrow` none.
    fn to(&self) -> Register {
        match *self {
            Step::Narrow { left, .. } => left,
            Step::Convert { to, .. }
            | Step::Int { to, .. }
            | Step::Float { to, .. }
            | Step::Negate { to, .. }
            | Step::Compare { to, .. }
            | Step::Not { to, .. }
            | Step::IsNull { to, .. }
            | Step::Like { to, .. }
            | Step::In { to, .. }
            | Step::Join { to, .. } => to,
        }
    }
}

/// What a step sees.
struct Run<'a> {
    vectors: &'a [Vector],
    selected: &'a [u16],
    places: Places<'a>,
    code: &'a Code,
}

impl Run<'_> {
    fn vector(&self, register: Register) -> &Vector {
        &self.vectors[usize::from(register)]
    }

    /// One step; tells the first record that it can't be done for.
    fn step(&self, step: &Step, out: &mut Vector) -> Option<(usize, Fault)> {
        match *step {
            Step::Convert { from, .. } => {
                let from = self.vector(from);
                self.map(&from.ints, &from.nulls, &mut out.floats, &mut out.nulls, |v| v as f64);
            }
            Step::Float { operator, left, right, .. } => self.float(operator, left, right, out),
            Step::Negate { kind: Type::Int, from, .. } => return self.negate(from, out),
            Step::Negate { from, .. } => {
                let from = self.vector(from);
                self.map(&from.floats, &from.nulls, &mut out.floats, &mut out.nulls, |v| -v);
            }
            Step::Compare { kind, comparison, left, right, .. } => {
                self.compare(kind, comparison, left, right, out);
            }
            Step::Not { from, .. } => {
                let from = self.vector(from);
                self.map(&from.bools, &from.nulls, &mut out.bools, &mut out.nulls, |v| !v);
            }
            Step::IsNull { from, negated, .. } => {
                let from = self.vector(from);
                for &index in self.selected {
                    let index = usize::from(index);
                    out.bools[index] = from.nulls[index] != negated;
                    out.nulls[index] = false;
                }
            }
            Step::Like { from, pattern, negated, .. } => {
                let (from, pattern) = (self.vector(from), &self.code.patterns[pattern]);
                for &index in self.selected {
                    let index = usize::from(index);
                    out.nulls[index] = from.nulls[index];
                    if !from.nulls[index] {
                        let text = self.places.get(from.texts[index]);
                        out.bools[index] = pattern.matches(text) != negated;
                    }
                }
            }
            Step::In { from, list, negated, .. } => self.contains(from, list, negated, out),
            // Of the machine itself.
            Step::Int { .. } | Step::Narrow { .. } | Step::Join { .. } => {}
        }
        None
    }

    #[inline]
    fn map<T: Copy, U>(
        &self,
        from: &[T],
        nulls: &[bool],
        to: &mut [U],
        to_nulls: &mut [bool],
        value: impl Fn(T) -> U,
    ) {
        let (from, nulls) = (&from[..BATCH], &nulls[..BATCH]);
        let (to, to_nulls) = (&mut to[..BATCH], &mut to_nulls[..BATCH]);
        for &index in self.selected {
            let index = usize::from(index) & (BATCH - 1);
            to[index] = value(from[index]);
            to_nulls[index] = nulls[index];
        }
    }

    #[inline]
    fn zip<T: Copy, U>(
        &self,
        (left, right): (&[T], &[T]),
        (left_nulls, right_nulls): (&[bool], &[bool]),
        to: &mut [U],
        to_nulls: &mut [bool],
        value: impl Fn(T, T) -> U,
    ) {
        let (left, right) = (&left[..BATCH], &right[..BATCH]);
        let (left_nulls, right_nulls) = (&left_nulls[..BATCH], &right_nulls[..BATCH]);
        let (to, to_nulls) = (&mut to[..BATCH], &mut to_nulls[..BATCH]);
        for &index in self.selected {
            let index = usize::from(index) & (BATCH - 1);
            to[index] = value(left[index], right[index]);
            to_nulls[index] = left_nulls[index] | right_nulls[index];
        }
    }

    fn negate(&self, from: Register, out: &mut Vector) -> Option<(usize, Fault)> {
        let from = self.vector(from);
        let mut first = None;
        for &index in self.selected {
            let index = usize::from(index);
            let (value, overflow) = from.ints[index].overflowing_neg();
            out.ints[index] = value;
            out.nulls[index] = from.nulls[index];
            if overflow && !from.nulls[index] && first.is_none() {
                first = Some((index, Fault::Overflow));
            }
        }
        first
    }

    fn float(&self, operator: Arithmetic, left: Register, right: Register, out: &mut Vector) {
        let (left, right) = (self.vector(left), self.vector(right));
        let values = (left.floats.as_slice(), right.floats.as_slice());
        let nulls = (left.nulls.as_slice(), right.nulls.as_slice());
        let (to, to_nulls) = (&mut out.floats, &mut out.nulls);
        match operator {
            Arithmetic::Add => self.zip(values, nulls, to, to_nulls, |a, b| a + b),
            Arithmetic::Subtract => self.zip(values, nulls, to, to_nulls, |a, b| a - b),
            Arithmetic::Multiply => self.zip(values, nulls, to, to_nulls, |a, b| a * b),
            Arithmetic::Divide | Arithmetic::IntegerDivide => {
                self.zip(values, nulls, to, to_nulls, |a, b| a / b);
            }
            Arithmetic::Remainder => self.zip(values, nulls, to, to_nulls, |a, b| a % b),
        }
        if matches!(operator, Arithmetic::Divide | Arithmetic::Remainder) {
            for &index in self.selected {
                let index = usize::from(index);
                out.nulls[index] |= right.floats[index] == 0.0;
            }
        }
    }

    fn compare(
        &self,
        kind: Type,
        comparison: Comparison,
        left: Register,
        right: Register,
        out: &mut Vector,
    ) {
        let (left, right) = (self.vector(left), self.vector(right));
        let nulls = (left.nulls.as_slice(), right.nulls.as_slice());
        let (to, to_nulls) = (&mut out.bools, &mut out.nulls);
        match kind {
            Type::Bool => {
                let values = (left.bools.as_slice(), right.bools.as_slice());
                self.zip(values, nulls, to, to_nulls, |a, b| comparison.holds(a.cmp(&b)));
            }
            Type::Int => {
                let values = (left.ints.as_slice(), right.ints.as_slice());
                self.zip(values, nulls, to, to_nulls, |a, b| comparison.holds(a.cmp(&b)));
            }
            Type::Float => {
                let values = (left.floats.as_slice(), right.floats.as_slice());
                self.zip(values, nulls, to, to_nulls, |a, b| comparison.holds(float_order(a, b)));
            }
            Type::Text => {
                for &index in self.selected {
                    let index = usize::from(index);
                    let null = left.nulls[index] | right.nulls[index];
                    to_nulls[index] = null;
                    if !null {
                        let a = self.places.get(left.texts[index]);
                        let b = self.places.get(right.texts[index]);
                        to[index] = match comparison {
                            Comparison::Equal => a == b,
                            Comparison::NotEqual => a != b,
                            _ => comparison.holds(a.cmp(b)),
                        };
                    }
                }
            }
        }
    }

    fn contains(&self, from: Register, list: usize, negated: bool, out: &mut Vector) {
        let (from, list) = (self.vector(from), &self.code.lists[list]);
        for &index in self.selected {
            let index = usize::from(index);
            out.nulls[index] = from.nulls[index];
            if from.nulls[index] {
                continue;
            }
            let found = match list.kind {
                Type::Bool => list.has_bool(from.bools[index]),
                Type::Int => list.has_int(from.ints[index]),
                Type::Float => list.has_float(from.floats[index]),
                Type::Text => list.has_text(self.places.get(from.texts[index])),
            };
            out.nulls[index] = !found && list.has_null;
            out.bools[index] = found != negated;
        }
    }
}
