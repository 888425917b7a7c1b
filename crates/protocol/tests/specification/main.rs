//! The Rust messages are those of `specs/*.x`: every constant, enumeration, program and procedure
//! has the number that the text gives it, and every structure and union has the fields that the
//! text gives it, in that order.

mod numbers;
mod samples;
mod spec;

use samples::{Sample, all_samples};
use spec::{Spec, walk};

#[test]
fn every_message_is_laid_out_as_specified() {
    let spec = Spec::load();
    let mut visited = std::collections::BTreeSet::new();
    for Sample { type_name, bytes, .. } in all_samples() {
        let mut input = nasd_xdr::Decoder::new(&bytes);
        walk(&spec, type_name, type_name, &mut input, &mut visited)
            .unwrap_or_else(|problem| panic!("{type_name}: {problem}"));
        assert_eq!(input.remaining(), 0, "{type_name}: bytes that the specification has not");
    }
    for name in spec.composites() {
        assert!(visited.contains(name), "{name} of the specification has no sample here");
    }
}

#[test]
fn every_message_survives_and_every_cut_is_told() {
    for Sample { type_name, bytes, head_bytes, again } in all_samples() {
        let head = &bytes[..head_bytes];
        assert_eq!(again(head).as_deref(), Ok(head), "{type_name}");
        for cut in 0..head.len() {
            let error = again(&head[..cut]).unwrap_err();
            assert!(error.is_truncated(), "{type_name} cut at {cut}: {error}");
        }
        let longer = [head, &[0; 4]].concat();
        assert_eq!(again(&longer), Err(nasd_xdr::XdrError::Trailing(4)), "{type_name}");
    }
}

mod mutations {
    //! Bytes that look nearly like messages: decoded or refused, never a panic, and what is
    //! accepted is accepted in only one encoding.

    use proptest::prelude::*;

    use super::samples::{Sample, all_samples};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn mutated_messages_decode_or_fail(
            which: prop::sample::Index,
            changes in prop::collection::vec(
                (any::<prop::sample::Index>(), prop_oneof![Just(0_u8), Just(1), Just(0xff), any::<u8>()]),
                1..5,
            ),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let samples = all_samples();
            let Sample { type_name, bytes, head_bytes, again } = which.get(&samples);
            let mut head = bytes[..*head_bytes].to_vec();
            if head.is_empty() {
                return Ok(());
            }
            for (at, value) in changes {
                let at = at.index(head.len());
                head[at] = value;
            }
            if let Some(cut) = cut {
                head.truncate(cut.index(head.len()));
            }
            if let Ok(encoded) = again(&head) {
                // Unknown suites are left out of an inquiry's answer, on purpose.
                prop_assert!(encoded == head || type_name.contains("inquiry") || type_name.contains("information"));
            }
        }

        #[test]
        fn any_bytes_decode_or_fail(
            which: prop::sample::Index,
            bytes in prop::collection::vec(prop_oneof![6 => Just(0_u8), 2 => 0..4_u8, 1 => any::<u8>()], 0..400),
        ) {
            let samples = all_samples();
            let _ = (which.get(&samples).again)(&bytes);
        }
    }
}
