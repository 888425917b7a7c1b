//! Files of a cell, as programs have them open.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use nasd_cell::session::{COMMAND_DEADLINE, Connected, connect};
use nasd_cell::{Cell, CellPath, cell_directory};
use nasd_clerk::{
    ClerkError, ManagerStatus, Name, OpenFile, OpenMode, SetFileAttributes, Settings,
};
use nasd_filter::{FieldKind, Fixed, Format, MAX_BYTES};

use crate::answers::Answers;
use crate::error::SmasError;
use crate::filter::{self, Filter};

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    mode: OpenMode,
    /// The mode of a file that is made if there is none.
    create: Option<u32>,
    exclusive: bool,
    truncate: bool,
    appends: bool,
}

/// A field of the records of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field(FieldKind);

/// A file that is open: a position in it as in others, and, once a filter was chosen, the records that it gives.
pub struct SmasFile {
    // Fields are dropped in this order: what works on the file, the file, the session that it belongs to.
    answers: Option<Answers>,
    file: Arc<OpenFile>,
    _session: Arc<Connected>,
    path: String,
    position: u64,
    /// Writes go to the end, wherever the position is.
    appends: bool,
    /// Something was appended, which gets its place later. The position is the end of the file then, which is behind what others
    /// have appended meanwhile.
    is_behind_append: bool,
    /// Something was written that may not be durable.
    is_written: bool,
    format: Option<Format>,
}

impl Access {
    /// For reading.
    pub const READ: Access = Access {
        mode: OpenMode::READ,
        create: None,
        exclusive: false,
        truncate: false,
        appends: false,
    };
    /// For writing.
    pub const WRITE: Access = Access { mode: OpenMode::WRITE, ..Access::READ };
    /// For both.
    pub const READ_WRITE: Access = Access { mode: OpenMode::READ_WRITE, ..Access::READ };

    /// The same, for a file that is made with this mode if there is none; only for one that there is not, if `exclusive`.
    #[must_use]
    pub fn creating(self, mode: u32, exclusive: bool) -> Access {
        Access { create: Some(mode), exclusive, ..self }
    }

    /// The same, for a file to whose end all writes go.
    #[must_use]
    pub fn appending(self) -> Access {
        Access { appends: true, ..self }
    }

    /// The same, for a file that is empty then.
    #[must_use]
    pub fn truncating(self) -> Access {
        Access { truncate: true, ..self }
    }
}

impl Field {
    /// A signed integer of 1, 2, 4 or 8 bytes, in this machine's order.
    ///
    /// # Errors
    ///
    /// `Argument` for other sizes.
    pub fn int(bytes: u8) -> Result<Field, SmasError> {
        Field::integer(bytes, true)
    }

    /// The same, never negative.
    ///
    /// # Errors
    ///
    /// As [`Field::int`].
    pub fn unsigned(bytes: u8) -> Result<Field, SmasError> {
        Field::integer(bytes, false)
    }

    fn integer(bytes: u8, signed: bool) -> Result<Field, SmasError> {
        match bytes {
            1 | 2 | 4 | 8 => {
                Ok(Field(FieldKind::Integer { bytes, signed, big_endian: BIG_ENDIAN }))
            }
            _ => Err(SmasError::Argument(format!(
                "an integer of {bytes} bytes: it has 1, 2, 4 or 8"
            ))),
        }
    }

    /// A float of 4 or 8 bytes, in this machine's order.
    ///
    /// # Errors
    ///
    /// `Argument` for other sizes.
    pub fn float(bytes: u8) -> Result<Field, SmasError> {
        match bytes {
            4 | 8 => Ok(Field(FieldKind::Float { bytes, big_endian: BIG_ENDIAN })),
            _ => Err(SmasError::Argument(format!("a float of {bytes} bytes: it has 4 or 8"))),
        }
    }

    /// Text of so many bytes, which ends before the first zero byte.
    ///
    /// # Errors
    ///
    /// `Argument` for none.
    pub fn text(bytes: u32) -> Result<Field, SmasError> {
        match bytes {
            0 => Err(SmasError::Argument("a text of no bytes".to_owned())),
            _ => Ok(Field(FieldKind::Text { bytes })),
        }
    }

    /// Any kind.
    pub fn of(kind: FieldKind) -> Field {
        Field(kind)
    }
}

const BIG_ENDIAN: bool = cfg!(target_endian = "big");

/// By the cell's directory, and the volume.
type Sessions = BTreeMap<(PathBuf, String), Weak<Connected>>;

/// Sessions of this process, as long as files of theirs are open.
static SESSIONS: Mutex<Sessions> = Mutex::new(Sessions::new());

fn sessions() -> MutexGuard<'static, Sessions> {
    // Every change leaves it whole.
    SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session with the volume: the one that there is, or a new one. A cell that is away holds up nobody who wants another.
fn session(directory: &Path, volume: &str) -> Result<Arc<Connected>, SmasError> {
    let key = (directory.to_owned(), volume.to_owned());
    if let Some(known) = sessions().get(&key).and_then(Weak::upgrade) {
        return Ok(known);
    }
    let cell = Cell::open(directory).map_err(|error| SmasError::Cell(error.to_string()))?;
    let settings = Settings { deadline: COMMAND_DEADLINE, ..Settings::default() };
    let connected = connect(&cell, volume, settings);
    let connected = Arc::new(connected.map_err(|error| SmasError::Cell(error.to_string()))?);
    let mut sessions = sessions();
    sessions.retain(|_, session| session.strong_count() > 0);
    // Another thread may have been quicker.
    match sessions.get(&key).and_then(Weak::upgrade) {
        Some(known) => Ok(known),
        None => {
            sessions.insert(key, Arc::downgrade(&connected));
            Ok(connected)
        }
    }
}

impl SmasFile {
    /// Opens `VOLUME:/path` of the cell that `NASD_CELL` names, or of the user's own.
    ///
    /// # Errors
    ///
    /// `Path`; `Cell` where there is no such cell or volume, or it does not answer; `File` with the reason.
    pub fn open(path: &str, access: Access) -> Result<SmasFile, SmasError> {
        let named = std::env::var_os("NASD_CELL").filter(|named| !named.is_empty());
        SmasFile::open_in(&cell_directory(named.map(Into::into)), path, access)
    }

    /// The same of the cell with that directory.
    ///
    /// # Errors
    ///
    /// As [`SmasFile::open`].
    pub fn open_in(directory: &Path, path: &str, access: Access) -> Result<SmasFile, SmasError> {
        let parsed = CellPath::parse(path).ok_or_else(|| SmasError::Path(path.to_owned()))?;
        let session = session(directory, parsed.volume())?;
        let failed = |error| SmasError::File { path: path.to_owned(), error };
        let file = Arc::new(open(&session, &parsed, access).map_err(failed)?);
        let path = path.to_owned();
        Ok(SmasFile {
            answers: None,
            file,
            _session: session,
            path,
            position: 0,
            appends: access.appends,
            is_behind_append: false,
            is_written: false,
            format: None,
        })
    }

    /// Says that the file is a sequence of records with these fields, which queries call `f1`, `f2` and so on. Where that
    /// fails the file has no records any more, until it is said what they are.
    ///
    /// # Errors
    ///
    /// `Argument` where there are none, or they are too long together; `Parameters` where there are too many.
    pub fn record_struct(&mut self, fields: &[Field]) -> Result<(), SmasError> {
        self.forget_records();
        if fields.is_empty() {
            return Err(SmasError::Argument("a record without fields".to_owned()));
        }
        let field = |(at, field): (usize, &Field)| nasd_filter::Field {
            name: format!("f{}", at + 1),
            kind: field.0,
        };
        let fixed = Fixed { fields: fields.iter().enumerate().map(field).collect() };
        let bytes = fixed.record_bytes();
        if bytes > MAX_BYTES as usize {
            let told = format!("a record of {bytes} bytes: it has at most {MAX_BYTES}");
            return Err(SmasError::Argument(told));
        }
        let format = Format::Fixed(fixed);
        filter::all_records(&format).check()?;
        self.record_format(format);
        Ok(())
    }

    /// Says what the records are, in whatever format.
    pub fn record_format(&mut self, format: Format) {
        self.format = Some(format);
        self.answers = None;
    }

    /// Chooses a filter, which begins at once, over all of the file; what was left of another one is lost.
    ///
    /// # Errors
    ///
    /// `NoRecords`; `Argument`, `Parameters`, `Query` or `Pattern` for what has no meaning; `File`.
    pub fn use_filter(&mut self, filter: &Filter) -> Result<(), SmasError> {
        self.answers = None;
        let chosen = filter.choose(self.format.as_ref())?;
        self.answers = Some(Answers::start(Arc::clone(&self.file), chosen)?);
        Ok(())
    }

    /// The next record that the filter gives, or `None` after the last one.
    ///
    /// # Errors
    ///
    /// `NoFilter`; `File`, `Records` or `Lines` for what can't be had; the filter is over then.
    pub fn next_record(&mut self) -> Result<Option<&[u8]>, SmasError> {
        self.answers()?.next()
    }

    /// The same into the start of `into`: how many bytes it has.
    ///
    /// # Errors
    ///
    /// As [`SmasFile::next_record`]; `Room` for one that is longer than `into`, which is still the next one then.
    pub fn next_record_into(&mut self, into: &mut [u8]) -> Result<Option<usize>, SmasError> {
        self.answers()?.next_into(into, false)
    }

    /// Some of the next records at once, one behind the other, at least one of them; `None` after the last one. It spares
    /// a call, and a copy, for each.
    ///
    /// # Errors
    ///
    /// As [`SmasFile::next_record`]; `Argument` where records are not of one length, as lines and values are not.
    pub fn next_records(&mut self) -> Result<Option<&[u8]>, SmasError> {
        self.answers()?.next_some()
    }

    pub(crate) fn answers(&mut self) -> Result<&mut Answers, SmasError> {
        self.answers.as_mut().ok_or(SmasError::NoFilter)
    }

    /// Bytes of the file.
    ///
    /// # Errors
    ///
    /// `File` where what was appended is not waited for.
    pub fn size(&self) -> Result<u64, SmasError> {
        self.file.settled_size().map_err(|error| self.failed(error))
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    ///
    /// `File` with what did not come to the drives.
    pub fn sync(&mut self) -> Result<(), SmasError> {
        if self.is_written {
            self.file.sync().map_err(|error| self.failed(error))?;
            self.is_written = false;
        }
        Ok(())
    }

    /// Closes it. What was written is durable then; of a file that is only dropped nobody is told whether it is.
    ///
    /// # Errors
    ///
    /// As [`SmasFile::sync`].
    pub fn close(mut self) -> Result<(), SmasError> {
        self.end_filter();
        let synced = self.sync();
        // It was tried, and told.
        self.is_written = false;
        synced
    }

    /// Nobody knows what the records are any more: what is said next may be refused, and filters of the records before
    /// would give wrong ones then.
    pub(crate) fn forget_records(&mut self) {
        self.format = None;
        self.answers = None;
    }

    /// No filter is used any more.
    pub(crate) fn end_filter(&mut self) {
        self.answers = None;
    }

    /// What `Read` and `Write` have told.
    pub(crate) fn io_error(&self, error: io::Error) -> SmasError {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ClerkError>());
        match inner {
            Some(inner) => self.failed(inner.clone()),
            None => SmasError::Argument(error.to_string()),
        }
    }

    /// The position, once what was appended has its place.
    fn settle(&mut self) -> Result<u64, ClerkError> {
        if self.is_behind_append {
            self.position = self.file.settled_size()?;
            self.is_behind_append = false;
        }
        Ok(self.position)
    }

    fn failed(&self, error: ClerkError) -> SmasError {
        SmasError::File { path: self.path.clone(), error }
    }
}

/// Opens the file at a path: one that there is, or a new one.
fn open(session: &Connected, path: &CellPath, access: Access) -> Result<OpenFile, ClerkError> {
    let Connected { clerk, caller } = session;
    let resolved = match access {
        Access { create: Some(_), exclusive: true, .. } => None,
        _ => Some(clerk.resolve(caller, path.as_bytes(), true)),
    };
    let entry = match (resolved, access.create) {
        (None | Some(Err(ClerkError::Manager(ManagerStatus::NotFound))), Some(mode)) => {
            let (parent, name): (CellPath, Name) = path.split().ok_or(ClerkError::BadName)?;
            let parent = clerk.resolve(caller, parent.as_bytes(), true)?;
            clerk.create(caller, parent.handle, &name, mode, access.exclusive)?
        }
        (resolved, _) => resolved.unwrap_or(Err(ClerkError::BadName))?,
    };
    let (file, _) = clerk.open_known(caller, &entry, access.mode)?;
    if access.truncate {
        // Who may not open it leaves it as it is.
        let changes = SetFileAttributes { size: Some(0), ..SetFileAttributes::default() };
        clerk.setattr(caller, entry.handle, &changes)?;
    }
    Ok(file)
}

impl Read for SmasFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let position = self.settle().map_err(as_io)?;
        let read = self.file.read(position, into).map_err(as_io)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl Write for SmasFile {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.is_written = true;
        if self.appends {
            self.file.append(data).map_err(as_io)?;
            self.is_behind_append = true;
        } else {
            self.file.write(self.position, data).map_err(as_io)?;
            self.position += data.len() as u64;
        }
        Ok(data.len())
    }

    /// Makes all durable.
    fn flush(&mut self) -> io::Result<()> {
        self.file.sync().map_err(as_io)
    }
}

impl Drop for SmasFile {
    fn drop(&mut self) {
        if self.is_written {
            self.end_filter();
            // There is nobody to tell.
            let _ = self.file.sync();
        }
    }
}

impl Seek for SmasFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(by) => self.settle().map_err(as_io)?.checked_add_signed(by),
            SeekFrom::End(by) => self.file.settled_size().map_err(as_io)?.checked_add_signed(by),
        };
        // As those of the system, which are signed.
        let position = position.filter(|position| i64::try_from(*position).is_ok());
        let before = || io::Error::new(io::ErrorKind::InvalidInput, "there is no such position");
        self.position = position.ok_or_else(before)?;
        self.is_behind_append = false;
        Ok(self.position)
    }
}

fn as_io(error: ClerkError) -> io::Error {
    io::Error::new(io::Error::from_raw_os_error(error.errno()).kind(), error)
}

impl std::fmt::Debug for SmasFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SmasFile { path, position, .. } = self;
        f.debug_struct("SmasFile")
            .field("path", path)
            .field("position", position)
            .finish_non_exhaustive()
    }
}
