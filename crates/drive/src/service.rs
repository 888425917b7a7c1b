//! The drive as a service of the transport: which call goes to which operation.

use nasd_protocol::Blame;
use nasd_protocol::drive::{PROGRAM, Procedure, VERSION};
use nasd_transport::{
    AcceptStatus, Answer, Arriving, Call, CallHead, Receive, Service, Standing, Together, Waits,
};

use crate::Drive;
use crate::counters::Outcome;
use crate::incoming::Incoming;
use crate::operations::{self, Reads, Source, private, write};
use crate::reply::ReplyData;

/// None of these is inlined, so that a profile tells the drive's own work from communications; what
/// a call costs more is nothing beside either.
impl Service for Drive {
    type Payload = Incoming;
    type Segment = ReplyData;

    #[inline(never)]
    fn receive(&self, call: &Arriving<'_>) -> Receive<Incoming> {
        match procedure_of(call.head) {
            Ok(Procedure::Write) => write::receive(self, call),
            Ok(Procedure::Private) => private::receive(self, call),
            _ => Receive::Whole,
        }
    }

    fn judges(&self) -> bool {
        true
    }

    #[inline(never)]
    fn waits(&self, head: &CallHead<'_>, arguments: &[u8], payload: Option<&Incoming>) -> Waits {
        match procedure_of(head) {
            Ok(Procedure::Write) => write::waits(payload),
            Ok(Procedure::Private) => private::waits(self, payload),
            Ok(procedure) if operations::is_admitted(self, procedure, head, arguments) => {
                operations::waits(self, procedure, arguments)
            }
            // It is refused at once.
            Ok(_) | Err(_) => Waits::Never,
        }
    }

    #[inline(never)]
    fn execute(&self, call: Call<'_, Incoming>) -> Answer<ReplyData> {
        let begin = self.counters.count_request();
        let standing = call.standing;
        let procedure = procedure_of(call.head);
        // A private call is counted as what it asked for, where that is known.
        let counted = call.payload.as_ref().and_then(Incoming::procedure).or(procedure.ok());
        let answer = match procedure {
            Ok(Procedure::Write) => write::execute(self, call),
            Ok(Procedure::Private) => private::execute(self, call),
            Ok(procedure) => {
                let source = Source::Plain { head: call.head, arguments: call.arguments };
                operations::execute(self, procedure, source)
            }
            Err(status) => Answer::Rejected(status),
        };
        let outcome = self.counters.count_answer(counted, &answer, begin);
        judge(standing, procedure.ok(), outcome);
        answer
    }

    /// Only reads wait together.
    fn together(&self) -> Box<dyn Together<Incoming, ReplyData> + '_> {
        Box::new(Reads::new(self))
    }
}

/// Tells the transport what a call has shown of whoever made it. With a right digest and a fresh nonce
/// it came from somebody with a key, whatever became of it. What anybody may ask shows nothing.
pub(crate) fn judge(standing: &Standing, procedure: Option<Procedure>, outcome: Outcome) {
    let shows_nothing = match (procedure, outcome) {
        (None | Some(Procedure::Null | Procedure::Inquiry), _) => true,
        (Some(_), Outcome::Rejected | Outcome::Failed(Blame::Authority)) => true,
        (Some(_), Outcome::Done | Outcome::Failed(_)) => false,
    };
    if shows_nothing { standing.note_unproved() } else { standing.prove() }
}

/// Which of the drive's procedures is called, if any.
fn procedure_of(head: &CallHead<'_>) -> Result<Procedure, AcceptStatus> {
    if head.program != PROGRAM {
        return Err(AcceptStatus::ProgramUnavailable);
    }
    if head.version != VERSION {
        return Err(AcceptStatus::ProgramMismatch { low: VERSION, high: VERSION });
    }
    Procedure::try_from(head.procedure).map_err(|_| AcceptStatus::ProcedureUnavailable)
}
