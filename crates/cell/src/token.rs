//! The text that lets one machine or person join the cell, once: where the manager is, by which hash
//! its authority is known, a secret, and until when it is good.
//!
//! `nasdjoin1.` and, in base64url (RFC 4648) without padding: expiry in seconds since 1970 (8 bytes,
//! big-endian), hash (32), secret (16), the address, and a checksum (4) that finds what was not copied
//! whole. Whoever sees the token before it is used can use it; afterwards it is worth nothing.

use nasd_capability::base64url;
use std::fmt;
use zeroize::{Zeroize, Zeroizing};

const PREFIX: &str = "nasdjoin1.";
const HASH_BYTES: usize = 32;
pub const SECRET_BYTES: usize = 16;
const CHECK_BYTES: usize = 4;
const FIXED_BYTES: usize = 8 + HASH_BYTES + SECRET_BYTES + CHECK_BYTES;

/// Longest address.
const MAX_ADDRESS_BYTES: usize = 255;

/// What the text says.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Until when it is good, in seconds since 1970.
    pub expires: u64,
    /// The hash of the authority's certificate ([`hash_of`]).
    pub authority: [u8; HASH_BYTES],
    /// What proves that the bearer was invited.
    pub secret: [u8; SECRET_BYTES],
    /// The manager, `HOST:PORT`.
    pub address: String,
}

impl Drop for Token {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token for {}", self.address)
    }
}

/// The hash by which a certificate, in DER, or a secret is known.
pub fn hash_of(bytes: &[u8]) -> [u8; HASH_BYTES] {
    *blake3::hash(bytes).as_bytes()
}

/// A text that is no token, or not all of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no token, or not all of one: copy the whole word that `nasd host add` printed")]
pub struct NoToken;

impl Token {
    /// As it is handed over.
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(FIXED_BYTES + self.address.len()));
        bytes.extend_from_slice(&self.expires.to_be_bytes());
        bytes.extend_from_slice(&self.authority);
        bytes.extend_from_slice(&self.secret);
        bytes.extend_from_slice(self.address.as_bytes());
        let check = hash_of(&bytes);
        bytes.extend_from_slice(&check[..CHECK_BYTES]);
        Zeroizing::new(format!("{PREFIX}{}", *base64url::encode(&bytes)))
    }

    /// From its text.
    ///
    /// # Errors
    /// `NoToken`, without saying what is in it.
    pub fn parse(text: &str) -> Result<Token, NoToken> {
        let digits = text.trim().strip_prefix(PREFIX).ok_or(NoToken)?;
        let bytes = base64url::decode(digits).ok_or(NoToken)?;
        let content = bytes.len().checked_sub(CHECK_BYTES).ok_or(NoToken)?;
        let (content, check) = bytes.split_at(content);
        if hash_of(content)[..CHECK_BYTES] != *check {
            return Err(NoToken);
        }
        let (expires, rest) = content.split_first_chunk().ok_or(NoToken)?;
        let (authority, rest) = rest.split_first_chunk().ok_or(NoToken)?;
        let (secret, address) = rest.split_first_chunk().ok_or(NoToken)?;
        let address = std::str::from_utf8(address).map_err(|_| NoToken)?;
        if address.len() > MAX_ADDRESS_BYTES || !address.contains(':') {
            return Err(NoToken);
        }
        Ok(Token {
            expires: u64::from_be_bytes(*expires),
            authority: *authority,
            secret: *secret,
            address: address.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token() -> Token {
        Token {
            expires: 1_800_000_000,
            authority: [7; 32],
            secret: [9; 16],
            address: "cell.example.org:7300".to_owned(),
        }
    }

    #[test]
    fn a_token_survives_its_text_and_no_other_is_one() {
        let text = token().to_text();
        assert_eq!(Token::parse(&text), Ok(token()));
        assert_eq!(Token::parse(&format!(" {}\n", *text)), Ok(token()));
        for cut in 0..text.len() {
            assert_eq!(Token::parse(&text[..cut]), Err(NoToken));
        }
        for at in 0..text.len() {
            let mut other = text.as_bytes().to_vec();
            other[at] = if other[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(Token::parse(std::str::from_utf8(&other).unwrap()), Err(NoToken), "{at}");
        }
        assert!(!format!("{:?}", token()).contains('9'));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(nasdjoin1\\.)?[A-Za-z0-9_-]{0,200}", raw in any::<String>()) {
            let _ = (Token::parse(&text), Token::parse(&raw));
        }
    }
}
