//! `inquiry`: anybody may ask who the drive is, and what its clock shows. Who asks with a key or a
//! capability gets an answer that nobody else could have made.

use nasd_capability::{Access, KeyKinds, Suite, Target};
use nasd_protocol::Status;
use nasd_protocol::drive::{DriveInformation, Inquiry};
use nasd_protocol::limits::{MAX_PARTITIONS, MAX_TEXT_BYTES};
use nasd_types::limits::MAX_TRANSFER_BYTES;
use nasd_types::{Protection, Rights};

use super::{Context, Perform};
use crate::Drive;
use crate::reply::Done;

impl Perform for Inquiry {
    fn access(_arguments: &()) -> Access<'_> {
        Access {
            target: Target::Nothing,
            rights: Rights::empty(),
            bytes: None,
            keys: KeyKinds::ANYONE,
        }
    }

    fn perform(
        drive: &Drive,
        _arguments: (),
        context: &Context<'_>,
    ) -> Result<Done<DriveInformation>, Status> {
        let options = &drive.options;
        let mut partitions = drive.partitions();
        partitions.truncate(MAX_PARTITIONS);
        Ok(Done::plain(DriveInformation {
            drive: drive.identity.drive,
            cell: drive.identity.cell,
            vendor: cut(&options.vendor),
            model: cut(&options.model),
            revision: cut(&options.revision),
            clock: drive.window.clock(context.now),
            instance: drive.instance,
            suites: Suite::available().to_vec(),
            protections: Protection::UNDERSTOOD,
            minimum_protection: drive.minimum_protection(),
            max_transfer: MAX_TRANSFER_BYTES as u32,
            is_virtual: drive.elsewhere().is_some(),
            partitions,
        }))
    }
}

/// At most as many bytes as the protocol has room for.
fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].to_owned()
}
