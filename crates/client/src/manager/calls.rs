//! The tries that a call to the file manager is made of.

use std::borrow::Cow;
use std::io::IoSlice;
use std::ops::Range;
use std::time::Duration;

use nasd_protocol::manager::{Change, Operation, PROGRAM, VERSION};
use nasd_protocol::{ManagerStatus, decode_result};
use nasd_rpc::AUTH_SYS;
use nasd_transport::{OpaqueAuth, OutgoingCall, ResultShape};
use nasd_xdr::{Decoder, XdrError, to_bytes};

use super::{Caller, ManagerClient, ManagerConnection, Shared};
use crate::retry::{Tries, add_age};
use crate::{ClientError, TransportError};

/// Bulk data of a call, either way.
pub(super) struct Bulk<'a> {
    /// What ends the arguments.
    pub(super) sends: &'a [IoSlice<'a>],
    /// Where what ends the results goes.
    pub(super) into: &'a mut [u8],
    /// Where that begins.
    pub(super) results: ResultShape,
}

impl ManagerClient {
    /// Makes a call that may be executed twice, with as many tries as it takes and the policy allows.
    pub(super) fn call<Op: Operation>(
        &self,
        caller: &Caller,
        arguments: &Op::Arguments,
    ) -> Result<Op::Reply, ClientError> {
        self.tries::<Op>(caller, &to_bytes(arguments)).map_err(|failed| failed.error)
    }

    /// Makes a call that changes something: the manager executes it once, however often it is sent.
    pub(super) fn change<Op: Change>(
        &self,
        caller: &Caller,
        arguments: &Op::Arguments,
    ) -> Result<Op::Reply, ClientError> {
        let numbered = self.shared.requests.begin();
        let mut bytes = to_bytes(arguments);
        bytes.extend(to_bytes(&numbered.request));
        self.tries::<Op>(caller, &bytes).map_err(|failed| failed.error)
    }

    /// Makes a call with bulk data that is executed once, as its arguments say which it is: they tell at
    /// `age_at` how long ago it was made first, to which each further try adds what has passed since.
    pub(super) fn call_once_with<Op: Operation>(
        &self,
        caller: &Caller,
        arguments: &Op::Arguments,
        age_at: Range<usize>,
        bulk: Bulk<'_>,
    ) -> Result<Op::Reply, ClientError> {
        let done = self.tries_with::<Op>(caller, &to_bytes(arguments), Some(age_at), bulk);
        done.map(|(reply, _)| reply).map_err(|failed| match failed.error {
            // Of a file that is gone, what an earlier try has done is gone too.
            ClientError::Manager(status)
                if failed.ran_before
                    && !matches!(status, ManagerStatus::Unavailable | ManagerStatus::Stale) =>
            {
                ClientError::Unsettled(Box::new(failed.error))
            }
            error => error,
        })
    }

    /// Makes a call that finds it done if it was executed before: `done` is what it answers then.
    pub(super) fn use_up<Op: Operation>(
        &self,
        caller: &Caller,
        arguments: &Op::Arguments,
        done: ManagerStatus,
    ) -> Result<Op::Reply, ClientError> {
        self.tries::<Op>(caller, &to_bytes(arguments)).map_err(|failed| match failed.error {
            ClientError::Manager(status) if failed.ran_before && status == done => {
                ClientError::Uncertain(status)
            }
            error => error,
        })
    }

    fn tries<Op: Operation>(&self, caller: &Caller, arguments: &[u8]) -> Result<Op::Reply, Failed> {
        let bulk = Bulk { sends: &[], into: &mut [], results: ResultShape::Plain };
        self.tries_with::<Op>(caller, arguments, None, bulk).map(|(reply, _)| reply)
    }

    /// Makes a call with bulk data that may be executed twice. Tells how many bytes of them came, besides
    /// the reply.
    pub(super) fn call_with<Op: Operation>(
        &self,
        caller: &Caller,
        arguments: &Op::Arguments,
        bulk: Bulk<'_>,
    ) -> Result<(Op::Reply, usize), ClientError> {
        let done = self.tries_with::<Op>(caller, &to_bytes(arguments), None, bulk);
        done.map_err(|failed| failed.error)
    }

    fn tries_with<Op: Operation>(
        &self,
        caller: &Caller,
        arguments: &[u8],
        age_at: Option<Range<usize>>,
        mut bulk: Bulk<'_>,
    ) -> Result<(Op::Reply, usize), Failed> {
        let credential = caller.credential();
        let mut tries = Tries::new(&self.retry, &*self.shared.host);
        let mut ran_before = false;
        loop {
            let timeout = tries.begin();
            let mut arguments = Cow::Borrowed(arguments);
            if let Some(at) = age_at.clone().filter(|_| tries.is_again()) {
                add_age(arguments.to_mut(), at, tries.taken());
            }
            let attempt = self.shared.attempt::<Op>(&credential, &arguments, &mut bulk, timeout);
            let error = match attempt {
                Ok(Ok(Ok(reply))) => return Ok(reply),
                Ok(Ok(Err(status))) if status.is_transient() => TransportError::DriveAway,
                Ok(Ok(Err(status))) => {
                    return Err(Failed { error: ClientError::Manager(status), ran_before });
                }
                Ok(Err(error)) => {
                    return Err(Failed { error: self.protocol_error(&error), ran_before });
                }
                Err(error) => error,
            };
            ran_before |= error.may_have_run();
            let ended = tries.go_on_after(error, &self.shared.server, ran_before);
            ended.map_err(|error| Failed { error, ran_before })?;
        }
    }

    pub(super) fn protocol_error(&self, error: &XdrError) -> ClientError {
        ClientError::Protocol { server: self.address().to_owned(), why: error.to_string() }
    }
}

/// How a call failed, and whether an earlier try of it may have been executed.
struct Failed {
    error: ClientError,
    ran_before: bool,
}

/// What the manager answered, if that makes sense.
type Answer<T> = Result<Result<T, ManagerStatus>, XdrError>;

impl Shared {
    /// One try.
    fn attempt<Op: Operation>(
        &self,
        credential: &[u8],
        arguments: &[u8],
        bulk: &mut Bulk<'_>,
        timeout: Duration,
    ) -> Result<Answer<(Op::Reply, usize)>, TransportError> {
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
            data: bulk.sends,
            results: bulk.results,
            timeout,
        };
        let reply = lease.connection.0.call(&call, bulk.into)?;
        self.server.is_there();
        let mut input = Decoder::new(reply.results());
        let result = decode_result::<Op::Reply, ManagerStatus>(&mut input);
        let received = reply.data_length();
        Ok(result
            .and_then(|result| input.finish().map(|()| result.map(|decoded| (decoded, received)))))
    }
}
