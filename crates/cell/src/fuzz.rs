//! Fuzzing of the files of a cell: whatever is in them, reading them is an answer and no panic. How:
//! `crates/protocol/tests/fuzzing`.

use super::authority::Authority;
use super::config::CellConfig;
use super::keyring::{DriveKeys, Keyring, PartitionKeys};
use super::master_keys::{MasterKeys, master_keys_path};
use super::members::Members;
use super::sealed::testing::{alone, known_seal};
use super::{Cell, Guest, MemberKind, Token, enrol, invite, sealed, tls_directory};
use nasd_transport::{ClientTls, PemFiles, ServerTls};
use nasd_types::{CellId, DriveId, PartitionId};
use std::fs;
use std::time::Duration;

#[path = "../../protocol/tests/fuzzing/mod.rs"]
mod fuzzing;

const MEMBERS: &str = "\
[[member]]
name = \"alice\"
kind = \"user\"
uid = 1000
serial = \"0a\"
issued = 1700000000
expires = 1800000000
removed = 1750000000
";

const CELL: &str = "\
version = 1
id = \"cececececececececececececececece\"
volume = \"main\"
protection = \"integrity-args\"

[manager]
address = \"127.0.0.1:7300\"

[[drive]]
index = 1
id = \"00000000000000d1\"
address = \"127.0.0.1:7301\"
device = \"drives/drive-1.img\"
partition = 1
cache_bytes = 268435456

[[drive]]
index = 2
id = \"00000000000000d2\"
address = \"127.0.0.1:7302\"
device = \"drives/striping-2.img\"
partition = 1
cache_bytes = 67108864

[drive.stripe]
over = [1]
unit = 524288
width = 0
copies = 1

[drive.stripe.state]
epoch = 3
copies = [1]
";

/// An outcome by the kind of error, as text without what was in the file.
fn outcome<T, E: std::fmt::Debug>(result: &Result<T, E>) -> u64 {
    match result {
        Ok(_) => 0,
        Err(error) => {
            let words =
                format!("{error:?}").replace(|letter: char| !letter.is_ascii_alphabetic(), "");
            words.bytes().take(120).fold(1, |sum, byte| sum.wrapping_mul(31) ^ u64::from(byte))
        }
    }
}

/// The text, and one with letters of two bytes in it.
fn samples(text: &str) -> Vec<Vec<u8>> {
    vec![text.as_bytes().to_vec(), text.replace("00", "\u{e9}").into_bytes()]
}

#[test]
fn keyrings() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyring.toml");
    let drive = DriveId(0xd1);
    let mut keyring = Keyring::default();
    keyring.insert(drive, &DriveKeys::generate().unwrap());
    keyring.insert_partition(drive, PartitionId(2), &PartitionKeys::generate().unwrap());
    keyring.save(&path).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    fuzzing::fuzz("keyring.toml", samples(&text), |input| {
        // It stays private to its owner.
        fs::write(&path, input).unwrap();
        let keyring = Keyring::load(&path);
        if let Ok(keyring) = &keyring {
            let _ = (keyring.get(drive), keyring.has_partition(drive, PartitionId(2)));
        }
        outcome(&keyring.map(|_| ()))
    });
}

/// Sealed under a secret that the process knows: what opens is what was sealed, and by that alone.
#[test]
fn sealed_keyrings() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyring.toml");
    let mut keyring = Keyring::default();
    keyring.insert(DriveId(0xd1), &DriveKeys::generate().unwrap());
    keyring.set_seal(Some(known_seal(7))).unwrap();
    keyring.save(&path).unwrap();
    let sealed = fs::read_to_string(&path).unwrap();
    assert!(sealed::is_sealed(&sealed), "the sample is sealed");
    let (text, _) = sealed::unseal(&sealed).unwrap();
    fuzzing::fuzz("sealed keyrings", samples(&sealed), |input| {
        known_seal(7);
        fs::write(&path, input).unwrap();
        let keyring = Keyring::load(&path);
        if let Ok(input) = std::str::from_utf8(input)
            && sealed::is_sealed(input)
            && let Ok((opened, by)) = sealed::unseal(input)
        {
            assert!(*opened == *text && by == known_seal(7), "another text is sealed so");
        }
        outcome(&keyring.map(|_| ()))
    });
}

#[test]
fn master_keys() {
    let folder = tempfile::tempdir().unwrap();
    let drive = DriveId(0xd1);
    let mut keys = MasterKeys::new();
    keys.draw(drive).unwrap();
    keys.save(folder.path()).unwrap();
    let path = master_keys_path(folder.path());
    let text = fs::read_to_string(&path).unwrap();
    fuzzing::fuzz("master keys", samples(&text), |input| {
        fs::write(&path, input).unwrap();
        let keys = MasterKeys::load(folder.path());
        if let Ok(keys) = &keys {
            let _ = keys.of(drive);
        }
        outcome(&keys.map(|_| ()))
    });
}

#[test]
fn cell_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cell.toml");
    fuzzing::fuzz("cell.toml", samples(CELL), |input| {
        fs::write(&path, input).unwrap();
        let config = CellConfig::load(&path);
        if let Ok(config) = &config {
            // What was read can be written, and read again.
            fs::write(&path, config.to_text().unwrap()).unwrap();
            let again = CellConfig::load(&path).unwrap();
            assert_eq!(again.to_text(), config.to_text());
        }
        outcome(&config.map(|_| ()))
    });
}

#[test]
fn ledgers_of_members() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(tls_directory(folder.path())).unwrap();
    fuzzing::fuzz("members.toml", samples(MEMBERS), |input| {
        fs::write(Members::path(folder.path()), input).unwrap();
        let members = Members::load(folder.path());
        if let Ok(members) = &members {
            members.all().iter().for_each(|member| drop(member.identity()));
        }
        outcome(&members.map(|_| ()))
    });
}

#[test]
fn certificate_files() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(tls_directory(folder.path())).unwrap();
    Authority::create(folder.path(), CellId([0xce; 16])).unwrap();
    let read = |name: &str| fs::read(tls_directory(folder.path()).join(name)).unwrap();
    let (certificate, key) = (read("ca.pem"), read("ca.key"));
    check_pem(&certificate, &key);
}

/// Each of the three files is what is fuzzed, in turn, beside two that are right.
fn check_pem(certificate: &[u8], key: &[u8]) {
    let both = [certificate, key].concat();
    fuzzing::fuzz("certificates", vec![certificate.to_vec(), key.to_vec(), both], |input| {
        let files = [
            PemFiles { authority: input, certificate, key },
            PemFiles { authority: certificate, certificate: input, key },
            PemFiles { authority: certificate, certificate, key: input },
        ];
        files.iter().fold(0, |sum, files| {
            let server = outcome(&ServerTls::new(files).map(|_| ()));
            let client = outcome(&ClientTls::new(files, "manager.nasd.internal").map(|_| ()));
            sum.wrapping_mul(131) ^ server ^ client.rotate_left(7)
        })
    });
}

/// Somebody is invited, and nobody has joined before.
fn invited(cell: &Cell) -> Token {
    let path = Members::path(cell.directory());
    if path.exists() {
        fs::remove_file(path).unwrap();
    }
    let guest = Guest {
        name: "tower",
        kind: MemberKind::Host,
        uid: None,
        token_for: Duration::from_secs(3600),
        validity: Duration::from_secs(3600),
        manager: "127.0.0.1:7300".to_owned(),
    };
    invite(cell, &guest).unwrap()
}

/// Whatever a stranger says in ENROLL: who has the secret joins, once, with a key that looks like one.
/// The first byte of an input says whether the secret is the right one or in the input too.
#[test]
fn joining() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(tls_directory(folder.path())).unwrap();
    fs::write(folder.path().join("cell.toml"), CELL).unwrap();
    let cell = Cell::open(folder.path()).unwrap();
    let authority = Authority::create(folder.path(), cell.config.cell_id()).unwrap();
    let point = authority.public_key().to_vec();
    let mut token = invited(&cell);
    let mut joined = 0;
    let samples = vec![[&[0], &point[..]].concat(), [&[1], &token.secret[..], &point].concat()];
    fuzzing::fuzz("joining", samples, |input| {
        let Some((&first, rest)) = input.split_first() else { return 0 };
        let right = token.secret.to_vec();
        let (secret, key) = match first % 2 {
            0 => (&right[..], rest),
            _ => rest.split_at(right.len().min(rest.len())),
        };
        let enrolled = enrol(&cell, secret, key);
        assert_eq!(Members::load(folder.path()).unwrap().all().len(), enrolled.iter().count());
        if let Ok(enrolled) = &enrolled {
            assert!(*secret == right && key.len() == point.len(), "somebody has joined");
            nasd_transport::certificate_times(enrolled.certificate.as_bytes()).unwrap();
            enrol(&cell, secret, key).unwrap_err();
            token = invited(&cell);
            joined += 1;
        }
        outcome(&enrolled.map(|_| ()))
    });
    assert!(joined > 0, "nobody has joined");
}

/// The samples are what they should be: otherwise only refusals are fuzzed.
#[test]
fn the_samples_are_good() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cell.toml");
    fs::write(&path, CELL).unwrap();
    CellConfig::load(&path).unwrap();
    fs::create_dir_all(tls_directory(folder.path())).unwrap();
    fs::write(Members::path(folder.path()), MEMBERS).unwrap();
    assert_eq!(Members::load(folder.path()).unwrap().all().len(), 1);
}
