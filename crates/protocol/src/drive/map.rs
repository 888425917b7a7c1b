//! `map`: where the components of an object of a virtual drive are, and capabilities for them.
//!
//! Beyond Table 1 (CMU-CS-97-118 section 3.3). Drives whose objects are their own refuse it.

use nasd_types::{DriveId, ObjectName};
use nasd_xdr::{Decoder, Encoder, XdrError, xdr_enum};

use super::{Operation, Procedure};
use crate::limits::{MAX_ADDRESS_BYTES, MAX_COMPONENTS};
use crate::manager::IssuedCapability;
use crate::wire::{Field, field_by_xdr, message, put_array, take_array};

/// The operation.
#[derive(Debug)]
pub enum Map {}

impl Operation for Map {
    const PROCEDURE: Procedure = Procedure::Map;
    type Arguments = MapArguments;
    type Reply = ObjectMap;
}

message! {
    /// Arguments (`nasd_map_arguments`).
    #[derive(Copy)]
    pub struct MapArguments {
        /// Which object of the virtual drive.
        pub name: ObjectName,
        /// Whether it is to be written: then there are components for all bytes before `end`, and
        /// capabilities allow writing if the one that was shown does.
        pub write: bool,
        /// The byte behind the last one that is to be written soon.
        pub end: u64,
        /// Who asks: a number that the client draws at its start, by which it says later that it has ended its
        /// writes.
        pub client: u64,
    }
}

xdr_enum! {
    /// What a component is good for (`nasd_member_state`).
    pub enum MemberState {
        /// It has all that was written: it is read and written.
        Current = 0,
        /// It is being given what was written before: it is written, and not read yet.
        Joining = 1,
        /// It is gone, or has missed writes: neither.
        Out = 2,
    }
}

field_by_xdr!(MemberState);

/// One component of an object (`nasd_component`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// The drive that it is on.
    pub drive: DriveId,
    /// Where that drive is, `HOST:PORT`; at most [`MAX_ADDRESS_BYTES`] bytes.
    pub address: String,
    /// What it is good for.
    pub state: MemberState,
    /// Both halves of a capability for it; none where there is no component, or nobody may use it.
    pub capability: Option<IssuedCapability>,
}

impl Field for Component {
    fn put(&self, out: &mut Encoder) {
        self.drive.put(out);
        out.string(&self.address);
        self.state.put(out);
        self.capability.put(out);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Component {
            drive: Field::take(input)?,
            address: input.string(MAX_ADDRESS_BYTES)?.to_owned(),
            state: Field::take(input)?,
            capability: Field::take(input)?,
        })
    }
}

crate::wire::xdr_by_field!(Component);

/// For how long after it has asked for any map of a virtual drive a client may read by the maps of the same
/// generation: who is not to be read any more is written past only when that has passed. (A write by an old
/// map is refused.)
pub const MAP_LEASE: std::time::Duration = std::time::Duration::from_millis(1000);

/// The answer (`nasd_object_map`): what `nasd_layout` needs to tell where each byte is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectMap {
    /// Rises whenever a drive takes the place of another, goes or comes.
    pub generation: u64,
    /// Bytes of a stripe unit.
    pub unit: u64,
    /// How often each byte is kept.
    pub copies: u32,
    /// Whether bytes behind the first unit have components. If not, those of the first column are all there
    /// are.
    pub is_spread: bool,
    /// Whether any copy of a byte may be read, as nobody may write as long as these capabilities are good. If
    /// not, the first that is current decides.
    pub is_even: bool,
    /// The components, in the order of columns, as many as the stripe is wide; then those of stand-ins.
    pub components: Vec<Component>,
    /// For each stand-in, which component's place it is about to take: it is joining, and written as that one is.
    pub stand_ins: Vec<u32>,
    /// If copies are to be written by it: what tells it from others that the client was given, for
    /// [`Endwrites`](super::Endwrites). Else 0.
    pub turn: u64,
}

impl Field for ObjectMap {
    fn put(&self, out: &mut Encoder) {
        out.u64(self.generation);
        out.u64(self.unit);
        out.u32(self.copies);
        self.is_spread.put(out);
        self.is_even.put(out);
        put_array(&self.components, out);
        put_array(&self.stand_ins, out);
        out.u64(self.turn);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(ObjectMap {
            generation: input.u64()?,
            unit: input.u64()?,
            copies: input.u32()?,
            is_spread: Field::take(input)?,
            is_even: Field::take(input)?,
            components: take_array(input, MAX_COMPONENTS)?,
            stand_ins: take_array(input, MAX_COMPONENTS)?,
            turn: input.u64()?,
        })
    }
}

crate::wire::xdr_by_field!(ObjectMap);
