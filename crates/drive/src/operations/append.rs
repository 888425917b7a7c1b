//! `append`: data at the end of an object, wherever that is when the drive comes to it, and once however
//! often the same append is asked for. How the data come is told in `write`.
//!
//! A capability's region holds for what is written like for any write; where that is, is known only
//! when the object is locked, so that the region is looked at then, by the store.

use nasd_protocol::Status;
use nasd_protocol::drive::{AppendArguments, Appended};
use nasd_store::{Append, AppendDone};
use nasd_types::Timestamp;

use super::refuse_synthetic;
use crate::Drive;
use crate::authority::Grant;
use crate::incoming::Buffer;
use crate::status::status_of;

/// A client's measure of time and the drive's may differ by so much for each one that passes: what
/// may be too old to be known is refused rather than done twice.
const AGE_DOUBT: u64 = 2;

/// Appends the data. The call is authorized, but for where the object ends.
pub(super) fn apply(
    drive: &Drive,
    arguments: &AppendArguments,
    buffer: &Buffer,
    grant: &Grant,
    now: Timestamp,
) -> Result<Appended, Status> {
    if grant.must_not_be_done {
        return Err(Status::ReadOnly);
    }
    let &AppendArguments { name, token, age_ns, data_length } = arguments;
    refuse_synthetic(name)?;
    if data_length == 0 {
        return Err(Status::BadArgument);
    }
    let since = Timestamp(now.0.saturating_sub(age_ns.saturating_mul(AGE_DOUBT)));
    let mut joined;
    let bytes: &[u8] = match buffer {
        Buffer::Small(bytes) => bytes,
        Buffer::InPlace(frames) | Buffer::Joined(frames) => {
            joined = drive.buffers.take(data_length);
            let mut rest = &mut joined[..];
            for slice in frames.slices() {
                let (place, others) = rest.split_at_mut(slice.len().min(rest.len()));
                place.copy_from_slice(&slice[..place.len()]);
                rest = others;
            }
            &joined
        }
    };
    let append = Append {
        bytes,
        token,
        since: (age_ns > 0).then_some(since),
        within: grant.authorized.region(),
    };
    if let Some(elsewhere) = drive.elsewhere() {
        let appended = elsewhere.append(name, &append, now)?;
        drive.counters.written.add(grant.holder, data_length);
        return Ok(appended);
    }
    let done = drive.store.append(name, &append, now).map_err(|error| status_of(&error))?;
    let AppendDone { offset, attributes } = done;
    drive.counters.written.add(grant.holder, data_length);
    Ok(Appended { offset, attributes })
}
