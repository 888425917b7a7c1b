//! What the environment says, as it was when the program began.

use std::ffi::OsString;
use std::sync::OnceLock;
use std::time::Duration;

use crate::map::{self, Rule};
use crate::verify::borrowed;

/// How long a server is waited for that is away.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was chosen.
#[derive(Debug)]
pub(crate) struct Config {
    /// `NASD_BULK_DEBUG=1`: to say on standard error what is mapped, and why not.
    pub(crate) debug: bool,
    /// `NASD_BULK_TIMEOUT`, in seconds.
    pub(crate) patience: Duration,
    /// `NASD_BULK_MAP`.
    pub(crate) rules: Vec<Rule>,
}

static CONFIG: OnceLock<Config> = OnceLock::new();

/// Reads it, once, before anything else.
pub(crate) fn read() {
    let text =
        |name: &str| std::env::var_os(name).and_then(|text| OsString::into_string(text).ok());
    let debug = text("NASD_BULK_DEBUG").is_some_and(|text| text == "1");
    let patience = text("NASD_BULK_TIMEOUT").and_then(|text| text.parse::<u64>().ok());
    let (rules, problem) = match std::env::var_os("NASD_BULK_MAP").map(|text| map::parse(&text)) {
        None => (Vec::new(), None),
        Some(Ok(rules)) => (rules, None),
        Some(Err(problem)) => (Vec::new(), Some(problem)),
    };
    let patience = patience.map_or(PATIENCE, Duration::from_secs);
    // Whoever was first has read the same.
    CONFIG.set(Config { debug, patience, rules }).ok();
    if let Some(problem) = problem {
        say(|| format!("NASD_BULK_MAP is not used: {problem}"));
    }
}

/// What was chosen; nothing before the library has begun.
pub(crate) fn get() -> Option<&'static Config> {
    CONFIG.get()
}

/// How long a server is waited for that is away.
pub(crate) fn patience() -> Duration {
    get().map_or(PATIENCE, |config| config.patience)
}

/// Says something to whoever wants to know.
pub(crate) fn say(text: impl FnOnce() -> String) {
    if get().is_some_and(|config| config.debug) {
        let line = format!("nasd-bulk: {}\n", text());
        // By the kernel alone; if nobody reads it, it is lost.
        if let Some(error) = borrowed(libc::STDERR_FILENO) {
            rustix::io::write(error, line.as_bytes()).ok();
        }
    }
}
