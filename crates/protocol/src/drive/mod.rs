//! The drive program: Tables 1-3 of CMU-CS-97-118, one file an operation (`specs/nasd.x`).

pub mod append;
pub mod audit;
pub mod batch;
pub mod blocksrequired;
pub mod comparepartition;
pub mod control;
pub mod copypartition;
pub mod copyrange;
pub mod create;
pub mod createpartition;
pub mod endwrites;
pub mod extend;
pub mod extension_work;
pub mod fastcopy;
pub mod flush;
pub mod flushpartition;
pub mod getattr;
pub mod initialize;
pub mod inquiry;
pub mod map;
pub mod private;
pub mod punch;
pub mod putobject;
pub mod read;
pub mod remove;
pub mod removepartition;
pub mod resizepartition;
pub mod seek;
pub mod setattr;
pub mod setdrive;
pub mod setdrivekey;
pub mod setpartition;
pub mod setpartitionkey;
pub mod setstriping;
pub mod write;

use nasd_types::Attributes;
use nasd_xdr::{XdrDecode, XdrEncode, xdr_enum};

use crate::wire::message;

pub use append::{Append, AppendArguments, Appended};
pub use audit::{Audit, AuditArguments, AuditKind, AuditPage, AuditRecord};
pub use batch::{
    Batch, BatchArguments, BatchDone, BatchKind, BatchOperation, BatchOutcome, Batched,
};
pub use blocksrequired::{BlocksRequired, Blocksrequired, BlocksrequiredArguments};
pub use comparepartition::{
    ChangedRange, Comparepartition, ComparepartitionArguments, Comparison, Difference, MadeAppend,
    ObjectState,
};
pub use control::{
    ComponentComplaint, ComponentRole, ComponentStatus, DriveControl, Extension, Medium,
    PartitionControl, PartitionState, PartitionSummary,
};
pub use copypartition::{Copypartition, CopypartitionArguments};
pub use copyrange::{Copied, Copyrange, CopyrangeArguments, RangeToCopy};
pub use create::{Create, CreateArguments, Created};
pub use createpartition::{Createpartition, CreatepartitionArguments};
pub use endwrites::{Endwrites, EndwritesArguments};
pub use extend::{EXTEND_RESULT_HEAD_BYTES, Extend, ExtendArguments, Extended, ExtensionOutcome};
pub use extension_work::{ExtensionJob, ExtensionWork};
pub use fastcopy::{Fastcopy, FastcopyArguments};
pub use flush::{Flush, FlushArguments, Flushed};
pub use flushpartition::{Flushpartition, FlushpartitionArguments};
pub use getattr::{Getattr, GetattrArguments};
pub use initialize::{Initialize, InitializeArguments};
pub use inquiry::{DriveInformation, Inquiry};
pub use map::{Component, MAP_LEASE, Map, MapArguments, MemberState, ObjectMap};
pub use private::{
    MAX_SEALED_BYTES, PRIVATE_RESULT_HEAD_BYTES, PRIVATE_UNIT_BYTES, Private, Sealed,
    unwrap_arguments, unwrap_results, wrap_arguments, wrap_results,
};
pub use punch::{Punch, PunchArguments};
pub use putobject::{Putobject, PutobjectArguments};
pub use read::{READ_RESULT_HEAD_BYTES, Read, ReadArguments, ReadData};
pub use remove::{Remove, RemoveArguments};
pub use removepartition::{Removepartition, RemovepartitionArguments};
pub use resizepartition::{NO_QUOTA, Resizepartition, ResizepartitionArguments};
pub use seek::{Seek, SeekArguments, Sought};
pub use setattr::{Setattr, SetattrArguments};
pub use setdrive::{Setdrive, SetdriveArguments};
pub use setdrivekey::{Setdrivekey, SetdrivekeyArguments};
pub use setpartition::{Setpartition, SetpartitionArguments};
pub use setpartitionkey::{PartitionKey, Setpartitionkey, SetpartitionkeyArguments};
pub use setstriping::{Setstriping, SetstripingArguments};
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
        /// Copy an object by sharing its blocks.
        Fastcopy = 9,
        /// Ask how many blocks overwriting would take.
        Blocksrequired = 10,
        /// Make bytes read as zeros, and free their blocks.
        Punch = 11,
        /// Find where data, or a hole, begins.
        Seek = 12,
        /// Make a partition.
        Createpartition = 13,
        /// Remove a partition with all its objects.
        Removepartition = 14,
        /// Set how much a partition may hold.
        Resizepartition = 15,
        /// Make everything in a partition durable.
        Flushpartition = 16,
        /// Set one of a partition's keys.
        Setpartitionkey = 17,
        /// Set a partition's compression and minimum protection.
        Setpartition = 18,
        /// Set the master key and the clock, and remove everything else.
        Initialize = 19,
        /// Set the drive key.
        Setdrivekey = 20,
        /// Set the drive's minimum protection.
        Setdrive = 21,
        /// Read the audit trail.
        Audit = 22,
        /// Any of the others, encrypted.
        Private = 23,
        /// Several creates, removes, setattrs and getattrs in one call.
        Batch = 24,
        /// Write data where the object ends.
        Append = 25,
        /// Copy bytes from one object to another.
        Copyrange = 26,
        /// Where the components of a virtual drive's object are.
        Map = 27,
        /// How the objects of a virtual drive's partition are spread.
        Setstriping = 28,
        /// A client has ended its writes of a virtual drive's object.
        Endwrites = 29,
        /// Have an extension do something with an object.
        Extend = 30,
        /// Make a partition that has all that another one has.
        Copypartition = 31,
        /// Tell what of a partition is not as another one has it.
        Comparepartition = 32,
        /// Make an object what it is on another drive, but for its data.
        Putobject = 33,
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
    /// What `getattr`, `setattr` and `punch` answer (`nasd_attributes_result`).
    pub struct AttributesReply {
        /// The object's attributes; after a change, the new ones.
        pub attributes: Attributes,
    }
}
