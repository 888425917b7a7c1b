//! Hints: programs that know what they will read tell it, and it is there when they do (CMU-CS-97-118 section 4.6).
//!
//! A stream of hints ([`Hints`]) has a thread ([`ahead`]) that has what comes next looked up and fetched to this host, a little
//! ahead of whoever reads; whoever has fetched something goes on with the next.
//! Where fetching takes long, it has the drives told of what comes behind that, so that they read in the
//! order that suits them. What is next is the [`stream`]'s to say, how far that goes the [`sequence`]'s, and who has
//! heard of it the [`listeners`]'; what was fetched is
//! kept by each file (`hinted`), and reads of any open of the file find it there. All streams share the [`room`] of a clerk.

mod ahead;
mod listeners;
mod room;
mod sequence;
mod stream;

use std::sync::Arc;

use nasd_types::{ByteRange, DriveId};

use crate::ClerkError;
use crate::clerk::Clerk;
use crate::file::FileState;
use crate::grants::Slot;
use crate::hinted::PieceId;
use crate::open_file::OpenFile;
use crate::wire::{Caller, FileHandle};
pub(crate) use room::Room;
use sequence::{Batch, Progress};
pub(crate) use stream::HintStream;

/// A file of which something will be read.
pub(crate) struct HintedFile {
    state: Arc<FileState>,
    slot: Arc<Slot>,
}

/// The files that are the same are one.
#[derive(Clone)]
struct FileOf(Arc<HintedFile>);

impl PartialEq for FileOf {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0.state, &other.0.state) && Arc::ptr_eq(&self.0.slot, &other.0.slot)
    }
}

/// What will be read, where that is not known as a part of an open file.
enum Target {
    Open(FileOf, ByteRange),
    Path(Place),
}

/// A piece that is to be fetched.
type Wanted = (ByteRange, PieceId);

/// A path from a directory, and which part of the file there; all of it if none is told.
type Place = (FileHandle, Vec<u8>, Option<ByteRange>);

/// What drives are told.
#[derive(Clone)]
struct Told {
    hints: Batch<FileOf>,
    /// The place of the hints among the calls.
    ordinal: u64,
    /// Whether the hints will be read; if not, they only say whom to tell the rest.
    is_hint: bool,
    /// How far the stream is.
    progress: Progress,
    /// What became of it since the drive was last told that.
    news: Progress,
}

/// What has become of that.
enum Answer {
    /// These have heard it: the drive, or some of those behind it; and whether they have taken all of it.
    Heard { by: Vec<DriveId>, is_taken: bool },
    /// It takes no hints.
    Deaf,
    /// None has come, or not of all: some may have heard it.
    Lost,
}

impl Told {
    /// To be told when its turn has come, how far the stream is then.
    fn new(hints: Batch<FileOf>, ordinal: u64, is_hint: bool) -> Told {
        let (progress, news) = (Progress::default(), Progress::default());
        Told { hints, ordinal, is_hint, progress, news }
    }

    /// Which drive, maybe a virtual one.
    fn drive(&self) -> DriveId {
        self.hints.file.0.state.handle.drive
    }
}

/// What is fetched by one request.
struct Fetch {
    batch: Batch<FileOf>,
    /// What of it is not there or on its way.
    wanted: Vec<Wanted>,
}

/// What a stream's thread does next.
enum Work {
    /// To be looked up, one after the other; what is found has that number.
    Find(Vec<(u64, Place)>),
    Fetch(Fetch),
    Tell(Told),
}

/// A stream of hints: what one or several programs will read, in this order. It is over when it is dropped.
pub struct Hints {
    stream: Arc<HintStream>,
}

impl Clerk {
    /// Begins a stream of hints of what will be read on behalf of a caller.
    ///
    /// # Errors
    ///
    /// `TooManyOwnStreams` and `TooManyStreams` while there are as many as can be, those included that are about to end; and if
    /// the system has no thread for it.
    pub fn hints(self: &Arc<Self>, caller: &Arc<Caller>) -> Result<Hints, ClerkError> {
        let core = self.core();
        let stream = Arc::new(HintStream::new(core.new_stream(), &core.hints));
        let member = core.hints.enter(caller.uid, &stream)?;
        let (clerk, caller, conducted) =
            (Arc::clone(self), Arc::clone(caller), Arc::clone(&stream));
        let conduct = move || {
            ahead::conduct(&clerk, &caller, &conducted);
            drop(member);
        };
        let thread = std::thread::Builder::new().name("nasd-hints".to_owned()).spawn(conduct);
        thread.map_err(|error| ClerkError::Unreachable(format!("no thread for hints: {error}")))?;
        Ok(Hints { stream })
    }
}

impl Hints {
    /// Parts of an open file will be read, in this order and after all that was told before.
    ///
    /// # Errors
    ///
    /// `NotOpenForThis`; `TooMany` while as many hints are known as can be: tell it again later.
    pub fn add(&self, file: &OpenFile, ranges: &[ByteRange]) -> Result<(), ClerkError> {
        let (state, slot) = file.to_be_read()?;
        state.lock().watch(&self.stream);
        let file = FileOf(Arc::new(HintedFile { state, slot }));
        self.stream.add(ranges.iter().map(|range| Target::Open(file.clone(), *range)), 0)
    }

    /// A part of the file at a path from a directory, or all of it, will be read after all that was told before. A file that
    /// is not there, or may not be read, is left out.
    ///
    /// # Errors
    ///
    /// `TooMany` while as many hints are known as can be: tell it again later.
    pub fn add_path(
        &self,
        directory: FileHandle,
        path: &[u8],
        range: Option<ByteRange>,
    ) -> Result<(), ClerkError> {
        let place = (directory, path.to_vec(), range);
        self.stream.add(std::iter::once(Target::Path(place)), path.len())
    }

    /// Hints that are known and not over.
    pub fn left(&self) -> usize {
        self.stream.left()
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        self.stream.end();
    }
}
