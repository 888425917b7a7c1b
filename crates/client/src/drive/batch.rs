//! Many changes of objects in one call.

use nasd_protocol::Status;
use nasd_protocol::drive::{Batch, BatchArguments, BatchDone, BatchOperation, Batched};
use nasd_protocol::limits::MAX_FLUSH_OBJECTS;
use nasd_types::ObjectId;

use super::DriveClient;
use super::exchange::Request;
use crate::{Authority, ClientError};

impl DriveClient {
    /// Does all operations of a batch in order, each for itself, and answers how each ended. As many as
    /// [`BatchArguments::fitting`] tells go into one. By a key of the partition, or the drive key; not by a capability.
    ///
    /// A batch that makes nothing but objects of chosen identifiers is sent again where a connection breaks. Then
    /// an object that is missing counts as removed, and one that exists as made, without attributes. A batch that
    /// makes other objects is not sent again once it may have been executed: how many objects it has made, and
    /// whether it has done the rest, its sender has to find out, or to be ready for
    /// ([`ClientError::may_have_run`]; [`DriveClient::objects`] lists a partition).
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
            let made = count_as_done(operations, &mut batched);
            if arguments.durable {
                // Whoever found them there has not flushed them.
                self.flush_made(authority, arguments, &made)?;
            }
        }
        Ok(batched)
    }

    fn flush_made(
        &self,
        authority: &Authority,
        arguments: &BatchArguments,
        made: &[ObjectId],
    ) -> Result<(), ClientError> {
        for objects in made.chunks(MAX_FLUSH_OBJECTS) {
            let flushed = self.flush(authority, arguments.partition, objects);
            flushed.map_err(|error| ClientError::Unsettled(Box::new(error)))?;
        }
        Ok(())
    }
}

/// What an earlier try may have removed is gone, as was asked for; and what it may have made under a chosen
/// identifier is there. Which were made so.
fn count_as_done(operations: &[BatchOperation], batched: &mut Batched) -> Vec<ObjectId> {
    let mut made = Vec::new();
    for (operation, outcome) in operations.iter().zip(&mut batched.outcomes) {
        let object = match (operation, &outcome) {
            (BatchOperation::Remove(object), Err(Status::NoSuchObject)) => *object,
            (BatchOperation::Create(Some(object), _), Err(Status::ObjectExists)) => {
                made.push(*object);
                *object
            }
            _ => continue,
        };
        *outcome = Ok(BatchDone { object, attributes: None });
    }
    made
}
