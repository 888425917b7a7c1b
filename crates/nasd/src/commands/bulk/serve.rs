//! `nasd bulk serve`: the files of an ordinary directory, for members of the cell.

use super::members::Members;
use super::secret::Own;
use crate::arguments::BulkServeArguments;
use crate::commands::{Outcome, announce_end, announce_ready};
use crate::output::note;
use crate::shutdown::Shutdown;
use nasd_bulk_service::desk::{Desk, DeskOptions};
use nasd_bulk_service::directory::{DirectoryOptions, Surroundings};
use nasd_cell::session::{host_client, host_tls};
use nasd_cell::{Cell, now};
use nasd_client::ManagerClient;
use nasd_transport::{Server, ServerOptions, ServerTls};
use std::error::Error;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long calls under way may take when it is stopped.
const GRACE: Duration = Duration::from_secs(10);

/// How often this machine's certificate is looked after.
const REFRESH_INTERVAL: Duration = Duration::from_secs(3600);

/// How long the manager is waited for that is asked who is a member: a client waits meanwhile.
const MANAGER_PATIENCE: Duration = Duration::from_secs(3);

/// Serves until a signal ends it.
///
/// # Errors
/// A directory that can't be served, a machine without a certificate, or an address that can't be listened on.
pub fn serve(cell: &Path, arguments: &BulkServeArguments) -> Outcome {
    let mut shutdown = Shutdown::new()?;
    let served = served_directory(&arguments.dir)?;
    let cell = match arguments.anyone {
        true => None,
        false => Some(Cell::open(cell).map_err(|error| {
            format!("{error}; join a cell, or serve anybody, unproved, by --anyone")
        })?),
    };
    let tls = cell.as_ref().map(host_tls).transpose()?;
    let asked = cell.as_ref().map(|cell| host_client(cell, MANAGER_PATIENCE)).transpose()?;
    let members = asked.map(|manager| Arc::new(Members::new(manager)));
    let desk = desk((cell.as_ref(), members.clone()), &served, arguments)?;
    let listener = TcpListener::bind(arguments.listen)
        .map_err(|error| format!("can't listen on {}: {error}", arguments.listen))?;
    let server = Server::start(listener, tls.clone(), Arc::new(desk), server_options(arguments))?;
    warn(&served, arguments);
    announce_ready(&format!("{} {}", server.address(), served.display()));
    while !shutdown.wait_for(REFRESH_INTERVAL) {
        if let (Some(cell), Some(tls), Some(members)) = (&cell, &tls, &members) {
            refresh_certificate(cell, tls, members);
        }
    }
    announce_end();
    server.shut_down(GRACE);
    Ok(())
}

/// The directory, without links.
fn served_directory(dir: &Path) -> Result<PathBuf, String> {
    let cannot = |why: String| format!("can't serve {}: {why}", dir.display());
    let path = dir.canonicalize().map_err(|error| cannot(error.to_string()))?;
    match path.is_dir() {
        true => Ok(path),
        false => Err(cannot("it is not a directory; name the one that the file is in".to_owned())),
    }
}

fn desk(
    (cell, members): (Option<&Cell>, Option<Arc<Members<ManagerClient>>>),
    served: &Path,
    arguments: &BulkServeArguments,
) -> Result<Desk, Box<dyn Error>> {
    let Own { identity, secret } = match cell {
        Some(cell) => Own::kept(cell, served)?,
        None => Own::passing()?,
    };
    let random = [getrandom::u64()?, getrandom::u64()?, getrandom::u64()?];
    let surroundings = Surroundings { identity, secret, clock: Box::new(now), random };
    let directory = DirectoryOptions {
        minimum_protection: arguments.minimum_protection,
        read_only: arguments.read_only,
        ..DirectoryOptions::default()
    };
    let mut options = DeskOptions {
        lifetime: arguments.lifetime.min(arguments.longest_lifetime),
        longest_lifetime: arguments.longest_lifetime,
        trust_root: arguments.trust_root,
        anyone: arguments.anyone,
        ..DeskOptions::default()
    };
    if let Some(members) = members {
        options.members = Some(Arc::new(move |identity| members.has(identity)));
    }
    let desk = Desk::new(served, surroundings, directory, options);
    Ok(desk.map_err(|error| format!("can't serve {}: {error}", served.display()))?)
}

fn server_options(arguments: &BulkServeArguments) -> ServerOptions {
    let options = ServerOptions { name: "nasd-bulk".to_owned(), ..ServerOptions::default() };
    if !arguments.anyone {
        return options;
    }
    // Nobody proves anything here, and is not to be slowed down for that.
    ServerOptions { unproved_in_a_row: u32::MAX, unproved_per_second: u32::MAX, ..options }
}

/// Says what whoever has started it should know.
fn warn(served: &Path, arguments: &BulkServeArguments) {
    let served = served.display();
    if arguments.anyone {
        let what = if arguments.read_only { "read" } else { "read and write" };
        note!(
            "nasd: INSECURE: whoever can reach {} can {what} in {served} what the user nobody can, and nothing is proved or \
             hidden on the way; without --anyone, members of a cell alone can",
            arguments.listen
        );
    }
    if !rustix::process::geteuid().is_root() {
        tracing::warn!(
            "not started by root: what callers change belongs to the user of this process"
        );
    }
}

/// A certificate must not end because the server has run for long.
fn refresh_certificate(cell: &Cell, tls: &ServerTls, members: &Members<ManagerClient>) {
    let fresh = host_tls(cell).and_then(|fresh| Ok((fresh, host_client(cell, MANAGER_PATIENCE)?)));
    match fresh {
        Ok((fresh, manager)) => {
            tls.replace(&fresh);
            members.ask(manager);
        }
        Err(error) => tracing::error!(error, "this machine's certificate is not looked after"),
    }
}
