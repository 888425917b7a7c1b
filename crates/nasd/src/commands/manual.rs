//! `nasd man` and `nasd completions`: made from the definition of the command line, so they tell
//! what this program does.

use super::Outcome;
use crate::arguments::{Arguments, MountHelper, UmountHelper};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// What the pages are part of.
const MANUAL: &str = "NASD";

/// Environment variables, for the main page.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("NASD_CELL", "The cell's directory, where no --cell is given."),
    (
        "NASD_LOG",
        "What is told on standard error or in the log: `debug`, `info`, `warn`, `error`, or a list of \
         part=level.",
    ),
    ("NASD_CACHE", "Where caches are; else `nasd` in XDG_CACHE_HOME, else ~/.cache/nasd."),
    ("NASD_PASSPHRASE_FILE", "A file with the passphrase of a sealed keyring."),
    (
        "XDG_DATA_HOME",
        "Where the cell's directory is looked for, as `nasd` in it; else ~/.local/share.",
    ),
    (
        "NOTIFY_SOCKET",
        "Where `up`, `drive serve` and `manager serve` tell systemd that they serve.",
    ),
];

/// Exit statuses, for the main page.
const EXIT_STATUS: &[(&str, &str)] = &[
    ("0", "What was asked for was done."),
    ("1", "It was not; standard error says what failed, why, and what to do."),
    ("2", "The command line can't be understood."),
];

/// Prints the script that completes the command line in a shell.
///
/// # Errors
/// When nobody reads it.
pub fn completions(shell: Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "nasd", &mut script);
    Ok(io::stdout().write_all(&script)?)
}

/// Writes all pages into a directory, or prints that of one command.
///
/// # Errors
/// A command that there is not, or a directory that can't be written.
pub fn man(words: &[String], directory: Option<&Path>) -> Outcome {
    let root = command();
    match directory {
        Some(directory) => {
            fs::create_dir_all(directory)?;
            for (name, page) in pages(&root)? {
                let path = directory.join(name);
                fs::write(&path, page).map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
        None => {
            let asked = words.iter().try_fold(&root, |command, word| {
                let found = command.find_subcommand(word);
                found.ok_or_else(|| format!("`{}` has no command `{word}`", command.get_name()))
            });
            io::stdout().write_all(&page(asked?, "1")?)?;
        }
    }
    Ok(())
}

fn command() -> Command {
    let mut root = Arguments::command().disable_help_subcommand(true);
    root.build();
    root
}

/// The file name and the text of every page.
fn pages(root: &Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut pages = Vec::new();
    for helper in [MountHelper::command(), UmountHelper::command()] {
        pages.push((format!("{}.8", helper.get_name()), page(&helper, "8")?));
    }
    let mut pending = vec![root];
    while let Some(command) = pending.pop() {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name());
        pages.push((format!("{name}.1"), page(command, "1")?));
        pending.extend(command.get_subcommands().filter(|command| !command.is_hide_set()));
    }
    Ok(pages)
}

fn page(command: &Command, section: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let source = concat!("nasd ", env!("CARGO_PKG_VERSION"));
    Man::new(command.clone()).section(section).source(source).manual(MANUAL).render(&mut text)?;
    if command.get_name() == "nasd" {
        let mut more = Roff::new();
        for (title, list) in [("EXIT STATUS", EXIT_STATUS), ("ENVIRONMENT", ENVIRONMENT)] {
            more.control("SH", [title]);
            for (word, meaning) in list {
                more.control("TP", []);
                more.text([bold(*word)]).text([roman(*meaning)]);
            }
        }
        more.to_writer(&mut text)?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn walk(command: &Command, visit: &mut dyn FnMut(&Command)) {
        visit(command);
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            walk(below, visit);
        }
    }

    /// A page's text without what roff makes of hyphens.
    fn plain(page: &[u8]) -> String {
        String::from_utf8(page.to_vec()).unwrap().replace("\\-", "-")
    }

    #[test]
    fn every_command_has_a_page_that_names_its_options() {
        let root = command();
        let pages: BTreeMap<String, Vec<u8>> = pages(&root).unwrap().into_iter().collect();
        let mut commands = 0;
        walk(&root, &mut |command| {
            commands += 1;
            let name = command.get_display_name().unwrap_or("nasd");
            let text = plain(&pages[&format!("{name}.1")]);
            assert!(text.contains(".TH"), "{name}");
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                if let Some(long) = argument.get_long() {
                    assert!(text.contains(&format!("--{long}")), "{name}: --{long}");
                }
            }
            for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
                let below = below.get_display_name().unwrap();
                assert!(
                    text.contains(below) && pages.contains_key(&format!("{below}.1")),
                    "{below}"
                );
            }
        });
        assert!(commands > 40, "{commands}");
        assert_eq!(pages.len(), commands + 2);
        let main = plain(&pages["nasd.1"]);
        assert!(main.contains("NASD_CELL") && main.contains("EXIT STATUS"), "{main}");
        assert!(plain(&pages["mount.fuse.nasd.8"]).contains("cell=DIR"));
    }
}
