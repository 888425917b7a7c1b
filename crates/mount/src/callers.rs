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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The thread that asks; 0 if it can't be seen from here.
    pub(crate) thread: u32,
    /// Its groups are the thread's own, as of now, and not those of the host's database.
    pub(crate) exact: bool,
}

impl Who {
    /// The same with the thread's own groups.
    pub(crate) fn exactly(self) -> Self {
        Who { exact: true, ..self }
    }
}

/// A caller, and since when.
type Known = (Arc<Caller>, Instant);

/// Callers met not long ago, by user and group.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    known: Mutex<HashMap<(u32, u32), Known>>,
}

impl Callers {
    /// The caller, with groups. May have to ask a directory service.
    pub(crate) fn get(&self, who: Who) -> Arc<Caller> {
        let Who { uid, gid, thread, exact } = who;
        if exact && let Some(groups) = groups_of_thread(thread, gid) {
            return Arc::new(Caller { uid, gid, groups });
        }
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((caller, since)) = known.get(&(uid, gid))
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
        known.insert((uid, gid), (Arc::clone(&caller), Instant::now()));
        caller
    }

    /// Whether somebody who was refused with the database's groups may fare better with his thread's.
    pub(crate) fn may_differ(&self, who: Who) -> bool {
        // Root needs no groups.
        who.uid != 0 && !who.exact && {
            let own = groups_of_thread(who.thread, who.gid);
            own.is_some_and(|own| own != self.get(who).groups)
        }
    }
}

/// The supplementary groups of a thread without `gid`, sorted; `None` if it can't be seen.
fn groups_of_thread(thread: u32, gid: u32) -> Option<Vec<u32>> {
    if thread == 0 {
        return None;
    }
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    parse_groups(&status, gid)
}

fn parse_groups(status: &str, gid: u32) -> Option<Vec<u32>> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"))?;
    let mut groups: Vec<u32> =
        line.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    groups.retain(|group| *group != gid);
    groups.sort_unstable();
    groups.dedup();
    Some(groups)
}

/// The groups of the user's name, without `gid`; none for a user without a name. Root needs none.
fn groups_of(uid: u32, gid: u32) -> Vec<u32> {
    if uid == 0 {
        return Vec::new();
    }
    let mut groups = group_list(uid, gid).unwrap_or_default();
    groups.retain(|group| *group != gid);
    groups.sort_unstable();
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
        let who = |uid, gid| Who { uid, gid, thread: 0, exact: false };
        let get = |uid, gid| callers.get(who(uid, gid));
        let first = get(1, 1);
        assert!(Arc::ptr_eq(&first, &get(1, 1)));
        assert!(!Arc::ptr_eq(&first, &get(1, 2)));
        assert_eq!(get(0, 0).groups, []);
        assert_eq!(get(3_999_999, 7).groups, [], "a user without a name");
        assert!(!callers.may_differ(who(3_999_999, 7)), "nobody can see the thread");
    }

    #[test]
    fn groups_of_a_thread_are_read_from_its_status() {
        let status = "Name:\tcat\nGroups:\t30 4 100 4 \nNStgid:\t7\n";
        assert_eq!(parse_groups(status, 100), Some(vec![4, 30]));
        assert_eq!(parse_groups("Groups:\t \n", 0), Some(vec![]));
        assert_eq!(parse_groups("Groups:\tx\n", 0), None);
        assert_eq!(parse_groups("Name:\tcat\n", 0), None);
        assert!(groups_of_thread(std::process::id(), 0).is_some());
    }
}
