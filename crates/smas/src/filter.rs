//! Filters that can be chosen, and the plans that they are for the drives.

use nasd_clerk::GrepPlan;
use nasd_filter::sql;
use nasd_filter::{
    Aggregate, Arrangement, Checked, Expression, Format, Function, Item, Options, Plan, Program,
    Select,
};
use nasd_grep::{Pattern, Wanted};

use crate::conditions::{self, Condition, Junction, column_of};
use crate::error::SmasError;

/// What is done with the records, or the lines, of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// Gives the records that meet the conditions, as they are in the file.
    Select(Vec<(Junction, Condition)>),
    /// Gives one value of all records that meet the conditions: a signed integer or a float of eight bytes, in this
    /// machine's order, or a text; nothing where there is no value (as the least of none).
    Aggregate {
        /// Which value.
        function: Function,
        /// Of which field, from 1. `Count` counts records without one.
        field: Option<u16>,
        /// Of which records.
        conditions: Vec<(Junction, Condition)>,
    },
    /// Gives the rows of a query over fields `f1`, `f2` and so on, or over the columns that the format names.
    Sql(String),
    /// Gives lines that a pattern matches, without their ends. It needs no records.
    Grep(Pattern),
}

/// A filter that was checked against the records.
pub(crate) enum Chosen {
    /// Rows, or a value.
    Scan {
        checked: Checked,
        /// How what is told at the end is shown.
        shown: Shown,
    },
    /// Lines.
    Grep(GrepPlan),
}

/// How groups are shown.
pub(crate) enum Shown {
    /// The one value of the only group, as it is in memory.
    Value,
    /// Lines of some of their values.
    Columns {
        /// Which, by their places in groups.
        places: Vec<usize>,
        /// The order of the lines.
        arrangement: Arrangement,
        /// What stands between two values, and around those that hold it.
        marks: (u8, u8),
    },
}

/// The delimiter and the quote of lines: those of the file, where it has some.
fn marks(format: &Format) -> (u8, u8) {
    match format {
        Format::Delimited(lines) => (lines.delimiter, lines.quote.unwrap_or(b'"')),
        Format::Fixed(_) | Format::JsonLines(_) | Format::Columns(_) => (b',', b'"'),
    }
}

fn options(format: &Format) -> Options {
    // A program would not notice what was passed over.
    let mut options = Options { strict: true, ..Options::default() };
    if let Format::Fixed(fixed) = format {
        let bytes = u32::try_from(fixed.record_bytes()).unwrap_or(u32::MAX);
        options.longest_record = options.longest_record.max(bytes);
    }
    options
}

/// The plan of all records of that format: right if the format is.
pub(crate) fn all_records(format: &Format) -> Plan {
    let program = Program::Select(Select { filter: None, projection: None, limit: None });
    Plan { format: format.clone(), program, options: options(format) }
}

impl Filter {
    /// A query.
    pub fn sql(text: impl Into<String>) -> Filter {
        Filter::Sql(text.into())
    }

    /// A regular expression that lines are to match.
    pub fn grep(expression: impl Into<String>) -> Filter {
        Filter::Grep(Pattern { texts: vec![expression.into()], ..Pattern::default() })
    }

    /// Checks it against what the records are.
    pub(crate) fn choose(&self, format: Option<&Format>) -> Result<Chosen, SmasError> {
        if let Filter::Grep(pattern) = self {
            return Ok(Chosen::Grep(GrepPlan::new(pattern.clone(), Wanted::default())?));
        }
        let format = format.ok_or(SmasError::NoRecords)?;
        let (program, shown) = self.program(format)?;
        let plan = Plan { format: format.clone(), program, options: options(format) };
        Ok(Chosen::Scan { checked: plan.check()?, shown })
    }

    fn program(&self, format: &Format) -> Result<(Program, Shown), SmasError> {
        match self {
            Filter::Select(conditions) => {
                let filter = conditions::all(conditions, format)?;
                let select = Select { filter, projection: None, limit: None };
                Ok((Program::Select(select), Shown::Value))
            }
            Filter::Aggregate { function, field, conditions } => {
                let filter = conditions::all(conditions, format)?;
                let fields = format.column_count();
                let column = field.map(|field| column_of(field, fields)).transpose()?;
                if column.is_none() && *function != Function::Count {
                    let name = function.name();
                    return Err(SmasError::Argument(format!("{name} needs a field")));
                }
                let argument = column.map(Expression::Column);
                let items = vec![Item { function: *function, argument }];
                Ok((
                    Program::Aggregate(Aggregate { filter, keys: Vec::new(), items }),
                    Shown::Value,
                ))
            }
            Filter::Sql(text) => {
                let query = sql::parse(text, format)?;
                let places = query.columns.iter().map(|column| column.place).collect();
                let arrangement = query.arrangement;
                let shown = Shown::Columns { places, arrangement, marks: marks(format) };
                Ok((query.program, shown))
            }
            Filter::Grep(_) => Err(SmasError::NoRecords),
        }
    }
}
