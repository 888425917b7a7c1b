//! The calls of a connection that wait together, and how one thread waits for them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use slab::Slab;

use super::reply::Outbox;
use super::service::{Answer, Call, Service, Together};
use crate::AcceptStatus;

/// Most calls that wait together. They hold memory of the service, and in front of what comes after
/// them it is better to have another thread.
const BEGUN_MAX: usize = 64;

/// Calls that were begun and not answered. They belong to one thread.
pub(super) struct Begun<'s, S: Service> {
    service: &'s S,
    /// There is none before there was a call.
    together: Option<Box<dyn Together<S::Payload, S::Segment> + 's>>,
    /// The call of each tag.
    xids: Slab<u32>,
}

impl<'s, S: Service> Begun<'s, S> {
    pub(super) fn new(service: &'s S) -> Self {
        Begun { service, together: None, xids: Slab::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.xids.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.xids.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.xids.len() >= BEGUN_MAX
    }

    /// Begins a call.
    pub(super) fn begin(&mut self, call: Call<'_, S::Payload>, outbox: &mut Outbox<S::Segment>) {
        let tag = self.xids.insert(call.head.xid);
        let together = self.together.get_or_insert_with(|| self.service.together());
        if catch_unwind(AssertUnwindSafe(|| together.begin(tag, call))).is_err() {
            self.give_up(outbox);
        }
    }

    /// Puts answers into `outbox`; waits until there are at least `least`, or all.
    pub(super) fn answer(&mut self, least: usize, outbox: &mut Outbox<S::Segment>) {
        let Some(together) = self.together.as_mut().filter(|_| !self.xids.is_empty()) else {
            return;
        };
        let Ok(answers) = catch_unwind(AssertUnwindSafe(|| together.answered(least))) else {
            return self.give_up(outbox);
        };
        for (tag, answer) in answers {
            if let Some(xid) = self.xids.try_remove(tag) {
                outbox.push(xid, answer);
            }
        }
    }

    /// After a panic of the service: nothing is known of any of them.
    fn give_up(&mut self, outbox: &mut Outbox<S::Segment>) {
        tracing::error!("the service panicked in calls that wait together");
        self.together = None;
        for xid in self.xids.drain() {
            outbox.push(xid, Answer::Rejected(AcceptStatus::SystemError));
        }
    }
}
