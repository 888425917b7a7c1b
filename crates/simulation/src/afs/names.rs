//! Whether changes of names, and what was looked up and listed, were as though each had happened at one moment between its beginning and its end.
//!
//! The search of Wing and Gong, with Lowe's memory of where it has been: what may be next is tried, and what was tried in vain is known.

use std::collections::HashSet;

use super::registers::Span;

/// So many names there are.
pub const NAMES: usize = 5;

/// What a name is: a file, or none (0).
pub type Target = u64;

/// All names.
pub type State = [Target; NAMES];

/// What somebody did, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Made a file; nothing where the name was taken.
    Create(usize, Option<Target>),
    /// Removed a name; whether it was there.
    Remove(usize, bool),
    /// Moved one to another, which is replaced; whether it was there.
    Rename(usize, usize, bool),
    /// Looked a name up.
    Lookup(usize, Target),
    /// Listed names from one on.
    List(usize, Vec<Target>),
    /// Began to make a file, and does not know what came of it.
    MayCreate(usize),
    /// Began to remove a name.
    MayRemove(usize),
    /// Began to move one.
    MayRename(usize, usize),
}

impl Action {
    /// Whether it may not have happened.
    const fn is_unknown(&self) -> bool {
        matches!(self, Action::MayCreate(_) | Action::MayRemove(_) | Action::MayRename(..))
    }

    /// Files that it tells of.
    fn told(&self) -> &[Target] {
        match self {
            Action::Lookup(_, target) => std::slice::from_ref(target),
            Action::List(_, targets) => targets,
            _ => &[],
        }
    }
}

/// Something that somebody did.
#[derive(Clone, Debug)]
pub struct Operation {
    /// When.
    pub span: Span,
    /// Who, for who reads what is wrong.
    pub who: String,
    /// What.
    pub action: Action,
}

/// What a history of names comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order.
    Right,
    /// It would take too long to say.
    Undecided,
}

/// So many steps are tried.
const MOST_STEPS: usize = 400_000;

/// Operations as a set.
type Done = [u64; 8];

/// So many operations there may be.
pub const MOST_OPERATIONS: usize = 512;

fn has(done: &Done, at: usize) -> bool {
    done[at / 64] & (1 << (at % 64)) != 0
}

struct Search<'a> {
    operations: &'a [Operation],
    /// Files that were seen, and that nobody has been told to have made.
    orphans: Vec<Target>,
    tried: HashSet<(Done, State)>,
    steps: usize,
    /// The most that could be put into an order.
    best: (usize, Done, State),
}

/// Whether there is an order of these; nothing has a name at first.
///
/// # Errors
/// Where there is none: what could be put into an order, and what not.
pub fn check(mut operations: Vec<Operation>) -> Result<Verdict, String> {
    operations.sort_by_key(|operation| operation.span.begun);
    operations.truncate(MOST_OPERATIONS);
    let is_made = |target: &Target| {
        let is_of = |operation: &Operation| matches!(operation.action, Action::Create(_, Some(made)) if made == *target);
        operations.iter().any(is_of)
    };
    let told = operations.iter().flat_map(|operation| operation.action.told());
    let mut orphans: Vec<Target> =
        told.copied().filter(|target| *target != 0 && !is_made(target)).collect();
    orphans.sort_unstable();
    orphans.dedup();
    let mut search = Search {
        operations: &operations,
        orphans,
        tried: HashSet::new(),
        steps: 0,
        best: (0, [0; 8], [0; NAMES]),
    };
    match search.go_on([0; 8], [0; NAMES], 0) {
        Some(true) => Ok(Verdict::Right),
        Some(false) => Err(search.describe()),
        None => Ok(Verdict::Undecided),
    }
}

impl Search<'_> {
    /// Whether the rest can be put into an order; nothing if that takes too long.
    fn go_on(&mut self, done: Done, state: State, count: usize) -> Option<bool> {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return None;
        }
        if count > self.best.0 {
            self.best = (count, done, state);
        }
        let left = self.operations.iter().enumerate().filter(|(at, _)| !has(&done, *at));
        let ends = left.clone().filter(|(_, operation)| !operation.action.is_unknown());
        let Some(first_end) = ends.filter_map(|(_, operation)| operation.span.ended).min() else {
            return Some(true);
        };
        if !self.tried.insert((done, state)) {
            return Some(false);
        }
        let next: Vec<usize> = left
            .take_while(|(_, operation)| operation.span.begun < first_end)
            .map(|(at, _)| at)
            .collect();
        // What is known to have happened first: most of what is not has not.
        let (unknown, known): (Vec<usize>, Vec<usize>) =
            next.into_iter().partition(|at| self.operations[*at].action.is_unknown());
        for at in known.into_iter().chain(unknown) {
            for state in self.after(at, state) {
                let mut done = done;
                done[at / 64] |= 1 << (at % 64);
                if self.go_on(done, state, count + 1)? {
                    return Some(true);
                }
            }
        }
        Some(false)
    }

    /// What the names may be after an operation that is next.
    fn after(&self, at: usize, mut state: State) -> Vec<State> {
        let is_right = match &self.operations[at].action {
            Action::Create(name, Some(made)) => {
                let is_free = state[*name] == 0;
                state[*name] = *made;
                is_free
            }
            Action::Create(name, None) => state[*name] != 0,
            Action::Remove(name, was_there) => {
                let is_there = state[*name] != 0;
                state[*name] = 0;
                is_there == *was_there
            }
            Action::Rename(from, to, was_there) => {
                let is_there = state[*from] != 0;
                if is_there {
                    (state[*to], state[*from]) = (state[*from], 0);
                }
                is_there == *was_there
            }
            Action::Lookup(name, target) => state[*name] == *target,
            Action::List(first, targets) => state[*first..*first + targets.len()] == targets[..],
            Action::MayCreate(name) if state[*name] == 0 => {
                // One that somebody has seen, or any one that nobody has.
                let unseen = u64::MAX - at as u64;
                let made = self.orphans.iter().copied().chain([unseen]);
                return made.map(|made| with(state, *name, made)).collect();
            }
            Action::MayRemove(name) if state[*name] != 0 => {
                state[*name] = 0;
                true
            }
            Action::MayRename(from, to) if state[*from] != 0 => {
                (state[*to], state[*from]) = (state[*from], 0);
                true
            }
            Action::MayCreate(_) | Action::MayRemove(_) | Action::MayRename(..) => false,
        };
        if is_right { vec![state] } else { Vec::new() }
    }

    fn describe(&self) -> String {
        let (count, done, state) = &self.best;
        let left = self.operations.iter().enumerate().filter(|(at, _)| !has(done, *at));
        let left: Vec<String> = left
            .take(12)
            .map(|(_, it)| format!("{:?} {:?} by {}", it.span, it.action, it.who))
            .collect();
        let names: Vec<String> = state.iter().map(|target| format!("{target:x}")).collect();
        format!(
            "there is no order of what was done with names: behind {count} operations names are {names:?}, and none of these can be next:\n{}",
            left.join("\n")
        )
    }
}

const fn with(mut state: State, name: usize, target: Target) -> State {
    state[name] = target;
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_all(all: &[(u64, u64, Action)]) -> Result<Verdict, String> {
        let one = |(begun, ended, action): &(u64, u64, Action)| Operation {
            span: Span { begun: *begun, ended: (*ended > 0).then_some(*ended) },
            who: String::new(),
            action: action.clone(),
        };
        check(all.iter().map(one).collect())
    }

    #[test]
    fn what_is_right_is_right() {
        let right: [&[(u64, u64, Action)]; 5] = [
            &[
                (1, 4, Action::Create(0, Some(9))),
                (2, 3, Action::Lookup(0, 0)),
                (5, 8, Action::Rename(0, 1, true)),
                (6, 7, Action::Lookup(0, 9)),
                (9, 10, Action::List(0, vec![0, 9])),
                (11, 12, Action::Create(1, None)),
                (13, 14, Action::Remove(1, true)),
                (15, 16, Action::Remove(1, false)),
            ],
            // One that nobody was told of comes late, or never.
            &[
                (1, 0, Action::MayCreate(0)),
                (2, 3, Action::Lookup(0, 0)),
                (4, 5, Action::Lookup(0, 7)),
            ],
            &[(1, 0, Action::MayCreate(0)), (2, 3, Action::Lookup(0, 0))],
            &[(1, 0, Action::MayCreate(0)), (2, 3, Action::Create(0, None))],
            &[
                (1, 2, Action::Create(0, Some(9))),
                (3, 0, Action::MayRename(0, 1)),
                (4, 5, Action::Lookup(0, 9)),
                (6, 7, Action::Lookup(1, 9)),
            ],
        ];
        for all in right {
            assert_eq!(check_all(all), Ok(Verdict::Right), "{all:?}");
        }
    }

    #[test]
    fn what_is_old_or_done_twice_is_found() {
        let made = (1, 2, Action::Create(0, Some(9)));
        let wrong: [&[(u64, u64, Action)]; 7] = [
            &[made.clone(), (3, 4, Action::Lookup(0, 0))],
            &[made.clone(), (3, 4, Action::Create(0, Some(8)))],
            &[made.clone(), (3, 4, Action::Remove(0, true)), (5, 6, Action::Lookup(0, 9))],
            // Both names, or neither, at one moment.
            &[
                made.clone(),
                (3, 9, Action::Rename(0, 1, true)),
                (4, 5, Action::Lookup(0, 0)),
                (6, 7, Action::Lookup(1, 0)),
            ],
            &[
                made.clone(),
                (3, 8, Action::Rename(0, 1, true)),
                (4, 5, Action::List(0, vec![9, 9])),
            ],
            &[
                (1, 0, Action::MayCreate(0)),
                (2, 3, Action::Lookup(0, 7)),
                (4, 5, Action::Lookup(0, 0)),
            ],
            &[
                (1, 0, Action::MayCreate(0)),
                (2, 3, Action::Lookup(0, 7)),
                (4, 5, Action::Lookup(0, 6)),
            ],
        ];
        for all in wrong {
            assert!(check_all(all).is_err(), "{all:?}");
        }
    }
}
