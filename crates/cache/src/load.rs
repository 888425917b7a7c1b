//! What a cache directory has when it is opened: heads are read and believed if their checksums are right; contents are verified
//! when they are read. What can't be of use is removed, so that the limit is kept.

use crate::cache::Shared;
use crate::directory::{Directory, Part, in_blocks};
use crate::head::Head;
use crate::identity::Identity;
use crate::key::FileKey;
use crate::state::{Entry, Item, Note};
use crate::writer::{OnDisk, Writer};
use crate::{CHUNK_BYTES, CacheError, MAX_FILES, chunk_length};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

/// A head that was read, and when it was used last.
struct Loaded {
    head: Head,
    used: SystemTime,
    head_bytes: u64,
}

/// Reads what the directory has; the writer of it, which has not begun yet.
pub fn load(
    shared: &Shared,
    directory: Directory,
    identity: &Identity,
    limit: u64,
) -> Result<Writer, CacheError> {
    let mut loaded = Vec::new();
    for folder in directory.folders() {
        match fs::read_dir(&folder) {
            Ok(entries) => load_folder(shared, &directory, identity, &folder, entries, &mut loaded),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => shared.tell_damage(&folder.display().to_string(), &error),
        }
    }
    // The least recently used come first, and so give way first.
    loaded.sort_by_key(|one| one.used);
    let too_many = loaded.len().saturating_sub(MAX_FILES);
    for one in loaded.drain(..too_many) {
        remove_both(&directory, &one.head.file);
    }
    let mut writer = Writer {
        directory,
        identity: identity.clone(),
        limit,
        files: HashMap::new(),
        used: 0,
        failed: None,
        punches: true,
    };
    for one in loaded {
        adopt(shared, &mut writer, one);
    }
    shared.lock().disk_used = writer.used;
    // Whatever can't be made to fit stays unused: nothing is written before there is room.
    writer.make_room(shared, 0);
    Ok(writer)
}

fn load_folder(
    shared: &Shared,
    directory: &Directory,
    identity: &Identity,
    folder: &Path,
    entries: fs::ReadDir,
    loaded: &mut Vec<Loaded>,
) {
    let mut data = HashSet::new();
    let before = loaded.len();
    for entry in entries.flatten() {
        let name = entry.file_name();
        match name.to_str().and_then(|name| Directory::parse(folder, name)) {
            Some((file, Part::Data)) => {
                data.insert(file);
            }
            Some((file, Part::Head)) => match read(directory, identity, &file) {
                Ok(one) => loaded.push(one),
                Err(error) => {
                    shared.lock().counters.damaged += 1;
                    shared.tell_damage(&format!("file {file}"), &error);
                    // A directory of that name is a stranger's, and stays.
                    let _ = directory.remove(&file, Part::Head);
                }
            },
            None => {
                let path = entry.path();
                tracing::warn!("{} is not the cache's, and is left as it is", path.display());
            }
        }
    }
    for one in &mut loaded[before..] {
        if !data.remove(&one.head.file) {
            one.head.chunks.clear();
        }
    }
    // Contents without a head: written just before a crash, or the head was damaged.
    for file in data {
        let _ = directory.remove(&file, Part::Data);
    }
}

fn read(directory: &Directory, identity: &Identity, file: &FileKey) -> io::Result<Loaded> {
    let wrong = |what: &'static str| io::Error::new(io::ErrorKind::InvalidData, what);
    let (bytes, used) = directory.read_head(file)?;
    let head = Head::decode(&bytes).map_err(wrong)?;
    if head.file != *file || head.cell != identity.cell {
        return Err(wrong("its head is another file's"));
    }
    Ok(Loaded { head, used, head_bytes: in_blocks(bytes.len() as u64) })
}

fn remove_both(directory: &Directory, file: &FileKey) {
    for part in [Part::Head, Part::Data] {
        // What can't be removed is found again at the next start.
        let _ = directory.remove(file, part);
    }
}

/// Adds a file to what is known.
fn adopt(shared: &Shared, writer: &mut Writer, one: Loaded) {
    let Loaded { mut head, used, head_bytes } = one;
    let file = head.file;
    if !trim(&writer.directory, &head) {
        head.chunks.clear();
    }
    let bytes = |number: u64| in_blocks(chunk_length(head.length, number) as u64);
    let chunks: BTreeMap<u64, u64> = head.chunks.iter().map(|(n, _)| (*n, bytes(*n))).collect();
    let mut state = shared.lock();
    let mut entry = Entry::new(state.next_serial(), head.version, head.length);
    entry.used = used;
    entry.used_since = false;
    entry.touched_disk = true;
    entry.chunks = head.chunks.iter().copied().collect();
    entry.note = if head.note.is_empty() { Note::None } else { Note::Saved };
    if entry.chunks.is_empty() && head.note.is_empty() {
        drop(state);
        remove_both(&writer.directory, &file);
        return;
    }
    for (number, bytes) in &chunks {
        state.disk.insert_frequent(Item { file, number: *number }, *bytes);
    }
    state.disk.insert_frequent(Item { file, number: Item::OTHER }, head_bytes);
    state.adopt(file, entry);
    drop(state);
    writer.used += head_bytes + chunks.values().sum::<u64>();
    writer.files.insert(file, OnDisk { chunks, head: head_bytes });
}

/// Gives back what the data file has beside the chunks that the head tells of; false if it is no data file, and has gone.
fn trim(directory: &Directory, head: &Head) -> bool {
    if head.chunks.is_empty() {
        let _ = directory.remove(&head.file, Part::Data);
        return true;
    }
    let counted: u64 =
        head.chunks.iter().map(|(n, _)| in_blocks(chunk_length(head.length, *n) as u64)).sum();
    let found = fs::symlink_metadata(directory.part(&head.file, Part::Data));
    let Ok(found) = found.as_ref().map(|found| (found.is_file(), found.blocks() * 512)) else {
        return false;
    };
    if !found.0 {
        let _ = directory.remove(&head.file, Part::Data);
        return false;
    }
    if found.1 <= counted {
        return true;
    }
    if punch_gaps(directory, head).is_ok() {
        return true;
    }
    let _ = directory.remove(&head.file, Part::Data);
    false
}

fn punch_gaps(directory: &Directory, head: &Head) -> io::Result<()> {
    let mut next = 0;
    for (number, _) in &head.chunks {
        if *number > next {
            directory.punch(&head.file, next, number - next)?;
        }
        next = number + 1;
    }
    directory.cut(&head.file, head.length.min(next * CHUNK_BYTES))
}
