//! How a file is, as the desk tells.

use nasd_types::Timestamp;

use crate::manager::FileType;
use crate::wire::message;

message! {
    /// How a file is (`nasd_desk_facts`).
    #[derive(Copy, Hash)]
    pub struct FileFacts {
        /// What it is (`type`).
        pub file_type: FileType,
        /// Permission bits, 07777.
        pub mode: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Length in bytes.
        pub size: u64,
        /// Last change of data.
        pub modify_time: Timestamp,
    }
}
