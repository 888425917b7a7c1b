//! The replay window at a million requests a second, with an enemy who has recorded them, over a restart
//! of the drive.
//!
//! `NASD_REPLAY_SECONDS=60` makes it the minute of the bar; else it is a few seconds. What it found is
//! printed (`--nocapture`).

#[path = "../../types/tests/random/mod.rs"]
mod random;

use nasd_capability::{Nonce, NonceSource, NonceWindow, WindowOptions};
use nasd_types::Timestamp;
use random::Random;

const SECOND: u64 = Timestamp::SECOND_NS;
const START: Timestamp = Timestamp(1_700_000_000 * SECOND);
const A_SECOND: u64 = 1_000_000;
/// Clients, each with a sender of its own; many share a capability, which makes no difference here.
const CLIENTS: usize = 4000;
/// Requests on their way, arriving in any order: two milliseconds' worth.
const UNDER_WAY: usize = 2000;
/// Requests that the enemy keeps, any of those that passed, and the latest.
const KEPT: usize = 1 << 20;
const LATEST: usize = 4096;
/// One of so many requests is a recorded one.
const REPLAYED_OF: u64 = 8;
/// The bar, in bytes.
const MEMORY: usize = 64 << 20;

/// What passed, as far as the enemy keeps it.
struct Recorded {
    any: Vec<Nonce>,
    latest: Vec<Nonce>,
    count: u64,
}

impl Recorded {
    fn record(&mut self, nonce: Nonce, random: &mut Random) {
        self.count += 1;
        self.latest[(self.count % LATEST as u64) as usize] = nonce;
        if self.any.len() < KEPT {
            self.any.push(nonce);
            return;
        }
        // Each of all that passed is kept with the same likelihood (reservoir sampling).
        let place = random.below(self.count);
        if let Some(kept) = self.any.get_mut(place as usize) {
            *kept = nonce;
        }
    }

    fn one(&self, random: &mut Random) -> Option<Nonce> {
        if self.count < LATEST as u64 {
            return None;
        }
        match random.below(2) {
            0 => self.latest.get(random.below(LATEST as u64) as usize).copied(),
            _ => self.any.get(random.below(self.any.len() as u64) as usize).copied(),
        }
    }
}

/// A drive's window, its clients, and the enemy.
struct World {
    window: NonceWindow,
    now: Timestamp,
    /// What the drive told as its clock when it was started: nobody stamps earlier.
    began: Timestamp,
    clients: Vec<NonceSource>,
    under_way: Vec<Nonce>,
    recorded: Recorded,
    random: Random,
    replayed: u64,
    refused_without_need: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random(seed);
        let options = WindowOptions::default();
        let clients = (0..CLIENTS).map(|_| NonceSource::new(random.below(u64::MAX))).collect();
        let began = START.plus_ns(options.ahead_ns + 1);
        let latest = vec![Nonce::default(); LATEST];
        World {
            window: NonceWindow::new(options, START, seed),
            now: began,
            began,
            clients,
            under_way: Vec::with_capacity(UNDER_WAY),
            recorded: Recorded { any: Vec::new(), latest, count: 0 },
            random,
            replayed: 0,
            refused_without_need: 0,
        }
    }

    /// A request is sent, and one that was sent before arrives; and now and then the enemy's.
    fn step(&mut self) {
        self.now = self.now.plus_ns(SECOND / A_SECOND);
        let client = self.random.below(CLIENTS as u64) as usize;
        // Clocks are known to within half a second.
        let stamped = Timestamp(self.now.0 + SECOND / 2 - self.random.below(SECOND));
        self.under_way.push(self.clients[client].draw(stamped.max(self.began)));
        if self.under_way.len() == UNDER_WAY {
            let arriving = self.under_way.swap_remove(self.random.below(UNDER_WAY as u64) as usize);
            if self.passes(&arriving) {
                self.recorded.record(arriving, &mut self.random);
            } else {
                self.refused_without_need += 1;
            }
        }
        if self.random.below(REPLAYED_OF) == 0 {
            self.replay();
        }
    }

    fn replay(&mut self) {
        if let Some(nonce) = self.recorded.one(&mut self.random) {
            self.replayed += 1;
            assert!(!self.passes(&nonce), "{nonce:?} passed twice at {:?}", self.now);
        }
    }

    fn passes(&self, nonce: &Nonce) -> bool {
        let checked = self.window.check(self.now, nonce);
        checked.and_then(|()| self.window.record(self.now, nonce)).is_ok()
    }

    /// The drive stops and forgets. Its clock begins at the mark, which is up to 16 s ahead of what it
    /// showed.
    fn restart(&mut self) {
        let mark = self.now.plus_ns(self.random.below(16 * SECOND));
        self.window = NonceWindow::new(WindowOptions::default(), mark, self.random.below(u64::MAX));
        self.now = mark;
        for _ in 0..100_000 {
            self.replay();
        }
        // Clients ask what time it is, and begin anew.
        self.now = self.window.clock(self.now);
        self.began = self.now;
        self.under_way.clear();
    }
}

#[test]
fn at_a_million_requests_a_second_nothing_passes_twice_in_bounded_memory() {
    let seconds = std::env::var("NASD_REPLAY_SECONDS").ok();
    let seconds: u64 = seconds.map_or(4, |text| text.parse().expect("seconds, a number"));
    let mut world = World::new(0x5eed);
    for half in 0..2 {
        for _ in 0..seconds * A_SECOND / 2 {
            world.step();
        }
        if half == 0 {
            world.restart();
        }
    }
    let World { window, recorded, replayed, refused_without_need, .. } = world;
    println!(
        "{seconds} s at {A_SECOND} requests a second: {} passed once, {replayed} replays refused, \
         {refused_without_need} refused without need, {} KiB",
        recorded.count,
        window.memory_bytes() >> 10
    );
    assert!(window.memory_bytes() < MEMORY);
    assert!(replayed > seconds * A_SECOND / REPLAYED_OF / 2, "few replays were tried");
    assert!(refused_without_need < recorded.count / 1000, "{refused_without_need} refused in vain");
}
