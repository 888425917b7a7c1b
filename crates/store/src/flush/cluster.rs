//! Lists of objects that lie together: in which order a flush places objects, and where.
//!
//! `nearby_object` makes lists: "proximity in the list encourages proximity on the media"
//! (CMU-CS-97-118 section 2.3). So an object goes behind the one that it names, and behind what that
//! one names if that has no place itself, since it is empty or kept in the tree. Within a flush, objects are
//! placed in the order of their lists.

use std::collections::{BTreeMap, BTreeSet};

use nasd_types::{ObjectId, ObjectName};

use super::batch::Taken;
use crate::{Store, StoreError};

/// How far a list is followed to find one that has a place.
const STEPS_MAX: usize = 16;

/// The objects of a flush: what each names as nearby, and the block behind its place, once it has one.
pub(super) type Placed = BTreeMap<ObjectName, (ObjectId, Option<u64>)>;

/// Where an object's blocks should go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Behind the object's own blocks.
    Behind(u64),
    /// Behind those of its list.
    Near(u64),
    /// It is in a list of which nothing has a place.
    First,
    /// It does not matter.
    Anywhere,
}

/// The order in which objects are placed, by their numbers in `objects` (name and nearby object): those
/// that name one of the others come behind it.
pub(super) fn list_order(objects: &[(ObjectName, ObjectId)]) -> Vec<usize> {
    let numbers: BTreeMap<ObjectName, usize> =
        objects.iter().enumerate().map(|(number, (name, _))| (*name, number)).collect();
    let mut done = vec![false; objects.len()];
    let mut order = Vec::with_capacity(objects.len());
    for first in 0..objects.len() {
        let mut chain = Vec::new();
        let mut next = Some(first);
        while let Some(number) = next.filter(|number| !done[*number]) {
            // Marked already here, so that a circle ends.
            done[number] = true;
            chain.push(number);
            let (name, nearby) = objects[number];
            next = numbers.get(&ObjectName { object: nearby, ..name }).copied();
        }
        order.extend(chain.into_iter().rev());
    }
    order
}

impl Store {
    /// Where an object's blocks should go: behind those placed last, else behind its last extent, else
    /// where its list is.
    pub(super) fn wish(&self, one: &Taken, placed: &Placed) -> Result<Wish, StoreError> {
        if let Some(end) = one.object.placed_end() {
            return Ok(Wish::Behind(end));
        }
        let name = one.object.name;
        if one.was_in_tree
            && let Some(end) = self.last_end(name)?
        {
            return Ok(Wish::Behind(end));
        }
        let mut nearby = one.record.nearby_object;
        if nearby == ObjectId(0) {
            return Ok(Wish::Anywhere);
        }
        let mut seen = BTreeSet::from([name.object]);
        for _ in 0..STEPS_MAX {
            if nearby == ObjectId(0) || !seen.insert(nearby) {
                break;
            }
            let neighbour = ObjectName { object: nearby, ..name };
            let here = placed.get(&neighbour);
            if let Some(&(_, Some(end))) = here {
                return Ok(Wish::Near(end));
            }
            if let Some(end) = self.last_end(neighbour)? {
                return Ok(Wish::Near(end));
            }
            // It may not be in the tree before this flush ends.
            nearby = match here {
                Some((next, _)) => *next,
                None => match self.metadata.object(neighbour)? {
                    Some(record) => record.nearby_object,
                    None => break,
                },
            };
        }
        Ok(Wish::First)
    }

    fn last_end(&self, name: ObjectName) -> Result<Option<u64>, StoreError> {
        // Its last blocks may not be in the tree yet.
        let placed = self.table.get(name).ok().and_then(|object| object.placed_end());
        if placed.is_some() {
            return Ok(placed);
        }
        let last = self.metadata.last_extent(name)?;
        Ok(last.map(|extent| extent.run().end()))
    }
}

#[cfg(test)]
mod tests {
    use nasd_types::PartitionId;

    use super::*;

    #[test]
    fn lists_are_placed_from_their_heads_on_and_circles_end() {
        let object = |number| ObjectName { partition: PartitionId(1), object: ObjectId(number) };
        let order = |objects: &[(u64, u64)]| -> Vec<u64> {
            let objects: Vec<_> =
                objects.iter().map(|&(n, near)| (object(n), ObjectId(near))).collect();
            list_order(&objects).into_iter().map(|number| objects[number].0.object.0).collect()
        };
        assert_eq!(order(&[(1, 0), (2, 1), (3, 2)]), [1, 2, 3]);
        assert_eq!(order(&[(1, 2), (2, 3), (3, 0), (4, 9)]), [3, 2, 1, 4]);
        assert_eq!(order(&[(1, 3), (2, 1), (3, 2)]), [2, 3, 1]);
        assert_eq!(order(&[(1, 1), (2, 1)]), [1, 2]);
        assert_eq!(order(&[]), []);
    }
}
