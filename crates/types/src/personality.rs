//! How a volume behaves for those who share its files.

use std::fmt;
use std::str::FromStr;

/// How a volume behaves for those who share its files (CMU-CS-97-118, section 3). The numbers are those of the wire
/// (`specs/manager.x`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Personality {
    /// What one client writes, others see when they open the file.
    #[default]
    Nfs = 0,
    /// Clients keep what they have read as long as nobody has stored something else, of which they are told before that
    /// is done.
    Afs = 1,
}

/// Text that names no personality.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPersonality(pub String);

impl Personality {
    /// All there are.
    pub const ALL: [Personality; 2] = [Personality::Nfs, Personality::Afs];

    /// Its name in commands and configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Personality::Nfs => "nfs",
            Personality::Afs => "afs",
        }
    }

    /// The one with this number on the wire.
    pub fn from_number(number: u32) -> Option<Personality> {
        Personality::ALL.into_iter().find(|known| *known as u32 == number)
    }
}

impl fmt::Display for Personality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Personality {
    type Err = UnknownPersonality;

    fn from_str(text: &str) -> Result<Personality, UnknownPersonality> {
        let found = Personality::ALL.into_iter().find(|known| known.name() == text);
        found.ok_or_else(|| UnknownPersonality(text.to_owned()))
    }
}

impl fmt::Display for UnknownPersonality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no personality: there are `nfs` and `afs`", self.0)
    }
}

impl std::error::Error for UnknownPersonality {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_back() {
        for personality in Personality::ALL {
            assert_eq!(personality.name().parse(), Ok(personality));
            assert_eq!(Personality::from_number(personality as u32), Some(personality));
        }
        assert!("ufs".parse::<Personality>().is_err() && Personality::from_number(2).is_none());
    }
}
