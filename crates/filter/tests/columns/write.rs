//! Parquet files that tests write.

use parquet::basic::{Compression, GzipLevel, ZstdLevel};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FixedLenByteArray,
    FixedLenByteArrayType, FloatType, Int32Type, Int64Type,
};
use parquet::file::properties::WriterPropertiesBuilder;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use std::sync::Arc;

/// Values of a column; those that are `None` are NULL.
#[derive(Clone)]
pub enum Data {
    Bools(Vec<Option<bool>>),
    Ints(Vec<Option<i32>>),
    Longs(Vec<Option<i64>>),
    Floats(Vec<Option<f32>>),
    Doubles(Vec<Option<f64>>),
    Texts(Vec<Option<Vec<u8>>>),
    Fixed(Vec<Option<Vec<u8>>>),
}

pub const CODECS: &[fn() -> Compression] = &[
    || Compression::UNCOMPRESSED,
    || Compression::SNAPPY,
    || Compression::LZ4_RAW,
    || Compression::ZSTD(ZstdLevel::default()),
    || Compression::GZIP(GzipLevel::default()),
];

impl Data {
    pub fn len(&self) -> usize {
        match self {
            Data::Bools(values) => values.len(),
            Data::Ints(values) => values.len(),
            Data::Longs(values) => values.len(),
            Data::Floats(values) => values.len(),
            Data::Doubles(values) => values.len(),
            Data::Texts(values) | Data::Fixed(values) => values.len(),
        }
    }

    fn write(&self, from: usize, to: usize, writer: &mut SerializedColumnWriter<'_>) {
        let bytes = |value: Vec<u8>| ByteArray::from(value);
        match self {
            Data::Bools(values) => put::<BoolType, _>(&values[from..to], |v| v, writer),
            Data::Ints(values) => put::<Int32Type, _>(&values[from..to], |v| v, writer),
            Data::Longs(values) => put::<Int64Type, _>(&values[from..to], |v| v, writer),
            Data::Floats(values) => put::<FloatType, _>(&values[from..to], |v| v, writer),
            Data::Doubles(values) => put::<DoubleType, _>(&values[from..to], |v| v, writer),
            Data::Texts(values) => put::<ByteArrayType, _>(&values[from..to], bytes, writer),
            Data::Fixed(values) => {
                let fixed = |value: Vec<u8>| FixedLenByteArray::from(value);
                put::<FixedLenByteArrayType, _>(&values[from..to], fixed, writer);
            }
        }
    }
}

fn put<T: DataType, V: Clone>(
    values: &[Option<V>],
    of: impl Fn(V) -> T::T,
    writer: &mut SerializedColumnWriter<'_>,
) {
    let levels: Vec<i16> = values.iter().map(|value| value.is_some().into()).collect();
    let there: Vec<T::T> = values.iter().flatten().cloned().map(of).collect();
    writer.typed::<T>().write_batch(&there, Some(&levels), None).unwrap();
}

/// A file with groups of so many rows; `schema` is as Parquet's people write it.
pub fn file(
    schema: &str,
    columns: &[Data],
    group: usize,
    properties: WriterPropertiesBuilder,
) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut bytes = Vec::new();
    let mut writer =
        SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties.build())).unwrap();
    let rows = columns.first().map_or(0, Data::len);
    for from in (0..rows).step_by(group) {
        let mut rows = writer.next_row_group().unwrap();
        for column in columns {
            let mut writer = rows.next_column().unwrap().unwrap();
            column.write(from, (from + group).min(column.len()), &mut writer);
            writer.close().unwrap();
        }
        rows.close().unwrap();
    }
    writer.close().unwrap();
    bytes
}
