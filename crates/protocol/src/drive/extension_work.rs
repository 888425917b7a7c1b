//! What the extensions of a drive do now, as its control object tells.

use nasd_types::{DriveId, ObjectId, PartitionId};
use nasd_xdr::{Decoder, Encoder, XdrError};

use crate::limits::MAX_EXTENSION_JOBS;
use crate::wire::{Field, message, put_array, take_array, xdr_by_field};

message! {
    /// A job of which calls run or wait (`nasd_extension_job`).
    #[derive(Copy)]
    pub struct ExtensionJob {
        /// Where: a virtual drive tells of its components' jobs.
        pub drive: DriveId,
        /// The extension's number.
        pub extension: u32,
        /// On what: the object's partition,
        pub partition: PartitionId,
        /// and itself.
        pub object: ObjectId,
        /// How long that is.
        pub object_bytes: u64,
        /// As its caller has called it.
        pub job: u64,
        /// Calls of it that run.
        pub running: u32,
        /// Calls of it that wait for their turn.
        pub waiting: u32,
        /// Nanoseconds since its first call came.
        pub age: u64,
        /// Bytes of the object that it has looked at here.
        pub bytes_done: u64,
        /// Bytes of it that it has still to look at, by what its caller says.
        pub bytes_left: u64,
        /// How many it looks at in a second while it runs, or others of its extension do; 0 if that is not known.
        pub bytes_per_second: u64,
        /// Bytes of memory that its calls were granted.
        pub memory_bytes: u64,
    }
}

/// All that extensions do (`nasd_extension_work`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtensionWork {
    /// Memory for calls of extensions, in bytes.
    pub memory_bytes: u64,
    /// So much of it was granted.
    pub granted_bytes: u64,
    /// At most [`MAX_EXTENSION_JOBS`], those that run first.
    pub jobs: Vec<ExtensionJob>,
}

impl Field for ExtensionWork {
    fn put(&self, out: &mut Encoder) {
        out.u64(self.memory_bytes);
        out.u64(self.granted_bytes);
        put_array(&self.jobs, out);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(ExtensionWork {
            memory_bytes: input.u64()?,
            granted_bytes: input.u64()?,
            jobs: take_array(input, MAX_EXTENSION_JOBS)?,
        })
    }
}

xdr_by_field!(ExtensionWork);
