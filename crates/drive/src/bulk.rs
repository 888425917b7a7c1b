//! The drive as a back end of the bulk service: objects, past the cache.
//!
//! A connection is one object, that of its capability. Requests pass the same checks as calls do, each alone; what they say
//! stands where a call's arguments do. What is written is durable when it is answered, as nothing is cached for its writer.

use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nasd_bulk_service::server::{Backend, Block, Facts, Permit, Refused, Request, Room, Traits};
use nasd_capability::{Access, Nonce, Refusal, Way};
use nasd_device::FRAME_BYTES;
use nasd_protocol::auth::AUTH_FLAVOR;
use nasd_protocol::bulk::{Asked, Fields, Kind, MAGIC, Open, Packet, Seal, covered_by_request};
use nasd_protocol::drive::{Procedure, Setattr, SetattrArguments, WriteArguments};
use nasd_protocol::{Credential, Region, Status};
use nasd_store::{Located, ReadData};
use nasd_transport::{Beside, BesideConnection, OpaqueAuth, Presence};
use nasd_types::limits::MAX_TRANSFER_BYTES;
use nasd_types::{ByteRange, ObjectId, ObjectName, Protection, SetAttributes};

use crate::Drive;
use crate::authority::{Claimed, Denied, Grant, is_synthetic};
use crate::incoming::Buffer;
use crate::operations::write::{self, Sent};
use crate::operations::{Context, Perform, on_object};
use crate::status::status_of;

/// Bytes that are read ahead of one connection.
const AHEAD_BYTES: u64 = 12 << 20;

/// So small a part of the cache's memory may be in use for what is read ahead of all connections.
const AHEAD_PART: u64 = 4;

/// An object that a connection has open.
#[derive(Debug)]
pub struct OpenObject {
    name: ObjectName,
    credential: Credential,
    located: Located,
}

/// What was read of one.
#[derive(Debug)]
pub struct ObjectBlock {
    read: ReadData,
    /// Of the data then.
    version: (u64, u64),
    /// If nobody had asked for it.
    _ahead: Option<AheadShare>,
}

/// Bytes that are read ahead now, for all connections.
#[derive(Debug, Default)]
pub(crate) struct AheadBytes(Arc<AtomicU64>);

/// Some of them, until it is dropped.
#[derive(Debug)]
struct AheadShare {
    of: Arc<AtomicU64>,
    bytes: u64,
}

impl AheadBytes {
    /// A share of at most so many; nothing if others have too much of it.
    fn share(&self, bytes: u64, most: u64) -> Option<AheadShare> {
        let add = |used: u64| used.checked_add(bytes).filter(|used| *used <= most);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).ok()?;
        Some(AheadShare { of: Arc::clone(&self.0), bytes })
    }
}

impl Drop for AheadShare {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Where what is to be written is received.
#[derive(Debug)]
pub struct ObjectRoom(Buffer);

/// A request that was granted.
#[derive(Debug)]
pub struct Granted(Grant);

impl Block for ObjectBlock {
    fn slices(&self) -> Vec<&[u8]> {
        self.read.segments.iter().map(|segment| &**segment).collect()
    }

    fn facts(&self) -> Facts {
        let ReadData { logical_size: size, fs_data_modify_time: time, .. } = self.read;
        Facts { size, time, alignment: 1 }
    }
}

impl Room for ObjectRoom {
    fn slices(&mut self) -> Vec<IoSliceMut<'_>> {
        self.0.io_slices_mut()
    }
}

/// What a request needs.
fn access(name: ObjectName, kind: Kind, fields: &Fields) -> Access<'static> {
    on_object(name, fields.rights(kind), fields.bytes(kind))
}

/// What is known of where a credential leads that names no object.
fn nothing_of(credential: &Credential) -> ObjectName {
    let sealed = credential.key.sealed_capability().map(|sealed| sealed.partition);
    let partition = sealed.unwrap_or(credential.key.partition());
    ObjectName { partition, object: ObjectId(0) }
}

impl Drive {
    /// Steps 1-17 for a packet.
    fn permit_packet(
        &self,
        name: ObjectName,
        credential: &Credential,
        request: &Request<'_>,
    ) -> Result<Permit<Granted>, Refused> {
        let packet = request.packet;
        let covered = covered_by_request(packet);
        let shown = (credential, request.shown);
        let claimed = Claimed::of_packet(packet, &covered, shown, name);
        let (fields, grant) = self
            .grant_packet(name, &claimed, request)
            .map_err(|denied| self.refuse_packet(packet, &claimed, denied))?;
        Ok(Permit {
            fields,
            asked: Asked { nonce: packet.nonce },
            protection: grant.authorized.protection(),
            keys: grant.keys.clone(),
            grant: Granted(grant),
        })
    }

    fn grant_packet(
        &self,
        name: ObjectName,
        claimed: &Claimed<'_>,
        request: &Request<'_>,
    ) -> Result<(Fields, Grant), Denied> {
        let now = self.environment.now();
        let Request { packet, shown } = *request;
        let protection = claimed.credential.protection;
        let is_private = protection.contains(Protection::PRIVACY_ARGS);
        let admission = match is_private {
            true => self.admit_private(claimed, now)?,
            false => self.admit(claimed, &access(name, packet.kind, &packet.fields()), now)?,
        };
        let vouched = self.vouch(claimed, admission, now)?;
        let fields = match vouched.keys() {
            Some(keys) => Seal { shown, protection, keys }
                .opened(packet, Way::Request)
                .map_err(|_| Refusal::Digest)?,
            None => packet.fields(),
        };
        let grant = self.record(vouched, now)?;
        if is_private {
            self.admit_opened(&claimed.credential, &access(name, packet.kind, &fields), now)?;
        }
        Ok((fields, grant))
    }

    fn refuse_packet(&self, packet: &Packet, claimed: &Claimed<'_>, denied: Denied) -> Refused {
        let now = self.environment.now();
        let status = match denied {
            Denied::Refused(refusal) => refusal.into(),
            Denied::Failed(error) => status_of(&error),
            Denied::Unknown(status) => status,
        };
        self.counters.count_refusal();
        self.audit.note_refusal(&self.subject_of(claimed), status.into(), now);
        tracing::debug!(?status, "a packet is refused");
        Refused { status, clock: self.window.clock_for(now, &packet.nonce) }
    }

    /// The object that a credential is for; only a capability names one.
    fn object_of(&self, credential: &Credential) -> Result<ObjectName, Refusal> {
        let opened = self.open_credential(credential)?;
        let capability = credential.key.capability().copied().or(opened).ok_or(Refusal::Key)?;
        Ok(ObjectName { partition: capability.partition, object: capability.object })
    }

    fn locate_packet(&self, name: ObjectName) -> Result<Located, Status> {
        if is_synthetic(name.object) || self.elsewhere().is_some() {
            return Err(Status::NotPermitted);
        }
        let located = self.store.locate(name).map_err(|error| status_of(&error))?;
        located.ok_or(Status::NoSuchObject)
    }
}

impl Beside for Drive {
    fn begins(&self) -> [u8; 8] {
        MAGIC
    }

    fn serve(&self, connection: BesideConnection<'_>) {
        let BesideConnection { socket, peer, .. } = connection;
        if let Err(error) =
            nasd_bulk_service::server::serve(self, &self.bulk_sessions, socket, &connection)
        {
            tracing::debug!(%peer, %error, "a bulk connection has ended");
        }
    }
}

impl Backend for Drive {
    type File = OpenObject;
    type Grant = Granted;
    type Block = ObjectBlock;
    type Room = ObjectRoom;

    fn traits(&self) -> Traits {
        let most = MAX_TRANSFER_BYTES as u64;
        Traits { instance: self.instance, most, ahead_bytes: AHEAD_BYTES }
    }

    fn open(
        &self,
        request: &Request<'_>,
        open: &Open<'_>,
    ) -> Result<(Permit<Granted>, Result<OpenObject, Status>), Refused> {
        let packet = request.packet;
        let opaque = OpaqueAuth { flavor: AUTH_FLAVOR, body: open.credential };
        // As of a call: what does not decode says nothing that could be told of it.
        let credential = Credential::from_opaque(&opaque).map_err(|_| {
            self.counters.count_refusal();
            let clock = self.window.clock_for(self.environment.now(), &packet.nonce);
            Refused { status: Refusal::Key.into(), clock }
        })?;
        let name = self.object_of(&credential).map_err(|refusal| {
            let covered = covered_by_request(packet);
            let about = nothing_of(&credential);
            let claimed = Claimed::of_packet(packet, &covered, (&credential, request.shown), about);
            self.refuse_packet(packet, &claimed, refusal.into())
        })?;
        let permit = self.permit_packet(name, &credential, request)?;
        let located = self.locate_packet(name);
        Ok((permit, located.map(|located| OpenObject { name, credential, located })))
    }

    fn permit(&self, file: &OpenObject, request: &Request<'_>) -> Result<Permit<Granted>, Refused> {
        self.permit_packet(file.name, &file.credential, request)
    }

    fn permit_again(
        &self,
        file: &OpenObject,
        permit: &Permit<Granted>,
        request: &Request<'_>,
    ) -> Result<(), Refused> {
        let access = access(file.name, request.packet.kind, &permit.fields);
        let now = self.environment.now();
        let again = self
            .grant_again(&file.credential, &permit.grant.0)
            .and_then(|()| Ok(self.admit_opened(&file.credential, &access, now)?));
        again.map_err(|denied| {
            let covered = covered_by_request(request.packet);
            let shown = (&file.credential, request.shown);
            let claimed = Claimed::of_packet(request.packet, &covered, shown, file.name);
            self.refuse_packet(request.packet, &claimed, denied)
        })
    }

    fn nonce(&self) -> Nonce {
        self.nonces.draw(self.environment.now())
    }

    fn note(&self, permit: &Permit<Granted>, outcome: Result<u64, Status>) {
        let Granted(grant) = &permit.grant;
        // What is written is counted where it is.
        if let (Ok(bytes), true) = (outcome, grant.subject.procedure == Procedure::Read as u16) {
            self.counters.read.add(grant.holder, bytes as usize);
        }
        let status = outcome.map_or_else(u32::from, |_| 0).to_be_bytes();
        self.audit.note_reply(&grant.subject, &status, grant.shows_who_asks, grant.received);
    }

    fn stat(&self, file: &OpenObject) -> Result<Facts, Status> {
        let told = self.store.getattr(file.name).map_err(|error| status_of(&error))?;
        Ok(Facts { size: told.logical_size, time: told.fs_data_modify_time, alignment: 1 })
    }

    /// Numbers of objects are not used again.
    fn identity(&self, file: &OpenObject) -> u64 {
        file.name.object.0
    }

    fn resize(&self, file: &OpenObject, grant: &Granted, size: u64) -> Result<Facts, Status> {
        let Granted(grant) = grant;
        if grant.must_not_be_done {
            return Err(Status::ReadOnly);
        }
        let changes = SetAttributes { logical_size: Some(size), ..SetAttributes::default() };
        let arguments = SetattrArguments { name: file.name, durable: true, changes };
        let (key, now) = (&file.credential.key, grant.received);
        let context = Context { grant, key, now, presence: Presence::ALWAYS };
        let told = Setattr::perform(self, arguments, &context)?.reply.attributes;
        Ok(Facts { size: told.logical_size, time: told.fs_data_modify_time, alignment: 1 })
    }

    fn read(&self, file: &OpenObject, range: ByteRange) -> Result<ObjectBlock, Status> {
        let read = self.store.read_past(&file.located, range);
        let (read, version) = read.map_err(|error| status_of(&error))?;
        Ok(ObjectBlock { read, version, _ahead: None })
    }

    fn ahead(&self, file: &OpenObject, range: ByteRange) -> Option<ObjectBlock> {
        // Frames of the cache, which others have a use for.
        let most = self.store.cache_pressure().frames as u64 * FRAME_BYTES as u64 / AHEAD_PART;
        let share = self.bulk_ahead.share(range.length, most)?;
        let block = self.read(file, range).ok()?;
        Some(ObjectBlock { _ahead: Some(share), ..block })
    }

    fn expect(&self, file: &OpenObject, range: ByteRange) {
        self.store.find_blocks(&file.located, range);
    }

    fn is_current(&self, file: &OpenObject, block: &ObjectBlock) -> bool {
        file.located.data_version() == Some(block.version)
    }

    fn room(&self, file: &OpenObject, range: ByteRange) -> Result<ObjectRoom, Status> {
        let sent = Sent::Write(write_of(file.name, range));
        let buffer = write::buffer_for(self, &sent).map_err(|error| status_of(&error))?;
        Ok(ObjectRoom(buffer))
    }

    fn write(
        &self,
        file: &OpenObject,
        grant: &Granted,
        range: ByteRange,
        (ObjectRoom(buffer), _durable): (ObjectRoom, bool),
    ) -> Result<Facts, Status> {
        let now = self.environment.now();
        let written = write::apply(self, &write_of(file.name, range), buffer, &grant.0, now)?;
        let (size, time) = (written.logical_size, written.fs_data_modify_time);
        Ok(Facts { size, time, alignment: 1 })
    }

    fn sync(&self, file: &OpenObject, _grant: &Granted) -> Result<Facts, Status> {
        self.flush(&[file.name])?;
        self.stat(file)
    }
}

/// A write of one range that is durable when it is answered.
fn write_of(name: ObjectName, range: ByteRange) -> WriteArguments {
    WriteArguments {
        name,
        durable: true,
        order: None,
        regions: vec![Region::single(range.offset, range.length)],
        data_length: range.length as usize,
    }
}
