//! Who makes trouble, and ends it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::client::Client;
use crate::members::{self, Death};
use crate::network::Weather;
use crate::run::Cell;
use crate::turns::lock;

/// For how long what a client was doing when it died may come yet: messages come up to 15 s late, and the striping manager
/// waits for a drive that was cut off from it for up to 30 s before it asks once more.
pub(crate) const ECHO: Duration = Duration::from_secs(50);

/// How long there is trouble at most.
const TROUBLED: Duration = Duration::from_secs(40);

/// How long those that are alive may take once there is no trouble any more.
const TO_END: Duration = Duration::from_secs(90);

/// A client at work.
struct Worker {
    client: Arc<Client>,
    is_done: Arc<AtomicBool>,
}

/// Something that ends by itself later.
enum Ends {
    Start(usize),
    StartManager,
    Fast(usize),
    Mend(usize, usize),
}

/// See the module.
pub(crate) struct Director {
    workers: BTreeMap<usize, Worker>,
    ends: Vec<(Duration, Ends)>,
    death: Death,
    pub(crate) faults: u64,
}

impl Director {
    /// Has all clients begin.
    pub(crate) fn new(cell: &mut Cell) -> Director {
        let mut director = Director {
            workers: BTreeMap::new(),
            ends: Vec::new(),
            death: Death::default(),
            faults: 0,
        };
        cell.cables.set_weather(cell.plan.faults.weather);
        for place in 0..cell.plan.clients {
            let operations = cell.plan.operations;
            director.begin(cell, place, operations);
        }
        director
    }

    fn begin(&mut self, cell: &mut Cell, place: usize, operations: usize) {
        let client = cell.client(place);
        let is_done = Arc::new(AtomicBool::new(false));
        let mut random = cell.random.fork();
        let habits = cell.plan.habits;
        let (own, done) = (Arc::clone(&client), Arc::clone(&is_done));
        cell.time.spawn(client.process, move || {
            own.work(operations, habits, &mut random);
            done.store(true, Ordering::Relaxed);
        });
        self.workers.insert(place, Worker { client, is_done });
    }

    fn are_all_done(&self) -> bool {
        self.workers.values().all(|worker| worker.is_done.load(Ordering::Relaxed))
    }

    /// Makes trouble until all clients have done what they had to.
    pub(crate) fn trouble(&mut self, cell: &mut Cell) {
        let until = cell.time.now() + TROUBLED;
        let longest = Duration::from_millis(200 << cell.random.index(5));
        while !self.are_all_done() && cell.time.failure().is_none() && cell.time.now() < until {
            let wait = cell.random.between(Duration::from_millis(5), longest);
            cell.time.sleep(wait);
            self.end_what_ends(cell);
            for drive in &cell.drives {
                if cell.random.one_in(3) {
                    drive.write_back();
                }
            }
            if cell.random.one_in(2) {
                self.make_trouble(cell);
            }
            self.have_others(cell);
        }
    }

    /// Other drives have a share, or what others have.
    fn have_others(&mut self, cell: &mut Cell) {
        if cell.plan.moves && cell.random.one_in(4) {
            members::drain(cell);
        }
        if cell.plan.added > 0 && cell.random.one_in(6) {
            members::add(cell);
        }
        if let Some(drive) = self.death.comes(cell, self.ends.is_empty()) {
            cell.time.tell(|| format!("drive {drive} dies for good"));
            self.stop(cell, drive);
        }
        if cell.plan.faults.deaths && cell.random.one_in(8) {
            members::bury(cell);
        }
    }

    fn later(&mut self, cell: &mut Cell, least: u64, most: u64, ends: Ends) {
        let wait = cell.random.between(Duration::from_millis(least), Duration::from_millis(most));
        self.ends.push((cell.time.now() + wait, ends));
    }

    fn end_what_ends(&mut self, cell: &mut Cell) {
        let now = cell.time.now();
        let (over, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.ends).into_iter().partition(|(when, _)| *when <= now);
        self.ends = rest;
        over.into_iter().for_each(|(_, ends)| Director::end(cell, &ends));
    }

    fn end(cell: &Cell, ends: &Ends) {
        match ends {
            Ends::Start(drive) => {
                cell.time.tell(|| format!("drive {drive} is started"));
                cell.drives[*drive].start();
            }
            Ends::StartManager => {
                cell.time.tell(|| "the striping manager is started".to_owned());
                cell.manager.start();
            }
            Ends::Fast(drive) => {
                cell.cables.set_delay(cell.drives[*drive].node, Duration::ZERO);
            }
            Ends::Mend(one, other) => {
                let nodes = [crate::network::NodeId(*one), crate::network::NodeId(*other)];
                cell.time.tell(|| format!("the cable between {one} and {other} is mended"));
                cell.cables.set_cut(nodes[0], nodes[1], false);
            }
        }
    }

    fn make_trouble(&mut self, cell: &mut Cell) {
        if self.death.is_near(cell) {
            return;
        }
        let faults = cell.plan.faults;
        let kinds: Vec<fn(&mut Director, &mut Cell)> = [
            (faults.crashes, Director::crash as fn(&mut Director, &mut Cell)),
            (faults.outages, Director::take_away),
            (faults.slow, Director::slow_down),
            (faults.manager, Director::kill_manager),
            (faults.clients, Director::kill_client),
            (faults.cuts, Director::cut),
            (faults.deaths, |director, cell| director.death.want(cell)),
        ]
        .into_iter()
        .filter(|(is_on, _)| *is_on)
        .map(|(_, make)| make)
        .collect();
        if !kinds.is_empty() {
            self.faults += 1;
            let kind = cell.random.index(kinds.len());
            kinds[kind](self, cell);
        }
    }

    /// A drive is started anew.
    fn crash(&mut self, cell: &mut Cell) {
        let drive = cell.random.index(cell.drives.len());
        if !cell.drives[drive].is_running() {
            return;
        }
        self.stop(cell, drive);
        self.later(cell, 0, 1500, Ends::Start(drive));
    }

    fn stop(&mut self, cell: &mut Cell, drive: usize) {
        let is_silent = cell.random.one_in(2);
        cell.time.tell(|| format!("drive {drive} crashes, silently: {is_silent}"));
        cell.drives[drive].crash(is_silent);
        lock(&cell.shared).checker.crash();
    }

    /// A drive is away for long.
    fn take_away(&mut self, cell: &mut Cell) {
        let most = usize::from(cell.plan.copies).saturating_sub(1).max(1);
        if members::away(cell) + Director::lacking(cell) >= most {
            return;
        }
        let drive = cell.random.index(cell.drives.len());
        if cell.drives[drive].is_running() {
            self.stop(cell, drive);
            self.later(cell, 3000, 15_000, Ends::Start(drive));
        }
    }

    /// How many drives that run lack something that others have.
    fn lacking(cell: &Cell) -> usize {
        let Some(status) = cell.manager.status() else { return usize::MAX / 2 };
        let is_running = |number: u64| {
            cell.drives.iter().any(|drive| drive.drive.0 == number && drive.is_running())
        };
        let current = nasd_protocol::drive::MemberState::Current;
        let lacking = status.iter().filter(|it| it.state != current && is_running(it.drive.0));
        lacking.count()
    }

    /// All that a drive answers takes long.
    fn slow_down(&mut self, cell: &mut Cell) {
        let drive = cell.random.index(cell.drives.len());
        let delay = cell.random.between(Duration::from_millis(5), Duration::from_millis(4000));
        cell.time.tell(|| format!("drive {drive} is slow by {delay:?}"));
        cell.cables.set_delay(cell.drives[drive].node, delay);
        self.later(cell, 200, 6000, Ends::Fast(drive));
    }

    fn kill_manager(&mut self, cell: &mut Cell) {
        if cell.manager.virtual_drive().is_none() {
            return;
        }
        let is_silent = cell.random.one_in(3);
        cell.time.tell(|| format!("the striping manager dies, silently: {is_silent}"));
        cell.manager.kill(is_silent);
        self.later(cell, 0, 4000, Ends::StartManager);
    }

    /// A client dies; another one takes its place.
    fn kill_client(&mut self, cell: &mut Cell) {
        let place = cell.random.index(cell.plan.clients);
        let Some(worker) = self.workers.remove(&place) else { return };
        if worker.is_done.load(Ordering::Relaxed) || !cell.random.one_in(3) {
            self.workers.insert(place, worker);
            return;
        }
        let number = worker.client.number;
        cell.time.tell(|| format!("client {number} dies"));
        cell.time.kill(worker.client.process);
        let left = lock(&cell.shared).under_way.remove(&number);
        if let Some(write) = left {
            let shared = Arc::clone(&cell.shared);
            cell.time.after(ECHO, move |_| lock(&shared).checker.fail(write));
        }
        let operations = cell.plan.operations / 2;
        self.begin(cell, place, operations);
    }

    /// A cable is pulled.
    fn cut(&mut self, cell: &mut Cell) {
        let drive = cell.drives[cell.random.index(cell.drives.len())].node;
        let client = cell.places[cell.random.index(cell.plan.clients)];
        let manager = cell.manager.node;
        let (one, other) = match cell.random.index(3) {
            0 => (drive, client),
            1 => (client, manager),
            _ => (manager, drive),
        };
        cell.time.tell(|| format!("the cable between {} and {} is pulled", one.0, other.0));
        cell.cables.set_cut(one, other, true);
        self.later(cell, 100, 6000, Ends::Mend(one.0, other.0));
    }

    /// Ends all troubles, and waits for those that have something to do yet.
    pub(crate) fn heal(&mut self, cell: &mut Cell) {
        for (_, ends) in std::mem::take(&mut self.ends) {
            Director::end(cell, &ends);
        }
        cell.cables.set_weather(Weather::default());
        let living = cell.drives.iter().filter(|drive| !cell.members.is_dead(drive.drive));
        living.for_each(|drive| drive.start());
        cell.manager.start();
        let until = cell.time.now() + TO_END;
        // Whoever has lost a drive is not well before that is known.
        let is_over = |cell: &Cell| self.are_all_done() && !members::is_dying(cell);
        while !is_over(cell) && cell.time.failure().is_none() {
            cell.time.sleep(Duration::from_millis(100));
            if cell.time.now() > until {
                cell.time.fail("clients have not ended though all is well".to_owned());
            }
        }
    }
}
