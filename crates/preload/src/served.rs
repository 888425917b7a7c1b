//! Files of `NASD_BULK_MAP`: a server of a directory has them, and its desk gives tickets.
//!
//! Where the prefix is a directory here too, as one that is mounted in another way, that is what programs open, and only data
//! go by bulk. Else nothing is behind the descriptor: it holds the file's place, and the program's in the file.

use std::ffi::c_int;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nasd_bulk_service::client::StripedFile;
use nasd_bulk_service::desk::{DeskClient, DeskTicket};
use nasd_cell::{Cell, cell_directory, session};
use nasd_protocol::bulk_desk::{FileFacts, Wanted};
use nasd_types::Protection;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::config;
use crate::error::PreloadError;
use crate::location::umask;
use crate::map::Rule;
use crate::origin::Origin;

/// A file of a server.
pub(crate) struct Served {
    rule: Rule,
    path: Vec<u8>,
    wanted: Wanted,
    facts: Option<FileFacts>,
    /// For the first open alone.
    first: std::sync::Mutex<Option<DeskTicket>>,
}

/// Whether the prefix is a directory of this host.
pub(crate) fn is_here(rule: &Rule) -> bool {
    let prefix = if rule.prefix.is_empty() { b"/".to_vec() } else { rule.prefix.clone() };
    Path::new(&std::ffi::OsString::from_vec(prefix)).is_dir()
}

/// What a program wants of a file, by how it opens it.
pub(crate) fn wanted_of(flags: c_int) -> Wanted {
    let mut wanted = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => Wanted::READ,
        libc::O_WRONLY => Wanted::WRITE,
        _ => Wanted::READ | Wanted::WRITE,
    };
    wanted.set(Wanted::CREATE, flags & libc::O_CREAT != 0);
    wanted.set(Wanted::EXCLUSIVE, flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0);
    wanted.set(Wanted::TRUNCATE, flags & libc::O_TRUNC != 0 && wanted.contains(Wanted::WRITE));
    wanted
}

impl Served {
    /// The file that a program has opened itself, below a prefix that is here.
    pub(crate) fn here(rule: &Rule, path: &[u8], flags: c_int) -> Served {
        let wanted = wanted_of(flags) & (Wanted::READ | Wanted::WRITE);
        Served { rule: rule.clone(), path: path.into(), wanted, facts: None, first: None.into() }
    }

    /// A file below a prefix that is not here, opened as the flags say, and a descriptor that holds its place.
    pub(crate) fn afar(
        rule: &Rule,
        path: &[u8],
        (flags, mode): (c_int, u32),
    ) -> Result<(Served, OwnedFd), PreloadError> {
        let wanted = wanted_of(flags);
        let mode = if wanted.contains(Wanted::CREATE) { mode & 0o7777 & !umask() } else { 0 };
        let ticket = desk(rule)?.ticket(path, wanted, mode, None)?;
        let place = memfd_create("nasd-bulk", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        // Who writes or reads it in another way is refused, or finds nothing.
        fcntl_add_seals(&place, SealFlags::WRITE | SealFlags::GROW | SealFlags::SEAL)?;
        let served = Served {
            rule: rule.clone(),
            path: path.into(),
            wanted: wanted & (Wanted::READ | Wanted::WRITE),
            facts: Some(*ticket.facts()),
            first: Some(ticket).into(),
        };
        Ok((served, place))
    }
}

impl Origin for Served {
    fn open(&self, _fd: c_int, _is_anew: bool) -> Result<StripedFile, PreloadError> {
        let first = self.first.lock().ok().and_then(|mut first| first.take());
        let ticket = match first {
            Some(ticket) => ticket,
            None => desk(&self.rule)?.ticket(&self.path, self.wanted, 0, None)?,
        };
        let mut opening = ticket.opening(Protection::NONE);
        opening.patience = config::patience();
        Ok(StripedFile::open(vec![opening], 0)?)
    }

    /// Nobody here has cached anything but the kernel, of what is mounted in another way: that passes its cache by too.
    fn tell_changed(&self, _fd: c_int) {}

    fn may_be_another(&self) -> bool {
        true
    }

    fn stand_in(&self) -> Option<FileFacts> {
        self.facts
    }
}

/// A server's desk.
fn desk(rule: &Rule) -> Result<DeskClient, PreloadError> {
    let address = rule.address.clone();
    let desk = if rule.is_insecure {
        DeskClient::plain(address)
    } else {
        let named = std::env::var_os("NASD_CELL").filter(|named| !named.is_empty());
        let cell = Cell::open(&cell_directory(named.map(PathBuf::from)))?;
        let told = session::tls_to_host(&cell, None);
        let (tls, caller) = told.map_err(|error| PreloadError::Certificate(error.to_string()))?;
        DeskClient::tls(address, tls, &caller)
    };
    Ok(desk.with_patience(config::patience()))
}

/// Hands a descriptor to the program.
pub(crate) fn handed(place: OwnedFd) -> c_int {
    place.into_raw_fd()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_wishes() {
        let told = |flags| wanted_of(flags | libc::O_DIRECT);
        assert_eq!(told(libc::O_RDONLY | libc::O_TRUNC | libc::O_EXCL), Wanted::READ);
        assert_eq!(told(libc::O_WRONLY | libc::O_TRUNC), Wanted::WRITE | Wanted::TRUNCATE);
        let all = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC;
        assert_eq!(told(all), Wanted::all());
        for flags in [0, libc::O_WRONLY | libc::O_CREAT, all, libc::O_RDWR | libc::O_TRUNC] {
            assert!(told(flags).is_meaningful(), "{flags:o}");
        }
    }

    #[test]
    fn a_prefix_may_be_here() {
        let rule = |prefix: &str| Rule {
            prefix: prefix.into(),
            address: "h:1".to_owned(),
            is_insecure: true,
        };
        assert!(is_here(&rule("")) && is_here(&rule("/dev")));
        assert!(!is_here(&rule("/dev/null")) && !is_here(&rule("/nowhere/at/all")));
    }
}
