//! One run: a cell begins, is used and troubled, is left alone, and is looked at.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nasd_clerk::FileHandle;
use nasd_types::DriveId;

use crate::drives::{self, ComponentDrive};
use crate::network::{Cables, NodeId};
use crate::random::Random;
use crate::turns::{Time, lock};

use super::apart::apart;
use super::client::{Client, Site};
use super::director::Director;
use super::history::History;
use super::lengths::Lengths;
use super::manager::FileManager;
use super::names::Verdict;
use super::plan::{Plan, Sabotage};

/// How many events of the end of a run that fails are told.
const TOLD: usize = 400;

/// How long a cell may take to begin.
const TO_BEGIN: Duration = Duration::from_secs(30);

/// How long it may take to look at all when all is well.
const TO_LOOK: Duration = Duration::from_secs(60);

/// How long it may take until what is set aside has come back when all is well.
const TO_SETTLE: Duration = Duration::from_secs(60);

/// So many clients look at all in the end.
const LOOKING: usize = 2;

/// What a run was like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Operations of clients that ended well.
    pub done: u64,
    /// Those that did not.
    pub failed: u64,
    /// Those that there was no room for.
    pub refused: u64,
    /// Faults.
    pub faults: u64,
    /// Whether it would take too long to say that what was done with names is right.
    pub is_undecided: bool,
    /// How long it took, by the time of the run.
    pub lasted: Duration,
    /// The same for each run of the seed.
    pub digest: u64,
}

/// All that there is.
pub(super) struct Cell {
    pub(super) plan: Plan,
    pub(super) time: Arc<Time>,
    pub(super) cables: Arc<Cables>,
    pub(super) drives: Vec<Arc<ComponentDrive>>,
    pub(super) manager: Arc<FileManager>,
    /// Where clients are.
    pub(super) places: Vec<NodeId>,
    pub(super) random: Random,
    site: Arc<Site>,
    clients: usize,
}

/// Runs a seed, by the plan that it has or another one, in a process of its own.
///
/// # Errors
/// What is not as it must be, with the last events.
pub fn run(seed: u64, change: impl FnOnce(&mut Plan)) -> Result<Report, String> {
    let (plan, random) = plan_of(seed, change);
    let told = run_apart(&plan, random.clone(), 0).0;
    told.map_err(|why| {
        // It does the same once more, and tells what.
        let (again, last) = run_apart(&plan, random, TOLD);
        let again = again.err().unwrap_or_else(|| "is well when it is run once more".to_owned());
        let again = if again == why { String::new() } else { format!("\nand again: {again}") };
        format!("seed {seed}: {plan:#?}\n{last}\nseed {seed}: {why}{again}")
    })
}

/// The same, with so many of the last events as text, whatever it comes to.
pub fn trace(
    seed: u64,
    change: impl FnOnce(&mut Plan),
    most: usize,
) -> (Result<Report, String>, String) {
    let (plan, random) = plan_of(seed, change);
    run_apart(&plan, random, most)
}

fn plan_of(seed: u64, change: impl FnOnce(&mut Plan)) -> (Plan, Random) {
    let mut random = Random::new(seed ^ 0x6166_7300);
    let mut plan = Plan::of(&mut random);
    change(&mut plan);
    (plan, random)
}

/// Begins what is wrong, and ends what it was like, in what a process tells.
const WRONG: &str = "wrong: ";

fn run_apart(plan: &Plan, random: Random, told: usize) -> (Result<Report, String>, String) {
    // Drives' media are the same in each run, and are made once.
    let prepare =
        || (1..=plan.drives as u64).for_each(|drive| drop(drives::image_of(DriveId(drive), true)));
    let work = || {
        let (outcome, last) = run_here(plan, random, told);
        let outcome = match outcome {
            Ok(report) => encoded(&report),
            Err(why) => format!("{WRONG}{why}"),
        };
        format!("{}\0{outcome}", last.join("\n"))
    };
    let told = match apart(prepare, work) {
        Ok(told) => told,
        Err(why) => return (Err(why), String::new()),
    };
    let (last, outcome) = told.split_once('\0').unwrap_or_default();
    let outcome = match outcome.strip_prefix(WRONG) {
        Some(why) => Err(why.to_owned()),
        None => decoded(outcome).ok_or_else(|| format!("its process has told {outcome:?}")),
    };
    (outcome, last.to_owned())
}

fn encoded(report: &Report) -> String {
    let Report { done, failed, refused, faults, is_undecided, lasted, digest } = *report;
    let (undecided, lasted) = (u64::from(is_undecided), lasted.as_nanos() as u64);
    let numbers = [done, failed, refused, faults, undecided, lasted, digest];
    numbers.map(|number| number.to_string()).join(" ")
}

fn decoded(text: &str) -> Option<Report> {
    let numbers: Option<Vec<u64>> = text.split(' ').map(|number| number.parse().ok()).collect();
    let [done, failed, refused, faults, undecided, lasted, digest] = numbers?.try_into().ok()?;
    let (is_undecided, lasted) = (undecided == 1, Duration::from_nanos(lasted));
    Some(Report { done, failed, refused, faults, is_undecided, lasted, digest })
}

/// Runs a cell by a plan, in this process, which has nothing else to do any more after that.
fn run_here(plan: &Plan, random: Random, told: usize) -> (Result<Report, String>, Vec<String>) {
    let mut random = random;
    let time = Time::begin_with_threads(told, random.fork());
    let failing = Arc::clone(&time);
    // No thread of anybody may panic, whoever catches it.
    std::panic::set_hook(Box::new(move |panic| failing.fail(format!("a panic: {panic}"))));
    let lived = catch_unwind(AssertUnwindSafe(|| {
        let mut cell = Cell::new(&time, plan.clone(), random);
        let faults = cell.live();
        let history = lock(&cell.site.history);
        let mut report =
            Report { faults, lasted: time.now(), digest: time.digest(), ..Report::default() };
        (report.done, report.failed) = (history.done, history.failed);
        report.refused = history.refused;
        let checked = match time.failure() {
            Some(why) => Err(why),
            None => history.check(),
        };
        drop(history);
        std::mem::forget(cell);
        let verdict = checked?;
        report.is_undecided = verdict == Verdict::Undecided;
        Ok(report)
    }));
    let outcome = lived.unwrap_or_else(|_| {
        Err(time.failure().unwrap_or_else(|| "the run itself has panicked".to_owned()))
    });
    (outcome, time.told())
}

impl Cell {
    fn new(time: &Arc<Time>, plan: Plan, mut random: Random) -> Cell {
        let cables = Cables::new(time, random.fork());
        let sabotage = match plan.sabotage {
            Sabotage::LosesWhatIsDurable => crate::plan::Sabotage::LosesWhatIsDurable,
            Sabotage::ForgetsWrites => crate::plan::Sabotage::ForgetsWrites,
            _ => crate::plan::Sabotage::None,
        };
        let lengths = Lengths::new(time, plan.quota());
        let drive = |number: usize| {
            let (drive, watch) = (DriveId(1 + number as u64), Arc::clone(&lengths) as Arc<_>);
            let (faults, random) = ((0, sabotage), random.fork());
            Arc::new(ComponentDrive::with_partition(&cables, drive, faults, watch, random))
        };
        let drives: Vec<_> = (0..plan.drives).map(drive).collect();
        let manager = FileManager::new(&cables, &plan, &drives);
        let site = Arc::new(Site {
            time: Arc::clone(time),
            history: Mutex::new(History::new(plan.files)),
            lengths,
            places: Mutex::new(None),
            manager: manager.node,
            plan: plan.clone(),
        });
        let places = (0..plan.clients + LOOKING).map(|_| cables.node()).collect();
        let time = Arc::clone(time);
        Cell { plan, time, cables, drives, manager, places, random, site, clients: 0 }
    }

    /// A client at a place.
    pub(super) fn client(&mut self, place: usize) -> Arc<Client> {
        self.clients += 1;
        Client::new(&self.site, &self.cables, (place, self.places[place]), self.clients)
    }

    /// How many faults there were. What is wrong is told to the time.
    fn live(&mut self) -> u64 {
        self.manager.start();
        let is_begun = self.have_one("begun", TO_BEGIN, |working| working.make_places());
        if !is_begun {
            return 0;
        }
        self.watch_lengths();
        let mut director = Director::new(self);
        director.trouble(self);
        if self.time.failure().is_none() {
            director.heal(self);
        }
        for _ in 0..LOOKING {
            if self.time.failure().is_none() {
                self.have_one("looked", TO_LOOK, |working| working.look_at_all());
            }
        }
        if self.time.failure().is_none() && self.is_account_settled() {
            self.have_one("filled it", TO_LOOK, |working| working.fill());
        }
        director.faults
    }

    /// From now on files have no more bytes than they may.
    fn watch_lengths(&self) {
        if let Some(places) = &*lock(&self.site.places) {
            let place = |file: &FileHandle| (file.drive, file.object);
            let files: Vec<_> = places.files.iter().map(place).collect();
            let directories = places.directories.each_ref().map(place);
            self.site.lengths.begin(&self.drives, &files, &directories);
        }
    }

    /// All that the files have is accounted for or set aside, and both together are no more than they may have.
    pub(super) fn check_account(&self) {
        let Some(quota) = self.plan.quota() else { return };
        let Some((used, aside)) = self.manager.accounted() else { return };
        let sum = self.site.lengths.sum();
        if sum > used + aside || used + aside > quota {
            let told = format!("{used} bytes are accounted for and {aside} set aside of {quota}");
            self.time.fail(format!("{told}, and files have {sum}"));
        }
    }

    /// Whether all that was set aside comes back when all is well, and what is accounted for is what the files have.
    fn is_account_settled(&self) -> bool {
        let until = self.time.now() + TO_SETTLE;
        while self.plan.room.is_some() {
            let (told, sum) = (self.manager.accounted(), self.site.lengths.sum());
            if told == Some((sum, 0)) {
                break;
            }
            if self.time.now() > until {
                self.time.fail(format!("{told:?} is accounted for, and files have {sum}"));
                return false;
            }
            self.time.sleep(Duration::from_millis(100));
        }
        true
    }

    /// Has another client do something, while nothing else happens.
    fn have_one(
        &mut self,
        what: &'static str,
        most: Duration,
        act: impl FnOnce(&mut super::client::Working) -> Result<(), nasd_clerk::ClerkError>
        + Send
        + 'static,
    ) -> bool {
        let client = self.client(self.plan.clients);
        let is_done = Arc::new(AtomicBool::new(false));
        let (done, time, own) = (Arc::clone(&is_done), Arc::clone(&self.time), Arc::clone(&client));
        self.time.spawn(client.process, move || {
            let mut working = own.begin();
            match act(&mut working) {
                Ok(()) => done.store(true, Ordering::Relaxed),
                Err(error) => time.fail(format!("nobody has {what}: {error}")),
            }
            std::mem::forget(working);
        });
        let until = self.time.now() + most;
        while !is_done.load(Ordering::Relaxed) && self.time.failure().is_none() {
            self.time.sleep(Duration::from_millis(20));
            if self.time.now() > until {
                self.time.fail(format!("nobody has {what} in time"));
            }
        }
        is_done.load(Ordering::Relaxed)
    }
}
