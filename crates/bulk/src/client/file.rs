//! An open file whose transfers are waited for.

use std::sync::{Mutex, MutexGuard, PoisonError};

use nasd_protocol::bulk::{Fields, Kind};

use super::connection::Told;
use super::queue::Seat;
use super::{BulkError, Completed, Opening, Queue};

/// Sessions that are kept while nobody uses them.
const IDLE_SEATS: usize = 4;

/// Parts of one long transfer that are under way at a time.
const PARTS: usize = 4;

/// A file that is open at a server. Any number of threads may use it: each has a connection for the time of its transfer.
pub struct BulkFile {
    opening: Opening,
    told: Told,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    idle: Vec<Seat>,
    /// Something was written since the last sync, while the server ran as this instance.
    written_to: Option<u64>,
}

impl BulkFile {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// [`BulkError`].
    pub fn open(opening: Opening) -> Result<BulkFile, BulkError> {
        let (told, seat) = {
            let mut queue = Queue::<Vec<u8>>::new(&opening);
            (queue.told()?, queue.into_seat())
        };
        let state = State { idle: vec![seat], written_to: None };
        Ok(BulkFile { opening, told, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic is done with it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file's length in bytes when it was opened.
    pub fn size_at_open(&self) -> u64 {
        self.told.size
    }

    /// Bytes of which offsets and lengths of transfers must be multiples.
    pub fn alignment(&self) -> u64 {
        self.told.alignment
    }

    /// Most bytes of one transfer in a [`Queue`].
    pub fn most(&self) -> u64 {
        self.told.most
    }

    /// A queue of transfers, with a connection of its own.
    pub fn queue<B: AsRef<[u8]> + AsMut<[u8]>>(&self) -> Queue<'_, B> {
        Queue::with(&self.opening, self.told, self.seat())
    }

    /// One that nobody uses.
    fn seat(&self) -> Seat {
        self.lock().idle.pop().unwrap_or_else(Seat::new)
    }

    /// Reads at an offset. Fewer bytes than there is room for are read only at the end of the file.
    ///
    /// # Errors
    ///
    /// [`BulkError`]; what is in `into` then is of no use.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, BulkError> {
        self.check(offset, into.len())?;
        self.with_queue(|queue| {
            let parts = into.chunks_mut(self.part_bytes()).map(Part::Into);
            transfer(queue, offset, parts, Kind::Read)
        })
    }

    /// Writes all of it at an offset.
    ///
    /// # Errors
    ///
    /// [`BulkError`]; any part of it may be written then.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<(), BulkError> {
        self.check(offset, data.len())?;
        let written = self.with_queue(|queue| {
            let parts = data.chunks(self.part_bytes()).map(Part::From);
            transfer(queue, offset, parts, Kind::Write)
        });
        written.map(drop)
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    ///
    /// [`BulkError::MayBeLost`] if the server has started anew since something was written that was not.
    pub fn sync(&self) -> Result<(), BulkError> {
        let Some(instance) = self.lock().written_to.take() else {
            return Ok(());
        };
        let told = self.with_queue(|queue| queue.ask(Kind::Sync, &Fields::default()));
        match told {
            Ok(fields) if fields.instance == instance => Ok(()),
            Ok(_) => Err(BulkError::MayBeLost { server: self.opening.address.clone() }),
            Err(error) => {
                self.lock().written_to.get_or_insert(instance);
                Err(error)
            }
        }
    }

    /// The file's length in bytes.
    ///
    /// # Errors
    ///
    /// [`BulkError`].
    pub fn size(&self) -> Result<u64, BulkError> {
        Ok(self.with_queue(|queue| queue.ask(Kind::Stat, &Fields::default()))?.size)
    }

    /// Sets the file's length.
    ///
    /// # Errors
    ///
    /// [`BulkError`].
    pub fn set_size(&self, size: u64) -> Result<(), BulkError> {
        let fields = Fields { length: size, ..Fields::default() };
        let told = self.with_queue(|queue| queue.ask(Kind::Resize, &fields))?;
        self.lock().written_to.get_or_insert(told.instance);
        Ok(())
    }

    fn check(&self, offset: u64, length: usize) -> Result<(), BulkError> {
        let (alignment, length) = (self.told.alignment, length as u64);
        let is_whole = offset.is_multiple_of(alignment) && length.is_multiple_of(alignment);
        match is_whole {
            true => Ok(()),
            false => Err(BulkError::Unaligned { offset, length, alignment }),
        }
    }

    /// How long the parts of a transfer are that is longer than one may be.
    fn part_bytes(&self) -> usize {
        let most = self.told.most / self.told.alignment * self.told.alignment;
        usize::try_from(most.max(self.told.alignment)).unwrap_or(usize::MAX)
    }

    /// Keeps the connection for others, and in mind that something was written.
    fn with_queue<'d, T>(
        &self,
        run: impl FnOnce(&mut Queue<'_, Part<'d>>) -> Result<T, BulkError>,
    ) -> Result<T, BulkError> {
        let mut queue = Queue::with(&self.opening, self.told, self.seat());
        let outcome = run(&mut queue);
        let written_to = queue.written_to();
        let seat = queue.into_seat();
        let mut state = self.lock();
        state.written_to = state.written_to.or(written_to);
        if state.idle.len() < IDLE_SEATS {
            state.idle.push(seat);
        }
        drop(state);
        outcome
    }
}

/// A part of what is read into, or written from.
enum Part<'a> {
    Into(&'a mut [u8]),
    From(&'a [u8]),
}

impl AsRef<[u8]> for Part<'_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Part::Into(bytes) => bytes,
            Part::From(bytes) => bytes,
        }
    }
}

impl AsMut<[u8]> for Part<'_> {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Part::Into(bytes) => bytes,
            // Nobody reads into what is written from.
            Part::From(_) => &mut [],
        }
    }
}

/// Transfers all parts, the first of which is at an offset; how many bytes that were.
fn transfer<'d>(
    queue: &mut Queue<'_, Part<'d>>,
    offset: u64,
    parts: impl Iterator<Item = Part<'d>>,
    kind: Kind,
) -> Result<usize, BulkError> {
    let (mut at, mut total, mut outcome) = (offset, 0, Ok(()));
    let mut take =
        |completed: Completed<Part<'d>>, outcome: &mut Result<(), BulkError>| match completed
            .outcome
        {
            Ok(length) => total += length,
            Err(error) if outcome.is_ok() => *outcome = Err(error),
            Err(_) => {}
        };
    for part in parts {
        let length = part.as_ref().len() as u64;
        match kind {
            Kind::Write => queue.write(at, part),
            _ => queue.read(at, part),
        }
        at += length;
        if queue.under_way() >= PARTS
            && let Some(completed) = queue.wait()
        {
            take(completed, &mut outcome);
        }
    }
    while let Some(completed) = queue.wait() {
        take(completed, &mut outcome);
    }
    outcome.map(|()| total)
}
