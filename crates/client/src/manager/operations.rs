//! The operations of the file manager.

use nasd_protocol::ManagerStatus;
use nasd_protocol::limits::MAX_SYMLINK_BYTES;
use nasd_protocol::manager::{
    CellStatus, Create, CreateFileArguments, DirectoryPage, Enroll, EnrollArguments, Enrolled,
    File, FileHandle, Getattr, Link, LinkArguments, Lookup, LookupArguments, Mint, MintArguments,
    Minted, Mkdir, MkdirArguments, Name, NewMode, Readdir, ReaddirArguments, Reload,
    ReloadArguments, ReloadVolumes, Rename, RenameArguments, RenameFlags, Renew, RenewArguments,
    Repair, RepairArguments, Revoke, Rmdir, Rotate, RotateArguments, Rotation, SetFileArguments,
    SetFileAttributes, Setattr, Space, SpaceInformation, StatusOperation, Symlink,
    SymlinkArguments, Unlink, UnlinkArguments, Volume, VolumeList, VolumeOperation, VolumePartList,
    VolumeParts, Volumes,
};

use super::calls::Repeated;
use super::{Caller, ManagerClient};
use crate::ClientError;

/// Operations that make a name.
pub(super) const MAKES: Repeated = Repeated::Tells(&[ManagerStatus::Exists]);

/// What can be done once: a second execution finds it done.
const USES_UP: Repeated = Repeated::Tells(&[ManagerStatus::Access]);

/// Operations that remove a name.
const REMOVES: Repeated = Repeated::Tells(&[ManagerStatus::NotFound]);

/// Each of these fails with any [`ClientError`] but those of drives. Names are bytes without a
/// slash; one that is too long is refused here as the manager would refuse it.
impl ManagerClient {
    /// The volume's root, its drives, and the protection to use with them.
    pub fn volume(&self, caller: &Caller, name: &[u8]) -> Result<Volume, ClientError> {
        self.call::<VolumeOperation>(caller, &checked(name)?, Repeated::Harmless)
    }

    /// The file of that name.
    pub fn lookup(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<File, ClientError> {
        let arguments = LookupArguments { directory, name: checked(name)? };
        self.call::<Lookup>(caller, &arguments, Repeated::Harmless)
    }

    /// A file's attributes, and a capability for it.
    pub fn getattr(&self, caller: &Caller, file: FileHandle) -> Result<File, ClientError> {
        self.call::<Getattr>(caller, &file, Repeated::Harmless)
    }

    /// Changes a file's attributes.
    pub fn setattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        changes: &SetFileAttributes,
    ) -> Result<File, ClientError> {
        let arguments = SetFileArguments { file, changes: *changes };
        self.call::<Setattr>(caller, &arguments, Repeated::Harmless)
    }

    /// Makes a regular file; without `exclusive`, what has the name already is as good.
    pub fn create(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        mode: impl Into<NewMode>,
        exclusive: bool,
    ) -> Result<File, ClientError> {
        let (name, mode) = (checked(name)?, mode.into());
        let arguments = CreateFileArguments { directory, name, mode, exclusive };
        let repeated = if exclusive { MAKES } else { Repeated::Harmless };
        self.call::<Create>(caller, &arguments, repeated)
    }

    /// Makes a directory.
    pub fn mkdir(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        mode: impl Into<NewMode>,
    ) -> Result<File, ClientError> {
        let (name, mode) = (checked(name)?, mode.into());
        let arguments = MkdirArguments { directory, name, mode };
        self.call::<Mkdir>(caller, &arguments, MAKES)
    }

    /// Makes a symbolic link.
    pub fn symlink(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        target: &[u8],
    ) -> Result<File, ClientError> {
        if target.len() > MAX_SYMLINK_BYTES {
            return Err(ClientError::Manager(ManagerStatus::NameTooLong));
        }
        let arguments =
            SymlinkArguments { directory, name: checked(name)?, target: target.to_vec() };
        self.call::<Symlink>(caller, &arguments, MAKES)
    }

    /// Removes a name that is not a directory's.
    pub fn unlink(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<(), ClientError> {
        let arguments = UnlinkArguments { directory, name: checked(name)? };
        gone_is_done(self.call::<Unlink>(caller, &arguments, REMOVES))
    }

    /// Removes an empty directory.
    pub fn rmdir(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<(), ClientError> {
        let arguments = UnlinkArguments { directory, name: checked(name)? };
        gone_is_done(self.call::<Rmdir>(caller, &arguments, REMOVES))
    }

    /// Moves a name, over what has the new one unless the flags say otherwise. An exchange whose answer
    /// was lost is not asked for again: it fails with [`ClientError::Unreachable`], done or not.
    pub fn rename(
        &self,
        caller: &Caller,
        from: (FileHandle, &[u8]),
        to: (FileHandle, &[u8]),
        flags: RenameFlags,
    ) -> Result<(), ClientError> {
        let arguments = RenameArguments {
            from_directory: from.0,
            from_name: checked(from.1)?,
            to_directory: to.0,
            to_name: checked(to.1)?,
            flags,
        };
        const MOVES: Repeated = Repeated::Tells(&[ManagerStatus::NotFound, ManagerStatus::Exists]);
        let repeated = if flags.is_exchange() { Repeated::Undoes } else { MOVES };
        self.call::<Rename>(caller, &arguments, repeated)
    }

    /// Gives a file another name.
    pub fn link(
        &self,
        caller: &Caller,
        file: FileHandle,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<File, ClientError> {
        let arguments = LinkArguments { file, directory, name: checked(name)? };
        self.call::<Link>(caller, &arguments, MAKES)
    }

    /// Entries behind `cookie`, from the first for 0.
    pub fn readdir(
        &self,
        caller: &Caller,
        directory: FileHandle,
        cookie: u64,
        max_entries: u32,
    ) -> Result<DirectoryPage, ClientError> {
        let arguments = ReaddirArguments { directory, cookie, max_entries };
        self.call::<Readdir>(caller, &arguments, Repeated::Harmless)
    }

    /// Space of a volume.
    pub fn space(&self, caller: &Caller, volume: &[u8]) -> Result<SpaceInformation, ClientError> {
        self.call::<Space>(caller, &checked(volume)?, Repeated::Harmless)
    }

    /// A capability for a file that can be handed on: within what the caller may do.
    pub fn mint(&self, caller: &Caller, asked: &MintArguments) -> Result<Minted, ClientError> {
        self.call::<Mint>(caller, asked, Repeated::Harmless)
    }

    /// Makes every capability of a file useless, whoever holds it.
    pub fn revoke(&self, caller: &Caller, file: FileHandle) -> Result<(), ClientError> {
        self.call::<Revoke>(caller, &file, Repeated::Harmless)
    }

    /// Has the working keys of all drives changed; with `at_once` so that no capability given out
    /// before is good any more. For administrators alone, who speak for no user.
    pub fn rotate(&self, at_once: bool) -> Result<Rotation, ClientError> {
        let arguments = RotateArguments { at_once };
        self.call::<Rotate>(&Caller::ROOT, &arguments, Repeated::Harmless)
    }

    /// Has the manager read its ledger of members and its certificates anew, and with `revoke` make
    /// all capabilities given out before worthless. For administrators alone.
    pub fn reload(&self, revoke: bool) -> Result<Rotation, ClientError> {
        let arguments = ReloadArguments { revoke };
        self.call::<Reload>(&Caller::ROOT, &arguments, Repeated::Harmless)
    }

    /// Which volumes the cell has, its first one first.
    pub fn volumes(&self, caller: &Caller) -> Result<VolumeList, ClientError> {
        self.call::<Volumes>(caller, &(), Repeated::Harmless)
    }

    /// What a volume has on each drive; the empty name is that of the cell's first.
    pub fn volume_parts(
        &self,
        caller: &Caller,
        volume: &Name,
    ) -> Result<VolumePartList, ClientError> {
        self.call::<VolumeParts>(caller, volume, Repeated::Harmless)
    }

    /// Has the manager read the cell's table of volumes anew: new ones are made and served when this
    /// is answered, those that went are not any more. For administrators alone.
    pub fn reload_volumes(&self) -> Result<VolumeList, ClientError> {
        self.call::<ReloadVolumes>(&Caller::ROOT, &(), Repeated::Harmless)
    }

    /// Repairs the name space in one place. For administrators alone. `ManagerStatus::Exists` where
    /// things are not as the caller takes them to be.
    pub fn repair(&self, asked: &RepairArguments) -> Result<(), ClientError> {
        self.call::<Repair>(&Caller::ROOT, asked, Repeated::Harmless)
    }

    /// Becomes a member of the cell, by a token's secret: the certificate is for that public key, a
    /// point of P-256. Needs no certificate. If the reply is lost, the token is used all the same.
    pub fn enroll(&self, secret: &[u8], public_key: &[u8]) -> Result<Enrolled, ClientError> {
        let arguments =
            EnrollArguments { secret: secret.to_vec(), public_key: public_key.to_vec() };
        self.call::<Enroll>(&Caller::ROOT, &arguments, USES_UP)
    }

    /// A new certificate for that of this client, for that public key, a point of P-256. The
    /// old one stays good until its end.
    pub fn renew(&self, public_key: &[u8]) -> Result<Enrolled, ClientError> {
        let arguments = RenewArguments { public_key: public_key.to_vec() };
        self.call::<Renew>(&Caller::ROOT, &arguments, Repeated::Harmless)
    }

    /// The state of the cell.
    pub fn status(&self, caller: &Caller) -> Result<CellStatus, ClientError> {
        self.call::<StatusOperation>(caller, &(), Repeated::Harmless)
    }
}

pub(super) fn checked(name: &[u8]) -> Result<Name, ClientError> {
    Name::new(name).map_err(|_| ClientError::Manager(ManagerStatus::NameTooLong))
}

/// What was to be removed is not there: by an earlier try of the call, or by somebody else at the
/// same time. Either way it is gone.
fn gone_is_done(result: Result<(), ClientError>) -> Result<(), ClientError> {
    match result {
        Err(ClientError::Uncertain(ManagerStatus::NotFound)) => Ok(()),
        result => result,
    }
}
