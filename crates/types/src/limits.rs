//! Limits that both ends of a connection keep to. Their relations are proved below.

/// The unit in which drives allocate and checksum, in bytes.
pub const BLOCK_BYTES: usize = 4096;

/// Most data bytes in one `read` or `write`.
pub const MAX_TRANSFER_BYTES: usize = 4 << 20;

/// Most bytes of a message apart from its bulk data: header, credential, verifier, arguments.
pub const MAX_HEAD_BYTES: usize = 64 << 10;

/// Longest record on the wire; a longer one is refused before anything is allocated for it.
pub const MAX_RECORD_BYTES: usize = MAX_HEAD_BYTES + MAX_TRANSFER_BYTES;

/// Largest object: 2^62 bytes, so that offset arithmetic in blocks and bytes never overflows.
pub const MAX_OBJECT_BYTES: u64 = 1 << 62;

/// Most objects that one `flush` names.
pub const MAX_FLUSH_OBJECTS: usize = 1024;

/// Longest file name, in bytes (POSIX NAME_MAX on Linux).
pub const MAX_NAME_BYTES: usize = 255;

/// Longest symbolic link target, in bytes (POSIX PATH_MAX less the terminator).
pub const MAX_SYMLINK_BYTES: usize = 4095;

/// Longest value of an extended attribute, and longest list of their names, in bytes (as Linux has them).
pub const MAX_XATTR_BYTES: usize = 64 << 10;

/// The most of a message to or from a file manager, in bytes: an attribute's value has room in it.
pub const MAX_MANAGER_HEAD_BYTES: usize = MAX_HEAD_BYTES + (8 << 10);

const _: () = assert!(MAX_XATTR_BYTES + 4096 < MAX_MANAGER_HEAD_BYTES);
const _: () = assert!(MAX_TRANSFER_BYTES.is_multiple_of(BLOCK_BYTES));
const _: () = assert!(MAX_RECORD_BYTES < 1 << 31, "a record mark has 31 bits of length");
const _: () = assert!(MAX_FLUSH_OBJECTS * 8 < MAX_HEAD_BYTES);
