//! A set of files, in little memory: most clients have to do with a few, some with very many.

use std::collections::HashSet;
use std::hash::Hash;
use std::mem;

/// So many are looked through one by one.
const FEW: usize = 16;

/// A set of files.
#[derive(Clone, Debug)]
pub(crate) enum Files<F> {
    One(F),
    /// Not more than [`FEW`], each once, those that were added first more or less before the others.
    Few(Vec<F>),
    /// Boxed, as a client with few files is to take as little as that.
    Many(Box<Many<F>>),
}

/// Two generations, of which the first is older.
#[derive(Clone, Debug)]
pub(crate) struct Many<F> {
    old: HashSet<F>,
    young: HashSet<F>,
}

impl<F> Default for Files<F> {
    fn default() -> Self {
        Files::Few(Vec::new())
    }
}

impl<F: Copy + Eq + Hash> Files<F> {
    /// Whether it was not there yet. It is one that was added last then in any case.
    pub(crate) fn add(&mut self, file: F) -> bool {
        match self {
            Files::One(other) if *other == file => return false,
            Files::One(other) => *self = Files::Few(vec![*other, file]),
            Files::Few(files) if files.is_empty() => *self = Files::One(file),
            Files::Few(files) => {
                if let Some(place) = files.iter().position(|other| *other == file) {
                    files[place..].rotate_left(1);
                    return false;
                }
                if files.len() < FEW {
                    files.push(file);
                } else {
                    let young = files.iter().copied().chain([file]).collect();
                    let old = HashSet::new();
                    *self = Files::Many(Box::new(Many { old, young }));
                }
            }
            Files::Many(many) => {
                let was_old = !many.old.is_empty() && many.old.remove(&file);
                return many.young.insert(file) && !was_old;
            }
        }
        true
    }

    /// Whether it was there.
    pub(crate) fn remove(&mut self, file: F) -> bool {
        match self {
            Files::One(other) if *other == file => *self = Files::default(),
            Files::One(_) => return false,
            Files::Few(files) => {
                let Some(place) = files.iter().position(|other| *other == file) else {
                    return false;
                };
                files.remove(place);
                if let [last] = files[..] {
                    *self = Files::One(last);
                }
            }
            Files::Many(many) => {
                let was_there = many.young.remove(&file) || many.old.remove(&file);
                // Not at once when it is one less: the next one may be added soon.
                if many.len() <= FEW / 2 {
                    *self = Files::Few(many.old.iter().chain(&many.young).copied().collect());
                }
                return was_there;
            }
        }
        true
    }

    /// So many at most, of those that were added first, more or less. They count as added last from now on.
    pub(crate) fn oldest(&mut self, most: usize) -> Vec<F> {
        match self {
            Files::One(file) => Vec::from([*file]).into_iter().take(most).collect(),
            Files::Few(files) => {
                let count = most.min(files.len());
                let oldest = files[..count].to_vec();
                files.rotate_left(count);
                oldest
            }
            Files::Many(many) => {
                if many.old.is_empty() {
                    many.old = mem::take(&mut many.young);
                }
                let oldest: Vec<F> = many.old.iter().copied().take(most).collect();
                for file in &oldest {
                    many.old.remove(file);
                    many.young.insert(*file);
                }
                oldest
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Files::One(_) => 1,
            Files::Few(files) => files.len(),
            Files::Many(many) => many.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn to_vec(&self) -> Vec<F> {
        match self {
            Files::One(file) => vec![*file],
            Files::Few(files) => files.clone(),
            Files::Many(many) => many.old.iter().chain(&many.young).copied().collect(),
        }
    }
}

impl<F> Many<F> {
    fn len(&self) -> usize {
        self.old.len() + self.young.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beside a set of the library's, which grows and shrinks beyond what are few.
    #[test]
    fn it_is_a_set() {
        let (mut files, mut model) = (Files::default(), HashSet::new());
        let mut number: u64 = 1;
        for round in 0..40_000_u64 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let file = (number >> 33) % (3 * FEW as u64);
            // Mostly added to for a while, then mostly taken from.
            let is_added = (number >> 50) % 8 < if round / 200 % 2 == 0 { 6 } else { 2 };
            if is_added {
                assert_eq!(files.add(file), model.insert(file));
            } else {
                assert_eq!(files.remove(file), model.remove(&file));
            }
            if (number >> 40).is_multiple_of(5) {
                let oldest = files.oldest((number >> 55) as usize % 5);
                assert!(oldest.len() <= 4 && oldest.iter().all(|file| model.contains(file)));
            }
            let told = files.to_vec();
            assert_eq!((told.len(), files.is_empty()), (model.len(), model.is_empty()));
            assert_eq!(files.len(), model.len());
            assert_eq!(told.into_iter().collect::<HashSet<_>>(), model);
            assert_eq!(matches!(files, Files::One(_)), model.len() == 1);
            assert!(model.len() <= FEW || matches!(files, Files::Many(_)));
            assert!(model.len() > FEW / 2 || !matches!(files, Files::Many(_)));
        }
    }

    #[test]
    fn those_that_were_added_first_are_told_first() {
        for count in [1, 5, 100, 1000] {
            let mut files = Files::default();
            for file in 0..count {
                files.add(file);
            }
            let mut told = files.oldest(count as usize / 3);
            // One that is added again is none of those.
            let again = (0..count).rfind(|file| !told.contains(file)).unwrap();
            files.add(again);
            for file in count..count + count / 3 {
                files.add(file);
            }
            told.extend(files.oldest(count as usize - told.len() - 1));
            assert!(!told.contains(&again), "{count}");
            assert!(told.iter().all(|file| *file < count), "{count}");
            assert_eq!(told.iter().collect::<HashSet<_>>().len(), told.len());
        }
    }
}
