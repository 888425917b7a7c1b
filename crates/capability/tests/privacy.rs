//! What is encrypted comes back under the same key, nonce and direction alone, and nothing of it shows.

use nasd_capability::{Altered, DataTag, DigestKeys, Nonce, SecretKey, Suite, Way};
use nasd_types::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;

const NONCE: Nonce = Nonce { timestamp: Timestamp(5), unique: 6 };

fn keys(suite: Suite) -> DigestKeys {
    DigestKeys::new(&SecretKey::new([3; 32]), suite)
}

fn sealed(keys: &DigestKeys, way: Way, nonce: &Nonce, data: &[u8]) -> (Vec<u8>, DataTag) {
    let mut sealed = vec![0; data.len()];
    let tag = keys.seal_data(way, nonce, &[data], &mut sealed);
    (sealed, tag)
}

fn halves(bytes: &[u8], at: usize) -> [&[u8]; 2] {
    let (first, rest) = bytes.split_at(at % (bytes.len() + 1));
    [first, rest]
}

proptest! {
    #[test]
    fn data_come_back_wherever_they_are_cut(
        suite in proptest::sample::select(Suite::available()),
        data in vec(any::<u8>(), 0..9000),
        at in any::<usize>(),
    ) {
        let keys = keys(suite);
        let (whole, tag) = sealed(&keys, Way::Request, &NONCE, &data);
        let mut pieces = vec![0; data.len()];
        let same = keys.seal_data(Way::Request, &NONCE, &halves(&data, at), &mut pieces);
        prop_assert_eq!((&pieces, same), (&whole, tag));
        let mut plain = vec![1; data.len()];
        let opened =
            keys.open_data_into(Way::Request, &NONCE, &tag, &halves(&whole, at), &mut plain);
        prop_assert_eq!((opened, &plain), (Ok(()), &data));
        let mut in_place = whole;
        prop_assert_eq!(keys.open_data(Way::Request, &NONCE, &tag, &mut in_place), Ok(()));
        prop_assert_eq!(in_place, data);
    }

    #[test]
    fn a_flipped_bit_is_found_and_what_was_decrypted_is_wiped(
        suite in proptest::sample::select(Suite::available()),
        data in vec(1..=255_u8, 1..5000),
        at in any::<usize>(),
    ) {
        let keys = keys(suite);
        let (whole, tag) = sealed(&keys, Way::Reply, &NONCE, &data);
        let bit = at % (8 * whole.len());
        let mut altered = whole.clone();
        altered[bit / 8] ^= 1 << (bit % 8);
        let mut wrong_tag = tag;
        wrong_tag.0[bit / 8 % 16] ^= 1 << (bit % 8);
        for (bytes, tag) in [(&altered, &tag), (&whole, &wrong_tag)] {
            let mut plain = bytes.clone();
            prop_assert_eq!(keys.open_data(Way::Reply, &NONCE, tag, &mut plain), Err(Altered));
            prop_assert!(plain.iter().all(|byte| *byte == 0));
            let mut plain = vec![7; bytes.len()];
            let opened = keys.open_data_into(Way::Reply, &NONCE, tag, &[bytes], &mut plain);
            prop_assert_eq!(opened, Err(Altered));
            prop_assert!(plain.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn arguments_come_back_and_a_flipped_bit_is_found(
        suite in proptest::sample::select(Suite::available()),
        message in vec(any::<u8>(), 0..600),
        at in any::<usize>(),
    ) {
        let keys = keys(suite);
        let mut sealed = message.clone();
        keys.seal_args(Way::Request, &NONCE, &mut sealed);
        let open = |sealed: &[u8]| keys.open_args(Way::Request, &NONCE, sealed);
        prop_assert_eq!(open(&sealed), Ok(message));
        prop_assert_eq!(keys.open_args(Way::Reply, &NONCE, &sealed), Err(Altered));
        prop_assert_eq!(open(&sealed[..sealed.len() - 1]), Err(Altered));
        prop_assert_eq!(open(&[]), Err(Altered));
        let bit = at % (8 * sealed.len());
        sealed[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(open(&sealed), Err(Altered));
    }
}

#[test]
fn key_nonce_direction_and_suite_each_make_another_ciphertext() {
    let data = vec![0; 4096];
    let other_key = SecretKey::new([4; 32]);
    let other_nonces = [
        Nonce { timestamp: Timestamp(4), ..NONCE },
        Nonce { unique: 7, ..NONCE },
        Nonce { unique: 6 | 1 << 63, ..NONCE },
    ];
    let mut seen = Vec::new();
    for &suite in Suite::available() {
        let keys = keys(suite);
        let base = sealed(&keys, Way::Request, &NONCE, &data);
        let mut others = vec![
            sealed(&keys, Way::Reply, &NONCE, &data),
            sealed(&DigestKeys::new(&other_key, suite), Way::Request, &NONCE, &data),
        ];
        others.extend(other_nonces.iter().map(|nonce| sealed(&keys, Way::Request, nonce, &data)));
        for (bytes, tag) in &others {
            let mut plain = bytes.clone();
            assert_eq!(keys.open_data(Way::Request, &NONCE, tag, &mut plain), Err(Altered));
        }
        seen.push(base);
        seen.extend(others);
    }
    for (number, one) in seen.iter().enumerate() {
        // No part of the stream of one is in another.
        let same = |other: &&(Vec<u8>, DataTag)| {
            one.1 == other.1 || one.0.chunks(32).zip(other.0.chunks(32)).any(|(a, b)| a == b)
        };
        assert!(seen[number + 1..].iter().find(same).is_none());
    }
}
