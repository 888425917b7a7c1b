//! A client: a real clerk, and an application that uses it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nasd_clerk::{
    Caller, Clerk, ClerkError, ClerkOptions, FileHandle, ManagerStatus, Name, OpenFile, OpenMode,
    RenameFlags,
};
use nasd_client::Network;

use crate::network::{Cables, NodeId, SimulatedNetwork};
use crate::random::Random;
use crate::turns::{ProcessId, Time, lock};

use super::history::{History, Storing};
use super::lengths::Lengths;
use super::names::{Action, NAMES, Target};
use super::plan::Plan;
use super::registers::Value;
use super::room::NO_ROOM;

/// The volume.
pub(super) const VOLUME: &str = "home";

/// Bytes of a piece of a file, and of the hole behind it: so each piece is written by itself.
pub(super) const PIECE: usize = 4096;

/// Files that may have so many bytes altogether get fewer than this behind what is read of them.
const MOST_EXTRA: usize = 2 * PIECE + 1;

/// The first so many names are in the root, the others in a directory.
const IN_ROOT: usize = 3;

/// Files and directories that there are from the beginning.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) files: Vec<FileHandle>,
    pub(super) directories: [FileHandle; 2],
}

/// Where clients are, and what they have done.
pub(super) struct Site {
    pub(super) time: Arc<Time>,
    pub(super) plan: Plan,
    pub(super) history: Mutex<History>,
    pub(super) lengths: Arc<Lengths>,
    pub(super) places: Mutex<Option<Places>>,
    pub(super) manager: NodeId,
}

/// See the module.
pub(super) struct Client {
    site: Arc<Site>,
    place: usize,
    pub(super) number: usize,
    pub(super) process: ProcessId,
    network: Arc<dyn Network>,
}

/// It at work.
pub(super) struct Working {
    client: Arc<Client>,
    pub(super) clerk: Arc<Clerk>,
    pub(super) caller: Arc<Caller>,
    pub(super) places: Places,
    /// Files that stay open.
    open: BTreeMap<usize, OpenFile>,
    /// What it has tried to store in which file, and was told to have failed: it may see that before others do.
    left: BTreeMap<Value, usize>,
}

pub(super) fn named(text: &str) -> Name {
    Name::new(text).expect("invariant: it is a name")
}

/// All bytes of a file that is stored with this value.
fn contents(value: Value, pieces: usize) -> Vec<Vec<u8>> {
    let piece = |number: usize| {
        let words = [value, number as u64].map(u64::to_le_bytes).concat();
        words.iter().copied().cycle().take(PIECE).collect()
    };
    (0..pieces).map(piece).collect()
}

/// Bytes of a file of so many pieces.
pub(super) const fn bytes_of(pieces: usize) -> usize {
    (2 * pieces - 1) * PIECE
}

/// What each piece was stored with.
fn values(data: &[u8], pieces: usize) -> Result<Vec<Value>, String> {
    if data.len() != bytes_of(pieces) {
        return Err(format!("{} bytes were read, not {}", data.len(), bytes_of(pieces)));
    }
    let value = |(number, block): (usize, &[u8])| {
        let words: Vec<u64> = block
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
            .collect();
        let is_same = words.chunks(2).all(|pair| pair == &words[..2]);
        let is_empty = words.iter().all(|word| *word == 0);
        let is_right = match number % 2 {
            0 => is_same && (is_empty || words[1] == number as u64 / 2),
            _ => is_empty,
        };
        if is_right {
            Ok(words[0])
        } else {
            Err(format!("block {number} is {:x?}...", &words[..4]))
        }
    };
    data.chunks(PIECE).enumerate().map(value).step_by(2).collect()
}

fn status(error: &ClerkError) -> Option<ManagerStatus> {
    match error {
        ClerkError::Manager(status) => Some(*status),
        _ => None,
    }
}

impl Client {
    pub(super) fn new(
        site: &Arc<Site>,
        cables: &Arc<Cables>,
        (place, node): (usize, NodeId),
        number: usize,
    ) -> Arc<Client> {
        let process = site.time.process();
        let network = Arc::new(SimulatedNetwork(cables.host(node, process, 0)));
        Arc::new(Client { site: Arc::clone(site), place, number, process, network })
    }

    /// Begins to work, as soon as the file manager is there.
    pub(super) fn begin(self: &Arc<Self>) -> Working {
        let plan = &self.site.plan;
        let caller = Arc::new(Caller { uid: 0, gid: 0, groups: Vec::new() });
        let address = Cables::address(self.site.manager);
        let network = Arc::clone(&self.network);
        let mut options = ClerkOptions::over(network, address, named(VOLUME), Arc::clone(&caller));
        options.settings.deadline = plan.patience;
        if !plan.has_cache {
            options.settings.cache.memory_bytes = 0;
        }
        let clerk = loop {
            match Clerk::connect(&options) {
                Ok(clerk) => break Arc::new(clerk),
                Err(error) => self.tell(|| format!("can't begin: {error}")),
            }
            self.site.time.sleep(Duration::from_millis(100));
        };
        let places = lock(&self.site.places).clone();
        let client = Arc::clone(self);
        let root = clerk.root();
        let none = || Places { files: Vec::new(), directories: [root; 2] };
        let places = places.unwrap_or_else(none);
        Working { client, clerk, caller, places, open: BTreeMap::new(), left: BTreeMap::new() }
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        self.site.time.tell(|| format!("client {} {}", self.number, what()));
    }
}

impl Working {
    pub(super) fn site(&self) -> &Site {
        &self.client.site
    }

    pub(super) fn history(&self) -> std::sync::MutexGuard<'_, History> {
        lock(&self.site().history)
    }

    pub(super) fn who(&self) -> String {
        format!("client {} at {:?}", self.client.number, self.site().time.now())
    }

    pub(super) fn tell(&self, what: impl FnOnce() -> String) {
        self.client.tell(what);
    }

    /// Makes what there is from the beginning.
    pub(super) fn make_places(&mut self) -> Result<(), ClerkError> {
        let (clerk, root) = (&self.clerk, self.clerk.root());
        let mut files = Vec::new();
        for number in 0..self.site().plan.files {
            let name = named(&format!("file{number}"));
            files.push(clerk.create_to_store(&self.caller, root, &name, 0o666, true)?.handle);
        }
        let directory = clerk.mkdir(&self.caller, root, &named("directory"), 0o777)?.handle;
        let places = Places { files, directories: [root, directory] };
        self.places = places.clone();
        *lock(&self.site().places) = Some(places);
        (0..self.site().plan.files).try_for_each(|file| self.store(file, 0))?;
        // Names are durable a moment later.
        self.site().time.sleep(Duration::from_secs(2));
        Ok(())
    }

    /// Does this and that.
    pub(super) fn work(&mut self, operations: usize, random: &mut Random) {
        let plan = self.site().plan.clone();
        for _ in 0..operations {
            let pause = random.between(Duration::ZERO, plan.pause);
            self.site().time.sleep(pause);
            let file = random.index(plan.files);
            let (name, other) = (random.index(NAMES), random.index(NAMES));
            let extra = plan.room.map_or(0, |_| random.index(MOST_EXTRA));
            let is_writer = self.client.place < plan.writers;
            let outcome = match random.index(20) {
                0..7 => self.read(file, random.one_in(2)),
                7..12 if is_writer => self.store(file, extra),
                7.. if !is_writer => self.read(file, true),
                18 if plan.room.is_some() => self.resize(file, extra * random.index(2)),
                12.. if !plan.names => self.read(file, false),
                12 | 13 => self.create(name, random.one_in(2)),
                14 => self.remove(name),
                15 if name != other => self.rename(name, other),
                16 => self.list(random.index(2)),
                17 => self.read_new(name),
                _ => self.look(name),
            };
            if let Err(error) = outcome {
                self.client.tell(|| format!("fails: {error}"));
                self.history().fails();
                self.expect_away(&error);
            }
        }
    }

    /// Nothing fails but where something is away.
    fn expect_away(&self, error: &ClerkError) {
        let is_away = match error {
            ClerkError::Unreachable(_) => true,
            ClerkError::Manager(status) => {
                status.is_transient() || *status == ManagerStatus::NoSession
            }
            _ => false,
        };
        if !is_away {
            self.site().time.fail(format!("client {} was told {error:?}", self.client.number));
        }
    }

    /// Stores a file, with so many bytes more behind what is read of it.
    pub(super) fn store(&mut self, file: usize, extra: usize) -> Result<(), ClerkError> {
        if self.left.values().any(|left| *left == file) {
            // What is left of it would be stored with what is written next, or in the middle of that.
            return self.read(file, false);
        }
        let storing = self.history().store(file, self.site().time.now());
        self.left.insert(storing.value, file);
        let pieces = self.site().plan.pieces;
        self.client.tell(|| format!("stores {:x} in file {file}", storing.value));
        let handle = self.places.files[file];
        let (open, _) = self.clerk.open(&self.caller, handle, OpenMode::WRITE)?;
        let stored = contents(storing.value, pieces)
            .iter()
            .enumerate()
            .try_for_each(|(number, piece)| open.write((2 * number * PIECE) as u64, piece))
            .and_then(|()| open.write(bytes_of(pieces) as u64, &vec![0xee; extra]))
            .and_then(|()| open.close());
        if stored == Err(NO_ROOM) {
            self.has_no_room(file, storing, extra);
            return Ok(());
        }
        stored?;
        self.client.tell(|| format!("has stored {:x}", storing.value));
        let slow = self.site().plan.slow();
        let now = self.site().time.now();
        self.history().stored(storing, now, slow);
        self.left.remove(&storing.value);
        Ok(())
    }

    /// Nothing of what there was no room for is kept here to be stored later.
    fn has_no_room(&mut self, file: usize, storing: Storing, extra: usize) {
        let (plan, now) = (&self.site().plan, self.site().time.now());
        let length = (bytes_of(plan.pieces) + extra) as u64;
        let is_begun_once = plan.faults.are_none() && now - storing.begun < plan.slow();
        self.is_refused(self.places.files[file], length, storing.begun);
        self.history().is_refused(storing, is_begun_once);
        self.left.remove(&storing.value);
    }

    pub(super) fn read(&mut self, file: usize, is_kept: bool) -> Result<(), ClerkError> {
        let begun = self.history().moment();
        let pieces = self.site().plan.pieces;
        let open = match self.open.remove(&file) {
            Some(open) => open,
            None => self.clerk.open(&self.caller, self.places.files[file], OpenMode::READ)?.0,
        };
        let has_extra = self.site().plan.room.is_some();
        let mut data = vec![0xff; bytes_of(pieces) + usize::from(!has_extra)];
        let length = open.read(0, &mut data)?;
        data.truncate(length);
        match values(&data, pieces) {
            Ok(blocks) if blocks.iter().any(|value| self.left.contains_key(value)) => {}
            Ok(blocks) => {
                self.client.tell(|| format!("reads {blocks:x?} from file {file}"));
                let who = self.who();
                self.history().read(file, begun, who, blocks);
            }
            Err(why) => {
                self.site().time.fail(format!("{} has read file {file}: {why}", self.who()))
            }
        }
        if is_kept {
            self.open.insert(file, open);
        }
        Ok(())
    }

    fn place(&self, name: usize) -> (FileHandle, Name) {
        let directory = self.places.directories[usize::from(name >= IN_ROOT)];
        (directory, named(&format!("name{name}")))
    }

    fn create(&self, name: usize, is_stored: bool) -> Result<(), ClerkError> {
        let begun = self.history().may(self.who(), Action::MayCreate(name));
        self.client.tell(|| format!("makes name {name}"));
        let (directory, text) = self.place(name);
        let made = match self.clerk.create_to_store(&self.caller, directory, &text, 0o666, true) {
            Ok(entry) => Some(entry.handle),
            Err(error) if status(&error) == Some(ManagerStatus::Exists) => None,
            // The answer was lost, and somebody has removed the file when it is asked for again.
            Err(error) if status(&error) == Some(ManagerStatus::Stale) => return Ok(()),
            Err(error) => return Err(error),
        };
        self.ends(begun, Action::Create(name, made.map(target)));
        match made.filter(|_| is_stored) {
            Some(file) => self.store_new(file),
            None => Ok(()),
        }
    }

    /// Stores a file that it has just made.
    fn store_new(&self, file: FileHandle) -> Result<(), ClerkError> {
        let begun = self.site().time.now();
        self.client.tell(|| format!("stores the new file {:x}", target(file)));
        let (open, _) = match self.clerk.open(&self.caller, file, OpenMode::WRITE) {
            // Somebody has removed it.
            Err(error) if status(&error) == Some(ManagerStatus::Stale) => return Ok(()),
            opened => opened?,
        };
        let stored = open.write(0, &new_contents(file)).and_then(|()| open.close());
        match stored {
            Err(error) if status(&error) == Some(ManagerStatus::Stale) => return Ok(()),
            Err(NO_ROOM) => {
                self.is_refused(file, PIECE as u64, begun);
                return Ok(());
            }
            stored => stored?,
        }
        self.client.tell(|| format!("has stored the new file {:x}", target(file)));
        // What was slow may have been ended in the moment in which it was written.
        if self.site().time.now() - begun < self.site().plan.slow() {
            self.history().new_is_stored(target(file));
        }
        Ok(())
    }

    /// Reads what somebody has made: nothing, if it may not be stored yet, or all of it.
    fn read_new(&self, name: usize) -> Result<(), ClerkError> {
        let begun = self.history().moment();
        let (directory, text) = self.place(name);
        let mut data = vec![0xff; PIECE + 1];
        let mut read = || {
            let file = self.clerk.lookup(&self.caller, directory, &text)?.handle;
            let (open, _) = self.clerk.open(&self.caller, file, OpenMode::READ)?;
            Ok((file, open.read(0, &mut data)?))
        };
        let (file, length) = match read() {
            Err(error)
                if matches!(
                    status(&error),
                    Some(ManagerStatus::NotFound | ManagerStatus::Stale)
                ) =>
            {
                return Ok(());
            }
            // It was removed at its drive.
            Err(ClerkError::Drive(nasd_clerk::Status::NoSuchObject)) => return Ok(()),
            read => read?,
        };
        self.client.tell(|| format!("reads {length} bytes of the new file {:x}", target(file)));
        let is_right = match length {
            0 => !self.history().was_new_stored(target(file), begun),
            _ => data[..length] == new_contents(file),
        };
        if !is_right {
            self.site().time.fail(format!("{} has read {length} bytes of {name}", self.who()));
        }
        Ok(())
    }

    fn remove(&self, name: usize) -> Result<(), ClerkError> {
        let begun = self.history().may(self.who(), Action::MayRemove(name));
        self.client.tell(|| format!("removes name {name}"));
        let (directory, text) = self.place(name);
        let was_there = was_there(self.clerk.unlink(&self.caller, directory, &text, None))?;
        self.ends(begun, Action::Remove(name, was_there));
        Ok(())
    }

    fn rename(&self, from: usize, to: usize) -> Result<(), ClerkError> {
        let begun = self.history().may(self.who(), Action::MayRename(from, to));
        self.client.tell(|| format!("moves name {from} to {to}"));
        let (source, target) = (self.place(from), self.place(to));
        let (source, target) = ((source.0, &source.1), (target.0, &target.1));
        let moved = self.clerk.rename(&self.caller, source, target, RenameFlags::NONE, None);
        self.ends(begun, Action::Rename(from, to, was_there(moved)?));
        Ok(())
    }

    fn look(&self, name: usize) -> Result<(), ClerkError> {
        let begun = self.history().moment();
        let (directory, text) = self.place(name);
        let found = match self.clerk.lookup(&self.caller, directory, &text) {
            Ok(entry) => target(entry.handle),
            Err(error) if status(&error) == Some(ManagerStatus::NotFound) => 0,
            Err(error) => return Err(error),
        };
        self.ends(begun, Action::Lookup(name, found));
        Ok(())
    }

    fn list(&self, directory: usize) -> Result<(), ClerkError> {
        let begun = self.history().moment();
        let handle = self.places.directories[directory];
        let page = self.clerk.readdir(&self.caller, handle, 0, 1000)?;
        let names = if directory == 0 { 0..IN_ROOT } else { IN_ROOT..NAMES };
        let first = names.start;
        let one = |name: usize| {
            let (_, text) = self.place(name);
            let entry = page.entries.iter().find(|entry| entry.name == text);
            entry.map_or(0, |entry| target(entry.handle))
        };
        self.ends(begun, Action::List(first, names.map(one).collect()));
        Ok(())
    }

    fn ends(&self, begun: u64, action: Action) {
        self.client.tell(|| format!("knows {action:x?}"));
        let who = self.who();
        self.history().named(begun, who, action);
    }

    /// Looks at all that there is.
    pub(super) fn look_at_all(&mut self) -> Result<(), ClerkError> {
        (0..self.site().plan.files).try_for_each(|file| self.read(file, false))?;
        (0..NAMES).try_for_each(|name| self.look(name))?;
        (0..2).try_for_each(|directory| self.list(directory))
    }
}

/// All that is ever stored in a file that was made by a name.
fn new_contents(file: FileHandle) -> Vec<u8> {
    target(file).to_le_bytes().into_iter().cycle().take(PIECE).collect()
}

/// A file's number, unlike any other one's.
fn target(handle: FileHandle) -> Target {
    handle.drive.0 << 56 | handle.object.0
}

fn was_there(outcome: Result<(), ClerkError>) -> Result<bool, ClerkError> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if status(&error) == Some(ManagerStatus::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}
