//! The names of users and groups by this host's database.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::ptr;

/// Memory for an entry of the database; one that does not fit is not found.
const ENTRY_BYTES: usize = 64 << 10;

/// The number of a user of this name.
pub fn uid_of(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: all pointers are to memory that lives through the call, with the length given.
    user(|entry, text, found| unsafe {
        libc::getpwnam_r(name.as_ptr(), entry, text.as_mut_ptr(), text.len(), found)
    })
    .map(|(uid, _)| uid)
}

/// The name of a user.
pub fn user_name(uid: u32) -> Option<String> {
    // SAFETY: as above.
    user(|entry, text, found| unsafe {
        libc::getpwuid_r(uid, entry, text.as_mut_ptr(), text.len(), found)
    })
    .map(|(_, name)| name)
}

/// The number of a group of this name.
pub fn gid_of(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: as above.
    group(|entry, text, found| unsafe {
        libc::getgrnam_r(name.as_ptr(), entry, text.as_mut_ptr(), text.len(), found)
    })
    .map(|(gid, _)| gid)
}

/// The name of a group.
pub fn group_name(gid: u32) -> Option<String> {
    // SAFETY: as above.
    group(|entry, text, found| unsafe {
        libc::getgrgid_r(gid, entry, text.as_mut_ptr(), text.len(), found)
    })
    .map(|(_, name)| name)
}

/// A user that is looked up in this way, which fills the entry where it sets the pointer to it.
fn user(
    look_up: impl FnOnce(*mut libc::passwd, &mut [libc::c_char], *mut *mut libc::passwd) -> i32,
) -> Option<(u32, String)> {
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let (mut text, mut found) = (vec![0; ENTRY_BYTES], ptr::null_mut());
    let status = look_up(entry.as_mut_ptr(), &mut text, &mut found);
    if status != 0 || found.is_null() {
        return None;
    }
    // SAFETY: `found` is not null, so that `entry` is filled, and its name points into `text`.
    let (uid, name) = unsafe { ((*found).pw_uid, CStr::from_ptr((*found).pw_name)) };
    Some((uid, name.to_string_lossy().into_owned()))
}

/// The same of a group.
fn group(
    look_up: impl FnOnce(*mut libc::group, &mut [libc::c_char], *mut *mut libc::group) -> i32,
) -> Option<(u32, String)> {
    let mut entry = MaybeUninit::<libc::group>::uninit();
    let (mut text, mut found) = (vec![0; ENTRY_BYTES], ptr::null_mut());
    let status = look_up(entry.as_mut_ptr(), &mut text, &mut found);
    if status != 0 || found.is_null() {
        return None;
    }
    // SAFETY: as of users.
    let (gid, name) = unsafe { ((*found).gr_gid, CStr::from_ptr((*found).gr_name)) };
    Some((gid, name.to_string_lossy().into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_a_name_and_nobody_has_none() {
        assert_eq!((uid_of("root"), user_name(0).as_deref()), (Some(0), Some("root")));
        assert_eq!((gid_of("root"), group_name(0).as_deref()), (Some(0), Some("root")));
        assert_eq!((uid_of("no such user"), user_name(3_999_999)), (None, None));
        assert_eq!((gid_of("no such group"), group_name(3_999_999)), (None, None));
        assert_eq!(uid_of("a\0b"), None);
    }
}
