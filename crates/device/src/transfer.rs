//! A batch of requests, cut into transfers that one system call or one ring entry can serve.

use std::io::{IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::{ReadRequest, SECTOR_BYTES, WriteRequest};

/// Most pieces of one transfer (IOV_MAX on Linux).
pub(crate) const MAX_PIECES: usize = 1024;

/// Most bytes of one transfer in a ring. A larger one would be cut by the kernel as well, but
/// in one go, by the thread that submits it; whole sectors, so that a cut is aligned.
const MAX_TRANSFER_BYTES: usize = 1 << 20;
const _: () = assert!(MAX_TRANSFER_BYTES.is_multiple_of(SECTOR_BYTES));

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// What is left of one transfer.
#[derive(Debug)]
struct Transfer {
    offset: u64,
    /// What is left of its memory, as indices of pieces; empty when it is done.
    pieces: Range<usize>,
    request: usize,
}

/// Requests of one direction as transfers, and how far each has come. It borrows the memory of the
/// requests for as long as it lives, alone if it reads into it.
pub(crate) struct Batch<'a> {
    direction: Direction,
    pieces: Vec<libc::iovec>,
    transfers: Vec<Transfer>,
    /// Offset and length of each request.
    requests: Vec<(u64, u64)>,
    memory: PhantomData<&'a mut [u8]>,
}

/// The request that failed first, and why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) error: Errno,
}

impl<'a> Batch<'a> {
    pub(crate) fn reads(requests: &'a mut [ReadRequest<'_>]) -> Batch<'a> {
        let mut batch = Batch::new(Direction::Read, requests.len());
        for request in requests {
            let pieces = request.into.iter_mut().map(|piece: &mut IoSliceMut<'_>| libc::iovec {
                iov_base: piece.as_mut_ptr().cast(),
                iov_len: piece.len(),
            });
            batch.add(request.offset, pieces);
        }
        batch
    }

    pub(crate) fn writes(requests: &'a [WriteRequest<'_>]) -> Batch<'a> {
        let mut batch = Batch::new(Direction::Write, requests.len());
        for request in requests {
            let pieces = request.from.iter().map(|piece: &IoSlice<'_>| libc::iovec {
                // Never written through: the direction is `Write`.
                iov_base: piece.as_ptr().cast_mut().cast(),
                iov_len: piece.len(),
            });
            batch.add(request.offset, pieces);
        }
        batch
    }

    fn new(direction: Direction, requests: usize) -> Batch<'a> {
        Batch {
            direction,
            pieces: Vec::with_capacity(requests),
            transfers: Vec::with_capacity(requests),
            requests: Vec::with_capacity(requests),
            memory: PhantomData,
        }
    }

    fn add(&mut self, offset: u64, pieces: impl Iterator<Item = libc::iovec>) {
        let request = self.requests.len();
        let (mut start, mut length, mut at) = (self.pieces.len(), 0, offset);
        for mut piece in pieces {
            while piece.iov_len > 0 {
                let count = self.pieces.len() - start;
                if count == MAX_PIECES || length == MAX_TRANSFER_BYTES {
                    let pieces = start..self.pieces.len();
                    self.transfers.push(Transfer { offset: at, pieces, request });
                    at += length as u64;
                    (start, length) = (self.pieces.len(), 0);
                }
                let now = piece.iov_len.min(MAX_TRANSFER_BYTES - length);
                self.pieces.push(libc::iovec { iov_len: now, ..piece });
                piece.iov_base = piece.iov_base.wrapping_byte_add(now);
                piece.iov_len -= now;
                length += now;
            }
        }
        if length > 0 {
            self.transfers.push(Transfer { offset: at, pieces: start..self.pieces.len(), request });
            at += length as u64;
        }
        self.requests.push((offset, at - offset));
    }

    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }

    /// How many transfers there are, done or not.
    pub(crate) fn len(&self) -> usize {
        self.transfers.len()
    }

    pub(crate) fn is_done(&self, index: usize) -> bool {
        self.transfers[index].pieces.is_empty()
    }

    /// Where the rest of a transfer goes on the device, and the memory for it.
    pub(crate) fn rest(&self, index: usize) -> (u64, &[libc::iovec]) {
        let transfer = &self.transfers[index];
        (transfer.offset, &self.pieces[transfer.pieces.clone()])
    }

    /// Counts `bytes` more of a transfer as done; whether that was all.
    pub(crate) fn advance(&mut self, index: usize, bytes: usize) -> bool {
        let transfer = &mut self.transfers[index];
        transfer.offset += bytes as u64;
        let mut left = bytes;
        while let Some(piece) = self.pieces[transfer.pieces.clone()].first_mut() {
            if left < piece.iov_len {
                piece.iov_base = piece.iov_base.wrapping_byte_add(left);
                piece.iov_len -= left;
                return false;
            }
            left -= piece.iov_len;
            transfer.pieces.start += 1;
        }
        true
    }

    pub(crate) fn failure(&self, index: usize, error: Errno) -> Failure {
        let (offset, length) = self.requests[self.transfers[index].request];
        Failure { offset, length, error }
    }

    /// Serves the rest of a transfer by plain system calls.
    pub(crate) fn serve_plainly(
        &mut self,
        index: usize,
        fd: BorrowedFd<'_>,
    ) -> Result<(), Failure> {
        while !self.is_done(index) {
            match self.call(index, fd) {
                Ok(0) => return Err(self.failure(index, Errno::IO)),
                Ok(bytes) => _ = self.advance(index, bytes),
                Err(Errno::INTR) => {}
                Err(e) => return Err(self.failure(index, e)),
            }
        }
        Ok(())
    }

    fn call(&mut self, index: usize, fd: BorrowedFd<'_>) -> Result<usize, Errno> {
        let direction = self.direction;
        let (offset, pieces) = self.rest(index);
        let (fd, count) = (fd.as_raw_fd(), pieces.len() as libc::c_int);
        let offset = i64::try_from(offset).map_err(|_| Errno::INVAL)?;
        // SAFETY: the pieces describe memory that `self` borrows, alone if it is read into, and
        // that no ring is using: a transfer is in a ring or here, never in both.
        let bytes = unsafe {
            match direction {
                Direction::Read => libc::preadv64(fd, pieces.as_ptr(), count, offset),
                Direction::Write => libc::pwritev64(fd, pieces.as_ptr(), count, offset),
            }
        };
        match usize::try_from(bytes) {
            Ok(bytes) => Ok(bytes),
            Err(_) => {
                Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// However pieces are cut and however short the transfers are, every byte of memory is
        /// named once, in order, with the place on the device that belongs to it.
        #[test]
        fn every_byte_is_named_once(
            lengths in prop::collection::vec(0usize..3000, 0..2200),
            large in prop::option::of(1usize..6),
            steps in prop::collection::vec(1usize..700_000, 1..40),
        ) {
            let mut lengths = lengths;
            lengths.extend(large.map(|large| large * (MAX_TRANSFER_BYTES / 2 + 4096)));
            let memory = vec![0u8; lengths.iter().sum()];
            let mut rest = &memory[..];
            let mut from = Vec::new();
            for &length in &lengths {
                let (piece, tail) = rest.split_at(length);
                from.push(IoSlice::new(piece));
                rest = tail;
            }
            let requests = [WriteRequest { offset: 8192, from }];
            let mut batch = Batch::writes(&requests);
            let (mut expected, mut steps) = (0, steps.into_iter().cycle());
            for index in 0..batch.len() {
                while !batch.is_done(index) {
                    let (offset, pieces) = batch.rest(index);
                    prop_assert!(pieces.len() <= MAX_PIECES);
                    prop_assert_eq!(offset, 8192 + expected as u64);
                    prop_assert_eq!(
                        pieces[0].iov_base.addr(),
                        memory.as_ptr().addr() + expected
                    );
                    let left: usize = pieces.iter().map(|piece| piece.iov_len).sum();
                    prop_assert!(left <= MAX_TRANSFER_BYTES);
                    let step = steps.next().unwrap().min(left);
                    prop_assert_eq!(batch.advance(index, step), step == left);
                    expected += step;
                }
            }
            prop_assert_eq!(expected, memory.len());
        }
    }
}
