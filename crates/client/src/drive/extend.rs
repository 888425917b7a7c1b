//! Calls of a drive's extensions.

use nasd_protocol::drive::{EXTEND_RESULT_HEAD_BYTES, Extend, ExtendArguments, Extended};

use super::DriveClient;
use super::exchange::{Answer, Begun, Failure, Request};
use crate::{Authority, ClientError};

impl DriveClient {
    /// Has one of the drive's extensions do something with an object; what it tells goes to the start of `into`, which is at
    /// least as long as the arguments allow. Whether it may be done twice is the extension's affair: it is, if a reply is lost.
    ///
    /// # Errors
    ///
    /// Any [`ClientError`] but those of the file manager: `Drive(NoSuchExtension)` where the drive has none of that number and
    /// revision. How the extension ended is told by the outcome.
    pub fn extend(
        &self,
        authority: &Authority,
        arguments: &ExtendArguments,
        into: &mut [u8],
    ) -> Result<Extended, ClientError> {
        let most = arguments.most as usize;
        let limit = self.max_transfer().min(into.len());
        let into = into.get_mut(..most).filter(|_| most <= limit);
        let into = into.ok_or(ClientError::TooLarge { amount: most, limit })?;
        let request = Request::receiving::<Extend>(arguments, EXTEND_RESULT_HEAD_BYTES);
        let answer = self.call::<Extend>(authority, &request, into)?;
        self.extended(&answer)
    }

    /// Begins such a call: many can be under way, as with [`DriveClient::begin_read`]. `into` is as long as the arguments
    /// allow.
    pub fn begin_extend<'a>(
        &'a self,
        authority: &'a Authority,
        arguments: ExtendArguments,
        into: Vec<u8>,
    ) -> PendingExtend<'a> {
        let (most, limit) = (arguments.most as usize, self.max_transfer().min(into.len()));
        let state = if most > limit {
            let error = ClientError::TooLarge { amount: most, limit };
            State::Failed(error.into(), into)
        } else {
            let request = Request::receiving::<Extend>(&arguments, EXTEND_RESULT_HEAD_BYTES);
            match self.shared.begin(authority, &request, into, self.retry.call_timeout) {
                Ok(begun) => State::Begun(begun),
                Err((failure, into)) => State::Failed(failure, into),
            }
        };
        PendingExtend { client: self, authority, arguments, state }
    }

    fn extended(&self, answer: &Answer<Extended>) -> Result<Extended, ClientError> {
        if answer.reply.data_length != answer.data_length {
            return Err(self.shared.protocol_error("the length of the data is told twice"));
        }
        Ok(answer.reply)
    }
}

/// A call of an extension that was begun by [`DriveClient::begin_extend`].
pub struct PendingExtend<'a> {
    client: &'a DriveClient,
    authority: &'a Authority,
    arguments: ExtendArguments,
    state: State<'a>,
}

enum State<'a> {
    Begun(Begun<'a>),
    /// It could not be begun: everything is left to the wait.
    Failed(Failure, Vec<u8>),
}

impl PendingExtend<'_> {
    /// Sends it now, and what else was begun.
    pub fn send(self) -> Self {
        if let State::Begun(begun) = &self.state {
            begun.send(self.client.retry.call_timeout);
        }
        self
    }

    /// Waits for what the extension tells. Where the connection broke, or the drive wanted another nonce, the call is made
    /// again as by [`DriveClient::extend`].
    ///
    /// # Errors
    ///
    /// Any [`ClientError`] but those of the file manager. The buffer comes back all the same.
    pub fn wait(self) -> (Result<Extended, ClientError>, Vec<u8>) {
        let PendingExtend { client, authority, arguments, state } = self;
        let (result, mut into) = match state {
            State::Begun(begun) => client.shared.finish::<Extend>(begun),
            State::Failed(failure, into) => (Err(failure), into),
        };
        let result = match result {
            Ok(Ok(answer)) => client.extended(&answer),
            Err(Failure::Final(error)) => Err(error),
            // Whatever the drive refused it for, it refuses it again, or there is a cure for it.
            Ok(Err(_)) | Err(Failure::Transport(_)) => {
                client.extend(authority, &arguments, &mut into)
            }
        };
        (result, into)
    }
}
