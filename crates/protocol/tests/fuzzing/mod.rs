//! Fuzzing that runs in `cargo test`, on the stable compiler: inputs are mutated from samples, and an
//! input that has an outcome that none had before becomes a sample itself.
//!
//! `NASD_FUZZ_SECONDS` says for how long each target runs; without it, a second. An input that makes a
//! target panic is printed in hexadecimal digits, with the seed of the run: it becomes a test. `NASD_FUZZ_SEED` has
//! the inputs of such a run tried again, as far as they do not depend on time.

#[path = "../../../types/tests/random/mod.rs"]
mod random;

use std::collections::HashSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use random::Random;

/// Longest input.
const MAX_BYTES: usize = 8 << 10;

/// Most samples.
const MAX_SAMPLES: usize = 4096;

/// Words at which decoders decide.
const WORDS: [u32; 12] =
    [0, 1, 2, 3, 4, 7, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];

/// Prints the input if the target panics.
struct Input<'a> {
    target: &'a str,
    seed: u64,
    bytes: &'a [u8],
}

impl Drop for Input<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let hexadecimal: String = self.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            eprintln!("{} panicked, seed {}: {hexadecimal}", self.target, self.seed);
        }
    }
}

/// Runs a target on mutated samples. It panics on what is a bug, and returns a number for the outcome.
pub fn fuzz(target: &str, samples: Vec<Vec<u8>>, mut run: impl FnMut(&[u8]) -> u64) {
    let seconds = std::env::var("NASD_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let until = Instant::now() + Duration::from_secs_f64(seconds.unwrap_or(1.0));
    let seed = std::env::var("NASD_FUZZ_SEED").ok().and_then(|text| text.parse().ok());
    let since_1970 = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = seed.unwrap_or_else(|| since_1970().as_nanos() as u64);
    let mut random = Random(seed);
    let mut samples = samples;
    samples.push(Vec::new());
    let mut outcomes = HashSet::new();
    let mut inputs = 0_u64;
    for sample in samples.clone() {
        let _input = Input { target, seed, bytes: &sample };
        outcomes.insert(run(&sample));
    }
    let known = outcomes.len();
    while Instant::now() < until {
        let mut bytes = samples[random.index(samples.len())].clone();
        for _ in 0..=random.index(4) {
            mutate(&mut bytes, &samples, &mut random);
        }
        bytes.truncate(MAX_BYTES);
        inputs += 1;
        let input = Input { target, seed, bytes: &bytes };
        let outcome = run(&bytes);
        drop(input);
        if samples.len() < MAX_SAMPLES && outcomes.insert(outcome) {
            samples.push(bytes);
        }
    }
    println!("{target}: {inputs} inputs, {known} outcomes to begin with, {} now", outcomes.len());
    assert!(inputs > 0 && outcomes.len() > 1, "{target} does not see its input");
}

fn mutate(bytes: &mut Vec<u8>, samples: &[Vec<u8>], random: &mut Random) {
    let length = bytes.len();
    let at = random.index(length + 1);
    match random.index(8) {
        0 if length > 0 => bytes[at.min(length - 1)] ^= 1 << random.index(8),
        1 if length > 0 => bytes[at.min(length - 1)] = random.next() as u8,
        2 if length >= 4 => {
            let word = at.min(length - 4) & !3;
            let value = WORDS[random.index(WORDS.len())];
            bytes[word..word + 4].copy_from_slice(&value.to_be_bytes());
        }
        3 => bytes.truncate(at),
        4 => {
            let end = (at + random.index(64)).min(length);
            bytes.drain(at..end);
        }
        5 => {
            let end = (at + random.index(64)).min(length);
            let piece = bytes[at..end].to_vec();
            bytes.splice(at..at, piece);
        }
        6 => {
            let other = &samples[random.index(samples.len())];
            let from = random.index(other.len() + 1);
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        _ => {
            let value = random.next() as u32 >> random.index(32);
            bytes.splice(at..at, value.to_be_bytes());
        }
    }
}
