//! Seed after seed.
//!
//! `NASD_SIMULATION_SECONDS` says for how long, and `NASD_SIMULATION_SEEDS` how many; `NASD_SIMULATION_SEED` with which
//! to begin. With `NASD_SIMULATION_TRACE` one seed is run, and so many of its last events are told.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nasd_simulation::{Faults, Habits, Plan, Sabotage, run, trace};

/// The seeds that are always run.
const LEAST: u64 = 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn every_byte_is_right_whatever_fails() {
    let first = number("NASD_SIMULATION_SEED").unwrap_or(1);
    if let Some(most) = number("NASD_SIMULATION_TRACE") {
        let (told, last) = trace(first, |_| {}, most as usize);
        println!("{}\n{told:?}", last.join("\n"));
        return;
    }
    let seconds = Duration::from_secs(number("NASD_SIMULATION_SECONDS").unwrap_or(5));
    let most = number("NASD_SIMULATION_SEEDS");
    let began = Instant::now();
    let goes_on = |run: u64| match most {
        Some(most) => run < most,
        None => run < LEAST || began.elapsed() < seconds,
    };
    let (next, failed) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let (done, troubles) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if !goes_on(at) || failed.lock().unwrap().len() >= 10 {
                break at;
            }
            let begun = Instant::now();
            match run(first + at, |_| {}) {
                Ok(report) => {
                    done.fetch_add(report.done, Ordering::Relaxed);
                    troubles.fetch_add(report.faults, Ordering::Relaxed);
                }
                Err(why) => {
                    println!("{why}\n");
                    failed.lock().unwrap().push(first + at);
                }
            }
            if at % 100 == 0 {
                println!("{at} {:?}", began.elapsed());
            }
            if begun.elapsed() > Duration::from_secs(5) {
                println!("seed {} took {:?}", first + at, begun.elapsed());
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    let run = next.into_inner().saturating_sub(threads as u64);
    println!(
        "{run} seeds, {} operations, {} faults, {:.0?}",
        done.into_inner(),
        troubles.into_inner(),
        began.elapsed()
    );
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "seeds {failed:?}");
}

/// Makes a plan a small one without faults: two clients, one object, and drives as many as the width.
fn make_small(plan: &mut Plan, (width, copies): (u16, u16)) {
    (plan.drives, plan.width, plan.copies) = (usize::from(width), width, copies);
    (plan.clients, plan.objects, plan.operations) = (2, 1, 40);
    (plan.faults, plan.moves) = (Faults::none(), false);
    (plan.spares, plan.added) = (0, 0);
}

/// How many of these seeds find something that is broken on purpose.
fn found(seeds: std::ops::Range<u64>, change: impl Fn(&mut Plan)) -> usize {
    seeds.filter(|seed| run(*seed, &change).is_err()).count()
}

#[test]
fn writes_that_one_drive_forgets_are_found() {
    for (width, copies) in [(2, 1), (2, 2), (4, 2)] {
        let found = found(1..25, |plan| {
            make_small(plan, (width, copies));
            plan.sabotage = Sabotage::ForgetsWrites;
        });
        // In the others it is written again, or cut off, before anybody looks.
        assert!(found >= 12, "{found} of 24 with {copies} copies on {width}");
    }
}

#[test]
fn a_drive_that_loses_what_was_durable_is_found() {
    let found = found(1..9, |plan| {
        make_small(plan, (2, 1));
        plan.faults.crashes = true;
        plan.sabotage = Sabotage::LosesWhatIsDurable;
    });
    assert!(found >= 6, "{found} of 8");
}

#[test]
fn a_spare_that_forgets_what_it_is_given_is_found() {
    let found = found(1..33, |plan| {
        make_small(plan, (2, 2));
        plan.faults.deaths = true;
        plan.spares = 1;
        plan.replace_after = Duration::from_secs(1);
        plan.sabotage = Sabotage::SpareForgetsWrites;
    });
    assert!(found >= 12, "{found} of 32");
}

#[test]
fn a_drive_that_makes_empty_copies_is_found() {
    for (width, copies) in [(2, 1), (2, 2)] {
        let found = found(1..17, |plan| {
            make_small(plan, (width, copies));
            plan.habits = Habits { copies: true, ..Habits::default() };
            plan.sabotage = Sabotage::MakesEmptyCopies;
        });
        assert!(found >= 8, "{found} of 16 with {copies} copies");
    }
}

#[test]
fn appends_that_a_drive_loses_are_found() {
    let found = found(1..9, |plan| {
        make_small(plan, (2, 1));
        (plan.objects, plan.operations) = (0, 100);
        plan.faults.crashes = true;
        plan.habits = Habits { logs: 1, ..Habits::default() };
        plan.sabotage = Sabotage::LosesWhatIsDurable;
    });
    // In the others clients have ended before a drive crashes that has something of the log.
    assert!(found >= 4, "{found} of 8");
}

/// Clients have capabilities for components anew before they expire, which those that allow writing do after four
/// seconds here.
#[test]
fn nobody_writes_by_what_has_expired() {
    let calm = |operations: usize| {
        move |plan: &mut Plan| {
            make_small(plan, (2, 2));
            (plan.operations, plan.skew) = (operations, 0);
            plan.habits = Habits::default();
        }
    };
    let reports: Vec<_> = (1..9).map(|seed| run(seed, calm(400)).unwrap()).collect();
    println!("{reports:#?}");
    let is_long = |report: &&nasd_simulation::Report| report.lasted > Duration::from_secs(60);
    assert!(
        reports.iter().all(|report| report.done > 100) && reports.iter().all(|it| is_long(&it))
    );
    let refused: u64 = reports.iter().map(|report| report.expired).sum();
    assert_eq!(refused, 0);
}

#[test]
fn hundreds_of_drives_and_clients_are_right_too() {
    for seed in 1..3 {
        let report = run(seed, |plan| {
            (plan.drives, plan.width, plan.copies) = (150, 4, 2);
            (plan.clients, plan.objects, plan.operations) = (120, 60, 3);
            plan.faults.crashes = true;
        });
        let report = report.unwrap();
        println!("{report:#?}");
        assert!(report.done > 200 && report.faults > 0, "{report:?}");
    }
}

/// What else would a seed be good for.
#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 1..8 {
        assert_eq!(run(seed, |_| {}).unwrap(), run(seed, |_| {}).unwrap(), "seed {seed}");
    }
}
