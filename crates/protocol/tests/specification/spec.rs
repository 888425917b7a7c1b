//! A reader of the part of the XDR language (RFC 4506 section 6) that `specs/*.x` use, and a walk
//! over encoded bytes by what it read. It shares nothing with the code under test but integers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use nasd_xdr::{Decoder, xdr_padded};

/// How often something is there.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    One,
    Optional,
    Fixed(u64),
    UpTo(u64),
}

/// A field, an element or a typedef: a type and how often.
#[derive(Clone, Debug, PartialEq)]
pub struct Declaration {
    pub type_name: String,
    pub name: String,
    pub shape: Shape,
}

#[derive(Debug, PartialEq)]
pub enum Definition {
    Typedef(Declaration),
    Enum(Vec<(String, u64)>),
    Struct(Vec<Declaration>),
    /// A union: what follows each value, if anything does. `has_default` if nothing follows all others.
    Union {
        switch: String,
        arms: Vec<(String, Option<Declaration>)>,
        has_default: bool,
    },
}

#[derive(Debug)]
pub struct Program {
    pub number: u64,
    pub version: u64,
    pub procedures: Vec<Procedure>,
}

#[derive(Debug)]
pub struct Procedure {
    pub name: String,
    pub number: u64,
    pub arguments: Vec<String>,
    pub result: String,
}

#[derive(Debug, Default)]
pub struct Spec {
    pub constants: BTreeMap<String, u64>,
    pub definitions: BTreeMap<String, Definition>,
    pub programs: BTreeMap<String, Program>,
}

impl Spec {
    /// All files of the repository, one after the other.
    pub fn load() -> Spec {
        let mut spec = Spec::default();
        for file in ["nasd.x", "manager.x", "bulk-desk.x"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs").join(file);
            let text = std::fs::read_to_string(&path)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let mut parser = Parser { tokens: tokens(&text), spec: &mut spec };
            while !parser.tokens.is_empty() {
                parser.definition();
            }
        }
        spec
    }

    /// Names of all structures and unions.
    pub fn composites(&self) -> impl Iterator<Item = &str> {
        self.definitions.iter().filter_map(|(name, definition)| {
            matches!(definition, Definition::Struct(_) | Definition::Union { .. })
                .then_some(name.as_str())
        })
    }
}

/// Words, numbers and single signs; comments and lines for the C preprocessor are left out.
fn tokens(text: &str) -> VecDeque<String> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('%')).collect();
    let text = lines.join("\n");
    let mut code = String::new();
    let mut rest = text.as_str();
    while let Some(start) = rest.find("/*") {
        code.push_str(&rest[..start]);
        code.push(' ');
        let end = rest[start..].find("*/").expect("a comment ends");
        rest = &rest[start + end + 2..];
    }
    code.push_str(rest);

    let mut tokens = VecDeque::new();
    let mut word = String::new();
    for character in code.chars() {
        if character.is_ascii_alphanumeric() || character == '_' {
            word.push(character);
            continue;
        }
        if !word.is_empty() {
            tokens.push_back(std::mem::take(&mut word));
        }
        if !character.is_whitespace() {
            tokens.push_back(character.to_string());
        }
    }
    tokens
}

struct Parser<'a> {
    tokens: VecDeque<String>,
    spec: &'a mut Spec,
}

impl Parser<'_> {
    fn next(&mut self) -> String {
        self.tokens.pop_front().expect("the file does not end here")
    }

    fn expect(&mut self, wanted: &str) {
        let found = self.next();
        assert_eq!(found, wanted, "before {:?}", self.tokens.iter().take(6).collect::<Vec<_>>());
    }

    fn at(&self, wanted: &str) -> bool {
        self.tokens.front().is_some_and(|token| token == wanted)
    }

    fn number(&mut self) -> u64 {
        let token = self.next();
        token.parse().unwrap_or_else(|_| self.spec.constants[&token])
    }

    /// What two files define is the same in both.
    fn define(&mut self, name: String, definition: Definition) {
        if let Some(before) = self.spec.definitions.get(&name) {
            assert_eq!(*before, definition, "{name} has two definitions");
        }
        self.spec.definitions.insert(name, definition);
    }

    fn definition(&mut self) {
        match self.next().as_str() {
            "const" => {
                let name = self.next();
                self.expect("=");
                let value = self.number();
                self.expect(";");
                let before = self.spec.constants.insert(name.clone(), value);
                assert!(before.is_none_or(|before| before == value), "{name} has two values");
            }
            "typedef" => {
                let declaration = self.declaration();
                self.expect(";");
                let name = declaration.name.clone();
                self.define(name, Definition::Typedef(declaration));
            }
            "enum" => self.enumeration(),
            "struct" => self.structure(),
            "union" => self.union(),
            "program" => self.program(),
            other => panic!("a definition can't begin with {other}"),
        }
    }

    /// `= value` pairs between braces.
    fn enumeration(&mut self) {
        let name = self.next();
        self.expect("{");
        let mut values = Vec::new();
        while !self.at("}") {
            let value_name = self.next();
            self.expect("=");
            values.push((value_name, self.number()));
            if self.at(",") {
                self.expect(",");
            }
        }
        self.expect("}");
        self.expect(";");
        self.define(name, Definition::Enum(values));
    }

    fn structure(&mut self) {
        let name = self.next();
        self.expect("{");
        let mut fields = Vec::new();
        while !self.at("}") {
            fields.push(self.declaration());
            self.expect(";");
        }
        self.expect("}");
        self.expect(";");
        self.define(name, Definition::Struct(fields));
    }

    fn union(&mut self) {
        let name = self.next();
        self.expect("switch");
        self.expect("(");
        let switch = self.next();
        self.next();
        self.expect(")");
        self.expect("{");
        let mut arms = Vec::new();
        while self.at("case") {
            self.expect("case");
            let value = self.next();
            self.expect(":");
            let body = if self.at("void") {
                self.expect("void");
                None
            } else {
                Some(self.declaration())
            };
            self.expect(";");
            arms.push((value, body));
        }
        let has_default = self.at("default");
        if has_default {
            for token in ["default", ":", "void", ";"] {
                self.expect(token);
            }
        }
        self.expect("}");
        self.expect(";");
        self.define(name, Definition::Union { switch, arms, has_default });
    }

    fn program(&mut self) {
        let name = self.next();
        for token in ["{", "version"] {
            self.expect(token);
        }
        self.next();
        self.expect("{");
        let mut procedures = Vec::new();
        while !self.at("}") {
            let result = self.next();
            let name = self.next();
            self.expect("(");
            let mut arguments = vec![self.next()];
            while self.at(",") {
                self.expect(",");
                arguments.push(self.next());
            }
            for token in [")", "="] {
                self.expect(token);
            }
            let number = self.number();
            self.expect(";");
            procedures.push(Procedure { name, number, arguments, result });
        }
        self.expect("}");
        self.expect("=");
        let version = self.number();
        for token in [";", "}", "="] {
            self.expect(token);
        }
        let number = self.number();
        self.expect(";");
        self.spec.programs.insert(name, Program { number, version, procedures });
    }

    /// `type name`, with `*`, `[n]` or `<n>`.
    fn declaration(&mut self) -> Declaration {
        let mut type_name = self.next();
        if type_name == "unsigned" {
            type_name = format!("unsigned {}", self.next());
        }
        let optional = self.at("*");
        if optional {
            self.expect("*");
        }
        let name = self.next();
        let shape = if optional {
            Shape::Optional
        } else if self.at("[") {
            self.expect("[");
            let count = self.number();
            self.expect("]");
            Shape::Fixed(count)
        } else if self.at("<") {
            self.expect("<");
            let count = self.number();
            self.expect(">");
            Shape::UpTo(count)
        } else {
            Shape::One
        };
        Declaration { type_name, name, shape }
    }
}

/// The number that samples put into the field of that name, so that two fields in the wrong order
/// are noticed: FNV-1a of the name.
pub fn number_of(field: &str) -> u64 {
    field.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The same for fields of 32 bits.
pub fn number32_of(field: &str) -> u32 {
    (number_of(field) >> 32) as u32
}

type Walk = Result<(), String>;

fn describe(error: nasd_xdr::XdrError) -> String {
    error.to_string()
}

/// Walks over a value of `type_name` in the field `field`, and checks its numbers.
pub fn walk(
    spec: &Spec,
    type_name: &str,
    field: &str,
    input: &mut Decoder<'_>,
    visited: &mut BTreeSet<String>,
) -> Walk {
    let same = |found: u64, wanted: u64| {
        if found == wanted { Ok(()) } else { Err(format!("{field} holds another field's value")) }
    };
    match type_name {
        "unsigned int" => {
            return same(input.u32().map_err(describe)?.into(), number32_of(field).into());
        }
        "unsigned hyper" | "hyper" => {
            return same(input.u64().map_err(describe)?, number_of(field));
        }
        "bool" => return input.bool().map(|_| ()).map_err(describe),
        _ => {}
    }
    visited.insert(type_name.to_owned());
    match &spec.definitions[type_name] {
        Definition::Typedef(declaration) => {
            let declaration = Declaration { name: field.to_owned(), ..declaration.clone() };
            walk_declaration(spec, &declaration, input, visited)
        }
        Definition::Enum(values) => {
            let value = u64::from(input.u32().map_err(describe)?);
            let known = values.iter().any(|(_, known)| *known == value);
            if known { Ok(()) } else { Err(format!("{field}: {value} is not in {type_name}")) }
        }
        Definition::Struct(fields) => fields.iter().try_for_each(|declaration| {
            walk_declaration(spec, declaration, input, visited)
                .map_err(|problem| format!("{type_name}: {problem}"))
        }),
        Definition::Union { switch, arms, has_default } => {
            let Definition::Enum(values) = &spec.definitions[switch] else {
                return Err(format!("{switch} is not an enumeration"));
            };
            visited.insert(switch.clone());
            let found = u64::from(input.u32().map_err(describe)?);
            let Some((name, _)) = values.iter().find(|(_, value)| *value == found) else {
                return Err(format!("{found} is not in {switch}"));
            };
            match arms.iter().find(|(value, _)| value == name) {
                Some((_, Some(body))) => walk_declaration(spec, body, input, visited),
                Some((_, None)) => Ok(()),
                None if *has_default => Ok(()),
                None => Err(format!("{name} has no arm in {type_name}")),
            }
        }
    }
}

fn walk_declaration(
    spec: &Spec,
    declaration: &Declaration,
    input: &mut Decoder<'_>,
    visited: &mut BTreeSet<String>,
) -> Walk {
    let Declaration { type_name, name, shape } = declaration;
    let bytes = matches!(type_name.as_str(), "opaque" | "string");
    let mut count = |limit: u64| {
        let count = u64::from(input.u32().map_err(describe)?);
        if count <= limit { Ok(count) } else { Err(format!("{name}: {count} is above {limit}")) }
    };
    let count = match *shape {
        Shape::One => 1,
        Shape::Optional => count(1)?,
        Shape::Fixed(count) => count,
        Shape::UpTo(limit) => count(limit)?,
    };
    if bytes {
        return input.take(xdr_padded(count as usize)).map(|_| ()).map_err(describe);
    }
    (0..count).try_for_each(|_| walk(spec, type_name, name, input, visited))
}
