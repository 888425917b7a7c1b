//! `nasd striping serve`: a virtual drive of the cell, over others of it.

use super::arranging::{Following, arrangement, component_drives};
use super::drive::{GRACE, bound_heap, open_failed, serve_until_stopped};
use super::own_state::{self, OfDrive, expected};
use super::tending::Tending;
use super::{Outcome, announce_end};
use crate::arguments::{StripingServeArguments, StripingSetArguments};
use crate::metrics::MetricsListener;
use crate::shutdown::Shutdown;
use nasd_capability::SecretKey;
use nasd_cell::{Cell, change_stripe};
use nasd_client::{ConnectOptions, RetryPolicy};
use nasd_drive::{Drive, DriveOptions, DriveServer, Elsewhere, Environment, Stopping};
use nasd_protocol::Status;
use nasd_store::{OpenOptions, Store};
use nasd_stripe::own::{MirroredDevice, OwnState};
use nasd_stripe::{Components, RemoteComponents, VirtualDrive, VirtualDriveOptions};
use nasd_transport::ClientOptions;
use nasd_types::PartitionId;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a component drive that is away is waited for before whoever asked is told, who asks again: others
/// may have what it has.
const PATIENCE: RetryPolicy = RetryPolicy {
    deadline: Duration::from_millis(1000),
    busy_deadline: None,
    call_timeout: Duration::from_secs(30),
    first_backoff: Duration::from_millis(10),
    longest_backoff: Duration::from_millis(200),
};

/// How long one that hangs may take to say who it is.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1000);

/// How long component drives that are started with this one are waited for.
const START_PATIENCE: Duration = Duration::from_secs(20);

/// Serves until a signal ends it.
///
/// # Errors
/// A cell whose files can't be used, a device that is not this drive's, or components that don't answer.
pub fn serve(cell: &Cell, arguments: &StripingServeArguments) -> Outcome {
    bound_heap();
    let mut shutdown = Shutdown::new()?;
    let found = cell.config.drives.iter().find(|drive| drive.index == arguments.index);
    let config = found.ok_or_else(|| format!("the cell has no drive {}", arguments.index))?;
    let stripe = config.stripe.as_ref().ok_or_else(|| {
        format!("drive {} is no virtual one: `nasd drive serve` serves it", arguments.index)
    })?;
    let cant_listen = |address| move |error| format!("can't listen on {address}: {error}");
    let listener = TcpListener::bind(config.address).map_err(cant_listen(config.address))?;
    let metrics = arguments.metrics;
    let metrics = metrics
        .map(|address| MetricsListener::bind(address).map_err(cant_listen(address)))
        .transpose()?;
    // Nobody else can write it from here on.
    let of = OfDrive { cell, config, stripe };
    let holders = Arc::new(own_state::holders(of)?);
    let own = Arc::new(own_state::open(of, &holders)?);
    let store = open_store(of, &own)?;
    let (virtual_drive, components) = open_virtual(of, Arc::clone(&own))?;
    let virtual_drive = Arc::new(virtual_drive);
    let options = DriveOptions {
        minimum_protection: cell.config.protection(),
        model: "virtual drive".to_owned(),
        ..DriveOptions::default()
    };
    let drive = Drive::new(store, options, Environment::system())?;
    for partition in drive.partitions() {
        let quota = drive.store().partition_space(partition)?.quota_bytes;
        adopt(&virtual_drive, partition, quota)?;
    }
    let drive = drive.with_objects_elsewhere(Arc::clone(&virtual_drive) as Arc<dyn Elsewhere>);
    virtual_drive.tend(drive.now());
    let server = DriveServer::start(drive, listener)?;
    let stopping = Stopping::default();
    let now = || server.drive().now();
    std::thread::scope(|scope| {
        let following = Following::new(cell, config.index, &virtual_drive, (&components, &holders));
        Tending { virtual_drive: &virtual_drive, components: &components, own: &own, now: &now }
            .begin(scope, &stopping, following);
        serve_until_stopped(&server, metrics.as_ref(), &mut shutdown);
        stopping.stop();
        virtual_drive.end_rebuild();
        stop_waiting_soon(&own);
    });
    announce_end();
    let stopped = server.shut_down(GRACE);
    if let Some(why) = own.ended() {
        return Err(why.into());
    }
    stopped?;
    Ok(())
}

/// Changes how the cell's virtual drive uses its component drives.
///
/// # Errors
/// A cell without one, or files that can't be written.
pub fn set(cell: &Cell, arguments: &StripingSetArguments) -> Outcome {
    change_stripe(cell, |stripe| {
        if let Some(replace_after) = &arguments.replace_after {
            stripe.replace_after.clone_from(replace_after);
        }
        stripe.rebuild_limit = arguments.rebuild_limit.unwrap_or(stripe.rebuild_limit);
        Ok(())
    })?;
    Ok(())
}

/// The virtual drive's own store.
fn open_store(of: OfDrive<'_>, own: &Arc<OwnState>) -> Result<Store, Box<dyn std::error::Error>> {
    let device = MirroredDevice::new(Arc::clone(own));
    let path = PathBuf::from(of.config.member());
    let identity = Store::read_identity(&device).map_err(|error| open_failed(&path, &error))?;
    expected(of).check(identity, &path)?;
    let cache_bytes = usize::try_from(of.config.cache_bytes)?;
    let options = OpenOptions { cache_bytes, ..OpenOptions::default() };
    Ok(Store::open(Arc::new(device), &options).map_err(|error| open_failed(&path, &error))?)
}

/// The virtual drive over those that its configuration names.
fn open_virtual(
    OfDrive { cell, stripe, .. }: OfDrive<'_>,
    keeper: Arc<OwnState>,
) -> Result<(VirtualDrive, Arc<RemoteComponents>), Box<dyn std::error::Error>> {
    let components = component_drives(cell, stripe)?;
    let transport = ClientOptions { connect_timeout: CONNECT_TIMEOUT, ..ClientOptions::default() };
    let connect = ConnectOptions { retry: PATIENCE, transport, ..ConnectOptions::default() };
    let protection = cell.config.protection();
    let options = VirtualDriveOptions {
        unit: stripe.unit,
        width: stripe.width,
        copies: stripe.copies,
        ..VirtualDriveOptions::default()
    };
    let mut remote = None;
    let components = |secret: SecretKey| -> Arc<dyn Components> {
        let made = Arc::new(RemoteComponents::new(components, secret, protection, &connect));
        remote = Some(Arc::clone(&made));
        made
    };
    let random = getrandom::u64()?;
    let mut secret = [0; 32];
    getrandom::fill(&mut secret)?;
    let started =
        VirtualDrive::start(components, keeper, options, (random, SecretKey::new(secret)))?;
    started.set_arrangement(arrangement(cell, stripe));
    Ok((started, remote.ok_or("the striping manager has not asked for its drives")?))
}

/// Has nothing wait any more for the last drive with a copy, some time after this is to end.
fn stop_waiting_soon(own: &Arc<OwnState>) {
    let own = Arc::clone(own);
    std::thread::spawn(move || {
        std::thread::sleep(GRACE);
        own.stop_waiting();
    });
}

/// Makes a partition on the component drives, which may be about to be started.
fn adopt(
    virtual_drive: &VirtualDrive,
    partition: PartitionId,
    quota_bytes: u64,
) -> Result<(), String> {
    let until = Instant::now() + START_PATIENCE;
    loop {
        match virtual_drive.adopt_partition(partition, quota_bytes) {
            Err(Status::Busy) if Instant::now() < until => {}
            Err(status) => {
                let what = format!("can't make partition {partition} on the component drives");
                return Err(format!("{what}: {status}"));
            }
            Ok(()) => return Ok(()),
        }
    }
}
