//! A switch, and hosts that are joined to it by links of a set speed: network namespaces, pairs of virtual
//! Ethernet devices, a bridge, and token buckets on both ends of each link.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::HostError;

/// So that networks of one process do not have the same names.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Where `ip netns` keeps namespaces.
const NAMESPACES: &str = "/run/netns";
/// The bridge, in the switch's namespace.
const BRIDGE: &str = "br0";
/// A host's end of its link.
const DEVICE: &str = "eth0";

/// What joins a host to the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Each way; `None` for as fast as the machine can.
    pub bits_per_second: Option<u64>,
    /// Bytes of the largest packet: 1500 as of Ethernet, or 9000 as data centres have it.
    pub mtu: u32,
}

impl Link {
    /// A link of so many bits a second, with large packets.
    pub fn of(bits_per_second: u64) -> Link {
        Link { bits_per_second: Some(bits_per_second), mtu: 9000 }
    }
}

/// A switch and what it needs to join hosts to it. They go with it.
#[derive(Debug)]
pub struct Network {
    /// What the names of its namespaces begin with.
    prefix: String,
    hosts: u16,
}

/// A host: whatever runs on it sees this address and this link alone, and the machine's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    namespace: String,
    switch: String,
    port: String,
    address: Ipv4Addr,
}

impl Network {
    /// A switch without hosts.
    ///
    /// # Errors
    /// If the process may not make namespaces, or `ip` is missing.
    pub fn new() -> Result<Network, HostError> {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("nasd-{}-{count}", std::process::id());
        let network = Network { prefix, hosts: 0 };
        let switch = network.switch();
        run("ip", &["netns", "add", &switch])?;
        run("ip", &["-n", &switch, "link", "add", BRIDGE, "type", "bridge"])?;
        run("ip", &["-n", &switch, "link", "set", BRIDGE, "up"])?;
        Ok(network)
    }

    fn switch(&self) -> String {
        format!("{}-switch", self.prefix)
    }

    /// A new host.
    ///
    /// # Errors
    /// What the system says against it.
    pub fn host(&mut self, name: &str, link: Link) -> Result<Host, HostError> {
        self.hosts += 1;
        let [high, low] = self.hosts.to_be_bytes();
        let host = Host {
            namespace: format!("{}-{name}", self.prefix),
            switch: self.switch(),
            port: format!("port{}", self.hosts),
            address: Ipv4Addr::new(10, 77, high, low),
        };
        let Host { namespace, switch, port, address } = &host;
        let (address, mtu) = (format!("{address}/16"), link.mtu.to_string());
        run("ip", &["netns", "add", namespace])?;
        let pair = ["link", "add", port, "mtu", &mtu, "type", "veth"];
        let peer = ["peer", "name", DEVICE, "mtu", &mtu, "netns", namespace];
        run("ip", &[&["-n", switch], &pair[..], &peer[..]].concat())?;
        run("ip", &["-n", switch, "link", "set", port, "master", BRIDGE, "up"])?;
        run("ip", &["-n", namespace, "addr", "add", &address, "dev", DEVICE])?;
        run("ip", &["-n", namespace, "link", "set", DEVICE, "up"])?;
        run("ip", &["-n", namespace, "link", "set", "lo", "up"])?;
        host.limit(link.bits_per_second)?;
        Ok(host)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let Ok(there) = std::fs::read_dir(NAMESPACES) else {
            return;
        };
        let own = format!("{}-", self.prefix);
        for entry in there.flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with(&own) {
                // Devices go with the namespace, when the last process in it has ended.
                let _ = Command::new("ip").args(["netns", "del"]).arg(&name).status();
            }
        }
    }
}

impl Host {
    /// The address by which others reach it.
    pub fn address(&self) -> IpAddr {
        IpAddr::V4(self.address)
    }

    /// A program that will run on the host. Mounts that it makes are there for the whole machine, and it
    /// is told to end when the thread that starts it does.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "nsenter"]);
        command.arg(format!("--net={NAMESPACES}/{}", self.namespace)).arg(program);
        command
    }

    /// Gives the link another speed, in bits a second each way; `None` for as fast as the machine can.
    ///
    /// # Errors
    /// What the system says against it.
    pub fn limit(&self, bits_per_second: Option<u64>) -> Result<(), HostError> {
        for (namespace, device) in [(&self.namespace, DEVICE), (&self.switch, self.port.as_str())] {
            let Some(rate) = bits_per_second else {
                // There may be none.
                let _ = run("tc", &["-n", namespace, "qdisc", "del", "dev", device, "root"]);
                continue;
            };
            // What may go at once after a pause: 4 ms, and a whole segment of 64 KiB at least. What waits: as
            // much as the ports of small switches keep.
            let (rate, burst) = (format!("{rate}bit"), (rate / 8 / 250).max(128 << 10).to_string());
            let bucket = ["tbf", "rate", &rate, "burst", &burst, "limit", "2mb"];
            let place = ["-n", namespace, "qdisc", "replace", "dev", device, "root"];
            run("tc", &[&place[..], &bucket[..]].concat())?;
        }
        Ok(())
    }

    /// Pulls the cable.
    ///
    /// # Errors
    /// What the system says against it.
    pub fn cut(&self) -> Result<(), HostError> {
        run("ip", &["-n", &self.switch, "link", "set", &self.port, "down"])
    }

    /// Puts it in again.
    ///
    /// # Errors
    /// What the system says against it.
    pub fn join(&self) -> Result<(), HostError> {
        run("ip", &["-n", &self.switch, "link", "set", &self.port, "up"])
    }
}

/// Runs a program that says nothing unless it fails.
fn run(program: &str, arguments: &[&str]) -> Result<(), HostError> {
    let failed = |reason: String| HostError::Command {
        command: format!("{program} {}", arguments.join(" ")),
        reason,
    };
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}
