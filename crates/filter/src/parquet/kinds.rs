//! What the values of a file's columns are to filters.

use super::calendar::{Unit, put_date, put_time, put_timestamp};
use crate::columnar::ColumnValue;
use crate::format::Type;
use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as Physical};
use parquet::schema::types::ColumnDescriptor;

/// Integers below this in size are floats too, each of them.
const EXACT: u128 = 1 << 53;

/// Powers of ten that are floats.
const TENS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// How a value is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Bool,
    Int,
    /// Above `i64::MAX` it can't be read.
    Unsigned,
    Float,
    /// A number of so many decimals: the float that is nearest, as that of a text with a point.
    Decimal {
        scale: u32,
    },
    /// A decimal without decimals that an integer holds.
    Whole,
    Date,
    Time(Unit),
    Timestamp(Unit),
    Text,
}

impl Reading {
    /// That of a column; why there is none, if there is none.
    pub(super) fn of(column: &ColumnDescriptor) -> Result<Reading, String> {
        if column.path().parts().len() != 1 || column.max_rep_level() > 0 {
            return Err("it is nested".to_owned());
        }
        if column.max_def_level() > 1 {
            return Err("it is nested in itself".to_owned());
        }
        match column.physical_type() {
            Physical::BOOLEAN => Ok(Reading::Bool),
            Physical::FLOAT | Physical::DOUBLE => Ok(Reading::Float),
            Physical::INT32 | Physical::INT64 => of_integers(column),
            Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY => of_bytes(column),
            Physical::INT96 => Err("it is of type INT96".to_owned()),
        }
    }

    pub(super) fn kind(self) -> Type {
        match self {
            Reading::Bool => Type::Bool,
            Reading::Int | Reading::Unsigned | Reading::Whole => Type::Int,
            Reading::Float | Reading::Decimal { .. } => Type::Float,
            Reading::Date | Reading::Time(_) | Reading::Timestamp(_) | Reading::Text => Type::Text,
        }
    }

    /// An integer of the file; `scratch` has the text, if it is one.
    pub(super) fn int(self, value: i64, scratch: &mut String) -> ColumnValue<'_> {
        scratch.clear();
        let put = match self {
            Reading::Int | Reading::Whole => return ColumnValue::Int(value),
            Reading::Unsigned if value >= 0 => return ColumnValue::Int(value),
            Reading::Decimal { scale } => {
                return ColumnValue::Float(decimal(value.into(), scale));
            }
            Reading::Date => put_date(value, scratch),
            Reading::Time(unit) => put_time(value, unit, scratch),
            Reading::Timestamp(unit) => put_timestamp(value, unit, scratch),
            _ => None,
        };
        match put {
            Some(()) => ColumnValue::Text(scratch.as_bytes()),
            None => ColumnValue::Bad,
        }
    }

    /// Bytes of the file.
    pub(super) fn bytes(self, bytes: &[u8]) -> ColumnValue<'_> {
        match self {
            Reading::Text => ColumnValue::Text(bytes),
            Reading::Decimal { scale } => unscaled(bytes)
                .map_or(ColumnValue::Bad, |value| ColumnValue::Float(decimal(value, scale))),
            Reading::Whole => {
                let value = unscaled(bytes).and_then(|value| i64::try_from(value).ok());
                value.map_or(ColumnValue::Bad, ColumnValue::Int)
            }
            _ => ColumnValue::Bad,
        }
    }
}

fn refused<T>(column: &ColumnDescriptor) -> Result<T, String> {
    Err(match column.logical_type_ref() {
        Some(logical) => format!("it is of type {logical:?}"),
        None => format!("it is of type {}", column.converted_type()),
    })
}

fn of_integers(column: &ColumnDescriptor) -> Result<Reading, String> {
    let unit = |unit: &TimeUnit| match unit {
        TimeUnit::MILLIS => Unit::Millis,
        TimeUnit::MICROS => Unit::Micros,
        TimeUnit::NANOS => Unit::Nanos,
    };
    match column.logical_type_ref() {
        Some(LogicalType::Integer(int)) if int.is_signed => Ok(Reading::Int),
        Some(LogicalType::Integer(_)) => Ok(Reading::Unsigned),
        Some(LogicalType::Decimal(told)) => of_decimals(column, told.scale),
        Some(LogicalType::Date) => Ok(Reading::Date),
        Some(LogicalType::Time(told)) => Ok(Reading::Time(unit(&told.unit))),
        Some(LogicalType::Timestamp(told)) => Ok(Reading::Timestamp(unit(&told.unit))),
        // No value is there.
        Some(LogicalType::Unknown) => Ok(Reading::Int),
        Some(_) => refused(column),
        None => match column.converted_type() {
            ConvertedType::NONE
            | ConvertedType::INT_8
            | ConvertedType::INT_16
            | ConvertedType::INT_32
            | ConvertedType::INT_64 => Ok(Reading::Int),
            ConvertedType::UINT_8
            | ConvertedType::UINT_16
            | ConvertedType::UINT_32
            | ConvertedType::UINT_64 => Ok(Reading::Unsigned),
            ConvertedType::DECIMAL => of_decimals(column, column.type_scale()),
            ConvertedType::DATE => Ok(Reading::Date),
            ConvertedType::TIME_MILLIS => Ok(Reading::Time(Unit::Millis)),
            ConvertedType::TIME_MICROS => Ok(Reading::Time(Unit::Micros)),
            ConvertedType::TIMESTAMP_MILLIS => Ok(Reading::Timestamp(Unit::Millis)),
            ConvertedType::TIMESTAMP_MICROS => Ok(Reading::Timestamp(Unit::Micros)),
            _ => refused(column),
        },
    }
}

fn of_bytes(column: &ColumnDescriptor) -> Result<Reading, String> {
    if column.physical_type() == Physical::FIXED_LEN_BYTE_ARRAY && column.type_length() < 1 {
        return Err("its values have no bytes".to_owned());
    }
    match column.logical_type_ref() {
        Some(LogicalType::Decimal(told)) => of_decimals(column, told.scale),
        Some(
            LogicalType::String
            | LogicalType::Enum
            | LogicalType::Json
            | LogicalType::Bson
            | LogicalType::Unknown,
        ) => Ok(Reading::Text),
        Some(_) => refused(column),
        None => match column.converted_type() {
            ConvertedType::NONE
            | ConvertedType::UTF8
            | ConvertedType::ENUM
            | ConvertedType::JSON
            | ConvertedType::BSON => Ok(Reading::Text),
            ConvertedType::DECIMAL => of_decimals(column, column.type_scale()),
            _ => refused(column),
        },
    }
}

fn of_decimals(column: &ColumnDescriptor, scale: i32) -> Result<Reading, String> {
    match u32::try_from(scale) {
        // An `i64` has 18 digits and some.
        Ok(0) if column.type_precision() <= 18 => Ok(Reading::Whole),
        Ok(scale) if scale <= 38 => Ok(Reading::Decimal { scale }),
        _ => Err(format!("it is of decimals with {scale} digits behind the point")),
    }
}

/// The float that is nearest to `value` divided by a power of ten.
fn decimal(value: i128, scale: u32) -> f64 {
    match TENS.get(scale as usize) {
        // Of two floats that are exact the quotient is the nearest one.
        Some(ten) if value.unsigned_abs() < EXACT => value as f64 / ten,
        _ => format!("{value}e-{scale}").parse().unwrap_or(f64::NAN),
    }
}

/// Two's complement, most significant byte first.
fn unscaled(bytes: &[u8]) -> Option<i128> {
    let sign = if *bytes.first()? < 0x80 { 0 } else { 0xff };
    let mut wide = [sign; 16];
    let start = wide.len().checked_sub(bytes.len())?;
    wide[start..].copy_from_slice(bytes);
    Some(i128::from_be_bytes(wide))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_the_floats_that_are_nearest() {
        for (value, scale, expected) in [
            (110, 2, 1.1),
            (-1, 1, -0.1),
            (123_456_789_012_345_678, 10, 12_345_678.901_234_567),
            (i128::MAX, 38, 1.701_411_834_604_692_3),
            (9_007_199_254_740_993, 0, 9_007_199_254_740_992.0),
            (0, 38, 0.0),
        ] {
            assert_eq!(decimal(value, scale).to_bits(), f64::to_bits(expected), "{value} {scale}");
        }
        assert_eq!(unscaled(&[0xff, 0xfe]), Some(-2));
        assert_eq!(unscaled(&[0x7f; 16]), Some(i128::from_be_bytes([0x7f; 16])));
        assert_eq!((unscaled(&[]), unscaled(&[0; 17])), (None, None));
    }
}
