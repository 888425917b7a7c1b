//! The FUSE face of the clerk: a volume as a directory tree of this machine.
//!
//! Start reading at [`Mount`], which mounts, serves and drains; `filesystem` is what the kernel
//! calls, `tree`, `files`, `directories` and `nameless` what is done then. Every operation may wait
//! for a drive or the manager that is away, so `dispatch` sees to it that one thread always
//! listens to the kernel.

mod accessed;
mod attributes;
mod bulk_ways;
mod callers;
mod directories;
mod dispatch;
mod error;
mod files;
mod filesystem;
mod forest;
mod hint_request;
mod hint_streams;
mod inodes;
mod interrupts;
mod locks;
mod lookers;
mod mount;
mod mountinfo;
mod mountpoint;
mod nameless;
mod names;
mod options;
mod pages;
mod presence;
mod read_ahead;
mod serving;
mod state;
mod succession;
mod table;
mod tree;
mod unmount;
mod work_pool;
mod xattrs;

pub use accessed::AccessTimes;
pub use error::MountError;
pub use forest::OtherVolumes;
pub use hint_request::HintRequest;
pub use mount::{Mount, MountHandle, MountMetrics};
pub use options::{CachePlace, DataPath, MetricsAddress, MountOptions, UnknownOption};
pub use unmount::unmount;
