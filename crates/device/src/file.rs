//! A raw block device, or one preallocated file, opened for direct I/O and for this process alone.
//!
//! Direct I/O keeps the kernel's page cache out: the store has its own cache, and a write that
//! ended is at the device. Exclusion is `O_EXCL` on a block device (which also refuses one that is
//! mounted) and an advisory `flock` on both, so that no second drive opens the same medium.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, StatxFlags};
use rustix::io::Errno;

use crate::device::{check_alignment, check_bounds};
use crate::ring::{Lease, RingPool};
use crate::ring_reads::RingReads;
use crate::transfer::{Batch, Direction, Failure, MAX_PIECES};
use crate::{
    BlockDevice, DeviceError, Frame, Meanwhile, ReadPart, ReadQueue, ReadRequest, SECTOR_BYTES,
    WriteRequest,
};

/// Fewest requests of a batch for which a ring beats plain calls one after the other. Measured with
/// the example `queue`, 4 KiB at random places: a single request takes up to 1.2 (read) or 1.5 (write)
/// times as long through the ring, two together are up to 1.6 times as fast.
const MIN_RING_REQUESTS: usize = 2;

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileOptions {
    /// Go on through the page cache where the file system has no direct I/O, instead of refusing.
    /// Data is then cached twice; what is durable does not change.
    pub allow_buffered: bool,
    /// How batches are served.
    pub queue: Queue,
}

/// How the requests of a batch get to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queue {
    /// Many at once through io_uring where that is faster (with direct I/O, for more than one) and
    /// the kernel allows it, else by plain system calls one after the other.
    #[default]
    Auto,
    /// Always by plain system calls.
    Plain,
    /// Always through io_uring while one of the device's rings is free; opening fails where the
    /// kernel refuses io_uring. For tests and measurements.
    Uring,
}

/// A file or block device that this process holds alone.
pub struct FileDevice {
    file: File,
    path: PathBuf,
    capacity: u64,
    alignment: usize,
    direct: bool,
    queue: Queue,
    rings: RingPool,
}

impl FileDevice {
    /// Opens a regular file or a block device that exists.
    pub fn open(path: impl AsRef<Path>, options: FileOptions) -> Result<FileDevice, DeviceError> {
        let path = path.as_ref();
        let kind = std::fs::metadata(path).map_err(|e| open_error(path, e))?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(DeviceError::NotADevice { path: path.to_owned() });
        }
        // On a block device O_EXCL without O_CREAT asks for exclusive use (open(2)).
        let exclusive = if kind.is_block_device() { libc::O_EXCL } else { 0 };
        let mut open = OpenOptions::new();
        open.read(true).write(true);
        FileDevice::finish(path, open, exclusive, options)
    }

    /// Creates a regular file of `bytes` bytes (rounded up to whole sectors), all preallocated,
    /// and opens it. Refuses to touch a file that exists.
    pub fn create(
        path: impl AsRef<Path>,
        bytes: u64,
        options: FileOptions,
    ) -> Result<FileDevice, DeviceError> {
        let path = path.as_ref();
        let bytes = bytes.max(1).next_multiple_of(SECTOR_BYTES as u64);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|e| open_error(path, e))?;
        let opened = allocate(&file, 0, bytes)
            .map_err(|e| open_error(path, e))
            .and_then(|()| FileDevice::open(path, options));
        if opened.is_err() {
            // What was made above and can't be used is not left behind; the first error counts.
            let _ = std::fs::remove_file(path);
        }
        opened
    }

    fn finish(
        path: &Path,
        mut open: OpenOptions,
        flags: i32,
        options: FileOptions,
    ) -> Result<FileDevice, DeviceError> {
        let (mut file, mut direct) = match open.custom_flags(flags | libc::O_DIRECT).open(path) {
            Ok(file) => (file, true),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) && options.allow_buffered => {
                let file = open.custom_flags(flags).open(path).map_err(|e| open_error(path, e))?;
                (file, false)
            }
            Err(e) => return Err(open_error(path, e)),
        };
        lock(&file, path)?;
        let mut alignment = SECTOR_BYTES;
        if direct {
            match direct_alignment(&file) {
                // Opened, but this file would refuse every transfer.
                Some(0) if !options.allow_buffered => {
                    return Err(DeviceError::NoDirectIo { path: path.to_owned() });
                }
                Some(0) => {
                    set_buffered(&file).map_err(|e| open_error(path, e))?;
                    direct = false;
                }
                Some(known) => alignment = known,
                None => {}
            }
        }
        if alignment > SECTOR_BYTES || !alignment.is_power_of_two() {
            return Err(DeviceError::Alignment { path: path.to_owned(), alignment });
        }
        let bytes = file.seek(SeekFrom::End(0)).map_err(|e| open_error(path, e))?;
        let capacity = bytes / SECTOR_BYTES as u64 * SECTOR_BYTES as u64;
        let rings = match options.queue {
            Queue::Plain => RingPool::none(),
            // Through the page cache, the kernel would only hand it to threads of its own.
            Queue::Auto if !direct => RingPool::none(),
            Queue::Auto => RingPool::new().unwrap_or_else(|_| RingPool::none()),
            Queue::Uring => RingPool::new()
                .map_err(|source| DeviceError::NoRing { path: path.to_owned(), source })?,
        };
        let (path, queue) = (path.to_owned(), options.queue);
        Ok(FileDevice { file, path, capacity, alignment, direct, queue, rings })
    }

    /// Gives a regular file that nobody has open as a device `bytes` bytes (rounded up to whole
    /// sectors), durably, and returns its capacity from then on. What is added is preallocated
    /// and reads as zeros; what is cut off is gone, so whoever shrinks a file has to know that
    /// nothing lives there. When growing fails, the file is as it was.
    pub fn resize(path: impl AsRef<Path>, bytes: u64) -> Result<u64, DeviceError> {
        let path = path.as_ref();
        let kind = std::fs::metadata(path).map_err(|e| open_error(path, e))?.file_type();
        if kind.is_block_device() {
            return Err(DeviceError::FixedSize { path: path.to_owned() });
        }
        if !kind.is_file() {
            return Err(DeviceError::NotADevice { path: path.to_owned() });
        }
        let failed = |source| DeviceError::Resize { path: path.to_owned(), bytes, source };
        let file = OpenOptions::new().write(true).open(path).map_err(|e| open_error(path, e))?;
        lock(&file, path)?;
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(SECTOR_BYTES as u64)
            .filter(|&bytes| i64::try_from(bytes).is_ok())
            .ok_or_else(|| failed(Errno::FBIG.into()))?;
        let before = file.metadata().map_err(failed)?.len();
        if bytes > before {
            if let Err(e) = allocate(&file, before, bytes) {
                // It may have grown in part; the first error counts.
                let _ = file.set_len(before);
                return Err(failed(e));
            }
        } else {
            file.set_len(bytes).map_err(failed)?;
        }
        file.sync_all().map_err(failed)?;
        Ok(bytes)
    }

    /// Where the device was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether transfers go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Whether batches can go through io_uring.
    pub fn has_ring(&self) -> bool {
        self.rings.is_usable()
    }

    /// Refuses a batch of which any request is wrong, before anything is begun.
    fn check_writes(&self, requests: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        requests.iter().try_for_each(|request| {
            let pieces = request.from.iter().map(|piece| &**piece);
            let length = check_alignment(request.offset, pieces, self.alignment)?;
            check_bounds(request.offset, length, self.capacity)
        })
    }

    fn check_reads(&self, requests: &[ReadRequest<'_>]) -> Result<(), DeviceError> {
        requests.iter().try_for_each(|request| {
            let pieces = request.into.iter().map(|piece| &**piece);
            let length = check_alignment(request.offset, pieces, self.alignment)?;
            check_bounds(request.offset, length, self.capacity)
        })
    }

    /// A ring for a batch of at least `least` requests, unless plain calls serve it better.
    fn ring(&self, requests: usize, least: usize) -> Option<Lease<'_>> {
        let wanted = match self.queue {
            Queue::Plain => false,
            Queue::Auto => requests >= least,
            Queue::Uring => requests > 0,
        };
        if wanted { self.rings.take() } else { None }
    }

    /// A ring for a queue of reads, if one is to be had.
    pub(crate) fn lease(&self) -> Option<Lease<'_>> {
        if self.queue == Queue::Plain { None } else { self.rings.take_for_queue() }
    }

    /// What the transfers of rings name.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Refuses a read whose parts are not within the frame and the device, or not aligned.
    pub(crate) fn check_parts(&self, frame: &Frame, parts: &[ReadPart]) -> Result<(), DeviceError> {
        parts.iter().try_for_each(|ReadPart { offset, range }| {
            let Some(memory) = frame.get(range.clone()) else {
                let (offset, length) = (*offset, range.len() as u64);
                return Err(DeviceError::OutOfBounds { offset, length, capacity: self.capacity });
            };
            let length = check_alignment(*offset, std::iter::once(memory), self.alignment)?;
            check_bounds(*offset, length, self.capacity)
        })
    }

    fn serve(
        &self,
        ring: Lease<'_>,
        mut batch: Batch<'_>,
        meanwhile: Option<Meanwhile<'_>>,
    ) -> Result<(), DeviceError> {
        let operation = match batch.direction() {
            Direction::Read => "read",
            Direction::Write => "write",
        };
        ring.serve(self.file.as_fd(), &mut batch, meanwhile).map_err(
            |Failure { offset, length, error }| self.medium(operation, offset, length, error),
        )
    }

    /// As most reads of little are: without memory for a list.
    pub(crate) fn read_single(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let length = into.len() as u64;
        let mut done = 0;
        while done < into.len() {
            match rustix::io::pread(&self.file, &mut into[done..], offset + done as u64) {
                Ok(0) => return Err(self.medium("read", offset, length, Errno::IO)),
                Ok(bytes) => done += bytes,
                Err(Errno::INTR) => {}
                Err(e) => return Err(self.medium("read", offset, length, e)),
            }
        }
        Ok(())
    }

    fn medium(&self, operation: &'static str, offset: u64, length: u64, e: Errno) -> DeviceError {
        DeviceError::Medium { operation, offset, length, source: e.into() }
    }
}

fn open_error(path: &Path, source: io::Error) -> DeviceError {
    let path = path.to_owned();
    match source.raw_os_error() {
        Some(libc::EBUSY) => DeviceError::InUse { path },
        Some(libc::EINVAL) => DeviceError::NoDirectIo { path },
        _ => DeviceError::Open { path, source },
    }
}

fn lock(file: &File, path: &Path) -> Result<(), DeviceError> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(DeviceError::InUse { path: path.to_owned() }),
        Err(e) => Err(DeviceError::Open { path: path.to_owned(), source: e.into() }),
    }
}

/// What direct I/O on `file` has to be aligned to; `Some(0)` when it can't be done, `None` when
/// the kernel (before 6.1) does not say.
fn direct_alignment(file: &File) -> Option<usize> {
    let statx = rustix::fs::statx(file.as_fd(), "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let statx = statx.ok()?;
    if statx.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return None;
    }
    if statx.stx_dio_offset_align == 0 || statx.stx_dio_mem_align == 0 {
        return Some(0);
    }
    Some(statx.stx_dio_offset_align.max(statx.stx_dio_mem_align) as usize)
}

fn set_buffered(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags.difference(rustix::fs::OFlags::DIRECT))?)
}

/// Makes the file `bytes` bytes long with its blocks from `from` on; where the file system can't,
/// a sparse file has to do.
fn allocate(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), from, bytes - from) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP) => file.set_len(bytes),
        Err(e) => Err(e.into()),
    }
}

impl BlockDevice for FileDevice {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn alignment(&self) -> usize {
        self.alignment
    }

    fn read(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        let length = check_alignment(offset, into.iter().map(|piece| &**piece), self.alignment)?;
        check_bounds(offset, length, self.capacity)?;
        if let [single] = into {
            return self.read_single(offset, single);
        }
        let mut pieces: Vec<IoSliceMut<'_>> =
            into.iter_mut().map(|piece| IoSliceMut::new(piece)).collect();
        let mut left = &mut pieces[..];
        let mut done = 0;
        while done < length {
            let now = left.len().min(MAX_PIECES);
            match rustix::io::preadv(&self.file, &mut left[..now], offset + done) {
                Ok(0) => return Err(self.medium("read", offset, length, Errno::IO)),
                Ok(bytes) => {
                    done += bytes as u64;
                    IoSliceMut::advance_slices(&mut left, bytes);
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(self.medium("read", offset, length, e)),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, from: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        let length = check_alignment(offset, from.iter().map(|piece| &**piece), self.alignment)?;
        check_bounds(offset, length, self.capacity)?;
        let mut pieces = from.to_vec();
        let mut left = &mut pieces[..];
        let mut done = 0;
        while done < length {
            let now = left.len().min(MAX_PIECES);
            match rustix::io::pwritev(&self.file, &left[..now], offset + done) {
                Ok(0) => return Err(self.medium("write", offset, length, Errno::IO)),
                Ok(bytes) => {
                    done += bytes as u64;
                    IoSlice::advance_slices(&mut left, bytes);
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(self.medium("write", offset, length, e)),
            }
        }
        Ok(())
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        self.check_reads(requests)?;
        match self.ring(requests.len(), MIN_RING_REQUESTS) {
            Some(ring) => self.serve(ring, Batch::reads(requests), None),
            None => requests.iter_mut().try_for_each(|each| self.read(each.offset, &mut each.into)),
        }
    }

    fn read_queue(&self) -> Box<dyn ReadQueue + '_> {
        Box::new(RingReads::new(self))
    }

    fn has_deep_queue(&self) -> bool {
        self.queue != Queue::Plain && self.rings.is_usable()
    }

    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        self.check_writes(requests)?;
        match self.ring(requests.len(), MIN_RING_REQUESTS) {
            Some(ring) => self.serve(ring, Batch::writes(requests), None),
            None => requests.iter().try_for_each(|each| self.write(each.offset, &each.from)),
        }
    }

    fn write_batch_with(
        &self,
        requests: &[WriteRequest<'_>],
        meanwhile: Meanwhile<'_>,
    ) -> Result<(), DeviceError> {
        let checked = self.check_writes(requests);
        // Even one write is worth a ring here: the thread has something else to do.
        let ring = if checked.is_ok() { self.ring(requests.len(), 1) } else { None };
        match ring {
            Some(ring) => self.serve(ring, Batch::writes(requests), Some(meanwhile)),
            None => {
                meanwhile(&mut || ());
                checked?;
                requests.iter().try_for_each(|each| self.write(each.offset, &each.from))
            }
        }
    }

    fn sync(&self) -> Result<(), DeviceError> {
        loop {
            match rustix::fs::fdatasync(&self.file) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(self.medium("sync", 0, 0, e)),
            }
        }
    }
}

impl fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.direct { "direct" } else { "buffered" };
        write!(f, "FileDevice({}, {} bytes, {mode})", self.path.display(), self.capacity)
    }
}
