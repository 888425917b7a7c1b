//! Compares docs/on-disk-format.md with the constants of the code, table by table.

use std::collections::BTreeMap;

use nasd_types::limits::BLOCK_BYTES;

use crate::geometry::{
    LOG_MAX, LOG_MIN, LOG_OFFSET, METADATA_MIN, METADATA_STEP, TREE_REGION_BYTES,
};
use crate::layout::Field;
use crate::log::{change, entry};
use crate::metadata::record::{
    self, Codec, EXTENT_BLOCKS_MAX, GROUP_BLOCKS, RECORD_VERSION, SMALL_BYTES_MAX,
};
use crate::superblock::{self, FORMAT_VERSION, MAGIC, SUPERBLOCK_OFFSETS};

const DOCUMENT: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/on-disk-format.md"));

/// The rows (offset, size, field) of each table that a layout comment announces.
fn tables() -> BTreeMap<String, Vec<(usize, usize, String)>> {
    let mut found: BTreeMap<String, Vec<(usize, usize, String)>> = BTreeMap::new();
    let mut current = None;
    for line in DOCUMENT.lines() {
        if let Some(name) = line.strip_prefix("<!-- layout: ") {
            let name = name.trim_end_matches(" -->").to_owned();
            assert!(found.insert(name.clone(), Vec::new()).is_none(), "{name} comes twice");
            current = Some(name);
            continue;
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let row = match cells[..] {
            ["", offset, size, field, ..] => {
                offset.parse().ok().zip(size.parse().ok()).zip(Some(field))
            }
            _ => None,
        };
        match (row, &current) {
            (Some(((offset, size), field)), Some(name)) => {
                let rows = found.get_mut(name).expect("the table was begun above");
                rows.push((offset, size, field.to_owned()));
            }
            (None, Some(name)) if !line.is_empty() && !line.starts_with('|') => {
                assert!(!found[name].is_empty(), "{name} has no rows");
                current = None;
            }
            _ => {}
        }
    }
    found
}

#[test]
fn every_layout_is_documented_as_it_is() {
    let expected: [(&str, &[Field]); 20] = [
        ("superblock", superblock::field::FIELDS),
        ("log_entry", entry::log_entry::FIELDS),
        ("change", change::change::FIELDS),
        ("map", change::map::FIELDS),
        ("appended", change::appended::FIELDS),
        ("object_key", record::object_key::FIELDS),
        ("extent_key", record::extent_key::FIELDS),
        ("object", record::object::FIELDS),
        ("small", record::small::FIELDS),
        ("extent", record::extent::FIELDS),
        ("sums", record::sums::FIELDS),
        ("share", record::share::FIELDS),
        ("holder", record::holder::FIELDS),
        ("family", record::family::FIELDS),
        ("partition", record::partition::FIELDS),
        ("drive_keys", record::drive_keys::FIELDS),
        ("drive_counters", record::drive_counters::FIELDS),
        ("log_mark", record::log_mark::FIELDS),
        ("appends", record::appends::FIELDS),
        ("append", record::append::FIELDS),
    ];
    let tables = tables();
    assert_eq!(tables.len(), expected.len());
    for (name, fields) in expected {
        let fields: Vec<(usize, usize, String)> =
            fields.iter().map(|field| (field.offset, field.size, field.name.to_owned())).collect();
        assert_eq!(tables[name], fields, "{name}");
    }
}

#[test]
fn every_number_of_the_text_is_the_codes() {
    let says =
        |text: String| assert!(DOCUMENT.contains(&text), "the document does not say: {text}");
    says(format!("# On-disk format, version {FORMAT_VERSION}"));
    says(format!("| superblock A | byte {} |", SUPERBLOCK_OFFSETS[0]));
    says(format!("| superblock B | byte {} |", SUPERBLOCK_OFFSETS[1]));
    says(format!("| log | byte {LOG_OFFSET} |"));
    says(format!("at least {} KiB and at most {} MiB", LOG_MIN >> 10, LOG_MAX >> 20));
    says(format!("`{}`", String::from_utf8_lossy(&entry::MAGIC)));
    says(format!("number of a group of {GROUP_BLOCKS} data blocks"));
    says(format!("then so many bytes, 1 to {SMALL_BYTES_MAX}"));
    says(format!("A *block* is {BLOCK_BYTES} bytes"));
    says(format!("`{}`", String::from_utf8_lossy(&MAGIC)));
    says(format!("number of blocks of the object, 1 to {EXTENT_BLOCKS_MAX}"));
    says(format!("begins with its version, {RECORD_VERSION},"));
    says(format!("multiple of {} KiB", METADATA_STEP >> 10));
    says(format!("at least {} MiB", METADATA_MIN >> 20));
    says(format!("whole number, at least two, of {} GiB", TREE_REGION_BYTES >> 30));
    for table in [
        "objects",
        "small",
        "extents",
        "sums",
        "shares",
        "families",
        "members",
        "partitions",
        "drive",
        "ballast",
    ] {
        says(format!("| `{table}` |"));
    }
}

/// A superblock of version 2, byte by byte: whoever changes the layout changes this, the document
/// and the version.
#[test]
fn the_format_is_frozen() {
    let geometry = crate::geometry::Geometry::plan(64 << 20, None).unwrap();
    let block = superblock::Superblock {
        sequence: 1,
        drive: nasd_types::DriveId(2),
        cell: nasd_types::CellId([3; 16]),
        formatted: nasd_types::Timestamp(4),
        geometry,
        log_key: 5,
    }
    .encode();
    let name = nasd_types::ObjectName {
        partition: nasd_types::PartitionId(5),
        object: nasd_types::ObjectId(6),
    };
    let key = record::extent_key(name, 7);
    let extent =
        record::Extent { logical: 7, physical: 8, blocks: 2, codec: Codec::Plain }.encode(&key);
    let initial = nasd_types::SetAttributes { logical_size: Some(11), ..Default::default() };
    let object = crate::object::initial_record(&initial, nasd_types::Timestamp(12));
    let object = object.encode(&record::object_key(name));
    let sums = [&block[..], &extent, &object].map(crc32c::crc32c);
    assert_eq!(sums, [3807011002, 293704504, 1176926060]);
}
