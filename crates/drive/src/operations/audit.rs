//! `audit`: the audit trail, to the drive's administrator, and a partition's part of it to the file
//! manager.

use nasd_capability::{Access, KeyKind, KeyKinds, Target};
use nasd_protocol::Status;
use nasd_protocol::drive::{Audit, AuditArguments, AuditPage};
use nasd_protocol::limits::MAX_AUDIT_RECORDS;
use nasd_types::Rights;

use super::{Context, Perform};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

impl Perform for Audit {
    fn access(arguments: &AuditArguments) -> Access<'_> {
        let drive = KeyKinds::only(KeyKind::Drive);
        let (target, keys) = match arguments.partition {
            Some(partition) => (Target::Partition(partition), drive.with(KeyKind::Partition)),
            None => (Target::Drive, drive),
        };
        Access { target, rights: Rights::empty(), bytes: None, keys }
    }

    fn perform(
        drive: &Drive,
        arguments: AuditArguments,
        context: &Context<'_>,
    ) -> Result<Done<AuditPage>, Status> {
        match arguments.most as usize {
            0 => return Err(Status::BadArgument),
            most if most > MAX_AUDIT_RECORDS => return Err(Status::TooLarge),
            _ => {}
        }
        let page = drive.audit.page(&drive.store, &arguments, context.now);
        page.map(Done::plain).map_err(|error| status_of(&error))
    }
}
