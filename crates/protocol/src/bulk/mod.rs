//! The bulk protocol: big files at the speed of disk and wire (`specs/bulk.md`).
//!
//! A connection is one open file. Requests and answers are [`Packet`]s of one size, with fields of 64 bits, and data
//! follow right behind the packet that announces them. Requests carry their seek pointer, so that they may be answered in
//! any order and be made again; any number may be under way.
//!
//! * [`packet`]: the packet.
//! * [`open`]: what begins a connection.
//! * [`sealing`]: how packets are proved and encrypted: as calls of a drive are.

pub mod open;
pub mod packet;
pub mod sealing;

pub use open::{MAX_OPEN_BYTES, MAX_PLACE_BYTES, Open, OpenError, Options};
pub use packet::{COVERED_BYTES, Fields, Kind, MAGIC, PACKET_BYTES, Packet, PacketError};
pub use sealing::{Asked, Seal, SealError, covered_by_request, covered_data, shown};

/// In digests in the place of an RPC program's number, so that no packet is taken for a call of a drive: "BULK" in ASCII.
pub const PROGRAM: u32 = u32::from_be_bytes(*b"BULK");

/// Version of the protocol.
pub const VERSION: u32 = 1;
