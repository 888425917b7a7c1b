//! Who makes room for whom, where all the memory for hints is taken: each teller has an equal part of it, and beyond that
//! it is whoever has more use for it.

use std::collections::BTreeMap;

use crate::{StreamName, Teller};

/// How many times as much as what it takes the place of a block must be worth: what is fetched twice costs twice.
pub(crate) const OUTBIDS: f64 = 2.0;

/// The block that a stream gives up first: what it is worth, and whose it is.
pub(crate) type Last = (f64, StreamName);

/// The one that is worth least.
pub(crate) fn least(lasts: impl Iterator<Item = Last>) -> Option<Last> {
    lasts.min_by(|a, b| a.0.total_cmp(&b.0))
}

/// What a teller holds.
#[derive(Debug, Default)]
struct Own {
    held: usize,
    least: Option<Last>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Room {
    tellers: BTreeMap<Teller, Own>,
    /// Blocks that each of them may hold whatever others have to do.
    part: usize,
    /// Of what those hold who have more than that.
    least_of_the_rich: Option<Last>,
}

impl Room {
    /// For so many blocks in all, of streams that hold so many, and would give up such a one first.
    pub(crate) fn new(
        most_held: usize,
        streams: impl Iterator<Item = (StreamName, usize, Option<Last>)>,
    ) -> Room {
        let mut tellers: BTreeMap<Teller, Own> = BTreeMap::new();
        for (name, held, last) in streams {
            let own = tellers.entry(name.teller).or_default();
            own.held += held;
            own.least = least(own.least.into_iter().chain(last));
        }
        let part = most_held / tellers.len().max(1);
        let rich = tellers.values().filter(|own| own.held > part);
        let least_of_the_rich = least(rich.filter_map(|own| own.least));
        Room { tellers, part, least_of_the_rich }
    }

    /// Which stream makes room for one block more of a teller, of that value: one whose last block is worth much less, of his own or
    /// of whoever holds more than an equal part. If he has less than his, it is any of those.
    pub(crate) fn made_by(&self, teller: Teller, value: f64) -> Option<StreamName> {
        let own = self.tellers.get(&teller)?;
        let owed = self.least_of_the_rich.filter(|_| own.held < self.part);
        let worth = || least(own.least.into_iter().chain(self.least_of_the_rich));
        let least = owed.or_else(|| worth().filter(|(least, _)| least * OUTBIDS < value));
        least.map(|(_, name)| name)
    }
}
