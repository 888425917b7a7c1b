//! Who asks: user, group, and the supplementary groups that this host's database gives the user.

use std::collections::HashMap;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nasd_clerk::Caller;

/// How long groups are remembered.
const TTL: Duration = Duration::from_secs(60);

/// Callers remembered at most.
const MAX_CALLERS: usize = 4096;

/// Longest list of groups that is asked for.
const MAX_GROUPS: usize = 65_536;

/// The user of a request, as the kernel tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Who {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Callers met not long ago.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    known: Mutex<HashMap<Who, (Arc<Caller>, Instant)>>,
}

impl Callers {
    /// The caller, with groups. May have to ask a directory service.
    pub(crate) fn get(&self, who: Who) -> Arc<Caller> {
        let Who { uid, gid } = who;
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((caller, since)) = known.get(&who)
            && since.elapsed() < TTL
        {
            return Arc::clone(caller);
        }
        drop(known);
        // The database may be far away.
        let groups = groups_of(uid, gid);
        let caller = Arc::new(Caller { uid, gid, groups });
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_CALLERS {
            known.clear();
        }
        known.insert(who, (Arc::clone(&caller), Instant::now()));
        caller
    }
}

/// The groups of the user's name, without `gid`; none for a user without a name. Root needs none.
fn groups_of(uid: u32, gid: u32) -> Vec<u32> {
    if uid == 0 {
        return Vec::new();
    }
    let mut groups = group_list(uid, gid).unwrap_or_default();
    groups.retain(|group| *group != gid);
    groups
}

fn group_list(uid: u32, gid: u32) -> Option<Vec<u32>> {
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut found = ptr::null_mut();
    let mut text = vec![0; 16 << 10];
    // SAFETY: all pointers are to memory that lives through the call, with the length given.
    let status = unsafe {
        libc::getpwuid_r(uid, entry.as_mut_ptr(), text.as_mut_ptr(), text.len(), &mut found)
    };
    if status != 0 || found.is_null() {
        return None;
    }
    // SAFETY: `found` is not null, so `entry` is filled, and its name points into `text`.
    let name = unsafe { CStr::from_ptr((*found).pw_name) };
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut count = libc::c_int::try_from(groups.len()).ok()?;
        // SAFETY: `groups` has room for `count` entries; `name` is a C string.
        let status =
            unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
        let count = usize::try_from(count).ok()?;
        if status >= 0 {
            groups.truncate(count);
            return Some(groups);
        }
        if count <= groups.len() || count > MAX_GROUPS {
            return None;
        }
        groups.resize(count, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_remembered() {
        let callers = Callers::default();
        let get = |uid, gid| callers.get(Who { uid, gid });
        let first = get(1, 1);
        assert!(Arc::ptr_eq(&first, &get(1, 1)));
        assert!(!Arc::ptr_eq(&first, &get(1, 2)));
        assert_eq!(get(0, 0).groups, []);
        assert_eq!(get(3_999_999, 7).groups, [], "a user without a name");
    }
}
