//! The answer to one request: given once, from any thread. A reply that is dropped without an
//! answer is an I/O error, so that nobody waits for ever.

use std::fmt;
use std::io::{self, IoSlice};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use crate::answer::{Answer, Encoder};
use crate::device::Device;
use crate::request::Header;
use crate::wire::Writer;
use crate::{Directory, Errno, Listing, Offset, Written};

/// Parts of an answer that are sent without memory from the heap.
const FEW_PARTS: usize = 16;

/// Bytes of an answer's header: length u32, negative error i32, number of the request u64.
const HEADER_BYTES: usize = 16;

/// What an answer begins with; its length is put in by `finish`.
fn header(unique: u64, error: i32) -> Writer {
    let mut writer = Writer::new();
    writer.u32(0);
    writer.i32(error);
    writer.u64(unique);
    writer
}

/// The bytes of an answer, but for `more` bytes that follow.
pub(crate) fn finish(mut writer: Writer, more: usize) -> Writer {
    let length = writer.as_bytes().len() + more;
    writer.set_first_word(u32::try_from(length).unwrap_or(u32::MAX));
    writer
}

/// An answer of a fixed layout.
pub(crate) fn success(unique: u64, answer: &impl Answer) -> Writer {
    let mut encoder = Encoder(header(unique, 0));
    answer.encode(&mut encoder);
    finish(encoder.0, 0)
}

/// A refusal.
pub(crate) fn failure(unique: u64, error: Errno) -> Writer {
    finish(header(unique, -error.raw()), 0)
}

/// An answer that is due.
struct Due {
    unique: u64,
    opcode: u32,
    begun: Instant,
    /// The answer is that it can't be done.
    failed: bool,
    /// There until it is answered.
    device: Option<Arc<Device>>,
}

impl Due {
    /// Gives the answer with `send`. That the request has gone meanwhile is nobody's fault.
    fn answer(&mut self, send: impl FnOnce(&Device) -> io::Result<()>) {
        let Some(device) = self.device.take() else {
            return;
        };
        if !device.is_abandoned()
            && let Err(error) = send(&device)
        {
            log(self.unique, &error);
        }
        device.measures.count(self.opcode, self.failed, self.begun.elapsed());
        device.end();
    }
}

#[cold]
fn log(unique: u64, error: &io::Error) {
    // ENOENT: it was aborted; ENODEV: nothing is mounted any more.
    if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) {
        tracing::warn!(unique, %error, "an answer did not reach the kernel");
    }
}

impl Drop for Due {
    fn drop(&mut self) {
        if self.device.is_some() {
            let message = failure(self.unique, Errno::EIO);
            self.failed = true;
            self.answer(|device| device.send_one(message.as_bytes()));
        }
    }
}

/// The reply to one request, whose answer is an `A`.
pub struct Reply<A> {
    due: Due,
    kind: PhantomData<fn(A)>,
}

impl<A> fmt::Debug for Reply<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("unique", &self.due.unique).finish_non_exhaustive()
    }
}

impl<A> Reply<A> {
    /// To a request that `device` has counted.
    pub(crate) fn new(header: &Header, device: &Arc<Device>) -> Self {
        let due = Due {
            unique: header.unique,
            opcode: header.opcode,
            begun: Instant::now(),
            failed: false,
            device: Some(Arc::clone(device)),
        };
        Reply { due, kind: PhantomData }
    }

    /// It can't be done.
    pub fn error(mut self, error: Errno) {
        let message = failure(self.due.unique, error);
        self.due.failed = true;
        self.due.answer(|device| device.send_one(message.as_bytes()));
    }

    /// Sends bytes from where they lie.
    fn send_parts(mut self, parts: &[&[u8]]) {
        let length = parts.iter().map(|part| part.len()).sum();
        let head = finish(header(self.due.unique, 0), length);
        debug_assert_eq!(head.as_bytes().len(), HEADER_BYTES);
        let mut few = [IoSlice::new(&[]); FEW_PARTS];
        if let Some(room) = few.get_mut(..=parts.len()) {
            room[0] = IoSlice::new(head.as_bytes());
            room[1..].iter_mut().zip(parts).for_each(|(slice, part)| *slice = IoSlice::new(part));
            self.due.answer(|device| device.send(room));
        } else {
            let all = std::iter::once(head.as_bytes()).chain(parts.iter().copied());
            let all: Vec<IoSlice<'_>> = all.map(IoSlice::new).collect();
            self.due.answer(|device| device.send(&all));
        }
    }
}

impl<A: Answer> Reply<A> {
    /// It was done.
    pub fn ok(mut self, answer: &A) {
        let message = success(self.due.unique, answer);
        self.due.answer(|device| device.send_one(message.as_bytes()));
    }

    /// It was done, or can't be.
    pub fn send(self, outcome: Result<A, Errno>) {
        match outcome {
            Ok(answer) => self.ok(&answer),
            Err(error) => self.error(error),
        }
    }
}

/// Bytes: of a file, of a symbolic link.
#[derive(Clone, Copy, Debug)]
pub enum Bytes {}

impl Reply<Bytes> {
    /// These.
    pub fn bytes(self, bytes: &[u8]) {
        self.send_parts(&[bytes]);
    }

    /// These, one part after the other, sent from where they lie.
    pub fn parts(self, parts: &[&[u8]]) {
        self.send_parts(parts);
    }
}

impl Reply<Directory> {
    /// These entries; none tell that there are no more.
    pub fn listing(self, listing: &Listing) {
        self.send_parts(&[listing.as_bytes()]);
    }
}

/// An extended attribute, or the list of their names.
#[derive(Clone, Copy, Debug)]
pub enum Xattr {}

impl Reply<Xattr> {
    /// The value, for who asked with room for `asked` bytes: of 0, he wants its length alone; if
    /// it does not fit, that is an error.
    pub fn value(mut self, asked: u32, value: &[u8]) {
        let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
        if asked == 0 {
            let message = success(self.due.unique, &crate::XattrSize(length));
            return self.due.answer(|device| device.send_one(message.as_bytes()));
        }
        if length > asked {
            return self.error(Errno::ERANGE);
        }
        self.send_parts(&[value]);
    }
}

/// How many bytes were copied from file to file.
#[derive(Clone, Copy, Debug)]
pub enum Copied {}

/// The reply to a COPY_FILE_RANGE, whose answer has one of two widths.
#[derive(Debug)]
pub struct CopyReply {
    pub(crate) reply: Reply<Copied>,
    pub(crate) wide: bool,
}

impl CopyReply {
    /// So many.
    pub fn ok(mut self, bytes: u64) {
        let unique = self.reply.due.unique;
        let message = match self.wide {
            true => success(unique, &Offset(bytes)),
            // Fewer than were asked for may be told.
            false => success(unique, &Written(u32::try_from(bytes).unwrap_or(!4095))),
        };
        self.reply.due.answer(|device| device.send_one(message.as_bytes()));
    }

    /// It can't be done.
    pub fn error(self, error: Errno) {
        self.reply.error(error);
    }
}

/// What a control call answers.
#[derive(Clone, Copy, Debug)]
pub enum IoctlAnswer {}

impl Reply<IoctlAnswer> {
    /// The call's result, and the bytes that it gives (result i32, flags u32, 2 counts u32, bytes).
    pub fn result(mut self, result: i32, bytes: &[u8]) {
        let mut writer = header(self.due.unique, 0);
        writer.i32(result);
        writer.zeros(12);
        let head = finish(writer, bytes.len());
        let parts = [IoSlice::new(head.as_bytes()), IoSlice::new(bytes)];
        self.due.answer(|device| device.send(&parts));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;
    use crate::Done;

    /// A device that is a socket, and its other end.
    fn device() -> (Arc<Device>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        (Arc::new(Device::new(ours.into(), Arc::default())), theirs)
    }

    fn reply<A>(device: &Arc<Device>, unique: u64) -> Reply<A> {
        device.begin();
        let (uid, gid, pid) = (0, 0, 0);
        let header = Header { opcode: 15, unique, node: 1, uid, gid, pid, group: None };
        Reply::new(&header, device)
    }

    fn message(end: &mut UnixStream, length: usize) -> (u32, i32, u64, Vec<u8>) {
        let mut bytes = vec![0; length];
        end.read_exact(&mut bytes).unwrap();
        let mut reader = crate::wire::Reader::new(&bytes);
        let head = (reader.u32().unwrap(), reader.u32().unwrap() as i32, reader.u64().unwrap());
        (head.0, head.1, head.2, reader.rest().to_vec())
    }

    #[test]
    fn a_reply_is_given_once_and_always() {
        let (device, mut end) = device();
        reply::<Done>(&device, 7).ok(&Done);
        assert_eq!(message(&mut end, 16), (16, 0, 7, vec![]));
        reply::<Done>(&device, 8).error(Errno::EINTR);
        assert_eq!(message(&mut end, 16), (16, -libc::EINTR, 8, vec![]));
        drop(reply::<Done>(&device, 9));
        assert_eq!(message(&mut end, 16), (16, -libc::EIO, 9, vec![]));
        let other = reply::<Bytes>(&device, 10);
        assert_eq!(device.in_flight(), 1);
        std::thread::spawn(move || other.bytes(b"abc")).join().unwrap();
        assert_eq!(message(&mut end, 19), (19, 0, 10, b"abc".to_vec()));
        assert_eq!(device.in_flight(), 0);
        device.abandon();
        reply::<Done>(&device, 11).ok(&Done);
        assert!(end.read(&mut [0]).is_err(), "others answer now");
    }

    #[test]
    fn parts_are_gathered_however_many_there_are() {
        let (device, mut end) = device();
        for count in [0_usize, 1, 15, 16, 40] {
            let parts: Vec<Vec<u8>> = (0..count).map(|at| vec![at as u8; at]).collect();
            let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            reply::<Bytes>(&device, 5).parts(&slices);
            let whole = parts.concat();
            let length = 16 + whole.len();
            assert_eq!(message(&mut end, length), (length as u32, 0, 5, whole));
        }
    }

    #[test]
    fn xattrs_and_copies_have_answers_of_several_shapes() {
        let (device, mut end) = device();
        reply::<Xattr>(&device, 1).value(0, b"value");
        assert_eq!(message(&mut end, 24).3[..4], 5_u32.to_le_bytes());
        reply::<Xattr>(&device, 2).value(5, b"value");
        assert_eq!(message(&mut end, 21).3, b"value");
        reply::<Xattr>(&device, 3).value(4, b"value");
        assert_eq!(message(&mut end, 16).1, -libc::ERANGE);
        CopyReply { reply: reply(&device, 4), wide: true }.ok(1 << 33);
        assert_eq!(message(&mut end, 24).3, (1_u64 << 33).to_le_bytes());
        CopyReply { reply: reply(&device, 5), wide: false }.ok(1 << 33);
        assert_eq!(message(&mut end, 24).3[..4], 0xffff_f000_u32.to_le_bytes());
        reply::<IoctlAnswer>(&device, 6).result(-3, b"xy");
        assert_eq!(message(&mut end, 34).3[..4], (-3_i32).to_le_bytes());
    }
}
