//! Maps: where the components of an object are, with capabilities for them.

use nasd_capability::{Capability, SealingKeys, capability_key};
use nasd_drive::Shown;
use nasd_protocol::Status;
use nasd_protocol::drive::{Component, MapArguments, MemberState, ObjectMap};
use nasd_protocol::manager::IssuedCapability;
use nasd_types::{DriveId, ObjectName, Rights, Timestamp};

use crate::place::Place;
use crate::version::ComponentVersion;
use crate::virtual_drive::{VirtualDrive, component};

/// What component capabilities may allow at most: attributes, and which components there are, are the
/// striping manager's affair.
const PASSED_ON: Rights =
    Rights::READ.union(Rights::WRITE).union(Rights::GETATTR).union(Rights::FLUSH);

const SECOND_NS: u64 = 1_000_000_000;

fn told_state(state: nasd_layout::MemberState) -> MemberState {
    match state {
        nasd_layout::MemberState::Current => MemberState::Current,
        nasd_layout::MemberState::Joining => MemberState::Joining,
        nasd_layout::MemberState::Out => MemberState::Out,
    }
}

impl VirtualDrive {
    /// The map of an object for who shows this capability.
    pub(crate) fn map_whole(
        &self,
        arguments: &MapArguments,
        shown: &Shown<'_>,
    ) -> Result<ObjectMap, Status> {
        let name = arguments.name;
        self.is_now(shown.now);
        let writes = arguments.write && shown.capability.rights.contains(Rights::WRITE);
        let place = self.place(name)?;
        let mut version = self.version_everywhere(name, &place)?;
        // No further than the capability allows to write.
        let end = arguments.end.min(shown.capability.region.end());
        if writes && end > place.shape.unit() && !version.is_spread() {
            version = self.spread(name)?;
        }
        let is_copied = place.has_copies();
        let (place, version, turn) = match is_copied {
            true => self.expect_reader_or_writer(place, version, arguments, shown, writes)?,
            false => (place, version, 0),
        };
        if writes {
            // When the version is known: a later one would revoke what is given here.
            self.alone.shares(name);
        }
        // Whoever writes copies and dies is waited for.
        let lifetime_ns = match writes && is_copied {
            true => self.options.writing_ns,
            false => self.options.capability_ns,
        };
        let components = place.members.iter().enumerate().map(|(at, drive)| {
            let state = told_state(place.state_of(*drive));
            let is_home = place.column_of(at) < usize::from(place.shape.copies());
            // One that may have no component yet would refuse to flush it. Nor has it to: what a drive was given, whoever by,
            // is made durable before it counts as current.
            let is_there = state != MemberState::Out && !self.may_lack(name, &place, *drive);
            let capability = (is_there && (version.is_spread() || is_home)).then(|| {
                let kept = if writes { PASSED_ON } else { PASSED_ON - Rights::WRITE };
                self.component_capability(name, *drive, version, shown, (kept, lifetime_ns))
            });
            Component { drive: *drive, address: self.components.address(*drive), state, capability }
        });
        Ok(ObjectMap {
            generation: place.generation,
            unit: place.shape.unit(),
            copies: place.shape.copies().into(),
            is_spread: version.is_spread() || place.is_full(),
            is_even: is_copied && !version.has_writers(),
            components: components.collect(),
            stand_ins: place.stand_ins.iter().copied().map(u32::from).collect(),
            turn,
        })
    }

    /// Notes who may write copies before they may; or that somebody may who was let before this striping
    /// manager was started. Where the object lies then, its version, and the writer's turn.
    fn expect_reader_or_writer(
        &self,
        place: Place,
        version: ComponentVersion,
        arguments: &MapArguments,
        shown: &Shown<'_>,
        writes: bool,
    ) -> Result<(Place, ComponentVersion, u64), Status> {
        let name = arguments.name;
        let until = shown.now.plus_ns(2 * self.options.writing_ns);
        // When copies are the same, another one may decide, and the version is another one: nobody is to have a map of
        // before with a capability of after.
        let _alone = (writes || place.has_doubted()).then(|| self.lock(name));
        let (place, version) = match _alone {
            Some(_) if writes => (self.place_to_change(name)?, self.known_version(name)?),
            Some(_) => (self.place(name)?, self.known_version(name)?),
            None => (place, version),
        };
        if version.has_writers() {
            self.writers.find(name, shown.now, until);
        }
        if !writes {
            return Ok((place, version, 0));
        }
        let version = self.expect_writers(name, &place, version)?;
        let turn = self.writers.add(name, arguments.client, shown.now, until);
        Ok((place, version, turn))
    }

    /// What of a shown capability is good for a component: the same bytes, no more rights, no longer.
    fn component_capability(
        &self,
        name: ObjectName,
        drive: DriveId,
        version: ComponentVersion,
        shown: &Shown<'_>,
        (kept, lifetime_ns): (Rights, u64),
    ) -> IssuedCapability {
        let name = component(name);
        let (key_epoch, working) = self.components.working_key(drive, name.partition);
        let capability = Capability {
            drive,
            partition: name.partition,
            object: name.object,
            rights: shown.capability.rights & kept,
            expires: self.expiry(drive, shown, lifetime_ns),
            minimum_protection: shown.capability.minimum_protection
                | self.components.minimum_protection(drive),
            key_epoch,
            ..*shown.capability
        };
        let key = capability_key(&working, &capability, version.0);
        let sealed = shown.sealed.then(|| SealingKeys::new(&working).seal(&capability));
        IssuedCapability { capability, key, sealed }
    }

    /// When a component capability ends, by the component drive's clock: when the one ends that was shown, or
    /// when its lifetime has passed, rounded up to the next eighth of it. So who asks again soon gets the same
    /// capability, whose key the drive has derived already.
    fn expiry(&self, drive: DriveId, shown: &Shown<'_>, lifetime_ns: u64) -> Timestamp {
        let (here, there) = (shown.now, self.components.drive_time(drive));
        let end = there.plus_ns(lifetime_ns);
        let step = (lifetime_ns / 8).max(1);
        let end = end.0.checked_next_multiple_of(step).unwrap_or(u64::MAX);
        // Clocks are known to some milliseconds; what is left of a capability is cut to whole seconds.
        let left = shown.capability.expires.0.saturating_sub(here.0);
        let shown_end = there.0.saturating_add(left) / SECOND_NS * SECOND_NS;
        Timestamp(end.min(shown_end))
    }
}
