//! A set of files, in little memory: most clients have to do with a few, some with very many.

use std::collections::HashSet;
use std::hash::Hash;

/// So many are looked through one by one.
const FEW: usize = 16;

/// A set of files.
#[derive(Clone, Debug)]
pub(crate) enum Files<F> {
    One(F),
    /// Not more than [`FEW`], in any order, each once.
    Few(Vec<F>),
    #[expect(
        clippy::box_collection,
        reason = "a client with few files is to take as little as that"
    )]
    Many(Box<HashSet<F>>),
}

impl<F> Default for Files<F> {
    fn default() -> Self {
        Files::Few(Vec::new())
    }
}

impl<F: Copy + Eq + Hash> Files<F> {
    pub(crate) fn add(&mut self, file: F) {
        match self {
            Files::One(other) if *other == file => {}
            Files::One(other) => *self = Files::Few(vec![*other, file]),
            Files::Few(files) if files.contains(&file) => {}
            Files::Few(files) if files.is_empty() => *self = Files::One(file),
            Files::Few(files) if files.len() < FEW => files.push(file),
            Files::Few(files) => {
                *self = Files::Many(Box::new(files.iter().copied().chain([file]).collect()));
            }
            Files::Many(files) => drop(files.insert(file)),
        }
    }

    pub(crate) fn remove(&mut self, file: F) {
        match self {
            Files::One(other) if *other == file => *self = Files::default(),
            Files::One(_) => {}
            Files::Few(files) => {
                if let Some(place) = files.iter().position(|other| *other == file) {
                    files.swap_remove(place);
                }
                if let [last] = files[..] {
                    *self = Files::One(last);
                }
            }
            Files::Many(files) => {
                files.remove(&file);
                // Not at once when it is one less: the next one may be added soon.
                if files.len() <= FEW / 2 {
                    *self = Files::Few(files.iter().copied().collect());
                }
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Files::Few(files) if files.is_empty())
    }

    pub(crate) fn to_vec(&self) -> Vec<F> {
        match self {
            Files::One(file) => vec![*file],
            Files::Few(files) => files.clone(),
            Files::Many(files) => files.iter().copied().collect(),
        }
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
                files.add(file);
                model.insert(file);
            } else {
                files.remove(file);
                model.remove(&file);
            }
            let told = files.to_vec();
            assert_eq!((told.len(), files.is_empty()), (model.len(), model.is_empty()));
            assert_eq!(told.into_iter().collect::<HashSet<_>>(), model);
            assert_eq!(matches!(files, Files::One(_)), model.len() == 1);
            assert!(model.len() <= FEW || matches!(files, Files::Many(_)));
            assert!(model.len() > FEW / 2 || !matches!(files, Files::Many(_)));
        }
    }
}
