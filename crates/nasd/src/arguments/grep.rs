//! Arguments of `nasd grep`: letters as those of grep.

use clap::Args;

/// What is searched, and for what.
#[derive(Debug, Clone, Args)]
pub struct GrepArguments {
    /// The pattern, unless there is one behind -e; then VOLUME:/path of each file.
    #[arg(required = true, value_name = "PATTERN|PATH")]
    pub operands: Vec<String>,
    /// A pattern; lines are selected in which one of several matches. Line ends stand between patterns too.
    #[arg(short = 'e', long = "regexp", value_name = "PATTERN")]
    pub patterns: Vec<String>,
    #[command(flatten)]
    pub matching: MatchingArguments,
    #[command(flatten)]
    pub showing: ShowingArguments,
    /// Search all files below directories.
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Read the files and search them in this process.
    #[arg(long)]
    pub here: bool,
    /// Tell on the standard error which bytes went over the network.
    #[arg(long)]
    pub stats: bool,
    /// Print this help.
    #[arg(long, action = clap::ArgAction::Help)]
    pub help: Option<bool>,
}

/// Which lines are selected.
#[derive(Debug, Clone, Copy, Args)]
#[allow(clippy::struct_excessive_bools)] // Each is an option of its own.
pub struct MatchingArguments {
    /// Patterns are texts and not regular expressions.
    #[arg(short = 'F', long)]
    pub fixed_strings: bool,
    /// Letters match whatever their case.
    #[arg(short, long)]
    pub ignore_case: bool,
    /// Select the lines that don't match.
    #[arg(short = 'v', long)]
    pub invert_match: bool,
    /// Match whole words only.
    #[arg(short, long)]
    pub word_regexp: bool,
    /// Match whole lines only.
    #[arg(short = 'x', long)]
    pub line_regexp: bool,
    /// Stop behind so many selected lines of a file.
    #[arg(short, long, value_name = "NUMBER")]
    pub max_count: Option<u64>,
}

/// What is shown of them.
#[derive(Debug, Clone, Copy, Args)]
#[allow(clippy::struct_excessive_bools)] // Each is an option of its own.
pub struct ShowingArguments {
    /// How many lines of each file are selected.
    #[arg(short, long, conflicts_with_all = ["files_with_matches", "files_without_match"])]
    pub count: bool,
    /// Only the names of files of which a line is selected.
    #[arg(short = 'l', long, conflicts_with = "files_without_match")]
    pub files_with_matches: bool,
    /// Only the names of files of which none is.
    #[arg(short = 'L', long)]
    pub files_without_match: bool,
    /// Only what matches, each in a line of its own.
    #[arg(short, long)]
    pub only_matching: bool,
    /// Nothing: the exit status tells, 0 if a line was selected.
    #[arg(short, long, visible_alias = "silent")]
    pub quiet: bool,
    /// Numbers of lines.
    #[arg(short = 'n', long)]
    pub line_number: bool,
    /// Names of files, as where there are several.
    #[arg(short = 'H', long)]
    pub with_filename: bool,
    /// No names of files.
    #[arg(short = 'h', long, conflicts_with = "with_filename")]
    pub no_filename: bool,
    /// So many lines after each selected one.
    #[arg(short = 'A', long, value_name = "NUMBER")]
    pub after_context: Option<u32>,
    /// So many lines before each selected one.
    #[arg(short = 'B', long, value_name = "NUMBER")]
    pub before_context: Option<u32>,
    /// So many lines before and after each selected one.
    #[arg(short = 'C', long, value_name = "NUMBER")]
    pub context: Option<u32>,
    /// Show lines with zero bytes too, of which otherwise is only said that there are some.
    #[arg(short = 'a', long)]
    pub text: bool,
}
