//! A keyring at rest that is of no use to whoever gets the file: encrypted under a passphrase, or
//! under a secret that systemd hands to the service.
//!
//! A sealed keyring is a TOML file too: how its key is made, and one text, in hexadecimal digits. Key of
//! the text: Argon2id of the passphrase and the salt; or BLAKE3's `derive_key` of the credential and the
//! salt. The text is XChaCha20-Poly1305 under a nonce drawn at random for each writing, and covers how
//! the key is made. What was found out once, the process remembers: the manager rewrites the file at
//! each change of keys, and must not ask a person for it.

use super::CellError;
use super::files::read_private;
use super::keyring::to_hex;
use crate::terminal::ask_secret;
use argon2::{Algorithm, Argon2, Params, Version};
use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{KeyInit, Tag, XChaCha20Poly1305, XNonce};
use serde::{Deserialize, Serialize};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use zeroize::{Zeroize, Zeroizing};

/// The first line of a sealed keyring.
const HEAD: &str = "# A sealed NASD keyring.\n";

/// Names the file that has the passphrase, for services that nobody can ask.
const PASSPHRASE_FILE: &str = "NASD_PASSPHRASE_FILE";

/// The directory in which systemd puts a service's credentials.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

const SALT_BYTES: usize = 16;
const NONCE_BYTES: usize = 24;
const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 16;

/// What Argon2id costs: memory in KiB, and passes over it. RFC 9106, section 4, the second
/// recommended choice.
const MEMORY_KIB: u32 = 64 << 10;
const PASSES: u32 = 3;
const LANES: u32 = 4;

/// More than this a file can't ask for: whoever writes it could stop the machine.
const MAX_MEMORY_KIB: u32 = 1 << 20;
const MAX_PASSES: u32 = 64;

/// A credential shorter than this is no secret.
const MIN_SECRET_BYTES: usize = 16;

/// What a keyring is sealed with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "lowercase", deny_unknown_fields)]
pub enum Seal {
    /// A passphrase.
    Passphrase {
        /// Of Argon2id, in hexadecimal digits.
        salt: String,
        /// Its memory.
        memory_kib: u32,
        /// Its passes.
        passes: u32,
        /// Its lanes.
        lanes: u32,
    },
    /// A systemd credential.
    Credential {
        /// The credential's name.
        name: String,
        /// In hexadecimal digits.
        salt: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    seal: Seal,
    nonce: String,
    text: String,
}

type Key = Zeroizing<[u8; KEY_BYTES]>;

/// The key of the seal that was opened or made last.
static KNOWN: Mutex<Option<(Seal, Key)>> = Mutex::new(None);

impl Seal {
    /// By a passphrase, with a fresh salt.
    ///
    /// # Errors
    /// `Random` where the system gives no random numbers.
    pub fn by_passphrase() -> Result<Self, CellError> {
        let salt = fresh_salt()?;
        Ok(Seal::Passphrase { salt, memory_kib: MEMORY_KIB, passes: PASSES, lanes: LANES })
    }

    /// By the systemd credential of that name, with a fresh salt.
    ///
    /// # Errors
    /// `Random` where the system gives no random numbers.
    pub fn by_credential(name: &str) -> Result<Self, CellError> {
        Ok(Seal::Credential { name: name.to_owned(), salt: fresh_salt()? })
    }

    /// Finds out the key of a new seal: a person types a new passphrase twice.
    ///
    /// # Errors
    /// `Sealed` where the passphrase or credential is not to be had.
    pub fn prepare(&self) -> Result<(), CellError> {
        self.key(true).map(drop)
    }

    /// The key, from what this process is given or a person types. A new passphrase is typed twice.
    fn key(&self, is_new: bool) -> Result<Key, CellError> {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((seal, key)) = &*known
            && seal == self
        {
            return Ok(key.clone());
        }
        let key = match self {
            Seal::Passphrase { salt, memory_kib, passes, lanes } => {
                let allowed = *memory_kib <= MAX_MEMORY_KIB && *passes <= MAX_PASSES;
                let parameters = Params::new(*memory_kib, *passes, *lanes, Some(KEY_BYTES));
                let (true, Ok(parameters), Some(salt)) = (allowed, parameters, bytes_of(salt))
                else {
                    return Err(CellError::Sealed("its seal makes no sense".to_owned()));
                };
                by_argon2(&passphrase(is_new)?, &salt, parameters)?
            }
            Seal::Credential { name, salt } => {
                let mut hasher = blake3::Hasher::new_derive_key("nasd v1 sealed keyring");
                hasher.update(&credential(name)?);
                hasher.update(salt.as_bytes());
                let key = Zeroizing::new(*hasher.finalize().as_bytes());
                hasher.zeroize();
                key
            }
        };
        *known = Some((self.clone(), key.clone()));
        Ok(key)
    }

    /// How the key is made, as the text's tag covers it.
    fn covered(&self) -> Result<Vec<u8>, CellError> {
        toml::to_string(self).map(String::into_bytes).map_err(|e| CellError::Sealed(e.to_string()))
    }
}

/// Whether a keyring's text is sealed.
pub fn is_sealed(text: &str) -> bool {
    text.starts_with(HEAD)
}

/// A keyring's text, sealed.
///
/// # Errors
/// `Sealed` where the passphrase or credential is not to be had; `Random`.
pub fn seal(text: &str, seal: &Seal) -> Result<Zeroizing<String>, CellError> {
    let key = seal.key(false)?;
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(CellError::Random)?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len() + TAG_BYTES));
    bytes.extend_from_slice(text.as_bytes());
    let tag = XChaCha20Poly1305::new((&*key).into())
        .encrypt_inout_detached(&XNonce::from(nonce), &seal.covered()?, (&mut bytes[..]).into())
        .map_err(|_| CellError::Sealed("it is too long".to_owned()))?;
    bytes.extend_from_slice(&tag);
    let stored = Stored { seal: seal.clone(), nonce: to_hex(&nonce), text: to_hex(&bytes) };
    let body = toml::to_string(&stored).map_err(|error| CellError::Sealed(error.to_string()))?;
    Ok(Zeroizing::new(format!("{HEAD}{body}")))
}

/// The text of a sealed keyring, and with what it is sealed.
///
/// # Errors
/// `Sealed` where it can't be opened: by what is at hand, or because it was altered.
pub fn unseal(text: &str) -> Result<(Zeroizing<String>, Seal), CellError> {
    let altered = || CellError::Sealed("it is damaged: restore it from a copy".to_owned());
    let stored: Stored = toml::from_str(text).map_err(|_| altered())?;
    let nonce: [u8; NONCE_BYTES] =
        bytes_of(&stored.nonce).and_then(|nonce| nonce.try_into().ok()).ok_or_else(altered)?;
    let mut bytes = Zeroizing::new(bytes_of(&stored.text).ok_or_else(altered)?);
    let key = stored.seal.key(false)?;
    let content = bytes.len().checked_sub(TAG_BYTES).ok_or_else(altered)?;
    let (content, tag) = bytes.split_at_mut(content);
    let tag: Tag = <[u8; TAG_BYTES]>::try_from(&*tag).map_err(|_| altered())?.into();
    let opened = XChaCha20Poly1305::new((&*key).into()).decrypt_inout_detached(
        &XNonce::from(nonce),
        &stored.seal.covered()?,
        (&mut *content).into(),
        &tag,
    );
    if opened.is_err() {
        // What was wrong must not be remembered.
        *KNOWN.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let why = "the passphrase or credential is the wrong one, or the file was altered";
        return Err(CellError::Sealed(why.to_owned()));
    }
    let text = std::str::from_utf8(content).map_err(|_| altered())?;
    Ok((Zeroizing::new(text.to_owned()), stored.seal))
}

fn fresh_salt() -> Result<String, CellError> {
    let mut salt = [0; SALT_BYTES];
    getrandom::fill(&mut salt).map_err(CellError::Random)?;
    Ok(to_hex(&salt))
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    // `from_str_radix` would take a sign.
    let is_digit = |byte: u8| byte.is_ascii_hexdigit();
    if !digits.bytes().all(is_digit) || !digits.len().is_multiple_of(2) {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn by_argon2(passphrase: &str, salt: &[u8], parameters: Params) -> Result<Key, CellError> {
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters)
        .hash_password_into(passphrase.as_bytes(), salt, &mut *key)
        .map_err(|error| CellError::Sealed(error.to_string()))?;
    Ok(key)
}

fn passphrase(is_new: bool) -> Result<Zeroizing<String>, CellError> {
    if let Some(path) = std::env::var_os(PASSPHRASE_FILE).filter(|path| !path.is_empty()) {
        let text = Zeroizing::new(read_private(&PathBuf::from(path))?);
        let line = Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned());
        return match line.is_empty() {
            true => {
                Err(CellError::Sealed(format!("the file that {PASSPHRASE_FILE} names is empty")))
            }
            false => Ok(line),
        };
    }
    if !std::io::stdin().is_terminal() {
        return Err(CellError::Sealed(format!(
            "set {PASSPHRASE_FILE} to a file with its passphrase, which nobody else can read"
        )));
    }
    let typed = ask("Passphrase of the keyring: ")?;
    if is_new && *ask("The same again: ")? != *typed {
        return Err(CellError::Sealed("the two are not the same".to_owned()));
    }
    match typed.is_empty() {
        true => Err(CellError::Sealed("an empty passphrase protects nothing".to_owned())),
        false => Ok(typed),
    }
}

/// A line from the terminal, which does not show it.
fn ask(question: &str) -> Result<Zeroizing<String>, CellError> {
    ask_secret(question).map_err(|error| CellError::Sealed(format!("no passphrase: {error}")))
}

/// What systemd has put into the service's credentials under a name.
fn credential(name: &str) -> Result<Zeroizing<Vec<u8>>, CellError> {
    let refuse = |why: String| Err(CellError::Sealed(why));
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return refuse(format!("`{name}` is no name of a credential"));
    }
    let Some(directory) = std::env::var_os(CREDENTIALS).filter(|path| !path.is_empty()) else {
        return refuse(format!(
            "it needs the systemd credential `{name}`, and there is no {CREDENTIALS}: run it in a \
             service with `LoadCredentialEncrypted={name}`"
        ));
    };
    let path = Path::new(&directory).join(name);
    let secret = std::fs::read(&path).map_err(CellError::io("read", &path))?;
    let secret = Zeroizing::new(secret);
    if secret.len() < MIN_SECRET_BYTES {
        return refuse(format!("the credential `{name}` is shorter than {MIN_SECRET_BYTES} bytes"));
    }
    Ok(secret)
}

/// What tests of sealed files share.
#[cfg(test)]
pub mod testing {
    use super::*;
    use std::sync::MutexGuard;

    /// Held while a test counts on what is known: that is the whole process's.
    pub fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seal whose key is known already, so that nobody is asked.
    pub fn known_seal(byte: u8) -> Seal {
        let seal = Seal::Credential { name: format!("c{byte}"), salt: "00".to_owned() };
        let key = Zeroizing::new([byte; KEY_BYTES]);
        *KNOWN.lock().unwrap() = Some((seal.clone(), key));
        seal
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{alone, known_seal};
    use super::*;

    #[test]
    fn only_the_same_key_opens_what_was_not_altered() {
        let _alone = alone();
        let sealed = seal("secret = \"abc\"", &known_seal(7)).unwrap();
        assert!(is_sealed(&sealed) && !sealed.contains("abc"));
        known_seal(7);
        let (text, by) = unseal(&sealed).unwrap();
        assert_eq!((text.as_str(), by), ("secret = \"abc\"", known_seal(7)));
        assert_ne!(*sealed, *seal("secret = \"abc\"", &known_seal(7)).unwrap(), "a nonce");

        // Every digit counts.
        let start = sealed.find("nonce").unwrap();
        for at in (start..sealed.len()).filter(|at| sealed.as_bytes()[*at].is_ascii_hexdigit()) {
            let mut other = sealed.to_string().into_bytes();
            other[at] = if other[at] == b'0' { b'1' } else { b'0' };
            known_seal(7);
            assert!(unseal(std::str::from_utf8(&other).unwrap()).is_err(), "{at}");
        }
        let wrong = Zeroizing::new([8; KEY_BYTES]);
        *KNOWN.lock().unwrap() = Some((known_seal_of(7), wrong));
        assert!(unseal(&sealed).unwrap_err().to_string().contains("wrong one"));
        assert!(KNOWN.lock().unwrap().is_none(), "a wrong key is not remembered");
    }

    fn known_seal_of(byte: u8) -> Seal {
        Seal::Credential { name: format!("c{byte}"), salt: "00".to_owned() }
    }

    #[test]
    fn argon2_is_that_of_rfc_9106() {
        // Of the reference implementation: argon2 somesalt -id -t 2 -k 256 -p 1 -l 32 <<< password.
        let parameters = Params::new(256, 2, 1, Some(32)).unwrap();
        let key = by_argon2("password", b"somesalt", parameters).unwrap();
        let expected = "9dfeb910e80bad0311fee20f9c0e2b12c17987b4cac90c2ef54d5b3021c68bfe";
        assert_eq!(to_hex(&key[..]), expected);
    }

    #[test]
    fn digits_are_bytes() {
        assert_eq!(bytes_of("00ff"), Some(vec![0, 255]));
        for bad in ["0", "0g", "+1", "\u{e9}0"] {
            assert_eq!(bytes_of(bad), None, "{bad}");
        }
    }
}
