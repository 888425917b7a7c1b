//! The operations of the file manager on special files, extended attributes and access times.

use nasd_protocol::ManagerStatus;
use nasd_protocol::limits::{MAX_ACCESSED, MAX_XATTR_VALUE_BYTES};
use nasd_protocol::manager::{
    Accessed, AccessedArguments, Changed, Device, File, FileAccess, FileHandle, FileType, Getxattr,
    Listxattr, Mknod, MknodArguments, NewMode, Removexattr, Setxattr, SetxattrArguments,
    XattrArguments, XattrFlags,
};

use super::operations::checked;
use super::{Caller, ManagerClient};
use crate::ClientError;

/// Each of these fails with any [`ClientError`] but those of drives.
impl ManagerClient {
    /// Makes a named pipe, a socket's name, a device's, or a regular file.
    pub fn mknod(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        (file_type, device): (FileType, Device),
        mode: NewMode,
    ) -> Result<Changed<File>, ClientError> {
        let arguments = MknodArguments { directory, name: checked(name)?, file_type, mode, device };
        self.change::<Mknod>(caller, &arguments)
    }

    /// The value of an extended attribute.
    pub fn getxattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        name: &[u8],
    ) -> Result<Vec<u8>, ClientError> {
        let arguments = XattrArguments { file, name: checked(name)? };
        Ok(self.call::<Getxattr>(caller, &arguments)?.value)
    }

    /// Sets an extended attribute.
    pub fn setxattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<File, ClientError> {
        if value.len() > MAX_XATTR_VALUE_BYTES {
            return Err(ClientError::Manager(ManagerStatus::TooBig));
        }
        let arguments =
            SetxattrArguments { file, name: checked(name)?, flags, value: value.to_vec() };
        self.change::<Setxattr>(caller, &arguments)
    }

    /// The names of the extended attributes, each with a zero byte behind it.
    pub fn listxattr(&self, caller: &Caller, file: FileHandle) -> Result<Vec<u8>, ClientError> {
        Ok(self.call::<Listxattr>(caller, &file)?.names)
    }

    /// Removes an extended attribute.
    pub fn removexattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        name: &[u8],
    ) -> Result<File, ClientError> {
        let arguments = XattrArguments { file, name: checked(name)? };
        self.change::<Removexattr>(caller, &arguments)
    }

    /// Tells when files were read, so that their access times follow. Whatever of it the caller may not
    /// tell is passed over. All are of the volume with this root.
    pub fn accessed(
        &self,
        caller: &Caller,
        root: FileHandle,
        accessed: &[FileAccess],
    ) -> Result<(), ClientError> {
        for some in accessed.chunks(MAX_ACCESSED) {
            let arguments = AccessedArguments { root, accessed: some.to_vec() };
            self.call::<Accessed>(caller, &arguments)?;
        }
        Ok(())
    }
}
