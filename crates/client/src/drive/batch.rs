//! Many changes of objects in one call.

use nasd_protocol::Status;
use nasd_protocol::drive::{Batch, BatchArguments, BatchDone, BatchOperation, Batched};

use super::DriveClient;
use super::exchange::Request;
use crate::{Authority, ClientError};

impl DriveClient {
    /// Does all operations of a batch in order, each for itself, and answers how each ended. As many as
    /// [`BatchArguments::fitting`] tells go into one. By a key of the partition, or the drive key; not by a capability.
    ///
    /// A batch that makes nothing, but under chosen identifiers, is sent again where a connection breaks, and an
    /// object that is missing then counts as removed, one that exists as made, without attributes. A batch
    /// that makes other objects is not sent again once it may have been executed:
    /// how many objects it has made, and whether it has done the rest, its sender has to find out,
    /// or to be ready for ([`ClientError::may_have_run`]; [`DriveClient::objects`] lists a partition).
    ///
    /// # Errors
    ///
    /// Any [`ClientError`] but those of the file manager; of a failed flush, after all was done in the
    /// memory of the drive. What one operation fails with is in its outcome.
    pub fn batch(
        &self,
        authority: &Authority,
        arguments: &BatchArguments,
    ) -> Result<Batched, ClientError> {
        let BatchArguments { operations, with_attributes, .. } = arguments;
        let limit = BatchArguments::fitting(operations, *with_attributes);
        if operations.len() > limit {
            return Err(ClientError::TooLarge { amount: operations.len(), limit });
        }
        let makes = |each: &BatchOperation| matches!(each, BatchOperation::Create(None, _));
        let request = Request::plain::<Batch>(arguments).once(operations.iter().any(makes));
        let answer = match self.call::<Batch>(authority, &request, &mut []) {
            Ok(answer) => answer,
            Err(failure) => return Err(failure.of_change()),
        };
        let mut batched = answer.reply;
        if batched.outcomes.len() != operations.len() {
            return Err(self.shared.protocol_error("outcomes of another batch"));
        }
        if answer.ran_before {
            count_as_done(operations, &mut batched);
        }
        Ok(batched)
    }
}

/// What an earlier try may have removed is gone, as was asked for; and what it may have made under a chosen
/// identifier is there.
fn count_as_done(operations: &[BatchOperation], batched: &mut Batched) {
    for (operation, outcome) in operations.iter().zip(&mut batched.outcomes) {
        match (operation, &outcome) {
            (BatchOperation::Remove(object), Err(Status::NoSuchObject))
            | (BatchOperation::Create(Some(object), _), Err(Status::ObjectExists)) => {
                *outcome = Ok(BatchDone { object: *object, attributes: None });
            }
            _ => {}
        }
    }
}
