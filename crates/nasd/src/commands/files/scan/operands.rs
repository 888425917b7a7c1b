//! What is scanned, and the query: the operands of the command line, and the options that are its parts.

use crate::arguments::ScanArguments;
use nasd_cell::CellPath;

/// The word that a query begins with.
const SELECT: &str = "select";

/// The paths, and the query.
///
/// # Errors
/// No path, or two queries.
pub fn operands(arguments: &ScanArguments) -> Result<(&[String], String), String> {
    let (paths, query) = match arguments.operands.split_last() {
        Some((last, paths)) if is_query(last) => (paths, Some(last)),
        // Whoever has written a query wrong is told so.
        Some((last, paths)) if !paths.is_empty() && CellPath::parse(last).is_none() => {
            (paths, Some(last))
        }
        _ => (&arguments.operands[..], None),
    };
    if let Some(other) = paths.iter().find(|path| is_query(path)) {
        return Err(format!("`{other}`: one query, behind all paths"));
    }
    if paths.is_empty() {
        return Err("nothing is to be scanned: write VOLUME:/path before the query".to_owned());
    }
    match (query, parts(arguments)) {
        (Some(query), None) => Ok((paths, query.clone())),
        (None, Some(query)) => Ok((paths, query)),
        (None, None) => Ok((paths, "SELECT * FROM file".to_owned())),
        (Some(_), Some(_)) => {
            Err("say the query as one text, or by --select, --where and the others".to_owned())
        }
    }
}

fn is_query(operand: &str) -> bool {
    let word = operand.split_ascii_whitespace().next().unwrap_or_default();
    word.eq_ignore_ascii_case(SELECT)
}

/// The query that options say, if they do.
fn parts(arguments: &ScanArguments) -> Option<String> {
    let wanted = &arguments.wanted;
    let parts = [
        (" WHERE ", &wanted.condition),
        (" GROUP BY ", &wanted.group_by),
        (" ORDER BY ", &wanted.order_by),
        (" LIMIT ", &wanted.limit),
    ];
    if wanted.select.is_none() && parts.iter().all(|(_, part)| part.is_none()) {
        return None;
    }
    let mut query = format!("SELECT {} FROM file", wanted.select.as_deref().unwrap_or("*"));
    for (word, part) in parts {
        if let Some(part) = part {
            query += word;
            query += part;
        }
    }
    Some(query)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Given {
        #[command(flatten)]
        scan: ScanArguments,
    }

    fn told(given: &[&str]) -> Result<(usize, String), String> {
        let given = Given::try_parse_from([&["scan"], given].concat()).unwrap();
        operands(&given.scan).map(|(paths, query)| (paths.len(), query))
    }

    #[test]
    fn a_query_is_the_last_operand_or_what_options_say() {
        assert_eq!(told(&["a:/b"]).unwrap(), (1, "SELECT * FROM file".to_owned()));
        assert_eq!(told(&["a:/b", "a:/c"]).unwrap().0, 2);
        assert_eq!(
            told(&["a:/b", "a:/select", " Select\n1"]).unwrap(),
            (2, " Select\n1".to_owned())
        );
        let parts = ["--select", "k, sum(v)", "--where", "v > 1", "--group-by", "k"];
        let parts = [&parts[..], &["--order-by", "2 DESC", "--limit", "3", "a:/b"]].concat();
        let query =
            "SELECT k, sum(v) FROM file WHERE v > 1 GROUP BY k ORDER BY 2 DESC LIMIT 3".to_owned();
        assert_eq!(told(&parts).unwrap(), (1, query));
        assert_eq!(told(&["a:/b", "selekt"]).unwrap(), (1, "selekt".to_owned()));
        assert_eq!(told(&["a:/b", "--limit", "1"]).unwrap().1, "SELECT * FROM file LIMIT 1");
        for wrong in [
            &["select 1"][..],
            &["select 1", "a:/b"],
            &["a:/b", "select 1", "select 2"],
            &["a:/b", "select 1", "--limit", "1"],
        ] {
            assert!(told(wrong).is_err(), "{wrong:?}");
        }
    }
}
