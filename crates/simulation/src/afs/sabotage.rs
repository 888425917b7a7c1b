//! File managers that do not do what they should, to see whether that is found.

use std::sync::Arc;
use std::time::Duration;

use nasd_protocol::manager::{Attached, EventsArguments, EventsPage, Procedure};
use nasd_xdr::{from_bytes, to_bytes};

use crate::serving::{Answered, Request, Served};
use crate::turns::Time;

use super::plan::Sabotage;

/// How much later a client hears of what the file manager takes for dealt with.
const LATER: Duration = Duration::from_millis(200);

/// So many times longer clients believe than they may.
const LONGER: u64 = 20;

/// A file manager that is broken so.
pub(super) fn of_manager(
    sabotage: Sabotage,
    served: Arc<dyn Served>,
    time: &Arc<Time>,
) -> Arc<dyn Served> {
    match sabotage {
        Sabotage::DoesNotWait => Arc::new(Hasty { served, time: Arc::clone(time) }),
        Sabotage::BelievesTooLong => Arc::new(Generous(served)),
        _ => served,
    }
}

/// What a call of sessions was answered with, behind its status of success.
fn told<T: nasd_xdr::XdrDecode>(answered: &Answered) -> Option<T> {
    from_bytes(answered.results.strip_prefix(&[0; 4])?).ok()
}

/// Acknowledges what it tells clients by itself.
struct Hasty {
    served: Arc<dyn Served>,
    time: Arc<Time>,
}

impl Served for Hasty {
    fn serve(&self, request: &Request) -> Option<Answered> {
        let answered = self.served.serve(request)?;
        let asked = request.arguments_of::<EventsArguments>(Procedure::Events as u32);
        let Some((asked, page)) = asked.zip(told::<EventsPage>(&answered)) else {
            return Some(answered);
        };
        if !page.events.is_empty() {
            let seen = page.first + page.events.len() as u64 - 1;
            let known = EventsArguments { seen, open: Vec::new(), wait: false, ..asked };
            self.served.serve(&request.with_arguments(to_bytes(&known)));
            self.time.sleep(LATER);
        }
        Some(answered)
    }
}

/// Tells clients of longer leases than it keeps.
struct Generous(Arc<dyn Served>);

impl Served for Generous {
    fn serve(&self, request: &Request) -> Option<Answered> {
        let mut answered = self.0.serve(request)?;
        let asked = request
            .arguments_of::<nasd_protocol::manager::AttachArguments>(Procedure::Attach as u32);
        if let Some(attached) = asked.and_then(|_| told::<Attached>(&answered)) {
            let longer = Attached { lease: attached.lease * LONGER, ..attached };
            answered.results = [vec![0; 4], to_bytes(&longer)].concat();
        }
        Some(answered)
    }
}
