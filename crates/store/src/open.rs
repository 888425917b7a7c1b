//! Opening a formatted device: finding its superblock, its tree, and from the extents what is free.
//!
//! Nothing has to be replayed: the tree finds its last durable commit by itself, and that is the
//! state of the store. The free map and the accounts are not stored; a scan of all objects and
//! extents makes them (about 0.1 us a record), and checks on the way that no block belongs to two
//! extents and that every object has as many blocks as its record says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use nasd_device::BlockDevice;
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{ObjectName, PartitionId};

use crate::cache::Cache;
use crate::flush::FlushQueue;
use crate::free_map::{FreeMap, Run};
use crate::identifiers::Identifiers;
use crate::metadata::record::{Extent, ObjectRecord, PartitionRecord};
use crate::metadata::{Metadata, TreeError, Visitor};
use crate::space::{Account, Space};
use crate::superblock::{self, Found, Superblock};
use crate::table::ObjectTable;
use crate::{Identity, OpenError, OpenOptions, Store};

/// The smallest cache that can work at all.
const CACHE_BYTES_MIN: usize = 1 << 20;

impl Store {
    /// Reads who the drive is without opening it.
    pub fn read_identity(device: &dyn BlockDevice) -> Result<Identity, OpenError> {
        let superblock = superblock::find(device)?.superblock;
        Ok(Identity { drive: superblock.drive, cell: superblock.cell })
    }

    /// Opens a formatted device. The device's own lock keeps other processes out.
    pub fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Store, OpenError> {
        if options.cache_bytes < CACHE_BYTES_MIN {
            let least = format!("cache_bytes must be at least {CACHE_BYTES_MIN}");
            return Err(OpenError::Options(least));
        }
        let found = superblock::find(&*device)?;
        repair_superblock(&*device, &found)?;
        let Superblock { drive, cell, geometry, .. } = found.superblock;
        let metadata = Metadata::open(device.clone(), &geometry, options.metadata_cache_bytes)?;
        let (drive_key, object_limit, partitions) = metadata.drive()?;
        let partitions: BTreeMap<PartitionId, PartitionRecord> = partitions.into_iter().collect();
        let mut scan = Scan::new(geometry.data_blocks, &partitions);
        metadata.scan(&mut scan)?;
        let accounts = scan.finish(object_limit)?;
        Ok(Store {
            device,
            geometry,
            identity: Identity { drive, cell },
            drive_key,
            partitions,
            metadata,
            cache: Cache::new(options.cache_bytes)?,
            table: ObjectTable::new(),
            accounts: Mutex::new(accounts),
            identifiers: Identifiers::new(object_limit),
            queue: FlushQueue::default(),
            read_only: OnceLock::new(),
            options: options.clone(),
        })
    }
}

impl From<TreeError> for OpenError {
    fn from(error: TreeError) -> Self {
        OpenError::Damaged(error.to_string())
    }
}

/// Writes the superblock that is missing, damaged or old anew from the good one.
fn repair_superblock(device: &dyn BlockDevice, found: &Found) -> Result<(), OpenError> {
    let Some(place) = found.stale else {
        return Ok(());
    };
    tracing::warn!(place, "one superblock was damaged; it is written anew from the other");
    superblock::write_place(device, place, &found.superblock.encode())?;
    Ok(())
}

/// What is learned from all records of the tree.
struct Scan {
    free: FreeMap,
    data_blocks: u64,
    accounts: BTreeMap<PartitionId, Account>,
    /// Blocks that the records of objects announce and that extents have not shown yet.
    missing: BTreeMap<ObjectName, u64>,
    highest_object: u64,
    /// The object of the last extent, and the block behind it.
    last: Option<(ObjectName, u64)>,
}

impl Scan {
    fn new(data_blocks: u64, partitions: &BTreeMap<PartitionId, PartitionRecord>) -> Scan {
        let account = |record: &PartitionRecord| Account {
            quota_blocks: match record.quota_bytes {
                u64::MAX => u64::MAX,
                bytes => bytes / BLOCK_BYTES as u64,
            },
            ..Account::default()
        };
        Scan {
            free: FreeMap::new(data_blocks),
            data_blocks,
            accounts: partitions.iter().map(|(id, record)| (*id, account(record))).collect(),
            missing: BTreeMap::new(),
            highest_object: 0,
            last: None,
        }
    }

    fn finish(self, object_limit: u64) -> Result<Space, OpenError> {
        if let Some((name, blocks)) = self.missing.first_key_value() {
            let what = format!("object {name} lacks {blocks} of the blocks it should have");
            return Err(OpenError::Damaged(what));
        }
        if self.highest_object >= object_limit {
            let what = "an object's identifier is above those given out".to_owned();
            return Err(OpenError::Damaged(what));
        }
        let mut accounts = Space::new(self.free, self.data_blocks);
        for (partition, account) in self.accounts {
            accounts.add_partition(partition, account);
        }
        Ok(accounts)
    }
}

fn damaged<T>(what: String) -> Result<T, TreeError> {
    Err(TreeError::Damaged(what))
}

impl Visitor for Scan {
    fn object(&mut self, name: ObjectName, record: &ObjectRecord) -> Result<(), TreeError> {
        let Some(account) = self.accounts.get_mut(&name.partition) else {
            return damaged(format!("object {name} belongs to no partition"));
        };
        account.objects += 1;
        account.charged += record.blocks_used.max(record.blocks_reserved);
        if record.blocks_used > 0 {
            self.missing.insert(name, record.blocks_used);
        }
        self.highest_object = self.highest_object.max(name.object.0);
        Ok(())
    }

    fn extent(&mut self, name: ObjectName, extent: &Extent) -> Result<(), TreeError> {
        if self.last.is_some_and(|(last, end)| last == name && extent.logical < end) {
            return damaged(format!("two extents of object {name} overlap"));
        }
        self.last = Some((name, extent.end()));
        if !self.free.claim(Run { start: extent.physical, blocks: extent.blocks() }) {
            return damaged(format!("a block of object {name} belongs to another extent too"));
        }
        let announced = self.missing.get_mut(&name);
        match announced.map(|left| (left.checked_sub(extent.blocks()), left)) {
            Some((Some(0), _)) => {
                self.missing.remove(&name);
            }
            Some((Some(rest), left)) => *left = rest,
            _ => return damaged(format!("object {name} has more blocks than it should")),
        }
        Ok(())
    }
}
