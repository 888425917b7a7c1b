//! What a command prints that prints much, and what memory it took at the most.

use super::support::{TestCell, nasd};
use std::fs;
use std::io::Read;
use std::process::Stdio;

/// Standard output, and the largest memory in KiB while there was more to print.
pub fn output_and_memory(cell: &TestCell, arguments: &[&str]) -> (Vec<u8>, u64) {
    let mut command = nasd();
    command.args(arguments).arg("--cell").arg(cell.cell());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let (mut told, mut most) = (Vec::new(), 0);
    // A process with more to write than a pipe holds waits for its reader, so that it is there to be looked at.
    while out.by_ref().take(1 << 20).read_to_end(&mut told).unwrap() > 0 {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        most = most.max(kib.unwrap_or(0));
    }
    child.wait().unwrap();
    assert!(most > 0, "{arguments:?}: little was printed");
    (told, most)
}
