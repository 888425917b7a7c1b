//! What a person at a terminal sees and types: the real binary on a pseudo terminal.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, tcgetattr};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use support::{CellOptions, TestCell, nasd, wait_for_exit, wait_until};

const QUESTION: &str = "Passphrase of the keyring: ";
const AGAIN: &str = "The same again: ";
const PASSPHRASE: &str = "correct horse battery staple";

/// Programs end by the signals of a keyboard, also where the tests run in the background of a shell, which has those
/// ignored: children inherit it.
fn let_keyboard_interrupt() {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: nobody else here sets what these do.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// A pseudo terminal: what is typed at it, and what it shows.
struct Terminal {
    ours: File,
    theirs: File,
    shown: String,
}

impl Terminal {
    fn new() -> Terminal {
        let (mut ours, mut theirs) = (-1, -1);
        let null = std::ptr::null_mut();
        // SAFETY: it writes two numbers to where there is room for them, and takes no name, modes or
        // size.
        let made = unsafe { libc::openpty(&mut ours, &mut theirs, null, null.cast(), null.cast()) };
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: both were just opened, and nobody else has them.
        let own = |fd| File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        Terminal { ours: own(ours), theirs: own(theirs), shown: String::new() }
    }

    /// Starts a command as its foreground job.
    fn start(&self, cell: &Path, line: &str) -> Child {
        let_keyboard_interrupt();
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(nasd().get_program()).args(line.split_whitespace());
        command.arg("--cell").arg(cell).env_remove("NASD_PASSPHRASE_FILE");
        let end = || self.theirs.try_clone().unwrap();
        command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap()
    }

    /// Takes in what it shows within a time.
    fn look(&mut self, milliseconds: i64) {
        let time = Timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 };
        let mut ready = [PollFd::new(&self.ours, PollFlags::IN)];
        while poll(&mut ready, Some(&time)).unwrap() > 0 {
            let mut bytes = [0; 4096];
            let read = self.ours.read(&mut bytes).unwrap();
            self.shown.push_str(&String::from_utf8_lossy(&bytes[..read]));
            ready = [PollFd::new(&self.ours, PollFlags::IN)];
        }
    }

    /// Waits until it shows a question, at which nothing that is typed is shown any more.
    fn wait_for(&mut self, question: &str) {
        let before = self.shown.matches(question).count();
        wait_until(question, || {
            self.look(1);
            self.shown.matches(question).count() > before
        });
        assert!(!self.echoes(), "typing would be shown");
    }

    fn echoes(&self) -> bool {
        tcgetattr(&self.theirs).unwrap().local_modes.contains(LocalModes::ECHO)
    }

    fn input(&mut self, text: &str) {
        self.ours.write_all(text.as_bytes()).unwrap();
    }

    /// Waits for a command's end, after which what is typed must be shown again.
    fn end(&mut self, mut child: Child) -> ExitStatus {
        let status = wait_for_exit(&mut child);
        self.look(20);
        assert!(self.echoes(), "the terminal was left without echo: {}", self.shown);
        status
    }
}

/// Gives a command at a new terminal, answers its questions, and tells how it ended and what was shown.
fn talk(cell: &Path, line: &str, answers: &[(&str, &str)]) -> (ExitStatus, String) {
    let mut terminal = Terminal::new();
    assert!(terminal.echoes());
    let child = terminal.start(cell, line);
    for (question, answer) in answers {
        terminal.wait_for(question);
        terminal.input(answer);
    }
    let status = terminal.end(child);
    (status, terminal.shown)
}

fn stopped_cell() -> TestCell {
    let mut cell = TestCell::start(&CellOptions {
        drives: 1,
        size: "64M",
        cache: "32M",
        ..CellOptions::default()
    });
    cell.stop();
    cell
}

#[test]
fn a_passphrase_is_asked_for_and_not_shown() {
    let cell = stopped_cell();
    let ring = || fs::read_to_string(cell.cell().join("keyring.toml")).unwrap();
    let typed = format!("{PASSPHRASE}\n");
    for (first, second, why) in
        [(&*typed, "other\n", "not the same"), ("\n", "\n", "empty passphrase")]
    {
        let answers = [(QUESTION, first), (AGAIN, second)];
        let (status, shown) = talk(&cell.cell(), "key seal", &answers);
        assert!(!status.success() && shown.contains(why), "{shown}");
        assert!(ring().contains("drive_key"));
    }
    let answers = [(QUESTION, &*typed), (AGAIN, &*typed)];
    let (status, shown) = talk(&cell.cell(), "key seal", &answers);
    assert!(status.success() && shown.contains("sealed"), "{shown}");
    assert!(!shown.contains("horse") && !ring().contains("drive_key"), "{shown}");

    let (status, shown) = talk(&cell.cell(), "key show", &[(QUESTION, "wrong\n")]);
    assert!(!status.success() && shown.contains("wrong one"), "{shown}");
    // Corrected while it is typed, as at any terminal.
    let corrected = format!("correct hx\x7f{}\n", &PASSPHRASE[9..]);
    let (status, shown) = talk(&cell.cell(), "key show", &[(QUESTION, &corrected)]);
    assert!(status.success() && shown.contains("sealed by a passphrase"), "{shown}");
    assert!(!shown.contains(AGAIN) && !shown.contains("horse"), "{shown}");
    // The end of the input is no passphrase.
    let (status, shown) = talk(&cell.cell(), "key show", &[(QUESTION, "\x04")]);
    assert!(status.code() == Some(1) && shown.contains("no passphrase"), "{shown}");
    let (status, _) = talk(&cell.cell(), "key unseal", &[(QUESTION, &typed)]);
    assert!(status.success() && ring().contains("drive_key"));
}

#[test]
fn who_gives_up_at_the_question_gets_the_terminal_back() {
    let cell = stopped_cell();
    let before = fs::read(cell.cell().join("keyring.toml")).unwrap();
    // ^C and ^\ at the terminal.
    for (key, signal) in [("\x03", libc::SIGINT), ("\x1c", libc::SIGQUIT)] {
        for half in ["", "half a pass"] {
            let answer = format!("{half}{key}");
            let (status, shown) = talk(&cell.cell(), "key seal", &[(QUESTION, &answer)]);
            assert_eq!(status.signal(), Some(signal), "{shown}");
            assert!(!shown.contains("half"), "{shown}");
        }
    }
    // From elsewhere.
    for (name, signal) in [("TERM", libc::SIGTERM), ("HUP", libc::SIGHUP)] {
        let mut terminal = Terminal::new();
        let child = terminal.start(&cell.cell(), "key seal");
        terminal.wait_for(QUESTION);
        support::signal(child.id(), name);
        assert_eq!(terminal.end(child).signal(), Some(signal));
    }
    assert_eq!(fs::read(cell.cell().join("keyring.toml")).unwrap(), before);
}

#[test]
fn after_the_answer_signals_end_a_command_as_ever() {
    let cell = stopped_cell();
    let typed = format!("{PASSPHRASE}\n");
    let answers = [(QUESTION, &*typed), (AGAIN, &*typed)];
    assert!(talk(&cell.cell(), "key seal", &answers).0.success());
    // A drive that takes connections and says nothing: the command waits for it.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    let path = cell.cell().join("cell.toml");
    let mut config: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
    let drive = config["drive"].as_array_mut().unwrap()[0].as_table_mut().unwrap();
    drive.insert("address".to_owned(), silent.local_addr().unwrap().to_string().into());
    fs::write(&path, config.to_string()).unwrap();
    for (name, signal) in [
        ("INT", libc::SIGINT),
        ("TERM", libc::SIGTERM),
        ("HUP", libc::SIGHUP),
        ("QUIT", libc::SIGQUIT),
    ] {
        let mut terminal = Terminal::new();
        let child = terminal.start(&cell.cell(), "partition list 1");
        terminal.wait_for(QUESTION);
        terminal.input(&typed);
        // It has its answer, and asks the drive.
        let mut connection = None;
        wait_until("it asks the drive", || {
            connection = silent.accept().ok();
            connection.is_some()
        });
        support::signal(child.id(), name);
        assert_eq!(terminal.end(child).signal(), Some(signal), "{name}");
    }
}

#[test]
fn what_was_typed_before_the_question_is_no_answer() {
    let cell = stopped_cell();
    let mut terminal = Terminal::new();
    terminal.input("typed ahead\n");
    let child = terminal.start(&cell.cell(), "key seal");
    terminal.wait_for(QUESTION);
    let typed = format!("{PASSPHRASE}\n");
    terminal.input(&typed);
    terminal.wait_for(AGAIN);
    terminal.input(&typed);
    assert!(terminal.end(child).success(), "{}", terminal.shown);
    let (status, shown) = talk(&cell.cell(), "key show", &[(QUESTION, &typed)]);
    assert!(status.success(), "{shown}");
}
