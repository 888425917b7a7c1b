//! The audit trail: who did what, and who was refused, in bounded space, and so that it survives.
//!
//! * Each request is counted where it is answered ([`AuditTrail::note_reply`],
//!   [`AuditTrail::note_refusal`]), by what it is about (`subject`) and how it ended, in memory
//!   (`tally`).
//! * Once a second what was counted becomes records, one a kind, and these are made durable
//!   ([`AuditTrail::keep`]). A power cut may lose what came since; a clean stop loses nothing.
//! * Records are kept in two rings (`ring`): requests with a right digest in one, all others in the
//!   other, so that strangers, who can be refused as often as they like, don't push out the former.
//! * The rings are an object of a partition that no request reaches, whatever its key, and that
//!   nothing lists. Whoever holds the drive key reads the trail, but only `initialize` removes it.
//!   Its room is reserved: a drive that is full can still write it.

mod record;
mod ring;
mod subject;
mod tally;

use std::sync::{Mutex, MutexGuard, PoisonError};

use nasd_capability::KeyKind;
use nasd_protocol::drive::{AuditArguments, AuditKind, AuditPage, AuditRecord, Procedure};
use nasd_store::{Store, StoreError};
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{AuditId, ObjectId, PartitionId, SetAttributes, Timestamp};

use self::record::Sizes;
use self::ring::{OBJECT, Ring};
pub(crate) use self::subject::Subject;
use self::tally::{Count, Kind, Tally, add, class};

/// One part of the drive's capacity in so many is for the trail.
const SHARE: u64 = 1024;

/// Its least and most bytes.
const BYTES_MIN: u64 = 128 << 10;
const BYTES_MAX: u64 = 16 << 20;

/// Most records of a second, and most that wait while they can't be written: of what was proved, and
/// of the rest.
const WAITING_MAX: [usize; 2] = [4096, 512];

/// See the module.
#[derive(Debug)]
pub(crate) struct AuditTrail {
    tally: Tally,
    keeper: Mutex<Keeper>,
}

/// What writes records down.
#[derive(Debug)]
struct Keeper {
    /// `None` as long as they are not found or made.
    rings: Option<[Ring; 2]>,
    /// The sequence number of the next record.
    next: u64,
    /// Records that are not written, by ring.
    waiting: [Vec<AuditRecord>; 2],
    /// Requests of which no record is made.
    lost: [Option<Count>; 2],
    /// Whether something was written that may not be durable.
    unflushed: bool,
    /// Whether it was logged that it can't be written.
    failing: bool,
}

impl AuditTrail {
    /// A trail that counts, and is not written down before it is opened. `seed` is a random number.
    pub(crate) fn new(seed: u64) -> AuditTrail {
        let keeper = Keeper {
            rings: None,
            next: 1,
            waiting: [const { Vec::new() }; 2],
            lost: [None; 2],
            unflushed: false,
            failing: false,
        };
        AuditTrail { tally: Tally::new(seed), keeper: Mutex::new(keeper) }
    }

    /// Counts a request that was answered with these results.
    pub(crate) fn note_reply(
        &self,
        subject: &Subject,
        results: &[u8],
        proved: bool,
        now: Timestamp,
    ) {
        let status = results.first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
        let subject = if status == 0 { subject.after(results) } else { *subject };
        self.note(subject, status, proved, now);
    }

    /// Counts operations that were parts of one request and ended alike: `count` of them, on `object`, or on
    /// several.
    pub(crate) fn note_parts(
        &self,
        request: &Subject,
        part: (Procedure, Option<ObjectId>, u32),
        count: u64,
        proved: bool,
        now: Timestamp,
    ) {
        let (procedure, object, status) = part;
        let subject = request.part(procedure, object);
        let kind = Kind { subject, status: status as u16, proved };
        self.tally.count_many(&kind, count, now);
    }

    /// Counts what was read by the second authority of a request.
    pub(crate) fn note_source(&self, subject: &Subject, proved: bool, now: Timestamp) {
        self.note(*subject, nasd_protocol::result::OK, proved, now);
    }

    /// Counts a request that had no authority, or none that could be checked.
    pub(crate) fn note_refusal(&self, subject: &Subject, status: u32, now: Timestamp) {
        self.note(*subject, status, false, now);
    }

    fn note(&self, subject: Subject, status: u32, proved: bool, now: Timestamp) {
        // Statuses are below 1000.
        let kind = Kind { subject, status: status as u16, proved };
        self.tally.count(&kind, now);
    }

    /// Finds the trail on the store, or makes one, and writes down that the drive starts.
    pub(crate) fn open(&self, store: &Store, now: Timestamp) {
        let mut keeper = self.keeper();
        let opened = keeper.open(store, now);
        keeper.mark(AuditKind::Started, now);
        let written = opened.and_then(|()| keeper.write(store, now, true));
        keeper.tell(written);
    }

    /// Makes what was counted durable. What can't be written waits, as much as there is room for.
    pub(crate) fn keep(&self, store: &Store, now: Timestamp) {
        let mut keeper = self.keeper();
        keeper.collect(self.tally.drain());
        let written = keeper.write(store, now, true);
        keeper.tell(written);
    }

    /// The same at the stop of the drive.
    pub(crate) fn close(&self, store: &Store, now: Timestamp) {
        let mut keeper = self.keeper();
        keeper.collect(self.tally.drain());
        keeper.mark(AuditKind::Stopped, now);
        let written = keeper.write(store, now, true);
        keeper.tell(written);
    }

    /// The records that are asked for, what came until now among them.
    pub(crate) fn page(
        &self,
        store: &Store,
        wanted: &AuditArguments,
        now: Timestamp,
    ) -> Result<AuditPage, StoreError> {
        let mut keeper = self.keeper();
        keeper.collect(self.tally.drain());
        let written = keeper.write(store, now, false);
        keeper.tell(written);
        keeper.page(store, wanted)
    }

    fn keeper(&self) -> MutexGuard<'_, Keeper> {
        // Each step leaves records whole: at worst one is written twice.
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keeper {
    fn open(&mut self, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        if self.rings.is_some() {
            return Ok(());
        }
        let sizes = find_or_make(store, now)?;
        let (proved, last_proved) = Ring::open(store, 0, sizes.proved)?;
        let start = Sizes { claimed: 0, ..sizes }.bytes();
        let (claimed, last_claimed) = Ring::open(store, start, sizes.claimed)?;
        self.rings = Some([proved, claimed]);
        // Records that wait have their numbers already, which are not to be given out again.
        let last = last_proved.max(last_claimed);
        for record in self.waiting.iter_mut().flatten() {
            record.sequence += last;
        }
        self.next += last;
        Ok(())
    }

    /// Makes records of what was counted.
    fn collect(&mut self, drained: tally::Drained) {
        for (kind, count) in drained.kinds {
            let class = class(kind.proved);
            if self.waiting[class].len() < WAITING_MAX[class] {
                let record = self.numbered(record_of(&kind, count));
                self.waiting[class].push(record);
            } else {
                add(&mut self.lost[class], count);
            }
        }
        for (class, lost) in drained.lost.into_iter().enumerate() {
            lost.into_iter().for_each(|count| add(&mut self.lost[class], count));
        }
    }

    /// Adds a record of the drive itself. There are few of these.
    fn mark(&mut self, kind: AuditKind, now: Timestamp) {
        let record = self.numbered(AuditRecord { count: 1, ..of_the_drive(kind, now) });
        self.waiting[0].push(record);
    }

    fn numbered(&mut self, record: AuditRecord) -> AuditRecord {
        let sequence = self.next;
        self.next += 1;
        AuditRecord { sequence, ..record }
    }

    /// Writes what waits, and makes that durable if it is to be.
    fn write(&mut self, store: &Store, now: Timestamp, durable: bool) -> Result<(), StoreError> {
        let nothing = self.waiting.iter().all(Vec::is_empty) && self.lost == [None; 2];
        if !nothing {
            self.open(store, now)?;
            for (class, kind) in
                [AuditKind::ProvedLost, AuditKind::ClaimedLost].into_iter().enumerate()
            {
                self.append(class, store, now)?;
                // Only now: there must not be more of these while nothing can be written.
                if let Some(count) = self.lost[class].take() {
                    let record = self.numbered(with_count(of_the_drive(kind, now), count));
                    self.waiting[class].push(record);
                    self.append(class, store, now)?;
                }
            }
        }
        if durable && self.unflushed {
            let flushed = store.flush(&[OBJECT]);
            self.unflushed = flushed.is_err();
            self.forget_if_removed(&flushed);
            flushed?;
        }
        Ok(())
    }

    /// The drive may have been initialized: there is to be a new trail then.
    fn forget_if_removed<T>(&mut self, outcome: &Result<T, StoreError>) {
        if let Err(StoreError::NoSuchPartition(_) | StoreError::NoSuchObject(_)) = outcome {
            self.rings = None;
            self.unflushed = false;
        }
    }

    fn append(&mut self, class: usize, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        let Some(rings) = &mut self.rings else { return Ok(()) };
        if self.waiting[class].is_empty() {
            return Ok(());
        }
        self.unflushed = true;
        let appended = rings[class].append(store, &mut self.waiting[class], now);
        self.forget_if_removed(&appended);
        appended
    }

    /// Says once that the trail can't be written, and once that it can be again.
    fn tell(&mut self, written: Result<(), StoreError>) {
        match written {
            // The drive was initialized, and the old trail is removed, or being removed.
            Err(
                StoreError::PartitionExists(_)
                | StoreError::NoSuchPartition(_)
                | StoreError::NoSuchObject(_),
            ) => return,
            Ok(()) if self.failing => tracing::info!("the audit trail is written again"),
            Ok(()) => {}
            Err(ref error) if !self.failing => {
                tracing::error!(%error, "cannot write the audit trail; it is tried again");
            }
            Err(_) => {}
        }
        self.failing = written.is_err();
    }

    fn page(&self, store: &Store, wanted: &AuditArguments) -> Result<AuditPage, StoreError> {
        let most = wanted.most as usize;
        let mut records = Vec::new();
        for class in 0..2 {
            // One more, to know whether there are more.
            let mut found = match &self.rings {
                Some(rings) => rings[class]
                    .find(store, wanted.after, most + 1, |record| wanted.wants(record))?,
                None => Vec::new(),
            };
            let waiting = self.waiting[class].iter().filter(|record| wanted.wants(record));
            found.extend(waiting.copied());
            records.append(&mut found);
        }
        records.sort_unstable_by_key(|record| record.sequence);
        let more = records.len() > most;
        records.truncate(most);
        let next = match records.last() {
            Some(last) if more => last.sequence,
            _ => (self.next - 1).max(wanted.after),
        };
        Ok(AuditPage { records, next, more })
    }
}

/// The object of the rings, as it says how long they are; made if it is not there.
fn find_or_make(store: &Store, now: Timestamp) -> Result<Sizes, StoreError> {
    let partition = PartitionId::AUDIT;
    if !store.partitions().contains(&partition) {
        store.create_partition(partition, now)?;
    }
    if let Some(sizes) = Sizes::parse(&store.getattr(OBJECT)?.fs_specific) {
        return Ok(sizes);
    }
    // It is new, or a power cut came before it was done.
    let bytes = (store.space().capacity_bytes / SHARE).clamp(BYTES_MIN, BYTES_MAX);
    let blocks = bytes / BLOCK_BYTES as u64;
    let of_blocks = |blocks: u64| blocks * (BLOCK_BYTES / record::RECORD_BYTES) as u64;
    let claimed = blocks / 4;
    let sizes = Sizes { proved: of_blocks(blocks - claimed), claimed: of_blocks(claimed) };
    store.resize_partition(partition, u64::MAX)?;
    let changes = SetAttributes {
        logical_size: Some(sizes.bytes()),
        blocks_allocated: Some(blocks),
        fs_specific: Some(sizes.encode()),
        ..SetAttributes::default()
    };
    store.setattr(OBJECT, &changes, now)?;
    store.flush(&[OBJECT])?;
    Ok(sizes)
}

fn record_of(kind: &Kind, count: Count) -> AuditRecord {
    let Kind { subject, status, proved } = kind;
    let about = AuditRecord {
        procedure: u32::from(subject.procedure),
        status: u32::from(*status),
        key: subject.key,
        partition: subject.partition,
        object: subject.object,
        audit_id: subject.audit_id,
        ..of_the_drive(if *proved { AuditKind::Proved } else { AuditKind::Claimed }, count.first)
    };
    with_count(about, count)
}

fn with_count(record: AuditRecord, count: Count) -> AuditRecord {
    let span_ms = (count.last.0 - count.first.0) / 1_000_000;
    AuditRecord {
        first: count.first,
        span_ms: u32::try_from(span_ms).unwrap_or(u32::MAX),
        count: u32::try_from(count.requests).unwrap_or(u32::MAX),
        ..record
    }
}

/// A record of nobody's request.
fn of_the_drive(kind: AuditKind, now: Timestamp) -> AuditRecord {
    AuditRecord {
        sequence: 0,
        first: now,
        span_ms: 0,
        count: 0,
        kind,
        procedure: 0,
        status: 0,
        key: KeyKind::None,
        partition: PartitionId(0),
        object: ObjectId(0),
        audit_id: AuditId(0),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn subject(object: u64) -> Subject {
        Subject {
            audit_id: AuditId(7),
            object: ObjectId(object),
            partition: PartitionId(1),
            procedure: 6,
            key: KeyKind::Capability,
        }
    }

    /// Without a store nothing is written, and what waits for one is bounded.
    #[test]
    fn what_waits_is_bounded() {
        let trail = AuditTrail::new(5);
        let mut keeper = trail.keeper();
        for second in 0..20 {
            for object in 0..1024 {
                let now = Timestamp(second * 1_000_000_000);
                trail.note_reply(&subject(second * 1024 + object), &[0; 4], true, now);
                trail.note_refusal(&subject(second * 1024 + object), 108, now);
            }
            keeper.collect(trail.tally.drain());
        }
        assert_eq!(keeper.waiting[0].len(), WAITING_MAX[0]);
        assert_eq!(keeper.waiting[1].len(), WAITING_MAX[1]);
        for class in 0..2 {
            let lost = keeper.lost[class].map_or(0, |count| count.requests);
            assert_eq!(lost + keeper.waiting[class].len() as u64, 20 * 1024, "ring {class}");
        }
    }

    /// Run it with `--release --ignored --nocapture`: what a request costs more.
    #[test]
    #[ignore = "a measurement"]
    fn the_cost_of_counting() {
        const REQUESTS: u64 = 10_000_000;
        for kinds in [1, 16, 1000] {
            let trail = AuditTrail::new(5);
            let begin = Instant::now();
            for request in 0..REQUESTS {
                trail.note_reply(&subject(request % kinds), &[0; 4], true, Timestamp(request));
            }
            let each = begin.elapsed().as_nanos() as f64 / REQUESTS as f64;
            println!("{kinds:>5} kinds: {each:.1} ns a request");
        }
    }
}
