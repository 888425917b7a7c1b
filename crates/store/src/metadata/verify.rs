//! Verifying every page of the tree when it is opened.
//!
//! The tree's own way to do so follows its links, one page at a time, and does it twice; with two
//! million objects that takes a quarter of a minute. Here a level of all tables is read at a time, in
//! the order in which its pages lie on the device, in large pieces and by several threads; so it goes
//! as fast as the device reads. The same walk counts the pages for `capacity`, and keeps those that are
//! needed next: all of the extents', and the branches that lead to what the log changes.
//!
//! What the tree opens afterwards is what was verified: its last durable state was committed in two
//! phases, so its header leaves no choice, and the state of its allocator is in pages of that state.
//! Where the header says anything else, the tree verifies and repairs itself in its own way.

use std::collections::HashMap;
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nasd_device::{AlignedBuffer, DeviceError, ReadRequest};
use nasd_types::limits::BLOCK_BYTES;
use redb::TableHandle;

use super::TreeError;
use super::page::{Definition, HEADER_BYTES, Header, Link, Page, Place, Sizes};
use super::region::Region;
use super::tables::{EXTENTS, FAMILIES, MEMBERS, OBJECTS, SHARES, SMALL};

/// Bytes that a thread reads at a time.
const READ_BYTES: u64 = 1 << 20;

/// Pages that are not wanted and lie between two that are: up to so many bytes of them are read too.
const GAP_BYTES: u64 = 32 << 10;

/// Threads, each with a buffer of `READ_BYTES`: they wait for the device most of the time.
const THREADS: usize = 8;

/// Pages below which further threads are not worth their start.
const PAGES_FOR_THREADS: usize = 1024;

/// Pages that are sorted and read at a time; 32 bytes of memory each.
const WAVE_PAGES: usize = 1 << 20;

/// Most bytes of pages that are kept of a table that is, and of the branches of all tables.
const KEPT_BYTES: usize = 64 << 20;
const KEPT_BRANCH_BYTES: usize = 32 << 20;

/// The table of the tree's own that has roots of further states.
const SAVEPOINTS: &str = "persistent_savepoints";

/// What the walk found.
#[derive(Debug, Default)]
pub(super) struct Verified {
    /// Pages of the tables that `capacity` counts.
    pub(super) counted: u64,
    /// Branches, and pages of the table of extents, by their number within the region.
    pub(super) kept: HashMap<u64, Box<[u8]>>,
}

/// How a table is walked.
#[derive(Clone, Copy, Debug)]
struct Walked {
    sizes: Sizes,
    counted: bool,
    kept: bool,
}

/// A page that is to be read.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    link: Link,
    /// Index of its table among those that are walked.
    table: u8,
}

/// Pages that are read together: some of those of a level, in order.
#[derive(Clone, Copy, Debug)]
struct Piece<'a> {
    offset: u64,
    bytes: u64,
    pages: &'a [Wanted],
}

/// What one thread found.
#[derive(Default)]
struct Found {
    below: Vec<Wanted>,
    counted: u64,
    kept: Vec<(u64, Box<[u8]>)>,
    /// The problem of the page that lies first, and where that is.
    problem: Option<(u64, TreeError)>,
}

/// Verifies the tree's last durable state; `None` when the tree has to do so itself.
pub(super) fn verify(region: &Region) -> Result<Option<Verified>, TreeError> {
    let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
    let start = region.offset();
    region.device().read(start, &mut [IoSliceMut::new(&mut block)]).map_err(failed)?;
    let Some(header) = Header::parse(&block[..HEADER_BYTES]) else {
        return Ok(None);
    };
    let mut walk = Walk::new(region, &header);
    let [Some(user), Some(system)] = header.roots else {
        return Ok(None);
    };
    let catalogue = Walked { sizes: Sizes::default(), counted: false, kept: true };
    walk.tables = vec![catalogue, catalogue];
    walk.run(vec![Wanted { link: user, table: 0 }, Wanted { link: system, table: 1 }])?;
    let pages = std::mem::take(&mut walk.verified.kept);
    let mut roots = Vec::new();
    for catalogue in [user, system] {
        if walk.read_catalogue(&pages, catalogue, &mut roots).is_none() {
            return Ok(None);
        }
    }
    walk.kept_bytes.store(0, Ordering::Relaxed);
    walk.run(roots)?;
    Ok(Some(walk.verified))
}

fn failed(error: DeviceError) -> TreeError {
    TreeError::Io(std::io::Error::other(error))
}

struct Walk<'a> {
    region: &'a Region,
    header: &'a Header,
    tables: Vec<Walked>,
    /// Pages seen: more than the region has, and their links go in circles.
    seen: u64,
    kept_bytes: AtomicUsize,
    kept_branch_bytes: AtomicUsize,
    verified: Verified,
}

impl<'a> Walk<'a> {
    fn new(region: &'a Region, header: &'a Header) -> Walk<'a> {
        Walk {
            region,
            header,
            tables: Vec::new(),
            seen: 0,
            kept_bytes: AtomicUsize::new(0),
            kept_branch_bytes: AtomicUsize::new(0),
            verified: Verified::default(),
        }
    }

    /// Adds the tables of a catalogue whose pages were kept; `None` if there is something in it that
    /// is not known here.
    fn read_catalogue(
        &mut self,
        pages: &HashMap<u64, Box<[u8]>>,
        root: Link,
        roots: &mut Vec<Wanted>,
    ) -> Option<()> {
        let is_counted = |name: &[u8]| {
            [
                OBJECTS.name(),
                SMALL.name(),
                FAMILIES.name(),
                EXTENTS.name(),
                MEMBERS.name(),
                SHARES.name(),
            ]
            .iter()
            .any(|counted| counted.as_bytes() == name)
        };
        let mut links = vec![root];
        while let Some(link) = links.pop() {
            let place = self.header.place(link.page, self.region.bytes())?;
            let page = pages.get(&(place.offset / BLOCK_BYTES as u64))?;
            let page = Page::verified(page, Sizes::default(), link.sum)?;
            for child in page.children() {
                links.push(child?);
            }
            for pair in page.pairs() {
                let (name, value) = pair?;
                let Definition { root, sizes } = Definition::parse(value)?;
                let Some(root) = root else { continue };
                if name == SAVEPOINTS.as_bytes() {
                    return None;
                }
                let table = u8::try_from(self.tables.len()).ok()?;
                let kept = name == EXTENTS.name().as_bytes();
                self.tables.push(Walked { sizes, counted: is_counted(name), kept });
                roots.push(Wanted { link: root, table });
            }
        }
        Some(())
    }

    /// Verifies pages and all below them.
    fn run(&mut self, roots: Vec<Wanted>) -> Result<(), TreeError> {
        let mut levels = vec![roots];
        while let Some(mut level) = levels.pop() {
            if level.len() > WAVE_PAGES {
                levels.push(level.split_off(WAVE_PAGES));
            }
            let below = self.read(&mut level)?;
            if !below.is_empty() {
                levels.push(below);
            }
        }
        Ok(())
    }

    /// Verifies pages; those below them.
    fn read(&mut self, level: &mut [Wanted]) -> Result<Vec<Wanted>, TreeError> {
        self.seen += level.len() as u64;
        if self.seen > self.region.pages() {
            return Err(TreeError::Damaged("the tree's pages go in circles".to_owned()));
        }
        let pages = level.len();
        let pieces = self.pieces(level)?;
        let next = AtomicUsize::new(0);
        let helpers = if pages < PAGES_FOR_THREADS { 0 } else { THREADS - 1 };
        let walk = &*self;
        let found: Vec<Found> = thread::scope(|scope| {
            let work = || walk.read_pieces(&pieces, &next);
            // Without a helper there are the others.
            let helpers: Vec<_> = (0..helpers)
                .filter_map(|_| thread::Builder::new().spawn_scoped(scope, work).ok())
                .collect();
            let own = work();
            let theirs = helpers.into_iter().map(|helper| {
                helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            std::iter::once(own).chain(theirs).collect()
        });
        let mut below = Vec::new();
        let mut problem: Option<(u64, TreeError)> = None;
        for found in found {
            below.extend(found.below);
            self.verified.counted += found.counted;
            self.verified.kept.extend(found.kept);
            problem = [problem, found.problem].into_iter().flatten().min_by_key(|(at, _)| *at);
        }
        match problem {
            Some((_, problem)) => Err(problem),
            None => Ok(below),
        }
    }

    fn place(&self, wanted: &Wanted) -> Result<Place, TreeError> {
        let page = wanted.link.page;
        self.header.place(page, self.region.bytes()).ok_or_else(|| {
            TreeError::Damaged(format!("page {page:#x} is outside of the metadata region"))
        })
    }

    /// What to read for these pages, which are sorted as they lie on the device.
    fn pieces<'p>(&self, level: &'p mut [Wanted]) -> Result<Vec<Piece<'p>>, TreeError> {
        for wanted in &*level {
            self.place(wanted)?;
        }
        level.sort_unstable_by_key(|wanted| self.place(wanted).map_or(0, |place| place.offset));
        let mut pieces: Vec<Piece<'p>> = Vec::new();
        let mut first = 0;
        for (index, wanted) in level.iter().enumerate() {
            let Place { offset, bytes } = self.place(wanted)?;
            let end = offset + bytes;
            match pieces.last_mut() {
                Some(piece)
                    if offset <= piece.offset + piece.bytes + GAP_BYTES
                        && end <= piece.offset + READ_BYTES =>
                {
                    piece.bytes = piece.bytes.max(end - piece.offset);
                    piece.pages = &level[first..=index];
                }
                _ => {
                    first = index;
                    pieces.push(Piece { offset, bytes, pages: &level[index..=index] });
                }
            }
        }
        Ok(pieces)
    }

    /// Reads and verifies pieces that nobody else does, until there are no more.
    fn read_pieces(&self, pieces: &[Piece<'_>], next: &AtomicUsize) -> Found {
        let mut found = Found::default();
        let mut buffer = AlignedBuffer::zeroed(READ_BYTES as usize);
        // As many as make one read; pieces that are small are so because they lie far apart.
        let mut batch: Vec<Piece<'_>> = Vec::new();
        let mut bytes = 0;
        loop {
            let piece = match found.problem {
                None => pieces.get(next.fetch_add(1, Ordering::Relaxed)),
                Some(_) => None,
            };
            if piece.is_none_or(|piece| bytes + piece.bytes > READ_BYTES) && !batch.is_empty() {
                self.read_batch(&batch, &mut buffer, &mut found);
                batch.clear();
                bytes = 0;
            }
            let Some(piece) = piece else { return found };
            bytes += piece.bytes;
            batch.push(*piece);
        }
    }

    fn read_batch(&self, batch: &[Piece<'_>], buffer: &mut AlignedBuffer, found: &mut Found) {
        let bytes: u64 = batch.iter().map(|piece| piece.bytes).sum();
        if buffer.len() < bytes as usize {
            // One page may be larger than what is read at a time.
            *buffer = AlignedBuffer::zeroed(bytes as usize);
        }
        let mut rest: &mut [u8] = buffer;
        let mut requests = Vec::with_capacity(batch.len());
        for piece in batch {
            let (into, behind) = rest.split_at_mut(piece.bytes as usize);
            let offset = self.region.offset() + piece.offset;
            requests.push(ReadRequest { offset, into: vec![IoSliceMut::new(into)] });
            rest = behind;
        }
        let whole = self.region.device().read_batch(&mut requests).is_ok();
        let mut at = 0;
        for piece in batch {
            let bytes = &mut buffer[at..at + piece.bytes as usize];
            piece
                .pages
                .iter()
                .for_each(|wanted| self.take(wanted, piece.offset, bytes, whole, found));
            at += piece.bytes as usize;
        }
    }

    /// Takes a page of a piece that begins at `start` and was read, or was not.
    fn take(&self, wanted: &Wanted, start: u64, piece: &mut [u8], read: bool, found: &mut Found) {
        let seen = self.place(wanted).and_then(|place| {
            let from = (place.offset - start) as usize;
            let bytes = &mut piece[from..from + place.bytes as usize];
            if !read {
                // Perhaps this page is not the bad one.
                self.read_page(place, bytes)?;
            }
            self.see(place, wanted, bytes, found)
        });
        if let Err(error) = seen
            && found.problem.as_ref().is_none_or(|(first, _)| start < *first)
        {
            found.problem = Some((start, error));
        }
    }

    fn read_page(&self, place: Place, into: &mut [u8]) -> Result<(), TreeError> {
        let offset = self.region.offset() + place.offset;
        self.region.device().read(offset, &mut [IoSliceMut::new(into)]).map_err(failed)
    }

    /// Takes a page that was read.
    fn see(
        &self,
        place: Place,
        wanted: &Wanted,
        bytes: &[u8],
        found: &mut Found,
    ) -> Result<(), TreeError> {
        let damaged = || {
            let offset = self.region.offset() + place.offset;
            let what = "of the metadata tree does not match its checksum";
            TreeError::Damaged(format!("the page at byte {offset} {what}"))
        };
        let table = &self.tables[usize::from(wanted.table)];
        let page = Page::verified(bytes, table.sizes, wanted.link.sum).ok_or_else(damaged)?;
        for child in page.children() {
            let link = child.ok_or_else(damaged)?;
            found.below.push(Wanted { link, table: wanted.table });
        }
        found.counted += u64::from(table.counted);
        let (kept, most) = match table.kept {
            true => (&self.kept_bytes, KEPT_BYTES),
            false => (&self.kept_branch_bytes, KEPT_BRANCH_BYTES),
        };
        if (table.kept || !page.is_leaf())
            && kept.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len() <= most
        {
            found.kept.push((place.offset / BLOCK_BYTES as u64, bytes.into()));
        }
        Ok(())
    }
}
