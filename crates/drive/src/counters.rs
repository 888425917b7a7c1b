//! What the drive counts since its start; told by its control object and its metrics.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use nasd_capability::Refusal;
use nasd_metrics::Histogram;
use nasd_protocol::drive::Procedure;
use nasd_protocol::{Blame, Status};
use nasd_transport::Answer;

/// By what authority data was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A capability: a client.
    Capability,
    /// A key of the hierarchy: a file manager or an administrator.
    Key,
}

/// Bytes of data by authority.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    by_capability: AtomicU64,
    by_key: AtomicU64,
}

/// All counters. Each is right by itself; together they are not a snapshot.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) read: Moved,
    pub(crate) written: Moved,
    requests: AtomicU64,
    refusals: AtomicU64,
    /// By procedure, in order of their numbers; the last is for numbers that are no procedure's.
    procedures: [ByProcedure; Procedure::ALL.len() + 1],
    /// By reason, in the order of [`Refusal::ALL`].
    reasons: [AtomicU64; Refusal::ALL.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            read: Moved::default(),
            written: Moved::default(),
            requests: AtomicU64::default(),
            refusals: AtomicU64::default(),
            procedures: std::array::from_fn(|_| ByProcedure::default()),
            reasons: Default::default(),
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// As it should.
    Done,
    /// By a status.
    Failed(Blame),
    /// By RPC's own status: the call made no sense.
    Rejected,
}

impl Outcome {
    pub(crate) const ALL: [Outcome; 6] = [
        Outcome::Done,
        Outcome::Failed(Blame::Request),
        Outcome::Failed(Blame::Authority),
        Outcome::Failed(Blame::Drive),
        Outcome::Failed(Blame::Medium),
        Outcome::Rejected,
    ];

    const fn index(self) -> usize {
        match self {
            Outcome::Done => 0,
            Outcome::Failed(Blame::Request) => 1,
            Outcome::Failed(Blame::Authority) => 2,
            Outcome::Failed(Blame::Drive) => 3,
            Outcome::Failed(Blame::Medium) => 4,
            Outcome::Rejected => 5,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Outcome::Done => "ok",
            Outcome::Failed(Blame::Request) => "request",
            Outcome::Failed(Blame::Authority) => "authority",
            Outcome::Failed(Blame::Drive) => "drive",
            Outcome::Failed(Blame::Medium) => "medium",
            Outcome::Rejected => "rejected",
        }
    }
}

/// Of so many requests that a thread begins the time of one is taken.
const TIMED_EVERY: u64 = 8;

/// What is counted of one procedure.
#[derive(Debug, Default)]
pub(crate) struct ByProcedure {
    outcomes: [AtomicU64; Outcome::ALL.len()],
    /// Of those whose time was taken.
    times: Histogram,
}

impl ByProcedure {
    pub(crate) fn outcome(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome.index()].load(Ordering::Relaxed)
    }

    pub(crate) const fn times(&self) -> &Histogram {
        &self.times
    }
}

impl Moved {
    pub(crate) fn add(&self, holder: Holder, bytes: usize) {
        let counter = match holder {
            Holder::Capability => &self.by_capability,
            Holder::Key => &self.by_key,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn by_capability(&self) -> u64 {
        self.by_capability.load(Ordering::Relaxed)
    }

    pub(crate) fn by_key(&self) -> u64 {
        self.by_key.load(Ordering::Relaxed)
    }
}

impl Counters {
    /// When a request begins, if it is one whose time is taken. Asking the time twice for each would
    /// cost as much as a digest.
    pub(crate) fn begin_request(&self) -> Option<Instant> {
        thread_local! {
            static BEGUN: Cell<u64> = const { Cell::new(0) };
        }
        let number = BEGUN.replace(BEGUN.get().wrapping_add(1));
        number.is_multiple_of(TIMED_EVERY).then(Instant::now)
    }

    pub(crate) fn count_refusal(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request of the procedure, if it was one's, how it was answered, and how long that took
    /// since it began; tells how it ended.
    pub(crate) fn count_answer<S>(
        &self,
        procedure: Option<Procedure>,
        answer: &Answer<S>,
        begin: Option<Instant>,
    ) -> Outcome {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let outcome = match answer {
            Answer::Results { results, .. } => match status_of(results) {
                None => Outcome::Done,
                Some(status) => {
                    let reason = Refusal::ALL.iter().position(|each| each.code() == status);
                    if let Some(reason) = reason {
                        self.reasons[reason].fetch_add(1, Ordering::Relaxed);
                    }
                    let blame = Status::try_from(status).map_or(Blame::Drive, Status::blame);
                    Outcome::Failed(blame)
                }
            },
            Answer::Rejected(_) | Answer::Denied(_) => Outcome::Rejected,
        };
        let procedure = procedure.map_or(Procedure::ALL.len(), |procedure| procedure as usize);
        let counted = &self.procedures[procedure];
        counted.outcomes[outcome.index()].fetch_add(1, Ordering::Relaxed);
        if let Some(begin) = begin {
            counted.times.count(begin.elapsed());
        }
        outcome
    }

    /// Each procedure with its counters; `None` are numbers that are no procedure's.
    pub(crate) fn procedures(&self) -> impl Iterator<Item = (Option<Procedure>, &ByProcedure)> {
        let procedures = Procedure::ALL.iter().copied().map(Some).chain([None]);
        procedures.zip(&self.procedures)
    }

    /// Each reason for refusals, and how many there were.
    pub(crate) fn reasons(&self) -> impl Iterator<Item = (Refusal, u64)> {
        let counts = self.reasons.iter().map(|count| count.load(Ordering::Relaxed));
        Refusal::ALL.into_iter().zip(counts)
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }
}

/// The status word of results; `None` is success.
fn status_of(results: &[u8]) -> Option<u32> {
    let status = results.first_chunk().map(|word| u32::from_be_bytes(*word))?;
    (status != nasd_protocol::result::OK).then_some(status)
}

const _: () = {
    // Procedures are found by their numbers.
    let mut number = 0;
    while number < Procedure::ALL.len() {
        assert!(Procedure::ALL[number] as usize == number);
        number += 1;
    }
};
