//! How the bytes of a file are records: of fixed size, lines of delimited text, or lines of JSON; or that they come as columns.

use crate::error::ParameterError;

/// Most fields or columns of a format.
pub const MAX_COLUMNS: usize = 1024;
/// Most bytes of a column's name.
pub const MAX_NAME_BYTES: usize = 255;

/// The format of a file's records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// Records of one size, one after the other from the beginning of the file.
    Fixed(Fixed),
    /// Lines of fields (CSV, TSV).
    Delimited(Delimited),
    /// Lines, each of them a JSON object.
    JsonLines(JsonLines),
    /// Columns that somebody else has read from the file. Drives don't do that.
    Columns(Columns),
}

/// Records of one size: the sum of their fields'.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// The fields in their order, without gaps; a gap is a text field that nothing reads.
    pub fields: Vec<Field>,
}

/// A field of a fixed record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, for those who write queries.
    pub name: String,
    /// What its bytes mean.
    pub kind: FieldKind,
}

/// What the bytes of a field mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// An integer. An unsigned one of 8 bytes above `i64::MAX` makes its record a bad one.
    Integer {
        /// 1, 2, 4 or 8.
        bytes: u8,
        /// Two's complement, or never negative.
        signed: bool,
        /// Most significant byte first.
        big_endian: bool,
    },
    /// An IEEE 754 number.
    Float {
        /// 4 or 8.
        bytes: u8,
        /// Most significant byte first.
        big_endian: bool,
    },
    /// Text that ends before the first zero byte, or with the field.
    Text {
        /// Bytes of the field; at least one.
        bytes: u32,
    },
}

/// Lines of fields. A line ends with LF or CR LF, in quotes too: a quoted field holds no line end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delimited {
    /// Stands between two fields.
    pub delimiter: u8,
    /// Surrounds a field that holds delimiters; two of them inside stand for one.
    pub quote: Option<u8>,
    /// Whether the first line of the file is no record.
    pub header: bool,
    /// The columns in their order.
    pub columns: Vec<Column>,
}

/// Lines of JSON objects. A line of nothing but spaces is no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonLines {
    /// Members of the object, in any order; others are passed over.
    pub columns: Vec<Column>,
}

/// Records without bytes of their own, whose values come in a [`ColumnBatch`](crate::ColumnBatch): a program over them says what
/// is to be given of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// The columns in their order.
    pub columns: Vec<Column>,
}

/// A column of a text format, or of what comes as columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name; in JSON the member's, in UTF-8.
    pub name: String,
    /// What its text means.
    pub kind: Type,
}

nasd_xdr::xdr_enum! {
    /// The type of a value; every type has NULL too.
    pub enum Type {
        /// True or false. Only JSON lines and what comes as columns have columns of it.
        Bool = 0,
        /// An `i64`.
        Int = 1,
        /// An `f64`.
        Float = 2,
        /// Bytes, compared as such.
        Text = 3,
    }
}

impl std::fmt::Display for Type {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Type::Bool => "boolean",
            Type::Int => "integer",
            Type::Float => "float",
            Type::Text => "text",
        })
    }
}

impl FieldKind {
    /// Bytes of the field.
    pub const fn bytes(self) -> usize {
        match self {
            FieldKind::Integer { bytes, .. } | FieldKind::Float { bytes, .. } => bytes as usize,
            FieldKind::Text { bytes } => bytes as usize,
        }
    }

    /// The type of its values.
    pub const fn value_type(self) -> Type {
        match self {
            FieldKind::Integer { .. } => Type::Int,
            FieldKind::Float { .. } => Type::Float,
            FieldKind::Text { .. } => Type::Text,
        }
    }

    fn is_possible(self) -> bool {
        match self {
            FieldKind::Integer { bytes, .. } => matches!(bytes, 1 | 2 | 4 | 8),
            FieldKind::Float { bytes, .. } => matches!(bytes, 4 | 8),
            FieldKind::Text { bytes } => bytes > 0,
        }
    }
}

impl Fixed {
    /// Bytes of a record; saturates.
    pub fn record_bytes(&self) -> usize {
        self.fields.iter().fold(0, |sum, field| sum.saturating_add(field.kind.bytes()))
    }

    /// Bytes of a record before a field.
    pub(crate) fn field_offset(&self, index: usize) -> usize {
        self.fields[..index].iter().map(|field| field.kind.bytes()).sum()
    }
}

impl Format {
    /// Fields or columns.
    pub fn column_count(&self) -> usize {
        match self {
            Format::Fixed(fixed) => fixed.fields.len(),
            Format::Delimited(Delimited { columns, .. })
            | Format::JsonLines(JsonLines { columns })
            | Format::Columns(Columns { columns }) => columns.len(),
        }
    }

    /// The name of a column, if there is that column.
    pub fn column_name(&self, index: usize) -> Option<&str> {
        match self {
            Format::Fixed(fixed) => fixed.fields.get(index).map(|field| field.name.as_str()),
            Format::Delimited(Delimited { columns, .. })
            | Format::JsonLines(JsonLines { columns })
            | Format::Columns(Columns { columns }) => {
                columns.get(index).map(|column| column.name.as_str())
            }
        }
    }

    /// The type of a column, if there is that column.
    pub fn column_type(&self, index: usize) -> Option<Type> {
        match self {
            Format::Fixed(fixed) => fixed.fields.get(index).map(|field| field.kind.value_type()),
            Format::Delimited(Delimited { columns, .. })
            | Format::JsonLines(JsonLines { columns })
            | Format::Columns(Columns { columns }) => columns.get(index).map(|column| column.kind),
        }
    }

    /// Whether there may be columns of booleans.
    const fn has_booleans(&self) -> bool {
        matches!(self, Format::JsonLines(_) | Format::Columns(_))
    }

    /// Checks everything that a format must keep to.
    ///
    /// # Errors
    ///
    /// The first that is wrong.
    pub(crate) fn check(&self) -> Result<(), ParameterError> {
        let count = self.column_count();
        if count == 0 || count > MAX_COLUMNS {
            return Err(ParameterError::Columns { count });
        }
        let mut names = std::collections::BTreeSet::new();
        for index in 0..count {
            let name = self.column_name(index).unwrap_or_default();
            if name.is_empty() || name.len() > MAX_NAME_BYTES || !names.insert(name) {
                return Err(ParameterError::ColumnName { index });
            }
            if self.column_type(index) == Some(Type::Bool) && !self.has_booleans() {
                return Err(ParameterError::ColumnKind { index });
            }
        }
        match self {
            Format::Fixed(fixed) => {
                match fixed.fields.iter().position(|field| !field.kind.is_possible()) {
                    Some(index) => Err(ParameterError::ColumnKind { index }),
                    None => Ok(()),
                }
            }
            Format::Delimited(delimited) => delimited.check_bytes(),
            Format::JsonLines(_) | Format::Columns(_) => Ok(()),
        }
    }
}

impl Delimited {
    /// Delimiter and quote must be told from one another, from line ends and from numbers.
    fn check_bytes(&self) -> Result<(), ParameterError> {
        let possible = |byte: u8| {
            !byte.is_ascii_alphanumeric()
                && !matches!(byte, b'\n' | b'\r' | b'+' | b'-' | b'.')
                && byte.is_ascii()
        };
        let quote = self.quote.unwrap_or(b'"');
        if !possible(self.delimiter) || !possible(quote) || self.delimiter == quote || quote == b' '
        {
            return Err(ParameterError::Delimiter);
        }
        Ok(())
    }
}
