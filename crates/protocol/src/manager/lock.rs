//! `lock`, `unlock`, `testlock`: POSIX byte ranges and flock, between all clients.

use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError, xdr_enum};

use super::{FileHandle, Operation, Procedure};
use crate::wire::{Field, field_by_xdr, message, xdr_by_field};

xdr_enum! {
    /// The two kinds of locks, which don't see each other (`nasd_lock_kind`).
    pub enum LockKind {
        /// `fcntl`: byte ranges of a process.
        Posix = 0,
        /// `flock`: all of the file, of an open file.
        Flock = 1,
    }
}

field_by_xdr!(LockKind);

xdr_enum! {
    /// Whether others may hold a lock on the same bytes (`nasd_lock_mode`).
    pub enum LockMode {
        /// Others may read.
        Shared = 0,
        /// Nobody else.
        Exclusive = 1,
    }
}

field_by_xdr!(LockMode);

message! {
    /// A lock (`nasd_held_lock`).
    #[derive(Copy, Hash)]
    pub struct HeldLock {
        /// On which file.
        pub file: FileHandle,
        /// Of which kind.
        pub kind: LockKind,
        /// The client's number for the owner: an open file, a process.
        pub owner: u64,
        /// The first byte.
        pub first: u64,
        /// The last byte; the largest number stands for the end of any file.
        pub last: u64,
        /// Whether others may hold one too.
        pub mode: LockMode,
        /// The process, as its host numbers it.
        pub process: u32,
    }
}

/// The operation that asks for a lock.
#[derive(Debug)]
pub enum Lock {}

impl Operation for Lock {
    const PROCEDURE: Procedure = Procedure::Lock;
    type Arguments = LockArguments;
    type Reply = LockAnswer;
}

message! {
    /// Arguments (`nasd_lock_arguments`).
    #[derive(Copy)]
    pub struct LockArguments {
        /// Whose session it is.
        pub client: u64,
        /// The lock.
        pub lock: HeldLock,
        /// Whether to be told when to ask again, if it can't be had now.
        pub wait: bool,
    }
}

/// What came of a request for a lock (`nasd_lock_answer`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockAnswer {
    /// The owner has it.
    Granted,
    /// This one is in the way.
    Denied(HeldLock),
    /// The same; an event will tell when to ask again.
    Queued(HeldLock),
}

/// Discriminants of `nasd_lock_answer`.
const GRANTED: u32 = 0;
const DENIED: u32 = 1;
const QUEUED: u32 = 2;

impl Field for LockAnswer {
    fn put(&self, out: &mut Encoder) {
        match self {
            LockAnswer::Granted => out.u32(GRANTED),
            LockAnswer::Denied(other) => {
                out.u32(DENIED);
                other.put(out);
            }
            LockAnswer::Queued(other) => {
                out.u32(QUEUED);
                other.put(out);
            }
        }
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        match input.u32()? {
            GRANTED => Ok(LockAnswer::Granted),
            DENIED => Ok(LockAnswer::Denied(Field::take(input)?)),
            QUEUED => Ok(LockAnswer::Queued(Field::take(input)?)),
            value => Err(nasd_xdr::UnknownValue { enumeration: "LockAnswer", value }.into()),
        }
    }
}

xdr_by_field!(LockAnswer);

/// The operation that lets go of an owner's locks on some bytes, and of waiting for them.
#[derive(Debug)]
pub enum Unlock {}

impl Operation for Unlock {
    const PROCEDURE: Procedure = Procedure::Unlock;
    type Arguments = UnlockArguments;
    type Reply = ();
}

message! {
    /// Arguments (`nasd_unlock_arguments`).
    #[derive(Copy)]
    pub struct UnlockArguments {
        /// Whose session it is.
        pub client: u64,
        /// On which file.
        pub file: FileHandle,
        /// Of which kind.
        pub kind: LockKind,
        /// The client's number for the owner.
        pub owner: u64,
        /// The first byte.
        pub first: u64,
        /// The last byte.
        pub last: u64,
        /// Whether it only does not wait any more; what it holds stays.
        pub only_waiting: bool,
    }
}

/// The operation that tells who would be in the way of a lock.
#[derive(Debug)]
pub enum TestLock {}

impl Operation for TestLock {
    const PROCEDURE: Procedure = Procedure::TestLock;
    type Arguments = LockArguments;
    type Reply = InTheWay;
}

/// The answer: a lock that is in the way, if one is (`nasd_in_the_way`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InTheWay(pub Option<HeldLock>);

impl XdrEncode for InTheWay {
    fn encode(&self, out: &mut Encoder) {
        self.0.put(out);
    }
}

impl XdrDecode for InTheWay {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(InTheWay(Field::take(input)?))
    }
}
