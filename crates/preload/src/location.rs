//! Where a path leads to, by its text.

use std::ffi::{CStr, c_char, c_int};
use std::os::unix::ffi::OsStringExt;

use crate::map;

/// The absolute path of what is opened, without `.` and `..`; nothing if that can't be known.
///
/// # Safety
///
/// The path is none, or ends with a zero byte.
pub(crate) unsafe fn absolute(at: c_int, path: *const c_char) -> Option<Vec<u8>> {
    // Addresses so low are nobody's: the kernel says so.
    if (path as usize) < 4096 {
        return None;
    }
    // SAFETY: the caller says so.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    if path.is_empty() {
        return None;
    }
    if path.starts_with(b"/") {
        return map::normal(path);
    }
    let directory = if at == libc::AT_FDCWD {
        std::env::current_dir().ok()?.into_os_string().into_vec()
    } else {
        let link = format!("/proc/self/fd/{at}");
        std::fs::read_link(link).ok()?.into_os_string().into_vec()
    };
    map::normal(&[&directory[..], b"/", path].concat())
}

/// The process's mask for modes of new files; asking for it otherwise would change it for a moment.
pub(crate) fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let told = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    told.and_then(|told| u32::from_str_radix(told.trim(), 8).ok()).unwrap_or(0o022)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_from_a_directory() {
        // SAFETY: the texts end with a zero byte.
        let told = |at, path: &CStr| unsafe { absolute(at, path.as_ptr()) };
        assert_eq!(told(libc::AT_FDCWD, c"/a/../b").unwrap(), b"/b");
        let here = std::env::current_dir().unwrap();
        let expected = here.join("x").into_os_string().into_vec();
        assert_eq!(told(libc::AT_FDCWD, c"./y/../x").unwrap(), expected);
        assert_eq!(told(libc::AT_FDCWD, c""), None);
        assert_eq!(told(-1, c"x"), None);
        let directory = std::fs::File::open("/dev").unwrap();
        let at = std::os::fd::AsRawFd::as_raw_fd(&directory);
        assert_eq!(told(at, c"null").unwrap(), b"/dev/null");
        // SAFETY: it is none.
        assert_eq!(unsafe { absolute(at, std::ptr::null()) }, None);
        assert!(umask() <= 0o777);
    }
}
