//! A copy of the device for those who want to look at it: nothing changes by that, whoever writes it.

use super::holders::{HolderError, Holders, Membership, Part};
use super::start::read_record;
use super::{OwnError, PIECE_BYTES, said};

/// What takes pieces, each with its offset.
pub type Out<'a> = &'a mut dyn FnMut(u64, &[u8]) -> Result<(), OwnError>;

/// Gives out what a current copy of the device has, each piece with its offset; how many bytes the device has.
///
/// # Errors
///
/// `NoCopy` if none can be read; what `out` says.
pub fn export(
    holders: &dyn Holders,
    membership: &Membership,
    out: Out<'_>,
) -> Result<u64, OwnError> {
    let mut failed = Vec::new();
    for drive in &membership.copies {
        let device_bytes = match read_record(holders, *drive) {
            Ok(record) => record.device_bytes,
            Err(error) => {
                failed.push((*drive, error));
                continue;
            }
        };
        let of_drive = |error: HolderError| OwnError::Drive(*drive, error);
        let mut at = 0;
        while let Some(next) = holders.next_data(*drive, at).map_err(of_drive)? {
            if next >= device_bytes {
                break;
            }
            let offset = next.max(at) / PIECE_BYTES * PIECE_BYTES;
            let length = PIECE_BYTES.min(device_bytes - offset);
            let read = holders.read(*drive, Part::Device, offset, length as usize);
            out(offset, &read.map_err(of_drive)?)?;
            at = offset + length;
        }
        return Ok(device_bytes);
    }
    Err(OwnError::NoCopy(said(&failed)))
}
