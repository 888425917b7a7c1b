//! How packets are proved and encrypted: as calls of a drive are, with what they say in the place of arguments.
//!
//! A request's digest covers program, version and procedure, what is *shown*, and the packet up to its nonce. An open shows its whole
//! payload; each other request the credential and the nonce of the answer to the open, so that it is of use on no other
//! connection. An answer's digest covers the packet up to its nonce, and is bound to the nonce that was asked with. With PRIVACY_ARGS the fields
//! are encrypted where they are. Data have a tag, which the digest covers, and are encrypted with PRIVACY_DATA, exactly as in
//! calls (`nasd_capability::digest`).

use nasd_capability::{
    Altered, CoveredData, DataTag, Digest, DigestKeys, Nonce, Way, procedure_bytes,
};
use nasd_types::Protection;
use thiserror::Error;

use super::packet::{COVERED_BYTES, FIELDS_BYTES};
use super::{Fields, PROGRAM, Packet, VERSION};

/// What proves packets of one open file.
#[derive(Clone, Copy, Debug)]
pub struct Seal<'a> {
    /// What requests show: see [`shown`].
    pub shown: &'a [u8],
    /// How packets are protected.
    pub protection: Protection,
    /// Whose digests are right. Not used with NO_PROTECTION.
    pub keys: &'a DigestKeys,
}

/// What requests behind an open show: its credential, and the nonce that it was answered with.
pub fn shown(credential: &[u8], answered: &Nonce) -> Vec<u8> {
    [credential, &answered.to_bytes()].concat()
}

/// What the digest of a request covers besides what is shown, which is between these two.
pub fn covered_by_request(packet: &Packet) -> ([u8; 12], [u8; COVERED_BYTES]) {
    (procedure_bytes(PROGRAM, VERSION, packet.kind.procedure().into()), packet.covered())
}

/// What the data of a packet that is protected so must be, if its digest covers any.
pub fn covered_data(packet: &Packet, protection: Protection) -> Option<CoveredData> {
    // An answer that something failed has none. No data go uncovered because their tag is zeros.
    let has_none = packet.is_answer && packet.payload == 0 && packet.tag == DataTag::default();
    let is_covered = packet.kind.carries_data(packet.is_answer)
        && protection.contains(Protection::INTEGRITY_DATA)
        && !has_none;
    is_covered.then_some(CoveredData { length: packet.payload, tag: packet.tag })
}

/// Which request an answer is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its nonce.
    pub nonce: Nonce,
}

/// Why a packet proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SealError {
    /// Its digest is that of another packet, of another key, or of nothing.
    #[error("the digest of a packet is not right: it was altered, or made with another key")]
    Digest,
    /// What was encrypted was altered.
    #[error(transparent)]
    Altered(#[from] Altered),
}

impl Seal<'_> {
    fn has(&self, option: Protection) -> bool {
        self.protection.contains(option)
    }

    /// Proves a request with that nonce, and encrypts what it says where that is wanted. `data` is what is covered of its
    /// data.
    pub fn request(&self, packet: &mut Packet, nonce: Nonce, data: Option<CoveredData>) {
        self.prove(packet, nonce, Way::Request, None, data);
    }

    /// The same of an answer.
    pub fn answer(&self, packet: &mut Packet, nonce: Nonce, to: Asked, data: Option<CoveredData>) {
        self.prove(packet, nonce, Way::Reply, Some(to), data);
    }

    fn prove(
        &self,
        packet: &mut Packet,
        nonce: Nonce,
        way: Way,
        asked: Option<Asked>,
        data: Option<CoveredData>,
    ) {
        packet.nonce = nonce;
        if self.protection.is_empty() {
            return;
        }
        if self.has(Protection::PRIVACY_ARGS) {
            let mut sealed = packet.private.to_vec();
            self.keys.seal_args(way, &nonce, &mut sealed);
            let (fields, seal) = sealed.split_at(FIELDS_BYTES);
            packet.private.copy_from_slice(fields);
            packet.seal.copy_from_slice(seal);
        }
        packet.tag = data.map_or_else(Default::default, |data| data.tag);
        packet.digest = self.digest(packet, asked, data.as_ref());
    }

    fn digest(&self, packet: &Packet, asked: Option<Asked>, data: Option<&CoveredData>) -> Digest {
        let (procedure, said) = covered_by_request(packet);
        match asked {
            None => {
                let covered: [&[u8]; 3] = [&procedure, self.shown, &said];
                self.keys.request(&packet.nonce, &covered, data)
            }
            Some(asked) => self.keys.reply(&asked.nonce, &packet.nonce, &[&said], data),
        }
    }

    /// What a packet's data must be, if its digest covers any.
    pub fn covered_data(&self, packet: &Packet) -> Option<CoveredData> {
        covered_data(packet, self.protection)
    }

    /// What an answer says, if its digest is right. Its data are to be checked when they have come, against
    /// [`Seal::covered_data`].
    ///
    /// # Errors
    ///
    /// [`SealError`] if it was not made by whoever has the key, for this request.
    pub fn open_answer(&self, packet: &Packet, to: Asked) -> Result<Fields, SealError> {
        if self.protection.is_empty() {
            return Ok(packet.fields());
        }
        let data = self.covered_data(packet);
        if self.digest(packet, Some(to), data.as_ref()) != packet.digest {
            return Err(SealError::Digest);
        }
        self.opened(packet, Way::Reply)
    }

    /// What a packet says whose digest is right.
    ///
    /// # Errors
    ///
    /// [`SealError::Altered`], which only who has the key can bring about.
    pub fn opened(&self, packet: &Packet, way: Way) -> Result<Fields, SealError> {
        if !self.has(Protection::PRIVACY_ARGS) {
            return Ok(packet.fields());
        }
        let sealed = [&packet.private[..], &packet.seal].concat();
        let opened = self.keys.open_args(way, &packet.nonce, &sealed)?;
        Ok(Fields::from_bytes(opened.first_chunk().ok_or(Altered)?))
    }
}

#[cfg(test)]
mod tests {
    use nasd_capability::{SecretKey, Suite};
    use nasd_types::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use crate::bulk::{Kind, Open, PACKET_BYTES};

    const CREDENTIAL: &[u8] = b"who comes";
    const ASKED: Asked = Asked { nonce: nonce(1) };
    const SAID: Fields = Fields {
        status: 0,
        offset: 4096,
        length: 11,
        options: 4,
        size: 5000,
        instance: 7,
        time: 9,
        most: 1 << 20,
    };
    /// Of a packet, what nothing covers where data are not covered: the tag.
    const PROVED_BYTES: usize = PACKET_BYTES - 16;

    const fn nonce(unique: u64) -> Nonce {
        Nonce { timestamp: Timestamp(1_700_000_000_000_000_000), unique }
    }

    fn keys(suite: Suite, byte: u8) -> DigestKeys {
        DigestKeys::new(&SecretKey::new([byte; 32]), suite)
    }

    fn seal(keys: &DigestKeys, protection: Protection) -> Seal<'_> {
        Seal { shown: CREDENTIAL, protection, keys }
    }

    /// Every protection that proves anything.
    fn protections() -> Vec<Protection> {
        let all = (0..16).map(Protection::from_bits_retain);
        all.filter(|protection| protection.is_understood() && !protection.is_empty()).collect()
    }

    /// Every suite of this processor with every protection.
    fn cases() -> impl Iterator<Item = (DigestKeys, Protection)> {
        let suites = Suite::available().iter();
        suites.flat_map(|suite| protections().into_iter().map(|each| (keys(*suite, 5), each)))
    }

    /// Data as they are sent, and what the digest covers of them.
    fn sent(seal: &Seal<'_>, way: Way, at: &Nonce, data: &[u8]) -> (Vec<u8>, Option<CoveredData>) {
        if seal.has(Protection::PRIVACY_DATA) {
            let mut sealed = vec![0; data.len()];
            let tag = seal.keys.seal_data(way, at, &[data], &mut sealed);
            return (sealed, Some(CoveredData { length: data.len() as u64, tag }));
        }
        let covers = seal.has(Protection::INTEGRITY_DATA);
        (data.to_vec(), covers.then(|| seal.keys.data(way, at, &[data])))
    }

    /// Data of a packet that were received, if they are those that its digest covers.
    fn received(seal: &Seal<'_>, way: Way, packet: &Packet, data: &[u8]) -> Option<Vec<u8>> {
        let covered = seal.covered_data(packet)?;
        let mut data = data.to_vec();
        let is_right = match seal.has(Protection::PRIVACY_DATA) {
            true => seal.keys.open_data(way, &packet.nonce, &covered.tag, &mut data).is_ok(),
            false => seal.keys.data(way, &packet.nonce, &[&data]) == covered,
        };
        is_right.then_some(data)
    }

    /// What a server does with a request: `None` if it is refused.
    fn taken(seal: &Seal<'_>, packet: &Packet) -> Option<Fields> {
        let (procedure, said) = covered_by_request(packet);
        let covered: [&[u8]; 3] = [&procedure, seal.shown, &said];
        let data = seal.covered_data(packet);
        let digest = seal.keys.request(&packet.nonce, &covered, data.as_ref());
        let is_right = digest == packet.digest;
        is_right.then(|| seal.opened(packet, Way::Request).ok()).flatten()
    }

    fn request(seal: &Seal<'_>, kind: Kind, data: &[u8]) -> (Packet, Vec<u8>) {
        let mut packet = Packet::request(kind, 3, data.len() as u64, &SAID);
        let (data, covered) = sent(seal, Way::Request, &ASKED.nonce, data);
        let covered = covered.filter(|_| kind.carries_data(false));
        seal.request(&mut packet, ASKED.nonce, covered);
        (packet, data)
    }

    fn answer(seal: &Seal<'_>, to: Asked, kind: Kind, data: &[u8]) -> (Packet, Vec<u8>) {
        let asked = Packet::request(kind, 3, 0, &Fields::default());
        let mut packet = asked.answer(data.len() as u64, &SAID);
        let (data, covered) = sent(seal, Way::Reply, &nonce(2), data);
        let covered = covered.filter(|_| kind.carries_data(true));
        seal.answer(&mut packet, nonce(2), to, covered);
        (packet, data)
    }

    /// The packet after each flip of one bit that still makes a packet.
    fn flipped(packet: &Packet, bytes: usize) -> impl Iterator<Item = (usize, Packet)> {
        let whole = packet.to_bytes();
        (0..8 * bytes).filter_map(move |bit| {
            let mut bytes = whole;
            bytes[bit / 8] ^= 1 << (bit % 8);
            Packet::from_bytes(&bytes).ok().map(|packet| (bit, packet))
        })
    }

    /// How much of such a packet is proved.
    fn proved_bytes(seal: &Seal<'_>, kind: Kind, is_answer: bool) -> usize {
        let covers = seal.has(Protection::INTEGRITY_DATA) && kind.carries_data(is_answer);
        if covers { PACKET_BYTES } else { PROVED_BYTES }
    }

    #[test]
    fn what_is_sealed_is_opened_again() {
        for (keys, protection) in cases() {
            let seal = seal(&keys, protection);
            for kind in Kind::ALL {
                let (packet, data) = request(&seal, kind, b"hello, disk");
                assert_eq!(taken(&seal, &packet), Some(SAID), "{kind:?} {protection:?}");
                assert_eq!(packet.fields() == SAID, !seal.has(Protection::PRIVACY_ARGS));
                let is_covered = proved_bytes(&seal, kind, false) == PACKET_BYTES;
                let expected = is_covered.then(|| b"hello, disk".to_vec());
                assert_eq!(received(&seal, Way::Request, &packet, &data), expected);

                let (packet, data) = answer(&seal, ASKED, kind, b"hello, disk");
                assert_eq!(seal.open_answer(&packet, ASKED), Ok(SAID), "{kind:?} {protection:?}");
                let is_covered = proved_bytes(&seal, kind, true) == PACKET_BYTES;
                let expected = is_covered.then(|| b"hello, disk".to_vec());
                assert_eq!(received(&seal, Way::Reply, &packet, &data), expected);
            }
        }
    }

    #[test]
    fn every_flipped_bit_of_a_packet_is_found() {
        for (keys, protection) in cases() {
            let seal = seal(&keys, protection);
            for kind in Kind::ALL {
                let (packet, _) = request(&seal, kind, b"hello, disk");
                let bytes = proved_bytes(&seal, kind, false);
                for (bit, packet) in flipped(&packet, bytes) {
                    assert_eq!(taken(&seal, &packet), None, "{kind:?} {protection:?} {bit}");
                }
                let (packet, _) = answer(&seal, ASKED, kind, b"hello, disk");
                let bytes = proved_bytes(&seal, kind, true);
                for (bit, packet) in flipped(&packet, bytes) {
                    let opened = seal.open_answer(&packet, ASKED);
                    assert_eq!(opened, Err(SealError::Digest), "{kind:?} {protection:?} {bit}");
                }
            }
        }
    }

    #[test]
    fn every_flipped_bit_of_covered_data_is_found_and_a_byte_more_or_less() {
        for (keys, protection) in cases() {
            let seal = seal(&keys, protection);
            if !seal.has(Protection::INTEGRITY_DATA) {
                continue;
            }
            let written = (Way::Request, request(&seal, Kind::Write, b"hello, disk"));
            let read = (Way::Reply, answer(&seal, ASKED, Kind::Read, b"hello, disk"));
            for (way, (packet, data)) in [written, read] {
                for bit in 0..8 * data.len() {
                    let mut data = data.clone();
                    data[bit / 8] ^= 1 << (bit % 8);
                    assert_eq!(received(&seal, way, &packet, &data), None, "{protection:?} {bit}");
                }
                let more = [&data[..], &[0]].concat();
                assert_eq!(received(&seal, way, &packet, &more), None);
                assert_eq!(received(&seal, way, &packet, &data[1..]), None);
                assert_eq!(received(&seal, way, &packet, &[]), None);
            }
        }
    }

    #[test]
    fn a_tag_can_not_be_taken_off_or_put_on() {
        for (keys, protection) in cases() {
            let seal = seal(&keys, protection);
            if !seal.has(Protection::INTEGRITY_DATA) {
                continue;
            }
            let (mut packet, _) = answer(&seal, ASKED, Kind::Read, b"hello, disk");
            packet.tag = DataTag::default();
            assert_eq!(seal.open_answer(&packet, ASKED), Err(SealError::Digest));
            let (mut packet, _) = request(&seal, Kind::Write, b"hello, disk");
            packet.tag = DataTag::default();
            assert_eq!(taken(&seal, &packet), None);
            // An answer that something failed has none.
            let asked = Packet::request(Kind::Read, 3, 0, &Fields::default());
            let mut failed = asked.answer(0, &Fields { status: 300, ..Fields::default() });
            seal.answer(&mut failed, nonce(2), ASKED, None);
            assert_eq!(seal.open_answer(&failed, ASKED).map(|said| said.status), Ok(300));
            failed.tag = DataTag([1; 16]);
            assert_eq!(seal.open_answer(&failed, ASKED), Err(SealError::Digest));
        }
    }

    #[test]
    fn who_has_the_key_can_not_leave_the_tag_away_either() {
        for (keys, protection) in cases() {
            let seal = seal(&keys, protection);
            let covers = seal.has(Protection::INTEGRITY_DATA);
            for length in [0, 11] {
                let mut packet = Packet::request(Kind::Write, 3, length, &SAID);
                seal.request(&mut packet, ASKED.nonce, None);
                assert_eq!(taken(&seal, &packet).is_none(), covers, "{protection:?} {length}");
            }
            let mut packet = Packet::request(Kind::Read, 3, 0, &SAID).answer(11, &SAID);
            seal.answer(&mut packet, nonce(2), ASKED, None);
            assert_eq!(seal.open_answer(&packet, ASKED).is_err(), covers, "{protection:?}");
        }
    }

    #[test]
    fn nothing_is_taken_for_what_it_is_not() {
        for (keys, protection) in cases() {
            let seal = seal(&keys, protection);
            for kind in Kind::ALL {
                let (asked, _) = request(&seal, kind, b"");
                let (answered, _) = answer(&seal, ASKED, kind, b"");
                // A request is no answer, not even if it says that it is one; nor is an answer a request.
                let as_answer = Packet { is_answer: true, ..asked.clone() };
                let as_request = Packet { is_answer: false, ..answered.clone() };
                for packet in [&asked, &as_answer] {
                    assert_eq!(seal.open_answer(packet, ASKED), Err(SealError::Digest));
                }
                for packet in [&answered, &as_request] {
                    assert_eq!(taken(&seal, packet), None);
                }
                for other in Kind::ALL.into_iter().filter(|other| *other != kind) {
                    assert_eq!(taken(&seal, &Packet { kind: other, ..asked.clone() }), None);
                    let packet = Packet { kind: other, ..answered.clone() };
                    assert_eq!(seal.open_answer(&packet, ASKED), Err(SealError::Digest));
                }
            }
        }
    }

    #[test]
    fn another_key_suite_protection_or_credential_proves_nothing() {
        for (own, protection) in cases() {
            let right = seal(&own, protection);
            let (asked, _) = request(&right, Kind::Write, b"hello, disk");
            let (answered, _) = answer(&right, ASKED, Kind::Read, b"hello, disk");
            let suites = Suite::available().iter();
            let others = suites.flat_map(|suite| [keys(*suite, 5), keys(*suite, 6)]);
            for other in others.filter(|other| !other.are_of_the_same_key(&own)) {
                let wrong = seal(&other, protection);
                assert_eq!(taken(&wrong, &asked), None);
                assert_eq!(wrong.open_answer(&answered, ASKED), Err(SealError::Digest));
            }
            let wrong = Seal { shown: b"who else comes", ..right };
            assert_eq!(taken(&wrong, &asked), None);
            // A refusal proves nothing, whatever it says.
            let refusal = asked.answer(0, &Fields { status: 101, ..Fields::default() });
            assert_eq!(right.open_answer(&refusal, ASKED), Err(SealError::Digest));
        }
    }

    #[test]
    fn a_request_is_of_use_on_its_own_connection_alone() {
        for (keys, protection) in cases() {
            let (own, other) = (shown(CREDENTIAL, &nonce(7)), shown(CREDENTIAL, &nonce(8)));
            let with = |shown| Seal { shown, protection, keys: &keys };
            for kind in Kind::ALL {
                let (packet, _) = request(&with(&own), kind, b"hello, disk");
                assert_eq!(taken(&with(&own), &packet), Some(SAID), "{kind:?} {protection:?}");
                for wrong in [&other[..], CREDENTIAL] {
                    assert_eq!(taken(&with(wrong), &packet), None, "{kind:?} {protection:?}");
                }
            }
        }
    }

    #[test]
    fn an_open_is_for_its_own_place_and_authority_alone() {
        let payload = |credential: &[u8], place: &[u8]| Open { credential, place }.to_bytes();
        let own = payload(CREDENTIAL, b"here");
        let moved = [CREDENTIAL, b"h"].concat();
        let others = [
            payload(CREDENTIAL, b"there"),
            payload(CREDENTIAL, b""),
            payload(b"who else comes", b"here"),
            payload(&moved, b"ere"),
            shown(CREDENTIAL, &nonce(2)),
        ];
        for (keys, protection) in cases() {
            let with = |shown| Seal { shown, protection, keys: &keys };
            let (packet, _) = request(&with(&own), Kind::Open, b"");
            assert_eq!(taken(&with(&own), &packet), Some(SAID), "{protection:?}");
            for other in &others {
                assert_eq!(taken(&with(other), &packet), None, "{protection:?}");
            }
        }
    }

    #[test]
    fn what_is_encrypted_shows_nothing_of_what_is_said() {
        for (keys, protection) in cases() {
            let seal = seal(&keys, protection);
            let (packet, data) = request(&seal, Kind::Write, &[7; 64]);
            let is_private = seal.has(Protection::PRIVACY_ARGS);
            assert_eq!(packet.private != SAID.to_bytes(), is_private);
            assert_eq!(packet.seal != [0; 16], is_private);
            assert_eq!(data != [7; 64], seal.has(Protection::PRIVACY_DATA));
        }
    }

    #[test]
    fn without_protection_a_packet_is_as_it_was_but_for_its_nonce() {
        let keys = keys(Suite::Blake3, 5);
        let seal = seal(&keys, Protection::NONE);
        let plain = Packet::request(Kind::Write, 3, 11, &SAID);
        let mut packet = plain.clone();
        seal.request(&mut packet, ASKED.nonce, None);
        assert_eq!(packet, Packet { nonce: ASKED.nonce, ..plain });
        assert_eq!(seal.open_answer(&packet, ASKED), Ok(SAID));
        assert_eq!(seal.covered_data(&packet), None);
    }

    proptest! {
        #[test]
        fn an_answer_is_taken_for_that_of_its_own_request_alone(
            timestamp: u64,
            unique: u64,
            bit in 0..128_u32,
            number: u64,
        ) {
            let asked = Nonce { timestamp: Timestamp(timestamp), unique };
            let other = (u128::from(timestamp) << 64 | u128::from(unique)) ^ 1 << bit;
            let timestamp = Timestamp((other >> 64) as u64);
            let other = Asked { nonce: Nonce { timestamp, unique: other as u64 } };
            for (keys, protection) in cases() {
                let seal = seal(&keys, protection);
                let (packet, _) = answer(&seal, Asked { nonce: asked }, Kind::Read, b"data");
                prop_assert_eq!(seal.open_answer(&packet, Asked { nonce: asked }), Ok(SAID));
                prop_assert_eq!(seal.open_answer(&packet, other), Err(SealError::Digest));
                let moved = Packet { number, ..packet };
                prop_assert_eq!(seal.open_answer(&moved, Asked { nonce: asked }).is_ok(), number == 3);
            }
        }
    }
}
