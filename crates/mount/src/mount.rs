//! Mounting a volume, serving it, and draining it in the end.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nasd_clerk::Clerk;
use nasd_fuse::{Connection, Measures, MountFlags, MountRefused, Session};
use nasd_metrics::Page;

use crate::dispatch::Dispatcher;
use crate::filesystem::{VolumeFilesystem, wanted};
use crate::forest::{Forest, OtherVolumes};
use crate::presence::Presence;
use crate::serving::{Ended, Serving};
use crate::succession::{Estate, Listening};
use crate::tree::Tree;
use crate::unmount::{self, How};
use crate::{MountError, MountOptions, mountinfo, mountpoint, read_ahead, succession};

/// The type is shown as `fuse.nasd`.
const SUBTYPE: &str = "nasd";

/// A mount that is being stopped may be busy this long before it is taken away from its users.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a predecessor may take to end.
const PREDECESSOR: Duration = Duration::from_secs(5);

/// How long operations that have begun may go on after the mount is gone.
const LAST_OPERATIONS: Duration = Duration::from_secs(5);

/// A mounted volume. Dropping it unmounts.
///
/// ```no_run
/// # fn f(clerk: std::sync::Arc<nasd_clerk::Clerk>) -> Result<(), nasd_mount::MountError> {
/// use nasd_mount::{Mount, MountOptions};
/// let mount = Mount::start(clerk, MountOptions::new("/mnt/volume"))?;
/// let handle = mount.handle(); // for a signal handler's thread, which calls handle.stop()
/// mount.wait() // until then, or until somebody unmounts
/// # }
/// ```
pub struct Mount {
    forest: Arc<Forest>,
    measures: Arc<Measures>,
    handle: MountHandle,
    serving: Option<JoinHandle<()>>,
    listening: Option<Listening>,
}

/// Stops a mount from another thread.
#[derive(Clone)]
pub struct MountHandle {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    /// Device number, `MAJOR:MINOR`.
    device: String,
    /// How serving has ended, once it has.
    ended: Mutex<Option<io::Result<()>>>,
    changed: Condvar,
    /// Another process serves it now.
    handed_over: AtomicBool,
    /// Until everything is drained, or another process serves it.
    presence: Mutex<Option<Presence>>,
}

/// What a mount has counted since its start, told from another thread.
#[derive(Clone)]
pub struct MountMetrics {
    forest: Arc<Forest>,
    measures: Arc<Measures>,
}

impl MountMetrics {
    /// As text for Prometheus.
    pub fn text(&self) -> String {
        let mut page = Page::default();
        self.measures.put(&mut page);
        let all = self.forest.all();
        let files: usize = all.iter().map(|branch| branch.tree.files.len()).sum();
        let directories: usize = all.iter().map(|branch| branch.tree.directories.len()).sum();
        page.single("nasd_mount_open_files", "gauge", "Files that are open.", files);
        let help = "Directories that are open.";
        page.single("nasd_mount_open_directories", "gauge", help, directories);
        let help = "Volumes that are seen at mount points, each counted as often as it is.";
        page.single("nasd_mount_inner_volumes", "gauge", help, all.len() - 1);
        self.forest.mounted().tree.clerk.put_metrics(&mut page);
        page.into_text()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<io::Result<()>>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serving has ended, or is not waited for any more.
    fn end(&self, outcome: io::Result<()>) {
        self.lock().get_or_insert(outcome);
        self.changed.notify_all();
    }

    /// Who waits for this process need not any more.
    fn absent(&self) {
        *self.presence.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether serving has ended, at the latest at `deadline`.
    fn wait_until(&self, deadline: Instant) -> bool {
        let mut ended = self.lock();
        while ended.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.changed.wait_timeout(ended, left);
            ended = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl MountHandle {
    /// Where the volume is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.shared.path
    }

    /// Unmounts. Those who still have files open after a moment lose them: the mount is taken
    /// away, and they get errors. `Mount::wait` then drains and returns.
    ///
    /// # Errors
    ///
    /// What the system says when it lets nobody take the mount away.
    pub fn stop(&self) -> Result<(), MountError> {
        let path = &self.shared.path;
        if self.shared.lock().is_some() || !self.is_mounted() {
            return Ok(());
        }
        match unmount::detach_when_idle(path, PATIENCE) {
            Err(MountError::Busy(_)) => {}
            outcome => return outcome,
        }
        tracing::warn!(path = %path.display(), "still in use; taking the mount away nevertheless");
        unmount::write_out(path, PATIENCE);
        unmount::detach(path, How::Forcibly)
            .map_err(|error| MountError::Unmount { path: path.clone(), error })?;
        if let Err(error) = unmount::abort(&self.shared.device) {
            tracing::debug!(%error, "no connection to abort");
        }
        if !self.shared.wait_until(Instant::now() + PATIENCE) {
            // Users other than root can't end it for those who have files open; the end of this
            // process will.
            self.shared.end(Ok(()));
        }
        Ok(())
    }

    /// Whether it is our mount that is there.
    fn is_mounted(&self) -> bool {
        let there = mountinfo::mounted_at(&self.shared.path).ok().flatten();
        there.is_some_and(|entry| entry.device == self.shared.device)
    }
}

impl Mount {
    /// Mounts the volume and serves it from threads of its own. Other volumes are not seen in it: `ENODEV` is what who walks
    /// over a mount point gets.
    ///
    /// # Errors
    ///
    /// What is wrong with the mountpoint, or with FUSE on this machine, and what to do about it.
    pub fn start(clerk: Arc<Clerk>, options: MountOptions) -> Result<Self, MountError> {
        Mount::start_among(clerk, None, options)
    }

    /// The same for a volume in which others are seen at mount points, by the clerks that `volumes` makes.
    ///
    /// # Errors
    ///
    /// As [`Mount::start`].
    pub fn start_among(
        clerk: Arc<Clerk>,
        volumes: Option<Arc<dyn OtherVolumes>>,
        options: MountOptions,
    ) -> Result<Self, MountError> {
        let path = mountpoint::prepare(&options.mountpoint)?;
        let read_only = options.read_only || clerk.is_read_only();
        let options = MountOptions { read_only, ..options };
        let flags = mount_flags(&options);
        let connection = nasd_fuse::mount(
            &path,
            &options.source,
            SUBTYPE,
            flags,
            &wanted(clerk.has_callbacks()),
        )
        .map_err(|refused| explain(&path, refused))?;
        let device = device_of(&path)?;
        let forest = forest_of(clerk, volumes, &options);
        let mount = Mount::serve((path, device), forest, connection, &options, || Ok(()))?;
        read_ahead::raise(&mount.handle.shared.device);
        Ok(mount)
    }

    /// Takes a mount of the same volume over from the process that serves it, while programs use
    /// it: they wait for a moment. How it is mounted stays as it is.
    ///
    /// # Errors
    ///
    /// `NotMounted`, `TakeOver` and `OtherVolume`. The other process goes on then.
    pub fn take_over(clerk: Arc<Clerk>, options: MountOptions) -> Result<Self, MountError> {
        Mount::take_over_among(clerk, None, options)
    }

    /// The same for a volume in which others are seen at mount points, by the clerks that `volumes` makes.
    ///
    /// # Errors
    ///
    /// As [`Mount::take_over`].
    pub fn take_over_among(
        clerk: Arc<Clerk>,
        volumes: Option<Arc<dyn OtherVolumes>>,
        options: MountOptions,
    ) -> Result<Self, MountError> {
        let refused = |error| MountError::TakeOver { path: options.mountpoint.clone(), error };
        let path = mountpoint::absolute(&options.mountpoint).map_err(refused)?;
        let entry = mountinfo::mounted_at(&path).map_err(refused)?;
        let Some(entry) = entry.filter(|entry| entry.is_ours()) else {
            return Err(MountError::NotMounted { path, instead: String::new() });
        };
        let (stream, connection, state) = succession::succeed(&entry.device).map_err(refused)?;
        let forest = forest_of(clerk, volumes, &options);
        forest.mounted().tree.import(&state.mounted)?;
        forest.import(&state.volumes);
        let place = (path, entry.device);
        Mount::serve(place, forest, connection, &options, || {
            succession::finish(&stream).map_err(refused)
        })
    }

    /// Serves a connection; `begun` is called when nothing can fail any more, but before the kernel
    /// sends again what it has asked for already.
    fn serve(
        (path, device): (PathBuf, String),
        forest: Arc<Forest>,
        connection: Connection,
        options: &MountOptions,
        begun: impl FnOnce() -> Result<(), MountError>,
    ) -> Result<Self, MountError> {
        // One more than may be busy: it listens.
        let threads = options.inline_threads() + 1;
        let filesystem = Arc::new(VolumeFilesystem::new(Arc::clone(&forest)));
        begun()?;
        succession::resend(&connection);
        let measures = Arc::new(Measures::default());
        let session =
            Session::start_counting(connection, Arc::clone(&filesystem), threads, &measures)
                .map_err(MountError::Serve)?;
        forest.start(session.handle().notifier()).map_err(MountError::Serve)?;
        let serving = Arc::new(Serving::new(session));
        let estate = Estate {
            forest: Arc::clone(&forest),
            filesystem,
            serving: Arc::clone(&serving),
            threads,
            measures: Arc::clone(&measures),
        };
        let listening = announce(|| succession::listen(&device, &estate));
        let presence = announce(|| Presence::announce(&device));
        let shared = Arc::new(Shared {
            path,
            device,
            ended: Mutex::new(None),
            changed: Condvar::new(),
            handed_over: AtomicBool::new(false),
            presence: Mutex::new(presence),
        });
        let waiting = wait_for_end(serving, &shared).map_err(MountError::Serve)?;
        tracing::info!(path = %shared.path.display(), threads, "mounted");
        Ok(Mount {
            forest,
            measures,
            handle: MountHandle { shared },
            serving: Some(waiting),
            listening,
        })
    }

    /// Where the volume is mounted.
    pub fn mountpoint(&self) -> &Path {
        self.handle.mountpoint()
    }

    /// Stops the mount from another thread.
    pub fn handle(&self) -> MountHandle {
        self.handle.clone()
    }

    /// Tells what the mount has counted since its start.
    pub fn metrics(&self) -> MountMetrics {
        MountMetrics { forest: Arc::clone(&self.forest), measures: Arc::clone(&self.measures) }
    }

    /// Returns when the volume is not mounted any more, by whomever, and everything that was
    /// written has reached the drives.
    ///
    /// # Errors
    ///
    /// `Drain` if something could not be written, `Serve` if serving ended with a failure.
    pub fn wait(mut self) -> Result<(), MountError> {
        let shared = Arc::clone(&self.handle.shared);
        let mut ended = shared.lock();
        while ended.is_none() {
            ended = shared.changed.wait(ended).unwrap_or_else(PoisonError::into_inner);
        }
        drop(ended);
        self.finish()
    }

    /// Unmounts as `MountHandle::stop` does, and drains as `wait` does.
    ///
    /// # Errors
    ///
    /// As both.
    pub fn stop(mut self) -> Result<(), MountError> {
        self.stop_and_finish()
    }

    fn stop_and_finish(&mut self) -> Result<(), MountError> {
        let stopped = self.handle.stop();
        if !self.handle.shared.wait_until(Instant::now() + LAST_OPERATIONS) {
            tracing::warn!("an operation still waits for a drive; going on without it");
            self.serving = None;
        }
        stopped.and(self.finish())
    }

    fn finish(&mut self) -> Result<(), MountError> {
        self.listening = None;
        self.forest.settle(Instant::now() + LAST_OPERATIONS);
        let drained = if self.handle.shared.handed_over.load(Ordering::Acquire) {
            self.forest.leave()
        } else {
            self.forest.drain()
        };
        self.handle.shared.absent();
        if let Some(serving) = self.serving.take()
            && serving.is_finished()
            && serving.join().is_err()
        {
            tracing::error!("the thread that serves the mount failed");
        }
        drained?;
        match self.handle.shared.lock().as_mut() {
            Some(Err(error)) => {
                Err(MountError::Serve(std::mem::replace(error, io::ErrorKind::Other.into())))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.serving.is_some()
            && let Err(error) = self.stop_and_finish()
        {
            tracing::error!(%error, "unmounting");
        }
    }
}

fn forest_of(
    clerk: Arc<Clerk>,
    volumes: Option<Arc<dyn OtherVolumes>>,
    options: &MountOptions,
) -> Arc<Forest> {
    let tree = Tree::new(clerk, options);
    Arc::new(Forest::new(tree, Dispatcher::new(options.inline_threads()), options, volumes))
}

fn mount_flags(options: &MountOptions) -> MountFlags {
    MountFlags {
        read_only: options.read_only,
        allow_other: options.allow_other,
        no_exec: options.no_exec,
        allow_suid: options.allow_suid,
        allow_devices: options.allow_devices,
    }
}

fn device_of(path: &Path) -> Result<String, MountError> {
    let refused = |error| MountError::Refused { path: path.to_owned(), error };
    let entry = mountinfo::mounted_at(path).map_err(refused)?;
    let entry = entry.ok_or_else(|| refused(io::Error::other("the mount is not to be seen")))?;
    Ok(entry.device)
}

/// Tells other processes of this one, by a name that a predecessor may still have for a moment.
fn announce<T>(mut bind: impl FnMut() -> io::Result<T>) -> Option<T> {
    let end = Instant::now() + PREDECESSOR;
    loop {
        match bind() {
            Ok(bound) => return Some(bound),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                thread::sleep(Duration::from_millis(10));
            }
            Err(error) => {
                tracing::warn!(%error, "other processes can't find this mount's");
                return None;
            }
        }
    }
}

fn wait_for_end(serving: Arc<Serving>, shared: &Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    thread::Builder::new().name("nasd-mount".into()).spawn(move || match serving.wait() {
        Ended::HandedOver => {
            shared.handed_over.store(true, Ordering::Release);
            // The successor waits for the name.
            shared.absent();
            shared.end(Ok(()));
        }
        Ended::Gone(outcome) => {
            if let Err(error) = &outcome {
                tracing::error!(%error, path = %shared.path.display(), "serving the mount failed");
            }
            shared.end(outcome);
        }
    })
}

/// The refusal in words that help.
fn explain(path: &Path, refused: MountRefused) -> MountError {
    let path = path.to_owned();
    match refused {
        MountRefused::NoDevice(error) => MountError::NoFuse(error.to_string()),
        MountRefused::NoHelper => MountError::NoHelper,
        MountRefused::AllowOther => MountError::AllowOther,
        MountRefused::Helper(text) if text.contains("/dev/fuse") => MountError::NoFuse(text),
        MountRefused::Helper(text) => MountError::Refused { path, error: io::Error::other(text) },
        // The kernel does not know the type of file system.
        MountRefused::System(error) if error.raw_os_error() == Some(libc::ENODEV) => {
            MountError::NoFuse(error.to_string())
        }
        MountRefused::System(error) => MountError::Refused { path, error },
    }
}
