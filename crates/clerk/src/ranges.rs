//! Bytes that go from one file to another at their drive, without a trip through this client.

use std::sync::Arc;

use nasd_protocol::Status;

use crate::ClerkError;
use crate::core::Core;
use crate::file::FileState;
use crate::grants::Slot;
use crate::wire::{Copied, RangeToCopy};

/// A file, by whose capability it is reached, and from which byte on.
#[derive(Clone, Copy)]
pub(crate) struct End<'a> {
    pub(crate) file: &'a Arc<FileState>,
    pub(crate) slot: &'a Arc<Slot>,
    pub(crate) offset: u64,
}

/// Copies at most `length` bytes, in order with what is read and written here. Tells how many: none only
/// at the source's end.
pub(crate) fn copy(
    core: &Arc<Core>,
    source: End<'_>,
    target: End<'_>,
    length: u64,
) -> Result<u64, ClerkError> {
    let (from, to) = (source.file.handle, target.file.handle);
    if (from.drive, from.partition) != (to.drive, to.partition) {
        return Err(ClerkError::Apart);
    }
    // Durable, so that a drive that is started anew has it; a failure is kept for those who wrote.
    if let Err(ClerkError::Interrupted) = source.file.sync(core) {
        return Err(ClerkError::Interrupted);
    }
    let length = match core.promises() {
        None => length,
        // Room is asked for what there is.
        Some(_) => {
            let there = core.with_grant(source.slot, |from| core.objects.getattr(from))?;
            length.min(there.logical_size.saturating_sub(source.offset))
        }
    };
    if length == 0 {
        return Ok(0);
    }
    let range = RangeToCopy {
        name: to.name(),
        offset: target.offset,
        length,
        source: from.object,
        source_offset: source.offset,
    };
    let once = || {
        core.with_grant_to_change(target.slot, |to| {
            core.with_grant(source.slot, |from| core.objects.copy_range(to, from, &range))
        })
    };
    let with_room = || match once() {
        Err(ClerkError::Drive(Status::NoSpace)) if core.reclaim_space() => once(),
        outcome => outcome,
    };
    let (caller, end) = (&target.slot.caller, target.offset.saturating_add(length));
    let store = || target.file.storing(core, caller, end, with_room);
    let copied = target.file.put_copied(core, store);
    core.expire(to);
    let Copied { length, .. } = copied?;
    Ok(length)
}
