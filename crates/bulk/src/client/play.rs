//! Plays files in step: each is a stream of frames, and all show the same one at the same time ([`crate::steps`]).

use std::collections::VecDeque;
use std::error::Error;
use std::io;
use std::panic;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::StripedFile;
use crate::steps::{Report, Step, Steps};

/// How it is looked whether somebody wants it to end.
const LOOK: Duration = Duration::from_millis(100);

/// What is done with a frame: it is told the stream, counted from 0, the frame's number and its bytes.
pub type Show<'a> = dyn Fn(usize, u64, &[u8]) -> io::Result<()> + Sync + 'a;

/// Why something can't be read.
pub type ReadError = Box<dyn Error + Send + Sync>;

/// Reads at an offset; fewer bytes than there is room for only at the end.
pub type Reader<'a> = Box<dyn FnMut(&mut [u8], u64) -> Result<usize, ReadError> + 'a>;

/// A file whose frames are shown.
pub trait Source: Sync {
    /// Its length in bytes.
    fn length(&self) -> u64;

    /// Who reads it from one place on.
    ///
    /// # Errors
    ///
    /// Why it can't be read.
    fn reader(&self) -> Result<Reader<'_>, ReadError>;
}

impl Source for StripedFile {
    fn length(&self) -> u64 {
        self.size_at_open()
    }

    fn reader(&self) -> Result<Reader<'_>, ReadError> {
        let mut lane = self.lane();
        Ok(Box::new(move |into, offset| Ok(lane.read_at(into, offset)?)))
    }
}

/// What is played.
#[derive(Clone, Copy, Debug)]
pub struct Playing {
    /// Bytes of a frame, one at least.
    pub frame_bytes: usize,
    /// Time from one frame to the next.
    pub period: Duration,
    /// Frames that are shown. Where files have fewer, each begins again at its first.
    pub frames: u64,
    /// Frames of each stream that are read before they are shown.
    pub ahead: u64,
}

/// Why a play has ended before its end.
#[derive(Debug, Error)]
pub enum PlayError {
    /// A frame can't be read.
    #[error("frame {frame} of stream {stream} can't be read: {why}")]
    Read {
        /// Of which file, counted from 0.
        stream: usize,
        /// Which, counted from 0.
        frame: u64,
        /// Why.
        why: ReadError,
    },
    /// A file has become shorter than it was.
    #[error("frame {frame} of stream {stream} is not there any more: the file has become shorter")]
    Cut {
        /// Of which file, counted from 0.
        stream: usize,
        /// Which, counted from 0.
        frame: u64,
    },
    /// A file has not even one frame.
    #[error("the file of stream {stream} is shorter than a frame")]
    Short {
        /// Which, counted from 0.
        stream: usize,
    },
    /// A frame can't be shown.
    #[error("a frame of stream {stream} can't be shown: {why}")]
    Show {
        /// Of which file, counted from 0.
        stream: usize,
        /// Why.
        why: io::Error,
    },
}

/// Who plays, and how far it is.
struct Stage<'a> {
    playing: &'a Playing,
    begun: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    steps: Steps,
    /// Of each stream, the frames that were read.
    ready: Vec<VecDeque<(u64, Vec<u8>)>>,
    spare: Vec<Vec<u8>>,
    /// The frame that all show now, once there is one.
    shown: Option<u64>,
    failure: Option<PlayError>,
    is_over: bool,
}

/// Ends it for all if a thread's part of it panics: the others would wait for that part for ever.
struct EndOfPanic<'s, 'a>(&'s Stage<'a>);

impl Drop for EndOfPanic<'_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.end();
        }
    }
}

/// Plays files. `show` is called by a thread of each stream; `looks_on` is told how far
/// it is now and then, and says whether it goes on.
///
/// # Errors
///
/// [`PlayError`]: what is late or dropped is none, and told in the [`Report`].
///
/// # Panics
///
/// If `show`, `looks_on` or a reader of a file does.
pub fn play(
    files: &[&dyn Source],
    playing: &Playing,
    show: &Show<'_>,
    looks_on: &mut dyn FnMut(&Report) -> bool,
) -> Result<Report, PlayError> {
    let playing = &Playing { frame_bytes: playing.frame_bytes.max(1), ..*playing };
    for (stream, file) in files.iter().enumerate() {
        if file.length() < playing.frame_bytes as u64 {
            return Err(PlayError::Short { stream });
        }
    }
    let stage = Stage::new(files.len(), playing);
    thread::scope(|scope| {
        let stage = &stage;
        let _end = EndOfPanic(stage);
        let mut others = Vec::new();
        for (stream, file) in files.iter().enumerate() {
            others.push(scope.spawn(move || stage.part(|| stage.read(stream, *file))));
            others.push(scope.spawn(move || stage.part(|| stage.show(stream, show))));
        }
        stage.conduct(looks_on);
        for other in others {
            // One that has panicked goes on doing so here.
            other.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
        }
    });
    let state = stage.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    state.failure.map_or(Ok(state.steps.report()), Err)
}

impl State {
    /// Frames that were dropped are not kept until another one is shown.
    fn forget_dropped(&mut self, stream: usize) {
        // The one that is shown now may be yet to be taken.
        let (next, shown) = (self.steps.next(), self.shown);
        let is_dropped = |frame: u64| frame < next && Some(frame) != shown;
        while self.ready[stream].front().is_some_and(|(frame, _)| is_dropped(*frame)) {
            self.spare.extend(self.ready[stream].pop_front().map(|(_, bytes)| bytes));
        }
    }
}

impl<'a> Stage<'a> {
    fn new(streams: usize, playing: &'a Playing) -> Stage<'a> {
        let Playing { period, frames, ahead, .. } = *playing;
        let state = State {
            steps: Steps::new(streams, frames, period, ahead),
            ready: (0..streams).map(|_| VecDeque::new()).collect(),
            spare: Vec::new(),
            shown: None,
            failure: None,
            is_over: false,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Stage { playing, begun: Instant::now(), state, changed }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'g>(&self, state: MutexGuard<'g, State>, time: Duration) -> MutexGuard<'g, State> {
        self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
    }

    fn fail(&self, failure: PlayError) {
        let mut state = self.lock();
        state.failure.get_or_insert(failure);
        state.is_over = true;
        self.changed.notify_all();
    }

    /// Does the part of another thread.
    fn part(&self, work: impl FnOnce()) {
        let _end = EndOfPanic(self);
        work();
    }

    fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Says when frames are shown, until it is over.
    fn conduct(&self, looks_on: &mut dyn FnMut(&Report) -> bool) {
        let mut looked = Duration::ZERO;
        let mut state = self.lock();
        while !state.is_over {
            let now = self.begun.elapsed();
            if now >= looked + LOOK {
                let report = state.steps.report();
                drop(state);
                let goes_on = looks_on(&report);
                (looked, state) = (now, self.lock());
                state.is_over |= !goes_on;
                continue;
            }
            match state.steps.look(now) {
                Step::Wait(until) => {
                    let time = until.saturating_sub(now).min(LOOK);
                    state = self.wait(state, time);
                }
                Step::Show(frame) => {
                    state.shown = Some(frame);
                    self.changed.notify_all();
                }
                Step::Over => state.is_over = true,
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    fn read(&self, stream: usize, file: &dyn Source) {
        let mut reader = match file.reader() {
            Ok(reader) => reader,
            Err(why) => return self.fail(PlayError::Read { stream, frame: 0, why }),
        };
        while let Some((frame, mut bytes)) = self.frame_to_read(stream) {
            bytes.resize(self.playing.frame_bytes, 0);
            if let Err(failure) = self.read_frame(&mut reader, file, (stream, frame), &mut bytes) {
                return self.fail(failure);
            }
            let mut state = self.lock();
            match state.steps.has_read(stream, frame) {
                true => state.ready[stream].push_back((frame, bytes)),
                false => state.spare.push(bytes),
            }
            state.forget_dropped(stream);
            drop(state);
            self.changed.notify_all();
        }
    }

    fn frame_to_read(&self, stream: usize) -> Option<(u64, Vec<u8>)> {
        let mut state = self.lock();
        loop {
            if state.is_over || state.steps.is_read(stream) {
                return None;
            }
            if let Some(frame) = state.steps.to_read(stream) {
                return Some((frame, state.spare.pop().unwrap_or_default()));
            }
            state = self.wait(state, LOOK);
        }
    }

    fn read_frame(
        &self,
        reader: &mut Reader<'_>,
        file: &dyn Source,
        (stream, frame): (usize, u64),
        into: &mut [u8],
    ) -> Result<(), PlayError> {
        let length = into.len() as u64;
        let offset = frame % (file.length() / length).max(1) * length;
        match reader(into, offset) {
            Ok(count) if count == into.len() => Ok(()),
            Ok(_) => Err(PlayError::Cut { stream, frame }),
            Err(why) => Err(PlayError::Read { stream, frame, why }),
        }
    }

    fn show(&self, stream: usize, show: &Show<'_>) {
        let mut last = None;
        while let Some((frame, bytes)) = self.frame_to_show(stream, last) {
            if let Err(why) = show(stream, frame, &bytes) {
                return self.fail(PlayError::Show { stream, why });
            }
            last = Some(frame);
            let mut state = self.lock();
            state.steps.has_shown(self.begun.elapsed());
            state.spare.push(bytes);
            drop(state);
            self.changed.notify_all();
        }
    }

    fn frame_to_show(&self, stream: usize, last: Option<u64>) -> Option<(u64, Vec<u8>)> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            match state.shown {
                Some(frame) if last < Some(frame) => {
                    // What was dropped after it was read here is never asked for.
                    while let Some((read, bytes)) = state.ready[stream].pop_front() {
                        if read == frame {
                            return Some((frame, bytes));
                        }
                        state.spare.push(bytes);
                    }
                    return None;
                }
                _ => state = self.wait(state, LOOK),
            }
        }
    }
}
