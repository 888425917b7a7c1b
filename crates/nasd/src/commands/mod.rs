//! One file a command. A command gets parsed arguments and answers with what went wrong.

mod acl;
pub mod agree;
mod arranging;
pub mod audit;
pub mod bench;
pub mod bulk;
pub mod cache;
pub mod cap;
pub mod check;
pub mod demo;
pub mod drive;
pub mod explain;
pub mod files;
pub mod fsck;
mod held;
pub mod helper;
mod hint;
pub mod join;
pub mod key;
pub mod manager;
pub mod manual;
pub mod member;
pub mod mount;
mod moving;
pub mod object;
mod own_state;
pub mod partition;
pub mod renew;
mod snapshot;
mod spreading;
pub mod status;
pub mod striping;
mod tending;
pub mod top;
pub mod up;
pub mod volume;

use crate::arguments::{Arguments, Command, ManagerCommand, StripingCommand};
use crate::notify;
use nasd_cell::{Cell, cell_directory};
use std::error::Error;

/// What every command returns: the error says what failed, why, and what to do.
pub type Outcome = Result<(), Box<dyn Error>>;

/// Runs the command.
///
/// # Errors
/// The command's own.
pub fn run(arguments: Arguments) -> Outcome {
    let named = arguments.cell.clone();
    let directory = cell_directory(arguments.cell);
    let json = arguments.json;
    let open = || Cell::open(&directory);
    match arguments.command {
        Command::Up(up) => up::up(&up.dir.clone().unwrap_or(directory), &up),
        Command::Down { dir } => up::down(&dir.unwrap_or(directory)),
        Command::Top(arguments) => top::top(&open()?, &arguments, json),
        Command::Status { check } => status::status(&open()?, check, json),
        Command::Explain { code, document } => explain::explain(code.as_deref(), document, json),
        Command::Mount(mount) => mount::mount(&open()?, &mount, true),
        Command::Umount { mountpoint } => mount::umount(&mountpoint),
        Command::Ls { long, path } => files::ls(&open()?, &path, long, json),
        Command::Cat { paths, path } => files::cat(open, &paths, path.into()),
        Command::Cp { recursive, path, sources, destination } => {
            files::cp(open, &sources, &destination, recursive, path.into())
        }
        Command::Rm { recursive, yes, paths } => files::rm(&open()?, &paths, recursive, yes),
        Command::Mkdir { parents, paths } => files::mkdir(&open()?, &paths, parents),
        Command::Stat { path } => files::stat(&open()?, &path, json),
        Command::Extend { paths, extension, ranges } => {
            files::extend(&open()?, &paths, &extension, &ranges, json)
        }
        Command::Scan(arguments) => files::scan(&open()?, &arguments, json),
        Command::Hint(arguments) => hint::hint(&arguments),
        Command::Grep(arguments) => files::grep(open, &arguments, json),
        Command::Drive(command) => drive::run(&directory, command, json),
        Command::Volume(command) => volume::run(&open()?, command, json),
        Command::Partition(command) => partition::run(&directory, command, json),
        Command::Object(command) => object::run(&directory, command, json),
        Command::Acl(command) => acl::run(open, command, json),
        Command::Cap(command) => cap::run(open, command, json),
        Command::Key(command) => key::run(&directory, command, json),
        Command::User(command) => member::user(&open()?, command, json),
        Command::Host(command) => member::host(&open()?, command, json),
        Command::Audit(audit) => audit::run(&directory, &audit, json),
        Command::Join { token, dir } => join::join(&token, &dir.unwrap_or(directory), json),
        Command::Renew => renew::run(&open()?),
        Command::Fsck(asked) => fsck::fsck(&open()?, &asked, json),
        Command::Check(check) => check::check(&check, json),
        Command::Manager(ManagerCommand::Serve { metrics }) => manager::serve(&open()?, metrics),
        Command::Striping(StripingCommand::Serve(serve)) => striping::serve(&open()?, &serve),
        Command::Striping(StripingCommand::Set(set)) => striping::set(&open()?, &set),
        Command::Striping(StripingCommand::Export { file }) => own_state::export(&open()?, &file),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { command, dir } => manual::man(&command, dir.as_deref()),
        Command::Bulk(command) => bulk::run(&directory, command, json),
        Command::Cache(arguments) => cache::run(named.as_deref(), arguments, json),
        Command::Bench(bench) => bench::bench(&bench, json),
        Command::Demo(demo) => demo::demo(&demo),
    }
}

/// Tells whoever started this process that it serves.
fn announce_ready(detail: &str) {
    use std::io::Write;
    let mut output = std::io::stdout();
    let line = if detail.is_empty() { "ready".to_owned() } else { format!("ready {detail}") };
    // Nobody may be reading; that is no reason to stop serving.
    let _ = writeln!(output, "{line}");
    let _ = output.flush();
    notify::tell(notify::READY);
}

/// Tells the log and the service manager that the end has begun.
fn announce_end() {
    tracing::info!("stopping");
    notify::tell(notify::STOPPING);
}
