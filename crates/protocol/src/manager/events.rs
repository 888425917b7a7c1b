//! `events`: what a client should know, and what it has dealt with. A client has one such call with
//! the manager all the time; that is how it is known to live.

use nasd_xdr::{Decoder, Encoder, UnknownValue, XdrDecode, XdrEncode, XdrError};

use super::lock::LockKind;
use super::{FileHandle, Operation, Procedure};
use crate::limits::MAX_EVENTS;
use crate::wire::{Field, put_array, take_array};

/// The operation. It is answered when there is something to tell, or after a third of the lease.
#[derive(Debug)]
pub enum Events {}

impl Operation for Events {
    const PROCEDURE: Procedure = Procedure::Events;
    type Arguments = EventsArguments;
    type Reply = EventsPage;
}

/// Arguments (`nasd_events_arguments`).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EventsArguments {
    /// Whose session it is.
    pub client: u64,
    /// Events up to this number are dealt with.
    pub seen: u64,
    /// Of the files in the `Removed` events among them, those that the client has open; at most
    /// [`MAX_EVENTS`].
    pub open: Vec<FileHandle>,
    /// Whether to wait for something to tell.
    pub wait: bool,
}

impl XdrEncode for EventsArguments {
    fn encode(&self, out: &mut Encoder) {
        out.u64(self.client);
        out.u64(self.seen);
        put_array(&self.open, out);
        out.bool(self.wait);
    }
}

impl XdrDecode for EventsArguments {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(EventsArguments {
            client: input.u64()?,
            seen: input.u64()?,
            open: take_array(input, MAX_EVENTS)?,
            wait: input.bool()?,
        })
    }
}

/// Something that a client should know (`nasd_event`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The file has lost its last name: does the client have it open?
    Removed(FileHandle),
    /// Ask again for the lock.
    LockFree(FileHandle, LockKind),
    /// The lease on the directory has ended.
    DirectoryChanged(FileHandle),
    /// Nothing that the client was promised of the file up to this version is so any more.
    Broken(FileHandle, u64),
    /// Attributes of the file, or names in the directory, are changed: promises that were asked for before are none. What
    /// is in the file is as it was.
    Changed(FileHandle),
}

/// Discriminants of `nasd_event`.
const REMOVED: u32 = 1;
const LOCK_FREE: u32 = 2;
const DIRECTORY_CHANGED: u32 = 3;
const BROKEN: u32 = 4;
const CHANGED: u32 = 5;

impl Field for Event {
    fn put(&self, out: &mut Encoder) {
        match self {
            Event::Removed(file) => {
                out.u32(REMOVED);
                file.put(out);
            }
            Event::LockFree(file, kind) => {
                out.u32(LOCK_FREE);
                file.put(out);
                kind.put(out);
            }
            Event::DirectoryChanged(directory) => {
                out.u32(DIRECTORY_CHANGED);
                directory.put(out);
            }
            Event::Broken(file, version) => {
                out.u32(BROKEN);
                file.put(out);
                out.u64(*version);
            }
            Event::Changed(file) => {
                out.u32(CHANGED);
                file.put(out);
            }
        }
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        match input.u32()? {
            REMOVED => Ok(Event::Removed(Field::take(input)?)),
            LOCK_FREE => Ok(Event::LockFree(Field::take(input)?, Field::take(input)?)),
            DIRECTORY_CHANGED => Ok(Event::DirectoryChanged(Field::take(input)?)),
            BROKEN => Ok(Event::Broken(Field::take(input)?, input.u64()?)),
            CHANGED => Ok(Event::Changed(Field::take(input)?)),
            value => Err(UnknownValue { enumeration: "Event", value }.into()),
        }
    }
}

/// The answer (`nasd_events_page`).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EventsPage {
    /// Number of the first event.
    pub first: u64,
    /// The events, at most [`MAX_EVENTS`].
    pub events: Vec<Event>,
}

impl XdrEncode for EventsPage {
    fn encode(&self, out: &mut Encoder) {
        out.u64(self.first);
        put_array(&self.events, out);
    }
}

impl XdrDecode for EventsPage {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(EventsPage { first: input.u64()?, events: take_array(input, MAX_EVENTS)? })
    }
}
