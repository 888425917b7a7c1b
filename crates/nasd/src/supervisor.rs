//! Starts the processes of a cell, restarts those that die, and stops them in order.
//!
//! Each member is a process of its own, so that one that dies takes nothing with it. A member
//! prints `ready` on its standard output when it serves; its standard error is its log. Members
//! are told to end when the supervisor dies, whatever killed it.

use crate::notify;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long a member may take from its start to `ready`: a drive may have much to recover.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a member may take to stop: a drive writes back what its cache holds.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Waits between restarts of a member that dies again and again: doubled up to the second value.
const RESTART_DELAY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// A member that served this long starts with the short wait again.
const STABLE_AFTER: Duration = Duration::from_secs(30);
/// How much of a log an error quotes.
const LOG_TAIL_LINES: usize = 5;

/// What to run as a member.
#[derive(Debug, Clone)]
pub struct MemberSpec {
    /// Its name in messages: `drive-1`, `manager`, `mount`.
    pub name: String,
    /// Arguments after the program's own name.
    pub arguments: Vec<std::ffi::OsString>,
    /// Where its standard error goes.
    pub log: PathBuf,
    /// Whether a clean end is meant, as that of a mount that a user has unmounted. Otherwise the
    /// member is started again however it ended.
    pub may_end: bool,
}

/// Why a member does not serve.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The process could not be made.
    #[error("can't start {name}: {source}")]
    Spawn {
        /// Which member.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// It ended, or closed its output, before it was ready.
    #[error("{name} stopped at once ({status}):\n{tail}\nits whole log: {}", .log.display())]
    Died {
        /// Which member.
        name: String,
        /// How it ended.
        status: String,
        /// The log's last lines.
        tail: String,
        /// The log.
        log: PathBuf,
    },
    /// It is not ready in time.
    #[error("{name} is not ready after {} s:\n{tail}\nits whole log: {}",
            START_TIMEOUT.as_secs(), .log.display())]
    TimedOut {
        /// Which member.
        name: String,
        /// The log's last lines.
        tail: String,
        /// The log.
        log: PathBuf,
    },
}

/// One running (or restarting) member.
struct Member {
    spec: MemberSpec,
    /// Those that were started together don't need each other.
    group: usize,
    child: Option<Child>,
    started: Instant,
    delay: Duration,
    restart_at: Instant,
    /// It ended as it may, and stays so.
    has_ended: bool,
}

/// The members, in the order of their start.
#[derive(Default)]
pub struct Supervisor {
    members: Vec<Member>,
}

impl Supervisor {
    /// Starts members at once and waits until all are ready. Those that are not end.
    ///
    /// # Errors
    /// The first member's that does not get ready.
    pub fn start(&mut self, specs: Vec<MemberSpec>) -> Result<(), StartError> {
        let mut starting = Vec::new();
        let group = self.members.last().map_or(0, |member| member.group + 1);
        for spec in specs {
            let (child, ready) = spawn(&spec)?;
            self.members.push(Member { child: Some(child), group, ..Member::new(spec) });
            starting.push((self.members.len() - 1, ready));
        }
        let deadline = Instant::now() + START_TIMEOUT;
        for (index, ready) in starting {
            self.members[index].wait_ready(&ready, deadline)?;
        }
        Ok(())
    }

    /// Starts one more member, which is not waited for; the others need it, so that it is stopped after them.
    pub fn add(&mut self, spec: MemberSpec) {
        tracing::info!(member = %spec.name, "is started");
        let mut member = Member::new(spec);
        member.spawn();
        self.members.insert(0, member);
    }

    /// Stops one member for good. Returns what went wrong.
    pub fn remove(&mut self, name: &str) -> Option<String> {
        let index = self.members.iter().position(|member| member.spec.name == name)?;
        tracing::info!(member = %name, "is not needed any more");
        let mut member = self.members.remove(index);
        member.terminate();
        member.stopped(&mut || self.tend())
    }

    /// The members' names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| member.spec.name.as_str())
    }

    /// Notices members that died, and starts them again when their wait is over.
    pub fn tend(&mut self) {
        for member in &mut self.members {
            member.tend();
        }
    }

    /// The process numbers of the members that run.
    pub fn processes(&self) -> Vec<u32> {
        self.members.iter().filter_map(|member| Some(member.child.as_ref()?.id())).collect()
    }

    /// Kills the members, as a power cut would, and forgets them.
    pub fn kill(&mut self) {
        for mut member in self.members.drain(..) {
            if let Some(child) = &mut member.child {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }

    /// Stops the members, those that were started last first, and waits for them. Returns what went wrong.
    pub fn stop(&mut self) -> Vec<String> {
        let mut problems = Vec::new();
        while let Some(group) = self.members.last().map(|member| member.group) {
            let before = self.members.iter().rposition(|member| member.group != group);
            let mut last = self.members.split_off(before.map_or(0, |before| before + 1));
            last.iter_mut().for_each(Member::terminate);
            for member in &mut last {
                // The others are needed while it stops: a mount writes to the drives what it holds.
                problems.extend(member.stopped(&mut || self.tend()));
            }
        }
        problems
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Gets one message when the member is ready; closed when it closes its output.
type Ready = mpsc::Receiver<()>;

fn spawn(spec: &MemberSpec) -> Result<(Child, Ready), StartError> {
    let failed = |source| StartError::Spawn { name: spec.name.clone(), source };
    let log = OpenOptions::new().create(true).append(true).open(&spec.log).map_err(failed)?;
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(&spec.arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    // A group of its own: the terminal's interrupt is for the supervisor, which stops members in
    // their order.
    command.process_group(0);
    command.env_remove(notify::VARIABLE);
    let supervisor = rustix::process::getpid();
    // SAFETY: between fork and exec only async-signal-safe calls are made: prctl and getppid.
    unsafe {
        command.pre_exec(move || {
            let signal = rustix::process::Signal::TERM;
            rustix::process::set_parent_process_death_signal(Some(signal))?;
            if rustix::process::getppid() != Some(supervisor) {
                return Err(std::io::Error::other("the supervisor is gone"));
            }
            Ok(())
        });
    }
    let mut child = command.spawn().map_err(failed)?;
    let (sender, receiver) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        std::thread::spawn(move || watch_output(output, &sender));
    }
    Ok((child, receiver))
}

/// Reads a member's standard output to its end, so that the member never blocks on it.
fn watch_output(output: ChildStdout, ready: &mpsc::Sender<()>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if line.starts_with("ready") {
            let _ = ready.send(());
        }
    }
}

impl Member {
    /// One that is about to be started.
    fn new(spec: MemberSpec) -> Member {
        let now = Instant::now();
        Member {
            spec,
            group: 0,
            child: None,
            started: now,
            delay: RESTART_DELAY.0,
            restart_at: now,
            has_ended: false,
        }
    }

    fn wait_ready(&mut self, ready: &Ready, deadline: Instant) -> Result<(), StartError> {
        let left = deadline.saturating_duration_since(Instant::now());
        match ready.recv_timeout(left) {
            Ok(()) => Ok(()),
            Err(RecvTimeoutError::Timeout) => Err(StartError::TimedOut {
                name: self.spec.name.clone(),
                tail: log_tail(&self.spec.log),
                log: self.spec.log.clone(),
            }),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.as_mut().map(Child::wait);
                self.child = None;
                let status = match status {
                    Some(Ok(status)) => status.to_string(),
                    _ => "how is not known".to_owned(),
                };
                Err(StartError::Died {
                    name: self.spec.name.clone(),
                    status,
                    tail: log_tail(&self.spec.log),
                    log: self.spec.log.clone(),
                })
            }
        }
    }

    fn tend(&mut self) {
        match &mut self.child {
            Some(child) => {
                if let Ok(Some(status)) = child.try_wait() {
                    self.note_end(status);
                }
            }
            None if self.has_ended => {}
            None if Instant::now() >= self.restart_at => {
                tracing::info!(member = %self.spec.name, "is started again");
                self.spawn();
            }
            None => {}
        }
    }

    /// Starts it, and does not wait until it is ready.
    fn spawn(&mut self) {
        match spawn(&self.spec) {
            Ok((child, _)) => {
                self.child = Some(child);
                self.started = Instant::now();
            }
            Err(error) => {
                tracing::error!(%error, "not started");
                self.delay_restart();
            }
        }
    }

    fn note_end(&mut self, status: ExitStatus) {
        if status.success() && self.spec.may_end {
            self.child = None;
            self.has_ended = true;
            return;
        }
        tracing::warn!(member = %self.spec.name, %status, "died; it will be started again");
        self.child = None;
        if self.started.elapsed() >= STABLE_AFTER {
            self.delay = RESTART_DELAY.0;
        }
        self.delay_restart();
    }

    fn delay_restart(&mut self) {
        self.restart_at = Instant::now() + self.delay;
        self.delay = (self.delay * 2).min(RESTART_DELAY.1);
    }

    /// Asks it to stop.
    fn terminate(&mut self) {
        if let Some(child) = &mut self.child {
            terminate(child);
        }
    }

    /// Waits until it has stopped, after it was asked to. Returns what went wrong.
    fn stopped(&mut self, meanwhile: &mut dyn FnMut()) -> Option<String> {
        let child = self.child.as_mut()?;
        let name = &self.spec.name;
        let deadline = Instant::now() + STOP_TIMEOUT;
        loop {
            match child.try_wait() {
                Ok(Some(status)) if status.success() => return None,
                Ok(Some(status)) => {
                    let tail = log_tail(&self.spec.log);
                    return Some(format!("{name} did not stop cleanly ({status}):\n{tail}"));
                }
                Ok(None) if Instant::now() < deadline => {
                    meanwhile();
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(None) | Err(_) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    let seconds = STOP_TIMEOUT.as_secs();
                    return Some(format!("{name} did not stop within {seconds} s and was killed"));
                }
            }
        }
    }
}

/// Asks a child to end.
fn terminate(child: &Child) {
    if let Some(pid) = rustix::process::Pid::from_raw(child.id() as i32) {
        // The child has not been waited for, so the number is still its own.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

/// The last lines of a log, each indented.
pub fn log_tail(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().rev().take(LOG_TAIL_LINES).collect();
    let lines: Vec<String> = lines.iter().rev().map(|line| format!("  {line}")).collect();
    lines.join("\n")
}
