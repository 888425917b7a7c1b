//! Seed after seed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::{Duration, Instant};

use nasd_simulation::{run, trace};

#[test]
fn seeds() {
    let get = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = get("NASD_SIMULATION_SEED").unwrap_or(0);
    let count = get("NASD_SIMULATION_SEEDS").unwrap_or(40);
    let began = Instant::now();
    for seed in first..first + count {
        let begun = Instant::now();
        if let Some(most) = get("NASD_SIMULATION_TRACE") {
            let (told, last) = trace(seed, |_| {}, most as usize);
            println!("{}\n{told:?}", last.join("\n"));
            continue;
        }
        match run(seed, |_| {}) {
            Ok(report) => println!("{seed}: {:?} {report:?}", begun.elapsed()),
            Err(why) => panic!("{why}"),
        }
    }
    println!("{:?}", began.elapsed().max(Duration::ZERO));
}
