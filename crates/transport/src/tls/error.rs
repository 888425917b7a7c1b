//! What can be wrong between two ends of TLS, said so that the reader knows which file to look at.

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
