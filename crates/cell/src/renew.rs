//! This member's certificate anew, and what the cell trusts now. It comes by itself when less than a third of the
//! certificate's time is left; when it is asked for, it is for a new authority.

use crate::session::{member_client, own_member};
use crate::{Cell, Renewing, is_due, now, replace_certificate, times_of};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use std::error::Error;
use zeroize::Zeroizing;

/// Renews the certificate of the cell's directory.
///
/// # Errors
/// A manager that is away, or does not know the member any more.
pub fn renew(cell: &Cell) -> Result<(), Box<dyn Error>> {
    let renewing = Renewing::wait(cell)?;
    renew_alone(cell, &renewing)
}

/// Renews it if it is time. That it could not be done is told, and no reason to do nothing else.
pub fn renew_if_due(cell: &Cell) {
    if !is_own_due(cell) {
        return;
    }
    let renewed = Renewing::wait(cell).map_err(Into::into).and_then(|renewing| {
        // Somebody else may have done it while this one waited.
        if is_own_due(cell) { renew_alone(cell, &renewing) } else { Ok(()) }
    });
    match renewed {
        Ok(()) => tracing::info!("renewed this member's certificate"),
        Err(error) => tracing::warn!(%error, "this member's certificate ends soon"),
    }
}

fn is_own_due(cell: &Cell) -> bool {
    let files = cell.certificate(own_member(cell));
    let due = times_of(&files.certificate)
        .is_ok_and(|(issued, expires)| is_due(issued, expires, now().seconds()));
    due && files.key.exists()
}

fn renew_alone(cell: &Cell, _renewing: &Renewing) -> Result<(), Box<dyn Error>> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let enrolled = member_client(cell)?
        .renew(key.der_bytes())
        .map_err(|error| format!("the certificate is not renewed: {error}"))?;
    let text = Zeroizing::new(key.serialize_pem());
    let files = cell.certificate(own_member(cell));
    Ok(replace_certificate(&files, &text, &enrolled.certificate, &enrolled.authority)?)
}
