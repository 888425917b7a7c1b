//! `ticket`: the means to open a file over the bulk service.

use bitflags::bitflags;
use nasd_types::Timestamp;
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{DeskPath, FileFacts, Operation, Procedure};
use crate::bulk::MAX_PLACE_BYTES;
use crate::manager::IssuedCapability;
use crate::wire::{Field, message};

/// The operation.
#[derive(Debug)]
pub enum Ticket {}

impl Operation for Ticket {
    const PROCEDURE: Procedure = Procedure::Ticket;
    type Arguments = TicketArguments;
    type Reply = IssuedTicket;
}

bitflags! {
    /// What is wanted of a file.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Wanted: u32 {
        /// To read it.
        const READ = 1;
        /// To write it, and to set its length.
        const WRITE = 2;
        /// To make it if there is none.
        const CREATE = 4;
        /// With `CREATE`: to fail if the name is taken.
        const EXCLUSIVE = 8;
        /// With `WRITE`: to make it empty.
        const TRUNCATE = 16;
    }
}

impl Wanted {
    /// Whether all bits have a meaning, and that together.
    pub const fn is_meaningful(self) -> bool {
        let transfers = self.intersects(Wanted::READ.union(Wanted::WRITE));
        let is_known = self.difference(Wanted::all()).is_empty();
        let is_exclusive_new = !self.contains(Wanted::EXCLUSIVE) || self.contains(Wanted::CREATE);
        let is_written_empty = !self.contains(Wanted::TRUNCATE) || self.contains(Wanted::WRITE);
        transfers && is_known && is_exclusive_new && is_written_empty
    }
}

/// Unknown bits are kept, so that they can be refused as `Invalid`.
impl Field for Wanted {
    fn put(&self, out: &mut Encoder) {
        out.u32(self.bits());
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Wanted::from_bits_retain(input.u32()?))
    }
}

message! {
    /// Arguments (`nasd_ticket_arguments`).
    pub struct TicketArguments {
        /// Which file.
        pub path: DeskPath,
        /// What of it.
        pub wanted: Wanted,
        /// Permission bits of a file that is made, 07777; the caller's umask is already applied.
        pub mode: u32,
        /// How long it is to be good (`lifetime`), in nanoseconds; 0: as the server likes.
        pub lifetime_ns: u64,
    }
}

/// A ticket (`nasd_ticket`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedTicket {
    /// The capability, always with its sealed form.
    pub capability: IssuedCapability,
    /// Where the file is, in words of the server's own: for the open.
    pub place: Vec<u8>,
    /// The server's clock.
    pub time: Timestamp,
    /// How the file is.
    pub facts: FileFacts,
}

impl XdrEncode for IssuedTicket {
    fn encode(&self, out: &mut Encoder) {
        self.capability.put(out);
        out.opaque(&self.place);
        self.time.put(out);
        self.facts.put(out);
    }
}

impl XdrDecode for IssuedTicket {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(IssuedTicket {
            capability: Field::take(input)?,
            place: input.opaque(MAX_PLACE_BYTES)?.to_vec(),
            time: Field::take(input)?,
            facts: Field::take(input)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_have_a_meaning_together() {
        for bits in 0..64 {
            let wanted = Wanted::from_bits_retain(bits);
            let has = |bit: u32| bits & bit != 0;
            let is_meaningful = has(3) && bits < 32 && (!has(8) || has(4)) && (!has(16) || has(2));
            assert_eq!(wanted.is_meaningful(), is_meaningful, "{bits}");
        }
    }
}
