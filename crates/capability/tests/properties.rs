//! Whatever is altered, the key or the digest comes out different.

use nasd_capability::{
    CAPABILITY_BYTES, Capability, DigestKeys, Nonce, SecretKey, Suite, Way, capability_key,
    procedure_bytes,
};
use nasd_types::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;

fn nonces() -> impl Strategy<Value = Nonce> {
    (any::<u64>(), any::<u64>())
        .prop_map(|(timestamp, unique)| Nonce { timestamp: Timestamp(timestamp), unique })
}

fn suites() -> impl Strategy<Value = Suite> {
    proptest::sample::select(Suite::available())
}

fn with_bit_flipped(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[bit / 8] ^= 1 << (bit % 8);
    bytes
}

/// Cuts `bytes` into slices at pseudo-random places.
fn cut(bytes: &[u8], cuts: &[usize]) -> Vec<Vec<u8>> {
    let mut slices = Vec::new();
    let mut rest = bytes;
    for cut in cuts {
        let (first, others) = rest.split_at(cut % (rest.len() + 1));
        slices.push(first.to_vec());
        rest = others;
    }
    slices.push(rest.to_vec());
    slices
}

fn borrow(slices: &[Vec<u8>]) -> Vec<&[u8]> {
    slices.iter().map(Vec::as_slice).collect()
}

proptest! {
    #[test]
    fn capabilities_survive_their_canonical_form(bytes in vec(any::<u8>(), CAPABILITY_BYTES)) {
        let bytes: [u8; CAPABILITY_BYTES] = bytes.try_into().expect("as many as asked for");
        prop_assert_eq!(Capability::from_bytes(&bytes).to_bytes(), bytes);
    }

    #[test]
    fn every_bit_of_a_capability_moves_its_key(
        bytes in vec(any::<u8>(), CAPABILITY_BYTES),
        working in any::<[u8; 32]>(),
        version in any::<u64>(),
    ) {
        let mint = |working: [u8; 32], bytes: &[u8], version| {
            let bytes = bytes.try_into().expect("64 bytes");
            capability_key(&SecretKey::new(working), &Capability::from_bytes(bytes), version)
        };
        let key = mint(working, &bytes, version);
        for bit in 0..8 * CAPABILITY_BYTES {
            prop_assert!(mint(working, &with_bit_flipped(&bytes, bit), version) != key, "{}", bit);
        }
        for bit in 0..64 {
            prop_assert!(mint(working, &bytes, version ^ 1 << bit) != key);
        }
        let other = with_bit_flipped(&working, 255).try_into().expect("32 bytes");
        prop_assert!(mint(other, &bytes, version) != key);
    }

    #[test]
    fn every_altered_byte_moves_the_digest(
        suite in suites(),
        key in any::<[u8; 32]>(),
        nonce in nonces(),
        covered in vec(any::<u8>(), 1..300),
        data in vec(any::<u8>(), 1..3000),
        at in any::<usize>(),
    ) {
        let keys = DigestKeys::new(&SecretKey::new(key), suite);
        let announce = |data: &[u8]| keys.data(Way::Request, &nonce, &[data]);
        let request = |covered: &[u8], data: &[u8]| {
            keys.request(&nonce, &[covered], Some(&announce(data)))
        };
        let digest = request(&covered, &data);
        let altered = with_bit_flipped(&covered, at % (8 * covered.len()));
        prop_assert!(request(&altered, &data) != digest);
        let altered = with_bit_flipped(&data, at % (8 * data.len()));
        prop_assert!(request(&covered, &altered) != digest);
        prop_assert!(request(&covered[1..], &data) != digest);
        prop_assert!(request(&covered, &data[1..]) != digest);
        // A byte that wanders over the border between arguments and data.
        let moved = [&covered[..], &data[..1]].concat();
        prop_assert!(request(&moved, &data[1..]) != digest);
        prop_assert!(keys.request(&nonce, &[&covered], None) != digest);
        prop_assert!(keys.request(&nonce, &[&covered, &data], None) != digest);

        let other_nonce = Nonce { unique: nonce.unique ^ 1, ..nonce };
        prop_assert!(keys.request(&other_nonce, &[&covered], Some(&announce(&data))) != digest);
        let other_key = with_bit_flipped(&key, at % 256).try_into().expect("32 bytes");
        let other = DigestKeys::new(&SecretKey::new(other_key), suite);
        prop_assert!(other.request(&nonce, &[&covered], Some(&announce(&data))) != digest);
        prop_assert!(other.data(Way::Request, &nonce, &[&data]) != announce(&data));
        prop_assert!(keys.data(Way::Reply, &nonce, &[&data]) != announce(&data));
        prop_assert!(keys.data(Way::Request, &other_nonce, &[&data]) != announce(&data));
    }

    #[test]
    fn a_reply_is_bound_to_its_request_and_is_none_itself(
        suite in suites(),
        key in any::<[u8; 32]>(),
        asked in nonces(),
        answered in nonces(),
        covered in vec(any::<u8>(), 0..100),
    ) {
        let keys = DigestKeys::new(&SecretKey::new(key), suite);
        let digest = keys.reply(&asked, &answered, &[&covered], None);
        let other = Nonce { timestamp: asked.timestamp.plus_ns(1), ..asked };
        prop_assume!(other != asked);
        prop_assert!(keys.reply(&other, &answered, &[&covered], None) != digest);
        prop_assert!(keys.reply(&asked, &other, &[&covered], None) != digest || answered == other);
        prop_assert!(keys.request(&answered, &[&covered], None) != digest);
        prop_assert!(keys.request(&asked, &[&covered], None) != digest);
        // The request's nonce can't be played into the covered bytes.
        let forged = [&asked.to_bytes()[..], &covered].concat();
        prop_assert!(keys.request(&answered, &[&forged], None) != digest);
    }

    #[test]
    fn where_the_bytes_are_cut_into_slices_does_not_matter(
        suite in suites(),
        nonce in nonces(),
        covered in vec(any::<u8>(), 0..300),
        data in vec(any::<u8>(), 0..3000),
        cuts in vec(any::<usize>(), 0..6),
    ) {
        let keys = DigestKeys::new(&SecretKey::new([3; 32]), suite);
        let announced = keys.data(Way::Request, &nonce, &[&data]);
        let whole = keys.request(&nonce, &[&covered], Some(&announced));
        let (covered, data) = (cut(&covered, &cuts), cut(&data, &cuts));
        prop_assert_eq!(keys.data(Way::Request, &nonce, &borrow(&data)), announced);
        prop_assert_eq!(keys.request(&nonce, &borrow(&covered), Some(&announced)), whole);
    }
}

#[test]
fn suites_have_nothing_in_common() {
    let key = SecretKey::new([9; 32]);
    let digests: Vec<_> = Suite::available()
        .iter()
        .map(|suite| DigestKeys::new(&key, *suite).request(&Nonce::default(), &[], None))
        .collect();
    assert!(digests.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn no_data_and_empty_data_differ() {
    for suite in Suite::available() {
        let keys = DigestKeys::new(&SecretKey::new([9; 32]), *suite);
        let nonce = Nonce::default();
        let nothing = keys.data(Way::Request, &nonce, &[]);
        assert_ne!(keys.request(&nonce, &[], None), keys.request(&nonce, &[], Some(&nothing)));
    }
}

#[test]
fn procedures_differ() {
    let expected = [0x20, 4, 0x53, 1, 0, 0, 0, 1, 0, 0, 0, 6];
    assert_eq!(procedure_bytes(0x2004_5301, 1, 6), expected);
}
