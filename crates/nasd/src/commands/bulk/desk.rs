//! A bulk server's directory, by its desk.

use super::places::DeskPlace;
use super::remote::{Facts, Failure, Kind, Listed, Making, Remote, RemoteFile};
use super::striped::{Striped, failure};
use crate::shared_file::printable;
use nasd_bulk_service::client::{Opening, StripedFile};
use nasd_bulk_service::desk::{DeskClient, DeskError};
use nasd_cell::Cell;
use nasd_cell::session::tls_to_host;
use nasd_protocol::bulk_desk::{DeskStatus, FileFacts, Wanted};
use nasd_protocol::manager::FileType;
use nasd_types::{Protection, Timestamp};
use std::error::Error;
use std::time::Duration;

/// How long a server may take that was not heard of yet: it may be a slip of the hand.
const FIRST_PATIENCE: Duration = Duration::from_secs(3);

/// How long tickets are asked for: servers give less, and a transfer gets new ones.
const LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// A server.
pub struct Desk {
    client: DeskClient,
    scheme: String,
    more: Protection,
}

impl Desk {
    /// Reaches it.
    ///
    /// # Errors
    /// A machine that is no member of a cell, or a server that does not answer.
    pub fn reach(
        place: &DeskPlace,
        open_cell: impl FnOnce() -> Result<Cell, nasd_cell::CellError>,
        (more, patience): (Protection, Duration),
    ) -> Result<Desk, Box<dyn Error>> {
        let address = place.address.clone();
        let client = match place.is_secure {
            true => {
                let cell = open_cell().map_err(|error| {
                    format!(
                        "bulk://{address} wants a certificate of its cell: {error}; one that serves --anyone is \
                         bulk+insecure://{address}"
                    )
                })?;
                let (tls, caller) = tls_to_host(&cell, place.host.as_deref())?;
                DeskClient::tls(address, tls, &caller)
            }
            false => DeskClient::plain(address),
        };
        let first = client.with_patience(patience.min(FIRST_PATIENCE));
        first.ping().map_err(|error| unreached(&error, place))?;
        let scheme = if place.is_secure { "bulk" } else { "bulk+insecure" };
        Ok(Desk { client: client.with_patience(patience), scheme: scheme.to_owned(), more })
    }

    fn opened(
        &self,
        path: &[u8],
        (wanted, mode): (Wanted, u32),
        block: u64,
    ) -> Result<(Box<dyn RemoteFile>, Facts), Failure> {
        let ticket = self.client.ticket(path, wanted, mode, Some(LIFETIME)).map_err(refused)?;
        let opening = Opening { block, ..ticket.opening(self.more) };
        let file = StripedFile::open(vec![opening], 0).map_err(failure)?;
        let facts = Facts { size: file.size_at_open(), ..facts_of(ticket.facts()) };
        Ok((Box::new(Striped::new(file, 0)?), facts))
    }

    /// The same with all that may have happened to a change whose answer was lost: whether it was done is looked up.
    fn settled(
        &self,
        done: Result<(), DeskError>,
        is_done: impl FnOnce() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        match done {
            Err(error @ DeskError::Uncertain { .. }) => match is_done()? {
                true => Ok(()),
                false => Err(refused(error)),
            },
            done => done.map_err(refused),
        }
    }
}

impl Remote for Desk {
    fn called(&self, path: &[u8]) -> String {
        let path = printable(&String::from_utf8_lossy(path));
        format!("{}://{}/{path}", self.scheme, self.client.address())
    }

    fn facts(&self, path: &[u8]) -> Result<Option<Facts>, Failure> {
        match self.client.look(path) {
            Ok(facts) => Ok(Some(facts_of(&facts))),
            Err(error) if error.status() == Some(DeskStatus::NotFound) => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }

    fn list(&self, path: &[u8]) -> Result<Vec<Listed>, Failure> {
        let mut listed = Vec::new();
        for entry in self.client.list_all(path).map_err(refused)? {
            let facts = entry.facts.ok_or_else(|| refused_by(DeskStatus::Access))?;
            listed.push(Listed { name: entry.name.as_bytes().to_vec(), facts: facts_of(&facts) });
        }
        Ok(listed)
    }

    fn make_directory(&self, path: &[u8], mode: u32) -> Result<(), Failure> {
        let is_there = || {
            let facts = self.facts(path)?;
            Ok(facts.is_some_and(|facts| facts.kind == Kind::Directory))
        };
        match self.client.mkdir(path, mode).map(drop) {
            Err(error) if error.status() == Some(DeskStatus::Exists) && is_there()? => Ok(()),
            made => self.settled(made, is_there),
        }
    }

    fn open(&self, path: &[u8], block: u64) -> Result<(Box<dyn RemoteFile>, Facts), Failure> {
        self.opened(path, (Wanted::READ, 0), block)
    }

    fn make(&self, path: &[u8], making: Making) -> Result<Box<dyn RemoteFile>, Failure> {
        let kept = if making.keeps { Wanted::empty() } else { Wanted::TRUNCATE };
        let wanted = Wanted::WRITE | Wanted::CREATE | kept;
        self.opened(path, (wanted, making.mode), 0).map(|(file, _)| file)
    }

    fn set(&self, path: &[u8], mode: u32, time: Timestamp) -> Result<bool, Failure> {
        let set = self.client.set_mode(path, mode).and_then(|_| self.client.set_time(path, time));
        match set {
            Ok(_) => Ok(true),
            Err(error) if error.status() == Some(DeskStatus::Permission) => Ok(false),
            Err(error) => Err(refused(error)),
        }
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Failure> {
        let is_moved = || Ok(self.facts(from)?.is_none() && self.facts(to)?.is_some());
        self.settled(self.client.rename(from, to), is_moved)
    }

    fn remove(&self, path: &[u8]) -> Result<(), Failure> {
        self.settled(self.client.remove(path), || Ok(self.facts(path)?.is_none()))
    }
}

fn facts_of(facts: &FileFacts) -> Facts {
    let kind = match facts.file_type {
        FileType::Regular => Kind::File,
        FileType::Directory => Kind::Directory,
        _ => Kind::Other,
    };
    Facts { kind, mode: facts.mode, size: facts.size, time: facts.modify_time }
}

fn refused(error: DeskError) -> Failure {
    match error.status() {
        Some(status) => refused_by(status),
        None => Failure::Final(error.to_string()),
    }
}

fn refused_by(status: DeskStatus) -> Failure {
    Failure::Final(status.to_string())
}

/// Why a server was not reached, and what it may be.
fn unreached(error: &DeskError, place: &DeskPlace) -> String {
    let address = &place.address;
    let hint = match (error, place.is_secure) {
        (DeskError::Unreachable { .. } | DeskError::Protocol { .. }, true) => {
            format!(
                "; is `nasd bulk serve` there? One that serves --anyone is bulk+insecure://{address}"
            )
        }
        (DeskError::Unreachable { .. } | DeskError::Protocol { .. }, false) => {
            format!(
                "; is `nasd bulk serve --anyone` there? One that wants certificates is bulk://{address}"
            )
        }
        _ => String::new(),
    };
    format!("{error}{hint}")
}
