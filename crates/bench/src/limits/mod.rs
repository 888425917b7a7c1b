//! What the machine can do, measured with the tools that everybody trusts: `iperf3` for TCP on
//! loopback, `fio` for the device with O_DIRECT, `redis-benchmark` for small requests; and a bare
//! echo for the way there and back.

pub(crate) mod disk;
pub(crate) mod echo;
pub(crate) mod redis;
pub(crate) mod tcp;

use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};

use crate::BenchError;

pub use disk::{disk_read, disk_write};
pub use tcp::tcp_loopback;

/// Runs a program to its end.
fn output_of(program: &'static str, arguments: &[&str]) -> Result<Output, BenchError> {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| spawn_error(program, &error))
}

/// Starts a program that is stopped when the result is dropped.
fn start(program: &'static str, arguments: &[&str]) -> Result<KillOnDrop, BenchError> {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(KillOnDrop)
        .map_err(|error| spawn_error(program, &error))
}

fn spawn_error(program: &'static str, error: &std::io::Error) -> BenchError {
    match error.kind() {
        std::io::ErrorKind::NotFound => BenchError::MissingProgram { program },
        _ => BenchError::Program { program, reason: error.to_string() },
    }
}

fn free_port() -> Result<u16, BenchError> {
    let io = BenchError::io("can't find a free port");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(&io)?;
    Ok(listener.local_addr().map_err(&io)?.port())
}

#[derive(Debug)]
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
