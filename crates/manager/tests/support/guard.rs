//! What no call may bring about: a look at each answer, and at a file that is root's alone.

use std::sync::Arc;

use nasd_manager::{Caller, Namespace};
use nasd_protocol::decode_result;
use nasd_protocol::manager::{
    File, FileAttributes, FileHandle, FileType, ManagerStatus, MintArguments, Minted, Procedure,
};
use nasd_rpc::{AuthSys, OpaqueAuth};
use nasd_transport::Identity;
use nasd_types::{ObjectId, Rights};
use nasd_xdr::{Decoder, from_bytes};

use crate::support::root;

/// What is closed to others.
const OTHERS: u32 = 0o077;

/// Watches over one file.
pub struct Guard {
    names: Arc<Namespace>,
    closed: FileHandle,
    /// As it was when last seen; `None` once root has opened it to others, or it is gone.
    seen: Option<FileAttributes>,
}

impl Guard {
    pub fn new(names: Arc<Namespace>, closed: FileHandle) -> Guard {
        let seen = None;
        let mut guard = Guard { names, closed, seen };
        guard.seen = guard.attributes();
        assert!(guard.seen.is_some(), "there is something to guard");
        guard
    }

    fn attributes(&self) -> Option<FileAttributes> {
        let found = self.names.getattr(&root(), self.closed).ok()?.attributes;
        (found.uid == 0 && found.mode & OTHERS == 0).then_some(found)
    }

    /// Looks at what was answered, and at what it has done.
    pub fn look(
        &mut self,
        procedure: Procedure,
        credential: &OpaqueAuth<'_>,
        identity: &Identity,
        arguments: &[u8],
        results: &[u8],
    ) {
        let caller = AuthSys::from_body(credential.body).ok();
        let caller = caller.and_then(|user| Caller::new(&user, identity).ok());
        let by_root = caller.is_some_and(|caller| caller.is_root());
        let is_done = results.is_empty() || results.starts_with(&[0; 4]);
        if is_done && !by_root {
            self.look_at_data(procedure, arguments);
        }
        if is_done {
            self.look_at_capability(procedure, arguments, results, by_root);
        }
        let before = self.seen.take();
        self.seen = self.attributes();
        if by_root || self.seen.is_none() {
            return;
        }
        if let (Some(before), Some(now)) = (before, &self.seen) {
            let kept = |file: &FileAttributes| (file.mode, file.uid, file.gid, file.size);
            assert_eq!(kept(now), kept(&before), "{procedure:?} by somebody else");
            assert_eq!(now.modify_time, before.modify_time, "{procedure:?} by somebody else");
        }
        let revoked = procedure == Procedure::Revoke && from_bytes(arguments) == Ok(self.closed);
        assert!(!(is_done && revoked), "revoked by somebody else");
    }

    /// Nobody else has its data by the way of the manager.
    fn look_at_data(&self, procedure: Procedure, arguments: &[u8]) {
        let of_data = matches!(
            procedure,
            Procedure::ForwardRead
                | Procedure::ForwardWrite
                | Procedure::ForwardAppend
                | Procedure::ForwardFlush
                | Procedure::ForwardPunch
                | Procedure::ForwardSeek
        );
        let file = arguments.get(..20).map(|handle| from_bytes::<FileHandle>(handle).unwrap());
        let is_closed = self.seen.is_some() && file == Some(self.closed);
        assert!(!(of_data && is_closed), "{procedure:?} by somebody else");
    }

    /// Nobody is given anything for what is the manager's own, nor names to write by himself, nor
    /// data that are closed to him.
    fn look_at_capability(
        &self,
        procedure: Procedure,
        arguments: &[u8],
        results: &[u8],
        by_root: bool,
    ) {
        let (handle, file_type, capability) = match procedure {
            Procedure::Lookup
            | Procedure::Getattr
            | Procedure::Setattr
            | Procedure::Create
            | Procedure::Mkdir
            | Procedure::Symlink
            | Procedure::Mkmount
            | Procedure::Link => {
                let file: File = reply(results);
                (file.handle, file.attributes.file_type, file.capability.capability)
            }
            Procedure::Mint => {
                let asked: MintArguments = from_bytes(arguments).unwrap();
                let minted: Minted = reply(results);
                let capability = minted.capability.capability;
                assert!(asked.rights.contains(capability.rights), "more than was asked for");
                assert!(asked.region().contains(&capability.region), "more than was asked for");
                (asked.file, FileType::Regular, capability)
            }
            _ => return,
        };
        assert_eq!((capability.drive, capability.object), (handle.drive, handle.object));
        assert_ne!(handle.object, ObjectId::FIRST_OBJECT, "{procedure:?} of the volume's record");
        let data = Rights::READ | Rights::WRITE;
        if file_type != FileType::Regular {
            assert!(!capability.rights.contains(Rights::WRITE), "{procedure:?}: {file_type:?}");
        }
        let is_closed = self.seen.is_some() && handle == self.closed && !by_root;
        assert!(!is_closed || !capability.rights.intersects(data), "{procedure:?}: {capability:?}");
    }
}

fn reply<T: nasd_xdr::XdrDecode>(results: &[u8]) -> T {
    decode_result::<T, ManagerStatus>(&mut Decoder::new(results)).unwrap().unwrap()
}
