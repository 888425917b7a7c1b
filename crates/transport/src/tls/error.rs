//! What can be wrong between two ends of TLS, said so that the reader knows which file to look at.

use std::io;

use rustls::{AlertDescription, CertificateError};
use thiserror::Error;

/// Why a secure connection could not be made or kept.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TlsError {
    /// A certificate or key of our own can't be used.
    #[error("this end's {what}: {why}")]
    Configuration {
        /// Which file: authority, certificate or key.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The peer's certificate was made by another authority.
    #[error("the {peer}'s certificate is not of this cell's authority")]
    ForeignCertificate {
        /// `server` or `client`.
        peer: &'static str,
    },
    /// The peer's certificate is not valid now.
    #[error("the {peer}'s certificate is expired or not yet valid (or a clock is wrong)")]
    NotValidNow {
        /// `server` or `client`.
        peer: &'static str,
    },
    /// The server's certificate is for another server.
    #[error("the server's certificate is of this cell, but not for {expected}")]
    WrongServer {
        /// The name that was asked for.
        expected: String,
    },
    /// The peer's certificate is of this cell but names neither a host nor a user.
    #[error("the {peer}'s certificate does not say whose it is: {why}")]
    NoIdentity {
        /// `server` or `client`.
        peer: &'static str,
        /// What was expected.
        why: String,
    },
    /// The peer's certificate can't be used for something else.
    #[error("the {peer}'s certificate is bad: {why}")]
    BadCertificate {
        /// `server` or `client`.
        peer: &'static str,
        /// What the check said.
        why: String,
    },
    /// The client showed no certificate.
    #[error("the client showed no certificate")]
    NoClientCertificate,
    /// The other end refused this end's certificate.
    #[error("the {peer} refused this end's certificate ({why}): is it of the same cell?")]
    Refused {
        /// `server` or `client`.
        peer: &'static str,
        /// The alert that it sent.
        why: String,
    },
    /// The other end does not speak TLS, or none that this end speaks.
    #[error("the {peer} does not speak TLS as this cell does: {why}")]
    Protocol {
        /// `server` or `client`.
        peer: &'static str,
        /// What was wrong.
        why: String,
    },
    /// The connection failed during the handshake.
    #[error("the connection failed during the handshake: {why}")]
    Interrupted {
        /// What the system said.
        why: String,
    },
}

impl TlsError {
    /// What a failure of rustls means for whoever runs the cell. `peer` is the other end.
    pub(crate) fn from_rustls(error: &rustls::Error, peer: &'static str) -> TlsError {
        match error {
            rustls::Error::InvalidCertificate(bad) => of_certificate(bad, peer),
            rustls::Error::NoCertificatesPresented => TlsError::NoClientCertificate,
            rustls::Error::AlertReceived(alert) if is_about_certificates(*alert) => {
                TlsError::Refused { peer, why: format!("{alert:?}") }
            }
            other => TlsError::Protocol { peer, why: other.to_string() },
        }
    }
}

fn of_certificate(error: &CertificateError, peer: &'static str) -> TlsError {
    match error {
        // A signature that does not fit: an authority of the same name with another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            TlsError::ForeignCertificate { peer }
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => TlsError::NotValidNow { peer },
        CertificateError::NotValidForNameContext { expected, .. } => {
            TlsError::WrongServer { expected: expected.to_str().into_owned() }
        }
        other => TlsError::BadCertificate { peer, why: format!("{other:?}") },
    }
}

fn is_about_certificates(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRequired
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError
    )
}

/// The TLS failure inside an error of the wire, if it is one.
pub(crate) fn tls_error_within(error: &io::Error, peer: &'static str) -> Option<TlsError> {
    let inner = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(TlsError::from_rustls(inner, peer))
}
