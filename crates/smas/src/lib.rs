//! SMAS's interface (seed paper section 3.1): files of a cell that can be read, written and sought in, and that can be had
//! record by record of what a filter selects, which runs at the drives.
//!
//! ```no_run
//! use smas::{Access, Field, Filter, SmasFile};
//!
//! # fn main() -> Result<(), smas::SmasError> {
//! let mut file = SmasFile::open("main:/pub/testfile", Access::READ)?;
//! file.record_struct(&[Field::int(4)?, Field::text(96)?])?;
//! file.use_filter(&Filter::sql("SELECT * FROM testfile WHERE f1 > 10"))?;
//! while let Some(record) = file.next_record()? {
//!     println!("{} bytes", record.len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Where a drive can't run the filter, or the answer would be all the data, the bytes are read and filtered here, with the
//! same result. C programs find the same with the paper's names in `include/smas.h`.

mod answers;
mod c;
mod columns;
mod conditions;
mod error;
mod file;
mod filter;

pub use conditions::{Condition, Junction, Operand};
pub use error::SmasError;
pub use file::{Access, Field, SmasFile};
pub use filter::Filter;
