//! A server that is a host of the cell: it shows the certificate that it has as a member.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

use super::identity::certified;
use crate::PeerIdentity;

/// Demands a host's certificate of the cell's authority, as the manager does of a host that calls: that of one host, or of any.
pub(super) struct HostVerifier {
    of_members: Arc<dyn ClientCertVerifier>,
    expected: Option<String>,
    provider: Arc<CryptoProvider>,
}

impl HostVerifier {
    pub(super) fn new(
        of_members: Arc<dyn ClientCertVerifier>,
        expected: Option<&str>,
        provider: Arc<CryptoProvider>,
    ) -> Self {
        HostVerifier { of_members, expected: expected.map(str::to_owned), provider }
    }
}

impl fmt::Debug for HostVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostVerifier").field("expected", &self.expected).finish_non_exhaustive()
    }
}

impl ServerCertVerifier for HostVerifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.of_members.verify_client_cert(own, between, now)?;
        let refused = CertificateError::ApplicationVerificationFailure;
        match certified(own).map(|own| own.name) {
            Ok(PeerIdentity::Host(name)) => {
                if self.expected.as_ref().is_none_or(|expected| *expected == name) {
                    return Ok(ServerCertVerified::assertion());
                }
                let expected = server_name.to_owned();
                let presented = vec![name];
                let wrong = CertificateError::NotValidForNameContext { expected, presented };
                Err(Error::InvalidCertificate(wrong))
            }
            // A person's certificate makes no server.
            _ => Err(Error::InvalidCertificate(refused)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
