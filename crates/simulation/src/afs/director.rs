//! Who makes trouble, and ends it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::network::{NodeId, Weather};

use super::client::Client;
use super::run::Cell;

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
    Mend(NodeId, NodeId),
}

/// See the module.
pub(super) struct Director {
    workers: BTreeMap<usize, Worker>,
    ends: Vec<(Duration, Ends)>,
    pub(super) faults: u64,
}

impl Director {
    /// Has all clients begin.
    pub(super) fn new(cell: &mut Cell) -> Director {
        let mut director = Director { workers: BTreeMap::new(), ends: Vec::new(), faults: 0 };
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
        let (own, done) = (Arc::clone(&client), Arc::clone(&is_done));
        cell.time.spawn(client.process, move || {
            let mut working = own.begin();
            working.work(operations, &mut random);
            done.store(true, Ordering::Relaxed);
            // It has its session until all have ended: who ends tells the others to wait for nothing.
            std::mem::forget(working);
        });
        self.workers.insert(place, Worker { client, is_done });
    }

    fn are_all_done(&self) -> bool {
        self.workers.values().all(|worker| worker.is_done.load(Ordering::Relaxed))
    }

    /// Makes trouble until all clients have done what they had to.
    pub(super) fn trouble(&mut self, cell: &mut Cell) {
        let until = cell.time.now() + TROUBLED;
        let longest = Duration::from_millis(200 << cell.random.index(6));
        while !self.are_all_done() && cell.time.failure().is_none() && cell.time.now() < until {
            let wait = cell.random.between(Duration::from_millis(5), longest);
            cell.time.sleep(wait);
            cell.check_account();
            self.end_what_ends(cell);
            for drive in &cell.drives {
                if cell.random.one_in(3) {
                    drive.write_back();
                }
            }
            if cell.random.one_in(2) {
                self.make_trouble(cell);
            }
        }
    }

    fn later(&mut self, cell: &mut Cell, least: u64, most: u64, ends: Ends) {
        let wait = cell.random.between(Duration::from_millis(least), Duration::from_millis(most));
        self.ends.push((cell.time.now() + wait, ends));
    }

    fn end_what_ends(&mut self, cell: &Cell) {
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
                cell.time.tell(|| "a file manager is started".to_owned());
                cell.manager.start();
            }
            Ends::Fast(drive) => cell.cables.set_delay(cell.drives[*drive].node, Duration::ZERO),
            Ends::Mend(one, other) => {
                cell.time.tell(|| format!("the cable between {} and {} is mended", one.0, other.0));
                cell.cables.set_cut(*one, *other, false);
            }
        }
    }

    fn make_trouble(&mut self, cell: &mut Cell) {
        let faults = cell.plan.faults;
        let kinds: Vec<fn(&mut Director, &mut Cell)> = [
            (faults.crashes, Director::crash as fn(&mut Director, &mut Cell)),
            (faults.outages, Director::take_away),
            (faults.slow, Director::slow_down),
            (faults.manager, Director::kill_manager),
            (faults.clients, Director::kill_client),
            (faults.cuts, Director::cut),
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
        self.stop(cell, 0, 1500);
    }

    /// A drive is away for long.
    fn take_away(&mut self, cell: &mut Cell) {
        self.stop(cell, 3000, 15_000);
    }

    fn stop(&mut self, cell: &mut Cell, least: u64, most: u64) {
        let first = usize::from(!cell.plan.home_crashes);
        let drive = first + cell.random.index(cell.drives.len() - first);
        if !cell.drives[drive].is_running() {
            return;
        }
        let is_silent = cell.random.one_in(2);
        cell.time.tell(|| format!("drive {drive} crashes, silently: {is_silent}"));
        cell.drives[drive].crash(is_silent);
        self.later(cell, least, most, Ends::Start(drive));
    }

    /// All that a drive answers takes long.
    fn slow_down(&mut self, cell: &mut Cell) {
        let drive = cell.random.index(cell.drives.len());
        let delay = cell.random.between(Duration::from_millis(5), Duration::from_millis(900));
        cell.time.tell(|| format!("drive {drive} is slow by {delay:?}"));
        cell.cables.set_delay(cell.drives[drive].node, delay);
        self.later(cell, 200, 6000, Ends::Fast(drive));
    }

    fn kill_manager(&mut self, cell: &mut Cell) {
        if !cell.manager.is_running() {
            return;
        }
        let is_silent = cell.random.one_in(3);
        cell.time.tell(|| format!("the file manager dies, silently: {is_silent}"));
        cell.manager.kill(is_silent);
        self.later(cell, 0, 4000, Ends::StartManager);
    }

    /// A client dies; another one takes its place.
    fn kill_client(&mut self, cell: &mut Cell) {
        let place = cell.random.index(cell.plan.clients);
        let Some(worker) = self.workers.get(&place) else { return };
        if worker.is_done.load(Ordering::Relaxed) {
            return;
        }
        let number = worker.client.number;
        cell.time.tell(|| format!("client {number} dies"));
        cell.time.kill(worker.client.process);
        let operations = cell.plan.operations / 2;
        self.begin(cell, place, operations);
    }

    /// A cable is pulled.
    fn cut(&mut self, cell: &mut Cell) {
        let drive = cell.drives[cell.random.index(cell.drives.len())].node;
        let client = cell.places[cell.random.index(cell.plan.clients)];
        let manager = cell.manager.node;
        let (one, other) = match cell.random.index(4) {
            0 => (drive, client),
            1 => (manager, drive),
            _ => (client, manager),
        };
        cell.time.tell(|| format!("the cable between {} and {} is pulled", one.0, other.0));
        cell.cables.set_cut(one, other, true);
        self.later(cell, 100, 12_000, Ends::Mend(one, other));
    }

    /// Ends all troubles, and waits for those that have something to do yet.
    pub(super) fn heal(&mut self, cell: &mut Cell) {
        cell.time.tell(|| "all is well".to_owned());
        for (_, ends) in std::mem::take(&mut self.ends) {
            Director::end(cell, &ends);
        }
        cell.cables.set_weather(Weather::default());
        cell.drives.iter().for_each(|drive| drive.start());
        cell.manager.start();
        let until = cell.time.now() + TO_END;
        while !self.are_all_done() && cell.time.failure().is_none() {
            cell.time.sleep(Duration::from_millis(100));
            if cell.time.now() > until {
                cell.time.fail("clients have not ended though all is well".to_owned());
            }
        }
    }
}
