//! The constants of an IN, sorted.

use crate::expression::Literal;
use crate::format::Type;
use crate::number::float_order;

/// The constants of one IN, all of a type, ascending.
#[derive(Clone, Debug)]
pub(crate) struct List {
    pub(crate) kind: Type,
    bools: [bool; 2],
    ints: Vec<i64>,
    floats: Vec<f64>,
    texts: Vec<Vec<u8>>,
    /// Whether NULL is among them: what is not in the list is then neither in nor out.
    pub(crate) has_null: bool,
}

impl List {
    /// Of literals that are `kind`, NULL, or integers for floats.
    pub(crate) fn new(kind: Type, literals: &[Literal]) -> List {
        let mut list = List {
            kind,
            bools: [false; 2],
            ints: vec![],
            floats: vec![],
            texts: vec![],
            has_null: false,
        };
        for literal in literals {
            match literal {
                Literal::Null => list.has_null = true,
                Literal::Bool(value) => list.bools[usize::from(*value)] = true,
                Literal::Int(value) if kind == Type::Float => list.floats.push(*value as f64),
                Literal::Int(value) => list.ints.push(*value),
                Literal::Float(value) => list.floats.push(*value),
                Literal::Text(value) => list.texts.push(value.clone()),
            }
        }
        list.ints.sort_unstable();
        list.floats.sort_unstable_by(|left, right| float_order(*left, *right));
        list.texts.sort_unstable();
        list
    }

    pub(crate) fn has_bool(&self, value: bool) -> bool {
        self.bools[usize::from(value)]
    }

    pub(crate) fn has_int(&self, value: i64) -> bool {
        self.ints.binary_search(&value).is_ok()
    }

    pub(crate) fn has_float(&self, value: f64) -> bool {
        self.floats.binary_search_by(|other| float_order(*other, value)).is_ok()
    }

    pub(crate) fn has_text(&self, value: &[u8]) -> bool {
        self.texts.binary_search_by(|other| other.as_slice().cmp(value)).is_ok()
    }
}
