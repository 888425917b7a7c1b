//! The examples of `docs/directory-format.md`, so that the document and the code can't part.

/// Whether the document shows these bytes, given as hexadecimal digits.
pub(crate) fn shows(hex: &str) -> bool {
    let document = include_str!("../../../docs/directory-format.md");
    let examples = document.lines().map(|line| match line.starts_with("    ") {
        true => line.replace(' ', ""),
        false => "\n".to_owned(),
    });
    examples.collect::<String>().contains(hex)
}
