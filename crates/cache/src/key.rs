//! What a file is called in the cache.

use nasd_types::{DriveId, ObjectId, PartitionId};
use std::fmt;

/// A file of the cache's cell: the object at its drive. Objects are never used again, so one key is one file for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey {
    /// The drive.
    pub drive: DriveId,
    /// The drive's partition.
    pub partition: PartitionId,
    /// The partition's object.
    pub object: ObjectId,
}

/// Digits of a key's text.
const DIGITS: usize = 40;

impl fmt::Display for FileKey {
    /// 40 hexadecimal digits: drive, partition, object.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:08x}{:016x}", self.drive.0, self.partition.0, self.object.0)
    }
}

impl FileKey {
    /// The key that these digits are the text of.
    pub(crate) fn parse(text: &str) -> Option<FileKey> {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != DIGITS || !text.bytes().all(digit) {
            return None;
        }
        Some(FileKey {
            drive: DriveId(u64::from_str_radix(&text[..16], 16).ok()?),
            partition: PartitionId(u32::from_str_radix(&text[16..24], 16).ok()?),
            object: ObjectId(u64::from_str_radix(&text[24..], 16).ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_text() {
        let key =
            FileKey { drive: DriveId(0xab), partition: PartitionId(7), object: ObjectId(u64::MAX) };
        let text = key.to_string();
        assert_eq!(text, "00000000000000ab00000007ffffffffffffffff");
        assert_eq!(FileKey::parse(&text), Some(key));
        for wrong in ["", "ab", &text[1..], &text.to_uppercase(), &format!("+{}", &text[1..])] {
            assert_eq!(FileKey::parse(wrong), None, "{wrong}");
        }
    }
}
