//! `putobject`: an object of a given identifier with exactly these attributes.

use nasd_capability::{Access, KeyKind};
use nasd_protocol::Status;
use nasd_protocol::drive::{MadeAppend, ObjectState, Putobject, PutobjectArguments};
use nasd_store::{ObjectImage, RememberedAppend};
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{Attributes, ObjectName};

use super::{Context, Perform, on_partition};
use crate::Drive;
use crate::reply::Done;
use crate::status::status_of;

impl Perform for Putobject {
    fn access(arguments: &PutobjectArguments) -> Access<'_> {
        on_partition(arguments.partition, KeyKind::Drive)
    }

    fn perform(
        drive: &Drive,
        arguments: PutobjectArguments,
        context: &Context<'_>,
    ) -> Result<Done<()>, Status> {
        let PutobjectArguments { partition, object, identifiers_end, state } = arguments;
        if drive.elsewhere().is_some() {
            return Err(Status::NotPermitted);
        }
        let name = ObjectName { partition, object };
        let put = drive.store.put_object(name, identifiers_end, &image(state), context.now);
        put.map_err(|error| status_of(&error))?;
        Ok(Done::plain(()))
    }
}

fn image(state: ObjectState) -> ObjectImage {
    let appends = state.appends.into_iter();
    ObjectImage {
        attributes: Attributes {
            access_control_version: state.access_control_version,
            nearby_object: state.nearby_object,
            copied_object: state.copied_object,
            logical_size: state.logical_size,
            blocks_allocated: state.blocks_allocated,
            blocks_used: 0,
            block_size: BLOCK_BYTES as u32,
            create_time: state.create_time,
            data_modify_time: state.data_modify_time,
            data_version: state.data_modify_time.0,
            attribute_modify_time: state.attribute_modify_time,
            fs_data_modify_time: state.fs_data_modify_time,
            fs_attribute_modify_time: state.fs_attribute_modify_time,
            fs_specific: state.fs_specific,
        },
        appends: appends
            .map(|MadeAppend { token, offset, length, time }| RememberedAppend {
                token,
                offset,
                length,
                time,
            })
            .collect(),
    }
}
