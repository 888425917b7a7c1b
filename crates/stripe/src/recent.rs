//! What is known of the objects that were used lately, of a bounded number of them.

use std::collections::HashMap;

use nasd_types::ObjectName;

/// Two generations: when the young one is half of what there may be, it takes the place of the old one.
#[derive(Debug)]
pub(crate) struct Recent<T> {
    most: usize,
    young: HashMap<ObjectName, T>,
    old: HashMap<ObjectName, T>,
}

impl<T: Copy> Recent<T> {
    /// Of at most `most` objects.
    pub(crate) fn new(most: usize) -> Self {
        Recent { most, young: HashMap::new(), old: HashMap::new() }
    }

    /// What is known of an object, which is used by this.
    pub(crate) fn get(&mut self, name: ObjectName) -> Option<T> {
        if let Some(known) = self.young.get(&name) {
            return Some(*known);
        }
        let known = self.old.remove(&name)?;
        self.put(name, known);
        Some(known)
    }

    pub(crate) fn put(&mut self, name: ObjectName, known: T) {
        if self.young.len() >= self.most / 2 && !self.young.contains_key(&name) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name, known);
    }

    pub(crate) fn remove(&mut self, name: ObjectName) {
        self.young.remove(&name);
        self.old.remove(&name);
    }

    pub(crate) fn clear(&mut self) {
        *self = Recent::new(self.most);
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}
