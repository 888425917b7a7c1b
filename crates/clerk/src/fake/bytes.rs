//! The bytes of one object, sparse, and cheap to copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use nasd_types::ByteRange;

use crate::wire::SeekTarget;

/// Bytes of a page.
const PAGE: usize = 64 << 10;

/// Bytes of an object; what was never written is zero. A copy shares the pages.
#[derive(Clone, Debug, Default)]
pub(super) struct SparseBytes {
    pages: BTreeMap<u64, Arc<Vec<u8>>>,
    length: u64,
}

impl SparseBytes {
    /// Length in bytes.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Bytes that take room.
    pub(super) fn used_bytes(&self) -> u64 {
        (self.pages.len() * PAGE) as u64
    }

    /// Reads into the start of `into`; returns how many bytes there were.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        let available = self.length.saturating_sub(offset);
        let count = usize::try_from(available).unwrap_or(usize::MAX).min(into.len());
        let mut done = 0;
        while done < count {
            let at = offset + done as u64;
            let within = (at % PAGE as u64) as usize;
            let part = (PAGE - within).min(count - done);
            let target = &mut into[done..done + part];
            match self.pages.get(&(at / PAGE as u64)) {
                Some(page) => target.copy_from_slice(&page[within..within + part]),
                None => target.fill(0),
            }
            done += part;
        }
        count
    }

    /// Writes all of `data`.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let within = (at % PAGE as u64) as usize;
            let part = (PAGE - within).min(data.len() - done);
            let page =
                self.pages.entry(at / PAGE as u64).or_insert_with(|| Arc::new(vec![0; PAGE]));
            Arc::make_mut(page)[within..within + part].copy_from_slice(&data[done..done + part]);
            done += part;
        }
        self.length = self.length.max(offset + data.len() as u64);
    }

    /// Makes bytes zero; what is beyond the end stays so.
    pub(super) fn punch(&mut self, range: ByteRange) {
        let end = range.end().min(self.length);
        let mut at = range.offset;
        while at < end {
            let (number, within) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let part = (PAGE - within).min(usize::try_from(end - at).unwrap_or(PAGE));
            if part == PAGE {
                self.pages.remove(&number);
            } else if let Some(page) = self.pages.get_mut(&number) {
                Arc::make_mut(page)[within..within + part].fill(0);
            }
            at += part as u64;
        }
    }

    /// The next page that is there, or is not.
    pub(super) fn seek(&self, offset: u64, target: SeekTarget) -> Option<u64> {
        if offset >= self.length {
            return None;
        }
        let is_data = |number: u64| self.pages.contains_key(&number);
        let wanted = matches!(target, SeekTarget::Data);
        let pages = offset / PAGE as u64..self.length.div_ceil(PAGE as u64);
        let found = pages.into_iter().find(|number| is_data(*number) == wanted);
        let end = (!wanted).then_some(self.length);
        found.map(|number| offset.max(number * PAGE as u64)).or(end)
    }

    /// Cuts, or extends with zeros.
    pub(super) fn set_length(&mut self, length: u64) {
        if length < self.length {
            let (last, within) = (length / PAGE as u64, (length % PAGE as u64) as usize);
            self.pages.retain(|number, _| *number < last || (*number == last && within > 0));
            if let Some(page) = self.pages.get_mut(&last) {
                Arc::make_mut(page)[within..].fill(0);
            }
        }
        self.length = length;
    }
}
