//! The back end of an ordinary directory: its files, by way of the kernel and past its cache.

mod buffers;
pub(crate) mod confined;
mod gate;
pub(crate) mod identity;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use nasd_capability::{Nonce, SecretKey};
use nasd_protocol::Status;
use nasd_protocol::bulk::{Open, Options};
use nasd_types::{ByteRange, DriveId, Protection, Rights, Timestamp};
use rustix::fs::{Mode, OFlags};

use self::buffers::Buffers;
use self::confined::Confined;
use self::gate::{Gate, Holder};
use self::identity::{FileIdentity, Named};
use crate::server::{Backend, Block, Facts, Permit, Refused, Request, Traits};

pub use buffers::Lent;
pub use gate::Ticket;

/// Bytes of which offsets and lengths are multiples where the file system does not say: no device has larger sectors.
const CAUTIOUS_ALIGNMENT: u64 = 4096;

/// How often a read is made again because the file became shorter meanwhile.
const MOST_LOOKS: u32 = 8;

/// How a directory is served.
#[derive(Clone, Debug)]
pub struct DirectoryOptions {
    /// The weakest protection of requests.
    pub minimum_protection: Protection,
    /// Most bytes of one read or write.
    pub most: u64,
    /// Bytes that are read ahead of one open file at most.
    pub ahead_bytes: u64,
    /// The same of all of them.
    pub all_ahead_bytes: usize,
    /// Memory that is kept while nobody uses it.
    pub idle_bytes: usize,
    /// Whether nothing can be changed, whatever tickets allow.
    pub read_only: bool,
}

impl Default for DirectoryOptions {
    fn default() -> Self {
        DirectoryOptions {
            minimum_protection: Protection::INTEGRITY_ARGS,
            most: 16 << 20,
            ahead_bytes: 12 << 20,
            all_ahead_bytes: 256 << 20,
            idle_bytes: 64 << 20,
            read_only: false,
        }
    }
}

/// A directory that is served.
pub struct Directory {
    confined: Confined,
    gate: Gate,
    buffers: Arc<Buffers>,
    options: DirectoryOptions,
    instance: u64,
}

/// A file of it that is open.
pub struct OpenFile {
    file: File,
    holder: Holder,
    /// Whether the kernel's cache is passed by.
    is_direct: bool,
    alignment: u64,
    identity: u64,
}

/// What was read of one.
pub struct FileBlock {
    lent: Lent,
    facts: Facts,
    version: Version,
}

/// Changes with the file. (Times are fine enough since Linux 6.13, which makes them so where somebody has looked.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Block for FileBlock {
    fn slices(&self) -> Vec<&[u8]> {
        vec![self.lent.bytes()]
    }

    fn facts(&self) -> Facts {
        self.facts
    }
}

/// Who a server is, and what it needs of its surroundings.
pub struct Surroundings {
    /// Its name, which tickets have.
    pub identity: DriveId,
    /// Its own secret, the same after each start: tickets are made with it.
    pub secret: SecretKey,
    /// The time.
    pub clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    /// Drawn for this start.
    pub random: [u64; 3],
}

impl Directory {
    /// Serves what is in a directory.
    ///
    /// # Errors
    ///
    /// If it can't be opened.
    pub fn new(
        path: &Path,
        surroundings: Surroundings,
        options: DirectoryOptions,
    ) -> io::Result<Directory> {
        let Surroundings { identity, secret, clock, random: [instance, random @ ..] } =
            surroundings;
        Ok(Directory {
            confined: Confined::new(path)?,
            gate: Gate::new((identity, &secret), options.minimum_protection, clock, random),
            buffers: Buffers::new(options.all_ahead_bytes, options.idle_bytes),
            options,
            instance,
        })
    }

    /// A ticket for a path, for whoever may have it: that is for the caller to know.
    pub fn ticket(&self, path: &[u8], rights: Rights, expires: Timestamp) -> Ticket {
        let named = Named { identity: None, path: path.to_vec() };
        self.gate.mint(&named.to_bytes(), rights, expires)
    }

    /// A ticket for one file, as long as it has that path: not for another that comes to have it.
    pub(crate) fn ticket_of(
        &self,
        (path, identity): (Vec<u8>, FileIdentity),
        rights: Rights,
        expires: Timestamp,
    ) -> Ticket {
        let named = Named { identity: Some(identity), path };
        self.gate.mint(&named.to_bytes(), rights, expires)
    }

    /// The server's clock, by which tickets expire.
    pub fn now(&self) -> Timestamp {
        self.gate.now()
    }

    /// Whether nothing can be changed.
    pub fn is_read_only(&self) -> bool {
        self.options.read_only
    }

    pub(crate) fn confined(&self) -> &Confined {
        &self.confined
    }

    /// Opens the file that a place names.
    fn open_named(&self, named: &[u8], options: Options) -> Result<(File, bool), Status> {
        let Named { identity, path } = Named::from_bytes(named).ok_or(Status::NoSuchObject)?;
        if self.options.read_only && options.contains(Options::WRITE) {
            return Err(Status::ReadOnly);
        }
        let (file, is_direct) = self.open_file(&path, options)?;
        if let Some(identity) = identity {
            let found = FileIdentity::of(&file).map_err(|error| status_of(&error))?;
            if found != identity {
                return Err(Status::NoSuchObject);
            }
        }
        Ok((file, is_direct))
    }

    /// Opens a file past the kernel's cache, where the file system can do that.
    fn open_file(&self, path: &[u8], options: Options) -> Result<(File, bool), Status> {
        let flags = match options.contains(Options::WRITE) {
            true => OFlags::RDWR,
            false => OFlags::RDONLY,
        };
        let open = |flags| self.confined.open(path, flags, Mode::empty());
        let (fd, is_direct): (OwnedFd, bool) = match open(flags | OFlags::DIRECT) {
            Ok(fd) => (fd, true),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                (open(flags).map_err(|error| status_of(&error))?, false)
            }
            Err(error) => return Err(status_of(&error)),
        };
        let file = File::from(fd);
        match file.metadata() {
            Ok(metadata) if metadata.is_file() => Ok((file, is_direct)),
            Ok(_) => Err(Status::NotPermitted),
            Err(error) => Err(status_of(&error)),
        }
    }

    /// Reads a range into memory that is at least as long, and looks how the file is before: what was read is that, or newer.
    fn read_into(
        &self,
        file: &OpenFile,
        range: ByteRange,
        mut lent: Lent,
    ) -> Result<FileBlock, Status> {
        for _ in 0..MOST_LOOKS {
            let (facts, version) = file.look()?;
            let filled = self.fill(file, range, &mut lent)?;
            let is_short = (filled as u64) < range.length;
            // The file may have become shorter since.
            if !is_short || range.offset + filled as u64 >= facts.size {
                lent.length = filled;
                return Ok(FileBlock { lent, facts, version });
            }
        }
        Err(Status::Busy)
    }

    /// Reads up to the end of the file; how many bytes.
    fn fill(&self, file: &OpenFile, range: ByteRange, lent: &mut Lent) -> Result<usize, Status> {
        let length = range.length as usize;
        let mut filled = 0;
        while filled < length {
            let into = &mut lent.whole()[filled..length];
            match file.file.read_at(into, range.offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(status_of(&error)),
            }
            // What ends within a sector is the end of the file.
            if file.is_direct && !(filled as u64).is_multiple_of(file.alignment) {
                break;
            }
        }
        Ok(filled)
    }
}

impl OpenFile {
    fn look(&self) -> Result<(Facts, Version), Status> {
        let told = self.file.metadata().map_err(|error| status_of(&error))?;
        let nanoseconds = told.mtime().saturating_mul(1_000_000_000) + told.mtime_nsec();
        let time = Timestamp(u64::try_from(nanoseconds).unwrap_or(0));
        let facts = Facts { size: told.size(), time, alignment: self.alignment };
        let version = Version {
            size: told.size(),
            modified: (told.mtime(), told.mtime_nsec()),
            changed: (told.ctime(), told.ctime_nsec()),
        };
        Ok((facts, version))
    }

    /// Takes the set-user-ID and set-group-ID bits away before contents change, as the kernel does where a writer is not
    /// root: this server may be, and whom it writes for is not.
    fn disarm(&self) -> Result<(), Status> {
        let mode = self.file.metadata().map_err(|error| status_of(&error))?.mode();
        let group_bit = if mode & 0o010 != 0 { 0o2000 } else { 0 };
        let armed = mode & (0o4000 | group_bit);
        if armed == 0 {
            return Ok(());
        }
        let mode = Mode::from_raw_mode(mode & 0o7777 & !armed);
        rustix::fs::fchmod(&self.file, mode).map_err(|error| status_of(&error.into()))
    }

    /// Whether a transfer can be made past the kernel's cache.
    fn check(&self, range: ByteRange) -> Result<(), Status> {
        let is_whole = |bytes: u64| bytes.is_multiple_of(self.alignment);
        match is_whole(range.offset) && is_whole(range.length) {
            true => Ok(()),
            false => Err(Status::BadArgument),
        }
    }
}

impl Backend for Directory {
    type File = OpenFile;
    type Grant = ();
    type Block = FileBlock;
    type Room = Lent;

    fn traits(&self) -> Traits {
        let DirectoryOptions { most, ahead_bytes, .. } = self.options;
        Traits { instance: self.instance, most, ahead_bytes }
    }

    fn open(
        &self,
        request: &Request<'_>,
        open: &Open<'_>,
    ) -> Result<(Permit<()>, Result<OpenFile, Status>), Refused> {
        let (holder, path) = self.gate.holder(request, open)?;
        let permit = self.gate.permit(&holder, request)?;
        let options = Options::from_bits_retain(permit.fields.options);
        let opened = path.ok_or(Status::NoSuchObject);
        let opened = opened.and_then(|named| self.open_named(&named, options));
        let opened = opened.and_then(|(file, is_direct)| {
            let alignment = if is_direct { alignment_of(&file) } else { 1 };
            let identity = FileIdentity::of(&file).map_err(|error| status_of(&error))?.as_number();
            Ok(OpenFile { file, holder, is_direct, alignment, identity })
        });
        Ok((permit, opened))
    }

    fn permit(&self, file: &OpenFile, request: &Request<'_>) -> Result<Permit<()>, Refused> {
        self.gate.permit(&file.holder, request)
    }

    fn permit_again(
        &self,
        file: &OpenFile,
        permit: &Permit<()>,
        request: &Request<'_>,
    ) -> Result<(), Refused> {
        let said = (request.packet, &permit.fields);
        self.gate.permit_again(&file.holder, request.packet.kind, said)
    }

    fn nonce(&self) -> Nonce {
        self.gate.nonce()
    }

    fn note(&self, _permit: &Permit<()>, _outcome: Result<u64, Status>) {}

    fn stat(&self, file: &OpenFile) -> Result<Facts, Status> {
        file.look().map(|(facts, _)| facts)
    }

    fn identity(&self, file: &OpenFile) -> u64 {
        file.identity
    }

    fn resize(&self, file: &OpenFile, _grant: &(), size: u64) -> Result<Facts, Status> {
        file.disarm()?;
        file.file.set_len(size).map_err(|error| status_of(&error))?;
        self.stat(file)
    }

    fn read(&self, file: &OpenFile, range: ByteRange) -> Result<FileBlock, Status> {
        file.check(range)?;
        self.read_into(file, range, self.buffers.lend(range.length as usize))
    }

    fn ahead(&self, file: &OpenFile, range: ByteRange) -> Option<FileBlock> {
        // What is left of a file is no multiple of anything.
        let whole = ByteRange::new(range.offset, range.length.next_multiple_of(file.alignment));
        file.check(whole).ok()?;
        let lent = self.buffers.lend_ahead(whole.length as usize)?;
        let mut block = self.read_into(file, whole, lent).ok()?;
        block.lent.length = block.lent.length.min(range.length as usize);
        Some(block)
    }

    fn is_current(&self, file: &OpenFile, block: &FileBlock) -> bool {
        file.look().is_ok_and(|(_, version)| version == block.version)
    }

    fn room(&self, file: &OpenFile, range: ByteRange) -> Result<Lent, Status> {
        file.check(range)?;
        Ok(self.buffers.lend(range.length as usize))
    }

    fn write(
        &self,
        file: &OpenFile,
        _grant: &(),
        range: ByteRange,
        (room, durable): (Lent, bool),
    ) -> Result<Facts, Status> {
        file.disarm()?;
        let written = file.file.write_all_at(room.bytes(), range.offset);
        written.map_err(|error| status_of(&error))?;
        match durable {
            true => self.sync(file, &()),
            false => self.stat(file),
        }
    }

    fn sync(&self, file: &OpenFile, _grant: &()) -> Result<Facts, Status> {
        file.file.sync_data().map_err(|error| status_of(&error))?;
        self.stat(file)
    }
}

/// Bytes of which offsets and lengths of direct transfers must be multiples, as the file system tells.
fn alignment_of(file: &File) -> u64 {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let told = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let told = told.ok().filter(|told| told.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    let bytes = told.map(|told| told.stx_dio_offset_align.max(told.stx_dio_mem_align));
    bytes.filter(|bytes| *bytes > 0).map_or(CAUTIOUS_ALIGNMENT, u64::from)
}

/// What an error of the file system is to a client.
fn status_of(error: &io::Error) -> Status {
    use rustix::io::Errno;
    match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::NOTDIR) => Status::NoSuchObject,
        Some(Errno::NOSPC | Errno::DQUOT) => Status::NoSpace,
        Some(Errno::FBIG) => Status::TooLarge,
        Some(Errno::ROFS) => Status::ReadOnly,
        Some(Errno::INVAL | Errno::NAMETOOLONG) => Status::BadArgument,
        Some(Errno::ACCESS | Errno::PERM | Errno::ISDIR | Errno::LOOP | Errno::XDEV) => {
            Status::NotPermitted
        }
        Some(Errno::IO) => Status::MediumError,
        // A name with a zero byte.
        None if error.kind() == io::ErrorKind::InvalidInput => Status::BadArgument,
        _ => Status::DriveFault,
    }
}
