//! Reads that wait for the medium together, each answered as soon as what it lacked has come.
//!
//! Only when all is found out that a read may do is anything read for it, and what is in the cache
//! then is given by the same `read` as always.

use std::collections::VecDeque;
use std::time::Instant;

use nasd_protocol::drive::{Procedure, Read, ReadArguments};
use nasd_store::{Located, Prefetch};
use nasd_transport::{Answer, Call, Service, Together};
use nasd_types::ByteRange;
use slab::Slab;

use super::Permitted;
use super::prompt::{HeldCall, finish_late};
use crate::Drive;
use crate::incoming::{Incoming, Kind};
use crate::reply::ReplyData;

/// A read that waits.
struct Begun {
    tag: usize,
    permitted: Permitted<ReadArguments>,
    /// When it began, if its time is taken.
    begin: Option<Instant>,
    /// What is read for it.
    wanted: Option<(Located, ByteRange)>,
}

/// See the module.
pub(crate) struct Reads<'d> {
    drive: &'d Drive,
    prefetch: Prefetch<'d>,
    begun: Slab<Begun>,
    /// Those for which nothing could be done in advance, so that they wait for the medium by themselves.
    left: VecDeque<Begun>,
    answers: Vec<(usize, Answer<ReplyData>)>,
}

impl<'d> Reads<'d> {
    pub(crate) fn new(drive: &'d Drive) -> Reads<'d> {
        let prefetch = drive.store.prefetch();
        Reads { drive, prefetch, begun: Slab::new(), left: VecDeque::new(), answers: Vec::new() }
    }

    fn finish(&mut self, begun: Begun) {
        let Begun { tag, permitted, begin, .. } = begun;
        let answer = finish_late::<Read>(self.drive, &permitted);
        self.drive.counters.count_answer(Some(Procedure::Read), &answer, begin);
        self.answers.push((tag, answer));
    }

    /// Finishes a read whose data have come, if they have.
    fn come(&mut self, begun: Begun) {
        let wanted = begun.wanted.as_ref();
        let is_there =
            wanted.is_some_and(|(object, range)| self.drive.store.is_cached(object.name(), *range));
        if is_there { self.finish(begun) } else { self.left.push_back(begun) }
    }
}

/// Neither of these is inlined, as those of the service are not.
impl Together<Incoming, ReplyData> for Reads<'_> {
    #[inline(never)]
    fn begin(&mut self, tag: usize, call: Call<'_, Incoming>) {
        let (begin, permitted) = match call.payload.map(|Incoming(kind)| kind) {
            Some(Kind::Held(held)) if held.procedure() == Procedure::Read => match held.call {
                HeldCall::Read(permitted) => (held.begin, permitted),
                HeldCall::Getattr(_) => unreachable!("invariant: a read is none"),
            },
            // Nothing else waits so.
            other => {
                let payload = other.map(Incoming);
                return self.answers.push((tag, self.drive.execute(Call { payload, ..call })));
            }
        };
        let wanted = wanted(self.drive, &permitted);
        let begun = Begun { tag, permitted, begin, wanted };
        if begun.wanted.is_none() {
            return self.left.push_back(begun);
        }
        let number = self.begun.insert(begun);
        if let Some((object, range)) = &self.begun[number].wanted {
            self.prefetch.want(number, object, *range);
        }
    }

    #[inline(never)]
    fn answered(&mut self, least: usize) -> Vec<(usize, Answer<ReplyData>)> {
        loop {
            let lacking = least.saturating_sub(self.answers.len() + self.left.len());
            for number in self.prefetch.come(lacking) {
                if let Some(begun) = self.begun.try_remove(number) {
                    self.come(begun);
                }
            }
            while self.answers.len() < least
                && let Some(begun) = self.left.pop_front()
            {
                self.finish(begun);
            }
            if self.answers.len() >= least || self.begun.is_empty() {
                return std::mem::take(&mut self.answers);
            }
        }
    }
}

/// What a read wants of which object; `None` where it must find out by itself.
fn wanted(drive: &Drive, permitted: &Permitted<ReadArguments>) -> Option<(Located, ByteRange)> {
    let arguments = &permitted.arguments;
    let range = arguments.pieces().ok()?.contiguous()?;
    let known = permitted.grant.object.as_ref().and_then(|found| found.here(arguments.name));
    let object = match known {
        Some(object) => object.clone(),
        None => drive.store.locate(arguments.name).ok()??,
    };
    Some((object, range))
}
