//! `comparepartition`: what a partition has that another one has not, or has otherwise.

use nasd_capability::{Access, KeyKind};
use nasd_protocol::Status;
use nasd_protocol::drive::{
    ChangedRange, Comparepartition, ComparepartitionArguments, Comparison, Difference, MadeAppend,
    ObjectState,
};
use nasd_protocol::limits::MAX_COMPARISON_BYTES;
use nasd_store::{ChangedObject, ComparedTo, ObjectImage, RememberedAppend};

use super::{Context, Perform, on_partition};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

/// Bytes of the answer after which it ends: the last object may have as many ranges and appends as one can have.
const PAGE_BYTES: usize = MAX_COMPARISON_BYTES / 3;

/// Of an object without ranges and appends, a range, and an append.
const STATE_BYTES: usize = 400;
const RANGE_BYTES: usize = 20;
const APPEND_BYTES: usize = 36;

impl Perform for Comparepartition {
    fn access(arguments: &ComparepartitionArguments) -> Access<'_> {
        on_partition(arguments.partition, KeyKind::Drive)
    }

    fn perform(
        drive: &Drive,
        arguments: ComparepartitionArguments,
        _context: &Context<'_>,
    ) -> Result<Done<Comparison>, Status> {
        let ComparepartitionArguments { partition, base, from, offset } = arguments;
        if drive.elsewhere().is_some() {
            // What its objects are made of lies in partitions of other drives.
            return Err(Status::NotPermitted);
        }
        // The audit trail is not among them, which nobody but its reader learns of.
        if base.is_some_and(|base| !drive.partitions().contains(&base)) {
            return Err(Status::NoSuchPartition);
        }
        let mut told = 0;
        let mut has_room = |changed: &ChangedObject| {
            told += bytes_of(changed);
            told < PAGE_BYTES
        };
        let from = ComparedTo { object: from, offset };
        let page = drive.store.compare_partition(partition, base, from, &mut has_room);
        let page = page.map_err(|error| status_of(&error))?;
        Ok(Done::plain(Comparison {
            identifiers_end: page.identifiers_end,
            differences: page.objects.into_iter().map(difference).collect(),
            next: page.next.map(|next| (next.object, next.offset)),
        }))
    }
}

/// About how many bytes of the answer an object takes.
fn bytes_of(changed: &ChangedObject) -> usize {
    let appends = changed.image.as_ref().map_or(0, |image| image.appends.len());
    STATE_BYTES + appends * APPEND_BYTES + changed.changed.len() * RANGE_BYTES
}

fn difference(changed: ChangedObject) -> Difference {
    let ranges = changed.changed.into_iter();
    let ranges = ranges.map(|one| ChangedRange { range: one.range, is_hole: one.is_hole });
    Difference { object: changed.object, state: changed.image.map(state), ranges: ranges.collect() }
}

fn state(image: ObjectImage) -> ObjectState {
    let (attributes, appends) = (image.attributes, image.appends.into_iter());
    ObjectState {
        access_control_version: attributes.access_control_version,
        nearby_object: attributes.nearby_object,
        copied_object: attributes.copied_object,
        logical_size: attributes.logical_size,
        blocks_allocated: attributes.blocks_allocated,
        create_time: attributes.create_time,
        data_modify_time: attributes.data_modify_time,
        attribute_modify_time: attributes.attribute_modify_time,
        fs_data_modify_time: attributes.fs_data_modify_time,
        fs_attribute_modify_time: attributes.fs_attribute_modify_time,
        fs_specific: attributes.fs_specific,
        appends: appends
            .map(|RememberedAppend { token, offset, length, time }| MadeAppend {
                token,
                offset,
                length,
                time,
            })
            .collect(),
    }
}
