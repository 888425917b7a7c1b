//! What the tests share: drives that fail on cue, a checker that reads the drives by itself, and
//! small numbers of a seed.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod checker;
pub mod faulty;
pub mod operation;
pub mod reference;
pub mod watched;

use std::sync::Arc;
use std::time::Duration;

use nasd_capability::SecretKey;
use nasd_manager::keys::{WorkingKey, WorkingKeys};
use nasd_manager::mint::MintOptions;
use nasd_manager::objects::ObjectStore;
use nasd_manager::{Caller, Namespace, NamespaceOptions, RootOptions};
use nasd_protocol::manager::{File, FileHandle, ManagerStatus};
use nasd_types::{CellId, DriveId, Personality, Protection};

pub const HOME: DriveId = DriveId(1);

pub fn working_key(drive: DriveId) -> SecretKey {
    SecretKey::new([drive.0 as u8; 32])
}

pub fn options(drives: &[DriveId]) -> NamespaceOptions {
    let key = |drive: &DriveId| (*drive, WorkingKey { epoch: 1, key: working_key(*drive) });
    NamespaceOptions {
        cell: CellId([7; 16]),
        volume: b"home".to_vec(),
        home: HOME,
        root: RootOptions::default(),
        personality: Personality::Nfs,
        quota: None,
        read_only: false,
        keys: Arc::new(WorkingKeys::fixed(drives.iter().map(key))),
        mint: MintOptions {
            lifetime: Duration::from_secs(600),
            longest_lifetime: Duration::from_secs(86_400),
            minimum_protection: Protection::INTEGRITY_ARGS,
        },
        directory_cache_bytes: 64 << 20,
        record_cache_entries: 1 << 16,
        journal_area_bytes: 1 << 20,
    }
}

pub fn open(objects: Arc<dyn ObjectStore>) -> Namespace {
    let options = options(&objects.drives());
    Namespace::open(objects, options).expect("the volume opens")
}

pub fn root() -> Caller {
    Caller::default()
}

pub fn user(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: vec![uid + 1], peer: 9, ..Caller::default() }
}

/// Looks a path up as root, name by name.
pub fn walk(namespace: &Namespace, path: &str) -> Option<File> {
    let mut file = namespace.getattr(&root(), namespace.root()).ok()?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        file = namespace.lookup(&root(), file.handle, name.as_bytes()).ok()?;
    }
    Some(file)
}

/// The directory and the last name of a path.
pub fn place<'a>(
    namespace: &Namespace,
    path: &'a str,
) -> Result<(FileHandle, &'a [u8]), ManagerStatus> {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    let directory = walk(namespace, directory).ok_or(ManagerStatus::NotFound)?;
    Ok((directory.handle, name.as_bytes()))
}

/// Numbers that look random and are the same for a seed.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((value ^ value >> 31) % limit as u64) as usize
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
