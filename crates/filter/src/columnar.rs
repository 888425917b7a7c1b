//! Batches of records that come as columns: of formats whose bytes are no records one after the other.

use crate::compile::Load;
use crate::format::Type;
use crate::vector::{BATCH, Place, Selection, Text, Vector};

/// Most records of one batch.
pub const BATCH_RECORDS: usize = BATCH;

/// Up to [`BATCH_RECORDS`] records, column by column. Columns that nothing needs may be left empty.
#[derive(Clone, Debug, Default)]
pub struct ColumnBatch {
    count: usize,
    text: Vec<u8>,
    columns: Vec<Values>,
}

/// One column of a batch.
#[derive(Clone, Debug)]
struct Values {
    vector: Vector,
    /// Values that are there and can't be read.
    bad: Vec<usize>,
}

/// A value of a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ColumnValue<'a> {
    /// None.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// Bytes, which are copied.
    Text(&'a [u8]),
    /// One that is there and can't be read: where it is needed, the record is a bad one.
    Bad,
}

impl ColumnBatch {
    /// Without records, for columns of these types; there is room for values of the `needed` ones.
    pub fn new(kinds: &[Type], needed: &[usize]) -> ColumnBatch {
        let values = |(column, kind): (usize, &Type)| Values {
            vector: if needed.contains(&column) { Vector::new(*kind) } else { Vector::default() },
            bad: Vec::new(),
        };
        let columns = kinds.iter().enumerate().map(values).collect();
        ColumnBatch { count: 0, text: Vec::new(), columns }
    }

    /// Forgets its records, and begins with `count` others, all of which are NULL; at most [`BATCH_RECORDS`].
    pub fn begin(&mut self, count: usize) {
        self.count = count.min(BATCH);
        self.text.clear();
        for values in &mut self.columns {
            values.vector.nulls.fill(true);
            values.bad.clear();
        }
    }

    /// Sets a value of a record; one of another type than the column's is a bad one, and one of no record is none.
    #[inline]
    pub fn set(&mut self, column: usize, record: usize, value: ColumnValue<'_>) {
        let Some(Values { vector, bad }) = self.columns.get_mut(column) else {
            return;
        };
        if record >= self.count || !put(&mut vector.nulls, record, value == ColumnValue::Null) {
            return;
        }
        let is_set = match value {
            ColumnValue::Null => true,
            ColumnValue::Bool(value) => put(&mut vector.bools, record, value),
            ColumnValue::Int(value) => put(&mut vector.ints, record, value),
            ColumnValue::Float(value) => put(&mut vector.floats, record, value),
            ColumnValue::Text(value) => {
                let text = keep(&mut self.text, value);
                text.is_some_and(|text| put(&mut vector.texts, record, text))
            }
            ColumnValue::Bad => false,
        };
        if !is_set {
            bad.push(record);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }
}

#[inline]
fn put<T>(values: &mut [T], record: usize, value: T) -> bool {
    let place = values.get_mut(record);
    place.map(|place| *place = value).is_some()
}

/// Where a copy of a text is; `None` if offsets don't reach so far.
fn keep(all: &mut Vec<u8>, text: &[u8]) -> Option<Text> {
    let (start, length) = (all.len(), text.len());
    let end = u32::try_from(start + length).ok()?;
    all.extend_from_slice(text);
    Some(Text { place: Place::Input, start: end - length as u32, length: length as u32 })
}

/// Copies columns of the selected records into their registers; tells `bad` those that can't be read.
pub(crate) fn load(
    batch: Option<&ColumnBatch>,
    loads: &[Load],
    selection: &Selection,
    vectors: &mut [Vector],
    mut bad: impl FnMut(usize),
) {
    let Some(batch) = batch else {
        return;
    };
    let count = batch.count;
    for load in loads {
        let vector = &mut vectors[usize::from(load.register)];
        let Some(values) = batch.columns.get(load.column) else {
            vector.nulls[..count].fill(true);
            continue;
        };
        let from = &values.vector;
        copy(&mut vector.bools, &from.bools, count);
        copy(&mut vector.ints, &from.ints, count);
        copy(&mut vector.floats, &from.floats, count);
        copy(&mut vector.texts, &from.texts, count);
        copy(&mut vector.nulls, &from.nulls, count);
        let selected = selection.as_slice();
        let is_selected = |record: &&usize| {
            u16::try_from(**record).is_ok_and(|record| selected.binary_search(&record).is_ok())
        };
        values.bad.iter().filter(is_selected).for_each(|record| bad(*record));
    }
}

/// Those of a type that both have.
fn copy<T: Copy>(to: &mut [T], from: &[T], count: usize) {
    if let (Some(to), Some(from)) = (to.get_mut(..count), from.get(..count)) {
        to.copy_from_slice(from);
    }
}
