//! Maps that are known, and what is needed to use them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nasd_capability::CAPABILITY_BYTES;
use nasd_client::{Authority, ClientError, DriveClient};
use nasd_layout::{Column, Degraded, MemberState, Shape};
use nasd_protocol::drive::{self as wire, Component, MAP_LEASE, ObjectMap};
use nasd_types::{DriveId, ObjectName};

use super::component::{ComponentDrive, ComponentDrives};
use super::writing::Writing;
use crate::backend::Grant;
use nasd_client::Spare;

/// How long that is: somewhat less than the striping manager waits, as clocks don't run alike.
const LEASE: Duration = MAP_LEASE.saturating_sub(Duration::from_millis(100));

/// Which part of the time that capabilities are good for is over when they are had anew.
const RENEW_AFTER: f64 = 0.75;

/// How long after an attempt to have them anew the next one is made.
const RENEW_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Most maps that are kept.
pub(super) const MOST: usize = 8192;

/// A component, and by what authority it is used.
pub(super) struct Member {
    pub(super) drive: DriveId,
    pub(super) client: DriveClient,
    /// The same for calls that stand in the drive's queue.
    pub(super) queue: DriveClient,
    /// None where there is no component, or nobody may use it.
    pub(super) authority: Option<(ObjectName, Authority)>,
    /// What is known of its drive, whatever the object.
    pub(super) known: Arc<ComponentDrive>,
    /// Its length, when it was told last.
    pub(super) length: AtomicU64,
}

/// The components of an object, for the holder of a capability.
pub(super) struct ObjectPlace {
    pub(super) shape: Shape,
    /// Of the table of drives that it was made by.
    pub(super) generation: u64,
    pub(super) is_spread: bool,
    /// Whether any copy may be read.
    pub(super) is_even: bool,
    /// What is written of the object.
    pub(super) writing: Arc<Writing>,
    /// Whether the capabilities allow writing, if the one that was shown does.
    pub(super) writes: bool,
    /// In the order of columns; then the stand-ins.
    pub(super) members: Vec<Member>,
    states: Vec<MemberState>,
    /// Of which members these are about to take the places.
    stand_ins: Vec<u16>,
    /// For what comes from several members at once.
    pub(super) spare: Arc<Spare>,
    renewal: Renewal,
}

/// When capabilities are to be had anew, before they expire.
struct Renewal {
    /// Nanoseconds by the host's clock.
    at: AtomicU64,
}

impl Renewal {
    /// Of capabilities that are good for so long from now on, if that is known.
    fn of(left: Option<Duration>, now: Duration) -> Renewal {
        let at = left.map_or(u64::MAX, |left| nanoseconds(now + left.mul_f64(RENEW_AFTER)));
        Renewal { at: AtomicU64::new(at) }
    }

    /// Whether it is time; says so to one who asks, and to another one later, in case that he fails.
    fn is_due(&self, now: Duration) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        let next = nanoseconds(now + RENEW_AGAIN_AFTER);
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        at <= nanoseconds(now) && self.at.compare_exchange(at, next, success, failure).is_ok()
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl ObjectPlace {
    /// What a map says.
    pub(super) fn new(
        map: ObjectMap,
        writes: bool,
        drives: &ComponentDrives,
        grant: &Grant,
        manager: &DriveClient,
        writing: Arc<Writing>,
    ) -> Result<ObjectPlace, ClientError> {
        let nonsense = || ClientError::Protocol {
            server: manager.address().to_owned(),
            why: format!("its map of {} has no meaning", grant.name()),
        };
        let members = map.components.len().checked_sub(map.stand_ins.len());
        let members = members.ok_or_else(nonsense)?;
        let width = u16::try_from(members).map_err(|_| nonsense())?;
        let copies = u16::try_from(map.copies).map_err(|_| nonsense())?;
        let shape = Shape::new(map.unit, width, copies).map_err(|_| nonsense())?;
        let states = map.components.iter().map(state_of).collect();
        let mut left: Option<Duration> = None;
        let stand_ins: Option<Vec<u16>> = map
            .stand_ins
            .iter()
            .map(|member| u16::try_from(*member).ok().filter(|member| *member < width))
            .collect();
        let stand_ins = stand_ins.ok_or_else(nonsense)?;
        let members = map.components.into_iter().map(|component| {
            let known = drives.at(component.drive, &component.address);
            let authority = component.capability.map(|issued| {
                let of = &issued.capability;
                // By the drive's own clock, as it is known.
                let here = known.client.drive_time();
                let good = Duration::from_nanos(of.expires.0.saturating_sub(here.0));
                left = Some(left.map_or(good, |left| left.min(good)));
                let name = ObjectName { partition: of.partition, object: of.object };
                (name, Authority::capability(&issued, grant.authority.protection()))
            });
            // Where there are other copies, nobody is waited for longer than it takes to find that out.
            let patience = match copies > 1 || !stand_ins.is_empty() {
                true => known.patience(),
                false => known.lone_patience(),
            };
            let client = known.client.with_retry(patience);
            let queue = known.client.with_retry(known.queue_patience(patience));
            let length = AtomicU64::new(0);
            Member { drive: component.drive, client, queue, authority, known, length }
        });
        let members = members.collect();
        // Of none that is good, as clocks are not known yet, a refusal tells more.
        let left = left.filter(|left| !left.is_zero());
        let place = ObjectPlace {
            stand_ins,
            shape,
            generation: map.generation,
            is_spread: map.is_spread,
            is_even: map.is_even,
            writing,
            writes,
            members,
            states,
            spare: Arc::clone(&drives.spare),
            renewal: Renewal::of(left, drives.host.elapsed()),
        };
        if !place.each_has_all() {
            // A read tells the length of one component; that of the whole has to be known before.
            place.learn_lengths()?;
        }
        Ok(place)
    }

    /// Whether it is enough to read, or to write up to `end`.
    pub(super) fn serves(&self, end: Option<u64>) -> bool {
        let reaches = |end| self.is_spread || end <= self.shape.unit();
        !self.writing.has_ended() && end.is_none_or(|end| self.writes && reaches(end))
    }

    /// Whether it allows writing, and something was written by it, or by others that did, and has not ended.
    pub(super) fn is_written(&self) -> bool {
        self.writes && self.writing.so_far() > 0 && !self.writing.has_ended()
    }

    /// Whether its capabilities are about to expire; says so to one who asks, who has a map in time for all.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.renewal.is_due(now)
    }

    /// Whether bytes are on more than one drive, if all are well: as there are copies, or stand-ins.
    pub(super) fn has_copies(&self) -> bool {
        self.shape.copies() > 1 || !self.stand_ins.is_empty()
    }

    /// The members that have a component and are not out.
    pub(super) fn present(&self) -> impl Iterator<Item = (&Member, MemberState)> {
        let all = self.members.iter().zip(self.states.iter().copied()).enumerate();
        let present = all.filter(|(at, (_, state))| {
            *state != MemberState::Out && (self.is_spread || self.is_home(*at))
        });
        present.map(|(_, member)| member)
    }

    /// Whether a member has a component of an object that is not spread.
    fn is_home(&self, at: usize) -> bool {
        let stand_in = at.checked_sub(usize::from(self.shape.width()));
        let member = stand_in.map_or(at, |stand_in| self.stand_ins[stand_in].into());
        member < usize::from(self.shape.copies())
    }

    /// The members that have all that was written.
    pub(super) fn current(&self) -> impl Iterator<Item = &Member> {
        let present = self.present().filter(|(_, state)| *state == MemberState::Current);
        present.map(|(member, _)| member)
    }

    /// Whether any component is as long as the whole, and holds all of it.
    pub(super) fn each_has_all(&self) -> bool {
        !self.is_spread || self.shape.copies() == self.shape.width()
    }

    /// Who is read and written.
    pub(super) fn degraded(&self) -> Degraded<'_> {
        Degraded::new(self.shape, &self.states).with_stand_ins(&self.stand_ins)
    }

    /// The length of the whole, as far as it is known.
    pub(super) fn known_length(&self) -> u64 {
        let lengths = self.members.iter().map(|member| member.length.load(Ordering::Relaxed));
        lengths.max().unwrap_or(0)
    }

    /// The column of a byte: there is but one of an object that is not spread.
    pub(super) fn column(&self, offset: u64) -> Column {
        if self.is_spread { self.shape.column(offset) } else { Column(0) }
    }
}

fn state_of(component: &Component) -> MemberState {
    match component.state {
        wire::MemberState::Current => MemberState::Current,
        wire::MemberState::Joining => MemberState::Joining,
        wire::MemberState::Out => MemberState::Out,
    }
}

/// Maps by the capability that they were had for.
pub(super) struct Maps {
    known: Mutex<Known>,
    pub(super) instances: Instances,
    pub(super) lease: Lease,
}

/// What was used lately, and what was used before.
#[derive(Default)]
struct Known {
    young: HashMap<[u8; CAPABILITY_BYTES], Arc<ObjectPlace>>,
    old: HashMap<[u8; CAPABILITY_BYTES], Arc<ObjectPlace>>,
}

impl Maps {
    /// None yet. `instance` is the first number that flushes tell: another one for each way to a virtual drive.
    pub(super) fn new(instance: u64) -> Maps {
        Maps {
            known: Mutex::default(),
            instances: Instances(Mutex::new((instance, HashMap::new()))),
            lease: Lease::default(),
        }
    }

    /// The striping manager was asked then, and has answered by a table of this generation.
    pub(super) fn heard(&self, asked: Duration, generation: u64) {
        if self.lease.renew(asked, generation) {
            self.instances.are_others();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Every change leaves it whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn find(&self, grant: &Grant) -> Option<Arc<ObjectPlace>> {
        let key = grant.issued.capability.to_bytes();
        let mut known = self.lock();
        if let Some(place) = known.young.get(&key) {
            return Some(Arc::clone(place));
        }
        let place = known.old.remove(&key)?;
        known.put(key, &place);
        Some(place)
    }

    pub(super) fn keep(&self, grant: &Grant, place: &Arc<ObjectPlace>) {
        let key = grant.issued.capability.to_bytes();
        let mut known = self.lock();
        known.old.remove(&key);
        known.put(key, place);
    }

    /// A map has become old: it goes, unless there is a newer one already.
    pub(super) fn forget(&self, grant: &Grant, place: &ObjectPlace) {
        let key = grant.issued.capability.to_bytes();
        let mut known = self.lock();
        if known.young.get(&key).is_some_and(|known| std::ptr::eq(&**known, place)) {
            known.young.remove(&key);
        }
    }
}

impl Known {
    fn put(&mut self, key: [u8; CAPABILITY_BYTES], place: &Arc<ObjectPlace>) {
        if self.young.len() >= MOST / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, Arc::clone(place));
    }
}

/// Until when maps are believed without asking.
#[derive(Default)]
pub(super) struct Lease(Mutex<Option<(Duration, u64)>>);

impl Lease {
    fn lock(&self) -> MutexGuard<'_, Option<(Duration, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The striping manager was asked then, by the host's clock, and has answered by a table of this generation.
    /// Whether another one was known before.
    fn renew(&self, asked: Duration, generation: u64) -> bool {
        let mut known = self.lock();
        let (now, is_later) = match *known {
            Some((_, later)) if later > generation => return false,
            Some((then, same)) if same == generation => ((then.max(asked), generation), false),
            earlier => ((asked, generation), earlier.is_some()),
        };
        *known = Some(now);
        is_later
    }

    /// The latest generation that was told; 0 before.
    pub(super) fn generation(&self) -> u64 {
        self.lock().map_or(0, |(_, generation)| generation)
    }

    /// Whether a map of this generation may be read by now.
    pub(super) fn covers(&self, generation: u64, now: Duration) -> bool {
        let is_valid = |asked| now.saturating_sub(asked) < LEASE;
        self.lock().is_some_and(|(asked, known)| known == generation && is_valid(asked))
    }
}

/// Which instance of each component drive was seen last; and a number that is another one after any of them was
/// started anew, or others have become members. A write tells the number of before it was sent, a flush the one of
/// when all have answered: so they differ if something that was written may have been lost.
pub(super) struct Instances(Mutex<(u64, HashMap<DriveId, u64>)>);

impl Instances {
    fn lock(&self) -> MutexGuard<'_, (u64, HashMap<DriveId, u64>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn own(&self) -> u64 {
        self.lock().0
    }

    /// Who is asked now may be others than those who were written, and were started anew before they were members no
    /// more: nobody has seen that.
    fn are_others(&self) {
        let mut seen = self.lock();
        seen.0 = seen.0.wrapping_add(1);
    }

    /// A drive has answered as this instance.
    pub(super) fn saw(&self, drive: DriveId, instance: u64) {
        let mut seen = self.lock();
        if seen.1.insert(drive, instance).is_some_and(|before| before != instance) {
            seen.0 = seen.0.wrapping_add(1);
        }
    }
}
