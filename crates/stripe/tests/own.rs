//! The striping manager's own state on several drives: killed after each single write, started with each set of drives
//! that has a current copy, and with two striping managers at once. What was acknowledged is there, what was not is
//! there or not, and nothing stale is ever used.
//!
//! `NASD_MODEL_SECONDS` says for how long anything happens in any sequence, 5 without it; `NASD_MODEL_SEED` with which
//! seed that begins.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

#[path = "../../types/tests/random/mod.rs"]
mod random;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IoSlice, IoSliceMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nasd_device::{AlignedBuffer, BlockDevice, MemoryDevice};
use nasd_stripe::own::{
    Candidate, HolderError, Holders, Membership, MirroredDevice, OwnError, OwnState, Part, Piece,
    Register, RegisterError,
};
use nasd_stripe::{Keeper, Role};
use nasd_types::DriveId;
use random::Random;

const BLOCK: usize = 4096;
const BLOCKS: u64 = 264;
const LAST: u64 = BLOCKS - 1;
const PATIENCE: Duration = Duration::from_secs(5);

/// What a process that is killed ends with.
struct Killed;

#[derive(Clone, Debug, Default)]
struct Drive {
    is_away: bool,
    /// Epoch and process of the key that it takes.
    key: Option<(u32, u32)>,
    parts: Option<[Vec<u8>; 3]>,
    /// Blocks of the device that it can't read.
    bad: BTreeSet<u64>,
}

/// How far the step got in which the process was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Before,
    Torn,
}

/// Drives and cell.toml.
#[derive(Clone, Debug, Default)]
struct World {
    drives: BTreeMap<DriveId, Drive>,
    membership: Membership,
    steps: u64,
    cut: Option<(u64, Cut)>,
    elapsed: Duration,
    /// So many writes come to a part and no answer.
    torn: u32,
    /// The process is killed when it has waited so often.
    killed_waiting: Option<u32>,
}

impl World {
    fn new(count: u64) -> World {
        let drives = (1..=count).map(|number| (DriveId(number), Drive::default())).collect();
        World { drives, ..World::default() }
    }

    /// A step in which something becomes durable.
    fn step(&mut self) -> Option<Cut> {
        let (at, cut) = self.cut?;
        self.steps += 1;
        (self.steps > at).then_some(cut)
    }

    fn drive(&mut self, drive: DriveId) -> Result<&mut Drive, HolderError> {
        let drive = self.drives.get_mut(&drive).unwrap();
        if drive.is_away { Err(HolderError::Away("on demand".to_owned())) } else { Ok(drive) }
    }

    fn set_away(&mut self, away: impl Fn(u64) -> bool) {
        self.drives.iter_mut().for_each(|(number, drive)| drive.is_away = away(number.0));
    }
}

/// The world as a process sees it, its number, and what happens when it looks for data so many times.
#[derive(Clone)]
struct Process(Arc<Mutex<World>>, u32, Meanwhile);

type Meanwhile = Arc<Mutex<Option<(u32, Box<dyn FnOnce() + Send>)>>>;

impl Process {
    fn new(world: World, number: u32) -> Process {
        Process(Arc::new(Mutex::new(world)), number, Meanwhile::default())
    }

    fn another(&self, number: u32) -> Process {
        Process(Arc::clone(&self.0), number, Meanwhile::default())
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn start(&self) -> Result<Arc<OwnState>, OwnError> {
        let drives: Vec<DriveId> = self.world().drives.keys().copied().collect();
        let own = Arc::new(self.clone());
        Ok(Arc::new(OwnState::start(own.clone(), own, &drives, PATIENCE)?))
    }

    fn candidates(&self) -> Vec<Candidate> {
        let world = self.world();
        let candidate = |(drive, it): (&DriveId, &Drive)| Candidate {
            drive: *drive,
            role: Role::Member,
            is_reachable: !it.is_away,
        };
        world.drives.iter().map(candidate).collect()
    }

    fn found(&self, state: Option<Vec<u8>>) -> Result<Arc<OwnState>, OwnError> {
        let own = Arc::new(self.clone());
        let device = MemoryDevice::new(BLOCKS * BLOCK as u64).unwrap();
        for block in [0, 3, LAST] {
            device.poke(block * BLOCK as u64, &contents(block, 0));
        }
        let made = OwnState::found(own.clone(), own, &self.candidates(), (&device, state))?;
        Ok(Arc::new(made))
    }
}

impl Holders for Process {
    fn claim(&self, drives: &[DriveId], epoch: u32, make: bool) -> Vec<Result<(), HolderError>> {
        let claim = |drive: &DriveId| {
            let mut world = self.world();
            world.drive(*drive)?;
            if world.step().is_some() {
                drop(world);
                resume_unwind(Box::new(Killed));
            }
            let it = world.drive(*drive)?;
            if it.parts.is_none() && !make {
                return Err(HolderError::Missing);
            }
            it.parts.get_or_insert_default();
            match it.key {
                Some(key) if key == (epoch, self.1) => Ok(()),
                Some((later, _)) if later >= epoch => Err(HolderError::Overtaken),
                _ => {
                    it.key = Some((epoch, self.1));
                    Ok(())
                }
            }
        };
        drives.iter().map(claim).collect()
    }

    fn write(
        &self,
        drives: &[DriveId],
        epoch: u32,
        pieces: &[Piece<'_>],
    ) -> Vec<Result<(), HolderError>> {
        let write = |drive: &DriveId| {
            for piece in pieces {
                let mut world = self.world();
                let cut = world.drive(*drive).is_ok().then(|| world.step()).flatten();
                let torn = world.torn;
                world.torn = torn.saturating_sub(1);
                let it = world.drive(*drive)?;
                if it.key != Some((epoch, self.1)) {
                    return Err(HolderError::Refused("another key".to_owned()));
                }
                let how = cut.or((torn > 0).then_some(Cut::Torn));
                let length = match how {
                    None => piece.data.len(),
                    Some(Cut::Before) => 0,
                    Some(Cut::Torn) if piece.part == Part::Device => {
                        piece.data.len() / BLOCK / 2 * BLOCK
                    }
                    Some(Cut::Torn) => piece.data.len() * 2 / 3,
                };
                let part = &mut it.parts.as_mut().unwrap()[piece.part as usize];
                let (begin, end) = (piece.offset as usize, piece.offset as usize + length);
                part.resize(part.len().max(end), 0);
                part[begin..end].copy_from_slice(&piece.data[..length]);
                if piece.part == Part::Device {
                    let blocks = begin / BLOCK..end / BLOCK;
                    it.bad.retain(|bad| !blocks.contains(&(*bad as usize)));
                }
                if cut.is_some() {
                    drop(world);
                    resume_unwind(Box::new(Killed));
                }
                if torn > 0 {
                    return Err(HolderError::Away("no answer".to_owned()));
                }
            }
            Ok(())
        };
        drives.iter().map(write).collect()
    }

    fn probe(&self, drives: &[DriveId], epoch: u32) -> Vec<Result<(), HolderError>> {
        let probe = |drive: &DriveId| match self.world().drive(*drive)?.key {
            Some(key) if key == (epoch, self.1) => Ok(()),
            _ => Err(HolderError::Refused("another key".to_owned())),
        };
        drives.iter().map(probe).collect()
    }

    fn read(
        &self,
        drive: DriveId,
        part: Part,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, HolderError> {
        let mut world = self.world();
        let it = world.drive(drive)?;
        let end = (offset as usize + length) as u64;
        let is_bad = |bad: &u64| offset < (bad + 1) * BLOCK as u64 && bad * (BLOCK as u64) < end;
        if part == Part::Device && it.bad.iter().any(is_bad) {
            return Err(HolderError::Failed("a bad block".to_owned()));
        }
        let part = &it.parts.as_ref().ok_or(HolderError::Missing)?[part as usize];
        let end = (offset as usize + length).min(part.len());
        Ok(part.get(offset as usize..end).unwrap_or_default().to_vec())
    }

    fn next_data(&self, drive: DriveId, offset: u64) -> Result<Option<u64>, HolderError> {
        let happens = {
            let mut meanwhile = self.2.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match meanwhile.take() {
                Some((left, happens)) if left > 0 => {
                    *meanwhile = Some((left - 1, happens));
                    None
                }
                other => other,
            }
        };
        if let Some((_, happens)) = happens {
            happens();
        }
        let mut world = self.world();
        let it = world.drive(drive)?;
        let device = &it.parts.as_ref().ok_or(HolderError::Missing)?[Part::Device as usize];
        let blocks = device.chunks(BLOCK).enumerate().skip(offset as usize / BLOCK);
        let mut data = blocks.filter(|(_, block)| block.iter().any(|byte| *byte != 0));
        Ok(data.next().map(|(block, _)| ((block * BLOCK) as u64).max(offset)))
    }

    fn remove(&self, drive: DriveId) -> Result<(), HolderError> {
        let mut world = self.world();
        world.drive(drive)?.parts = None;
        Ok(())
    }

    fn give_up(&self, _: DriveId) {}

    fn call_again(&self, _: DriveId) {}

    fn pause(&self, duration: Duration) {
        let mut world = self.world();
        world.elapsed += duration;
        if let Some(left) = &mut world.killed_waiting {
            if *left == 0 {
                world.killed_waiting = None;
                drop(world);
                resume_unwind(Box::new(Killed));
            }
            *left -= 1;
        }
    }

    fn elapsed(&self) -> Duration {
        self.world().elapsed
    }
}

impl Register for Process {
    fn read(&self) -> Result<Membership, RegisterError> {
        Ok(self.world().membership.clone())
    }

    fn replace(&self, before: u32, with: &Membership) -> Result<(), RegisterError> {
        let mut world = self.world();
        if world.membership.epoch != before {
            return Err(RegisterError::Changed);
        }
        match world.step() {
            Some(Cut::Before) => {}
            Some(Cut::Torn) => world.membership = with.clone(),
            None => {
                world.membership = with.clone();
                return Ok(());
            }
        }
        drop(world);
        resume_unwind(Box::new(Killed))
    }
}

fn contents(block: u64, version: u64) -> Vec<u8> {
    let mut random = Random(block << 32 | version);
    (0..BLOCK / 8).flat_map(|_| random.next().to_be_bytes()).collect()
}

fn state(version: u64) -> Vec<u8> {
    // Of another length each time, and sometimes of several pieces.
    let length = [40, 3000, 90_000][version as usize % 3] + version as usize % 7;
    contents(1 << 40, version).into_iter().cycle().take(length).collect()
}

/// What must be there: of each block and of the state what was acknowledged, or what was about to be written.
#[derive(Clone, Debug, Default)]
struct Known {
    blocks: BTreeMap<u64, (u64, Option<u64>)>,
    state: (u64, Option<u64>),
    next: u64,
}

impl Known {
    fn new() -> Known {
        let blocks = [0, 3, LAST].map(|block| (block, (0, None)));
        Known { blocks: BTreeMap::from(blocks), next: 1, state: (0, None) }
    }

    fn write(&mut self, own: &Arc<OwnState>, blocks: &[u64]) -> bool {
        let version = self.next;
        self.next += 1;
        for block in blocks {
            self.blocks.entry(*block).or_insert((u64::MAX, None)).1 = Some(version);
        }
        let device = MirroredDevice::new(Arc::clone(own));
        for run in blocks.chunk_by(|one, next| one + 1 == *next) {
            let mut data = AlignedBuffer::zeroed(run.len() * BLOCK);
            for (turn, block) in run.iter().enumerate() {
                data[turn * BLOCK..][..BLOCK].copy_from_slice(&contents(*block, version));
            }
            if device.write(run[0] * BLOCK as u64, &[IoSlice::new(&data)]).is_err() {
                return false;
            }
        }
        device.sync().unwrap();
        for block in blocks {
            self.blocks.insert(*block, (version, None));
        }
        true
    }

    fn save(&mut self, own: &OwnState) -> bool {
        let version = self.next;
        self.next += 1;
        self.state.1 = Some(version);
        let saved = own.save(&state(version)).is_ok();
        if saved {
            self.state = (version, None);
        }
        saved
    }

    /// Checks what is there; what has been seen stays.
    fn check(&mut self, own: &Arc<OwnState>) {
        let device = MirroredDevice::new(Arc::clone(own));
        for (block, known) in &mut self.blocks {
            let mut data = AlignedBuffer::zeroed(BLOCK);
            device.read(block * BLOCK as u64, &mut [IoSliceMut::new(&mut data)]).unwrap();
            let is = |version: u64| match version {
                u64::MAX => data.iter().all(|byte| *byte == 0),
                version => data[..] == contents(*block, version)[..],
            };
            let seen = [Some(known.0), known.1].into_iter().flatten().find(|it| is(*it));
            *known = (seen.unwrap_or_else(|| panic!("block {block} is none of {known:?}")), None);
        }
        let kept = own.load().unwrap();
        let is = |version: u64| kept.as_ref() == Some(&state(version));
        let seen = [Some(self.state.0), self.state.1].into_iter().flatten().find(|it| is(*it));
        self.state =
            (seen.unwrap_or_else(|| panic!("the state is none of {:?}", self.state)), None);
    }
}

/// Current copies are the same, each with the last record.
fn check_copies(process: &Process, own: &OwnState) {
    let copies = own.membership().copies;
    assert_eq!(process.world().membership, own.membership());
    let world = process.world();
    let device = |drive: &DriveId| {
        let mut device = world.drives[drive].parts.as_ref().unwrap()[0].clone();
        device.resize(BLOCKS as usize * BLOCK, 0);
        device
    };
    let first = device(&copies[0]);
    assert!(copies.iter().all(|drive| device(drive) == first), "{copies:?}");
}

/// What a striping manager does: it writes, drives go and come, copies are made.
fn work(process: &Process, own: &Arc<OwnState>, known: &mut Known) {
    known.write(own, &[0, 1]);
    known.save(own);
    process.world().set_away(|number| number == 2);
    known.write(own, &[0, 3, 200, 201]);
    known.save(own);
    process.world().set_away(|_| false);
    for _ in 0..4 {
        process.world().elapsed += Duration::from_secs(2);
        own.tend(&process.candidates()).unwrap();
        known.write(own, &[5]);
    }
    process.world().set_away(|number| number == 1);
    known.save(own);
    known.write(own, &[LAST]);
}

/// A world with copies on all drives, and what is in it.
fn made(count: u64) -> (World, Known) {
    let process = Process::new(World::new(count), 1);
    process.found(Some(state(0))).unwrap();
    let world = process.world().clone();
    (world, Known::new())
}

/// Does it until it is killed. The world then, what is known of it, and whether it was killed.
fn killed(
    world: &World,
    known: &Known,
    cut: Option<(u64, Cut)>,
    work: &dyn Fn(&Process, &mut Known),
) -> (World, Known, bool) {
    let process = Process::new(World { cut, steps: 0, ..world.clone() }, 2);
    let mut known = known.clone();
    let ended = catch_unwind(AssertUnwindSafe(|| work(&process, &mut known)));
    let is_killed = match ended {
        Ok(()) => false,
        Err(payload) if payload.is::<Killed>() => true,
        Err(payload) => resume_unwind(payload),
    };
    let mut world = process.world().clone();
    world.cut = None;
    world.torn = 0;
    world.set_away(|_| false);
    (world, known, is_killed)
}

/// Starts with every set of drives, and goes on.
fn start_with_each_set(world: &World, known: &Known, what: &str) {
    let count = world.drives.len() as u64;
    for set in 0..1_u64 << count {
        let is_there = |number: u64| set & (1 << (number - 1)) != 0;
        let process = Process::new(world.clone(), 3);
        process.world().set_away(|number| !is_there(number));
        let copies = world.membership.copies.clone();
        let is_enough = copies.iter().any(|drive| is_there(drive.0));
        let started = process.start();
        if !is_enough {
            assert!(matches!(started, Err(OwnError::NoCopy(_))), "{what} {set:b}: {started:?}");
            continue;
        }
        let own = started.unwrap_or_else(|error| panic!("{what}, {set:b} of {copies:?}: {error}"));
        let mut known = known.clone();
        known.check(&own);
        check_copies(&process, &own);
        assert!(known.write(&own, &[0, 7]) && known.save(&own));
        process.world().set_away(|_| false);
        for _ in 0..2 * count {
            process.world().elapsed += Duration::from_secs(2);
            own.tend(&process.candidates()).unwrap();
        }
        assert_eq!(own.membership().copies.len(), 3.min(count as usize), "{what} {set:b}");
        check_copies(&process, &own);
        known.check(&own);
        let process = process.another(4);
        known.check(&process.start().unwrap());
    }
}

/// Kills after each step, in both ways.
fn kill_everywhere(world: &World, known: &Known, work: &dyn Fn(&Process, &mut Known)) -> u64 {
    let mut at = 0;
    loop {
        let mut any = false;
        for cut in [Cut::Before, Cut::Torn] {
            let (world, known, is_killed) = killed(world, known, Some((at, cut)), work);
            any |= is_killed;
            start_with_each_set(&world, &known, &format!("{cut:?} at {at}"));
        }
        if !any {
            return at;
        }
        at += 1;
    }
}

#[test]
fn killed_anywhere_it_goes_on_with_any_current_copy() {
    for count in [2, 3] {
        let (world, known) = made(count);
        let steps = kill_everywhere(&world, &known, &|process, known| {
            let own = process.start().unwrap();
            work(process, &own, known);
        });
        assert!(steps > 40, "{steps}");
    }
}

#[test]
fn killed_at_a_start_with_copies_that_differ() {
    let (world, known) = made(3);
    // A write and a save that have reached one drive, or two.
    for (at, is_save) in (12..30).flat_map(|at| [(at, false), (at, true)]) {
        let (world, known, is_killed) =
            killed(&world, &known, Some((at, Cut::Torn)), &|process, known| {
                let own = process.start().unwrap();
                if is_save {
                    known.save(&own);
                } else {
                    known.write(&own, &[0, 1, 2, 3, 4, 5]);
                }
            });
        if is_killed {
            kill_everywhere(&world, &known, &|process, known| {
                process.world().set_away(|number| number == 1);
                let own = process.start().unwrap();
                known.check(&own);
            });
        }
    }
}

#[test]
fn killed_while_the_first_copies_are_made_they_are_made_again() {
    let mut at = 0;
    loop {
        let found = |process: &Process, _: &mut Known| _ = process.found(Some(state(0))).unwrap();
        let (world, known, is_killed) =
            killed(&World::new(3), &Known::new(), Some((at, Cut::Torn)), &found);
        if world.membership.copies.is_empty() {
            let process = Process::new(world, 3);
            let own = process.found(Some(state(0))).unwrap();
            known.clone().check(&own);
            check_copies(&process, &own);
        } else {
            start_with_each_set(&world, &known, &format!("found {at}"));
        }
        if !is_killed {
            assert!(at > 20);
            return;
        }
        at += 1;
    }
}

#[test]
fn of_two_striping_managers_the_older_can_not_write() {
    let (world, mut known) = made(3);
    let older = Process::new(world, 2);
    let old = older.start().unwrap();
    assert!(known.write(&old, &[0]) && known.save(&old));
    let newer = older.another(3);
    let new = newer.start().unwrap();
    known.check(&new);
    assert!(known.write(&new, &[0]) && known.save(&new));
    let before = older.world().membership.clone();
    let mut lost = known.clone();
    assert!(!lost.write(&old, &[0, 1]) && !lost.save(&old));
    assert!(matches!(old.ended(), Some(OwnError::Superseded(_))), "{:?}", old.ended());
    assert!(old.tend(&older.candidates()).is_err());
    assert_eq!(older.world().membership, before, "who is fenced takes no copy out");
    known.check(&new);
    assert!(known.write(&new, &[0]) && new.ended().is_none());
    // One that does nothing finds it out too.
    let third = older.another(4).start().unwrap();
    assert!(new.tend(&newer.candidates()).is_err());
    known.check(&third);
}

#[test]
fn of_two_that_know_of_each_other_by_the_drives_alone_the_older_can_not_write() {
    let (world, mut known) = made(3);
    let older = Process::new(world, 2);
    let old = older.start().unwrap();
    let copy_of_file = older.world().membership.clone();
    assert!(known.write(&old, &[0]));
    // Each has a cell.toml of its own: only the drives are the same.
    let newer = Apart { drives: older.another(3), file: Mutex::new(copy_of_file) };
    let newer = Arc::new(newer);
    let drives: Vec<DriveId> = (1..=3).map(DriveId).collect();
    let new = OwnState::start(newer.clone(), newer.clone(), &drives, PATIENCE).unwrap();
    let new = Arc::new(new);
    assert!(known.write(&new, &[0, 1]) && known.save(&new));
    let mut lost = known.clone();
    older.world().set_away(|number| number == 3);
    assert!(!lost.write(&old, &[0, 1]) && !lost.save(&old));
    known.check(&new);
    assert!(known.write(&new, &[2]));
    older.world().set_away(|_| false);
    // Nor can it be started again with its own.
    let again = older.another(4).start();
    assert!(matches!(again, Err(OwnError::OldMembership { .. })), "{again:?}");
    known.check(&new);
    assert!(known.write(&new, &[2]));
}

/// The drives of a process, with another cell.toml.
struct Apart {
    drives: Process,
    file: Mutex<Membership>,
}

impl Register for Apart {
    fn read(&self) -> Result<Membership, RegisterError> {
        Ok(self.file.lock().unwrap().clone())
    }

    fn replace(&self, before: u32, with: &Membership) -> Result<(), RegisterError> {
        let mut file = self.file.lock().unwrap();
        assert_eq!(file.epoch, before);
        *file = with.clone();
        Ok(())
    }
}

impl Holders for Apart {
    fn claim(&self, drives: &[DriveId], epoch: u32, make: bool) -> Vec<Result<(), HolderError>> {
        self.drives.claim(drives, epoch, make)
    }

    fn write(
        &self,
        drives: &[DriveId],
        epoch: u32,
        pieces: &[Piece<'_>],
    ) -> Vec<Result<(), HolderError>> {
        self.drives.write(drives, epoch, pieces)
    }

    fn probe(&self, drives: &[DriveId], epoch: u32) -> Vec<Result<(), HolderError>> {
        self.drives.probe(drives, epoch)
    }

    fn read(
        &self,
        drive: DriveId,
        part: Part,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, HolderError> {
        Holders::read(&self.drives, drive, part, offset, length)
    }

    fn next_data(&self, drive: DriveId, offset: u64) -> Result<Option<u64>, HolderError> {
        self.drives.next_data(drive, offset)
    }

    fn remove(&self, drive: DriveId) -> Result<(), HolderError> {
        self.drives.remove(drive)
    }

    fn give_up(&self, _: DriveId) {}

    fn call_again(&self, _: DriveId) {}

    fn pause(&self, duration: Duration) {
        self.drives.pause(duration);
    }

    fn elapsed(&self) -> Duration {
        self.drives.elapsed()
    }
}

#[test]
fn an_old_membership_is_not_believed() {
    let (world, mut known) = made(3);
    let process = Process::new(world.clone(), 2);
    let old = world.membership.clone();
    let own = process.start().unwrap();
    process.world().set_away(|number| number == 2);
    assert!(known.write(&own, &[0]) && known.save(&own));
    drop(own);
    process.world().set_away(|_| false);
    let present = std::mem::replace(&mut process.world().membership, old);
    let before = process.world().clone();
    for away in 0..3 {
        // Whichever of the others is there tells it.
        process.world().set_away(|number| number == away);
        let refused = process.start();
        assert!(matches!(refused, Err(OwnError::OldMembership { .. })), "{refused:?}");
    }
    let after = process.world().clone();
    let keys = |world: &World| world.drives.values().map(|drive| drive.key).collect::<Vec<_>>();
    assert_eq!(
        (keys(&after), after.membership),
        (keys(&before), before.membership),
        "it changes nothing"
    );
    process.world().set_away(|_| false);
    process.world().membership = present;
    known.check(&process.start().unwrap());
}

#[test]
fn an_old_membership_is_told_by_drives_that_it_does_not_name() {
    let (world, mut known) = made(3);
    let process = Process::new(world, 2);
    let own = process.start().unwrap();
    let copies_without = |away: &[u64], known: &mut Known| {
        process.world().set_away(|number| away.contains(&number));
        assert!(known.write(&own, &[0]) && known.save(&own));
        for _ in 0..4 {
            process.world().elapsed += Duration::from_secs(2);
            own.tend(&process.candidates()).unwrap();
        }
        own.membership().copies.iter().map(|drive| drive.0).collect::<Vec<_>>()
    };
    assert_eq!(copies_without(&[3], &mut known), [1, 2]);
    let old = own.membership();
    assert_eq!(copies_without(&[1, 3], &mut known), [2]);
    assert_eq!(copies_without(&[1], &mut known), [2, 3]);
    assert_eq!(copies_without(&[1, 2], &mut known), [3]);
    drop(own);
    process.world().membership = old;
    // Drive 1 was never told of anything later.
    process.world().set_away(|number| number == 2);
    let refused = process.start();
    assert!(matches!(refused, Err(OwnError::OldMembership { .. })), "{refused:?}");
}

#[test]
fn a_save_that_goes_wrong_again_and_again_leaves_what_was_before() {
    for count in 1..=3 {
        for (torn, waiting) in (1..12).flat_map(|torn| (0..4).map(move |wait| (torn, wait))) {
            let (mut world, known) = made(count);
            world.killed_waiting = Some(waiting);
            let (world, known, _) = killed(&world, &known, None, &|process, known| {
                let own = process.start().unwrap();
                process.world().torn = torn;
                known.save(&own);
            });
            let world = World { torn: 0, killed_waiting: None, ..world };
            start_with_each_set(&world, &known, &format!("{count} drives, {torn} {waiting}"));
        }
    }
}

#[test]
fn a_drive_that_was_made_anew_has_no_copy_whatever_is_said() {
    let (world, mut known) = made(2);
    let process = Process::new(world, 2);
    process.world().drives.insert(DriveId(2), Drive::default());
    let own = process.start().unwrap();
    assert_eq!(own.membership().copies, [DriveId(1)]);
    known.check(&own);
    drop(own);
    process.world().set_away(|number| number == 1);
    assert!(matches!(process.start(), Err(OwnError::NoCopy(_))));
    process.world().set_away(|_| false);
    let own = process.start().unwrap();
    process.world().elapsed += Duration::from_secs(2);
    own.tend(&process.candidates()).unwrap();
    assert_eq!(own.membership().copies.len(), 2);
    // While it runs, too.
    process.world().drives.insert(DriveId(1), Drive::default());
    assert!(known.write(&own, &[4]));
    assert_eq!(own.membership().copies, [DriveId(2)]);
    known.check(&own);
}

#[test]
fn what_one_copy_can_not_read_is_written_anew_there() {
    let (world, mut known) = made(3);
    let process = Process::new(world, 2);
    let own = process.start().unwrap();
    // Each something else, of the same piece.
    for (drive, bad) in [(1, 0), (2, 3), (3, 100)] {
        process.world().drives.get_mut(&DriveId(drive)).unwrap().bad.insert(bad);
    }
    assert!(known.write(&own, &[50]));
    for _ in 0..6 {
        for block in 0..BLOCKS {
            let mut data = AlignedBuffer::zeroed(BLOCK);
            let device = MirroredDevice::new(Arc::clone(&own));
            device.read(block * BLOCK as u64, &mut [IoSliceMut::new(&mut data)]).unwrap();
        }
        process.world().elapsed += Duration::from_secs(3);
        own.tend(&process.candidates()).unwrap();
        own.tend(&process.candidates()).unwrap();
    }
    known.check(&own);
    assert_eq!(own.membership().copies.len(), 3);
    assert!(process.world().drives.values().all(|drive| drive.bad.is_empty()));
    // At a start none of them decides for all blocks either.
    for (drive, bad) in [(1, 0), (2, 3), (3, 100)] {
        process.world().drives.get_mut(&DriveId(drive)).unwrap().bad.insert(bad);
    }
    let own = process.start().unwrap();
    known.check(&own);
    process.world().drives.values_mut().for_each(|drive| drive.bad.clear());
    check_copies(&process, &own);
}

#[test]
fn who_leaves_gives_its_copy_to_another() {
    let (world, mut known) = made(4);
    let process = Process::new(world, 2);
    let own = process.start().unwrap();
    let mut candidates = process.candidates();
    candidates[1].role = Role::Leaving;
    for _ in 0..3 {
        own.tend(&candidates).unwrap();
    }
    assert_eq!(own.membership().copies, [1, 3, 4].map(DriveId));
    assert!(process.world().drives[&DriveId(2)].parts.is_none(), "nothing of it stays there");
    check_copies(&process, &own);
    known.check(&own);
}

#[test]
fn whatever_happens_in_any_sequence() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let until = Instant::now() + Duration::from_secs(number("NASD_MODEL_SECONDS").unwrap_or(5));
    let first = number("NASD_MODEL_SEED").unwrap_or(1);
    for seed in first.. {
        // It is shown when something fails.
        println!("seed {seed}");
        happen(seed);
        if Instant::now() > until {
            return;
        }
    }
}

fn happen(seed: u64) {
    let mut random = Random(seed);
    let count = 1 + random.below(5);
    let (mut world, mut known) = made(count);
    for turn in 0..6 {
        let cut = (random.below(3) > 0).then(|| {
            let how = if random.below(2) == 0 { Cut::Before } else { Cut::Torn };
            (random.below(120), how)
        });
        let scene = Mutex::new(Random(seed << 8 | turn));
        let current = world.membership.copies.clone();
        let there = current[random.index(current.len())];
        let away = random.next();
        let is_away = |number: u64| away >> number & 1 == 1 && number != there.0;
        (world, known, _) = killed(&world, &known, cut, &|process, known| {
            process.world().set_away(is_away);
            let own = process.start().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            known.check(&own);
            act(process, &own, known, &mut scene.lock().unwrap());
        });
    }
    start_with_each_set(&world, &known, &format!("seed {seed}"));
}

fn act(process: &Process, own: &Arc<OwnState>, known: &mut Known, random: &mut Random) {
    for _ in 0..20 {
        match random.below(6) {
            0 => {
                // One with a current copy is there always.
                let copies = own.membership().copies;
                let there = copies[random.index(copies.len())];
                let away = random.next();
                process.world().set_away(|number| away >> number & 1 == 1 && number != there.0);
            }
            1 => {
                process.world().torn = random.below(3) as u32 * random.below(3) as u32;
                assert!(known.save(own));
            }
            2 | 3 => {
                process.world().torn = random.below(3) as u32 * random.below(3) as u32;
                let first = random.below(BLOCKS - 4);
                let blocks: Vec<u64> = (first..first + 1 + random.below(4)).collect();
                assert!(known.write(own, &blocks));
            }
            _ => {
                process.world().elapsed += Duration::from_secs(random.below(5));
                own.tend(&process.candidates()).unwrap();
            }
        }
    }
    known.check(own);
    check_copies_that_are_there(process, own);
}

fn check_copies_that_are_there(process: &Process, own: &OwnState) {
    if process.world().drives.values().all(|drive| !drive.is_away) {
        check_copies(process, own);
    }
}

#[test]
fn one_that_is_back_is_used_at_once_and_waited_for() {
    let (world, mut known) = made(2);
    let process = Process::new(world, 2);
    let own = process.start().unwrap();
    process.world().set_away(|number| number == 2);
    assert!(known.write(&own, &[0]));
    own.tend(&process.candidates()).unwrap();
    process.world().set_away(|_| false);
    // It has just been left out, and would be held back.
    assert!(!own.is_about_to_use(DriveId(2)));
    let mut before = process.candidates();
    before[1].is_reachable = false;
    own.call_again(DriveId(2));
    assert!(own.is_about_to_use(DriveId(2)));
    own.tend(&before).unwrap();
    assert!(
        own.is_about_to_use(DriveId(2)),
        "it was looked who is there before it was called again"
    );
    own.tend(&process.candidates()).unwrap();
    assert!(!own.is_about_to_use(DriveId(2)));
    assert_eq!(own.membership().copies.len(), 2);
    own.call_again(DriveId(2));
    assert!(!own.is_about_to_use(DriveId(2)), "it has a copy");
    // One that can't be given any is not waited for for ever.
    process.world().set_away(|number| number == 1);
    assert!(known.write(&own, &[0]));
    own.call_again(DriveId(1));
    let mut candidates = process.candidates();
    candidates[0].is_reachable = true;
    for _ in 0..20 {
        process.world().elapsed += Duration::from_millis(500);
        own.tend(&candidates).unwrap();
    }
    assert!(!own.is_about_to_use(DriveId(1)));
}

#[test]
fn what_is_written_while_a_copy_is_made_is_in_it() {
    for (at, away) in (0..4).flat_map(|at| [(at, false), (at, true)]) {
        let (world, mut known) = made(3);
        let process = Process::new(world, 2);
        let own = process.start().unwrap();
        process.world().set_away(|number| number == 2);
        assert!(known.write(&own, &[0, 200]));
        process.world().set_away(|_| false);
        let writer = (Arc::clone(&own), process.clone(), Arc::new(Mutex::new(known)));
        let known = Arc::clone(&writer.2);
        let happens = move || {
            let (own, process, known) = &writer;
            // Perhaps the copy that is read is current no more from here on.
            process.world().set_away(|number| away && number == 3);
            assert!(known.lock().unwrap().write(own, &[0, 1, 150, LAST]));
            process.world().set_away(|_| false);
        };
        *process.2.lock().unwrap() = Some((at, Box::new(happens)));
        own.tend(&process.candidates()).unwrap();
        assert!(process.2.lock().unwrap().is_none(), "it has happened");
        check_copies(&process, &own);
        for _ in 0..4 {
            process.world().elapsed += Duration::from_secs(2);
            own.tend(&process.candidates()).unwrap();
        }
        assert_eq!(own.membership().copies.len(), 3);
        check_copies(&process, &own);
        known.lock().unwrap().check(&own);
    }
}
