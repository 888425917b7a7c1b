//! Data to and from all components at once.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nasd_client::{Authority, ClientError};
use nasd_layout::{Column, MemberState, Strip};
use nasd_prefetch::notice;
use nasd_protocol::Region;
use nasd_protocol::cancelling;
use nasd_protocol::drive::{
    Flush, FlushArguments, Flushed, Getattr, GetattrArguments, WriteArguments,
};
use nasd_protocol::limits::{MAX_PIECES, MAX_REGIONS};
use nasd_types::{Attributes, ByteRange, DriveId, ObjectName, WriteOrder};

use super::Lacking;
use super::map::{Instances, Member, ObjectPlace};
use crate::extending::{Asked, ExtendedPart, ExtensionCall, extend_all, rows_of};
use crate::pieces::bytes_of;
use crate::wire::{ExtensionOutcome, ReadOutcome, Status, Written};

impl ObjectPlace {
    /// A component that there must be.
    fn usable<'a>(&self, member: &'a Member) -> Result<(&'a Authority, ObjectName), ClientError> {
        match &member.authority {
            Some((name, authority)) => Ok((authority, *name)),
            // Nobody may use it: a newer map may say who stands in.
            None => Err(ClientError::Drive(Status::NoSuchObject)),
        }
    }

    /// The member that bytes of a column are read from: the first, if copies may differ; else the one of
    /// which least is wanted now, each in its turn if that is alike, but none that is far slower than another.
    fn reader(&self, column: Column, offset: u64) -> Result<&Member, ClientError> {
        let degraded = self.degraded();
        let first = if self.is_even {
            let turn = (offset / self.shape.unit() / u64::from(self.shape.width())) as usize;
            let count = degraded.readable(column).count().max(1);
            let paces = degraded.readable(column).map(|at| self.members[at].known.pace.mean_ns());
            let quickest = paces.min().unwrap_or(0);
            let places = degraded.readable(column).enumerate();
            let least = places.min_by_key(|(at, member)| {
                let known = &self.members[*member].known;
                let load = known.load.load(Ordering::Relaxed);
                let is_slow = known.pace.is_slow(quickest, known.elapsed());
                (known.is_suspected(), is_slow, load >> 18, (at + turn) % count)
            });
            least.map(|(_, member)| member)
        } else {
            degraded.first(column)
        };
        // With all copies gone there is nobody to ask.
        first.map(|at| &self.members[at]).ok_or(ClientError::Drive(Status::MediumError))
    }

    /// The columns that a range touches, and what of it is in each.
    fn columns(&self, range: ByteRange) -> Vec<(Column, Vec<Strip>)> {
        if !self.is_spread {
            let Ok(length) = usize::try_from(range.length) else { return Vec::new() };
            let length = length as u64;
            let strip = Strip { offset: range.offset, length, stride: length, count: 1 };
            return vec![(Column(0), vec![strip])];
        }
        if range.end() <= self.shape.unit_end(range.offset) {
            let ByteRange { offset, length } = range;
            let strip = Strip { offset, length, stride: length, count: 1 };
            return vec![(self.column(offset), vec![strip])];
        }
        let columns = (0..self.shape.width()).map(Column);
        let strips = columns.map(|column| (column, self.shape.strips(range, column)));
        strips.filter(|(_, strips)| !strips.is_empty()).collect()
    }

    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> Result<ReadOutcome, ClientError> {
        let range = ByteRange::new(offset, into.len() as u64);
        let columns = self.columns(range);
        let outcome = match &columns[..] {
            [] => return Err(ClientError::Drive(Status::BadArgument)),
            [(column, _)] => {
                let member = self.reader(*column, offset)?;
                let (authority, name) = self.usable(member)?;
                let load = Load::of(member, into.len());
                let read = member.client.read(authority, name, offset, into);
                load.end(&read);
                let outcome = member.known.note(read)?;
                member.length.store(outcome.logical_size, Ordering::Relaxed);
                outcome
            }
            _ => self.read_columns(range, &columns, into)?,
        };
        if self.each_has_all() && columns.len() == 1 {
            return Ok(outcome);
        }
        if outcome.length == into.len() {
            let logical_size = self.known_length().max(range.end());
            return Ok(ReadOutcome { logical_size, ..outcome });
        }
        // A component ends before the range does: the whole does too, or there is a hole.
        let length = self.learn_lengths()?;
        let end = range.end().min(length).max(offset) - offset;
        let end = usize::try_from(end).unwrap_or(into.len());
        if columns.len() == 1 && outcome.length < end {
            into[outcome.length..end].fill(0);
        }
        Ok(ReadOutcome { length: end, logical_size: length, ..outcome })
    }

    /// Reads from several members at once; what they lack is zeros. The length that is told is that of the range
    /// only if they had all of it.
    fn read_columns(
        &self,
        range: ByteRange,
        columns: &[(Column, Vec<Strip>)],
        into: &mut [u8],
    ) -> Result<ReadOutcome, ClientError> {
        // What the first column has in one run comes straight to its place, while the others are on their way.
        let (direct, others) = match columns {
            [(column, strips), others @ ..] if is_one_run(strips) => {
                (Some((*column, strips)), others)
            }
            all => (None, all),
        };
        let mut begun = Vec::with_capacity(others.len());
        for (column, strips) in others {
            let member = self.reader(*column, strips[0].offset)?;
            let (authority, name) = self.usable(member)?;
            let (regions, length) = regions_of(strips);
            let buffer = self.spare.take(length);
            let read = member.client.begin_read_regions(authority, name, &regions, buffer).send();
            begun.push((member, strips, length, read, Load::of(member, length)));
        }
        let mut whole: Option<ReadOutcome> = None;
        let mut lacks = false;
        let mut note = |member: &Member, outcome: ReadOutcome, length: usize| {
            member.length.store(outcome.logical_size, Ordering::Relaxed);
            lacks |= outcome.length < length;
            let latest = whole.map_or(outcome.fs_data_modify_time, |whole| {
                whole.fs_data_modify_time.max(outcome.fs_data_modify_time)
            });
            whole = Some(ReadOutcome { fs_data_modify_time: latest, ..outcome });
        };
        if let Some((column, strips)) = direct {
            let member = self.reader(column, strips[0].offset)?;
            let (authority, name) = self.usable(member)?;
            let (offset, length) = (strips[0].offset, strips[0].length as usize);
            let at = (offset - range.offset) as usize;
            let place = &mut into[at..at + length];
            let load = Load::of(member, length);
            let read = member.client.read(authority, name, offset, place);
            load.end(&read);
            let outcome = member.known.note(read)?;
            place[outcome.length..].fill(0);
            note(member, outcome, length);
        }
        for (member, strips, length, read, load) in begun {
            // How long others were waited for says nothing of this one.
            let load = load.waited_for();
            let (outcome, data) = read.wait();
            load.end(&outcome);
            let outcome = member.known.note(outcome)?;
            let mut rest = &data[..outcome.length];
            for run in runs(strips) {
                let at = (run.offset - range.offset) as usize;
                let place = &mut into[at..at + run.length as usize];
                let (now, later) = rest.split_at(rest.len().min(place.len()));
                place[..now.len()].copy_from_slice(now);
                place[now.len()..].fill(0);
                rest = later;
            }
            self.spare.give(data);
            note(member, outcome, length);
        }
        let whole = whole.ok_or(ClientError::Drive(Status::BadArgument))?;
        let length = if lacks { 0 } else { into.len() };
        Ok(ReadOutcome { length, ..whole })
    }

    /// Reads pieces from all members that have some of them at once, one piece behind the other. Nothing where a member lacks some, as
    /// at the end of the object: who reads them one by one finds out where that is.
    pub(super) fn read_pieces(
        &self,
        pieces: &[ByteRange],
    ) -> Result<Option<(ReadOutcome, Vec<u8>)>, ClientError> {
        let of_columns = self.columns_of(pieces);
        let mut begun = Vec::new();
        for (column, strips) in of_columns.values() {
            for strips in strips.chunks(MAX_REGIONS) {
                let member = self.reader(*column, strips[0].1.offset)?;
                let (authority, name) = self.usable(member)?;
                let (regions, length) = regions_of(strips.iter().map(|(_, strip)| strip));
                let buffer = self.spare.take(length);
                let read =
                    member.client.begin_read_regions(authority, name, &regions, buffer).send();
                begun.push((member, strips, length, read, Load::of(member, length)));
            }
        }
        let mut into = vec![0; bytes_of(pieces)];
        let mut whole: Option<ReadOutcome> = None;
        let mut lacks = false;
        for (member, strips, length, read, load) in begun {
            // How long others were waited for says nothing of this one.
            let load = load.waited_for();
            let (outcome, data) = read.wait();
            load.end(&outcome);
            let outcome = member.known.note(outcome)?;
            member.length.store(outcome.logical_size, Ordering::Relaxed);
            lacks |= outcome.length < length;
            let mut rest = &data[..outcome.length];
            for (place, strip) in strips {
                for run in runs(std::slice::from_ref(strip)) {
                    let (now, later) = rest.split_at(rest.len().min(run.length as usize));
                    let at = run.offset.wrapping_add(*place) as usize;
                    into[at..at + now.len()].copy_from_slice(now);
                    rest = later;
                }
            }
            self.spare.give(data);
            // Bytes of a file that changes meanwhile are as old as the oldest of them.
            let time = whole.map_or(outcome.fs_data_modify_time, |whole| {
                whole.fs_data_modify_time.min(outcome.fs_data_modify_time)
            });
            whole = Some(ReadOutcome { fs_data_modify_time: time, ..outcome });
        }
        let end = pieces.iter().map(ByteRange::end).max().unwrap_or_default();
        let logical_size = self.known_length().max(end);
        let read = whole.filter(|_| !lacks);
        Ok(read.map(|whole| (ReadOutcome { length: into.len(), logical_size, ..whole }, into)))
    }

    /// What each column has of some pieces, and how far the bytes of each are from their place where all pieces lie one behind the other.
    fn columns_of(&self, pieces: &[ByteRange]) -> BTreeMap<u16, (Column, Vec<(u64, Strip)>)> {
        let mut columns: BTreeMap<u16, (Column, Vec<(u64, Strip)>)> = BTreeMap::new();
        let mut before = 0_u64;
        for piece in pieces {
            let place = before.wrapping_sub(piece.offset);
            for (column, strips) in self.columns(*piece) {
                let all = columns.entry(column.0).or_insert_with(|| (column, Vec::new()));
                all.1.extend(strips.into_iter().map(|strip| (place, strip)));
            }
            before += piece.length;
        }
        columns
    }

    /// Has extensions of the members that a range is read from do something with it.
    pub(super) fn extend(
        &self,
        ranges: &[ByteRange],
        call: &ExtensionCall,
    ) -> Result<Vec<ExtendedPart>, ClientError> {
        match ranges {
            [range] => self.extend_one(*range, call),
            ranges => {
                let columns: Vec<(Column, Vec<Strip>)> = self
                    .columns_of(ranges)
                    .into_values()
                    .map(|(column, strips)| {
                        (column, strips.into_iter().map(|(_, strip)| strip).collect())
                    })
                    .collect();
                extend_all(call, self.asked(call, columns.iter())?)
            }
        }
    }

    /// Those who have some columns, and how they are asked.
    fn asked<'a>(
        &'a self,
        call: &ExtensionCall,
        columns: impl Iterator<Item = &'a (Column, Vec<Strip>)>,
    ) -> Result<Vec<Asked<'a>>, ClientError> {
        let mut all = Vec::new();
        for (column, strips) in columns {
            let member = self.reader(*column, strips[0].offset)?;
            let (authority, name) = self.usable(member)?;
            // One that has not answered lately may hang: it is waited for no longer than by reads.
            let client = match is_queued(call) && !member.known.is_suspected() {
                true => &member.queue,
                false => &member.client,
            };
            let drive = member.drive;
            // A request has so many rows at most.
            for rows in rows_of(regions_of(strips).0.into_iter()).chunks(MAX_REGIONS) {
                let regions = rows.to_vec();
                all.push(Asked { client, authority, drive, name, regions });
            }
        }
        Ok(all)
    }

    fn extend_one(
        &self,
        range: ByteRange,
        call: &ExtensionCall,
    ) -> Result<Vec<ExtendedPart>, ClientError> {
        // A request has so many pieces. The first and the last one may be cut.
        let most = self.shape.unit() * u64::from(self.shape.width()) * (MAX_PIECES as u64 - 2);
        let mut parts = Vec::new();
        let mut at = range.offset;
        while at < range.end() {
            let now = ByteRange::new(at, most.min(range.end() - at));
            let columns = self.columns(now);
            let told = extend_all(call, self.asked(call, columns.iter())?)?;
            let is_over = told.iter().any(|part| part.outcome != ExtensionOutcome::Done);
            parts.extend(told);
            if is_over {
                break;
            }
            at = now.end();
        }
        Ok(parts)
    }

    /// Whether the drives that a range is written to are all that may have writes which are not durable.
    pub(super) fn has_all_others_durable(&self, range: ByteRange) -> bool {
        let columns = self.columns(range);
        let degraded = self.degraded();
        let written = columns.iter().flat_map(|(column, _)| degraded.writable(*column));
        let written: BTreeSet<DriveId> = written.map(|at| self.members[at].drive).collect();
        let mut others = self.present().map(|(member, _)| member.drive);
        others.all(|drive| written.contains(&drive) || self.writing.is_durable_at(drive))
    }

    /// Writes to several members at once; with `durable`, those have all that they were given durable.
    pub(super) fn write(
        &self,
        instances: &Instances,
        order: Option<WriteOrder>,
        offset: u64,
        (data, durable): (&[u8], bool),
    ) -> Result<Written, ClientError> {
        let range = ByteRange::new(offset, data.len() as u64);
        let columns = self.columns(range);
        let mut told: Option<Written> = None;
        // The copies that decide come last, when all others have it.
        for is_last in [false, true] {
            let of_turn = columns.iter().flat_map(|(column, strips)| {
                let mut members = self.degraded().writable(*column);
                let last = members.pop();
                let members = if is_last { last.into_iter().collect() } else { members };
                members.into_iter().map(move |member| (&self.members[member], strips))
            });
            let of_turn: Vec<_> = of_turn.collect();
            let slices: Vec<Vec<IoSlice<'_>>> = of_turn
                .iter()
                .map(|(_, strips)| {
                    let part = |run: ByteRange| {
                        let at = (run.offset - offset) as usize;
                        IoSlice::new(&data[at..at + run.length as usize])
                    };
                    runs(strips).map(part).collect()
                })
                .collect();
            let mut begun = Vec::with_capacity(of_turn.len());
            for ((member, strips), slices) in of_turn.iter().zip(&slices) {
                let (authority, name) = self.usable(member)?;
                let (regions, data_length) = regions_of(*strips);
                let arguments = WriteArguments { name, durable, order, regions, data_length };
                let before = self.writing.written_to(member.drive);
                let write = member.client.begin_write(authority, arguments, slices);
                begun.push((member, before, write));
            }
            for (member, before, write) in begun {
                let written = member.known.note(write.wait())?;
                match durable {
                    true => self.writing.durable_at(member.drive, before),
                    false => self.writing.wrote_to(member.drive),
                }
                instances.saw(member.drive, written.instance);
                member.length.fetch_max(written.logical_size, Ordering::Relaxed);
                let latest = told.map_or(written.fs_data_modify_time, |told| {
                    told.fs_data_modify_time.max(written.fs_data_modify_time)
                });
                told = Some(Written { fs_data_modify_time: latest, ..written });
            }
        }
        // Nobody was written to where all copies of what is asked for are gone.
        let told = told.ok_or(ClientError::Drive(Status::MediumError))?;
        Ok(Written { length: range.length, logical_size: self.known_length(), ..told })
    }

    /// Makes all components durable that may lack something.
    pub(super) fn flush(&self, instances: &Instances, lacking: Lacking) -> Result<(), ClientError> {
        let mut begun = Vec::with_capacity(self.members.len());
        let lacks = |member: &Member| {
            lacking == Lacking::Anything || !self.writing.is_durable_at(member.drive)
        };
        for (member, state) in self.present().filter(|(member, _)| lacks(member)) {
            let (authority, name) = match self.usable(member) {
                // One that is joining has no component before somebody writes there.
                Err(_) if state == MemberState::Joining => continue,
                usable => usable?,
            };
            let objects = vec![name.object];
            let arguments = FlushArguments { partition: name.partition, objects };
            let before = self.writing.written_to(member.drive);
            let flush = member.client.begin_call::<Flush>(authority, arguments).send();
            begun.push((member, before, flush));
        }
        for (member, before, flush) in begun {
            let Flushed { instance } = member.known.note(flush.wait())?;
            instances.saw(member.drive, instance);
            self.writing.durable_at(member.drive, before);
        }
        Ok(())
    }

    /// The attributes of the whole, but for those that the striping manager alone keeps as they are meant:
    /// the access control version is a component's.
    pub(super) fn getattr(&self) -> Result<Attributes, ClientError> {
        let mut begun = Vec::with_capacity(self.members.len());
        let all = if self.each_has_all() { 1 } else { self.members.len() };
        let mut asked: Vec<&Member> = self.current().collect();
        if self.is_even {
            asked.sort_by_key(|member| member.known.is_suspected());
        }
        for member in asked.into_iter().take(all) {
            let (authority, name) = self.usable(member)?;
            let arguments = GetattrArguments { name };
            begun.push((member, member.client.begin_call::<Getattr>(authority, arguments).send()));
        }
        let mut whole: Option<Attributes> = None;
        for (member, getattr) in begun {
            let told = member.known.note(getattr.wait())?.attributes;
            member.length.store(told.logical_size, Ordering::Relaxed);
            whole = Some(match whole {
                None => told,
                Some(mut whole) => {
                    whole.logical_size = whole.logical_size.max(told.logical_size);
                    whole.blocks_used = whole.blocks_used.saturating_add(told.blocks_used);
                    whole.blocks_allocated =
                        whole.blocks_allocated.saturating_add(told.blocks_allocated);
                    whole.data_modify_time = whole.data_modify_time.max(told.data_modify_time);
                    whole.data_version = whole.data_version.wrapping_add(told.data_version);
                    whole.fs_data_modify_time =
                        whole.fs_data_modify_time.max(told.fs_data_modify_time);
                    whole
                }
            });
        }
        let mut whole = whole.ok_or(ClientError::Drive(Status::NoSuchObject))?;
        if !self.each_has_all() {
            let copies = u64::from(self.shape.copies());
            whole.blocks_used /= copies;
            whole.blocks_allocated /= copies;
        }
        Ok(whole)
    }

    /// Asks all components how long they are; the length of the whole.
    pub(super) fn learn_lengths(&self) -> Result<u64, ClientError> {
        Ok(self.getattr()?.logical_size)
    }
}

/// Bytes that a drive is waited for, for as long as this lives, and since when.
struct Load<'a>(&'a Member, u64, Duration);

impl Load<'_> {
    fn of(member: &Member, bytes: usize) -> Load<'_> {
        member.known.load.fetch_add(bytes as u64, Ordering::Relaxed);
        Load(member, bytes as u64, member.known.elapsed())
    }

    /// It is waited for from now on.
    fn waited_for(mut self) -> Self {
        self.2 = self.0.known.elapsed();
        self
    }

    /// It has answered.
    fn end<T>(self, read: &Result<T, ClientError>) {
        let waited = self.0.known.elapsed().saturating_sub(self.2);
        let pace = &self.0.known.pace;
        match read {
            Ok(_) => pace.note(waited, self.1 as usize),
            Err(_) => pace.note_failed(waited, self.1 as usize),
        }
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.0.known.load.fetch_sub(self.1, Ordering::Relaxed);
    }
}

/// Strips as a drive's requests name them, and their bytes.
fn regions_of<'a>(strips: impl IntoIterator<Item = &'a Strip>) -> (Vec<Region>, usize) {
    let region = |strip: &Strip| Region {
        offset: strip.offset,
        length: strip.length,
        stride: strip.stride,
        count: strip.count,
    };
    let regions: Vec<Region> = strips.into_iter().map(region).collect();
    let bytes = regions.iter().map(|row| row.length * u64::from(row.count)).sum::<u64>();
    (regions, bytes as usize)
}

/// Whether a call waits at a drive until those of other jobs are done: hints are written down at once, and jobs given up.
fn is_queued(call: &ExtensionCall) -> bool {
    ![notice::NUMBER, cancelling::NUMBER].contains(&call.extension.0)
}

/// Whether all of it is one run.
fn is_one_run(strips: &[Strip]) -> bool {
    matches!(strips, [Strip { count: 1, .. }])
}

/// Each run of some strips, in order.
fn runs(strips: &[Strip]) -> impl Iterator<Item = ByteRange> + '_ {
    strips.iter().flat_map(|strip| {
        (0..u64::from(strip.count))
            .map(|run| ByteRange::new(strip.offset + run * strip.stride, strip.length))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_at_once_waits_in_no_queue() {
        let call = |number| ExtensionCall {
            extension: (number, 1),
            rights: nasd_types::Rights::READ,
            most: 0,
            arguments: Vec::new(),
            job: 1,
            bytes_left: 0,
            spare: std::sync::Arc::default(),
        };
        let queued = |number| is_queued(&call(number));
        assert!(queued(nasd_filter::remote::EXTENSION) && queued(nasd_grep::remote::EXTENSION));
        assert!(!queued(notice::NUMBER) && !queued(cancelling::NUMBER));
    }
}
