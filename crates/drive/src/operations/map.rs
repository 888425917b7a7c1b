//! `map`: where the components of an object of a virtual drive are.
//!
//! Its answer has keys, so that it is given in private calls alone.

use nasd_capability::{Access, Capability, KeyKind, KeyKinds, Target, effective};
use nasd_protocol::Status;
use nasd_protocol::drive::{Map, MapArguments, ObjectMap};
use nasd_types::{Protection, Rights};

use super::{Context, Perform, refuse_synthetic};
use crate::reply::Done;
use crate::{Drive, Shown};

impl Perform for Map {
    fn access(arguments: &MapArguments) -> Access<'_> {
        let name = arguments.name;
        Access {
            target: Target::Object(name.partition, name.object),
            rights: Rights::empty(),
            bytes: None,
            keys: KeyKinds::only(KeyKind::Capability),
        }
    }

    fn perform(
        drive: &Drive,
        arguments: MapArguments,
        context: &Context<'_>,
    ) -> Result<Done<ObjectMap>, Status> {
        refuse_synthetic(arguments.name)?;
        let elsewhere = drive.elsewhere().ok_or(Status::NotPermitted)?;
        let protection = context.grant.authorized.protection();
        if !protection.contains(Protection::PRIVACY_ARGS) {
            return Err(Status::RefusedProtection);
        }
        let sealed = protection.contains(Protection::PRIVACY_CAPABILITY);
        let capability = shown(drive, context)?;
        elsewhere
            .map(&arguments, &Shown { capability: &capability, sealed, now: context.now })
            .map(Done::plain)
    }
}

/// The capability that was shown, after all narrowings. Every check of it has passed.
fn shown(drive: &Drive, context: &Context<'_>) -> Result<Capability, Status> {
    let opened = match context.key.sealed_capability() {
        Some(sealed) => Some(drive.ring.read().open(sealed).map_err(Status::from)?),
        None => None,
    };
    let root = context.key.capability().or(opened.as_ref()).ok_or(Status::RefusedKey)?;
    effective(root, context.key.narrowings()).map_err(Status::from)
}
