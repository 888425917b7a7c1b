//! The values of one column of a group of rows, some records at a time.

use super::footer::ColumnReading;
use super::kinds::Reading;
use super::pages::{Chunk, Pages};
use super::{ParquetError, broken};
use crate::columnar::{ColumnBatch, ColumnValue};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType, FixedLenByteArray};
use parquet::file::metadata::ColumnChunkMetaData;
use std::ops::Range;
use std::sync::Arc;

/// No value.
const NONE: u32 = u32::MAX;

/// A column that is being read.
pub(super) struct ColumnValues {
    /// Its place in the format.
    column: usize,
    reading: Reading,
    has_nulls: bool,
    chunk: Arc<Chunk>,
    values: Box<dyn Staged>,
    levels: Vec<i16>,
    /// Where the value of each record is among the values.
    places: Vec<u32>,
    scratch: String,
}

impl ColumnValues {
    pub(super) fn new(
        column: usize,
        told: ColumnReading,
        chunk: Arc<Chunk>,
        metadata: &ColumnChunkMetaData,
        rows: usize,
    ) -> Result<ColumnValues, ParquetError> {
        let pages = Box::new(Pages::new(&chunk, metadata, rows)?);
        let values: Box<dyn Staged> = match get_column_reader(metadata.column_descr_ptr(), pages) {
            ColumnReader::BoolColumnReader(reader) => Typed::boxed(reader),
            ColumnReader::Int32ColumnReader(reader) => Typed::boxed(reader),
            ColumnReader::Int64ColumnReader(reader) => Typed::boxed(reader),
            ColumnReader::FloatColumnReader(reader) => Typed::boxed(reader),
            ColumnReader::DoubleColumnReader(reader) => Typed::boxed(reader),
            ColumnReader::ByteArrayColumnReader(reader) => Typed::boxed(reader),
            ColumnReader::FixedLenByteArrayColumnReader(reader) => Typed::boxed(reader),
            ColumnReader::Int96ColumnReader(_) => {
                return Err(ParquetError::Unsupported("the type INT96".to_owned()));
            }
        };
        let ColumnReading { reading, has_nulls, .. } = told;
        let (levels, places, scratch) = (Vec::new(), Vec::new(), String::new());
        Ok(ColumnValues { column, reading, has_nulls, chunk, values, levels, places, scratch })
    }

    /// Decodes the next `count` records.
    pub(super) fn read(&mut self, count: usize) -> Result<(), ParquetError> {
        self.chunk.forget();
        self.levels.clear();
        let levels = self.has_nulls.then_some(&mut self.levels);
        let found = self.values.read(count, levels)?;
        self.places.clear();
        if self.has_nulls {
            let mut next = 0;
            let place = |level: &i16| match level {
                0 => NONE,
                _ => {
                    next += 1;
                    next - 1
                }
            };
            self.places.extend(self.levels.iter().map(place));
        } else {
            self.places.extend((0..found).map(|place| place as u32));
        }
        match self.places.len() == count {
            true => Ok(()),
            false => broken("a column ends before its group of rows"),
        }
    }

    /// Bytes of text of one of the records that were read.
    pub(super) fn text_bytes(&self, record: usize) -> usize {
        match self.places.get(record) {
            Some(place) if *place != NONE => self.values.text_bytes(*place as usize),
            _ => 0,
        }
    }

    /// Puts values of some of the records that were read into a batch, which has as many. Texts of more than `longest` bytes are bad ones.
    pub(super) fn put(&mut self, records: Range<usize>, longest: usize, batch: &mut ColumnBatch) {
        let places = self.places.get(records).unwrap_or_default();
        let put = Put { reading: self.reading, column: self.column, longest };
        self.values.put(places, &put, &mut self.scratch, batch);
    }
}

/// Where values go, and as what.
struct Put {
    reading: Reading,
    column: usize,
    longest: usize,
}

/// Values of whatever type that were decoded.
trait Staged {
    /// Decodes `count` records; how many values those have.
    fn read(&mut self, count: usize, levels: Option<&mut Vec<i16>>) -> Result<usize, ParquetError>;

    fn text_bytes(&self, place: usize) -> usize;

    fn put(&self, places: &[u32], put: &Put, scratch: &mut String, batch: &mut ColumnBatch);
}

struct Typed<T: DataType> {
    reader: ColumnReaderImpl<T>,
    values: Vec<T::T>,
}

impl<T: DataType> Typed<T>
where
    T::T: Held,
{
    fn boxed(reader: ColumnReaderImpl<T>) -> Box<dyn Staged> {
        Box::new(Typed { reader, values: Vec::new() })
    }
}

impl<T: DataType> Staged for Typed<T>
where
    T::T: Held,
{
    fn read(&mut self, count: usize, levels: Option<&mut Vec<i16>>) -> Result<usize, ParquetError> {
        self.values.clear();
        let (_, values, _) = self.reader.read_records(count, levels, None, &mut self.values)?;
        Ok(values)
    }

    fn text_bytes(&self, place: usize) -> usize {
        self.values.get(place).map_or(0, Held::bytes)
    }

    fn put(&self, places: &[u32], put: &Put, scratch: &mut String, batch: &mut ColumnBatch) {
        for (record, place) in places.iter().enumerate().filter(|(_, place)| **place != NONE) {
            let value = self.values.get(*place as usize);
            let value = value.map_or(ColumnValue::Bad, |value| match value.bytes() > put.longest {
                true => ColumnValue::Bad,
                false => value.value(put.reading, scratch),
            });
            batch.set(put.column, record, value);
        }
    }
}

/// A value as it was decoded.
trait Held {
    fn value<'a>(&'a self, reading: Reading, scratch: &'a mut String) -> ColumnValue<'a>;

    /// How many there are to be copied.
    fn bytes(&self) -> usize {
        0
    }
}

impl Held for bool {
    fn value<'a>(&'a self, _: Reading, _: &'a mut String) -> ColumnValue<'a> {
        ColumnValue::Bool(*self)
    }
}

impl Held for i32 {
    fn value<'a>(&'a self, reading: Reading, scratch: &'a mut String) -> ColumnValue<'a> {
        reading.int(widened(*self, reading), scratch)
    }
}

/// An integer of four bytes as one of eight.
pub(super) fn widened(value: i32, reading: Reading) -> i64 {
    match reading {
        Reading::Unsigned => value.cast_unsigned().into(),
        _ => value.into(),
    }
}

impl Held for i64 {
    fn value<'a>(&'a self, reading: Reading, scratch: &'a mut String) -> ColumnValue<'a> {
        reading.int(*self, scratch)
    }
}

impl Held for f32 {
    fn value<'a>(&'a self, _: Reading, _: &'a mut String) -> ColumnValue<'a> {
        ColumnValue::Float((*self).into())
    }
}

impl Held for f64 {
    fn value<'a>(&'a self, _: Reading, _: &'a mut String) -> ColumnValue<'a> {
        ColumnValue::Float(*self)
    }
}

impl Held for ByteArray {
    fn value<'a>(&'a self, reading: Reading, _: &'a mut String) -> ColumnValue<'a> {
        reading.bytes(self.data())
    }

    fn bytes(&self) -> usize {
        self.len()
    }
}

impl Held for FixedLenByteArray {
    fn value<'a>(&'a self, reading: Reading, _: &'a mut String) -> ColumnValue<'a> {
        reading.bytes(self.data())
    }

    fn bytes(&self) -> usize {
        self.len()
    }
}
