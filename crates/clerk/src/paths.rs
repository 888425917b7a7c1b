//! Paths fall into names.

/// The names of a path, without empty ones and dots. `..` is kept: the manager knows no parents,
/// so the caller takes the last name off again.
pub(crate) fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_fall_into_names() {
        let names = |path: &'static str| {
            let names = components(path.as_bytes());
            names.map(|name| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("/a//b/./c/"), ["a", "b", "c"]);
        assert!(names("/").is_empty());
        assert!(names("").is_empty());
        assert_eq!(names("a/../b"), ["a", "..", "b"]);
    }
}
