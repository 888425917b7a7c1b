//! A directory's bytes with names laid over them that are in the journal and may not be home.

use nasd_types::ObjectId;
use nasd_types::limits::BLOCK_BYTES;

use super::{DirectoryBlock, DirectoryError, Entry};
use crate::journal::image::{SlotName, Slots};

/// Lays slots over the bytes of a whole directory. Blocks at the end that hold nothing are cut off.
///
/// # Errors
/// What is wrong with the bytes, or with what shall lie over them.
pub(crate) fn lay_over(
    object: ObjectId,
    data: &mut Vec<u8>,
    slots: &Slots,
) -> Result<(), DirectoryError> {
    let length = data.len() as u64;
    if !data.len().is_multiple_of(BLOCK_BYTES) {
        return Err(DirectoryError::PartialBlock { length });
    }
    for number in numbers(slots) {
        let end = (number as usize + 1) * BLOCK_BYTES;
        while data.len() < end {
            let fresh = DirectoryBlock::empty(object, (data.len() / BLOCK_BYTES) as u32);
            data.extend_from_slice(fresh.bytes());
        }
        let (blocks, _) = data.as_chunks_mut::<BLOCK_BYTES>();
        let bytes = &mut blocks[number as usize];
        let mut block = parse_or_new(object, number, bytes)?;
        lay_over_block(&mut block, number, slots)?;
        bytes.copy_from_slice(block.bytes());
    }
    cut_off(object, data);
    Ok(())
}

/// A block of which something is in the journal. One of zeros was never written, though the object's
/// length was set: all that it shall hold is in the journal.
///
/// # Errors
/// What is wrong with another one.
pub(crate) fn parse_or_new(
    object: ObjectId,
    number: u32,
    bytes: &[u8; BLOCK_BYTES],
) -> Result<DirectoryBlock, DirectoryError> {
    match bytes.iter().all(|byte| *byte == 0) {
        true => Ok(DirectoryBlock::empty(object, number)),
        false => DirectoryBlock::parse(object, number, bytes),
    }
}

/// The blocks that slots are in, each once, in order.
pub(crate) fn numbers(slots: &Slots) -> Vec<u32> {
    let mut numbers: Vec<u32> = slots.keys().map(|(number, _)| *number).collect();
    numbers.dedup();
    numbers
}

/// Lays the slots of one block over it.
///
/// # Errors
/// `BadEntry` if they do not fit.
pub(crate) fn lay_over_block(
    block: &mut DirectoryBlock,
    number: u32,
    slots: &Slots,
) -> Result<(), DirectoryError> {
    let here = slots.range((number, 0)..=(number, u8::MAX));
    let differs = |slot: u8, name: &Option<SlotName>| {
        let found = block.entry(slot);
        found != name.as_ref().map(|name| name.entry())
    };
    let changed: Vec<(u8, &Option<SlotName>)> = here
        .map(|((_, slot), name)| (*slot, name))
        .filter(|(slot, name)| differs(*slot, name))
        .collect();
    // All that goes before all that comes: in between there might be too little room.
    changed.iter().for_each(|(slot, _)| block.remove(*slot));
    for (slot, name) in &changed {
        let fits = name.as_ref().is_none_or(|name| block.insert_at(*slot, &name.entry()));
        if !fits {
            let what = "what the journal says of it does not fit";
            return Err(DirectoryError::BadEntry { block: number, slot: *slot, what });
        }
    }
    if !changed.is_empty() {
        block.advance_revision();
    }
    Ok(())
}

fn cut_off(object: ObjectId, data: &mut Vec<u8>) {
    while let Some(start) = data.len().checked_sub(BLOCK_BYTES) {
        let number = (start / BLOCK_BYTES) as u32;
        let (blocks, _) = data[start..].as_chunks::<BLOCK_BYTES>();
        let last = blocks.first().and_then(|last| DirectoryBlock::parse(object, number, last).ok());
        if last.is_none_or(|last| !last.is_empty()) {
            return;
        }
        data.truncate(start);
    }
}

impl SlotName {
    /// As an entry of a block.
    pub(crate) fn entry(&self) -> Entry<'_> {
        Entry { name: &self.name, handle: self.handle, file_type: self.file_type }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_protocol::manager::{FileHandle, FileType};
    use nasd_types::{DriveId, PartitionId};

    use crate::directory::{Directory, parse_directory};
    use crate::journal::{Image, Step};

    const OBJECT: ObjectId = ObjectId(64);
    const DIRECTORY: FileHandle =
        FileHandle { drive: DriveId(1), partition: PartitionId(1), object: OBJECT };

    /// Directories after each of many changes, and the steps that led there.
    fn history(seed: u64) -> (Vec<Vec<u8>>, Vec<Vec<Step>>) {
        let mut directory = Directory::empty(OBJECT);
        let (mut states, mut steps) = (vec![Vec::new()], Vec::new());
        let mut random = seed;
        for turn in 0..400u64 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let number = (random >> 33) % 60;
            let name = format!("{}{number}", "n".repeat((number * 5 % 240) as usize));
            let handle = FileHandle { object: ObjectId(turn + 100), ..DIRECTORY };
            let entry = Entry { name: name.as_bytes(), handle, file_type: FileType::Regular };
            let change = match directory.find(name.as_bytes()) {
                None => directory.plan_insert(&entry),
                Some(_) if random >> 20 & 3 == 0 => directory.plan_replace(&entry),
                Some(_) => directory.plan_remove(name.as_bytes()),
            }
            .unwrap();
            steps.push(directory.steps_of(DIRECTORY, &change));
            directory.apply(change);
            states.push(directory.raw_blocks().flat_map(|block| *block.bytes()).collect());
        }
        (states, steps)
    }

    fn names(data: &[u8]) -> Vec<(u64, Vec<u8>, u64)> {
        let listed = parse_directory(OBJECT, data).unwrap().into_iter();
        listed.map(|entry| (entry.cookie, entry.name, entry.handle.object.0)).collect()
    }

    /// Whatever of a journal is home already: laid over it, it gives the last state, with the
    /// same cookies.
    #[test]
    fn any_state_under_the_journal_gives_the_newest() {
        for seed in 1..4 {
            let (states, steps) = history(seed);
            let mut image = Image::default();
            steps.iter().flatten().for_each(|step| image.apply(step, 0));
            let slots = &image.directories[&DIRECTORY].slots;
            for state in &states {
                let mut data = state.clone();
                lay_over(OBJECT, &mut data, slots).unwrap();
                assert_eq!(names(&data), names(&states[states.len() - 1]));
            }
            // Blocks of different states: what was being brought home when the drive died.
            let mut mixed = states[200].clone();
            for (number, block) in states[300].chunks(BLOCK_BYTES).enumerate() {
                let at = number * BLOCK_BYTES;
                if number % 2 == 0 && at < mixed.len() {
                    mixed[at..at + BLOCK_BYTES].copy_from_slice(block);
                }
            }
            lay_over(OBJECT, &mut mixed, slots).unwrap();
            assert_eq!(names(&mixed), names(&states[states.len() - 1]));
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let name = |length: usize| SlotName {
            handle: DIRECTORY,
            file_type: FileType::Regular,
            name: vec![b'n'; length],
        };
        let slots: Slots = (0..17).map(|slot| ((0, slot), Some(name(230)))).collect();
        assert!(lay_over(OBJECT, &mut Vec::new(), &slots).is_err());
        assert!(lay_over(OBJECT, &mut vec![0; 5], &Slots::new()).is_err());
    }
}
