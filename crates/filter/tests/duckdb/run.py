"""Runs queries by DuckDB over files of delimited text, or over Parquet files that it writes.

    python3 run.py FILE

FILE has a line of JSON for each file of text: its path and format, and the queries over it, which know it as `data`. Where there
is a "write" instead, that is the path of a Parquet file which is written first, of "records" with "options".
Printed is a line of JSON for each query, in the same order: {"rows": [[value, ...], ...]}, or {"error": the class of
the error, "text": what it says}. A value is null or a text whose first letter tells the type: i, f, b or t.
"""

import json
import sys

try:
    import duckdb
except ImportError as error:
    sys.exit(f"there is no DuckDB for python3 ({error}): run `make tools` first")


def load(connection, told):
    """The records of a file as a table, whose `rowid` is their place in the file."""
    options = {
        "header": told["header"],
        "delim": told["delimiter"],
        "quote": told["quote"],
        "escape": told["quote"],
        "new_line": told["line_end"],
        "null_padding": True,
    }
    text = "".join(f", {name} = {literal(value)}" for name, value in options.items())
    columns = ", ".join(f"{literal(name)}: {literal(kind)}" for name, kind in told["columns"])
    connection.execute(
        "CREATE OR REPLACE TABLE data AS SELECT * FROM"
        f" read_csv({literal(told['path'])}, columns = {{{columns}}}, auto_detect = false{text})"
    )


def write(connection, told):
    """A Parquet file of what a query has, read back."""
    path = literal(told["write"])
    connection.execute(f"COPY ({told['records']}) TO {path} ({told['options']})")
    connection.execute(f"CREATE OR REPLACE TABLE data AS SELECT * FROM {path}")


def literal(value):
    if isinstance(value, bool):
        return str(value).lower()
    return "'" + value.replace("'", "''") + "'"


def shown(value):
    if value is None:
        return None
    if isinstance(value, bool):
        return "b" + str(value).lower()
    if isinstance(value, int):
        return f"i{value}"
    if isinstance(value, float):
        return f"f{value!r}"
    if isinstance(value, str):
        return "t" + value
    # No filter has a value of another type: a decimal, for instance.
    return f"{type(value).__name__} {value}"


def answer(connection, query):
    optimizer = "enable" if query["optimized"] else "disable"
    connection.execute(f"PRAGMA {optimizer}_optimizer")
    try:
        rows = connection.execute(query["sql"]).fetchall()
    except duckdb.Error as error:
        return {"error": type(error).__name__, "text": str(error)}
    return {"rows": [[shown(value) for value in row] for row in rows]}


def main():
    connection = duckdb.connect()
    # One after the other, so rows and equals come in the file's order.
    connection.execute("SET threads = 1")
    connection.execute("SET preserve_insertion_order = true")
    # What is divided by zero is NULL, as filters have it, and not an error, an infinity or NaN.
    connection.execute("SET error_on_division_by_zero = false")
    connection.execute("SET ieee_floating_point_ops = false")
    for line in open(sys.argv[1], encoding="utf-8"):
        told = json.loads(line)
        (write if "write" in told else load)(connection, told)
        for query in told["queries"]:
            print(json.dumps(answer(connection, query)))


main()
