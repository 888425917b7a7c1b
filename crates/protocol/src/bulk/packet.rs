//! The packet: twenty words of 64 bits, the same for every request and every answer.

use nasd_capability::{DIGEST_BYTES, DataTag, Digest, NONCE_BYTES, Nonce};
use nasd_types::limits::MAX_OBJECT_BYTES;
use nasd_types::{ByteRange, Rights, Timestamp};
use thiserror::Error;

use super::Options;
use crate::Status;
use crate::drive::Procedure;

/// Bytes of a packet.
pub const PACKET_BYTES: usize = 160;

/// "NASDBLK1" in ASCII: the protocol and its version. No RPC record and no TLS message begins like this.
pub const MAGIC: [u8; 8] = *b"NASDBLK1";

/// The bit of the second word that answers have.
const ANSWER: u64 = 1 << 63;

/// Bytes of [`Fields`], which PRIVACY_ARGS encrypts.
pub const FIELDS_BYTES: usize = 64;

/// Bytes that a digest covers: all before the nonce.
pub const COVERED_BYTES: usize = 32 + FIELDS_BYTES + DIGEST_BYTES;

/// What is asked for. Numbers are those of the drive's procedures that do the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Begins a connection: which file, and by what authority. Its payload is an [`super::Open`].
    Open,
    /// How long the file is, and when it was changed.
    Stat,
    /// Sets the file's length.
    Resize,
    /// Data of the file. The answer's payload are its bytes.
    Read,
    /// Data for the file: the payload.
    Write,
    /// Makes durable what was written.
    Sync,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 6] =
        [Kind::Open, Kind::Stat, Kind::Resize, Kind::Read, Kind::Write, Kind::Sync];

    /// Its number in packets.
    pub const fn code(self) -> u64 {
        match self {
            Kind::Open => 0,
            other => other.procedure() as u64,
        }
    }

    /// The drive's procedure that needs the same rights.
    pub const fn procedure(self) -> Procedure {
        match self {
            // It tells what `getattr` tells.
            Kind::Open | Kind::Stat => Procedure::Getattr,
            Kind::Resize => Procedure::Setattr,
            Kind::Read => Procedure::Read,
            Kind::Write => Procedure::Write,
            Kind::Sync => Procedure::Flush,
        }
    }

    /// What a capability must allow for it at least.
    pub const fn rights(self) -> Rights {
        match self {
            Kind::Open | Kind::Stat => Rights::GETATTR,
            Kind::Resize => Rights::SETATTR,
            Kind::Read => Rights::READ,
            Kind::Write => Rights::WRITE,
            Kind::Sync => Rights::FLUSH,
        }
    }

    fn from_code(code: u64) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Whether the payload of such a packet is data of the file.
    pub const fn carries_data(self, is_answer: bool) -> bool {
        matches!((self, is_answer), (Kind::Read, true) | (Kind::Write, false))
    }
}

/// What a packet says, in the clear or encrypted as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// In answers: 0, or the number of a [`Status`].
    pub status: u64,
    /// In the file, in bytes; of an open, the session, or 0 for none. The answer repeats it.
    pub offset: u64,
    /// Of a request: bytes that are wanted or brought; of `Resize`, the new length of the file; of an open, how long reads
    /// will be, from the beginning on, or 0. Of an answer: bytes that were read or written; of that to an open, a number of
    /// the file, which no other has that was, or will be, found in its place.
    pub length: u64,
    /// Of a request, [`super::Options`]. Of the answer to an open: bytes of which offsets, lengths, and addresses in memory
    /// at the server are multiples.
    pub options: u64,
    /// In answers: the file's length in bytes.
    pub size: u64,
    /// In answers: another number after each start of the server, which may have lost what was not durable.
    pub instance: u64,
    /// In answers: when the file's data were changed, in nanoseconds since 1970.
    pub time: u64,
    /// In the answer to an open: most bytes of one read or write.
    pub most: u64,
}

impl Fields {
    /// As words, one after the other.
    pub fn to_bytes(&self) -> [u8; FIELDS_BYTES] {
        let Fields { status, offset, length, options, size, instance, time, most } = *self;
        let mut bytes = [0; FIELDS_BYTES];
        let words = [status, offset, length, options, size, instance, time, most];
        for (into, word) in bytes.chunks_exact_mut(8).zip(words) {
            into.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// The reverse.
    pub fn from_bytes(bytes: &[u8; FIELDS_BYTES]) -> Fields {
        let word = |number: usize| word(bytes, 8 * number);
        Fields {
            status: word(0),
            offset: word(1),
            length: word(2),
            options: word(3),
            size: word(4),
            instance: word(5),
            time: word(6),
            most: word(7),
        }
    }

    /// What a capability must allow for a request of some kind: for an open, besides, what the file is opened for.
    pub fn rights(&self, kind: Kind) -> Rights {
        let options = Options::from_bits_retain(self.options);
        let wanted = |option, right| match kind == Kind::Open && options.contains(option) {
            true => right,
            false => Rights::empty(),
        };
        kind.rights() | wanted(Options::READ, Rights::READ) | wanted(Options::WRITE, Rights::WRITE)
    }

    /// The bytes of the file that a request of some kind is about, which a capability's region must have.
    pub fn bytes(&self, kind: Kind) -> Option<ByteRange> {
        match kind {
            Kind::Read | Kind::Write => Some(ByteRange::new(self.offset, self.length)),
            // A new length cuts off, or adds, all that lies behind it.
            Kind::Resize => {
                let behind = MAX_OBJECT_BYTES.saturating_sub(self.length);
                Some(ByteRange::new(self.length, behind))
            }
            Kind::Open | Kind::Stat | Kind::Sync => None,
        }
    }

    /// What an answer says went wrong, if anything; a status that is unknown here is the drive's fault.
    pub fn failure(&self) -> Option<Status> {
        let status = |code| Status::try_from(code).unwrap_or(Status::DriveFault);
        match self.status {
            0 => None,
            code => Some(u32::try_from(code).map_or(Status::DriveFault, status)),
        }
    }
}

/// A packet, whose fields may be encrypted still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// What is asked for, or was.
    pub kind: Kind,
    /// Whether it answers.
    pub is_answer: bool,
    /// Chosen by who asks, and repeated by the answer.
    pub number: u64,
    /// Bytes that follow.
    pub payload: u64,
    /// [`Fields`], or what they were encrypted to.
    pub private: [u8; FIELDS_BYTES],
    /// The tag of that encryption; zeros without.
    pub seal: [u8; DIGEST_BYTES],
    /// Fresh. In a refusal its time is the server's clock.
    pub nonce: Nonce,
    /// Proves all words before, in requests together with the credential of the open, in answers with the nonce that was
    /// asked with. Zeros with NO_PROTECTION and in refusals.
    pub digest: Digest,
    /// Of the payload, where that is data and covered; else zeros.
    pub tag: DataTag,
}

/// Why bytes are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PacketError {
    /// It begins otherwise.
    #[error("it does not begin with the eight bytes NASDBLK1")]
    Magic,
    /// Of a kind that is not known here.
    #[error("packets of kind {0:#x} are unknown here")]
    Kind(u64),
}

impl Packet {
    /// A request with nothing proved yet.
    pub fn request(kind: Kind, number: u64, payload: u64, fields: &Fields) -> Packet {
        Packet {
            kind,
            is_answer: false,
            number,
            payload,
            private: fields.to_bytes(),
            seal: [0; DIGEST_BYTES],
            nonce: Nonce::default(),
            digest: Digest::ZERO,
            tag: DataTag::default(),
        }
    }

    /// The answer to it with nothing proved yet.
    pub fn answer(&self, payload: u64, fields: &Fields) -> Packet {
        let request = Packet::request(self.kind, self.number, payload, fields);
        Packet { is_answer: true, ..request }
    }

    /// What it says, if that is in the clear.
    pub fn fields(&self) -> Fields {
        Fields::from_bytes(&self.private)
    }

    /// As it is sent.
    pub fn to_bytes(&self) -> [u8; PACKET_BYTES] {
        let mut bytes = [0; PACKET_BYTES];
        let (covered, proof) = bytes.split_at_mut(COVERED_BYTES);
        covered.copy_from_slice(&self.covered());
        proof[..NONCE_BYTES].copy_from_slice(&self.nonce.to_bytes());
        proof[16..32].copy_from_slice(&self.digest.0);
        proof[32..].copy_from_slice(&self.tag.0);
        bytes
    }

    /// The bytes of it that its digest covers.
    pub fn covered(&self) -> [u8; COVERED_BYTES] {
        let mut bytes = [0; COVERED_BYTES];
        let kind = self.kind.code() | if self.is_answer { ANSWER } else { 0 };
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&kind.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.payload.to_be_bytes());
        bytes[32..32 + FIELDS_BYTES].copy_from_slice(&self.private);
        bytes[32 + FIELDS_BYTES..].copy_from_slice(&self.seal);
        bytes
    }

    /// The reverse of [`Packet::to_bytes`].
    ///
    /// # Errors
    ///
    /// [`PacketError`]: whoever has sent it speaks something else.
    pub fn from_bytes(bytes: &[u8; PACKET_BYTES]) -> Result<Packet, PacketError> {
        if bytes[..8] != MAGIC {
            return Err(PacketError::Magic);
        }
        let code = word(bytes, 8);
        let kind = Kind::from_code(code & !ANSWER).ok_or(PacketError::Kind(code))?;
        let timestamp = Timestamp(word(bytes, COVERED_BYTES));
        Ok(Packet {
            kind,
            is_answer: code & ANSWER != 0,
            number: word(bytes, 16),
            payload: word(bytes, 24),
            private: array(bytes, 32),
            seal: array(bytes, 32 + FIELDS_BYTES),
            nonce: Nonce { timestamp, unique: word(bytes, COVERED_BYTES + 8) },
            digest: Digest(array(bytes, COVERED_BYTES + 16)),
            tag: DataTag(array(bytes, COVERED_BYTES + 32)),
        })
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array(bytes, at))
}

/// The bytes there, which the layout has.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..].first_chunk().copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kinds() -> impl Strategy<Value = Kind> {
        prop::sample::select(&Kind::ALL[..])
    }

    fn fields() -> impl Strategy<Value = Fields> {
        any::<[u64; 8]>().prop_map(
            |[status, offset, length, options, size, instance, time, most]| Fields {
                status,
                offset,
                length,
                options,
                size,
                instance,
                time,
                most,
            },
        )
    }

    fn packets() -> impl Strategy<Value = Packet> {
        let front = (kinds(), any::<bool>(), any::<[u64; 2]>(), fields());
        let proof = (any::<[u64; 2]>(), any::<[[u8; DIGEST_BYTES]; 3]>());
        (front, proof).prop_map(|(front, ([timestamp, unique], [seal, digest, tag]))| {
            let (kind, is_answer, [number, payload], fields) = front;
            Packet {
                kind,
                is_answer,
                number,
                payload,
                private: fields.to_bytes(),
                seal,
                nonce: Nonce { timestamp: Timestamp(timestamp), unique },
                digest: Digest(digest),
                tag: DataTag(tag),
            }
        })
    }

    /// Any bytes, of which most begin as packets do, so that more than the beginning is looked at.
    fn packet_bytes() -> impl Strategy<Value = [u8; PACKET_BYTES]> {
        let codes =
            prop_oneof![0..12_u64, any::<u64>(), (0..12_u64).prop_map(|code| code | ANSWER)];
        let bytes = prop::collection::vec(any::<u8>(), PACKET_BYTES);
        (bytes, codes, prop::bool::weighted(0.9)).prop_map(|(bytes, code, begins_as_one)| {
            let mut packet: [u8; PACKET_BYTES] = bytes.try_into().unwrap();
            if begins_as_one {
                packet[..8].copy_from_slice(&MAGIC);
                packet[8..16].copy_from_slice(&code.to_be_bytes());
            }
            packet
        })
    }

    proptest! {
        #[test]
        fn packets_survive_the_wire_whatever_their_fields_are(packet in packets()) {
            let bytes = packet.to_bytes();
            prop_assert_eq!(Packet::from_bytes(&bytes), Ok(packet.clone()));
            prop_assert_eq!(&bytes[..COVERED_BYTES], &packet.covered()[..]);
        }

        #[test]
        fn fields_survive_the_wire(fields in fields()) {
            prop_assert_eq!(Fields::from_bytes(&fields.to_bytes()), fields);
        }

        #[test]
        fn bytes_are_one_packet_exactly_or_none(bytes in packet_bytes()) {
            match Packet::from_bytes(&bytes) {
                Ok(packet) => prop_assert_eq!(packet.to_bytes(), bytes),
                Err(PacketError::Magic) => prop_assert_ne!(&bytes[..8], &MAGIC),
                Err(PacketError::Kind(code)) => {
                    prop_assert_eq!(code, word(&bytes, 8));
                    prop_assert!(Kind::ALL.iter().all(|kind| kind.code() != code & !ANSWER));
                }
            }
        }

        #[test]
        fn two_packets_that_differ_differ_in_what_digests_cover_or_in_the_proof(
            packet in packets(),
            bit in 0..8 * PACKET_BYTES,
        ) {
            let mut bytes = packet.to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(other) = Packet::from_bytes(&bytes) {
                prop_assert_eq!(other.covered() != packet.covered(), bit < 8 * COVERED_BYTES);
                prop_assert_ne!(other, packet);
            }
        }

        #[test]
        fn an_answer_is_to_its_request_and_proves_nothing_yet(
            request in packets(),
            payload: u64,
            fields in fields(),
        ) {
            let answer = request.answer(payload, &fields);
            prop_assert!(answer.is_answer);
            prop_assert_eq!((answer.kind, answer.number), (request.kind, request.number));
            prop_assert_eq!((answer.payload, answer.fields()), (payload, fields));
            prop_assert_eq!((answer.digest, answer.tag), (Digest::ZERO, DataTag::default()));
        }
    }

    #[test]
    fn kinds_are_told_apart_by_their_numbers_alone() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_code(kind.code()), Some(kind));
            assert_eq!(kind.code() & ANSWER, 0);
        }
        assert_eq!(Kind::from_code(ANSWER), None);
        assert_eq!(Kind::from_code(1), None);
    }

    #[test]
    fn a_region_must_have_what_is_read_written_and_cut_off() {
        let fields = Fields { offset: 10, length: 20, ..Fields::default() };
        let bytes = |kind| fields.bytes(kind).map(|range| (range.offset, range.end()));
        assert_eq!(bytes(Kind::Read), Some((10, 30)));
        assert_eq!(bytes(Kind::Write), Some((10, 30)));
        assert_eq!(bytes(Kind::Resize), Some((20, MAX_OBJECT_BYTES)));
        for kind in [Kind::Open, Kind::Stat, Kind::Sync] {
            assert_eq!(bytes(kind), None);
        }
        // No sum of the two runs over, so that no range looks shorter than it is.
        let fields = Fields { offset: u64::MAX - 5, length: 20, ..Fields::default() };
        assert_eq!(fields.bytes(Kind::Read).map(|range| range.end()), Some(u64::MAX));
    }

    #[test]
    fn a_failure_is_never_taken_for_success() {
        let failure = |status| Fields { status, ..Fields::default() }.failure();
        assert_eq!(failure(0), None);
        for &status in Status::ALL {
            assert_eq!(failure(u64::from(u32::from(status))), Some(status));
        }
        // Neither a status that is unknown here, nor one that is 0 in 32 bits.
        for status in [99, 1 << 32, u64::MAX, (1 << 32) + 101] {
            assert_eq!(failure(status), Some(Status::DriveFault));
        }
    }
}
