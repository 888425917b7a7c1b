//! Reads that wait for the medium together, each answered as soon as what it lacked has come.
//!
//! Only when all is found out that a read may do is anything read for it, and what is in the cache
//! then is given by the same `read` as always.

use std::time::Instant;

use nasd_protocol::drive::{Procedure, Read};
use nasd_store::{Located, Prefetch};
use nasd_transport::{Answer, Call, Together};
use nasd_types::ByteRange;
use slab::Slab;

use super::{Permitted, authorize, finish};
use crate::Drive;
use crate::incoming::Incoming;
use crate::reply::ReplyData;

/// A read that waits.
struct Begun {
    tag: usize,
    permitted: Permitted<nasd_protocol::drive::ReadArguments>,
    /// When it began, if its time is taken.
    begin: Option<Instant>,
}

/// See the module.
pub(crate) struct Reads<'d> {
    drive: &'d Drive,
    prefetch: Prefetch<'d>,
    begun: Slab<Begun>,
    answers: Vec<(usize, Answer<ReplyData>)>,
}

impl<'d> Reads<'d> {
    pub(crate) fn new(drive: &'d Drive) -> Reads<'d> {
        let prefetch = drive.store.prefetch();
        Reads { drive, prefetch, begun: Slab::new(), answers: Vec::new() }
    }

    fn answer(&mut self, tag: usize, begin: Option<Instant>, answer: Answer<ReplyData>) {
        self.drive.counters.count_answer(Some(Procedure::Read), &answer, begin);
        self.answers.push((tag, answer));
    }

    fn finish(&mut self, begun: Begun) {
        let Begun { tag, permitted, begin } = begun;
        let answer = finish::<Read>(self.drive, permitted);
        self.answer(tag, begin, answer);
    }
}

impl Together<Incoming, ReplyData> for Reads<'_> {
    fn begin(&mut self, tag: usize, call: Call<'_, Incoming>) {
        let begin = self.drive.counters.count_request();
        let permitted = match authorize::<Read>(self.drive, call.head, call.arguments) {
            Ok(permitted) => permitted,
            Err(answer) => return self.answer(tag, begin, answer),
        };
        let wanted = wanted(self.drive, &permitted);
        let begun = Begun { tag, permitted, begin };
        match wanted {
            Some((object, range)) => {
                let number = self.begun.insert(begun);
                self.prefetch.want(number, &object, range);
            }
            None => self.finish(begun),
        }
    }

    fn answered(&mut self, least: usize) -> Vec<(usize, Answer<ReplyData>)> {
        let lacking = least.saturating_sub(self.answers.len());
        for number in self.prefetch.come(lacking) {
            if let Some(begun) = self.begun.try_remove(number) {
                self.finish(begun);
            }
        }
        std::mem::take(&mut self.answers)
    }
}

/// What a read wants of which object; `None` where it must find out by itself.
fn wanted(
    drive: &Drive,
    permitted: &Permitted<nasd_protocol::drive::ReadArguments>,
) -> Option<(Located, ByteRange)> {
    let arguments = &permitted.arguments;
    let range = arguments.pieces().ok()?.contiguous()?;
    let known = permitted.grant.object.clone().filter(|found| found.name() == arguments.name);
    let object = match known {
        Some(object) => object,
        None => drive.store.locate(arguments.name).ok()??,
    };
    Some((object, range))
}
