//! The session calls of the file manager: what a client holds, and what it should know.

use nasd_protocol::manager::{
    Attach, AttachArguments, Attached, Closed, ClosedArguments, Detach, DetachArguments, Events,
    EventsArguments, EventsPage, Getcap, GetcapArguments, Getcaps, GetcapsArguments, Getwcap,
    GetwcapArguments, HeldLock, InTheWay, Lease, LeaseArguments, Lock, LockAnswer, LockArguments,
    Readable, Readables, Returncap, ReturncapArguments, Returned, TestLock, Unlock,
    UnlockArguments, Writable,
};

use super::{Caller, ManagerClient};
use crate::ClientError;

/// A session belongs to the client's certificate, whoever the caller is. All of these can be done
/// twice: whoever has a lock gets it again.
impl ManagerClient {
    /// Begins a session, or goes on with it at a manager that was started anew.
    pub fn attach(
        &self,
        caller: &Caller,
        arguments: &AttachArguments,
    ) -> Result<Attached, ClientError> {
        self.call::<Attach>(caller, arguments)
    }

    /// Ends a session, and with it all that it holds.
    pub fn detach(&self, caller: &Caller, client: u64) -> Result<(), ClientError> {
        self.call::<Detach>(caller, &DetachArguments { client })
    }

    /// Tells what was dealt with, and waits for what is next, for a third of the lease at most. It
    /// should go over a connection of its own.
    pub fn events(
        &self,
        caller: &Caller,
        arguments: &EventsArguments,
    ) -> Result<EventsPage, ClientError> {
        self.call::<Events>(caller, arguments)
    }

    /// Tells that removed files are not open any more.
    pub fn closed(&self, caller: &Caller, arguments: &ClosedArguments) -> Result<(), ClientError> {
        self.call::<Closed>(caller, arguments)
    }

    /// Whether what is told of a directory from now on may be believed.
    pub fn lease(&self, caller: &Caller, arguments: &LeaseArguments) -> Result<bool, ClientError> {
        Ok(self.call::<Lease>(caller, arguments)?.granted)
    }

    /// A file's attributes, a capability to read it, and a callback: of volumes of the personality `afs`, as the next three.
    pub fn get_capability(
        &self,
        caller: &Caller,
        arguments: &GetcapArguments,
    ) -> Result<Readable, ClientError> {
        self.call::<Getcap>(caller, arguments)
    }

    /// The same of a file, and of others that are probably wanted next.
    pub fn get_capabilities(
        &self,
        caller: &Caller,
        arguments: &GetcapsArguments,
    ) -> Result<Readables, ClientError> {
        self.call::<Getcaps>(caller, arguments)
    }

    /// A capability to write a file, until it is returned or its time is over. Nobody can read the file meanwhile.
    pub fn get_write_capability(
        &self,
        caller: &Caller,
        arguments: &GetwcapArguments,
    ) -> Result<Writable, ClientError> {
        self.call::<Getwcap>(caller, arguments)
    }

    /// A store is done: answered when all who held callbacks know.
    pub fn return_capability(
        &self,
        caller: &Caller,
        arguments: &ReturncapArguments,
    ) -> Result<Returned, ClientError> {
        self.call::<Returncap>(caller, arguments)
    }

    /// Takes a lock, or learns who has it.
    pub fn lock(
        &self,
        caller: &Caller,
        arguments: &LockArguments,
    ) -> Result<LockAnswer, ClientError> {
        self.call::<Lock>(caller, arguments)
    }

    /// Lets go of an owner's locks on some bytes, and of waiting for them.
    pub fn unlock(&self, caller: &Caller, arguments: &UnlockArguments) -> Result<(), ClientError> {
        self.call::<Unlock>(caller, arguments)
    }

    /// Who would be in the way of a lock.
    pub fn test_lock(
        &self,
        caller: &Caller,
        arguments: &LockArguments,
    ) -> Result<Option<HeldLock>, ClientError> {
        let InTheWay(other) = self.call::<TestLock>(caller, arguments)?;
        Ok(other)
    }
}
