//! Maps: where the components of an object are, with capabilities for them.

use nasd_capability::{Capability, SealingKeys, capability_key};
use nasd_drive::Shown;
use nasd_protocol::Status;
use nasd_protocol::drive::{Component, MapArguments, MemberState, ObjectMap};
use nasd_protocol::manager::IssuedCapability;
use nasd_types::{DriveId, ObjectName, Rights, Timestamp};

use crate::version::ComponentVersion;
use crate::virtual_drive::{VirtualDrive, component};

/// What component capabilities may allow at most: attributes, and which components there are, are the
/// striping manager's affair.
const PASSED_ON: Rights =
    Rights::READ.union(Rights::WRITE).union(Rights::GETATTR).union(Rights::FLUSH);

const SECOND_NS: u64 = 1_000_000_000;

impl VirtualDrive {
    /// The map of an object for who shows this capability.
    pub(crate) fn map_whole(
        &self,
        arguments: &MapArguments,
        shown: &Shown<'_>,
    ) -> Result<ObjectMap, Status> {
        let name = arguments.name;
        let writes = arguments.write && shown.capability.rights.contains(Rights::WRITE);
        let place = self.place(name)?;
        let mut version = self.known_version(name)?;
        // No further than the capability allows to write.
        let end = arguments.end.min(shown.capability.region.end());
        if writes && end > place.shape.unit() && !version.is_spread() {
            version = self.spread(name)?;
        }
        let components = place.members.iter().enumerate().map(|(at, drive)| {
            let state = place.state_of(*drive);
            let is_there = version.is_spread() || at < place.homes().len();
            let capability = (is_there && state != MemberState::Out)
                .then(|| self.component_capability(name, *drive, version, shown, writes));
            Component { drive: *drive, address: self.components.address(*drive), state, capability }
        });
        Ok(ObjectMap {
            generation: place.generation,
            unit: place.shape.unit(),
            copies: place.shape.copies().into(),
            is_spread: version.is_spread() || place.members.len() == place.homes().len(),
            even_until: Timestamp(0),
            components: components.collect(),
        })
    }

    /// What of a shown capability is good for a component: the same bytes, no more rights, no longer.
    fn component_capability(
        &self,
        name: ObjectName,
        drive: DriveId,
        version: ComponentVersion,
        shown: &Shown<'_>,
        writes: bool,
    ) -> IssuedCapability {
        let kept = if writes { PASSED_ON } else { PASSED_ON - Rights::WRITE };
        let name = component(name);
        let (key_epoch, working) = self.components.working_key(drive, name.partition);
        let capability = Capability {
            drive,
            partition: name.partition,
            object: name.object,
            rights: shown.capability.rights & kept,
            expires: self.expiry(drive, shown),
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
    fn expiry(&self, drive: DriveId, shown: &Shown<'_>) -> Timestamp {
        let (here, there) = (shown.now, self.components.drive_time(drive));
        let end = there.plus_ns(self.options.capability_ns);
        let step = (self.options.capability_ns / 8).max(1);
        let end = end.0.checked_next_multiple_of(step).unwrap_or(u64::MAX);
        // Clocks are known to some milliseconds; what is left of a capability is cut to whole seconds.
        let left = shown.capability.expires.0.saturating_sub(here.0);
        let shown_end = there.0.saturating_add(left) / SECOND_NS * SECOND_NS;
        Timestamp(end.min(shown_end))
    }
}
