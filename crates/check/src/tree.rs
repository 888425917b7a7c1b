//! The tables of the metadata tree, opened by the tree's library over a region.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use redb::{
    Builder, Database, Key, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable,
    ReadableTableMetadata, TableDefinition, TableError, TableHandle, Value, WriteTransaction,
};

use crate::finding::Code;
use crate::record::{ExtentKey, ObjectKey};
use crate::region::{Backend, Region};
use crate::sink::Sink;

pub(crate) type Definition<K> = TableDefinition<'static, K, &'static [u8]>;

pub(crate) const OBJECTS: Definition<&ObjectKey> = TableDefinition::new("objects");
pub(crate) const SMALL: Definition<&ObjectKey> = TableDefinition::new("small");
pub(crate) const EXTENTS: Definition<&ExtentKey> = TableDefinition::new("extents");
pub(crate) const SUMS: Definition<u64> = TableDefinition::new("sums");
pub(crate) const SHARES: Definition<u64> = TableDefinition::new("shares");
pub(crate) const FAMILIES: Definition<&ObjectKey> = TableDefinition::new("families");
pub(crate) const MEMBERS: Definition<&ExtentKey> = TableDefinition::new("members");
pub(crate) const PARTITIONS: Definition<u32> = TableDefinition::new("partitions");
pub(crate) const DRIVE: Definition<u32> = TableDefinition::new("drive");
pub(crate) const BALLAST: Definition<u32> = TableDefinition::new("ballast");

/// Bytes of pages that the library may keep in memory.
const CACHE_BYTES: usize = 64 << 20;

/// Records of the ballast.
pub(crate) const BALLAST_RECORDS: u32 = 8;

/// What each of them holds.
pub(crate) fn ballast() -> Vec<u8> {
    b"NASD ballast...\n".repeat(192)
}

/// A table of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Table {
    Objects,
    Small,
    Extents,
    Sums,
    Shares,
    Families,
    Members,
    Partitions,
    Drive,
    Ballast,
}

impl Table {
    pub(crate) const ALL: [Table; 10] = [
        Table::Objects,
        Table::Small,
        Table::Extents,
        Table::Sums,
        Table::Shares,
        Table::Families,
        Table::Members,
        Table::Partitions,
        Table::Drive,
        Table::Ballast,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Table::Objects => "objects",
            Table::Small => "small",
            Table::Extents => "extents",
            Table::Sums => "sums",
            Table::Shares => "shares",
            Table::Families => "families",
            Table::Members => "members",
            Table::Partitions => "partitions",
            Table::Drive => "drive",
            Table::Ballast => "ballast",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Table> {
        Table::ALL.into_iter().find(|table| table.name() == name)
    }
}

/// A key of any table; numbers are big-endian here, as in checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum AnyKey {
    Object(ObjectKey),
    Extent(ExtentKey),
    Long(u64),
    Short(u32),
}

impl AnyKey {
    /// The bytes that a record's checksum covers.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            AnyKey::Object(key) => key.to_vec(),
            AnyKey::Extent(key) => key.to_vec(),
            AnyKey::Long(key) => key.to_be_bytes().to_vec(),
            AnyKey::Short(key) => key.to_be_bytes().to_vec(),
        }
    }

    /// The key whose bytes in the tree's pages are these (where numbers are little-endian).
    pub(crate) fn from_page(table: Table, bytes: &[u8]) -> Option<AnyKey> {
        Some(match table {
            Table::Objects | Table::Small | Table::Families => {
                AnyKey::Object(bytes.try_into().ok()?)
            }
            Table::Extents | Table::Members => AnyKey::Extent(bytes.try_into().ok()?),
            Table::Sums | Table::Shares => AnyKey::Long(u64::from_le_bytes(bytes.try_into().ok()?)),
            Table::Partitions | Table::Drive | Table::Ballast => {
                AnyKey::Short(u32::from_le_bytes(bytes.try_into().ok()?))
            }
        })
    }
}

/// A change to one row: `None` removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fix {
    pub(crate) table: Table,
    pub(crate) key: AnyKey,
    pub(crate) value: Option<Vec<u8>>,
}

/// The library, or the medium below it, failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TreeError(pub(crate) String);

macro_rules! from_library {
    ($($error:ty),*) => {
        $(impl From<$error> for TreeError {
            fn from(error: $error) -> TreeError {
                TreeError(error.to_string())
            }
        })*
    };
}

from_library! {
    redb::DatabaseError, redb::TransactionError, redb::TableError, redb::StorageError,
    redb::CommitError, redb::SetDurabilityError
}

/// Runs what uses the library. The library may panic on pages that have right checksums and
/// senseless contents; that is an error like any other here.
pub(crate) fn guarded<T>(run: impl FnOnce() -> Result<T, TreeError>) -> Result<T, TreeError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason");
        Err(TreeError(format!("the tree's library gave up: {text}")))
    })
}

/// Opens the tree of a region, or makes one in a fresh region, with its ballast. With `verify` the
/// library looks at every page, and finds out for itself which are free.
pub(crate) fn open(region: &Arc<Region>, verify: bool) -> Result<Database, TreeError> {
    let fresh = redb::StorageBackend::len(&Backend(region.clone()));
    let fresh = fresh.map_err(|error| TreeError(error.to_string()))? == 0;
    let database = Builder::new()
        .set_cache_size(CACHE_BYTES)
        .set_check_integrity_on_open(verify && !fresh)
        .create_with_backend(Backend(region.clone()))?;
    if fresh {
        // First of all, so that it gets the last pages of the region.
        let transaction = begin(&database)?;
        {
            let mut table = transaction.open_table(BALLAST)?;
            for number in 0..BALLAST_RECORDS {
                table.insert(number, ballast().as_slice())?;
            }
        }
        transaction.commit()?;
    }
    Ok(database)
}

/// A transaction whose commit is in two phases, with the allocator's state.
pub(crate) fn begin(database: &Database) -> Result<WriteTransaction, TreeError> {
    let mut transaction = database.begin_write()?;
    transaction.set_two_phase_commit(true);
    transaction.set_quick_repair(true);
    Ok(transaction)
}

/// Makes tables that are not there, replaces those of a wrong type, and names strangers.
pub(crate) fn prepare(transaction: &WriteTransaction, sink: &mut Sink) -> Result<(), TreeError> {
    let present: Vec<String> =
        transaction.list_tables()?.map(|table| table.name().to_owned()).collect();
    for name in present.iter().filter(|name| Table::from_name(name).is_none()) {
        sink.drive(Code::TableUnknown, format!("table {name:?}"));
        transaction.delete_table(TableDefinition::<u32, u32>::new(name))?;
    }
    let multimaps: Vec<String> = transaction
        .list_multimap_tables()?
        .map(|table| redb::MultimapTableHandle::name(&table).to_owned())
        .collect();
    for name in &multimaps {
        sink.drive(Code::TableUnknown, format!("multimap table {name:?}"));
        transaction.delete_multimap_table(redb::MultimapTableDefinition::<u32, u32>::new(name))?;
    }
    for definition in [OBJECTS, SMALL, FAMILIES] {
        prepare_one(transaction, definition, sink)?;
    }
    for definition in [EXTENTS, MEMBERS] {
        prepare_one(transaction, definition, sink)?;
    }
    for definition in [SUMS, SHARES] {
        prepare_one(transaction, definition, sink)?;
    }
    for definition in [PARTITIONS, DRIVE, BALLAST] {
        prepare_one(transaction, definition, sink)?;
    }
    Ok(())
}

fn prepare_one<K: Key + 'static>(
    transaction: &WriteTransaction,
    definition: TableDefinition<'static, K, &'static [u8]>,
    sink: &mut Sink,
) -> Result<(), TreeError> {
    match transaction.open_table(definition) {
        Ok(_) => Ok(()),
        Err(error @ TableError::Storage(_)) => Err(error.into()),
        Err(error) => {
            sink.drive(Code::TableMalformed, error.to_string());
            transaction.delete_table(definition)?;
            transaction.open_table(definition)?;
            Ok(())
        }
    }
}

/// Changes one row.
pub(crate) fn apply(transaction: &WriteTransaction, fix: &Fix) -> Result<(), TreeError> {
    match (fix.table, &fix.key) {
        (Table::Objects, AnyKey::Object(key)) => put(transaction, OBJECTS, key, fix),
        (Table::Small, AnyKey::Object(key)) => put(transaction, SMALL, key, fix),
        (Table::Families, AnyKey::Object(key)) => put(transaction, FAMILIES, key, fix),
        (Table::Extents, AnyKey::Extent(key)) => put(transaction, EXTENTS, key, fix),
        (Table::Members, AnyKey::Extent(key)) => put(transaction, MEMBERS, key, fix),
        (Table::Sums, AnyKey::Long(key)) => put(transaction, SUMS, *key, fix),
        (Table::Shares, AnyKey::Long(key)) => put(transaction, SHARES, *key, fix),
        (Table::Partitions, AnyKey::Short(key)) => put(transaction, PARTITIONS, *key, fix),
        (Table::Drive, AnyKey::Short(key)) => put(transaction, DRIVE, *key, fix),
        (Table::Ballast, AnyKey::Short(key)) => put(transaction, BALLAST, *key, fix),
        (table, key) => Err(TreeError(format!("{key:?} is no key of {}", table.name()))),
    }
}

fn put<'k, K: Key + 'static>(
    transaction: &WriteTransaction,
    definition: TableDefinition<'static, K, &'static [u8]>,
    key: K::SelfType<'k>,
    fix: &Fix,
) -> Result<(), TreeError> {
    let mut table = transaction.open_table(definition)?;
    match &fix.value {
        Some(value) => drop(table.insert(key, value.as_slice())?),
        None => drop(table.remove(key)?),
    }
    Ok(())
}

/// One state of all tables.
pub(crate) struct Snapshot {
    pub(crate) objects: ReadOnlyTable<&'static ObjectKey, &'static [u8]>,
    pub(crate) small: ReadOnlyTable<&'static ObjectKey, &'static [u8]>,
    pub(crate) extents: ReadOnlyTable<&'static ExtentKey, &'static [u8]>,
    pub(crate) sums: ReadOnlyTable<u64, &'static [u8]>,
    pub(crate) shares: ReadOnlyTable<u64, &'static [u8]>,
    pub(crate) families: ReadOnlyTable<&'static ObjectKey, &'static [u8]>,
    pub(crate) members: ReadOnlyTable<&'static ExtentKey, &'static [u8]>,
    pub(crate) partitions: ReadOnlyTable<u32, &'static [u8]>,
    pub(crate) drive: ReadOnlyTable<u32, &'static [u8]>,
}

impl Snapshot {
    pub(crate) fn new(database: &Database) -> Result<Snapshot, TreeError> {
        let transaction: ReadTransaction = database.begin_read()?;
        Ok(Snapshot {
            objects: transaction.open_table(OBJECTS)?,
            small: transaction.open_table(SMALL)?,
            extents: transaction.open_table(EXTENTS)?,
            sums: transaction.open_table(SUMS)?,
            shares: transaction.open_table(SHARES)?,
            families: transaction.open_table(FAMILIES)?,
            members: transaction.open_table(MEMBERS)?,
            partitions: transaction.open_table(PARTITIONS)?,
            drive: transaction.open_table(DRIVE)?,
        })
    }

    /// Calls `row` with every row of the tables, in their order.
    pub(crate) fn each(
        &self,
        row: &mut dyn FnMut(Fix) -> Result<(), TreeError>,
    ) -> Result<(), TreeError> {
        each_of(&self.objects, Table::Objects, &|key| AnyKey::Object(*key), row)?;
        each_of(&self.small, Table::Small, &|key| AnyKey::Object(*key), row)?;
        each_of(&self.extents, Table::Extents, &|key| AnyKey::Extent(*key), row)?;
        each_of(&self.sums, Table::Sums, &AnyKey::Long, row)?;
        each_of(&self.shares, Table::Shares, &AnyKey::Long, row)?;
        each_of(&self.families, Table::Families, &|key| AnyKey::Object(*key), row)?;
        each_of(&self.members, Table::Members, &|key| AnyKey::Extent(*key), row)?;
        each_of(&self.partitions, Table::Partitions, &AnyKey::Short, row)?;
        each_of(&self.drive, Table::Drive, &AnyKey::Short, row)
    }
}

fn each_of<K: Key + 'static>(
    table: &ReadOnlyTable<K, &'static [u8]>,
    name: Table,
    key_of: &dyn for<'k> Fn(K::SelfType<'k>) -> AnyKey,
    row: &mut dyn FnMut(Fix) -> Result<(), TreeError>,
) -> Result<(), TreeError> {
    for entry in table.iter()? {
        let (key, value) = entry?;
        let key = key_of(key.value());
        row(Fix { table: name, key, value: Some(value.value().to_vec()) })?;
    }
    Ok(())
}

/// Rows of a table in order.
pub(crate) struct Cursor<'a, K: Key + 'static> {
    range: redb::Range<'a, K, &'static [u8]>,
}

impl<'a, K: Key + 'static> Cursor<'a, K> {
    pub(crate) fn new(
        table: &'a ReadOnlyTable<K, &'static [u8]>,
    ) -> Result<Cursor<'a, K>, TreeError> {
        Ok(Cursor { range: table.iter()? })
    }

    /// The next row, its key made by `key_of`.
    pub(crate) fn next<T>(
        &mut self,
        key_of: impl for<'k> Fn(<K as Value>::SelfType<'k>) -> T,
    ) -> Result<Option<(T, Vec<u8>)>, TreeError> {
        match self.range.next() {
            Some(entry) => {
                let (key, value) = entry?;
                Ok(Some((key_of(key.value()), value.value().to_vec())))
            }
            None => Ok(None),
        }
    }
}

/// Rows of a table.
pub(crate) fn rows<K: Key + 'static>(
    table: &ReadOnlyTable<K, &'static [u8]>,
) -> Result<u64, TreeError> {
    Ok(table.len()?)
}
