//! Invitations: who may join by a token. The ledger has the secret's hash alone, so that nobody who
//! reads it can join.

use super::members::{Member, MemberKind, Members, identity};
use super::renewal::enrolled;
use super::token::{SECRET_BYTES, Token, hash_of};
use super::{Authority, Cell, CellError, Usage, keyring, now};
use nasd_manager::membership::{Enrolled, EnrolmentError};
use rcgen::{PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Bytes of a public key: a point of P-256, uncompressed.
const POINT_BYTES: usize = 65;

/// Somebody who may join, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invitation {
    /// How it will be called.
    pub name: String,
    /// What it will be.
    pub kind: MemberKind,
    /// Of a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The hash of the token's secret, in hexadecimal digits.
    pub(super) hash: String,
    /// Until when the token is good, in seconds since 1970.
    pub expires: u64,
    /// How long the certificate will be good, in seconds.
    validity: u64,
}

/// Whom to invite, and on what terms.
#[derive(Clone, Debug)]
pub struct Guest<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it will be.
    pub kind: MemberKind,
    /// Of a user.
    pub uid: Option<u32>,
    /// How long the token is good.
    pub token_for: Duration,
    /// How long the certificate will be good.
    pub validity: Duration,
    /// Where the manager is for it, `HOST:PORT`.
    pub manager: String,
}

/// Invites somebody: the token is all that it needs.
///
/// # Errors
/// `Member` where it can't become one; `Random` or `Io`.
pub fn invite(cell: &Cell, guest: &Guest<'_>) -> Result<Token, CellError> {
    let authority = root_certificate(cell)?;
    let mut secret = [0; SECRET_BYTES];
    getrandom::fill(&mut secret).map_err(CellError::Random)?;
    let expires = now().seconds().saturating_add(guest.token_for.as_secs());
    let token =
        Token { expires, authority: hash_of(&authority), secret, address: guest.manager.clone() };
    let invitation = Invitation {
        name: guest.name.to_owned(),
        kind: guest.kind,
        uid: guest.uid,
        hash: keyring::to_hex(&hash_of(&token.secret)),
        expires,
        validity: guest.validity.as_secs(),
    };
    Members::update(cell.directory(), |members| {
        members.check_new(guest.name, guest.kind, guest.uid)?;
        members.invite(invitation, now().seconds());
        Ok(())
    })?;
    Ok(token)
}

/// The authority's certificate, in DER: the first one of its file is the present one.
fn root_certificate(cell: &Cell) -> Result<Vec<u8>, CellError> {
    let path = cell.certificate("manager").authority;
    let pem = std::fs::read(&path).map_err(CellError::io("read", &path))?;
    nasd_transport::first_certificate(&pem)
        .map_err(|error| CellError::Damaged { path, reason: error.to_string() })
}

/// Lets in who shows an invitation's secret; the invitation is gone when this returns.
///
/// # Errors
/// `Refused` for a secret that is none, is used or has expired, and a key that is none; `Failed`
/// where the cell's files can't be used.
pub fn enrol(cell: &Cell, secret: &[u8], public_key: &[u8]) -> Result<Enrolled, EnrolmentError> {
    let failed = |error: CellError| EnrolmentError::Failed(error.to_string());
    let key = P256Point::new(public_key)
        .ok_or_else(|| EnrolmentError::Refused("the public key is none".to_owned()))?;
    let hash = keyring::to_hex(&hash_of(secret));
    let authority = Authority::open(cell.directory(), cell.config.cell_id()).map_err(failed)?;
    let admitted = Members::update(cell.directory(), |members| {
        // Nobody learns from the time this takes anything but a hash of what it has sent itself.
        let Some(invitation) = members.take_invitation(&hash, now().seconds()) else {
            return Ok(None);
        };
        let Invitation { name, kind, uid, validity, .. } = invitation;
        members.check_new(&name, kind, uid)?;
        let identity = identity(&name, kind, uid);
        let validity = Duration::from_secs(validity);
        let issued = authority.issue(&key, &identity, Usage::Client, validity)?;
        let member = Member::new(&name, kind, uid, &issued);
        members.add(member.clone());
        Ok(Some((member, issued)))
    });
    let refused =
        || EnrolmentError::Refused("the token is none, is used, or has expired".to_owned());
    let (member, issued) = admitted.map_err(failed)?.ok_or_else(refused)?;
    enrolled(cell, &member, issued)
}

/// A public key that somebody else has made.
pub(super) struct P256Point<'a>(&'a [u8]);

impl<'a> P256Point<'a> {
    /// `None` for what is no uncompressed point.
    pub(super) fn new(bytes: &'a [u8]) -> Option<Self> {
        (bytes.len() == POINT_BYTES && bytes.first() == Some(&4)).then_some(P256Point(bytes))
    }
}

impl PublicKeyData for P256Point<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}
