//! What callgrind wrote: <https://valgrind.org/docs/manual/cl-format.html>, as far as is needed.

use std::collections::HashMap;
use std::path::Path;

use crate::support::Outcome;

/// Instructions of all threads between two marks.
#[derive(Debug, Default)]
pub struct Profile {
    /// All of them.
    pub total: u64,
    /// Those of the drive's service, and of all that it calls.
    service: u64,
}

/// How the functions of the service are called in a profile.
const SERVICE: &str = "nasd_drive::service::";
const METHODS: [&str; 3] = ["::receive", "::may_block", "::execute"];

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
        let mut callee_is_service = false;
        let mut is_call = false;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("cfn=") {
                callee_is_service = is_service(&mut names, name);
            } else if let Some(name) = line.strip_prefix("fn=") {
                is_service(&mut names, name);
            } else if line.starts_with("calls=") {
                is_call = true;
            } else if let Some(cost) = cost_of(line) {
                match std::mem::take(&mut is_call) {
                    true if callee_is_service => profile.service += cost,
                    true => {}
                    false => profile.total += cost,
                }
            }
        }
        profile
    }

    pub fn share_of_communications(&self) -> f64 {
        1.0 - self.service as f64 / self.total.max(1) as f64
    }
}

/// `(7) name` names number 7, and `(7)` is the same again.
fn is_service<'a>(names: &mut HashMap<&'a str, bool>, name: &'a str) -> bool {
    match name.split_once(' ') {
        Some((number, name)) => {
            let is = name.contains(SERVICE) && METHODS.iter().any(|method| name.contains(method));
            names.insert(number, is);
            is
        }
        None => names.get(name).copied().unwrap_or_default(),
    }
}

/// The cost of a line that begins with a position: a number, `+3`, `-3` or `*`.
fn cost_of(line: &str) -> Option<u64> {
    let (position, cost) = line.split_once(' ')?;
    let is_position = position.starts_with(|first: char| first.is_ascii_digit())
        || position.starts_with(['+', '-', '*']);
    if is_position { cost.trim().parse().ok() } else { None }
}
