//! `nasd top`: what the cell does, interval by interval: requests, latency, and data by client and drive,
//! straight or through the manager, and what extensions of drives do.

mod extensions;
mod rates;
mod sample;
mod screen;

use super::Outcome;
use crate::arguments::TopArguments;
use crate::output::{self, say};
use nasd_cell::Cell;
use rates::Rates;
use sample::Observer;
use std::io::IsTerminal;

/// Shows what happens, until it is interrupted; with `once`, in one interval.
///
/// # Errors
/// Missing or wrong certificates, or a manager that does not answer: of a cell that is down that is known after a few seconds.
pub fn top(cell: &Cell, arguments: &TopArguments, json: bool) -> Outcome {
    let mut observer = Observer::new(cell, arguments.metrics_base_port)?;
    let refreshes = !json && !arguments.once && std::io::stdout().is_terminal();
    let mut before = observer.sample()?;
    loop {
        std::thread::sleep(arguments.interval);
        let now = observer.sample()?;
        let rates = Rates::between(&before, &now);
        before = now;
        if refreshes {
            // To the upper left, and nothing of the last screen below.
            say!("\x1b[H\x1b[J{}", screen::screen(&rates)?.trim_end());
        } else if json && arguments.once {
            output::json(&rates)?;
        } else if json {
            // One a line, so that a reader need not wait for the end.
            say!("{}", serde_json::to_string(&rates)?);
        } else {
            say!("{}", screen::screen(&rates)?);
        }
        if arguments.once {
            return Ok(());
        }
    }
}
