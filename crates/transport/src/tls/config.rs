//! The two ends' certificates, checked when they are read. TLS 1.3 alone: both ends are ours.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::hosts::HostVerifier;
use super::identity::certified;
use super::pinned::PinnedAuthority;
use crate::{PeerIdentity, TlsError};
use x509_parser::prelude::{FromDer, X509Certificate};

/// What a server is called that may be any host of the cell.
const ANY_HOST: &str = "host.nasd.internal";

/// PEM texts of one end: the cell's authority, this end's certificate, and its private key.
#[derive(Clone, Copy)]
pub struct PemFiles<'a> {
    /// The cell's authority: the only one trusted.
    pub authority: &'a [u8],
    /// This end's certificate, followed by those between it and the authority if any.
    pub certificate: &'a [u8],
    /// Its private key.
    pub key: &'a [u8],
}

impl fmt::Debug for PemFiles<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PemFiles(hidden)")
    }
}

/// A server's side: shows its certificate, and demands one of the cell from every client.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// Shared by all clones, so that one can change it for all.
    config: Arc<RwLock<Arc<ServerConfig>>>,
}

/// A client's side: shows its certificate, and demands one of the cell from the server, for
/// server authentication (extended key usage) and with the expected name (subject alternative
/// name).
#[derive(Clone, Debug)]
pub struct ClientTls {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) server_name: ServerName<'static>,
    identity: Option<PeerIdentity>,
}

impl ServerTls {
    /// From PEM texts.
    ///
    /// # Errors
    ///
    /// [`TlsError::Configuration`].
    pub fn new(files: &PemFiles<'_>) -> Result<ServerTls, TlsError> {
        let roots = Parsed::new(files)?.roots;
        Self::with_verifier(files, client_verifier(roots, &provider())?)
    }

    /// The same, but for clients without a certificate too, who are [`crate::Identity::Anonymous`]:
    /// the service must see to it what those may do.
    ///
    /// # Errors
    ///
    /// [`TlsError::Configuration`].
    pub fn admitting_strangers(files: &PemFiles<'_>) -> Result<ServerTls, TlsError> {
        let roots = Parsed::new(files)?.roots;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .allow_unauthenticated()
            .build()
            .map_err(|error| wrong("authority", &error))?;
        Self::with_verifier(files, verifier)
    }

    fn with_verifier(
        files: &PemFiles<'_>,
        verifier: Arc<dyn ClientCertVerifier>,
    ) -> Result<ServerTls, TlsError> {
        let Parsed { chain, key, .. } = Parsed::new(files)?;
        let provider = provider();
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| wrong("TLS library", &error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|error| wrong("certificate or key", &error))?;
        // Connections live long; tickets would only be more to send and to keep.
        config.send_tls13_tickets = 0;
        Ok(ServerTls { config: Arc::new(RwLock::new(Arc::new(config))) })
    }

    /// Takes the certificates of another, for all connections that are made from now on, also by
    /// servers that have a clone of this.
    pub fn replace(&self, other: &ServerTls) {
        let config = other.config();
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ClientTls {
    /// From PEM texts. `server_name` is a DNS name or an IP address in the server's certificate.
    ///
    /// # Errors
    ///
    /// [`TlsError::Configuration`], also when the certificate is not of the authority.
    pub fn new(files: &PemFiles<'_>, server_name: &str) -> Result<ClientTls, TlsError> {
        let Parsed { roots, chain, key } = Parsed::new(files)?;
        let provider = provider();
        let identity = chain.first().and_then(|own| certified(own).ok()).map(|own| own.name);
        check_own_certificate(client_verifier(Arc::clone(&roots), &provider)?.as_ref(), &chain)?;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(|error| wrong("authority", &error))?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| wrong("TLS library", &error))?
            .with_webpki_verifier(verifier)
            .with_client_auth_cert(chain, key)
            .map_err(|error| wrong("certificate or key", &error))?;
        let server_name = ServerName::try_from(server_name.to_owned())
            .map_err(|_| wrong("name of the server", &format!("{server_name:?} is not a name")))?;
        Ok(ClientTls { config: Arc::new(config), server_name, identity })
    }

    /// From PEM texts, for a server that is a host of the cell and shows that host's certificate, which is for client
    /// authentication: that of the host of this name, or of any.
    ///
    /// # Errors
    ///
    /// [`TlsError::Configuration`], as [`ClientTls::new`].
    pub fn to_host(files: &PemFiles<'_>, name: Option<&str>) -> Result<ClientTls, TlsError> {
        let Parsed { roots, chain, key } = Parsed::new(files)?;
        let provider = provider();
        let identity = chain.first().and_then(|own| certified(own).ok()).map(|own| own.name);
        let of_members = client_verifier(roots, &provider)?;
        check_own_certificate(of_members.as_ref(), &chain)?;
        let verifier = HostVerifier::new(of_members, name, Arc::clone(&provider));
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| wrong("TLS library", &error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(chain, key)
            .map_err(|error| wrong("certificate or key", &error))?;
        let name = name.unwrap_or(ANY_HOST).to_owned();
        let server_name =
            ServerName::try_from(name).map_err(|error| wrong("name of the host", &error))?;
        Ok(ClientTls { config: Arc::new(config), server_name, identity })
    }

    /// Whose this end's certificate is, if it says so.
    pub fn identity(&self) -> Option<&PeerIdentity> {
        self.identity.as_ref()
    }
}

impl ClientTls {
    /// A stranger's: without a certificate, for a server whose chain ends with an authority that
    /// `is_authority` knows, by its certificate in DER.
    ///
    /// # Errors
    ///
    /// [`TlsError::Configuration`].
    pub fn pinned(
        is_authority: impl Fn(&[u8]) -> bool + Send + Sync + 'static,
        server_name: &str,
    ) -> Result<ClientTls, TlsError> {
        let verifier = PinnedAuthority::new(Box::new(is_authority), provider());
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| wrong("TLS library", &error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        let server_name = ServerName::try_from(server_name.to_owned())
            .map_err(|_| wrong("name of the server", &format!("{server_name:?} is not a name")))?;
        Ok(ClientTls { config: Arc::new(config), server_name, identity: None })
    }
}

/// The first certificate of a PEM text, in DER.
///
/// # Errors
///
/// [`TlsError::Configuration`] where there is none.
pub fn first_certificate(pem: &[u8]) -> Result<Vec<u8>, TlsError> {
    Ok(certificates("authority", pem)?.swap_remove(0).to_vec())
}

/// When the first certificate of a PEM text begins and ends, in seconds since 1970.
///
/// # Errors
///
/// [`TlsError::Configuration`] where there is none.
pub fn certificate_times(pem: &[u8]) -> Result<(u64, u64), TlsError> {
    let certificate = first_certificate(pem)?;
    let validity = parsed(&certificate)?.validity().clone();
    let seconds = |time: i64| u64::try_from(time).unwrap_or(0);
    Ok((seconds(validity.not_before.timestamp()), seconds(validity.not_after.timestamp())))
}

/// The serial number of the first certificate of a PEM text, in hexadecimal digits.
///
/// # Errors
///
/// [`TlsError::Configuration`] where there is none.
pub fn certificate_serial(pem: &[u8]) -> Result<String, TlsError> {
    let certificate = first_certificate(pem)?;
    Ok(parsed(&certificate)?.raw_serial().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whose the first certificate of a PEM text is.
///
/// # Errors
///
/// [`TlsError::Configuration`] where there is none, or its name says nothing.
pub fn certificate_identity(pem: &[u8]) -> Result<PeerIdentity, TlsError> {
    let certified = certified(&first_certificate(pem)?);
    Ok(certified.map_err(|why| wrong("certificate", &why))?.name)
}

/// The public key that the first certificate of a PEM text certifies: a point, for keys on a curve.
///
/// # Errors
///
/// [`TlsError::Configuration`] where there is none.
pub fn certificate_public_key(pem: &[u8]) -> Result<Vec<u8>, TlsError> {
    let certificate = first_certificate(pem)?;
    Ok(parsed(&certificate)?.public_key().subject_public_key.data.to_vec())
}

fn parsed(certificate: &[u8]) -> Result<X509Certificate<'_>, TlsError> {
    let parsed = X509Certificate::from_der(certificate);
    parsed.map(|(_, certificate)| certificate).map_err(|error| wrong("certificate", &error))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn wrong(what: &'static str, why: &dyn fmt::Display) -> TlsError {
    TlsError::Configuration { what, why: why.to_string() }
}

fn client_verifier(
    roots: Arc<RootCertStore>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider))
        .build()
        .map_err(|error| wrong("authority", &error))
}

/// A wrong certificate is better told at the start than by each server's refusal.
fn check_own_certificate(
    verifier: &dyn ClientCertVerifier,
    chain: &[CertificateDer<'static>],
) -> Result<(), TlsError> {
    let (own, between) =
        chain.split_first().ok_or_else(|| wrong("certificate", &"there is none in the file"))?;
    verifier.verify_client_cert(own, between, UnixTime::now()).map(drop).map_err(|error| {
        let error = match &error {
            rustls::Error::InvalidCertificate(
                rustls::CertificateError::UnknownIssuer | rustls::CertificateError::BadSignature,
            ) => "not made by this cell's authority".to_owned(),
            other => other.to_string(),
        };
        wrong("certificate", &error)
    })
}

/// The three files, taken apart.
struct Parsed {
    roots: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Parsed {
    fn new(files: &PemFiles<'_>) -> Result<Parsed, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates("authority", files.authority)? {
            roots.add(certificate).map_err(|error| wrong("authority", &error))?;
        }
        let chain = certificates("certificate", files.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(files.key).map_err(|error| wrong("key", &error))?;
        Ok(Parsed { roots: Arc::new(roots), chain, key })
    }
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let list: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(what, &error))?;
    if list.is_empty() {
        return Err(wrong(what, &"there is no certificate in the file"));
    }
    Ok(list)
}
