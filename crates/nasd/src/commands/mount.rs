//! `nasd mount` and `nasd umount`.

use super::{Outcome, announce_ready};
use crate::arguments::MountArguments;
use crate::cell::Cell;
use crate::detach::run_detached;
use crate::session::connect;
use crate::shutdown::Shutdown;
use nasd_mount::{Mount, MountOptions};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// How long an application waits for a drive that is away before it gets an I/O error.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

/// Mounts the cell's volume, and serves the mount until it is unmounted or a signal comes.
///
/// # Errors
/// A mountpoint that can't be used, or a cell that can't be reached.
pub fn mount(cell: &Cell, arguments: &MountArguments) -> Outcome {
    let volume = &cell.config.volume;
    if let Some(named) = &arguments.volume
        && named != volume
    {
        return Err(format!("the cell has no volume `{named}`; its volume is `{volume}`").into());
    }
    let mountpoint = std::path::absolute(&arguments.mountpoint)?;
    let options = Options::parse(&arguments.options)?;
    if arguments.detach {
        return Ok(run_detached(&same_attached(cell, &mountpoint, arguments), &log_path(cell)?)?);
    }
    let shutdown = Shutdown::new()?;
    let clerk = connect(cell, options.timeout)?;
    let mut mount_options = MountOptions::new(&mountpoint);
    mount_options.read_only = options.read_only;
    let mount = Mount::start(clerk, mount_options)?;
    announce_ready("");
    let stopper = mount.stopper();
    let mut shutdown = shutdown;
    std::thread::spawn(move || {
        shutdown.wait();
        if let Err(error) = stopper.stop() {
            tracing::error!(%error, "can't unmount");
        }
    });
    Ok(mount.wait()?)
}

/// Unmounts, and returns when everything written through the mount is durable.
///
/// # Errors
/// What is not mounted, or is in use.
pub fn umount(mountpoint: &Path) -> Outcome {
    Ok(nasd_mount::unmount(&std::path::absolute(mountpoint)?)?)
}

fn same_attached(cell: &Cell, mountpoint: &Path, arguments: &MountArguments) -> Vec<OsString> {
    let mut same: Vec<OsString> =
        vec!["mount".into(), mountpoint.into(), "--cell".into(), cell.directory().into()];
    if !arguments.options.is_empty() {
        same.extend(["-o".into(), arguments.options.join(",").into()]);
    }
    same
}

/// A client's copy of a cell has no log directory yet.
fn log_path(cell: &Cell) -> std::io::Result<std::path::PathBuf> {
    let log = cell.log_path("mount");
    if let Some(directory) = log.parent() {
        std::fs::create_dir_all(directory)?;
    }
    Ok(log)
}

/// The options after `-o`.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    timeout: Duration,
    read_only: bool,
}

impl Options {
    fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Options { timeout: DEFAULT_TIMEOUT, read_only: false };
        for word in words {
            match word.split_once('=') {
                None if word == "ro" => options.read_only = true,
                None if word == "rw" => options.read_only = false,
                Some(("timeout", seconds)) => {
                    let seconds = seconds
                        .parse()
                        .map_err(|_| format!("timeout={seconds}: not a number of seconds"))?;
                    options.timeout = Duration::from_secs(seconds);
                }
                _ => {
                    return Err(format!(
                        "there is no mount option `{word}`; there are: ro, rw, timeout=SECONDS"
                    ));
                }
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_options() {
        let parse = |words: &[&str]| {
            Options::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
        };
        let options = parse(&["ro", "timeout=5"]).unwrap();
        assert_eq!((options.read_only, options.timeout), (true, Duration::from_secs(5)));
        assert!(parse(&["timeout=soon"]).is_err());
        assert!(parse(&["fast"]).unwrap_err().contains("fast"));
    }
}
