//! A map of bounded weight that forgets what was not used for longest.

use std::collections::HashMap;
use std::hash::Hash;

const NONE: usize = usize::MAX;

/// One part in so many of the limit is for others than the heaviest thing.
const BESIDE: usize = 8;

#[derive(Debug)]
struct Node<K, V> {
    key: K,
    value: V,
    weight: usize,
    newer: usize,
    older: usize,
}

/// The map. The weights of what it holds sum up to `limit` at most. But one thing that takes all but an eighth of
/// that by itself, or more, stays, and so does an eighth beside it: else whoever uses it and others by turns would
/// have to get it again each time, which is the dearer the heavier it is. Of two such the later one stays.
#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    places: HashMap<K, usize>,
    nodes: Vec<Option<Node<K, V>>>,
    free: Vec<usize>,
    newest: usize,
    oldest: usize,
    weight: usize,
    limit: usize,
    /// The one that stays, or none.
    giant: usize,
}

impl<K: Eq + Hash + Clone, V> Lru<K, V> {
    pub(crate) fn new(limit: usize) -> Self {
        Lru {
            places: HashMap::new(),
            nodes: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            weight: 0,
            limit,
            giant: NONE,
        }
    }

    /// How many things there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// What all weigh together.
    pub(crate) const fn weight(&self) -> usize {
        self.weight
    }

    /// The value, which becomes the newest.
    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        let place = *self.places.get(key)?;
        self.unlink(place);
        self.link_newest(place);
        self.nodes[place].as_ref().map(|node| &node.value)
    }

    /// The value, as old as it was.
    pub(crate) fn peek(&self, key: &K) -> Option<&V> {
        let place = *self.places.get(key)?;
        self.nodes[place].as_ref().map(|node| &node.value)
    }

    /// Puts a value in, as the newest, and forgets the oldest ones while there is too much.
    pub(crate) fn insert(&mut self, key: K, value: V, weight: usize) {
        self.remove(&key);
        let node = Node { key: key.clone(), value, weight, newer: NONE, older: NONE };
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.nodes.push(None);
                self.nodes.len() - 1
            }
        };
        self.nodes[place] = Some(node);
        self.places.insert(key, place);
        self.weight += weight;
        self.link_newest(place);
        self.note_giant(place);
        self.shrink();
    }

    /// Changes the weight of what is there.
    pub(crate) fn reweigh(&mut self, key: &K, weight: usize) {
        let Some(place) = self.places.get(key).copied() else {
            return;
        };
        if let Some(node) = &mut self.nodes[place] {
            self.weight = self.weight - node.weight + weight;
            node.weight = weight;
        }
        self.note_giant(place);
        self.shrink();
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.places.remove(key)?;
        self.unlink(place);
        let node = self.nodes[place].take()?;
        if self.giant == place {
            self.giant = NONE;
        }
        self.free.push(place);
        self.weight -= node.weight;
        Some(node.value)
    }

    fn node(&self, place: usize) -> Option<&Node<K, V>> {
        self.nodes.get(place)?.as_ref()
    }

    /// Takes note of a new weight.
    fn note_giant(&mut self, place: usize) {
        let beside = self.limit / BESIDE;
        let is_giant = self.node(place).is_some_and(|node| node.weight + beside > self.limit);
        if !is_giant && self.giant == place {
            self.giant = NONE;
        }
        if is_giant && self.giant != place {
            let before = self.node(self.giant).map(|node| node.key.clone());
            before.and_then(|key| self.remove(&key));
            self.giant = place;
        }
    }

    fn shrink(&mut self) {
        let giant = self.node(self.giant).map(|node| node.weight + self.limit / BESIDE);
        let allowed = giant.unwrap_or(self.limit);
        while self.weight > allowed && self.places.len() > 1 {
            let oldest = match self.node(self.oldest) {
                Some(node) if self.oldest == self.giant => self.node(node.newer),
                oldest => oldest,
            };
            let Some(key) = oldest.map(|node| node.key.clone()) else {
                return;
            };
            self.remove(&key);
        }
    }

    fn unlink(&mut self, place: usize) {
        let Some(node) = &self.nodes[place] else {
            return;
        };
        let (newer, older) = (node.newer, node.older);
        match self.nodes.get_mut(newer).and_then(Option::as_mut) {
            Some(neighbour) => neighbour.older = older,
            None => self.newest = older,
        }
        match self.nodes.get_mut(older).and_then(Option::as_mut) {
            Some(neighbour) => neighbour.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, place: usize) {
        let previous = self.newest;
        if let Some(node) = &mut self.nodes[place] {
            node.newer = NONE;
            node.older = previous;
        }
        match self.nodes.get_mut(previous).and_then(Option::as_mut) {
            Some(neighbour) => neighbour.newer = place,
            None => self.oldest = place,
        }
        self.newest = place;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut map = Lru::new(3);
        for key in 0..3 {
            map.insert(key, key * 10, 1);
        }
        assert_eq!(map.get(&0), Some(&0));
        map.insert(3, 30, 1);
        assert_eq!(map.get(&1), None);
        assert_eq!(map.get(&0), Some(&0));
        map.reweigh(&0, 3);
        assert_eq!(map.len(), 1);
        map.insert(4, 40, 10);
        assert_eq!((map.len(), map.get(&4)), (1, Some(&40)));
        assert_eq!(map.remove(&4), Some(40));
        assert_eq!((map.len(), map.weight), (0, 0));
    }

    #[test]
    fn what_is_too_heavy_stays_beside_a_few_others() {
        let mut map = Lru::new(80);
        for key in 0..30 {
            map.insert(key, (), 2);
        }
        map.reweigh(&3, 100);
        assert_eq!((map.len(), map.weight()), (6, 110), "and an eighth of the limit");
        for key in 30..60 {
            map.insert(key, (), 2);
            assert!(map.peek(&3).is_some() && map.weight() <= 110);
        }
        assert!(map.peek(&59).is_some() && map.peek(&30).is_none());
        map.insert(60, (), 90);
        assert!(map.peek(&3).is_none() && map.peek(&60).is_some(), "the later one");
        map.reweigh(&60, 50);
        (61..76).for_each(|key| map.insert(key, (), 2));
        assert_eq!(map.weight(), 80, "as before");
        map.insert(77, (), 100);
        map.remove(&77);
        (78..200).for_each(|key| map.insert(key, (), 2));
        assert_eq!(map.weight(), 80);
    }

    #[test]
    fn it_agrees_with_a_list() {
        let mut map = Lru::new(40);
        let mut list: Vec<(u64, usize)> = Vec::new();
        let mut random = 1u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (key, weight) = ((random >> 40) % 20, (random >> 50) as usize % 8 + 1);
            match (random >> 60) % 3 {
                0 => {
                    let found = list.iter().position(|(other, _)| *other == key);
                    assert_eq!(map.get(&key).is_some(), found.is_some());
                    if let Some(position) = found {
                        let entry = list.remove(position);
                        list.push(entry);
                    }
                }
                1 => {
                    map.insert(key, (), weight);
                    list.retain(|(other, _)| *other != key);
                    list.push((key, weight));
                    while list.len() > 1 && list.iter().map(|(_, w)| w).sum::<usize>() > 40 {
                        list.remove(0);
                    }
                }
                _ => {
                    let known = list.iter().any(|(other, _)| *other == key);
                    assert_eq!(map.remove(&key).is_some(), known);
                    list.retain(|(other, _)| *other != key);
                }
            }
            assert_eq!(map.len(), list.len());
        }
    }
}
