//! What to look for in an object that has holes.

/// What the next position should have. The numbers are those of the wire (`specs/nasd.x`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum SeekTarget {
    /// Bytes that were written and not punched out since, in whole blocks.
    Data = 0,
    /// Bytes that were never written, or punched out. There is one at the end of every object.
    Hole = 1,
}
