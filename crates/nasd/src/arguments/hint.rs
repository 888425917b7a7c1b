//! Arguments of `nasd hint`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// `nasd hint`.
#[derive(Debug, Clone, Args)]
pub struct HintArguments {
    /// A directory of a mounted volume.
    pub directory: PathBuf,
    /// What will be read, in order: on each line a path from the directory. `-` is the input.
    #[arg(long, default_value = "-")]
    pub list: PathBuf,
    /// Lines are `OFFSET LENGTH PATH`; length 0 is up to the file's end.
    #[arg(long)]
    pub ranges: bool,
    /// What reads it; the hints are over when it ends. Without it they are when this is stopped.
    #[arg(last = true)]
    pub command: Vec<OsString>,
}
