//! What an object may be, after operations that were done, and others that were done or not.

use std::collections::BTreeSet;

use nasd_types::ByteRange;

/// Values of bytes are below this, so that the possible ones of a byte are a set of bits.
pub const VALUES: u64 = 64;

/// Only a zero.
const ZERO: u64 = 1;

/// An object's possible states. All that is observed leaves fewer.
#[derive(Clone, Debug)]
pub struct Expected {
    /// What each byte may be, up to the largest size.
    cells: Vec<u64>,
    /// What each byte may become when a drive loses what was not flushed.
    lost: Vec<u64>,
    /// What each byte may become when another copy decides: what was written there, or not, without being seen.
    late: Vec<u64>,
    late_size: (u64, u64),
    late_labels: BTreeSet<u8>,
    /// The least and the largest size.
    size: (u64, u64),
    lost_size: (u64, u64),
    pub versions: Vec<u64>,
    /// The first byte of what file systems keep.
    pub labels: BTreeSet<u8>,
    /// A removal has failed.
    pub may_be_gone: bool,
}

impl Expected {
    pub fn new(version: u64, size: u64, label: u8) -> Expected {
        let cells = vec![ZERO; size as usize];
        Expected {
            lost: cells.clone(),
            cells,
            size: (size, size),
            lost_size: (size, size),
            late: Vec::new(),
            late_size: (size, size),
            late_labels: BTreeSet::new(),
            versions: vec![version],
            labels: BTreeSet::from([label]),
            may_be_gone: false,
        }
    }

    pub fn largest(&self) -> u64 {
        self.size.1
    }

    pub fn least(&self) -> u64 {
        self.size.0
    }

    /// The size, if there is only one that it can be.
    pub fn known_size(&self) -> Option<u64> {
        (self.size.0 == self.size.1).then_some(self.size.0)
    }

    /// Makes room for sizes up to this.
    fn reach(&mut self, size: u64) {
        let high = self.size.1.max(size);
        self.cells.resize(high as usize, ZERO);
        self.lost_size = (self.lost_size.0.min(self.size.0), self.lost_size.1.max(high));
        self.lost.resize(self.lost_size.1 as usize, ZERO);
    }

    /// Bytes from here on may be zeros, as they may have been behind an end.
    fn may_be_zeros(&mut self, from: u64) {
        for cell in self.cells.iter_mut().skip(from as usize) {
            *cell |= ZERO;
        }
        for cell in self.lost.iter_mut().skip(from as usize) {
            *cell |= ZERO;
        }
    }

    /// Bytes were written, or, unless it is certain, were written or not, each by itself.
    pub fn write(&mut self, offset: u64, values: &[u64], certain: bool) {
        let end = offset + values.len() as u64;
        let (low, high) = self.size;
        self.reach(end);
        if low < high || !certain {
            self.may_be_zeros(low);
        }
        for (at, value) in values.iter().enumerate() {
            let at = offset as usize + at;
            self.lost[at] |= self.cells[at] | value;
            let both = self.cells[at] | value;
            self.cells[at] = if certain { *value } else { both };
            self.note_late(at, (!certain).then_some(both));
        }
        if end > low {
            self.lost_size.0 = self.lost_size.0.min(low);
        }
        self.size = (if certain { low.max(end) } else { low }, high.max(end));
        self.note_late_size(certain.then_some(end));
    }

    /// A byte may come to be this, or may not come to be anything else.
    fn note_late(&mut self, at: usize, value: Option<u64>) {
        if self.late.len() <= at {
            self.late.resize(at + 1, 0);
        }
        self.late[at] = value.map_or(0, |value| self.late[at] | value);
    }

    /// All copies reach up to there, if that is certain; what was seen besides may be of one of them alone.
    fn note_late_size(&mut self, certain: Option<u64>) {
        let (low, high) = self.late_size;
        let (least, largest) = self.size;
        self.late_size = match certain {
            Some(end) => (low.max(end), high.max(largest)),
            None => (low.min(least), high.max(largest)),
        };
    }

    /// What bytes may yet become, that were copied from elsewhere.
    pub fn may_become(&mut self, offset: u64, values: &[u64]) {
        for (at, value) in values.iter().enumerate() {
            let at = offset as usize + at;
            let present = self.late.get(at).copied().unwrap_or(0);
            self.note_late(at, Some(present | value));
        }
    }

    /// What of a range may yet become something else.
    pub fn late(&self, range: ByteRange) -> Vec<u64> {
        let late = |at: u64| self.late.get(at as usize).copied().unwrap_or(0);
        (range.offset..range.end()).map(late).collect()
    }

    pub fn set_label(&mut self, label: u8, certain: bool) {
        if certain {
            self.labels = BTreeSet::from([label]);
            self.late_labels.clear();
        } else {
            self.labels.insert(label);
            self.late_labels.insert(label);
        }
    }

    /// Other copies may decide from now on: what was done at some only may be seen again, or not.
    pub fn decided_anew(&mut self) {
        let high = self.size.1.max(self.late_size.1);
        let low = self.size.0.min(self.late_size.0);
        self.reach(high);
        for (cell, late) in self.cells.iter_mut().zip(&self.late) {
            *cell |= late;
        }
        if low < high {
            self.may_be_zeros(low);
        }
        self.size = (low, high);
        self.lost_size = (self.lost_size.0.min(low), self.lost_size.1.max(high));
        for (lost, cell) in self.lost.iter_mut().zip(&self.cells) {
            *lost |= cell;
        }
        self.labels.extend(&self.late_labels);
    }

    /// Makes bytes zeros, up to the end.
    pub fn punch(&mut self, range: ByteRange, certain: bool) {
        let range = range.intersection(&ByteRange::new(0, self.size.1));
        for at in range.offset as usize..range.end() as usize {
            self.lost[at] |= self.cells[at] | ZERO;
            let both = self.cells[at] | ZERO;
            self.cells[at] = if certain { ZERO } else { both };
            self.note_late(at, (!certain).then_some(both));
        }
    }

    pub fn resize(&mut self, size: u64, certain: bool) {
        let (low, high) = self.size;
        self.reach(size);
        for (lost, cell) in self.lost.iter_mut().zip(&self.cells) {
            *lost |= cell;
        }
        self.lost_size.0 = self.lost_size.0.min(size);
        if low < high || !certain {
            self.may_be_zeros(low.min(size));
        } else {
            self.lost.iter_mut().skip(low.min(size) as usize).for_each(|cell| *cell |= ZERO);
        }
        if certain {
            self.cells.truncate(size as usize);
            self.late.truncate(size as usize);
            self.size = (size, size);
            self.late_size = self.size;
        } else {
            self.size = (low.min(size), high.max(size));
            for at in size..high {
                let both = self.cells[at as usize] | ZERO;
                self.note_late(at as usize, Some(both));
            }
            self.note_late_size(None);
        }
    }

    /// All that there is is durable.
    pub fn flushed(&mut self) {
        self.lost = self.cells.clone();
        self.lost_size = self.size;
    }

    /// A drive may have lost something.
    pub fn restarted(&mut self) {
        let high = self.size.1.max(self.lost_size.1);
        self.cells.resize(high as usize, ZERO);
        self.lost.resize(high as usize, ZERO);
        for (cell, lost) in self.cells.iter_mut().zip(&self.lost) {
            *cell |= lost;
        }
        let low = self.size.0.min(self.lost_size.0);
        if low < high {
            self.may_be_zeros(low);
        }
        self.size = (low, high);
        self.lost_size = self.size;
        self.lost = self.cells.clone();
    }

    /// The object has this size.
    pub fn saw_size(&mut self, size: u64) -> Result<(), String> {
        let (low, high) = self.size;
        if size < low || size > high {
            return Err(format!("its size is {size}, not {low} to {high}"));
        }
        self.cells.truncate(size as usize);
        self.size = (size, size);
        Ok(())
    }

    /// The bytes of a range were these; the size is known.
    pub fn saw(&mut self, range: ByteRange, data: &[u8]) -> Result<(), String> {
        for (at, byte) in data.iter().enumerate() {
            let at = range.offset as usize + at;
            let cell = &mut self.cells[at];
            let bit = 1_u64.checked_shl(u32::from(*byte)).unwrap_or(0);
            if *cell & bit == 0 {
                return Err(format!("byte {at} is {byte}, not one of {cell:#x}"));
            }
            *cell = bit;
        }
        Ok(())
    }

    /// What a range may be.
    pub fn values(&self, range: ByteRange) -> Vec<u64> {
        let end = (range.end() as usize).min(self.cells.len());
        self.cells.get(range.offset as usize..end).unwrap_or_default().to_vec()
    }

    /// Whether all bytes of a range may be zeros.
    pub fn may_be_hole(&self, from: u64, to: u64) -> bool {
        self.values(ByteRange::new(from, to.saturating_sub(from))).iter().all(|v| v & ZERO != 0)
    }

    /// How many blocks have a byte that is certainly not zero.
    pub fn blocks_with_data(&self) -> u64 {
        self.cells.chunks(4096).filter(|block| block.iter().any(|v| v & ZERO == 0)).count() as u64
    }

    pub fn saw_version(&mut self, version: u64) -> Result<(), String> {
        if !self.versions.contains(&version) {
            return Err(format!("its version is {version}, not one of {:?}", self.versions));
        }
        // One that was set at some components may be seen later, but none falls.
        self.versions.retain(|other| *other >= version);
        Ok(())
    }

    pub fn saw_label(&mut self, label: u8) -> Result<(), String> {
        if !self.labels.contains(&label) {
            return Err(format!("its label is {label}, not one of {:?}", self.labels));
        }
        self.late_labels.retain(|late| *late != label);
        let others = self.labels.iter().filter(|other| **other != label);
        self.late_labels.extend(others);
        self.labels = BTreeSet::from([label]);
        Ok(())
    }
}
