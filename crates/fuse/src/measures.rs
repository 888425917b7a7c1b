//! How many requests there were of each kind, how they ended, and how long they took.

use std::time::Duration;

use nasd_metrics::{Counter, Histogram, Page};

/// Kinds of requests are numbered below this, but for what nobody here asks for.
const KINDS: usize = 64;

/// Names of the kinds by their numbers, as `linux/fuse.h` has them; nothing for numbers that are free, and
/// for requests without an answer.
const NAMES: [&str; KINDS] = [
    "",
    "lookup",
    "",
    "getattr",
    "setattr",
    "readlink",
    "symlink",
    "",
    "mknod",
    "mkdir",
    "unlink",
    "rmdir",
    "rename",
    "link",
    "open",
    "read",
    "write",
    "statfs",
    "release",
    "",
    "fsync",
    "setxattr",
    "getxattr",
    "listxattr",
    "removexattr",
    "flush",
    "init",
    "opendir",
    "readdir",
    "releasedir",
    "fsyncdir",
    "getlk",
    "setlk",
    "setlkw",
    "access",
    "create",
    "",
    "bmap",
    "destroy",
    "ioctl",
    "poll",
    "",
    "",
    "fallocate",
    "readdirplus",
    "rename2",
    "lseek",
    "copy_file_range",
    "",
    "",
    "syncfs",
    "tmpfile",
    "statx",
    "copy_file_range_64",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
];

/// What is counted of one kind.
#[derive(Debug, Default)]
struct ByKind {
    failed: Counter,
    times: Histogram,
}

/// The counters of a session.
#[derive(Debug)]
pub struct Measures {
    kinds: [ByKind; KINDS],
}

impl Default for Measures {
    fn default() -> Self {
        Measures { kinds: std::array::from_fn(|_| ByKind::default()) }
    }
}

impl Measures {
    /// A request was answered.
    pub(crate) fn count(&self, opcode: u32, failed: bool, taken: Duration) {
        let Some(kind) = self.kinds.get(opcode as usize) else { return };
        kind.times.count(taken);
        if failed {
            kind.failed.add(1);
        }
    }

    /// Puts the families of samples into a page.
    pub fn put(&self, page: &mut Page) {
        let named = || NAMES.iter().zip(&self.kinds).filter(|(name, _)| !name.is_empty());
        let name = "nasd_mount_failures_total";
        let help = "Requests of the kernel that were answered with an error.";
        page.family(name, "counter", help);
        for (operation, kind) in named().filter(|(_, kind)| kind.failed.get() > 0) {
            page.sample(name, &[("operation", operation)], kind.failed.get());
        }
        let name = "nasd_mount_request_seconds";
        let help = "Time from the receipt of a request of the kernel to its answer.";
        page.family(name, "histogram", help);
        for (operation, kind) in named() {
            page.histogram(name, &[("operation", operation)], &kind.times);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_names() {
        let measures = Measures::default();
        for (opcode, failed) in [(1, true), (1, false), (15, false), (52, false), (4096, true)] {
            measures.count(opcode, failed, Duration::from_micros(1));
        }
        let mut page = Page::default();
        measures.put(&mut page);
        let text = page.into_text();
        let has = |line: &str| assert!(text.contains(line), "{line} in {text}");
        has("nasd_mount_failures_total{operation=\"lookup\"} 1\n");
        has("nasd_mount_request_seconds_count{operation=\"lookup\"} 2\n");
        has("nasd_mount_request_seconds_count{operation=\"read\"} 1\n");
        has("nasd_mount_request_seconds_count{operation=\"statx\"} 1\n");
        assert!(!text.contains("operation=\"write\""));
    }
}
