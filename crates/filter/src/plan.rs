//! A plan: format, program and options; what a drive is sent, and what a client runs by itself.

use crate::compile::{Code, compile};
use crate::error::ParameterError;
use crate::expression::Expression;
use crate::format::{Format, Type};
use crate::scan::Scan;
use std::fmt;
use std::sync::Arc;

/// Most expressions of a projection.
pub const MAX_PROJECTION: usize = 256;
/// Most keys of a GROUP BY.
pub const MAX_KEYS: usize = 16;
/// Most aggregates of a program.
pub const MAX_ITEMS: usize = 64;
/// Most records of a top, and most groups.
pub const MAX_KEPT: u32 = 1 << 20;
/// Most bytes of `options.longest_record` and `options.state_bytes`.
pub const MAX_BYTES: u32 = 1 << 30;

/// Everything that a scan needs to know before its bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What the records are.
    pub format: Format,
    /// What is done with them.
    pub program: Program,
    /// Bounds and choices.
    pub options: Options,
}

/// What is done with the records.
#[derive(Clone, Debug, PartialEq)]
pub enum Program {
    /// Gives out records, or expressions of them.
    Select(Select),
    /// Counts and sums them up.
    Aggregate(Aggregate),
    /// Gives out those with the most or least of something.
    Top(Top),
}

/// Records that a filter selects, in the file's order.
#[derive(Clone, Debug, PartialEq)]
pub struct Select {
    /// WHERE; all without one.
    pub filter: Option<Expression>,
    /// What is given of a record; the record's own bytes without one.
    pub projection: Option<Vec<Expression>>,
    /// The most records that are given.
    pub limit: Option<u64>,
}

/// Aggregates of groups of records.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    /// WHERE; all without one.
    pub filter: Option<Expression>,
    /// GROUP BY; without keys everything is one group, which there is even without a record.
    pub keys: Vec<Expression>,
    /// What is told of each group.
    pub items: Vec<Item>,
}

/// One aggregate.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Which.
    pub function: Function,
    /// Of what; `count` without it counts records.
    pub argument: Option<Expression>,
}

nasd_xdr::xdr_enum! {
    /// Aggregate functions. All of them pass over NULL.
    pub enum Function {
        /// How many.
        Count = 0,
        /// The sum: of integers as an `i128`, of floats exactly and then rounded once. NULL of nothing.
        Sum = 1,
        /// The least. NULL of nothing.
        Min = 2,
        /// The greatest. NULL of nothing.
        Max = 3,
        /// The sum divided by the count, as floats. NULL of nothing.
        Avg = 4,
    }
}

/// The first records in the order of an expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Top {
    /// WHERE; all without one.
    pub filter: Option<Expression>,
    /// ORDER BY; NULL comes last, and of equals the one that is earlier in the file comes first.
    pub order: Expression,
    /// Whether the greatest come first.
    pub descending: bool,
    /// How many.
    pub count: u32,
    /// What is given of a record; the record's own bytes without one.
    pub projection: Option<Vec<Expression>>,
}

/// Bounds and choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The most bytes of a record, with its line end; longer ones are bad.
    pub longest_record: u32,
    /// Whether a bad record is an error. Otherwise it is skipped and counted.
    pub strict: bool,
    /// The most groups.
    pub groups: u32,
    /// The most bytes of what is kept: keys of groups, texts of `min` and `max`, records of a top. Each
    /// takes the next power of two.
    pub state_bytes: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options { longest_record: 1 << 20, strict: false, groups: 1 << 16, state_bytes: 1 << 22 }
    }
}

impl Function {
    /// As in SQL.
    pub const fn name(self) -> &'static str {
        match self {
            Function::Count => "count",
            Function::Sum => "sum",
            Function::Min => "min",
            Function::Max => "max",
            Function::Avg => "avg",
        }
    }
}

impl Program {
    /// WHERE.
    pub fn filter(&self) -> Option<&Expression> {
        match self {
            Program::Select(select) => select.filter.as_ref(),
            Program::Aggregate(aggregate) => aggregate.filter.as_ref(),
            Program::Top(top) => top.filter.as_ref(),
        }
    }

    /// What is given of a record, if it is not its own bytes.
    pub fn projection(&self) -> Option<&[Expression]> {
        match self {
            Program::Select(select) => select.projection.as_deref(),
            Program::Aggregate(_) => None,
            Program::Top(top) => top.projection.as_deref(),
        }
    }
}

/// A plan that was found right, with what was made of it.
#[derive(Clone)]
pub struct Checked {
    inner: Arc<(Plan, Code)>,
    secret: u64,
}

/// What hashes depend on where nobody gives a secret.
const PUBLIC_SECRET: u64 = 0x9e37_79b9_7f4a_7c15;

fn bounds(what: &'static str, value: u64, least: u64, most: u64) -> Result<(), ParameterError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ParameterError::Bounds { what, value, least, most })
}

impl Plan {
    /// Checks the plan and compiles its program.
    ///
    /// # Errors
    ///
    /// The first that is wrong.
    pub fn check(&self) -> Result<Checked, ParameterError> {
        self.format.check()?;
        let options = &self.options;
        let most = u64::from(MAX_BYTES);
        bounds("options.longest_record", options.longest_record.into(), 1, most)?;
        bounds("options.state_bytes", options.state_bytes.into(), 0, most)?;
        bounds("options.groups", options.groups.into(), 1, MAX_KEPT.into())?;
        if let Format::Fixed(fixed) = &self.format {
            let longest = u64::from(options.longest_record);
            bounds("bytes of a record", fixed.record_bytes() as u64, 1, longest)?;
        }
        let is_record = match &self.program {
            Program::Select(select) => select.projection.is_none(),
            Program::Top(top) => top.projection.is_none(),
            Program::Aggregate(_) => false,
        };
        if is_record && matches!(self.format, Format::Columns(_)) {
            return Err(ParameterError::NoRecord);
        }
        if let Some(projection) = self.program.projection() {
            bounds("expressions", projection.len() as u64, 1, MAX_PROJECTION as u64)?;
        }
        match &self.program {
            Program::Select(_) => {}
            Program::Aggregate(aggregate) => {
                bounds("keys", aggregate.keys.len() as u64, 0, MAX_KEYS as u64)?;
                bounds("aggregates", aggregate.items.len() as u64, 0, MAX_ITEMS as u64)?;
                let both = aggregate.keys.len() + aggregate.items.len();
                bounds("keys and aggregates", both as u64, 1, (MAX_KEYS + MAX_ITEMS) as u64)?;
            }
            Program::Top(top) => bounds("records of a top", top.count.into(), 0, MAX_KEPT.into())?,
        }
        // First, as it finds expressions that are too deep to be copied.
        let code = compile(self)?;
        Ok(Checked { inner: Arc::new((self.clone(), code)), secret: PUBLIC_SECRET })
    }
}

impl Checked {
    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.inner.0
    }

    /// The same, where all tables of groups depend on a number that nobody else knows: those of scans, and those where
    /// their results are put together. Without one there are files that are slow to group.
    #[must_use]
    pub fn with_secret(&self, secret: u64) -> Checked {
        Checked { secret, ..self.clone() }
    }

    /// Whether such a number was given.
    pub fn has_secret(&self) -> bool {
        self.secret != PUBLIC_SECRET
    }

    pub(crate) fn secret(&self) -> u64 {
        self.secret
    }

    pub(crate) fn code(&self) -> &Code {
        &self.inner.1
    }

    /// The types of what is given of a record; none when it is the record's own bytes. Of an aggregate
    /// those of its keys and of the items' arguments (a boolean where there is none).
    pub fn result_types(&self) -> Vec<Type> {
        self.code().outputs.iter().map(|output| output.kind).collect()
    }

    /// The columns that the program looks at, ascending.
    pub fn needed_columns(&self) -> Vec<usize> {
        let loads = self.code().filter_loads.iter().chain(&self.code().rest_loads);
        let mut columns: Vec<usize> = loads.map(|load| load.column).collect();
        columns.sort_unstable();
        columns
    }

    /// How many steps LIKE may take for the longest record and for so many bytes behind it, at the most.
    pub fn like_steps(&self, bytes: u64) -> u64 {
        let longest = match &self.plan().format {
            Format::Fixed(fixed) => fixed.record_bytes() as u64,
            _ => self.plan().options.longest_record.into(),
        };
        self.code().like_steps.saturating_mul(longest.saturating_add(bytes))
    }

    /// All the bytes of memory that a scan will ever use.
    pub fn memory_bytes(&self) -> usize {
        Scan::memory_bytes(self)
    }

    /// A scan that has seen nothing. Allocates [`memory_bytes`](Self::memory_bytes); nothing is allocated
    /// afterwards.
    pub fn start(&self) -> Scan {
        Scan::new(self)
    }
}

impl fmt::Debug for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checked").field("plan", self.plan()).finish_non_exhaustive()
    }
}
