//! One pass over the tables: every record by itself, and every object with what belongs to it.

use crate::appends::{APPENDS, Appends};
use crate::bytes::BLOCK;
use crate::finding::{Code, Subject};
use crate::record::{
    Counters, DriveKeys, Extent, Family, Flaw, Mark, Object, Partition, Record, SMALL_MAX, Share,
    Small, extent_key, object_key, split_extent, split_object,
};
use crate::report::{Progress, Stage};
use crate::sink::Sink;
use crate::state::{FamilyTally, Membership, Run, State, Use};
use crate::superblock::Superblock;
use crate::tree::{AnyKey, Cursor, Fix, Snapshot, Table, TreeError, rows};

/// The object that every partition has.
const FIRST_OBJECT: u64 = nasd_types::ObjectId::FIRST_OBJECT.0;
/// Key and value of a row of the table of extents.
const EXTENT_ROW_BYTES: u64 = 20 + 32;
pub(crate) const KEYS: u32 = 1;
pub(crate) const COUNTERS: u32 = 2;
pub(crate) const MARK: u32 = 3;
/// Identifiers below are never given out by `create`.
const FIRST_DYNAMIC: u64 = nasd_types::ObjectId::FIRST_DYNAMIC.0;
/// From here on they are chosen by holders of keys.
const FIRST_NAMED: u64 = nasd_types::ObjectId::FIRST_NAMED.0;

/// The pass.
pub(crate) struct Scan<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) superblock: &'a Superblock,
    pub(crate) sink: &'a mut Sink,
    pub(crate) progress: &'a mut dyn FnMut(Progress),
    pub(crate) state: State,
}

/// An object while its extents go by.
struct Current {
    partition: u32,
    object: u64,
    record: Option<Object>,
    changed: bool,
    /// End of the last valid extent, in blocks of the object.
    end: u64,
    used: u64,
    extents: u64,
    orphans: u64,
}

/// A row of the table of extents, if there is one more.
type ExtentRow = Option<([u8; 20], Vec<u8>)>;

/// Rows of the three tables that are ordered by object, each with one row looked at ahead.
struct Merge<'a> {
    objects: Cursor<'a, &'static [u8; 12]>,
    small: Cursor<'a, &'static [u8; 12]>,
    extents: Cursor<'a, &'static [u8; 20]>,
    object: Option<([u8; 12], Vec<u8>)>,
    content: Option<([u8; 12], Vec<u8>)>,
    extent: ExtentRow,
}

impl<'a> Merge<'a> {
    fn new(snapshot: &'a Snapshot) -> Result<Merge<'a>, TreeError> {
        let mut merge = Merge {
            objects: Cursor::new(&snapshot.objects)?,
            small: Cursor::new(&snapshot.small)?,
            extents: Cursor::new(&snapshot.extents)?,
            object: None,
            content: None,
            extent: None,
        };
        merge.object = merge.objects.next(|key| *key)?;
        merge.content = merge.small.next(|key| *key)?;
        merge.extent = merge.extents.next(|key| *key)?;
        Ok(merge)
    }

    /// The lowest object that any of the tables names.
    fn lowest(&self) -> Option<[u8; 12]> {
        let extent = self.extent.as_ref().map(|(key, _)| crate::bytes::array(key, 0));
        let object = self.object.as_ref().map(|(key, _)| *key);
        let content = self.content.as_ref().map(|(key, _)| *key);
        [object, content, extent].into_iter().flatten().min()
    }

    fn object_at(&mut self, key: &[u8; 12]) -> Result<Option<Vec<u8>>, TreeError> {
        if self.object.as_ref().is_none_or(|(at, _)| at != key) {
            return Ok(None);
        }
        let next = self.objects.next(|key| *key)?;
        Ok(std::mem::replace(&mut self.object, next).map(|(_, value)| value))
    }

    fn content_at(&mut self, key: &[u8; 12]) -> Result<Option<Vec<u8>>, TreeError> {
        if self.content.as_ref().is_none_or(|(at, _)| at != key) {
            return Ok(None);
        }
        let next = self.small.next(|key| *key)?;
        Ok(std::mem::replace(&mut self.content, next).map(|(_, value)| value))
    }

    fn extent_at(&mut self, key: &[u8; 12]) -> Result<ExtentRow, TreeError> {
        if self.extent.as_ref().is_none_or(|(at, _)| at[..12] != key[..]) {
            return Ok(None);
        }
        let next = self.extents.next(|key| *key)?;
        Ok(std::mem::replace(&mut self.extent, next))
    }
}

impl Scan<'_> {
    /// Reads all tables; what was collected is in order of place then.
    pub(crate) fn run(&mut self) -> Result<(), TreeError> {
        self.drive()?;
        self.partitions()?;
        self.shares()?;
        self.families()?;
        self.objects()?;
        self.state.uses.sort_unstable_by_key(|used| (used.physical, used.partition, used.object));
        self.members()
    }

    /// Decodes a record; what is wrong with it is reported, and mended or removed.
    fn decode<T: Record>(
        &mut self,
        table: Table,
        key: AnyKey,
        subject: Subject,
        value: &[u8],
    ) -> Option<T> {
        match T::decode(&key.bytes(), value) {
            Ok((record, clean)) => {
                if !clean {
                    self.sink.add(Code::RecordReserved, subject, format!("in {}", table.name()));
                    let value = record.encode(&key.bytes());
                    self.sink.fix(|| Fix { table, key, value: Some(value) });
                }
                Some(record)
            }
            Err(flaw) => {
                flawed(self.sink, table, key, subject, flaw);
                None
            }
        }
    }

    fn drive(&mut self) -> Result<(), TreeError> {
        let mut seen = [false; 4];
        let mut cursor = Cursor::new(&self.snapshot.drive)?;
        while let Some((number, value)) = cursor.next(|key| key)? {
            let key = AnyKey::Short(number);
            match number {
                KEYS => {
                    let keys = self.decode::<DriveKeys>(Table::Drive, key, Subject::Drive, &value);
                    if let Some(mut keys) = keys {
                        seen[KEYS as usize] = true;
                        if let Some(detail) = keys.tidy() {
                            self.field(Table::Drive, key, Subject::Drive, detail, &keys);
                        }
                    }
                }
                COUNTERS => {
                    let counters =
                        self.decode::<Counters>(Table::Drive, key, Subject::Drive, &value);
                    seen[COUNTERS as usize] = counters.is_some();
                    self.state.object_limit = counters.as_ref().map(Counters::object_limit);
                    if let Some(mut counters) = counters
                        && let Some(detail) = counters.tidy()
                    {
                        self.field(Table::Drive, key, Subject::Drive, detail, &counters);
                    }
                }
                MARK => {
                    let mark = self.decode::<Mark>(Table::Drive, key, Subject::Drive, &value);
                    seen[MARK as usize] = mark.is_some();
                }
                APPENDS => {
                    self.decode::<Appends>(Table::Drive, key, Subject::Drive, &value);
                }
                _ => self.unknown_key(Table::Drive, key, format!("drive {number}")),
            }
        }
        if !seen[KEYS as usize] {
            self.sink.drive(Code::DriveKeysMissing, "the drive has no valid keys record");
        }
        if !seen[COUNTERS as usize] {
            self.sink.drive(Code::DriveCountersMissing, "the drive has no valid counters record");
        }
        if !seen[MARK as usize] {
            self.sink.drive(Code::LogMarkMissing, "the drive has no valid log mark record");
        }
        Ok(())
    }

    fn unknown_key(&mut self, table: Table, key: AnyKey, detail: String) {
        self.sink.drive(Code::RecordUnknownKey, detail);
        self.sink.fix(|| Fix { table, key, value: None });
    }

    fn field(
        &mut self,
        table: Table,
        key: AnyKey,
        subject: Subject,
        detail: &str,
        mended: &impl Record,
    ) {
        self.sink.add(Code::RecordField, subject, format!("in {}: {detail}", table.name()));
        self.sink.fix(|| Fix { table, key, value: Some(mended.encode(&key.bytes())) });
    }

    fn partitions(&mut self) -> Result<(), TreeError> {
        let mut cursor = Cursor::new(&self.snapshot.partitions)?;
        while let Some((number, value)) = cursor.next(|key| key)? {
            let (key, subject) = (AnyKey::Short(number), partition_subject(number));
            let record = self.decode::<Partition>(Table::Partitions, key, subject, &value);
            if let Some(mut record) = record {
                if let Some(detail) = record.tidy() {
                    self.field(Table::Partitions, key, subject, detail, &record);
                }
                self.state.partitions.entry(number).or_default().record = Some(record);
            }
        }
        Ok(())
    }

    fn shares(&mut self) -> Result<(), TreeError> {
        let mut cursor = Cursor::new(&self.snapshot.shares)?;
        let mut end = 0;
        while let Some((first, value)) = cursor.next(|key| key)? {
            let key = AnyKey::Long(first);
            let decoded = self.decode::<Share>(Table::Shares, key, Subject::Drive, &value);
            let Some(share) = decoded else { continue };
            let makes_sense = share.makes_sense();
            let run = Run { first, blocks: u64::from(share.blocks), holders: share.holders };
            let flaw = if !makes_sense {
                Some(Code::ShareMalformed)
            } else if first.checked_add(run.blocks).is_none_or(|e| e > self.superblock.data_blocks)
            {
                Some(Code::ShareOutsideDevice)
            } else if first < end {
                Some(Code::SharesOverlap)
            } else {
                None
            };
            if let Some(code) = flaw {
                let detail = format!(
                    "share record of {} data blocks from {first} on, of {} partitions",
                    run.blocks,
                    run.holders.len()
                );
                self.sink.drive(code, detail);
                self.sink.fix(|| Fix { table: Table::Shares, key, value: None });
                continue;
            }
            end = run.end();
            for holder in run.holders.iter().filter(|holder| holder.family != 0) {
                let name = (holder.partition, holder.family);
                self.state.families.entry(name).or_default().shared += run.blocks;
            }
            self.state.runs.push(run);
        }
        Ok(())
    }

    fn families(&mut self) -> Result<(), TreeError> {
        let mut cursor = Cursor::new(&self.snapshot.families)?;
        while let Some((bytes, value)) = cursor.next(|key| *key)? {
            let (partition, family) = split_object(&bytes);
            let (key, subject) = (AnyKey::Object(bytes), Subject::object(partition, family));
            if family == 0 {
                let detail = format!("family 0 of partition p{partition:x}");
                self.unknown_key(Table::Families, key, detail);
                continue;
            }
            let record = self.decode::<Family>(Table::Families, key, subject, &value);
            if record.is_some() {
                self.state.families.entry((partition, family)).or_default().record = record;
            }
        }
        Ok(())
    }

    fn objects(&mut self) -> Result<(), TreeError> {
        let total = rows(&self.snapshot.objects)?;
        // A list that doubles would take twice the room; no more rows fit the region than this.
        let most = self.superblock.metadata_bytes / EXTENT_ROW_BYTES;
        let extents = rows(&self.snapshot.extents)?.min(most);
        self.state.uses.reserve_exact(usize::try_from(extents).unwrap_or(0));
        let mut merge = Merge::new(self.snapshot)?;
        while let Some(key) = merge.lowest() {
            let (partition, object) = split_object(&key);
            let subject = Subject::object(partition, object);
            let record = match merge.object_at(&key)? {
                Some(_) if object == 0 => {
                    let detail = format!("object 0 of partition p{partition:x}");
                    self.unknown_key(Table::Objects, AnyKey::Object(key), detail);
                    None
                }
                Some(value) => {
                    self.decode::<Object>(Table::Objects, AnyKey::Object(key), subject, &value)
                }
                None => None,
            };
            let mut current = self.begin(partition, object, record);
            while let Some((key, value)) = merge.extent_at(&key)? {
                self.extent(&mut current, &key, &value);
            }
            let content = merge.content_at(&key)?;
            self.content(&mut current, content);
            self.finish(current);
            if self.state.objects.is_multiple_of(4096) {
                let done = self.state.objects;
                (self.progress)(Progress { stage: Stage::Tables, done, total });
            }
        }
        Ok(())
    }

    fn begin(&mut self, partition: u32, object: u64, record: Option<Object>) -> Current {
        let mut current = Current {
            partition,
            object,
            record,
            changed: false,
            end: 0,
            used: 0,
            extents: 0,
            orphans: 0,
        };
        let Some(record) = &mut current.record else { return current };
        let subject = Subject::object(partition, object);
        self.state.objects += 1;
        let reserved = record.stray_flags();
        if reserved != 0 {
            record.set_small(record.is_small());
            current.changed = true;
            let detail = format!("in objects: FLAGS has bits {reserved:#x} without a meaning");
            self.sink.add(Code::RecordField, subject, detail);
        }
        let is_given = object < FIRST_NAMED;
        if let Some(limit) = self.state.object_limit
            && object >= limit
            && is_given
        {
            let detail = format!("OBJECT_LIMIT is {limit:#x}");
            self.sink.add(Code::IdentifierAboveLimit, subject, detail);
        }
        if is_given {
            self.state.highest_object = self.state.highest_object.max(object);
        }
        if record.family() != 0 {
            let family = record.family();
            self.state.memberships.push(Membership { partition, object, family });
            self.state.families.entry((partition, family)).or_default().members += 1;
        }
        current
    }

    fn extent(&mut self, current: &mut Current, key: &[u8; 20], value: &[u8]) {
        let (partition, object, logical) = split_extent(key);
        let at = Subject::at(partition, object, logical.saturating_mul(BLOCK));
        let any = AnyKey::Extent(*key);
        let remove = || Fix { table: Table::Extents, key: any, value: None };
        let Some(record) = &current.record else {
            current.orphans += 1;
            self.sink.fix(remove);
            return;
        };
        let (is_small, size_is_valid) = (record.is_small(), record.size_is_valid());
        let blocks = if size_is_valid { record.blocks() } else { u64::MAX };
        let tail = (record.size() % BLOCK) as u16;
        let Some(mut extent) = self.decode::<Extent>(Table::Extents, any, at, value) else {
            return;
        };
        let end = extent.physical.checked_add(u64::from(extent.stored));
        let problem = if let Some(flaw) = extent.flaw(logical) {
            Some((Code::ExtentMalformed, flaw.to_owned()))
        } else if end.is_none_or(|end| end > self.superblock.data_blocks) {
            let detail = format!(
                "{} data blocks from {} on; the device has {}",
                extent.stored, extent.physical, self.superblock.data_blocks
            );
            Some((Code::ExtentOutsideDevice, detail))
        } else if logical < current.end {
            let detail = format!("the extent before it ends at byte {}", current.end * BLOCK);
            Some((Code::ExtentsOverlap, detail))
        } else {
            None
        };
        if let Some((code, detail)) = problem {
            self.sink.add(code, at, detail);
            self.sink.fix(remove);
            return;
        }
        let end = logical + u64::from(extent.blocks);
        if !is_small && end > blocks {
            let detail =
                format!("it ends at byte {}, the object at {}", end * BLOCK, blocks * BLOCK);
            self.sink.add(Code::ExtentBehindSize, at, detail);
            if logical >= blocks || extent.is_compressed() {
                self.sink.fix(remove);
                return;
            }
            extent = extent.part(0, blocks - logical);
            let value = extent.encode(key);
            self.sink.fix(|| Fix { table: Table::Extents, key: any, value: Some(value) });
        }
        current.extents += 1;
        if is_small {
            self.sink.fix(remove);
            return;
        }
        current.end = logical + u64::from(extent.blocks);
        current.used += self.state.unshared(partition, extent.physical, u64::from(extent.stored));
        let mut used = Use::new(partition, object, logical, &extent);
        if current.end == blocks {
            used.tail = tail;
        }
        self.state.uses.push(used);
    }

    fn content(&mut self, current: &mut Current, value: Option<Vec<u8>>) {
        let key = object_key(current.partition, current.object);
        let subject = Subject::object(current.partition, current.object);
        let any = AnyKey::Object(key);
        let remove = || Fix { table: Table::Small, key: any, value: None };
        let Some(record) = current.record.clone() else {
            if value.is_some() {
                self.sink.add(Code::SmallOrphan, subject, "there is no such object");
                self.sink.fix(remove);
            }
            return;
        };
        let had_value = value.is_some();
        let small =
            value.and_then(|value| self.decode::<Small>(Table::Small, any, subject, &value));
        match (record.is_small(), small) {
            (true, None) => {
                if !had_value {
                    self.sink.add(Code::SmallMissing, subject, "table small has no record of it");
                }
                self.set_small(current, false);
            }
            (true, Some(small)) => {
                if current.extents > 0 {
                    let detail = format!("{} extents", current.extents);
                    self.sink.add(Code::SmallWithExtents, subject, detail);
                }
                self.small_contents(current, any, &small);
            }
            (false, Some(small)) => {
                let detail = format!("{} bytes of small contents", small.0.len());
                self.sink.add(Code::SmallUnexpected, subject, detail);
                if current.extents == 0 {
                    self.set_small(current, true);
                } else {
                    self.sink.fix(remove);
                }
            }
            (false, None) => {}
        }
    }

    fn set_small(&mut self, current: &mut Current, small: bool) {
        if let Some(record) = &mut current.record {
            record.set_small(small);
            current.changed = true;
        }
    }

    fn small_contents(&mut self, current: &mut Current, key: AnyKey, small: &Small) {
        let size = current.record.as_ref().map_or(0, Object::size);
        let length = small.0.len();
        if (1..=SMALL_MAX).contains(&length) && length as u64 <= size {
            return;
        }
        let subject = Subject::object(current.partition, current.object);
        let detail = format!("{length} bytes of small contents; the object has {size}");
        self.sink.add(Code::SmallMalformed, subject, detail);
        let keep = length.min(SMALL_MAX).min(usize::try_from(size).unwrap_or(usize::MAX));
        if keep == 0 {
            self.set_small(current, false);
            self.sink.fix(|| Fix { table: Table::Small, key, value: None });
        } else {
            let value = Small(small.0[..keep].to_vec()).encode(&key.bytes());
            self.sink.fix(|| Fix { table: Table::Small, key, value: Some(value) });
        }
    }

    fn finish(&mut self, mut current: Current) {
        let (partition, object) = (current.partition, current.object);
        let subject = Subject::object(partition, object);
        if current.orphans > 0 {
            let detail = format!("{} extents of an object that is not there", current.orphans);
            self.sink.add(Code::ExtentOrphan, subject, detail);
        }
        let Some(mut record) = current.record.take() else { return };
        if !record.size_is_valid() {
            let detail = format!("in objects: LOGICAL_SIZE is {}", record.size());
            self.sink.add(Code::RecordField, subject, detail);
            record.set_size(current.end.saturating_mul(BLOCK));
            current.changed = true;
        }
        if record.used() != current.used {
            let detail = format!("BLOCKS_USED is {}, counted were {}", record.used(), current.used);
            self.sink.add(Code::BlocksUsedWrong, subject, detail);
            record.set_used(current.used);
            current.changed = true;
        }
        if current.changed {
            let key = object_key(partition, object);
            self.sink.fix(|| Fix {
                table: Table::Objects,
                key: AnyKey::Object(key),
                value: Some(record.encode(&key)),
            });
        }
        let tally = self.state.partitions.entry(partition).or_default();
        tally.objects += 1;
        tally.charged = tally.charged.saturating_add(record.charge());
        tally.has_first_object |= object == FIRST_OBJECT;
    }

    fn members(&mut self) -> Result<(), TreeError> {
        let order = |of: &Membership| (of.partition, of.family, of.object);
        let mut wanted: Vec<_> = self.state.memberships.iter().map(order).collect();
        wanted.sort_unstable();
        let mut wanted = wanted.into_iter().peekable();
        let mut cursor = Cursor::new(&self.snapshot.members)?;
        while let Some((key, value)) = cursor.next(|key| *key)? {
            let (partition, family, object) = split_extent(&key);
            let any = AnyKey::Extent(key);
            while let Some(missing) = wanted.next_if(|name| *name < (partition, family, object)) {
                self.missing_member(missing);
            }
            let subject = Subject::object(partition, object);
            if wanted.next_if_eq(&(partition, family, object)).is_none() {
                let there = self.snapshot.objects.get(&object_key(partition, object))?.is_some();
                let code = if there { Code::MemberMismatch } else { Code::MemberOrphan };
                self.sink.add(code, subject, format!("listed by family o{family:x}"));
                self.sink.fix(|| Fix { table: Table::Members, key: any, value: None });
            } else if !value.is_empty() {
                let detail = format!("in members: {} bytes where none are", value.len());
                self.sink.add(Code::RecordField, subject, detail);
                let value = Some(Vec::new());
                self.sink.fix(|| Fix { table: Table::Members, key: any, value });
            }
        }
        wanted.for_each(|missing| self.missing_member(missing));
        Ok(())
    }

    fn missing_member(&mut self, (partition, family, object): (u32, u64, u64)) {
        let subject = Subject::object(partition, object);
        self.sink.add(Code::MemberMissing, subject, format!("it is of family o{family:x}"));
        let key = AnyKey::Extent(extent_key(partition, family, object));
        self.sink.fix(|| Fix { table: Table::Members, key, value: Some(Vec::new()) });
    }

    /// Compares what families and partitions say with what was counted.
    pub(crate) fn totals(&mut self) {
        for ((partition, family), tally) in std::mem::take(&mut self.state.families) {
            self.family(partition, family, &tally);
        }
        for (number, tally) in std::mem::take(&mut self.state.partitions) {
            self.partition(number, &tally);
        }
        let above = self.state.highest_object.saturating_add(1).max(FIRST_DYNAMIC);
        let limit = self.state.object_limit;
        if limit.is_none_or(|limit| limit <= self.state.highest_object) && self.sink.wants_fixes() {
            self.raise_limit(above, limit.is_some());
        }
    }

    fn raise_limit(&mut self, limit: u64, keep: bool) {
        let key = COUNTERS.to_be_bytes();
        let present = self.snapshot.drive.get(COUNTERS).ok().flatten();
        let present = present.filter(|_| keep);
        let decoded = present.and_then(|value| Counters::decode(&key, value.value()).ok());
        let mut record = decoded.map_or_else(Counters::empty, |(record, _)| record);
        record.skip_identifiers(limit);
        let value = Some(record.encode(&key));
        self.sink.fix(|| Fix { table: Table::Drive, key: AnyKey::Short(COUNTERS), value });
    }

    fn family(&mut self, partition: u32, family: u64, tally: &FamilyTally) {
        let charge = self.state.partitions.entry(partition).or_default();
        charge.charged = charge.charged.saturating_add(tally.shared);
        let subject = Subject::object(partition, family);
        let counted = Family { shared: tally.shared, members: tally.members };
        let key = object_key(partition, family);
        match &tally.record {
            None => {
                let detail = format!(
                    "family of {} members and {} shared blocks",
                    counted.members, counted.shared
                );
                self.sink.add(Code::FamilyMissing, subject, detail);
            }
            Some(_) if tally.members == 0 => {
                let detail = format!("a family with {} shared blocks", counted.shared);
                self.sink.add(Code::FamilyEmpty, subject, detail);
            }
            Some(record) => {
                if record.members != counted.members {
                    let detail =
                        format!("MEMBERS is {}, counted were {}", record.members, counted.members);
                    self.sink.add(Code::FamilyMembersWrong, subject, detail);
                }
                if record.shared != counted.shared {
                    let detail = format!(
                        "SHARED_BLOCKS is {}, counted were {}",
                        record.shared, counted.shared
                    );
                    self.sink.add(Code::SharedBlocksWrong, subject, detail);
                }
            }
        }
        let wanted = (tally.members > 0).then_some(counted);
        if tally.record != wanted {
            let value = wanted.map(|record| record.encode(&key));
            self.sink.fix(|| Fix { table: Table::Families, key: AnyKey::Object(key), value });
        }
    }

    fn partition(&mut self, number: u32, tally: &crate::state::PartitionTally) {
        let subject = partition_subject(number);
        let mut wanted = match &tally.record {
            Some(record) => record.clone(),
            None => {
                let detail =
                    format!("{} objects are of a partition without a record", tally.objects);
                self.sink.add(Code::PartitionMissing, subject, detail);
                let mut record = Partition::empty();
                record.set_no_quota();
                record
            }
        };
        if tally.record.is_some() && wanted.objects() != tally.objects {
            let detail = format!("OBJECTS is {}, counted were {}", wanted.objects(), tally.objects);
            self.sink.add(Code::PartitionObjectsWrong, subject, detail);
        }
        if tally.record.is_some() && wanted.charged() != tally.charged {
            let detail =
                format!("CHARGED_BLOCKS is {}, counted were {}", wanted.charged(), tally.charged);
            self.sink.add(Code::PartitionChargeWrong, subject, detail);
        }
        let mut objects = tally.objects;
        if !tally.has_first_object && !wanted.is_being_removed() {
            self.sink.add(Code::FirstObjectMissing, subject, "object o4 is not there");
            let key = object_key(number, FIRST_OBJECT);
            objects += 1;
            self.sink.fix(|| Fix {
                table: Table::Objects,
                key: AnyKey::Object(key),
                value: Some(Object::empty().encode(&key)),
            });
        }
        wanted.set_objects(objects);
        wanted.set_charged(tally.charged);
        if tally.record.as_ref() != Some(&wanted) {
            let value = Some(wanted.encode(&number.to_be_bytes()));
            self.sink.fix(|| Fix { table: Table::Partitions, key: AnyKey::Short(number), value });
        }
    }
}

fn partition_subject(number: u32) -> Subject {
    Subject::Partition(nasd_types::PartitionId(number))
}

/// Reports a record that can't be taken, and removes it.
pub(crate) fn flawed(sink: &mut Sink, table: Table, key: AnyKey, subject: Subject, flaw: Flaw) {
    let code = match flaw {
        Flaw::Version(_) => Code::RecordVersion,
        Flaw::Length(_) | Flaw::Checksum => Code::RecordDamaged,
    };
    let place = match key {
        AnyKey::Long(number) => format!("record {number} of {}", table.name()),
        AnyKey::Short(number) => format!("record {number} of {}", table.name()),
        AnyKey::Object(_) | AnyKey::Extent(_) => format!("its record in {}", table.name()),
    };
    sink.add(code, subject, format!("{place}: {flaw}"));
    sink.fix(|| Fix { table, key, value: None });
}
