//! A small writer of drives, independent of the crate that it tests and of the store: it builds
//! tables from a model, byte by byte as docs/on-disk-format.md says, so that a test can then break
//! any rule of it.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "compiled for tests alone")]

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nasd_device::{BlockDevice, MemoryDevice};
use redb::{Builder, StorageBackend, TableDefinition};

pub const BLOCK: usize = 4096;
pub const LOG_AT: u64 = 1 << 20;
pub const LOG_BYTES: u64 = 256 << 10;
pub const METADATA_AT: u64 = LOG_AT + LOG_BYTES;
pub const METADATA_BYTES: u64 = 2 << 20;
pub const DATA_AT: u64 = METADATA_AT + METADATA_BYTES;
pub const DATA_BLOCKS: u64 = 512;
pub const DRIVE: u64 = 0xd1;
pub const LOG_KEY: u64 = 0x5ec4e7;

/// A table's name and a key, in the byte order of checksums.
pub type Key = (&'static str, Vec<u8>);

/// A drive to be written.
#[derive(Clone, Default)]
pub struct Image {
    pub rows: BTreeMap<Key, Vec<u8>>,
    pub blocks: BTreeMap<u64, Vec<u8>>,
    /// Entries of the log and where they are.
    pub entries: Vec<(u64, Vec<u8>)>,
    /// Make it without ballast.
    pub no_ballast: bool,
    /// A table that does not belong.
    pub stranger: bool,
    /// Give `families` keys of another type.
    pub wrong_type: bool,
}

pub fn object_key(partition: u32, object: u64) -> Vec<u8> {
    [&partition.to_be_bytes()[..], &object.to_be_bytes()].concat()
}

pub fn extent_key(partition: u32, object: u64, logical: u64) -> Vec<u8> {
    [object_key(partition, object), logical.to_be_bytes().to_vec()].concat()
}

pub fn long(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

pub fn short(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

pub fn set32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub fn set64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Sets the checksum of a record.
pub fn seal(key: &[u8], record: &mut [u8]) {
    set32(record, 4, 0);
    let sum = crc32c::crc32c_append(crc32c::crc32c(key), record);
    set32(record, 4, sum);
}

fn record(length: usize, fields: &[(usize, u64)]) -> Vec<u8> {
    let mut bytes = vec![0; length];
    bytes[0] = 2;
    for (at, value) in fields {
        set64(&mut bytes, *at, *value);
    }
    bytes
}

pub fn extent_record(physical: u64, blocks: u32, stored: u32, length: u32, codec: u8) -> Vec<u8> {
    let mut bytes = record(32, &[(8, physical)]);
    bytes[1] = codec;
    set32(&mut bytes, 16, blocks);
    set32(&mut bytes, 20, stored);
    set32(&mut bytes, 24, length);
    bytes
}

pub fn share_record(partition: u32, family: u64, blocks: u32, count: u32) -> Vec<u8> {
    let mut bytes = record(32, &[(24, family)]);
    set32(&mut bytes, 8, partition);
    set32(&mut bytes, 12, blocks);
    set32(&mut bytes, 16, count);
    bytes
}

pub fn object_record(size: u64, used: u64, family: u64) -> Vec<u8> {
    record(360, &[(32, size), (48, used), (56, family), (64, 1_000)])
}

pub fn partition_record(objects: u64, charged: u64) -> Vec<u8> {
    record(144, &[(8, u64::MAX), (16, objects), (24, charged)])
}

pub fn family_record(shared: u64, members: u64) -> Vec<u8> {
    record(24, &[(8, shared), (16, members)])
}

pub fn mark_record(applied: u64, next_offset: u64) -> Vec<u8> {
    record(24, &[(8, applied), (16, next_offset)])
}

pub fn small_record(contents: &[u8]) -> Vec<u8> {
    [&record(8, &[])[..], contents].concat()
}

/// Contents that compress, and are not the same for two seeds.
pub fn soft(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|index| seed.wrapping_add((index / 300) as u8)).collect()
}

/// Contents that do not repeat soon.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

impl Image {
    /// Puts a row, sealing it.
    pub fn put(&mut self, table: &'static str, key: Vec<u8>, mut value: Vec<u8>) {
        if !["members", "ballast"].contains(&table) {
            seal(&key, &mut value);
        }
        self.rows.insert((table, key), value);
    }

    /// Changes a row and seals it again.
    pub fn edit(&mut self, table: &'static str, key: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) {
        let mut value = self.rows[&(table, key.clone())].clone();
        change(&mut value);
        self.put(table, key, value);
    }

    /// Damages a row: its checksum is wrong then.
    pub fn damage(&mut self, table: &'static str, key: Vec<u8>) {
        let value = self.rows.get_mut(&(table, key)).unwrap();
        let last = value.len() - 1;
        value[last] ^= 0x40;
    }

    pub fn remove(&mut self, table: &'static str, key: Vec<u8>) {
        self.rows.remove(&(table, key)).unwrap();
    }

    /// Sets the contents of a data block, and its checksum.
    pub fn block(&mut self, number: u64, contents: &[u8]) {
        let mut block = contents.to_vec();
        block.resize(BLOCK, 0);
        let sum = crc32c::crc32c(&block);
        self.blocks.insert(number, block);
        let key = long(number / 128);
        if !self.rows.contains_key(&("sums", key.clone())) {
            self.put("sums", key.clone(), record(520, &[]));
        }
        self.edit("sums", key, |sums| set32(sums, 8 + 4 * (number % 128) as usize, sum));
    }

    /// Puts an uncompressed extent with contents of `bytes`.
    pub fn extent(&mut self, object: (u32, u64), logical: u64, physical: u64, bytes: &[u8]) {
        let blocks = bytes.len().div_ceil(BLOCK) as u32;
        for (number, block) in (physical..).zip(bytes.chunks(BLOCK)) {
            self.block(number, block);
        }
        let key = extent_key(object.0, object.1, logical);
        self.put("extents", key, extent_record(physical, blocks, blocks, 0, 0));
    }

    /// Puts a compressed extent of 16 blocks; how many data blocks it takes.
    pub fn compressed(
        &mut self,
        object: (u32, u64),
        physical: u64,
        stream: &[u8],
        codec: u8,
    ) -> u64 {
        let stored = stream.len().div_ceil(BLOCK) as u32;
        for (number, block) in (physical..).zip(stream.chunks(BLOCK)) {
            self.block(number, block);
        }
        let key = extent_key(object.0, object.1, 0);
        let length = stream.len() as u32;
        self.put("extents", key, extent_record(physical, 16, stored, length, codec));
        u64::from(stored)
    }

    /// A drive with something of everything, and nothing wrong.
    pub fn sample() -> Image {
        let mut image = Image::default();
        for number in 0..8 {
            image.put("ballast", short(number), b"NASD ballast...\n".repeat(192));
        }
        let mut keys = record(72, &[(8, 5), (40, 6)]);
        keys[1] = 3;
        image.put("drive", short(1), keys);
        image.put("drive", short(2), record(48, &[(8, 128)]));
        image.put("drive", short(3), mark_record(0, 0));
        image.put("objects", object_key(1, 4), object_record(0, 0, 0));
        image.put("objects", object_key(2, 4), object_record(0, 0, 0));
        // A file of 10000 bytes, in two extents.
        image.put("objects", object_key(1, 64), object_record(10_000, 3, 0));
        image.extent((1, 64), 0, 10, &noise(1, 8192));
        image.extent((1, 64), 2, 20, &noise(2, 10_000 - 8192));
        // Small contents.
        let mut small = object_record(100, 0, 0);
        small[1] = 1;
        image.put("objects", object_key(1, 65), small);
        image.put("small", object_key(1, 65), small_record(&noise(3, 90)));
        // Two that share four blocks; the first has one for itself.
        image.put("objects", object_key(1, 66), object_record(5 * 4096, 1, 66));
        image.put("objects", object_key(1, 67), object_record(4 * 4096, 0, 66));
        image.extent((1, 66), 0, 30, &noise(4, 5 * 4096));
        image.put("extents", extent_key(1, 67, 0), extent_record(30, 4, 4, 0, 0));
        image.put("shares", long(30), share_record(1, 66, 4, 2));
        image.put("families", object_key(1, 66), family_record(4, 2));
        image.put("members", extent_key(1, 66, 66), Vec::new());
        image.put("members", extent_key(1, 66, 67), Vec::new());
        // Compressed, both ways.
        let plain = soft(5, 16 * BLOCK);
        let mut charged = 3 + 1 + 4;
        for (object, physical, stream, codec) in [
            (68, 50, lz4_flex::block::compress(&plain), 1),
            (69, 130, zstd::bulk::compress(&plain, 1).unwrap(), 2),
        ] {
            let stored = image.compressed((1, object), physical, &stream, codec);
            image.put("objects", object_key(1, object), object_record(65_536, stored, 0));
            charged += stored;
        }
        image.put("objects", object_key(2, 70), object_record(4096, 1, 0));
        image.extent((2, 70), 0, 200, &noise(6, 4096));
        image.put("partitions", short(1), partition_record(7, charged));
        image.put("partitions", short(2), partition_record(2, 1));
        image
    }

    /// Adds an entry to the log.
    pub fn entry(&mut self, offset: u64, sequence: u64, changes: &[Vec<u8>]) -> u64 {
        let bytes = entry(sequence, changes);
        let end = offset + (bytes.len() as u64).next_multiple_of(4096);
        self.entries.push((offset, bytes));
        end
    }

    /// Writes the drive.
    pub fn write(&self) -> Arc<MemoryDevice> {
        let capacity = DATA_AT + DATA_BLOCKS * BLOCK as u64;
        let device = Arc::new(MemoryDevice::new(capacity).unwrap());
        for place in [0, 512 << 10] {
            device.poke(place, &superblock(1));
        }
        for (number, block) in &self.blocks {
            device.poke(DATA_AT + number * BLOCK as u64, block);
        }
        for (offset, bytes) in &self.entries {
            device.poke(LOG_AT + offset, bytes);
        }
        self.write_tree(&device);
        device
    }

    /// The medium after a power cut with commits that were not durable behind the last one that was.
    pub fn crashed(&self) -> Vec<u8> {
        let device = self.write();
        let backend = Region { device: device.clone(), length: AtomicU64::new(METADATA_BYTES) };
        let database = Builder::new().create_with_backend(backend).unwrap();
        let mut image = Vec::new();
        for round in 0..3 {
            let mut durable = database.begin_write().unwrap();
            durable.set_two_phase_commit(true);
            durable.set_quick_repair(true);
            self.rows.iter().for_each(|((table, key), value)| {
                if *table != "ballast" {
                    self.write_row(&durable, table, key, value);
                }
            });
            durable.commit().unwrap();
            for number in 0..20u64 {
                let mut lazy = database.begin_write().unwrap();
                lazy.set_durability(redb::Durability::None).unwrap();
                // Rows that the next durable commit sets right.
                for ((table, key), value) in self.rows.iter().filter(|row| row.0.0 != "ballast") {
                    let value = noise(number + round, value.len());
                    self.write_row(&lazy, table, key, &value);
                }
                lazy.commit().unwrap();
            }
            image = device.image();
        }
        image
    }

    fn write_tree(&self, device: &Arc<MemoryDevice>) {
        let backend = Region { device: device.clone(), length: AtomicU64::new(0) };
        let database = Builder::new().create_with_backend(backend).unwrap();
        for is_ballast in [true, false] {
            let mut transaction = database.begin_write().unwrap();
            transaction.set_two_phase_commit(true);
            transaction.set_quick_repair(true);
            for ((table, key), value) in &self.rows {
                if (*table == "ballast") == is_ballast && !(is_ballast && self.no_ballast) {
                    self.write_row(&transaction, table, key, value);
                }
            }
            if self.stranger {
                let table = TableDefinition::<u32, u32>::new("stranger");
                transaction.open_table(table).unwrap().insert(1, 2).unwrap();
            }
            transaction.commit().unwrap();
        }
    }

    fn write_row(
        &self,
        to: &redb::WriteTransaction,
        table: &'static str,
        key: &[u8],
        value: &[u8],
    ) {
        match (table, key.len()) {
            ("families", _) if self.wrong_type => {
                let table = TableDefinition::<u64, &[u8]>::new(table);
                to.open_table(table).unwrap().insert(7, value).unwrap();
            }
            (_, 4) => {
                let table = TableDefinition::<u32, &[u8]>::new(table);
                let key = u32::from_be_bytes(key.try_into().unwrap());
                to.open_table(table).unwrap().insert(key, value).unwrap();
            }
            (_, 8) => {
                let table = TableDefinition::<u64, &[u8]>::new(table);
                let key = u64::from_be_bytes(key.try_into().unwrap());
                to.open_table(table).unwrap().insert(key, value).unwrap();
            }
            (_, 12) => {
                let table = TableDefinition::<&[u8; 12], &[u8]>::new(table);
                let key: &[u8; 12] = key.try_into().unwrap();
                to.open_table(table).unwrap().insert(key, value).unwrap();
            }
            _ => {
                let table = TableDefinition::<&[u8; 20], &[u8]>::new(table);
                let key: &[u8; 20] = key.try_into().unwrap();
                to.open_table(table).unwrap().insert(key, value).unwrap();
            }
        }
    }
}

/// A superblock with that sequence.
pub fn superblock(sequence: u64) -> Vec<u8> {
    superblock_of(sequence, METADATA_BYTES, DATA_BLOCKS)
}

/// A superblock of a drive with those sizes.
pub fn superblock_of(sequence: u64, metadata_bytes: u64, data_blocks: u64) -> Vec<u8> {
    let data_at = METADATA_AT + metadata_bytes;
    let mut block = vec![0; BLOCK];
    block[..8].copy_from_slice(b"NASDdisk");
    set32(&mut block, 8, 2);
    set64(&mut block, 16, sequence);
    set64(&mut block, 24, DRIVE);
    block[32..48].fill(0xce);
    set32(&mut block, 56, 4096);
    let places = [LOG_AT, LOG_BYTES, METADATA_AT, metadata_bytes, data_at, data_blocks].into_iter();
    set64(&mut block, 64, data_at + data_blocks * BLOCK as u64);
    for (index, value) in places.enumerate() {
        set64(&mut block, 72 + 8 * index, value);
    }
    set64(&mut block, 120, LOG_KEY);
    seal_superblock(&mut block);
    block
}

pub fn seal_superblock(block: &mut [u8]) {
    set32(block, 12, 0);
    let sum = crc32c::crc32c(block);
    set32(block, 12, sum);
}

/// An entry of the log.
pub fn entry(sequence: u64, changes: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    bytes[..8].copy_from_slice(b"NASDlog2");
    set64(&mut bytes, 16, LOG_KEY);
    set64(&mut bytes, 24, sequence);
    set32(&mut bytes, 32, changes.len() as u32);
    bytes.extend(changes.iter().flatten());
    let length = bytes.len() as u32;
    set32(&mut bytes, 12, length);
    let sum = crc32c::crc32c(&bytes);
    set32(&mut bytes, 8, sum);
    bytes
}

/// A change of the log.
pub fn change(kind: u8, partition: u32, object: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, 0, 0, 0];
    bytes.extend_from_slice(&partition.to_le_bytes());
    bytes.extend_from_slice(&object.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// A record as it is within a change.
pub fn sealed(key: Vec<u8>, mut record: Vec<u8>) -> Vec<u8> {
    seal(&key, &mut record);
    record
}

/// The body of a map of uncompressed blocks.
pub fn map(logical: u64, physical: u64, contents: &[u8], inline: bool) -> Vec<u8> {
    let blocks = contents.len().div_ceil(BLOCK);
    let mut body = vec![0; 32];
    set64(&mut body, 0, logical);
    set64(&mut body, 8, physical);
    set32(&mut body, 16, blocks as u32);
    set32(&mut body, 20, blocks as u32);
    body[29] = u8::from(inline);
    let mut whole = contents.to_vec();
    whole.resize(blocks * BLOCK, 0);
    for block in whole.chunks(BLOCK) {
        body.extend_from_slice(&crc32c::crc32c(block).to_le_bytes());
    }
    if inline {
        body.extend_from_slice(&whole);
    }
    body
}

/// The metadata region of a device in memory, as the tree's file.
struct Region {
    device: Arc<MemoryDevice>,
    length: AtomicU64,
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "region of {} bytes", self.device.capacity())
    }
}

impl StorageBackend for Region {
    fn len(&self) -> io::Result<u64> {
        Ok(self.length.load(Ordering::Relaxed))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        assert!(offset + out.len() as u64 <= METADATA_BYTES);
        out.copy_from_slice(&self.device.peek(METADATA_AT + offset, out.len()));
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let made = self.length.load(Ordering::Relaxed) > 0;
        self.length.store(if made { length } else { METADATA_BYTES }, Ordering::Relaxed);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        assert!(offset + data.len() as u64 <= METADATA_BYTES);
        self.device.poke(METADATA_AT + offset, data);
        Ok(())
    }
}

/// Changes a bit of the tree's record of its free pages, with every checksum above it right.
pub fn plant_wrong_space(device: &MemoryDevice) {
    let slot_at = METADATA_AT + 64 + 128 * u64::from(device.peek(METADATA_AT + 9, 1)[0] & 1);
    let mut slot = device.peek(slot_at, 128);
    let (catalogue, _) = page_at(device, get64(&slot, 40));
    let mut leaf = device.peek(catalogue, 4096);
    assert_eq!(leaf[0], 1, "a catalogue of one page");
    let definition = definition_of(&leaf, b"allocator_state");
    let fixed = (leaf[definition + 42] != 0).then(|| get32(&leaf, definition + 43));
    let sum = flip_free_page(device, get64(&leaf, definition + 10), fixed).unwrap();
    leaf[definition + 18..definition + 34].copy_from_slice(&sum.to_le_bytes());
    device.poke(catalogue, &leaf);
    let sum = xxhash_rust::xxh3::xxh3_128(&leaf[..leaf_end(&leaf, None)]);
    slot[48..64].copy_from_slice(&sum.to_le_bytes());
    let sum = xxhash_rust::xxh3::xxh3_128(&slot[..112]);
    slot[112..].copy_from_slice(&sum.to_le_bytes());
    device.poke(slot_at, &slot);
}

/// Flips the bit of a page in the allocator's record below a page; that page's new checksum.
fn flip_free_page(device: &MemoryDevice, number: u64, fixed: Option<usize>) -> Option<u128> {
    let (at, length) = page_at(device, number);
    let mut page = device.peek(at, length);
    let count = usize::from(page[2]) + 256 * usize::from(page[3]);
    let end = if page[0] == 1 {
        // An allocator begins with its order, below 21, and its pages: the region's but the first.
        let pages = (METADATA_BYTES as usize / BLOCK - 1).to_le_bytes();
        let value = (0..length - 64).find(|at| {
            page[*at] < 21 && page[at + 1..at + 4] == [0; 3] && page[at + 4..at + 8] == pages[..4]
        })?;
        let bitmap_end = value + get32(&page, value + 8);
        page[bitmap_end - 1] ^= 1;
        leaf_end(&page, fixed)
    } else {
        let links = 8 + 16 * (count + 1);
        let (child, sum) = (0..=count).find_map(|child| {
            let link = get64(&page, links + 8 * child);
            flip_free_page(device, link, fixed).map(|sum| (child, sum))
        })?;
        page[8 + 16 * child..24 + 16 * child].copy_from_slice(&sum.to_le_bytes());
        let keys = links + 8 * (count + 1);
        match fixed {
            Some(width) => keys + width * count,
            None => get32(&page, keys + 4 * (count - 1)),
        }
    };
    device.poke(at, &page);
    Some(xxhash_rust::xxh3::xxh3_128(&page[..end]))
}

fn get32(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

fn get64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Where a page of the tree is on the device, and its length.
fn page_at(device: &MemoryDevice, number: u64) -> (u64, usize) {
    assert_eq!(device.peek(METADATA_AT + 16, 4), [0; 4], "regions without a header");
    let length = 4096u64 << (number >> 59);
    (METADATA_AT + 4096 + (number & 0xfffff) * length, length as usize)
}

/// End of the last value of a leaf whose values have no fixed length.
fn leaf_end(page: &[u8], fixed_key: Option<usize>) -> usize {
    let pairs = usize::from(page[2]) + 256 * usize::from(page[3]);
    let key_ends = if fixed_key.is_none() { 4 * pairs } else { 0 };
    get32(page, 4 + key_ends + 4 * (pairs - 1))
}

/// Where the value under a key is in a leaf.
fn definition_of(leaf: &[u8], name: &[u8]) -> usize {
    let pairs = usize::from(leaf[2]) + 256 * usize::from(leaf[3]);
    let keys = 4 + 8 * pairs;
    let mut key_at = keys;
    let mut value_at = get32(leaf, 4 + 4 * (pairs - 1));
    for index in 0..pairs {
        let key_end = get32(leaf, 4 + 4 * index);
        if &leaf[key_at..key_end] == name {
            return value_at;
        }
        key_at = key_end;
        value_at = get32(leaf, 4 + 4 * pairs + 4 * index);
    }
    panic!("no such table");
}
