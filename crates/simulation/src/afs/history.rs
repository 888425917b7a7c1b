//! What clients have done, in order.

use std::collections::BTreeMap;
use std::time::Duration;

use super::names::{self, Action, Operation, Target, Verdict};
use super::registers::{FileHistory, Read, Span, Store, Value};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Of each file.
    files: Vec<FileHistory>,
    names: Vec<Operation>,
    /// Files that were made by a name and are stored, and when that was known.
    new: BTreeMap<Target, u64>,
    /// Rises whenever anything begins or ends.
    moments: u64,
    values: Value,
    /// Operations that have ended well, and others.
    pub(crate) done: u64,
    pub(crate) failed: u64,
    /// For which there was no room.
    pub(crate) refused: u64,
}

/// A store that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Storing {
    file: usize,
    pub(crate) value: Value,
    pub(crate) begun: Duration,
}

impl History {
    pub(crate) fn new(files: usize) -> History {
        History { files: vec![FileHistory::default(); files], ..History::default() }
    }

    /// A moment, after all that were before.
    pub(crate) fn moment(&mut self) -> u64 {
        self.moments += 1;
        self.moments
    }

    /// Somebody begins to store a file.
    pub(crate) fn store(&mut self, file: usize, now: Duration) -> Storing {
        self.values += 1;
        let (value, span) = (self.values, Span { begun: self.moment(), ended: None });
        self.files[file].stores.insert(value, Store { span, may_be_half: true });
        Storing { file, value, begun: now }
    }

    /// It is stored. What took as long as `slow` may have been begun anew.
    pub(crate) fn stored(&mut self, storing: Storing, now: Duration, slow: Duration) {
        let moment = self.moment();
        self.done += 1;
        if let Some(store) = self.files[storing.file].stores.get_mut(&storing.value) {
            store.span.ended = Some(moment);
            store.may_be_half = now - storing.begun >= slow;
        }
    }

    /// There was no room for it. Nothing of it is stored then, unless it was begun anew: what it had stored before that may be.
    pub(crate) fn is_refused(&mut self, storing: Storing, is_begun_once: bool) {
        self.done += 1;
        if is_begun_once {
            self.files[storing.file].stores.remove(&storing.value);
        }
    }

    /// Whoever has made a file has stored it.
    pub(crate) fn new_is_stored(&mut self, file: Target) {
        let moment = self.moment();
        self.done += 1;
        self.new.entry(file).or_insert(moment);
    }

    /// Whether a file that somebody has made was stored before a moment.
    pub(crate) fn was_new_stored(&self, file: Target, begun: u64) -> bool {
        self.new.get(&file).is_some_and(|ended| *ended < begun)
    }

    /// A file was read, which began at a moment.
    pub(crate) fn read(&mut self, file: usize, begun: u64, who: String, blocks: Vec<Value>) {
        let span = Span { begun, ended: Some(self.moment()) };
        self.done += 1;
        self.files[file].reads.push(Read { span, who, blocks });
    }

    /// Something was done with names, which began at a moment. Of a change that may not have happened it is said when it begins, and again when
    /// more is known.
    pub(crate) fn named(&mut self, begun: u64, who: String, action: Action) {
        let span = Span { begun, ended: Some(self.moment()) };
        self.done += 1;
        self.names.retain(|operation| operation.span.begun != begun);
        self.names.push(Operation { span, who, action });
    }

    /// A change of names begins.
    pub(crate) fn may(&mut self, who: String, action: Action) -> u64 {
        let begun = self.moment();
        self.names.push(Operation { span: Span { begun, ended: None }, who, action });
        begun
    }

    /// Something has failed.
    pub(crate) fn fails(&mut self) {
        self.failed += 1;
    }

    /// Whether all was as it must be.
    ///
    /// # Errors
    /// What was not.
    pub(crate) fn check(&self) -> Result<Verdict, String> {
        for (number, file) in self.files.iter().enumerate() {
            file.check().map_err(|why| format!("file {number}: {why}"))?;
        }
        names::check(self.names.clone())
    }
}
