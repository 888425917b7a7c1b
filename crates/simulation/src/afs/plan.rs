//! What a seed has: how many of everything, and what goes wrong.

use std::time::Duration;

use crate::network::Weather;
use crate::random::Random;

use super::client::{PIECE, bytes_of};

/// Less room than this is drawn: a few stores take it.
const MOST_ROOM: u64 = 5 * PIECE as u64;

/// What is broken on purpose, to see whether it is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// Nothing.
    #[default]
    None,
    /// The file manager takes what it has told a client for dealt with at once, and the client hears of it later.
    DoesNotWait,
    /// Clients believe what was promised for much longer than their leases.
    BelievesTooLong,
    /// Drives that lose power have again what they had when they were started.
    LosesWhatIsDurable,
    /// Drives that do not execute some of the writes that they acknowledge.
    ForgetsWrites,
    /// The file manager takes the quota for a byte more than it is.
    AllowsTooMuch,
    /// It takes it for a byte less.
    AllowsTooLittle,
}

/// What kinds of faults there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Drives lose power, and are started anew at once or a moment later.
    pub crashes: bool,
    /// They stay away for long.
    pub outages: bool,
    /// They answer late for a while.
    pub slow: bool,
    /// The file manager is killed, and another one started.
    pub manager: bool,
    /// Clients are killed; others take their places.
    pub clients: bool,
    /// Cables are pulled and mended.
    pub cuts: bool,
    /// Messages are lost, late, or come twice.
    pub weather: Weather,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many drives.
    pub drives: usize,
    /// How many clients at a time.
    pub clients: usize,
    /// How many of them store and change names; the others read.
    pub writers: usize,
    /// How many files are stored and read.
    pub files: usize,
    /// Of how many separate pieces each is: each is written by a request of its own.
    pub pieces: usize,
    /// How many bytes files may have together beyond those that they are made with; as many as there is room for, if nothing.
    pub room: Option<u64>,
    /// Whether clients do anything with names. What was done with them in the last moments is lost if the file manager dies and so does the drive
    /// that has its journal.
    pub names: bool,
    /// Whether that drive loses power.
    pub home_crashes: bool,
    /// How many operations each client does.
    pub operations: usize,
    /// Clients' leases.
    pub lease: Duration,
    /// How long clients wait for what is away.
    pub patience: Duration,
    /// Whether clients keep contents in memory.
    pub has_cache: bool,
    /// How long clients pause between two operations, at most.
    pub pause: Duration,
    /// What goes wrong.
    pub faults: Faults,
    /// What is broken on purpose.
    pub sabotage: Sabotage,
}

impl Plan {
    /// The plan of a seed.
    pub fn of(random: &mut Random) -> Plan {
        let mut plan = Plan {
            drives: 1 + random.index(3),
            clients: 2 + random.index(3),
            writers: if random.one_in(4) { 1 } else { usize::MAX },
            files: 1 + random.index(3),
            pieces: 1 + random.index(3),
            room: random.one_in(3).then(|| random.below(MOST_ROOM)),
            names: true,
            home_crashes: true,
            operations: 10 + random.index(25),
            lease: Duration::from_secs(2 + random.below(5)),
            patience: Duration::from_secs(if random.one_in(3) { 15 } else { 600 }),
            has_cache: !random.one_in(4),
            pause: Duration::from_millis(10 << random.index(8)),
            faults: Faults::of(random),
            sabotage: Sabotage::None,
        };
        let Faults { crashes, outages, manager, .. } = plan.faults;
        if manager && (crashes || outages) {
            plan.names = random.one_in(2);
            plan.home_crashes = !plan.names;
            plan.drives += usize::from(plan.drives == 1);
        }
        plan
    }

    /// How many bytes all files may have together.
    pub fn quota(&self) -> Option<u64> {
        let made = (self.files * bytes_of(self.pieces)) as u64;
        self.room.map(|room| made + room)
    }

    /// A store that takes as long may have been ended, and begun anew.
    pub(super) fn slow(&self) -> Duration {
        self.lease.min(Duration::from_secs(10))
    }
}

impl Faults {
    /// Whether nothing goes wrong.
    pub fn are_none(&self) -> bool {
        *self == Faults::default()
    }

    /// Half of all seeds have one kind, one in eight none, the others several.
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
            weather: if has(6) { weather } else { Weather::default() },
        }
    }
}
