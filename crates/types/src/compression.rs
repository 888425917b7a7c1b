//! How a partition's new data is compressed (CMU-CS-97-118, section 2.3).

/// The codec for data written from now on. The numbers are those of the wire (`specs/nasd.x`) and of
/// the medium (docs/on-disk-format.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Compression {
    /// Data is stored as it is.
    #[default]
    None = 0,
    /// LZ4: quick both ways.
    Lz4 = 1,
    /// Zstandard: smaller.
    Zstd = 2,
}

impl Compression {
    /// The codec of that number.
    pub const fn from_number(number: u8) -> Option<Compression> {
        match number {
            0 => Some(Compression::None),
            1 => Some(Compression::Lz4),
            2 => Some(Compression::Zstd),
            _ => None,
        }
    }
}
