//! The drive program: Tables 1-3 of CMU-CS-97-118, one file an operation (`specs/nasd.x`).

pub mod control;
pub mod create;
pub mod flush;
pub mod getattr;
pub mod inquiry;
pub mod read;
pub mod remove;
pub mod setattr;
pub mod write;

use nasd_types::Attributes;
use nasd_xdr::{XdrDecode, XdrEncode, xdr_enum};

use crate::wire::message;

pub use control::{DriveControl, PartitionControl, PartitionSummary};
pub use create::{Create, CreateArguments, Created};
pub use flush::{Flush, FlushArguments, Flushed};
pub use getattr::{Getattr, GetattrArguments};
pub use inquiry::{DriveInformation, Inquiry};
pub use read::{READ_RESULT_HEAD_BYTES, Read, ReadArguments, ReadData};
pub use remove::{Remove, RemoveArguments};
pub use setattr::{Setattr, SetattrArguments};
pub use write::{Write, WriteArguments, Written};

/// RPC program number, from the range that RFC 5531 leaves to users (0x20000000-0x3fffffff).
pub const PROGRAM: u32 = 0x2004_5301;

/// Version of the program.
pub const VERSION: u32 = 1;

xdr_enum! {
    /// Procedures of the drive program.
    pub enum Procedure {
        /// Does nothing: for measuring, and for seeing whether anybody is there.
        Null = 0,
        /// Who the drive is and what it can do; needs no authority.
        Inquiry = 1,
        /// Make an object.
        Create = 2,
        /// Remove an object.
        Remove = 3,
        /// Read attributes.
        Getattr = 4,
        /// Change attributes.
        Setattr = 5,
        /// Read data.
        Read = 6,
        /// Write data.
        Write = 7,
        /// Make objects durable.
        Flush = 8,
    }
}

/// An operation of the drive: ties its procedure to the types of its arguments and reply. The
/// result on the wire is a `Result<Reply, Status>` ([`crate::encode_result`]).
pub trait Operation {
    /// The procedure's number.
    const PROCEDURE: Procedure;
    /// What follows the head of the call.
    type Arguments: XdrEncode + XdrDecode;
    /// What follows the status 0 in the reply.
    type Reply: XdrEncode + XdrDecode;
}

message! {
    /// What `getattr` and `setattr` answer (`nasd_attributes_result`).
    pub struct AttributesReply {
        /// The object's attributes; after `setattr`, the new ones.
        pub attributes: Attributes,
    }
}
