//! `nasd audit`, as the user types it.

use super::partition::{parse_identifier, parse_partition};
use clap::Args;
use nasd_cell::time;
use nasd_protocol::Status;
use nasd_types::{AuditId, ObjectId, PartitionId, Timestamp};
use std::path::PathBuf;

/// `nasd audit`.
#[derive(Debug, Clone, Args)]
pub struct AuditTrailArguments {
    /// Running drives of the cell by their numbers or 16-digit identifiers, or HOST:PORT of any
    /// drive, with --key-file; `all`, as when none is named, is every drive of the cell.
    pub drives: Vec<String>,
    /// A file with the drive key, 64 hexadecimal digits, that nobody else can read. By default the
    /// keys come from the cell's keyring.
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Only what came at this time or later: 2026-11-22T10:00:00Z, or how long ago: 90s, 15m, 2h, 7d.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub since: Option<Timestamp>,
    /// Only what came before this time.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub until: Option<Timestamp>,
    /// Only what a capability of this audit identifier did.
    #[arg(long, value_name = "ID", value_parser = parse_audit_id)]
    pub audit_id: Option<AuditId>,
    /// Only what capabilities of this user did: the name of a member of the cell, or a uid.
    #[arg(long, value_name = "NAME", conflicts_with = "audit_id")]
    pub user: Option<String>,
    /// Only what was done to objects of this number.
    #[arg(long, value_parser = parse_object)]
    pub object: Option<ObjectId>,
    /// Only what was done in this partition.
    #[arg(long, value_parser = parse_partition)]
    pub partition: Option<PartitionId>,
    /// Only what ended so: `ok`, `refused` for all refusals, or a status by its name or number, such as
    /// refused-rights.
    #[arg(long, value_parser = parse_outcome)]
    pub status: Option<Ending>,
    /// Go on, and show what comes as it comes. Reading the trail is in the trail too; this leaves it
    /// out.
    #[arg(short, long)]
    pub follow: bool,
}

/// How requests ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With this status; 0 is success.
    Status(u32),
    /// By any refusal.
    Refused,
}

fn parse_audit_id(text: &str) -> Result<AuditId, String> {
    let wrong =
        || format!("`{text}` is no audit identifier: write it as it is printed, such as a7");
    parse_identifier(text, 'a').map(AuditId).ok_or_else(wrong)
}

fn parse_object(text: &str) -> Result<ObjectId, String> {
    let wrong = || format!("`{text}` is no object: write a number, or o40 as it is printed");
    parse_identifier(text, 'o').map(ObjectId).ok_or_else(wrong)
}

fn parse_outcome(text: &str) -> Result<Ending, String> {
    match text {
        "ok" => return Ok(Ending::Status(0)),
        "refused" => return Ok(Ending::Refused),
        _ => {}
    }
    if let Ok(number) = text.parse() {
        return Ok(Ending::Status(number));
    }
    let found = Status::ALL.iter().find(|status| status_name((**status).into()) == text);
    let names = || Status::ALL.iter().map(|status| status_name((*status).into()));
    found.map(|status| Ending::Status((*status).into())).ok_or_else(|| {
        let known: Vec<String> = names().collect();
        format!("`{text}` is no status; there are ok, refused, {}", known.join(", "))
    })
}

/// How a status is printed: in the words of the specification.
pub fn status_name(number: u32) -> String {
    if number == 0 {
        return "ok".to_owned();
    }
    match Status::try_from(number) {
        Ok(status) => words(&format!("{status:?}")),
        Err(_) => format!("status-{number}"),
    }
}

/// `RefusedRights` as `refused-rights`.
pub fn words(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_have_names_and_numbers() {
        assert_eq!(parse_outcome("ok"), Ok(Ending::Status(0)));
        assert_eq!(parse_outcome("refused"), Ok(Ending::Refused));
        assert_eq!(parse_outcome("106"), Ok(Ending::Status(106)));
        for status in Status::ALL {
            let number = (*status).into();
            assert_eq!(parse_outcome(&status_name(number)), Ok(Ending::Status(number)));
        }
        assert!(parse_outcome("refused-luck").unwrap_err().contains("refused-rights"));
        assert_eq!(status_name(9999), "status-9999");
    }

    #[test]
    fn identifiers_are_numbers_or_as_printed() {
        let id = AuditId(0x3e8_aabb_ccdd);
        assert_eq!(parse_audit_id(&id.to_string()), Ok(id));
        assert_eq!(parse_object("o40"), Ok(ObjectId(64)));
        assert!(parse_audit_id("me").is_err());
        assert!(parse_object("p1").is_err());
    }
}
