//! Protection options (CMU-CS-97-118, Table 7).

bitflags::bitflags! {
    /// How a request and its reply are protected. The empty set is NO_PROTECTION: digests are
    /// neither made nor checked. The bits are those of the wire (`specs/nasd.x`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Protection: u32 {
        /// The digest covers command, status and nonce.
        const INTEGRITY_ARGS = 1 << 0;
        /// The digest covers the transferred data too; needs `INTEGRITY_ARGS`.
        const INTEGRITY_DATA = 1 << 1;
        /// Command, status and nonce are encrypted.
        const PRIVACY_ARGS = 1 << 2;
        /// Transferred data is encrypted.
        const PRIVACY_DATA = 1 << 3;
        /// The capability is encrypted under the working key.
        const PRIVACY_CAPABILITY = 1 << 4;
    }
}

impl Protection {
    /// NO_PROTECTION of Table 7.
    pub const NONE: Protection = Protection::empty();

    /// The options that this version understands in requests by any key.
    pub const SUPPORTED: Protection = Protection::INTEGRITY_ARGS
        .union(Protection::INTEGRITY_DATA)
        .union(Protection::PRIVACY_DATA);

    /// All options that this version understands: also the one that only requests by a capability can
    /// have.
    pub const UNDERSTOOD: Protection = Protection::SUPPORTED.union(Protection::PRIVACY_CAPABILITY);

    /// Whether the combination has a meaning. All else rests on argument integrity; and privacy of
    /// data on their integrity, as the encryption is authenticated in any case.
    pub fn is_meaningful(self) -> bool {
        let needs = |option, base| !self.contains(option) || self.contains(base);
        (self.is_empty() || self.contains(Protection::INTEGRITY_ARGS))
            && needs(Protection::PRIVACY_DATA, Protection::INTEGRITY_DATA)
    }

    /// Whether this version can do what the options say.
    pub fn is_understood(self) -> bool {
        Protection::UNDERSTOOD.contains(self) && self.is_meaningful()
    }

    /// All combinations that this version understands in requests by any key, each once, weaker ones
    /// before those that contain them.
    pub fn all_understood() -> impl Iterator<Item = Protection> {
        (0..=Protection::SUPPORTED.bits())
            .map(Protection::from_bits_retain)
            .filter(|options| options.is_understood())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_has_a_meaning_or_none() {
        let (args, data) = (Protection::INTEGRITY_ARGS, Protection::INTEGRITY_DATA);
        let of_args = [Protection::PRIVACY_ARGS, Protection::PRIVACY_CAPABILITY];
        let mut meaningful = vec![Protection::NONE];
        for bits in 0..4 {
            let mut privacy = Protection::NONE;
            of_args
                .iter()
                .enumerate()
                .filter(|(bit, _)| bits & 1 << bit != 0)
                .for_each(|(_, option)| privacy |= *option);
            meaningful.extend(
                [args, args | data, args | data | Protection::PRIVACY_DATA]
                    .map(|set| set | privacy),
            );
        }
        assert_eq!(meaningful.len(), 13);
        for bits in 0..32 {
            let set = Protection::from_bits_retain(bits);
            assert_eq!(set.is_meaningful(), meaningful.contains(&set), "{set:?}");
            let understood = set.is_meaningful() && Protection::UNDERSTOOD.contains(set);
            assert_eq!(set.is_understood(), understood, "{set:?}");
            let by_any = understood && Protection::SUPPORTED.contains(set);
            assert_eq!(Protection::all_understood().any(|one| one == set), by_any, "{set:?}");
        }
        assert!(!Protection::from_bits_retain(1 | 1 << 20).is_understood());
    }
}
