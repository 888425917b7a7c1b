//! The file device against a real file system: exclusion, bounds, sizes and what it reads back.

use std::io::{IoSlice, IoSliceMut};

use nasd_device::{
    AlignedBuffer, BlockDevice, DeviceError, FileDevice, FileOptions, FramePool, Queue,
    SECTOR_BYTES,
};

const BUFFERED_OK: FileOptions = FileOptions { allow_buffered: true, queue: Queue::Auto };

#[test]
fn a_second_open_is_refused_by_name_until_the_first_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("medium");
    let first = FileDevice::create(&path, 1 << 20, BUFFERED_OK).unwrap();
    let error = FileDevice::open(&path, BUFFERED_OK).unwrap_err();
    assert!(matches!(&error, DeviceError::InUse { path: named } if *named == path));
    assert!(error.to_string().contains(path.to_str().unwrap()));
    drop(first);
    FileDevice::open(&path, BUFFERED_OK).unwrap();
}

#[test]
fn create_preallocates_and_never_overwrites() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("medium");
    let device = FileDevice::create(&path, 1_000_000, BUFFERED_OK).unwrap();
    assert_eq!(device.capacity(), 1_003_520);
    assert!(device.alignment() <= SECTOR_BYTES && device.alignment().is_power_of_two());
    drop(device);
    let error = FileDevice::create(&path, 1 << 20, BUFFERED_OK).unwrap_err();
    assert!(matches!(error, DeviceError::Open { .. }));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 1_003_520, "the old file is untouched");
}

#[test]
fn what_is_not_a_device_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = FileDevice::open(folder.path(), BUFFERED_OK).unwrap_err();
    assert!(matches!(error, DeviceError::NotADevice { .. }));
    let error = FileDevice::open("/dev/null", BUFFERED_OK).unwrap_err();
    assert!(matches!(error, DeviceError::NotADevice { .. }));
    let error = FileDevice::open(folder.path().join("absent"), BUFFERED_OK).unwrap_err();
    assert!(matches!(error, DeviceError::Open { .. }));
}

#[test]
fn many_pieces_are_written_and_read_back_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let device = FileDevice::create(folder.path().join("medium"), 16 << 20, BUFFERED_OK).unwrap();
    // More pieces than one system call takes.
    let pieces: Vec<AlignedBuffer> = (0..1500u32)
        .map(|number| {
            let mut piece = AlignedBuffer::zeroed(SECTOR_BYTES);
            piece[..4].copy_from_slice(&number.to_le_bytes());
            piece
        })
        .collect();
    let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    device.write(SECTOR_BYTES as u64, &slices).unwrap();
    device.sync().unwrap();
    let pool = FramePool::new(94).unwrap();
    let mut frames = pool.allocate_many(94).unwrap();
    let mut into: Vec<IoSliceMut<'_>> =
        frames.iter_mut().map(|frame| IoSliceMut::new(&mut frame[..])).collect();
    device.read(0, &mut into).unwrap();
    for number in 0..1500usize {
        let at = (number + 1) * SECTOR_BYTES;
        let frame = &frames[at / nasd_device::FRAME_BYTES];
        let within = at % nasd_device::FRAME_BYTES;
        assert_eq!(frame[within..within + 4], (number as u32).to_le_bytes());
    }
}

#[test]
fn transfers_outside_are_refused_before_the_file_grows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("medium");
    let device = FileDevice::create(&path, 8192, BUFFERED_OK).unwrap();
    let buffer = AlignedBuffer::zeroed(8192);
    let error = device.write(4096, &[IoSlice::new(&buffer)]).unwrap_err();
    assert!(matches!(error, DeviceError::OutOfBounds { .. }));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 8192);
    let error = device.write(1, &[IoSlice::new(&buffer[..4096])]).unwrap_err();
    assert!(matches!(error, DeviceError::Unaligned { .. }));
}

#[test]
fn a_file_grows_and_shrinks_when_nobody_has_it_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("medium");
    let device = FileDevice::create(&path, 64 << 10, BUFFERED_OK).unwrap();
    let mut buffer = AlignedBuffer::zeroed(SECTOR_BYTES);
    buffer.fill(7);
    device.write(4096, &[IoSlice::new(&buffer)]).unwrap();
    let error = FileDevice::resize(&path, 1 << 20).unwrap_err();
    assert!(matches!(&error, DeviceError::InUse { path: named } if *named == path));
    drop(device);

    assert_eq!(FileDevice::resize(&path, (1 << 20) - 1).unwrap(), 1 << 20);
    let device = FileDevice::open(&path, BUFFERED_OK).unwrap();
    assert_eq!(device.capacity(), 1 << 20);
    let mut image = AlignedBuffer::zeroed(1 << 20);
    device.read(0, &mut [IoSliceMut::new(&mut image)]).unwrap();
    assert!(image[4096..8192].iter().all(|&byte| byte == 7), "what was there is kept");
    assert!(image[8192..].iter().all(|&byte| byte == 0), "what is new is zero");
    drop(device);
    let blocks = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap());
    assert!(blocks * 512 >= 1 << 20, "what is new is preallocated");

    assert_eq!(FileDevice::resize(&path, 8192).unwrap(), 8192);
    assert_eq!(FileDevice::resize(&path, 8192).unwrap(), 8192);
    let device = FileDevice::open(&path, BUFFERED_OK).unwrap();
    assert_eq!(device.capacity(), 8192);
    device.read(4096, &mut [IoSliceMut::new(&mut image[..4096])]).unwrap();
    assert!(image[..4096].iter().all(|&byte| byte == 7));
}

#[test]
fn a_file_that_cannot_grow_stays_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("medium");
    drop(FileDevice::create(&path, 64 << 10, BUFFERED_OK).unwrap());
    // Larger than any file system, and than any file.
    for bytes in [1 << 62, u64::MAX] {
        let error = FileDevice::resize(&path, bytes).unwrap_err();
        assert!(matches!(error, DeviceError::Resize { .. }), "{error}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 64 << 10);
    }
    let error = FileDevice::resize(folder.path(), 1 << 20).unwrap_err();
    assert!(matches!(error, DeviceError::NotADevice { .. }));
    let error = FileDevice::resize(folder.path().join("absent"), 1 << 20).unwrap_err();
    assert!(matches!(error, DeviceError::Open { .. }));
}

/// The node only has to be there: nothing of the device is touched.
#[test]
fn a_block_device_is_not_resized() {
    let Some(node) = ["/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/loop0", "/dev/ram0"]
        .into_iter()
        .find(|node| std::path::Path::new(node).exists())
    else {
        return;
    };
    let error = FileDevice::resize(node, 1 << 20).unwrap_err();
    assert!(matches!(error, DeviceError::FixedSize { .. }), "{error}");
}
