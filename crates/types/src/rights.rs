//! What a capability allows.

bitflags::bitflags! {
    /// The operations that a capability authorizes on its object (or, for `CREATE`, its partition).
    /// The bits are those of the wire (`specs/nasd.x`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Rights: u32 {
        /// Read data in the region, and ask where there is any (`seek`).
        const READ = 1 << 0;
        /// Write data in the region, and punch holes into it.
        const WRITE = 1 << 1;
        /// Read the attributes, and ask how many blocks overwriting would take.
        const GETATTR = 1 << 2;
        /// Change the attributes.
        const SETATTR = 1 << 3;
        /// Create objects in the partition: a capability for new ones names object 0, one for
        /// copies of an object (`fastcopy`, which also takes `READ` and `GETATTR`) that object.
        const CREATE = 1 << 4;
        /// Remove the object.
        const REMOVE = 1 << 5;
        /// Make the object's data and attributes durable.
        const FLUSH = 1 << 6;
    }
}
