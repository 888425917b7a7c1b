//! The columns of lines of JSON, from the members that the objects in the first lines have.

use nasd_filter::{Column, MAX_COLUMNS, MAX_NAME_BYTES, Type};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// What was found in the first lines.
#[derive(Debug, Default, PartialEq)]
pub struct Members {
    /// Those that are columns.
    pub columns: Vec<Column>,
    /// Why others are none, by their names.
    pub others: BTreeMap<String, &'static str>,
    /// Whether a line was an object at all.
    pub has_objects: bool,
}

/// What the values of a member have been so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Guess {
    /// None but NULL, which may be any.
    Nothing,
    Of(Type),
    Nested,
    Several,
}

impl Guess {
    fn of(value: &Json) -> Guess {
        match value {
            Json::Null => Guess::Nothing,
            Json::Bool(_) => Guess::Of(Type::Bool),
            Json::Number(number) if number.is_i64() => Guess::Of(Type::Int),
            Json::Number(_) => Guess::Of(Type::Float),
            Json::String(_) => Guess::Of(Type::Text),
            Json::Array(_) | Json::Object(_) => Guess::Nested,
        }
    }

    fn with(self, other: Guess) -> Guess {
        use Type::{Float, Int};
        match (self, other) {
            (one, other) if one == other => one,
            (Guess::Nothing, one) | (one, Guess::Nothing) => one,
            (Guess::Of(Int | Float), Guess::Of(Int | Float)) => Guess::Of(Float),
            // Those of one would be bad records.
            _ => Guess::Several,
        }
    }

    /// The type of the column that it is, or why it is none.
    const fn kind(self) -> Result<Type, &'static str> {
        match self {
            Guess::Of(kind) => Ok(kind),
            Guess::Nothing => {
                Err("it is NULL in all of the first lines, and --columns can say its type")
            }
            Guess::Nested => Err("its values are objects or arrays"),
            Guess::Several => {
                Err("its values are of several kinds, of which --columns can say one")
            }
        }
    }
}

impl Members {
    /// Of lines, of which the last one may be cut.
    pub fn of(sample: &[u8]) -> Members {
        let mut found: BTreeMap<String, Guess> = BTreeMap::new();
        let mut members = Members::default();
        for line in sample.split(|byte| *byte == b'\n') {
            let Ok(Json::Object(object)) = serde_json::from_slice(line) else {
                continue;
            };
            members.has_objects = true;
            for (name, value) in object {
                let guess = Guess::of(&value);
                found.entry(name).and_modify(|known| *known = known.with(guess)).or_insert(guess);
            }
        }
        for (name, guess) in found {
            match guess.kind().and_then(|kind| members.check(&name).map(|()| kind)) {
                Ok(kind) => members.columns.push(Column { name, kind }),
                Err(why) => drop(members.others.insert(name, why)),
            }
        }
        members
    }

    /// Why there is no column of a name.
    pub fn why_not(&self, name: &str) -> &'static str {
        let other = self.others.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        other.map_or(
            "no object in the first lines has it, and --columns can say its type",
            |found| found.1,
        )
    }

    /// Whether one more column may have this name.
    fn check(&self, name: &str) -> Result<(), &'static str> {
        match name.len() {
            0 => Err("a column has a name"),
            1..=MAX_NAME_BYTES if self.columns.len() < MAX_COLUMNS => Ok(()),
            1..=MAX_NAME_BYTES => Err("there are more than 1024, of which --columns can say some"),
            _ => Err("its name has more than 255 bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(members: &Members) -> Vec<(&str, Type)> {
        members.columns.iter().map(|column| (column.name.as_str(), column.kind)).collect()
    }

    #[test]
    fn members_are_of_the_type_that_all_have() {
        let sample =
            b"{\"a\":1,\"b\":\"x\",\"c\":[1],\"d\":1}\n{\"a\":2.5,\"b\":null,\"d\":\"y\",\"e\":null}\n{\"a\"";
        let members = Members::of(sample);
        assert_eq!(found(&members), [("a", Type::Float), ("b", Type::Text)]);
        assert_eq!(members.others.keys().collect::<Vec<_>>(), ["c", "d", "e"]);
        for (name, why) in
            [("C", "arrays"), ("d", "several kinds"), ("e", "NULL"), ("f", "no object")]
        {
            assert!(members.why_not(name).contains(why), "{name}");
        }
    }

    #[test]
    fn members_may_be_booleans() {
        let sample = b"{\"a\":true,\"b\":null,\"c\":true,\"d\":1,\"e\":{}}\n\
            {\"a\":null,\"b\":false,\"c\":1,\"d\":false,\"e\":true}\n{\"a\":false,\"f\":null}\n";
        let members = Members::of(sample);
        assert_eq!(found(&members), [("a", Type::Bool), ("b", Type::Bool)]);
        for name in ["c", "d", "e"] {
            assert!(members.why_not(name).contains("several kinds"), "{name}");
        }
    }

    #[test]
    fn what_can_be_no_column_is_told() {
        let long = "n".repeat(MAX_NAME_BYTES + 1);
        let many: Vec<String> =
            (0..=MAX_COLUMNS).map(|number| format!("\"k{number:04}\":1")).collect();
        let sample = format!("[1]\n{{\"\":1,\"{long}\":1,{}}}\n", many.join(","));
        let members = Members::of(sample.as_bytes());
        assert_eq!(members.columns.len(), MAX_COLUMNS);
        for (name, why) in [("", "name"), (&long, "255"), ("k1024", "1024")] {
            assert!(members.why_not(name).contains(why), "{name}");
        }
        assert!(members.has_objects && !Members::of(b"[\n{},\n1]").has_objects);
    }
}
