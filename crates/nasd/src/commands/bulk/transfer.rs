//! Parts of a file, moved side by side.

use super::parts::{PartHash, Parts};
use super::remote::{Facts, Failure, Remote, RemoteFile};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// No file is longer.
const LONGEST: u64 = i64::MAX as u64;

/// How often a file is opened again while one part of it is read.
const MOST_REOPENS: u32 = 8;

/// Does one thing, in memory that the next ones are done in too.
pub type Work<'a, T> = dyn Fn(T, &mut Vec<u8>) -> Result<(), Failure> + Sync + 'a;

/// Is shown the bytes at an offset.
pub type Show<'a> = dyn FnMut(u64, &[u8]) -> Result<(), Failure> + 'a;

/// Gives the bytes at an offset.
pub type Fill<'a> = dyn FnMut(u64, &mut [u8]) -> Result<(), Failure> + 'a;

/// Locks what stays whole whoever panics with it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has so many threads take one thing after the other, each with memory of its own, until all are done or one fails.
///
/// # Errors
/// The first failure.
pub fn each<T: Send>(
    things: impl IntoIterator<Item = T>,
    threads: u16,
    work: &Work<'_, T>,
) -> Result<(), Failure> {
    let things: VecDeque<T> = things.into_iter().collect();
    let threads = usize::from(threads).min(things.len());
    let (things, failure) = (Mutex::new(things), Mutex::new(None));
    let is_over = AtomicBool::new(false);
    let run = || {
        let mut memory = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            let Some(thing) = lock(&things).pop_front() else { return };
            if let Err(error) = work(thing, &mut memory) {
                is_over.store(true, Ordering::Relaxed);
                lock(&failure).get_or_insert(error);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(run);
        }
        run();
    });
    lock(&failure).take().map_or(Ok(()), Err)
}

/// A part of a file.
#[derive(Clone, Copy)]
pub struct Piece {
    /// How the file is cut.
    pub parts: Parts,
    /// Which part.
    pub index: u64,
    /// Bytes of one read or write.
    pub block: u64,
}

impl Piece {
    /// The blocks of it: offset, bytes, and the same as transfers of the file want it.
    fn blocks(self, alignment: u64) -> impl Iterator<Item = (u64, usize, usize)> {
        let (range, block) = (self.parts.range(self.index), self.block.next_multiple_of(alignment));
        (range.offset..range.end()).step_by(block as usize).map(move |at| {
            let length = block.min(range.end() - at);
            (at, length as usize, length.next_multiple_of(alignment) as usize)
        })
    }

    /// Reads it, and shows each block as it comes; what it comes to in the checksum, if that is wanted.
    ///
    /// # Errors
    /// The server's, or that the file is not that long any more.
    pub fn read(
        self,
        file: &dyn RemoteFile,
        (memory, hashes): (&mut Vec<u8>, bool),
        show: &mut Show<'_>,
    ) -> Result<Option<PartHash>, Failure> {
        let mut lane = file.lane()?;
        let mut hasher = hashes.then(|| self.parts.hasher(self.index));
        for (at, length, room) in self.blocks(file.alignment()) {
            let into = room_in(memory, room);
            let there = lane.read_at(into, at)?;
            if there < length {
                let size = at + there as u64;
                return Err(became_shorter(self.parts.length(), size));
            }
            let bytes = &into[..length];
            if let Some(hasher) = &mut hasher {
                hasher.update(bytes);
            }
            show(at, bytes)?;
        }
        Ok(hasher.map(super::parts::PartHasher::finish))
    }

    /// Writes it; `fill` gives each block.
    ///
    /// # Errors
    /// The server's, and those of `fill`.
    pub fn write(
        self,
        file: &dyn RemoteFile,
        (memory, hashes): (&mut Vec<u8>, bool),
        fill: &mut Fill<'_>,
    ) -> Result<Option<PartHash>, Failure> {
        let mut lane = file.lane()?;
        let mut hasher = hashes.then(|| self.parts.hasher(self.index));
        for (at, length, room) in self.blocks(file.alignment()) {
            let from = room_in(memory, room);
            fill(at, &mut from[..length])?;
            if let Some(hasher) = &mut hasher {
                hasher.update(&from[..length]);
            }
            // What is behind the file's end is cut off at last.
            from[length..].fill(0);
            lane.write_at(from, at)?;
        }
        Ok(hasher.map(super::parts::PartHasher::finish))
    }
}

/// The beginning of memory that is used for one block after the other.
fn room_in(memory: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if memory.len() < bytes {
        *memory = vec![0; bytes];
    }
    &mut memory[..bytes]
}

/// That of a file less is there than there was.
pub fn became_shorter(was: u64, is: u64) -> Failure {
    Failure::Final(format!(
        "it became shorter while it was read: it had {was} bytes, and ends at {is}"
    ))
}

/// A file that is read, opened anew when its ticket has ended.
pub struct Reopened<'a> {
    remote: &'a dyn Remote,
    path: &'a [u8],
    /// How it was when it was opened first.
    pub facts: Facts,
    current: Mutex<(u32, Arc<dyn RemoteFile>)>,
}

impl<'a> Reopened<'a> {
    /// Opens it, to be read from its beginning on in blocks of that many bytes, unless that is 0.
    ///
    /// # Errors
    /// The server's.
    pub fn open(remote: &'a dyn Remote, path: &'a [u8], block: u64) -> Result<Self, Failure> {
        let (file, facts) = remote.open(path, block)?;
        if facts.size > LONGEST {
            let size = facts.size;
            return Err(Failure::Final(format!(
                "the server tells of {size} bytes: no file is so long"
            )));
        }
        Ok(Reopened { remote, path, facts, current: Mutex::new((0, Arc::from(file))) })
    }

    /// Reads a part, as [`Piece::read`]; blocks may be shown again.
    ///
    /// # Errors
    /// The server's; that the file is another one, or shorter.
    pub fn read(
        &self,
        piece: Piece,
        (memory, hashes): (&mut Vec<u8>, bool),
        show: &mut Show<'_>,
    ) -> Result<Option<PartHash>, Failure> {
        let mut tries = 0;
        loop {
            let (number, file) = lock(&self.current).clone();
            match piece.read(&*file, (memory, hashes), show) {
                Err(Failure::Stale(why)) if tries < MOST_REOPENS => {
                    tracing::debug!(why, "a file is opened again");
                    tries += 1;
                    self.reopen(number)?;
                }
                done => return done,
            }
        }
    }

    fn reopen(&self, number: u32) -> Result<(), Failure> {
        let mut current = lock(&self.current);
        // Somebody else may have.
        if current.0 == number {
            // It is read on from anywhere.
            let (file, facts) = self.remote.open(self.path, 0)?;
            if (facts.size, facts.time) != (self.facts.size, self.facts.time) {
                return Err(Failure::Final(
                    "it was changed while it was read: copy it again".to_owned(),
                ));
            }
            *current = (number + 1, Arc::from(file));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_done_once_or_the_first_failure_told() {
        let done = Mutex::new(Vec::new());
        each(0..100, 7, &|number, _| {
            lock(&done).push(number);
            Ok(())
        })
        .unwrap();
        let mut done = done.into_inner().unwrap();
        done.sort_unstable();
        assert_eq!(done, (0..100).collect::<Vec<_>>());
        let failed = each(0..100, 3, &|number, _| match number {
            50 => Err(Failure::Final("no".to_owned())),
            _ => Ok(()),
        });
        assert_eq!(failed.unwrap_err().to_string(), "no");
        each(Vec::<u8>::new(), 4, &|_, _| Ok(())).unwrap();
    }

    #[test]
    fn blocks_are_aligned_and_cover_the_part() {
        let parts = Parts::new((20 << 20) + 513, 1);
        for index in 0..parts.count() {
            let piece = Piece { parts, index, block: 3 << 20 };
            let mut at = parts.range(index).offset;
            for (offset, length, room) in piece.blocks(512) {
                assert!(offset == at && offset.is_multiple_of(512) && room.is_multiple_of(512));
                assert!(room - length < 512);
                at += length as u64;
            }
            assert_eq!(at, parts.range(index).end());
        }
    }
}
