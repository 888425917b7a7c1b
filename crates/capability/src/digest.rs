//! Digests of requests and replies, and the keys that make them.
//!
//! From one key (of a capability, or of the hierarchy) sub-keys are derived for each suite, with
//! BLAKE3's `derive_key` under the context strings of [`Purposes`]: for arguments and for data, of
//! requests and of replies. So a reply is never a request, data are never arguments, and a digest
//! under one suite says nothing about the other.
//!
//! ```text
//! data tag = MAC-data(data sub-key, nonce, data)
//! digest   = MAC-args(args sub-key, nonce, message)
//! message  = covered length (8)  ||  data length (8), all ones when data are not covered
//!            ||  the request's nonce (16), in replies alone
//!            ||  covered bytes  ||  data tag (16), when data are covered
//! ```
//!
//! All integers are big-endian. `nonce` is the request's own, or the reply's own fresh one. The data
//! tag travels beside the digest, which covers it: so the digest of a write can be checked before its
//! data have come, and the data once they have, each against what was announced.
//!
//! | suite | MAC-args | MAC-data |
//! |---|---|---|
//! | 1 | AEGIS-128L MAC, 128-bit tag | AEGIS-128X2 MAC, 128-bit tag |
//! | 0 | keyed BLAKE3 of nonce and message, first 16 bytes | the same of nonce and data |
//!
//! With suite 1 the sub-key is the first 16 bytes of the derived 32, and the nonce is AEGIS's
//! nonce. The MAC finalization of AEGIS tolerates a repeated nonce, and no key is ever derived
//! from one of its tags, as its specification demands.
//!
//! Covered bytes of a request: program, version and procedure (4 bytes each, see
//! [`procedure_bytes`]), the body of the credential, and the arguments without the bulk data but
//! with its length word. Of a reply: the results without the bulk data but with its length word.
//! The three parts of a request delimit themselves, so that they are simply joined.
//!
//! With PRIVACY_DATA the data tag is that of their authenticated encryption ([`crate::privacy`])
//! instead, so that they are gone through once.
//!
//! Who copies from one object to another shows a second authority, that for the source, in the
//! arguments. Its *proof* is made like a request's digest, with a sub-key of its own and the nonce of
//! the request that it is a part of.
//!
//! `data` is `Some`, even if empty, exactly when INTEGRITY_DATA is asked for and the message is of
//! a kind that carries bulk data: requests of `write`, successful replies of `read`.

use std::fmt;
use std::sync::OnceLock;

use aegis::aegis128l::Aegis128LMac;
use aegis::aegis128x2::Aegis128X2Mac;
use subtle::ConstantTimeEq;

use crate::key::Purpose;
use crate::lookahead::pieces;
use crate::nonce::NONCE_BYTES;
use crate::{Nonce, SecretKey, Suite};

/// Bytes of a digest, `NASD_DIGEST_BYTES`.
pub const DIGEST_BYTES: usize = 16;

/// The keyed digest of a request or reply. Compared in constant time.
#[derive(Clone, Copy, Default)]
pub struct Digest(pub [u8; DIGEST_BYTES]);

/// The tag of a message's bulk data, of as many bytes as a digest. Compared in constant time.
#[derive(Clone, Copy, Default)]
pub struct DataTag(pub [u8; DIGEST_BYTES]);

impl Digest {
    /// What stands in place of a digest with NO_PROTECTION and in refusals.
    pub const ZERO: Digest = Digest([0; DIGEST_BYTES]);
}

/// Comparison in constant time, and printing.
macro_rules! tag {
    ($name:ident) => {
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                // As one number: byte by byte, this would cost as much as a third of the digest.
                u128::from_be_bytes(self.0).ct_eq(&u128::from_be_bytes(other.0)).into()
            }
        }

        impl Eq for $name {}

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "("))?;
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str(")")
            }
        }
    };
}

tag!(Digest);
tag!(DataTag);

/// What a digest covers of a message's bulk data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoveredData {
    /// How many bytes there are.
    pub length: u64,
    /// Their tag.
    pub tag: DataTag,
}

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the drive.
    Request,
    /// From the drive.
    Reply,
}

/// The first part of a request's covered bytes.
pub fn procedure_bytes(program: u32, version: u32, procedure: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[0..4].copy_from_slice(&program.to_be_bytes());
    bytes[4..8].copy_from_slice(&version.to_be_bytes());
    bytes[8..12].copy_from_slice(&procedure.to_be_bytes());
    bytes
}

/// What a suite's sub-keys are derived for.
struct Purposes {
    request: WayPurposes,
    reply: WayPurposes,
    source: Purpose,
}

/// The same of messages that go one way.
struct WayPurposes {
    args: Purpose,
    data: Purpose,
    private_args: Purpose,
    private_data: Purpose,
}

static BLAKE3: Purposes = Purposes {
    request: WayPurposes {
        args: Purpose::new("nasd v1 blake3 request arguments"),
        data: Purpose::new("nasd v1 blake3 request data"),
        private_args: Purpose::new("nasd v1 blake3 request private arguments"),
        private_data: Purpose::new("nasd v1 blake3 request private data"),
    },
    reply: WayPurposes {
        args: Purpose::new("nasd v1 blake3 reply arguments"),
        data: Purpose::new("nasd v1 blake3 reply data"),
        private_args: Purpose::new("nasd v1 blake3 reply private arguments"),
        private_data: Purpose::new("nasd v1 blake3 reply private data"),
    },
    source: Purpose::new("nasd v1 blake3 source of a copy"),
};

static AEGIS: Purposes = Purposes {
    request: WayPurposes {
        args: Purpose::new("nasd v1 aegis request arguments"),
        data: Purpose::new("nasd v1 aegis request data"),
        private_args: Purpose::new("nasd v1 aegis request private arguments"),
        private_data: Purpose::new("nasd v1 aegis request private data"),
    },
    reply: WayPurposes {
        args: Purpose::new("nasd v1 aegis reply arguments"),
        data: Purpose::new("nasd v1 aegis reply data"),
        private_args: Purpose::new("nasd v1 aegis reply private arguments"),
        private_data: Purpose::new("nasd v1 aegis reply private data"),
    },
    source: Purpose::new("nasd v1 aegis source of a copy"),
};

/// The sub-keys of one key under one suite. Making those for arguments costs about as much as four
/// short hashes, so both ends keep them; the others are made when they are first needed.
#[derive(Clone)]
pub struct DigestKeys {
    suite: Suite,
    key: SecretKey,
    request: SubKeys,
    reply: SubKeys,
    source_purpose: &'static Purpose,
    source: OnceLock<SecretKey>,
}

/// The sub-keys for messages that go one way.
#[derive(Clone)]
struct SubKeys {
    purposes: &'static WayPurposes,
    args: SecretKey,
    data: OnceLock<SecretKey>,
    private_args: OnceLock<SecretKey>,
    private_data: OnceLock<SecretKey>,
}

impl SubKeys {
    fn new(key: &SecretKey, purposes: &'static WayPurposes) -> SubKeys {
        let args = purposes.args.derive(key, &[]);
        let (data, private_args, private_data) = Default::default();
        SubKeys { purposes, args, data, private_args, private_data }
    }
}

impl DigestKeys {
    /// The sub-keys of `key`.
    ///
    /// # Panics
    ///
    /// If this processor can't run the suite. Drives refuse such requests before they come here
    /// ([`crate::admit`]); clients choose with [`Suite::choose`].
    pub fn new(key: &SecretKey, suite: Suite) -> Self {
        assert!(suite.is_available(), "invariant: callers choose among Suite::available()");
        let purposes = match suite {
            Suite::Blake3 => &BLAKE3,
            Suite::Aegis => &AEGIS,
        };
        DigestKeys {
            suite,
            key: key.clone(),
            request: SubKeys::new(key, &purposes.request),
            reply: SubKeys::new(key, &purposes.reply),
            source_purpose: &purposes.source,
            source: OnceLock::new(),
        }
    }

    /// The suite that these keys are for.
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// Whether these are the sub-keys of the same key under the same suite.
    pub fn are_of_the_same_key(&self, other: &DigestKeys) -> bool {
        self.suite == other.suite && self.key == other.key
    }

    /// The digest of a request; the slices of `covered` are taken as joined.
    pub fn request(&self, nonce: &Nonce, covered: &[&[u8]], data: Option<&CoveredData>) -> Digest {
        digest(self.suite, &self.request.args, &nonce.to_bytes(), None, covered, data)
    }

    /// The proof of an authority that a request with this nonce shows besides its own, for the object
    /// that is copied from.
    pub fn source_proof(&self, nonce: &Nonce, covered: &[&[u8]]) -> Digest {
        let key = self.source.get_or_init(|| self.source_purpose.derive(&self.key, &[]));
        digest(self.suite, key, &nonce.to_bytes(), None, covered, None)
    }

    /// The digest of a reply, which also covers the nonce of the request that it answers.
    pub fn reply(
        &self,
        request_nonce: &Nonce,
        reply_nonce: &Nonce,
        covered: &[&[u8]],
        data: Option<&CoveredData>,
    ) -> Digest {
        let binding = Some(&request_nonce.to_bytes());
        digest(self.suite, &self.reply.args, &reply_nonce.to_bytes(), binding, covered, data)
    }

    /// What the digest of a message with that nonce covers of its bulk data: the slices of `data`,
    /// taken as joined.
    pub fn data(&self, way: Way, nonce: &Nonce, data: &[&[u8]]) -> CoveredData {
        let sub_keys = self.sub_keys(way);
        let key = sub_keys.data.get_or_init(|| sub_keys.purposes.data.derive(&self.key, &[]));
        let mac = match self.suite {
            Suite::Blake3 => keyed_blake3,
            Suite::Aegis => aegis_128x2,
        };
        let tag = DataTag(mac(key, &nonce.to_bytes(), &[data]));
        CoveredData { length: joined_length(data), tag }
    }

    /// The sub-key that encrypts arguments or results.
    pub(crate) fn private_args(&self, way: Way) -> &SecretKey {
        let sub_keys = self.sub_keys(way);
        sub_keys.private_args.get_or_init(|| sub_keys.purposes.private_args.derive(&self.key, &[]))
    }

    /// The sub-key that encrypts bulk data.
    pub(crate) fn private_data(&self, way: Way) -> &SecretKey {
        let sub_keys = self.sub_keys(way);
        sub_keys.private_data.get_or_init(|| sub_keys.purposes.private_data.derive(&self.key, &[]))
    }

    fn sub_keys(&self, way: Way) -> &SubKeys {
        match way {
            Way::Request => &self.request,
            Way::Reply => &self.reply,
        }
    }
}

impl fmt::Debug for DigestKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DigestKeys({:?}, hidden)", self.suite)
    }
}

fn digest(
    suite: Suite,
    key: &SecretKey,
    nonce: &[u8; NONCE_BYTES],
    binding: Option<&[u8; NONCE_BYTES]>,
    covered: &[&[u8]],
    data: Option<&CoveredData>,
) -> Digest {
    // Lengths and binding together: each slice that a MAC is given costs as much as some of its
    // rounds.
    let mut front = [0; 16 + NONCE_BYTES];
    front[..8].copy_from_slice(&joined_length(covered).to_be_bytes());
    front[8..16].copy_from_slice(&data.map_or(u64::MAX, |data| data.length).to_be_bytes());
    let front_length = 16 + binding.map_or(0, |nonce| nonce.len());
    front[16..].copy_from_slice(binding.unwrap_or(&[0; NONCE_BYTES]));
    let front = &front[..front_length];
    let tag: &[u8] = data.map_or(&[], |data| &data.tag.0);
    let message: &Message<'_> = &[&[front], covered, &[tag]];
    Digest(match suite {
        Suite::Blake3 => keyed_blake3(key, nonce, message),
        Suite::Aegis => aegis_128l(key, nonce, message),
    })
}

/// Saturation can't happen: slices in memory don't add up to 2^64 bytes.
pub(crate) fn joined_length(slices: &[&[u8]]) -> u64 {
    slices.iter().map(|slice| slice.len() as u64).sum()
}

/// The message is all slices of all groups, joined.
type Message<'a> = [&'a [&'a [u8]]];

/// The slices with something in them.
fn slices<'a>(message: &'a Message<'a>) -> impl Iterator<Item = &'a [u8]> + Clone {
    message.iter().copied().flatten().copied().filter(|slice| !slice.is_empty())
}

fn keyed_blake3(key: &SecretKey, nonce: &[u8; 16], message: &Message<'_>) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_keyed(key.expose());
    hasher.update(nonce);
    for slice in slices(message) {
        hasher.update(slice);
    }
    first_half(hasher.finalize().as_bytes())
}

/// Room for all that the digest of a request or reply covers, in nearly every case.
const JOINED_BYTES: usize = 256;

/// Little is joined first, as each slice that the MAC is given costs it more than the copy.
fn aegis_128l(key: &SecretKey, nonce: &[u8; 16], message: &Message<'_>) -> [u8; 16] {
    let mut mac = Aegis128LMac::<DIGEST_BYTES>::new_with_nonce(&first_half(key.expose()), nonce);
    let mut joined = [0; JOINED_BYTES];
    match join(message, &mut joined) {
        Some(length) => mac.update(&joined[..length]),
        None => slices(message).for_each(|slice| mac.update(slice)),
    }
    mac.finalize()
}

/// Puts the message to the beginning of `joined`, and returns its length, if there is room.
fn join(message: &Message<'_>, joined: &mut [u8; JOINED_BYTES]) -> Option<usize> {
    let mut length = 0;
    for slice in slices(message) {
        joined.get_mut(length..length + slice.len())?.copy_from_slice(slice);
        length += slice.len();
    }
    Some(length)
}

fn aegis_128x2(key: &SecretKey, nonce: &[u8; 16], message: &Message<'_>) -> [u8; 16] {
    let mut mac = Aegis128X2Mac::<DIGEST_BYTES>::new_with_nonce(&first_half(key.expose()), nonce);
    for piece in pieces(slices(message)) {
        mac.update(piece);
    }
    mac.finalize()
}

pub(crate) fn first_half(bytes: &[u8; 32]) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&bytes[..16]);
    half
}
