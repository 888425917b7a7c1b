//! PRIVACY_DATA and PRIVACY_ARGS of Table 7: authenticated encryption under the message's own nonce.
//!
//! | suite | bulk data | arguments and results |
//! |---|---|---|
//! | 1 | AEGIS-128X2, the first 16 bytes of the sub-key, the nonce as it is | AEGIS-128L, likewise |
//! | 0 | XChaCha20-Poly1305, the nonce and 8 bytes of zeros | the same |
//!
//! Tags have 128 bits, and nothing is associated: the digest, which every message with privacy has,
//! covers the ciphertext of arguments, and the tag and the length of the ciphertext of data.
//!
//! # Why no nonce is used twice under one key
//!
//! Encryption with a repeated nonce tells the difference of two messages, unlike the MACs, which
//! bear it. There are four sub-keys of each key and suite, for arguments and data of each direction
//! ([`crate::digest`]); so a nonce may serve a message's arguments and its data, and one that a client
//! has drawn never meets one of the drive's.
//!
//! * **Requests.** Several clients may hold one capability. A nonce has a timestamp in nanoseconds, 40
//!   bits of a sender, drawn at random for each connection, and 24 of its count, which never repeats
//!   for one sender ([`crate::NonceSource`]): two requests have the same only if two senders drew the same
//!   40 bits, and have counted to the same number, in the same nanosecond. Every try of a call draws
//!   anew, also where nothing was sent. A client is no worse protected by a clock that runs back, as
//!   its count goes on.
//! * **Replies.** A drive has one source, drawn anew at each start, for its replies to everybody.
//!   Over a restart the timestamps differ: a drive's clock starts above all at which it has answered.
//! * Under a new key everything begins anew.

use aegis::aegis128l::Aegis128L;
use aegis::aegis128x2::Aegis128X2;
use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};

use crate::digest::{first_half, joined_length};
use crate::lookahead::pieces;
use crate::nonce::NONCE_BYTES;
use crate::{DIGEST_BYTES, DataTag, DigestKeys, Nonce, SecretKey, Suite, Way};

/// What was received is not what was encrypted: altered, or encrypted otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tag of what was encrypted is not the right one: it was altered")]
pub struct Altered;

/// Bytes that sealed arguments or results are longer than plain ones: their tag.
pub const SEAL_BYTES: usize = DIGEST_BYTES;

impl DigestKeys {
    /// Encrypts the bulk data of a message with that nonce, the slices of `plain` taken as joined,
    /// into `sealed`, which is as long.
    ///
    /// # Panics
    ///
    /// If `sealed` has another length.
    pub fn seal_data(
        &self,
        way: Way,
        nonce: &Nonce,
        plain: &[&[u8]],
        sealed: &mut [u8],
    ) -> DataTag {
        assert_eq!(joined_length(plain), sealed.len() as u64, "invariant: room for all of it");
        let (key, nonce) = (self.private_data(way), nonce.to_bytes());
        let mut rest = sealed;
        match self.suite() {
            Suite::Aegis => {
                let mut cipher = Aegis128X2::<DIGEST_BYTES>::new(&first_half(key.expose()), &nonce)
                    .encryptor(&[]);
                for piece in pieces(plain.iter().copied()) {
                    let (into, others) = rest.split_at_mut(piece.len());
                    cipher.update(piece, into);
                    rest = others;
                }
                DataTag(cipher.finalize())
            }
            Suite::Blake3 => {
                copy_joined(plain, rest);
                DataTag(seal_chacha(key, &nonce, rest))
            }
        }
    }

    /// Decrypts the bulk data of a message where they lie.
    ///
    /// # Errors
    ///
    /// [`Altered`] if the tag is not that of the data, which are wiped then.
    pub fn open_data(
        &self,
        way: Way,
        nonce: &Nonce,
        tag: &DataTag,
        data: &mut [u8],
    ) -> Result<(), Altered> {
        let (key, nonce) = (self.private_data(way), nonce.to_bytes());
        let opened = match self.suite() {
            Suite::Aegis => Aegis128X2::new(&first_half(key.expose()), &nonce)
                .decrypt_in_place(data, &tag.0, &[])
                .map_err(|_| Altered),
            Suite::Blake3 => open_chacha(key, &nonce, &tag.0, data),
        };
        opened.inspect_err(|_| data.fill(0))
    }

    /// Decrypts the bulk data of a message, the slices of `sealed` taken as joined, into `plain`, which
    /// is as long. (In place this can't be done: neither of the ciphers shows anything before it
    /// has seen the tag, and their libraries take only what lies in one piece.)
    ///
    /// # Errors
    ///
    /// [`Altered`] if the tag is not that of the data; `plain` is wiped then.
    ///
    /// # Panics
    ///
    /// If `plain` has another length.
    pub fn open_data_into(
        &self,
        way: Way,
        nonce: &Nonce,
        tag: &DataTag,
        sealed: &[&[u8]],
        plain: &mut [u8],
    ) -> Result<(), Altered> {
        assert_eq!(joined_length(sealed), plain.len() as u64, "invariant: room for all of it");
        if self.suite() == Suite::Blake3 {
            copy_joined(sealed, plain);
            return self.open_data(way, nonce, tag, plain);
        }
        let key = first_half(self.private_data(way).expose());
        let cipher = Aegis128X2::<DIGEST_BYTES>::new(&key, &nonce.to_bytes());
        let mut cipher = cipher.decryptor(&[], plain);
        for piece in pieces(sealed.iter().copied()) {
            cipher.update(piece).map_err(|_| Altered)?;
        }
        cipher.finalize(&tag.0).map(drop).map_err(|_| Altered)
    }

    /// Encrypts arguments or results where they lie, and appends the tag.
    pub fn seal_args(&self, way: Way, nonce: &Nonce, message: &mut Vec<u8>) {
        let (key, nonce) = (self.private_args(way), nonce.to_bytes());
        let tag = match self.suite() {
            Suite::Aegis => Aegis128L::<DIGEST_BYTES>::new(&first_half(key.expose()), &nonce)
                .encrypt_in_place(message, &[]),
            Suite::Blake3 => seal_chacha(key, &nonce, message),
        };
        message.extend_from_slice(&tag);
    }

    /// What [`seal_args`](Self::seal_args) has sealed.
    ///
    /// # Errors
    ///
    /// [`Altered`] if the tag at the end is not the right one, or there is none.
    pub fn open_args(&self, way: Way, nonce: &Nonce, sealed: &[u8]) -> Result<Vec<u8>, Altered> {
        let (key, nonce) = (self.private_args(way), nonce.to_bytes());
        let (sealed, tag) = sealed.split_last_chunk::<DIGEST_BYTES>().ok_or(Altered)?;
        let mut message = sealed.to_vec();
        match self.suite() {
            Suite::Aegis => Aegis128L::new(&first_half(key.expose()), &nonce)
                .decrypt_in_place(&mut message, tag, &[])
                .map_err(|_| Altered)?,
            Suite::Blake3 => open_chacha(key, &nonce, tag, &mut message)?,
        }
        Ok(message)
    }
}

fn copy_joined(from: &[&[u8]], mut into: &mut [u8]) {
    for slice in from {
        let (place, rest) = into.split_at_mut(slice.len());
        place.copy_from_slice(slice);
        into = rest;
    }
}

fn chacha(key: &SecretKey, nonce: &[u8; NONCE_BYTES]) -> (XChaCha20Poly1305, XNonce) {
    let mut long = XNonce::default();
    long[..NONCE_BYTES].copy_from_slice(nonce);
    (XChaCha20Poly1305::new(key.expose().into()), long)
}

fn seal_chacha(key: &SecretKey, nonce: &[u8; NONCE_BYTES], data: &mut [u8]) -> [u8; DIGEST_BYTES] {
    let (cipher, nonce) = chacha(key, nonce);
    let tag = cipher.encrypt_inout_detached(&nonce, &[], data.into());
    tag.expect("invariant: messages are shorter than 256 GiB").into()
}

/// Leaves the data as they are if the tag is not theirs.
fn open_chacha(
    key: &SecretKey,
    nonce: &[u8; NONCE_BYTES],
    tag: &[u8; DIGEST_BYTES],
    data: &mut [u8],
) -> Result<(), Altered> {
    let (cipher, nonce) = chacha(key, nonce);
    cipher.decrypt_inout_detached(&nonce, &[], data.into(), tag.into()).map_err(|_| Altered)
}
