//! Operations by paths, as root.

use nasd_manager::namespace::Node;
use nasd_manager::{Caller, Namespace};
use nasd_protocol::manager::{
    Device, FileType, ManagerStatus, RenameFlags, SetFileAttributes, XattrFlags,
};

use super::{Random, place, root, walk};

/// An operation by paths.
#[derive(Clone, Debug)]
pub enum Op {
    Create { path: String, exclusive: bool },
    Mkdir(String),
    Symlink { path: String, target: String },
    Mkmount { path: String, volume: String },
    Unlink(String),
    Rmdir(String),
    Link { from: String, to: String },
    Rename { from: String, to: String, no_replace: bool },
    Exchange { from: String, to: String },
    Mknod(String),
    Setxattr { path: String, name: u8, bytes: usize },
    Chmod(String, u32),
}

impl Op {
    /// Any operation on paths that `path` makes up.
    pub fn random(random: &mut Random, path: impl Fn(&mut Random) -> String) -> Op {
        let (one, other) = (path(random), path(random));
        match random.below(17) {
            0..=2 => Op::Create { path: one, exclusive: random.below(2) == 0 },
            3 | 4 => Op::Mkdir(one),
            5 => Op::Symlink { path: one, target: other },
            6 => Op::Unlink(one),
            7 => Op::Rmdir(one),
            8 => Op::Link { from: one, to: other },
            9 => Op::Mknod(one),
            10 | 11 => Op::Exchange { from: one, to: other },
            12 => {
                // Few go into the record together.
                let (name, bytes) = (random.below(3) as u8, *random.pick(&[0, 20, 60, 3000]));
                Op::Setxattr { path: one, name, bytes }
            }
            13 => Op::Mkmount { path: one, volume: "other".to_owned() },
            _ => Op::Rename { from: one, to: other, no_replace: random.below(4) == 0 },
        }
    }

    pub fn rename(from: &str, to: &str) -> Op {
        Op::Rename { from: from.to_owned(), to: to.to_owned(), no_replace: false }
    }

    pub fn run(&self, namespace: &Namespace) -> Result<(), ManagerStatus> {
        self.run_by(namespace, &root())
    }

    /// The same by a caller that may say which of its requests it is.
    pub fn run_by(&self, namespace: &Namespace, caller: &Caller) -> Result<(), ManagerStatus> {
        match self {
            Op::Create { path, exclusive } => {
                let (directory, name) = place(namespace, path)?;
                namespace.create(caller, directory, name, 0o644, *exclusive).map(|_| ())
            }
            Op::Mkdir(path) => {
                let (directory, name) = place(namespace, path)?;
                namespace.mkdir(caller, directory, name, 0o755).map(|_| ())
            }
            Op::Symlink { path, target } => {
                let (directory, name) = place(namespace, path)?;
                namespace.symlink(caller, directory, name, target.as_bytes()).map(|_| ())
            }
            Op::Mkmount { path, volume } => {
                let (directory, name) = place(namespace, path)?;
                namespace.mkmount(caller, directory, name, volume.as_bytes()).map(|_| ())
            }
            Op::Unlink(path) => {
                let (directory, name) = place(namespace, path)?;
                namespace.unlink(caller, directory, name)
            }
            Op::Rmdir(path) => {
                let (directory, name) = place(namespace, path)?;
                namespace.rmdir(caller, directory, name)
            }
            Op::Link { from, to } => {
                let file = walk(namespace, from).ok_or(ManagerStatus::NotFound)?.handle;
                let (directory, name) = place(namespace, to)?;
                namespace.link(caller, file, directory, name).map(|_| ())
            }
            Op::Rename { from, to, no_replace } => {
                let flags = if *no_replace { RenameFlags::NO_REPLACE } else { RenameFlags::NONE };
                let (from, to) = (place(namespace, from)?, place(namespace, to)?);
                namespace.rename(caller, from, to, flags)
            }
            Op::Exchange { from, to } => {
                let (from, to) = (place(namespace, from)?, place(namespace, to)?);
                namespace.rename(caller, from, to, RenameFlags::EXCHANGE)
            }
            Op::Mknod(path) => {
                let (directory, name) = place(namespace, path)?;
                let (file_type, mode) = (FileType::Fifo, 0o644.into());
                let node = Node { file_type, mode, device: Device::NONE };
                namespace.mknod(caller, directory, name, node).map(|_| ())
            }
            Op::Setxattr { path, name, bytes } => {
                let file = walk(namespace, path).ok_or(ManagerStatus::NotFound)?.handle;
                let (name, value) = (format!("trusted.{name}"), vec![*name; *bytes]);
                let flags = XattrFlags::NONE;
                namespace.setxattr(caller, file, name.as_bytes(), &value, flags).map(|_| ())
            }
            Op::Chmod(path, mode) => {
                let file = walk(namespace, path).ok_or(ManagerStatus::NotFound)?.handle;
                let changes = SetFileAttributes { mode: Some(*mode), ..Default::default() };
                namespace.setattr(caller, file, &changes).map(|_| ())
            }
        }
    }
}
