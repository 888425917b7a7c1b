//! What the store's errors are on the wire.

use nasd_protocol::Status;
use nasd_store::StoreError;

/// The status of a failure. What is the caller's affair is only answered; what is the drive's or
/// the medium's is logged here too, which is the one place that all of it passes.
pub(crate) fn status_of(error: &StoreError) -> Status {
    let status = match error {
        StoreError::NoSuchPartition(_) => Status::NoSuchPartition,
        StoreError::PartitionExists(_) => Status::PartitionExists,
        StoreError::NoSuchObject(_) => Status::NoSuchObject,
        StoreError::ObjectExists(_) => Status::ObjectExists,
        StoreError::NotToBeChosen(_) => Status::BadArgument,
        StoreError::VersionFalls { .. }
        | StoreError::VersionStays { .. }
        | StoreError::Overlapping(_) => Status::BadArgument,
        StoreError::TooLarge { .. } => Status::TooLarge,
        StoreError::OutOfRegion { .. } => Status::RefusedRegion,
        StoreError::Forgotten => Status::Forgotten,
        StoreError::NoSpace(_) => Status::NoSpace,
        StoreError::Busy => Status::Busy,
        StoreError::Corrupt { .. } | StoreError::Damaged(_) => Status::Corrupt,
        StoreError::Medium(_) => Status::MediumError,
        StoreError::ReadOnly(_) => Status::ReadOnly,
        _ => Status::DriveFault,
    };
    match status {
        Status::Corrupt | Status::MediumError | Status::ReadOnly | Status::DriveFault => {
            tracing::error!(%error, "an operation failed");
        }
        Status::NoSpace | Status::Busy => tracing::debug!(%error, "an operation failed"),
        _ => {}
    }
    status
}
