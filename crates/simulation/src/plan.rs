//! What a run is like: how many of what there are, and what goes wrong.

use std::time::Duration;

use crate::network::Weather;
use crate::random::Random;

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Drives crash, and are started anew soon.
    pub crashes: bool,
    /// Drives are away for long, at most so many at a time that there is a copy of everything.
    pub outages: bool,
    /// Drives are slow.
    pub slow: bool,
    /// The striping manager dies, and is started anew.
    pub manager: bool,
    /// Clients die.
    pub clients: bool,
    /// Cables are pulled.
    pub cuts: bool,
    /// Drives die for good, one after the other, as many as there are spares.
    pub deaths: bool,
    /// Messages.
    pub weather: Weather,
}

/// What clients do besides reading, writing, cutting, and so on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habits {
    /// They make fast copies of objects.
    pub copies: bool,
    /// So many objects are such to which is only appended.
    pub logs: usize,
}

/// Something that is broken on purpose, to see whether it is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// Nothing.
    #[default]
    None,
    /// Some writes that one of the component drives acknowledges are not done there.
    ForgetsWrites,
    /// When a component drive crashes, it loses what was durable too.
    LosesWhatIsDurable,
    /// Spares forget some of the writes that they acknowledge.
    SpareForgetsWrites,
    /// Copies that one of the component drives makes are all zeros there.
    MakesEmptyCopies,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Component drives.
    pub drives: usize,
    /// Bytes of a stripe unit.
    pub unit: u64,
    /// Drives that an object lies on.
    pub width: u16,
    /// Copies of each byte.
    pub copies: u16,
    /// Clients at a time.
    pub clients: usize,
    /// Objects at the beginning.
    pub objects: usize,
    /// Operations of each client.
    pub operations: usize,
    /// What goes wrong.
    pub faults: Faults,
    /// What is broken on purpose.
    pub sabotage: Sabotage,
    /// By how many nanoseconds clocks may be apart.
    pub skew: u64,
    /// Whether drives are drained and get their share again.
    pub moves: bool,
    /// Drives more that have nothing until another one is out for so long.
    pub spares: usize,
    /// How long that is.
    pub replace_after: Duration,
    /// Drives more that join the cell later.
    pub added: usize,
    /// What clients do besides.
    pub habits: Habits,
}

/// One seed of so many has hundreds of drives and clients.
const MULTITUDES: u64 = 1000;

/// Width and copies.
const SHAPES: [(u16, u16); 10] =
    [(1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (2, 2), (3, 2), (4, 2), (3, 3), (4, 3)];

impl Plan {
    /// The plan of a seed.
    pub fn of(random: &mut Random) -> Plan {
        if random.one_in(MULTITUDES) {
            return Plan::of_a_multitude(random);
        }
        let (width, copies) = SHAPES[random.index(SHAPES.len())];
        let drives = usize::from(width) + random.index(2);
        let mut plan = Plan {
            drives,
            unit: 4096 << random.index(3),
            width,
            copies,
            clients: 1 + random.index(4),
            objects: 1 + random.index(4),
            operations: 10 + random.index(40),
            faults: Faults::of(random),
            sabotage: Sabotage::None,
            skew: if random.one_in(3) { 3_000_000_000 } else { 0 },
            moves: random.one_in(4),
            spares: 0,
            replace_after: Duration::from_secs(600),
            added: 0,
            habits: Habits::default(),
        };
        plan.have_other_drives(random);
        plan.habits.copies = random.one_in(2);
        plan.habits.logs = random.index(3);
        plan
    }

    /// Spares, drives that die for good, and drives that are added.
    fn have_other_drives(&mut self, random: &mut Random) {
        if self.copies > 1 && random.one_in(3) {
            self.spares = 1 + random.index(2);
            self.replace_after = random.between(Duration::from_secs(1), Duration::from_secs(8));
            self.faults.deaths = random.one_in(2);
        }
        if random.one_in(6) {
            self.added = 1 + random.index(2);
        }
    }
}

impl Plan {
    /// Hundreds of drives and clients.
    fn of_a_multitude(random: &mut Random) -> Plan {
        let copies = 1 + random.index(2) as u16;
        Plan {
            drives: 100 + random.index(150),
            unit: 8192,
            width: 4,
            copies,
            clients: 100 + random.index(100),
            objects: 60,
            operations: 4,
            faults: Faults::of(random),
            sabotage: Sabotage::None,
            skew: 0,
            moves: false,
            spares: 0,
            replace_after: Duration::from_secs(600),
            added: 0,
            habits: Habits::default(),
        }
    }
}

impl Faults {
    /// Nothing but what everybody may do.
    pub fn none() -> Faults {
        Faults::default()
    }

    /// Whether whoever is asked for something does it at the first time.
    pub fn is_calm(&self) -> bool {
        let Weather { lost_requests, lost_replies, late, .. } = self.weather;
        let Faults { crashes, outages, slow, manager, clients, cuts, deaths, .. } = *self;
        let troubles = [crashes, outages, slow, manager, clients, cuts, deaths];
        !troubles.contains(&true) && lost_requests + lost_replies + late == 0
    }

    /// Half of all seeds have one kind, the others several.
    fn of(random: &mut Random) -> Faults {
        let chosen = match random.index(8) {
            0 => 0,
            1..=4 => 1 << random.index(7),
            _ => random.below(1 << 7),
        };
        let has = |kind: u32| chosen & (1 << kind) != 0;
        let weather = Weather { lost_requests: 60, lost_replies: 60, late: 20, twice: 20 };
        Faults {
            crashes: has(0),
            outages: has(1),
            slow: has(2),
            manager: has(3),
            clients: has(4),
            cuts: has(5),
            deaths: false,
            weather: if has(6) { weather } else { Weather::default() },
        }
    }
}
