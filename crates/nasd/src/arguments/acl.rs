//! `nasd acl`, as the user types it.

use clap::Subcommand;

/// `nasd acl`. Lists are of directories of volumes of the personality `afs`. DIR is VOLUME:/dir, or a path under a mount.
#[derive(Debug, Subcommand)]
pub enum AclCommand {
    /// Print the list of a directory, or the one that governs a file.
    Show {
        /// VOLUME:/path, or a path under a mount.
        path: String,
    },
    /// Give somebody exactly these rights in a directory, and in all files in it. Returns when nobody can use any other.
    Set {
        /// DIR. One without a list gets one, with all rights for its owner.
        path: String,
        /// A user's name or user:N, group:NAME or group:N; anyuser, authuser, administrators.
        who: String,
        /// Letters of rlidwka (read, lookup, insert, delete, write, lock, administer), or a word: read (rl), write (rlidwk), all, none.
        rights: String,
        /// Take these rights away, whatever other entries give.
        #[arg(long)]
        negative: bool,
        /// Remove all other entries.
        #[arg(long)]
        clear: bool,
    },
    /// Remove somebody's entry; without WHO the whole list, so that modes decide again.
    Remove {
        /// DIR.
        path: String,
        /// As of `set`.
        who: Option<String>,
        /// The entry that takes rights away.
        #[arg(long, requires = "who")]
        negative: bool,
    },
    /// Give directories the list of another one.
    Copy {
        /// DIR whose list it is.
        from: String,
        /// DIRs that get it.
        #[arg(required = true)]
        to: Vec<String>,
    },
}
