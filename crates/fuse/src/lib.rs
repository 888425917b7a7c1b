//! FUSE: the kernel's protocol for file systems that a process serves.
//!
//! [`mount`] gives a [`Connection`] to the kernel; [`Session::start`] serves it with a
//! [`Filesystem`]. A connection can also come from another process, which served it before
//! ([`Session::hand_over`], [`handover`]): programs on the mount notice nothing.

mod answer;
mod buffer;
mod connection;
mod device;
mod directory;
mod dispatch;
mod errno;
mod filesystem;
mod flags;
pub mod handover;
mod interrupts;
mod measures;
mod mounting;
mod notify;
mod pace;
mod reply;
mod request;
mod session;
mod turns;
mod wire;

pub use answer::{
    Answer, Attributes, AttributesFor, Created, Done, Encoder, Entry, FileKind, LockFound, Offset,
    Opened, Polled, StatFs, Statx, Time, Written, XattrSize,
};
pub use buffer::{OwnedPayload, Payload};
pub use connection::{Connection, Negotiated, Wanted};
pub use directory::Listing;
pub use errno::Errno;
pub use filesystem::{Context, Filesystem, NewName};
pub use flags::{InitFlags, OpenedFlags, ReleaseFlags, WriteFlags};
pub use interrupts::{Interruption, Interrupts, Waiting};
pub use measures::Measures;
pub use mounting::{MountFlags, MountRefused, mount};
pub use notify::Notifier;
pub use reply::{Bytes, Copied, CopyReply, IoctlAnswer, Reply, Xattr};
pub use request::{
    CopyFileRange, Fallocate, ForgetList, Forgotten, Header, Init, Ioctl, Lock, Operation,
    ParseError, Read, Release, Request, SetAttributes, SetTime, StatxAsked, Write,
};
pub use session::{HandOver, Session, SessionHandle};

/// A listing, as the answer to a request.
#[derive(Clone, Copy, Debug)]
pub enum Directory {}
