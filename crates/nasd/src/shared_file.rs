//! One file, used by a capability alone: no account, no cell, no file manager. Straight to the drive.

use nasd_capability::{Capability, CapabilityUrl, Delegated, TEXT_PREFIX, TextError, URL_PREFIX};
use nasd_cell::session::COMMAND_DEADLINE;
use nasd_cell::time::utc;
use nasd_client::{Authority, ClientError, ConnectOptions, DriveClient, RetryPolicy};
use nasd_protocol::Status;
use nasd_protocol::manager::IssuedCapability;
use nasd_types::{ObjectName, Protection, Rights};
use std::error::Error;
use std::io::Read;
use zeroize::Zeroizing;

/// How data are protected at least: nothing forged gets in or out unnoticed.
const PROTECTION: Protection = Protection::INTEGRITY_ARGS.union(Protection::INTEGRITY_DATA);

/// No capability as text is so long: a URL has a name, which may be escaped.
const MAX_TEXT_BYTES: u64 = 1 << 16;

/// What a user gave for a capability.
#[derive(Debug, Clone)]
pub enum Given {
    /// With where it is good.
    Url(CapabilityUrl),
    /// The capability alone.
    Text(Delegated),
}

impl Given {
    /// The capability.
    pub fn delegated(&self) -> &Delegated {
        match self {
            Given::Url(url) => &url.delegated,
            Given::Text(delegated) => delegated,
        }
    }

    /// The same with another capability.
    pub fn with(&self, delegated: Delegated) -> Given {
        match self {
            Given::Url(url) => Given::Url(CapabilityUrl { delegated, ..url.clone() }),
            Given::Text(_) => Given::Text(delegated),
        }
    }

    /// As it was given.
    pub fn to_text(&self) -> Zeroizing<String> {
        match self {
            Given::Url(url) => url.to_text(),
            Given::Text(delegated) => delegated.to_text(),
        }
    }

    /// From an argument: a URL or text, or where one is.
    ///
    /// # Errors
    /// What is wrong with it, without showing it.
    pub fn from_argument(argument: &str) -> Result<Given, Box<dyn Error>> {
        let text = read_argument(argument, "a capability")?;
        let text = text.trim();
        let parsed = if text.starts_with(URL_PREFIX) {
            CapabilityUrl::from_text(text).map(Given::Url)
        } else {
            Delegated::from_text(text).map(Given::Text)
        };
        parsed.map_err(|error| not_a_capability(error).into())
    }
}

/// Whether an argument of `cat` or `cp` is a URL, or says where one is.
pub fn is_url_argument(argument: &str) -> bool {
    argument == "-"
        || argument.starts_with(URL_PREFIX)
        || argument.starts_with('@')
        || argument.strip_prefix("env:").is_some_and(|name| !name.contains('/'))
}

/// The secret is only as good as it is hidden: an argument can be seen by every user of the machine.
/// So it may also say where the secret is: in a file, the environment or the input.
///
/// # Errors
/// Where `what` it should be can't be read.
pub fn read_argument(argument: &str, what: &str) -> Result<Zeroizing<String>, Box<dyn Error>> {
    let read = |input: &mut dyn Read, from: &str| {
        let mut text = Zeroizing::new(String::new());
        input
            .take(MAX_TEXT_BYTES)
            .read_to_string(&mut text)
            .map_err(|error| format!("can't read {what} from {from}: {error}"))?;
        Ok(text)
    };
    if argument == "-" {
        return read(&mut std::io::stdin().lock(), "the input");
    }
    if let Some(path) = argument.strip_prefix('@') {
        let mut file = std::fs::File::open(path)
            .map_err(|error| format!("can't open {path}, which should have {what}: {error}"))?;
        return read(&mut file, path);
    }
    match argument.strip_prefix("env:") {
        Some(name) => match std::env::var(name) {
            Ok(text) => Ok(Zeroizing::new(text)),
            Err(error) => Err(format!("the environment variable {name}: {error}").into()),
        },
        None => Ok(Zeroizing::new(argument.to_owned())),
    }
}

fn not_a_capability(error: TextError) -> String {
    format!(
        "this is no capability: {error}. `nasd cap mint` prints {URL_PREFIX}HOST:PORT/NAME#{TEXT_PREFIX}...; \
         quote it for the shell"
    )
}

/// What somebody else has written into a URL, without what a terminal would obey.
pub fn printable(text: &str) -> String {
    let plain = |character: char| match character {
        '\'' | '"' | '\\' => character.to_string(),
        _ => character.escape_debug().to_string(),
    };
    text.chars().map(plain).collect()
}

/// The file behind a URL.
pub struct SharedFile {
    drive: DriveClient,
    authority: Authority,
    object: ObjectName,
    /// What the URL allows.
    pub allowed: Capability,
    /// The name in the URL.
    pub name: Vec<u8>,
}

impl SharedFile {
    /// How data are protected unless somebody says otherwise.
    pub const PROTECTION: Protection = PROTECTION;

    /// From an argument of the command line. Nothing is sent.
    ///
    /// # Errors
    /// What is no URL.
    pub fn from_argument(argument: &str) -> Result<Self, Box<dyn Error>> {
        let url = match Given::from_argument(argument)? {
            Given::Url(url) => url,
            Given::Text(_) => return Err(not_a_capability(TextError::Url).into()),
        };
        let CapabilityUrl { address, name, delegated } = url;
        let allowed = delegated.allowed().map_err(not_a_capability)?;
        let Delegated { capability, sealed, chain, key } = delegated;
        // Who asked for a sealed capability wants it to be used so.
        let private = sealed.map_or(Protection::NONE, |_| Protection::PRIVACY_CAPABILITY);
        let issued = IssuedCapability { capability, key, sealed };
        let options = ConnectOptions {
            retry: RetryPolicy::within(COMMAND_DEADLINE),
            ..ConnectOptions::default()
        };
        Ok(SharedFile {
            drive: DriveClient::tcp(address, Some(capability.drive), &options),
            authority: Authority::delegated(&issued, chain, PROTECTION | private),
            object: ObjectName { partition: capability.partition, object: capability.object },
            allowed,
            name,
        })
    }

    /// Reads at an offset of the file into the start of `into`: how many bytes there were. None at
    /// the end of what the URL allows.
    ///
    /// # Errors
    /// That the URL is not good, or the drive's.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, String> {
        self.require(Rights::READ, "reading")?;
        let room = self.allowed.region.end().saturating_sub(offset);
        let length = usize::try_from(room).unwrap_or(usize::MAX).min(into.len());
        if length == 0 {
            return Ok(0);
        }
        let outcome = self.drive.read(&self.authority, self.object, offset, &mut into[..length]);
        outcome.map(|outcome| outcome.length).map_err(|error| self.explain("read", &error))
    }

    /// Writes at an offset of the file; `durable` if all that was written must survive a power cut.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write(&self, offset: u64, data: &[u8], durable: bool) -> Result<(), String> {
        self.require(Rights::WRITE, "writing")?;
        let written = self.drive.write(&self.authority, self.object, offset, data, durable);
        written.map(|_| ()).map_err(|error| self.explain("write", &error))
    }

    /// How long the file is.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn length(&self) -> Result<u64, String> {
        self.require(Rights::GETATTR, "reading its length")?;
        let attributes = self.drive.getattr(&self.authority, self.object);
        attributes
            .map(|attributes| attributes.logical_size)
            .map_err(|error| self.explain("read the length of", &error))
    }

    /// What it is called where it came from, fit for a terminal.
    pub fn display_name(&self) -> String {
        printable(&String::from_utf8_lossy(&self.name))
    }

    /// Tells what the drive would refuse, in better words.
    ///
    /// # Errors
    /// That the URL does not allow it.
    pub fn require(&self, right: Rights, what: &str) -> Result<(), String> {
        if self.allowed.rights.contains(right) {
            return Ok(());
        }
        let name = self.display_name();
        Err(format!("the URL of {name} does not allow {what}: ask for one that does"))
    }

    /// Why something failed, and what somebody without an account can do about it.
    fn explain(&self, action: &str, error: &ClientError) -> String {
        const ASK: &str = "ask whoever gave it to you for another";
        let name = self.display_name();
        let why = match error.status() {
            Some(Status::RefusedExpired) => {
                format!("the URL was good until {}; {ASK}", utc(self.allowed.expires))
            }
            Some(Status::RefusedDigest) => {
                format!("the URL was revoked, or the file is gone; {ASK}")
            }
            Some(Status::RefusedEpoch) => {
                format!("the keys that the URL was made with have been replaced; {ASK}")
            }
            Some(Status::RefusedRights | Status::RefusedRegion) => {
                format!("the URL does not allow that; {ASK}")
            }
            Some(Status::RefusedMinimum) => {
                format!("the drive demands more protection by now than the URL does; {ASK}")
            }
            Some(Status::RefusedKey | Status::RefusedPartition | Status::RefusedObject) => {
                format!("the drive knows nothing of what the URL is for; {ASK}")
            }
            _ => error.to_string(),
        };
        format!("can't {action} {name} at {}: {why}", self.drive.address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_not_printed() {
        assert_eq!(printable("it's a \u{e4}\\b.txt"), "it's a \u{e4}\\b.txt");
        assert_eq!(printable("a\u{1b}[2J\n\u{202e}b"), "a\\u{1b}[2J\\n\\u{202e}b");
    }
}
