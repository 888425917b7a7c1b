//! Many files are searched at a time; what is found is printed in their order.
//!
//! One thread finds the files. Some search one each, and send what there is to be printed, as much as is not yet printed of
//! the file before: nothing is kept for a file but that.

use super::super::{CellPath, Session, at, parse};
use super::show::{Show, Shown};
use nasd_cell::Cell;
use nasd_clerk::{
    Caller, Clerk, FileGrep, FileHandle, FileType, GrepPlan, Grepped, OpenMode, Route, ScanOptions,
    Work,
};
use nasd_grep::Line;
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Files that are searched at a time.
const THREADS: usize = 8;
/// Files that are found before they are searched.
const FOUND: usize = 64;
/// Parts of what is found in a file that wait to be printed.
const PARTS: usize = 4;

/// What is told of a file, as it comes.
pub enum Searched {
    /// To be printed.
    Some(Vec<u8>),
    /// The file's end.
    Done {
        /// What it took.
        work: Work,
        /// Whether a line is selected.
        is_found: bool,
    },
    /// It can't be searched.
    Failed(String),
}

/// A file to be searched.
struct Job {
    session: Arc<Session>,
    handle: FileHandle,
    path: String,
    to: SyncSender<Searched>,
}

/// What a search of files is.
#[derive(Clone, Copy)]
struct Task<'a> {
    plan: &'a GrepPlan,
    options: ScanOptions,
    show: Show,
    /// Nothing more is wanted.
    is_over: &'a AtomicBool,
}

/// Searches files, and gives what is found in their order, as long as more is wanted.
///
/// # Errors
/// A path that is none.
pub fn search(
    cell: &Cell,
    paths: &[String],
    recursive: bool,
    plan: &GrepPlan,
    options: ScanOptions,
    show: Show,
    give: &mut dyn FnMut(Searched) -> bool,
) -> Result<(), Box<dyn Error>> {
    let paths: Vec<CellPath> = paths.iter().map(|path| parse(path)).collect::<Result<_, _>>()?;
    let mut sessions = BTreeMap::new();
    for path in &paths {
        if !sessions.contains_key(path.volume()) {
            let session = Session::open_by(cell, path, Route::Direct);
            let session = session.map(Arc::new).map_err(|error| error.to_string());
            sessions.insert(path.volume(), session);
        }
    }
    let is_over = AtomicBool::new(false);
    let task = Task { plan, options, show, is_over: &is_over };
    thread::scope(|scope| {
        let (jobs, waiting) = sync_channel::<Job>(FOUND);
        let (order, files) = sync_channel::<Receiver<Searched>>(FOUND);
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..THREADS {
            let waiting = Arc::clone(&waiting);
            scope.spawn(move || work(&waiting, task));
        }
        drop(waiting);
        let (paths, sessions) = (&paths, &sessions);
        scope.spawn(move || {
            let finding = Finding { recursive, jobs, order };
            for path in paths {
                let found = match &sessions[path.volume()] {
                    Ok(session) => finding.find(session, path),
                    Err(error) => finding.fail(format!("{path}: {error}")),
                };
                // Nobody wants more if it does not.
                if found.is_none() {
                    break;
                }
            }
        });
        if !files.into_iter().flatten().all(give) {
            is_over.store(true, Ordering::Relaxed);
        }
    });
    Ok(())
}

/// Who finds files.
struct Finding {
    recursive: bool,
    jobs: SyncSender<Job>,
    order: SyncSender<Receiver<Searched>>,
}

impl Finding {
    /// Passes on what a path means; `None` if nobody takes it.
    fn find(&self, session: &Arc<Session>, path: &CellPath) -> Option<()> {
        let entry = match session.resolve(path) {
            Ok(entry) => entry,
            Err(error) => return self.fail(error.to_string()),
        };
        match entry.attributes.file_type {
            FileType::Directory if self.recursive => {}
            FileType::Directory => return self.fail(format!("{path} is a directory: say -r")),
            _ => return self.pass(session, entry.handle, path.to_string()),
        }
        let start = path.to_string();
        let start = start.trim_end_matches('/');
        for item in session.clerk.walk(&session.caller, entry.handle, false) {
            match item {
                Ok(item) if item.file_type == FileType::Regular => {
                    let path = format!("{start}/{}", String::from_utf8_lossy(&item.path));
                    self.pass(session, item.handle, path)?;
                }
                Ok(_) => {}
                Err(error) => self.fail(at(path, error).to_string())?,
            }
        }
        Some(())
    }

    /// Has a file searched.
    fn pass(&self, session: &Arc<Session>, handle: FileHandle, path: String) -> Option<()> {
        let (to, searched) = sync_channel(PARTS);
        self.order.send(searched).ok()?;
        self.jobs.send(Job { session: Arc::clone(session), handle, path, to }).ok()
    }

    /// Tells of what is no file to be searched, in its turn.
    fn fail(&self, text: String) -> Option<()> {
        let (to, searched) = sync_channel(1);
        to.send(Searched::Failed(text)).ok()?;
        self.order.send(searched).ok()
    }
}

/// What a thread does: searches one file after the other.
fn work(waiting: &Mutex<Receiver<Job>>, task: Task<'_>) {
    loop {
        let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else {
            return;
        };
        if task.is_over.load(Ordering::Relaxed) {
            continue;
        }
        let end = match job.search(task) {
            Ok(Some(end)) => end,
            // There is nobody to be told.
            Ok(None) => continue,
            Err(error) => Searched::Failed(format!("{}: {error}", job.path)),
        };
        // Who prints may have had enough.
        let _ = job.to.send(end);
    }
}

impl Job {
    /// What its file's end is, if it comes to that before all is over.
    fn search(&self, task: Task<'_>) -> Result<Option<Searched>, Box<dyn Error>> {
        let (clerk, caller): (&Clerk, &Arc<Caller>) = (&self.session.clerk, &self.session.caller);
        let (file, _) = clerk.open(caller, self.handle, OpenMode::READ)?;
        let mut grep = FileGrep::start(Arc::new(file), task.plan, task.options)?;
        let mut shown = Shown::new(task.show, &self.path);
        let mut failed = Ok(());
        let mut give = |line: Line<'_>| match shown.line(line) {
            Ok(Some(text)) => self.send(text),
            Ok(None) => {}
            Err(error) => failed = Err(error),
        };
        let searched = match go_on(task.is_over, || grep.next_lines(&mut give)) {
            // Drives are told to give up what they do for it.
            Ok(false) => return Ok(None),
            Ok(true) => grep.finish(&mut give),
            Err(error) => Err(error),
        };
        failed?;
        let grepped: Grepped = match searched {
            Ok(grepped) => grepped,
            Err(error) => {
                // What was found before is right, unless the file was cut.
                self.send(shown.so_far()?);
                return Err(error.into());
            }
        };
        self.send(match task.show.as_json {
            true => shown.end_as_json(&grepped)?,
            false => shown.end(&grepped),
        });
        Ok(Some(Searched::Done { work: grepped.work, is_found: grepped.selected > 0 }))
    }

    /// Has some of it printed, if somebody still takes it.
    fn send(&self, text: Vec<u8>) {
        if !text.is_empty() {
            let _ = self.to.send(Searched::Some(text));
        }
    }
}

/// Does part after part as long as there are more; whether it has come to the last one before all was over.
fn go_on<E>(is_over: &AtomicBool, mut part: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
    while part()? {
        if is_over.load(Ordering::Relaxed) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_under_way_is_left_when_all_is_over() {
        let (is_over, mut parts) = (AtomicBool::new(false), 0);
        let gone_on = go_on(&is_over, || {
            parts += 1;
            is_over.store(parts == 3, Ordering::Relaxed);
            Ok::<_, ()>(parts < 100)
        });
        assert_eq!((gone_on, parts), (Ok(false), 3));
        // What came to its end is told all the same.
        let mut parts = 0;
        let gone_on = go_on(&is_over, || {
            parts += 1;
            Ok::<_, ()>(false)
        });
        assert_eq!((gone_on, parts), (Ok(true), 1));
        assert_eq!(go_on(&is_over, || Err("a failure")), Err("a failure"));
    }
}
