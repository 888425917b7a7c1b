//! A cell whose drives, managers and clients each have a host of their own.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Host, HostError, Link, Network, Process};

/// What a cell is made of.
#[derive(Debug, Clone)]
pub struct CellPlan {
    /// How many drives it has, apart from a virtual one.
    pub drives: u32,
    /// Further options of `nasd up`, as for striping, sizes and caches. With `--emulate-disk`, every drive has it.
    pub options: Vec<OsString>,
    /// Further options of `nasd drive serve`, as for slower devices.
    pub drive_options: Vec<OsString>,
    /// The link of each host.
    pub link: Link,
}

/// The option by which a drive is as slow as a disk.
const EMULATE_DISK: &str = "--emulate-disk";

/// Where spares listen.
const SPARE_PORT: u16 = 7390;

/// How a mount's data go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Straight between client and drives.
    Direct,
    /// Through the file manager, as through a server whose disks are its own.
    Manager,
}

/// A cell that runs. Its members end before its hosts go.
#[derive(Debug)]
pub struct HostedCell {
    program: PathBuf,
    directory: PathBuf,
    link: Link,
    drive_options: Vec<OsString>,
    mounts: Vec<Mounted>,
    managers: Vec<Process>,
    drives: Vec<Process>,
    drive_hosts: Vec<Host>,
    manager_host: Host,
    network: Network,
}

impl Route {
    /// The option of `nasd mount`.
    pub fn option(self) -> &'static str {
        match self {
            Route::Direct => "path=direct",
            Route::Manager => "path=manager",
        }
    }
}

/// A client's mount.
#[derive(Debug)]
struct Mounted {
    process: Process,
    at: PathBuf,
}

/// A drive, real or virtual, as `cell.toml` describes it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Described {
    index: String,
    address: String,
    device: String,
    cache: String,
    is_virtual: bool,
}

/// Further options of a cell's drives.
fn drive_options(plan: &CellPlan) -> Vec<OsString> {
    let disk = plan.options.iter().filter(|option| *option == EMULATE_DISK);
    disk.chain(&plan.drive_options).cloned().collect()
}

impl HostedCell {
    /// Makes a cell in a directory with a program `nasd`, and starts its members on their hosts: each drive on
    /// one, and the managers on one.
    ///
    /// # Errors
    /// What keeps hosts or members from starting.
    pub fn start(
        program: &Path,
        directory: &Path,
        plan: &CellPlan,
    ) -> Result<HostedCell, HostError> {
        let mut network = Network::new()?;
        let manager_host = network.host("manager", plan.link)?;
        let hosts =
            (1..=plan.drives).map(|number| network.host(&format!("drive{number}"), plan.link));
        let drive_hosts = hosts.collect::<Result<Vec<_>, _>>()?;
        create(program, &manager_host, directory, plan)?;
        let addresses: Vec<IpAddr> = drive_hosts.iter().map(Host::address).collect();
        let described =
            give_addresses(&directory.join("cell.toml"), manager_host.address(), &addresses)?;
        let mut cell = HostedCell {
            program: program.to_owned(),
            directory: directory.to_owned(),
            link: plan.link,
            drive_options: drive_options(plan),
            mounts: Vec::new(),
            managers: Vec::new(),
            drives: Vec::new(),
            drive_hosts,
            manager_host,
            network,
        };
        cell.start_members(&described, &[])?;
        Ok(cell)
    }

    /// Stops all drives and managers, and starts them again, drives with further options that hold for this start: nothing is in any
    /// memory of theirs then. Nothing should be mounted.
    ///
    /// # Errors
    /// The first member's that does not end well, or is not ready again.
    pub fn restart(&mut self, drive_options: &[&str]) -> Result<(), HostError> {
        let managers = self.managers.drain(..).rev();
        managers.chain(self.drives.drain(..)).try_for_each(Process::stop)?;
        let described = self.described()?;
        self.start_members(&described, drive_options)
    }

    /// The drives that the cell has by now.
    fn described(&self) -> Result<Vec<Described>, HostError> {
        let path = self.directory.join("cell.toml");
        let read = std::fs::read_to_string(&path).map_err(|error| error.to_string());
        read.and_then(|text| described(&text)).map_err(|reason| HostError::Cell { path, reason })
    }

    fn start_members(&mut self, drives: &[Described], options: &[&str]) -> Result<(), HostError> {
        for (number, drive) in drives.iter().filter(|drive| !drive.is_virtual).enumerate() {
            self.start_drive(drive, number, options)?;
        }
        for drive in drives.iter().filter(|drive| drive.is_virtual) {
            let arguments = ["striping", "serve", &drive.index, "--cell"];
            self.start_manager(&format!("striping-{}", drive.index), &arguments)?;
        }
        self.start_manager("manager", &["manager", "serve", "--cell"])
    }

    /// Starts a drive on the host of this number.
    fn start_drive(
        &mut self,
        drive: &Described,
        host: usize,
        options: &[&str],
    ) -> Result<(), HostError> {
        let name = format!("drive-{}", drive.index);
        let mut command = self.drive_hosts[host].command(&self.program);
        command.args(["drive", "serve"]).arg(self.directory.join(&drive.device));
        command.args(["--listen", &drive.address, "--cache", &drive.cache]);
        command.args(&self.drive_options).args(options);
        self.drives.push(Process::start(&name, &self.log(&name), command)?);
        Ok(())
    }

    fn start_manager(&mut self, name: &str, arguments: &[&str]) -> Result<(), HostError> {
        let mut command = self.manager_host.command(&self.program);
        command.args(arguments).arg(&self.directory);
        self.managers.push(Process::start(name, &self.log(name), command)?);
        Ok(())
    }

    fn log(&self, name: &str) -> PathBuf {
        self.directory.join(format!("log/{name}.log"))
    }

    /// The host of a drive, the first being 0.
    pub fn drive_host(&self, drive: usize) -> &Host {
        &self.drive_hosts[drive]
    }

    /// The host of the managers.
    pub fn manager_host(&self) -> &Host {
        &self.manager_host
    }

    /// A spare for the component drives of the cell, on a host of its own, with further options of `nasd drive add`.
    /// Its number, the first drive's being 0.
    ///
    /// # Errors
    /// What keeps the host or the drive from starting, or the cell from taking it.
    pub fn add_spare(&mut self, options: &[&str]) -> Result<usize, HostError> {
        let number = self.drive_hosts.len();
        let host = self.network.host(&format!("drive{}", number + 1), self.link)?;
        let address = SocketAddr::new(host.address(), SPARE_PORT).to_string();
        let mut add = self.command(&self.manager_host, &["drive", "add", "--spare", "--yes"]);
        add.args(["--address", &address]).args(options);
        finish(add)?;
        self.drive_hosts.push(host);
        let described = self.described()?;
        let spare = described.iter().find(|drive| drive.address == address);
        let spare = spare.ok_or_else(|| HostError::Cell {
            path: self.directory.join("cell.toml"),
            reason: format!("has no drive at {address}"),
        })?;
        self.start_drive(spare, number, &[])?;
        Ok(number)
    }

    /// A host that is none of the cell's, for a client.
    ///
    /// # Errors
    /// What the system says against it.
    pub fn client_host(&mut self, name: &str) -> Result<Host, HostError> {
        self.network.host(name, self.link)
    }

    /// Runs a command of the program for the cell, to its end, on the host of the managers.
    ///
    /// # Errors
    /// If it fails.
    pub fn administer(&self, arguments: &[&str]) -> Result<(), HostError> {
        finish(self.command(&self.manager_host, arguments))
    }

    /// The program on a host, with the arguments that it needs to find the cell still to be given.
    pub fn command(&self, host: &Host, arguments: &[&str]) -> Command {
        let mut command = host.command(&self.program);
        command.args(arguments).arg("--cell").arg(&self.directory);
        command
    }

    /// Mounts the cell's first volume on a host, at a path where all of the machine sees it.
    ///
    /// # Errors
    /// If it does not get ready.
    pub fn mount(&mut self, host: &Host, at: &Path, route: Route) -> Result<(), HostError> {
        self.mount_volume(host, at, None, route.option())
    }

    /// The same of any volume, or the first one if none is named, with options as `nasd mount -o` has them.
    ///
    /// # Errors
    /// If it does not get ready.
    pub fn mount_volume(
        &mut self,
        host: &Host,
        at: &Path,
        volume: Option<&str>,
        options: &str,
    ) -> Result<(), HostError> {
        let bad = |error: std::io::Error| HostError::Cell {
            path: at.to_owned(),
            reason: error.to_string(),
        };
        std::fs::create_dir_all(at).map_err(bad)?;
        let mut command = self.command(host, &["mount"]);
        command.arg(at).args(["-o", options]);
        command.args(volume.iter().flat_map(|volume| ["--volume", volume]));
        let name = format!("mount-{}", self.mounts.len());
        let process = Process::start(&name, &self.log(&name), command)?;
        self.mounts.push(Mounted { process, at: at.to_owned() });
        Ok(())
    }

    /// Takes a mount away; what was written through it is durable then.
    ///
    /// # Errors
    /// If it does not end well, as when something could not be made durable.
    pub fn unmount(&mut self, at: &Path) -> Result<(), HostError> {
        let found = self.mounts.iter().position(|mounted| mounted.at == at);
        let reason = "is no mount of this cell".to_owned();
        let found = found.ok_or(HostError::Cell { path: at.to_owned(), reason })?;
        self.mounts.remove(found).process.stop()
    }

    /// Processor time that the managers have taken, in seconds.
    pub fn manager_cpu_seconds(&self) -> Option<f64> {
        self.managers.iter().map(Process::cpu_seconds).sum()
    }

    /// Ends everything in order.
    ///
    /// # Errors
    /// The first member's that does not end well.
    pub fn stop(mut self) -> Result<(), HostError> {
        let mounts = self.mounts.drain(..).map(|mounted| mounted.process);
        let managers = self.managers.drain(..).rev();
        let drives = self.drives.drain(..);
        let ends: Vec<_> = mounts.chain(managers).chain(drives).map(Process::stop).collect();
        ends.into_iter().collect()
    }
}

/// Makes the cell, all of it on one host, and stops it again.
fn create(program: &Path, host: &Host, directory: &Path, plan: &CellPlan) -> Result<(), HostError> {
    let mut up = host.command(program);
    up.arg("up").arg(directory).args(["--detach", "--drives", &plan.drives.to_string()]);
    up.args(&plan.options);
    finish(up)?;
    let mut down = host.command(program);
    down.arg("down").arg(directory);
    finish(down)
}

/// Runs a command to its end.
fn finish(mut command: Command) -> Result<(), HostError> {
    let failed = |command: &Command, reason: String| HostError::Command {
        command: format!("{command:?}"),
        reason,
    };
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            Err(failed(&command, String::from_utf8_lossy(&output.stderr).trim().to_owned()))
        }
        Err(error) => Err(failed(&command, error.to_string())),
    }
}

/// What the part of `cell.toml` of each drive begins with.
const DRIVE: &str = "[[drive]]";

/// Writes into `cell.toml` where the members are now, and tells what drives there are.
fn give_addresses(
    file: &Path,
    manager: IpAddr,
    drives: &[IpAddr],
) -> Result<Vec<Described>, HostError> {
    let bad = |reason: String| HostError::Cell { path: file.to_owned(), reason };
    let text = std::fs::read_to_string(file).map_err(|error| bad(error.to_string()))?;
    let (text, described) = moved(&text, manager, drives).map_err(bad)?;
    std::fs::write(file, text).map_err(|error| bad(error.to_string()))?;
    Ok(described)
}

/// The text of `cell.toml` with other addresses: those of the drives in their order; the manager and virtual
/// drives are on its host. Ports stay.
fn moved(
    text: &str,
    manager: IpAddr,
    drives: &[IpAddr],
) -> Result<(String, Vec<Described>), String> {
    let mut parts = text.split(DRIVE);
    let mut written = vec![with_host(parts.next().unwrap_or_default(), manager)?];
    let mut hosts = drives.iter();
    for part in parts {
        let host = if is_virtual(part) { Some(&manager) } else { hosts.next() };
        written.push(with_host(part, *host.ok_or("it has more drives than hosts")?)?);
    }
    let text = written.join(DRIVE);
    let described = described(&text)?;
    Ok((text, described))
}

/// The drives that `cell.toml` describes.
fn described(text: &str) -> Result<Vec<Described>, String> {
    let describe = |part: &str| {
        Ok(Described {
            index: value(part, "index")?,
            address: value(part, "address")?,
            device: value(part, "device")?,
            cache: value(part, "cache_bytes")?,
            is_virtual: is_virtual(part),
        })
    };
    text.split(DRIVE).skip(1).map(describe).collect()
}

fn is_virtual(part: &str) -> bool {
    part.contains("[drive.stripe]")
}

/// A part of the file with another host in its address.
fn with_host(part: &str, host: IpAddr) -> Result<String, String> {
    let before = value(part, "address")?;
    let parsed: SocketAddr =
        before.parse().map_err(|_| format!("`{before}` is no address of a member"))?;
    let after = SocketAddr::new(host, parsed.port()).to_string();
    let line = |address: &str| format!("address = \"{address}\"");
    Ok(part.replace(&line(&before), &line(&after)))
}

/// What a part of the file says of a key.
fn value(part: &str, key: &str) -> Result<String, String> {
    let lines = part.lines().filter_map(|line| line.split_once(" = "));
    let found = lines.into_iter().find(|(name, _)| *name == key);
    let (_, value) = found.ok_or_else(|| format!("a member has no `{key}`"))?;
    Ok(value.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const TEXT: &str = "version = 1\n\n[manager]\naddress = \"127.0.0.1:7300\"\n\n\
        [[drive]]\nindex = 1\naddress = \"127.0.0.1:7301\"\ndevice = \"drives/drive-1.img\"\n\
        cache_bytes = 64\n\n[[drive]]\nindex = 2\naddress = \"127.0.0.1:7302\"\n\
        device = \"drives/striping-2.img\"\ncache_bytes = 32\n\n[drive.stripe]\nunit = 4096\n";

    #[test]
    fn members_move_to_their_hosts() {
        let (manager, drive) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let (text, described) = moved(TEXT, manager, &[drive]).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("address")).collect();
        let line = |address: &str| format!("address = \"{address}\"");
        assert_eq!(lines, [line("10.0.0.1:7300"), line("10.0.0.2:7301"), line("10.0.0.1:7302")]);
        assert_eq!(text.len(), TEXT.len() - 3 * "127.0.0.1".len() + 3 * "10.0.0.1".len());
        let [first, second] = &described[..] else { panic!("{described:?}") };
        assert_eq!((first.cache.as_str(), first.is_virtual), ("64", false));
        assert_eq!((second.index.as_str(), second.is_virtual), ("2", true));
        assert!(moved(TEXT, manager, &[]).is_err(), "a host is missing");
        assert!(moved("[manager]", manager, &[]).is_err(), "no address");
    }
}
