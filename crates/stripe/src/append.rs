//! Appends: at the end of the whole, once however often they are asked for.
//!
//! An append that stays within the first unit of an object without copies is its home drive's, which remembers
//! what was appended by which token. Of others the striping manager remembers; when it was started since an
//! append was asked for first, it says that it does not know.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nasd_protocol::Status;
use nasd_protocol::drive::Appended;
use nasd_store::Append;
use nasd_types::{AppendToken, ByteRange, ObjectName, Timestamp};

use crate::components::{Ask, Told};
use crate::virtual_drive::{VirtualDrive, component, unexpected};

/// Most appends that are remembered.
const MOST: usize = 1 << 14;

/// Appends that were made lately.
#[derive(Debug, Default)]
pub(crate) struct Appends(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    /// Where each went, and how many bytes it had.
    made: HashMap<(ObjectName, [u8; 16]), (u64, usize)>,
    order: VecDeque<(ObjectName, [u8; 16])>,
    /// Whether some were forgotten.
    is_full: bool,
}

impl Appends {
    fn find(&self, name: ObjectName, token: AppendToken) -> Option<(u64, usize)> {
        let remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.made.get(&(name, token.0)).copied()
    }

    fn keep(&self, name: ObjectName, token: AppendToken, made: (u64, usize)) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.order.len() >= MOST
            && let Some(oldest) = remembered.order.pop_front()
        {
            remembered.made.remove(&oldest);
            remembered.is_full = true;
        }
        remembered.order.push_back((name, token.0));
        remembered.made.insert((name, token.0), made);
    }
}

impl VirtualDrive {
    /// Appends; `now` is the virtual drive's clock.
    pub(crate) fn append_whole(
        &self,
        name: ObjectName,
        append: &Append<'_>,
        now: Timestamp,
    ) -> Result<Appended, Status> {
        let _alone = self.lock(name);
        let place = self.place(name)?;
        let whole = self.whole(name)?;
        let (at, length) = (whole.attributes.logical_size, append.bytes.len());
        if let Some((offset, made)) = self.appends.find(name, append.token) {
            return match made == length {
                true => Ok(Appended { offset, attributes: whole.attributes }),
                false => Err(Status::TooLarge),
            };
        }
        let range = ByteRange::new(at, length as u64);
        let is_small = range.end() <= place.shape.unit() && !whole.version.is_spread();
        if is_small && !place.has_copies() {
            if !append.within.contains(&range) {
                // It may have been made when it was asked for first, with room; nobody is told that it was not.
                return Err(append.since.map_or(Status::RefusedRegion, |_| Status::Forgotten));
            }
            return self.append_home(name, append, now);
        }
        if append.since.is_some() {
            return Err(Status::Forgotten);
        }
        if !append.within.contains(&range) {
            return Err(Status::RefusedRegion);
        }
        self.write_locked(name, at, append.bytes, true)?;
        self.appends.keep(name, append.token, (at, length));
        Ok(Appended { offset: at, attributes: self.getattr_whole(name)? })
    }

    fn append_home(
        &self,
        name: ObjectName,
        append: &Append<'_>,
        now: Timestamp,
    ) -> Result<Appended, Status> {
        let drive = self.place(name)?.home();
        let age = append.since.map_or(0, |since| now.0.saturating_sub(since.0));
        let ask = Ask::Append {
            name: component(name),
            token: append.token,
            age: Duration::from_nanos(age),
            data: append.bytes.to_vec(),
        };
        match self.components.ask_one(drive, ask).map_err(|error| error.status())? {
            Told::Appended(Appended { offset, .. }) => {
                Ok(Appended { offset, attributes: self.getattr_whole(name)? })
            }
            other => Err(unexpected(&other).status()),
        }
    }
}
