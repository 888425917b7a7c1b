//! What a capability is for: one object of a drive, without an account, a cell or names.

use super::remote::{Facts, Failure, Kind, Listed, Making, Remote, RemoteFile};
use super::striped::{Striped, failure};
use crate::shared_file::{Given, SharedFile, printable};
use nasd_bulk_service::client::{BulkError, Opening, StripedFile};
use nasd_capability::{Capability, CapabilityUrl, Delegated};
use nasd_client::Authority;
use nasd_protocol::bulk::Options;
use nasd_protocol::manager::IssuedCapability;
use nasd_types::{ByteRange, Protection, Rights, Timestamp};
use std::error::Error;
use std::time::Duration;

/// Permission bits of a file that comes from a URL: it tells none.
const MODE: u32 = 0o644;

/// A file behind a URL.
pub struct SharedObject {
    url: CapabilityUrl,
    allowed: Capability,
    protection: Protection,
    patience: Duration,
}

impl SharedObject {
    /// From an argument of the command line. Nothing is sent.
    ///
    /// # Errors
    /// What is no URL.
    pub fn from_argument(
        argument: &str,
        (protection, patience): (Option<Protection>, Duration),
    ) -> Result<SharedObject, Box<dyn Error>> {
        let Given::Url(url) = Given::from_argument(argument)? else {
            return Err("a capability alone does not say where it is good: give its URL".into());
        };
        let allowed = url.delegated.allowed()?;
        let private =
            url.delegated.sealed.map_or(Protection::NONE, |_| Protection::PRIVACY_CAPABILITY);
        // Nothing forged gets in or out unnoticed, unless somebody says otherwise.
        let protection = protection.unwrap_or(SharedFile::PROTECTION) | private;
        Ok(SharedObject { url, allowed, protection, patience })
    }

    /// What the file is called where it came from. It is whatever somebody wrote into the URL.
    pub fn name(&self) -> &[u8] {
        &self.url.name
    }

    fn require(&self, right: Rights, what: &str) -> Result<(), Failure> {
        match self.allowed.rights.contains(right) {
            true => Ok(()),
            false => Err(format!("the URL does not allow {what}: ask for one that does").into()),
        }
    }

    fn opened(&self, options: Options, block: u64) -> Result<StripedFile, Failure> {
        let Delegated { capability, sealed, chain, key } = self.url.delegated.clone();
        let issued = IssuedCapability { capability, key, sealed };
        let opening = Opening {
            address: self.url.address.clone(),
            authority: Authority::delegated(&issued, chain, self.protection),
            place: Vec::new(),
            options,
            block,
            durable: true,
            patience: self.patience,
            clock_ahead_ns: 0,
        };
        StripedFile::open(vec![opening], 0).map_err(|error| match error {
            BulkError::Refused { .. } => Failure::Final(format!(
                "{error}; if the URL has expired or was revoked, ask whoever gave it to you for another"
            )),
            BulkError::Unreachable { .. } | BulkError::Protocol { .. } => Failure::Final(format!(
                "{error}; a file that lies on several drives has no one server: `nasd cp` copies it"
            )),
            error => failure(error),
        })
    }
}

impl Remote for SharedObject {
    fn called(&self, _path: &[u8]) -> String {
        let name = printable(&String::from_utf8_lossy(&self.url.name));
        format!("{name} at {}", self.url.address)
    }

    fn facts(&self, _path: &[u8]) -> Result<Option<Facts>, Failure> {
        let unknown = Facts { kind: Kind::File, mode: MODE, size: 0, time: Timestamp(0) };
        match self.allowed.rights.contains(Rights::READ) {
            true => self.open(b"", 0).map(|(_, facts)| Some(facts)),
            false => Ok(Some(unknown)),
        }
    }

    fn list(&self, _path: &[u8]) -> Result<Vec<Listed>, Failure> {
        Err(no_names())
    }

    fn make_directory(&self, _path: &[u8], _mode: u32) -> Result<(), Failure> {
        Err(no_names())
    }

    fn open(&self, _path: &[u8], block: u64) -> Result<(Box<dyn RemoteFile>, Facts), Failure> {
        self.require(Rights::READ, "reading")?;
        let region = self.allowed.region;
        // Blocks are counted from the file's beginning to its end, which need not be the region's.
        let block = if region == ByteRange::ALL { block } else { 0 };
        let file = self.opened(Options::READ, block)?;
        let size = file.size_at_open().min(region.end()).saturating_sub(region.offset);
        let facts = Facts { kind: Kind::File, mode: MODE, size, time: Timestamp(0) };
        Ok((Box::new(Striped::new(file, region.offset)?), facts))
    }

    fn make(&self, _path: &[u8], making: Making) -> Result<Box<dyn RemoteFile>, Failure> {
        self.require(Rights::WRITE, "writing")?;
        let region = self.allowed.region;
        if let Some(length) = making.length.filter(|length| *length > region.length) {
            return Err(
                format!("it has {length} bytes, and the URL allows {}", region.length).into()
            );
        }
        let file = self.opened(Options::WRITE, 0)?;
        let there = file.size_at_open().min(region.end()).saturating_sub(region.offset);
        if let Some(length) = making.length.filter(|length| there > *length) {
            let more = there - length;
            return Err(format!(
                "the file has {more} bytes more, and a URL can't make a file shorter: nothing was written"
            )
            .into());
        }
        Ok(Box::new(Fixed(Striped::new(file, region.offset)?)))
    }

    fn set(&self, _path: &[u8], _mode: u32, _time: Timestamp) -> Result<bool, Failure> {
        Ok(true)
    }

    fn rename(&self, _from: &[u8], _to: &[u8]) -> Result<(), Failure> {
        Err(no_names())
    }

    fn remove(&self, _path: &[u8]) -> Result<(), Failure> {
        Err(no_names())
    }

    fn is_one_file(&self) -> bool {
        true
    }
}

/// One whose length is not for the holder of a URL to set.
struct Fixed(Striped);

impl RemoteFile for Fixed {
    fn alignment(&self) -> u64 {
        self.0.alignment()
    }

    fn lane(&self) -> Result<Box<dyn super::remote::RemoteLane + '_>, Failure> {
        self.0.lane()
    }

    fn size(&self) -> Result<u64, Failure> {
        self.0.size()
    }

    fn set_size(&self, size: u64) -> Result<(), Failure> {
        match self.0.size()? {
            there if there <= size => Ok(()),
            there => Err(format!(
                "the file has {} bytes more than was written, and a URL can't make it shorter",
                there - size
            )
            .into()),
        }
    }

    fn sync(&self) -> Result<(), Failure> {
        self.0.sync()
    }
}

fn no_names() -> Failure {
    Failure::Final("a URL is for one file alone".to_owned())
}
