//! A process of the cell on a host, from its line `ready` to its end.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::HostError;

/// How long a process may take until it is ready, and to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// USER_HZ, the unit of times in /proc: the same on every Linux that this is built for.
const CLOCK_TICKS_A_SECOND: f64 = 100.0;
/// How much of a log errors quote.
const LOG_LINES: usize = 8;

/// A process that was started, asked to end when this is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts a process and waits until it prints `ready`; what it writes to its standard error is appended
    /// to the log.
    ///
    /// # Errors
    /// If it can't be started, or is not ready within a minute.
    pub fn start(name: &str, log: &Path, mut command: Command) -> Result<Process, HostError> {
        let failed = |error: std::io::Error| HostError::Command {
            command: format!("{command:?}"),
            reason: error.to_string(),
        };
        let errors = OpenOptions::new().create(true).append(true).open(log).map_err(failed)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let failed = |error: std::io::Error| HostError::Command {
            command: name.to_owned(),
            reason: error.to_string(),
        };
        let mut child = command.spawn().map_err(failed)?;
        let output = child.stdout.take();
        let process = Process { name: name.to_owned(), log: log.to_owned(), child };
        let (sender, ready) = mpsc::channel();
        std::thread::spawn(move || {
            // To its end, so that the process never waits for somebody to read.
            for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()) {
                if line.is_ok_and(|line| line.starts_with("ready")) {
                    let _ = sender.send(());
                }
            }
        });
        match ready.recv_timeout(PATIENCE) {
            Ok(()) => Ok(process),
            Err(_) => Err(HostError::NotReady { name: name.to_owned(), log: tail(log) }),
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            // It has not been waited for, so the number is still its own.
            let _ = kill_process(pid, signal);
        }
    }

    /// Asks it to end and waits for that.
    ///
    /// # Errors
    /// If it says that something went wrong, or has to be killed.
    pub fn stop(mut self) -> Result<(), HostError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), HostError> {
        let bad = |how: String, process: &Process| HostError::BadEnd {
            name: process.name.clone(),
            how,
            log: tail(&process.log),
        };
        if let Ok(None) = self.child.try_wait() {
            self.signal(Signal::TERM);
        }
        let begun = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(bad(status.to_string(), self)),
                Ok(None) if begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => {
                    self.signal(Signal::KILL);
                    let _ = self.child.wait();
                    return Err(bad("it was killed at last".to_owned(), self));
                }
            }
        }
    }

    /// Processor time that it has taken, in seconds, from fields 14 and 15 of its `stat` (proc(5)).
    pub fn cpu_seconds(&self) -> Option<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        // The name, field 2, may have blanks and brackets in it.
        let (_, fields) = stat.rsplit_once(')')?;
        let mut times = fields.split_whitespace().skip(11).map(str::parse::<u64>);
        let ticks = times.next()?.ok()? + times.next()?.ok()?;
        Some(ticks as f64 / CLOCK_TICKS_A_SECOND)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// The last lines of a log.
fn tail(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(LOG_LINES);
    lines[from..].iter().map(|line| format!("  {line}\n")).collect()
}
