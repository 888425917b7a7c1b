//! From expressions to steps over registers: types are checked here, and here only.

use crate::error::ParameterError;
use crate::expression::{
    Arithmetic, Comparison, Expression, Literal, MAX_DEPTH, MAX_LIKE_STEPS, MAX_NODES,
    MAX_TEXT_BYTES,
};
use crate::fixed::FixedCompare;
use crate::format::{FieldKind, Format, Type};
use crate::like::Pattern;
use crate::list::List;
use crate::plan::{Function, Plan, Program};
use std::ops::Range;

/// Which vector.
pub(crate) type Register = u16;

/// One operation on the selected records of a batch.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// An integer as a float.
    Convert {
        from: Register,
        to: Register,
    },
    /// Integers: not `Divide`.
    Int {
        operator: Arithmetic,
        left: Register,
        right: Register,
        to: Register,
    },
    /// Floats: not `IntegerDivide`.
    Float {
        operator: Arithmetic,
        left: Register,
        right: Register,
        to: Register,
    },
    /// Of an integer or a float.
    Negate {
        kind: Type,
        from: Register,
        to: Register,
    },
    /// Two of a type.
    Compare {
        kind: Type,
        comparison: Comparison,
        left: Register,
        right: Register,
        to: Register,
    },
    Not {
        from: Register,
        to: Register,
    },
    IsNull {
        from: Register,
        to: Register,
        negated: bool,
    },
    Like {
        from: Register,
        to: Register,
        pattern: usize,
        negated: bool,
    },
    In {
        from: Register,
        to: Register,
        list: usize,
        negated: bool,
    },
    /// The steps up to the matching `Join` are for the records only whose `left` isn't this.
    Narrow {
        left: Register,
        unless: bool,
    },
    /// AND where `deciding` is false, OR where it is true; all records of before `Narrow` again.
    Join {
        left: Register,
        right: Register,
        to: Register,
        deciding: bool,
    },
}

/// A column that is read into a register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) column: usize,
    pub(crate) register: Register,
}

/// One operand of the topmost ANDs of a WHERE.
#[derive(Clone, Debug)]
pub(crate) enum Conjunct {
    /// A comparison that is made on the bytes of fixed records.
    Fixed(FixedCompare),
    /// Steps, and the register of what they tell.
    Steps { steps: Range<usize>, result: Register },
}

/// What is given of a record: an expression of the projection, a key, an argument, an order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) kind: Type,
    pub(crate) register: Register,
    /// The column, when it is nothing but that.
    pub(crate) column: Option<usize>,
}

/// A compiled program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Code {
    pub(crate) registers: Vec<Type>,
    /// Registers that hold one value throughout.
    pub(crate) constants: Vec<(Register, Literal)>,
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) lists: Vec<List>,
    pub(crate) steps: Vec<Step>,
    /// Columns that WHERE needs, ascending.
    pub(crate) filter_loads: Vec<Load>,
    pub(crate) conjuncts: Vec<Conjunct>,
    /// Columns that only the rest needs, ascending.
    pub(crate) rest_loads: Vec<Load>,
    /// The steps of what is given.
    pub(crate) rest_steps: Range<usize>,
    /// Projection, or keys and arguments, or order and projection, in this order.
    pub(crate) outputs: Vec<Outcome>,
    /// How deep `Narrow` is nested.
    pub(crate) narrowings: usize,
    /// How many steps a byte of a record may take in LIKE.
    pub(crate) like_steps: u64,
}

/// Compiles the program of a plan whose format is right.
pub(crate) fn compile(plan: &Plan) -> Result<Code, ParameterError> {
    let mut compiler = Compiler {
        format: &plan.format,
        code: Code::default(),
        free: Vec::new(),
        columns: vec![None; plan.format.column_count()],
        nodes: 0,
        narrowed: 0,
        longest_record: plan.options.longest_record,
    };
    if let Some(filter) = plan.program.filter() {
        compiler.filter(filter)?;
    }
    compiler.code.filter_loads = compiler.loads(&[]);
    let first = compiler.code.steps.len();
    match &plan.program {
        Program::Select(select) => {
            compiler.outputs(select.projection.as_deref().unwrap_or_default(), true)?;
        }
        Program::Aggregate(aggregate) => {
            compiler.outputs(&aggregate.keys, false)?;
            for item in &aggregate.items {
                compiler.argument(item.function, item.argument.as_ref())?;
            }
        }
        Program::Top(top) => {
            compiler.outputs(std::slice::from_ref(&top.order), false)?;
            compiler.outputs(top.projection.as_deref().unwrap_or_default(), true)?;
        }
    }
    let rest_loads = compiler.loads(&compiler.code.filter_loads);
    let mut code = compiler.code;
    code.rest_loads = rest_loads;
    code.rest_steps = first..code.steps.len();
    Ok(code)
}

struct Compiler<'a> {
    format: &'a Format,
    code: Code,
    /// Registers whose value was used up.
    free: Vec<Register>,
    /// The register of each column that is read.
    columns: Vec<Option<Register>>,
    nodes: usize,
    narrowed: usize,
    longest_record: u32,
}

/// The type that two operands have in common; an integer and a float are floats.
fn common(left: Option<Type>, right: Option<Type>) -> Result<Option<Type>, (Type, Type)> {
    match (left, right) {
        (None, other) | (other, None) => Ok(other),
        (Some(left), Some(right)) if left == right => Ok(Some(left)),
        (Some(Type::Int), Some(Type::Float)) | (Some(Type::Float), Some(Type::Int)) => {
            Ok(Some(Type::Float))
        }
        (Some(left), Some(right)) => Err((left, right)),
    }
}

fn literal_type(literal: &Literal) -> Option<Type> {
    match literal {
        Literal::Null => None,
        Literal::Bool(_) => Some(Type::Bool),
        Literal::Int(_) => Some(Type::Int),
        Literal::Float(_) => Some(Type::Float),
        Literal::Text(_) => Some(Type::Text),
    }
}

fn must_be(
    operator: &'static str,
    found: Option<Type>,
    allowed: &[Type],
) -> Result<(), ParameterError> {
    match found {
        Some(found) if !allowed.contains(&found) => {
            Err(ParameterError::Operand { operator, found })
        }
        _ => Ok(()),
    }
}

const NUMBERS: &[Type] = &[Type::Int, Type::Float];

impl Compiler<'_> {
    /// Columns that have a register and are not of `before`, ascending.
    fn loads(&self, before: &[Load]) -> Vec<Load> {
        let all = self.columns.iter().enumerate();
        all.filter_map(|(column, register)| Some(Load { column, register: (*register)? }))
            .filter(|load| !before.iter().any(|other| other.column == load.column))
            .collect()
    }

    fn count(&mut self, nodes: usize) -> Result<(), ParameterError> {
        self.nodes += nodes;
        let (value, most) = (self.nodes as u64, MAX_NODES as u64);
        if self.nodes > MAX_NODES {
            return Err(ParameterError::Bounds {
                what: "nodes of expressions",
                value,
                least: 0,
                most,
            });
        }
        Ok(())
    }

    /// A record must not take minutes.
    fn count_steps(&mut self, pattern: &Pattern) -> Result<(), ParameterError> {
        self.code.like_steps = self.code.like_steps.saturating_add(pattern.steps());
        let value = self.code.like_steps.saturating_mul(self.longest_record.into());
        if value > MAX_LIKE_STEPS {
            let what = "number of `_` in LIKE, by options.longest_record,";
            return Err(ParameterError::Bounds { what, value, least: 0, most: MAX_LIKE_STEPS });
        }
        Ok(())
    }

    /// The type of an expression, `None` for NULL; checks it.
    fn check(
        &mut self,
        expression: &Expression,
        depth: usize,
    ) -> Result<Option<Type>, ParameterError> {
        let (value, most) = (depth as u64 + 1, MAX_DEPTH as u64);
        if depth >= MAX_DEPTH {
            return Err(ParameterError::Bounds {
                what: "levels of an expression",
                value,
                least: 1,
                most,
            });
        }
        self.count(1)?;
        match expression {
            Expression::Column(index) => {
                let count = self.format.column_count();
                let kind = self.format.column_type(usize::from(*index));
                kind.map(Some).ok_or(ParameterError::NoSuchColumn { index: *index, count })
            }
            Expression::Literal(literal) => {
                check_literal(literal)?;
                Ok(literal_type(literal))
            }
            Expression::Negate(value) => {
                let found = self.check(value, depth + 1)?;
                must_be("-", found, NUMBERS)?;
                Ok(found)
            }
            Expression::Arithmetic(operator, left, right) => {
                let (left, right) = (self.check(left, depth + 1)?, self.check(right, depth + 1)?);
                arithmetic_type(*operator, left, right)
            }
            Expression::Compare(comparison, left, right) => {
                let (left, right) = (self.check(left, depth + 1)?, self.check(right, depth + 1)?);
                comparable(comparison.symbol(), left, right)?;
                Ok(Some(Type::Bool))
            }
            Expression::Not(value) => self.check_boolean("NOT", &[value], depth),
            Expression::And(left, right) => self.check_boolean("AND", &[left, right], depth),
            Expression::Or(left, right) => self.check_boolean("OR", &[left, right], depth),
            Expression::IsNull { value, .. } => {
                self.check(value, depth + 1)?;
                Ok(Some(Type::Bool))
            }
            Expression::Between { value, low, high, .. } => {
                self.check_between([value, low, high], depth)
            }
            Expression::In { value, list, .. } => {
                let kind = self.check(value, depth + 1)?;
                self.count(list.len())?;
                list.iter().try_for_each(check_literal)?;
                list_type(kind, list)?;
                Ok(Some(Type::Bool))
            }
            Expression::Like { value, pattern, .. } => {
                let found = self.check(value, depth + 1)?;
                must_be("LIKE", found, &[Type::Text])?;
                check_text(pattern)?;
                Ok(Some(Type::Bool))
            }
        }
    }

    fn check_between(
        &mut self,
        [value, low, high]: [&Expression; 3],
        depth: usize,
    ) -> Result<Option<Type>, ParameterError> {
        let value = self.check(value, depth + 1)?;
        let low = self.check(low, depth + 1)?;
        let high = self.check(high, depth + 1)?;
        comparable("BETWEEN", value, low)?;
        comparable("BETWEEN", value, high)?;
        Ok(Some(Type::Bool))
    }

    fn check_boolean(
        &mut self,
        operator: &'static str,
        operands: &[&Expression],
        depth: usize,
    ) -> Result<Option<Type>, ParameterError> {
        for operand in operands {
            let found = self.check(operand, depth + 1)?;
            must_be(operator, found, &[Type::Bool])?;
        }
        Ok(Some(Type::Bool))
    }

    /// The type of an expression that was checked.
    fn kind(&self, expression: &Expression) -> Option<Type> {
        match expression {
            Expression::Column(index) => self.format.column_type(usize::from(*index)),
            Expression::Literal(literal) => literal_type(literal),
            Expression::Negate(value) => self.kind(value),
            Expression::Arithmetic(Arithmetic::Divide, ..) => Some(Type::Float),
            Expression::Arithmetic(_, left, right) => {
                common(self.kind(left), self.kind(right)).unwrap_or_default()
            }
            _ => Some(Type::Bool),
        }
    }

    fn new_register(&mut self, kind: Type) -> Register {
        self.code.registers.push(kind);
        // Nodes are bounded far below.
        (self.code.registers.len() - 1) as Register
    }

    /// A register for a result.
    fn result(&mut self, kind: Type) -> Register {
        let registers = &self.code.registers;
        match self.free.iter().position(|&free| registers[usize::from(free)] == kind) {
            Some(at) => self.free.swap_remove(at),
            None => self.new_register(kind),
        }
    }

    /// Its value is not needed any more; those of columns and constants stay.
    fn release(&mut self, register: Register) {
        let constant = self.code.constants.iter().any(|(other, _)| *other == register);
        if !constant && !self.columns.contains(&Some(register)) && !self.free.contains(&register) {
            self.free.push(register);
        }
    }

    fn constant(&mut self, kind: Type, literal: &Literal) -> Register {
        let literal = match (kind, literal) {
            (Type::Float, Literal::Int(value)) => Literal::Float(*value as f64),
            (_, other) => other.clone(),
        };
        let same = |other: &Literal| match (other, &literal) {
            (Literal::Float(left), Literal::Float(right)) => left.to_bits() == right.to_bits(),
            (left, right) => left == right,
        };
        let registers = &self.code.registers;
        let known = self
            .code
            .constants
            .iter()
            .find(|(register, other)| registers[usize::from(*register)] == kind && same(other));
        if let Some((register, _)) = known {
            return *register;
        }
        let register = self.new_register(kind);
        self.code.constants.push((register, literal));
        register
    }

    fn column(&mut self, index: u16, kind: Type) -> Register {
        let index = usize::from(index);
        match self.columns[index] {
            Some(register) => register,
            None => {
                let register = self.new_register(kind);
                self.columns[index] = Some(register);
                register
            }
        }
    }

    /// Emits the steps of an expression whose value is wanted as `wanted`.
    fn emit(&mut self, expression: &Expression, wanted: Type) -> Result<Register, ParameterError> {
        if let Expression::Literal(literal) = expression {
            return Ok(self.constant(wanted, literal));
        }
        let Some(kind) = self.kind(expression) else {
            // An operator of nothing but NULL: NULL.
            return Ok(self.constant(wanted, &Literal::Null));
        };
        let register = self.emit_as_is(expression, kind)?;
        if kind == Type::Int && wanted == Type::Float {
            let to = self.result(Type::Float);
            self.code.steps.push(Step::Convert { from: register, to });
            self.release(register);
            return Ok(to);
        }
        Ok(register)
    }

    fn emit_as_is(
        &mut self,
        expression: &Expression,
        kind: Type,
    ) -> Result<Register, ParameterError> {
        match expression {
            Expression::Column(index) => Ok(self.column(*index, kind)),
            Expression::Literal(literal) => Ok(self.constant(kind, literal)),
            Expression::Negate(value) => {
                let from = self.emit(value, kind)?;
                Ok(self.step(kind, &[from], |to| Step::Negate { kind, from, to }))
            }
            Expression::Arithmetic(operator, left, right) => {
                let operator = *operator;
                let (left, right) = (self.emit(left, kind)?, self.emit(right, kind)?);
                Ok(self.step(kind, &[left, right], |to| match kind {
                    Type::Int => Step::Int { operator, left, right, to },
                    _ => Step::Float { operator, left, right, to },
                }))
            }
            Expression::Compare(comparison, left, right) => {
                self.emit_compare(*comparison, left, right)
            }
            Expression::Not(value) => {
                let from = self.emit(value, Type::Bool)?;
                Ok(self.step(Type::Bool, &[from], |to| Step::Not { from, to }))
            }
            Expression::And(left, right) => self.emit_logic(left, right, false),
            Expression::Or(left, right) => self.emit_logic(left, right, true),
            Expression::IsNull { value, negated } => {
                let (wanted, negated) = (self.kind(value).unwrap_or(Type::Bool), *negated);
                let from = self.emit(value, wanted)?;
                Ok(self.step(Type::Bool, &[from], |to| Step::IsNull { from, to, negated }))
            }
            Expression::Between { value, low, high, negated } => {
                let both = self.emit_between(value, low, high)?;
                match *negated {
                    true => Ok(self.step(Type::Bool, &[both], |to| Step::Not { from: both, to })),
                    false => Ok(both),
                }
            }
            Expression::In { value, list, negated } => self.emit_in(value, list, *negated),
            Expression::Like { value, pattern, escape, negated } => {
                let (pattern, negated) = (Pattern::new(pattern, *escape)?, *negated);
                self.count_steps(&pattern)?;
                self.code.patterns.push(pattern);
                let pattern = self.code.patterns.len() - 1;
                let from = self.emit(value, Type::Text)?;
                Ok(self.step(Type::Bool, &[from], |to| Step::Like { from, to, pattern, negated }))
            }
        }
    }

    /// One step whose operands are used up by it.
    fn step(
        &mut self,
        kind: Type,
        operands: &[Register],
        step: impl FnOnce(Register) -> Step,
    ) -> Register {
        // The result is never in an operand's place: those are released behind it.
        let to = self.result(kind);
        self.code.steps.push(step(to));
        operands.iter().for_each(|&operand| self.release(operand));
        to
    }

    fn emit_compare(
        &mut self,
        comparison: Comparison,
        left: &Expression,
        right: &Expression,
    ) -> Result<Register, ParameterError> {
        let kind = comparable(comparison.symbol(), self.kind(left), self.kind(right))?;
        let (left, right) = (self.emit(left, kind)?, self.emit(right, kind)?);
        Ok(self.step(Type::Bool, &[left, right], |to| Step::Compare {
            kind,
            comparison,
            left,
            right,
            to,
        }))
    }

    fn emit_logic(
        &mut self,
        left: &Expression,
        right: &Expression,
        deciding: bool,
    ) -> Result<Register, ParameterError> {
        let left = self.emit(left, Type::Bool)?;
        self.code.steps.push(Step::Narrow { left, unless: deciding });
        self.narrowed += 1;
        self.code.narrowings = self.code.narrowings.max(self.narrowed);
        let right = self.emit(right, Type::Bool)?;
        self.narrowed -= 1;
        Ok(self.step(Type::Bool, &[left, right], |to| Step::Join { left, right, to, deciding }))
    }

    /// `value >= low AND value <= high`, with the value evaluated once.
    fn emit_between(
        &mut self,
        value: &Expression,
        low: &Expression,
        high: &Expression,
    ) -> Result<Register, ParameterError> {
        let own = self.kind(value);
        let first = comparable("BETWEEN", own, self.kind(low))?;
        let second = comparable("BETWEEN", own, self.kind(high))?;
        let register = self.emit(value, own.unwrap_or(first))?;
        let left = self.emit_bound(register, own, first, Comparison::GreaterEqual, low)?;
        self.code.steps.push(Step::Narrow { left, unless: false });
        self.narrowed += 1;
        self.code.narrowings = self.code.narrowings.max(self.narrowed);
        // NULL has no type of its own: another constant for the other one.
        let register = if own.is_some() { register } else { self.constant(second, &Literal::Null) };
        let right = self.emit_bound(register, own, second, Comparison::LessEqual, high)?;
        self.narrowed -= 1;
        self.release(register);
        Ok(self.step(Type::Bool, &[left, right], |to| Step::Join {
            left,
            right,
            to,
            deciding: false,
        }))
    }

    /// Compares a value with one of its bounds as `kind`; the value stays in its register.
    fn emit_bound(
        &mut self,
        value: Register,
        own: Option<Type>,
        kind: Type,
        comparison: Comparison,
        bound: &Expression,
    ) -> Result<Register, ParameterError> {
        let right = self.emit(bound, kind)?;
        let converted = own == Some(Type::Int) && kind == Type::Float;
        let left = match converted {
            true => {
                let to = self.result(Type::Float);
                self.code.steps.push(Step::Convert { from: value, to });
                to
            }
            false => value,
        };
        let to = self.result(Type::Bool);
        self.code.steps.push(Step::Compare { kind, comparison, left, right, to });
        self.release(right);
        if converted {
            self.release(left);
        }
        Ok(to)
    }

    fn emit_in(
        &mut self,
        value: &Expression,
        list: &[Literal],
        negated: bool,
    ) -> Result<Register, ParameterError> {
        let kind = list_type(self.kind(value), list)?.unwrap_or(Type::Bool);
        self.code.lists.push(List::new(kind, list));
        let list = self.code.lists.len() - 1;
        let from = self.emit(value, kind)?;
        Ok(self.step(Type::Bool, &[from], |to| Step::In { from, to, list, negated }))
    }

    fn filter(&mut self, filter: &Expression) -> Result<(), ParameterError> {
        let found = self.check(filter, 0)?;
        must_be("WHERE", found, &[Type::Bool])?;
        let mut conjuncts = Vec::new();
        split_conjunction(filter, &mut conjuncts);
        // A record with a number that is no `i64` is a bad one, which only reading it tells.
        let on_bytes = !needs_wide_unsigned(self.format, filter);
        for conjunct in conjuncts {
            let compare = match self.format {
                Format::Fixed(fixed) if on_bytes => FixedCompare::new(fixed, conjunct),
                _ => None,
            };
            let conjunct = match compare {
                Some(compare) => Conjunct::Fixed(compare),
                None => {
                    let first = self.code.steps.len();
                    let result = self.emit(conjunct, Type::Bool)?;
                    let steps = first..self.code.steps.len();
                    self.release(result);
                    Conjunct::Steps { steps, result }
                }
            };
            self.code.conjuncts.push(conjunct);
        }
        Ok(())
    }

    /// What is given of a record; `as_it_stands`: columns of fixed records are copied, not read.
    fn outputs(&mut self, list: &[Expression], as_it_stands: bool) -> Result<(), ParameterError> {
        let copied = as_it_stands && matches!(self.format, Format::Fixed(_));
        for expression in list {
            let kind = self.check(expression, 0)?.unwrap_or(Type::Int);
            let column = match expression {
                Expression::Column(index) => Some(usize::from(*index)),
                _ => None,
            };
            let register = match column {
                Some(_) if copied => 0,
                _ => self.emit(expression, kind)?,
            };
            self.code.outputs.push(Outcome { kind, register, column });
        }
        Ok(())
    }

    fn argument(
        &mut self,
        function: Function,
        argument: Option<&Expression>,
    ) -> Result<(), ParameterError> {
        match argument {
            Some(argument) => {
                self.outputs(std::slice::from_ref(argument), false)?;
                let kind = self.code.outputs.last().map(|outcome| outcome.kind);
                match function {
                    Function::Sum | Function::Avg => must_be(function.name(), kind, NUMBERS),
                    _ => Ok(()),
                }
            }
            None if function == Function::Count => {
                let register = self.constant(Type::Bool, &Literal::Bool(true));
                self.code.outputs.push(Outcome { kind: Type::Bool, register, column: None });
                Ok(())
            }
            None => Err(ParameterError::NoArgument { function: function.name() }),
        }
    }
}

fn check_text(text: &[u8]) -> Result<(), ParameterError> {
    let (value, most) = (text.len() as u64, MAX_TEXT_BYTES as u64);
    match value <= most {
        true => Ok(()),
        false => Err(ParameterError::Bounds { what: "bytes of a text", value, least: 0, most }),
    }
}

fn check_literal(literal: &Literal) -> Result<(), ParameterError> {
    match literal {
        Literal::Text(text) => check_text(text),
        _ => Ok(()),
    }
}

fn arithmetic_type(
    operator: Arithmetic,
    left: Option<Type>,
    right: Option<Type>,
) -> Result<Option<Type>, ParameterError> {
    let allowed = if operator == Arithmetic::IntegerDivide { &NUMBERS[..1] } else { NUMBERS };
    must_be(operator.symbol(), left, allowed)?;
    must_be(operator.symbol(), right, allowed)?;
    if operator == Arithmetic::Divide {
        return Ok(Some(Type::Float));
    }
    // Two numbers always have a type in common.
    Ok(common(left, right).unwrap_or_default())
}

fn comparable(
    operator: &'static str,
    left: Option<Type>,
    right: Option<Type>,
) -> Result<Type, ParameterError> {
    match common(left, right) {
        Ok(kind) => Ok(kind.unwrap_or(Type::Bool)),
        Err((left, right)) => Err(ParameterError::Operands { operator, left, right }),
    }
}

/// The type that a value and the constants of its IN have in common.
fn list_type(value: Option<Type>, list: &[Literal]) -> Result<Option<Type>, ParameterError> {
    list.iter().try_fold(value, |kind, literal| {
        common(kind, literal_type(literal)).map_err(|(left, right)| ParameterError::Operands {
            operator: "IN",
            left,
            right,
        })
    })
}

fn split_conjunction<'a>(expression: &'a Expression, into: &mut Vec<&'a Expression>) {
    match expression {
        Expression::And(left, right) => {
            split_conjunction(left, into);
            split_conjunction(right, into);
        }
        other => into.push(other),
    }
}

/// Whether an expression needs an unsigned field of 8 bytes.
fn needs_wide_unsigned(format: &Format, expression: &Expression) -> bool {
    let Format::Fixed(fixed) = format else {
        return false;
    };
    let needs = |operand: &Expression| needs_wide_unsigned(format, operand);
    match expression {
        Expression::Column(index) => matches!(
            fixed.fields.get(usize::from(*index)).map(|field| field.kind),
            Some(FieldKind::Integer { bytes: 8, signed: false, .. })
        ),
        Expression::Literal(_) => false,
        Expression::Negate(value)
        | Expression::Not(value)
        | Expression::IsNull { value, .. }
        | Expression::In { value, .. }
        | Expression::Like { value, .. } => needs(value),
        Expression::Arithmetic(_, left, right)
        | Expression::Compare(_, left, right)
        | Expression::And(left, right)
        | Expression::Or(left, right) => needs(left) || needs(right),
        Expression::Between { value, low, high, .. } => needs(value) || needs(low) || needs(high),
    }
}
