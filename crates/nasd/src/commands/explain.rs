//! `nasd explain`: what the health codes of `nasd status` mean.

use super::Outcome;
use crate::health::codes::{self, Code};
use crate::output::{self, say};
use std::fmt::Write as _;

/// Explains one code, or lists all; `as_document` writes docs/health.md.
///
/// # Errors
/// A code that there is not.
pub fn explain(name: Option<&str>, as_document: bool, as_json: bool) -> Outcome {
    let chosen: Vec<&Code> = match name {
        None => codes::ALL.to_vec(),
        Some(name) => vec![codes::find(name).ok_or_else(|| {
            format!("there is no health code `{name}`: `nasd explain` lists those that there are")
        })?],
    };
    if as_json {
        return output::json(&chosen);
    }
    if as_document {
        say!("{}", document()?.trim_end());
        return Ok(());
    }
    match (name, chosen.as_slice()) {
        (Some(_), [code]) => {
            say!("{} ({})", code.code, code.severity);
            say!("\n{}", code.meaning);
            say!("\nLook at: {}", code.look);
            say!("\nDo: {}", code.act);
        }
        _ => {
            for code in chosen {
                let severity = code.severity.to_string();
                say!("{:<26} {severity:<8} {}", code.code, first_sentence(code.meaning));
            }
        }
    }
    Ok(())
}

fn first_sentence(text: &str) -> &str {
    text.split_inclusive(['.', ':']).next().map_or(text, |first| first.trim_end_matches([':', '.']))
}

/// docs/health.md.
fn document() -> Result<String, std::fmt::Error> {
    let mut out = String::from(
        "# Health codes\n\n\
         `nasd status` tells the state of the cell: HEALTHY, WARNING (all works, but may not for long) or ERROR\n\
         (something does not work), and for each thing that needs attention a code, what it is about, and a line.\n\
         `--json` has the same in `.state` and `.health`. The exit status is 0 when the state could be told and\n\
         1 when not, as when the manager is away; with `--check` it is 0 for HEALTHY, 3 for WARNING, 4 for ERROR.\n\n\
         `nasd explain CODE` prints what is below; this page is made by `nasd explain --document`.\n",
    );
    for code in codes::ALL {
        writeln!(out, "\n## {}\n\n{}.", code.code, code.severity)?;
        writeln!(
            out,
            "\n{}\n\n**Look at** {}\n\n**Do this.** {}",
            code.meaning, code.look, code.act
        )?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_made_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/health.md");
        let written = std::fs::read_to_string(path).unwrap();
        assert_eq!(written, document().unwrap(), "give `nasd explain --document > docs/health.md`");
    }

    #[test]
    fn first_sentences_end_before_their_stop() {
        assert_eq!(first_sentence("One. Two."), "One");
        assert_eq!(first_sentence("No end"), "No end");
    }
}
