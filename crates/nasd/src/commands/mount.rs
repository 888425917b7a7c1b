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

/// Mounts a volume of the cell, and serves the mount until it is unmounted or a signal comes. In the
/// background it says that it is ready only where it is asked to.
///
/// # Errors
/// A mountpoint that can't be used, or a cell that can't be reached.
pub fn mount(cell: &Cell, arguments: &MountArguments, say_ready: bool) -> Outcome {
    let volume = arguments.volume.as_ref().unwrap_or(&cell.config.volume);
    let mountpoint = std::path::absolute(&arguments.mountpoint)?;
    let mut options = MountOptions::new(&mountpoint);
    let timeout = apply(&arguments.options, &mut options)?;
    if let Some(source) = &arguments.source {
        options.source.clone_from(source);
    }
    if arguments.detach {
        let same = same_attached(cell, &mountpoint, arguments);
        let ready = run_detached(&same, &log_path(cell, &mountpoint)?)?;
        if say_ready {
            println!("{ready}");
        }
        return Ok(());
    }
    let mut shutdown = Shutdown::new()?;
    let clerk = connect(cell, volume, timeout)?.clerk;
    let mount = Mount::start(clerk, options)?;
    announce_ready("");
    let stopper = mount.handle();
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
    if let Some(volume) = &arguments.volume {
        same.extend(["--volume".into(), volume.into()]);
    }
    if let Some(source) = &arguments.source {
        same.extend(["--source".into(), source.into()]);
    }
    same
}

/// A log for each mountpoint. A client's copy of a cell has no log directory yet.
fn log_path(cell: &Cell, mountpoint: &Path) -> std::io::Result<std::path::PathBuf> {
    let place = mountpoint.to_string_lossy().trim_matches('/').replace('/', "-");
    // A file's name has at most 255 bytes; a path's end tells more than its beginning.
    let place: String = place.chars().skip(place.chars().count().saturating_sub(60)).collect();
    let log = cell.log_path(&format!("mount-{place}"));
    if let Some(directory) = log.parent() {
        std::fs::create_dir_all(directory)?;
    }
    Ok(log)
}

/// Applies the options after `-o`: `timeout=SECONDS` is the clerk's, the others are the mount's.
/// Answers with the time-out.
fn apply(words: &[String], options: &mut MountOptions) -> Result<Duration, String> {
    let mut timeout = DEFAULT_TIMEOUT;
    for word in words {
        match word.strip_prefix("timeout=") {
            Some(seconds) => {
                let number = seconds.parse();
                let seconds = number.map_err(|_| format!("{word}: not a number of seconds"))?;
                timeout = Duration::from_secs(seconds);
            }
            None => options.apply(word).map_err(|error| format!("{error}, timeout=SECONDS"))?,
        }
    }
    Ok(timeout)
}

/// Whether `-o` knows a word.
///
/// # Errors
/// Why not.
pub fn check_option(word: &str) -> Result<(), String> {
    apply(&[word.to_owned()], &mut MountOptions::new("/")).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_options() {
        let mut options = MountOptions::new("/mnt");
        let mut parse = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            apply(&words, &mut options)
        };
        assert_eq!(parse(&["ro", "timeout=5"]), Ok(Duration::from_secs(5)));
        assert!(parse(&["timeout=soon"]).is_err());
        assert!(parse(&["fast"]).unwrap_err().contains("fast"));
        assert!(options.read_only);
    }
}
