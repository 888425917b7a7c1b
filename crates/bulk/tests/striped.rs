//! Files whose bytes lie at several servers, beside a model of them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod support;

use std::fs;

use nasd_bulk_service::client::{BulkError, StripedFile};
use nasd_bulk_service::directory::DirectoryOptions;
use nasd_protocol::bulk::Options;

use support::{Rig, noise};

const UNIT: u64 = 4096;
const WIDTH: usize = 3;

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

fn rig() -> Rig {
    // Transfers that are longer than one may be are cut.
    let rig = Rig::new(DirectoryOptions { most: 16 << 10, ..DirectoryOptions::default() });
    (0..WIDTH).for_each(|column| rig.put(&format!("c{column}"), b""));
    rig
}

fn open(rig: &Rig, width: usize) -> StripedFile {
    let options = Options::READ | Options::WRITE;
    let components = (0..width).map(|column| rig.opening(&format!("c{column}"), options));
    StripedFile::open(components.collect(), UNIT).unwrap()
}

fn reads_agree(file: &StripedFile, model: &[u8], numbers: &mut Numbers) {
    let offset = numbers.below(40) * UNIT;
    let mut into = vec![0x77; (numbers.below(30) * UNIT) as usize];
    let count = file.read_at(&mut into, offset).unwrap();
    let there = model.get(offset as usize..).unwrap_or_default();
    let expected = &there[..there.len().min(into.len())];
    assert!(&into[..count] == expected, "{count} of {} at {offset}", expected.len());
}

#[test]
fn reads_and_writes_are_those_of_one_file() {
    for (width, seed) in [(1, 1), (2, 2), (WIDTH, 3), (WIDTH, 4)] {
        let (rig, mut numbers) = (rig(), Numbers(seed));
        let (file, mut model) = (open(&rig, width), Vec::new());
        assert_eq!(file.width(), width);
        for step in 0..150 {
            if numbers.below(3) == 0 {
                let offset = (numbers.below(36) * UNIT) as usize;
                let new = noise(step, ((1 + numbers.below(12)) * UNIT) as usize);
                file.write_at(&new, offset as u64).unwrap();
                model.resize(model.len().max(offset + new.len()), 0);
                model[offset..offset + new.len()].copy_from_slice(&new);
                assert_eq!(file.size().unwrap(), model.len() as u64);
            } else {
                reads_agree(&file, &model, &mut numbers);
            }
            if numbers.below(40) == 0 {
                rig.restart(100 + step);
            }
        }
        assert_eq!(open(&rig, width).size_at_open(), model.len() as u64);
    }
}

#[test]
fn each_byte_lies_where_stripes_say() {
    let rig = rig();
    let file = open(&rig, WIDTH);
    let bytes = noise(1, 7 * UNIT as usize);
    file.write_at(&bytes, 0).unwrap();
    file.sync().unwrap();
    for column in 0..WIDTH {
        let component = fs::read(rig.path(&format!("c{column}"))).unwrap();
        for (number, unit) in bytes.chunks(UNIT as usize).enumerate() {
            let is_its_own = number % WIDTH == column;
            let there = component.get(number * UNIT as usize..).unwrap_or_default();
            if is_its_own {
                assert!(there[..unit.len()] == *unit, "unit {number} of column {column}");
            } else {
                assert!(there.iter().take(unit.len()).all(|byte| *byte == 0));
            }
        }
    }
}

#[test]
fn a_lane_goes_on_where_others_are_used_too() {
    let rig = rig();
    let file = open(&rig, WIDTH);
    let bytes = noise(9, 60 * UNIT as usize);
    file.write_at(&bytes, 0).unwrap();
    std::thread::scope(|scope| {
        for reader in 0..4 {
            let (file, bytes) = (&file, &bytes);
            scope.spawn(move || {
                let mut lane = file.lane();
                let from = reader * 15 * UNIT as usize;
                for at in (from..from + 15 * UNIT as usize).step_by(5 * UNIT as usize) {
                    let mut into = vec![0; 5 * UNIT as usize];
                    assert_eq!(lane.read_at(&mut into, at as u64).unwrap(), into.len());
                    assert!(into == bytes[at..at + into.len()]);
                }
            });
        }
    });
}

#[test]
fn the_first_failure_is_told() {
    let rig = rig();
    let file = open(&rig, WIDTH);
    file.write_at(&noise(1, 30 * UNIT as usize), 0).unwrap();
    let unaligned = file.read_at(&mut [0; 100], 0).unwrap_err();
    assert!(matches!(unaligned, BulkError::Unaligned { .. }), "{unaligned}");
    assert!(matches!(file.set_size(1), Err(BulkError::Spread)));
    fs::remove_file(rig.path("c1")).unwrap();
    rig.restart(5);
    let mut into = vec![0; 9 * UNIT as usize];
    let gone = file.read_at(&mut into, 0).unwrap_err();
    assert!(gone.needs_new_capability(), "{gone}");
    // What does not touch it can be had.
    assert_eq!(file.read_at(&mut into[..UNIT as usize], 0).unwrap(), UNIT as usize);
    let options = Options::READ;
    let wrong = vec![rig.opening("c0", options), rig.opening("c2", options)];
    assert!(StripedFile::open(wrong, 17).is_err(), "no such stripe");
}
