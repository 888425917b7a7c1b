//! The file manager: the real one, with its threads, which is killed and started anew.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nasd_capability::SecretKey;
use nasd_clerk::Name;
use nasd_manager::keys::{KeeperError, KeptKeys, KeyKeeper};
use nasd_manager::{Chores, DriveConfig, ManagerConfig, ManagerService};
use nasd_types::{CellId, DriveId, Personality};

use crate::drives::{ComponentDrive, PARTITION, PARTITION_KEY, WORKING_KEY};
use crate::network::{Cables, NodeId, Serving, SimulatedNetwork};
use crate::serving::ServedHere;
use crate::turns::{ProcessId, lock};

use super::client::VOLUME;
use super::plan::{Plan, Sabotage};
use super::sabotage;

/// Between two attempts to start.
const PAUSE: Duration = Duration::from_millis(200);

/// Keeps keys as a keyring on a disk does: they outlive managers.
#[derive(Debug, Default)]
struct Keyring(Mutex<BTreeMap<DriveId, KeptKeys>>);

impl KeyKeeper for Keyring {
    fn keep(&self, drive: DriveId, keys: &KeptKeys) -> Result<(), KeeperError> {
        lock(&self.0).insert(drive, keys.clone());
        Ok(())
    }

    fn partition_keys(&self, _: DriveId) -> Result<Vec<SecretKey>, KeeperError> {
        Ok(vec![SecretKey::new(PARTITION_KEY)])
    }
}

/// What it is told that all files may have together.
fn quota(plan: &Plan) -> Option<u64> {
    let quota = plan.quota()?;
    Some(match plan.sabotage {
        Sabotage::AllowsTooMuch => quota + 1,
        Sabotage::AllowsTooLittle => quota.saturating_sub(1),
        _ => quota,
    })
}

/// See the module.
pub(super) struct FileManager {
    pub(super) node: NodeId,
    cables: Arc<Cables>,
    config: ManagerConfig,
    keyring: Arc<Keyring>,
    sabotage: Sabotage,
    running: Mutex<Option<ProcessId>>,
    /// What serves, when it does.
    serving: Mutex<Option<Arc<ManagerService>>>,
}

impl FileManager {
    pub(super) fn new(
        cables: &Arc<Cables>,
        plan: &Plan,
        drives: &[Arc<ComponentDrive>],
    ) -> Arc<FileManager> {
        let told = drives.iter().enumerate().map(|(index, drive)| DriveConfig {
            id: drive.drive,
            address: Cables::address(drive.node),
            index: index as u32,
            partition: PARTITION,
            moved_to: None,
            keys: KeptKeys::new(1, SecretKey::new(WORKING_KEY)),
        });
        let name = Name::new(VOLUME).expect("invariant: it is a name");
        let mut config = ManagerConfig::new(CellId([1; 16]), name, DriveId(1), told.collect());
        config.personality = Personality::Afs;
        config.quota = quota(plan);
        config.sessions.lease = plan.lease;
        config.root.mode = 0o777;
        config.journal_area_bytes = 256 << 10;
        config.patience = Duration::from_secs(5);
        let keyring = Arc::new(Keyring::default());
        config.keeper = Some(Arc::clone(&keyring) as Arc<dyn KeyKeeper>);
        let node = cables.node();
        // Neither a drive that stalls for longer than the file manager waits, and goes on then, is defended against, nor a file manager that
        // receives what it was asked over a connection that is broken after what it was asked over another one.
        cables.set_orderly(node);
        Arc::new(FileManager {
            node,
            cables: Arc::clone(cables),
            config,
            keyring,
            sabotage: plan.sabotage,
            running: Mutex::new(None),
            serving: Mutex::new(None),
        })
    }

    pub(super) fn is_running(&self) -> bool {
        lock(&self.running).is_some()
    }

    /// What it says that all files have together, and what it has set aside for those who store; nothing where it does not know that yet, or is
    /// not there.
    pub(super) fn accounted(&self) -> Option<(u64, u64)> {
        let serving = lock(&self.serving).clone()?;
        serving.namespace().accounted()
    }

    /// Starts one, unless one runs. It serves when it has its drives.
    pub(super) fn start(self: &Arc<Self>) {
        let mut running = lock(&self.running);
        if running.is_some() {
            return;
        }
        let process = self.cables.time.process();
        *running = Some(process);
        let own = Arc::clone(self);
        self.cables.time.spawn(process, move || own.serve(process));
    }

    fn serve(&self, process: ProcessId) {
        let time = &self.cables.time;
        let mut config = self.config.clone();
        config.network = Arc::new(SimulatedNetwork(self.cables.host(self.node, process, 0)));
        loop {
            for drive in &mut config.drives {
                if let Some(kept) = lock(&self.keyring.0).get(&drive.id) {
                    drive.keys = kept.clone();
                }
            }
            let opened = ManagerService::open(&config).map(Arc::new).and_then(|service| {
                let chores = Chores::start(&service, &config)?;
                Ok((service, chores))
            });
            match opened {
                Ok((service, chores)) => {
                    *lock(&self.serving) = Some(Arc::clone(&service));
                    let served = ServedHere::serving(service);
                    let served = sabotage::of_manager(self.sabotage, served, time);
                    self.cables.set_serving(self.node, Serving::InTasks(process, served));
                    time.tell(|| "the file manager serves".to_owned());
                    // They end when it is killed.
                    std::mem::forget(chores);
                    return;
                }
                Err(error) => time.tell(|| format!("the file manager can't start: {error}")),
            }
            time.sleep(PAUSE);
        }
    }

    /// Kills it. With `is_silent` its host does not tell.
    pub(super) fn kill(&self, is_silent: bool) {
        if let Some(process) = lock(&self.running).take() {
            self.cables.time.kill(process);
            // Nothing of a killed process does anything any more, not even end.
            std::mem::forget(lock(&self.serving).take());
            let serving = if is_silent { Serving::Silent } else { Serving::Refuses };
            self.cables.set_serving(self.node, serving);
        }
    }
}
