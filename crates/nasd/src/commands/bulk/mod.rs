//! `nasd bulk`: directories are served, and big files copied, by the bulk service.

mod desk;
mod get;
mod journal;
mod local;
mod members;
mod parts;
mod places;
mod play;
mod progress;
mod put;
mod remote;
mod secret;
mod serve;
mod shared;
mod stream;
mod striped;
mod transfer;
mod volume;

use self::desk::Desk;
use self::parts::Parts;
use self::places::Place;
use self::progress::Tally;
use self::remote::Remote;
use self::shared::SharedObject;
use self::volume::Volume;
use super::Outcome;
use crate::arguments::{BulkCommand, BulkCopyArguments};
use nasd_bulk_service::client::block_of;
use nasd_cell::Cell;
use nasd_types::Protection;
use std::error::Error;
use std::path::Path;
use std::time::Duration;

/// Runs one of the commands.
///
/// # Errors
/// The command's own.
pub fn run(directory: &Path, command: BulkCommand, as_json: bool) -> Outcome {
    let (arguments, copy): (_, fn(&Copying<'_>) -> Outcome) = match &command {
        BulkCommand::Serve(arguments) => return serve::serve(directory, arguments),
        BulkCommand::Play(arguments) => return play::play(directory, arguments, as_json),
        BulkCommand::Get(arguments) => (arguments, get::get),
        BulkCommand::Put(arguments) => (arguments, put::put),
    };
    if arguments.sources().is_empty() {
        return Err(format!(
            "where is {} to go? Name a source and a destination",
            arguments.destination()
        )
        .into());
    }
    if as_json && arguments.destination() == "-" {
        return Err(
            "--json prints to the standard output, where the file goes: leave one of them away"
                .into(),
        );
    }
    let copying = Copying { directory, arguments, tally: Tally::begin() };
    let copied = copy(&copying);
    copying.tally.clear();
    copied?;
    copying.tally.tell(as_json)
}

/// The other side, and a path there.
type Reached = (Box<dyn Remote>, Vec<u8>);

/// What a copy needs to know.
pub struct Copying<'a> {
    /// The cell's directory, if there is a cell.
    directory: &'a Path,
    arguments: &'a BulkCopyArguments,
    tally: Tally,
}

impl Copying<'_> {
    /// In which blocks a file is read from its beginning on; 0 of one that is read in several parts.
    fn first_block(&self, parts: Parts) -> u64 {
        match parts.count() {
            0 | 1 => block_of(parts.length(), self.arguments.block),
            _ => 0,
        }
    }

    /// Reaches the other side, and tells the path there.
    fn reach(&self, place: &Place) -> Result<Reached, Box<dyn Error>> {
        let BulkCopyArguments { protection, patience, .. } = *self.arguments;
        reach(self.directory, place, (protection, patience))
    }
}

/// Reaches the other side by this protection, if any is wanted, and this patience, and tells the path there.
fn reach(
    directory: &Path,
    place: &Place,
    (protection, patience): (Option<Protection>, Duration),
) -> Result<Reached, Box<dyn Error>> {
    let bulk = (protection.unwrap_or(Protection::NONE), patience);
    let open_cell = || Cell::open(directory);
    Ok(match place {
        Place::Cell(path) => {
            let volume = Volume::connect(&open_cell()?, path.volume(), bulk)?;
            (Box::new(volume), path.as_bytes()[1..].to_vec())
        }
        Place::Desk(desk) => (Box::new(Desk::reach(desk, open_cell, bulk)?), desk.path.clone()),
        Place::Url(argument) => {
            let shared = SharedObject::from_argument(argument, (protection, patience))?;
            let name = shared.name().to_vec();
            (Box::new(shared), name)
        }
        Place::Local(_) | Place::Standard => {
            return Err("this is not at another machine".into());
        }
    })
}
