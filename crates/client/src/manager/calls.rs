//! The tries that a call to the file manager is made of.

use std::time::Duration;

use nasd_protocol::manager::{Operation, PROGRAM, VERSION};
use nasd_protocol::{ManagerStatus, decode_result};
use nasd_rpc::AUTH_SYS;
use nasd_transport::{OpaqueAuth, OutgoingCall, ResultShape};
use nasd_xdr::{Decoder, XdrError, to_bytes};

use super::{Caller, ManagerClient, ManagerConnection, Shared};
use crate::retry::Tries;
use crate::{ClientError, TransportError};

/// What a status means when an earlier try of the same call may have been executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeated {
    /// The same as ever: the call can be executed twice.
    Harmless,
    /// These are what a second execution would answer if the first succeeded.
    Tells(&'static [ManagerStatus]),
    /// A second execution would undo the first: there is none once it may have been executed.
    Undoes,
}

impl ManagerClient {
    /// Makes a call, with as many tries as it takes and the policy allows.
    pub(super) fn call<Op: Operation>(
        &self,
        caller: &Caller,
        arguments: &Op::Arguments,
        repeated: Repeated,
    ) -> Result<Op::Reply, ClientError> {
        let credential = caller.credential();
        let arguments = to_bytes(arguments);
        let mut tries = Tries::new(&self.retry, &*self.shared.host);
        let mut ran_before = false;
        loop {
            let timeout = tries.begin();
            let error = match self.shared.attempt::<Op>(&credential, &arguments, timeout) {
                Ok(Ok(Ok(reply))) => return Ok(reply),
                Ok(Ok(Err(status))) if status.is_transient() => TransportError::DriveAway,
                Ok(Ok(Err(status))) => return Err(of_status(status, repeated, ran_before)),
                Ok(Err(error)) => return Err(self.protocol_error(&error)),
                Err(error) => error,
            };
            ran_before |= error.may_have_run();
            if ran_before && repeated == Repeated::Undoes {
                return Err(tries.give_up(error, &self.shared.server, ran_before));
            }
            tries.go_on_after(error, &self.shared.server, ran_before)?;
        }
    }

    fn protocol_error(&self, error: &XdrError) -> ClientError {
        ClientError::Protocol { server: self.address().to_owned(), why: error.to_string() }
    }
}

fn of_status(status: ManagerStatus, repeated: Repeated, ran_before: bool) -> ClientError {
    match repeated {
        Repeated::Tells(statuses) if ran_before && statuses.contains(&status) => {
            ClientError::Uncertain(status)
        }
        _ => ClientError::Manager(status),
    }
}

/// What the manager answered, if that makes sense.
type Answer<T> = Result<Result<T, ManagerStatus>, XdrError>;

impl Shared {
    /// One try.
    fn attempt<Op: Operation>(
        &self,
        credential: &[u8],
        arguments: &[u8],
        timeout: Duration,
    ) -> Result<Answer<Op::Reply>, TransportError> {
        let connect_timeout = timeout.min(self.connect_timeout);
        let connect = || self.connector.connect(connect_timeout).map(ManagerConnection);
        let lease = self
            .pool
            .lease(&*self.host, connect_timeout, connect)
            .ok_or(TransportError::NoConnectionInTime)??;
        let call = OutgoingCall {
            program: PROGRAM,
            version: VERSION,
            procedure: Op::PROCEDURE.into(),
            credential: OpaqueAuth { flavor: AUTH_SYS, body: credential },
            verifier: OpaqueAuth::NONE,
            arguments,
            data: &[],
            results: ResultShape::Plain,
            timeout,
        };
        let reply = lease.connection.0.call(&call, &mut [])?;
        self.server.is_there();
        let mut input = Decoder::new(reply.results());
        let result = decode_result::<Op::Reply, ManagerStatus>(&mut input);
        Ok(result.and_then(|result| input.finish().map(|()| result)))
    }
}
