//! Small requests: `redis-benchmark` against a server of its own, without persistence.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use super::{KillOnDrop, free_port, output_of, start};
use crate::BenchError;

const SERVER: &str = "redis-server";
const BENCHMARK: &str = "redis-benchmark";

/// How long the server may take to listen.
const START_PATIENCE: Duration = Duration::from_secs(5);

/// A server that holds `keys` values of `bytes` bytes; stopped when dropped.
#[derive(Debug)]
pub(crate) struct Redis {
    _server: KillOnDrop,
    port: String,
    keys: String,
    bytes: String,
}

impl Redis {
    /// Starts a server, whose directory is `directory` but which keeps nothing there.
    pub(crate) fn start(directory: &Path, keys: usize, bytes: usize) -> Result<Redis, BenchError> {
        let port = free_port()?;
        let directory = directory.display().to_string();
        let server = start(
            SERVER,
            &[
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
                "--daemonize",
                "no",
                "--dir",
                &directory,
            ],
        )?;
        wait_until_it_listens(port)?;
        let redis = Redis {
            _server: server,
            port: port.to_string(),
            keys: keys.to_string(),
            bytes: bytes.to_string(),
        };
        // Each key is drawn at random: that some are left out is rare enough not to matter.
        redis.run("set", 50, keys * 20)?;
        Ok(redis)
    }

    /// GETs of values a second, sixteen in flight on each connection.
    pub(crate) fn gets(&self, connections: usize, requests: usize) -> Result<f64, BenchError> {
        self.run("get", connections, requests)
    }

    fn run(&self, test: &str, connections: usize, requests: usize) -> Result<f64, BenchError> {
        let (connections, requests) = (connections.to_string(), requests.to_string());
        let output = output_of(
            BENCHMARK,
            &[
                "-p",
                &self.port,
                "-t",
                test,
                "-r",
                &self.keys,
                "-d",
                &self.bytes,
                "-P",
                "16",
                "-c",
                &connections,
                "-n",
                &requests,
                "--csv",
            ],
        )?;
        let text = String::from_utf8_lossy(&output.stdout);
        rate_of(&text, test).ok_or_else(|| BenchError::Program {
            program: BENCHMARK,
            reason: format!("no result in its report: {}", text.trim()),
        })
    }
}

/// The second field of the line of the test: `"GET","123456.7",...`.
fn rate_of(report: &str, test: &str) -> Option<f64> {
    let mut fields = report
        .lines()
        .map(|line| line.split(',').map(|field| field.trim_matches('"')))
        .find_map(|mut fields| {
            let name = fields.next()?;
            name.eq_ignore_ascii_case(test).then_some(fields)
        })?;
    fields.next()?.parse().ok()
}

fn wait_until_it_listens(port: u16) -> Result<(), BenchError> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let begun = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(_) => return Ok(()),
            Err(error) if begun.elapsed() > START_PATIENCE => {
                return Err(BenchError::Program { program: SERVER, reason: error.to_string() });
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_understood() {
        let report = "\"test\",\"rps\",\"avg_latency_ms\"\n\"GET\",\"252951.09\",\"0.045\"\n";
        assert_eq!(rate_of(report, "get"), Some(252_951.09));
        assert_eq!(rate_of(report, "set"), None);
    }
}
