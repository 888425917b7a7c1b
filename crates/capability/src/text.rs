//! Capabilities as text that can be handed over, and as URLs that say where they are good.
//!
//! ```text
//! nasdcap1.BASE64URL
//! nasd://HOST:PORT/NAME#nasdcap1.BASE64URL
//! ```
//!
//! The base64url (RFC 4648, without padding) is of
//!
//! | bytes | |
//! |---|---|
//! | 1 | form: 1, or 2 with a sealed capability |
//! | 64 | the capability as it was minted |
//! | 96 | form 2: nonce, sealed capability, tag |
//! | 1 | how many narrowings, at most 8 |
//! | 28 each | narrowings |
//! | 32 | the key after the last of them |
//! | 4 | first bytes of the BLAKE3 hash of all before |
//!
//! The hash finds slips of the hand; against forgery there is the key. The text *is* the authority:
//! whoever reads it may do what it allows. In a URL it stands in the fragment, which programs keep
//! for themselves when they ask for a URL.

use std::fmt::{self, Write};

use zeroize::Zeroizing;

use crate::base64url;
use crate::narrow::{Chain, NARROWING_BYTES, NarrowError, Narrowing, effective};
use crate::{
    CAPABILITY_BYTES, Capability, KEY_BYTES, SEALED_NONCE_BYTES, SealedCapability, SecretKey,
    TAG_BYTES,
};

/// What every text begins with; the digit is the layout's version.
pub const TEXT_PREFIX: &str = "nasdcap1.";

/// What every URL begins with.
pub const URL_PREFIX: &str = "nasd://";

const PLAIN: u8 = 1;
const WITH_SEALED: u8 = 2;
const CHECK_BYTES: usize = 4;

/// Both halves of a capability, with what was taken away from it: all that is needed to use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delegated {
    /// The public half, as it was minted.
    pub capability: Capability,
    /// The same sealed, if it was asked for.
    pub sealed: Option<SealedCapability>,
    /// What its holders took away.
    pub chain: Chain,
    /// The secret half, after the last narrowing.
    pub key: SecretKey,
}

/// Where a capability is good, and for which file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapabilityUrl {
    /// The drive's `HOST:PORT`.
    pub address: String,
    /// What whoever made the URL calls the file; for people, and for copies.
    pub name: Vec<u8>,
    /// The capability.
    pub delegated: Delegated,
}

/// Why a text is no capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// It does not begin like one.
    #[error("it does not begin with {TEXT_PREFIX}")]
    Prefix,
    /// A URL that is not `nasd://HOST:PORT/NAME#nasdcap1....`.
    #[error("it is no URL of the form nasd://HOST:PORT/NAME#{TEXT_PREFIX}...")]
    Url,
    /// Characters that do not belong there.
    #[error("it has characters that do not belong there, or lacks some: copy all of it")]
    Encoding,
    /// The check does not match.
    #[error("it was altered or cut short: copy all of it")]
    Check,
    /// Something in it has no meaning.
    #[error("it is of a form that this version does not know")]
    Form,
    /// Its narrowings widen, so that every drive would refuse it.
    #[error("one of its narrowings allows more than the one before it")]
    Chain,
}

impl Delegated {
    /// What it allows: the capability as it was narrowed.
    ///
    /// # Errors
    ///
    /// [`TextError::Chain`] if a narrowing widens.
    pub fn allowed(&self) -> Result<Capability, TextError> {
        effective(&self.capability, self.chain.as_slice()).map_err(|_| TextError::Chain)
    }

    /// The same with less allowed. Nobody is asked, and it can't be taken back.
    ///
    /// # Errors
    ///
    /// [`NarrowError`].
    pub fn narrowed(&self, by: Narrowing) -> Result<Delegated, NarrowError> {
        let chain = self.chain.narrowed(&self.capability, by)?;
        Ok(Delegated { chain, key: by.key(&self.key), ..self.clone() })
    }

    /// The text. It is as secret as the key.
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(512));
        bytes.push(if self.sealed.is_some() { WITH_SEALED } else { PLAIN });
        bytes.extend_from_slice(&self.capability.to_bytes());
        if let Some(sealed) = &self.sealed {
            bytes.extend_from_slice(&sealed.nonce);
            bytes.extend_from_slice(&sealed.sealed);
            bytes.extend_from_slice(&sealed.tag);
        }
        // There are at most eight.
        bytes.push(self.chain.as_slice().len() as u8);
        for narrowing in self.chain.as_slice() {
            bytes.extend_from_slice(&narrowing.to_bytes());
        }
        bytes.extend_from_slice(self.key.expose());
        let check = check_of(&bytes);
        bytes.extend_from_slice(&check);
        let mut text = Zeroizing::new(String::with_capacity(TEXT_PREFIX.len() + 700));
        text.push_str(TEXT_PREFIX);
        text.push_str(&base64url::encode(&bytes));
        text
    }

    /// From the text.
    ///
    /// # Errors
    ///
    /// [`TextError`].
    pub fn from_text(text: &str) -> Result<Delegated, TextError> {
        let encoded = text.strip_prefix(TEXT_PREFIX).ok_or(TextError::Prefix)?;
        let bytes = base64url::decode(encoded).ok_or(TextError::Encoding)?;
        let checked = bytes.len().checked_sub(CHECK_BYTES).ok_or(TextError::Check)?;
        let (content, check) = bytes.split_at(checked);
        if check_of(content) != check {
            return Err(TextError::Check);
        }
        let delegated = parse(content).ok_or(TextError::Form)?;
        delegated.allowed()?;
        Ok(delegated)
    }
}

/// The fields, all of them and nothing behind them.
fn parse(mut rest: &[u8]) -> Option<Delegated> {
    let input = &mut rest;
    let [form] = take::<1>(input)?;
    let capability = Capability::from_bytes(&take::<CAPABILITY_BYTES>(input)?);
    let sealed = match form {
        PLAIN => None,
        WITH_SEALED => Some(SealedCapability {
            partition: capability.partition,
            key_epoch: capability.key_epoch,
            nonce: take::<SEALED_NONCE_BYTES>(input)?,
            sealed: take::<CAPABILITY_BYTES>(input)?,
            tag: take::<TAG_BYTES>(input)?,
        }),
        _ => return None,
    };
    let [count] = take::<1>(input)?;
    let narrowing = |_| Some(Narrowing::from_bytes(&take::<NARROWING_BYTES>(input)?));
    let narrowings = (0..count).map(narrowing).collect::<Option<Vec<_>>>()?;
    let chain = Chain::new(narrowings).ok()?;
    let key = SecretKey::new(take::<KEY_BYTES>(input)?);
    input.is_empty().then_some(Delegated { capability, sealed, chain, key })
}

fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = input.split_first_chunk::<N>()?;
    *input = rest;
    Some(*taken)
}

fn check_of(bytes: &[u8]) -> [u8; CHECK_BYTES] {
    let hash = blake3::hash(bytes);
    let mut check = [0; CHECK_BYTES];
    check.copy_from_slice(&hash.as_bytes()[..CHECK_BYTES]);
    check
}

impl CapabilityUrl {
    /// The URL. It is as secret as the key.
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut url = Zeroizing::new(String::with_capacity(1024));
        url.push_str(URL_PREFIX);
        url.push_str(&self.address);
        url.push('/');
        for &byte in &self.name {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    url.push(char::from(byte));
                }
                // A string takes all that is written to it.
                _ => drop(write!(url, "%{byte:02X}")),
            }
        }
        url.push('#');
        url.push_str(&self.delegated.to_text());
        url
    }

    /// From the URL.
    ///
    /// # Errors
    ///
    /// [`TextError`].
    pub fn from_text(text: &str) -> Result<CapabilityUrl, TextError> {
        let rest = text.strip_prefix(URL_PREFIX).ok_or(TextError::Url)?;
        let (place, fragment) = rest.split_once('#').ok_or(TextError::Url)?;
        let (address, name) = place.split_once('/').ok_or(TextError::Url)?;
        if !is_address(address) {
            return Err(TextError::Url);
        }
        let name = unescape(name).ok_or(TextError::Url)?;
        let delegated = Delegated::from_text(fragment)?;
        Ok(CapabilityUrl { address: address.to_owned(), name, delegated })
    }
}

/// `HOST:PORT`, where a host is of letters, digits, `-`, `.`, or an IPv6 address in brackets.
fn is_address(address: &str) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else {
        return false;
    };
    let of = |text: &str, more: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match bracketed {
        Some(inner) => of(inner, ":.%"),
        None => of(host, "-._"),
    };
    let is_port = port.bytes().all(|digit| digit.is_ascii_digit())
        && port.parse::<u16>().is_ok_and(|port| port != 0);
    is_host && is_port
}

fn unescape(name: &str) -> Option<Vec<u8>> {
    let mut bytes = name.bytes();
    let mut unescaped = Vec::with_capacity(name.len());
    while let Some(byte) = bytes.next() {
        unescaped.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
                u8::try_from(high << 4 | low).ok()?
            }
            b'/' | b'?' | 0..=b' ' | 0x7f.. => return None,
            _ => byte,
        });
    }
    Some(unescaped)
}

/// What it allows, and nothing of its key.
impl fmt::Display for CapabilityUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{URL_PREFIX}{}/{}", self.address, self.name.escape_ascii())
    }
}
