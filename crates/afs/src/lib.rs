//! The rules of the `afs` personality: who may do what in a directory, who may believe his copy of a file, when a store is done, and who may extend a file by how
//! much (CMU-CS-97-118, section 3.2). Pure: no sockets, no clock, no randomness.

pub mod acl;
pub mod callbacks;
pub mod escrow;
