//! The standard input and output, and devices: bytes in order, of which nobody knows how many there will be.

use super::Copying;
use super::parts::Parts;
use super::put::{explained, meanwhile, read_back};
use super::remote::{Failure, Kind, Making, Remote, RemoteFile};
use super::transfer::{Piece, Reopened, lock};
use crate::commands::Outcome;
use nasd_bulk_service::client::block_of;
use std::io::{self, Read, Write};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// Blocks that are there before they are wanted.
const AHEAD: usize = 3;

/// Bytes, and where they go.
type Block = (u64, Vec<u8>);

/// Permission bits of a file that is made of the input.
const MODE: u32 = 0o644;

/// Prints a file of that many bytes to the standard output.
///
/// # Errors
/// What can't be read or written.
pub fn to_output(
    copying: &Copying<'_>,
    remote: &dyn Remote,
    (path, size): (&[u8], u64),
) -> Outcome {
    if copying.arguments.resume || copying.arguments.checksum {
        return Err(
            "the output can't be read back or gone on with: leave --resume and --checksum away"
                .into(),
        );
    }
    Ok(into(copying, remote, (path, size), io::stdout())?)
}

/// Writes a file, of that many bytes as far as is known, to whatever takes bytes in order.
///
/// # Errors
/// What can't be read or written.
pub fn into(
    copying: &Copying<'_>,
    remote: &dyn Remote,
    (path, size): (&[u8], u64),
    mut output: impl Write,
) -> Result<(), Failure> {
    let called = remote.called(path);
    let block = copying.arguments.block;
    let source = Reopened::open(remote, path, block_of(size, block));
    let source = source.map_err(|error| error.about(&called))?;
    let parts = Parts::new(source.facts.size, 1);
    copying.tally.expect(parts.length());
    let written = thread::scope(|scope| {
        let (blocks, shown) = sync_channel::<Vec<u8>>(AHEAD);
        let (back, used) = sync_channel::<Vec<u8>>(AHEAD + 1);
        let reader = scope.spawn(|| read_on(&source, (parts, block), blocks, used));
        let mut outcome = Ok(true);
        for bytes in shown {
            copying.tally.moved(bytes.len() as u64);
            match output.write_all(&bytes) {
                Ok(()) => {
                    // It is used again, unless the reader has ended.
                    let _ = back.try_send(bytes);
                }
                // A reader that has seen enough is no failure.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    outcome = Ok(false);
                    break;
                }
                Err(error) => {
                    outcome = Err(Failure::Final(format!("can't write: {error}")));
                    break;
                }
            }
        }
        drop(back);
        // The channel is closed: a reader that waits to show something ends.
        let read = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match outcome {
            Ok(true) => read.map(|()| true),
            ended => ended,
        }
    });
    let is_whole = written.map_err(|error| error.about(&called))?;
    let flushed = if is_whole { output.flush() } else { Ok(()) };
    flushed.map_err(|error| Failure::Final(format!("{called}: can't write: {error}")))?;
    copying.tally.file(&called, parts.length(), None);
    Ok(())
}

/// Reads a file from its begin to its end, some blocks before they are wanted.
fn read_on(
    source: &Reopened<'_>,
    (parts, block): (Parts, u64),
    blocks: SyncSender<Vec<u8>>,
    used: Receiver<Vec<u8>>,
) -> Result<(), Failure> {
    let (mut memory, mut behind) = (Vec::new(), 0);
    let gone = || Failure::Final("nobody takes it".to_owned());
    for index in 0..parts.count() {
        let piece = Piece { parts, index, block };
        let mut show = |at: u64, bytes: &[u8]| {
            // After another opening it may be shown again.
            let new = usize::try_from(behind - at.min(behind)).unwrap_or(usize::MAX);
            let new = bytes.get(new..).unwrap_or_default();
            if new.is_empty() {
                return Ok(());
            }
            behind += new.len() as u64;
            let mut room = used.try_recv().unwrap_or_default();
            room.clear();
            room.extend_from_slice(new);
            blocks.send(room).map_err(|_| gone())
        };
        source.read(piece, (&mut memory, false), &mut show)?;
    }
    Ok(())
}

/// Makes a file of the standard input.
///
/// # Errors
/// What can't be read or written.
pub fn from_input(copying: &Copying<'_>, remote: &dyn Remote, path: &[u8]) -> Outcome {
    if copying.arguments.resume {
        return Err("the input can't be gone on with: leave --resume away".into());
    }
    if let Some(facts) = remote.facts(path).map_err(|error| error.about(&remote.called(path)))?
        && facts.kind != Kind::File
    {
        return Err(format!("{} is no regular file", remote.called(path)).into());
    }
    let meanwhile = match remote.is_one_file() {
        true => path.to_vec(),
        false => meanwhile(path, false)?,
    };
    let written = write_input(copying, remote, &meanwhile).and_then(|told| {
        if !remote.is_one_file() {
            remote.rename(&meanwhile, path)?;
        }
        Ok(told)
    });
    if written.is_err() && !remote.is_one_file() {
        // The failure that is told is another one.
        let _ = remote.remove(&meanwhile);
    }
    let (length, checksum) = written.map_err(|error| explained(error, remote, path))?;
    copying.tally.file(&remote.called(path), length, checksum);
    Ok(())
}

/// Writes all of it; how long it is, and its checksum if that is wanted.
fn write_input(
    copying: &Copying<'_>,
    remote: &dyn Remote,
    path: &[u8],
) -> Result<(u64, Option<blake3::Hash>), Failure> {
    let file = remote.make(path, Making { mode: MODE, length: None, keeps: false })?;
    let file: &dyn RemoteFile = &*file;
    let block = copying.arguments.block.next_multiple_of(file.alignment());
    let streams = copying.arguments.streams;
    let failure = Mutex::new(None);
    let (blocks, filled) = sync_channel::<Block>(usize::from(streams));
    let (back, used) = sync_channel::<Vec<u8>>(2 * usize::from(streams) + 1);
    let filled = Mutex::new(filled);
    let read = thread::scope(|scope| {
        // Each ends when nothing comes any more.
        for _ in 0..streams {
            scope.spawn(|| write_on(file, &filled, &back, &failure));
        }
        read_input(copying, block as usize, (blocks, &used), &failure)
    });
    if let Some(error) = lock(&failure).take() {
        return Err(error);
    }
    let (length, hasher) = read?;
    file.set_size(length)?;
    file.sync().map_err(|error| match error {
        Failure::MayBeLost(why) => Failure::Final(format!("{why}; the input can't be read again")),
        error => error,
    })?;
    let Some(hasher) = hasher else { return Ok((length, None)) };
    let (parts, sent) = (Parts::new(length, streams), hasher.finalize());
    let found = parts.whole(&read_back(copying, remote, path, parts)?);
    match found == Some(sent) {
        true => Ok((length, found)),
        false => Err(Failure::Final(
            "the checksum of what was written is not that of the input: copy it again".to_owned(),
        )),
    }
}

/// Reads the input to its end; how long it was, and what hashed it.
fn read_input(
    copying: &Copying<'_>,
    block: usize,
    (blocks, used): (SyncSender<Block>, &Receiver<Vec<u8>>),
    failure: &Mutex<Option<Failure>>,
) -> Result<(u64, Option<blake3::Hasher>), Failure> {
    let mut input = io::stdin().lock();
    let mut hasher = copying.arguments.checksum.then(blake3::Hasher::new);
    let mut length = 0;
    loop {
        let mut room = used.try_recv().unwrap_or_default();
        room.clear();
        let read = (&mut input).take(block as u64).read_to_end(&mut room);
        let read =
            read.map_err(|error| Failure::Final(format!("can't read the input: {error}")))?;
        if let Some(hasher) = &mut hasher {
            hasher.update(&room);
        }
        let at = length;
        length += read as u64;
        copying.tally.moved(read as u64);
        if read > 0 && blocks.send((at, room)).is_err() || lock(failure).is_some() {
            // Why is told by whoever has failed.
            return Ok((length, hasher));
        }
        if read < block {
            return Ok((length, hasher));
        }
    }
}

/// Writes blocks as they come. Who fails still takes what comes, so that nobody waits.
fn write_on(
    file: &dyn RemoteFile,
    filled: &Mutex<Receiver<Block>>,
    back: &SyncSender<Vec<u8>>,
    failure: &Mutex<Option<Failure>>,
) {
    let alignment = usize::try_from(file.alignment()).unwrap_or(1);
    let fail = |error| {
        lock(failure).get_or_insert(error);
    };
    let mut lane = file.lane().map_err(fail).ok();
    loop {
        let next = lock(filled).recv();
        let Ok((at, mut bytes)) = next else { return };
        if let Some(open) = &mut lane {
            // What is behind the file's end is cut off at last.
            bytes.resize(bytes.len().next_multiple_of(alignment), 0);
            if let Err(error) = open.write_at(&bytes, at) {
                fail(error);
                lane = None;
            }
        }
        // It is used again, unless there are enough.
        let _ = back.try_send(bytes);
    }
}
