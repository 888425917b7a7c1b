//! Where results go: a buffer of the caller's, of whatever size; what does not fit goes on in the next.

/// A buffer that a scan writes to.
#[derive(Debug)]
pub struct Output<'a> {
    buffer: &'a mut [u8],
    length: usize,
}

impl<'a> Output<'a> {
    /// An empty one over `buffer`.
    pub fn new(buffer: &'a mut [u8]) -> Output<'a> {
        Output { buffer, length: 0 }
    }

    /// What was written.
    pub fn written(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    /// Bytes that were written.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes that there is room for.
    pub(crate) fn room(&self) -> usize {
        self.buffer.len() - self.length
    }

    /// Takes back the last bytes that were written, if there are so many; tells whether.
    pub(crate) fn take_back(&mut self, bytes: usize) -> bool {
        let left = self.length.checked_sub(bytes);
        self.length = left.unwrap_or(self.length);
        left.is_some()
    }

    /// Writes all of `bytes` or nothing; tells which.
    #[inline]
    pub(crate) fn put_whole(&mut self, bytes: &[u8]) -> bool {
        match self.buffer[self.length..].get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.length += bytes.len();
                true
            }
            None => false,
        }
    }

    /// Writes the first `size` bytes of each item, as long as there is room for a whole one. Tells how many.
    #[inline]
    pub(crate) fn put_overlapping<'i, const N: usize>(
        &mut self,
        items: impl Iterator<Item = &'i [u8; N]>,
        size: usize,
    ) -> usize {
        let room = &mut self.buffer[self.length..];
        let (mut at, mut count) = (0, 0);
        for item in items {
            let Some(place) = room.get_mut(at..).and_then(|room| room.first_chunk_mut::<N>())
            else {
                break;
            };
            *place = *item;
            at += size;
            count += 1;
        }
        self.length += at;
        count
    }

    /// Writes as much of `bytes` as there is room for; tells how much.
    pub(crate) fn put_some(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.room());
        self.buffer[self.length..self.length + count].copy_from_slice(&bytes[..count]);
        self.length += count;
        count
    }

    /// Writes an item that `produce` makes, from its byte `progress` on; moves `progress` as far as there
    /// was room, or back to 0 when the item is whole. Tells whether it is.
    pub(crate) fn item(
        &mut self,
        progress: &mut usize,
        produce: impl FnOnce(&mut Part<'_, 'a>),
    ) -> bool {
        let before = self.length;
        let mut part = Part { skip: *progress, full: false, output: self };
        produce(&mut part);
        let full = part.full;
        *progress = if full { *progress + self.length - before } else { 0 };
        !full
    }
}

/// Something that bytes are put in.
pub(crate) trait Sink {
    /// Appends `bytes`, as far as that goes.
    fn put(&mut self, bytes: &[u8]);

    /// An XDR unsigned int.
    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    /// An XDR unsigned hyper.
    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_be_bytes());
    }

    /// An XDR opaque of variable length.
    fn put_opaque(&mut self, bytes: &[u8]) {
        self.put_u32(bytes.len() as u32);
        self.put(bytes);
        self.put(&[0; 3][..nasd_xdr::xdr_pad(bytes.len())]);
    }
}

/// What of an item fits in an output, its first bytes left out.
pub(crate) struct Part<'o, 'a> {
    output: &'o mut Output<'a>,
    skip: usize,
    full: bool,
}

impl Sink for Part<'_, '_> {
    fn put(&mut self, bytes: &[u8]) {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        let bytes = &bytes[skipped..];
        if !self.full {
            self.full = self.output.put_some(bytes) < bytes.len();
        }
    }
}

/// Counts.
#[derive(Default)]
pub(crate) struct Counter(pub(crate) usize);

impl Sink for Counter {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Fills a slice that is long enough.
pub(crate) struct Filler<'a> {
    pub(crate) room: &'a mut [u8],
    pub(crate) length: usize,
}

impl Sink for Filler<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.room[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}
