//! What a capability allows.

bitflags::bitflags! {
    /// The operations that a capability authorizes on its object (or, for `CREATE`, its partition).
    /// The bits are those of the wire (`specs/nasd.x`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Rights: u32 {
        /// Read data in the region.
        const READ = 1 << 0;
        /// Write data in the region.
        const WRITE = 1 << 1;
        /// Read the attributes.
        const GETATTR = 1 << 2;
        /// Change the attributes.
        const SETATTR = 1 << 3;
        /// Create objects in the partition; such a capability names object 0.
        const CREATE = 1 << 4;
        /// Remove the object.
        const REMOVE = 1 << 5;
        /// Make the object's data and attributes durable.
        const FLUSH = 1 << 6;
    }
}
