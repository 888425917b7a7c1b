//! A client's side of one file: whether the copy that it has may be believed.

use super::rules::Version;

/// One client's copy of a file.
///
/// Answers and breaks come by different ways and in any order. Calls that were made before [`Copy::lapsed`] must not be
/// answered to [`Copy::granted`] or [`Copy::stored`] as promises after it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Copy {
    promised: Option<Version>,
    contents: Option<Version>,
    /// Nothing up to this version is believed, whenever it comes.
    broken: Version,
}

impl Copy {
    /// Whether the copy may be believed without asking.
    pub fn may_read(&self) -> bool {
        self.promised.is_some() && self.promised == self.contents
    }

    /// The version that the client holds a callback for.
    pub const fn promised(&self) -> Option<Version> {
        self.promised
    }

    /// The manager has promised to tell of changes after this version.
    pub fn granted(&mut self, version: Version) {
        if version > self.broken {
            self.promised = Some(version);
            if self.contents != Some(version) {
                self.contents = None;
            }
        }
    }

    /// All of the file was read under this version.
    pub fn fetched(&mut self, version: Version) {
        if self.promised == Some(version) {
            self.contents = Some(version);
        }
    }

    /// The client begins a store: what it holds is to be what the file becomes.
    pub fn writes(&mut self) {
        self.promised = None;
        self.contents = None;
    }

    /// The store under this version is done; with a promise, what was stored is what the file is.
    pub fn stored(&mut self, version: Version, is_promised: bool) {
        if is_promised && version + 1 > self.broken {
            self.promised = Some(version + 1);
            self.contents = Some(version + 1);
        }
    }

    /// The manager tells that nothing up to this version is so any more.
    pub fn broken(&mut self, version: Version) {
        self.broken = self.broken.max(version);
        if self.promised.is_some_and(|promised| promised <= version) {
            self.promised = None;
        }
    }

    /// The client's lease is over, or another manager serves: nothing is promised any more.
    pub const fn lapsed(&mut self) {
        self.promised = None;
    }
}
