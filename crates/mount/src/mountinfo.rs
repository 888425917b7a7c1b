//! What is mounted where, by `/proc/self/mountinfo` (see proc(5)).

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The type that our mounts have there.
pub(crate) const TYPE: &str = "fuse.nasd";

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// `MAJOR:MINOR` of the file system.
    pub(crate) device: String,
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Type of the file system.
    pub(crate) file_system: String,
}

impl MountEntry {
    /// Whether this is a volume of ours.
    pub(crate) fn is_ours(&self) -> bool {
        self.file_system == TYPE
    }

    /// Whether a process serves it.
    pub(crate) fn is_fuse(&self) -> bool {
        self.file_system == "fuse" || self.file_system.starts_with("fuse.")
    }
}

/// What is mounted at `path` exactly; the topmost, when there are several.
pub(crate) fn mounted_at(path: &Path) -> io::Result<Option<MountEntry>> {
    let text = std::fs::read("/proc/self/mountinfo")?;
    Ok(parse(&text).filter(|entry| entry.path == path).last())
}

fn parse(text: &[u8]) -> impl Iterator<Item = MountEntry> {
    text.split(|byte| *byte == b'\n').filter_map(parse_line)
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = String::from_utf8(fields.nth(2)?.to_vec()).ok()?;
    let path = PathBuf::from(OsString::from_vec(unescape(fields.nth(1)?)));
    let mut fields = fields.skip_while(|field| *field != b"-");
    let file_system = String::from_utf8_lossy(fields.nth(1)?).into_owned();
    Some(MountEntry { device, path, file_system })
}

/// Space, tab, newline and backslash are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let code = tail.get(..3).filter(|_| first == b'\\');
        match code.and_then(octal) {
            Some(byte) => {
                plain.push(byte);
                rest = &tail[3..];
            }
            None => {
                plain.push(first);
                rest = tail;
            }
        }
    }
    plain
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_with_and_without_optional_fields() {
        let text = b"22 1 0:21 / /proc rw,nosuid shared:5 master:1 - proc proc rw\n\
                     40 22 0:45 / /mnt/my\\040disk\\134 rw - fuse.nasd nasd rw,user_id=0\n\
                     broken\n";
        let entries: Vec<MountEntry> = parse(text).collect();
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].file_system, "proc");
        assert!(!entries[0].is_fuse() && !entries[0].is_ours());
        assert_eq!(entries[1].path, Path::new("/mnt/my disk\\"));
        assert_eq!(entries[1].device, "0:45");
        assert!(entries[1].is_fuse() && entries[1].is_ours());
    }

    #[test]
    fn this_machine_has_a_root() {
        assert!(mounted_at(Path::new("/")).unwrap().is_some());
        assert!(mounted_at(Path::new("/no such mount")).unwrap().is_none());
    }
}
