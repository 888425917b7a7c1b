//! `repair`: one repair of the name space, which whoever compared it with the drives asks for.

use nasd_xdr::xdr_enum;

use super::{FileHandle, Name, Operation, Procedure};
use crate::wire::{field_by_xdr, message};

/// The operation. Only the cell's administrators may ask for it. `NASDM_EXISTS` says that things are
/// not, or not any more, as the caller takes them to be; then nothing is done.
#[derive(Debug)]
pub enum Repair {}

impl Operation for Repair {
    const PROCEDURE: Procedure = Procedure::Repair;
    type Arguments = RepairArguments;
    type Reply = ();
}

xdr_enum! {
    /// What is to be done (`nasd_repair_action`).
    pub enum RepairAction {
        /// Nothing: only tell whether the manager knows why no name leads to the object.
        ExamineOrphan = 0,
        /// Remove the object, to which no name leads.
        RemoveOrphan = 1,
        /// Give the object, to which no name leads, that name in the directory.
        AdoptOrphan = 2,
        /// Remove the name in the directory: there is no object, or it is a directory that is at home
        /// elsewhere.
        RemoveName = 3,
        /// Set how many names the file has.
        SetLinks = 4,
        /// Set what `..` of the file, a directory, is: the directory.
        SetParent = 5,
    }
}

field_by_xdr!(RepairAction);

message! {
    /// One repair (`nasd_repair_arguments`).
    pub struct RepairArguments {
        /// What is repaired.
        pub file: FileHandle,
        /// How.
        pub action: RepairAction,
        /// The directory that the action names.
        pub directory: FileHandle,
        /// The name that it names.
        pub name: Name,
        /// The number of links that it sets.
        pub links: u32,
    }
}
