//! The striping manager: a virtual drive whose objects lie on many drives (CMU-CS-97-118 section 3.3).
//!
//! [`VirtualDrive`] is what `nasd_drive` serves in the place of an object store of its own. It knows which drives have
//! which components of an object, from the object's number alone; makes, removes and describes objects as a
//! whole; gives out maps with component capabilities, so that clients read and write the components
//! themselves; and moves data itself only for those who don't ask for a map. Why it is as it is:
//! docs/decisions/0013-striping.md.

mod alone;
mod append;
mod attributes;
mod batch;
mod components;
mod copy;
mod create;
mod data;
mod doubts;
mod elsewhere;
mod even;
mod giving;
mod giving_small;
mod join;
mod journal;
mod limping;
mod map;
mod members;
mod mend;
mod moves;
mod numbers;
pub mod own;
mod partitions;
mod place;
mod rebuild;
mod recent;
mod remote;
mod sparse;
mod state;
mod turns;
mod version;
mod virtual_drive;
mod writers;

pub use components::{
    Answer, Ask, ComponentError, ComponentPartition, Components, ReadComponent, Told,
};
pub use even::Tended;
pub use limping::Probe;
pub use members::Sign;
pub use moves::{Arrangement, Role};
pub use remote::{ComponentDrive, RemoteComponents};
pub use state::{Keeper, StateError};
pub use virtual_drive::{StartError, VirtualDrive, VirtualDriveOptions};
