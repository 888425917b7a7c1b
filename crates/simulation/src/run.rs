//! One run: a cell begins, is used and troubled, is left alone, and is looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nasd_stripe::VirtualDriveOptions;

use crate::checker::Checker;
use crate::client::{Client, Shared};
use crate::director::Director;
use crate::drives::ComponentDrive;
use crate::ending;
use crate::logs::Logs;
use crate::manager::StripingManager;
use crate::members::{Members, new_drive};
use crate::network::{Cables, NodeId};
use crate::plan::Plan;
use crate::random::Random;
use crate::turns::{Time, lock};

/// How many events of the end of a run that fails are told.
const TOLD: usize = 400;

/// How long capabilities for writing copies are good.
pub(crate) const WRITING: Duration = Duration::from_secs(4);

/// How long a cell may take to begin.
const TO_BEGIN: Duration = Duration::from_secs(30);

/// What a run was like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Operations of clients that ended well.
    pub done: u64,
    /// Those that did not.
    pub failed: u64,
    /// Faults.
    pub faults: u64,
    /// Requests that component drives have refused, since they were started last, as a capability had expired.
    pub expired: u64,
    /// How long it took, by the time of the run.
    pub lasted: Duration,
    /// The same for each run of the seed.
    pub digest: u64,
}

/// All that there is.
pub(crate) struct Cell {
    pub(crate) plan: Plan,
    pub(crate) time: Arc<Time>,
    pub(crate) cables: Arc<Cables>,
    pub(crate) drives: Vec<Arc<ComponentDrive>>,
    pub(crate) manager: Arc<StripingManager>,
    pub(crate) shared: Arc<Mutex<Shared>>,
    /// Where clients are.
    pub(crate) places: Vec<NodeId>,
    pub(crate) random: Random,
    /// What each drive is for.
    pub(crate) members: Members,
    clients: usize,
}

/// Runs a seed, by the plan that it has or another one.
///
/// # Errors
///
/// What is not as it must be, with the last events.
pub fn run(seed: u64, change: impl FnOnce(&mut Plan)) -> Result<Report, String> {
    let (plan, random) = plan_of(seed, change);
    let (told, _) = run_plan(&plan, random.clone(), 0, Cell::live);
    told.map_err(|_| {
        // It does the same once more, and tells what.
        let (told, last) = run_plan(&plan, random, TOLD, Cell::live);
        let why = match told {
            Err(why) => why,
            Ok(_) => "failed, but not when it was run once more".to_owned(),
        };
        format!("seed {seed}: {plan:#?}\n{}\nseed {seed}: {why}", last.join("\n"))
    })
}

/// The same, with so many of the last events as text, whatever it comes to.
pub fn trace(
    seed: u64,
    change: impl FnOnce(&mut Plan),
    most: usize,
) -> (Result<Report, String>, Vec<String>) {
    let (plan, random) = plan_of(seed, change);
    run_plan(&plan, random, most, Cell::live)
}

/// The same of a cell in which nothing happens but what `live` does, once it has begun.
#[cfg(test)]
pub(crate) fn act(
    seed: u64,
    change: impl FnOnce(&mut Plan),
    live: impl FnOnce(&mut Cell),
) -> Result<Report, String> {
    let (plan, random) = plan_of(seed, change);
    let live = |cell: &mut Cell| {
        if cell.begin() {
            live(cell);
        }
        0
    };
    let (told, last) = run_plan(&plan, random, TOLD, live);
    told.map_err(|why| format!("{}\n{why}", last.join("\n")))
}

fn plan_of(seed: u64, change: impl FnOnce(&mut Plan)) -> (Plan, Random) {
    let mut random = Random::new(seed);
    let mut plan = Plan::of(&mut random);
    change(&mut plan);
    (plan, random)
}

/// Runs a cell by a plan; `live` does what is to happen, and answers how many faults there were.
fn run_plan(
    plan: &Plan,
    random: Random,
    told: usize,
    live: impl FnOnce(&mut Cell) -> u64,
) -> (Result<Report, String>, Vec<String>) {
    let time = Time::begin(told);
    let lived = catch_unwind(AssertUnwindSafe(|| {
        let mut cell = Cell::new(&time, plan.clone(), random);
        let faults = live(&mut cell);
        let shared = lock(&cell.shared);
        let (done, failed) = (shared.done, shared.failed);
        let expired = cell.drives.iter().map(|drive| drive.expired()).sum();
        Report { done, failed, faults, expired, lasted: time.now(), digest: time.digest() }
    }));
    time.end();
    let told = match (lived, time.failure()) {
        (Ok(report), None) => Ok(report),
        (_, Some(why)) => Err(why),
        (Err(_), None) => Err("the run itself has panicked".to_owned()),
    };
    (told, time.told())
}

impl Drop for Cell {
    fn drop(&mut self) {
        self.cables.take_down();
    }
}

impl Cell {
    fn new(time: &Arc<Time>, plan: Plan, mut random: Random) -> Cell {
        let cables = Cables::new(time, random.fork());
        let drive = |number: usize| new_drive(&cables, &plan, &mut random, number);
        let drives: Vec<_> = (0..plan.drives + plan.spares).map(drive).collect();
        let options = VirtualDriveOptions {
            unit: plan.unit,
            width: plan.width,
            copies: plan.copies,
            capability_ns: 60_000_000_000,
            writing_ns: WRITING.as_nanos() as u64,
        };
        let manager = StripingManager::new(&cables, options, drives.clone(), random.fork());
        let members = Members::of(&plan);
        manager.arrange(members.arrangement(&plan));
        let shared = Shared {
            checker: Checker::new(plan.copies),
            objects: BTreeMap::new(),
            logs: Logs::default(),
            log_ids: Vec::new(),
            removed: BTreeSet::new(),
            done: 0,
            failed: 0,
            may_fail: true,
            under_way: BTreeMap::new(),
        };
        let places = (0..plan.clients + 2).map(|_| cables.node()).collect();
        Cell {
            time: Arc::clone(time),
            shared: Arc::new(Mutex::new(shared)),
            plan,
            cables,
            drives,
            manager,
            places,
            random,
            members,
            clients: 0,
        }
    }

    /// A client at a place.
    pub(crate) fn client(&mut self, place: usize) -> Arc<Client> {
        self.clients += 1;
        let skew = self.random.below(self.plan.skew + 1);
        let node = self.places[place];
        let manager = self.manager.node;
        let client = Client::new(&self.cables, node, manager, self.clients, &self.shared, skew);
        client.begin();
        client
    }

    /// How many faults there were. What is wrong is told to the time.
    fn live(&mut self) -> u64 {
        if !self.begin() {
            return 0;
        }
        let mut director = Director::new(self);
        director.trouble(self);
        if self.time.failure().is_none() {
            director.heal(self);
            ending::settle(self);
        }
        if self.time.failure().is_none() {
            ending::look(self);
        }
        director.faults
    }

    fn begin(&mut self) -> bool {
        self.manager.start();
        while self.manager.virtual_drive().is_none() {
            self.time.sleep(Duration::from_millis(50));
            if self.time.now() > TO_BEGIN {
                self.time.fail("the striping manager has not begun".to_owned());
            }
            if self.time.failure().is_some() {
                return false;
            }
        }
        let client = self.client(self.plan.clients);
        let (count, logs) = (self.plan.objects, self.plan.habits.logs);
        let time = Arc::clone(&self.time);
        let failure = Arc::clone(&self.time);
        let made = Arc::clone(&self.shared);
        let own = Arc::clone(&client);
        time.spawn(client.process, move || {
            for _ in 0..count {
                if own.create().is_err() {
                    failure.fail("an object can't be made at the beginning".to_owned());
                }
            }
            for _ in 0..logs {
                if own.create_log().is_err() {
                    failure.fail("a log can't be made at the beginning".to_owned());
                }
            }
        });
        let are_made = || {
            let made = lock(&made);
            made.objects.len() >= count && made.log_ids.len() >= logs
        };
        while !are_made() && self.time.failure().is_none() {
            self.time.sleep(Duration::from_millis(20));
        }
        self.time.failure().is_none()
    }
}
