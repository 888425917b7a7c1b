//! Filters (SMAS): structured files are selected from and summed up where they lie, and the answer is sent instead of the bytes.
//!
//! Arguments: `nasd_filter::remote::Request` in XDR, which has the file's length and the plan, and a wish as in `nasd_protocol::packing`, or
//! none. Data: what `nasd_filter::remote::Answer` writes, packed as is wished. The object's bytes lie where those of the file do; bytes behind its end, up to that of the piece, are zeros.

use std::hash::BuildHasher;
use std::ops::ControlFlow;
use std::time::Duration;

use nasd_filter::remote::{self, Answer, AnswerError, EXTENSION, Next, REVISION};
use nasd_filter::{Checked, ScanError};
use nasd_protocol::packing::{Wish, read_arguments};
use nasd_types::{ByteRange, Rights};

use super::feeding::{FEED, Pace, feed};
use super::packing;
use super::{Description, Extension, ExtensionCall, ExtensionError, Reach, Told};

/// Steps of LIKE in what is looked at at a time: about a second.
const MOST_LIKE_STEPS: u64 = 1 << 24;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scan;

impl Extension for Scan {
    fn description(&self) -> Description {
        Description {
            number: EXTENSION,
            name: "scan",
            revision: REVISION,
            rights: Rights::READ,
            parameters: "the file's length, a plan (format, WHERE, what is given), and whether the answer comes packed",
        }
    }

    fn check(&self, call: &ExtensionCall) -> Result<usize, ExtensionError> {
        let Request { checked, wish, .. } = request(call)?;
        let (most, least) = (packing::most(call, wish), Answer::least_bytes(&checked));
        if most < least {
            let text = format!("answers of {most} bytes are too short: at least {least}");
            return Err(ExtensionError::Refused(text));
        }
        if checked.like_steps(FEED as u64) > MOST_LIKE_STEPS {
            let text = "LIKE with so many `_`, of records that may be so long, takes too long between two signs of life";
            return Err(ExtensionError::Refused(text.to_owned()));
        }
        Ok(Answer::memory_bytes(&checked, call.most) + packing::MEMORY_BYTES)
    }

    fn looks_behind_end(&self) -> bool {
        true
    }

    fn run(&self, call: &ExtensionCall, reach: &mut Reach) -> Result<Told, ExtensionError> {
        let Request { file_bytes, checked, wish } = request(call)?;
        let mut room = reach.room(call.most);
        room.truncate(packing::most(call, wish));
        let mut answer = Answer::new(&checked, file_bytes, room, secret());
        let position = look_at_all(call, reach, &mut answer)?;
        let begin = call.pieces.first().map_or(0, |piece| piece.offset);
        if position == begin && call.end() > begin {
            let text = "the result of the record is longer than an answer".to_owned();
            return Err(ExtensionError::Failed { position, text });
        }
        let data = answer.finish().map_err(|error| match error {
            AnswerError::Scan(error) => failed(begin, error),
            AnswerError::Large => {
                ExtensionError::Failed { position: begin, text: error.to_string() }
            }
        })?;
        Ok(Told { position, data: packing::finish(call, wish, data) })
    }
}

/// A number that nobody can know.
fn secret() -> u64 {
    std::hash::RandomState::new().hash_one(0)
}

/// What is asked for, found right.
struct Request {
    file_bytes: u64,
    checked: Checked,
    wish: Option<Wish>,
}

fn request(call: &ExtensionCall) -> Result<Request, ExtensionError> {
    let refused = |text: String| ExtensionError::Refused(text);
    let read = read_arguments::<remote::Request>(&call.arguments);
    let (request, wish) =
        read.map_err(|error| refused(format!("its arguments are no plan: {error}")))?;
    let checked = request.plan.check().map_err(|error| refused(error.to_string()))?;
    Ok(Request { file_bytes: request.file_bytes, checked, wish })
}

fn failed(begin: u64, error: ScanError) -> ExtensionError {
    let position = match error {
        ScanError::Record { offset, .. } => offset.max(begin),
        ScanError::Row { .. } | ScanError::Limit(_) | ScanError::Order(_) => begin,
    };
    ExtensionError::Failed { position, text: error.to_string() }
}

/// Looks at the pieces, until the answer is full or has to end; the first byte that it does not tell of.
fn look_at_all(
    call: &ExtensionCall,
    reach: &mut Reach,
    answer: &mut Answer,
) -> Result<u64, ExtensionError> {
    let mut pace = Pace::behind(Duration::ZERO);
    for piece in &call.pieces {
        if !answer.begin(piece.offset) {
            return Ok(piece.offset);
        }
        let (next, at) = look_at(*piece, reach, &mut pace, answer)?;
        match next {
            Next::Full(position) => return Ok(position),
            Next::Done => {
                end(answer, at)?;
                return Ok(call.end());
            }
            Next::Enough | Next::More => {
                if let Next::Full(position) = end(answer, at)? {
                    return Ok(position);
                }
                let is_to_end = pace.may_end() && reach.is_to_end_soon();
                if next == Next::Enough || at < piece.end() || is_to_end {
                    return Ok(at);
                }
            }
        }
    }
    Ok(call.end())
}

fn end(answer: &mut Answer, at: u64) -> Result<Next, ExtensionError> {
    answer.end(at).map_err(|error| failed(at, error))
}

/// Feeds a piece, as far as it is to be: what comes next, and up to which byte that is.
fn look_at(
    piece: ByteRange,
    reach: &mut Reach,
    pace: &mut Pace,
    answer: &mut Answer,
) -> Result<(Next, u64), ExtensionError> {
    let mut next = Next::More;
    let at = feed(piece, reach, pace, |bytes, _, _| {
        next = answer.feed(bytes).map_err(|error| failed(piece.offset, error))?;
        Ok(if next == Next::More { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok((next, at))
}
