//! An open file whose bytes lie at several servers, in stripes.
//!
//! Components are sparse: a byte lies at the same offset in the component of the server that has it, and the file is as long as
//! the longest component (CMU-CS-97-118 section 3.3; `nasd-layout`). So a component that ends before the file does has a
//! hole there, and only all of them together tell where the file ends.

use nasd_layout::Shape;
use nasd_types::ByteRange;

use super::part::{Part, Tally};
use super::queue::Seat;
use super::{BulkError, BulkFile, Opening, Queue};

/// A file that is open at all servers that have bytes of it. Any number of threads may use it.
pub struct StripedFile {
    columns: Vec<BulkFile>,
    /// Nothing where there is but one server.
    shape: Option<Shape>,
}

/// One reader or writer of a file: it has connections of its own, so that servers can guess what it does next.
pub struct Lane<'f> {
    file: &'f StripedFile,
    /// One for each column.
    seats: Vec<Seat>,
}

impl StripedFile {
    /// Opens it: the components in the order of columns, and the bytes of a stripe unit, which does not matter where there is but one.
    ///
    /// # Errors
    ///
    /// [`BulkError`]; `Protocol` where there is no such stripe.
    pub fn open(components: Vec<Opening>, unit: u64) -> Result<StripedFile, BulkError> {
        let shape = match components.len() {
            1 => None,
            width => {
                let width = u16::try_from(width).unwrap_or(u16::MAX);
                let shape = Shape::new(unit, width, 1).map_err(|error| BulkError::Protocol {
                    server: components.first().map_or_else(String::new, |one| one.address.clone()),
                    why: error.to_string(),
                })?;
                Some(shape)
            }
        };
        Ok(StripedFile { columns: open_all(components)?, shape })
    }

    /// A reader or writer with connections of its own.
    pub fn lane(&self) -> Lane<'_> {
        Lane { file: self, seats: self.columns.iter().map(BulkFile::seat).collect() }
    }

    /// Bytes of which offsets and lengths of transfers must be multiples.
    pub fn alignment(&self) -> u64 {
        self.columns.iter().map(BulkFile::alignment).max().unwrap_or(1)
    }

    /// The file's length in bytes when it was opened.
    pub fn size_at_open(&self) -> u64 {
        self.columns.iter().map(BulkFile::size_at_open).max().unwrap_or(0)
    }

    /// How many servers have bytes of it.
    pub fn width(&self) -> usize {
        self.columns.len()
    }

    /// Reads at an offset. Fewer bytes than there is room for are read only at the end of the file.
    ///
    /// # Errors
    ///
    /// [`BulkError`]; what is in `into` then is of no use.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, BulkError> {
        match &self.columns[..] {
            [one] => one.read_at(into, offset),
            _ => self.lane().read_at(into, offset),
        }
    }

    /// Writes all of it at an offset.
    ///
    /// # Errors
    ///
    /// [`BulkError`]; any part of it may be written then.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<(), BulkError> {
        match &self.columns[..] {
            [one] => one.write_at(data, offset),
            _ => self.lane().write_at(data, offset),
        }
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    ///
    /// [`BulkError::MayBeLost`] if a server has started anew since something was written that was not, or a length set: again and
    /// again until the like is done once more, as of [`BulkFile::sync`].
    pub fn sync(&self) -> Result<(), BulkError> {
        self.columns.iter().try_for_each(BulkFile::sync)
    }

    /// Makes durable what was written, by whomever.
    ///
    /// # Errors
    ///
    /// As [`StripedFile::sync`].
    pub fn sync_all(&self) -> Result<(), BulkError> {
        self.columns.iter().try_for_each(BulkFile::sync_all)
    }

    /// By which numbers servers know the file: another one has others.
    pub fn identities(&self) -> Vec<u64> {
        self.columns.iter().map(BulkFile::identity).collect()
    }

    /// The file's length in bytes.
    ///
    /// # Errors
    ///
    /// [`BulkError`].
    pub fn size(&self) -> Result<u64, BulkError> {
        self.columns.iter().map(BulkFile::size).try_fold(0, |most, size| Ok(most.max(size?)))
    }

    /// Sets the file's length, where one server has all of it.
    ///
    /// # Errors
    ///
    /// [`BulkError`]; `Spread` where several servers have it, so that the length is the cell's to set.
    pub fn set_size(&self, size: u64) -> Result<(), BulkError> {
        match &self.columns[..] {
            [one] => one.set_size(size),
            _ => Err(BulkError::Spread),
        }
    }

    fn pieces(&self, range: ByteRange, most: usize) -> Vec<(usize, ByteRange)> {
        let whole = self.shape.map_or_else(
            || vec![(0, range)],
            |shape| {
                let pieces = shape.pieces(range);
                pieces.map(|piece| (usize::from(piece.column.0), piece.range)).collect()
            },
        );
        let cut = |(column, range): (usize, ByteRange)| {
            let starts = (range.offset..range.end()).step_by(most);
            starts.map(move |at| (column, ByteRange::new(at, (range.end() - at).min(most as u64))))
        };
        whole.into_iter().flat_map(cut).collect()
    }

    /// Checks a transfer, and cuts it into what one server does at once: `at_once` tells how many bytes, and the least counts.
    fn plan(
        &self,
        (offset, length): (u64, usize),
        at_once: impl Fn(&BulkFile) -> usize,
    ) -> Result<Vec<(usize, ByteRange)>, BulkError> {
        self.columns.iter().try_for_each(|column| column.check(offset, length))?;
        let most = self.columns.iter().map(at_once).min().unwrap_or(1);
        Ok(self.pieces(ByteRange::new(offset, length as u64), most))
    }
}

impl Lane<'_> {
    /// Reads at an offset. Fewer bytes than there is room for are read only at the end of the file.
    ///
    /// # Errors
    ///
    /// As [`StripedFile::read_at`].
    pub fn read_at(&mut self, into: &mut [u8], offset: u64) -> Result<usize, BulkError> {
        let lacking = self.read(into, offset)?;
        let Some(first) = lacking.first() else {
            return Ok(into.len());
        };
        if self.seats.len() == 1 {
            return Ok((first.offset - offset) as usize);
        }
        let end = self.file.size()?;
        let is_before_end = |range: &ByteRange| range.offset < end;
        // Somebody may have written there before the lengths were asked for.
        for range in lacking.iter().copied().filter(is_before_end) {
            let at = (range.offset - offset) as usize;
            let hole = &mut into[at..at + range.length as usize];
            for part in self.read(hole, range.offset)? {
                let at = (part.offset - range.offset) as usize;
                hole[at..at + part.length as usize].fill(0);
            }
        }
        let there = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
        Ok(into.len().min(there))
    }

    /// Writes all of it at an offset.
    ///
    /// # Errors
    ///
    /// As [`StripedFile::write_at`].
    pub fn write_at(&mut self, data: &[u8], offset: u64) -> Result<(), BulkError> {
        let plan = self.file.plan((offset, data.len()), BulkFile::most_bytes)?;
        let mut rest = data;
        let parts = plan.into_iter().map(|(column, range)| {
            let (part, behind) = rest.split_at(range.length as usize);
            rest = behind;
            (column, range.offset, Part::From(part))
        });
        self.transfer(parts).map(drop)
    }

    /// Reads at an offset; tells which bytes were lacking, each at the end of a component, behind which the file may go on.
    fn read(&mut self, into: &mut [u8], offset: u64) -> Result<Vec<ByteRange>, BulkError> {
        let plan = self.file.plan((offset, into.len()), BulkFile::read_bytes)?;
        let mut rest = into;
        let parts = plan.into_iter().map(|(column, range)| {
            let (part, behind) = std::mem::take(&mut rest).split_at_mut(range.length as usize);
            rest = behind;
            (column, range.offset, Part::Into(part))
        });
        let mut lacking = self.transfer(parts)?;
        lacking.sort_unstable_by_key(|range| range.offset);
        Ok(lacking)
    }

    /// Transfers parts of columns, and waits for them; tells what was lacking.
    fn transfer<'d>(
        &mut self,
        parts: impl Iterator<Item = (usize, u64, Part<'d>)>,
    ) -> Result<Vec<ByteRange>, BulkError> {
        let seats = self.seats.drain(..).zip(&self.file.columns);
        let mut queues: Vec<Queue<'_, Part<'d>>> =
            seats.map(|(seat, column)| column.queue_in(seat)).collect();
        let mut tally = Tally::default();
        for (column, at, part) in parts {
            tally.begin(&mut queues[column], at, part);
        }
        queues.iter_mut().for_each(|queue| tally.end(queue));
        let queues = self.file.columns.iter().zip(queues);
        self.seats.extend(queues.map(|(column, queue)| column.leave(queue)));
        tally.into_lacking()
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        let seats = self.seats.drain(..).zip(&self.file.columns);
        seats.for_each(|(seat, column)| column.give_back(seat));
    }
}

/// Opens all of them side by side.
fn open_all(components: Vec<Opening>) -> Result<Vec<BulkFile>, BulkError> {
    let mut components = components.into_iter();
    let first = components.next();
    let opened = std::thread::scope(|scope| {
        let begin = |opening| scope.spawn(move || BulkFile::open(opening));
        let others: Vec<_> = components.map(begin).collect();
        let first = first.map(BulkFile::open);
        let others = others.into_iter().map(|other| {
            // One that has panicked goes on doing so here.
            other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        first.into_iter().chain(others).collect::<Vec<_>>()
    });
    opened.into_iter().collect()
}
