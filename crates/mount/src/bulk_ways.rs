//! The bulk way to an open file, by ioctl(2): for who moves its bytes himself, past the kernel and this mount (`docs/bulk-ways.md`).
//!
//! Whoever has an opening is given what the opening allows, and no more. As long as he may write, openings that others make go around
//! the kernel's cache, so that none shows what was there before; where the kernel may have pages of the file for others who have it
//! open already, he is told to write by way of the mount. It has none for those who only write and go around its cache; and those who
//! write past the mount themselves do without.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use nasd_clerk::OpenMode;
use nasd_fuse::Errno;

use crate::attributes::errno;
use crate::files::OpenedFile;
use crate::inodes;
use crate::tree::Tree;

/// The request: `_IOWR('N', 0x49, char[16000])`. Both ways a little-endian number of 32 bits comes first: what is wanted, and the
/// length of the text that follows, which is that of a `nasd_bulk_service::client::Way`.
pub(crate) const WAY: u32 = 3 << 30 | (ANSWER_BYTES as u32) << 16 | (b'N' as u32) << 8 | 0x49;

/// `_IO('N', 0x4a)`: the file was changed by its bulk way.
pub(crate) const CHANGED: u32 = (b'N' as u32) << 8 | 0x4a;

const ANSWER_BYTES: usize = 16_000;
const HEAD_BYTES: usize = 4;

/// What is wanted, a set.
const TO_READ: u32 = 1;
const TO_WRITE: u32 = 2;
/// The last way that was told has been refused.
const ANEW: u32 = 4;

/// What a request wants, and whether the last answer was of no use.
fn wanted(data: &[u8]) -> Result<(OpenMode, bool), Errno> {
    let head = data.first_chunk().map(|head: &[u8; HEAD_BYTES]| u32::from_le_bytes(*head));
    let wanted = head.ok_or(Errno::EINVAL)?;
    let has = |bit| wanted & bit != 0;
    let mode = OpenMode { read: has(TO_READ), write: has(TO_WRITE) };
    match wanted & !(TO_READ | TO_WRITE | ANEW) == 0 && (mode.read || mode.write) {
        true => Ok((mode, has(ANEW))),
        false => Err(Errno::EINVAL),
    }
}

impl Tree {
    /// Answers a request for the bulk way to an open file: `EOPNOTSUPP` where there is none, `EBUSY` where the kernel may have pages of
    /// it for others.
    pub(crate) fn bulk_way(&self, file: &OpenedFile, data: &[u8]) -> Result<Vec<u8>, Errno> {
        let (mode, is_anew) = wanted(data)?;
        let allowed = file.open.mode();
        // Before anything is done for him.
        if (mode.read && !allowed.read) || (mode.write && !allowed.write) {
            return Err(Errno::EBADF);
        }
        if !file.goes_around_the_cache() {
            return Err(Errno::EOPNOTSUPP);
        }
        let asking = || file.asking_to_write_past.lock().unwrap_or_else(PoisonError::into_inner);
        let _asking = mode.write.then(asking);
        let begins = mode.write && !file.may_write_past.load(Ordering::Acquire);
        if begins && !self.inodes.begin_bulk_write(file.ino, &file.pages) {
            return Err(Errno::EBUSY);
        }
        let answer = self.bulk_way_of(file, mode, is_anew);
        if begins {
            match &answer {
                // From now on until it is closed.
                Ok(_) => file.may_write_past.store(true, Ordering::Release),
                Err(_) => self.inodes.end_bulk_write(file.ino, &file.pages),
            }
        }
        answer
    }

    fn bulk_way_of(
        &self,
        file: &OpenedFile,
        mode: OpenMode,
        is_anew: bool,
    ) -> Result<Vec<u8>, Errno> {
        if mode.write {
            if file.caller.uid != 0 {
                self.drop_set_ids(file)?;
            }
            self.drop_capability(file)?;
            self.forget_pages(file.ino, 0, 0);
        }
        if mode.read {
            self.read_by(file);
        }
        let way = file.open.bulk_way(mode, is_anew).map_err(|error| errno(&error))?;
        let text = way.ok_or(Errno::EOPNOTSUPP)?.to_text();
        // One with more components than fit is none that could be told.
        if HEAD_BYTES + text.len() > ANSWER_BYTES {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut answer = vec![0; ANSWER_BYTES];
        answer[..HEAD_BYTES].copy_from_slice(&(text.len() as u32).to_le_bytes());
        answer[HEAD_BYTES..][..text.len()].copy_from_slice(text.as_bytes());
        Ok(answer)
    }

    /// An opening's bulk way was written by: whoever asks now is told how the file is.
    pub(crate) fn changed_by_bulk(&self, file: &OpenedFile) -> Result<(), Errno> {
        if !file.may_write_past.load(Ordering::Acquire) {
            return Err(Errno::EINVAL);
        }
        let attributes = file.open.note_bulk_changes().map_err(|error| errno(&error))?;
        self.forget_older_pages(file.ino, inodes::version(&attributes), false);
        self.correct(file.ino, &attributes);
        Ok(())
    }

    /// The last reference to an opening is gone, which may have been written past the mount.
    pub(crate) fn end_bulk_way(&self, file: &OpenedFile) {
        if file.may_write_past.swap(false, Ordering::AcqRel) {
            self.forget_pages(file.ino, 0, 0);
            self.inodes.end_bulk_write(file.ino, &file.pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_what_is_wanted() {
        let page = include_str!("../../../docs/bulk-ways.md");
        for request in [WAY, CHANGED] {
            assert!(page.contains(&format!("{request:#010x}")), "{request:#x}");
        }
        assert_eq!(wanted(&[1, 0, 0, 0, 9]), Ok((OpenMode::READ, false)));
        assert_eq!(wanted(&[2, 0, 0, 0]), Ok((OpenMode::WRITE, false)));
        assert_eq!(wanted(&[7, 0, 0, 0]), Ok((OpenMode::READ_WRITE, true)));
        for nonsense in [&[][..], &[1, 0, 0], &[0, 0, 0, 0], &[4, 0, 0, 0], &[1, 0, 0, 1]] {
            assert_eq!(wanted(nonsense), Err(Errno::EINVAL), "{nonsense:?}");
        }
    }
}
