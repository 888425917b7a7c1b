//! How the kernel forgets pages of its cache.
//!
//! The kernel waits for a page that is being read or written before it forgets it, and so does whoever asks it to. So
//! nobody whom a page waits for may ask (`dispatch::Lane::Pages`).
//!
//! A write through the cache changes the page first, and comes here then. If the page is forgotten in between, and
//! read anew before the write is executed, it is without what was written, and stays so. So when a write may have
//! met with that, its pages are forgotten once more.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use nasd_fuse::Write;

use crate::dispatch::{Dispatcher, Lane};
use crate::files::OpenedFile;
use crate::inodes::Version;
use crate::tree::Tree;

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

/// A write comes to us not longer after it has changed its pages.
pub(crate) const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// How long the answer to a write waits until its pages are forgotten. The kernel may keep a page locked that a write
/// has changed in part, until the write is answered.
const WHOLE_PAGES: Duration = Duration::from_millis(100);
const PARTS_OF_PAGES: Duration = Duration::from_millis(1);

impl Tree {
    /// The kernel is not to show pages that it read before the file had this version; when this returns, it has
    /// none. It `will_read` such if there are openings that have pages. (It would forget them by itself for an opening that it is told to, but who opens the file at the same
    /// time, and is told to keep what is good, would still see them.)
    pub(crate) fn forget_older_pages(&self, ino: u64, version: Version, will_read: bool) {
        let _alone = self.inodes.forgetting(ino);
        if !self.inodes.are_pages_of(ino, version, will_read) {
            self.forget_pages(ino, 0, 0);
            self.inodes.forgot_pages(ino, version);
        }
    }

    /// The kernel reads a part of a file anew, up to its end if `length` is 0, and asks for attributes.
    pub(crate) fn forget_pages(&self, ino: u64, offset: u64, length: u64) {
        self.inodes.begin_forgetting(ino);
        if let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length))
            && let Some(notifier) = self.notifier.get()
            && let Err(error) = notifier.inval_inode(ino, offset, length)
        {
            tracing::debug!(%error, "the kernel has no pages of the file");
        }
        self.inodes.end_forgetting(ino);
    }
}

/// A write through the page cache is executed, and not answered: what is in its pages must not be older.
pub(crate) fn renew_written(
    tree: &Arc<Tree>,
    dispatcher: &Dispatcher,
    file: &OpenedFile,
    write: &Write,
) {
    if !tree.inodes.forgot_lately(file.ino, ON_ITS_WAY) {
        return;
    }
    let (offset, length) = (write.offset, u64::from(write.size));
    let is_whole = offset.is_multiple_of(PAGE_BYTES) && length.is_multiple_of(PAGE_BYTES);
    let (told, forgotten) = mpsc::channel();
    let (tree, ino) = (Arc::clone(tree), file.ino);
    let forget = move || {
        tree.forget_pages(ino, offset, length);
        let _ = told.send(());
    };
    dispatcher.submit(Lane::Drive(file.open.handle().drive), Box::new(forget));
    // Otherwise they are forgotten a moment after the answer.
    let _ = forgotten.recv_timeout(if is_whole { WHOLE_PAGES } else { PARTS_OF_PAGES });
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
