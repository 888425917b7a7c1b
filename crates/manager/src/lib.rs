//! The file manager: names, policy and capabilities over objects of drives.
//!
//! File data does not pass here: clients take the capabilities in the answers to the drives
//! (CMU-CS-97-118, sections 3 and 3.1), unless they ask for it to be forwarded. All durable state is
//! on the drives; a manager that dies is started anew, anywhere, and loses nothing that it has answered.
//!
//! * [`ManagerServer`], [`ManagerConfig`]: a manager that serves; [`ManagerService`] is one without a
//!   socket;
//! * [`namespace`]: the operations, over any [`objects::ObjectStore`];
//! * [`permission`], [`acl`], [`caller`]: who may do what, on whose behalf;
//! * [`directory`], [`file_record`], [`xattr`], [`volume`], [`journal`]: the formats on the drives, which
//!   `docs/directory-format.md` describes;
//! * [`mint`]: the capabilities; [`keys`]: what they are made with.

pub mod acl;
mod administration;
pub mod adopt;
mod callback_service;
pub mod caller;
mod changes;
pub mod config;
pub mod directory;
#[cfg(test)]
mod document;
pub mod file_record;
mod forward;
mod governing;
mod holding;
pub mod journal;
pub mod keys;
mod locks;
mod lru;
mod measures;
pub mod membership;
pub mod mint;
pub mod namespace;
pub mod objects;
pub mod permission;
mod placement;
mod refusals;
mod rotation;
mod server;
pub mod service;
mod session_service;
pub mod sessions;
mod standstill;
pub mod volume;
mod volumes;
pub mod xattr;

use nasd_directory::{bytes, handle};

pub use caller::Caller;
pub use config::{ConfigError, DriveConfig, ManagerConfig, TableError, VolumeConfig, VolumeTable};
pub use forward::{ForwardedData, Lent};
pub use namespace::{Namespace, NamespaceOptions, Outcome, RootOptions, StartError};
pub use server::{Chores, ManagerServer, ServerError};
pub use service::ManagerService;
