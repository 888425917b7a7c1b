//! `flush`: make objects, or a whole partition, durable.

use nasd_capability::{Access, KeyKinds, Target};
use nasd_protocol::Status;
use nasd_protocol::drive::{Flush, FlushArguments, Flushed};
use nasd_types::{Attributes, ObjectName, Rights};

use super::{Context, Perform};
use crate::Drive;
use crate::authority::is_synthetic;
use crate::reply::Done;
use crate::status::status_of;

impl Perform for Flush {
    fn access(arguments: &FlushArguments) -> Access<'_> {
        Access {
            target: Target::Objects(arguments.partition, &arguments.objects),
            rights: Rights::FLUSH,
            bytes: None,
            keys: KeyKinds::OBJECT,
        }
    }

    fn perform(
        drive: &Drive,
        arguments: FlushArguments,
        _context: &Context<'_>,
    ) -> Result<Done<Flushed>, Status> {
        let FlushArguments { partition, objects } = arguments;
        if !drive.ring.read().has_partition(partition) {
            return Err(Status::NoSuchPartition);
        }
        if let Some(elsewhere) = drive.elsewhere() {
            let objects: Vec<_> =
                objects.iter().copied().filter(|object| !is_synthetic(*object)).collect();
            return elsewhere.flush(partition, &objects).map(Done::plain);
        }
        if objects.is_empty() {
            drive.store.flush_partition(partition).map_err(|error| status_of(&error))?;
        } else {
            let names: Vec<ObjectName> = objects
                .into_iter()
                .filter(|object| !is_synthetic(*object))
                .map(|object| ObjectName { partition, object })
                .collect();
            drive.flush(&names)?;
        }
        Ok(Done::plain(Flushed { instance: drive.instance }))
    }
}

impl Drive {
    /// Makes these objects durable.
    pub(crate) fn flush(&self, names: &[ObjectName]) -> Result<(), Status> {
        self.store.flush(names).map_err(|error| status_of(&error))
    }

    /// Makes an object durable whose blocks have changed; its attributes then, when those that it has
    /// no more are free. If somebody has removed it meanwhile, they are what they were.
    pub(crate) fn flush_blocks(
        &self,
        name: ObjectName,
        before: Attributes,
    ) -> Result<Attributes, Status> {
        self.flush(&[name])?;
        Ok(self.store.getattr(name).unwrap_or(before))
    }
}
