//! The striping manager: the real one, with the tasks that its command has, but for the probes and its own state.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use nasd_capability::SecretKey;
use nasd_client::{ConnectOptions, RetryPolicy};
use nasd_device::{FaultPlan, FaultyDevice};
use nasd_drive::Elsewhere;
use nasd_protocol::Status;
use nasd_protocol::drive::ComponentStatus;
use nasd_stripe::{
    Arrangement, ComponentDrive as Known, Components, Keeper, RemoteComponents, VirtualDrive,
    VirtualDriveOptions,
};
use nasd_transport::ClientOptions;
use nasd_types::{DriveId, Protection};

use crate::drives::{CACHE_BYTES, ComponentDrive, PARTITION, image_of, open};
use crate::network::{Cables, NodeId, Serving, SimulatedNetwork};
use crate::random::Random;
use crate::serving::ServedHere;
use crate::turns::{ProcessId, Time, lock};

/// The number of the virtual drive.
pub const VIRTUAL_DRIVE: DriveId = DriveId(0xff);

/// As `nasd striping serve` has it.
const PATIENCE: RetryPolicy = RetryPolicy {
    deadline: Duration::from_millis(1000),
    busy_deadline: None,
    call_timeout: Duration::from_secs(30),
    first_backoff: Duration::from_millis(10),
    longest_backoff: Duration::from_millis(200),
};
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1000);
const TEND_EVERY: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(400);
const WATCH_EVERY: Duration = Duration::from_millis(200);
const SWEEP_EVERY: Duration = Duration::from_secs(2);
const REBUILDERS: usize = 3;

/// What is kept, which survives.
#[derive(Debug, Default)]
struct MemoryKeeper(Mutex<Option<Vec<u8>>>);

impl Keeper for MemoryKeeper {
    fn load(&self) -> Result<Option<Vec<u8>>, String> {
        Ok(lock(&self.0).clone())
    }

    fn save(&self, bytes: &[u8]) -> Result<(), String> {
        *lock(&self.0) = Some(bytes.to_vec());
        Ok(())
    }
}

/// The striping manager, running or not.
pub struct StripingManager {
    /// Where it is.
    pub node: NodeId,
    cables: Arc<Cables>,
    options: VirtualDriveOptions,
    keeper: Arc<MemoryKeeper>,
    inner: Mutex<Inner>,
}

struct Inner {
    device: Arc<FaultyDevice>,
    drives: Vec<Arc<ComponentDrive>>,
    arrangement: Arrangement,
    process: Option<ProcessId>,
    running: Option<Running>,
    /// What it told of its drives last, and when.
    status: Option<(Duration, Vec<ComponentStatus>)>,
    random: Random,
}

#[derive(Clone)]
struct Running {
    virtual_drive: Arc<VirtualDrive>,
    components: Arc<RemoteComponents>,
}

impl StripingManager {
    /// One that does not run yet, over these drives.
    pub fn new(
        cables: &Arc<Cables>,
        options: VirtualDriveOptions,
        drives: Vec<Arc<ComponentDrive>>,
        random: Random,
    ) -> Arc<StripingManager> {
        let device = FaultyDevice::over(image_of(VIRTUAL_DRIVE, true), FaultPlan::default());
        let inner = Inner {
            device: Arc::new(device),
            drives,
            arrangement: Arrangement::default(),
            process: None,
            running: None,
            status: None,
            random,
        };
        Arc::new(StripingManager {
            node: cables.node(),
            cables: Arc::clone(cables),
            options,
            keeper: Arc::default(),
            inner: Mutex::new(inner),
        })
    }

    fn time(&self) -> &Arc<Time> {
        &self.cables.time
    }

    /// Whether it runs, and is known to.
    pub fn virtual_drive(&self) -> Option<Arc<VirtualDrive>> {
        lock(&self.inner).running.as_ref().map(|running| Arc::clone(&running.virtual_drive))
    }

    /// What it tells of its drives, if it runs. What it told long ago says nothing.
    pub fn status(&self) -> Option<Vec<ComponentStatus>> {
        let now = self.time().now();
        let told = lock(&self.inner).status.clone();
        told.filter(|(then, _)| now < *then + 2 * TEND_EVERY).map(|(_, status)| status)
    }

    /// Starts it, unless it runs.
    pub fn start(self: &Arc<Self>) {
        let mut inner = lock(&self.inner);
        if inner.process.is_some() {
            return;
        }
        let process = self.time().process();
        inner.process = Some(process);
        drop(inner);
        let own = Arc::clone(self);
        self.time().spawn(process, move || {
            if let Err(why) = own.serve(process) {
                own.time().tell(|| format!("the striping manager can't start: {why}"));
                lock(&own.inner).process = None;
            }
        });
    }

    /// Ends it at once.
    pub fn kill(&self, is_silent: bool) {
        let mut inner = lock(&self.inner);
        let Some(process) = inner.process.take() else { return };
        inner.running = None;
        inner.status = None;
        inner.device.crash();
        let seed = inner.random.draw();
        let survivor = inner.device.survivor(seed);
        inner.device = Arc::new(FaultyDevice::over(survivor, FaultPlan::default()));
        drop(inner);
        self.time().kill(process);
        let serving = if is_silent { Serving::Silent } else { Serving::Refuses };
        self.cables.set_serving(self.node, serving);
    }

    /// From now on its drives are used so.
    pub fn arrange(&self, arrangement: Arrangement) {
        let mut inner = lock(&self.inner);
        inner.arrangement = arrangement.clone();
        let running = inner.running.clone();
        drop(inner);
        if let Some(running) = running {
            running.virtual_drive.set_arrangement(arrangement);
        }
    }

    /// From now on these are its drives.
    pub fn set_drives(&self, drives: Vec<Arc<ComponentDrive>>) {
        let mut inner = lock(&self.inner);
        let all = known(&drives);
        inner.drives = drives;
        let running = inner.running.clone();
        drop(inner);
        if let Some(running) = running {
            running.components.set_drives(all);
        }
    }

    /// As the command does it.
    fn serve(self: &Arc<Self>, process: ProcessId) -> Result<(), String> {
        let mut inner = lock(&self.inner);
        let host = self.cables.host(self.node, process, 0);
        let drives = known(&inner.drives);
        let (random, own) = (inner.random.draw(), inner.random.fork());
        let drive = open(self.time(), &inner.device, (0, CACHE_BYTES), own)?;
        let arrangement = inner.arrangement.clone();
        drop(inner);
        let transport =
            ClientOptions { connect_timeout: CONNECT_TIMEOUT, ..ClientOptions::default() };
        let network = Arc::new(SimulatedNetwork(host));
        let connect =
            ConnectOptions { retry: PATIENCE, transport, network, ..ConnectOptions::default() };
        let mut remote = None;
        let components = |secret: SecretKey| -> Arc<dyn Components> {
            let protection = Protection::INTEGRITY_ARGS;
            let made = Arc::new(RemoteComponents::new(drives, secret, protection, &connect));
            remote = Some(Arc::clone(&made));
            made
        };
        let keeper = Arc::clone(&self.keeper) as Arc<dyn Keeper>;
        let secret = SecretKey::new([7; 32]);
        let started =
            VirtualDrive::start(components, keeper, self.options.clone(), (random, secret));
        let virtual_drive = Arc::new(started.map_err(|error| error.to_string())?);
        let components = remote.ok_or("the striping manager has not asked for its drives")?;
        virtual_drive.set_arrangement(arrangement);
        loop {
            match virtual_drive.adopt_partition(PARTITION, u64::MAX) {
                Ok(()) => break,
                Err(Status::Busy) => self.time().sleep(Duration::from_millis(10)),
                Err(status) => return Err(status.to_string()),
            }
        }
        let elsewhere = Arc::clone(&virtual_drive) as Arc<dyn Elsewhere>;
        let drive = Arc::new(drive.with_objects_elsewhere(elsewhere));
        virtual_drive.tend(drive.now());
        let running = Running { virtual_drive, components };
        self.begin_tending(process, &running, &drive);
        let mut inner = lock(&self.inner);
        // What was said while it began.
        running.components.set_drives(known(&inner.drives));
        running.virtual_drive.set_arrangement(inner.arrangement.clone());
        inner.running = Some(running);
        drop(inner);
        let served = ServedHere::serving(drive);
        self.cables.set_serving(self.node, Serving::InTasks(process, served));
        Ok(())
    }

    /// What a striping manager does by itself.
    fn begin_tending(
        self: &Arc<Self>,
        process: ProcessId,
        running: &Running,
        drive: &Arc<nasd_drive::Drive>,
    ) {
        let every = |period: Duration, mut step: Box<dyn FnMut(&Running) -> bool + Send>| {
            let (time, running) = (Arc::clone(self.time()), running.clone());
            self.time().spawn(process, move || {
                loop {
                    if !step(&running) {
                        time.sleep(period);
                    }
                }
            });
        };
        let now = || {
            let drive = Arc::clone(drive);
            move || drive.now()
        };
        let (tend, watch) = (now(), now());
        every(
            TEND_EVERY,
            Box::new(move |running| {
                running.virtual_drive.tend(tend());
                false
            }),
        );
        every(
            WATCH_EVERY,
            Box::new(move |running| {
                running.virtual_drive.watch(watch());
                running.virtual_drive.arrange(watch());
                false
            }),
        );
        every(
            SWEEP_EVERY,
            Box::new(|running| {
                let mended = running.virtual_drive.mend_suspects();
                running.virtual_drive.sweep() || mended
            }),
        );
        for _ in 0..REBUILDERS {
            every(TEND_EVERY, Box::new(|running| running.virtual_drive.rebuild().is_some()));
        }
        let own = Arc::clone(self);
        every(
            TEND_EVERY,
            Box::new(move |running| {
                let status = running.virtual_drive.component_status();
                lock(&own.inner).status = Some((own.time().now(), status));
                false
            }),
        );
        self.begin_looking(process, running, drive);
    }

    /// Each drive is asked how it is, by a task of its own.
    fn begin_looking(
        self: &Arc<Self>,
        process: ProcessId,
        running: &Running,
        drive: &Arc<nasd_drive::Drive>,
    ) {
        let (own, running, drive) = (Arc::clone(self), running.clone(), Arc::clone(drive));
        self.time().spawn(process, move || {
            let mut looked_at = std::collections::BTreeSet::new();
            loop {
                let present: std::collections::BTreeSet<DriveId> =
                    running.components.drives().into_iter().collect();
                for component in &present - &looked_at {
                    let (time, running) = (Arc::clone(own.time()), running.clone());
                    let clock = Arc::clone(&drive);
                    own.time().spawn(process, move || {
                        while running.components.drives().contains(&component) {
                            let begun = time.now();
                            let sign = running.components.look(component);
                            running.virtual_drive.heard(component, sign, clock.now());
                            let taken = time.now() - begun;
                            time.sleep(LOOK_EVERY.saturating_sub(taken));
                        }
                    });
                }
                looked_at = present;
                own.time().sleep(LOOK_EVERY);
            }
        });
    }
}

fn known(drives: &[Arc<ComponentDrive>]) -> Vec<Known> {
    let one = |drive: &Arc<ComponentDrive>| Known {
        drive: drive.drive,
        address: Cables::address(drive.node),
        drive_key: drive.key(),
    };
    drives.iter().map(one).collect()
}
