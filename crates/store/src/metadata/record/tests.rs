//! Records survive their bytes, and nothing else passes for one.

use nasd_types::{Compression, ObjectId, ObjectName, PartitionId, Protection, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::free_map::Run;
use crate::{ClockState, DriveKeys, PartitionKeys, PartitionSettings, StoredKey, WorkingKey};

const NAME: ObjectName = ObjectName { partition: PartitionId(5), object: ObjectId(6) };

fn object_record(seed: u64) -> ObjectRecord {
    ObjectRecord {
        access_control_version: seed,
        nearby_object: ObjectId(seed + 1),
        copied_object: ObjectId(seed + 2),
        logical_size: seed + 3,
        blocks_reserved: seed + 4,
        blocks_used: seed + 5,
        family: ObjectId(seed + 6),
        small: seed % 2 == 1,
        create_time: Timestamp(seed + 7),
        data_modify_time: Timestamp(seed + 8),
        attribute_modify_time: Timestamp(seed + 9),
        fs_data_modify_time: Timestamp(seed + 10),
        fs_attribute_modify_time: Timestamp(seed + 11),
        fs_specific: Box::new([seed as u8; 256]),
    }
}

fn partition_record() -> PartitionRecord {
    let key = |byte| StoredKey::new([byte; 32]);
    PartitionRecord {
        quota_bytes: 1,
        keys: PartitionKeys {
            partition: Some(key(2)),
            current: Some(WorkingKey { epoch: 3, key: key(4) }),
            previous: Some(WorkingKey { epoch: 2, key: key(5) }),
        },
        settings: PartitionSettings {
            compression: Compression::Lz4,
            minimum_protection: Protection::INTEGRITY_ARGS,
        },
        removing: true,
        objects: 7,
        charged_blocks: 8,
    }
}

/// One record of every kind: its bytes, and whether given bytes are taken for one.
type Sample = (Vec<u8>, Box<dyn Fn(&[u8]) -> bool>);

fn samples() -> Vec<Sample> {
    let key = object_key(NAME);
    let extent_key = extent_key(NAME, 16);
    let codec = Codec::Packed { compression: Compression::Zstd, stored: 2, length: 5000 };
    let packed = Extent { logical: 16, blocks: 9, physical: 40, codec };
    let share = Share {
        run: Run { start: 9, blocks: 3 },
        holders: vec![
            Holder { partition: PartitionId(1), count: 2, family: ObjectId(70) },
            Holder { partition: PartitionId(4), count: 1, family: ObjectId(0) },
        ],
    };
    let of_one = Share { holders: vec![share.holders[0]], ..share.clone() };
    let keys = DriveKeys { master: Some(StoredKey::new([1; 32])), drive: None };
    let clock = ClockState { offset: -5, mark: Timestamp(6), skew_past_ns: 7, skew_ahead_ns: 8 };
    vec![
        (
            object_record(3).encode(&key).to_vec(),
            Box::new(move |b| ObjectRecord::parse(&key, b).is_ok()),
        ),
        (encode_small(&key, b"contents"), Box::new(move |b| parse_small(&key, b).is_ok())),
        (
            packed.encode(&extent_key).to_vec(),
            Box::new(move |b| Extent::parse(&extent_key, b, 100).is_ok()),
        ),
        (Sums([7; 128]).encode(4).to_vec(), Box::new(|b| Sums::parse(4, b).is_ok())),
        (share.encode(), Box::new(|b| Share::parse(9, b, 100).is_ok())),
        (of_one.encode(), Box::new(|b| Share::parse(9, b, 100).is_ok())),
        (
            FamilyRecord { shared_blocks: 3, members: 2 }.encode(&key).to_vec(),
            Box::new(move |b| FamilyRecord::parse(&key, b).is_ok()),
        ),
        (
            partition_record().encode(PartitionId(9)).to_vec(),
            Box::new(|b| PartitionRecord::parse(PartitionId(9), b).is_ok()),
        ),
        (encode_drive_keys(&keys).to_vec(), Box::new(|b| parse_drive_keys(b).is_ok())),
        (
            Counters { object_limit: 1, clock, minimum_protection: Protection::all() }
                .encode()
                .to_vec(),
            Box::new(|b| Counters::parse(b).is_ok()),
        ),
        (
            LogMark { applied: 1, next_offset: 4096 }.encode().to_vec(),
            Box::new(|b| LogMark::parse(b).is_ok()),
        ),
    ]
}

#[test]
fn records_survive_their_bytes() {
    let key = object_key(NAME);
    for seed in [0, 1, 77] {
        let record = object_record(seed);
        assert_eq!(ObjectRecord::parse(&key, &record.encode(&key)), Ok(record));
    }
    let record = partition_record();
    assert_eq!(PartitionRecord::parse(PartitionId(9), &record.encode(PartitionId(9))), Ok(record));
    for (bytes, accepts) in samples() {
        assert!(accepts(&bytes));
    }
    assert_eq!(parse_small(&key, &encode_small(&key, b"abc")), Ok(&b"abc"[..]));
    assert_eq!(parse_object_key(&key), NAME);
    assert_eq!(parse_extent_key(&extent_key(NAME, 3)), (NAME, 3));
}

#[test]
fn every_flipped_bit_is_found() {
    for (index, (bytes, accepts)) in samples().into_iter().enumerate() {
        for bit in 0..8 * bytes.len() {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!accepts(&bad), "sample {index}, bit {bit}");
        }
        assert!(!accepts(&bytes[1..]) && !accepts(&[]));
    }
}

#[test]
fn a_record_under_another_key_is_refused() {
    let other = ObjectName { object: ObjectId(7), ..NAME };
    let record = object_record(1).encode(&object_key(NAME));
    assert!(ObjectRecord::parse(&object_key(other), &record).is_err());
    assert!(Sums::parse(5, &Sums([7; 128]).encode(4)).is_err());
}

#[test]
fn extents_that_make_no_sense_are_refused() {
    let fields = |logical, codec, numbers| Extent::from_fields(logical, 0, codec, numbers);
    assert!(fields(0, 0, [1, 1, 0]).is_ok() && fields(0, 1, [16, 15, 60_000]).is_ok());
    for bad in [
        fields(0, 0, [0, 0, 0]),
        fields(0, 0, [2, 1, 0]),
        fields(0, 0, [1, 1, 5]),
        fields(0, 0, [40_000, 40_000, 0]),
        fields(u64::MAX, 0, [1, 1, 0]),
        fields(0, 3, [2, 1, 5]),
        fields(0, 1, [1, 1, 5]),
        fields(0, 1, [17, 2, 5000]),
        fields(15, 1, [2, 1, 5]),
        fields(0, 1, [2, 2, 5000]),
        fields(0, 1, [4, 1, 5000]),
        fields(0, 1, [4, 1, 0]),
    ] {
        assert!(bad.is_err());
    }
    let key = extent_key(NAME, 0);
    let extent = Extent { logical: 0, blocks: 3, physical: 8, codec: Codec::Plain };
    assert!(Extent::parse(&key, &extent.encode(&key), 11).is_ok());
    assert!(Extent::parse(&key, &extent.encode(&key), 10).is_err());
}

#[test]
fn runs_are_cut_at_groups() {
    let cut: Vec<_> = groups(Run { start: 126, blocks: 132 }).collect();
    assert_eq!(cut, [(0, 126, 2), (1, 0, 128), (2, 0, 2)]);
}

proptest! {
    #[test]
    fn clipping_keeps_blocks_where_they_are(from in 0..40u64, length in 0..40u64) {
        let extent = Extent { logical: 10, blocks: 10, physical: 100, codec: Codec::Plain };
        let to = from + length;
        let clipped = extent.clip(from, to);
        let expected: Vec<u64> = (10..20).filter(|block| (from..to).contains(block)).collect();
        let found: Vec<u64> = clipped.iter().flat_map(|e| e.logical..e.end()).collect();
        prop_assert_eq!(&found, &expected);
        if let Some(clipped) = clipped {
            prop_assert_eq!(clipped.physical - clipped.logical, 90);
        }
    }
}
