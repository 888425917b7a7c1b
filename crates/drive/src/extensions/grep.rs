//! Grep: lines that a regular expression matches are found where they lie, and told instead of the bytes.
//!
//! Arguments: `nasd_grep::remote::Request` in XDR. Data: what a `nasd_grep::Search` writes. The object's bytes lie where those of
//! the file do; bytes behind its end, up to that of the piece, are zeros.

use std::ops::ControlFlow;

use nasd_grep::remote::{EXTENSION, REVISION, Request};
use nasd_grep::{Bounds, Next, SMALL_MATCHER_BYTES, Search, SearchError};
use nasd_types::{ByteRange, Rights};

use super::feeding::feed;
use super::{Description, Extension, ExtensionCall, ExtensionError, Reach, Told};

/// Bytes of a line, with its end: a longer one is left to the client.
const LONGEST: usize = 256 << 10;

/// Bytes that are looked at in any case: making the pattern ready may have taken as long.
const LEAST: u64 = 4 << 20;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grep;

impl Extension for Grep {
    fn description(&self) -> Description {
        Description { number: EXTENSION, name: "grep", revision: REVISION, rights: Rights::READ }
    }

    fn check(&self, call: &ExtensionCall) -> Result<usize, ExtensionError> {
        let request = request(call)?;
        let least = Search::least_bytes(LONGEST);
        if call.most < least {
            let text = format!("answers of {} bytes are too short: at least {least}", call.most);
            return Err(ExtensionError::Refused(text));
        }
        Ok(SMALL_MATCHER_BYTES + Search::memory_bytes(&request.wanted, LONGEST, call.most))
    }

    fn run(&self, call: &ExtensionCall, reach: &mut Reach) -> Result<Told, ExtensionError> {
        let request = request(call)?;
        let refused = |error: nasd_grep::PatternError| ExtensionError::Refused(error.to_string());
        let matcher = request.pattern.compile(Bounds::SMALL).map_err(refused)?;
        let mut search = Search::new(&matcher, &request.wanted, LONGEST, call.most);
        let position = look_at_all(call, reach, &mut search)?;
        Ok(Told { position, data: search.finish() })
    }
}

fn request(call: &ExtensionCall) -> Result<Request, ExtensionError> {
    let read = nasd_xdr::from_bytes::<Request>(&call.arguments);
    read.map_err(|error| ExtensionError::Refused(format!("its arguments are no request: {error}")))
}

fn failed(error: SearchError) -> ExtensionError {
    let SearchError::Long { offset: position, .. } = error;
    ExtensionError::Failed { position, text: error.to_string() }
}

/// Looks at the pieces, until the answer is full or has to end; the first byte that it does not tell of.
fn look_at_all(
    call: &ExtensionCall,
    reach: &mut Reach,
    search: &mut Search,
) -> Result<u64, ExtensionError> {
    let mut least = LEAST;
    for piece in &call.pieces {
        if !search.begin(piece.offset) {
            return Ok(piece.offset);
        }
        match look_at(*piece, reach, &mut least, search)? {
            (Next::Full(position), _) => return Ok(position),
            (Next::Done, _) => return Ok(call.end()),
            (Next::More, at) => {
                if let Next::Full(position) = search.end() {
                    return Ok(position);
                }
                if at < piece.end() {
                    return Ok(at);
                }
            }
        }
    }
    Ok(call.end())
}

/// Feeds a piece, as far as it is to be: what comes next, and up to which byte that is.
fn look_at(
    piece: ByteRange,
    reach: &mut Reach,
    least: &mut u64,
    search: &mut Search,
) -> Result<(Next, u64), ExtensionError> {
    let mut next = Next::More;
    let at = feed(piece, reach, least, |bytes| {
        next = search.feed(bytes).map_err(failed)?;
        Ok(if next == Next::More { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok((next, at))
}
