//! A volume of the cell, by a clerk: names from the file manager, data straight from the drives.

use super::remote::{
    Facts, Failure, Kind, Listed, Making, Remote, RemoteFile, RemoteLane, below, split,
};
use super::striped;
use super::transfer::lock;
use crate::shared_file::printable;
use nasd_bulk_service::client::{BulkError, StripedFile};
use nasd_cell::Cell;
use nasd_cell::session::{Connected, connect_by, for_command};
use nasd_clerk::{
    Caller, Clerk, ClerkError, Entry, FileAttributes, FileType, ManagerStatus, Name, OpenFile,
    OpenMode, RenameFlags, Route, SetFileAttributes, Timestamp,
};
use nasd_protocol::bulk::Options;
use nasd_types::Protection;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Entries asked for at a time.
const PAGE_ENTRIES: u32 = 1024;

/// A volume, and who works on it.
pub struct Volume {
    clerk: Arc<Clerk>,
    caller: Arc<Caller>,
    name: String,
    /// How the bytes are asked for.
    bulk: (Protection, Duration),
}

impl Volume {
    /// Connects to it.
    ///
    /// # Errors
    /// A cell that can't be reached, or has no such volume.
    pub fn connect(
        cell: &Cell,
        name: &str,
        bulk: (Protection, Duration),
    ) -> Result<Volume, Box<dyn Error>> {
        let mut settings = for_command();
        settings.deadline = bulk.1;
        let Connected { clerk, caller } = connect_by(cell, name, Route::Direct, settings)?;
        Ok(Volume { clerk, caller, name: name.to_owned(), bulk })
    }

    fn entry(&self, path: &[u8]) -> Result<Entry, Failure> {
        self.clerk.resolve(&self.caller, &below(b"/", path), true).map_err(failure)
    }

    fn parent(&self, path: &[u8]) -> Result<(Entry, Name), Failure> {
        let (parent, name) = split(path).ok_or_else(|| "this is the volume's root".to_owned())?;
        let name = Name::new(name).map_err(|error| error.to_string())?;
        Ok((self.entry(parent)?, name))
    }

    fn opened(
        &self,
        entry: &Entry,
        mode: OpenMode,
        block: u64,
    ) -> Result<Box<dyn RemoteFile>, Failure> {
        let (file, _) = self.clerk.open_known(&self.caller, entry, mode).map_err(failure)?;
        let (clerk, caller, entry) = (Arc::clone(&self.clerk), Arc::clone(&self.caller), *entry);
        let mut opened = VolumeFile { clerk, caller, entry, file, bulk: self.bulk, ways: None };
        match opened.open_way(false, block)? {
            Some(way) => opened.ways = Some(Ways::with(way)),
            // What goes by the clerk is protected as the volume says.
            None if !self.clerk.volume().protection.contains(self.bulk.0) => {
                return Err(Failure::Final(
                    "its bytes don't go by the bulk service, but as the volume protects them: leave --protection away"
                        .to_owned(),
                ));
            }
            None => {}
        }
        Ok(Box::new(opened))
    }
}

impl Remote for Volume {
    fn called(&self, path: &[u8]) -> String {
        format!("{}:/{}", self.name, printable(&String::from_utf8_lossy(path)))
    }

    fn facts(&self, path: &[u8]) -> Result<Option<Facts>, Failure> {
        match self.clerk.resolve(&self.caller, &below(b"/", path), true) {
            Ok(entry) => Ok(Some(facts_of(&entry.attributes))),
            Err(ClerkError::Manager(ManagerStatus::NotFound)) => Ok(None),
            Err(error) => Err(failure(error)),
        }
    }

    fn list(&self, path: &[u8]) -> Result<Vec<Listed>, Failure> {
        let directory = self.entry(path)?.handle;
        let (mut listed, mut cookie) = (Vec::new(), 0);
        loop {
            let page = self.clerk.readdir(&self.caller, directory, cookie, PAGE_ENTRIES);
            let page = page.map_err(failure)?;
            cookie = page.entries.last().map_or(cookie, |entry| entry.cookie);
            let is_last = page.end || page.entries.is_empty();
            for entry in page.entries {
                if matches!(entry.name.as_bytes(), b"." | b"..") {
                    continue;
                }
                let facts = match self.clerk.getattr(&self.caller, entry.handle) {
                    // It was removed meanwhile.
                    Err(ClerkError::Manager(ManagerStatus::NotFound | ManagerStatus::Stale)) => {
                        continue;
                    }
                    told => facts_of(&told.map_err(failure)?),
                };
                listed.push(Listed { name: entry.name.as_bytes().to_vec(), facts });
            }
            if is_last {
                return Ok(listed);
            }
        }
    }

    fn make_directory(&self, path: &[u8], mode: u32) -> Result<(), Failure> {
        let (parent, name) = self.parent(path)?;
        match self.clerk.mkdir(&self.caller, parent.handle, &name, mode) {
            Ok(_) => Ok(()),
            Err(error @ ClerkError::Manager(ManagerStatus::Exists)) => match self.facts(path)? {
                Some(Facts { kind: Kind::Directory, .. }) => Ok(()),
                _ => Err(failure(error)),
            },
            Err(error) => Err(failure(error)),
        }
    }

    fn open(&self, path: &[u8], block: u64) -> Result<(Box<dyn RemoteFile>, Facts), Failure> {
        let entry = self.entry(path)?;
        let file = self.opened(&entry, OpenMode::READ, block)?;
        Ok((file, facts_of(&entry.attributes)))
    }

    fn make(&self, path: &[u8], making: Making) -> Result<Box<dyn RemoteFile>, Failure> {
        let (parent, name) = self.parent(path)?;
        let made = self.clerk.create(&self.caller, parent.handle, &name, making.mode, false);
        let entry = made.map_err(failure)?;
        if entry.attributes.file_type != FileType::Regular {
            return Err("it is no file".to_owned().into());
        }
        if !making.keeps && entry.attributes.size > 0 {
            let empty = SetFileAttributes { size: Some(0), ..SetFileAttributes::default() };
            self.clerk.setattr(&self.caller, entry.handle, &empty).map_err(failure)?;
        }
        self.opened(&self.entry(path)?, OpenMode::WRITE, 0)
    }

    fn set(&self, path: &[u8], mode: u32, time: Timestamp) -> Result<bool, Failure> {
        let changes = SetFileAttributes {
            mode: Some(mode),
            modify_time: Some(time),
            ..SetFileAttributes::default()
        };
        match self.clerk.setattr(&self.caller, self.entry(path)?.handle, &changes) {
            Ok(_) => Ok(true),
            Err(ClerkError::Manager(ManagerStatus::Permission)) => Ok(false),
            Err(error) => Err(failure(error)),
        }
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Failure> {
        let ((from, old), (to, new)) = (self.parent(from)?, self.parent(to)?);
        let names = ((from.handle, &old), (to.handle, &new));
        let renamed = self.clerk.rename(&self.caller, names.0, names.1, RenameFlags::NONE, None);
        renamed.and_then(|()| self.clerk.commit()).map_err(failure)
    }

    fn remove(&self, path: &[u8]) -> Result<(), Failure> {
        let (parent, name) = self.parent(path)?;
        self.clerk.unlink(&self.caller, parent.handle, &name, None).map_err(failure)
    }
}

/// An open file of a volume.
struct VolumeFile {
    clerk: Arc<Clerk>,
    caller: Arc<Caller>,
    entry: Entry,
    file: OpenFile,
    bulk: (Protection, Duration),
    /// Nothing where it is read and written by the clerk.
    ways: Option<Ways>,
}

/// A file as it is open at the drives that have its bytes, once for each reader and writer at a time.
struct Ways {
    alignment: u64,
    /// Those that nobody uses.
    idle: Mutex<Vec<StripedFile>>,
}

impl Ways {
    fn with(way: StripedFile) -> Ways {
        Ways { alignment: way.alignment(), idle: Mutex::new(vec![way]) }
    }
}

impl VolumeFile {
    /// Opens it at the bulk service of the drives that have its bytes; nothing where it is read and written as by `nasd cp`: where
    /// its bytes are kept more than once, or drives don't serve them so. `is_anew` where capabilities were refused; `block` as of
    /// [`Remote::open`].
    fn open_way(&self, is_anew: bool, block: u64) -> Result<Option<StripedFile>, Failure> {
        let (more, patience) = self.bulk;
        let OpenMode { read, write } = self.file.mode();
        let mut options = Options::empty();
        options.set(Options::READ, read);
        options.set(Options::WRITE, write);
        let way = self.file.bulk_way(self.file.mode(), is_anew).map_err(failure)?;
        let Some(mut way) = way else { return Ok(None) };
        way.components.iter_mut().for_each(|component| component.protection |= more);
        match way.open(options, patience, block) {
            // What the clerk has had for a while may have been taken back.
            Err(error) if error.needs_new_capability() && !is_anew => self.open_way(true, block),
            Err(BulkError::Failed { .. }) => Ok(None),
            opened => striped::checked(opened.map_err(striped::failure)?).map(Some),
        }
    }

    /// One more way, for a lane.
    fn new_way(&self, is_anew: bool) -> Result<StripedFile, Failure> {
        let way = self.open_way(is_anew, 0)?;
        way.ok_or_else(|| {
            Failure::Stale(
                "its bytes were moved to where the bulk service has none of them".to_owned(),
            )
        })
    }
}

impl RemoteFile for VolumeFile {
    fn alignment(&self) -> u64 {
        self.ways.as_ref().map_or(1, |ways| ways.alignment)
    }

    fn lane(&self) -> Result<Box<dyn RemoteLane + '_>, Failure> {
        if let Some(ways) = &self.ways {
            let idle = lock(&ways.idle).pop();
            let way = idle.map_or_else(|| self.new_way(false), Ok)?;
            return Ok(Box::new(ByWay { file: self, ways, way: Some(way) }));
        }
        if self.file.mode().write {
            return Ok(Box::new(Shared(&self.file)));
        }
        // Its own, so that the clerk sees who reads on from where.
        let opened = self.clerk.open_known(&self.caller, &self.entry, OpenMode::READ);
        opened.map(|(file, _)| Box::new(Own(file)) as Box<dyn RemoteLane>).map_err(failure)
    }

    fn size(&self) -> Result<u64, Failure> {
        self.file.size_now().map_err(failure)
    }

    fn set_size(&self, size: u64) -> Result<(), Failure> {
        let changes = SetFileAttributes { size: Some(size), ..SetFileAttributes::default() };
        self.clerk.setattr(&self.caller, self.entry.handle, &changes).map(drop).map_err(failure)
    }

    fn sync(&self) -> Result<(), Failure> {
        // What drives have answered is durable.
        if self.ways.is_some() {
            self.file.note_bulk_changes().map_err(failure)?;
        }
        self.file.sync().map_err(failure)
    }
}

/// A reader or writer by a way of its own, which is had anew when its capabilities have ended.
struct ByWay<'f> {
    file: &'f VolumeFile,
    ways: &'f Ways,
    /// Nothing where the last one has ended, and another was not to be had.
    way: Option<StripedFile>,
}

impl ByWay<'_> {
    fn run<T>(
        &mut self,
        mut run: impl FnMut(&StripedFile) -> Result<T, BulkError>,
    ) -> Result<T, Failure> {
        if let Some(way) = &self.way {
            match run(way) {
                Err(error) if error.needs_new_capability() => self.way = None,
                done => return done.map_err(striped::failure),
            }
        }
        run(self.way.insert(self.file.new_way(true)?)).map_err(striped::failure)
    }
}

impl Drop for ByWay<'_> {
    fn drop(&mut self) {
        lock(&self.ways.idle).extend(self.way.take());
    }
}

impl RemoteLane for ByWay<'_> {
    fn read_at(&mut self, into: &mut [u8], offset: u64) -> Result<usize, Failure> {
        self.run(|way| way.read_at(into, offset))
    }

    fn write_at(&mut self, data: &[u8], offset: u64) -> Result<(), Failure> {
        self.run(|way| way.write_at(data, offset))
    }
}

struct Shared<'f>(&'f OpenFile);

impl RemoteLane for Shared<'_> {
    fn read_at(&mut self, into: &mut [u8], offset: u64) -> Result<usize, Failure> {
        self.0.read(offset, into).map_err(failure)
    }

    fn write_at(&mut self, data: &[u8], offset: u64) -> Result<(), Failure> {
        self.0.write(offset, data).map_err(failure)
    }
}

struct Own(OpenFile);

impl RemoteLane for Own {
    fn read_at(&mut self, into: &mut [u8], offset: u64) -> Result<usize, Failure> {
        Shared(&self.0).read_at(into, offset)
    }

    fn write_at(&mut self, data: &[u8], offset: u64) -> Result<(), Failure> {
        Shared(&self.0).write_at(data, offset)
    }
}

fn facts_of(attributes: &FileAttributes) -> Facts {
    let kind = match attributes.file_type {
        FileType::Regular => Kind::File,
        FileType::Directory => Kind::Directory,
        _ => Kind::Other,
    };
    let FileAttributes { mode, size, modify_time: time, .. } = *attributes;
    Facts { kind, mode, size, time }
}

fn failure(error: ClerkError) -> Failure {
    Failure::Final(error.to_string())
}
