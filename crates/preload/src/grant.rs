//! Files of a mount: it says where their bytes are, and gives the capabilities.

use std::ffi::c_int;

use nasd_bulk_service::client::{StripedFile, Way, WayError};
use nasd_protocol::bulk::Options;
use rustix::fs::fstatfs;
use rustix::io::Errno;

use crate::config;
use crate::error::PreloadError;
use crate::origin::Origin;
use crate::telling;
use crate::verify::{Manner, borrowed};

/// What the kernel calls FUSE: no other file system is asked anything.
const FUSE: u64 = 0x6573_5546;

/// What is wanted besides, where the last way was refused.
const ANEW: u32 = 4;

/// The mount that has a file.
pub(crate) struct Mount {
    options: Options,
}

/// How the connections of a file are used.
pub(crate) fn options_of(manner: Manner) -> Options {
    let (reads, writes) = manner.access();
    let mut options = Options::empty();
    options.set(Options::READ, reads);
    options.set(Options::WRITE, writes);
    options
}

impl Mount {
    /// The mount of a file that was opened so, if it may be one.
    pub(crate) fn of(fd: c_int, manner: Manner) -> Option<Mount> {
        let told = fstatfs(borrowed(fd)?).ok()?;
        let options = options_of(manner);
        // The kernel's word for it has another width on other machines.
        #[allow(clippy::unnecessary_cast)]
        let is_fuse = told.f_type as u64 & 0xffff_ffff == FUSE;
        (is_fuse && !options.is_empty()).then_some(Mount { options })
    }
}

impl Origin for Mount {
    fn open(&self, fd: c_int, is_anew: bool) -> Result<StripedFile, PreloadError> {
        let wanted = self.options.bits() as u32 & 3 | if is_anew { ANEW } else { 0 };
        let text = telling::grant(fd, wanted).map_err(PreloadError::NotGranted)?;
        let text = std::str::from_utf8(&text).map_err(|_| WayError::Head)?;
        // How long reads are is the program's secret until the first one: the server guesses by that.
        Ok(Way::from_text(text)?.open(self.options, config::patience(), 0)?)
    }

    fn tell_changed(&self, fd: c_int) {
        telling::changed(fd);
    }
}

/// Whether a refusal is that of a file system which knows nothing of it.
pub(crate) fn is_of_a_stranger(error: &PreloadError) -> bool {
    matches!(error, PreloadError::NotGranted(Errno::NOTTY | Errno::NOSYS))
}
