//! Whether whoever made a call still waits for its answer.

use std::sync::atomic::Ordering;

use super::registry::Member;
use crate::wire::Wire;

/// Who made a call, as far as it can be seen whether he is there. To look costs a system call.
#[derive(Clone, Copy, Debug)]
pub struct Presence<'a>(Option<(&'a Wire, &'a Member)>);

impl<'a> Presence<'a> {
    /// Somebody who is taken to be there always: calls that came by no connection.
    pub const ALWAYS: Presence<'static> = Presence(None);

    pub(super) fn of(wire: &'a Wire, member: &'a Member) -> Presence<'a> {
        Presence(Some((wire, member)))
    }

    /// Whether the connection is gone, or its peer has closed its side of it: it makes no calls any more, and whoever works
    /// long for one of them may give it up. Where this server has stopped receiving, only the first can be told.
    pub fn is_gone(&self) -> bool {
        self.0.is_some_and(|(wire, member)| {
            let is_draining = || member.is_draining.load(Ordering::Acquire);
            // The end that was seen may be this server's own, if it has stopped receiving meanwhile.
            let is_over = !is_draining() && wire.is_left(true) && !is_draining();
            is_over || wire.is_left(false)
        })
    }
}
