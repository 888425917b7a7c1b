//! `batch`: several creates, removes, setattrs and getattrs in one call, made durable by one flush.

use nasd_capability::{Access, KeyKinds, Target};
use nasd_protocol::Status;
use nasd_protocol::drive::{
    Batch, BatchArguments, BatchDone, BatchKind, BatchOperation, BatchOutcome, Batched, Procedure,
};
use nasd_protocol::limits::MAX_BATCH_BYTES;
use nasd_types::{Attributes, ObjectId, ObjectName, PartitionId, Rights, SetAttributes};

use super::{Context, Perform, check_settable, refuse_synthetic, refuse_well_known};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

impl Perform for Batch {
    fn access(arguments: &BatchArguments) -> Access<'_> {
        Access {
            target: Target::Partition(arguments.partition),
            rights: Rights::empty(),
            bytes: None,
            keys: KeyKinds::PARTITION,
        }
    }

    fn perform(
        drive: &Drive,
        arguments: BatchArguments,
        context: &Context<'_>,
    ) -> Result<Done<Batched>, Status> {
        // What can't be answered is not begun.
        if arguments.answer_bytes() > MAX_BATCH_BYTES {
            return Err(Status::TooLarge);
        }
        if !drive.ring.read().has_partition(arguments.partition) {
            return Err(Status::NoSuchPartition);
        }
        if let Some(elsewhere) = drive.elsewhere() {
            let batched = elsewhere.batch(&arguments)?;
            note(drive, context, &arguments.operations, &batched.outcomes);
            return Ok(Done::plain(batched));
        }
        let BatchArguments { partition, durable, with_attributes, operations } = arguments;
        let mut outcomes: Vec<BatchOutcome> = operations
            .iter()
            .map(|operation| {
                let (object, attributes) = one(drive, partition, operation, context)?;
                let told = attributes.filter(|_| operation.tells_attributes(with_attributes));
                Ok(BatchDone { object, attributes: told })
            })
            .collect();
        note(drive, context, &operations, &outcomes);
        if durable {
            flush(drive, partition, &operations, &mut outcomes)?;
        }
        Ok(Done::plain(Batched { instance: drive.instance, outcomes }))
    }
}

/// Does one of the operations; tells its object, and its attributes if there still are any.
fn one(
    drive: &Drive,
    partition: PartitionId,
    operation: &BatchOperation,
    context: &Context<'_>,
) -> Result<(ObjectId, Option<Attributes>), Status> {
    let name = |object: ObjectId| ObjectName { partition, object };
    let store = &drive.store;
    let done = match operation {
        BatchOperation::Create(chosen, initial) => {
            check_settable(initial)?;
            let created = store.create_as(partition, *chosen, initial, context.now);
            created.map(|(object, attributes)| (object, Some(attributes)))
        }
        BatchOperation::Remove(object) => {
            refuse_well_known(name(*object))?;
            store.remove(name(*object)).map(|()| (*object, None))
        }
        BatchOperation::Setattr(object, changes) => {
            refuse_synthetic(name(*object))?;
            check_settable(changes)?;
            let changed = store.setattr(name(*object), changes, context.now);
            changed.map(|attributes| (*object, Some(attributes)))
        }
        BatchOperation::Getattr(object) => {
            refuse_synthetic(name(*object))?;
            store.getattr(name(*object)).map(|attributes| (*object, Some(attributes)))
        }
    };
    done.map_err(|error| status_of(&error))
}

/// Makes all that was changed durable at once. Where that frees blocks, attributes are told as they are then.
fn flush(
    drive: &Drive,
    partition: PartitionId,
    operations: &[BatchOperation],
    outcomes: &mut [BatchOutcome],
) -> Result<(), Status> {
    let changed = operations.iter().zip(outcomes.iter());
    let changed = changed.filter(|(operation, _)| operation.kind() != BatchKind::Getattr);
    let names: Vec<ObjectName> = changed
        .filter_map(|(_, outcome)| outcome.as_ref().ok())
        .map(|done| ObjectName { partition, object: done.object })
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    drive.flush(&names)?;
    for (operation, outcome) in operations.iter().zip(outcomes) {
        let (BatchOperation::Setattr(object, changes), Ok(done)) = (operation, outcome) else {
            continue;
        };
        if let (Some(_), SetAttributes { logical_size: Some(_), .. }) = (&done.attributes, changes)
        {
            let name = ObjectName { partition, object: *object };
            done.attributes = drive.store.getattr(name).ok().or(done.attributes.take());
        }
    }
    Ok(())
}

/// Tells the audit trail how many of each kind were done, and how many failed how.
fn note(
    drive: &Drive,
    context: &Context<'_>,
    operations: &[BatchOperation],
    outcomes: &[BatchOutcome],
) {
    // Kinds and statuses are few.
    let mut parts: Vec<((BatchKind, u32), Option<ObjectId>, u64)> = Vec::new();
    for (operation, outcome) in operations.iter().zip(outcomes) {
        let (object, status) = match outcome {
            Ok(done) => (Some(done.object), nasd_protocol::result::OK),
            Err(status) => (operation.object(), u32::from(*status)),
        };
        let kind = (operation.kind(), status);
        match parts.iter_mut().find(|(known, ..)| *known == kind) {
            Some((_, known, count)) => {
                *known = known.filter(|known| Some(*known) == object);
                *count += 1;
            }
            None => parts.push((kind, object, 1)),
        }
    }
    let grant = context.grant;
    for ((kind, status), object, count) in parts {
        let procedure = match kind {
            BatchKind::Create => Procedure::Create,
            BatchKind::Remove => Procedure::Remove,
            BatchKind::Setattr => Procedure::Setattr,
            BatchKind::Getattr => Procedure::Getattr,
        };
        let part = (procedure, object, status);
        let (proved, received) = (grant.shows_who_asks, grant.received);
        drive.audit.note_parts(&grant.subject, part, count, proved, received);
    }
}
