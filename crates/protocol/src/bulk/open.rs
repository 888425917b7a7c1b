//! What begins a connection: by what authority, and which file.

use bitflags::bitflags;
use thiserror::Error;

use crate::auth::MAX_CREDENTIAL_BYTES;

/// Most bytes of a place.
pub const MAX_PLACE_BYTES: usize = 8192;

/// Most bytes of the payload of an open.
pub const MAX_OPEN_BYTES: usize = 16 + MAX_CREDENTIAL_BYTES + MAX_PLACE_BYTES;

bitflags! {
    /// How something is asked for.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Options: u64 {
        /// Of an open: the file is to be read.
        const READ = 1;
        /// Of an open: it is to be written.
        const WRITE = 2;
        /// Of a write: it is answered when the data are durable.
        const DURABLE = 4;
        /// Of an open: reads are not guessed.
        const RANDOM = 8;
    }
}

/// The payload of an open.
///
/// ```text
/// length of the credential (8) || credential || length of the place (8) || place
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open<'a> {
    /// The body of an RPC credential (`nasd_credential` of `specs/nasd.x`): the authority of all requests of the connection.
    pub credential: &'a [u8],
    /// Where the file is, in words of the server's own that came with the credential; empty where that names an object.
    pub place: &'a [u8],
}

/// Why bytes are no payload of an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an open of {0} bytes is not what its own lengths say")]
pub struct OpenError(pub usize);

impl<'a> Open<'a> {
    /// As it is sent.
    pub fn to_bytes(&self) -> Vec<u8> {
        let parts = [self.credential, self.place];
        let length = |part: &[u8]| (part.len() as u64).to_be_bytes();
        parts.into_iter().flat_map(|part| [&length(part), part].concat()).collect()
    }

    /// The reverse.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if lengths are not those of the parts, or more than there may be.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Open<'a>, OpenError> {
        let wrong = OpenError(bytes.len());
        let (credential, rest) = part(bytes, MAX_CREDENTIAL_BYTES).ok_or(wrong)?;
        match part(rest, MAX_PLACE_BYTES) {
            Some((place, [])) => Ok(Open { credential, place }),
            _ => Err(wrong),
        }
    }
}

/// The first part, and what is behind it.
fn part(bytes: &[u8], most: usize) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let length = usize::try_from(u64::from_be_bytes(*length)).ok()?;
    if length > most { None } else { rest.split_at_checked(length) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part_bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..80),
            prop::collection::vec(any::<u8>(), most..most + 2),
        ]
    }

    /// Any bytes, of which many begin with a length that fits.
    fn payloads() -> impl Strategy<Value = Vec<u8>> {
        let lengths = prop_oneof![0..40_u64, any::<u64>()];
        let bytes = prop::collection::vec(any::<u8>(), 0..100);
        (lengths, bytes, any::<bool>()).prop_map(|(length, bytes, begins_with_one)| {
            let length = if begins_with_one { &length.to_be_bytes()[..] } else { &[] };
            // What follows is mostly zeros, which is the length of a place that is empty.
            let zeros = bytes.iter().map(|byte| if begins_with_one { byte / 255 } else { *byte });
            length.iter().copied().chain(zeros).collect()
        })
    }

    proptest! {
        #[test]
        fn opens_survive_the_wire_if_no_part_is_too_long(
            credential in part_bytes(MAX_CREDENTIAL_BYTES),
            place in part_bytes(MAX_PLACE_BYTES),
        ) {
            let open = Open { credential: &credential, place: &place };
            let bytes = open.to_bytes();
            let may_be = credential.len() <= MAX_CREDENTIAL_BYTES && place.len() <= MAX_PLACE_BYTES;
            let expected = if may_be { Ok(open) } else { Err(OpenError(bytes.len())) };
            prop_assert_eq!(Open::from_bytes(&bytes), expected);
            prop_assert!(!may_be || bytes.len() <= MAX_OPEN_BYTES);
        }

        #[test]
        fn bytes_are_one_open_exactly_or_none(bytes in payloads()) {
            if let Ok(open) = Open::from_bytes(&bytes) {
                prop_assert_eq!(open.to_bytes(), bytes);
            }
        }

        #[test]
        fn nothing_can_be_cut_off_an_open_or_put_behind_it(
            credential in prop::collection::vec(any::<u8>(), 0..80),
            place in prop::collection::vec(any::<u8>(), 0..80),
            cut in 1..200_usize,
        ) {
            let mut bytes = Open { credential: &credential, place: &place }.to_bytes();
            let short = &bytes[..bytes.len().saturating_sub(cut)];
            prop_assert_eq!(Open::from_bytes(short), Err(OpenError(short.len())));
            bytes.push(0);
            prop_assert_eq!(Open::from_bytes(&bytes), Err(OpenError(bytes.len())));
        }
    }

    #[test]
    fn sixteen_zeros_are_an_open_of_nothing_and_lengths_are_believed_no_further_than_bytes_go() {
        let nothing = [0; 16];
        assert_eq!(Open::from_bytes(&nothing), Ok(Open { credential: &[], place: &[] }));
        assert_eq!(Open::from_bytes(&nothing[..15]), Err(OpenError(15)));
        // A length that no memory has.
        let too_long = [[0xff; 8], [0; 8]].concat();
        assert_eq!(Open::from_bytes(&too_long), Err(OpenError(16)));
    }

    #[test]
    fn options_have_a_bit_each() {
        let bits: Vec<u64> = Options::all().iter().map(|option| option.bits()).collect();
        assert_eq!(bits, [1, 2, 4, 8]);
    }
}
