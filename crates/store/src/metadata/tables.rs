//! The tables of the tree, and those of one write transaction, opened when they are first needed.

use redb::{Table, TableDefinition, WriteTransaction};

use super::TreeError;
use super::record::{ExtentKey, ObjectKey};

type Objects = TableDefinition<'static, &'static ObjectKey, &'static [u8]>;
type Extents = TableDefinition<'static, &'static ExtentKey, &'static [u8]>;
type Blocks = TableDefinition<'static, u64, &'static [u8]>;
type Numbered = TableDefinition<'static, u32, &'static [u8]>;

pub(crate) const OBJECTS: Objects = TableDefinition::new("objects");
pub(crate) const SMALL: Objects = TableDefinition::new("small");
pub(crate) const EXTENTS: Extents = TableDefinition::new("extents");
pub(crate) const SUMS: Blocks = TableDefinition::new("sums");
pub(crate) const SHARES: Blocks = TableDefinition::new("shares");
pub(crate) const FAMILIES: Objects = TableDefinition::new("families");
pub(crate) const MEMBERS: Extents = TableDefinition::new("members");
pub(crate) const PARTITIONS: Numbered = TableDefinition::new("partitions");
pub(crate) const DRIVE: Numbered = TableDefinition::new("drive");
pub(crate) const BALLAST: Numbered = TableDefinition::new("ballast");

pub(super) type ObjectTable<'t> = Table<'t, &'static ObjectKey, &'static [u8]>;
pub(super) type ExtentTable<'t> = Table<'t, &'static ExtentKey, &'static [u8]>;
pub(super) type BlockTable<'t> = Table<'t, u64, &'static [u8]>;
pub(super) type NumberedTable<'t> = Table<'t, u32, &'static [u8]>;

/// The tables of one transaction.
pub(super) struct Tables<'t> {
    transaction: &'t WriteTransaction,
    objects: Option<ObjectTable<'t>>,
    small: Option<ObjectTable<'t>>,
    extents: Option<ExtentTable<'t>>,
    sums: Option<BlockTable<'t>>,
    shares: Option<BlockTable<'t>>,
    families: Option<ObjectTable<'t>>,
    members: Option<ExtentTable<'t>>,
    partitions: Option<NumberedTable<'t>>,
    drive: Option<NumberedTable<'t>>,
}

/// Opens a table the first time.
macro_rules! opened {
    ($name:ident, $definition:ident, $table:ident) => {
        pub(super) fn $name(&mut self) -> Result<&mut $table<'t>, TreeError> {
            match &mut self.$name {
                Some(table) => Ok(table),
                slot => Ok(slot.insert(self.transaction.open_table($definition)?)),
            }
        }
    };
}

impl<'t> Tables<'t> {
    pub(super) fn new(transaction: &'t WriteTransaction) -> Tables<'t> {
        Tables {
            transaction,
            objects: None,
            small: None,
            extents: None,
            sums: None,
            shares: None,
            families: None,
            members: None,
            partitions: None,
            drive: None,
        }
    }

    opened!(objects, OBJECTS, ObjectTable);
    opened!(small, SMALL, ObjectTable);
    opened!(extents, EXTENTS, ExtentTable);
    opened!(sums, SUMS, BlockTable);
    opened!(shares, SHARES, BlockTable);
    opened!(families, FAMILIES, ObjectTable);
    opened!(members, MEMBERS, ExtentTable);
    opened!(partitions, PARTITIONS, NumberedTable);
    opened!(drive, DRIVE, NumberedTable);
}
