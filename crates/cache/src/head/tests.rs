//! Heads against the example in `docs/cache-format.md`, and against bytes that are none.

use super::*;
use crate::directory::{Directory, Part};
use std::path::Path;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cache-format.md");

fn example() -> Head {
    Head {
        cell: CellId(std::array::from_fn(|index| index as u8)),
        file: FileKey {
            drive: DriveId(0x1122_3344_5566_7788),
            partition: PartitionId(5),
            object: ObjectId(0x41),
        },
        version: 6,
        length: 300_000,
        note: b"note".to_vec(),
        chunks: vec![(0, checksum(&[0; 256 << 10])), (1, checksum(&[1; 37_856]))],
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let lines = bytes.chunks(16).map(|line| {
        let words: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("    {}\n", words.join(" "))
    });
    lines.collect()
}

#[test]
fn the_document_has_the_example() {
    let text = std::fs::read_to_string(DOCUMENT).unwrap();
    let bytes = example().encode();
    assert!(text.contains(&hexadecimal(&bytes)), "the example is\n{}", hexadecimal(&bytes));
    assert_eq!(Head::decode(&bytes), Ok(example()));
    let place = Directory::new(Path::new("")).part(&example().file, Part::Head);
    assert!(text.contains(&format!("`{}`", place.display())), "{}", place.display());
}

/// Offsets as the document's table tells them.
#[test]
fn the_document_has_the_offsets() {
    let text = std::fs::read_to_string(DOCUMENT).unwrap();
    let bytes = example().encode();
    let told: [(usize, &[u8]); 10] = [
        (0, b"NCHE"),
        (4, &1u16.to_le_bytes()),
        (6, &4u16.to_le_bytes()),
        (8, &example().cell.0),
        (24, &0x1122_3344_5566_7788u64.to_le_bytes()),
        (32, &5u32.to_le_bytes()),
        (36, &262_144u32.to_le_bytes()),
        (40, &0x41u64.to_le_bytes()),
        (48, &6u64.to_le_bytes()),
        (56, &300_000u64.to_le_bytes()),
    ];
    for (at, value) in told {
        assert_eq!(&bytes[at..at + value.len()], value, "at {at}");
        assert!(text.contains(&format!("| {at} | {} |", value.len())), "the row at {at}");
    }
    assert_eq!(word(&bytes, 64), 2);
    assert_eq!(&bytes[NOTE_AT..NOTE_AT + 4], b"note");
    assert_eq!(bytes.len() as u64, Head::encoded_length(4, 2));
}

#[test]
fn no_damaged_head_is_believed() {
    let bytes = example().encode();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            assert!(Head::decode(&damaged).is_err(), "bit {bit} of byte {at}");
        }
        assert!(Head::decode(&bytes[..at]).is_err(), "cut to {at}");
    }
    assert!(Head::decode(&[bytes, vec![0]].concat()).is_err());
}

type Change<'a> = &'a dyn Fn(&mut Vec<u8>);

/// Bytes whose checksum is right, as another program could write them.
#[test]
fn what_can_not_be_is_refused_under_a_right_checksum() {
    let sealed = |change: Change<'_>| {
        let mut bytes = example().encode();
        bytes.truncate(bytes.len() - SUM_BYTES);
        change(&mut bytes);
        let sum = xxh3_128(&bytes).to_le_bytes();
        bytes.extend_from_slice(&sum);
        Head::decode(&bytes)
    };
    assert!(sealed(&|_| ()).is_ok());
    let wrong: [Change<'_>; 7] = [
        &|bytes| bytes[4] = 2,
        &|bytes| bytes[36] = 1,
        &|bytes| bytes[6..8].copy_from_slice(&[0xff; 2]),
        &|bytes| bytes[63] = 0x80,
        &|bytes| bytes[64..72].copy_from_slice(&[0xff; 8]),
        &|bytes| bytes[NOTE_AT + 4 + ENTRY_BYTES] = 2,
        &|bytes| bytes[NOTE_AT + 4 + ENTRY_BYTES] = 0,
    ];
    for (index, change) in wrong.iter().enumerate() {
        assert!(sealed(change).is_err(), "{index}");
    }
}
