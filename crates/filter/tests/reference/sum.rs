//! Aggregates over all rows at once.

use super::{V, order, order_floats, sums_floats, value};
use nasd_filter::{Aggregate, Function, Plan, Value};
use std::cmp::Ordering;

/// A value as a result.
pub fn result(value: V) -> Value {
    match value {
        V::Null => Value::Null,
        V::Bool(value) => Value::Bool(value),
        V::Int(value) => Value::Int(value),
        V::Float(value) => Value::Float(value),
        V::Text(value) => Value::Text(value),
    }
}

fn key_order(left: &V, right: &V) -> Ordering {
    match (left, right) {
        (V::Null, V::Null) => Ordering::Equal,
        (V::Null, _) => Ordering::Greater,
        (_, V::Null) => Ordering::Less,
        _ => order(left, right),
    }
}

/// The rows of the result, in the order of their keys.
pub fn rows(plan: &Plan, program: &Aggregate, records: &[Vec<V>]) -> Vec<Vec<Value>> {
    let mut groups: Vec<(Vec<V>, Vec<&Vec<V>>)> = Vec::new();
    if program.keys.is_empty() {
        groups.push((Vec::new(), Vec::new()));
    }
    for record in records {
        let key: Vec<V> = program.keys.iter().map(|key| value(key, record).unwrap()).collect();
        let same = |other: &Vec<V>| key.iter().zip(other).all(|(a, b)| key_order(a, b).is_eq());
        match groups.iter_mut().find(|(other, _)| same(other)) {
            Some((_, members)) => members.push(record),
            None => groups.push((key, vec![record])),
        }
    }
    groups.sort_by(|(left, _), (right, _)| {
        let pairs = left.iter().zip(right);
        pairs.map(|(a, b)| key_order(a, b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    });
    let rows = groups.into_iter().map(|(key, members)| {
        let items = program.items.iter().map(|item| {
            let Some(argument) = &item.argument else {
                return Value::Int(members.len() as i64);
            };
            let values = members.iter().map(|record| value(argument, record).unwrap());
            let values: Vec<V> = values.filter(|value| *value != V::Null).collect();
            let floats = sums_floats(plan, item.function, Some(argument));
            aggregate(item.function, values, floats)
        });
        let items: Vec<Value> = items.collect();
        // Of the zeros the positive one stands for both in a key.
        let key = key.into_iter().map(|value| match value {
            V::Float(value) => Value::Float(if value == 0.0 { 0.0 } else { value }),
            other => result(other),
        });
        key.chain(items).collect()
    });
    rows.collect()
}

fn aggregate(function: Function, values: Vec<V>, floats: bool) -> Value {
    let count = values.len();
    if function == Function::Count {
        return Value::Int(count as i64);
    }
    if values.is_empty() {
        return Value::Null;
    }
    let best = |wanted: Ordering| {
        let values = values.iter().cloned();
        result(
            values
                .reduce(|best, next| if total(&next, &best) == wanted { next } else { best })
                .unwrap(),
        )
    };
    match function {
        Function::Min => best(Ordering::Less),
        Function::Max => best(Ordering::Greater),
        _ if floats => {
            let sum = exact_sum(values.iter().map(|value| match value {
                V::Float(value) => *value,
                other => panic!("{other:?} is no float"),
            }));
            Value::Float(if function == Function::Avg { sum / count as f64 } else { sum })
        }
        _ => {
            let integers = values.iter().map(|value| match value {
                V::Int(value) => i128::from(*value),
                other => panic!("{other:?} is no integer"),
            });
            let sum: i128 = integers.sum();
            if function == Function::Avg {
                Value::Float(sum as f64 / count as f64)
            } else {
                Value::HugeInt(sum)
            }
        }
    }
}

/// The order with minus zero below zero.
fn total(left: &V, right: &V) -> Ordering {
    match (left, right) {
        (V::Float(a), V::Float(b)) => {
            order_floats(*a, *b).then(b.is_sign_negative().cmp(&a.is_sign_negative()))
        }
        _ => order(left, right),
    }
}

/// The exact sum, rounded once.
fn exact_sum(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    if values.iter().any(|value| !value.is_finite()) {
        return values.iter().sum();
    }
    let sum = sum_of_parts(&values);
    if sum.is_finite() {
        return sum;
    }
    // A part is too large, whatever the sum is. Of less no part is; what that loses is far below the last bit.
    let scale = 2_f64.powi(64);
    let less: Vec<f64> = values.iter().map(|value| value / scale).collect();
    sum_of_parts(&less) * scale
}

/// The same by partial sums that do not overlap, as Shewchuk has them. For sums whose parts do not overflow.
fn sum_of_parts(values: &[f64]) -> f64 {
    let mut parts: Vec<f64> = Vec::new();
    for &value in values {
        let mut value = value;
        let mut kept = Vec::new();
        for mut part in parts {
            if value.abs() < part.abs() {
                (value, part) = (part, value);
            }
            let high = value + part;
            let low = part - (high - value);
            if low != 0.0 {
                kept.push(low);
            }
            value = high;
        }
        kept.push(value);
        parts = kept;
    }
    // From the greatest down; what is left of a tie is decided by the sign of the next.
    let mut sum = parts.pop().unwrap_or(0.0);
    while let Some(part) = parts.pop() {
        let before = sum;
        sum = before + part;
        let low = part - (sum - before);
        if low != 0.0 {
            if let Some(next) = parts.last()
                && (low < 0.0) == (*next < 0.0)
            {
                let twice = low * 2.0;
                let up = sum + twice;
                if up - sum == twice {
                    sum = up;
                }
            }
            break;
        }
    }
    // Zero has no sign.
    sum + 0.0
}
