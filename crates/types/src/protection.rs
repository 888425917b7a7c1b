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

    /// The options that this version understands in requests.
    pub const SUPPORTED: Protection = Protection::INTEGRITY_ARGS.union(Protection::INTEGRITY_DATA);

    /// Whether the combination has a meaning: integrity of data, and privacy of the capability,
    /// which its key would otherwise not be bound to, rest on integrity of arguments.
    pub fn is_meaningful(self) -> bool {
        let resting = Protection::INTEGRITY_DATA.union(Protection::PRIVACY_CAPABILITY);
        !self.intersects(resting) || self.contains(Protection::INTEGRITY_ARGS)
    }
}
