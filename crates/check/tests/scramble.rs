//! Tables and logs that make no sense, with right checksums: whatever they say, a check ends with a
//! report, and a repair with a drive that has nothing wrong but what can't be repaired.

#![allow(clippy::unwrap_used, reason = "compiled for tests alone")]

mod image;

use std::sync::Arc;

use image::*;
use nasd_check::{Options, RepairOptions, Severity, check, repair};
use nasd_device::BlockDevice;

/// A generator with a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    fn name(&mut self) -> (u32, u64) {
        (1 + self.below(3) as u32, [4, 64, 65, 66, 67, 68, 69, 70][self.below(8) as usize])
    }

    fn row(&mut self, image: &Image) -> Key {
        let rows: Vec<_> = image.rows.keys().filter(|key| key.0 != "ballast").collect();
        rows[self.below(rows.len() as u64) as usize].clone()
    }

    fn extent(&mut self) -> Vec<u8> {
        let blocks = 1 + self.below(8) as u32;
        match self.below(6) {
            0 => extent_record(self.below(60), 16, 1 + self.below(3) as u32, 5000, 1),
            _ => extent_record(self.below(60), blocks, blocks, 0, 0),
        }
    }
}

fn scramble(image: &mut Image, random: &mut Random) {
    let (partition, object) = random.name();
    match random.below(9) {
        0 | 1 => {
            let (table, key) = random.row(image);
            let bit = random.below(64 * 8);
            image.edit(table, key, |record| {
                let length = record.len().max(1);
                if let Some(byte) = record.get_mut(bit as usize / 8 % length) {
                    *byte ^= 1 << (bit % 8);
                }
            });
        }
        2 => {
            let (table, key) = random.row(image);
            image.remove(table, key);
        }
        3 => {
            // Under another key.
            let (table, mut key) = random.row(image);
            let value = image.rows[&(table, key.clone())].clone();
            let last = key.len() - 1;
            key[last] ^= 1 << random.below(8);
            image.put(table, key, value);
        }
        4 | 5 => {
            let extent = random.extent();
            image.put("extents", extent_key(partition, object, random.below(6)), extent);
        }
        6 => {
            let (blocks, count) = (random.below(6) as u32, random.below(4) as u32);
            let share = share_record(partition, object, blocks, count);
            image.put("shares", long(random.below(60)), share);
        }
        7 => image.put(
            "families",
            object_key(partition, object),
            family_record(random.below(9), random.below(4)),
        ),
        _ => image.put("members", extent_key(partition, 60 + random.below(12), object), Vec::new()),
    }
}

fn any_change(random: &mut Random) -> Vec<u8> {
    let (partition, object) = random.name();
    let (_, other) = random.name();
    let record = sealed(object_key(partition, object), object_record(random.below(40_000), 1, 2));
    let (from, to) = (random.below(6), random.below(60));
    let numbers = |numbers: &[u64]| -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    };
    match random.below(10) {
        0 => change(1, partition, object, &record),
        1 => change(2, partition, object, &[]),
        2 => change(3, partition, object, &numbers(&[from, to])),
        3 | 4 => {
            let length = 1 + random.below(20_000) as usize;
            let map = map(from, to, &noise(to, length), random.below(2) == 0);
            change(4, partition, object, &map)
        }
        5 => change(5, partition, object, &[&9u32.to_le_bytes()[..], &[7; 9]].concat()),
        6 => change(6, partition, object, &[]),
        7 => change(7, partition, object, &[&numbers(&[other])[..], &record].concat()),
        8 => change(9, partition, 0, &[]),
        _ => change(12, 0, 0, &numbers(&[from + 28, to, 1 + random.below(6)])),
    }
}

fn judge(image: &Image, name: &str) {
    let device: Arc<dyn BlockDevice> = image.write();
    let before = check(&device, &Options::default(), &mut |_| {});
    let options = RepairOptions::default().with_punch(true);
    let planned = repair(&device, &options.clone().with_dry_run(true), &mut |_| {}).unwrap();
    let repaired = repair(&device, &options, &mut |_| {}).unwrap();
    let after = check(&device, &Options::default(), &mut |_| {});
    assert_eq!(repaired.after.counts, after.counts, "{name}");
    assert_eq!(planned.after.counts, after.counts, "{name}: {planned}\n{repaired}");
    let left = after.counts.keys().filter(|code| code.severity() > Severity::Note);
    let left: Vec<_> = left.filter(|code| code.name() != "drive-keys-missing").collect();
    assert!(left.is_empty(), "{name}: {left:?} is left: {repaired}");
    // Without contents, what is found in the tables is the same.
    let tables = check(&device, &Options::default().with_data(false), &mut |_| {});
    assert!(tables.counts.len() <= after.counts.len(), "{name}");
    assert!(before.statistics.objects > 0, "{name}");
}

#[test]
fn no_scrambled_tables_are_beyond_repair() {
    for seed in 1..=80u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut image = Image::sample();
        for _ in 0..=random.below(5) {
            scramble(&mut image, &mut random);
        }
        judge(&image, &format!("seed {seed}"));
    }
}

#[test]
fn no_scrambled_log_is_beyond_repair() {
    for seed in 1..=80u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut image = Image::sample();
        let mut next = 0;
        for sequence in 1..=1 + random.below(4) {
            let changes: Vec<_> = (0..=random.below(5)).map(|_| any_change(&mut random)).collect();
            next = image.entry(next, sequence, &changes);
        }
        judge(&image, &format!("seed {seed}"));
    }
}
