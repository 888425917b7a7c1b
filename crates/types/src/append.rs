//! What makes one append unlike all others, however often it is asked for.

/// Drawn at random by whoever appends, once for each append and not for each try of it: a drive that
/// is asked twice by the same token appends once.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AppendToken(pub [u8; AppendToken::BYTES]);

impl AppendToken {
    /// Length in bytes.
    pub const BYTES: usize = 16;
}

impl std::fmt::Debug for AppendToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AppendToken({:032x})", u128::from_be_bytes(self.0))
    }
}
