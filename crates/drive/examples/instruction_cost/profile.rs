//! What callgrind wrote: <https://valgrind.org/docs/manual/cl-format.html>, as far as is needed.

use std::collections::HashMap;
use std::path::Path;

use crate::support::Outcome;

/// Instructions of all threads between two marks.
#[derive(Debug, Default)]
pub struct Profile {
    /// All of them, but for those that write back what is dirty, which is done later and for many
    /// requests together.
    pub total: u64,
    /// Those of the drive's service, and of all that it calls.
    service: u64,
}

/// How the functions of the service are called in a profile.
const SERVICE: [&str; 2] = ["nasd_drive::service::", "<nasd_drive::operations::reads::Reads as "];
const METHODS: [&str; 5] = ["::receive", "::attempt", "::execute", "::begin", "::answered"];
/// What the drive's other thread calls.
const WRITE_BACK: &str = "::write_back";

/// What is to be told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    Service,
    WriteBack,
    #[default]
    Other,
}

impl Profile {
    pub fn read(path: &Path) -> Outcome<Profile> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Profile::parse(&text))
    }

    /// Costs come as lines of a position and a number. The line behind `calls=` has what the
    /// callee cost with all that it called itself; all others belong to the function alone.
    fn parse(text: &str) -> Profile {
        let mut profile = Profile::default();
        let mut names = HashMap::new();
        let mut callee = Kind::Other;
        let mut is_call = false;
        let mut written_back = 0;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("cfn=") {
                callee = kind_of(&mut names, name);
            } else if let Some(name) = line.strip_prefix("fn=") {
                kind_of(&mut names, name);
            } else if line.starts_with("calls=") {
                is_call = true;
            } else if let Some(cost) = cost_of(line) {
                match (std::mem::take(&mut is_call), callee) {
                    (true, Kind::Service) => profile.service += cost,
                    (true, Kind::WriteBack) => written_back += cost,
                    (true, Kind::Other) => {}
                    (false, _) => profile.total += cost,
                }
            }
        }
        profile.total = profile.total.saturating_sub(written_back);
        profile
    }

    pub fn share_of_communications(&self) -> f64 {
        1.0 - self.service as f64 / self.total.max(1) as f64
    }
}

/// `(7) name` names number 7, and `(7)` is the same again.
fn kind_of<'a>(names: &mut HashMap<&'a str, Kind>, name: &'a str) -> Kind {
    let Some((number, name)) = name.split_once(' ') else {
        return names.get(name).copied().unwrap_or_default();
    };
    let is_service = SERVICE.iter().any(|service| name.contains(service));
    let kind = if is_service && METHODS.iter().any(|method| name.ends_with(method)) {
        Kind::Service
    } else if name.ends_with(WRITE_BACK) {
        Kind::WriteBack
    } else {
        Kind::Other
    };
    names.insert(number, kind);
    kind
}

/// The cost of a line that begins with a position: a number, `+3`, `-3` or `*`.
fn cost_of(line: &str) -> Option<u64> {
    let (position, cost) = line.split_once(' ')?;
    let is_position = position.starts_with(|first: char| first.is_ascii_digit())
        || position.starts_with(['+', '-', '*']);
    if is_position { cost.trim().parse().ok() } else { None }
}
