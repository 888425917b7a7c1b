//! What the machine can do, measured with the tools that everybody trusts: `iperf3` for TCP on
//! loopback, `fio` for the device with O_DIRECT.

use crate::BenchError;
use serde_json::Value;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// Bytes that a disk limit moves.
const DISK_BYTES: u64 = 1 << 30;
/// How long the TCP limit runs.
const TCP_SECONDS: u32 = 3;

/// Limits that several rows share are measured once a run.
#[derive(Default)]
pub struct Limits {
    tcp: OnceLock<f64>,
    disk_write: OnceLock<f64>,
}

impl Limits {
    /// TCP on loopback, one connection, MB/s.
    ///
    /// # Errors
    /// As [`tcp_loopback`].
    pub fn tcp(&self) -> Result<f64, BenchError> {
        remember(&self.tcp, tcp_loopback)
    }

    /// Sequential 1 MiB O_DIRECT writes with a final fdatasync, MB/s.
    ///
    /// # Errors
    /// As [`disk_write`].
    pub fn disk_write(&self, directory: &Path) -> Result<f64, BenchError> {
        remember(&self.disk_write, || disk_write(directory))
    }
}

fn remember(
    cell: &OnceLock<f64>,
    measure: impl FnOnce() -> Result<f64, BenchError>,
) -> Result<f64, BenchError> {
    if let Some(value) = cell.get() {
        return Ok(*value);
    }
    let value = measure()?;
    Ok(*cell.get_or_init(|| value))
}

/// TCP on loopback, one connection, in MB/s, by `iperf3`.
///
/// # Errors
/// `MissingProgram` or `Program`.
pub fn tcp_loopback() -> Result<f64, BenchError> {
    const PROGRAM: &str = "iperf3";
    let failed = |reason: String| BenchError::Program { program: PROGRAM, reason };
    let port = free_port()?.to_string();
    let server = ["-s", "-1", "-B", "127.0.0.1", "-p", &port];
    let server = Command::new(PROGRAM)
        .args(server)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| spawn_error(PROGRAM, &error))?;
    let _server = KillOnDrop(server);
    let seconds = TCP_SECONDS.to_string();
    let client = ["-c", "127.0.0.1", "-p", &port, "-t", &seconds, "-J"];
    let mut last = String::new();
    for _ in 0..50 {
        let output = output_of(PROGRAM, &client)?;
        let report: Value =
            serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
        if let Some(bits) = report["end"]["sum_received"]["bits_per_second"].as_f64() {
            return Ok(bits / 8e6);
        }
        // The server may not be listening yet.
        last = report["error"].as_str().unwrap_or("no result in its report").to_owned();
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(failed(last))
}

/// Sequential 1 MiB O_DIRECT writes, eight in flight, with a final fdatasync, in MB/s, by `fio`.
///
/// # Errors
/// `MissingProgram` or `Program`.
pub fn disk_write(directory: &Path) -> Result<f64, BenchError> {
    fio(directory, "write")
}

/// Sequential 1 MiB O_DIRECT reads, eight in flight, in MB/s, by `fio`.
///
/// # Errors
/// `MissingProgram` or `Program`.
pub fn disk_read(directory: &Path) -> Result<f64, BenchError> {
    fio(directory, "read")
}

fn fio(directory: &Path, direction: &str) -> Result<f64, BenchError> {
    const PROGRAM: &str = "fio";
    let file = directory.join("fio-limit.bin");
    let arguments = [
        "--name=limit".to_owned(),
        format!("--filename={}", file.display()),
        format!("--rw={direction}"),
        "--bs=1M".to_owned(),
        format!("--size={DISK_BYTES}"),
        "--direct=1".to_owned(),
        "--ioengine=libaio".to_owned(),
        "--iodepth=8".to_owned(),
        "--end_fsync=1".to_owned(),
        "--output-format=json".to_owned(),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = output_of(PROGRAM, &arguments);
    let _ = std::fs::remove_file(&file);
    let output = output?;
    let failed = |reason: String| BenchError::Program { program: PROGRAM, reason };
    let report: Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))?;
    let bytes = report["jobs"][0][direction]["bw_bytes"].as_f64();
    bytes.map(|bytes| bytes / 1e6).ok_or_else(|| failed("no result in its report".to_owned()))
}

fn output_of(program: &'static str, arguments: &[&str]) -> Result<Output, BenchError> {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| spawn_error(program, &error))
}

fn spawn_error(program: &'static str, error: &std::io::Error) -> BenchError {
    match error.kind() {
        std::io::ErrorKind::NotFound => BenchError::MissingProgram { program },
        _ => BenchError::Program { program, reason: error.to_string() },
    }
}

fn free_port() -> Result<u16, BenchError> {
    let action = "can't find a free port";
    let io = |source| BenchError::Io { action, source };
    let listener = TcpListener::bind("127.0.0.1:0").map_err(io)?;
    Ok(listener.local_addr().map_err(io)?.port())
}

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
