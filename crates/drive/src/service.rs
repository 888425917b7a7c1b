//! The drive as a service of the transport: which call goes to which operation.

use std::time::Instant;

use nasd_protocol::Blame;
use nasd_protocol::drive::{Getattr, PROGRAM, Procedure, Read, VERSION};
use nasd_transport::{
    AcceptStatus, Answer, Arriving, Attempt, Beside, Call, CallHead, Receive, Service, Standing,
    Together, Waits,
};

use crate::Drive;
use crate::counters::Outcome;
use crate::incoming::{Incoming, Kind};
use crate::operations::{self, Reads, Source, private, prompt, write};
use crate::reply::ReplyData;

/// None of these is inlined, so that a profile tells the drive's own work from communications; what
/// a call costs more is nothing beside either.
impl Service for Drive {
    type Payload = Incoming;
    type Segment = ReplyData;

    #[inline(never)]
    fn receive(&self, call: &Arriving<'_>) -> Receive<Incoming> {
        match procedure_of(call.head) {
            Ok(Procedure::Write | Procedure::Append) => write::receive(self, call),
            Ok(Procedure::Private) => private::receive(self, call),
            _ => Receive::Whole,
        }
    }

    fn judges(&self) -> bool {
        true
    }

    #[inline(never)]
    fn attempt(&self, call: Call<'_, Incoming>) -> Attempt<Incoming, ReplyData> {
        let begin = self.counters.begin_request();
        let called = Called::of(&call);
        let attempt = match called.asked {
            Some(Procedure::Read) => prompt::attempt::<Read>(self, call, begin),
            Some(Procedure::Getattr) => prompt::attempt::<Getattr>(self, call, begin),
            Some(Procedure::Write | Procedure::Append) if write::waits(call.payload.as_ref()) => {
                Attempt::Waits(Waits::Alone, call.payload)
            }
            None
            | Some(
                Procedure::Null
                | Procedure::Inquiry
                | Procedure::Write
                | Procedure::Append
                | Procedure::Private,
            ) => Attempt::Answered(self.answer(call, &called)),
            // Changes of metadata wait for the commit of whoever is flushing, and all else that looks
            // beyond an object's attributes for the medium.
            Some(_) => Attempt::Waits(Waits::Alone, call.payload),
        };
        match &attempt {
            Attempt::Answered(answer) => self.note(&called, answer, begin),
            // Its every check has passed, whatever becomes of it.
            Attempt::Waits(_, Some(Incoming(Kind::Held(_)))) => called.standing.prove(),
            Attempt::Waits(..) => {}
        }
        attempt
    }

    #[inline(never)]
    fn execute(&self, call: Call<'_, Incoming>) -> Answer<ReplyData> {
        let begin = match &call.payload {
            Some(Incoming(Kind::Held(held))) => held.begin,
            _ => self.counters.begin_request(),
        };
        let called = Called::of(&call);
        let answer = self.answer(call, &called);
        self.note(&called, &answer, begin);
        answer
    }

    fn beside(&self) -> Option<&dyn Beside> {
        Some(self)
    }

    /// Only reads wait together.
    fn together(&self) -> Box<dyn Together<Incoming, ReplyData> + '_> {
        Box::new(Reads::new(self))
    }
}

/// Which of the drive's procedures is called.
struct Called<'a> {
    /// As the head says.
    procedure: Result<Procedure, AcceptStatus>,
    /// Of a private call what it asks for, where that is known.
    asked: Option<Procedure>,
    standing: &'a Standing,
}

impl<'a> Called<'a> {
    fn of(call: &Call<'a, Incoming>) -> Called<'a> {
        let procedure = procedure_of(call.head);
        let asked = call.payload.as_ref().and_then(Incoming::procedure).or(procedure.ok());
        Called { procedure, asked, standing: call.standing }
    }
}

impl Drive {
    fn answer(&self, call: Call<'_, Incoming>, called: &Called<'_>) -> Answer<ReplyData> {
        if let Some(Incoming(Kind::Held(held))) = call.payload {
            return held.execute(self);
        }
        match called.procedure {
            Ok(Procedure::Write | Procedure::Append) => write::execute(self, call),
            Ok(Procedure::Private) => private::execute(self, call),
            Ok(procedure) => {
                let source = Source::Plain { head: call.head, arguments: call.arguments };
                operations::execute(self, procedure, source, call.presence)
            }
            Err(status) => Answer::Rejected(status),
        }
    }

    /// Counts what was answered, and tells the transport what it shows of whoever asked.
    fn note(&self, called: &Called<'_>, answer: &Answer<ReplyData>, begin: Option<Instant>) {
        let outcome = self.counters.count_answer(called.asked, answer, begin);
        judge(called.standing, called.procedure.ok(), outcome);
    }
}

/// Tells the transport what a call has shown of whoever made it. With a right digest and a fresh nonce
/// it came from somebody with a key, whatever became of it. What anybody may ask shows nothing.
fn judge(standing: &Standing, procedure: Option<Procedure>, outcome: Outcome) {
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
