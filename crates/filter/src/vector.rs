//! What a batch of records is evaluated in: a vector of values a register, and the records selected.

use crate::format::Type;

/// Most records of a batch.
pub(crate) const BATCH: usize = 1024;

/// Where a text lies. Batches are below 2^31 bytes, so offsets take 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) place: Place,
    pub(crate) start: u32,
    pub(crate) length: u32,
}

/// The bytes that a text is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// Those of the batch.
    #[default]
    Input,
    /// What did not stand so in the batch: without escapes, for example.
    Scratch,
    /// The program's.
    Constant,
}

/// All the bytes that texts may be of.
#[derive(Clone, Copy)]
pub(crate) struct Places<'a> {
    pub(crate) input: &'a [u8],
    pub(crate) scratch: &'a [u8],
    pub(crate) constant: &'a [u8],
}

impl<'a> Places<'a> {
    #[inline]
    pub(crate) fn get(&self, text: Text) -> &'a [u8] {
        let bytes = match text.place {
            Place::Input => self.input,
            Place::Scratch => self.scratch,
            Place::Constant => self.constant,
        };
        &bytes[text.start as usize..][..text.length as usize]
    }
}

/// One value of each record of a batch; `BATCH` long in the part of its type, the others are empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vector {
    pub(crate) bools: Vec<bool>,
    pub(crate) ints: Vec<i64>,
    pub(crate) floats: Vec<f64>,
    pub(crate) texts: Vec<Text>,
    /// Whether the value is NULL; the other part then holds anything.
    pub(crate) nulls: Vec<bool>,
}

impl Vector {
    pub(crate) fn new(kind: Type) -> Vector {
        let mut vector = Vector { nulls: vec![false; BATCH], ..Vector::default() };
        match kind {
            Type::Bool => vector.bools = vec![false; BATCH],
            Type::Int => vector.ints = vec![0; BATCH],
            Type::Float => vector.floats = vec![0.0; BATCH],
            Type::Text => vector.texts = vec![Text::default(); BATCH],
        }
        vector
    }

    pub(crate) fn memory_bytes(kind: Type) -> usize {
        let value = match kind {
            Type::Bool => size_of::<bool>(),
            Type::Int | Type::Float => size_of::<i64>(),
            Type::Text => size_of::<Text>(),
        };
        (value + size_of::<bool>()) * BATCH
    }
}

/// Records of a batch, by their indices, ascending.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    indices: Vec<u16>,
    length: usize,
}

impl Selection {
    pub(crate) const MEMORY_BYTES: usize = size_of::<u16>() * BATCH;

    pub(crate) fn new() -> Selection {
        Selection { indices: vec![0; BATCH], length: 0 }
    }

    /// The first `count` records.
    pub(crate) fn fill(&mut self, count: usize) {
        for (index, slot) in self.indices[..count].iter_mut().enumerate() {
            *slot = index as u16;
        }
        self.length = count;
    }

    /// As `other`.
    pub(crate) fn copy(&mut self, other: &Selection) {
        self.indices[..other.length].copy_from_slice(other.as_slice());
        self.length = other.length;
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[u16] {
        &self.indices[..self.length]
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Those of the first `count` records that `keep` is true of, in the place of what was selected.
    #[inline]
    pub(crate) fn collect(&mut self, keep: impl Iterator<Item = bool>) {
        let mut length = 0;
        for (index, keep) in keep.take(BATCH).enumerate() {
            // Written always, counted if kept: no branch to be mispredicted.
            self.indices[length & (BATCH - 1)] = index as u16;
            length += usize::from(keep);
        }
        self.length = length;
    }

    /// Drops those that `keep` is false of.
    #[inline]
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(usize) -> bool) {
        let mut length = 0;
        for at in 0..self.length {
            let index = self.indices[at];
            self.indices[length] = index;
            length += usize::from(keep(usize::from(index)));
        }
        self.length = length;
    }
}
