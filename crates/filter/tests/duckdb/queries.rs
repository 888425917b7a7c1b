//! Queries at random. What the README declares different is left out, or DuckDB is asked for more; each
//! such place says so.

use super::files::{FLOATS, Holds, INTS, SMALL_INTS, TEXTS, text};
use super::random::Random;
use nasd_filter::{Column, Type};

/// A query, and how its results are compared.
pub struct Query {
    pub ours: String,
    pub duck: String,
    /// Whether DuckDB may rearrange it.
    pub optimized: bool,
    /// How the columns are compared; those that are missing exactly. DuckDB's result may have more behind
    /// ours.
    pub columns: Vec<Compared>,
    /// The columns that rows are sorted by before they are compared; without it they have an order.
    pub keys: Option<Vec<usize>>,
}

/// How a column of the result is compared.
#[derive(Clone, Copy, Debug)]
pub enum Compared {
    /// To the bit; NaN is NaN.
    Exact,
    /// Zeros are equal: which of those of a group is its key, and which is the least or the greatest,
    /// DuckDB leaves open.
    Zeros,
    /// DuckDB rounds at every step, so it depends on the size of what was added up: DuckDB's columns
    /// behind the others, from this one on, are the sum of its absolute values and the greatest of them.
    Sum(usize),
    /// The average of integers, which DuckDB divides with more bits.
    Average,
}

/// An expression.
#[derive(Clone)]
struct Term {
    text: String,
    kind: Type,
    level: Level,
}

/// How closely the outermost operator binds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Or,
    And,
    Not,
    /// Comparisons, BETWEEN, IN, LIKE, IS NULL.
    Test,
    Sum,
    Product,
    Sign,
    Atom,
}

impl Level {
    const fn above(self) -> Level {
        match self {
            Level::Or => Level::And,
            Level::And => Level::Not,
            Level::Not => Level::Test,
            Level::Test => Level::Sum,
            Level::Sum => Level::Product,
            Level::Product => Level::Sign,
            Level::Sign | Level::Atom => Level::Atom,
        }
    }
}

impl Term {
    fn new(text: impl Into<String>, kind: Type, level: Level) -> Term {
        Term { text: text.into(), kind, level }
    }

    fn in_parentheses(self) -> Term {
        Term::new(format!("({})", self.text), self.kind, Level::Atom)
    }
}

const COMPARISONS: &[&str] = &["=", "<>", "!=", "<", "<=", ">", ">="];

pub struct Maker<'a> {
    pub columns: &'a [Column],
    pub random: &'a mut Random,
    /// Whether an integer may overflow.
    pub overflows: bool,
}

impl Maker<'_> {
    pub fn query(&mut self) -> Query {
        // In the operands of AND and OR, behind a LIMIT and in whatever DuckDB rearranges it is open
        // whether something that overflows is evaluated. So these are other queries.
        self.overflows = false;
        let filter = (!self.random.one_in(4)).then(|| self.boolean(3));
        self.overflows = self.random.one_in(8);
        let mut from = "FROM data".to_owned();
        if let Some(filter) = filter {
            from.push_str(&format!(" WHERE {}", filter.text));
        }
        match self.random.below(3) {
            0 => self.select(from),
            1 => self.aggregate(&from),
            _ => self.top(&from),
        }
    }

    fn items(&mut self) -> (String, Vec<Compared>) {
        if self.random.one_in(3) {
            return ("*".to_owned(), vec![Compared::Exact; self.columns.len()]);
        }
        let terms: Vec<Term> = (0..1 + self.random.below(4)).map(|_| self.any(2)).collect();
        (joined(&terms), vec![Compared::Exact; terms.len()])
    }

    fn select(&mut self, mut from: String) -> Query {
        if self.random.one_in(2) {
            self.overflows = false;
            let limit = self.random.pick(&[0, 1, 2, 3, 7, 30, 1100, 100_000]);
            from.push_str(&format!(" LIMIT {limit}"));
        }
        let (items, columns) = self.items();
        let text = format!("SELECT {items} {from}");
        let optimized = !self.overflows;
        Query { ours: text.clone(), duck: text, optimized, columns, keys: None }
    }

    /// Of equals DuckDB gives any; asked for the place in the file as well, it gives the earlier.
    fn top(&mut self, from: &str) -> Query {
        self.overflows = false;
        let (items, columns) = self.items();
        let order = self.expression(2).text;
        let direction = self.random.pick(&["", " ASC", " DESC"]);
        let limit = self.random.pick(&[0, 1, 2, 3, 7, 30, 1100]);
        let text = format!("SELECT {items} {from} ORDER BY {order}{direction}");
        let (ours, duck) =
            (format!("{text} LIMIT {limit}"), format!("{text}, rowid LIMIT {limit}"));
        Query { ours, duck, optimized: true, columns, keys: None }
    }

    fn aggregate(&mut self, from: &str) -> Query {
        let is_arranged = self.random.one_in(2);
        self.overflows &= !is_arranged;
        let keys: Vec<Term> = (0..self.random.pick(&[0, 0, 1, 1, 2])).map(|_| self.key()).collect();
        let named = self.random.below(3);
        let (mut items, mut by) = (Vec::new(), Vec::new());
        for (index, key) in keys.iter().enumerate() {
            let mut item = key.clone();
            by.push(match named {
                0 => key.text.clone(),
                1 => (index + 1).to_string(),
                _ => {
                    item.text.push_str(&format!(" AS k{index}"));
                    format!("k{index}")
                }
            });
            items.push(item);
        }
        let mut columns = vec![Compared::Zeros; keys.len()];
        let mut sizes = Vec::new();
        let least = usize::from(keys.is_empty());
        for _ in 0..least + self.random.below(4) {
            let (item, compared) = self.item(&mut sizes);
            items.push(item);
            columns.push(compared);
        }
        let mut end = from.to_owned();
        if !keys.is_empty() {
            end.push_str(&format!(" GROUP BY {}", by.join(", ")));
        }
        let mut ours = format!("SELECT {} {end}", joined(&items));
        let arranged = is_arranged.then(|| self.arrangement(&items, &columns, keys.len()));
        items.append(&mut sizes);
        let mut duck = format!("SELECT {} {end}", joined(&items));
        let keys = arranged.is_none().then(|| (0..keys.len()).collect());
        if let Some((ours_by, duck_by)) = arranged {
            ours += &ours_by;
            duck += &duck_by;
        }
        Query { ours, duck, optimized: !self.overflows, columns, keys }
    }

    /// An ORDER BY and a LIMIT of groups. Of equals DuckDB gives any, and so do we not: it is asked for the order of the keys as
    /// well. What it rounds is no order.
    fn arrangement(
        &mut self,
        items: &[Term],
        columns: &[Compared],
        keys: usize,
    ) -> (String, String) {
        let exact = |place: &usize| matches!(columns[*place], Compared::Exact | Compared::Zeros);
        let places: Vec<usize> = (0..items.len()).filter(exact).collect();
        let mut by = Vec::new();
        for _ in 0..self.random.below(3).min(places.len()) {
            let place = self.random.pick(&places);
            let item = match items[place].text.split_once(" AS ") {
                Some((_, alias)) if self.random.one_in(2) => alias.to_owned(),
                // A constant would be the number of another item.
                None if place >= keys && self.random.one_in(2) => items[place].text.clone(),
                _ => (place + 1).to_string(),
            };
            by.push(item + self.random.pick(&["", " ASC", " DESC", " DESC NULLS LAST"]));
        }
        let limit = self.random.pick(&["", " LIMIT 0", " LIMIT 1", " LIMIT 2", " LIMIT 5"]);
        let told = |by: &[String]| match by.is_empty() {
            true => limit.to_owned(),
            false => format!(" ORDER BY {}{limit}", by.join(", ")),
        };
        let ours = told(&by);
        by.extend((1..=keys).map(|key| key.to_string()));
        (ours, told(&by))
    }

    fn item(&mut self, sizes: &mut Vec<Term>) -> (Term, Compared) {
        let function = self.random.pick(&["count", "sum", "min", "max", "avg", "COUNT"]);
        if function == "COUNT" {
            return (Term::new("count(*)", Type::Int, Level::Atom), Compared::Exact);
        }
        let argument = match function {
            "sum" | "avg" => match self.number(2) {
                Some(number) => number,
                None => return self.item(sizes),
            },
            _ => self.any(2),
        };
        let compared = match (function, argument.kind) {
            ("sum" | "avg", Type::Float) => {
                let of = |text| Term::new(text, Type::Float, Level::Atom);
                sizes.push(of(format!("sum(abs({}))", argument.text)));
                sizes.push(of(format!("max(abs({}))", argument.text)));
                Compared::Sum(sizes.len() - 2)
            }
            ("avg", _) => Compared::Average,
            ("min" | "max", Type::Float) => Compared::Zeros,
            _ => Compared::Exact,
        };
        let text = format!("{function}({})", argument.text);
        (Term::new(text, argument.kind, Level::Atom), compared)
    }

    fn key(&mut self) -> Term {
        match self.random.one_in(2) {
            true => self.column(|_| true).unwrap_or_else(|| self.expression(1)),
            false => self.expression(1),
        }
    }

    /// An expression over columns: a constant would be the number of a result, or refused.
    fn expression(&mut self, depth: usize) -> Term {
        match self.random.below(4) {
            0 => Some(self.boolean(depth)).filter(|term| term.level != Level::Atom),
            1 => self.text(),
            2 => self.column(|_| true),
            _ => self.number(depth),
        }
        .unwrap_or_else(|| self.is_null(0))
    }

    fn any(&mut self, depth: usize) -> Term {
        match self.random.below(12) {
            0 => self.text_constant(),
            1 => self.int_constant(),
            2 => self.float_constant(),
            3 => Term::new(self.random.pick(&["NULL", "TRUE", "false"]), Type::Bool, Level::Atom),
            _ => self.expression(depth),
        }
    }

    fn column(&mut self, wanted: impl Fn(Holds) -> bool) -> Option<Term> {
        let all: Vec<&Column> =
            self.columns.iter().filter(|column| wanted(Holds::of(&column.name))).collect();
        if all.is_empty() {
            return None;
        }
        let column = self.random.pick(&all);
        // In any case.
        let name = match self.random.one_in(10) {
            true => column.name.to_uppercase(),
            false => column.name.clone(),
        };
        Some(Term::new(name, column.kind, Level::Atom))
    }

    /// As an operand of an operator.
    fn operand(&mut self, term: Term, least: Level) -> Term {
        match term.level < least || self.random.one_in(8) {
            true => term.in_parentheses(),
            false => term,
        }
    }

    fn binary(
        &mut self,
        left: Term,
        operator: &str,
        right: Term,
        kind: Type,
        level: Level,
    ) -> Term {
        // Comparisons take none of their kind on either side.
        let least = if level == Level::Test { level.above() } else { level };
        let (left, right) = (self.operand(left, least), self.operand(right, level.above()));
        Term::new(format!("{} {operator} {}", left.text, right.text), kind, level)
    }

    /// Never an operator of nothing but constants: DuckDB has them of 32 bits where they fit.
    fn number(&mut self, depth: usize) -> Option<Term> {
        if depth == 0 || self.random.one_in(2) {
            return self.column(|holds| holds != Holds::Texts);
        }
        match self.random.below(3) {
            0 => self.float(depth),
            _ => self.int(depth),
        }
        .or_else(|| self.number(0))
    }

    fn int(&mut self, depth: usize) -> Option<Term> {
        let overflows = self.overflows;
        let small = move |holds| holds == Holds::SmallInts;
        let ints = |holds| matches!(holds, Holds::SmallInts | Holds::Ints);
        if depth == 0 {
            return self.column(move |holds| small(holds) || (overflows && ints(holds)));
        }
        let operator = self.random.pick(&["+", "-", "*", "//", "%", "sign"]);
        if operator == "sign" {
            let value = self.int(depth - 1)?;
            return Some(self.negated(value));
        }
        let level = if matches!(operator, "+" | "-") { Level::Sum } else { Level::Product };
        if matches!(operator, "//" | "%") && self.random.one_in(2) {
            // What is divided may be anything if it is not divided by -1.
            let (left, right) = (self.column(ints)?, self.random.pick(&["2", "7", "-3", "0"]));
            let right = Term::new(right, Type::Int, Level::Sign);
            return Some(self.binary(left, operator, right, Type::Int, level));
        }
        let (left, right) = (self.int(depth - 1)?, self.int(depth - 1)?);
        let constant = match (overflows, self.random.below(12)) {
            (true, _) => self.random.pick(INTS).to_string(),
            (false, 0) => "NULL".to_owned(),
            (false, _) => self.random.pick(SMALL_INTS).to_string(),
        };
        let constant = Term::new(constant, Type::Int, Level::Sign);
        let (left, right) = match self.random.below(3) {
            0 => (left, right),
            1 => (left, constant),
            _ => (constant, right),
        };
        Some(self.binary(left, operator, right, Type::Int, level))
    }

    fn negated(&mut self, value: Term) -> Term {
        let value = self.operand(value, Level::Atom);
        Term::new(format!("-{}", value.text), value.kind, Level::Sign)
    }

    /// Without `//`, which is refused of floats.
    fn float(&mut self, depth: usize) -> Option<Term> {
        let operator = self.random.pick(&["+", "-", "*", "/", "/", "%", "sign"]);
        if operator == "sign" {
            let value = self.column(|holds| holds == Holds::Floats)?;
            return Some(self.negated(value));
        }
        let level = if matches!(operator, "+" | "-") { Level::Sum } else { Level::Product };
        let mut left = self.number(depth - 1)?;
        let mut right = self.number(depth - 1)?;
        match self.random.below(3) {
            0 => {}
            1 => right = self.number_constant(left.kind),
            _ => left = self.number_constant(right.kind),
        }
        if operator != "/" && left.kind != Type::Float && right.kind != Type::Float {
            right = self.column(|holds| holds == Holds::Floats)?;
        }
        Some(self.binary(left, operator, right, Type::Float, level))
    }

    fn int_constant(&mut self) -> Term {
        let value = match self.random.one_in(2) {
            true => self.random.pick(INTS),
            false => self.random.pick(SMALL_INTS),
        };
        Term::new(value.to_string(), Type::Int, Level::Sign)
    }

    /// With an exponent, as without DuckDB has a decimal.
    fn float_constant(&mut self) -> Term {
        let finite: Vec<f64> = FLOATS.iter().copied().filter(|value| value.is_finite()).collect();
        Term::new(format!("{:e}", self.random.pick(&finite)), Type::Float, Level::Sign)
    }

    /// A constant beside a value of a type.
    fn number_constant(&mut self, other: Type) -> Term {
        match self.random.below(8) {
            // What is beside NULL is not evaluated by DuckDB, and overflows for us.
            0 if !self.overflows => Term::new("NULL", other, Level::Atom),
            0..4 => self.int_constant(),
            // Beside a float it becomes one in DuckDB too.
            4 if other == Type::Float => {
                let short = self.random.pick(&["0.5", "1.5", "-7.25", "0.1", "2.0", "123456.789"]);
                Term::new(short, Type::Float, Level::Sign)
            }
            _ => self.float_constant(),
        }
    }

    fn text_constant(&mut self) -> Term {
        let value = match self.random.one_in(10) {
            true => String::new(),
            false => self.random.pick(TEXTS).to_owned(),
        };
        Term::new(quoted(&value), Type::Text, Level::Atom)
    }

    fn text(&mut self) -> Option<Term> {
        self.column(|holds| holds == Holds::Texts)
    }

    /// Either side of a comparison: of one type, or an integer and a float.
    fn pair(&mut self, depth: usize) -> Option<(Term, Term)> {
        if self.random.one_in(3) {
            let left = self.text()?;
            let right = match self.random.one_in(2) {
                true => self.text()?,
                false => self.text_constant(),
            };
            return Some((left, right));
        }
        let left = self.number(depth)?;
        let right = match self.random.one_in(2) {
            true => self.number(depth)?,
            false => self.number_constant(left.kind),
        };
        Some((left, right))
    }

    fn boolean(&mut self, depth: usize) -> Term {
        if depth > 1 && !self.overflows {
            let operator = self.random.below(6);
            match operator {
                0 | 1 => {
                    let (word, level) = [("AND", Level::And), ("OR", Level::Or)][operator];
                    let (left, right) = (self.boolean(depth - 1), self.boolean(depth - 1));
                    return self.binary(left, word, right, Type::Bool, level);
                }
                2 => {
                    let value = self.boolean(depth - 1);
                    let value = self.operand(value, Level::Not);
                    return Term::new(format!("NOT {}", value.text), Type::Bool, Level::Not);
                }
                3 if self.random.one_in(3) => {
                    let (left, right) = (self.boolean(1), self.boolean(1));
                    let comparison = self.random.pick(COMPARISONS);
                    return self.binary(left, comparison, right, Type::Bool, Level::Test);
                }
                _ => {}
            }
        }
        let depth = depth.min(2);
        let test = match self.random.below(9) {
            0 => Some(Term::new(
                self.random.pick(&["NULL", "TRUE", "FALSE"]),
                Type::Bool,
                Level::Atom,
            )),
            1 => Some(self.is_null(depth)),
            2 => self.between(depth),
            3 => self.contained(depth),
            4 | 5 => self.like(),
            _ => self.pair(depth).map(|(left, right)| {
                let (left, right) =
                    if self.random.one_in(4) { (right, left) } else { (left, right) };
                let comparison = self.random.pick(COMPARISONS);
                self.binary(left, comparison, right, Type::Bool, Level::Test)
            }),
        };
        test.unwrap_or_else(|| self.is_null(0))
    }

    fn not(&mut self) -> &'static str {
        if self.random.one_in(3) { "NOT " } else { "" }
    }

    fn is_null(&mut self, depth: usize) -> Term {
        let value = match depth > 0 && self.random.one_in(3) {
            true => self.expression(depth - 1),
            false => {
                // Every file has a column.
                let index = self.random.below(self.columns.len());
                Term::new(self.columns[index].name.clone(), self.columns[index].kind, Level::Atom)
            }
        };
        let (value, not) = (self.operand(value, Level::Sum), self.not());
        Term::new(format!("{} IS {not}NULL", value.text), Type::Bool, Level::Test)
    }

    fn between(&mut self, depth: usize) -> Option<Term> {
        let (value, low) = self.pair(depth)?;
        let high = match value.kind {
            Type::Text => match self.random.one_in(2) {
                true => self.text()?,
                false => self.text_constant(),
            },
            // With one bound a float and the other none, DuckDB has floats of all three.
            Type::Int if low.kind == Type::Int => self.int_constant(),
            Type::Int => self.float_constant(),
            kind => match self.random.one_in(2) {
                true => self.number(0)?,
                false => self.number_constant(kind),
            },
        };
        let not = self.not();
        let [value, low, high] = [value, low, high].map(|term| self.operand(term, Level::Sum).text);
        let text = format!("{value} {not}BETWEEN {low} AND {high}");
        Some(Term::new(text, Type::Bool, Level::Test))
    }

    fn contained(&mut self, depth: usize) -> Option<Term> {
        let (value, mut items) = if self.random.one_in(2) {
            let items: Vec<Term> =
                (0..1 + self.random.below(4)).map(|_| self.text_constant()).collect();
            (self.text()?, items)
        } else {
            let value = self.number(depth)?;
            let items = (0..1 + self.random.below(5)).map(|_| self.number_constant(value.kind));
            let items = items.collect();
            (value, items)
        };
        if self.random.one_in(4) {
            items.push(Term::new("NULL", value.kind, Level::Atom));
        }
        let (value, not) = (self.operand(value, Level::Sum), self.not());
        let text = format!("{} {not}IN ({})", value.text, joined(&items));
        Some(Term::new(text, Type::Bool, Level::Test))
    }

    fn like(&mut self) -> Option<Term> {
        let value = match self.random.one_in(8) {
            true => self.text_constant(),
            false => self.text()?,
        };
        let (value, not) = (self.operand(value, Level::Sum), self.not());
        let escape = self.random.pick(&[None, None, Some('!'), Some('\\'), Some('a'), Some('%')]);
        let mut pattern = String::new();
        for character in text(self.random).chars() {
            if self.random.one_in(4) {
                pattern.push('%');
                if Some('%') == escape {
                    pattern.push('%');
                }
            }
            match self.random.below(5) {
                0 => pattern.push('_'),
                1 => {}
                // What is escaped stands for itself, and the escape character has to be.
                _ => {
                    let special = matches!(character, '%' | '_') || self.random.one_in(6);
                    match escape {
                        Some(escape) if special || character == escape => {
                            pattern.extend([escape, character]);
                        }
                        _ => pattern.push(character),
                    }
                }
            }
        }
        if self.random.one_in(3) && escape != Some('%') {
            pattern.push('%');
        }
        let escape = match escape {
            Some(escape) => format!(" ESCAPE '{escape}'"),
            None => String::new(),
        };
        let text = format!("{} {not}LIKE {}{escape}", value.text, quoted(&pattern));
        Some(Term::new(text, Type::Bool, Level::Test))
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn joined(terms: &[Term]) -> String {
    terms.iter().map(|term| term.text.as_str()).collect::<Vec<_>>().join(", ")
}
