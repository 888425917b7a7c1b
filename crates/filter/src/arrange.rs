//! What is made of groups when all of them are there: an order, and how many.
//!
//! Drives tell all groups that they have found, as each has only a part of what a group comes to. So this is done once, with the
//! result of the whole file.

use crate::aggregate::Value;
use crate::merge::Merged;
use std::cmp::Ordering;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrangement {
    /// ORDER BY: places in a row, the first one first. Of equals the one with the lesser keys comes first.
    pub by: Vec<OrderBy>,
    /// The most groups.
    pub limit: Option<u64>,
}

/// One that groups are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderBy {
    /// Its place among the keys and items of an Aggregate.
    pub place: usize,
    /// Whether the greatest come first. NULL comes last in any case.
    pub descending: bool,
}

impl Arrangement {
    /// Orders the groups of a result, and leaves the first of them.
    pub fn arrange(&self, merged: &mut Merged) {
        let Merged::Aggregate(groups) = merged else {
            return;
        };
        // They are in the order of their keys, and equals stay as they are.
        groups.sort_by(|left, right| self.order(left, right));
        if let Some(limit) = self.limit.and_then(|limit| usize::try_from(limit).ok()) {
            groups.truncate(limit);
        }
    }

    fn order(&self, left: &[Value], right: &[Value]) -> Ordering {
        let mut orders = self.by.iter().map(|by| match (left.get(by.place), right.get(by.place)) {
            (Some(left), Some(right)) => by.order(left, right),
            _ => Ordering::Equal,
        });
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

impl OrderBy {
    fn order(self, left: &Value, right: &Value) -> Ordering {
        let is_null = *left == Value::Null || *right == Value::Null;
        match left.order(right) {
            order if self.descending && !is_null => order.reverse(),
            order => order,
        }
    }
}
