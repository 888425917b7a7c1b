//! Block devices behind one trait: raw device or file, memory, and faulty; aligned buffers.
//!
//! The object store knows its medium only through [`BlockDevice`], so that the same code runs on a
//! real disk ([`FileDevice`]), in memory ([`MemoryDevice`]) and on a medium that loses power or
//! goes bad at a chosen moment ([`FaultyDevice`]). Memory that is fit for direct I/O, and for
//! sending to a socket without a copy, comes from a [`FramePool`].

mod align;
mod arm;
mod device;
mod error;
mod faulty;
mod file;
mod frame;
mod image;
mod limping;
mod memory;
mod rated;
mod read_queue;
mod ring;
mod ring_reads;
mod seek_reads;
mod seeking;
mod transfer;

pub use align::AlignedBuffer;
pub use device::{BlockDevice, Meanwhile, ReadRequest, WriteRequest};
pub use error::DeviceError;
pub use faulty::{FailedSync, FaultPlan, FaultyDevice, Tearing};
pub use file::{FileDevice, FileOptions, Queue};
pub use frame::{FRAME_BYTES, Frame, FramePool, zeros};
pub use image::Image;
pub use limping::LimpingDevice;
pub use memory::MemoryDevice;
pub use rated::RatedDevice;
pub use read_queue::{FrameRead, ReadEnd, ReadPart, ReadQueue};
pub use seeking::{SeekModel, SeekStatistics, SeekingDevice};

/// The unit in which media are written, in bytes: every offset and length is a multiple of it.
pub const SECTOR_BYTES: usize = 4096;
