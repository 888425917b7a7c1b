//! Whether stores and reads of files were as though each had happened at one moment between its beginning and its end (linearizable: more than
//! sequentially consistent), and whether stores are whole.
//!
//! Each block of each file is a register, of which each value is written once. For such there is a criterion that needs no search (Gibbons and
//! Korach, "Testing shared memories", 1997): all that is done with one value takes place in a zone, and zones must not be in each other's way.

use std::collections::BTreeMap;

/// What somebody stores: another number each time; 0 is what was there at first.
pub type Value = u64;

/// When something began and ended; the numbers rise with each thing that begins or ends anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// When it began.
    pub begun: u64,
    /// When it ended; nothing, if nobody knows whether it did.
    pub ended: Option<u64>,
}

impl Span {
    fn end(&self) -> u64 {
        self.ended.unwrap_or(u64::MAX)
    }
}

/// A store.
#[derive(Clone, Copy, Debug)]
pub struct Store {
    /// When.
    pub span: Span,
    /// Others may have seen half of it: who stored was ended in the middle, or was too slow.
    pub may_be_half: bool,
}

impl Store {
    /// It took so long that it was ended, and begun anew: what it had stored by then may have been there for a while, and be there again.
    fn is_seen_early_by(&self, read: &Read) -> bool {
        let is_before = self.span.begun < read.span.end() && read.span.end() < self.span.end();
        self.may_be_half && self.span.ended.is_some() && is_before
    }
}

/// A read: what each block of the file was.
#[derive(Clone, Debug)]
pub struct Read {
    /// When. It has ended.
    pub span: Span,
    /// Who has read, for who reads what is wrong.
    pub who: String,
    /// Each block's value.
    pub blocks: Vec<Value>,
}

/// What happened to one file.
#[derive(Clone, Debug, Default)]
pub struct FileHistory {
    /// By what was stored.
    pub stores: BTreeMap<Value, Store>,
    /// All of them.
    pub reads: Vec<Read>,
}

/// When all that is done with one value takes place.
#[derive(Clone, Copy, Debug)]
struct Zone {
    value: Value,
    /// The first end of anything that is done with it.
    first_end: u64,
    /// The last beginning.
    last_begin: u64,
}

impl Zone {
    /// Whether it was the value in all of the zone: something had ended with it before something began with it.
    const fn is_forward(&self) -> bool {
        self.first_end < self.last_begin
    }
}

impl FileHistory {
    /// # Errors
    /// What is not as it must be.
    pub fn check(&self) -> Result<(), String> {
        self.reads.iter().try_for_each(|read| self.check_whole(read))?;
        let blocks = self.reads.iter().map(|read| read.blocks.len()).max().unwrap_or(0);
        (0..blocks).try_for_each(|block| {
            self.check_block(block).map_err(|why| format!("block {block}: {why}"))
        })
    }

    /// What was read is of one store, but for what stores have left that were not done.
    fn check_whole(&self, read: &Read) -> Result<(), String> {
        let mut values: Vec<Value> = read.blocks.clone();
        values.sort_unstable();
        values.dedup();
        let is_whole = |value: &&Value| {
            **value == 0 || self.stores.get(value).is_some_and(|store| !store.may_be_half)
        };
        match values.iter().filter(is_whole).count() {
            0 | 1 => Ok(()),
            _ => {
                let stores: Vec<_> =
                    values.iter().map(|value| (value, self.stores.get(value))).collect();
                Err(format!("half of a store: {read:?} of {stores:?}"))
            }
        }
    }

    fn check_block(&self, block: usize) -> Result<(), String> {
        let mut zones = BTreeMap::new();
        zones.insert(0, Zone { value: 0, first_end: 0, last_begin: 0 });
        for (value, Store { span, .. }) in &self.stores {
            let zone = Zone { value: *value, first_end: span.end(), last_begin: span.begun };
            zones.insert(*value, zone);
        }
        let mut is_read = std::collections::BTreeSet::new();
        let mut early = Vec::new();
        for read in &self.reads {
            let Some(value) = read.blocks.get(block) else { continue };
            if self.stores.get(value).is_some_and(|store| store.is_seen_early_by(read)) {
                let (first_end, last_begin) = (read.span.end(), read.span.begun);
                early.push(Zone { value: *value, first_end, last_begin });
                continue;
            }
            let Some(zone) = zones.get_mut(value) else {
                return Err(format!("nobody has stored {value:x}: {read:?}"));
            };
            let begun = self.stores.get(value).map_or(0, |store| store.span.begun);
            if read.span.end() < begun {
                return Err(format!("{value:x} was read before anybody stored it: {read:?}"));
            }
            zone.first_end = zone.first_end.min(read.span.end());
            zone.last_begin = zone.last_begin.max(read.span.begun);
            is_read.insert(*value);
        }
        // What nobody has read, and nobody knows to be stored, may not have been.
        zones.retain(|value, zone| zone.first_end != u64::MAX || is_read.contains(value));
        let zones: Vec<Zone> = zones.into_values().chain(early).collect();
        for (place, one) in zones.iter().enumerate() {
            for other in &zones[place + 1..] {
                if are_in_the_way(one, other) || are_in_the_way(other, one) {
                    return Err(self.describe(block, one, other));
                }
            }
        }
        Ok(())
    }

    fn describe(&self, block: usize, one: &Zone, other: &Zone) -> String {
        let of = |zone: &Zone| {
            let is_of = |read: &&Read| read.blocks.get(block) == Some(&zone.value);
            let reads = self.reads.iter().filter(is_of);
            let reads: Vec<String> =
                reads.map(|read| format!("{:?} by {}", read.span, read.who)).collect();
            format!(
                "{:x}: stored {:?}, read\n  {}",
                zone.value,
                self.stores.get(&zone.value).map(|store| store.span),
                reads.join("\n  ")
            )
        };
        format!("old contents were read after new ones:\n{}\n{}", of(one), of(other))
    }
}

/// Whether one of two zones, of which the first is forward, leaves the other one no place.
const fn are_in_the_way(one: &Zone, other: &Zone) -> bool {
    one.is_forward() && one.first_end < other.last_begin && other.first_end < one.last_begin
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(begun: u64, ended: u64) -> Span {
        Span { begun, ended: Some(ended) }
    }

    fn history(stores: &[(Value, Span)], reads: &[(&[Value], Span)]) -> FileHistory {
        let store = |(value, span): &(Value, Span)| {
            (*value, Store { span: *span, may_be_half: span.ended.is_none() })
        };
        let read = |(blocks, span): &(&[Value], Span)| Read {
            span: *span,
            who: String::new(),
            blocks: blocks.to_vec(),
        };
        FileHistory {
            stores: stores.iter().map(store).collect(),
            reads: reads.iter().map(read).collect(),
        }
    }

    #[test]
    fn what_is_right_is_right() {
        let unknown = Span { begun: 10, ended: None };
        let stores = [(1, span(1, 4)), (2, span(5, 8)), (3, unknown)];
        let right: [&[(&[Value], Span)]; 5] = [
            &[(&[0], span(2, 3)), (&[1], span(2, 6)), (&[2], span(6, 7)), (&[2], span(9, 10))],
            &[(&[1], span(5, 6)), (&[2], span(7, 9))],
            &[(&[2], span(11, 12)), (&[3], span(20, 21)), (&[3], span(30, 31))],
            &[(&[3, 2], span(20, 21)), (&[3, 3], span(22, 23))],
            &[],
        ];
        for reads in right {
            assert_eq!(history(&stores, reads).check(), Ok(()), "{reads:?}");
        }
    }

    #[test]
    fn what_is_old_or_half_or_from_the_future_is_found() {
        let unknown = Span { begun: 10, ended: None };
        let stores = [(1, span(1, 4)), (2, span(5, 8)), (3, unknown)];
        let wrong: [&[(&[Value], Span)]; 8] = [
            // Old after the store.
            &[(&[1], span(9, 10))],
            &[(&[0], span(5, 6))],
            // Old after somebody has read what is new.
            &[(&[2], span(6, 7)), (&[1], span(8, 9))],
            &[(&[3], span(12, 13)), (&[2], span(14, 15))],
            // Before it was stored.
            &[(&[2], span(2, 3))],
            &[(&[7], span(2, 3))],
            // Half of it, and halves that don't go together.
            &[(&[1, 2], span(6, 7))],
            &[(&[3, 2], span(12, 13)), (&[2, 3], span(14, 15))],
        ];
        for reads in wrong {
            assert!(history(&stores, reads).check().is_err(), "{reads:?}");
        }
    }
}
