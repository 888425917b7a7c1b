//! Appends in random work: each is made once, however often it is asked for, and whatever crash came
//! in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nasd_store::{Append, AppendDone, Store, StoreError};
use nasd_types::{AppendToken, ByteRange, ObjectName, Timestamp};

use super::history::{AppendMade, Content};
use super::operations::World;

/// Appends that are asked for again after a crash: the youngest.
const ASKED_AGAIN: usize = 20;

/// Worlds of the same seed go on from one another's drives, so that randomness would repeat.
fn next_token() -> AppendToken {
    static DRAWN: AtomicU64 = AtomicU64::new(1);
    let mut token = [0; AppendToken::BYTES];
    token[..8].copy_from_slice(&DRAWN.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    AppendToken(token)
}

fn ask(
    store: &Store,
    name: ObjectName,
    (token, bytes): (AppendToken, &[u8]),
    since: Option<Timestamp>,
) -> Result<AppendDone, StoreError> {
    let append = Append { bytes, token, since, within: ByteRange::ALL };
    store.append(name, &append, Timestamp(10))
}

impl World {
    pub fn append(&mut self, store: &Store) -> Result<(), StoreError> {
        let Some(name) = self.object() else { return Ok(()) };
        let before = self.histories().now(name).clone();
        let offset = before.bytes.len() as u64;
        let length = match self.random.below(4) {
            0 => 1 + self.random.below(100),
            1 => 1 + self.random.below(70_000),
            _ => 1 + self.random.below(5000),
        };
        if offset + length > self.mix.largest {
            return Ok(());
        }
        let bytes = Arc::new(self.some_bytes(length));
        let after = Arc::new([&before.bytes[..], &bytes].concat());
        let made = AppendMade { name, token: next_token(), offset, bytes, after: after.clone() };
        {
            // It is durable before it is answered.
            let mut histories = self.histories();
            histories.change(name, Some(Content { bytes: after, ..before }));
            histories.appending.push(made.clone());
        }
        let outcome = ask(store, name, (made.token, &made.bytes), None);
        let done = match self.allowed(outcome) {
            Ok(done) => done,
            Err(error) => {
                // Not done at all, or done and perhaps durable: then it may be seen, or not, until the drive is
                // started anew (docs/limits.md).
                let length_now = store.getattr(name).map(|found| found.logical_size);
                let mut histories = self.histories();
                if length_now.is_ok_and(|now| now != offset + length) {
                    histories.appending.pop();
                    histories.objects.get_mut(&name).and_then(Vec::pop);
                } else {
                    histories.unsure.insert(name);
                }
                drop(histories);
                return Err(error);
            }
        };
        let mut histories = self.histories();
        histories.appending.pop();
        match done {
            Some(done) => {
                assert_eq!(done.offset, offset, "{name}");
                assert_eq!(done.attributes.logical_size, offset + length, "{name}");
                histories.durable(name);
                histories.appended.push(made);
            }
            None => drop(histories.objects.get_mut(&name).and_then(Vec::pop)),
        }
        drop(histories);
        if self.random.below(4) == 0 {
            self.append_again(store)?;
        }
        self.compare(store, name)
    }

    /// Asks for what was appended once more, which changes nothing; also after a crash. What was not
    /// answered before that is there then, once.
    pub fn append_again(&mut self, store: &Store) -> Result<(), StoreError> {
        let since = Some(Timestamp(10));
        let young: Vec<AppendMade> = {
            let histories = self.histories();
            histories.appended.iter().rev().take(ASKED_AGAIN).cloned().collect()
        };
        for made in young {
            match ask(store, made.name, (made.token, &made.bytes), since) {
                Ok(done) => {
                    assert_eq!(done.offset, made.offset, "{made:?}");
                    let expected = self.histories().now(made.name).bytes.len() as u64;
                    assert_eq!(done.attributes.logical_size, expected, "{made:?}");
                    self.histories().durable(made.name);
                }
                Err(StoreError::NoSuchObject(_) | StoreError::NoSuchPartition(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Goes on with the appends that a crash cut off, as clients do whose drive comes back.
    pub fn go_on_appending(&mut self, store: &Store) -> Result<(), StoreError> {
        let cut_off = std::mem::take(&mut self.histories().appending);
        for made in cut_off {
            let before = match self.histories().objects.get(&made.name) {
                Some(states) => states.last().cloned().flatten(),
                None => None,
            };
            let Some(before) = before else { continue };
            let end = before.bytes.len() as u64;
            let was_made = before.bytes == made.after;
            let asked = ask(store, made.name, (made.token, &made.bytes), Some(Timestamp(10)));
            let Some(done) = self.allowed(asked)? else { continue };
            let offset = if was_made { made.offset } else { end };
            assert_eq!(done.offset, offset, "{made:?} of {end} bytes");
            let mut bytes = before.bytes.to_vec();
            if !was_made {
                bytes.extend_from_slice(&made.bytes);
            }
            assert_eq!(done.attributes.logical_size, bytes.len() as u64, "{made:?}");
            let mut histories = self.histories();
            histories.change(made.name, Some(Content { bytes: Arc::new(bytes), ..before }));
            histories.durable(made.name);
            histories.appended.push(AppendMade { offset, ..made });
        }
        Ok(())
    }
}
