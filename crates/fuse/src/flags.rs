//! Sets of bits in requests and answers, by the names that the kernel's header gives them.

bitflags::bitflags! {
    /// What kernel and file system can do, agreed on at the start.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InitFlags: u64 {
        /// Reads of one file side by side.
        const ASYNC_READ = 1 << 0;
        /// POSIX locks are asked for.
        const POSIX_LOCKS = 1 << 1;
        /// `open` may carry `O_TRUNC`.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// `.` and `..` can be looked up.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes of more than a page.
        const BIG_WRITES = 1 << 5;
        /// The file system applies the umask.
        const DONT_MASK = 1 << 6;
        /// BSD locks are asked for.
        const FLOCK_LOCKS = 1 << 10;
        /// Pages go when times or length change.
        const AUTO_INVAL_DATA = 1 << 12;
        /// Listings come with attributes.
        const DO_READDIRPLUS = 1 << 13;
        /// The kernel chooses when they do.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Direct requests of one call side by side.
        const ASYNC_DIO = 1 << 15;
        /// The kernel keeps writes back.
        const WRITEBACK_CACHE = 1 << 16;
        /// `open` may be left out.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Requests about one directory side by side.
        const PARALLEL_DIROPS = 1 << 18;
        /// The file system clears set-user-id bits.
        const HANDLE_KILLPRIV = 1 << 19;
        /// POSIX access control lists, checked by the kernel.
        const POSIX_ACL = 1 << 20;
        /// Reading after an abort tells so.
        const ABORT_ERROR = 1 << 21;
        /// The answer has `max_pages`.
        const MAX_PAGES = 1 << 22;
        /// Targets of symbolic links are kept.
        const CACHE_SYMLINKS = 1 << 23;
        /// `opendir` may be left out.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// Pages go only when the file system says.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// As `HANDLE_KILLPRIV`, by the rules of the kernel's own file systems.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// `setxattr` has flags of its own.
        const SETXATTR_EXT = 1 << 29;
        /// Bits from 32 on count.
        const INIT_EXT = 1 << 30;
        /// Making a file carries a security context.
        const SECURITY_CTX = 1 << 32;
        /// Making a file carries the directory's group, if the caller is in it.
        const CREATE_SUPP_GROUP = 1 << 34;
        /// Names can be made to expire.
        const HAS_EXPIRE_ONLY = 1 << 35;
        /// Files opened with `DIRECT_IO` can be mapped shared.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// `.` and `..` can't be looked up.
        const NO_EXPORT_SUPPORT = 1 << 38;
        /// The kernel sends again what was not answered, when asked to.
        const HAS_RESEND = 1 << 39;
    }

    /// How the kernel is to treat an open file.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OpenedFlags: u32 {
        /// Around the page cache.
        const DIRECT_IO = 1 << 0;
        /// The pages that are there are good.
        const KEEP_CACHE = 1 << 1;
        /// It has no positions.
        const NONSEEKABLE = 1 << 2;
        /// The listing of this directory may be kept.
        const CACHE_DIR = 1 << 3;
        /// It is a stream.
        const STREAM = 1 << 4;
        /// Nobody need be asked when it is closed.
        const NOFLUSH = 1 << 5;
        /// Direct writes of this file side by side.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
    }

    /// About a write.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct WriteFlags: u32 {
        /// From the page cache: by whom is not known.
        const CACHE = 1 << 0;
        /// The owner of locks counts.
        const LOCK_OWNER = 1 << 1;
        /// Set-user-id bits are to go.
        const KILL_SUIDGID = 1 << 2;
    }

    /// About a closing.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ReleaseFlags: u32 {
        /// With all that `flush` does.
        const FLUSH = 1 << 0;
        /// BSD locks of this opening end.
        const FLOCK_UNLOCK = 1 << 1;
    }
}
