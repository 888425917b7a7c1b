//! `docs/checking.md` says what the code does.

#![allow(clippy::unwrap_used, reason = "compiled for tests alone")]

use nasd_check::Code;

#[test]
fn the_table_of_findings_is_that_of_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/checking.md");
    let text = std::fs::read_to_string(path).unwrap();
    let table = text.split("<!-- findings -->").nth(1).unwrap();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
    let expected: Vec<String> = Code::ALL
        .iter()
        .map(|code| {
            format!(
                "| `{}` | {} | {} | {} |",
                code.name(),
                code.severity(),
                code.meaning(),
                code.repair()
            )
        })
        .collect();
    assert_eq!(rows, expected, "write the table anew:\n{}", expected.join("\n"));
}
