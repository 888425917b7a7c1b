//! Batches through the ring: the same results as plain calls, whatever happens on the way.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

use std::io::{IoSlice, IoSliceMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use nasd_device::{
    AlignedBuffer, BlockDevice, DeviceError, FileDevice, FileOptions, FramePool, FrameRead, Queue,
    ReadPart, ReadRequest, SECTOR_BYTES, WriteRequest,
};
use proptest::prelude::*;

const SECTOR: u64 = SECTOR_BYTES as u64;

fn options(queue: Queue) -> FileOptions {
    FileOptions { allow_buffered: true, queue }
}

/// A device whose ring, if the kernel here has none, is replaced by plain calls: then these tests
/// still check those.
fn device(folder: &tempfile::TempDir, name: &str, bytes: u64, queue: Queue) -> FileDevice {
    let path = folder.path().join(name);
    FileDevice::create(&path, bytes, options(Queue::Plain)).unwrap();
    match FileDevice::open(&path, options(queue)) {
        Err(DeviceError::NoRing { .. }) => FileDevice::open(&path, options(Queue::Auto)).unwrap(),
        opened => opened.unwrap(),
    }
}

fn filled(sectors: usize, seed: u64) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(sectors * SECTOR_BYTES);
    for (index, word) in buffer.chunks_mut(8).enumerate() {
        let value = (index as u64 + 1).wrapping_mul(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        word.copy_from_slice(&value.to_le_bytes());
    }
    buffer
}

fn whole(device: &FileDevice) -> AlignedBuffer {
    let mut image = AlignedBuffer::zeroed(device.capacity() as usize);
    device.read(0, &mut [IoSliceMut::new(&mut image)]).unwrap();
    image
}

/// Requests that lie side by side in any order: (gap before, pieces of the request) in sectors.
type Shape = Vec<(u64, Vec<usize>)>;

fn shapes() -> impl Strategy<Value = Shape> {
    // Now and then more requests than a ring takes at once, or pieces larger than a transfer.
    let small = prop::collection::vec((0u64..3, prop::collection::vec(0usize..5, 0..4)), 0..150);
    let large = prop::collection::vec((0u64..40, prop::collection::vec(0usize..700, 0..3)), 0..6);
    prop_oneof![3 => small, 1 => large].prop_shuffle()
}

/// Where each request starts, in sectors, and where the last one ends.
fn places(shape: &Shape) -> (Vec<u64>, u64) {
    let mut at = 0;
    let starts = shape.iter().map(|(gap, pieces)| {
        let start = at + gap;
        at = start + pieces.iter().sum::<usize>() as u64;
        start
    });
    (starts.collect(), at)
}

/// Cuts memory into the pieces of each request, one behind the other.
fn cut<'m>(shape: &Shape, mut memory: &'m [u8]) -> Vec<WriteRequest<'m>> {
    let (starts, _) = places(shape);
    let mut requests = Vec::new();
    for (start, (_, pieces)) in starts.into_iter().zip(shape) {
        let mut from = Vec::new();
        for &sectors in pieces {
            let (piece, rest) = memory.split_at(sectors * SECTOR_BYTES);
            from.push(IoSlice::new(piece));
            memory = rest;
        }
        requests.push(WriteRequest { offset: start * SECTOR, from });
    }
    requests
}

fn cut_mut<'m>(shape: &Shape, mut memory: &'m mut [u8]) -> Vec<ReadRequest<'m>> {
    let (starts, _) = places(shape);
    let mut requests = Vec::new();
    for (start, (_, pieces)) in starts.into_iter().zip(shape) {
        let mut into = Vec::new();
        for &sectors in pieces {
            let (piece, rest) = memory.split_at_mut(sectors * SECTOR_BYTES);
            into.push(IoSliceMut::new(piece));
            memory = rest;
        }
        requests.push(ReadRequest { offset: start * SECTOR, into });
    }
    requests
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Any batch written through the ring leaves the file that plain calls leave, and any batch
    /// read through it brings what they bring.
    #[test]
    fn a_ring_does_what_plain_calls_do(shape in shapes(), order in any::<u64>(), seed in any::<u64>()) {
        let folder = tempfile::tempdir().unwrap();
        let sectors: usize = shape.iter().flat_map(|(_, pieces)| pieces).sum();
        let (_, end) = places(&shape);
        let bytes = (end + 1) * SECTOR;
        let memory = filled(sectors, seed);
        let ring = device(&folder, "ring", bytes, Queue::Uring);
        let plain = device(&folder, "plain", bytes, Queue::Plain);
        let mut requests = cut(&shape, &memory);
        let around = order as usize % requests.len().max(1);
        requests.rotate_left(around);
        plain.write_batch(&requests).unwrap();
        let mut ran = 0;
        if order % 2 == 0 {
            ring.write_batch(&requests).unwrap();
        } else {
            ring.write_batch_with(&requests, &mut |_| ran += 1).unwrap();
        }
        prop_assert_eq!(ran, order % 2);
        prop_assert!(whole(&ring)[..] == whole(&plain)[..], "files differ");
        let mut back = AlignedBuffer::zeroed(sectors * SECTOR_BYTES);
        let mut requests = cut_mut(&shape, &mut back);
        requests.rotate_left(around);
        ring.read_batch(&mut requests).unwrap();
        drop(requests);
        prop_assert!(back[..sectors * SECTOR_BYTES] == memory[..sectors * SECTOR_BYTES]);
    }
}

/// Reads sectors `first..` into memory, one request a sector, and checks whose they are.
fn read_sectors(
    device: &FileDevice,
    first: u64,
    count: usize,
) -> Result<AlignedBuffer, DeviceError> {
    let mut memory = AlignedBuffer::zeroed(count * SECTOR_BYTES);
    let mut requests: Vec<ReadRequest<'_>> = memory
        .chunks_mut(SECTOR_BYTES)
        .zip(first..)
        .map(|(chunk, at)| ReadRequest { offset: at * SECTOR, into: vec![IoSliceMut::new(chunk)] })
        .collect();
    device.read_batch(&mut requests)?;
    drop(requests);
    Ok(memory)
}

fn write_sectors(device: &FileDevice, first: u64, from: &[u8]) -> Result<(), DeviceError> {
    device.write_batch(&sector_writes(first, from))
}

fn sector_writes(first: u64, from: &[u8]) -> Vec<WriteRequest<'_>> {
    from.chunks(SECTOR_BYTES)
        .zip(first..)
        .map(|(chunk, at)| WriteRequest { offset: at * SECTOR, from: vec![IoSlice::new(chunk)] })
        .collect()
}

/// More threads than there are rings, so that some go plainly in between.
#[test]
fn threads_do_not_mix_their_batches_up() {
    let folder = tempfile::tempdir().unwrap();
    let device = device(&folder, "medium", 12 * 100 * SECTOR, Queue::Uring);
    std::thread::scope(|scope| {
        for thread in 0..12u64 {
            let device = &device;
            scope.spawn(move || {
                for round in 0..8 {
                    let written = filled(100, thread * 100 + round + 1);
                    write_sectors(device, thread * 100, &written).unwrap();
                    let read = read_sectors(device, thread * 100, 100).unwrap();
                    assert!(read[..] == written[..], "thread {thread}, round {round}");
                }
            });
        }
    });
}

#[test]
fn a_wrong_request_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    for queue in [Queue::Uring, Queue::Plain, Queue::Auto] {
        let device = device(&folder, &format!("{queue:?}"), 16 * SECTOR, queue);
        let memory = filled(16, 5);
        let mut requests = sector_writes(0, &memory);
        requests[8].offset = 16 * SECTOR;
        let error = device.write_batch(&requests).unwrap_err();
        assert!(matches!(error, DeviceError::OutOfBounds { offset, .. } if offset == 16 * SECTOR));
        requests[8].offset = 8 * SECTOR + 1;
        let mut ran = 0;
        let error = device.write_batch_with(&requests, &mut |_| ran += 1).unwrap_err();
        assert!(matches!(error, DeviceError::Unaligned { .. }));
        assert_eq!(ran, 1, "what is to be done meanwhile is done whatever happens");
        assert!(whole(&device).iter().all(|&byte| byte == 0));
        device.write_batch(&[]).unwrap();
        device.read_batch(&mut []).unwrap();
    }
}

/// The file is cut short behind the device's back, so that reads in the middle of a batch fail.
#[test]
fn an_error_in_the_middle_is_reported_and_the_ring_lives_on() {
    let folder = tempfile::tempdir().unwrap();
    for queue in [Queue::Uring, Queue::Plain] {
        let name = format!("{queue:?}");
        let device = device(&folder, &name, 512 * SECTOR, queue);
        let written = filled(512, 9);
        write_sectors(&device, 0, &written).unwrap();
        let file = std::fs::File::options().write(true).open(folder.path().join(&name)).unwrap();
        file.set_len(300 * SECTOR).unwrap();
        for _ in 0..20 {
            let error = read_sectors(&device, 200, 300).unwrap_err();
            assert!(
                matches!(error, DeviceError::Medium { operation: "read", offset, length, .. }
                    if offset >= 300 * SECTOR && length == SECTOR),
                "{error}"
            );
        }
        // A request that is served in part first.
        let mut memory = [AlignedBuffer::zeroed(20 * 4096), AlignedBuffer::zeroed(20 * 4096)];
        let mut requests: Vec<ReadRequest<'_>> = memory
            .iter_mut()
            .zip([290, 0])
            .map(|(buffer, at)| ReadRequest {
                offset: at * SECTOR,
                into: buffer.chunks_mut(4096).map(IoSliceMut::new).collect(),
            })
            .collect();
        let error = device.read_batch(&mut requests).unwrap_err();
        assert!(matches!(error, DeviceError::Medium { offset, length, .. }
            if offset == 290 * SECTOR && length == 20 * SECTOR));
        let read = read_sectors(&device, 0, 300).unwrap();
        assert!(read[..] == written[..300 * SECTOR_BYTES]);
    }
}

/// A request beyond the end of a file that was cut short fails at once, while large ones are still
/// on their way: the call must not return before those have landed.
#[test]
fn nothing_is_in_flight_after_an_error() {
    let folder = tempfile::tempdir().unwrap();
    // More than a ring takes at once, so that not all are waited for at once.
    let piece = 64 * SECTOR_BYTES;
    let device = device(&folder, "medium", 121 * piece as u64, Queue::Uring);
    let file = std::fs::File::options().write(true).open(device.path()).unwrap();
    file.set_len(120 * piece as u64).unwrap();
    // What was never written is not even read from the medium.
    let mut memory = AlignedBuffer::zeroed(121 * piece);
    device.write(0, &[IoSlice::new(&memory[..120 * piece])]).unwrap();
    device.sync().unwrap();
    let rounds = (0..30).filter(|_| {
        memory.fill(0xee);
        // The piece beyond the end first, then the others.
        let mut requests: Vec<ReadRequest<'_>> = memory
            .chunks_mut(piece)
            .zip(std::iter::once(120).chain(0..120))
            .map(|(chunk, at)| ReadRequest {
                offset: at * piece as u64,
                into: vec![IoSliceMut::new(chunk)],
            })
            .collect();
        device.read_batch(&mut requests).unwrap_err();
        drop(requests);
        memory.fill(0xdd);
        std::thread::sleep(std::time::Duration::from_millis(5));
        memory.iter().any(|&byte| byte != 0xdd)
    });
    assert_eq!(rounds.count(), 0, "rounds in which memory changed after the call");
}

#[test]
fn a_panic_meanwhile_goes_on_when_the_writes_are_over() {
    let folder = tempfile::tempdir().unwrap();
    let device = device(&folder, "medium", 200 * SECTOR, Queue::Uring);
    for round in 0..20 {
        let written = filled(200, round + 1);
        let requests = sector_writes(0, &written);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            device.write_batch_with(&requests, &mut |_| panic!("planned"))
        }));
        assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"planned"));
        drop(requests);
        if device.has_ring() {
            // The ring completes what it began; plainly, nothing was begun.
            assert!(whole(&device)[..] == written[..]);
        }
    }
    // Every ring came back whole.
    let read = read_sectors(&device, 0, 200).unwrap();
    assert!(read[..] == whole(&device)[..]);
}

#[test]
fn the_device_can_be_used_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let device = device(&folder, "medium", 400 * SECTOR, Queue::Uring);
    let (below, above) = (filled(200, 3), filled(200, 4));
    let mut inner = Ok(());
    device
        .write_batch_with(&sector_writes(0, &below), &mut |_| {
            inner = device.write_batch_with(&sector_writes(200, &above), &mut |_| {
                read_sectors(&device, 100, 200).unwrap();
            });
        })
        .unwrap();
    inner.unwrap();
    let image = whole(&device);
    assert!(image[..200 * SECTOR_BYTES] == below[..] && image[200 * SECTOR_BYTES..] == above[..]);
}

extern "C" fn ignore(_: libc::c_int) {}

#[test]
fn signals_interrupt_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let device = device(&folder, "medium", 256 * SECTOR, Queue::Uring);
    // SAFETY: the handler does nothing; without SA_RESTART, waits end with EINTR.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as libc::sighandler_t;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
    let done = AtomicBool::new(false);
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            // SAFETY: takes nothing and always succeeds.
            sender.send(unsafe { libc::pthread_self() }).unwrap();
            for round in 0..50 {
                let written = filled(256, round + 1);
                write_sectors(&device, 0, &written).unwrap();
                let read = read_sectors(&device, 0, 256).unwrap();
                assert!(read[..] == written[..]);
            }
            done.store(true, Ordering::Release);
        });
        let thread = receiver.recv().unwrap();
        // Bounded in time as well, should the worker fail.
        for _ in 0..200_000 {
            if done.load(Ordering::Acquire) || worker.is_finished() {
                break;
            }
            // SAFETY: the thread has not been joined, so its handle is valid.
            unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    });
}

/// From now on, system calls of these numbers fail with EPERM in this thread.
fn forbid(calls: &[libc::c_long]) {
    let statement = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    // The number of the call is the first field.
    let mut filter = vec![statement(load, 0, 0, 0)];
    for (index, &call) in calls.iter().enumerate() {
        let to_refusal = (calls.len() - index) as u8;
        filter.push(statement(equal, to_refusal, 0, call as u32));
    }
    filter.push(statement(answer, 0, 0, libc::SECCOMP_RET_ALLOW));
    filter.push(statement(answer, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program outlives the calls that read it; both concern this thread alone.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &program), 0);
    }
}

#[test]
fn where_the_kernel_refuses_rings_plain_calls_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("medium");
    FileDevice::create(&path, 100 * SECTOR, options(Queue::Plain)).unwrap();
    let work = || {
        forbid(&[libc::SYS_io_uring_setup]);
        let error = FileDevice::open(&path, options(Queue::Uring)).unwrap_err();
        assert!(matches!(&error, DeviceError::NoRing { path: named, .. } if *named == path));
        let device = FileDevice::open(&path, options(Queue::Auto)).unwrap();
        assert!(!device.has_ring());
        let written = filled(100, 8);
        write_sectors(&device, 0, &written).unwrap();
        assert!(read_sectors(&device, 0, 100).unwrap()[..] == written[..]);
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap());
}

/// The kernel goes back on its word when the ring is already made: a filter set after start, say.
#[test]
fn a_ring_that_stops_working_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let device = device(&folder, "medium", 100 * SECTOR, Queue::Uring);
    let first = filled(100, 6);
    write_sectors(&device, 0, &first).unwrap();
    let work = |ran: &mut u32| {
        forbid(&[libc::SYS_io_uring_enter]);
        let written = filled(100, 8);
        device.write_batch_with(&sector_writes(0, &written), &mut |_| *ran += 1).unwrap();
        assert!(!device.has_ring(), "it is not tried again");
        assert!(read_sectors(&device, 0, 100).unwrap()[..] == written[..]);
    };
    let mut count = 0;
    std::thread::scope(|scope| scope.spawn(|| work(&mut count)).join().unwrap());
    assert_eq!(count, 1);
    read_sectors(&device, 0, 100).unwrap();
}

/// More writes than the ring takes at once are started by whoever computes meanwhile.
#[test]
fn a_batch_goes_on_while_something_else_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let device = device(&folder, "medium", 1000 * SECTOR, Queue::Uring);
    let written = filled(1000, 9);
    let (mut steps, mut ran) = (0, 0);
    device
        .write_batch_with(&sector_writes(0, &written), &mut |keep_full| {
            ran += 1;
            // Long enough for all of them, were they started one by one.
            while steps < 20_000 {
                steps += 1;
                keep_full();
            }
        })
        .unwrap();
    assert_eq!((steps, ran), (20_000, 1));
    assert!(read_sectors(&device, 0, 1000).unwrap()[..] == written[..]);
}

/// Filtered while a batch is under way: what is in flight is waited for, the rest goes plainly.
#[test]
fn a_ring_that_stops_working_in_flight_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let device = device(&folder, "medium", 300 * SECTOR, Queue::Uring);
    let work = || {
        let written = filled(300, 8);
        let mut forbidden = |_: &mut dyn FnMut()| forbid(&[libc::SYS_io_uring_enter]);
        device.write_batch_with(&sector_writes(0, &written), &mut forbidden).unwrap();
        assert!(read_sectors(&device, 0, 300).unwrap()[..] == written[..]);
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap());
}

/// The same while a queue has reads under way.
#[test]
fn a_queue_whose_ring_stops_working_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let device = device(&folder, "medium", 300 * SECTOR, Queue::Auto);
    let written = filled(300, 8);
    write_sectors(&device, 0, &written).unwrap();
    let pool = FramePool::new(150).unwrap();
    let work = || {
        let mut queue = device.read_queue();
        for tag in 0..150 {
            let part = |sector: usize, range| ReadPart { offset: sector as u64 * SECTOR, range };
            let parts = vec![part(2 * tag, 0..4096), part(2 * tag + 1, 8192..12_288)];
            queue.begin(FrameRead { tag, frame: pool.allocate().unwrap(), parts });
        }
        let mut ended = queue.ended(3);
        forbid(&[libc::SYS_io_uring_enter]);
        while queue.under_way() > 0 {
            ended.extend(queue.ended(1));
        }
        assert_eq!(ended.len(), 150);
        for end in ended {
            end.outcome.unwrap();
            let expected = &written[2 * end.tag * SECTOR_BYTES..][..2 * SECTOR_BYTES];
            assert!(end.frame[..4096] == expected[..4096]);
            assert!(end.frame[8192..12_288] == expected[4096..]);
        }
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap());
}

#[test]
fn a_medium_is_free_again_as_soon_as_the_device_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    drop(device(&folder, "medium", 100 * SECTOR, Queue::Uring));
    for round in 0..50 {
        let device = FileDevice::open(folder.path().join("medium"), options(Queue::Auto)).unwrap();
        write_sectors(&device, 0, &filled(100, round + 1)).unwrap();
    }
}
