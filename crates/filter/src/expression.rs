//! Expressions over the columns of one record, as they are written; see the README for what they mean.

/// Most levels of an expression.
pub const MAX_DEPTH: usize = 64;
/// Most operators, columns and constants of all of a plan's expressions together.
pub const MAX_NODES: usize = 1024;
/// Most `_` in all patterns together, by the most bytes of a record: at each byte each of them may take a step.
pub const MAX_LIKE_STEPS: u64 = 1 << 30;
/// Most bytes of a constant text or a pattern.
pub const MAX_TEXT_BYTES: usize = 4096;

/// A constant.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// Of whatever type is needed.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// Bytes; in UTF-8 by custom.
    Text(Vec<u8>),
}

nasd_xdr::xdr_enum! {
    /// Operators of two numbers. Those of an integer and a float are of two floats.
    pub enum Arithmetic {
        /// `+`; integers that overflow end the scan.
        Add = 0,
        /// `-`; likewise.
        Subtract = 1,
        /// `*`; likewise.
        Multiply = 2,
        /// `/`, always of floats; by zero NULL.
        Divide = 3,
        /// `//` of integers, towards zero; by zero NULL.
        IntegerDivide = 4,
        /// `%`, with the sign of the left; by zero NULL.
        Remainder = 5,
    }
}

nasd_xdr::xdr_enum! {
    /// Comparisons of two numbers, two texts, or two booleans.
    pub enum Comparison {
        /// `=`
        Equal = 0,
        /// `<>`
        NotEqual = 1,
        /// `<`
        Less = 2,
        /// `<=`
        LessEqual = 3,
        /// `>`
        Greater = 4,
        /// `>=`
        GreaterEqual = 5,
    }
}

/// An expression over the columns of one record.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// A column of the format, from 0.
    Column(u16),
    /// A constant.
    Literal(Literal),
    /// `-x`; of `i64::MIN` ends the scan.
    Negate(Box<Expression>),
    /// `NOT x`
    Not(Box<Expression>),
    /// A number of two.
    Arithmetic(Arithmetic, Box<Expression>, Box<Expression>),
    /// A boolean of two values of a kind.
    Compare(Comparison, Box<Expression>, Box<Expression>),
    /// `x AND y`; where `x` is false, `y` is not evaluated.
    And(Box<Expression>, Box<Expression>),
    /// `x OR y`; where `x` is true, `y` is not evaluated.
    Or(Box<Expression>, Box<Expression>),
    /// `x IS [NOT] NULL`
    IsNull {
        /// The `x`.
        value: Box<Expression>,
        /// Whether with NOT.
        negated: bool,
    },
    /// `x [NOT] BETWEEN low AND high`: `x >= low AND x <= high`.
    Between {
        /// The `x`.
        value: Box<Expression>,
        /// The least.
        low: Box<Expression>,
        /// The most.
        high: Box<Expression>,
        /// Whether with NOT.
        negated: bool,
    },
    /// `x [NOT] IN (...)`; the constants must be comparable with `x`.
    In {
        /// The `x`.
        value: Box<Expression>,
        /// The constants, in any order.
        list: Vec<Literal>,
        /// Whether with NOT.
        negated: bool,
    },
    /// `x [NOT] LIKE pattern [ESCAPE escape]`: `_` stands for one character of UTF-8, `%` for any number.
    Like {
        /// The text.
        value: Box<Expression>,
        /// The pattern.
        pattern: Vec<u8>,
        /// An ASCII character that makes the one behind it stand for itself.
        escape: Option<u8>,
        /// Whether with NOT.
        negated: bool,
    },
}

impl Arithmetic {
    /// As in SQL.
    pub const fn symbol(self) -> &'static str {
        match self {
            Arithmetic::Add => "+",
            Arithmetic::Subtract => "-",
            Arithmetic::Multiply => "*",
            Arithmetic::Divide => "/",
            Arithmetic::IntegerDivide => "//",
            Arithmetic::Remainder => "%",
        }
    }
}

impl Comparison {
    /// As in SQL.
    pub const fn symbol(self) -> &'static str {
        match self {
            Comparison::Equal => "=",
            Comparison::NotEqual => "<>",
            Comparison::Less => "<",
            Comparison::LessEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterEqual => ">=",
        }
    }

    /// The one that says the same with its sides exchanged.
    pub(crate) const fn exchanged(self) -> Comparison {
        match self {
            Comparison::Less => Comparison::Greater,
            Comparison::LessEqual => Comparison::GreaterEqual,
            Comparison::Greater => Comparison::Less,
            Comparison::GreaterEqual => Comparison::LessEqual,
            same => same,
        }
    }

    /// Whether it holds for two values that are so ordered.
    #[inline]
    pub(crate) const fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterEqual => order.is_ge(),
        }
    }
}

impl Expression {
    /// A column, from 0.
    pub fn column(index: u16) -> Expression {
        Expression::Column(index)
    }

    /// A constant integer.
    pub fn int(value: i64) -> Expression {
        Expression::Literal(Literal::Int(value))
    }

    /// A constant float.
    pub fn float(value: f64) -> Expression {
        Expression::Literal(Literal::Float(value))
    }

    /// A constant text.
    pub fn text(value: impl Into<Vec<u8>>) -> Expression {
        Expression::Literal(Literal::Text(value.into()))
    }

    /// `left comparison right`
    pub fn compare(comparison: Comparison, left: Expression, right: Expression) -> Expression {
        Expression::Compare(comparison, Box::new(left), Box::new(right))
    }

    /// `left operator right`
    pub fn arithmetic(operator: Arithmetic, left: Expression, right: Expression) -> Expression {
        Expression::Arithmetic(operator, Box::new(left), Box::new(right))
    }

    /// `left AND right`
    pub fn and(left: Expression, right: Expression) -> Expression {
        Expression::And(Box::new(left), Box::new(right))
    }

    /// `left OR right`
    pub fn or(left: Expression, right: Expression) -> Expression {
        Expression::Or(Box::new(left), Box::new(right))
    }

    /// `NOT value`
    #[expect(clippy::should_implement_trait, reason = "it is the operator's name, of no receiver")]
    pub fn not(value: Expression) -> Expression {
        Expression::Not(Box::new(value))
    }
}
