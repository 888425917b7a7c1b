//! What the end of a file tells about it: its columns, and where those of each group of rows are.

use super::kinds::Reading;
use super::thrift::{Seen, walk};
use super::{MAGIC, MAX_FOOTER_BYTES, MAX_GROUP_RECORDS, ParquetError, ReadAt, broken, guarded};
use crate::format::{Column, Columns, Format, MAX_COLUMNS, MAX_NAME_BYTES};
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};
use std::collections::BTreeSet;

/// Bytes of the length and the magic number at the end.
const TAIL_BYTES: u64 = 8;

/// Bytes that are read first; mostly they are enough.
const GUESS_BYTES: u64 = 64 << 10;

/// Most groups of columns in one another.
const MAX_NESTED: usize = 64;

/// Most columns and groups of columns, and most groups of rows and columns of these together: some hundred bytes are kept for each.
const MAX_ELEMENTS: usize = 64 << 10;
const MAX_CHUNKS: usize = 256 << 10;

/// A Parquet file whose end was read.
#[derive(Debug)]
pub struct ParquetFile {
    metadata: ParquetMetaData,
    readings: Vec<ColumnReading>,
    columns: Vec<Column>,
    unreadable: Vec<(String, String)>,
    /// How many records are before each group of rows.
    firsts: Vec<u64>,
}

/// A column that can be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnReading {
    /// Its place among all columns of the file.
    pub(super) leaf: usize,
    pub(super) reading: Reading,
    pub(super) has_nulls: bool,
}

impl ParquetFile {
    /// Reads the end of a file of `file_bytes`.
    ///
    /// # Errors
    ///
    /// [`ParquetError`].
    pub fn open(reader: &dyn ReadAt, file_bytes: u64) -> Result<ParquetFile, ParquetError> {
        let footer = read_footer(reader, file_bytes)?;
        check_schema(&footer)?;
        guarded(|| {
            let metadata = ParquetMetaDataReader::decode_metadata(&footer)?;
            ParquetFile::new(metadata, file_bytes - TAIL_BYTES - footer.len() as u64)
        })
    }

    /// `data_end`: where the columns end.
    fn new(metadata: ParquetMetaData, data_end: u64) -> Result<ParquetFile, ParquetError> {
        let (mut first, mut firsts) = (0, Vec::new());
        for (number, group) in metadata.row_groups().iter().enumerate() {
            firsts.push(first);
            first += check_group(number, group, data_end)?;
        }
        if i64::try_from(first) != Ok(metadata.file_metadata().num_rows()) {
            return broken("its groups of rows have not as many rows as it");
        }
        let mut file = ParquetFile {
            metadata,
            readings: Vec::new(),
            columns: Vec::new(),
            unreadable: Vec::new(),
            firsts,
        };
        file.find_columns();
        Ok(file)
    }

    fn find_columns(&mut self) {
        let (mut names, mut told) = (BTreeSet::new(), BTreeSet::new());
        for (leaf, column) in
            self.metadata.file_metadata().schema_descr().columns().iter().enumerate()
        {
            let name = column.path().parts().first().cloned().unwrap_or_default();
            let found = Reading::of(column).and_then(|reading| match &name {
                _ if self.columns.len() == MAX_COLUMNS => Err("there are too many".to_owned()),
                name if name.is_empty() || name.len() > MAX_NAME_BYTES => {
                    Err("its name is empty or too long".to_owned())
                }
                name if !names.insert(name.clone()) => Err("its name is there twice".to_owned()),
                _ => Ok(reading),
            });
            match found {
                Ok(reading) => {
                    let has_nulls = column.max_def_level() > 0;
                    self.columns.push(Column { name, kind: reading.kind() });
                    self.readings.push(ColumnReading { leaf, reading, has_nulls });
                }
                // What is nested has many columns of a name.
                Err(why) if told.insert(name.clone()) => self.unreadable.push((name, why)),
                Err(_) => {}
            }
        }
    }

    /// Its columns that can be read.
    pub fn format(&self) -> Format {
        Format::Columns(Columns { columns: self.columns.clone() })
    }

    /// Names of the others, and why each can't be.
    pub fn unreadable(&self) -> &[(String, String)] {
        &self.unreadable
    }

    /// How many groups of rows there are.
    pub fn groups(&self) -> usize {
        self.firsts.len()
    }

    /// How many records there are.
    pub fn records(&self) -> u64 {
        self.metadata.file_metadata().num_rows().try_into().unwrap_or(0)
    }

    pub(super) fn reading(&self, column: usize) -> Result<ColumnReading, ParquetError> {
        let reading = self.readings.get(column).copied();
        reading.map_or_else(|| broken(format!("there is no column {column}")), Ok)
    }

    /// A group of rows, and how many records are before it.
    pub(super) fn group(&self, group: usize) -> Result<(&RowGroupMetaData, u64), ParquetError> {
        match (self.metadata.row_groups().get(group), self.firsts.get(group)) {
            (Some(rows), Some(first)) => Ok((rows, *first)),
            _ => broken(format!("there is no group of rows {group}")),
        }
    }
}

/// What is between the columns and the length of it.
fn read_footer(reader: &dyn ReadAt, file_bytes: u64) -> Result<Vec<u8>, ParquetError> {
    let none = |why: &str| Err(ParquetError::None(why.to_owned()));
    if file_bytes < MAGIC.len() as u64 + TAIL_BYTES {
        return none("it is too short");
    }
    let read = |bytes: u64| {
        let mut end = vec![0; usize::try_from(bytes).unwrap_or(0)];
        reader.read_at(file_bytes - bytes, &mut end).map_err(ParquetError::Read)?;
        Ok::<_, ParquetError>(end)
    };
    let mut end = read(GUESS_BYTES.min(file_bytes))?;
    let Some((rest, tail)) = end.split_last_chunk::<{ TAIL_BYTES as usize }>() else {
        return none("it is too short");
    };
    let [a, b, c, d, magic @ ..] = *tail;
    match &magic {
        MAGIC => {}
        b"PARE" => return Err(ParquetError::Unsupported("it is encrypted".to_owned())),
        _ => return none("it does not end with PAR1"),
    }
    let bytes = u64::from(u32::from_le_bytes([a, b, c, d]));
    if bytes > file_bytes - TAIL_BYTES - MAGIC.len() as u64 {
        return broken("what its end tells about it is longer than it");
    }
    if bytes > MAX_FOOTER_BYTES {
        return Err(ParquetError::Large(format!("its end has {bytes} bytes")));
    }
    if bytes > rest.len() as u64 {
        end = read(bytes + TAIL_BYTES)?;
    }
    let length = end.len() - TAIL_BYTES as usize;
    let start = length.checked_sub(usize::try_from(bytes).unwrap_or(usize::MAX));
    let Some(footer) = start.and_then(|start| end.get(start..length)) else {
        return broken("its end is not whole");
    };
    Ok(footer.to_vec())
}

/// Whoever makes the schema a tree makes room for as many members of a group as are claimed, and goes as deep as they are.
fn check_schema(footer: &[u8]) -> Result<(), ParquetError> {
    let (mut members, mut chunks): (Vec<i64>, usize) = (Vec::new(), 0);
    let whole = walk(footer, &mut |path, seen| match (path, seen) {
        // One too many says enough.
        ([2], Seen::Struct) if members.len() <= MAX_ELEMENTS => members.push(0),
        ([4] | [4, 1], Seen::Struct) => chunks += 1,
        ([2, 5], Seen::Int(count)) => {
            members.iter_mut().last().into_iter().for_each(|last| *last = count)
        }
        _ => {}
    });
    if whole.is_none() {
        return broken("its end can't be understood");
    }
    if members.len() > MAX_ELEMENTS || chunks > MAX_CHUNKS {
        let columns = members.len();
        let many = format!("its end tells of {columns} columns or more, and {chunks} parts");
        return Err(ParquetError::Large(many));
    }
    let mut left: Vec<usize> = Vec::new();
    for (number, count) in members.iter().enumerate() {
        while left.pop_if(|left| *left == 0).is_some() {}
        if left.is_empty() && number > 0 {
            return broken("its columns are no tree");
        }
        if let Some(left) = left.last_mut() {
            *left -= 1;
        }
        match usize::try_from(*count) {
            Ok(0) => {}
            Ok(count) if count < members.len() && left.len() < MAX_NESTED => left.push(count),
            _ => return broken("its columns are no tree"),
        }
    }
    match left.iter().all(|left| *left == 0) {
        true => Ok(()),
        false => broken("its columns are no tree"),
    }
}

/// How many rows a group has.
fn check_group(
    number: usize,
    group: &RowGroupMetaData,
    data_end: u64,
) -> Result<u64, ParquetError> {
    let wrong = |what: &str| broken(format!("group of rows {number}: {what}"));
    let rows = match u64::try_from(group.num_rows()) {
        Ok(rows) if rows <= MAX_GROUP_RECORDS => rows,
        _ => return wrong(&format!("it has {} rows", group.num_rows())),
    };
    for column in group.columns() {
        if column.file_path().is_some() {
            return Err(ParquetError::Unsupported("columns in other files".to_owned()));
        }
        // Where a column begins that has nothing, some say 0.
        let is_outside =
            |(begin, end): (u64, u64)| rows > 0 && (begin < MAGIC.len() as u64 || end > data_end);
        if range(column).is_none_or(is_outside) {
            return wrong(&format!("column {} is not in the file", column.column_path()));
        }
        let is_flat = column.column_descr().max_rep_level() == 0;
        if is_flat && column.num_values() != group.num_rows() {
            return wrong(&format!("column {} has not as many values", column.column_path()));
        }
    }
    Ok(rows)
}

/// Where a column of a group begins and ends.
pub(super) fn range(column: &ColumnChunkMetaData) -> Option<(u64, u64)> {
    // Some write 0 where there is no dictionary. The crate panics at less.
    let dictionary = match column.dictionary_page_offset() {
        Some(..0) => return None,
        told => told.filter(|begin| *begin > 0),
    };
    let begin = dictionary.unwrap_or(column.data_page_offset());
    let (begin, bytes) =
        (u64::try_from(begin).ok()?, u64::try_from(column.compressed_size()).ok()?);
    Some((begin, begin.checked_add(bytes)?))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::basic::Type as Physical;
    use parquet::schema::types::{ColumnDescriptor, ColumnPath, Type};

    use super::*;

    #[test]
    fn a_column_begins_with_its_dictionary_and_nowhere_below_0() {
        let primitive = Type::primitive_type_builder("id", Physical::INT64).build().unwrap();
        let path = ColumnPath::new(vec!["id".to_owned()]);
        let descriptor = Arc::new(ColumnDescriptor::new(Arc::new(primitive), 0, 0, path));
        let at = |dictionary: Option<i64>, data: i64, bytes: i64| {
            let column = ColumnChunkMetaData::builder(Arc::clone(&descriptor))
                .set_dictionary_page_offset(dictionary)
                .set_data_page_offset(data)
                .set_total_compressed_size(bytes);
            range(&column.build().unwrap())
        };
        assert_eq!(at(Some(4), 50, 100), Some((4, 104)));
        assert_eq!(at(None, 50, 100), Some((50, 150)));
        assert_eq!(at(Some(0), 50, 100), Some((50, 150)));
        for wrong in [at(Some(-1), 50, 100), at(None, -50, 100), at(None, 50, -100)] {
            assert_eq!(wrong, None);
        }
    }
}
