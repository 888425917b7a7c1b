//! A scan: bytes come in whatever slices, whole records are found and run in batches, results leave
//! through buffers of whatever size. What belongs to records that cross a piece's ends is given back.

use crate::aggregate::Groups;
use crate::batch::{Batch, Bounds, Cut};
use crate::columnar::ColumnBatch;
use crate::compile::Outcome;
use crate::error::{Fault, ScanError};
use crate::evaluate::Machine;
use crate::format::Format;
use crate::output::Output;
use crate::plan::{Checked, Program};
use crate::row::Rows;
use crate::top::Top;

/// Bytes of a batch, unless one record takes more.
const BATCH_BYTES: usize = 64 << 10;

/// A contiguous range of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Whether a record is known to begin there. At offset 0 one always does, and of fixed records the
    /// offset alone tells.
    pub starts_record: bool,
    /// Whether the file ends where the piece does.
    pub ends_file: bool,
}

/// How far a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fed {
    /// Everything is taken.
    All,
    /// The output is full. The call is to be made again with an empty one; `feed` with the same bytes but
    /// the first `consumed`.
    Full {
        /// Bytes of the slice that were taken.
        consumed: usize,
    },
    /// The LIMIT is reached: nothing more of the file is needed.
    Done,
}

/// What was found in a piece. Its output is, in this order: the head, the rows, the tail.
///
/// The *head* is what is before the first record that is known to begin in the piece; the *tail* what is
/// behind the last one that ends in it. The tail of a piece and the head of the next are one record, unless
/// that record is longer than records may be: then a part of it is cut off, and flagged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Records that were looked at, bad ones too.
    pub records: u64,
    /// Those that WHERE selected.
    pub selected: u64,
    /// Those that are none: skipped.
    pub bad: u64,
    /// Bytes of the head in the output.
    pub head_bytes: u64,
    /// Whether the head is longer than a record may be; then only its first bytes are given.
    pub head_overlong: bool,
    /// Whether the piece is all head: no record is known to begin in it.
    pub all_head: bool,
    /// Bytes of rows in the output.
    pub row_bytes: u64,
    /// Where the tail begins in the file; the piece's end if there is none.
    pub tail_offset: u64,
    /// Bytes of the tail in the output.
    pub tail_bytes: u64,
    /// Whether the tail is longer than a record may be, or is a part of the header; then it is not given.
    pub tail_overlong: bool,
    /// Whether the LIMIT was reached. Neither tail nor what follows are then needed.
    pub done: bool,
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Of no piece.
    Outside,
    /// What is before the first record; of fixed records `left` bytes.
    Head {
        left: usize,
    },
    /// The file's first line.
    Header,
    Records,
    /// The rest of a record that is too long.
    Overlong,
    /// The LIMIT is reached.
    Done,
    /// The end of a piece: the carried bytes are its tail.
    Tail,
}

enum Task {
    /// How many records may still be given.
    Select {
        left: u64,
    },
    Aggregate(Box<Groups>),
    Top(Box<Top>),
}

/// A batch whose rows are not all written.
#[derive(Clone, Copy)]
struct Pending {
    /// Whether it is of the carried bytes.
    carried: bool,
    cut: Cut,
    /// The next row: its place in the selection.
    next: usize,
    /// How much of that was written.
    progress: usize,
    fault: Option<(usize, Fault)>,
}

/// The run of a plan over the pieces of a file.
pub struct Scan {
    checked: Checked,
    machine: Machine,
    bounds: Bounds,
    task: Task,
    longest: usize,
    /// Bytes of a fixed record; 0 for lines.
    size: usize,
    mode: Mode,
    piece: Piece,
    report: Report,
    /// Where the next bytes are in the file.
    position: u64,
    /// The beginning of a record whose end has not come.
    carry: Vec<u8>,
    /// Where it is in the file; also that of a record that is too long.
    carry_offset: u64,
    pending: Option<Pending>,
    /// What of the partial result was written.
    item: usize,
    progress: usize,
    failed: Option<ScanError>,
}

/// The most bytes of a record, those of a batch, and those of a fixed record.
fn sizes(checked: &Checked) -> (usize, usize, usize) {
    let longest = checked.plan().options.longest_record as usize;
    match &checked.plan().format {
        Format::Fixed(fixed) => (fixed.record_bytes(), 0, fixed.record_bytes()),
        _ => (longest, longest.max(BATCH_BYTES), 0),
    }
}

impl Scan {
    pub(crate) fn memory_bytes(checked: &Checked) -> usize {
        let (longest, scratch, _) = sizes(checked);
        let task = match &checked.plan().program {
            Program::Select(_) => 0,
            Program::Aggregate(program) => Groups::memory_bytes(checked, program),
            Program::Top(program) => Top::memory_bytes(checked, program),
        };
        size_of::<Scan>()
            + Machine::memory_bytes(checked.code(), scratch)
            + Bounds::MEMORY_BYTES
            + longest
            + task
    }

    pub(crate) fn new(checked: &Checked) -> Scan {
        let (longest, scratch, size) = sizes(checked);
        let task = match &checked.plan().program {
            Program::Select(select) => Task::Select { left: select.limit.unwrap_or(u64::MAX) },
            Program::Aggregate(program) => Task::Aggregate(Box::new(Groups::new(checked, program))),
            Program::Top(program) => Task::Top(Box::new(Top::new(checked, program))),
        };
        Scan {
            checked: checked.clone(),
            machine: Machine::new(checked.code(), scratch),
            bounds: Bounds::new(),
            task,
            longest,
            size,
            mode: Mode::Outside,
            piece: Piece::default(),
            report: Report::default(),
            position: 0,
            carry: Vec::with_capacity(longest),
            carry_offset: 0,
            pending: None,
            item: 0,
            progress: 0,
            failed: None,
        }
    }

    /// What was found in the piece so far; whole after `end_piece`.
    pub fn report(&self) -> Report {
        self.report
    }

    /// Begins a piece. Pieces come in the file's order, each is fed and ended.
    pub fn begin_piece(&mut self, piece: Piece) {
        if self.mode != Mode::Outside || self.pending.is_some() {
            let error = ScanError::Order("a piece begins before the last one ended");
            self.failed.get_or_insert(error);
            return;
        }
        if self.item > 0 || self.progress > 0 {
            self.failed.get_or_insert(ScanError::Order("a piece begins behind the result"));
            return;
        }
        self.piece = piece;
        self.report = Report { tail_offset: piece.offset, ..Report::default() };
        self.position = piece.offset;
        self.carry.clear();
        let header =
            matches!(&self.checked.plan().format, Format::Delimited(format) if format.header);
        self.mode = if matches!(self.task, Task::Select { left: 0 }) {
            self.report.done = true;
            Mode::Done
        } else if self.size > 0 {
            let size = self.size as u64;
            // Less than a record's bytes.
            match (size - piece.offset % size) % size {
                0 => Mode::Records,
                left => Mode::Head { left: left as usize },
            }
        } else if piece.offset == 0 {
            if header { Mode::Header } else { Mode::Records }
        } else if piece.starts_record {
            Mode::Records
        } else {
            Mode::Head { left: 0 }
        };
    }

    /// Takes the next bytes of the piece.
    ///
    /// # Errors
    ///
    /// See [`ScanError`]; the scan is over then, and every further call tells the same.
    pub fn feed(&mut self, bytes: &[u8], output: &mut Output<'_>) -> Result<Fed, ScanError> {
        self.guarded(|scan| scan.feed_all(bytes, output))
    }

    /// Takes the next records of the piece, which come as columns. Offsets count records then: those of pieces, of what is told and
    /// of errors. Of a batch that was not taken whole ([`Fed::Full`]) the same is fed again.
    ///
    /// # Errors
    ///
    /// As `feed`.
    pub fn feed_columns(
        &mut self,
        batch: &ColumnBatch,
        output: &mut Output<'_>,
    ) -> Result<Fed, ScanError> {
        self.guarded(|scan| scan.feed_batch(batch, output))
    }

    fn feed_batch(
        &mut self,
        batch: &ColumnBatch,
        output: &mut Output<'_>,
    ) -> Result<Fed, ScanError> {
        match self.mode {
            Mode::Done => return Ok(Fed::Done),
            Mode::Records if self.is_columns() => {}
            _ => return Err(ScanError::Order("columns where there are none")),
        }
        if self.pending.is_none() && batch.count() > 0 {
            let cut = self.bounds.cut_fixed(batch.count(), 1);
            self.start_batch(batch.text(), cut, false, Some(batch))?;
        }
        if !self.emit(batch.text(), output)? {
            return Ok(Fed::Full { consumed: 0 });
        }
        Ok(if self.mode == Mode::Done { Fed::Done } else { Fed::All })
    }

    fn is_columns(&self) -> bool {
        matches!(self.checked.plan().format, Format::Columns(_))
    }

    /// Ends the piece: afterwards [`report`](Self::report) is whole.
    ///
    /// # Errors
    ///
    /// As `feed`.
    pub fn end_piece(&mut self, output: &mut Output<'_>) -> Result<Fed, ScanError> {
        self.guarded(|scan| scan.end_all(output))
    }

    /// Ends the piece where `output` was told to be full, for who has no other one: what was begun and does not
    /// fit is taken back. Tells the byte of the file that the rest of the piece begins at, which is a
    /// piece of its own then; it is where this one began if nothing fits.
    ///
    /// # Errors
    ///
    /// [`ScanError::Order`] if nothing is left to be written, or something was written to another output before.
    pub fn end_early(&mut self, output: &mut Output<'_>) -> Result<u64, ScanError> {
        self.guarded(|scan| {
            let order = ScanError::Order("a piece ends early whose output is not full");
            let (position, begun) = match (scan.pending.take(), scan.mode) {
                (Some(pending), _) => (scan.take_back(pending), pending.progress),
                (None, Mode::Head { .. }) => {
                    scan.report.all_head = true;
                    (scan.position, 0)
                }
                (None, Mode::Tail) => {
                    let begun = std::mem::take(&mut scan.report.tail_bytes);
                    (scan.carry_offset, begun as usize)
                }
                (None, _) => return Err(order),
            };
            if !output.take_back(begun) {
                return Err(order);
            }
            scan.carry.clear();
            scan.mode = Mode::Outside;
            scan.report.tail_offset = position;
            Ok(position)
        })
    }

    /// Counts what was given of a batch; where the first record begins whose row was not.
    fn take_back(&mut self, pending: Pending) -> u64 {
        let first = if pending.carried { self.carry_offset } else { self.position };
        let next = usize::from(self.machine.selected().as_slice()[pending.next]);
        self.report.records += next as u64;
        self.report.bad += self.machine.bad_before(next) as u64;
        self.report.row_bytes -= pending.progress as u64;
        first + u64::from(self.bounds.starts[next])
    }

    /// How many bytes `finish` would write now.
    pub fn result_bytes(&self) -> usize {
        match &self.task {
            Task::Select { .. } => 0,
            Task::Aggregate(groups) => groups.result_bytes(),
            Task::Top(top) => top.result_bytes(),
        }
    }

    /// No less than these, at little cost.
    pub(crate) fn result_bound(&self) -> usize {
        match &self.task {
            Task::Select { .. } => 0,
            Task::Aggregate(groups) => groups.result_bound(),
            Task::Top(top) => top.result_bound(),
        }
    }

    /// Writes the partial result of an Aggregate or a Top, for [`Merge`](crate::Merge); nothing for a
    /// Select.
    ///
    /// # Errors
    ///
    /// As `feed`.
    pub fn finish(&mut self, output: &mut Output<'_>) -> Result<Fed, ScanError> {
        self.guarded(|scan| {
            if scan.mode != Mode::Outside {
                return Err(ScanError::Order("a scan ends in a piece"));
            }
            let Scan { task, item, progress, .. } = scan;
            let whole = match task {
                Task::Select { .. } => true,
                Task::Aggregate(groups) => groups.emit(output, item, progress),
                Task::Top(top) => {
                    if *item == 0 && *progress == 0 {
                        top.sort();
                    }
                    top.emit(output, item, progress)
                }
            };
            Ok(if whole { Fed::All } else { Fed::Full { consumed: 0 } })
        })
    }

    /// Says that the record under way is longer than records may be: what follows up to its end is passed
    /// over, and it is a bad one. For joining a tail or a head that is flagged so.
    ///
    /// # Errors
    ///
    /// [`ScanError::Order`] outside of a piece, and for fixed records.
    pub fn overlong(&mut self) -> Result<(), ScanError> {
        self.guarded(|scan| match scan.mode {
            Mode::Records if scan.size == 0 => {
                if scan.carry.is_empty() {
                    scan.carry_offset = scan.position;
                }
                scan.carry.clear();
                scan.mode = Mode::Overlong;
                Ok(())
            }
            Mode::Header | Mode::Overlong | Mode::Done => Ok(()),
            _ => Err(ScanError::Order("no record is under way")),
        })
    }

    /// The piece under way turns out to end with the file.
    pub(crate) fn piece_ends_file(&mut self) {
        self.piece.ends_file = true;
    }

    fn guarded<T>(
        &mut self,
        call: impl FnOnce(&mut Self) -> Result<T, ScanError>,
    ) -> Result<T, ScanError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = call(self);
        self.failed = result.as_ref().err().copied();
        result
    }

    fn feed_all(&mut self, bytes: &[u8], output: &mut Output<'_>) -> Result<Fed, ScanError> {
        if self.is_columns() {
            return Err(ScanError::Order("bytes where columns are"));
        }
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            if let Some(pending) = self.pending {
                let taken = if pending.carried { 0 } else { pending.cut.bytes };
                if rest.len() < taken {
                    return Err(ScanError::Order("other bytes than those that were left"));
                }
                if !self.emit(&rest[..taken], output)? {
                    return Ok(Fed::Full { consumed: at });
                }
                at += taken;
                continue;
            }
            match self.mode {
                Mode::Outside | Mode::Tail => {
                    return Err(ScanError::Order("bytes outside of a piece"));
                }
                Mode::Done => return Ok(Fed::Done),
                _ if rest.is_empty() => return Ok(Fed::All),
                Mode::Head { left } => {
                    let (taken, full) = self.head(rest, left, output);
                    at += taken;
                    if full {
                        return Ok(Fed::Full { consumed: at });
                    }
                }
                Mode::Header => at += self.pass_line(rest),
                Mode::Overlong => {
                    at += self.pass_line(rest);
                    if self.mode == Mode::Records {
                        self.count_bad()?;
                    }
                }
                Mode::Records if self.carry.is_empty() => at += self.records(rest)?,
                Mode::Records => at += self.carried(rest)?,
            }
        }
    }

    /// Gives out bytes of the head; tells how many were taken and whether the output is full.
    fn head(&mut self, bytes: &[u8], left: usize, output: &mut Output<'_>) -> (usize, bool) {
        let (end, ends) = if self.size > 0 {
            (left.min(bytes.len()), left <= bytes.len())
        } else {
            match memchr::memchr(b'\n', bytes) {
                Some(line_end) => (line_end + 1, true),
                None => (bytes.len(), false),
            }
        };
        let room = self.longest - self.report.head_bytes as usize;
        let kept = end.min(room);
        let written = output.put_some(&bytes[..kept]);
        self.report.head_bytes += written as u64;
        let full = written < kept;
        let taken = if full { written } else { end };
        self.report.head_overlong |= !full && kept < end;
        self.position += taken as u64;
        self.mode = match (full, ends) {
            (false, true) => Mode::Records,
            _ => Mode::Head { left: left.saturating_sub(taken) },
        };
        (taken, full)
    }

    /// Passes over bytes up to a line end, behind which records begin.
    fn pass_line(&mut self, bytes: &[u8]) -> usize {
        let taken = match memchr::memchr(b'\n', bytes) {
            Some(line_end) => {
                self.mode = Mode::Records;
                line_end + 1
            }
            None => bytes.len(),
        };
        self.position += taken as u64;
        taken
    }

    /// A record that is too long, or incomplete.
    fn count_bad(&mut self) -> Result<(), ScanError> {
        if self.checked.plan().options.strict {
            return Err(ScanError::Record { offset: self.carry_offset, fault: Fault::BadRecord });
        }
        self.report.records += 1;
        self.report.bad += 1;
        Ok(())
    }

    /// Finds records at the beginning of `bytes`: runs a batch of them, or carries the beginning of one.
    /// Tells how many bytes were taken; those of a batch that is pending are not.
    fn records(&mut self, bytes: &[u8]) -> Result<usize, ScanError> {
        let format = &self.checked.plan().format;
        let window = &bytes[..bytes.len().min(BATCH_BYTES.max(self.size))];
        let mut cut = if self.size > 0 {
            self.bounds.cut_fixed(window.len(), self.size)
        } else {
            self.bounds.cut_lines(window, format, self.longest)
        };
        if cut.bytes == 0 && self.size == 0 && bytes.len() > window.len() {
            let window = &bytes[..bytes.len().min(self.longest)];
            cut = self.bounds.cut_lines(window, format, self.longest);
        }
        if cut.count > 0 {
            self.start_batch(&bytes[..cut.bytes], cut, false, None)?;
            let taken = if self.pending.is_some() { 0 } else { cut.bytes };
            return Ok(taken);
        }
        if cut.bytes > 0 {
            // Blank lines.
            self.position += cut.bytes as u64;
            return Ok(cut.bytes);
        }
        self.carry_offset = self.position;
        if bytes.len() > self.longest {
            self.mode = Mode::Overlong;
            return Ok(0);
        }
        self.carry.extend_from_slice(bytes);
        self.position += bytes.len() as u64;
        Ok(bytes.len())
    }

    /// Carries on with a record whose beginning is carried; tells how many bytes were taken.
    fn carried(&mut self, bytes: &[u8]) -> Result<usize, ScanError> {
        let (taken, whole) = if self.size > 0 {
            let missing = self.size - self.carry.len();
            (missing.min(bytes.len()), missing <= bytes.len())
        } else {
            match memchr::memchr(b'\n', bytes) {
                Some(line_end) => (line_end + 1, true),
                None => (bytes.len(), false),
            }
        };
        if self.carry.len() + taken > self.longest {
            self.carry.clear();
            self.mode = Mode::Overlong;
            return Ok(0);
        }
        self.carry.extend_from_slice(&bytes[..taken]);
        self.position += taken as u64;
        if whole {
            let format = &self.checked.plan().format;
            let cut = if self.size > 0 {
                self.bounds.cut_fixed(self.carry.len(), self.size)
            } else {
                self.bounds.cut_lines(&self.carry, format, self.longest)
            };
            self.run_carried(cut)?;
        }
        Ok(taken)
    }

    fn run_carried(&mut self, cut: Cut) -> Result<(), ScanError> {
        if cut.count == 0 {
            self.carry.clear();
            return Ok(());
        }
        self.start_batch(&[], cut, true, None)
    }

    /// Evaluates a batch. Of a Select it is pending then, otherwise it is done.
    fn start_batch(
        &mut self,
        bytes: &[u8],
        cut: Cut,
        carried: bool,
        columns: Option<&ColumnBatch>,
    ) -> Result<(), ScanError> {
        let Scan { checked, machine, bounds, carry, task, .. } = self;
        let (plan, code) = (checked.plan(), checked.code());
        let offset = if carried { self.carry_offset } else { self.position };
        let bytes = if carried { carry.as_slice() } else { bytes };
        let batch = Batch { bytes, offset, count: cut.count, bounds, columns };
        let longest = cut.overlong.then_some(self.longest);
        let fault = machine.run(&plan.format, code, &batch, longest, plan.options.strict);
        match task {
            Task::Select { .. } => {
                self.pending = Some(Pending { carried, cut, next: 0, progress: 0, fault });
                return Ok(());
            }
            Task::Aggregate(groups) if fault.is_none() => {
                groups.update(machine, &batch, &code.outputs)?;
            }
            Task::Top(top) if fault.is_none() => {
                let projection = plan.program.projection().map(|_| &code.outputs[1..]);
                let rows = Rows { format: &plan.format, projection, machine, batch };
                top.update(machine, &batch, &code.outputs[0], &rows)?;
            }
            Task::Aggregate(_) | Task::Top(_) => {}
        }
        self.report.selected += self.machine.selected().len() as u64;
        self.complete(cut, carried, cut.count, fault)
    }

    /// Writes rows of the pending batch, which is `input` or is carried. Tells whether it is done.
    fn emit(&mut self, input: &[u8], output: &mut Output<'_>) -> Result<bool, ScanError> {
        let Scan { checked, machine, bounds, carry, task, pending, report, .. } = self;
        let (Some(pending), Task::Select { left }) = (pending, task) else {
            return Ok(true);
        };
        let (plan, code) = (checked.plan(), checked.code());
        let projection: Option<&[Outcome]> = plan.program.projection().map(|_| &code.outputs[..]);
        let bytes = if pending.carried { carry.as_slice() } else { input };
        let count = pending.cut.count;
        let batch = Batch { bytes, offset: 0, count, bounds, columns: None };
        let rows = Rows { format: &plan.format, projection, machine, batch };
        let selected = machine.selected().as_slice();
        let before = output.len();
        let full = loop {
            let rest = &selected[pending.next..];
            let rest = &rest[..rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX))];
            if rest.is_empty() {
                break false;
            }
            let written = match pending.progress {
                0 => rows.put_some(rest, output),
                _ => 0,
            };
            let index = usize::from(rest[0]);
            let written = if written > 0 {
                written
            } else if output.item(&mut pending.progress, |part| rows.put(index, part)) {
                1
            } else {
                break true;
            };
            pending.next += written;
            *left -= written as u64;
            report.selected += written as u64;
        };
        report.row_bytes += (output.len() - before) as u64;
        if full {
            return Ok(false);
        }
        let Pending { carried, cut, next, fault, .. } = *pending;
        let done = *left == 0;
        let seen = match next.checked_sub(1) {
            Some(last) if done => usize::from(selected[last]) + 1,
            _ => count,
        };
        self.pending = None;
        self.complete(cut, carried, seen, if done { None } else { fault })?;
        if done {
            self.report.done = true;
            self.mode = Mode::Done;
        }
        Ok(true)
    }

    /// Counts a batch of which `seen` records were looked at.
    fn complete(
        &mut self,
        cut: Cut,
        carried: bool,
        seen: usize,
        fault: Option<(usize, Fault)>,
    ) -> Result<(), ScanError> {
        let first = if carried { self.carry_offset } else { self.position };
        if let Some((index, fault)) = fault {
            let offset = first + u64::from(self.bounds.starts[index]);
            return Err(match self.is_columns() {
                true => ScanError::Row { number: offset, fault },
                false => ScanError::Record { offset, fault },
            });
        }
        self.report.records += seen as u64;
        self.report.bad += self.machine.bad_before(seen) as u64;
        if carried {
            self.carry.clear();
        } else {
            self.position += cut.bytes as u64;
        }
        Ok(())
    }

    fn end_all(&mut self, output: &mut Output<'_>) -> Result<Fed, ScanError> {
        loop {
            if let Some(pending) = self.pending {
                if !pending.carried {
                    return Err(ScanError::Order("a piece ends before its bytes are taken"));
                }
                if !self.emit(&[], output)? {
                    return Ok(Fed::Full { consumed: 0 });
                }
                continue;
            }
            let ends_file = self.piece.ends_file;
            match self.mode {
                Mode::Outside => return Err(ScanError::Order("no piece has begun")),
                Mode::Done => {
                    self.mode = Mode::Outside;
                    return Ok(Fed::Done);
                }
                Mode::Head { .. } => {
                    self.report.all_head = true;
                    break;
                }
                Mode::Header | Mode::Overlong if !ends_file => {
                    self.report.tail_overlong = true;
                    let header = self.mode == Mode::Header;
                    self.report.tail_offset = if header { 0 } else { self.carry_offset };
                    self.mode = Mode::Outside;
                    return Ok(Fed::All);
                }
                Mode::Header => break,
                Mode::Overlong => {
                    self.count_bad()?;
                    break;
                }
                Mode::Records if self.carry.is_empty() => break,
                Mode::Records if !ends_file => {
                    self.report.tail_offset = self.carry_offset;
                    self.mode = Mode::Tail;
                }
                Mode::Records if self.size > 0 => {
                    self.count_bad()?;
                    break;
                }
                Mode::Records => {
                    let format = &self.checked.plan().format;
                    let cut = self.bounds.cut_last_line(&self.carry, format);
                    self.run_carried(cut)?;
                }
                Mode::Tail => {
                    let written = output.put_some(&self.carry[self.report.tail_bytes as usize..]);
                    self.report.tail_bytes += written as u64;
                    if (self.report.tail_bytes as usize) < self.carry.len() {
                        return Ok(Fed::Full { consumed: 0 });
                    }
                    self.mode = Mode::Outside;
                    return Ok(Fed::All);
                }
            }
        }
        self.report.tail_offset = self.position;
        self.mode = Mode::Outside;
        Ok(Fed::All)
    }
}
