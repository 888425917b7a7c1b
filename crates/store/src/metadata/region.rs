//! The metadata region as the tree's file: aligned, bounded, buffered until the tree syncs.
//!
//! Three things keep the tree from ever failing for a reason that is not the medium's:
//!
//! * *Its file has the region's full size from the start.* The tree would grow its file by
//!   doubling, and a doubling that does not fit latches it for good. But it takes the size of the
//!   file that it finds for the size of its space, so the region reports its full length. Whether
//!   another page is to be had is decided before, by `capacity`.
//! * *Its file does not shrink.* The tree gives back free space at the end of its file, half at a
//!   time, after which the next doubling might not fit. A few pages of ballast at the very end
//!   (see `ballast`) stop it. A region of several tree regions has no need of them: between whole
//!   tree regions the file grows one by one, and below that a doubling fits in any case.
//! * *It never sees a failed write.* Written pages wait in memory until the tree syncs, where they
//!   go out sorted and in few large pieces. When that fails, the region remembers the failure,
//!   keeps the pages, and takes no more to the device: the tree goes on serving reads of a state
//!   that is consistent, and the store, which asks for [`Region::failure`] after each commit,
//!   accepts no more changes. A sync that fails may take back what was written before it, so pages
//!   stay in memory until it has succeeded. Those that are too many for that leave before, and can't
//!   be read any more if it fails.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::thread::ThreadId;

use nasd_device::{AlignedBuffer, BlockDevice, DeviceError, WriteRequest};
use nasd_types::limits::BLOCK_BYTES;
use redb::StorageBackend;

use crate::geometry::Geometry;

const PAGE: u64 = BLOCK_BYTES as u64;

/// Pages that may wait for a sync before some are written out early.
const PENDING_PAGES_MAX: usize = 4096;

/// Pages that are read at a time by those who read all of the tree (256 KiB): the tree is opened, or
/// its pages are counted.
const AHEAD_PAGES: u64 = 64;

/// How many of those are kept: the tables of the tree lie mixed, and each is read by itself.
const AHEAD_CHUNKS: usize = 64;

/// What is read ahead for one thread that reads all of the tree. It is what the device has: it is
/// dropped whenever that changes.
#[derive(Default)]
struct Ahead {
    /// The thread, while there is one.
    reader: Option<ThreadId>,
    /// The number of each chunk and its contents, the oldest first.
    chunks: VecDeque<(u64, Arc<AlignedBuffer>)>,
    /// Counts changes of the device: a chunk that was read during one is not kept.
    changes: u64,
}

/// Pages by number within the region.
type Pages = BTreeMap<u64, Arc<AlignedBuffer>>;

/// Reads ahead for this thread until it is dropped.
pub(crate) struct ReadingAhead<'r>(Option<&'r Region>);

impl Drop for ReadingAhead<'_> {
    fn drop(&mut self) {
        if let Some(region) = self.0 {
            let mut ahead = region.ahead();
            ahead.reader = None;
            ahead.chunks.clear();
        }
    }
}

/// The metadata region of one open device.
pub(crate) struct Region {
    device: Arc<dyn BlockDevice>,
    start: u64,
    bytes: u64,
    /// Length of the file as the tree knows it; zero until it was made.
    length: AtomicU64,
    /// Pages written and not yet durable on the device, by number within the region.
    pending: RwLock<Pages>,
    /// Pages that left memory for the device before a sync made them durable.
    unsynced: Mutex<BTreeSet<u64>>,
    /// A sync has failed, so nobody knows what the device has of those.
    sync_failed: AtomicBool,
    /// Held by whoever writes pages to the device, so that of two versions the newer comes last.
    writing: Mutex<()>,
    failure: OnceLock<String>,
    ahead: Mutex<Ahead>,
    /// Pages that were read when the tree was verified, and are what the device has, by number.
    kept: RwLock<HashMap<u64, Box<[u8]>>>,
}

/// What the tree is opened with: a handle on the region.
#[derive(Clone)]
pub(crate) struct RegionBackend(pub(crate) Arc<Region>);

impl Region {
    /// The region of a device that has a tree in it.
    pub(crate) fn existing(device: Arc<dyn BlockDevice>, geometry: &Geometry) -> Arc<Region> {
        Region::new(device, geometry, geometry.metadata_bytes)
    }

    /// The region of a device that is being formatted: the tree finds an empty file.
    pub(crate) fn fresh(device: Arc<dyn BlockDevice>, geometry: &Geometry) -> Arc<Region> {
        Region::new(device, geometry, 0)
    }

    fn new(device: Arc<dyn BlockDevice>, geometry: &Geometry, length: u64) -> Arc<Region> {
        Arc::new(Region {
            device,
            start: geometry.metadata_offset,
            bytes: geometry.metadata_bytes,
            length: AtomicU64::new(length),
            pending: RwLock::default(),
            unsynced: Mutex::default(),
            sync_failed: AtomicBool::new(false),
            writing: Mutex::default(),
            failure: OnceLock::new(),
            ahead: Mutex::default(),
            kept: RwLock::default(),
        })
    }

    /// The device that it is on.
    pub(super) fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    /// Its first byte on the device.
    pub(super) fn offset(&self) -> u64 {
        self.start
    }

    /// Its length.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Keeps pages that were read, by number, instead of those that are kept now.
    pub(super) fn keep(&self, mut pages: HashMap<u64, Box<[u8]>>) {
        pages.retain(|_, page| page.len() == BLOCK_BYTES);
        *self.kept.write().unwrap_or_else(PoisonError::into_inner) = pages;
    }

    /// Pages of the region.
    pub(crate) fn pages(&self) -> u64 {
        self.bytes / PAGE
    }

    /// Why a write or sync failed, if one did.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Takes nothing to the device from now on.
    pub(crate) fn sever(&self, reason: &str) {
        // Only the first reason is kept: it is the cause of the others.
        let _ = self.failure.set(reason.to_owned());
    }

    fn fail(&self, error: &DeviceError) {
        tracing::error!(%error, "writing metadata failed; the store becomes read-only");
        // Only the first failure is kept: it is the cause of the others.
        let _ = self.failure.set(error.to_string());
    }

    fn check(&self, offset: u64, length: usize) -> io::Result<()> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "access outside of the metadata region",
            )),
        }
    }

    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        // What is there is whole after every statement.
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads ahead for this thread, unless it does already, for this or another.
    pub(crate) fn read_ahead(&self) -> ReadingAhead<'_> {
        let mut ahead = self.ahead();
        if ahead.reader.is_some() {
            return ReadingAhead(None);
        }
        ahead.reader = Some(std::thread::current().id());
        ReadingAhead(Some(self))
    }

    /// Copies pages out of what is read ahead; whether all could be.
    fn copy_ahead(&self, first: u64, into: &mut [u8]) -> bool {
        let mine = std::thread::current().id();
        for (page, into) in (first..).zip(into.chunks_exact_mut(BLOCK_BYTES)) {
            let wanted = page / AHEAD_PAGES;
            let (found, changes) = {
                let ahead = self.ahead();
                if ahead.reader != Some(mine) {
                    return false;
                }
                let found = ahead.chunks.iter().find(|(number, _)| *number == wanted);
                (found.map(|(_, chunk)| chunk.clone()), ahead.changes)
            };
            let Some(chunk) = found.or_else(|| self.read_chunk(wanted, changes)) else {
                return false;
            };
            let at = ((page % AHEAD_PAGES) * PAGE) as usize;
            into.copy_from_slice(&chunk[at..at + BLOCK_BYTES]);
        }
        true
    }

    fn read_chunk(&self, number: u64, changes: u64) -> Option<Arc<AlignedBuffer>> {
        let pages = AHEAD_PAGES.min(self.pages() - number * AHEAD_PAGES);
        let mut buffer = AlignedBuffer::zeroed((pages * PAGE) as usize);
        let offset = self.start + number * AHEAD_PAGES * PAGE;
        // If it fails, some page of it is bad, and perhaps not one that is wanted.
        self.device.read(offset, &mut [IoSliceMut::new(&mut buffer)]).ok()?;
        let chunk = Arc::new(buffer);
        let mut ahead = self.ahead();
        if ahead.changes == changes {
            ahead.chunks.push_back((number, chunk.clone()));
            if ahead.chunks.len() > AHEAD_CHUNKS {
                ahead.chunks.pop_front();
            }
        }
        Some(chunk)
    }

    /// Copies pages that are kept; whether they are.
    fn copy_kept(&self, first: u64, into: &mut [u8]) -> bool {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        let page = kept.get(&first).filter(|page| page.len() == into.len());
        page.is_some_and(|page| {
            into.copy_from_slice(page);
            true
        })
    }

    fn read_pages(&self, first: u64, into: &mut AlignedBuffer) -> io::Result<()> {
        if self.copy_kept(first, into) {
            return Ok(());
        }
        if self.copy_ahead(first, into) {
            return Ok(());
        }
        self.device
            .read(self.start + first * PAGE, &mut [IoSliceMut::new(into)])
            .map_err(io::Error::other)
    }

    /// Copies pages that wait in memory; which ones there were.
    fn copy_pending(&self, first: u64, into: &mut [u8]) -> Vec<u64> {
        let pages = into.len() as u64 / PAGE;
        let pending = self.pending.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        for (&page, bytes) in pending.range(first..first + pages) {
            let at = ((page - first) * PAGE) as usize;
            into[at..at + BLOCK_BYTES].copy_from_slice(bytes);
            found.push(page);
        }
        found
    }

    fn unsynced(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        // What is there is whole after every statement.
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what the device has of these pages is what was written.
    fn check_unsynced(&self, mut pages: impl Iterator<Item = u64>) -> io::Result<()> {
        if !self.sync_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let unsynced = self.unsynced();
        match pages.find(|page| unsynced.contains(page)) {
            Some(_) => Err(io::Error::other("a page of the metadata may be lost: a sync failed")),
            None => Ok(()),
        }
    }

    /// A sync of the device has failed, whoever asked for it.
    pub(super) fn note_failed_sync(&self) {
        self.sync_failed.store(true, Ordering::Release);
    }

    /// The current contents of whole pages.
    fn load(&self, first: u64, pages: u64) -> io::Result<AlignedBuffer> {
        let mut buffer = AlignedBuffer::zeroed((pages * PAGE) as usize);
        let found = self.copy_pending(first, &mut buffer);
        if found.len() as u64 == pages {
            return Ok(buffer);
        }
        // Memory was looked at before the device: a page that was written out in between is on
        // the device by now, and one that was in memory is as good as what the device has.
        let mut from_device = AlignedBuffer::zeroed((pages * PAGE) as usize);
        self.read_pages(first, &mut from_device)?;
        self.check_unsynced((first..first + pages).filter(|page| !found.contains(page)))?;
        for page in found {
            let at = ((page - first) * PAGE) as usize;
            from_device[at..at + BLOCK_BYTES].copy_from_slice(&buffer[at..at + BLOCK_BYTES]);
        }
        Ok(from_device)
    }

    fn store(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let first = offset / PAGE;
        let pages = (offset + data.len() as u64).div_ceil(PAGE) - first;
        let whole = offset.is_multiple_of(PAGE) && data.len().is_multiple_of(BLOCK_BYTES);
        let mut buffer =
            if whole { AlignedBuffer::zeroed(data.len()) } else { self.load(first, pages)? };
        let at = (offset - first * PAGE) as usize;
        buffer[at..at + data.len()].copy_from_slice(data);
        let waiting = {
            let mut pending = self.pending.write().unwrap_or_else(PoisonError::into_inner);
            if pages == 1 {
                pending.insert(first, Arc::new(buffer));
            } else {
                for (page, bytes) in (first..).zip(buffer.chunks_exact(BLOCK_BYTES)) {
                    let mut copy = AlignedBuffer::zeroed(BLOCK_BYTES);
                    copy.copy_from_slice(bytes);
                    pending.insert(page, Arc::new(copy));
                }
            }
            pending.len()
        };
        if waiting > PENDING_PAGES_MAX && self.failure.get().is_none() {
            self.write_early();
        }
        Ok(())
    }

    /// Writes every waiting page to the device, and keeps none of them.
    fn write_early(&self) {
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(written) = self.write_out() {
            // Before anybody looks for them on the device.
            self.unsynced().extend(written.keys());
            self.drop_pending(&written);
        }
        drop(writing);
    }

    /// Writes every waiting page to the device, and makes it durable with all that left before.
    fn write_and_sync(&self) {
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(written) = self.write_out() else {
            return;
        };
        let mut before = std::mem::take(&mut *self.unsynced());
        drop(writing);
        match self.device.sync() {
            // After a sync that failed nothing is known to be durable by one that did not.
            Ok(()) if self.sync_failed.load(Ordering::Acquire) => {
                self.unsynced().append(&mut before);
            }
            Ok(()) => self.drop_pending(&written),
            Err(error) => {
                self.unsynced().append(&mut before);
                self.note_failed_sync();
                self.fail(&error);
            }
        }
    }

    /// Writes every waiting page to the device, by whoever is the only one to; which they are, or
    /// `None` if that failed.
    fn write_out(&self) -> Option<Pages> {
        let snapshot: Pages = self.pending.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut requests: Vec<WriteRequest<'_>> = Vec::new();
        let mut next_page = None;
        for (page, bytes) in &snapshot {
            match requests.last_mut() {
                Some(request) if next_page == Some(*page) => request.from.push(IoSlice::new(bytes)),
                _ => requests.push(WriteRequest {
                    offset: self.start + page * PAGE,
                    from: vec![IoSlice::new(bytes)],
                }),
            }
            next_page = Some(page + 1);
        }
        if let Err(error) = self.device.write_batch(&requests) {
            self.fail(&error);
            return None;
        }
        // Before anybody looks for these pages on the device.
        let mut ahead = self.ahead();
        ahead.changes += 1;
        ahead.chunks.clear();
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        if !kept.is_empty() {
            snapshot.keys().for_each(|page| drop(kept.remove(page)));
        }
        Some(snapshot)
    }

    /// Keeps pages no more that the device has.
    fn drop_pending(&self, written: &Pages) {
        let mut pending = self.pending.write().unwrap_or_else(PoisonError::into_inner);
        for (page, written) in written {
            // A page that was written again meanwhile stays.
            if pending.get(page).is_some_and(|now| Arc::ptr_eq(now, written)) {
                pending.remove(page);
            }
        }
    }
}

impl StorageBackend for RegionBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.length.load(Ordering::Acquire))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.check(offset, out.len())?;
        let first = offset / PAGE;
        let pages = (offset + out.len() as u64).div_ceil(PAGE) - first;
        let buffer = self.0.load(first, pages)?;
        let at = (offset - first * PAGE) as usize;
        out.copy_from_slice(&buffer[at..at + out.len()]);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let region = &self.0;
        if length > region.bytes {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the metadata region is full"));
        }
        // The first size that the tree gives its file makes the file, at its full size.
        let made = region.length.load(Ordering::Acquire) > 0;
        let length = if made { length } else { region.bytes };
        region.length.store(length, Ordering::Release);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let region = &self.0;
        if region.failure.get().is_none() {
            region.write_and_sync();
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.check(offset, data.len())?;
        self.0.store(offset, data)
    }
}

impl fmt::Debug for RegionBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegionBackend({} bytes of {:?})", self.0.bytes, self.0.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_device::{FaultPlan, FaultyDevice};

    fn region() -> (Arc<FaultyDevice>, RegionBackend) {
        let capacity = 8 << 20;
        let device = Arc::new(FaultyDevice::zeroed(capacity));
        let geometry = Geometry::plan(capacity, None).unwrap();
        let region = Region::fresh(device.clone(), &geometry);
        (device, RegionBackend(region))
    }

    fn read(backend: &RegionBackend, offset: u64, length: usize) -> Vec<u8> {
        let mut out = vec![0; length];
        backend.read(offset, &mut out).unwrap();
        out
    }

    #[test]
    fn unaligned_writes_keep_their_neighbours() {
        let (device, backend) = region();
        backend.write(0, &[1; 8192]).unwrap();
        backend.sync_data().unwrap();
        backend.write(4000, &[2; 200]).unwrap();
        assert_eq!(read(&backend, 3999, 202), [&[1][..], &[2; 200], &[1]].concat());
        backend.sync_data().unwrap();
        assert_eq!(read(&backend, 3999, 202), [&[1][..], &[2; 200], &[1]].concat());
        let image = device.live_image();
        let start = backend.0.start as usize;
        assert_eq!(image[start + 4000], 2);
        assert_eq!(image[start + 4200], 1);
    }

    #[test]
    fn neighbouring_pages_leave_in_one_write_at_the_sync() {
        let (device, backend) = region();
        for page in [7, 3, 5, 4, 9] {
            backend.write(page * 4096, &[page as u8; 4096]).unwrap();
        }
        assert_eq!(device.writes(), 0);
        backend.sync_data().unwrap();
        assert_eq!((device.writes(), device.syncs()), (3, 1));
        for page in [3, 4, 5, 7, 9] {
            assert_eq!(read(&backend, page * 4096, 1), [page as u8]);
        }
    }

    #[test]
    fn the_length_is_the_regions_once_the_file_is_made() {
        let (_, backend) = region();
        let bytes = backend.0.bytes;
        assert_eq!(backend.len().unwrap(), 0);
        backend.set_len(4096).unwrap();
        assert_eq!(backend.len().unwrap(), bytes);
        assert_eq!(backend.set_len(bytes + 1).unwrap_err().kind(), io::ErrorKind::StorageFull);
        backend.write(bytes - 1, &[1]).unwrap();
        backend.write(bytes, &[1]).unwrap_err();
        backend.write(u64::MAX, &[1]).unwrap_err();
        backend.read(bytes - 1, &mut [0; 2]).unwrap_err();
    }

    #[test]
    fn a_failed_sync_is_remembered_and_hidden_from_the_tree() {
        let (device, backend) = region();
        backend.write(0, &[1; 4096]).unwrap();
        device.set_plan(FaultPlan { failing_writes: vec![0], ..FaultPlan::default() });
        backend.sync_data().unwrap();
        assert!(backend.0.failure().unwrap().contains("planned fault"));
        assert_eq!(read(&backend, 0, 1), [1]);
        backend.write(0, &[2; 4096]).unwrap();
        backend.sync_data().unwrap();
        assert_eq!(read(&backend, 0, 1), [2]);
        assert_eq!(
            device.live_image()[backend.0.start as usize],
            0,
            "nothing reaches the device any more"
        );
    }

    #[test]
    fn what_a_failed_sync_takes_back_is_read_as_it_was_written() {
        let (device, backend) = region();
        let fill = |value: u8| {
            (0..40).for_each(|page| backend.write(page * 4096, &[value; 4096]).unwrap());
        };
        fill(1);
        backend.sync_data().unwrap();
        fill(2);
        let failing_syncs = vec![device.syncs()];
        let failed_sync = nasd_device::FailedSync::Drops;
        device.set_plan(FaultPlan { failing_syncs, failed_sync, ..FaultPlan::default() });
        backend.sync_data().unwrap();
        assert!(backend.0.failure().is_some());
        let image = device.live_image();
        let on_device = |page: u64| image[(backend.0.start + page * 4096) as usize];
        assert!(
            (0..40).any(|page| on_device(page) == 1) && (0..40).any(|page| on_device(page) == 2)
        );
        assert!((0..40).all(|page| read(&backend, page * 4096, 1) == [2]));
    }

    #[test]
    fn pages_that_left_early_are_not_read_after_a_failed_sync() {
        let capacity = 64 << 20;
        let device = Arc::new(FaultyDevice::zeroed(capacity));
        let geometry = Geometry::plan(capacity, Some(32 << 20)).unwrap();
        let backend = RegionBackend(Region::fresh(device.clone(), &geometry));
        let pages = backend.0.pages();
        let fill = |value: u8| {
            (0..pages).for_each(|page| backend.write(page * 4096, &[value; 4096]).unwrap());
        };
        fill(1);
        backend.sync_data().unwrap();
        assert!(backend.0.unsynced.lock().unwrap().is_empty());
        fill(2);
        assert_eq!(read(&backend, 0, 1), [2]);
        let failing_syncs = vec![device.syncs()];
        let failed_sync = nasd_device::FailedSync::Drops;
        device.set_plan(FaultPlan { failing_syncs, failed_sync, ..FaultPlan::default() });
        backend.sync_data().unwrap();
        let (mut right, mut refused) = (0, 0);
        for page in 0..pages {
            let mut found = [0; 1];
            match backend.read(page * 4096, &mut found) {
                Ok(()) => right += u64::from(found == [2]),
                Err(_) => refused += 1,
            }
        }
        assert_eq!(right + refused, pages, "old pages are read");
        assert!(right > 0 && refused > 0, "{right} pages are right, {refused} are refused");
    }

    #[test]
    fn what_is_read_ahead_is_what_is_there() {
        let (device, backend) = region();
        let pages = backend.0.pages();
        for page in 0..pages {
            backend.write(page * 4096, &page.to_le_bytes().repeat(512)).unwrap();
        }
        backend.sync_data().unwrap();
        let reading = backend.0.read_ahead();
        let before = device.reads();
        let check = |backend: &RegionBackend, changed: u64| {
            for page in 0..pages {
                let expected = if page == changed { u64::MAX } else { page };
                assert_eq!(read(backend, page * 4096, 8), expected.to_le_bytes(), "page {page}");
            }
        };
        check(&backend, pages);
        assert!(device.reads() - before <= pages.div_ceil(AHEAD_PAGES));
        backend.write(7 * 4096, &[0xff; 4096]).unwrap();
        check(&backend, 7);
        backend.sync_data().unwrap();
        check(&backend, 7);
        // A bad page spoils only itself.
        drop(reading);
        let reading = backend.0.read_ahead();
        assert!(backend.0.read_ahead().0.is_none());
        let bad = backend.0.start + 70 * 4096;
        device.set_plan(FaultPlan { unreadable: bad..bad + 1, ..FaultPlan::default() });
        assert_eq!(read(&backend, 69 * 4096, 8), 69u64.to_le_bytes());
        backend.read(70 * 4096, &mut [0; 8]).unwrap_err();
        assert!(std::thread::scope(|scope| {
            // Others read what they want.
            scope.spawn(|| !backend.0.copy_ahead(0, &mut [0; 4096])).join().unwrap()
        }));
        drop(reading);
        assert!(!backend.0.copy_ahead(0, &mut [0; 4096]));
    }

    #[test]
    fn many_pages_leave_before_the_sync() {
        let capacity = 64 << 20;
        let device = Arc::new(FaultyDevice::zeroed(capacity));
        let geometry = Geometry::plan(capacity, Some(32 << 20)).unwrap();
        let backend = RegionBackend(Region::fresh(device.clone(), &geometry));
        for page in 0..backend.0.pages() {
            backend.write(page * 4096, &page.to_le_bytes().repeat(512)).unwrap();
        }
        assert!(device.writes() > 0 && device.syncs() == 0);
        assert!(backend.0.pending.read().unwrap().len() <= PENDING_PAGES_MAX);
        for page in 0..backend.0.pages() {
            assert_eq!(read(&backend, page * 4096, 8), page.to_le_bytes());
        }
    }
}
