//! Certificates before they end, and a new authority in the place of an old one.
//!
//! A new authority comes beside the old one first: `ca.pem` has both, so that certificates of either
//! are good, and new ones are made by the new one, while the manager still shows one of the old, which
//! everybody knows. Members that renew their certificates learn of the new authority. When all have,
//! the old one goes, and with it every certificate that it has made.

use super::authority::{Authority, BEFORE, CertificateFiles, Issued, Usage, VALIDITY};
use super::invitation::P256Point;
use super::keyring::{read_private, write_atomic, write_private};
use super::members::{Member, MemberKind, Members, identity};
use super::{Cell, CellError, now, tls_directory};
use nasd_manager::membership::{Enrolled, EnrolmentError};
use std::path::{Path, PathBuf};
use std::time::Duration;
use zeroize::Zeroizing;

/// A certificate is renewed when less than this part of its time is left.
const RENEWED_PART: u64 = 3;

/// Whether a certificate should be renewed now.
pub fn is_due(issued: u64, expires: u64, now: u64) -> bool {
    let whole = expires.saturating_sub(issued);
    expires.saturating_sub(now) < whole / RENEWED_PART
}

/// When a certificate was made and ends, in seconds since 1970.
///
/// # Errors
/// `Damaged` or `Io`.
pub fn times_of(certificate: &Path) -> Result<(u64, u64), CellError> {
    let pem = std::fs::read(certificate).map_err(CellError::io("read", certificate))?;
    let (begins, ends) = nasd_transport::certificate_times(&pem).map_err(|error| {
        CellError::Damaged { path: certificate.to_owned(), reason: error.to_string() }
    })?;
    // It is good from before it was made: clocks differ.
    Ok((begins + BEFORE.as_secs(), ends))
}

/// Renews, where the authority's key is, what is due of the cell's own certificates: the manager's,
/// this machine's and the administrator's. Tells whether the manager's is another now.
///
/// # Errors
/// `Certificate`, `Damaged` or `Io`.
pub fn refresh(cell: &Cell) -> Result<bool, CellError> {
    let directory = cell.directory();
    let authority = Authority::open(directory, cell.config.cell_id())?;
    for (file, kind) in [("host", MemberKind::Host), ("admin", MemberKind::Admin)] {
        let files = cell.certificate(file);
        let (issued, expires) = times_of(&files.certificate)?;
        if is_due(issued, expires, now().seconds()) {
            renew_own(cell, &authority, &files, kind)?;
        }
    }
    let (issued, expires) = times_of(&cell.certificate("manager").certificate)?;
    // While an old authority is still there, the manager shows a certificate of that.
    let is_due = is_due(issued, expires, now().seconds()) && !is_changing(directory)?;
    if is_due {
        authority.issue_files("manager", "manager", Usage::Manager, VALIDITY)?;
    }
    Ok(is_due)
}

/// Gives a member whose files are here a new certificate.
fn renew_own(
    cell: &Cell,
    authority: &Authority,
    files: &CertificateFiles,
    kind: MemberKind,
) -> Result<(), CellError> {
    let pem =
        std::fs::read(&files.certificate).map_err(CellError::io("read", &files.certificate))?;
    let damaged = |reason: String| CellError::Damaged { path: files.certificate.clone(), reason };
    let serial = nasd_transport::certificate_serial(&pem).map_err(|e| damaged(e.to_string()))?;
    Members::update(cell.directory(), |members| {
        let member = members.by_serial(&serial).ok_or_else(|| {
            damaged(format!("its serial number {serial} is not in the ledger of members"))
        })?;
        let identity = identity(&member.name, kind, member.uid);
        let issued = authority.issue_into(files, &identity, Usage::Client, VALIDITY)?;
        member.renew(&issued);
        Ok(())
    })
}

/// A member's new certificate, for a key of its own.
///
/// # Errors
/// `Refused` for who is no member, or a key that is none; `Failed` otherwise.
pub fn renew(cell: &Cell, serial: &str, public_key: &[u8]) -> Result<Enrolled, EnrolmentError> {
    let failed = |error: CellError| EnrolmentError::Failed(error.to_string());
    let key = P256Point::new(public_key)
        .ok_or_else(|| EnrolmentError::Refused("the public key is none".to_owned()))?;
    let authority = Authority::open(cell.directory(), cell.config.cell_id()).map_err(failed)?;
    let renewed = Members::update(cell.directory(), |members| {
        let Some(member) = members.by_serial(serial) else { return Ok(None) };
        let validity = Duration::from_secs(member.expires.saturating_sub(member.issued));
        let issued = authority.issue(&key, &member.identity(), Usage::Client, validity)?;
        member.renew(&issued);
        Ok(Some((member.clone(), issued)))
    });
    let refused = || EnrolmentError::Refused("no member has this certificate".to_owned());
    let (member, issued): (Member, Issued) = renewed.map_err(failed)?.ok_or_else(refused)?;
    enrolled(cell, &member, issued)
}

/// What a member needs of the cell, with its certificate.
///
/// # Errors
/// `Failed` where the cell's files can't be read.
pub fn enrolled(cell: &Cell, member: &Member, issued: Issued) -> Result<Enrolled, EnrolmentError> {
    let failed = |error: CellError| EnrolmentError::Failed(error.to_string());
    let path = cell.certificate("manager").authority;
    let authority = std::fs::read_to_string(&path).map_err(CellError::io("read", &path));
    Ok(Enrolled {
        member: member.kind.file().to_owned(),
        certificate: issued.pem,
        authority: authority.map_err(failed)?,
        cell: cell.config.for_clients().to_text().map_err(EnrolmentError::Failed)?,
    })
}

fn next_key(directory: &Path) -> PathBuf {
    tls_directory(directory).join("ca.next.key")
}

/// The certificates of the authorities that are trusted, in PEM, the manager's first.
fn authorities(directory: &Path) -> Result<Vec<String>, CellError> {
    const END: &str = "-----END CERTIFICATE-----";
    let path = tls_directory(directory).join("ca.pem");
    let text = std::fs::read_to_string(&path).map_err(CellError::io("read", &path))?;
    let whole = text.split_inclusive(END).filter(|part| part.ends_with(END));
    Ok(whole.map(|part| format!("{}\n", part.trim_start())).collect())
}

/// Whether a new authority stands beside an old one.
///
/// # Errors
/// `Io`.
pub fn is_changing(directory: &Path) -> Result<bool, CellError> {
    Ok(authorities(directory)?.len() > 1)
}

/// Makes a new authority, which is trusted beside the old one when the manager has read the files,
/// and makes all new certificates. One that was begun is completed. `false` if one stands there already.
///
/// # Errors
/// `Certificate` or `Io`.
pub fn begin_authority(cell: &Cell) -> Result<bool, CellError> {
    let directory = cell.directory();
    let key_path = tls_directory(directory).join("ca.key");
    let next = next_key(directory);
    let mut trusted = authorities(directory)?;
    if trusted.len() > 1 && !next.exists() {
        return Ok(false);
    }
    if trusted.len() == 1 {
        let (key, certificate) = Authority::new_root(cell.config.cell_id())?;
        write_private(&next, key.as_bytes())?;
        trusted.push(certificate);
        write_atomic(&tls_directory(directory).join("ca.pem"), trusted.concat().as_bytes(), 0o644)?;
    }
    let key = Zeroizing::new(read_private(&next)?);
    write_private(&key_path, key.as_bytes())?;
    std::fs::remove_file(&next).map_err(CellError::io("remove", &next))?;
    Ok(true)
}

/// Certificates of the present authority for this machine and the administrator.
///
/// # Errors
/// `Certificate`, `Damaged` or `Io`.
pub fn follow_authority(cell: &Cell) -> Result<(), CellError> {
    let authority = Authority::open(cell.directory(), cell.config.cell_id())?;
    for (file, kind) in [("host", MemberKind::Host), ("admin", MemberKind::Admin)] {
        renew_own(cell, &authority, &cell.certificate(file), kind)?;
    }
    Ok(())
}

/// Members whose certificates are older than the new authority: they would be shut out by its end.
///
/// # Errors
/// `Damaged` or `Io`.
pub fn not_renewed(cell: &Cell) -> Result<Vec<String>, CellError> {
    let authority = Authority::open(cell.directory(), cell.config.cell_id())?.id();
    let members = Members::load(cell.directory())?;
    let old = members.present().filter(|member| member.authority != authority);
    Ok(old.map(Member::identity).collect())
}

/// Trusts the new authority alone, and gives the manager a certificate of it.
///
/// # Errors
/// `Certificate` or `Io`.
pub fn finish_authority(cell: &Cell) -> Result<(), CellError> {
    let directory = cell.directory();
    let trusted = authorities(directory)?;
    let Some(newest) = trusted.last() else { return Ok(()) };
    let authority = Authority::open(directory, cell.config.cell_id())?;
    // The certificate first: it is good by either list.
    authority.issue_files("manager", "manager", Usage::Manager, VALIDITY)?;
    write_atomic(&tls_directory(directory).join("ca.pem"), newest.as_bytes(), 0o644)
}

/// Puts a member's new certificate and key, and the authorities that it is told of, in the place of
/// the ones that it has. An interruption leaves a pair that fits, or what [`complete`] mends.
///
/// # Errors
/// `Io`.
pub fn replace_certificate(
    files: &CertificateFiles,
    key: &str,
    certificate: &str,
    authority: &str,
) -> Result<(), CellError> {
    // Those that are trusted already are among the new ones, or their time is over.
    write_atomic(&files.authority, authority.as_bytes(), 0o644)?;
    write_private(&next_of(&files.key), key.as_bytes())?;
    write_atomic(&next_of(&files.certificate), certificate.as_bytes(), 0o644)?;
    complete(files)
}

/// Completes a replacement that was interrupted when both new files were there.
///
/// # Errors
/// `Io`.
pub fn complete(files: &CertificateFiles) -> Result<(), CellError> {
    let (key, certificate) = (next_of(&files.key), next_of(&files.certificate));
    if !certificate.exists() {
        return Ok(());
    }
    let rename = |from: &Path, to: &Path| match std::fs::rename(from, to) {
        // The key goes first; so it may be there already.
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(CellError::io("rename", from)(error))
        }
        _ => Ok(()),
    };
    rename(&key, &files.key)?;
    rename(&certificate, &files.certificate)
}

fn next_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".next");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_renewed_in_their_last_third() {
        assert!(!is_due(1000, 1900, 1000));
        assert!(!is_due(1000, 1900, 1600));
        assert!(is_due(1000, 1900, 1601));
        assert!(is_due(1000, 1900, 5000));
    }

    #[test]
    fn a_replacement_leaves_a_pair_that_fits_wherever_it_stops() {
        let directory = tempfile::tempdir().unwrap();
        let files = CertificateFiles::in_directory(directory.path(), "host");
        let pair = || {
            let read = |path: &Path| std::fs::read_to_string(path).unwrap();
            (read(&files.key), read(&files.certificate))
        };
        let old = ("old key".to_owned(), "old certificate".to_owned());
        let new = ("new key".to_owned(), "new certificate".to_owned());
        // What is there after each step: files of the new pair, and whether the key is in place.
        for (key_written, certificate_written, key_moved) in
            [(true, false, false), (true, true, false), (true, true, true)]
        {
            std::fs::write(&files.key, &old.0).unwrap();
            std::fs::write(&files.certificate, &old.1).unwrap();
            if key_written {
                std::fs::write(next_of(&files.key), &new.0).unwrap();
            }
            if certificate_written {
                std::fs::write(next_of(&files.certificate), &new.1).unwrap();
            }
            if key_moved {
                std::fs::rename(next_of(&files.key), &files.key).unwrap();
            }
            complete(&files).unwrap();
            assert_eq!(pair(), if certificate_written { new.clone() } else { old.clone() });
        }
        replace_certificate(&files, &old.0, &old.1, "authorities").unwrap();
        assert_eq!(pair(), old);
        assert_eq!(std::fs::read_to_string(&files.authority).unwrap(), "authorities");
    }
}
