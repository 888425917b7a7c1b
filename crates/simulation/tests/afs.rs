//! Volumes of the personality `afs`, seed after seed.
//!
//! `NASD_SIMULATION_SECONDS` says for how long, and `NASD_SIMULATION_SEEDS` how many; `NASD_SIMULATION_SEED` with which to begin. With
//! `NASD_SIMULATION_TRACE` one seed is run, and so many of its last events are told.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nasd_simulation::afs::{Faults, Plan, Sabotage, run, trace};

/// The seeds that are always run.
const LEAST: u64 = 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn nobody_reads_what_is_old_whatever_fails() {
    let first = number("NASD_SIMULATION_SEED").unwrap_or(1);
    if let Some(most) = number("NASD_SIMULATION_TRACE") {
        let (told, last) = trace(first, |_| {}, most as usize);
        println!("{last}\n{told:?}");
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
    let counts = [const { AtomicU64::new(0) }; 6];
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if !goes_on(at) || failed.lock().unwrap().len() >= 10 {
                break;
            }
            match run(first + at, |_| {}) {
                Ok(report) => {
                    let told = [1, report.done, report.failed, report.faults];
                    let more = [report.refused, u64::from(report.is_undecided)];
                    let told = told.into_iter().chain(more);
                    counts.iter().zip(told).for_each(|(count, told)| {
                        count.fetch_add(told, Ordering::Relaxed);
                    });
                }
                Err(why) => {
                    println!("{why}\n");
                    failed.lock().unwrap().push(first + at);
                }
            }
            if at % 100 == 0 {
                println!("{at} {:?}", began.elapsed());
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    let [runs, done, fails, faults, refused, undecided] = counts.map(AtomicU64::into_inner);
    println!(
        "{runs} seeds, {done} operations, {fails} that failed, {refused} without room, {faults} faults, {undecided} undecided, {:.0?}",
        began.elapsed()
    );
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "seeds {failed:?}");
}

/// Makes a plan one without faults, in which two clients store and read one file all the time.
fn make_calm(plan: &mut Plan) {
    (plan.clients, plan.files, plan.operations) = (3, 1, 40);
    (plan.faults, plan.patience) = (Faults::default(), Duration::from_secs(600));
    (plan.has_cache, plan.pause) = (true, Duration::from_millis(20));
    plan.room = None;
}

/// How many of these seeds find something that is broken on purpose.
fn found(seeds: std::ops::Range<u64>, change: impl Fn(&mut Plan)) -> usize {
    seeds.filter(|seed| run(*seed, &change).is_err()).count()
}

#[test]
fn a_manager_that_does_not_wait_until_clients_know_is_found() {
    let found = found(1..9, |plan| {
        make_calm(plan);
        plan.sabotage = Sabotage::DoesNotWait;
    });
    assert!(found >= 6, "{found} of 8");
}

#[test]
fn clients_that_believe_for_longer_than_their_leases_are_found() {
    let found = found(1..17, |plan| {
        make_calm(plan);
        (plan.lease, plan.faults.cuts) = (Duration::from_secs(2), true);
        (plan.writers, plan.operations) = (1, 80);
        plan.pause = Duration::from_millis(500);
        plan.sabotage = Sabotage::BelievesTooLong;
    });
    // In the others nobody reads a file that somebody stores while he is cut off.
    assert!(found >= 2, "{found} of 16");
}

#[test]
fn a_drive_that_loses_what_was_durable_is_found() {
    let found = found(1..9, |plan| {
        make_calm(plan);
        plan.faults.crashes = true;
        plan.pause = Duration::from_millis(200);
        plan.sabotage = Sabotage::LosesWhatIsDurable;
    });
    assert!(found >= 6, "{found} of 8");
}

#[test]
fn writes_that_a_drive_forgets_are_found() {
    let found = found(1..9, |plan| {
        make_calm(plan);
        plan.names = false;
        plan.sabotage = Sabotage::ForgetsWrites;
    });
    assert!(found >= 6, "{found} of 8");
}

/// Makes a plan one of several clients and files, without faults, who run into a quota all the time.
fn make_full(plan: &mut Plan) {
    make_calm(plan);
    (plan.files, plan.pieces, plan.room) = (2, 2, Some(9000));
}

#[test]
fn a_volume_is_filled_to_the_last_byte() {
    let refused = |seed| run(seed, make_full).expect("all is well").refused;
    let refused: Vec<u64> = (1..9).map(refused).collect();
    assert!(refused.iter().all(|times| *times >= 3), "{refused:?}");
}

#[test]
fn a_byte_too_much_or_too_little_is_found() {
    for sabotage in [Sabotage::AllowsTooMuch, Sabotage::AllowsTooLittle] {
        let found = found(1..5, |plan| {
            make_full(plan);
            plan.sabotage = sabotage;
        });
        assert_eq!(found, 4, "{sabotage:?}");
    }
}

/// What else would a seed be good for.
#[test]
fn the_same_seed_is_the_same_run() {
    let all = || (1..8).map(|seed| run(seed, |_| {}).unwrap()).collect::<Vec<_>>();
    // Whatever was run before.
    let first = all();
    for (seed, (one, other)) in (1..).zip(first.into_iter().zip(all())) {
        assert_eq!(one, other, "seed {seed}");
    }
}
