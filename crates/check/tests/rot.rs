//! Rotten media: whatever is flipped or overwritten, the check ends with a report, and a repair with
//! a drive that the next check finds no worse.

#![allow(clippy::unwrap_used, reason = "compiled for tests alone")]

mod image;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use image::*;
use nasd_check::{Options, RepairOptions, Severity, check, repair};
use nasd_device::{BlockDevice, FaultPlan, FaultyDevice, MemoryDevice};

/// A generator with a printed seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// A drive with a log to apply.
fn sample() -> Image {
    let mut image = Image::sample();
    let put = sealed(object_key(1, 80), object_record(8192, 0, 0));
    let next = image.entry(
        0,
        1,
        &[change(1, 1, 80, &put), change(4, 1, 80, &map(0, 300, &noise(9, 8192), true))],
    );
    let copy = [&64u64.to_le_bytes()[..], &sealed(object_key(1, 81), object_record(10_000, 0, 0))];
    image.entry(next, 2, &[change(7, 1, 81, &copy.concat()), change(2, 1, 66, &[])]);
    image
}

/// Places that something is at: superblocks, log, pages of the tree, data.
fn places(image: &[u8]) -> Vec<u64> {
    let used = |block: &u64| image[*block as usize * 4096..][..4096].iter().any(|byte| *byte != 0);
    (0..image.len() as u64 / 4096).filter(used).collect()
}

fn rot(image: &mut [u8], places: &[u64], random: &mut Random) {
    for _ in 0..=random.below(4) {
        let block = places[random.below(places.len() as u64) as usize] as usize * 4096;
        match random.below(8) {
            0 => image[block..block + 4096].fill(0),
            1 => {
                let from = places[random.below(places.len() as u64) as usize] as usize * 4096;
                image.copy_within(from..from + 4096, block);
            }
            2 => {
                let at = block + random.below(4096 - 64) as usize;
                (0..64).for_each(|index| image[at + index] = random.below(256) as u8);
            }
            _ => {
                // More often near the start, where headers are.
                let within = if random.below(2) == 0 { 128 } else { 4096 };
                image[block + random.below(within) as usize] ^= 1 << random.below(8);
            }
        }
    }
}

#[test]
fn no_rot_makes_a_check_or_a_repair_panic() {
    let good = sample().write().image();
    let places = places(&good);
    for seed in 1..=120u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut rotten = good.clone();
        rot(&mut rotten, &places, &mut random);
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_image(&rotten).unwrap());
        let done = catch_unwind(AssertUnwindSafe(|| {
            let before = check(&device, &Options::default(), &mut |_| {});
            let options = RepairOptions::default().with_punch(true);
            let repaired = repair(&device, &options, &mut |_| {});
            let after = check(&device, &Options::default(), &mut |_| {});
            (before, repaired, after)
        }));
        let Ok((before, repaired, after)) = done else { panic!("seed {seed} makes it panic") };
        let repaired = repaired.unwrap_or_else(|error| panic!("seed {seed}: {error}\n{before}"));
        assert_eq!(repaired.before.counts, before.counts, "seed {seed}");
        assert_eq!(repaired.after.counts, after.counts, "seed {seed}");
        let left: Vec<_> = after.counts.keys().filter(|c| c.severity() > Severity::Note).collect();
        let without_repair =
            ["not-a-drive", "superblocks-damaged", "tree-unreadable", "drive-keys-missing"];
        let all_known = left.iter().all(|code| without_repair.contains(&code.name()));
        assert!(all_known, "seed {seed} left {left:?}\n{repaired}");
    }
}

#[test]
fn a_power_cut_in_a_repair_leaves_what_can_be_repaired() {
    let mut image = sample();
    image.put("shares", long(30), share_record(1, 66, 4, 7));
    image.put("extents", extent_key(1, 64, 2), extent_record(200, 1, 1, 0, 0));
    image.remove("members", extent_key(1, 66, 67));
    image.edit("partitions", short(1), |record| set64(record, 16, 9));
    let start = image.write().image();
    let whole = Arc::new(FaultyDevice::new(start.clone(), FaultPlan::default()));
    let shared: Arc<dyn BlockDevice> = whole.clone();
    let repaired = repair(&shared, &RepairOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(repaired.after.findings, [], "{repaired}");
    let (syncs, objects) = (whole.syncs(), repaired.after.statistics.objects);
    assert!(syncs >= 3, "{syncs} syncs");
    for cut in 0..syncs {
        for seed in 0..6 {
            let plan = FaultPlan { crash_at_sync: Some(cut), ..FaultPlan::default() };
            let device = Arc::new(FaultyDevice::new(start.clone(), plan));
            let shared: Arc<dyn BlockDevice> = device.clone();
            let _ = repair(&shared, &RepairOptions::default(), &mut |_| {});
            assert!(device.has_crashed());
            let image = device.surviving_image(seed);
            let after: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_image(&image).unwrap());
            let repaired = repair(&after, &RepairOptions::default(), &mut |_| {}).unwrap();
            let name = format!("cut at sync {cut}, seed {seed}");
            assert_eq!(repaired.after.findings, [], "{name}: {repaired}");
            assert_eq!(repaired.after.statistics.objects, objects, "{name}");
        }
    }
}
