//! An open file whose transfers are waited for.

use std::sync::{Mutex, MutexGuard, PoisonError};

use nasd_protocol::bulk::{Fields, Kind};

use super::connection::Told;
use super::part::{Part, Tally};
use super::queue::Seat;
use super::{BulkError, Opening, Queue};

/// Sessions that are kept while nobody uses them.
const IDLE_SEATS: usize = 4;

/// A file that is open at a server. Any number of threads may use it: each has a connection for the time of its transfer.
pub struct BulkFile {
    opening: Opening,
    told: Told,
    /// Bytes of the blocks in which it is read; 0 if that does not matter.
    block: u64,
    state: Mutex<State>,
    /// Held by who makes durable what was written, so that nobody is told sooner that it is.
    syncing: Mutex<()>,
}

#[derive(Default)]
struct State {
    idle: Vec<Seat>,
    data: Written,
    length: Written,
}

/// Data that were written, or a length that was set.
#[derive(Clone, Copy, Default)]
struct Written {
    /// As which instance the server ran when that was done since the last sync, if it is not known to be durable.
    to: Option<u64>,
    /// It was done to several. Which of them was the first is not known, as it is noted when a whole transfer is over.
    differs: bool,
    /// It may be lost. Who did it is not known here, so all are told until the like is done again.
    is_lost: bool,
}

impl Written {
    fn note(&mut self, instance: u64) {
        self.add(instance);
        self.is_lost = false;
    }

    fn add(&mut self, instance: u64) {
        self.differs |= *self.to.get_or_insert(instance) != instance;
    }

    /// What a sync is about.
    fn take(&mut self) -> Written {
        std::mem::replace(self, Written { is_lost: self.is_lost, ..Written::default() })
    }

    /// A sync was answered by this instance: what was written to another may be lost.
    fn settle(&mut self, before: Written, instance: u64) {
        self.is_lost |= before.differs || before.to.is_some_and(|to| to != instance);
    }

    /// A sync has failed: it is as it was before.
    fn put_back(&mut self, before: Written) {
        if let Some(instance) = before.to {
            self.add(instance);
        }
        self.differs |= before.differs;
    }
}

impl BulkFile {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// [`BulkError`].
    pub fn open(mut opening: Opening) -> Result<BulkFile, BulkError> {
        let (told, seat) = {
            let mut queue = Queue::<Vec<u8>>::new(&opening);
            (queue.told()?, queue.take_seat())
        };
        let state = Mutex::new(State { idle: vec![seat], ..State::default() });
        // Who reads beside the first, or after a connection was lost, hardly does so from the beginning on.
        let block = std::mem::take(&mut opening.block);
        Ok(BulkFile { opening, told, block, state, syncing: Mutex::new(()) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic is done with it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file's length in bytes when it was opened.
    pub fn size_at_open(&self) -> u64 {
        self.told.size
    }

    /// By which number the server knows the file.
    pub fn identity(&self) -> u64 {
        self.told.identity
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
        self.queue_in(self.seat())
    }

    /// One that nobody uses.
    pub(super) fn seat(&self) -> Seat {
        self.lock().idle.pop().unwrap_or_else(Seat::new)
    }

    /// Reads at an offset. Fewer bytes than there is room for are read only at the end of the file.
    ///
    /// # Errors
    ///
    /// [`BulkError`]; what is in `into` then is of no use.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, BulkError> {
        self.check(offset, into.len())?;
        self.transfer(offset, into.chunks_mut(self.read_bytes()).map(Part::Into))
    }

    /// Writes all of it at an offset.
    ///
    /// # Errors
    ///
    /// [`BulkError`]; any part of it may be written then.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<(), BulkError> {
        self.check(offset, data.len())?;
        self.transfer(offset, data.chunks(self.most_bytes()).map(Part::From)).map(drop)
    }

    /// Makes durable what was written. Where it was durable when it was answered, nothing is asked.
    ///
    /// # Errors
    ///
    /// [`BulkError::MayBeLost`] if the server has started anew since something was written that was not, or a length set. As many
    /// may use the file, this is told again until data are written again, or the length is set again, whichever it was. Whoever
    /// writes by several threads lets all of them end before he writes it again.
    pub fn sync(&self) -> Result<(), BulkError> {
        self.sync_as(false)
    }

    /// Makes durable what was written, by whomever.
    ///
    /// # Errors
    ///
    /// As [`BulkFile::sync`].
    pub fn sync_all(&self) -> Result<(), BulkError> {
        self.sync_as(true)
    }

    fn sync_as(&self, asks_always: bool) -> Result<(), BulkError> {
        let _turn = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = || Err(BulkError::MayBeLost { server: self.opening.address.clone() });
        let mut state = self.lock();
        if state.data.is_lost || state.length.is_lost {
            return lost();
        }
        let (data, length) = (state.data.take(), state.length.take());
        drop(state);
        if data.to.is_none() && length.to.is_none() && !asks_always {
            return Ok(());
        }
        let told = self.ask(Kind::Sync, &Fields::default());
        let mut state = self.lock();
        match told {
            Ok(Fields { instance, .. }) => {
                state.data.settle(data, instance);
                state.length.settle(length, instance);
                if state.data.is_lost || state.length.is_lost { lost() } else { Ok(()) }
            }
            Err(error) => {
                state.data.put_back(data);
                state.length.put_back(length);
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
        Ok(self.ask(Kind::Stat, &Fields::default())?.size)
    }

    /// Sets the file's length.
    ///
    /// # Errors
    ///
    /// [`BulkError`].
    pub fn set_size(&self, size: u64) -> Result<(), BulkError> {
        let fields = Fields { length: size, ..Fields::default() };
        let told = self.ask(Kind::Resize, &fields)?;
        if !self.opening.durable {
            self.lock().length.note(told.instance);
        }
        Ok(())
    }

    /// Whether a transfer is as the server wants it.
    pub(super) fn check(&self, offset: u64, length: usize) -> Result<(), BulkError> {
        let (alignment, length) = (self.told.alignment, length as u64);
        let is_whole = offset.is_multiple_of(alignment) && length.is_multiple_of(alignment);
        match is_whole {
            true => Ok(()),
            false => Err(BulkError::Unaligned { offset, length, alignment }),
        }
    }

    /// Most bytes of one transfer.
    pub(super) fn most_bytes(&self) -> usize {
        self.whole(self.told.most)
    }

    /// Bytes of the reads that a longer one is made of.
    pub(super) fn read_bytes(&self) -> usize {
        match self.block {
            0 => self.most_bytes(),
            block => self.whole(block.min(self.told.most)),
        }
    }

    /// So many bytes, or less, as the server wants them.
    fn whole(&self, bytes: u64) -> usize {
        let alignment = self.told.alignment;
        let whole = (bytes / alignment * alignment).max(alignment);
        usize::try_from(whole).unwrap_or(usize::MAX)
    }

    /// A queue in a seat.
    pub(super) fn queue_in<B: AsRef<[u8]> + AsMut<[u8]>>(&self, seat: Seat) -> Queue<'_, B> {
        Queue::with(&self.opening, self.told, seat)
    }

    /// Takes the seat from a queue, and notes what was written.
    pub(super) fn leave<B: AsRef<[u8]> + AsMut<[u8]>>(&self, mut queue: Queue<'_, B>) -> Seat {
        if let Some(instance) = queue.written_to() {
            self.lock().data.note(instance);
        }
        queue.take_seat()
    }

    /// Keeps a seat for others.
    pub(super) fn give_back(&self, seat: Seat) {
        let mut state = self.lock();
        if state.idle.len() < IDLE_SEATS {
            state.idle.push(seat);
        }
    }

    /// Asks for something besides data.
    fn ask(&self, kind: Kind, fields: &Fields) -> Result<Fields, BulkError> {
        let mut queue = self.queue::<Vec<u8>>();
        let told = queue.ask(kind, fields);
        self.give_back(self.leave(queue));
        told
    }

    /// Transfers all parts, the first of which is at an offset, and waits for them.
    fn transfer<'d>(
        &self,
        offset: u64,
        parts: impl Iterator<Item = Part<'d>>,
    ) -> Result<usize, BulkError> {
        let (mut queue, mut at, mut tally) = (self.queue(), offset, Tally::default());
        for part in parts {
            let length = part.length();
            tally.begin(&mut queue, at, part);
            at += length as u64;
        }
        tally.end(&mut queue);
        self.give_back(self.leave(queue));
        tally.into_length_from(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_to_an_instance_before_is_lost_in_whatever_order_that_is_noted() {
        let lost = |notes: &[u64], synced: u64| {
            let mut written = Written::default();
            notes.iter().for_each(|instance| written.note(*instance));
            let before = written.take();
            written.settle(before, synced);
            written.is_lost
        };
        assert!(!lost(&[], 2) && !lost(&[2], 2) && !lost(&[2, 2], 2));
        assert!(lost(&[1], 2) && lost(&[1, 2], 2) && lost(&[2, 1], 2));
    }

    #[test]
    fn a_sync_that_fails_takes_nothing() {
        let mut written = Written::default();
        written.note(1);
        let before = written.take();
        assert_eq!(written.to, None);
        // Meanwhile the server has started anew.
        written.note(2);
        written.put_back(before);
        let before = written.take();
        written.settle(before, 2);
        assert!(written.is_lost);
        // It stays so until the like is done again.
        assert!(written.take().is_lost && written.is_lost);
        written.note(2);
        assert!(!written.is_lost);
    }
}
