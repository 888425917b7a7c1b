//! Grep: lines that a regular expression matches are found where they lie, and told instead of the bytes.
//!
//! Arguments: `nasd_grep::remote::Request` in XDR, and a wish as in `nasd_protocol::packing`, or none. Data: what a `nasd_grep::Search`
//! writes, packed as is wished. The object's bytes lie where those of
//! the file do; bytes behind its end, up to that of the piece, are zeros.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use nasd_grep::remote::{EXTENSION, REVISION, Request};
use nasd_grep::{Bounds, Next, SMALL_MATCHER_BYTES, Search, SearchError};
use nasd_protocol::packing::{Wish, read_arguments};
use nasd_types::{ByteRange, Rights};

use super::feeding::{Pace, feed};
use super::packing;
use super::{Description, Extension, ExtensionCall, ExtensionError, Reach, Told};

/// Bytes of a line, with its end: a longer one is left to the client, as is a shorter one of what a long expression is looked for in.
const LONGEST: usize = 256 << 10;

/// Bytes are looked at in any case for as long as making the pattern ready has taken, but no longer than this.
const LONGEST_BEGIN: Duration = Duration::from_millis(500);

/// Who is to end soon, and has looked for matches in one line for so long, leaves the line to the client: they may take minutes.
const LONG: Duration = Duration::from_millis(20);

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grep;

impl Extension for Grep {
    fn description(&self) -> Description {
        Description {
            number: EXTENSION,
            name: "grep",
            revision: REVISION,
            rights: Rights::READ,
            parameters: "a pattern, which lines and what of them are given, and whether the answer comes packed",
        }
    }

    fn check(&self, call: &ExtensionCall) -> Result<usize, ExtensionError> {
        let (request, wish) = request(call)?;
        let (most, least) = (packing::most(call, wish), Search::least_bytes(LONGEST));
        if most < least {
            let text = format!("answers of {most} bytes are too short: at least {least}");
            return Err(ExtensionError::Refused(text));
        }
        let search_bytes = Search::memory_bytes(&request.wanted, LONGEST, call.most);
        Ok(SMALL_MATCHER_BYTES + search_bytes + packing::MEMORY_BYTES)
    }

    fn looks_behind_end(&self) -> bool {
        true
    }

    fn run(&self, call: &ExtensionCall, reach: &mut Reach) -> Result<Told, ExtensionError> {
        let begun = Instant::now();
        let (request, wish) = request(call)?;
        let most = packing::most(call, wish);
        let refused = |error: nasd_grep::PatternError| ExtensionError::Refused(error.to_string());
        let matcher = request.pattern.compile(Bounds::SMALL).map_err(refused)?;
        let longest = matcher.longest(LONGEST);
        let mut search = Search::new(&matcher, &request.wanted, longest, most);
        let mut pace = Pace::behind(begun.elapsed().min(LONGEST_BEGIN));
        let position = look_at_all(call, reach, &mut pace, &mut search)?;
        Ok(Told { position, data: packing::finish(call, wish, search.finish()) })
    }
}

fn request(call: &ExtensionCall) -> Result<(Request, Option<Wish>), ExtensionError> {
    let read = read_arguments::<Request>(&call.arguments);
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
    pace: &mut Pace,
    search: &mut Search,
) -> Result<u64, ExtensionError> {
    for piece in &call.pieces {
        if !search.begin(piece.offset) {
            return Ok(piece.offset);
        }
        match look_at(*piece, reach, pace, search)? {
            (Next::Full(position), _) => return Ok(position),
            (Next::Done, _) => return Ok(call.end()),
            (Next::More, at) => {
                if let Next::Full(position) = search.end() {
                    return Ok(position);
                }
                if at < piece.end() || pace.may_end() && reach.is_to_end_soon() {
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
    pace: &mut Pace,
    search: &mut Search,
) -> Result<(Next, u64), ExtensionError> {
    let mut next = Next::More;
    let at = feed(piece, reach, pace, |bytes, reach, pace| {
        let mut begun = Instant::now();
        let mut may_go_on = |matches: u64| {
            if matches == 0 {
                begun = Instant::now();
            }
            let is_long = begun.elapsed() >= LONG && pace.may_end();
            reach.go_on().is_ok() && !(is_long && reach.is_to_end_soon())
        };
        next = search.feed_while(bytes, &mut may_go_on).map_err(failed)?;
        Ok(if next == Next::More { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok((next, at))
}

#[cfg(test)]
mod tests {
    use super::super::an_object::object_of;
    use super::super::reach::{Bytes, End, Look, pair};
    use super::*;
    use nasd_grep::{Give, Pattern, Wanted};

    /// Lines in which nobody remembers what follows what.
    fn slow_lines(bytes: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut next = |at: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            match (at % 5000, state >> 63) {
                (4999, _) => b'\n',
                (_, 0) => b'a',
                _ => b'b',
            }
        };
        (0..bytes).map(&mut next).collect()
    }

    /// Up to where it looks at lines, in pieces of so many bytes, if it is to end from the beginning.
    fn position_of_end(piece_bytes: usize) -> u64 {
        const BYTES: usize = 4 << 20;
        let piece = |at: usize| ByteRange::new(at as u64, piece_bytes as u64);
        let pieces: Vec<ByteRange> = (0..BYTES).step_by(piece_bytes).map(piece).collect();
        let pattern =
            Pattern { texts: vec!["[ab]*a[ab]{300}[c-e]".to_owned()], ..Pattern::default() };
        let wanted = Wanted { give: Give::Count, ..Wanted::default() };
        let arguments = nasd_xdr::to_bytes(&Request { pattern, wanted });
        let (mut reach, server) = pair(&pieces, BYTES as u64);
        let call = ExtensionCall { pieces, arguments, most: 4 << 20, since: None };
        server.signals.end_soon();
        let (store, name) = object_of(&slow_lines(BYTES), BYTES as u64);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let told = Grep.run(&call, &mut reach).unwrap();
                reach.end(End::Told(told, None));
            });
            let read =
                |range: ByteRange| Ok(Bytes(store.read_pieces(name, &[range]).unwrap().segments));
            let end = server.serve(Duration::from_secs(60), read, || Look::GoOn);
            let Some(End::Told(told, _)) = end else { panic!("it tells nothing") };
            told.position
        })
    }

    #[test]
    fn a_slow_search_that_is_to_end_soon_does_so() {
        // Also where each piece is looked at whole.
        for piece_bytes in [4 << 20, 8 << 10] {
            let position = position_of_end(piece_bytes);
            assert!((1..=1 << 20).contains(&position), "{position}");
        }
    }
}
