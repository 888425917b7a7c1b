//! A volume's quota by escrow: bytes are set aside when somebody is allowed to extend a file, and accounted for by
//! the file's real length when he is done (CMU-CS-97-118, section 3.2). Pure: no sockets, no clock.
//!
//! Clients extend files at the drives, and nobody watches. So a capability to write ends at some byte, and all bytes up to there
//! count as taken as long as it may be used. What was taken indeed is known when it is over:
//!
//! > used + escrowed <= limit, and the files together never have more than used + escrowed.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// What somebody wants to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The file's length as it is counted now, in bytes.
    pub length: u64,
    /// Where the capability has to end at least for it to be of use.
    pub least_end: u64,
    /// Where it would best end: not below that.
    pub best_end: u64,
}

/// What he gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// The capability may end there. It counts until [`Escrow::settle`].
    Until(u64),
    /// The volume is full: what others have set aside would not do, either.
    Full,
}

/// What those get who have asked. Who is not among them waits: all that is left is set aside for others, and some of it may come back.
pub type Answers<F> = Vec<(F, Given)>;

/// The account of a volume, `F` being what names a file. One capability at a time extends a file.
#[derive(Clone, Debug)]
pub struct Escrow<F> {
    limit: u64,
    /// Bytes of all files, by the lengths that were last known.
    used: u64,
    escrowed: u64,
    grants: HashMap<F, Grant>,
    waiting: VecDeque<(F, Wanted)>,
}

/// Room that is set aside for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grant {
    /// The length that is in `used`.
    length: u64,
    end: u64,
}

/// Of what is free beyond what somebody needs, he gets one part of so many: others will want some, too.
const SHARES: u64 = 4;

impl<F: Copy + Eq + Hash> Escrow<F> {
    /// A volume that may have so many bytes, and has so many, none of which anybody can add to at the moment.
    pub fn new(limit: u64, used: u64) -> Escrow<F> {
        let (grants, waiting) = (HashMap::new(), VecDeque::new());
        Escrow { limit, used, escrowed: 0, grants, waiting }
    }

    /// Bytes of all files, as far as is known.
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// Bytes that are set aside beyond those.
    pub const fn escrowed(&self) -> u64 {
        self.escrowed
    }

    /// Most bytes.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that nobody has or may take.
    pub const fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used).saturating_sub(self.escrowed)
    }

    /// Those who wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether somebody may extend this file, or could until it is settled.
    pub fn has(&self, file: F) -> bool {
        self.grants.contains_key(&file)
    }

    /// Whose escrow should be called back for those who wait, the largest first; none if nobody waits.
    pub fn to_recall(&self) -> Vec<F> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let sizes = self.grants.iter().map(|(file, grant)| (grant.end - grant.length, *file));
        let mut files: Vec<(u64, F)> = sizes.filter(|(bytes, _)| *bytes > 0).collect();
        files.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        files.into_iter().map(|(_, file)| file).collect()
    }

    /// Somebody wants to write a file. Who has room for it already gets more, if there is some; who waits for it keeps his place.
    pub fn ask(&mut self, file: F, wanted: Wanted) -> Answers<F> {
        match self.waiting.iter_mut().find(|(other, _)| *other == file) {
            Some((_, before)) => *before = wanted,
            None => self.waiting.push_back((file, wanted)),
        }
        self.serve()
    }

    /// Nobody waits for this file any more.
    pub fn give_up(&mut self, file: F) -> Answers<F> {
        self.waiting.retain(|(other, _)| *other != file);
        self.serve()
    }

    /// The capability is over, and the file has this length.
    pub fn settle(&mut self, file: F, length: u64) -> Answers<F> {
        if let Some(grant) = self.grants.remove(&file) {
            self.escrowed -= grant.end - grant.length;
            self.count(file, grant.length, length);
        }
        self.serve()
    }

    /// A file was made longer or shorter otherwise, or removed, which is a length of 0. Where somebody may extend it `from` is
    /// what it was when he got that. Whether there is room for what is longer is asked before ([`Escrow::free`]).
    pub fn resized(&mut self, file: F, from: u64, to: u64) -> Answers<F> {
        let mut from = from;
        if let Some(grant) = self.grants.get_mut(&file) {
            self.escrowed -= grant.end - grant.length;
            from = grant.length;
            *grant = Grant { length: to, end: grant.end.max(to) };
            self.escrowed += grant.end - grant.length;
        }
        self.count(file, from, to);
        self.serve()
    }

    /// So many bytes more are there than was known: of files that were not counted yet.
    pub fn counted(&mut self, bytes: u64) {
        self.used = self.used.saturating_add(bytes);
    }

    fn count(&mut self, file: F, from: u64, to: u64) {
        self.used = self.used.saturating_sub(from).saturating_add(to);
        let its = self.waiting.iter_mut().filter(|(other, _)| *other == file);
        its.for_each(|(_, wanted)| wanted.length = to);
    }

    /// Another limit; it may be below what is used.
    pub fn set_limit(&mut self, limit: u64) -> Answers<F> {
        self.limit = limit;
        self.serve()
    }

    /// Answers those who wait, in their order, as far as can be: nobody gets what somebody before him waits for.
    fn serve(&mut self) -> Answers<F> {
        let mut given = Vec::new();
        let mut still = VecDeque::new();
        for (file, wanted) in std::mem::take(&mut self.waiting) {
            match self.give(file, wanted, still.is_empty()) {
                Some(answer) => given.push((file, answer)),
                None => still.push_back((file, wanted)),
            }
        }
        self.waiting = still;
        given
    }

    /// What somebody gets; nothing if he waits.
    fn give(&mut self, file: F, wanted: Wanted, is_first: bool) -> Option<Given> {
        let there = self.grants.get(&file).copied();
        let grant = there.unwrap_or(Grant { length: wanted.length, end: wanted.length });
        let (need, free) = (wanted.least_end.saturating_sub(grant.end), self.free());
        if need == 0 || (is_first && need <= free) {
            let best = wanted.best_end.saturating_sub(wanted.least_end.max(grant.end));
            let more = if need == 0 { 0 } else { best.min((free - need) / SHARES) };
            let end = grant.end + need + more;
            self.escrowed += need + more;
            self.grants.insert(file, Grant { end, ..grant });
            return Some(Given::Until(end));
        }
        // What is his own does not come back before he is done.
        let own = grant.end - grant.length;
        let most = self.limit.saturating_sub(self.used).saturating_sub(own);
        (need > most).then_some(Given::Full)
    }
}
