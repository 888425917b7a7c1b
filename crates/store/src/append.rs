//! Appending: bytes go where the object ends, whoever else appends meanwhile, and once, however often
//! that is asked for (docs/decisions/0011-appends-that-happen-once.md).
//!
//! Where the end is, is found with the object locked, and the bytes are written there under the same
//! lock. The append is remembered by its token together with where its bytes went; a flush makes both
//! durable with one entry of the log. So whoever asks again after an answer was lost, or after a power cut,
//! learns what was done.

use std::sync::PoisonError;

use nasd_device::Frame;
use nasd_types::{AppendToken, Attributes, ByteRange, ObjectName, Timestamp};

use crate::metadata::record::{Appended, Appends};
use crate::object::Body;
use crate::write::{ATTEMPTS, Tried, check_end};
use crate::{NoSpace, Store, StoreError};

/// What is to be appended.
#[derive(Clone, Copy, Debug)]
pub struct Append<'a> {
    /// The bytes, at least one.
    pub bytes: &'a [u8],
    /// The same whenever the same append is asked for.
    pub token: AppendToken,
    /// When it was asked for first, by the drive's clock, if this is not the first time.
    pub since: Option<Timestamp>,
    /// Where the bytes may go.
    pub within: ByteRange,
}

/// What an append tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendDone {
    /// Where the bytes went.
    pub offset: u64,
    /// The object's attributes now.
    pub attributes: Attributes,
}

impl Store {
    /// Writes bytes at the end of the object: all of them, together, or none. They are durable when
    /// this returns. What was done under the same token before is not done again.
    ///
    /// # Errors
    ///
    /// As of a write; `OutOfRegion` where the object ends outside of the region; `TooLarge` where no
    /// bytes, or others than before, are appended by a token; `Forgotten` where it can't be told
    /// whether the append was made before. After a failed flush the bytes may become durable later, and
    /// the same append once more tries that again.
    pub fn append(
        &self,
        name: ObjectName,
        append: &Append<'_>,
        now: Timestamp,
    ) -> Result<AppendDone, StoreError> {
        let offset = self.append_unflushed(name, append, now)?;
        self.flush(&[name])?;
        Ok(AppendDone { offset, attributes: self.getattr(name)? })
    }

    /// The same, to be flushed later.
    fn append_unflushed(
        &self,
        name: ObjectName,
        append: &Append<'_>,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let length = append.bytes.len();
        self.writable()?;
        self.check_transfer("an append", length as u64)?;
        let object = self.object(name)?;
        let mut payloads = self.payloads_for_append(append.bytes)?;
        self.help_write_back()?;
        let mut lacking = NoSpace::Data;
        let mut settled = self.backlog.settled();
        let mut spare: Vec<Frame> = Vec::new();
        for _ in 0..ATTEMPTS {
            let mut body = object.write();
            if body.removed {
                return Err(self.gone(name));
            }
            if let Some(before) = self.appended_before(name, append)? {
                return Ok(before.offset);
            }
            let offset = place(&body, append)?;
            payloads.offset = offset;
            let tried = self.try_write(&object, &mut body, payloads, &mut spare, now)?;
            if let Tried::Done(_) = &tried {
                let length = length as u32;
                let token = append.token;
                self.remember(&mut body, Appended { name, token, offset, length, time: now });
                return Ok(offset);
            }
            // Whoever waits for memory or room holds no object.
            drop(body);
            payloads = match tried {
                Tried::Done(_) => return Ok(offset),
                Tried::Frames(count, payloads) => {
                    spare.extend(self.allocate_frames(count)?);
                    payloads
                }
                Tried::Lacking(what, payloads) => {
                    lacking = what;
                    self.make_room(what, &mut settled)?;
                    payloads
                }
            };
        }
        Err(StoreError::NoSpace(lacking))
    }

    /// The append of that token, if it was made. The object is locked.
    fn appended_before(
        &self,
        name: ObjectName,
        append: &Append<'_>,
    ) -> Result<Option<Appended>, StoreError> {
        let appends = self.appends();
        let found = appends.find(name, &append.token);
        let length = append.bytes.len() as u64;
        match found {
            Some(found) if u64::from(found.length) != length => {
                let what = "an append by a token that was used for another length";
                let limit = u64::from(found.length);
                Err(StoreError::TooLarge { what, bytes: length, limit })
            }
            None if append.since.is_some_and(|since| appends.may_have_forgotten(since)) => {
                Err(StoreError::Forgotten)
            }
            found => Ok(found),
        }
    }

    /// Remembers an append, for whoever asks now and, from the next flush on, for ever after.
    fn remember(&self, body: &mut Body, appended: Appended) {
        self.appends().push(appended);
        body.appended.push(appended);
    }

    /// The same for one that was made on another drive, unless it is remembered.
    pub(crate) fn remember_once(&self, body: &mut Body, appended: Appended) {
        let is_known = self.appends().find(appended.name, &appended.token).is_some();
        if !is_known {
            self.remember(body, appended);
        }
    }

    fn appends(&self) -> std::sync::MutexGuard<'_, Appends> {
        self.appends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the bytes go, if they may.
fn place(body: &Body, append: &Append<'_>) -> Result<u64, StoreError> {
    let (offset, length) = (body.record.logical_size, append.bytes.len());
    let end = check_end(offset, length)?;
    if length == 0 {
        return Err(StoreError::TooLarge { what: "an append", bytes: 0, limit: 0 });
    }
    match append.within.contains(&ByteRange::new(offset, length as u64)) {
        true => Ok(offset),
        false => Err(StoreError::OutOfRegion { offset, end }),
    }
}
