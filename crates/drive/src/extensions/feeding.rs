//! Bytes of a piece for whoever looks at them in slices, as they lie in memory.

use std::ops::ControlFlow;

use nasd_types::ByteRange;

use super::{ExtensionError, Reach};

/// Bytes that are asked for at a time.
const STEP: u64 = 1 << 20;

/// Bytes that are looked at between two signs of life.
pub(super) const FEED: usize = 64 << 10;

static ZEROS: [u8; FEED] = [0; FEED];

/// Has `look` look at the bytes of a piece, until it breaks off or the call has to end soon: the byte before which it has come.
/// Bytes behind the object's end are zeros. `least` bytes are looked at in any case, for who has taken long to begin; it
/// becomes what is left of that.
///
/// # Errors
///
/// Those of reading, and of `look`.
pub(super) fn feed(
    piece: ByteRange,
    reach: &mut Reach,
    least: &mut u64,
    mut look: impl FnMut(&[u8], &Reach) -> Result<ControlFlow<()>, ExtensionError>,
) -> Result<u64, ExtensionError> {
    let mut at = piece.offset;
    while at < piece.end() {
        let asked = ByteRange::new(at, STEP.min(piece.end() - at));
        let chunk = reach.read(asked)?;
        let missing = asked.length.saturating_sub(chunk.len());
        // They take as long as others.
        reach.has_zeros(missing);
        let slices = chunk.slices().chain(zeros(missing));
        for bytes in slices.flat_map(|slice| slice.chunks(FEED)) {
            at += bytes.len() as u64;
            if look(bytes, reach)?.is_break() {
                return Ok(at);
            }
            // Some take seconds for these.
            reach.go_on()?;
            *least = least.saturating_sub(bytes.len() as u64);
            if *least == 0 && reach.is_to_end_soon() {
                return Ok(at);
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
    use std::time::Duration;

    #[test]
    fn zeros_behind_the_end_count_as_looked_at() {
        let piece = ByteRange::new(5000, 3 * STEP + 7);
        let (mut reach, server) = pair(&[piece], 1000);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut fed = 0;
                let look = |bytes: &[u8], _: &Reach| {
                    fed += bytes.len() as u64;
                    Ok(ControlFlow::Continue(()))
                };
                assert_eq!(feed(piece, &mut reach, &mut 0, look), Ok(piece.end()));
                assert_eq!((fed, reach.handed()), (piece.length, piece.length));
            });
            server.serve(Duration::from_secs(20), |_| Ok(Bytes::default()), || Look::GoOn);
        });
    }
}
