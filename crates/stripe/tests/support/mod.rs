//! Component drives that are nowhere but in memory, and fail on demand; and where a striping manager keeps its
//! state.
#![allow(dead_code, reason = "each test uses its part")]

mod object;
#[path = "../../../types/tests/random/mod.rs"]
mod random;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use nasd_capability::SecretKey;
use nasd_protocol::Status;
use nasd_protocol::drive::{
    BatchDone, BatchOperation, BatchOutcome, Batched, BlocksRequired, Copied, Created,
    DriveControl, NO_QUOTA, PartitionControl, PartitionState, PartitionSummary, RangeToCopy,
    ReadArguments, WriteArguments, Written,
};
use nasd_stripe::{
    Answer, Ask, ComponentError, ComponentPartition, Components, Keeper, ReadComponent, Sign, Told,
    VirtualDrive, VirtualDriveOptions,
};
use nasd_types::{
    Attributes, ByteRange, Compression, DriveId, ObjectId, ObjectName, PartitionId, Protection,
    SetAttributes, Timestamp, WriteOrder,
};

pub use object::{BLOCK, Object};
pub use random::Random;

/// A virtual drive over these.
pub fn start(
    drives: &Arc<MemoryDrives>,
    keeper: &Arc<MemoryKeeper>,
    options: &VirtualDriveOptions,
    random: u64,
) -> VirtualDrive {
    let components = Arc::clone(drives);
    let whole = VirtualDrive::start(
        move |_| components as Arc<dyn Components>,
        Arc::clone(keeper) as Arc<dyn Keeper>,
        options.clone(),
        (random, SecretKey::new([1; 32])),
    );
    whole.unwrap()
}

/// What a drive without end tells as free, in bytes.
const ROOM: u64 = 1 << 40;

type Objects = BTreeMap<ObjectId, Object>;

#[derive(Clone, Debug, Default)]
struct Partition {
    bytes: u64,
    objects: Objects,
    /// As they are after a crash.
    durable: Objects,
    next: u64,
}

#[derive(Clone, Debug, Default)]
struct Drive {
    instance: u64,
    is_away: bool,
    /// Blocks that it has found it can't read.
    bad_blocks: u64,
    /// The number of each partition's working key.
    epochs: BTreeMap<PartitionId, u32>,
    started: Timestamp,
    partitions: BTreeMap<PartitionId, Partition>,
}

/// Drives, and what is to go wrong with them.
#[derive(Debug)]
pub struct MemoryDrives {
    inner: Mutex<Inner>,
    silence: Mutex<Silence>,
    changed: Condvar,
}

/// Drives that don't answer, and how many wait for them.
#[derive(Debug, Default)]
struct Silence {
    drives: BTreeSet<DriveId>,
    /// The call that is to be held up, when it comes, and whether it is.
    hold: Option<Hold>,
    holds: bool,
    waiting: usize,
}

/// One call that is held up on its way.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    pub drive: DriveId,
    pub when: When,
    /// Which of those that the drive is asked for.
    pub which: fn(&Ask) -> bool,
}

/// When a call is held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before it is done.
    Before,
    /// When it is done, before that is heard.
    After,
}

#[derive(Debug)]
struct Inner {
    drives: BTreeMap<DriveId, Drive>,
    now: Timestamp,
    random: Random,
    /// One call of so many fails; 0 is none.
    fail_one_in: u64,
    /// Calls that are done before the striping manager dies, if it does: the next one is done or not, and not heard of;
    /// later ones are never sent.
    dies_after: Option<(u64, bool)>,
    failed: u64,
    calls: u64,
    bytes_read: u64,
    /// What drives answer that can't write.
    write_faults: BTreeMap<DriveId, Status>,
    /// Of which drive it is not heard that it has written.
    write_lost: Option<DriveId>,
    /// Those that the striping manager uses.
    epochs: BTreeMap<PartitionId, u32>,
}

impl MemoryDrives {
    pub fn new(count: u64, seed: u64) -> MemoryDrives {
        let drive = |number| (DriveId(number), Drive { instance: number << 8, ..Drive::default() });
        MemoryDrives {
            inner: Mutex::new(Inner {
                drives: (1..=count).map(drive).collect(),
                now: Timestamp(1_000_000_000_000),
                random: Random(seed),
                fail_one_in: 0,
                dies_after: None,
                failed: 0,
                calls: 0,
                bytes_read: 0,
                write_faults: BTreeMap::new(),
                write_lost: None,
                epochs: BTreeMap::new(),
            }),
            silence: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    pub fn now(&self) -> Timestamp {
        self.lock().now
    }

    pub fn pass(&self, nanoseconds: u64) {
        self.lock().now.0 += nanoseconds;
    }

    /// Lets one call of so many fail from now on, before it is done or after; 0 lets none.
    /// What it was before.
    pub fn fail_one_in(&self, calls: u64) -> u64 {
        std::mem::replace(&mut self.lock().fail_one_in, calls)
    }

    /// The striping manager dies when it has made so many calls, while the next one is done, or is not; or it does not.
    pub fn die_after(&self, death: Option<(u64, bool)>) {
        self.lock().dies_after = death;
    }

    /// Whether it has died.
    pub fn has_died(&self) -> bool {
        self.lock().dies_after.is_some_and(|(calls, _)| calls == u64::MAX)
    }

    /// How many calls failed.
    pub fn failed(&self) -> u64 {
        self.lock().failed
    }

    /// Bytes that drives have answered.
    pub fn bytes_read(&self) -> u64 {
        self.lock().bytes_read
    }

    /// How many calls there were.
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    pub fn set_away(&self, drive: DriveId, is_away: bool) {
        self.lock().drives.get_mut(&drive).unwrap().is_away = is_away;
    }

    /// A drive can't write until it is to again, and says so.
    pub fn set_write_fault(&self, drive: DriveId, fault: Option<Status>) {
        let mut inner = self.lock();
        match fault {
            Some(fault) => inner.write_faults.insert(drive, fault),
            None => inner.write_faults.remove(&drive),
        };
    }

    /// It is not heard that this drive has written, until it is to be again.
    pub fn set_write_lost(&self, drive: Option<DriveId>) {
        self.lock().write_lost = drive;
    }

    /// A drive answers nothing until it is to again: whoever asks it for something waits.
    pub fn set_silent(&self, drive: DriveId, is_silent: bool) {
        let mut silence = self.silence.lock().unwrap();
        match is_silent {
            true => silence.drives.insert(drive),
            false => silence.drives.remove(&drive),
        };
        self.changed.notify_all();
    }

    /// The next such call is held up until it is let go; others that are asked together with it are not.
    pub fn hold(&self, hold: Hold) {
        let mut silence = self.silence.lock().unwrap();
        (silence.hold, silence.holds) = (Some(hold), true);
    }

    /// Lets it go.
    pub fn let_go(&self) {
        let mut silence = self.silence.lock().unwrap();
        (silence.hold, silence.holds) = (None, false);
        self.changed.notify_all();
    }

    /// Which of these is held up, if one is.
    fn to_be_held(&self, questions: &[(DriveId, Ask)]) -> Option<(usize, When)> {
        let mut silence = self.silence.lock().unwrap();
        let Hold { drive, when, which } = silence.hold?;
        let at = questions.iter().position(|(asked, ask)| *asked == drive && which(ask))?;
        silence.hold = None;
        Some((at, when))
    }

    fn wait_until_let_go(&self) {
        let mut silence = self.silence.lock().unwrap();
        silence.waiting += 1;
        self.changed.notify_all();
        silence = self.changed.wait_while(silence, |silence| silence.holds).unwrap();
        silence.waiting -= 1;
    }

    /// Whether somebody waits for a drive that is silent, or for what is held up.
    pub fn makes_somebody_wait(&self) -> bool {
        self.silence.lock().unwrap().waiting > 0
    }

    /// Waits until somebody waits for a drive that is silent, or for what is held up.
    pub fn wait_until_somebody_waits(&self) {
        let silence = self.silence.lock().unwrap();
        drop(self.changed.wait_while(silence, |silence| silence.waiting == 0).unwrap());
    }

    /// Waits while one of these is silent.
    fn wait_for_silent(&self, questions: &[(DriveId, Ask)]) {
        let mut silence = self.silence.lock().unwrap();
        let is_silent = |silence: &mut Silence| {
            questions.iter().any(|(drive, _)| silence.drives.contains(drive))
        };
        if is_silent(&mut silence) {
            silence.waiting += 1;
            self.changed.notify_all();
            silence = self.changed.wait_while(silence, is_silent).unwrap();
            silence.waiting -= 1;
        }
    }

    /// Starts a drive anew: what was not made durable is lost, or not, object by object.
    pub fn restart(&self, drive: DriveId) {
        let mut inner = self.lock();
        let Inner { drives, random, now, .. } = &mut *inner;
        let drive = drives.get_mut(&drive).unwrap();
        drive.instance += 1;
        drive.started = *now;
        for partition in drive.partitions.values_mut() {
            let kept = |object: &ObjectId, random: &mut Random| {
                random.below(3) == 0 && partition.durable.contains_key(object)
            };
            let survivors: Objects = partition
                .objects
                .iter()
                .filter(|(object, _)| kept(object, random))
                .map(|(object, content)| (*object, content.clone()))
                .collect();
            partition.objects = partition.durable.clone();
            partition.objects.extend(survivors);
            partition.objects.values_mut().for_each(|object| object.orders.clear());
            partition.durable = partition.objects.clone();
        }
    }

    /// What a drive tells of itself, if it is there.
    pub fn sign(&self, drive: DriveId) -> Option<Sign> {
        let inner = self.lock();
        let drive = &inner.drives[&drive];
        // Another start for each instance.
        let started = Timestamp(drive.instance);
        (!drive.is_away).then_some(Sign {
            started,
            capacity_bytes: ROOM,
            bad_blocks: drive.bad_blocks,
        })
    }

    /// The component of an object on a drive, as it is.
    pub fn component(&self, drive: DriveId, name: ObjectName) -> Option<Object> {
        let inner = self.lock();
        inner.drives[&drive].partitions.get(&name.partition)?.objects.get(&name.object).cloned()
    }

    /// A block of an object on a drive can't be read any more; whether there is one.
    pub fn spoil(&self, drive: DriveId, name: ObjectName, turn: usize) -> bool {
        let mut inner = self.lock();
        let drive = inner.drives.get_mut(&drive).unwrap();
        let is_spoilt = drive.object(name).is_ok_and(|object| object.spoil(turn));
        if is_spoilt {
            drive.make_durable(name);
        }
        is_spoilt
    }

    /// A drive finds out that it has bad blocks.
    pub fn scrub(&self, drive: DriveId) {
        self.lock().drives.get_mut(&drive).unwrap().bad_blocks += 1;
    }

    /// All objects of a drive's partition.
    pub fn objects(&self, drive: DriveId, partition: PartitionId) -> Vec<ObjectId> {
        let inner = self.lock();
        let found = inner.drives[&drive].partitions.get(&partition);
        found.map(|found| found.objects.keys().copied().collect()).unwrap_or_default()
    }
}

/// How a call is to go wrong.
enum Fault {
    Before,
    After,
    Refused,
}

impl Inner {
    fn fault(&mut self) -> Option<Fault> {
        if let Some((calls, is_done)) = self.dies_after {
            let (left, fault) = match calls {
                u64::MAX => (calls, Some(Fault::Before)),
                0 => (u64::MAX, Some(if is_done { Fault::After } else { Fault::Before })),
                _ => (calls - 1, None),
            };
            self.dies_after = Some((left, is_done));
            return fault;
        }
        if self.fail_one_in == 0 || self.random.below(self.fail_one_in) > 0 {
            return None;
        }
        self.failed += 1;
        Some(match self.random.below(5) {
            0 | 1 => Fault::Before,
            2 => Fault::Refused,
            _ => Fault::After,
        })
    }

    fn epoch(&self, partition: PartitionId) -> u32 {
        self.epochs.get(&partition).copied().unwrap_or(1)
    }

    fn answer(&mut self, drive: DriveId, ask: &Ask) -> Answer {
        self.calls += 1;
        self.now.0 += 1000;
        let away = |maybe_done| ComponentError::Away { reason: "on demand".to_owned(), maybe_done };
        let known = self.drives.get(&drive);
        if known.ok_or_else(|| ComponentError::Refused("no such drive".to_owned()))?.is_away {
            return Err(away(false));
        }
        let fault = self.fault();
        match fault {
            Some(Fault::Before) => return Err(away(false)),
            Some(Fault::Refused) => return Err(ComponentError::Answered(Status::Busy)),
            _ => {}
        }
        let known = &self.drives[&drive].epochs;
        if known.iter().any(|(partition, epoch)| *epoch != self.epoch(*partition)) {
            return Err(ComponentError::Refused("another key".to_owned()));
        }
        let writes = matches!(ask, Ask::Write { .. } | Ask::Fastcopy(_));
        if let Some(fault) = self.write_faults.get(&drive).filter(|_| writes) {
            return Err(ComponentError::Answered(*fault));
        }
        let is_lost = matches!(ask, Ask::Write { .. }) && self.write_lost == Some(drive);
        let (now, random) = (self.now, &mut self.random);
        let drive = self.drives.get_mut(&drive).unwrap();
        let done = drive.perform(ask, now, random).map_err(ComponentError::Answered);
        if let Ok(Told::Read(read)) = &done {
            self.bytes_read += read.data.len() as u64;
        }
        if std::env::var_os("NASD_MODEL_TRACE").is_some() {
            let what: String = format!("{ask:?}").chars().take(240).collect();
            let how: String = format!("{done:?}").chars().take(160).collect();
            eprintln!("{:?} {what} = {how} {}", drive.instance >> 8, fault.is_some());
        }
        if fault.is_some() || is_lost { Err(away(true)) } else { done }
    }
}

impl Drive {
    fn partition(&mut self, partition: PartitionId) -> Result<&mut Partition, Status> {
        self.partitions.get_mut(&partition).ok_or(Status::NoSuchPartition)
    }

    fn object(&mut self, name: ObjectName) -> Result<&mut Object, Status> {
        self.partition(name.partition)?.objects.get_mut(&name.object).ok_or(Status::NoSuchObject)
    }

    fn make_durable(&mut self, name: ObjectName) {
        let Ok(partition) = self.partition(name.partition) else { return };
        match partition.objects.get(&name.object) {
            Some(object) => partition.durable.insert(name.object, object.clone()),
            None => partition.durable.remove(&name.object),
        };
    }

    fn perform(&mut self, ask: &Ask, now: Timestamp, random: &mut Random) -> Result<Told, Status> {
        match ask {
            Ask::Create(wanted) => {
                let (partition, durable) = (wanted.partition, wanted.durable);
                let created = self.create(partition, wanted.object, &wanted.initial, now)?;
                self.durably(ObjectName { partition, object: created.object }, durable);
                Ok(Told::Created(created))
            }
            Ask::Remove(wanted) => {
                self.remove(wanted.name)?;
                self.durably(wanted.name, wanted.durable);
                Ok(Told::Done)
            }
            Ask::Getattr(wanted) => Ok(Told::Attributes(self.object(wanted.name)?.attributes())),
            Ask::Setattr(wanted) => {
                let told = self.setattr(wanted.name, &wanted.changes, now)?;
                self.durably(wanted.name, wanted.durable);
                Ok(Told::Attributes(told))
            }
            Ask::Batch(wanted) => {
                self.partition(wanted.partition)?;
                let mut outcomes = Vec::new();
                for operation in &wanted.operations {
                    let outcome = self.one_of_batch(wanted.partition, operation, now);
                    if let Ok(done) = &outcome {
                        let name = ObjectName { partition: wanted.partition, object: done.object };
                        self.durably(name, wanted.durable);
                    }
                    outcomes.push(outcome.map(|done| {
                        let is_told = operation.tells_attributes(wanted.with_attributes);
                        BatchDone { attributes: done.attributes.filter(|_| is_told), ..done }
                    }));
                }
                Ok(Told::Batched(Batched { instance: self.instance, outcomes }))
            }
            Ask::Flush { partition, objects } => self.flush(*partition, objects),
            Ask::Fastcopy(wanted) => self.fastcopy(wanted.name, wanted.copy, now),
            Ask::PartitionControl(partition) => self.control(*partition),
            Ask::List { partition, from, most } => {
                let objects = &self.partition(*partition)?.objects;
                Ok(Told::Objects(objects.range(from..).map(|(id, _)| *id).take(*most).collect()))
            }
            data => self.transfer(data, now, random),
        }
    }

    /// Of [`Drive::perform`], what is about data.
    fn transfer(&mut self, ask: &Ask, now: Timestamp, random: &mut Random) -> Result<Told, Status> {
        match ask {
            Ask::Blocksrequired(wanted) => {
                let object = self.object(wanted.name)?;
                let blocks = wanted.pieces()?.iter().map(|range| object.blocks_required(range));
                let blocks = blocks.sum();
                Ok(Told::Blocks(BlocksRequired { estimated: blocks, maximum: blocks }))
            }
            Ask::Punch(wanted) => {
                for range in wanted.pieces()?.iter() {
                    let object = self.object(wanted.name)?;
                    object.is_writable(range)?;
                    object.punch(range, now);
                }
                self.durably(wanted.name, wanted.durable);
                Ok(Told::Attributes(self.object(wanted.name)?.attributes()))
            }
            Ask::Seek(wanted) => {
                Ok(Told::Position(self.object(wanted.name)?.seek(wanted.offset, wanted.target)))
            }
            Ask::Copyrange(copy) => self.copy_range(copy, now, random),
            Ask::Read { name, order, regions, length } => {
                let arguments =
                    ReadArguments { name: *name, order: *order, regions: regions.clone() };
                self.read(&arguments, *length)
            }
            Ask::Write { name, order, regions, data, durable } => {
                let arguments = WriteArguments {
                    name: *name,
                    durable: *durable,
                    order: *order,
                    regions: regions.clone(),
                    data_length: data.len(),
                };
                self.write(&arguments, data, now)
            }
            other => unreachable!("{other:?} is not about data"),
        }
    }

    fn durably(&mut self, name: ObjectName, durable: bool) {
        if durable {
            self.make_durable(name);
        }
    }

    fn create(
        &mut self,
        partition: PartitionId,
        object: Option<ObjectId>,
        initial: &SetAttributes,
        now: Timestamp,
    ) -> Result<Created, Status> {
        let made = Object::new(initial, now)?;
        let partition = self.partition(partition)?;
        let object = match object {
            Some(object) if !object.is_named() => return Err(Status::NotPermitted),
            Some(object) => object,
            None => {
                partition.next += 1;
                ObjectId(ObjectId::FIRST_DYNAMIC.0 + partition.next)
            }
        };
        if partition.objects.contains_key(&object) || partition.durable.contains_key(&object) {
            return Err(Status::ObjectExists);
        }
        let attributes = made.attributes();
        partition.objects.insert(object, made);
        Ok(Created { object, attributes })
    }

    fn remove(&mut self, name: ObjectName) -> Result<(), Status> {
        let removed = self.partition(name.partition)?.objects.remove(&name.object);
        removed.map(drop).ok_or(Status::NoSuchObject)
    }

    fn setattr(
        &mut self,
        name: ObjectName,
        changes: &SetAttributes,
        now: Timestamp,
    ) -> Result<Attributes, Status> {
        let object = self.object(name)?;
        object.setattr(changes, now)?;
        Ok(object.attributes())
    }

    fn one_of_batch(
        &mut self,
        partition: PartitionId,
        operation: &BatchOperation,
        now: Timestamp,
    ) -> BatchOutcome {
        let named = |object| ObjectName { partition, object };
        let (object, attributes) = match operation {
            BatchOperation::Create(object, initial) => {
                let created = self.create(partition, *object, initial, now)?;
                (created.object, Some(created.attributes))
            }
            BatchOperation::Remove(object) => {
                self.remove(named(*object))?;
                (*object, None)
            }
            BatchOperation::Setattr(object, changes) => {
                (*object, Some(self.setattr(named(*object), changes, now)?))
            }
            BatchOperation::Getattr(object) => {
                (*object, Some(self.object(named(*object))?.attributes()))
            }
        };
        Ok(BatchDone { object, attributes })
    }

    fn flush(&mut self, partition: PartitionId, objects: &[ObjectId]) -> Result<Told, Status> {
        let whole = self.partition(partition)?;
        if objects.is_empty() {
            whole.durable = whole.objects.clone();
        }
        for object in objects {
            let name = ObjectName { partition, object: *object };
            self.object(name)?;
            self.make_durable(name);
        }
        Ok(Told::Flushed(self.instance))
    }

    fn fastcopy(
        &mut self,
        source: ObjectName,
        copy: Option<ObjectId>,
        now: Timestamp,
    ) -> Result<Told, Status> {
        let object = copy.filter(|object| object.is_named()).ok_or(Status::NotPermitted)?;
        let copied = self.object(source)?.copied(source.object, now);
        let attributes = copied.attributes();
        let partition = self.partition(source.partition)?;
        if partition.objects.contains_key(&object) || partition.durable.contains_key(&object) {
            return Err(Status::ObjectExists);
        }
        partition.objects.insert(object, copied);
        self.make_durable(source);
        self.make_durable(ObjectName { object, ..source });
        Ok(Told::Created(Created { object, attributes }))
    }

    fn control(&mut self, partition: PartitionId) -> Result<Told, Status> {
        let found = self.partition(partition)?;
        let blocks = found.objects.values().map(|object| object.attributes().blocks_used);
        let used_bytes = blocks.sum::<u64>() * BLOCK;
        let quota_bytes = found.bytes;
        let free_bytes =
            if quota_bytes == NO_QUOTA { ROOM } else { quota_bytes.saturating_sub(used_bytes) };
        Ok(Told::Control(PartitionControl {
            summary: PartitionSummary {
                partition,
                quota_bytes,
                used_bytes,
                objects: found.objects.len() as u64,
                state: PartitionState::Ready,
                compression: Compression::None,
                minimum_protection: Protection::NONE,
            },
            free_bytes,
            objects_supported: 1 << 30,
        }))
    }

    fn read(&mut self, arguments: &ReadArguments, length: usize) -> Result<Told, Status> {
        let pieces = arguments.pieces()?;
        assert_eq!(pieces.total_bytes(), length, "a buffer of another length");
        let object = self.object(arguments.name)?;
        let mut data = Vec::new();
        for range in pieces.iter() {
            object.is_readable(range)?;
            let read = object.read(range);
            data.extend_from_slice(&read);
            if (read.len() as u64) < range.length {
                break;
            }
        }
        let (logical_size, fs_data_modify_time) = (object.size(), object.modified());
        Ok(Told::Read(ReadComponent { data, logical_size, fs_data_modify_time }))
    }

    fn write(
        &mut self,
        arguments: &WriteArguments,
        data: &[u8],
        now: Timestamp,
    ) -> Result<Told, Status> {
        let pieces: Vec<ByteRange> = arguments.pieces()?.iter().collect();
        let total: u64 = pieces.iter().map(|piece| piece.length).sum();
        assert_eq!(total, data.len() as u64, "data of another length");
        let (instance, started) = (self.instance, self.started);
        let object = self.object(arguments.name)?;
        pieces.iter().try_for_each(|piece| object.is_writable(*piece))?;
        if let Some(order) = arguments.order {
            in_order(object, order, started, &pieces)?;
        }
        let mut rest = data;
        for piece in &pieces {
            let (these, later) = rest.split_at(piece.length as usize);
            object.write(piece.offset, these, now);
            rest = later;
        }
        let written = Written {
            instance,
            length: total,
            logical_size: object.size(),
            fs_data_modify_time: object.modified(),
        };
        self.durably(arguments.name, arguments.durable);
        Ok(Told::Written(written))
    }

    /// Like a drive it does only so much in one call.
    fn copy_range(
        &mut self,
        copy: &RangeToCopy,
        now: Timestamp,
        random: &mut Random,
    ) -> Result<Told, Status> {
        let source = self.object(copy.source_name())?.clone();
        let length = copy.length.min(source.size().saturating_sub(copy.source_offset));
        let is_same = copy.source == copy.name.object;
        if is_same && copy.source_offset.abs_diff(copy.offset) < length {
            return Err(Status::BadArgument);
        }
        let most = length.min(1 + random.below(8 * BLOCK));
        source.is_readable(ByteRange::new(copy.source_offset, most))?;
        let target = self.object(copy.name)?;
        target.is_writable(ByteRange::new(copy.offset, most))?;
        let mut done = 0;
        while done < most {
            let places = (copy.source_offset + done, copy.offset + done);
            done += target.copy_piece(&source, places, most - done, now);
        }
        let attributes = target.attributes();
        Ok(Told::Copied(Copied { length: done, attributes }))
    }
}

/// Refuses what comes after something later, as drives do.
fn in_order(
    object: &mut Object,
    order: WriteOrder,
    started: Timestamp,
    pieces: &[ByteRange],
) -> Result<(), Status> {
    let is_later = |(range, later): &(ByteRange, WriteOrder)| {
        *later > order && pieces.iter().any(|piece| !piece.intersection(range).is_empty())
    };
    if order.time < started || object.orders.iter().any(is_later) {
        return Err(Status::OutOfOrder);
    }
    object.orders.extend(pieces.iter().map(|piece| (*piece, order)));
    let surplus = object.orders.len().saturating_sub(64);
    object.orders.drain(..surplus);
    Ok(())
}

impl Components for MemoryDrives {
    fn drives(&self) -> Vec<DriveId> {
        self.lock().drives.keys().copied().collect()
    }

    fn address(&self, drive: DriveId) -> String {
        format!("memory:{}", drive.0)
    }

    fn ask(&self, questions: Vec<(DriveId, Ask)>) -> Vec<Answer> {
        self.wait_for_silent(&questions);
        let held = self.to_be_held(&questions);
        let mut inner = self.lock();
        // Nobody may count on an order.
        let mut order: Vec<usize> = (0..questions.len()).collect();
        for at in (1..order.len()).rev() {
            let other = inner.random.index(at + 1);
            order.swap(at, other);
        }
        let mut answers: Vec<Option<Answer>> = questions.iter().map(|_| None).collect();
        order.retain(|at| held.is_none_or(|(last, _)| *at != last));
        for at in order {
            let (drive, ask) = &questions[at];
            answers[at] = Some(inner.answer(*drive, ask));
        }
        drop(inner);
        if let Some((at, when)) = held {
            let (drive, ask) = &questions[at];
            if when == When::Before {
                self.wait_until_let_go();
            }
            answers[at] = Some(self.lock().answer(*drive, ask));
            if when == When::After {
                self.wait_until_let_go();
            }
        }
        answers.into_iter().flatten().collect()
    }

    fn drive_control(&self, _drive: DriveId) -> Result<DriveControl, ComponentError> {
        Err(ComponentError::Refused("a drive in memory has no control object".to_owned()))
    }

    fn make_partition(
        &self,
        drive: DriveId,
        wanted: &ComponentPartition,
    ) -> Result<(), ComponentError> {
        let mut inner = self.lock();
        let now = inner.now;
        let epoch = inner.epoch(wanted.partition);
        let drive = inner.drives.get_mut(&drive).unwrap();
        if drive.is_away {
            return Err(ComponentError::Away { reason: "on demand".to_owned(), maybe_done: false });
        }
        drive.epochs.insert(wanted.partition, epoch);
        let partition = drive.partitions.entry(wanted.partition).or_insert_with(|| {
            let first = Object::new(&SetAttributes::default(), now).unwrap();
            let objects = BTreeMap::from([(ObjectId::FIRST_OBJECT, first)]);
            Partition { bytes: 0, durable: objects.clone(), objects, next: 0 }
        });
        partition.bytes = wanted.bytes.unwrap_or(partition.bytes);
        Ok(())
    }

    fn remove_partition(
        &self,
        drive: DriveId,
        partition: PartitionId,
    ) -> Result<(), ComponentError> {
        self.lock().drives.get_mut(&drive).unwrap().partitions.remove(&partition);
        Ok(())
    }

    fn drive_time(&self, _drive: DriveId) -> Timestamp {
        self.lock().now
    }

    fn minimum_protection(&self, drive: DriveId) -> Protection {
        if drive.0 == 2 { Protection::INTEGRITY_DATA } else { Protection::NONE }
    }

    fn set_epochs(&self, epochs: &BTreeMap<PartitionId, u32>) {
        self.lock().epochs = epochs.clone();
    }

    fn change_key(&self, drive: DriveId, partition: PartitionId) -> Result<(), ComponentError> {
        let mut inner = self.lock();
        let epoch = inner.epoch(partition);
        let drive = inner.drives.get_mut(&drive).unwrap();
        if drive.is_away {
            return Err(ComponentError::Away { reason: "on demand".to_owned(), maybe_done: false });
        }
        drive.epochs.insert(partition, epoch);
        Ok(())
    }

    fn give_up(&self, _drive: DriveId) {}

    fn call_again(&self, _drive: DriveId) {}

    fn pause(&self, duration: Duration) {
        self.pass(duration.as_nanos() as u64);
    }

    fn working_key(&self, drive: DriveId, partition: PartitionId) -> (u32, SecretKey) {
        let epoch = self.lock().epoch(partition);
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&drive.0.to_be_bytes());
        bytes[8..12].copy_from_slice(&partition.0.to_be_bytes());
        bytes[12..16].copy_from_slice(&epoch.to_be_bytes());
        (epoch, SecretKey::new(bytes))
    }
}

/// Keeps a striping manager's state in memory.
#[derive(Debug, Default)]
pub struct MemoryKeeper(Mutex<Option<Vec<u8>>>);

impl Keeper for MemoryKeeper {
    fn load(&self) -> Result<Option<Vec<u8>>, String> {
        Ok(self.0.lock().unwrap().clone())
    }

    fn save(&self, bytes: &[u8]) -> Result<(), String> {
        *self.0.lock().unwrap() = Some(bytes.to_vec());
        Ok(())
    }
}
