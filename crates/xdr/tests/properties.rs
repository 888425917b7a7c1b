//! Whatever is encoded decodes to itself and takes whole units; whatever bytes come, decoding
//! ends with a value or an error, and what it accepts encodes to the same bytes again.

use nasd_xdr::{Decoder, Encoder, XdrError, xdr_padded};
use proptest::prelude::*;

/// One item of any kind, so that sequences of items can be drawn.
#[derive(Clone, Debug, PartialEq)]
enum Item {
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    Bool(bool),
    Fixed([u8; 5]),
    Opaque(Vec<u8>),
    Text(String),
    Optional(Option<u64>),
    Array(Vec<u32>),
}

const LIMIT: usize = 40;

fn item() -> impl Strategy<Value = Item> {
    prop_oneof![
        any::<u32>().prop_map(Item::U32),
        any::<i32>().prop_map(Item::I32),
        any::<u64>().prop_map(Item::U64),
        any::<i64>().prop_map(Item::I64),
        any::<bool>().prop_map(Item::Bool),
        any::<[u8; 5]>().prop_map(Item::Fixed),
        prop::collection::vec(any::<u8>(), 0..=LIMIT).prop_map(Item::Opaque),
        "[a-z\u{e9}]{0,10}".prop_map(Item::Text),
        any::<Option<u64>>().prop_map(Item::Optional),
        prop::collection::vec(any::<u32>(), 0..=LIMIT).prop_map(Item::Array),
    ]
}

fn encode(item: &Item, out: &mut Encoder) {
    match item {
        Item::U32(value) => out.u32(*value),
        Item::I32(value) => out.i32(*value),
        Item::U64(value) => out.u64(*value),
        Item::I64(value) => out.i64(*value),
        Item::Bool(value) => out.bool(*value),
        Item::Fixed(value) => out.opaque_fixed(value),
        Item::Opaque(value) => out.opaque(value),
        Item::Text(value) => out.string(value),
        Item::Optional(value) => out.optional(value.as_ref()),
        Item::Array(value) => out.array(value),
    }
}

/// Decodes an item of the same kind as `like`.
fn decode(like: &Item, input: &mut Decoder<'_>) -> Result<Item, XdrError> {
    Ok(match like {
        Item::U32(_) => Item::U32(input.u32()?),
        Item::I32(_) => Item::I32(input.i32()?),
        Item::U64(_) => Item::U64(input.u64()?),
        Item::I64(_) => Item::I64(input.i64()?),
        Item::Bool(_) => Item::Bool(input.bool()?),
        Item::Fixed(_) => Item::Fixed(input.opaque_fixed()?),
        Item::Opaque(_) => Item::Opaque(input.opaque(LIMIT)?.to_vec()),
        Item::Text(_) => Item::Text(input.string(LIMIT)?.to_owned()),
        Item::Optional(_) => Item::Optional(input.optional()?),
        Item::Array(_) => Item::Array(input.array(LIMIT)?),
    })
}

proptest! {
    #[test]
    fn items_survive(items in prop::collection::vec(item(), 0..12)) {
        let mut out = Encoder::new();
        for item in &items {
            encode(item, &mut out);
        }
        let bytes = out.into_bytes();
        prop_assert_eq!(bytes.len(), xdr_padded(bytes.len()));
        let mut input = Decoder::new(&bytes);
        for item in &items {
            prop_assert_eq!(&decode(item, &mut input)?, item);
        }
        prop_assert_eq!(input.finish(), Ok(()));
    }

    #[test]
    fn every_cut_is_told(items in prop::collection::vec(item(), 1..6), cut in any::<prop::sample::Index>()) {
        let mut out = Encoder::new();
        for item in &items {
            encode(item, &mut out);
        }
        let bytes = out.into_bytes();
        let cut = cut.index(bytes.len());
        let mut input = Decoder::new(&bytes[..cut]);
        let result: Result<Vec<_>, _> = items.iter().map(|item| decode(item, &mut input)).collect();
        prop_assert!(result.unwrap_err().is_truncated());
    }

    #[test]
    fn any_bytes_give_a_value_or_an_error(
        bytes in prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => 0..8_u8, 1 => any::<u8>()], 0..200),
        kinds in prop::collection::vec(item(), 1..12),
    ) {
        let mut input = Decoder::new(&bytes);
        let mut out = Encoder::new();
        for kind in &kinds {
            let before = input.position();
            match decode(kind, &mut input) {
                Ok(item) => encode(&item, &mut out),
                Err(_) => {
                    prop_assert!(input.position() >= before);
                    break;
                }
            }
            // Strictness: nothing has two encodings.
            prop_assert_eq!(out.as_bytes(), &bytes[..input.position()]);
        }
        prop_assert!(input.position() <= bytes.len());
    }
}
