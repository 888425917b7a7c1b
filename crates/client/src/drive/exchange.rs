//! One request and its reply, sealed and checked; and the tries that a call is made of.

use std::borrow::Cow;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use nasd_capability::{CoveredData, Digest, Nonce, Suite, Way, procedure_bytes};
use nasd_protocol::auth::VerifierBody;
use nasd_protocol::drive::{
    self, Inquiry, Operation, PRIVATE_RESULT_HEAD_BYTES, PROGRAM, Procedure, VERSION,
};
use nasd_protocol::{AUTH_FLAVOR, Status, Verifier, decode_result};
use nasd_transport::{
    BufferPool, InFlight, OpaqueAuth, OutgoingCall, PooledBuffer, Reply, ResultShape,
};
use nasd_types::Protection;
use nasd_xdr::{Decoder, XdrEncode, to_bytes};

use super::connection::DriveConnection;
use super::{DriveClient, Shared};
use crate::authority::Prepared;
use crate::error::is_told_to_anybody;
use crate::pool::Lease;
use crate::retry::{Tries, add_age};
use crate::{Authority, ClientError, TransportError};

/// How often a call is sent again at once because the drive did not like its nonce. Twice is
/// enough for honest clocks: once because the time was wrong, once because the sender was known.
const MAX_FRESH_NONCES: u32 = 4;

const ZERO: Duration = Duration::ZERO;

/// Why a try came to nothing.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// Another try may do better.
    Transport(TransportError),
    /// It will not.
    Final(ClientError),
}

impl From<TransportError> for Failure {
    fn from(error: TransportError) -> Self {
        Failure::Transport(error)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Failure::Final(error)
    }
}

/// A request, but for what differs from try to try.
#[derive(Clone)]
pub(super) struct Request<'a> {
    procedure: Procedure,
    arguments: Vec<u8>,
    /// The bulk data of a write.
    data: &'a [IoSlice<'a>],
    /// Whether bulk data belongs to the request (even if there are no bytes of it).
    carries_data: bool,
    results: ResultShape,
    /// Whether it is not sent again once it may have been executed.
    once: bool,
    /// Where in the arguments is how long ago the call was made first, in nanoseconds, if they have that.
    age_at: Option<Range<usize>>,
    /// An authority that is shown besides that of the call, behind the arguments, and its proof.
    source: Option<&'a Authority>,
}

impl<'a> Request<'a> {
    pub(super) fn plain<Op: Operation>(arguments: &Op::Arguments) -> Self {
        Request::of::<Op>(to_bytes(arguments))
    }

    /// With a second authority, that for an object that is copied from. The arguments are what comes
    /// before it.
    pub(super) fn copying<Op: Operation>(
        arguments: &impl XdrEncode,
        source: &'a Authority,
    ) -> Self {
        Request { source: Some(source), ..Request::of::<Op>(to_bytes(arguments)) }
    }

    fn of<Op: Operation>(arguments: Vec<u8>) -> Self {
        Request {
            procedure: Op::PROCEDURE,
            arguments,
            data: &[],
            carries_data: false,
            results: ResultShape::Plain,
            once: false,
            age_at: None,
            source: None,
        }
    }

    /// The request as it is sent with this nonce to a drive that offers these suites; `None` if the
    /// second authority can't be shown there.
    fn vouched_for(&self, nonce: &Nonce, suites: &[Suite]) -> Option<Cow<'_, Self>> {
        let Some(source) = self.source else {
            return Some(Cow::Borrowed(self));
        };
        let Prepared { credential, keys } = source.prepare(suites)?;
        let procedure = procedure_bytes(PROGRAM, VERSION, self.procedure.into());
        let Digest(proof) = match source.protection().is_empty() {
            true => Digest::ZERO,
            false => keys.source_proof(nonce, &[&procedure, &self.arguments, credential]),
        };
        let arguments = [&self.arguments[..], credential, &proof].concat();
        Some(Cow::Owned(Request { arguments, ..self.clone() }))
    }

    /// With arguments that tell at `at` how long ago the call was made first, up to the first try here;
    /// each further try adds what has passed since.
    pub(super) fn aging(self, at: Range<usize>) -> Self {
        Request { age_at: Some(at), ..self }
    }

    /// The request as it is sent `taken` after the first try.
    fn after(&self, taken: Duration) -> Cow<'_, Self> {
        let Some(at) = self.age_at.clone().filter(|_| !taken.is_zero()) else {
            return Cow::Borrowed(self);
        };
        let mut later = self.clone();
        add_age(&mut later.arguments, at, taken);
        Cow::Owned(later)
    }

    /// Not sent again once it may have been executed, if that is said.
    pub(super) fn once(self, once: bool) -> Self {
        Request { once, ..self }
    }

    /// With bulk data, whose length word ends the arguments.
    pub(super) fn sending<Op: Operation>(
        arguments: &Op::Arguments,
        data: &'a [IoSlice<'a>],
    ) -> Self {
        Request { data, carries_data: true, ..Request::plain::<Op>(arguments) }
    }

    /// Whose successful reply has bulk data after `head_bytes`.
    pub(super) fn receiving<Op: Operation>(arguments: &Op::Arguments, head_bytes: usize) -> Self {
        let results = ResultShape::DataAfter { head_bytes };
        Request { results, ..Request::plain::<Op>(arguments) }
    }
}

/// A call that was answered with success.
pub(super) struct Answer<T> {
    pub(super) reply: T,
    /// Bytes of bulk data received.
    pub(super) data_length: usize,
    /// Whether an earlier try, one without a reply, may have been executed.
    pub(super) ran_before: bool,
}

/// A call that failed.
pub(super) struct CallFailure {
    pub(super) error: ClientError,
    /// Whether an earlier try, one without a reply, may have been executed.
    pub(super) ran_before: bool,
    /// Whether an earlier try was answered as anybody could.
    pub(super) was_told_before: bool,
}

impl CallFailure {
    /// The error, where it may not say less of the call than is known: that an earlier try may have
    /// been executed.
    pub(super) fn of_change(self) -> ClientError {
        let CallFailure { error, ran_before, was_told_before } = self;
        // A drive that proves how it answers has answered the tries before alike.
        let is_proved = matches!(&error, ClientError::Drive(_)) && error.has_not_run();
        let is_answered = matches!(&error, ClientError::Refused(_) | ClientError::Drive(_));
        match error {
            error if is_proved => error,
            ClientError::Unreachable { server, taken, tries, may_have_run, last } => {
                let may_have_run = may_have_run || was_told_before;
                ClientError::Unreachable { server, taken, tries, may_have_run, last }
            }
            ClientError::Interrupted { server, may_have_run } => {
                ClientError::Interrupted { server, may_have_run: may_have_run || was_told_before }
            }
            // Whoever is refused knows from that alone that nothing is proved.
            error if ran_before || was_told_before && !is_answered => {
                ClientError::Unsettled(Box::new(error))
            }
            error => error,
        }
    }
}

impl From<CallFailure> for ClientError {
    fn from(failure: CallFailure) -> Self {
        failure.error
    }
}

impl DriveClient {
    /// Makes a call, with as many tries as it takes and the policy allows.
    pub(super) fn call<Op: Operation>(
        &self,
        authority: &Authority,
        request: &Request<'_>,
        into: &mut [u8],
    ) -> Result<Answer<Op::Reply>, CallFailure> {
        let mut tries = Tries::new(&self.retry, &*self.shared.host);
        let mut fresh_nonces = 0;
        let (mut ran_before, mut was_told_before) = (false, false);
        let failed = |error, ran_before, was_told_before| {
            Err(CallFailure { error, ran_before, was_told_before })
        };
        loop {
            let timeout = tries.begin();
            let taken = if fresh_nonces > 0 || tries.is_again() { tries.taken() } else { ZERO };
            let request = &*request.after(taken);
            let error = match self.shared.attempt::<Op>(authority, request, into, timeout) {
                Ok(Ok(answer)) => return Ok(Answer { ran_before, ..answer }),
                Ok(Err(Status::Busy)) => TransportError::Busy,
                Ok(Err(status))
                    if status.needs_fresh_nonce() && fresh_nonces < MAX_FRESH_NONCES =>
                {
                    fresh_nonces += 1;
                    was_told_before = true;
                    continue;
                }
                Ok(Err(status)) => return failed(of_status(status), ran_before, was_told_before),
                Err(Failure::Final(error)) => return failed(error, ran_before, was_told_before),
                Err(Failure::Transport(error)) => error,
            };
            ran_before |= error.may_have_run();
            was_told_before |= error.is_unproved_answer();
            if request.once && ran_before {
                let error = tries.give_up(error, &self.shared.server, ran_before);
                return failed(error, ran_before, was_told_before);
            }
            if let Err(error) = tries.go_on_after(error, &self.shared.server, ran_before) {
                return failed(error, ran_before, was_told_before);
            }
        }
    }
}

fn of_status(status: Status) -> ClientError {
    match status.refusal() {
        Some(_) => ClientError::Refused(status),
        None => ClientError::Drive(status),
    }
}

impl Shared {
    /// One try. The inner result is what the drive answered.
    fn attempt<Op: Operation>(
        &self,
        authority: &Authority,
        request: &Request<'_>,
        into: &mut [u8],
        timeout: Duration,
    ) -> Result<Result<Answer<Op::Reply>, Status>, Failure> {
        let (lease, seal) = self.prepare(authority, request.procedure, timeout)?;
        let Some(request) = request.vouched_for(&seal.nonce, &lease.connection.suites) else {
            return Err(ClientError::NoCommonSuite { server: self.address() }.into());
        };
        let request = &*request;
        let sealed = seal.seal(request, &self.buffers);
        let private = sealed.slices();
        let data = private.as_ref().map_or(request.data, |slices| &slices[..]);
        let call = outgoing(&seal, &sealed, request, data, timeout);
        let reply = lease.connection.channel.call(&call, into).map_err(TransportError::from)?;
        let received = into.get_mut(..reply.data_length()).unwrap_or_default();
        self.conclude::<Op>(&lease, &seal, request.results, &reply, received)
    }

    /// Begins a try that [`Shared::finish`] ends. Gives the buffer back where that fails.
    pub(super) fn begin<'a>(
        &'a self,
        authority: &'a Authority,
        request: &Request<'_>,
        into: Vec<u8>,
        timeout: Duration,
    ) -> Result<Begun<'a>, (Failure, Vec<u8>)> {
        let (lease, seal) = match self.prepare(authority, request.procedure, timeout) {
            Ok(prepared) => prepared,
            Err(failure) => return Err((failure, into)),
        };
        let sealed = seal.seal(request, &self.buffers);
        let private = sealed.slices();
        let data = private.as_ref().map_or(request.data, |slices| &slices[..]);
        let call = outgoing(&seal, &sealed, request, data, timeout);
        match Arc::clone(&lease.connection.channel).begin(&call, into) {
            Ok(call) => Ok(Begun { call, lease, seal, results: request.results }),
            Err((error, into)) => Err((TransportError::from(error).into(), into)),
        }
    }

    /// Waits for the end of a try, and gives its buffer back.
    pub(super) fn finish<Op: Operation>(&self, begun: Begun<'_>) -> Ended<Op::Reply> {
        let Begun { call, lease, seal, results } = begun;
        let (reply, mut into) = call.wait();
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => return (Err(TransportError::from(error).into()), into),
        };
        let received = into.get_mut(..reply.data_length()).unwrap_or_default();
        let result = self.conclude::<Op>(&lease, &seal, results, &reply, received);
        (result, into)
    }

    /// What a try needs before anything is sent: a connection, keys for it, and a nonce.
    fn prepare<'a>(
        &'a self,
        authority: &'a Authority,
        procedure: Procedure,
        timeout: Duration,
    ) -> Result<(Lease<'a, DriveConnection>, Seal<'a>), Failure> {
        let lease = self.lease(timeout)?;
        if !authority.can_be_shown() {
            return Err(ClientError::NotSealed.into());
        }
        let Some(prepared) = authority.prepare(&lease.connection.suites) else {
            return Err(ClientError::NoCommonSuite { server: self.address() }.into());
        };
        let protection = authority.protection();
        let seal = || {
            let nonce = lease.connection.nonces.draw(self.clock.now(&*self.host));
            Seal { prepared, protection, nonce }
        };
        // An inquiry has nothing private in it; its credential says what the drive may demand of all.
        let in_the_open = |seal: Seal<'a>| {
            let protection = seal.protection - Protection::PRIVACY_ARGS;
            Seal { protection, ..seal }
        };
        // Without protection there is no nonce that could be wrong.
        if self.clock.is_doubtful() && !protection.is_empty() {
            self.prove_clock(&lease.connection, &in_the_open(seal()), timeout)?;
        }
        let seal = if procedure == Procedure::Inquiry { in_the_open(seal()) } else { seal() };
        Ok((lease, seal))
    }

    /// Asks the drive for its clock in a way that nobody else can answer. A question that is stamped
    /// wrongly is answered as well, as it does nothing.
    fn prove_clock(
        &self,
        connection: &DriveConnection,
        seal: &Seal<'_>,
        timeout: Duration,
    ) -> Result<(), Failure> {
        let request = Request::plain::<Inquiry>(&());
        let sealed = seal.seal(&request, &self.buffers);
        let call = outgoing(seal, &sealed, &request, request.data, timeout);
        let reply = connection.channel.call(&call, &mut []).map_err(TransportError::from)?;
        let (status, results) = self.open(seal, request.results, &reply, &mut [])?;
        match status {
            Ok(()) => {
                let information = self.decode::<Inquiry>(&results, 0)?.reply;
                self.check_drive(&information)?;
                self.clock.learn(information.clock, &*self.host);
                Ok(())
            }
            Err((Status::Busy, _)) => Err(TransportError::Busy.into()),
            Err((status, _)) => Err(of_status(status).into()),
        }
    }

    /// Checks a reply and takes it apart.
    fn conclude<Op: Operation>(
        &self,
        lease: &Lease<'_, DriveConnection>,
        seal: &Seal<'_>,
        results: ResultShape,
        reply: &Reply,
        received: &mut [u8],
    ) -> Result<Result<Answer<Op::Reply>, Status>, Failure> {
        let (status, results) = self.open(seal, results, reply, received)?;
        self.server.is_there();
        match status {
            Ok(()) => {
                self.decode::<Op>(&results, reply.data_length()).map(Ok).map_err(Failure::Final)
            }
            Err((status, verifier)) => {
                self.learn_from(status, &verifier, &lease.connection, &seal.nonce);
                Ok(Err(status))
            }
        }
    }

    /// Checks the reply's digest, and decrypts what is encrypted; its data where they were received.
    /// Its status and its results.
    fn open<'r>(
        &self,
        seal: &Seal<'_>,
        shape: ResultShape,
        reply: &'r Reply,
        received: &mut [u8],
    ) -> Result<Opened<'r>, ClientError> {
        let Seal { prepared, protection, nonce } = seal;
        let results = reply.results();
        let verifier = Verifier::from_opaque(&reply.verifier())
            .map_err(|error| self.protocol_error(error.to_string()))?;
        let status = decode_result::<(), Status>(&mut Decoder::new(results))
            .map_err(|error| self.protocol_error(error.to_string()))?;
        if protection.is_empty() {
            return Ok((status.map_err(|status| (status, verifier)), Cow::Borrowed(results)));
        }
        let is_private = protection.contains(Protection::PRIVACY_ARGS) && status.is_ok();
        let receives_data = is_private || shape != ResultShape::Plain && status.is_ok();
        let covers_data = receives_data && protection.contains(Protection::INTEGRITY_DATA);
        let announced = verifier.data_tag.filter(|_| covers_data);
        let announced = announced.map(|tag| CoveredData { length: received.len() as u64, tag });
        let digest = prepared.keys.reply(nonce, &verifier.nonce, &[results], announced.as_ref());
        if digest == verifier.digest && covers_data == verifier.data_tag.is_some() {
            return match announced {
                Some(announced) if !seal.open_data(&verifier.nonce, &announced, received) => {
                    Err(ClientError::BadReplyDigest { server: self.address() })
                }
                _ if is_private => self.open_results(seal, verifier, results, received.len()),
                _ => Ok((status.map_err(|status| (status, verifier)), Cow::Borrowed(results))),
            };
        }
        match status {
            // A drive that has not checked who asks has nobody whom it could prove anything to.
            // Anybody may have sent this; so nothing follows from it but that the call fails.
            Err(status) if is_told_to_anybody(status) && verifier.digest == Digest::ZERO => {
                Ok((Err((status, verifier)), Cow::Borrowed(results)))
            }
            _ => Err(ClientError::BadReplyDigest { server: self.address() }),
        }
    }

    /// Decrypts the results of a private call, whose digest is right.
    fn open_results(
        &self,
        seal: &Seal<'_>,
        verifier: Verifier,
        results: &[u8],
        data_length: usize,
    ) -> Result<Opened<'static>, ClientError> {
        let nonsense = |error: &dyn std::fmt::Display| self.protocol_error(error.to_string());
        let mut input = Decoder::new(results);
        let reply = decode_result::<drive::Sealed, Status>(&mut input)
            .and_then(|reply| input.finish().map(|()| reply))
            .map_err(|error| nonsense(&error))?
            .map_err(of_status)?;
        if reply.data_length != data_length {
            return Err(self.protocol_error("the length of the data is told twice"));
        }
        let keys = &seal.prepared.keys;
        let plain = keys
            .open_args(Way::Reply, &verifier.nonce, &reply.sealed)
            .map_err(|error| nonsense(&error))?;
        let results = drive::unwrap_results(&plain).map_err(|error| nonsense(&error))?.to_vec();
        let status = decode_result::<(), Status>(&mut Decoder::new(&results))
            .map_err(|error| nonsense(&error))?;
        Ok((status.map_err(|status| (status, verifier)), Cow::Owned(results)))
    }

    /// Takes the clock from a refusal for a nonce's sake.
    fn learn_from(
        &self,
        status: Status,
        verifier: &Verifier,
        connection: &DriveConnection,
        nonce: &Nonce,
    ) {
        if !status.needs_fresh_nonce() {
            return;
        }
        if status == Status::RefusedReplay {
            connection.nonces.change_sender(nonce);
        }
        self.clock.take_hint(verifier.nonce.timestamp, &*self.host);
    }

    fn decode<Op: Operation>(
        &self,
        results: &[u8],
        data_length: usize,
    ) -> Result<Answer<Op::Reply>, ClientError> {
        let mut input = Decoder::new(results);
        let result = decode_result::<Op::Reply, Status>(&mut input);
        match result.and_then(|result| input.finish().map(|()| result)) {
            Ok(Ok(decoded)) => Ok(Answer { reply: decoded, data_length, ran_before: false }),
            Ok(Err(status)) => Err(of_status(status)),
            Err(error) => Err(self.protocol_error(error.to_string())),
        }
    }
}

/// A reply's status, and its results as the operation knows them.
type Opened<'r> = (Result<(), (Status, Verifier)>, Cow<'r, [u8]>);

/// What a try is sealed with, and its reply checked against.
pub(super) struct Seal<'a> {
    prepared: &'a Prepared,
    protection: Protection,
    nonce: Nonce,
}

/// A try that was sent, or will be with a later one.
pub(super) struct Begun<'a> {
    call: InFlight,
    lease: Lease<'a, DriveConnection>,
    seal: Seal<'a>,
    results: ResultShape,
}

impl Begun<'_> {
    /// Sends it, if it was not.
    pub(super) fn send(&self, timeout: Duration) {
        self.lease.connection.channel.send_begun(timeout);
    }

    pub(super) fn call(&mut self) -> &mut InFlight {
        &mut self.call
    }
}

/// How a try ended, and its buffer.
pub(super) type Ended<T> = (Result<Result<Answer<T>, Status>, Failure>, Vec<u8>);

impl Seal<'_> {
    /// What goes with the request. Its data are encrypted into one of `buffers` if they are private.
    fn seal(&self, request: &Request<'_>, buffers: &BufferPool) -> Sealed {
        let Seal { prepared, protection, nonce } = self;
        if protection.is_empty() {
            let verifier = Verifier::plain(*nonce, Digest::ZERO).to_body();
            return Sealed { verifier, arguments: None, data: None };
        }
        let arguments = self.private_arguments(request);
        let plain = request.data.iter().map(|slice| &**slice);
        let (covered, data) = if !request.carries_data && arguments.is_none() {
            (None, None)
        } else if protection.contains(Protection::PRIVACY_DATA) {
            let plain: Vec<&[u8]> = plain.collect();
            let length: usize = plain.iter().map(|slice| slice.len()).sum();
            let mut data = buffers.take(length);
            let tag = prepared.keys.seal_data(Way::Request, nonce, &plain, &mut data);
            (Some(CoveredData { length: length as u64, tag }), Some(data))
        } else if protection.contains(Protection::INTEGRITY_DATA) {
            let plain: Vec<&[u8]> = plain.collect();
            (Some(prepared.keys.data(Way::Request, nonce, &plain)), None)
        } else {
            (None, None)
        };
        let procedure = if arguments.is_some() { Procedure::Private } else { request.procedure };
        let procedure = procedure_bytes(PROGRAM, VERSION, procedure.into());
        let sent = arguments.as_deref().unwrap_or(&request.arguments);
        let message: [&[u8]; 3] = [&procedure, &prepared.credential, sent];
        let digest = prepared.keys.request(nonce, &message, covered.as_ref());
        let data_tag = covered.map(|covered| covered.tag);
        let verifier = Verifier { nonce: *nonce, digest, data_tag }.to_body();
        Sealed { verifier, arguments, data }
    }

    /// The arguments of the private call that the request travels in, if it shall.
    fn private_arguments(&self, request: &Request<'_>) -> Option<Vec<u8>> {
        if !self.protection.contains(Protection::PRIVACY_ARGS) {
            return None;
        }
        let mut sealed = drive::wrap_arguments(request.procedure.into(), &request.arguments);
        self.prepared.keys.seal_args(Way::Request, &self.nonce, &mut sealed);
        let data_length = request.data.iter().map(|slice| slice.len()).sum();
        Some(to_bytes(&drive::Sealed { sealed, data_length }))
    }

    /// Whether the data of a reply are those that its digest covers; decrypts them if they are private,
    /// and wipes them if they are not those.
    fn open_data(&self, nonce: &Nonce, announced: &CoveredData, data: &mut [u8]) -> bool {
        let keys = &self.prepared.keys;
        if self.protection.contains(Protection::PRIVACY_DATA) {
            return keys.open_data(Way::Reply, nonce, &announced.tag, data).is_ok();
        }
        keys.data(Way::Reply, nonce, &[data]) == *announced
    }
}

/// What goes with a request.
struct Sealed {
    verifier: VerifierBody,
    /// The arguments of the private call that it travels in, if it does.
    arguments: Option<Vec<u8>>,
    /// Its data, if they were encrypted.
    data: Option<PooledBuffer>,
}

impl Sealed {
    fn slices(&self) -> Option<[IoSlice<'_>; 1]> {
        self.data.as_ref().map(|data| [IoSlice::new(data)])
    }
}

fn outgoing<'a>(
    seal: &'a Seal<'_>,
    sealed: &'a Sealed,
    request: &'a Request<'a>,
    data: &'a [IoSlice<'a>],
    timeout: Duration,
) -> OutgoingCall<'a> {
    let (procedure, arguments, results) = match (&sealed.arguments, request.results) {
        (None, results) => (request.procedure, &request.arguments, results),
        (Some(arguments), ResultShape::Plain) => {
            (Procedure::Private, arguments, ResultShape::Plain)
        }
        (Some(arguments), ResultShape::DataAfter { .. }) => {
            let results = ResultShape::DataAfter { head_bytes: PRIVATE_RESULT_HEAD_BYTES };
            (Procedure::Private, arguments, results)
        }
    };
    OutgoingCall {
        program: PROGRAM,
        version: VERSION,
        procedure: procedure.into(),
        credential: OpaqueAuth { flavor: AUTH_FLAVOR, body: &seal.prepared.credential },
        verifier: OpaqueAuth { flavor: AUTH_FLAVOR, body: &sealed.verifier },
        arguments,
        data,
        results,
        timeout,
    }
}
