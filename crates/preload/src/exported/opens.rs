//! Opening files: those that are opened past all caches may be mapped.
//!
//! `open`, `openat` and `fcntl` are variadic in C, which can't be told in stable Rust. Here they have one more argument that is always
//! there: on x86-64 and on 64-bit ARM with Linux the caller puts an integer into the same register in both cases. Where it passes
//! none, what is in the register is not looked at. (`creat` has no flags: what it opens is never mapped.)

use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use libc::mode_t;
use rustix::fs::FileType;

use crate::error::{PreloadError, last_error};
use crate::grant::{Mount, is_of_a_stranger};
use crate::map::{self, Rule};
use crate::mapped::{Mapped, Seen};
use crate::origin::Origin;
use crate::served::{self, Served};
use crate::verify::{Identity, Manner};
use crate::{config, hook, location, real, table};

/// Flags with which nothing is mapped: what is written goes to the end, or it is no file.
const NEVER: c_int = libc::O_APPEND | libc::O_PATH | libc::O_DIRECTORY;

/// What is opened, and how.
#[derive(Clone, Copy)]
struct Asked {
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
}

impl Asked {
    fn new(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> Asked {
        let makes = flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE;
        // Else it may be anything.
        Asked { at, path, flags, mode: if makes { mode } else { 0 } }
    }

    fn may_be_mapped(&self) -> bool {
        self.flags & libc::O_DIRECT != 0
            && (self.flags & NEVER == 0 || self.flags & libc::O_TMPFILE == libc::O_TMPFILE)
            && self.flags & libc::O_APPEND == 0
    }
}

/// Opens something, and maps it if that can be.
///
/// # Safety
///
/// As `openat(2)`.
unsafe fn open_any(asked: Asked, ordinary: impl Fn() -> c_int) -> c_int {
    if !asked.may_be_mapped() {
        return ordinary();
    }
    let told = hook::within(|| {
        // SAFETY: the caller says so.
        let place = unsafe { Place::of(asked) };
        match place.rule() {
            Some((rule, below)) if !served::is_here(rule) => {
                open_afar(rule, below, asked).map(|(fd, _)| Some(fd))
            }
            rule => {
                let fd = ordinary();
                if fd < 0 {
                    // With the number that says why.
                    return Err(last_error().into());
                }
                map_opened(fd, rule, asked);
                Ok(Some(fd))
            }
        }
    });
    told.unwrap_or_else(ordinary)
}

/// Opens something for a program that wants it mapped or not at all.
///
/// # Safety
///
/// As `open(2)`.
pub(crate) unsafe fn open_mapped(
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> Result<(c_int, Arc<Mapped>), PreloadError> {
    let asked = Asked::new(libc::AT_FDCWD, path, flags | libc::O_DIRECT | libc::O_CLOEXEC, mode);
    if !asked.may_be_mapped() {
        return Err(PreloadError::Argument("nothing is appended, and directories are not opened"));
    }
    // SAFETY: the caller says so.
    let place = unsafe { Place::of(asked) };
    let rule = match place.rule() {
        Some((rule, below)) if !served::is_here(rule) => return open_afar(rule, below, asked),
        rule => rule,
    };
    // SAFETY: the caller says so.
    let fd = unsafe { real::open(path, asked.flags, asked.mode) };
    if fd < 0 {
        return Err(last_error().into());
    }
    let mapped = try_to_map(fd, rule, asked).and_then(|mapped| {
        mapped.ok_or(PreloadError::Unsupported("it is no file of a mount, or of NASD_BULK_MAP"))
    });
    match mapped {
        Ok(mapped) => {
            let mapped = Arc::new(mapped);
            table::insert(fd, Arc::clone(&mapped));
            Ok((fd, mapped))
        }
        Err(error) => {
            // SAFETY: nobody else knows of it.
            unsafe { real::close(fd) };
            Err(error)
        }
    }
}

/// What `NASD_BULK_MAP` says of a path.
struct Place {
    path: Option<Vec<u8>>,
}

impl Place {
    unsafe fn of(asked: Asked) -> Place {
        // Nobody asks where it leads if nothing leads anywhere.
        let path = match rules() {
            [] => None,
            // SAFETY: the caller answers for it.
            _ => unsafe { location::absolute(asked.at, asked.path) },
        };
        Place { path }
    }

    fn rule(&self) -> Option<(&'static Rule, &[u8])> {
        map::find(rules(), self.path.as_deref()?)
    }
}

fn rules() -> &'static [Rule] {
    config::get().map_or(&[][..], |config| &config.rules)
}

/// Opens a file that is not here.
fn open_afar(
    rule: &Rule,
    below: &[u8],
    asked: Asked,
) -> Result<(c_int, Arc<Mapped>), PreloadError> {
    let shown = || format!("{} of {}", String::from_utf8_lossy(below), rule.address);
    let opened =
        Served::afar(rule, below, (asked.flags, asked.mode)).and_then(|(served, place)| {
            let fd = place.as_raw_fd();
            let (identity, _) = Identity::of(fd)?;
            let seen = Seen { identity, manner: Manner::of(fd)? };
            let mapped = Mapped::open(fd, Arc::new(served), seen, how(asked.flags))?;
            Ok((mapped, place))
        });
    let opened = opened.inspect_err(|error| {
        config::say(|| format!("{}: not opened: {error}", shown()));
    });
    let (mapped, place) = opened?;
    config::say(|| format!("{}: mapped, and nothing of it is here", shown()));
    let (fd, mapped) = (served::handed(place), Arc::new(mapped));
    table::insert(fd, Arc::clone(&mapped));
    Ok((fd, mapped))
}

/// The access that was asked for, and whether writes are to be durable.
fn how(flags: c_int) -> ((bool, bool), bool) {
    let access = flags & libc::O_ACCMODE;
    let access = (access != libc::O_WRONLY, access == libc::O_WRONLY || access == libc::O_RDWR);
    (access, flags & (libc::O_SYNC | libc::O_DSYNC) != 0)
}

/// Maps what was opened, if that can be.
fn map_opened(fd: c_int, rule: Option<(&Rule, &[u8])>, asked: Asked) {
    let shown = || {
        let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
        link.display().to_string()
    };
    // What is open is the program's, whatever happens here.
    let told = catch_unwind(AssertUnwindSafe(|| try_to_map(fd, rule, asked)));
    match told.unwrap_or(Err(PreloadError::Broken)) {
        Ok(Some(mapped)) => {
            config::say(|| format!("{}: mapped", shown()));
            table::insert(fd, Arc::new(mapped));
        }
        Ok(None) => {}
        Err(error) if is_of_a_stranger(&error) => {}
        Err(error) => config::say(|| format!("{}: not mapped: {error}", shown())),
    }
}

fn try_to_map(
    fd: c_int,
    rule: Option<(&Rule, &[u8])>,
    asked: Asked,
) -> Result<Option<Mapped>, PreloadError> {
    let (identity, kind) = Identity::of(fd)?;
    let manner = Manner::of(fd)?;
    if kind != FileType::RegularFile || !manner.is_direct() {
        return Ok(None);
    }
    let origin: Arc<dyn Origin> = match rule {
        Some((rule, below)) => Arc::new(Served::here(rule, below, asked.flags)),
        None => match Mount::of(fd, manner) {
            Some(mount) => Arc::new(mount),
            None => return Ok(None),
        },
    };
    let (_, durable) = how(asked.flags);
    // What drives have written is durable, and what is here is the kernel's to make so.
    let durable = durable && rule.is_some();
    Mapped::open(fd, origin, Seen { identity, manner }, (manner.access(), durable)).map(Some)
}

macro_rules! opens {
    ($($name:ident)*) => {$(
        /// As in C.
        ///
        /// # Safety
        ///
        /// As in C.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            let asked = Asked::new(libc::AT_FDCWD, path, flags, mode);
            // SAFETY: the caller answers for it.
            unsafe { open_any(asked, || real::$name(path, flags, asked.mode)) }
        }
    )*};
}

macro_rules! opens_at {
    ($($name:ident)*) => {$(
        /// As in C.
        ///
        /// # Safety
        ///
        /// As in C.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            at: c_int,
            path: *const c_char,
            flags: c_int,
            mode: mode_t,
        ) -> c_int {
            let asked = Asked::new(at, path, flags, mode);
            // SAFETY: the caller answers for it.
            unsafe { open_any(asked, || real::$name(at, path, flags, asked.mode)) }
        }
    )*};
}

/// Those that check that no mode is needed.
macro_rules! checked_opens {
    ($($name:ident)*) => {$(
        /// As in C.
        ///
        /// # Safety
        ///
        /// As in C.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int) -> c_int {
            let asked = Asked::new(libc::AT_FDCWD, path, flags, 0);
            // SAFETY: the caller answers for it.
            unsafe { open_any(asked, || real::$name(path, flags)) }
        }
    )*};
}

macro_rules! checked_opens_at {
    ($($name:ident)*) => {$(
        /// As in C.
        ///
        /// # Safety
        ///
        /// As in C.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(at: c_int, path: *const c_char, flags: c_int) -> c_int {
            let asked = Asked::new(at, path, flags, 0);
            // SAFETY: the caller answers for it.
            unsafe { open_any(asked, || real::$name(at, path, flags)) }
        }
    )*};
}

opens! { open open64 }
opens_at! { openat openat64 }
checked_opens! { __open_2 __open64_2 }
checked_opens_at! { __openat_2 __openat64_2 }
