//! Mounting: by the system call, or, for users who may not, by the helper `fusermount3`, which
//! passes the descriptor over a socket.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::mount::MountFlags as SystemFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};

use crate::{Connection, Wanted};

/// The program that mounts for users other than root.
const HELPER: &str = "fusermount3";

/// How to mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountFlags {
    /// Nothing may be changed.
    pub read_only: bool,
    /// Users other than the one who mounts may use it.
    pub allow_other: bool,
    /// Programs may not be run from it.
    pub no_exec: bool,
    /// Set-user-id programs run as their owner.
    pub allow_suid: bool,
    /// Device files lead to devices.
    pub allow_devices: bool,
}

/// Why a mount could not be made.
#[derive(Debug, thiserror::Error)]
pub enum MountRefused {
    /// This machine has no FUSE, or keeps it from this process.
    #[error("/dev/fuse: {0}")]
    NoDevice(#[source] io::Error),
    /// The helper is not installed.
    #[error("{HELPER} is not installed")]
    NoHelper,
    /// Other users may not be let in.
    #[error("allow_other is not allowed")]
    AllowOther,
    /// The helper says why.
    #[error("{HELPER}: {0}")]
    Helper(String),
    /// The system says why.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Mounts at `path`, and agrees with the kernel on how they talk. The type of the file system is
/// shown as `fuse.` and `subtype`.
///
/// # Errors
///
/// Why not; nothing is mounted then.
pub fn mount(
    path: &Path,
    source: &str,
    subtype: &str,
    flags: MountFlags,
    wanted: &Wanted,
) -> Result<Connection, MountRefused> {
    let descriptor = match by_system(path, source, subtype, flags) {
        Err(MountRefused::System(error)) if error.raw_os_error() == Some(libc::EPERM) => {
            by_helper(path, source, subtype, flags)?
        }
        outcome => outcome?,
    };
    Ok(Connection::agree(descriptor, wanted)?)
}

fn by_system(
    path: &Path,
    source: &str,
    subtype: &str,
    flags: MountFlags,
) -> Result<OwnedFd, MountRefused> {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    let device = device.map_err(MountRefused::NoDevice)?;
    let root_mode = fs::metadata(path)?.mode() & libc::S_IFMT;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let number = device.as_raw_fd();
    let mut data = format!(
        "fd={number},rootmode={root_mode:o},user_id={uid},group_id={gid},default_permissions"
    );
    if flags.allow_other {
        data.push_str(",allow_other");
    }
    let data = CString::new(data).map_err(io::Error::from)?;
    let kind = format!("fuse.{subtype}");
    rustix::mount::mount(source, path, kind, system_flags(flags), Some(&*data))
        .map_err(io::Error::from)?;
    Ok(device.into())
}

fn system_flags(flags: MountFlags) -> SystemFlags {
    let mut set = SystemFlags::empty();
    set.set(SystemFlags::RDONLY, flags.read_only);
    set.set(SystemFlags::NOEXEC, flags.no_exec);
    set.set(SystemFlags::NOSUID, !flags.allow_suid);
    set.set(SystemFlags::NODEV, !flags.allow_devices);
    set
}

/// The options as the helper wants them, where a comma ends one.
fn helper_options(source: &str, subtype: &str, flags: MountFlags) -> String {
    let escaped = source.replace('\\', "\\\\").replace(',', "\\,");
    let mut options = format!("fsname={escaped},subtype={subtype},default_permissions");
    let choices = [
        (flags.read_only, "ro"),
        (flags.no_exec, "noexec"),
        (!flags.allow_suid, "nosuid"),
        (!flags.allow_devices, "nodev"),
        (flags.allow_other, "allow_other"),
    ];
    for (_, option) in choices.into_iter().filter(|(chosen, _)| *chosen) {
        options.push(',');
        options.push_str(option);
    }
    options
}

fn by_helper(
    path: &Path,
    source: &str,
    subtype: &str,
    flags: MountFlags,
) -> Result<OwnedFd, MountRefused> {
    let (ours, theirs) = UnixStream::pair()?;
    // The helper inherits its end.
    fcntl_setfd(&theirs, FdFlags::empty()).map_err(io::Error::from)?;
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(helper_options(source, subtype, flags)).arg("--").arg(path);
    command.env("_FUSE_COMMFD", theirs.as_raw_fd().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let helper = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MountRefused::NoHelper,
        _ => MountRefused::System(error),
    })?;
    // When the helper ends, so does the stream.
    drop(theirs);
    let received = receive_descriptor(&ours);
    let output = helper.wait_with_output()?;
    if let Some(descriptor) = received? {
        return Ok(descriptor);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let text = text.trim().trim_start_matches(HELPER).trim_start_matches(':').trim().to_owned();
    match text.contains("user_allow_other") && flags.allow_other {
        true => Err(MountRefused::AllowOther),
        false => Err(MountRefused::Helper(text)),
    }
}

/// The descriptor that comes with one byte; `None` if nothing comes.
fn receive_descriptor(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut byte)];
        match recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            outcome => break outcome?,
        }
    };
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other("the helper's message does not fit"));
    }
    let rights = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    Ok(rights)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_helper_is_told() {
        let mut flags = MountFlags {
            read_only: true,
            allow_other: false,
            no_exec: true,
            allow_suid: false,
            allow_devices: false,
        };
        assert_eq!(
            helper_options("a,b\\", "nasd", flags),
            "fsname=a\\,b\\\\,subtype=nasd,default_permissions,ro,noexec,nosuid,nodev"
        );
        flags = MountFlags {
            read_only: false,
            allow_other: true,
            no_exec: false,
            allow_suid: true,
            allow_devices: true,
        };
        assert_eq!(
            helper_options("a", "nasd", flags),
            "fsname=a,subtype=nasd,default_permissions,allow_other"
        );
        assert!(system_flags(flags).is_empty());
    }
}
