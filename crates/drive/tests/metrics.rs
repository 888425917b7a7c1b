//! The metrics are text that Prometheus understands, and count what happened.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::*;
use nasd_drive::DriveOptions;
use nasd_protocol::CredentialKey;
use nasd_protocol::drive::{GetattrArguments, Procedure, ReadArguments};

type Labels = BTreeMap<String, String>;

/// One family of samples.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    samples: Vec<(String, Labels, f64)>,
}

/// Reads the exposition format strictly: each family once, with its help and type before its
/// samples, no sample twice.
fn parse(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!help.is_empty() && is_name(name), "{line}");
            assert!(families.insert(name.to_owned(), Family::default()).is_none(), "{name}");
            current = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, current);
            assert!(["counter", "gauge", "histogram"].contains(&kind));
            families.get_mut(name).unwrap().kind = kind.to_owned();
        } else {
            let (name, labels, value) = sample(line);
            let family = families.get_mut(&current).unwrap();
            let suffixes: &[&str] = match family.kind.as_str() {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(suffixes.iter().any(|suffix| name == format!("{current}{suffix}")), "{line}");
            family.samples.push((name, labels, value));
        }
    }
    for (name, family) in &families {
        assert!(!family.kind.is_empty(), "{name} has no type");
        assert_eq!(family.kind == "counter", name.ends_with("_total"), "{name}");
        let distinct: BTreeSet<_> =
            family.samples.iter().map(|(name, labels, _)| (name, labels)).collect();
        assert_eq!(distinct.len(), family.samples.len(), "{name} has a sample twice");
    }
    families
}

fn is_name(name: &str) -> bool {
    let is_letter = |character: char| character.is_ascii_lowercase() || character == '_';
    name.chars().all(|character| is_letter(character) || character.is_ascii_digit())
        && name.starts_with(is_letter)
}

fn sample(line: &str) -> (String, Labels, f64) {
    let (head, value) = line.rsplit_once(' ').unwrap();
    let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
    let Some((name, labels)) = head.split_once('{') else {
        assert!(is_name(head), "{line}");
        return (head.to_owned(), Labels::new(), value);
    };
    assert!(is_name(name), "{line}");
    let mut rest = labels;
    let mut found = Labels::new();
    loop {
        let (label, after) = rest.split_once("=\"").unwrap();
        let (text, after) = quoted(after);
        assert!(is_name(label), "{line}");
        assert!(found.insert(label.to_owned(), text).is_none(), "{line}");
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None => {
                assert_eq!(after, "}", "{line}");
                return (name.to_owned(), found, value);
            }
        }
    }
}

/// The text up to the closing quote, unescaped, and what follows.
fn quoted(text: &str) -> (String, &str) {
    let mut out = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (out, &text[at + 1..]),
            '\\' => match characters.next().unwrap().1 {
                'n' => out.push('\n'),
                other => out.push(other),
            },
            other => out.push(other),
        }
    }
    panic!("a quote is open: {text}")
}

struct Metrics(BTreeMap<String, Family>);

impl Metrics {
    fn of(drive: &TestDrive) -> Metrics {
        Metrics(parse(&drive.server().drive().metrics()))
    }

    /// The sample of that name whose labels include these.
    fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let family = self.0.iter().find(|(family, _)| name.starts_with(family.as_str())).unwrap().1;
        let fits = |found: &Labels| {
            labels.iter().all(|(label, value)| found.get(*label).is_some_and(|is| is == value))
        };
        let mut found = family.samples.iter().filter(|(is, found, _)| is == name && fits(found));
        let sample = found.next().unwrap_or_else(|| panic!("{name} {labels:?}"));
        assert!(found.next().is_none(), "{name} {labels:?} is not one");
        sample.2
    }
}

#[test]
fn what_happened_is_counted() {
    let drive = TestDrive::new();
    let name = drive.object_with(&[1; 5000]);
    let read = |signer: Signer, name| {
        drive.by(signer, Procedure::Read, &ReadArguments::single(name, 0, 4000))
    };
    read(Signer::capability(&drive.capability(name)), name);
    read(Signer::working(), name);
    read(Signer::working(), object(0xffff));
    read(Signer::key(CredentialKey::Drive, 77), name);
    drive.by(Signer::partition(), Procedure::Getattr, &GetattrArguments { name });
    let garbage = Request::new(Procedure::Remove, &7_u32, Signer::working());
    drive.ask(&garbage).unwrap_err();

    let metrics = Metrics::of(&drive);
    let requests = |operation, status| {
        metrics.value("nasd_requests_total", &[("operation", operation), ("status", status)])
    };
    assert_eq!(requests("create", "ok"), 1.0);
    assert_eq!(requests("write", "ok"), 1.0);
    assert_eq!(requests("read", "ok"), 2.0);
    assert_eq!(requests("read", "request"), 1.0);
    assert_eq!(requests("read", "authority"), 1.0);
    assert_eq!(requests("getattr", "ok"), 1.0);
    assert_eq!(requests("remove", "rejected"), 1.0);
    assert_eq!(requests("initialize", "ok"), 0.0);
    assert_eq!(metrics.value("nasd_refusals_total", &[("reason", "digest")]), 1.0);
    assert_eq!(metrics.value("nasd_refusals_total", &[("reason", "replay")]), 0.0);
    let bytes = |direction, holder| {
        let labels = [("direction", direction), ("holder", holder)];
        metrics.value("nasd_data_bytes_total", &labels)
    };
    assert_eq!((bytes("read", "capability"), bytes("read", "key")), (4000.0, 4000.0));
    assert_eq!((bytes("write", "capability"), bytes("write", "key")), (0.0, 5000.0));
    let partition = |name| metrics.value(name, &[("partition", "1")]);
    assert_eq!(partition("nasd_partition_objects"), 2.0);
    assert!(partition("nasd_partition_used_bytes") > 0.0);
    assert!(metrics.value("nasd_drive_capacity_bytes", &[]) > 0.0);
    assert_eq!(metrics.value("nasd_drive_read_only", &[]), 0.0);
}

#[test]
fn times_add_up() {
    let drive = TestDrive::new();
    let name = drive.object_with(&[1; 5000]);
    for _ in 0..80 {
        drive.by(Signer::working(), Procedure::Read, &ReadArguments::single(name, 0, 4000));
    }
    let metrics = Metrics::of(&drive);
    let count = metrics.value("nasd_request_seconds_count", &[("operation", "read")]);
    assert_eq!(count, 10.0, "of every eighth");
    let sum = metrics.value("nasd_request_seconds_sum", &[("operation", "read")]);
    assert!(sum > 0.0 && sum < 20.0, "{sum}");
    let mut buckets: Vec<(f64, f64)> = metrics.0["nasd_request_seconds"]
        .samples
        .iter()
        .filter(|(name, labels, _)| name.ends_with("_bucket") && labels["operation"] == "read")
        .map(|(_, labels, value)| (labels["le"].parse().unwrap(), *value))
        .collect();
    assert!(buckets.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1), "{buckets:?}");
    assert_eq!(buckets.pop(), Some((f64::INFINITY, 10.0)));
}

#[test]
fn labels_survive_any_name() {
    let vendor = "a \"quoted\" back\\slash\nand a line";
    let drive = TestDrive::with(DriveOptions { vendor: vendor.to_owned(), ..Default::default() });
    let metrics = Metrics::of(&drive);
    let (_, labels, value) = &metrics.0["nasd_drive_info"].samples[0];
    assert_eq!((labels["vendor"].as_str(), *value), (vendor, 1.0));
    assert_eq!(labels["drive"], "00000000000000d1");
}
