//! How the kernel forgets pages of its cache.
//!
//! The kernel waits for a page that is being read or written before it forgets it, and so does whoever asks it to. So
//! nobody whom a page waits for may ask (`dispatch::Lane`).
//!
//! A write through the cache changes the page first, and comes here then. If the page is forgotten in between, and
//! read anew before the write is executed, it is without what was written, and stays so. So when a write may have
//! met with that, its pages are forgotten once more.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, PoisonError, mpsc};
use std::time::{Duration, Instant};

use nasd_clerk::OpenFile;
use nasd_fuse::Write;

use crate::dispatch::{Dispatcher, Lane};
use crate::files::OpenedFile;
use crate::inodes::{self, Forgot, Version};
use crate::tree::Tree;

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

/// A write comes to us not longer after it has changed its pages.
pub(crate) const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// How long the answer to a write waits until its pages are forgotten. One that it covers is let go of by those who
/// read it. One that it has changed in part may be locked until the write is answered.
const WHOLE_PAGES: Duration = Duration::from_secs(10);
const PARTS_OF_PAGES: Duration = Duration::from_millis(2);

/// How far the forgetting of a write's pages is.
const PENDING: u8 = 0;
const DONE: u8 = 1;
/// It ends after the answer.
const LATE: u8 = 2;

impl Tree {
    /// The kernel is not to show pages that it read before the file had this version; when this returns, it has
    /// none. It `will_read` new ones if what follows may read through the cache, or map.
    ///
    /// (It would forget them by itself for an opening that it is told to, but who opens the file at the same time, and
    /// is told to keep what is good, would still see them.)
    pub(crate) fn forget_older_pages(&self, ino: u64, version: Version, will_read: bool) {
        let turn = self.inodes.forgetting(ino);
        let _alone = turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.forget_older_pages_alone(ino, version, will_read);
    }

    fn forget_older_pages_alone(&self, ino: u64, version: Version, will_read: bool) {
        if !self.inodes.are_pages_of(ino, version, will_read) {
            self.forget_pages(ino, 0, 0);
            self.inodes.forgot_pages(ino, version);
        }
    }

    /// The same for an opening that will read, and that nobody was told of yet. Where the kernel has no pages and the clerk has all of the
    /// file, the kernel is given it: it need not ask for it, and goes on to believe the attributes, which it does not when it has
    /// read pages, as of the time of access. (So where each access is to be seen at once, it has to ask.)
    ///
    /// What is given is what the file is: nobody else has it open, who could write or have pages read, and whoever opens it waits for his turn.
    /// Others' changes are known here when those have passed the gate who may have looked before.
    pub(crate) fn ready_pages(&self, ino: u64, version: Version, open: &OpenFile) -> bool {
        let turn = self.inodes.forgetting(ino);
        let _alone = turn.lock().unwrap_or_else(PoisonError::into_inner);
        let is_wanted = self.clerk.has_callbacks()
            && !self.accesses.are_seen_at_once()
            && self.inodes.is_alone_without_pages(ino, version);
        self.forget_older_pages_alone(ino, version, true);
        if !is_wanted {
            return false;
        }
        let Some(notifier) = self.notifier.get() else {
            return false;
        };
        let _passing = self.gate.pass();
        let whole = open.cached_whole();
        let Some((_, data)) = whole.filter(|(now, _)| inodes::version(now) == version) else {
            return false;
        };
        let given = notifier.store(ino, 0, &data);
        if let Err(error) = &given {
            tracing::debug!(%error, "the kernel takes no pages of the file");
        }
        given.is_ok()
    }

    /// The kernel reads a part of a file anew, up to its end if `length` is 0, and asks for attributes.
    pub(crate) fn forget_pages(&self, ino: u64, offset: u64, length: u64) {
        self.inodes.begin_forgetting(ino);
        self.notify(ino, offset, length);
        self.inodes.end_forgetting(ino);
    }

    fn notify(&self, ino: u64, offset: u64, length: u64) {
        if let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length))
            && let Some(notifier) = self.notifier.get()
            && let Err(error) = notifier.inval_inode(ino, offset, length)
        {
            tracing::debug!(%error, "the kernel has no pages of the file");
        }
    }
}

/// A write through the page cache, which came at `arrived`, is executed, and not answered: what is in its pages must not
/// be older. What was forgotten before the opening was there, the write has not met with.
pub(crate) fn renew_written(
    tree: &Arc<Tree>,
    dispatcher: &Dispatcher,
    file: &OpenedFile,
    (write, arrived): (&Write, Instant),
) {
    let since = arrived.checked_sub(ON_ITS_WAY).map_or(file.since, |at| at.max(file.since));
    let is_whole =
        u64::from(write.size).is_multiple_of(PAGE_BYTES) && write.offset.is_multiple_of(PAGE_BYTES);
    let patience = match tree.inodes.forgot_since(file.ino, since) {
        Forgot::No => return,
        // Else each of many writes to the end of a file would wait for the one before it.
        Forgot::Late => Duration::ZERO,
        Forgot::Some if is_whole => WHOLE_PAGES,
        Forgot::Some => PARTS_OF_PAGES,
    };
    let (ino, offset, length) = (file.ino, write.offset, u64::from(write.size));
    let state = Arc::new(AtomicU8::new(PENDING));
    let (told, forgotten) = mpsc::channel();
    let (its_tree, its_state) = (Arc::clone(tree), Arc::clone(&state));
    // Only one program writes to a file through the cache at a time: no other write can meet with this, and so it is
    // not noted, unless it is late. Else it would go on with each write.
    let forget = move || {
        its_tree.notify(ino, offset, length);
        if its_state.swap(DONE, Ordering::AcqRel) == LATE {
            its_tree.inodes.end_late(ino);
        }
        let _ = told.send(());
    };
    dispatcher.submit(Lane::Renewals(file.open.handle().drive), Box::new(forget));
    if forgotten.recv_timeout(patience).is_err() {
        tree.inodes.begin_late(ino);
        let late = state.compare_exchange(PENDING, LATE, Ordering::AcqRel, Ordering::Acquire);
        if late.is_err() {
            tree.inodes.end_late(ino);
        }
    }
}

/// A write is answered that was appended through the page cache: its bytes are in pages where the kernel thought
/// that the file ends.
pub(crate) fn place_appended(
    tree: &Arc<Tree>,
    dispatcher: &Dispatcher,
    file: &OpenedFile,
    write: &Write,
) {
    let (tree, ino, from) = (Arc::clone(tree), file.ino, write.offset);
    let forget = move || tree.forget_pages(ino, from, 0);
    dispatcher.submit(Lane::Drive(file.open.handle().drive), Box::new(forget));
}
