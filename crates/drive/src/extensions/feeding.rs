//! Bytes of a piece for whoever looks at them in slices, as they lie in memory.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use nasd_types::ByteRange;

use super::{ExtensionError, Reach};

/// Bytes that are asked for at a time.
const STEP: u64 = 1 << 20;

/// Bytes that are looked at between two signs of life, at most, and at least where they take long.
pub(super) const FEED: usize = 64 << 10;
const LEAST_FEED: usize = 4 << 10;

/// How long it should take to look at these.
const SHORT: Duration = Duration::from_millis(20);

static ZEROS: [u8; FEED] = [0; FEED];

/// How many bytes are looked at at a time, by what the last ones took.
#[derive(Debug)]
pub(super) struct Pace {
    bytes: usize,
    /// Before then nobody ends though he is to end soon: it has taken long to begin.
    earliest_end: Instant,
}

impl Pace {
    /// Of a call that has taken so long to begin.
    pub(super) fn behind(begin: Duration) -> Pace {
        Pace { bytes: FEED, earliest_end: Instant::now() + begin }
    }

    /// Whether who is to end soon should do so.
    pub(super) fn may_end(&self) -> bool {
        Instant::now() >= self.earliest_end
    }

    /// The last ones have taken so long.
    fn took(&mut self, time: Duration) {
        if time > SHORT {
            self.bytes = (self.bytes / 2).max(LEAST_FEED);
        } else if time < SHORT / 4 {
            self.bytes = (2 * self.bytes).min(FEED);
        }
    }
}

/// Has `look` look at the bytes of a piece, until it breaks off or the call has to end soon: the byte before which it has come.
/// Bytes behind the object's end are zeros.
///
/// # Errors
///
/// Those of reading, and of `look`.
pub(super) fn feed(
    piece: ByteRange,
    reach: &mut Reach,
    pace: &mut Pace,
    mut look: impl FnMut(&[u8], &Reach, &Pace) -> Result<ControlFlow<()>, ExtensionError>,
) -> Result<u64, ExtensionError> {
    let mut at = piece.offset;
    while at < piece.end() {
        let asked = ByteRange::new(at, STEP.min(piece.end() - at));
        let chunk = reach.read(asked)?;
        let missing = asked.length.saturating_sub(chunk.len());
        // They take as long as others.
        reach.has_zeros(missing);
        for slice in chunk.slices().chain(zeros(missing)) {
            let mut rest = slice;
            while !rest.is_empty() {
                let (bytes, behind) = rest.split_at(pace.bytes.min(rest.len()));
                rest = behind;
                at += bytes.len() as u64;
                let begun = Instant::now();
                if look(bytes, reach, pace)?.is_break() {
                    return Ok(at);
                }
                reach.go_on()?;
                pace.took(begun.elapsed());
                if reach.is_to_end_soon() && pace.may_end() {
                    return Ok(at);
                }
            }
        }
    }
    Ok(at)
}

/// So many of them.
fn zeros<'a>(mut count: u64) -> impl Iterator<Item = &'a [u8]> {
    std::iter::from_fn(move || {
        let now = count.min(ZEROS.len() as u64);
        count -= now;
        (now > 0).then(|| &ZEROS[..now as usize])
    })
}

#[cfg(test)]
mod tests {
    use super::super::reach::{Bytes, Look, pair};
    use super::*;

    #[test]
    fn what_takes_long_is_looked_at_in_shorter_slices() {
        let mut pace = Pace::behind(Duration::ZERO);
        let mut after = |millis| {
            pace.took(Duration::from_millis(millis));
            pace.bytes
        };
        assert_eq!(
            [1, 400, 200, 10, 50, 30, 25].map(&mut after).map(|bytes| bytes >> 10),
            [64, 32, 16, 16, 8, 4, 4]
        );
        assert_eq!([0; 5].map(&mut after).map(|bytes| bytes >> 10), [8, 16, 32, 64, 64]);
    }

    #[test]
    fn who_is_to_end_soon_looks_at_bytes_as_long_as_it_took_to_begin() {
        let piece = ByteRange::new(0, 3 * STEP);
        for (begin, looked_at) in [(0, FEED as u64), (600, piece.end())] {
            let (mut reach, server) = pair(&[piece], 0);
            server.signals.end_soon();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let look = |_: &[u8], _: &Reach, _: &Pace| Ok(ControlFlow::Continue(()));
                    let mut pace = Pace::behind(Duration::from_secs(begin));
                    assert_eq!(feed(piece, &mut reach, &mut pace, look), Ok(looked_at));
                });
                let nothing = |_| Ok(Bytes::default());
                server.serve(Duration::from_secs(20), nothing, || Look::GoOn);
            });
        }
    }

    #[test]
    fn zeros_behind_the_end_count_as_looked_at() {
        let piece = ByteRange::new(5000, 3 * STEP + 7);
        let (mut reach, server) = pair(&[piece], 1000);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut fed = 0;
                let look = |bytes: &[u8], _: &Reach, _: &Pace| {
                    fed += bytes.len() as u64;
                    Ok(ControlFlow::Continue(()))
                };
                let mut pace = Pace::behind(Duration::ZERO);
                assert_eq!(feed(piece, &mut reach, &mut pace, look), Ok(piece.end()));
                assert_eq!((fed, reach.handed()), (piece.length, piece.length));
            });
            server.serve(Duration::from_secs(20), |_| Ok(Bytes::default()), || Look::GoOn);
        });
    }
}
