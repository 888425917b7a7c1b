//! `nasd mount` and `nasd umount`.

use super::{Outcome, announce_ready};
use crate::arguments::MountArguments;
use crate::detach::run_detached;
use crate::metrics::MetricsListener;
use crate::shutdown::Shutdown;
use nasd_cell::Cell;
use nasd_cell::session::{connect_by, connect_if_there};
use nasd_clerk::{CacheSettings, Clerk, Name, Settings};
use nasd_mount::{CachePlace, MetricsAddress, Mount, MountMetrics, MountOptions, OtherVolumes};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Mounts a volume of the cell, and serves the mount until it is unmounted or a signal comes. In the
/// background it says that it is ready only where it is asked to.
///
/// # Errors
/// A mountpoint that can't be used, or a cell that can't be reached.
pub fn mount(cell: &Cell, arguments: &MountArguments, say_ready: bool) -> Outcome {
    let volume = arguments.volume.as_ref().unwrap_or(&cell.config.volume);
    let mountpoint = std::path::absolute(&arguments.mountpoint)?;
    let mut options = MountOptions::new(&mountpoint);
    for word in &arguments.options {
        options.apply(word)?;
    }
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
    let clerk = connect_by(cell, volume, options.route, settings(cell, volume, &options))?.clerk;
    let others = Others { cell: cell.clone(), options: options.clone() };
    let others: Option<Arc<dyn OtherVolumes>> = Some(Arc::new(others));
    let metrics_at = options.metrics.clone();
    let mount = match arguments.takeover {
        true => Mount::take_over_among(clerk, others, options)?,
        false => Mount::start_among(clerk, others, options)?,
    };
    let metrics = metrics_at.map(|address| serve_metrics(&address, mount.metrics()));
    announce_ready("");
    let stopper = mount.handle();
    std::thread::spawn(move || {
        shutdown.wait();
        if let Err(error) = stopper.stop() {
            tracing::error!(%error, "can't unmount");
        }
    });
    let served = mount.wait();
    drop(metrics);
    Ok(served?)
}

/// How the clerk of a mounted volume behaves.
fn settings(cell: &Cell, volume: &str, options: &MountOptions) -> Settings {
    let cache = cache_settings(cell, volume, options);
    Settings { deadline: options.deadline(), cache, ..Settings::default() }
}

/// The volumes that are seen at mount points.
struct Others {
    cell: Cell,
    options: MountOptions,
}

impl OtherVolumes for Others {
    fn connect(
        &self,
        volume: &Name,
    ) -> Result<Option<Arc<Clerk>>, Box<dyn std::error::Error + Send + Sync>> {
        let name = String::from_utf8_lossy(volume.as_bytes());
        // One directory on the disk is one clerk's; and what is open in memory is the mounted volume's, most of the time.
        let of_mount = settings(&self.cell, &name, &self.options);
        let directory = match &self.options.cache {
            CachePlace::Usual => of_mount.cache.directory.clone(),
            CachePlace::Directory(_) | CachePlace::Memory => None,
        };
        let cache = CacheSettings { directory, ..of_mount.cache };
        let settings = Settings { cache, ..of_mount };
        Ok(connect_if_there(&self.cell, &name, self.options.route, settings)?)
    }
}

/// Where contents of files are kept on this machine, if the volume has callbacks.
fn cache_settings(cell: &Cell, volume: &str, options: &MountOptions) -> CacheSettings {
    let usual = || {
        let (cell, volume) = (cell.config.cell_id(), volume.to_owned());
        nasd_cache::default_directory(&nasd_cache::Identity { cell, volume })
    };
    let directory = match &options.cache {
        CachePlace::Usual => Some(usual()),
        CachePlace::Directory(path) => Some(path.clone()),
        CachePlace::Memory => None,
    };
    CacheSettings {
        directory: directory.filter(|_| options.cache_disk_bytes > 0),
        disk_bytes: options.cache_disk_bytes,
        memory_bytes: options.cache_memory_bytes,
    }
}

/// How long a predecessor may keep the address.
const PREDECESSOR: Duration = Duration::from_secs(5);

/// Serves metrics from a thread of its own until that is dropped.
struct ServedMetrics {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// That they can't be served is no reason not to mount.
fn serve_metrics(address: &MetricsAddress, metrics: MountMetrics) -> ServedMetrics {
    let stopping = Arc::new(AtomicBool::new(false));
    let (stop, address) = (Arc::clone(&stopping), address.clone());
    let thread = std::thread::spawn(move || {
        let end = Instant::now() + PREDECESSOR;
        let listener = loop {
            match MetricsListener::bind_at(&address) {
                Ok(listener) => break listener,
                Err(_) if Instant::now() < end && !stop.load(Ordering::Acquire) => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(error) => {
                    tracing::error!(%address, %error, "the metrics of the mount are not served");
                    return;
                }
            }
        };
        listener.serve(&stop, &|| metrics.text());
    });
    ServedMetrics { stopping, thread: Some(thread) }
}

impl Drop for ServedMetrics {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that serves metrics had panicked");
        }
    }
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
    if arguments.takeover {
        same.push("--takeover".into());
    }
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

/// Whether `-o` knows a word.
///
/// # Errors
/// Why not.
pub fn check_option(word: &str) -> Result<(), String> {
    MountOptions::new("/").apply(word).map_err(|error| error.to_string())
}
