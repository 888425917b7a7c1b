//! Columns of text files as C programs write them, and `nasd scan`: `id:int,name:text`.

use nasd_filter::{Column, Format, ParameterError, Type};

use crate::error::SmasError;
use crate::filter::all_records;

/// Columns of `NAME:TYPE,...`.
pub(crate) fn listed(text: &str) -> Result<Vec<Column>, SmasError> {
    text.split(',').map(column).collect()
}

fn column(told: &str) -> Result<Column, SmasError> {
    let found = told.trim().rsplit_once(':').and_then(|(name, kind)| {
        let kind = match kind {
            "int" => Type::Int,
            "float" => Type::Float,
            "text" => Type::Text,
            "bool" => Type::Bool,
            _ => return None,
        };
        Some(Column { name: name.to_owned(), kind })
    });
    found.ok_or_else(|| {
        SmasError::Argument(format!(
            "column `{told}` is no NAME:TYPE: types are int, float and text, in lines of JSON bool too"
        ))
    })
}

/// Says what is wrong with a format before a filter is chosen, with the column's name.
pub(crate) fn check(format: &Format) -> Result<(), SmasError> {
    let name = |index| format.column_name(index).unwrap_or_default();
    let told = match all_records(format).check() {
        Ok(_) => return Ok(()),
        Err(ParameterError::ColumnName { index }) => {
            format!("column `{}`: the name is empty, too long, or another one's too", name(index))
        }
        Err(ParameterError::ColumnKind { index }) => {
            format!("column `{}`: bool is a type of lines of JSON alone", name(index))
        }
        Err(error) => return Err(error.into()),
    };
    Err(SmasError::Argument(told))
}

#[cfg(test)]
mod tests {
    use nasd_filter::{Delimited, MAX_NAME_BYTES};

    use super::*;

    #[test]
    fn columns_are_as_they_are_written() {
        let columns = listed("id:int, a:b:float,name:text,is_new:bool").unwrap();
        let found: Vec<(&str, Type)> =
            columns.iter().map(|column| (column.name.as_str(), column.kind)).collect();
        let expected =
            [("id", Type::Int), ("a:b", Type::Float), ("name", Type::Text), ("is_new", Type::Bool)];
        assert_eq!(found, expected);
        for wrong in ["", "id", "id:i32", "id:INT", "id:int,", "id:int,,name:text", "id:int;name"] {
            assert!(matches!(listed(wrong), Err(SmasError::Argument(_))), "{wrong}");
        }
    }

    #[test]
    fn what_no_format_has_is_told_by_name() {
        let table = |columns: &str| {
            let columns = listed(columns).unwrap();
            Format::Delimited(Delimited { delimiter: b',', quote: None, header: true, columns })
        };
        assert!(check(&table("id:int,name:text")).is_ok());
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        for (columns, name) in [
            (":int".to_owned(), ""),
            ("id:int,id:text".to_owned(), "id"),
            (format!("{long}:int"), long.as_str()),
            ("id:int,is_new:bool".to_owned(), "is_new"),
        ] {
            let Err(SmasError::Argument(told)) = check(&table(&columns)) else {
                panic!("{columns}");
            };
            assert!(told.starts_with(&format!("column `{name}`: ")), "{told}");
        }
    }
}
