//! One planted corruption for each code: it is found, nothing else is but what follows from it, and
//! a repair leaves a drive on which nothing is found, or only what it says it leaves.

#![allow(clippy::unwrap_used, reason = "compiled for tests alone")]

mod image;

use std::collections::BTreeSet;
use std::sync::Arc;

use image::*;
use nasd_check::{Code, Options, Outcome, RepairOptions, Severity, check, repair};
use nasd_device::{BlockDevice, FaultPlan, FaultyDevice, MemoryDevice};
use nasd_types::{ObjectId, Protection};

/// A way to break a rule.
struct Case {
    code: Code,
    /// Other codes that may come with it.
    with: &'static [Code],
    /// A repair leaves it.
    stays: bool,
    device: Arc<dyn BlockDevice>,
}

fn rows(code: Code, with: &'static [Code], change: impl FnOnce(&mut Image)) -> Case {
    let mut image = Image::sample();
    change(&mut image);
    Case { code, with, stays: false, device: image.write() }
}

fn poked(code: Code, change: impl FnOnce(&MemoryDevice)) -> Case {
    let device = Image::sample().write();
    change(&device);
    Case { code, with: &[], stays: false, device }
}

fn left(case: Case) -> Case {
    Case { stays: true, ..case }
}

/// A device with a block that can't be read.
fn rotten(place: u64) -> Arc<dyn BlockDevice> {
    let unreadable = place..place + 4096;
    let plan = FaultPlan { unreadable, ..FaultPlan::default() };
    Arc::new(FaultyDevice::new(Image::sample().write().image(), plan))
}

/// The first bit that stands for no protection option.
const NO_PROTECTION_KNOWN: u32 = Protection::all().bits() + 1;

const COUNTS: &[Code] = &[Code::BlocksUsedWrong, Code::PartitionChargeWrong];

fn superblocks() -> Vec<Case> {
    const B: u64 = 512 << 10;
    let other_version = || {
        let mut block = superblock(1);
        set32(&mut block, 8, 3);
        seal_superblock(&mut block);
        block
    };
    let short = MemoryDevice::from_image(&Image::sample().write().image()[..5 << 20]).unwrap();
    vec![
        left(poked(Code::NotADrive, |device| {
            device.poke(0, &[0; 8]);
            device.poke(B, &[0; 8]);
        })),
        left(poked(Code::UnknownVersion, |device| {
            device.poke(0, &other_version());
            device.poke(B, &other_version());
        })),
        left(poked(Code::SuperblocksDamaged, |device| {
            device.poke(100, &[1]);
            device.poke(B + 100, &[1]);
        })),
        Case { code: Code::DeviceTruncated, with: &[], stays: true, device: Arc::new(short) },
        poked(Code::SuperblockADamaged, |device| device.poke(40, &[1])),
        poked(Code::SuperblockBDamaged, |device| device.poke(B, &other_version())),
        poked(Code::SuperblockAOlder, |device| device.poke(B, &superblock(2))),
        poked(Code::SuperblockBOlder, |device| device.poke(0, &superblock(2))),
        poked(Code::SuperblockConflict, |device| {
            let mut block = superblock(1);
            block[32] = 0;
            seal_superblock(&mut block);
            device.poke(B, &block);
        }),
    ]
}

/// Where in the region a text is.
fn find(device: &MemoryDevice, text: &[u8]) -> u64 {
    let region = device.peek(METADATA_AT, METADATA_BYTES as usize);
    let found = region.windows(text.len()).rposition(|window| window == text).unwrap();
    METADATA_AT + found as u64
}

fn trees() -> Vec<Case> {
    let lost = &[
        Code::ExtentOrphan,
        Code::SmallOrphan,
        Code::FamilyMissing,
        Code::FamilyEmpty,
        Code::FamilyMembersWrong,
        Code::SharedBlocksWrong,
        Code::MemberOrphan,
        Code::ShareUnused,
        Code::FirstObjectMissing,
        Code::PartitionObjectsWrong,
        Code::PartitionChargeWrong,
        Code::BlocksUsedWrong,
    ];
    let damaged = poked(Code::TreeDamaged, |device| {
        let small = find(device, &noise(3, 90)[..32]);
        device.poke(small, &[0]);
    });
    vec![
        left(poked(Code::TreeUnreadable, |device| device.poke(METADATA_AT + 64, &[9; 256]))),
        Case { with: &[Code::SmallMissing], ..damaged },
        rows(Code::TableMalformed, &[Code::FamilyMissing], |image| image.wrong_type = true),
        poked(Code::TreeSpaceWrong, plant_wrong_space),
        rows(Code::TableUnknown, &[], |image| image.stranger = true),
        rows(Code::BallastMissing, &[], |image| image.no_ballast = true),
        Case {
            with: lost,
            ..poked(Code::TreeDamaged, |device| {
                let record = Image::sample().rows[&("objects", object_key(1, 66))].clone();
                let page = find(device, &record[..64]) / 4096 * 4096;
                device.poke(page + 5, &[0xff; 100]);
            })
        },
    ]
}

fn logs() -> Vec<Case> {
    let remove = [change(2, 1, 64, &[])];
    let mark = |image: &mut Image, applied, next| {
        image.put("drive", short(3), mark_record(applied, next));
    };
    let unreadable = rotten(LOG_AT);
    vec![
        rows(Code::LogMarkMissing, &[], |image| {
            image.remove("drive", short(3));
            image.entry(0, 7, &remove);
        }),
        rows(Code::LogMarkInvalid, &[], |image| mark(image, 3, 4097)),
        Case { code: Code::LogUnreadable, with: &[], stays: true, device: unreadable },
        rows(Code::LogEntryDamaged, &[], |image| {
            let next = image.entry(0, 1, &[change(2, 1, 65, &[])]);
            let next = image.entry(next, 2, &remove);
            image.entry(next, 3, &remove);
            image.entries[1].1[50] ^= 1;
        }),
        rows(Code::LogEntryMalformed, &[], |image| {
            let next = image.entry(0, 1, &[change(13, 1, 65, &[])]);
            image.entry(next, 2, &remove);
        }),
        rows(Code::LogChangeSenseless, &[], |image| {
            let cut = [0u64.to_le_bytes(), 1u64.to_le_bytes()].concat();
            image.entry(0, 1, &[change(3, 1, 99, &cut), remove[0].clone()]);
        }),
        rows(Code::LogPaddingNotZero, &[], |image| {
            image.entry(0, 1, &remove);
            image.entries[0].1.push(1);
        }),
    ]
}

fn records() -> Vec<Case> {
    vec![
        rows(Code::RecordDamaged, COUNTS, |image| image.damage("extents", extent_key(1, 64, 2))),
        // Under a foreign key.
        rows(Code::RecordDamaged, COUNTS, |image| {
            let value = image.rows[&("extents", extent_key(1, 64, 2))].clone();
            image.rows.insert(("extents", extent_key(1, 64, 3)), value);
            image.remove("extents", extent_key(1, 64, 2));
        }),
        rows(Code::RecordDamaged, &[Code::PartitionMissing], |image| {
            image.damage("partitions", short(2));
        }),
        rows(
            Code::RecordDamaged,
            &[Code::ExtentOrphan, Code::PartitionObjectsWrong, Code::PartitionChargeWrong],
            |image| {
                image.damage("objects", object_key(1, 64));
            },
        ),
        rows(Code::RecordDamaged, &[], |image| image.damage("sums", long(0))),
        rows(Code::RecordDamaged, &[Code::FamilyMissing], |image| {
            image.damage("families", object_key(1, 66));
        }),
        rows(Code::RecordDamaged, &[], |image| image.damage("small", object_key(1, 65))),
        rows(Code::RecordVersion, &[Code::PartitionMissing], |image| {
            image.edit("partitions", short(2), |record| record[0] = 1);
        }),
        rows(Code::RecordReserved, &[], |image| {
            image.edit("objects", object_key(1, 64), |record| record[3] = 1);
        }),
        rows(Code::RecordReserved, &[], |image| {
            image.edit("shares", long(30), |record| record[20] = 1);
        }),
        rows(Code::RecordField, &[], |image| {
            image.edit("objects", object_key(1, 64), |record| set64(record, 32, 1 << 63));
        }),
        rows(Code::RecordField, &[], |image| {
            image.edit("partitions", short(1), |record| record[50] = 1);
        }),
        rows(Code::RecordField, &[], |image| {
            image.put("members", extent_key(1, 66, 66), vec![1]);
        }),
        rows(Code::RecordField, &[], |image| {
            image.edit("objects", object_key(1, 64), |record| record[1] = 0x80);
        }),
        rows(Code::RecordField, &[], |image| {
            image.edit("partitions", short(1), |record| set32(record, 136, NO_PROTECTION_KNOWN));
        }),
        rows(Code::RecordField, &[], |image| {
            image.edit("partitions", short(2), |record| set32(record, 136, u32::MAX));
        }),
        rows(Code::RecordField, &[], |image| {
            image.edit("drive", short(2), |record| record[1] = NO_PROTECTION_KNOWN as u8);
        }),
        rows(Code::RecordUnknownKey, &[], |image| {
            image.put("drive", short(9), mark_record(1, 1));
        }),
        left(rows(Code::DriveKeysMissing, &[], |image| image.remove("drive", short(1)))),
        rows(Code::DriveCountersMissing, &[], |image| image.remove("drive", short(2))),
        rows(Code::IdentifierAboveLimit, &[], |image| {
            image.edit("drive", short(2), |record| set64(record, 8, 70));
        }),
        // The last one that the drive itself may give out.
        rows(Code::IdentifierAboveLimit, &[], |image| add(image, ObjectId::FIRST_NAMED.0 - 1)),
    ]
}

/// Adds an empty object to partition 2.
fn add(image: &mut Image, object: u64) {
    image.put("objects", object_key(2, object), object_record(0, 0, 0));
    image.edit("partitions", short(2), |record| set64(record, 16, 3));
}

fn partitions() -> Vec<Case> {
    vec![
        rows(Code::PartitionMissing, &[], |image| image.remove("partitions", short(2))),
        rows(Code::PartitionObjectsWrong, &[], |image| {
            image.edit("partitions", short(2), |record| set64(record, 16, 3));
        }),
        rows(Code::PartitionChargeWrong, &[], |image| {
            image.edit("partitions", short(2), |record| set64(record, 24, 3));
        }),
        rows(Code::FirstObjectMissing, &[Code::PartitionObjectsWrong], |image| {
            image.remove("objects", object_key(2, 4));
        }),
        rows(Code::BlocksUsedWrong, &[Code::PartitionChargeWrong], |image| {
            image.edit("objects", object_key(1, 64), |record| set64(record, 48, 7));
        }),
    ]
}

fn extents() -> Vec<Case> {
    let extent = |image: &mut Image, key, physical, blocks, stored, length, codec| {
        image.put("extents", key, extent_record(physical, blocks, stored, length, codec));
    };
    vec![
        rows(Code::ExtentMalformed, COUNTS, |image| {
            extent(image, extent_key(1, 64, 2), 20, 1, 2, 0, 0);
        }),
        rows(Code::ExtentMalformed, COUNTS, |image| {
            extent(image, extent_key(1, 64, 2), 20, 16, 1, 100, 1);
        }),
        rows(Code::ExtentOutsideDevice, COUNTS, |image| {
            extent(image, extent_key(1, 64, 2), DATA_BLOCKS, 1, 1, 0, 0);
        }),
        rows(Code::ExtentsOverlap, COUNTS, |image| {
            extent(image, extent_key(1, 64, 1), 400, 1, 1, 0, 0);
        }),
        rows(Code::ExtentBehindSize, COUNTS, |image| {
            image.edit("objects", object_key(1, 64), |record| set64(record, 32, 4096));
        }),
        rows(Code::ExtentOrphan, &[], |image| {
            extent(image, extent_key(1, 99, 0), 400, 1, 1, 0, 0);
        }),
        rows(Code::SmallOrphan, &[], |image| {
            image.put("small", object_key(1, 99), small_record(b"abc"));
        }),
        rows(Code::SmallMissing, &[], |image| image.remove("small", object_key(1, 65))),
        rows(Code::SmallUnexpected, &[], |image| {
            image.edit("objects", object_key(1, 65), |record| record[1] = 0);
        }),
        rows(Code::SmallUnexpected, &[], |image| {
            image.put("small", object_key(1, 64), small_record(b"abc"));
        }),
        rows(Code::SmallMalformed, &[], |image| {
            image.put("small", object_key(1, 65), small_record(&[1; 101]));
        }),
        rows(Code::SmallMalformed, &[], |image| {
            image.put("small", object_key(1, 65), small_record(&[]));
        }),
        rows(Code::SmallWithExtents, &[], |image| {
            image.extent((1, 65), 0, 400, &[5; 4096]);
        }),
    ]
}

fn shares() -> Vec<Case> {
    let share = |image: &mut Image, first, family, blocks, count| {
        image.put("shares", long(first), share_record(1, family, blocks, count));
    };
    const TWICE: &[Code] = &[Code::BlocksUsedWrong, Code::PartitionChargeWrong];
    const SHARED: &[Code] = &[
        Code::ShareMissing,
        Code::BlocksUsedWrong,
        Code::SharedBlocksWrong,
        Code::PartitionChargeWrong,
    ];
    vec![
        rows(Code::BlockUsedTwice, &[Code::TailNotZero], |image| {
            image.put("extents", extent_key(1, 64, 2), extent_record(200, 1, 1, 0, 0));
        }),
        rows(Code::BlockUsedTwice, &[Code::TailNotZero], |image| {
            // Of one object, and one of them in a family.
            image.put("extents", extent_key(1, 64, 2), extent_record(34, 1, 1, 0, 0));
        }),
        rows(Code::BlockUsedTwice, TWICE, |image| {
            // Of a compressed extent, which goes whole.
            image.put("extents", extent_key(2, 70, 0), extent_record(50, 1, 1, 0, 0));
        }),
        rows(Code::ShareMissing, SHARED, |image| image.remove("shares", long(30))),
        rows(Code::ShareMalformed, SHARED, |image| share(image, 30, 66, 4, 0)),
        rows(Code::ShareOutsideDevice, &[], |image| share(image, 510, 66, 4, 2)),
        rows(Code::SharesOverlap, &[], |image| share(image, 33, 66, 1, 2)),
        rows(Code::ShareCountWrong, &[], |image| share(image, 30, 66, 4, 3)),
        rows(
            Code::ShareForeign,
            &[Code::ShareCountWrong, Code::BlocksUsedWrong, Code::PartitionChargeWrong],
            |image| image.put("extents", extent_key(2, 70, 0), extent_record(31, 1, 1, 0, 0)),
        ),
        rows(
            Code::ShareForeign,
            &[
                Code::ShareCountWrong,
                Code::BlocksUsedWrong,
                Code::PartitionChargeWrong,
                Code::TailNotZero,
            ],
            |image| image.put("extents", extent_key(1, 64, 2), extent_record(31, 1, 1, 0, 0)),
        ),
        rows(Code::ShareUnused, &[Code::SharedBlocksWrong, Code::PartitionChargeWrong], |image| {
            share(image, 400, 66, 4, 2);
        }),
        rows(Code::FamilyMissing, &[], |image| image.remove("families", object_key(1, 66))),
        rows(Code::FamilyEmpty, &[], |image| {
            image.put("families", object_key(2, 70), family_record(0, 1));
        }),
        rows(Code::FamilyMembersWrong, &[], |image| {
            image.put("families", object_key(1, 66), family_record(4, 3));
        }),
        rows(Code::SharedBlocksWrong, &[], |image| {
            image.put("families", object_key(1, 66), family_record(5, 2));
        }),
        rows(Code::MemberOrphan, &[], |image| {
            image.put("members", extent_key(1, 66, 99), Vec::new());
        }),
        rows(Code::MemberMissing, &[], |image| image.remove("members", extent_key(1, 66, 67))),
        rows(Code::MemberMismatch, &[], |image| {
            image.put("members", extent_key(1, 66, 64), Vec::new());
        }),
    ]
}

fn contents() -> Vec<Case> {
    let stream = |image: &mut Image, change: &dyn Fn(&mut Vec<u8>)| {
        let mut block = image.blocks[&50].clone();
        change(&mut block);
        image.block(50, &block);
    };
    let unreadable = rotten(DATA_AT + 20 * 4096);
    let padded = |image: &mut Image| stream(image, &|block| block[4095] = 1);
    vec![
        rows(Code::SumsMissing, &[], |image| image.remove("sums", long(1))),
        rows(Code::SumsStray, &[], |image| image.put("sums", long(4), vec![2; 520])),
        left(rows(Code::BlockDamaged, &[], |image| image.blocks.get_mut(&31).unwrap()[7] ^= 1)),
        left(rows(Code::BlockDamaged, &[], |image| image.blocks.get_mut(&50).unwrap()[7] ^= 1)),
        Case { code: Code::BlockUnreadable, with: &[], stays: true, device: unreadable },
        left(rows(Code::StreamDamaged, &[], |image| {
            stream(image, &|block| block[..1000].fill(0xff));
        })),
        left(rows(Code::StreamPaddingNotZero, &[], padded)),
        rows(Code::TailNotZero, &[], |image| {
            let mut block = image.blocks[&20].clone();
            block[10_000 - 8192] = 1;
            image.block(20, &block);
        }),
        // Of blocks that another object has, too, and needs whole.
        rows(Code::TailNotZero, &[], |image| {
            image.edit("objects", object_key(1, 67), |record| set64(record, 32, 4 * 4096 - 1));
        }),
    ]
}

fn cases() -> Vec<Case> {
    [superblocks(), trees(), logs(), records(), partitions(), extents(), shares(), contents()]
        .into_iter()
        .flatten()
        .collect()
}

#[test]
fn every_code_has_a_planted_corruption() {
    let planted: BTreeSet<Code> = cases().iter().map(|case| case.code).collect();
    let all: BTreeSet<Code> = Code::ALL.iter().copied().collect();
    let missing: Vec<_> = all.difference(&planted).collect();
    assert!(missing.is_empty(), "no planted corruption for {missing:?}");
}

#[test]
fn what_is_planted_is_found_and_nothing_else() {
    let mut problems = Vec::new();
    for (number, case) in cases().iter().enumerate() {
        let report = check(&case.device, &Options::default(), &mut |_| {});
        let name = format!("{number} {}", case.code);
        if !report.has_code(case.code) {
            problems.push(format!("{name} is not found: {report}"));
        }
        let foreign = |code: &&Code| **code != case.code && !case.with.contains(code);
        let others: Vec<_> = report.counts.keys().filter(foreign).collect();
        if !others.is_empty() {
            problems.push(format!("{name} comes with {others:?}: {report}"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn what_can_be_repaired_is() {
    let mut problems = Vec::new();
    for (number, case) in cases().iter().enumerate() {
        let name = format!("{number} {}", case.code);
        let dry = RepairOptions::default().with_dry_run(true);
        let planned = repair(&case.device, &dry, &mut |_| {}).unwrap();
        let found = check(&case.device, &Options::default(), &mut |_| {});
        if planned.before.counts != found.counts {
            let before = &planned.before.counts;
            problems
                .push(format!("{name}: a dry run found {before:?}, a check {:?}", found.counts));
        }
        let Ok(repaired) = repair(&case.device, &RepairOptions::default(), &mut |_| {}) else {
            problems.push(format!("{name}: the repair fails"));
            continue;
        };
        if repaired.after.counts != planned.after.counts {
            problems.push(format!("{name}: planned {planned}\nbut did {repaired}"));
        }
        let again = check(&case.device, &Options::default(), &mut |_| {});
        let stayed: Vec<_> = again.counts.keys().copied().collect();
        let expected = if case.stays { vec![case.code] } else { Vec::new() };
        if stayed != expected {
            problems.push(format!("{name}: after {repaired}\nthere is {again}"));
        }
        let outcome = match (case.stays, case.code.severity()) {
            (_, Severity::Note) => Outcome::Clean,
            (true, _) => Outcome::Damaged,
            (false, _) => Outcome::Repaired,
        };
        if repaired.outcome() != outcome {
            problems.push(format!("{name}: {:?} where {outcome:?} should be", repaired.outcome()));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn lost_contents_become_holes_on_request() {
    let options = RepairOptions::default().with_punch(true);
    let lost = [Code::BlockDamaged, Code::BlockUnreadable, Code::StreamDamaged];
    for case in contents().iter().filter(|case| lost.contains(&case.code)) {
        let repaired = repair(&case.device, &options, &mut |_| {}).unwrap();
        assert_eq!(repaired.outcome(), Outcome::Repaired, "{repaired}");
        let again = check(&case.device, &Options::default(), &mut |_| {});
        assert_eq!(again.findings, [], "{again}");
    }
}

/// What a minimum demands that is understood must be demanded after a repair, and no more.
#[test]
fn a_minimum_of_protection_is_repaired_and_not_lowered() {
    let all = Protection::all().bits();
    for known in (0..=all).filter(|bits| Protection::from_bits(*bits).is_some()) {
        let mut image = Image::sample();
        let of_partition = |bits: u32| move |record: &mut Vec<u8>| set32(record, 136, bits);
        let of_drive = |bits: u32| move |record: &mut Vec<u8>| record[1] = bits as u8;
        image.edit("partitions", short(1), of_partition(known));
        image.edit("drive", short(2), of_drive(known));
        let right =
            [("partitions", short(1)), ("drive", short(2))].map(|row| image.rows[&row].clone());
        let whole: Arc<dyn BlockDevice> = image.write();
        assert_eq!(check(&whole, &Options::default(), &mut |_| {}).findings, []);

        image.edit("partitions", short(1), of_partition(known | NO_PROTECTION_KNOWN | 1 << 31));
        image.edit("drive", short(2), of_drive(known | NO_PROTECTION_KNOWN));
        let memory = image.write();
        let device: Arc<dyn BlockDevice> = memory.clone();
        let repaired = repair(&device, &RepairOptions::default(), &mut |_| {}).unwrap();
        assert_eq!(repaired.before.counts.get(&Code::RecordField), Some(&2), "{repaired}");
        assert_eq!(repaired.outcome(), Outcome::Repaired, "{repaired}");
        right.iter().for_each(|record| {
            find(&memory, record);
        });
    }
}

/// An identifier that was chosen says nothing of those that were given out.
#[test]
fn chosen_identifiers_are_above_the_limit_and_do_not_raise_it() {
    for chosen in [ObjectId::FIRST_NAMED.0, ObjectId::END.0 - 1] {
        let mut image = Image::sample();
        add(&mut image, chosen);
        let whole: Arc<dyn BlockDevice> = image.write();
        assert_eq!(check(&whole, &Options::default(), &mut |_| {}).findings, []);

        // The highest that was given out is 70.
        image.edit("drive", short(2), |record| set64(record, 8, 71 + (1 << 32)));
        let raised = image.rows[&("drive", short(2))].clone();
        image.edit("drive", short(2), |record| set64(record, 8, 70));
        let memory = image.write();
        let device: Arc<dyn BlockDevice> = memory.clone();
        let repaired = repair(&device, &RepairOptions::default(), &mut |_| {}).unwrap();
        assert_eq!(repaired.before.counts.get(&Code::IdentifierAboveLimit), Some(&1));
        assert_eq!(repaired.before.findings.len(), 1, "{repaired}");
        assert_eq!(repaired.outcome(), Outcome::Repaired, "{repaired}");
        find(&memory, &raised);
        assert_eq!(check(&device, &Options::default(), &mut |_| {}).findings, []);
    }
}

#[test]
fn every_holder_of_a_damaged_block_is_named_with_its_offset() {
    let mut image = Image::sample();
    image.blocks.get_mut(&31).unwrap()[7] ^= 1;
    let device: Arc<dyn BlockDevice> = image.write();
    let report = check(&device, &Options::default(), &mut |_| {});
    let texts: Vec<String> = report.findings.iter().map(|f| f.subject.to_string()).collect();
    assert_eq!(texts, ["object p1/o42 at byte 4096", "object p1/o43 at byte 4096"]);
}

#[test]
fn keys_of_a_rotten_page_come_from_the_commit_before() {
    let sample = Image::sample();
    let start = sample.crashed();
    let keys = &sample.rows[&("drive", short(1))];
    let pages = (METADATA_AT / 4096..DATA_AT / 4096).filter(|page| {
        start[*page as usize * 4096..][..4096].windows(keys.len()).any(|window| window == &keys[..])
    });
    let mut repaired = 0;
    for page in pages {
        let device = MemoryDevice::from_image(&start).unwrap();
        device.poke(page * 4096 + 2, &[0xff; 64]);
        let device: Arc<dyn BlockDevice> = Arc::new(device);
        if !check(&device, &Options::default(), &mut |_| {}).has_code(Code::TreeDamaged) {
            continue;
        }
        let done = repair(&device, &RepairOptions::default(), &mut |_| {}).unwrap();
        assert!(!done.before.has_code(Code::DriveKeysMissing), "{done}");
        assert_eq!(done.outcome(), Outcome::Repaired, "{done}");
        repaired += 1;
    }
    assert_eq!(repaired, 1, "the page that is in use");
}
