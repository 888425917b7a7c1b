//! Creates and removes that are begun, and waited for later: one thread keeps many of them under way.

use std::fmt;

use nasd_protocol::Status;
use nasd_protocol::drive::{Create, CreateArguments, Created, Operation, Remove, RemoveArguments};
use nasd_types::{ObjectName, PartitionId, SetAttributes};

use super::DriveClient;
use super::exchange::{Begun, CallFailure, Failure, Request};
use crate::{Authority, ClientError};

/// A create that was begun by [`DriveClient::begin_create`].
pub struct PendingCreate<'a>(Pending<'a, Create>);

/// A call that was begun by [`DriveClient::begin_call`].
pub struct PendingCall<'a, Op: Operation>(Pending<'a, Op>);

/// A remove that was begun by [`DriveClient::begin_remove`].
pub struct PendingRemove<'a>(Pending<'a, Remove>);

/// A call without bulk data.
struct Pending<'a, Op: Operation> {
    client: &'a DriveClient,
    authority: &'a Authority,
    arguments: Op::Arguments,
    /// Why it could not be begun, if it could not: everything is left to the wait.
    begun: Result<Begun<'a>, Failure>,
}

impl DriveClient {
    /// Begins to make an object; what [`DriveClient::create`] answers comes from
    /// [`PendingCreate::wait`]. As with [`DriveClient::begin_read`] many can be under way, and one may
    /// be sent only when a later call is, or when it is waited for.
    pub fn begin_create<'a>(
        &'a self,
        authority: &'a Authority,
        partition: PartitionId,
        initial: &SetAttributes,
        durable: bool,
    ) -> PendingCreate<'a> {
        let arguments =
            CreateArguments { partition, object: None, durable, initial: initial.clone() };
        PendingCreate(self.begin(authority, arguments))
    }

    /// Begins to remove an object, as [`DriveClient::remove`] does; [`PendingRemove::wait`] says
    /// whether that went well. Many can be under way, as with [`DriveClient::begin_create`].
    pub fn begin_remove<'a>(
        &'a self,
        authority: &'a Authority,
        name: ObjectName,
        durable: bool,
    ) -> PendingRemove<'a> {
        PendingRemove(self.begin(authority, RemoveArguments { name, durable }))
    }

    /// Begins any call that carries no bulk data. Many can be under way, as with
    /// [`DriveClient::begin_create`].
    pub fn begin_call<'a, Op: Operation>(
        &'a self,
        authority: &'a Authority,
        arguments: Op::Arguments,
    ) -> PendingCall<'a, Op> {
        PendingCall(self.begin(authority, arguments))
    }

    fn begin<'a, Op: Operation>(
        &'a self,
        authority: &'a Authority,
        arguments: Op::Arguments,
    ) -> Pending<'a, Op> {
        let request = Request::plain::<Op>(&arguments);
        let begun = self.shared.begin(authority, &request, Vec::new(), self.retry.call_timeout);
        let begun = begun.map_err(|(failure, _)| failure);
        Pending { client: self, authority, arguments, begun }
    }
}

impl PendingCreate<'_> {
    /// Waits for the object. Where the connection broke, or the drive wanted another nonce, the call
    /// is made again as by [`DriveClient::create`].
    ///
    /// # Errors
    ///
    /// Any [`ClientError`] but those of the file manager.
    pub fn wait(self) -> Result<Created, ClientError> {
        Ok(self.0.wait()?)
    }
}

impl<Op: Operation> PendingCall<'_, Op> {
    /// Sends it now, and what else was begun: for who begins calls to several drives, all of which are to work on
    /// theirs while the first is waited for.
    pub fn send(self) -> Self {
        if let Ok(begun) = &self.0.begun {
            begun.send(self.0.client.retry.call_timeout);
        }
        self
    }

    /// Waits for the answer. Where the connection broke, or the drive wanted another nonce, the call is made
    /// again: of what has an effect each time, an earlier try may have had it.
    ///
    /// # Errors
    ///
    /// Any [`ClientError`] but those of the file manager.
    pub fn wait(self) -> Result<Op::Reply, ClientError> {
        Ok(self.0.wait()?)
    }
}

impl PendingRemove<'_> {
    /// Waits for the removal. Where the connection broke, or the drive wanted another nonce, the call
    /// is made again as by [`DriveClient::remove`].
    ///
    /// # Errors
    ///
    /// Any [`ClientError`] but those of the file manager.
    pub fn wait(self) -> Result<(), ClientError> {
        removed(self.0.wait())
    }
}

/// What a remove comes to: that of an object which an earlier try removed went well.
pub(super) fn removed<T>(result: Result<T, CallFailure>) -> Result<(), ClientError> {
    match result {
        Ok(_) => Ok(()),
        Err(failure) => match failure.error {
            ClientError::Drive(Status::NoSuchObject) if failure.ran_before => Ok(()),
            error => Err(error),
        },
    }
}

impl<Op: Operation> Pending<'_, Op> {
    fn wait(self) -> Result<Op::Reply, CallFailure> {
        let Pending { client, authority, arguments, begun } = self;
        let ended = begun.and_then(|begun| client.shared.finish::<Op>(begun).0);
        let ran_before = match ended {
            Ok(Ok(answer)) => return Ok(answer.reply),
            // Whatever the drive refused it for, it refuses it again, or there is a cure for it.
            Ok(Err(_)) => false,
            Err(Failure::Transport(error)) => error.may_have_run(),
            Err(Failure::Final(error)) => {
                return Err(CallFailure { error, ran_before: false, was_told_before: false });
            }
        };
        let request = Request::plain::<Op>(&arguments);
        let again = client.call::<Op>(authority, &request, &mut []);
        again.map(|answer| answer.reply).map_err(|failure| CallFailure {
            ran_before: failure.ran_before || ran_before,
            ..failure
        })
    }
}

impl<Op: Operation> fmt::Debug for PendingCall<'_, Op> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingCall").field("procedure", &Op::PROCEDURE).finish_non_exhaustive()
    }
}

impl fmt::Debug for PendingCreate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let partition = self.0.arguments.partition;
        f.debug_struct("PendingCreate").field("partition", &partition).finish_non_exhaustive()
    }
}

impl fmt::Debug for PendingRemove<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.arguments.name;
        f.debug_struct("PendingRemove").field("name", &name).finish_non_exhaustive()
    }
}
