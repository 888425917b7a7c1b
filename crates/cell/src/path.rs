//! `VOLUME:/path`.

use nasd_clerk::Name;
use std::fmt;

/// A path of a volume: absolute, without empty or `.` components.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellPath {
    volume: String,
    components: Vec<Vec<u8>>,
    /// The components joined, from the root.
    path: Vec<u8>,
}

impl CellPath {
    /// From the command line; `None` for what is a local path. What has a slash before its first
    /// colon is local, and so is what has no colon.
    pub fn parse(text: &str) -> Option<CellPath> {
        let (volume, path) = text.split_once(':')?;
        if volume.is_empty() || volume.contains('/') || !path.starts_with('/') {
            return None;
        }
        Some(CellPath::of(volume, path.as_bytes()))
    }

    /// That of a file in a volume.
    pub fn of(volume: &str, path: &[u8]) -> CellPath {
        let components = path.split(|byte| *byte == b'/');
        let components = components.filter(|part| !part.is_empty() && *part != b".");
        CellPath::new(volume, components.map(<[u8]>::to_vec).collect())
    }

    fn new(volume: &str, components: Vec<Vec<u8>>) -> Self {
        let path = [b"/", components.join(&b'/').as_slice()].concat();
        CellPath { volume: volume.to_owned(), components, path }
    }

    /// The volume.
    pub fn volume(&self) -> &str {
        &self.volume
    }

    /// The path from the volume's root.
    pub fn as_bytes(&self) -> &[u8] {
        &self.path
    }

    /// The directory and the name in it; `None` for the root. A name that is too long for any
    /// directory is cut by nobody: it is `None` too.
    pub fn split(&self) -> Option<(CellPath, Name)> {
        let (name, parent) = self.components.split_last()?;
        Some((CellPath::new(&self.volume, parent.to_vec()), Name::new(name).ok()?))
    }

    /// The last component.
    pub fn name(&self) -> Option<&[u8]> {
        self.components.last().map(Vec::as_slice)
    }

    /// A path below this one.
    pub fn join(&self, name: &[u8]) -> CellPath {
        let mut components = self.components.clone();
        components.push(name.to_owned());
        CellPath::new(&self.volume, components)
    }
}

impl fmt::Display for CellPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.volume, String::from_utf8_lossy(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_paths_and_local_ones() {
        let path = CellPath::parse("main:/a//b/./c").unwrap();
        assert_eq!(path.to_string(), "main:/a/b/c");
        assert_eq!(path.name(), Some(&b"c"[..]));
        let (parent, name) = path.split().unwrap();
        assert_eq!((parent.to_string().as_str(), name.as_bytes()), ("main:/a/b", &b"c"[..]));
        assert_eq!(CellPath::parse("main:/").unwrap().split(), None);
        assert_eq!(parent.join(b"x").to_string(), "main:/a/b/x");
        for local in ["file", "./a:b/c", "/x:/y", ":/x", "main:x", ""] {
            assert_eq!(CellPath::parse(local), None, "{local}");
        }
    }
}
