//! What gives way when there is no room: two queues ("2Q", Johnson and Shasha, VLDB 1994). What comes for the first time
//! goes through a short queue, first in, first out; what comes again soon after it has left that
//! one goes to the long queue, where the least recently used gives way. So whoever reads much once displaces little.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;

/// A part of the capacity that new things may take, before they give way to what is used often.
const RECENT_PART: u64 = 4;
/// How many of those that left are remembered, at least.
const LEAST_GHOSTS: usize = 64;

struct Place {
    is_frequent: bool,
    turn: u64,
    weight: u64,
}

/// Things of some weight, by how soon they give way.
pub struct TwoQueue<K> {
    capacity: u64,
    places: HashMap<K, Place>,
    recent: BTreeMap<u64, K>,
    frequent: BTreeMap<u64, K>,
    recent_weight: u64,
    weight: u64,
    /// Those that left the short queue, by when.
    ghosts: HashMap<K, u64>,
    ghost_turns: VecDeque<(u64, K)>,
    turn: u64,
}

impl<K: Copy + Eq + Hash> TwoQueue<K> {
    /// Nothing yet, for things that weigh `capacity` altogether.
    pub fn new(capacity: u64) -> Self {
        TwoQueue {
            capacity,
            places: HashMap::new(),
            recent: BTreeMap::new(),
            frequent: BTreeMap::new(),
            recent_weight: 0,
            weight: 0,
            ghosts: HashMap::new(),
            ghost_turns: VecDeque::new(),
            turn: 0,
        }
    }

    /// What all of them weigh.
    pub fn weight(&self) -> u64 {
        self.weight
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether it is there.
    pub fn contains(&self, key: &K) -> bool {
        self.places.contains_key(key)
    }

    /// Adds it, or gives it another weight.
    pub fn insert(&mut self, key: K, weight: u64) {
        if let Some(place) = self.places.get_mut(&key) {
            let before = std::mem::replace(&mut place.weight, weight);
            self.weight = self.weight - before + weight;
            if !place.is_frequent {
                self.recent_weight = self.recent_weight - before + weight;
            }
            return;
        }
        let came_back = self.ghosts.remove(&key).is_some();
        self.add(key, weight, came_back);
    }

    /// Adds it where those are that are used often: the last one to give way.
    pub fn insert_frequent(&mut self, key: K, weight: u64) {
        self.remove(&key);
        self.add(key, weight, true);
    }

    fn add(&mut self, key: K, weight: u64, is_frequent: bool) {
        self.turn += 1;
        self.places.insert(key, Place { is_frequent, turn: self.turn, weight });
        self.weight += weight;
        if is_frequent {
            self.frequent.insert(self.turn, key);
        } else {
            self.recent.insert(self.turn, key);
            self.recent_weight += weight;
        }
    }

    /// It was used. In the short queue that changes nothing: a file that is read once is used many times in a row.
    pub fn touch(&mut self, key: &K) {
        let Some(place) = self.places.get_mut(key).filter(|place| place.is_frequent) else {
            return;
        };
        self.turn += 1;
        let before = std::mem::replace(&mut place.turn, self.turn);
        if let Some(key) = self.frequent.remove(&before) {
            self.frequent.insert(self.turn, key);
        }
    }

    /// Takes it out; its weight, if it was there.
    pub fn remove(&mut self, key: &K) -> Option<u64> {
        let place = self.places.remove(key)?;
        self.weight -= place.weight;
        if place.is_frequent {
            self.frequent.remove(&place.turn);
        } else {
            self.recent.remove(&place.turn);
            self.recent_weight -= place.weight;
        }
        Some(place.weight)
    }

    /// Takes out what is to give way first.
    pub fn victim(&mut self) -> Option<K> {
        let from_recent = self.recent_weight > self.capacity / RECENT_PART;
        let recent = self.recent.first_key_value().map(|(_, key)| *key);
        let frequent = self.frequent.first_key_value().map(|(_, key)| *key);
        let key = if from_recent { recent.or(frequent) } else { frequent.or(recent) }?;
        if Some(key) == recent {
            self.remember(key);
        }
        self.remove(&key);
        Some(key)
    }

    /// Puts back a victim that can't go before others have: behind all of them.
    pub fn put_back(&mut self, key: K, weight: u64) {
        self.ghosts.remove(&key);
        self.insert_frequent(key, weight);
    }

    fn remember(&mut self, key: K) {
        self.turn += 1;
        self.ghosts.insert(key, self.turn);
        self.ghost_turns.push_back((self.turn, key));
        let most = LEAST_GHOSTS.max(self.places.len() / 2);
        while self.ghost_turns.len() > most {
            let Some((turn, oldest)) = self.ghost_turns.pop_front() else { break };
            if self.ghosts.get(&oldest) == Some(&turn) {
                self.ghosts.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds it as a cache of `capacity` would; what gave way.
    fn add(queue: &mut TwoQueue<u32>, key: u32) {
        while queue.weight() + 1 > queue.capacity {
            queue.victim().expect("there is something");
        }
        queue.insert(key, 1);
    }

    #[test]
    fn what_is_used_again_stays_beside_a_scan() {
        let mut queue = TwoQueue::new(100);
        (0..200).for_each(|key| add(&mut queue, key));
        // Of the first ones some are remembered: they come back to stay.
        let come_back: Vec<u32> = (60..100).collect();
        come_back.iter().for_each(|key| add(&mut queue, *key));
        for key in 1000..10_000 {
            add(&mut queue, key);
        }
        assert!(come_back.iter().all(|key| queue.contains(key)));
        assert_eq!((queue.weight(), queue.len()), (100, 100));
        assert!(queue.ghosts.len() <= LEAST_GHOSTS && queue.ghost_turns.len() <= LEAST_GHOSTS);
    }

    #[test]
    fn the_least_recently_used_gives_way() {
        let mut queue = TwoQueue::new(3);
        (0..3).for_each(|key| queue.insert_frequent(key, 1));
        queue.touch(&0);
        assert_eq!(queue.victim(), Some(1));
        assert_eq!([queue.remove(&2), queue.remove(&2)], [Some(1), None]);
        queue.insert(0, 5);
        assert_eq!((queue.weight(), queue.victim(), queue.victim()), (5, Some(0), None));
    }
}
