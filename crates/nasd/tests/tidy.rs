//! The rules of the tree, checked by machine: arrows between crates, purity, size budgets, and
//! what every file and crate must carry. `docs/architecture.md` explains the rings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates by ring: a crate may depend on its own ring and lower ones, never in a circle.
const RINGS: &[(u32, &[&str])] = &[
    (
        0,
        &[
            "types",
            "xdr",
            "rpc",
            "capability",
            "protocol",
            "metrics",
            "layout",
            "filter",
            "grep",
            "prefetch",
            "afs",
            "directory",
        ],
    ),
    (1, &["cache", "device", "fuse", "transport"]),
    (2, &["store", "check"]),
    (3, &["bulk", "drive", "client", "manager", "stripe"]),
    (4, &["clerk"]),
    (5, &["cell", "mount", "preload", "smas"]),
    (6, &["bench", "hosts", "nasd", "simulation"]),
];

/// What pure crates (ring 0) must not name: runtimes, sockets, files, threads, clocks, randomness.
const IMPURE: &[&str] = &[
    "std::net",
    "std::fs",
    "std::thread",
    "std::io::stdin",
    "std::process",
    "Instant::now",
    "SystemTime",
    "getrandom",
    "rand::",
    "tokio",
    "libc::",
    "rustix",
];

/// External crates that pure crates may use; none of them does I/O.
const PURE_DEPENDENCIES: &[&str] = &[
    "aegis",
    "bitflags",
    "blake3",
    "bytes",
    "chacha20poly1305",
    // From bytes to bytes, in safe Rust.
    "flate2",
    "grep-matcher",
    "grep-regex",
    "lz4_flex",
    "memchr",
    // It reads files too, for those who have it do so.
    "parquet",
    "sqlparser",
    "subtle",
    "thiserror",
    "zeroize",
    "proptest",
];

/// A drive knows objects and rights, never files; faces see only the clerk.
const FORBIDDEN: &[(&str, &str)] = &[
    ("drive", "manager"),
    ("drive", "clerk"),
    ("store", "capability"),
    ("store", "protocol"),
    ("check", "store"),
    ("mount", "client"),
    ("mount", "transport"),
    ("mount", "drive"),
    ("mount", "manager"),
    ("clerk", "store"),
    ("clerk", "drive"),
    ("manager", "store"),
    ("manager", "drive"),
    // A virtual drive is a drive to it.
    ("manager", "stripe"),
    ("manager", "layout"),
];

const MAX_FUNCTION_LINES: usize = 70;
const MAX_FILE_LINES: usize = 1500;
const MAX_TREE_FILE_BYTES: u64 = 1 << 20;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the root exists")
}

fn tracked_files(extension: &str) -> Vec<PathBuf> {
    let root = root();
    let mut found = Vec::new();
    let mut pending = vec![root.join("crates"), root.join("docs"), root.join("specs")];
    while let Some(directory) = pending.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries.map(|entry| entry.expect("a readable directory")) {
            let path = entry.path();
            if path.is_dir() {
                if entry.file_name() != "target" {
                    pending.push(path);
                }
            } else if extension.is_empty() || path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no .{extension} file found: the test looks in the wrong place");
    found
}

fn metadata() -> serde_json::Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo prints JSON")
}

fn short(package: &str) -> &str {
    package.strip_prefix("nasd-").unwrap_or(package)
}

/// Crate name to its dependencies: (name, is it of this workspace, is it for tests only).
fn dependencies() -> BTreeMap<String, Vec<(String, bool, bool)>> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|package| {
            let list = package["dependencies"].as_array().expect("dependencies");
            let list = list.iter().map(|dependency| {
                let name = dependency["name"].as_str().expect("a name");
                let own = dependency["path"].is_string();
                let test_only = dependency["kind"] == "dev";
                (short(name).to_owned(), own, test_only)
            });
            (short(package["name"].as_str().expect("a name")).to_owned(), list.collect())
        })
        .collect()
}

fn ring_of(name: &str) -> Option<u32> {
    RINGS.iter().find(|(_, names)| names.contains(&name)).map(|(ring, _)| *ring)
}

fn report(problems: &[String]) {
    let mut text = String::new();
    for problem in problems {
        writeln!(text, "  {problem}").expect("writing to a string");
    }
    assert!(problems.is_empty(), "{} problems:\n{text}", problems.len());
}

#[test]
fn arrows_between_crates_go_down() {
    let dependencies = dependencies();
    let listed: BTreeSet<&str> =
        RINGS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    let present: BTreeSet<&str> = dependencies.keys().map(String::as_str).collect();
    assert_eq!(listed, present, "RINGS must list the workspace's crates");

    let mut problems = Vec::new();
    for (name, list) in &dependencies {
        for (dependency, own, test_only) in list {
            if !own || *test_only {
                continue;
            }
            if ring_of(dependency) > ring_of(name) {
                problems.push(format!("{name} depends on {dependency}, which is in a higher ring"));
            }
            if FORBIDDEN.contains(&(name.as_str(), dependency.as_str())) {
                problems.push(format!("{name} must not know {dependency}"));
            }
        }
        if ["common", "util", "utils", "misc"].contains(&name.as_str()) {
            problems.push(format!("no crate is called {name}"));
        }
    }
    report(&problems);
}

#[test]
fn pure_crates_are_pure() {
    let dependencies = dependencies();
    let mut problems = Vec::new();
    for name in RINGS[0].1 {
        for (dependency, own, test_only) in &dependencies[*name] {
            let allowed = PURE_DEPENDENCIES.contains(&dependency.as_str());
            if !own && !test_only && !allowed {
                problems.push(format!("{name} uses {dependency}, which is not known to be pure"));
            }
        }
        let sources = root().join("crates").join(name).join("src");
        for file in tracked_files("rs").iter().filter(|file| file.starts_with(&sources)) {
            let text = std::fs::read_to_string(file).expect("readable");
            for (number, line) in code_lines(&text) {
                for word in IMPURE.iter().filter(|word| line.contains(**word)) {
                    problems.push(format!("{}:{number}: {word} in a pure crate", file.display()));
                }
            }
        }
    }
    report(&problems);
}

/// Numbered lines before the unit tests, without comments.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(index, line)| (index + 1, line))
}

#[test]
fn files_and_functions_keep_their_budget() {
    let mut problems = Vec::new();
    for file in tracked_files("rs") {
        let text = std::fs::read_to_string(&file).expect("readable");
        let lines: Vec<&str> = text.lines().collect();
        let name = file.strip_prefix(root()).expect("under the root").display();
        if lines.len() > MAX_FILE_LINES {
            problems.push(format!("{name} has {} lines", lines.len()));
        }
        if !lines.first().is_some_and(|line| line.starts_with("//!")) {
            problems.push(format!("{name} does not open with a module comment"));
        }
        if !text.is_ascii() {
            problems.push(format!("{name} is not plain ASCII"));
        }
        for (start, length) in functions(&lines) {
            if length > MAX_FUNCTION_LINES {
                problems.push(format!("{name}:{start}: a function of {length} lines"));
            }
        }
    }
    report(&problems);
}

/// First line and length of each function, by the indentation that rustfmt gives.
fn functions<'a>(lines: &'a [&str]) -> impl Iterator<Item = (usize, usize)> + 'a {
    lines.iter().enumerate().filter_map(|(start, line)| {
        let trimmed = line.trim_start();
        let words =
            ["fn ", "pub fn ", "pub(crate) fn ", "pub(super) fn ", "unsafe fn ", "const fn "];
        let is_function = words.iter().any(|word| trimmed.starts_with(word))
            || trimmed.starts_with("pub const fn ")
            || trimmed.starts_with("pub unsafe fn ")
            || trimmed.starts_with("unsafe extern");
        if !is_function || trimmed.ends_with(';') {
            return None;
        }
        let indent = line.len() - trimmed.len();
        let close = format!("{}}}", " ".repeat(indent));
        let length = lines[start..].iter().position(|line| *line == close)?;
        Some((start + 1, length + 1))
    })
}

#[test]
fn no_unwrap_outside_tests() {
    let mut problems = Vec::new();
    for file in tracked_files("rs") {
        let in_sources = file.components().any(|part| part.as_os_str() == "src");
        if !in_sources || is_for_tests(&file) {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("readable");
        for (number, line) in code_lines(&text) {
            let stated = line.contains("expect(\"invariant:");
            if line.contains(".unwrap()") || (line.contains(".expect(\"") && !stated) {
                let name = file.strip_prefix(root()).expect("under the root").display();
                problems.push(format!("{name}:{number}: {}", line.trim()));
            }
        }
    }
    report(&problems);
}

/// Whether a source file is compiled for tests alone: in a `tests` or `fake` module, or in one
/// that the module above declares behind `cfg(test)`.
fn is_for_tests(file: &Path) -> bool {
    if file.iter().any(|part| part == "tests" || part == "fake") {
        return true;
    }
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let folder = file.parent().expect("in a folder");
    ["lib.rs", "mod.rs", "main.rs"].iter().any(|above| {
        let above = std::fs::read_to_string(folder.join(above)).unwrap_or_default();
        above.contains(&format!("#[cfg(test)]\nmod {stem};"))
    })
}

#[test]
fn every_crate_introduces_itself() {
    let mut problems = Vec::new();
    for name in dependencies().keys() {
        let folder = root().join("crates").join(name);
        if !folder.join("README.md").exists() {
            problems.push(format!("crates/{name} has no README.md"));
        }
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        for line in ["description = ", "[lints]\nworkspace = true", "license.workspace = true"] {
            if !manifest.contains(line) {
                problems.push(format!("crates/{name}/Cargo.toml lacks `{line}`"));
            }
        }
    }
    report(&problems);
}

#[test]
fn dependencies_are_explained_and_files_are_small() {
    let decisions = root().join("docs/decisions/0003-dependencies.md");
    let explained = std::fs::read_to_string(decisions).expect("0003-dependencies.md");
    let mut problems = Vec::new();
    for (name, list) in dependencies() {
        for (dependency, own, _) in list {
            if !own && !explained.contains(&format!("`{dependency}`")) {
                problems.push(format!("{name} uses {dependency}, which 0003 does not explain"));
            }
        }
    }
    for file in tracked_files("") {
        let bytes = std::fs::metadata(&file).expect("a file").len();
        if bytes > MAX_TREE_FILE_BYTES {
            problems.push(format!("{} has {bytes} bytes", file.display()));
        }
    }
    problems.sort();
    problems.dedup();
    report(&problems);
}

#[test]
fn links_in_documents_lead_somewhere() {
    let mut problems = Vec::new();
    let mut documents = tracked_files("md");
    documents.push(root().join("README.md"));
    for file in documents {
        let text = std::fs::read_to_string(&file).expect("readable");
        let folder = file.parent().expect("in a folder");
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split('#').next().unwrap_or_default();
            let external = target.contains("://") || path.is_empty();
            if !external && !folder.join(path).exists() {
                problems.push(format!("{} links to {target}", file.display()));
            }
        }
    }
    report(&problems);
}

/// A document names a test as `crate/path.rs::name`.
#[test]
fn tests_that_documents_name_exist() {
    let mut problems = Vec::new();
    let mut named = 0;
    for file in tracked_files("md") {
        let text = std::fs::read_to_string(&file).expect("readable");
        for word in text.split('`').skip(1).step_by(2) {
            let Some((path, name)) = word.split_once(".rs::") else {
                continue;
            };
            named += 1;
            let source = root().join("crates").join(format!("{path}.rs"));
            let source = std::fs::read_to_string(source).unwrap_or_default();
            if !source.contains(&format!("fn {name}(")) {
                problems.push(format!("{} names {word}", file.display()));
            }
        }
    }
    assert!(named > 0, "the security model names tests");
    report(&problems);
}
