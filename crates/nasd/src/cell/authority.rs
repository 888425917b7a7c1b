//! The cell's certificate authority: certificates say which member or user a TLS peer is.
//!
//! The common name carries the identity: `manager`, `host:NAME` (may speak for any user, as NFS
//! with sec=sys does) or `user:UID` (for that user alone).

use super::keyring::{write_atomic, write_private};
use super::{CellError, tls_directory};
use nasd_types::CellId;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use std::path::{Path, PathBuf};

/// The name that every manager's certificate carries, and that clients ask for.
pub const MANAGER_NAME: &str = "manager.nasd.internal";

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

impl Authority {
    /// Makes the authority of a new cell and writes its files.
    ///
    /// # Errors
    /// `Certificate` or `Io`.
    pub fn create(cell_directory: &Path, cell: CellId) -> Result<Self, CellError> {
        let directory = tls_directory(cell_directory);
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = name(&format!("NASD cell {cell}"));
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = parameters.self_signed(&key)?;
        write_private(&directory.join("ca.key"), key.serialize_pem().as_bytes())?;
        write_atomic(&directory.join("ca.pem"), certificate.pem().as_bytes(), 0o644)?;
        Ok(Authority { directory, issuer: Issuer::new(parameters, key) })
    }

    /// Makes the manager's certificate.
    ///
    /// # Errors
    /// `Certificate` or `Io`.
    pub fn issue_manager(&self) -> Result<CertificateFiles, CellError> {
        self.issue("manager", "manager", &[MANAGER_NAME], ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// Makes a host's certificate: it may speak for every user of that host.
    ///
    /// # Errors
    /// `Certificate` or `Io`.
    pub fn issue_host(&self, host: &str) -> Result<CertificateFiles, CellError> {
        self.issue("host", &format!("host:{host}"), &[], ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(
        &self,
        member: &str,
        identity: &str,
        names: &[&str],
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<CertificateFiles, CellError> {
        let key = KeyPair::generate()?;
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut parameters = CertificateParams::new(names)?;
        parameters.distinguished_name = name(identity);
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![usage];
        let certificate = parameters.signed_by(&key, &self.issuer)?;
        let files = CertificateFiles::in_directory(&self.directory, member);
        write_private(&files.key, key.serialize_pem().as_bytes())?;
        write_atomic(&files.certificate, certificate.pem().as_bytes(), 0o644)?;
        Ok(files)
    }
}

fn name(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}
