//! A secret that a person types: the terminal does not show it, and shows again what is typed after
//! that, however it ends.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use signal_hook::low_level::{emulate_default_handler, pipe, unregister};
use std::io::{self, Stdin};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use zeroize::Zeroizing;

/// Longest secret; a terminal gives no longer line.
const MAX_BYTES: usize = 4095;

/// Signals that end a process, and that come from a terminal or whoever ends a session.
const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// Asks for a line from the terminal that is this process's input.
///
/// A signal that ends the process does so once the terminal is as it was.
///
/// # Errors
/// Where the input is no terminal; its end before a line; a line that is too long or no text.
pub fn ask_secret(question: &str) -> io::Result<Zeroizing<String>> {
    let terminal = io::stdin();
    let mut signals = Caught::begin()?;
    let hidden = Hidden::begin(&terminal)?;
    // Only now: what is typed as soon as this is read must not be shown.
    eprint!("{question}");
    let line = read_line(&terminal, &signals);
    drop(hidden);
    eprintln!();
    // Also one that has come since the line was read.
    signals.pass_on()?;
    match line? {
        Typed::Line(line) => Ok(line),
        Typed::Signal => Err(io::ErrorKind::Interrupted.into()),
    }
}

/// Leaves these signals to whoever takes them over for good. Others end the process after a question, as
/// they do in one that has never asked.
pub fn hand_over_signals(taken: &[i32]) {
    let mut after = AFTER.lock().unwrap_or_else(PoisonError::into_inner);
    after.taken.extend(taken);
    after.defaults.retain(|default| {
        let is_taken = taken.contains(&default.signal);
        if is_taken {
            unregister(default.action);
        }
        !is_taken
    });
}

/// What becomes of signals after a question. The system's own default does not come back: once an action
/// was registered for a signal, one without actions is ignored.
struct After {
    /// By others.
    taken: Vec<i32>,
    defaults: Vec<DefaultAction>,
}

struct DefaultAction {
    signal: i32,
    /// Whether no question is being asked.
    is_on: Arc<AtomicBool>,
    action: SigId,
}

static AFTER: Mutex<After> = Mutex::new(After { taken: Vec::new(), defaults: Vec::new() });

/// Has the default actions wait for the end of a question; they are made at the first.
fn suspend_defaults() -> io::Result<()> {
    let mut after = AFTER.lock().unwrap_or_else(PoisonError::into_inner);
    for signal in ENDING {
        let is_known = after.defaults.iter().any(|default| default.signal == signal);
        if !is_known && !after.taken.contains(&signal) {
            let is_on = Arc::new(AtomicBool::new(false));
            let action = register_conditional_default(signal, Arc::clone(&is_on))?;
            after.defaults.push(DefaultAction { signal, is_on, action });
        }
    }
    switch_defaults(&after, false);
    Ok(())
}

fn switch_defaults(after: &After, are_on: bool) {
    for default in &after.defaults {
        default.is_on.store(are_on, Ordering::SeqCst);
    }
}

/// How a question ends.
enum Typed {
    Line(Zeroizing<String>),
    Signal,
}

/// Reads a line without keeping any of it elsewhere, as a buffered reader would.
fn read_line(terminal: &Stdin, signals: &Caught) -> io::Result<Typed> {
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_BYTES + 1));
    let mut bytes = Zeroizing::new([0; MAX_BYTES + 1]);
    loop {
        let mut ready = [
            PollFd::new(terminal, PollFlags::IN),
            PollFd::from_borrowed_fd(signals.coming(), PollFlags::IN),
        ];
        match poll(&mut ready, None) {
            Err(Errno::INTR) => continue,
            polled => polled?,
        };
        if !ready[1].revents().is_empty() {
            return Ok(Typed::Signal);
        }
        let read = match rustix::io::read(terminal, &mut bytes[..]) {
            Err(Errno::INTR | Errno::AGAIN) => continue,
            read => read?,
        };
        let given = bytes.get(..read).unwrap_or_default();
        // What was typed before the end of the input counts as a line.
        let is_end = read == 0 || given.ends_with(b"\n");
        if read == 0 && line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if line.len() + given.len() > MAX_BYTES + 1 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the line is too long"));
        }
        line.extend_from_slice(given);
        if is_end {
            return text(&line).map(Typed::Line);
        }
    }
}

/// The line's text, without its end.
fn text(line: &[u8]) -> io::Result<Zeroizing<String>> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let text = std::str::from_utf8(line);
    let text = text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text"))?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// A terminal that does not show what is typed, until this is dropped.
struct Hidden<'a> {
    terminal: &'a Stdin,
    shown: Termios,
}

impl<'a> Hidden<'a> {
    fn begin(terminal: &'a Stdin) -> io::Result<Self> {
        let shown = tcgetattr(terminal)?;
        let mut hidden = shown.clone();
        hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ECHONL);
        // What was typed before anybody asked is no answer.
        tcsetattr(terminal, OptionalActions::Flush, &hidden)?;
        Ok(Hidden { terminal, shown })
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        // There is nobody to tell; a terminal that is gone shows nothing.
        let _ = tcsetattr(self.terminal, OptionalActions::Flush, &self.shown);
    }
}

/// Signals that would end the process: they wait until the terminal is as it was.
struct Caught {
    handlers: Vec<SigId>,
    /// One for each of [`ENDING`], readable when it has come; and one for all.
    each: Vec<UnixStream>,
    any: UnixStream,
}

impl Caught {
    fn begin() -> io::Result<Self> {
        let (any, any_sent) = UnixStream::pair()?;
        let mut caught = Caught { handlers: Vec::new(), each: Vec::new(), any };
        suspend_defaults()?;
        for signal in ENDING {
            let (come, sent) = UnixStream::pair()?;
            come.set_nonblocking(true)?;
            // The one for all is read last: who sees it sees which it was.
            caught.handlers.push(pipe::register(signal, sent)?);
            caught.handlers.push(pipe::register(signal, any_sent.try_clone()?)?);
            caught.each.push(come);
        }
        Ok(caught)
    }

    /// Becomes readable when a signal has come.
    fn coming(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.any)
    }

    /// Does what a signal that has come would have done: ends the process. From here on, each does so as
    /// it comes.
    fn pass_on(&mut self) -> io::Result<()> {
        self.end();
        let mut byte = [0];
        for (come, signal) in self.each.iter_mut().zip(ENDING) {
            if io::Read::read(come, &mut byte).is_ok_and(|bytes| bytes > 0) {
                emulate_default_handler(signal)?;
            }
        }
        Ok(())
    }

    fn end(&mut self) {
        // First these, lest one comes while nobody takes it.
        switch_defaults(&AFTER.lock().unwrap_or_else(PoisonError::into_inner), true);
        for handler in self.handlers.drain(..) {
            unregister(handler);
        }
    }
}

impl Drop for Caught {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_text_without_its_end() {
        for (line, expected) in
            [(&b"a b\n"[..], "a b"), (b"a\r\n", "a"), (b"a", "a"), (b"\n", ""), (b" a \n", " a ")]
        {
            assert_eq!(text(line).unwrap().as_str(), expected);
        }
        assert!(text(b"\xff\n").is_err());
    }
}
