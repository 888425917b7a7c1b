//! What an extension can reach: the bytes of some pieces of one object, handed to it by the thread of the call. That reads the
//! next ones while the extension looks at these.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use nasd_protocol::Status;
use nasd_store::Segment;
use nasd_transport::Spare;
use nasd_types::ByteRange;
use nasd_types::limits::MAX_TRANSFER_BYTES;

use super::{ExtensionError, Granted, Told};

/// Most bytes that are handed over at a time: for so long nothing else is asked for.
const MOST: u64 = 4 << 20;

/// How often somebody looks whether a call that asks for nothing should come to an end.
const TICK: Duration = Duration::from_millis(20);

/// How often, while it waits to be begun: there may be a thousand of these.
const WAITING_TICK: Duration = Duration::from_millis(200);

/// How often at most, of a call that asks for much.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Bytes of an object, where they lie in the cache.
#[derive(Debug, Default)]
pub(crate) struct Bytes(pub(crate) Vec<Segment>);

/// Bytes that an extension has asked for: fewer where the object ends.
#[derive(Debug, Default)]
pub struct Chunk {
    bytes: Bytes,
    length: u64,
}

impl Chunk {
    fn new(bytes: Bytes) -> Chunk {
        let length = bytes.0.iter().map(|segment| segment.len() as u64).sum();
        Chunk { bytes, length }
    }

    /// The bytes, in order.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.0.iter().map(|segment| &segment[..])
    }

    /// One of them.
    pub fn slice(&self, at: usize) -> Option<&[u8]> {
        self.bytes.0.get(at).map(|segment| &segment[..])
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// How an extension has ended.
#[derive(Debug)]
pub(super) enum End {
    /// By itself, with what is granted for what it has told.
    Told(Told, Option<Granted>),
    /// By itself, and has told nothing.
    Failed(ExtensionError),
    /// By a panic.
    Panicked,
    /// It was not begun, since others wait of whom fewer do.
    MadeRoom,
    /// It was not begun, since others of its extension do not end.
    OthersAreLost,
}

impl End {
    pub(super) fn of(ran: std::thread::Result<Result<Told, ExtensionError>>) -> End {
        match ran {
            Ok(Ok(told)) => End::Told(told, None),
            Ok(Err(error)) => End::Failed(error),
            Err(_) => End::Panicked,
        }
    }
}

enum Ask {
    /// Nothing yet: it has only just been begun.
    Begun,
    Read(ByteRange),
    Over(End),
}

/// What both sides of a call may be told at any time.
#[derive(Debug, Default)]
pub(super) struct Signals {
    is_stopped: AtomicBool,
    is_to_end_soon: AtomicBool,
    /// Whether the extension has told that it is at work since that was asked last.
    is_at_work: AtomicBool,
    /// Bytes that were handed over, and zeros that were looked at besides.
    handed: AtomicU64,
    /// Bytes of the pieces that it has looked at, as far as it shows by what it asks for.
    looked_at: AtomicU64,
}

impl Signals {
    pub(super) fn end_soon(&self) {
        self.is_to_end_soon.store(true, Ordering::Relaxed);
    }

    pub(super) fn looked_at(&self) -> u64 {
        self.looked_at.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    fn was_at_work(&self) -> bool {
        self.is_at_work.swap(false, Ordering::Relaxed)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}

/// See the module.
pub struct Reach {
    pieces: Vec<ByteRange>,
    object_bytes: u64,
    asks: Sender<Ask>,
    answers: Receiver<Result<Chunk, Status>>,
    signals: Arc<Signals>,
    /// Memory of the longest answers.
    pub(super) spare: Arc<Spare>,
}

/// Keeps what was room for an answer for others: all of it is as long, so that whatever is there can be used.
pub(super) fn give_room(spare: &Spare, room: Vec<u8>) {
    if room.capacity() == MAX_TRANSFER_BYTES {
        spare.give(room);
    }
}

impl Reach {
    /// How long the object was when the extension was begun, in bytes.
    pub fn object_bytes(&self) -> u64 {
        self.object_bytes
    }

    /// Whether others wait whose jobs take less time, or it has run for long: the extension should tell soon how far it has come.
    pub fn is_to_end_soon(&self) -> bool {
        self.signals.is_to_end_soon.load(Ordering::Relaxed)
    }

    /// Tells that the extension is at work, and gets on: for those who look at bytes for seconds. Only who tells
    /// nothing, and asks for nothing, is given up.
    ///
    /// # Errors
    ///
    /// [`ExtensionError::Stopped`].
    pub fn go_on(&self) -> Result<(), ExtensionError> {
        self.signals.is_at_work.store(true, Ordering::Relaxed);
        if self.signals.is_stopped() { Err(ExtensionError::Stopped) } else { Ok(()) }
    }

    /// Bytes of the object, at most 4 MiB at a time; fewer where it ends. Those that follow are read meanwhile, for who asks for
    /// as many of them next.
    ///
    /// # Errors
    ///
    /// [`ExtensionError::Object`]: `NotPermitted` of bytes that are not in one of the call's pieces, `TooLarge` of too many, and
    /// whatever else reads fail with. [`ExtensionError::Stopped`].
    pub fn read(&mut self, range: ByteRange) -> Result<Chunk, ExtensionError> {
        if self.signals.is_stopped() {
            return Err(ExtensionError::Stopped);
        }
        if !self.pieces.iter().any(|piece| piece.contains(&range)) {
            return Err(ExtensionError::Object(Status::NotPermitted));
        }
        if range.length > MOST {
            return Err(ExtensionError::Object(Status::TooLarge));
        }
        self.asks.send(Ask::Read(range)).map_err(|_| ExtensionError::Stopped)?;
        let answer = self.answers.recv().map_err(|_| ExtensionError::Stopped)?;
        let chunk = answer.map_err(ExtensionError::Object)?;
        self.signals.handed.fetch_add(chunk.len(), Ordering::Relaxed);
        Ok(chunk)
    }

    /// Memory for what is told, of what is granted, in which there is whatever was told to others: none of it may be sent that was not
    /// written to. New memory would have to be cleared first, page by page, which takes longer than looking at as many bytes.
    pub(super) fn room(&self, bytes: usize) -> Vec<u8> {
        match bytes {
            MAX_TRANSFER_BYTES => self.spare.take(bytes),
            _ => vec![0; bytes],
        }
    }

    /// Tells that it has been begun.
    pub(super) fn begun(&self) {
        // Nobody waits for it any more, if that fails.
        self.asks.send(Ask::Begun).ok();
    }

    /// Tells that the extension looks at so many zeros behind the object's end, which nobody hands it.
    pub(super) fn has_zeros(&self, count: u64) {
        self.signals.handed.fetch_add(count, Ordering::Relaxed);
    }

    /// How many bytes the extension was handed so far.
    pub(super) fn handed(&self) -> u64 {
        self.signals.handed.load(Ordering::Relaxed)
    }

    /// It is over.
    pub(super) fn end(&self, end: End) {
        // Nobody waits for it any more, if that fails.
        self.asks.send(Ask::Over(end)).ok();
    }
}

/// Whether a call is still to be seen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    GoOn,
    /// It was not begun, and will not be.
    Over,
}

/// How many bytes of pieces come before a position.
pub(super) fn bytes_before(pieces: &[ByteRange], position: u64) -> u64 {
    let before = |piece: &ByteRange| {
        piece.end().min(position).saturating_sub(piece.offset).min(piece.length)
    };
    pieces.iter().map(before).sum()
}

/// The other side of it, in the thread of the call.
pub(super) struct Server {
    pieces: Vec<ByteRange>,
    asks: Receiver<Ask>,
    answers: Sender<Result<Chunk, Status>>,
    pub(super) signals: Arc<Signals>,
    /// Whether the extension has been begun.
    is_begun: Cell<bool>,
}

/// Both sides, for an object of so many bytes.
pub(super) fn pair(pieces: &[ByteRange], object_bytes: u64) -> (Reach, Server) {
    let ((asks, asked), (answers, answered)) = (channel(), channel());
    let signals = Arc::<Signals>::default();
    let server = Server {
        pieces: pieces.to_vec(),
        asks: asked,
        answers,
        signals: Arc::clone(&signals),
        is_begun: Cell::new(false),
    };
    let (pieces, answers, spare) = (pieces.to_vec(), answered, Arc::default());
    (Reach { pieces, object_bytes, asks, answers, signals, spare }, server)
}

impl Server {
    /// What is asked for next, it may be: as many bytes, or those that are left of a piece.
    fn next_after(&self, range: ByteRange) -> Option<ByteRange> {
        let at = self.pieces.iter().position(|piece| piece.contains(&range))?;
        let rest = ByteRange::new(range.end(), range.length).intersection(&self.pieces[at]);
        let first =
            |piece: &ByteRange| ByteRange::new(piece.offset, range.length.min(piece.length));
        match rest.is_empty() {
            true => self.pieces.get(at + 1).map(first),
            false => Some(rest),
        }
    }

    /// Hands over what is asked for until it is over; `None` if nothing is heard for so long. Now and then, and before reads,
    /// `look` is called; once that says so, it is over.
    pub(super) fn serve(
        &self,
        patience: Duration,
        read: impl Fn(ByteRange) -> Result<Bytes, Status>,
        look: impl Fn() -> Look,
    ) -> Option<End> {
        let mut ahead: Option<(ByteRange, Result<Chunk, Status>)> = None;
        let mut heard = Instant::now();
        let mut looked: Option<Instant> = None;
        loop {
            let is_due = looked.is_none_or(|at| at.elapsed() >= BETWEEN_LOOKS);
            if is_due && look() == Look::Over {
                return Some(End::Failed(ExtensionError::Stopped));
            }
            if is_due {
                looked = Some(Instant::now());
            }
            let tick = if self.is_begun.get() { TICK } else { WAITING_TICK };
            let range = match self.asks.recv_timeout(tick.min(patience)) {
                Ok(Ask::Begun) => {
                    self.is_begun.set(true);
                    heard = Instant::now();
                    continue;
                }
                Ok(Ask::Read(range)) => range,
                Ok(Ask::Over(end)) => return Some(end),
                // Its thread is gone without a word.
                Err(RecvTimeoutError::Disconnected) => return Some(End::Panicked),
                Err(RecvTimeoutError::Timeout) if self.signals.was_at_work() => {
                    heard = Instant::now();
                    continue;
                }
                Err(RecvTimeoutError::Timeout) if heard.elapsed() < patience => continue,
                Err(RecvTimeoutError::Timeout) => return None,
            };
            let looked_at = bytes_before(&self.pieces, range.offset);
            self.signals.looked_at.store(looked_at, Ordering::Relaxed);
            let read = |range| read(range).map(Chunk::new);
            let chunk = match ahead.take() {
                Some((there, chunk)) if there == range => chunk,
                _ => read(range),
            };
            let is_whole = chunk.as_ref().is_ok_and(|chunk| chunk.len() == range.length);
            if self.answers.send(chunk).is_err() {
                // How it has ended comes next.
                continue;
            }
            if let Some(next) = self.next_after(range).filter(|_| is_whole) {
                ahead = Some((next, read(next)));
            }
            heard = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn told(position: u64) -> End {
        End::Told(Told { position, data: Vec::new() }, None)
    }

    #[test]
    fn what_is_not_in_the_range_is_not_reached() {
        let (mut reach, server) = pair(&[ByteRange::new(100, 50)], 1000);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let not_permitted = ExtensionError::Object(Status::NotPermitted);
                for (offset, length) in [(99, 2), (100, 51), (149, 2), (0, 10), (u64::MAX, 1)] {
                    let read = reach.read(ByteRange::new(offset, length));
                    assert_eq!(read.map(|chunk| chunk.len()), Err(not_permitted.clone()));
                }
                reach.read(ByteRange::new(100, 50)).unwrap();
                reach.signals.stop();
                let read = reach.read(ByteRange::new(100, 50)).map(|chunk| chunk.len());
                assert_eq!(read, Err(ExtensionError::Stopped));
                reach.end(told(7));
            });
            let end = server.serve(PATIENCE, |_| Ok(Bytes::default()), || Look::GoOn);
            assert!(matches!(end, Some(End::Told(Told { position: 7, .. }, _))));
        });
    }

    #[test]
    fn who_says_nothing_is_not_waited_for() {
        let (reach, server) = pair(&[ByteRange::new(0, 50)], 1000);
        assert!(
            server
                .serve(Duration::from_millis(1), |_| Ok(Bytes::default()), || Look::GoOn)
                .is_none()
        );
        drop(reach);
        assert!(matches!(
            server.serve(PATIENCE, |_| Ok(Bytes::default()), || Look::GoOn),
            Some(End::Panicked)
        ));
    }

    #[test]
    fn who_is_at_work_is_waited_for() {
        let (reach, server) = pair(&[ByteRange::new(0, 50)], 1000);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..165 {
                    std::thread::sleep(Duration::from_millis(20));
                    reach.go_on().unwrap();
                }
                reach.end(told(7));
            });
            let looks = std::cell::Cell::new(0);
            let look = || {
                looks.set(looks.get() + 1);
                Look::GoOn
            };
            let end = server.serve(Duration::from_secs(3), |_| Ok(Bytes::default()), look);
            assert!(matches!(end, Some(End::Told(Told { position: 7, .. }, _))));
            assert!(looks.get() > 5);
        });
    }

    #[test]
    fn who_waits_to_be_begun_is_looked_at_less_often() {
        let (reach, server) = pair(&[ByteRange::new(0, 50)], 1000);
        let looks_of = || {
            let looks = Cell::new(0);
            let look = || {
                looks.set(looks.get() + 1);
                Look::GoOn
            };
            let patience = 5 * WAITING_TICK;
            assert!(server.serve(patience, |_| Ok(Bytes::default()), look).is_none());
            looks.get()
        };
        let waiting = looks_of();
        reach.begun();
        let begun = looks_of();
        assert!(waiting <= 6 && begun > waiting, "{waiting} and {begun}");
    }

    #[test]
    fn not_every_read_is_looked_at() {
        const READS: usize = 2000;
        let (mut reach, server) = pair(&[ByteRange::new(0, 50)], 1000);
        let (looks, since) = (Cell::new(0), Instant::now());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..READS {
                    reach.read(ByteRange::new(0, 50)).unwrap();
                }
                reach.end(told(50));
            });
            let look = || {
                looks.set(looks.get() + 1);
                Look::GoOn
            };
            server.serve(PATIENCE, |_| Ok(Bytes::default()), look);
        });
        let most = since.elapsed().as_millis() / BETWEEN_LOOKS.as_millis() + 1;
        assert!((1..=most).contains(&looks.get()), "{} looks", looks.get());
    }

    #[test]
    fn what_can_not_be_read_is_told() {
        let (mut reach, server) = pair(&[ByteRange::new(0, 50)], 50);
        let asked = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let read = reach.read(ByteRange::new(0, 20)).map(|chunk| chunk.len());
                assert_eq!(read, Err(ExtensionError::Object(Status::Corrupt)));
                reach.end(told(0));
            });
            let read = |range| {
                asked.lock().unwrap().push(range);
                Err(Status::Corrupt)
            };
            server.serve(PATIENCE, read, || Look::GoOn);
        });
        assert_eq!(asked.into_inner().unwrap(), [ByteRange::new(0, 20)], "nothing is read ahead");
    }

    #[test]
    fn what_comes_next_is_read_meanwhile() {
        let (first, second) = (ByteRange::new(10, 30), ByteRange::new(100, 10));
        let (mut reach, server) = pair(&[first, second], 200);
        let asked = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for (offset, length) in [(10, 20), (30, 10), (100, 10)] {
                    reach.read(ByteRange::new(offset, length)).unwrap();
                }
                reach.end(told(110));
            });
            let read = |range| {
                asked.lock().unwrap().push(range);
                // What is shorter than was asked for is the end.
                Ok(Bytes::default())
            };
            server.serve(PATIENCE, read, || Look::GoOn);
        });
        assert_eq!(asked.into_inner().unwrap().len(), 3);
        assert_eq!(server.next_after(ByteRange::new(10, 20)), Some(ByteRange::new(30, 10)));
        assert_eq!(server.next_after(ByteRange::new(30, 10)), Some(second));
        assert_eq!(server.next_after(ByteRange::new(100, 4)), Some(ByteRange::new(104, 4)));
        assert_eq!(server.next_after(second), None);
    }
}
