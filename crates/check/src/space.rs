//! Who names which data block: every block by one extent, or by as many of each partition, members of one family there, as
//! its share record says.

use std::collections::BTreeMap;

use crate::bytes::BLOCK;
use crate::finding::{Code, Subject};
use crate::record::{
    Extent, GROUP, Holder, Object, Record, Share, Sums, extent_key, held_by, is_shared, object_key,
};
use crate::scan::flawed;
use crate::sink::Sink;
use crate::state::{Run, State, Use};
use crate::tree::{AnyKey, Cursor, Fix, Snapshot, Table, TreeError};

/// Compares extents with share records, block by block, in order of place.
pub(crate) struct Sweep<'a> {
    state: &'a State,
    sink: &'a mut Sink,
    /// Share records as they should be; kept only for fixes.
    wanted: Vec<Run>,
    /// Blocks that an extent has to give up: index of the use, data blocks.
    cuts: BTreeMap<usize, Vec<(u64, u64)>>,
    /// Objects that have to join a family.
    joins: BTreeMap<(u32, u64), u64>,
}

impl<'a> Sweep<'a> {
    pub(crate) fn new(state: &'a State, sink: &'a mut Sink) -> Sweep<'a> {
        let (cuts, joins) = (BTreeMap::new(), BTreeMap::new());
        Sweep { state, sink, wanted: Vec::new(), cuts, joins }
    }

    /// Goes over all data blocks that an extent or a share record names.
    pub(crate) fn run(mut self, snapshot: &Snapshot) -> Result<(), TreeError> {
        let (uses, runs) = (&self.state.uses, &self.state.runs);
        let mut active: Vec<usize> = Vec::new();
        let (mut next_use, mut next_run, mut at) = (0, 0, 0u64);
        loop {
            active.retain(|index| uses[*index].end() > at);
            while next_run < runs.len() && runs[next_run].end() <= at {
                next_run += 1;
            }
            while next_use < uses.len() && uses[next_use].physical <= at {
                active.push(next_use);
                next_use += 1;
            }
            let run = runs.get(next_run);
            let covering = run.filter(|run| run.first <= at);
            let begins = uses.get(next_use).map(|used| used.physical);
            let run_begins = run.filter(|run| run.first > at).map(|run| run.first);
            let next = begins.into_iter().chain(run_begins).min();
            if active.is_empty() && covering.is_none() {
                match next {
                    Some(next) => at = next,
                    None => break,
                }
                continue;
            }
            let ends = active.iter().map(|index| uses[*index].end());
            let end = ends.chain(covering.map(Run::end)).chain(next).min().unwrap_or(at + 1);
            self.segment(at, end, &active, covering);
            at = end;
        }
        self.finish(snapshot)
    }

    /// Judges a range of blocks that all have the same holders.
    fn segment(&mut self, start: u64, end: u64, active: &[usize], run: Option<&Run>) {
        if run.is_none() && active.len() == 1 {
            return;
        }
        let mut partitions: Vec<u32> =
            active.iter().map(|index| self.state.uses[*index].partition).collect();
        partitions.sort_unstable();
        partitions.dedup();
        let (mut holders, mut outsiders) = (Vec::new(), 0);
        for partition in &partitions {
            let is_of = |index: &usize| self.state.uses[*index].partition == *partition;
            let of: Vec<usize> = active.iter().copied().filter(is_of).collect();
            let noted = run.and_then(|run| held_by(&run.holders, *partition));
            if run.is_some() && noted.is_none() {
                // What is noted counts.
                outsiders += of.len();
                for index in of {
                    self.stranger(self.state.uses[index], start, 0);
                    self.cut(index, (start, end));
                }
                continue;
            }
            let family = self.family(&of, noted);
            let (count, others) = self.members((start, end), &of, family, run.is_some());
            outsiders += others;
            if count > 0 {
                holders.push(Holder { partition: *partition, count, family });
            }
        }
        let is_one_family = outsiders == 0 && partitions.len() == 1;
        self.counts(start, end, active, run, is_one_family);
        if is_shared(&holders) && self.sink.wants_fixes() {
            self.want(Run { first: start, blocks: end - start, holders });
        }
    }

    /// The uses of one partition: how many keep the blocks, and how many were not of the family. Those of another one lose them.
    fn members(
        &mut self,
        (start, end): (u64, u64),
        of: &[usize],
        family: u64,
        is_noted: bool,
    ) -> (u32, usize) {
        let (mut count, mut outsiders) = (0, 0);
        for &index in of {
            let used = self.state.uses[index];
            let own = self.state.family_of(used.partition, used.object);
            if family != 0 && own != family {
                outsiders += 1;
                if is_noted {
                    self.stranger(used, start, family);
                }
                if own != 0 {
                    self.cut(index, (start, end));
                    continue;
                }
                if self.sink.wants_fixes() {
                    self.joins.insert((used.partition, used.object), family);
                }
            }
            count += 1;
        }
        (count, outsiders)
    }

    /// An extent has to give up blocks.
    fn cut(&mut self, index: usize, blocks: (u64, u64)) {
        if self.sink.wants_fixes() {
            self.cuts.entry(index).or_default().push(blocks);
        }
    }

    /// Whose the blocks are within a partition: the share record's family, else that of the first user with one, else one that bears
    /// the first user's number. 0 where there is one user.
    fn family(&self, of: &[usize], noted: Option<Holder>) -> u64 {
        if let Some(holder) = noted
            && holder.family != 0
        {
            return holder.family;
        }
        if of.len() < 2 {
            return 0;
        }
        let users = of.iter().map(|index| self.state.uses[*index]);
        let families =
            users.map(|used| (used.object, self.state.family_of(used.partition, used.object)));
        let families: Vec<(u64, u64)> = families.collect();
        let named = families.iter().filter(|(_, family)| *family != 0).min();
        let first = families.iter().map(|(object, _)| *object).min();
        named.map_or(first.unwrap_or(0), |(_, family)| *family)
    }

    fn stranger(&mut self, used: Use, block: u64, family: u64) {
        let subject = Subject::at(used.partition, used.object, used.offset_of(block));
        let detail = match family {
            0 => format!("data block {block} is shared, and not with its partition"),
            _ => format!(
                "data block {block} is of family p{:x}/o{family:x}, to which it does not belong",
                used.partition
            ),
        };
        self.sink.add(Code::ShareForeign, subject, detail);
    }

    fn counts(
        &mut self,
        start: u64,
        end: u64,
        active: &[usize],
        run: Option<&Run>,
        is_one_family: bool,
    ) {
        let blocks = format!("data blocks {start} to {}", end - 1);
        let Some(run) = run else {
            if is_one_family {
                let used = self.state.uses[active[0]];
                let subject = Subject::at(used.partition, used.object, used.offset_of(start));
                let detail = format!("{blocks} have {} holders and no share record", active.len());
                return self.sink.add(Code::ShareMissing, subject, detail);
            }
            for &index in active {
                let used = self.state.uses[index];
                let subject = Subject::at(used.partition, used.object, used.offset_of(start));
                let detail = format!("{blocks} are named by {} extents", active.len());
                self.sink.add(Code::BlockUsedTwice, subject, detail);
            }
            return;
        };
        let Some(first) = run.holders.first() else { return };
        if active.is_empty() {
            let subject = Subject::object(first.partition, first.family);
            let detail = format!("{blocks} are shared, and no extent names them");
            return self.sink.add(Code::ShareUnused, subject, detail);
        }
        for holder in &run.holders {
            let is_of = |index: &&usize| self.state.uses[**index].partition == holder.partition;
            let counted = active.iter().filter(is_of).count();
            if counted as u64 != u64::from(holder.count) {
                let subject = Subject::object(holder.partition, holder.family);
                let detail = format!("{blocks}: COUNT is {}, counted were {counted}", holder.count);
                self.sink.add(Code::ShareCountWrong, subject, detail);
            }
        }
    }

    /// Adds a share record that should be, as one with the last where it continues that.
    fn want(&mut self, run: Run) {
        if let Some(last) = self.wanted.last_mut()
            && last.end() == run.first
            && last.holders == run.holders
            && last.blocks + run.blocks <= u64::from(u32::MAX)
            // Neighbours that are records of their own already may stay so.
            && self.state.runs.binary_search_by_key(&run.first, |run| run.first).is_err()
        {
            last.blocks += run.blocks;
            return;
        }
        self.wanted.push(run);
    }

    fn finish(self, snapshot: &Snapshot) -> Result<(), TreeError> {
        if !self.sink.wants_fixes() {
            return Ok(());
        }
        for run in &self.state.runs {
            if self.wanted.binary_search_by_key(&run.first, |run| run.first).is_err() {
                let key = AnyKey::Long(run.first);
                self.sink.fix(|| Fix { table: Table::Shares, key, value: None });
            }
        }
        for run in &self.wanted {
            let present = self.state.runs.binary_search_by_key(&run.first, |run| run.first);
            if present.is_ok_and(|index| self.state.runs[index] == *run) {
                continue;
            }
            let share = Share { blocks: run.blocks as u32, holders: run.holders.clone() };
            let value = Some(share.encode(&run.first.to_be_bytes()));
            let key = AnyKey::Long(run.first);
            self.sink.fix(|| Fix { table: Table::Shares, key, value });
        }
        for ((partition, object), family) in self.joins {
            let key = object_key(partition, object);
            let Some(value) = snapshot.objects.get(&key)? else { continue };
            let Ok((mut record, _)) = Object::decode(&key, value.value()) else { continue };
            record.set_family(family);
            let value = Some(record.encode(&key));
            self.sink.fix(|| Fix { table: Table::Objects, key: AnyKey::Object(key), value });
        }
        for (index, cuts) in self.cuts {
            give_up(&self.state.uses[index], &cuts, self.sink);
        }
        Ok(())
    }
}

/// Takes data blocks out of an extent; a compressed one goes as a whole.
fn give_up(used: &Use, cuts: &[(u64, u64)], sink: &mut Sink) {
    let table = Table::Extents;
    let key = extent_key(used.partition, used.object, used.logical);
    sink.fix(|| Fix { table, key: AnyKey::Extent(key), value: None });
    if used.is_compressed() {
        return;
    }
    let mut at = used.physical;
    let end = (used.end(), used.end());
    for &(cut, cut_end) in cuts.iter().chain([&end]) {
        if cut > at {
            let logical = used.logical + (at - used.physical);
            let key = extent_key(used.partition, used.object, logical);
            let value = Some(Extent::plain(at, (cut - at) as u32).encode(&key));
            sink.fix(|| Fix { table, key: AnyKey::Extent(key), value });
        }
        at = at.max(cut_end);
    }
}

/// Checks the records of the table of checksums, and that every block in use has one. The groups
/// that have to be computed anew, if fixes are wanted.
pub(crate) fn sums(
    snapshot: &Snapshot,
    state: &State,
    data_blocks: u64,
    sink: &mut Sink,
) -> Result<Vec<u64>, TreeError> {
    let mut needed = Needed { state, index: 0, group: 0 }.peekable();
    let mut cursor = Cursor::new(&snapshot.sums)?;
    let mut missing = Vec::new();
    while let Some((group, value)) = cursor.next(|key| key)? {
        while let Some(absent) = needed.next_if(|needed| *needed < group) {
            absent_sums(absent, state, sink, &mut missing);
        }
        let is_needed = needed.next_if_eq(&group).is_some();
        let key = AnyKey::Long(group);
        let remove = || Fix { table: Table::Sums, key, value: None };
        if group.checked_mul(GROUP).is_none_or(|first| first >= data_blocks) {
            let detail =
                format!("record {group} of sums; the device has {data_blocks} data blocks");
            sink.drive(Code::SumsStray, detail);
            sink.fix(remove);
            continue;
        }
        match Sums::decode(&key.bytes(), &value) {
            Ok((_, true)) => {}
            Ok((record, false)) => {
                sink.drive(Code::RecordReserved, format!("record {group} of sums"));
                let value = Some(record.encode(&key.bytes()));
                sink.fix(|| Fix { table: Table::Sums, key, value });
            }
            Err(flaw) => {
                flawed(sink, Table::Sums, key, Subject::Drive, flaw);
                if is_needed && sink.wants_fixes() {
                    missing.push(group);
                }
            }
        }
    }
    for absent in needed {
        absent_sums(absent, state, sink, &mut missing);
    }
    Ok(missing)
}

fn absent_sums(group: u64, state: &State, sink: &mut Sink, missing: &mut Vec<u64>) {
    let first = group * GROUP;
    let subject = holder_of(state, first, first + GROUP);
    let detail = format!("data blocks {first} to {} have no checksums", first + GROUP - 1);
    sink.add(Code::SumsMissing, subject, detail);
    if sink.wants_fixes() {
        missing.push(group);
    }
}

/// An object that has blocks in a range, to name it.
fn holder_of(state: &State, from: u64, to: u64) -> Subject {
    let before = state.uses.partition_point(|used| used.physical < to);
    let found = state.uses[..before].iter().rev().take(4).find(|used| used.end() > from);
    found.map_or(Subject::Drive, |used| {
        let offset = used.offset_of(from.max(used.physical));
        Subject::at(used.partition, used.object, offset / BLOCK * BLOCK)
    })
}

/// Groups with a block in use, in order.
struct Needed<'a> {
    state: &'a State,
    index: usize,
    group: u64,
}

impl Iterator for Needed<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        loop {
            let used = self.state.uses.get(self.index)?;
            let group = self.group.max(used.physical / GROUP);
            if group <= (used.end() - 1) / GROUP {
                self.group = group + 1;
                return Some(group);
            }
            self.index += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_in_use_come_once_and_in_order() {
        let used = |physical, blocks| Use::new(1, 2, 3, &Extent::plain(physical, blocks));
        let uses = vec![used(0, 1), used(5, 300), used(100, 1), used(1000, 24), used(1024, 1)];
        let state = State { uses, ..State::default() };
        let groups: Vec<u64> = Needed { state: &state, index: 0, group: 0 }.collect();
        assert_eq!(groups, [0, 1, 2, 7, 8]);
    }
}
