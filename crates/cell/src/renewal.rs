//! Certificates before they end, and a new authority in the place of an old one.
//!
//! A new authority comes beside the old one first: `ca.pem` has both, so that certificates of either
//! are good, and new ones are made by the new one, while the manager still shows one of the old, which
//! everybody knows. Members that renew their certificates learn of the new authority. When all have,
//! the old one goes, and with it every certificate that it has made.

use super::authority::{Authority, BEFORE, CertificateFiles, Issued, Usage, VALIDITY};
use super::create::OWNER;
use super::files::{read_private, write_atomic, write_private};
use super::invitation::P256Point;
use super::members::{Member, MemberKind, Members, identity};
use super::{Cell, CellError, now, tls_directory};
use nasd_manager::membership::{Enrolled, EnrolmentError};
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
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

/// Held while a directory's certificates are renewed, so that two who find the same one due do not
/// mix their keys and certificates.
pub struct Renewing {
    _locked: File,
}

impl Renewing {
    /// Waits until nobody else renews there.
    ///
    /// # Errors
    /// `Io`.
    pub fn wait(cell: &Cell) -> Result<Self, CellError> {
        let (path, file) = open_lock(cell)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)
            .map_err(|errno| CellError::io("lock", path)(errno.into()))?;
        Ok(Renewing { _locked: file })
    }

    /// `None` while somebody else renews there.
    ///
    /// # Errors
    /// `Io`.
    pub fn try_now(cell: &Cell) -> Result<Option<Self>, CellError> {
        let (path, file) = open_lock(cell)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Renewing { _locked: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(CellError::io("lock", path)(errno.into())),
        }
    }
}

/// Not the directory itself: its lock is the ledger's, which the manager takes while a client of the
/// same directory waits for its new certificate.
fn open_lock(cell: &Cell) -> Result<(PathBuf, File), CellError> {
    let path = tls_directory(cell.directory()).join("renewal.lock");
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    let file = options.open(&path).map_err(CellError::io("open", &path))?;
    Ok((path, file))
}

/// The cell's own certificates that members have: this machine's and the administrator's.
const OWN: [(&str, MemberKind); 2] = [("host", MemberKind::Host), ("admin", MemberKind::Admin)];

/// Renews, where the authority's key is, what is due of the cell's own certificates: the manager's,
/// this machine's and the administrator's. Tells whether the manager's is another now.
///
/// The manager's alone must be good for it to serve: what is wrong with another is logged.
///
/// # Errors
/// `Certificate`, `Damaged` or `Io`.
pub fn refresh(cell: &Cell) -> Result<bool, CellError> {
    let authority = Authority::open(cell.directory(), cell.config.cell_id())?;
    let Some(renewing) = Renewing::try_now(cell)? else {
        tracing::debug!("somebody else renews the certificates");
        return Ok(false);
    };
    for (file, kind) in OWN {
        let renewed = complete(&cell.certificate(file)).and_then(|()| {
            let (issued, expires) = times_of(&cell.certificate(file).certificate)?;
            match is_due(issued, expires, now().seconds()) {
                true => renew_own(cell, &authority, (file, kind), &renewing),
                false => Ok(()),
            }
        });
        if let Err(error) = renewed {
            tracing::error!(%error, file, "a certificate is not renewed");
        }
    }
    let files = cell.certificate("manager");
    complete(&files)?;
    let (issued, expires) = times_of(&files.certificate)?;
    // While an old authority is still there, the manager shows a certificate of that.
    let is_due = is_due(issued, expires, now().seconds()) && !is_changing(cell.directory())?;
    if is_due {
        renew_manager(&authority, &files)?;
    }
    Ok(is_due)
}

/// A new key and certificate for the manager, in its files.
fn renew_manager(authority: &Authority, files: &CertificateFiles) -> Result<(), CellError> {
    let (key, issued) = authority.issue_pair("manager", Usage::Manager, VALIDITY)?;
    install(files, &key, &issued.pem)
}

/// The serial number of a certificate in a file, in hexadecimal digits.
///
/// # Errors
/// `Damaged` or `Io`.
pub fn serial_of(certificate: &Path) -> Result<String, CellError> {
    let pem = std::fs::read(certificate).map_err(CellError::io("read", certificate))?;
    nasd_transport::certificate_serial(&pem).map_err(|error| CellError::Damaged {
        path: certificate.to_owned(),
        reason: error.to_string(),
    })
}

/// Gives a member whose files are here a new certificate. One who was removed gets none.
///
/// The ledger knows the new certificate, and the old one still, before the files change: wherever
/// this is interrupted, the files have a certificate that counts.
fn renew_own(
    cell: &Cell,
    authority: &Authority,
    (file, kind): (&str, MemberKind),
    _renewing: &Renewing,
) -> Result<(), CellError> {
    let files = cell.certificate(file);
    complete(&files)?;
    let serial = serial_of(&files.certificate)?;
    let renewed = Members::update(cell.directory(), |members| {
        let Some(member) = members.by_serial(&serial) else { return Ok(None) };
        let identity = identity(&member.name, kind, member.uid);
        let (key, issued) = authority.issue_pair(&identity, Usage::Client, VALIDITY)?;
        member.renew(&issued);
        Ok(Some((key, issued)))
    })?;
    match renewed {
        Some((key, issued)) => install(&files, &key, &issued.pem),
        None => {
            tracing::warn!(file, serial, "its member was removed: the certificate is not renewed");
            Ok(())
        }
    }
}

/// Gives the cell's own administrator or machine another certificate, and has no earlier one of it
/// count any more, whoever has them. The manager must be told after this.
///
/// The ledger knows the new one, and the old ones still, before it is in the files, and forgets the
/// old ones after that: wherever this is interrupted, what the files have counts, and it is given
/// again. Who had an old one could have had it renewed meanwhile; what came of that is forgotten too.
///
/// # Errors
/// `Member` for a machine that was removed; `Certificate`, `Damaged` or `Io`.
pub fn replace_own(cell: &Cell, kind: MemberKind) -> Result<(), CellError> {
    let _renewing = Renewing::wait(cell)?;
    let authority = Authority::open(cell.directory(), cell.config.cell_id())?;
    let files = cell.certificate(kind.file());
    complete(&files)?;
    let own = own_identity(&files, kind)?;
    let (key, issued) = authority.issue_pair(&own, Usage::Client, VALIDITY)?;
    Members::update(cell.directory(), |members| {
        match own_member(members, &own, kind)? {
            Some(member) => member.renew(&issued),
            None => members.add(Member::new(OWNER, kind, None, &issued)),
        }
        Ok(())
    })?;
    install(&files, &key, &issued.pem)?;
    Members::update(cell.directory(), |members| {
        if let Some(member) = own_member(members, &own, kind)? {
            member.count_only(&issued);
        }
        Ok(())
    })
}

/// Whose the certificate here is, also if the ledger does not know its number: whoever has its key
/// could have had it renewed until this one was forgotten.
fn own_identity(files: &CertificateFiles, kind: MemberKind) -> Result<String, CellError> {
    let path = &files.certificate;
    let damaged = |reason| CellError::Damaged { path: path.clone(), reason };
    match kind {
        // There is one, whatever the files say.
        MemberKind::Admin => Ok(identity(OWNER, kind, None)),
        MemberKind::Host | MemberKind::User => {
            let pem = std::fs::read(path).map_err(CellError::io("read", path))?;
            let named = nasd_transport::certificate_identity(&pem);
            Ok(named.map_err(|error| damaged(error.to_string()))?.to_string())
        }
    }
}

/// The cell's own member of that identity. There is always an administrator: `None` if the ledger
/// has forgotten it.
fn own_member<'a>(
    members: &'a mut Members,
    own: &str,
    kind: MemberKind,
) -> Result<Option<&'a mut Member>, CellError> {
    match members.by_identity(own) {
        None if kind != MemberKind::Admin => {
            let why = "it was removed from the cell: add it anew".to_owned();
            Err(CellError::Member { name: own.to_owned(), why })
        }
        member => Ok(member),
    }
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
    let renewing = Renewing::wait(cell)?;
    OWN.into_iter().try_for_each(|own| renew_own(cell, &authority, own, &renewing))
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

/// Whether the new authority may stand alone: the key here is its key, and the administrator and
/// this machine have certificates of it. All certificates would be worthless otherwise.
///
/// # Errors
/// `Unfinished` where a step before was interrupted; `Damaged` or `Io`.
pub fn check_authority(cell: &Cell) -> Result<(), CellError> {
    let directory = cell.directory();
    let unfinished = |why: &str| Err(CellError::Unfinished(why.to_owned()));
    if next_key(directory).exists() {
        return unfinished("the new authority's key is not in its place");
    }
    let authority = Authority::open(directory, cell.config.cell_id())?;
    let newest = authorities(directory)?.pop().unwrap_or_default();
    let certified = nasd_transport::certificate_public_key(newest.as_bytes()).map_err(|error| {
        let path = tls_directory(directory).join("ca.pem");
        CellError::Damaged { path, reason: error.to_string() }
    })?;
    if certified != authority.public_key() {
        return unfinished("tls/ca.key is not the key of the last authority in tls/ca.pem");
    }
    let mut members = Members::load(directory)?;
    for (file, _) in OWN {
        let serial = serial_of(&cell.certificate(file).certificate)?;
        if members.by_serial(&serial).is_some_and(|member| member.authority != authority.id()) {
            return unfinished(&format!("tls/{file}.pem is still of the old authority"));
        }
    }
    Ok(())
}

/// Trusts the new authority alone, and gives the manager a certificate of it. Certificates of others
/// count no more, those that sessions were made with included.
///
/// # Errors
/// As [`check_authority`]; `Certificate`.
pub fn finish_authority(cell: &Cell) -> Result<(), CellError> {
    let directory = cell.directory();
    let _renewing = Renewing::wait(cell)?;
    check_authority(cell)?;
    let trusted = authorities(directory)?;
    let Some(newest) = trusted.last() else { return Ok(()) };
    let authority = Authority::open(directory, cell.config.cell_id())?;
    // The list of authorities last: until it has one, this can be given again.
    Members::update(directory, |members| {
        members.retire_others(&authority.id());
        Ok(())
    })?;
    // The certificate is good by either list.
    renew_manager(&authority, &cell.certificate("manager"))?;
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
    install(files, key, certificate)
}

/// The same without the authorities.
fn install(files: &CertificateFiles, key: &str, certificate: &str) -> Result<(), CellError> {
    // Half of an earlier replacement must not be taken for half of this one.
    complete(files)?;
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
    use crate::testing::cell;
    use rcgen::{KeyPair, PublicKeyData};

    /// Gives all certificates of the cell's own so short a time as to be due when this returns.
    fn make_due(cell: &Cell) {
        let authority = Authority::open(cell.directory(), cell.config.cell_id()).unwrap();
        let brief = Duration::from_secs(3);
        authority.issue_files("manager", "manager", Usage::Manager, brief).unwrap();
        for (file, _) in OWN {
            let serial = serial_of(&cell.certificate(file).certificate).unwrap();
            Members::update(cell.directory(), |members| {
                let member = members.by_serial(&serial).unwrap();
                let identity = member.identity();
                let issued = authority.issue_files(file, &identity, Usage::Client, brief)?;
                member.renew(&issued);
                Ok(())
            })
            .unwrap();
        }
        std::thread::sleep(brief + Duration::from_millis(100));
    }

    fn serials(cell: &Cell) -> Vec<String> {
        let serial = |file: &str| serial_of(&cell.certificate(file).certificate).unwrap();
        ["manager", "host", "admin"].map(serial).to_vec()
    }

    /// Whether key and certificate of each belong together, and the ledger knows those of members.
    fn check_all(cell: &Cell) {
        let mut members = Members::load(cell.directory()).unwrap();
        for file in ["manager", "host", "admin"] {
            let files = cell.certificate(file);
            let key = KeyPair::from_pem(&std::fs::read_to_string(&files.key).unwrap()).unwrap();
            let pem = std::fs::read(&files.certificate).unwrap();
            let certified = nasd_transport::certificate_public_key(&pem).unwrap();
            assert_eq!(certified, key.der_bytes(), "{file}");
            let serial = nasd_transport::certificate_serial(&pem).unwrap();
            assert_eq!(members.by_serial(&serial).is_some(), file != "manager", "{file}");
        }
    }

    fn renew_all(cell: &Cell) {
        let authority = Authority::open(cell.directory(), cell.config.cell_id()).unwrap();
        let renewing = Renewing::wait(cell).unwrap();
        for own in OWN {
            renew_own(cell, &authority, own, &renewing).unwrap();
        }
        renew_manager(&authority, &cell.certificate("manager")).unwrap();
    }

    #[test]
    fn a_member_that_was_removed_keeps_no_other_from_its_certificate() {
        let directory = tempfile::tempdir().unwrap();
        let cell = cell(directory.path());
        let serial = serials(&cell)[1].clone();
        let name =
            Members::load(cell.directory()).unwrap().by_serial(&serial).unwrap().name.clone();
        make_due(&cell);
        Members::update(cell.directory(), |members| members.remove(&name, MemberKind::Host))
            .unwrap();
        let before = serials(&cell);
        assert!(refresh(&cell).unwrap());
        let after = serials(&cell);
        assert_ne!(after[0], before[0], "the manager");
        assert_eq!(after[1], before[1], "the removed one");
        assert_ne!(after[2], before[2], "the administrator");
        assert!(Members::load(cell.directory()).unwrap().by_serial(&after[2]).is_some());
        assert!(!refresh(&cell).unwrap());
        follow_authority(&cell).unwrap();
        assert_ne!(serials(&cell)[2], after[2]);
        // Nor does a file that is damaged.
        std::fs::write(cell.certificate("host").certificate, "none").unwrap();
        assert!(!refresh(&cell).unwrap());
    }

    #[test]
    fn a_renewal_that_stops_anywhere_leaves_certificates_that_count() {
        let directory = tempfile::tempdir().unwrap();
        let cell = cell(directory.path());
        for left in 0..3 {
            let authority = Authority::open(cell.directory(), cell.config.cell_id()).unwrap();
            let files = cell.certificate("admin");
            let serial = serial_of(&files.certificate).unwrap();
            let (key, issued) = Members::update(cell.directory(), |members| {
                let pair = authority.issue_pair("admin:owner", Usage::Client, VALIDITY)?;
                members.by_serial(&serial).unwrap().renew(&pair.1);
                Ok(pair)
            })
            .unwrap();
            if left > 0 {
                std::fs::write(next_of(&files.key), key.as_bytes()).unwrap();
            }
            if left > 1 {
                std::fs::write(next_of(&files.certificate), &issued.pem).unwrap();
            }
            complete(&files).unwrap();
            check_all(&cell);
            renew_all(&cell);
            check_all(&cell);
        }
    }

    #[test]
    fn renewals_at_the_same_time_do_not_mix() {
        let directory = tempfile::tempdir().unwrap();
        let cell = cell(directory.path());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let authority =
                        Authority::open(cell.directory(), cell.config.cell_id()).unwrap();
                    for _ in 0..8 {
                        let renewing = Renewing::wait(&cell).unwrap();
                        renew_own(&cell, &authority, OWN[1], &renewing).unwrap();
                        drop(renewing);
                        refresh(&cell).unwrap();
                    }
                });
            }
        });
        check_all(&cell);
    }

    #[test]
    fn the_old_authority_stays_while_the_new_one_has_not_its_key() {
        let directory = tempfile::tempdir().unwrap();
        let cell = cell(directory.path());
        let key = tls_directory(cell.directory()).join("ca.key");
        let old = std::fs::read(&key).unwrap();
        let strangers = serials(&cell);
        assert!(begin_authority(&cell).unwrap());
        let new = std::fs::read(&key).unwrap();
        let refused = |what: &str| {
            let error = finish_authority(&cell).unwrap_err();
            assert!(matches!(error, CellError::Unfinished(_)), "{what}: {error}");
            assert!(is_changing(cell.directory()).unwrap(), "{what}");
        };
        refused("the administrator has a certificate of the old one");
        write_private(&next_key(cell.directory()), &new).unwrap();
        refused("the key was not yet moved");
        write_private(&key, &old).unwrap();
        refused("the key was not yet copied");
        std::fs::remove_file(next_key(cell.directory())).unwrap();
        refused("the key is another's");
        write_private(&key, &old).unwrap();
        write_private(&next_key(cell.directory()), &new).unwrap();
        // As the command is given again.
        assert!(begin_authority(&cell).unwrap());
        follow_authority(&cell).unwrap();
        finish_authority(&cell).unwrap();
        assert!(!is_changing(cell.directory()).unwrap());
        check_all(&cell);
        let mut members = Members::load(cell.directory()).unwrap();
        assert!(strangers.iter().all(|serial| members.by_serial(serial).is_none()));
    }

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
