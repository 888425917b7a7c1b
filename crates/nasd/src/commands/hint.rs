//! `nasd hint`: tells a mount what will be read under one of its directories, in order.

use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nasd_mount::HintRequest;
use nasd_types::ByteRange;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::Outcome;
use crate::arguments::HintArguments;
use crate::output::{note, say};

/// How long it waits before it asks again whether there is room for more hints, or looks whether the command has ended.
const PAUSE: Duration = Duration::from_millis(20);

/// How long the rest of a list may take when the command has ended: what is wrong with it is told all the same.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// `nasd hint`. Ends the process with the status of the command, if one is given.
///
/// # Errors
/// A directory that is not of a mount, a list that can't be read or has no meaning, and a command that can't be run.
pub fn hint(arguments: &HintArguments) -> Outcome {
    let at = |error: &dyn std::fmt::Display| format!("{}: {error}", arguments.directory.display());
    let directory = File::open(&arguments.directory).map_err(|error| at(&error))?;
    if !directory.metadata().map_err(|error| at(&error))?.is_dir() {
        return Err(at(&"not a directory: name one, and the files below it in the list").into());
    }
    // A mount of ours refuses what says nothing; others don't know what that is.
    let probe = HintRequest::default().tell(&directory);
    if !probe.is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput) {
        return Err(at(&"not a directory of a mounted volume; `nasd mount` makes one").into());
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let list = open_list(&arguments.list, Arc::clone(&is_over))?;
    let telling = Telling { directory, ranges: arguments.ranges, is_over: Arc::clone(&is_over) };
    if arguments.command.is_empty() {
        let count = telling.tell_all(list)?;
        say!("{count} hints are told, and good until this ends");
        loop {
            std::thread::park();
        }
    }
    let mut child = start(&arguments.command)?;
    let teller = std::thread::spawn(move || {
        if let Err(error) = telling.tell_all(list) {
            // The command reads what it reads, without hints.
            note!("nasd hint: {error}");
        }
    });
    let status = child.wait().map_err(|error| format!("can't wait for the command: {error}"))?;
    is_over.store(true, Ordering::Release);
    // It ends soon, as it waits for nobody any more; but the list may be as long as it likes.
    let end = Instant::now() + LAST_WORDS;
    while !teller.is_finished() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::process::exit(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
}

/// Lines as somebody writes them, now or long ago.
type List = BufReader<Source>;

fn open_list(list: &Path, is_over: Arc<AtomicBool>) -> Result<List, Box<dyn Error>> {
    let file = if list == Path::new("-") {
        File::from(io::stdin().as_fd().try_clone_to_owned()?)
    } else {
        File::open(list).map_err(|error| format!("{}: {error}", list.display()))?
    };
    Ok(BufReader::new(Source { file, is_over }))
}

/// Where lines come from. Who writes them may take his time; when the command has ended he is not waited for any more
/// (`WouldBlock`).
struct Source {
    file: File,
    is_over: Arc<AtomicBool>,
}

impl Read for Source {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let pause = Timespec { tv_sec: 0, tv_nsec: PAUSE.as_nanos() as i64 };
        loop {
            let was_over = self.is_over.load(Ordering::Acquire);
            let mut waiting = [PollFd::new(&self.file, PollFlags::IN)];
            match rustix::event::poll(&mut waiting, Some(&pause)) {
                Ok(0) if was_over => return Err(io::ErrorKind::WouldBlock.into()),
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return self.file.read(into),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

struct Telling {
    directory: File,
    /// Whether lines begin with an offset and a length.
    ranges: bool,
    /// Whether the command has ended, so that nobody reads any more what is told.
    is_over: Arc<AtomicBool>,
}

impl Telling {
    /// Tells all lines of a list, as there is room for them; how many.
    fn tell_all(&self, mut list: List) -> Result<u64, Box<dyn Error>> {
        let (mut request, mut count, mut line) = (HintRequest::default(), 0, Vec::new());
        loop {
            line.clear();
            match list.read_until(b'\n', &mut line) {
                Ok(0) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.is_over() => break,
                read => read.map_err(|error| format!("the list can't be read: {error}"))?,
            };
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            if !text.is_empty() {
                count += 1;
                self.push(text, count, &mut request)?;
            }
            // Whoever writes the list may take his time with the next line.
            if !list.buffer().contains(&b'\n') {
                self.tell(&mut request)?;
            }
        }
        self.tell(&mut request)?;
        Ok(count)
    }

    /// Puts a line into a request; one that is full is told.
    fn push(
        &self,
        line: &[u8],
        count: u64,
        request: &mut HintRequest,
    ) -> Result<(), Box<dyn Error>> {
        let (path, range) = self.parse(line).ok_or_else(|| {
            let text = line.escape_ascii();
            format!("line {count} of the list is not `OFFSET LENGTH PATH`: {text}")
        })?;
        if path.contains(&0) {
            return Err(
                format!("line {count} of the list has a zero byte: each path is a line").into()
            );
        }
        if !request.push(path, range) {
            self.tell(request)?;
            if !request.push(path, range) {
                return Err(format!("line {count} of the list is too long").into());
            }
        }
        Ok(())
    }

    fn parse<'l>(&self, line: &'l [u8]) -> Option<(&'l [u8], Option<ByteRange>)> {
        if !self.ranges {
            return Some((line, None));
        }
        let mut words = line.splitn(3, |byte| *byte == b' ');
        let mut number = || std::str::from_utf8(words.next()?).ok()?.parse().ok();
        let (offset, length) = (number()?, number()?);
        let path = words.next().filter(|path| !path.is_empty())?;
        Some((path, Some(ByteRange::new(offset, length))))
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Tells all of a request, when there is room; if the command has ended, what there is room for now.
    fn tell(&self, request: &mut HintRequest) -> Result<(), Box<dyn Error>> {
        while !request.is_empty() {
            match request.tell(&self.directory) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.is_over() => {
                    *request = HintRequest::default();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(PAUSE);
                }
                Err(error) => {
                    let why = match error.kind() {
                        io::ErrorKind::QuotaExceeded => {
                            "this user's programs have as many streams of hints as can be"
                                .to_owned()
                        }
                        io::ErrorKind::ResourceBusy => {
                            "all programs have as many streams of hints as can be".to_owned()
                        }
                        _ => error.to_string(),
                    };
                    return Err(format!("the mount takes no hints: {why}").into());
                }
            }
        }
        Ok(())
    }
}

/// Starts a command; its input is empty, as ours may be the list.
fn start(command: &[OsString]) -> Result<Child, Box<dyn Error>> {
    let (program, words) = command.split_first().ok_or("there is no command")?;
    let child = Command::new(program).args(words).stdin(Stdio::null()).spawn();
    Ok(child.map_err(|error| format!("can't run {}: {error}", program.display()))?)
}
