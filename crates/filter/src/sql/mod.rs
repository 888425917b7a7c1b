//! Programs from SQL, for people: `SELECT items FROM file [WHERE ...] [GROUP BY ...] [ORDER BY x [DESC]]
//! [LIMIT n]`. What is not supported is refused by name.

mod dialect;

use crate::arrange::{Arrangement, OrderBy};
use crate::expression::{Arithmetic, Comparison, Expression, Literal};
use crate::format::Format;
use crate::plan::{Aggregate, Function, Item, Program, Select, Top};
use sqlparser::ast;
use sqlparser::parser::{Parser, ParserError};
use std::cell::Cell;
use thiserror::Error;

/// Most bytes of a query: what is nested by operators alone takes stack.
const MAX_SQL_BYTES: usize = 16 << 10;

/// Most levels that are translated; a program has fewer.
const MAX_SQL_DEPTH: usize = 200;

/// A program, and how its result is to be shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// What is to be run.
    pub program: Program,
    /// The columns of the result, in order.
    pub columns: Vec<ResultColumn>,
    /// Whether those are all that there are: `*`.
    pub is_all: bool,
    /// What is to be made of the result of the whole file, where it is groups.
    pub arrangement: Arrangement,
}

/// A column of a query's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultColumn {
    /// Its alias, or a column's name, or else the expression as it is written.
    pub name: String,
    /// Its place in a row of the program: in a projection, in the record without one, or among the keys and
    /// items of an Aggregate.
    pub place: usize,
}

/// Why a query is no program.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SqlError {
    /// It is no SQL.
    #[error(transparent)]
    Syntax(#[from] ParserError),
    /// It is SQL that filters don't do.
    #[error("not supported: {0}")]
    NotSupported(String),
    /// The format has no such column.
    #[error("there is no column {0}")]
    NoSuchColumn(String),
    /// A column of a grouped result is neither a key nor an aggregate.
    #[error("{0} is neither in GROUP BY nor an aggregate")]
    NotGrouped(String),
}

fn not_supported<T>(what: impl Into<String>) -> Result<T, SqlError> {
    Err(SqlError::NotSupported(what.into()))
}

/// The program of a query over files of a format. Its types are not checked here but by
/// [`Plan::check`](crate::Plan::check). Names of columns are told apart by case only where they are not
/// told apart otherwise; the name behind FROM is anything.
///
/// # Errors
///
/// See [`SqlError`].
pub fn parse(sql: &str, format: &Format) -> Result<Query, SqlError> {
    if sql.len() > MAX_SQL_BYTES {
        return not_supported(format!("more than {MAX_SQL_BYTES} bytes"));
    }
    let mut statements = Parser::parse_sql(&dialect::Sql, sql)?;
    let query = match (statements.pop(), statements.is_empty()) {
        (Some(ast::Statement::Query(query)), true) => *query,
        _ => return not_supported("anything but one SELECT"),
    };
    let clauses = Clauses::new(query)?;
    let translator = Translator { format, depth: Cell::new(0) };
    let aggregates = clauses.items.iter().any(|(expression, _)| aggregate(expression).is_some());
    if aggregates || !clauses.keys.is_empty() {
        translator.aggregate(&clauses)
    } else {
        translator.records(&clauses)
    }
}

/// The parts of a query that there may be.
struct Clauses {
    /// What is selected, and its name. Empty for `*`.
    items: Vec<(ast::Expr, String)>,
    filter: Option<ast::Expr>,
    keys: Vec<ast::Expr>,
    order: Vec<(ast::Expr, bool)>,
    limit: Option<u64>,
}

impl Clauses {
    fn new(query: ast::Query) -> Result<Clauses, SqlError> {
        let others = [
            ("WITH", query.with.is_some()),
            ("FETCH", query.fetch.is_some()),
            ("FOR", query.for_clause.is_some() || !query.locks.is_empty()),
            ("SETTINGS", query.settings.is_some() || query.format_clause.is_some()),
            ("|>", !query.pipe_operators.is_empty()),
        ];
        refuse(&others)?;
        let order = query.order_by.map(orders).transpose()?.unwrap_or_default();
        let limit = query.limit_clause.map(limit).transpose()?.flatten();
        let ast::SetExpr::Select(select) = *query.body else {
            return not_supported("anything but one SELECT");
        };
        let select = *select;
        let others = [
            ("DISTINCT", select.distinct.is_some()),
            ("TOP", select.top.is_some()),
            ("EXCLUDE", select.exclude.is_some()),
            ("INTO", select.into.is_some()),
            ("LATERAL", !select.lateral_views.is_empty()),
            ("PREWHERE", select.prewhere.is_some()),
            ("CONNECT BY", !select.connect_by.is_empty()),
            ("CLUSTER BY", !select.cluster_by.is_empty()),
            ("DISTRIBUTE BY", !select.distribute_by.is_empty()),
            ("SORT BY", !select.sort_by.is_empty()),
            ("HAVING", select.having.is_some()),
            ("WINDOW", !select.named_window.is_empty()),
            ("QUALIFY", select.qualify.is_some()),
            ("AS STRUCT", select.value_table_mode.is_some()),
            ("FROM first", select.flavor != ast::SelectFlavor::Standard),
            ("a SELECT modifier", select.select_modifiers.is_some()),
            ("a query without FROM", select.from.is_empty()),
            ("more than one name behind FROM", select.from.len() > 1),
        ];
        refuse(&others)?;
        let table = &select.from[0];
        if !table.joins.is_empty() {
            return not_supported("JOIN");
        }
        if !is_name(&table.relation) {
            return not_supported("FROM anything but a name");
        }
        let keys = match select.group_by {
            ast::GroupByExpr::Expressions(keys, modifiers) if modifiers.is_empty() => keys,
            _ => return not_supported("GROUP BY ALL, and modifiers of GROUP BY"),
        };
        let items = items(select.projection)?;
        let keys = keys.into_iter().map(|key| by_position("GROUP BY", key, &items));
        let keys = keys.collect::<Result<_, _>>()?;
        Ok(Clauses { items, filter: select.selection, keys, order, limit })
    }
}

/// Whether that is a name with an alias, at most.
fn is_name(table: &ast::TableFactor) -> bool {
    let ast::TableFactor::Table { name, alias, .. } = table else {
        return false;
    };
    let told = match alias {
        Some(alias) if !alias.columns.is_empty() => return false,
        // However it is written, with everything else that there may be.
        Some(alias) => {
            let (with, without) = (format!("{name} AS {alias}"), format!("{name} {alias}"));
            return [with, without].contains(&table.to_string());
        }
        None => name.to_string(),
    };
    table.to_string() == told
}

fn refuse(clauses: &[(&str, bool)]) -> Result<(), SqlError> {
    match clauses.iter().find(|(_, there)| *there) {
        Some((name, _)) => not_supported(*name),
        None => Ok(()),
    }
}

fn items(projection: Vec<ast::SelectItem>) -> Result<Vec<(ast::Expr, String)>, SqlError> {
    if let [ast::SelectItem::Wildcard(options)] = projection.as_slice() {
        return match options.to_string().is_empty() {
            true => Ok(Vec::new()),
            false => not_supported("options of *"),
        };
    }
    let items = projection.into_iter().map(|item| match item {
        ast::SelectItem::UnnamedExpr(expression) => {
            let name = name_of(&expression);
            Ok((expression, name))
        }
        ast::SelectItem::ExprWithAlias { expr, alias } => Ok((expr, alias.value)),
        other => not_supported(format!("{other} beside other items")),
    });
    items.collect()
}

/// What a column of the result is called without AS: of a column its name, without the quotes that say where it ends.
fn name_of(expression: &ast::Expr) -> String {
    match expression {
        ast::Expr::Nested(inner) if matches!(**inner, ast::Expr::Identifier(_)) => name_of(inner),
        ast::Expr::Identifier(name) => name.value.clone(),
        _ => expression.to_string(),
    }
}

/// `GROUP BY 1` and `ORDER BY 1` are by the first item.
fn by_position(
    clause: &str,
    key: ast::Expr,
    items: &[(ast::Expr, String)],
) -> Result<ast::Expr, SqlError> {
    let Some(Literal::Int(position)) = literal(&key) else {
        return Ok(key);
    };
    match place(position).and_then(|index| items.get(index)) {
        Some((expression, _)) => Ok(expression.clone()),
        None => not_supported(format!("{clause} {position}: there is no such item")),
    }
}

/// Of the first item 0.
fn place(position: i64) -> Option<usize> {
    usize::try_from(position).ok().and_then(|position| position.checked_sub(1))
}

/// What an ORDER BY is by, and whether the greatest come first.
fn orders(order: ast::OrderBy) -> Result<Vec<(ast::Expr, bool)>, SqlError> {
    let ast::OrderByKind::Expressions(list) = order.kind else {
        return not_supported("ORDER BY ALL");
    };
    let orders = list.into_iter().map(|item| {
        if item.options.nulls_first == Some(true) {
            return not_supported("NULLS FIRST");
        }
        match item.options.sort {
            None | Some(ast::OrderBySort::Asc) => Ok((item.expr, false)),
            Some(ast::OrderBySort::Desc) => Ok((item.expr, true)),
            Some(_) => not_supported("ORDER BY ... USING"),
        }
    });
    orders.collect()
}

fn limit(clause: ast::LimitClause) -> Result<Option<u64>, SqlError> {
    let ast::LimitClause::LimitOffset { limit, offset: None, limit_by } = clause else {
        return not_supported("OFFSET");
    };
    if !limit_by.is_empty() {
        return not_supported("LIMIT BY");
    }
    match limit.as_ref().map(literal) {
        None => Ok(None),
        Some(Some(Literal::Int(limit))) if limit >= 0 => Ok(Some(limit.cast_unsigned())),
        Some(_) => not_supported("a LIMIT that is no number of records, 0 or more"),
    }
}

/// The aggregate function that an expression is, if it is one.
fn aggregate(expression: &ast::Expr) -> Option<(Function, &ast::Function)> {
    match expression {
        ast::Expr::Nested(inner) => aggregate(inner),
        ast::Expr::Function(function) => {
            let name = function.name.to_string().to_lowercase();
            let found = Function::ALL.iter().find(|function| function.name() == name)?;
            Some((*found, function))
        }
        _ => None,
    }
}

/// The constant that an expression is, if it is one.
fn literal(expression: &ast::Expr) -> Option<Literal> {
    match expression {
        ast::Expr::Nested(inner) => literal(inner),
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Number(text, false) => number(text),
            ast::Value::SingleQuotedString(text) => Some(Literal::Text(text.clone().into_bytes())),
            ast::Value::Boolean(value) => Some(Literal::Bool(*value)),
            ast::Value::Null => Some(Literal::Null),
            _ => None,
        },
        ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => match &**expr {
            // With its sign, as the least integer is none without.
            ast::Expr::Value(value) => match &value.value {
                ast::Value::Number(text, false) => number(&format!("-{text}")),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

fn number(text: &str) -> Option<Literal> {
    match text.contains(['.', 'e', 'E']) {
        true => text.parse().ok().map(Literal::Float),
        false => text.parse().ok().map(Literal::Int),
    }
}

/// The item whose alias an expression is, whatever its case.
fn aliased<'e>(expression: &ast::Expr, clauses: &'e Clauses) -> Option<&'e ast::Expr> {
    let ast::Expr::Identifier(name) = expression else {
        return None;
    };
    let mut items = clauses.items.iter();
    items.find(|(_, alias)| alias.eq_ignore_ascii_case(&name.value)).map(|(item, _)| item)
}

/// Translates expressions over the columns of a format.
struct Translator<'a> {
    format: &'a Format,
    /// Of the expression that is being translated in those around it.
    depth: Cell<usize>,
}

impl Translator<'_> {
    fn filter(&self, clauses: &Clauses) -> Result<Option<Expression>, SqlError> {
        clauses.filter.as_ref().map(|filter| self.expression(filter)).transpose()
    }

    /// A Select, or a Top where there is an order.
    fn records(&self, clauses: &Clauses) -> Result<Query, SqlError> {
        let filter = self.filter(clauses)?;
        let count = self.format.column_count();
        let all = (0..count).map(|index| self.format.column_name(index).unwrap_or_default());
        let (projection, names): (_, Vec<String>) = if clauses.items.is_empty() {
            // What has no bytes of its own is given column by column.
            let columns = (0..count).filter_map(|index| u16::try_from(index).ok());
            let columns = || columns.map(Expression::column).collect();
            let projection = matches!(self.format, Format::Columns(_)).then(columns);
            (projection, all.map(str::to_owned).collect())
        } else {
            let items = clauses.items.iter().map(|(expression, _)| self.expression(expression));
            let names = clauses.items.iter().map(|(_, name)| name.clone());
            (Some(items.collect::<Result<_, _>>()?), names.collect())
        };
        let program = match clauses.order.as_slice() {
            [] => Program::Select(Select { filter, projection, limit: clauses.limit }),
            [(order, descending)] => {
                let Some(limit) = clauses.limit else {
                    return not_supported("ORDER BY without LIMIT");
                };
                let Ok(count) = u32::try_from(limit) else {
                    return not_supported("ORDER BY with so high a LIMIT");
                };
                let order = self.order(order, clauses)?;
                let descending = *descending;
                Program::Top(Top { filter, order, descending, count, projection })
            }
            _ => return not_supported("ORDER BY more than one expression"),
        };
        let column = |(place, name)| ResultColumn { name, place };
        let columns = names.into_iter().enumerate().map(column).collect();
        let is_all = clauses.items.is_empty();
        Ok(Query { program, columns, is_all, arrangement: Arrangement::default() })
    }

    /// What an ORDER BY is by: an item by its place or its alias, or else an expression over columns.
    fn order(&self, order: &ast::Expr, clauses: &Clauses) -> Result<Expression, SqlError> {
        match literal(order) {
            Some(Literal::Int(position)) if clauses.items.is_empty() => {
                let index = place(position).filter(|index| *index < self.format.column_count());
                match index.and_then(|index| u16::try_from(index).ok()) {
                    Some(index) => Ok(Expression::column(index)),
                    None => not_supported(format!("ORDER BY {position}: there is no such item")),
                }
            }
            Some(Literal::Int(_)) => {
                self.expression(&by_position("ORDER BY", order.clone(), &clauses.items)?)
            }
            Some(_) => not_supported(format!("ORDER BY {order}, a constant")),
            None => self.expression(aliased(order, clauses).unwrap_or(order)),
        }
    }

    /// What a GROUP BY is by: as DuckDB has it, an alias counts only if no column has the name.
    fn key<'e>(&self, key: &'e ast::Expr, clauses: &'e Clauses) -> &'e ast::Expr {
        match key {
            ast::Expr::Identifier(name) if self.column(&name.value).is_some() => key,
            _ => aliased(key, clauses).unwrap_or(key),
        }
    }

    fn aggregate(&self, clauses: &Clauses) -> Result<Query, SqlError> {
        if clauses.items.is_empty() {
            return not_supported("* of groups");
        }
        let filter = self.filter(clauses)?;
        let keys = clauses.keys.iter().map(|key| self.expression(self.key(key, clauses)));
        let keys: Vec<Expression> = keys.collect::<Result<_, _>>()?;
        let mut groups = Aggregate { filter, keys, items: Vec::new() };
        let mut columns = Vec::new();
        for (expression, name) in &clauses.items {
            let place = self.place(expression, name, &mut groups)?;
            columns.push(ResultColumn { name: name.clone(), place });
        }
        let orders = clauses.order.iter().map(|(order, descending)| {
            let item = self.order_of_groups(order, clauses)?;
            let place = self.place(&item, &order.to_string(), &mut groups)?;
            Ok(OrderBy { place, descending: *descending })
        });
        let by = orders.collect::<Result<_, SqlError>>()?;
        let arrangement = Arrangement { by, limit: clauses.limit };
        Ok(Query { program: Program::Aggregate(groups), columns, is_all: false, arrangement })
    }

    /// Where in the row of a group a value is: a key, or an aggregate, which is told of groups then.
    fn place(
        &self,
        expression: &ast::Expr,
        name: &str,
        groups: &mut Aggregate,
    ) -> Result<usize, SqlError> {
        let Some((function, call)) = aggregate(expression) else {
            let value = self.expression(expression)?;
            let place = groups.keys.iter().position(|key| *key == value);
            return place.ok_or_else(|| SqlError::NotGrouped(name.to_owned()));
        };
        let item = Item { function, argument: self.argument(function, call)? };
        let place = groups.items.iter().position(|known| *known == item);
        if place.is_none() {
            groups.items.push(item);
        }
        Ok(groups.keys.len() + place.unwrap_or(groups.items.len() - 1))
    }

    /// What an ORDER BY of groups is by: an item by its place or its alias, or else a key or an aggregate.
    fn order_of_groups(&self, order: &ast::Expr, clauses: &Clauses) -> Result<ast::Expr, SqlError> {
        match literal(order) {
            Some(Literal::Int(_)) => by_position("ORDER BY", order.clone(), &clauses.items),
            Some(_) => not_supported(format!("ORDER BY {order}, a constant")),
            None => Ok(aliased(order, clauses).unwrap_or(order).clone()),
        }
    }

    /// The argument of an aggregate function; none for `count(*)`.
    fn argument(
        &self,
        function: Function,
        call: &ast::Function,
    ) -> Result<Option<Expression>, SqlError> {
        let others = [
            ("FILTER", call.filter.is_some()),
            ("OVER", call.over.is_some()),
            ("WITHIN GROUP", !call.within_group.is_empty()),
            ("IGNORE NULLS", call.null_treatment.is_some()),
        ];
        refuse(&others)?;
        let ast::FunctionArguments::List(list) = &call.args else {
            return not_supported(call.to_string());
        };
        if list.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct)
            || !list.clauses.is_empty()
        {
            return not_supported(call.to_string());
        }
        match list.args.as_slice() {
            [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Wildcard)] | []
                if function == Function::Count =>
            {
                Ok(None)
            }
            [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(argument))] => {
                self.expression(argument).map(Some)
            }
            _ => not_supported(call.to_string()),
        }
    }

    /// The column of a name, by its very name or else whatever its case.
    fn column(&self, name: &str) -> Option<u16> {
        let names = || (0..self.format.column_count()).map(|index| self.format.column_name(index));
        let exact = names().position(|other| other == Some(name));
        let loose = || {
            names().position(|other| other.is_some_and(|other| other.eq_ignore_ascii_case(name)))
        };
        exact.or_else(loose).and_then(|index| u16::try_from(index).ok())
    }

    fn boxed(&self, expression: &ast::Expr) -> Result<Box<Expression>, SqlError> {
        self.expression(expression).map(Box::new)
    }

    fn expression(&self, expression: &ast::Expr) -> Result<Expression, SqlError> {
        if self.depth.get() == MAX_SQL_DEPTH {
            return not_supported("so deep an expression");
        }
        self.depth.set(self.depth.get() + 1);
        let translated = self.translate(expression);
        self.depth.set(self.depth.get() - 1);
        translated
    }

    fn translate(&self, expression: &ast::Expr) -> Result<Expression, SqlError> {
        if let Some(literal) = literal(expression) {
            return Ok(Expression::Literal(literal));
        }
        Ok(match expression {
            ast::Expr::Identifier(name) => match self.column(&name.value) {
                Some(column) => Expression::Column(column),
                None => return Err(SqlError::NoSuchColumn(name.value.clone())),
            },
            ast::Expr::Nested(inner) => self.expression(inner)?,
            ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => {
                Expression::Negate(self.boxed(expr)?)
            }
            ast::Expr::UnaryOp { op: ast::UnaryOperator::Plus, expr } => self.expression(expr)?,
            ast::Expr::UnaryOp { op: ast::UnaryOperator::Not, expr } => {
                Expression::Not(self.boxed(expr)?)
            }
            ast::Expr::IsNull(value) => {
                Expression::IsNull { value: self.boxed(value)?, negated: false }
            }
            ast::Expr::IsNotNull(value) => {
                Expression::IsNull { value: self.boxed(value)?, negated: true }
            }
            ast::Expr::Between { expr, negated, low, high } => Expression::Between {
                value: self.boxed(expr)?,
                low: self.boxed(low)?,
                high: self.boxed(high)?,
                negated: *negated,
            },
            ast::Expr::InList { expr, list, negated } => {
                let items = list.iter().map(|item| match literal(item) {
                    Some(item) => Ok(item),
                    None => not_supported(format!("{item} in the list of an IN")),
                });
                let list = items.collect::<Result<_, _>>()?;
                Expression::In { value: self.boxed(expr)?, list, negated: *negated }
            }
            ast::Expr::Like { negated, any: false, expr, pattern, escape_char } => {
                self.like(*negated, expr, pattern, escape_char.as_deref())?
            }
            ast::Expr::BinaryOp { left, op, right } => self.binary(left, op, right)?,
            other if aggregate(other).is_some() => {
                return not_supported(format!("{other} as a part of something else"));
            }
            other => return not_supported(other.to_string()),
        })
    }

    fn like(
        &self,
        negated: bool,
        value: &ast::Expr,
        pattern: &ast::Expr,
        escape: Option<&ast::Expr>,
    ) -> Result<Expression, SqlError> {
        let Some(Literal::Text(pattern)) = literal(pattern) else {
            return not_supported("a LIKE whose pattern is no constant");
        };
        let escape = match escape.map(literal) {
            None => None,
            Some(Some(Literal::Text(text))) if text.len() == 1 => Some(text[0]),
            Some(_) => return not_supported("an ESCAPE that is not one ASCII character"),
        };
        Ok(Expression::Like { value: self.boxed(value)?, pattern, escape, negated })
    }

    /// `a AND b AND c ...`, however long that is, as a tree that is not deep.
    fn chain(
        &self,
        (mut left, operator, right): (&ast::Expr, &ast::BinaryOperator, &ast::Expr),
        join: fn(Box<Expression>, Box<Expression>) -> Expression,
    ) -> Result<Expression, SqlError> {
        let mut operands = vec![right];
        while let ast::Expr::BinaryOp { left: first, op, right } = left
            && op == operator
        {
            operands.push(right);
            left = first;
        }
        operands.push(left);
        let operands = operands.into_iter().rev().map(|operand| self.expression(operand));
        let mut level = operands.collect::<Result<Vec<_>, _>>()?;
        while level.len() > 1 {
            let mut pairs = level.into_iter();
            let mut above = Vec::new();
            while let Some(first) = pairs.next() {
                above.push(match pairs.next() {
                    Some(second) => join(Box::new(first), Box::new(second)),
                    None => first,
                });
            }
            level = above;
        }
        // There was one at least.
        level.pop().ok_or_else(|| SqlError::NotSupported(operator.to_string()))
    }

    fn binary(
        &self,
        left: &ast::Expr,
        operator: &ast::BinaryOperator,
        right: &ast::Expr,
    ) -> Result<Expression, SqlError> {
        use ast::BinaryOperator as Operator;
        let arithmetic =
            |operator| Ok(Expression::Arithmetic(operator, self.boxed(left)?, self.boxed(right)?));
        let compare =
            |comparison| Ok(Expression::Compare(comparison, self.boxed(left)?, self.boxed(right)?));
        match operator {
            Operator::Plus => arithmetic(Arithmetic::Add),
            Operator::Minus => arithmetic(Arithmetic::Subtract),
            Operator::Multiply => arithmetic(Arithmetic::Multiply),
            Operator::Divide => arithmetic(Arithmetic::Divide),
            Operator::DuckIntegerDivide => arithmetic(Arithmetic::IntegerDivide),
            Operator::Modulo => arithmetic(Arithmetic::Remainder),
            Operator::Eq => compare(Comparison::Equal),
            Operator::NotEq => compare(Comparison::NotEqual),
            Operator::Lt => compare(Comparison::Less),
            Operator::LtEq => compare(Comparison::LessEqual),
            Operator::Gt => compare(Comparison::Greater),
            Operator::GtEq => compare(Comparison::GreaterEqual),
            Operator::And => self.chain((left, operator, right), Expression::And),
            Operator::Or => self.chain((left, operator, right), Expression::Or),
            other => not_supported(format!("the operator {other}")),
        }
    }
}

#[cfg(test)]
mod tests;
