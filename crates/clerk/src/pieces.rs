//! Reading several pieces of an object at once.

use nasd_types::{ByteRange, Timestamp};

use crate::wire::ReadOutcome;

/// How many bytes some pieces have.
pub(crate) fn bytes_of(pieces: &[ByteRange]) -> usize {
    pieces.iter().map(|piece| piece.length as usize).sum()
}

/// Reads pieces by a read for each.
pub(crate) fn read_one_by_one<E>(
    pieces: &[ByteRange],
    mut read: impl FnMut(u64, &mut [u8]) -> Result<ReadOutcome, E>,
) -> Result<(ReadOutcome, Vec<u8>), E> {
    let mut into = vec![0; bytes_of(pieces)];
    let mut filled = 0;
    let mut whole: Option<ReadOutcome> = None;
    for piece in pieces {
        let outcome = read(piece.offset, &mut into[filled..filled + piece.length as usize])?;
        filled += outcome.length;
        // Bytes of a file that changes meanwhile are as old as the oldest of them.
        let earliest = whole.map_or(outcome.fs_data_modify_time, |whole| {
            whole.fs_data_modify_time.min(outcome.fs_data_modify_time)
        });
        whole = Some(ReadOutcome { length: filled, fs_data_modify_time: earliest, ..outcome });
        if (outcome.length as u64) < piece.length {
            break;
        }
    }
    let nothing = ReadOutcome { length: 0, logical_size: 0, fs_data_modify_time: Timestamp(0) };
    Ok((whole.unwrap_or(nothing), into))
}
