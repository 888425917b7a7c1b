//! Queries, and those that are refused.

use super::*;
use crate::format::{Column, Delimited, Type};
use crate::plan::{Options, Plan};

fn format() -> Format {
    let columns = [("a", Type::Int), ("B", Type::Float), ("select", Type::Text)];
    let columns = columns.map(|(name, kind)| Column { name: name.to_owned(), kind }).to_vec();
    Format::Delimited(Delimited { delimiter: b',', quote: None, header: true, columns })
}

fn query(sql: &str) -> Query {
    let query = parse(sql, &format()).unwrap();
    let (format, program) = (format(), query.program.clone());
    Plan { format, program, options: Options::default() }.check().unwrap();
    query
}

fn a() -> Expression {
    Expression::column(0)
}

fn select(filter: Option<Expression>, projection: Option<Vec<Expression>>) -> Program {
    Program::Select(Select { filter, projection, limit: None })
}

fn filter(sql: &str) -> Expression {
    match query(&format!("SELECT * FROM 'data.csv' WHERE {sql}")).program {
        Program::Select(select) => select.filter.unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn selects() {
    let all = query("select * from t");
    assert_eq!(all.program, select(None, None));
    let names: Vec<&str> = all.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["a", "B", "select"]);
    let limited = query("SELECT a, A + 1 AS next, \"select\" FROM t WHERE b < 2.5 LIMIT 10;");
    let next = Expression::arithmetic(Arithmetic::Add, a(), Expression::int(1));
    let less = Expression::compare(Comparison::Less, Expression::column(1), Expression::float(2.5));
    let projection = Some(vec![a(), next.clone(), Expression::column(2)]);
    let expected = Select { filter: Some(less), projection, limit: Some(10) };
    assert_eq!(limited.program, Program::Select(expected));
    assert_eq!(limited.columns[1], ResultColumn { name: "next".to_owned(), place: 1 });
    let top = query("SELECT a + 1 AS next FROM t ORDER BY next DESC NULLS LAST LIMIT 3");
    let projection = Some(vec![next.clone()]);
    let (order, descending, count) = (next, true, 3);
    let expected = Top { filter: None, order, descending, count, projection };
    assert_eq!(top.program, Program::Top(expected));
}

/// Quotes tell where a name ends; they are no part of it.
#[test]
fn names_have_no_quotes() {
    let named = |sql: &str| -> Vec<String> {
        query(sql).columns.into_iter().map(|column| column.name).collect()
    };
    assert_eq!(named("SELECT \"a\", (\"B\"), \"select\", A FROM t"), ["a", "B", "select", "A"]);
    assert_eq!(
        named("SELECT \"a\", count(*) AS \"how many\" FROM t GROUP BY a"),
        ["a", "how many"]
    );
    // In an expression they are needed.
    assert_eq!(named("SELECT min(\"select\") FROM t"), ["min(\"select\")"]);
}

#[test]
fn orders() {
    let order = |sql: &str| match query(sql).program {
        Program::Top(top) => top.order,
        other => panic!("{other:?}"),
    };
    assert_eq!(order("SELECT * FROM t ORDER BY a LIMIT 1"), a());
    assert_eq!(order("SELECT * FROM t ORDER BY 2 LIMIT 1"), Expression::column(1));
    assert_eq!(order("SELECT b, a FROM t ORDER BY 2 LIMIT 1"), a());
    // An item's alias comes before a column's name.
    assert_eq!(order("SELECT a AS b, b AS c FROM t ORDER BY B LIMIT 1"), a());
    assert_eq!(order("SELECT a AS b FROM t ORDER BY a LIMIT 1"), a());
}

#[test]
fn expressions() {
    let equal = |right| Expression::compare(Comparison::Equal, a(), right);
    assert_eq!(filter("a = -9223372036854775808"), equal(Expression::int(i64::MIN)));
    assert_eq!(filter("(a = 1e3)"), equal(Expression::float(1000.0)));
    assert_eq!(filter("NOT a = NULL"), Expression::not(equal(Expression::Literal(Literal::Null))));
    let precedence = Expression::or(
        equal(Expression::int(1)),
        Expression::and(equal(Expression::int(2)), equal(Expression::int(3))),
    );
    assert_eq!(filter("a = 1 OR a = 2 AND a = 3"), precedence);
    let halves = Expression::arithmetic(Arithmetic::IntegerDivide, a(), Expression::int(2));
    assert_eq!(filter("a // 2 = a"), Expression::compare(Comparison::Equal, halves, a()));
    let list = vec![Literal::Int(1), Literal::Int(-2), Literal::Null];
    let contained = Expression::In { value: Box::new(a()), list, negated: true };
    assert_eq!(filter("a NOT IN (1, -2, NULL)"), contained);
    let like = Expression::Like {
        value: Box::new(Expression::column(2)),
        pattern: b"x!%%".to_vec(),
        escape: Some(b'!'),
        negated: false,
    };
    assert_eq!(filter("\"select\" LIKE 'x!%%' ESCAPE '!'"), like);
    let there = Expression::IsNull { value: Box::new(a()), negated: true };
    assert_eq!(filter("a IS NOT NULL"), there);
    let (low, high) = (Box::new(Expression::int(1)), Box::new(Expression::int(2)));
    let between = Expression::Between { value: Box::new(a()), low, high, negated: false };
    assert_eq!(filter("a BETWEEN 1 AND 2"), between);
}

#[test]
fn aggregates() {
    let grouped = query("SELECT count(*), a % 2, Sum(b), count(a) FROM t GROUP BY a % 2");
    let places: Vec<usize> = grouped.columns.iter().map(|column| column.place).collect();
    assert_eq!(places, [1, 0, 2, 3]);
    let Program::Aggregate(program) = &grouped.program else {
        panic!("{grouped:?}");
    };
    assert_eq!(
        program.keys,
        [Expression::arithmetic(Arithmetic::Remainder, a(), Expression::int(2))]
    );
    let sum = Item { function: Function::Sum, argument: Some(Expression::column(1)) };
    assert_eq!(program.items[..2], [Item { function: Function::Count, argument: None }, sum]);
    for sql in [
        "SELECT a % 2 AS odd, count(*) FROM t GROUP BY 1",
        "SELECT a % 2 AS odd, count(*) FROM t GROUP BY odd",
    ] {
        assert!(
            matches!(query(sql).program, Program::Aggregate(found) if found.keys == program.keys)
        );
    }
    let compared = query("SELECT count(a = 1 AND b < 2) FROM t");
    let Program::Aggregate(program) = &compared.program else {
        panic!("{compared:?}");
    };
    assert_eq!(program.items[0].argument, Some(filter("a = 1 AND b < 2")));
    let ungrouped = query("SELECT min(\"select\"), max(a), avg(b) FROM t");
    assert!(matches!(ungrouped.program, Program::Aggregate(program) if program.items.len() == 3));
}

#[test]
fn groups_have_an_order_and_a_limit() {
    let by = |sql: &str| {
        let found = query(sql);
        let Program::Aggregate(program) = found.program else {
            panic!("{sql} has no groups");
        };
        let by = found.arrangement.by.iter().map(|by| (by.place, by.descending)).collect();
        let by: Vec<(usize, bool)> = by;
        (by, found.arrangement.limit, program.items.len())
    };
    let grouped = |end: &str| by(&format!("SELECT sum(b) AS s, a FROM t GROUP BY a {end}"));
    assert_eq!(grouped(""), (vec![], None, 1));
    assert_eq!(grouped("LIMIT 7"), (vec![], Some(7), 1));
    assert_eq!(grouped("ORDER BY 1 DESC, a LIMIT 2"), (vec![(1, true), (0, false)], Some(2), 1));
    assert_eq!(grouped("ORDER BY S"), (vec![(1, false)], None, 1));
    // Another aggregate is told too, and not shown; one that is told is not told twice.
    let counted = "ORDER BY count(*) DESC, sum(b), count(*)";
    assert_eq!(grouped(counted), (vec![(2, true), (1, false), (2, false)], None, 2));
    for (sql, text) in [
        (
            "SELECT a, count(*) FROM t GROUP BY a ORDER BY b",
            "b is neither in GROUP BY nor an aggregate",
        ),
        ("SELECT count(*) FROM t ORDER BY 2", "not supported: ORDER BY 2: there is no such item"),
        ("SELECT count(*) FROM t ORDER BY 'a'", "not supported: ORDER BY 'a', a constant"),
        ("SELECT count(*) FROM t ORDER BY 1 NULLS FIRST", "not supported: NULLS FIRST"),
    ] {
        assert_eq!(parse(sql, &format()).unwrap_err().to_string(), text, "{sql}");
    }
}

#[test]
fn long_chains_are_not_deep_and_deep_ones_are_refused() {
    let ors = (0..250).map(|number| format!("a = {number}")).collect::<Vec<_>>().join(" OR ");
    let program = query(&format!("SELECT * FROM t WHERE {ors}")).program;
    let plan = Plan { format: format(), program, options: Options::default() };
    plan.check().unwrap();
    let sums = |count: usize| vec!["1"; count].join("+");
    let deep = |count| parse(&format!("SELECT {} FROM t", sums(count)), &format());
    assert!(deep(64).is_ok());
    let told = |count| deep(count).unwrap_err().to_string();
    assert_eq!(told(4000), "not supported: so deep an expression");
    assert_eq!(told(10_000), "not supported: more than 16384 bytes");
}

#[test]
fn a_table_may_have_an_alias_and_an_order_a_place() {
    for table in ["t", "\"a table\"", "a.t", "t u", "t AS u"] {
        query(&format!("SELECT a FROM {table}"));
    }
    let ordered = |order| query(&format!("SELECT b, a FROM t ORDER BY {order} LIMIT 3")).program;
    assert_eq!(ordered("2"), ordered("a"));
}

#[test]
fn refusals() {
    for (sql, text) in [
        ("SELECT c FROM t", "there is no column c"),
        ("SELECT a, count(*) FROM t", "a is neither in GROUP BY nor an aggregate"),
        ("SELECT count(*) + 1 FROM t", "not supported: count(*) as a part of something else"),
        ("SELECT count(DISTINCT a) FROM t", "not supported: count(DISTINCT a)"),
        ("SELECT DISTINCT a FROM t", "not supported: DISTINCT"),
        ("SELECT * FROM t ORDER BY a", "not supported: ORDER BY without LIMIT"),
        (
            "SELECT * FROM t ORDER BY a, b LIMIT 1",
            "not supported: ORDER BY more than one expression",
        ),
        ("SELECT a FROM t ORDER BY 2 LIMIT 1", "not supported: ORDER BY 2: there is no such item"),
        ("SELECT * FROM t ORDER BY 4 LIMIT 1", "not supported: ORDER BY 4: there is no such item"),
        ("SELECT * FROM t ORDER BY 'a' LIMIT 1", "not supported: ORDER BY 'a', a constant"),
        ("SELECT * FROM t ORDER BY a NULLS FIRST LIMIT 1", "not supported: NULLS FIRST"),
        ("SELECT * FROM t LIMIT 1 OFFSET 1", "not supported: OFFSET"),
        ("SELECT * FROM t, u", "not supported: more than one name behind FROM"),
        ("SELECT * FROM t JOIN u ON true", "not supported: JOIN"),
        ("SELECT * FROM (SELECT 1)", "not supported: FROM anything but a name"),
        ("SELECT * FROM t TABLESAMPLE (10 ROWS)", "not supported: FROM anything but a name"),
        ("SELECT * FROM t AS u(b, a)", "not supported: FROM anything but a name"),
        ("SELECT * FROM f(1)", "not supported: FROM anything but a name"),
        ("SELECT *, a FROM t", "not supported: * beside other items"),
        ("SELECT * EXCLUDE (a) FROM t", "not supported: options of *"),
        ("SELECT a FROM t HAVING a > 1", "not supported: HAVING"),
        ("SELECT a FROM t UNION SELECT a FROM t", "not supported: anything but one SELECT"),
        ("SELECT 1; SELECT 2", "not supported: anything but one SELECT"),
        ("SELECT 1", "not supported: a query without FROM"),
        ("SELECT sqrt(a) FROM t", "not supported: sqrt(a)"),
        ("SELECT a || b FROM t", "not supported: the operator ||"),
        ("SELECT 9223372036854775808 FROM t", "not supported: 9223372036854775808"),
        ("SELECT a FROM t WHERE a IN (b)", "not supported: b in the list of an IN"),
        ("WITH u AS (SELECT 1) SELECT * FROM t", "not supported: WITH"),
    ] {
        assert_eq!(parse(sql, &format()).unwrap_err().to_string(), text, "{sql}");
    }
    assert!(matches!(parse("SELECT FROM WHERE", &format()), Err(SqlError::Syntax(_))));
}
