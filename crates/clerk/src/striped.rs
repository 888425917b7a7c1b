//! Objects of a virtual drive, at their component drives (CMU-CS-97-118 section 3.3, "client clerk").
//!
//! The virtual drive is asked once where the components of an object are, and for capabilities for them; then
//! data go to and from all drives at once, each request to the one drive that has the bytes. What takes more
//! than reading and writing, the virtual drive does. Where a component drive refuses a capability, the virtual
//! drive is asked again; if that refuses too, the caller's own capability has ended.

mod component;
mod map;
mod pace;
mod transfer;
mod writing;
mod writings;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nasd_bulk_service::client::Way;
use nasd_client::{Authority, ClientError, DriveClient, OrderSource, RetryPolicy, interrupt};
use nasd_protocol::drive::MapArguments;
use nasd_types::{Attributes, ByteRange, Protection, Rights, WriteOrder};

use crate::backend::Grant;
use crate::bulk;
use crate::extending::{ExtendedPart, ExtensionCall};
use crate::open_file::OpenMode;
use crate::pieces::read_one_by_one;
use crate::wire::{ReadOutcome, Status, Written};
pub(crate) use component::ComponentDrives;
use component::{is_medium, is_of_the_drive};
use map::{Maps, ObjectPlace};
use writing::{Ends, Writing};
use writings::Writings;

/// How often a map that has become old is asked for anew in one operation.
const ATTEMPTS: usize = 4;

/// How often component drives may refuse what they are shown in one operation: longer than changes of keys and clocks
/// take to be known, but not for ever.
const MOST_REFUSALS: usize = 64;

/// The first wait for another map; up to eight times as long.
const FIRST_PAUSE: Duration = Duration::from_millis(25);

/// How long the striping manager is waited for by who can go on without it.
const RENEWAL_PATIENCE: Duration = Duration::from_millis(300);

/// How long other copies are tried of what a drive can't read or write.
const MEDIUM_PATIENCE: Duration = Duration::from_secs(5);

/// How often a write is made that comes behind those of others.
const MANY_ATTEMPTS: usize = 64;

/// What drives have to lack to be asked to make it durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lacking {
    /// It may be others who wrote it.
    Anything,
    /// What was written here.
    OwnWrites,
}

/// One virtual drive.
pub(crate) struct StripedDrive {
    manager: DriveClient,
    components: Arc<ComponentDrives>,
    maps: Maps,
    writings: Arc<Writings>,
    /// By which the striping manager knows who writes.
    client: u64,
    orders: OrderSource,
    /// Over how many drives the object of the largest width lies that was met.
    breadth: AtomicU32,
    ends: Ends,
}

impl StripedDrive {
    /// `client` is another number for each of them.
    pub(crate) fn new(
        manager: DriveClient,
        components: Arc<ComponentDrives>,
        client: u64,
    ) -> StripedDrive {
        let writings = Arc::new(Writings::new(Arc::clone(&components.host)));
        let ends = Ends::new(Arc::clone(&components.host), Arc::clone(&writings));
        StripedDrive {
            manager,
            components,
            maps: Maps::new(client),
            writings,
            client,
            orders: OrderSource::new(),
            breadth: AtomicU32::new(1),
            ends,
        }
    }

    /// Over how many drives the object of the largest width lies that was met so far.
    pub(crate) fn breadth(&self) -> u32 {
        self.breadth.load(Ordering::Relaxed)
    }

    /// Reads into the start of `into`; shorter only at the end of the object.
    pub(crate) fn read(
        &self,
        grant: &Grant,
        offset: u64,
        into: &mut [u8],
    ) -> Result<ReadOutcome, ClientError> {
        self.with_place(grant, None, |place| match place.read(offset, into) {
            Err(error) if place.has_copies() && is_lost(&error) => {
                self.manager.read(&grant.authority, grant.name(), offset, into)
            }
            read => read,
        })
    }

    /// Reads several pieces, one after the other, up to and with the first one that runs into the end of the object.
    pub(crate) fn read_pieces(
        &self,
        grant: &Grant,
        pieces: &[ByteRange],
    ) -> Result<(ReadOutcome, Vec<u8>), ClientError> {
        let together = self.with_place(grant, None, |place| match place.read_pieces(pieces) {
            Err(error) if place.has_copies() && is_lost(&error) => Ok(None),
            read => read,
        })?;
        match together {
            Some(read) => Ok(read),
            None => read_one_by_one(pieces, |offset, into| self.read(grant, offset, into)),
        }
    }

    /// Writes all of `data`; with `durable`, as though a flush had followed.
    pub(crate) fn write(
        &self,
        grant: &Grant,
        offset: u64,
        data: &[u8],
        durable: bool,
    ) -> Result<Written, ClientError> {
        loop {
            let own = self.maps.instances.own();
            let (written, is_durable) = self.write_once(grant, offset, data, durable)?;
            let instance = match durable {
                false => own,
                // Of what was acknowledged before a drive was started anew this says nothing.
                true if is_durable => self.maps.instances.own(),
                true => self.flush_some(grant, Lacking::OwnWrites)?,
            };
            // Else a drive may have lost it before it was to flush it.
            if is_durable || instance == own {
                return Ok(Written { instance, ..written });
            }
        }
    }

    /// Writes all of `data`, and whether that has made all durable that was written before: drives that have other
    /// writes, which are not, still have to be flushed.
    fn write_once(
        &self,
        grant: &Grant,
        offset: u64,
        data: &[u8],
        durable: bool,
    ) -> Result<(Written, bool), ClientError> {
        let range = ByteRange::new(offset, data.len() as u64);
        let end = offset.saturating_add(range.length);
        // What a try that failed may have written at some copies only is made good by one that did not.
        let mut failed: Option<Arc<Writing>> = None;
        let mut refusals = 0;
        let write = |place: &Arc<ObjectPlace>| {
            let before = self.orders.latest();
            let order = self.draw_order(place);
            let Some(_under_way) = place.writing.begin(self.now()) else {
                // It has ended just now.
                return Err(ClientError::Refused(Status::RefusedExpired));
            };
            // Copies are written one after the other, and made durable side by side.
            let at_once = durable && !place.has_copies() && place.has_all_others_durable(range);
            let written = match place.write(&self.maps.instances, order, offset, (data, at_once)) {
                Err(error) if place.has_copies() && is_lost(&error) => {
                    let name = grant.name();
                    let written = self.manager.write(&grant.authority, name, offset, data, durable);
                    // Where that has gone is not known here.
                    place.members.iter().for_each(|member| place.writing.wrote_to(member.drive));
                    written.map(|written| (written, durable))
                }
                written => written.map(|written| (written, at_once)),
            };
            if let Err(ClientError::Drive(Status::OutOfOrder)) = &written {
                self.orders.leap(before, refusals);
                refusals += 1;
            }
            match (&written, &failed) {
                (Err(_), None) => {
                    place.writing.fail();
                    failed = Some(Arc::clone(&place.writing));
                }
                (Ok(_), Some(before)) => before.make_good(),
                _ => {}
            }
            written
        };
        self.with_place(grant, Some(end), write)
    }

    /// Makes what was written before durable. Returns a number that is another one when any of the drives was
    /// started anew.
    pub(crate) fn flush(&self, grant: &Grant) -> Result<u64, ClientError> {
        self.flush_some(grant, Lacking::Anything)
    }

    fn flush_some(&self, grant: &Grant, lacking: Lacking) -> Result<u64, ClientError> {
        self.with_place(grant, None, |place| {
            let count = place.writing.so_far();
            let before = self.maps.instances.own();
            place.flush(&self.maps.instances, lacking)?;
            // Where a drive was started anew, something that was written may be lost.
            if self.maps.instances.own() == before {
                place.writing.flushed(count);
            }
            Ok(())
        })?;
        Ok(self.maps.instances.own())
    }

    /// The attributes of the whole.
    pub(crate) fn getattr(&self, grant: &Grant) -> Result<Attributes, ClientError> {
        self.with_place(grant, None, |place| place.getattr())
    }

    /// Has extensions of the component drives do something with a range.
    pub(crate) fn extend(
        &self,
        grant: &Grant,
        ranges: &[ByteRange],
        call: &ExtensionCall,
    ) -> Result<Vec<ExtendedPart>, ClientError> {
        if !call.rights.contains(Rights::WRITE) {
            return self.with_place(grant, None, |place| place.extend(ranges, call));
        }
        // Components are given the right to write only if it is asked for. The object becomes no longer by it.
        self.with_place(grant, Some(0), |place| {
            // An extension has nothing to write with, so there is nothing to flush behind it; but others are not to be
            // told meanwhile that copies can't change.
            let Some(_under_way) = place.writing.hold(self.now()) else {
                return Err(ClientError::Refused(Status::RefusedExpired));
            };
            place.extend(ranges, call)
        })
    }

    /// The way to the components of an object by the bulk protocol, for who has it open in this mode. Nothing where copies
    /// have to be kept the same, or where others may spread it over more drives meanwhile. Of a map by which one was refused nobody here
    /// may have heard yet that it has become old.
    pub(crate) fn bulk_way(
        &self,
        grant: &Grant,
        mode: OpenMode,
        is_anew: bool,
    ) -> Result<Option<Way>, ClientError> {
        if let Some(place) = self.maps.find(grant).filter(|_| is_anew) {
            self.maps.forget(grant, &place);
        }
        let has_copies = self.with_place(grant, None, |place| Ok(place.has_copies()))?;
        if has_copies {
            return Ok(None);
        }
        self.with_place(grant, mode.write.then_some(u64::MAX), |place| {
            if place.has_copies() || !place.is_spread {
                return Ok(None);
            }
            let component = |member: &map::Member| {
                let (_, authority) = member.authority.as_ref()?;
                bulk::way_component(&member.client, authority, mode)
            };
            let components: Option<Vec<_>> = place.members.iter().map(component).collect();
            let way = |components| Way { unit: place.shape.unit(), components };
            Ok(components.map(way))
        })
    }

    /// Does something with the components of an object, whose bytes up to `end` are to be written if that is
    /// given; with a new map where the one that is known has become old.
    fn with_place<T>(
        &self,
        grant: &Grant,
        end: Option<u64>,
        mut run: impl FnMut(&Arc<ObjectPlace>) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let begun = self.now();
        let mut attempts = 0;
        let mut refusals = 0;
        let mut waits = 0;
        loop {
            let place = match self.place(grant, end) {
                // A component drive that was to tell how long its component is; or the map has become old on its way.
                Err(error) if is_of_the_drive(&error) && self.is_patient(begun) => {
                    self.pause_before_another(waits, &error)?;
                    waits += 1;
                    continue;
                }
                place => place?,
            };
            attempts += 1;
            let done = run(&place);
            if matches!(done, Err(ClientError::Refused(_))) {
                refusals += 1;
                if refusals >= MOST_REFUSALS {
                    return done;
                }
            }
            match done {
                Err(error) if attempts < ATTEMPTS && is_of_an_old_map(&error) => {
                    self.maps.forget(grant, &place);
                }
                // The striping manager finds out soon, and has a map without the drive that has failed.
                Err(error) if self.may_do_better(&place, &error, begun) => {
                    self.maps.forget(grant, &place);
                    // Of copies that are the same another one is asked at once.
                    if !place.is_even || waits > 0 {
                        self.pause_before_another(waits, &error)?;
                    }
                    waits += 1;
                }
                // Somebody else writes the same bytes. Each try has a later order.
                Err(ClientError::Drive(Status::OutOfOrder)) if attempts < MANY_ATTEMPTS => {}
                done => return done,
            }
        }
    }

    /// Whether a map that is asked for a little later may help.
    fn may_do_better(&self, place: &ObjectPlace, error: &ClientError, begun: Duration) -> bool {
        let is_new = is_of_the_drive(error) || is_of_an_old_map(error);
        let is_bad = matches!(error, ClientError::Drive(status) if is_medium(*status));
        // What a medium has lost does not come back by waiting for long.
        let is_over = is_bad && self.since(begun) >= MEDIUM_PATIENCE;
        let has_others = place.has_copies() || !is_bad;
        has_others && is_new && !is_over && self.is_patient(begun)
    }

    /// Whether an operation that was begun then goes on.
    fn is_patient(&self, begun: Duration) -> bool {
        self.since(begun) < self.components.patience()
    }

    /// The time by the host's clock.
    fn now(&self) -> Duration {
        self.components.host.elapsed()
    }

    /// How long ago that was.
    fn since(&self, then: Duration) -> Duration {
        self.now().saturating_sub(then)
    }

    /// The order that a write of copies needs; one of what is kept once has none.
    fn draw_order(&self, place: &ObjectPlace) -> Option<WriteOrder> {
        if !place.has_copies() {
            return None;
        }
        let times = place.members.iter().map(|member| member.client.drive_time());
        Some(self.orders.draw(times.max().unwrap_or_default(), self.client))
    }

    /// Whether a map may be read by without asking. Without copies nobody stands in for a drive that is away, and one
    /// whose place another has taken refuses: any may, unless it is known to be old.
    fn is_believed(&self, place: &ObjectPlace) -> bool {
        let lease = &self.maps.lease;
        match place.has_copies() {
            true => lease.covers(place.generation, self.now()),
            false => place.generation >= lease.generation(),
        }
    }

    /// Asks whether a map is still what the striping manager would give.
    fn renew(&self, grant: &Grant, place: &ObjectPlace) -> Result<bool, ClientError> {
        let name = grant.name();
        let arguments = MapArguments { name, write: false, end: 0, client: self.client };
        let protection = grant.authority.protection() | Protection::PRIVACY_ARGS;
        let authority = Authority::capability(&grant.issued, protection);
        let asked = self.now();
        let map = self.manager.map(&authority, &arguments)?;
        self.maps.heard(asked, map.generation);
        let is_same = map.generation == place.generation
            && map.is_spread == place.is_spread
            && map.is_even == place.is_even;
        if !is_same {
            self.maps.forget(grant, place);
        }
        Ok(is_same)
    }

    /// Where the components of an object are.
    fn place(&self, grant: &Grant, end: Option<u64>) -> Result<Arc<ObjectPlace>, ClientError> {
        let known = self.maps.find(grant);
        if let Some(place) = known.as_ref().filter(|place| place.serves(end))
            && (self.is_believed(place) || self.renew(grant, place)?)
        {
            return Ok(self.in_time(grant, end, place));
        }
        // Who has not ended his writes goes on. Who has may only want to read what he wrote: as one who may write he would
        // keep others from reading any copy.
        let write = end.is_some() || known.is_some_and(|place| place.is_written());
        self.ask_where(&self.manager, grant, write, end)
    }

    /// A place that is known; another one in its stead, if its capabilities are about to expire. Who holds some that are
    /// good goes on when the striping manager is away.
    fn in_time(
        &self,
        grant: &Grant,
        end: Option<u64>,
        place: &Arc<ObjectPlace>,
    ) -> Arc<ObjectPlace> {
        if !place.is_due(self.now()) {
            return Arc::clone(place);
        }
        // Who has not written by it has no need of those that allow writing.
        let write = end.is_some() || place.is_written();
        let manager = self.manager.with_retry(RetryPolicy::within(RENEWAL_PATIENCE));
        match self.ask_where(&manager, grant, write, end) {
            Ok(fresh) => fresh,
            Err(error) => {
                tracing::debug!(%error, "component capabilities are not renewed yet");
                Arc::clone(place)
            }
        }
    }

    /// Asks where the components are, and for capabilities for them.
    fn ask_where(
        &self,
        manager: &DriveClient,
        grant: &Grant,
        write: bool,
        end: Option<u64>,
    ) -> Result<Arc<ObjectPlace>, ClientError> {
        let name = grant.name();
        let end = end.unwrap_or_default();
        let arguments = MapArguments { name, write, end, client: self.client };
        let protection = grant.authority.protection() | Protection::PRIVACY_ARGS;
        let authority = Authority::capability(&grant.issued, protection);
        let asked = self.now();
        let map = manager.map(&authority, &arguments)?;
        self.maps.heard(asked, map.generation);
        // What has become old on its way says nothing of the capability that was shown for it.
        let is_old = || ClientError::Drive(Status::Busy);
        let turn = map.turn;
        let writing = self.writings.under(name, turn, asked).ok_or_else(is_old)?;
        // Drives may take long to tell what is needed to write.
        let _hold = (turn != 0).then(|| writing.hold(self.now())).flatten();
        if turn != 0 {
            // Whether anything is written by it or not: the striping manager waits until it has ended.
            self.ends.watch(&writing, &grant.authority, &self.manager, (name, self.client));
        }
        let own = Arc::clone(&writing);
        let place = ObjectPlace::new(map, write, &self.components, grant, &self.manager, own);
        let place = Arc::new(place.map_err(|error| match is_of_an_old_map(&error) {
            true => is_old(),
            false => error,
        })?);
        if turn != 0 {
            writing.touch(self.now());
        }
        self.breadth.fetch_max(u32::from(place.shape.width()), Ordering::Relaxed);
        self.maps.keep(grant, &place);
        Ok(place)
    }

    /// Waits before a map is asked for again.
    fn pause_before_another(&self, waits: u32, error: &ClientError) -> Result<(), ClientError> {
        let pause = FIRST_PAUSE * (1 << waits.min(3));
        let paused = interrupt::pause_on(&*self.components.host, pause);
        paused.map_err(|_| ClientError::Interrupted {
            server: match error {
                ClientError::Unreachable { server, .. } => server.clone(),
                _ => "a component drive".to_owned(),
            },
            may_have_run: true,
        })
    }

    /// Tells the striping manager of writes that have ended, for who begins no threads.
    pub(crate) fn end_writes(&self) {
        self.ends.look();
    }
}

/// Whether a component drive says that its medium has lost what is read, or written in part. The virtual drive, asked
/// for the same, gives the drive anew what others have.
fn is_lost(error: &ClientError) -> bool {
    matches!(error, ClientError::Drive(Status::MediumError | Status::Corrupt))
}

/// Whether a component drive says that the capability for it is not good any more, or that there is no such
/// component: whoever made the map knows more. One that does not allow what is asked is no less good than it was: any
/// other that is given for the same capability of the caller allows the same.
fn is_of_an_old_map(error: &ClientError) -> bool {
    match error {
        ClientError::Refused(Status::RefusedRights | Status::RefusedRegion) => false,
        ClientError::Refused(status) => status.needs_new_capability(),
        ClientError::Drive(Status::NoSuchObject) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_that_no_other_map_mends_is_told_at_once() {
        let refused = |status| is_of_an_old_map(&ClientError::Refused(status));
        for mended in [Status::RefusedExpired, Status::RefusedDigest, Status::RefusedEpoch] {
            assert!(refused(mended), "{mended:?}");
        }
        for same in [Status::RefusedRights, Status::RefusedRegion, Status::RefusedChain] {
            assert!(!refused(same), "{same:?}");
        }
    }
}
