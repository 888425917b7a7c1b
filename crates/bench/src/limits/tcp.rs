//! TCP on loopback, by `iperf3`.

use std::time::Duration;

use serde_json::Value;

use super::{free_port, output_of, start};
use crate::BenchError;

const PROGRAM: &str = "iperf3";

/// How long the limit runs where it is measured once.
const SECONDS: u32 = 3;

/// TCP on loopback, one connection, in MB/s.
///
/// # Errors
/// `MissingProgram` or `Program`.
pub fn tcp_loopback() -> Result<f64, BenchError> {
    tcp_streams(1, SECONDS)
}

/// TCP on loopback, so many connections together, in MB/s.
pub(crate) fn tcp_streams(streams: usize, seconds: u32) -> Result<f64, BenchError> {
    let failed = |reason: String| BenchError::Program { program: PROGRAM, reason };
    let port = free_port()?.to_string();
    let _server = start(PROGRAM, &["-s", "-1", "-B", "127.0.0.1", "-p", &port])?;
    let (streams, seconds) = (streams.to_string(), seconds.to_string());
    let client = ["-c", "127.0.0.1", "-p", &port, "-t", &seconds, "-P", &streams, "-J"];
    let mut last = String::new();
    for _ in 0..100 {
        let output = output_of(PROGRAM, &client)?;
        let report: Value =
            serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
        if let Some(bits) = report["end"]["sum_received"]["bits_per_second"].as_f64() {
            return Ok(bits / 8e6);
        }
        // The server may not be listening yet.
        last = report["error"].as_str().unwrap_or("no result in its report").to_owned();
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(failed(last))
}
