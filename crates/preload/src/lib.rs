//! The preload library `libnasd_bulk.so`: programs that know nothing of the bulk service use it (`docs/bulk-preload.md`).
//!
//! It has the C library's functions for files, by the same names, in front of them. What a program opens with `O_DIRECT` on a
//! mount of a cell, or below a prefix of `NASD_BULK_MAP`, is read and written by the bulk service; all the rest goes on
//! to the C library, and so does what can't be done by bulk.
//!
//! * [`exported`]: the functions that programs call instead of the C library's; [`real`] has the latter.
//! * [`mapped`]: a file whose bytes go by bulk; [`table`] knows which descriptors are of one.
//! * [`origin`], [`grant`], [`served`]: where the authority for it comes from.
//! * [`c`]: the same for programs that do know of it (`include/nasd_bulk.h`).

pub mod c;
mod config;
mod error;
pub mod exported;
mod grant;
mod guard;
mod hook;
mod location;
mod map;
mod mapped;
mod origin;
mod own;
mod parts;
mod pool;
mod process;
mod real;
mod served;
mod table;
mod telling;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod verify;
