//! A client's side of one file: whether the copy that it has may be believed.

use super::rules::Version;

/// When something was asked for: answers to what was asked before a store, or before a lease was over, promise nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Era(u64);

/// One client's copy of a file. Answers and breaks come by different ways and in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CachedCopy {
    promised: Option<Version>,
    contents: Option<Version>,
    /// Nothing below this version is believed, whenever it comes.
    least: Version,
    era: Era,
    /// It has asked to store, and is not answered yet.
    asks_to_store: bool,
}

impl CachedCopy {
    /// Whether the copy may be believed without asking.
    pub fn may_read(&self) -> bool {
        self.promised.is_some() && self.promised == self.contents
    }

    /// The version that the client holds a callback for.
    pub const fn promised(&self) -> Option<Version> {
        self.promised
    }

    /// For an answer to what is asked now.
    pub const fn era(&self) -> Era {
        self.era
    }

    /// The manager has promised to tell of changes after this version. Whether that is still worth something: otherwise
    /// nothing else is to be believed of the answer either.
    pub fn granted(&mut self, asked: Era, version: Version) -> bool {
        let is_good = asked == self.era && version >= self.least && !self.asks_to_store;
        if is_good {
            self.promised = Some(version);
            if self.contents != Some(version) {
                self.contents = None;
            }
        }
        is_good
    }

    /// All of the file was read under this version.
    pub fn fetched(&mut self, version: Version) {
        if self.promised == Some(version) {
            self.contents = Some(version);
        }
    }

    /// The client is about to ask for a store: what it holds is to be what the file becomes. Its callback has ended. Before
    /// [`CachedCopy::answered_to_write`] nothing is promised: the manager ends what it promises before it hears of this.
    pub const fn writes(&mut self) {
        self.begin_era();
        self.contents = None;
        self.asks_to_store = true;
    }

    /// The manager has answered that the client may write, or that it may not. What was asked for before that promises nothing.
    pub const fn answered_to_write(&mut self) {
        self.begin_era();
        self.asks_to_store = false;
    }

    /// Whether the client has asked to store, and is not answered yet.
    pub const fn asks_to_store(&self) -> bool {
        self.asks_to_store
    }

    /// The store under this version is done, whose return was asked for in that era; with a promise, what was stored is what the file
    /// is. Whether the promise is still worth something.
    pub fn stored(&mut self, asked: Era, version: Version, is_promised: bool) -> bool {
        let next = version.saturating_add(1);
        let is_good = asked == self.era && is_promised && next >= self.least;
        if is_good {
            self.promised = Some(next);
            self.contents = Some(next);
        }
        is_good
    }

    /// The manager tells that nothing up to this version is so any more.
    pub fn broken(&mut self, version: Version) {
        self.least = self.least.max(version.saturating_add(1));
        if self.promised.is_some_and(|promised| promised < self.least) {
            self.promised = None;
        }
    }

    /// The client's lease is over, or another manager serves: nothing is promised any more.
    pub const fn lapsed(&mut self) {
        self.begin_era();
    }

    const fn begin_era(&mut self) {
        self.promised = None;
        self.era = Era(self.era.0.wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy that was read under version 2.
    fn copy() -> CachedCopy {
        let mut copy = CachedCopy::default();
        copy.granted(copy.era(), 2);
        copy.fetched(2);
        assert!(copy.may_read());
        copy
    }

    #[test]
    fn what_was_asked_for_before_a_store_or_a_lapse_promises_nothing_after_it() {
        for ends in [CachedCopy::writes, CachedCopy::answered_to_write, CachedCopy::lapsed] {
            let mut copy = copy();
            let asked = copy.era();
            ends(&mut copy);
            copy.granted(asked, 2);
            copy.stored(asked, 3, true);
            assert_eq!(copy.promised(), None);
        }
    }

    #[test]
    fn what_is_asked_for_beside_the_beginning_of_a_store_promises_nothing() {
        let mut copy = copy();
        copy.writes();
        // It may have come to the manager before the other question, which ends it there.
        let asked = copy.era();
        assert!(!copy.granted(asked, 2) && copy.asks_to_store());
        copy.lapsed();
        assert!(!copy.granted(copy.era(), 2));
        copy.answered_to_write();
        assert!(!copy.granted(asked, 2) && copy.granted(copy.era(), 2));
    }

    #[test]
    fn a_copy_is_good_again_when_its_version_is_promised_again() {
        let mut copy = copy();
        copy.lapsed();
        assert!(!copy.may_read());
        copy.granted(copy.era(), 2);
        assert!(copy.may_read());
        copy.granted(copy.era(), 4);
        assert!(!copy.may_read());
    }

    #[test]
    fn a_break_ends_what_comes_after_it_as_well() {
        let mut copy = copy();
        copy.broken(3);
        copy.granted(copy.era(), 2);
        assert!(!copy.may_read());
        let asked = copy.era();
        copy.stored(asked, 3, true);
        assert!(copy.may_read());
        copy.broken(5);
        copy.stored(asked, 3, true);
        assert!(!copy.may_read());
    }
}
