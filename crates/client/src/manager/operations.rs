//! The operations of the file manager.

use std::time::Duration;

use nasd_protocol::ManagerStatus;
use nasd_protocol::limits::MAX_SYMLINK_BYTES;
use nasd_protocol::manager::{
    CellStatus, Changed, Commit, Create, CreateFileArguments, DirectoryPage, Enroll,
    EnrollArguments, Enrolled, File, FileHandle, FilePage, Getattr, HeldVolume, HoldVolume,
    HoldVolumeArguments, Link, LinkArguments, Lookup, LookupArguments, Member, MemberArguments,
    Mint, MintArguments, Minted, Mkdir, MkdirArguments, Mkmount, MkmountArguments, MovePart,
    MovePartArguments, Name, NewMode, Readdir, ReaddirArguments, Readdirplus, ReleaseVolume,
    ReleaseVolumeArguments, Reload, ReloadArguments, ReloadVolumes, Rename, RenameArguments,
    RenameFlags, Renew, RenewArguments, Repair, RepairArguments, Revoke, Rmdir, RmdirArguments,
    Rotate, RotateArguments, Rotation, SetFileArguments, SetFileAttributes, Setattr, Space,
    SpaceInformation, Statistics, StatisticsOperation, StatusOperation, Symlink, SymlinkArguments,
    Tmpfile, TmpfileArguments, Unlink, UnlinkArguments, Volume, VolumeList, VolumeOperation,
    VolumePartList, VolumeParts, Volumes,
};

use super::{Caller, ManagerClient};
use crate::ClientError;

/// Each of these fails with any [`ClientError`] but those of drives. Names are bytes without a
/// slash; one that is too long is refused here as the manager would refuse it.
impl ManagerClient {
    /// The volume's root, its drives, and the protection to use with them.
    pub fn volume(&self, caller: &Caller, name: &[u8]) -> Result<Volume, ClientError> {
        self.call::<VolumeOperation>(caller, &checked(name)?)
    }

    /// The file of that name.
    pub fn lookup(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<File, ClientError> {
        let arguments = LookupArguments { directory, name: checked(name)? };
        self.call::<Lookup>(caller, &arguments)
    }

    /// A file's attributes, and a capability for it.
    pub fn getattr(&self, caller: &Caller, file: FileHandle) -> Result<File, ClientError> {
        self.call::<Getattr>(caller, &file)
    }

    /// Changes a file's attributes.
    pub fn setattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        changes: &SetFileAttributes,
    ) -> Result<File, ClientError> {
        let arguments = SetFileArguments { file, changes: *changes };
        self.change::<Setattr>(caller, &arguments)
    }

    /// Makes a regular file; without `exclusive`, what has the name already is as good.
    pub fn create(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        mode: impl Into<NewMode>,
        exclusive: bool,
    ) -> Result<Changed<File>, ClientError> {
        let (name, mode) = (checked(name)?, mode.into());
        let arguments = CreateFileArguments { directory, name, mode, exclusive, stores: false };
        self.change::<Create>(caller, &arguments)
    }

    /// The same for who wants to store the file at once: where the volume has callbacks, that may have begun with it.
    pub fn create_to_store(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        mode: impl Into<NewMode>,
        exclusive: bool,
    ) -> Result<Changed<File>, ClientError> {
        let (name, mode) = (checked(name)?, mode.into());
        let arguments = CreateFileArguments { directory, name, mode, exclusive, stores: true };
        self.change::<Create>(caller, &arguments)
    }

    /// Makes a directory.
    pub fn mkdir(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        mode: impl Into<NewMode>,
    ) -> Result<Changed<File>, ClientError> {
        let (name, mode) = (checked(name)?, mode.into());
        let arguments = MkdirArguments { directory, name, mode };
        self.change::<Mkdir>(caller, &arguments)
    }

    /// Makes a symbolic link.
    pub fn symlink(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        target: &[u8],
    ) -> Result<Changed<File>, ClientError> {
        if target.len() > MAX_SYMLINK_BYTES {
            return Err(ClientError::Manager(ManagerStatus::NameTooLong));
        }
        let arguments =
            SymlinkArguments { directory, name: checked(name)?, target: target.to_vec() };
        self.change::<Symlink>(caller, &arguments)
    }

    /// Makes a name at which another volume is seen. `Manager(NotFound)` where the cell has no such volume.
    pub fn mkmount(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        volume: &[u8],
    ) -> Result<Changed<File>, ClientError> {
        let (name, volume) = (checked(name)?, checked(volume)?);
        self.change::<Mkmount>(caller, &MkmountArguments { directory, name, volume })
    }

    /// Makes a file without a name, as one of this directory's: it is there while the client's session has it
    /// open, or until it gets a name by [`ManagerClient::link`].
    pub fn tmpfile(
        &self,
        caller: &Caller,
        directory: FileHandle,
        mode: NewMode,
    ) -> Result<Changed<File>, ClientError> {
        self.change::<Tmpfile>(caller, &TmpfileArguments { directory, mode })
    }

    /// Removes a name that is not a directory's. The file that has it goes with its last name, or stays
    /// while it is open, also at this client if that is `open`.
    pub fn unlink(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        open: Option<FileHandle>,
    ) -> Result<Changed<()>, ClientError> {
        let arguments = UnlinkArguments { directory, name: checked(name)?, open };
        self.change::<Unlink>(caller, &arguments)
    }

    /// Removes an empty directory.
    pub fn rmdir(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<Changed<()>, ClientError> {
        let arguments = RmdirArguments { directory, name: checked(name)? };
        self.change::<Rmdir>(caller, &arguments)
    }

    /// Moves a name, over what has the new one unless the flags say otherwise.
    pub fn rename(
        &self,
        caller: &Caller,
        from: (FileHandle, &[u8]),
        to: (FileHandle, &[u8]),
        flags: RenameFlags,
        open: Option<FileHandle>,
    ) -> Result<Changed<()>, ClientError> {
        let arguments = RenameArguments {
            from_directory: from.0,
            from_name: checked(from.1)?,
            to_directory: to.0,
            to_name: checked(to.1)?,
            flags,
            open,
        };
        self.change::<Rename>(caller, &arguments)
    }

    /// Gives a file another name.
    pub fn link(
        &self,
        caller: &Caller,
        file: FileHandle,
        directory: FileHandle,
        name: &[u8],
    ) -> Result<Changed<File>, ClientError> {
        let arguments = LinkArguments { file, directory, name: checked(name)? };
        self.change::<Link>(caller, &arguments)
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
        self.call::<Readdir>(caller, &arguments)
    }

    /// Files of a directory after `cookie`, with all there is to know of them.
    pub fn readdirplus(
        &self,
        caller: &Caller,
        directory: FileHandle,
        cookie: u64,
        max_entries: u32,
    ) -> Result<FilePage, ClientError> {
        let arguments = ReaddirArguments { directory, cookie, max_entries };
        self.call::<Readdirplus>(caller, &arguments)
    }

    /// Makes durable what was changed in the volume that a file is of, by anybody and until now.
    pub fn commit(&self, caller: &Caller, file: FileHandle) -> Result<(), ClientError> {
        self.call::<Commit>(caller, &file)
    }

    /// Space of a volume.
    pub fn space(&self, caller: &Caller, volume: &[u8]) -> Result<SpaceInformation, ClientError> {
        self.call::<Space>(caller, &checked(volume)?)
    }

    /// A capability for a file that can be handed on: within what the caller may do.
    pub fn mint(&self, caller: &Caller, asked: &MintArguments) -> Result<Minted, ClientError> {
        self.call::<Mint>(caller, asked)
    }

    /// Makes every capability of a file useless, whoever holds it.
    pub fn revoke(&self, caller: &Caller, file: FileHandle) -> Result<(), ClientError> {
        self.call::<Revoke>(caller, &file)
    }

    /// Has the working keys of all drives changed; with `at_once` so that no capability given out
    /// before is good any more. For administrators alone, who speak for no user.
    pub fn rotate(&self, at_once: bool) -> Result<Rotation, ClientError> {
        let arguments = RotateArguments { at_once };
        self.call::<Rotate>(&Caller::ROOT, &arguments)
    }

    /// Has the manager read its ledger of members and its certificates anew, and with `revoke` make
    /// all capabilities given out before worthless. For administrators alone.
    pub fn reload(&self, revoke: bool) -> Result<Rotation, ClientError> {
        let arguments = ReloadArguments { revoke };
        self.call::<Reload>(&Caller::ROOT, &arguments)
    }

    /// Which volumes the cell has, its first one first.
    pub fn volumes(&self, caller: &Caller) -> Result<VolumeList, ClientError> {
        self.call::<Volumes>(caller, &())
    }

    /// What a volume has on each drive; the empty name is that of the cell's first.
    pub fn volume_parts(
        &self,
        caller: &Caller,
        volume: &Name,
    ) -> Result<VolumePartList, ClientError> {
        self.call::<VolumeParts>(caller, volume)
    }

    /// Has the manager read the cell's table of volumes anew: new ones are made and served when this
    /// is answered, those that went are not any more. For administrators alone.
    pub fn reload_volumes(&self) -> Result<VolumeList, ClientError> {
        self.call::<ReloadVolumes>(&Caller::ROOT, &())
    }

    /// Nothing changes in a volume until it is released, at most so long. For administrators alone. `ManagerStatus::Busy`
    /// where somebody is not done in time.
    pub fn hold_volume(&self, volume: &Name, most: Duration) -> Result<HeldVolume, ClientError> {
        let most_ns = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        let arguments = HoldVolumeArguments { volume: volume.clone(), most_ns };
        self.call::<HoldVolume>(&Caller::ROOT, &arguments)
    }

    /// A volume that was held goes on. For administrators alone. `ManagerStatus::Stale` where it has gone on before: then it was not held
    /// all the time.
    pub fn release_volume(&self, volume: &Name, held: HeldVolume) -> Result<(), ClientError> {
        let arguments = ReleaseVolumeArguments { volume: volume.clone(), ticket: held.ticket };
        self.call::<ReleaseVolume>(&Caller::ROOT, &arguments)
    }

    /// A part of a volume that is held is elsewhere from now on. For administrators alone. `ManagerStatus::Stale` where the volume is not held any
    /// more; then, and where anything else stands in the way, the part is where it was.
    pub fn move_part(&self, asked: &MovePartArguments) -> Result<(), ClientError> {
        self.call::<MovePart>(&Caller::ROOT, asked)
    }

    /// Repairs the name space in one place. For administrators alone. `ManagerStatus::Exists` where
    /// things are not as the caller takes them to be.
    pub fn repair(&self, asked: &RepairArguments) -> Result<(), ClientError> {
        self.call::<Repair>(&Caller::ROOT, asked)
    }

    /// Becomes a member of the cell, by a token's secret: the certificate is for that public key, a
    /// point of P-256. Needs no certificate. If the reply is lost, the token is used all the same.
    pub fn enroll(&self, secret: &[u8], public_key: &[u8]) -> Result<Enrolled, ClientError> {
        let arguments =
            EnrollArguments { secret: secret.to_vec(), public_key: public_key.to_vec() };
        self.use_up::<Enroll>(&Caller::ROOT, &arguments, ManagerStatus::Access)
    }

    /// A new certificate for that of this client, for that public key, a point of P-256. The
    /// old one stays good until its end.
    pub fn renew(&self, public_key: &[u8]) -> Result<Enrolled, ClientError> {
        let arguments = RenewArguments { public_key: public_key.to_vec() };
        self.call::<Renew>(&Caller::ROOT, &arguments)
    }

    /// Whether a certificate, by its serial number and common name, is that of a member who was not removed. By a host's
    /// certificate.
    pub fn is_member(&self, serial: &str, identity: &str) -> Result<bool, ClientError> {
        let (serial, identity) = (checked(serial.as_bytes())?, checked(identity.as_bytes())?);
        let arguments = MemberArguments { serial, identity };
        Ok(self.call::<Member>(&Caller::ROOT, &arguments)?.present)
    }

    /// What the manager has counted since its start. For administrators alone.
    pub fn statistics(&self) -> Result<Statistics, ClientError> {
        self.call::<StatisticsOperation>(&Caller::ROOT, &())
    }

    /// The state of the cell.
    pub fn status(&self, caller: &Caller) -> Result<CellStatus, ClientError> {
        self.call::<StatusOperation>(caller, &())
    }
}

pub(super) fn checked(name: &[u8]) -> Result<Name, ClientError> {
    Name::new(name).map_err(|_| ClientError::Manager(ManagerStatus::NameTooLong))
}
