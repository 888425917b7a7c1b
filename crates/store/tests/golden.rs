//! Golden images: what earlier programs wrote opens with the contents that it had, or is refused by
//! its version.
//!
//! An image is stored as its blocks that are not zeros, each behind its number (8 bytes,
//! little-endian), compressed by Zstandard, behind the size of the device in bytes (8 bytes). `nasd` of
//! a later version must go on opening `version-2.golden`, or raise the version of the format.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use common::*;
use nasd_device::{FaultPlan, FaultyDevice, Image};
use nasd_store::{OpenError, PartitionSettings, ScrubCursor, Store};
use nasd_types::{CellId, Compression, DriveId, ObjectId, ObjectName, SetAttributes, Timestamp};

const MIB: u64 = 1 << 20;
const CAPACITY: u64 = 8 * MIB;

fn golden(version: u32) -> PathBuf {
    let name = format!("version-{version}.golden");
    [env!("CARGO_MANIFEST_DIR"), "tests", "golden", &name].iter().collect()
}

fn pack(image: &[u8]) -> Vec<u8> {
    let mut blocks = Vec::new();
    for (number, block) in (0u64..).zip(image.chunks(BLOCK as usize)) {
        if block.iter().any(|byte| *byte != 0) {
            blocks.extend(number.to_le_bytes());
            blocks.extend(block);
        }
    }
    let mut packed = (image.len() as u64).to_le_bytes().to_vec();
    packed.extend(zstd::bulk::compress(&blocks, 19).unwrap());
    packed
}

fn unpack(packed: &[u8]) -> Image {
    let (bytes, stream) = packed.split_at(8);
    let bytes = u64::from_le_bytes(bytes.try_into().unwrap());
    let blocks = zstd::bulk::decompress(stream, 2 * bytes as usize).unwrap();
    let mut image = Image::zeroed(bytes);
    for entry in blocks.chunks(8 + BLOCK as usize) {
        let number = u64::from_le_bytes(entry[..8].try_into().unwrap());
        image.write(number * BLOCK, &entry[8..]);
    }
    image
}

fn load(version: u32) -> Arc<FaultyDevice> {
    let image = unpack(&std::fs::read(golden(version)).unwrap());
    Arc::new(FaultyDevice::over(image, FaultPlan::default()))
}

/// Bytes that are the same forever: every byte is a function of a seed and its place.
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    Random(seed).bytes(length)
}

/// The identifier of the first object that a drive gives out.
const FIRST: u64 = 64;

/// What the golden image of version 2 has, besides the two empty First Objects.
fn known() -> BTreeMap<ObjectName, Vec<u8>> {
    let mut large = bytes(3, 9000);
    large.resize(20_000, 0);
    large.extend(b"behind the hole");
    let mut copy = large.clone();
    copy[..5].copy_from_slice(b"apart");
    let compressible: Vec<u8> = (0..70_000u32).map(|at| (at / 700) as u8).collect();
    BTreeMap::from([
        (name(P1, ObjectId::FIRST_OBJECT.0), Vec::new()),
        (name(P2, ObjectId::FIRST_OBJECT.0), Vec::new()),
        (name(P1, FIRST), b"kept whole in the tree".to_vec()),
        (name(P1, FIRST + 1), large.clone()),
        (name(P1, FIRST + 2), copy),
        (name(P1, FIRST + 3), large),
        (name(P2, FIRST + 4), compressible),
        (name(P2, FIRST + 5), b"in the log alone".repeat(300)),
    ])
}

/// Makes the image: a checkpoint of most of it, and the rest in the log as after a crash.
fn make() -> Vec<u8> {
    let (device, store) = faulty_store(CAPACITY, &small_cache(32));
    let known = known();
    let small = create(&store, P1);
    write(&store, small, 0, &known[&small]).unwrap();
    let large = create(&store, P1);
    write(&store, large, 0, &bytes(3, 9000)).unwrap();
    write(&store, large, 20_000, b"behind the hole").unwrap();
    let notes = SetAttributes { fs_specific: Some(Box::new([0xf5; 256])), ..Default::default() };
    store.setattr(large, &notes, Timestamp(77)).unwrap();
    store.flush_all().unwrap();
    let copies = [(); 2].map(|()| store.fastcopy(large, Timestamp(88)).unwrap().0);
    let lz4 = PartitionSettings { compression: Compression::Lz4, ..PartitionSettings::default() };
    store.set_partition_settings(P2, lz4).unwrap();
    let compressible = create(&store, P2);
    write(&store, compressible, 0, &known[&compressible]).unwrap();
    store.flush_all().unwrap();
    store.checkpoint().unwrap();
    write(&store, name(P1, copies[0].0), 0, b"apart").unwrap();
    store.flush_all().unwrap();
    let logged = create(&store, P2);
    write(&store, logged, 0, &known[&logged]).unwrap();
    store.flush(&[logged]).unwrap();
    assert!(everything(&store) == known);
    // What a crash leaves now.
    device.live_image()
}

#[test]
fn what_version_2_wrote_opens_with_what_it_had() {
    let packed = std::fs::read(golden(2)).unwrap();
    assert!(packed.len() < 100 << 10, "{} bytes", packed.len());
    let device = load(2);
    for round in 0..2 {
        let store = open(device.clone(), &small_cache(32));
        assert!(everything(&store) == known(), "round {round}");
        let identity = store.identity();
        assert_eq!((identity.drive, identity.cell), (DriveId(0xd1), CellId([0xce; 16])));
        let large = store.getattr(name(P1, FIRST + 1)).unwrap();
        assert_eq!(*large.fs_specific, [0xf5; 256]);
        assert_eq!((large.logical_size, large.create_time), (20_015, Timestamp(2)));
        assert_eq!(large.attribute_modify_time, Timestamp(77));
        let copy = store.getattr(name(P1, FIRST + 2)).unwrap();
        assert_eq!((copy.copied_object, copy.create_time), (ObjectId(FIRST + 1), Timestamp(88)));
        let settings = store.partition_settings(P2).unwrap();
        assert_eq!(settings.compression, Compression::Lz4);
        let compressed = store.getattr(name(P2, FIRST + 4)).unwrap();
        assert!(compressed.blocks_used < 70_000 / BLOCK, "{} blocks", compressed.blocks_used);
        check_space(&store);
        let step = store.scrub(&mut ScrubCursor::default(), u64::MAX).unwrap();
        assert!(step.finished && step.findings.is_empty() && step.read_bytes > 0);
        // And goes on from there.
        let object = create(&store, P1);
        assert!(object.object.0 > FIRST + 5);
        write(&store, object, 0, &[1; 50_000]).unwrap();
        store.flush_all().unwrap();
        store.remove(object).unwrap();
        store.close().unwrap();
    }
}

#[test]
fn another_version_is_refused_by_its_number() {
    for version in [1u32, 3] {
        let mut image = load(2).live();
        for place in [0, 512 << 10] {
            let mut block = [0; BLOCK as usize];
            image.read(place, &mut block);
            block[8..12].copy_from_slice(&version.to_le_bytes());
            block[12..16].fill(0);
            let sum = crc32c::crc32c(&block);
            block[12..16].copy_from_slice(&sum.to_le_bytes());
            image.write(place, &block);
        }
        let device = Arc::new(FaultyDevice::over(image, FaultPlan::default()));
        let error = Store::open(device.clone(), &small_cache(32)).unwrap_err();
        assert!(
            matches!(error, OpenError::WrongVersion { found, supported: 2 } if found == version)
        );
        let text = error.to_string();
        assert!(text.contains(&format!("version {version}")) && text.contains('2'), "{text}");
        assert_eq!(device.writes(), 0, "a drive that is refused is left as it is");
    }
}

#[test]
fn images_survive_their_packing() {
    let image = make();
    let mut back = vec![0; image.len()];
    unpack(&pack(&image)).read(0, &mut back);
    assert!(image == back);
}

/// `cargo test -p nasd-store --test golden -- --ignored` makes the image of this version anew: for a new
/// version of the format, beside the old ones, never in their place.
#[test]
#[ignore = "makes a new golden image"]
fn make_a_golden_image() {
    std::fs::create_dir_all(golden(2).parent().unwrap()).unwrap();
    std::fs::write(golden(2), pack(&make())).unwrap();
}
