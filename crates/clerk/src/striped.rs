//! Objects of a virtual drive, at their component drives (CMU-CS-97-118 section 3.3, "client clerk").
//!
//! The virtual drive is asked once where the components of an object are, and for capabilities for them; then
//! data go to and from all drives at once, each request to the one drive that has the bytes. What takes more
//! than reading and writing, the virtual drive does. Where a component drive refuses a capability, the virtual
//! drive is asked again; if that refuses too, the caller's own capability has ended.

mod map;
mod transfer;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use nasd_client::{Authority, ClientError, ConnectOptions, DriveClient};
use nasd_protocol::drive::MapArguments;
use nasd_types::{Attributes, DriveId, Protection};

use crate::backend::Grant;
use crate::wire::{ReadOutcome, Status, Written};
use map::{Maps, ObjectPlace};

/// How often a map that has become old is asked for anew in one operation.
const ATTEMPTS: usize = 4;

/// Component drives by their numbers, connected to when they are needed first, for all virtual drives.
pub(crate) struct ComponentDrives {
    connect: ConnectOptions,
    clients: RwLock<HashMap<DriveId, DriveClient>>,
}

impl ComponentDrives {
    pub(crate) fn new(connect: ConnectOptions) -> ComponentDrives {
        ComponentDrives { connect, clients: RwLock::default() }
    }

    /// The drive that is at this address now.
    fn at(&self, drive: DriveId, address: &str) -> DriveClient {
        let known = self.clients.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = known.get(&drive).filter(|client| client.address() == address) {
            return client.clone();
        }
        drop(known);
        let client = DriveClient::tcp(address, Some(drive), &self.connect);
        let mut known = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(drive, client.clone());
        client
    }
}

/// One virtual drive.
pub(crate) struct StripedDrive {
    manager: DriveClient,
    components: Arc<ComponentDrives>,
    maps: Maps,
}

impl StripedDrive {
    pub(crate) fn new(manager: DriveClient, components: Arc<ComponentDrives>) -> StripedDrive {
        StripedDrive { manager, components, maps: Maps::default() }
    }

    /// Reads into the start of `into`; shorter only at the end of the object.
    pub(crate) fn read(
        &self,
        grant: &Grant,
        offset: u64,
        into: &mut [u8],
    ) -> Result<ReadOutcome, ClientError> {
        self.with_place(grant, None, |place| place.read(offset, into))
    }

    /// Writes all of `data`.
    pub(crate) fn write(
        &self,
        grant: &Grant,
        offset: u64,
        data: &[u8],
        durable: bool,
    ) -> Result<Written, ClientError> {
        let own = self.maps.instances.own();
        let end = offset.saturating_add(data.len() as u64);
        let write = |place: &ObjectPlace| place.write(&self.maps.instances, offset, data, durable);
        Ok(Written { instance: own, ..self.with_place(grant, Some(end), write)? })
    }

    /// Makes what was written before durable. Returns a number that is another one when any of the drives was
    /// started anew.
    pub(crate) fn flush(&self, grant: &Grant) -> Result<u64, ClientError> {
        self.with_place(grant, None, |place| place.flush(&self.maps.instances))?;
        Ok(self.maps.instances.own())
    }

    /// The attributes of the whole.
    pub(crate) fn getattr(&self, grant: &Grant) -> Result<Attributes, ClientError> {
        self.with_place(grant, None, ObjectPlace::getattr)
    }

    /// Does something with the components of an object, whose bytes up to `end` are to be written if that is
    /// given; with a new map where the one that is known has become old.
    fn with_place<T>(
        &self,
        grant: &Grant,
        end: Option<u64>,
        mut run: impl FnMut(&ObjectPlace) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let mut attempts = 0;
        loop {
            let place = self.place(grant, end)?;
            attempts += 1;
            match run(&place) {
                Err(error) if attempts < ATTEMPTS && is_of_an_old_map(&error) => {
                    self.maps.forget(grant, &place);
                }
                done => return done,
            }
        }
    }

    /// Where the components of an object are.
    fn place(&self, grant: &Grant, end: Option<u64>) -> Result<Arc<ObjectPlace>, ClientError> {
        let known = self.maps.find(grant);
        if let Some(place) = known.as_ref().filter(|place| place.serves(end)) {
            return Ok(Arc::clone(place));
        }
        // What was written once will be written again.
        let write = end.is_some() || known.is_some_and(|place| place.writes);
        let name = grant.handle.name();
        let arguments = MapArguments { name, write, end: end.unwrap_or_default() };
        let protection = grant.authority.protection() | Protection::PRIVACY_ARGS;
        let authority = Authority::capability(&grant.issued, protection);
        let map = self.manager.map(&authority, &arguments)?;
        let place = ObjectPlace::new(name, map, write, &self.components, grant, &self.manager)?;
        let place = Arc::new(place);
        self.maps.keep(grant, &place);
        Ok(place)
    }
}

/// Whether a component drive says that the capability for it is not good any more, or that there is no such
/// component: whoever made the map knows more.
fn is_of_an_old_map(error: &ClientError) -> bool {
    match error {
        ClientError::Refused(status) => status.needs_new_capability(),
        ClientError::Drive(Status::NoSuchObject) => true,
        _ => false,
    }
}
