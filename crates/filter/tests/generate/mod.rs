//! Formats, files and plans at random, from a seed: of values that are likely to meet, at their limits, or
//! broken.

mod random;

use nasd_filter::{
    Aggregate, Arithmetic, Column, Comparison, Delimited, Expression, Field, FieldKind, Fixed,
    Format, Function, Item, JsonLines, Literal, Options, Plan, Program, Select, Top, Type,
};
pub use random::Random;

const TEXTS: &[&str] = &[
    "",
    "a",
    "b",
    "ab",
    "a,b",
    "a\"b",
    "\u{e9}",
    "abc",
    "ba",
    "a%",
    "_",
    " x ",
    "\u{1f600}b",
    "aaaaaaaaaaaaaaaaaaaaaab",
];
const FLOATS: &[f64] = &[
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.0,
    0.1,
    1e16,
    -1e16,
    1e100,
    -1e100,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    9.5,
];
const INTS: &[i64] = &[0, 1, 2, 3, -1, -2, 7, 100, 1 << 40, i64::MAX, i64::MIN, 9007199254740993];

pub fn format(random: &mut Random) -> Format {
    match random.below(3) {
        0 => Format::Fixed(fixed(random)),
        1 => {
            let (delimiter, quote) =
                random.pick(&[(b',', Some(b'"')), (b'\t', None), (b';', Some(b'\''))]);
            let header = random.one_in(2);
            let columns = columns(random, &[Type::Int, Type::Float, Type::Text]);
            Format::Delimited(Delimited { delimiter, quote, header, columns })
        }
        _ => Format::JsonLines(JsonLines { columns: columns(random, Type::ALL) }),
    }
}

fn columns(random: &mut Random, kinds: &[Type]) -> Vec<Column> {
    let count = 1 + random.below(5);
    (0..count).map(|index| Column { name: format!("c{index}"), kind: random.pick(kinds) }).collect()
}

fn fixed(random: &mut Random) -> Fixed {
    let fields = (0..1 + random.below(5)).map(|index| {
        let big_endian = random.one_in(2);
        let kind = match random.below(4) {
            0 | 1 => {
                let (bytes, signed) = (random.pick(&[1, 2, 4, 8]), random.one_in(2));
                FieldKind::Integer { bytes, signed, big_endian }
            }
            2 => FieldKind::Float { bytes: random.pick(&[4, 8]), big_endian },
            _ => FieldKind::Text { bytes: 1 + random.below(9) as u32 },
        };
        Field { name: format!("f{index}"), kind }
    });
    Fixed { fields: fields.collect() }
}

/// A file of some records, most of them good.
pub fn file(random: &mut Random, format: &Format) -> Vec<u8> {
    let mut file = Vec::new();
    let count = random.pick(&[0, 1, 3, 10, 40]);
    let line_end = random.pick(&["\n", "\r\n"]);
    if let Format::Delimited(Delimited { header: true, .. }) = format
        && !random.one_in(10)
    {
        file.extend(b"head,er line");
        file.extend(line_end.bytes());
    }
    for _ in 0..count {
        match format {
            Format::Fixed(fixed) => put_fixed(random, fixed, &mut file),
            Format::Delimited(delimited) => put_delimited(random, delimited, &mut file),
            Format::JsonLines(lines) => put_json(random, lines, &mut file),
            Format::Columns(_) => {}
        }
        if !matches!(format, Format::Fixed(_)) {
            file.extend(random.pick(&[line_end, line_end, "\n"]).bytes());
        }
    }
    if random.one_in(3) {
        file.truncate(file.len().saturating_sub(1 + random.below(3)));
    }
    if random.one_in(8) && !file.is_empty() {
        let at = random.below(file.len());
        file[at] = random.pick(b"\n\"',{}\0x\xff\\");
    }
    file
}

fn put_fixed(random: &mut Random, fixed: &Fixed, file: &mut Vec<u8>) {
    for field in &fixed.fields {
        match field.kind {
            FieldKind::Integer { bytes, big_endian, .. } => {
                let little = random.pick(INTS).to_le_bytes();
                let mut little = little[..usize::from(bytes)].to_vec();
                if big_endian {
                    little.reverse();
                }
                file.extend(little);
            }
            FieldKind::Float { bytes, big_endian } => {
                let value = random.pick(FLOATS);
                let mut little = match bytes {
                    4 => (value as f32).to_le_bytes().to_vec(),
                    _ => value.to_le_bytes().to_vec(),
                };
                if big_endian {
                    little.reverse();
                }
                file.extend(little);
            }
            FieldKind::Text { bytes } => {
                let mut text = random.pick(TEXTS).as_bytes().to_vec();
                text.resize(bytes as usize, 0);
                file.extend(text);
            }
        }
    }
}

/// A number's text, or of something that is not quite one.
fn number(random: &mut Random, kind: Type) -> String {
    match (random.below(16), kind) {
        (0, _) => {
            random.pick(&["x", "-", "1x", "9223372036854775808", "1.2.3", "01", "+5"]).to_owned()
        }
        (1, _) => random.pick(&[" 3", "4 ", "1e3", "-0", "1.", ".5"]).to_owned(),
        (_, Type::Int) => random.pick(INTS).to_string(),
        _ => match random.below(2) {
            0 => format!("{:?}", random.pick(FLOATS)),
            _ => random.pick(INTS).to_string(),
        },
    }
}

fn put_delimited(random: &mut Random, format: &Delimited, file: &mut Vec<u8>) {
    if random.one_in(20) {
        return;
    }
    let count = match random.below(12) {
        0 => random.below(format.columns.len() + 1),
        1 => format.columns.len() + 1,
        _ => format.columns.len(),
    };
    for index in 0..count {
        if index > 0 {
            file.push(format.delimiter);
        }
        if random.one_in(8) {
            continue;
        }
        let kind = format.columns.get(index).map_or(Type::Text, |column| column.kind);
        let text = match kind {
            Type::Text => random.pick(TEXTS).to_owned(),
            kind => number(random, kind),
        };
        let special =
            text.bytes().any(|byte| byte == format.delimiter || Some(byte) == format.quote);
        match format.quote {
            Some(quote) if special || random.one_in(5) => {
                file.push(quote);
                for byte in text.bytes() {
                    file.push(byte);
                    if byte == quote && !random.one_in(30) {
                        file.push(quote);
                    }
                }
                file.push(quote);
            }
            _ => file.extend(text.bytes()),
        }
    }
}

fn put_json(random: &mut Random, format: &JsonLines, file: &mut Vec<u8>) {
    match random.below(40) {
        0 => return,
        1 => return file.extend(b"  "),
        2 => return file.extend(b"[1,2]"),
        _ => {}
    }
    file.push(b'{');
    let mut first = true;
    for column in &format.columns {
        if random.one_in(8) {
            continue;
        }
        if !std::mem::take(&mut first) {
            file.extend(random.pick(&[",", " , "]).bytes());
        }
        if random.one_in(10) {
            file.extend(br#""other": {"c0":[1,{"a":"}"},[],{}],"x":-1.5e3},"#);
        }
        let name = if random.one_in(10) {
            column.name.replace('c', "\\u0063")
        } else if random.one_in(60) {
            "c0".to_owned()
        } else {
            column.name.clone()
        };
        file.extend(format!("\"{name}\":{}", random.pick(&["", " "])).bytes());
        let value = match column.kind {
            _ if random.one_in(10) => "null".to_owned(),
            _ if random.one_in(30) => {
                random.pick(&["true", "fals", "True", "[]", "\"1\"", "1", "01", "1e2"]).to_owned()
            }
            Type::Bool => random.one_in(2).to_string(),
            Type::Text => match random.below(4) {
                0 => "\"\\u00e9\\n\\\"\\ud83d\\ude00\"".to_owned(),
                _ => format!("{:?}", random.pick(TEXTS)),
            },
            Type::Int => random.pick(INTS).to_string(),
            _ => random.pick(&["0", "-0.0", "1.5", "1e16", "0.1", "1e400", "-2E-3"]).to_owned(),
        };
        file.extend(value.bytes());
    }
    file.push(b'}');
}

/// A plan over a format.
pub fn plan(random: &mut Random, format: Format) -> Plan {
    let mut maker = Maker { format: &format, random };
    let program = maker.program();
    let random = maker.random;
    let mut options = Options { groups: 1000, state_bytes: 1 << 20, ..Options::default() };
    if random.one_in(2) {
        options.longest_record = match &format {
            Format::Fixed(fixed) => fixed.record_bytes() as u32,
            _ => 10 + random.below(60) as u32,
        };
    }
    options.strict = random.one_in(6);
    Plan { format, program, options }
}

struct Maker<'a> {
    format: &'a Format,
    random: &'a mut Random,
}

impl Maker<'_> {
    fn program(&mut self) -> Program {
        let filter = (!self.random.one_in(5)).then(|| self.boolean(3));
        match self.random.below(3) {
            0 => {
                let projection = self.projection();
                let limit = self.random.one_in(2).then(|| self.random.below(12) as u64);
                Program::Select(Select { filter, projection, limit })
            }
            1 => {
                let keys = (0..self.random.below(3)).map(|_| self.any(1)).collect();
                let items = (0..1 + self.random.below(4)).map(|_| self.item()).collect();
                Program::Aggregate(Aggregate { filter, keys, items })
            }
            _ => Program::Top(Top {
                filter,
                order: self.any(1),
                descending: self.random.one_in(2),
                count: self.random.below(8) as u32,
                projection: self.projection(),
            }),
        }
    }

    fn projection(&mut self) -> Option<Vec<Expression>> {
        let count = 1 + self.random.below(4);
        self.random.one_in(2).then(|| (0..count).map(|_| self.any(2)).collect())
    }

    fn item(&mut self) -> Item {
        let function = self.random.pick(Function::ALL);
        let argument = match function {
            Function::Count if self.random.one_in(2) => None,
            Function::Sum | Function::Avg => Some(self.number(1)),
            _ => Some(self.any(1)),
        };
        Item { function, argument }
    }

    fn column(&mut self, kinds: &[Type]) -> Option<Expression> {
        let of_kind = |index: &usize| {
            self.format.column_type(*index).is_some_and(|kind| kinds.contains(&kind))
        };
        let all: Vec<usize> = (0..self.format.column_count()).filter(of_kind).collect();
        if all.is_empty() {
            return None;
        }
        Some(Expression::Column(self.random.pick(&all) as u16))
    }

    fn any(&mut self, depth: usize) -> Expression {
        match self.random.below(4) {
            0 => self.number(depth),
            1 => self.text(),
            2 => self.boolean(depth),
            _ => self.column(Type::ALL).unwrap(),
        }
    }

    fn text(&mut self) -> Expression {
        match self.column(&[Type::Text]) {
            Some(column) if !self.random.one_in(4) => column,
            _ => Expression::text(self.random.pick(TEXTS)),
        }
    }

    fn number_literal(&mut self) -> Literal {
        match self.random.below(9) {
            0 => Literal::Null,
            1..=4 => Literal::Float(self.random.pick(FLOATS)),
            _ => Literal::Int(self.random.pick(INTS)),
        }
    }

    fn number(&mut self, depth: usize) -> Expression {
        if depth > 0 && self.random.one_in(3) {
            if self.random.one_in(5) {
                return Expression::Negate(Box::new(self.number(depth - 1)));
            }
            let operator = self.random.pick(Arithmetic::ALL);
            if operator == Arithmetic::IntegerDivide {
                let column = self.column(&[Type::Int]).unwrap_or_else(|| Expression::int(7));
                let by = Expression::int(self.random.pick(INTS));
                return Expression::arithmetic(operator, column, by);
            }
            return Expression::arithmetic(
                operator,
                self.number(depth - 1),
                self.number(depth - 1),
            );
        }
        match self.column(&[Type::Int, Type::Float]) {
            Some(column) if !self.random.one_in(4) => column,
            _ => Expression::Literal(self.number_literal()),
        }
    }

    fn boolean(&mut self, depth: usize) -> Expression {
        if depth > 0 {
            let logic = self.random.below(8);
            match logic {
                0 | 1 => return Expression::and(self.boolean(depth - 1), self.boolean(depth - 1)),
                2 => return Expression::or(self.boolean(depth - 1), self.boolean(depth - 1)),
                3 => return Expression::not(self.boolean(depth - 1)),
                _ => {}
            }
        }
        let negated = self.random.one_in(2);
        let depth = depth.min(1);
        match self.random.below(10) {
            0 => Expression::Literal(self.random.pick(&[
                Literal::Null,
                Literal::Bool(true),
                Literal::Bool(false),
            ])),
            1 => Expression::IsNull { value: Box::new(self.any(depth)), negated },
            2 => Expression::Between {
                value: Box::new(self.number(depth)),
                low: Box::new(self.number(0)),
                high: Box::new(self.number(0)),
                negated,
            },
            3 if self.random.one_in(2) => Expression::In {
                value: Box::new(self.text()),
                list: vec![
                    Literal::Text(b"a".to_vec()),
                    Literal::Text(b"ab".to_vec()),
                    Literal::Null,
                ],
                negated,
            },
            3 => {
                let list = (0..1 + self.random.below(4)).map(|_| self.number_literal()).collect();
                Expression::In { value: Box::new(self.number(depth)), list, negated }
            }
            4 => Expression::Like {
                value: Box::new(self.text()),
                pattern: self
                    .random
                    .pick(&["%", "a%", "%b", "_", "a_b", "%a!%%", "", "%a%b%"])
                    .into(),
                escape: Some(b'!'),
                negated,
            },
            5 => {
                let comparison = self.random.pick(Comparison::ALL);
                Expression::compare(comparison, self.text(), self.text())
            }
            6 => {
                let literal = Expression::Literal(Literal::Bool(negated));
                let column = self.column(&[Type::Bool]).unwrap_or(literal);
                if self.random.one_in(2) {
                    return column;
                }
                let comparison = self.random.pick(Comparison::ALL);
                Expression::compare(comparison, column, self.boolean(0))
            }
            _ => {
                let comparison = self.random.pick(Comparison::ALL);
                Expression::compare(comparison, self.number(depth), self.number(depth))
            }
        }
    }
}
