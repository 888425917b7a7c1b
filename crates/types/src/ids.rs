//! Identifiers. Each is a newtype, so that a partition can't be passed where an object is meant.

use std::fmt;

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident($inner:ty), $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

identifier! {
    /// A drive's worldwide unique name, drawn at random when the drive is formatted
    /// (CMU-CS-97-118 section 2.4, footnote 1: 64-bit unique device names). Its text is
    /// the 16 digits by which commands know it, so that it can be copied from whatever tells it.
    DriveId(u64), "{:016x}"
}
identifier! {
    /// A partition of one drive: a quota and a set of keys, not a place.
    PartitionId(u32), "p{:x}"
}
identifier! {
    /// An object of one partition. Never used again after the object is removed: drives see to that for those
    /// that they give out, and who chooses one for those from [`ObjectId::FIRST_NAMED`] on.
    ObjectId(u64), "o{:x}"
}
identifier! {
    /// What a capability was issued for, chosen by the file manager and kept in audit records.
    AuditId(u64), "a{:x}"
}

impl PartitionId {
    /// Kept by each drive for its audit trail. No request reaches it, by whatever key.
    pub const AUDIT: PartitionId = PartitionId(u32::MAX);
}

impl ObjectId {
    /// Well-known object (Table 4): the drive's clock, parameters, partitions and counters.
    pub const DRIVE_CONTROL: ObjectId = ObjectId(1);
    /// Well-known object (Table 4): one partition's size and use.
    pub const PARTITION_CONTROL: ObjectId = ObjectId(2);
    /// Well-known object (Table 4): the identifiers of the partition's objects.
    pub const PARTITION_CONTENTS: ObjectId = ObjectId(3);
    /// Well-known object (Table 4): ordinary, created empty with the partition.
    pub const FIRST_OBJECT: ObjectId = ObjectId(4);
    /// The lowest identifier that `create` gives out; those below are reserved.
    pub const FIRST_DYNAMIC: ObjectId = ObjectId(64);
    /// The lowest identifier that holders of a partition's keys choose; drives give out those below.
    pub const FIRST_NAMED: ObjectId = ObjectId(1 << 56);
    /// No identifier is as high, so that the list of a partition's objects has a place for each.
    pub const END: ObjectId = ObjectId(1 << 59);

    /// Whether it is one that a holder of keys may choose.
    pub const fn is_named(self) -> bool {
        self.0 >= Self::FIRST_NAMED.0 && self.0 < Self::END.0
    }
}

/// Where the objects of a part of a volume are. Files are known by where that part was made; it may have been moved since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The drive.
    pub drive: DriveId,
    /// The partition of that drive.
    pub partition: PartitionId,
}

/// An object's name within its drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// The partition that holds it.
    pub partition: PartitionId,
    /// The object.
    pub object: ObjectId,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.partition, self.object)
    }
}

/// One installation: its drives, managers and keys. 128 random bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CellId(pub [u8; 16]);

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for CellId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const ERROR: &str = "a cell identifier is 32 hexadecimal digits";
        if text.len() != 32 || !text.is_ascii() {
            return Err(ERROR);
        }
        let mut bytes = [0; 16];
        for (index, byte) in bytes.iter_mut().enumerate() {
            let digits = &text[2 * index..2 * index + 2];
            *byte = u8::from_str_radix(digits, 16).map_err(|_| ERROR)?;
        }
        Ok(CellId(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_id_survives_its_text() {
        let id = CellId([0xab; 16]);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("xy".parse::<CellId>().is_err());
        assert!("\u{e9}".repeat(16).parse::<CellId>().is_err());
    }

    #[test]
    fn a_drive_is_named_as_commands_take_it() {
        assert_eq!(DriveId(0xbda7_5098_ea57_b63b).to_string(), "bda75098ea57b63b");
        assert_eq!(format!("{:?}", DriveId(0x2f)), "000000000000002f");
        assert_eq!(PartitionId(0x1f).to_string(), "p1f");
    }

    #[test]
    fn every_identifier_has_a_place_in_the_list() {
        // The list has identifier n at byte 8 * n, and is an object like others.
        assert_eq!(ObjectId::END.0.checked_mul(8), Some(crate::limits::MAX_OBJECT_BYTES));
        assert!(ObjectId::FIRST_DYNAMIC < ObjectId::FIRST_NAMED);
        for (identifier, named) in [
            (ObjectId::FIRST_OBJECT, false),
            (ObjectId(ObjectId::FIRST_NAMED.0 - 1), false),
            (ObjectId::FIRST_NAMED, true),
            (ObjectId(ObjectId::END.0 - 1), true),
            (ObjectId::END, false),
            (ObjectId(u64::MAX), false),
        ] {
            assert_eq!(identifier.is_named(), named, "{identifier}");
        }
    }
}
