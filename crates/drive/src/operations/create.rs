//! `create`: make an object in a partition.

use nasd_capability::{Access, KeyKinds, Target};
use nasd_protocol::Status;
use nasd_protocol::drive::{Create, CreateArguments, Created};
use nasd_types::{ObjectName, Rights};

use super::{Context, Perform, check_settable};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

impl Perform for Create {
    fn access(arguments: &CreateArguments) -> Access<'_> {
        Access {
            target: Target::Partition(arguments.partition),
            rights: Rights::CREATE,
            bytes: None,
            keys: KeyKinds::OBJECT,
        }
    }

    fn perform(
        drive: &Drive,
        arguments: CreateArguments,
        context: &Context<'_>,
    ) -> Result<Done<Created>, Status> {
        check_settable(&arguments.initial)?;
        context.check_choice(arguments.object)?;
        if let Some(elsewhere) = drive.elsewhere() {
            if !drive.ring.read().has_partition(arguments.partition) {
                return Err(Status::NoSuchPartition);
            }
            return elsewhere.create(&arguments).map(Done::plain);
        }
        let CreateArguments { partition, object: chosen, durable, initial } = arguments;
        let (object, attributes) = drive
            .store
            .create_as(partition, chosen, &initial, context.now)
            .map_err(|error| status_of(&error))?;
        if durable {
            drive.flush(&[ObjectName { partition, object }])?;
        }
        Ok(Done::plain(Created { object, attributes }))
    }
}
