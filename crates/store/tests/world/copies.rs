//! Copies of ranges of objects, of a store and of its model.

use std::sync::Arc;

use nasd_store::{CopyRange, Store, StoreError};
use nasd_types::{ObjectName, Timestamp};

use super::World;
use super::history::Content;
use crate::common::*;

impl World {
    /// Copies a range, as somebody who goes on until it is copied: each part may be durable before the
    /// next one is asked for.
    pub fn copy_range(&mut self, store: &Store) -> Result<(), StoreError> {
        let (Some(source), Some(target)) = (self.object(), self.object()) else { return Ok(()) };
        if source.partition != target.partition {
            return Ok(());
        }
        let mut copy = self.some_range(source, target);
        while copy.length > 0 {
            let length = copy.length;
            let Some(copied) = self.copy_part(store, &copy)? else { break };
            let left = self.histories().now(source).bytes.len() as u64;
            assert_eq!(copied == 0, left <= copy.source_offset, "{copied} of {copy:?}, {left}");
            assert!(copied <= length, "{copied} of {copy:?}");
            if copied == 0 {
                break;
            }
            copy.source_offset += copied;
            copy.target_offset += copied;
            copy.length -= copied;
        }
        self.compare(store, source)?;
        self.compare(store, target)
    }

    fn some_range(&mut self, source: ObjectName, target: ObjectName) -> CopyRange {
        let size = self.histories().now(source).bytes.len() as u64;
        let largest = self.mix.largest;
        let mut source_offset = self.random.below(size + 1);
        let mut target_offset = self.random.below(largest);
        let mut length = self.random.below(120_000);
        match self.random.below(6) {
            0 => (source_offset, target_offset) = (0, 0),
            1 => {
                source_offset = source_offset / BLOCK * BLOCK;
                target_offset = target_offset / BLOCK * BLOCK;
                length = length / BLOCK * BLOCK;
            }
            // Frames, which compressed blocks lie in.
            2 => {
                source_offset = source_offset / 65536 * 65536;
                target_offset = target_offset / 65536 * 65536;
            }
            3 => target_offset = target_offset / BLOCK * BLOCK + source_offset % BLOCK,
            4 => length %= 5000,
            _ => {}
        }
        let length = length.min(largest.saturating_sub(target_offset));
        let (partition, source, target) = (source.partition, source.object, target.object);
        CopyRange { partition, source, source_offset, target, target_offset, length }
    }

    /// One call; `None` where it was refused, as it had to be or for lack of room.
    fn copy_part(&mut self, store: &Store, copy: &CopyRange) -> Result<Option<u64>, StoreError> {
        let partition = copy.partition;
        let source = ObjectName { partition, object: copy.source };
        let target = ObjectName { partition, object: copy.target };
        let (from, before) = {
            let histories = self.histories();
            (histories.now(source).clone(), histories.now(target).clone())
        };
        let end = (from.bytes.len() as u64).min(copy.source_offset + copy.length);
        let length = end.saturating_sub(copy.source_offset);
        let overlaps = source == target && copy.source_offset.abs_diff(copy.target_offset) < length;
        // What goes before may be durable without what follows.
        let lengths = if overlaps { Vec::new() } else { parts_of(copy, &before, length) };
        let states = |up_to: u64| {
            let lengths = lengths.iter().copied().filter(move |length| *length <= up_to);
            lengths.map(|length| after(&before, &from, copy, length)).collect::<Vec<_>>()
        };
        let all = states(length);
        let count = all.len();
        all.into_iter().for_each(|state| self.histories().change(target, Some(state)));
        let made = store.copy_range(copy, Timestamp(9));
        let made = match made {
            Err(StoreError::Overlapping(name)) => {
                assert!(overlaps && name == source, "{copy:?}");
                return Ok(None);
            }
            Err(error) => match self.allowed(Err(error)) {
                Ok(refused) => refused,
                Err(error) => {
                    // Any of it may be there.
                    self.histories().unsure.insert(target);
                    return Err(error);
                }
            },
            Ok(copied) => Some(copied),
        };
        let mut histories = self.histories();
        let known = histories.objects.get_mut(&target).unwrap();
        known.truncate(known.len() - count);
        let copied = made.unwrap_or(0);
        assert!(!overlaps && copied <= length, "{copied} of {copy:?}");
        if copied > 0 {
            states(copied - 1).into_iter().for_each(|state| histories.change(target, Some(state)));
            histories.change(target, Some(after(&before, &from, copy, copied)));
        }
        Ok(made)
    }
}

/// The target when so many bytes are copied.
fn after(before: &Content, from: &Content, copy: &CopyRange, length: u64) -> Content {
    let mut bytes = before.bytes.to_vec();
    let start = copy.target_offset as usize;
    let end = start + length as usize;
    bytes.resize(bytes.len().max(end), 0);
    let copied = &from.bytes[copy.source_offset as usize..][..length as usize];
    bytes[start..end].copy_from_slice(copied);
    Content { bytes: Arc::new(bytes), ..before.clone() }
}

/// How many bytes may be copied with what follows missing: up to where a block of the source ends, or the
/// target did.
fn parts_of(copy: &CopyRange, before: &Content, length: u64) -> Vec<u64> {
    let first = BLOCK - copy.source_offset % BLOCK;
    let mut parts: Vec<u64> = (first..length).step_by(BLOCK as usize).collect();
    let size = before.bytes.len() as u64;
    parts.extend(size.checked_sub(copy.target_offset).filter(|part| (1..length).contains(part)));
    parts.extend((length > 0).then_some(length));
    parts.sort_unstable();
    parts.dedup();
    parts
}
