//! Requests as they travel, and drives that answer them.

use std::net::SocketAddr;
use std::sync::Arc;

use nasd_protocol::drive::{
    BatchArguments, BatchOperation, Procedure, SetattrArguments, WriteArguments,
};
use nasd_transport::{
    Answer, Arriving, Attempt, Call, CallHead, Identity, OpaqueAuth, OutgoingCall, Payload, Peer,
    Presence, Receive, Service, Standing, Waits,
};
use nasd_types::ObjectId;
use nasd_xdr::{Decoder, XdrDecode};

/// A flavor of authentication, and its body.
pub type Proof = (u32, Vec<u8>);

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    program: u32,
    version: u32,
    procedure: u32,
    credential: Proof,
    verifier: Proof,
    /// With the data behind them.
    body: Vec<u8>,
}

/// What it is answered with.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The reply's verifier.
    pub verifier: Proof,
    /// Results, up to the data.
    pub results: Vec<u8>,
    /// The data.
    pub data: Vec<u8>,
}

/// Who answers requests.
pub trait Served: Send + Sync {
    /// The answer; none where the connection is closed instead.
    fn serve(&self, request: &Request) -> Option<Answered>;
}

fn proof(auth: &OpaqueAuth<'_>) -> Proof {
    (auth.flavor, auth.body.to_vec())
}

impl Request {
    /// The call as it is sent.
    pub fn of(call: &OutgoingCall<'_>) -> Request {
        let mut body = call.arguments.to_vec();
        for piece in call.data {
            body.extend_from_slice(piece);
        }
        body.resize(nasd_xdr::xdr_padded(body.len()), 0);
        Request {
            program: call.program,
            version: call.version,
            procedure: call.procedure,
            credential: proof(&call.credential),
            verifier: proof(&call.verifier),
            body,
        }
    }

    /// Of which object it is, if its arguments begin with the name of one.
    pub fn name(&self) -> Option<(u32, u64)> {
        let partition = self.body.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))?;
        let object = self.body.get(4..)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))?;
        Some((partition, object))
    }

    /// Which objects of a drive it is of, as far as its arguments name some.
    pub fn objects(&self) -> Vec<ObjectId> {
        match self.arguments_of::<BatchArguments>(Procedure::Batch as u32) {
            Some(batch) => {
                let named = |operation: &BatchOperation| match operation {
                    BatchOperation::Create(object, _) => *object,
                    BatchOperation::Remove(object)
                    | BatchOperation::Setattr(object, _)
                    | BatchOperation::Getattr(object) => Some(*object),
                };
                batch.operations.iter().filter_map(named).collect()
            }
            None => self.name().map(|(_, object)| ObjectId(object)).into_iter().collect(),
        }
    }

    /// Its arguments, if it calls that procedure.
    pub fn arguments_of<T: XdrDecode>(&self, procedure: u32) -> Option<T> {
        let is_of = self.procedure == procedure;
        is_of.then(|| nasd_xdr::from_bytes(&self.body).ok()).flatten()
    }

    /// The same call with other arguments.
    #[must_use]
    pub fn with_arguments(&self, body: Vec<u8>) -> Request {
        Request { body, ..self.clone() }
    }

    /// Which procedure is called, for who reads what has happened.
    pub fn procedure(&self) -> String {
        let procedure = match Procedure::try_from(self.procedure) {
            Ok(procedure) => format!("{procedure:?}").to_lowercase(),
            Err(_) => format!("procedure {}", self.procedure),
        };
        match self.name() {
            Some((_, object)) if procedure != "private" => {
                format!("{procedure} of {object:x}{}", self.particulars())
            }
            _ => procedure,
        }
    }

    /// What of its arguments says how lengths and versions come about.
    fn particulars(&self) -> String {
        let mut input = Decoder::new(&self.body);
        match Procedure::try_from(self.procedure) {
            Ok(Procedure::Setattr) => match SetattrArguments::decode(&mut input) {
                Ok(SetattrArguments { changes, .. }) => {
                    let (size, version) = (changes.logical_size, changes.access_control_version);
                    format!(" (length {size:?}, version {version:x?})")
                }
                Err(_) => String::new(),
            },
            Ok(Procedure::Write) => match WriteArguments::decode(&mut input) {
                Ok(WriteArguments { regions, .. }) => format!(" ({regions:?})"),
                Err(_) => String::new(),
            },
            _ => String::new(),
        }
    }
}

/// A service as the transport serves it: a drive, or a file manager, over a connection that is trusted.
pub struct ServedHere<S> {
    service: Arc<S>,
    standing: Standing,
}

impl<S: Service> ServedHere<S> {
    /// Serves it.
    pub fn serving(service: Arc<S>) -> Arc<dyn Served> {
        Arc::new(ServedHere { service, standing: Standing::of_no_connection() })
    }
}

impl<S: Service> Served for ServedHere<S> {
    /// As the transport would.
    fn serve(&self, request: &Request) -> Option<Answered> {
        let (credential, verifier) = (&request.credential, &request.verifier);
        let service = &*self.service;
        let head = CallHead {
            xid: 1,
            program: request.program,
            version: request.version,
            procedure: request.procedure,
            credential: OpaqueAuth { flavor: credential.0, body: &credential.1 },
            verifier: OpaqueAuth { flavor: verifier.0, body: &verifier.1 },
        };
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let peer = Peer { address, identity: Identity::Plain };
        let body = &request.body[..];
        let arriving = Arriving { head: &head, arguments: body, complete: true, peer: &peer };
        let (arguments, payload) = match service.receive(&arriving) {
            Receive::Whole | Receive::More { .. } | Receive::Discard { head_bytes: 0 } => {
                (body, None)
            }
            Receive::Discard { head_bytes } => (&body[..head_bytes], None),
            Receive::Data { head_bytes, mut payload } => {
                let mut rest = &body[head_bytes..];
                let room: usize = payload.buffers().iter().map(|buffer| buffer.len()).sum();
                if nasd_xdr::xdr_padded(room) != rest.len() {
                    return None;
                }
                for buffer in &mut payload.buffers() {
                    let (now, later) = rest.split_at(buffer.len());
                    buffer.copy_from_slice(now);
                    rest = later;
                }
                (&body[..head_bytes], Some(payload))
            }
        };
        // Whose connection is cut hears nothing of what was done for him.
        let (standing, presence) = (&self.standing, Presence::ALWAYS);
        let call =
            |payload| Call { head: &head, arguments, payload, peer: &peer, standing, presence };
        let answer = match service.attempt(call(payload)) {
            Attempt::Answered(answer) => answer,
            Attempt::Waits(Waits::Alone, payload) => service.execute(call(payload)),
            Attempt::Waits(Waits::Together, payload) => {
                let mut together = service.together();
                together.begin(0, call(payload));
                together.answered(1).pop()?.1
            }
        };
        let Answer::Results { verifier, results, data } = answer else { return None };
        let verifier = proof(&verifier.as_opaque());
        let data = data.iter().flat_map(|piece| piece.as_ref()).copied().collect();
        Some(Answered { verifier, results, data })
    }
}
