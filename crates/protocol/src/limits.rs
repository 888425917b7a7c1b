//! Limits of the messages, as in `specs/*.x`. A decoder refuses what exceeds them before anything
//! is allocated for it.

pub use nasd_types::limits::{
    MAX_FLUSH_OBJECTS, MAX_NAME_BYTES, MAX_RECORD_BYTES, MAX_SYMLINK_BYTES, MAX_TRANSFER_BYTES,
};

/// Most regions of one read or write.
pub const MAX_REGIONS: usize = 64;

/// Most pieces that the regions of one read or write may expand to.
pub const MAX_PIECES: usize = 4096;

/// Most operations of one batch.
pub const MAX_BATCH: usize = 1024;

/// Most bytes of the arguments of a batch, and of its answer: with room for the rest of a head, also where
/// they are encrypted.
pub const MAX_BATCH_BYTES: usize = 63 << 10;

/// Longest vendor, model or revision of a drive, in bytes.
pub const MAX_TEXT_BYTES: usize = 64;

/// Longest text of an extension about its arguments, in bytes.
pub const MAX_PARAMETERS_BYTES: usize = 256;

/// Most partitions of a drive.
pub const MAX_PARTITIONS: usize = 1024;

/// Most extensions of a drive.
pub const MAX_EXTENSIONS: usize = 64;

/// Most jobs of extensions that a drive's control object tells of.
pub const MAX_EXTENSION_JOBS: usize = 64;

/// Most bytes that an extension is told.
pub const MAX_EXTENSION_BYTES: usize = 48 << 10;

/// Most records of one answer of `audit`.
pub const MAX_AUDIT_RECORDS: usize = 1024;

/// Most bytes of an answer of `comparepartition`: with room for the rest of a head, also where they are encrypted.
pub const MAX_COMPARISON_BYTES: usize = 60 << 10;

/// Most objects of one answer of `comparepartition`.
pub const MAX_DIFFERENCES: usize = 1024;

/// Most ranges of one object in one answer of `comparepartition`.
pub const MAX_CHANGED_RANGES: usize = 4096;

/// Most appends to one object that are told, as many as a drive remembers.
pub const MAX_MADE_APPENDS: usize = 512;

/// Most algorithm suites that a drive lists.
pub const MAX_SUITES: usize = 16;

/// Longest address of a drive (`HOST:PORT`), in bytes.
pub const MAX_ADDRESS_BYTES: usize = 255;

/// Most components of an object.
pub const MAX_COMPONENTS: usize = 256;

/// Most drives of a cell.
pub const MAX_DRIVES: usize = 1024;

/// Most volumes of a cell.
pub const MAX_VOLUMES: usize = 200;

/// Longest secret of a token that lets somebody join, in bytes.
pub const MAX_TOKEN_BYTES: usize = 64;

/// Longest public key that a certificate is asked for, in bytes.
pub const MAX_PUBLIC_KEY_BYTES: usize = 256;

/// Longest text of certificates, in bytes.
pub const MAX_CERTIFICATE_BYTES: usize = 16384;

/// Longest description of a cell, in bytes.
pub const MAX_CELL_TEXT_BYTES: usize = 16384;

/// Longest value of an extended attribute, in bytes.
pub const MAX_XATTR_VALUE_BYTES: usize = nasd_types::limits::MAX_XATTR_BYTES;

/// Most bytes of the names of a file's extended attributes, each with a zero byte behind it.
pub const MAX_XATTR_LIST_BYTES: usize = nasd_types::limits::MAX_XATTR_BYTES;

/// Most procedures, and most clients, of one answer of `statistics`.
pub const MAX_STATISTICS: usize = 128;

const _: () =
    assert!(MAX_STATISTICS * (28 + MAX_NAME_BYTES + 32) < nasd_types::limits::MAX_HEAD_BYTES);

/// Most files of one `accessed`.
pub const MAX_ACCESSED: usize = 1024;

/// Most directory entries of one answer.
pub const MAX_ENTRIES: usize = 1024;

/// Most files of one answer to `readdirplus` (`NASD_MAX_FILES`).
pub const MAX_FILES: usize = 128;

/// Most files besides the one that is asked for of one `getcaps` (`NASD_MAX_NEIGHBOURS`).
pub const MAX_NEIGHBOURS: usize = 64;

const _: () = assert!((MAX_NEIGHBOURS + 1) * 400 < nasd_types::limits::MAX_HEAD_BYTES);
const _: () = assert!(MAX_VOLUMES * (MAX_NAME_BYTES + 16) < nasd_types::limits::MAX_HEAD_BYTES);
const _: () = assert!(MAX_DRIVES * 48 < nasd_types::limits::MAX_HEAD_BYTES);
/// Most locks, and most removed files, that a client claims or closes in one call.
pub const MAX_CLAIMS: usize = 512;

/// Most events of one answer.
pub const MAX_EVENTS: usize = 1024;

const _: () = assert!(MAX_CLAIMS * (56 + 20) < nasd_types::limits::MAX_HEAD_BYTES);
const _: () = assert!(MAX_EVENTS * 28 < nasd_types::limits::MAX_HEAD_BYTES);
const _: () = assert!(MAX_PIECES >= MAX_REGIONS);
const _: () = assert!(MAX_REGIONS * 28 < nasd_types::limits::MAX_HEAD_BYTES);
const _: () = assert!(MAX_AUDIT_RECORDS * 60 + 64 < nasd_types::limits::MAX_HEAD_BYTES);
const _: () = assert!(MAX_BATCH_BYTES + 1024 <= nasd_types::limits::MAX_HEAD_BYTES);
const _: () = assert!(MAX_COMPARISON_BYTES + 1024 <= nasd_types::limits::MAX_HEAD_BYTES);
const _: () = assert!(MAX_PARTITIONS * 40 < nasd_types::limits::MAX_HEAD_BYTES);
