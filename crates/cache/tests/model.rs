//! Random operations on a cache beside a model of what it may serve, with restarts and crashes in between.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use nasd_cache::{CHUNK_BYTES, Cache, FileKey, chunk_count, chunk_length};
use nasd_types::ByteRange;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use support::{Numbers, contents, file, open, snapshot, taken};

const FILES: u64 = 6;
const MAX_CHUNKS: u64 = 6;

/// A file as it is at the drives.
#[derive(Clone, Default)]
struct Real {
    version: u64,
    length: u64,
    /// What each chunk's contents are drawn from.
    seeds: Vec<u64>,
    note: Option<Vec<u8>>,
}

impl Real {
    fn chunk(&self, number: u64, chunk: u64) -> Vec<u8> {
        let length = chunk_length(self.length, chunk);
        contents(number, self.seeds[chunk as usize], chunk, length)
    }
}

struct Model {
    numbers: Numbers,
    /// Every version of every file that there was: a crash may bring back an older one.
    versions: HashMap<(u64, u64), Real>,
    now: Vec<Real>,
    version: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        Model {
            numbers: Numbers(seed),
            versions: HashMap::new(),
            now: vec![Real::default(); FILES as usize],
            version: 0,
        }
    }

    fn length(&mut self) -> u64 {
        match self.numbers.below(4) {
            0 => self.numbers.below(5000),
            1 => CHUNK_BYTES * self.numbers.below(MAX_CHUNKS),
            _ => self.numbers.below(CHUNK_BYTES * MAX_CHUNKS),
        }
    }

    /// Another client has stored: all of the file is new.
    fn replace(&mut self, cache: &Cache, number: u64) {
        self.version += 1;
        let length = self.length();
        let seeds = (0..chunk_count(length)).map(|_| self.numbers.draw()).collect();
        self.now[number as usize] = Real { version: self.version, length, seeds, note: None };
        cache.begin(&file(number), self.version, length);
        self.remember(number);
    }

    /// This client has stored: a part of it is new.
    fn store(&mut self, cache: &Cache, number: u64) {
        let before = self.now[number as usize].clone();
        self.version += 1;
        let length = if self.numbers.below(3) == 0 { self.length() } else { before.length };
        let mut changed = Vec::new();
        for _ in 0..self.numbers.below(3) {
            let offset = self.numbers.below(before.length.max(1));
            changed.push(ByteRange::new(offset, self.numbers.below(CHUNK_BYTES * 2)));
        }
        let seeds = (0..chunk_count(length)).map(|chunk| {
            let whole = ByteRange::new(chunk * CHUNK_BYTES, CHUNK_BYTES);
            let is_hit = changed.iter().any(|range| !range.intersection(&whole).is_empty());
            let same = chunk_length(before.length, chunk) == chunk_length(length, chunk);
            match before.seeds.get(chunk as usize) {
                Some(seed) if same && !is_hit => *seed,
                _ => self.numbers.draw(),
            }
        });
        let seeds = seeds.collect();
        self.now[number as usize] = Real { version: self.version, length, seeds, note: None };
        cache.advance(&file(number), before.version, self.version, length, &changed);
        self.remember(number);
    }

    fn remember(&mut self, number: u64) {
        let real = self.now[number as usize].clone();
        self.versions.insert((number, real.version), real);
    }

    fn step(&mut self, cache: &Cache) {
        let number = self.numbers.below(FILES);
        let real = self.now[number as usize].clone();
        match self.numbers.below(20) {
            0 => self.replace(cache, number),
            1 | 2 => self.store(cache, number),
            3 if self.numbers.below(5) == 0 => cache.forget(&file(number)),
            4 => cache.settle(),
            5 | 6 if cache.version_of(&file(number)) == Some((real.version, real.length)) => {
                let bytes = self.numbers.below(200) as usize;
                let note = contents(number, self.numbers.draw(), 9, bytes);
                assert!(cache.set_note(&file(number), real.version, note.clone()));
                self.now[number as usize].note = Some(note).filter(|note| !note.is_empty());
                self.remember(number);
            }
            7..=13 => {
                cache.begin(&file(number), real.version, real.length);
                let chunk = self.numbers.below(MAX_CHUNKS);
                if chunk < chunk_count(real.length) {
                    let bytes: Arc<[u8]> = real.chunk(number, chunk).into();
                    assert!(cache.put(&file(number), real.version, chunk, bytes));
                }
            }
            _ => self.read(cache, number),
        }
        let summary = cache.summary();
        assert!(summary.disk_bytes <= summary.disk_limit, "{summary:?}");
        assert!(summary.memory_bytes <= summary.memory_limit, "{summary:?}");
    }

    fn read(&mut self, cache: &Cache, number: u64) {
        let real = &self.now[number as usize];
        let length = real.length;
        let all: Vec<u8> =
            (0..chunk_count(length)).flat_map(|chunk| real.chunk(number, chunk)).collect();
        let offset = self.numbers.below(length + 10);
        let mut into = vec![0; self.numbers.below(CHUNK_BYTES * 2) as usize];
        if let Ok(filled) =
            cache.read(&file(number), self.now[number as usize].version, offset, &mut into)
        {
            let end = (offset + into.len() as u64).min(length).max(offset);
            let wanted = all.get(offset as usize..end as usize).unwrap_or_default();
            assert!(into[..filled] == *wanted, "file {number} at {offset}");
        }
        self.check_note(cache, number);
    }

    fn check_note(&self, cache: &Cache, number: u64) {
        let real = &self.now[number as usize];
        if let Some(note) = cache.note(&file(number), real.version) {
            assert_eq!(Some(&note[..]), real.note.as_deref());
        }
    }

    /// Whatever version is told of, its contents are those of that version.
    fn check_all(&self, cache: &Cache) {
        for cached in cache.files().collect::<Vec<_>>() {
            let FileKey { object, .. } = cached.file;
            let real = &self.versions[&(object.0, cached.version)];
            assert_eq!(cached.length, real.length);
            for chunk in 0..chunk_count(real.length) {
                if let Some(found) = cache.chunk(&cached.file, cached.version, chunk) {
                    assert!(found[..] == real.chunk(object.0, chunk), "{cached:?} chunk {chunk}");
                }
            }
        }
    }
}

fn play(seed: u64, directory: &Path) {
    let mut model = Model::new(seed);
    let disk = 300_000 + model.numbers.below(4 << 20);
    let memory = model.numbers.below(3 << 20);
    let mut place = directory.join("0");
    let mut cache = open(&place, disk, memory);
    for round in 1..6 {
        for _ in 0..60 {
            model.step(&cache);
        }
        if model.numbers.below(2) == 0 {
            // A crash: another process finds what is there at this moment.
            let next = directory.join(round.to_string());
            snapshot(&place, &next);
            drop(cache);
            place = next;
        } else {
            drop(cache);
            assert!(taken(&place) <= disk, "{} of {disk}", taken(&place));
        }
        cache = open(&place, disk, memory);
        assert_eq!(cache.summary().damaged, cache.summary().damaged.min(FILES));
        model.check_all(&cache);
        for number in 0..FILES {
            // Notes of a crash may be older ones of the same version; the next are told anew.
            let version = model.now[number as usize].version;
            if cache.version_of(&file(number)).is_some_and(|(found, _)| found == version) {
                cache.set_note(&file(number), version, b"".to_vec());
                model.now[number as usize].note = None;
            }
        }
    }
}

#[test]
fn a_cache_serves_what_the_model_has() {
    let seconds = std::env::var("NASD_MODEL_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = std::time::Instant::now() + std::time::Duration::from_secs(seconds.unwrap_or(5));
    let mut seed = 0;
    while seed < 4 || std::time::Instant::now() < end {
        let directory = tempfile::tempdir().unwrap();
        println!("seed {seed}");
        play(seed, directory.path());
        seed += 1;
    }
}
