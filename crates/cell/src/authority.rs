//! The cell's certificate authority: certificates say which member or user a TLS peer is.
//!
//! The common name carries the identity: `manager`, `host:NAME` (may speak for any user, as NFS
//! with sec=sys does), `user:UID` (for that user alone) or `admin:NAME` (changes the cell, and speaks
//! for nobody). Certificates are good for a year, the authority for ten; each has a serial number
//! by which the ledger of members knows it ([`super::members`]).

use super::files::{write_atomic, write_private};
use super::{CellError, now, tls_directory};
use nasd_types::CellId;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SerialNumber,
};
use std::path::{Path, PathBuf};
use std::time::Duration;
use zeroize::Zeroizing;

/// The name that every manager's certificate carries, and that clients ask for.
pub const MANAGER_NAME: &str = "manager.nasd.internal";

const DAY: Duration = Duration::from_secs(86_400);

/// How long a certificate is good, unless somebody says otherwise.
pub const VALIDITY: Duration = Duration::from_secs(365 * DAY.as_secs());

/// How long the authority itself is good.
const AUTHORITY_VALIDITY: Duration = Duration::from_secs(3652 * DAY.as_secs());

/// Certificates are good from some time before they are made: clocks differ.
pub(super) const BEFORE: Duration = DAY;

/// The files of one member's certificate.
#[derive(Debug, Clone)]
pub struct CertificateFiles {
    /// The authority's certificate.
    pub authority: PathBuf,
    /// The member's certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl CertificateFiles {
    /// The files of `member` in a `tls` directory.
    pub fn in_directory(directory: &Path, member: &str) -> Self {
        CertificateFiles {
            authority: directory.join("ca.pem"),
            certificate: directory.join(format!("{member}.pem")),
            key: directory.join(format!("{member}.key")),
        }
    }
}

/// The authority itself, able to make certificates.
pub struct Authority {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// What the ledger keeps of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// Its serial number in hexadecimal digits.
    pub serial: String,
    /// When it was made, in seconds since 1970.
    pub issued: u64,
    /// Until when it is good, likewise.
    pub expires: u64,
    /// Which authority has made it ([`Authority::id`]).
    pub authority: String,
    /// The certificate.
    pub pem: String,
}

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// The manager shows it to clients.
    Manager,
    /// A client shows it to the manager.
    Client,
}

impl Authority {
    /// Makes the authority of a new cell and writes its files.
    ///
    /// # Errors
    /// `Certificate` or `Io`.
    pub fn create(cell_directory: &Path, cell: CellId) -> Result<Self, CellError> {
        let directory = tls_directory(cell_directory);
        let key = KeyPair::generate()?;
        let parameters = root_parameters(cell);
        let certificate = parameters.self_signed(&key)?;
        write_private(&directory.join("ca.key"), key.serialize_pem().as_bytes())?;
        write_atomic(&directory.join("ca.pem"), certificate.pem().as_bytes(), 0o644)?;
        Ok(Authority { directory, issuer: Issuer::new(parameters, key) })
    }

    /// The authority of a cell that there is; only where its key is.
    ///
    /// # Errors
    /// `ExposedSecret`, `Damaged` or `Io`.
    pub fn open(cell_directory: &Path, cell: CellId) -> Result<Self, CellError> {
        let directory = tls_directory(cell_directory);
        let path = directory.join("ca.key");
        let text = Zeroizing::new(super::files::read_private(&path)?);
        let key = KeyPair::from_pem(&text)
            .map_err(|_| CellError::Damaged { path, reason: "it is no private key".to_owned() })?;
        Ok(Authority { directory, issuer: Issuer::new(root_parameters(cell), key) })
    }

    /// The public key, a point.
    pub fn public_key(&self) -> &[u8] {
        self.issuer.key().der_bytes()
    }

    /// A name for this authority: the beginning of its public key's hash.
    pub fn id(&self) -> String {
        let hash = blake3::hash(self.issuer.key().der_bytes());
        super::keyring::to_hex(&hash.as_bytes()[..8])
    }

    /// A new authority for the cell: its key and its certificate, in PEM.
    ///
    /// # Errors
    /// `Certificate`.
    pub fn new_root(cell: CellId) -> Result<(Zeroizing<String>, String), CellError> {
        let key = KeyPair::generate()?;
        let certificate = root_parameters(cell).self_signed(&key)?;
        Ok((Zeroizing::new(key.serialize_pem()), certificate.pem()))
    }

    /// Makes a key and a certificate for it, and writes both as files of `member`.
    ///
    /// # Errors
    /// `Certificate` or `Io`.
    pub fn issue_files(
        &self,
        member: &str,
        identity: &str,
        usage: Usage,
        validity: Duration,
    ) -> Result<Issued, CellError> {
        let files = CertificateFiles::in_directory(&self.directory, member);
        self.issue_into(&files, identity, usage, validity)
    }

    /// The same into any files, of a member that has none yet: one that has could be left without
    /// ([`Authority::issue_pair`]).
    ///
    /// # Errors
    /// `Certificate` or `Io`.
    pub fn issue_into(
        &self,
        files: &CertificateFiles,
        identity: &str,
        usage: Usage,
        validity: Duration,
    ) -> Result<Issued, CellError> {
        let (key, issued) = self.issue_pair(identity, usage, validity)?;
        write_private(&files.key, key.as_bytes())?;
        write_atomic(&files.certificate, issued.pem.as_bytes(), 0o644)?;
        Ok(issued)
    }

    /// A new key, in PEM, and a certificate for it; nothing is written.
    ///
    /// # Errors
    /// `Certificate`.
    pub fn issue_pair(
        &self,
        identity: &str,
        usage: Usage,
        validity: Duration,
    ) -> Result<(Zeroizing<String>, Issued), CellError> {
        let key = KeyPair::generate()?;
        let issued = self.issue(&key, identity, usage, validity)?;
        Ok((Zeroizing::new(key.serialize_pem()), issued))
    }

    /// A certificate that says whose a key is.
    ///
    /// # Errors
    /// `Certificate`.
    pub fn issue(
        &self,
        key: &impl PublicKeyData,
        identity: &str,
        usage: Usage,
        validity: Duration,
    ) -> Result<Issued, CellError> {
        let (names, purpose) = match usage {
            Usage::Manager => (vec![MANAGER_NAME.to_owned()], ExtendedKeyUsagePurpose::ServerAuth),
            Usage::Client => (Vec::new(), ExtendedKeyUsagePurpose::ClientAuth),
        };
        let mut serial = [0; 16];
        getrandom::fill(&mut serial).map_err(CellError::Random)?;
        // A serial number is positive, and has one form: its first bit is 0, its first byte not.
        serial[0] = serial[0] & 0x3f | 0x40;
        let issued = now().seconds();
        let mut parameters = CertificateParams::new(names)?;
        parameters.distinguished_name = name(identity);
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![purpose];
        parameters.serial_number = Some(SerialNumber::from_slice(&serial));
        let expires = set_validity(&mut parameters, issued, validity);
        let certificate = parameters.signed_by(key, &self.issuer)?;
        let serial = super::keyring::to_hex(&serial);
        Ok(Issued { serial, issued, expires, authority: self.id(), pem: certificate.pem() })
    }
}

fn root_parameters(cell: CellId) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = name(&format!("NASD cell {cell}"));
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut parameters, now().seconds(), AUTHORITY_VALIDITY);
    parameters
}

/// From a day ago until `validity` from now; tells the end.
fn set_validity(parameters: &mut CertificateParams, now: u64, validity: Duration) -> u64 {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let end = now.saturating_add(validity.as_secs());
    parameters.not_before = epoch + (Duration::from_secs(now).saturating_sub(BEFORE));
    parameters.not_after = epoch + Duration::from_secs(end);
    end
}

fn name(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}
