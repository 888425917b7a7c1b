//! The arguments of `nasd scan`.

use super::parse_size;
use clap::{Args, ValueEnum};

/// How the records of a file are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RecordFormat {
    /// Lines of fields with commas between them.
    Csv,
    /// Lines of fields with tabs between them.
    Tsv,
    /// Lines of JSON objects.
    Jsonl,
    /// Records of one size.
    Fixed,
    /// Columns, in groups of rows; the file says itself what they are.
    Parquet,
}

/// What is scanned, and for what.
#[derive(Debug, Clone, Args)]
pub struct ScanArguments {
    /// VOLUME:/path of each file, in the order in which their records are looked at; then, it may be, what is wanted: SELECT ... FROM file
    /// [WHERE ...] [GROUP BY ...] [ORDER BY x [DESC] ...] [LIMIT n]. The name behind FROM is anything. All records if nothing is said.
    #[arg(required = true, value_name = "PATH|QUERY")]
    pub operands: Vec<String>,
    #[command(flatten)]
    pub wanted: WantedArguments,
    /// Scan all files below directories, by their names.
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    #[command(flatten)]
    pub format: FormatArguments,
    /// A record that can't be read is an error; otherwise such are passed over and counted.
    #[arg(long)]
    pub strict: bool,
    /// Longest record, with its line end: longer ones can't be read.
    #[arg(long, default_value = "1M", value_name = "SIZE", value_parser = parse_size)]
    pub longest_record: u64,
    /// Most groups.
    #[arg(long, default_value_t = 1 << 16)]
    pub groups: u32,
    /// Memory for keys, texts and records that are kept, at each drive.
    #[arg(long, default_value = "4M", value_name = "SIZE", value_parser = parse_size)]
    pub memory: u64,
    /// Read the file and scan it in this process.
    #[arg(long)]
    pub here: bool,
    /// Tell on the standard error how many records there were, and which bytes went over the network.
    #[arg(long)]
    pub stats: bool,
}

/// What is wanted, in parts of a query.
#[derive(Debug, Clone, Args)]
pub struct WantedArguments {
    /// Columns, or what is computed of them, with commas between them. Without it all.
    #[arg(long, value_name = "LIST")]
    pub select: Option<String>,
    /// Of which records.
    #[arg(long = "where", value_name = "CONDITION")]
    pub condition: Option<String>,
    /// By which columns records are grouped.
    #[arg(long, value_name = "LIST")]
    pub group_by: Option<String>,
    /// By what the result is ordered.
    #[arg(long, value_name = "LIST")]
    pub order_by: Option<String>,
    /// How many rows at the most.
    #[arg(long, value_name = "N")]
    pub limit: Option<String>,
}

/// What the records are.
#[derive(Debug, Clone, Args)]
pub struct FormatArguments {
    /// How records are written. By the end of the file's name if that is not said: .csv, .tsv, .jsonl, .ndjson or
    /// .parquet; and by its beginning if it is a Parquet file.
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<RecordFormat>,
    /// NAME:TYPE,... of the columns: int, float or text, of lines of JSON bool too; of fixed records i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 (with `be`
    /// behind it: most significant byte first) and textN, N bytes. Without it: from the first lines of the file.
    #[arg(long, value_name = "COLUMNS")]
    pub columns: Option<String>,
    /// Stands between two fields.
    #[arg(long, value_name = "CHARACTER")]
    pub delimiter: Option<char>,
    /// The first line is a record like the others.
    #[arg(long)]
    pub no_header: bool,
}
