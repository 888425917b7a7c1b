//! Receiving much: who waits for it is woken when a good part has come, and not by each segment.
//!
//! To wake somebody takes time of whoever sends over the loopback, or of the core that takes interrupts (`docs/performance.md` has what
//! it comes to). The system can be told how much has to be there (`SO_RCVLOWAT`, `socket(7)`): that many bytes that nobody has
//! taken yet, so that what has come is taken before it is waited for more, and never for more than is still to come.

use std::io::{self, IoSliceMut};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recvmsg};

/// So many bytes are waited for at a time: they are taken out of the processor's own memory.
const AT_A_TIME: usize = 128 << 10;

/// The system takes no more of them at a time (`IOV_MAX`).
const MOST_SLICES: usize = 1024;

/// So many bytes of a stream that are to come. Nobody else may receive from it meanwhile.
#[derive(Debug)]
pub struct Much<'a> {
    stream: &'a TcpStream,
    left: usize,
    /// What wakes who waits, as the system was told.
    wakes: usize,
}

impl<'a> Much<'a> {
    /// Before the first of them is received.
    pub fn new(stream: &'a TcpStream, bytes: usize) -> Much<'a> {
        Much { stream, left: bytes, wakes: 1 }
    }

    /// Some of them, after a wait of at most `patience` where none are there.
    ///
    /// # Errors
    ///
    /// What the system says: [`io::ErrorKind::WouldBlock`] if nothing has come; [`io::ErrorKind::Interrupted`] after a
    /// signal. 0 bytes are the end of the stream.
    pub fn receive(
        &mut self,
        into: &mut [IoSliceMut<'_>],
        patience: Duration,
    ) -> io::Result<usize> {
        let outcome = match self.take(into) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.wake_at(self.left.clamp(1, AT_A_TIME))?;
                let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
                poll(&mut [PollFd::new(self.stream, PollFlags::IN)], Some(&patience))?;
                // Also after too long a wait: less may have come.
                self.take(into)
            }
            outcome => outcome,
        };
        self.left = self.left.saturating_sub(*outcome.as_ref().unwrap_or(&0));
        outcome
    }

    /// What is there.
    fn take(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        // Those behind are for the next time.
        let most = into.len().min(MOST_SLICES);
        let (into, mut none) = (&mut into[..most], RecvAncillaryBuffer::default());
        Ok(recvmsg(self.stream, into, &mut none, RecvFlags::DONTWAIT)?.bytes)
    }

    fn wake_at(&mut self, bytes: usize) -> io::Result<()> {
        if bytes == self.wakes {
            return Ok(());
        }
        let value = libc::c_int::try_from(bytes).map_err(io::Error::other)?;
        let length = size_of_val(&value) as libc::socklen_t;
        let (socket, at) = (self.stream.as_raw_fd(), (&raw const value).cast());
        // SAFETY: the value is there for the call, and as long as is said.
        let set =
            unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, at, length) };
        if set != 0 {
            // Where it can't be set at all each segment wakes.
            return if self.wakes == 1 { Ok(()) } else { Err(io::Error::last_os_error()) };
        }
        self.wakes = bytes;
        Ok(())
    }
}

impl Drop for Much<'_> {
    /// Whoever comes next may wait for less.
    fn drop(&mut self) {
        // What was set can be set back.
        let _ = self.wake_at(1);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener};
    use std::thread;
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (here, listener.accept().unwrap().0)
    }

    fn receive(much: &mut Much<'_>, mut into: &mut [u8]) {
        while !into.is_empty() {
            let begun = Instant::now();
            let outcome = much.receive(&mut [IoSliceMut::new(into)], LONG);
            assert!(begun.elapsed() < LONG / 2, "it was waited for what does not come");
            match outcome {
                Ok(0) => panic!("it ended"),
                Ok(count) => into = &mut into[count..],
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// However it is cut, all of it comes at once when the last of it has been sent: nobody waits for what does not come.
    #[test]
    fn all_comes_however_it_is_sent_and_what_follows_too() {
        let sizes = [1, 1000, AT_A_TIME - 1, AT_A_TIME, AT_A_TIME + 1, 3 * AT_A_TIME / 2, 1 << 20];
        for size in sizes {
            for cut in [1, 7, size / 3 + 1, AT_A_TIME - 1, 70_000, size] {
                if size / cut > 3000 {
                    continue;
                }
                let data: Vec<u8> = (0..size).map(|at| (at * 7 / 5) as u8).collect();
                let (mut here, there) = pair();
                thread::scope(|scope| {
                    scope.spawn(|| {
                        for (number, part) in data.chunks(cut).enumerate() {
                            here.write_all(part).unwrap();
                            // Some come alone, some together.
                            if number % 5 == 0 && number < 50 {
                                thread::sleep(Duration::from_micros(300));
                            }
                        }
                        here.write_all(b"end").unwrap();
                    });
                    let mut received = vec![0; size];
                    receive(&mut Much::new(&there, size), &mut received);
                    assert!(received == data, "{size} by {cut}");
                    let mut end = [0; 3];
                    there.set_read_timeout(Some(LONG)).unwrap();
                    (&there).read_exact(&mut end).unwrap();
                    assert_eq!(&end, b"end", "{size} by {cut}");
                });
            }
        }
    }

    #[test]
    fn what_does_not_come_is_waited_for_no_longer_than_is_said_and_what_has_come_is_told() {
        let (mut here, there) = pair();
        let mut much = Much::new(&there, 1 << 20);
        let (mut room, short) = (vec![0; 1 << 20], Duration::from_millis(50));
        let mut receive = |patience| much.receive(&mut [IoSliceMut::new(&mut room)], patience);
        assert_eq!(receive(short).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        here.write_all(b"a few").unwrap();
        assert_eq!(receive(short).unwrap(), 5);
        // Less than wakes anybody, and then the end, which does.
        let begun = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(50));
                here.write_all(b"more").unwrap();
                thread::sleep(Duration::from_millis(200));
                drop(here);
            });
            assert_eq!(receive(LONG).unwrap(), 4);
            assert!(begun.elapsed() >= Duration::from_millis(250), "a few bytes wake nobody");
            assert_eq!(receive(LONG).unwrap(), 0);
        });
        assert!(begun.elapsed() < LONG / 2);
    }

    #[test]
    fn what_was_waited_for_is_forgotten_with_it() {
        let (mut here, there) = pair();
        let mut room = vec![0; 1 << 20];
        let mut receive = |bytes, patience| {
            Much::new(&there, bytes).receive(&mut [IoSliceMut::new(&mut room)], patience)
        };
        for count in 1..4 {
            let nothing = receive(1 << 20, Duration::from_millis(20)).unwrap_err();
            assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
            here.write_all(b"abcd").unwrap();
            let patience = Timespec::try_from(LONG).unwrap();
            let woken = poll(&mut [PollFd::new(&there, PollFlags::IN)], Some(&patience)).unwrap();
            assert_eq!(woken, 1, "{count}: whoever comes next waits for as much");
            assert_eq!(receive(4, LONG).unwrap(), 4);
        }
    }

    #[test]
    fn who_waits_is_woken_when_either_end_gives_up() {
        for is_other in [true, false] {
            let (here, there) = pair();
            rustix::net::sockopt::set_socket_linger(&here, Some(Duration::ZERO)).unwrap();
            let begun = Instant::now();
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(50));
                    match is_other {
                        true => drop(here),
                        false => there.shutdown(Shutdown::Both).unwrap(),
                    }
                });
                let mut room = vec![0; 1 << 20];
                let outcome =
                    Much::new(&there, 1 << 20).receive(&mut [IoSliceMut::new(&mut room)], LONG);
                assert!(!matches!(outcome, Ok(1..)), "{outcome:?}");
            });
            assert!(begun.elapsed() < LONG / 2);
        }
    }
}
