//! Starts a cell whose drives, managers and clients have hosts of their own, mounts it for each client, and
//! waits for the end of its input: for trials by hand.
//!
//!     cargo run -p nasd-hosts --example hosted_cell -- \
//!         NASD DIRECTORY DRIVES CLIENTS MBIT_A_SECOND [OPTIONS OF `nasd up`]...

use std::io::Read;
use std::path::Path;

use nasd_hosts::{CellPlan, HostedCell, Link, Route};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [nasd, directory, drives, clients, mbit, options @ ..] = &arguments[..] else {
        return Err("see the head of this file for its arguments".into());
    };
    let directory = Path::new(directory);
    let options = options.iter().map(Into::into).collect();
    let link = Link::of(mbit.parse::<u64>()? * 1_000_000);
    let plan = CellPlan { drives: drives.parse()?, options, drive_options: Vec::new(), link };
    let mut cell = HostedCell::start(Path::new(nasd), &directory.join("cell"), &plan)?;
    for client in 0..clients.parse()? {
        let host = cell.client_host(&format!("client{client}"))?;
        let at = directory.join(format!("mount{client}"));
        cell.mount(&host, &at, Route::Direct)?;
        println!("{} is mounted on {}", at.display(), host.address());
    }
    println!("the cell runs until the end of the input; `ip netns` lists its hosts");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(cell.stop()?)
}
