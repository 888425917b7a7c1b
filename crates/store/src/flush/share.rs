//! Ranges of blocks that a flush lets one object share with another.
//!
//! A flush that takes either of the two in the same moment leaves the range for another one: what
//! is shared is what the tree has, and what the object had there is dropped when the tree has the
//! change (see `settle`). Until then whoever reads the object finds what it had.

use std::sync::{Arc, Mutex, PoisonError};

use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{ObjectId, ObjectName};

use super::Request;
use super::batch::Taken;
use crate::frames::FRAME_BLOCKS;
use crate::log::{Change, Share};
use crate::metadata::record::{Extent, ObjectRecord};
use crate::{Store, StoreError};

/// What became of sharing a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shared {
    /// So many blocks are shared, which may be fewer than were asked for.
    Blocks(u64),
    /// The objects were changing; another try may succeed.
    Busy,
    /// These can't be shared: they have to be copied.
    Refused,
}

/// A range to share, and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct ShareRange {
    pub(crate) share: Share,
    /// Extents of both objects together that records were promised for.
    pub(crate) extents: usize,
    outcome: Arc<Mutex<Shared>>,
}

impl ShareRange {
    pub(crate) fn new(share: Share, extents: usize) -> ShareRange {
        ShareRange { share, extents, outcome: Arc::new(Mutex::new(Shared::Busy)) }
    }

    /// What the last flush that was asked made of it.
    pub(crate) fn outcome(&self) -> Shared {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, shared: Shared) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = shared;
    }

    fn source(&self) -> ObjectName {
        ObjectName { object: self.share.source, ..self.share.name }
    }
}

/// As many of so many blocks as end in front of the first compressed extent that is cut, or of the first
/// one at all.
fn uncut(extents: &[Extent], first: u64, blocks: u64, any: bool) -> u64 {
    let behind = first + blocks;
    let is_cut = |extent: &&Extent| {
        let reaches_out = extent.logical < first || extent.end() > behind;
        extent.is_packed() && extent.logical < behind && (any || reaches_out)
    };
    let cut = extents.iter().find(is_cut);
    cut.map_or(blocks, |extent| extent.logical.max(first) - first)
}

impl Store {
    /// The changes that share what the request asks for.
    pub(super) fn share_changes(
        &self,
        request: &Request,
        taken: &[Taken],
    ) -> Result<Vec<Change>, StoreError> {
        let mut busy: Vec<ObjectName> = taken.iter().map(|one| one.object.name).collect();
        busy.extend(request.copies.iter().map(|copy| copy.source));
        let mut changes = Vec::new();
        for range in &request.shares {
            let names = [range.source(), range.share.name];
            if !request.changes.is_empty() || names.iter().any(|name| busy.contains(name)) {
                range.note(Shared::Busy);
                continue;
            }
            let share = self.what_to_share(range)?;
            range.note(share.map_or(Shared::Refused, |share| Shared::Blocks(share.blocks)));
            if let Some(share) = share {
                changes.push(Change::Share(Box::new(share)));
                busy.extend(names);
            }
        }
        Ok(changes)
    }

    /// As much of a range as can be shared, if any of it can.
    fn what_to_share(&self, range: &ShareRange) -> Result<Option<Share>, StoreError> {
        let share = range.share;
        let records = (self.metadata.object(range.source())?, self.metadata.object(share.name)?);
        let (Some(source), Some(target)) = records else {
            return Ok(None);
        };
        let of_two = |one: &ObjectRecord, other: &ObjectRecord| {
            one.family != ObjectId(0) && other.family != ObjectId(0) && one.family != other.family
        };
        if source.small || target.small || of_two(&source, &target) {
            return Ok(None);
        }
        let whole = (source.logical_size / BLOCK_BYTES as u64).saturating_sub(share.from);
        let blocks = share.blocks.min(whole);
        let found = self.metadata.extents(range.source(), share.from, share.from + blocks)?;
        let replaced = self.metadata.extents(share.name, share.to, share.to + blocks)?;
        if found.len() + replaced.len() > range.extents {
            return Ok(None);
        }
        // The tree tells the same version of the data as memory does, or an open would fall back to an earlier one.
        let time = share.time.max(target.data_modify_time.plus_ns(1));
        // What is compressed is shared, and dropped, as a whole.
        // It also lies within as many blocks as a frame has.
        let frame = FRAME_BLOCKS as u64;
        let moves = share.from % frame != share.to % frame;
        let mut blocks = blocks;
        loop {
            let of_source = uncut(&found, share.from, blocks, moves);
            let fits = uncut(&replaced, share.to, of_source, false);
            if fits == blocks {
                return Ok((blocks > 0).then_some(Share { blocks, time, ..share }));
            }
            // What is left out may cut another one.
            blocks = fits;
        }
    }

    /// The tree has what was shared: what the object had there is dropped, also what was written while
    /// that was under way.
    pub(super) fn let_shared(&self, share: &Share) {
        let Ok(object) = self.table.get(share.name) else {
            return;
        };
        let mut body = object.write();
        if body.removed {
            return;
        }
        self.drop_cached(&object, &mut body, share.to, share.end());
        body.clears.remove(share.to, share.end());
        body.mapped_end = body.mapped_end.max(share.end());
        body.record.note_write(share.end() * BLOCK_BYTES as u64, share.time);
        let charge = body.charge_with(0);
        self.settle_charge(&object, &mut body, charge);
    }
}
