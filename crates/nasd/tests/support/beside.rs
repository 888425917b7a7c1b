//! Another mount of a test's cell, beside the one that the cell has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{TestCell, nasd, wait_until};

/// A second mount of the cell's volume, served by a process of its own.
pub struct Beside {
    /// Where it is mounted.
    pub at: PathBuf,
    process: Child,
}

impl Beside {
    /// Mounts it, and waits until it is there.
    pub fn mount(cell: &TestCell) -> Beside {
        Beside::mount_as(cell, "beside", &[])
    }

    /// The same by another name, and with more arguments.
    pub fn mount_as(cell: &TestCell, name: &str, arguments: &[&str]) -> Beside {
        let at = cell.directory.path().join(name);
        fs::create_dir_all(&at).unwrap();
        let mut command = nasd();
        command.arg("--cell").arg(cell.cell()).arg("mount").arg(&at).args(arguments);
        let log = fs::File::create(at.with_extension("log")).unwrap();
        let process = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let beside = Beside { at, process };
        wait_until("the second mount", || is_mounted(&beside.at));
        beside
    }

    /// Kills its process.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.at.with_extension("log")).unwrap_or_default();
            eprintln!("--- {}\n{log}", self.at.display());
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = Command::new("umount").arg("-l").arg(&self.at).stderr(Stdio::null()).status();
    }
}

fn is_mounted(at: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == at.to_str())
}
