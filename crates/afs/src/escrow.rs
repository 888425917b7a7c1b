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
    /// The capability may end there: nothing beyond the file's length is set aside if that is as long.
    Until(u64),
    /// All that is left is set aside for others, and some of it may come back: it is answered by [`Escrow::settle`] and the like.
    Wait,
    /// The volume is full: what others have set aside would not do, either.
    Full,
}

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

    /// Whose escrow should be called back for those who wait, the largest first; none if nobody waits.
    pub fn to_recall(&self) -> Vec<F> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let mut files: Vec<(u64, F)> =
            self.grants.iter().map(|(file, grant)| (grant.end - grant.length, *file)).collect();
        files.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        files.into_iter().map(|(_, file)| file).collect()
    }

    /// Somebody wants to write a file. Who has room for it already gets more, if there is some.
    pub fn ask(&mut self, file: F, wanted: Wanted) -> Given {
        self.waiting.retain(|(other, _)| *other != file);
        let is_first = self.waiting.is_empty();
        let given = self.give(file, wanted, is_first);
        if given == Given::Wait {
            self.waiting.push_back((file, wanted));
        }
        given
    }

    /// Nobody waits for this file any more. Others may have what they wait for.
    pub fn give_up(&mut self, file: F) -> Vec<(F, Given)> {
        self.waiting.retain(|(other, _)| *other != file);
        self.serve()
    }

    /// The capability is over, and the file has this length. Tells what those get who wait.
    pub fn settle(&mut self, file: F, length: u64) -> Vec<(F, Given)> {
        if let Some(grant) = self.grants.remove(&file) {
            self.escrowed -= grant.end - grant.length;
            self.count(file, grant.length, length);
        }
        self.serve()
    }

    /// A file was made longer or shorter otherwise, or removed, which is a length of 0. Where somebody may extend it `from` is
    /// what it was when he got that. Tells what those get who wait.
    pub fn resized(&mut self, file: F, from: u64, to: u64) -> Vec<(F, Given)> {
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

    fn count(&mut self, file: F, from: u64, to: u64) {
        self.used = self.used.saturating_sub(from).saturating_add(to);
        let its = self.waiting.iter_mut().filter(|(other, _)| *other == file);
        its.for_each(|(_, wanted)| wanted.length = to);
    }

    /// Another limit; it may be below what is used. Tells what those get who wait.
    pub fn set_limit(&mut self, limit: u64) -> Vec<(F, Given)> {
        self.limit = limit;
        self.serve()
    }

    /// Answers those who wait, in their order, as far as can be.
    fn serve(&mut self) -> Vec<(F, Given)> {
        let mut given = Vec::new();
        while let Some((file, wanted)) = self.waiting.front().copied() {
            match self.give(file, wanted, true) {
                Given::Wait => break,
                answer => given.push((file, answer)),
            }
            self.waiting.pop_front();
        }
        given
    }

    fn give(&mut self, file: F, wanted: Wanted, is_first: bool) -> Given {
        let there = self.grants.get(&file).copied();
        let grant = there.unwrap_or(Grant { length: wanted.length, end: wanted.length });
        if wanted.least_end <= grant.end {
            return Given::Until(grant.end);
        }
        let (need, free) = (wanted.least_end - grant.end, self.free());
        if is_first && need <= free {
            let more =
                (wanted.best_end.saturating_sub(wanted.least_end)).min((free - need) / SHARES);
            let end = grant.end + need + more;
            self.escrowed += need + more;
            self.grants.insert(file, Grant { end, ..grant });
            return Given::Until(end);
        }
        // What is his own does not come back before he is done.
        let others = self.escrowed - (grant.end - grant.length);
        match need <= free.saturating_add(others) {
            true => Given::Wait,
            false => Given::Full,
        }
    }
}
