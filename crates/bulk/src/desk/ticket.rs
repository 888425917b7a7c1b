//! Tickets: the file is found, or made, for the caller, and this one file is what the ticket is for.

use std::fs::File;

use nasd_protocol::bulk_desk::{DeskStatus, FileFacts, IssuedTicket, TicketArguments, Wanted};
use nasd_protocol::manager::{FileType, IssuedCapability};
use nasd_types::Rights;
use rustix::fs::{OFlags, fchmod};
use rustix::io::Errno;

use super::acl::has_default;
use super::node::Node;
use super::operations::{Outcome, Visit, mode_of, status_of_io};
use super::permission::{READ, WRITE, require, require_change};
use super::status::status_of;
use super::walk::{Named, Spot};
use crate::directory::Ticket;
use crate::directory::confined::open_name;
use crate::directory::identity::FileIdentity;

/// How often a name is looked up again that was another file's in between.
const MOST_LOOKS: u32 = 8;

/// The file of a ticket.
struct Meant {
    path: Vec<u8>,
    identity: FileIdentity,
    facts: FileFacts,
}

impl Visit<'_> {
    pub(super) fn ticket(&self, asked: &TicketArguments) -> Outcome<IssuedTicket> {
        let wanted = asked.wanted;
        if !wanted.is_meaningful() {
            return Err(DeskStatus::Invalid);
        }
        if wanted.contains(Wanted::WRITE) {
            self.require_writable()?;
        }
        let mut looks = 0;
        let meant = loop {
            let spot = self.walk(&asked.path, !wanted.contains(Wanted::EXCLUSIVE))?;
            let found = match spot.named() {
                Some(Named { node: None, .. }) if !wanted.contains(Wanted::CREATE) => {
                    return Err(DeskStatus::NotFound);
                }
                Some(Named { directory, name, node: None }) => {
                    self.create((directory, name), asked.mode)
                }
                _ => self.found(&spot, wanted),
            };
            match found {
                Ok(Some((identity, facts))) => {
                    break Meant { path: spot.path()?, identity, facts };
                }
                // Somebody was faster.
                Ok(None) => {}
                Err(DeskStatus::Exists) if !wanted.contains(Wanted::EXCLUSIVE) => {}
                Err(status) => return Err(status),
            }
            looks += 1;
            if looks >= MOST_LOOKS {
                return Err(DeskStatus::Unavailable);
            }
        };
        Ok(self.issue(meant, wanted, asked.lifetime_ns))
    }

    /// Checks what is there, and makes it empty if that is wanted; `None` if it has another name by now.
    fn found(&self, spot: &Spot, wanted: Wanted) -> Outcome<Option<(FileIdentity, FileFacts)>> {
        let node = spot.node()?;
        if wanted.contains(Wanted::EXCLUSIVE) {
            return Err(DeskStatus::Exists);
        }
        match node.facts().file_type {
            FileType::Regular => {}
            FileType::Directory => return Err(DeskStatus::IsDirectory),
            _ => return Err(DeskStatus::NotSupported),
        }
        let bits = [(Wanted::READ, READ), (Wanted::WRITE, WRITE)];
        let bits = bits.iter().filter(|(wish, _)| wanted.contains(*wish));
        require(node, &self.caller, bits.map(|(_, bit)| bit).sum())?;
        let Some(named) = spot.named().filter(|_| wanted.contains(Wanted::TRUNCATE)) else {
            return Ok(Some((node.identity(), node.facts())));
        };
        let is_done = self.change(|| truncate(&named, node))?;
        Ok(if is_done { Some((node.identity(), node.facts_now()?)) } else { None })
    }

    /// Makes a file.
    fn create(
        &self,
        (directory, name): (&Node, &[u8]),
        mode: u32,
    ) -> Outcome<Option<(FileIdentity, FileFacts)>> {
        self.require_writable()?;
        require_change(directory, &self.caller)?;
        let has_default = has_default(directory).map_err(status_of)?;
        // A program that runs as the server's user is nothing that a caller could make.
        let mode = mode & if self.desk.acts { 0o7777 } else { 0o1777 };
        let made = self.change(|| {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
            let made = open_name(directory, name, flags, mode_of(mode)).map_err(status_of)?;
            // This process's umask is not the caller's, who has none where the directory has a list for new files.
            if !has_default {
                fchmod(&made, mode_of(mode)).map_err(status_of)?;
            }
            Ok(made)
        })?;
        let made = Node::of(made).map_err(status_of)?;
        Ok(Some((made.identity(), made.facts())))
    }

    fn issue(&self, meant: Meant, wanted: Wanted, lifetime_ns: u64) -> IssuedTicket {
        let desk = self.desk;
        let time = desk.directory.now();
        let expires = time.plus_ns(desk.lifetime_ns(lifetime_ns));
        let ticket =
            desk.directory.ticket_of((meant.path, meant.identity), rights_of(wanted), expires);
        let Ticket { capability, sealed, key, place } = ticket;
        let capability = IssuedCapability { capability, key, sealed: Some(sealed) };
        IssuedTicket { capability, place, time, facts: meant.facts }
    }
}

/// What a ticket allows.
fn rights_of(wanted: Wanted) -> Rights {
    let mut rights = Rights::GETATTR;
    if wanted.contains(Wanted::READ) {
        rights |= Rights::READ;
    }
    if wanted.contains(Wanted::WRITE) {
        rights |= Rights::WRITE | Rights::SETATTR | Rights::FLUSH;
    }
    rights
}

/// Makes a file empty; false if the name is another one's by now.
fn truncate(named: &Named<'_>, node: &Node) -> Outcome<bool> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = match open_name(named.directory, named.name, flags, mode_of(0)) {
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(false),
        opened => opened.map_err(status_of)?,
    };
    let opened = Node::of(opened).map_err(status_of)?;
    if opened.identity() != node.identity() {
        return Ok(false);
    }
    let file: File = opened.into_descriptor().into();
    file.set_len(0).map_err(|error| status_of_io(&error))?;
    Ok(true)
}
