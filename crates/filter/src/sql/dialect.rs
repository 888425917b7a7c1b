//! How queries are written.

use sqlparser::dialect::{Dialect, DuckDbDialect};
use std::any::TypeId;

/// DuckDB's SQL, but `a = b` in the arguments of a function is a comparison, as DuckDB takes it where `a`
/// is a column. [`DuckDbDialect`] has an argument `a` there.
#[derive(Debug)]
pub(super) struct Sql;

impl Dialect for Sql {
    fn dialect(&self) -> TypeId {
        TypeId::of::<DuckDbDialect>()
    }

    fn is_identifier_start(&self, character: char) -> bool {
        DuckDbDialect.is_identifier_start(character)
    }

    fn is_identifier_part(&self, character: char) -> bool {
        DuckDbDialect.is_identifier_part(character)
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        DuckDbDialect.identifier_quote_style(identifier)
    }

    fn supports_trailing_commas(&self) -> bool {
        DuckDbDialect.supports_trailing_commas()
    }

    fn supports_notnull_operator(&self) -> bool {
        DuckDbDialect.supports_notnull_operator()
    }

    fn supports_group_by_expr(&self) -> bool {
        DuckDbDialect.supports_group_by_expr()
    }

    // What follows is read only to be refused by name.

    fn supports_filter_during_aggregation(&self) -> bool {
        DuckDbDialect.supports_filter_during_aggregation()
    }

    fn supports_bitwise_shift_operators(&self) -> bool {
        DuckDbDialect.supports_bitwise_shift_operators()
    }

    fn supports_dictionary_syntax(&self) -> bool {
        DuckDbDialect.supports_dictionary_syntax()
    }

    fn supports_lambda_functions(&self) -> bool {
        DuckDbDialect.supports_lambda_functions()
    }

    fn supports_from_first_select(&self) -> bool {
        DuckDbDialect.supports_from_first_select()
    }

    fn supports_order_by_all(&self) -> bool {
        DuckDbDialect.supports_order_by_all()
    }

    fn supports_select_wildcard_exclude(&self) -> bool {
        DuckDbDialect.supports_select_wildcard_exclude()
    }

    fn supports_select_wildcard_replace(&self) -> bool {
        DuckDbDialect.supports_select_wildcard_replace()
    }

    fn supports_numeric_literal_underscores(&self) -> bool {
        DuckDbDialect.supports_numeric_literal_underscores()
    }
}
